//! One promise at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use nephila_core::agent::{Admitted, Due, OverLimit, StoredHost, Taken, Visited};
use nephila_core::frontier::{HostMemo, HostState};
use nephila_core::record::{
    Arrived, Failure, Found, How, Outcome, Record, RobotsOutcome, RobotsRecord, Settled,
};
use nephila_core::site::{AgentId, Moved, MovedHost, SeenUrl, Waiting};
use nephila_core::time::{Mono, Now, Wall};
use nephila_core::url::{Fingerprint, Host, Origin};
use nephila_store::{Known, KnownState, Store, StoreLimits};

use super::Harness;
use crate::samples::*;

/// How often each is tried.
pub(crate) const SEEDS: u64 = 6;
const LATE: Wall = Wall(1 << 50);

pub(super) fn page(name: &str) -> String {
    format!("http://a.example/{name}")
}

pub(super) fn a() -> Host {
    host("a.example")
}

/// Offers URLs of `a.example` one after another, each of which is decided before the next is offered.
fn offer<H: Harness>(harness: &mut H, pages: &[(&str, u16)]) -> Admitted {
    let mut said = Admitted::default();
    for (name, depth) in pages {
        add(&mut said, decided(harness, &Record::Seeds(vec![found(&page(name), *depth)])));
    }
    said
}

/// Tells a store of a record, and has everything decided.
pub(super) fn decided<H: Harness>(harness: &mut H, record: &Record) -> Admitted {
    let (_, mut said) = harness.tell(record);
    add(&mut said, harness.store().decide().unwrap());
    said
}

fn settle<H: Harness>(harness: &mut H, name: &str, outcome: Outcome) -> Settled {
    let settled = settled(&page(name), outcome);
    harness.tell(&Record::Settled(settled.clone()));
    settled
}

pub(super) fn done() -> Outcome {
    Outcome::Answered { status: 200 }
}

pub(super) fn names(taken: &Taken) -> Vec<&str> {
    taken.due.iter().map(|due| due.url.path().trim_start_matches('/')).collect()
}

pub(super) fn take<H: Harness>(harness: &mut H, max: usize, now: u64) -> Taken {
    harness.store().take(&a(), max, false, Wall(now)).unwrap()
}

/// Restarts, with and without having saved before.
pub(super) fn with_and_without_saving<H: Harness>(
    seed: u64,
    limits: StoreLimits,
    test: impl Fn(&mut H, &dyn Fn(&mut H)),
) {
    for saves in [false, true] {
        test(&mut H::new(seed, limits), &|harness| {
            if saves {
                harness.save();
            }
        });
    }
}

pub(crate) fn a_url_is_known_once<H: Harness>(seed: u64) {
    let mut harness = H::new(seed, NO_LIMITS);
    let spellings = ["http://a.example/~x", "http://A.example:80/%7Ex#y", "http://u:p@a.example/~x?"];
    let others = ["https://a.example/~x", "http://a.example:81/~x", "http://b.example/~x"];
    let mut said = decided(&mut harness, &seeds(spellings.iter().chain(&others)));
    assert_eq!(said.known, 2);
    said.new.sort();
    assert_eq!(said.new, [(a(), 3), (host("b.example"), 1)]);
    let store = harness.store();
    for text in spellings {
        assert_eq!(store.look_up(&url(text)).unwrap().unwrap().found.url, spellings[0]);
    }
    let taken = take(&mut harness, 9, 0);
    assert_eq!(taken.due.len(), 3);
    // While it is under way: it is not handed over again, and is settled under either name.
    let nearer = Found { how: How::Seed, ..found(spellings[1], 0) };
    assert_eq!(decided(&mut harness, &Record::Seeds(vec![nearer])).known, 1);
    assert_eq!(take(&mut harness, 9, 0).due, []);
    harness.tell(&Record::Settled(settled(spellings[1], retry(10))));
    harness.store().put_back(&a(), &taken.due[..1]).unwrap();
    assert_eq!(take(&mut harness, 9, 9).due, []);
    assert_eq!(take(&mut harness, 9, 10).due.len(), 1);
    assert_eq!(harness.store().stored().known, 4);
}

