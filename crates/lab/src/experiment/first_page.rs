//! How long it takes from the start of the process to the first page.

use std::time::{Duration, Instant};

use super::{Outcome, Setup, crawler::Crawler, serve};
use crate::web::{PageBytes, WebConfig};

const WANTED: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct FirstPageOptions {
    /// The web follows from this.
    pub seed: u64,
    /// The delay between robots.txt and the page. The usual second would be all that is measured.
    pub delay: Duration,
}

impl Default for FirstPageOptions {
    fn default() -> FirstPageOptions {
        FirstPageOptions { seed: 1, delay: Duration::from_millis(100) }
    }
}

/// A crawl of one host, up to its first page.
pub fn first_page(setup: &Setup, options: &FirstPageOptions) -> anyhow::Result<Outcome> {
    let place = setup.place()?;
    let mut outcome = Outcome::new("first-page");
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: 1,
        pages: 1,
        kinds: "plain".parse()?,
        page_bytes: PageBytes::Fixed(16_000),
        delay_ms: options.delay.as_millis() as u64,
        ..WebConfig::default()
    })?;
    let crawler = Crawler::new(setup, place.path(), "first", &web)?.with_span("delay", options.delay);
    setup.say(crawler.command_line());
    let begun = Instant::now();
    let mut running = crawler.start()?;
    let (mut robots, mut page) = (None, None);
    while page.is_none() && begun.elapsed() < GIVE_UP {
        let verdict = web.verdict();
        let now = begun.elapsed();
        if verdict.requests > 0 {
            robots.get_or_insert(now);
        }
        page = (verdict.served > 0).then_some(now);
        std::thread::sleep(LOOK_EVERY);
    }
    running.wait(GIVE_UP)?;
    let page = page.unwrap_or(GIVE_UP);
    outcome.figure("robots_s", robots.unwrap_or(GIVE_UP).as_secs_f64());
    outcome.figure("delay_between_s", options.delay.as_secs_f64());
    let measured = format!("{:.3} s", page.as_secs_f64());
    outcome.bar("from the start to the first page", format!("< {WANTED:?}"), measured, page < WANTED);
    Ok(outcome)
}
