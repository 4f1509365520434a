//! The sieve: what was found becomes known, once, and goes to the queue of its host.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};
use nephila_core::record::{Found, How};
use nephila_core::url::{Host, identify};
use redis::{Value, cmd};

use super::commit::Plan;
use super::keys::{bucket_of, split_from};
use super::values::{
    BUCKET_URLS, Entry, HostRecord, Limit, Over, Seen, all_bytes, bytes, class_of, fields, list, pack,
    partition_and_number, unpack,
};
use super::{RedisStore, partition_of};
use crate::{Error, Result};

/// Offers that are decided together,
pub(super) const OFFERS_MAX: usize = 500;
/// and that wait for slots that are not served.
pub(super) const OFFERS_LEFT_MAX: usize = 100_000;
/// So many times as many as are handed over are looked through for what can be.
const LOOKED_THROUGH_MAX: usize = 8;
/// Buckets that are split together.
const SPLITS_MAX: usize = 16;

/// A URL that was found.
#[derive(Clone)]
pub(super) struct Offer {
    /// The record that found it.
    pub(super) place: u64,
    pub(super) host: Host,
    pub(super) print: [u8; 12],
    pub(super) found: Found,
}

/// What a part of what a record found is called in its outbox.
pub(super) fn outbox_field(number: u64, part: usize) -> Vec<u8> {
    format!("{number}.{part}").into_bytes()
}

fn read_outbox_field(field: &[u8]) -> Result<(u64, usize)> {
    let numbers = std::str::from_utf8(field).ok().and_then(|field| field.split_once('.'));
    let numbers = numbers.and_then(|(number, part)| Some((number.parse().ok()?, part.parse().ok()?)));
    numbers.ok_or_else(|| super::senseless("an outbox has no number"))
}

/// What is being decided about a host.
struct Deciding {
    host: Host,
    record: HostRecord,
    /// What was known when it began, and what has become known since.
    seen: HashMap<[u8; 12], Seen>,
    /// What to write to the sieve,
    changed: HashMap<[u8; 12], Seen>,
    /// to the ends of queues,
    queued: Vec<(u8, u32, Vec<u8>)>,
    /// to those that come back,
    back: Vec<Vec<u8>>,
    /// which were read, if some may have been tried elsewhere,
    front: Vec<Entry>,
    /// and to what limits keep out.
    kept_out: Vec<(u32, Vec<u8>)>,
    plan: Plan,
}

impl RedisStore {
    /// Notes what a record found.
    pub(super) fn offer_all(&mut self, place: u64, found: &[Found]) {
        for found in found {
            // What cannot be fetched is never found; if it were, it would be nobody's.
            let Some((host, print)) = identify(&found.url) else { continue };
            *self.undecided.entry(place).or_default() += 1;
            if self.partitions.contains_key(&partition_of(&host)) {
                self.offers.push(Offer { place, host, print: print.0, found: found.clone() });
            } else {
                self.elsewhere.push_back((place, found.clone()));
            }
        }
    }

    /// Decides about everything that was offered, so many at a time, but for hosts whose slots are not served.
    pub(super) fn decide_offers(&mut self) -> Result<()> {
        let mut left = Vec::new();
        let cluster = self.cluster.get_mut();
        if !cluster.alone().is_empty() {
            // Nothing is decided where it would not be confirmed for long.
            left.extend(self.offers.extract_if(.., |offer| cluster.is_alone(partition_of(&offer.host))));
        }
        let mut done = Ok(());
        while done.is_ok() && !self.offers.is_empty() {
            let batch = self.offers[..self.offers.len().min(OFFERS_MAX)].to_vec();
            done = self.decide_batch(&batch, &mut |_| {}).map(|unserved| {
                self.offers.drain(..batch.len());
                let (later, decided): (Vec<Offer>, Vec<Offer>) =
                    batch.into_iter().partition(|offer| unserved.contains(&offer.host));
                left.extend(later);
                self.decided.extend(decided);
            });
        }
        self.offers_left = left.len();
        self.left_of = left.iter().map(|offer| partition_of(&offer.host)).collect();
        self.offers.splice(0..0, left);
        if done.is_ok() && !self.decided.is_empty() {
            // First what was decided, and then that it has left the outboxes: what a limit keeps out is noted for each offer.
            self.confirm()?;
            self.confirm()?;
        }
        done
    }