pub(crate) fn every_offer_is_answered_once<H: Harness>(seed: u64) {
    let mut random = Random(seed);
    let mut harness = H::new(seed, StoreLimits { max_depth: 2, ..NO_LIMITS });
    let (mut said, mut offers) = (Admitted::default(), 0);
    for _ in 0..60 {
        let mut found_one = || found(&page(&random.below(80).to_string()), random.below(4) as u16);
        let all: Vec<Found> = (0..3).map(|_| found_one()).collect();
        offers += all.len() as u64;
        add(&mut said, harness.tell(&Record::Seeds(all)).1);
    }
    add(&mut said, harness.store().decide().unwrap());
    let new: u64 = said.new.iter().map(|(_, count)| *count).sum();
    assert_eq!(new + said.known + said.over.depth, offers);
    let stored = harness.store().stored();
    assert_eq!((stored.known, stored.kept_out, stored.undecided), (new, said.over, 0));
    assert_eq!((said.over.host, said.over.urls, said.undecided), (0, 0, 0));
    assert!(!harness.store().decide().unwrap().is_news());
}

pub(crate) fn the_lowest_depth_comes_first_and_then_the_oldest<H: Harness>(seed: u64) {
    let mut harness = H::new(seed, NO_LIMITS);
    offer(&mut harness, &[("b", 2), ("a", 1), ("c", 2), ("d", 0), ("e", 1), ("f", 100)]);
    let taken = take(&mut harness, 3, 0);
    assert_eq!((names(&taken), taken.left, taken.next), (vec!["d", "a", "e"], 3, None));
    assert_eq!(names(&take(&mut harness, 9, 0)), ["b", "c", "f"]);
    let taken = take(&mut harness, 9, 0);
    assert_eq!((names(&taken), taken.left), (vec![], 0));
    let nobody = harness.store().take(&host("nobody.example"), 5, false, LATE).unwrap();
    assert_eq!((nobody.due, nobody.left, nobody.next), (vec![], 0, None));
}

pub(crate) fn what_comes_back_comes_first<H: Harness>(seed: u64) {
    let pages = [("r", 0), ("s", 5), ("t", 6), ("p", 7), ("q", 7)];
    let waiting = [("d", 2), ("a", 1), ("e", 2), ("b", 1)];
    for (fresh_first, expected) in [
        (false, ["p", "q", "s", "t", "r", "a", "b", "d", "e"]),
        (true, ["a", "b", "d", "e", "p", "q", "s", "t", "r"]),
    ] {
        let mut harness = H::new(seed, NO_LIMITS);
        offer(&mut harness, &pages);
        let taken = take(&mut harness, 9, 0);
        offer(&mut harness, &waiting);
        settle(&mut harness, "r", retry(200));
        settle(&mut harness, "s", retry(100));
        settle(&mut harness, "t", retry(100));
        harness.store().put_back(&a(), &taken.due[3..]).unwrap();
        let taken = harness.store().take(&a(), 9, fresh_first, Wall(250)).unwrap();
        assert_eq!(names(&taken), expected);
        assert_eq!((taken.left, taken.next), (0, None));
    }
}

pub(crate) fn a_url_that_is_found_nearer_moves_up<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        offer(harness, &[("a", 2), ("b", 3), ("c", 3)]);
        let mut nearer = settled(&page("p"), done());
        nearer.found = vec![found(&page("c"), 1), found(&page("b"), 9)];
        let said = decided(harness, &Record::Settled(nearer));
        assert_eq!((said.known, said.new), (2, vec![]));
        save(harness);
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        let taken = take(harness, 9, 0);
        assert_eq!(names(&taken), ["c", "a", "b"]);
        assert_eq!((taken.due[0].depth, taken.due[0].via.clone()), (1, Some(page("p"))));
        let stored = harness.store().stored();
        assert_eq!((stored.known, stored.queued, taken.left), (4, 3, 0));
    });
}

pub(crate) fn what_is_deferred_comes_back_in_its_time<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        offer(harness, &[("1", 0), ("2", 0)]);
        assert_eq!(names(&take(harness, 1, 0)), ["1"]);
        let mut again = settled(&page("1"), retry(100));
        (again.attempts, again.depth, again.how) = (3, 7, How::Redirect);
        harness.tell(&Record::Settled(again));
        save(harness);
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        let taken = take(harness, 9, 99);
        assert_eq!((names(&taken), taken.next), (vec!["2"], Some(Wall(100))));
        let taken = take(harness, 9, 100);
        assert_eq!((names(&taken), taken.next), (vec!["1"], None));
        let due = &taken.due[0];
        assert_eq!((due.attempts, due.depth, due.how), (3, 7, How::Redirect));
        settle(harness, "1", done());
        assert_eq!(names(&take(harness, 9, LATE.0)), [""; 0]);
        let stored = harness.store().stored();
        assert_eq!((stored.known, stored.queued), (2, 1));
    });
}

