//! How far partitions are known to have come: a server that has less has lost what it had acknowledged.

use std::collections::BTreeMap;

use crate::{Error, Result};

/// Of partitions, the highest epoch and version that replicas have confirmed to this process.
#[derive(Clone, Debug, Default)]
pub struct Reached(BTreeMap<u16, (u64, u64)>);

impl Reached {
    pub(super) fn note(&mut self, slot: u16, epoch: u64, version: u64) {
        let reached = self.0.entry(slot).or_default();
        *reached = (reached.0.max(epoch), reached.1.max(version));
    }

    /// Notes all that another one has noted.
    pub(super) fn add(&mut self, other: Reached) {
        for (slot, (epoch, version)) in other.0 {
            self.note(slot, epoch, version);
        }
    }

    /// Those of which something is known.
    pub(super) fn slots(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.keys().copied()
    }

    /// Whether a partition is as far as it was, or further; otherwise a server has lost what it had acknowledged. To be asked of
    /// what replicas have confirmed: then it is not said by a primary that does not know yet that it is none.
    pub(super) fn check(&mut self, slot: u16, epoch: u64, version: u64) -> Result<()> {
        let (before, version_before) = self.0.get(&slot).copied().unwrap_or_default();
        if epoch < before || version < version_before {
            return Err(Error::Lost { what: format!("partition {slot}") });
        }
        self.note(slot, epoch, version);
        Ok(())
    }
}
