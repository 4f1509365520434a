//! The store against a model that keeps everything in plain lists and does everything by searching them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::{Admitted, Due, Taken};
use nephila_core::record::{Failure, Found, How, Outcome, Record};
use nephila_core::time::Wall;
use nephila_core::url::{Host, key};
use nephila_core::{record::Settled, url::Url};
use nephila_disk::{Disk, SimDisk};
use nephila_store::{HostQueue, Journal, Known, KnownState, Store, StoreLimits, without_capture};

use crate::samples::*;

const SEEDS: u64 = 300;
const STEPS: usize = 150;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Queued,
    Deferred(Wall),
    Taken,
    Settled,
}

struct ModelUrl {
    key: String,
    host: Host,
    found: Found,
    via: Option<String>,
    stage: Stage,
    attempts: u8,
    last: Option<Settled>,
}

struct Model {
    limits: StoreLimits,
    urls: Vec<ModelUrl>,
    /// The numbers of those that go before the others of their host.
    front: VecDeque<usize>,
}

impl Model {
    fn new(limits: StoreLimits) -> Model {
        Model { limits, urls: Vec::new(), front: VecDeque::new() }
    }

    fn find(&self, text: &str) -> Option<usize> {
        let key = key(&url(text));
        self.urls.iter().position(|known| known.key == key)
    }

    fn add(&mut self, found: Found, via: Option<String>, stage: Stage) -> usize {
        let parsed = url(&found.url);
        let (key, host) = (key(&parsed), Host::of(&parsed));
        self.urls.push(ModelUrl { key, host, found, via, stage, attempts: 0, last: None });
        self.urls.len() - 1
    }

    fn fold(&mut self, record: &Record) -> Admitted {
        let mut via = None;
        if let Record::Settled(settled) = record {
            via = Some(settled.url.clone());
            let number = self.find(&settled.url).unwrap_or_else(|| {
                let (url, depth, how) = (settled.url.clone(), settled.depth, settled.how);
                self.add(Found { url, depth, how, redirects: 0 }, None, Stage::Taken)
            });
            self.front.retain(|other| *other != number);
            let known = &mut self.urls[number];
            known.attempts = settled.attempts;
            known.last = Some(settled.clone());
            known.stage = match settled.outcome {
                Outcome::Retry { not_before, .. } => Stage::Deferred(not_before),
                _ => Stage::Settled,
            };
        }
        let mut admitted = Admitted::default();
        for found in record.found() {
            let host = Host::of(&url(&found.url));
            let on_host = self.urls.iter().filter(|known| known.host == host).count() as u64;
            if self.find(&found.url).is_some() {
                admitted.known += 1;
            } else if found.depth > self.limits.max_depth {
                admitted.over.depth += 1;
            } else if on_host >= self.limits.max_host_pages {
                admitted.over.host += 1;
            } else if self.urls.len() as u64 >= self.limits.max_urls {
                admitted.over.urls += 1;
            } else {
                self.add(found.clone(), via.clone(), Stage::Queued);
                match admitted.new.iter_mut().find(|(other, _)| *other == host) {
                    Some((_, count)) => *count += 1,
                    None => admitted.new.push((host, 1)),
                }
            }
        }
        admitted
    }

    fn of_host<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = (usize, &'a ModelUrl)> {
        self.urls.iter().enumerate().filter(move |(_, known)| known.host == *host)
    }

    fn next(&self, host: &Host) -> Option<Wall> {
        let times = self.of_host(host).filter_map(|(_, known)| match known.stage {
            Stage::Deferred(until) => Some(until),
            _ => None,
        });
        times.min()
    }

    fn due(&self, host: &Host) -> u64 {
        self.of_host(host).filter(|(_, known)| known.stage == Stage::Queued).count() as u64
    }

