//! The sieve: which URLs are known, and for each where its text is and how far it has come.
//!
//! Entries lie in chunks of fixed size in the order of their admission and never move; their numbers, given out in that
//! order, are what queues and callers refer to. Apart from them there are small hash tables of these numbers, many of
//! them, so that a table that grows stalls nobody and none doubles everything at once. A known URL takes 40 bytes for its
//! entry and 6 to 12 in the tables.
//!
//! Two URLs are the same if their hosts and their fingerprints are: a fingerprint that somebody forged hides nothing but
//! their own pages. The tables use a keyed hash of both, so that fingerprints made to collide do not slow them down.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use nephila_core::url::Fingerprint;

/// Tables, a power of two.
const TABLES: usize = 256;
/// Entries in a chunk.
const CHUNK_ENTRIES: usize = 4_096;
/// No entry: the end of a queue.
pub(crate) const NONE: u32 = u32::MAX;

/// What the crawl is doing about a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In its host's queue.
    Queued,
    /// Not to be tried before a certain time.
    Deferred,
    /// Handed over.
    Taken,
    /// Done.
    Settled,
}

/// What is kept of a known URL.
pub(crate) struct Entry {
    fingerprint: Fingerprint,
    found_place: Place,
    settled_place: Place,
    pub(crate) stage: Stage,
    /// Attempts that it has used up.
    pub(crate) attempts: u8,
    pub(crate) host: u32,
    /// Distance from the end of the frame at `found_place`; 0 if the URL is the one which that record settles.
    pub(crate) distance: u32,
    /// The entry behind this one in its host's queue.
    pub(crate) next: u32,
}

const _: () = assert!(size_of::<Entry>() == 40);

impl Entry {
    pub(crate) fn new(name: Name, found_place: u64, distance: u32) -> Entry {
        Entry {
            fingerprint: name.fingerprint,
            found_place: Place::new(found_place),
            settled_place: Place::new(0),
            stage: Stage::Taken,
            attempts: 0,
            host: name.host,
            distance,
            next: NONE,
        }
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The place of the record that made the URL known.
    pub(crate) fn found_place(&self) -> u64 {
        self.found_place.get()
    }

    /// The place of the record of its last attempt.
    pub(crate) fn settled_place(&self) -> Option<u64> {
        Some(self.settled_place.get()).filter(|place| *place != 0)
    }

    pub(crate) fn set_settled_place(&mut self, place: u64) {
        self.settled_place = Place::new(place);
    }

    fn name(&self) -> Name {
        Name { host: self.host, fingerprint: self.fingerprint }
    }
}

/// A place in the journal, in 48 bits.
struct Place([u8; 6]);

impl Place {
    fn new(place: u64) -> Place {
        let [bytes @ .., _, _] = place.to_le_bytes();
        Place(bytes)
    }

    fn get(&self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// By what a URL is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    /// The number of its host.
    pub(crate) host: u32,
    pub(crate) fingerprint: Fingerprint,
}

/// All known URLs.
pub(crate) struct Sieve {
    chunks: Chunks,
    tables: Vec<HashTable<u32>>,
    hasher: DefaultHashBuilder,
}

impl Sieve {
    pub(crate) fn new() -> Sieve {
        let tables = (0..TABLES).map(|_| HashTable::new()).collect();
        Sieve { chunks: Chunks(Vec::new()), tables, hasher: DefaultHashBuilder::default() }
    }

    /// How many URLs are known.
    pub(crate) fn len(&self) -> u32 {
        self.chunks.len()
    }

    pub(crate) fn find(&self, name: Name) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        self.tables[table_of(hash)].find(hash, |id| self.chunks.get(*id).name() == name).copied()
    }

    /// Adds an entry that is not known yet and gives it its number. There must be fewer than [`NONE`].
    pub(crate) fn insert(&mut self, entry: Entry) -> u32 {
        let id = self.chunks.len();
        assert!(id < NONE, "admission stops before the numbers run out");
        let hash = self.hasher.hash_one(entry.name());
        self.chunks.push(entry);
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        self.tables[table_of(hash)].insert_unique(hash, id, |id| hasher.hash_one(chunks.get(*id).name()));
        id
    }

    pub(crate) fn entry(&self, id: u32) -> &Entry {
        self.chunks.get(id)
    }

    pub(crate) fn entry_mut(&mut self, id: u32) -> &mut Entry {
        &mut self.chunks.0[id as usize / CHUNK_ENTRIES][id as usize % CHUNK_ENTRIES]
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.0.len() * CHUNK_ENTRIES * size_of::<Entry>()
            + self.chunks.0.capacity() * size_of::<Vec<Entry>>()
            + self.tables.iter().map(|table| size_of_val(table) + table.allocation_size()).sum::<usize>()
    }
}

/// The entries. A chunk never grows beyond what it was made for, so nothing is ever copied.
struct Chunks(Vec<Vec<Entry>>);

impl Chunks {
    fn len(&self) -> u32 {
        match self.0.as_slice() {
            [] => 0,
            [full @ .., last] => (full.len() * CHUNK_ENTRIES + last.len()) as u32,
        }
    }

    fn get(&self, id: u32) -> &Entry {
        &self.0[id as usize / CHUNK_ENTRIES][id as usize % CHUNK_ENTRIES]
    }

    fn push(&mut self, entry: Entry) {
        match self.0.last_mut() {
            Some(last) if last.len() < CHUNK_ENTRIES => last.push(entry),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_ENTRIES);
                chunk.push(entry);
                self.0.push(chunk);
            }
        }
    }
}

/// Which table a hash belongs to. A table uses the lowest and the highest bits itself.
fn table_of(hash: u64) -> usize {
    (hash >> 40) as usize % TABLES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: u32, number: u32) -> Name {
        let mut fingerprint = [0; 12];
        fingerprint[8..].copy_from_slice(&number.to_le_bytes());
        Name { host, fingerprint: Fingerprint(fingerprint) }
    }

    #[test]
    fn the_same_fingerprint_on_another_host_is_another_url() {
        let mut sieve = Sieve::new();
        let count = 3 * CHUNK_ENTRIES as u32;
        for number in 0..count {
            for host in [1, 2] {
                assert_eq!(sieve.find(name(host, number)), None);
                let id = sieve.insert(Entry::new(name(host, number), u64::from(number) << 20, number));
                assert_eq!(id, 2 * number + host - 1);
            }
        }
        assert_eq!(sieve.len(), 2 * count);
        for number in 0..count {
            let id = sieve.find(name(2, number)).unwrap();
            let entry = sieve.entry(id);
            assert_eq!((entry.host, entry.distance), (2, number));
            assert_eq!((entry.found_place(), entry.settled_place()), (u64::from(number) << 20, None));
            assert_eq!(sieve.find(name(3, number)), None);
        }
    }
}
