//! Runs one seed: performs the agent's actions as the node does, in an order that only the seed decides.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nephila_archive::Content as Bytes;
use nephila_core::agent::{Agent, Control, Event, FetchId, StopReason, Ticket};
use nephila_core::record::{Block, Record};
use nephila_core::settings::{Private, Settings, UrlOrder};
use nephila_core::time::{Mono, Now, Wall};
use nephila_core::url::{Host, Url};
use nephila_disk::SimDisk;
use nephila_node::config::{Compress, Config, Durability};
use nephila_node::crawl::snapshot;
use nephila_node::fetch::Captured;
use nephila_node::memo::Pointed;
use nephila_node::writer::{self, Job, Opened, Writer};
use nephila_store::{EmbeddedStore, Store};

use super::check_bounded;
use super::check_cash::Cash;
use super::check_lost::Lost;
use super::check_polite::{Begin, Polite};
use super::check_twice::Twice;
use super::faults::{self, Fault};
use super::levels::{Crash, Exchange};
use super::perform::note_event;
use super::random::Random;
use super::servers::Servers;
use super::trace::Trace;
use super::web::{Plan, Reply};
use super::{Bug, Promise, Report, Violation};

const DIR: &str = "/crawl";
/// The calendar when a run begins, in milliseconds.
const WALL_START: u64 = 1_800_000_000_000;
/// Steps after which a run that has not ended never will.
const STEPS_MAX: u64 = 300_000;
/// The same in virtual time.
const VIRTUAL_MAX: Duration = Duration::from_secs(90 * 86_400);
/// From a process that a full disk ended to the next.
const FULL_DISK_WAIT: Duration = Duration::from_secs(60);
/// Small, so that files are rolled in each run.
const ROLL_BYTES: u64 = 12_000;

/// Something that is due at a moment.
pub(super) enum Happening {
    Resolved { life: u64, host: Host },
    Fetched { life: u64, fetch: FetchId },
    Commit { life: u64 },
    Sync { life: u64 },
    Control(Control),
    Restart,
    RoomAgain,
}

/// A request that a server is answering.
pub(super) struct InFlight {
    pub(super) exchange: Exchange,
    pub(super) host: String,
    pub(super) url: Url,
    pub(super) address: std::net::IpAddr,
    pub(super) for_rules: bool,
    pub(super) started: Now,
    pub(super) reply: Reply,
    /// Which site asks.
    pub(super) site: usize,
}

impl InFlight {
    pub(super) fn begin(&self) -> Begin<'_> {
        let InFlight { host, address, for_rules, site, .. } = self;
        let url = self.url.as_str();
        Begin { host, url, address: *address, for_rules: *for_rules, site: *site, sites: 1 }
    }

    /// What was received, for the archive.
    pub(super) fn take_capture(&mut self) -> Option<Captured> {
        let wire = self.reply.wire.take()?;
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", self.url.path(), self.host);
        Some(Captured {
            shard: 0,
            http2: false,
            request: request.into_bytes(),
            response: Bytes::Memory(wire),
            address: self.address,
            at: self.started.wall,
            cut: self.reply.result.as_ref().ok().and_then(|answer| answer.cut),
            reservation: None,
        })
    }
}

/// One life of the crawl's process.
pub(super) struct Process {
    pub(super) agent: Agent,
    pub(super) store: EmbeddedStore,
    pub(super) pointed: Pointed,
    pub(super) writer: Writer,
    pub(super) in_flight: BTreeMap<FetchId, InFlight>,
    /// Received, and not yet handed to the writer.
    pub(super) held: BTreeMap<FetchId, (Exchange, Option<Captured>)>,
    pub(super) exchanges: BTreeMap<Ticket, Exchange>,
    pub(super) blocks: BTreeMap<Ticket, String>,
    pub(super) answers: VecDeque<Event>,
    pub(super) commit_due: bool,
    pub(super) sync_due: bool,
    pub(super) ended: Option<StopReason>,
}

impl Process {
    /// What begins with what was found on the disk.
    pub(super) fn new(agent: Agent, opened: Opened) -> Process {
        Process {
            agent,
            store: opened.store,
            pointed: opened.pointed,
            writer: opened.writer,
            in_flight: BTreeMap::new(),
            held: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            blocks: BTreeMap::new(),
            answers: VecDeque::new(),
            commit_due: false,
            sync_due: false,
            ended: None,
        }
    }
}

