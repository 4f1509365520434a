//! Moving hosts from one frontier to another: reading all that is known of their hosts, part by part, taking such parts in,
//! and forgetting them.
//!
//! A part taken in twice, or one that says less than is known, changes nothing: known is who was known to either, done what is
//! done to either.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use nephila_core::agent::{Admitted, Cursor};
use nephila_core::assign::partition_of;
use nephila_core::record::{Found, How, Record, Settled};
use nephila_core::site::{Moved, MovedHost, Partitions, SeenUrl, Waiting};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, identify};
use serde::{Deserialize, Serialize};

use super::key::{HostKey, HostRanges, Key};
use super::op::Stage;
use super::queue::{Entry, Stretch};
use super::visiting::memo_of;
use super::{Frontier, Range};
use crate::{Error, Result};

/// Where reading goes on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Position {
    /// The range, by its place in the list.
    range: usize,
    /// Not a host before this one.
    host: HostKey,
    /// Of it: not a URL that is done before this one;
    seen: Option<[u8; 12]>,
    /// or, when all of those were read, not a stretch of the queue before this one.
    stretch: Option<Stretch>,
}

impl Position {
    fn first() -> Position {
        Position { range: 0, host: HostKey::from_bytes([0; 8]), seen: None, stretch: None }
    }

    fn decode(cursor: &Cursor) -> Result<Position> {
        postcard::from_bytes(&cursor.0).map_err(|_| Error::Corrupt {
            path: "store".into(),
            place: 0,
            what: "a cursor makes no sense",
        })
    }

    fn encode(&self) -> Result<Cursor> {
        Ok(Cursor(postcard::to_stdvec(self).map_err(Error::Encode)?))
    }
}

impl Frontier {
    /// Reads what is known of some hosts, of about `max` URLs, and says where to go on. Meanwhile nothing of them
    /// may change, and nothing may be taken. `page` says on which page a URL was found, by the place of a record.
    pub fn export(
        &mut self,
        ranges: &[Range],
        from: Option<&Cursor>,
        max: usize,
        page: &dyn Fn(u64, &str) -> Option<String>,
    ) -> Result<(Moved, Option<Cursor>)> {
        let mut position = from.map_or(Ok(Position::first()), Position::decode)?;
        let mut moved = Moved::default();
        while let Some(range) = ranges.get(position.range) {
            self.decide_range(range)?;
            let mut hosts: Vec<(HostKey, Host, Option<_>)> = Vec::new();
            let mut failed = None;
            let keys = self.hosts_of(range);
            self.hosts.each(
                &mut self.blocks,
                &mut self.chunks,
                keys,
                &mut |key, queue| match memo_of(queue) {
                    Ok(memo) => hosts.push((key, queue.host.clone(), memo)),
                    Err(error) => failed = Some(error),
                },
            )?;
            if let Some(error) = failed {
                return Err(error);
            }
            hosts.sort_by_key(|(key, ..)| *key);
            hosts.retain(|(key, ..)| *key >= position.host);
            for (key, host, memo) in hosts {
                if key != position.host {
                    position = Position { host: key, seen: None, stretch: None, ..position };
                }
                let moved_host = MovedHost { host, memo, seen: Vec::new() };
                if !self.export_host(&mut position, key, moved_host, max, &mut moved, page)? {
                    moved.accounts = self.accounts_of(&moved)?;
                    return Ok((moved, Some(position.encode()?)));
                }
            }
            position = Position { range: position.range + 1, ..Position::first() };
        }
        moved.accounts = self.accounts_of(&moved)?;
        Ok((moved, None))
    }

