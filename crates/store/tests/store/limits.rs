//! Limits, retries, lost captures and pruning, one rule at a time.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nephila_core::agent::{Admitted, OverLimit};
use nephila_core::record::{Failure, Found, How, Outcome, Record, RobotsOutcome, RobotsRecord};
use nephila_core::time::Wall;
use nephila_core::url::Origin;
use nephila_disk::{Disk, SimDisk};
use nephila_store::{EmbeddedStore, FrontierOptions, KnownState, Store, StoreLimits};

use crate::samples::*;

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
            let limits = StoreLimits { max_depth, max_host_pages, max_urls };
            let (mut store, mut journal, records) = open(Arc::clone(&disk), limits).unwrap();
            if records.is_empty() {
                let answer = write_decided(&mut store, &mut journal, &found);
                let over = OverLimit { depth: 1, host: 1, urls: 1 };
                let new = vec![(host("a.example"), 2), (host("b.example"), 1)];
                assert_eq!(answer, Admitted { new, known: 1, over, undecided: 0, hosts: answer.hosts });
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

#[test]
fn a_settled_url_stays_known_when_limits_are_lowered() {
    for with_snapshot in [false, true] {
        let disk = disk();
        let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
        let pages = ["http://a.example/1", "http://a.example/2"];
        write(&mut store, &mut journal, &Record::Seeds(pages.map(|page| found(page, 9)).to_vec()));
        let mut done = settled(pages[0], Outcome::Answered { status: 200 });
        done.depth = 9;
        write(&mut store, &mut journal, &Record::Settled(done.clone()));
        let mut again = settled(pages[1], retry(50));
        again.depth = 9;
        write(&mut store, &mut journal, &Record::Settled(again));
        if with_snapshot {
            snapshot(&mut store, &mut journal).unwrap();
        }

        let (mut store, _, _) = open(disk, StoreLimits { max_depth: 1, ..NO_LIMITS }).unwrap();
        store.decide().unwrap();
        assert_eq!((store.stored().known, store.stored().queued), (2, 1));
        let known = store.look_up(&url(pages[0])).unwrap().unwrap();
        assert_eq!((known.found.depth, known.via), (9, None));
        assert_eq!(known.state, KnownState::Settled(Box::new(done)));
        let taken = store.take(&host("a.example"), 9, false, Wall(50)).unwrap();
        assert_eq!(texts(&taken), [pages[1]]);
        assert_eq!((taken.due[0].depth, taken.due[0].attempts), (9, 1));
    }
}

#[test]
fn retries_first_then_by_depth_then_in_order() {
    let disk = disk();
    let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    let page = |name: &str| format!("http://a.example/{name}");
    let of = |pages: &[(&str, u16)]| {
        Record::Seeds(pages.iter().map(|(name, depth)| found(&page(name), *depth)).collect())
    };
    let a = host("a.example");
    write(&mut store, &mut journal, &of(&[("r", 0), ("s", 5)]));
    assert_eq!(store.take(&a, 9, false, Wall(0)).unwrap().due.len(), 2);
    write(&mut store, &mut journal, &of(&[("d", 2), ("a", 1), ("e", 2), ("b", 1)]));
    write(&mut store, &mut journal, &Record::Settled(settled(&page("r"), retry(200))));
    write(&mut store, &mut journal, &Record::Settled(settled(&page("s"), retry(100))));

    let taken = store.take(&a, 1, false, Wall(99)).unwrap();
    assert_eq!(texts(&taken), [page("a")]);
    assert_eq!((taken.left, taken.next), (3, Some(Wall(100))));
    store.put_back(&a, &taken.due).unwrap();
    let taken = store.take(&a, 5, false, Wall(150)).unwrap();
    assert_eq!(texts(&taken), ["a", "s", "b", "d", "e"].map(page));
    assert_eq!((taken.left, taken.next), (0, Some(Wall(200))));
    drop((store, journal));

    // The order in which URLs come back does not outlive the process; that of the others does.
    for (fresh_first, expected) in
        [(false, ["s", "r", "a", "b", "d"].map(page)), (true, ["a", "b", "d", "e", "s"].map(page))]
    {
        let (mut store, ..) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
        let taken = store.take(&a, 5, fresh_first, Wall(250)).unwrap();
        assert_eq!(texts(&taken), expected);
        assert_eq!(taken.next, None);
        let rest = store.take(&a, 5, fresh_first, Wall(250)).unwrap();
        assert_eq!((rest.due.len(), rest.left), (1, 0));
        assert!(store.take(&host("nobody.example"), 5, false, Wall(0)).unwrap().due.is_empty());
    }
}

/// What is found nearer to a seed than before is due earlier, once.
#[test]
fn a_url_that_is_found_nearer_moves_up() {
    for with_snapshot in [false, true] {
        let disk = disk();
        let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
        let page = |name: &str| format!("http://a.example/{name}");
        let seeds = [("a", 2), ("b", 3), ("c", 3)].map(|(name, depth)| found(&page(name), depth));
        write(&mut store, &mut journal, &Record::Seeds(seeds.to_vec()));
        let mut nearer = settled(&page("p"), Outcome::Answered { status: 200 });
        nearer.found = vec![found(&page("c"), 1), found(&page("b"), 9)];
        let answer = write_decided(&mut store, &mut journal, &Record::Settled(nearer));
        assert_eq!((answer.known, answer.new), (2, vec![]));
        if with_snapshot {
            snapshot(&mut store, &mut journal).unwrap();
        }
        let (reopened, ..) = open(disk, NO_LIMITS).unwrap();
        for mut store in [store, reopened] {
            store.decide().unwrap();
            let taken = store.take(&host("a.example"), 9, false, Wall(0)).unwrap();
            assert_eq!(texts(&taken), ["c", "a", "b"].map(page));
            let due = &taken.due[0];
            assert_eq!((due.depth, due.via.as_deref()), (1, Some("http://a.example/p")));
            assert_eq!((store.stored().known, store.stored().queued), (4, 3));
        }
    }
}

#[test]
fn put_back_goes_to_the_head_in_order_and_leaves_the_settled_alone() {
    let (mut store, mut journal, _) = open(disk(), NO_LIMITS).unwrap();
    let a = host("a.example");
    write(&mut store, &mut journal, &seeds((0..6).map(|number| format!("http://a.example/{number}"))));
    let taken = store.take(&a, 4, false, Wall(0)).unwrap();
    let done = settled("http://a.example/1", Outcome::Answered { status: 200 });
    write(&mut store, &mut journal, &Record::Settled(done));
    store.put_back(&a, &taken.due).unwrap();
    store.put_back(&a, &taken.due).unwrap();
    let taken = store.take(&a, 9, false, Wall(0)).unwrap();
    assert_eq!(texts(&taken), [0, 2, 3, 4, 5].map(|number| format!("http://a.example/{number}")));
    store.decide().unwrap();
    assert_eq!(store.stored().queued, 5);
}

#[test]
fn a_page_whose_capture_is_lost_is_due_again_and_its_links_stay() {
    for with_snapshot in [false, true] {
        lose_a_capture(with_snapshot);
    }
}

fn lose_a_capture(with_snapshot: bool) {
    let disk = disk();
    let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    write(
        &mut store,
        &mut journal,
        &seeds(["http://a.example/kept", "http://a.example/lost", "http://a.example/busy"]),
    );
    for (name, outcome, file) in [
        ("kept", Outcome::Answered { status: 200 }, 7),
        ("lost", Outcome::Answered { status: 200 }, 9),
        ("busy", retry(5_000), 9),
    ] {
        let mut record = settled(&format!("http://a.example/{name}"), outcome);
        record.attempts = 2;
        record.capture = Some(pointer(file));
        record.found = vec![found(&format!("http://b.example/{name}"), 1)];
        write(&mut store, &mut journal, &Record::Settled(record));
    }
    if with_snapshot {
        snapshot(&mut store, &mut journal).unwrap();
    }

    let mut told = Told { lost_files: vec![9], looks_back: true, ..Told::default() };
    let (mut store, _) =
        EmbeddedStore::open(Arc::clone(&disk), Path::new(DIR), FrontierOptions::default(), &mut told)
            .unwrap();
    let attempt = |(_, record): &(u64, Record)| match record {
        Record::Settled(settled) => Some((settled.attempts, settled.outcome.clone(), settled.capture)),
        _ => None,
    };
    let replayed: Vec<_> = told.records.iter().filter_map(attempt).collect();
    let lost: &[&str] = if with_snapshot { &["http://a.example/lost"] } else { &[] };
    assert_eq!(told.taken_back, lost);
    let uncounted = Outcome::Retry { failure: Failure::NotTried, status: None, not_before: Wall(1_000) };
    assert_eq!(
        replayed,
        [
            (2, Outcome::Answered { status: 200 }, Some(pointer(7))),
            (1, uncounted.clone(), None),
            (2, retry(5_000), None),
        ]
    );
    store.decide().unwrap();
    assert_eq!((store.stored().known, store.stored().queued), (6, 5));
    let lost = store.look_up(&url("http://a.example/lost")).unwrap().unwrap();
    let KnownState::Retry { not_before: Wall(1_000), attempts: 1, last } = lost.state else {
        panic!("{lost:?}")
    };
    assert_eq!((last.outcome, last.capture), (uncounted, None));
    let taken = store.take(&host("a.example"), 9, false, Wall(1_000)).unwrap();
    assert_eq!(texts(&taken), ["http://a.example/lost"]);
    assert_eq!((taken.due[0].attempts, taken.next), (1, Some(Wall(5_000))));
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
}

#[test]
fn urls_are_the_same_only_within_a_host() {
    let (mut store, mut journal, _) = open(disk(), NO_LIMITS).unwrap();
    let spellings = ["http://a.example/~x", "http://A.example:80/%7Ex#y", "http://u:p@a.example/~x?"];
    let others = ["https://a.example/~x", "http://a.example:81/~x", "http://b.example/~x"];
    let admitted = write_decided(&mut store, &mut journal, &seeds(spellings.iter().chain(&others)));
    assert_eq!(admitted.known, 2);
    assert_eq!(admitted.new, [(host("a.example"), 3), (host("b.example"), 1)]);
    for text in spellings {
        assert_eq!(store.look_up(&url(text)).unwrap().unwrap().found.url, spellings[0]);
    }
    assert_eq!(store.look_up(&url("http://b.example/")).unwrap(), None);
    let taken = store.take(&host("a.example"), 9, false, Wall(0)).unwrap();
    assert_eq!(taken.due.len(), 3);
    // Found nearer under another name while it is under way: it is not handed over again, and settled under either.
    let nearer = found("http://a.example/%7ex", 0);
    let deep = found("http://c.example/~x", 5);
    write_decided(&mut store, &mut journal, &Record::Seeds(vec![deep.clone()]));
    let c = host("c.example");
    let taken = store.take(&c, 9, false, Wall(0)).unwrap();
    assert_eq!(texts(&taken), [deep.url.as_str()]);
    let nearer = Found { url: nearer.url.replace("a.example", "c.example"), ..nearer };
    write_decided(&mut store, &mut journal, &Record::Seeds(vec![nearer.clone()]));
    assert_eq!(store.take(&c, 9, false, Wall(0)).unwrap().due, []);
    write(&mut store, &mut journal, &Record::Settled(settled(&nearer.url, retry(10))));
    store.put_back(&c, &taken.due).unwrap();
    assert_eq!(store.take(&c, 9, false, Wall(9)).unwrap().due, []);
    assert_eq!(store.take(&c, 9, false, Wall(10)).unwrap().due.len(), 1);
}

#[test]
fn a_url_comes_back_as_it_was_found() {
    let (mut store, mut journal, _) = open(disk(), NO_LIMITS).unwrap();
    // Longer than what is read at first.
    let long = |name: &str| format!("http://a.example/{name}/{}", "x".repeat(5_000));
    let new = |name: &str, how| Found { url: long(name), depth: 300, how, redirects: 7 };
    let origin = Origin::of(&url("https://[::1]:8443/"));
    let mut page = settled(&long("page"), Outcome::Answered { status: 200 });
    page.found = vec![new("link", How::Link), new("other", How::Redirect)];
    let robots = RobotsRecord {
        url: origin.robots_url().into(),
        origin,
        at: Wall(1),
        took: Duration::from_secs(1),
        bytes: 5,
        status: Some(200),
        outcome: RobotsOutcome::None { fresh_until: Wall(2) },
        capture: Some(pointer(1)),
        found: vec![new("sitemap", How::Sitemap)],
    };
    write(&mut store, &mut journal, &Record::Seeds(vec![new("page", How::Seed)]));
    write(&mut store, &mut journal, &Record::Settled(page));
    write(&mut store, &mut journal, &Record::Robots(robots));
    let taken = store.take(&host("a.example"), 9, false, Wall(0)).unwrap();
    for due in &taken.due {
        let known = store.look_up(&due.url).unwrap().unwrap();
        assert_eq!((known.found.depth, known.found.redirects, known.state), (300, 7, KnownState::Taken));
        assert_eq!((known.found.how, &known.via), (due.how, &due.via));
        assert_eq!((due.depth, due.redirects, due.attempts), (300, 7, 0));
    }
    let taken: Vec<(String, How, Option<String>)> =
        taken.due.into_iter().map(|due| (due.url.into(), due.how, due.via)).collect();
    assert_eq!(
        taken,
        [
            (long("link"), How::Link, Some(long("page"))),
            (long("other"), How::Redirect, Some(long("page"))),
            (long("sitemap"), How::Sitemap, Some("https://[::1]:8443/robots.txt".into())),
        ]
    );
}

/// A queue that cannot be read is an error, and everything is still there afterwards.
#[test]
fn a_failed_take_loses_nothing() {
    const URLS: u64 = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(nephila_disk::RealDisk);
    let options = FrontierOptions::default();
    let (mut store, mut journal) = EmbeddedStore::open(disk, dir.path(), options, &mut ()).unwrap();
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
    let mut taken = store.take(&a, 10, false, Wall(0)).unwrap().due;
    let chunks = dir.path().join("store/chunks-00000000");
    let bytes = std::fs::read(&chunks).unwrap();
    // The chunks that are read next are not the first of the file: the queue begins in memory.
    std::fs::write(&chunks, vec![0; bytes.len()]).unwrap();
    let failed = (0..URLS).find_map(|_| match store.take(&a, 3, false, Wall(0)) {
        Ok(more) => {
            assert!(!more.due.is_empty());
            taken.extend(more.due);
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(failed.unwrap().kind(), nephila_store::ErrorKind::Format);
    assert!(store.take(&a, 3, false, Wall(0)).is_err());
    let mut due = 0;
    store.hosts(&mut |stored| due += stored.due).unwrap();
    assert_eq!(due, URLS - taken.len() as u64);
    std::fs::write(&chunks, bytes).unwrap();
    loop {
        let more = store.take(&a, 1_000, false, Wall(0)).unwrap().due;
        if more.is_empty() {
            break;
        }
        taken.extend(more);
    }
    assert_eq!(taken.len() as u64, URLS);
    let taken: BTreeSet<String> = taken.into_iter().map(|due| due.url.into()).collect();
    assert_eq!(taken.len() as u64, URLS, "each once");
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
