//! Records: written with all that follows from them at their own place, and read.

use std::borrow::Borrow;

use nephila_core::record::{Found, How, Outcome, Record, RobotsOutcome, Settled};
use nephila_core::site::AgentId;
use nephila_core::url::{Host, identify};
use redis::{Cmd, Value, cmd};

use super::admitting::outbox_field;
use super::commit::Plan;
use super::keys::bucket_of;
use super::values::{
    CHUNK_ENTRIES, Entry, HostRecord, InParts, PART_BYTES, Seen, all_bytes, bytes, pack,
    partition_and_number, place_of, senseless, unpack,
};
use super::{PAGES_MAX, RedisStore, partition_of};
use crate::embedded::capture_of;
use crate::{Error, Result};

/// What stands before a record that lies with others,
const WHOLE: u8 = 0;
/// and before one that does not.
const IN_PARTS: u8 = 1;
/// To either is added twice the number, from 1, that the agent which has its capture has in the partition; 0 if there is none.
/// Those that come later have no number, and what they have archived is known to be theirs only to themselves.
const WRITERS_MAX: usize = 127;
/// The field of a partition with those who have archived something of it.
const WRITERS: &[u8] = b"w";
/// A record that is longer does not lie with others.
const WITH_OTHERS_BYTES_MAX: usize = 4 << 10;

impl RedisStore {
    /// Writes a record: it settles its URL, and what it found is noted to be admitted. Durable after [`RedisStore::flush`].
    pub fn append(&mut self, record: &Record) -> Result<u64> {
        self.append_to(self.partition_for(record)?, record)
    }

    /// Writes a record to this partition, which is that of its host if it has one.
    pub(super) fn append_to(&mut self, number: u16, record: &Record) -> Result<u64> {
        let mut plan = Plan::default();
        let place = place_of(number, self.partition(number)?.sums.records + 1);
        let mut changed = Vec::new();
        match record {
            Record::Settled(settled) => {
                changed.extend(self.plan_settled(place, settled, &mut plan)?);
                self.plan_record(place, record, &mut plan)?;
            }
            Record::Moved { from, moved } => {
                changed.extend(self.plan_moved(place, *from, moved, &mut plan)?);
            }
            _ => self.plan_record(place, record, &mut plan)?,
        }
        let counts = matches!(
            record,
            Record::Settled(_)
                | Record::Robots(_)
                | Record::Host(_)
                | Record::Arrived(_)
                | Record::Claimed { .. }
                | Record::Granted { .. }
        );
        if self.counts && counts {
            self.plan_totals(number, &mut plan, |totals| totals.count(record))?;
        }
        plan.added.records += 1;
        self.commit(number, plan, changed)?;
        Ok(place)
    }

    /// Writes several records, and asks before it does for all that it has to know. Adds their places to `places`; after an error
    /// those that are not among them have not been written.
    pub fn append_all<R: Borrow<Record>>(&mut self, records: &[R], places: &mut Vec<u64>) -> Result<()> {
        let settled = records.iter().filter_map(|record| match record.borrow() {
            Record::Settled(settled) => identify(&settled.url),
            _ => None,
        });
        let (hosts, prints): (Vec<Host>, Vec<[u8; 12]>) =
            settled.map(|(host, print)| (host, print.0)).unzip();
        self.load(&hosts)?;
        let mut commands = Vec::new();
        for (host, print) in hosts.iter().zip(&prints) {
            let record = self.hosts.get(host).ok_or_else(|| senseless("a host is missing"))?;
            commands.extend(self.get_seen_and_taken(host, record, print));
        }
        let mut answers = self.cluster.get_mut().read(commands)?.into_iter();
        self.looked_up.clear();
        for (host, print) in hosts.iter().zip(prints) {
            let record = self.hosts.get(host).ok_or_else(|| senseless("a host is missing"))?;
            self.looked_up.insert(print, read_seen_and_taken(record, &mut answers)?);
        }
        let appended = records.iter().try_for_each(|record| {
            places.push(self.append(record.borrow())?);
            Ok(())
        });
        self.looked_up.clear();
        appended
    }

