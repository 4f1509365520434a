//! A site whose agents share a store, under virtual time: the real store, on a Redis Cluster that is simulated
//! ([`crate::redis::simulated`]), while agents are killed, stopped, paused and cut off, servers are lost with what their
//! replicas lack, refuse, and leave it open what they have done; and the clocks of all are wrong.
//!
//! How an agent performs its actions is in `station`, how it talks to the store in `keeper`. What goes wrong, and when, is drawn
//! from the seed before the run (`faults`). When the last fault is over, the site has an hour to crawl what is left, and then
//! everything is compared with what the web held.

mod faults;
mod federation;
mod fetching;
mod station;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nephila_core::agent::{Control, Event, FetchId, StopReason};
use nephila_core::assign::{PARTITIONS, partition_of};
use nephila_core::record::{Outcome, Settled};
use nephila_core::settings::Settings;
use nephila_core::site::{AgentId, Beat};
use nephila_core::time::{Mono, Now, Wall};
use nephila_core::url::{Host, Url};
use nephila_store::redis::{RedisOptions, RedisStore};
use nephila_store::{KnownState, Store, StoreLimits};

use super::check_lost::{self, Lost, is_done};
use super::check_polite::Polite;
use super::check_size;
use super::check_twice::Twice;
use super::clock::DRIFT;
use super::driver::{Broken, broken};
use super::levels::{Crash, Exchange};
use super::random::Random;
use super::servers::{SITE_REQUEST_TIMEOUT, Servers};
use super::site::check_owner::Owners;
use super::site::network::{Letter, Network, Parcel};
use super::sites::{self, SiteCall};
use super::trace::Trace;
use super::wakes::Wakes;
use super::web::Plan;
use super::{Promise, Report, SharedBug, Violation};
use crate::redis::simulated::{ServerBug, SimRedis};
use faults::Fault;
use federation::Sites;
use station::Station;

/// The calendar when a run begins, in milliseconds.
const WALL_START: u64 = 1_800_000_000_000;
/// Steps after which a run that has not ended never will.
const STEPS_MAX: u64 = 4_000_000;
/// For how long faults strike.
const FAULTS_FOR: Duration = Duration::from_secs(3_600);
/// How long the site has after the last of them.
const REST: Duration = Duration::from_secs(3_600);
/// When a fault is over, agents know of each other's turns at addresses after this.
const TROUBLE_LASTS: Duration = Duration::from_secs(120);
/// How often it is looked whether everything is done.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a lease lasts.
const LEASE: Duration = Duration::from_secs(5);
/// A partition that moves again within this time was handed over twice.
const SOON: Duration = Duration::from_secs(20);

/// Something that is due at a moment.
enum Happening {
    /// To a process: its station, and in which life.
    ToProcess(usize, u64, ToProcess),
    /// A beat reaches the store.
    Beat(usize, u64, Box<Beat>),
    Parcel(Parcel),
    Restart(usize),
    Wake(usize),
    Fault(Fault),
    /// A primary of a site's that was cut off from its replica is lost.
    Lost(usize, usize, Duration),
    /// Something is asked of another site.
    Call(SiteCall),
    /// The operators change the list of sites, to this version,
    ChangeList(u64),
    /// and a site gets it.
    Relist(usize, u64),
    /// Something is said to all sites.
    Say(usize, u64),
    Look,
}

enum ToProcess {
    Resolved(Host),
    Answered(FetchId),
    Work,
    Tell(Box<Event>),
    Letter(Box<Letter>),
}

/// What an agent has received, whether it was counted or not.
#[derive(Default)]
struct Archive {
    received: Vec<Vec<u8>>,
    /// It was lost with its agent: pages that are nowhere else cannot be read back.
    is_lost: bool,
}

struct Sim<'a> {
    seed: u64,
    bug: Option<SharedBug>,
    plan: Plan,
    servers: Servers,
    random: Random,
    network: Network,
    /// That of each site.
    redis: Vec<SimRedis>,
    stations: Vec<Station>,
    archives: Vec<Archive>,
    wakes: Wakes,
    now: Mono,
    due: BTreeMap<(Mono, u64), Happening>,
    sequence: u64,
    /// The site and partition of each request.
    exchanges: Vec<(usize, u16)>,
    /// Of each partition that was taken over, how many requests there were before, by whom it was, and when.
    taken: BTreeMap<(usize, u16), (Exchange, usize, Mono)>,
    /// Who wrote what found URLs for others, by site and place.
    found_by: BTreeMap<(usize, u64), (usize, u64)>,
    sites: Sites,
    owners: Owners,
    polite: Polite,
    twice: Twice,
    lost: Lost,
    faults_end: Mono,
    /// What one agent knows of an address others may not know before then.
    trouble_end: Mono,
    trace: Trace<'a>,
    report: Report,
}

