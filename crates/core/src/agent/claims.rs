//! Hosts that belong to this site now and were another's before.
//!
//! An agent learns of a new list of sites when it is started, so that one which has a list asks no host that belongs to another
//! site by it. A host that the list gives to this site and an earlier one did not is *claimed* before it is asked: the others
//! say, once they have the same list, whether it was theirs, what it asked for, and which of its URLs are done. What they have
//! queued of it comes as all that they find does. The claim is good when the one says so that had the host, or when nobody did;
//! that is noted durably behind all that came with it. If whoever had it cannot be reached, the host waits.
//!
//! Whoever is asked passes the question on to the agent that holds the host's partition. It keeps what it knows, and says the
//! same again as often as it is asked: a claim that was broken off begins anew.
//!
//! A host that goes to the nearest site is claimed by that one from its registrar alone, which has granted it or refuses
//! ([`super::registrar`]).

use std::collections::BTreeMap;
use std::time::Duration;

use super::handover::Cursor;
use super::site::Site;
use super::{Action, Agent, Ticket};
use crate::assign::partition_of;
use crate::federation::{Claim, Federation, Release, SiteNumber};
use crate::frontier::{Grant, HostMemo, Place, Wait, Workbench};
use crate::limits::{CLAIMS_MAX, RELAYED_MAX, UNSETTLED_MAX};
use crate::record::{Found, Record};
use crate::site::{AgentId, Message, Moved, MovedHost};
use crate::time::{Mono, Now};
use crate::url::{Host, identify};

/// A host that is being claimed is looked at again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A site that gives no answer is asked again after this, and after twice as long each time,
const AGAIN_MIN: Duration = Duration::from_secs(1);
/// up to this.
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// For how many URLs a part of an answer counts at least that is not the last: parts that say little could come for ever.
const PART_URLS_MIN: usize = 256;
/// The longest place to go on from that is kept for another site.
const CURSOR_BYTES_MAX: usize = 64;

/// What another site has to say of a host.
#[derive(Debug)]
struct Question {
    site: SiteNumber,
    /// Where it goes on, unless this is the beginning.
    from: Option<Cursor>,
    /// URLs that it has told of, or as good as.
    told: u64,
    failures: u32,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    AskAt(Mono),
    Asked(u64),
    Answered,
}

/// A host on its way to us.
#[derive(Debug)]
struct Claiming {
    questions: Vec<Question>,
    memo: Option<HostMemo>,
    /// The record that says that it is ours.
    ticket: Option<Ticket>,
}

/// Who wants to know what we have of a host.
#[derive(Clone, Copy, Debug)]
enum Asker {
    /// Another site, which waits for the answer to this call.
    Site(u64),
    /// An agent of our site that was asked, under its number.
    Agent(AgentId, u64),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Lists that were had before, the newest first.
    pub(super) earlier: Vec<Federation>,
    under_way: BTreeMap<Host, Claiming>,
    /// Questions to other sites, to the store, and to agents of our site.
    asked: u64,
    reading: BTreeMap<u64, (SiteNumber, Asker)>,
    relayed: BTreeMap<u64, u64>,
}

/// Whether a host was given to a site by all these lists, the newest first, since it was claimed in that version, or since there
/// is any list.
fn is_owned<'a>(lists: impl Iterator<Item = &'a Federation>, me: &str, host: &Host, claimed: u64) -> bool {
    for list in lists {
        if claimed >= list.version() {
            return true;
        }
        if list.owner(host) != me {
            return false;
        }
        if list.version() <= 1 {
            return true;
        }
    }
    false
}

/// As a host remembers it: no list is changed so often.
pub(super) fn version_of(version: u64) -> u32 {
    u32::try_from(version).unwrap_or(u32::MAX)
}

/// Whether a host was granted to another site after it was claimed last.
fn is_away(granted: Option<Grant>, claimed: u64) -> bool {
    granted.is_some_and(|grant| u64::from(grant.version) >= claimed)
}

/// Whether a host may have been granted by an agent of ours that was lost with its disk: then any site may have it, whatever an
/// earlier list says.
fn is_forgetful(federation: &Federation, site: &Site, host: &Host) -> bool {
    let is_registrar = federation.is_by_place(host) && federation.site_of(host) == federation.me();
    is_registrar && site.token(partition_of(host)).life() != 0
}

impl Claims {
    /// A host is not claimed any more, whatever is answered.
    fn forget(&mut self, host: &Host) {
        self.under_way.remove(host);
    }