    /// Where a record belongs: with its host, or else with the first partition that is held.
    fn partition_for(&self, record: &Record) -> Result<u16> {
        let host = match record {
            Record::Settled(settled) => identify(&settled.url).map(|(host, _)| host),
            // Whose they are may be another agent's.
            Record::Robots(robots) if robots.outcome == RobotsOutcome::ForAnother => {
                identify(&robots.url).map(|(host, _)| host)
            }
            Record::Robots(robots) => Some(robots.origin.host.clone()),
            Record::Host(host) => Some(host.host.clone()),
            Record::Claimed { host, .. } | Record::Granted { host, .. } => Some(host.clone()),
            Record::Moved { moved, .. } => moved.hosts.first().map(|moved| moved.host.clone()),
            _ => None,
        };
        let first = || self.partitions.keys().next().copied().unwrap_or(0);
        let number = host.map_or_else(first, |host| partition_of(&host));
        self.partition(number).map(|_| number)
    }

    /// The record itself, and its outbox.
    pub(super) fn plan_record(&mut self, place: u64, record: &Record, plan: &mut Plan) -> Result<()> {
        let (partition, number) = partition_and_number(place);
        let found = record.found();
        if !found.is_empty() {
            let mut parts = Vec::new();
            self.appended += 1;
            split_found(self.appended, found, &mut parts)?;
            if parts.len() > 1 {
                self.parts.insert(place, parts.len());
            }
            let words =
                parts.into_iter().enumerate().flat_map(|(part, found)| [outbox_field(number, part), found]);
            plan.add("HSET", self.keys.outbox(partition), 2, words.collect());
        }
        let bytes = pack(&without_links(record))?;
        let writer = match capture_of(record) {
            Some(_) => self.plan_writer(partition, plan)? << 1,
            None => 0,
        };
        let mut entry = vec![writer | WHOLE];
        if bytes.len() <= WITH_OTHERS_BYTES_MAX {
            entry.extend(bytes);
        } else {
            let parts = bytes.chunks(PART_BYTES);
            let in_parts = InParts { parts: parts.len() as u32, page: page_of(record) };
            entry = [vec![writer | IN_PARTS], pack(&in_parts)?].concat();
            for (part, bytes) in parts.enumerate() {
                plan.set(self.keys.part(partition, number, part), bytes.to_vec());
            }
        }
        plan.push(self.keys.records(partition, (number - 1) / CHUNK_ENTRIES as u64), vec![entry]);
        Ok(())
    }

    /// The number that we have among those who have archived something of a partition, from 1.
    fn plan_writer(&mut self, partition: u16, plan: &mut Plan) -> Result<u8> {
        let mut writers = self.writers_of(partition)?;
        if let Some(at) = writers.iter().position(|writer| *writer == self.writer) {
            return Ok(at as u8 + 1);
        }
        if writers.len() >= WRITERS_MAX {
            return Ok(0);
        }
        writers.push(self.writer);
        let all = writers.iter().flat_map(|writer| writer.0).collect();
        plan.set_field(self.keys.partition(partition), WRITERS, all);
        let number = writers.len() as u8;
        self.writers.get_mut().insert(partition, writers);
        Ok(number)
    }

    /// Those who have archived something of a partition.
    fn writers_of(&self, partition: u16) -> Result<Vec<AgentId>> {
        if let Some(writers) = self.writers.borrow().get(&partition) {
            return Ok(writers.clone());
        }
        let get = cmd("HGET").arg(self.keys.partition(partition)).arg(WRITERS).clone();
        let answer = self.cluster.borrow_mut().read([(partition, get)])?.pop().unwrap_or(Value::Nil);
        let all = bytes(answer)?.unwrap_or_default();
        let writers: Vec<AgentId> = all.as_chunks().0.iter().map(|id| AgentId(*id)).collect();
        self.writers.borrow_mut().insert(partition, writers.clone());
        Ok(writers)
    }

