//! Handing partitions over to whom they should be with.
//!
//! The holder freezes them, waits until nothing of their hosts is under way, and has the other make durable, part by part, all
//! that it knows. Then it gives the tokens up, durably, and only then passes them on. Whatever goes wrong before that, it goes on
//! as their holder, and what the other has got by then is a part of what it gets the next time. What an agent knows of partitions
//! whose tokens were made anew elsewhere goes to their holder the same way.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::site::{AGAIN, Reply, Site};
use super::{Action, Agent};
use crate::assign::partition_of;
use crate::frontier::Place;
use crate::limits::{HANDOVER_PARTITIONS_MAX, UNSETTLED_MAX};
use crate::record::Record;
use crate::site::{AgentId, Message, Moved, Partitions, Token};
use crate::time::{Mono, Now};

/// A handover to an agent that is silent for so long is given up.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// What one agent may pass on at the same time.
const ARRIVING_MAX: usize = 4;
/// How often it is looked whether nothing is under way any more.
pub(super) const QUIET_EVERY: Duration = Duration::from_millis(20);

/// Where a store goes on with passing on what it knows of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(pub Vec<u8>);

/// What leaves for one agent.
#[derive(Debug)]
pub(super) struct Handover {
    id: (u64, u64),
    partitions: Vec<u16>,
    stage: Stage,
    /// The place of the last record before they were frozen.
    since: u64,
    /// The part that is sent next, or was.
    part: u32,
    /// The last sign that it goes on.
    alive: Mono,
}

impl Handover {
    /// Whether a partition is among those that leave.
    pub(super) fn is_of(&self, partition: u16) -> bool {
        self.partitions.contains(&partition)
    }
}

#[derive(Debug)]
enum Stage {
    /// Until then something of the hosts is under way.
    Freezing { look_at: Mono },
    /// The store was asked for the next part.
    Reading,
    /// A part was sent.
    Sending { message: Box<Message>, sent: Mono, next: Option<Cursor> },
    /// The record that gives the tokens up is on its way to the disk.
    Releasing,
}

/// What comes from one agent.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    /// The next part to be written down.
    next: u32,
    /// Parts before this one are durable.
    durable: u32,
}

impl Site {
    /// Another agent begins to pass something on. Few such things are under way at once: the oldest is given up, and begins anew.
    fn begin_arriving(&mut self, key: (AgentId, (u64, u64))) {
        let of_it = (key.0, (0, 0))..=(key.0, (u64::MAX, u64::MAX));
        let others: Vec<_> =
            self.arriving.range(of_it).map(|(key, _)| *key).filter(|other| *other != key).collect();
        if others.len() >= ARRIVING_MAX {
            self.arriving.remove(&others[0]);
        }
        self.arriving.insert(key, Arriving::default());
    }
}

impl Agent {
    /// Begins to hand over what should be elsewhere, as far as somebody is there to take it.
    pub(super) fn begin_handovers(&mut self, now: Now) {
        let mut leaving = self.site.misplaced();
        self.site.is_placed = leaving.is_empty();
        for (to, partitions) in &mut leaving {
            let may_go = |partition: &u16| {
                // Who gets one that rests would not know of it.
                !self.site.resting.contains_key(partition) && self.site.may_go_to(*partition, *to)
            };
            partitions.retain(may_go);
        }
        for (holder, partitions) in self.site.owed() {
            self.site.is_placed = false;
            leaving.entry(holder).or_default().extend(partitions);
        }
        for (to, mut partitions) in leaving {
            let is_busy = self.site.handovers.contains_key(&to) || !self.site.is_well(to, now.mono);
            if is_busy || partitions.is_empty() {
                continue;
            }
            partitions.truncate(HANDOVER_PARTITIONS_MAX);
            self.site.freeze(&partitions);
            self.site.handovers_begun += 1;
            let id = (self.runs, self.site.handovers_begun);
            self.settle_in_of(&partitions.iter().copied().collect(), now);
            let stage = Stage::Freezing { look_at: now.mono };
            let since = self.site.outbox.last.unwrap_or(0);
            let handover = Handover { id, partitions, stage, since, part: 0, alive: now.mono };
            self.site.handovers.insert(to, handover);
        }
    }

