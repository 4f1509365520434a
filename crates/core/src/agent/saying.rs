//! What the sites of a federation say to all of them (`maps/concerns.rs`), on its way between sites.
//!
//! Inside of a site it is a part of the [wishes](super::wishes), which all agents have. One agent of each site tells the others:
//! the first of those that are well. It tells each what its own site says, and what those have said that are gone, since nobody
//! else will. A site that answers says in which ranges it knows something else, and these are told; that is repeated
//! whenever something is said, and from time to time in any case, since nothing here is noted durably.
//!
//! Nobody is believed about a site that can speak for itself. There is one exception: a site that has nothing of what it said
//! has lost it, and hears it from others.
//!
//! What the other site knows of this one and this one does not, when all has been told, was lost here with the power of a
//! machine, before it was on its disk. Then the floor is raised: what is not here is gone everywhere.

use std::collections::BTreeMap;
use std::time::Duration;

use super::shared::LEASE;
use super::{Action, Agent, Everywhere, MayNotSay, canonical};
use crate::federation::{Federation, Heard, Saying, Section, SiteEntry, SiteNumber};
use crate::limits::MAP_TAKEN_BACK_MAX;
use crate::maps::concerns::{Concern, Concerns, Say};
use crate::maps::{RANGES, Version};
use crate::record::{Block, Record};
use crate::site::Wishes;
use crate::time::{Mono, Now};

/// It is looked whether anybody is to be told something as often as this: to compare digests at each step would cost too much.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A site that has heard all is asked after this whether it still knows it.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// A site that gives no answer is told again after this, and after twice as long each time,
const AGAIN_MIN: Duration = Duration::from_secs(1);
/// up to this.
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// No site counts so far by itself,
const COUNTER_MAX: u64 = 1 << 62;
/// and the operator counts on from there: what it says can be later than what anybody else has said.
const OPERATOR_COUNTER_MAX: u64 = 1 << 63;

/// What another site is told.
#[derive(Debug, Default)]
struct Link {
    /// Digests of what it is known to have heard, by whose it is.
    has: BTreeMap<String, u64>,
    /// The call that is under way, of whose section, and its digest; and whether anything of that was told with it.
    asked: Option<(u64, String, u64, bool)>,
    failures: u32,
    not_before: Mono,
    check_at: Mono,
}

