//! The store against a model that keeps everything in plain lists and does everything by searching them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::{Admitted, Due, OverLimit, StoredHost, Taken};
use nephila_core::record::{Failure, Found, How, Outcome, Record, Settled};
use nephila_core::time::Wall;
use nephila_core::url::{Host, key};
use nephila_disk::{Disk, SimDisk};
use nephila_store::{
    EmbeddedStore, Journal, Known, KnownState, Store, StoreJob, StoreLimits, without_capture,
};

use crate::samples::*;

const SEEDS: u64 = 200;
/// Each takes longer, as all URLs are looked up again and again.
const LIMIT_SEEDS: u64 = 40;
const STEPS: usize = 150;
const HOSTS: u64 = 4;
const PAGES: u64 = 40;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Queued,
    /// Until when, and in which turn it was put aside.
    Deferred(Wall, u64),
    Taken,
    Settled,
}

#[derive(Clone)]
struct ModelUrl {
    key: String,
    host: Host,
    /// How it is handed over.
    found: Found,
    found_in: u64,
    /// Where it was found nearest to a seed. That may have been too late for the queue.
    nearest: (Found, u64),
    stage: Stage,
    attempts: u8,
    /// The last attempt and the place of its record.
    last: Option<(u64, Settled)>,
    /// It was under way when a process ended: among those of the same end the order is free.
    ended: Option<u64>,
}

#[derive(Clone)]
struct Model {
    max_depth: u16,
    urls: Vec<ModelUrl>,
    /// The numbers of those that go before the others of their host.
    front: VecDeque<usize>,
    /// What the limit keeps out, with the place of its record; and how often it did.
    kept: Vec<(u64, Found)>,
    over: u64,
    /// How many entries of a host's queue may not count any more.
    stale: BTreeMap<Host, u64>,
    /// The page of each record.
    pages: BTreeMap<u64, String>,
    turn: u64,
}

impl Model {
    fn new(max_depth: u16) -> Model {
        Model {
            max_depth,
            urls: Vec::new(),
            front: VecDeque::new(),
            kept: Vec::new(),
            over: 0,
            stale: BTreeMap::new(),
            pages: BTreeMap::new(),
            turn: 0,
        }
    }

    fn find(&self, text: &str) -> Option<usize> {
        let key = key(&url(text));
        self.urls.iter().position(|known| known.key == key)
    }

    fn add(&mut self, found: Found, found_in: u64) -> usize {
        let parsed = url(&found.url);
        let (key, host) = (key(&parsed), Host::of(&parsed));
        let nearest = (found.clone(), found_in);
        let (stage, attempts) = (Stage::Queued, 0);
        self.urls.push(ModelUrl {
            key,
            host,
            found,
            found_in,
            nearest,
            stage,
            attempts,
            last: None,
            ended: None,
        });
        self.urls.len() - 1
    }

    /// Whether a URL is one of those that only wait for their turn.
    fn is_in_class(&self, number: usize) -> bool {
        self.urls[number].stage == Stage::Queued && !self.front.contains(&number)
    }

    fn fold(&mut self, place: u64, record: &Record) -> Admitted {
        if let Record::Settled(settled) = record {
            self.pages.insert(place, settled.url.clone());
            self.settle(place, settled);
        }
        let mut admitted = Admitted::default();
        for found in record.found() {
            self.offer(place, found, &mut admitted);
        }
        admitted
    }

    fn settle(&mut self, place: u64, settled: &Settled) {
        let (url, depth, how) = (settled.url.clone(), settled.depth, settled.how);
        let found = Found { url, depth, how, redirects: 0 };
        let known = self.find(&settled.url);
        let number = known.unwrap_or_else(|| self.add(found.clone(), settled.found_in));
        let aside = known.is_some() && self.urls[number].stage != Stage::Settled && !self.is_in_class(number);
        if !aside {
            *self.stale.entry(self.urls[number].host.clone()).or_default() += 1;
        }
        self.front.retain(|other| *other != number);
        self.turn += 1;
        let known = &mut self.urls[number];
        known.found = Found { redirects: known.found.redirects, ..found };
        known.found_in = settled.found_in;
        known.attempts = settled.attempts;
        known.last = Some((place, settled.clone()));
        known.ended = None;
        known.stage = match settled.outcome {
            Outcome::Retry { not_before, .. } => Stage::Deferred(not_before, self.turn),
            _ => Stage::Settled,
        };
    }

