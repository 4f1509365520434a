//! All that this store knows, piece by piece, and taking such pieces in: see [`crate::Piece`]. And what the store knows of copies
//! into it and out of it, so that nobody begins to work on half a crawl, or on one that has moved.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};
use nephila_core::agent::Totals;
use nephila_core::assign::slot;
use nephila_core::frontier::HostMemo;
use nephila_core::record::{Arrived, Found, Record, RobotsRecord, Settled};
use nephila_core::site::{AgentId, Moved, MovedHost, SeenUrl};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, identify};
use redis::{Value, cmd};
use serde::{Deserialize, Serialize};

use super::commit::Plan;
use super::keys::bucket_of;
use super::leases::TAG;
use super::values::{CHUNK_ENTRIES, Entry, HostRecord, Limit, Seen, all_bytes, bytes, fields, pack, unpack};
use super::{RedisOptions, RedisStore, partition_of};
use crate::copy::PIECES_MAX;
use crate::{Error, Piece, Result, Store, StoreLimits};

/// Hosts whose names are read together.
const HOSTS_MAX: usize = 256;
/// Pages whose places are remembered while a copy is made.
const PAGES_MAX: usize = 100_000;
/// What is said of an agent that has the crawl in a store of its own: the field.
const LEFT: &[u8] = b"left";

/// What the store knows of an agent that copies its crawl here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyNote {
    /// The agent's name.
    pub name: String,
    /// All that it knew is here.
    pub is_done: bool,
    /// The agents of its site, which all have to do the same.
    pub members: Vec<(AgentId, String)>,
    /// How far the journal went that was copied: an agent that has written more since is not here with all that it knows.
    pub journal_end: u64,
}

/// Copies of a crawl into a store and out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// By the agents that copied their part here, or began to.
    pub notes: BTreeMap<AgentId, CopyNote>,
    /// The agent that has the whole crawl in a store of its own since, and its name.
    pub left_to: Option<(AgentId, String)>,
}

impl Copies {
    /// The names of agents whose part of the crawl is not here, or not whole.
    pub fn missing(&self) -> BTreeSet<&str> {
        let is_done = |id: &AgentId| self.notes.get(id).is_some_and(|note| note.is_done);
        let members = self.notes.values().flat_map(|note| &note.members);
        members.filter(|(id, _)| !is_done(id)).map(|(_, name)| name.as_str()).collect()
    }

    /// Whether an agent is of the site whose crawl is copied here.
    pub fn are_of(&self, agent: AgentId) -> bool {
        self.notes.values().any(|note| note.members.iter().any(|(id, _)| *id == agent))
    }
}

impl RedisStore {
    /// What it knows of copies.
    pub fn copies(&mut self) -> Result<Copies> {
        let get = cmd("HGETALL").arg(self.keys.copies()).clone();
        let answer = self.cluster.get_mut().read([(slot(TAG), get)])?.pop().unwrap_or(Value::Nil);
        let mut copies = Copies::default();
        for (field, value) in fields(answer)? {
            match <[u8; 8]>::try_from(&field[..]) {
                Ok(id) => drop(copies.notes.insert(AgentId(id), unpack(&value)?)),
                Err(_) => copies.left_to = Some(unpack(&value)?),
            }
        }
        Ok(copies)
    }

    /// Notes durably how far an agent has come that copies its crawl here, and in the same step adds what it has counted.
    pub fn note_copy(&mut self, agent: AgentId, note: &CopyNote, totals: &Totals) -> Result<()> {
        let mut plan = Plan::default();
        plan.set_field(self.keys.copies(), &agent.0, pack(note)?);
        self.plan_totals(slot(TAG), &mut plan, |sum| sum.add(totals))?;
        self.commit(slot(TAG), plan, Vec::new())?;
        self.flush()
    }

    /// Notes durably that an agent has the whole crawl in a store of its own.
    pub fn note_left(&mut self, agent: AgentId, name: &str) -> Result<()> {
        let mut plan = Plan::default();
        plan.set_field(self.keys.copies(), LEFT, pack(&(agent, name))?);
        self.commit(slot(TAG), plan, Vec::new())?;
        self.flush()
    }

    /// Whether nothing was ever written to the partitions that are held.
    pub fn is_unused(&self) -> bool {
        self.partitions.values().all(|partition| partition.version == 0)
    }

    /// Passes on all that it knows of the partitions that are held.
    pub fn each_piece(&mut self, each: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
        self.each_loaded(&mut |store, host| store.pieces_of_host(host, each))?;
        self.each_loaded(&mut |store, host| store.pieces_kept_out(host, each))
    }