impl Link {
    fn back_off(&mut self, now: Mono) {
        self.not_before = now + AGAIN_MIN.saturating_mul(1 << self.failures.min(10)).min(AGAIN_MAX);
        self.failures += 1;
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Sayings {
    calls: u64,
    look_at: Mono,
    /// By site; that to our own is not used.
    links: Vec<Link>,
}

impl Sayings {
    pub(super) fn new(federation: &Federation) -> Sayings {
        Sayings { calls: 0, look_at: Mono(0), links: federation.sites().map(|_| Link::default()).collect() }
    }
}

/// What is said of hosts by others is in the form that they are blocked by here.
fn is_fair(concern: &Concern) -> bool {
    match concern {
        Concern::Block(Block::Name(host)) => host.ip().is_none(),
        Concern::Block(block) => canonical(block.clone()) == *block,
        Concern::Pause | Concern::Delay => true,
    }
}

/// Whether a site can have come to such a version.
fn is_possible(federation: &Federation, site: &str, version: Version) -> bool {
    let is_operator = federation.operator() == Some(site);
    let counter_max = if is_operator { OPERATOR_COUNTER_MAX } else { COUNTER_MAX };
    version.list <= federation.version() && version.counter < counter_max
}

impl Agent {
    /// What sites of the federation say to all.
    fn concerns(&self) -> &Concerns {
        self.site.wishes.concerns()
    }

    /// The federation's operator.
    fn operator(&self) -> Option<&str> {
        self.exchange.as_deref()?.federation.operator()
    }

    /// The sites by which something is blocked everywhere.
    pub fn blocked_by(&self, block: &Block) -> Vec<String> {
        self.concerns().blocked_by(self.operator(), block).into_iter().map(str::to_owned).collect()
    }

    /// Whether all sites pause.
    pub fn is_paused_by_all(&self) -> bool {
        self.concerns().are_paused(self.operator())
    }

    /// A digest of all that sites are known to say.
    pub fn concerns_digest(&self) -> u64 {
        self.concerns().digest()
    }

    /// Has the agent be as all sites should.
    pub(super) fn obey_all_sites(&mut self) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let (concerns, operator) = (self.site.wishes.concerns(), exchange.federation.operator());
        self.blocks.extend(concerns.blocked(operator).into_keys().cloned());
        self.paused |= concerns.are_paused(operator);
        exchange.least_delay = concerns.delay(operator).unwrap_or_default();
    }

    /// What this site would have to say of what, so that all do what is wanted; or why it cannot.
    fn words_for(&self, what: &Everywhere) -> Result<(Concern, Option<Say>), MayNotSay> {
        let Some(exchange) = self.exchange.as_deref() else { return Err(MayNotSay::Alone) };
        let federation = &exchange.federation;
        let (me, operator) = (&*federation.site(federation.me()).name, federation.operator());
        let (concern, say) = match what {
            Everywhere::Block(block) => (Concern::Block(canonical(block.clone())), Some(Say::Yes)),
            Everywhere::Unblock(block) => {
                let block = canonical(block.clone());
                let mut by = self.concerns().blocked_by(operator, &block);
                let is_own = by.contains(&me);
                by.retain(|site| *site != me);
                let say = match (operator == Some(me), is_own, by.is_empty()) {
                    (true, _, false) => Some(Say::No),
                    (_, true, true) => None,
                    (_, false, true) => return Err(MayNotSay::NotSaid),
                    (false, true, false) => None,
                    (false, false, false) => {
                        return Err(MayNotSay::ByOthers(by.join(", "), operator.map(str::to_owned)));
                    }
                };
                return Ok((Concern::Block(block), say));
            }
            Everywhere::Pause => (Concern::Pause, Some(Say::Yes)),
            Everywhere::Resume => (Concern::Pause, None),
            Everywhere::Delay(delay) => {
                let millis = delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
                (Concern::Delay, millis.map(Say::Millis))
            }
        };
        match operator {
            _ if matches!(concern, Concern::Block(_)) => Ok((concern, say)),
            Some(operator) if operator == me => Ok((concern, say)),
            Some(operator) => Err(MayNotSay::ForTheOperator(operator.to_owned())),
            None => Err(MayNotSay::ForNobody),
        }
    }

    /// Whether something can be said to all sites from here.
    pub fn may_say(&self, what: &Everywhere) -> Result<(), MayNotSay> {
        let (concern, say) = self.words_for(what)?;
        let Some(exchange) = self.exchange.as_deref() else { return Err(MayNotSay::Alone) };
        let federation = &exchange.federation;
        let me = &federation.site(federation.me()).name;
        self.concerns().clone().put(me, federation.version(), concern, say)?;
        Ok(())
    }

    /// The operator says something that concerns all sites.
    pub(super) fn say_everywhere(&mut self, what: &Everywhere, now: Now, out: &mut Vec<Action>) {
        let Ok((concern, say)) = self.words_for(what) else { return };
        let Some(exchange) = self.exchange.as_deref() else { return };
        let federation = &exchange.federation;
        let (me, version) = (federation.site(federation.me()).name.clone(), federation.version());
        // What has no room was refused, or has lost it just now.
        let _ = self.site.wishes.concerns_mut().put(&me, version, concern, say);
        self.note_section(&me, now, out);
        self.beat_soon(now);
    }

    /// What a site says has changed.
    fn note_section(&mut self, site: &str, now: Now, out: &mut Vec<Action>) {
        self.follow_wishes(now);
        let section = self.concerns().section(site).cloned().unwrap_or_default();
        let said = Wishes::of_concerns(Concerns::of_section(site, section));
        self.write_own(Record::Wishes(said), out);
    }

    /// Whether it is this agent that tells other sites.
    fn is_teller(&self, now: Now) -> bool {
        let me = self.site.me();
        let mut others = self.site.members.present().map(|(id, _)| id).filter(|id| *id < me);
        self.site.members.is_founded() && !others.any(|id| self.site.is_well(id, now.mono))
    }

    /// Whether all agents of the site are there and know what this one does.
    fn is_agreed(&self, now: Now) -> bool {
        if let Some(shared) = &self.site.shared {
            // Who has not read them for so long has no lease, and reads them when it joins again.
            let since = shared.wishes_since.filter(|(digest, _)| *digest == self.site.wishes.digest());
            return shared.is_valid() && since.is_some_and(|(_, at)| now.mono.since(at) >= LEASE * 2);
        }
        let (me, digest) = (self.site.me(), Some(self.site.wishes.digest()));
        let knows = |id| {
            let said = self.site.peers.get(&id).and_then(|peer| peer.wishes);
            self.site.is_well(id, now.mono) && said == digest
        };
        self.site.members.present().all(|(id, _)| id == me || knows(id))
    }

    /// These are the wishes that the store has which agents share.
    pub(super) fn note_kept_wishes(&mut self, wishes: &Wishes, now: Now) {
        if self.exchange.is_some()
            && let Some(shared) = &mut self.site.shared
        {
            let digest = wishes.digest();
            let since = shared.wishes_since.filter(|(before, _)| *before == digest);
            shared.wishes_since = since.or(Some((digest, now.mono)));
        }
    }

    /// Tells other sites what they have not heard.
    pub(super) fn tend_sayings(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(exchange) = self.exchange.as_deref_mut().filter(|_| !self.ended) else { return };
        if now.mono < exchange.sayings.look_at {
            return;
        }
        exchange.sayings.look_at = now.mono + LOOK_EVERY;
        if !self.is_teller(now) {
            return;
        }
        self.forget_taken_back(now, out);
        let concerns = self.site.wishes.concerns();
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let (federation, sayings) = (&exchange.federation, &mut exchange.sayings);
        let me = &*federation.site(federation.me()).name;
        let gone = federation.gone().filter(|site| concerns.section(site).is_some());
        let sections: Vec<(&str, u64)> = std::iter::once(me)
            .chain(gone)
            .map(|site| (site, concerns.section(site).map_or(0, Section::digest)))
            .collect();
        let others = federation.sites().zip(&mut sayings.links);
        let others = others.filter(|((number, entry), _)| *number != federation.me() && !entry.is_gone);
        for ((site, entry), link) in others {
            if link.asked.is_some() || now.mono < link.not_before {
                continue;
            }
            if now.mono >= link.check_at {
                link.has.clear();
                link.check_at = now.mono + CHECK_EVERY;
            }
            let is_untold = |(of, digest): &&(&str, u64)| link.has.get(*of) != Some(digest);
            let Some((of, digest)) = sections.iter().find(is_untold) else { continue };
            sayings.calls += 1;
            link.asked = Some((sayings.calls, (*of).to_owned(), *digest, false));
            let section = concerns.section(of);
            out.push(say_to((site, entry), link.failures, sayings.calls, federation, (*of, section), &[]));
        }
    }

    /// Forgets what was taken back, when everybody has heard of it.
    fn forget_taken_back(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(exchange) = self.exchange.as_deref() else { return };
        let federation = &exchange.federation;
        let me = &federation.site(federation.me()).name;
        let Some(section) = self.concerns().section(me) else { return };
        if section.taken_back() < MAP_TAKEN_BACK_MAX {
            return;
        }
        let digest = section.digest();
        let others: Vec<_> = federation.sites().zip(&exchange.sayings.links).collect();
        let has_heard = |((number, entry), link): ((SiteNumber, &SiteEntry), &Link)| {
            number == federation.me() || entry.is_gone || link.has.get(me) == Some(&digest)
        };
        if others.into_iter().all(has_heard) && self.is_agreed(now) {
            let (me, newest) = (me.clone(), section.newest());
            self.raise_floor(&me, newest, now, out);
        }
    }

    fn raise_floor(&mut self, me: &str, to: Version, now: Now, out: &mut Vec<Action>) {
        self.site.wishes.concerns_mut().raise_floor(me, to);
        self.note_section(me, now, out);
        self.beat_soon(now);
    }

    /// What another site says to what it was told.
    pub(super) fn on_heard(&mut self, call: u64, heard: Option<Box<Heard>>, now: Now, out: &mut Vec<Action>) {
        let (agreed, concerns) = (self.is_agreed(now), self.site.wishes.concerns());
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let (federation, sayings) = (&exchange.federation, &mut exchange.sayings);
        let is_it = |link: &Link| link.asked.as_ref().is_some_and(|(asked, ..)| *asked == call);
        let Some(at) = sayings.links.iter().position(is_it) else { return };
        let link = &mut sayings.links[at];
        let Some((_, of, digest, was_told)) = link.asked.take() else { return };
        let Some(heard) = heard else { return link.back_off(now.mono) };
        let Heard { differ, newest, lost } = *heard;
        let is_mine = federation.site(federation.me()).name == of;
        if differ.is_empty() {
            link.failures = 0;
            link.has.insert(of, digest);
        } else if let Some(lost) = lost.filter(|_| is_mine && concerns.section(&of).is_none()) {
            link.back_off(now.mono);
            self.hear_section(&of, &lost, now, out);
        } else if !was_told && let Some((site, entry)) = federation.sites().nth(at) {
            sayings.calls += 1;
            let (call, section) = (sayings.calls, concerns.section(&of));
            out.push(say_to((site, entry), link.failures, call, federation, (&of, section), &differ));
            link.asked = Some((call, of, section.map_or(0, Section::digest), true));
        } else {
            link.back_off(now.mono);
            if is_mine && agreed && is_possible(federation, &of, newest) {
                let known = concerns.section(&of).map(Section::newest).unwrap_or_default();
                self.raise_floor(&of, newest.max(known), now, out);
            }
        }
    }

    /// Takes in what a site says.
    fn hear_section(&mut self, site: &str, said: &Section, now: Now, out: &mut Vec<Action>) {
        let federation = self.exchange.as_deref().map(|exchange| &exchange.federation);
        let is_fair = federation.is_some_and(|federation| is_possible(federation, site, said.newest()))
            && said.iter().all(|(concern, _)| is_fair(concern));
        if is_fair && self.site.wishes.concerns_mut().hear(site, said) == Ok(true) {
            self.follow_wishes(now);
            let said = Wishes::of_concerns(Concerns::of_section(site, said.clone()));
            self.write_own(Record::Wishes(said), out);
            self.beat_soon(now);
        }
    }

    /// Another site says something to all.
    pub(super) fn on_said(&mut self, call: u64, site: &str, saying: Saying, now: Now, out: &mut Vec<Action>) {
        let Saying { list, of, digests, is_empty, part } = saying;
        let federation = self.exchange.as_deref().map(|exchange| &exchange.federation);
        // For those that are gone others speak.
        let may_say = federation.is_some_and(|ours| {
            let is_gone = ours.gone().any(|gone| gone == of);
            ours.list() == list && self.site.members.is_founded() && (of == site || is_gone)
        });
        if !may_say || digests.len() != usize::from(RANGES) {
            return out.push(Action::Heard { call, heard: None });
        }
        if !part.is_empty() {
            self.hear_section(&of, &part, now, out);
        }
        let known = self.concerns().section(&of).cloned().unwrap_or_default();
        let pairs = known.digests().into_iter().zip(digests).zip(0..RANGES);
        let differ: Vec<u8> =
            pairs.filter_map(|((ours, theirs), range)| (ours != theirs).then_some(range)).collect();
        let newest = known.newest();
        let lost = (is_empty && !known.is_empty()).then(|| Box::new(known));
        out.push(Action::Heard { call, heard: Some(Box::new(Heard { differ, newest, lost })) });
    }
}

/// Tells another site what is said in these ranges of a section.
fn say_to(
    (site, entry): (SiteNumber, &SiteEntry),
    failures: u32,
    call: u64,
    federation: &Federation,
    (of, section): (&str, Option<&Section>),
    ranges: &[u8],
) -> Action {
    let nothing = Section::default();
    let section = section.unwrap_or(&nothing);
    let gateway = entry.gateways.get(failures as usize % entry.gateways.len().max(1)).cloned();
    let saying = Saying {
        list: federation.list(),
        of: of.to_owned(),
        digests: section.digests(),
        is_empty: section.is_empty(),
        part: section.part(ranges),
    };
    Action::Say { site, gateway: gateway.unwrap_or_default(), call, saying: Box::new(saying) }
}
