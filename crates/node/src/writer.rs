//! The writing half of an agent: what was fetched into the archive, and then what it means into the journal.
//!
//! A record is *durable*, and only then told to the agent, once the capture it names and then the record itself have
//! been handed to the kernel; with [`Durability::Power`] once both are synced, in that order. So a settled page is always
//! whole in the archive. Captures and records of many pages are handed over together.
//!
//! [`Writer`] does the work and knows no thread, so that tests and the simulator drive it over a disk that fails;
//! [`Writing`] runs one on a thread of its own, and beside it the archives of the other shards ([`crate::archiving`]).

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nephila_archive::{Compression, Recovery, WarcWriter};
use nephila_core::agent::{Agent, Ticket};
use nephila_core::record::{Pointer, Record};
use nephila_core::settings::Settings;
use nephila_core::time::{Now, Wall};
use nephila_disk::Disk;
use nephila_store::frontier::SnapshotDone;
use nephila_store::{EmbeddedStore, FrontierOptions, Journal, StoreJob, StoreLimits};

use crate::archiving::{Archive, Archiving, Syncing};
use crate::config::{Compress, Config, Durability};
use crate::directory;
use crate::fetch::Captured;
use crate::fetch_log::{Attempt, FetchLog};
use crate::lost_pages;
use crate::memo::{Pointed, Replay};

/// Records that are handed over together at most.
pub(crate) const BATCH_MAX: usize = 256;

/// How often what is written is handed on.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When a record counts as durable.
    pub durability: Durability,
    /// To the kernel at the latest after this.
    pub settle_delay: Duration,
    /// To the disk at the latest after this.
    pub sync_every: Duration,
    /// Or after this many bytes.
    pub sync_bytes: u64,
}

/// Why nothing more can be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The archive failed.
    #[error("cannot write the archive")]
    Archive(#[from] nephila_archive::Error),
    /// The journal failed.
    #[error("cannot write the journal")]
    Journal(#[from] nephila_store::Error),
    /// Sieve and queues cannot be opened, read or written down.
    #[error("cannot use the store of the crawl{}", advice(.0))]
    Store(#[source] nephila_store::Error),
    /// The log of fetches failed.
    #[error("cannot write the log of fetches")]
    Log(#[source] std::io::Error),
    /// A thread could not be started.
    #[error("cannot start to write")]
    Thread(#[source] std::io::Error),
    /// There is an archive without its journal.
    #[error(
        "{} holds WARC files, and the journal beside it is missing or empty: put the journal back, or start over {}",
        .archive.display(),
        if *.is_of_site { ANOTHER_DIRECTORY } else { "with --fresh, which keeps the files" }
    )]
    NoJournal {
        /// The archive.
        archive: PathBuf,
        /// It is that of an agent of a site.
        is_of_site: bool,
    },
    /// Pages were fetched, and the store that knew of them is empty.
    #[error(
        "{} holds what was fetched for this crawl, and the store knows nothing of it: have the servers read their files again, or \
         start over {ANOTHER_DIRECTORY}",
        .dir.display()
    )]
    EmptyStore {
        /// The directory of the agent.
        dir: PathBuf,
    },
    /// The archive does not hold what the journal says it does.
    #[error(
        "pages that were fetched are not in {} any more, whose files are missing or cut short:\n{files}\nput the files \
         back, or have the pages fetched again with --refetch-missing (an agent of a site: `refetch-missing = true` in its file)",
        archive.display()
    )]
    LostPages {
        /// Where they should be.
        archive: PathBuf,
        /// The files, a line each.
        files: String,
    },
}

impl WriteError {
    /// Whether room on the disk would help.
    pub fn is_disk_full(&self) -> bool {
        match self {
            WriteError::Archive(error) => error.kind() == nephila_archive::ErrorKind::DiskFull,
            WriteError::Journal(error) | WriteError::Store(error) => {
                error.kind() == nephila_store::ErrorKind::DiskFull
            }
            WriteError::Log(error) | WriteError::Thread(error) => nephila_disk::is_full(error),
            WriteError::NoJournal { .. } | WriteError::EmptyStore { .. } | WriteError::LostPages { .. } => {
                false
            }
        }
    }
}

/// What to do about a store that the disk does not keep.
fn advice(error: &nephila_store::Error) -> &'static str {
    match error {
        nephila_store::Error::Corrupt { .. } => {
            " (put it back from a copy, or start over: `nephila crawl` with --fresh, which sets aside what is there; an agent of a site \
             in another directory, which `out` names)"
        }
        _ => "",
    }
}

/// How an agent of a site starts over.
const ANOTHER_DIRECTORY: &str = "in another directory, which `out` names";