pub(super) struct Sim<'a> {
    pub(super) bug: Option<Bug>,
    pub(super) config: Config,
    pub(super) plan: Plan,
    pub(super) servers: Servers,
    pub(super) random: Random,
    pub(super) disk: SimDisk,
    pub(super) faults: VecDeque<(u64, Fault)>,
    pub(super) now: Mono,
    pub(super) life: u64,
    pub(super) process: Option<Process>,
    pub(super) due: BTreeMap<(Mono, u64), Happening>,
    pub(super) sequence: u64,
    pub(super) exchanges: Exchange,
    /// What the operator wanted while there was no process; the next one is told first.
    pub(super) controls: Vec<Control>,
    /// What the operator wants to be blocked.
    pub(super) wanted_blocks: BTreeSet<Block>,
    /// How the process ends when its next write fails.
    pub(super) next_crash: Crash,
    /// Openings that may still fail.
    pub(super) open_failures_left: u32,
    /// The crawl said that it is finished; it is opened once more.
    pub(super) finished: bool,
    pub(super) polite: Polite,
    pub(super) lost: Lost,
    pub(super) twice: Twice,
    pub(super) cash: Cash,
    pub(super) trace: Trace<'a>,
    pub(super) report: Report,
}

/// Runs one seed to the end of its crawl.
pub(super) fn run(seed: u64, bug: Option<Bug>, trace: Trace<'_>) -> Result<Report, Violation> {
    let mut sim = Sim::new(seed, bug, trace);
    sim.after(Duration::ZERO, Happening::Restart);
    match sim.work() {
        Ok(()) => Ok(sim.finish()),
        Err((promise, what)) => {
            Err(Violation { seed, promise, at_s: sim.now.0 as f64 / 1e6, what, flag: "" })
        }
    }
}

pub(super) type Broken = (Promise, String);

pub(super) fn broken(promise: Promise) -> impl Fn(String) -> Broken {
    move |what| (promise, what)
}

