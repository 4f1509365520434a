//! What URLs are given, where a crawl goes by that: gifts to those that are found, moving up those that wait, and what those that
//! were fetched have spent; and what is told to those who have other URLs, and heard from those who found ours.

use std::ops::RangeInclusive;
use std::path::Path;

use nephila_core::agent::{Admitted, ToTell};
use nephila_core::assign::partition_of;
use nephila_core::cash::{self, Gifts, Total, classes_of, left_over};
use nephila_core::record::{Found, Outcome, Record, Settled};
use nephila_core::settings::UrlOrder;
use nephila_core::site::{Moved, Partitions, Waiting};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, Url, identify};

use super::key::{HostKey, HostRanges, Key};
use super::ledger::{Account, Better, Gift, Ledger, State, Whose};
use super::op::Stage;
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

/// The ledger and the tallies that the options want, if they want them; the states are what a snapshot says of them. `None` if
/// that makes no sense.
pub(super) fn open(
    options: &FrontierOptions,
    ledger: Option<State<'_>>,
    tallies: Option<State<'_>>,
) -> Option<(Option<Ledger>, Option<Ledger>)> {
    if options.order == UrlOrder::BreadthFirst {
        return Some((None, None));
    }
    let (urls, again) = (options.block_urls_max.max(1), classes_of(options.tell_again));
    let for_tallies = options.ledger_bytes_max / 4;
    let new = Ledger::new(options.ledger_bytes_max - for_tallies, urls, again);
    let ledger = match ledger {
        Some(state) => new.restore(state)?,
        None => new,
    };
    let new = Ledger::of_tallies(for_tallies, urls, again);
    let tallies = match tallies {
        Some(state) => new.restore(state)?,
        None => new,
    };
    Some((Some(ledger), Some(tallies)))
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
        for Better { host, class, is_sent, place, index, .. } in better {
            let found = self.text(place, index)?;
            match is_sent {
                true => self.send_again(host, &found, place)?,
                false => self.enter_again(host, class, &found, place)?,
            }
        }
        Ok(())
    }

    /// Queues a URL once more that was given to another site, which is to hear what it was given since.
    fn send_again(&mut self, key: HostKey, found: &Found, place: u64) -> Result<()> {
        let Some((host, print)) = identify(&found.url) else { return Ok(()) };
        let value = self.sieve.get(&self.blocks, &Key::new(key, print))?;
        if value.is_some_and(|value| value.stage == Stage::Sent) {
            let waiting = Waiting { via: None, attempts: 0, not_before: Some(Wall(0)) };
            let of = (key, &host, print);
            self.settle_moved(place, of, (Some(Stage::Sent), Stage::Tried), Some((found, &waiting)))?;
            self.decided.again.push((host, 1));
        }
        Ok(())
    }

    /// What a record gives to each URL that it found and that is ours, or says how much others have given; what it gives to the
    /// others is noted, to be told.
    pub(super) fn give_all(
        &mut self,
        place: u64,
        record: &Record,
        open: Option<&Partitions>,
        again: bool,
    ) -> Result<Vec<u64>> {
        let all = record.found().iter().map(|found| identify(&found.url)).collect::<Vec<_>>();
        let gifts = Gifts::of(record, all.iter().flatten().map(|(host, _)| host));
        let first = all.iter().position(Option::is_some);
        let is_new = !again && !matches!(record, Record::Arrived(_));
        let mut given = vec![0; all.len()];
        for (index, (found, identified)) in record.found().iter().zip(&all).enumerate() {
            let Some((host, print)) = identified else { continue };
            let key = Key::new(self.key_of(host), *print);
            let cash = if is_new { gifts.to(host, first == Some(index)) } else { 0 };
            let is_ours = open.is_none_or(|open| open.contains(partition_of(host)));
            given[index] = match is_ours {
                true if is_new => cash,
                true => self.gift_of(record, index, &key)?,
                false => {
                    self.tell(&Offered { place, index, found, key, cash }, record, again)?;
                    0
                }
            };
        }
        Ok(given)
    }

    /// What a URL of ours is given by a record that was offered before, or by others who found it.
    pub(super) fn gift_of(&mut self, record: &Record, index: usize, key: &Key) -> Result<u64> {
        let Some(tallies) = &mut self.tallies else { return Ok(0) };
        match record {
            Record::Arrived(arrived) => {
                let Some(Total { giver, units }) = arrived.totals.get(index).copied() else { return Ok(0) };
                self.givers.insert(giver);
                tallies.hear(&self.blocks, key, giver, units)
            }
            _ => self.owed_to(key),
        }
    }

    /// What this agent has given to a URL when it was another's, and was not heard of then.
    pub(super) fn owed_to(&mut self, key: &Key) -> Result<u64> {
        let Some(tallies) = &mut self.tallies else { return Ok(0) };
        let Some(units) = tallies.given(&self.blocks, key, Whose::Ours)? else { return Ok(0) };
        self.givers.insert(self.options.me);
        tallies.hear(&self.blocks, key, self.options.me, units)
    }

    /// A record has found a URL that others have, and gives it so much; or did so, and that is to be told `again`.
    pub(super) fn tell(&mut self, offered: &Offered<'_>, record: &Record, again: bool) -> Result<()> {
        let Some(tallies) = &mut self.tallies else { return Ok(()) };
        let ours = |units| Total { giver: self.options.me, units };
        let total = match record {
            // What others have told goes on as it came.
            Record::Arrived(arrived) => {
                again.then(|| arrived.totals.get(offered.index).copied().unwrap_or(ours(0)))
            }
            // It may be of a time when nobody was given anything.
            _ if again => Some(ours(tallies.given(&self.blocks, &offered.key, Whose::Ours)?.unwrap_or(0))),
            _ => tallies.give_away(&offered.key, offered.gift()).map(ours),
        };
        self.to_tell.extend(total.map(|total| to_tell(offered, record, total, again)));
        Ok(())
    }

    /// What others are to be told of that they were told less of before.
    fn tell_more(&mut self, better: Vec<Better>) -> Result<()> {
        for Better { cash, place, index, .. } in better {
            let found = self.text(place, index)?;
            let via = self.texts.page(place, &found.url);
            let total = Total { giver: self.options.me, units: cash };
            self.to_tell.push(ToTell { place, found, via, total, again: false });
        }
        Ok(())
    }

    /// What moves with URLs: those that are done, and then the others.
    pub(super) fn accounts_of(&mut self, moved: &Moved) -> Result<Vec<cash::Account>> {
        let (Some(ledger), Some(tallies)) = (&mut self.ledger, &mut self.tallies) else {
            return Ok(Vec::new());
        };
        let mut accounts = Vec::new();
        for key in urls_of(moved, self.secret) {
            let units = ledger.get(&self.blocks, &key)?.map_or(0, |account| account.cash);
            let mut heard = Vec::new();
            for giver in self.givers.iter().copied() {
                let units = tallies.given(&self.blocks, &key, Whose::Of(giver))?;
                heard.extend(units.map(|units| Total { giver, units }));
            }
            accounts.push(cash::Account { units, heard });
        }
        Ok(accounts)
    }

    /// Takes in what URLs have. Of those that are not `ours` yet nobody else says what they have; of the others it is known, and
    /// what is news is what was heard elsewhere.
    pub(super) fn take_accounts(&mut self, moved: &Moved, ours: &dyn Fn(HostKey) -> bool) -> Result<()> {
        let (Some(ledger), Some(tallies)) = (&mut self.ledger, &mut self.tallies) else { return Ok(()) };
        let urls = urls_of(moved, self.secret).into_iter().zip(&moved.accounts);
        for (key, account) in urls.filter(|(key, _)| *key != Key::FIRST) {
            let is_known = ledger.get(&self.blocks, &key)?.is_some_and(|account| account.is_known());
            let replaces = !ours(key.host()) || !is_known;
            let mut units = match replaces {
                true => account.units,
                false => ledger.get(&self.blocks, &key)?.map_or(0, |account| account.cash),
            };
            for Total { giver, units: theirs } in account.heard.iter().copied() {
                self.givers.insert(giver);
                match replaces {
                    true => tallies.note(&self.blocks, &key, giver, theirs)?,
                    false => units = units.saturating_add(tallies.hear(&self.blocks, &key, giver, theirs)?),
                }
            }
            // What this agent has given to it, and whoever had it has not heard of.
            if let Some(given) = tallies.given(&self.blocks, &key, Whose::Ours)? {
                let me = self.options.me;
                if replaces && account.heard.iter().all(|heard| heard.giver != me) {
                    // It may have been added to what came before.
                    tallies.note(&self.blocks, &key, me, 0)?;
                }
                self.givers.insert(me);
                units = units.saturating_add(tallies.hear(&self.blocks, &key, me, given)?);
            }
            ledger.set(&self.blocks, &key, units)?;
        }
        Ok(())
    }

    /// Gives what a record found of partitions that were frozen when it was written: that was not told with the rest.
    pub fn give_away(&mut self, place: u64, record: &Record, partitions: &Partitions) -> Result<()> {
        if matches!(record, Record::Seeds(_) | Record::Settled(_) | Record::Robots(_)) {
            for (index, found) in record.found().iter().enumerate() {
                let Some((host, print)) = identify(&found.url) else { continue };
                if partitions.contains(partition_of(&host)) {
                    let key = Key::new(self.key_of(&host), print);
                    let cash = self.texts.gift(place, index)?.unwrap_or(0);
                    self.tell(&Offered { place, index, found, key, cash }, record, false)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets what URLs of these hosts have, which others have now.
    pub(super) fn forget_accounts(&mut self, hosts: &HostRanges) -> Result<()> {
        let (Some(ledger), Some(tallies)) = (&mut self.ledger, &mut self.tallies) else { return Ok(()) };
        ledger.remove(&mut self.blocks, hosts, true)?;
        tallies.remove(&mut self.blocks, hosts, false)
    }

    /// Who has these hosts now has lost what was told of their URLs. Says what was decided.
    pub fn tell_anew(&mut self, ranges: &[Range]) -> Result<Admitted> {
        ranges.iter().try_for_each(|range| self.decide_range(range))?;
        let hosts = HostRanges::new(ranges.iter().map(|range| self.hosts_of(range)).collect());
        if let Some(tallies) = &mut self.tallies {
            tallies.tell_anew(&mut self.blocks, &hosts)?;
        }
        Ok(self.decided())
    }

    /// Decides and writes out what the ledger has no room for.
    pub(super) fn relieve_ledger(&mut self) -> Result<()> {
        let Some(ledger) = self.ledger.as_mut().filter(|ledger| ledger.is_full()) else { return Ok(()) };
        let mut better = Vec::new();
        ledger.relieve(&mut self.blocks, &mut better)?;
        self.move_up(better)
    }

    /// The same for the tallies.
    pub(super) fn relieve_tallies(&mut self) -> Result<()> {
        let Some(tallies) = self.tallies.as_mut().filter(|tallies| tallies.is_full()) else { return Ok(()) };
        let mut better = Vec::new();
        tallies.relieve(&mut self.blocks, &mut better)?;
        self.tell_more(better)
    }

    /// Moves up what waits in a worse class than it should, of these hosts.
    pub(super) fn decide_ledger(&mut self, hosts: RangeInclusive<HostKey>) -> Result<()> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        let mut better = Vec::new();
        ledger.decide(&self.blocks, hosts.clone(), &mut better)?;
        self.move_up(better)?;
        let Some(tallies) = &mut self.tallies else { return Ok(()) };
        let mut better = Vec::new();
        tallies.decide(&self.blocks, hosts, &mut better)?;
        self.tell_more(better)
    }

    /// A URL was tried: what it has spent it does not have any more.
    pub(super) fn spend(&mut self, key: &Key, settled: &Settled) -> Result<()> {
        let spent = settled.spent.unwrap_or_default();
        if self.account(key)?.is_none_or(|account| account.cash < spent) {
            // It had what this agent had given to it when it was another's: that is told once more after a start.
            let owed = self.owed_to(key)?;
            let Some(ledger) = &mut self.ledger else { return Ok(()) };
            ledger.add(&self.blocks, key, owed)?;
        }
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        // What it did not have was given to it while a limit kept it out.
        let is_sent = matches!(settled.outcome, Outcome::Sent { .. });
        let missing = ledger.spend(&self.blocks, key, spent, is_sent)?;
        ledger.kept_out = ledger.kept_out.saturating_sub(missing);
        ledger.rest = ledger.rest.saturating_add(left_over(settled));
        Ok(())
    }

    /// A limit keeps a URL out after all: takes back what it was given when it was offered, and says how much that is.
    pub(super) fn take_gift_back(&mut self, key: &Key, place: u64, index: usize) -> Result<u64> {
        let Some(ledger) = &mut self.ledger else { return Ok(0) };
        let cash = match self.readmitted.get(&index) {
            Some((_, cash)) => *cash,
            // All that it has, if that cannot be said: nobody else has given it anything that counts.
            None => self.texts.gift(place, index)?.unwrap_or(u64::MAX),
        };
        ledger.take_back(&self.blocks, key, cash)
    }

    /// A URL was tried or is done, or was given to another site: it waits in no class.
    pub(super) fn set_apart(&mut self, key: &Key, is_sent: bool) -> Result<()> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        ledger.spend(&self.blocks, key, 0, is_sent).map(drop)
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

    /// Whether a URL is known that is to be given something, as far as that can be said without the sieve; or was given something
    /// here, if others have it.
    pub fn has_account(&mut self, text: &str) -> Result<bool> {
        let Some((host, fingerprint)) = identify(text) else { return Ok(false) };
        let key = Key::new(self.key_of(&host), fingerprint);
        let account = self.account(&key)?;
        let Some(tallies) = &mut self.tallies else { return Ok(false) };
        let is_given = tallies.given(&self.blocks, &key, Whose::Ours)?.is_some();
        Ok(is_given || account.is_some_and(|account| account.is_known()))
    }

    /// The place of the oldest record that the text of a URL may be needed of.
    pub(super) fn oldest_text(&self) -> u64 {
        let ledgers = [&self.ledger, &self.tallies].into_iter().flatten();
        let given = ledgers.map(Ledger::oldest_text).min();
        self.sieve.oldest_text().min(given.unwrap_or(u64::MAX))
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
        if let Some(tallies) = &mut self.tallies {
            (cash.given, cash.heard) = tallies.sums(&self.blocks)?;
        }
        Ok(cash)
    }
}

/// The URLs that are moved, in the order of their accounts.
fn urls_of(moved: &Moved, secret: u64) -> Vec<Key> {
    let seen = moved.hosts.iter().flat_map(|moved| {
        let host = HostKey::of(&moved.host, secret);
        moved.seen.iter().map(move |seen| Key::new(host, seen.fingerprint))
    });
    let waiting = moved.found.iter().map(|found| {
        let identified = identify(&found.url);
        // One that is no URL any more keeps its place.
        identified.map_or(Key::FIRST, |(host, print)| Key::new(HostKey::of(&host, secret), print))
    });
    seen.chain(waiting).collect()
}

fn to_tell(offered: &Offered<'_>, record: &Record, total: Total, again: bool) -> ToTell {
    let Offered { place, index, found, .. } = *offered;
    let via = record.page(index).map(str::to_owned);
    ToTell { place, found: found.clone(), via, total, again }
}
