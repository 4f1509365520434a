//! How much memory a crawl takes: with a million URLs known, with many hosts, and with many bodies that never end.

use std::{net::TcpListener, time::Duration};

use anyhow::ensure;

use super::{
    Outcome, Setup,
    crawler::Crawler,
    process::{rss_bytes, rss_max_bytes},
    serve,
};
use crate::web::{PageBytes, WebConfig};

const RUN_MAX: Duration = Duration::from_secs(1_800);
const KNOWN_RSS_MB_MAX: f64 = 300.0;
const ENDLESS_RSS_MB_MAX: f64 = 600.0;
const IDLE_HOST_BYTES_MAX: f64 = 1_024.0;
/// Pages of crawls of many hosts,
const PAGE_BYTES: u32 = 2_000;
/// and how many are fetched at once.
const PARALLEL: u32 = 16;
/// How long after its last request a crawl has come to rest,
const SETTLE: Duration = Duration::from_secs(3);
/// and the part of all pages and robots.txt that it must have asked for then.
const FETCHED_MIN: f64 = 0.999;
/// Hosts that a crawl has in memory that may have few.
const WORKBENCH_HOSTS: u32 = 1_000;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The webs follow from this.
    pub seed: u64,
    /// Pages that the first crawl fetches.
    pub pages: u64,
    /// URLs that it has to know then.
    pub known_urls: u64,
    /// Hosts that crawls of many hosts meet: some, and many.
    pub hosts: (u32, u32),
    /// Hosts that send endless bodies to the last crawl.
    pub endless_hosts: u32,
}

impl Default for MemoryOptions {
    fn default() -> MemoryOptions {
        MemoryOptions {
            seed: 1,
            pages: 50_000,
            known_urls: 1_000_000,
            hosts: (5_000, 55_000),
            endless_hosts: 200,
        }
    }
}

/// Crawls that know many URLs or many hosts, and one of endless bodies: none takes more memory than it may.
pub fn memory(setup: &Setup, options: &MemoryOptions) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new("memory");
    known(setup, options, &mut outcome)?;
    hosts(setup, options, &mut outcome)?;
    endless(setup, options, &mut outcome)?;
    Ok(outcome)
}

fn known(setup: &Setup, options: &MemoryOptions, outcome: &mut Outcome) -> anyhow::Result<()> {
    let place = setup.place()?;
    // Of each page, eight links lead to new pages for certain, and most of the others because the hosts are so large.
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: 200,
        pages: 1_000_000,
        kinds: "plain".parse()?,
        latency_ms: (0, 2),
        page_bytes: PageBytes::Web,
        links_per_page: 25,
        https_percent: 0,
        delay_ms: 0,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    let crawler = Crawler::new(setup, place.path(), "known", &web)?
        .with("delay", "0s")
        .with("ip-delay", "0s")
        .with("slow-factor", "0")
        .with("max-pages", options.pages);
    setup.say(crawler.command_line());
    let ended = crawler.run(RUN_MAX)?;
    setup.say(format!("ended after {:.0} s: {}", ended.took.as_secs_f64(), ended.reason()));
    let (known, rss_mb) = (ended.figure("known_urls")?, ended.figure("rss_max_mb")?);
    let pages = ended.figure("pages")?;
    outcome.bar("pages", format!(">= {}", options.pages), pages, pages >= options.pages as f64);
    let wanted = options.known_urls;
    outcome.bar("URLs known", format!(">= {wanted}"), known, known >= wanted as f64);
    let wanted = format!("< {KNOWN_RSS_MB_MAX} MB");
    outcome.bar("memory with these", wanted, format!("{rss_mb} MB"), rss_mb < KNOWN_RSS_MB_MAX);
    outcome.figure("pages_per_s", pages / ended.took.as_secs_f64());
    Ok(())
}

