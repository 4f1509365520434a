//! What a store does because of others: agents of its site, which have partitions that were its own or come to be, and other
//! sites.

use nephila_core::agent::{Admitted, Cursor};
use nephila_core::limits::MOVED_URLS_MAX;
use nephila_core::record::Record;
use nephila_core::site::Partitions;
use nephila_core::url::Host;

use super::EmbeddedStore;
use crate::frontier::Range;
use crate::{Exported, Result};

impl EmbeddedStore {
    /// What was found of partitions while they were frozen has gone to their next holder apart from the rest. Records that are
    /// folded again do not know that they were.
    pub(super) fn give_what_leaves(&mut self, partitions: Partitions, since: u64, until: u64) -> Result<()> {
        let mut from = since.max(self.frontier.place());
        while from < until {
            let (records, next) = self.records.range(from, until - 1)?;
            for (place, record) in records.into_iter().filter(|(place, _)| *place > since) {
                self.frontier.change(|frontier| frontier.give_away(place, &record, &partitions))?;
            }
            from = next;
        }
        Ok(())
    }

    /// Offers once more what a record found that was offered before: URLs may have been of others then. Says, by cash, all that
    /// it found and others have, as it may not have been told.
    pub fn admit_again(
        &mut self,
        place: u64,
        record: &Record,
        open: Option<&Partitions>,
    ) -> Result<Admitted> {
        self.fold(place, record, open, true)
    }

    /// Partitions whose holders have lost what they were told of their URLs: they are told anew when these are given something.
    /// Says what has been decided about URLs that were offered before.
    pub fn tell_anew(&mut self, partitions: &[u16]) -> Result<Admitted> {
        let ranges: Vec<Range> = partitions.iter().copied().map(Range::Partition).collect();
        self.frontier.change(|frontier| frontier.tell_anew(&ranges))
    }

    /// Which URLs of a host are done or were tried, and what is kept of it, from `from` on as far as it likes; nothing, not even
    /// the host, if nobody can go on from there.
    pub fn export_host(&mut self, host: &Host, from: Option<&Cursor>) -> Result<Exported> {
        self.frontier.change(|frontier| {
            let (moved, next) = frontier.export_done(host, from, MOVED_URLS_MAX)?;
            Ok(Exported { moved, next, decided: frontier.decided() })
        })
    }

    /// Passes on how many URLs of each host are not settled. Says what had to be decided first, or was before.
    pub fn count_queued(&mut self, each: &mut dyn FnMut(&Host, u64)) -> Result<Admitted> {
        self.frontier.change(|frontier| {
            frontier.hosts(&Range::All, &mut |stored| each(&stored.host, stored.queued))?;
            Ok(frontier.decided())
        })
    }
}
