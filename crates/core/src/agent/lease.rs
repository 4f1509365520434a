//! Keeping a lease, and watching those of others.
//!
//! An agent renews its lease every second, and it is valid for five from before the renewal was sent. Only while it is a request
//! starts, and what is in flight at its end is broken off. Who sees that a lease has not changed for longer than it lasts, by
//! its own clock and a margin for both, ends it with one conditional write; its partitions are free then for whoever comes next
//! on the ring. So nobody asks a host by another's leave after that leave has ended, whatever each believes about who is alive.
//!
//! A fenced agent that wakes up starts no request, because its lease has run out by its own clock; it hears that its
//! renewal is refused, forgets everything, and joins again as another incarnation.

use std::time::Duration;

use super::shared::{BEAT, BEAT_TIME_MAX, LEASE, MARGIN_PART, Shared, SharedAction};
use super::{Action, Agent, StopReason};
use crate::site::{AgentId, Beat, Lease, Leases, Members, Partitions, Tokens};
use crate::time::{Mono, Now, Wall};

/// When a beat is tried again that was refused, or is followed by another because something has changed.
pub(super) const SOON: Duration = Duration::from_millis(50);
/// Beats that are remembered although they have no answer.
const SENT_MAX: usize = 8;

impl Agent {
    /// The calendar that all times in the store are of: that of this machine, unless agents share the store.
    pub fn calendar(&self, now: Now) -> Wall {
        self.site.shared.as_ref().map_or(now.wall, |shared| shared.wall(now))
    }

    /// The time, with the calendar of the store.
    pub(super) fn begin_step(&mut self, now: Now) -> Now {
        let wall = self.calendar(now);
        if let Some(shared) = &mut self.site.shared {
            shared.now = now.mono;
        }
        Now { wall, ..now }
    }

    /// Whether the lease, if there has to be one, is valid.
    pub(super) fn has_lease(&self) -> bool {
        self.site.shared.as_ref().is_none_or(|shared| shared.is_valid())
    }

    /// When the lease, if there has to be one, ends: nobody may be asked after that.
    pub fn lease_until(&self) -> Mono {
        self.site.shared.as_ref().map_or(Mono::NEVER, |shared| shared.valid_until)
    }

    pub(super) fn next_lease_wake(&self) -> Option<Mono> {
        let shared = self.site.shared.as_ref()?;
        let end = (!self.flights.is_empty() && !shared.is_broken_off).then_some(shared.valid_until);
        let letting = shared.letting.as_ref().and_then(|letting| letting.look_at);
        let beat = (!shared.has_left).then_some(shared.next_beat);
        let turns = [self.site.keeper.next_wake(), self.site.turns.next_wake()];
        [beat, end, letting, shared.post.next_wake()].into_iter().chain(turns).flatten().min()
    }

    /// What is to be done from time to time.
    pub(super) fn tend_lease(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(shared) = &mut self.site.shared else { return };
        if !shared.is_valid() && !shared.is_broken_off {
            shared.is_broken_off = true;
            out.extend(self.flights.keys().map(|fetch| Action::Abandon(*fetch)));
        }
        if now.mono >= shared.next_beat && !shared.has_left {
            self.sweep_lost(now, out);
            self.beat_lease(now, out);
            self.tell_full(out);
            self.tend_turns(now);
            self.tend_probations(now, out);
            if self.undecided > 0 && self.admitting == 0 {
                self.admitting += 1;
                out.push(Action::Decide);
            }
        }
        self.tend_letting(now, out);
        self.tend_post(now, out);
        self.exchange_turns(now, out);
    }

    /// Others are to hear of something through the store.
    pub(super) fn beat_soon(&mut self, now: Now) {
        if let Some(shared) = &mut self.site.shared {
            shared.next_beat = shared.next_beat.min(now.mono + SOON);
        }
    }

