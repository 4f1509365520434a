//! Limits, retries, lost captures and pruning, one rule at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nephila_core::agent::{Admitted, OverLimit};
use nephila_core::record::{Failure, Found, How, Outcome, Record, RobotsOutcome, RobotsRecord};
use nephila_core::time::Wall;
use nephila_core::url::Origin;
use nephila_disk::{Disk, SimDisk};
use nephila_store::{KnownState, Store, StoreLimits};

use crate::samples::*;

fn disk() -> Arc<dyn Disk> {
    Arc::new(SimDisk::new(3))
}

fn retry(not_before: u64) -> Outcome {
    Outcome::Retry { failure: Failure::Timeout, status: None, not_before: Wall(not_before) }
}

fn texts(taken: &nephila_core::agent::Taken) -> Vec<&str> {
    taken.due.iter().map(|due| due.url.as_str()).collect()
}

#[test]
fn what_a_limit_kept_out_comes_back_when_it_is_raised() {
    let disk = disk();
    let found = Record::Seeds(vec![
        found("http://a.example/1", 0),
        found("http://a.example/deep", 3),
        found("http://a.example/2", 1),
        found("http://a.example/1#again", 2),
        found("http://a.example/3", 1),
        found("http://b.example/1", 2),
        found("http://c.example/1", 2),
    ]);
    let mut admitted = Vec::new();
    for (max_depth, max_host_pages, max_urls) in
        [(2, 2, 3), (3, 2, 3), (3, 4, 3), (3, 4, 9), (9, 9, 9), (0, 9, 9)]
    {
        let limits = StoreLimits { max_depth, max_host_pages, max_urls };
        let (mut store, mut journal, records) = open(Arc::clone(&disk), limits).unwrap();
        if records.is_empty() {
            let answer = write(&mut store, &mut journal, &found);
            let over = OverLimit { depth: 1, host: 1, urls: 1 };
            let new = vec![(host("a.example"), 2), (host("b.example"), 1)];
            assert_eq!(answer, Admitted { new, known: 1, over });
        }
        let hosts: Vec<(String, u64)> =
            store.hosts().map(|(host, queue)| (host.to_string(), queue.known)).collect();
        let hosts: Vec<String> = hosts.iter().map(|(host, known)| format!("{host} {known}")).collect();
        admitted.push(hosts.join(", "));
    }
    assert_eq!(
        admitted,
        [
            "a.example 2, b.example 1",
            "a.example 2, b.example 1",
            "a.example 3",
            "a.example 4, b.example 1, c.example 1",
            "a.example 4, b.example 1, c.example 1",
            "a.example 1",
        ]
    );
}

#[test]
fn a_settled_url_stays_known_when_limits_are_lowered() {
    let disk = disk();
    let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    write(
        &mut store,
        &mut journal,
        &Record::Seeds(vec![found("http://a.example/1", 9), found("http://a.example/2", 9)]),
    );
    let mut done = settled("http://a.example/1", Outcome::Answered { status: 200 });
    done.depth = 9;
    write(&mut store, &mut journal, &Record::Settled(done.clone()));
    let mut again = settled("http://a.example/2", retry(50));
    again.depth = 9;
    write(&mut store, &mut journal, &Record::Settled(again.clone()));

    let (mut store, _, _) = open(disk, StoreLimits { max_depth: 1, ..NO_LIMITS }).unwrap();
    assert_eq!((store.known_urls(), store.queued()), (2, 1));
    let known = store.look_up(&url("http://a.example/1")).unwrap().unwrap();
    assert_eq!((known.found.depth, known.via), (9, None));
    assert_eq!(known.state, KnownState::Settled(Box::new(done)));
    let taken = store.take(&host("a.example"), 9, false, Wall(50)).unwrap();
    assert_eq!(texts(&taken), ["http://a.example/2"]);
    assert_eq!((taken.due[0].depth, taken.due[0].attempts), (9, 1));
}

#[test]
fn retries_first_then_by_depth_then_in_order() {
    let disk = disk();
    let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    let page = |name: &str| format!("http://a.example/{name}");
    let pages = [("d", 2), ("a", 1), ("e", 2), ("r", 0), ("b", 1), ("s", 5)];
    let seeds = Record::Seeds(pages.iter().map(|(name, depth)| found(&page(name), *depth)).collect());
    write(&mut store, &mut journal, &seeds);
    write(&mut store, &mut journal, &Record::Settled(settled(&page("r"), retry(200))));
    write(&mut store, &mut journal, &Record::Settled(settled(&page("s"), retry(100))));
    let a = host("a.example");

    let taken = store.take(&a, 1, false, Wall(99)).unwrap();
    assert_eq!(texts(&taken), [page("a")]);
    assert_eq!((taken.left, taken.next), (3, Some(Wall(100))));
    store.put_back(&a, taken.due);

    for (mut store, now, left, next) in
        [(store, 150, 0, Some(Wall(200))), (open(Arc::clone(&disk), NO_LIMITS).unwrap().0, 250, 1, None)]
    {
        let taken = store.take(&a, 5, false, Wall(now)).unwrap();
        let expected = if now == 150 { ["a", "s", "b", "d", "e"] } else { ["s", "r", "a", "b", "d"] };
        assert_eq!(texts(&taken), expected.map(page));
        assert_eq!((taken.left, taken.next), (left, next));
        let rest = store.take(&a, 5, false, Wall(now)).unwrap();
        assert_eq!(rest.due.len() as u64, left);
        assert_eq!(rest.left, 0);
    }
    let (mut store, ..) = open(disk, NO_LIMITS).unwrap();
    assert!(store.take(&host("nobody.example"), 5, false, Wall(0)).unwrap().due.is_empty());
}

