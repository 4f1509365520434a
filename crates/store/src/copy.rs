//! Copying all that a store knows into one of the other kind, piece by piece.
//!
//! A store is read as a row of [`Piece`]s ([`EmbeddedStore::each_piece`], [`crate::redis::RedisStore::each_piece`]), which the
//! other takes in ([`EmbeddedCopy`], [`crate::redis::RedisCopy`]). The same piece twice, one that says less than is known, or
//! pieces in another order come to the same: known is who was known to any, done what is done to any. So a copy that was
//! interrupted is simply begun again, and several agents copy what they know into one store, one after another.
//!
//! Neither kind of store has what the other one has: places of records are each store's own. What refers to a record so goes with
//! what it says: the page on which a URL was found, the last attempt at it, the robots.txt files of a host.

use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::Cursor;
use nephila_core::assign::PARTITIONS;
use nephila_core::frontier::HostMemo;
use nephila_core::record::{Arrived, Failure, Found, Outcome, Record, RobotsRecord, Settled};
use nephila_core::site::{AgentId, Moved, MovedHost, SeenUrl};
use nephila_core::time::Wall;
use nephila_core::url::Host;
use nephila_disk::Disk;

use crate::{
    EmbeddedStore, Exported, FrontierOptions, Journal, KnownState, OwnStore, Result, Store, StoreLimits,
};

/// Pieces that are taken in together.
pub(crate) const PIECES_MAX: usize = 500;

/// Something that a store knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// A URL that was not tried.
    Waiting {
        /// The URL.
        found: Found,
        /// The page that it was found on.
        via: Option<String>,
        /// It was admitted. Whether the others are, limits say; they come last.
        is_admitted: bool,
    },
    /// The last attempt at a URL, which is done or will be tried again.
    Tried {
        /// The attempt, without what it found.
        settled: Box<Settled>,
        /// The page that the URL was found on.
        via: Option<String>,
        /// Which agent has archived the answer, if that is known.
        by: Option<AgentId>,
    },
    /// A URL that another agent has done: what came of it is not known here.
    Elsewhere {
        /// Its host.
        host: Host,
        /// What it is told by, and where that agent's journal says more.
        seen: SeenUrl,
        /// That agent.
        agent: AgentId,
    },
    /// A host.
    Host {
        /// Its name.
        host: Host,
        /// What is kept of it.
        memo: HostMemo,
        /// The robots.txt files that this refers to, by the places that it calls them, and which agent has archived each.
        rules: Vec<(u64, RobotsRecord, Option<AgentId>)>,
    },
}

impl Piece {
    /// What was written by a calendar that shows `theirs` when ours shows `ours`.
    pub fn translated(mut self, theirs: Wall, ours: Wall) -> Piece {
        match &mut self {
            Piece::Tried { settled, .. } => {
                if let Outcome::Retry { not_before, .. } = &mut settled.outcome {
                    *not_before = not_before.translated(theirs, ours);
                }
            }
            Piece::Host { memo, .. } => *memo = std::mem::take(memo).translated(theirs, ours),
            Piece::Waiting { .. } | Piece::Elsewhere { .. } => {}
        }
        self
    }

    /// The records with captures that it speaks of, and whose they are.
    pub fn captures(&self) -> Vec<(Record, Option<AgentId>)> {
        match self {
            Piece::Tried { settled, by, .. } => vec![(Record::Settled((**settled).clone()), *by)],
            Piece::Host { rules, .. } => {
                rules.iter().map(|(_, robots, by)| (Record::Robots(robots.clone()), *by)).collect()
            }
            Piece::Waiting { .. } | Piece::Elsewhere { .. } => Vec::new(),
        }
    }
}

