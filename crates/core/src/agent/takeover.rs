//! Partitions that come and go in a store that agents share. Nothing is copied: whoever has a partition in its lease raises its
//! epoch in the store, and goes on where the one before it was.
//!
//! Who holds a partition that should be elsewhere freezes it, waits until nothing of its hosts is under way, has the store make
//! all of it durable, and only then takes it out of its lease. Of a host that something was under way for when its holder
//! was fenced, a fetch may still go on: it is left alone for as long as one may take. Any other one is for a full delay.

use super::handover::QUIET_EVERY;
use super::lease::SOON;
use super::shared::SharedAction;
use super::site::Site;
use super::{Action, Agent, Stored, Ticket};
use crate::assign::partition_of;
use crate::frontier::Place;
use crate::limits::HANDOVER_PARTITIONS_MAX;
use crate::record::{Outcome, Record};
use crate::site::Partitions;
use crate::time::{Mono, Now};
use crate::url::Url;

/// Partitions on their way out.
#[derive(Debug)]
pub(super) struct Letting {
    partitions: Vec<u16>,
    /// When to look whether nothing of them is under way any more; nothing once the store was asked to let them go.
    pub(super) look_at: Option<Mono>,
}

impl Agent {
    /// Takes in which partitions the lease has. Those that it has not had before are taken over, unless a later beat may have let
    /// them go again.
    pub(super) fn learn_held(&mut self, is_last: bool, now: Now, out: &mut Vec<Action>) {
        let me = self.site.me();
        let dirty = self.partitions_on_the_bench();
        let Some(shared) = &mut self.site.shared else { return };
        let leased = shared.leases.get(me).map(|lease| lease.held.clone()).unwrap_or_default();
        let mut released = shared.gone.clone();
        released.subtract(&leased);
        if is_last {
            shared.gone.subtract(&released);
            let mut new = leased;
            for known in [&self.site.held, &shared.taking, &shared.gone, &dirty] {
                new.subtract(known);
            }
            shared.taking.add(&new);
            let new: Vec<u16> = new.iter().collect();
            for partitions in new.chunks(HANDOVER_PARTITIONS_MAX) {
                let (incarnation, partitions) = (shared.incarnation, partitions.to_vec());
                out.push(Action::Shared(SharedAction::TakeOver { incarnation, partitions }));
            }
        }
        let wants_more = is_last && !self.claims().is_empty();
        if let Some(shared) = self.site.shared.as_mut().filter(|_| wants_more) {
            shared.next_beat = shared.next_beat.min(now.mono + SOON);
        }
    }

    /// The partitions of hosts that are in memory and not held: what is left from before.
    pub(super) fn partitions_on_the_bench(&self) -> Partitions {
        if !self.site.shared.as_ref().is_some_and(|shared| shared.has_lost) {
            return Partitions::default();
        }
        let hosts = self.bench.hosts().map(|(_, host)| host.partition);
        hosts.filter(|partition| !self.site.holds(*partition)).collect()
    }

    pub(super) fn on_took_over(
        &mut self,
        incarnation: u64,
        partitions: &[u16],
        stored: Stored,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(shared) = &mut self.site.shared else { return };
        if incarnation != shared.incarnation {
            return;
        }
        for partition in partitions {
            if shared.taking.remove(*partition) {
                self.site.came.insert(*partition, now.mono);
                self.site.held.insert(*partition);
            }
        }
        self.site.thaw(partitions);
        self.learn_stored(stored);
        self.outgoing_is_rough();
        // Something of their hosts may be due, and something may be on its way to others.
        self.away.want();
        if let Some(shared) = &mut self.site.shared {
            shared.post.wants_a_look();
            let seeds = std::mem::take(&mut shared.seeds);
            if !seeds.is_empty() {
                self.on_seeds(seeds, out);
            }
        }
        self.begin_letting(now);
    }

    fn learn_stored(&mut self, stored: Stored) {
        self.over = stored.kept_out;
        self.hosts = stored.hosts;
        self.totals.known_urls = stored.known;
        self.queue = stored.queued as i64;
    }

    /// Begins to let go what should be elsewhere.
    pub(super) fn begin_letting(&mut self, now: Now) {
        let stops = self.stopping.is_some();
        let Some(shared) = &self.site.shared else { return };
        if shared.letting.is_some() || !shared.is_valid() || self.site.is_placed && !stops {
            return;
        }
        let me = self.site.me();
        let is_leaving = |partition: &u16| stops || self.site.heir(*partition).is_some_and(|heir| heir != me);
        let partitions: Vec<u16> =
            self.site.held.iter().filter(is_leaving).take(HANDOVER_PARTITIONS_MAX).collect();
        if partitions.is_empty() {
            self.site.is_placed = true;
            return;
        }
        self.site.freeze(&partitions);
        self.settle_in_of(&partitions.iter().copied().collect(), now);
        self.set_letting(Some(Letting { partitions, look_at: Some(now.mono) }));
    }

