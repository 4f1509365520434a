//! Questions: about a URL, about hosts, and the round over all of them.

use nephila_core::agent::{StoredHost, Visited};
use nephila_core::record::{Found, How, Outcome, Record};
use nephila_core::site::AgentId;
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, Url};
use redis::{Value, cmd};

use super::commit::Plan;
use super::copying::seen_in;
use super::values::{CHUNK_ENTRIES, Entry, HostRecord, Seen, all_bytes, bytes, class_of, senseless, unpack};
use super::{RedisStore, partition_of};
use crate::{Known, KnownState, Result};

/// Hosts that one part of a round looks at.
const LOOKED_AT_MAX: usize = 2_000;

impl RedisStore {
    /// All that is known of a URL, and which agent has archived the last answer to it.
    pub fn find(&mut self, url: &Url) -> Result<Option<(Known, Option<AgentId>)>> {
        let (host, print) = (Host::of(url), Fingerprint::of(url).0);
        let record = self.loaded(&host)?;
        let (seen, taken) = self.seen_and_taken(&host, &record, &print)?;
        let is_taken = taken.is_some();
        let mut not_before = None;
        let entry = match seen {
            None => return Ok(None),
            Some(Seen::Tried(place) | Seen::Done(place) | Seen::Sent(place)) => {
                return self.look_back_at(place, is_taken, &print).map(Some);
            }
            Some(Seen::Queued { depth, chunk }) => {
                let key = self.keys.queue(&host, class_of(depth), chunk);
                let entries = self.range(&host, &key, 0, CHUNK_ENTRIES)?;
                entries.into_iter().find(|entry| entry.depth == depth && is_of(entry, &print))
            }
            Some(Seen::Out { .. }) => match self.found_nearer(&host, &record, &print)?.or(taken) {
                Some(entry) => Some(entry),
                None => self.find_waiting(&host, &record, &print)?.map(|(entry, time)| {
                    not_before = time;
                    entry
                }),
            },
        };
        let entry = entry.ok_or_else(|| senseless("a URL is not where it should be"))?;
        let state = match not_before {
            _ if is_taken => KnownState::Taken,
            None if entry.attempts == 0 => KnownState::Queued,
            // Another site tried it.
            not_before => KnownState::Retry {
                not_before: not_before.unwrap_or_default(),
                attempts: entry.attempts,
                last: None,
            },
        };
        let via = self.page(entry.found_in)?;
        Ok(Some((Known { found: entry.found(), via, state, cash: None }, None)))
    }

    /// A URL among those that come back, and when it may be tried again, if that is said.
    fn find_waiting(
        &mut self,
        host: &Host,
        record: &HostRecord,
        print: &[u8; 12],
    ) -> Result<Option<(Entry, Option<Wall>)>> {
        let key = self.keys.front(host);
        let entries = self.range(host, &key, 0, usize::try_from(record.front).unwrap_or(1).max(1))?;
        if let Some(entry) = entries.into_iter().find(|entry| is_of(entry, print)) {
            return Ok(Some((entry, None)));
        }
        for leaf in &record.deferred {
            let entries = self.leaf(host, leaf.number, &Plan::default())?;
            if let Some((time, entry)) = entries.into_iter().find(|(_, entry)| is_of(entry, print)) {
                return Ok(Some((entry, Some(Wall(time)))));
            }
        }
        Ok(None)
    }

    /// Where a URL was found nearer while it was under way.
    pub(super) fn found_nearer(
        &mut self,
        host: &Host,
        record: &HostRecord,
        print: &[u8; 12],
    ) -> Result<Option<Entry>> {
        if !record.nearer {
            return Ok(None);
        }
        let get = cmd("HGET").arg(self.keys.nearer(host)).arg(&print[..]).clone();
        let answer = self.cluster.get_mut().read([(partition_of(host), get)])?.pop().unwrap_or(Value::Nil);
        bytes(answer)?.map(|entry| unpack(&entry)).transpose()
    }

    fn look_back_at(
        &mut self,
        place: u64,
        is_taken: bool,
        print: &[u8; 12],
    ) -> Result<(Known, Option<AgentId>)> {
        let (settled, whose) = match self.read_record(place)? {
            (Record::Settled(settled), whose) => (settled, whose),
            (Record::Moved { from: agent, moved }, _) => {
                let seen = seen_in(&moved, print).ok_or_else(|| senseless("it does not speak of the URL"))?;
                let found = Found { url: String::new(), depth: 0, how: How::Link, redirects: 0 };
                let state = KnownState::Elsewhere { agent, place: seen.place };
                return Ok((Known { found, via: None, state, cash: None }, None));
            }
            _ => return Err(senseless("what settled a URL is not an attempt at one")),
        };
        let (url, depth, how) = (settled.url.clone(), settled.depth, settled.how);
        let found = Found { url, depth, how, redirects: 0 };
        let (via, attempts) = (self.page(settled.found_in)?, settled.attempts);
        let state = match settled.outcome {
            _ if is_taken => KnownState::Taken,
            Outcome::Retry { not_before, .. } => {
                KnownState::Retry { not_before, attempts, last: Some(Box::new(settled)) }
            }
            _ => KnownState::Settled(Box::new(settled)),
        };
        Ok((Known { found, via, state, cash: None }, whose))
    }

