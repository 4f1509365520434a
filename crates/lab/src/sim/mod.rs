//! The simulator: one agent under virtual time, on a simulated web and a disk that fails, all of it from one seed.
//!
//! The agent, the store, the archive and the writer are the real ones. Everything around them is simulated: the clock, the
//! network, DNS, the servers, and a disk that loses what was not synced. The process is killed, the power is cut, in the
//! middle of writing and of recovering too; the disk fills up; the operator blocks, pauses and stops. After each end the
//! crawl is opened again as the node does it, until it is finished.
//!
//! Promises:
//! - the same seed gives the same run, event by event ([`Report::trace_hash`]);
//! - a broken promise of the crawler is a [`Violation`] that says which, when, and with what command to see it again;
//! - checkers that cannot fail prove nothing: each [`Bug`] breaks the driver on purpose, and is found.

mod check_bounded;
mod check_cash;
mod check_lost;
mod check_polite;
mod check_size;
mod check_twice;
mod clock;
mod driver;
mod faults;
mod levels;
mod perform;
mod random;
mod servers;
mod shared;
mod site;
mod sites;
mod trace;
mod wakes;
mod web;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use serde::Serialize;

use trace::Trace;

/// A way to break the driver, to see whether the checkers notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Records are acknowledged before the kernel has them.
    AcknowledgesBeforeFlush,
    /// Records are acknowledged as safe from power cuts before they are synced.
    AcknowledgesBeforeSync,
    /// What hosts had asked for is not replayed after a restart.
    ForgetsHosts,
    /// Retry-After is told as half of what it says.
    HalvesRetryAfter,
    /// The end of a request is told as its beginning.
    MeasuresFromTheStart,
    /// Some requests are made twice.
    AsksTwice,
    /// A settled page is not settled in the store.
    ForgetsToSettle,
    /// What was received is not archived.
    ForgetsToArchive,
    /// A link of each page is dropped.
    DropsLinks,
    /// Blocks never reach the agent.
    IgnoresBlocks,
    /// Private addresses are asked.
    AsksPrivateAddresses,
    /// The text of robots.txt is lost on the way.
    ReadsNoRules,
    /// Where a crawl goes by cash: what a page gives is given twice.
    GivesTwice,
    /// There: what a page spends it keeps.
    KeepsWhatItSpends,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 14] = [
        Bug::AcknowledgesBeforeFlush,
        Bug::AcknowledgesBeforeSync,
        Bug::ForgetsHosts,
        Bug::HalvesRetryAfter,
        Bug::MeasuresFromTheStart,
        Bug::AsksTwice,
        Bug::ForgetsToSettle,
        Bug::ForgetsToArchive,
        Bug::DropsLinks,
        Bug::IgnoresBlocks,
        Bug::AsksPrivateAddresses,
        Bug::ReadsNoRules,
        Bug::GivesTwice,
        Bug::KeepsWhatItSpends,
    ];
}

/// A way to break the driver of a site, to see whether the checkers notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteBug {
    /// Found URLs that are not delivered at once are lost.
    LosesOutboxes,
    /// What hosts had asked for is not kept when they leave the memory, and so does not move with them.
    ForgetsDelays,
    /// Partitions are handed over without the URLs that are done.
    MovesWithoutSeen,
    /// Whoever asks another agent for its turn at an address has it.
    IgnoresKeepers,
    /// Agents that are asked what turns they have say that they have none.
    ForgetsTurns,
    /// What was received is not archived.
    ForgetsToArchive,
    /// Where a crawl goes by cash: what others have given is added as often as it is told.
    AddsWhatIsTold,
    /// In a federation: whoever does not answer has taken what was sent.
    TrustsSilence,
    /// In a federation: what another site has sent is said to be durable before it is.
    AnswersEarly,
    /// In a federation: nobody finds again what a lost site had been given.
    KeepsNoRecords,
    /// In a federation: a host that another site claims is given away without its URLs that are done.
    ReleasesWithoutSeen,
    /// In a federation: whoever claims a host has it.
    ClaimsUnasked,
    /// In a federation: what is said to all sites is kept at home.
    KeepsToItself,
}