    /// Lets go of a claim that waits for a site that does not answer, or whose host has left the memory, if there are as many as
    /// there may be: others need not wait for it, and it begins anew.
    fn make_room(&mut self, bench: &Workbench) {
        if self.under_way.len() < CLAIMS_MAX {
            return;
        }
        let is_stuck = |(host, claiming): &(&Host, &Claiming)| {
            let fails = claiming.questions.iter().any(|question| question.failures > 1);
            claiming.ticket.is_none() && (fails || bench.find(host).is_none())
        };
        if let Some((host, _)) = self.under_way.iter().find(is_stuck) {
            let host = host.clone();
            self.forget(&host);
        }
    }
}

impl Agent {
    /// Hosts are not claimed any more, or have to be anew.
    pub(super) fn forget_claims(&mut self, which: impl Fn(&Host) -> bool) {
        if let Some(exchange) = self.exchange.as_deref_mut() {
            exchange.claims.under_way.retain(|host, _| !which(host));
        }
    }

    /// The same agent, whose site has had these lists before.
    pub fn with_earlier_lists(mut self, mut earlier: Vec<Federation>) -> Agent {
        earlier.sort_by_key(|list| std::cmp::Reverse(list.version()));
        if let Some(exchange) = self.exchange.as_deref_mut() {
            exchange.claims.earlier = earlier;
        }
        self
    }

    /// Whether a host of our site may be asked.
    pub(super) fn is_claimed(&mut self, index: u32) -> bool {
        let Some(exchange) = self.exchange.as_deref() else { return true };
        let host = self.bench.host(index);
        if host.is_owned {
            return true;
        }
        let federation = &exchange.federation;
        let me = &federation.site(federation.me()).name;
        let lists = std::iter::once(federation).chain(&exchange.claims.earlier);
        let claimed = host.claimed.into();
        let is_owned = !is_away(host.granted, claimed)
            && is_owned(lists, me, &host.name, claimed)
            && !self.may_have_forgotten_grants(&host.name, claimed);
        self.bench.host_mut(index).is_owned = is_owned;
        is_owned
    }

    /// Whether a host of our site may have been another's.
    pub(super) fn may_have_been_theirs(&self, host: &Host) -> bool {
        let Some(exchange) = self.exchange.as_deref() else { return false };
        let federation = &exchange.federation;
        let mut lists = std::iter::once(federation).chain(&exchange.claims.earlier);
        if lists.any(|list| list.is_by_place(host)) {
            return true;
        }
        if federation.version() <= 1 {
            return false;
        }
        let me = &federation.site(federation.me()).name;
        !is_owned(std::iter::once(federation).chain(&exchange.claims.earlier), me, host, 0)
    }

    /// Whether a host is of our site, and no other site has a say in it.
    pub fn owns(&mut self, host: &Host) -> bool {
        let is_ours = self.other_site(host).is_none();
        is_ours && self.bench.find(host).is_some_and(|index| self.is_claimed(index))
    }

    /// A host of ours has its turn that was another's.
    pub(super) fn claim(&mut self, index: u32, now: Now) {
        let name = self.bench.host(index).name.clone();
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let claims = &mut exchange.claims;
        if !claims.under_way.contains_key(&name) {
            claims.make_room(&self.bench);
        }
        if !claims.under_way.contains_key(&name) && claims.under_way.len() < CLAIMS_MAX {
            let federation = &exchange.federation;
            let others = federation.sites().filter(|(at, site)| *at != federation.me() && !site.is_gone);
            // By the first list a host was its owner's, whoever else there is. By one that we never had it may have been
            // anybody's.
            let is_first = |first: &Federation| first.version() == 1 && !first.is_by_place(&name);
            let registrar = federation.site_of(&name);
            let owner = match &claims.earlier[..] {
                // Ours it is only if that site says so.
                _ if registrar != federation.me() => Some(&*federation.site(registrar).name),
                _ if is_forgetful(federation, &self.site, &name) => None,
                [first] if is_first(first) && federation.version() == 2 => Some(first.owner(&name)),
                _ => None,
            };
            let others = others.filter(|(_, site)| owner.is_none_or(|owner| site.name == owner));
            let question = |(site, _)| Question {
                site,
                from: None,
                told: 0,
                failures: 0,
                stage: Stage::AskAt(now.mono),
            };
            let questions = others.map(question).collect();
            claims.under_way.insert(name, Claiming { questions, memo: None, ticket: None });
        }
        self.bench.put_until(index, Place::Waiting(Wait::Claim), now.mono + LOOK_AGAIN);
    }

