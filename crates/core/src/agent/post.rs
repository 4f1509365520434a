//! Found URLs on their way to the agents that hold their partitions, in a site whose agents share a store.
//!
//! The outbox is the store's: what a durable record found is in it until the store was told that others have it. Here is only
//! what was handed over to be sent. The store is asked for it twice a second, or as soon as a full batch may be there: each batch
//! costs a message, a commit and an answer, however little is in it. It goes to whoever holds its partition now, and again,
//! perhaps to another, if that does not answer. What is here when a process ends, or is fenced, is handed over again to
//! whoever takes the partition of its record over.

use std::collections::{BTreeMap, VecDeque};

use super::outbox::GATHER;
use super::shared::SharedAction;
use super::site::AGAIN;
use super::{Action, Admitted, Agent};
use crate::assign::partition_of;
use crate::limits::{BATCH_URLS_MAX, BATCHES_MAX};
use crate::record::Found;
use crate::site::{AgentId, Message};
use crate::time::{Mono, Now};
use crate::url::identify;

/// URLs that wait here for whom they belong to; the others wait in the store.
const WAITING_MAX: usize = 4 * BATCH_URLS_MAX;

/// A batch that is not acknowledged.
#[derive(Debug)]
struct Sent {
    to: AgentId,
    at: Mono,
    found: Vec<(u64, Found)>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Post {
    waiting: VecDeque<(u64, Found)>,
    /// What cannot be confirmed for now whoever gets it. It holds up nothing else, and no more comes from the store.
    held_up: Vec<(u64, Found)>,
    sent: BTreeMap<u64, Sent>,
    batches: u64,
    /// The store may have more,
    look: bool,
    /// is not asked before this,
    next_look: Mono,
    /// and was asked.
    asked: bool,
    /// What waits may be able to go on.
    moves: bool,
    /// What others have offered and is not durable yet.
    offered: Vec<(AgentId, (u64, u64))>,
}

impl Post {
    /// Something may have been found for others, or others may hold what nobody did.
    pub(super) fn wants_a_look(&mut self) {
        (self.look, self.moves) = (true, true);
    }

    /// Other partitions are confirmed now.
    pub(super) fn try_held_up(&mut self) {
        self.waiting.extend(self.held_up.drain(..));
        self.wants_a_look();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && self.held_up.is_empty()
            && self.sent.is_empty()
            && !self.look
            && !self.asked
    }

    /// Whether those that it is for do not keep up with what is found.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// When there is something to send again, or to ask the store for.
    pub(super) fn next_wake(&self) -> Option<Mono> {
        let look = self.may_look().then_some(self.next_look);
        self.sent.values().map(|sent| sent.at + AGAIN).chain(look).min()
    }

    /// Whether the store is to be asked, when it is time.
    fn may_look(&self) -> bool {
        self.look && !self.asked && self.waiting.len() < WAITING_MAX
    }
}

impl Agent {
    /// Sends what can be sent, and asks the store for more.
    pub(super) fn tend_post(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(shared) = &mut self.site.shared else { return };
        let post = &mut shared.post;
        let late: Vec<u64> = post
            .sent
            .iter()
            .filter(|(_, sent)| now.mono >= sent.at + AGAIN)
            .map(|(batch, _)| *batch)
            .collect();
        for batch in late {
            // Another agent may hold them by now.
            post.waiting.extend(post.sent.remove(&batch).into_iter().flat_map(|sent| sent.found));
            post.moves = true;
        }
        if std::mem::take(&mut post.moves) && !post.waiting.is_empty() {
            self.send_waiting(now, out);
        }
        let Some(shared) = &mut self.site.shared else { return };
        let post = &mut shared.post;
        if post.may_look() && now.mono >= post.next_look {
            (post.look, post.asked, post.next_look) = (false, true, now.mono + GATHER);
            out.push(Action::Shared(SharedAction::TakeElsewhere { max: BATCH_URLS_MAX }));
        }
    }