pub(crate) fn what_is_put_back_comes_first_and_what_is_settled_does_not<H: Harness>(seed: u64) {
    let mut harness = H::new(seed, NO_LIMITS);
    offer(&mut harness, &[("0", 0), ("1", 0), ("2", 0), ("3", 0), ("4", 0), ("5", 0)]);
    let taken = take(&mut harness, 4, 0);
    settle(&mut harness, "1", done());
    harness.store().put_back(&a(), &taken.due).unwrap();
    harness.store().put_back(&a(), &taken.due).unwrap();
    harness.store().put_back(&host("nobody.example"), &taken.due).unwrap();
    assert_eq!(names(&take(&mut harness, 9, 0)), ["0", "2", "3", "4", "5"]);
    assert_eq!(harness.store().stored().queued, 5);
}

pub(crate) fn what_was_taken_at_the_end_is_due_again<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        let all: Vec<String> = (0..30).map(|number: u64| page(&number.to_string())).collect();
        decided(harness, &seeds(&all));
        for number in 0..10 {
            let first = take(harness, 2, number);
            harness.store().put_back(&a(), &first.due[..1]).unwrap();
            let outcome = if number % 2 == 0 { done() } else { retry(number + 3) };
            harness.tell(&Record::Settled(settled(first.due[1].url.as_str(), outcome)));
        }
        take(harness, 5, 20);
        save(harness);
        take(harness, 5, 20);
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        assert_eq!(harness.store().stored().known, 30);
        let mut again = BTreeSet::new();
        loop {
            let taken = take(harness, 4, 100);
            if taken.due.is_empty() {
                break;
            }
            taken.due.into_iter().for_each(|due| assert!(again.insert(due.url.to_string()), "twice"));
        }
        assert_eq!(again.len() as u64, harness.store().stored().queued);
        for text in &all {
            let known = harness.store().look_up(&url(text)).unwrap().unwrap();
            assert_eq!(matches!(known.state, KnownState::Settled(_)), !again.contains(text), "{text}");
        }
    });
}

pub(crate) fn a_url_that_nobody_offered_can_be_settled<H: Harness>(seed: u64) {
    let mut harness =
        H::new(seed, StoreLimits { max_depth: 0, max_host_pages: 1, max_urls: 1, ..StoreLimits::NONE });
    settle(&mut harness, "done", done());
    settle(&mut harness, "again", retry(50));
    harness.store().decide().unwrap();
    let stored = harness.store().stored();
    assert_eq!((stored.known, stored.queued, stored.kept_out), (2, 1, OverLimit::default()));
    assert_eq!(offer(&mut harness, &[("done", 0), ("again", 0)]).known, 2);
    let taken = take(&mut harness, 9, 49);
    assert_eq!((names(&taken), taken.next), (vec![], Some(Wall(50))));
    assert_eq!(names(&take(&mut harness, 9, 50)), ["again"]);
}