/// Runs one seed of one site, or of a federation of several, to the end of its crawl.
pub(super) fn run(
    seed: u64,
    bug: Option<SharedBug>,
    is_federation: bool,
    trace: Trace<'_>,
) -> Result<Report, Violation> {
    let mut sim = Sim::new(seed, bug, is_federation, trace);
    let flag = if is_federation { "--shared --federation " } else { "--shared " };
    let size = (sim.stations.len(), sim.plan.hosts.len(), sim.plan.must.len());
    match sim.work().and_then(|()| check_size::of_site(size, sim.now, &sim.report.faults)) {
        Ok(()) => Ok(sim.finish()),
        Err((promise, what)) => Err(Violation { seed, promise, at_s: sim.now.0 as f64 / 1e6, what, flag }),
    }
}

/// The store of a client.
fn options(redis: &SimRedis, client: usize, seed: u64) -> RedisOptions {
    RedisOptions {
        cluster: redis.options(client),
        crawl: String::new(),
        partitions: Vec::new(),
        limits: StoreLimits::NONE,
        writer: AgentId::from(client as u64),
        accepts_unsafe: true,
        hash_key: Some(seed),
    }
}

impl<'a> Sim<'a> {
    fn new(seed: u64, bug: Option<SharedBug>, is_federation: bool, trace: Trace<'a>) -> Sim<'a> {
        let mut random = Random::fork(seed, "site that shares a store");
        let settings = Settings {
            seed: seed + 1,
            request_timeout: SITE_REQUEST_TIMEOUT,
            delay: Duration::from_secs(10),
            retry_pauses: [5, 20, 60].map(Duration::from_secs).to_vec(),
            backoff_min: Duration::from_secs(15),
            backoff_max: Duration::from_secs(120),
            ip_parallel: [1, 1, 2][random.below(3) as usize],
            // In some runs hosts come and go.
            hosts_max: [10, Settings::default().hosts_max][random.below(2) as usize],
            ..Settings::default()
        };
        let server_bug = match bug {
            Some(SharedBug::NoFencing) => Some(ServerBug::IgnoresEpochs),
            Some(SharedBug::AcknowledgesBeforeTheReplica) => Some(ServerBug::AnswersBeforeTheReplica),
            Some(SharedBug::LosesOutboxes) => Some(ServerBug::LosesOutboxes),
            _ => None,
        };
        let count = if is_federation { 6 } else { 5 } + random.below(3) as usize;
        let (sites, settings) = match is_federation {
            true => (federation::count(&mut random), federation::settings(seed, settings)),
            false => (1, settings),
        };
        let redis: Vec<SimRedis> =
            (0..sites as u64).map(|site| SimRedis::new(seed ^ site << 56, server_bug)).collect();
        let station =
            |index: usize| Station::new(seed, (index, index % sites), &settings, &redis[index % sites]);
        let stations = (0..count).map(station).collect();
        let plan = Plan::of_site(seed);
        let servers = match is_federation {
            true => Servers::at(sites::positions(seed, &plan)),
            false => Servers::default(),
        };
        let mut sim = Sim {
            seed,
            bug,
            plan,
            servers,
            random,
            network: Network::new(seed),
            redis,
            wakes: Wakes::of(count),
            stations,
            archives: (0..count).map(|_| Archive::default()).collect(),
            now: Mono(0),
            due: BTreeMap::new(),
            sequence: 0,
            exchanges: Vec::new(),
            taken: BTreeMap::new(),
            found_by: BTreeMap::new(),
            sites: Sites::default(),
            owners: Owners::default(),
            polite: Polite::with_clocks(settings, DRIFT),
            twice: Twice::default(),
            lost: Lost::default(),
            faults_end: Mono(0),
            trouble_end: Mono(0),
            trace,
            report: Report::default(),
        };
        for index in 0..count {
            let wait = if index == 0 || sim.random.percent(70) { 3_000 } else { 1_200_000 };
            let wait = sim.random.below(wait);
            sim.after(Duration::from_millis(wait), Happening::Restart(index));
        }
        for (at, fault) in faults::draw(seed, count, FAULTS_FOR) {
            sim.faults_end = sim.faults_end.max(Mono(0) + at + fault.lasts());
            sim.after(at, Happening::Fault(fault));
        }
        if is_federation {
            sim.found_sites();
        }
        sim.after(LOOK_EVERY, Happening::Look);
        sim
    }

    fn finish(mut self) -> Report {
        self.report.trace_hash = self.trace.hash();
        self.report.trace_lines = self.trace.lines;
        self.report.lost_answers = self.twice.lost_answers;
        self.report.on_time = self.polite.on_time;
        self.report.virtual_s = self.now.0 / 1_000_000;
        self.report.read_back = self.lost.read_back;
        *self.report.reached.entry("an outcome that nobody knows".to_owned()).or_default() +=
            self.redis.iter().map(SimRedis::unknown_outcomes).sum::<u64>();
        self.report
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

    fn set_now(&mut self, now: Mono) {
        self.now = self.now.max(now);
        self.redis.iter().for_each(|redis| redis.set_now(Duration::from_micros(self.now.0)));
    }

    fn work(&mut self) -> Result<(), Broken> {
        for _ in 0..STEPS_MAX {
            let happening = self.due.first_key_value().map(|(key, _)| *key);
            let wake = self.wakes.next(|index| self.stations[index].next_wake());
            match (happening, wake) {
                (Some(key), wake) if wake.is_none_or(|(at, _)| key.0 <= at) => {
                    self.set_now(key.0);
                    let Some(happening) = self.due.remove(&key) else { continue };
                    if self.happen(happening)? {
                        return Ok(());
                    }
                }
                (_, Some((at, index))) => {
                    self.set_now(at);
                    self.tell(index, Event::Wake)?;
                }
                (_, None) => return Err((Promise::Bounded, "nothing is due".into())),
            }
            self.drain()?;
        }
        Err((Promise::Bounded, format!("it has not come to an end after {STEPS_MAX} steps")))
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
                if self.stations[index].paused_since.is_some() {
                    self.stations[index].missed.push_back(what);
                    return Ok(false);
                }
                self.hear(index, what)?;
            }
            Happening::Beat(index, life, beat) => self.beat(index, life, &beat)?,
            Happening::Parcel(parcel) => self.arrive(parcel)?,
            Happening::Restart(index) => self.open(index)?,
            Happening::Wake(index) => {
                let since = self.stations[index].paused_since.take();
                if since.is_some_and(|since| self.now.since(since) > LEASE) {
                    self.reach("wake-up after the lease");
                }
                let missed: VecDeque<ToProcess> = std::mem::take(&mut self.stations[index].missed);
                for what in missed {
                    if self.stations[index].process.is_some() {
                        self.hear(index, what)?;
                        self.drain()?;
                    }
                }
            }
            Happening::Fault(fault) => self.strike(fault)?,
            Happening::Lost(site, shard, down_for) => self.fail_over(site, shard, down_for),
            Happening::Call(call) => self.call(call)?,
            Happening::ChangeList(version) => self.change_list(version),
            Happening::Relist(site, version) => self.relist(site, version),
            Happening::Say(station, number) => self.say(station, number)?,
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
            ToProcess::Work => self.keep_working(index),
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
        let name = fault.name();
        let is_up = |sim: &Sim<'_>, station: usize| {
            sim.stations[station].process.is_some() && sim.stations[station].paused_since.is_none()
        };
        // What would have no effect strikes another one.
        let fault = fault.turned(self.stations.len(), |station| is_up(self, station));
        let took_effect = match fault {
            Fault::Kill { station, back_after } => self.kill(station, back_after),
            Fault::Lose { station, back_after } => self.lose(station, back_after),
            Fault::Stop { station, back_after } => {
                let is_up = is_up(self, station);
                if is_up {
                    self.stations[station].back_after = Some(back_after);
                    self.tell(station, Event::Control(Control::Stop(StopReason::Stopped)))?;
                }
                is_up
            }
            Fault::Pause { station, lasts } => {
                let is_up = is_up(self, station);
                if is_up {
                    self.stations[station].paused_since = Some(self.now);
                    self.after(lasts, Happening::Wake(station));
                }
                is_up
            }
            Fault::Cut { side, lasts } => {
                self.network.cut(side, self.now + lasts);
                true
            }
            Fault::CutOff { station, lasts } => {
                self.redis[self.stations[station].home].cut(station, lasts);
                is_up(self, station)
            }
            Fault::Storm { loss, lasts } => {
                self.network.storm(loss, self.now + lasts);
                true
            }
            Fault::Slow { station, lasts } => {
                self.stations[station].slow_until = self.now + lasts;
                is_up(self, station)
            }
            Fault::Refuse { shard, lasts } => {
                let site = self.some_site();
                self.redis[site].refuse(shard, lasts);
                true
            }
            Fault::FailOver { shard, alone_before, lasts } => {
                // Until after it is lost.
                let site = self.some_site();
                self.redis[site].freeze(shard, alone_before + Duration::from_millis(1));
                self.after(alone_before, Happening::Lost(site, shard, lasts));
                true
            }
            Fault::Break { of_thousand, lasts } => {
                let site = self.some_site();
                self.redis[site].break_some(of_thousand, lasts);
                true
            }
        };
        if took_effect {
            *self.report.faults.entry(name.to_owned()).or_default() += 1;
        }
        Ok(())
    }

