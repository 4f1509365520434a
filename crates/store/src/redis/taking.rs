//! The queues: what is due is handed over, and comes back when it was not tried or its time has come again.

use nephila_core::agent::{Due, Taken};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host};
use redis::{Value, cmd};

use super::commit::Plan;
use super::keys::bucket_of;
use super::values::{
    CHUNK_BYTES_MAX, CHUNK_ENTRIES, Entry, HostRecord, Leaf, Seen, all_bytes, bytes, fields, list, pack,
    senseless, unpack,
};
use super::{RedisStore, partition_of};
use crate::{Error, Result};

/// URLs that are handed over at once.
const TAKEN_MAX: usize = 500;

/// What is being handed over.
struct Taking {
    entries: Vec<Entry>,
    max: usize,
    record: HostRecord,
    plan: Plan,
}

impl Taking {
    fn room(&self) -> usize {
        self.max - self.entries.len()
    }
}

impl RedisStore {
    /// Begins to hand over what [`Store::take`] says when it is confirmed, so that several need be confirmed but once. What was
    /// begun and not said is said to the next who asks, whatever it asks for.
    pub fn begin_take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<()> {
        if self.handed.contains_key(host) {
            return Ok(());
        }
        self.recall(host, now)?;
        let record = self.loaded(host)?;
        let mut taking =
            Taking { entries: Vec::new(), max: max.min(TAKEN_MAX), record, plan: Plan::default() };
        if fresh_first {
            self.take_queued(host, &mut taking)?;
            self.take_back(host, &mut taking)?;
        } else {
            self.take_back(host, &mut taking)?;
            self.take_queued(host, &mut taking)?;
        }
        let Taking { entries, mut record, mut plan, .. } = taking;
        let places: Vec<u64> = entries.iter().map(|entry| entry.found_in).collect();
        self.read_pages(&places)?;
        let mut words = Vec::new();
        for entry in &entries {
            words.extend([entry.fingerprint()?.to_vec(), pack(entry)?]);
        }
        record.taken += entries.len() as u64;
        let (left, next, memo) = (record.due(), record.next(), record.memo.clone());
        if !words.is_empty() {
            plan.add("HSET", self.keys.taken(host), 2, words);
        }
        let mut due = Vec::new();
        for entry in entries {
            let via = self.pages.get(&entry.found_in).cloned().flatten();
            due.push(entry.due(via)?);
        }
        if plan.words() > 0 {
            self.commit(partition_of(host), plan, vec![(host.clone(), record)])?;
        }
        self.handed.insert(host.clone(), Taken { host: host.clone(), due, left, next, memo });
        Ok(())
    }

