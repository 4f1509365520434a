//! A store in plain lists that does everything by searching them: what the others are compared with.
//!
//! It is bounded by nothing and lasts as long as the process. Where the promises leave a choice, [`MemoryStore::follow`] takes
//! that of another store, if it is one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use nephila_core::agent::{Admitted, Cursor, Due, OverLimit, Stored, StoredHost, Taken, Visited};
use nephila_core::assign::partition_of;
use nephila_core::cash::{Gifts, class_of, left_over};
use nephila_core::frontier::HostMemo;
use nephila_core::record::{Found, How, Outcome, Record, Settled};
use nephila_core::settings::UrlOrder;
use nephila_core::site::{AgentId, Moved, MovedHost, Partitions, SeenUrl, Waiting};
use nephila_core::time::Wall;
use nephila_core::url::{Fingerprint, Host, Url, key};
use nephila_store::{
    Cash, Exported, Known, KnownState, OwnStore, PlacedRecord, Reader, Result, Store, StoreLimits,
    without_capture,
};

use crate::samples::url;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Stage {
    Queued,
    /// Until when, and in which turn it was put aside.
    Deferred(Wall, u64),
    Taken,
    Settled,
}

struct KnownUrl {
    key: String,
    host: Host,
    /// How it is handed over, and the record that it was found in.
    found: (Found, u64),
    /// Where it was found nearest to a seed. That may have been too late for the queue.
    nearest: (Found, u64),
    /// How much had been decided when it came to its place in the queue, and in which turn it did.
    entered: (u64, u64),
    stage: Stage,
    attempts: u8,
    /// The last attempt.
    last: Option<Settled>,
    /// It was taken or had come back when a process ended: it may come back or wait in the queue now.
    is_free: bool,
    /// What it has, in which class it waits, and all that it was found by. Of interest if that is the order.
    cash: u64,
    class: u8,
    offers: Vec<(Found, u64)>,
}

impl KnownUrl {
    /// A page counts only with its capture, and some failures only for a while.
    fn look_back(&mut self, reader: &mut dyn Reader) {
        let Some(last) = &mut self.last else { return };
        let mut record = Record::Settled(last.clone());
        if last.capture.is_some_and(|capture| !reader.holds(&capture)) {
            without_capture(&mut record);
        } else if let (Record::Settled(settled), Outcome::Failed { failure, status }) =
            (&mut record, &last.outcome)
            && reader.forgives(*failure)
        {
            settled.outcome = Outcome::Retry { failure: *failure, status: *status, not_before: last.at };
        }
        let Record::Settled(now) = record else { unreachable!("it was one") };
        if last.outcome.is_final() && !now.outcome.is_final() {
            // It was tried before now, and so its time has come.
            (self.stage, self.is_free) = (Stage::Queued, true);
            self.attempts = now.attempts;
        }
        *last = now;
    }
}

/// See the module's documentation.
pub(crate) struct MemoryStore {
    limits: StoreLimits,
    order: UrlOrder,
    /// Cash of pages that link to nothing.
    rest: u64,
    urls: Vec<KnownUrl>,
    /// The numbers of those that come back.
    front: VecDeque<usize>,
    /// What limits keep out, with the places of its records and what it was given.
    kept_out: Vec<(Found, u64, u64)>,
    /// What other agents are done with, by host and fingerprint: who, and where it says so.
    elsewhere: BTreeMap<(Host, Fingerprint), (AgentId, u64)>,
    over: OverLimit,
    memos: BTreeMap<Host, (Option<HostMemo>, Wall)>,
    /// Where the round goes on.
    hand: Option<Host>,
    records: BTreeMap<u64, Record>,
    decided: u64,
    turn: u64,
}

impl MemoryStore {
    pub(crate) fn new(limits: StoreLimits, order: UrlOrder) -> MemoryStore {
        MemoryStore {
            limits,
            order,
            rest: 0,
            urls: Vec::new(),
            front: VecDeque::new(),
            kept_out: Vec::new(),
            elsewhere: BTreeMap::new(),
            over: OverLimit::default(),
            memos: BTreeMap::new(),
            hand: None,
            records: BTreeMap::new(),
            decided: 1,
            turn: 0,
        }
    }

