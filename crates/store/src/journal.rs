//! The journal: the records of a crawl, written once and in order, in a [log](crate::log); and reading them back.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use nephila_core::record::{Found, How, Record};
use nephila_core::url::{Fingerprint, identify};
use nephila_disk::Disk;

use crate::frontier::Texts;
use crate::log::{Log, LogReader};
use crate::{Error, Result};

/// How long a segment gets.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 20;

/// The writing half of the store. Promises what [`Log`] does.
pub struct Journal(Log);

impl Journal {
    pub(crate) fn new(log: Log) -> Journal {
        Journal(log)
    }

    /// Adds a record to what the next flush writes and says at which place it will be. An error means that it was not
    /// added.
    pub fn append(&mut self, record: &Record) -> Result<u64> {
        self.0.append(|out| postcard::to_io(record, out).map(drop).map_err(Error::Encode))
    }

    /// Hands everything to the kernel. After an error the same can be tried again.
    pub fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }

    /// Flushes, and makes everything durable.
    pub fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }

    /// The place of the next record.
    pub fn end(&self) -> u64 {
        self.0.end()
    }
}

/// Reads records back, at their places.
pub(crate) struct Records {
    log: LogReader,
    /// The record that was last asked for, and its place: a long one is asked for each of its URLs.
    last: RefCell<Option<(u64, Record)>>,
}

impl Records {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Records {
        Records { log: LogReader::new(disk, dir), last: RefCell::default() }
    }

    /// The record at a place; of an old one what is kept of it.
    pub(crate) fn read(&self, place: u64) -> Result<Record> {
        let mut payload = Vec::new();
        self.log.read(place, &mut payload)?;
        decode(place, &payload)
    }

    /// The page that the record at a place is about.
    pub(crate) fn page(&self, place: u64) -> Option<String> {
        let page = |record: &Record| match record {
            Record::Settled(settled) => Some(settled.url.clone()),
            Record::Robots(robots) => Some(robots.url.clone()),
            _ => None,
        };
        self.ask(place, page).ok()?
    }

    /// Asks the record at a place, which is read once if it is asked again and again.
    fn ask<T>(&self, place: u64, question: impl FnOnce(&Record) -> T) -> Result<T> {
        let mut last = self.last.borrow_mut();
        if let Some((_, record)) = last.as_ref().filter(|(other, _)| *other == place) {
            return Ok(question(record));
        }
        let (_, record) = last.insert((place, self.read(place)?));
        Ok(question(record))
    }

    /// How a URL was found, if the record that it was found in still says so.
    pub(crate) fn found(&self, place: u64, fingerprint: Fingerprint) -> Option<Found> {
        let is_it = |found: &&Found| identify(&found.url).is_some_and(|(_, other)| other == fingerprint);
        let nearest =
            |record: &Record| record.found().iter().filter(is_it).min_by_key(|found| found.depth).cloned();
        self.ask(place, nearest).ok()?
    }
}

impl Texts for Records {
    fn found(&self, place: u64, index: usize) -> Result<Found> {
        let missing = || Error::Corrupt { path: "journal".into(), place, what: "it found fewer URLs" };
        self.ask(place, |record| record.found().get(index).cloned())?.ok_or_else(missing)
    }
}

pub(crate) fn decode(place: u64, payload: &[u8]) -> Result<Record> {
    postcard::from_bytes(payload).map_err(|_| Error::Corrupt {
        path: "journal".into(),
        place,
        what: "the checksum is right and the record is unknown",
    })
}

/// What is kept of a record when nobody folds it any more: all but its links. What a seed leads to stays, because the scope
/// follows from it.
pub(crate) fn shorten(payload: &[u8], out: &mut Vec<u8>) {
    let Ok(mut record) = postcard::from_bytes::<Record>(payload) else { return };
    match &mut record {
        Record::Seeds(found) => found.clear(),
        Record::Settled(settled) => settled.found.retain(|found| found.how == How::Seed),
        Record::Robots(robots) => robots.found.clear(),
        _ => {}
    }
    // Writing to memory does not fail.
    let _ = postcard::to_io(&record, out);
}