    fn each_loaded(&mut self, each: &mut dyn FnMut(&mut RedisStore, &Host) -> Result<()>) -> Result<()> {
        for partition in self.partitions.keys().copied().collect::<Vec<u16>>() {
            let mut from = 0;
            loop {
                let names = self.names_from(partition, from, HOSTS_MAX)?;
                if names.is_empty() {
                    break;
                }
                from += names.len() as u64;
                for host in names {
                    each(self, &host)?;
                    self.hosts.remove(&host);
                }
            }
        }
        Ok(())
    }

    fn pieces_of_host(&mut self, host: &Host, each: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
        let record = self.loaded(host)?;
        let number = partition_of(host);
        if let Some(memo) = record.memo.clone() {
            let rules = self.rules_of(&memo);
            each(Piece::Host { host: host.clone(), memo, rules })?;
        }
        for bucket in 0..record.buckets {
            let get = cmd("HGETALL").arg(self.keys.bucket(host, bucket)).clone();
            let answer = self.cluster.get_mut().read([(number, get)])?.pop().unwrap_or(Value::Nil);
            let mut tried = Vec::new();
            for (print, seen) in fields(answer)? {
                if let (Ok(print), Seen::Tried(place) | Seen::Done(place) | Seen::Sent(place)) =
                    (print.try_into(), unpack(&seen)?)
                {
                    tried.push((print, place));
                }
            }
            self.pieces_of_tried(host, tried, each)?;
        }
        for (class, ends) in &record.queues {
            let mut gone = usize::from(ends.head.1);
            for chunk in ends.head.0..=ends.tail.0 {
                let key = self.keys.queue(host, *class, chunk);
                let entries = self.range(host, &key, std::mem::take(&mut gone), CHUNK_ENTRIES)?;
                let is_there = |entry: &Entry, seen| seen == Some(Seen::Queued { depth: entry.depth, chunk });
                self.pieces_of_waiting(host, &record, entries, &is_there, each)?;
            }
        }
        for from in (0..record.front as usize).step_by(CHUNK_ENTRIES) {
            let entries = self.range(host, &self.keys.front(host), from, CHUNK_ENTRIES)?;
            let is_untried = |_: &Entry, seen| matches!(seen, Some(Seen::Out { .. }));
            self.pieces_of_waiting(host, &record, entries, &is_untried, each)?;
        }
        // What other sites have tried may wait for a time. That, and how often it was tried, does not come along.
        for leaf in &record.deferred {
            let entries = self.leaf(host, leaf.number, &Plan::default())?;
            let entries = entries.into_iter().map(|(_, entry)| entry).collect();
            let is_untried = |_: &Entry, seen| matches!(seen, Some(Seen::Out { .. }));
            self.pieces_of_waiting(host, &record, entries, &is_untried, each)?;
        }
        Ok(())
    }

    fn pieces_kept_out(&mut self, host: &Host, each: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
        let (record, number) = (self.loaded(host)?, partition_of(host));
        let kept_out = if record.kept_out.entries > 0 { Some(record.kept_out) } else { None };
        for chunk in kept_out.into_iter().flat_map(|ends| ends.head.0..=ends.tail.0) {
            let get = cmd("LRANGE").arg(self.keys.kept_out(host, chunk)).arg(0).arg(-1).clone();
            let answer = self.cluster.get_mut().read([(number, get)])?.pop().unwrap_or(Value::Nil);
            for entry in all_bytes(answer)? {
                let (_, entry): (Limit, Entry) = unpack(&entry)?;
                let via = self.page(entry.found_in)?;
                each(Piece::Waiting { found: entry.found(), via, is_admitted: false })?;
            }
        }
        Ok(())
    }

    /// The robots.txt files that are kept of a host. One that cannot be read is asked for again.
    fn rules_of(&self, memo: &HostMemo) -> Vec<(u64, RobotsRecord, Option<AgentId>)> {
        let mut places: Vec<u64> = memo.places().collect();
        places.dedup();
        let rules = |place| match self.read_record(place) {
            Ok((Record::Robots(robots), by)) => Some((place, robots, by)),
            _ => None,
        };
        places.into_iter().filter_map(rules).collect()
    }

    fn pieces_of_tried(
        &mut self,
        host: &Host,
        tried: Vec<([u8; 12], u64)>,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        let places: Vec<u64> = tried.iter().map(|(_, place)| *place).collect();
        for ((print, place), (record, by)) in tried.into_iter().zip(self.read_records(&places)?) {
            match record {
                Record::Settled(settled) => {
                    let via = self.page(settled.found_in)?;
                    let settled = Box::new(Settled { found: Vec::new(), found_in: 0, ..settled });
                    each(Piece::Tried { settled, via, by })?;
                }
                Record::Moved { from, moved } => {
                    let seen = seen_in(&moved, &print).ok_or(Error::NoRecord { place })?;
                    each(Piece::Elsewhere { host: host.clone(), seen, agent: from })?;
                }
                _ => return Err(Error::NoRecord { place }),
            }
        }
        Ok(())
    }