    /// Keeps a record that the store is then told of.
    pub(crate) fn write(&mut self, place: u64, record: &Record) {
        self.records.insert(place, record.clone());
    }

    /// The process ends, and another one opens what is there.
    pub(crate) fn restart(&mut self, limits: StoreLimits, reader: &mut dyn Reader) {
        if std::mem::replace(&mut self.limits, limits) != limits || self.order == UrlOrder::BreadthFirst {
            self.over = OverLimit::default();
            for (found, place, cash) in std::mem::take(&mut self.kept_out) {
                self.offer(place, &found, cash, &mut Admitted::default());
            }
        }
        let front = std::mem::take(&mut self.front);
        for (number, known) in self.urls.iter_mut().enumerate() {
            known.entered.0 = 0;
            if known.stage == Stage::Taken || front.contains(&number) {
                (known.stage, known.is_free) = (Stage::Queued, true);
            }
            known.look_back(reader);
        }
    }

    fn find(&self, text: &str) -> Option<usize> {
        let key = key(&url(text));
        self.urls.iter().position(|known| known.key == key)
    }

    fn is_done_elsewhere(&self, url: &Url) -> bool {
        self.elsewhere.contains_key(&(Host::of(url), Fingerprint::of(url)))
    }

    /// How many URLs of a host other agents are done with.
    fn done_elsewhere(&self, host: &Host) -> u64 {
        self.elsewhere.keys().filter(|(other, _)| other == host).count() as u64
    }

    fn forget(&mut self, partitions: &[u16]) {
        let is_gone = |host: &Host| partitions.contains(&partition_of(host));
        let mut kept = Vec::new();
        for (number, known) in std::mem::take(&mut self.urls).into_iter().enumerate() {
            if !is_gone(&known.host) {
                kept.push((number, known));
            }
        }
        let front = std::mem::take(&mut self.front);
        let place = |number: usize| kept.iter().position(|(other, _)| *other == number);
        self.front = front.into_iter().filter_map(place).collect();
        self.urls = kept.into_iter().map(|(_, known)| known).collect();
        self.elsewhere.retain(|(host, _), _| !is_gone(host));
        self.memos.retain(|host, _| !is_gone(host));
    }

    fn import(&mut self, place: u64, from: AgentId, moved: &Moved, admitted: &mut Admitted) {
        for MovedHost { host, memo, seen } in &moved.hosts {
            let kept = self.memos.entry(host.clone()).or_insert((None, Wall(0)));
            kept.0 = kept.0.take().or_else(|| memo.clone());
            for SeenUrl { fingerprint, place, .. } in seen {
                let is_it = |known: &KnownUrl| {
                    known.host == *host && Fingerprint::of(&url(&known.found.0.url)) == *fingerprint
                };
                match self.urls.iter().position(is_it) {
                    Some(number) if self.urls[number].stage == Stage::Settled => {}
                    Some(number) => {
                        self.front.retain(|other| *other != number);
                        self.urls.remove(number);
                        self.front.iter_mut().for_each(|other| *other -= usize::from(*other > number));
                        self.elsewhere.insert((host.clone(), *fingerprint), (from, *place));
                    }
                    None => drop(self.elsewhere.insert((host.clone(), *fingerprint), (from, *place))),
                }
            }
        }
        for (found, waiting) in moved.found.iter().zip(&moved.waiting) {
            let (is_new, before) = (self.find(&found.url).is_none(), self.turn);
            match waiting.not_before {
                None => self.offer(place, found, 0, admitted),
                Some(until) if is_new && !self.is_done_elsewhere(&url(&found.url)) => {
                    let number = self.add((found.clone(), place));
                    self.urls[number].attempts = waiting.attempts;
                    self.urls[number].stage = Stage::Deferred(until, before);
                }
                Some(_) => {}
            }
        }
    }

    /// How far a URL has come.
    pub(crate) fn stage(&self, text: &str) -> Option<Stage> {
        self.find(text).map(|number| self.urls[number].stage)
    }

    fn of_host<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = (usize, &'a KnownUrl)> {
        self.urls.iter().enumerate().filter(move |(_, known)| known.host == *host)
    }

