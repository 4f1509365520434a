//! Moving hosts out of the frontier: a host or a partition is one range of sieve and queues.

use nephila_core::record::Found;
use nephila_core::url::{Fingerprint, Host};

use super::op::Stage;
use super::{Frontier, Range};
use crate::Result;

/// A known URL, as it is moved to somebody else: enough to know it, not to fetch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// Whether it is done.
    pub settled: bool,
    /// The place of the record that says so, or that it was found in.
    pub place: u64,
}

/// A host that was moved out.
#[derive(Clone, Debug, PartialEq)]
pub struct MovedHost {
    /// The host.
    pub host: Host,
    /// Its URLs that are due or to be tried again, with the attempts that each has used up.
    pub waiting: Vec<(Found, u8)>,
}

impl Frontier {
    /// Moves hosts out: passes on what is known of them and forgets it. Nothing of them may be taken.
    pub fn move_out(
        &mut self,
        range: &Range,
        seen: &mut dyn FnMut(Seen),
        moved: &mut dyn FnMut(MovedHost),
    ) -> Result<()> {
        self.decide_range(range)?;
        let hosts = self.hosts_of(range);
        let (mut known, mut settled) = (0, 0);
        self.sieve.each(&self.blocks, hosts.clone(), &mut |key, value| {
            let done = value.stage == Stage::Settled;
            known += 1;
            settled += u64::from(done);
            let fingerprint = Fingerprint(key.fingerprint());
            seen(Seen { fingerprint, settled: done, place: value.place.get() });
        })?;
        self.sieve.remove(&mut self.blocks, hosts.clone())?;
        self.known = self.known.saturating_sub(known);
        self.settled = self.settled.saturating_sub(settled);
        self.counts.forget(&hosts);
        let mut queues = Vec::new();
        self.hosts.remove(&mut self.blocks, &mut self.chunks, hosts, &mut |queue| queues.push(queue))?;
        for mut queue in queues {
            let mut waiting = Vec::new();
            queue.drain(&mut self.chunks, &mut |entry| waiting.push((entry.found, entry.attempts)))?;
            moved(MovedHost { host: queue.host, waiting });
        }
        Ok(())
    }
}
