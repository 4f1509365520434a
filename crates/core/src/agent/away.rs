//! Hosts that are not on the workbench, and what has to outlive the process.
//!
//! The workbench has room for so many hosts. One at rest leaves it when others need the room ([`Action::Keep`]), and comes back
//! when something of it is found, or when the store is gone round for what is due ([`Action::Visit`]): a round is made at the
//! start, and again whenever there may be something due of a host that is not in memory.
//!
//! Invariant: *as long as a host that is not on the workbench has something due, or will have, a round is wanted or a moment
//! for one is set.*

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::shared::MARGIN_PART;
use super::site::SiteMemo;
use super::{Action, Agent, Kept, Totals, Visited};
use crate::frontier::{HostMemo, Place};
use crate::record::Block;
use crate::time::{Mono, Now, Wall};
use crate::url::{AddressKey, Host};

/// Hosts at rest that are looked at in one step for some that may leave.
const LOOKED_AT: usize = 64;
/// A round goes on when there is room for this part of the workbench, or for so many as can leave in one step: to look for one
/// host costs the store as much as to look for many.
const ROOM_PART: usize = 16;
/// The least time from the end of a round to the next one,
const ROUND_PAUSE_MIN: Duration = Duration::from_secs(1);
/// and how many times as long as the round took, without the time that it waited for room.
const ROUND_PAUSES: u32 = 4;
/// When a blocked host that has left is looked at again.
const BLOCKED_PAUSE: Duration = Duration::from_secs(3_600);

/// What is known of the hosts that are not on the workbench.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// A round is wanted, or under way.
    pub(super) wanted: bool,
    /// Since when it is under way.
    began: Option<Mono>,
    /// The store was asked to go on with it.
    pub(super) asked: bool,
    /// Since when it waits for room, and for how long it did so before.
    full_since: Option<Mono>,
    waited: Duration,
    /// Something came up for a host that the round may have passed already.
    again: bool,
    /// When something of one of them becomes due.
    next: Option<Mono>,
    /// No round begins before this.
    from: Mono,
}

impl Away {
    /// Something is due of a host that is not on the workbench.
    pub(super) fn want(&mut self) {
        self.again |= self.began.is_some();
        self.wanted = true;
    }

    /// Something becomes due then.
    fn want_at(&mut self, at: Option<Wall>, now: Now) {
        self.next = [self.next, at.map(|at| now.mono_at(at))].into_iter().flatten().min();
    }

    /// When to look again, if nothing happens before.
    pub(super) fn wake(&self) -> Option<Mono> {
        if self.wanted {
            // One that is under way waits for an answer, or for a host to leave.
            return self.began.is_none().then_some(self.from);
        }
        self.next.map(|next| next.max(self.from))
    }
}

/// What an agent must not forget, hosts aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentMemo {
    totals: Totals,
    given_up: u64,
    elapsed_before: Duration,
    blocks: Vec<Block>,
    address_waits: Vec<(AddressKey, Wall)>,
    widened: Vec<String>,
    runs: u64,
    /// The run that has not ended: its beginning, and the last sign of it.
    run: Option<(Wall, Wall)>,
    /// The site, unless it is a crawl alone.
    site: Option<Box<SiteMemo>>,
    /// The version of the list of sites for which what was given to sites that are gone was found again.
    returned: u64,
}

impl Agent {
    /// What to write down together with the store, now that it has folded every record that the agent was told of as durable:
    /// what concerns all, and each host that has changed.
    pub fn memo(&mut self, now: Now, mut keep: impl FnMut(&Host, Option<&HostMemo>, Wall)) -> AgentMemo {
        let run = self.runs;
        // They are on the workbench: nobody need look for them.
        self.bench.take_changed(|host| {
            if host.is_known() {
                keep(&host.name, host.memo(run, now).as_ref(), Wall(0));
            }
        });
        self.address_waits.retain(|(_, until)| *until > now.wall);
        AgentMemo {
            totals: self.totals.clone(),
            given_up: self.given_up,
            elapsed_before: self.totals.elapsed_before,
            blocks: self.blocks.iter().cloned().collect(),
            address_waits: self.address_waits.clone(),
            widened: self.widened.clone(),
            runs: self.runs,
            run: self.run_began.map(|began| (began, now.wall)),
            site: (!self.site.is_alone()).then(|| Box::new(self.site.memo())),
            returned: self.exchange.as_ref().map_or(0, |exchange| exchange.returning.done_for),
        }
    }

