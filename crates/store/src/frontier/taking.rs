//! Handing over URLs of a host, and putting back what was not tried.
//!
//! What comes back is kept apart from what was never tried, so that either may come first.

use nephila_core::agent::{Due, Taken};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, Url, identify};

use super::Frontier;
use super::key::{HostKey, Key};
use super::op::Stage;
use super::queue::Entry;
use super::visiting::memo_of;
use crate::Result;

impl Frontier {
    /// Hands over up to `max` URLs of a host: first those that were put back, then those whose time has come again, the
    /// earliest first, then the others, the lowest class first and within it in the order of admission. With `fresh_first`,
    /// the others come before those that come back.
    pub fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken> {
        let mut taken = Taken { host: host.clone(), due: Vec::new(), left: 0, next: None, memo: None };
        let key = self.key_of(host);
        match self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
            Some(queue) => queue.recall(now),
            None => return Ok(taken),
        }
        if let Err(error) = self.take_into(&mut taken.due, key, max, fresh_first) {
            self.put_back(host, &taken.due)?;
            return Err(error);
        }
        if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
            taken.left = queue.due();
            taken.next = queue.next();
            taken.memo = memo_of(queue)?;
        }
        Ok(taken)
    }

    fn take_into(&mut self, due: &mut Vec<Due>, key: HostKey, max: usize, fresh_first: bool) -> Result<()> {
        while due.len() < max {
            let first = if fresh_first { self.next_fresh(key)? } else { self.next_returned(key)? };
            let entry = match first {
                Some(entry) => Some(entry),
                None if fresh_first => self.next_returned(key)?,
                None => self.next_fresh(key)?,
            };
            let Some(entry) = entry else { break };
            let Ok(url) = Url::parse(&entry.found.url) else { continue };
            let account = self.account(&Key::new(key, entry.print))?;
            // By cash, an entry is that of the page that gave most, not of the nearest.
            let nearest = account.filter(|_| entry.attempts == 0);
            due.push(Due {
                url,
                depth: nearest.map_or(u16::MAX, |account| account.depth).min(entry.found.depth),
                how: nearest.map_or(entry.found.how, |account| account.how(entry.found.how)),
                redirects: entry.found.redirects,
                attempts: entry.attempts,
                via: None,
                found_in: entry.via,
                cash: account.map(|account| account.cash),
            });
            if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
                queue.take(entry);
            }
        }
        Ok(())
    }

    fn next_returned(&mut self, key: HostKey) -> Result<Option<Entry>> {
        let queue = self.hosts.load(&mut self.blocks, &mut self.chunks, key)?;
        Ok(queue.and_then(|queue| queue.pop_front()))
    }

    fn next_fresh(&mut self, key: HostKey) -> Result<Option<Entry>> {
        loop {
            let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? else {
                return Ok(None);
            };
            let stale = queue.stale > 0;
            let Some((entry, class)) = queue.pop(&mut self.chunks)? else { return Ok(None) };
            if !stale && self.ledger.is_none() {
                return Ok(Some(entry));
            }
            let Some((_, fingerprint)) = identify(&entry.found.url) else { continue };
            let url = Key::new(key, fingerprint);
            let counts = match &mut self.ledger {
                Some(ledger) => ledger.take(&self.blocks, &url, class)?,
                None => {
                    let value = self.sieve.get(&self.blocks, &url)?;
                    value.is_none_or(|value| value.stage == Stage::Queued { class })
                }
            };
            if counts {
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
            due.iter().rev().for_each(|due| queue.put_back(Fingerprint::of(&due.url)));
        }
        Ok(())
    }
}
