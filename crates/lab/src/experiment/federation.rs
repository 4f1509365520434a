//! Several sites that crawl as one over an emulated wide area: real agents with stores of their own, each site with an authority
//! of its own, and a relay for each way from one site to another that has its latency and its rate, and counts.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::ensure;
use nephila_node::control::Request;

use super::{Outcome, Setup, agents::Agents, serve};
use crate::{
    wan::{Relay, Wan, Way},
    web::{PageBytes, Web, WebConfig},
};

/// How long the agents of a site may take to find each other.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether everything is done, and how often in a row it has to be.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOKS: u32 = 3;
/// Requests for what had been served, of all.
const OVERLAP_MAX: f64 = 0.005;
/// Bytes between sites a foreign URL that is delivered.
const BYTES_MAX: f64 = 12.0;
const PAGE_BYTES: u32 = 4_000;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct FederationOptions {
    /// The web follows from this.
    pub seed: u64,
    /// How many sites.
    pub sites: usize,
    /// Agents of each.
    pub agents: usize,
    /// Hosts of the web, each with an address of its own,
    pub hosts: u32,
    /// and pages of each.
    pub pages: u32,
    /// From one site to another and back.
    pub round_trip: Duration,
    /// Of each direction between two sites.
    pub bits_per_s: u64,
    /// How long the last site is cut off from the others, from when half of the pages were asked for; zero for not at all.
    pub cut: Duration,
    /// How long it may take in all.
    pub limit: Duration,
}

impl Default for FederationOptions {
    fn default() -> FederationOptions {
        FederationOptions {
            seed: 1,
            sites: 3,
            agents: 1,
            hosts: 300,
            pages: 100,
            round_trip: Duration::from_millis(80),
            bits_per_s: 20_000_000,
            cut: Duration::ZERO,
            limit: Duration::from_secs(1_200),
        }
    }
}

/// The ways from one site to the gateways of another.
struct WayTo {
    from: usize,
    to: usize,
    relays: Vec<Relay>,
}

/// All sites.
struct Sites {
    sites: Vec<Agents>,
    ways: Vec<WayTo>,
    /// Carries what passes between them.
    _wan: Wan,
}

/// Sites crawl a web as one: all of it, each page once, with few bytes between them.
pub fn federation(setup: &Setup, options: &FederationOptions) -> anyhow::Result<Outcome> {
    ensure!((2..=9).contains(&options.sites), "2 to 9 sites can be had here, not {}", options.sites);
    let place = setup.place()?;
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: options.hosts,
        pages: options.pages,
        kinds: "plain".parse()?,
        latency_ms: (20, 20),
        page_bytes: PageBytes::Fixed(PAGE_BYTES),
        https_percent: 0,
        delay_ms: 0,
        ip_delay_ms: 0,
        // Seeds at one site only.
        seeds: 3,
        ..WebConfig::default()
    })?;
    let mut sites = found(setup, options, place.path(), &web)?;
    let began = Instant::now();
    for site in &mut sites.sites {
        (0..options.agents).try_for_each(|index| site.start(index))?;
    }
    for site in &mut sites.sites {
        site.wait_for_site(BEGIN_MAX)?;
    }
    sites.work(setup, options, &web, began)?;
    let took = began.elapsed();
    let mut outcome = Outcome::new("federation");
    report(options, &sites, &web, took, &mut outcome);
    let mut disorderly = Vec::new();
    for site in &mut sites.sites {
        disorderly.extend(site.end()?);
    }
    outcome.none("agents that did not end in order", disorderly.len() as u64, &disorderly);
    Ok(outcome)
}

/// Makes the sites, and the ways between them.
fn found(setup: &Setup, options: &FederationOptions, dir: &Path, web: &Web) -> anyhow::Result<Sites> {
    let name = |site: usize| format!("site-{site}");
    let mut sites = Vec::new();
    for site in 0..options.sites {
        let dir = dir.join(name(site));
        fs::create_dir_all(&dir)?;
        let settings = format!(
            "scope = \"any\"\ndelay = \"0s\"\nip-delay = \"0s\"\nparallel = 32\nfederation = {:?}\n",
            dir.join("federation.toml")
        );
        let seeds = if site == 0 { web.seeds() } else { Vec::new() };
        let count = (options.agents, options.agents);
        sites.push(Agents::of_site(setup, &dir, web, count, &settings, (&name(site), &seeds))?);
    }
    let wan = Wan::start()?;
    let way = Way { round_trip: options.round_trip, bytes_per_s: options.bits_per_s / 8 };
    let mut ways = Vec::new();
    for from in 0..options.sites {
        let mut list = "version = 1\n".to_owned();
        for (to, agents) in sites.iter().enumerate() {
            let gateways = agents.list.iter().map(|agent| agent.gateway.clone());
            let gateways = if to == from {
                gateways.collect::<Vec<_>>()
            } else {
                let relays = gateways.map(|gateway| wan.open(gateway, way)).collect::<Result<Vec<_>, _>>()?;
                let addresses = relays.iter().map(|relay| relay.address.clone()).collect();
                ways.push(WayTo { from, to, relays });
                addresses
            };
            let ca = dir.join(name(to)).join("ca/ca/ca.pem");
            // Writing to a String cannot fail.
            let _ = writeln!(list, "[[site]]\nname = {:?}\ngateways = {gateways:?}\nca = {ca:?}", name(to));
        }
        fs::write(dir.join(name(from)).join("federation.toml"), list)?;
    }
    Ok(Sites { sites, ways, _wan: wan })
}

