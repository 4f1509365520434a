//! The frontier on disk: a sieve and a queue a host for any number of URLs in bounded memory.
//!
//! [`Frontier::admit`] takes what a durable record found, [`Frontier::take`] hands URLs of a host over,
//! [`Frontier::settle`] notes what came of one. Memory holds what has happened since it was last written out, filters, and
//! the queues of the hosts in use; everything else lies in sorted blocks and chunks on disk (`sieve`, `hosts`, `queue`),
//! which are written anew many changes at a time and never in place (`heap`).
//!
//! # Durability
//! The journal is what makes a change durable; the frontier is its fold. Now and then [`Frontier::snapshot`] writes down what
//! is in memory, so that the journal before it is not needed any more: opening reads the last snapshot, and whoever opens
//! folds the records behind [`Frontier::place`] again. A crash between two snapshots costs the time to do that.
//!
//! # Invariants
//! - A URL is known once, however often it is offered. Whether an offer was new may be said later, and is said once.
//! - A URL that is known and not settled is in exactly one of three places: due, deferred, or taken. What was taken when the
//!   process ended is due again.
//! - After a crash the state is that of the last durable snapshot, and folding the same records again leads to the same
//!   known URLs, settled URLs and due URLs as before.
//! - The URLs of a host are one range of the sieve, and of a partition too: moving them out touches nothing else.

mod filter;
mod heap;
mod hosts;
mod key;
mod queue;
mod sieve;
mod snapshot;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_core::agent::{Admitted, Due, Taken};
use nephila_core::record::{Found, Outcome, Record, Settled};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, Url, identify};
use nephila_disk::{Disk, Mode};

use self::heap::{Blob, Heap};
use self::hosts::{HostLimits, Hosts};
use self::key::{HostKey, Key};
use self::queue::{Entry, HELD, class_of, encode_entry, host_of_chunk};
use self::sieve::{Decision, OP_BYTES, Offer, Sieve, SieveLimits, Stage};
use self::snapshot::Snapshot;
use crate::{Error, HostQueue, Result, StoreLimits};

pub use self::key::{PARTITIONS, partition_of};

/// How many hosts are looked at to count new URLs together.
const HOSTS_NEAR: usize = 8;
/// Chunks that are moved at a time.
const CHUNKS_MOVED: usize = 4;
/// Segments of which less than this is in use are emptied.
const SPARSE_PERCENT: u64 = 50;

/// What the frontier may use.
#[derive(Clone, Copy, Debug)]
pub struct FrontierOptions {
    /// What admission stops at.
    pub limits: StoreLimits,
    /// Memory for what the sieve has noted and not decided or written.
    pub sieve_bytes_max: usize,
    /// Memory for the filters of the sieve.
    pub filter_bytes_max: usize,
    /// Memory for URLs of hosts that are not in memory.
    pub pending_bytes_max: usize,
    /// Hosts whose queues are in memory.
    pub hot_hosts_max: usize,
    /// URLs in a block of the sieve.
    pub block_urls_max: usize,
    /// Bytes in a block of queues.
    pub block_bytes_max: usize,
    /// So that nobody outside can make hosts collide. Counts when the frontier is made.
    pub secret: u64,
}

impl Default for FrontierOptions {
    fn default() -> FrontierOptions {
        FrontierOptions {
            limits: StoreLimits { max_depth: u16::MAX, max_host_pages: u64::MAX, max_urls: u64::MAX },
            sieve_bytes_max: 128 << 20,
            filter_bytes_max: 256 << 20,
            pending_bytes_max: 64 << 20,
            hot_hosts_max: 20_000,
            block_urls_max: 8_192,
            block_bytes_max: 64 << 10,
            secret: 0,
        }
    }
}

/// Where the texts of URLs can be read again that were offered and not decided at once.
pub trait Texts {
    /// URL `index` of those that the record at `place` found.
    fn found(&self, place: u64, index: usize) -> Result<Found>;
}

/// Which hosts to look at, to move or to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// One host.
    Host(Host),
    /// All hosts of a partition.
    Partition(u16),
    /// All.
    All,
}

