//! The keeper of an address: whose turn it is there, among the agents of a site.
//!
//! Politeness holds for an address too, whatever agents the hosts there are with. So each address has one keeper, which gives
//! the turn there to one agent at a time; who has it makes requests under the rules of its own gate
//! ([`crate::politeness::Gates`]), and what is known of the gate goes with the turn. `turns` is the other side of it.
//!
//! **Who keeps an address.** The agent that has the token of the address's partition ([`partition_of_address`]). A keeper
//! computed from a list of members would not do: lists differ for as long as agents do not hear of each other, and there would be
//! two. Of a token there is one, and only its holder passes it on. Whoever asks the wrong agent is not answered, learns who has
//! the token, and asks again.
//!
//! **When a turn ends.** When its holder gives it back; the keeper asks for it as soon as others wait ([`TurnMessage::Recall`]).
//! A holder that is silent has lost it when nothing that it began can be under way any more: it begins requests for [`LEASE`]
//! from *before* it asked, by its own clock, and each of them ends within [`Settings::request_timeout`]; the keeper counts both
//! from *after* it was asked, adds what clocks may differ by, and the delay of the address. A message that is late or comes
//! twice changes nothing: a turn has a number that is used once, only its holder can give it back, under that number, and who
//! has given one back takes none that it had asked for before.
//!
//! **A keeper that has forgotten, and a new one.** What was given before a start, or before the token came, is not known. Until
//! it is, no turn begins at these addresses: for as long as a silent holder may go on; or, since that is long, until all members
//! have said which turns they have there, and what they know of the gates ([`TurnMessage::Call`]); which the new keeper itself
//! has from the old one it knows. An agent says so only when it knows that the token is where it says it to be, in that run of
//! the keeper; from then on it takes none that was given by another keeper, or before; so what it has said stays right. All
//! members are those of this agent's list, and each answer says by its digest that its sender has the same list: whoever has
//! given a turn before knew whom it gave it to, so nobody can be missing, unless the one who knew is gone for good. Where a token
//! was made anew because of that, only time helps.
//!
//! **Where agents share a store**, the keeper of an address is who has its partition in its lease, as the table says. Two may
//! believe that they are, by what they read: whoever is asked for its turns by the later one answers only when it has read
//! the table that says so ([`TurnMessage::Call`] names the beat), and takes no turn of the other any more. All
//! members are those of the table that gave the keeper its partition, since nobody who comes later has a turn of an earlier one.
//! And a turn ends with the lease of who has it: nobody asks without a valid lease, and breaks off what is in flight at its end.
//! (One that stood still could not break it off: of the host that it asked the store knows, and it is left alone; its address
//! is not.)
//!
//! [`Settings::request_timeout`]: crate::settings::Settings::request_timeout

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::site::AGAIN;
use super::turns::{LEASE, SHARE, is_worth_knowing};
use super::{Action, Agent};
use crate::assign::partition_of_address;
use crate::limits::KEPT_MAX;
use crate::politeness::{GateMemo, Gates};
use crate::record::Record;
use crate::site::{AgentId, GivenTurn, Message, Partitions, TurnId, TurnMessage};
use crate::time::{Mono, Now};
use crate::url::AddressKey;

/// A turn is not asked back before this, so that the wish does not overtake it.
const RECALL_AFTER: Duration = Duration::from_millis(250);
/// Who waits for a turn and has not asked again for so long does not want it any more.
const ASKED_LASTS: Duration = Duration::from_secs(10);

/// What a keeper says.
#[derive(Debug, PartialEq)]
pub(super) enum Word {
    Given(GivenTurn),
    Recall(AddressKey, TurnId),
    Heard(AddressKey, TurnId),
}

/// Who waits for a turn.
#[derive(Debug)]
struct Asker {
    id: AgentId,
    /// As it said: its run comes first.
    asked: (u64, Mono),
    heard: Mono,
}

/// Whose turn it is.
#[derive(Debug)]
struct Holder {
    id: AgentId,
    /// The run of its that asked.
    run: u64,
    turn: TurnId,
    since: Mono,
    /// If it is silent, it has lost the turn then.
    until: Mono,
    /// When the turn was last asked back.
    recalled: Option<Mono>,
}

