//! Several sites that crawl as one over an emulated wide area: real agents with stores of their own, each site with an authority
//! of its own, and a relay for each way from one site to another that has its latency and its rate, and counts.

mod bounds;
mod evaluation;
mod geoip;
mod places;

use std::{
    fmt::Write as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::ensure;
use nephila_core::settings::UrlOrder;

use super::{
    Outcome, Setup, serve,
    sites::{Shape, Sites, SitesPlan},
};
use crate::{
    redis::{RedisCluster, RedisClusterOptions},
    wan::Way,
    web::{Seen, Verdict, Web, WebConfig, plan::Host},
};

/// How often it is looked whether everything is done, and how often in a row it has to be;
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOKS: u32 = 8;
/// how often if it is stretched: then nobody tells what waits to be sent, which may be for eight seconds.
const LOOKS_STRETCHED: u32 = 24;
/// Requests for what had been served, of all.
const OVERLAP_MAX: f64 = 0.005;
/// Bytes between sites a foreign URL that is delivered.
const BYTES_MAX: f64 = 12.0;
/// How much less passes between sites than between the places of one that is stretched,
const LESS_TRAFFIC: f64 = 0.99;
/// and how many times as long that takes.
const FASTER: f64 = 3.0;
/// How long hosts take to answer.
const LATENCY_MS: u32 = 20;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct FederationOptions {
    /// The web follows from this.
    pub seed: u64,
    /// How many sites.
    pub sites: usize,
    /// Agents of each.
    pub agents: usize,
    /// Those of each share a store in a Redis Cluster.
    pub shares_store: bool,
    /// Hosts of the web, each with an address of its own,
    pub hosts: u32,
    /// and pages of each, on average.
    pub pages: u32,
    /// From one site to another and back.
    pub round_trip: Duration,
    /// Of each direction between two sites.
    pub bits_per_s: u64,
    /// Which part of the packets between sites is lost,
    pub loss: f64,
    /// and how late each is at most, beyond its way. Either takes an administrator.
    pub jitter: Duration,
    /// Where the sites are, if they are somewhere: their round trips are those that were measured between these places.
    pub places: Vec<String>,
    /// Where they are looked up.
    pub places_dir: PathBuf,
    /// Between two requests to a host.
    pub delay: Duration,
    /// Requests at once, of all sites together.
    pub width: usize,
    /// Which URLs of a host come first.
    pub order: UrlOrder,
    /// How long the last site is cut off from the others, from when there were half as many requests as there are hosts; zero for
    /// not at all. It is this early because a host whose first page is known needs nobody else to be crawled.
    pub cut: Duration,
    /// How long the first half of the sites is cut off from the others, from then; zero for not at all.
    pub halves: Duration,
    /// Take the last site away for good when a third of the pages were asked for.
    pub lose: bool,
    /// Change the list of sites when a third of the pages were asked for: every third host gets another site, or the same.
    pub change: bool,
    /// Have each host crawled by the site that is nearest to it. The sites are far apart, and each is near to as many hosts.
    pub geography: bool,
    /// How far hosts are from all sites but the one that they are near to, there and back.
    pub far: Duration,
    /// Places that hosts are at: the first of them have a site each. As many as there are sites, if this is 0.
    pub host_places: usize,
    /// Crawl as one site that is stretched over all places too, and compare: there each URL belongs to a place, by its hash, and
    /// is sent as often as it is found.
    pub compare: bool,
    /// Do what is to be known of federations instead: rates at several distances, traffic, and two sites compared with three.
    pub evaluate: bool,
    /// Where a plot of that goes, as SVG.
    pub plot: Option<PathBuf>,
    /// How long it may take in all.
    pub limit: Duration,
}

impl Default for FederationOptions {
    fn default() -> FederationOptions {
        FederationOptions {
            seed: 1,
            sites: 3,
            agents: 1,
            shares_store: false,
            hosts: 1_000,
            pages: 40,
            round_trip: Duration::from_millis(80),
            bits_per_s: 20_000_000,
            loss: 0.0,
            jitter: Duration::ZERO,
            places: Vec::new(),
            places_dir: places::DIR.into(),
            delay: Duration::ZERO,
            width: 96,
            order: UrlOrder::default(),
            cut: Duration::ZERO,
            halves: Duration::ZERO,
            lose: false,
            change: false,
            geography: false,
            far: Duration::ZERO,
            host_places: 0,
            compare: false,
            evaluate: false,
            plot: None,
            limit: Duration::from_secs(1_200),
        }
    }
}

/// What came of one crawl.
struct Measured {
    verdict: Verdict,
    seen: Seen,
    /// From the first request to the last.
    seconds: f64,
    /// Bytes of each way, there and back.
    ways: Vec<(usize, usize, (u64, u64))>,
    sent: u64,
    /// Pages that a lost site had fetched.
    fetched_by_lost: Option<u64>,
    /// Hosts that had been another site's.
    claimed: u64,
    /// Hosts that were given to a site that is nearer than their own, and those that the nearest has crawled.
    by_place: Option<(u64, u32)>,
    /// Sites that say of a URL that it was fetched, and those of them that say so because another one does.
    answers: Option<(usize, usize)>,
    disorderly: Vec<String>,
}

impl Measured {
    fn bytes(&self) -> u64 {
        self.ways.iter().map(|(_, _, (there, back))| there + back).sum()
    }

    fn rate(&self) -> f64 {
        self.seen.requests as f64 / self.seconds
    }
}

/// Sites crawl a web as one: all of it, each page once, with few bytes between them.
pub fn federation(setup: &Setup, options: &FederationOptions) -> anyhow::Result<Outcome> {
    let sites = if options.places.is_empty() { options.sites } else { options.places.len() };
    let options = &FederationOptions { sites, ..options.clone() };
    let host_places = options.host_places.max(sites);
    let options = &FederationOptions { host_places, ..options.clone() };
    ensure!((2..=9).contains(&sites), "2 to 9 sites can be had here, not {sites}");
    ensure!(options.width >= sites * options.agents, "{} requests at once are too few", options.width);
    ensure!((0.0..0.5).contains(&options.loss), "of packets a part below a half can be lost");
    if !options.places.is_empty() && !options.places_dir.exists() {
        return Ok(Outcome::skipped("federation", format!("no {}", options.places_dir.display())));
    }
    if options.evaluate {
        return evaluation::evaluate(setup, options);
    }
    let mut outcome = Outcome::new("federation");
    let measured = crawl(setup, options, "federation", Shape::Federation)?;
    report(&measured, &mut outcome);
    if let Some((granted, by_nearest)) = measured.by_place {
        outcome.equal("hosts that the nearest site has crawled", options.hosts, by_nearest);
        outcome.figure("hosts_granted", granted);
    }
    if let Some((all, by_others)) = measured.answers {
        outcome.equal("sites that say what became of a URL", options.sites, all);
        outcome.equal("those that another site says it to", options.sites - 1, by_others);
    }
    outcome.table = table("", options, &measured);
    if options.compare {
        let stretched = crawl(setup, options, "stretched", Shape::Stretched)?;
        compare(&measured, &stretched, &mut outcome);
        outcome.table += &table("stretched: ", options, &stretched);
    }
    Ok(outcome)
}

fn web_config(options: &FederationOptions) -> anyhow::Result<WebConfig> {
    Ok(WebConfig {
        seed: options.seed,
        hosts: options.hosts,
        pages: options.pages,
        kinds: "federation".parse()?,
        latency_ms: (LATENCY_MS, LATENCY_MS),
        places: options.host_places as u32,
        far_ms: options.far.as_millis() as u64,
        delay_ms: options.delay.as_millis() as u64,
        ip_delay_ms: 0,
        // Seeds at one site only.
        seeds: 1,
        ..WebConfig::default()
    })
}

fn site_names(count: usize) -> Vec<String> {
    (0..count).map(|site| format!("site-{site}")).collect()
}

/// Crawls once, in this shape. What is kept has this name.
fn crawl(setup: &Setup, options: &FederationOptions, name: &str, shape: Shape) -> anyhow::Result<Measured> {
    let place = match &setup.keep {
        Some(dir) => Setup { keep: Some(dir.join(name)), ..setup.clone() }.place()?,
        None => setup.place()?,
    };
    let web = serve(web_config(options)?)?;
    let names = site_names(options.sites);
    let apart = places::round_trips(&options.places_dir, &options.places)?;
    let way = |from: usize, to: usize| Way {
        round_trip: apart
            .get(from)
            .and_then(|to_others| to_others.get(to))
            .copied()
            .unwrap_or(options.round_trip),
        bytes_per_s: options.bits_per_s / 8,
        loss: options.loss,
        jitter: options.jitter,
    };
    let east = |place: usize| (0.0, 360.0 * place as f64 / options.host_places as f64 - 170.0);
    let at: Vec<geoip::Place> = (0..options.host_places).map(east).collect();
    let nearest = |host: u32| host as usize % options.host_places;
    let mut settings = format!(
        "delay = \"{}ms\"\nip-delay = \"0s\"\nparallel = {}\norder = \"{}\"\n",
        options.delay.as_millis(),
        options.width / (options.sites * options.agents),
        options.order
    );
    if options.geography {
        let hosts = web.plan().hosts().zip(0..);
        // Those of a place without a site are nearest to one or the other by turns.
        let is_even = |number: u32| (number as usize / options.host_places).is_multiple_of(2);
        let beside = |number: u32| if is_even(number) { 1.0 } else { -1.0 };
        let near = |number: u32| (at[nearest(number)].0, at[nearest(number)].1 + beside(number));
        let addresses: Vec<_> = hosts.map(|(host, number)| (host.address(), near(number))).collect();
        let file = place.path().join("geoip.mmdb");
        std::fs::write(&file, geoip::file(&addresses))?;
        let _ = writeln!(settings, "geoip = {file:?}");
    }
    let cluster = match options.shares_store {
        true => Some(RedisCluster::start(&RedisClusterOptions::default())?),
        false => None,
    };
    let nodes = cluster.as_ref().map(RedisCluster::nodes);
    let plan = SitesPlan {
        names: &names,
        agents: options.agents,
        settings: &settings,
        pinned: &[],
        at: options.geography.then_some(&at),
        shape,
        store: nodes.as_deref(),
        way: &way,
    };
    let mut sites = Sites::found(setup, &plan, place.path(), &web)?;
    let began = Instant::now();
    sites.start()?;
    let looks = if shape == Shape::Federation { LOOKS } else { LOOKS_STRETCHED };
    let fetched_by_lost = work(setup, options, &mut sites, &web, (began, looks))?;
    let ways = sites.bytes();
    let (verdict, seen, sent) = (web.verdict(), web.seen(), sites.total("sent"));
    let claimed = sites.total("claimed");
    let has_all_places = options.host_places == options.sites && !options.change && !options.lose;
    let by_place = (options.geography && has_all_places).then(|| {
        let is_with_nearest =
            |host: &Host<'_>, number| sites.has_fetched(nearest(number), &format!("{}/", host.entry()));
        let hosts = web.plan().hosts().zip(0..).filter(|(host, number)| is_with_nearest(host, *number));
        (sites.total("granted"), hosts.count() as u32)
    });
    let is_asked = matches!(plan.shape, Shape::Federation) && !(options.lose || options.change);
    let seed = web.seeds().first().cloned().unwrap_or_default();
    let answers = is_asked.then(|| sites.fetched(&seed));
    let disorderly = sites.end()?;
    Ok(Measured {
        seconds: verdict.elapsed_s,
        verdict,
        seen,
        ways,
        sent,
        fetched_by_lost,
        claimed,
        by_place,
        answers,
        disorderly,
    })
}

/// Waits until all is crawled, and cuts some sites off meanwhile, or takes the last away, if that is wanted. Says how many pages
/// the latter had fetched.
fn work(
    setup: &Setup,
    options: &FederationOptions,
    sites: &mut Sites,
    web: &Web,
    (began, looks): (Instant, u32),
) -> anyhow::Result<Option<u64>> {
    let (mut lost, mut has_changed) = (None, false);
    let all = u64::from(options.hosts) * u64::from(options.pages);
    let mut cut: Option<Instant> = None;
    let (apart, span) = match options.halves.is_zero() {
        true => (options.sites - 1..options.sites, options.cut),
        false => (0..options.sites / 2, options.halves),
    };
    let mut is_over = span.is_zero();
    let mut quiet = 0;
    while quiet < looks {
        std::thread::sleep(LOOK_EVERY);
        let unfinished = sites.unfinished()?;
        if began.elapsed() > options.limit {
            anyhow::bail!("the crawl is not done within {:?}: {unfinished:?}", options.limit);
        }
        match cut {
            None if !is_over && web.seen().requests >= u64::from(options.hosts) / 2 => {
                setup.say(format!("{} of {} sites are cut off for {span:?}", apart.len(), options.sites));
                sites.cut(&apart, true);
                cut = Some(Instant::now());
            }
            Some(since) if since.elapsed() >= span => {
                setup.say(format!("they are not cut off any more; {} requests so far", web.seen().requests));
                sites.cut(&apart, false);
                (cut, is_over) = (None, true);
            }
            _ => {}
        }
        if options.lose && lost.is_none() && web.seen().requests >= all / 3 {
            lost = Some(sites.lose(options.sites - 1)?);
            setup.say("the last site is lost for good, and the others know");
            continue;
        }
        if options.change && !has_changed && web.seen().requests >= all / 3 {
            let site = |host: u32| format!("site-{}", host / 3 % options.sites as u32);
            let hosts = (0..options.hosts).step_by(3);
            let pinned: Vec<_> = hosts.map(|host| (format!("federation-{host}.test"), site(host))).collect();
            sites.change(&pinned)?;
            setup.say("all sites have another list");
            has_changed = true;
            continue;
        }
        let is_over = is_over && options.lose == lost.is_some() && options.change == has_changed;
        quiet = if unfinished.is_none() && is_over { quiet + 1 } else { 0 };
    }
    Ok(lost)
}

fn report(measured: &Measured, outcome: &mut Outcome) {
    let Measured { verdict, seen, sent, disorderly, .. } = measured;
    outcome.equal("coverage", 1.0, verdict.coverage);
    outcome.none("pages missed", verdict.missed.count, &verdict.missed.examples);
    // What a lost site had fetched nobody else has.
    let again = measured.fetched_by_lost.unwrap_or_default();
    let overlap = seen.overlap.saturating_sub(again) as f64 / seen.requests.max(1) as f64;
    outcome.bar("overlap", format!("< {OVERLAP_MAX}"), format!("{overlap:.4}"), overlap < OVERLAP_MAX);
    outcome.none("politeness violations", verdict.violations_total, &[]);
    let each = measured.bytes() as f64 / (*sent).max(1) as f64;
    let what = "bytes between sites a foreign URL delivered";
    outcome.bar(what, format!("<= {BYTES_MAX}"), format!("{each:.2}"), each <= BYTES_MAX && *sent > 0);
    outcome.none("agents that did not end in order", disorderly.len() as u64, disorderly);
    if let Some(fetched) = measured.fetched_by_lost {
        outcome.figure("fetched_by_the_lost_site", fetched);
        outcome.figure("fetched_again", seen.overlap);
    }
    outcome.figure("seconds", measured.seconds);
    outcome.figure("requests", seen.requests);
    outcome.figure("urls_sent", *sent);
    outcome.figure("hosts_claimed", measured.claimed);
    outcome.figure("bytes", measured.bytes());
}

/// What a federation has over one site that is stretched over all places.
fn compare(measured: &Measured, stretched: &Measured, outcome: &mut Outcome) {
    let less = 1.0 - measured.bytes() as f64 / stretched.bytes().max(1) as f64;
    let what = "traffic between sites, below that of a stretched site by";
    outcome.bar(what, format!(">= {LESS_TRAFFIC}"), format!("{less:.4}"), less >= LESS_TRAFFIC);
    let times = stretched.seconds / measured.seconds;
    let what = "time of a stretched site, of the federation's";
    outcome.bar(what, format!(">= {FASTER}"), format!("{times:.2}"), times >= FASTER);
    outcome.equal("coverage of the stretched site", 1.0, stretched.verdict.coverage);
    outcome.figure("stretched_seconds", stretched.seconds);
    outcome.figure("stretched_bytes", stretched.bytes());
}

fn table(title: &str, options: &FederationOptions, measured: &Measured) -> String {
    let mut table = format!("{:>6}  {:>6}  {:>12}  {:>12}\n", "from", "to", "bytes there", "bytes back");
    for (from, to, (there, back)) in &measured.ways {
        // Writing to a String cannot fail.
        let _ = writeln!(table, "{from:>6}  {to:>6}  {there:>12}  {back:>12}");
    }
    let _ = writeln!(
        table,
        "{title}{} sites of {} agents: {} requests in {:.1} s, {:.0} a second; {} URLs sent, {} bytes",
        options.sites,
        options.agents,
        measured.seen.requests,
        measured.seconds,
        measured.rate(),
        measured.sent,
        measured.bytes(),
    );
    table
}
