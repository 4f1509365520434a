//! The reading half: the records folded into sieve and queues, and the texts read back from the journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry as MapEntry;
use nephila_core::agent::{Admitted, Due, OverLimit, Taken};
use nephila_core::record::{Failure, Found, How, Outcome, Pointer, Record, Settled};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, Url, identify};
use nephila_disk::{Disk, Mode};

use crate::journal::{FILE_NAME, Journal, is_unborn};
use crate::queues::Queues;
use crate::reader::{Frame, Reader, distances};
use crate::sieve::{Entry, NONE, Name, Sieve, Stage};
use crate::{Error, Result};

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
    /// How it was found. For a URL that today's limits would have kept out, and of which only an attempt is known, this is
    /// what the attempt says of it.
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
    reader: Reader,
    limits: StoreLimits,
    sieve: Sieve,
    queues: Queues,
    archive_serial_max: Option<u32>,
    kept_out: OverLimit,
    torn_bytes: u64,
    damaged: Option<PathBuf>,
}

impl Store {
    /// Whether there is a journal in `dir`. One whose making was interrupted is none: before a journal has been made nothing
    /// is written anywhere.
    pub fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool> {
        let path = dir.join(FILE_NAME);
        match disk.open(&path, Mode::Read) {
            Ok(file) => Ok(!is_unborn(&*file, &path)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("open", &path)(error)),
        }
    }