    fn take(&mut self, host: &Host, max: usize, now: Wall) -> Taken {
        let mut back: Vec<(Wall, usize)> = Vec::new();
        for (number, known) in self.of_host(host) {
            match known.stage {
                Stage::Deferred(until) if until <= now => back.push((until, number)),
                _ => {}
            }
        }
        back.sort();
        for (_, number) in back {
            self.urls[number].stage = Stage::Queued;
            self.front.push_back(number);
        }
        let mut order: Vec<usize> =
            self.front.iter().copied().filter(|number| self.urls[*number].host == *host).collect();
        let mut others: Vec<(u16, usize)> = self
            .of_host(host)
            .filter(|(number, known)| known.stage == Stage::Queued && !order.contains(number))
            .map(|(number, known)| (known.found.depth, number))
            .collect();
        others.sort();
        order.extend(others.into_iter().map(|(_, number)| number));
        order.truncate(max);
        self.front.retain(|number| !order.contains(number));
        let mut due = Vec::new();
        for number in order {
            let known = &mut self.urls[number];
            known.stage = Stage::Taken;
            due.push(Due {
                url: url(&known.found.url),
                depth: known.found.depth,
                how: known.found.how,
                redirects: known.found.redirects,
                attempts: known.attempts,
                via: known.via.clone(),
                reference: number as u64,
            });
        }
        Taken { host: host.clone(), due, left: self.due(host), next: self.next(host) }
    }

    fn put_back(&mut self, due: &[Due]) {
        for due in due.iter().rev() {
            let number = due.reference as usize;
            if self.urls[number].stage == Stage::Taken {
                self.urls[number].stage = Stage::Queued;
                self.front.push_front(number);
            }
        }
    }

    fn look_up(&self, text: &str) -> Option<Known> {
        let known = &self.urls[self.find(text)?];
        let state = match (known.stage, &known.last) {
            (Stage::Taken, _) => KnownState::Taken,
            (_, None) => KnownState::Queued,
            (_, Some(last)) => match last.outcome {
                Outcome::Retry { not_before, .. } => {
                    KnownState::Retry { not_before, attempts: known.attempts, last: Box::new(last.clone()) }
                }
                _ => KnownState::Settled(Box::new(last.clone())),
            },
        };
        Some(Known { found: known.found.clone(), via: known.via.clone(), state })
    }

    fn hosts(&self) -> Vec<(Host, HostQueue)> {
        let mut hosts: Vec<(Host, HostQueue)> = Vec::new();
        for known in &self.urls {
            if hosts.iter().all(|(host, _)| *host != known.host) {
                let of_host = || self.of_host(&known.host);
                let queue = HostQueue {
                    known: of_host().count() as u64,
                    waiting: of_host().filter(|(_, known)| known.stage != Stage::Settled).count() as u64,
                    due: self.due(&known.host),
                    next: self.next(&known.host),
                };
                hosts.push((known.host.clone(), queue));
            }
        }
        hosts
    }
}

