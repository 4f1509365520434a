//! The agent: a state machine from events and the time to actions.
//!
//! [`Agent::step`] is the only way in, the actions it appends the only way out. What it must not forget it hands out as
//! [`Record`]s to be written, and it lets nothing out that a record says before it is told that the record is durable. To
//! start again it is given the same records in the same order ([`Agent::replay`]) and then told what the store
//! holds ([`Agent::start`]).
//!
//! Invariants:
//! - *A host has at most one request in flight, and an address at most `ip_parallel`.*
//! - *Each [`Event::Fetched`] leads to exactly one [`Action::Write`] that names its fetch.*
//! - *Links of a page are offered to the sieve only after the page's record is durable.*

mod abroad;
mod admitted;
mod away;
mod claims;
mod control;
mod dispatch;
mod errands;
mod event;
mod exchange;
mod handover;
mod keeper;
mod lease;
mod members;
mod namesakes;
mod neighbours;
mod outbox;
mod outgoing;
mod post;
mod recovery;
mod registrar;
mod rests;
mod returning;
mod rules;
mod saying;
mod settle;
mod shared;
mod site;
mod status;
mod stopping;
mod takeover;
mod terms;
#[cfg(test)]
mod tests;
mod turns;
mod view;
mod wishes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use self::away::Away;
use self::exchange::Exchange;
use self::site::Site;
use self::stopping::Stopping;
use crate::frontier::{Alarm, Errand, HostState, Place, Wait, Workbench};
use crate::politeness::{self, Gates, Jitter};
use crate::record::{Block, Found, How, Outcome, Record, RobotsOutcome, Settled};
use crate::robots::SharedRobots;
use crate::scope::Scope;
use crate::settings::Settings;
use crate::site::SiteSettings;
use crate::time::{Mono, Now, Wall};
use crate::url::{AddressKey, Host, Url, identify};

pub use admitted::{Admitted, OverLimit, ToTell};
pub use away::AgentMemo;
pub use control::{Control, Everywhere, MayNotSay};
pub use event::*;
pub use handover::Cursor;
pub use namesakes::{Between, Namesakes};
pub use shared::{SharedAction, SharedEvent};
pub use site::{Acquaintance, Differing, MemberView, OtherSite, SiteView, Standing};
pub use status::*;
pub use stopping::StopReason;
pub use view::RobotsView;

/// A request in flight.
#[derive(Debug)]
struct Flight {
    host: u32,
    gates: Vec<AddressKey>,
    task: Task,
}

/// What a request is for.
#[derive(Debug)]
enum Task {
    Page(Due),
    /// A robots.txt, here or elsewhere; `home` is the host whose rules they are.
    Rules {
        home: u32,
        errand: Errand,
    },
    /// A robots.txt for a host of another agent.
    ForAnother(Errand),
}

/// One agent. See the module's documentation.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    scope: Scope,
    bench: Workbench,
    away: Away,
    /// Hosts that the store knows.
    hosts: u64,
    gates: Gates,
    /// Hosts whose names wait to be resolved; filled by dispatch, emptied as answers come.
    to_resolve: VecDeque<u32>,
    resolving: usize,
    flights: BTreeMap<FetchId, Flight>,
    /// Records on their way to the disk, each with the host that must not leave before.
    unsettled: BTreeMap<Ticket, Option<u32>>,
    /// How many of them answer a URL, and so will be pages.
    answered_unsettled: u64,
    /// Page requests in flight.
    pages_in_flight: u64,
    /// Offers to the sieve that have no answer yet.
    admitting: u64,
    /// URLs that the sieve has not decided about.
    undecided: u64,
    /// When a fetch ended last, or what was undecided was decided.
    last_busy: Mono,
    blocks: BTreeSet<Block>,
    /// The memory that rules of robots.txt take, and the host whose rules were dropped last.
    shared: SharedRobots,
    rules_hand: u32,
    totals: Totals,
    /// Hosts that were given up.
    given_up: u64,
    over: OverLimit,
    /// Known and not settled; what two agents have settled is counted off twice, until the store says so.
    queue: i64,
    jitter: Jitter,
    fetches: u64,
    tickets: u64,
    started: Mono,
    /// Runs that there were, this one included, and when this one began.
    runs: u64,
    run_began: Option<Wall>,
    /// What redirects of seeds have added to the scope.
    widened: Vec<String>,
    /// The run that records before this one belong to: when it began, and the last sign of it.
    earlier_run: Option<(Wall, Wall)>,
    /// What addresses have asked for, as it is written down.
    address_waits: Vec<(AddressKey, Wall)>,
    paused: bool,
    stopping: Option<Stopping>,
    ended: bool,
    site: Site,
    /// The other sites; `None` outside of a federation.
    exchange: Option<Box<Exchange>>,
}

