//! How much memory a crawl takes: with a million URLs known, and with many bodies that never end.

use std::time::Duration;

use super::{Outcome, Setup, crawler::Crawler, serve};
use crate::web::{PageBytes, WebConfig};

const RUN_MAX: Duration = Duration::from_secs(1_800);
const KNOWN_RSS_MB_MAX: f64 = 300.0;
const ENDLESS_RSS_MB_MAX: f64 = 600.0;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The webs follow from this.
    pub seed: u64,
    /// Pages that the first crawl fetches.
    pub pages: u64,
    /// URLs that it has to know then.
    pub known_urls: u64,
    /// Hosts that send endless bodies to the second crawl.
    pub endless_hosts: u32,
}

impl Default for MemoryOptions {
    fn default() -> MemoryOptions {
        MemoryOptions { seed: 1, pages: 50_000, known_urls: 1_000_000, endless_hosts: 200 }
    }
}

/// Two crawls, one that knows many URLs and one of endless bodies: neither takes more memory than it may.
pub fn memory(setup: &Setup, options: &MemoryOptions) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new("memory");
    known(setup, options, &mut outcome)?;
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
