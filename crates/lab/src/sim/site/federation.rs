//! A federation of sites whose agents have stores of their own: what is done to it, and what passes between its sites.

use std::time::Duration;

use nephila_core::agent::Event;
use nephila_core::federation::{AddressesUsed, Federation, Heard, Release, SiteNumber};
use nephila_core::site::Moved;

use super::super::SiteBug;
use super::super::driver::Broken;
use super::super::levels::{Crash, Exchange};
use super::super::random::Random;
use super::super::sites::{
    Answered, Asked, DISTANCE, RELISTED, SiteCall, changes, cuts, home, of_plan, site_name,
};
use super::super::web::Plan;
use super::faults::Fault;
use super::station::Station;
use super::{Happening, Sim, TROUBLE_LASTS, ToProcess};

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

/// What goes wrong between sites, or is done to them: when, for how long, and what.
pub(super) fn happenings(
    seed: u64,
    stations: &[Station],
    sites: usize,
    within: Duration,
) -> Vec<(Duration, Duration, Happening)> {
    let homes: Vec<usize> = stations.iter().filter_map(|of| of.federation.as_ref()).map(home).collect();
    let listed = homes.iter().max().map_or(0, |last| last + 1);
    let cuts = if homes.is_empty() { Vec::new() } else { cuts(seed, &homes, listed, within) };
    let cut = |(at, side, lasts)| (at, lasts, Happening::Fault(Fault::Cut { side, lasts }));
    let mut all: Vec<_> = cuts.into_iter().map(cut).collect();
    match loss(seed, sites, within) {
        Some((at, site)) => all.push((at, RELISTED, Happening::LoseSite(site))),
        None => {
            let changes = changes(seed, sites, within).into_iter();
            all.extend(changes.map(|(at, version)| (at, RELISTED, Happening::ChangeList(version))));
        }
    }
    all
}

/// In some runs a site is lost for good: which one, and when. Never the first, which alone knows the seeds.
fn loss(seed: u64, sites: usize, within: Duration) -> Option<(Duration, usize)> {
    let mut random = Random::fork(seed, "lost sites");
    let site = 1 + random.below((sites as u64).saturating_sub(1).max(1)) as usize;
    // Much of the crawl has to be done again.
    let at = Duration::from_millis(random.below(within.as_millis() as u64 / 2));
    (sites > 1 && random.percent(30)).then_some((at, site))
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

    /// Asks something of the site that an agent is a gateway of.
    pub(super) fn ask_site(&mut self, index: usize, gateway: &str, asked: Asked) {
        let life = self.stations[index].life;
        if let Some(answer) = self.unasked(index, &asked) {
            let answer = ToProcess::Tell(Box::new(answer.event(asked.number())));
            return self.after(DISTANCE, Happening::ToProcess(index, life, answer));
        }
        let mut unheard = asked.unanswered();
        if let (Asked::Batch(post, _), Event::Posted { taken, .. }) = (&asked, &mut unheard) {
            self.stations[index].posting = Some(*post);
            *taken = self.bug == Some(SiteBug::TrustsSilence);
        }
        let unheard = ToProcess::Tell(Box::new(unheard));
        self.after(asked.timeout(), Happening::ToProcess(index, life, unheard));
        let Some(to) = self.stations.iter().position(|station| station.site.name == gateway) else { return };
        if let Asked::Batch(_, batch) = &asked {
            self.reach("a batch for another site");
            if self.stations[index].federation.as_ref().is_some_and(Federation::goes_by_place) {
                // Who gets them hears how often they were tried, and not when.
                batch.found.iter().for_each(|found| self.polite.tried_anew(&found.url));
            }
            if batch.found.iter().any(|found| !self.posted.insert(found.url.clone())) {
                self.reach("a batch that was sent again");
            }
        }
        for wait in self.network.carry(index, to, self.now) {
            let call = SiteCall { from: (index, life), to, asked: asked.clone() };
            self.after(DISTANCE + wait, Happening::Call(call));
        }
    }

    /// What some that are broken hear without asking.
    fn unasked(&self, index: usize, asked: &Asked) -> Option<Answered> {
        match (asked, self.bug) {
            (Asked::Claim(..), Some(SiteBug::ClaimsUnasked)) => {
                let agent = self.stations[index].site.me;
                let (at, moved) = (self.clock(index).wall, Moved::default());
                let release = Release { was_owner: true, keeps: false, agent, at, moved, next: None };
                Some(Answered::Release(Some(Box::new(release))))
            }
            (Asked::Say(..), Some(SiteBug::KeepsToItself)) => {
                let differ = Vec::new();
                let heard = Heard { differ, newest: Default::default(), lost: None };
                Some(Answered::Heard(Some(Box::new(heard))))
            }
            _ => None,
        }
    }

    /// Something is asked of a site.
    pub(super) fn call(&mut self, SiteCall { from, to, asked }: SiteCall) -> Result<(), Broken> {
        if self.network.is_cut(from.0, to, self.now) || self.stations[to].process.is_none() {
            return Ok(());
        }
        let site = self.site_of(from.0);
        match &asked {
            Asked::Batch(..) => self.strike_one(from.0, to, 1),
            Asked::Say(_, saying) => {
                if !saying.part.is_empty() {
                    self.strike_one(from.0, to, 6);
                }
                if saying.of != site {
                    self.reach("what a lost site said told by another");
                }
            }
            Asked::Claim(..) | Asked::Rules(..) => {}
        }
        let call = self.callers.wait(from, &asked);
        if matches!(asked, Asked::Batch(..)) && self.bug == Some(SiteBug::AnswersEarly) {
            self.answer_call(to, call, Answered::Taken(true));
        }
        let life = self.stations[to].life;
        let event = Box::new(asked.event(call, site));
        self.happen(Happening::ToProcess(to, life, ToProcess::Tell(event))).map(drop)
    }

    pub(super) fn answer_call(&mut self, index: usize, call: u64, answered: Answered) {
        let Some((to, life, number)) = self.callers.take(call) else { return };
        if let Some(state) = answered.state() {
            self.reach(state);
        }
        for wait in self.network.carry(index, to, self.now) {
            let answer = ToProcess::Tell(Box::new(answered.clone().event(number)));
            self.after(DISTANCE + wait, Happening::ToProcess(to, life, answer));
        }
    }

    /// The number of the site of an agent.
    pub(super) fn home_of(&self, index: usize) -> usize {
        self.stations[index].federation.as_ref().map_or(0, home)
    }

    /// The name of the site of an agent.
    fn site_of(&self, index: usize) -> String {
        self.stations[index].federation.as_ref().map(home).map(site_name).unwrap_or_default()
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
}