    fn trouble(&mut self, lasts: Duration) {
        self.trouble_end = self.trouble_end.max(self.now + lasts);
    }

    /// One of the sites.
    fn some_site(&mut self) -> usize {
        match self.redis.len() {
            1 => 0,
            count => self.random.below(count as u64) as usize,
        }
    }

    fn fail_over(&mut self, site: usize, shard: usize, down_for: Duration) {
        let longest = if self.random.percent(25) { 60_000 } else { 1_500 };
        let alone_for = Duration::from_millis(self.random.below(longest));
        let lost = self.redis[site].fail_over(shard, down_for, alone_for);
        self.trace.note(self.now, format_args!("shard {shard} loses {lost}"));
        if lost > 0 {
            self.reach("failover between write and WAIT");
        }
    }

    /// Ends a process without a chance to do anything about it.
    fn kill(&mut self, index: usize, back_after: Duration) -> bool {
        let clock = self.clock(index);
        let station = &mut self.stations[index];
        let Some(process) = station.process.take() else { return false };
        station.life += 1;
        station.back_after = None;
        station.paused_since = None;
        station.missed.clear();
        station.told.clear();
        let was_posting = station.posting.take().is_some();
        let unheard = std::mem::take(&mut station.unheard);
        for (_, flight) in process.in_flight.iter().filter(|(fetch, _)| !unheard.contains(fetch)) {
            self.polite.ends(&flight.begin(), None, false, self.now);
            self.owners.ends(&flight.host);
        }
        if was_posting {
            self.reach("killed with URLs on their way to another site");
        }
        if let Some(view) = process.agent.site_view(clock) {
            if view.handovers > 0 {
                self.reach("takeover during handover");
            }
            if view.is_delivering {
                self.reach("killed with found URLs on their way");
            }
        }
        let theirs = |exchange: Exchange| self.owners.asked_by(exchange) == Some(index);
        self.polite.crashed(Crash::Kill, &theirs);
        self.twice.crashed(Crash::Kill, &theirs);
        self.after(back_after, Happening::Restart(index));
        true
    }