    /// Takes in what an earlier run wrote down. Before any [`Agent::replay`].
    pub fn remember(&mut self, memo: AgentMemo) {
        self.totals = memo.totals;
        self.totals.elapsed_before = memo.elapsed_before;
        self.given_up = memo.given_up;
        self.blocks = memo.blocks.into_iter().collect();
        self.address_waits = memo.address_waits;
        self.runs = memo.runs;
        self.earlier_run = memo.run;
        self.recall_returned(memo.returned);
        if let Some(site) = memo.site.filter(|_| !self.site.is_alone()) {
            self.site.remember(*site);
            self.obey_wishes();
        }
        for text in memo.widened {
            self.widen_scope_by(&text);
        }
    }

    /// A run that has not ended gave a sign of itself.
    pub(super) fn touch_earlier_run(&mut self, at: Wall) {
        if let Some((_, last)) = &mut self.earlier_run {
            *last = at.max(*last);
        }
    }

    /// It has ended then, whatever ended it.
    pub(super) fn count_earlier_run(&mut self) {
        if let Some((began, last)) = self.earlier_run.take() {
            self.totals.elapsed_before = self.totals.elapsed_before.saturating_add(last.since(began));
        }
    }

    /// When all runs together will have taken as long as they may.
    pub(super) fn time_limit_at(&self) -> Option<Mono> {
        let left = self.settings.max_time?.saturating_sub(self.totals.elapsed_before);
        self.stopping.is_none().then_some(self.started + left)
    }

    /// Counts what others have counted whose work is here now.
    pub fn add_totals(&mut self, totals: &Totals) {
        self.totals.add(totals);
    }

    /// The index of a host for the replay, with what the store keeps of it.
    pub(super) fn index_known(&mut self, name: &Host, kept: &mut Kept<'_>, now: Now) -> u32 {
        let index = self.bench.index(name);
        let run = self.runs;
        let host = self.bench.host_mut(index);
        if !host.is_known() {
            host.remember(kept(name), run, now);
        }
        index
    }

    /// Takes in what the store keeps of a host.
    pub(super) fn make_known(&mut self, index: u32, memo: Option<HostMemo>, now: Now) {
        let run = self.runs;
        let is_under_way = memo.as_ref().is_some_and(HostMemo::is_under_way);
        self.bench.host_mut(index).remember(memo, run, now);
        // Whoever asked it, or another host of its address, last may have done so before this run, or before its partition came
        // here, and have left no trace.
        let came = self.site.came_at(&self.bench.host(index).name);
        let started = (self.runs > 1).then_some(self.started);
        if let Some(since) = came.max(started) {
            let from = since + self.fetch_wait(is_under_way) + self.first_wait(index);
            let host = self.bench.host_mut(index);
            host.not_before = host.not_before.max(from);
        }
    }

    /// How long who had a host before may still be at it.
    fn fetch_wait(&self, is_under_way: bool) -> Duration {
        let most = self.settings.request_timeout;
        if is_under_way { most + most / MARGIN_PART } else { Duration::ZERO }
    }

    /// Has a store that agents share keep what is known of a host, for whoever holds it next. Elsewhere the journal says it.
    pub(super) fn keep_shared(&mut self, index: u32, now: Now, out: &mut Vec<Action>) {
        if self.site.is_shared() && self.site.holds(self.bench.host(index).partition) {
            let memo = self.memo_of(index, now);
            // What is about to be asked, or is, stays marked whatever else there is to be kept.
            let is_asked = self.is_marked(index) || self.bench.host(index).place() == Place::Taking;
            let host = self.bench.host(index).name.clone();
            out.push(Action::Keep { host, memo, away_until: Wall(0), is_asked });
        }
    }

    fn memo_of(&self, index: u32, now: Now) -> Option<Box<HostMemo>> {
        // Others may read it by a calendar that is ahead of this one.
        let slack = self.site.shared.as_ref().map_or(Duration::ZERO, |shared| shared.slack());
        self.bench.host(index).memo(self.runs, Now { wall: now.wall + slack, ..now }).map(Box::new)
    }