/// A known URL, as it is moved to somebody else: enough to know it, not to fetch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// Whether it is done.
    pub settled: bool,
    /// The place of the record that says so, or that it was found in.
    pub place: u64,
}

/// A host that was moved out.
#[derive(Clone, Debug, PartialEq)]
pub struct MovedHost {
    /// The host.
    pub host: Host,
    /// Its URLs that are due or to be tried again, with the attempts that each has used up.
    pub waiting: Vec<(Found, u8)>,
}

/// What the frontier takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory, counted from what is reserved.
    pub memory_bytes: u64,
    /// Files.
    pub disk_bytes: u64,
    /// The part of them that is in use.
    pub live_bytes: u64,
    /// Read since it was opened, without what came from the buffers.
    pub read_bytes: u64,
    /// Written since it was opened.
    pub written_bytes: u64,
}

/// A snapshot on its way to the disk.
pub struct SnapshotJob {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Files that must be durable first.
    unsynced: Vec<PathBuf>,
    dead: [Vec<u32>; 2],
    place: u64,
    needed: u64,
    head: snapshot::Head,
    rest: [Vec<u8>; 3],
}

/// A snapshot that is durable.
pub struct SnapshotDone {
    dead: [Vec<u32>; 2],
    bytes: u64,
    /// The place that it was taken at: opening folds the records from here on.
    pub place: u64,
    /// Records before this place are not needed any more, but to look back.
    pub needed: u64,
}

impl SnapshotJob {
    /// Makes everything that the snapshot names durable, and then the snapshot.
    pub fn run(self) -> Result<SnapshotDone> {
        for path in &self.unsynced {
            let mut file = self.disk.open(path, Mode::Append).map_err(Error::io("open", path))?;
            file.sync().map_err(Error::io("sync", path))?;
        }
        self.disk.sync_dir(&self.dir).map_err(Error::io("sync", &self.dir))?;
        let bytes =
            snapshot::write(&*self.disk, &self.dir, &self.head, self.rest.each_ref().map(|part| &part[..]))?;
        Ok(SnapshotDone { dead: self.dead, needed: self.needed, bytes, place: self.place })
    }
}

/// See the module's documentation.
pub struct Frontier {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    options: FrontierOptions,
    texts: Box<dyn Texts>,
    /// Blocks of sieve and hosts.
    blocks: Heap,
    /// Stretches of queues.
    chunks: Heap,
    sieve: Sieve,
    hosts: Hosts,
    secret: u64,
    /// Up to where the records are folded in.
    place: u64,
    known: u64,
    settled: u64,
    held: u64,
    decided: Admitted,
    decisions: Vec<Decision>,
    entry: Vec<u8>,
    /// Chunks of a segment that is being emptied; some are dead.
    to_move: Vec<Blob>,
    snapshot_bytes: u64,
}