    /// Takes what was decided out of its outbox, once that is durable: the one may be in another slot than the other.
    pub(super) fn empty_decided(&mut self, unconfirmed: &BTreeSet<u16>) -> Result<()> {
        let is_durable = |offer: &mut Offer| !unconfirmed.contains(&partition_of(&offer.host));
        let durable: Vec<u64> = self.decided.extract_if(.., is_durable).map(|offer| offer.place).collect();
        self.acknowledge(durable)
    }

    /// Decides about offers. `with` says what else is to be written with them. Gives back the hosts that cannot be served now.
    fn decide_batch(
        &mut self,
        batch: &[Offer],
        with: &mut dyn FnMut(&mut Deciding),
    ) -> Result<HashSet<Host>> {
        let mut by_host: Vec<(Host, Vec<&Offer>)> = Vec::new();
        let mut numbers: HashMap<&Host, usize> = HashMap::new();
        for offer in batch {
            let number = *numbers.entry(&offer.host).or_insert_with(|| {
                by_host.push((offer.host.clone(), Vec::new()));
                by_host.len() - 1
            });
            by_host[number].1.push(offer);
        }
        let names: Vec<Host> = by_host.iter().map(|(host, _)| host.clone()).collect();
        let mut unserved = self.load_some(&names)?;
        by_host.retain(|(host, _)| !unserved.contains(host));
        let mut decidings = self.read_seen(&by_host, &mut unserved)?;
        for (deciding, (host, offers)) in decidings.iter_mut().zip(&by_host) {
            if unserved.contains(host) {
                continue;
            }
            if offers.iter().any(|offer| returned(&offer.found).is_some_and(|attempts| attempts > 0)) {
                match self.read_back(host, deciding) {
                    Err(Error::Unavailable { .. }) => drop(unserved.insert(host.clone())),
                    read => read?,
                }
            }
            with(deciding);
            let new = offers.iter().filter(|offer| !deciding.seen.contains_key(&offer.print)).count();
            match self.make_room(host, &mut deciding.record, new as u64) {
                Err(Error::Unavailable { .. }) => drop(unserved.insert(host.clone())),
                made => made?,
            }
        }
        // Nothing more is asked: from here on it is done.
        for (mut deciding, (host, offers)) in decidings.into_iter().zip(by_host) {
            if unserved.contains(&host) {
                continue;
            }
            for offer in offers {
                self.decide_one(&mut deciding, offer)?;
            }
            self.commit_decided(deciding)?;
        }
        Ok(unserved)
    }

    /// What the sieve says of all that is offered.
    fn read_seen(
        &mut self,
        by_host: &[(Host, Vec<&Offer>)],
        unserved: &mut HashSet<Host>,
    ) -> Result<Vec<Deciding>> {
        let mut commands = Vec::new();
        let mut asked: Vec<(usize, Vec<[u8; 12]>)> = Vec::new();
        let mut decidings = Vec::new();
        for (number, (host, offers)) in by_host.iter().enumerate() {
            let record = self.hosts.get(host).cloned().unwrap_or_default();
            if record.known > 0 {
                let mut by_bucket: HashMap<u32, Vec<[u8; 12]>> = HashMap::new();
                for offer in offers {
                    by_bucket.entry(bucket_of(&offer.print, record.buckets)).or_default().push(offer.print);
                }
                for (bucket, prints) in by_bucket {
                    let mut get = cmd("HMGET");
                    get.arg(self.keys.bucket(host, bucket));
                    for print in &prints {
                        get.arg(&print[..]);
                    }
                    commands.push((partition_of(host), get));
                    asked.push((number, prints));
                }
            }
            decidings.push(Deciding {
                host: host.clone(),
                record,
                seen: HashMap::new(),
                changed: HashMap::new(),
                queued: Vec::new(),
                back: Vec::new(),
                front: Vec::new(),
                kept_out: Vec::new(),
                plan: Plan::default(),
            });
        }
        let answers = self.cluster.get_mut().read_some(commands)?;
        for ((number, prints), answer) in asked.into_iter().zip(answers) {
            let Some(answer) = answer else {
                unserved.insert(by_host[number].0.clone());
                continue;
            };
            for (print, value) in prints.into_iter().zip(list(answer)?) {
                if let Some(value) = bytes(value)? {
                    decidings[number].seen.insert(print, unpack(&value)?);
                }
            }
        }
        Ok(decidings)
    }

