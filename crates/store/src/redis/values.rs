//! What is kept under the keys, and how it is packed.

use std::ops::{AddAssign, SubAssign};

use nephila_core::agent::{Due, OverLimit, StoredHost};
use nephila_core::frontier::HostMemo;
use nephila_core::record::{Found, How};
use nephila_core::time::Wall;
use nephila_core::url::{Host, Url, identify};
use redis::Value;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};
use nephila_core::assign::PARTITIONS;

/// URLs in a chunk of a queue, in a leaf of what is deferred, records in a chunk, names of hosts in one.
pub(super) const CHUNK_ENTRIES: usize = 64;
/// Bytes of a chunk that another entry may be added to; an entry is at most as long as a URL may be.
pub(super) const CHUNK_BYTES_MAX: usize = 24 << 10;
/// Bytes of a value that is cut into parts.
pub(super) const PART_BYTES: usize = 32 << 10;
/// URLs in a bucket on average, at most. Twice as many are in those that have not been split in this round, and that is far below
/// what servers keep packed (`hash-max-listpack-entries 512`).
pub(super) const BUCKET_URLS: u64 = 64;
/// Depths from here on are taken for equal.
const CLASS_MAX: u16 = 248;

/// The queue that a depth belongs to.
pub(super) fn class_of(depth: u16) -> u8 {
    depth.min(CLASS_MAX) as u8
}

/// The place of a record: its number in its partition, from 1, and the partition.
pub(super) fn place_of(partition: u16, number: u64) -> u64 {
    number * u64::from(PARTITIONS) + u64::from(partition)
}

/// The other way round.
pub(super) fn partition_and_number(place: u64) -> (u16, u64) {
    ((place % u64::from(PARTITIONS)) as u16, place / u64::from(PARTITIONS))
}

/// Packs a value.
pub(super) fn pack(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(Error::Encode)
}

/// Unpacks a value.
pub(super) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|_| senseless("a value cannot be read"))
}

/// What is in Redis is not what was put there.
pub(super) fn senseless(what: &str) -> Error {
    Error::Redis { node: "the store".to_owned(), what: what.to_owned() }
}

/// The bytes of an answer, if there are any.
pub(super) fn bytes(answer: Value) -> Result<Option<Vec<u8>>> {
    match answer {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        other => Err(senseless(&format!("{other:?} is no value"))),
    }
}

/// The parts of an answer.
pub(super) fn list(answer: Value) -> Result<Vec<Value>> {
    match answer {
        Value::Nil => Ok(Vec::new()),
        Value::Array(list) => Ok(list),
        other => Err(senseless(&format!("{other:?} is no list"))),
    }
}

/// The parts of an answer, each of which is there.
pub(super) fn all_bytes(answer: Value) -> Result<Vec<Vec<u8>>> {
    let part = |value| bytes(value)?.ok_or_else(|| senseless("a part is missing"));
    list(answer)?.into_iter().map(part).collect()
}

/// Fields and values of a hash.
pub(super) fn fields(answer: Value) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut fields = Vec::new();
    let mut flat = all_bytes(answer)?.into_iter();
    while let (Some(field), Some(value)) = (flat.next(), flat.next()) {
        fields.push((field, value));
    }
    Ok(fields)
}

/// How far a known URL has come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Seen {
    /// It waits in this chunk of its class; entries elsewhere do not count.
    Queued {
        /// Links from a seed.
        depth: u16,
        /// Where its entry is.
        chunk: u32,
    },
    /// It was not tried, and is under way or comes back.
    Out {
        /// Links from a seed, where it was found nearest.
        depth: u16,
    },
    /// It was tried and will be again: the place of the last attempt.
    Tried(u64),
    /// It is done: the place of the last attempt.
    Done(u64),
    /// It was given to another site, and that is all that came of it: the place of the record that says so.
    Sent(u64),
}

impl Seen {
    /// Whether nothing more is to be done about it here.
    pub(super) fn is_done(self) -> bool {
        matches!(self, Seen::Done(_) | Seen::Sent(_))
    }
}

/// A URL in a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) url: String,
    pub(super) depth: u16,
    pub(super) how: How,
    pub(super) redirects: u8,
    pub(super) attempts: u8,
    pub(super) found_in: u64,
}