    /// Puts every host of these partitions that is at rest where it belongs now. One that leaves does not wait for an address
    /// any more.
    pub(super) fn settle_in_of(&mut self, partitions: &Partitions, now: Now) {
        for index in 0..self.bench.index_end() {
            let host = self.bench.get(index).filter(|host| partitions.contains(host.partition));
            let Some((place, partition)) = host.map(|host| (host.place(), host.partition)) else { continue };
            if let Place::AtGate(address) = place
                && !self.site.may_ask(partition)
            {
                self.gates.leave(index, address);
                self.settle_in(index, now);
            } else if self.is_at_rest(index) {
                self.settle_in(index, now);
            }
        }
    }

    /// What is in memory of hosts that were another's until now is out of date: the store knows more.
    pub(super) fn forget_hosts_of(&mut self, partitions: &Partitions) {
        for index in 0..self.bench.index_end() {
            let is_old = self.bench.get(index).is_some_and(|host| {
                let is_idle = matches!(host.place(), Place::Leaving | Place::Idle);
                partitions.contains(host.partition) && is_idle && host.held == 0 && host.head.is_empty()
            });
            if is_old && let Some(host) = self.bench.remove(index) {
                for rules in host.rules.into_iter().filter_map(|of| of.rules) {
                    self.shared.give_back(rules.robots);
                }
            }
        }
    }

    /// Tokens were made anew elsewhere while this agent was away: it asks nothing more of their hosts.
    pub(super) fn give_back(&mut self, lost: Vec<(u16, Token)>, now: Now, out: &mut Vec<Action>) {
        let partitions: Vec<u16> = lost.iter().map(|(partition, _)| *partition).collect();
        self.site.freeze(&partitions);
        self.settle_in_of(&partitions.into_iter().collect(), now);
        self.write(Record::Tokens(lost), None, None, out);
    }

    pub(super) fn next_handover_wake(&self) -> Option<Mono> {
        let wakes = self.site.handovers.values().filter_map(|handover| match &handover.stage {
            Stage::Freezing { look_at } => Some(*look_at),
            Stage::Sending { sent, .. } => Some(*sent + AGAIN),
            Stage::Reading | Stage::Releasing => None,
        });
        wakes.min()
    }

    /// Goes on with what leaves.
    pub(super) fn tend_handovers(&mut self, now: Now, out: &mut Vec<Action>) {
        let ids: Vec<AgentId> = self.site.handovers.keys().copied().collect();
        for to in ids {
            if self.is_in_vain(to, now) {
                self.give_up_handover(to, now);
                continue;
            }
            let Some(handover) = self.site.handovers.get_mut(&to) else { continue };
            match &mut handover.stage {
                Stage::Freezing { look_at } if now.mono >= *look_at => {
                    *look_at = now.mono + QUIET_EVERY;
                    let partitions = handover.partitions.clone();
                    // What has come is to go with the rest.
                    if !self.is_still_coming(&partitions)
                        && self.clear_bench(&partitions.iter().copied().collect(), now, out)
                    {
                        self.export(to, None, out);
                    }
                }
                Stage::Sending { message, sent, .. } if now.mono >= *sent + AGAIN => {
                    *sent = now.mono;
                    let message = (**message).clone();
                    self.send(to, message, out);
                }
                _ => {}
            }
        }
    }

    /// Whether a handover will not come to its end: nobody is there to take it, or it should be with somebody else by now.
    fn is_in_vain(&self, to: AgentId, now: Now) -> bool {
        let Some(handover) = self.site.handovers.get(&to) else { return false };
        let is_wanted = |partition: &u16| {
            self.site.heir(*partition) == Some(to) || self.site.token(*partition).holder == to
        };
        match handover.stage {
            // It is out of our hands.
            Stage::Releasing => false,
            _ => {
                now.mono.since(handover.alive) >= SILENCE_MAX && !self.site.is_well(to, now.mono)
                    || self.site.is_gone(to)
                    || !handover.partitions.iter().all(is_wanted)
            }
        }
    }

