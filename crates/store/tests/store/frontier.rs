//! The frontier on disk against a naive model: a journal beside it, and kills, power cuts and failing disks at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::Due;
use nephila_core::assign::partition_of;
use nephila_core::record::{Failure, Found, Outcome, Record};
use nephila_core::settings::UrlOrder;
use nephila_core::time::Wall;
use nephila_disk::{Disk, SimDisk};
use nephila_store::LogReader;
use nephila_store::frontier::{Frontier, FrontierOptions, Progress, Range, Texts};
use nephila_store::log::Log;
use nephila_store::{Result, StoreLimits};

use crate::samples::*;

const SEEDS: u64 = 1_000;
const LIVES: usize = 4;
const HOSTS: u64 = 6;
const PAGES: u64 = 60;
const LATE: Wall = Wall(1 << 50);

/// Small enough that everything overflows all the time.
fn small(random: &mut Random) -> FrontierOptions {
    FrontierOptions {
        sieve_bytes_max: random.below(4_000) as usize,
        filter_bytes_max: [0, 200, 1 << 20][random.below(3) as usize],
        pending_bytes_max: random.below(2_000) as usize,
        hot_hosts_max: 1 + random.below(3) as usize,
        hot_bytes_max: random.below(10_000) as usize,
        block_urls_max: 1 + random.below(30) as usize,
        block_bytes_max: 1 + random.below(2_000) as usize,
        secret: random.below(5),
        order: UrlOrder::BreadthFirst,
        tell_again: 2,
        me: Default::default(),
        ledger_bytes_max: 0,
        limits: match random.below(3) {
            0 => StoreLimits {
                max_depth: random.below(4) as u16,
                max_host_pages: 1 + random.below(PAGES),
                max_urls: 1 + random.below(HOSTS * PAGES),
                ..StoreLimits::NONE
            },
            _ => NO_LIMITS,
        },
    }
}

struct Journal(LogReader);

impl Texts for Journal {
    fn found(&self, place: u64, index: usize) -> Result<Found> {
        let mut payload = Vec::new();
        self.0.read(place, &mut payload)?;
        let record: Record = postcard::from_bytes(&payload).unwrap();
        Ok(record.found()[index].clone())
    }
}

/// A frontier and its journal.
struct Crawl {
    frontier: Frontier,
    log: Log,
    /// Where the records are that this life can still see.
    read: Vec<(u64, Record)>,
}

fn open_crawl(disk: &SimDisk, options: FrontierOptions) -> Result<Crawl> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let dir = Path::new(DIR);
    let texts = Box::new(Journal(LogReader::new(disk.clone(), dir)));
    let (mut frontier, _) = Frontier::open(disk.clone(), dir, options, texts)?;
    let mut read = Vec::new();
    let log = Log::open(&disk, dir, frontier.place(), 2_000, &mut |place, payload| {
        read.push((place, postcard::from_bytes(payload).unwrap()));
        Ok(())
    })?;
    for (place, record) in &read {
        fold(&mut frontier, *place, record)?;
    }
    frontier.advance(log.end());
    Ok(Crawl { frontier, log, read })
}

fn fold(frontier: &mut Frontier, place: u64, record: &Record) -> Result<()> {
    if let Record::Settled(settled) = record {
        frontier.settle(place, settled)?;
    }
    frontier.admit(place, record, None)?;
    Ok(())
}

/// What the records say, naively: the URLs that are known, and whether each is done.
fn model<'a>(records: impl IntoIterator<Item = &'a Record>) -> BTreeMap<String, bool> {
    let mut urls = BTreeMap::new();
    for record in records {
        if let Record::Settled(settled) = record {
            urls.insert(settled.url.clone(), settled.outcome.is_final());
        }
        for found in record.found() {
            urls.entry(found.url.clone()).or_insert(false);
        }
    }
    urls
}

fn page(random: &mut Random) -> String {
    format!("http://h{}.example/{}", random.below(HOSTS), random.below(PAGES))
}

fn names() -> impl Iterator<Item = nephila_core::url::Host> {
    (0..HOSTS).map(|number| host(&format!("h{number}.example")))
}

fn finding(random: &mut Random, url: &str) -> Record {
    let outcome = match random.below(4) {
        0 => {
            Outcome::Retry { failure: Failure::Timeout, status: None, not_before: Wall(random.below(2_000)) }
        }
        _ => Outcome::Answered { status: 200 },
    };
    let mut record = settled(url, outcome);
    record.found = (0..random.below(8)).map(|_| found(&page(random), random.below(4) as u16)).collect();
    Record::Settled(record)
}

/// A record that was appended, and whether a power cut or even a kill may take it.
struct Kept {
    place: u64,
    record: Record,
    flushed: bool,
    synced: bool,
}

