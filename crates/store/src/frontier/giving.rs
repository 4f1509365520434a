//! What URLs are given, where a crawl goes by that: gifts to those that are found, moving up those that wait, and what those that
//! were fetched have spent.

use std::ops::RangeInclusive;
use std::path::Path;

use nephila_core::cash::left_over;
use nephila_core::record::{Found, Settled};
use nephila_core::settings::UrlOrder;
use nephila_core::url::{Fingerprint, Host, Url, identify};

use super::key::{HostKey, Key};
use super::ledger::{Account, Better, Gift, Ledger, State};
use super::queue::encode_entry;
use super::{Frontier, FrontierOptions, Range};
use crate::{Cash, Error, Result};

/// A URL that is offered: URL `index` of the record at `place`.
pub(super) struct Offered<'a> {
    pub(super) place: u64,
    pub(super) index: usize,
    pub(super) found: &'a Found,
    pub(super) key: Key,
    /// What it is given.
    pub(super) cash: u64,
}

impl Offered<'_> {
    fn gift(&self) -> Gift {
        let Offered { place, index, found, cash, .. } = *self;
        Gift { cash, depth: found.depth, how: found.how, place, index }
    }
}

/// A crawl keeps the order that it has.
pub(super) fn check_order(dir: &Path, found: UrlOrder, options: &FrontierOptions) -> Result<()> {
    if found == options.order {
        return Ok(());
    }
    Err(Error::Order { path: dir.to_owned(), found: found.name() })
}

/// The ledger that the options want, if they want one; `state` is what a snapshot says of it. `None` if that makes no sense.
pub(super) fn open(options: &FrontierOptions, state: Option<State<'_>>) -> Option<Option<Ledger>> {
    if options.order == UrlOrder::BreadthFirst {
        return Some(None);
    }
    let ledger = Ledger::new(options.ledger_bytes_max, options.block_urls_max.max(1));
    match state {
        Some(state) => ledger.restore(state).map(Some),
        None => Some(Some(ledger)),
    }
}

impl Frontier {
    /// Gives a URL what it is given, if it is known without asking the sieve; says whether it is.
    pub(super) fn give_to_known(&mut self, offered: &Offered<'_>) -> Result<bool> {
        let Some(ledger) = self.ledger.as_mut().filter(|ledger| ledger.knows(&offered.key)) else {
            return Ok(false);
        };
        if let Some(class) = ledger.give(&offered.key, offered.gift(), false) {
            self.enter_again(offered.key.host(), class, offered.found, offered.place)?;
        }
        self.decided.known += 1;
        Ok(true)
    }

    /// Gives a URL what it is given; `is_new` if nobody knew it.
    pub(super) fn give(&mut self, offered: &Offered<'_>, is_new: bool) {
        if let Some(ledger) = &mut self.ledger {
            // One of which it is not certain that it is known is moved up when that is decided, and not before.
            ledger.give(&offered.key, offered.gift(), is_new);
        }
    }

    /// Enters a URL that waits in a better class.
    fn enter_again(&mut self, host: HostKey, class: u8, found: &Found, via: u64) -> Result<()> {
        self.entry.clear();
        encode_entry(found, 0, via, &mut self.entry);
        self.hosts.again(&mut self.chunks, host, class, &self.entry)
    }

    fn move_up(&mut self, mut better: Vec<Better>) -> Result<()> {
        // In the order of their records, each of which is then read once.
        better.sort_by_key(|better| (better.place, better.index));
        for Better { host, class, place, index } in better {
            let found = self.text(place, index)?;
            self.enter_again(host, class, &found, place)?;
        }
        Ok(())
    }

    /// Decides and writes out what the ledger has no room for.
    pub(super) fn relieve_ledger(&mut self) -> Result<()> {
        let Some(ledger) = self.ledger.as_mut().filter(|ledger| ledger.is_full()) else { return Ok(()) };
        let mut better = Vec::new();
        ledger.relieve(&mut self.blocks, &mut better)?;
        self.move_up(better)
    }

    /// Moves up what waits in a worse class than it should, of these hosts.
    pub(super) fn decide_ledger(&mut self, hosts: RangeInclusive<HostKey>) -> Result<()> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        let mut better = Vec::new();
        ledger.decide(&self.blocks, hosts, &mut better)?;
        self.move_up(better)
    }

    /// A URL was tried: what it has spent it does not have any more.
    pub(super) fn spend(&mut self, key: &Key, settled: &Settled) -> Result<()> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        // What it did not have was given to it while a limit kept it out.
        let missing = ledger.spend(&self.blocks, key, settled.spent.unwrap_or_default())?;
        ledger.kept_out = ledger.kept_out.saturating_sub(missing);
        ledger.rest = ledger.rest.saturating_add(left_over(settled));
        Ok(())
    }

    /// A limit keeps a URL out after all: takes back what it was given when it was offered, and says how much that is.
    pub(super) fn take_gift_back(&mut self, key: &Key, place: u64, index: usize) -> Result<u64> {
        let Some(ledger) = &mut self.ledger else { return Ok(0) };
        let cash = match self.readmitted.get(&index) {
            Some((_, cash)) => *cash,
            None => self.texts.gift(place, index)?,
        };
        ledger.take_back(&self.blocks, key, cash)
    }

    /// What a URL was given, and where it waits.
    pub(super) fn account(&mut self, key: &Key) -> Result<Option<Account>> {
        self.ledger.as_mut().map_or(Ok(None), |ledger| ledger.get(&self.blocks, key))
    }

    /// What a URL has, if the crawl goes by that.
    pub fn cash_of(&mut self, url: &Url) -> Result<Option<u64>> {
        let key = Key::new(self.key_of(&Host::of(url)), Fingerprint::of(url));
        Ok(self.account(&key)?.map(|account| account.cash))
    }

    /// Whether a URL is known that is to be given something, as far as that can be said without the sieve.
    pub fn has_account(&mut self, text: &str) -> Result<bool> {
        let Some((host, fingerprint)) = identify(text) else { return Ok(false) };
        let account = self.account(&Key::new(self.key_of(&host), fingerprint))?;
        Ok(account.is_some_and(|account| account.is_known()))
    }

    /// The place of the oldest record that the text of a URL may be needed of.
    pub(super) fn oldest_text(&self) -> u64 {
        let given = self.ledger.as_ref().map_or(u64::MAX, |ledger| ledger.oldest_text());
        self.sieve.oldest_text().min(given)
    }

    /// Where all cash is; looks at every URL.
    pub fn cash(&mut self) -> Result<Cash> {
        self.decide_range(&Range::All)?;
        let Some(ledger) = &mut self.ledger else { return Ok(Cash::default()) };
        let mut cash = Cash { rest: ledger.rest, kept_out: ledger.kept_out, ..Cash::default() };
        ledger.each(&self.blocks, &mut |_, account| match account.waits() {
            true => cash.waiting += account.cash,
            false => cash.kept += account.cash,
        })?;
        Ok(cash)
    }
}
