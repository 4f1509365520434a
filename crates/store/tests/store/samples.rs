//! Records to write, and ways to open a store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nephila_core::record::{Found, How, LeftOut, Outcome, PageFlags, Pointer, Record, Settled};
use nephila_core::time::Wall;
use nephila_core::url::{Host, Url};
use nephila_disk::Disk;
use nephila_store::{Journal, Result, Store, StoreLimits};

pub(crate) const DIR: &str = "/crawl";
pub(crate) const JOURNAL: &str = "/crawl/journal";
pub(crate) const NO_LIMITS: StoreLimits =
    StoreLimits { max_depth: u16::MAX, max_host_pages: u64::MAX, max_urls: u64::MAX };

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
        attempts: 1,
        asked: true,
        at: Wall(1_000),
        took: Duration::from_millis(5),
        bytes: 12_345,
        outcome,
        capture: None,
        flags: PageFlags::default(),
        found: Vec::new(),
        left_out: LeftOut { scope: 200, traps: 3 },
    }
}

pub(crate) fn pointer(file: u32) -> Pointer {
    Pointer { shard: 0, file, offset: 100, length: 50 }
}

/// A store, its journal, and the records that were read when it was opened.
pub(crate) type Opened = (Store, Journal, Vec<(u64, Record)>);

/// Opens a store whose archive has everything.
pub(crate) fn open(disk: Arc<dyn Disk>, limits: StoreLimits) -> Result<Opened> {
    let mut records = Vec::new();
    let (store, journal) = Store::open(disk, Path::new(DIR), limits, &|_| true, &mut |place, record| {
        records.push((place, record.clone()));
    })?;
    Ok((store, journal, records))
}

/// Writes a record and folds it, as an agent would.
pub(crate) fn write(
    store: &mut Store,
    journal: &mut Journal,
    record: &Record,
) -> nephila_core::agent::Admitted {
    let place = journal.append(record).unwrap();
    journal.flush().unwrap();
    if let Record::Settled(settled) = record {
        store.settle(place, settled);
    }
    store.admit(place, record)
}
