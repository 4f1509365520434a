//! Bringing together what is still known of partitions whose tokens had to be made anew.
//!
//! With an agent that is gone went what only it knew. The others have copies of some of it: pages of these partitions that they
//! fetched when they held them, and links to them on pages of all others. So each member reads its records once more from the
//! first to the last: for what it fetched, and then, with the answers in its archive, for links. Whoever holds the partitions by
//! now gets it, part by part, as it gets what is handed over; what it holds itself a member writes down for itself. When all of
//! a partition is durable there, that is noted under the life of its token, and nobody does it again. What changes hands
//! meanwhile is begun anew. All of this may happen any number of times: what is known already is not news.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use super::handover::SILENCE_MAX;
use super::site::AGAIN;
use super::{Action, Agent, Answer, Due, LookBack};
use crate::assign::partition_of;
use crate::limits::MOVED_URLS_MAX;
use crate::record::{Found, How, Outcome, Record, Recovered, RobotsOutcome, Settled};
use crate::robots::Robots;
use crate::site::{AgentId, Message, Moved, MovedHost, Partitions, SeenUrl, Waiting};
use crate::time::{Mono, Now};
use crate::url::{Fingerprint, Host, Url, identify};

/// The wait between two looks at the records: there is other work too.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Links that are remembered so as not to be passed on twice.
const MET_MAX: usize = 65_536;

/// What is under way.
#[derive(Debug)]
pub(super) struct Recovery {
    targets: BTreeMap<AgentId, Target>,
    /// The life of the token of each partition when it began.
    lives: Vec<u64>,
    reading: Reading,
    /// The place of the last record when it began: what came later goes to the holders of today by itself.
    until: u64,
    /// Whether it reads for links; before, it reads for what was fetched.
    for_links: bool,
    met: HashSet<Fingerprint>,
}

#[derive(Debug)]
enum Reading {
    /// It goes on at a place, at this time.
    From(u64, Mono),
    /// This was asked for.
    Asked(LookBack),
    Ended,
}

/// Who is to hear of some of the partitions.
#[derive(Debug)]
struct Target {
    id: (u64, u64),
    partitions: Partitions,
    seen: VecDeque<(Host, SeenUrl)>,
    found: VecDeque<(Host, Found, Option<String>)>,
    /// The part that is sent next, or was.
    part: u32,
    sent: Option<(Moved, Mono)>,
    /// The last sign that it goes on.
    alive: Mono,
    is_noted: bool,
    counts: (u64, u64),
}

impl Target {
    fn waiting(&self) -> usize {
        self.seen.len() + self.found.len()
    }

    /// The next part.
    fn take(&mut self) -> Moved {
        let mut hosts: BTreeMap<Host, Vec<SeenUrl>> = BTreeMap::new();
        let count = self.seen.len().min(MOVED_URLS_MAX);
        for (host, seen) in self.seen.drain(..count) {
            hosts.entry(host).or_default().push(seen);
        }
        let mut moved = Moved::default();
        let left = self.found.len().min(MOVED_URLS_MAX - count);
        for (host, found, via) in self.found.drain(..left) {
            hosts.entry(host).or_default();
            moved.found.push(found);
            moved.waiting.push(Waiting { via, ..Waiting::default() });
        }
        moved.hosts = hosts.into_iter().map(|(host, seen)| MovedHost { host, memo: None, seen }).collect();
        self.counts.0 += count as u64;
        self.counts.1 += left as u64;
        moved
    }

    /// Leaves out what is not for this agent any more.
    fn narrow(&mut self) {
        let Target { partitions, seen, found, sent, .. } = self;
        let is_its = |host: &Host| partitions.contains(partition_of(host));
        seen.retain(|(host, _)| is_its(host));
        found.retain(|(host, ..)| is_its(host));
        if let Some((moved, _)) = sent {
            moved.hosts.retain(|moved| is_its(&moved.host));
            let both = std::mem::take(&mut moved.found).into_iter().zip(std::mem::take(&mut moved.waiting));
            let is_its = |found: &Found| identify(&found.url).is_some_and(|(host, _)| is_its(&host));
            (moved.found, moved.waiting) = both.filter(|(found, _)| is_its(found)).unzip();
        }
    }
}