#[test]
fn put_back_goes_to_the_head_in_order_and_leaves_the_settled_alone() {
    let (mut store, mut journal, _) = open(disk(), NO_LIMITS).unwrap();
    let a = host("a.example");
    write(&mut store, &mut journal, &seeds((0..6).map(|number| format!("http://a.example/{number}"))));
    let taken = store.take(&a, 4, false, Wall(0)).unwrap();
    let done = settled("http://a.example/1", Outcome::Answered { status: 200 });
    write(&mut store, &mut journal, &Record::Settled(done));
    store.put_back(&a, taken.due.clone());
    store.put_back(&a, taken.due);
    let taken = store.take(&a, 9, false, Wall(0)).unwrap();
    assert_eq!(texts(&taken), [0, 2, 3, 4, 5].map(|number| format!("http://a.example/{number}")));
    assert_eq!(store.queued(), 5);
}

#[test]
fn a_page_whose_capture_is_lost_is_due_again_and_its_links_stay() {
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
    assert_eq!(store.archive_serial_max(), None, "as it was when the store was opened");

    let mut replayed = Vec::new();
    let (mut store, _) = Store::open(
        Arc::clone(&disk),
        Path::new(DIR),
        NO_LIMITS,
        &|pointer| pointer.file != 9,
        &mut |_, record| {
            if let Record::Settled(settled) = record {
                replayed.push((settled.attempts, settled.outcome.clone(), settled.capture));
            }
        },
    )
    .unwrap();
    let uncounted = Outcome::Retry { failure: Failure::NotTried, status: None, not_before: Wall(1_000) };
    assert_eq!(
        replayed,
        [
            (2, Outcome::Answered { status: 200 }, Some(pointer(7))),
            (1, uncounted.clone(), None),
            (2, retry(5_000), None),
        ]
    );
    assert_eq!(store.archive_serial_max(), Some(9));
    assert_eq!((store.known_urls(), store.queued()), (6, 5));
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
fn pruning_drops_what_is_known_and_what_is_repeated() {
    let (mut store, mut journal, _) = open(disk(), StoreLimits { max_depth: 5, ..NO_LIMITS }).unwrap();
    write(&mut store, &mut journal, &seeds(["http://a.example/known"]));
    let mut page = settled("http://a.example/", Outcome::Answered { status: 200 });
    page.found = vec![
        found("http://a.example/known", 1),
        found("http://a.example/%6bnown", 1),
        found("http://a.example/new", 9),
        found("http://a.example/new", 9),
        found("http://a.example/n%65w", 2),
        found("http://a.example/new", 2),
        found("http://b.example/known", 1),
        found("not a url", 1),
    ];
    let mut pruned = Record::Settled(page.clone());
    store.prune(&mut pruned);
    let left: Vec<(&str, u16)> =
        pruned.found().iter().map(|found| (found.url.as_str(), found.depth)).collect();
    assert_eq!(
        left,
        [("http://a.example/new", 9), ("http://a.example/n%65w", 2), ("http://b.example/known", 1)]
    );

    let admitted = write(&mut store, &mut journal, &pruned);
    assert_eq!(admitted.new, [(host("a.example"), 1), (host("b.example"), 1)]);
    assert_eq!((admitted.known, admitted.over.depth), (0, 1));
    let taken = store.take(&host("a.example"), 9, false, Wall(0)).unwrap();
    assert_eq!(texts(&taken), ["http://a.example/known", "http://a.example/n%65w"]);
    assert_eq!(taken.due[1].via.as_deref(), Some("http://a.example/"));
}

#[test]
fn urls_are_the_same_only_within_a_host() {
    let (mut store, mut journal, _) = open(disk(), NO_LIMITS).unwrap();
    let spellings = ["http://a.example/~x", "http://A.example:80/%7Ex#y", "http://u:p@a.example/~x?"];
    let others = ["https://a.example/~x", "http://a.example:81/~x", "http://b.example/~x"];
    let admitted = write(&mut store, &mut journal, &seeds(spellings.iter().chain(&others)));
    assert_eq!(admitted.known, 2);
    assert_eq!(admitted.new, [(host("a.example"), 3), (host("b.example"), 1)]);
    for text in spellings {
        assert_eq!(store.look_up(&url(text)).unwrap().unwrap().found.url, spellings[0]);
    }
    assert_eq!(store.look_up(&url("http://b.example/")).unwrap(), None);
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

/// A URL that cannot be read back is an error, and the others are still there afterwards.
#[test]
fn a_failed_take_loses_nothing() {
    let sim = SimDisk::new(3);
    let (mut store, mut journal, _) = open(Arc::new(sim.clone()), NO_LIMITS).unwrap();
    write(&mut store, &mut journal, &seeds(["http://a.example/1", "http://a.example/2"]));
    let dead = sim.kill();
    assert!(store.take(&host("a.example"), 1, false, Wall(0)).is_err());
    let (_, queue) = store.hosts().next().unwrap();
    assert_eq!((queue.waiting, queue.due), (2, 2));
    drop(dead);
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
