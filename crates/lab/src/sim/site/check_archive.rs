//! Promise 3 where each agent has an archive of its own: every page that it has counted is whole there, whoever has its host
//! since.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nephila_core::record::{Outcome, Record, Settled};
use nephila_core::site::AgentId;
use nephila_disk::SimDisk;
use nephila_store::{KnownState, OwnStore};

use super::super::check_lost;
use super::super::driver::Process;
use super::super::web::Plan;

/// Which pages each agent has counted.
#[derive(Default)]
pub(super) struct Archived {
    counted: BTreeMap<AgentId, BTreeSet<String>>,
    /// Pages that were read back.
    pub(super) read_back: u64,
}

impl Archived {
    /// An agent has made a record durable.
    pub(super) fn written(&mut self, agent: AgentId, record: &Record) {
        if let Record::Settled(Settled { url, outcome: Outcome::Answered { .. }, .. }) = record {
            self.counted.entry(agent).or_default().insert(url.clone());
        }
    }

    /// A power cut may have taken back what came of a URL.
    pub(super) fn taken_back(&mut self, agent: AgentId, url: &str) {
        if let Some(counted) = self.counted.get_mut(&agent) {
            counted.remove(url);
        }
    }

    /// Reads back all pages of which the journal of an agent says that they were answered. What a power cut may have taken
    /// need not be there, but then it does not count either.
    pub(super) fn check(
        &mut self,
        plan: &Plan,
        agent: AgentId,
        process: &mut Process,
        disk: &SimDisk,
        dir: &Path,
    ) -> Result<(), String> {
        let pages = answered(process)?;
        let counted = self.counted.entry(agent).or_default();
        if let Some(url) = counted.iter().find(|url| !pages.contains_key(*url)) {
            return Err(format!("{url} was counted, and the journal does not say so any more"));
        }
        for (url, settled) in &pages {
            let what = match check_lost::read_back(plan, settled, disk, dir) {
                Ok(read) => {
                    self.read_back += read;
                    continue;
                }
                Err(what) => what,
            };
            let counts = match check_lost::state(&mut process.store, url)? {
                Some(KnownState::Settled(now)) => now.capture == settled.capture,
                _ => false,
            };
            if counts || counted.contains(url) {
                return Err(what);
            }
        }
        Ok(())
    }
}

/// By URL the last answer that the journal tells of.
fn answered(process: &Process) -> Result<BTreeMap<String, Settled>, String> {
    let (mut pages, mut from, end) = (BTreeMap::new(), 0, process.writer.end());
    // The last record is somewhere before the end.
    while let Some(until) = end.checked_sub(1) {
        let read = process.store.kept_records(from, until);
        let (records, next) = read.map_err(|error| format!("the journal cannot be read: {error}"))?;
        for (_, record) in records {
            if let Record::Settled(settled) = *record
                && matches!(settled.outcome, Outcome::Answered { .. })
            {
                pages.insert(settled.url.clone(), settled);
            }
        }
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(pages)
}