impl SiteBug {
    /// Those that are for federations,
    pub const FEDERATED: [SiteBug; 6] = [
        SiteBug::TrustsSilence,
        SiteBug::AnswersEarly,
        SiteBug::KeepsNoRecords,
        SiteBug::ReleasesWithoutSeen,
        SiteBug::ClaimsUnasked,
        SiteBug::KeepsToItself,
    ];
    /// and all others.
    pub const ALL: [SiteBug; 7] = [
        SiteBug::LosesOutboxes,
        SiteBug::ForgetsDelays,
        SiteBug::MovesWithoutSeen,
        SiteBug::IgnoresKeepers,
        SiteBug::ForgetsTurns,
        SiteBug::ForgetsToArchive,
        SiteBug::AddsWhatIsTold,
    ];
}

/// A way to break what a site that shares a store runs on, to see whether the checkers notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedBug {
    /// The store does not check epochs and versions.
    NoFencing,
    /// What only a primary has counts as durable.
    AcknowledgesBeforeTheReplica,
    /// Whoever takes a partition over finds nothing in its outbox.
    LosesOutboxes,
    /// What hosts had asked for, and that they may still be asked, is not told to who takes them over.
    ForgetsDelays,
    /// Whoever asks another agent for its turn at an address has it.
    IgnoresKeepers,
    /// In a federation: whoever does not answer has taken what was sent.
    TrustsSilence,
    /// In a federation: a host that another site claims is given away without its URLs that are done.
    ReleasesWithoutSeen,
}

impl SharedBug {
    /// Those of federations.
    pub const OF_FEDERATIONS: [SharedBug; 2] = [SharedBug::TrustsSilence, SharedBug::ReleasesWithoutSeen];

    /// Those of single sites.
    pub const ALL: [SharedBug; 5] = [
        SharedBug::NoFencing,
        SharedBug::AcknowledgesBeforeTheReplica,
        SharedBug::LosesOutboxes,
        SharedBug::ForgetsDelays,
        SharedBug::IgnoresKeepers,
    ];
}

/// A promise of the crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// No two agents ask a host at the same time.
    OneOwner,
    /// The manners of docs/behaviour.md, as the servers see them.
    Polite,
    /// What was acknowledged is still known, what was counted is whole, what can be fetched is.
    NothingLost,
    /// Nothing is fetched again that was counted.
    NothingTwice,
    /// What is said to all sites all know in the end, and do.
    AllKnow,
    /// Counts agree, and the run comes to an end.
    Bounded,
    /// No cash is lost, and none comes from nowhere.
    CashKept,
    /// The run had enough of everything to prove something.
    LargeEnough,
}

/// A promise that was broken.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// Which promise.
    pub promise: Promise,
    /// When, in seconds of virtual time.
    pub at_s: f64,
    /// What happened.
    pub what: String,
    /// The flag that runs it, if it was a whole site.
    pub flag: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { seed, promise, at_s, what, flag } = self;
        write!(f, "{promise:?} at {at_s:.6} s: {what}; to see it again: nephila lab sim {flag}--seed {seed}")
    }
}

impl std::error::Error for Violation {}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The hash of all events and actions in their order.
    pub trace_hash: u64,
    /// How many there were.
    pub trace_lines: u64,
    /// Requests that servers saw.
    pub requests: u64,
    /// Processes that it took.
    pub processes: u64,
    /// Pages that were read back from the archive and compared.
    pub read_back: u64,
    /// Answers that were in flight in a crash and may have been fetched again.
    pub lost_answers: u64,
    /// Requests that began at the first moment at which they might.
    pub on_time: u64,
    /// Virtual time, in seconds.
    pub virtual_s: u64,
    /// Faults that took effect, by kind.
    pub faults: BTreeMap<String, u64>,
    /// States that a run should reach now and then.
    pub reached: BTreeMap<String, u64>,
}

/// What many runs came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// How many runs there were.
    pub runs: u64,
    /// The sums of their reports; the hash is that of all hashes.
    pub total: Report,
    /// Those that broke a promise.
    pub violations: Vec<Violation>,
}