pub(crate) fn limits_keep_out_and_higher_ones_admit<H: Harness>(seed: u64) {
    let limits = StoreLimits { max_depth: 2, max_host_pages: 2, max_urls: 3, ..StoreLimits::NONE };
    with_and_without_saving(seed, limits, |harness: &mut H, save| {
        let offers = [
            ("http://a.example/1", 0),
            ("http://a.example/deep", 3),
            ("http://a.example/2", 1),
            ("http://a.example/1#again", 2),
            ("http://a.example/3", 1),
            ("http://b.example/1", 2),
            ("http://c.example/1", 2),
        ];
        let mut said = Admitted::default();
        for (text, depth) in offers {
            add(&mut said, decided(harness, &Record::Seeds(vec![found(text, depth)])));
        }
        let over = OverLimit { depth: 1, host: 1, urls: 1 };
        assert_eq!((said.known, said.over), (1, over));
        assert_eq!(said.new, [(a(), 2), (host("b.example"), 1)]);
        assert_eq!(harness.store().stored().kept_out, over);
        assert_eq!(harness.store().look_up(&url("http://a.example/deep")).unwrap(), None);
        assert_eq!(names(&take(harness, 9, 0)), ["1", "2"]);
        save(harness);
        let known = ["http://a.example/1", "http://a.example/2", "http://b.example/1"];
        for limits in [
            limits,
            StoreLimits { max_depth: 9, max_host_pages: 9, max_urls: 9, ..StoreLimits::NONE },
            NO_LIMITS,
        ] {
            let all = if limits.max_urls < 9 { 3 } else { 6 };
            harness.restart(limits, &[]);
            harness.store().decide().unwrap();
            let stored = harness.store().stored();
            let kept_out = if all == 3 { over } else { OverLimit::default() };
            assert_eq!((stored.known, stored.queued, stored.kept_out), (all, all, kept_out));
            for text in known {
                assert!(harness.store().look_up(&url(text)).unwrap().is_some(), "{text} was known");
            }
        }
        let all: BTreeSet<String> = take(harness, 9, 0).due.into_iter().map(|due| due.url.into()).collect();
        assert!(all.iter().eq(&["1", "2", "3", "deep"].map(page)), "{all:?}");
    });
}

pub(crate) fn what_was_tried_stays_known_under_lower_limits<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        offer(harness, &[("1", 9), ("2", 9)]);
        take(harness, 9, 0);
        let mut last = Vec::new();
        for (name, outcome) in [("1", done()), ("2", retry(50))] {
            last.push(Settled { depth: 9, ..settled(&page(name), outcome) });
            harness.tell(&Record::Settled(last[last.len() - 1].clone()));
        }
        save(harness);
        harness
            .restart(StoreLimits { max_depth: 1, max_host_pages: 1, max_urls: 1, ..StoreLimits::NONE }, &[]);
        harness.store().decide().unwrap();
        let stored = harness.store().stored();
        assert_eq!((stored.known, stored.queued), (2, 1));
        let known = harness.store().look_up(&url(&page("1"))).unwrap().unwrap();
        assert_eq!((known.found.depth, known.via), (9, None));
        assert_eq!(known.state, KnownState::Settled(Box::new(last.swap_remove(0))));
        let taken = take(harness, 9, 50);
        assert_eq!(names(&taken), ["2"]);
        assert_eq!((taken.due[0].depth, taken.due[0].attempts), (9, 1));
    });
}

pub(crate) fn what_does_not_count_any_more_is_due_again<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        offer(harness, &[("kept", 0), ("lost", 0), ("busy", 0), ("private", 0)]);
        take(harness, 9, 0);
        let private = Outcome::Failed { failure: Failure::PrivateAddress, status: None };
        for (name, outcome, file) in [
            ("kept", done(), Some(7)),
            ("lost", done(), Some(9)),
            ("busy", retry(5_000), Some(9)),
            ("private", private, None),
        ] {
            let mut record = settled(&page(name), outcome);
            (record.attempts, record.capture) = (2, file.map(pointer));
            record.found = vec![found(&format!("http://b.example/{name}"), 1)];
            harness.tell(&Record::Settled(record));
        }
        save(harness);
        harness.restart(NO_LIMITS, &[9]);
        harness.store().decide().unwrap();
        let stored = harness.store().stored();
        assert_eq!((stored.known, stored.queued), (8, 7), "what it found stays found");
        for (name, failure, attempts) in
            [("lost", Failure::NotTried, 1), ("private", Failure::PrivateAddress, 2)]
        {
            let known = harness.store().look_up(&url(&page(name))).unwrap().unwrap();
            let KnownState::Retry { not_before, attempts: used, last: Some(last) } = known.state else {
                panic!("{known:?}")
            };
            assert_eq!((not_before, used, last.capture), (Wall(1_000), attempts, None));
            assert_eq!(last.outcome, Outcome::Retry { failure, status: None, not_before });
        }
        let taken = take(harness, 9, 1_000);
        let again: BTreeSet<&str> = names(&taken).into_iter().collect();
        assert!(again.into_iter().eq(["lost", "private"]));
        assert_eq!(taken.next, Some(Wall(5_000)));
    });
}

