//! Talking to the other agents of the site: finding them, telling them that one is well, and agreeing on who holds what.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::site::{Peer, Reply, Site};
use super::{Action, Agent, Recipient, Ticket};
use crate::limits::{AGENTS_MAX, SITES_MAX};
use crate::record::{Found, How, Record};
use crate::site::{AgentId, Greeting, Member, Members, Message, Partitions, SiteSettings, Token};
use crate::time::{Mono, Now};
use crate::url::{Host, identify};

/// How often every other member hears that this one is well.
const BEAT: Duration = Duration::from_secs(1);
/// Who was forgotten and joins again hears for so long what others have taken over.
const UNSURE: Duration = Duration::from_secs(3);
/// Those that are gone hear one of so many beats.
const BEATS_TO_GONE: u64 = 10;
/// How long members have to say what they hold before a token is made anew.
const MINT_WAIT: Duration = Duration::from_secs(5);

impl Agent {
    /// Who it is, and what is to be known of it.
    pub(super) fn introduce(&self) -> Option<Greeting> {
        let SiteSettings { me, name, address, capacity, peers, terms, .. } = self.site.settings.as_ref()?;
        let member = Member {
            name: name.clone(),
            address: address.clone(),
            capacity: *capacity,
            version: self.runs,
            life: 1,
            forgotten: 0,
        };
        Some(Greeting { me: *me, member, peers: peers.clone(), terms: *terms })
    }

    pub(super) fn send(&self, to: AgentId, message: Message, out: &mut Vec<Action>) {
        if let Some(member) = self.site.members.get(to) {
            let to = Recipient { agent: Some((to, member.name.clone())), address: member.address.clone() };
            out.push(Action::Send { to, message: Box::new(message) });
        }
    }

    /// When something here has to be looked at again.
    pub(super) fn next_site_wake(&self) -> Option<Mono> {
        if self.site.is_alone() {
            return None;
        }
        if self.site.is_shared() {
            return self.next_lease_wake();
        }
        let Site { next_beat, outbox, keeper, turns, .. } = &self.site;
        let (handover, recovery) = (self.next_handover_wake(), self.next_recovery_wake());
        let wakes = [handover, recovery, outbox.next_wake(), keeper.next_wake(), turns.next_wake()];
        wakes.into_iter().flatten().min().map_or(Some(*next_beat), |at| Some(at.min(*next_beat)))
    }

    /// Begins the run in the site that it is in, if it is in one.
    pub(super) fn start_site(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.site.is_alone() || self.site.is_shared() {
            return;
        }
        (self.site.next_beat, self.site.orphans_at) = (now.mono, now.mono + MINT_WAIT);
        self.start_keeper(now);
        self.start_turns(now);
        // Others may have forgotten it meanwhile.
        let may_be_gone = self.site.settings.as_ref().is_some_and(|settings| settings.forget_after.is_some());
        self.site.is_cut_off = may_be_gone && self.site.others().next().is_some();
        // It may have found something before it was in a site.
        let agents = self.site.members.present().map(|(id, _)| id).chain([self.site.me()]);
        let agents: BTreeSet<AgentId> = agents.collect();
        self.site.outbox.start(agents.into_iter());
        if self.site.members.is_founded() && self.correct_own() {
            self.write(Record::Members(self.site.members.clone()), None, None, out);
        }
    }

    /// Has the list of members say of this agent what it was told; says whether it did not. Its address may be another one than
    /// before. The last word counts, also if others have heard more of it than its disk has kept.
    fn correct_own(&mut self) -> bool {
        let Some(Greeting { me, mut member, .. }) = self.introduce() else { return false };
        if let Some(known) = self.site.members.get(me) {
            let Member { name, address, capacity, .. } = known;
            if (name, address, *capacity) == (&member.name, &member.address, member.capacity) {
                return false;
            }
            member.version = member.version.max(known.version.saturating_add(1));
        }
        self.site.members.put(me, &member);
        self.site.ring = self.site.ring.with(self.site.members.shares());
        self.site.is_placed = false;
        true
    }

