//! One agent of the simulated site: performs its actions as a node would.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use nephila_core::agent::{Action, Agent, Event, FetchId, Recipient, SharedAction, SharedEvent, Ticket};
use nephila_core::federation::Federation;
use nephila_core::frontier::HostMemo;
use nephila_core::record::Record;
use nephila_core::scope::{Scope, ScopeKind};
use nephila_core::settings::Settings;
use nephila_core::site::{AgentId, Beat, Leases, Message, SiteSettings, Terms, TurnMessage};
use nephila_core::time::Mono;
use nephila_node::config::Config;
use nephila_node::shared::{Keeper, Task};
use nephila_store::Error;
use nephila_store::redis::{RedisLeases, RedisOptions};

use super::super::clock::Clock;
use super::super::driver::{Broken, InFlight};
use super::super::levels::{Crash, Exchange, Level};
use super::super::random::Random;
use super::super::site::network::{Letter, Parcel, all_turns};
use super::super::sites::{Answered, Asked, Told};
use super::super::{Promise, SharedBug};
use super::faults::Fault;
use super::{Archive, FAULTS_FOR, Happening, SOON, Sim, TROUBLE_LASTS, ToProcess, options};
use crate::redis::simulated::{SHARDS, SimRedis};

/// How long it takes at most to strike somebody on purpose, and until that is over.
const STRIKE_LASTS: Duration = Duration::from_secs(30);

/// What could not be done is tried again after this, and after servers were waited for, for so long at most.
const AGAIN: Duration = Duration::from_millis(20);
const PATIENCE_US: u64 = 300_000;

/// One life of an agent.
pub(super) struct Process {
    pub(super) agent: Agent,
    pub(super) keeper: Keeper,
    pub(super) in_flight: BTreeMap<FetchId, InFlight>,
    /// Received, and not yet archived.
    pub(super) held: BTreeMap<FetchId, (Exchange, Option<Vec<u8>>)>,
    pub(super) exchanges: BTreeMap<Ticket, Exchange>,
    answers: VecDeque<Event>,
    works: bool,
}

/// One agent: its archive, and its process while there is one.
pub(super) struct Station {
    pub(super) life: u64,
    pub(super) process: Option<Process>,
    pub(super) paused_since: Option<Mono>,
    /// Requests that were answered and of which the process has not heard.
    pub(super) unheard: BTreeSet<FetchId>,
    /// What it could not be told while it stood still.
    pub(super) missed: VecDeque<ToProcess>,
    /// How wrong its calendar is.
    pub(super) skew_ms: i64,
    pub(super) clock: Clock,
    pub(super) slow_until: Mono,
    /// What the table of leases last gave it.
    incarnation: u64,
    /// Its site,
    pub(super) home: usize,
    /// the list of sites that it has, and those that it had before.
    pub(super) federation: Option<Federation>,
    pub(super) earlier: Vec<Federation>,
    /// Addresses that other sites use, as its process was told.
    pub(super) told: Told,
    /// The last batch for another site, unless it was answered.
    pub(super) posting: Option<u64>,
    /// It was asked to end, and comes back then.
    pub(super) back_after: Option<Duration>,
    /// Which of the run's archives is its own.
    pub(super) archive: usize,
    site: SiteSettings,
    settings: Settings,
    store: RedisOptions,
    leases: Option<RedisLeases>,
}

fn address(index: usize) -> String {
    format!("agent-{index}")
}

impl Station {
    pub(super) fn new(
        seed: u64,
        (index, home): (usize, usize),
        settings: &Settings,
        redis: &SimRedis,
    ) -> Station {
        let mut random = Random::fork(seed ^ (index as u64) << 40, "station that shares a store");
        let site = SiteSettings {
            me: AgentId::from(random.next()),
            name: address(index),
            address: address(index),
            capacity: 1 + random.below(3) as u16,
            peers: Vec::new(),
            terms: Terms::default(),
            shares_store: true,
            forget_after: None,
        };
        Station {
            life: 0,
            process: None,
            paused_since: None,
            unheard: BTreeSet::new(),
            missed: VecDeque::new(),
            skew_ms: [0, 0, -40_000, 3_000_000][random.below(4) as usize],
            clock: Clock::drawn(&mut random),
            slow_until: Mono(0),
            incarnation: 0,
            home,
            federation: None,
            earlier: Vec::new(),
            told: Told::default(),
            posting: None,
            back_after: None,
            archive: index,
            site,
            settings: settings.clone(),
            store: options(redis, index, seed),
            leases: None,
        }
    }

    /// The name of its agent.
    pub(super) fn name(&self) -> &str {
        &self.site.name
    }