/// A record to write, with what belongs to it.
pub struct Job {
    /// The agent's name for it.
    pub ticket: Ticket,
    /// The record. Its `capture` is filled in here.
    pub record: Box<Record>,
    /// What was received, to be archived first.
    pub capture: Option<Captured>,
    /// The line for the log of fetches.
    pub attempt: Option<Attempt>,
}

/// A record that is durable.
pub struct Done {
    /// The agent's name for it.
    pub ticket: Ticket,
    /// Its place in the journal.
    pub place: u64,
    /// The record as written.
    pub record: Box<Record>,
}

/// See the module's documentation.
pub struct Writer {
    archive: Archive,
    /// The archives of other shards.
    others: Vec<Syncing>,
    journal: Journal,
    log: FetchLog,
    pace: Pace,
    /// Written, and not yet handed over; filled by `write`, emptied by `commit`.
    waiting: Vec<Done>,
    bytes_unsynced: u64,
    synced: Instant,
}

impl Writer {
    /// Takes over archive, journal and log, all open and recovered.
    pub fn new(archive: Archive, journal: Journal, log: FetchLog, pace: Pace) -> Writer {
        let (others, waiting) = (Vec::new(), Vec::new());
        let synced = Instant::now();
        Writer { archive, others, journal, log, pace, waiting, bytes_unsynced: 0, synced }
    }

    /// Archives the capture and writes the record. Nothing is durable before [`Writer::commit`].
    pub fn write(&mut self, mut job: Job, now: Wall) -> Result<(), WriteError> {
        self.archive.archive(&mut job, now)?;
        if let Some(attempt) = &job.attempt {
            self.log.add(attempt);
        }
        let capture = match &*job.record {
            Record::Settled(settled) => settled.capture,
            Record::Robots(robots) => robots.capture,
            // So that a run that ended has all its files, whatever a power cut does: see `lost_pages`.
            Record::RunEnded { .. } => {
                self.sync_archives()?;
                None
            }
            _ => None,
        };
        self.bytes_unsynced += capture.map_or(0, |pointer| pointer.length.into());
        let place = self.journal.append(&job.record)?;
        self.waiting.push(Done { ticket: job.ticket, place, record: job.record });
        Ok(())
    }

    /// Makes everything written so far durable and returns it. The archive goes first.
    pub fn commit(&mut self) -> Result<Vec<Done>, WriteError> {
        if !self.waiting.is_empty() {
            self.archive.flush()?;
            self.journal.flush()?;
            let is_for_others = self.waiting.iter().any(|done| done.record.is_for_others());
            if self.pace.durability == Durability::Power || is_for_others {
                self.sync()?;
            }
        }
        self.log.flush().map_err(WriteError::Log)?;
        Ok(std::mem::take(&mut self.waiting))
    }

    /// Has the disk keep what the kernel has. The archive goes first, so that no record on the disk names a capture
    /// that is not.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.sync_archives()?;
        self.journal.sync()?;
        (self.bytes_unsynced, self.synced) = (0, Instant::now());
        Ok(())
    }

    fn sync_archives(&mut self) -> Result<(), WriteError> {
        let begun: Vec<_> = self.others.iter().map(Syncing::begin).collect();
        self.archive.sync()?;
        self.others.iter().zip(&begun).try_for_each(|(other, answer)| other.end(answer))
    }

    /// Finishes the open archive file and everything else, and gives back the place behind the last record. Call after the
    /// last commit.
    pub fn close(mut self) -> Result<u64, WriteError> {
        self.sync()?;
        self.archive.close()?;
        Ok(self.journal.end())
    }

    /// The place behind the last record.
    pub fn end(&self) -> u64 {
        self.journal.end()
    }
}

/// What has become durable.
pub enum Written {
    /// Records, and the place of the next one.
    Records(Vec<Done>, u64),
    /// A snapshot of the store.
    Snapshot(SnapshotDone),
}

/// What the thread is asked to do.
enum Task {
    Write(Vec<(Box<Job>, Wall)>),
    Snapshot(Box<StoreJob>),
    /// Another shard can archive nothing more.
    ArchiveFailed,
}

/// A [`Writer`] on a thread of its own.
pub struct Writing {
    tasks: Sender<Task>,
    thread: JoinHandle<Result<u64, WriteError>>,
    /// The archives of the shards after the first.
    archives: Vec<Archiving>,
    /// What is to be written, by shard: handed over together, because a thread that is woken for each job costs more than most
    /// jobs.
    gathered: Vec<Vec<(Box<Job>, Wall)>>,
}