    /// What is to be done from time to time.
    pub(super) fn tend_site(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.site.is_alone() || self.ended {
            return;
        }
        if self.site.is_shared() {
            return self.tend_lease(now, out);
        }
        if now.mono >= self.site.next_beat {
            self.site.next_beat = now.mono + BEAT;
            match self.site.members.is_founded() {
                true => self.beat(now, out),
                false => self.look_for_others(now, out),
            }
        }
        self.tend_handovers(now, out);
        self.tend_recovery(now, out);
        self.tend_outbox(now, out);
        self.exchange_turns(now, out);
    }

    fn look_for_others(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(greeting) = self.introduce() else { return };
        let message = Box::new(Message::Hello(greeting.clone()));
        for peer in greeting.peers.iter().filter(|peer| **peer != greeting.member.address) {
            let to = Recipient { agent: None, address: peer.clone() };
            out.push(Action::Send { to, message: message.clone() });
        }
        let is_founder = greeting.peers.is_empty() || greeting.peers.contains(&greeting.member.address);
        let mut list: BTreeMap<AgentId, Member> = [(greeting.me, greeting.member.clone())].into();
        // Others may be there already that will join.
        let is_listed =
            |met: &Greeting| met.peers == greeting.peers && greeting.peers.contains(&met.member.address);
        for (id, met) in self.site.met.iter().filter(|(_, met)| is_listed(met)) {
            list.insert(*id, met.member.clone());
        }
        let is_there = |peer: &String| list.values().any(|member| member.address == *peer);
        let names: BTreeSet<&String> = list.values().map(|member| &member.name).collect();
        if is_founder
            && names.len() == list.len()
            && list.len() == greeting.peers.len().max(1)
            && greeting.peers.iter().all(is_there)
        {
            self.learn_members(&Members::found(list), now, out);
        }
    }

    fn beat(&mut self, now: Now, out: &mut Vec<Action>) {
        let (members, wishes) = (self.site.members.digest(), self.site.wishes.digest());
        let (run, holds, figures) = (self.runs, self.site.holds, self.figures());
        let beat = Message::Beat { run, members, wishes, holds, figures, full: self.full_sites() };
        self.site.beats += 1;
        if self.site.beats.is_multiple_of(BEATS_TO_GONE) {
            // They may be at work all the same, and not know of it.
            let me = self.site.me();
            let gone = self.site.members.iter().filter(|(id, member)| member.is_gone() && *id != me);
            for (id, _) in gone {
                self.send(id, beat.clone(), out);
                self.send(id, Message::Members(self.site.members.clone()), out);
            }
        }
        let others: Vec<AgentId> = self.site.others().collect();
        for id in &others {
            self.send(*id, beat.clone(), out);
            if self.site.is_well(*id, now.mono) {
                let peer = self.site.peers.entry(*id).or_default();
                if peer.said.is_some() && peer.said != peer.known {
                    self.send(*id, Message::AskHolds, out);
                }
            } else {
                // It may not know where this agent is now, and answer where nobody is.
                self.send(*id, Message::Members(self.site.members.clone()), out);
            }
        }
        if others.iter().any(|id| !self.site.is_well(*id, now.mono)) {
            self.look_for_moved(out);
        }
        self.forget_silent(now, out);
        if self.site.unsure_until.is_some_and(|until| now.mono >= until) && self.all_well_are_heard(now) {
            self.site.unsure_until = None;
        }
        self.grant_again(out);
        self.mint(now, out);
        self.end_rests(now, out);
        self.tend_turns(now);
        self.tend_probations(now, out);
        if !self.site.is_placed {
            self.begin_handovers(now);
        }
        self.look_after_recovery(now, out);
    }