/// States that some runs of sites must reach, or they prove little.
pub const SITE_STATES: [&str; 19] = [
    "a handover",
    "a handover begun again",
    "a handover of several parts",
    "a partition frozen just as something of it became durable",
    "a keeper of addresses killed with turns out",
    "a page fetched again after a loss",
    "a slow disk waited for",
    "a turn at an address that ran out",
    "a turn at an address wanted back",
    "an address with another keeper",
    "an agent back at another address",
    "cash counted",
    "ended by a failing disk",
    "journal read again for others",
    "killed while handing over",
    "killed with found URLs on their way",
    "not started: failing disk",
    "turns given back at a stop",
    "turns told to a keeper that did not know",
];

/// The same for federations of sites.
pub const FEDERATION_STATES: [&str; 21] = [
    "a part of what a site says told",
    "all that a site says told",
    "something said to all sites",
    "what a lost site said told by another",
    "a claim passed on to another agent",
    "a claim that was not answered",
    "a host claimed from another site",
    "a host granted to the nearest site",
    "URLs found again that a lost site had",
    "a batch for another site",
    "a batch that was not taken",
    "a batch that was sent again",
    "a handover with URLs of other sites",
    "a site lost for good",
    "another list of sites",
    "cash counted",
    "pages that wait for room on the way to another site",
    "URLs that wait for other sites, counted",
    "rules had from a host of another site",
    "an address that another site uses",
    "killed with URLs on their way to another site",
];

/// The same for sites that share a store.
pub const SHARED_STATES: [&str; 16] = [
    "a handover",
    "a host left alone for another's fetch",
    "a page lost with a directory",
    "a partition lost",
    "a request broken off at the end of the lease",
    "a turn at an address wanted back",
    "an agent lost with its directory",
    "an outcome that nobody knows",
    "double handover",
    "failover between write and WAIT",
    "fenced",
    "fenced with records on their way",
    "redelivery after a crash",
    "takeover during handover",
    "turns told to a keeper that did not know",
    "wake-up after the lease",
];

/// The same for federations of such sites, beside these.
pub const SHARED_FEDERATION_STATES: [&str; 13] = [
    "a batch for another site",
    "a batch that was not taken",
    "a batch that was sent again",
    "a claim passed on to another agent",
    "a claim that was not answered",
    "a host claimed from another site",
    "a host granted to the nearest site",
    "an address that another site uses",
    "another list of sites",
    "killed with URLs on their way to another site",
    "pages that wait for room on the way to another site",
    "rules had from a host of another site",
    "something said to all sites",
];

/// In how many runs each of them must be reached.
pub const STATES_WITHIN: u64 = 1_000;

/// How many violations a summary lists; the runs end there.
const VIOLATIONS_MAX: usize = 20;

/// Runs one seed.
pub fn run(seed: u64) -> Result<Report, Violation> {
    driver::run(seed, None, Trace::default())
}

/// Runs one seed and tells of every event and action, with its time in seconds.
pub fn run_traced(seed: u64, reader: &mut dyn FnMut(f64, &str)) -> Result<Report, Violation> {
    driver::run(seed, None, Trace::read_by(reader))
}

/// Runs one seed with a driver that is broken.
pub fn run_broken(seed: u64, bug: Bug) -> Result<Report, Violation> {
    driver::run(seed, Some(bug), Trace::default())
}

/// Runs one seed of a whole site.
pub fn run_site(seed: u64) -> Result<Report, Violation> {
    site::run(seed, None, false, Trace::default())
}

/// Runs one seed of a federation of sites.
pub fn run_federation(seed: u64) -> Result<Report, Violation> {
    site::run(seed, None, true, Trace::default())
}

/// Runs one seed of a federation of sites and tells of every event and action, with its time in seconds.
pub fn run_federation_traced(seed: u64, reader: &mut dyn FnMut(f64, &str)) -> Result<Report, Violation> {
    site::run(seed, None, true, Trace::read_by(reader))
}

/// Runs one seed of a federation of sites with a driver that is broken.
pub fn run_federation_broken(seed: u64, bug: SiteBug) -> Result<Report, Violation> {
    site::run(seed, Some(bug), true, Trace::default())
}

/// Runs one seed of a whole site and tells of every event and action, with its time in seconds.
pub fn run_site_traced(seed: u64, reader: &mut dyn FnMut(f64, &str)) -> Result<Report, Violation> {
    site::run(seed, None, false, Trace::read_by(reader))
}

/// Runs one seed of a whole site with a driver that is broken.
pub fn run_site_broken(seed: u64, bug: SiteBug) -> Result<Report, Violation> {
    site::run(seed, Some(bug), false, Trace::default())
}

