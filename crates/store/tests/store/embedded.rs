//! What only the embedded store promises: lowered limits, pruning, what its reader is told, queues that cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::{Admitted, Due, OverLimit};
use nephila_core::assign::partition_of;
use nephila_core::record::{Arrived, Failure, Found, How, Outcome, Record, Settled};
use nephila_core::site::{AgentId, Members};
use nephila_core::time::Wall;
use nephila_disk::{Disk, SimDisk};
use nephila_store::{EmbeddedStore, Exported, FrontierOptions, KnownState, OwnStore, Store, StoreLimits};

use crate::samples::*;

const LIMIT_SEEDS: u64 = 40;
const HOSTS: u64 = 4;
const PAGES: u64 = 40;

fn disk() -> Arc<dyn Disk> {
    Arc::new(SimDisk::new(3))
}

fn texts(taken: &nephila_core::agent::Taken) -> Vec<&str> {
    taken.due.iter().map(|due| due.url.as_str()).collect()
}

/// The hosts with how many URLs of each are known.
fn known(store: &mut EmbeddedStore) -> String {
    let mut hosts = Vec::new();
    store.hosts(&mut |stored| hosts.push(format!("{} {}", stored.host, stored.known))).unwrap();
    hosts.sort();
    hosts.join(", ")
}

/// What a snapshot knows stays known; all else is admitted under the limits of today.
#[test]
fn what_a_limit_kept_out_comes_back_when_it_is_raised() {
    let found = Record::Seeds(vec![
        found("http://a.example/1", 0),
        found("http://a.example/deep", 3),
        found("http://a.example/2", 1),
        found("http://a.example/1#again", 2),
        found("http://a.example/3", 1),
        found("http://b.example/1", 2),
        found("http://c.example/1", 2),
    ]);
    let steps = [
        // Limits, then what is known and kept out: without snapshots, and with one in each life.
        ((2, 2, 3), ("a.example 2, b.example 1", [1, 1, 1]), ("a.example 2, b.example 1", [1, 1, 1])),
        ((3, 2, 3), ("a.example 2, b.example 1", [0, 2, 1]), ("a.example 2, b.example 1", [0, 2, 1])),
        ((3, 4, 3), ("a.example 3", [0, 0, 3]), ("a.example 2, b.example 1", [0, 0, 3])),
        (
            (3, 4, 9),
            ("a.example 4, b.example 1, c.example 1", [0; 3]),
            ("a.example 4, b.example 1, c.example 1", [0; 3]),
        ),
        (
            (9, 9, 9),
            ("a.example 4, b.example 1, c.example 1", [0; 3]),
            ("a.example 4, b.example 1, c.example 1", [0; 3]),
        ),
        ((0, 9, 9), ("a.example 1", [5, 0, 0]), ("a.example 4, b.example 1, c.example 1", [0; 3])),
    ];
    for with_snapshots in [false, true] {
        let disk = disk();
        for ((max_depth, max_host_pages, max_urls), without, with) in steps {
            let limits = StoreLimits { max_depth, max_host_pages, max_urls, ..StoreLimits::NONE };
            let (mut store, mut journal, records) = open(Arc::clone(&disk), limits).unwrap();
            if records.is_empty() {
                let answer = write_decided(&mut store, &mut journal, &found);
                let over = OverLimit { depth: 1, host: 1, urls: 1 };
                let new = vec![(host("a.example"), 2), (host("b.example"), 1)];
                assert_eq!(
                    answer,
                    Admitted {
                        new,
                        known: 1,
                        over,
                        undecided: 0,
                        hosts: answer.hosts,
                        moved: (0, 0),
                        again: Vec::new(),
                        to_tell: Vec::new(),
                    }
                );
            }
            store.decide().unwrap();
            let (hosts, [depth, host, urls]) = if with_snapshots { with } else { without };
            assert_eq!(known(&mut store), hosts, "{limits:?}, snapshots: {with_snapshots}");
            assert_eq!(
                store.stored().kept_out,
                OverLimit { depth, host, urls },
                "{limits:?}, snapshots: {with_snapshots}"
            );
            if with_snapshots {
                snapshot(&mut store, &mut journal).unwrap();
            }
        }
    }
}

