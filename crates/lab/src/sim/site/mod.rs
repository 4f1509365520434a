//! A whole site under virtual time: agents with stores of their own, on one web, over a network that loses, delays, doubles and
//! reorders, while they are killed, lose their power, are paused, cut off, added and taken away.
//!
//! Agents, stores, archives and writers are the real ones, as for one agent; how each performs its actions is in `station`. What
//! goes wrong, and when, is drawn from the seed before the run (`faults`). When the last fault is over, the site has two hours to
//! crawl what is left, and then everything is compared with what the web held.

mod check_archive;
mod check_copies;
pub(super) mod check_owner;
mod check_rest;
mod concerns;
mod disks;
mod ending;
mod faults;
mod federation;
pub(super) mod network;
mod station;
mod writing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use nephila_core::agent::{Control, Event, FetchId, StopReason};
use nephila_core::assign::partition_of;
use nephila_core::federation::Federation;
use nephila_core::settings::{Settings, UrlOrder};
use nephila_core::site::AgentId;
use nephila_core::time::{Mono, Now, Wall};
use nephila_core::url::Host;
use nephila_node::config::{Compress, Config, Durability};
use nephila_store::Store;

use super::check_lost::Lost;
use super::check_polite::Polite;
use super::check_size;
use super::check_twice::Twice;
use super::clock::DRIFT;
use super::driver::Broken;
use super::levels::{Crash, Exchange};
use super::random::Random;
use super::servers::{SITE_REQUEST_TIMEOUT, Servers};
use super::sites::{self, Callers, SiteCall};
use super::trace::Trace;
use super::wakes::Wakes;
use super::web::Plan;
use super::{Promise, Report, SiteBug, Violation};
use check_archive::Archived;
use check_copies::Copies;
use check_owner::Owners;
use check_rest::Rests;
use concerns::{Said, ToSay};
use faults::Fault;
use network::{Letter, Network, Parcel};
use station::Station;

/// The calendar when a run begins, in milliseconds.
const WALL_START: u64 = 1_800_000_000_000;
/// Steps after which a run that has not ended never will.
const STEPS_MAX: u64 = 4_000_000;
/// For how long faults strike.
const FAULTS_FOR: Duration = Duration::from_secs(3_600);
/// How long the site has after the last of them. With room for ten hosts in memory, each waits long for its turn.
const REST: Duration = Duration::from_secs(7_200);
/// When the operator says that an agent will not come back.
const FORGET_AFTER: Duration = Duration::from_secs(20);
/// When a fault is over, agents know of each other's turns at addresses after this.
const TROUBLE_LASTS: Duration = Duration::from_secs(120);
/// How long the operator has the site pause.
const PAUSED_FOR: Duration = Duration::from_secs(100);
/// In how many of a hundred cases an agent that was killed comes back at another address.
const MOVES: u64 = 15;
/// How often it is looked whether everything is done.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Something that is due at a moment.
enum Happening {
    /// To a process: its station, and in which life.
    ToProcess(usize, u64, ToProcess),
    Parcel(Parcel),
    /// Something is asked of another site.
    Call(SiteCall),
    Restart(usize),
    Wake(usize),
    DiskWell(usize),
    Fault(Fault),
    /// The operator says that an agent will not come back.
    Forget(AgentId),
    /// The operator pauses the site, or has it go on.
    Pause(bool),
    /// The same of a station that does.
    ForgetOnce(usize),
    /// A site is lost with all that it had.
    LoseSite(usize),
    /// The operators change the list of sites, to this version.
    ChangeList(u64),
    /// An agent gets that list, in which a site may be gone.
    Relist(usize, Option<usize>, u64),
    /// Somebody says something to all sites.
    Say(usize, ToSay),
    /// The operators look for what is to be taken back.
    Tidy,
    Look,
}

enum ToProcess {
    Resolved(Host),
    Answered(FetchId),
    Commit,
    Sync,
    Tell(Box<Event>),
    Letter(Box<Letter>),
}