pub(crate) fn figures_are_right_when_all_is_decided<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        let b = |number| format!("http://b.example/{number}");
        let links: Vec<Found> = (0..9).map(|number| found(&b(number), 1)).collect();
        offer(harness, &[("1", 0), ("2", 0), ("3", 0), ("4", 0), ("5", 0)]);
        assert_eq!(take(harness, 3, 0).left, 2);
        harness.tell(&Record::Settled(Settled { found: links, ..settled(&page("1"), done()) }));
        settle(harness, "2", retry(70));
        for restarts in [false, true] {
            if restarts {
                save(harness);
                harness.restart(NO_LIMITS, &[]);
            }
            let store = harness.store();
            store.decide().unwrap();
            let stored = store.stored();
            assert_eq!((stored.known, stored.queued, stored.undecided), (14, 13, 0));
            assert!(stored.hosts <= 2);
            // What was settled before its turn may be counted until it is met.
            let due = store.host(&a()).unwrap().map_or(0, |stored| stored.due);
            assert!(if restarts { (3..=5).contains(&due) } else { due == 2 }, "{due} are due");
            let of_a = StoredHost { host: a(), known: 5, queued: 4, due, next: Some(Wall(70)), memo: None };
            let of_b =
                StoredHost { host: host("b.example"), known: 9, queued: 9, due: 9, next: None, memo: None };
            assert_eq!(store.host(&a()).unwrap().as_ref(), Some(&of_a));
            assert_eq!(store.host(&host("nobody.example")).unwrap(), None);
            let mut hosts = Vec::new();
            store.hosts(&mut |stored| hosts.push(stored)).unwrap();
            hosts.sort_by(|a, b| a.host.cmp(&b.host));
            assert_eq!(hosts, [of_a, of_b]);
        }
    });
}

pub(crate) fn every_state_can_be_looked_up<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        let links = ["queued", "taken", "retry", "again", "done"].map(|name| Found {
            redirects: 2,
            how: How::Sitemap,
            ..found(&page(name), 4)
        });
        let (place, _) =
            harness.tell(&Record::Settled(Settled { found: links.to_vec(), ..settled(&page("p"), done()) }));
        harness.store().decide().unwrap();
        let due = take(harness, 9, 0).due;
        let tried = |name: &str, outcome| {
            let (depth, how, found_in, attempts) = (4, How::Sitemap, place, 3);
            Settled { depth, how, found_in, attempts, ..settled(&page(name), outcome) }
        };
        let attempts = [("retry", retry(70)), ("again", retry(50)), ("done", done())];
        let attempts = attempts.map(|(name, outcome)| tried(name, outcome));
        for settled in &attempts {
            harness.tell(&Record::Settled(settled.clone()));
        }
        let queued: Vec<Due> = due.into_iter().filter(|due| due.url.path() == "/queued").collect();
        harness.store().put_back(&a(), &queued).unwrap();
        harness.store().take(&a(), 0, false, Wall(50)).unwrap();
        let queued = || KnownState::Queued;
        let again = |last: &Settled, until: u64| KnownState::Retry {
            not_before: Wall(until),
            attempts: 3,
            last: Some(Box::new(last.clone())),
        };
        for ends in [false, true] {
            if ends {
                save(harness);
                harness.restart(NO_LIMITS, &[]);
                harness.store().decide().unwrap();
            }
            let states = [
                queued(),
                if ends { queued() } else { KnownState::Taken },
                again(&attempts[0], 70),
                again(&attempts[1], 50),
                KnownState::Settled(Box::new(attempts[2].clone())),
            ];
            for (link, state) in links.iter().zip(states) {
                let redirects = if matches!(state, KnownState::Queued | KnownState::Taken) { 2 } else { 0 };
                let found = Found { redirects, ..link.clone() };
                let known = harness.store().look_up(&url(&link.url)).unwrap();
                assert_eq!(known, Some(Known { found, via: Some(page("p")), state, cash: None }));
            }
            assert_eq!(harness.store().look_up(&url(&page("unknown"))).unwrap(), None);
            assert_eq!(harness.store().look_up(&url("http://nobody.example/")).unwrap(), None);
        }
        for due in take(harness, 9, 70).due {
            let known = harness.store().look_up(&due.url).unwrap().unwrap();
            assert_eq!((known.state, known.via), (KnownState::Taken, due.via));
        }
    });
}