    /// Tells who this agent is where others are said to be and none is known: all of them may have moved.
    fn look_for_moved(&self, out: &mut Vec<Action>) {
        let Some(SiteSettings { address, peers, .. }) = &self.site.settings else { return };
        let is_known = |peer: &String| self.site.members.iter().any(|(_, member)| member.address == *peer);
        for peer in peers.iter().filter(|peer| *peer != address && !is_known(peer)) {
            let to = Recipient { agent: None, address: peer.clone() };
            out.push(Action::Send { to, message: Box::new(Message::Members(self.site.members.clone())) });
        }
    }

    /// Forgets agents that were silent for too long, if there is such a thing. Who hears of nobody cannot tell whether the others
    /// are gone or it is cut off from them: it forgets nobody, and asks nothing, because they may have forgotten it.
    fn forget_silent(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(limit) = self.site.settings.as_ref().and_then(|settings| settings.forget_after) else {
            return;
        };
        let started = self.started;
        let others: Vec<(AgentId, Duration, bool)> = self
            .site
            .others()
            .map(|id| {
                let peer = self.site.peers.get(&id);
                let heard = peer.and_then(|peer| peer.heard);
                let silent = now.mono.since(heard.unwrap_or(started));
                let is_heard = heard.is_some() && silent < limit / 2 && peer.is_some_and(Peer::is_heard);
                (id, silent, is_heard)
            })
            .collect();
        self.site.is_cut_off = !others.is_empty() && !others.iter().any(|(_, _, is_heard)| *is_heard);
        if self.site.is_cut_off {
            return;
        }
        for (id, ..) in others.into_iter().filter(|(_, silent, _)| *silent >= limit) {
            self.forget(id, now, out);
        }
    }

    /// Passes tokens on that were not confirmed.
    fn grant_again(&mut self, out: &mut Vec<Action>) {
        self.site.granting.retain(|_, tokens| !tokens.is_empty());
        // One that is gone may come back, and then it has what was moved to it.
        for (id, tokens) in self.site.granting.iter().filter(|(id, _)| !self.site.is_gone(**id)) {
            self.send(*id, Message::Grant { tokens: tokens.clone().into_iter().collect() }, out);
        }
    }

    /// Makes tokens anew whose holder is gone, where this agent is next, and tells who is next of the others: it may be the only
    /// one that knows who had them last.
    fn mint(&mut self, now: Now, out: &mut Vec<Action>) {
        if now.mono < self.site.orphans_at {
            return;
        }
        // What is on its way to the disk is not made a second time.
        self.site.orphans_at = now.mono + MINT_WAIT;
        let site = &self.site;
        let gone: Vec<AgentId> =
            site.members.iter().map(|(id, _)| id).filter(|id| site.is_gone(*id)).collect();
        let me = site.me();
        if gone.is_empty() || gone.contains(&me) {
            return;
        }
        let seen = Some((site.tokens.changes(), gone.clone()));
        let has_none = seen == site.no_orphans_at;
        let held = site.tokens.iter().filter(|(_, token)| !has_none && gone.contains(&token.holder));
        let held: Vec<(u16, Token)> = held.collect();
        let mut orphans: BTreeMap<AgentId, Vec<(u16, Token)>> = BTreeMap::new();
        for &(partition, token) in &held {
            if let Some(heir) = site.heir(partition) {
                orphans.entry(heir).or_default().push((partition, token));
            }
        }
        let mine = orphans.remove(&me).unwrap_or_default();
        self.site.no_orphans_at = seen.filter(|_| held.is_empty());
        if orphans.is_empty() && mine.is_empty() {
            // Others have all that they held.
            gone.into_iter().for_each(|id| self.site.outbox.forget(id));
        }
        for (heir, tokens) in orphans {
            self.send(heir, Message::Orphans(tokens), out);
        }
        if mine.is_empty() || !self.all_are_heard() {
            return;
        }
        mine.iter().for_each(|(partition, _)| self.rest(*partition, now));
        let tokens = mine.into_iter().map(|(at, token)| (at, token.anew(me, at)));
        self.write(Record::Tokens(tokens.collect()), None, None, out);
    }