    /// The hosts that have URLs or a memo.
    fn names(&self) -> BTreeSet<&Host> {
        let elsewhere = self.elsewhere.keys().map(|(host, _)| host);
        self.urls.iter().map(|known| &known.host).chain(self.memos.keys()).chain(elsewhere).collect()
    }

    fn memo(&self, host: &Host) -> Option<HostMemo> {
        self.memos.get(host).and_then(|(memo, _)| memo.clone())
    }

    fn due(&self, host: &Host) -> u64 {
        self.of_host(host).filter(|(_, known)| known.stage == Stage::Queued).count() as u64
    }

    fn next(&self, host: &Host) -> Option<Wall> {
        let times = self.of_host(host).filter_map(|(_, known)| match known.stage {
            Stage::Deferred(until, _) => Some(until),
            _ => None,
        });
        times.min()
    }

    /// The page that a record is about.
    fn page(&self, place: u64) -> Option<String> {
        match self.records.get(&place)? {
            Record::Settled(settled) => Some(settled.url.clone()),
            Record::Robots(robots) => Some(robots.url.clone()),
            _ => None,
        }
    }

    fn add(&mut self, found: (Found, u64)) -> usize {
        let parsed = url(&found.0.url);
        self.turn += 1;
        self.urls.push(KnownUrl {
            key: key(&parsed),
            host: Host::of(&parsed),
            nearest: found.clone(),
            found,
            entered: (self.decided, self.turn),
            stage: Stage::Queued,
            attempts: 0,
            last: None,
            is_free: false,
            cash: 0,
            class: u8::MAX,
            offers: Vec::new(),
        });
        self.urls.len() - 1
    }

    /// A URL that is known, or has become so just now, is given something.
    fn give(&mut self, number: usize, offer: (Found, u64), cash: u64) {
        if self.order == UrlOrder::BreadthFirst {
            return;
        }
        let comes_back = self.front.contains(&number);
        let known = &mut self.urls[number];
        known.offers.push(offer);
        known.cash += cash;
        let waits = known.stage == Stage::Queued && !comes_back && known.last.is_none();
        if waits && class_of(known.cash) < known.class {
            known.class = class_of(known.cash);
            known.entered = (self.decided, self.turn);
        }
    }

    /// What was given to another site is given back.
    fn is_taken_back(&mut self, number: usize, found: &Found, admitted: &mut Admitted) -> bool {
        let How::Returned { attempts, .. } = found.how else { return false };
        let known = &mut self.urls[number];
        known.attempts = known.attempts.max(attempts);
        let is_sent = |last: &Settled| matches!(last.outcome, Outcome::Sent { .. });
        let is_taken_back = known.stage == Stage::Settled && known.last.as_ref().is_some_and(is_sent);
        if is_taken_back {
            (known.stage, known.is_free, known.last) = (Stage::Queued, true, None);
            admitted.new.push((known.host.clone(), 1));
        }
        is_taken_back
    }

    fn offer(&mut self, place: u64, found: &Found, cash: u64, admitted: &mut Admitted) {
        if self.is_done_elsewhere(&url(&found.url)) {
            admitted.known += 1;
            return;
        }
        if let Some(number) = self.find(&found.url) {
            if self.is_taken_back(number, found, admitted) {
                return;
            }
            admitted.known += 1;
            self.turn += 1;
            if self.order == UrlOrder::Cash {
                return self.give(number, (found.clone(), place), cash);
            }
            let comes_back = self.front.contains(&number);
            let known = &mut self.urls[number];
            let waits = known.stage == Stage::Queued && !comes_back && !known.is_free;
            if known.last.is_none() && found.depth < known.nearest.0.depth {
                known.nearest = (found.clone(), place);
                if waits {
                    known.found = known.nearest.clone();
                    known.entered = (self.decided, self.turn);
                }
            }
            return;
        }
        let host = Host::of(&url(&found.url));
        let mut over = OverLimit::default();
        if found.depth > self.limits.max_depth {
            over.depth = 1;
        } else if self.of_host(&host).count() as u64 >= self.limits.max_host_pages {
            over.host = 1;
        } else if self.urls.len() as u64 >= self.limits.max_urls {
            over.urls = 1;
        } else {
            let number = self.add((found.clone(), place));
            self.give(number, (found.clone(), place), cash);
            match admitted.new.iter_mut().find(|(other, _)| *other == host) {
                Some((_, count)) => *count += 1,
                None => admitted.new.push((host, 1)),
            }
            return;
        }
        self.kept_out.push((found.clone(), place, cash));
        for sum in [&mut self.over, &mut admitted.over] {
            sum.depth += over.depth;
            sum.host += over.host;
            sum.urls += over.urls;
        }
    }

