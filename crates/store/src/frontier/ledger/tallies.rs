//! Tallies: what givers say that they have given to URLs here, and what this agent has given to URLs that others have
//! ([`nephila_core::cash`]). Each giver has an account for each URL, beside the URL in the order of things, so that what is known
//! of a host or a partition is one range here, too.
//!
//! What somebody was told last is the class of the account; what was heard of somebody is in no class.

use std::collections::BTreeMap;

use nephila_core::cash;
use nephila_core::site::AgentId;
use nephila_core::url::Fingerprint;
use xxhash_rust::xxh3::xxh3_128;

use super::super::heap::Heap;
use super::super::key::{HostRanges, Key};
use super::{Account, ENTRY_BYTES, Gift, HEARD, Ledger, Rules, UNDECIDED, entries, push};
use crate::Result;

/// Whose account of a URL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Whose {
    /// What this agent gives to a URL that others have.
    Ours,
    /// What was heard of a giver; this agent may be one.
    Of(AgentId),
}

impl Whose {
    fn key(self, url: &Key) -> Key {
        let giver = match self {
            Whose::Ours => [0; 9],
            Whose::Of(AgentId([a, b, c, d, e, f, g, h])) => [1, a, b, c, d, e, f, g, h],
        };
        let hash = xxh3_128(&[&url.fingerprint()[..], &giver].concat()).to_le_bytes();
        let mut print = [0; 12];
        print.copy_from_slice(&hash[..12]);
        Key::new(url.host(), Fingerprint(print))
    }
}

impl Ledger {
    /// Of what was heard and told. What is given to others is told again when it is so many classes better.
    pub(in super::super) fn of_tallies(bytes_max: usize, block_urls_max: usize, told_again: u8) -> Ledger {
        Ledger::by(Rules { waits: told_again, sent: 0, new: true }, bytes_max, block_urls_max)
    }

    /// Adds to what a URL of others is given. Says what it was given in all, as far as is known, if that is to be told.
    pub(in super::super) fn give_away(&mut self, url: &Key, gift: Gift) -> Option<u64> {
        let key = Whose::Ours.key(url);
        let before = self.noted;
        let has_grown = self.give(&key, gift, false).is_some();
        let is_met = self.noted > before;
        let at = self.block_of(&key);
        let noted = self.blocks[at].accounts.get_mut(&key)?;
        // One that may have been told before, but is not in memory, is told: it may be new.
        let is_unsure = is_met && !noted.is_whole;
        if is_unsure {
            noted.account.class = cash::class_of(noted.account.cash);
        }
        (has_grown || is_unsure).then_some(noted.account.cash)
    }

    /// What a URL was given.
    pub(in super::super) fn given(&mut self, heap: &Heap, url: &Key, whose: Whose) -> Result<Option<u64>> {
        Ok(self.get(heap, &whose.key(url))?.map(|account| account.cash))
    }

    /// Somebody has given so much to a URL in all. Says what of that is new.
    pub(in super::super) fn hear(
        &mut self,
        heap: &Heap,
        url: &Key,
        giver: AgentId,
        units: u64,
    ) -> Result<u64> {
        let noted = self.load(heap, &Whose::Of(giver).key(url))?;
        let before = noted.account.cash;
        (noted.account.cash, noted.account.class) = (units.max(before), HEARD);
        Ok(units.saturating_sub(before))
    }

    /// Notes what somebody has given, whatever was heard before.
    pub(in super::super) fn note(
        &mut self,
        heap: &Heap,
        url: &Key,
        giver: AgentId,
        units: u64,
    ) -> Result<()> {
        let noted = self.load(heap, &Whose::Of(giver).key(url))?;
        (noted.account.cash, noted.account.class) = (units, HEARD);
        Ok(())
    }

    /// Has a URL have so much.
    pub(in super::super) fn set(&mut self, heap: &Heap, url: &Key, units: u64) -> Result<()> {
        self.load(heap, url)?.account.cash = units;
        Ok(())
    }

    /// Adds to what a URL has.
    pub(in super::super) fn add(&mut self, heap: &Heap, url: &Key, units: u64) -> Result<()> {
        let account = &mut self.load(heap, url)?.account;
        account.cash = account.cash.saturating_add(units);
        Ok(())
    }

    /// How much of all accounts is what was told, and how much what was heard. Everything must be decided.
    pub(in super::super) fn sums(&mut self, heap: &Heap) -> Result<(u64, u64)> {
        let (mut told, mut heard) = (0, 0);
        self.each(heap, &mut |_, account| match account.class {
            HEARD => heard += account.cash,
            _ => told += account.cash,
        })?;
        Ok((told, heard))
    }

    /// Forgets what was heard of URLs of these hosts, or all accounts of them.
    pub(in super::super) fn remove(&mut self, heap: &mut Heap, hosts: &HostRanges, all: bool) -> Result<()> {
        self.revise(heap, hosts, &mut |account| {
            let stays = !all && account.class != HEARD;
            stays.then_some(account)
        })
    }

    /// Whoever has URLs of these hosts now knows nothing of what was told: they are told again when they are given something.
    pub(in super::super) fn tell_anew(&mut self, heap: &mut Heap, hosts: &HostRanges) -> Result<()> {
        self.revise(heap, hosts, &mut |account| {
            let class = if account.class == HEARD { HEARD } else { UNDECIDED };
            Some(Account { class, ..account })
        })
    }

    /// Changes accounts of these hosts, or removes them. What is noted of them must be decided.
    fn revise(
        &mut self,
        heap: &mut Heap,
        hosts: &HostRanges,
        change: &mut dyn FnMut(Account) -> Option<Account>,
    ) -> Result<()> {
        let mut at = 0;
        while at < self.blocks.len() {
            let last = self.firsts.get(at + 1).map(|next| next.host());
            if !hosts.meet(self.firsts[at].host(), last) {
                at += 1;
                continue;
            }
            let noted = std::mem::take(&mut self.blocks[at].accounts);
            self.noted -= noted.len();
            let mut left = BTreeMap::new();
            for (key, mut one) in noted {
                if hosts.contain(key.host()) {
                    let Some(account) = change(one.account) else { continue };
                    one.account = account;
                }
                left.insert(key, one);
            }
            self.noted += left.len();
            self.blocks[at].accounts = left;
            at += self.revise_block(heap, hosts, at, change)?;
        }
        Ok(())
    }

    /// The same for what is on disk of a block. Gives back how many blocks it has become.
    fn revise_block(
        &mut self,
        heap: &mut Heap,
        hosts: &HostRanges,
        at: usize,
        change: &mut dyn FnMut(Account) -> Option<Account>,
    ) -> Result<usize> {
        self.read_block(heap, at)?;
        let mut new = Vec::with_capacity(self.old.len());
        for (key, account) in entries(&self.old) {
            match hosts.contain(key.host()) {
                true => change(account).into_iter().for_each(|account| push(&mut new, &key, account)),
                false => push(&mut new, &key, account),
            }
        }
        if new == self.old {
            return Ok(1);
        }
        debug_assert!(new.len().is_multiple_of(ENTRY_BYTES));
        // What is in memory of the block stays with it: pieces are not made of one that only became smaller.
        let accounts = std::mem::take(&mut self.blocks[at].accounts);
        let (parts, since) = (self.blocks[at].parts, self.blocks[at].parts_since);
        let count = self.replace(heap, at, &new)?;
        let block = &mut self.blocks[at];
        (block.accounts, block.parts, block.parts_since) = (accounts, parts, since);
        Ok(count)
    }
}