    /// What the end of an attempt changes. Nothing if its URL is nobody's.
    fn plan_settled(
        &mut self,
        place: u64,
        settled: &Settled,
        plan: &mut Plan,
    ) -> Result<Option<(Host, HostRecord)>> {
        let Some((host, print)) = identify(&settled.url) else { return Ok(None) };
        let print = print.0;
        let mut record = self.loaded(&host)?;
        let (seen, taken) = self.seen_and_taken(&host, &record, &print)?;
        let mut redirects = 0;
        match (seen, taken) {
            (None, _) => {
                // It is known whatever the limits say.
                self.make_room(&host, &mut record, 1)?;
                record.known += 1;
                plan.added.known += 1;
            }
            (Some(_), Some(entry)) => {
                redirects = entry.redirects;
                record.taken = record.taken.saturating_sub(1);
                // Whoever asks has waited for who was there before.
                record.is_under_way &= !settled.asked;
                plan.remove_field(self.keys.taken(&host), &print);
            }
            // Its entry in the queue does not count any more.
            (Some(Seen::Queued { .. } | Seen::Done(_) | Seen::Sent(_)), None) => {}
            (Some(_), None) => self.plan_away(&host, &mut record, &print, plan)?,
        }
        if record.nearer {
            plan.remove_field(self.keys.nearer(&host), &print);
        }
        let was_done = seen.is_some_and(Seen::is_done);
        let seen = match settled.outcome {
            Outcome::Retry { not_before, .. } => {
                let Settled { url, depth, how, attempts, found_in, .. } = settled.clone();
                let entry = Entry { url, depth, how, redirects, attempts, found_in };
                self.plan_deferred(&host, &mut record, not_before.0, entry, plan)?;
                Seen::Tried(place)
            }
            Outcome::Sent { .. } => Seen::Sent(place),
            _ => Seen::Done(place),
        };
        match (was_done, seen.is_done()) {
            (false, true) => {
                record.settled += 1;
                plan.added.settled += 1;
            }
            (true, false) => {
                record.settled -= 1;
                plan.removed.settled += 1;
            }
            _ => {}
        }
        plan.set_field(self.keys.bucket(&host, bucket_of(&print, record.buckets)), &print, pack(&seen)?);
        Ok(Some((host, record)))
    }

    /// What is known of a URL, and its entry if it was handed over.
    pub(super) fn seen_and_taken(
        &mut self,
        host: &Host,
        record: &HostRecord,
        print: &[u8; 12],
    ) -> Result<(Option<Seen>, Option<Entry>)> {
        // Only once: it is about to change.
        if let Some(found) = self.looked_up.remove(print) {
            return Ok(found);
        }
        let commands = self.get_seen_and_taken(host, record, print);
        let answers = self.cluster.get_mut().read(commands)?;
        read_seen_and_taken(record, &mut answers.into_iter())
    }

    pub(super) fn get_seen_and_taken(
        &self,
        host: &Host,
        record: &HostRecord,
        print: &[u8; 12],
    ) -> Vec<(u16, Cmd)> {
        let (number, mut commands) = (partition_of(host), Vec::new());
        if record.known > 0 {
            let bucket = self.keys.bucket(host, bucket_of(print, record.buckets));
            commands.push((number, cmd("HGET").arg(bucket).arg(&print[..]).clone()));
        }
        if record.taken > 0 {
            commands.push((number, cmd("HGET").arg(self.keys.taken(host)).arg(&print[..]).clone()));
        }
        commands
    }

    /// The record at a place, and which agent has its capture.
    pub fn read_record(&self, place: u64) -> Result<(Record, Option<AgentId>)> {
        let answer = self.cluster.borrow_mut().read([self.get_entry(place)])?.pop().unwrap_or(Value::Nil);
        self.unpack_record(place, &bytes(answer)?.ok_or(Error::NoRecord { place })?)
    }

    /// The record of which this lies at its place.
    pub(super) fn unpack_record(&self, place: u64, entry: &[u8]) -> Result<(Record, Option<AgentId>)> {
        let (partition, number) = partition_and_number(place);
        let (kind, writer, bytes) = read_head(entry)?;
        let whose = match usize::from(writer).checked_sub(1) {
            Some(at) => self.writers_of(partition)?.get(at).copied(),
            None => None,
        };
        if kind == WHOLE {
            return Ok((unpack(bytes)?, whose));
        }
        let in_parts: InParts = unpack(bytes)?;
        let get = |part| (partition, cmd("GET").arg(self.keys.part(partition, number, part)).clone());
        let parts = (0..in_parts.parts as usize).map(get);
        let parts = all_bytes(Value::Array(self.cluster.borrow_mut().read(parts)?))?;
        Ok((unpack(&parts.concat())?, whose))
    }

    /// The same of several, which are asked for together.
    pub(super) fn read_records(&self, places: &[u64]) -> Result<Vec<(Record, Option<AgentId>)>> {
        let commands: Vec<_> = places.iter().map(|place| self.get_entry(*place)).collect();
        let answers = self.cluster.borrow_mut().read(commands)?;
        let read = |(place, answer): (&u64, Value)| {
            self.unpack_record(*place, &bytes(answer)?.ok_or(Error::NoRecord { place: *place })?)
        };
        places.iter().zip(answers).map(read).collect()
    }