    /// What has come to its time comes back, the earliest first.
    pub(crate) fn recall(&mut self, host: &Host, now: Wall) {
        let late = self.of_host(host).filter_map(|(number, known)| match known.stage {
            Stage::Deferred(until, turn) if until <= now => Some((until, turn, number)),
            _ => None,
        });
        let mut late: Vec<(Wall, u64, usize)> = late.collect();
        late.sort();
        for (_, _, number) in late {
            self.urls[number].stage = Stage::Queued;
            self.front.push_back(number);
        }
    }

    /// The numbers of those that may be handed over next, first the one that this store hands over.
    fn may_be_next(&self, host: &Host, fresh_first: bool) -> Vec<usize> {
        let due: Vec<usize> = self
            .of_host(host)
            .filter(|(_, known)| known.stage == Stage::Queued)
            .map(|(number, _)| number)
            .collect();
        let (free, fixed): (Vec<usize>, Vec<usize>) =
            due.into_iter().partition(|number| self.urls[*number].is_free);
        let back = self.front.iter().copied().find(|number| fixed.contains(number));
        let place = |number: &usize| {
            let known = &self.urls[*number];
            let class = match self.order {
                UrlOrder::BreadthFirst => known.found.0.depth,
                UrlOrder::Cash => known.class.into(),
            };
            (class, known.entered)
        };
        let mut fresh: Vec<usize> = fixed.into_iter().filter(|number| !self.front.contains(number)).collect();
        fresh.sort_by_key(place);
        // What was decided together was decided in any order.
        let batch = |number: &usize| (place(number).0, place(number).1.0);
        let first = fresh.first().map(batch);
        fresh.retain(|number| Some(batch(number)) == first);
        let fixed = match back {
            Some(back) if !fresh_first || fresh.is_empty() => vec![back],
            _ => fresh,
        };
        if fresh_first { [fixed, free].concat() } else { [free, fixed].concat() }
    }

    /// Hands over the URL of this number.
    fn hand_over(&mut self, number: usize) -> Due {
        self.take_nearest(number);
        self.front.retain(|other| *other != number);
        let known = &mut self.urls[number];
        (known.stage, known.is_free) = (Stage::Taken, false);
        let (found, found_in) = known.found.clone();
        let (depth, how, redirects, attempts) = (found.depth, found.how, found.redirects, known.attempts);
        let cash = (self.order == UrlOrder::Cash).then_some(known.cash);
        Due {
            url: url(&found.url),
            depth,
            how,
            redirects,
            attempts,
            via: self.page(found_in),
            found_in,
            cash,
        }
    }

    /// Sets how a URL is handed over by cash: by any page that it was found on, and as near as on the nearest.
    fn choose_entry(&mut self, number: usize, due: &Due) {
        let known = &self.urls[number];
        let is_it = |found: &Found| nephila_core::url::key(&url(&found.url)) == known.key;
        // What was kept out may or may not be remembered of one that is known after all.
        let kept_out = self.kept_out.iter().map(|(found, ..)| found);
        let kept_out: Vec<&Found> = kept_out.filter(|found| known.attempts == 0 && is_it(found)).collect();
        let may_be_sitemap = kept_out.iter().any(|found| found.how == How::Sitemap);
        let may_be_nearer = kept_out.iter().any(|found| found.depth == due.depth);
        let known = &mut self.urls[number];
        if known.last.is_none() {
            let is_it = |(found, place): &&(Found, u64)| {
                (url(&found.url), *place, found.redirects) == (due.url.clone(), due.found_in, due.redirects)
            };
            let entry = known.offers.iter().find(is_it);
            known.found = entry.unwrap_or_else(|| panic!("{due:?} was never found so")).clone();
        }
        let (how, is_fresh) = (known.found.0.how, known.last.is_none());
        self.take_nearest(number);
        let found = &mut self.urls[number].found.0;
        if may_be_nearer {
            found.depth = found.depth.min(due.depth);
        }
        if may_be_sitemap && due.how == How::Sitemap {
            found.how = How::Sitemap;
        } else if is_fresh && found.how == how && due.how != How::Sitemap {
            // A page may name it twice.
            found.how = due.how;
        }
    }