impl Sites {
    /// Waits until all is crawled, and cuts a site off meanwhile if that is wanted.
    fn work(
        &mut self,
        setup: &Setup,
        options: &FederationOptions,
        web: &Web,
        began: Instant,
    ) -> anyhow::Result<()> {
        let half = u64::from(options.hosts) * u64::from(options.pages) / 2;
        let mut cut: Option<Instant> = None;
        let mut is_over = options.cut.is_zero();
        let mut quiet = 0;
        while quiet < LOOKS {
            std::thread::sleep(LOOK_EVERY);
            for site in &mut self.sites {
                let ended = site.ended()?;
                ensure!(ended.is_empty(), "an agent ended by itself: {}", ended.join("\n"));
            }
            let unfinished = self.sites.iter().find_map(Agents::unfinished);
            if began.elapsed() > options.limit {
                anyhow::bail!("the crawl is not done within {:?}: {unfinished:?}", options.limit);
            }
            match cut {
                None if !is_over && web.seen().requests >= half => {
                    setup.say(format!("the last site is cut off for {:?}", options.cut));
                    self.cut_last(true);
                    cut = Some(Instant::now());
                }
                Some(since) if since.elapsed() >= options.cut => {
                    setup.say("it is not cut off any more");
                    self.cut_last(false);
                    (cut, is_over) = (None, true);
                }
                _ => {}
            }
            quiet = if unfinished.is_none() && is_over { quiet + 1 } else { 0 };
        }
        Ok(())
    }

    fn cut_last(&self, is_cut: bool) {
        let last = self.sites.len() - 1;
        for way in self.ways.iter().filter(|way| way.from == last || way.to == last) {
            way.relays.iter().for_each(|relay| relay.cut(is_cut));
        }
    }

    /// URLs that were delivered to other sites, as the agents count.
    fn sent(&self) -> u64 {
        let sent = |site: &Agents| -> u64 {
            let status = site.running().filter_map(|index| site.ask(index, &Request::Status)).next();
            status.and_then(|status| status["totals"]["sent"].as_u64()).unwrap_or(0)
        };
        self.sites.iter().map(sent).sum()
    }
}

fn report(options: &FederationOptions, sites: &Sites, web: &Web, took: Duration, outcome: &mut Outcome) {
    let verdict = web.verdict();
    let seen = web.seen();
    outcome.equal("coverage", 1.0, verdict.coverage);
    let overlap = seen.overlap as f64 / seen.requests.max(1) as f64;
    outcome.bar("overlap", format!("< {OVERLAP_MAX}"), format!("{overlap:.4}"), overlap < OVERLAP_MAX);
    outcome.none("politeness violations", verdict.violations_total, &[]);
    let mut total = 0;
    let mut table = format!("{:>6}  {:>6}  {:>12}  {:>12}\n", "from", "to", "bytes there", "bytes back");
    for WayTo { from, to, relays } in &sites.ways {
        let (there, back) = relays.iter().map(Relay::bytes).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        total += there + back;
        // Writing to a String cannot fail.
        let _ = writeln!(table, "{from:>6}  {to:>6}  {there:>12}  {back:>12}");
    }
    let sent = sites.sent();
    let each = total as f64 / sent.max(1) as f64;
    let what = "bytes between sites a foreign URL delivered";
    outcome.bar(what, format!("<= {BYTES_MAX}"), format!("{each:.2}"), each <= BYTES_MAX && sent > 0);
    let _ = writeln!(
        table,
        "{} sites of {} agents: {} requests in {:.1} s, {:.0} a second; {sent} URLs sent, {total} bytes",
        options.sites,
        options.agents,
        seen.requests,
        took.as_secs_f64(),
        seen.requests as f64 / took.as_secs_f64(),
    );
    outcome.figure("seconds", took.as_secs_f64());
    outcome.figure("requests", seen.requests);
    outcome.figure("urls_sent", sent);
    outcome.figure("bytes", total);
    outcome.table = table;
}
