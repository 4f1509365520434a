//! How soon the hosts of an agent that was killed are asked again by others, as the web sees it.
//!
//! Each host of such an agent is followed until the web has its next request. What is promised depends on whether a request was
//! in flight when the agent was killed. The web knows: it had the request and had written nothing of the answer.

use std::{collections::HashMap, time::Duration};

use nephila_core::{assign::partition_of, site::Partitions, url::Host};

use super::super::Outcome;
use crate::web::{Latest, Web};

/// How soon hosts of a dead agent have to be asked again, beyond their delay, and beyond the limit of a request if one was in
/// flight.
pub(super) const AGAIN_MAX: Duration = Duration::from_secs(10);
/// So long before a request, and so long after its answer, the store may say that a request is in flight, and the web sees none:
/// it is noted before it begins, and until its answer is archived and written down.
const UNSURE: Duration = Duration::from_millis(500);
/// So long after the death of an agent the web has seen the end of its connections, and nobody has its hosts yet.
const SEEN_AFTER: Duration = Duration::from_millis(100);

/// What the web saw of a host when its agent was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stood {
    /// Nothing was in flight.
    AtRest,
    /// A request was.
    InFlight,
    /// It was answered just before, or could be asked again at any moment.
    Between,
}

impl Stood {
    /// By the host's latest exchange, seen soon after the agent was killed.
    fn of(latest: &Latest, killed: u64, delay: Duration) -> Stood {
        match latest.ended {
            Some(ended) if ended > latest.arrived => {
                let rest = Duration::from_nanos(killed.saturating_sub(ended));
                if rest >= UNSURE && rest + UNSURE <= delay { Stood::AtRest } else { Stood::Between }
            }
            // Nothing was written.
            _ => Stood::InFlight,
        }
    }
}

/// A host of an agent that was killed.
struct Orphan {
    stood: Stood,
    killed: u64,
    /// Its latest exchange then.
    before: Latest,
}

/// What came of one.
struct Again {
    stood: Stood,
    /// From the death of its agent to its next request,
    wait: Duration,
    /// and from its last request before.
    gap: Duration,
}

/// See the module's documentation.
pub(super) struct Takeover {
    delay: Duration,
    /// How long a request may take.
    limit: Duration,
    /// Those that were not asked again yet, or have no page left.
    orphans: HashMap<u64, Orphan>,
    again: Vec<Again>,
}

impl Takeover {
    pub(super) fn new(delay: Duration, limit: Duration) -> Takeover {
        Takeover { delay, limit, orphans: HashMap::new(), again: Vec::new() }
    }

    /// The longest that a host may be left alone.
    pub(super) fn most(&self) -> Duration {
        self.limit + AGAIN_MAX + self.delay
    }

    /// An agent that held these partitions was killed right after `killed` by the web's clock.
    pub(super) fn killed(&mut self, held: &Partitions, killed: u64, web: &Web) {
        std::thread::sleep(SEEN_AFTER);
        let latest = web.latest();
        for host in web.plan().hosts() {
            let is_its = Host::parse(&host.name()).is_some_and(|name| held.contains(partition_of(&name)));
            let Some(before) = latest.get(&host.key()).copied().filter(|_| is_its) else { continue };
            let stood = Stood::of(&before, killed, self.delay);
            // One that still waits since an earlier death goes on doing so.
            self.orphans.entry(host.key()).or_insert(Orphan { stood, killed, before });
        }
    }

    /// Looks which were asked again. To be called several times in a delay, so that no host is asked twice in between.
    pub(super) fn look(&mut self, web: &Web) {
        if self.orphans.is_empty() {
            return;
        }
        let latest = web.latest();
        let span = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
        self.orphans.retain(|key, Orphan { stood, killed, before }| {
            let Some(now) = latest.get(key).filter(|now| now.requests > before.requests) else { return true };
            let (wait, gap) = (span(*killed, now.arrived), span(before.arrived, now.arrived));
            self.again.push(Again { stood: *stood, wait, gap });
            false
        });
    }

