//! From a host whose turn has come to a request: robots.txt first, its name, its address, its next URL.

use std::net::IpAddr;
use std::time::Duration;

use super::rules::Word;
use super::shared::SharedAction;
use super::{Action, Addresses, Agent, Due, FetchId, Flight, NoAddress, Order, Purpose, StopReason, Task};
use crate::frontier::{Errand, Name, Place, Wait};
use crate::limits::{ADDRESSES_MAX, TAKEN_MAX, UNSETTLED_MAX};
use crate::politeness::Turn;
use crate::record::{Block, Failure, How, LeftOut, Outcome, PageFlags, Record, Settled};
use crate::time::{Mono, Now};
use crate::url::{AddressKey, Host, Origin};

/// A host whose pages wait, since too much that was found waits for other sites, is looked at again after this.
const ROOM_AGAIN: Duration = Duration::from_secs(10);

impl Agent {
    /// Lets every host that may be asked be asked, as far as there is room.
    pub(super) fn dispatch(&mut self, now: Now, out: &mut Vec<Action>) {
        // It may just have heard what the calendar of its site shows.
        let now = self.begin_step(now);
        self.check_limits(now);
        self.ring(now, out);
        // Each ready host once: one that turns down URL after URL must not keep the others, or the world, waiting.
        for _ in 0..self.bench.ready_len() {
            let Some(index) = self.may_start().then(|| self.bench.next_ready()).flatten() else { break };
            self.advance(index, now, out);
        }
        self.go_round(now, out);
        self.gates.sweep(now.mono);
        self.tend_site(now, out);
        self.tend_exchange(now, out);
        self.abandon_if_overdue(now, out);
        self.end_if_done(now, out);
    }

    fn check_limits(&mut self, now: Now) {
        let settings = &self.settings;
        let reason = if settings.max_pages.is_some_and(|max| self.totals.pages >= max) {
            StopReason::MaxPages
        } else if settings.max_bytes.is_some_and(|max| self.totals.bytes >= max) {
            StopReason::MaxBytes
        } else if self.time_limit_at().is_some_and(|at| now.mono >= at) {
            StopReason::MaxTime
        } else {
            return;
        };
        self.stop(reason, now);
    }

    fn abandon_if_overdue(&mut self, now: Now, out: &mut Vec<Action>) {
        if let Some(stopping) = &mut self.stopping
            && !stopping.abandoned
            && now.mono >= stopping.deadline
        {
            stopping.abandoned = true;
            out.extend(self.flights.keys().map(|fetch| Action::Abandon(*fetch)));
        }
    }

    /// Whether there is room and a wish for one more request.
    pub(super) fn may_start(&self) -> bool {
        let pages = self.totals.pages + self.answered_unsettled + self.pages_in_flight;
        !self.paused
            && !self.site.is_cut_off
            && self.site.unsure_until.is_none()
            && self.stopping.is_none()
            && !self.ended
            && self.has_lease()
            && self.flights.len() < self.settings.parallel
            && self.unsettled.len() < UNSETTLED_MAX
            && !self.is_clogged()
            && self.settings.max_pages.is_none_or(|max| pages < max)
    }