/// Runs one seed of a site that shares a store.
pub fn run_shared(seed: u64) -> Result<Report, Violation> {
    shared::run(seed, None, false, Trace::default())
}

/// Runs one seed of a site that shares a store and tells of every event and action, with its time in seconds.
pub fn run_shared_traced(seed: u64, reader: &mut dyn FnMut(f64, &str)) -> Result<Report, Violation> {
    shared::run(seed, None, false, Trace::read_by(reader))
}

/// Runs one seed of a site that shares a store, and of which something is broken.
pub fn run_shared_broken(seed: u64, bug: SharedBug) -> Result<Report, Violation> {
    shared::run(seed, Some(bug), false, Trace::default())
}

/// Runs one seed of a federation of sites that share a store each.
pub fn run_shared_federation(seed: u64) -> Result<Report, Violation> {
    shared::run(seed, None, true, Trace::default())
}

/// Runs one seed of a federation of sites that share a store each and tells of every event and action, with its time in seconds.
pub fn run_shared_federation_traced(
    seed: u64,
    reader: &mut dyn FnMut(f64, &str),
) -> Result<Report, Violation> {
    shared::run(seed, None, true, Trace::read_by(reader))
}

/// Runs one seed of a federation of sites that share a store each, and of which something is broken.
pub fn run_shared_federation_broken(seed: u64, bug: SharedBug) -> Result<Report, Violation> {
    shared::run(seed, Some(bug), true, Trace::default())
}

/// Runs many seeds, `jobs` at a time, each alone on its thread. Whatever `jobs` is, the summary is the same: outcomes are taken
/// in the order of the seeds. `on_progress` is told after each how many have run.
pub fn run_seeds(
    seeds: Range<u64>,
    jobs: usize,
    run: impl Fn(u64) -> Result<Report, Violation> + Sync,
    mut on_progress: impl FnMut(&Summary),
) -> Summary {
    let mut summary = Summary::default();
    let next = AtomicU64::new(seeds.start);
    let run_next = |tell: mpsc::Sender<_>| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let run = || panic::catch_unwind(AssertUnwindSafe(|| run(seed)));
            if seed >= seeds.end || tell.send((seed, run())).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        let (tell, outcomes) = mpsc::channel();
        for _ in 0..jobs.max(1) {
            let tell = tell.clone();
            scope.spawn(|| run_next(tell));
        }
        drop(tell);
        let mut early = BTreeMap::new();
        for (seed, outcome) in outcomes {
            early.insert(seed, outcome.unwrap_or_else(|_| panic!("seed {seed} panicked")));
            while let Some(outcome) = early.remove(&(seeds.start + summary.runs)) {
                summary.add(outcome);
                on_progress(&summary);
                if summary.violations.len() >= VIOLATIONS_MAX {
                    return;
                }
            }
        }
    });
    summary
}

impl Summary {
    fn add(&mut self, outcome: Result<Report, Violation>) {
        match outcome {
            Ok(report) => self.total.add(&report),
            Err(violation) => self.violations.push(violation),
        }
        self.runs += 1;
    }

    /// Those of these states that no run has reached, although there were enough of them.
    pub fn unreached<'a>(&self, states: &[&'a str]) -> Vec<&'a str> {
        let is_enough = self.runs >= STATES_WITHIN;
        let is_reached = |state: &&str| self.total.reached.get(*state).is_some_and(|count| *count > 0);
        states.iter().filter(|state| is_enough && !is_reached(state)).copied().collect()
    }
}

impl Report {
    fn add(&mut self, other: &Report) {
        let both = [self.trace_hash.to_le_bytes(), other.trace_hash.to_le_bytes()].concat();
        self.trace_hash = xxhash_rust::xxh3::xxh3_64(&both);
        self.trace_lines += other.trace_lines;
        self.requests += other.requests;
        self.processes += other.processes;
        self.read_back += other.read_back;
        self.lost_answers += other.lost_answers;
        self.on_time += other.on_time;
        self.virtual_s += other.virtual_s;
        for (sums, others) in [(&mut self.faults, &other.faults), (&mut self.reached, &other.reached)] {
            for (name, count) in others {
                *sums.entry(name.clone()).or_default() += count;
            }
        }
    }
}