    /// Reads on with one host; false if there was no room for all of it.
    #[allow(clippy::too_many_arguments)] // one private step of export, split off to be readable
    fn export_host(
        &mut self,
        position: &mut Position,
        key: HostKey,
        mut host: MovedHost,
        max: usize,
        moved: &mut Moved,
        page: &dyn Fn(u64, &str) -> Option<String>,
    ) -> Result<bool> {
        let room = |moved: &Moved, host: &MovedHost| {
            let seen: usize = moved.hosts.iter().map(|host| 1 + host.seen.len()).sum();
            (seen + host.seen.len() + moved.found.len()) < max
        };
        if position.stretch.is_none() {
            let first = position.seen.unwrap_or_default();
            let mut next = None;
            self.sieve.each(&self.blocks, &Key::new(key, Fingerprint(first)), &mut |key, value| {
                let print = key.fingerprint();
                if !value.stage.is_done() {
                    return ControlFlow::Continue(());
                }
                if !room(moved, &host) {
                    next = Some(print);
                    return ControlFlow::Break(());
                }
                let is_sent = value.stage == Stage::Sent;
                host.seen.push(SeenUrl {
                    fingerprint: Fingerprint(print),
                    place: value.place.get(),
                    is_sent,
                });
                ControlFlow::Continue(())
            })?;
            if let Some(next) = next {
                position.seen = Some(next);
                moved.hosts.push(host);
                return Ok(false);
            }
            position.stretch = Some(Stretch::FIRST);
        }
        let mut has_room = true;
        while let Some(stretch) = position.stretch {
            if !room(moved, &host) {
                has_room = false;
                break;
            }
            let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? else { break };
            position.stretch = queue.read(&mut self.chunks, stretch, &mut |entry, not_before| {
                let Entry { found, attempts, via, .. } = entry;
                let via = page(via, &found.url);
                moved.waiting.push(Waiting { via, attempts, not_before });
                moved.found.push(found);
            })?;
        }
        moved.hosts.push(host);
        Ok(has_room)
    }

    /// Reads which URLs of a host are done, at most `max` from `from` on, and says where to go on; at the end also which were
    /// tried. What is given away is not done. Others say where to go on: from where nobody can, there is not even the host.
    pub fn export_done(
        &mut self,
        host: &Host,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<(Moved, Option<Cursor>)> {
        let first = from.map_or(Some(Default::default()), |from| from.0.as_slice().try_into().ok());
        let Some(first) = first else { return Ok((Moved::default(), None)) };
        self.decide_range(&Range::Host(host.clone()))?;
        let key = self.key_of(host);
        let (mut seen, mut next) = (Vec::new(), None);
        self.sieve.each(&self.blocks, &Key::new(key, Fingerprint(first)), &mut |key, value| {
            if value.stage != Stage::Settled {
                return ControlFlow::Continue(());
            }
            if seen.len() >= max {
                next = Some(Cursor(key.fingerprint().to_vec()));
                return ControlFlow::Break(());
            }
            let fingerprint = Fingerprint(key.fingerprint());
            seen.push(SeenUrl { fingerprint, place: value.place.get(), is_sent: false });
            ControlFlow::Continue(())
        })?;
        let mut moved = Moved::default();
        let mut memo = None;
        if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
            memo = memo_of(queue)?;
            if next.is_none() {
                queue.read(&mut self.chunks, Stretch::FIRST, &mut |entry, not_before| {
                    if entry.attempts > 0 {
                        moved.waiting.push(Waiting { via: None, attempts: entry.attempts, not_before });
                        moved.found.push(entry.found);
                    }
                })?;
            }
        }
        moved.hosts.push(MovedHost { host: host.clone(), memo, seen });
        Ok((moved, next))
    }