impl Agent {
    /// Begins with what was not brought together yet, as far as somebody is there to take it; or gives up what nobody is there
    /// for any more.
    pub(super) fn look_after_recovery(&mut self, now: Now, out: &mut Vec<Action>) {
        self.drop_targets(now);
        let has_lost = self.site.members.iter().any(|(_, member)| member.forgotten > 0);
        let may_begin = self.site.recovery.is_none() && has_lost && !self.is_returning();
        let Some(until) = self.site.outbox.last.filter(|_| may_begin && !self.site.is_recovered()) else {
            return;
        };
        let me = self.site.me();
        let mut targets: BTreeMap<AgentId, Partitions> = BTreeMap::new();
        for (partition, holder) in self.site.unrecovered() {
            if holder == me || self.site.is_well(holder, now.mono) {
                targets.entry(holder).or_default().insert(partition);
            }
        }
        if targets.is_empty() {
            return;
        }
        if self.goes_by_cash() {
            let all = targets.values().flat_map(Partitions::iter).collect();
            out.push(Action::TellAnew { partitions: all });
        }
        let mut target = |partitions| {
            self.site.handovers_begun += 1;
            Target {
                id: (self.runs, self.site.handovers_begun),
                partitions,
                seen: VecDeque::new(),
                found: VecDeque::new(),
                part: 0,
                sent: None,
                alive: now.mono,
                is_noted: false,
                counts: (0, 0),
            }
        };
        let targets = targets.into_iter().map(|(to, partitions)| (to, target(partitions))).collect();
        let lives = self.site.tokens.iter().map(|(_, token)| token.life()).collect();
        let reading = Reading::From(0, now.mono);
        self.site.recovery =
            Some(Recovery { targets, lives, reading, until, for_links: false, met: HashSet::new() });
    }

    pub(super) fn next_recovery_wake(&self) -> Option<Mono> {
        let recovery = self.site.recovery.as_ref()?;
        let others = recovery.targets.iter().filter(|(to, _)| **to != self.site.me());
        let resend = others.filter_map(|(_, target)| Some(target.sent.as_ref()?.1 + AGAIN));
        let look = match recovery.reading {
            Reading::From(_, at) if !recovery.is_full() => Some(at),
            _ => None,
        };
        resend.chain(look).min()
    }

    /// Goes on with it.
    pub(super) fn tend_recovery(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(recovery) = &mut self.site.recovery else { return };
        if let Reading::From(from, at) = recovery.reading
            && now.mono >= at
            && !recovery.is_full()
        {
            let asked = LookBack { from, until: recovery.until, with_answers: recovery.for_links };
            recovery.reading = Reading::Asked(asked);
            out.push(Action::LookBack(asked));
        }
        let ids: Vec<AgentId> = recovery.targets.keys().copied().collect();
        for to in ids {
            self.tend_target(to, now, out);
        }
        self.note_recovered(out);
    }

    /// Leaves out who is not there.
    fn drop_targets(&mut self, now: Now) {
        let Some(mut recovery) = self.site.recovery.take() else { return };
        let me = self.site.me();
        recovery.targets.retain(|to, target| {
            self.leave_out_moved(*to, target, &recovery.lives);
            let is_silent = *to != me
                && (self.site.is_gone(*to)
                    || !self.site.is_well(*to, now.mono) && now.mono.since(target.alive) >= SILENCE_MAX);
            !target.partitions.is_empty() && (target.is_noted || !is_silent)
        });
        // What the store still answers is not looked at if nobody is left.
        self.site.recovery = Some(recovery).filter(|recovery| !recovery.targets.is_empty());
    }