impl<'a> Sim<'a> {
    fn new(seed: u64, bug: Option<Bug>, trace: Trace<'a>) -> Sim<'a> {
        let mut random = Random::fork(seed, "driver");
        let faults = faults::draw(seed);
        let hours = Duration::from_secs(7 * 3_600);
        let settings = Settings {
            // None, and everybody has another one.
            seed: seed + 1,
            max_wait: if random.percent(50) { hours } else { Settings::default().max_wait },
            // In every second run no rules stay in memory but those in use.
            robots_bytes_max: if seed.is_multiple_of(2) { 0 } else { Settings::default().robots_bytes_max },
            // In some, hosts come and go.
            hosts_max: [1, 3, Settings::default().hosts_max][random.below(3) as usize],
            private: if bug == Some(Bug::AsksPrivateAddresses) { Private::Allowed } else { Private::Refused },
            order: if seed % 3 == 1 { UrlOrder::Cash } else { UrlOrder::BreadthFirst },
            ..Settings::default()
        };
        let config = Config {
            compress: if faults::depend_on_sizes(&faults) { Compress::None } else { Compress::Gzip },
            durability: if random.percent(30) { Durability::Power } else { Durability::Kernel },
            warc_roll_bytes: ROLL_BYTES,
            // Often so little that everything is on disk.
            shards: 1,
            store_memory_bytes: [100, 5_000, 100_000_000][random.below(3) as usize],
            settings: settings.clone(),
            ..Config::default()
        };
        Sim {
            bug,
            config,
            plan: Plan::new(seed),
            servers: Servers::default(),
            random,
            disk: SimDisk::new(seed),
            faults: faults.into(),
            now: Mono(0),
            life: 0,
            process: None,
            due: BTreeMap::new(),
            sequence: 0,
            exchanges: 0,
            controls: Vec::new(),
            wanted_blocks: BTreeSet::new(),
            next_crash: Crash::Kill,
            open_failures_left: 2,
            finished: false,
            polite: Polite::new(settings),
            lost: Lost::default(),
            twice: Twice::default(),
            cash: Cash::new(seed),
            trace,
            report: Report::default(),
        }
    }

    fn finish(mut self) -> Report {
        self.report.trace_hash = self.trace.hash();
        self.report.trace_lines = self.trace.lines;
        self.report.read_back = self.lost.read_back;
        self.report.lost_answers = self.twice.lost_answers;
        self.report.on_time = self.polite.on_time;
        if self.cash.counted > 0 {
            self.report.reached.insert("cash counted".to_owned(), self.cash.counted);
        }
        self.report.virtual_s = self.now.0 / 1_000_000;
        self.report
    }

    pub(super) fn clock(&self) -> Now {
        Now { mono: self.now, wall: Wall(WALL_START + self.now.0 / 1_000) }
    }

    pub(super) fn goes_by_cash(&self) -> bool {
        self.config.settings.order == UrlOrder::Cash
    }

    pub(super) fn after(&mut self, wait: Duration, happening: Happening) {
        self.sequence += 1;
        self.due.insert((self.now + wait, self.sequence), happening);
    }

    pub(super) fn reach(&mut self, state: &str) {
        *self.report.reached.entry(state.to_owned()).or_default() += 1;
    }

    fn work(&mut self) -> Result<(), Broken> {
        for step in 0..STEPS_MAX {
            if self.process.is_some() && self.faults.front().is_some_and(|(at, _)| *at <= step) {
                if let Some((_, fault)) = self.faults.pop_front() {
                    self.strike(fault)?;
                }
                continue;
            }
            let happening = self.due.first_key_value().map(|(key, _)| *key);
            let wake = self.process.as_mut().and_then(|process| process.agent.next_wake());
            let next = [happening.map(|key| key.0), wake].into_iter().flatten().min();
            let Some(next) = next else {
                if self.process.is_none() && self.finished {
                    return Ok(());
                }
                return Err((Promise::Bounded, "nothing is due and nothing has ended".into()));
            };
            self.now = self.now.max(next);
            if self.now > Mono(0) + VIRTUAL_MAX {
                return Err((Promise::NothingLost, "the crawl never finishes".into()));
            }
            match happening.filter(|key| key.0 <= next).and_then(|key| self.due.remove(&key)) {
                Some(happening) => self.happen(happening)?,
                None => self.tell(Event::Wake)?,
            }
            self.drain()?;
            self.check_counts()?;
            self.end_if_ended()?;
        }
        Err((Promise::Bounded, format!("it has not come to an end after {STEPS_MAX} steps")))
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Broken> {
        let alive = self.process.is_some();
        match happening {
            Happening::Restart if !alive => self.open(),
            Happening::Restart => Ok(()),
            Happening::RoomAgain => {
                self.disk.set_capacity(u64::MAX);
                Ok(())
            }
            Happening::Resolved { life, host } if life == self.life && alive => {
                let answer = self.servers.resolve(&self.plan, host.as_str());
                self.tell(Event::Resolved { host, answer })
            }
            Happening::Fetched { life, fetch } if life == self.life => self.fetched(fetch, false),
            Happening::Commit { life } if life == self.life && alive => self.commit(),
            Happening::Sync { life } if life == self.life && alive => self.sync(),
            Happening::Control(control) if alive => self.control(control),
            Happening::Control(control) => {
                self.controls.push(control);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn strike(&mut self, fault: Fault) -> Result<(), Broken> {
        self.trace.note(self.now, format_args!("fault {}", fault.name()));
        *self.report.faults.entry(fault.name().to_owned()).or_default() += 1;
        match fault {
            Fault::Crash(crash) => self.crash(crash, Duration::ZERO),
            Fault::CrashInWrite(crash, changes) => {
                self.next_crash = crash;
                self.disk.fail_after(changes);
            }
            Fault::DiskFull(room, wait) => {
                self.disk.set_capacity(self.disk.used_bytes() + room);
                self.after(wait, Happening::RoomAgain);
            }
            Fault::Stop => self.control(Control::Stop(StopReason::Stopped))?,
            Fault::Pause(wait) => {
                self.control(Control::Pause)?;
                self.after(wait, Happening::Control(Control::Resume));
            }
            Fault::Block(choice, wait) => {
                let seed = &self.plan.seeds[choice as usize % self.plan.seeds.len()];
                let block = Block::Name(Host::of(seed));
                self.wanted_blocks.insert(block.clone());
                self.control(Control::Block(block.clone()))?;
                self.after(wait, Happening::Control(Control::Unblock(block)));
            }
        }
        self.drain()
    }

    /// Ends the process without a chance to do anything about it; it is started again some time after `wait`.
    fn crash(&mut self, crash: Crash, wait: Duration) {
        let Some(process) = self.process.take() else { return };
        self.trace.note(self.now, format_args!("{crash:?}"));
        for flight in process.in_flight.values() {
            self.polite.ends(&flight.begin(), None, false, self.now);
        }
        drop(process);
        self.fall(crash);
        self.restart_after(crash, wait);
    }

    /// What is left when a process has gone.
    fn fall(&mut self, crash: Crash) {
        self.life += 1;
        self.next_crash = Crash::Kill;
        self.disk = match crash {
            Crash::Kill => self.disk.kill(),
            Crash::Power => self.disk.power_cut(),
        };
        self.polite.crashed(crash, &|_| true);
        self.lost.crashed(crash);
        self.twice.crashed(crash, &|_| true);
    }

    /// Somebody starts it again, at once or a little later.
    fn restart_after(&mut self, crash: Crash, wait: Duration) {
        let further = match crash {
            Crash::Kill => [0, 5, 300, 3_000][self.random.below(4) as usize],
            // No machine comes back faster than this. It matters: in its first second a crawl may lose even its seeds.
            Crash::Power => [2_000, 60_000][self.random.below(2) as usize],
        };
        self.after(wait + Duration::from_millis(further), Happening::Restart);
    }

    pub(super) fn write_failed(&mut self, error: &writer::WriteError) {
        let full = error.is_disk_full();
        self.reach(if full { "process ended by a full disk" } else { "process ended by a failed write" });
        // Nobody starts it again at once when it has just said that the disk is full.
        let wait = if full { FULL_DISK_WAIT } else { Duration::ZERO };
        self.crash(self.next_crash, wait);
    }

    fn open(&mut self) -> Result<(), Broken> {
        if self.open_failures_left > 0 && self.life > 0 && self.random.percent(25) {
            self.open_failures_left -= 1;
            self.disk.fail_after(self.random.below(15));
            if self.random.percent(40) && self.config.compress == Compress::None {
                self.next_crash = Crash::Power;
            }
        }
        let mut agent = Agent::new(self.config.settings.clone(), self.config.scope(&[]));
        let disk = Arc::new(self.disk.clone());
        let config = match self.bug {
            Some(Bug::AcknowledgesBeforeSync) => {
                Config { durability: Durability::Kernel, ..self.config.clone() }
            }
            _ => self.config.clone(),
        };
        let mut opened = match writer::open(disk, Path::new(DIR), &config, &mut agent, self.clock()) {
            Ok(opened) => opened,
            Err(error) => {
                self.trace.note(self.now, format_args!("not opened"));
                self.reach(if error.is_disk_full() {
                    "not opened: full disk"
                } else {
                    "not opened: failed write"
                });
                self.fall(self.next_crash);
                self.after(FULL_DISK_WAIT, Happening::Restart);
                return Ok(());
            }
        };
        self.report.processes += 1;
        self.polite.restarted();
        if opened.store.torn_bytes() > 0 {
            self.reach("torn journal");
        }
        // Whoever opens a crawl syncs what it found.
        self.all_synced();
        self.lost
            .reopened(&self.plan, &mut opened.store, &self.disk, Path::new(DIR))
            .map_err(broken(Promise::NothingLost))?;
        if self.goes_by_cash() {
            let counted = self.cash.reopened(&mut opened.store, opened.writer.end());
            counted.map_err(broken(Promise::CashKept))?;
            // Not always: the run may begin with something undecided.
            if self.life.is_multiple_of(2) {
                // A disk that fails ends the process soon, and says so.
                let _ = opened.store.decide();
                self.cash.count(&mut opened.store).map_err(broken(Promise::CashKept))?;
            }
        }
        self.begin(Process::new(agent, opened))
    }

    fn begin(&mut self, mut process: Process) -> Result<(), Broken> {
        let mut actions = Vec::new();
        process.agent.start(self.clock(), process.store.stored(), &mut actions);
        // An operator whose wish was not confirmed, or was lost with the power, says it again.
        let again = process.agent.blocks().filter(|block| !self.wanted_blocks.contains(block));
        self.controls.extend(again.cloned().map(Control::Unblock));
        let mut unknown = |seed: &&Url| !matches!(process.store.look_up(seed), Ok(Some(_)));
        let new: Vec<Url> = self.plan.seeds.iter().filter(|seed| unknown(seed)).cloned().collect();
        self.process = Some(process);
        self.perform(actions)?;
        if !new.is_empty() {
            self.tell(Event::Seeds(new))?;
        }
        for control in std::mem::take(&mut self.controls) {
            self.control(control)?;
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, event: Event) -> Result<(), Broken> {
        let clock = self.clock();
        let Some(process) = &mut self.process else { return Ok(()) };
        note_event(&mut self.trace, self.now, &event);
        let mut actions = Vec::new();
        process.agent.step(clock, event, &mut actions);
        self.perform(actions)
    }

    /// Gives the agent the answers that the store gave at once.
    fn drain(&mut self) -> Result<(), Broken> {
        while let Some(event) = self.process.as_mut().and_then(|process| process.answers.pop_front()) {
            self.tell(event)?;
        }
        Ok(())
    }

    fn check_counts(&mut self) -> Result<(), Broken> {
        let clock = self.clock();
        let Some(process) = &mut self.process else { return Ok(()) };
        let in_flight = process.in_flight.len() as u64;
        let places = check_bounded::counts(&mut process.agent, &process.store, in_flight, clock)
            .map_err(broken(Promise::Bounded))?;
        for (place, _) in places.iter().filter(|(_, count)| *count > 0) {
            self.reach(place);
        }
        Ok(())
    }

    /// Closes a process that has ended in order, and has the crawl go on later unless it is finished.
    fn end_if_ended(&mut self) -> Result<(), Broken> {
        let clock = self.clock();
        let Some(reason) = self.process.as_ref().and_then(|process| process.ended) else { return Ok(()) };
        let Some(mut process) = self.process.take() else { return Ok(()) };
        self.trace.note(self.now, format_args!("ended {}", reason.name()));
        self.reach(&format!("ended: {}", reason.name()));
        let status = process.agent.status(clock);
        // Without a single answer it says so, but there may be nothing left to do all the same.
        let finished = reason == StopReason::Finished || reason == StopReason::NoSeed && status.queue == 0;
        let before = status.totals.elapsed_before;
        let record = Box::new(Record::RunEnded { elapsed: process.agent.elapsed(clock) - before });
        let last = Job { ticket: Ticket(0), record, capture: None, attempt: None };
        let snapshot_too = self.random.percent(50) && self.bug != Some(Bug::ForgetsHosts);
        let Process { mut agent, mut store, pointed, mut writer, .. } = process;
        let closed = writer.write(last, clock.wall).and_then(|()| writer.commit()).and_then(|_| {
            let end = writer.end();
            writer.close()?;
            if snapshot_too {
                agent.end(agent.elapsed(clock) - before);
                snapshot(&mut agent, &mut store, &pointed, end, clock).and_then(|job| job.run())?;
            }
            Ok(())
        });
        if let Err(error) = closed {
            self.reach(if error.is_disk_full() { "end on a full disk" } else { "end on a failing disk" });
            let crash = self.next_crash;
            self.fall(crash);
            self.restart_after(crash, FULL_DISK_WAIT);
            return Ok(());
        }
        self.all_synced();
        if finished {
            self.lost
                .finished(&self.plan, &mut store, &self.disk, Path::new(DIR))
                .map_err(broken(Promise::NothingLost))?;
            if self.goes_by_cash() {
                self.cash.count(&mut store).map_err(broken(Promise::CashKept))?;
            }
        }
        drop(store);
        self.life += 1;
        self.disk = self.disk.kill();
        if !finished {
            let wait = if reason == StopReason::Stopped { 1 } else { 600 + self.random.below(6 * 3_600) };
            self.after(Duration::from_secs(wait), Happening::Restart);
            return Ok(());
        }
        if !std::mem::replace(&mut self.finished, true) {
            // A finished crawl that is started again has nothing to do.
            self.after(Duration::from_secs(5), Happening::Restart);
        }
        Ok(())
    }
}
