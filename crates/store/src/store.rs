//! The reading half: the records folded into sieve and queues, and questions about them.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry as MapEntry;
use nephila_core::agent::{Admitted, Due, OverLimit, Taken};
use nephila_core::record::{Failure, Found, How, Outcome, Pointer, Record, Settled};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, Url, identify};
use nephila_disk::Disk;

use crate::frontier::{Frontier, FrontierOptions, Progress, Range, SnapshotDone, SnapshotJob};
use crate::history;
use crate::journal::{Journal, Records, SEGMENT_BYTES, decode, shorten};
use crate::log::{self, Log};
use crate::recent::Recent;
use crate::{Error, Result};

/// The directory of the store in a crawl's directory.
const DIR: &str = "store";
/// The journal of versions before this one.
const OLD_JOURNAL: &str = "journal";

/// What admission stops at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Links from a seed.
    pub max_depth: u16,
    /// URLs of one host.
    pub max_host_pages: u64,
    /// URLs in all.
    pub max_urls: u64,
}

/// What the store says of a URL that it knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// How it was found, as far as that is still known.
    pub found: Found,
    /// The page it was found on.
    pub via: Option<String>,
    /// How far it has come.
    pub state: KnownState,
}

/// How far a URL has come.
#[derive(Debug, Clone, PartialEq)]
pub enum KnownState {
    /// It waits for its turn and was not tried yet.
    Queued,
    /// It was handed over and is not settled.
    Taken,
    /// It was tried and will be again.
    Retry {
        /// Not before this.
        not_before: Wall,
        /// Attempts that it has used up.
        attempts: u8,
        /// The last of them, as it was written: whether the archive still has its capture is not asked again.
        last: Box<Settled>,
    },
    /// It is done.
    Settled(Box<Settled>),
}

/// The queue of a host in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostQueue {
    /// URLs that are known.
    pub known: u64,
    /// Those that are not settled: due, deferred or taken.
    pub waiting: u64,
    /// Those that are due. What is deferred counts from the first [`Store::take`] after its time has come.
    pub due: u64,
    /// When the first of those becomes due that are deferred.
    pub next: Option<Wall>,
}

/// The reading half of the store.
pub struct Store {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    frontier: Frontier,
    records: Rc<Records>,
    recent: Recent,
    archive_serial_max: Option<u32>,
    torn_bytes: u64,
    damaged: bool,
    /// The figures of hosts are right only after everything is decided.
    uncertain: bool,
}

/// A snapshot on its way to the disk, with what it makes unnecessary.
pub struct StoreJob {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    snapshot: SnapshotJob,
}

impl StoreJob {
    /// Writes the snapshot, durably, and shortens the part of the journal that nobody folds any more. On any thread.
    pub fn run(self) -> Result<SnapshotDone> {
        let done = self.snapshot.run()?;
        history::shorten(&*self.disk, &self.dir, done.needed, &shorten)?;
        Ok(done)
    }
}

impl Store {
    /// Whether there is a store in `dir`. One whose making was interrupted is none: before it has been made nothing is
    /// written anywhere.
    pub fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool> {
        refuse_old(disk, dir)?;
        log::exists(disk, &dir.join(DIR))
    }