impl Agent {
    /// An agent of a site that knows nothing yet.
    pub fn of_site(settings: Settings, scope: Scope, site: SiteSettings) -> Agent {
        Agent { site: Site::of(site), ..Agent::new(settings, scope) }
    }

    /// An agent that crawls alone and knows nothing yet.
    pub fn new(settings: Settings, scope: Scope) -> Agent {
        let jitter = Jitter::new(settings.seed);
        Agent {
            settings,
            scope,
            bench: Workbench::default(),
            away: Away::default(),
            hosts: 0,
            gates: Gates::default(),
            to_resolve: VecDeque::new(),
            resolving: 0,
            flights: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            answered_unsettled: 0,
            pages_in_flight: 0,
            admitting: 0,
            undecided: 0,
            last_busy: Mono(0),
            blocks: BTreeSet::new(),
            shared: SharedRobots::default(),
            rules_hand: 0,
            totals: Totals::default(),
            given_up: 0,
            over: OverLimit::default(),
            queue: 0,
            jitter,
            fetches: 0,
            tickets: 0,
            started: Mono(0),
            runs: 0,
            run_began: None,
            widened: Vec::new(),
            earlier_run: None,
            address_waits: Vec::new(),
            paused: false,
            stopping: None,
            ended: false,
            site: Site::alone(),
            exchange: None,
        }
    }

    /// Takes in a record of an earlier run, and where it is in the journal: in order, all that [`Agent::remember`] does not
    /// cover, before [`Agent::start`]. `kept` says what the store keeps of a host.
    pub fn replay(&mut self, now: Now, place: u64, record: &Record, kept: &mut Kept<'_>) {
        self.totals.count(record);
        self.site.outbox.last = Some(place);
        match record {
            Record::Settled(settled) => {
                if let Ok(url) = Url::parse(&settled.url) {
                    let index = self.index_known(&Host::of(&url), kept, now);
                    let host = self.bench.host_mut(index);
                    if matches!(settled.outcome, Outcome::Answered { .. }) {
                        host.pages += 1;
                        host.responded(settled.took, self.settings.request_timeout);
                    }
                }
                self.touch_earlier_run(settled.at);
                self.widen_scope(&settled.found);
            }
            Record::Robots(robots) => {
                if let (true, Ok(url)) = (robots.asked, Url::parse(&robots.url)) {
                    // It may be another host that was asked.
                    self.index_known(&Host::of(&url), kept, now);
                }
                if robots.outcome != RobotsOutcome::ForAnother {
                    let index = self.index_known(&robots.origin.host, kept, now);
                    self.keep_rules(index, &robots.origin, robots.at, &robots.outcome);
                    self.rules_are_at(index, robots, place);
                }
                self.touch_earlier_run(robots.at);
            }
            Record::Host(record) => {
                let index = self.index_known(&record.host, kept, now);
                let host = self.bench.host_mut(index);
                host.not_before = now.mono_at(record.not_before);
                host.failures = record.failures;
                host.failing_since = record.failing_since;
                host.failure = record.failure;
                self.give_up(index, record.given_up);
            }
            Record::AddressWait { address, not_before } => self.address_waits.push((*address, *not_before)),
            Record::Block(block) => self.recall_block(canonical(block.clone()), true),
            Record::Unblock(block) => self.recall_block(canonical(block.clone()), false),
            Record::Wishes(wishes) => self.recall_wishes(wishes),
            Record::RunStarted { at } => {
                self.count_earlier_run();
                self.runs += 1;
                self.earlier_run = Some((*at, *at));
            }
            Record::RunEnded { elapsed } => {
                self.earlier_run = None;
                self.totals.elapsed_before = self.totals.elapsed_before.saturating_add(*elapsed);
            }
            Record::Seeds(found) => self.widen_scope(found),
            Record::Arrived(arrived) => self.widen_scope(&arrived.found),
            Record::Moved { .. } | Record::Copied { .. } => {}
            Record::Returned { version } => self.recall_returned(*version),
            Record::Claimed { host, version, memo } => {
                let index = self.index_known(host, kept, now);
                self.recall_claimed(index, *version, memo.as_deref(), now);
            }
            Record::Granted { host, version, to } => {
                let index = self.index_known(host, kept, now);
                self.recall_granted(index, *version, to);
            }
            Record::Members(_) | Record::Tokens(_) | Record::Released { .. } | Record::Recovered(_) => {
                self.site.replay(record);
            }
        }
    }