/// An address that is kept.
#[derive(Debug, Default)]
struct Kept {
    holder: Option<Holder>,
    queue: VecDeque<Asker>,
    alarm: Option<Mono>,
}

/// Partitions whose addresses may be somebody's turn without this agent's knowing.
#[derive(Debug)]
struct Probation {
    partitions: Partitions,
    /// What this agent held when it was called for, by number; `None` where only time helps.
    holds: Option<u64>,
    from: Mono,
    until: Mono,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    kept: BTreeMap<AddressKey, Kept>,
    alarms: BTreeSet<(Mono, AddressKey)>,
    /// The run that turns are given in, once it is durable that there is such a run.
    run: Option<u64>,
    given: u64,
    /// How long a holder may be silent.
    silence_max: Duration,
    probations: Vec<Probation>,
    /// What each member has said that it has, by what this agent held.
    answered: BTreeMap<AgentId, u64>,
    /// The partitions whose addresses it keeps, where agents share a store.
    leased: Partitions,
    /// What is to be said, and to whom.
    pub(super) words: Vec<(AgentId, Word)>,
    /// Turns of agents that were silent for too long while others waited.
    pub(super) run_out: u64,
}

impl Keeper {
    fn is_on_probation(&self, address: AddressKey) -> bool {
        let partition = partition_of_address(address);
        self.run.is_none() || self.probations.iter().any(|probation| probation.partitions.contains(partition))
    }

    /// An agent wants a turn, or goes on with the one that it has.
    fn ask(
        &mut self,
        address: AddressKey,
        (id, asked): (AgentId, (u64, Mono)),
        has: Option<TurnId>,
        gates: &Gates,
        now: Mono,
    ) {
        if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(&address) {
            return;
        }
        let kept = self.kept.entry(address).or_default();
        if kept.holder.as_ref().is_some_and(|holder| holder.id == id) {
            return self.give(address, (id, asked), has, gates, now);
        }
        match kept.queue.iter_mut().find(|asker| asker.id == id) {
            Some(asker) => (asker.asked, asker.heard) = (asked.max(asker.asked), now),
            None => kept.queue.push_back(Asker { id, asked, heard: now }),
        }
        self.pass_on(address, gates, now);
    }

    /// Gives a turn: another one than before, unless `has` is what the agent has and should have.
    fn give(
        &mut self,
        address: AddressKey,
        (id, asked): (AgentId, (u64, Mono)),
        has: Option<TurnId>,
        gates: &Gates,
        now: Mono,
    ) {
        let (Some(run), Some(kept)) = (self.run, self.kept.get_mut(&address)) else { return };
        kept.queue.retain(|asker| asker.id != id);
        let until = now + self.silence_max;
        let holder = match kept.holder.take().filter(|holder| holder.id == id && has == Some(holder.turn)) {
            Some(holder) => Holder { until, run: asked.0, ..holder },
            None => {
                self.given += 1;
                Holder { id, run: asked.0, turn: (run, self.given), since: now, until, recalled: None }
            }
        };
        let is_wanted = !kept.queue.is_empty();
        let turn = Some(holder.turn);
        kept.holder = Some(Holder { recalled: is_wanted.then_some(now).max(holder.recalled), ..holder });
        let gate = gates.memo(address, now);
        self.words.push((id, Word::Given(GivenTurn { address, asked, turn, is_wanted, gate })));
        self.set_alarm(address);
    }

    /// An agent has said that it has a turn that was given before.
    fn recognise(&mut self, address: AddressKey, by: (AgentId, (u64, Mono)), gates: &Gates, now: Mono) {
        if self.kept.entry(address).or_default().holder.is_none() {
            self.give(address, by, None, gates, now);
        }
    }

    /// A turn is over; false if it was over already.
    fn give_back(&mut self, address: AddressKey, id: AgentId, turn: TurnId) -> bool {
        let Some(kept) = self.kept.get_mut(&address) else { return false };
        kept.holder.take_if(|holder| (holder.id, holder.turn) == (id, turn)).is_some()
    }