    /// A URL that was not tried is as near as where it was found nearest, and a sitemap if it is one anywhere.
    fn take_nearest(&mut self, number: usize) {
        let known = &mut self.urls[number];
        if known.attempts > 0 || self.order == UrlOrder::BreadthFirst {
            return;
        }
        let found = &mut known.found.0;
        let nearest = known.offers.iter().map(|(found, _)| found.depth).min();
        found.depth = nearest.map_or(found.depth, |nearest| nearest.min(found.depth));
        if known.offers.iter().any(|(found, _)| found.how == How::Sitemap) {
            found.how = How::Sitemap;
        }
    }

    /// Hands over what another store has handed over, if it may; says how this store would have.
    pub(crate) fn follow(&mut self, due: &Due, fresh_first: bool) -> Due {
        let host = Host::of(&due.url);
        let number = self.find(due.url.as_str()).unwrap_or_else(|| panic!("{} is not known", due.url));
        let may = self.may_be_next(&host, fresh_first);
        assert!(may.contains(&number), "it is not the turn of {}", due.url);
        if self.order == UrlOrder::Cash {
            self.choose_entry(number, due);
        }
        let known = &mut self.urls[number];
        if self.order == UrlOrder::BreadthFirst
            && known.is_free
            && known.last.is_none()
            && (due.depth, due.found_in) == (known.nearest.0.depth, known.nearest.1)
        {
            known.found = known.nearest.clone();
        }
        if known.last.is_some() && due.redirects == 0 {
            // How many redirects led to it need not be known any more once it was tried.
            known.found.0.redirects = 0;
        }
        self.hand_over(number)
    }

    fn stored_host(&self, host: &Host) -> StoredHost {
        StoredHost {
            host: host.clone(),
            known: self.of_host(host).count() as u64 + self.done_elsewhere(host),
            queued: self.of_host(host).filter(|(_, known)| known.stage != Stage::Settled).count() as u64,
            due: self.due(host),
            next: self.next(host),
            memo: self.memo(host),
        }
    }
}

impl Store for MemoryStore {
    fn prune(&mut self, record: &mut Record) {
        if let (Record::Seeds(found), UrlOrder::Cash) = (record, self.order) {
            found.retain(|found| self.find(&found.url).is_none());
        }
    }

    fn admit(&mut self, place: u64, record: &Record, open: Option<&Partitions>) -> Result<Admitted> {
        let mut admitted = Admitted::default();
        let before = self.stored();
        match record {
            Record::Moved { from, moved } => self.import(place, *from, moved, &mut admitted),
            Record::Released { tokens, .. } => {
                self.forget(&tokens.iter().map(|(partition, _)| *partition).collect::<Vec<_>>());
            }
            _ => {
                let hosts: Vec<Host> =
                    record.found().iter().map(|found| Host::of(&url(&found.url))).collect();
                let gifts = Gifts::of(record, hosts.iter());
                for (at, (found, host)) in record.found().iter().zip(&hosts).enumerate() {
                    if open.is_none_or(|open| open.contains(partition_of(host))) {
                        self.offer(place, found, gifts.to(host, at == 0), &mut admitted);
                    }
                }
            }
        }
        let after = self.stored();
        let new: u64 = admitted.new.iter().map(|(_, count)| count).sum();
        let by = |before: u64, after: u64| after as i64 - before as i64 - new as i64;
        let moved = (by(before.known, after.known), by(before.queued, after.queued));
        Ok(Admitted { hosts: after.hosts, moved, ..admitted })
    }

    fn decide(&mut self) -> Result<Admitted> {
        self.decided += 1;
        Ok(Admitted { hosts: self.stored().hosts, ..Admitted::default() })
    }

