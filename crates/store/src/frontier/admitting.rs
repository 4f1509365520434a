//! Admitting URLs: what a record found is offered, what is new is queued, and what was decided later is entered when it is.

use nephila_core::agent::Admitted;
use nephila_core::assign::partition_of;
use nephila_core::record::{Found, Record};
use nephila_core::site::Partitions;
use nephila_core::url::{Host, identify};

use super::Frontier;
use super::giving::Offered;
use super::key::Key;
use super::op::{Kind, Op};
use super::queue::{class_of, encode_entry};
use super::sieve::{Decision, Look, Offer};
use crate::Result;

/// How many hosts are looked at to count new URLs together.
const HOSTS_NEAR: usize = 8;

impl Frontier {
    /// Offers what a durable record found, as far as it is of partitions that are open (`None`: all are); says what is new, as
    /// far as that can be said at once. The rest follows with [`Frontier::decided`].
    pub fn admit(&mut self, place: u64, record: &Record, open: Option<&Partitions>) -> Result<Admitted> {
        self.offer_all(place, record, open, false)?;
        self.relieve()?;
        Ok(self.decided())
    }

    /// Offers once more what a record found that was offered before: it gives nothing but what it has given to who had the URLs
    /// then.
    pub fn admit_again(
        &mut self,
        place: u64,
        record: &Record,
        open: Option<&Partitions>,
    ) -> Result<Admitted> {
        self.offer_all(place, record, open, true)?;
        self.relieve()?;
        Ok(self.decided())
    }

    pub(super) fn offer_all(
        &mut self,
        place: u64,
        record: &Record,
        open: Option<&Partitions>,
        again: bool,
    ) -> Result<()> {
        let gifts = match self.ledger.is_some() {
            true => self.give_all(place, record, open, again)?,
            false => Vec::new(),
        };
        let (mut keys, mut looks) = std::mem::take(&mut self.looking);
        let mut hosts = Vec::with_capacity(record.found().len());
        keys.clear();
        for (index, found) in record.found().iter().enumerate() {
            let Some((host, fingerprint)) = identify(&found.url) else { continue };
            if open.is_some_and(|open| !open.contains(partition_of(&host))) {
                continue;
            }
            keys.push(Key::new(self.key_of(&host), fingerprint));
            hosts.push((index, host));
        }
        self.sieve.look(&keys, &mut looks);
        for ((key, look), (index, host)) in keys.iter().zip(&looks).zip(hosts) {
            let found = &record.found()[index];
            let cash = gifts.get(index).copied().unwrap_or(0);
            let offered = Offered { place, index, found, key: *key, cash };
            match self.take_back(place, found, &host, *key)? {
                true => self.give(&offered, false),
                false => drop(self.offer(offered, host, *look)?),
            }
        }
        self.looking = (keys, looks);
        Ok(())
    }

    pub(super) fn admit_one(&mut self, place: u64, index: usize, found: &Found, cash: u64) -> Result<Offer> {
        let Some((host, fingerprint)) = identify(&found.url) else { return Ok(Offer::New) };
        let key = Key::new(self.key_of(&host), fingerprint);
        if self.take_back(place, found, &host, key)? {
            return Ok(Offer::New);
        }
        let mut looks = Vec::new();
        self.sieve.look(&[key], &mut looks);
        self.offer(Offered { place, index, found, key, cash }, host, looks[0])
    }

    fn offer(&mut self, offered: Offered<'_>, host: Host, look: Look) -> Result<Offer> {
        if self.give_to_known(&offered)? {
            return Ok(Offer::New);
        }
        let Offered { place, index, found, key, cash } = offered;
        // By cash, nothing moves up in the sieve: the ledger sees to that.
        let class = if self.ledger.is_none() { class_of(found.depth) } else { 0 };
        let over = self.limit_on(key.host(), found.depth);
        let kind = if over.is_none() { Kind::Check } else { Kind::Probe };
        let offer = self.sieve.ask(&self.blocks, look, Op::new(key, kind, class, place, index))?;
        match over {
            _ if offer == Offer::Later => self.give(&offered, false),
            None => {
                self.give(&offered, true);
                self.enter(key, host, found, place)?;
            }
            Some(over) => self.keep_out(over, found, place, cash)?,
        }
        Ok(offer)
    }

