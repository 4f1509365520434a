//! Random operations, answered by a store and by the one in memory.

use std::collections::BTreeMap;

use nephila_core::agent::{Admitted, Due, StoredHost};
use nephila_core::cash::minted;
use nephila_core::record::{Failure, Found, How, Outcome, Record};
use nephila_core::settings::UrlOrder;
use nephila_core::time::Wall;
use nephila_core::url::Host;
use nephila_store::{Known, KnownState, OwnStore as _, Store, StoreLimits};

use super::memory::{MemoryStore, Stage};
use super::promises::{memo, round};
use super::{Harness, fold, reader};
use crate::samples::*;

const STEPS: usize = 150;
const HOSTS: u64 = 4;
const PAGES: u64 = 40;
const ROUND_STEPS: u64 = 200;
const ROUND_HOSTS: u64 = 40;

fn for_each_seed(seeds: u64, run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in 0..seeds {
        assert!(std::panic::catch_unwind(|| run(seed)).is_ok(), "seed {seed}");
    }
}

/// One crawl, in a store and in memory.
struct Pair<H> {
    random: Random,
    harness: H,
    memory: MemoryStore,
    max_depth: u16,
    log: Vec<(u64, Record)>,
    taken: Vec<Due>,
    lost_files: Vec<u32>,
    now: u64,
    /// What both have said of offers since they were opened.
    said: [Admitted; 2],
}

impl<H: Harness> Pair<H> {
    fn new(seed: u64) -> Pair<H> {
        let mut random = Random(seed);
        let max_depth = random.below(7) as u16;
        let limits = StoreLimits { max_depth, ..NO_LIMITS };
        Pair {
            random,
            harness: H::new(seed, limits),
            memory: MemoryStore::new(limits, H::ORDER),
            max_depth,
            log: Vec::new(),
            taken: Vec::new(),
            lost_files: Vec::new(),
            now: 1_000,
            said: Default::default(),
        }
    }

    /// A URL, in one of two spellings.
    fn page(&mut self) -> String {
        let (host, page) = (self.random.below(HOSTS), self.random.below(PAGES));
        format!("http://h{host}.example/{}{page}", if self.random.one_in(2) { "~" } else { "%7e" })
    }