    /// Whether all that are well have said what they hold.
    fn all_well_are_heard(&self, now: Now) -> bool {
        self.site.others().all(|id| !self.site.is_well(id, now.mono) || self.site.is_heard(id))
    }

    /// Whether all have, those that are silent by now too: one of them may have had a token from who is gone, and this agent not
    /// have been there to hear of it.
    fn all_are_heard(&self) -> bool {
        self.site.others().all(|id| self.site.is_heard(id))
    }

    /// Another agent knows of tokens whose holders are gone.
    fn on_orphans(&mut self, tokens: Vec<(u16, Token)>, now: Now, out: &mut Vec<Action>) {
        let me = self.site.me();
        let mut anew = Vec::new();
        for (partition, token) in tokens {
            if !self.site.is_gone(token.holder) {
                continue;
            }
            if !self.site.holds(partition) {
                self.site.tokens.learn(partition, token);
            } else if token.beats(self.site.token(partition), partition)
                && !self.site.is_handed_over(partition)
            {
                // Two had made it, and one of them is gone with what it knew. What is held here is held; but others would wait
                // for the one that is gone.
                anew.push((partition, token.anew(me, partition)));
            }
        }
        // Of some this agent was about to hear that the other one had them: that may be asking still.
        let stopped: Vec<u16> = anew.iter().map(|(at, _)| *at).filter(|at| !self.site.may_ask(*at)).collect();
        stopped.into_iter().for_each(|partition| self.rest(partition, now));
        if !anew.is_empty() {
            self.write(Record::Tokens(anew), None, None, out);
        }
    }

    pub(super) fn on_message(
        &mut self,
        from: AgentId,
        name: &str,
        message: Message,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        if self.site.is_alone() || self.ended || from == self.site.me() {
            return;
        }
        // Whose certificate it is that it speaks with.
        let is_it = |members: &Members| members.get(from).is_some_and(|member| member.name == name);
        // One that is not known is known to itself, and to who has let it in.
        let may_tell = |members: &Members| match self.site.members.get(from) {
            Some(member) => member.name == name,
            None => is_it(members),
        };
        if self.site.is_shared() {
            if is_it(&self.site.members) {
                self.on_message_shared(from, message, now, out);
            }
            return;
        }
        match message {
            Message::Hello(greeting) if greeting.me == from && greeting.member.name == name => {
                return self.on_hello(from, greeting, now, out);
            }
            Message::NameTaken { to, id, at } => return self.on_name_taken(to, (id, at), now),
            Message::Differs(terms) => return self.on_differs(from, name, &terms, now),
            Message::Members(members) if may_tell(&members) => {
                return self.on_members(from, &members, now, out);
            }
            Message::Hello(_) | Message::Members(_) => return,
            _ if !is_it(&self.site.members) => return,
            _ => {}
        }
        let was_well = self.site.is_well(from, now.mono);
        self.site.peers.entry(from).or_default().heard = Some(now.mono);
        if !was_well {
            self.site.outbox.wants_a_look();
        }
        match message {
            Message::Hello(_) | Message::Members(_) | Message::Offer { .. } | Message::Full(_) => {}
            Message::Differs(_) | Message::NameTaken { .. } => {}
            Message::Wishes(wishes) => self.on_wishes(&wishes, now, out),
            Message::Claim { call, site, claim } => self.on_claim_message(from, (site, call), *claim, out),
            Message::Release { call, release } => self.on_release(call, release, out),
            Message::Used { site, addresses } => self.on_used(site, &addresses, now),
            Message::Beat { run, members, wishes, holds, figures, mut full } => {
                self.site.figures.insert(from, figures);
                let peer = self.site.peers.entry(from).or_default();
                full.truncate(SITES_MAX);
                peer.full = full;
                peer.said = Some((run, holds));
                peer.wishes = Some(wishes);
                let asks = peer.said != peer.known;
                if members != self.site.members.digest() {
                    self.send(from, Message::Members(self.site.members.clone()), out);
                }
                self.compare_wishes(from, wishes, out);
                if asks {
                    self.send(from, Message::AskHolds, out);
                }
            }
            Message::AskHolds => {
                let (run, version) = (self.runs, self.site.holds);
                let (partitions, owes) = (self.site.held_with_epochs(), self.site.owing());
                self.send(from, Message::Holds { run, version, partitions, owes }, out);
            }
            Message::Holds { run, version, partitions, owes } => {
                self.on_holds(from, (run, version), &partitions, &owes, now, out);
            }
            Message::Outdated(tokens) => self.learn_tokens(tokens, now, out),
            Message::Deliver { batch, pages } => self.on_deliver(from, batch, pages, out),
            Message::Delivered { batch } => self.on_delivered(from, batch),
            Message::Move { handover, part, owed, at, moved } => {
                let moved = moved.translated(at, now.wall);
                self.on_move(from, (handover, part), owed, moved, now, out);
            }
            Message::Moved { handover, part } => self.on_moved(from, handover, part, now, out),
            Message::MoveAgain { handover } => self.on_move_again(from, handover, now, out),
            Message::Orphans(tokens) => self.on_orphans(tokens, now, out),
            Message::Grant { tokens } => self.on_grant(from, tokens, out),
            Message::AskRules { origin, url, hops } => {
                self.on_ask_rules(from, origin, &url, hops, now, out);
            }
            Message::Rules { origin, url, hops, result } => {
                self.on_rules(&origin, &url, hops, *result, now, out);
            }
            Message::Turn(turn) => self.on_turn_message(from, turn, now, out),
            Message::Granted { tokens } => self.site.granted(from, &tokens),
        }
    }