    fn decide_one(&mut self, deciding: &mut Deciding, offer: &Offer) -> Result<()> {
        let depth = offer.found.depth;
        match deciding.seen.get(&offer.print).copied() {
            None => return self.decide_new(deciding, offer),
            Some(Seen::Sent(_)) => {
                if let Some(attempts) = returned(&offer.found) {
                    return self.take_from_other_site(deciding, offer, attempts);
                }
            }
            Some(Seen::Queued { depth: before, .. }) if returned(&offer.found).is_some_and(|of| of > 0) => {
                deciding.bring_back(offer, depth.min(before))?;
            }
            Some(Seen::Out { .. } | Seen::Tried(_)) if returned(&offer.found).is_some_and(|of| of > 0) => {
                let attempts = returned(&offer.found).unwrap_or_default();
                self.was_tried(deciding, &offer.print, attempts)?;
            }
            Some(Seen::Queued { depth: before, .. }) if depth < before => deciding.enqueue(offer)?,
            Some(Seen::Out { depth: before }) if depth < before => {
                deciding.see(offer.print, Seen::Out { depth });
                let entry = pack(&Entry::new(&offer.found, offer.place))?;
                deciding.record.nearer = true;
                deciding.plan.set_field(self.keys.nearer(&deciding.host), &offer.print, entry);
            }
            Some(_) => {}
        }
        self.said.known += 1;
        Ok(())
    }

    /// Reads those that come back, at once or later.
    fn read_back(&mut self, host: &Host, deciding: &mut Deciding) -> Result<()> {
        deciding.front = self.front(host, &deciding.record)?;
        for leaf in &deciding.record.deferred {
            let entries = self.leaf(host, leaf.number, &deciding.plan)?;
            deciding.plan.leaves.insert(leaf.number, entries);
        }
        Ok(())
    }

    /// One that comes back was tried so often elsewhere.
    fn was_tried(&mut self, deciding: &mut Deciding, print: &[u8; 12], attempts: u8) -> Result<()> {
        let is_it = |entry: &Entry| {
            entry.attempts < attempts && entry.fingerprint().is_ok_and(|other| other == *print)
        };
        let Deciding { host, record, plan, front, .. } = deciding;
        if let Some(entry) = front.iter_mut().find(|entry| is_it(entry)) {
            let key = self.keys.front(host);
            plan.add("LREM", key.clone(), 2, vec![b"1".to_vec(), pack(entry)?]);
            entry.attempts = attempts;
            plan.push(key, vec![pack(entry)?]);
            return Ok(());
        }
        let mut leaves: Vec<(u32, Vec<(u64, Entry)>)> =
            plan.leaves.iter().map(|(number, entries)| (*number, entries.clone())).collect();
        for (number, entries) in &mut leaves {
            if let Some((_, entry)) = entries.iter_mut().find(|(_, entry)| is_it(entry)) {
                entry.attempts = attempts;
                return self.plan_leaf(host, record, *number, entries, plan);
            }
        }
        Ok(())
    }

    /// What was given away comes back, not tried or so often.
    fn take_from_other_site(&mut self, deciding: &mut Deciding, offer: &Offer, attempts: u8) -> Result<()> {
        deciding.record.settled = deciding.record.settled.saturating_sub(1);
        deciding.plan.removed.settled += 1;
        // It was known.
        self.said.moved.0 -= 1;
        self.tell_new(&offer.host);
        match attempts {
            0 => deciding.enqueue(offer),
            _ => deciding.bring_back(offer, offer.found.depth),
        }
    }

