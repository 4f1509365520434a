//! The ledger: what URLs were given and have not spent, where a crawl goes by that ([`nephila_core::cash`]).
//!
//! Accounts lie on disk in sorted blocks, as what the sieve knows does. Those that something was given to lately are in memory:
//! whole, or as what has come since, while the rest is on disk. When this is so of many accounts of a block, it is read, and they
//! are whole; when there is no room for more, blocks are merged with what is in memory and written anew.
//!
//! A URL waits in the class of its account. When a whole account reaches a better one, its URL is to be entered there again, and
//! the old entry is told by its class not to count any more.
//!
//! A second one of the same kind holds what givers have told, and what this one tells others (`tallies`).
//!
//! Costs: [`ENTRY_BYTES`] of disk a URL, and [`NOTED_BYTES`] of memory for each that is there.

mod tallies;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use nephila_core::cash;
use nephila_core::record::How;

use super::heap::{Blob, Heap};
use super::key::{HostKey, Key, Place};
use super::snapshot::Writing;
use crate::Result;

pub(super) use self::tallies::Whose;

/// Bytes of an account on disk.
const ENTRY_BYTES: usize = Key::BYTES + Account::BYTES;
/// About what one takes in memory.
const NOTED_BYTES: usize = 80;
/// Bytes of one in a snapshot.
const STATE_BYTES: usize = ENTRY_BYTES + 10;
/// A block is read when this part of its URLs was given something since it was.
const READ_PART: usize = 16;
/// In memory a block may hold this many times what it may on disk, so that no merge takes long.
const BLOCK_NOTED: usize = 2;

/// A class and this: it was given to another site when it was in that class.
const SENT: u8 = 100;
/// The classes that are none: what was heard of somebody,
const HEARD: u8 = 253;
/// it waits in no queue, because it was handed over or is done,
const APART: u8 = 254;
/// and nobody has decided yet that it is known.
const UNDECIDED: u8 = 255;

/// What a URL has, and where it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) cash: u64,
    /// As it was found nearest to a seed.
    pub(super) depth: u16,
    /// How it was found, as far as that has to be known of all that led to it.
    rank: u8,
    class: u8,
}

impl Account {
    const BYTES: usize = 12;
    const NONE: Account = Account { cash: 0, depth: u16::MAX, rank: 0, class: UNDECIDED };

    /// Whether it waits in a queue.
    pub(super) fn waits(&self) -> bool {
        self.class < SENT
    }

    /// Whether it was given to another site.
    fn is_sent(&self) -> bool {
        (SENT..HEARD).contains(&self.class)
    }

    /// Whether it is decided that the URL is known.
    pub(super) fn is_known(&self) -> bool {
        self.class != UNDECIDED
    }

    /// How the URL is to be handed over that was found as its entry says.
    pub(super) fn how(&self, entry: How) -> How {
        [entry, How::Sitemap, How::Seed][usize::from(self.rank.max(rank_of(entry)))]
    }

    fn encode(self) -> [u8; Account::BYTES] {
        let [a, b, c, d, e, f, g, h] = self.cash.to_le_bytes();
        let [x, y] = self.depth.to_le_bytes();
        [a, b, c, d, e, f, g, h, x, y, self.rank, self.class]
    }

    fn decode([a, b, c, d, e, f, g, h, x, y, rank, class]: [u8; Account::BYTES]) -> Account {
        let cash = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        Account { cash, depth: u16::from_le_bytes([x, y]), rank: rank.min(2), class }
    }

    /// Adds what was known of it before.
    fn add(&mut self, before: Account) {
        self.cash = self.cash.saturating_add(before.cash);
        self.depth = self.depth.min(before.depth);
        self.rank = self.rank.max(before.rank);
        self.class = self.class.min(before.class);
    }
}

/// A sitemap stays one, and a seed a seed, whatever else links to it.
fn rank_of(how: How) -> u8 {
    match how {
        How::Seed => 2,
        How::Sitemap | How::Returned { is_sitemap: true, .. } => 1,
        How::Link | How::Redirect | How::Listed | How::Returned { is_sitemap: false, .. } => 0,
    }
}

