//! The sieve: which URLs are known, and how far each has come, for any number of them in bounded memory.
//!
//! Known URLs lie on disk in sorted blocks of some thousand. What is offered is not looked up but noted with its block;
//! when enough is noted, or somebody needs to know, the block is read once, everything noted is decided in one pass, and the
//! block is written anew (check-and-update in batches, as in Mercator's and DRUM's sieves). A filter in memory says of
//! most new URLs at once that nobody knows them, so that only URLs that are probably known wait.
//!
//! Costs: 22 bytes of disk and about 2 bytes of memory a known URL, and [`OP_BYTES`] for what is noted.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use super::block::{self, Building, Cursor};
use super::filter::Filter;
use super::heap::{Blob, Heap};
use super::key::{HostKey, HostRanges, Key, Place};
use super::noted::Noted;
use super::op::{Kind, Op, Stage, Value};
use crate::Result;

/// Bytes of memory that a noted change takes.
const OP_BYTES: usize = size_of::<Op>();
/// A block for which this many times as much is noted as it may hold is merged, room or not, so that no merge takes long.
const BLOCK_OPS: usize = 2;
/// The filter of a block has room for this part more than the block holds at least.
const FILTER_PART: usize = 8;

/// What became of a URL that was offered and not decided at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is new after all: URL `index` of the record at `place` is to be queued.
    New { place: Place, index: usize },
    /// It is not known, and stays so: URL `index` of the record at `place`.
    KeptOut { place: Place, index: usize },
    /// It is queued already, in a worse class: it is to be entered again, and the old entry counts no more.
    Better { host: HostKey, place: Place, index: usize },
    /// It has been tried, and nobody knew it before: it is known now, and not to be queued.
    Tried { host: HostKey },
    /// It is known.
    Known,
}

impl Decision {
    /// Which URL of which record it needs the text of.
    pub(super) fn text(&self) -> Option<(u64, usize)> {
        match self {
            Decision::New { place, index }
            | Decision::KeptOut { place, index }
            | Decision::Better { place, index, .. } => Some((place.get(), *index)),
            Decision::Tried { .. } | Decision::Known => None,
        }
    }

    fn without_queue(&mut self, host: HostKey, by_cash: bool) {
        *self = match *self {
            // What it was given is kept out too, as if that had been decided at once.
            Decision::KeptOut { .. } if by_cash => return,
            Decision::New { .. } | Decision::Tried { .. } => Decision::Tried { host },
            Decision::Better { .. } | Decision::Known | Decision::KeptOut { .. } => Decision::Known,
        };
    }
}

/// Where a URL belongs, and whether its filter knows it.
#[derive(Clone, Copy)]
pub(super) struct Look {
    at: usize,
    known: bool,
}

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Nobody knows it: queue it.
    New,
    /// To be decided later.
    Later,
}

/// A stretch of keys. It begins where the directory says and ends where the next one begins.
#[derive(Default)]
struct Block {
    blob: Option<Blob>,
    urls: u32,
    filter: Option<Filter>,
    /// The filter as it was when the block was written, so that it need not be made again after a restart.
    filter_blob: Option<Blob>,
    ops: Noted,
}

/// Where a block begins and what it holds, for a snapshot.
pub(super) type BlockState = (Vec<u8>, Option<Blob>, u32, Option<Blob>);

/// What the sieve may use.
#[derive(Clone, Copy)]
pub(super) struct SieveLimits {
    /// Memory for filters, and for what is noted before some is decided.
    pub(super) bytes_max: usize,
    pub(super) filter_bytes_max: usize,
    /// A block with more URLs is cut.
    pub(super) block_urls_max: usize,
    /// Whether URLs are given something when they are offered.
    pub(super) by_cash: bool,
}

