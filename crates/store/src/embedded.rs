//! The store that an agent has beside it, in its crawl's directory: the reading half, which folds what the journal holds into
//! sieve and queues ([`Frontier`]). Snapshots, and what a journal is read for at a start, are this store's own; all else it
//! does as every [`Store`].

mod others;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use nephila_core::agent::{Admitted, Cursor, Due, Kept, Stored, StoredHost, Taken, Visited};
use nephila_core::frontier::HostMemo;
use nephila_core::limits::MOVED_URLS_MAX;
use nephila_core::record::{Failure, Found, How, Outcome, Pointer, Record, Settled};
use nephila_core::settings::UrlOrder;
use nephila_core::site::{AgentId, Moved, Partitions};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, Url, identify};
use nephila_disk::Disk;

use crate::frontier::{Frontier, FrontierOptions, Progress, Range, SnapshotDone, SnapshotJob};
use crate::guarded::Guarded;
use crate::history;
use crate::journal::{Journal, Records, SEGMENT_BYTES, decode, shorten};
use crate::log::{self, Log};
use crate::recent::{self, Recent};
use crate::{Cash, Error, Exported, Known, KnownState, OwnStore, PlacedRecord, Result, Store, StoreLimits};

/// The directory of the store in a crawl's directory.
const DIR: &str = "store";
/// The journal of versions before this one.
const OLD_JOURNAL: &str = "journal";

/// Who is told what the store finds when it is opened.
pub trait Reader {
    /// What its owner gave to the last snapshot, if there is one. True: the records before it have to be looked at all the same,
    /// because what they say may not hold any more. `None`: it makes no sense.
    fn memo(&mut self, memo: &[u8]) -> Option<bool> {
        let _ = memo;
        Some(false)
    }

    /// Whether the archive has a capture.
    fn holds(&mut self, pointer: &Pointer) -> bool {
        let _ = pointer;
        true
    }

    /// Whether what failed for this is to be tried again.
    fn forgives(&self, failure: Failure) -> bool {
        let _ = failure;
        false
    }

    /// The partitions whose URLs were to be admitted when the record was written that is replayed next; `None` for all.
    fn open(&self) -> Option<&Partitions> {
        None
    }

    /// A record that the memo does not cover. `kept` says what is kept of a host.
    fn replay(&mut self, place: u64, record: &Record, kept: &mut Kept<'_>) {
        let _ = (place, record, kept);
    }

    /// A record that the memo covers, as it counts now; `was` is what it said, if that does not count any more.
    fn look_back(&mut self, place: u64, record: &Record, was: Option<&Settled>, kept: &mut Kept<'_>) {
        let _ = (place, record, was, kept);
    }
}

/// Nobody.
impl Reader for () {}

/// The reading half of the store.
pub struct EmbeddedStore {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    frontier: Guarded<Frontier>,
    records: Rc<Records>,
    order: UrlOrder,
    recent: Recent,
    torn_bytes: u64,
    damaged: bool,
    /// The figures of these hosts are right only after everything of them is decided.
    uncertain: BTreeSet<Host>,
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

impl EmbeddedStore {
    /// Whether there is a store in `dir`. One whose making was interrupted is none: before it has been made nothing is
    /// written anywhere.
    pub fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool> {
        refuse_old(disk, dir)?;
        log::exists(disk, &dir.join(DIR))
    }

    /// Opens the crawl in `dir`, or starts one. What follows the first record that is not whole is cut off, and kept beside
    /// the journal if it is more than a write that was not finished ([`EmbeddedStore::is_damaged`]). A record whose capture is
    /// not in the archive is folded and passed on as [`without_capture`] says.
    ///
    /// The caller makes sure that nobody else writes to the directory.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: FrontierOptions,
        reader: &mut dyn Reader,
    ) -> Result<(EmbeddedStore, Journal)> {
        refuse_old(&*disk, dir)?;
        let dir = dir.join(DIR);
        let records = Rc::new(Records::new(Arc::clone(&disk), &dir));
        let (frontier, memo) =
            Frontier::open(Arc::clone(&disk), &dir, options, Box::new(Rc::clone(&records)))?;
        let mut store = EmbeddedStore::new(disk, dir, frontier, records, &options);
        let (from, disk, dir) = store.look_back_or_not(&memo, reader)?;
        let needed = store.frontier.place();
        let log = Log::open_to(&disk, &dir, (from, needed), SEGMENT_BYTES, &mut |place, payload| {
            store.read_back(place, payload, reader)
        })?;
        store.frontier.change(|frontier| {
            frontier.advance(log.end());
            Ok(())
        })?;
        (store.torn_bytes, store.damaged) = (log.torn_bytes(), log.is_damaged());
        for host in std::mem::take(&mut store.uncertain) {
            store.frontier.change(|frontier| frontier.decide_host(&host))?;
        }
        // Whoever was told before the process ended is told again by those who read the journal again.
        store.frontier.change(|frontier| {
            frontier.forget_to_tell();
            Ok(())
        })?;
        Ok((store, Journal::new(log)))
    }

