//! What an agent remembers of one host.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::{Due, HostCounts};
use crate::assign::partition_of;
use crate::federation::SiteNumber;
use crate::limits::{ORIGINS_MAX, TROUBLED_URLS_MAX};
use crate::politeness;
use crate::record::{Failure, HostRecord};
use crate::robots::Robots;
use crate::site::AgentId;
use crate::time::{Mono, Now, Wall};
use crate::url::{AddressKey, Fingerprint, Host, Origin, Url};

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
    /// Its partition is about to be handed over to another agent, or has been.
    Leaving,
    /// It belongs to another site, and URLs of it are on their way there.
    Outgoing,
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
    /// Room on the way to its site.
    Exchange,
    /// Another site, whose it was, to say what it knows.
    Claim,
    /// Room for what its pages link to on the way to other sites.
    Outbox,
}

impl Place {
    /// Whether a host there is at rest: it does not wait for its next turn.
    pub fn is_rest(self) -> bool {
        match self {
            Place::Idle
            | Place::Blocked
            | Place::Leaving
            | Place::Waiting(Wait::Retry | Wait::BackOff | Wait::Exchange | Wait::Claim | Wait::Outbox) => {
                true
            }
            Place::Ready
            | Place::Taking
            | Place::Resolving
            | Place::AtGate(_)
            | Place::Fetching
            | Place::Elsewhere
            | Place::Outgoing
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
            Place::Leaving => &mut counts.leaving,
            Place::Outgoing | Place::Waiting(Wait::Exchange) => &mut counts.outgoing,
            Place::Waiting(Wait::Claim) => &mut counts.claimed,
            Place::Waiting(Wait::Outbox) => &mut counts.held_up,
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
            Place::Leaving => "leaving",
            Place::Outgoing | Place::Waiting(Wait::Exchange) => "outgoing",
            Place::Waiting(Wait::Claim) => "claimed",
            Place::Waiting(Wait::Outbox) => "held_up",
        }
    }
}

/// What a name resolved to, and until when that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Not asked yet.
    Unknown,
    /// These addresses may be asked.
    At(Box<[IpAddr]>, Mono),
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
    /// Instead of the last answer a connection was closed that had been kept.
    pub closed: bool,
    /// Where in the journal the last answer is, for people.
    pub seen: Option<u64>,
    /// It fails while other origins of its host answer.
    pub trouble: Option<Box<Trouble>>,
    /// Where it is to be had after a redirect, and how many redirects led there.
    pub moved: Option<Box<(Url, u8)>>,
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

/// Rules in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The rules themselves, unless there was no room for them; see [`crate::robots::SharedRobots`].
    #[serde(skip)]
    pub robots: Option<Arc<Robots>>,
    /// The crawl-delay that they ask for.
    pub crawl_delay: Option<Duration>,
    /// Where in the journal they are, once they are durable.
    pub place: Option<u64>,
    /// When they were had.
    pub fetched: Wall,
    /// Until when they need not be asked for again.
    pub fresh_until: Wall,
    /// For If-None-Match.
    pub etag: Option<Box<str>>,
    /// For If-Modified-Since.
    pub last_modified: Option<Box<str>>,
}

impl Rules {
    /// All but the rules themselves, if they can be read back; otherwise nothing but the delay that they ask for.
    fn for_memo(&self) -> Rules {
        let is_there = self.place.is_some() || self.robots.is_none();
        let text = |text: &Option<Box<str>>| text.clone().filter(|_| is_there);
        Rules { robots: None, etag: text(&self.etag), last_modified: text(&self.last_modified), ..*self }
    }
}

impl RulesMemo {
    fn into_rules(self, host: &Host, now: Now) -> RulesOf {
        let trouble = self.trouble.map(|(failures, failure, since, not_before)| {
            Box::new(Trouble { failures, failure, since, not_before: now.mono_at(not_before) })
        });
        RulesOf {
            origin: Origin { https: self.https, host: host.clone(), port: self.port },
            rules: self.rules,
            ask_after: Mono(0),
            failures: self.failures,
            closed: false,
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
    pub url: Url,
    /// Redirects so far.
    pub hops: u8,
    /// Nobody waits for the answer after this.
    pub until: Mono,
    /// Whom it is for, if not for a host of this agent.
    pub asker: Option<Asker>,
}

/// Who wants rules that a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Another agent of the site.
    Agent(AgentId),
    /// Another site, by this call.
    Site(u64),
}

/// That a host is to be crawled by another site, which is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The site.
    pub to: SiteNumber,
    /// The version of the list of sites, with which it ends.
    pub version: u32,
}

