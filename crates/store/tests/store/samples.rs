//! Records to write, and ways to open a store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nephila_core::agent::{Admitted, Kept};
use nephila_core::record::{Failure, Found, How, LeftOut, Outcome, PageFlags, Pointer, Record, Settled};
use nephila_core::settings::UrlOrder;
use nephila_core::time::Wall;
use nephila_core::url::{Host, Url};
use nephila_disk::Disk;
use nephila_store::{EmbeddedStore, FrontierOptions, Journal, Reader, Result, Store, StoreLimits};

pub(crate) const DIR: &str = "/crawl";
pub(crate) const STORE: &str = "/crawl/store";
/// The first segment of the journal.
pub(crate) const JOURNAL: &str = "/crawl/store/journal-000000000000";
pub(crate) const NO_LIMITS: StoreLimits = StoreLimits::NONE;

/// Numbers by a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

pub(crate) fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

pub(crate) fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

pub(crate) fn found(url: &str, depth: u16) -> Found {
    Found { url: url.to_owned(), depth, how: How::Link, redirects: 0 }
}

pub(crate) fn seeds(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Record {
    Record::Seeds(urls.into_iter().map(|url| found(url.as_ref(), 0)).collect())
}

pub(crate) fn settled(url: &str, outcome: Outcome) -> Settled {
    Settled {
        url: url.to_owned(),
        depth: 0,
        how: How::Link,
        found_in: 0,
        attempts: 1,
        asked: true,
        at: Wall(1_000),
        took: Duration::from_millis(5),
        bytes: 12_345,
        outcome,
        capture: None,
        flags: PageFlags::default(),
        found: Vec::new(),
        left_out: LeftOut { scope: 200, traps: 3, outbox: 1 },
        spent: None,
    }
}

pub(crate) fn retry(not_before: u64) -> Outcome {
    Outcome::Retry { failure: Failure::Timeout, status: None, not_before: Wall(not_before) }
}

pub(crate) fn pointer(file: u32) -> Pointer {
    Pointer { shard: 0, file, offset: 100, length: 50 }
}

/// What is written down with every snapshot.
pub(crate) const MEMO: &[u8] = b"memo";

/// A store, its journal, and the records that were read when it was opened.
pub(crate) type Opened = (EmbeddedStore, Journal, Vec<(u64, Record)>);

/// Opens a store whose archive has everything.
pub(crate) fn open(disk: Arc<dyn Disk>, limits: StoreLimits) -> Result<Opened> {
    open_with(disk, FrontierOptions { limits, ..FrontierOptions::default() })
}

/// The same with other budgets.
pub(crate) fn open_with(disk: Arc<dyn Disk>, options: FrontierOptions) -> Result<Opened> {
    let mut told = Told { looks_back: true, ..Told::default() };
    let (store, journal) = EmbeddedStore::open(disk, Path::new(DIR), options, &mut told)?;
    Ok((store, journal, told.records))
}

/// Looks at a store whose archive has everything, and counts its records.
pub(crate) fn look(disk: Arc<dyn Disk>, limits: StoreLimits) -> Result<(EmbeddedStore, usize)> {
    let mut told = Told { looks_back: true, ..Told::default() };
    let options = FrontierOptions { limits, ..FrontierOptions::default() };
    let store = EmbeddedStore::open_read_only(disk, Path::new(DIR), options, &mut told)?;
    Ok((store, told.records.len()))
}

/// Somebody who writes down what he is told, and has an archive of which files are lost.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) lost_files: Vec<u32>,
    pub(crate) looks_back: bool,
    pub(crate) forgives: bool,
    pub(crate) memo: Option<Vec<u8>>,
    /// With their places, old ones included.
    pub(crate) records: Vec<(u64, Record)>,
    /// What does not count any more of what counted.
    pub(crate) taken_back: Vec<String>,
}

impl Reader for Told {
    fn memo(&mut self, memo: &[u8]) -> Option<bool> {
        self.memo = Some(memo.to_vec());
        Some(self.looks_back)
    }

    fn holds(&mut self, pointer: &Pointer) -> bool {
        !self.lost_files.contains(&pointer.file)
    }

    fn forgives(&self, failure: Failure) -> bool {
        self.forgives && failure == Failure::PrivateAddress
    }

    fn replay(&mut self, place: u64, record: &Record, _: &mut Kept<'_>) {
        self.records.push((place, record.clone()));
    }

    fn look_back(&mut self, place: u64, record: &Record, was: Option<&Settled>, _: &mut Kept<'_>) {
        self.records.push((place, record.clone()));
        self.taken_back.extend(was.map(|was| was.url.clone()));
    }
}

/// Writes a record and folds it, as an agent would.
pub(crate) fn write(store: &mut EmbeddedStore, journal: &mut Journal, record: &Record) -> Admitted {
    let place = journal.append(record).unwrap();
    journal.flush().unwrap();
    fold(store, place, record).unwrap()
}

/// Tells the store of a record that was written.
pub(crate) fn fold(store: &mut EmbeddedStore, place: u64, record: &Record) -> Result<Admitted> {
    let mut sum = Admitted::default();
    if let Record::Settled(settled) = record {
        sum = store.settle(place, settled)?;
    }
    add(&mut sum, store.admit(place, record, None)?);
    Ok(sum)
}

/// Writes a snapshot of everything that was written.
pub(crate) fn snapshot(store: &mut EmbeddedStore, journal: &mut Journal) -> Result<()> {
    journal.sync()?;
    let done = store.begin_snapshot(journal.end(), MEMO, u64::MAX)?.run()?;
    store.end_snapshot(done)
}

/// Budgets so small that everything overflows all the time.
pub(crate) fn small(random: &mut Random, limits: StoreLimits) -> FrontierOptions {
    FrontierOptions {
        limits,
        sieve_bytes_max: random.below(4_000) as usize,
        filter_bytes_max: [0, 200, 1 << 20][random.below(3) as usize],
        pending_bytes_max: random.below(2_000) as usize,
        hot_hosts_max: 1 + random.below(3) as usize,
        hot_bytes_max: random.below(10_000) as usize,
        block_urls_max: 1 + random.below(30) as usize,
        block_bytes_max: 1 + random.below(2_000) as usize,
        secret: random.below(5),
        order: UrlOrder::BreadthFirst,
        tell_again: 2,
        me: Default::default(),
        ledger_bytes_max: random.below(4_000) as usize,
    }
}

/// Writes a record, and says what came of all that it found.
pub(crate) fn write_decided(store: &mut EmbeddedStore, journal: &mut Journal, record: &Record) -> Admitted {
    let mut sum = write(store, journal, record);
    add(&mut sum, store.decide().unwrap());
    sum
}

/// Adds a later answer to an earlier one.
pub(crate) fn add(sum: &mut Admitted, more: Admitted) {
    if sum.new.is_empty() {
        sum.new = more.new;
    } else {
        more.new.into_iter().for_each(|new| add_new(&mut sum.new, new));
    }
    sum.known += more.known;
    sum.over.depth += more.over.depth;
    sum.over.host += more.over.host;
    sum.over.urls += more.over.urls;
    sum.undecided = more.undecided;
}

fn add_new(sum: &mut Vec<(Host, u64)>, (host, count): (Host, u64)) {
    match sum.iter_mut().find(|(other, _)| *other == host) {
        Some((_, sum)) => *sum += count,
        None => sum.push((host, count)),
    }
}