    /// Brings a ready host as far as it gets: to a request, or to the place where it must wait.
    pub(super) fn advance(&mut self, index: u32, now: Now, out: &mut Vec<Action>) {
        // Whose a host is that goes to the nearest site is not seen in its name.
        if !self.bench.host(index).is_known() && self.is_by_place(index) {
            return self.take(index, out);
        }
        if let Some(site) = self.other_site_of(self.bench.host(index)) {
            return self.post_next(index, site, now, out);
        }
        let unsettled_before = self.unsettled.len();
        loop {
            if self.unsettled.len() >= UNSETTLED_MAX {
                return self.bench.put(index, Place::Ready);
            }
            if !self.bench.host(index).is_known() {
                return self.take(index, out);
            }
            if !self.is_claimed(index) {
                return self.claim(index, now);
            }
            if self.decides(index) {
                return self.decide(index, now, out);
            }
            if let Some(errand) = self.next_errand(index, now) {
                if self.bench.host(index).given_up {
                    self.fail_errand(&errand, now, out);
                    continue;
                }
                if errand.asker.is_some() {
                    return self.request(index, Task::ForAnother(errand), now, out);
                }
                // One that has left does not wait for it any more.
                let Some(home) = self.bench.find(&errand.origin.host) else { continue };
                return self.request(index, Task::Rules { home, errand }, now, out);
            }
            let host = self.bench.host(index);
            let Some(due) = host.head.front() else {
                if host.due == 0 {
                    return self.settle_in(index, now);
                }
                if self.unsettled.len() > unsettled_before {
                    // It turned down all that it had taken, and that was its turn.
                    return self.bench.put(index, Place::Ready);
                }
                return self.take(index, out);
            };
            if host.given_up {
                let failure = host.failure.filter(|failure| *failure == Failure::NoSuchName);
                let failure = failure.unwrap_or(Failure::HostGivenUp);
                self.turn_down(index, Outcome::Failed { failure, status: None }, now, out);
                continue;
            }
            if matches!(host.addresses, Name::Refused(until) if now.mono < until) {
                let failure = Failure::PrivateAddress;
                self.turn_down(index, Outcome::Failed { failure, status: None }, now, out);
                continue;
            }
            let origin = Origin::of(&due.url);
            match self.word_on(index, &due.url, &origin, now) {
                Word::Ask { url, hops } => {
                    let errand = Errand { origin, url, hops, until: Mono::NEVER, asker: None };
                    return self.request(index, Task::Rules { home: index, errand }, now, out);
                }
                Word::Recall { place } => {
                    let host = self.bench.host(index).name.clone();
                    self.bench.put(index, Place::Taking);
                    return out.push(Action::Recall { host, place });
                }
                Word::Wait { until, failure } => {
                    let not_before = now.wall_after(until.since(now.mono));
                    self.turn_down(index, Outcome::Retry { failure, status: None, not_before }, now, out);
                }
                Word::GivenUp => {
                    let failure = Failure::HostGivenUp;
                    self.turn_down(index, Outcome::Failed { failure, status: None }, now, out);
                }
                Word::Disallowed { line, rule } => {
                    self.turn_down(index, Outcome::Disallowed { line, rule }, now, out);
                }
                Word::Allowed if self.is_outbox_full() || self.is_backed_up(now) => {
                    self.put_back(index, out);
                    let until = now.mono + ROOM_AGAIN;
                    return self.bench.put_until(index, Place::Waiting(Wait::Outbox), until);
                }
                Word::Allowed => {
                    let Some(due) = self.bench.host_mut(index).head.pop_front() else { return };
                    return self.request(index, Task::Page(due), now, out);
                }
            }
        }
    }

    /// Asks the store for the next URLs of a host.
    fn take(&mut self, index: u32, out: &mut Vec<Action>) {
        let host = self.bench.host(index);
        let (name, fresh_first) = (host.name.clone(), host.failure == Some(Failure::Busy));
        self.bench.put(index, Place::Taking);
        out.push(Action::Take { host: name, max: TAKEN_MAX, fresh_first });
    }

    fn next_errand(&mut self, index: u32, now: Now) -> Option<Errand> {
        let host = self.bench.host_mut(index);
        while let Some(errand) = host.errands.pop_front() {
            if now.mono < errand.until {
                return Some(errand);
            }
        }
        None
    }

    /// Settles the next URL of a host without a request.
    fn turn_down(&mut self, index: u32, outcome: Outcome, now: Now, out: &mut Vec<Action>) {
        let Some(due) = self.bench.host_mut(index).head.pop_front() else { return };
        self.write(Record::Settled(unasked(due, outcome, now)), Some(index), None, out);
    }

