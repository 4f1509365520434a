//! What a crawl's journal says, read from outside while the crawl is not running.

use std::{collections::HashSet, path::Path, sync::Arc};

use nephila_archive::read_record;
use nephila_core::agent::Kept;
use nephila_core::record::{Outcome, Pointer, Record, Settled};
use nephila_disk::RealDisk;
use nephila_node::{directory, writer::pointer_of};
use nephila_store::{EmbeddedStore, FrontierOptions, Reader};

use crate::web::Web;

/// Watches what is asked for again.
#[derive(Default)]
pub(super) struct Repeats {
    /// How many times something was, up to the last look.
    pub count: usize,
}

impl Repeats {
    /// URLs asked for again since the last look although they were in `settled`, which is what was settled then.
    pub(super) fn of_settled(&mut self, web: &Web, settled: &HashSet<String>) -> Vec<String> {
        let mut repeats = web.repeats();
        let new = repeats.split_off(self.count.min(repeats.len()));
        self.count += new.len();
        new.into_iter().filter(|url| settled.contains(url)).collect()
    }
}

/// What is known and what is done.
#[derive(Default)]
pub(super) struct Journal {
    /// URLs that are known. What pages of the history linked to is not among them.
    pub known: HashSet<String>,
    /// Where the history ends.
    pub history_end: u64,
    /// URLs that need no further attempt.
    pub settled: HashSet<String>,
    /// Every answer that counts, in the order of the journal.
    pub answers: Vec<Answer>,
    /// What a crash or a full disk left behind the last whole record.
    pub torn_bytes: u64,
}

/// An answer that counts.
pub(super) struct Answer {
    pub url: String,
    /// Where it is in the archive.
    capture: Option<Pointer>,
}

impl Reader for Journal {
    /// All of them.
    fn memo(&mut self, _: &[u8]) -> Option<bool> {
        Some(true)
    }

    fn replay(&mut self, _: u64, record: &Record, _: &mut Kept<'_>) {
        self.add(record);
    }

    fn look_back(&mut self, _: u64, record: &Record, _: Option<&Settled>, _: &mut Kept<'_>) {
        self.add(record);
    }
}

impl Journal {
    /// Reads the journal of the crawl in `out`; nothing is known if there is none yet.
    pub(super) fn read(out: &Path) -> anyhow::Result<Journal> {
        let mut journal = Journal::default();
        if !EmbeddedStore::exists(&RealDisk, out)? {
            return Ok(journal);
        }
        let options = FrontierOptions::default();
        let store = EmbeddedStore::open_read_only(Arc::new(RealDisk), out, options, &mut journal)?;
        journal.torn_bytes = store.torn_bytes();
        journal.history_end = store.history_end()?;
        Ok(journal)
    }

    /// Takes in one more record.
    pub(super) fn add(&mut self, record: &Record) {
        self.known.extend(record.found().iter().map(|found| found.url.clone()));
        let Record::Settled(settled) = record else { return };
        if settled.outcome.is_final() {
            self.settled.insert(settled.url.clone());
        }
        if matches!(settled.outcome, Outcome::Answered { .. }) {
            let Settled { url, capture, .. } = settled;
            self.answers.push(Answer { url: url.clone(), capture: *capture });
        }
    }

    /// Answers from number `from` on that are not whole in the archive, and why.
    pub(super) fn not_whole(&self, out: &Path, from: usize) -> Vec<String> {
        let archive = directory::archive(out);
        let check = |Answer { url, capture }: &Answer| {
            let Some(pointer) = capture else { return Some(format!("{url}: no capture")) };
            match read_record(&RealDisk, &archive, &pointer_of(pointer)) {
                Ok(record) if record.head.get("WARC-Target-URI") == Some(url) => None,
                Ok(record) => {
                    Some(format!("{url}: {:?} is at its place", record.head.get("WARC-Target-URI")))
                }
                Err(error) => Some(format!("{url}: {error}")),
            }
        };
        self.answers[from.min(self.answers.len())..].iter().filter_map(check).collect()
    }
}