    /// Gives the turn to the next, or asks it back for it.
    fn pass_on(&mut self, address: AddressKey, gates: &Gates, now: Mono) {
        let is_on_probation = self.is_on_probation(address);
        let Some(kept) = self.kept.get_mut(&address) else { return };
        kept.queue.retain(|asker| now < asker.heard + ASKED_LASTS);
        if kept.holder.take_if(|holder| now >= holder.until).is_some() && !kept.queue.is_empty() {
            self.run_out += 1;
        }
        if let Some(holder) = &mut kept.holder {
            if !kept.queue.is_empty() && now >= holder.recall_at() {
                holder.recalled = Some(now);
                self.words.push((holder.id, Word::Recall(address, holder.turn)));
            }
        } else if !is_on_probation && gates.rest(address, now) > SHARE {
            // It is not worth anybody's having it.
            for Asker { id, asked, .. } in std::mem::take(&mut kept.queue) {
                let gate = gates.memo(address, now);
                let given = GivenTurn { address, asked, turn: None, is_wanted: false, gate };
                self.words.push((id, Word::Given(given)));
            }
        } else if let Some(asker) = kept.queue.front().filter(|_| !is_on_probation) {
            let by = (asker.id, asker.asked);
            return self.give(address, by, None, gates, now);
        }
        self.set_alarm(address);
    }

    /// Has an address looked at when there is something to do, and forgets it if there will not be.
    fn set_alarm(&mut self, address: AddressKey) {
        let Some(kept) = self.kept.get_mut(&address) else { return };
        let at = match (&kept.holder, kept.queue.front()) {
            (Some(holder), Some(_)) => Some(holder.recall_at().min(holder.until)),
            (Some(holder), None) => Some(holder.until),
            (None, Some(asker)) => Some(asker.heard + ASKED_LASTS),
            (None, None) => None,
        };
        if kept.alarm != at {
            let before = std::mem::replace(&mut kept.alarm, at);
            before.map(|before| self.alarms.remove(&(before, address)));
            self.alarms.extend(at.map(|at| (at, address)));
        }
        if at.is_none() {
            self.kept.remove(&address);
        }
    }

    fn ring(&mut self, gates: &Gates, now: Mono) {
        while let Some((at, address)) = self.alarms.first().copied().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, address));
            if let Some(kept) = self.kept.get_mut(&address) {
                kept.alarm = None;
                self.pass_on(address, gates, now);
            }
        }
    }

    /// Ends the turns of those that have no lease any more. Says where.
    fn end_turns(&mut self, is_over: impl Fn(AgentId, u64) -> bool) -> Vec<AddressKey> {
        let mut ended = Vec::new();
        for (address, kept) in &mut self.kept {
            kept.queue.retain(|asker| !is_over(asker.id, asker.asked.0));
            if kept.holder.take_if(|holder| is_over(holder.id, holder.run)).is_some() {
                ended.push(*address);
            }
        }
        ended
    }

    /// Ends what probations are over; says whether one is.
    fn end_probations(&mut self, others: &[AgentId], now: Mono) -> bool {
        let answered = others.iter().map(|id| self.answered.get(id).copied());
        // What all have answered: nothing if one has not at all, everything if there is nobody.
        let by_all = answered.min().unwrap_or(Some(u64::MAX));
        let before = self.probations.len();
        self.probations.retain(|probation| {
            let is_known =
                now >= probation.from && probation.holds.is_some_and(|holds| by_all >= Some(holds));
            now < probation.until && !is_known
        });
        self.probations.len() < before
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// How many turns are out.
    pub(super) fn out(&self) -> usize {
        self.kept.values().filter(|kept| kept.holder.is_some()).count()
    }
}

impl Holder {
    fn recall_at(&self) -> Mono {
        self.recalled.map_or(self.since + RECALL_AFTER, |at| at + AGAIN)
    }
}

