//! Several simulated sites that crawl as one: which host is whose, and what passes between them.
//!
//! In some runs hosts that share an address are of one site, in others of several. By some lists, operators say which host is
//! whose; by others it is the site that is nearest.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use nephila_core::agent::Event;
use nephila_core::assign::Position;
use nephila_core::federation::{
    AddressesUsed, AskedRules, Batch, Claim, Federation, Release, SiteEntry, SiteNumber,
};
use nephila_core::record::Failure;
use nephila_core::site::{Message, Moved, RulesAnswer};
use nephila_core::time::Mono;
use nephila_core::url::AddressKey;

use super::super::SiteBug;
use super::super::driver::Broken;
use super::super::levels::{Crash, Exchange};
use super::super::random::Random;
use super::super::web::{HostPlan, Plan};
use super::faults::Fault;
use super::station::Station;
use super::{Happening, Sim, TROUBLE_LASTS, ToProcess};

/// How long it takes to another site at least.
pub(super) const DISTANCE: Duration = Duration::from_millis(40);
/// When an agent takes what it has sent to another site for lost.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// And what it has asked for rules.
const RULES_TIMEOUT: Duration = Duration::from_secs(75);

/// A batch on its way: who sent it, in which life and under which number, and to whom.
pub(super) struct Call {
    from: (usize, u64),
    post: u64,
    to: usize,
    batch: Box<Batch>,
}

/// Who waits for an answer: which agent, in which life, and for what.
pub(super) type Caller = (usize, u64, u64);

pub(super) fn site_name(site: usize) -> String {
    format!("site-{site}")
}

/// The number of the site whose list it is.
pub(super) fn home(federation: &Federation) -> usize {
    let sites = federation.sites().take_while(|(number, _)| *number != federation.me());
    sites.count()
}

/// Divides agents among sites, and hosts among them. Some sites begin with all of their agents, others with all but one.
pub(super) fn found(seed: u64, plan: &Plan, stations: &mut [Station], random: &mut Random) {
    let sites = 2 + random.below(2) as usize;
    let homes: Vec<usize> = (0..stations.len()).map(|index| index % sites).collect();
    let names: Vec<String> = stations.iter().map(|station| station.site.name.clone()).collect();
    let federations = of_plan(seed, plan, &homes, &names, (None, 1));
    for (home, federation) in federations.iter().enumerate() {
        let its = names.iter().zip(&homes).filter(|(_, other)| **other == home);
        let mut peers: Vec<String> = its.map(|(name, _)| name.clone()).collect();
        if peers.len() > 1 && random.percent(50) {
            peers.pop();
        }
        for (station, _) in stations.iter_mut().zip(&homes).filter(|(_, other)| **other == home) {
            station.site.peers.clone_from(&peers);
            station.federation = Some(federation.clone());
        }
    }
}