impl Frontier {
    /// Opens the frontier in `dir` as its last snapshot says, or makes one. Also gives back what the owner gave to that
    /// snapshot.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: FrontierOptions,
        texts: Box<dyn Texts>,
    ) -> Result<(Frontier, Vec<u8>)> {
        disk.create_dir_all(dir).map_err(Error::io("create", dir))?;
        let snapshot = snapshot::read(&*disk, dir)?;
        let host_limits = HostLimits {
            urls_max: options.limits.max_host_pages,
            hot_max: options.hot_hosts_max.max(1),
            block_bytes_max: options.block_bytes_max,
        };
        let sieve_limits = SieveLimits {
            ops_max: options.sieve_bytes_max / OP_BYTES,
            filter_bytes_max: options.filter_bytes_max,
            block_urls_max: options.block_urls_max.max(1),
        };
        let fresh = snapshot.is_none();
        let Snapshot { head, sieve_ops, host_ops, memo } = snapshot.unwrap_or_default();
        let senseless = || snapshot::senseless(dir);
        let (sieve, hosts) = if fresh {
            (Sieve::new(sieve_limits), Hosts::new(host_limits))
        } else {
            let sieve = Sieve::from_state(head.sieve_blocks, &sieve_ops, sieve_limits);
            let hosts = Hosts::from_state(head.host_blocks, &host_ops, host_limits);
            (sieve.ok_or_else(senseless)?, hosts.ok_or_else(senseless)?)
        };
        let frontier = Frontier {
            blocks: Heap::open(disk.clone(), dir, "blocks", &head.blocks)?,
            chunks: Heap::open(disk.clone(), dir, "chunks", &head.chunks)?,
            dir: dir.to_owned(),
            disk,
            options,
            texts,
            sieve,
            hosts,
            secret: if fresh { options.secret } else { head.secret },
            place: head.place,
            known: head.known,
            settled: head.settled,
            held: head.held,
            decided: Admitted::default(),
            decisions: Vec::new(),
            entry: Vec::new(),
            to_move: Vec::new(),
            snapshot_bytes: 0,
        };
        Ok((frontier, memo))
    }

    /// The place of the first record that is not folded in.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// URLs that are known, with those that limits keep out. Offers that are not decided are not counted.
    pub fn known_urls(&self) -> u64 {
        self.known
    }

    /// URLs that are done.
    pub fn settled_urls(&self) -> u64 {
        self.settled
    }

    /// Offers that are not decided.
    pub fn undecided(&self) -> u64 {
        self.sieve.undecided()
    }

    fn key_of(&self, host: &Host) -> HostKey {
        HostKey::of(host, self.secret)
    }

    fn class_max(&self) -> u8 {
        class_of(self.options.limits.max_depth)
    }

    /// Offers what a durable record found; says what is new, as far as that can be said at once. The rest follows with
    /// [`Frontier::decided`].
    pub fn admit(&mut self, place: u64, record: &Record) -> Result<Admitted> {
        for (index, found) in record.found().iter().enumerate() {
            let Some((host, fingerprint)) = identify(&found.url) else { continue };
            let host_key = self.key_of(&host);
            let class = class_of(found.depth);
            let key = Key::new(host_key, fingerprint);
            if self.sieve.offer(&self.blocks, key, class, place, index)? == Offer::New {
                self.enter(host_key, host, found, place)?;
            }
        }
        self.relieve()?;
        Ok(self.decided())
    }

    /// Says that every record before this place is folded in.
    pub fn advance(&mut self, place: u64) {
        self.place = place;
    }

    /// Queues a URL that is new.
    fn enter(&mut self, key: HostKey, host: Host, found: &Found, via: u64) -> Result<()> {
        let full = self.known - self.held >= self.options.limits.max_urls;
        let class = if full { HELD } else { class_of(found.depth) };
        self.entry.clear();
        encode_entry(found, 0, via, &mut self.entry);
        self.hosts.push(&mut self.chunks, key, class, &self.entry)?;
        self.known += 1;
        if full {
            self.held += 1;
            self.decided.over.urls += 1;
            return Ok(());
        }
        if found.depth > self.options.limits.max_depth {
            self.decided.over.depth += 1;
            return Ok(());
        }
        // The URLs of a page are mostly of few hosts, and a host may be named again.
        match self.decided.new.iter_mut().rev().take(HOSTS_NEAR).find(|(other, _)| *other == host) {
            Some((_, count)) => *count += 1,
            None => self.decided.new.push((host, 1)),
        }
        Ok(())
    }

    /// What has been decided since this was last asked.
    pub fn decided(&mut self) -> Admitted {
        std::mem::take(&mut self.decided)
    }

    /// Decides and writes out what there is no room for.
    fn relieve(&mut self) -> Result<()> {
        self.move_chunks(CHUNKS_MOVED)?;
        if self.sieve.is_full() {
            let mut decisions = std::mem::take(&mut self.decisions);
            self.sieve.relieve(&mut self.blocks, &mut decisions)?;
            self.act_on(decisions)?;
        }
        if self.hosts.is_full(self.options.pending_bytes_max) {
            self.hosts.relieve(&mut self.blocks, &mut self.chunks, self.options.pending_bytes_max)?;
        }
        Ok(())
    }

    /// Decides every offer.
    pub fn decide(&mut self) -> Result<Admitted> {
        self.decide_range(&Range::All)?;
        self.relieve()?;
        Ok(self.decided())
    }

    fn decide_range(&mut self, range: &Range) -> Result<()> {
        let hosts = self.hosts_of(range);
        let mut decisions = std::mem::take(&mut self.decisions);
        self.sieve.decide(&mut self.blocks, hosts, &mut decisions)?;
        self.act_on(decisions)
    }

    fn act_on(&mut self, mut decisions: Vec<Decision>) -> Result<()> {
        for decision in decisions.drain(..) {
            match decision {
                Decision::Known => self.decided.known += 1,
                Decision::Tried { host } => {
                    self.known += 1;
                    if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, host)? {
                        queue.known += 1;
                    }
                }
                Decision::New { place, index } => {
                    let found = self.texts.found(place.get(), index)?;
                    if let Some((host, _)) = identify(&found.url) {
                        self.enter(self.key_of(&host), host, &found, place.get())?;
                    }
                }
                Decision::Better { host, place, index } => {
                    let found = self.texts.found(place.get(), index)?;
                    self.entry.clear();
                    encode_entry(&found, 0, place.get(), &mut self.entry);
                    self.hosts.again(&mut self.chunks, host, &self.entry)?;
                    self.decided.known += 1;
                }
            }
        }
        self.decisions = decisions;
        Ok(())
    }

    /// Hands over up to `max` URLs of a host: first those that were put back, then those whose time has come again, the
    /// earliest first, then the others, the lowest class first and within it in the order of admission. With `fresh_first`,
    /// the others come before those that come back.
    pub fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken> {
        let mut taken = Taken { host: host.clone(), due: Vec::new(), left: 0, next: None };
        let key = self.key_of(host);
        let class_max = self.class_max();
        match self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
            Some(queue) => queue.recall(now),
            None => return Ok(taken),
        }
        self.release_held(key, max)?;
        while taken.due.len() < max {
            let first = if fresh_first { self.next_fresh(key, class_max)? } else { self.next_returned(key)? };
            let entry = match first {
                Some(entry) => Some(entry),
                None if fresh_first => self.next_returned(key)?,
                None => self.next_fresh(key, class_max)?,
            };
            let Some(entry) = entry else { break };
            let Ok(url) = Url::parse(&entry.found.url) else { continue };
            taken.due.push(Due {
                url,
                depth: entry.found.depth,
                how: entry.found.how,
                redirects: entry.found.redirects,
                attempts: entry.attempts,
                via: None,
                reference: entry.via,
            });
            if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
                queue.take(entry);
            }
        }
        if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
            taken.left = queue.due(class_max);
            taken.next = queue.next();
        }
        Ok(taken)
    }

    /// Queues URLs that a limit kept out, as far as the limits allow it now.
    fn release_held(&mut self, key: HostKey, max: usize) -> Result<()> {
        let limits = self.options.limits;
        for _ in 0..max {
            let full = self.known - self.held >= limits.max_urls;
            let queue = self.hosts.load(&mut self.blocks, &mut self.chunks, key)?;
            let Some(queue) = queue.filter(|queue| !full && queue.known - queue.held < limits.max_host_pages)
            else {
                break;
            };
            let Some(entry) = queue.pop_held(&mut self.chunks)? else { break };
            queue.held -= 1;
            self.held = self.held.saturating_sub(1);
            self.entry.clear();
            encode_entry(&entry.found, entry.attempts, entry.via, &mut self.entry);
            queue.push(&mut self.chunks, key, class_of(entry.found.depth), &self.entry)?;
        }
        Ok(())
    }

    fn next_returned(&mut self, key: HostKey) -> Result<Option<Entry>> {
        let queue = self.hosts.load(&mut self.blocks, &mut self.chunks, key)?;
        Ok(queue.and_then(|queue| queue.pop_front()))
    }

    fn next_fresh(&mut self, key: HostKey, class_max: u8) -> Result<Option<Entry>> {
        loop {
            let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? else {
                return Ok(None);
            };
            let stale = queue.stale > 0;
            let Some((entry, class)) = queue.pop(&mut self.chunks, class_max)? else { return Ok(None) };
            if !stale {
                return Ok(Some(entry));
            }
            let Some((_, fingerprint)) = identify(&entry.found.url) else { continue };
            let value = self.sieve.get(&self.blocks, &Key::new(key, fingerprint))?;
            if value.is_none_or(|value| value.stage == Stage::Queued { class }) {
                return Ok(Some(entry));
            }
            if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
                queue.stale = queue.stale.saturating_sub(1);
            }
        }
    }

    /// Puts URLs that were taken and not tried back at the head of their host's queue, first one first. Those that were
    /// settled since are left as they are.
    pub fn put_back(&mut self, host: &Host, due: &[Due]) -> Result<()> {
        let key = self.key_of(host);
        if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
            due.iter().rev().for_each(|due| queue.put_back(due.url.as_str()));
        }
        Ok(())
    }

    /// Notes the end of an attempt, once its record is durable: the URL is done, or deferred until it may be tried again.
    pub fn settle(&mut self, place: u64, settled: &Settled) -> Result<()> {
        let Some((host, fingerprint)) = identify(&settled.url) else { return Ok(()) };
        let host_key = self.key_of(&host);
        let key = Key::new(host_key, fingerprint);
        let done = settled.outcome.is_final();
        self.sieve.settle(key, place, done);
        let queue = self.hosts.load_or_new(&mut self.blocks, &mut self.chunks, host_key, &host)?;
        let entry = queue.remove(&settled.url);
        match settled.outcome {
            Outcome::Retry { not_before, .. } => {
                let found = Found {
                    url: settled.url.clone(),
                    depth: settled.depth,
                    how: settled.how,
                    redirects: entry.as_ref().map_or(0, |entry| entry.found.redirects),
                };
                let via = entry.map_or(place, |entry| entry.via);
                queue.defer(Entry { found, attempts: settled.attempts, via }, not_before);
            }
            _ => {
                queue.settled += 1;
                self.settled += 1;
            }
        }
        self.relieve()
    }

    /// Whether a URL is known, and if it is, whether it is done, and the place of the record that says so or that it was
    /// found in.
    pub fn look_up(&mut self, url: &Url) -> Result<Option<Seen>> {
        let fingerprint = Fingerprint::of(url);
        let key = Key::new(self.key_of(&Host::of(url)), fingerprint);
        let value = self.sieve.get(&self.blocks, &key)?;
        Ok(value.map(|value| Seen {
            fingerprint,
            settled: value.stage == Stage::Settled,
            place: value.place.get(),
        }))
    }

    fn hosts_of(&self, range: &Range) -> std::ops::RangeInclusive<HostKey> {
        match range {
            Range::Host(host) => self.key_of(host)..=self.key_of(host),
            Range::Partition(partition) => HostKey::of_partition(*partition),
            Range::All => HostKey::from_bytes([0; 8])..=HostKey::from_bytes([255; 8]),
        }
    }

    /// Passes on every host of a range with its queue in figures, in the order of their keys.
    pub fn hosts(&mut self, range: &Range, each: &mut dyn FnMut(&Host, HostQueue)) -> Result<()> {
        let (hosts, class_max) = (self.hosts_of(range), self.class_max());
        self.hosts.each(&mut self.blocks, &mut self.chunks, hosts, &mut |_, queue| {
            let figures = HostQueue {
                known: queue.known,
                waiting: queue.known.saturating_sub(queue.settled),
                due: queue.due(class_max),
                next: queue.next(),
            };
            each(&queue.host, figures);
        })
    }

    /// Moves hosts out: passes on what is known of them and forgets it. Nothing of them may be taken.
    pub fn move_out(
        &mut self,
        range: &Range,
        seen: &mut dyn FnMut(Seen),
        moved: &mut dyn FnMut(MovedHost),
    ) -> Result<()> {
        self.decide_range(range)?;
        let hosts = self.hosts_of(range);
        let (mut known, mut settled) = (0, 0);
        self.sieve.each(&self.blocks, hosts.clone(), &mut |key, value| {
            let done = value.stage == Stage::Settled;
            known += 1;
            settled += u64::from(done);
            let fingerprint = Fingerprint(key.fingerprint());
            seen(Seen { fingerprint, settled: done, place: value.place.get() });
        })?;
        self.sieve.remove(&mut self.blocks, hosts.clone())?;
        self.known = self.known.saturating_sub(known);
        self.settled = self.settled.saturating_sub(settled);
        let mut queues = Vec::new();
        self.hosts.remove(&mut self.blocks, &mut self.chunks, hosts, &mut |queue| queues.push(queue))?;
        for mut queue in queues {
            let mut waiting = Vec::new();
            queue.drain(&mut self.chunks, &mut |entry| waiting.push((entry.found, entry.attempts)))?;
            moved(MovedHost { host: queue.host, waiting });
        }
        Ok(())
    }

    /// Begins to write down everything, with `memo` for the owner. What is returned does the work, on any thread, while the
    /// frontier goes on; [`Frontier::end_snapshot`] follows when it is done. One at a time.
    pub fn begin_snapshot(&mut self, memo: &[u8]) -> Result<SnapshotJob> {
        self.empty_sparse_segments()?;
        let (sieve_blocks, sieve_ops) = self.sieve.state();
        let (host_blocks, host_ops) = self.hosts.state()?;
        self.blocks.flush()?;
        self.chunks.flush()?;
        let head = snapshot::Head {
            place: self.place,
            secret: self.secret,
            known: self.known,
            settled: self.settled,
            held: self.held,
            blocks: self.blocks.states(),
            chunks: self.chunks.states(),
            sieve_blocks,
            host_blocks,
        };
        Ok(SnapshotJob {
            disk: self.disk.clone(),
            dir: self.dir.clone(),
            unsynced: [self.blocks.begin_sync(), self.chunks.begin_sync()].concat(),
            dead: [self.blocks.dead(), self.chunks.dead()],
            place: self.place,
            needed: self.sieve.oldest_text().min(self.place),
            head,
            rest: [sieve_ops, host_ops, memo.to_vec()],
        })
    }

    /// Takes note that a snapshot is durable: room that only older ones needed comes back. Gives back
    /// [`SnapshotDone::needed`].
    pub fn end_snapshot(&mut self, done: SnapshotDone) -> Result<u64> {
        let [blocks, chunks] = &done.dead;
        self.blocks.sweep(blocks)?;
        self.chunks.sweep(chunks)?;
        self.snapshot_bytes = done.bytes;
        Ok(done.needed)
    }

    /// Writes a snapshot here and now.
    pub fn snapshot(&mut self, memo: &[u8]) -> Result<u64> {
        let done = self.begin_snapshot(memo)?.run()?;
        self.end_snapshot(done)
    }

    /// Moves what is left in segments that are nearly empty, so that their room comes back. Blocks move at once, as there are
    /// few; chunks a few at a time, by and by.
    fn empty_sparse_segments(&mut self) -> Result<()> {
        let sparse = self.blocks.sparse(SPARSE_PERCENT);
        if !sparse.is_empty() {
            self.sieve.evacuate(&mut self.blocks, &sparse)?;
            self.hosts.evacuate(&mut self.blocks, &sparse)?;
        }
        if self.to_move.is_empty()
            && let Some(segment) = self.chunks.sparse(SPARSE_PERCENT).first()
        {
            self.to_move = self.chunks.blobs(*segment)?;
        }
        Ok(())
    }

    fn move_chunks(&mut self, max: usize) -> Result<()> {
        let mut chunk = Vec::new();
        for _ in 0..max {
            let Some(blob) = self.to_move.pop() else { break };
            self.chunks.read(blob, &mut chunk)?;
            let Some(key) = host_of_chunk(&chunk) else { continue };
            if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
                queue.move_chunk(&mut self.chunks, blob, &chunk)?;
            }
        }
        Ok(())
    }

    /// What it takes. Looks at everything in memory.
    pub fn usage(&self) -> Usage {
        let heaps = [&self.blocks, &self.chunks];
        Usage {
            memory_bytes: (self.sieve.memory_bytes() + self.hosts.memory_bytes()) as u64,
            disk_bytes: heaps.iter().map(|heap| heap.disk_bytes()).sum::<u64>() + self.snapshot_bytes,
            live_bytes: heaps.iter().map(|heap| heap.live_bytes()).sum(),
            read_bytes: heaps.iter().map(|heap| heap.read_bytes.get()).sum(),
            written_bytes: heaps.iter().map(|heap| heap.written_bytes).sum::<u64>(),
        }
    }
}