/// See the module's documentation.
pub(super) struct Sieve {
    /// The first key of each block; the first of all is [`Key::FIRST`].
    firsts: Vec<Key>,
    blocks: Vec<Block>,
    ops: usize,
    undecided: u64,
    filter_bytes: usize,
    limits: SieveLimits,
    /// A key of each block that is to be merged whether room is needed or not.
    full: Vec<Key>,
    /// The block that is looked at next when room is needed.
    hand: usize,
    /// The place of the last change, now and when the last two rounds over all blocks began.
    latest: u64,
    round: u64,
    round_before: u64,
    bytes: Vec<u8>,
    /// The block `old_blob`: the URLs of a host are often asked for one after the other.
    old: Vec<u8>,
    old_blob: Option<Blob>,
    new: Building,
}

impl Sieve {
    pub(super) fn new(limits: SieveLimits) -> Sieve {
        Sieve {
            firsts: vec![Key::FIRST],
            blocks: vec![Block::default()],
            ops: 0,
            undecided: 0,
            filter_bytes: 0,
            limits,
            full: Vec::new(),
            hand: 0,
            latest: 0,
            round: 0,
            round_before: 0,
            bytes: Vec::new(),
            old: Vec::new(),
            old_blob: None,
            new: Building::default(),
        }
    }

    /// Whether there is something that should be decided now.
    pub(super) fn is_full(&self) -> bool {
        self.ops > self.ops_max() || !self.full.is_empty()
    }

    /// Offers that are not decided.
    pub(super) fn undecided(&self) -> u64 {
        self.undecided
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.filter_bytes
            + self.blocks.iter().map(|block| block.ops.memory_bytes()).sum::<usize>()
            + self.blocks.capacity() * (size_of::<Block>() + Key::BYTES)
    }

    fn block_of(&self, key: &Key) -> usize {
        self.firsts.partition_point(|first| first <= key) - 1
    }

    /// Looks for URLs that will be offered next, before anything else changes. Where blocks and filters are large, most of an
    /// offer is waiting for memory, and for many at once that is hardly longer than for one.
    pub(super) fn look(&self, keys: &[Key], looks: &mut Vec<Look>) {
        looks.clear();
        looks.extend(keys.iter().map(|key| Look { at: self.block_of(key), known: false }));
        for (key, look) in keys.iter().zip(looks) {
            let filter = self.blocks[look.at].filter.as_ref();
            look.known = filter.is_some_and(|filter| filter.contains(&key.fingerprint()));
        }
    }

    /// Offers a URL: [`Kind::Check`], or [`Kind::Probe`] for one that a limit keeps out if it is not known.
    pub(super) fn ask(&mut self, heap: &Heap, look: Look, mut op: Op) -> Result<Offer> {
        let at = look.at;
        if self.blocks[at].filter.is_none() {
            self.make_filter(heap, at)?;
        }
        let print = op.key.fingerprint();
        match &mut self.blocks[at].filter {
            Some(filter) if !look.known && !filter.contains(&print) => {
                if op.kind == Kind::Check {
                    filter.insert(&print);
                    op.kind = Kind::New;
                    self.note(at, op);
                }
                Ok(Offer::New)
            }
            _ => {
                self.undecided += 1;
                self.note(at, op);
                Ok(Offer::Later)
            }
        }
    }

    /// Forgets a URL that was decided to be new.
    pub(super) fn forget(&mut self, key: Key, place: u64) {
        let at = self.block_of(&key);
        self.note(at, Op::new(key, Kind::Forget, 0, place, 0));
    }

    /// Makes sure that there is a filter for a URL's block, if there is room for one.
    pub(super) fn prepare(&mut self, heap: &Heap, key: &Key) -> Result<()> {
        let at = self.block_of(key);
        if self.blocks[at].filter.is_none() { self.make_filter(heap, at) } else { Ok(()) }
    }

    /// Whether it cannot be said at once that a URL is known or not: nobody has decided about it, or there is no filter.
    pub(super) fn is_uncertain(&self, key: &Key) -> bool {
        let block = &self.blocks[self.block_of(key)];
        block.filter.is_none() || block.ops.iter().any(|op| op.key == *key && op.kind.is_question())
    }

