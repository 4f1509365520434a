//! What limits keep out of the frontier: it is not known, is noted in a log of its own, and comes back when a limit is raised.
//!
//! A URL that is found again and again while it is kept out is noted as often, but for what the caller prunes: other sites may
//! send it as often as they like. So there is a limit on that log, and what finds no room there is only counted.

use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::OverLimit;
use nephila_core::record::Found;
use nephila_disk::Disk;

use super::heap::Access;
use super::key::HostKey;
use super::sieve::Offer;
use super::{Frontier, Range, snapshot};
use crate::log::{self, Log};
use crate::{Error, LogReader, Result, StoreLimits};

/// The directory of what limits keep out,
const KEPT_OUT: &str = "kept-out";
/// how long its segments are,
const SEGMENT_BYTES: u64 = 16 << 20;
/// how many of it are offered again at a time,
const READMITTED: usize = 10_000;
/// and from where on an index says that a URL is one of these: no record finds so many.
const FIRST_READMITTED: usize = 1 << 23;

/// The limit that keeps a URL out.
#[derive(Clone, Copy)]
pub(super) enum Over {
    Depth,
    Host,
    Urls,
}

/// Opens the log of a frontier from one place to another, where its snapshot ended; says which places it has. It is not open if
/// nothing may be written.
pub(super) fn open(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    (from, end): (u64, u64),
    access: Access,
) -> Result<(Option<Log>, Vec<u64>)> {
    let dir = dir.join(KEPT_OUT);
    let mut noted = Vec::new();
    let mut note = |place: u64, _: &[u8]| {
        noted.push(place);
        Ok(())
    };
    match access {
        Access::Write => {
            // What a life noted that ended before its snapshot is found again in the journal.
            log::cut_behind(&**disk, &dir, end)?;
            let log = Log::open_to(disk, &dir, (from, end), SEGMENT_BYTES, &mut note)?;
            Ok((Some(log), noted))
        }
        Access::Read => {
            log::read_only_to(&**disk, &dir, (from, end), &mut note)?;
            noted.retain(|place| *place < end);
            Ok((None, noted))
        }
    }
}

impl Frontier {
    /// Counts the URLs of each host, which nobody did while there was no limit on them.
    pub(super) fn count_hosts(&mut self) -> Result<()> {
        let all = self.hosts_of(&Range::All);
        let counts = &mut self.counts;
        self.hosts.each(&mut self.blocks, &mut self.chunks, all, &mut |key, queue| {
            counts.set(key, queue.known);
        })
    }

    /// Stops admission at other limits from now on, whatever was admitted before.
    pub fn set_limits(&mut self, limits: StoreLimits) -> Result<()> {
        self.decide_range(&Range::All)?;
        self.options.limits = limits;
        self.count_hosts()
    }

    /// The limit that keeps a new URL out.
    pub(super) fn limit_on(&self, host: HostKey, depth: u16) -> Option<Over> {
        let limits = &self.options.limits;
        if depth > limits.max_depth {
            Some(Over::Depth)
        } else if self.counts.of(host) >= limits.max_host_pages {
            Some(Over::Host)
        } else if self.known >= limits.max_urls {
            Some(Over::Urls)
        } else {
            None
        }
    }

    /// Notes a URL that a limit keeps out, for when the limit is raised.
    pub(super) fn keep_out(&mut self, over: Over, found: &Found, via: u64, cash: u64) -> Result<()> {
        let is_given = self.ledger.is_some();
        match &mut self.kept_out {
            Some(log) if log.end() - self.kept_out_from >= self.options.limits.kept_out_bytes => {}
            Some(log) => {
                log.append(|out| {
                    // Where nobody is given anything, there is nothing to say of it.
                    let written = match is_given {
                        true => postcard::to_io(&(found, via, cash), out),
                        false => postcard::to_io(&(found, via), out),
                    };
                    written.map(drop).map_err(Error::Encode)
                })?;
            }
            None => self.kept_out_unlogged.push((found.clone(), via)),
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.kept_out = ledger.kept_out.saturating_add(cash);
        }
        for counts in [&mut self.over, &mut self.decided.over] {
            match over {
                Over::Depth => counts.depth += 1,
                Over::Host => counts.host += 1,
                Over::Urls => counts.urls += 1,
            }
        }
        Ok(())
    }

    /// Passes on what is kept out of a frontier that was opened to be read, with the places of the records that found it.
    pub fn each_kept_out(&self, each: &mut dyn FnMut(Found, u64) -> Result<()>) -> Result<()> {
        let dir = self.dir.join(KEPT_OUT);
        let mut read = |_: u64, payload: &[u8]| {
            let (found, via) = postcard::from_bytes(payload).map_err(|_| snapshot::senseless(&self.dir))?;
            each(found, via)
        };
        log::read_only_to(&*self.disk, &dir, (self.kept_out_from, 0), &mut read)?;
        self.kept_out_unlogged.iter().try_for_each(|(found, via)| each(found.clone(), *via))
    }

    /// Offers again what limits kept out that have been raised since. What still is too much stays out.
    pub(super) fn readmit(&mut self, places: &[u64]) -> Result<()> {
        self.over = OverLimit::default();
        if let Some(ledger) = &mut self.ledger {
            ledger.kept_out = 0;
        }
        let reader = LogReader::new(Arc::clone(&self.disk), &self.dir.join(KEPT_OUT));
        let mut payload = Vec::new();
        for batch in places.chunks(READMITTED) {
            for (turn, place) in batch.iter().enumerate() {
                reader.read(*place, &mut payload)?;
                let senseless = |_| snapshot::senseless(&self.dir);
                let (found, via, cash): (Found, u64, u64) = match self.ledger {
                    Some(_) => postcard::from_bytes(&payload).map_err(senseless)?,
                    None => {
                        let (found, via) = postcard::from_bytes(&payload).map_err(senseless)?;
                        (found, via, 0)
                    }
                };
                let index = FIRST_READMITTED + turn;
                if self.admit_one(via, index, &found, cash)? == Offer::Later {
                    self.readmitted.insert(index, (found, cash));
                }
            }
            self.decide_range(&Range::All)?;
            self.readmitted.clear();
        }
        self.kept_out.as_mut().map_or(Ok(()), Log::flush)
    }
}
