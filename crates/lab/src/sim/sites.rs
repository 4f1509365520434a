//! Several simulated sites that crawl as one: which host is whose, and what they ask of each other. It does not matter here
//! what stores their agents have.
//!
//! In some runs hosts that share an address are of one site, in others of several. By some lists, operators say which host is
//! whose; by others it is the site that is nearest.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use nephila_core::agent::{Action, Event};
use nephila_core::assign::Position;
use nephila_core::federation::{AskedRules, Batch, Claim, Federation, Heard, Release, Saying, SiteEntry};
use nephila_core::maps::RANGES;
use nephila_core::record::Failure;
use nephila_core::site::{Message, RulesAnswer};
use nephila_core::time::Mono;
use nephila_core::url::AddressKey;

use super::random::Random;
use super::web::{HostPlan, Plan};

/// How long it takes to another site at least.
pub(in crate::sim) const DISTANCE: Duration = Duration::from_millis(40);
/// When an agent takes what it has sent to another site for lost.
pub(in crate::sim) const TIMEOUT: Duration = Duration::from_secs(20);
/// And what it has asked for rules.
pub(in crate::sim) const RULES_TIMEOUT: Duration = Duration::from_secs(75);

pub(in crate::sim) fn site_name(site: usize) -> String {
    format!("site-{site}")
}

/// The number of the site whose list it is.
pub(in crate::sim) fn home(federation: &Federation) -> usize {
    let sites = federation.sites().take_while(|(number, _)| *number != federation.me());
    sites.count()
}

/// The federation as each of its sites knows it, or as those know it that are left when one is gone. `homes` says which site an
/// agent is of, `names` what it is called.
pub(in crate::sim) fn of_plan(
    seed: u64,
    plan: &Plan,
    homes: &[usize],
    names: &[String],
    (gone, version): (Option<usize>, u64),
) -> Vec<Federation> {
    let sites = homes.iter().max().map_or(0, |last| last + 1);
    let entries: Vec<SiteEntry> = (0..sites)
        .map(|site| {
            let its = homes.iter().zip(names).filter(|(home, _)| **home == site);
            SiteEntry {
                name: site_name(site),
                gateways: its.map(|(_, name)| name.clone()).collect(),
                is_gone: gone == Some(site),
                // With each list another one is nearest to some hosts.
                position: position((site as u64 * 2 + version) as i64),
                ..SiteEntry::default()
            }
        })
        .collect();
    let mut random = Random::fork(seed, "sites of hosts");
    let mut drawn: Vec<usize> = plan.hosts.iter().map(|_| random.below(sites as u64) as usize).collect();
    for site in drawn.iter_mut().filter(|site| Some(**site) == gone) {
        *site = (*site + 1 + random.below(sites as u64 - 1) as usize) % sites;
    }
    // With each version a third of them is drawn anew.
    for _ in 1..if gone.is_some() { 1 } else { version } {
        for site in &mut drawn {
            if random.percent(33) {
                *site = random.below(sites as u64) as usize;
            }
        }
    }
    let groups = groups(plan, seed.is_multiple_of(2));
    let is_by_place = is_by_place(seed, version);
    let pins = || {
        if is_by_place {
            return Vec::new();
        }
        let pin = |(host, group): (&HostPlan, &usize)| (host.name.clone(), site_name(drawn[*group]));
        plan.hosts.iter().zip(&groups).map(pin).collect::<Vec<_>>()
    };
    let federation = |site| {
        let federation = Federation::new(version, entries.clone(), &site_name(site), pins());
        let federation = federation.and_then(|federation| federation.operated_by(&site_name(0)));
        federation.map(|federation| if is_by_place { federation.by_place() } else { federation })
    };
    (0..sites).filter_map(|site| federation(site).ok()).collect()
}

/// Whether each host is the nearest site's, by this version of the list.
fn is_by_place(seed: u64, version: u64) -> bool {
    Random::fork(seed ^ version << 40, "lists by place").percent(40)
}

/// One of a few places around the equator.
fn position(number: i64) -> Option<Position> {
    Position::new(0.0, (number * 47 % 360 - 180) as f64)
}

/// Where hosts are; of some that is not known.
pub(in crate::sim) fn positions(seed: u64, plan: &Plan) -> BTreeMap<String, Position> {
    let mut random = Random::fork(seed, "places of hosts");
    let drawn: Vec<Option<Position>> =
        plan.hosts.iter().map(|_| position(random.below(60) as i64).filter(|_| random.percent(85))).collect();
    let groups = groups(plan, seed.is_multiple_of(2));
    let of_host = |(host, group): (&HostPlan, usize)| Some((host.name.clone(), drawn[group]?));
    plan.hosts.iter().zip(groups).filter_map(of_host).collect()
}