    fn beat_lease(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(greeting) = self.introduce() else { return };
        let wanted = self.wanted();
        let Some(shared) = &mut self.site.shared else { return };
        if let Some((_, sent)) = shared.sent.back().filter(|(_, sent)| now.mono < *sent + BEAT_TIME_MAX) {
            // What it would be given by the answer must not be let go by another beat.
            shared.next_beat = *sent + BEAT_TIME_MAX;
            return;
        }
        shared.number += 1;
        shared.sent.push_back((shared.number, now.mono));
        if shared.sent.len() > SENT_MAX {
            shared.sent.pop_front();
        }
        shared.next_beat = now.mono + BEAT;
        let silent = shared.silent(now.mono);
        let (stops, number) = (self.stopping.is_some(), shared.number);
        let has_nothing = shared.taking.is_empty() && shared.gone.is_empty() && self.site.held.is_empty();
        let beat = Beat {
            me: greeting.me,
            incarnation: shared.incarnation,
            replaces: shared.replaces,
            number,
            member: greeting.member,
            // Who was away for a while does not move it on: others have, and it does not know how far.
            calendar: if shared.incarnation == 0 || shared.is_valid() { now.wall } else { Wall(0) },
            terms: greeting.terms,
            wishes: self.site.wishes.clone(),
            holds: wanted,
            fences: silent,
            leaves: stops && has_nothing && self.flights.is_empty() && self.unsettled.is_empty(),
        };
        out.push(Action::Shared(SharedAction::Beat(Box::new(beat))));
    }

    /// The partitions that it holds, and those that it should and nobody does.
    fn wanted(&self) -> Partitions {
        let mut wanted = self.site.held.clone();
        let Some(shared) = &self.site.shared else { return wanted };
        wanted.add(&shared.taking);
        wanted.add(&self.claims());
        wanted.subtract(&shared.gone);
        wanted
    }

    /// The partitions that nobody holds and this agent should.
    pub(super) fn claims(&self) -> Partitions {
        let Some(shared) = &self.site.shared else { return Partitions::default() };
        // Whoever has just come looks around first: perhaps others have, too.
        let is_settled = shared.read_at.is_some() && shared.now.since(shared.joined) >= BEAT;
        if !is_settled || self.stopping.is_some() {
            return Partitions::default();
        }
        let (me, free) = (self.site.me(), shared.leases.free());
        let dirty = self.partitions_on_the_bench();
        let is_mine = |partition: &u16| self.site.heir(*partition) == Some(me) && !dirty.contains(*partition);
        free.iter().filter(is_mine).collect()
    }

    /// The table of leases has taken a beat in, or refused it.
    pub(super) fn on_leased(
        &mut self,
        number: u64,
        incarnation: Option<u64>,
        leases: Leases,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let me = self.site.me();
        let Some(shared) = &mut self.site.shared else { return };
        let Some(at) = shared.sent.iter().position(|(sent, _)| *sent == number) else { return };
        let (_, sent) = shared.sent[at];
        shared.sent.drain(..=at);
        shared.next_beat = shared.next_beat.min(sent + BEAT).max(now.mono);
        let Some(incarnation) = incarnation else {
            shared.replaces = leases.incarnation_of(me);
            shared.next_beat = now.mono + SOON;
            if shared.incarnation == 0 && self.is_told_otherwise(&leases, now) {
                return;
            }
            let Some(shared) = &mut self.site.shared else { return };
            // Otherwise a later one has overtaken it.
            let is_fenced = shared.incarnation > 0 && shared.incarnation != shared.replaces;
            if is_fenced && !shared.has_left {
                if shared.replaces > shared.incarnation {
                    // Somebody has copied its directory, or moved it while it works. Both would drive each other out for ever.
                    self.stop(StopReason::Replaced, now);
                }
                self.fenced(now, out);
            }
            return;
        };
        let is_new = shared.incarnation == 0;
        if is_new {
            (shared.incarnation, shared.joined) = (incarnation, now.mono);
            self.runs = incarnation;
        } else if shared.incarnation != incarnation {
            return;
        }
        if leases.get(me).is_none() {
            shared.has_left = true;
            shared.valid_until = now.mono;
            return;
        }
        shared.set_calendar(leases.calendar, now);
        let wishes = leases.wishes.clone();
        shared.valid_until = shared.valid_until.max(sent + LEASE);
        shared.is_broken_off = now.mono >= shared.valid_until;
        shared.watch(&leases, me, now.mono);
        let is_last = shared.sent.is_empty();
        if is_new {
            self.start_leased_keeper();
        }
        self.on_wishes(&wishes, now, out);
        self.note_kept_wishes(&wishes, now);
        if self.learn_leases(leases, now) {
            self.ask_again();
        }
        self.learn_leased_keepers(now, out);
        self.learn_held(is_last, now, out);
        self.begin_letting(now);
    }