    fn found(&mut self) -> Vec<Found> {
        (0..self.random.below(8))
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
            self.harness.store().prune(&mut record);
        }
        let (place, said) = self.harness.tell(&record);
        add(&mut self.said[0], said);
        self.memory.write(place, &record);
        add(&mut self.said[1], fold(&mut self.memory, place, &record));
        self.log.push((place, record));
    }

    fn decide(&mut self) {
        add(&mut self.said[0], self.harness.store().decide().unwrap());
        add(&mut self.said[1], self.memory.decide().unwrap());
        let said = self.said.clone().map(|mut said| {
            said.new.sort();
            (said.new, said.known, said.over, said.undecided)
        });
        assert_eq!(said[0], said[1]);
    }

    fn settle(&mut self) {
        let outcome = match self.random.below(7) {
            0 => Outcome::Failed { failure: Failure::PrivateAddress, status: None },
            1 | 2 => Outcome::Answered { status: 200 },
            3 => Outcome::Failed { failure: Failure::ServerError, status: Some(500) },
            _ => retry(self.now + self.random.below(300)),
        };
        let may_be_captured = self.random.one_in(2) && !matches!(outcome, Outcome::Failed { .. });
        let mut record = settled("", outcome);
        if !self.taken.is_empty() && !self.random.one_in(10) {
            let at = self.random.below(self.taken.len() as u64) as usize;
            let due = self.taken.remove(at);
            (record.url, record.depth, record.how) = (due.url.into(), due.depth, due.how);
            record.found_in = due.found_in;
            record.spent = due.cash;
        } else {
            // Nobody took it, or nobody knows: it may be anywhere.
            self.decide();
            record.url = self.page();
            record.depth = self.random.below(6) as u16;
            record.spent = (H::ORDER == UrlOrder::Cash).then_some(0);
            if !self.log.is_empty() {
                record.found_in = self.log[self.random.below(self.log.len() as u64) as usize].0;
            }
        }
        if self.memory.stage(&record.url) == Some(Stage::Settled) {
            // An agent settles nothing that is done.
            return;
        }
        record.spent = record.spent.filter(|_| matches!(record.outcome, Outcome::Answered { .. }));
        record.attempts = self.random.below(5) as u8;
        record.at = Wall(self.now);
        record.found = self.found();
        if may_be_captured {
            record.capture = Some(pointer(self.random.below(20) as u32));
        }
        self.write(Record::Settled(record));
    }

    fn take(&mut self, host: &Host, max: usize) {
        self.decide();
        let fresh_first = self.random.one_in(3);
        let taken = self.harness.store().take(host, max, fresh_first, Wall(self.now)).unwrap();
        self.memory.recall(host, Wall(self.now));
        for due in &taken.due {
            assert_eq!(*due, self.memory.follow(due, fresh_first));
        }
        let in_memory = self.memory.host(host).unwrap();
        let (left, next) = in_memory.map_or((0, None), |stored| (stored.due, stored.next));
        if taken.due.len() < max {
            assert_eq!((taken.left, left), (0, 0), "{host}");
        }
        self.check_due(host, taken.left, left);
        assert_eq!(taken.next, next, "{host}");
        self.taken.extend(taken.due);
    }

    /// A store may count what has moved or was settled before its turn, until it meets it.
    fn check_due(&self, host: &Host, due: u64, exact: u64) {
        let offers = self.log.iter().flat_map(|(_, record)| record.found());
        let offers = offers.filter(|found| Host::of(&url(&found.url)) == *host).count() as u64;
        assert!((exact..=exact + offers).contains(&due), "{host}: {due} due, and {exact} are");
    }

    fn put_back(&mut self) {
        let Some(first) = self.taken.first() else { return };
        let host = Host::of(&first.url);
        let back: Vec<Due> = self.taken.extract_if(.., |due| Host::of(&due.url) == host).collect();
        self.memory.put_back(&host, &back).unwrap();
        self.harness.store().put_back(&host, &back).unwrap();
    }

    fn restart(&mut self) {
        if self.random.one_in(3) {
            self.lost_files.push(self.random.below(20) as u32);
        }
        if H::ORDER == UrlOrder::BreadthFirst {
            // By cash, who has what was kept out depends on what was known when a limit was raised.
            self.max_depth += self.random.below(3) as u16 / 2;
        }
        let limits = StoreLimits { max_depth: self.max_depth, ..NO_LIMITS };
        self.taken.clear();
        self.harness.restart(limits, &self.lost_files);
        self.memory.restart(limits, &mut reader(&self.lost_files));
        // What is said of the records of another life is nobody's business.
        self.harness.store().decide().unwrap();
        self.said = Default::default();
        for number in 0..HOSTS {
            // What had come back may have to be called back once more.
            self.take(&host(&format!("h{number}.example")), 0);
        }
        self.compare();
    }

    /// Compares everything that can be asked.
    fn compare(&mut self) {
        self.decide();
        let (stored, in_memory) = (self.harness.store().stored(), self.memory.stored());
        assert_eq!((stored.known, stored.queued), (in_memory.known, in_memory.queued));
        assert!(stored.hosts <= in_memory.hosts);
        self.compare_hosts();
        // What became known later may or may not have been counted before that was noticed.
        let offers = self.log.iter().flat_map(|(_, record)| record.found());
        let too_deep: Vec<&Found> = offers.filter(|found| found.depth > self.max_depth).collect();
        let unknown = too_deep.iter().filter(|found| self.memory.stage(&found.url).is_none()).count();
        let kept_out = stored.kept_out.depth as usize;
        assert!((unknown..=too_deep.len()).contains(&kept_out), "{kept_out} are kept out");
        assert_eq!((stored.kept_out.host, stored.kept_out.urls), (0, 0));
        for number in 0..HOSTS * PAGES {
            let text = url(&format!("http://h{}.example/%7e{}", number % HOSTS, number / HOSTS));
            let known = self.harness.store().look_up(&text).unwrap();
            let [known, in_memory] = [known, self.memory.look_up(&text).unwrap()].map(|mut known| {
                if let Some(Known { state: KnownState::Retry { last: Some(last), .. }, .. }) = &mut known
                    && last.capture.is_some_and(|capture| self.lost_files.contains(&capture.file))
                {
                    // Whether the archive still has what is tried again anyway is not asked.
                    last.capture = None;
                }
                if let Some(Known {
                    state: KnownState::Retry { last: Some(last), .. } | KnownState::Settled(last),
                    ..
                }) = &mut known
                {
                    // What an old record found need not be in it any more.
                    last.found.clear();
                }
                if let (Some(known), UrlOrder::Cash) = (&mut known, H::ORDER) {
                    // Any page that it was found on may be named.
                    (known.found, known.via) = (found("", 0), None);
                }
                known
            });
            assert_eq!(known, in_memory);
        }
        self.compare_cash();
    }

    /// All cash that records have made is somewhere.
    fn compare_cash(&mut self) {
        let Some(cash) = self.harness.cash().filter(|_| H::ORDER == UrlOrder::Cash) else { return };
        let minted: u64 = self.log.iter().map(|(_, record)| minted(record)).sum();
        let in_memory = self.memory.cash().unwrap();
        assert_eq!((cash.rest, cash.kept_out), (in_memory.rest, in_memory.kept_out));
        assert_eq!((cash.sum(), in_memory.sum()), (i128::from(minted), i128::from(minted)));
    }

    fn compare_hosts(&mut self) {
        let mut hosts: BTreeMap<Host, StoredHost> = BTreeMap::new();
        self.harness
            .store()
            .hosts(&mut |stored| assert_eq!(hosts.insert(stored.host.clone(), stored), None))
            .unwrap();
        let mut in_memory = BTreeMap::new();
        self.memory.hosts(&mut |stored| drop(in_memory.insert(stored.host.clone(), stored))).unwrap();
        for (host, stored) in &mut hosts {
            let exact = in_memory.get(host).map_or(0, |stored| stored.due);
            self.check_due(host, stored.due, exact);
            stored.due = exact;
        }
        assert_eq!(hosts, in_memory);
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.below(22) {
                0..=3 => {
                    let found = self.found();
                    self.write(Record::Seeds(found));
                }
                4..=9 => {
                    let host = host(&format!("h{}.example", self.random.below(HOSTS + 1)));
                    let max = self.random.below(6) as usize;
                    self.take(&host, max);
                }
                10..=14 => self.settle(),
                15 => self.put_back(),
                16..=18 => self.now += self.random.below(200),
                19 => self.compare(),
                20 => self.harness.save(),
                _ => self.restart(),
            }
        }
        self.restart();
        for number in 0..HOSTS {
            self.take(&host(&format!("h{number}.example")), usize::MAX);
        }
        self.compare();
    }
}