pub(crate) fn a_url_comes_back_as_it_was_found<H: Harness>(seed: u64) {
    let mut harness = H::new(seed, NO_LIMITS);
    // Longer than what is read at first.
    let long = |name: &str| page(&format!("{name}/{}", "x".repeat(5_000)));
    let new = |name: &str, how| Found { url: long(name), depth: 300, how, redirects: 7 };
    let mut found_on = settled(&long("page"), done());
    found_on.found = vec![new("link", How::Link), new("other", How::Redirect)];
    decided(&mut harness, &Record::Seeds(vec![new("page", How::Seed)]));
    decided(&mut harness, &Record::Settled(found_on));
    decided(&mut harness, &robots(vec![new("sitemap", How::Sitemap)]));
    let taken = take(&mut harness, 9, 0);
    for due in &taken.due {
        let known = harness.store().look_up(&due.url).unwrap().unwrap();
        assert_eq!((known.found.depth, known.found.redirects, known.state), (300, 7, KnownState::Taken));
        assert_eq!((known.found.how, &known.via), (due.how, &due.via));
        assert_eq!((due.depth, due.redirects, due.attempts), (300, 7, 0));
    }
    let mut taken: Vec<(String, How, Option<String>)> =
        taken.due.into_iter().map(|due| (due.url.into(), due.how, due.via)).collect();
    // Of one page, and decided in any order.
    taken[..2].sort_by_key(|(url, ..)| url.clone());
    assert_eq!(
        taken,
        [
            (long("link"), How::Link, Some(long("page"))),
            (long("other"), How::Redirect, Some(long("page"))),
            (long("sitemap"), How::Sitemap, Some("https://[::1]:8443/robots.txt".into())),
        ]
    );
}

fn robots(found: Vec<Found>) -> Record {
    let origin = Origin::of(&url("https://[::1]:8443/"));
    Record::Robots(RobotsRecord {
        url: origin.robots_url().into(),
        origin,
        at: Wall(1),
        took: Duration::from_secs(1),
        bytes: 5,
        status: Some(200),
        asked: true,
        outcome: RobotsOutcome::None { fresh_until: Wall(2) },
        capture: Some(pointer(1)),
        found,
    })
}

pub(crate) fn records_are_read_at_their_places<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        let records = [
            Record::RunStarted { at: Wall(7) },
            seeds([page("1"), page("2")]),
            Record::Settled(Settled { found: vec![found(&page("3"), 1)], ..settled(&page("1"), done()) }),
            robots(Vec::new()),
        ];
        let places = records.each_ref().map(|record| harness.tell(record).0);
        for ends in [false, true] {
            if ends {
                save(harness);
                harness.restart(NO_LIMITS, &[]);
            }
            for (place, record) in places.iter().zip(&records) {
                let read = harness.store().record(*place).unwrap();
                assert!(read == *record || read == without_links(record), "{read:?} is not {record:?}");
            }
        }
    });
}

/// What is left of an old record.
fn without_links(record: &Record) -> Record {
    match record.clone() {
        Record::Seeds(_) => Record::Seeds(Vec::new()),
        Record::Settled(settled) => Record::Settled(Settled { found: Vec::new(), ..settled }),
        Record::Robots(robots) => Record::Robots(RobotsRecord { found: Vec::new(), ..robots }),
        other => other,
    }
}

/// A memo that can be told from others.
pub(super) fn memo(pages: u64) -> HostMemo {
    let now = Now { mono: Mono(0), wall: Wall(0) };
    let mut state = HostState::new(a());
    state.pages = pages;
    state.memo(1, now).unwrap()
}