    fn decide_host(&mut self, _: &Host) -> Result<Admitted> {
        self.decide()
    }

    fn settle(&mut self, _: u64, settled: &Settled) -> Result<Admitted> {
        let (url, depth, how) = (settled.url.clone(), settled.depth, settled.how);
        let found = Found { url, depth, how, redirects: 0 };
        let number = self.find(&settled.url);
        let number = number.unwrap_or_else(|| self.add((found.clone(), settled.found_in)));
        self.front.retain(|other| *other != number);
        self.turn += 1;
        let known = &mut self.urls[number];
        let redirects = known.found.0.redirects;
        known.found = (Found { redirects, ..found }, settled.found_in);
        known.attempts = settled.attempts;
        known.cash = known.cash.saturating_sub(settled.spent.unwrap_or_default());
        self.rest += left_over(settled);
        known.last = Some(settled.clone());
        known.is_free = false;
        known.stage = match settled.outcome {
            Outcome::Retry { not_before, .. } => Stage::Deferred(not_before, self.turn),
            _ => Stage::Settled,
        };
        Ok(Admitted { hosts: self.stored().hosts, ..Admitted::default() })
    }

    fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken> {
        self.recall(host, now);
        let mut due = Vec::new();
        while due.len() < max
            && let Some(number) = self.may_be_next(host, fresh_first).first()
        {
            due.push(self.hand_over(*number));
        }
        Ok(Taken {
            host: host.clone(),
            due,
            left: self.due(host),
            next: self.next(host),
            memo: self.memo(host),
        })
    }

    fn put_back(&mut self, _: &Host, due: &[Due]) -> Result<()> {
        for number in due.iter().rev().filter_map(|due| self.find(due.url.as_str())).collect::<Vec<_>>() {
            if self.urls[number].stage == Stage::Taken {
                self.urls[number].stage = Stage::Queued;
                self.front.push_front(number);
            }
        }
        Ok(())
    }

    fn keep(&mut self, host: &Host, memo: Option<&HostMemo>, away_until: Wall) -> Result<()> {
        self.memos.insert(host.clone(), (memo.cloned(), away_until));
        Ok(())
    }

    fn visit(&mut self, now: Wall, max: usize) -> Result<Visited> {
        let mut visited = Visited { is_last: true, ..Visited::default() };
        let mut hosts = Vec::new();
        self.hosts(&mut |stored| hosts.push(stored))?;
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        let from = self.hand.take();
        for stored in hosts.into_iter().filter(|stored| Some(&stored.host) >= from.as_ref()) {
            let due = if stored.due > 0 { Some(Wall(0)) } else { stored.next };
            let away_until = self.memos.get(&stored.host).map_or(Wall(0), |(_, away_until)| *away_until);
            match due.map(|due| due.max(away_until)) {
                None => {}
                Some(due) if due <= now && visited.hosts.len() == max => {
                    (self.hand, visited.is_last) = (Some(stored.host), false);
                    break;
                }
                Some(due) if due <= now => visited.hosts.push(stored),
                later => visited.next = [visited.next, later].into_iter().flatten().min(),
            }
        }
        Ok(visited)
    }

    fn record(&self, place: u64) -> Result<Record> {
        let missing =
            || nephila_store::Error::Corrupt { path: "memory".into(), place, what: "no record is here" };
        self.records.get(&place).cloned().ok_or_else(missing)
    }