    /// Has another agent in this place, with an archive of its own.
    fn renew(&mut self, random: &mut Random, archive: usize) {
        self.site.me = AgentId::from(random.next());
        self.store.writer = AgentId::from(random.next());
        self.archive = archive;
        self.incarnation = 0;
        self.leases = None;
    }

    pub(super) fn next_wake(&mut self) -> Option<Mono> {
        let clock = self.clock;
        let process = self.process.as_mut().filter(|_| self.paused_since.is_none())?;
        process.agent.next_wake().map(|at| clock.wake(at))
    }
}

impl Sim<'_> {
    pub(super) fn open(&mut self, index: usize) -> Result<(), Broken> {
        let clock = self.clock(index);
        let station = &mut self.stations[index];
        if station.process.is_some() {
            return Ok(());
        }
        let scope = Config { scope: ScopeKind::Any, ..Config::default() }.scope(&[]);
        let scope: Scope = scope;
        let mut site = station.site.clone();
        if let Some(federation) = &station.federation {
            site.terms = site.terms.in_federation(federation.list());
        }
        let mut agent = Agent::of_site(station.settings.clone(), scope, site);
        if let Some(federation) = &station.federation {
            agent = agent.in_federation(federation.clone()).with_earlier_lists(station.earlier.clone());
        }
        let mut actions = Vec::new();
        agent.start(clock, Default::default(), &mut actions);
        station.process = Some(Process {
            agent,
            keeper: Keeper::new(station.store.clone(), None),
            in_flight: BTreeMap::new(),
            held: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            answers: VecDeque::new(),
            works: false,
        });
        self.report.processes += 1;
        self.perform(index, actions)?;
        // In a federation only the first site is told.
        match self.stations[index].home {
            0 => self.tell(index, Event::Seeds(self.plan.seeds.clone())),
            _ => Ok(()),
        }
    }

    pub(super) fn tell(&mut self, index: usize, event: Event) -> Result<(), Broken> {
        if self.stations[index].process.is_some() {
            self.trace.note_event(self.now, index, &event);
        }
        self.step(index, event)
    }

    /// What another agent has written arrives.
    pub(super) fn deliver(&mut self, index: usize, letter: Letter) -> Result<(), Broken> {
        let Letter { from, name, message, packed } = letter;
        let event = Event::Message { from, name, message };
        if self.stations[index].process.is_some() {
            self.trace.note_message(self.now, index, from, &packed, &event);
        }
        self.step(index, event)
    }

    fn step(&mut self, index: usize, event: Event) -> Result<(), Broken> {
        let clock = self.clock(index);
        self.wakes.touch(index);
        let Station { told, federation, process, .. } = &mut self.stations[index];
        let knows = |id| process.as_ref().is_some_and(|process| process.agent.member(id).is_some());
        // Who is not in the table of leases, as far as it knows, is not listened to.
        if !matches!(&event, Event::Message { from, .. } if !knows(*from)) {
            told.note(federation.as_ref(), &event, self.now);
        }
        let Some(process) = &mut self.stations[index].process else { return Ok(()) };
        let mut actions = Vec::new();
        process.agent.step(clock, event, &mut actions);
        self.perform(index, actions)
    }

    /// Gives each agent the answers that are there already.
    pub(super) fn drain(&mut self) -> Result<(), Broken> {
        for index in 0..self.stations.len() {
            if !self.wakes.is_touched(index) {
                continue;
            }
            while let Some(event) =
                self.stations[index].process.as_mut().and_then(|process| process.answers.pop_front())
            {
                self.tell(index, event)?;
            }
        }
        Ok(())
    }

    pub(super) fn arrive(&mut self, Parcel { from, to, message, packed }: Parcel) -> Result<(), Broken> {
        if self.network.is_cut(from.0, to, self.now) || self.stations[to].process.is_none() {
            return Ok(());
        }
        let life = self.stations[to].life;
        let name = self.stations[from.0].site.name.clone();
        let letter = Box::new(Letter { from: from.1, name, message, packed });
        self.happen(Happening::ToProcess(to, life, ToProcess::Letter(letter))).map(drop)
    }

    /// How long the store takes to answer.
    fn latency(&mut self, index: usize) -> Duration {
        let slow = self.now < self.stations[index].slow_until;
        Duration::from_micros(if slow {
            self.random.below(3_000_000)
        } else {
            300 + self.random.below(15_000)
        })
    }

    /// The keeper has something to do.
    fn wake_keeper(&mut self, index: usize, after: Duration) {
        let life = self.stations[index].life;
        let wait = after + self.latency(index);
        let Some(process) = &mut self.stations[index].process else { return };
        if !std::mem::replace(&mut process.works, true) {
            self.after(wait, Happening::ToProcess(index, life, ToProcess::Work));
        }
    }

    pub(super) fn keep_working(&mut self, index: usize) -> Result<(), Broken> {
        let Some(process) = &mut self.stations[index].process else { return Ok(()) };
        process.works = false;
        process.keeper.work();
        let keeper = &mut process.keeper;
        if let Some(what) = keeper.broken() {
            return Err((Promise::NothingLost, format!("the store of agent {index} cannot be used: {what}")));
        }
        let mut said = keeper.said();
        let is_idle = keeper.is_idle();
        self.note_takeovers(index, &mut said);
        self.drop_refused(index, &said);
        for event in said {
            self.count(index, &event);
            if let Event::Recorded { ticket, place, record } = &event {
                let station = &mut self.stations[index];
                let Some(process) = &mut station.process else { return Ok(()) };
                self.lost.acknowledged(record, Level::Disk);
                if let Record::Granted { .. } = **record {
                    *self
                        .report
                        .reached
                        .entry("a host granted to the nearest site".to_owned())
                        .or_default() += 1;
                }
                if !record.found().is_empty() {
                    self.found_by.insert((station.home, *place), (index, station.life));
                }
                if let Some(exchange) = process.exchanges.remove(ticket) {
                    self.polite.kept(exchange, Level::Disk);
                    self.twice.kept(exchange, Level::Disk);
                }
            }
            self.tell(index, event)?;
        }
        if !is_idle {
            // It waits for servers for a while before it gives up, and then tries again.
            let wait = AGAIN + Duration::from_micros(self.random.below(PATIENCE_US));
            self.wake_keeper(index, wait);
        }
        Ok(())
    }

    /// Looks for what was taken over, and for hosts that another may still be at.
    fn note_takeovers(&mut self, index: usize, said: &mut [Event]) {
        let forgets = self.bug == Some(SharedBug::ForgetsDelays);
        let mut partitions = Vec::new();
        for event in said {
            let memos: Vec<&mut Option<HostMemo>> = match event {
                Event::Shared(SharedEvent::TookOver { partitions: taken, .. }) => {
                    partitions.extend(taken.iter().copied());
                    continue;
                }
                Event::Taken(taken) => vec![&mut taken.memo],
                Event::Visited(visited) => visited.hosts.iter_mut().map(|host| &mut host.memo).collect(),
                _ => continue,
            };
            for memo in memos {
                if forgets {
                    // Nobody says that they may still be asked.
                    *memo = None;
                } else if memo.as_ref().is_some_and(HostMemo::is_under_way) {
                    self.reach("a host left alone for another's fetch");
                }
            }
        }
        self.taken_over(index, &partitions);
    }

    /// Partitions were taken over: what others have received of their hosts and not written down was in flight.
    fn taken_over(&mut self, index: usize, partitions: &[u16]) {
        if partitions.is_empty() {
            return;
        }
        self.trouble(TROUBLE_LASTS);
        let exchanges = self.exchanges.len() as Exchange;
        let home = self.stations[index].home;
        let mut twice = 0;
        for partition in partitions {
            let before = self.taken.insert((home, *partition), (exchanges, index, self.now));
            twice += u64::from(before.is_some_and(|(_, _, at)| self.now.since(at) < SOON));
        }
        if twice > 0 {
            self.reach("double handover");
        }
        let set: BTreeSet<(usize, u16)> = partitions.iter().map(|partition| (home, *partition)).collect();
        let of = &self.exchanges;
        let theirs = |exchange: Exchange| set.contains(&of[exchange as usize - 1]);
        self.polite.crashed(Crash::Kill, &theirs);
        self.twice.crashed(Crash::Kill, &theirs);
    }

    /// What was refused was in flight, too.
    fn drop_refused(&mut self, index: usize, said: &[Event]) {
        let Some(process) = &mut self.stations[index].process else { return };
        let refused = said.iter().filter_map(|event| match event {
            Event::Shared(SharedEvent::Refused { ticket, .. }) => Some(ticket),
            _ => None,
        });
        let exchanges: BTreeSet<Exchange> =
            refused.filter_map(|ticket| process.exchanges.remove(ticket)).collect();
        if !exchanges.is_empty() {
            self.reach("fenced with records on their way");
            let theirs = |exchange: Exchange| exchanges.contains(&exchange);
            self.polite.crashed(Crash::Kill, &theirs);
            self.twice.crashed(Crash::Kill, &theirs);
        }
    }

    fn count(&mut self, index: usize, event: &Event) {
        let Event::Shared(event) = event else { return };
        match event {
            SharedEvent::Fenced { .. } => self.reach("a partition lost"),
            SharedEvent::Elsewhere(found) => {
                let (me, home) = ((index, self.stations[index].life), self.stations[index].home);
                let is_others =
                    |(place, _): &(u64, _)| self.found_by.get(&(home, *place)).is_some_and(|by| *by != me);
                if found.iter().any(is_others) {
                    self.reach("redelivery after a crash");
                }
            }
            SharedEvent::LetGo { .. } => self.reach("a handover"),
            SharedEvent::Unconfirmed { partitions } if !partitions.is_empty() => {
                self.reach("a primary that has no replica for long");
            }
            _ => {}
        }
    }

    /// A beat reaches the store, whether the process is still there or not.
    pub(super) fn beat(&mut self, index: usize, life: u64, beat: &Beat) -> Result<(), Broken> {
        let is_there = self.stations[index].life == life;
        if !is_there && self.random.percent(50) {
            return Ok(());
        }
        let station = &mut self.stations[index];
        if station.leases.is_none() {
            let RedisOptions { cluster, crawl, .. } = station.store.clone();
            station.leases = RedisLeases::open(cluster, &crawl).ok();
        }
        let (incarnation, leases) = match station.leases.as_mut().map(|leases| leases.beat(beat)) {
            Some(Ok(answer)) => answer,
            Some(Err(error @ Error::Lost { .. })) => {
                let what = format!("agent {index} cannot go on: {error}");
                return Err((Promise::NothingLost, what));
            }
            _ => return Ok(()),
        };
        if let Some(incarnation) = incarnation {
            station.incarnation = incarnation;
            if !beat.fences.is_empty() {
                self.reach("an agent fenced");
            }
        }
        let home = self.stations[index].home;
        self.let_go(home, &leases);
        let leases = Box::new(leases);
        let event = Event::Shared(SharedEvent::Leased { number: beat.number, incarnation, leases });
        let wait = self.latency(index);
        self.after(wait, Happening::ToProcess(index, life, ToProcess::Tell(Box::new(event))));
        Ok(())
    }

    /// Who has no lease any more has no turn at an address: what it could not break off does not count there.
    fn let_go(&mut self, home: usize, leases: &Leases) {
        for station in self.stations.iter().filter(|station| station.home == home) {
            let Some(process) = &station.process else { continue };
            if leases.incarnation_of(station.site.me) == station.incarnation {
                continue;
            }
            for (fetch, flight) in &process.in_flight {
                if !station.unheard.contains(fetch) {
                    self.polite.lets_go(&flight.begin());
                }
            }
        }
    }

    fn perform(&mut self, index: usize, actions: Vec<Action>) -> Result<(), Broken> {
        let life = self.stations[index].life;
        let clock = self.clock(index);
        for action in actions {
            self.trace.note_action(self.now, index, &action);
            let Some(process) = &self.stations[index].process else { return Ok(()) };
            let task = match Task::of(action, process.agent.calendar(clock)) {
                Ok(task) => Some(self.with_bugs(index, task)),
                Err(other) => self.act(index, life, *other)?,
            };
            if let (Some(task), Some(process)) = (task, &mut self.stations[index].process) {
                process.keeper.push(task);
                self.wake_keeper(index, Duration::ZERO);
            }
        }
        Ok(())
    }

    /// Some tasks are done wrong on purpose, and now and then something goes wrong just then.
    fn with_bugs(&mut self, index: usize, task: Task) -> Task {
        match task {
            Task::Keep { host, away_until, is_asked, .. } if self.bug == Some(SharedBug::ForgetsDelays) => {
                Task::Keep { host, memo: None, away_until, is_asked }
            }
            Task::TakeOver { .. } => {
                self.strike_now(index, 3);
                task
            }
            Task::LetGo { .. } => {
                self.strike_now(index, 4);
                task
            }
            task => task,
        }
    }

    /// Performs what is not for the store, or not for the store alone.
    fn act(&mut self, index: usize, life: u64, action: Action) -> Result<Option<Task>, Broken> {
        match action {
            Action::Shared(SharedAction::Beat(beat)) => {
                let wait = self.latency(index);
                self.after(wait, Happening::Beat(index, life, beat));
            }
            Action::Shared(SharedAction::Forget) => {
                let Some(process) = &mut self.stations[index].process else { return Ok(None) };
                process.keeper.forget();
                let said = process.keeper.said();
                self.reach("fenced");
                self.drop_refused(index, &said);
                if let Some(process) = &mut self.stations[index].process {
                    process.answers.extend(said);
                }
            }
            Action::Write { ticket, record, fetch } => {
                return Ok(Some(self.archive(index, ticket, record, fetch)));
            }
            Action::Send { to, message } => self.send(index, &to, message),
            Action::Tell { site, used } => self.tell_site(index, site, &used),
            Action::Resolve { host } => {
                let wait = Duration::from_millis(1 + self.random.below(60));
                self.after(wait, Happening::ToProcess(index, life, ToProcess::Resolved(host)));
            }
            Action::Fetch(order) => self.fetch(index, order)?,
            Action::Abandon(fetch) => self.abandon(index, fetch),
            Action::End(_) => {
                self.reach("an agent left");
                self.end(index);
            }
            other => match Asked::of(other).map_err(|other| Answered::of(*other)) {
                Ok((gateway, asked)) => self.ask_site(index, &gateway, asked),
                Err(Ok((call, answered))) => self.answer_call(index, call, answered),
                Err(Err(other)) => {
                    return Err((Promise::Bounded, format!("agent {index} has no store for {other:?}")));
                }
            },
        }
        Ok(None)
    }

    /// Some moments are short: now and then something goes wrong on purpose just then.
    pub(super) fn strike_now(&mut self, station: usize, percent: u64) {
        if self.now + STRIKE_LASTS > Mono(0) + FAULTS_FOR || !self.random.percent(percent) {
            return;
        }
        let back_after = Duration::from_millis(100 + self.random.below(20_000));
        let fault = match self.random.below(3) {
            0 => Fault::Kill { station, back_after },
            1 => Fault::Pause { station, lasts: back_after },
            _ => {
                let shard = self.random.below(SHARDS as u64) as usize;
                let lasts = Duration::from_millis(1_000 + self.random.below(5_000));
                Fault::FailOver { shard, alone_before: Duration::from_millis(20), lasts }
            }
        };
        let wait = Duration::from_micros(self.random.below(30_000));
        self.after(wait, Happening::Fault(fault));
    }

    /// Takes an agent away with its directory. What it has received and counted is lost with it, and nothing else.
    pub(super) fn lose(&mut self, index: usize, back_after: Duration) -> bool {
        if !self.kill(index, back_after) {
            return false;
        }
        let archive = self.archives.len();
        self.archives.push(Archive::default());
        let station = &mut self.stations[index];
        self.archives[station.archive].is_lost = true;
        station.renew(&mut self.random, archive);
        self.reach("an agent lost with its directory");
        true
    }

    /// An agent has ended in order.
    fn end(&mut self, index: usize) {
        let station = &mut self.stations[index];
        station.process = None;
        station.life += 1;
        station.missed.clear();
        station.unheard.clear();
        station.told.clear();
        station.posting = None;
        let back_after = station.back_after.take().unwrap_or_default();
        self.after(back_after, Happening::Restart(index));
    }

    fn send(&mut self, index: usize, to: &Recipient, message: Box<Message>) {
        let from = (index, self.stations[index].site.me);
        // Whoever is there now may be another agent than the one that is meant.
        let is_it = |station: &Station| {
            let is_meant = to.agent.as_ref().is_none_or(|(id, _)| *id == station.site.me);
            station.site.address == to.address && is_meant
        };
        let Some(to) = self.stations.iter().position(is_it) else { return };
        match &*message {
            Message::Turn(TurnMessage::Ask { asked, turns })
                if self.bug == Some(SharedBug::IgnoresKeepers) =>
            {
                let from = (to, self.stations[to].site.me);
                let parcel = Parcel::unpacked(from, index, all_turns(*asked, turns));
                return self.after(Duration::from_millis(1), Happening::Parcel(parcel));
            }
            Message::Offer { .. } => self.reach("a delivery"),
            Message::Claim { .. } => self.reach("a claim passed on to another agent"),
            Message::Turn(TurnMessage::Recall(_)) => self.reach("a turn at an address wanted back"),
            Message::Turn(TurnMessage::Has { turns, .. }) if turns.iter().any(|(_, is_out, _)| *is_out) => {
                self.reach("turns told to a keeper that did not know");
            }
            _ => {}
        }
        let mut waits = self.network.carry(index, to, self.now);
        let Some(last) = waits.pop() else { return };
        let parcel = Parcel { from, to, message, packed: self.trace.sent() };
        for wait in waits {
            self.after(wait, Happening::Parcel(parcel.clone()));
        }
        self.after(last, Happening::Parcel(parcel));
    }
}