    fn decide_new(&mut self, deciding: &mut Deciding, offer: &Offer) -> Result<()> {
        let (record, limits) = (&mut deciding.record, &self.limits);
        let limit = if offer.found.depth > limits.max_depth {
            Limit::Depth
        } else if record.known >= limits.max_host_pages {
            Limit::Host
        } else if self.total.known + deciding.plan.added.known >= limits.max_urls {
            Limit::Urls
        } else {
            record.known += 1;
            deciding.plan.added.known += 1;
            self.tell_new(&offer.host);
            return deciding.enqueue(offer);
        };
        let entry = pack(&(limit, Entry::new(&offer.found, offer.place)))?;
        let chunk = record.kept_out.add(entry.len());
        deciding.kept_out.push((chunk, entry));
        let over = Over::of(limit);
        self.said.over.depth += over.depth;
        self.said.over.host += over.host;
        self.said.over.urls += over.urls;
        deciding.plan.added.over += over;
        Ok(())
    }

    fn tell_new(&mut self, host: &Host) {
        // The URLs of a host come one after another.
        match self.said.new.iter_mut().rev().find(|(other, _)| other == host) {
            Some((_, count)) => *count += 1,
            None => self.said.new.push((host.clone(), 1)),
        }
    }

    /// Gives a host so many buckets that it has room for further URLs, before they come: a bucket that was once too large stays
    /// unpacked.
    pub(super) fn make_room(&mut self, host: &Host, record: &mut HostRecord, urls: u64) -> Result<()> {
        let wanted = (record.known + urls).div_ceil(BUCKET_URLS).max(1);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        if record.known == 0 {
            record.buckets = record.buckets.max(wanted);
        }
        while record.buckets < wanted {
            let end = wanted.min(record.buckets.saturating_mul(2)).min(record.buckets + SPLITS_MAX as u32);
            self.split(host, record, end)?;
        }
        Ok(())
    }

    /// Splits buckets until there are so many, at most twice as many as before.
    fn split(&mut self, host: &Host, record: &mut HostRecord, end: u32) -> Result<()> {
        let number = partition_of(host);
        let new: Vec<u32> = (record.buckets..end).collect();
        let get =
            |bucket: &u32| (number, cmd("HGETALL").arg(self.keys.bucket(host, split_from(*bucket))).clone());
        let commands: Vec<_> = new.iter().map(get).collect();
        let answers = self.cluster.get_mut().read(commands)?;
        let mut plan = Plan::default();
        for (bucket, answer) in new.into_iter().zip(answers) {
            let (mut moved, mut gone) = (Vec::new(), Vec::new());
            for (print, value) in fields(answer)? {
                let is_moved =
                    <[u8; 12]>::try_from(&print[..]).is_ok_and(|print| bucket_of(&print, end) == bucket);
                if is_moved {
                    gone.push(print.clone());
                    moved.extend([print, value]);
                }
            }
            if !gone.is_empty() {
                plan.add("HSET", self.keys.bucket(host, bucket), 2, moved);
                plan.add("HDEL", self.keys.bucket(host, split_from(bucket)), 1, gone);
            }
        }
        record.buckets = end;
        // Of the record only this: what is being decided is not in it yet.
        let mut committed = self.hosts.get(host).cloned().unwrap_or_default();
        committed.buckets = end;
        self.commit(number, plan, vec![(host.clone(), committed)])
    }