    fn look_up(&mut self, url: &Url) -> Result<Option<Known>> {
        if let Some((agent, place)) = self.elsewhere.get(&(Host::of(url), Fingerprint::of(url))) {
            let found = Found { url: String::new(), depth: 0, how: How::Link, redirects: 0 };
            let state = KnownState::Elsewhere { agent: *agent, place: *place };
            return Ok(Some(Known { found, via: None, state, cash: None }));
        }
        let Some(number) = self.find(url.as_str()) else { return Ok(None) };
        let known = &self.urls[number];
        let cash = (self.order == UrlOrder::Cash).then_some(known.cash);
        let taken = known.stage == Stage::Taken;
        let Some(last) = &known.last else {
            let (found, place) = known.nearest.clone();
            let state = match known.stage {
                Stage::Taken => KnownState::Taken,
                // Somebody else has tried it.
                Stage::Deferred(not_before, _) if known.attempts > 0 => {
                    KnownState::Retry { not_before, attempts: known.attempts, last: None }
                }
                _ => KnownState::Queued,
            };
            return Ok(Some(Known { found, via: self.page(place), state, cash }));
        };
        let state = match last.outcome {
            _ if taken => KnownState::Taken,
            Outcome::Retry { not_before, .. } => {
                let last = Some(Box::new(last.clone()));
                KnownState::Retry { not_before, attempts: known.attempts, last }
            }
            _ => KnownState::Settled(Box::new(last.clone())),
        };
        let found = Found { url: last.url.clone(), depth: last.depth, how: last.how, redirects: 0 };
        Ok(Some(Known { found, via: self.page(last.found_in), state, cash }))
    }

    fn host(&mut self, host: &Host) -> Result<Option<StoredHost>> {
        let is_there = self.memos.contains_key(host) || self.of_host(host).next().is_some();
        Ok(is_there.then(|| self.stored_host(host)))
    }

    fn hosts(&mut self, each: &mut dyn FnMut(StoredHost)) -> Result<()> {
        self.names().into_iter().for_each(|host| each(self.stored_host(host)));
        Ok(())
    }

    fn stored(&self) -> Stored {
        Stored {
            known: (self.urls.len() + self.elsewhere.len()) as u64,
            queued: self.urls.iter().filter(|known| known.stage != Stage::Settled).count() as u64,
            hosts: self.names().len() as u64,
            undecided: 0,
            kept_out: self.over,
        }
    }
}

impl OwnStore for MemoryStore {
    fn export(&mut self, partitions: &[u16], _: Option<&Cursor>) -> Result<Exported> {
        let mut moved = Moved::default();
        let names: Vec<Host> = self.names().into_iter().cloned().collect();
        for host in names.into_iter().filter(|host| partitions.contains(&partition_of(host))) {
            let settled = self.of_host(&host).filter(|(_, known)| known.stage == Stage::Settled);
            let print = |known: &KnownUrl| Fingerprint::of(&url(&known.found.0.url));
            let mut seen: Vec<SeenUrl> = settled
                .map(|(_, known)| SeenUrl { fingerprint: print(known), place: 0, is_sent: false })
                .collect();
            let elsewhere = self.elsewhere.keys().filter(|(other, _)| *other == host);
            seen.extend(elsewhere.map(|(_, fingerprint)| SeenUrl {
                fingerprint: *fingerprint,
                place: 0,
                is_sent: false,
            }));
            for (_, known) in self.of_host(&host).filter(|(_, known)| known.stage != Stage::Settled) {
                let not_before = match known.stage {
                    Stage::Deferred(until, _) => Some(until),
                    _ => known.last.is_some().then_some(Wall(0)),
                };
                let via = self.page(known.found.1);
                moved.waiting.push(Waiting { via, attempts: known.attempts, not_before });
                moved.found.push(known.found.0.clone());
            }
            moved.hosts.push(MovedHost { memo: self.memo(&host), host, seen });
        }
        Ok(Exported { moved, next: None, decided: self.decide()? })
    }

    fn records(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, u64)> {
        let records = self.records.range(from..=until).filter(|(_, record)| !record.found().is_empty());
        Ok((records.map(|(place, record)| (*place, Box::new(record.clone()))).collect(), until + 1))
    }

    fn cash(&mut self) -> Result<Cash> {
        let sum = |waits: bool| {
            let urls = self.urls.iter().filter(move |known| (known.stage == Stage::Queued) == waits);
            urls.map(|known| known.cash).sum()
        };
        let kept_out = self.kept_out.iter().map(|(_, _, cash)| cash).sum();
        Ok(Cash { waiting: sum(true), kept: sum(false), rest: self.rest, kept_out, given: 0, heard: 0 })
    }

    fn kept_records(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, Option<u64>)> {
        let records = self.records.range(from..=until);
        Ok((records.map(|(place, record)| (*place, Box::new(record.clone()))).collect(), None))
    }
}
