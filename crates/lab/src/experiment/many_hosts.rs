//! Many hosts that each want to be left alone for seconds: whether every one gets its turn on time, and what that costs.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{
    Outcome, Setup,
    crawler::{Crawler, Running},
    process::{Processors, cpu, rss_bytes},
    serve,
};
use crate::web::{Latest, PageBytes, Web, WebConfig, plan::Host};

const EXPERIMENT: &str = "many-hosts";
/// The mean period of a host may be so much longer than its delay and its response time.
const LATE_MAX: f64 = 0.01;
/// The rate may be so much lower than what delays and response times allow.
const SLOWER_MAX: f64 = 0.02;
/// Requests at once: a part of the connections that may be open.
const PARALLEL: usize = 500;
/// Connections that the crawler has closed and the web still has to notice.
const CLOSING_MAX: usize = 500;

/// How one part of the experiment is done.
#[derive(Clone, Debug)]
pub struct ManyHostsPart {
    /// Its name.
    pub name: &'static str,
    /// Hosts.
    pub hosts: u32,
    /// The delay between requests to a host.
    pub delay: Duration,
    /// Most connections that may be open.
    pub connections_max: usize,
    /// How much of a processor it may take.
    pub cpu_share_max: f64,
}

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct ManyHostsOptions {
    /// The webs follow from this.
    pub seed: u64,
    /// The parts.
    pub parts: Vec<ManyHostsPart>,
    /// How large pages are.
    pub page_bytes: u32,
    /// How many delays pass before anything is measured.
    pub warm_up: u32,
    /// How many delays are measured.
    pub periods: u32,
}

impl Default for ManyHostsOptions {
    fn default() -> ManyHostsOptions {
        let many = ManyHostsPart {
            name: "many",
            hosts: 20_000,
            delay: Duration::from_secs(5),
            connections_max: 8_000,
            cpu_share_max: 0.75,
        };
        let kept = ManyHostsPart {
            name: "kept",
            hosts: 5_000,
            delay: Duration::from_millis(1_250),
            connections_max: 8_000,
            cpu_share_max: 0.55,
        };
        ManyHostsOptions { seed: 1, parts: vec![many, kept], page_bytes: 4_000, warm_up: 8, periods: 8 }
    }
}

/// Crawls in steady state: each host asked as often as its delay allows, at a fraction of a processor.
pub fn many_hosts(setup: &Setup, options: &ManyHostsOptions) -> anyhow::Result<Outcome> {
    let Some(processors) = Processors::two()? else {
        return Ok(Outcome::skipped(EXPERIMENT, "needs two processors"));
    };
    let mut outcome = Outcome::new(EXPERIMENT);
    for part in &options.parts {
        measure(setup, options, part, &processors, &mut outcome)?;
    }
    Ok(outcome)
}

fn measure(
    setup: &Setup,
    options: &ManyHostsOptions,
    part: &ManyHostsPart,
    processors: &Processors,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let place = match &setup.keep {
        Some(dir) => Setup { keep: Some(dir.join(part.name)), ..setup.clone() }.place()?,
        None => setup.place()?,
    };
    processors.be_with_web()?;
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: part.hosts,
        pages: 10_000,
        kinds: "plain".parse()?,
        page_bytes: PageBytes::Fixed(options.page_bytes),
        links_per_page: 5,
        https_percent: 0,
        delay_ms: part.delay.as_millis() as u64,
        ..WebConfig::default()
    })?;
    processors.be_elsewhere()?;
    let crawler = Crawler::new(setup, place.path(), part.name, &web)?
        .with_span("delay", part.delay)
        .with_span("idle-timeout", 4 * part.delay)
        .with("idle-connections", part.connections_max - PARALLEL - CLOSING_MAX)
        .with("parallel", PARALLEL);
    setup.say(crawler.command_line());
    let mut running = crawler.start()?;
    watch(setup, &mut running, &web, options.warm_up * part.delay)?;
    setup.say(format!("measuring for {:?}", options.periods * part.delay));
    let (from, cpu_from, asked_from, latest_from) =
        (Instant::now(), cpu(running.id())?, web.seen().requests, web.latest());
    watch(setup, &mut running, &web, options.periods * part.delay)?;
    let measured = Measured {
        took: from.elapsed(),
        cpu: cpu(running.id())? - cpu_from,
        requests: web.seen().requests - asked_from,
        memory_bytes: rss_bytes(running.id())?,
        lateness: lateness(&web, part.delay, [&latest_from, &web.latest()]),
    };
    drop(running);
    report(part, &web, &measured, outcome);
    Ok(())
}