    fn on_hello(&mut self, from: AgentId, greeting: Greeting, now: Now, out: &mut Vec<Action>) {
        if self.refuses(from, &greeting, out) {
            return;
        }
        if !self.site.members.is_founded() {
            // One that has lost its disk has another number. Two of different names at one address are a mistake in a file: the
            // site does not begin with them.
            let Member { name, address, .. } = &greeting.member;
            self.site.met.retain(|id, Greeting { member, .. }| {
                *id == from || (&member.name, &member.address) != (name, address)
            });
            if self.site.met.len() < AGENTS_MAX {
                self.site.met.insert(from, greeting);
            }
            return;
        }
        if self.is_namesake(from, &greeting, now, out) {
            return;
        }
        let mut members = self.site.members.clone();
        members.put(from, &greeting.member);
        self.learn_members(&members, now, out);
        self.send(from, Message::Members(self.site.members.clone()), out);
    }

    fn on_members(&mut self, from: AgentId, members: &Members, now: Now, out: &mut Vec<Action>) {
        if !self.site.members.is_founded() && members.get(self.site.me()).is_none() {
            // Nobody has let it in.
            return;
        }
        self.learn_members(members, now, out);
        if self.site.members.get(from).is_some() {
            self.site.peers.entry(from).or_default().heard = Some(now.mono);
        }
        let me = self.site.me();
        if members.is_gone(me) && !self.site.is_gone(me) {
            // It is not told by beats while it takes this agent for gone.
            self.send(from, Message::Members(self.site.members.clone()), out);
        }
    }

    /// The operator says that an agent will not come back.
    pub(super) fn forget(&mut self, id: AgentId, now: Now, out: &mut Vec<Action>) {
        if self.site.is_shared() {
            // Its lease ends by itself.
            return;
        }
        let mut members = self.site.members.clone();
        if members.forget(id) {
            self.learn_members(&members, now, out);
        }
    }