/// Lives until something fails or chance ends it. Gives up at the first error, as an agent does.
fn live(crawl: &mut Crawl, random: &mut Random, kept: &mut Vec<Kept>) -> Result<()> {
    let mut taken: Vec<Due> = Vec::new();
    let mut written: Vec<usize> = Vec::new();
    for _ in 0..random.below(120) {
        match random.below(12) {
            0 => {
                let record = Record::Seeds((0..3).map(|_| found(&page(random), 0)).collect());
                write(crawl, kept, &mut written, record)?;
            }
            1..=4 => {
                if !taken.is_empty() {
                    let due = taken.swap_remove(random.below(taken.len() as u64) as usize);
                    let record = finding(random, due.url.as_str());
                    write(crawl, kept, &mut written, record)?;
                }
            }
            5 | 6 => {
                let host = host(&format!("h{}.example", random.below(HOSTS)));
                let got = crawl.frontier.take(&host, 1 + random.below(5) as usize, random.one_in(2), LATE)?;
                for due in got.due {
                    assert!(
                        !taken.iter().any(|other| other.url == due.url),
                        "{} was handed over twice",
                        due.url
                    );
                    taken.push(due);
                }
            }
            7 => {
                let host = host(&format!("h{}.example", random.below(HOSTS)));
                let (back, rest): (Vec<Due>, Vec<Due>) =
                    taken.drain(..).partition(|due| due.url.host_str() == Some(host.as_str()));
                taken = rest;
                crawl.frontier.put_back(&host, &back)?;
            }
            8 | 9 => {
                crawl.log.flush()?;
                if random.one_in(2) {
                    crawl.log.sync()?;
                    kept.iter_mut().for_each(|kept| kept.synced = true);
                }
                kept.iter_mut().for_each(|kept| kept.flushed = true);
                // Only what is durable is told to the frontier.
                for at in written.drain(..) {
                    fold(&mut crawl.frontier, kept[at].place, &kept[at].record)?;
                }
                crawl.frontier.advance(crawl.log.end());
            }
            10 => drop(crawl.frontier.decide()?),
            _ => {
                // The journal goes first: what a snapshot says must not outlive it.
                crawl.log.sync()?;
                kept.iter_mut().for_each(|kept| (kept.flushed, kept.synced) = (true, true));
                for at in written.drain(..) {
                    fold(&mut crawl.frontier, kept[at].place, &kept[at].record)?;
                }
                crawl.frontier.advance(crawl.log.end());
                let job = crawl.frontier.begin_snapshot(b"memo")?;
                if random.one_in(3) {
                    crawl.frontier.decide()?;
                }
                if random.one_in(8) {
                    // The process ends with the snapshot under way.
                    return Ok(());
                }
                let needed = crawl.frontier.end_snapshot(job.run()?)?;
                crawl.log.cut(needed)?;
            }
        }
    }
    Ok(())
}

fn write(crawl: &mut Crawl, kept: &mut Vec<Kept>, written: &mut Vec<usize>, record: Record) -> Result<()> {
    let place = crawl.log.append(|out| {
        out.extend(postcard::to_stdvec(&record).unwrap());
        Ok(())
    })?;
    written.push(kept.len());
    kept.push(Kept { place, record, flushed: false, synced: false });
    Ok(())
}

/// Compares what a life found with what the lives before it wrote.
fn check(crawl: &mut Crawl, kept: &mut Vec<Kept>) {
    let end = crawl.read.last().map_or(crawl.frontier.place(), |_| crawl.log.end()).max(crawl.log.end());
    kept.retain(|kept| {
        let survived = kept.place < end;
        assert!(survived || !kept.flushed, "a record that was safe is gone");
        survived
    });
    for (place, record) in &crawl.read {
        assert!(kept.iter().any(|kept| kept.place == *place && kept.record == *record), "a record changed");
    }
    crawl.frontier.decide().unwrap();
    let expected = model(kept.iter().map(|kept| &kept.record));
    assert_eq!(crawl.frontier.known_urls(), expected.len() as u64);
    let mut known = BTreeMap::new();
    crawl
        .frontier
        .hosts(&Range::All, &mut |stored| {
            known.insert(stored.host.to_string(), (stored.known, stored.queued));
        })
        .unwrap();
    for name in names() {
        let of_host = || expected.iter().filter(|(text, _)| url(text).host_str() == Some(name.as_str()));
        let figures = (of_host().count() as u64, of_host().filter(|(_, done)| !**done).count() as u64);
        assert_eq!(known.get(name.as_str()).copied().unwrap_or_default(), figures, "{name}");
    }
    for host in 0..HOSTS {
        for number in 0..PAGES {
            let text = format!("http://h{host}.example/{number}");
            let seen = crawl.frontier.look_up(&url(&text)).unwrap();
            assert_eq!(
                seen.map(|(progress, _)| progress == Progress::Settled),
                expected.get(&text).copied(),
                "{text}"
            );
        }
    }
}