/// However often the process dies before there is another snapshot, what is kept out is noted once.
#[test]
fn what_is_kept_out_is_not_kept_out_twice() {
    let limits = |max_depth| StoreLimits { max_depth, ..NO_LIMITS };
    let sim = SimDisk::new(3);
    let (mut store, mut journal, _) = open(Arc::new(sim.clone()), limits(1)).unwrap();
    let deep = (0..100).map(|number| found(&format!("http://a.example/{number}"), 2 + number % 10)).collect();
    write(&mut store, &mut journal, &Record::Seeds(deep));
    snapshot(&mut store, &mut journal).unwrap();
    let over = |depth| OverLimit { depth, ..OverLimit::default() };
    assert_eq!(store.stored().kept_out, over(100));
    let mut disk = sim;
    let mut used_bytes = Vec::new();
    for _ in 0..5 {
        disk = disk.kill();
        let (mut store, ..) = open(Arc::new(disk.clone()), limits(2)).unwrap();
        store.decide().unwrap();
        assert_eq!((store.stored().known, store.stored().kept_out), (10, over(90)));
        used_bytes.push(disk.used_bytes());
    }
    assert_eq!(used_bytes.first(), used_bytes.last());
    let (mut store, mut journal, _) = open(Arc::new(disk.clone()), limits(2)).unwrap();
    snapshot(&mut store, &mut journal).unwrap();
    let (mut store, ..) = open(Arc::new(disk), limits(3)).unwrap();
    store.decide().unwrap();
    assert_eq!((store.stored().known, store.stored().kept_out), (20, over(80)));
}

/// Whoever sends one URL after the other that a limit keeps out does not fill the disk.
#[test]
fn what_is_kept_out_and_finds_no_room_is_only_counted() {
    let limits = |max_depth| StoreLimits { max_depth, kept_out_bytes: 200, ..NO_LIMITS };
    let sim = SimDisk::new(3);
    let (mut store, mut journal, _) = open(Arc::new(sim.clone()), limits(1)).unwrap();
    let deep = (0..100).map(|number| found(&format!("http://a.example/{number}"), 2)).collect();
    write(&mut store, &mut journal, &Record::Seeds(deep));
    snapshot(&mut store, &mut journal).unwrap();
    assert_eq!(store.stored().kept_out, OverLimit { depth: 100, ..OverLimit::default() });
    let (mut store, ..) = open(Arc::new(sim.kill()), limits(2)).unwrap();
    store.decide().unwrap();
    assert!((1..20).contains(&store.stored().known), "{}", store.stored().known);
}

/// Whether a snapshot covers them or not, records are passed on as they count now.
#[test]
fn the_reader_is_told_what_does_not_count_any_more() {
    let private = Outcome::Failed { failure: Failure::PrivateAddress, status: None };
    let cases = [
        ("kept", Outcome::Answered { status: 200 }, Some(pointer(7))),
        ("lost", Outcome::Answered { status: 200 }, Some(pointer(9))),
        ("busy", retry(5_000), Some(pointer(9))),
        ("private", private, None),
    ];
    let again = |failure| Outcome::Retry { failure, status: None, not_before: Wall(1_000) };
    for with_snapshot in [false, true] {
        let disk = disk();
        let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
        for (name, outcome, capture) in &cases {
            let record = settled(&format!("http://a.example/{name}"), outcome.clone());
            let record = Record::Settled(Settled { attempts: 2, capture: *capture, ..record });
            write(&mut store, &mut journal, &record);
        }
        if with_snapshot {
            snapshot(&mut store, &mut journal).unwrap();
        }
        let mut told = Told { lost_files: vec![9], looks_back: true, forgives: true, ..Told::default() };
        EmbeddedStore::open(disk, Path::new(DIR), FrontierOptions::default(), &mut told).unwrap();
        let lost: &[&str] =
            if with_snapshot { &["http://a.example/lost", "http://a.example/private"] } else { &[] };
        assert_eq!(told.taken_back, lost);
        let attempt = |(_, record): &(u64, Record)| match record {
            Record::Settled(settled) => Some((settled.attempts, settled.outcome.clone(), settled.capture)),
            _ => None,
        };
        let replayed: Vec<_> = told.records.iter().filter_map(attempt).collect();
        assert_eq!(
            replayed,
            [
                (2, Outcome::Answered { status: 200 }, Some(pointer(7))),
                (1, again(Failure::NotTried), None),
                (2, retry(5_000), None),
                (2, again(Failure::PrivateAddress), None),
            ]
        );
    }
}