impl Agent {
    /// A run begins: what was given in an earlier one is not known.
    pub(super) fn start_keeper(&mut self, now: Now) {
        self.site.keeper.silence_max = self.silence_max();
        if self.runs > 1 {
            self.put_on_probation(Partitions::all(), Some(self.site.holds), now);
        }
    }

    fn silence_max(&self) -> Duration {
        let settings = &self.settings;
        // Each of the two clocks may be wrong by one in a hundred.
        (LEASE + settings.request_timeout).mul_f64(1.03) + settings.ip_delay
    }

    /// This agent has a lease, and nothing else yet.
    pub(super) fn start_leased_keeper(&mut self) {
        let (run, silence_max) = (Some(self.runs), self.silence_max());
        self.site.keeper = Keeper { run, silence_max, ..Keeper::default() };
    }

    /// Its lease has ended, and with it what it kept and all turns that it had.
    pub(super) fn end_leased_keeper(&mut self) {
        self.site.keeper = Keeper::default();
        self.forget_turns();
    }

    /// The table of leases was read: who is there, and who keeps what.
    pub(super) fn learn_leased_keepers(&mut self, now: Now, out: &mut Vec<Action>) {
        let me = self.site.me();
        let Some(shared) = &self.site.shared else { return };
        let leases = &shared.leases;
        let mine = leases.get(me).map(|lease| lease.held.clone()).unwrap_or_default();
        // One that the table does not know yet has come after it was read.
        let is_over = |id, run| run <= leases.drawn() && leases.incarnation_of(id) != run;
        let ended = self.site.keeper.end_turns(is_over);
        for address in ended {
            // When it was last asked is not known.
            self.gates.close_until(address, now.mono + self.settings.ip_delay);
            self.site.keeper.pass_on(address, &self.gates, now.mono);
        }
        if mine != self.site.keeper.leased {
            let mut came = mine.clone();
            came.subtract(&self.site.keeper.leased);
            self.site.keeper.leased = mine;
            self.site.holds += 1;
            self.kept_partitions_changed(came, true, now);
            self.tend_probations(now, out);
        }
    }

    /// It is durable that there is this run: turns can be told from those of others.
    pub(super) fn run_is_durable(&mut self, now: Now) {
        self.site.keeper.run = Some(self.runs);
        self.look_at_all_kept(now);
    }

    fn put_on_probation(&mut self, partitions: Partitions, holds: Option<u64>, now: Now) {
        let from = now.mono + self.settings.ip_delay;
        let until = now.mono + self.site.keeper.silence_max;
        self.site.keeper.probations.push(Probation { partitions, holds, from, until });
    }

    /// What is held here has changed. `is_passed_on` says whether somebody has passed on what came.
    pub(super) fn kept_partitions_changed(&mut self, came: Partitions, is_passed_on: bool, now: Now) {
        let is_shared = self.site.is_shared();
        let Keeper { kept, alarms, leased, .. } = &mut self.site.keeper;
        let held = if is_shared { &*leased } else { &self.site.held };
        // What is not kept here any more is forgotten.
        kept.retain(|address, _| held.contains(partition_of_address(*address)));
        alarms.retain(|(_, address)| held.contains(partition_of_address(*address)));
        if came.is_empty() {
            return;
        }
        // Others are asked what turns they have; its own, from whoever kept the addresses before, it knows.
        let own: Vec<AddressKey> =
            self.has_out(now).filter(|address| came.contains(partition_of_address(*address))).collect();
        let by = (self.site.me(), self.asks_now(now));
        for address in own {
            self.site.keeper.recognise(address, by, &self.gates, now.mono);
        }
        let holds = is_passed_on.then_some(self.site.holds);
        self.put_on_probation(came, holds, now);
    }