    /// A record of an earlier run does not count any more, although [`Agent::remember`] covers it: its URL is to be tried again.
    pub fn take_back(&mut self, now: Now, settled: &Settled, kept: &mut Kept<'_>) {
        self.totals.take_back(settled);
        if let (Outcome::Answered { .. }, Some((host, _))) = (&settled.outcome, identify(&settled.url)) {
            let index = self.index_known(&host, kept, now);
            let host = self.bench.host_mut(index);
            host.pages = host.pages.saturating_sub(1);
        }
    }

    /// Begins the run: `stored` says what the store holds.
    pub fn start(&mut self, now: Now, stored: Stored, out: &mut Vec<Action>) {
        let now = self.begin_step(now);
        self.over = stored.kept_out;
        self.hosts = stored.hosts;
        self.undecided = stored.undecided;
        self.totals.known_urls = stored.known;
        self.queue = stored.queued as i64;
        self.count_earlier_run();
        self.runs += 1;
        (self.started, self.run_began) = (now.mono, Some(now.wall));
        for (address, not_before) in &self.address_waits {
            if *not_before > now.wall {
                self.gates.close_until(*address, now.mono_at(*not_before));
            }
        }
        self.rest_again(now);
        for index in 0..self.bench.index_end() {
            let came = self.bench.get(index).and_then(|host| self.site.came_at(&host.name));
            let from = came.unwrap_or(now.mono) + self.first_wait(index);
            let host = self.bench.host_mut(index);
            host.not_before = host.not_before.max(from);
            self.settle_in(index, now);
        }
        if stored.known > 0 {
            self.away.want();
        }
        self.write_own(Record::RunStarted { at: now.wall }, out);
        self.start_site(now, out);
        self.begin_returning(out);
        self.dispatch(now, out);
    }

    /// The run has ended, and the record that says so is durable.
    pub fn end(&mut self, elapsed: Duration) {
        self.run_began = None;
        self.totals.elapsed_before = self.totals.elapsed_before.saturating_add(elapsed);
    }