/// The last few URLs of a host that something happened to. Few hosts have any.
#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "an empty one takes 8 bytes of each host instead of 32")]
pub struct LastUrls(Option<Box<VecDeque<Fingerprint>>>);

impl LastUrls {
    /// Whether a URL is one of them.
    pub fn contains(&self, url: &Url) -> bool {
        self.0.as_ref().is_some_and(|urls| urls.contains(&Fingerprint::of(url)))
    }

    /// The same; and it is one from now on, and the oldest makes room.
    pub fn met_before(&mut self, url: &Url) -> bool {
        if self.contains(url) {
            return true;
        }
        let urls = self.0.get_or_insert_default();
        if urls.len() >= TROUBLED_URLS_MAX {
            urls.pop_front();
        }
        urls.push_back(Fingerprint::of(url));
        false
    }
}

/// One host.
#[derive(Debug)]
pub struct HostState {
    /// Its name.
    pub name: Host,
    /// Its partition.
    pub partition: u16,
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
    pub busy_urls: LastUrls,
    /// URLs instead of whose answer a connection was closed that had been kept.
    pub closed_urls: LastUrls,
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
    /// The version of the list of sites in which it was claimed from another site.
    pub claimed: u32,
    /// It is known in this run that no other site has a say in it.
    pub is_owned: bool,
    /// It was granted to another site, durably.
    pub granted: Option<Grant>,
    /// Its place was looked for in this run,
    pub is_located: bool,
    /// and this is the site that is nearest to it, if it was found.
    pub nearest: Option<SiteNumber>,
    /// What its registrar did last in this run: it has sent something of it here, so that it may be ours, or has said that it
    /// is not.
    pub is_offered: Option<bool>,
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
    /// Something of it was under way when it was taken over from another agent.
    #[serde(skip)]
    is_under_way: bool,
    /// The version of the list of sites in which it was claimed from another site.
    claimed: u32,
    granted: Option<Grant>,
}

/// The same for the robots.txt of one of its origins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RulesMemo {
    https: bool,
    port: u16,
    /// Only those that can be read back from the journal, or of which nothing is left but the delay that they ask for.
    rules: Option<Rules>,
    failures: u32,
    seen: Option<u64>,
    /// The last moment by the calendar.
    trouble: Option<(u32, Failure, Wall, Wall)>,
}

impl HostMemo {
    /// What is known of a host that something was under way for when it was taken over from another agent.
    pub fn of_one_under_way(memo: Option<HostMemo>) -> HostMemo {
        HostMemo { is_under_way: true, ..memo.unwrap_or_default() }
    }

    /// Whether it is of such a host.
    pub fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// The version of the list of sites in which it was claimed from another site, if it was.
    pub fn claimed(&self) -> u64 {
        self.claimed.into()
    }

    /// The site that it was granted to.
    pub(crate) fn granted(&self) -> Option<Grant> {
        self.granted
    }

    /// One of a host of which nothing is known but when it was claimed.
    #[cfg(test)]
    pub(crate) fn claimed_in(version: u32) -> HostMemo {
        HostMemo { claimed: version, ..HostMemo::default() }
    }

    /// The same for another site than the one that has claimed or granted it.
    pub(crate) fn without_claims(self) -> HostMemo {
        HostMemo { claimed: 0, granted: None, ..self }
    }

    /// The places of the records that it refers to.
    pub fn places(&self) -> impl Iterator<Item = u64> {
        let places = |of: &RulesMemo| [of.seen, of.rules.as_ref().and_then(|rules| rules.place)];
        self.rules.iter().flat_map(places).flatten()
    }

    /// Whether it was written after another one of the same host, as far as that can be told.
    pub fn is_after(&self, other: &HostMemo) -> bool {
        self.not_before.0 > other.not_before.0
    }

    /// As another agent should have it: what only our clock and our journal say is left out, and robots.txt is asked for anew.
    pub fn for_another(self, now: Now) -> HostMemo {
        let rules = |of: RulesMemo| RulesMemo {
            rules: of.rules.map(|rules| Rules { place: None, etag: None, last_modified: None, ..rules }),
            seen: None,
            ..of
        };
        let (wall, ..) = self.not_before;
        let not_before = (wall.max(now.wall), 0, Mono(0));
        HostMemo { not_before, rules: self.rules.into_iter().map(rules).collect(), ..self }
    }