    /// Asks those that have not said yet what turns they have. Once a beat.
    pub(super) fn tend_probations(&mut self, now: Now, out: &mut Vec<Action>) {
        let others: Vec<AgentId> = self.site.others().collect();
        if self.site.keeper.end_probations(&others, now.mono) {
            self.look_at_all_kept(now);
        }
        let keeper = &self.site.keeper;
        let wanted = keeper.probations.iter().filter_map(|probation| probation.holds).max();
        let (Some(wanted), Some(run)) = (wanted, keeper.run) else { return };
        let lease = self.site.shared.as_ref().and_then(|shared| shared.leases.get(self.site.me()));
        let lease = lease.map_or(0, |lease| lease.number);
        let call = Message::Turn(TurnMessage::Call { of: (run, self.site.holds), lease });
        for id in others.into_iter().filter(|id| keeper.answered.get(id).is_none_or(|holds| *holds < wanted))
        {
            self.send(id, call.clone(), out);
        }
    }

    fn look_at_all_kept(&mut self, now: Now) {
        let addresses: Vec<AddressKey> = self.site.keeper.kept.keys().copied().collect();
        for address in addresses {
            self.site.keeper.pass_on(address, &self.gates, now.mono);
        }
    }

    /// Whether this agent keeps an address.
    fn keeps(&self, address: AddressKey) -> bool {
        let partition = partition_of_address(address);
        match self.site.is_shared() {
            true => self.site.keeper.leased.contains(partition),
            false => self.site.holds(partition) && !self.site.is_gone(self.site.me()),
        }
    }

    pub(super) fn tend_keeper(&mut self, now: Now) {
        self.site.keeper.ring(&self.gates, now.mono);
    }

    /// An agent wants turns, or uses those that it has.
    pub(super) fn on_ask_turns(
        &mut self,
        from: AgentId,
        asked: (u64, Mono),
        turns: Vec<(AddressKey, Option<TurnId>)>,
        now: Now,
    ) {
        for (address, has) in turns {
            if self.keeps(address) {
                self.site.keeper.ask(address, (from, asked), has, &self.gates, now.mono);
            }
        }
    }

    /// Turns are over.
    pub(super) fn on_give_turns(
        &mut self,
        from: AgentId,
        turns: Vec<(AddressKey, TurnId, GateMemo)>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        for (address, turn, gate) in turns {
            if !self.keeps(address) {
                continue;
            }
            if is_worth_knowing(&gate, self.settings.ip_delay) {
                self.site.keeper.words.push((from, Word::Heard(address, turn)));
            }
            // What is known of the gate counts also if the turn has run out meanwhile, or another agent kept it.
            let rest_before = self.gates.rest(address, now.mono);
            let rest = gate.rest;
            self.gates.learn(address, gate, now.mono);
            if rest > self.settings.ip_delay.max(rest_before) {
                // Several hosts have asked for it.
                let not_before = now.wall_after(self.gates.rest(address, now.mono));
                self.address_waits.push((address, not_before));
                self.write_own(Record::AddressWait { address, not_before }, out);
            }
            if self.site.keeper.give_back(address, from, turn) {
                self.site.keeper.pass_on(address, &self.gates, now.mono);
            }
        }
    }

