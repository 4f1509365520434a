//! This agent's turns at addresses, which it has from their keepers: see `keeper`, which says why this is safe.
//!
//! An address that only one agent uses, as nearly all are, costs one question, and then one now and then as long as it is in use.
//! Where others wait, a turn lasts for about a second, and then until what is in flight has ended. A crawl alone has all turns,
//! and nothing here does anything.
//!
//! A request that may go to several addresses needs its turn at all of them, and asks for them in order; while it waits for one,
//! those before are kept for a while, so that agents that need the same ones in the end have them together. As all keep to that
//! order, and none waits for ever, nobody is waited for in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::keeper::Word;
use super::site::AGAIN;
use super::{Action, Agent};
use crate::assign::partition_of_address;
use crate::frontier::Place;
use crate::limits::{TURNS_AT_ONCE_MAX, TURNS_MAX};
use crate::politeness::GateMemo;
use crate::site::{AgentId, GivenTurn, Lease, Message, TurnId, TurnMessage};
use crate::time::{Mono, Now};
use crate::url::AddressKey;

/// For how long an agent that has its turn begins requests, from when it last asked.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// How long a turn lasts for which others wait.
pub(super) const SHARE: Duration = Duration::from_secs(1);
/// How long it is kept for a request that waits for its turn at other addresses too.
const RESERVED: Duration = Duration::from_secs(10);

/// This agent and one address.
#[derive(Debug, Default)]
struct Held {
    /// What was asked for before this does not count any more.
    since: Mono,
    /// When it was last asked for, if there was no answer.
    asked: Option<Mono>,
    turn: Option<(AgentId, TurnId)>,
    /// Until when requests may begin,
    until: Mono,
    /// and from when on.
    from: Mono,
    /// The keeper wants it back.
    recalled: Option<(AgentId, TurnId)>,
    /// It is kept until then for a request that waits at another address; once.
    reserved: Option<Mono>,
    /// What was last given back.
    given_back: Option<(AgentId, TurnId)>,
    used: Mono,
}

impl Held {
    /// Whether a request may begin.
    fn is_on(&self, now: Mono) -> bool {
        self.turn.is_some() && now < self.until && (self.recalled.is_none() || now < self.share_until())
    }

