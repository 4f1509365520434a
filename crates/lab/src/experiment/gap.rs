//! How long a busy host is really left alone between two requests.

use std::time::Duration;

use super::{Outcome, Setup, crawler::Crawler, serve};
use crate::web::{PageBytes, WebConfig};

/// Hosts answer within 50 ms.
const LATENCY_MS: (u32, u32) = (5, 45);
const HOSTS: u32 = 5;
/// The mean gap may be so much longer than the delay.
const LONGER_MAX: f64 = 0.01;
/// How long requests go on at each delay, if there are fewer than [`PAGES_MAX`].
const LASTS: Duration = Duration::from_secs(120);
const PAGES_MAX: f64 = 60.0;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct GapOptions {
    /// The web follows from this.
    pub seed: u64,
    /// The delays to try, all at the same time.
    pub delays: Vec<Duration>,
}

impl Default for GapOptions {
    fn default() -> GapOptions {
        GapOptions { seed: 1, delays: vec![Duration::from_secs(1), Duration::from_secs(5)] }
    }
}

/// Crawls with delays, one at a time for each of them: the gaps are the delay, and hardly longer.
pub fn gap(setup: &Setup, options: &GapOptions) -> anyhow::Result<Outcome> {
    let place = setup.place()?;
    let mut outcome = Outcome::new("gap");
    let mut crawls = Vec::new();
    for (number, delay) in options.delays.iter().enumerate() {
        let pages = (LASTS.as_secs_f64() / delay.as_secs_f64()).clamp(2.0, PAGES_MAX) as u32;
        let web = serve(WebConfig {
            seed: options.seed,
            hosts: HOSTS,
            pages,
            kinds: "plain".parse()?,
            latency_ms: LATENCY_MS,
            page_bytes: PageBytes::Fixed(16_000),
            delay_ms: delay.as_millis() as u64,
            ..WebConfig::default()
        })?;
        let crawler =
            Crawler::new(setup, place.path(), &format!("gap-{number}"), &web)?.with_span("delay", *delay);
        setup.say(crawler.command_line());
        crawls.push((delay, pages, crawler.start()?, web));
    }
    for (delay, pages, mut running, web) in crawls {
        let limit = *delay * pages * 2 + Duration::from_secs(30);
        anyhow::ensure!(running.wait(limit)?.is_some(), "the crawl did not end within {limit:?}");
        let verdict = web.verdict();
        let gap_s = verdict.kinds.get("plain").and_then(|kind| kind.gap_mean_s).unwrap_or(0.0);
        let delay_s = delay.as_secs_f64();
        let met = (delay_s..=delay_s * (1.0 + LONGER_MAX)).contains(&gap_s);
        let wanted = format!("{delay_s} to {:.3} s", delay_s * (1.0 + LONGER_MAX));
        outcome.bar(format!("mean gap at --delay {delay:?}"), wanted, format!("{gap_s:.4} s"), met);
        outcome.equal(format!("coverage at --delay {delay:?}"), 1.0, verdict.coverage);
        outcome.none(
            format!("violations at --delay {delay:?}"),
            verdict.violations_total,
            &verdict.violations.values().flat_map(|tally| tally.examples.clone()).collect::<Vec<_>>(),
        );
        outcome.figure(&format!("requests_at_{}ms", delay.as_millis()), verdict.requests);
    }
    Ok(outcome)
}