    /// Takes in a part of what another frontier knows. `place` is that of the record that brought it; `open` are the partitions
    /// that are this one's already (`None`: all).
    pub fn import(&mut self, place: u64, moved: &Moved, open: Option<&Partitions>) -> Result<()> {
        let ours: BTreeSet<HostKey> = moved
            .hosts
            .iter()
            .filter(|moved| open.is_none_or(|open| open.contains(partition_of(&moved.host))))
            .map(|moved| self.key_of(&moved.host))
            .collect();
        self.take_accounts(moved, &|host| ours.contains(&host))?;
        for MovedHost { host, memo, seen } in &moved.hosts {
            let key = self.key_of(host);
            let was_known = self.hosts.load(&mut self.blocks, &mut self.chunks, key)?.is_some();
            let queue = self.hosts.load_or_new(&mut self.blocks, &mut self.chunks, key, host)?;
            if let Some(memo) = memo
                && memo_of(queue)?.is_none_or(|known| memo.is_after(&known))
            {
                queue.memo = postcard::to_stdvec(memo).map_err(Error::Encode)?;
            }
            queue.is_merged |= was_known;
            for SeenUrl { fingerprint, is_sent, .. } in seen {
                let known = if was_known { self.stage(key, *fingerprint)? } else { None };
                // What is known here in any way is nearer than that somebody has given it away.
                if *is_sent && known.is_none() || !is_sent && known != Some(Stage::Settled) {
                    let stage = if *is_sent { Stage::Sent } else { Stage::Settled };
                    self.settle_moved(place, (key, host, *fingerprint), (known, stage), None)?;
                }
            }
        }
        for (index, (found, waiting)) in moved.found.iter().zip(&moved.waiting).enumerate() {
            let Some((host, fingerprint)) = identify(&found.url) else { continue };
            let key = self.key_of(&host);
            let known = self.stage(key, fingerprint)?;
            let of = (key, &host, fingerprint);
            match waiting.not_before {
                _ if known == Some(Stage::Settled) => {}
                None if known != Some(Stage::Sent) => {
                    let cash = if moved.accounts.is_empty() {
                        self.owed_to(&Key::new(key, fingerprint))?
                    } else {
                        0
                    };
                    self.admit_one(place, index, found, cash)?;
                }
                _ => self.settle_moved(place, of, (known, Stage::Tried), Some((found, waiting)))?,
            }
        }
        // So that the figures are right from now on.
        for MovedHost { host, .. } in &moved.hosts {
            self.decide_range(&Range::Host(host.clone()))?;
        }
        self.relieve()
    }

    /// Notes the end of an attempt, once its record is durable. False if another agent had done the URL before: then it is done.
    pub fn settle(&mut self, place: u64, settled: &Settled) -> Result<bool> {
        let Some((host, fingerprint)) = identify(&settled.url) else { return Ok(true) };
        let key = self.key_of(&host);
        self.spend(&Key::new(key, fingerprint), settled)?;
        let queue = self.hosts.load_or_new(&mut self.blocks, &mut self.chunks, key, &host)?;
        let may_be_done = queue.is_merged && !queue.is_under_way(fingerprint);
        if may_be_done && self.stage(key, fingerprint)? == Some(Stage::Settled) {
            return Ok(false);
        }
        self.note_settled(place, settled)?;
        Ok(true)
    }

    /// The same when records are folded again. True if it cannot be said at once whether the URL was known: then the figures
    /// of its host are right only after [`Frontier::decide_host`].
    pub fn settle_again(&mut self, place: u64, settled: &Settled) -> Result<bool> {
        let Some((host, fingerprint)) = identify(&settled.url) else { return Ok(false) };
        let key = Key::new(self.key_of(&host), fingerprint);
        self.sieve.prepare(&self.blocks, &key)?;
        let uncertain = self.sieve.is_uncertain(&key);
        self.settle(place, settled)?;
        Ok(uncertain)
    }

    fn stage(&mut self, key: HostKey, fingerprint: Fingerprint) -> Result<Option<Stage>> {
        let value = self.sieve.get(&self.blocks, &Key::new(key, fingerprint))?;
        Ok(value.map(|value| value.stage))
    }

    /// Notes how far a URL has come at another agent, or that it waits here again.
    pub(super) fn settle_moved(
        &mut self,
        place: u64,
        (key, host, print): (HostKey, &Host, Fingerprint),
        (from, to): (Option<Stage>, Stage),
        waits: Option<(&Found, &Waiting)>,
    ) -> Result<()> {
        let is_new = self.sieve.settle(Key::new(key, print), place, to);
        if is_new {
            self.count(key);
        }
        self.set_apart(&Key::new(key, print), to == Stage::Sent)?;
        let queue = self.hosts.load_or_new(&mut self.blocks, &mut self.chunks, key, host)?;
        queue.known += u64::from(is_new);
        queue.remove(print);
        if let Some((found, waiting)) = waits {
            let entry = Entry { found: found.clone(), attempts: waiting.attempts, via: place, print };
            queue.defer(entry, waiting.not_before.unwrap_or_default());
        }
        let was_done = u64::from(from.is_some_and(Stage::is_done));
        let is_done = u64::from(to.is_done());
        queue.settled = (queue.settled + is_done).saturating_sub(was_done);
        self.settled = (self.settled + is_done).saturating_sub(was_done);
        Ok(())
    }