    fn give_up_handover(&mut self, to: AgentId, now: Now) {
        let Some(handover) = self.site.handovers.remove(&to) else { return };
        self.site.thaw(&handover.partitions);
        self.settle_in_of(&handover.partitions.into_iter().collect(), now);
        self.away.want();
        self.site.outbox.wants_a_look();
    }

    /// Has all hosts of these partitions leave the workbench; false as long as something is under way for one of them.
    pub(super) fn clear_bench(&mut self, partitions: &Partitions, now: Now, out: &mut Vec<Action>) -> bool {
        let of_others: Vec<u32> = self
            .bench
            .hosts()
            .filter(|(_, host)| partitions.contains(host.partition))
            .filter(|(_, host)| host.errands.iter().any(|errand| errand.asker.is_some()))
            .map(|(index, _)| index)
            .collect();
        for index in of_others {
            for errand in std::mem::take(&mut self.bench.host_mut(index).errands) {
                self.fail_errand(&errand, now, out);
            }
        }
        let mut leaving = Vec::new();
        for (index, host) in self.bench.hosts().filter(|(_, host)| partitions.contains(host.partition)) {
            let waits = host.errands.iter().any(|errand| now.mono < errand.until);
            if !matches!(host.place(), Place::Leaving | Place::Idle) || host.held > 0 || waits {
                return false;
            }
            leaving.push(index);
        }
        for index in leaving {
            self.leave(index, now, out);
        }
        true
    }

    fn export(&mut self, to: AgentId, from: Option<Cursor>, out: &mut Vec<Action>) {
        let Some(handover) = self.site.handovers.get_mut(&to) else { return };
        handover.stage = Stage::Reading;
        let partitions = handover.partitions.clone();
        out.push(Action::Export { to, handover: handover.id, partitions, from });
    }

    /// The store has read the next part.
    pub(super) fn on_exported(
        &mut self,
        to: AgentId,
        id: (u64, u64),
        mut moved: Moved,
        next: Option<Cursor>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(handover) = self.site.handovers.get_mut(&to).filter(|handover| handover.id == id) else {
            return;
        };
        for host in &mut moved.hosts {
            host.memo = host.memo.take().map(|memo| memo.for_another(now));
        }
        let is_owed = |partition: &u16| !self.site.held.contains(*partition);
        let owed = handover.partitions.iter().copied().filter(is_owed).collect();
        let (part, at) = (handover.part, now.wall);
        let message = Message::Move { handover: id, part, owed, at, moved };
        handover.stage = Stage::Sending { message: Box::new(message.clone()), sent: now.mono, next };
        self.send(to, message, out);
    }

    /// A part is durable at the other agent.
    pub(super) fn on_moved(
        &mut self,
        from: AgentId,
        id: (u64, u64),
        part: u32,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        if self.on_recovered_part(from, id, part, now) {
            return;
        }
        let Some(handover) = self.site.handovers.get_mut(&from) else { return };
        let Stage::Sending { next, .. } = &mut handover.stage else { return };
        if handover.id != id || handover.part != part {
            return;
        }
        handover.alive = now.mono;
        handover.part += 1;
        let next = next.take();
        if self.is_in_vain(from, now) {
            return self.give_up_handover(from, now);
        }
        let Some(handover) = self.site.handovers.get_mut(&from) else { return };
        match next {
            Some(next) => self.export(from, Some(next), out),
            None => {
                handover.stage = Stage::Releasing;
                let (partitions, since) = (handover.partitions.clone(), handover.since);
                let me = self.site.me();
                let passed = |partition: u16| {
                    let Token { holder, epoch } = self.site.token(partition);
                    // What was made anew there has its epoch already.
                    (partition, if holder == me { epoch + 1 } else { epoch })
                };
                let tokens = partitions.into_iter().map(passed).collect();
                self.write(Record::Released { to: from, tokens, since }, None, None, out);
            }
        }
    }

    /// The other agent has lost parts: from the beginning.
    pub(super) fn on_move_again(&mut self, from: AgentId, id: (u64, u64), now: Now, out: &mut Vec<Action>) {
        if self.renumber_recovery(from, id) {
            return;
        }
        let Some(handover) = self.site.handovers.get_mut(&from) else { return };
        if handover.id == id && matches!(handover.stage, Stage::Sending { .. }) {
            handover.part = 0;
            handover.alive = now.mono;
            self.export(from, None, out);
        }
    }