    /// Opens the crawl in `dir`, or starts one. Each whole record is folded and passed to `replay` with its place, in
    /// order; what follows the first one that is not whole is cut off, and kept beside the journal if it is more than a write
    /// that was not finished ([`Store::damaged`]). A record whose capture is not in the archive
    /// (`holds`) is folded and passed on as [`without_capture`] says.
    ///
    /// The caller makes sure that nobody else writes to the directory.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        limits: StoreLimits,
        holds: &dyn Fn(&Pointer) -> bool,
        replay: &mut dyn FnMut(u64, &Record),
    ) -> Result<(Store, Journal)> {
        let mut journal = Journal::open(&disk, dir)?;
        let mut store = Store::new(Reader::open(&disk, dir.join(FILE_NAME))?, limits);
        let whole_bytes = store.replay(holds, replay)?;
        if store.torn_bytes > 0 && store.reader.has_frame_behind(whole_bytes)? {
            store.damaged = Some(journal.keep_tail(whole_bytes, &disk, dir)?);
        }
        journal.start_at(whole_bytes, &disk, dir)?;
        Ok((store, journal))
    }

    /// Opens the crawl in `dir` to look at it, whether or not it is running. Nothing is written or cut; the state is that
    /// of the last whole record.
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        dir: &Path,
        limits: StoreLimits,
        holds: &dyn Fn(&Pointer) -> bool,
        replay: &mut dyn FnMut(u64, &Record),
    ) -> Result<Store> {
        let mut store = Store::new(Reader::open(&disk, dir.join(FILE_NAME))?, limits);
        store.replay(holds, replay)?;
        Ok(store)
    }

    fn new(reader: Reader, limits: StoreLimits) -> Store {
        Store {
            reader,
            limits,
            sieve: Sieve::new(),
            queues: Queues::new(),
            archive_serial_max: None,
            kept_out: OverLimit::default(),
            torn_bytes: 0,
            damaged: None,
        }
    }

    /// Folds the journal and gives back how long it is up to the end of its last whole record.
    fn replay(
        &mut self,
        holds: &dyn Fn(&Pointer) -> bool,
        replay: &mut dyn FnMut(u64, &Record),
    ) -> Result<u64> {
        let mut fold = Fold { sieve: &mut self.sieve, queues: &mut self.queues, limits: self.limits };
        let serial_max = &mut self.archive_serial_max;
        let mut kept_out = OverLimit::default();
        let (whole_bytes, torn_bytes) = self.reader.read_all(|place, mut record| {
            if let Some(pointer) = capture_of(&record) {
                *serial_max = (*serial_max).max(Some(pointer.file));
                if !holds(&pointer) {
                    without_capture(&mut record);
                }
            }
            look_again(&mut record);
            if let Record::Settled(settled) = &record {
                fold.settle(place, settled);
            }
            let over = fold.admit(place, &record).over;
            kept_out.depth += over.depth;
            kept_out.host += over.host;
            kept_out.urls += over.urls;
            replay(place, &record);
        })?;
        self.torn_bytes = torn_bytes;
        self.kept_out = kept_out;
        Ok(whole_bytes)
    }

    /// Offers to the sieve what a record found, in order; what is new goes to the end of its host's queue. To be called
    /// once the record is durable, after [`Store::settle`] if it settles a URL.
    pub fn admit(&mut self, place: u64, record: &Record) -> Admitted {
        self.fold().admit(place, record)
    }

    /// Notes the end of an attempt, once its record is durable: the URL is done, or deferred until it may be tried again.
    /// Its attempts are then those that the record says.
    pub fn settle(&mut self, place: u64, settled: &Settled) {
        self.fold().settle(place, settled);
    }

    fn fold(&mut self) -> Fold<'_> {
        Fold { sieve: &mut self.sieve, queues: &mut self.queues, limits: self.limits }
    }

    /// Hands over up to `max` URLs of a host: first those that were put back, then those whose time has come again, the
    /// earliest first, then the others, the lowest depth first and within it in the order of admission. With `fresh_first`, the
    /// others come before those that come back.
    ///
    /// After an error they are at the head of the queue again.
    pub fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken> {
        let mut taken = Taken { host: host.clone(), due: Vec::new(), left: 0, next: None };
        let Some(number) = self.queues.find(host) else { return Ok(taken) };
        let ids = self.queues.take(&mut self.sieve, number, max, fresh_first, now);
        match self.read_due(&ids) {
            Ok(due) => taken.due = due,
            Err(error) => {
                self.queues.put_back(&mut self.sieve, number, &ids);
                return Err(error);
            }
        }
        let queue = self.queues.host(number);
        taken.left = u64::from(queue.queued);
        taken.next = queue.next();
        Ok(taken)
    }

    fn read_due(&self, ids: &[u32]) -> Result<Vec<Due>> {
        let mut frame = None;
        ids.iter()
            .map(|id| {
                let entry = self.sieve.entry(*id);
                let (found, via, url) = self.read_found(entry, &mut frame)?;
                Ok(Due {
                    url,
                    depth: found.depth,
                    how: found.how,
                    redirects: found.redirects,
                    attempts: entry.attempts,
                    via,
                    reference: u64::from(*id),
                })
            })
            .collect()
    }

    /// Reads back how a URL was found. `last` is the frame that was read last: the URLs of a page are neighbours.
    fn read_found(&self, entry: &Entry, last: &mut Option<Frame>) -> Result<(Found, Option<String>, Url)> {
        let place = entry.found_place();
        if entry.distance == 0 {
            let Record::Settled(settled) = self.reader.record(place)? else {
                return Err(self.reader.corrupt(place, "not an attempt at a URL"));
            };
            let url = Url::parse(&settled.url).map_err(|_| self.reader.corrupt(place, "not a URL"))?;
            let found = Found { url: settled.url, depth: settled.depth, how: settled.how, redirects: 0 };
            return Ok((found, None, url));
        }
        let frame = match last.take() {
            Some(frame) if frame.place == place => frame,
            _ => self.reader.frame(place)?,
        };
        let (found, url) = self.reader.found(&frame, entry.distance, entry.fingerprint())?;
        let via = frame.via.clone();
        *last = Some(frame);
        Ok((found, via, url))
    }

    /// Puts URLs that were taken and not tried back at the head of their host's queue, first one first. Those that were
    /// settled since are left as they are.
    pub fn put_back(&mut self, host: &Host, due: Vec<Due>) {
        let Some(number) = self.queues.find(host) else { return };
        let known = u64::from(self.sieve.len());
        let ids: Vec<u32> =
            due.iter().filter(|due| due.reference < known).map(|due| due.reference as u32).collect();
        self.queues.put_back(&mut self.sieve, number, &ids);
    }

    /// Drops from what a record found the URLs that are known already and those that it repeats, so that the journal stays
    /// small. To be called before the record is written. What a limit keeps out stays: it comes back when the limit is
    /// raised, and for the same reason a repetition that is less deep stays too.
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
            if self.find(&host, fingerprint).is_some() {
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

    /// The record at a place in the journal.
    pub fn record(&self, place: u64) -> Result<Record> {
        self.reader.record(place)
    }

    /// All that the store knows of a URL.
    pub fn look_up(&self, url: &Url) -> Result<Option<Known>> {
        let Some(id) = self.find(&Host::of(url), Fingerprint::of(url)) else { return Ok(None) };
        let entry = self.sieve.entry(id);
        let (found, via, _) = self.read_found(entry, &mut None)?;
        let state = match (entry.stage, entry.settled_place()) {
            (Stage::Taken, _) => KnownState::Taken,
            (_, None) => KnownState::Queued,
            (stage, Some(place)) => self.read_settled(stage, entry.attempts, place)?,
        };
        Ok(Some(Known { found, via, state }))
    }

    fn read_settled(&self, stage: Stage, attempts: u8, place: u64) -> Result<KnownState> {
        let mut record = self.reader.record(place)?;
        if let Record::Settled(settled) = &record
            && settled.outcome.is_final()
            && stage != Stage::Settled
        {
            // It did not count when the journal was read.
            look_again(&mut record);
            if let Record::Settled(settled) = &record
                && settled.outcome.is_final()
            {
                without_capture(&mut record);
            }
        }
        let Record::Settled(settled) = record else {
            return Err(self.reader.corrupt(place, "not an attempt at a URL"));
        };
        Ok(match settled.outcome {
            Outcome::Retry { not_before, .. } => {
                KnownState::Retry { not_before, attempts, last: Box::new(settled) }
            }
            _ => KnownState::Settled(Box::new(settled)),
        })
    }

    fn find(&self, host: &Host, fingerprint: Fingerprint) -> Option<u32> {
        let host = self.queues.find(host)?;
        self.sieve.find(Name { host, fingerprint })
    }

    /// The hosts in the order in which they were met, with their queues.
    pub fn hosts(&self) -> impl Iterator<Item = (&Host, HostQueue)> {
        self.queues.hosts().iter().map(|queue| {
            let figures = HostQueue {
                known: u64::from(queue.known),
                waiting: u64::from(queue.known - queue.settled),
                due: u64::from(queue.queued),
                next: queue.next(),
            };
            (&queue.host, figures)
        })
    }

    /// URLs that are known.
    pub fn known_urls(&self) -> u64 {
        u64::from(self.sieve.len())
    }

    /// URLs that are known and not settled: due, deferred or taken.
    pub fn queued(&self) -> u64 {
        self.known_urls() - self.queues.settled()
    }

    /// The highest serial number of a WARC file that any record named when the store was opened, whether or not the archive
    /// still has it: no new file may get that number or a lower one.
    pub fn archive_serial_max(&self) -> Option<u32> {
        self.archive_serial_max
    }

    /// URLs that limits kept out when the journal was read, as often as they were found.
    pub fn kept_out(&self) -> OverLimit {
        self.kept_out
    }

    /// How many bytes behind the last whole record were found when the store was opened.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Where those bytes are kept, if there were whole records among them: a damaged disk, or a power cut that took a write
    /// and spared a later one.
    pub fn damaged(&self) -> Option<&Path> {
        self.damaged.as_deref()
    }

    /// The memory that sieve and queues take, counted from what they reserve. Looks at every host.
    pub fn memory_bytes(&self) -> usize {
        self.sieve.memory_bytes() + self.queues.memory_bytes()
    }
}

