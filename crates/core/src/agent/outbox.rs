//! Found URLs on their way to the agents that they belong to.
//!
//! The outbox is the journal: a URL is in it from the moment when the record that found it is durable until another agent has
//! written it down. In memory there is a queue for each agent, and where a queue has no room, or nobody holds the partition, only
//! the place from which on the journal is to be read again for it. A URL may so be delivered twice, and is then known; none is
//! ever left out.
//!
//! Where a crawl goes by cash, the store says of what this agent finds whether its holder is to be told: of what is new, and of
//! what was given much more than was told before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::site::{AGAIN, Reply};
use super::{Action, Agent, ToTell};
use crate::assign::partition_of;
use crate::cash::Total;
use crate::limits::{BATCH_URLS_MAX, BATCHES_MAX, OUTBOX_BYTES_MAX, UNSETTLED_MAX};
use crate::record::{Arrived, Found, Record};
use crate::settings::UrlOrder;
use crate::site::{AgentId, LinkedPage, Message, Token};
use crate::time::{Mono, Now};
use crate::url::identify;

/// About what a URL takes in a queue beyond its text.
const PARCEL_BYTES: usize = 64;
/// A batch that is not full goes this long after the one before at the earliest: each costs both agents a message, a record and
/// an answer, however little is in it.
pub(super) const GATHER: Duration = Duration::from_secs(1);

/// The wait between two parts of the journal that are read again: there is other work too.
const READ_EVERY: Duration = Duration::from_millis(10);

/// A URL on its way.
#[derive(Clone, Debug)]
struct Parcel {
    /// Of the record that found it.
    place: u64,
    via: Option<Arc<str>>,
    found: Found,
    /// What it was given, where the crawl goes by that.
    total: Option<Total>,
}

/// A batch that is not acknowledged.
#[derive(Debug)]
struct Sent {
    batch: u64,
    at: Mono,
    parcels: Vec<Parcel>,
}

/// What is on its way to one agent.
#[derive(Debug, Default)]
struct Route {
    queue: VecDeque<Parcel>,
    bytes: usize,
    sent: VecDeque<Sent>,
    /// From when on a batch may go that is not full.
    next: Mono,
    /// What records from this place on found for it is not in the queue.
    behind: Option<u64>,
}

impl Route {
    /// The first record of which something may not have been delivered.
    fn lowest(&self) -> Option<u64> {
        let parcels = self.sent.iter().flat_map(|sent| &sent.parcels).chain(&self.queue);
        parcels.map(|parcel| parcel.place).chain(self.behind).min()
    }

    /// Takes a URL in; false if there is no room.
    fn push(&mut self, parcel: Parcel) -> bool {
        let bytes = PARCEL_BYTES + parcel.found.url.len();
        let has_room = self.bytes + bytes <= OUTBOX_BYTES_MAX;
        if has_room {
            self.bytes += bytes;
            self.queue.push_back(parcel);
        }
        has_room
    }

    /// When there is something to send or to send again, if nothing else happens before.
    fn next_wake(&self) -> Option<Mono> {
        let again = self.sent.iter().map(|sent| sent.at + AGAIN).min();
        again.or_else(|| (!self.queue.is_empty()).then_some(self.next))
    }