    /// Takes in an event and appends what should be done.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Action>) {
        let now = self.begin_step(now);
        match event {
            Event::Seeds(urls) => self.on_seeds(urls, out),
            Event::Admitted(admitted) => {
                self.admitting = self.admitting.saturating_sub(1);
                if self.admitting == 0 {
                    self.site.outbox.is_answered();
                }
                self.on_admitted(admitted, now);
            }
            Event::Decided(admitted) => self.on_admitted(admitted, now),
            Event::Taken(taken) => self.on_taken(taken, now, out),
            Event::Visited(visited) => self.on_visited(visited, now),
            Event::Resolved { host, answer } => self.on_resolved(&host, answer, now, out),
            Event::Fetched(fetched) => self.on_fetched(fetched, now, out),
            Event::Recorded { ticket, place, record } => self.on_recorded(ticket, place, record, now, out),
            Event::Recalled { host, record, place } => self.on_recalled(&host, place, record, now, out),
            Event::Control(control) => self.on_control(control, now, out),
            Event::Message { from, name, message } => self.on_message(from, &name, *message, now, out),
            Event::Exported { to, handover, moved, next, decided } => {
                self.on_admitted(*decided, now);
                self.on_exported(to, handover, moved, next, now, out);
            }
            Event::Reread { records, next } => self.on_reread(records, next, now, out),
            Event::LookedBack { asked, looked, next } => self.on_looked_back(asked, looked, next, now, out),
            Event::Posted { post, taken } => self.on_posted(post, taken, now, out),
            Event::Batch { call, site, batch } => self.on_batch(call, &site, *batch, out),
            Event::Claimed { call, release } => self.on_claimed(call, release, now, out),
            Event::Claim { call, site, claim } => self.on_claim(call, &site, *claim, now, out),
            Event::Told { call, site, used } => self.on_told(call, &site, *used, now, out),
            Event::RulesOfSite { call, result } => self.on_rules_of_site(call, result, now, out),
            Event::RulesAsked { call, ask } => self.on_rules_asked(call, *ask, now, out),
            Event::Said { call, site, saying } => self.on_said(call, &site, *saying, now, out),
            Event::Heard { call, heard } => self.on_heard(call, heard, now, out),
            Event::ExportedHost { call, moved, next, decided } => {
                self.on_admitted(*decided, now);
                self.on_exported_host(call, moved, next, now, out);
            }
            Event::CountedQueued { counted, decided } => {
                self.on_admitted(decided, now);
                self.on_counted_queued(&counted);
            }
            Event::Shared(event) => self.on_shared(event, now, out),
            Event::Wake => {}
        }
        self.dispatch(now, out);
    }

    /// When to call [`Agent::step`] with [`Event::Wake`] at the latest.
    pub fn next_wake(&mut self) -> Option<Mono> {
        let stop = self.stopping.filter(|stopping| !stopping.abandoned).map(|stopping| stopping.deadline);
        let time = self.time_limit_at();
        // A host that had its turn and is still ready comes at once, but after whatever has happened meanwhile.
        let ready = (self.may_start() && self.bench.ready_len() > 0).then_some(Mono(0));
        let round = self.away.wake().filter(|_| self.stopping.is_none());
        let (site, exchange) = (self.next_site_wake(), self.next_exchange_wake());
        [self.bench.next_alarm(), stop, time, ready, round, site, exchange].into_iter().flatten().min()
    }

    fn on_seeds(&mut self, urls: Vec<Url>, out: &mut Vec<Action>) {
        let Some(urls) = self.may_write_seeds(urls) else { return };
        let found: Vec<Found> = urls
            .into_iter()
            .map(|url| Found { url: url.into(), depth: 0, how: How::Seed, redirects: 0 })
            .collect();
        self.widen_scope(&found);
        self.write(Record::Seeds(found), None, None, out);
    }

    fn on_admitted(&mut self, admitted: Admitted, now: Now) {
        self.undecided = admitted.undecided;
        self.hosts = admitted.hosts;
        self.over.depth += admitted.over.depth;
        self.over.host += admitted.over.host;
        self.over.urls += admitted.over.urls;
        self.count_outgoing(&admitted);
        self.route_told(admitted.to_tell);
        self.totals.known_urls += admitted.new.iter().map(|(_, new)| new).sum::<u64>();
        for (name, new) in admitted.new.into_iter().chain(admitted.again) {
            self.queue += new as i64;
            if !self.site.is_ours(&name) {
                continue;
            }
            if self.bench.find(&name).is_none() && self.room() == 0 {
                self.away.want();
                continue;
            }
            let index = self.bench.index(&name);
            self.heed_new(index);
            let host = self.bench.host_mut(index);
            host.due += new;
            if matches!(host.place(), Place::Idle | Place::Waiting(Wait::Retry)) {
                self.settle_in(index, now);
            }
        }
        let (known, queued) = admitted.moved;
        self.totals.known_urls = self.totals.known_urls.saturating_add_signed(known);
        self.queue += queued;
    }

    fn on_taken(&mut self, taken: Taken, now: Now, out: &mut Vec<Action>) {
        let Some(index) = self.bench.find(&taken.host) else { return };
        if !self.bench.host(index).is_known() {
            self.make_known(index, taken.memo, now);
        }
        let host = self.bench.host_mut(index);
        host.head.extend(taken.due);
        host.due = taken.left;
        // A retry that was settled while the store answered is not in its answer.
        host.retry_at = [host.retry_at, taken.next].into_iter().flatten().min();
        self.carry_on(index, now, out);
    }

    fn on_recorded(
        &mut self,
        ticket: Ticket,
        place: u64,
        record: Box<Record>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(of) = self.unsettled.remove(&ticket) else { return };
        self.totals.count(&record);
        self.count_outgoing_in(&record);
        if let Some(index) = of {
            self.bench.host_mut(index).held -= 1;
        }
        if let Record::Settled(settled) = &*record {
            let answered = matches!(settled.outcome, Outcome::Answered { .. });
            self.answered_unsettled -= u64::from(answered);
            self.queue -= i64::from(settled.outcome.is_final());
            if let Some(index) = of {
                let host = self.bench.host_mut(index);
                host.pages += u64::from(answered);
                if let Outcome::Retry { not_before, .. } = settled.outcome {
                    host.retry_at = Some(host.retry_at.map_or(not_before, |at| at.min(not_before)));
                    if matches!(host.place(), Place::Idle | Place::Waiting(Wait::Retry)) {
                        self.settle_in(index, now);
                    }
                }
            }
        }
        if let (Record::Robots(robots), Some(index)) = (&*record, of)
            && robots.outcome != RobotsOutcome::ForAnother
        {
            self.rules_are_at(index, robots, place);
            self.keep_shared(index, now, out);
        }
        self.on_site_recorded(ticket, place, &record, now, out);
        self.answer_call(ticket, true, out);
        if record.changes_the_store() {
            self.admitting += 1;
            out.push(Action::Admit { place, record, open: self.site.open.clone(), again: false });
        }
    }

    /// Hands a record out to be written. `of` is the host that is to be told when it is durable.
    fn write(
        &mut self,
        mut record: Record,
        of: Option<u32>,
        fetch: Option<FetchId>,
        out: &mut Vec<Action>,
    ) -> Ticket {
        self.divert(&mut record);
        self.drop_outgoing(&mut record);
        if let Record::Settled(settled) = &mut record {
            self.answered_unsettled += u64::from(matches!(settled.outcome, Outcome::Answered { .. }));
            self.allow_for_others(&mut settled.outcome);
        }
        if let Record::Arrived(arrived) = &record {
            self.heed_offers(arrived);
            self.heed_returned(&arrived.found);
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.unsettled.insert(ticket, of);
        if let Some(index) = of {
            self.bench.host_mut(index).held += 1;
        }
        out.push(Action::Write { ticket, record: Box::new(record), fetch });
        ticket
    }

    /// What a seed redirects to counts as the seed, for the scope too.
    fn widen_scope(&mut self, found: &[Found]) {
        for found in found.iter().filter(|found| found.how == How::Seed) {
            self.widen_scope_by(&found.url);
        }
    }

    fn widen_scope_by(&mut self, seed: &str) {
        if let Ok(url) = Url::parse(seed)
            && self.scope.add_seed(&url)
        {
            self.widened.push(seed.to_owned());
            if !self.site.is_alone() {
                // It follows from a record, here; others have to be told.
                self.site.wishes.add_seed(seed);
            }
        }
    }

    /// A host is given up, or not any more.
    fn give_up(&mut self, index: u32, given_up: bool) {
        let host = self.bench.host_mut(index);
        match (std::mem::replace(&mut host.given_up, given_up), given_up) {
            (false, true) => self.given_up += 1,
            (true, false) => self.given_up = self.given_up.saturating_sub(1),
            _ => {}
        }
    }

    /// The delay between requests to a host.
    fn delay(&self, index: u32) -> Duration {
        self.delay_of(self.bench.host(index))
    }

    fn delay_of(&self, host: &HostState) -> Duration {
        let delay = politeness::delay(&self.settings, host.crawl_delay(), host.response);
        self.exchange.as_deref().map_or(delay, |exchange| delay.max(exchange.least_delay))
    }

    /// Puts every host where it belongs, after something that concerns all.
    fn settle_all_in(&mut self, now: Now) {
        for index in 0..self.bench.index_end() {
            if self.is_at_rest(index) {
                self.settle_in(index, now);
            }
        }
    }

    /// Puts a host that nothing is under way for where it belongs now.
    fn settle_in(&mut self, index: u32, now: Now) {
        let (place, until) = self.place_for(index, now);
        match until {
            Some(until) => self.bench.put_until(index, place, until),
            None => self.bench.put(index, place),
        }
    }

    /// The same, but a host that has its turn already and may go on does not queue for it again.
    fn carry_on(&mut self, index: u32, now: Now, out: &mut Vec<Action>) {
        if self.place_for(index, now).0 == Place::Ready && self.may_start() {
            self.advance(index, now, out);
        } else {
            self.settle_in(index, now);
        }
    }

    fn place_for(&self, index: u32, now: Now) -> (Place, Option<Mono>) {
        self.place_of(self.bench.host(index), now)
    }

    fn place_of(&self, host: &HostState, now: Now) -> (Place, Option<Mono>) {
        if !self.site.may_ask(host.partition) {
            return (Place::Leaving, None);
        }
        if host.errands.is_empty() && host.head.is_empty() && host.due == 0 {
            return match host.retry_at {
                Some(at) => (Place::Waiting(Wait::Retry), Some(now.mono_at(at).max(host.not_before))),
                None => (Place::Idle, None),
            };
        }
        if self.block_of(&host.name, &host.addresses).is_some() {
            return (Place::Blocked, None);
        }
        if now.mono < host.not_before && self.other_site_of(host).is_none() {
            let wait = if host.failures > 0 { Wait::BackOff } else { Wait::Delay };
            return (Place::Waiting(wait), Some(host.not_before));
        }
        (Place::Ready, None)
    }

    fn blocked(&self, index: u32) -> bool {
        let host = self.bench.host(index);
        self.block_of(&host.name, &host.addresses).is_some()
    }

    /// Rings the alarms that are due.
    fn ring(&mut self, now: Now, out: &mut Vec<Action>) {
        while let Some(alarm) = self.bench.ring(now.mono) {
            match alarm {
                Alarm::Gate(address) => {
                    if !self.has_turn(address, now) {
                        self.want_turn(address, now);
                        continue;
                    }
                    while let Some(index) = self.gates.admit_next(address, &self.settings, now.mono) {
                        self.carry_on(index, now, out);
                    }
                    self.watch_gate(address, now);
                }
                Alarm::Host(index) => {
                    let host = self.bench.host_mut(index);
                    match host.place() {
                        Place::Waiting(Wait::Retry) => {
                            // The store has at least one that is due now.
                            host.retry_at = None;
                            host.due = host.due.max(1);
                            self.settle_in(index, now);
                        }
                        Place::Waiting(_) => self.settle_in(index, now),
                        Place::Elsewhere => self.rules_overdue(index, now, out),
                        _ => {}
                    }
                }
            }
        }
    }

    fn watch_gate(&mut self, address: AddressKey, now: Now) {
        if let Some(at) = self.gates.wants_alarm(address, &self.settings, now.mono) {
            self.bench.set_gate_alarm(address, at);
        }
    }
}

/// An IPv4 address and the same one mapped into IPv6 are one.
fn canonical(block: Block) -> Block {
    match block {
        Block::Address(address) => Block::Address(address.to_canonical()),
        Block::Name(host) => Block::Name(host),
    }
}