/// For each host the first of those that have to be with it: those that share an address with it, or itself alone.
fn groups(plan: &Plan, share_addresses: bool) -> Vec<usize> {
    let mut group: Vec<usize> = (0..plan.hosts.len()).collect();
    let mut join = |a: usize, b: usize| {
        let (low, high) = (group[a].min(group[b]), group[a].max(group[b]));
        group.iter_mut().filter(|group| **group == high).for_each(|group| *group = low);
    };
    for (at, host) in plan.hosts.iter().enumerate() {
        let addresses = [Some(host.address), host.other_address];
        for (other_at, other) in plan.hosts.iter().enumerate().take(at) {
            let shares = addresses
                .iter()
                .flatten()
                .any(|address| *address == other.address || Some(*address) == other.other_address);
            if shares && !share_addresses {
                join(at, other_at);
            }
        }
    }
    group
}

/// Within this time of the loss of a site all others have a list without it.
pub(in crate::sim) const RELISTED: Duration = Duration::from_secs(600);

/// In some runs the list changes, once or twice: when, and which version comes.
pub(in crate::sim) fn changes(seed: u64, sites: usize, within: Duration) -> Vec<(Duration, u64)> {
    let mut random = Random::fork(seed, "changes of the list");
    if sites < 2 || !random.percent(50) {
        return Vec::new();
    }
    let mut times: Vec<u64> =
        (0..1 + random.below(2)).map(|_| random.below(within.as_millis() as u64 / 4 * 3)).collect();
    times.sort_unstable();
    times.into_iter().map(Duration::from_millis).zip(2..).collect()
}

/// Which agents of a run a site has, by their bits.
pub(in crate::sim) fn side(homes: &[usize], site: usize) -> u64 {
    let its = homes.iter().enumerate().filter(|(_, home)| **home == site);
    its.fold(0, |side, (index, _)| side | 1 << index)
}

/// Sites that are cut off from the others, for up to ten minutes: when, which agents, and for how long.
pub(in crate::sim) fn cuts(
    seed: u64,
    homes: &[usize],
    sites: usize,
    within: Duration,
) -> Vec<(Duration, u64, Duration)> {
    let mut random = Random::fork(seed, "cuts between sites");
    let cut = |_| {
        let at = Duration::from_millis(random.below(within.as_millis() as u64));
        let cut_off = random.below(sites as u64) as usize;
        (at, side(homes, cut_off), Duration::from_secs(10 + random.below(590)))
    };
    (0..3).map(cut).collect()
}

/// Something that is asked of another site, under a number.
#[derive(Clone)]
pub(in crate::sim) enum Asked {
    Batch(u64, Box<Batch>),
    Claim(u64, Box<Claim>),
    Rules(u64, Box<AskedRules>),
    Say(u64, Box<Saying>),
}

/// The same on its way: who asks, in which life, and whom.
pub(in crate::sim) struct SiteCall {
    pub(in crate::sim) from: (usize, u64),
    pub(in crate::sim) to: usize,
    pub(in crate::sim) asked: Asked,
}

impl Asked {
    /// What an action asks of whom; the action itself if it asks nothing of another site.
    pub(in crate::sim) fn of(action: Action) -> Result<(String, Asked), Box<Action>> {
        Ok(match action {
            Action::Post { gateway, post, batch, .. } => (gateway, Asked::Batch(post, batch)),
            Action::Claim { gateway, call, claim, .. } => (gateway, Asked::Claim(call, claim)),
            Action::AskRules { gateway, call, ask, .. } => (gateway, Asked::Rules(call, ask)),
            Action::Say { gateway, call, saying, .. } => (gateway, Asked::Say(call, saying)),
            other => return Err(Box::new(other)),
        })
    }

    /// Its number, with who asks.
    pub(in crate::sim) fn number(&self) -> u64 {
        match self {
            Asked::Batch(number, _)
            | Asked::Claim(number, _)
            | Asked::Rules(number, _)
            | Asked::Say(number, _) => *number,
        }
    }

    /// How long an answer is waited for.
    pub(in crate::sim) fn timeout(&self) -> Duration {
        if let Asked::Rules(..) = self { RULES_TIMEOUT } else { TIMEOUT }
    }

    /// What whoever asks hears if there is none.
    pub(in crate::sim) fn unanswered(&self) -> Event {
        let nothing = match self {
            Asked::Batch(..) => Answered::Taken(false),
            Asked::Claim(..) => Answered::Release(None),
            Asked::Rules(..) => Answered::Rules(None),
            Asked::Say(..) => Answered::Heard(None),
        };
        nothing.event(self.number())
    }

