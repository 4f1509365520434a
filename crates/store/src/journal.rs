//! The journal: the records of a crawl, written once and in order, in a [log](crate::log); and reading them back.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use nephila_core::cash::Gifts;
use nephila_core::record::{Found, How, Record};
use nephila_core::url::{Fingerprint, Host, Origin, identify};
use nephila_disk::Disk;
use serde::Deserialize;

use crate::frontier::Texts;
use crate::log::{self, Log};
use crate::{Error, LogReader, PlacedRecord, Result};

/// How long a segment gets.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 20;

/// How much of it is read at once.
const RANGE_BYTES: usize = 1 << 20;

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
    /// The page that was last asked for, and the place of its record: the URLs of a page are neighbours.
    page: RefCell<Option<(u64, Option<String>)>>,
}

/// How a [`Record`] begins, up to the page that it is about: what follows it is not looked at.
#[derive(Deserialize)]
enum Beginning {
    Seeds(()),
    Settled(String),
    Robots((Origin, String)),
}

impl Records {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Records {
        Records { log: LogReader::new(disk, dir), last: RefCell::default(), page: RefCell::default() }
    }

    /// The record at a place; of an old one what is kept of it.
    pub(crate) fn read(&self, place: u64) -> Result<Record> {
        let mut payload = Vec::new();
        self.log.read(place, &mut payload)?;
        decode(place, &payload)
    }

    /// The page that a URL was found on, by the record at a place.
    pub(crate) fn page(&self, place: u64, url: &str) -> Option<String> {
        if let Some((_, page)) = self.page.borrow().as_ref().filter(|(other, _)| *other == place) {
            return page.clone();
        }
        let mut payload = Vec::new();
        self.log.read(place, &mut payload).ok()?;
        match postcard::from_bytes(&payload) {
            Ok(beginning) => {
                let page = match beginning {
                    Beginning::Settled(url) | Beginning::Robots((_, url)) => Some(url),
                    Beginning::Seeds(()) => None,
                };
                self.page.replace(Some((place, page.clone())));
                page
            }
            // Other agents found it, on different pages.
            Err(_) => {
                let of = |record: &Record| {
                    let index = record.found().iter().position(|found| found.url == url)?;
                    record.page(index).map(str::to_owned)
                };
                self.ask(place, of).ok()?
            }
        }
    }

    /// Records from one place to another that found URLs, some of them at least, and the place behind them.
    pub(crate) fn range(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, u64)> {
        let (mut records, mut place) = (Vec::new(), from);
        let (mut payload, mut bytes) = (Vec::new(), 0);
        while place <= until && bytes < RANGE_BYTES {
            self.log.read(place, &mut payload)?;
            let record = decode(place, &payload)?;
            if !record.found().is_empty() {
                records.push((place, Box::new(record)));
            }
            bytes += payload.len();
            place += log::frame_bytes(&payload);
        }
        Ok((records, place))
    }

    /// What is kept of all records from one place to another, of some of them at least, and the place behind these unless that is
    /// all.
    pub(crate) fn kept(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, Option<u64>)> {
        let mut records = Vec::new();
        let behind = self.log.read_on(from, until, RANGE_BYTES, &mut |place, payload| {
            records.push((place, Box::new(decode(place, payload)?)));
            Ok(())
        })?;
        Ok((records, Some(behind).filter(|behind| *behind <= until)))
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

    fn page(&self, place: u64, url: &str) -> Option<String> {
        Records::page(self, place, url)
    }

    fn gift(&self, place: u64, index: usize) -> Result<Option<u64>> {
        self.ask(place, |record| {
            if matches!(record, Record::Arrived(_) | Record::Moved { .. }) {
                return None;
            }
            let host = |(index, found): (usize, &Found)| Some((index, identify(&found.url)?.0));
            let hosts: Vec<(usize, Host)> = record.found().iter().enumerate().filter_map(host).collect();
            let gifts = Gifts::of(record, hosts.iter().map(|(_, host)| host));
            let at = hosts.iter().position(|(other, _)| *other == index);
            Some(at.map_or(0, |at| gifts.to(&hosts[at].1, at == 0)))
        })
    }
}

pub(crate) fn decode(place: u64, payload: &[u8]) -> Result<Record> {
    postcard::from_bytes(payload).map_err(|_| Error::Corrupt {
        path: "journal".into(),
        place,
        what: "the checksum is right and the record is unknown",
    })
}

/// What is kept of a record when nobody folds it any more: all but its links. Seeds and what they lead to stay: the scope follows
/// from them, and of what an agent knew that is gone they may be what is left.
pub(crate) fn shorten(payload: &[u8], out: &mut Vec<u8>) {
    let Ok(mut record) = postcard::from_bytes::<Record>(payload) else { return };
    match &mut record {
        Record::Settled(settled) => settled.found.retain(|found| found.how == How::Seed),
        Record::Robots(robots) => robots.found.clear(),
        _ => {}
    }
    // Writing to memory does not fail.
    let _ = postcard::to_io(&record, out);
}

#[cfg(test)]
mod tests {
    use nephila_core::record::{Outcome, RobotsOutcome, RobotsRecord, Settled};
    use nephila_core::time::Wall;
    use nephila_core::url::Url;
    use nephila_disk::SimDisk;

    use super::*;

    /// `Beginning` has to follow what `Record` is.
    #[test]
    fn the_page_of_a_record_is_read_without_the_rest() {
        let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new(1)), Path::new("/store"));
        let mut journal = Journal(Log::open(&disk, dir, 0, SEGMENT_BYTES, &mut |_, _| Ok(())).unwrap());
        let url = "http://a.example/robots.txt?x";
        let found =
            |count: usize| vec![Found { url: url.into(), depth: 1, how: How::Link, redirects: 0 }; count];
        let robots = |count: usize| {
            Record::Robots(RobotsRecord {
                origin: Origin::of(&Url::parse("https://b.example:81/").unwrap()),
                url: url.into(),
                at: Wall(1),
                took: Default::default(),
                bytes: 2,
                status: Some(200),
                asked: true,
                outcome: RobotsOutcome::Elsewhere,
                capture: None,
                found: found(count),
            })
        };
        let settled = |count: usize| {
            Record::Settled(Settled {
                url: url.into(),
                depth: 1,
                how: How::Link,
                found_in: 0,
                attempts: 1,
                asked: true,
                at: Wall(1),
                took: Default::default(),
                bytes: 2,
                outcome: Outcome::Answered { status: 200 },
                capture: None,
                flags: Default::default(),
                found: found(count),
                left_out: Default::default(),
                spent: None,
            })
        };
        for (record, page) in [
            (Record::Seeds(found(3)), None),
            (settled(0), Some(url)),
            (settled(10_000), Some(url)),
            (robots(0), Some(url)),
            (robots(200), Some(url)),
            (Record::RunStarted { at: Wall(0) }, None),
        ] {
            let place = journal.append(&record).unwrap();
            journal.flush().unwrap();
            let records = Records::new(Arc::clone(&disk), dir);
            assert_eq!(records.page(place, "").as_deref(), page);
            assert_eq!(records.read(place).unwrap(), record);
        }
    }
}
