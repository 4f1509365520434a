//! What the owner keeps with a host, and a hand that goes round all hosts on disk.
//!
//! An owner that cannot hold all hosts in memory keeps its memo of one here when it lets go of it, and finds those that have
//! something due again by going round: block by block, each host once a round.

use nephila_core::agent::{StoredHost, Visited};
use nephila_core::frontier::HostMemo;
use nephila_core::time::Wall;
use nephila_core::url::Host;

use super::Frontier;
use super::key::HostKey;
use super::queue::Queue;
use crate::{Error, Result};

impl Frontier {
    /// Keeps what the owner knows of a host. The hand passes it by until `away_until`.
    pub fn keep(&mut self, host: &Host, memo: Option<&HostMemo>, away_until: Wall) -> Result<()> {
        let memo = memo.map(postcard::to_stdvec).transpose().map_err(Error::Encode)?;
        self.hosts.keep(self.key_of(host), host, memo.unwrap_or_default(), away_until)
    }

    /// What the owner keeps with a host.
    pub fn kept(&mut self, host: &Host) -> Result<Option<HostMemo>> {
        let key = self.key_of(host);
        let queue = self.hosts.load(&mut self.blocks, &mut self.chunks, key)?;
        queue.map_or(Ok(None), |queue| memo_of(queue))
    }

    /// Goes on with the round: for one block of hosts, or up to where `max` of them, which is at least 1, have something due.
    pub fn visit(&mut self, now: Wall, max: usize) -> Result<Visited> {
        let mut visited = Visited::default();
        let (mut due_now, mut failed) = (Vec::new(), None);
        let from = self.hand;
        let next = self.hosts.each_near(&mut self.blocks, &mut self.chunks, from, &mut |key, queue| {
            let due = if queue.due() > 0 { Some(Wall(0)) } else { queue.next() };
            match due.map(|due| due.max(queue.away_until)) {
                None => {}
                Some(due) if due > now => visited.next = Some(visited.next.map_or(due, |next| next.min(due))),
                Some(_) => match stored(queue) {
                    Ok(host) => due_now.push((key, host)),
                    Err(error) => failed = Some(error),
                },
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        due_now.sort_unstable_by_key(|(key, _)| *key);
        // The hand stays before the first that there is no room for.
        let next = due_now.get(max.max(1)).map(|(key, _)| *key).or(next);
        visited.hosts = due_now.into_iter().take(max.max(1)).map(|(_, host)| host).collect();
        self.hand = next.unwrap_or(HostKey::from_bytes([0; 8]));
        visited.is_last = next.is_none();
        Ok(visited)
    }

    /// Hosts that are known.
    pub fn hosts_count(&self) -> u64 {
        self.hosts.count()
    }
}

/// A host as its owner sees it.
pub(super) fn stored(queue: &Queue) -> Result<StoredHost> {
    Ok(StoredHost {
        host: queue.host.clone(),
        known: queue.known,
        queued: queue.known.saturating_sub(queue.settled),
        due: queue.due(),
        next: queue.next(),
        memo: memo_of(queue)?,
    })
}

pub(super) fn memo_of(queue: &Queue) -> Result<Option<HostMemo>> {
    if queue.memo.is_empty() {
        return Ok(None);
    }
    let memo = postcard::from_bytes(&queue.memo);
    memo.map(Some).map_err(|_| Error::Corrupt {
        path: queue.host.as_str().into(),
        place: 0,
        what: "what is kept with this host makes no sense",
    })
}