    fn commit_decided(&mut self, deciding: Deciding) -> Result<()> {
        let Deciding { host, record, changed, queued, back, kept_out, mut plan, .. } = deciding;
        if changed.is_empty() && kept_out.is_empty() && plan.words() == 0 {
            return Ok(());
        }
        let mut by_bucket: HashMap<u32, Vec<Vec<u8>>> = HashMap::new();
        for (print, seen) in changed {
            let words = by_bucket.entry(bucket_of(&print, record.buckets)).or_default();
            words.extend([print.to_vec(), pack(&seen)?]);
        }
        for (bucket, words) in by_bucket {
            plan.add("HSET", self.keys.bucket(&host, bucket), 2, words);
        }
        let mut by_chunk: HashMap<String, Vec<Vec<u8>>> = HashMap::new();
        for (class, chunk, entry) in queued {
            by_chunk.entry(self.keys.queue(&host, class, chunk)).or_default().push(entry);
        }
        for (chunk, entry) in kept_out {
            by_chunk.entry(self.keys.kept_out(&host, chunk)).or_default().push(entry);
        }
        for (key, entries) in by_chunk {
            plan.push(key, entries);
        }
        plan.push(self.keys.front(&host), back);
        let number = partition_of(&host);
        // The record may have become that of a host that is not new any more.
        let is_new = self.hosts.get(&host).is_none_or(|record| record.is_new);
        self.commit(number, plan, vec![(host, HostRecord { is_new, ..record })])
    }

    /// Whether something is not decided that was offered of hosts of these partitions, when that was last tried.
    pub fn is_left_of(&self, partitions: &BTreeSet<u16>) -> bool {
        !self.left_of.is_disjoint(partitions)
    }

    /// Hands over what was found of hosts of partitions that others hold, so many at most, to be sent to them, if they can have
    /// it confirmed. Each has to be [acknowledged](RedisStore::acknowledge); what was not is handed over again to who opens the
    /// partition of its record next.
    pub fn take_elsewhere(&mut self, max: usize) -> Vec<(u64, Found)> {
        let cluster = self.cluster.get_mut();
        if cluster.alone().is_empty() {
            return self.elsewhere.drain(..max.min(self.elsewhere.len())).collect();
        }
        let mut taken = Vec::new();
        for _ in 0..self.elsewhere.len().min(LOOKED_THROUGH_MAX * max) {
            let Some((place, found)) = self.elsewhere.pop_front() else { break };
            if identify(&found.url).is_some_and(|(host, _)| cluster.is_alone(partition_of(&host))) {
                self.elsewhere.push_back((place, found));
                continue;
            }
            taken.push((place, found));
            if taken.len() == max {
                break;
            }
        }
        taken
    }

    /// Offers what others found, with the places of their records. Decided and [confirmed](RedisStore::confirm), it may be
    /// acknowledged to them; of what was [handed over](RedisStore::take_elsewhere) here before, that is done then. Gives back
    /// what is not of our partitions.
    pub fn offer(&mut self, found: Vec<(u64, Found)>) -> Vec<(u64, Found)> {
        let mut not_ours = Vec::new();
        for (place, found) in found {
            let Some((host, print)) = identify(&found.url) else { continue };
            if self.partitions.contains_key(&partition_of(&host)) {
                self.offers.push(Offer { place, host, print: print.0, found });
            } else {
                not_ours.push((place, found));
            }
        }
        not_ours
    }

    /// Takes note that others have durably got what records at these places found, each place once for each URL.
    pub fn acknowledge(&mut self, places: impl IntoIterator<Item = u64>) -> Result<()> {
        // What others found is noted in outboxes of theirs, and they are told when it is durable.
        let mut done: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
        for place in places {
            let Some(left) = self.undecided.get_mut(&place) else { continue };
            *left -= 1;
            if *left == 0 {
                self.undecided.remove(&place);
                let (partition, number) = partition_and_number(place);
                let parts = self.parts.remove(&place).unwrap_or(1);
                done.entry(partition).or_default().extend((0..parts).map(|part| outbox_field(number, part)));
            }
        }
        for (partition, numbers) in done {
            let mut plan = Plan::default();
            plan.add("HDEL", self.keys.outbox(partition), 1, numbers);
            self.commit(partition, plan, Vec::new())?;
        }
        Ok(())
    }