/// Hands everything over and compares: each URL that is not done, once.
fn drain(crawl: &mut Crawl, kept: &[Kept]) {
    let expected = model(kept.iter().map(|kept| &kept.record));
    let waiting: BTreeSet<&String> =
        expected.iter().filter(|(_, done)| !**done).map(|(url, _)| url).collect();
    let mut got = BTreeSet::new();
    for host in names() {
        loop {
            let taken = crawl.frontier.take(&host, 7, false, LATE).unwrap();
            if taken.due.is_empty() {
                break;
            }
            for due in taken.due {
                assert!(got.insert(due.url.to_string()), "{} twice", due.url);
            }
        }
    }
    let got: BTreeSet<&String> = got.iter().collect();
    let differ: Vec<_> = got.symmetric_difference(&waiting).collect();
    assert!(differ.is_empty(), "handed over or waiting, and not both: {differ:?}");
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut disk = SimDisk::new(seed);
    let mut kept: Vec<Kept> = Vec::new();
    for life in 0..=LIVES {
        if life == LIVES {
            disk.set_capacity(u64::MAX);
        } else {
            match random.below(5) {
                0 => disk.fail_after(random.below(150)),
                1 => disk.set_capacity(disk.used_bytes() + random.below(20_000)),
                _ => disk.set_capacity(u64::MAX),
            }
        }
        let mut options = small(&mut random);
        if life == LIVES {
            // What limits kept out before comes back now.
            options.limits = NO_LIMITS;
        }
        if let Ok(mut crawl) = open_crawl(&disk, options) {
            // A disk that fails now may do so in the middle of a question; what is there is asked in the lives that have none.
            if life == LIVES {
                check(&mut crawl, &mut kept);
                drain(&mut crawl, &kept);
                return;
            }
            let end = crawl.log.end();
            kept.retain(|kept| kept.place < end);
            kept.iter_mut().for_each(|kept| (kept.flushed, kept.synced) = (true, true));
            let _ = live(&mut crawl, &mut random, &mut kept);
        } else {
            assert!(life < LIVES, "it cannot be opened any more");
        }
        disk = if random.one_in(2) {
            disk.kill()
        } else {
            kept.iter_mut().for_each(|kept| kept.flushed = kept.synced);
            disk.power_cut()
        };
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// Admits URLs without a journal: nothing is offered twice, so no text is asked for.
struct NoTexts;

impl Texts for NoTexts {
    fn found(&self, _: u64, _: usize) -> Result<Found> {
        unreachable!("nothing is undecided")
    }
}

fn fresh(options: FrontierOptions) -> Frontier {
    Frontier::open(Arc::new(SimDisk::new(1)), Path::new(DIR), options, Box::new(NoTexts)).unwrap().0
}

#[test]
fn a_host_or_a_partition_moves_out_alone() {
    for range in [Range::Host(host("h1.example")), Range::Partition(partition_of(&host("h1.example")))] {
        let mut frontier = fresh(FrontierOptions { block_urls_max: 4, ..FrontierOptions::default() });
        let all: Vec<String> = (0..HOSTS)
            .flat_map(|host| (0..10).map(move |number| format!("http://h{host}.example/{number}")))
            .collect();
        frontier.admit(1, &seeds(&all), None).unwrap();
        frontier.take(&host("h1.example"), 1, false, LATE).unwrap();
        frontier.settle(2, &settled("http://h1.example/0", Outcome::Answered { status: 200 })).unwrap();
        for max in [1, 3, 1_000] {
            let (mut seen, mut waiting) = (0, Vec::new());
            let (mut from, mut parts) = (None, 0);
            loop {
                let ranges = std::slice::from_ref(&range);
                let (moved, next) = frontier.export(ranges, from.as_ref(), max, &|_, _| None).unwrap();
                assert!(moved.hosts.iter().all(|host| host.host.as_str() == "h1.example"));
                seen += moved.hosts.iter().map(|host| host.seen.len()).sum::<usize>();
                waiting.extend(moved.found.into_iter().map(|found| found.url));
                (from, parts) = (next, parts + 1);
                if from.is_none() {
                    break;
                }
            }
            waiting.sort();
            assert_eq!((seen, waiting), (1, all[11..20].to_vec()));
            assert_eq!(parts > 1, max < 10, "{parts} parts");
        }
        assert_eq!(frontier.forget(std::slice::from_ref(&range)).unwrap(), (10, 9));
        assert_eq!((frontier.known_urls(), frontier.settled_urls()), (50, 0));
        assert!(frontier.look_up(&url("http://h1.example/0")).unwrap().is_none());
        assert!(frontier.look_up(&url("http://h2.example/0")).unwrap().is_some());
        let mut left = Vec::new();
        frontier.hosts(&Range::All, &mut |stored| left.push((stored.host.to_string(), stored.due))).unwrap();
        left.sort();
        let expected: Vec<(String, u64)> =
            [0, 2, 3, 4, 5].iter().map(|number| (format!("h{number}.example"), 10)).collect();
        assert_eq!(left, expected);
        let several = ["h4.example", "h2.example", "h9.example"].map(|name| Range::Host(host(name)));
        assert_eq!(frontier.forget(&several).unwrap(), (20, 20));
        assert_eq!((frontier.known_urls(), frontier.hosts_count()), (30, 3));
    }
}