    /// Asks what is to be asked now, and notes what is ours.
    pub(super) fn tend_claims(&mut self, now: Now, out: &mut Vec<Action>) {
        let is_full = self.unsettled.len() >= UNSETTLED_MAX / 2;
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        if is_full || exchange.claims.under_way.is_empty() {
            return;
        }
        let (list, federation, claims) =
            (exchange.federation.list(), &exchange.federation, &mut exchange.claims);
        let (bench, site) = (&self.bench, &self.site);
        // One whose host is another agent's, or about to be, begins anew where that is.
        claims
            .under_way
            .retain(|host, claiming| claiming.ticket.is_some() || site.may_ask(partition_of(host)));
        let mut done = Vec::new();
        for (host, claiming) in &mut claims.under_way {
            for question in &mut claiming.questions {
                let Stage::AskAt(at) = question.stage else { continue };
                if now.mono < at {
                    continue;
                }
                claims.asked += 1;
                let call = claims.asked;
                question.stage = Stage::Asked(call);
                let gateways = &federation.site(question.site).gateways;
                let gateway = gateways.get(question.failures as usize % gateways.len().max(1)).cloned();
                let claim = Box::new(Claim { list, host: host.clone(), from: question.from.clone() });
                let site = question.site;
                out.push(Action::Claim { site, gateway: gateway.unwrap_or_default(), call, claim });
            }
            let is_answered = |question: &Question| matches!(question.stage, Stage::Answered);
            // It may have left the memory meanwhile, and comes back.
            let index = bench.find(host).filter(|_| claiming.questions.iter().all(is_answered));
            if let (None, Some(index)) = (claiming.ticket, index) {
                done.push((host.clone(), index, claiming.memo.take()));
            }
        }
        for (host, index, memo) in done {
            let record =
                Record::Claimed { host: host.clone(), version: list.version, memo: memo.map(Box::new) };
            let ticket = self.write(record, Some(index), None, out);
            let exchange = self.exchange.as_deref_mut();
            if let Some(claiming) = exchange.and_then(|exchange| exchange.claims.under_way.get_mut(&host)) {
                claiming.ticket = Some(ticket);
            }
        }
    }

    pub(super) fn next_claim_wake(&self) -> Option<Mono> {
        let claims = &self.exchange.as_deref()?.claims;
        let questions = claims.under_way.values().flat_map(|claiming| &claiming.questions);
        let wakes = questions.filter_map(|question| match question.stage {
            Stage::AskAt(at) => Some(at),
            _ => None,
        });
        wakes.min().filter(|_| self.unsettled.len() < UNSETTLED_MAX / 2)
    }

