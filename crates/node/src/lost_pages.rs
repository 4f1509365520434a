//! Which pages that count are not in the archive any more, and whether a power cut can be the reason.
//!
//! Each shard of a run makes its WARC files one after the other. It has each synced, its name included, before it begins the
//! next, and the last one before the run writes down that it ended. So a power cut takes at most the last file of each shard of a
//! run that did not end, or the end of that file; whatever else is missing was there once, and somebody or something removed it.

use std::collections::{BTreeMap, HashMap, HashSet};

use nephila_core::record::{Failure, Outcome, Pointer, Record, Settled};
use nephila_core::url::{Fingerprint, Url};

/// How many lost pages are counted. More are as bad.
const PAGES_MAX: usize = 1_000_000;
/// How many files a message names.
const FILES_NAMED_MAX: usize = 10;

/// Names a WARC file: shard and serial.
type File = (u16, u32);

/// Watches the records of a crawl go by, in order: first [`LostPages::see_pointer`] for the capture that a record names, then
/// [`LostPages::see_record`] for the record, as it counts without a capture that is lost.
#[derive(Default)]
pub(crate) struct LostPages {
    /// Pages that count as not fetched because their capture is lost, and were not settled again since.
    pages: HashMap<Fingerprint, File>,
    /// The file of the capture that the next record names, if it is lost.
    lost: Option<File>,
    /// The last file of each shard of the run whose records are seen.
    last: BTreeMap<u16, u32>,
    /// The last files of runs that did not end.
    unsynced: HashSet<File>,
}

impl LostPages {
    /// A record names this capture, and the archive has it or not.
    pub(crate) fn see_pointer(&mut self, pointer: &Pointer, held: bool) {
        let file = (pointer.shard, pointer.file);
        let last = self.last.entry(pointer.shard).or_insert(pointer.file);
        *last = pointer.file.max(*last);
        self.lost = (!held).then_some(file);
    }

    /// The record itself.
    pub(crate) fn see_record(&mut self, record: &Record) {
        let lost = self.lost.take();
        match record {
            Record::RunStarted { .. } => self.begin_run(),
            Record::RunEnded { .. } => self.last.clear(),
            Record::Settled(settled) => self.settle(settled, lost),
            _ => {}
        }
    }

    /// All records were seen: how many pages each file lacks, those that a power cut explains and the others.
    pub(crate) fn finish(mut self) -> (BTreeMap<File, u64>, BTreeMap<File, u64>) {
        self.begin_run();
        let (mut explained, mut others) = (BTreeMap::new(), BTreeMap::new());
        for file in self.pages.into_values() {
            let files = if self.unsynced.contains(&file) { &mut explained } else { &mut others };
            *files.entry(file).or_default() += 1;
        }
        (explained, others)
    }

    fn begin_run(&mut self) {
        self.unsynced.extend(std::mem::take(&mut self.last));
    }

    fn settle(&mut self, settled: &Settled, lost: Option<File>) {
        if lost.is_none() && self.pages.is_empty() {
            return;
        }
        let Ok(url) = Url::parse(&settled.url) else { return };
        let page = Fingerprint::of(&url);
        match (&settled.outcome, lost) {
            // A page whose capture is lost counts as not tried.
            (Outcome::Retry { failure: Failure::NotTried, .. }, Some(file))
                if self.pages.len() < PAGES_MAX =>
            {
                self.pages.insert(page, file);
            }
            (outcome, None) if outcome.is_final() => {
                self.pages.remove(&page);
            }
            _ => {}
        }
    }
}

/// Files in words, each with how many pages it lacks. Their names begin as they were called then, and the journal does not
/// know that part.
pub(crate) fn listed(files: &BTreeMap<File, u64>) -> String {
    let name = |((shard, serial), pages): (&File, &u64)| {
        format!("  *-{serial:05}-{shard:03}.warc*  ({pages} {})", if *pages == 1 { "page" } else { "pages" })
    };
    let mut lines: Vec<String> = files.iter().take(FILES_NAMED_MAX).map(name).collect();
    if files.len() > FILES_NAMED_MAX {
        lines.push(format!("  and {} more", files.len() - FILES_NAMED_MAX));
    }
    lines.join("\n")
}