/// Memory of a crawl whose hosts all rest, by how many there are. Every crawl fetches as many pages, finds its hosts by links
/// from one seed, and is measured when all was fetched, while it waits for a host that does not answer: what is left between
/// two of them is what a host takes, with its queue in the store, however few URLs are in it. What is no host's would hide it,
/// because the allocator keeps some of it for later: pages are small, few are fetched at once, few connections are kept, and the
/// archive's list of captures in an open file is short.
fn hosts(setup: &Setup, options: &MemoryOptions, outcome: &mut Outcome) -> anyhow::Result<()> {
    let (some, many) = options.hosts;
    let crawl = |name: &str, hosts: u32, workbench_hosts: Option<u32>| -> anyhow::Result<(f64, f64)> {
        let place = match &setup.keep {
            Some(dir) => Setup { keep: Some(dir.join(name)), ..setup.clone() }.place()?,
            None => setup.place()?,
        };
        let web = serve(WebConfig {
            seed: options.seed,
            hosts,
            pages: many / hosts,
            kinds: "plain".parse()?,
            latency_ms: (0, 2),
            page_bytes: PageBytes::Fixed(PAGE_BYTES),
            links_per_page: 2,
            https_percent: 0,
            seeds: 1,
            delay_ms: 0,
            ip_delay_ms: 0,
            ..WebConfig::default()
        })?;
        let mut crawler = Crawler::new(setup, place.path(), name, &web)?
            .with("scope", "any")
            .with("delay", "0s")
            .with("ip-delay", "0s")
            .with("slow-factor", "0")
            .with("parallel", PARALLEL)
            .with("idle-connections", PARALLEL)
            .with("shards", 1)
            .with("warc-size", "8MB")
            .and_seed(nobody_answers()?);
        if let Some(hosts) = workbench_hosts {
            crawler = crawler.with("workbench-hosts", hosts);
        }
        setup.say(crawler.command_line());
        let mut running = crawler.start()?;
        let wanted = f64::from(hosts + hosts * (many / hosts)) * FETCHED_MIN;
        let mut requests = 0;
        // Few links that look known, and are not, are decided about only before the end of a crawl.
        while (web.seen().requests as f64) < wanted || web.seen().requests > requests {
            requests = web.seen().requests;
            let ended = running.wait(SETTLE)?.is_some() || running.started.elapsed() > RUN_MAX;
            ensure!(!ended, "{requests} of {wanted} requests\n{}", crawler.log_end());
        }
        let (rss, rss_max) = (rss_bytes(running.id())? as f64, rss_max_bytes(running.id())? as f64);
        let took_s = running.started.elapsed().as_secs_f64();
        setup.say(format!("{requests} requests after {took_s:.0} s, {:.1} MB", rss / 1e6));
        Ok((rss, rss_max))
    };
    let per_host = |bytes: f64, less_bytes: f64| (bytes - less_bytes) / f64::from(many - some);
    let ((few, few_max), (all, all_max)) =
        (crawl("some-hosts", some, None)?, crawl("many-hosts", many, None)?);
    let each = per_host(all, few);
    let wanted = format!("<= {IDLE_HOST_BYTES_MAX} bytes");
    outcome.bar("memory of an idle host", wanted, format!("{each:.0} bytes"), each <= IDLE_HOST_BYTES_MAX);
    outcome.figure("memory_of_a_host_at_the_peak_bytes", per_host(all_max, few_max).round());
    let (small, _) = crawl("some-on-a-small-workbench", some, Some(WORKBENCH_HOSTS))?;
    let (bounded, _) = crawl("many-on-a-small-workbench", many, Some(WORKBENCH_HOSTS))?;
    outcome.figure("memory_of_a_host_that_left_bytes", per_host(bounded, small).round());
    outcome.figure("memory_with_many_hosts_mb", all / 1e6);
    Ok(())
}

/// A URL of a server that is not there, and that a crawl tries again after minutes only.
fn nobody_answers() -> anyhow::Result<String> {
    let server = TcpListener::bind("127.0.0.1:0")?;
    Ok(format!("http://{}/", server.local_addr()?))
}

fn endless(setup: &Setup, options: &MemoryOptions, outcome: &mut Outcome) -> anyhow::Result<()> {
    let place = match &setup.keep {
        Some(dir) => Setup { keep: Some(dir.join("endless")), ..setup.clone() }.place()?,
        None => setup.place()?,
    };
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: options.endless_hosts,
        pages: 1,
        kinds: "endless".parse()?,
        latency_ms: (0, 2),
        https_percent: 0,
        delay_ms: 0,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    let crawler = Crawler::new(setup, place.path(), "endless", &web)?
        .with("delay", "0s")
        .with("ip-delay", "0s")
        .with("slow-factor", "0")
        // So many bodies at once are slow, but not the hosts' fault.
        .with("request-timeout", "10m");
    setup.say(crawler.command_line());
    let ended = crawler.run(RUN_MAX)?;
    setup.say(format!("ended after {:.0} s: {}", ended.took.as_secs_f64(), ended.reason()));
    let verdict = web.verdict();
    outcome.equal("endless bodies asked for", verdict.expected, verdict.served);
    let rss_mb = ended.figure("rss_max_mb")?;
    let wanted = format!("< {ENDLESS_RSS_MB_MAX} MB");
    let what = format!("memory with {} endless bodies", options.endless_hosts);
    outcome.bar(what, wanted, format!("{rss_mb} MB"), rss_mb < ENDLESS_RSS_MB_MAX);
    outcome.figure("endless_bytes", verdict.bytes);
    Ok(())
}