    /// What another site has to say of a host; nothing if it does not say it.
    pub(super) fn on_claimed(
        &mut self,
        call: u64,
        release: Option<Box<Release>>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let mut found = None;
        for (host, claiming) in &mut exchange.claims.under_way {
            let asked = |question: &Question| matches!(question.stage, Stage::Asked(other) if other == call);
            if let Some(at) = claiming.questions.iter().position(asked) {
                found = Some((host.clone(), claiming, at));
                break;
            }
        }
        let Some((host, claiming, at)) = found else { return };
        let question = &mut claiming.questions[at];
        // One who says that there is more, and nothing else, could do so for ever.
        let is_host = |moved: &MovedHost| moved.host == host && !moved.seen.is_empty();
        let says = |release: &Release| match &release.next {
            Some(next) => next.0.len() <= CURSOR_BYTES_MAX && release.moved.hosts.iter().any(is_host),
            None => true,
        };
        let is_forgetful = is_forgetful(&exchange.federation, &self.site, &host);
        // Who keeps a host that was never granted to it is not believed.
        let may_say = |release: &Release| says(release) && (is_forgetful || !release.keeps);
        let Some(release) = release.filter(|release| may_say(release)) else {
            let wait = AGAIN_MIN.saturating_mul(1 << question.failures.min(10)).min(AGAIN_MAX);
            question.failures += 1;
            question.stage = Stage::AskAt(now.mono + wait);
            return;
        };
        let Release { was_owner, keeps, agent, at, moved, next } = *release;
        let site = question.site;
        if keeps {
            exchange.claims.forget(&host);
            return self.confirm_grant(&host, site, out);
        }
        let is_registrar = exchange.federation.site_of(&host) != exchange.federation.me();
        if is_registrar && !was_owner {
            exchange.claims.forget(&host);
            return self.is_not_granted(&host, now);
        }
        let mut moved = moved.translated(at, now.wall);
        // Others may read it by a calendar that is ahead of this one.
        let slack = self.site.shared.as_ref().map_or(Duration::ZERO, |shared| shared.slack());
        for at in moved.waiting.iter_mut().filter_map(|waiting| waiting.not_before.as_mut()) {
            *at = *at + slack;
        }
        // Nobody says anything of other hosts.
        moved.hosts.retain(|moved| moved.host == host);
        for moved in &mut moved.hosts {
            let said = moved.memo.take().map(HostMemo::without_claims);
            // Whoever had it knows best what it asked for; of the others, who asked it last.
            claiming.memo = match (said, claiming.memo.take()) {
                (Some(said), Some(before)) if !was_owner && before.is_after(&said) => Some(before),
                (said, before) => said.or(before),
            };
        }
        let said = moved.hosts.iter().map(|host| host.seen.len()).sum::<usize>() + moved.found.len();
        question.told = question.told.saturating_add(said.max(PART_URLS_MIN) as u64);
        // What is more than a host may have here would not be asked for. An honest site's host may have had more.
        let is_enough = question.told >= self.settings.max_host_pages;
        let cut = next.is_some() && is_enough;
        (question.from, question.failures) = (next.filter(|_| !is_enough), 0);
        question.stage = match question.from {
            Some(_) => Stage::AskAt(now.mono),
            None => Stage::Answered,
        };
        if was_owner && question.from.is_none() && !is_forgetful {
            // Nobody else has a say in it.
            claiming.questions.clear();
        }
        exchange.note_cut_answer(site, cut);
        let is_of_host = |found: &Found| identify(&found.url).is_some_and(|(of, _)| of == host);
        let is_wrong = !moved.found.iter().all(is_of_host) || moved.found.len() != moved.waiting.len();
        if is_wrong {
            (moved.found, moved.waiting) = Default::default();
        }
        if !moved.found.is_empty() || moved.hosts.iter().any(|host| !host.seen.is_empty()) {
            self.write(Record::Moved { from: agent, moved }, None, None, out);
        }
    }

    /// A host is ours, durably, with all that others knew of it.
    pub(super) fn host_is_claimed(&mut self, host: &Host, version: u64, memo: Option<&HostMemo>, now: Now) {
        if let Some(exchange) = self.exchange.as_deref_mut() {
            exchange.claims.under_way.remove(host);
        }
        let Some(index) = self.bench.find(host) else { return };
        let run = self.runs;
        if let Some(memo) = memo {
            self.bench.host_mut(index).remember(Some(memo.clone()), run, now);
        }
        // Whoever had it may have asked it just now.
        let from = now.mono + self.first_wait(index);
        let host = self.bench.host_mut(index);
        host.claimed = host.claimed.max(version_of(version));
        host.not_before = host.not_before.max(from);
        if self.is_at_rest(index) {
            self.settle_in(index, now);
        }
    }

    /// A record of an earlier run says the same.
    pub(super) fn recall_claimed(&mut self, index: u32, version: u64, memo: Option<&HostMemo>, now: Now) {
        let run = self.runs;
        let host = self.bench.host_mut(index);
        if let Some(memo) = memo {
            host.remember(Some(memo.clone()), run, now);
        }
        host.claimed = host.claimed.max(version_of(version));
    }