    fn offer(&mut self, place: u64, found: &Found, admitted: &mut Admitted) {
        let host = Host::of(&url(&found.url));
        if let Some(number) = self.find(&found.url) {
            admitted.known += 1;
            let moves = self.is_in_class(number);
            let known = &mut self.urls[number];
            if known.last.is_none() && found.depth < known.nearest.0.depth {
                known.nearest = (found.clone(), place);
                if moves {
                    (known.found, known.found_in) = known.nearest.clone();
                    *self.stale.entry(host).or_default() += 1;
                }
            }
        } else if found.depth > self.max_depth {
            admitted.over.depth += 1;
            self.over += 1;
            self.kept.push((place, found.clone()));
        } else {
            self.add(found.clone(), place);
            let new = vec![(host, 1)];
            add(admitted, Admitted { new, ..Admitted::default() });
        }
    }

    /// Opens what a snapshot knew with another limit.
    fn restart(&mut self, max_depth: u16) {
        self.turn += 1;
        for number in
            (0..self.urls.len()).filter(|number| self.urls[*number].stage == Stage::Taken).collect::<Vec<_>>()
        {
            self.urls[number].stage = Stage::Queued;
            self.urls[number].ended = Some(self.turn);
            self.front.push_front(number);
        }
        let raised = max_depth > self.max_depth;
        self.max_depth = max_depth;
        if raised {
            self.over = 0;
            for (place, found) in std::mem::take(&mut self.kept) {
                self.offer(place, &found, &mut Admitted::default());
            }
        }
    }

    /// A record that the snapshot knew means something else now.
    fn unsettle(&mut self, place: u64, settled: &Settled) {
        let number = self.find(&settled.url).unwrap();
        let known = &self.urls[number];
        if known.stage == Stage::Settled && known.last.as_ref().is_some_and(|(last, _)| *last == place) {
            self.settle(place, settled);
        }
    }

    fn of_host<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = (usize, &'a ModelUrl)> {
        self.urls.iter().enumerate().filter(move |(_, known)| known.host == *host)
    }

    fn next(&self, host: &Host) -> Option<Wall> {
        let times = self.of_host(host).filter_map(|(_, known)| match known.stage {
            Stage::Deferred(until, _) => Some(until),
            _ => None,
        });
        times.min()
    }

    fn due(&self, host: &Host) -> u64 {
        self.of_host(host).filter(|(_, known)| known.stage == Stage::Queued).count() as u64
    }

    /// Whether the store may say that so many are due: it counts what has become stale until it comes across it.
    fn check_due(&self, host: &Host, due: u64) {
        let exact = self.due(host);
        let stale = self.stale.get(host).copied().unwrap_or(0);
        assert!(
            (exact..=exact + stale).contains(&due),
            "{host}: {due} due, and it should be {exact} to {stale} more"
        );
    }

    /// Checks what the store handed over, in which order too, as far as that is fixed.
    fn take(&mut self, taken: &Taken, max: usize, fresh_first: bool, now: Wall) {
        let host = &taken.host;
        let mut back: Vec<(Wall, u64, usize)> = Vec::new();
        for (number, known) in self.of_host(host) {
            match known.stage {
                Stage::Deferred(until, turn) if until <= now => back.push((until, turn, number)),
                _ => {}
            }
        }
        back.sort();
        for (_, _, number) in back {
            self.urls[number].stage = Stage::Queued;
            self.front.push_back(number);
        }
        assert_eq!(taken.due.len(), max.min(self.due(host) as usize), "{host}");
        for due in &taken.due {
            let number = self.find(due.url.as_str()).unwrap();
            assert!(
                self.may_be_next(host, fresh_first).contains(&number),
                "it is not the turn of {}",
                due.url
            );
            self.front.retain(|other| *other != number);
            let known = &mut self.urls[number];
            known.stage = Stage::Taken;
            known.ended = None;
            // How many redirects led to it is not known any more once it was tried and the process ended.
            let redirects =
                if known.last.is_some() && due.redirects == 0 { 0 } else { known.found.redirects };
            known.found.redirects = redirects;
            let expected = Due {
                url: url(&known.found.url),
                depth: known.found.depth,
                how: known.found.how,
                redirects,
                attempts: known.attempts,
                via: self.pages.get(&known.found_in).cloned(),
                found_in: known.found_in,
            };
            assert_eq!(*due, expected);
        }
        self.check_due(host, taken.left);
        assert_eq!(taken.next, self.next(host));
    }

