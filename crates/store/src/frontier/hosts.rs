//! The queues of all hosts: those in use in memory, all others on disk in sorted blocks.
//!
//! What comes in for a host that is not in memory is noted with its block and entered when the block is written anew, many
//! at once. A host comes into memory when something is taken from it, and leaves again when others need the room.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

use nephila_core::time::Wall;
use nephila_core::url::{Host, Url};

use super::heap::{Blob, Heap};
use super::key::{HostKey, HostMap, HostRanges};
use super::queue::{Queue, decode_entry};
use super::snapshot::Writing;
use crate::{Error, Result};

/// A block for whose hosts this many times as much is noted as it may hold is merged, room or not, so that no merge takes long.
const BLOCK_NOTED: usize = 8;
/// When there is no room in memory, this part of the queues there leaves it.
const COOL_PART: usize = 64;
/// Bytes before a queue in a block: its key and its length.
const HEAD_BYTES: usize = 12;
/// Bytes before what is noted of a host: kind and length.
const OP_HEAD_BYTES: usize = 5;
/// About what it takes to note anything of a host at all.
const NOTE_BYTES: usize = 64;
/// The kinds of what is noted that are no class: the whole queue, always first; a URL that is entered again; and what the
/// owner wants to be kept.
const PUT: u8 = 254;
const AGAIN: u8 = 253;
const MEMO: u8 = 252;

#[derive(Default)]
struct Block {
    blob: Option<Blob>,
    hosts: u32,
    /// What is noted of its hosts.
    noted_bytes: usize,
    /// Hosts of which something is noted and nothing has been entered, while it is known that they are new: as long as the
    /// block was never written.
    new: u32,
}

struct Hot {
    /// Boxed, so that free places of the table are small.
    queue: Box<Queue>,
    used: u64,
    /// What it took when it was last used.
    bytes: usize,
}

/// Where a block begins and what it holds, for a snapshot.
pub(super) type BlockState = (HostKey, Option<Blob>, u32);

/// What hosts may use.
#[derive(Clone, Copy)]
pub(super) struct HostLimits {
    /// Queues in memory.
    pub(super) hot_max: usize,
    /// And what they may take.
    pub(super) hot_bytes_max: usize,
    /// A block with more bytes is cut.
    pub(super) block_bytes_max: usize,
}

/// See the module's documentation.
pub(super) struct Hosts {
    firsts: Vec<HostKey>,
    blocks: Vec<Block>,
    hot: HostMap<Hot>,
    hot_bytes: usize,
    /// Counts uses, so that the one longest unused can be told.
    clock: u64,
    /// What is noted of hosts that are not in memory, in order.
    noted: BTreeMap<HostKey, Vec<u8>>,
    noted_bytes: usize,
    /// A host of each block that is to be merged whether room is needed or not.
    full: Vec<HostKey>,
    hand: usize,
    limits: HostLimits,
    /// Hosts, without those of which nothing has been entered yet.
    count: u64,
    bytes: Vec<u8>,
}