    /// What goes now: a full batch, or one that nothing is on its way before and that has waited for more.
    fn next_batch(&mut self, now: Mono) -> Option<Vec<Parcel>> {
        let is_full = self.queue.len() >= BATCH_URLS_MAX;
        let has_waited = !self.queue.is_empty() && self.sent.is_empty() && now >= self.next;
        if self.sent.len() >= BATCHES_MAX || !(is_full || has_waited) {
            return None;
        }
        self.next = now + GATHER;
        let count = self.queue.len().min(BATCH_URLS_MAX);
        let parcels: Vec<Parcel> = self.queue.drain(..count).collect();
        self.bytes -= parcels.iter().map(|parcel| PARCEL_BYTES + parcel.found.url.len()).sum::<usize>();
        Some(parcels)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    routes: BTreeMap<AgentId, Route>,
    /// From where on the journal may hold what an earlier run has not delivered.
    pub(super) from: u64,
    reading: Option<Reading>,
    /// Something has changed that may let what waits go on.
    look: bool,
    batches: u64,
    /// The place of the last record, once it is known.
    pub(super) last: Option<u64>,
    /// The first record of those of which the store has yet to say what others are to be told.
    asked_from: Option<u64>,
}

/// The journal is being read again, part by part up to its end.
#[derive(Debug)]
struct Reading {
    /// For whom, and from where on each had missed something.
    of: BTreeMap<AgentId, u64>,
    /// Who has missed something all the same, and where.
    missed: BTreeMap<AgentId, u64>,
    /// Where and when to go on, unless the store was asked.
    next: Option<(u64, Mono)>,
}

impl Outbox {
    /// Begins a run: nothing is known of what the earlier ones have delivered.
    pub(super) fn start(&mut self, agents: impl Iterator<Item = AgentId>) {
        for id in agents {
            self.routes.entry(id).or_default().behind = Some(self.from);
        }
        self.look = true;
    }

    /// An agent is gone, and others have all that it held.
    pub(super) fn forget(&mut self, id: AgentId) {
        self.routes.remove(&id);
    }

    /// What waits may be able to go on.
    pub(super) fn wants_a_look(&mut self) {
        self.look = true;
    }

    /// A partition is with another agent than before: what is on its way to the first may have to go to the second.
    pub(super) fn moves(&mut self, before: AgentId, to: AgentId) {
        let lowest = self.routes.get(&before).and_then(Route::lowest);
        if let Some(lowest) = lowest {
            let route = self.routes.entry(to).or_default();
            route.behind = Some(route.behind.map_or(lowest, |behind| behind.min(lowest)));
            if let Some(reading) = &mut self.reading {
                // It may have been passed by.
                let missed = reading.missed.entry(to).or_insert(lowest);
                *missed = (*missed).min(lowest);
            }
        }
        self.look = true;
    }

    /// The first record of which something may not have been delivered, or the last one there is.
    pub(super) fn lowest(&self) -> u64 {
        let waiting = self.routes.values().filter_map(Route::lowest).chain(self.asked_from);
        waiting.chain(self.last).min().unwrap_or(self.from)
    }

    /// Whether nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.asked_from.is_none() && self.routes.values().all(|route| route.lowest().is_none())
    }

    /// The store has answered all that it was asked.
    pub(super) fn is_answered(&mut self) {
        self.asked_from = None;
    }

    /// What a record found for an agent is not on its way, and is to be read again.
    fn misses(&mut self, to: AgentId, place: u64) {
        let route = self.routes.entry(to).or_default();
        route.behind = Some(route.behind.map_or(place, |behind| behind.min(place)));
        if let Some(reading) = &mut self.reading {
            let missed = reading.missed.entry(to).or_insert(place);
            *missed = (*missed).min(place);
        }
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        let reading = self.reading.as_ref().and_then(|reading| reading.next).map(|(_, at)| at);
        self.routes.values().filter_map(Route::next_wake).chain(reading).min()
    }
}

impl Agent {
    /// What a durable record found and belongs to others goes on its way.
    pub(super) fn route_found(&mut self, place: u64, record: &Record) {
        self.site.outbox.last = Some(place);
        if self.site.is_alone() || !is_outgoing(record) {
            return;
        }
        let totals = match record {
            Record::Arrived(arrived) => &arrived.totals[..],
            _ if self.goes_by_cash() => {
                if !record.found().is_empty() {
                    self.site.outbox.asked_from.get_or_insert(place);
                }
                return;
            }
            _ => &[],
        };
        let mut via = None;
        for (index, found) in record.found().iter().enumerate() {
            let Some(to) = self.belongs_to(found) else { continue };
            let me = self.site.me();
            let route = self.site.outbox.routes.entry(to).or_default();
            if route.behind.is_some() {
                continue;
            }
            let page = page_of(record, index, &mut via);
            let total = totals.get(index).copied();
            if to == me || !route.push(Parcel { place, via: page, found: found.clone(), total }) {
                route.behind = Some(place);
            }
        }
    }