    /// Takes in a list of members, and writes it down if it is news.
    fn learn_members(&mut self, members: &Members, now: Now, out: &mut Vec<Action>) {
        let gone = |site: &Site| site.members.iter().filter(|(id, _)| site.is_gone(*id)).count();
        let gone_before = gone(&self.site);
        if !self.site.learn_members(members) {
            return;
        }
        self.site.outbox.wants_a_look();
        self.correct_own();
        if self.site.rejoin() {
            self.site.orphans_at = now.mono + MINT_WAIT;
            self.site.unsure_until = Some(now.mono + UNSURE);
        }
        if gone(&self.site) > gone_before {
            self.site.orphans_at = now.mono + MINT_WAIT;
        }
        self.write(Record::Members(self.site.members.clone()), None, None, out);
    }

    fn on_holds(
        &mut self,
        from: AgentId,
        version: (u64, u64),
        partitions: &[(u16, u64)],
        owes: &[u16],
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let tokens = partitions.iter().map(|(at, epoch)| (*at, Token { holder: from, epoch: *epoch }));
        self.learn_tokens(tokens.collect(), now, out);
        let known = |partition: u16| (partition, self.site.token(partition));
        // Who was away may not know who has them now, and those who do may be away.
        let outdated = partitions.iter().map(|(partition, _)| known(*partition));
        let outdated: Vec<(u16, Token)> =
            outdated.filter(|(_, token)| token.holder != from && !self.site.is_gone(token.holder)).collect();
        let held = partitions.iter().map(|(partition, _)| *partition);
        let peer = self.site.peers.entry(from).or_default();
        peer.has = held.chain(owes.iter().copied()).collect();
        // It is asked again until it knows.
        peer.known = Some(version).filter(|_| outdated.is_empty());
        self.site.granted(from, partitions);
        if !outdated.is_empty() {
            self.send(from, Message::Outdated(outdated), out);
        }
    }

    /// Takes in who holds what.
    fn learn_tokens(&mut self, tokens: Vec<(u16, Token)>, now: Now, out: &mut Vec<Action>) {
        let mut lost = Vec::new();
        for (partition, token) in tokens {
            let before = self.site.token(partition).holder;
            // What is given to this agent it is told otherwise.
            if token.holder == self.site.me() || !self.site.tokens.learn(partition, token) {
                continue;
            }
            if self.site.held.contains(partition) {
                lost.push((partition, token));
            }
            if before != token.holder {
                self.site.outbox.moves(before, token.holder);
            }
        }
        if !lost.is_empty() {
            self.give_back(lost, now, out);
        }
        self.site.outbox.wants_a_look();
    }

    fn on_grant(&mut self, from: AgentId, tokens: Vec<(u16, u64)>, out: &mut Vec<Action>) {
        let me = self.site.me();
        let granted = |(partition, epoch): (u16, u64)| (partition, Token { holder: me, epoch });
        let (mut old, mut news) = (Vec::new(), Vec::new());
        for (partition, token) in tokens.into_iter().map(granted) {
            let known = self.site.tokens.get(partition);
            if token.beats(known, partition) || token == known && !self.site.holds(partition) {
                news.push((partition, token));
            } else if known.holder == me || self.site.owes(partition) {
                old.push((partition, token.epoch));
            } else {
                // Another holds it by now. What came with the token is here all the same, and has to go there.
                news.push((partition, known));
            }
        }
        if !old.is_empty() {
            self.send(from, Message::Granted { tokens: old }, out);
        }
        let tokens: Vec<(u16, u64)> =
            news.iter().map(|(partition, token)| (*partition, token.epoch)).collect();
        let under_way =
            |reply: &Reply| matches!(reply, Reply::Granted(other, of) if *other == from && *of == tokens);
        if tokens.is_empty() || self.site.replies.values().any(under_way) {
            return;
        }
        let ticket = self.write(Record::Tokens(news), None, None, out);
        self.site.replies.insert(ticket, Reply::Granted(from, tokens));
    }