impl Hosts {
    pub(super) fn new(limits: HostLimits) -> Hosts {
        Hosts {
            firsts: vec![HostKey::from_bytes([0; 8])],
            blocks: vec![Block::default()],
            hot: HostMap::default(),
            hot_bytes: 0,
            clock: 0,
            noted: BTreeMap::new(),
            noted_bytes: 0,
            full: Vec::new(),
            hand: 0,
            limits,
            count: 0,
            bytes: Vec::new(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.noted_bytes + self.hot_bytes
    }

    /// How many hosts there are. Of those that were met lately and are many, some may not be counted yet.
    pub(super) fn count(&self) -> u64 {
        // With a second block come hosts of which one cannot tell.
        self.count + if self.blocks.len() == 1 { u64::from(self.blocks[0].new) } else { 0 }
    }

    /// How many URLs a host has, if its queue is in memory.
    pub(super) fn known_in_memory(&self, key: HostKey) -> Option<u64> {
        self.hot.get(&key).map(|hot| hot.queue.known)
    }

    fn block_of(&self, key: HostKey) -> usize {
        self.firsts.partition_point(|first| *first <= key) - 1
    }

    /// Enters a URL at the end of its host's queue, now or later.
    pub(super) fn push(&mut self, chunks: &mut Heap, key: HostKey, class: u8, entry: &[u8]) -> Result<()> {
        match self.hot.get_mut(&key) {
            Some(hot) => hot.queue.add(chunks, key, class, entry),
            None => {
                self.note(key, class, entry);
                Ok(())
            }
        }
    }

    /// Enters a URL that is queued already in a better class: the old entry does not count any more.
    pub(super) fn again(&mut self, chunks: &mut Heap, key: HostKey, class: u8, entry: &[u8]) -> Result<()> {
        match self.hot.get_mut(&key) {
            Some(hot) => again(&mut hot.queue, chunks, key, class, entry),
            None => {
                self.note(key, AGAIN, &[&[class], entry].concat());
                Ok(())
            }
        }
    }

    /// Keeps something for the owner with a host, which need not be known yet.
    pub(super) fn keep(&mut self, key: HostKey, host: &Host, memo: Vec<u8>, away_until: Wall) -> Result<()> {
        match self.hot.get_mut(&key) {
            Some(hot) => (hot.queue.memo, hot.queue.away_until) = (memo, away_until),
            None => {
                let bytes = postcard::to_stdvec(&(host, memo, away_until)).map_err(Error::Encode)?;
                self.note(key, MEMO, &bytes);
            }
        }
        Ok(())
    }

    fn note(&mut self, key: HostKey, kind: u8, bytes: &[u8]) {
        let ops = self.noted.entry(key).or_default();
        let mut more = OP_HEAD_BYTES + bytes.len();
        let is_first = ops.is_empty();
        if is_first {
            // Often nothing follows.
            ops.reserve_exact(more);
            more += NOTE_BYTES;
        }
        ops.push(kind);
        ops.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        ops.extend_from_slice(bytes);
        self.noted_bytes += more;
        let at = self.block_of(key);
        let noted_max = BLOCK_NOTED * self.limits.block_bytes_max;
        let block = &mut self.blocks[at];
        block.new += u32::from(is_first && kind != PUT && block.blob.is_none());
        if block.noted_bytes <= noted_max && block.noted_bytes + more > noted_max {
            self.full.push(key);
        }
        block.noted_bytes += more;
    }

    /// Whether there is something that should be entered now.
    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.noted_bytes > bytes_max || !self.full.is_empty()
    }

    /// What is noted of a host, which is not noted any more.
    fn unnote(&mut self, key: HostKey) -> Option<Vec<u8>> {
        let ops = self.noted.remove(&key)?;
        let at = self.block_of(key);
        let block = &mut self.blocks[at];
        block.noted_bytes -= NOTE_BYTES + ops.len();
        block.new -= u32::from(!is_put(&ops) && block.blob.is_none());
        self.noted_bytes -= NOTE_BYTES + ops.len();
        Some(ops)
    }

    /// The queue of a host, in memory from now on. `None` if the host was never met.
    pub(super) fn load(
        &mut self,
        blocks: &mut Heap,
        chunks: &mut Heap,
        key: HostKey,
    ) -> Result<Option<&mut Queue>> {
        self.clock += 1;
        if !self.hot.contains_key(&key) {
            let Some(queue) = self.read(blocks, chunks, key)? else { return Ok(None) };
            self.make_room()?;
            self.hot.insert(key, Hot { queue: Box::new(queue), used: 0, bytes: 0 });
        }
        let clock = self.clock;
        let hot_bytes = &mut self.hot_bytes;
        Ok(self.hot.get_mut(&key).map(|hot| {
            hot.used = clock;
            *hot_bytes -= hot.bytes;
            hot.bytes = hot.queue.memory_bytes();
            *hot_bytes += hot.bytes;
            &mut *hot.queue
        }))
    }

    /// The same for a host that may be new.
    pub(super) fn load_or_new(
        &mut self,
        blocks: &mut Heap,
        chunks: &mut Heap,
        key: HostKey,
        host: &Host,
    ) -> Result<&mut Queue> {
        if self.load(blocks, chunks, key)?.is_none() {
            self.make_room()?;
            self.hot
                .insert(key, Hot { queue: Box::new(Queue::new(host.clone())), used: self.clock, bytes: 0 });
            self.count += 1;
        }
        match self.hot.get_mut(&key) {
            Some(hot) => Ok(&mut hot.queue),
            None => unreachable!("it was just put there"),
        }
    }

    /// Reads a queue that is not in memory, with what is noted for it.
    fn read(&mut self, blocks: &Heap, chunks: &mut Heap, key: HostKey) -> Result<Option<Queue>> {
        let at = self.block_of(key);
        let block = &self.blocks[at];
        let mut queue = None;
        if let Some(blob) = block.blob {
            blocks.read(blob, &mut self.bytes)?;
            let found = records(&self.bytes).find(|(other, _)| *other == key);
            queue = found.map(|(_, bytes)| decode(bytes)).transpose()?;
        }
        if let Some(ops) = self.unnote(key) {
            let is_new = queue.is_none() && !is_put(&ops);
            apply(&mut queue, chunks, key, &ops)?;
            self.count += u64::from(is_new && queue.is_some());
        }
        Ok(queue)
    }

    /// Makes sure that there is room for one more queue in memory.
    fn make_room(&mut self) -> Result<()> {
        let is_full = self.hot.len() >= self.limits.hot_max || self.hot_bytes > self.limits.hot_bytes_max;
        if is_full { self.cool() } else { Ok(()) }
    }

    /// Sends the queues that were not used for longest back to the disk: some of them, those under way excepted.
    fn cool(&mut self) -> Result<()> {
        let mut used: Vec<(u64, HostKey)> = self
            .hot
            .iter()
            .filter(|(_, hot)| !hot.queue.is_taken())
            .map(|(key, hot)| (hot.used, *key))
            .collect();
        let count = (self.hot.len() / COOL_PART).max(1).min(used.len());
        if count == 0 {
            return Ok(());
        }
        used.select_nth_unstable(count - 1);
        for (_, key) in used.into_iter().take(count) {
            if let Some(hot) = self.hot.remove(&key) {
                self.hot_bytes -= hot.bytes;
                let bytes = encode(&hot.queue)?;
                self.note(key, PUT, &bytes);
            }
        }
        Ok(())
    }

    /// Enters what is noted until at most `bytes_max` are.
    pub(super) fn relieve(&mut self, blocks: &mut Heap, chunks: &mut Heap, bytes_max: usize) -> Result<()> {
        while let Some(key) = self.full.pop() {
            self.merge(blocks, chunks, self.block_of(key))?;
        }
        while self.noted_bytes > bytes_max {
            if self.hand >= self.blocks.len() {
                self.hand = 0;
            }
            let worth = self.noted_bytes / self.blocks.len() / 2;
            if self.blocks[self.hand].noted_bytes > worth {
                self.hand += self.merge(blocks, chunks, self.hand)?;
            } else {
                self.hand += 1;
            }
        }
        Ok(())
    }

    /// Writes a block anew, with what is noted for it. Gives back how many it has become.
    fn merge(&mut self, blocks: &mut Heap, chunks: &mut Heap, at: usize) -> Result<usize> {
        let noted = self.noted_in(at);
        if noted.is_empty() {
            return Ok(1);
        }
        self.bytes.clear();
        if let Some(blob) = self.blocks[at].blob {
            blocks.read(blob, &mut self.bytes)?;
        }
        let mut old = records(&self.bytes).peekable();
        let mut pieces = Pieces::default();
        let mut new = 0;
        for (key, ops) in &noted {
            while let Some((other, bytes)) = old.next_if(|(other, _)| other < key) {
                pieces.push(other, bytes);
            }
            let record = old.next_if(|(other, _)| other == key);
            let mut queue = record.map(|(_, bytes)| decode(bytes)).transpose()?;
            let is_new = queue.is_none() && !is_put(ops);
            apply(&mut queue, chunks, *key, ops)?;
            if let Some(queue) = queue {
                new += u64::from(is_new);
                pieces.push(*key, &encode(&queue)?);
            }
        }
        old.for_each(|(key, bytes)| pieces.push(key, bytes));
        self.count += new;
        self.replace(blocks, at, pieces)
    }

    /// What is noted of the hosts of a block, which is not noted any more.
    fn noted_in(&mut self, at: usize) -> Vec<(HostKey, Vec<u8>)> {
        let first = Bound::Included(self.firsts[at]);
        let end = self.firsts.get(at + 1).map_or(Bound::Unbounded, |next| Bound::Excluded(*next));
        let noted = self.noted.extract_if((first, end), |_, _| true).collect();
        self.noted_bytes -= std::mem::take(&mut self.blocks[at].noted_bytes);
        self.blocks[at].new = 0;
        noted
    }

    fn replace(&mut self, blocks: &mut Heap, at: usize, pieces: Pieces) -> Result<usize> {
        if let Some(blob) = self.blocks[at].blob.take() {
            blocks.free(blob);
        }
        self.blocks[at].hosts = 0;
        let mut made = Vec::new();
        for (first, hosts, bytes) in pieces.balanced(self.limits.block_bytes_max) {
            made.push((first, Block { blob: Some(blocks.append(&bytes)?), hosts, ..Block::default() }));
        }
        let count = made.len();
        if count == 0 {
            return Ok(1);
        }
        made[0].0 = self.firsts[at];
        self.firsts.splice(at..=at, made.iter().map(|(first, _)| *first));
        self.blocks.splice(at..=at, made.into_iter().map(|(_, block)| block));
        Ok(count)
    }

    /// Passes on the queue of every host. Nothing is changed by it but where things are noted.
    pub(super) fn each(
        &mut self,
        blocks: &mut Heap,
        chunks: &mut Heap,
        hosts: RangeInclusive<HostKey>,
        each: &mut dyn FnMut(HostKey, &Queue),
    ) -> Result<()> {
        let mut at = self.block_of(*hosts.start());
        while at < self.blocks.len() && self.firsts[at] <= *hosts.end() {
            let count = self.merge(blocks, chunks, at)?;
            for block in at..at + count {
                let Some(blob) = self.blocks[block].blob else { continue };
                blocks.read(blob, &mut self.bytes)?;
                for (key, bytes) in records(&self.bytes).filter(|(key, _)| hosts.contains(key)) {
                    if !self.hot.contains_key(&key) {
                        each(key, &decode(bytes)?);
                    }
                }
            }
            at += count;
        }
        for (key, hot) in self.hot.iter().filter(|(key, _)| hosts.contains(key)) {
            each(*key, &hot.queue);
        }
        Ok(())
    }

    /// Passes on the queues of the hosts of one block, that of `from` or the next one that has any, from `from` on, in no
    /// order. Gives back where the next block begins, unless this is the last.
    pub(super) fn each_near(
        &mut self,
        blocks: &mut Heap,
        chunks: &mut Heap,
        from: HostKey,
        each: &mut dyn FnMut(HostKey, &Queue),
    ) -> Result<Option<HostKey>> {
        self.merge(blocks, chunks, self.block_of(from))?;
        let mut at = self.block_of(from);
        while self.blocks[at].blob.is_none() && at + 1 < self.blocks.len() {
            at += 1;
            self.merge(blocks, chunks, at)?;
        }
        let next = self.firsts.get(at + 1).copied();
        if let Some(blob) = self.blocks[at].blob {
            blocks.read(blob, &mut self.bytes)?;
            for (key, bytes) in records(&self.bytes).filter(|(key, _)| *key >= from) {
                if !self.hot.contains_key(&key) {
                    each(key, &decode(bytes)?);
                }
            }
        }
        let is_here = |key: &HostKey| *key >= from && next.is_none_or(|next| *key < next);
        self.hot.iter().filter(|(key, _)| is_here(key)).for_each(|(key, hot)| each(*key, &hot.queue));
        Ok(next)
    }

    /// Removes the queues of these hosts and passes them on.
    pub(super) fn remove(
        &mut self,
        blocks: &mut Heap,
        chunks: &mut Heap,
        hosts: &HostRanges,
        each: &mut dyn FnMut(Queue),
    ) -> Result<()> {
        let hot: Vec<HostKey> = self.hot.keys().filter(|key| hosts.contain(**key)).copied().collect();
        let mut gone = hot.len() as u64;
        let mut at = 0;
        while at < self.blocks.len() {
            if !hosts.meet(self.firsts[at], self.firsts.get(at + 1).copied()) {
                at += 1;
                continue;
            }
            let count = self.merge(blocks, chunks, at)?;
            let mut next = at + count;
            for block in (at..at + count).rev() {
                let Some(blob) = self.blocks[block].blob else { continue };
                blocks.read(blob, &mut self.bytes)?;
                let mut pieces = Pieces::default();
                let mut removed = false;
                for (key, bytes) in records(&self.bytes) {
                    if !hosts.contain(key) {
                        pieces.push(key, bytes);
                    } else {
                        removed = true;
                        if !self.hot.contains_key(&key) {
                            gone += 1;
                            each(decode(bytes)?);
                        }
                    }
                }
                if removed {
                    // Removing never makes more blocks.
                    next = next + self.replace(blocks, block, pieces)? - 1;
                }
            }
            at = next;
        }
        for key in hot {
            let Some(hot) = self.hot.remove(&key) else { unreachable!("it was listed") };
            self.hot_bytes -= hot.bytes;
            each(*hot.queue);
        }
        self.count -= gone;
        Ok(())
    }

    /// Moves a block out of segments that are nearly empty, from block `from` on. Gives back where to go on, unless there is no
    /// other.
    pub(super) fn evacuate(
        &mut self,
        heap: &mut Heap,
        segments: &[u32],
        from: usize,
    ) -> Result<Option<usize>> {
        let sparse = |block: &Block| block.blob.is_some_and(|blob| Heap::is_in(blob, segments));
        let next = self.blocks.iter().enumerate().skip(from).find(|(_, block)| sparse(block));
        let Some((at, _)) = next else { return Ok(None) };
        if let Some(blob) = self.blocks[at].blob {
            heap.read(blob, &mut self.bytes)?;
            self.blocks[at].blob = Some(heap.append(&self.bytes)?);
            heap.free(blob);
        }
        Ok(Some(at + 1))
    }

    /// What a snapshot has to say of the blocks, and how many hosts there are.
    pub(super) fn state(&self) -> (Vec<BlockState>, u64) {
        let blocks = self.firsts.iter().zip(&self.blocks);
        let blocks = blocks.map(|(first, block)| (*first, block.blob, block.hosts)).collect();
        (blocks, self.count)
    }

    /// And what is noted, with the queues in memory as if they were.
    pub(super) fn write_noted(&self, snapshot: &mut Writing) -> Result<()> {
        let mut head = Vec::with_capacity(HEAD_BYTES + OP_HEAD_BYTES);
        for (key, noted) in &self.noted {
            head.clear();
            head.extend_from_slice(&key.to_bytes());
            head.extend_from_slice(&(noted.len() as u32).to_le_bytes());
            snapshot.add(&head)?;
            snapshot.add(noted)?;
        }
        for (key, hot) in &self.hot {
            let queue = encode(&hot.queue)?;
            head.clear();
            head.extend_from_slice(&key.to_bytes());
            head.extend_from_slice(&((OP_HEAD_BYTES + queue.len()) as u32).to_le_bytes());
            head.push(PUT);
            head.extend_from_slice(&(queue.len() as u32).to_le_bytes());
            snapshot.add(&head)?;
            snapshot.add(&queue)?;
        }
        snapshot.end_section()
    }

    /// The hosts of a snapshot; `None` if that makes no sense.
    pub(super) fn from_state(
        blocks: Vec<BlockState>,
        ops: &[u8],
        count: u64,
        limits: HostLimits,
    ) -> Option<Hosts> {
        let mut hosts = Hosts::new(limits);
        hosts.count = count;
        hosts.firsts = blocks.iter().map(|(first, ..)| *first).collect();
        hosts.blocks =
            blocks.into_iter().map(|(_, blob, hosts)| Block { blob, hosts, ..Block::default() }).collect();
        if hosts.firsts.first() != Some(&HostKey::from_bytes([0; 8])) || !hosts.firsts.is_sorted() {
            return None;
        }
        let mut used = 0;
        for (key, noted) in records(ops) {
            let at = hosts.block_of(key);
            hosts.noted.insert(key, noted.to_vec());
            hosts.noted_bytes += NOTE_BYTES + noted.len();
            let block = &mut hosts.blocks[at];
            block.noted_bytes += NOTE_BYTES + noted.len();
            block.new += u32::from(!is_put(noted) && block.blob.is_none());
            used += HEAD_BYTES + noted.len();
        }
        (used == ops.len()).then_some(hosts)
    }
}

/// Enters a URL in a better class.
fn again(queue: &mut Queue, chunks: &mut Heap, key: HostKey, class: u8, entry: &[u8]) -> Result<()> {
    let (decoded, _) = decode_entry(entry).ok_or_else(senseless)?;
    if queue.is_ahead(decoded.print) {
        return Ok(());
    }
    queue.stale += 1;
    queue.push(chunks, key, class, entry)
}

/// Enters what is noted of a host into its queue, in order.
fn apply(queue: &mut Option<Queue>, chunks: &mut Heap, key: HostKey, ops: &[u8]) -> Result<()> {
    for (kind, bytes) in noted(ops) {
        match kind {
            PUT => *queue = Some(decode(bytes)?),
            AGAIN => {
                if let Some(queue) = queue {
                    let (class, entry) = bytes.split_first().ok_or_else(senseless)?;
                    again(queue, chunks, key, *class, entry)?;
                }
            }
            MEMO => {
                let (host, memo, away_until): (Host, Vec<u8>, Wall) =
                    postcard::from_bytes(bytes).map_err(|_| senseless())?;
                let queue = queue.get_or_insert_with(|| Queue::new(host));
                (queue.memo, queue.away_until) = (memo, away_until);
            }
            class => {
                if queue.is_none() {
                    *queue = Some(Queue::new(host_of(bytes)?));
                }
                if let Some(queue) = queue {
                    queue.add(chunks, key, class, bytes)?;
                }
            }
        }
    }
    Ok(())
}

/// Whether what is noted of a host begins with all of its queue: then it is not new.
fn is_put(ops: &[u8]) -> bool {
    ops.first() == Some(&PUT)
}

/// The host of an encoded entry.
fn host_of(entry: &[u8]) -> Result<Host> {
    let (decoded, _) = decode_entry(entry).ok_or_else(senseless)?;
    Ok(Host::of(&Url::parse(&decoded.found.url).map_err(|_| senseless())?))
}

fn senseless() -> Error {
    Error::Corrupt { path: "store".into(), place: 0, what: "an entry of a queue makes no sense" }
}

fn encode(queue: &Queue) -> Result<Vec<u8>> {
    postcard::to_stdvec(queue).map_err(Error::Encode)
}

/// A queue as it lies on disk. What was under way when it was written is due again.
fn decode(bytes: &[u8]) -> Result<Queue> {
    let mut queue: Queue = postcard::from_bytes(bytes).map_err(|_| Error::Corrupt {
        path: "store".into(),
        place: 0,
        what: "the queue of a host makes no sense",
    })?;
    queue.restart();
    Ok(queue)
}

/// What is noted of a host, in order; ends at the first that makes no sense.
fn noted(mut ops: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, rest) = ops.split_first()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        ops = rest;
        Some((*kind, bytes))
    })
}