    /// Queues a URL that is new.
    fn enter(&mut self, key: Key, host: Host, found: &Found, via: u64) -> Result<()> {
        self.count(key.host());
        let class = match &mut self.ledger {
            Some(ledger) => ledger.enter(&self.blocks, &key)?,
            None => class_of(found.depth),
        };
        self.entry.clear();
        encode_entry(found, 0, via, &mut self.entry);
        self.hosts.push(&mut self.chunks, key.host(), class, &self.entry)?;
        // The URLs of a page are mostly of few hosts, and a host may be named again.
        match self.decided.new.iter_mut().rev().take(HOSTS_NEAR).find(|(other, _)| *other == host) {
            Some((_, count)) => *count += 1,
            None => self.decided.new.push((host, 1)),
        }
        Ok(())
    }

    /// The text of a URL that was offered and not decided at once.
    pub(super) fn text(&self, place: u64, index: usize) -> Result<Found> {
        match self.readmitted.get(&index) {
            Some((found, _)) => Ok(found.clone()),
            None => self.texts.found(place, index),
        }
    }

    /// Enters what was decided.
    pub(super) fn act_on(&mut self, mut decisions: Vec<Decision>) -> Result<()> {
        // In the order of their records, each of which is then read once.
        decisions.sort_by_key(Decision::text);
        let mut forgotten: Vec<Key> = Vec::new();
        for decision in decisions.drain(..) {
            match decision {
                Decision::Known => self.decided.known += 1,
                Decision::Tried { host } => {
                    self.count(host);
                    if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, host)? {
                        queue.known += 1;
                    }
                }
                Decision::New { place, index } => {
                    let found = self.text(place.get(), index)?;
                    let Some((host, fingerprint)) = identify(&found.url) else { continue };
                    let key = Key::new(self.key_of(&host), fingerprint);
                    match self.limit_on(key.host(), found.depth) {
                        None => self.enter(key, host, &found, place.get())?,
                        Some(over) => {
                            // The limit was reached meanwhile.
                            forgotten.push(key);
                            self.sieve.forget(key, place.get());
                            let cash = self.take_gift_back(&key, place.get(), index)?;
                            self.keep_out(over, &found, place.get(), cash)?;
                        }
                    }
                }
                Decision::KeptOut { place, index } => {
                    let found = self.text(place.get(), index)?;
                    let Some((host, fingerprint)) = identify(&found.url) else { continue };
                    let key = Key::new(self.key_of(&host), fingerprint);
                    match self.limit_on(key.host(), found.depth) {
                        Some(over) => {
                            let cash = self.take_gift_back(&key, place.get(), index)?;
                            self.keep_out(over, &found, place.get(), cash)?;
                        }
                        // The limit has been raised since. What it was given it has.
                        None => drop(self.admit_one(place.get(), index, &found, 0)?),
                    }
                }
                Decision::Better { host, place, index } => {
                    let found = self.text(place.get(), index)?;
                    let Some((_, fingerprint)) = identify(&found.url) else { continue };
                    if forgotten.contains(&Key::new(host, fingerprint)) {
                        // It was known for as long as it was decided about.
                        self.admit_one(place.get(), index, &found, 0)?;
                        continue;
                    }
                    self.entry.clear();
                    encode_entry(&found, 0, place.get(), &mut self.entry);
                    self.hosts.again(&mut self.chunks, host, class_of(found.depth), &self.entry)?;
                    self.decided.known += 1;
                }
            }
        }
        self.decisions = decisions;
        Ok(())
    }
}