    pub(super) fn take_of(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken> {
        self.begin_take(host, max, fresh_first, now)?;
        // That something of this host may be under way must be known to whoever comes after us.
        self.flush_partitions(&[partition_of(host)])?;
        self.handed.remove(host).ok_or(Error::Fenced { partition: partition_of(host) })
    }

    /// Takes those that come back.
    fn take_back(&mut self, host: &Host, taking: &mut Taking) -> Result<()> {
        let count = taking.room().min(usize::try_from(taking.record.front).unwrap_or(usize::MAX));
        if count == 0 {
            return Ok(());
        }
        let key = self.keys.front(host);
        let entries = self.range(host, &key, 0, count)?;
        taking.record.front -= entries.len() as u64;
        let words = [entries.len().to_string(), "-1".to_owned()].map(String::into_bytes);
        taking.plan.add("LTRIM", key, 2, words.into());
        taking.entries.extend(entries);
        Ok(())
    }

    /// Takes the others, the lowest class first.
    fn take_queued(&mut self, host: &Host, taking: &mut Taking) -> Result<()> {
        while taking.room() > 0 {
            let Some((class, ends)) = taking.record.queues.iter().find(|(_, ends)| ends.entries > 0).copied()
            else {
                break;
            };
            let (chunk, gone) = ends.head;
            let key = self.keys.queue(host, class, chunk);
            let entries = self.range(host, &key, usize::from(gone), CHUNK_ENTRIES)?;
            let of = gone + entries.len() as u16;
            let states = self.seen(host, &taking.record, &entries)?;
            let mut examined = 0;
            for (entry, (print, seen)) in entries.into_iter().zip(states) {
                if taking.room() == 0 {
                    break;
                }
                examined += 1;
                // Others were found nearer or settled since.
                if seen == Some(Seen::Queued { depth: entry.depth, chunk }) {
                    let bucket = self.keys.bucket(host, bucket_of(&print, taking.record.buckets));
                    taking.plan.set_field(bucket, &print, pack(&Seen::Out { depth: entry.depth })?);
                    taking.entries.push(entry);
                }
            }
            if examined == 0 {
                // Whoever has taken the partition over since has taken them: without this there would be no end.
                return Err(senseless("a queue has fewer URLs than it should"));
            }
            if taking.record.queue(class).drop_first(examined, of) {
                taking.plan.remove(key);
            }
        }
        // Nothing refers to chunks that are gone, so that others may have their names.
        taking.record.queues.retain(|(_, ends)| ends.entries > 0);
        Ok(())
    }

    /// Entries of a list.
    pub(super) fn range(&mut self, host: &Host, key: &str, from: usize, count: usize) -> Result<Vec<Entry>> {
        let get = cmd("LRANGE").arg(key).arg(from).arg(from + count - 1).clone();
        let answer = self.cluster.get_mut().read([(partition_of(host), get)])?.pop().unwrap_or(Value::Nil);
        all_bytes(answer)?.iter().map(|entry| unpack(entry)).collect()
    }

    /// What the sieve says of entries.
    pub(super) fn seen(
        &mut self,
        host: &Host,
        record: &HostRecord,
        entries: &[Entry],
    ) -> Result<Vec<([u8; 12], Option<Seen>)>> {
        let prints = entries.iter().map(Entry::fingerprint).collect::<Result<Vec<_>>>()?;
        let get = |print: &[u8; 12]| {
            let bucket = self.keys.bucket(host, bucket_of(print, record.buckets));
            (partition_of(host), cmd("HGET").arg(bucket).arg(&print[..]).clone())
        };
        let commands: Vec<_> = prints.iter().map(get).collect();
        let answers = self.cluster.get_mut().read(commands)?;
        let seen = |answer| bytes(answer)?.map(|seen| unpack(&seen)).transpose();
        prints.into_iter().zip(answers).map(|(print, answer)| Ok((print, seen(answer)?))).collect()
    }

    pub(super) fn put_back_of(&mut self, host: &Host, due: &[Due]) -> Result<()> {
        let mut record = self.loaded(host)?;
        if record.taken == 0 || due.is_empty() {
            return Ok(());
        }
        let key = self.keys.taken(host);
        let mut get = cmd("HMGET");
        get.arg(&key);
        let mut prints = Vec::new();
        for due in due {
            let print = Fingerprint::of(&due.url).0;
            if !prints.contains(&print) {
                get.arg(&print[..]);
                prints.push(print);
            }
        }
        let answer = self.cluster.get_mut().read([(partition_of(host), get)])?.pop().unwrap_or(Value::Nil);
        let (mut gone, mut entries) = (Vec::new(), Vec::new());
        for (print, entry) in prints.into_iter().zip(list(answer)?) {
            if let Some(entry) = bytes(entry)? {
                gone.push(print.to_vec());
                entries.push(entry);
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        record.taken = record.taken.saturating_sub(gone.len() as u64);
        record.front += entries.len() as u64;
        // Each comes before those that were pushed before it.
        entries.reverse();
        let mut plan = Plan::default();
        plan.add("HDEL", key, 1, gone);
        plan.add("LPUSH", self.keys.front(host), 1, entries);
        self.commit(partition_of(host), plan, vec![(host.clone(), record)])
    }

    /// What was taken in an earlier epoch comes back.
    pub(super) fn put_all_back(&mut self, host: &Host) -> Result<()> {
        let number = partition_of(host);
        let key = self.keys.taken(host);
        let get = cmd("HGETALL").arg(&key).clone();
        let answer = self.cluster.get_mut().read([(number, get)])?.pop().unwrap_or(Value::Nil);
        let entries: Vec<Vec<u8>> = fields(answer)?.into_iter().map(|(_, entry)| entry).collect();
        let mut record = self.hosts.get(host).cloned().unwrap_or_default();
        record.taken = 0;
        (record.is_under_way, record.is_marked) = (record.is_under_way || record.is_marked, false);
        record.front += entries.len() as u64;
        let mut plan = Plan::default();
        plan.push(self.keys.front(host), entries);
        plan.remove(key);
        self.commit(number, plan, vec![(host.clone(), record)])
    }

    /// Has those come back whose time has come.
    fn recall(&mut self, host: &Host, now: Wall) -> Result<()> {
        let mut record = self.loaded(host)?;
        let late: Vec<Leaf> = record.deferred.iter().filter(|leaf| leaf.first <= now.0).copied().collect();
        if late.is_empty() {
            return Ok(());
        }
        let mut plan = Plan::default();
        for leaf in late {
            let mut entries = self.leaf(host, leaf.number, &plan)?;
            let later = entries.split_off(entries.partition_point(|(time, _)| *time <= now.0));
            record.front += entries.len() as u64;
            let entries = entries.iter().map(|(_, entry)| pack(entry)).collect::<Result<Vec<_>>>()?;
            plan.push(self.keys.front(host), entries);
            self.plan_leaf(host, &mut record, leaf.number, &later, &mut plan)?;
        }
        self.commit(partition_of(host), plan, vec![(host.clone(), record)])
    }

    /// What is in a leaf, in the order of time.
    pub(super) fn leaf(&mut self, host: &Host, number: u32, plan: &Plan) -> Result<Vec<(u64, Entry)>> {
        if let Some(planned) = plan.leaves.get(&number) {
            return Ok(planned.clone());
        }
        let get = cmd("GET").arg(self.keys.deferred(host, number)).clone();
        let answer = self.cluster.get_mut().read([(partition_of(host), get)])?.pop().unwrap_or(Value::Nil);
        unpack(&bytes(answer)?.ok_or_else(|| senseless("what is deferred is missing"))?)
    }

    /// Writes a leaf, or removes one that is empty.
    pub(super) fn plan_leaf(
        &mut self,
        host: &Host,
        record: &mut HostRecord,
        number: u32,
        entries: &[(u64, Entry)],
        plan: &mut Plan,
    ) -> Result<()> {
        let at = record.deferred.iter().position(|leaf| leaf.number == number);
        let at = at.ok_or_else(|| senseless("a leaf is missing"))?;
        plan.leaves.insert(number, entries.to_vec());
        let Some((first, _)) = entries.first() else {
            record.deferred.remove(at);
            plan.remove(self.keys.deferred(host, number));
            return Ok(());
        };
        record.deferred[at] = Leaf { first: *first, number, entries: entries.len() as u32 };
        plan.set(self.keys.deferred(host, number), pack(&entries)?);
        Ok(())
    }

    /// Has a URL wait for a time, after those that wait for the same.
    pub(super) fn plan_deferred(
        &mut self,
        host: &Host,
        record: &mut HostRecord,
        time: u64,
        entry: Entry,
        plan: &mut Plan,
    ) -> Result<()> {
        let at = record.deferred.partition_point(|leaf| leaf.first <= time).saturating_sub(1);
        let mut entries = match record.deferred.get(at) {
            Some(leaf) => self.leaf(host, leaf.number, plan)?,
            None => Vec::new(),
        };
        if entries.is_empty() {
            let leaf = Leaf { first: time, number: record.leaf_numbers, entries: 0 };
            record.leaf_numbers += 1;
            record.deferred.insert(at, leaf);
        }
        entries.insert(entries.partition_point(|(other, _)| *other <= time), (time, entry));
        let is_long = entries.len() > CHUNK_ENTRIES || pack(&entries)?.len() > CHUNK_BYTES_MAX;
        if is_long && entries.len() > 1 {
            let second = entries.split_off(entries.len() / 2);
            let leaf = Leaf { first: second[0].0, number: record.leaf_numbers, entries: 0 };
            record.leaf_numbers += 1;
            record.deferred.insert(at + 1, leaf);
            self.plan_leaf(host, record, leaf.number, &second, plan)?;
        }
        let number = record.deferred[at].number;
        self.plan_leaf(host, record, number, &entries, plan)
    }

    /// Removes a URL from those that come back or are deferred. It is one of these, and nobody took it: that is rare.
    pub(super) fn plan_away(
        &mut self,
        host: &Host,
        record: &mut HostRecord,
        print: &[u8; 12],
        plan: &mut Plan,
    ) -> Result<()> {
        if record.front > 0 {
            let key = self.keys.front(host);
            for entry in self.range(host, &key, 0, record.front as usize)? {
                if entry.fingerprint()? == *print {
                    record.front -= 1;
                    plan.add("LREM", key, 2, vec![b"1".to_vec(), pack(&entry)?]);
                    return Ok(());
                }
            }
        }
        self.plan_not_deferred(host, record, print, plan)
    }

    /// The same of those that are deferred alone.
    pub(super) fn plan_not_deferred(
        &mut self,
        host: &Host,
        record: &mut HostRecord,
        print: &[u8; 12],
        plan: &mut Plan,
    ) -> Result<()> {
        for leaf in record.deferred.clone() {
            let mut entries = self.leaf(host, leaf.number, plan)?;
            let before = entries.len();
            entries.retain(|(_, entry)| entry.fingerprint().is_ok_and(|other| other != *print));
            if entries.len() < before {
                return self.plan_leaf(host, record, leaf.number, &entries, plan);
            }
        }
        Ok(())
    }
}