struct Sim<'a> {
    seed: u64,
    bug: Option<SiteBug>,
    plan: Plan,
    servers: Servers,
    random: Random,
    network: Network,
    stations: Vec<Station>,
    wakes: Wakes,
    now: Mono,
    due: BTreeMap<(Mono, u64), Happening>,
    sequence: u64,
    exchanges: Exchange,
    owners: Owners,
    rests: Rests,
    polite: Polite,
    twice: Twice,
    lost: Lost,
    faults_end: Mono,
    /// What one agent knows of an address others may not know before then.
    trouble_end: Mono,
    /// How often two were struck because they were at something together.
    strikes: u32,
    /// A disk was lost: what only it held is lost too.
    has_lost: bool,
    /// An agent was forgotten, or may be, and its hosts taken over: pages may be fetched again.
    has_forgotten: bool,
    /// A machine has lost its power, or a disk has failed: what a disk was not told to keep, or said that it had not kept, it may
    /// have kept all the same.
    has_kept_more: bool,
    /// The same of an agent that was killed before it heard that something was written down.
    has_kept_untold: bool,
    copies: Copies,
    archived: Archived,
    /// The crawl goes by cash.
    by_cash: bool,
    /// Who waits for answers of other sites.
    callers: Callers,
    said: Said,
    /// By URL that is done, which agent was the last to say so.
    settled_by: BTreeMap<String, usize>,
    /// URLs that were sent to other sites.
    posted: BTreeSet<String>,
    trace: Trace<'a>,
    report: Report,
}

/// Runs one seed of one site, or of a federation of several, to the end of its crawl.
pub(super) fn run(
    seed: u64,
    bug: Option<SiteBug>,
    is_federation: bool,
    trace: Trace<'_>,
) -> Result<Report, Violation> {
    let mut sim = Sim::new(seed, bug, is_federation, trace);
    let flag = if is_federation { "--federation " } else { "--site " };
    let size = (sim.stations.len(), sim.plan.hosts.len(), sim.plan.must.len());
    match sim.work().and_then(|()| check_size::of_site(size, sim.now, &sim.report.faults)) {
        Ok(()) => Ok(sim.finish()),
        Err((promise, what)) => Err(Violation { seed, promise, at_s: sim.now.0 as f64 / 1e6, what, flag }),
    }
}

/// What all agents of a run are set to.
fn settings(seed: u64, random: &mut Random) -> Settings {
    Settings {
        seed: seed + 1,
        delay: Duration::from_secs(10),
        retry_pauses: [5, 20, 60].map(Duration::from_secs).to_vec(),
        backoff_min: Duration::from_secs(15),
        backoff_max: Duration::from_secs(120),
        request_timeout: SITE_REQUEST_TIMEOUT,
        // Nothing is abandoned at a stop.
        stop_grace: SITE_REQUEST_TIMEOUT * 2,
        ip_parallel: [1, 1, 2][random.below(3) as usize],
        // In some runs hosts come and go.
        hosts_max: [10, Settings::default().hosts_max][random.below(2) as usize],
        // In some federations hardly anything may wait for another site, or be sent there.
        outbox_urls_max: [2, Settings::default().outbox_urls_max][usize::from(!seed.is_multiple_of(3))],
        send_rate: [Some(1), None][usize::from(!seed.is_multiple_of(4))],
        // Apart from all else that is left to chance, so that runs are as they are without.
        order: match Random::fork(seed, "the order of URLs").percent(30) {
            true => UrlOrder::Cash,
            false => UrlOrder::BreadthFirst,
        },
        tell_again: [2, 16][usize::from(seed.is_multiple_of(2))],
        ..Settings::default()
    }
}

