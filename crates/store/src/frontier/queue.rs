//! The queue of one host: URLs by class, the best first, and within a class in the order in which they came.
//!
//! Of a class only its two ends are in memory, as text; what is between lies in chunks on the heap. Chunks grow with the
//! queue, so that a short queue takes little memory and a long one is read in large pieces.

use std::collections::{BTreeMap, VecDeque};

use nephila_core::record::{Found, How};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, identify};
use serde::{Deserialize, Serialize};

use super::heap::{Blob, Heap};
use super::key::{HostKey, Place};
use crate::Result;

/// The class of the deepest URLs. Those above are free for `hosts` to use.
const CLASS_MAX: u8 = 249;
/// The end of a class becomes a chunk when it has this many bytes at least,
const CHUNK_BYTES_MIN: u64 = 512;
/// and at the latest when it has this many.
const CHUNK_BYTES_MAX: u64 = 4 * 1024;
/// Bytes before the packed entries of a chunk: the key of its host.
pub(super) const CHUNK_HEAD_BYTES: usize = 8;
/// About what the text of a URL takes.
const TEXT_BYTES: usize = 100;
/// In between it does when it is this part of the class.
const CHUNK_PART: u64 = 16;

/// The class of a depth.
pub(super) fn class_of(depth: u16) -> u8 {
    depth.min(u16::from(CLASS_MAX)) as u8
}

/// A URL in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) found: Found,
    pub(super) attempts: u8,
    /// The place of the record that it was found in.
    pub(super) via: u64,
    /// What it is told by: it can be found under several names.
    pub(super) print: Fingerprint,
}

/// An entry as it lies in a queue.
pub(super) fn encode_entry(found: &Found, attempts: u8, via: u64, out: &mut Vec<u8>) {
    let how = match found.how {
        How::Seed => 0,
        // From now on it is like any other.
        How::Link | How::Returned { is_sitemap: false, .. } => 1,
        How::Redirect => 2,
        How::Sitemap | How::Returned { is_sitemap: true, .. } => 3,
        How::Listed => 4,
    };
    let url = found.url.as_bytes();
    // Longer ones were cut off long before: see `url::clean`.
    let length = url.len().min(usize::from(u16::MAX));
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&url[..length]);
    out.extend_from_slice(&found.depth.to_le_bytes());
    out.extend_from_slice(&[how, found.redirects, attempts]);
    out.extend_from_slice(&Place::new(via).bytes());
}

/// Reads the entry at the head of `bytes` and says how long it is.
pub(super) fn decode_entry(bytes: &[u8]) -> Option<(Entry, usize)> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (url, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let ([d0, d1, how, redirects, attempts, a, b, c, d, e, f], _) = rest.split_first_chunk::<11>()?;
    let found = Found {
        url: std::str::from_utf8(url).ok()?.to_owned(),
        depth: u16::from_le_bytes([*d0, *d1]),
        how: match how {
            0 => How::Seed,
            1 => How::Link,
            2 => How::Redirect,
            3 => How::Sitemap,
            4 => How::Listed,
            _ => return None,
        },
        redirects: *redirects,
    };
    let via = Place::from_bytes([*a, *b, *c, *d, *e, *f]).get();
    let (_, print) = identify(&found.url)?;
    Some((Entry { found, attempts: *attempts, via, print }, 2 + url.len() + 11))
}

fn senseless(host: &Host) -> crate::Error {
    crate::Error::Corrupt {
        path: host.as_str().into(),
        place: 0,
        what: "the queue of this host makes no sense",
    }
}

/// The URLs of one class.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Class {
    class: u8,
    urls: u64,
    bytes: u64,
    /// What comes first, as far as it was read; `read` of it is used up.
    #[serde(with = "serde_bytes")]
    head: Vec<u8>,
    read: usize,
    chunks: VecDeque<Blob>,
    #[serde(with = "serde_bytes")]
    tail: Vec<u8>,
}

/// A part of a queue: first what is not in a class, then each class, from its head over its chunks to its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stretch {
    class: usize,
    part: usize,
}

impl Stretch {
    pub(super) const FIRST: Stretch = Stretch { class: 0, part: 0 };
}

/// See the module's documentation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Queue {
    pub(super) host: Host,
    /// URLs that were ever admitted.
    pub(super) known: u64,
    /// Those that are done.
    pub(super) settled: u64,
    /// Entries that may not count any more: as long as there are any, each is compared with the sieve.
    pub(super) stale: u64,
    /// Two agents had it at a time: what was done here may be done already.
    pub(super) is_merged: bool,
    classes: Vec<Class>,
    /// Put back, or due again: next to be handed over.
    front: VecDeque<Entry>,
    /// Handed over and not settled.
    taken: Vec<Entry>,
    /// To be tried again, by when and then by order.
    late: BTreeMap<(Wall, u64), Entry>,
    late_next: u64,
    /// What the owner wants to be kept with the host,
    #[serde(with = "serde_bytes")]
    pub(super) memo: Vec<u8>,
    /// and until when it does not want to hear of it.
    pub(super) away_until: Wall,
}