pub(crate) fn what_is_kept_with_hosts_is_there_again<H: Harness>(seed: u64) {
    let mut harness = H::new(seed, NO_LIMITS);
    let hosts: Vec<Host> = (0..9).map(|number| host(&format!("h{number}.example"))).collect();
    decided(&mut harness, &seeds(hosts[..5].iter().map(|host| format!("http://{host}/"))));
    for round in [1, 2] {
        for (number, host) in hosts.iter().enumerate() {
            let memo = (number % 3 != round).then(|| memo((10 * round + number) as u64));
            harness.store().keep(host, memo.as_ref(), Wall(0)).unwrap();
            assert_eq!(harness.store().take(host, 0, false, Wall(0)).unwrap().memo, memo);
        }
    }
    assert_eq!(harness.store().take(&a(), 0, false, Wall(0)).unwrap().memo, None);
    harness.save();
    harness.restart(NO_LIMITS, &[]);
    for (number, host) in hosts.iter().enumerate() {
        let memo = (number % 3 != 2).then(|| memo(20 + number as u64));
        assert_eq!(harness.store().take(host, 0, false, Wall(0)).unwrap().memo, memo, "{host}");
        assert_eq!(harness.store().host(host).unwrap().and_then(|stored| stored.memo), memo, "{host}");
    }
    let stored = harness.store().stored();
    assert_eq!((stored.known, stored.queued), (5, 5), "a memo is no URL");
}

/// All parts of a round together, each of so many hosts at most.
pub(super) fn round(store: &mut impl Store, now: Wall, max: usize) -> Visited {
    let mut whole = Visited { is_last: true, ..Visited::default() };
    for _ in 0..10_000 {
        let part = store.visit(now, max).unwrap();
        assert!(part.hosts.len() <= max, "{} of {max}", part.hosts.len());
        whole.hosts.extend(part.hosts);
        whole.next = [whole.next, part.next].into_iter().flatten().min();
        if part.is_last {
            whole.hosts.sort_by(|a, b| a.host.cmp(&b.host));
            return whole;
        }
    }
    panic!("the round has no end");
}

pub(crate) fn a_round_meets_each_host_that_something_is_due_of<H: Harness>(seed: u64) {
    let mut harness = H::new(seed, NO_LIMITS);
    let name = |number: u64| host(&format!("h{number}.example"));
    let first = |number: u64| format!("http://h{number}.example/");
    decided(&mut harness, &seeds((0..9).map(first)));
    // Of h6 something is due later, of h7 nothing more, and of h8 it is taken.
    for number in 6..9 {
        harness.store().take(&name(number), 1, false, Wall(0)).unwrap();
    }
    harness.tell(&Record::Settled(settled(&first(6), retry(70))));
    harness.tell(&Record::Settled(settled(&first(7), done())));
    harness.store().keep(&name(1), Some(&memo(1)), Wall(50)).unwrap();
    harness.store().keep(&name(6), None, Wall(90)).unwrap();
    harness.store().keep(&name(11), Some(&memo(2)), Wall(0)).unwrap();
    for (now, hosts, next) in [
        (0, &[0, 2, 3, 4, 5][..], Some(50)),
        (49, &[0, 2, 3, 4, 5], Some(50)),
        (50, &[0, 1, 2, 3, 4, 5], Some(90)),
        (70, &[0, 1, 2, 3, 4, 5], Some(90)),
        (90, &[0, 1, 2, 3, 4, 5, 6], None),
    ] {
        for max in [1, 2, 5, 9] {
            let met = round(harness.store(), Wall(now), max);
            let met_hosts = met.hosts.iter().map(|stored| stored.host.clone());
            assert!(met_hosts.eq(hosts.iter().map(|number| name(*number))));
            assert_eq!(met.next, next.map(Wall));
            for stored in met.hosts {
                assert_eq!(harness.store().host(&stored.host).unwrap(), Some(stored));
            }
        }
    }
}

pub(crate) fn pruning_loses_nothing<H: Harness>(seed: u64) {
    let links = [("known", 9), ("known", 1), ("new", 5), ("new", 5), ("new", 2), ("deep", 7), ("deep", 7)];
    let links = links.map(|(name, depth)| found(&page(name), depth));
    let record = Record::Settled(Settled { found: links.to_vec(), ..settled(&page("p"), done()) });
    let seen = [false, true].map(|prunes| {
        let mut harness = H::new(seed, StoreLimits { max_depth: 6, ..NO_LIMITS });
        offer(&mut harness, &[("known", 3)]);
        let mut record = record.clone();
        if prunes {
            harness.store().prune(&mut record);
        }
        decided(&mut harness, &record);
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        let due = take(&mut harness, 9, 0).due;
        due.into_iter().map(|due| (due.url.path().to_owned(), due.depth, due.via)).collect::<Vec<_>>()
    });
    let via = Some(page("p"));
    let expected =
        [("/known", 1), ("/new", 2), ("/deep", 7)].map(|(path, depth)| (path.to_owned(), depth, via.clone()));
    assert_eq!(seen, [expected.to_vec(), expected.to_vec()]);
}