impl<'a> Sim<'a> {
    fn new(seed: u64, bug: Option<SiteBug>, is_federation: bool, trace: Trace<'a>) -> Sim<'a> {
        let mut random = Random::fork(seed, "site");
        let settings = settings(seed, &mut random);
        let config = Config {
            scope: nephila_core::scope::ScopeKind::Any,
            compress: Compress::None,
            durability: Durability::Kernel,
            shards: 1,
            store_memory_bytes: [100, 5_000, 100_000_000][random.below(3) as usize],
            settings: settings.clone(),
            ..Config::default()
        };
        let count = if is_federation { 6 } else { 5 } + random.below(3) as usize;
        let founders = if random.percent(20) { 1 } else { count - random.below(2) as usize };
        // What is lost cannot be counted: most runs by cash do without.
        let spares_disks =
            settings.order == UrlOrder::Cash && Random::fork(seed, "no disk is lost").percent(70);
        // In some runs agents are forgotten when they are silent.
        let times_out = random.percent(20) && !is_federation && !spares_disks;
        let forget_after = times_out.then(|| Duration::from_secs(20 + random.below(100)));
        let plan = Plan::of_site(seed);
        let mut stations: Vec<Station> =
            (0..count).map(|index| Station::new(seed, index, founders, forget_after, &config)).collect();
        let mut servers = Servers::default();
        if is_federation {
            federation::found(seed, &plan, &mut stations, &mut random);
            servers = Servers::at(sites::positions(seed, &plan));
        }
        let mut sim = Sim {
            seed,
            bug,
            plan,
            servers,
            random,
            network: Network::new(seed),
            wakes: Wakes::of(stations.len()),
            stations,
            now: Mono(0),
            due: BTreeMap::new(),
            sequence: 0,
            exchanges: 0,
            owners: Owners::default(),
            rests: Rests::default(),
            polite: Polite::with_clocks(settings, DRIFT),
            twice: Twice::default(),
            lost: Lost::default(),
            faults_end: Mono(0),
            trouble_end: Mono(0),
            strikes: 0,
            has_lost: false,
            has_forgotten: times_out,
            has_kept_more: false,
            has_kept_untold: false,
            copies: Copies::default(),
            archived: Archived::default(),
            by_cash: config.settings.order == UrlOrder::Cash,
            callers: Callers::default(),
            said: Said::default(),
            settled_by: BTreeMap::new(),
            posted: BTreeSet::new(),
            trace,
            report: Report::default(),
        };
        sim.polite.is_loose = times_out;
        for index in 0..count {
            let Station { site, federation, .. } = &sim.stations[index];
            let is_founder = match federation {
                Some(_) => site.peers.contains(&site.address),
                None => index < founders,
            };
            let wait = if is_founder { sim.random.below(3_000) } else { sim.random.below(1_200_000) };
            sim.after(Duration::from_millis(wait), Happening::Restart(index));
        }
        for (at, fault) in faults::draw(seed, count, FAULTS_FOR) {
            // What is lost with a disk other sites may have sent, and they do not send it again.
            if is_federation && matches!(fault, Fault::Lose { .. } | Fault::Forget { .. }) {
                continue;
            }
            if spares_disks && fault.costs_something() {
                continue;
            }
            sim.faults_end = sim.faults_end.max(Mono(0) + at + fault.lasts());
            sim.after(at, Happening::Fault(fault));
        }
        for (at, lasts, what) in federation::happenings(seed, &sim.stations, sim.sites(), FAULTS_FOR) {
            sim.faults_end = sim.faults_end.max(Mono(0) + at + lasts);
            sim.after(at, what);
        }
        if is_federation {
            sim.plan_sayings();
        }
        sim.after(LOOK_EVERY, Happening::Look);
        if sim.random.percent(30) {
            let at = Duration::from_millis(sim.random.below(FAULTS_FOR.as_millis() as u64));
            sim.after(at, Happening::Pause(true));
        }
        sim
    }

    fn finish(mut self) -> Report {
        self.report.trace_hash = self.trace.hash();
        self.report.trace_lines = self.trace.lines;
        self.report.lost_answers = self.twice.lost_answers;
        self.report.on_time = self.polite.on_time;
        self.report.virtual_s = self.now.0 / 1_000_000;
        self.report.read_back = self.archived.read_back;
        self.report
    }

    /// How many sites there are, but for those that are lost.
    fn sites(&self) -> usize {
        let federations = self.stations.iter().filter(|station| !station.is_gone);
        let homes = federations.map(|station| station.federation.as_ref().map(Federation::me));
        homes.collect::<BTreeSet<_>>().len()
    }

    /// What the clocks of an agent show.
    fn clock(&self, station: usize) -> Now {
        let Station { clock, skew_ms, .. } = &self.stations[station];
        let mono = clock.local(self.now);
        Now { mono, wall: Wall((WALL_START + mono.0 / 1_000).saturating_add_signed(*skew_ms)) }
    }

    fn after(&mut self, wait: Duration, happening: Happening) {
        self.sequence += 1;
        self.due.insert((self.now + wait, self.sequence), happening);
    }

    fn reach(&mut self, state: &str) {
        *self.report.reached.entry(state.to_owned()).or_default() += 1;
    }

    fn work(&mut self) -> Result<(), Broken> {
        for _ in 0..STEPS_MAX {
            let happening = self.due.first_key_value().map(|(key, _)| *key);
            let wake = self.wakes.next(|index| self.stations[index].next_wake());
            match (happening, wake) {
                (Some(key), wake) if wake.is_none_or(|(at, _)| key.0 <= at) => {
                    self.now = self.now.max(key.0);
                    let Some(happening) = self.due.remove(&key) else { continue };
                    if self.happen(happening)? {
                        return Ok(());
                    }
                }
                (_, Some((at, index))) => {
                    self.now = self.now.max(at);
                    self.tell(index, Event::Wake)?;
                }
                (_, None) => return Err((Promise::Bounded, "nothing is due".into())),
            }
            self.drain()?;
            self.check_counts()?;
        }
        Err((Promise::Bounded, format!("it has not come to an end after {STEPS_MAX} steps")))
    }

    /// Compares what the agents count with what their stores do.
    fn check_counts(&mut self) -> Result<(), Broken> {
        let touched = |(index, _): &(usize, &Station)| self.wakes.is_touched(*index);
        for (index, station) in self.stations.iter().enumerate().filter(touched) {
            let Some(process) = &station.process else { continue };
            let (counted, stored) = (process.agent.waiting_urls(), process.store.stored().queued);
            if counted != stored {
                let what = format!("agent {index} counts {counted} URLs that wait, its store {stored}");
                return Err((Promise::Bounded, what));
            }
        }
        Ok(())
    }

    /// True if the run has come to its end.
    fn happen(&mut self, happening: Happening) -> Result<bool, Broken> {
        match &happening {
            Happening::ToProcess(index, ..) | Happening::Parcel(Parcel { to: index, .. }) => {
                self.wakes.touch(*index);
            }
            _ => self.wakes.touch_all(),
        }
        match happening {
            Happening::ToProcess(index, life, what) => {
                if let ToProcess::Answered(fetch) = what {
                    self.answered(index, life, fetch);
                }
                if self.stations[index].life != life || self.stations[index].process.is_none() {
                    return Ok(false);
                }
                if self.stations[index].is_paused {
                    self.stations[index].missed.push_back(what);
                    return Ok(false);
                }
                self.hear(index, what)?;
            }
            Happening::Parcel(parcel) => self.arrive(parcel)?,
            Happening::Call(call) => self.call(call)?,
            Happening::Restart(index) => self.open(index)?,
            Happening::Wake(index) => {
                self.stations[index].is_paused = false;
                let missed: VecDeque<ToProcess> = std::mem::take(&mut self.stations[index].missed);
                for what in missed {
                    if self.stations[index].process.is_some() {
                        self.hear(index, what)?;
                        self.drain()?;
                    }
                }
            }
            Happening::DiskWell(index) => self.disk_well(index),
            Happening::Fault(fault) => self.strike(fault)?,
            Happening::Forget(lost) => self.forget(lost)?,
            Happening::Pause(wanted) => self.pause(wanted)?,
            Happening::ForgetOnce(away) => self.forget_once(away)?,
            Happening::LoseSite(site) => self.lose_site(site),
            Happening::ChangeList(version) => self.change_list(version),
            Happening::Relist(index, gone, version) => self.relist(index, gone, version),
            Happening::Say(station, saying) => self.say(station, saying)?,
            Happening::Tidy => self.tidy()?,
            Happening::Look => return self.look(),
        }
        Ok(false)
    }

    fn hear(&mut self, index: usize, what: ToProcess) -> Result<(), Broken> {
        match what {
            ToProcess::Resolved(host) => {
                let answer = self.servers.resolve(&self.plan, host.as_str());
                self.tell(index, Event::Resolved { host, answer })
            }
            ToProcess::Answered(fetch) => self.fetched(index, fetch),
            ToProcess::Commit => self.commit(index),
            ToProcess::Sync => self.sync(index),
            ToProcess::Tell(event) => {
                if let Event::Posted { post, .. } = *event {
                    self.stations[index].posting.take_if(|other| *other == post);
                }
                self.tell(index, *event)
            }
            ToProcess::Letter(letter) => self.deliver(index, *letter),
        }
    }

    fn strike(&mut self, fault: Fault) -> Result<(), Broken> {
        self.trace.note(self.now, format_args!("fault {fault:?}"));
        self.trouble(fault.lasts() + TROUBLE_LASTS);
        let is_up =
            |station: usize| self.stations[station].process.is_some() && !self.stations[station].is_paused;
        // What would have no effect strikes another one.
        let fault = fault.turned(self.stations.len(), is_up);
        let took_effect = match fault {
            Fault::Kill { station, back_after } => self.crash(station, Crash::Kill, back_after),
            Fault::PowerCut { station, back_after } => self.crash(station, Crash::Power, back_after),
            Fault::Stop { station, back_after } => {
                let is_up = is_up(station);
                if is_up {
                    self.stations[station].back_after = Some(back_after);
                    self.tell(station, Event::Control(Control::Stop(StopReason::Stopped)))?;
                }
                is_up
            }
            Fault::Lose { station, back_after } => self.lose(station, back_after),
            Fault::Forget { station, back_after } => self.kill_and_forget(station, back_after),
            Fault::Pause { station, lasts } => {
                let is_up = is_up(station);
                if is_up {
                    self.stations[station].is_paused = true;
                    self.after(lasts, Happening::Wake(station));
                }
                is_up
            }
            Fault::FailingDisk { station, changes, lasts } => {
                self.fail_disk(station, changes, lasts);
                self.stations[station].process.is_some()
            }
            Fault::SlowDisk { station, lasts } => {
                self.slow_disk(station, lasts);
                self.stations[station].process.is_some()
            }
            Fault::Cut { side, lasts } => {
                self.network.cut(side, self.now + lasts);
                true
            }
            Fault::Storm { loss, lasts } => {
                self.network.storm(loss, self.now + lasts);
                true
            }
        };
        if took_effect {
            *self.report.faults.entry(fault.name().to_owned()).or_default() += 1;
        }
        Ok(())
    }

    fn trouble(&mut self, lasts: Duration) {
        self.trouble_end = self.trouble_end.max(self.now + lasts);
    }

    /// Ends a process without a chance to do anything about it.
    fn crash(&mut self, index: usize, crash: Crash, back_after: Duration) -> bool {
        let clock = self.clock(index);
        let station = &mut self.stations[index];
        let Some(process) = station.process.take() else { return false };
        station.life += 1;
        (station.is_paused, station.back_after) = (false, None);
        station.missed.clear();
        station.told.clear();
        let unsynced = std::mem::take(&mut station.unsynced);
        self.has_kept_untold |= std::mem::take(&mut station.is_untold);
        match crash {
            Crash::Kill => station.disk = station.disk.kill(),
            Crash::Power => {
                self.has_kept_more = true;
                station.disk = station.disk.power_cut();
                for url in &unsynced {
                    self.lost.taken_back(url);
                    self.copies.taken_back(station.site.me, url);
                    self.archived.taken_back(station.site.me, url);
                }
            }
        }
        self.said_is_unsure();
        let station = &mut self.stations[index];
        let view = process.agent.site_view(clock);
        station.was_in_site |= view.as_ref().is_some_and(|view| !view.members.is_empty());
        let unheard = std::mem::take(&mut station.unheard);
        let posting = station.posting.take();
        for (_, flight) in process.in_flight.iter().filter(|(fetch, _)| !unheard.contains(fetch)) {
            self.polite.ends(&flight.begin(), None, false, self.now);
            self.owners.ends(&flight.host);
        }
        if posting.is_some() {
            self.reach("killed with URLs on their way to another site");
        }
        if let Some(view) = view {
            if view.handovers > 0 {
                self.reach("killed while handing over");
            }
            if view.is_delivering {
                self.reach("killed with found URLs on their way");
            }
            if view.turns_out > 0 {
                self.reach("a keeper of addresses killed with turns out");
            }
            self.count_run_out(view.turns_run_out);
        }
        let theirs = |exchange: Exchange| self.owners.asked_by(exchange) == Some(index);
        self.polite.crashed(crash, &theirs);
        self.twice.crashed(crash, &theirs);
        self.after(back_after, Happening::Restart(index));
        self.move_away(index, process.agent.members().next().is_some());
        true
    }

    /// Now and then an agent that was killed comes back at another address, and the operator writes that down for all that start
    /// later. Those that look for a site would look for it where nobody is: not before they have found it.
    fn move_away(&mut self, index: usize, was_in_site: bool) {
        let mut running = self.stations.iter().filter_map(|station| station.process.as_ref());
        let is_begun = was_in_site && running.all(|process| process.agent.members().next().is_some());
        if !is_begun || !self.random.percent(MOVES) {
            return;
        }
        let (before, after) = self.stations[index].move_away();
        self.trace.note(self.now, format_args!("{before} will be at {after}"));
        for station in &mut self.stations {
            for peer in station.site.peers.iter_mut().filter(|peer| **peer == before) {
                peer.clone_from(&after);
            }
        }
        self.reach("an agent back at another address");
    }

    fn count_run_out(&mut self, turns: u64) {
        *self.report.reached.entry("a turn at an address that ran out".to_owned()).or_default() += turns;
    }

    /// Takes an agent away for good, with its disk.
    fn lose(&mut self, index: usize, back_after: Duration) -> bool {
        if !self.crash(index, Crash::Kill, back_after) {
            return false;
        }
        (self.has_lost, self.has_forgotten) = (true, true);
        self.polite.lost();
        let clock = self.clock(index);
        let is_in_site = |(other, station): (usize, &Station)| {
            let agent = station.process.as_ref().map(|process| &process.agent);
            let view = agent.and_then(|agent| agent.site_view(clock));
            other != index && (station.was_in_site || view.is_some_and(|view| !view.members.is_empty()))
        };
        let has_begun = self.stations.iter().enumerate().any(is_in_site);
        let addresses = self.stations.iter().map(|station| station.site.address.clone());
        let addresses = has_begun.then(|| addresses.collect());
        let lost = self.stations[index].renew(self.seed, addresses);
        self.copies.lost(lost);
        self.after(FORGET_AFTER, Happening::Forget(lost));
        true
    }

    /// Tells an agent that the site is to pause, and later another one that it is to go on, once that has heard of the pause.
    fn pause(&mut self, wanted: bool) -> Result<(), Broken> {
        let mut told = None;
        for index in 0..self.stations.len() {
            let clock = self.clock(index);
            let station = &mut self.stations[index];
            let process = station.process.as_mut().filter(|_| !station.is_paused);
            if process.is_some_and(|process| process.agent.status(clock).paused != wanted) {
                told = Some(index);
            }
        }
        match told {
            Some(index) if wanted => {
                self.after(PAUSED_FOR, Happening::Pause(false));
                self.reach("the site paused");
                self.tell(index, Event::Control(Control::Pause))
            }
            Some(index) => {
                // Until nobody is left that has not heard of it.
                self.after(PAUSED_FOR, Happening::Pause(false));
                self.tell(index, Event::Control(Control::Resume))
            }
            None if !wanted && self.now < self.faults_end + PAUSED_FOR => {
                self.after(PAUSED_FOR, Happening::Pause(false));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Takes an agent away that comes back after it was forgotten.
    fn kill_and_forget(&mut self, index: usize, back_after: Duration) -> bool {
        if !self.crash(index, Crash::Kill, back_after) {
            return false;
        }
        self.has_forgotten = true;
        self.polite.lost();
        self.polite.is_loose = true;
        self.after(FORGET_AFTER, Happening::ForgetOnce(index));
        true
    }

    /// Tells an agent that another one will not come back, if that is still away.
    fn forget_once(&mut self, away: usize) -> Result<(), Broken> {
        let is_up = |station: &Station| station.process.is_some() && !station.is_paused;
        if self.stations[away].process.is_some() {
            return Ok(());
        }
        let me = self.stations[away].site.me;
        match self.stations.iter().position(is_up) {
            Some(index) => self.tell(index, Event::Control(Control::Forget(me))),
            None => Ok(()),
        }
    }

    /// Whether an agent at work is taken for gone by somebody, or another one has made the token of a host of its anew.
    fn is_stray(&self, index: usize, host: &str) -> bool {
        let Some(partition) =
            Host::parse(host).map(|host| partition_of(&host)).filter(|_| self.has_forgotten)
        else {
            return false;
        };
        let me = self.stations[index].site.me;
        self.stations.iter().enumerate().any(|(other, station)| {
            station.process.as_ref().is_some_and(|process| {
                let holds = process.agent.open_partitions().is_some_and(|open| open.contains(partition));
                process.agent.member(me).is_none() || other != index && holds
            })
        })
    }

    /// Tells an agent that another one will not come back, or waits for one to tell.
    fn forget(&mut self, lost: AgentId) -> Result<(), Broken> {
        let is_up = |station: &Station| station.process.is_some() && !station.is_paused;
        match self.stations.iter().position(is_up) {
            Some(index) => self.tell(index, Event::Control(Control::Forget(lost)))?,
            None => self.after(FORGET_AFTER, Happening::Forget(lost)),
        }
        // The one that was told may be killed before it has told others.
        if self.now < self.faults_end + REST / 4 {
            self.after(FORGET_AFTER * 6, Happening::Forget(lost));
        }
        Ok(())
    }
}
