//! What an agent can say about itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::record::{Failure, HostRecord, How, Outcome, Record, RobotsOutcome, Settled};

/// Totals over the whole crawl, all runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// URLs with a final answer, whatever its status; robots.txt is not among them.
    pub pages: u64,
    /// URLs that failed for good.
    pub failed: u64,
    /// URLs that robots.txt forbids.
    pub disallowed: u64,
    /// URLs of other sites that these have written down.
    pub sent: u64,
    /// URLs that other sites have sent.
    pub received: u64,
    /// URLs of other sites that were found and left out, since too many waited.
    pub dropped: u64,
    /// Hosts that were other sites' and are ours by a later list.
    pub claimed: u64,
    /// Hosts of this site that other sites crawl, which are nearer.
    pub granted: u64,
    /// Attempts that will be followed by another.
    pub retries: u64,
    /// Bytes received, heads, bodies and robots.txt, as on the wire.
    pub bytes: u64,
    /// Requests made, robots.txt and failed connections included.
    pub requests: u64,
    /// URLs that the crawl knows.
    pub known_urls: u64,
    /// Hosts that the crawl knows.
    pub hosts: u64,
    /// Links that were found and left aside because of the scope.
    pub out_of_scope: u64,
    /// URLs that were found and left aside because they look like a trap.
    pub traps: u64,
    /// URLs that a limit keeps out; they come back when it is raised.
    pub over_limit: u64,
    /// Seeds that have a final answer.
    pub seeds_answered: u64,
    /// Final answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Failed attempts by kind, those that were tried again included.
    pub failures: BTreeMap<Failure, u64>,
    /// How long earlier runs took.
    #[serde(skip)]
    pub elapsed_before: Duration,
}

impl Totals {
    /// Adds those of another agent.
    pub fn add(&mut self, other: &Totals) {
        self.pages += other.pages;
        self.failed += other.failed;
        self.disallowed += other.disallowed;
        self.sent += other.sent;
        self.received += other.received;
        self.dropped += other.dropped;
        self.claimed += other.claimed;
        self.granted += other.granted;
        self.retries += other.retries;
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.known_urls += other.known_urls;
        self.hosts += other.hosts;
        self.out_of_scope += other.out_of_scope;
        self.traps += other.traps;
        self.over_limit += other.over_limit;
        self.seeds_answered += other.seeds_answered;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        self.elapsed_before = self.elapsed_before.max(other.elapsed_before);
    }

    /// What was counted since they were these.
    pub fn since(&self, earlier: &Totals) -> Totals {
        let statuses = self.statuses.iter();
        let statuses =
            statuses.map(|(of, count)| (*of, count.saturating_sub(*earlier.statuses.get(of).unwrap_or(&0))));
        let failures = self.failures.iter();
        let failures =
            failures.map(|(of, count)| (*of, count.saturating_sub(*earlier.failures.get(of).unwrap_or(&0))));
        Totals {
            pages: self.pages.saturating_sub(earlier.pages),
            failed: self.failed.saturating_sub(earlier.failed),
            disallowed: self.disallowed.saturating_sub(earlier.disallowed),
            sent: self.sent.saturating_sub(earlier.sent),
            received: self.received.saturating_sub(earlier.received),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            claimed: self.claimed.saturating_sub(earlier.claimed),
            granted: self.granted.saturating_sub(earlier.granted),
            retries: self.retries.saturating_sub(earlier.retries),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            requests: self.requests.saturating_sub(earlier.requests),
            out_of_scope: self.out_of_scope.saturating_sub(earlier.out_of_scope),
            traps: self.traps.saturating_sub(earlier.traps),
            seeds_answered: self.seeds_answered.saturating_sub(earlier.seeds_answered),
            statuses: statuses.collect(),
            failures: failures.collect(),
            ..Totals::default()
        }
    }

