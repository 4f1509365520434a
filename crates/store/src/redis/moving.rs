//! What others know of a host: taken in from another site that had it, or from another agent's copy, and told to a site that
//! claims it. Whatever comes twice, or says less than is known, changes nothing.

use std::collections::BTreeMap;

use nephila_core::agent::Cursor;
use nephila_core::limits::MOVED_URLS_MAX;
use nephila_core::record::Record;
use nephila_core::site::{AgentId, Moved, MovedHost, SeenUrl, Waiting};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, identify};
use redis::cmd;

use super::commit::Plan;
use super::keys::bucket_of;
use super::settling::read_seen_and_taken;
use super::values::{CHUNK_ENTRIES, Entry, HostRecord, Seen, fields, pack, unpack};
use super::{RedisStore, partition_of};
use crate::{Exported, Result};

/// Buckets that are read together.
const BUCKETS_AT_ONCE: u32 = 8;

impl RedisStore {
    /// What a record changes that brings what others know of a host: which of its URLs they are done with, and which they have
    /// tried. Others that it names are offered like all that is found.
    pub(super) fn plan_moved(
        &mut self,
        place: u64,
        from: AgentId,
        moved: &Moved,
        plan: &mut Plan,
    ) -> Result<Option<(Host, HostRecord)>> {
        let Some(host) = moved.hosts.first().map(|moved| moved.host.clone()) else {
            self.plan_record(place, &Record::Moved { from, moved: moved.clone() }, plan)?;
            return Ok(None);
        };
        let seen = moved.hosts.iter().filter(|of| of.host == host).flat_map(|of| &of.seen);
        let done: BTreeMap<Fingerprint, SeenUrl> =
            seen.filter(|seen| !seen.is_sent).map(|seen| (seen.fingerprint, *seen)).collect();
        let (mut tried, mut others) = (BTreeMap::new(), Vec::new());
        for (found, waiting) in moved.found.iter().zip(&moved.waiting) {
            let Some((_, print)) = identify(&found.url).filter(|(of, _)| *of == host) else { continue };
            match waiting.not_before {
                Some(at) if !done.contains_key(&print) => drop(tried.insert(print, (found, waiting, at))),
                Some(_) => {}
                None => others.push(found.clone()),
            }
        }
        let mut record = self.loaded(&host)?;
        self.make_room(&host, &mut record, (done.len() + tried.len()) as u64)?;
        let prints: Vec<Fingerprint> = done.keys().chain(tried.keys()).copied().collect();
        let states = self.states(&host, &record, &prints)?;
        // Several of them may come back: what is planned is not in the list yet.
        let mut front = BTreeMap::new();
        for entry in self.front(&host, &record)? {
            front.insert(Fingerprint(entry.fingerprint()?), entry);
        }
        let (known, settled) = (record.known, record.settled);
        for (print, (seen, taken)) in prints.into_iter().zip(states) {
            if matches!(seen, Some(Seen::Done(_))) {
                continue;
            }
            match (seen, taken) {
                (None, _) => record.known += 1,
                (Some(Seen::Sent(_)), _) => record.settled = record.settled.saturating_sub(1),
                (Some(_), Some(_)) => {
                    record.taken = record.taken.saturating_sub(1);
                    plan.remove_field(self.keys.taken(&host), &print.0);
                }
                // Its entry in the queue does not count any more.
                (Some(Seen::Queued { .. }), None) => {}
                (Some(_), None) => match front.remove(&print) {
                    Some(entry) => {
                        record.front = record.front.saturating_sub(1);
                        plan.add("LREM", self.keys.front(&host), 2, vec![b"1".to_vec(), pack(&entry)?]);
                    }
                    None => self.plan_not_deferred(&host, &mut record, &print.0, plan)?,
                },
            }
            if record.nearer {
                plan.remove_field(self.keys.nearer(&host), &print.0);
            }
            let seen = match tried.get(&print) {
                Some((found, Waiting { attempts, .. }, at)) => {
                    let entry = Entry { attempts: *attempts, ..Entry::new(found, place) };
                    self.plan_deferred(&host, &mut record, at.0, entry, plan)?;
                    Seen::Out { depth: found.depth }
                }
                None => {
                    record.settled += 1;
                    Seen::Done(place)
                }
            };
            let bucket = self.keys.bucket(&host, bucket_of(&print.0, record.buckets));
            plan.set_field(bucket, &print.0, pack(&seen)?);
        }
        plan.added.known += record.known - known;
        plan.added.settled += record.settled.saturating_sub(settled);
        plan.removed.settled += settled.saturating_sub(record.settled);
        let (more, done_more) = ((record.known - known) as i64, record.settled as i64 - settled as i64);
        self.said.moved.0 += more;
        self.said.moved.1 += more - done_more;
        let hosts = vec![MovedHost { host: host.clone(), memo: None, seen: done.into_values().collect() }];
        let moved = Moved { hosts, found: others, waiting: Vec::new(), accounts: Vec::new() };
        self.plan_record(place, &Record::Moved { from, moved }, plan)?;
        Ok(Some((host, record)))
    }