    /// Whether everything is done: then the run ends.
    fn look(&mut self) -> Result<bool, Broken> {
        self.after(LOOK_EVERY, Happening::Look);
        self.look_at_outboxes();
        let is_agreed = self.look_at_said();
        if self.now < self.faults_end.max(Mono(0) + FAULTS_FOR) {
            return Ok(false);
        }
        if self.now > self.faults_end + REST * if self.redis.len() > 1 { 2 } else { 1 } {
            let views: Vec<_> = (0..self.stations.len()).map(|index| self.view(index)).collect();
            return Err((Promise::NothingLost, format!("the crawl does not finish: {views:#?}")));
        }
        let (mut held, mut is_done) = (0, true);
        for index in 0..self.stations.len() {
            let clock = self.clock(index);
            let Some(process) = &mut self.stations[index].process else { return Ok(false) };
            let Some(view) = process.agent.site_view(clock) else { return Ok(false) };
            held += view.held;
            is_done &= view.misplaced + view.handovers == 0 && !view.is_delivering;
            is_done &= process.agent.status(clock).unsettled == 0 && process.keeper.is_idle();
            if let Some(store) = process.keeper.store() {
                let stored = store.stored();
                is_done &= stored.queued == 0 && stored.undecided == 0;
            }
        }
        if !is_done || !is_agreed || held != usize::from(PARTITIONS) * self.redis.len() {
            return Ok(false);
        }
        self.check_said()?;
        self.check_end()
    }