    /// The same as [`Frontier::admit`] for a record that returns URLs.
    pub fn admit_returned(
        &mut self,
        place: u64,
        record: &Record,
        open: Option<&Partitions>,
        again: bool,
    ) -> Result<Admitted> {
        let returned = record.found().iter().filter(|found| matches!(found.how, How::Returned { .. }));
        let hosts: BTreeSet<Host> = returned.filter_map(|found| Some(identify(&found.url)?.0)).collect();
        let ranges: Vec<Range> = hosts.into_iter().map(Range::Host).collect();
        // Before, so that it is known how far they have come; and after, so that the figures are right.
        ranges.iter().try_for_each(|range| self.decide_range(range))?;
        self.offer_all(place, record, open, again)?;
        ranges.iter().try_for_each(|range| self.decide_range(range))?;
        self.relieve()?;
        Ok(self.decided())
    }

    /// Queues a URL again that was given to another site, if it is returned, or notes that it was tried there; false if neither
    /// is news.
    pub(super) fn take_back(&mut self, place: u64, found: &Found, host: &Host, key: Key) -> Result<bool> {
        let How::Returned { attempts, .. } = found.how else { return Ok(false) };
        let (host_key, print) = (key.host(), Fingerprint(key.fingerprint()));
        let value = self.sieve.get(&self.blocks, &key)?;
        let stage = value.map(|value| value.stage);
        // A record may be offered again: what was given away since is not returned by it.
        let is_older = value.is_some_and(|value| value.place.get() < place);
        let mut queue = self.hosts.load(&mut self.blocks, &mut self.chunks, host_key)?;
        if stage == Some(Stage::Tried)
            && let Some(queue) = &mut queue
        {
            queue.was_tried(print, attempts);
        }
        let is_under_way = queue.is_some_and(|queue| queue.is_under_way(print));
        let is_news = match stage {
            Some(Stage::Sent) => is_older,
            None | Some(Stage::Queued { .. }) => attempts > 0 && !is_under_way,
            Some(Stage::Tried | Stage::Settled) => false,
        };
        if is_news {
            let waiting = Waiting { via: None, attempts, not_before: Some(Wall(0)) };
            let of = (host_key, host, print);
            self.settle_moved(place, of, (stage, Stage::Tried), Some((found, &waiting)))?;
            self.decided.new.push((host.clone(), 1));
        }
        Ok(is_news)
    }

    /// Forgets all that is known of some hosts, in one pass however many ranges they are. Nothing of them may be taken. Says how
    /// many URLs they had, and how many of them were not done.
    pub fn forget(&mut self, ranges: &[Range]) -> Result<(u64, u64)> {
        ranges.iter().try_for_each(|range| self.decide_range(range))?;
        let hosts = HostRanges::new(ranges.iter().map(|range| self.hosts_of(range)).collect());
        let (mut known, mut settled) = (0, 0);
        self.sieve.remove(&mut self.blocks, &hosts, &mut |value| {
            known += 1;
            settled += u64::from(value.stage.is_done());
        })?;
        self.known = self.known.saturating_sub(known);
        self.settled = self.settled.saturating_sub(settled);
        self.counts.forget(&hosts);
        self.forget_accounts(&hosts)?;
        let mut queues = Vec::new();
        self.hosts.remove(&mut self.blocks, &mut self.chunks, &hosts, &mut |queue| queues.push(queue))?;
        for queue in queues {
            queue.free(&mut self.chunks);
        }
        Ok((known, known - settled))
    }
}