    /// The store has said what others are to be told.
    pub(super) fn route_told(&mut self, to_tell: Vec<ToTell>) {
        let me = self.site.me();
        let mut last: Option<Arc<str>> = None;
        for ToTell { place, found, via, total, again } in to_tell {
            let to = self.belongs_to(&found);
            // It may have become ours while the store answered.
            self.site.outbox.look |= to.is_none();
            let to = to.unwrap_or(me);
            let route = self.site.outbox.routes.entry(to).or_default();
            if !again && route.behind.is_some_and(|behind| behind <= place) {
                continue;
            }
            let via = via.map(|page| same_or_new(&page, &mut last));
            if to == me || !route.push(Parcel { place, via, found, total: Some(total) }) {
                self.site.outbox.misses(to, place);
            }
        }
    }

    /// Whether the crawl goes by cash.
    pub(super) fn goes_by_cash(&self) -> bool {
        self.settings.order == UrlOrder::Cash
    }

    /// Whom a URL belongs to, if not to this agent; to this one if it waits for its token, or until there are any.
    fn belongs_to(&self, found: &Found) -> Option<AgentId> {
        let (host, _) = identify(&found.url)?;
        let partition = partition_of(&host);
        let Token { holder, epoch } = self.site.token(partition);
        let holder = if epoch == 0 { self.site.me() } else { holder };
        (!self.site.may_ask(partition)).then_some(holder)
    }

    /// Sends what can be sent, and reads again what had no room.
    pub(super) fn tend_outbox(&mut self, now: Now, out: &mut Vec<Action>) {
        let ids: Vec<AgentId> = self.site.outbox.routes.keys().copied().collect();
        let me = self.site.me();
        let mut behind = Vec::new();
        for id in ids {
            let is_well = self.site.is_well(id, now.mono);
            if is_well {
                self.deliver(id, now, out);
            } else if let Some(route) = self.site.outbox.routes.get_mut(&id) {
                // It is looked at again when it is heard of.
                route.sent.iter_mut().for_each(|sent| sent.at = now.mono);
                route.next = now.mono + GATHER;
            }
            let outbox = &self.site.outbox;
            let Some(route) = outbox.routes.get(&id) else { continue };
            let may_go_on = (is_well && route.bytes < OUTBOX_BYTES_MAX / 2) || (id == me && outbox.look);
            if let (Some(place), true) = (route.behind, may_go_on) {
                behind.push((place, id));
            }
        }
        let outbox = &mut self.site.outbox;
        let Some(until) = outbox.last else { return };
        match &mut outbox.reading {
            Some(reading) => {
                if let Some((from, _)) = reading.next.take_if(|(_, at)| now.mono >= *at) {
                    out.push(Action::Reread { from, until });
                }
            }
            None => {
                outbox.look = false;
                if let Some((from, _)) = behind.iter().min().copied() {
                    let of = behind.into_iter().map(|(place, id)| (id, place)).collect();
                    outbox.reading = Some(Reading { of, missed: BTreeMap::new(), next: None });
                    out.push(Action::Reread { from, until });
                }
            }
        }
    }

    /// Whether another agent does not keep up with what is found for it: then pages wait, which would only lead to more. Nobody
    /// waits for one that is silent; and robots.txt and what others deliver do not wait, so that two that wait for each other
    /// go on.
    pub(super) fn is_backed_up(&self, now: Now) -> bool {
        if let Some(shared) = &self.site.shared {
            return shared.post.is_full();
        }
        let mut routes = self.site.outbox.routes.iter();
        routes.any(|(id, route)| route.bytes > OUTBOX_BYTES_MAX / 2 && self.site.is_well(*id, now.mono))
    }