impl Entry {
    pub(super) fn new(found: &Found, place: u64) -> Entry {
        let Found { url, depth, how, redirects } = found.clone();
        // It may have been tried at another site.
        let attempts = if let How::Returned { attempts, .. } = how { attempts } else { 0 };
        Entry { url, depth, how, redirects, attempts, found_in: place }
    }

    pub(super) fn fingerprint(&self) -> Result<[u8; 12]> {
        Ok(identify(&self.url).ok_or_else(|| senseless("a URL cannot be read"))?.1.0)
    }

    pub(super) fn found(&self) -> Found {
        Found { url: self.url.clone(), depth: self.depth, how: self.how, redirects: self.redirects }
    }

    /// As the agent gets it.
    pub(super) fn due(self, via: Option<String>) -> Result<Due> {
        let Entry { url, depth, how, redirects, attempts, found_in } = self;
        let url = Url::parse(&url).map_err(|_| senseless("a URL cannot be read"))?;
        Ok(Due { url, depth, how, redirects, attempts, via, found_in, cash: None })
    }
}

/// The two ends of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ends {
    /// The first chunk, and how many of its entries are gone.
    pub(super) head: (u32, u16),
    /// The last chunk, its entries and their bytes.
    pub(super) tail: (u32, u16, u32),
    /// Entries in all.
    pub(super) entries: u64,
}

impl Ends {
    /// The chunk that another entry of so many bytes goes to.
    pub(super) fn add(&mut self, bytes: usize) -> u32 {
        let (chunk, entries, held) = &mut self.tail;
        let is_full = usize::from(*entries) >= CHUNK_ENTRIES || *held as usize + bytes > CHUNK_BYTES_MAX;
        if is_full && *entries > 0 {
            (*chunk, *entries, *held) = (*chunk + 1, 0, 0);
        }
        *entries += 1;
        *held += bytes as u32;
        self.entries += 1;
        *chunk
    }

    /// Drops so many entries at the head, of a chunk that has so many. True: the chunk is used up.
    pub(super) fn drop_first(&mut self, entries: u16, of: u16) -> bool {
        self.head.1 += entries;
        self.entries = self.entries.saturating_sub(u64::from(entries));
        let is_over = self.head.1 >= of;
        if is_over {
            if self.head.0 == self.tail.0 {
                self.tail = (self.tail.0 + 1, 0, 0);
            }
            self.head = (self.head.0 + 1, 0);
        }
        is_over
    }
}

/// A part of what is deferred.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Leaf {
    /// The earliest time in it.
    pub(super) first: u64,
    pub(super) number: u32,
    pub(super) entries: u32,
}

/// All that is kept of a host in one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct HostRecord {
    /// The epoch it was written in. What was taken in an earlier one is due.
    pub(super) epoch: u64,
    pub(super) known: u64,
    pub(super) settled: u64,
    /// Buckets of its URLs.
    pub(super) buckets: u32,
    /// By class.
    pub(super) queues: Vec<(u8, Ends)>,
    /// URLs that come back,
    pub(super) front: u64,
    /// that were taken,
    pub(super) taken: u64,
    /// and whether any of them was found nearer since.
    pub(super) nearer: bool,
    /// In the order of time.
    pub(super) deferred: Vec<Leaf>,
    /// Of leaves, so far.
    pub(super) leaf_numbers: u32,
    pub(super) kept_out: Ends,
    /// It was about to be asked in an earlier epoch, and nothing was fetched since: who was may still be at it.
    pub(super) is_under_way: bool,
    /// It is about to be asked.
    pub(super) is_marked: bool,
    /// The agent had something kept of it.
    pub(super) is_kept: bool,
    pub(super) away_until: u64,
    pub(super) memo: Option<HostMemo>,
    /// Nothing is kept of it yet.
    #[serde(skip)]
    pub(super) is_new: bool,
}

/// As in [`OverLimit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Over {
    pub(super) depth: u64,
    pub(super) host: u64,
    pub(super) urls: u64,
}

/// The limit that keeps a URL out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Limit {
    Depth,
    Host,
    Urls,
}

impl Over {
    /// One URL.
    pub(super) fn of(limit: Limit) -> Over {
        match limit {
            Limit::Depth => Over { depth: 1, ..Over::default() },
            Limit::Host => Over { host: 1, ..Over::default() },
            Limit::Urls => Over { urls: 1, ..Over::default() },
        }
    }
}