#[test]
fn pruning_drops_what_was_offered_lately_and_what_is_repeated() {
    let (mut store, mut journal, _) = open(disk(), StoreLimits { max_depth: 5, ..NO_LIMITS }).unwrap();
    write(&mut store, &mut journal, &seeds(["http://a.example/known"]));
    let mut page = settled("http://a.example/", Outcome::Answered { status: 200 });
    page.found = vec![
        found("http://a.example/known", 1),
        found("http://a.example/new", 9),
        found("http://a.example/new", 9),
        found("http://a.example/n%65w", 2),
        found("http://a.example/n%65w", 2),
        found("http://b.example/known", 1),
    ];
    let mut pruned = Record::Settled(page.clone());
    store.prune(&mut pruned);
    let left: Vec<(&str, u16)> =
        pruned.found().iter().map(|found| (found.url.as_str(), found.depth)).collect();
    assert_eq!(
        left,
        [("http://a.example/new", 9), ("http://a.example/n%65w", 2), ("http://b.example/known", 1)]
    );

    let admitted = write_decided(&mut store, &mut journal, &pruned);
    assert_eq!(admitted.new, [(host("a.example"), 1), (host("b.example"), 1)]);
    assert_eq!((admitted.known, admitted.over.depth), (0, 1));
    let taken = store.take(&host("a.example"), 9, false, Wall(0)).unwrap();
    assert_eq!(texts(&taken), ["http://a.example/known", "http://a.example/n%65w"]);
    assert_eq!(taken.due[1].via.as_deref(), Some("http://a.example/"));
    // What is offered nearer to a seed than before is new to the queue.
    for (depth, left) in [(3, 0), (2, 0), (1, 1)] {
        let mut nearer = Record::Seeds(vec![found("http://a.example/n%65w", depth)]);
        store.prune(&mut nearer);
        assert_eq!(nearer.found().len(), left, "{depth}");
    }
    // An agent that is gone may have been the only one that knew it.
    let mut again = seeds(["http://a.example/known"]);
    store.prune(&mut again);
    assert_eq!(again.found().len(), 0);
    store.prune(&mut Record::Members(Members::default()));
    let mut again = seeds(["http://a.example/known"]);
    store.prune(&mut again);
    assert_eq!(again.found().len(), 1);
}