/// Keys and what belongs to each, as they lie in a block.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (HostKey, &[u8])> {
    std::iter::from_fn(move || {
        let (key, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some((HostKey::from_bytes(*key), record))
    })
}

/// What becomes of a block.
#[derive(Default)]
struct Pieces {
    bytes: Vec<u8>,
    starts: Vec<(HostKey, usize)>,
}

impl Pieces {
    fn push(&mut self, key: HostKey, record: &[u8]) {
        self.starts.push((key, self.bytes.len()));
        self.bytes.reserve(HEAD_BYTES + record.len());
        self.bytes.extend_from_slice(&key.to_bytes());
        self.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(record);
    }

    /// Cut into blocks of about the same size: first key, hosts, bytes.
    fn balanced(self, bytes_max: usize) -> Vec<(HostKey, u32, Vec<u8>)> {
        let pieces = self.bytes.len().div_ceil(bytes_max).max(1);
        let each = self.bytes.len().div_ceil(pieces);
        let mut cut: Vec<(HostKey, u32, Vec<u8>)> = Vec::with_capacity(pieces);
        let ends = self.starts.iter().skip(1).map(|(_, start)| *start).chain([self.bytes.len()]);
        for ((key, start), end) in self.starts.iter().zip(ends) {
            let record = &self.bytes[*start..end];
            match cut.last_mut() {
                Some((_, hosts, bytes)) if bytes.len() + record.len() / 2 <= each => {
                    *hosts += 1;
                    bytes.extend_from_slice(record);
                }
                _ => cut.push((*key, 1, record.to_vec())),
            }
        }
        cut
    }
}