    /// Opens the crawl in `dir`, or starts one. Each whole record is passed to `replay` with its place, in order, and folded
    /// as far as the last snapshot does not know it; what follows the first one that is not whole is cut off, and kept beside
    /// the journal if it is more than a write that was not finished ([`Store::is_damaged`]). A record whose capture is not in
    /// the archive (`holds`) is folded and passed on as [`without_capture`] says.
    ///
    /// The caller makes sure that nobody else writes to the directory.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: FrontierOptions,
        holds: &dyn Fn(&Pointer) -> bool,
        replay: &mut dyn FnMut(u64, &Record),
    ) -> Result<(Store, Journal)> {
        refuse_old(&*disk, dir)?;
        let dir = dir.join(DIR);
        let records = Rc::new(Records::new(Arc::clone(&disk), &dir));
        let frontier = Frontier::open(Arc::clone(&disk), &dir, options, Box::new(Rc::clone(&records)))?.0;
        let mut store = Store::new(disk, dir, frontier, records);
        let (disk, dir) = (Arc::clone(&store.disk), store.dir.clone());
        let first = log::first_place(&*disk, &dir)?;
        history::read_all(&*disk, &dir, first.unwrap_or(u64::MAX), &mut |place, payload| {
            store.read_back(place, payload, holds, replay)
        })?;
        let from = first.unwrap_or(store.frontier.place());
        let needed = store.frontier.place();
        let log = Log::open_to(&disk, &dir, (from, needed), SEGMENT_BYTES, &mut |place, payload| {
            store.read_back(place, payload, holds, replay)
        })?;
        store.frontier.advance(log.end());
        (store.torn_bytes, store.damaged) = (log.torn_bytes(), log.is_damaged());
        if store.uncertain {
            store.frontier.decide()?;
        }
        Ok((store, Journal::new(log)))
    }

    /// Opens the crawl in `dir` to look at it while it is not running. Nothing is written or cut; the state is that of the
    /// last whole record.
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: FrontierOptions,
        holds: &dyn Fn(&Pointer) -> bool,
        replay: &mut dyn FnMut(u64, &Record),
    ) -> Result<Store> {
        if !Store::exists(&*disk, dir)? {
            return Err(Error::io("open", &dir.join(DIR))(std::io::ErrorKind::NotFound.into()));
        }
        let dir = dir.join(DIR);
        let records = Rc::new(Records::new(Arc::clone(&disk), &dir));
        let frontier =
            Frontier::open_read_only(Arc::clone(&disk), &dir, options, Box::new(Rc::clone(&records)))?;
        let mut store = Store::new(disk, dir, frontier, records);
        let (disk, dir) = (Arc::clone(&store.disk), store.dir.clone());
        let first = log::first_place(&*disk, &dir)?;
        history::read_all(&*disk, &dir, first.unwrap_or(u64::MAX), &mut |place, payload| {
            store.read_back(place, payload, holds, replay)
        })?;
        let from = first.unwrap_or(store.frontier.place());
        let needed = store.frontier.place();
        store.torn_bytes = log::read_only_to(&*disk, &dir, (from, needed), &mut |place, payload| {
            store.read_back(place, payload, holds, replay)
        })?;
        store.frontier.decide()?;
        Ok(store)
    }

    fn new(disk: Arc<dyn Disk>, dir: PathBuf, frontier: Frontier, records: Rc<Records>) -> Store {
        Store {
            dir,
            disk,
            frontier,
            records,
            recent: Recent::default(),
            archive_serial_max: None,
            torn_bytes: 0,
            damaged: false,
            uncertain: false,
        }
    }

    /// Takes in a record of an earlier run.
    fn read_back(
        &mut self,
        place: u64,
        payload: &[u8],
        holds: &dyn Fn(&Pointer) -> bool,
        replay: &mut dyn FnMut(u64, &Record),
    ) -> Result<()> {
        let mut record = decode(place, payload)?;
        let mut reopened = false;
        if let Some(pointer) = capture_of(&record) {
            self.archive_serial_max = self.archive_serial_max.max(Some(pointer.file));
            if !holds(&pointer) {
                without_capture(&mut record);
                reopened = true;
            }
        }
        reopened |= look_again(&mut record);
        if place >= self.frontier.place() {
            if let Record::Settled(settled) = &record {
                self.uncertain |= self.frontier.settle_again(place, settled)?;
            }
            self.frontier.admit(place, &record)?;
        } else if let Record::Settled(settled) = &record
            && reopened
        {
            self.frontier.unsettle(place, settled)?;
        }
        replay(place, &record);
        Ok(())
    }

    /// Offers to the sieve what a record found, in order; what is new goes to the end of its host's queue. To be called
    /// once the record is durable, after [`Store::settle`] if it settles a URL. What cannot be said at once follows with the
    /// next answer.
    pub fn admit(&mut self, place: u64, record: &Record) -> Result<Admitted> {
        for found in record.found() {
            if let Some((host, fingerprint)) = identify(&found.url) {
                self.recent.add(&host, fingerprint, found.depth);
            }
        }
        self.frontier.admit(place, record)
    }

    /// Decides about everything that was offered.
    pub fn decide(&mut self) -> Result<Admitted> {
        self.frontier.decide()
    }

    /// Notes the end of an attempt, once its record is durable: the URL is done, or deferred until it may be tried again.
    /// Its attempts are then those that the record says. Says what has been decided about URLs that were offered before.
    pub fn settle(&mut self, place: u64, settled: &Settled) -> Result<Admitted> {
        self.frontier.settle(place, settled)?;
        self.frontier.make_room()
    }

    /// Hands over up to `max` URLs of a host: first those that were put back, then those whose time has come again, the
    /// earliest first, then the others, the lowest depth first and within it in the order of admission. With `fresh_first`, the
    /// others come before those that come back.
    pub fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken> {
        let mut taken = self.frontier.take(host, max, fresh_first, now)?;
        let mut last: Option<(u64, Option<String>)> = None;
        for due in &mut taken.due {
            // The URLs of a page are neighbours.
            let via = match last.take() {
                Some((place, via)) if place == due.found_in => via,
                _ => self.records.page(due.found_in),
            };
            due.via.clone_from(&via);
            last = Some((due.found_in, via));
        }
        Ok(taken)
    }

    /// Puts URLs that were taken and not tried back at the head of their host's queue, first one first. Those that were
    /// settled since are left as they are.
    pub fn put_back(&mut self, host: &Host, due: &[Due]) -> Result<()> {
        self.frontier.put_back(host, due)
    }

    /// Drops from what a record found the URLs that were offered lately and those that it repeats, so that the journal stays
    /// small. To be called before the record is written.
    pub fn prune(&self, record: &mut Record) {
        // What a seed redirects to widens the scope when the record is replayed, known or not. The seeds themselves are
        // given to the scope at every start.
        let keeps_seeds = !matches!(record, Record::Seeds(_));
        let found = match record {
            Record::Seeds(found) => found,
            Record::Settled(settled) => &mut settled.found,
            Record::Robots(robots) => &mut robots.found,
            _ => return,
        };
        let mut depths: HashMap<(Host, Fingerprint), u16> = HashMap::new();
        found.retain(|found| {
            let Some((host, fingerprint)) = identify(&found.url) else { return false };
            if self.recent.knows(&host, fingerprint, found.depth) {
                return keeps_seeds && found.how == How::Seed;
            }
            match depths.entry((host, fingerprint)) {
                MapEntry::Occupied(mut depth) if found.depth < *depth.get() => {
                    depth.insert(found.depth);
                    true
                }
                MapEntry::Occupied(_) => false,
                MapEntry::Vacant(depth) => {
                    depth.insert(found.depth);
                    true
                }
            }
        });
    }

    /// The record at a place in the journal; of an old one all but its links.
    pub fn record(&self, place: u64) -> Result<Record> {
        self.records.read(place)
    }

    /// All that the store knows of a URL.
    pub fn look_up(&mut self, url: &Url) -> Result<Option<Known>> {
        let Some((progress, place)) = self.frontier.look_up(url)? else { return Ok(None) };
        let fingerprint = Fingerprint::of(url);
        let queued = |state: KnownState, depth: u16| {
            let found = self.records.found(place, fingerprint);
            let found = found.unwrap_or(Found { url: url.to_string(), depth, how: How::Link, redirects: 0 });
            Known { found, via: self.records.page(place), state }
        };
        Ok(Some(match progress {
            Progress::Queued { depth } => queued(KnownState::Queued, depth),
            Progress::Taken { depth } => queued(KnownState::Taken, depth),
            Progress::Tried { taken } => {
                let known = self.look_back(place, false)?;
                if taken { Known { state: KnownState::Taken, ..known } } else { known }
            }
            Progress::Settled => self.look_back(place, true)?,
        }))
    }

    fn look_back(&self, place: u64, done: bool) -> Result<Known> {
        let mut record = self.records.read(place)?;
        if let Record::Settled(settled) = &record
            && settled.outcome.is_final()
            && !done
        {
            // It did not count when the journal was read.
            if !look_again(&mut record) {
                without_capture(&mut record);
            }
        }
        let Record::Settled(settled) = record else {
            return Err(Error::Corrupt { path: self.dir.clone(), place, what: "not an attempt at a URL" });
        };
        let (depth, how) = (settled.depth, settled.how);
        let found = Found { url: settled.url.clone(), depth, how, redirects: 0 };
        let via = self.records.page(settled.found_in);
        let attempts = settled.attempts;
        let state = match settled.outcome {
            Outcome::Retry { not_before, .. } => {
                KnownState::Retry { not_before, attempts, last: Box::new(settled) }
            }
            _ => KnownState::Settled(Box::new(settled)),
        };
        Ok(Known { found, via, state })
    }

    /// Passes on every host with its queue.
    pub fn hosts(&mut self, each: &mut dyn FnMut(&Host, HostQueue)) -> Result<()> {
        self.frontier.hosts(&Range::All, each)
    }

    /// Begins to write down what is in memory, so that opening need not fold all of the journal again. Everything that was
    /// appended to the journal must be synced and folded. What is returned does the work; [`Store::end_snapshot`] follows.
    pub fn begin_snapshot(&mut self, place: u64) -> Result<StoreJob> {
        self.frontier.advance(place);
        let snapshot = self.frontier.begin_snapshot(&[])?;
        Ok(StoreJob { disk: Arc::clone(&self.disk), dir: self.dir.clone(), snapshot })
    }

    /// Takes note that a snapshot is durable.
    pub fn end_snapshot(&mut self, done: SnapshotDone) -> Result<()> {
        self.frontier.end_snapshot(done).map(drop)
    }

    /// URLs that are known.
    pub fn known_urls(&self) -> u64 {
        self.frontier.known_urls()
    }

    /// URLs that are known and not settled: due, deferred or taken.
    pub fn queued(&self) -> u64 {
        self.known_urls().saturating_sub(self.frontier.settled_urls())
    }

    /// The highest serial number of a WARC file that any record named when the store was opened, whether or not the archive
    /// still has it: no new file may get that number or a lower one.
    pub fn archive_serial_max(&self) -> Option<u32> {
        self.archive_serial_max
    }

    /// URLs that limits keep out, as often as they were found.
    pub fn kept_out(&self) -> OverLimit {
        self.frontier.kept_out()
    }

    /// How many bytes behind the last whole record were found when the store was opened.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Whether there were whole records among them: a damaged disk, or a power cut that took a write and spared a later one.
    /// They are kept in files named `damaged-*` in the store's directory.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// The memory that sieve and queues take, counted from what they reserve.
    pub fn memory_bytes(&self) -> u64 {
        self.frontier.usage().memory_bytes
    }
}