/// What the records are folded into.
struct Fold<'a> {
    sieve: &'a mut Sieve,
    queues: &'a mut Queues,
    limits: StoreLimits,
}

/// What became of a found URL.
enum Verdict {
    New { host: u32 },
    Known,
    TooDeep,
    HostFull,
    Full,
}

impl Fold<'_> {
    fn admit(&mut self, place: u64, record: &Record) -> Admitted {
        let found = record.found();
        let (mut known, mut over) = (0, OverLimit::default());
        let mut new: Vec<(Host, u64)> = Vec::new();
        let mut position: HashMap<u32, usize> = HashMap::new();
        for (found, distance) in found.iter().zip(distances(record)) {
            let verdict = self.admit_one(place, distance, found);
            match verdict {
                Some(Verdict::New { host }) => {
                    let at = *position.entry(host).or_insert_with(|| {
                        new.push((self.queues.host(host).host.clone(), 0));
                        new.len() - 1
                    });
                    new[at].1 += 1;
                }
                Some(Verdict::Known) => known += 1,
                Some(Verdict::TooDeep) => over.depth += 1,
                Some(Verdict::HostFull) => over.host += 1,
                Some(Verdict::Full) => over.urls += 1,
                None => {}
            }
        }
        Admitted { new, known, over }
    }

    /// `None` for what is no URL: nobody can fetch it.
    fn admit_one(&mut self, place: u64, distance: u32, found: &Found) -> Option<Verdict> {
        let (host, fingerprint) = identify(&found.url)?;
        let number = self.queues.find(&host);
        if number.is_some_and(|host| self.sieve.find(Name { host, fingerprint }).is_some()) {
            return Some(Verdict::Known);
        }
        if found.depth > self.limits.max_depth {
            return Some(Verdict::TooDeep);
        }
        let host_known = number.map_or(0, |number| u64::from(self.queues.host(number).known));
        if host_known >= self.limits.max_host_pages {
            return Some(Verdict::HostFull);
        }
        let urls_max = self.limits.max_urls.min(u64::from(NONE - 1));
        if u64::from(self.sieve.len()) >= urls_max {
            return Some(Verdict::Full);
        }
        let number = number.unwrap_or_else(|| self.queues.find_or_add(host));
        let id = self.insert(Entry::new(Name { host: number, fingerprint }, place, distance));
        self.queues.push(self.sieve, id, found.depth);
        Some(Verdict::New { host: number })
    }

    fn settle(&mut self, place: u64, settled: &Settled) {
        let Some((host, fingerprint)) = identify(&settled.url) else { return };
        let name = Name { host: self.queues.find_or_add(host), fingerprint };
        // It was admitted once, so it is known even if today's limits would keep it out.
        let id = match self.sieve.find(name) {
            Some(id) => id,
            None => self.insert(Entry::new(name, place, 0)),
        };
        let entry = self.sieve.entry_mut(id);
        entry.set_settled_place(place);
        entry.attempts = settled.attempts;
        match settled.outcome {
            Outcome::Retry { not_before, .. } => self.queues.defer(self.sieve, id, not_before),
            _ => self.queues.settle(self.sieve, id),
        }
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        let id = self.sieve.insert(entry);
        self.queues.add(self.sieve, id);
        id
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
fn look_again(record: &mut Record) {
    if let Record::Settled(settled) = record
        && let Outcome::Failed { failure: failure @ Failure::PrivateAddress, status } = settled.outcome
    {
        settled.outcome = Outcome::Retry { failure, status, not_before: settled.at };
    }
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