    /// Notes how far a URL has come by an attempt at it, known or not.
    /// True if it certainly was not, and is known from now on.
    pub(super) fn settle(&mut self, key: Key, place: u64, to: Stage) -> bool {
        let at = self.block_of(&key);
        let print = key.fingerprint();
        let is_new = match &mut self.blocks[at].filter {
            Some(filter) if !filter.contains(&print) => {
                filter.insert(&print);
                true
            }
            _ => false,
        };
        if is_new {
            self.note(at, Op::new(key, Kind::New, 0, place, 0));
        }
        let kind = match to {
            Stage::Settled => Kind::Settled,
            Stage::Sent => Kind::Sent,
            Stage::Tried | Stage::Queued { .. } => Kind::Tried,
        };
        self.note(at, Op::new(key, kind, 0, place, 0));
        is_new
    }

    /// Changes that are noted before some are decided: what filters leave room for.
    fn ops_max(&self) -> usize {
        self.limits.bytes_max.saturating_sub(self.filter_bytes) / OP_BYTES
    }

    fn block_ops_max(&self) -> usize {
        BLOCK_OPS * self.limits.block_urls_max
    }

    fn note(&mut self, at: usize, op: Op) {
        let ops_max = self.block_ops_max();
        self.latest = op.place.get();
        let ops = &mut self.blocks[at].ops;
        ops.push(op);
        if ops.len() == ops_max {
            self.full.push(op.key);
        }
        self.ops += 1;
    }

    /// What is known of a URL, with what is noted and decided. An offer that is not decided changes nothing.
    pub(super) fn get(&mut self, heap: &Heap, key: &Key) -> Result<Option<Value>> {
        let at = self.block_of(key);
        self.read_block(heap, at)?;
        let mut value = block::get(&self.old, key);
        for op in self.blocks[at].ops.iter().filter(|op| op.key == *key && !op.kind.is_question()) {
            value = value_after(value, op);
        }
        Ok(value)
    }

    /// The place of the oldest record that an offer that is not decided was found in.
    pub(super) fn oldest_text(&self) -> u64 {
        let checks = self.blocks.iter().flat_map(|block| block.ops.iter()).filter(|op| op.kind.is_question());
        checks.map(|op| op.place.get()).min().unwrap_or(u64::MAX)
    }

    /// Decides what there is no room for.
    pub(super) fn relieve(&mut self, heap: &mut Heap, out: &mut Vec<Decision>) -> Result<()> {
        while let Some(key) = self.full.pop() {
            self.merge(heap, self.block_of(&key), out)?;
        }
        while self.ops > self.ops_max() {
            if self.hand >= self.blocks.len() {
                self.hand = 0;
                self.round_before = std::mem::replace(&mut self.round, self.latest);
            }
            // Blocks for which little is noted are left for another round, but only for one: the journal is needed as long
            // as an offer of it is not decided.
            let worth = self.ops / self.blocks.len() / 2;
            let ops = &self.blocks[self.hand].ops;
            if ops.len() > worth || ops.iter().next().is_some_and(|op| op.place.get() < self.round_before) {
                self.hand += self.merge(heap, self.hand, out)?;
            } else {
                self.hand += 1;
            }
        }
        Ok(())
    }

    /// Decides everything that is noted of these hosts.
    pub(super) fn decide(
        &mut self,
        heap: &mut Heap,
        hosts: RangeInclusive<HostKey>,
        out: &mut Vec<Decision>,
    ) -> Result<()> {
        let range = Key::of_hosts(hosts);
        let mut at = self.block_of(range.start());
        while at < self.blocks.len() && self.firsts[at] <= *range.end() {
            at += self.merge(heap, at, out)?;
        }
        Ok(())
    }