/// The journal of an older version is not read.
fn refuse_old(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let path = dir.join(OLD_JOURNAL);
    match disk.open(&path, nephila_disk::Mode::Read) {
        Ok(_) => Err(Error::Version { path, found: 1, known: log::FORMAT }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("open", &path)(error)),
    }
}

fn capture_of(record: &Record) -> Option<Pointer> {
    match record {
        Record::Settled(settled) => settled.capture,
        Record::Robots(robots) => robots.capture,
        _ => None,
    }
}

/// What failed because its address may not be asked is due again at each start: the operator may have allowed the address
/// since, or the name may lead elsewhere.
fn look_again(record: &mut Record) -> bool {
    if let Record::Settled(settled) = record
        && let Outcome::Failed { failure: failure @ Failure::PrivateAddress, status } = settled.outcome
    {
        settled.outcome = Outcome::Retry { failure, status, not_before: settled.at };
        return true;
    }
    false
}

/// What a record means when its capture is not in the archive. A page counts only with its capture, so the attempt at it
/// counts as not made and the URL is due again; what it found stays found. An attempt that was to be repeated anyway, and
/// the rules of a robots.txt, stay as they are: they and the waits that they impose are in the record itself.
pub fn without_capture(record: &mut Record) {
    match record {
        Record::Settled(settled) => {
            settled.capture = None;
            if settled.outcome.is_final() {
                settled.attempts = settled.attempts.saturating_sub(1);
                settled.outcome =
                    Outcome::Retry { failure: Failure::NotTried, status: None, not_before: settled.at };
            }
        }
        Record::Robots(robots) => robots.capture = None,
        _ => {}
    }
}
