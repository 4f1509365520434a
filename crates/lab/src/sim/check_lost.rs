//! Promise 3: every acknowledged URL is still known, every counted page is whole in the archive, and in the end
//! everything that may be fetched has been settled as it should.

use std::collections::BTreeMap;
use std::path::Path;

use nephila_core::record::{Outcome, Record, Settled};
use nephila_core::url::Url;
use nephila_disk::Disk;
use nephila_node::directory;
use nephila_node::writer::pointer_of;
use nephila_store::{KnownState, Store};

use super::levels::{Crash, Level};
use super::web::{Fate, Plan};

#[derive(Default)]
pub(super) struct Lost {
    known: BTreeMap<String, Level>,
    settled: BTreeMap<String, Level>,
    /// Pages that were read back from the archive.
    pub(super) read_back: u64,
}

impl Lost {
    /// Somebody was told that this record is kept.
    pub(super) fn acknowledged(&mut self, record: &Record, level: Level) {
        let raise = |map: &mut BTreeMap<String, Level>, url: &str| {
            let kept = map.entry(url.to_owned()).or_insert(level);
            *kept = level.max(*kept);
        };
        for found in record.found() {
            raise(&mut self.known, &found.url);
        }
        if let Record::Settled(settled) = record
            && is_done(&settled.outcome)
        {
            raise(&mut self.settled, &settled.url);
        }
    }

    /// A power cut has taken back that a URL is done.
    pub(super) fn taken_back(&mut self, url: &str) {
        self.settled.remove(url);
    }

    /// The URLs of which somebody was told that they are done.
    pub(super) fn settled(&self) -> impl Iterator<Item = &String> {
        self.settled.keys()
    }

    /// The URLs of which somebody was told that they are known.
    pub(super) fn known(&self) -> impl Iterator<Item = &String> {
        self.known.keys()
    }

    /// Whether somebody was told that a URL is done.
    pub(super) fn was_settled(&self, url: &str) -> bool {
        self.settled.contains_key(url)
    }

    pub(super) fn synced(&mut self) {
        for level in self.known.values_mut().chain(self.settled.values_mut()) {
            if *level == Level::Kernel {
                *level = Level::Disk;
            }
        }
    }

    pub(super) fn crashed(&mut self, crash: Crash) {
        self.known.retain(|_, level| crash.spares(*level));
        self.settled.retain(|_, level| crash.spares(*level));
    }

    /// Compares what a new process found with what the old one had acknowledged.
    pub(super) fn reopened(
        &mut self,
        plan: &Plan,
        store: &mut impl Store,
        disk: &dyn Disk,
        dir: &Path,
    ) -> Result<(), String> {
        for url in self.known.keys() {
            state(store, url)?.ok_or_else(|| format!("{url} was acknowledged and is not known any more"))?;
        }
        for url in self.settled.keys() {
            match state(store, url)? {
                Some(KnownState::Settled(settled)) => self.read_back += read_back(plan, &settled, disk, dir)?,
                other => return Err(format!("{url} was counted and is now {other:?}")),
            }
        }
        Ok(())
    }

    /// Compares what a finished crawl knows with what it should.
    pub(super) fn finished(
        &mut self,
        plan: &Plan,
        store: &mut impl Store,
        disk: &dyn Disk,
        dir: &Path,
    ) -> Result<(), String> {
        for (url, fate) in &plan.must {
            let Some(KnownState::Settled(settled)) = state(store, url)? else {
                return Err(format!("{url} may be fetched and was not settled"));
            };
            compare(url, *fate, &settled.outcome)?;
            self.read_back += read_back(plan, &settled, disk, dir)?;
        }
        match self.known.keys().find(|url| !plan.may.contains(*url)) {
            Some(url) => Err(format!("{url} is out of scope and is known")),
            None => Ok(()),
        }
    }
}

/// Whether a URL needs no further attempt by anybody.
pub(super) fn is_done(outcome: &Outcome) -> bool {
    outcome.is_final() && !matches!(outcome, Outcome::Sent { .. })
}

/// Compares what came of a URL with what should have.
pub(super) fn compare(url: &str, fate: Fate, outcome: &Outcome) -> Result<(), String> {
    let right = match (fate, outcome) {
        (Fate::Any, _) => true,
        (Fate::Answered(status), Outcome::Answered { status: other }) => status == *other,
        (Fate::Failed | Fate::NotAnswered, Outcome::Failed { .. }) => true,
        (Fate::Disallowed | Fate::NotAnswered, Outcome::Disallowed { .. }) => true,
        _ => false,
    };
    if right { Ok(()) } else { Err(format!("{url} should be {fate:?} and is {outcome:?}")) }
}

/// What several stores know of a URL, those that know it.
pub(super) fn states(stores: &mut [impl Store], url: &str) -> Result<Vec<KnownState>, String> {
    let states: Result<Vec<_>, String> = stores.iter_mut().map(|store| state(store, url)).collect();
    Ok(states?.into_iter().flatten().collect())
}

pub(super) fn state(store: &mut impl Store, url: &str) -> Result<Option<KnownState>, String> {
    state_of(store, &parsed(url)?)
}

pub(super) fn parsed(url: &str) -> Result<Url, String> {
    Url::parse(url).map_err(|error| format!("{url}: {error}"))
}

/// The same of a URL that was read already.
pub(super) fn state_of(store: &mut impl Store, url: &Url) -> Result<Option<KnownState>, String> {
    let cannot = |error: nephila_store::Error| format!("{url} cannot be looked up: {error}");
    let mut known = store.look_up(url).map_err(cannot)?;
    if known.is_none() {
        // It may not be decided yet that it is new.
        store.decide().map_err(cannot)?;
        known = store.look_up(url).map_err(cannot)?;
    }
    Ok(known.map(|known| known.state))
}

/// Reads an answered page back from the archive and compares it with what the server sent.
pub(super) fn read_back(plan: &Plan, settled: &Settled, disk: &dyn Disk, dir: &Path) -> Result<u64, String> {
    let url = &settled.url;
    let Outcome::Answered { status } = settled.outcome else { return Ok(0) };
    let pointer = settled.capture.ok_or_else(|| format!("{url} was counted and not archived"))?;
    let record = nephila_archive::read_record(disk, &directory::archive(dir), &pointer_of(&pointer))
        .map_err(|error| format!("{url} was counted and is not whole in the archive: {error}"))?;
    if record.block != plan.wire(url, status) {
        return Err(format!("{url} is not archived as it was sent"));
    }
    Ok(1)
}
