//! A federation of sites each of whose agents share a store: a simulated cluster for each site, what is done to the sites, and
//! what passes between them.

use std::collections::BTreeSet;
use std::time::Duration;

use nephila_core::agent::{Control, Event, Everywhere};
use nephila_core::federation::{AddressesUsed, Federation, SiteNumber};
use nephila_core::record::Block;
use nephila_core::settings::Settings;
use nephila_core::url::Host;

use super::super::driver::Broken;
use super::super::random::Random;
use super::super::sites::{
    Answered, Asked, DISTANCE, RELISTED, SiteCall, changes, cuts, home, of_plan, site_name,
};
use super::super::{Promise, SharedBug};
use super::faults::Fault;
use super::station::Station;
use super::{FAULTS_FOR, Happening, Sim, TROUBLE_LASTS, ToProcess};

/// How many sites say that something is blocked everywhere.
const SAYINGS: u64 = 4;

/// What a run knows of its sites.
#[derive(Default)]
pub(super) struct Sites {
    callers: super::super::sites::Callers,
    /// URLs that were sent to other sites.
    posted: BTreeSet<String>,
    /// What was seen to be blocked everywhere by an agent that had it from the store of its site, or had put it there.
    said: BTreeSet<Block>,
}

/// How many sites a run has.
pub(super) fn count(random: &mut Random) -> usize {
    2 + random.below(2) as usize
}

/// The same settings for a run of several: in some hardly anything may wait for another site, or be sent there.
pub(super) fn settings(seed: u64, settings: Settings) -> Settings {
    Settings {
        outbox_urls_max: [2, settings.outbox_urls_max][usize::from(!seed.is_multiple_of(3))],
        send_rate: [Some(1), None][usize::from(!seed.is_multiple_of(4))],
        ..settings
    }
}

