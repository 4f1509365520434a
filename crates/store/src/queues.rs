//! The queues: for each host the URLs that are due, the lowest depth first, and those that wait for their time.
//!
//! A queue of one depth is a list threaded through the entries of the sieve, so it takes no memory of its own. A URL
//! enters it once, when it is admitted; what is put back or becomes due again goes to `front`. A URL that was settled or
//! deferred while it was in its list stays there and is skipped when it is met: its stage says that it is not queued.

use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use nephila_core::time::Wall;
use nephila_core::url::Host;

use crate::sieve::{Sieve, Stage};

/// Bytes of a shared string beside its text: two counters.
const SHARED_TEXT_BYTES: usize = 16;
/// About what an ordered set takes for an entry, its nodes being two thirds full.
const DEFERRED_BYTES: usize = 3 * size_of::<(Wall, u32)>() / 2;

/// A host and its queue.
pub(crate) struct Queue {
    pub(crate) host: Host,
    /// URLs that were ever admitted.
    pub(crate) known: u32,
    /// Those that are done.
    pub(crate) settled: u32,
    /// Those that are due.
    pub(crate) queued: u32,
    /// By depth, lowest first; none is empty.
    levels: Vec<Level>,
    /// Most hosts never need it.
    late: Option<Box<Late>>,
}

/// The queue of one depth: its first and its last entry.
struct Level {
    depth: u16,
    first: u32,
    last: u32,
}

/// What does not wait in the order of its admission.
#[derive(Default)]
struct Late {
    /// Next to be handed over; all of these are queued.
    front: VecDeque<u32>,
    /// By the time when they become due, then by number.
    deferred: BTreeSet<(Wall, u32)>,
}

impl Queue {
    /// When the first of those becomes due that wait for their time.
    pub(crate) fn next(&self) -> Option<Wall> {
        Some(self.late.as_ref()?.deferred.first()?.0)
    }

    fn late(&mut self) -> &mut Late {
        self.late.get_or_insert_default()
    }
}

/// The queues of all hosts.
pub(crate) struct Queues {
    hosts: Vec<Queue>,
    names: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Until when each deferred URL waits.
    deferred: HashMap<u32, Wall>,
    settled: u64,
    text_bytes: usize,
}

impl Queues {
    pub(crate) fn new() -> Queues {
        Queues {
            hosts: Vec::new(),
            names: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            deferred: HashMap::new(),
            settled: 0,
            text_bytes: 0,
        }
    }

    /// The hosts in the order in which they were met.
    pub(crate) fn hosts(&self) -> &[Queue] {
        &self.hosts
    }

    pub(crate) fn host(&self, number: u32) -> &Queue {
        &self.hosts[number as usize]
    }

    /// URLs that are done, of all hosts.
    pub(crate) fn settled(&self) -> u64 {
        self.settled
    }

    /// The number of a host that has been met.
    pub(crate) fn find(&self, host: &Host) -> Option<u32> {
        let hash = self.hasher.hash_one(host);
        self.names.find(hash, |number| self.hosts[*number as usize].host == *host).copied()
    }

    /// The number of a host, new or not.
    pub(crate) fn find_or_add(&mut self, host: Host) -> u32 {
        if let Some(number) = self.find(&host) {
            return number;
        }
        let number = self.hosts.len() as u32;
        let (hosts, hasher) = (&self.hosts, &self.hasher);
        self.names.insert_unique(hasher.hash_one(&host), number, |number| {
            hasher.hash_one(&hosts[*number as usize].host)
        });
        self.text_bytes += SHARED_TEXT_BYTES + host.as_str().len();
        self.hosts.push(Queue { host, known: 0, settled: 0, queued: 0, levels: Vec::new(), late: None });
        number
    }

    /// Counts an entry that the sieve has just got, and that is in no queue yet.
    pub(crate) fn add(&mut self, sieve: &Sieve, id: u32) {
        self.hosts[sieve.entry(id).host as usize].known += 1;
    }

    /// Puts a new entry at the end of the queue of its depth.
    pub(crate) fn push(&mut self, sieve: &mut Sieve, id: u32, depth: u16) {
        self.leave(sieve, id, Stage::Queued);
        let queue = &mut self.hosts[sieve.entry(id).host as usize];
        queue.queued += 1;
        match queue.levels.binary_search_by_key(&depth, |level| level.depth) {
            Ok(at) => {
                let level = &mut queue.levels[at];
                sieve.entry_mut(level.last).next = id;
                level.last = id;
            }
            Err(at) => queue.levels.insert(at, Level { depth, first: id, last: id }),
        }
    }