/// What a URL is given where it is found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gift {
    pub(super) cash: u64,
    pub(super) depth: u16,
    pub(super) how: How,
    /// Which URL of which record it is.
    pub(super) place: u64,
    pub(super) index: usize,
}

/// A URL has reached a better class than that in which it waits, or was told of: it is URL `index` of the record at `place`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Better {
    pub(super) host: HostKey,
    pub(super) class: u8,
    pub(super) cash: u64,
    /// It was given to another site.
    pub(super) is_sent: bool,
    pub(super) place: u64,
    pub(super) index: usize,
}

/// An account in memory.
#[derive(Clone, Copy)]
struct Noted {
    account: Account,
    /// Nothing of it is on disk that would have to be added.
    is_whole: bool,
    /// Who gave it something last.
    place: Place,
    index: [u8; 3],
}

/// When an account is to be heeded.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// How many classes better one that waits must be,
    waits: u8,
    /// and one that was given to another site.
    sent: u8,
    /// Whether one is that never was.
    new: bool,
}

impl Noted {
    /// The better class that it has reached.
    fn reach(&mut self, rules: Rules) -> Option<u8> {
        let class = cash::class_of(self.account.cash);
        let sent = self.account.is_sent();
        let is_better = match self.account.class {
            UNDECIDED => rules.new,
            APART | HEARD => false,
            before if sent => class + rules.sent <= before - SENT,
            before => class + rules.waits <= before,
        };
        (self.is_whole && is_better).then(|| {
            self.account.class = class + if sent { SENT } else { 0 };
            class
        })
    }

    fn better(&mut self, key: &Key, rules: Rules) -> Option<Better> {
        let [x, y, z] = self.index;
        let index = u32::from_le_bytes([x, y, z, 0]) as usize;
        let (cash, is_sent, place) = (self.account.cash, self.account.is_sent(), self.place.get());
        let host = key.host();
        self.reach(rules).map(|class| Better { host, class, cash, is_sent, place, index })
    }
}

/// A stretch of keys. It begins where the directory says and ends where the next one begins.
#[derive(Default)]
struct Block {
    blob: Option<Blob>,
    urls: u32,
    accounts: BTreeMap<Key, Noted>,
    /// How many of them are not whole, and since which record.
    parts: usize,
    parts_since: Option<u64>,
}

/// Where a block begins and what it holds, for a snapshot.
pub(super) type BlockState = (Vec<u8>, Option<Blob>, u32);
/// Blocks, what is in memory, and what was left over.
pub(super) type State<'a> = (Vec<BlockState>, &'a [u8], [u64; 2]);

/// See the module's documentation.
pub(super) struct Ledger {
    /// The first key of each block; the first of all is [`Key::FIRST`].
    firsts: Vec<Key>,
    blocks: Vec<Block>,
    /// Accounts in memory, and how many there may be.
    noted: usize,
    noted_max: usize,
    block_urls_max: usize,
    rules: Rules,
    /// A key of each block that is to be read, and of each that holds too much.
    to_read: Vec<Key>,
    full: Vec<Key>,
    /// The block that is looked at next when room is needed.
    hand: usize,
    /// The place of the last gift, now and when the last two rounds over all blocks began.
    latest: u64,
    round: u64,
    round_before: u64,
    /// The block `old_blob`.
    old: Vec<u8>,
    old_blob: Option<Blob>,
    /// What pages had that link to nothing.
    pub(super) rest: u64,
    /// What was given to URLs that limits keep out.
    pub(super) kept_out: u64,
}

impl Ledger {
    /// Of the URLs that are here. One that was given to another site is heeded when it is so many classes better.
    pub(super) fn new(bytes_max: usize, block_urls_max: usize, told_again: u8) -> Ledger {
        Ledger::by(Rules { waits: 1, sent: told_again, new: false }, bytes_max, block_urls_max)
    }