    fn deliver(&mut self, to: AgentId, now: Now, out: &mut Vec<Action>) {
        let run = self.runs;
        let outbox = &mut self.site.outbox;
        let Some(route) = outbox.routes.get_mut(&to) else { return };
        let mut messages = Vec::new();
        for sent in route.sent.iter_mut().filter(|sent| now.mono >= sent.at + AGAIN) {
            sent.at = now.mono;
            messages.push(message((run, sent.batch), &sent.parcels));
        }
        while let Some(parcels) = route.next_batch(now.mono) {
            outbox.batches += 1;
            let batch = outbox.batches;
            messages.push(message((run, batch), &parcels));
            route.sent.push_back(Sent { batch, at: now.mono, parcels });
        }
        for message in messages {
            self.send(to, message, out);
        }
    }

    /// Records were read again, from where somebody had missed something on.
    pub(super) fn on_reread(
        &mut self,
        records: Vec<(u64, Box<Record>)>,
        next: u64,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(Reading { of, mut missed, .. }) = self.site.outbox.reading.take() else { return };
        let me = self.site.me();
        let misses = |agent: &Agent, id: AgentId, place: u64| {
            let route = agent.site.outbox.routes.get(&id);
            of.contains_key(&id) && route.is_some_and(|route| route.behind.is_some_and(|from| from <= place))
        };
        let by_cash = self.goes_by_cash();
        for (place, record) in records.into_iter().filter(|(_, record)| is_outgoing(record)) {
            let mut via = None;
            let mut is_ours = false;
            for (index, found) in record.found().iter().enumerate() {
                let Some(to) = self.belongs_to(found) else {
                    is_ours |= misses(self, me, place);
                    continue;
                };
                if to == me {
                    missed.entry(me).or_insert(place);
                    continue;
                }
                // What waited for a token of ours may have become another's.
                if missed.contains_key(&to) || !(misses(self, to, place) || misses(self, me, place)) {
                    continue;
                }
                if by_cash {
                    // The store says what it was given.
                    is_ours = true;
                    continue;
                }
                let page = page_of(&record, index, &mut via);
                let route = self.site.outbox.routes.entry(to).or_default();
                if !route.push(Parcel { place, via: page, found: found.clone(), total: None }) {
                    missed.insert(to, place);
                }
            }
            if is_ours {
                self.admitting += 1;
                if by_cash {
                    self.site.outbox.asked_from.get_or_insert(place);
                }
                out.push(Action::Admit { place, record, open: self.site.open.clone(), again: by_cash });
            }
        }
        let is_end = self.site.outbox.last.is_some_and(|last| next > last);
        // Who waits for tokens of ours may find others on the way; who has no room will not.
        let is_in_vain = of.keys().all(|id| *id != me && missed.contains_key(id));
        if !is_end && !is_in_vain {
            let next = Some((next, now.mono + READ_EVERY));
            self.site.outbox.reading = Some(Reading { of, missed, next });
            return;
        }
        let ids: BTreeSet<AgentId> = of.keys().chain(missed.keys()).copied().collect();
        for id in ids {
            let route = self.site.outbox.routes.entry(id).or_default();
            // What is behind for another reason than what was read again, or since, is still behind.
            let other = route.behind.filter(|place| of.get(&id) != Some(place));
            route.behind = missed.get(&id).copied().into_iter().chain(other).min();
            self.site.outbox.look |= other.is_some() && of.contains_key(&id);
        }
    }

    /// URLs that belong here.
    pub(super) fn on_deliver(
        &mut self,
        from: AgentId,
        batch: (u64, u64),
        pages: Vec<LinkedPage>,
        out: &mut Vec<Action>,
    ) {
        let is_it =
            |reply: &Reply| matches!(reply, Reply::Delivered(id, other) if (*id, *other) == (from, batch));
        if self.unsettled.len() >= UNSETTLED_MAX || self.site.replies.values().any(is_it) {
            return;
        }
        let counts = pages.iter().map(|page| (page.via.clone(), page.found.len() as u32)).collect();
        let mut totals = Vec::new();
        for page in pages.iter().filter(|_| self.goes_by_cash()) {
            let nothing = Total { giver: from, units: 0 };
            totals.extend((0..page.found.len()).map(|at| page.totals.get(at).copied().unwrap_or(nothing)));
        }
        let found = pages.into_iter().flat_map(|page| page.found).collect();
        let record = Record::Arrived(Arrived { from, site: None, found, pages: counts, totals });
        let ticket = self.write(record, None, None, out);
        self.site.replies.insert(ticket, Reply::Delivered(from, batch));
    }