    fn pieces_of_waiting(
        &mut self,
        host: &Host,
        record: &HostRecord,
        entries: Vec<Entry>,
        is_one: &dyn Fn(&Entry, Option<Seen>) -> bool,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        let states = self.seen(host, record, &entries)?;
        self.read_pages(&entries.iter().map(|entry| entry.found_in).collect::<Vec<_>>())?;
        for (mut entry, (print, seen)) in entries.into_iter().zip(states) {
            if !is_one(&entry, seen) {
                continue;
            }
            if let Some(nearer) = self.found_nearer(host, record, &print)? {
                entry = nearer;
            }
            let via = self.page(entry.found_in)?;
            each(Piece::Waiting { found: entry.found(), via, is_admitted: true })?;
        }
        Ok(())
    }
}

/// What was moved says of a URL.
pub(super) fn seen_in(moved: &Moved, print: &[u8; 12]) -> Option<SeenUrl> {
    moved.hosts.iter().flat_map(|host| &host.seen).find(|seen| seen.fingerprint.0 == *print).copied()
}

/// A store that takes in what others know. It holds all partitions, and several may be filled one after another.
pub struct RedisCopy {
    store: RedisStore,
    me: AgentId,
    gathered: Vec<Piece>,
    /// What admission stops at, once all has come that was admitted before.
    limits: Option<StoreLimits>,
    /// Where pages are that URLs were found on.
    pages: HashMap<String, u64>,
}

impl RedisCopy {
    /// Has a store take in pieces, which nobody else may write to meanwhile.
    pub fn begin(store: RedisStore, options: &RedisOptions) -> RedisCopy {
        // What agents have counted comes along as a sum.
        let store = RedisStore { counts: false, limits: StoreLimits::NONE, ..store };
        let limits = Some(options.limits);
        RedisCopy { store, me: options.writer, gathered: Vec::new(), limits, pages: HashMap::new() }
    }

    /// Takes a piece in.
    pub fn add(&mut self, piece: Piece) -> Result<()> {
        if matches!(piece, Piece::Waiting { is_admitted: false, .. })
            && let Some(limits) = self.limits.take()
        {
            self.take_in()?;
            self.store.limits = limits;
        }
        self.gathered.push(piece);
        if self.gathered.len() >= PIECES_MAX { self.take_in() } else { Ok(()) }
    }

    /// All has been added. Gives back the store; all of it is durable.
    pub fn end(mut self) -> Result<RedisStore> {
        self.take_in()?;
        self.store.flush()?;
        Ok(self.store)
    }

    fn take_in(&mut self) -> Result<()> {
        let pieces = std::mem::take(&mut self.gathered);
        let known = self.known(&pieces)?;
        let (mut tried, mut offers) = (Vec::new(), Vec::new());
        let mut elsewhere: BTreeMap<(Host, AgentId), Vec<SeenUrl>> = BTreeMap::new();
        let mut done: HashSet<[u8; 12]> = HashSet::new();
        for (piece, known) in pieces.into_iter().zip(known) {
            match piece {
                Piece::Tried { mut settled, via, by } => {
                    let Some((host, print)) = identify(&settled.url) else { continue };
                    let is_final = settled.outcome.is_final();
                    let is_less = match known {
                        Known::Done => true,
                        Known::Tried | Known::Elsewhere => !is_final,
                        Known::No | Known::Waiting => false,
                    };
                    if is_less || done.contains(&print.0) {
                        continue;
                    }
                    done.extend(is_final.then_some(print.0));
                    settled.found_in = self.page(partition_of(&host), via)?;
                    // If nobody knows whose archive has the answer, it is nowhere.
                    settled.capture = settled.capture.filter(|_| by.is_some());
                    tried.push((Record::Settled(*settled), by.unwrap_or(self.me)));
                }
                Piece::Waiting { found, via, .. } => {
                    let Some((host, _)) = identify(&found.url).filter(|_| known == Known::No) else {
                        continue;
                    };
                    offers.push((self.page(partition_of(&host), via)?, found));
                }
                Piece::Elsewhere { host, seen, agent } => {
                    if !matches!(known, Known::Done | Known::Elsewhere) && !done.contains(&seen.fingerprint.0)
                    {
                        elsewhere.entry((host, agent)).or_default().push(seen);
                    }
                }
                Piece::Host { host, memo, rules } => self.take_host(&host, memo, rules)?,
            }
        }
        for ((host, agent), seen) in elsewhere {
            let hosts = vec![MovedHost { host, memo: None, seen }];
            let moved = Moved { hosts, ..Moved::default() };
            self.store.append(&Record::Moved { from: agent, moved })?;
        }
        for of_one in tried.chunk_by(|(_, a), (_, b)| a == b) {
            let records: Vec<&Record> = of_one.iter().map(|(record, _)| record).collect();
            self.store.writer = of_one[0].1;
            self.store.append_all(&records, &mut Vec::new())?;
        }
        self.store.writer = self.me;
        self.store.offer(offers);
        self.store.decide()?;
        // Whoever asked for it is told nothing.
        self.store.confirm().map(drop)
    }