    fn send_waiting(&mut self, now: Now, out: &mut Vec<Action>) {
        let (me, run) = (self.site.me(), self.runs);
        let open = self.open_partitions().cloned().unwrap_or_default();
        let Some(shared) = &mut self.site.shared else { return };
        let mut by_holder: BTreeMap<AgentId, Vec<(u64, Found)>> = BTreeMap::new();
        let mut left = VecDeque::new();
        for (place, found) in std::mem::take(&mut shared.post.waiting) {
            let Some((host, _)) = identify(&found.url) else { continue };
            let partition = partition_of(&host);
            if shared.unconfirmed.contains(partition) {
                shared.post.held_up.push((place, found));
                continue;
            }
            let token = self.site.tokens.get(partition);
            let under_way = shared.post.sent.values().filter(|sent| sent.to == token.holder).count();
            let is_there = token.epoch > 0 && (token.holder != me || open.contains(partition));
            let batch = by_holder.get(&token.holder).map_or(0, Vec::len);
            if is_there && under_way < BATCHES_MAX && batch < BATCH_URLS_MAX {
                by_holder.entry(token.holder).or_default().push((place, found));
            } else {
                left.push_back((place, found));
            }
        }
        shared.post.waiting = left;
        if let Some(ours) = by_holder.get(&me) {
            let ours: Vec<Found> = ours.iter().map(|(_, found)| found.clone()).collect();
            self.heed_returned(&ours);
            self.put_back_tried(&ours, now, out);
        }
        let Some(shared) = &mut self.site.shared else { return };
        let mut messages = Vec::new();
        for (to, found) in by_holder {
            shared.post.batches += 1;
            let batch = (run, shared.post.batches);
            shared.post.sent.insert(batch.1, Sent { to, at: now.mono, found: found.clone() });
            if to == me {
                out.push(Action::Shared(SharedAction::Offer { from: me, batch, found }));
            } else {
                messages.push((to, Message::Offer { batch, found }));
            }
        }
        for (to, message) in messages {
            self.send(to, message, out);
        }
    }

    /// The store has handed over what was found for others.
    pub(super) fn on_elsewhere(&mut self, found: Vec<(u64, Found)>) {
        let Some(shared) = &mut self.site.shared else { return };
        let post = &mut shared.post;
        post.asked = false;
        if found.len() >= BATCH_URLS_MAX {
            (post.look, post.next_look) = (true, Mono::default());
        }
        post.moves |= !found.is_empty();
        post.waiting.extend(found);
    }

    /// URLs that belong here.
    pub(super) fn on_offer(
        &mut self,
        from: AgentId,
        batch: (u64, u64),
        found: Vec<(u64, Found)>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let is_ours = |found: &Found| identify(&found.url).is_none_or(|(host, _)| self.site.is_ours(&host));
        // What is not, its sender sends elsewhere when it hears of that.
        if found.len() > BATCH_URLS_MAX || !found.iter().all(|(_, found)| is_ours(found)) {
            return;
        }
        let of_seeds: Vec<Found> = found.iter().map(|(_, found)| found.clone()).collect();
        self.widen_scope(&of_seeds);
        self.heed_returned(&of_seeds);
        self.put_back_tried(&of_seeds, now, out);
        let Some(shared) = &mut self.site.shared else { return };
        if !shared.post.offered.contains(&(from, batch)) && shared.post.offered.len() < WAITING_MAX {
            shared.post.offered.push((from, batch));
            out.push(Action::Shared(SharedAction::Offer { from, batch, found }));
        }
    }

    /// They are known, durably.
    pub(super) fn on_offered(
        &mut self,
        from: AgentId,
        batch: (u64, u64),
        admitted: Option<Admitted>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        if let Some(shared) = &mut self.site.shared {
            shared.post.offered.retain(|other| *other != (from, batch));
        }
        let Some(admitted) = admitted else { return };
        self.on_admitted(admitted, now);
        if from == self.site.me() {
            self.on_accepted(from, batch, out);
        } else {
            self.send(from, Message::Delivered { batch }, out);
        }
    }

    /// Another agent has them.
    pub(super) fn on_accepted(&mut self, from: AgentId, (run, batch): (u64, u64), out: &mut Vec<Action>) {
        let (me, is_this_run) = (self.site.me(), run == self.runs);
        let Some(shared) = &mut self.site.shared else { return };
        if is_this_run
            && shared.post.sent.get(&batch).is_some_and(|sent| sent.to == from)
            && let Some(sent) = shared.post.sent.remove(&batch)
        {
            shared.post.moves = true;
            if from == me {
                // The store knows whose they were.
                return;
            }
            let places = sent.found.into_iter().map(|(place, _)| place).collect();
            out.push(Action::Shared(SharedAction::Acknowledge { places }));
        }
    }
}
