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

mod admitting;
mod block;
mod counts;
mod emptying;
mod filter;
mod giving;
mod heap;
mod hosts;
mod kept_out;
mod key;
mod ledger;
mod moving;
mod noted;
mod op;
mod options;
mod packing;
mod queue;
mod sieve;
mod snapshot;
mod taking;
mod visiting;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use nephila_core::agent::{Admitted, OverLimit, StoredHost, ToTell};
use nephila_core::record::{Found, Outcome, Settled};
use nephila_core::settings::UrlOrder;
use nephila_core::site::AgentId;
use nephila_core::url::{Fingerprint, Host, Url, identify};
use nephila_disk::Disk;

use self::counts::Counts;
use self::emptying::{CHUNKS_MOVED, Emptied};
use self::heap::{Access, Blob, Heap};
use self::hosts::{HostLimits, Hosts};
use self::key::{HostKey, Key};
use self::ledger::Ledger;
use self::op::Stage;
use self::queue::Entry;
use self::sieve::{Decision, Look, Sieve, SieveLimits};
use self::snapshot::Snapshot;
use self::visiting::stored;
use crate::log::Log;
use crate::{Error, Result, StoreLimits};

pub use self::options::FrontierOptions;
pub use self::snapshot::{SnapshotDone, SnapshotJob};

/// They are looked for once in so many calls.
const SPARSE_EVERY: u64 = 256;

/// Where the texts of URLs can be read again that were offered and not decided at once.
pub trait Texts {
    /// URL `index` of those that the record at `place` found.
    fn found(&self, place: u64, index: usize) -> Result<Found>;

    /// The page that a URL was found on, by that record.
    fn page(&self, place: u64, url: &str) -> Option<String> {
        let _ = (place, url);
        None
    }

    /// What it was given by that record, where the crawl goes by that and the record says it.
    fn gift(&self, place: u64, index: usize) -> Result<Option<u64>> {
        let _ = (place, index);
        Ok(None)
    }
}

impl<T: Texts> Texts for std::rc::Rc<T> {
    fn found(&self, place: u64, index: usize) -> Result<Found> {
        (**self).found(place, index)
    }

    fn page(&self, place: u64, url: &str) -> Option<String> {
        (**self).page(place, url)
    }