    /// What is known of the URLs of pieces.
    fn known(&mut self, pieces: &[Piece]) -> Result<Vec<Known>> {
        let url = |piece: &Piece| match piece {
            Piece::Waiting { found: Found { url, .. }, .. } => identify(url),
            Piece::Tried { settled, .. } => identify(&settled.url),
            Piece::Elsewhere { host, seen, .. } => Some((host.clone(), seen.fingerprint)),
            Piece::Host { .. } => None,
        };
        let urls: Vec<Option<(Host, Fingerprint)>> = pieces.iter().map(url).collect();
        self.store.known(&urls)
    }

    /// The place of a record that says that a page is the one a URL was found on; 0 if none is.
    fn page(&mut self, partition: u16, via: Option<String>) -> Result<u64> {
        let Some(via) = via else { return Ok(0) };
        if let Some(place) = self.pages.get(&via) {
            return Ok(*place);
        }
        let arrived = Arrived {
            from: self.me,
            site: None,
            found: Vec::new(),
            pages: vec![(Some(via.clone()), 0)],
            totals: Vec::new(),
        };
        let place = self.store.append_to(partition, &Record::Arrived(arrived))?;
        if self.pages.len() >= PAGES_MAX {
            self.pages.clear();
        }
        self.pages.insert(via, place);
        Ok(place)
    }

    fn take_host(
        &mut self,
        host: &Host,
        memo: HostMemo,
        rules: Vec<(u64, RobotsRecord, Option<AgentId>)>,
    ) -> Result<()> {
        let before = self.store.loaded(host)?.memo;
        if before.is_some_and(|before| !memo.is_after(&before)) {
            return Ok(());
        }
        let mut places = Vec::new();
        for (before, mut robots, by) in rules {
            robots.capture = robots.capture.filter(|_| by.is_some());
            self.store.writer = by.unwrap_or(self.me);
            places.push((before, self.store.append(&Record::Robots(robots))?));
        }
        self.store.writer = self.me;
        let memo = memo.with_places(|place| Some(places.iter().find(|(before, _)| *before == place)?.1));
        self.store.keep(host, Some(&memo), Wall(0))
    }
}

/// How much is known of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    No,
    Waiting,
    Tried,
    /// It is done, and another agent knows what came of it.
    Elsewhere,
    Done,
}

impl RedisStore {
    fn known(&mut self, urls: &[Option<(Host, Fingerprint)>]) -> Result<Vec<Known>> {
        let hosts: BTreeSet<&Host> = urls.iter().flatten().map(|(host, _)| host).collect();
        let hosts: Vec<Host> = hosts.into_iter().cloned().collect();
        self.load(&hosts)?;
        let mut commands = Vec::new();
        for (host, print) in urls.iter().flatten() {
            let buckets = self.hosts.get(host).map_or(0, |record| record.buckets);
            let key = self.keys.bucket(host, bucket_of(&print.0, buckets.max(1)));
            commands.push((partition_of(host), cmd("HGET").arg(key).arg(&print.0[..]).clone()));
        }
        let mut answers = self.cluster.get_mut().read(commands)?.into_iter();
        let (mut known, mut done) = (Vec::new(), Vec::new());
        for url in urls {
            let answer = url.as_ref().and_then(|_| answers.next()).map_or(Ok(None), bytes)?;
            let seen = answer.map(|seen| unpack(&seen)).transpose()?;
            known.push(match seen {
                None => Known::No,
                Some(Seen::Queued { .. } | Seen::Out { .. }) => Known::Waiting,
                Some(Seen::Tried(_)) => Known::Tried,
                Some(Seen::Sent(_)) => Known::Done,
                Some(Seen::Done(place)) => {
                    done.push((known.len(), place));
                    Known::Done
                }
            });
        }
        let places: Vec<u64> = done.iter().map(|(_, place)| *place).collect();
        for ((at, _), (record, _)) in done.iter().zip(self.read_records(&places)?) {
            if matches!(record, Record::Moved { .. }) {
                known[*at] = Known::Elsewhere;
            }
        }
        Ok(known)
    }
}