    /// The numbers of those that may be handed over next.
    fn may_be_next(&self, host: &Host, fresh_first: bool) -> Vec<usize> {
        let front: Vec<usize> =
            self.front.iter().copied().filter(|number| self.urls[*number].host == *host).collect();
        let fresh: Vec<usize> =
            self.of_host(host).map(|(number, _)| number).filter(|number| self.is_in_class(*number)).collect();
        if !front.is_empty() && (!fresh_first || fresh.is_empty()) {
            let ended = self.urls[front[0]].ended;
            let same = |number: &usize| ended.is_some() && self.urls[*number].ended == ended;
            return front.iter().copied().filter(|number| *number == front[0] || same(number)).collect();
        }
        // Within a class the order is that of admission, which may be that of decisions.
        let depth = |number: &usize| self.urls[*number].found.depth;
        let best = fresh.iter().map(depth).min();
        fresh.into_iter().filter(|number| Some(depth(number)) == best).collect()
    }

    fn put_back(&mut self, due: &[Due]) {
        for due in due.iter().rev() {
            let number = self.find(due.url.as_str()).unwrap();
            if self.urls[number].stage == Stage::Taken {
                self.urls[number].stage = Stage::Queued;
                self.front.push_front(number);
            }
        }
    }

    fn look_up(&self, text: &str) -> Option<Known> {
        let known = &self.urls[self.find(text)?];
        let taken = known.stage == Stage::Taken;
        let Some((_, last)) = &known.last else {
            let (found, place) = known.nearest.clone();
            let state = if taken { KnownState::Taken } else { KnownState::Queued };
            return Some(Known { found, via: self.pages.get(&place).cloned(), state });
        };
        let (url, depth, how) = (last.url.clone(), last.depth, last.how);
        let state = match last.outcome {
            _ if taken => KnownState::Taken,
            Outcome::Retry { not_before, .. } => {
                KnownState::Retry { not_before, attempts: known.attempts, last: Box::new(last.clone()) }
            }
            _ => KnownState::Settled(Box::new(last.clone())),
        };
        let found = Found { url, depth, how, redirects: 0 };
        Some(Known { found, via: self.pages.get(&last.found_in).cloned(), state })
    }

    fn hosts(&self) -> BTreeMap<Host, (u64, u64, Option<Wall>)> {
        let mut hosts = BTreeMap::new();
        for known in &self.urls {
            hosts.entry(known.host.clone()).or_insert_with(|| {
                let waiting = self.of_host(&known.host).filter(|(_, known)| known.stage != Stage::Settled);
                (self.of_host(&known.host).count() as u64, waiting.count() as u64, self.next(&known.host))
            });
        }
        hosts
    }
}

/// A snapshot that was begun, and the model as it was then, with how many records it knew.
type Saved = (Model, usize);