    /// Leaves out the partitions that an agent does not hold any more, has lost meanwhile, or is about to pass on.
    fn leave_out_moved(&self, to: AgentId, target: &mut Target, lives: &[u64]) {
        let is_its = |partition: &u16| {
            let token = self.site.token(*partition);
            let is_passed_on = to == self.site.me() && self.site.is_handed_over(*partition);
            token.holder == to && lives.get(usize::from(*partition)) == Some(&token.life()) && !is_passed_on
        };
        if !target.is_noted && !target.partitions.iter().all(|partition| is_its(&partition)) {
            target.partitions = target.partitions.iter().filter(is_its).collect();
            target.narrow();
        }
    }

    /// Sends the next part, or the last one again.
    fn tend_target(&mut self, to: AgentId, now: Now, out: &mut Vec<Action>) {
        let me = self.site.me();
        let Some(mut recovery) = self.site.recovery.take() else { return };
        let is_ended = matches!(recovery.reading, Reading::Ended);
        let is_due = |target: &Target| match &target.sent {
            Some((_, at)) => to != me && now.mono >= *at + AGAIN,
            None => target.waiting() >= MOVED_URLS_MAX || is_ended && target.waiting() > 0,
        };
        if let Some(target) = recovery.targets.get_mut(&to).filter(|target| is_due(target)) {
            self.leave_out_moved(to, target, &recovery.lives);
            let moved = target.sent.take().map_or_else(|| target.take(), |(moved, _)| moved);
            let (id, part, owed) = (target.id, target.part, target.partitions.iter().collect());
            target.sent = Some((moved.clone(), now.mono));
            match to == me {
                true => self.write_moved(me, id, part, moved, out),
                false => {
                    self.send(to, Message::Move { handover: id, part, owed, at: now.wall, moved }, out);
                }
            }
        }
        self.site.recovery = Some(recovery);
    }

    /// Notes which partitions are done.
    fn note_recovered(&mut self, out: &mut Vec<Action>) {
        let Some(Recovery { targets, lives, reading: Reading::Ended, .. }) = &mut self.site.recovery else {
            return;
        };
        let mut recovered = Recovered::default();
        for target in targets.values_mut() {
            if target.is_noted || target.sent.is_some() || target.waiting() > 0 {
                continue;
            }
            target.is_noted = true;
            let of = target.partitions.iter();
            recovered.partitions.extend(of.filter_map(|at| Some((at, *lives.get(usize::from(at))?))));
            recovered.pages += target.counts.0;
            recovered.urls += target.counts.1;
        }
        if !recovered.partitions.is_empty() {
            self.write(Record::Recovered(recovered), None, None, out);
        }
    }

    /// They are done, durably.
    pub(super) fn are_recovered(&mut self) {
        if let Some(recovery) = &mut self.site.recovery {
            recovery.targets.retain(|_, target| !target.is_noted);
        }
    }

    /// A part is durable; says whether it was one of these.
    pub(super) fn on_recovered_part(&mut self, from: AgentId, id: (u64, u64), part: u32, now: Now) -> bool {
        let target = self.site.recovery.as_mut().and_then(|recovery| recovery.targets.get_mut(&from));
        let Some(target) = target.filter(|target| target.id == id) else { return false };
        if target.sent.is_some() && target.part == part {
            (target.sent, target.alive) = (None, now.mono);
            target.part += 1;
        }
        true
    }

    /// The other agent has lost track of the parts: they are numbered anew; says whether it was about these.
    pub(super) fn renumber_recovery(&mut self, from: AgentId, id: (u64, u64)) -> bool {
        let target = self.site.recovery.as_mut().and_then(|recovery| recovery.targets.get_mut(&from));
        let Some(target) = target.filter(|target| target.id == id) else { return false };
        self.site.handovers_begun += 1;
        (target.id, target.part) = ((self.runs, self.site.handovers_begun), 0);
        if let Some((_, at)) = &mut target.sent {
            *at = Mono(0);
        }
        true
    }