impl Queue {
    pub(super) fn new(host: Host) -> Queue {
        Queue {
            host,
            known: 0,
            settled: 0,
            stale: 0,
            is_merged: false,
            classes: Vec::new(),
            front: VecDeque::new(),
            taken: Vec::new(),
            late: BTreeMap::new(),
            late_next: 0,
            memo: Vec::new(),
            away_until: Wall(0),
        }
    }

    /// URLs that may be handed over now; one or two more if some have become stale.
    pub(super) fn due(&self) -> u64 {
        self.front.len() as u64 + self.classes.iter().map(|class| class.urls).sum::<u64>()
    }

    /// When the first of those becomes due that wait for their time.
    pub(super) fn next(&self) -> Option<Wall> {
        self.late.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether something of it is under way.
    pub(super) fn is_taken(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Admits an encoded entry.
    pub(super) fn add(&mut self, heap: &mut Heap, key: HostKey, class: u8, entry: &[u8]) -> Result<()> {
        self.known += 1;
        self.push(heap, key, class, entry)
    }

    /// Adds an encoded entry at the end of its class.
    pub(super) fn push(&mut self, heap: &mut Heap, key: HostKey, class: u8, entry: &[u8]) -> Result<()> {
        let at = match self.classes.binary_search_by_key(&class, |class| class.class) {
            Ok(at) => at,
            Err(at) => {
                // Most queues have one, or none.
                self.classes.reserve_exact(1);
                self.classes.insert(at, Class { class, ..Class::default() });
                at
            }
        };
        let class = &mut self.classes[at];
        class.tail.extend_from_slice(entry);
        class.urls += 1;
        class.bytes += entry.len() as u64;
        if class.tail.len() as u64 >= (class.bytes / CHUNK_PART).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) {
            let mut chunk = Vec::with_capacity(CHUNK_HEAD_BYTES + class.tail.len());
            chunk.extend_from_slice(&key.to_bytes());
            heap.packer.pack(&class.tail, &mut chunk)?;
            class.chunks.push_back(heap.append(&chunk)?);
            class.tail.clear();
        }
        Ok(())
    }

    /// Removes the first entry of the best class, and says of which.
    pub(super) fn pop(&mut self, heap: &mut Heap) -> Result<Option<(Entry, u8)>> {
        let Some(class) = self.classes.first_mut() else { return Ok(None) };
        if class.read == class.head.len() {
            class.head.clear();
            class.read = 0;
            match class.chunks.front().copied() {
                Some(blob) => {
                    // It stays where it is if it cannot be read.
                    let mut chunk = Vec::new();
                    heap.read(blob, &mut chunk)?;
                    let packed = chunk.get(CHUNK_HEAD_BYTES..).unwrap_or_default();
                    if heap.packer.unpack(packed, &mut class.head).is_none() {
                        class.head.clear();
                        return Err(heap.corrupt(blob, "a chunk cannot be unpacked"));
                    }
                    class.chunks.pop_front();
                    heap.free(blob);
                }
                None => std::mem::swap(&mut class.head, &mut class.tail),
            }
        }
        let number = class.class;
        let decoded = decode_entry(class.head.get(class.read..).unwrap_or_default());
        let (entry, bytes) = decoded.ok_or_else(|| senseless(&self.host))?;
        class.read += bytes;
        class.urls -= 1;
        class.bytes = class.bytes.saturating_sub(bytes as u64);
        if class.urls == 0 {
            self.classes.remove(0);
            if self.classes.is_empty() {
                self.stale = 0;
                self.classes = Vec::new();
            }
        }
        Ok(Some((entry, number)))
    }

    /// The next of those that were put back or are due again.
    pub(super) fn pop_front(&mut self) -> Option<Entry> {
        let entry = self.front.pop_front();
        if self.front.is_empty() {
            self.front = VecDeque::new();
        }
        entry
    }

    /// Moves what has become due to the end of those that come back.
    pub(super) fn recall(&mut self, now: Wall) {
        while let Some(first) = self.late.first_entry().filter(|first| first.key().0 <= now) {
            self.front.push_back(first.remove());
        }
    }

    /// Hands an entry over.
    pub(super) fn take(&mut self, entry: Entry) {
        self.taken.push(entry);
    }

    /// Puts back what was handed over, as first of all.
    pub(super) fn put_back(&mut self, print: Fingerprint) {
        if let Some(at) = self.taken.iter().position(|entry| entry.print == print) {
            let entry = self.taken.remove(at);
            self.front.push_front(entry);
            self.forget_room();
        }
    }

    /// Gives back the room of what was handed over when all of it has come back: most queues in memory are empty.
    fn forget_room(&mut self) {
        if self.taken.is_empty() {
            self.taken = Vec::new();
        }
    }

    /// Whether a URL is under way or about to be: its class does not matter any more.
    pub(super) fn is_ahead(&self, print: Fingerprint) -> bool {
        self.taken.iter().chain(&self.front).any(|entry| entry.print == print)
    }

    /// Whether a URL was handed over and is not settled.
    pub(super) fn is_under_way(&self, print: Fingerprint) -> bool {
        self.taken.iter().any(|entry| entry.print == print)
    }

    /// Takes a URL out of wherever it is; one that is in a class stays there and is known to be stale.
    pub(super) fn remove(&mut self, print: Fingerprint) -> Option<Entry> {
        if let Some(at) = self.taken.iter().position(|entry| entry.print == print) {
            let entry = self.taken.swap_remove(at);
            self.forget_room();
            return Some(entry);
        }
        if let Some(at) = self.front.iter().position(|entry| entry.print == print) {
            return self.front.remove(at);
        }
        let late = self.late.iter().find(|(_, entry)| entry.print == print).map(|(key, _)| *key);
        if let Some(key) = late {
            return self.late.remove(&key);
        }
        if !self.classes.is_empty() {
            self.stale += 1;
        }
        None
    }

    /// A URL that waits was tried so often, by another site perhaps.
    pub(super) fn was_tried(&mut self, print: Fingerprint, attempts: u8) {
        let mut waiting = self.front.iter_mut().chain(self.late.values_mut());
        if let Some(entry) = waiting.find(|entry| entry.print == print) {
            entry.attempts = entry.attempts.max(attempts);
        }
    }

    /// Puts an entry aside until `until`.
    pub(super) fn defer(&mut self, entry: Entry, until: Wall) {
        self.late.insert((until, self.late_next), entry);
        self.late_next += 1;
    }

    /// What was under way when the process ended is due again.
    pub(super) fn restart(&mut self) {
        for entry in self.taken.drain(..).rev() {
            self.front.push_front(entry);
        }
    }

    /// Passes on a stretch of it, with when the URLs may be tried again that were tried, and says which one follows.
    pub(super) fn read(
        &self,
        heap: &mut Heap,
        Stretch { class, part }: Stretch,
        each: &mut dyn FnMut(Entry, Option<Wall>),
    ) -> Result<Option<Stretch>> {
        if part == 0 {
            let ahead = self.taken.iter().chain(&self.front);
            ahead.for_each(|entry| each(entry.clone(), (entry.attempts > 0).then_some(Wall(0))));
            self.late.iter().for_each(|((at, _), entry)| each(entry.clone(), Some(*at)));
            return Ok((!self.classes.is_empty()).then_some(Stretch { class: 0, part: 1 }));
        }
        let Some(of) = self.classes.get(class) else { return Ok(None) };
        let mut unpacked = Vec::new();
        let mut entries = match part {
            1 => of.head.get(of.read..).unwrap_or_default(),
            _ => match of.chunks.get(part - 2) {
                Some(blob) => {
                    let mut chunk = Vec::new();
                    heap.read(*blob, &mut chunk)?;
                    let packed = chunk.get(CHUNK_HEAD_BYTES..).unwrap_or_default();
                    let whole = heap.packer.unpack(packed, &mut unpacked);
                    whole.ok_or_else(|| heap.corrupt(*blob, "a chunk cannot be unpacked"))?;
                    &unpacked
                }
                None => &of.tail,
            },
        };
        while !entries.is_empty() {
            let (entry, bytes) = decode_entry(entries).ok_or_else(|| senseless(&self.host))?;
            each(entry, None);
            entries = &entries[bytes..];
        }
        if part < of.chunks.len() + 2 {
            return Ok(Some(Stretch { class, part: part + 1 }));
        }
        Ok((class + 1 < self.classes.len()).then_some(Stretch { class: class + 1, part: 1 }))
    }

    /// Gives back the room that it has on the heap.
    pub(super) fn free(self, heap: &mut Heap) {
        self.classes.iter().flat_map(|class| &class.chunks).for_each(|blob| heap.free(*blob));
    }

    /// Writes a chunk anew, if it is still one of this queue.
    pub(super) fn move_chunk(&mut self, heap: &mut Heap, blob: Blob) -> Result<()> {
        let mut chunks = self.classes.iter_mut().flat_map(|class| &mut class.chunks);
        if let Some(place) = chunks.find(|other| **other == blob) {
            let mut chunk = Vec::new();
            heap.read(blob, &mut chunk)?;
            *place = heap.append(&chunk)?;
            heap.free(blob);
        }
        Ok(())
    }

    /// About what it takes in memory; asked often, so nothing is counted one by one.
    pub(super) fn memory_bytes(&self) -> usize {
        let class_bytes = |class: &Class| {
            size_of::<Class>()
                + class.head.capacity()
                + class.tail.capacity()
                + class.chunks.capacity() * size_of::<Blob>()
        };
        let entries = self.front.len() + self.taken.len() + self.late.len();
        size_of::<Queue>()
            + self.host.as_str().len()
            + self.memo.capacity()
            + self.classes.iter().map(class_bytes).sum::<usize>()
            + entries * (size_of::<Entry>() + TEXT_BYTES)
    }
}