    /// As it is to be in a store where the records that it refers to are at other places, or nowhere.
    pub fn with_places(mut self, mut place_of: impl FnMut(u64) -> Option<u64>) -> HostMemo {
        for of in &mut self.rules {
            of.seen = of.seen.and_then(&mut place_of);
            if let Some(rules) = &mut of.rules {
                rules.place = rules.place.and_then(&mut place_of);
            }
        }
        self
    }

    /// What an agent said whose calendar shows `theirs` when ours shows `ours`.
    pub fn translated(self, theirs: Wall, ours: Wall) -> HostMemo {
        let wall = |wall: Wall| wall.translated(theirs, ours);
        let rules = |of: RulesMemo| RulesMemo {
            trouble: of
                .trouble
                .map(|(failures, failure, since, until)| (failures, failure, wall(since), wall(until))),
            ..of
        };
        HostMemo {
            not_before: (wall(self.not_before.0), 0, Mono(0)),
            failing_since: self.failing_since.map(wall),
            rules: self.rules.into_iter().map(rules).collect(),
            ..self
        }
    }
}

impl HostState {
    /// A host that nothing is known of.
    pub fn new(name: Host) -> HostState {
        HostState {
            partition: partition_of(&name),
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
            busy_urls: LastUrls::default(),
            closed_urls: LastUrls::default(),
            failures: 0,
            failing_since: None,
            failure: None,
            given_up: false,
            known: false,
            changed: false,
            listed: false,
            held: 0,
            claimed: 0,
            is_owned: false,
            granted: None,
            is_located: false,
            nearest: None,
            is_offered: None,
        }
    }

    /// It has answered after this long; no answer takes longer than `most`.
    pub fn responded(&mut self, took: Duration, most: Duration) {
        self.response = politeness::smooth(self.response, took, most);
    }

    /// Whether what the store keeps of it has been taken in.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// What must not be forgotten of it; nothing if it was never asked. `run` is the number of this run.
    pub fn memo(&self, run: u64, now: Now) -> Option<HostMemo> {
        let wall = now.wall_after(self.not_before.since(now.mono));
        let rules = self.rules.iter().map(|of| RulesMemo {
            https: of.origin.https,
            port: of.origin.port,
            rules: of.rules.as_ref().map(Rules::for_memo),
            failures: of.failures,
            seen: of.seen,
            trouble: of.trouble.as_ref().map(|trouble| {
                let not_before = now.wall_after(trouble.not_before.since(now.mono));
                (trouble.failures, trouble.failure, trouble.since, not_before)
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
            is_under_way: false,
            claimed: self.claimed,
            granted: self.granted,
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
        self.claimed = self.claimed.max(memo.claimed);
        self.granted = [self.granted, memo.granted].into_iter().flatten().max_by_key(|grant| grant.version);
        self.rules = memo.rules.into_iter().map(|of| of.into_rules(&self.name, now)).collect();
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

    /// What has to leave before something more is remembered of an origin: beyond the limit the oldest entry.
    pub fn make_room_for(&mut self, origin: &Origin) -> Option<RulesOf> {
        if self.rules.len() < ORIGINS_MAX || self.rules_of(origin).is_some() {
            return None;
        }
        let useless = self.rules.iter().position(|of| of.rules.is_none());
        Some(self.rules.remove(useless.unwrap_or(0)))
    }

    /// What is remembered of one of its origins, made if need be.
    pub fn rules_of_mut(&mut self, origin: &Origin) -> &mut RulesOf {
        let at = match self.rules.iter().position(|of| of.origin == *origin) {
            Some(at) => at,
            None => {
                // Nearly every host has one.
                self.rules.reserve_exact(1);
                self.rules.push(RulesOf {
                    origin: Origin { host: self.name.clone(), ..*origin },
                    rules: None,
                    ask_after: Mono(0),
                    failures: 0,
                    closed: false,
                    seen: None,
                    trouble: None,
                    moved: None,
                });
                self.rules.len() - 1
            }
        };
        &mut self.rules[at]
    }

    /// Gives back memory that a host at rest has no use for.
    pub(super) fn shrink(&mut self) {
        if self.head.is_empty() {
            self.head = VecDeque::new();
        }
        if self.errands.is_empty() {
            self.errands = VecDeque::new();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred thousand of them are in memory: `nephila lab memory` measures what each takes in all.
    #[test]
    fn a_host_is_small() {
        let bytes = (size_of::<HostState>(), size_of::<RulesOf>());
        assert!(bytes.0 <= 288 && bytes.1 <= 160, "{bytes:?}");
    }
}