/// One crawl, in the store and in the model.
struct Pair {
    random: Random,
    disk: Arc<dyn Disk>,
    store: EmbeddedStore,
    journal: Journal,
    model: Model,
    log: Vec<(u64, Record)>,
    taken: Vec<Due>,
    lost_files: Vec<u32>,
    now: u64,
    /// What store and model have said of offers since both were opened.
    said: [Admitted; 2],
    under_way: Option<(StoreJob, Saved)>,
    /// The last snapshot that is durable.
    durable: Option<Saved>,
    /// Whether the limit changes. Then everything is decided before a snapshot: what is not would be decided under the limit
    /// of another day.
    changes: bool,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut random = Random(seed);
        let max_depth = random.below(7) as u16;
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(seed));
        let options = small(&mut random, StoreLimits { max_depth, ..NO_LIMITS });
        let (store, journal, _) = open_with(Arc::clone(&disk), options).unwrap();
        Pair {
            random,
            disk,
            store,
            journal,
            model: Model::new(max_depth),
            log: Vec::new(),
            taken: Vec::new(),
            lost_files: Vec::new(),
            now: 1_000,
            said: Default::default(),
            under_way: None,
            durable: None,
            changes: seed % 2 == 1,
        }
    }

    fn page(&mut self) -> String {
        let (host, page) = (self.random.below(HOSTS), self.random.below(PAGES));
        // Two spellings of each page.
        let tilde = if self.random.one_in(2) { "~" } else { "%7e" };
        format!("http://h{host}.example/{tilde}{page}")
    }

    fn found(&mut self) -> Vec<Found> {
        let count = self.random.below(6);
        (0..count)
            .map(|_| Found {
                url: self.page(),
                depth: self.random.below(6) as u16,
                how: [How::Link, How::Sitemap, How::Listed][self.random.below(3) as usize],
                redirects: self.random.below(3) as u8,
            })
            .collect()
    }

    fn write(&mut self, mut record: Record) {
        if self.random.one_in(2) {
            self.store.prune(&mut record);
        }
        let place = self.journal.append(&record).unwrap();
        self.journal.flush().unwrap();
        add(&mut self.said[0], fold(&mut self.store, place, &record).unwrap());
        add(&mut self.said[1], self.model.fold(place, &record));
        self.log.push((place, record));
    }

    fn decide(&mut self) {
        add(&mut self.said[0], self.store.decide().unwrap());
        let mut said = self.said.clone();
        said.iter_mut().for_each(|said| said.new.sort());
        assert_eq!(said[0], said[1]);
    }

    fn settle(&mut self) {
        let outcome = match self.random.below(7) {
            0 => Outcome::Failed { failure: Failure::PrivateAddress, status: None },
            1 | 2 => Outcome::Answered { status: 200 },
            3 => Outcome::Failed { failure: Failure::ServerError, status: Some(500) },
            _ => Outcome::Retry {
                failure: Failure::Timeout,
                status: None,
                not_before: Wall(self.now + self.random.below(300)),
            },
        };
        let mut record = settled("", outcome);
        if !self.taken.is_empty() && !self.random.one_in(10) {
            let at = self.random.below(self.taken.len() as u64) as usize;
            let due = self.taken.remove(at);
            (record.url, record.depth, record.how) = (due.url.into(), due.depth, due.how);
            record.found_in = due.found_in;
        } else {
            // Nobody took it, or nobody knows: it may be anywhere.
            self.decide();
            record.url = self.page();
            record.depth = self.random.below(6) as u16;
            if !self.log.is_empty() {
                record.found_in = self.log[self.random.below(self.log.len() as u64) as usize].0;
            }
        }
        let number = self.model.find(&record.url);
        if number.is_some_and(|number| self.model.urls[number].stage == Stage::Settled) {
            // An agent settles nothing that is done.
            return;
        }
        record.attempts = self.random.below(5) as u8;
        record.at = Wall(self.now);
        record.found = self.found();
        if self.random.one_in(2) && !is_private(&record) {
            record.capture = Some(pointer(self.random.below(20) as u32));
        }
        self.write(Record::Settled(record));
    }

    fn take(&mut self) {
        self.decide();
        let host = host(&format!("h{}.example", self.random.below(HOSTS + 1)));
        let (max, fresh_first) = (self.random.below(6) as usize, self.random.one_in(3));
        let taken = self.store.take(&host, max, fresh_first, Wall(self.now)).unwrap();
        self.model.take(&taken, max, fresh_first, Wall(self.now));
        self.taken.extend(taken.due);
    }

    fn put_back(&mut self) {
        let Some(first) = self.taken.first() else { return };
        let host = Host::of(&first.url);
        let back: Vec<Due> = self.taken.extract_if(.., |due| Host::of(&due.url) == host).collect();
        self.model.put_back(&back);
        self.store.put_back(&host, &back).unwrap();
    }

    /// Begins a snapshot, or ends the one that is under way.
    fn snapshot(&mut self) {
        match self.under_way.take() {
            Some((job, saved)) => {
                self.store.end_snapshot(job.run().unwrap()).unwrap();
                self.durable = Some(saved);
            }
            None => {
                if self.changes {
                    self.decide();
                }
                self.journal.sync().unwrap();
                let job = self.store.begin_snapshot(self.journal.end(), MEMO).unwrap();
                self.under_way = Some((job, (self.model.clone(), self.log.len())));
            }
        }
    }

    fn reopen(&mut self) {
        if let Some((job, saved)) = self.under_way.take()
            && self.random.one_in(2)
        {
            // The process ends just when it is durable.
            job.run().unwrap();
            self.durable = Some(saved);
        }
        if self.random.one_in(3) {
            self.lost_files.push(self.random.below(20) as u32);
        }
        let mut max_depth = self.model.max_depth;
        if self.changes && self.random.one_in(2) {
            max_depth = self.random.below(7) as u16;
        }
        self.taken.clear();
        self.model_again(max_depth);
        let options = small(&mut self.random, StoreLimits { max_depth, ..NO_LIMITS });
        let lost = self.lost_files.clone();
        let told = || Told { lost_files: lost.clone(), looks_back: true, forgives: true, ..Told::default() };
        let disk = || Arc::clone(&self.disk);
        if self.random.one_in(3) {
            let mut look =
                EmbeddedStore::open_read_only(disk(), Path::new(DIR), options, &mut told()).unwrap();
            compare(&mut look, &self.model, &lost);
        }
        let mut told = told();
        let (mut store, journal) = EmbeddedStore::open(disk(), Path::new(DIR), options, &mut told).unwrap();
        assert_eq!(told.records, self.log);
        // What is said of the records of another life is nobody's business.
        store.decide().unwrap();
        compare(&mut store, &self.model, &lost);
        self.said = Default::default();
        (self.store, self.journal) = (store, journal);
    }

    /// The model of the last snapshot, with all that was written since and what records mean today.
    fn model_again(&mut self, max_depth: u16) {
        let (mut model, records) = match &self.durable {
            Some((model, records)) => (model.clone(), *records),
            None => (Model::new(max_depth), 0),
        };
        model.restart(max_depth);
        for (number, (place, record)) in self.log.iter_mut().enumerate() {
            if let Record::Settled(settled) = &mut *record {
                let lost = settled.capture.is_some_and(|capture| self.lost_files.contains(&capture.file));
                if is_private(settled) {
                    let (failure, not_before) = (Failure::PrivateAddress, settled.at);
                    settled.outcome = Outcome::Retry { failure, status: None, not_before };
                } else if lost {
                    without_capture(record);
                }
            }
            match &*record {
                Record::Settled(settled) if number < records && !settled.outcome.is_final() => {
                    model.unsettle(*place, settled);
                }
                _ if number < records => {}
                record => drop(model.fold(*place, record)),
            }
        }
        self.model = model;
    }

    fn compare(&mut self) {
        self.decide();
        compare(&mut self.store, &self.model, &self.lost_files);
    }
}