    fn by(rules: Rules, bytes_max: usize, block_urls_max: usize) -> Ledger {
        Ledger {
            firsts: vec![Key::FIRST],
            blocks: vec![Block::default()],
            noted: 0,
            noted_max: bytes_max / NOTED_BYTES,
            block_urls_max,
            rules,
            to_read: Vec::new(),
            full: Vec::new(),
            hand: 0,
            latest: 0,
            round: 0,
            round_before: 0,
            old: Vec::new(),
            old_blob: None,
            rest: 0,
            kept_out: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.noted * NOTED_BYTES + self.blocks.capacity() * (size_of::<Block>() + Key::BYTES)
    }

    /// Whether there is something that should be read or written now.
    pub(super) fn is_full(&self) -> bool {
        self.noted > self.noted_max || !self.to_read.is_empty() || !self.full.is_empty()
    }

    fn block_of(&self, key: &Key) -> usize {
        self.firsts.partition_point(|first| first <= key) - 1
    }

    /// Whether it is certain without a look at the disk that a URL is known.
    pub(super) fn knows(&self, key: &Key) -> bool {
        let noted = self.blocks[self.block_of(key)].accounts.get(key);
        noted.is_some_and(|noted| noted.is_whole && noted.account.class != UNDECIDED)
    }

    /// Gives a URL something; `is_new` if nobody knew it. Says in which better class it is to be entered again, if that can be
    /// said.
    pub(super) fn give(&mut self, key: &Key, gift: Gift, is_new: bool) -> Option<u8> {
        self.latest = gift.place;
        let at = self.block_of(key);
        let whole = is_new || self.blocks[at].blob.is_none();
        let block = &mut self.blocks[at];
        let before = block.accounts.len();
        let noted = block.accounts.entry(*key).or_insert_with(|| Noted {
            account: Account::NONE,
            is_whole: whole,
            place: Place::new(gift.place),
            index: [0; 3],
        });
        let [x, y, z, ..] = (gift.index as u32).to_le_bytes();
        (noted.place, noted.index) = (Place::new(gift.place), [x, y, z]);
        noted.account.cash = noted.account.cash.saturating_add(gift.cash);
        noted.account.depth = noted.account.depth.min(gift.depth);
        noted.account.rank = noted.account.rank.max(rank_of(gift.how));
        let class = noted.reach(self.rules);
        if block.accounts.len() > before {
            if !whole {
                block.parts += 1;
                block.parts_since.get_or_insert(gift.place);
                let is_many = |parts: usize| parts * READ_PART > block.urls as usize;
                if is_many(block.parts) && !is_many(block.parts - 1) {
                    self.to_read.push(*key);
                }
            }
            self.count_one_more(at, key);
        }
        class
    }

    fn count_one_more(&mut self, at: usize, key: &Key) {
        self.noted += 1;
        if self.blocks[at].accounts.len() == BLOCK_NOTED * self.block_urls_max + 1 {
            self.full.push(*key);
        }
    }

    /// An account, whole and in memory.
    fn load(&mut self, heap: &Heap, key: &Key) -> Result<&mut Noted> {
        let at = self.block_of(key);
        if !self.blocks[at].accounts.get(key).is_some_and(|noted| noted.is_whole) {
            self.read_block(heap, at)?;
            let before = find(&self.old, key).unwrap_or(Account::NONE);
            let place = Place::new(self.latest);
            let block = &mut self.blocks[at];
            match block.accounts.get_mut(key) {
                Some(noted) => {
                    noted.account.add(before);
                    noted.is_whole = true;
                    block.parts -= 1;
                }
                None => {
                    block
                        .accounts
                        .insert(*key, Noted { account: before, is_whole: true, place, index: [0; 3] });
                    self.count_one_more(at, key);
                }
            }
        }
        match self.blocks[at].accounts.get_mut(key) {
            Some(noted) => Ok(noted),
            None => unreachable!("it was just put there"),
        }
    }

    /// What a URL has, if it has an account.
    pub(super) fn get(&mut self, heap: &Heap, key: &Key) -> Result<Option<Account>> {
        let at = self.block_of(key);
        let noted = self.blocks[at].accounts.get(key).copied();
        if let Some(Noted { account, is_whole: true, .. }) = noted {
            return Ok(Some(account));
        }
        self.read_block(heap, at)?;
        let before = find(&self.old, key);
        let Some(mut noted) = noted else { return Ok(before) };
        noted.account.add(before.unwrap_or(Account::NONE));
        Ok(Some(noted.account))
    }

    /// A URL is new: it waits from now on. Says in which class.
    pub(super) fn enter(&mut self, heap: &Heap, key: &Key) -> Result<u8> {
        let noted = self.load(heap, key)?;
        noted.account.class = cash::class_of(noted.account.cash);
        Ok(noted.account.class)
    }

    /// A URL is to be handed over whose entry is in this class. False if the entry does not count any more.
    pub(super) fn take(&mut self, heap: &Heap, key: &Key, class: u8) -> Result<bool> {
        let noted = self.load(heap, key)?;
        let counts = noted.account.class == class;
        if counts {
            noted.account.class = APART;
        }
        Ok(counts)
    }

    /// A URL was tried, and has spent so much; or it was given to another site. Says how much of this it did not have.
    pub(super) fn spend(&mut self, heap: &Heap, key: &Key, cash: u64, is_sent: bool) -> Result<u64> {
        let noted = self.load(heap, key)?;
        let spent = cash.min(noted.account.cash);
        noted.account.cash -= spent;
        noted.account.class = if is_sent { SENT + cash::class_of(noted.account.cash) } else { APART };
        Ok(cash - spent)
    }

    /// Takes back what a URL was given that is not known after all. Says how much it had of that. The account stays: the URL may
    /// have been offered again meanwhile, and how near is kept there.
    pub(super) fn take_back(&mut self, heap: &Heap, key: &Key, cash: u64) -> Result<u64> {
        let noted = self.load(heap, key)?;
        let back = cash.min(noted.account.cash);
        noted.account.cash -= back;
        Ok(back)
    }

    /// The place of the oldest record that a URL may have to be entered again from.
    pub(super) fn oldest_text(&self) -> u64 {
        let parts = self.blocks.iter().filter(|block| block.parts > 0);
        parts.filter_map(|block| block.parts_since).min().unwrap_or(u64::MAX)
    }

    /// Reads and writes what is to be read and what there is no room for.
    pub(super) fn relieve(&mut self, heap: &mut Heap, out: &mut Vec<Better>) -> Result<()> {
        while let Some(key) = self.to_read.pop() {
            self.read(heap, self.block_of(&key), out)?;
        }
        while let Some(key) = self.full.pop() {
            let at = self.block_of(&key);
            if self.blocks[at].blob.is_none() {
                self.split(at);
            } else {
                self.merge(heap, at, out)?;
            }
        }
        while self.noted > self.noted_max {
            if self.hand >= self.blocks.len() {
                self.hand = 0;
                self.round_before = std::mem::replace(&mut self.round, self.latest);
            }
            // As in the sieve: a block with little in memory is left for another round, but only for one.
            let worth = self.noted / self.blocks.len() / 2;
            let block = &self.blocks[self.hand];
            if block.accounts.len() > worth
                || block.parts_since.is_some_and(|since| since < self.round_before)
            {
                self.hand += self.merge(heap, self.hand, out)?;
            } else {
                self.hand += 1;
            }
        }
        Ok(())
    }

    /// Makes the accounts of these hosts whole that are in memory.
    pub(super) fn decide(
        &mut self,
        heap: &Heap,
        hosts: RangeInclusive<HostKey>,
        out: &mut Vec<Better>,
    ) -> Result<()> {
        let range = Key::of_hosts(hosts);
        let mut at = self.block_of(range.start());
        while at < self.blocks.len() && self.firsts[at] <= *range.end() {
            self.read(heap, at, out)?;
            at += 1;
        }
        Ok(())
    }

    /// Makes the accounts of a block whole that are in memory.
    fn read(&mut self, heap: &Heap, at: usize, out: &mut Vec<Better>) -> Result<()> {
        if self.blocks[at].parts > 0 {
            self.read_block(heap, at)?;
            let rules = self.rules;
            for (key, noted) in self.blocks[at].accounts.iter_mut().filter(|(_, noted)| !noted.is_whole) {
                noted.account.add(find(&self.old, key).unwrap_or(Account::NONE));
                noted.is_whole = true;
                out.extend(noted.better(key, rules));
            }
        }
        (self.blocks[at].parts, self.blocks[at].parts_since) = (0, None);
        Ok(())
    }

    /// Makes two blocks of one of which nothing is on disk.
    fn split(&mut self, at: usize) {
        let accounts = &mut self.blocks[at].accounts;
        let Some(middle) = accounts.keys().nth(accounts.len() / 2).copied() else { return };
        let accounts = accounts.split_off(&middle);
        self.firsts.insert(at + 1, middle);
        self.blocks.insert(at + 1, Block { accounts, ..Block::default() });
    }

    /// Writes a block anew with what is in memory of it, which is not there any more. Gives back how many blocks it has become.
    fn merge(&mut self, heap: &mut Heap, at: usize, out: &mut Vec<Better>) -> Result<usize> {
        self.read(heap, at, out)?;
        if self.blocks[at].accounts.is_empty() {
            return Ok(1);
        }
        self.read_block(heap, at)?;
        let accounts = std::mem::take(&mut self.blocks[at].accounts);
        self.noted -= accounts.len();
        let mut new = Vec::with_capacity(self.old.len() + accounts.len() * ENTRY_BYTES);
        let mut old = entries(&self.old).peekable();
        for (key, noted) in &accounts {
            while let Some((other, account)) = old.next_if(|(other, _)| other < key) {
                push(&mut new, &other, account);
            }
            old.next_if(|(other, _)| other == key);
            if noted.account != Account::NONE {
                push(&mut new, key, noted.account);
            }
        }
        old.for_each(|(key, account)| push(&mut new, &key, account));
        self.replace(heap, at, &new)
    }

    /// Replaces what is on disk of a block.
    fn replace(&mut self, heap: &mut Heap, at: usize, new: &[u8]) -> Result<usize> {
        let (all, _) = new.as_chunks::<ENTRY_BYTES>();
        let pieces = all.len().div_ceil(self.block_urls_max).max(1);
        let mut firsts = Vec::with_capacity(pieces);
        let mut blocks = Vec::with_capacity(pieces);
        for piece in all.chunks(all.len().div_ceil(pieces).max(1)) {
            let first = piece.first().map_or(self.firsts[at], |entry| decode(entry).0);
            firsts.push(if firsts.is_empty() { self.firsts[at] } else { first });
            let blob = heap.append(piece.as_flattened())?;
            blocks.push(Block { blob: Some(blob), urls: piece.len() as u32, ..Block::default() });
        }
        if let Some(blob) = self.blocks[at].blob {
            heap.free(blob);
        }
        if blocks.is_empty() {
            (self.blocks[at].blob, self.blocks[at].urls) = (None, 0);
            return Ok(1);
        }
        let count = blocks.len();
        self.firsts.splice(at..=at, firsts);
        self.blocks.splice(at..=at, blocks);
        Ok(count)
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
        if !self.old.len().is_multiple_of(ENTRY_BYTES) {
            return Err(heap.corrupt(blob, "a block of the ledger makes no sense"));
        }
        self.old_blob = Some(blob);
        Ok(())
    }

    /// Passes on every account, in any order. Everything must be decided.
    pub(super) fn each(&mut self, heap: &Heap, each: &mut dyn FnMut(&Key, &Account)) -> Result<()> {
        for at in 0..self.blocks.len() {
            self.read_block(heap, at)?;
            let accounts = &self.blocks[at].accounts;
            for (key, account) in entries(&self.old).filter(|(key, _)| !accounts.contains_key(key)) {
                each(&key, &account);
            }
            accounts.iter().for_each(|(key, noted)| each(key, &noted.account));
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
        let sparse = |block: &Block| block.blob.is_some_and(|blob| Heap::is_in(blob, segments));
        let next = self.blocks.iter().enumerate().skip(from).find(|(_, block)| sparse(block));
        let Some((at, _)) = next else { return Ok(None) };
        self.read_block(heap, at)?;
        let moved = heap.append(&self.old)?;
        if let Some(blob) = self.blocks[at].blob.replace(moved) {
            heap.free(blob);
        }
        self.old_blob = Some(moved);
        Ok(Some(at + 1))
    }

    /// What a snapshot has to say of the blocks.
    pub(super) fn state(&self) -> Vec<BlockState> {
        let blocks = self.firsts.iter().zip(&self.blocks);
        blocks.map(|(first, block)| (first.bytes().to_vec(), block.blob, block.urls)).collect()
    }

    /// And what is in memory.
    pub(super) fn write_noted(&self, snapshot: &mut Writing) -> Result<()> {
        let mut bytes = Vec::with_capacity(STATE_BYTES);
        for (key, noted) in self.blocks.iter().flat_map(|block| &block.accounts) {
            bytes.clear();
            push(&mut bytes, key, noted.account);
            bytes.push(u8::from(noted.is_whole));
            bytes.extend_from_slice(&noted.place.bytes());
            bytes.extend_from_slice(&noted.index);
            snapshot.add(&bytes)?;
        }
        Ok(())
    }

    /// The ledger of a snapshot; `None` if that makes no sense.
    pub(super) fn restore(mut self, (blocks, noted, left_over): State<'_>) -> Option<Ledger> {
        [self.rest, self.kept_out] = left_over;
        self.firsts.clear();
        self.blocks.clear();
        for (first, blob, urls) in blocks {
            self.firsts.push(Key::from_bytes(first.try_into().ok()?));
            self.blocks.push(Block { blob, urls, ..Block::default() });
        }
        if self.firsts.first() != Some(&Key::FIRST) || !self.firsts.is_sorted() {
            return None;
        }
        let (all, rest) = noted.as_chunks::<STATE_BYTES>();
        for bytes in all {
            let (entry, state) = bytes.split_first_chunk::<ENTRY_BYTES>()?;
            let (key, account) = decode(entry);
            let [is_whole, a, b, c, d, e, f, x, y, z] = *state.first_chunk()?;
            let place = Place::from_bytes([a, b, c, d, e, f]);
            let at = self.block_of(&key);
            let block = &mut self.blocks[at];
            if is_whole == 0 {
                block.parts += 1;
                let since = block.parts_since.get_or_insert(place.get());
                *since = place.get().min(*since);
            }
            block.accounts.insert(key, Noted { account, is_whole: is_whole != 0, place, index: [x, y, z] });
            self.noted += 1;
        }
        rest.is_empty().then_some(self)
    }
}

fn push(out: &mut Vec<u8>, key: &Key, account: Account) {
    out.extend_from_slice(key.bytes());
    out.extend_from_slice(&account.encode());
}

fn decode(entry: &[u8; ENTRY_BYTES]) -> (Key, Account) {
    let (mut key, mut account) = ([0; Key::BYTES], [0; Account::BYTES]);
    key.copy_from_slice(&entry[..Key::BYTES]);
    account.copy_from_slice(&entry[Key::BYTES..]);
    (Key::from_bytes(key), Account::decode(account))
}

/// The accounts of a block.
fn entries(block: &[u8]) -> impl Iterator<Item = (Key, Account)> {
    block.as_chunks().0.iter().map(decode)
}

fn find(block: &[u8], key: &Key) -> Option<Account> {
    let (all, _) = block.as_chunks::<ENTRY_BYTES>();
    let at = all.binary_search_by(|entry| entry[..Key::BYTES].cmp(&key.bytes()[..])).ok()?;
    Some(decode(&all[at]).1)
}