    /// The tokens are given up, durably.
    pub(super) fn released(&mut self, to: AgentId, tokens: &[(u16, u64)], out: &mut Vec<Action>) {
        self.site.handovers.remove(&to);
        self.send(to, Message::Grant { tokens: tokens.to_vec() }, out);
    }

    /// A part of what another agent knows.
    pub(super) fn on_move(
        &mut self,
        from: AgentId,
        (id, part): ((u64, u64), u32),
        owed: Vec<u16>,
        moved: Moved,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        if owed.iter().any(|partition| self.site.is_handed_over(*partition)) {
            // It would come too late to go with the rest. When that has gone, its sender hears who has it.
            return;
        }
        let others = owed.into_iter().filter(|partition| !self.site.holds(*partition));
        let others: Vec<(u16, Token)> =
            others.map(|partition| (partition, self.site.token(partition))).collect();
        if !others.is_empty() {
            // It would be left here. If this agent has yet to be given some, the part comes again.
            return self.send(from, Message::Outdated(others), out);
        }
        if self.crosses(&moved, now) {
            return;
        }
        let key = (from, id);
        let known = self.site.arriving.get(&key);
        if known.is_none_or(|arriving| part == 0 && arriving.durable > 0) {
            if part > 0 {
                return self.send(from, Message::MoveAgain { handover: id }, out);
            }
            self.site.begin_arriving(key);
        }
        let Some(arriving) = self.site.arriving.get_mut(&key) else { return };
        if part < arriving.durable {
            return self.send(from, Message::Moved { handover: id, part }, out);
        }
        if part != arriving.next || self.unsettled.len() >= UNSETTLED_MAX {
            return;
        }
        arriving.next += 1;
        self.write_moved(from, id, part, moved, out);
    }

    /// Writes down a part of what another agent knows, or this one knew.
    pub(super) fn write_moved(
        &mut self,
        from: AgentId,
        id: (u64, u64),
        part: u32,
        moved: Moved,
        out: &mut Vec<Action>,
    ) {
        let of = moved.hosts.iter().map(|host| partition_of(&host.host)).collect();
        let ticket = self.write(Record::Moved { from, moved }, None, None, out);
        self.site.replies.insert(ticket, Reply::Moved { from, id, part, of });
    }

    /// Whether something of these partitions has come and is not durable yet.
    fn is_still_coming(&self, partitions: &[u16]) -> bool {
        self.site.replies.values().any(|reply| {
            matches!(reply, Reply::Moved { of, .. } if partitions.iter().any(|partition| of.contains(*partition)))
        })
    }

    /// What comes of a partition that this agent owes must not be forgotten with the debt: what is on its way begins anew, and
    /// then takes it along, or is not needed any more. Says whether that is too late.
    fn crosses(&mut self, moved: &Moved, now: Now) -> bool {
        let came: Partitions = moved.hosts.iter().map(|host| partition_of(&host.host)).collect();
        let is_owed = |partition: &u16| came.contains(*partition) && self.site.owes(*partition);
        let crossed =
            self.site.handovers.iter().filter(|(_, leaving)| leaving.partitions.iter().any(is_owed));
        let crossed: Vec<(AgentId, bool)> =
            crossed.map(|(to, leaving)| (*to, matches!(leaving.stage, Stage::Releasing))).collect();
        if crossed.iter().any(|(_, is_too_late)| *is_too_late) {
            return true;
        }
        crossed.into_iter().for_each(|(to, _)| self.give_up_handover(to, now));
        false
    }

    /// A part is durable here.
    pub(super) fn part_is_durable(
        &mut self,
        from: AgentId,
        id: (u64, u64),
        part: u32,
        out: &mut Vec<Action>,
    ) {
        if let Some(arriving) = self.site.arriving.get_mut(&(from, id)) {
            arriving.durable = arriving.durable.max(part + 1);
        }
        self.send(from, Message::Moved { handover: id, part }, out);
    }
}