impl Writing {
    /// Starts the threads: one that writes, and one for each archive of a shard after the first. `done` is called on the first
    /// with what has become durable, and must not block for long.
    pub fn start(
        mut writer: Writer,
        archives: Vec<Archive>,
        done: impl FnMut(Written) + Send + 'static,
    ) -> std::io::Result<Writing> {
        let (tasks, received) = channel();
        let start = |archive| {
            let (archived, failed) = (tasks.clone(), tasks.clone());
            Archiving::start(
                archive,
                // If the writer has ended, that is known already.
                move |jobs| drop(archived.send(Task::Write(jobs))),
                move || drop(failed.send(Task::ArchiveFailed)),
            )
        };
        let archives: Vec<Archiving> = archives.into_iter().map(start).collect::<std::io::Result<_>>()?;
        writer.others = archives.iter().map(Archiving::syncing).collect();
        let thread =
            std::thread::Builder::new().name("writer".into()).spawn(move || run(writer, &received, done))?;
        let gathered = (0..=archives.len()).map(|_| Vec::new()).collect();
        Ok(Writing { tasks, thread, archives, gathered })
    }

    /// Takes a job in, for the next [`Writing::hand_over`]; the agent bounds how many there can be.
    pub fn write(&mut self, job: Job, now: Wall) {
        let shard = job.capture.as_ref().map_or(0, |capture| usize::from(capture.shard));
        let at = if shard < self.gathered.len() { shard } else { 0 };
        self.gathered[at].push((Box::new(job), now));
    }

    /// Has the threads begin with what was taken in. False once one has failed: [`Writing::finish`] says why.
    pub fn hand_over(&mut self) -> bool {
        let mut is_well = true;
        for (shard, gathered) in self.gathered.iter_mut().enumerate().filter(|(_, jobs)| !jobs.is_empty()) {
            let jobs = std::mem::take(gathered);
            is_well &= match shard.checked_sub(1) {
                Some(other) => self.archives[other].archive(jobs),
                None => self.tasks.send(Task::Write(jobs)).is_ok(),
            };
        }
        is_well
    }

    /// Has a snapshot written once the journal before it is synced. One at a time.
    pub fn snapshot(&mut self, job: StoreJob) -> bool {
        self.hand_over() && self.tasks.send(Task::Snapshot(Box::new(job))).is_ok()
    }