    /// Decides what is noted with one block and writes it anew. Gives back how many blocks it has become.
    fn merge(&mut self, heap: &mut Heap, at: usize, out: &mut Vec<Decision>) -> Result<usize> {
        if self.blocks[at].ops.len() == 0 {
            return Ok(1);
        }
        self.read_block(heap, at)?;
        let mut ops = self.blocks[at].ops.take();
        ops.sort_by_key(|op| op.key);
        let (answered, by_cash) = (out.len(), self.limits.by_cash);
        self.new.clear();
        let mut changed = false;
        let mut old = Cursor::new(&self.old);
        for group in ops.chunk_by(|a, b| a.key == b.key) {
            let key = group[0].key;
            let before = old.copy_before(&key, &mut self.new);
            let mut value = before;
            let decided = out.len();
            for op in group {
                out.extend(decision(value, op));
                value = value_after(value, op);
            }
            if value.is_some() && !matches!(value, Some(Value { stage: Stage::Queued { .. }, .. })) {
                // When records are folded again, a URL can have been tried before it is decided that it was new.
                out[decided..].iter_mut().for_each(|decision| decision.without_queue(key.host(), by_cash));
            }
            changed |= value != before;
            if let Some(value) = value {
                self.new.push(&key, value);
            }
        }
        old.copy_rest(&mut self.new);
        let count = if changed { self.write_blocks(heap, at) } else { Ok(1) };
        if count.is_ok() {
            self.ops -= ops.len();
            self.undecided -= checks(&ops);
        } else {
            // Nothing has happened.
            out.truncate(answered);
            self.blocks[at].ops.put_back(ops);
        }
        count
    }

    /// Replaces a block by `new`, in as many pieces as that needs.
    fn write_blocks(&mut self, heap: &mut Heap, at: usize) -> Result<usize> {
        let new = std::mem::take(&mut self.new);
        let filter = self.blocks[at].filter.take();
        self.filter_bytes -= filter.as_ref().map_or(0, Filter::memory_bytes);
        let pieces = new.urls().div_ceil(self.limits.block_urls_max);
        let mut firsts = vec![self.firsts[at]];
        let mut blocks = Vec::with_capacity(pieces);
        if pieces > 1 {
            let cut = new.cut(new.urls().div_ceil(pieces));
            firsts.extend(cut[1..].iter().map(|(first, _)| *first));
            for (_, piece) in &cut {
                blocks.push(self.write_block(heap, piece, None, self.blocks.len() + pieces)?);
            }
        } else if pieces == 1 {
            // A filter knows what was noted, so it is as good for the block with that as it was, while it has room.
            let filter = filter.filter(|filter| !filter.is_full());
            blocks.push(self.write_block(heap, &new, filter, self.blocks.len())?);
        } else {
            blocks.push(Block::default());
        }
        let Block { blob, filter_blob, .. } = &self.blocks[at];
        blob.iter().chain(filter_blob).for_each(|blob| heap.free(*blob));
        let count = blocks.len();
        if count > 1 {
            self.firsts.splice(at..=at, firsts);
            self.blocks.splice(at..=at, blocks);
        } else if let Some(block) = blocks.pop() {
            self.blocks[at] = block;
        }
        self.new = new;
        Ok(count)
    }

    fn write_block(
        &mut self,
        heap: &mut Heap,
        new: &Building,
        filter: Option<Filter>,
        blocks: usize,
    ) -> Result<Block> {
        let blob = heap.append(new.bytes())?;
        let filter = filter.or_else(|| {
            let room = self.filter_room(blocks, new.urls());
            let fits = self.filter_bytes + Filter::bytes_for(room) <= self.limits.filter_bytes_max;
            fits.then(|| filter_of(room, new.bytes()))
        });
        let mut filter_blob = None;
        if let Some(filter) = &filter {
            self.filter_bytes += filter.memory_bytes();
            self.bytes.clear();
            filter.encode(&mut self.bytes);
            filter_blob = Some(heap.append(&self.bytes)?);
        }
        Ok(Block { blob: Some(blob), urls: new.urls() as u32, filter, filter_blob, ops: Noted::default() })
    }

    /// Reads a block into `old`.
    fn read_block(&mut self, heap: &Heap, at: usize) -> Result<()> {
        let blob = self.blocks[at].blob;
        if blob.is_some() && blob == self.old_blob {
            return Ok(());
        }
        self.old_blob = None;
        let Some(blob) = blob else {
            self.old.clear();
            return Ok(());
        };
        heap.read(blob, &mut self.old)?;
        if !block::is_whole(&self.old) {
            return Err(heap.corrupt(blob, "a block of the sieve makes no sense"));
        }
        self.old_blob = Some(blob);
        Ok(())
    }