    /// Adds what was seen. Hosts that were never asked again had no page left: otherwise not all is crawled, which is judged
    /// elsewhere.
    pub(super) fn report(&self, outcome: &mut Outcome) {
        let soon = AGAIN_MAX + self.delay;
        for (stood, what, name, most) in [
            (Stood::AtRest, "where no request was in flight", "at_rest", soon),
            (Stood::InFlight, "where a request was in flight", "in_flight", soon + self.limit),
            (Stood::Between, "where the web cannot tell", "between", soon + self.limit),
        ] {
            let again = || self.again.iter().filter(|again| again.stood == stood);
            let mut waits: Vec<f64> = again().map(|again| again.wait.as_secs_f64()).collect();
            waits.sort_by(f64::total_cmp);
            outcome.figure(&format!("hosts_taken_over_{name}"), waits.len());
            let (Some(least), Some(last)) = (waits.first(), waits.last()) else {
                if stood != Stood::Between {
                    outcome.bar(format!("hosts taken over {what}"), "> 0", 0, false);
                }
                continue;
            };
            outcome.figure(&format!("asked_again_s_least_{name}"), *least);
            outcome.figure(&format!("asked_again_s_median_{name}"), waits[waits.len() / 2]);
            outcome.figure(&format!("asked_again_s_most_{name}"), *last);
            let most = most.as_secs_f64();
            outcome.bar(
                format!("hosts of a dead agent asked again {what}"),
                format!("<= {most:.1} s"),
                format!("{last:.1} s"),
                *last <= most,
            );
            if stood == Stood::InFlight {
                // Whoever asked may have been at it for as long as a request may take, and the delay begins then.
                let least = again().map(|again| again.gap).min().unwrap_or_default();
                let wanted = self.limit + self.delay;
                outcome.bar(
                    "from a request that was in flight to the next one of the host",
                    format!(">= {:.1} s", wanted.as_secs_f64()),
                    format!("{:.1} s", least.as_secs_f64()),
                    least >= wanted,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const DELAY: Duration = Duration::from_secs(4);

    #[test]
    fn the_web_tells_what_was_in_flight() {
        let killed = 100 * SECOND;
        let latest = |arrived, ended| Latest { requests: 7, arrived, ended };
        for (what, latest, expected) in [
            ("not answered", latest(99 * SECOND, None), Stood::InFlight),
            ("broken off", latest(99 * SECOND, Some(99 * SECOND)), Stood::InFlight),
            ("answered long ago", latest(97 * SECOND, Some(98 * SECOND)), Stood::AtRest),
            ("just answered", latest(97 * SECOND, Some(killed - SECOND / 4)), Stood::Between),
            ("about to be asked", latest(95 * SECOND, Some(96 * SECOND + SECOND / 4)), Stood::Between),
            ("answered meanwhile", latest(99 * SECOND, Some(killed + 1)), Stood::Between),
        ] {
            assert_eq!(Stood::of(&latest, killed, DELAY), expected, "{what}");
        }
    }

    #[test]
    fn a_kind_of_host_that_was_not_seen_is_missed() {
        let mut takeover = Takeover::new(DELAY, Duration::from_secs(15));
        let again = |stood, wait, gap| Again {
            stood,
            wait: Duration::from_secs(wait),
            gap: Duration::from_secs(gap),
        };
        let judge = |takeover: &Takeover| {
            let mut outcome = Outcome::new("try");
            takeover.report(&mut outcome);
            outcome.bars.iter().map(|bar| bar.met).collect::<Vec<_>>()
        };
        assert_eq!(judge(&takeover), [false, false]);
        takeover.again.push(again(Stood::AtRest, 14, 15));
        assert_eq!(judge(&takeover), [true, false]);
        takeover.again.push(again(Stood::InFlight, 29, 30));
        assert_eq!(judge(&takeover), [true, true, true]);
        takeover.again.push(again(Stood::InFlight, 17, 18));
        assert_eq!(judge(&takeover), [true, true, false], "too early");
        takeover.again.push(again(Stood::AtRest, 15, 16));
        takeover.again.push(again(Stood::InFlight, 30, 31));
        takeover.again.push(again(Stood::Between, 30, 31));
        assert_eq!(judge(&takeover), [false, false, false, false]);
    }
}