    /// Whether it may not join because those who are there were told otherwise. If one of them is alive, it ends; those that are
    /// not are fenced when they have been silent for long enough.
    fn is_told_otherwise(&mut self, leases: &Leases, now: Now) -> bool {
        let (me, Some(ours)) = (self.site.me(), self.introduce().map(|greeting| greeting.terms)) else {
            return false;
        };
        let Some(theirs) = leases.terms.filter(|theirs| *theirs != ours) else { return false };
        let Some(shared) = &mut self.site.shared else { return false };
        let before = std::mem::take(&mut shared.watched);
        let is_alive = |(id, lease): &(AgentId, &Lease)| {
            before.get(id).is_some_and(|seen| (seen.0, seen.1) != (lease.incarnation, lease.number))
        };
        let alive = leases.iter().filter(|(id, _)| *id != me).find(is_alive);
        let alive = alive.map(|(id, lease)| (id, lease.member.name.clone()));
        shared.watched = before;
        shared.watch(leases, me, now.mono);
        (shared.read_at, shared.next_beat) = (Some(now.mono), now.mono + BEAT);
        if let Some((id, name)) = alive {
            shared.has_left = true;
            self.on_differs(id, &name, &theirs, now);
        }
        true
    }

    /// Takes in who is there, and who holds what. Says whether that has changed.
    fn learn_leases(&mut self, leases: Leases, now: Now) -> bool {
        let Some(shared) = &mut self.site.shared else { return false };
        shared.read_at = Some(now.mono);
        let same = leases
            .iter()
            .map(|(id, lease)| (id, &lease.held))
            .eq(shared.leases.iter().map(|(id, lease)| (id, &lease.held)));
        shared.leases = leases;
        let members = Members::leased(&shared.leases);
        if members.shares() != self.site.members.shares() {
            self.site.ring = self.site.ring.with(members.shares());
            self.site.is_placed = false;
        }
        self.site.members = members;
        if !same {
            self.site.tokens = Tokens::leased(&shared.leases);
            shared.post.wants_a_look();
        }
        !same
    }

    /// Its lease has ended, and others may have all that it held.
    fn fenced(&mut self, now: Now, out: &mut Vec<Action>) {
        let stops = self.stopping.is_some();
        let Some(shared) = &mut self.site.shared else { return };
        shared.has_left = stops;
        shared.incarnation = 0;
        shared.valid_until = now.mono;
        shared.sent.clear();
        shared.watched.clear();
        shared.read_at = None;
        (shared.taking, shared.gone, shared.letting) = (Partitions::default(), Partitions::default(), None);
        shared.post = Default::default();
        if !std::mem::replace(&mut shared.is_broken_off, true) {
            out.extend(self.flights.keys().map(|fetch| Action::Abandon(*fetch)));
        }
        let held = self.site.lose_all();
        (self.admitting, self.undecided, self.away.asked) = (0, 0, false);
        self.forget_count();
        out.push(Action::Shared(SharedAction::Forget));
        self.end_leased_keeper();
        self.lose(&held, now, out);
    }
}

impl Shared {
    /// Notes who was heard of.
    fn watch(&mut self, leases: &Leases, me: AgentId, now: Mono) {
        // Who could not look for a while does not know whether others could be heard meanwhile.
        let is_interrupted = self.read_at.is_none_or(|read| now.since(read) > BEAT_TIME_MAX);
        let before = std::mem::take(&mut self.watched);
        for (id, lease) in leases.iter().filter(|(id, _)| *id != me) {
            let seen = before
                .get(&id)
                .filter(|seen| !is_interrupted && (seen.0, seen.1) == (lease.incarnation, lease.number));
            let since = seen.map_or(now, |seen| seen.2);
            self.watched.insert(id, (lease.incarnation, lease.number, since));
        }
    }

    /// Those whose leases have run out.
    fn silent(&self, now: Mono) -> Vec<(AgentId, u64, u64)> {
        if self.incarnation > 0 && !self.is_valid() {
            return Vec::new();
        }
        let is_silent = |since: Mono| now.since(since) > LEASE + LEASE / MARGIN_PART;
        let silent = self.watched.iter().filter(|(_, (_, _, since))| is_silent(*since));
        silent.map(|(id, (incarnation, number, _))| (*id, *incarnation, *number)).collect()
    }
}