    /// Counts an attempt as not made that had counted as final.
    pub(super) fn take_back(&mut self, settled: &Settled) {
        match &settled.outcome {
            Outcome::Answered { status } => {
                self.pages = self.pages.saturating_sub(1);
                if let Some(count) = self.statuses.get_mut(status) {
                    *count = count.saturating_sub(1);
                }
                self.seeds_answered = self.seeds_answered.saturating_sub(u64::from(settled.how == How::Seed));
            }
            Outcome::Failed { failure, .. } => {
                self.failed = self.failed.saturating_sub(1);
                if let Some(count) = self.failures.get_mut(failure) {
                    *count = count.saturating_sub(1);
                }
            }
            Outcome::Disallowed { .. } => self.disallowed = self.disallowed.saturating_sub(1),
            Outcome::Sent { .. } => self.sent = self.sent.saturating_sub(1),
            Outcome::Retry { .. } => {}
        }
        self.statuses.retain(|_, count| *count > 0);
        self.failures.retain(|_, count| *count > 0);
    }

    /// Counts a durable record.
    pub fn count(&mut self, record: &Record) {
        match record {
            Record::Settled(settled) => {
                self.bytes += settled.bytes;
                self.out_of_scope += u64::from(settled.left_out.scope);
                self.traps += u64::from(settled.left_out.traps);
                self.dropped += u64::from(settled.left_out.outbox);
                self.requests += u64::from(settled.asked);
                match &settled.outcome {
                    Outcome::Answered { status } => {
                        self.pages += 1;
                        *self.statuses.entry(*status).or_default() += 1;
                        self.seeds_answered += u64::from(settled.how == How::Seed);
                    }
                    Outcome::Retry { failure, .. } => {
                        self.retries += 1;
                        *self.failures.entry(*failure).or_default() += 1;
                    }
                    Outcome::Failed { failure, .. } => {
                        self.failed += 1;
                        *self.failures.entry(*failure).or_default() += 1;
                    }
                    Outcome::Disallowed { .. } => self.disallowed += 1,
                    Outcome::Sent { .. } => self.sent += 1,
                }
            }
            Record::Robots(robots) => {
                self.bytes += robots.bytes;
                self.requests += u64::from(robots.asked);
                if let RobotsOutcome::Unreachable(failure) = robots.outcome {
                    *self.failures.entry(failure).or_default() += 1;
                }
            }
            Record::Claimed { .. } => self.claimed += 1,
            Record::Granted { .. } => self.granted += 1,
            Record::Arrived(arrived) if arrived.site.is_some() => self.received += arrived.found.len() as u64,
            // Failures with a request are counted with the record of the request.
            Record::Host(HostRecord {
                failure: Some(failure @ (Failure::NoSuchName | Failure::Dns)),
                ..
            }) => {
                *self.failures.entry(*failure).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// Where the hosts are, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCounts {
    /// Nothing waits for them.
    pub idle: u64,
    /// Could be asked at once.
    pub ready: u64,
    /// Being asked.
    pub fetching: u64,
    /// Their delay runs.
    pub delay: u64,
    /// Another host of their address has its turn.
    pub address: u64,
    /// Their addresses are being looked up.
    pub resolving: u64,
    /// Their robots.txt is being had from elsewhere.
    pub robots: u64,
    /// They failed and are left alone for a while.
    pub backing_off: u64,
    /// Their URLs wait for a second attempt.
    pub retrying: u64,
    /// Blocked by the operator.
    pub blocked: u64,
    /// About to be handed over to another agent.
    pub leaving: u64,
    /// They belong to another site, and URLs of them are on their way there or wait to be.
    pub outgoing: u64,
    /// They were another site's, which has to say what it knows before they are asked.
    pub claimed: u64,
    /// Their pages wait until there is room for what they link to on the way to other sites.
    pub held_up: u64,
    /// Not in memory: nothing waits for them, or there is no room for them yet.
    pub away: u64,
}

impl HostCounts {
    /// How many hosts that are in all.
    pub fn sum(&self) -> u64 {
        let HostCounts { idle, ready, fetching, delay, address, resolving, .. } = self;
        let HostCounts { robots, backing_off, retrying, blocked, .. } = self;
        let HostCounts { leaving, outgoing, claimed, held_up, away, .. } = self;
        idle + ready
            + fetching
            + delay
            + address
            + resolving
            + robots
            + backing_off
            + retrying
            + blocked
            + leaving
            + outgoing
            + claimed
            + held_up
            + away
    }

    /// Adds those of another agent.
    fn add(&mut self, other: &HostCounts) {
        self.idle += other.idle;
        self.ready += other.ready;
        self.fetching += other.fetching;
        self.delay += other.delay;
        self.address += other.address;
        self.resolving += other.resolving;
        self.robots += other.robots;
        self.backing_off += other.backing_off;
        self.retrying += other.retrying;
        self.blocked += other.blocked;
        self.leaving += other.leaving;
        self.outgoing += other.outgoing;
        self.claimed += other.claimed;
        self.held_up += other.held_up;
        self.away += other.away;
    }
}

/// What an agent is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Totals of the crawl.
    pub totals: Totals,
    /// Where the hosts are.
    pub hosts: HostCounts,
    /// URLs known and not settled.
    pub queue: u64,
    /// Those of them that wait for other sites.
    pub outgoing: u64,
    /// So many wait for one of those that pages wait, too, or what is found for it is dropped.
    pub outbox_full: bool,
    /// So much is on its way to another agent that pages wait.
    pub backed_up: bool,
    /// URLs that were found and of which it is not decided yet whether they are new.
    pub undecided: u64,
    /// Hosts that were given up.
    pub given_up: u64,
    /// Until the next host may be asked, when none can be now.
    pub next_due_s: Option<f64>,
    /// Requests under way.
    pub in_flight: usize,
    /// Records on their way to the disk.
    pub unsettled: usize,
    /// The operator paused it.
    pub paused: bool,
    /// It is about to end.
    pub stopping: bool,
    /// The store that agents share does not answer: nothing is asked until it does.
    pub store_away: bool,
    /// Partitions whose hosts wait because no replica of their server in that store confirms anything.
    pub unconfirmed: u64,
}

impl Status {
    /// Adds what another agent of the site is doing.
    pub fn add(&mut self, other: &Status) {
        self.totals.add(&other.totals);
        self.hosts.add(&other.hosts);
        self.queue += other.queue;
        self.undecided += other.undecided;
        self.outgoing += other.outgoing;
        self.outbox_full |= other.outbox_full;
        self.backed_up |= other.backed_up;
        self.given_up += other.given_up;
        self.next_due_s = [self.next_due_s, other.next_due_s].into_iter().flatten().min_by(f64::total_cmp);
        self.in_flight += other.in_flight;
        self.unsettled += other.unsettled;
        self.paused |= other.paused;
        self.stopping |= other.stopping;
        self.store_away |= other.store_away;
        self.unconfirmed += other.unconfirmed;
    }
}

/// One host, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// Its name.
    pub host: String,
    /// Where it is, in a word: one of the fields of [`HostCounts`], or `unconfirmed` if it would be ready, and nothing that is
    /// written of it is confirmed for now.
    pub place: Cow<'static, str>,
    /// URLs that wait.
    pub queue: u64,
    /// URLs with a final answer.
    pub pages: u64,
    /// For how long it will not be asked.
    pub wait_s: Option<f64>,
    /// The delay it is asked with.
    pub delay_s: f64,
    /// Failures in a row.
    pub failures: u32,
    /// The last of them.
    pub failure: Option<Failure>,
    /// It failed for so long that its URLs fail without a request.
    pub given_up: bool,
    /// Its addresses, if they are known now.
    pub addresses: Vec<String>,
}