    fn gift(&self, place: u64, index: usize) -> Result<Option<u64>> {
        (**self).gift(place, index)
    }
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

/// How far a URL has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It waits for its turn.
    Queued {
        /// As it was found.
        depth: u16,
    },
    /// It was handed over and is not settled.
    Taken {
        /// As it was found.
        depth: u16,
    },
    /// It was tried and will be again.
    Tried {
        /// It was handed over again and is not settled.
        taken: bool,
    },
    /// It is done.
    Settled,
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
    /// What URLs were given, if the crawl goes by that.
    ledger: Option<Ledger>,
    /// What of it was heard of others, and what others are told; and who they are.
    tallies: Option<Ledger>,
    givers: BTreeSet<AgentId>,
    /// Others are to be told of these.
    to_tell: Vec<ToTell>,
    secret: u64,
    /// Up to where the records are folded in.
    place: u64,
    known: u64,
    settled: u64,
    counts: Counts,
    /// URLs that limits keep out, and where those begin that count.
    kept_out: Option<Log>,
    /// What would be noted there if anything might be written, with the places of the records that found it.
    kept_out_unlogged: Vec<(Found, u64)>,
    kept_out_from: u64,
    over: OverLimit,
    /// Texts of URLs that are being offered again, and what they were given.
    readmitted: HashMap<usize, (Found, u64)>,
    /// Of the URLs that are being offered: here for their room.
    looking: (Vec<Key>, Vec<Look>),
    decided: Admitted,
    decisions: Vec<Decision>,
    entry: Vec<u8>,
    /// Chunks of a segment that is being emptied; some are dead.
    to_move: Vec<(HostKey, Blob)>,
    /// Segments of blocks that are being emptied.
    emptied: Option<Emptied>,
    relieved: u64,
    snapshot_bytes: u64,
    /// Where the round over all hosts goes on.
    hand: HostKey,
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
        Frontier::open_as(disk, dir, options, texts, Access::Write)
    }

    /// Opens the frontier in `dir` as its last snapshot says. What changes is kept in memory; nothing is written.
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: FrontierOptions,
        texts: Box<dyn Texts>,
    ) -> Result<(Frontier, Vec<u8>)> {
        Frontier::open_as(disk, dir, options, texts, Access::Read)
    }

    fn open_as(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: FrontierOptions,
        texts: Box<dyn Texts>,
        access: Access,
    ) -> Result<(Frontier, Vec<u8>)> {
        if access == Access::Write {
            disk.create_dir_all(dir).map_err(Error::io("create", dir))?;
        }
        let snapshot = snapshot::read(&*disk, dir)?;
        let host_limits = HostLimits {
            hot_max: options.hot_hosts_max.max(1),
            hot_bytes_max: options.hot_bytes_max,
            block_bytes_max: options.block_bytes_max,
        };
        let sieve_limits = SieveLimits {
            bytes_max: options.sieve_bytes_max,
            filter_bytes_max: options.filter_bytes_max,
            block_urls_max: options.block_urls_max.max(1),
            by_cash: options.order == UrlOrder::Cash,
        };
        let fresh = snapshot.is_none();
        let Snapshot { head, sieve_ops, host_ops, counts, accounts, tallies, memo } =
            snapshot.unwrap_or_default();
        let senseless = || snapshot::senseless(dir);
        giving::check_order(dir, if fresh { options.order } else { head.order }, &options)?;
        let accounts = (!fresh).then_some((head.ledger_blocks, &accounts[..], head.left_over));
        let tallies = (!fresh).then_some((head.tally_blocks, &tallies[..], [0; 2]));
        let (ledger, tallies) = giving::open(&options, accounts, tallies).ok_or_else(senseless)?;
        let (sieve, hosts) = if fresh {
            (Sieve::new(sieve_limits), Hosts::new(host_limits))
        } else {
            let sieve = Sieve::from_state(head.sieve_blocks, &sieve_ops, sieve_limits);
            let hosts = Hosts::from_state(head.host_blocks, &host_ops, head.hosts, host_limits);
            (sieve.ok_or_else(senseless)?, hosts.ok_or_else(senseless)?)
        };
        let StoreLimits { max_depth, max_host_pages, max_urls, .. } = options.limits;
        let raised = u64::from(max_depth) > head.limits[0]
            || max_host_pages > head.limits[1]
            || max_urls > head.limits[2];
        // It may be long, and is of interest only when it comes back.
        let kept_out_from = if raised { head.kept_out_from } else { head.kept_out_end };
        let (kept_out, kept_out_places) =
            kept_out::open(&disk, dir, (kept_out_from, head.kept_out_end), access)?;
        let mut frontier = Frontier {
            blocks: Heap::open(disk.clone(), dir, "blocks", &head.blocks, access)?,
            chunks: Heap::open(disk.clone(), dir, "chunks", &head.chunks, access)?,
            dir: dir.to_owned(),
            disk,
            options,
            texts,
            sieve,
            hosts,
            ledger,
            tallies,
            givers: head.givers.into_iter().collect(),
            to_tell: Vec::new(),
            secret: if fresh { options.secret } else { head.secret },
            place: head.place,
            known: head.known,
            settled: head.settled,
            counts: Counts::from_state(&counts).ok_or_else(senseless)?,
            kept_out,
            kept_out_unlogged: Vec::new(),
            kept_out_from: head.kept_out_from,
            over: OverLimit { depth: head.over[0], host: head.over[1], urls: head.over[2] },
            readmitted: HashMap::new(),
            looking: Default::default(),
            decided: Admitted::default(),
            decisions: Vec::new(),
            entry: Vec::new(),
            to_move: Vec::new(),
            emptied: None,
            relieved: 0,
            snapshot_bytes: 0,
            hand: HostKey::from_bytes([0; 8]),
        };
        if !fresh && head.limits[1] == u64::MAX && max_host_pages < u64::MAX {
            frontier.count_hosts()?;
        }
        if raised && !fresh {
            frontier.kept_out_from = frontier.kept_out.as_ref().map_or(0, Log::end);
            frontier.readmit(&kept_out_places)?;
            frontier.decided();
        }
        Ok((frontier, memo))
    }

    /// The place of the first record that is not folded in.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// URLs that are known. Offers that are not decided are not counted.
    pub fn known_urls(&self) -> u64 {
        self.known
    }

    /// URLs that are done.
    pub fn settled_urls(&self) -> u64 {
        self.settled
    }

    /// URLs that limits keep out, as often as they were found.
    pub fn kept_out(&self) -> OverLimit {
        self.over
    }

    /// Offers that are not decided.
    pub fn undecided(&self) -> u64 {
        self.sieve.undecided()
    }

    fn key_of(&self, host: &Host) -> HostKey {
        HostKey::of(host, self.secret)
    }

    /// Says that every record before this place is folded in.
    pub fn advance(&mut self, place: u64) {
        self.place = place;
    }

    /// Counts a URL as known.
    fn count(&mut self, host: HostKey) {
        self.known += 1;
        if self.options.limits.max_host_pages < u64::MAX {
            self.counts.add(host, self.hosts.known_in_memory(host));
        }
    }

    /// How many URLs were decided to be new since [`Frontier::decided`] was last asked, and how many wait once more to be sent.
    pub fn decided_new(&self) -> (u64, u64) {
        let sum = |hosts: &[(Host, u64)]| hosts.iter().map(|(_, count)| count).sum();
        (sum(&self.decided.new), sum(&self.decided.again))
    }

    /// What has been decided since this was last asked.
    pub fn decided(&mut self) -> Admitted {
        let (undecided, hosts) = (self.sieve.undecided(), self.hosts.count());
        let to_tell = std::mem::take(&mut self.to_tell);
        Admitted { undecided, hosts, to_tell, ..std::mem::take(&mut self.decided) }
    }

    /// Drops what others were to be told of.
    pub fn forget_to_tell(&mut self) {
        self.to_tell = Vec::new();
    }

    /// Decides and writes out what there is no room for, and says what that has decided. To be called after each
    /// [`Frontier::settle`] that no [`Frontier::admit`] follows.
    pub fn make_room(&mut self) -> Result<Admitted> {
        self.relieve()?;
        Ok(self.decided())
    }

    fn relieve(&mut self) -> Result<()> {
        self.relieved += 1;
        if self.relieved.is_multiple_of(SPARSE_EVERY) {
            self.empty_sparse_segments()?;
        }
        self.move_chunks(CHUNKS_MOVED)?;
        self.move_block()?;
        if self.sieve.is_full() {
            let mut decisions = std::mem::take(&mut self.decisions);
            self.sieve.relieve(&mut self.blocks, &mut decisions)?;
            self.act_on(decisions)?;
        }
        self.relieve_ledger()?;
        self.relieve_tallies()?;
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

    /// Decides every offer of a host.
    pub fn decide_host(&mut self, host: &Host) -> Result<Admitted> {
        self.decide_range(&Range::Host(host.clone()))?;
        Ok(self.decided())
    }

    fn decide_range(&mut self, range: &Range) -> Result<()> {
        let hosts = self.hosts_of(range);
        // What a limit kept out may have to be offered again, once.
        for _ in 0..2 {
            let mut decisions = std::mem::take(&mut self.decisions);
            self.sieve.decide(&mut self.blocks, hosts.clone(), &mut decisions)?;
            self.act_on(decisions)?;
            if self.sieve.undecided() == 0 {
                break;
            }
        }
        self.decide_ledger(hosts)
    }

    /// Notes the end of an attempt: the URL is done, or deferred until it may be tried again.
    fn note_settled(&mut self, place: u64, settled: &Settled) -> Result<()> {
        let Some((host, fingerprint)) = identify(&settled.url) else { return Ok(()) };
        let host_key = self.key_of(&host);
        let key = Key::new(host_key, fingerprint);
        let stage = match settled.outcome {
            Outcome::Retry { .. } => Stage::Tried,
            Outcome::Sent { .. } => Stage::Sent,
            _ => Stage::Settled,
        };
        // By cash it may be sent again; when records are folded again, that may come before it is known why.
        let is_sent = stage == Stage::Sent && self.ledger.is_some();
        let was_sent =
            is_sent && self.sieve.get(&self.blocks, &key)?.is_some_and(|value| value.stage == Stage::Sent);
        let is_new = self.sieve.settle(key, place, stage);
        if is_new {
            self.count(host_key);
        }
        let queue = self.hosts.load_or_new(&mut self.blocks, &mut self.chunks, host_key, &host)?;
        queue.known += u64::from(is_new);
        let entry = queue.remove(fingerprint);
        match settled.outcome {
            Outcome::Retry { not_before, .. } => {
                let found = Found {
                    url: settled.url.clone(),
                    depth: settled.depth,
                    how: settled.how,
                    redirects: entry.map_or(0, |entry| entry.found.redirects),
                };
                let (attempts, via) = (settled.attempts, settled.found_in);
                queue.defer(Entry { found, attempts, via, print: fingerprint }, not_before);
            }
            _ if was_sent => {}
            _ => {
                queue.settled += 1;
                self.settled += 1;
            }
        }
        Ok(())
    }

    /// How far a URL has come, and the place of the record that says so or that it was found in; `None` if it is not known.
    pub fn look_up(&mut self, url: &Url) -> Result<Option<(Progress, u64)>> {
        let host_key = self.key_of(&Host::of(url));
        let key = Key::new(host_key, Fingerprint::of(url));
        let Some(value) = self.sieve.get(&self.blocks, &key)? else { return Ok(None) };
        let queue = self.hosts.load(&mut self.blocks, &mut self.chunks, host_key)?;
        let taken = queue.is_some_and(|queue| queue.is_under_way(Fingerprint::of(url)));
        let account = self.account(&key)?;
        let depth = |class| account.map_or(u16::from(class), |account| account.depth);
        let progress = match value.stage {
            Stage::Settled | Stage::Sent => Progress::Settled,
            Stage::Tried => Progress::Tried { taken },
            Stage::Queued { class } if taken => Progress::Taken { depth: depth(class) },
            Stage::Queued { class } => Progress::Queued { depth: depth(class) },
        };
        Ok(Some((progress, value.place.get())))
    }

    /// Takes back that a URL is done, if the record at `place` is the last that said so: `settled` says what it means now.
    /// Says whether it is.
    pub fn unsettle(&mut self, place: u64, settled: &Settled) -> Result<bool> {
        let Some((host, fingerprint)) = identify(&settled.url) else { return Ok(false) };
        let host_key = self.key_of(&host);
        let value = self.sieve.get(&self.blocks, &Key::new(host_key, fingerprint))?;
        if !value.is_some_and(|value| value.stage == Stage::Settled && value.place.get() == place) {
            return Ok(false);
        }
        let queue = self.hosts.load_or_new(&mut self.blocks, &mut self.chunks, host_key, &host)?;
        queue.settled = queue.settled.saturating_sub(1);
        self.settled = self.settled.saturating_sub(1);
        self.note_settled(place, settled)?;
        Ok(true)
    }

    fn hosts_of(&self, range: &Range) -> std::ops::RangeInclusive<HostKey> {
        match range {
            Range::Host(host) => self.key_of(host)..=self.key_of(host),
            Range::Partition(partition) => HostKey::of_partition(*partition),
            Range::All => HostKey::from_bytes([0; 8])..=HostKey::from_bytes([255; 8]),
        }
    }

    /// Passes on every host of a range.
    pub fn hosts(&mut self, range: &Range, each: &mut dyn FnMut(StoredHost)) -> Result<()> {
        let hosts = self.hosts_of(range);
        let mut failed = None;
        self.hosts.each(&mut self.blocks, &mut self.chunks, hosts, &mut |_, queue| match stored(queue) {
            Ok(host) => each(host),
            Err(error) => failed = Some(error),
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Begins to write down everything, with `memo` for the owner. What is returned does the work, on any thread, while the
    /// frontier goes on; [`Frontier::end_snapshot`] follows when it is done. One at a time.
    pub fn begin_snapshot(&mut self, memo: &[u8]) -> Result<SnapshotJob> {
        let (sieve_blocks, (host_blocks, hosts)) = (self.sieve.state(), self.hosts.state());
        self.blocks.flush()?;
        self.chunks.flush()?;
        if let Some(log) = &mut self.kept_out {
            log.sync()?;
        }
        let limits = self.options.limits;
        let head = snapshot::Head {
            place: self.place,
            secret: self.secret,
            known: self.known,
            settled: self.settled,
            limits: [u64::from(limits.max_depth), limits.max_host_pages, limits.max_urls],
            over: [self.over.depth, self.over.host, self.over.urls],
            kept_out_from: self.kept_out_from,
            kept_out_end: self.kept_out.as_ref().map_or(0, Log::end),
            blocks: self.blocks.states(),
            chunks: self.chunks.states(),
            sieve_blocks,
            host_blocks,
            hosts,
            order: self.options.order,
            ledger_blocks: self.ledger.as_ref().map(Ledger::state).unwrap_or_default(),
            left_over: self.ledger.as_ref().map(|ledger| [ledger.rest, ledger.kept_out]).unwrap_or_default(),
            tally_blocks: self.tallies.as_ref().map(Ledger::state).unwrap_or_default(),
            givers: self.givers.iter().copied().collect(),
        };
        let mut writing = snapshot::Writing::begin(&*self.disk, &self.dir, &head)?;
        self.hosts.write_noted(&mut writing)?;
        self.counts.write(&mut writing)?;
        if let Some(ledger) = &self.ledger {
            ledger.write_noted(&mut writing)?;
        }
        writing.end_section()?;
        if let Some(tallies) = &self.tallies {
            tallies.write_noted(&mut writing)?;
        }
        writing.end_section()?;
        writing.add(memo)?;
        writing.end_section()?;
        Ok(SnapshotJob {
            disk: self.disk.clone(),
            dir: self.dir.clone(),
            unsynced: [self.blocks.begin_sync(), self.chunks.begin_sync()].concat(),
            dead: [self.blocks.dead(), self.chunks.dead()],
            place: self.place,
            needed: self.oldest_text().min(self.place),
            writing,
            noted: self.sieve.freeze(),
        })
    }

    /// Takes note that a snapshot is durable: room that only older ones needed comes back. Gives back
    /// [`SnapshotDone::needed`].
    pub fn end_snapshot(&mut self, done: SnapshotDone) -> Result<u64> {
        self.sieve.thaw();
        let [blocks, chunks] = &done.dead;
        self.blocks.sweep(blocks)?;
        self.chunks.sweep(chunks)?;
        self.snapshot_bytes = done.bytes;
        if let Some(log) = &mut self.kept_out {
            log.cut(self.kept_out_from)?;
        }
        Ok(done.needed)
    }

    /// Writes a snapshot here and now.
    pub fn snapshot(&mut self, memo: &[u8]) -> Result<u64> {
        self.tidy()?;
        let done = self.begin_snapshot(memo)?.run()?;
        self.end_snapshot(done)
    }

    /// What it takes. Looks at everything in memory.
    pub fn usage(&self) -> Usage {
        let heaps = [&self.blocks, &self.chunks];
        Usage {
            memory_bytes: (self.sieve.memory_bytes()
                + self.hosts.memory_bytes()
                + self.ledger.as_ref().map_or(0, Ledger::memory_bytes)
                + self.tallies.as_ref().map_or(0, Ledger::memory_bytes)) as u64,
            disk_bytes: heaps.iter().map(|heap| heap.disk_bytes()).sum::<u64>() + self.snapshot_bytes,
            live_bytes: heaps.iter().map(|heap| heap.live_bytes()).sum(),
            read_bytes: heaps.iter().map(|heap| heap.read_bytes.get()).sum(),
            written_bytes: heaps.iter().map(|heap| heap.written_bytes).sum::<u64>(),
        }
    }
}