    /// Records of this agent, and the answers that they are about.
    pub(super) fn on_looked_back(
        &mut self,
        asked: LookBack,
        looked: Vec<(u64, Box<Record>, Option<Box<Answer>>)>,
        next: Option<u64>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        if self.is_returning() {
            let records = looked.into_iter().map(|(_, record, _)| *record);
            self.on_looked_back_for_sent(asked, records, next, now, out);
            return;
        }
        let Some(mut recovery) = self.site.recovery.take() else { return };
        if !matches!(recovery.reading, Reading::Asked(other) if other == asked) {
            // One that was given up had asked for it.
            self.site.recovery = Some(recovery);
            return;
        }
        for (place, record, answer) in looked {
            match (recovery.for_links, &*record) {
                (false, Record::Settled(settled)) if settled.outcome.is_final() => {
                    recovery.add_seen(place, settled);
                }
                (false, _) => {}
                (true, Record::Settled(settled)) => {
                    let found = answer.map(|answer| self.links_again(settled, *answer)).unwrap_or_default();
                    found.into_iter().for_each(|found| recovery.add_found(found, Some(&settled.url)));
                }
                (true, Record::Robots(robots)) => {
                    let RobotsOutcome::Rules { body, .. } = &robots.outcome else { continue };
                    let named = Robots::parse(body, &self.settings.token).sitemaps;
                    let found = self.sitemaps(&named).into_iter();
                    found.for_each(|found| recovery.add_found(found, Some(&robots.url)));
                }
                (true, record) => {
                    for (index, found) in record.found().iter().enumerate() {
                        recovery.add_found(found.clone(), record.page(index));
                    }
                }
            }
        }
        recovery.reading = match next {
            Some(next) => Reading::From(next, now.mono + LOOK_EVERY),
            None if recovery.for_links => Reading::Ended,
            None => {
                recovery.for_links = true;
                Reading::From(0, now.mono)
            }
        };
        self.site.recovery = Some(recovery);
    }

    /// What an archived answer adds to the crawl.
    fn links_again(&self, settled: &Settled, mut answer: Answer) -> Vec<Found> {
        let Ok(url) = Url::parse(&settled.url) else { return Vec::new() };
        let &Settled { depth, how, attempts, found_in, .. } = settled;
        // How many redirects led to it is not known any more.
        let due = Due { url, depth, how, redirects: 0, attempts, via: None, found_in, cash: None };
        self.links_of(&due, &mut answer).found
    }
}

impl Recovery {
    /// Whether somebody has to take what was found before more is looked for.
    fn is_full(&self) -> bool {
        self.targets.values().any(|target| target.waiting() >= 2 * MOVED_URLS_MAX)
    }

    fn target(&mut self, host: &Host) -> Option<&mut Target> {
        let partition = partition_of(host);
        self.targets.values_mut().find(|target| !target.is_noted && target.partitions.contains(partition))
    }

    fn add_seen(&mut self, place: u64, settled: &Settled) {
        let Some((host, fingerprint)) = identify(&settled.url) else { return };
        let is_sent = matches!(settled.outcome, Outcome::Sent { .. });
        if let Some(target) = self.target(&host) {
            target.seen.push_back((host, SeenUrl { fingerprint, place, is_sent }));
        }
    }

    fn add_found(&mut self, found: Found, via: Option<&str>) {
        let Some((host, fingerprint)) = identify(&found.url) else { return };
        if self.target(&host).is_none() || found.how != How::Seed && !self.met.insert(fingerprint) {
            return;
        }
        if self.met.len() >= MET_MAX {
            self.met.clear();
        }
        if let Some(target) = self.target(&host) {
            target.found.push_back((host, found, via.map(str::to_owned)));
        }
    }
}