    /// Offers what was found in an earlier life and not admitted.
    pub(super) fn empty_outboxes(&mut self, partitions: &[u16]) -> Result<()> {
        let is_used =
            |number: &u16| self.partitions.get(number).is_some_and(|partition| partition.sums.records > 0);
        let used: Vec<u16> = partitions.iter().copied().filter(is_used).collect();
        let get = |number: &u16| (*number, cmd("HGETALL").arg(self.keys.outbox(*number)).clone());
        let commands: Vec<_> = used.iter().map(get).collect();
        let answers = self.cluster.get_mut().read(commands)?;
        // In the order in which they were found: all are of the life before this one.
        let mut left: Vec<(u64, usize, u64, Vec<Found>)> = Vec::new();
        for (partition, answer) in used.into_iter().zip(answers) {
            for (field, found) in fields(answer)? {
                let (number, part) = read_outbox_field(&field)?;
                let place = super::place_of(partition, number);
                let parts = self.parts.entry(place).or_insert(1);
                *parts = (*parts).max(part + 1);
                let (turn, found) = unpack(&found)?;
                left.push((turn, part, place, found));
            }
        }
        left.sort_by_key(|(turn, part, ..)| (*turn, *part));
        for (_, _, place, found) in left {
            self.offer_all(place, &found);
        }
        self.decide_offers()?;
        // Whoever asked has ended.
        self.said = Default::default();
        Ok(())
    }

    /// Offers again what limits have kept out, under the limits of today.
    pub(super) fn readmit(&mut self, partitions: &[u16]) -> Result<()> {
        let keeps =
            |number: &u16| self.partitions.get(number).is_some_and(|held| held.sums.over != Over::default());
        for number in partitions.iter().copied().filter(keeps).collect::<Vec<u16>>() {
            for host in self.names(number)? {
                self.readmit_host(&host)?;
            }
        }
        self.said = Default::default();
        Ok(())
    }

    fn readmit_host(&mut self, host: &Host) -> Result<()> {
        let number = partition_of(host);
        let record = self.loaded(host)?;
        if record.kept_out.entries == 0 {
            return Ok(());
        }
        for chunk in record.kept_out.head.0..=record.kept_out.tail.0 {
            let key = self.keys.kept_out(host, chunk);
            let get = cmd("LRANGE").arg(&key).arg(0).arg(-1).clone();
            let answer = self.cluster.get_mut().read([(number, get)])?.pop().unwrap_or(Value::Nil);
            let (mut batch, mut over) = (Vec::new(), Over::default());
            for entry in all_bytes(answer)? {
                let (limit, entry): (Limit, Entry) = unpack(&entry)?;
                over += Over::of(limit);
                let print = entry.fingerprint()?;
                batch.push(Offer { place: entry.found_in, host: host.clone(), print, found: entry.found() });
            }
            let entries = batch.len() as u16;
            if entries == 0 {
                continue;
            }
            // They are counted anew, and in the same commit they are where they belong then.
            let unserved = self.decide_batch(&batch, &mut |deciding| {
                deciding.record.kept_out.drop_first(entries, entries);
                deciding.plan.removed.over = over;
                deciding.plan.remove(key.clone());
            })?;
            if !unserved.is_empty() {
                return Err(Error::Unavailable { what: "slots are not served", seconds: 0 });
            }
        }
        Ok(())
    }
}

/// How often a URL was tried that another site gives back.
fn returned(found: &Found) -> Option<u8> {
    if let How::Returned { attempts, .. } = found.how { Some(attempts) } else { None }
}

impl Deciding {
    fn see(&mut self, print: [u8; 12], seen: Seen) {
        self.seen.insert(print, seen);
        self.changed.insert(print, seen);
    }

    /// To those that come back: it is not one that nobody has tried.
    fn bring_back(&mut self, offer: &Offer, depth: u16) -> Result<()> {
        let found = Found { depth, ..offer.found.clone() };
        self.record.front += 1;
        self.back.push(pack(&Entry::new(&found, offer.place))?);
        self.see(offer.print, Seen::Out { depth });
        Ok(())
    }

    /// To the end of the queue of its depth.
    fn enqueue(&mut self, offer: &Offer) -> Result<()> {
        let entry = pack(&Entry::new(&offer.found, offer.place))?;
        let class = class_of(offer.found.depth);
        let chunk = self.record.queue(class).add(entry.len());
        self.queued.push((class, chunk, entry));
        self.see(offer.print, Seen::Queued { depth: offer.found.depth, chunk });
        Ok(())
    }
}