/// What was given to another site is known until it is given back: then it is queued, once, and what is done stays done.
pub(crate) fn what_was_sent_is_known_until_it_is_returned<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        let arrived = |how: How| {
            let found = ["1", "2"].map(|name| Found { how, ..found(&page(name), 1) }).to_vec();
            Record::Arrived(Arrived {
                from: AgentId::default(),
                site: None,
                found,
                pages: vec![(None, 2)],
                totals: Vec::new(),
            })
        };
        let figures = |harness: &mut H| (harness.store().stored().known, harness.store().stored().queued);
        decided(harness, &arrived(How::Link));
        assert_eq!(names(&take(harness, 9, 0)), ["1", "2"]);
        settle(harness, "1", Outcome::Sent { to: "lima".to_owned() });
        settle(harness, "2", done());
        save(harness);
        harness.restart(NO_LIMITS, &[]);
        assert_eq!(decided(harness, &arrived(How::Link)).new, vec![], "found again, it is not queued again");
        assert_eq!(figures(harness), (2, 0));
        let said = decided(harness, &arrived(How::Link.returned(0)));
        assert_eq!(said.new, vec![(a(), 1)]);
        assert_eq!(decided(harness, &arrived(How::Link.returned(0))).new, vec![]);
        assert_eq!(figures(harness), (2, 1));
        let known = harness.store().look_up(&url(&page("1"))).unwrap().unwrap();
        assert!(matches!(known.state, KnownState::Queued), "{:?}", known.state);
        // Another site tried it twice before it gave it back, too.
        decided(harness, &arrived(How::Link.returned(2)));
        assert_eq!(figures(harness), (2, 1));
        let taken = take(harness, 9, 0);
        assert_eq!((names(&taken), taken.due[0].attempts), (vec!["1"], 2));
        settle(harness, "1", Outcome::Sent { to: "lima".to_owned() });
        assert_eq!(figures(harness), (2, 0));
    });
}

/// What another agent or another site knows of a host is known from then on.
pub(crate) fn what_another_has_done_or_tried_is_done_or_tried<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        let all = [("1", 1), ("2", 2), ("3", 3), ("6", 4), ("7", 5), ("8", 6)];
        offer(harness, &all);
        let taken = take(harness, 9, 0);
        // Some come back.
        harness.store().put_back(&a(), &taken.due[2..]).unwrap();
        let seen = ["1", "3", "6", "7", "8"].map(|name| Fingerprint::of(&url(&page(name))));
        let seen = seen.map(|fingerprint| SeenUrl { fingerprint, place: 9, is_sent: false }).to_vec();
        let waiting = |attempts, not_before| Waiting { via: None, attempts, not_before };
        let moved = Moved {
            hosts: vec![MovedHost { host: a(), memo: None, seen }],
            found: vec![found(&page("4"), 1), found(&page("5"), 1)],
            waiting: vec![waiting(2, Some(Wall(100))), waiting(0, None)],
            accounts: Vec::new(),
        };
        let record = Record::Moved { from: AgentId::from(7), moved };
        decided(harness, &record);
        // A part of it may come twice.
        decided(harness, &record);
        harness.store().put_back(&a(), &taken.due).unwrap();
        save(harness);
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        let stored = harness.store().stored();
        assert_eq!((stored.known, stored.queued), (8, 3));
        let mut state = |name: &str| harness.store().look_up(&url(&page(name))).unwrap().unwrap().state;
        for done in ["1", "3", "6", "7", "8"] {
            assert!(matches!(state(done), KnownState::Elsewhere { place: 9, .. }), "{:?}", state(done));
        }
        let tried = state("4");
        let is_tried = |of: &KnownState| {
            matches!(of, KnownState::Retry { attempts: 2, not_before: Wall(100), last: None })
        };
        assert!(is_tried(&tried), "{tried:?}");
        let taken = take(harness, 9, 99);
        assert_eq!(BTreeSet::from_iter(names(&taken)), ["2", "5"].into());
        let taken = take(harness, 9, 100);
        assert_eq!((names(&taken), taken.due[0].attempts), (vec!["4"], 2));
    });
}