    /// Asks for what lies at a place, which is nothing at places that were never given.
    fn get_entry(&self, place: u64) -> (u16, Cmd) {
        let (partition, number) = partition_and_number(place);
        let before = number.saturating_sub(1);
        let (chunk, at) = (before / CHUNK_ENTRIES as u64, before % CHUNK_ENTRIES as u64);
        let key =
            if number > 0 { self.keys.records(partition, chunk) } else { self.keys.no_records(partition) };
        (partition, cmd("LINDEX").arg(key).arg(at).clone())
    }

    /// The page that a record is about.
    pub(super) fn page(&mut self, place: u64) -> Result<Option<String>> {
        self.read_pages(&[place])?;
        Ok(self.pages.get(&place).cloned().flatten())
    }

    /// Asks for the pages of records that are not known here.
    pub(super) fn read_pages(&mut self, places: &[u64]) -> Result<()> {
        if self.pages.len() + places.len() > PAGES_MAX {
            self.pages.clear();
        }
        let mut missing: Vec<u64> =
            places.iter().filter(|place| !self.pages.contains_key(*place)).copied().collect();
        missing.sort_unstable();
        missing.dedup();
        let commands: Vec<_> = missing.iter().map(|place| self.get_entry(*place)).collect();
        let answers = self.cluster.get_mut().read(commands)?;
        for (place, answer) in missing.into_iter().zip(answers) {
            let page = match bytes(answer)?.as_deref().map(read_head).transpose()? {
                Some((WHOLE, _, bytes)) => page_of(&unpack(bytes)?),
                Some((_, _, bytes)) => unpack::<InParts>(bytes)?.page,
                None => None,
            };
            self.pages.insert(place, page);
        }
        Ok(())
    }

    /// Writes another record in the place of one that does not hold any more.
    pub(super) fn plan_instead(&self, place: u64, record: &Record, plan: &mut Plan) -> Result<()> {
        let (partition, number) = partition_and_number(place);
        let entry = [vec![WHOLE], pack(record)?].concat();
        let (chunk, at) = ((number - 1) / CHUNK_ENTRIES as u64, (number - 1) % CHUNK_ENTRIES as u64);
        plan.add("LSET", self.keys.records(partition, chunk), 2, vec![at.to_string().into_bytes(), entry]);
        Ok(())
    }
}

/// Of what lies at a place: its kind, the number of the agent that has the capture, and the rest.
fn read_head(entry: &[u8]) -> Result<(u8, u8, &[u8])> {
    let (head, rest) = entry.split_first().ok_or_else(|| senseless("a record is empty"))?;
    Ok((head & 1, head >> 1, rest))
}

/// The answers to what was asked about a URL of a host.
pub(super) fn read_seen_and_taken(
    record: &HostRecord,
    answers: &mut impl Iterator<Item = Value>,
) -> Result<(Option<Seen>, Option<Entry>)> {
    let mut next = |is_asked: bool| if is_asked { answers.next().map_or(Ok(None), bytes) } else { Ok(None) };
    let (seen, taken) = (next(record.known > 0)?, next(record.taken > 0)?);
    let seen = seen.map(|seen| unpack(&seen)).transpose()?;
    Ok((seen, taken.map(|entry| unpack(&entry)).transpose()?))
}

/// What is kept of a record once all that it found is admitted: all but its links. What a seed leads to stays, because the
/// scope follows from it.
fn without_links(record: &Record) -> Record {
    let mut record = record.clone();
    match &mut record {
        Record::Seeds(found) => found.clear(),
        Record::Settled(settled) => settled.found.retain(|found| found.how == How::Seed),
        Record::Robots(robots) => robots.found.clear(),
        Record::Arrived(arrived) => arrived.found.clear(),
        Record::Moved { moved, .. } => (moved.found, moved.waiting) = Default::default(),
        _ => {}
    }
    record
}

/// The page that a record is about.
fn page_of(record: &Record) -> Option<String> {
    match record {
        Record::Settled(settled) => Some(settled.url.clone()),
        Record::Robots(robots) => Some(robots.url.clone()),
        Record::Arrived(arrived) => arrived.pages.first()?.0.clone(),
        _ => None,
    }
}

/// Packs what the record of this turn found, in parts that are not too long.
fn split_found(turn: u64, found: &[Found], parts: &mut Vec<Vec<u8>>) -> Result<()> {
    let bytes = pack(&(turn, found))?;
    if bytes.len() <= PART_BYTES || found.len() == 1 {
        parts.push(bytes);
        return Ok(());
    }
    let (first, second) = found.split_at(found.len() / 2);
    split_found(turn, first, parts)?;
    split_found(turn, second, parts)
}