impl EmbeddedStore {
    /// Passes on all that it knows, of any partition. It is the store of agent `me`, which may not have brought to others what
    /// records from `outbox_from` on found for them.
    pub fn each_piece(
        &mut self,
        me: AgentId,
        outbox_from: u64,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        // What is done, of hosts that it has had before too: their records are nowhere else.
        self.each_record(0, &mut |_, record| self.pieces_of_record(record, me, each))?;
        let partitions: Vec<u16> = (0..PARTITIONS).collect();
        let (mut from, mut last): (Option<Cursor>, Option<Host>) = (None, None);
        loop {
            let Exported { moved, next, .. } = self.export(&partitions, from.as_ref())?;
            for MovedHost { host, memo, .. } in moved.hosts {
                // One that has many URLs comes in parts.
                if last.as_ref() != Some(&host)
                    && let Some(memo) = memo
                {
                    let rules = self.rules_of(&memo, me);
                    each(Piece::Host { host: host.clone(), memo, rules })?;
                }
                last = Some(host);
            }
            for (found, waiting) in moved.found.into_iter().zip(moved.waiting) {
                let via = waiting.via.clone();
                match waiting.not_before {
                    None => each(Piece::Waiting { found, via, is_admitted: true })?,
                    Some(at) => each(self.piece_of_tried(found, waiting.attempts, at, via, me)?)?,
                }
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
        self.each_kept_out(&mut |found, place| {
            let via = self.page(place, &found.url);
            each(Piece::Waiting { found, via, is_admitted: false })
        })?;
        // What is on its way to others; and what limits kept out since the last snapshot.
        let from = outbox_from.min(self.folded_to());
        self.each_record(from, &mut |_, record| {
            if matches!(record, Record::Moved { .. }) {
                return Ok(());
            }
            for (index, found) in record.found().iter().enumerate() {
                let via = record.page(index).map(str::to_owned);
                each(Piece::Waiting { found: found.clone(), via, is_admitted: false })?;
            }
            Ok(())
        })
    }

    /// What a record says of URLs that are done.
    fn pieces_of_record(
        &self,
        record: Record,
        me: AgentId,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        let (record, whose) = record.whose();
        match record {
            Record::Settled(settled) if settled.outcome.is_final() => {
                let via = self.page(settled.found_in, &settled.url);
                let settled = Box::new(Settled { found: Vec::new(), found_in: 0, ..settled });
                each(Piece::Tried { settled, via, by: whose.or(Some(me)) })
            }
            Record::Moved { from, moved } => {
                for MovedHost { host, seen, .. } in moved.hosts {
                    for seen in seen {
                        each(Piece::Elsewhere { host: host.clone(), seen, agent: from })?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The last attempt at a URL that will be tried again.
    fn piece_of_tried(
        &mut self,
        found: Found,
        attempts: u8,
        at: Wall,
        via: Option<String>,
        me: AgentId,
    ) -> Result<Piece> {
        let known = match nephila_core::url::Url::parse(&found.url) {
            Ok(url) => self.find(&url)?,
            Err(_) => None,
        };
        let (last, whose) = match known {
            Some((known, whose)) => match known.state {
                KnownState::Retry { last: Some(last), .. } => (Some(last), whose),
                _ => (None, None),
            },
            None => (None, None),
        };
        let mut settled = match last {
            Some(last) => Settled { found: Vec::new(), found_in: 0, ..*last },
            // Another agent has its record.
            None => without_record(found, attempts, at),
        };
        if let Outcome::Retry { not_before, .. } = &mut settled.outcome {
            *not_before = at.max(*not_before);
        }
        Ok(Piece::Tried { settled: Box::new(settled), via, by: whose.or(Some(me)) })
    }

    /// The robots.txt files that are kept of a host. One that cannot be read is asked for again.
    fn rules_of(&self, memo: &HostMemo, me: AgentId) -> Vec<(u64, RobotsRecord, Option<AgentId>)> {
        let mut places: Vec<u64> = memo.places().collect();
        places.dedup();
        let rules = |place| match self.record_of(place) {
            Ok((Record::Robots(robots), whose)) => {
                Some((place, RobotsRecord { found: Vec::new(), ..robots }, whose.or(Some(me))))
            }
            _ => None,
        };
        places.into_iter().filter_map(rules).collect()
    }
}

/// An attempt at a URL of which only is known that it was made.
fn without_record(found: Found, attempts: u8, at: Wall) -> Settled {
    Settled {
        url: found.url,
        depth: found.depth,
        how: found.how,
        found_in: 0,
        attempts,
        asked: true,
        at,
        took: Default::default(),
        bytes: 0,
        outcome: Outcome::Retry { failure: Failure::NotTried, status: None, not_before: at },
        capture: None,
        flags: Default::default(),
        found: Vec::new(),
        left_out: Default::default(),
        spent: None,
    }
}

/// A store that an agent is to have for itself, while it takes in what another one knows. It begins empty, and is of use only
/// when it was whole and a snapshot of it has been written.
pub struct EmbeddedCopy {
    store: EmbeddedStore,
    journal: Journal,
    me: AgentId,
    gathered: Vec<Piece>,
    /// What admission stops at, once all has come that was admitted before.
    limits: Option<StoreLimits>,
}

impl EmbeddedCopy {
    /// Begins one in an empty directory, for agent `me`.
    pub fn begin(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: FrontierOptions,
        me: AgentId,
    ) -> Result<EmbeddedCopy> {
        let limits = Some(options.limits);
        let options = FrontierOptions { limits: StoreLimits::NONE, ..options };
        let (store, journal) = EmbeddedStore::open(disk, dir, options, &mut ())?;
        Ok(EmbeddedCopy { store, journal, me, gathered: Vec::new(), limits })
    }

    /// Takes a piece in.
    pub fn add(&mut self, piece: Piece) -> Result<()> {
        if matches!(piece, Piece::Waiting { is_admitted: false, .. }) {
            self.limit()?;
        }
        self.gathered.push(piece);
        if self.gathered.len() >= PIECES_MAX { self.take_in() } else { Ok(()) }
    }

    /// All has come that was admitted before.
    fn limit(&mut self) -> Result<()> {
        let Some(limits) = self.limits.take() else { return Ok(()) };
        self.take_in()?;
        self.store.set_limits(limits)
    }

    /// Writes a record that says nothing to sieve and queues.
    pub fn write(&mut self, record: &Record) -> Result<u64> {
        self.journal.append(record)
    }

    /// All has been added but this record. Gives back the store, the place of the record and that behind it; all of it is synced.
    pub fn end(mut self, last: &Record) -> Result<(EmbeddedStore, u64, u64)> {
        self.limit()?;
        self.take_in()?;
        self.store.decide()?;
        let place = self.journal.append(last)?;
        self.journal.sync()?;
        Ok((self.store, place, self.journal.end()))
    }

    fn take_in(&mut self) -> Result<()> {
        let (mut waiting, mut tried, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
        for piece in std::mem::take(&mut self.gathered) {
            match piece {
                Piece::Waiting { found, via, .. } => waiting.push((found, via)),
                Piece::Tried { settled, via, by } => tried.push((settled, via, by)),
                Piece::Elsewhere { host, seen, agent } => elsewhere.push((host, seen, agent)),
                Piece::Host { host, memo, rules } => self.take_host(&host, memo, rules)?,
            }
        }
        self.take_tried(tried)?;
        for (host, seen, from) in elsewhere {
            let hosts = vec![MovedHost { host, memo: None, seen: vec![seen] }];
            let record = Record::Moved { from, moved: Moved { hosts, ..Moved::default() } };
            let place = self.append(&record)?;
            self.store.admit(place, &record, None)?;
        }
        if !waiting.is_empty() {
            let (record, place) = self.arrive(waiting)?;
            self.store.admit(place, &record, None)?;
        }
        self.journal.flush()
    }

    /// URLs with the pages that they were found on.
    fn arrive(&mut self, urls: Vec<(Found, Option<String>)>) -> Result<(Record, u64)> {
        let mut arrived =
            Arrived { from: self.me, site: None, found: Vec::new(), pages: Vec::new(), totals: Vec::new() };
        for (found, via) in urls {
            arrived.found.push(found);
            match arrived.pages.last_mut().filter(|(page, _)| *page == via) {
                Some((_, count)) => *count += 1,
                None => arrived.pages.push((via, 1)),
            }
        }
        let record = Record::Arrived(arrived);
        let place = self.append(&record)?;
        Ok((record, place))
    }

    fn take_tried(&mut self, tried: Vec<(Box<Settled>, Option<String>, Option<AgentId>)>) -> Result<()> {
        if tried.is_empty() {
            return Ok(());
        }
        let found = |of: &Settled| Found { url: of.url.clone(), depth: of.depth, how: of.how, redirects: 0 };
        let urls = tried.iter().map(|(settled, via, _)| (found(settled), via.clone())).collect();
        // It says where they were found, and that they are known follows from their attempts.
        let (_, found_in) = self.arrive(urls)?;
        for (settled, _, by) in tried {
            let settled = Settled { found_in, ..*settled };
            let place = self.append_of(Record::Settled(settled.clone()), by)?;
            self.store.settle(place, &settled)?;
        }
        Ok(())
    }

    fn take_host(
        &mut self,
        host: &Host,
        memo: HostMemo,
        rules: Vec<(u64, RobotsRecord, Option<AgentId>)>,
    ) -> Result<()> {
        let mut places = Vec::new();
        for (before, robots, by) in rules {
            places.push((before, self.append_of(Record::Robots(robots), by)?));
        }
        let memo = memo.with_places(|place| Some(places.iter().find(|(before, _)| *before == place)?.1));
        self.store.keep(host, Some(&memo), Wall(0))
    }

    /// Writes down what an agent has archived.
    fn append_of(&mut self, mut record: Record, by: Option<AgentId>) -> Result<u64> {
        match by {
            Some(by) if by == self.me => {}
            Some(from) => record = Record::Copied { from, record: Box::new(record) },
            // Nobody knows where it is.
            None => match &mut record {
                Record::Settled(settled) => settled.capture = None,
                Record::Robots(robots) => robots.capture = None,
                _ => {}
            },
        }
        self.append(&record)
    }

    fn append(&mut self, record: &Record) -> Result<u64> {
        let place = self.journal.append(record)?;
        self.journal.flush()?;
        Ok(place)
    }
}