    /// For how many URLs the filter of a block is made: those it holds, and those that will be noted before it is made anew.
    fn filter_room(&self, blocks: usize, urls: usize) -> usize {
        urls + (self.ops_max() / blocks).min(self.block_ops_max()).max(urls / FILTER_PART)
    }

    /// Makes the filter of a block that has none, if there is room.
    fn make_filter(&mut self, heap: &Heap, at: usize) -> Result<()> {
        let room = self.filter_room(self.blocks.len(), self.blocks[at].urls as usize);
        if self.filter_bytes + Filter::bytes_for(room) > self.limits.filter_bytes_max {
            return Ok(());
        }
        let mut filter = match self.blocks[at].filter_blob {
            Some(blob) => {
                heap.read(blob, &mut self.bytes)?;
                let urls = self.blocks[at].urls as usize;
                Filter::decode(&self.bytes, urls)
                    .ok_or_else(|| heap.corrupt(blob, "a filter makes no sense"))?
            }
            None => {
                self.read_block(heap, at)?;
                filter_of(room, &self.old)
            }
        };
        for op in self.blocks[at].ops.iter() {
            filter.insert(&op.key.fingerprint());
        }
        self.filter_bytes += filter.memory_bytes();
        self.blocks[at].filter = Some(filter);
        Ok(())
    }