    /// Starts a request, or has the host wait for what it needs first; the task is then found again at its next turn.
    pub(super) fn request(&mut self, index: u32, task: Task, now: Now, out: &mut Vec<Action>) {
        let addresses = match &self.bench.host(index).addresses {
            Name::At(list, until) if now.mono < *until => list.to_vec(),
            Name::Refused(until) if now.mono < *until => {
                return self.refuse(index, task, now, out);
            }
            _ => {
                self.lay_down(index, task);
                return self.resolve(index, out);
            }
        };
        if self.blocked(index) {
            self.lay_down(index, task);
            return self.bench.put(index, Place::Blocked);
        }
        // Where nothing is confirmed for now this is not answered before it is.
        if !self.is_marked(index) || self.is_unconfirmed(index) {
            self.lay_down(index, task);
            self.bench.put(index, Place::Taking);
            let host = self.bench.host(index).name.clone();
            return out.push(Action::Shared(SharedAction::Mark { host }));
        }
        let mut gates: Vec<AddressKey> = addresses.iter().map(|ip| AddressKey::of(*ip)).collect();
        gates.sort_unstable();
        gates.dedup();
        if let Some(address) = self.lacks_turn(&gates, now) {
            self.lay_down(index, task);
            return self.wait_for_turn(index, address, now);
        }
        if let Turn::Later(address) = self.gates.turn(index, &gates, &self.settings, now.mono) {
            self.lay_down(index, task);
            self.bench.put(index, Place::AtGate(address));
            return self.watch_gate(address, now);
        }
        self.fetches += 1;
        let fetch = FetchId(self.fetches);
        let begin_before = self.use_turns(&gates, now);
        out.push(Action::Fetch(Order { begin_before, ..self.order(fetch, index, &task, addresses) }));
        self.pages_in_flight += u64::from(matches!(task, Task::Page(_)));
        if let Task::Rules { home, .. } = &task {
            self.bench.host_mut(*home).held += 1;
        }
        self.flights.insert(fetch, Flight { host: index, gates, task });
        self.bench.put(index, Place::Fetching);
    }

    fn order(&self, fetch: FetchId, host: u32, task: &Task, addresses: Vec<IpAddr>) -> Order {
        match task {
            Task::Page(due) => Order {
                fetch,
                url: due.url.clone(),
                addresses,
                purpose: if due.how == How::Sitemap { Purpose::Sitemap } else { Purpose::Page },
                via: due.via.clone(),
                depth: due.depth,
                attempt: due.attempts + 1,
                new_connection: self.bench.host(host).closed_urls.contains(&due.url),
                begin_before: Mono::NEVER,
            },
            Task::ForAnother(errand) => Order {
                fetch,
                url: errand.url.clone(),
                addresses,
                purpose: Purpose::Robots { etag: None, last_modified: None },
                via: None,
                depth: 0,
                attempt: 1,
                new_connection: false,
                begin_before: Mono::NEVER,
            },
            Task::Rules { home, errand } => {
                let of = self.bench.host(*home).rules_of(&errand.origin);
                let copy = of.and_then(|of| of.rules.as_ref());
                Order {
                    fetch,
                    url: errand.url.clone(),
                    addresses,
                    purpose: Purpose::Robots {
                        etag: copy.and_then(|rules| rules.etag.as_deref().map(str::to_owned)),
                        last_modified: copy
                            .and_then(|rules| rules.last_modified.as_deref().map(str::to_owned)),
                    },
                    via: None,
                    depth: 0,
                    attempt: 1,
                    new_connection: of.is_some_and(|of| of.closed),
                    begin_before: Mono::NEVER,
                }
            }
        }
    }

    /// Puts a task that cannot start yet where the host's next turn finds it.
    fn lay_down(&mut self, index: u32, task: Task) {
        let host = self.bench.host_mut(index);
        match task {
            Task::Page(due) => host.head.push_front(due),
            Task::Rules { home, errand } if home != index => host.errands.push_front(errand),
            Task::ForAnother(errand) => host.errands.push_front(errand),
            // The host's own rules are asked for again as long as they are missing.
            Task::Rules { .. } => {}
        }
    }

    /// A name that may not be asked at any of its addresses.
    fn refuse(&mut self, index: u32, task: Task, now: Now, out: &mut Vec<Action>) {
        match task {
            Task::Rules { home, errand } if home != index => {
                self.fail_errand(&errand, now, out);
                self.settle_in(index, now);
            }
            Task::ForAnother(errand) => {
                self.fail_errand(&errand, now, out);
                self.settle_in(index, now);
            }
            task => {
                self.lay_down(index, task);
                self.settle_in(index, now);
            }
        }
    }