    /// What was taken of a host and is not asked for yet goes back into its queue.
    pub(super) fn put_back_all(&mut self, host: &Host, now: Now, out: &mut Vec<Action>) {
        if let Some(index) = self.bench.find(host) {
            self.put_back(index, out);
            if self.is_at_rest(index) {
                self.settle_in(index, now);
            }
        }
    }

    /// The same of hosts of which another site gives back what it has tried: how often is noted with what waits.
    pub(super) fn put_back_tried(&mut self, found: &[Found], now: Now, out: &mut Vec<Action>) {
        let was_tried = |found: &&Found| matches!(found.how, How::Returned { attempts: 1.., .. });
        for found in found.iter().filter(was_tried) {
            if let Some((host, _)) = identify(&found.url) {
                self.put_back_all(&host, now, out);
            }
        }
    }

    /// A record that concerns the site is durable.
    pub(super) fn on_site_recorded(
        &mut self,
        ticket: Ticket,
        place: u64,
        record: &Record,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        if self.site.is_shared() {
            return self.on_recorded_shared(record, now, out);
        }
        match record {
            Record::Tokens(tokens) => {
                let held_before = self.site.held.clone();
                for (partition, token) in tokens {
                    let before = self.site.tokens.get(*partition).holder;
                    if before != token.holder {
                        self.site.outbox.moves(before, token.holder);
                    }
                }
                self.site.take_tokens(tokens);
                for (partition, _) in tokens.iter().filter(|(_, token)| !token.is_new()) {
                    self.site.resting.remove(partition);
                }
                let mut came = Partitions::default();
                for (partition, _) in tokens {
                    if self.site.held.contains(*partition) && !held_before.contains(*partition) {
                        came.insert(*partition);
                        let from = self.site.came.entry(*partition).or_insert(now.mono);
                        *from = (*from).max(now.mono);
                    }
                }
                let is_passed_on = matches!(self.site.replies.get(&ticket), Some(Reply::Granted(..)));
                self.leave_alone(&came);
                self.kept_partitions_changed(came, is_passed_on, now);
                let partitions: Partitions = tokens.iter().map(|(partition, _)| *partition).collect();
                self.forget_hosts_of(&partitions);
                self.settle_in_of(&partitions, now);
                // Something of their hosts may be due, and something may have waited for them.
                self.away.want();
                self.site.outbox.wants_a_look();
            }
            Record::Released { to, tokens, .. } => {
                self.site.release_tokens(*to, tokens);
                self.kept_partitions_changed(Partitions::default(), true, now);
                self.released(*to, tokens, out);
                self.site.outbox.moves(self.site.me(), *to);
            }
            Record::Returned { version } => self.recall_returned(*version),
            Record::Claimed { host, version, memo } => {
                self.host_is_claimed(host, *version, memo.as_deref(), now);
            }
            Record::Granted { host, version, to } => self.host_is_granted(host, *version, to, now),
            Record::Recovered(recovered) => {
                self.site.take_recovered(recovered);
                self.are_recovered();
            }
            Record::RunStarted { .. } => self.run_is_durable(now),
            // Another agent may have done what is about to be asked for, or tried it.
            Record::Moved { moved, .. } => {
                moved.hosts.iter().for_each(|moved| self.put_back_all(&moved.host, now, out));
            }
            Record::Arrived(arrived) => self.put_back_tried(&arrived.found, now, out),
            _ => {}
        }
        match self.site.replies.remove(&ticket) {
            Some(Reply::Delivered(to, batch)) => self.send(to, Message::Delivered { batch }, out),
            Some(Reply::Moved { from, id, part, .. }) if from == self.site.me() => {
                self.on_recovered_part(from, id, part, now);
            }
            Some(Reply::Moved { from, id, part, .. }) => self.part_is_durable(from, id, part, out),
            Some(Reply::Granted(to, tokens)) => self.send(to, Message::Granted { tokens }, out),
            None => {}
        }
        self.route_found(place, record);
    }
}