/// The federation as each of its sites knows it, or as those know it that are left when one is gone. `homes` says which site an
/// agent is of, `names` what it is called.
fn of_plan(
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
pub(super) fn positions(seed: u64, plan: &Plan) -> BTreeMap<String, Position> {
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

/// What goes wrong between sites, or is done to them: when, for how long, and what.
pub(super) fn happenings(
    seed: u64,
    stations: &[Station],
    sites: usize,
    within: Duration,
) -> Vec<(Duration, Duration, Happening)> {
    let cuts = cuts(seed, stations, within).into_iter();
    let mut all: Vec<_> = cuts.map(|(at, cut)| (at, cut.lasts(), Happening::Fault(cut))).collect();
    match loss(seed, sites, within) {
        Some((at, site)) => all.push((at, RELISTED, Happening::LoseSite(site))),
        None => {
            let changes = changes(seed, sites, within).into_iter();
            all.extend(changes.map(|(at, version)| (at, RELISTED, Happening::ChangeList(version))));
        }
    }
    all
}

/// Whole sites that are cut off from the others, for up to ten minutes.
fn cuts(seed: u64, stations: &[Station], within: Duration) -> Vec<(Duration, Fault)> {
    let mut random = Random::fork(seed, "cuts between sites");
    let Some(sites) = stations.first().and_then(|station| station.federation.as_ref()) else {
        return Vec::new();
    };
    let sites = sites.sites().len() as u64;
    let cut = |_| {
        let at = Duration::from_millis(random.below(within.as_millis() as u64));
        let cut_off = random.below(sites) as usize;
        let is_cut_off = |station: &Station| station.federation.as_ref().map(home) == Some(cut_off);
        let bits = stations.iter().enumerate().filter(|(_, station)| is_cut_off(station));
        let side = bits.fold(0, |side, (index, _)| side | 1 << index);
        (at, Fault::Cut { side, lasts: Duration::from_secs(10 + random.below(590)) })
    };
    (0..3).map(cut).collect()
}

/// Within this time of the loss of a site all others have a list without it.
const RELISTED: Duration = Duration::from_secs(600);

/// In some runs the list changes, once or twice: when, and which version comes.
fn changes(seed: u64, sites: usize, within: Duration) -> Vec<(Duration, u64)> {
    let mut random = Random::fork(seed, "changes of the list");
    if sites < 2 || !random.percent(50) {
        return Vec::new();
    }
    let mut times: Vec<u64> =
        (0..1 + random.below(2)).map(|_| random.below(within.as_millis() as u64 / 4 * 3)).collect();
    times.sort_unstable();
    times.into_iter().map(Duration::from_millis).zip(2..).collect()
}

/// A question to another site, on its way: from whom, in which life and under which number, and to whom.
pub(super) struct ClaimCall {
    from: (usize, u64),
    call: u64,
    to: usize,
    claim: Box<Claim>,
}

/// The same for rules of a host.
pub(super) struct RulesCall {
    from: (usize, u64),
    call: u64,
    to: usize,
    ask: Box<AskedRules>,
}

/// In some runs a site is lost for good: which one, and when. Never the first, which alone knows the seeds.
fn loss(seed: u64, sites: usize, within: Duration) -> Option<(Duration, usize)> {
    let mut random = Random::fork(seed, "lost sites");
    let site = 1 + random.below((sites as u64).saturating_sub(1).max(1)) as usize;
    // Much of the crawl has to be done again.
    let at = Duration::from_millis(random.below(within.as_millis() as u64 / 2));
    (sites > 1 && random.percent(30)).then_some((at, site))
}

/// For how long what another site says of its addresses surely counts.
const TOLD_FOR: Duration = Duration::from_secs(600);

impl Station {
    /// How many sites use an address, as far as its process surely knows.
    pub(super) fn sites_at(&self, address: IpAddr, now: Mono) -> u32 {
        let key = AddressKey::of(address);
        let told = self.told.iter().filter(|((address, _), at)| *address == key && now < **at + TOLD_FOR);
        1 + told.count() as u32
    }
}

impl Sim<'_> {
    /// All agents of a site are lost with their disks. Some time later the others are told, one after the other.
    pub(super) fn lose_site(&mut self, site: usize) {
        let is_its = |station: &Station| station.federation.as_ref().map(home) == Some(site);
        let (lost, left): (Vec<usize>, Vec<usize>) =
            (0..self.stations.len()).partition(|index| is_its(&self.stations[*index]));
        self.trace.note(self.now, format_args!("site {site} is lost"));
        let settled: Vec<String> = self.lost.settled().cloned().collect();
        let is_lost = |url: &&String| self.settled_by.get(*url).is_none_or(|index| lost.contains(index));
        for url in settled.iter().filter(is_lost) {
            self.lost.taken_back(url);
        }
        for index in &lost {
            self.crash(*index, Crash::Kill, Duration::ZERO);
            self.stations[*index].is_gone = true;
        }
        let its = |exchange: Exchange| self.owners.asked_by(exchange).is_some_and(|of| lost.contains(&of));
        self.twice.lost(&its);
        self.polite.lost();
        self.reach("a site lost for good");
        self.give_list(&left, Some(site), 2);
    }

    /// The operators give all agents another list, one site after the other.
    pub(super) fn change_list(&mut self, version: u64) {
        self.give_list(&Vec::from_iter(0..self.stations.len()), None, version);
        self.reach("another list of sites");
    }

    /// All agents of a site end before one begins with the new list.
    fn give_list(&mut self, agents: &[usize], gone: Option<usize>, version: u64) {
        let begins = self.random.below(300);
        let waits: Vec<u64> = (0..self.stations.len()).map(|_| self.random.below(100)).collect();
        for index in agents {
            let site = self.stations[*index].federation.as_ref().map_or(0, home);
            let wait = Duration::from_secs(begins + waits[site]);
            self.after(wait, Happening::Relist(*index, gone, version));
        }
    }

    /// An agent starts with another list of sites.
    pub(super) fn relist(&mut self, index: usize, gone: Option<usize>, version: u64) {
        let list = self.stations[index].federation.as_ref().map(Federation::list);
        if list.is_some_and(|list| list.version >= version) {
            return;
        }
        let homes = self.stations.iter().filter_map(|station| station.federation.as_ref());
        let homes: Vec<usize> = homes.map(home).collect();
        let names: Vec<String> = self.stations.iter().map(|station| station.site.name.clone()).collect();
        // Not by the hash: hosts that share an address stay together.
        let lists = of_plan(self.seed, &self.plan, &homes, &names, (gone, version));
        let is_its = |list: &&Federation| home(list) == homes[index];
        let station = &mut self.stations[index];
        station.earlier.extend(station.federation.take());
        station.federation = lists.iter().find(is_its).cloned();
        // What a host has asked for may be known to another site than the one that asks it.
        self.trouble(TROUBLE_LASTS);
        let back_after = Duration::from_millis(self.random.below(20_000));
        self.crash(index, Crash::Kill, back_after);
    }

    /// Whether two agents are of one site.
    pub(super) fn are_neighbours(&self, a: usize, b: usize) -> bool {
        let site = |index: usize| self.stations[index].federation.as_ref().map(Federation::me);
        site(a) == site(b)
    }

    pub(super) fn post(&mut self, index: usize, gateway: &str, post: u64, batch: Box<Batch>) {
        let life = self.stations[index].life;
        self.stations[index].posting = Some(post);
        let taken = self.bug == Some(SiteBug::TrustsSilence);
        let given_up = ToProcess::Tell(Box::new(Event::Posted { post, taken }));
        self.after(TIMEOUT, Happening::ToProcess(index, life, given_up));
        let Some(to) = self.stations.iter().position(|station| station.site.name == gateway) else { return };
        self.reach("a batch for another site");
        if self.stations[index].federation.as_ref().is_some_and(Federation::goes_by_place) {
            // Who gets them hears how often they were tried, and not when.
            batch.found.iter().for_each(|found| self.polite.tried_anew(&found.url));
        }
        if batch.found.iter().any(|found| !self.posted.insert(found.url.clone())) {
            self.reach("a batch that was sent again");
        }
        for wait in self.network.carry(index, to, self.now) {
            let call = Call { from: (index, life), post, to, batch: batch.clone() };
            self.after(DISTANCE + wait, Happening::Call(call));
        }
    }

    pub(super) fn call(&mut self, Call { from, post, to, batch }: Call) -> Result<(), Broken> {
        if self.network.is_cut(from.0, to, self.now) || self.stations[to].process.is_none() {
            return Ok(());
        }
        self.strike_one(from.0, to, 1);
        self.calls += 1;
        let call = self.calls;
        self.callers.insert(call, (from.0, from.1, post));
        if self.bug == Some(SiteBug::AnswersEarly) {
            self.answer_call(to, call, true);
        }
        let life = self.stations[to].life;
        let site = self.site_of(from.0);
        let event = Box::new(Event::Batch { call, site, batch });
        self.happen(Happening::ToProcess(to, life, ToProcess::Tell(event))).map(drop)
    }

    pub(super) fn claim(&mut self, index: usize, gateway: &str, call: u64, claim: Box<Claim>) {
        let life = self.stations[index].life;
        let unheard = |release| ToProcess::Tell(Box::new(Event::Claimed { call, release }));
        if self.bug == Some(SiteBug::ClaimsUnasked) {
            let agent = self.stations[index].site.me;
            let (at, moved) = (self.clock(index).wall, Moved::default());
            let release = Release { was_owner: true, keeps: false, agent, at, moved, next: None };
            let answer = unheard(Some(Box::new(release)));
            return self.after(DISTANCE, Happening::ToProcess(index, life, answer));
        }
        self.after(TIMEOUT, Happening::ToProcess(index, life, unheard(None)));
        let Some(to) = self.stations.iter().position(|station| station.site.name == gateway) else { return };
        for wait in self.network.carry(index, to, self.now) {
            let call = ClaimCall { from: (index, life), call, to, claim: claim.clone() };
            self.after(DISTANCE + wait, Happening::Claim(call));
        }
    }

    /// The number of the site of an agent.
    pub(super) fn home_of(&self, index: usize) -> usize {
        self.stations[index].federation.as_ref().map_or(0, home)
    }

    /// Tells one agent of a site which addresses another one uses.
    pub(super) fn tell_site(&mut self, index: usize, site: SiteNumber, used: &AddressesUsed) {
        let Some(federation) = &self.stations[index].federation else { return };
        let gateways = &federation.site(site).gateways;
        let gateway = &gateways[self.random.below(gateways.len() as u64) as usize];
        let Some(to) = self.stations.iter().position(|station| station.site.name == *gateway) else { return };
        let (name, life) = (self.site_of(index), self.stations[to].life);
        for wait in self.network.carry(index, to, self.now) {
            let event = Event::Told { call: 0, site: name.clone(), used: Box::new(used.clone()) };
            let told = ToProcess::Tell(Box::new(event));
            self.after(DISTANCE + wait, Happening::ToProcess(to, life, told));
        }
    }

    /// Takes note of what an agent is told of addresses that other sites use.
    pub(super) fn note_told(&mut self, index: usize, event: &Event) {
        let (site, addresses) = match event {
            Event::Told { site, used, .. } => {
                let federation = self.stations[index].federation.as_ref();
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
        let now = self.now;
        self.stations[index].told.extend(addresses.iter().map(|address| ((*address, site), now)));
    }

    pub(super) fn ask_rules(&mut self, index: usize, gateway: &str, call: u64, ask: Box<AskedRules>) {
        let life = self.stations[index].life;
        let unheard = ToProcess::Tell(Box::new(Event::RulesOfSite { call, result: None }));
        self.after(RULES_TIMEOUT, Happening::ToProcess(index, life, unheard));
        let Some(to) = self.stations.iter().position(|station| station.site.name == gateway) else { return };
        for wait in self.network.carry(index, to, self.now) {
            let call = RulesCall { from: (index, life), call, to, ask: ask.clone() };
            self.after(DISTANCE + wait, Happening::AskRules(call));
        }
    }

    pub(super) fn hear_rules_asked(
        &mut self,
        RulesCall { from, call, to, ask }: RulesCall,
    ) -> Result<(), Broken> {
        if self.network.is_cut(from.0, to, self.now) || self.stations[to].process.is_none() {
            return Ok(());
        }
        self.calls += 1;
        self.rule_askers.insert(self.calls, (from.0, from.1, call));
        let event = Box::new(Event::RulesAsked { call: self.calls, ask });
        let life = self.stations[to].life;
        self.happen(Happening::ToProcess(to, life, ToProcess::Tell(event))).map(drop)
    }

    pub(super) fn give_rules(
        &mut self,
        index: usize,
        call: u64,
        result: Option<Box<Result<RulesAnswer, Failure>>>,
    ) {
        let Some((to, life, call)) = self.rule_askers.remove(&call) else { return };
        self.reach(match &result {
            Some(result) if result.is_ok() => "rules had from a host of another site",
            _ => "rules that another site did not have",
        });
        for wait in self.network.carry(index, to, self.now) {
            let answer = ToProcess::Tell(Box::new(Event::RulesOfSite { call, result: result.clone() }));
            self.after(DISTANCE + wait, Happening::ToProcess(to, life, answer));
        }
    }

    pub(super) fn hear_claim(
        &mut self,
        ClaimCall { from, call, to, claim }: ClaimCall,
    ) -> Result<(), Broken> {
        if self.network.is_cut(from.0, to, self.now) || self.stations[to].process.is_none() {
            return Ok(());
        }
        self.calls += 1;
        self.claimers.insert(self.calls, (from.0, from.1, call));
        let site = self.site_of(from.0);
        let event = Box::new(Event::Claim { call: self.calls, site, claim });
        let life = self.stations[to].life;
        self.happen(Happening::ToProcess(to, life, ToProcess::Tell(event))).map(drop)
    }

    pub(super) fn release(&mut self, index: usize, call: u64, release: Option<Box<Release>>) {
        let Some((to, life, call)) = self.claimers.remove(&call) else { return };
        match &release {
            Some(release) if release.was_owner => self.reach("a host claimed from another site"),
            Some(_) => self.reach("a host claimed that nobody had"),
            None => self.reach("a claim that was not answered"),
        }
        for wait in self.network.carry(index, to, self.now) {
            let answer = ToProcess::Tell(Box::new(Event::Claimed { call, release: release.clone() }));
            self.after(DISTANCE + wait, Happening::ToProcess(to, life, answer));
        }
    }

    /// The name of the site of an agent.
    fn site_of(&self, index: usize) -> String {
        self.stations[index].federation.as_ref().map(home).map(site_name).unwrap_or_default()
    }

    pub(super) fn answer_call(&mut self, index: usize, call: u64, taken: bool) {
        let Some((to, life, post)) = self.callers.remove(&call) else { return };
        if !taken {
            self.reach("a batch that was not taken");
        }
        for wait in self.network.carry(index, to, self.now) {
            let answer = ToProcess::Tell(Box::new(Event::Posted { post, taken }));
            self.after(DISTANCE + wait, Happening::ToProcess(to, life, answer));
        }
    }
}
