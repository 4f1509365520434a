//! What a TLS connection costs that is kept open: a crawl that keeps them against the same crawl that keeps none.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{Outcome, Setup, crawler::Crawler, process::rss_bytes, serve};
use crate::web::{PageBytes, WebConfig};

const BYTES_MAX: f64 = 40_000.0;
const WAIT_MAX: Duration = Duration::from_secs(300);
/// What is fetched of each host before memory is compared: robots.txt and two pages.
const REQUESTS_A_HOST: u64 = 3;
/// Long enough to look while all hosts wait.
const DELAY: Duration = Duration::from_secs(10);
/// How long a crawl is left alone before it is looked at, so that what was fetched is written.
const REST: Duration = Duration::from_secs(2);

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct ConnectionsOptions {
    /// The web follows from this.
    pub seed: u64,
    /// Hosts, and so connections.
    pub hosts: u32,
}

impl Default for ConnectionsOptions {
    fn default() -> ConnectionsOptions {
        ConnectionsOptions { seed: 1, hosts: 2_000 }
    }
}

/// Two crawls of as many hosts over TLS, looked at when each host has answered and waits out its delay.
pub fn connections(setup: &Setup, options: &ConnectionsOptions) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new("connections");
    let (kept, kept_bytes) = look(setup, options, "kept")?;
    let (none, none_bytes) = look(setup, options, "none")?;
    outcome.equal("connections open", u64::from(options.hosts), kept);
    outcome.equal("connections open, where none are kept", 0, none);
    let each = kept_bytes.saturating_sub(none_bytes) as f64 / f64::from(options.hosts);
    outcome.bar(
        "memory of a TLS connection",
        format!("<= {BYTES_MAX} bytes"),
        format!("{each:.0} bytes"),
        each <= BYTES_MAX,
    );
    outcome.figure("memory_with_connections_mb", kept_bytes as f64 / 1e6);
    outcome.figure("memory_without_mb", none_bytes as f64 / 1e6);
    Ok(outcome)
}

/// How many connections a crawl has open while all its hosts wait, and the memory it takes then.
fn look(setup: &Setup, options: &ConnectionsOptions, name: &str) -> anyhow::Result<(u64, u64)> {
    let place = match &setup.keep {
        Some(dir) => Setup { keep: Some(dir.join(name)), ..setup.clone() }.place()?,
        None => setup.place()?,
    };
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: options.hosts,
        pages: 50,
        kinds: "plain".parse()?,
        latency_ms: (0, 0),
        page_bytes: PageBytes::Fixed(16_000),
        https_percent: 100,
        delay_ms: DELAY.as_millis() as u64,
        ..WebConfig::default()
    })?;
    let idle = if name == "kept" { 2 * options.hosts } else { 0 };
    let crawler = Crawler::new(setup, place.path(), name, &web)?
        .with_span("delay", DELAY)
        .with_span("idle-timeout", 10 * DELAY)
        .with("idle-connections", idle);
    setup.say(crawler.command_line());
    let mut running = crawler.start()?;
    let wanted = REQUESTS_A_HOST * u64::from(options.hosts);
    let begun = Instant::now();
    while web.seen().requests < wanted {
        ensure!(begun.elapsed() < WAIT_MAX, "the crawl takes too long");
        ensure!(running.wait(Duration::from_millis(100))?.is_none(), "the crawl ended by itself");
    }
    std::thread::sleep(REST);
    let bytes = rss_bytes(running.id())?;
    let open = web.seen().connections.open;
    ensure!(web.seen().requests == wanted, "the crawl went on: the delay is too short for this machine");
    Ok((open, bytes))
}
