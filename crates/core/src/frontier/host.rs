//! What an agent remembers of one host.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::{Due, HostCounts};
use crate::record::{Failure, HostRecord, Pointer};
use crate::robots::Robots;
use crate::time::{Mono, Now, Wall};
use crate::url::{AddressKey, Fingerprint, Host, Origin};

/// Where a host is. Exactly one place at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing is due.
    Idle,
    /// In the ready queue.
    Ready,
    /// The store was asked for its next URLs.
    Taking,
    /// Its name is being resolved, or waits to be.
    Resolving,
    /// In the queue of a gate.
    AtGate(AddressKey),
    /// A request is in flight.
    Fetching,
    /// Another host was asked for its robots.txt; gives up at `until`.
    Elsewhere,
    /// Not before `until`.
    Waiting(Wait),
    /// The operator wants nothing more of it.
    Blocked,
}

/// What a host waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Its delay.
    Delay,
    /// The end of a back-off.
    BackOff,
    /// The time of a URL that is to be tried again.
    Retry,
}

impl Place {
    /// Whether a host there is at rest: it does not wait for its next turn.
    pub fn is_rest(self) -> bool {
        match self {
            Place::Idle | Place::Blocked | Place::Waiting(Wait::Retry | Wait::BackOff) => true,
            Place::Ready
            | Place::Taking
            | Place::Resolving
            | Place::AtGate(_)
            | Place::Fetching
            | Place::Elsewhere
            | Place::Waiting(Wait::Delay) => false,
        }
    }

    /// The counter of hosts in this place.
    pub fn counter(self, counts: &mut HostCounts) -> &mut u64 {
        match self {
            Place::Idle => &mut counts.idle,
            Place::Ready | Place::Taking => &mut counts.ready,
            Place::Resolving => &mut counts.resolving,
            Place::AtGate(_) => &mut counts.address,
            Place::Fetching => &mut counts.fetching,
            Place::Elsewhere => &mut counts.robots,
            Place::Waiting(Wait::Delay) => &mut counts.delay,
            Place::Waiting(Wait::BackOff) => &mut counts.backing_off,
            Place::Waiting(Wait::Retry) => &mut counts.retrying,
            Place::Blocked => &mut counts.blocked,
        }
    }

    /// The name of that counter.
    pub fn name(self) -> &'static str {
        match self {
            Place::Idle => "idle",
            Place::Ready | Place::Taking => "ready",
            Place::Resolving => "resolving",
            Place::AtGate(_) => "address",
            Place::Fetching => "fetching",
            Place::Elsewhere => "robots",
            Place::Waiting(Wait::Delay) => "delay",
            Place::Waiting(Wait::BackOff) => "backing_off",
            Place::Waiting(Wait::Retry) => "retrying",
            Place::Blocked => "blocked",
        }
    }
}

/// What a name resolved to, and until when that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Not asked yet.
    Unknown,
    /// These addresses may be asked.
    At(Vec<IpAddr>, Mono),
    /// It has addresses, and none that may be asked.
    Refused(Mono),
}

/// The robots.txt of one origin of a host.
#[derive(Debug)]
pub struct RulesOf {
    /// The origin.
    pub origin: Origin,
    /// Its rules, once they were had.
    pub rules: Option<Rules>,
    /// The last attempt at newer ones failed: use what we have, and do not ask before this.
    pub ask_after: Mono,
    /// Failed attempts in a row while older rules were in use.
    pub failures: u32,
    /// The last answer, for people.
    pub seen: Option<Seen>,
    /// It fails while other origins of its host answer.
    pub trouble: Option<Trouble>,
    /// Where it is to be had after a redirect, and how many redirects led there.
    pub moved: Option<(crate::url::Url, u8)>,
}

/// The failures in a row of one origin of a host. A page can link to any port of its host, and most do not answer: that must
/// not stop the host.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// How many.
    pub failures: u32,
    /// The last of them.
    pub failure: Failure,
    /// The first of them.
    pub since: Wall,
    /// Until when it is left alone.
    pub not_before: Mono,
}

/// An answer to a request for a robots.txt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// When it came.
    pub at: Wall,
    /// From the request to the last byte.
    pub took: Duration,
    /// Bytes received.
    pub bytes: u64,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// Where it is archived.
    pub capture: Option<Pointer>,
}