    /// Writes what was taken in, closes everything and ends the thread. Gives back the place behind the last record.
    pub fn finish(mut self) -> Result<u64, WriteError> {
        self.hand_over();
        self.archives.into_iter().for_each(Archiving::finish);
        drop(self.tasks);
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn run(mut writer: Writer, tasks: &Receiver<Task>, mut done: impl FnMut(Written)) -> Result<u64, WriteError> {
    let pace = writer.pace;
    let mut snapshots: Option<JoinHandle<nephila_store::Result<SnapshotDone>>> = None;
    let mut open = true;
    while open {
        let mut snapshot = None;
        let mut next = match tasks.recv_timeout(pace.sync_every) {
            Ok(task) => Some(task),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                open = false;
                None
            }
        };
        // What else is there already goes along, but the first does not wait long for it.
        let began = Instant::now();
        let mut batch = 0;
        while let Some(task) = next.take() {
            match task {
                Task::Write(jobs) => {
                    batch += jobs.len();
                    jobs.into_iter().try_for_each(|(job, now)| writer.write(*job, now))?;
                }
                Task::Snapshot(job) => snapshot = Some(job),
                Task::ArchiveFailed => writer.others.iter().find_map(Syncing::failure).map_or(Ok(()), Err)?,
            }
            // What is taken off the queue is done: the limits are looked at before.
            if batch < BATCH_MAX && began.elapsed() < pace.settle_delay {
                next = tasks.try_recv().ok();
            }
        }
        let durable = writer.commit()?;
        if !durable.is_empty() {
            done(Written::Records(durable, writer.journal.end()));
        }
        if let Some(job) = snapshot {
            // What a snapshot says must not outlive what it says it of.
            writer.sync()?;
            snapshots = Some(std::thread::spawn(move || job.run()));
        }
        if let Some(thread) = snapshots.take_if(|thread| !open || thread.is_finished()) {
            match thread.join() {
                Ok(snapshot) => done(Written::Snapshot(snapshot.map_err(WriteError::Store)?)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        if writer.synced.elapsed() >= pace.sync_every || writer.bytes_unsynced >= pace.sync_bytes {
            writer.sync()?;
        }
    }
    writer.close()
}

/// What a run works with.
pub struct Opened {
    /// Sieve and queues.
    pub store: EmbeddedStore,
    /// Where records and captures go.
    pub writer: Writer,
    /// Where the captures of shards after the first go.
    pub archives: Vec<Archive>,
    /// Pages that counted, are not in the archive any more, and are fetched again.
    pub lost_pages: u64,
    /// How far into the archive the records of the store point.
    pub pointed: Pointed,
}

/// Opens archive, store and log of a crawl's directory and makes them whole again after whatever ended the last run.
/// The agent is brought to where the last one was. What no crash can have done is not mended but refused.
pub fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    config: &Config,
    agent: &mut Agent,
    now: Now,
) -> Result<Opened, WriteError> {
    let options = FrontierOptions { me: agent.me().unwrap_or_default(), ..store_options(config) };
    let warcs = directory::archive(dir);
    if !EmbeddedStore::exists(&*disk, dir).map_err(WriteError::Store)? && has_warcs(&*disk, &warcs)? {
        return Err(WriteError::NoJournal { archive: warcs, is_of_site: config.is_of_site() });
    }
    let mut recovery = nephila_archive::recover(&disk, &warcs)?;
    let mut replay = Replay::new(agent, now, Some(&recovery));
    let (store, journal) =
        EmbeddedStore::open(disk.clone(), dir, options, &mut replay).map_err(WriteError::Store)?;
    let Replay { lost, pointed, .. } = replay;
    let (explained, others) = lost.finish();
    if !others.is_empty() && !config.refetch_missing {
        return Err(WriteError::LostPages { archive: warcs, files: lost_pages::listed(&others) });
    }
    for shard in 0..config.shards() {
        if let Some(serial) = pointed.serial_max(shard) {
            recovery.reserve(shard, serial);
        }
    }
    let mut archives = start_archives(&disk, dir, config, &recovery)?;
    let archive = archives.remove(0);
    let log = FetchLog::open(disk, &directory::fetch_log(dir), config.log_roll_bytes, config.log_files_max)
        .map_err(WriteError::Log)?;
    let lost_pages = explained.values().chain(others.values()).sum();
    let writer = Writer::new(archive, journal, log, pace(config));
    Ok(Opened { store, writer, archives, lost_pages, pointed })
}

/// Begins a WARC file for each shard, of which there is at least one.
pub(crate) fn start_archives(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    config: &Config,
    recovery: &Recovery,
) -> Result<Vec<Archive>, WriteError> {
    let start = |shard| {
        let options = warc_options(config, shard);
        Ok(Archive::new(WarcWriter::start(disk.clone(), directory::archive(dir), options, recovery)?))
    };
    (0..config.shards()).map(start).collect()
}

/// How often what is written is handed on.
pub(crate) fn pace(config: &Config) -> Pace {
    Pace {
        durability: config.durability,
        settle_delay: config.settle_delay,
        sync_every: config.sync_every,
        sync_bytes: config.sync_bytes,
    }
}

fn has_warcs(disk: &dyn Disk, warcs: &Path) -> Result<bool, WriteError> {
    let files = disk.list(warcs).map_err(|source| {
        WriteError::Archive(nephila_archive::Error::Io { action: "list", path: warcs.to_owned(), source })
    })?;
    Ok(files.iter().any(|path| path.to_string_lossy().contains(".warc")))
}

fn warc_options(config: &Config, shard: u16) -> nephila_archive::Options {
    let mut info = vec![
        ("software".to_owned(), format!("nephila/{}", env!("CARGO_PKG_VERSION"))),
        ("http-header-user-agent".to_owned(), config.user_agent()),
        ("robots".to_owned(), "RFC 9309".to_owned()),
    ];
    info.extend(config.contact.as_ref().map(|contact| ("operator".to_owned(), contact.to_string())));
    let changed = config.to_toml(true, &["urls", "seeds", "out", "contact"]);
    info.extend((!changed.is_empty()).then(|| ("settings".to_owned(), changed.trim().replace('\n', "; "))));
    nephila_archive::Options {
        prefix: config.warc_prefix.clone(),
        shard,
        roll_bytes: config.warc_roll_bytes,
        compression: match config.compress {
            Compress::Gzip => Compression::Gzip,
            Compress::Zstd => Compression::Zstd,
            Compress::None => Compression::None,
        },
        info,
    }
}

/// What the store may use, and what admission stops at.
pub(crate) fn store_options(config: &Config) -> FrontierOptions {
    let seed = config.settings.seed;
    let memory = usize::try_from(config.store_memory_bytes).unwrap_or(usize::MAX);
    FrontierOptions {
        limits: store_limits(config),
        tell_again: config.settings.tell_again,
        secret: if seed == 0 { RandomState::new().hash_one(seed) } else { seed },
        ..FrontierOptions::within(memory).in_order(config.settings.order)
    }
}

/// What admission stops at.
pub(crate) fn store_limits(config: &Config) -> StoreLimits {
    let Settings { max_depth, max_host_pages, max_urls, .. } = config.settings;
    StoreLimits { max_depth, max_host_pages, max_urls, kept_out_bytes: config.kept_out_bytes }
}

/// The archive's own form of a pointer.
pub fn pointer_of(pointer: &Pointer) -> nephila_archive::Pointer {
    let Pointer { shard, file, offset, length } = *pointer;
    nephila_archive::Pointer { shard, file, offset, length }
}