    /// Another site claims a host.
    pub(super) fn on_claim(&mut self, call: u64, site: &str, claim: Claim, now: Now, out: &mut Vec<Action>) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let federation = &exchange.federation;
        let is_its = federation.list() == claim.list && federation.may_claim(site, &claim.host);
        let Some(number) = federation.find(site).filter(|_| is_its) else {
            return out.push(Action::Release { call, release: None });
        };
        let partition = partition_of(&claim.host);
        let holder = self.site.token(partition).holder;
        let is_elsewhere = holder != self.site.me() && self.site.is_well(holder, now.mono);
        if self.site.may_ask(partition) {
            self.read_for((number, Asker::Site(call)), claim, out);
        } else if is_elsewhere {
            let claims = &mut exchange.claims;
            claims.asked += 1;
            let relayed = claims.asked;
            claims.relayed.insert(relayed, call);
            if claims.relayed.len() > RELAYED_MAX {
                // Nobody waits for the oldest any more.
                claims.relayed.pop_first();
            }
            let message = Message::Claim { call: relayed, site: number, claim: Box::new(claim) };
            self.send(holder, message, out);
        } else {
            out.push(Action::Release { call, release: None });
        }
    }

    /// An agent of our site was asked for a host of a partition that we hold.
    pub(super) fn on_claim_message(
        &mut self,
        from: AgentId,
        (site, call): (SiteNumber, u64),
        claim: Claim,
        out: &mut Vec<Action>,
    ) {
        let federation = self.exchange.as_deref().map(|exchange| &exchange.federation);
        let is_its = federation.is_some_and(|list| {
            let named = list.sites().find(|(number, _)| *number == site);
            list.list() == claim.list
                && named.is_some_and(|(_, site)| list.may_claim(&site.name, &claim.host))
        });
        if is_its && self.site.may_ask(partition_of(&claim.host)) {
            self.read_for((site, Asker::Agent(from, call)), claim, out);
        } else {
            self.send(from, Message::Release { call, release: None }, out);
        }
    }

    fn read_for(&mut self, asker: (SiteNumber, Asker), claim: Claim, out: &mut Vec<Action>) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        exchange.claims.asked += 1;
        let call = exchange.claims.asked;
        exchange.claims.reading.insert(call, asker);
        out.push(Action::ExportHost { call, host: claim.host, from: claim.from });
    }

    /// What the store knows of a host that is another site's.
    pub(super) fn on_exported_host(
        &mut self,
        call: u64,
        mut moved: Moved,
        next: Option<Cursor>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let Some((site, asker)) = exchange.claims.reading.remove(&call) else { return };
        let Some(MovedHost { host, memo, .. }) = moved.hosts.first_mut() else {
            // Who asks wants to go on from where no answer has ended.
            return self.answer_claim(asker, None, out);
        };
        // What is on the workbench is newer.
        let known = self.bench.find(host).map(|index| self.bench.host(index)).filter(|host| host.is_known());
        let last = known.map_or(memo.take(), |host| host.memo(self.runs, now));
        let claimed = last.as_ref().map_or(0, HostMemo::claimed);
        let granted = last.as_ref().and_then(HostMemo::granted);
        let federation = &exchange.federation;
        let version = federation.version();
        let is_registrar = federation.site_of(host) == federation.me();
        if let (false, Some(claiming)) = (is_registrar, exchange.claims.under_way.get(host)) {
            if claiming.ticket.is_some() {
                // It is about to be ours. Who asks again hears that.
                return self.answer_claim(asker, None, out);
            }
            exchange.claims.forget(host);
        }
        let federation = &exchange.federation;
        let keeps = !is_registrar && federation.is_by_place(host) && claimed >= version;
        let was_owner = if is_registrar {
            granted == Some(Grant { to: site, version: version_of(version) })
        } else {
            let me = &federation.site(federation.me()).name;
            let is_owner = is_owned(exchange.claims.earlier.iter(), me, host, claimed);
            is_owner && !is_away(granted, claimed) && !self.may_have_forgotten_grants(host, claimed)
        };
        // One who had it once may be the only one who knows what it asked for.
        *memo = last.map(|memo| memo.for_another(now));
        let is_refused = is_registrar && !was_owner;
        let (moved, next) = if keeps || is_refused { Default::default() } else { (moved, next) };
        let release = Release { was_owner, keeps, agent: self.site.me(), at: now.wall, moved, next };
        self.answer_claim(asker, Some(Box::new(release)), out);
    }

    fn answer_claim(&mut self, asker: Asker, release: Option<Box<Release>>, out: &mut Vec<Action>) {
        match asker {
            Asker::Site(call) => out.push(Action::Release { call, release }),
            Asker::Agent(to, call) => self.send(to, Message::Release { call, release }, out),
        }
    }

    /// The answer of the agent that a question was passed on to.
    pub(super) fn on_release(&mut self, call: u64, release: Option<Box<Release>>, out: &mut Vec<Action>) {
        let claims = self.exchange.as_deref_mut().map(|exchange| &mut exchange.claims);
        if let Some(call) = claims.and_then(|claims| claims.relayed.remove(&call)) {
            out.push(Action::Release { call, release });
        }
    }
}