    /// Until when it lasts if others wait.
    fn share_until(&self) -> Mono {
        (self.from + SHARE).max(self.reserved.unwrap_or_default())
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Turns {
    held: BTreeMap<AddressKey, Held>,
    to_ask: BTreeSet<AddressKey>,
    /// What is given back.
    giving: Vec<(AgentId, AddressKey, TurnId, GateMemo)>,
    /// Turns that were given back with something that keepers have to know, and have not said that they do.
    unheard: BTreeMap<AddressKey, TurnId>,
    /// When to look at turns that are wanted back.
    due: BTreeSet<(Mono, AddressKey)>,
    /// When something was last asked for: each time is another.
    last_asked: Mono,
    /// What keepers were told all turns for: older ones are not taken.
    told: BTreeMap<AgentId, (u64, u64)>,
}

impl Turns {
    /// Wants a turn; false if there is no room.
    fn want(&mut self, address: AddressKey) -> bool {
        let has_room = self.held.len() < TURNS_MAX;
        let held = match self.held.get_mut(&address) {
            Some(held) => held,
            None if !has_room => return false,
            None => {
                let since = self.next_asked(Mono(0));
                self.held.entry(address).or_insert(Held { since, ..Held::default() })
            }
        };
        // One that is wanted back is asked for when it was given.
        if held.asked.is_none() && held.recalled.is_none() {
            self.to_ask.insert(address);
        }
        true
    }

    /// The time to say with the next question.
    fn next_asked(&self, now: Mono) -> Mono {
        now.max(Mono(self.last_asked.0 + 1))
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many turns it has.
    pub(super) fn len(&self) -> usize {
        self.held.values().filter(|held| held.turn.is_some()).count()
    }
}

impl Agent {
    pub(super) fn start_turns(&mut self, now: Now) {
        self.site.turns.last_asked = now.mono;
    }

    /// Whether requests to an address may begin.
    pub(super) fn has_turn(&self, address: AddressKey, now: Now) -> bool {
        self.site.is_alone() || self.site.turns.held.get(&address).is_some_and(|held| held.is_on(now.mono))
    }

    /// The first of these addresses at which it is not this agent's turn. Those before are kept for it.
    pub(super) fn lacks_turn(&mut self, addresses: &[AddressKey], now: Now) -> Option<AddressKey> {
        let at = addresses.iter().position(|address| !self.has_turn(*address, now))?;
        for before in &addresses[..at] {
            if let Some(held) = self.site.turns.held.get_mut(before) {
                held.reserved.get_or_insert(now.mono + RESERVED);
            }
        }
        Some(addresses[at])
    }

    /// Has a host wait for its agent's turn at an address.
    pub(super) fn wait_for_turn(&mut self, index: u32, address: AddressKey, now: Now) {
        self.gates.queue(index, address);
        self.bench.put(index, Place::AtGate(address));
        self.want_turn(address, now);
    }

    /// A request to these addresses begins. Says before when it has to.
    pub(super) fn use_turns(&mut self, addresses: &[AddressKey], now: Now) -> Mono {
        let mut before = self.lease_until();
        if self.site.is_alone() {
            return before;
        }
        for address in addresses {
            if let Some(held) = self.site.turns.held.get_mut(address) {
                held.used = now.mono;
                held.reserved = Some(Mono(0));
                before = before.min(held.until);
            }
        }
        before
    }

    /// An address is to be left alone: nobody need have its turn meanwhile, and the keeper should know.
    pub(super) fn no_use_for_turn(&mut self, address: AddressKey) {
        if let Some(held) = self.site.turns.held.get_mut(&address)
            && held.recalled.is_none()
        {
            held.recalled = held.turn;
        }
    }

    /// Hosts wait at a gate, and it is not this agent's turn.
    pub(super) fn want_turn(&mut self, address: AddressKey, now: Now) {
        if !self.gates.is_wanted(address) {
            return;
        }
        if self.gates.rest(address, now.mono) > SHARE {
            // It need not be asked for before it is of use.
            self.watch_gate(address, now);
        } else if !self.site.turns.want(address) {
            self.bench.set_gate_alarm(address, now.mono + AGAIN);
        }
    }

    /// Gives a turn back that is wanted back, if there is no more use for it.
    pub(super) fn give_back_if_done(&mut self, address: AddressKey, now: Now) {
        let Some(held) = self.site.turns.held.get_mut(&address) else { return };
        let Some((keeper, turn)) = held.recalled else { return };
        if self.gates.is_busy(address) {
            return;
        }
        let is_reserved = held.reserved.is_some_and(|until| now.mono < until);
        let has_use = self.gates.is_wanted(address) && self.gates.rest(address, now.mono) <= SHARE;
        if held.is_on(now.mono) && (is_reserved || has_use) {
            let at = if is_reserved { held.share_until() } else { held.from + SHARE };
            self.site.turns.due.insert((at, address));
            return;
        }
        self.give_turn_back(address, keeper, turn, now);
    }

    fn give_turn_back(&mut self, address: AddressKey, keeper: AgentId, turn: TurnId, now: Now) {
        let mut gate = self.gates.memo(address, now.mono);
        if self.runs > 1 {
            // Whoever asked it last may have done so before this run.
            gate.rest = gate.rest.max((self.started + self.settings.ip_delay).since(now.mono));
        }
        let turns = &mut self.site.turns;
        if is_worth_knowing(&gate, self.settings.ip_delay) {
            turns.unheard.insert(address, turn);
        }
        turns.giving.push((keeper, address, turn, gate));
        turns.to_ask.remove(&address);
        if self.gates.is_wanted(address) {
            let since = turns.next_asked(Mono(0));
            let given_back = Some((keeper, turn));
            turns.held.insert(address, Held { since, given_back, ..Held::default() });
            self.want_turn(address, now);
        } else {
            turns.held.remove(&address);
        }
    }

    /// It is about to end: it asks for nothing more, and others need not wait for what it has no use for.
    fn give_all_back(&mut self, now: Now) {
        self.site.turns.to_ask.clear();
        let unused = |(address, held): (&AddressKey, &Held)| {
            held.turn.filter(|_| !self.gates.is_busy(*address)).map(|turn| (*address, turn))
        };
        let unused: Vec<_> = self.site.turns.held.iter().filter_map(unused).collect();
        for (address, (keeper, turn)) in unused {
            self.give_turn_back(address, keeper, turn, now);
        }
        self.site.turns.to_ask.clear();
    }

    /// All turns have ended with the lease of this agent. What is still in flight has been broken off.
    pub(super) fn forget_turns(&mut self) {
        let (gates, turns) = (&self.gates, &mut self.site.turns);
        let since = turns.next_asked(Mono(0));
        turns.held.retain(|address, _| gates.is_busy(*address) || gates.is_wanted(*address));
        turns.held.values_mut().for_each(|held| *held = Held { since, ..Held::default() });
        (turns.to_ask, turns.giving, turns.due) = Default::default();
        turns.told.clear();
    }

    /// Others keep some addresses now: what was not answered is asked for again at once.
    pub(super) fn ask_again(&mut self) {
        let Turns { held, to_ask, .. } = &mut self.site.turns;
        let unanswered = held.iter().filter(|(_, held)| held.asked.is_some() && held.turn.is_none());
        to_ask.extend(unanswered.map(|(address, _)| *address));
    }

    /// Renews what is in use, asks again for what was not answered, and forgets the rest. Once a beat.
    pub(super) fn tend_turns(&mut self, now: Now) {
        let (gates, turns, ip_delay) = (&self.gates, &mut self.site.turns, self.settings.ip_delay);
        let (to_ask, unheard) = (&mut turns.to_ask, &mut turns.unheard);
        turns.held.retain(|address, held| {
            let (is_wanted, is_busy) = (gates.is_wanted(*address), gates.is_busy(*address));
            let is_on = held.turn.is_some() && now.mono < held.until;
            let is_used = is_wanted || is_busy || now.mono < held.used + LEASE / 2;
            let is_short = held.until.since(now.mono) < LEASE / 2;
            let is_answered = held.asked.is_none_or(|asked| now.mono >= asked + AGAIN);
            let may_ask = is_answered && held.recalled.is_none();
            if may_ask
                && if is_on {
                    is_used && is_short
                } else {
                    is_wanted && gates.rest(*address, now.mono) <= SHARE
                }
            {
                to_ask.insert(*address);
            }
            let is_kept = is_on || is_wanted || is_busy;
            if let Some((_, turn)) = held.turn.filter(|_| !is_kept)
                && is_worth_knowing(&gates.memo(*address, now.mono), ip_delay)
            {
                // It has run out, and what its hosts have asked for has not.
                unheard.insert(*address, turn);
            }
            is_kept
        });
        for (address, turn) in std::mem::take(&mut self.site.turns.unheard) {
            let gate = self.gates.memo(address, now.mono);
            if is_worth_knowing(&gate, ip_delay) {
                let keeper = self.site.token(partition_of_address(address)).holder;
                self.site.turns.unheard.insert(address, turn);
                self.site.turns.giving.push((keeper, address, turn, gate));
            }
        }
    }

    /// Says what there is to say about turns, here and to others.
    pub(super) fn exchange_turns(&mut self, now: Now, out: &mut Vec<Action>) {
        while let Some((at, address)) = self.site.turns.due.first().copied().filter(|(at, _)| *at <= now.mono)
        {
            self.site.turns.due.remove(&(at, address));
            self.give_back_if_done(address, now);
        }
        if self.stopping.is_some() {
            self.give_all_back(now);
        }
        // What this agent keeps it asks itself for. That leads to something else to say a few times at most.
        for _ in 0..4 {
            self.tend_keeper(now);
            let messages = self.turn_messages(now);
            if messages.is_empty() {
                return;
            }
            for (to, message) in messages {
                match to == self.site.me() {
                    true => self.on_turn_message(to, message, now, out),
                    false => self.send(to, Message::Turn(message), out),
                }
            }
        }
    }

    /// All that there is to say about turns, by whom to.
    fn turn_messages(&mut self, now: Now) -> Vec<(AgentId, TurnMessage)> {
        let mut messages = Vec::new();
        let turns = &mut self.site.turns;
        // What is given back first: it may be asked for again at once.
        let mut gives: BTreeMap<AgentId, Vec<_>> = BTreeMap::new();
        for (keeper, address, turn, gate) in std::mem::take(&mut turns.giving) {
            gives.entry(keeper).or_default().push((address, turn, gate));
        }
        in_parts(gives, &mut messages, TurnMessage::Over);
        if !turns.to_ask.is_empty() {
            let at = turns.next_asked(now.mono);
            turns.last_asked = at;
            let mut asks: BTreeMap<AgentId, Vec<_>> = BTreeMap::new();
            for address in std::mem::take(&mut turns.to_ask) {
                if let Some(held) = turns.held.get_mut(&address) {
                    held.asked = Some(at);
                    let keeper = self.site.tokens.get(partition_of_address(address)).holder;
                    asks.entry(keeper).or_default().push((address, held.turn.map(|(_, turn)| turn)));
                }
            }
            let asked = (self.runs, at);
            in_parts(asks, &mut messages, |turns| TurnMessage::Ask { asked, turns });
        }
        let (mut given, mut recalls) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        let mut heard = BTreeMap::<_, Vec<_>>::new();
        for (to, word) in std::mem::take(&mut self.site.keeper.words) {
            match word {
                Word::Given(turn) => given.entry(to).or_default().push(turn),
                Word::Recall(address, turn) => recalls.entry(to).or_default().push((address, turn)),
                Word::Heard(address, turn) => heard.entry(to).or_default().push((address, turn)),
            }
        }
        let of = (self.runs, self.site.holds);
        in_parts(given, &mut messages, |turns| TurnMessage::Given { of, turns });
        in_parts(recalls, &mut messages, TurnMessage::Recall);
        in_parts(heard, &mut messages, TurnMessage::Heard);
        messages
    }

    /// Something about turns was said, by another agent or by this one to itself.
    pub(super) fn on_turn_message(
        &mut self,
        from: AgentId,
        message: TurnMessage,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        match message {
            TurnMessage::Ask { asked, turns } => self.on_ask_turns(from, asked, turns, now),
            TurnMessage::Given { of, turns } => self.on_turns(from, of, turns, now),
            TurnMessage::Recall(turns) => self.on_recall_turns(from, turns, now),
            TurnMessage::Over(turns) => self.on_give_turns(from, turns, now, out),
            TurnMessage::Heard(turns) => {
                for (address, turn) in turns {
                    if self.is_keeper(from, address) && self.site.turns.unheard.get(&address) == Some(&turn) {
                        self.site.turns.unheard.remove(&address);
                    }
                }
            }
            TurnMessage::Call { of, lease } => self.on_call_turns(from, of, lease, now, out),
            TurnMessage::Has { of, members, asked, turns } => {
                self.on_has_turns(from, of, members, asked, turns, now);
            }
        }
    }

    fn is_keeper(&self, id: AgentId, address: AddressKey) -> bool {
        self.site.token(partition_of_address(address)).holder == id
    }

    fn on_turns(&mut self, from: AgentId, of: (u64, u64), turns: Vec<GivenTurn>, now: Now) {
        if self.site.turns.told.get(&from).is_some_and(|told| of < *told) {
            return;
        }
        for GivenTurn { address, asked: (run, asked), turn, is_wanted, gate } in turns {
            if run != self.runs || !self.is_keeper(from, address) {
                continue;
            }
            let Some(held) = self.site.turns.held.get_mut(&address) else { continue };
            let is_older = |turn| held.turn.is_some_and(|(keeper, has)| keeper == from && has > turn);
            if asked < held.since || turn.is_some_and(is_older) || turn.is_none() && held.turn.is_some() {
                continue;
            }
            self.gates.learn(address, gate, now.mono);
            held.asked = None;
            if let Some(turn) = turn {
                if held.turn != Some((from, turn)) {
                    held.turn = Some((from, turn));
                    held.from = now.mono + self.gates.rest(address, now.mono).min(SHARE);
                    (held.recalled, held.reserved) = (None, None);
                }
                held.until = held.until.max(asked + LEASE);
                if is_wanted {
                    held.recalled = held.turn;
                }
            }
            self.give_back_if_done(address, now);
            self.watch_gate(address, now);
        }
    }

    /// The keeper wants turns back.
    fn on_recall_turns(&mut self, from: AgentId, turns: Vec<(AddressKey, TurnId)>, now: Now) {
        for (address, turn) in turns {
            if !self.is_keeper(from, address) {
                continue;
            }
            let is_busy = self.gates.is_busy(address);
            match self.site.turns.held.get_mut(&address) {
                Some(Held { turn: Some((keeper, has)), .. }) if *keeper == from && *has > turn => {}
                Some(held) if held.turn.is_some() || is_busy => {
                    held.recalled = Some((from, turn));
                    self.give_back_if_done(address, now);
                }
                Some(held) if held.given_back == Some((from, turn)) => {
                    let gate = self.gates.memo(address, now.mono);
                    self.site.turns.giving.push((from, address, turn, gate));
                }
                _ => self.give_turn_back(address, from, turn, now),
            }
        }
    }

    /// The addresses that this agent may be asking, or may ask by a turn that it was given.
    pub(super) fn has_out(&self, now: Now) -> impl Iterator<Item = AddressKey> {
        let is_out = move |(address, held): (&AddressKey, &Held)| {
            let is_out = held.turn.is_some() && now.mono < held.until || self.gates.is_busy(*address);
            is_out.then_some(*address)
        };
        self.site.turns.held.iter().filter_map(is_out)
    }

    /// The run and the time to say when something is asked for.
    pub(super) fn asks_now(&mut self, now: Now) -> (u64, Mono) {
        let turns = &mut self.site.turns;
        turns.last_asked = turns.next_asked(now.mono);
        (self.runs, turns.last_asked)
    }

    /// A keeper that does not know asks what turns this agent has.
    fn on_call_turns(&mut self, from: AgentId, of: (u64, u64), lease: u64, now: Now, out: &mut Vec<Action>) {
        let is_known = match &self.site.shared {
            Some(shared) => {
                let is_read = |known: &Lease| known.incarnation == of.0 && known.number >= lease;
                shared.leases.get(from).is_some_and(is_read)
            }
            None => self.site.peers.get(&from).is_some_and(|peer| peer.known == Some(of)),
        };
        // In the beginning somebody may just have been asked by the run before.
        if !is_known || self.runs > 1 && now.mono < self.started + self.settings.ip_delay {
            return;
        }
        let told = self.site.turns.told.entry(from).or_default();
        *told = of.max(*told);
        self.give_up_asking(from, now);
        let mut turns: BTreeMap<AddressKey, (bool, GateMemo)> =
            self.gates.memos(now.mono).map(|(address, gate)| (address, (false, gate))).collect();
        for address in self.has_out(now) {
            turns.entry(address).or_default().0 = true;
        }
        let turns = turns.into_iter().filter(|(address, _)| self.is_keeper(from, *address));
        let turns = turns.map(|(address, (is_out, gate))| (address, is_out, gate)).collect();
        let (members, asked) = (self.site.members.digest(), self.asks_now(now));
        self.send(from, Message::Turn(TurnMessage::Has { of, members, asked, turns }), out);
    }

    /// What was asked for at the addresses of a keeper does not count any more, and is asked for again: who has kept them before
    /// may have given a turn that is still on its way, and the keeper is about to hear that there is none.
    fn give_up_asking(&mut self, keeper: AgentId, now: Now) {
        let waits = self.site.turns.held.iter().filter(|(_, held)| held.turn.is_none());
        let its: Vec<AddressKey> =
            waits.map(|(address, _)| *address).filter(|address| self.is_keeper(keeper, *address)).collect();
        let since = self.site.turns.next_asked(now.mono);
        for address in its {
            if let Some(held) = self.site.turns.held.get_mut(&address) {
                held.since = since;
                if held.asked.take().is_some() {
                    self.site.turns.to_ask.insert(address);
                }
            }
        }
    }
}

/// Whether a gate was asked to be closed. A turn runs out by itself, with the usual wait; this would be lost with its message.
pub(super) fn is_worth_knowing(gate: &GateMemo, ip_delay: Duration) -> bool {
    gate.rest > ip_delay || !gate.busy.is_empty()
}

/// Makes messages that are not too long.
fn in_parts<T>(
    by_agent: BTreeMap<AgentId, Vec<T>>,
    messages: &mut Vec<(AgentId, TurnMessage)>,
    message: impl Fn(Vec<T>) -> TurnMessage,
) {
    for (to, mut list) in by_agent {
        while !list.is_empty() {
            let rest = list.split_off(list.len().min(TURNS_AT_ONCE_MAX));
            messages.push((to, message(std::mem::replace(&mut list, rest))));
        }
    }
}
