//! The store that the agents of a site share, and the threads that talk to it.
//!
//! Captures are archived beside the agent, by a thread for each shard; then their records go to the thread of the store
//! ([`keeper`]), which does what has come together since it looked last, waits until the replicas have it, and tells the agent.
//! The lease is renewed by a thread with connections of its own, so that a slow store does not cost it. Nobody waits for
//! any of them.

mod gathered;
mod keeper;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nephila_core::agent::{Action, Event, SharedAction, SharedEvent};
use nephila_core::site::Beat;
use nephila_core::time::Wall;
use nephila_disk::{Disk, RealDisk};
use nephila_store::redis::{
    ClusterOptions, Copies, Figures, RedisLeases, RedisOptions, RedisServers, RedisStore, ServerFigures,
};
use nephila_store::{Error, Result};

use crate::archiving::{Archiving, Syncing};
use crate::config::{Config, Durability};
use crate::directory;
use crate::display::note;
use crate::fetch_log::FetchLog;
use crate::writer::{Job, Pace, WriteError, pace, start_archives};

pub(crate) use gathered::Gathered;
pub use keeper::{Keeper, Task};

/// How often a store that is not there is looked for, when an agent starts: a primary may just be failing over, or be started
/// again by hand.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it is said that it is not there.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// How soon what could not be done is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// What is done together at most.
const TASKS_MAX: usize = 4_096;
/// Rounds through all servers are this many times as far apart as writes to a disk of one's own: each costs as many messages,
/// however little there is to be done.
const ROUND_DELAYS: u32 = 3;
/// How long a beat may wait for servers, so that the next one is not late.
const BEAT_PATIENCE: Duration = Duration::from_millis(700);
/// How long they may take to answer one.
const BEAT_ANSWER_MAX: Duration = Duration::from_millis(500);
/// How often servers are asked how they fare, if somebody wants to know.
const WATCH_EVERY: Duration = Duration::from_secs(10);

/// What the thread of the store is asked to do.
enum Asked {
    Task(Box<Task>),
    Write(Box<Job>),
    /// Everything is forgotten: the agent was fenced.
    Forget,
    /// A shard can archive nothing more.
    ArchiveFailed,
}

/// What the thread of the store says.
pub(crate) enum Said {
    /// For the agent.
    Events(Vec<Event>),
    /// Nothing more can be done.
    Failed(WriteError),
}

/// How the store fares that agents share, for Prometheus.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// What the store says.
    pub store: Figures,
    /// What is not done, or not durable.
    pub waiting: usize,
    /// How often this process was fenced.
    pub fenced: u64,
    /// What is left of the lease.
    pub lease_left: Duration,
    /// Partitions that it holds.
    pub held: usize,
    /// What its servers said last.
    pub servers: Vec<ServerFigures>,
}

/// See the module's documentation.
pub(crate) struct SharedStore {
    options: RedisOptions,
    health: Arc<Mutex<Health>>,
    servers: Arc<Mutex<Vec<ServerFigures>>>,
    /// Ends who watches them when it is dropped.
    watching: Option<Sender<()>>,
    fenced: u64,
    asked: Sender<Asked>,
    beats: Sender<Box<Beat>>,
    archives: Vec<Archiving>,
    thread: JoinHandle<()>,
}