    /// Opens the crawl in `dir` to look at it while it is not running. Nothing is written or cut; the state is that of the
    /// last whole record.
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: FrontierOptions,
        reader: &mut dyn Reader,
    ) -> Result<EmbeddedStore> {
        if !EmbeddedStore::exists(&*disk, dir)? {
            return Err(Error::io("open", &dir.join(DIR))(std::io::ErrorKind::NotFound.into()));
        }
        let dir = dir.join(DIR);
        let records = Rc::new(Records::new(Arc::clone(&disk), &dir));
        let (frontier, memo) =
            Frontier::open_read_only(Arc::clone(&disk), &dir, options, Box::new(Rc::clone(&records)))?;
        let mut store = EmbeddedStore::new(disk, dir, frontier, records, &options);
        let (from, disk, dir) = store.look_back_or_not(&memo, reader)?;
        let needed = store.frontier.place();
        store.torn_bytes = log::read_only_to(&*disk, &dir, (from, needed), &mut |place, payload| {
            store.read_back(place, payload, reader)
        })?;
        store.frontier.change(Frontier::decide)?;
        Ok(store)
    }

    /// Gives the reader its memo, and then either all old records or none. Says from where on the journal is to be read.
    fn look_back_or_not(
        &mut self,
        memo: &[u8],
        reader: &mut dyn Reader,
    ) -> Result<(u64, Arc<dyn Disk>, PathBuf)> {
        let (disk, dir) = (Arc::clone(&self.disk), self.dir.clone());
        let from = self.frontier.place();
        let senseless = || Error::Corrupt {
            path: dir.clone(),
            place: from,
            what: "the memo of the snapshot makes no sense",
        };
        let looks_back = from > 0 && reader.memo(memo).ok_or_else(senseless)?;
        if !looks_back {
            return Ok((from, disk, dir));
        }
        let first = log::first_place(&*disk, &dir)?;
        history::read_all(&*disk, &dir, first.unwrap_or(u64::MAX), &mut |place, payload| {
            self.read_back(place, payload, reader)
        })?;
        Ok((first.unwrap_or(from), disk, dir))
    }

    fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        frontier: Frontier,
        records: Rc<Records>,
        options: &FrontierOptions,
    ) -> EmbeddedStore {
        EmbeddedStore {
            dir,
            disk,
            frontier: Guarded::new(frontier),
            records,
            order: options.order,
            recent: Recent::new(options.secret),
            torn_bytes: 0,
            damaged: false,
            uncertain: BTreeSet::new(),
        }
    }

    /// Takes in a record of an earlier run.
    fn read_back(&mut self, place: u64, payload: &[u8], reader: &mut dyn Reader) -> Result<()> {
        let (mut record, whose) = decode(place, payload)?.whose();
        let mut was = None;
        if let Some(pointer) = capture_of(&record).filter(|_| whose.is_none())
            && !reader.holds(&pointer)
        {
            was = without_capture(&mut record);
        }
        was = was.or_else(|| forgive(&mut record, &|failure| reader.forgives(failure)));
        let covered = place < self.frontier.place();
        match (&record, &was) {
            (Record::Settled(settled), _) if !covered => {
                let uncertain = self.frontier.change(|frontier| frontier.settle_again(place, settled))?;
                self.uncertain
                    .extend(uncertain.then(|| identify(&settled.url)).flatten().map(|(host, _)| host));
            }
            (Record::Settled(settled), Some(_))
                if !self.frontier.change(|frontier| frontier.unsettle(place, settled))? =>
            {
                was = None
            }
            _ => {}
        }
        if let (Record::Released { tokens, since, .. }, false, UrlOrder::Cash) =
            (&record, covered, self.order)
        {
            self.give_what_leaves(tokens.iter().map(|(partition, _)| *partition).collect(), *since, place)?;
        }
        if !covered {
            self.fold(place, &record, reader.open(), false)?;
        }
        let mut failed = None;
        let frontier = &mut self.frontier;
        let mut kept = |host: &Host| {
            frontier.change(|frontier| frontier.kept(host)).unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        };
        match covered {
            true => reader.look_back(place, &record, was.as_ref(), &mut kept),
            false => reader.replay(place, &record, &mut kept),
        }
        failed.map_or(Ok(()), Err)
    }

    /// Takes in what a record says to sieve and queues, other than how an attempt ended.
    fn fold(
        &mut self,
        place: u64,
        record: &Record,
        open: Option<&Partitions>,
        again: bool,
    ) -> Result<Admitted> {
        let is_returned = |found: &Found| matches!(found.how, How::Returned { .. });
        let moves = match record {
            Record::Moved { .. } | Record::Released { .. } => true,
            Record::Arrived(arrived) => arrived.found.iter().any(is_returned),
            _ => false,
        };
        if !moves {
            return self.frontier.change(|frontier| match again {
                true => frontier.admit_again(place, record, open),
                false => frontier.admit(place, record, open),
            });
        }
        // What was decided before is in the figures already, and nobody has been told.
        let untold = self.frontier.decided_new();
        let before = self.stored();
        let decided = self.frontier.change(|frontier| {
            match record {
                Record::Moved { moved, .. } => frontier.import(place, moved, open)?,
                Record::Released { tokens, .. } => {
                    let ranges: Vec<Range> = tokens.iter().map(|(at, _)| Range::Partition(*at)).collect();
                    frontier.forget(&ranges)?;
                }
                // What was another's until now is known already, and queued.
                _ => return frontier.admit_returned(place, record, open, again),
            }
            Ok(frontier.decided())
        })?;
        let after = self.stored();
        let sum = |hosts: &[(Host, u64)]| hosts.iter().map(|(_, count)| count).sum::<u64>();
        let (new, again) = (sum(&decided.new) - untold.0, sum(&decided.again) - untold.1);
        let by = |before: u64, after: u64, said: u64| after as i64 - before as i64 - said as i64;
        let known = by(before.known, after.known, new);
        Ok(Admitted { moved: (known, by(before.queued, after.queued, new + again)), ..decided })
    }

    /// By cash, a known URL is given something all the same, once by each page. But seeds are given theirs once.
    fn prune_given(&mut self, record: &mut Record) {
        if let Record::Seeds(found) = record {
            // One that cannot be looked up is written down: what follows says what is wrong.
            let mut known = |text: &str| self.frontier.change(|frontier| frontier.has_account(text));
            found.retain(|found| !matches!(known(&found.url), Ok(true)));
        }
        recent::drop_repeated(record);
    }

    /// Where the history ends: from here on the records have all that they found.
    pub fn history_end(&self) -> Result<u64> {
        Ok(log::first_place(&*self.disk, &self.dir)?.unwrap_or_default())
    }

    /// What the record at a place says of a URL that was settled here, and has left since; and which other agent has archived the
    /// answer, if one has.
    pub fn had(&self, place: u64, url: &Url) -> Result<(Known, Option<AgentId>)> {
        self.look_back(place, Fingerprint::of(url), true)
    }

    /// What a record says of a URL that it is the last attempt at, and which other agent has archived the answer, if one has.
    fn look_back(
        &self,
        place: u64,
        fingerprint: Fingerprint,
        done: bool,
    ) -> Result<(Known, Option<AgentId>)> {
        let (mut record, whose) = self.record_of(place)?;
        if let Record::Moved { from, moved, .. } = &record {
            return Ok((self.look_elsewhere(place, *from, moved, fingerprint)?, None));
        }
        if let Record::Arrived(arrived) = &record {
            // It was given to another site, and returned.
            let is_it = |found: &&Found| identify(&found.url).is_some_and(|(_, other)| other == fingerprint);
            // What old records have found is not kept.
            let unknown = Found { url: String::new(), depth: 0, how: How::Link.returned(0), redirects: 0 };
            let found = arrived.found.iter().find(is_it).cloned().unwrap_or(unknown);
            let via = self.records.page(place, &found.url);
            return Ok((Known { found, via, state: KnownState::Queued, cash: None }, None));
        }
        if let Record::Settled(settled) = &record
            && settled.outcome.is_final()
            && !done
        {
            // It did not count when the journal was read: its capture was lost, or else it was forgiven.
            match settled.capture {
                Some(_) => without_capture(&mut record),
                None => forgive(&mut record, &|_| true),
            };
        }
        let Record::Settled(settled) = record else {
            return Err(Error::Corrupt { path: self.dir.clone(), place, what: "not an attempt at a URL" });
        };
        let (depth, how) = (settled.depth, settled.how);
        let found = Found { url: settled.url.clone(), depth, how, redirects: 0 };
        let via = self.records.page(settled.found_in, &settled.url);
        let attempts = settled.attempts;
        let state = match settled.outcome {
            Outcome::Retry { not_before, .. } => {
                KnownState::Retry { not_before, attempts, last: Some(Box::new(settled)) }
            }
            _ => KnownState::Settled(Box::new(settled)),
        };
        Ok((Known { found, via, state, cash: None }, whose))
    }

    fn silent(&self, place: u64) -> Error {
        Error::Corrupt { path: self.dir.clone(), place, what: "it does not speak of the URL" }
    }

    /// What is known of a URL that another agent had before.
    fn look_elsewhere(
        &self,
        place: u64,
        agent: AgentId,
        moved: &Moved,
        fingerprint: Fingerprint,
    ) -> Result<Known> {
        let mut seen = moved.hosts.iter().flat_map(|host| &host.seen);
        if let Some(seen) = seen.find(|seen| seen.fingerprint == fingerprint) {
            let found = Found { url: String::new(), depth: 0, how: How::Link, redirects: 0 };
            let state = KnownState::Elsewhere { agent, place: seen.place };
            return Ok(Known { found, via: None, state, cash: None });
        }
        let is_it = |found: &Found| identify(&found.url).is_some_and(|(_, other)| other == fingerprint);
        let index = moved.found.iter().position(is_it);
        let waiting = index.and_then(|index| Some((moved.found.get(index)?, moved.waiting.get(index)?)));
        let (found, waiting) = waiting.ok_or_else(|| self.silent(place))?;
        let state = match waiting.not_before {
            Some(not_before) => KnownState::Retry { not_before, attempts: waiting.attempts, last: None },
            None => KnownState::Queued,
        };
        Ok(Known { found: found.clone(), via: waiting.via.clone(), state, cash: None })
    }

    /// All that is known of a URL, and which other agent has archived the last answer to it, if one has.
    pub fn find(&mut self, url: &Url) -> Result<Option<(Known, Option<AgentId>)>> {
        let looked_up = self.frontier.change(|frontier| frontier.look_up(url))?;
        let Some((progress, place)) = looked_up else { return Ok(None) };
        let fingerprint = Fingerprint::of(url);
        let queued = |state: KnownState, depth: u16| {
            let found = self.records.found(place, fingerprint);
            let found = found.unwrap_or(Found { url: url.to_string(), depth, how: How::Link, redirects: 0 });
            let via = self.records.page(place, &found.url);
            (Known { found, via, state, cash: None }, None)
        };
        let (known, whose) = match progress {
            Progress::Queued { depth } => queued(KnownState::Queued, depth),
            Progress::Taken { depth } => queued(KnownState::Taken, depth),
            Progress::Tried { taken } => {
                let (known, whose) = self.look_back(place, fingerprint, false)?;
                if taken { (Known { state: KnownState::Taken, ..known }, None) } else { (known, whose) }
            }
            Progress::Settled => self.look_back(place, fingerprint, true)?,
        };
        let cash = self.frontier.change(|frontier| frontier.cash_of(url))?;
        Ok(Some((Known { cash, ..known }, whose)))
    }

    /// The record at a place, and which other agent has archived what it is about, if one has.
    pub fn record_of(&self, place: u64) -> Result<(Record, Option<AgentId>)> {
        Ok(self.records.read(place)?.whose())
    }

    /// The page that a URL was found on, by the record at a place.
    pub(crate) fn page(&self, place: u64, url: &str) -> Option<String> {
        self.records.page(place, url)
    }

    /// Passes on every record from a place on; old ones as they are kept, and these are passed on only if all are wanted.
    pub(crate) fn each_record(
        &self,
        from: u64,
        each: &mut dyn FnMut(u64, Record) -> Result<()>,
    ) -> Result<()> {
        let mut read = |place: u64, payload: &[u8]| each(place, decode(place, payload)?);
        let first = log::first_place(&*self.disk, &self.dir)?;
        if from == 0 {
            history::read_all(&*self.disk, &self.dir, first.unwrap_or(u64::MAX), &mut read)?;
        }
        let from = from.max(first.unwrap_or(0));
        log::read_only_to(&*self.disk, &self.dir, (from, 0), &mut read).map(drop)
    }

    /// Passes on what limits keep out, with the places of the records that found it.
    pub(crate) fn each_kept_out(&self, each: &mut dyn FnMut(Found, u64) -> Result<()>) -> Result<()> {
        self.frontier.each_kept_out(each)
    }

    /// Stops admission at other limits from now on, whatever was admitted before.
    pub(crate) fn set_limits(&mut self, limits: StoreLimits) -> Result<()> {
        self.frontier.change(|frontier| frontier.set_limits(limits))
    }

    /// The place of the first record that the last snapshot does not cover, if nothing was written since it was opened.
    pub(crate) fn folded_to(&self) -> u64 {
        self.frontier.place()
    }

    /// A place behind its last record: as long as this is the same, nothing was written.
    pub fn written_to(&self) -> Result<u64> {
        let mut end = self.folded_to();
        self.each_record(end, &mut |place, _| {
            end = place + 1;
            Ok(())
        })?;
        Ok(end)
    }

    /// Begins to write down what is in memory, so that opening need not fold all of the journal again, and `memo` for the
    /// reader of that moment. Everything that was appended to the journal before `place` must be synced and folded, and be
    /// covered by the memo. What is returned does the work; [`EmbeddedStore::end_snapshot`] follows.
    /// Records from `keep_from` on stay as they are, whatever the store itself needs of them.
    pub fn begin_snapshot(&mut self, place: u64, memo: &[u8], keep_from: u64) -> Result<StoreJob> {
        let mut snapshot = self.frontier.change(|frontier| {
            frontier.advance(place);
            frontier.begin_snapshot(memo)
        })?;
        snapshot.needed = snapshot.needed.min(keep_from);
        Ok(StoreJob { disk: Arc::clone(&self.disk), dir: self.dir.clone(), snapshot })
    }

    /// Has the next snapshot give back as much room on the disk as it can. Takes its time.
    pub fn tidy(&mut self) -> Result<()> {
        self.frontier.change(Frontier::tidy)
    }

    /// Takes note that a snapshot is durable.
    pub fn end_snapshot(&mut self, done: SnapshotDone) -> Result<()> {
        self.frontier.change(|frontier| frontier.end_snapshot(done)).map(drop)
    }

    /// Whether an operation that changes what is in memory has failed. All that follow are then refused, snapshots as well: the
    /// next opening begins with what was durable.
    pub fn has_failed(&self) -> bool {
        self.frontier.has_failed()
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

impl Store for EmbeddedStore {
    fn prune(&mut self, record: &mut Record) {
        if self.order == UrlOrder::Cash {
            return self.prune_given(record);
        }
        if matches!(record, Record::Members(_)) {
            self.recent.clear();
        }
        self.recent.prune(record);
    }

    fn admit(&mut self, place: u64, record: &Record, open: Option<&Partitions>) -> Result<Admitted> {
        if self.order == UrlOrder::BreadthFirst {
            for found in record.found() {
                self.recent.add(self.recent.print(&found.url), found.depth);
            }
        }
        self.fold(place, record, open, false)
    }

    fn decide(&mut self) -> Result<Admitted> {
        self.frontier.change(Frontier::decide)
    }

    fn decide_host(&mut self, host: &Host) -> Result<Admitted> {
        self.frontier.change(|frontier| frontier.decide_host(host))
    }

    fn settle(&mut self, place: u64, settled: &Settled) -> Result<Admitted> {
        let (is_first, mut decided) =
            self.frontier.change(|frontier| Ok((frontier.settle(place, settled)?, frontier.make_room()?)))?;
        // Whoever asked for it counts it off again.
        decided.moved.1 += i64::from(!is_first && settled.outcome.is_final());
        Ok(decided)
    }

    fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken> {
        let mut taken = self.frontier.change(|frontier| frontier.take(host, max, fresh_first, now))?;
        for due in &mut taken.due {
            due.via = self.records.page(due.found_in, due.url.as_str());
        }
        Ok(taken)
    }

    fn put_back(&mut self, host: &Host, due: &[Due]) -> Result<()> {
        self.frontier.change(|frontier| frontier.put_back(host, due))
    }

    fn keep(&mut self, host: &Host, memo: Option<&HostMemo>, away_until: Wall) -> Result<()> {
        self.frontier.change(|frontier| frontier.keep(host, memo, away_until))
    }

    fn visit(&mut self, now: Wall, max: usize) -> Result<Visited> {
        self.frontier.change(|frontier| frontier.visit(now, max))
    }

    fn record(&self, place: u64) -> Result<Record> {
        Ok(self.record_of(place)?.0)
    }

    fn look_up(&mut self, url: &Url) -> Result<Option<Known>> {
        Ok(self.find(url)?.map(|(known, _)| known))
    }

    fn host(&mut self, host: &Host) -> Result<Option<StoredHost>> {
        let mut found = None;
        let range = Range::Host(host.clone());
        self.frontier.change(|frontier| frontier.hosts(&range, &mut |stored| found = Some(stored)))?;
        Ok(found)
    }

    fn hosts(&mut self, each: &mut dyn FnMut(StoredHost)) -> Result<()> {
        self.frontier.change(|frontier| frontier.hosts(&Range::All, each))
    }

    fn stored(&self) -> Stored {
        Stored {
            known: self.frontier.known_urls(),
            queued: self.frontier.known_urls().saturating_sub(self.frontier.settled_urls()),
            hosts: self.frontier.hosts_count(),
            undecided: self.frontier.undecided(),
            kept_out: self.frontier.kept_out(),
        }
    }
}

impl OwnStore for EmbeddedStore {
    fn export(&mut self, partitions: &[u16], from: Option<&Cursor>) -> Result<Exported> {
        let records = Rc::clone(&self.records);
        let ranges: Vec<Range> = partitions.iter().copied().map(Range::Partition).collect();
        let page = |place, url: &str| records.page(place, url);
        self.frontier.change(|frontier| {
            let (moved, next) = frontier.export(&ranges, from, MOVED_URLS_MAX, &page)?;
            Ok(Exported { moved, next, decided: frontier.decided() })
        })
    }

    fn records(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, u64)> {
        self.records.range(from, until)
    }

    fn cash(&mut self) -> Result<Cash> {
        self.frontier.change(Frontier::cash)
    }

    fn kept_records(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, Option<u64>)> {
        self.records.kept(from, until)
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

/// Where the answer that a record is about is archived.
pub(crate) fn capture_of(record: &Record) -> Option<Pointer> {
    match record {
        Record::Settled(settled) => settled.capture,
        Record::Robots(robots) => robots.capture,
        _ => None,
    }
}

/// What failed for a reason that may be gone is due again. Gives back what it was.
pub(crate) fn forgive(record: &mut Record, forgives: &dyn Fn(Failure) -> bool) -> Option<Settled> {
    let Record::Settled(settled) = record else { return None };
    let Outcome::Failed { failure, status } = settled.outcome else { return None };
    forgives(failure).then(|| {
        let not_before = settled.at;
        let outcome = Outcome::Retry { failure, status, not_before };
        let was = std::mem::replace(&mut settled.outcome, outcome);
        Settled { outcome: was, found: Vec::new(), ..settled.clone() }
    })
}

/// What a record means when its capture is not in the archive. A page counts only with its capture, so the attempt at it
/// counts as not made and the URL is due again; what it found stays found. An attempt that was to be repeated anyway, and
/// the rules of a robots.txt, stay as they are: they and the waits that they impose are in the record itself. Gives back what
/// does not count any more.
pub fn without_capture(record: &mut Record) -> Option<Settled> {
    match record {
        Record::Settled(settled) => {
            settled.capture = None;
            if !settled.outcome.is_final() {
                return None;
            }
            let was = Settled { found: Vec::new(), ..settled.clone() };
            settled.attempts = settled.attempts.saturating_sub(1);
            settled.outcome =
                Outcome::Retry { failure: Failure::NotTried, status: None, not_before: settled.at };
            Some(was)
        }
        Record::Robots(robots) => {
            robots.capture = None;
            None
        }
        _ => None,
    }
}