    fn view(&mut self, index: usize) -> String {
        let clock = self.clock(index);
        match &mut self.stations[index].process {
            Some(process) => {
                let status = process.agent.status(clock);
                let view = process
                    .agent
                    .site_view(clock)
                    .map(|view| (view.held, view.misplaced, view.handovers, view.is_delivering));
                let stored = process.keeper.store().map(|store| store.stored());
                format!(
                    "{index}: queue {}, unsettled {}, {:?}, {view:?}, {stored:?}, idle {}",
                    status.queue,
                    status.unsettled,
                    status.hosts,
                    process.keeper.is_idle()
                )
            }
            None => format!("{index}: down"),
        }
    }

    /// Compares what the stores know with what the web held. False if that cannot be done now.
    fn check_end(&mut self) -> Result<bool, Broken> {
        let lost = broken(Promise::NothingLost);
        let names = self.plan.hosts.iter().filter_map(|host| Host::parse(&host.name));
        let partitions: Vec<u16> = names.map(|host| partition_of(&host)).collect();
        let mut stores = Vec::new();
        for redis in &self.redis {
            let options = RedisOptions { partitions: partitions.clone(), ..options(redis, usize::MAX, 0) };
            // Servers may not be whole again yet.
            let Ok(store) = RedisStore::open(&options) else { return Ok(false) };
            stores.push(store);
        }
        let mut pages_lost = 0;
        for (url, fate) in &self.plan.must {
            let settled = self.settled_in(&mut stores, url).map_err(&lost)?;
            let settled = settled.ok_or_else(|| lost(format!("{url} may be fetched and was not settled")))?;
            check_lost::compare(url, *fate, &settled.outcome).map_err(&lost)?;
            let Outcome::Answered { status } = settled.outcome else { continue };
            let pointer =
                settled.capture.ok_or_else(|| lost(format!("{url} was counted and not archived")))?;
            // It was there even if the archive is lost since.
            let archive = &self.archives[usize::from(pointer.shard)];
            if archive.received.get(pointer.file as usize) != Some(&self.plan.wire(url, status)) {
                return Err(lost(format!("{url} is not archived as it was sent")));
            }
            self.lost.read_back += u64::from(!archive.is_lost);
            pages_lost += u64::from(archive.is_lost);
        }
        for url in self.lost.settled() {
            let states = check_lost::states(&mut stores, url).map_err(&lost)?;
            if !states.iter().any(|state| matches!(state, KnownState::Settled(of) if is_done(&of.outcome))) {
                return Err(lost(format!("{url} was counted and is now {states:?}")));
            }
        }
        for url in self.lost.known() {
            let is_url = Url::parse(url).is_ok();
            if is_url && check_lost::states(&mut stores, url).map_err(&lost)?.is_empty() {
                return Err(lost(format!("{url} was acknowledged and is not known any more")));
            }
        }
        if pages_lost > 0 {
            self.report.reached.insert("a page lost with a directory".to_owned(), pages_lost);
        }
        self.report.reached.insert("URLs that had to be crawled".to_owned(), self.plan.must.len() as u64);
        Ok(true)
    }

    /// What came of a URL: at the site that its host belongs to, if it belonged to no other before and its name alone says so.
    fn settled_in(&self, stores: &mut [RedisStore], url: &str) -> Result<Option<Box<Settled>>, String> {
        let host = self.plan.host_of(url).map(|host| host.name);
        let owner = host.zip(self.stations[0].federation.as_ref()).and_then(|(host, list)| {
            let is_sure = self.stations[0].earlier.is_empty() && !list.goes_by_place();
            let at = || list.sites().position(|(site, _)| site == list.site_of(&host));
            if is_sure { at() } else { None }
        });
        let stores = match owner {
            Some(owner) => &mut stores[owner..=owner],
            None => stores,
        };
        let mut settled = check_lost::states(stores, url)?.into_iter().filter_map(|state| match state {
            KnownState::Settled(settled) if is_done(&settled.outcome) => Some(settled),
            _ => None,
        });
        Ok(settled.next())
    }
}