/// A queue that cannot be read is an error, and everything is still there afterwards.
#[test]
fn a_failed_take_loses_nothing() {
    const URLS: u64 = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(nephila_disk::RealDisk);
    let options = FrontierOptions::default();
    let (mut store, mut journal) =
        EmbeddedStore::open(Arc::clone(&disk), dir.path(), options, &mut ()).unwrap();
    // More than is kept in memory, and packs badly.
    let noise = |number: u64| {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let page = |number: u64| {
        let parts: Vec<String> = (0..6).map(|part| format!("{:016x}", noise(number * 6 + part))).collect();
        format!("http://a.example/{number}/{}", parts.concat())
    };
    write(&mut store, &mut journal, &seeds((0..URLS).map(page)));
    let a = host("a.example");
    store.take(&a, 10, false, Wall(0)).unwrap();
    let chunks = dir.path().join("store/chunks-00000000");
    let bytes = std::fs::read(&chunks).unwrap();
    // The chunks that are read next are not the first of the file: the queue begins in memory.
    std::fs::write(&chunks, vec![0; bytes.len()]).unwrap();
    let failed = (0..URLS).find_map(|_| match store.take(&a, 3, false, Wall(0)) {
        Ok(more) => {
            assert!(!more.due.is_empty());
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(failed.unwrap().kind(), nephila_store::ErrorKind::Format);
    std::fs::write(&chunks, bytes).unwrap();
    assert!(store.has_failed());
    assert!(store.take(&a, 3, false, Wall(0)).is_err(), "it may be half done");
    assert!(snapshot(&mut store, &mut journal).is_err());
    drop((store, journal));
    let (mut store, _) = EmbeddedStore::open(disk, dir.path(), options, &mut ()).unwrap();
    let mut taken = BTreeSet::new();
    loop {
        let more = store.take(&a, 1_000, false, Wall(0)).unwrap().due;
        if more.is_empty() {
            break;
        }
        let texts = more.into_iter().map(|due| String::from(due.url));
        assert!(texts.into_iter().all(|url| taken.insert(url)), "each once");
    }
    assert_eq!(taken.len() as u64, URLS);
}

/// What could not be decided because the journal could not be read is not written down as if it had been.
#[test]
fn after_a_failed_decision_there_is_no_snapshot() {
    const LINKS: u64 = 500;
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(nephila_disk::RealDisk);
    // Without filters every link waits for a decision, and its text is read again for that.
    let options = FrontierOptions { filter_bytes_max: 0, block_urls_max: 50, ..FrontierOptions::default() };
    let open = || EmbeddedStore::open(Arc::clone(&disk), dir.path(), options, &mut ()).unwrap();
    let (mut store, mut journal) = open();
    let link = |number: u64| format!("http://h{}.example/{number}", number % 7);
    write_decided(&mut store, &mut journal, &seeds((0..LINKS).map(link)));
    snapshot(&mut store, &mut journal).unwrap();
    let place = journal.end();
    let admitted = write(&mut store, &mut journal, &seeds((LINKS..2 * LINKS).map(link)));
    assert!(admitted.undecided > 0, "{admitted:?}");
    drop((store, journal));
    let (mut store, mut journal) = open();
    let segment = dir.path().join("store/journal-000000000000");
    let bytes = std::fs::read(&segment).unwrap();
    let mut damaged = bytes.clone();
    damaged[place as usize + 100] ^= 1;
    std::fs::write(&segment, damaged).unwrap();
    let failed = store.decide().unwrap_err();
    assert_eq!(failed.kind(), nephila_store::ErrorKind::Format, "{failed}");
    std::fs::write(&segment, bytes).unwrap();
    let refused = [
        store.tidy().unwrap_err(),
        store.decide().unwrap_err(),
        store.settle(0, &settled("http://a.example/", Outcome::Answered { status: 200 })).unwrap_err(),
        snapshot(&mut store, &mut journal).unwrap_err(),
    ];
    for error in refused {
        assert!(error.to_string().contains(&failed.to_string()), "{error}");
        assert_eq!(error.kind(), failed.kind());
    }
    drop((store, journal));
    let (mut store, _) = open();
    store.decide().unwrap();
    assert_eq!(store.stored().known, 2 * LINKS);
    let mut due = 0;
    store.hosts(&mut |stored| due += stored.due).unwrap();
    assert_eq!(due, 2 * LINKS);
}

#[test]
fn where_a_seed_leads_is_written_down_even_if_it_is_known() {
    let (mut store, mut journal, _) = open(disk(), NO_LIMITS).unwrap();
    write(&mut store, &mut journal, &Record::Seeds(vec![found("http://a.example/", 0)]));
    let seed = |url: &str| Found { how: How::Seed, ..found(url, 0) };
    let mut page = settled("http://b.example/", Outcome::Answered { status: 301 });
    page.found = vec![seed("http://a.example/")];
    let mut record = Record::Settled(page);
    store.prune(&mut record);
    assert_eq!(record.found(), [seed("http://a.example/")]);
    // The seeds of a run are given to the scope at every start: there is no need to write them twice.
    let mut seeds = Record::Seeds(vec![seed("http://a.example/")]);
    store.prune(&mut seeds);
    assert_eq!(seeds.found(), []);
}

/// What the owner gave to the last snapshot is there at the next start, and only what came after it is read again.
#[test]
fn a_memo_stands_for_the_records_before_it() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    write(&mut store, &mut journal, &seeds(["http://a.example/", "http://b.example/"]));
    snapshot(&mut store, &mut journal).unwrap();
    let later = Record::Settled(settled("http://a.example/", Outcome::Answered { status: 200 }));
    write(&mut store, &mut journal, &later);
    journal.sync().unwrap();
    drop((store, journal));
    for looks_back in [false, true] {
        let mut told = Told { looks_back, ..Told::default() };
        let options = nephila_store::FrontierOptions::default();
        let store =
            EmbeddedStore::open_read_only(Arc::clone(&disk), Path::new(DIR), options, &mut told).unwrap();
        assert_eq!((store.stored().known, store.stored().queued, store.stored().hosts), (2, 1, 2));
        assert_eq!(told.memo.as_deref(), Some(MEMO));
        let records: Vec<&Record> = told.records.iter().map(|(_, record)| record).collect();
        assert_eq!(records.len(), 1 + usize::from(looks_back));
        assert_eq!(records.last(), Some(&&later));
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
            ..StoreLimits::NONE
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

/// What was given to another site is known, in this store and in one that takes it over, until it is returned: then it is queued,
/// once, and what is done stays done.
#[test]
fn what_was_sent_is_known_until_it_is_returned() {
    let page = "http://a.example/1";
    let fetched = "http://a.example/2";
    let (a, partition) = (host("a.example"), partition_of(&host("a.example")));
    let arrived = |how: How| {
        let found: Vec<Found> = [page, fetched].map(|url| Found { how, ..found(url, 1) }).to_vec();
        let pages = vec![(None, 2)];
        Record::Arrived(Arrived { from: AgentId::from(1), site: None, found, pages, totals: Vec::new() })
    };
    let sent = Outcome::Sent { to: "lima".to_owned() };
    let answered = Outcome::Answered { status: 404 };
    let disk = SimDisk::new(3);
    let (mut store, mut journal, _) = open(Arc::new(disk.clone()), NO_LIMITS).unwrap();
    write_decided(&mut store, &mut journal, &arrived(How::Link));
    assert_eq!(store.take(&a, 9, false, Wall(0)).unwrap().due.len(), 2);
    write(&mut store, &mut journal, &Record::Settled(settled(page, sent)));
    write(&mut store, &mut journal, &Record::Settled(settled(fetched, answered)));
    let figures = |store: &EmbeddedStore| (store.stored().known, store.stored().queued);
    assert_eq!(figures(&store), (2, 0));
    // A store that takes it over.
    let Exported { moved, next: None, .. } = store.export(&[partition], None).unwrap() else { panic!() };
    let (mut other, mut others, _) = open(Arc::new(SimDisk::new(4)), NO_LIMITS).unwrap();
    write_decided(&mut other, &mut others, &Record::Moved { from: AgentId::from(1), moved });
    for (store, journal, disk) in [(&mut store, &mut journal, Some(disk)), (&mut other, &mut others, None)] {
        write_decided(store, journal, &arrived(How::Link));
        assert_eq!(figures(store), (2, 0), "found again, it is not queued again");
        let returned = arrived(How::Link.returned(0));
        let place = journal.append(&returned).unwrap();
        journal.flush().unwrap();
        let admitted = store.admit(place, &returned, None).unwrap();
        assert_eq!((admitted.new, admitted.moved), (vec![(a.clone(), 1)], (-1, 0)));
        write_decided(store, journal, &returned);
        assert_eq!(figures(store), (2, 1));
        let known = store.find(&url(page)).unwrap().unwrap().0;
        assert!(matches!(known.state, KnownState::Queued), "{:?}", known.state);
        // Another site tried it twice before it gave it back, too.
        write_decided(store, journal, &arrived(How::Link.returned(2)));
        let mut again = disk.map(|disk| open(Arc::new(disk.kill()), NO_LIMITS).unwrap().0);
        let store = again.as_mut().unwrap_or(store);
        assert_eq!(figures(store), (2, 1));
        let due = store.take(&a, 9, false, Wall(0)).unwrap().due;
        assert_eq!(due.iter().map(|due| (due.url.as_str(), due.attempts)).collect::<Vec<_>>(), [(page, 2)]);
    }
}