/// One crawl, in the store and in the model.
struct Pair {
    random: Random,
    disk: Arc<dyn Disk>,
    store: Store,
    journal: Journal,
    model: Model,
    log: Vec<Record>,
    taken: Vec<Due>,
    lost_files: Vec<u32>,
    now: u64,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut random = Random(seed);
        let limits = limits(&mut random);
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(seed));
        let (store, journal, _) = open(Arc::clone(&disk), limits).unwrap();
        let model = Model::new(limits);
        let (log, taken, lost_files) = (Vec::new(), Vec::new(), Vec::new());
        Pair { random, disk, store, journal, model, log, taken, lost_files, now: 1_000 }
    }

    fn page(&mut self) -> String {
        let (host, page) = (self.random.below(4), self.random.below(40));
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
        if let Record::Settled(settled) = &record {
            self.store.settle(place, settled);
        }
        assert_eq!(self.store.admit(place, &record), self.model.fold(&record));
        self.log.push(record);
    }

    fn settle(&mut self) {
        let page = if !self.taken.is_empty() && !self.random.one_in(10) {
            let at = self.random.below(self.taken.len() as u64) as usize;
            self.taken.remove(at).url.to_string()
        } else {
            self.page()
        };
        let outcome = match self.random.below(3) {
            0 => Outcome::Answered { status: 200 },
            1 => Outcome::Failed { failure: Failure::ServerError, status: Some(500) },
            _ => Outcome::Retry {
                failure: Failure::Timeout,
                status: None,
                not_before: Wall(self.now + self.random.below(300)),
            },
        };
        let mut record = settled(&page, outcome);
        record.attempts = self.random.below(5) as u8;
        record.depth = self.random.below(6) as u16;
        record.at = Wall(self.now);
        record.found = self.found();
        if self.random.one_in(2) {
            record.capture = Some(pointer(self.random.below(20) as u32));
        }
        self.write(Record::Settled(record));
    }

    fn take(&mut self) {
        let host = host(&format!("h{}.example", self.random.below(5)));
        let max = self.random.below(6) as usize;
        let store = self.store.take(&host, max, false, Wall(self.now)).unwrap();
        let model = self.model.take(&host, max, Wall(self.now));
        assert_eq!(store, model);
        self.taken.extend(store.due);
    }

    fn put_back(&mut self) {
        let Some(first) = self.taken.first() else { return };
        let host = Host::of(&first.url);
        let back: Vec<Due> = self.taken.extract_if(.., |due| Host::of(&due.url) == host).collect();
        self.model.put_back(&back);
        self.store.put_back(&host, back);
    }

    fn reopen(&mut self) {
        if self.random.one_in(3) {
            self.lost_files.push(self.random.below(20) as u32);
        }
        if self.random.one_in(2) {
            self.model.limits = limits(&mut self.random);
        }
        self.taken.clear();
        self.model = Model::new(self.model.limits);
        for record in &mut self.log {
            let capture = if let Record::Settled(settled) = record { settled.capture } else { None };
            if capture.is_some_and(|capture| self.lost_files.contains(&capture.file)) {
                without_capture(record);
            }
            self.model.fold(record);
        }
        let mut replayed = Vec::new();
        let lost = &self.lost_files;
        let (store, journal) = Store::open(
            Arc::clone(&self.disk),
            Path::new(DIR),
            self.model.limits,
            &|pointer| !lost.contains(&pointer.file),
            &mut |_, record| replayed.push(record.clone()),
        )
        .unwrap();
        assert_eq!(replayed, self.log);
        (self.store, self.journal) = (store, journal);
    }

    fn compare(&mut self) {
        assert_eq!(self.store.known_urls(), self.model.urls.len() as u64);
        let hosts: Vec<(Host, HostQueue)> =
            self.store.hosts().map(|(host, queue)| (host.clone(), queue)).collect();
        assert_eq!(self.store.queued(), hosts.iter().map(|(_, queue)| queue.waiting).sum::<u64>());
        assert_eq!(hosts, self.model.hosts());
        let text = self.page();
        let mut known = self.store.look_up(&Url::parse(&text).unwrap()).unwrap();
        if let Some(Known { state: KnownState::Retry { last, .. }, .. }) = &mut known
            && last.capture.is_some_and(|capture| self.lost_files.contains(&capture.file))
        {
            // The store reads what was written and does not ask the archive again.
            last.capture = None;
        }
        assert_eq!(known, self.model.look_up(&text));
    }
}

fn limits(random: &mut Random) -> StoreLimits {
    StoreLimits {
        max_depth: random.below(7) as u16,
        max_host_pages: 5 + random.below(50),
        max_urls: 20 + random.below(200),
    }
}

fn run(seed: u64) {
    let mut pair = Pair::new(seed);
    for _ in 0..STEPS {
        match pair.random.below(20) {
            0..=3 => {
                let found = pair.found();
                pair.write(Record::Seeds(found));
            }
            4..=9 => pair.take(),
            10..=14 => pair.settle(),
            15 => pair.put_back(),
            16 | 17 => pair.now += pair.random.below(200),
            18 => pair.compare(),
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