    /// They are durable elsewhere.
    pub(super) fn on_delivered(&mut self, from: AgentId, (run, batch): (u64, u64)) {
        if run != self.runs {
            return;
        }
        if let Some(route) = self.site.outbox.routes.get_mut(&from) {
            route.sent.retain(|sent| sent.batch != batch);
        }
    }
}

/// Whether URLs of a record may belong to others. What was moved here was known there.
fn is_outgoing(record: &Record) -> bool {
    !matches!(record, Record::Moved { .. })
}

/// The page that a URL of a record was found on; those of a page are neighbours.
fn page_of(record: &Record, index: usize, last: &mut Option<Arc<str>>) -> Option<Arc<str>> {
    Some(same_or_new(record.page(index)?, last))
}

fn same_or_new(page: &str, last: &mut Option<Arc<str>>) -> Arc<str> {
    match last {
        Some(known) if **known == *page => Arc::clone(known),
        _ => Arc::clone(last.insert(Arc::from(page))),
    }
}

fn message(batch: (u64, u64), parcels: &[Parcel]) -> Message {
    let mut pages: Vec<LinkedPage> = Vec::new();
    for Parcel { via, found, total, .. } in parcels {
        match pages.last_mut().filter(|page| page.via.as_deref() == via.as_deref()) {
            Some(page) => {
                page.found.push(found.clone());
                page.totals.extend(total);
            }
            None => {
                let via = via.as_deref().map(str::to_owned);
                let totals = total.iter().copied().collect();
                pages.push(LinkedPage { via, found: vec![found.clone()], totals });
            }
        }
    }
    Message::Deliver { batch, pages }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::How;

    /// Milliseconds, URLs that come, and what goes then.
    type Step = (u64, usize, &'static [usize]);

    /// What goes when so many URLs come at these times, each answered at once or not at all.
    #[test]
    fn batches_wait_for_more() {
        const FULL: usize = BATCH_URLS_MAX;
        let cases: [(bool, &[Step]); 3] = [
            (
                true,
                &[
                    (0, 1, &[1]),
                    (10, 2, &[]),
                    (990, 3, &[]),
                    (1_000, 0, &[5]),
                    (1_900, 0, &[]),
                    (2_500, 1, &[1]),
                ],
            ),
            (true, &[(0, 1, &[1]), (10, FULL + 7, &[FULL]), (1_009, 0, &[]), (1_010, 0, &[7])]),
            (
                false,
                &[
                    (0, 1, &[1]),
                    (1_100, 9, &[]),
                    (1_200, 9 * FULL, &[FULL; BATCHES_MAX - 1]),
                    (9_000, 0, &[]),
                ],
            ),
        ];
        for (is_answered, steps) in cases {
            let mut route = Route::default();
            for (ms, came, goes) in steps {
                let now = Mono(1_000_000 + ms * 1_000);
                for _ in 0..*came {
                    let found =
                        Found { url: "http://a.example/".into(), depth: 1, how: How::Link, redirects: 0 };
                    assert!(route.push(Parcel { place: 1, via: None, found, total: None }));
                }
                let mut gone = Vec::new();
                while let Some(parcels) = route.next_batch(now) {
                    gone.push(parcels.len());
                    if !is_answered {
                        route.sent.push_back(Sent { batch: 1, at: now, parcels });
                    }
                }
                assert_eq!(gone, *goes, "after {ms} ms of {steps:?}");
                let wakes = route.next_wake().is_none_or(|at| at > now || !is_answered);
                assert!(wakes, "it would be looked at for ever after {ms} ms");
            }
        }
    }
}