/// Everything but memos and rounds, with restarts, deeper limits and lost captures.
pub(crate) fn operations<H: Harness>(seeds: u64) {
    for_each_seed(seeds, |seed| Pair::<H>::new(seed).run());
}

/// Memos and rounds over all hosts, whatever is in memory and whatever was written down in between.
pub(crate) fn rounds<H: Harness>(seeds: u64) {
    for_each_seed(seeds, |seed| {
        let random = &mut Random(seed);
        let (mut harness, mut memory) = (H::new(seed, NO_LIMITS), MemoryStore::new(NO_LIMITS, H::ORDER));
        for step in 0..ROUND_STEPS {
            let now = Wall(step * 10);
            let name = host(&format!("h{}.example", random.below(ROUND_HOSTS)));
            match random.below(6) {
                0 | 1 => tell(&mut harness, &mut memory, &seeds_of(&name, step)),
                2 => {
                    harness.store().decide().unwrap();
                    let taken = harness.store().take(&name, 1, false, now).unwrap();
                    memory.recall(&name, now);
                    for due in taken.due {
                        memory.follow(&due, false);
                        let outcome = match random.below(2) {
                            0 => Outcome::Answered { status: 200 },
                            _ => retry(now.0 + 1 + random.below(2_000)),
                        };
                        let record = Record::Settled(settled(due.url.as_str(), outcome));
                        tell(&mut harness, &mut memory, &record);
                    }
                }
                3 => {
                    let memo = random.one_in(3).then(|| memo(1 + step));
                    let away_until = Wall(random.below(4_000));
                    harness.store().keep(&name, memo.as_ref(), away_until).unwrap();
                    memory.keep(&name, memo.as_ref(), away_until).unwrap();
                }
                4 => harness.save(),
                _ if random.one_in(4) => {
                    harness.save();
                    harness.restart(NO_LIMITS, &[]);
                    memory.restart(NO_LIMITS, &mut ());
                }
                _ => {}
            }
            harness.store().decide().unwrap();
            let kept = harness.store().host(&name).unwrap().and_then(|stored| stored.memo);
            assert_eq!(kept, memory.host(&name).unwrap().and_then(|stored| stored.memo));
            if random.one_in(10) {
                let max = 1 + random.below(40) as usize;
                assert_eq!(round(harness.store(), now, max), round(&mut memory, now, max));
            }
        }
    });
}

fn seeds_of(host: &Host, number: u64) -> Record {
    seeds([format!("http://{host}/{number}")])
}

fn tell<H: Harness>(harness: &mut H, memory: &mut MemoryStore, record: &Record) {
    let (place, _) = harness.tell(record);
    memory.write(place, record);
    fold(memory, place, record);
}