/// Rules in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The rules themselves, unless there was no room for them.
    #[serde(skip)]
    pub robots: Option<Robots>,
    /// How much memory they take.
    pub bytes: usize,
    /// The crawl-delay that they ask for.
    pub crawl_delay: Option<Duration>,
    /// Where in the journal they are, once they are durable.
    pub place: Option<u64>,
    /// When they were had.
    pub fetched: Wall,
    /// Until when they need not be asked for again.
    pub fresh_until: Wall,
    /// For If-None-Match.
    pub etag: Option<String>,
    /// For If-Modified-Since.
    pub last_modified: Option<String>,
}

impl Rules {
    /// All but the rules themselves, which are in the journal.
    fn without_text(&self) -> Rules {
        Rules { robots: None, etag: self.etag.clone(), last_modified: self.last_modified.clone(), ..*self }
    }
}

impl RulesMemo {
    fn into_rules(self, now: Now) -> RulesOf {
        let trouble = self.trouble.map(|(failures, failure, since, not_before)| Trouble {
            failures,
            failure,
            since,
            not_before: now.mono_at(not_before),
        });
        RulesOf {
            origin: self.origin,
            rules: self.rules,
            ask_after: Mono(0),
            failures: self.failures,
            seen: self.seen,
            trouble,
            moved: None,
        }
    }
}

/// A robots.txt to be had from this host for another one that redirects to it.
#[derive(Clone, Debug)]
pub struct Errand {
    /// Whose rules they are.
    pub origin: Origin,
    /// Where they are.
    pub url: crate::url::Url,
    /// Redirects so far.
    pub hops: u8,
    /// Nobody waits for the answer after this.
    pub until: Mono,
}

/// One host.
#[derive(Debug)]
pub struct HostState {
    /// Its name.
    pub name: Host,
    /// Where it is; changed only by [`super::Workbench`].
    pub(super) place: Place,
    /// The moment that its place waits for.
    pub(super) until: Mono,
    /// URLs taken from the store for its next turns.
    pub head: VecDeque<Due>,
    /// URLs that are due in the store.
    pub due: u64,
    /// When the next one becomes due that waits for its time.
    pub retry_at: Option<Wall>,
    /// URLs with a final answer.
    pub pages: u64,
    /// Its addresses.
    pub addresses: Name,
    /// Its robots.txt, one an origin.
    pub rules: Vec<RulesOf>,
    /// What other hosts want of it; filled by redirects of their robots.txt, emptied at its turns.
    pub errands: VecDeque<Errand>,
    /// It may not be asked before this.
    pub not_before: Mono,
    /// Smoothed response time.
    pub response: Option<Duration>,
    /// URLs that it answered with 429 or 503 although it was well before.
    pub busy_urls: VecDeque<Fingerprint>,
    /// URLs instead of whose answer a connection was closed that had been kept.
    pub closed_urls: VecDeque<Fingerprint>,
    /// Failures in a row.
    pub failures: u32,
    /// The first of them.
    pub failing_since: Option<Wall>,
    /// The last of them.
    pub failure: Option<Failure>,
    /// It failed for too long: its URLs fail without a request.
    pub given_up: bool,
    /// What the store keeps of it has been taken in; until then nothing may be asked of it.
    pub(super) known: bool,
    /// It has changed since the store was last told.
    pub(super) changed: bool,
    /// It is in the list of those at rest.
    pub(super) listed: bool,
    /// How much is under way that must find it on the workbench: records on their way to the disk, and requests for its
    /// robots.txt.
    pub held: u32,
}

/// What must not be forgotten of a host that leaves the memory, whether it comes back in this run or in another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostMemo {
    pages: u64,
    response: Option<Duration>,
    /// It may not be asked before this: by the calendar, and, in the run of that number, by its clock.
    not_before: (Wall, u64, Mono),
    failures: u32,
    failing_since: Option<Wall>,
    failure: Option<Failure>,
    given_up: bool,
    rules: Vec<RulesMemo>,
}

/// The same for the robots.txt of one of its origins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RulesMemo {
    origin: Origin,
    /// Only those that can be read back from the journal.
    rules: Option<Rules>,
    failures: u32,
    seen: Option<Seen>,
    /// The last moment by the calendar.
    trouble: Option<(u32, Failure, Wall, Wall)>,
}