fn is_private(settled: &Settled) -> bool {
    matches!(settled.outcome, Outcome::Failed { failure: Failure::PrivateAddress, .. })
}

/// Compares everything that can be asked of a store.
fn compare(store: &mut EmbeddedStore, model: &Model, lost_files: &[u32]) {
    assert_eq!(store.stored().known, model.urls.len() as u64);
    let mut hosts: BTreeMap<Host, StoredHost> = BTreeMap::new();
    store.hosts(&mut |stored| assert_eq!(hosts.insert(stored.host.clone(), stored), None)).unwrap();
    assert_eq!(store.stored().queued, hosts.values().map(|queue| queue.queued).sum::<u64>());
    for (host, queue) in &hosts {
        model.check_due(host, queue.due);
    }
    let hosts: BTreeMap<Host, _> =
        hosts.into_iter().map(|(host, queue)| (host, (queue.known, queue.queued, queue.next))).collect();
    assert_eq!(hosts, model.hosts());
    let OverLimit { depth, host, urls } = store.stored().kept_out;
    // What was tried when the limit was higher may or may not have been counted before that was noticed.
    let unknown = model.kept.iter().filter(|(_, found)| model.find(&found.url).is_none()).count() as u64;
    assert!((unknown..=model.over).contains(&depth) && (host, urls) == (0, 0), "{depth} are kept out");
    for number in 0..HOSTS * PAGES {
        let text = format!("http://h{}.example/%7e{}", number % HOSTS, number / HOSTS);
        let mut known = [store.look_up(&url(&text)).unwrap(), model.look_up(&text)];
        for known in &mut known {
            if let Some(Known { state: KnownState::Retry { last, .. }, .. }) = known
                && last.capture.is_some_and(|capture| lost_files.contains(&capture.file))
            {
                // The store reads what was written and does not ask the archive again.
                last.capture = None;
            }
        }
        assert_eq!(known[0], known[1]);
    }
}

fn run(seed: u64) {
    let mut pair = Pair::new(seed);
    for _ in 0..STEPS {
        match pair.random.below(22) {
            0..=3 => {
                let found = pair.found();
                pair.write(Record::Seeds(found));
            }
            4..=9 => pair.take(),
            10..=14 => pair.settle(),
            15 => pair.put_back(),
            16 | 17 => pair.now += pair.random.below(200),
            18 => pair.compare(),
            19 | 20 => pair.snapshot(),
            _ => pair.reopen(),
        }
    }
    pair.compare();
    pair.reopen();
    pair.compare();
}