    /// The names of hosts of a partition, from a number on, so many at most.
    pub(super) fn names_from(&mut self, partition: u16, from: u64, max: usize) -> Result<Vec<Host>> {
        let mut names = Vec::new();
        let end = self.partition(partition)?.sums.names;
        let mut at = from;
        while at < end && names.len() < max {
            let chunk = at / CHUNK_ENTRIES as u64;
            let get = cmd("LRANGE").arg(self.keys.names(partition, chunk)).arg(0).arg(-1).clone();
            let answer = self.cluster.get_mut().read([(partition, get)])?.pop().unwrap_or(Value::Nil);
            let of_chunk = all_bytes(answer)?;
            if of_chunk.len() as u64 <= at % CHUNK_ENTRIES as u64 {
                // Somebody has emptied it: nobody would ever say so of a partition that is only looked at.
                return Err(senseless("a partition lacks hosts"));
            }
            for name in of_chunk.into_iter().skip((at % CHUNK_ENTRIES as u64) as usize) {
                let name = String::from_utf8(name).ok().and_then(|name| Host::parse(&name));
                names.push(name.ok_or_else(|| senseless("a host has no name"))?);
            }
            at = (chunk + 1) * CHUNK_ENTRIES as u64;
        }
        names.truncate(max);
        Ok(names)
    }

    /// The names of all hosts of a partition.
    pub(super) fn names(&mut self, partition: u16) -> Result<Vec<Host>> {
        self.names_from(partition, 0, usize::MAX)
    }

    /// The records of hosts of one partition, as they are.
    fn look_at(&mut self, partition: u16, hosts: Vec<Host>) -> Result<Vec<(Host, HostRecord)>> {
        let get = |host: &Host| (partition, cmd("GET").arg(self.keys.host(host)).clone());
        let commands: Vec<_> = hosts.iter().map(get).collect();
        let answers = self.cluster.get_mut().read(commands)?;
        let record = |answer| unpack(&bytes(answer)?.ok_or_else(|| senseless("a host has no record"))?);
        hosts.into_iter().zip(answers).map(|(host, answer)| Ok((host, record(answer)?))).collect()
    }

    pub(super) fn each_host(&mut self, each: &mut dyn FnMut(StoredHost)) -> Result<()> {
        for partition in self.partitions.keys().copied().collect::<Vec<u16>>() {
            let mut from = 0;
            loop {
                let names = self.names_from(partition, from, LOOKED_AT_MAX)?;
                if names.is_empty() {
                    break;
                }
                from += names.len() as u64;
                let epoch = self.partition(partition)?.epoch;
                for (host, record) in self.look_at(partition, names)? {
                    if record.counts() {
                        each(record.stored(host, epoch));
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes on how many URLs of each host are not settled, of so many hosts from a partition and a host of it on. Says where to
    /// go on, unless that is all.
    pub fn count_queued(
        &mut self,
        mut at: (u16, u64),
        each: &mut dyn FnMut(&Host, u64),
    ) -> Result<Option<(u16, u64)>> {
        let mut room = LOOKED_AT_MAX;
        while room > 0 {
            let mut with_hosts = self.partitions.range(at.0..).filter(|(_, held)| held.sums.names > 0);
            let Some(partition) = with_hosts.next().map(|(number, _)| *number) else { return Ok(None) };
            let from = if partition == at.0 { at.1 } else { 0 };
            let names = self.names_from(partition, from, room)?;
            at = if names.is_empty() { (partition + 1, 0) } else { (partition, from + names.len() as u64) };
            room -= names.len();
            for (host, record) in self.look_at(partition, names)? {
                each(&host, record.known.saturating_sub(record.settled));
            }
        }
        Ok(Some(at))
    }

    /// Goes on with the round. What was met before an error is met again.
    pub(super) fn go_round(&mut self, now: Wall, max: usize) -> Result<Visited> {
        let hand = self.hand;
        self.meet_hosts(now, max).inspect_err(|_| self.hand = hand)
    }

    fn meet_hosts(&mut self, now: Wall, max: usize) -> Result<Visited> {
        let mut visited = Visited { is_last: false, ..Visited::default() };
        let mut room = LOOKED_AT_MAX;
        loop {
            let (partition, from) = self.hand;
            let mut with_hosts = self.partitions.range(partition..).filter(|(_, held)| held.sums.names > 0);
            let Some(partition) = with_hosts.next().map(|(number, _)| *number) else {
                (self.hand, visited.is_last) = ((0, 0), true);
                return Ok(visited);
            };
            let from = if partition == self.hand.0 { from } else { 0 };
            self.hand = (partition, from);
            let names = self.names_from(partition, from, room)?;
            if names.is_empty() {
                self.hand = (partition + 1, 0);
                continue;
            }
            room -= names.len();
            for (host, record) in self.look_at(partition, names)? {
                let stored = record.stored(host, self.partition(partition)?.epoch);
                let due = if stored.due > 0 { Some(0) } else { stored.next.map(|next| next.0) };
                match due.map(|due| due.max(record.away_until)) {
                    Some(due) if due <= now.0 && visited.hosts.len() == max => return Ok(visited),
                    Some(due) if due <= now.0 => visited.hosts.push(stored),
                    later => visited.next = [visited.next, later.map(Wall)].into_iter().flatten().min(),
                }
                self.hand.1 += 1;
            }
            if room == 0 {
                return Ok(visited);
            }
        }
    }
}

fn is_of(entry: &Entry, print: &[u8; 12]) -> bool {
    entry.fingerprint().is_ok_and(|other| other == *print)
}