impl Sim<'_> {
    /// Divides hosts among the sites that the agents are divided among, and plans what is done to them.
    pub(super) fn found_sites(&mut self) {
        let lists = self.lists(1);
        for station in &mut self.stations {
            station.federation = lists.get(station.home).cloned();
        }
        let (seed, sites) = (self.seed, self.redis.len());
        for (at, side, lasts) in cuts(seed, &self.homes(), sites, FAULTS_FOR) {
            self.faults_end = self.faults_end.max(self.now + at + lasts);
            self.after(at, Happening::Fault(Fault::Cut { side, lasts }));
        }
        for (at, version) in changes(seed, sites, FAULTS_FOR) {
            self.faults_end = self.faults_end.max(self.now + at + RELISTED);
            self.after(at, Happening::ChangeList(version));
        }
        for number in 0..SAYINGS {
            let at = Duration::from_millis(self.random.below(FAULTS_FOR.as_millis() as u64 / 2));
            let station = self.random.below(self.stations.len() as u64) as usize;
            self.after(at, Happening::Say(station, number));
        }
    }

    fn homes(&self) -> Vec<usize> {
        self.stations.iter().map(|station| station.home).collect()
    }

    /// A version of the list of sites, as each of them has it.
    fn lists(&self, version: u64) -> Vec<Federation> {
        let names: Vec<String> = self.stations.iter().map(|station| station.name().to_owned()).collect();
        of_plan(self.seed, &self.plan, &self.homes(), &names, (None, version))
    }

    /// The operators give all agents another list: all of a site at once, one site after the other.
    pub(super) fn change_list(&mut self, version: u64) {
        let begins = self.random.below(300);
        for site in 0..self.redis.len() {
            let wait = Duration::from_secs(begins + self.random.below(100));
            self.after(wait, Happening::Relist(site, version));
        }
        self.reach("another list of sites");
    }

    /// All agents of a site end, and start with another list.
    pub(super) fn relist(&mut self, site: usize, version: u64) {
        let lists = self.lists(version);
        // What a host has asked for may be known to another site than the one that asks it.
        self.trouble(TROUBLE_LASTS);
        for index in 0..self.stations.len() {
            let station = &mut self.stations[index];
            let list = station.federation.as_ref().map(Federation::list);
            if station.home != site || list.is_some_and(|list| list.version >= version) {
                continue;
            }
            station.earlier.extend(station.federation.take());
            station.federation = lists.iter().find(|list| home(list) == site).cloned();
            let back_after = Duration::from_millis(self.random.below(20_000));
            self.kill(index, back_after);
        }
    }

    /// Asks something of the site that an agent is a gateway of.
    pub(super) fn ask_site(&mut self, index: usize, gateway: &str, asked: Asked) {
        let life = self.stations[index].life;
        let mut unheard = asked.unanswered();
        if let (Asked::Batch(post, _), Event::Posted { taken, .. }) = (&asked, &mut unheard) {
            self.stations[index].posting = Some(*post);
            *taken = self.bug == Some(SharedBug::TrustsSilence);
        }
        let unheard = ToProcess::Tell(Box::new(unheard));
        self.after(asked.timeout(), Happening::ToProcess(index, life, unheard));
        let Some(to) = self.stations.iter().position(|station| station.name() == gateway) else { return };
        if let Asked::Batch(_, batch) = &asked {
            self.reach("a batch for another site");
            if self.stations[index].federation.as_ref().is_some_and(Federation::goes_by_place) {
                // Who gets them hears how often they were tried, and not when.
                batch.found.iter().for_each(|found| self.polite.tried_anew(&found.url));
            }
            if batch.found.iter().any(|found| !self.sites.posted.insert(found.url.clone())) {
                self.reach("a batch that was sent again");
            }
        }
        for wait in self.network.carry(index, to, self.now) {
            let call = SiteCall { from: (index, life), to, asked: asked.clone() };
            self.after(DISTANCE + wait, Happening::Call(call));
        }
    }

    /// Something is asked of a site.
    pub(super) fn call(&mut self, SiteCall { from, to, asked }: SiteCall) -> Result<(), Broken> {
        if self.network.is_cut(from.0, to, self.now) || self.stations[to].process.is_none() {
            return Ok(());
        }
        if matches!(asked, Asked::Batch(..) | Asked::Claim(..)) {
            // Whoever has asked, or is asked, may not live to see the answer.
            let struck = if self.random.percent(50) { from.0 } else { to };
            self.strike_now(struck, 1);
        }
        let call = self.sites.callers.wait(from, &asked);
        let (life, site) = (self.stations[to].life, site_name(self.stations[from.0].home));
        let event = Box::new(asked.event(call, site));
        self.happen(Happening::ToProcess(to, life, ToProcess::Tell(event))).map(drop)
    }

    pub(super) fn answer_call(&mut self, index: usize, call: u64, mut answered: Answered) {
        let Some((to, life, number)) = self.sites.callers.take(call) else { return };
        if let Some(state) = answered.state() {
            self.reach(state);
        }
        if let (Answered::Release(Some(release)), Some(SharedBug::ReleasesWithoutSeen)) =
            (&mut answered, self.bug)
        {
            release.moved.hosts.iter_mut().for_each(|host| host.seen.clear());
        }
        for wait in self.network.carry(index, to, self.now) {
            let answer = ToProcess::Tell(Box::new(answered.clone().event(number)));
            self.after(DISTANCE + wait, Happening::ToProcess(to, life, answer));
        }
    }

    /// Tells one agent of a site which addresses another one uses.
    pub(super) fn tell_site(&mut self, index: usize, site: SiteNumber, used: &AddressesUsed) {
        let Some(federation) = &self.stations[index].federation else { return };
        let gateways = &federation.site(site).gateways;
        let gateway = &gateways[self.random.below(gateways.len() as u64) as usize];
        let Some(to) = self.stations.iter().position(|station| station.name() == gateway) else { return };
        let (name, life) = (site_name(self.stations[index].home), self.stations[to].life);
        for wait in self.network.carry(index, to, self.now) {
            let event = Event::Told { call: 0, site: name.clone(), used: Box::new(used.clone()) };
            let told = ToProcess::Tell(Box::new(event));
            self.after(DISTANCE + wait, Happening::ToProcess(to, life, told));
        }
    }

    /// Somebody blocks something everywhere: at this station, or at the next one that is up. No host of the web has such a name.
    pub(super) fn say(&mut self, first: usize, number: u64) -> Result<(), Broken> {
        let count = self.stations.len();
        let is_up = |station: &Station| {
            station.process.is_some() && station.paused_since.is_none() && station.back_after.is_none()
        };
        let station = (first..first + count).map(|at| at % count).find(|at| is_up(&self.stations[*at]));
        let block = Host::parse(&format!("{number}.lasting.test")).map(Block::Name);
        let (Some(station), Some(block)) = (station, block) else { return Ok(()) };
        self.reach("something said to all sites");
        self.tell(station, Event::Control(Control::Everywhere(Everywhere::Block(block))))
    }

    /// Looks whether pages wait for room.
    pub(super) fn look_at_outboxes(&mut self) {
        for index in 0..if self.redis.len() > 1 { self.stations.len() } else { 0 } {
            let clock = self.clock(index);
            let Some(process) = &mut self.stations[index].process else { continue };
            if process.agent.status(clock).hosts.held_up > 0 {
                self.reach("pages that wait for room on the way to another site");
            }
        }
    }

    /// Notes what stores know to be blocked everywhere, and says whether all agents know the same.
    pub(super) fn look_at_said(&mut self) -> bool {
        let agents = self.stations.iter().filter_map(|station| station.process.as_ref());
        let agents: Vec<_> = agents.map(|process| &process.agent).collect();
        for agent in agents.iter().filter(|agent| agent.are_wishes_kept()) {
            self.sites.said.extend(agent.blocks().cloned());
        }
        let digests: BTreeSet<u64> = agents.iter().map(|agent| agent.concerns_digest()).collect();
        digests.len() <= 1
    }

    /// What was said to all sites all know in the end.
    pub(super) fn check_said(&self) -> Result<(), Broken> {
        for process in self.stations.iter().filter_map(|station| station.process.as_ref()) {
            let known: BTreeSet<&Block> = process.agent.blocks().collect();
            if let Some(block) = self.sites.said.iter().find(|block| !known.contains(block)) {
                return Err((Promise::AllKnow, format!("{block:?} is not blocked any more")));
            }
        }
        Ok(())
    }
}