    /// Passes on what is known of a host from a URL on, in order, until it is told that this is enough. Everything must be
    /// decided.
    pub(super) fn each(
        &mut self,
        heap: &Heap,
        first: &Key,
        each: &mut dyn FnMut(&Key, &Value) -> ControlFlow<()>,
    ) -> Result<()> {
        let range = *first..=*Key::of_hosts(first.host()..=first.host()).end();
        let mut at = self.block_of(range.start());
        while at < self.blocks.len() && self.firsts[at] <= *range.end() {
            self.read_block(heap, at)?;
            for (key, value) in block::entries(&self.old).filter(|(key, _)| range.contains(key)) {
                if each(&key, &value).is_break() {
                    return Ok(());
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Forgets these hosts, and passes on what was known. Everything must be decided.
    pub(super) fn remove(
        &mut self,
        heap: &mut Heap,
        hosts: &HostRanges,
        gone: &mut dyn FnMut(&Value),
    ) -> Result<()> {
        let mut at = 0;
        while at < self.blocks.len() {
            // A host may go on in the next block.
            if !hosts.meet(self.firsts[at].host(), self.firsts.get(at + 1).map(Key::host)) {
                at += 1;
                continue;
            }
            self.read_block(heap, at)?;
            let mut kept = self.blocks[at].ops.take();
            let (ops_before, undecided_before) = (kept.len(), checks(&kept));
            kept.retain(|op| !hosts.contain(op.key.host()));
            self.ops -= ops_before - kept.len();
            self.undecided -= undecided_before - checks(&kept);
            self.new.clear();
            for (key, value) in block::entries(&self.old) {
                match hosts.contain(key.host()) {
                    true => gone(&value),
                    false => self.new.push(&key, value),
                }
            }
            let mut count = 1;
            if self.new.urls() < self.blocks[at].urls as usize {
                count = self.write_blocks(heap, at)?;
            }
            // Removing never cuts a block. A filter that was made anew does not know yet what is noted.
            let block = &mut self.blocks[at];
            if let Some(filter) = &mut block.filter {
                kept.iter().for_each(|op| filter.insert(&op.key.fingerprint()));
            }
            block.ops.put_back(kept);
            at += count;
        }
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
        let sparse = |blob: &Option<Blob>| blob.is_some_and(|blob| Heap::is_in(blob, segments));
        let rest = self.blocks.iter().enumerate().skip(from);
        let next = rest.clone().find(|(_, block)| sparse(&block.blob) || sparse(&block.filter_blob));
        let Some((at, _)) = next else { return Ok(None) };
        let Block { blob, filter_blob, .. } = &mut self.blocks[at];
        for blob in blob.iter_mut().chain(filter_blob).filter(|blob| Heap::is_in(**blob, segments)) {
            heap.read(*blob, &mut self.bytes)?;
            let moved = heap.append(&self.bytes)?;
            heap.free(std::mem::replace(blob, moved));
        }
        Ok(Some(at + 1))
    }

    /// What a snapshot has to say of the blocks.
    pub(super) fn state(&self) -> Vec<BlockState> {
        let blocks = self.firsts.iter().zip(&self.blocks);
        let state = |(first, block): (&Key, &Block)| {
            (first.bytes().to_vec(), block.blob, block.urls, block.filter_blob)
        };
        blocks.map(state).collect()
    }

    /// And what is noted. [`Sieve::thaw`] follows when it is written.
    pub(super) fn freeze(&mut self) -> Vec<Arc<Vec<Op>>> {
        self.blocks.iter_mut().filter(|block| block.ops.len() > 0).map(|block| block.ops.freeze()).collect()
    }

    pub(super) fn thaw(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.ops.thaw());
    }

    /// The sieve of a snapshot; `None` if that makes no sense.
    pub(super) fn from_state(blocks: Vec<BlockState>, ops: &[u8], limits: SieveLimits) -> Option<Sieve> {
        let mut sieve = Sieve::new(limits);
        sieve.firsts.clear();
        sieve.blocks.clear();
        for (first, blob, urls, filter_blob) in blocks {
            sieve.firsts.push(Key::from_bytes(first.try_into().ok()?));
            sieve.blocks.push(Block { blob, urls, filter_blob, ..Block::default() });
        }
        if sieve.firsts.first() != Some(&Key::FIRST) || !sieve.firsts.is_sorted() {
            return None;
        }
        for op in ops.chunks(Op::ENCODED_BYTES) {
            let op = Op::decode(op)?;
            let at = sieve.block_of(&op.key);
            sieve.undecided += u64::from(op.kind.is_question());
            sieve.blocks[at].ops.push(op);
            sieve.ops += 1;
        }
        Some(sieve)
    }
}

fn checks(ops: &[Op]) -> u64 {
    ops.iter().filter(|op| op.kind.is_question()).count() as u64
}

fn filter_of(room: usize, block: &[u8]) -> Filter {
    let mut filter = Filter::new(room);
    block::prints(block).for_each(|print| filter.insert(print));
    filter
}

/// What an offer that was not decided means, by what is known.
fn decision(value: Option<Value>, op: &Op) -> Option<Decision> {
    match op.kind {
        Kind::Check | Kind::Probe => {}
        // A limit of today keeps out what was admitted and tried before: it is known all the same.
        Kind::Tried | Kind::Sent | Kind::Settled if value.is_none() => {
            return Some(Decision::Tried { host: op.key.host() });
        }
        _ => return None,
    }
    let [x, y, z] = op.index;
    let (place, index) = (op.place, u32::from_le_bytes([x, y, z, 0]) as usize);
    Some(match value.map(|value| value.stage) {
        None if op.kind == Kind::Probe => Decision::KeptOut { place, index },
        None => Decision::New { place, index },
        Some(Stage::Queued { class }) if op.class < class => {
            Decision::Better { host: op.key.host(), place, index }
        }
        Some(_) => Decision::Known,
    })
}

/// What is known after a change.
fn value_after(value: Option<Value>, op: &Op) -> Option<Value> {
    let stage = match (op.kind, value.map(|value| value.stage)) {
        (Kind::Tried, _) => Stage::Tried,
        (Kind::Sent, _) => Stage::Sent,
        (Kind::Settled, _) => Stage::Settled,
        (Kind::Forget, _) | (Kind::Probe, None) => return None,
        (Kind::New | Kind::Check, None) => Stage::Queued { class: op.class },
        (Kind::New | Kind::Check | Kind::Probe, Some(Stage::Queued { class })) if op.class < class => {
            Stage::Queued { class: op.class }
        }
        (Kind::New | Kind::Check | Kind::Probe, Some(_)) => return value,
    };
    Some(Value { stage, place: op.place })
}
