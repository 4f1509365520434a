//! How many URLs each host has, for the limit on them.
//!
//! The queues know that too, but most of them are on disk when a URL is offered. So many hosts are counted exactly; when
//! there are more, those with few URLs are forgotten and begin again at what their queue says when it is next in memory, or
//! at nothing. Then a host can have somewhat more URLs than it should, which a limit on traps can bear.

use super::key::{HostKey, HostMap, HostRanges};
use super::snapshot::Writing;
use crate::Result;

/// Hosts that are counted: some 25 MB.
const HOSTS_MAX: usize = 1_000_000;
/// Bytes of a host in a snapshot: its key and its URLs.
const HOST_BYTES: usize = 16;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Counts(HostMap<u64>);

impl Counts {
    /// The URLs of a host.
    pub(super) fn of(&self, host: HostKey) -> u64 {
        self.0.get(&host).copied().unwrap_or(0)
    }

    /// Counts one more. `before` says how many its queue has, if that is in memory.
    pub(super) fn add(&mut self, host: HostKey, before: Option<u64>) {
        match self.0.get_mut(&host) {
            Some(urls) => *urls += 1,
            None => self.set(host, before.unwrap_or(0) + 1),
        }
    }

    /// Begins to count a host.
    pub(super) fn set(&mut self, host: HostKey, urls: u64) {
        if self.0.len() >= HOSTS_MAX {
            self.forget_small();
        }
        self.0.insert(host, urls);
    }

    /// Forgets hosts that have been moved out.
    pub(super) fn forget(&mut self, hosts: &HostRanges) {
        self.0.retain(|host, _| !hosts.contain(*host));
    }

    fn forget_small(&mut self) {
        let mut urls: Vec<u64> = self.0.values().copied().collect();
        let (_, median, _) = urls.select_nth_unstable(HOSTS_MAX / 2);
        let median = *median;
        self.0.retain(|_, urls| *urls > median);
    }

    /// For a snapshot.
    pub(super) fn write(&self, snapshot: &mut Writing) -> Result<()> {
        for (host, urls) in &self.0 {
            let mut bytes = [0; HOST_BYTES];
            bytes[..8].copy_from_slice(&host.to_bytes());
            bytes[8..].copy_from_slice(&urls.to_le_bytes());
            snapshot.add(&bytes)?;
        }
        snapshot.end_section()
    }

    /// From a snapshot; `None` if that makes no sense.
    pub(super) fn from_state(bytes: &[u8]) -> Option<Counts> {
        let (hosts, rest) = bytes.as_chunks::<HOST_BYTES>();
        let host = |bytes: &[u8; HOST_BYTES]| {
            let (host, urls) = bytes.split_first_chunk::<8>()?;
            Some((HostKey::from_bytes(*host), u64::from_le_bytes(urls.try_into().ok()?)))
        };
        rest.is_empty().then(|| Some(Counts(hosts.iter().map(host).collect::<Option<_>>()?)))?
    }
}