    /// How long a host is left alone when a run begins.
    pub(super) fn first_wait(&mut self, index: u32) -> Duration {
        let delay = self.delay(index).max(self.settings.ip_delay);
        delay + self.jitter.up_to(delay / 10)
    }

    /// Goes on with the round, or begins one, if there is need and room.
    pub(super) fn go_round(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.bench.len() > self.settings.hosts_max {
            self.make_room(now, out);
        }
        let away = &mut self.away;
        if away.next.is_some_and(|next| next <= now.mono) && now.mono >= away.from {
            away.next = None;
            away.want();
        }
        if !away.wanted || away.asked || self.stopping.is_some() || self.ended {
            return;
        }
        if away.began.is_none() {
            if now.mono < away.from {
                return;
            }
            away.began = Some(now.mono);
            away.next = None;
        }
        let enough = (self.settings.hosts_max / ROOM_PART).clamp(1, LOOKED_AT);
        if self.room() < enough {
            self.make_room(now, out);
        }
        let max = self.room();
        if max < enough {
            self.away.full_since.get_or_insert(now.mono);
            return;
        }
        self.away.asked = true;
        self.away.waited += self.away.full_since.take().map_or(Duration::ZERO, |since| now.mono.since(since));
        out.push(Action::Visit { max });
    }

    /// How many hosts may still come to the workbench.
    pub(super) fn room(&self) -> usize {
        self.settings.hosts_max.saturating_sub(self.bench.len())
    }

    /// Has hosts leave that nothing is to be done for.
    fn make_room(&mut self, now: Now, out: &mut Vec<Action>) {
        for _ in 0..LOOKED_AT {
            let Some(index) = self.bench.next_resting() else { break };
            let host = self.bench.host_mut(index);
            host.errands.retain(|errand| now.mono < errand.until);
            if host.held == 0 && host.errands.is_empty() {
                self.leave(index, now, out);
            } else {
                // Something is under way, and when it has ended this is tried again.
                self.bench.rests(index);
            }
        }
    }

    pub(super) fn leave(&mut self, index: u32, now: Now, out: &mut Vec<Action>) {
        self.put_back(index, out);
        let host = self.bench.host(index);
        let asked_again = now.wall_after(host.not_before.since(now.mono));
        let away_until = match host.place() {
            Place::Blocked => asked_again.max(now.wall + BLOCKED_PAUSE),
            _ => asked_again,
        };
        let next = if host.due > 0 {
            Some(away_until)
        } else {
            host.retry_at.max(host.retry_at.and(Some(away_until)))
        };
        self.away.want_at(next, now);
        let memo = self.memo_of(index, now);
        let host = self.bench.host(index);
        // Of one that was never asked the store knows more than we do.
        if host.is_known() {
            out.push(Action::Keep { host: host.name.clone(), memo, away_until, is_asked: false });
        }
        self.unmark(index);
        if let Some(host) = self.bench.remove(index) {
            for rules in host.rules.into_iter().filter_map(|of| of.rules) {
                self.shared.give_back(rules.robots);
            }
        }
    }

    pub(super) fn on_visited(&mut self, visited: Visited, now: Now) {
        self.away.asked = false;
        self.away.want_at(visited.next, now);
        for stored in visited.hosts {
            if !self.site.is_ours(&stored.host) {
                // When it comes here, another round is made.
                continue;
            }
            let index = match self.bench.find(&stored.host) {
                Some(index) => index,
                None if self.room() > 0 => {
                    let index = self.bench.index(&stored.host);
                    self.make_known(index, stored.memo, now);
                    index
                }
                None => {
                    self.away.again = true;
                    continue;
                }
            };
            let host = self.bench.host_mut(index);
            // What has changed since the store said so is said by events that follow.
            host.due = host.due.max(stored.due);
            host.retry_at = [host.retry_at, stored.next].into_iter().flatten().min();
            if self.is_at_rest(index) {
                self.settle_in(index, now);
            }
        }
        if visited.is_last {
            let took = self.away.began.take().map_or(Duration::ZERO, |began| now.mono.since(began));
            let worked = took.saturating_sub(std::mem::take(&mut self.away.waited));
            self.away.from = now.mono + ROUND_PAUSE_MIN.max(worked * ROUND_PAUSES);
            self.away.wanted = std::mem::take(&mut self.away.again);
        }
    }
}