/// Finds the store, sees whether it can be trusted, and what it knows of copies. A part of it may be away for a while: it is
/// waited for, for so long at most, if there is a most.
pub(crate) fn find(options: &RedisOptions, patience: Option<Duration>) -> Result<(RedisStore, Copies)> {
    let began = Instant::now();
    let mut said: Option<Instant> = None;
    loop {
        let found = RedisStore::open(options).and_then(|mut store| Ok((store.copies()?, store)));
        let error = match found {
            Err(error @ (Error::Unsafe { may_pass: false, .. } | Error::Denied { .. })) => return Err(error),
            Err(error) if patience.is_none_or(|patience| began.elapsed() < patience) => error,
            found => return found.map(|(copies, store)| (store, copies)),
        };
        if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            said = Some(Instant::now());
            note(&format!("the store is not there yet, looking for it again and again: {error}"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// An agent that has archived something does not begin anew, as if nothing had been, because somebody has emptied the store.
pub(crate) fn refuse_empty(
    dir: &Path,
    options: &RedisOptions,
    copies: &Copies,
) -> std::result::Result<(), WriteError> {
    // The log has a line for every request, and nothing is asked for without a lease.
    let has_asked = std::fs::metadata(directory::fetch_log(dir)).is_ok_and(|log| log.len() > 0);
    if *copies != Copies::default() || !has_asked {
        return Ok(());
    }
    let leases = RedisLeases::open(options.cluster.clone(), &options.crawl)
        .and_then(|mut leases| leases.look())
        .map_err(WriteError::Store)?;
    if leases.drawn() == 0 { Err(WriteError::EmptyStore { dir: dir.to_owned() }) } else { Ok(()) }
}

impl SharedStore {
    /// Starts the threads. `said` is called on them, and must not block for long.
    pub(crate) fn start(
        config: &Config,
        dir: &Path,
        options: RedisOptions,
        store: RedisStore,
        said: impl Fn(Said) + Clone + Send + 'static,
    ) -> std::result::Result<SharedStore, WriteError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let recovery = nephila_archive::recover(&disk, &directory::archive(dir))?;
        let files = start_archives(&disk, dir, config, &recovery)?;
        let log =
            FetchLog::open(disk, &directory::fetch_log(dir), config.log_roll_bytes, config.log_files_max)
                .map_err(WriteError::Log)?;
        let (asked, received) = channel();
        let start = |archive| {
            let (archived, failed) = (asked.clone(), asked.clone());
            Archiving::start(
                archive,
                // If the thread of the store has ended, that is known already.
                move |jobs| jobs.into_iter().for_each(|(job, _)| drop(archived.send(Asked::Write(job)))),
                move || drop(failed.send(Asked::ArchiveFailed)),
            )
        };
        let archives: Vec<Archiving> =
            files.into_iter().map(start).collect::<std::io::Result<_>>().map_err(WriteError::Thread)?;
        let (beats, to_send) = channel();
        let (cluster, crawl, answer) = (options.cluster.clone(), options.crawl.clone(), said.clone());
        spawn("lease", move || {
            send_beats(cluster, &crawl, &to_send, answer);
        })?;
        // It has been seen whether it can be trusted.
        let keeper = Keeper::new(RedisOptions { accepts_unsafe: true, ..options.clone() }, Some(store));
        let archived = archives.iter().map(Archiving::syncing).collect();
        let (health, synced) = (Arc::new(Mutex::new(Health::default())), Instant::now());
        let told = Arc::clone(&health);
        let (pace, said_full, said_alone) = (pace(config), None, Vec::new());
        let keeping = Keeping { keeper, log, archived, pace, synced, health: told, said_full, said_alone };
        let thread = spawn("store", move || {
            if let Err(error) = keeping.run(&received, &said) {
                said(Said::Failed(error));
            }
        })?;
        let (servers, watching) = (Arc::default(), None);
        let mut shared =
            SharedStore { options, health, servers, watching, fenced: 0, asked, beats, archives, thread };
        if config.metrics.is_some() {
            shared.watch()?;
        }
        Ok(shared)
    }

    /// Starts to ask the servers how they fare.
    fn watch(&mut self) -> std::result::Result<(), WriteError> {
        let (watching, ended) = channel();
        self.watching = Some(watching);
        let (cluster, said) = (self.options.cluster.clone(), Arc::clone(&self.servers));
        spawn("servers", move || {
            let mut servers = None;
            loop {
                if servers.is_none() {
                    servers = RedisServers::open(cluster.clone()).ok();
                }
                let figures = servers.as_mut().map(RedisServers::look).unwrap_or_default();
                *said.lock().unwrap_or_else(PoisonError::into_inner) = figures;
                if ended.recv_timeout(WATCH_EVERY) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        })
        .map(drop)
    }

    /// Begins to do what is asked of the store, when it is so late by the calendar of the site.
    pub(crate) fn perform(&mut self, action: Action, now: Wall) {
        // Threads that have ended have said why.
        match Task::of(action, now) {
            Ok(task) => drop(self.asked.send(Asked::Task(Box::new(task)))),
            Err(other) => match *other {
                Action::Shared(SharedAction::Beat(beat)) => drop(self.beats.send(beat)),
                Action::Shared(SharedAction::Forget) => {
                    self.fenced += 1;
                    drop(self.asked.send(Asked::Forget));
                }
                // Others are for a store of one's own.
                _ => {}
            },
        }
    }

    /// Has a record written, and first what it captured.
    pub(crate) fn write(&self, job: Job, now: Wall) {
        let archive = job.capture.as_ref().and_then(|capture| self.archives.get(usize::from(capture.shard)));
        let job = Box::new(job);
        match archive {
            Some(archive) => drop(archive.archive(vec![(job, now)])),
            None => drop(self.asked.send(Asked::Write(job))),
        }
    }

    /// How it fares, but for what the agent knows.
    pub(crate) fn health(&self) -> Health {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Health { fenced: self.fenced, servers, ..health }
    }

    /// How it is asked about what it holds.
    pub(crate) fn options(&self) -> &RedisOptions {
        &self.options
    }

    /// Finishes the archive and ends the threads.
    pub(crate) fn finish(self) {
        self.archives.into_iter().for_each(Archiving::finish);
        drop((self.asked, self.beats, self.watching));
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::result::Result<JoinHandle<()>, WriteError> {
    std::thread::Builder::new().name(name.into()).spawn(run).map_err(WriteError::Thread)
}

/// Renews the lease whenever the agent says so.
fn send_beats(cluster: ClusterOptions, crawl: &str, beats: &Receiver<Box<Beat>>, said: impl Fn(Said)) {
    let mut options = ClusterOptions { patience: BEAT_PATIENCE, ..cluster };
    options.link.connect_time_max = BEAT_ANSWER_MAX;
    options.link.answer_time_max = BEAT_ANSWER_MAX;
    let mut table = None;
    while let Ok(mut beat) = beats.recv() {
        // A later one says all that it would.
        while let Ok(later) = beats.try_recv() {
            beat = later;
        }
        if table.is_none() {
            table = RedisLeases::open(options.clone(), crawl).ok();
        }
        let (incarnation, leases) = match table.as_mut().map(|table| table.beat(&beat)) {
            Some(Ok(answer)) => answer,
            Some(Err(error @ Error::Lost { .. })) => return said(Said::Failed(WriteError::Store(error))),
            _ => continue,
        };
        let leased = SharedEvent::Leased { number: beat.number, incarnation, leases: Box::new(leases) };
        said(Said::Events(vec![Event::Shared(leased)]));
    }
}

/// What the thread of the store works with.
struct Keeping {
    keeper: Keeper,
    log: FetchLog,
    archived: Vec<Syncing>,
    pace: Pace,
    synced: Instant,
    health: Arc<Mutex<Health>>,
    /// When it was last said that a server has no more memory, if that is still so.
    said_full: Option<Instant>,
    /// Servers whose replicas do not confirm anything, as was said.
    said_alone: Vec<String>,
}

impl Keeping {
    fn run(mut self, asked: &Receiver<Asked>, said: &impl Fn(Said)) -> std::result::Result<(), WriteError> {
        let mut began = Instant::now();
        loop {
            let wait = if self.keeper.is_idle() { self.pace.sync_every } else { AGAIN };
            let first = match asked.recv_timeout(wait) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                // All that was to be written is: the agent waits for it, but for what it cannot wait for.
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if first.is_some() {
                // What comes soon goes along.
                std::thread::sleep((ROUND_DELAYS * self.pace.settle_delay).saturating_sub(began.elapsed()));
            }
            began = Instant::now();
            let mut has_captures = false;
            for asked in first.into_iter().chain(asked.try_iter()).take(TASKS_MAX) {
                has_captures |= self.take_in(asked)?;
            }
            if self.synced.elapsed() >= self.pace.sync_every
                || has_captures && self.pace.durability == Durability::Power
            {
                self.sync()?;
            }
            if !self.keeper.is_idle() {
                self.keeper.work();
            }
            self.say_full();
            self.say_alone();
            self.log.flush().map_err(WriteError::Log)?;
            let store = self.keeper.store().map(|store| store.figures()).unwrap_or_default();
            *self.health.lock().unwrap_or_else(PoisonError::into_inner) =
                Health { store, waiting: self.keeper.waiting(), ..Health::default() };
            if let Some(error) = self.keeper.broken() {
                return Err(WriteError::Store(error));
            }
            let events = self.keeper.said();
            if !events.is_empty() {
                said(Said::Events(events));
            }
        }
        self.sync()
    }

    /// Tells the operator of a server that takes in nothing more.
    fn say_full(&mut self) {
        let Some(error) = self.keeper.full() else {
            if self.keeper.is_idle() && self.said_full.take().is_some() {
                note("the servers of the store have memory again");
            }
            return;
        };
        if self.said_full.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            self.said_full = Some(Instant::now());
            note(&format!("warning: {error}; until then what it is to keep waits, and nothing is lost"));
        }
    }

    /// Tells the operator of servers that have no replica, and when they have one again.
    fn say_alone(&mut self) {
        let alone = self.keeper.alone();
        for node in alone.iter().filter(|node| !self.said_alone.contains(node)) {
            note(&format!(
                "warning: no replica of {node} confirms what it is told: what it is to keep waits, nothing is asked of its hosts, and \
                 the rest goes on. Start its replica again, or give it another one"
            ));
        }
        for node in self.said_alone.iter().filter(|node| !alone.contains(node)) {
            note(&format!("nothing waits for a replica of {node} any more"));
        }
        self.said_alone = alone;
    }

    /// Says whether it has to do with the archive.
    fn take_in(&mut self, asked: Asked) -> std::result::Result<bool, WriteError> {
        match asked {
            Asked::Task(task) => self.keeper.push(*task),
            Asked::Write(job) => {
                let Job { ticket, record, attempt, .. } = *job;
                if let Some(attempt) = &attempt {
                    self.log.add(attempt);
                }
                self.keeper.push(Task::Write { ticket, record });
                return Ok(attempt.is_some());
            }
            Asked::Forget => self.keeper.forget(),
            Asked::ArchiveFailed => self.archived.iter().find_map(Syncing::failure).map_or(Ok(()), Err)?,
        }
        Ok(false)
    }

    /// Has the disk keep what was archived.
    fn sync(&mut self) -> std::result::Result<(), WriteError> {
        self.synced = Instant::now();
        let begun: Vec<_> = self.archived.iter().map(Syncing::begin).collect();
        self.archived.iter().zip(&begun).try_for_each(|(archive, answer)| archive.end(answer))
    }
}
