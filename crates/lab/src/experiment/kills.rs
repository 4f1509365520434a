//! kill -9 at random moments of one crawl, which is resumed each time with the same command.

use std::{collections::HashSet, time::Duration};

use nephila_node::{control, directory};
use serde_json::Value;

use super::{
    Outcome, Setup, archive,
    crawler::Crawler,
    hostile::judge,
    journal::{Journal, Repeats},
    serve,
};
use crate::web::{PageBytes, Web, WebConfig, plan::Mix};

const DELAY: Duration = Duration::from_millis(100);
const LATENCY_MS: (u32, u32) = (5, 15);
/// What a page takes at a host, on average: the delay, the answer and what comes between.
const PAGE_MS: u64 = 115;
const HOSTS: u32 = 40;
const PAGE_BYTES: u32 = 16_000;
/// Small, so that kills hit files that are just being rolled.
const WARC_BYTES: &str = "1MB";
/// How much longer than without kills the last run may take.
const RUN_MAX: Duration = Duration::from_secs(900);

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct KillsOptions {
    /// The moments of the kills and the web follow from this.
    pub seed: u64,
    /// How often the crawler is killed.
    pub kills: u32,
    /// How long the crawl would take without kills; they are spread over this time.
    pub seconds: u32,
}

impl Default for KillsOptions {
    fn default() -> KillsOptions {
        KillsOptions { seed: 1, kills: 50, seconds: 120 }
    }
}

impl KillsOptions {
    /// How long each run may live.
    fn lives(&self) -> Vec<Duration> {
        let mut mix = Mix::new(&[self.seed, 0x6b11]);
        let span_us = u64::from(self.seconds) * 1_000_000;
        let mut moments: Vec<u64> = (0..self.kills).map(|_| mix.below(span_us)).collect();
        moments.sort_unstable();
        let mut before = 0;
        moments.into_iter().map(|at| Duration::from_micros(at - std::mem::replace(&mut before, at))).collect()
    }
}

/// What went wrong so far, and what is known so far.
#[derive(Default)]
struct Witness {
    journal: Journal,
    took_effect: u32,
    forgotten: Vec<String>,
    not_whole: Vec<String>,
    /// URLs that were asked for again although they were settled.
    again: Vec<String>,
    repeats: Repeats,
    /// What a run said it had done when the journal has less.
    promised: Vec<String>,
    asked: u32,
    torn: u32,
    runs_in_vain: u32,
}

impl Witness {
    /// Looks at what a kill left. `said` is what the run said of itself just before.
    fn look(&mut self, crawler: &Crawler, web: &Web, said: Option<Value>) -> anyhow::Result<()> {
        self.again.extend(self.repeats.of_settled(web, &self.journal.settled));
        let journal = Journal::read(&crawler.out)?;
        let lost = |before: &HashSet<String>, after: &HashSet<String>| -> Vec<String> {
            before.difference(after).cloned().collect()
        };
        self.forgotten.extend(lost(&self.journal.known, &journal.known));
        self.forgotten.extend(lost(&self.journal.settled, &journal.settled));
        self.not_whole.extend(journal.not_whole(&crawler.out, self.journal.answers.len()));
        self.torn += u32::from(journal.torn_bytes > 0);
        self.runs_in_vain += u32::from(journal.answers.len() == self.journal.answers.len());
        self.journal = journal;
        if let Some(said) = said {
            self.asked += 1;
            self.compare(&said, "known_urls", self.journal.known.len());
            self.compare(&said, "pages", self.journal.answers.len());
        }
        Ok(())
    }

    fn compare(&mut self, said: &Value, figure: &str, there: usize) {
        let promised = said["totals"][figure].as_u64().unwrap_or(u64::MAX);
        if (there as u64) < promised {
            self.promised.push(format!("{promised} {figure} said to be done, {there} in the journal"));
        }
    }

    fn report(&self, outcome: &mut Outcome, kills: u32) {
        outcome.equal("kills that hit a running crawl", kills, self.took_effect);
        outcome.none(
            "URLs known or settled and then forgotten",
            self.forgotten.len() as u64,
            &self.forgotten,
        );
        outcome.none("counted pages not whole in the archive", self.not_whole.len() as u64, &self.not_whole);
        outcome.none("settled pages fetched again", self.again.len() as u64, &self.again);
        outcome.none("figures that a run gave and then lost", self.promised.len() as u64, &self.promised);
        outcome.figure("runs_asked_for_figures_before_their_end", self.asked);
        outcome.figure("fetched_again_because_in_flight", self.repeats.count);
        outcome.figure("kills_that_tore_the_journal", self.torn);
        outcome.figure("runs_that_settled_nothing", self.runs_in_vain);
    }
}

/// A crawl that is killed again and again: nothing is lost, nothing counts that is not archived, only what was in flight
/// is fetched again, and no host notices.
pub fn kills(setup: &Setup, options: &KillsOptions) -> anyhow::Result<Outcome> {
    let place = setup.place()?;
    let mut outcome = Outcome::new("kills");
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: HOSTS,
        pages: u32::try_from(u64::from(options.seconds) * 1_000 / PAGE_MS)?.max(1),
        kinds: "plain".parse()?,
        latency_ms: LATENCY_MS,
        page_bytes: PageBytes::Fixed(PAGE_BYTES),
        delay_ms: DELAY.as_millis() as u64,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    let crawler = Crawler::new(setup, place.path(), "killed", &web)?
        .with_span("delay", DELAY)
        .with("ip-delay", "0s")
        .with("warc-size", WARC_BYTES);
    setup.say(crawler.command_line());
    let mut witness = Witness::default();
    for (number, life) in options.lives().into_iter().enumerate() {
        let mut running = crawler.start()?;
        running.wait(life)?;
        // Nobody answers yet if it has only just begun.
        let said = match control::call(&directory::control_socket(&crawler.out), &control::Request::Status) {
            Ok(control::Response::Report { json, .. }) => Some(json),
            _ => None,
        };
        witness.took_effect += u32::from(running.kill()?);
        witness.look(&crawler, &web, said)?;
        let (known, done) = (witness.journal.known.len(), witness.journal.settled.len());
        setup.say(format!("kill {} after {life:.1?}: {known} known, {done} settled", number + 1));
    }
    let ended = crawler.run(RUN_MAX)?;
    setup.say(format!("ended: {}", ended.reason()));
    witness.look(&crawler, &web, None)?;
    witness.not_whole.extend(witness.journal.not_whole(&crawler.out, 0));
    outcome.equal("why the crawl ended", "finished", ended.reason());
    let verdict = web.verdict();
    witness.report(&mut outcome, options.kills);
    judge(&mut outcome, &verdict);
    outcome.equal("pages that the crawl counts", verdict.expected as f64, ended.figure("pages")?);
    archive::check(&mut outcome, &directory::archive(&crawler.out), &web)?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_spread_over_the_time() {
        let options = KillsOptions::default();
        let lives = options.lives();
        assert_eq!(lives.len(), 50);
        let total: Duration = lives.iter().sum();
        assert!(total > Duration::from_secs(60) && total < Duration::from_secs(120), "{total:?}");
        assert_ne!(lives, KillsOptions { seed: 2, ..options }.lives());
    }
}