    /// Goes on with what leaves.
    pub(super) fn tend_letting(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stopping.is_some() {
            self.begin_letting(now);
        }
        let me = self.site.me();
        let Some(shared) = &mut self.site.shared else { return };
        let incarnation = shared.incarnation;
        let Some(letting) =
            shared.letting.as_mut().filter(|letting| letting.look_at.is_some_and(|at| now.mono >= at))
        else {
            return;
        };
        letting.look_at = Some(now.mono + QUIET_EVERY);
        let partitions = letting.partitions.clone();
        let stays = |site: &Site| partitions.iter().all(|partition| site.heir(*partition) == Some(me));
        if self.stopping.is_none() && stays(&self.site) {
            // Whoever was to have them is gone.
            self.set_letting(None);
            self.site.thaw(&partitions);
            self.settle_in_of(&partitions.into_iter().collect(), now);
            return self.away.want();
        }
        if self.clear_bench(&partitions.iter().copied().collect(), now, out) {
            self.set_letting(Some(Letting { partitions: partitions.clone(), look_at: None }));
            out.push(Action::Shared(SharedAction::LetGo { incarnation, partitions }));
        }
    }

    fn set_letting(&mut self, letting: Option<Letting>) {
        if let Some(shared) = &mut self.site.shared {
            shared.letting = letting;
        }
    }

    pub(super) fn on_let_go(&mut self, incarnation: u64, partitions: &[u16], stored: Stored, now: Now) {
        let Some(shared) = &mut self.site.shared else { return };
        if incarnation != shared.incarnation {
            return;
        }
        shared.gone.add(&partitions.iter().copied().collect());
        if let Some(letting) = &mut shared.letting {
            letting.partitions.retain(|partition| !partitions.contains(partition));
            if letting.partitions.is_empty() {
                shared.letting = None;
            }
        }
        // Others wait for them.
        shared.next_beat = shared.next_beat.min(now.mono + SOON);
        self.site.let_go(partitions);
        self.learn_stored(stored);
        self.outgoing_is_rough();
        self.begin_letting(now);
    }

    /// The store says that somebody else has raised the epoch of a partition. It may be one that was about to and whose lease has
    /// ended since: if it is still in ours, it is taken over again.
    pub(super) fn on_fenced(&mut self, partition: u16, now: Now, out: &mut Vec<Action>) {
        if let Some(shared) = &mut self.site.shared {
            shared.taking.remove(partition);
            if let Some(letting) = &mut shared.letting {
                letting.partitions.retain(|other| *other != partition);
                if letting.partitions.is_empty() {
                    shared.letting = None;
                }
            }
        }
        if self.site.holds(partition) {
            self.site.let_go(&[partition]);
            self.lose(&[partition].into_iter().collect(), now, out);
        }
    }

    /// What is in memory of these partitions does not count any more.
    pub(super) fn lose(&mut self, partitions: &Partitions, now: Now, out: &mut Vec<Action>) {
        for index in 0..self.bench.index_end() {
            if self.bench.get(index).is_some_and(|host| partitions.contains(host.partition)) {
                self.bench.host_mut(index).head.clear();
                if self.is_at_rest(index) {
                    self.settle_in(index, now);
                }
            }
        }
        if let Some(shared) = &mut self.site.shared {
            shared.has_lost = true;
        }
        self.forget_claims(|host| partitions.contains(partition_of(host)));
        self.outgoing_is_rough();
        self.sweep_lost(now, out);
    }

    /// Has hosts leave that are not ours any more, once nothing is under way for them.
    pub(super) fn sweep_lost(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.site.shared.as_ref().is_some_and(|shared| shared.has_lost) {
            return;
        }
        let lost = self.bench.hosts().filter(|(_, host)| !self.site.holds(host.partition));
        let lost: Vec<u32> = lost.map(|(index, _)| index).collect();
        let mut stay = false;
        for index in lost {
            let host = self.bench.host_mut(index);
            let is_done =
                matches!(host.place(), Place::Leaving | Place::Idle | Place::Taking | Place::Elsewhere);
            if !is_done || host.held > 0 {
                stay = true;
                continue;
            }
            let errands = std::mem::take(&mut host.errands);
            for errand in errands.iter().filter(|errand| errand.asker.is_some()) {
                self.fail_errand(errand, now, out);
            }
            self.unmark(index);
            if let Some(host) = self.bench.remove(index) {
                for rules in host.rules.into_iter().filter_map(|of| of.rules) {
                    self.shared.give_back(rules.robots);
                }
            }
        }
        if let Some(shared) = &mut self.site.shared {
            shared.has_lost = stay;
        }
    }

    /// A record was not written: whoever has its partition now does not know of it, and it does not count.
    pub(super) fn on_refused(&mut self, ticket: Ticket, record: &Record, now: Now, out: &mut Vec<Action>) {
        let Some(of) = self.unsettled.remove(&ticket) else { return };
        self.answer_call(ticket, false, out);
        if let Record::Settled(settled) = record {
            self.answered_unsettled -= u64::from(matches!(settled.outcome, Outcome::Answered { .. }));
        }
        if let Record::Seeds(found) = record
            && let Some(shared) = &mut self.site.shared
        {
            shared.seeds.extend(found.iter().filter_map(|found| Url::parse(&found.url).ok()));
        }
        match record {
            Record::Claimed { host, .. } => self.forget_claims(|other| other == host),
            // Then the other site has to say it again.
            Record::Moved { moved, .. } => {
                self.forget_claims(|other| moved.hosts.iter().any(|moved| moved.host == *other));
            }
            _ => {}
        }
        if let Some(index) = of {
            self.bench.host_mut(index).held -= 1;
            self.sweep_lost(now, out);
        }
    }
}