    /// Puts an entry aside until `until`.
    pub(crate) fn defer(&mut self, sieve: &mut Sieve, id: u32, until: Wall) {
        self.leave(sieve, id, Stage::Deferred);
        self.hosts[sieve.entry(id).host as usize].late().deferred.insert((until, id));
        self.deferred.insert(id, until);
    }

    /// Counts an entry as done.
    pub(crate) fn settle(&mut self, sieve: &mut Sieve, id: u32) {
        self.leave(sieve, id, Stage::Settled);
        self.hosts[sieve.entry(id).host as usize].settled += 1;
        self.settled += 1;
    }

    /// Puts entries that were taken back at the head of their host's queue, first one first. Others are left alone.
    pub(crate) fn put_back(&mut self, sieve: &mut Sieve, host: u32, ids: &[u32]) {
        for id in ids.iter().rev().copied() {
            let entry = sieve.entry_mut(id);
            if entry.stage == Stage::Taken && entry.host == host {
                entry.stage = Stage::Queued;
                let queue = &mut self.hosts[host as usize];
                queue.queued += 1;
                queue.late().front.push_front(id);
            }
        }
    }

    /// Takes up to `max` entries of a host that are due at `now`.
    pub(crate) fn take(
        &mut self,
        sieve: &mut Sieve,
        host: u32,
        max: usize,
        fresh_first: bool,
        now: Wall,
    ) -> Vec<u32> {
        self.recall(sieve, host, now);
        let queue = &mut self.hosts[host as usize];
        let mut taken = Vec::new();
        while taken.len() < max {
            let next = if fresh_first {
                fresh_of(queue, sieve).or_else(|| returned_of(queue))
            } else {
                returned_of(queue).or_else(|| fresh_of(queue, sieve))
            };
            let Some(id) = next else { break };
            sieve.entry_mut(id).stage = Stage::Taken;
            queue.queued -= 1;
            taken.push(id);
        }
        if queue.late.as_ref().is_some_and(|late| late.front.is_empty() && late.deferred.is_empty()) {
            queue.late = None;
        }
        taken
    }

    /// Moves what has become due to the end of `front`, earliest first.
    fn recall(&mut self, sieve: &mut Sieve, host: u32, now: Wall) {
        let queue = &mut self.hosts[host as usize];
        let Some(late) = &mut queue.late else { return };
        while let Some((_, id)) = late.deferred.first().copied().filter(|(until, _)| *until <= now) {
            late.deferred.pop_first();
            self.deferred.remove(&id);
            sieve.entry_mut(id).stage = Stage::Queued;
            queue.queued += 1;
            late.front.push_back(id);
        }
    }

    /// Changes the stage of an entry, and takes it out of the counts of the old one.
    fn leave(&mut self, sieve: &mut Sieve, id: u32, stage: Stage) {
        let entry = sieve.entry_mut(id);
        let queue = &mut self.hosts[entry.host as usize];
        match std::mem::replace(&mut entry.stage, stage) {
            Stage::Queued => {
                queue.queued -= 1;
                if let Some(late) = &mut queue.late {
                    late.front.retain(|other| *other != id);
                }
            }
            Stage::Deferred => {
                let until = self.deferred.remove(&id).expect("each deferred entry has its time");
                queue.late().deferred.remove(&(until, id));
            }
            Stage::Taken => {}
            Stage::Settled => {
                queue.settled -= 1;
                self.settled -= 1;
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let host_bytes = |queue: &Queue| {
            let late = queue.late.as_ref().map_or(0, |late| {
                size_of::<Late>() + late.front.capacity() * 4 + late.deferred.len() * DEFERRED_BYTES
            });
            queue.levels.capacity() * size_of::<Level>() + late
        };
        self.hosts.capacity() * size_of::<Queue>()
            + self.hosts.iter().map(host_bytes).sum::<usize>()
            + self.names.allocation_size()
            + self.deferred.allocation_size()
            + self.text_bytes
    }
}

/// Removes the next entry of a host that was put back or has become due again.
fn returned_of(queue: &mut Queue) -> Option<u32> {
    queue.late.as_mut().and_then(|late| late.front.pop_front())
}

/// Removes the next entry of a host that was never handed over.
fn fresh_of(queue: &mut Queue, sieve: &Sieve) -> Option<u32> {
    while let Some(level) = queue.levels.first_mut() {
        let id = level.first;
        let entry = sieve.entry(id);
        if id == level.last {
            queue.levels.remove(0);
        } else {
            level.first = entry.next;
        }
        // One that was tried is handed out by way of `front`; in its list it is only left over.
        if entry.stage == Stage::Queued && entry.settled_place().is_none() {
            return Some(id);
        }
    }
    None
}