#[test]
fn the_store_does_what_the_model_does() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// Limits on the URLs of a host and in all, random too. Which of several URLs is admitted first is not fixed, so the rules
/// are checked and not the choice.
fn run_limits(seed: u64) {
    let mut random = Random(seed);
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(seed));
    // The lowest depth that each URL was found with.
    let mut depths: BTreeMap<String, u16> = BTreeMap::new();
    let mut tried: BTreeSet<String> = BTreeSet::new();
    // What the last snapshot knew.
    let mut saved: BTreeSet<String> = BTreeSet::new();
    for _ in 0..6 {
        let limits = StoreLimits {
            max_depth: 2 + random.below(4) as u16,
            max_host_pages: 5 + random.below(PAGES),
            max_urls: 20 + random.below(HOSTS * PAGES),
        };
        let (mut store, mut journal, _) = open_with(Arc::clone(&disk), small(&mut random, limits)).unwrap();
        let mut taken: Vec<Due> = Vec::new();
        for step in 0..25 {
            let mut found_now: Vec<Found> = (0..random.below(10))
                .map(|_| {
                    let page = format!("http://h{}.example/{}", random.below(HOSTS), random.below(PAGES));
                    found(&page, random.below(6) as u16)
                })
                .collect();
            if step == 0 {
                // Nothing yet but what was there.
                found_now.clear();
            }
            for found in &found_now {
                let depth = depths.entry(found.url.clone()).or_insert(found.depth);
                *depth = found.depth.min(*depth);
            }
            let record = match taken.pop() {
                Some(due) => {
                    tried.insert(due.url.to_string());
                    let mut record = settled(due.url.as_str(), Outcome::Answered { status: 200 });
                    (record.depth, record.found) = (due.depth, found_now);
                    Record::Settled(record)
                }
                None => Record::Seeds(found_now),
            };
            write(&mut store, &mut journal, &record);
            if random.one_in(3) {
                let host = host(&format!("h{}.example", random.below(HOSTS)));
                taken.extend(store.take(&host, 3, false, Wall(0)).unwrap().due);
            }
            if random.one_in(8) || step == 0 {
                check_limits(&mut store, &limits, &depths, &tried, &saved);
            }
            if random.one_in(30) {
                saved = known_of(&mut store, &depths);
                snapshot(&mut store, &mut journal).unwrap();
            }
        }
    }
}

fn known_of(store: &mut EmbeddedStore, depths: &BTreeMap<String, u16>) -> BTreeSet<String> {
    depths.keys().filter(|text| store.look_up(&url(text)).unwrap().is_some()).cloned().collect()
}

fn check_limits(
    store: &mut EmbeddedStore,
    limits: &StoreLimits,
    depths: &BTreeMap<String, u16>,
    tried: &BTreeSet<String>,
    saved: &BTreeSet<String>,
) {
    store.decide().unwrap();
    let known = known_of(store, depths);
    assert_eq!(store.stored().known, known.len() as u64);
    assert!(tried.is_subset(&known), "what was tried stays known");
    assert!(saved.is_subset(&known), "what a snapshot knows stays known");
    // Those that count against no limit of today: they were admitted before.
    let old: BTreeSet<&String> = tried.union(saved).collect();
    let on =
        |urls: &BTreeSet<&String>, name: &str| urls.iter().filter(|text| text.contains(name)).count() as u64;
    let all: BTreeSet<&String> = known.iter().collect();
    assert!(all.len() as u64 <= limits.max_urls + old.len() as u64);
    for number in 0..HOSTS {
        let name = format!("//h{number}.");
        assert!(on(&all, &name) <= limits.max_host_pages + on(&old, &name));
    }
    for (text, depth) in depths {
        let name = &text[text.find("//").unwrap()..=text.find('.').unwrap()];
        let full = on(&all, name) >= limits.max_host_pages || all.len() as u64 >= limits.max_urls;
        match known.contains(text) {
            true => assert!(*depth <= limits.max_depth || old.contains(text), "{text} is too deep"),
            false => assert!(*depth > limits.max_depth || full, "nothing keeps {text} out"),
        }
    }
}

#[test]
fn limits_keep_out_what_they_should_and_nothing_else() {
    for seed in 0..LIMIT_SEEDS {
        let outcome = std::panic::catch_unwind(|| run_limits(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
