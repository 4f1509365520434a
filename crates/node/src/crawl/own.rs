//! The store that an agent has for itself: what it decides at once, what it writes down, and when it is written down whole.

use std::time::Duration;

use nephila_core::agent::{Action, Agent, Event, Ticket};
use nephila_core::record::Record;
use nephila_core::time::{Now, Wall};
use nephila_store::frontier::SnapshotDone;
use nephila_store::{EmbeddedStore, Exported, OwnStore, PlacedRecord, Result, Store, StoreJob};

use super::CrawlError;
use crate::memo::{Memo, Pointed};
use crate::writer::{Done, Job, WriteError, Writing};

/// See the module's documentation.
pub(super) struct Own {
    pub(super) store: EmbeddedStore,
    /// How far into the archive the records of the store point.
    pointed: Pointed,
    writing: Writing,
    /// The place of the last snapshot, and after how many bytes the next one follows.
    snapshot_at: u64,
    snapshot_bytes: u64,
    snapshot_under_way: bool,
    /// An old record could not be read, and that was said.
    unreadable: bool,
}

impl Own {
    /// The store is written down every so many bytes; it was at this place.
    pub(super) fn new(
        store: EmbeddedStore,
        pointed: Pointed,
        writing: Writing,
        snapshot_at: u64,
        snapshot_bytes: u64,
    ) -> Own {
        Own {
            store,
            pointed,
            writing,
            snapshot_at,
            snapshot_bytes,
            snapshot_under_way: false,
            unreadable: false,
        }
    }

    /// Does what is asked of a store, and says the answer if there is one.
    pub(super) fn perform(&mut self, action: Action, now: Wall) -> Result<Option<Event>> {
        let store = &mut self.store;
        Ok(Some(match action {
            Action::Admit { place, record, open, again: false } => {
                Event::Admitted(store.admit(place, &record, open.as_deref())?)
            }
            Action::Admit { place, record, open, again: true } => {
                Event::Admitted(store.admit_again(place, &record, open.as_deref())?)
            }
            Action::TellAnew { partitions } => Event::Decided(store.tell_anew(&partitions)?),
            Action::Decide => Event::Admitted(store.decide()?),
            Action::Take { host, max, fresh_first } => {
                Event::Taken(store.take(&host, max, fresh_first, now)?)
            }
            Action::Keep { host, memo, away_until, .. } => {
                store.keep(&host, memo.as_deref(), away_until)?;
                return Ok(None);
            }
            Action::Visit { max } => Event::Visited(store.visit(now, max)?),
            Action::Recall { host, place } => {
                let record = store.record(place);
                if let (Err(error), false) = (&record, self.unreadable) {
                    self.unreadable = true;
                    say_unreadable(error);
                }
                Event::Recalled { host, record: record.ok().map(Box::new), place }
            }
            Action::PutBack { host, due } => {
                store.put_back(&host, &due)?;
                return Ok(None);
            }
            Action::ExportHost { call, host, from } => {
                let Exported { moved, next, decided } = self.store.export_host(&host, from.as_ref())?;
                Event::ExportedHost { call, moved, next, decided: Box::new(decided) }
            }
            Action::CountQueued(mut counted) => {
                let decided = self.store.count_queued(&mut |host, urls| counted.add(host, urls))?;
                Event::CountedQueued { counted, decided }
            }
            Action::Export { to, handover, partitions, from } => {
                let Exported { moved, next, decided } = store.export(&partitions, from.as_ref())?;
                Event::Exported { to, handover, moved, next, decided: Box::new(decided) }
            }
            Action::Reread { from, until } => {
                let (records, next) = store.records(from, until)?;
                Event::Reread { records, next }
            }
            // Others are not for a store of one's own.
            _ => return Ok(None),
        }))
    }

    /// What is kept of records from one place to another, and where to go on.
    pub(super) fn kept_records(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, Option<u64>)> {
        self.store.kept_records(from, until)
    }

    /// Has a record written, and first what it captured. What it found and is known already is left out.
    pub(super) fn write(&mut self, mut job: Job, now: Wall) {
        self.store.prune(&mut job.record);
        self.writing.write(job, now);
    }

    /// Has what was to be written handed over to whoever writes it.
    pub(super) fn hand_over(&mut self) {
        // If that has failed, it has said so.
        let _ = self.writing.hand_over();
    }

    /// A record is durable. Says what had to be decided because of it.
    pub(super) fn fold(&mut self, Done { place, record, .. }: &Done) -> Result<Option<Event>> {
        self.pointed.see(record);
        let Record::Settled(settled) = &**record else { return Ok(None) };
        let decided = self.store.settle(*place, settled)?;
        Ok(decided.is_news().then_some(Event::Decided(decided)))
    }

    /// Has the store written down when enough has happened since it was. `end` is behind the last record that is folded in.
    pub(super) fn snapshot_if_due(&mut self, agent: &mut Agent, end: u64, now: Now) -> Result<()> {
        if self.snapshot_under_way || end - self.snapshot_at < self.snapshot_bytes {
            return Ok(());
        }
        let job = snapshot(agent, &mut self.store, &self.pointed, end, now)?;
        self.snapshot_under_way = self.writing.snapshot(job);
        self.snapshot_at = end;
        Ok(())
    }

    /// The store is written down.
    pub(super) fn end_snapshot(&mut self, done: SnapshotDone) -> Result<()> {
        self.snapshot_under_way = false;
        self.store.end_snapshot(done)
    }

    /// Writes down how long the run took, and all that the next start need not fold again; unless there are records in the
    /// journal that nobody here was told of, or that were folded by half.
    pub(super) fn close(
        mut self,
        agent: &mut Agent,
        elapsed: Duration,
        all_is_told: bool,
        now: Now,
    ) -> std::result::Result<(), CrawlError> {
        let record = Box::new(Record::RunEnded { elapsed });
        self.writing.write(Job { ticket: Ticket(0), record, capture: None, attempt: None }, now.wall);
        let end = self.writing.finish()?;
        if all_is_told && !self.store.has_failed() {
            agent.end(elapsed);
            self.store.tidy().map_err(WriteError::Store)?;
            let job = snapshot(agent, &mut self.store, &self.pointed, end, now).map_err(WriteError::Store)?;
            let done = job.run().map_err(WriteError::Store)?;
            self.store.end_snapshot(done).map_err(WriteError::Store)?;
        }
        Ok(())
    }
}

/// What an old record said is asked for again; whoever runs the crawl should know of the damage.
fn say_unreadable(error: &nephila_store::Error) {
    crate::display::note(&format!(
        "warning: an old record of the crawl cannot be read, and robots.txt is asked for again: {error}"
    ));
}

/// Begins to write down the store, and with it what the agent must not forget. `end` is behind the last record that the store
/// has folded and the agent was told of.
pub fn snapshot(
    agent: &mut Agent,
    store: &mut EmbeddedStore,
    pointed: &Pointed,
    end: u64,
    now: Now,
) -> Result<StoreJob> {
    let mut kept = Ok(());
    let memo = agent.memo(now, |host, memo, away_until| {
        if kept.is_ok() {
            kept = store.keep(host, memo, away_until);
        }
    });
    kept?;
    let memo = Memo::encode(memo, pointed.clone(), &agent.settings().private);
    store.begin_snapshot(end, &memo, agent.needs_records_from())
}