    /// Has a name looked up, as soon as there is room.
    pub(super) fn resolve(&mut self, index: u32, out: &mut Vec<Action>) {
        self.bench.put(index, Place::Resolving);
        self.to_resolve.push_back(index);
        self.resolve_next(out);
    }

    fn resolve_next(&mut self, out: &mut Vec<Action>) {
        while self.resolving < self.settings.resolve_parallel {
            let Some(index) = self.to_resolve.pop_front() else { return };
            self.resolving += 1;
            out.push(Action::Resolve { host: self.bench.host(index).name.clone() });
        }
    }

    pub(super) fn on_resolved(
        &mut self,
        name: &Host,
        answer: Result<Addresses, NoAddress>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        self.resolving = self.resolving.saturating_sub(1);
        self.resolve_next(out);
        let Some(index) = self.bench.find(name) else { return };
        match answer {
            Ok(Addresses { list, ttl, position }) => {
                self.locate(index, position);
                let private = &self.settings.private;
                let mut allowed: Vec<IpAddr> =
                    list.into_iter().filter(|address| private.refuses(*address).is_none()).collect();
                allowed.truncate(ADDRESSES_MAX);
                let until = now.mono + ttl;
                let refused = allowed.is_empty();
                self.bench.host_mut(index).addresses =
                    if refused { Name::Refused(until) } else { Name::At(allowed.into(), until) };
                self.carry_on(index, now, out);
            }
            Err(NoAddress { no_such_name, .. }) => {
                let failure = if no_such_name { Failure::NoSuchName } else { Failure::Dns };
                for errand in std::mem::take(&mut self.bench.host_mut(index).errands) {
                    self.fail_errand(&errand, now, out);
                }
                self.host_failed(index, failure, None, now.mono, now, out);
                self.settle_in(index, now);
            }
        }
    }

    /// Tells a host that its rules will not be delivered, if it still waits for them.
    pub(super) fn fail_errand(&mut self, errand: &Errand, now: Now, out: &mut Vec<Action>) {
        if errand.asker.is_some() {
            return self.deliver_rules(errand, Err(Failure::RobotsUnreachable), out);
        }
        if let Some(home) = self.bench.find(&errand.origin.host)
            && self.bench.host(home).place() == Place::Elsewhere
        {
            self.rules_unreachable(home, &errand.origin, Failure::RobotsUnreachable, None, now, out);
        }
    }

    /// The block that a host falls under, by its name, a name above it, or one of its addresses.
    pub(super) fn block_of(&self, name: &Host, addresses: &Name) -> Option<&Block> {
        if self.blocks.is_empty() {
            return None;
        }
        let mut tail = name.as_str();
        loop {
            if let Some(host) = Host::parse(tail)
                && let Some(block) = self.blocks.get(&Block::Name(host))
            {
                return Some(block);
            }
            match tail.split_once('.') {
                Some((_, rest)) => tail = rest,
                None => break,
            }
        }
        let known: &[IpAddr] = if let Name::At(list, _) = addresses { list } else { &[] };
        // A host may be an address itself, which nobody has to look up.
        let own = name.ip();
        own.iter().chain(known).find_map(|ip| self.blocks.get(&Block::Address(ip.to_canonical())))
    }

    /// Gives the URLs that a host holds back to the store, so that many waiting hosts cost no memory.
    pub(super) fn put_back(&mut self, index: u32, out: &mut Vec<Action>) {
        let host = self.bench.host_mut(index);
        if host.head.is_empty() {
            return;
        }
        let due: Vec<Due> = std::mem::take(&mut host.head).into();
        host.due += due.len() as u64;
        out.push(Action::PutBack { host: host.name.clone(), due });
    }
}

/// The end of a URL that nobody was asked for.
pub(super) fn unasked(due: Due, outcome: Outcome, now: Now) -> Settled {
    Settled {
        url: due.url.into(),
        depth: due.depth,
        how: due.how,
        found_in: due.found_in,
        attempts: due.attempts,
        asked: false,
        at: now.wall,
        took: Default::default(),
        bytes: 0,
        outcome,
        capture: None,
        flags: PageFlags::default(),
        found: Vec::new(),
        left_out: LeftOut::default(),
        spent: None,
    }
}