/// What was seen in steady state.
struct Measured {
    took: Duration,
    cpu: Duration,
    requests: u64,
    memory_bytes: u64,
    /// How much later than it could each host was asked on average, as a share of the period; in order.
    lateness: Vec<f64>,
}

/// How much later than it could each host was asked on average; for ever, if it was not asked again.
fn lateness(web: &Web, delay: Duration, at: [&HashMap<u64, Latest>; 2]) -> Vec<f64> {
    let late = |host: Host<'_>| {
        let [first, last] = at.map(|latest| latest.get(&host.key()).copied().unwrap_or_default());
        let times = last.requests - first.requests;
        if first.requests == 0 || times == 0 {
            return f64::INFINITY;
        }
        let mean_s = (last.arrived - first.arrived) as f64 / 1e9 / times as f64;
        mean_s / (delay + host.latency()).as_secs_f64() - 1.0
    };
    let mut lateness: Vec<f64> = web.plan().hosts().map(late).collect();
    lateness.sort_by(f64::total_cmp);
    lateness
}

fn report(part: &ManyHostsPart, web: &Web, measured: &Measured, outcome: &mut Outcome) {
    let (name, connections) = (part.name, web.seen().connections);
    let too_late = measured.lateness.iter().filter(|late| **late > LATE_MAX).count();
    let what = format!("{name}: hosts asked later than {:.0} % of their period", LATE_MAX * 100.0);
    outcome.bar(what, 0, too_late, too_late == 0);
    let allowed_per_s: f64 =
        web.plan().hosts().map(|host| 1.0 / (part.delay + host.latency()).as_secs_f64()).sum();
    let per_s = measured.requests as f64 / measured.took.as_secs_f64();
    let (rate, wanted) = (per_s / allowed_per_s, 1.0 - SLOWER_MAX);
    let what = format!("{name}: rate, of what delays allow");
    outcome.bar(what, format!(">= {wanted}"), format!("{rate:.4}"), rate >= wanted);
    let (share, max) = (measured.cpu.as_secs_f64() / measured.took.as_secs_f64(), part.cpu_share_max);
    outcome.bar(format!("{name}: processor"), format!("< {max}"), format!("{share:.3}"), share < max);
    let (open, max) = (connections.open_max, part.connections_max as u64);
    outcome.bar(format!("{name}: connections"), format!("<= {max}"), open, open <= max);

    let at = |share: f64| measured.lateness[((measured.lateness.len() - 1) as f64 * share) as usize] * 100.0;
    let requests = web.seen().requests as f64;
    for (figure, value) in [
        ("late_percent_median", at(0.5)),
        ("late_percent_99", at(0.99)),
        ("late_percent_max", at(1.0)),
        ("requests_per_s", per_s),
        ("cpu_us_per_request", measured.cpu.as_secs_f64() * 1e6 / measured.requests.max(1) as f64),
        ("requests_per_connection", requests / connections.count.max(1) as f64),
        ("memory_mb", measured.memory_bytes as f64 / 1e6),
    ] {
        outcome.figure(&format!("{name}_{figure}"), value);
    }
}

/// Lets the crawl go on for so long.
fn watch(setup: &Setup, running: &mut Running, web: &Web, span: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + span;
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        ensure!(running.wait(left.min(Duration::from_secs(5)))?.is_none(), "the crawl ended by itself");
        setup.say(format!("{} requests", web.seen().requests));
    }
    Ok(())
}