    /// An agent has said what turns it has.
    pub(super) fn on_has_turns(
        &mut self,
        from: AgentId,
        (run, holds): (u64, u64),
        members: u64,
        asked: (u64, Mono),
        turns: Vec<(AddressKey, bool, GateMemo)>,
        now: Now,
    ) {
        let is_old = self.site.keeper.answered.get(&from).is_some_and(|known| *known >= holds);
        let is_same_list = self.site.is_shared() || members == self.site.members.digest();
        if Some(run) != self.site.keeper.run || is_old || !is_same_list {
            return;
        }
        for (address, is_out, gate) in turns {
            self.gates.learn(address, gate, now.mono);
            if is_out && self.keeps(address) {
                self.site.keeper.recognise(address, (from, asked), &self.gates, now.mono);
            }
        }
        self.site.keeper.answered.insert(from, holds);
        let others: Vec<AgentId> = self.site.others().collect();
        if self.site.keeper.end_probations(&others, now.mono) {
            self.look_at_all_kept(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(95);

    fn address() -> AddressKey {
        AddressKey::of([192, 0, 2, 1].into())
    }

    fn keeper() -> Keeper {
        Keeper { run: Some(3), silence_max: SILENCE, ..Keeper::default() }
    }

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000)
    }

    /// Says that an agent asks, and what that leads to.
    fn ask(keeper: &mut Keeper, gates: &Gates, id: u64, has: Option<u64>, ms: u64) -> Vec<(AgentId, Word)> {
        keeper.ask(address(), (id.into(), (1, at(ms))), has.map(|turn| (3, turn)), gates, at(ms));
        std::mem::take(&mut keeper.words)
    }

    fn give_back(keeper: &mut Keeper, gates: &Gates, id: u64, turn: u64, ms: u64) -> Vec<(AgentId, Word)> {
        if keeper.give_back(address(), id.into(), (3, turn)) {
            keeper.pass_on(address(), gates, at(ms));
        }
        std::mem::take(&mut keeper.words)
    }

    fn ring(keeper: &mut Keeper, gates: &Gates, ms: u64) -> Vec<(AgentId, Word)> {
        keeper.ring(gates, at(ms));
        std::mem::take(&mut keeper.words)
    }

    /// The turn that an agent has when it asked at some time.
    fn given(id: u64, turn: u64, asked_ms: u64, is_wanted: bool) -> (AgentId, Word) {
        let (asked, gate) = ((1, at(asked_ms)), GateMemo::default());
        let turn = Some((3, turn));
        (id.into(), Word::Given(GivenTurn { address: address(), asked, turn, is_wanted, gate }))
    }

    fn recall(id: u64, turn: u64) -> (AgentId, Word) {
        (id.into(), Word::Recall(address(), (3, turn)))
    }

    #[test]
    fn one_at_a_time_in_the_order_in_which_they_asked() {
        let (mut keeper, gates) = (keeper(), Gates::default());
        assert_eq!(ask(&mut keeper, &gates, 1, None, 0), [given(1, 1, 0, false)]);
        // It goes on with it.
        assert_eq!(ask(&mut keeper, &gates, 1, Some(1), 9_000), [given(1, 1, 9_000, false)]);
        assert_eq!(ask(&mut keeper, &gates, 2, None, 10_000), [recall(1, 1)]);
        assert_eq!(ask(&mut keeper, &gates, 3, None, 10_100), []);
        assert_eq!(keeper.next_wake(), Some(at(12_000)));
        // What was not answered is said again, and asked for again.
        assert_eq!(ask(&mut keeper, &gates, 2, None, 12_000), [recall(1, 1)]);
        assert_eq!(give_back(&mut keeper, &gates, 1, 1, 12_100), [given(2, 2, 12_000, true)]);
        assert_eq!(give_back(&mut keeper, &gates, 2, 2, 13_100), [given(3, 3, 10_100, false)]);
        assert_eq!(give_back(&mut keeper, &gates, 3, 3, 14_100), []);
        assert!(keeper.kept.is_empty() && keeper.alarms.is_empty());
    }

    #[test]
    fn what_is_late_or_comes_twice_ends_no_other_turn() {
        let (mut keeper, gates) = (keeper(), Gates::default());
        assert_eq!(ask(&mut keeper, &gates, 1, None, 0), [given(1, 1, 0, false)]);
        // It has given it back and asks again, and the second message is there first.
        assert_eq!(ask(&mut keeper, &gates, 1, None, 1_000), [given(1, 2, 1_000, false)]);
        assert_eq!(ask(&mut keeper, &gates, 2, None, 1_500), [recall(1, 2)]);
        assert_eq!(give_back(&mut keeper, &gates, 1, 1, 1_600), []);
        assert_eq!(give_back(&mut keeper, &gates, 2, 2, 1_600), []);
        assert_eq!(give_back(&mut keeper, &gates, 1, 2, 1_700), [given(2, 3, 1_500, false)]);
        assert_eq!(give_back(&mut keeper, &gates, 1, 2, 1_800), []);
        assert_eq!(keeper.out(), 1);
    }

    #[test]
    fn who_is_silent_loses_it_in_the_end_and_no_sooner() {
        let (mut keeper, gates) = (keeper(), Gates::default());
        let silence_ms = SILENCE.as_millis() as u64;
        assert_eq!(ask(&mut keeper, &gates, 1, None, 0), [given(1, 1, 0, false)]);
        // One that asked once and never again is not waited for.
        assert_eq!(ask(&mut keeper, &gates, 3, None, 1_000), [recall(1, 1)]);
        let last_ms = (2_000..silence_ms).step_by(2_000).last().unwrap();
        for ms in (2_000..silence_ms).step_by(2_000) {
            let words = ask(&mut keeper, &gates, 2, None, ms);
            assert!(words.iter().all(|word| *word == recall(1, 1)), "{ms}: {words:?}");
        }
        ring(&mut keeper, &gates, silence_ms - 1);
        assert_eq!((keeper.run_out, keeper.out()), (0, 1));
        assert_eq!(ring(&mut keeper, &gates, silence_ms), [given(2, 2, last_ms, false)]);
        assert_eq!(keeper.run_out, 1);
        // Nobody wants it then, and nothing is left of it.
        assert_eq!(ring(&mut keeper, &gates, 3 * silence_ms), []);
        assert!(keeper.kept.is_empty() && keeper.alarms.is_empty());
    }

    #[test]
    fn an_address_that_rests_is_nobodys() {
        let (mut keeper, mut gates) = (keeper(), Gates::default());
        gates.close_until(address(), at(60_000));
        let words = ask(&mut keeper, &gates, 1, None, 0);
        let [(_, Word::Given(GivenTurn { turn: None, gate, .. }))] = &words[..] else { panic!("{words:?}") };
        assert_eq!(gate.rest, Duration::from_secs(60));
        // A short rest goes with the turn.
        let words = ask(&mut keeper, &gates, 1, None, 59_800);
        let [(_, Word::Given(GivenTurn { turn: Some((3, 1)), gate, .. }))] = &words[..] else {
            panic!("{words:?}")
        };
        assert_eq!(gate.rest, Duration::from_millis(200));
    }

    #[test]
    fn a_keeper_that_does_not_know_gives_nothing() {
        let [one, two] = [1, 2].map(AgentId::from);
        let probation =
            |holds| Probation { partitions: Partitions::all(), holds, from: at(250), until: at(95_000) };
        // What the two have said, when, and whether that is enough.
        for (holds, answers, ms, is_over) in [
            (Some(5), vec![], 500, false),
            (Some(5), vec![(one, 5)], 500, false),
            (Some(5), vec![(one, 5), (two, 4)], 500, false),
            (Some(5), vec![(one, 6), (two, 5)], 249, false),
            (Some(5), vec![(one, 6), (two, 5)], 250, true),
            (None, vec![(one, 6), (two, 5)], 500, false),
            (None, vec![], 95_000, true),
            (Some(5), vec![], 95_000, true),
        ] {
            let (mut keeper, gates) = (keeper(), Gates::default());
            keeper.probations.push(probation(holds));
            assert_eq!(ask(&mut keeper, &gates, 1, None, 0), []);
            keeper.answered.extend(answers.clone());
            assert_eq!(keeper.end_probations(&[one, two], at(ms)), is_over, "{holds:?} {answers:?} {ms}");
            keeper.pass_on(address(), &gates, at(1_000));
            assert_eq!(keeper.words.len(), usize::from(is_over));
        }
        let (mut keeper, gates) = (keeper(), Gates::default());
        keeper.probations.push(probation(Some(5)));
        assert!(!keeper.end_probations(&[one], at(500)));
        assert_eq!(ask(&mut keeper, &gates, 1, None, 500), []);
        // Who says that it has a turn has it.
        keeper.recognise(address(), (two, (1, at(600))), &gates, at(600));
        assert_eq!(std::mem::take(&mut keeper.words), [given(2, 1, 600, true)]);
        // Without anybody else there is nobody to ask.
        assert!(keeper.end_probations(&[], at(700)));
        keeper.run = None;
        assert_eq!(ask(&mut keeper, &gates, 2, Some(1), 700), [], "it is not durable that there is this run");
    }
}