    /// What is known of URLs of a host, and their entries if they were handed over.
    fn states(
        &mut self,
        host: &Host,
        record: &HostRecord,
        prints: &[Fingerprint],
    ) -> Result<Vec<(Option<Seen>, Option<Entry>)>> {
        let commands = prints.iter().flat_map(|print| self.get_seen_and_taken(host, record, &print.0));
        let commands: Vec<_> = commands.collect();
        let mut answers = self.cluster.get_mut().read(commands)?.into_iter();
        prints.iter().map(|_| read_seen_and_taken(record, &mut answers)).collect()
    }

    /// Which URLs of a host are done, from `from` on as far as it likes, and what is kept of it; at the end also which were tried
    /// and come back. What is given away is not done. Others say where to go on: from where nobody can, there is not even the
    /// host.
    pub fn export_host(&mut self, host: &Host, from: Option<&Cursor>) -> Result<Exported> {
        let first = from.map_or(Some([0; 4]), |from| from.0.as_slice().try_into().ok());
        let Some(first) = first.map(u32::from_le_bytes) else {
            return Ok(Exported { moved: Moved::default(), next: None, decided: self.news() });
        };
        let record = self.loaded(host)?;
        let (mut seen, mut bucket) = (Vec::new(), first);
        // A bucket that is split meanwhile leaves half of it to one that comes later.
        while bucket < record.buckets && seen.len() < MOVED_URLS_MAX / 2 {
            let end = record.buckets.min(bucket.saturating_add(BUCKETS_AT_ONCE));
            self.done_in(host, bucket..end, &mut seen)?;
            bucket = end;
        }
        let next = (bucket < record.buckets).then(|| Cursor(bucket.to_le_bytes().to_vec()));
        let mut moved = Moved::default();
        if next.is_none() {
            for (entry, time) in self.entries_back(host, &record)? {
                if entry.attempts > 0 {
                    let not_before = Some(time.unwrap_or_default());
                    moved.waiting.push(Waiting { via: None, attempts: entry.attempts, not_before });
                    moved.found.push(entry.found());
                }
            }
        }
        moved.hosts.push(MovedHost { host: host.clone(), memo: record.memo, seen });
        Ok(Exported { moved, next, decided: self.news() })
    }

    fn done_in(&mut self, host: &Host, buckets: std::ops::Range<u32>, seen: &mut Vec<SeenUrl>) -> Result<()> {
        let number = partition_of(host);
        let get = |bucket| (number, cmd("HGETALL").arg(self.keys.bucket(host, bucket)).clone());
        let commands: Vec<_> = buckets.map(get).collect();
        for answer in self.cluster.get_mut().read(commands)? {
            for (print, state) in fields(answer)? {
                if let (Ok(print), Seen::Done(place)) = (print.try_into(), unpack(&state)?) {
                    seen.push(SeenUrl { fingerprint: Fingerprint(print), place, is_sent: false });
                }
            }
        }
        Ok(())
    }

    /// URLs of a host that come back at once.
    pub(super) fn front(&mut self, host: &Host, record: &HostRecord) -> Result<Vec<Entry>> {
        let mut front = Vec::new();
        for from in (0..usize::try_from(record.front).unwrap_or(usize::MAX)).step_by(CHUNK_ENTRIES) {
            front.extend(self.range(host, &self.keys.front(host), from, CHUNK_ENTRIES)?);
        }
        Ok(front)
    }

    /// URLs of a host that come back, and when, if that is said.
    fn entries_back(&mut self, host: &Host, record: &HostRecord) -> Result<Vec<(Entry, Option<Wall>)>> {
        let front = self.front(host, record)?;
        let mut back: Vec<_> = front.into_iter().map(|entry| (entry, None)).collect();
        for leaf in &record.deferred {
            let entries = self.leaf(host, leaf.number, &Plan::default())?;
            back.extend(entries.into_iter().map(|(time, entry)| (entry, Some(Wall(time)))));
        }
        Ok(back)
    }

    /// Writes to a partition without changing anything: once that is confirmed, nobody else had it before.
    pub fn touch(&mut self, partition: u16) -> Result<()> {
        self.commit(partition, Plan::default(), Vec::new())
    }
}