impl AddAssign for Over {
    fn add_assign(&mut self, other: Over) {
        self.depth += other.depth;
        self.host += other.host;
        self.urls += other.urls;
    }
}

impl SubAssign for Over {
    fn sub_assign(&mut self, other: Over) {
        self.depth = self.depth.saturating_sub(other.depth);
        self.host = self.host.saturating_sub(other.host);
        self.urls = self.urls.saturating_sub(other.urls);
    }
}

impl From<Over> for OverLimit {
    fn from(over: Over) -> OverLimit {
        OverLimit { depth: over.depth, host: over.host, urls: over.urls }
    }
}

impl HostRecord {
    /// The queue of a class.
    pub(super) fn queue(&mut self, class: u8) -> &mut Ends {
        let at = match self.queues.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(at) => at,
            Err(at) => {
                self.queues.insert(at, (class, Ends::default()));
                at
            }
        };
        &mut self.queues[at].1
    }

    /// URLs that can be taken now, apart from those whose time has come since.
    pub(super) fn due(&self) -> u64 {
        self.front + self.queues.iter().map(|(_, ends)| ends.entries).sum::<u64>()
    }

    /// Whether it counts as a host. One of which limits keep all out does not.
    pub(super) fn counts(&self) -> bool {
        self.known > 0 || self.is_kept
    }

    /// When the next deferred one is due.
    pub(super) fn next(&self) -> Option<Wall> {
        self.deferred.first().map(|leaf| Wall(leaf.first))
    }

    /// As others see it in this epoch.
    pub(super) fn stored(&self, host: Host, epoch: u64) -> StoredHost {
        let again = if self.epoch == epoch { 0 } else { self.taken };
        StoredHost {
            host,
            known: self.known,
            queued: self.known.saturating_sub(self.settled),
            due: self.due() + again,
            next: self.next(),
            memo: self.memo.clone(),
        }
    }
}

/// What a partition comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sums {
    pub(super) records: u64,
    /// Hosts that there are records of,
    pub(super) names: u64,
    /// and those of them that count.
    pub(super) hosts: u64,
    pub(super) known: u64,
    pub(super) settled: u64,
    pub(super) over: Over,
}

impl Sums {
    /// What a partition comes to that is held from now on.
    pub(super) fn add(&mut self, other: &Sums) {
        self.records += other.records;
        self.names += other.names;
        self.hosts += other.hosts;
        self.known += other.known;
        self.settled += other.settled;
        self.over += other.over;
    }

    /// And one that is not.
    pub(super) fn subtract(&mut self, other: &Sums) {
        self.records = self.records.saturating_sub(other.records);
        self.names = self.names.saturating_sub(other.names);
        self.hosts = self.hosts.saturating_sub(other.hosts);
        self.known = self.known.saturating_sub(other.known);
        self.settled = self.settled.saturating_sub(other.settled);
        self.over -= other.over;
    }
}

/// What is known of a partition that is held.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Partition {
    pub(super) epoch: u64,
    pub(super) version: u64,
    pub(super) sums: Sums,
}

/// A record that does not lie with others: in so many parts, and the page that it is about.
#[derive(Serialize, Deserialize)]
pub(super) struct InParts {
    pub(super) parts: u32,
    pub(super) page: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_follow_what_is_added_and_dropped() {
        let mut ends = Ends::default();
        for _ in 0..CHUNK_ENTRIES {
            assert_eq!(ends.add(10), 0);
        }
        assert_eq!((ends.add(10), ends.entries), (1, 65));
        assert_eq!(ends.add(CHUNK_BYTES_MAX), 2, "it has a chunk of its own");
        assert!(!ends.drop_first(63, 64));
        assert!(ends.drop_first(1, 64));
        assert_eq!((ends.head, ends.entries), ((1, 0), 2));
        assert!(ends.drop_first(1, 1) && ends.drop_first(1, 1));
        assert_eq!((ends.head, ends.entries, ends.add(1)), ((3, 0), 0, 3));
    }

    #[test]
    fn places_are_never_0() {
        for (partition, number) in [(0, 1), (16_383, 1), (7, 1 << 40)] {
            assert_eq!(partition_and_number(place_of(partition, number)), (partition, number));
            assert!(place_of(partition, number) > 0);
        }
    }
}