    /// What whoever is asked hears: under a number of its own, from this site.
    pub(in crate::sim) fn event(self, call: u64, site: String) -> Event {
        match self {
            Asked::Batch(_, batch) => Event::Batch { call, site, batch },
            Asked::Claim(_, claim) => Event::Claim { call, site, claim },
            Asked::Rules(_, ask) => Event::RulesAsked { call, ask },
            Asked::Say(_, saying) => Event::Said { call, site, saying },
        }
    }
}

/// The answer.
#[derive(Clone)]
pub(in crate::sim) enum Answered {
    Taken(bool),
    Release(Option<Box<Release>>),
    Rules(Option<Box<Result<RulesAnswer, Failure>>>),
    Heard(Option<Box<Heard>>),
}

impl Answered {
    /// What an action answers to which call; the action itself if it answers nothing.
    pub(in crate::sim) fn of(action: Action) -> Result<(u64, Answered), Box<Action>> {
        Ok(match action {
            Action::Answer { call, taken } => (call, Answered::Taken(taken)),
            Action::Release { call, release } => (call, Answered::Release(release)),
            Action::GiveRules { call, result } => (call, Answered::Rules(result)),
            Action::Heard { call, heard } => (call, Answered::Heard(heard)),
            other => return Err(Box::new(other)),
        })
    }

    /// What whoever has asked hears.
    pub(in crate::sim) fn event(self, number: u64) -> Event {
        match self {
            Answered::Taken(taken) => Event::Posted { post: number, taken },
            Answered::Release(release) => Event::Claimed { call: number, release },
            Answered::Rules(result) => Event::RulesOfSite { call: number, result },
            Answered::Heard(heard) => Event::Heard { call: number, heard },
        }
    }

    /// What a run has come to with it.
    pub(in crate::sim) fn state(&self) -> Option<&'static str> {
        match self {
            Answered::Taken(true) => None,
            Answered::Taken(false) => Some("a batch that was not taken"),
            Answered::Release(Some(release)) if release.was_owner => Some("a host claimed from another site"),
            Answered::Release(Some(_)) => Some("a host claimed that nobody had"),
            Answered::Release(None) => Some("a claim that was not answered"),
            Answered::Rules(Some(result)) if result.is_ok() => Some("rules had from a host of another site"),
            Answered::Rules(_) => Some("rules that another site did not have"),
            Answered::Heard(heard) => match heard.as_ref().map(|heard| heard.differ.len()) {
                Some(0) | None => None,
                Some(differ) if differ < usize::from(RANGES) => Some("a part of what a site says told"),
                Some(_) => Some("all that a site says told"),
            },
        }
    }
}

/// Who waits for answers: which agent, in which life, and under which number of its own.
#[derive(Default)]
pub(in crate::sim) struct Callers {
    calls: u64,
    waiting: BTreeMap<u64, (usize, u64, u64)>,
}

impl Callers {
    /// Somebody waits from now on. Says for what.
    pub(in crate::sim) fn wait(&mut self, (index, life): (usize, u64), asked: &Asked) -> u64 {
        self.calls += 1;
        self.waiting.insert(self.calls, (index, life, asked.number()));
        self.calls
    }

    /// Who waits for the answer to a call: nobody does any more.
    pub(in crate::sim) fn take(&mut self, call: u64) -> Option<(usize, u64, u64)> {
        self.waiting.remove(&call)
    }
}

/// For how long what another site says of its addresses surely counts.
const TOLD_FOR: Duration = Duration::from_secs(600);

/// Addresses that other sites use, as a process was told, and when.
#[derive(Default)]
pub(in crate::sim) struct Told(BTreeMap<(AddressKey, u16), Mono>);

impl Told {
    /// Takes note of what an agent with this list of sites is told.
    pub(in crate::sim) fn note(&mut self, federation: Option<&Federation>, event: &Event, now: Mono) {
        let (site, addresses) = match event {
            Event::Told { site, used, .. } => {
                let federation = federation.filter(|federation| federation.list() == used.list);
                let Some(federation) = federation else { return };
                let sites = federation.sites().take_while(|(_, entry)| entry.name != *site);
                (sites.count() as u16, &used.addresses)
            }
            Event::Message { message, .. } => match &**message {
                Message::Used { site, addresses } => (*site, addresses),
                _ => return,
            },
            _ => return,
        };
        self.0.extend(addresses.iter().map(|address| ((*address, site), now)));
    }

    /// How many sites use an address, as far as the process surely knows.
    pub(in crate::sim) fn sites_at(&self, address: IpAddr, now: Mono) -> u32 {
        let key = AddressKey::of(address);
        let told = self.0.iter().filter(|((address, _), at)| *address == key && now < **at + TOLD_FOR);
        1 + told.count() as u32
    }

    /// The process has ended.
    pub(in crate::sim) fn clear(&mut self) {
        self.0.clear();
    }
}