impl HostState {
    /// A host that nothing is known of.
    pub fn new(name: Host) -> HostState {
        HostState {
            name,
            place: Place::Idle,
            until: Mono::NEVER,
            head: VecDeque::new(),
            due: 0,
            retry_at: None,
            pages: 0,
            addresses: Name::Unknown,
            rules: Vec::new(),
            errands: VecDeque::new(),
            not_before: Mono(0),
            response: None,
            busy_urls: VecDeque::new(),
            closed_urls: VecDeque::new(),
            failures: 0,
            failing_since: None,
            failure: None,
            given_up: false,
            known: false,
            changed: false,
            listed: false,
            held: 0,
        }
    }

    /// Whether what the store keeps of it has been taken in.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// What must not be forgotten of it; nothing if it was never asked. `run` is the number of this run.
    pub fn memo(&self, run: u64, now: Now) -> Option<HostMemo> {
        let wall = now.wall_after(self.not_before.since(now.mono));
        let rules = self.rules.iter().map(|of| RulesMemo {
            origin: of.origin.clone(),
            rules: of.rules.as_ref().filter(|rules| rules.place.is_some()).map(Rules::without_text),
            failures: of.failures,
            seen: of.seen.clone(),
            trouble: of.trouble.map(|Trouble { failures, failure, since, not_before }| {
                (failures, failure, since, now.wall_after(not_before.since(now.mono)))
            }),
        });
        let memo = HostMemo {
            pages: self.pages,
            response: self.response,
            not_before: (wall, run, self.not_before),
            failures: self.failures,
            failing_since: self.failing_since,
            failure: self.failure,
            given_up: self.given_up,
            rules: rules.collect(),
        };
        let nothing = HostMemo { not_before: memo.not_before, ..HostMemo::default() };
        (memo != nothing || self.not_before > now.mono).then_some(memo)
    }

    /// Takes in what the store keeps of it. `run` is the number of this run.
    pub fn remember(&mut self, memo: Option<HostMemo>, run: u64, now: Now) {
        self.known = true;
        let Some(memo) = memo else { return };
        let (wall, its_run, mono) = memo.not_before;
        let not_before = if its_run == run { mono } else { now.mono_at(wall) };
        self.not_before = self.not_before.max(not_before);
        self.pages = memo.pages;
        self.response = memo.response;
        self.failures = memo.failures;
        self.failing_since = memo.failing_since;
        self.failure = memo.failure;
        self.given_up = memo.given_up;
        self.rules = memo.rules.into_iter().map(|of| of.into_rules(now)).collect();
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The moment that its place waits for.
    pub fn until(&self) -> Mono {
        self.until
    }

    /// The longest crawl-delay that any of its origins asks for.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.rules.iter().filter_map(|of| of.rules.as_ref()?.crawl_delay).max()
    }

    /// What is remembered of one of its origins.
    pub fn rules_of(&self, origin: &Origin) -> Option<&RulesOf> {
        self.rules.iter().find(|of| of.origin == *origin)
    }

    /// The same, made if need be. Beyond the limit the oldest entry makes room.
    pub fn rules_of_mut(&mut self, origin: &Origin) -> &mut RulesOf {
        let at = match self.rules.iter().position(|of| of.origin == *origin) {
            Some(at) => at,
            None => {
                if self.rules.len() >= crate::limits::ORIGINS_MAX {
                    let useless = self.rules.iter().position(|of| of.rules.is_none());
                    self.rules.remove(useless.unwrap_or(0));
                }
                self.rules.push(RulesOf {
                    origin: origin.clone(),
                    rules: None,
                    ask_after: Mono(0),
                    failures: 0,
                    seen: None,
                    trouble: None,
                    moved: None,
                });
                self.rules.len() - 1
            }
        };
        &mut self.rules[at]
    }

    /// What must outlive the process of its wishes and troubles.
    pub fn record(&self, not_before: Wall) -> HostRecord {
        HostRecord {
            host: self.name.clone(),
            not_before,
            failure: self.failure,
            failures: self.failures,
            failing_since: self.failing_since,
            given_up: self.given_up,
        }
    }
}
