//! What ends a crawl, stops it, or blocks a part of it.

use super::*;

#[test]
fn limits_end_the_crawl() {
    let secs = Duration::from_secs;
    let none = Settings::default();
    for (settings, reason) in [
        (Settings { max_pages: Some(3), ..none.clone() }, StopReason::MaxPages),
        (Settings { max_bytes: Some(3_500), ..none.clone() }, StopReason::MaxBytes),
        (Settings { max_time: Some(secs(5)), ..none.clone() }, StopReason::MaxTime),
        (none, StopReason::Finished),
    ] {
        let mut rig = Rig::new(settings);
        rig.web.insert(A.into(), VecDeque::from([page(&["/1", "/2", "/3", "/4", "/5", "/6"])]));
        let mut rig = rig.crawl(&[A, B], 100.0);
        assert_eq!(rig.ended, Some(reason));
        let pages = rig.totals().pages;
        match reason {
            StopReason::MaxPages => assert_eq!(pages, 3),
            // Two of them are robots.txt.
            StopReason::MaxBytes => assert_eq!((pages, rig.totals().bytes), (2, 4_000)),
            StopReason::MaxTime => assert!(rig.secs() < 6.5 && pages > 3),
            _ => assert_eq!(pages, 8),
        }
        rig.check();
    }
}

#[test]
fn why_a_crawl_ends() {
    for (name, reply, reason, pages) in [
        ("all done", page(&[]), StopReason::Finished, 1),
        ("a result is a result", status(404), StopReason::Finished, 1),
        ("a wait that is too long", fail(Failure::Connect), StopReason::NoSeed, 0),
    ] {
        let mut rig = Rig::new(Settings { max_wait: Duration::from_secs(30), ..Settings::default() });
        rig.web.insert(A.into(), VecDeque::from([reply]));
        let mut rig = rig.crawl(&[A], 100.0);
        assert_eq!(rig.ended, Some(reason), "{name}");
        assert_eq!(rig.totals().pages, pages, "{name}");
    }
    let mut rig = Rig::new(Settings::default());
    rig.web.insert(A.into(), VecDeque::from([page(&["/late"])]));
    rig.web.insert("http://a.example/late".into(), VecDeque::from([later(503, 3_600)]));
    let rig = rig.crawl(&[A], HOUR);
    assert_eq!(rig.ended, Some(StopReason::Waiting));
}

#[test]
fn what_the_sieve_decides_late_is_fetched_before_the_end() {
    let mut rig = Rig::with(&[
        ("http://a.example/", vec![page(&["/1", "/2", "http://b.example/"])]),
        ("http://a.example/1", vec![page(&["/3", "/1"])]),
        ("http://a.example/2", vec![page(&[])]),
        ("http://a.example/3", vec![page(&[])]),
        ("http://b.example/", vec![page(&[])]),
    ]);
    rig.store.late = true;
    let mut rig = rig.crawl(&["http://a.example/"], 100.0);
    assert_eq!(rig.ended, Some(StopReason::Finished));
    assert_eq!(rig.totals().pages, 5);
    assert!(rig.store.undecided.is_empty());
}

#[test]
fn what_the_sieve_decides_late_does_not_wait_for_a_distant_retry() {
    let mut rig = Rig::with(&[
        ("http://a.example/", vec![page(&["/1", "http://b.example/"])]),
        ("http://a.example/1", vec![later(503, 600), page(&[])]),
        ("http://b.example/", vec![page(&[])]),
    ]);
    rig.store.late = true;
    rig.seed(&["http://a.example/"]);
    rig.run(60.0);
    assert!(rig.requests.iter().any(|(_, url)| url == "http://b.example/"));
    rig.run(1_000.0);
    assert_eq!((rig.ended, rig.totals().pages), (Some(StopReason::Finished), 3));
}

#[test]
fn pause_and_resume() {
    let mut rig = Rig::with(&[(A, vec![page(&["/1", "/2", "/3"])])]);
    rig.seed(&[A]);
    rig.run(1.5);
    rig.control(Control::Pause);
    let before = rig.requests.len();
    rig.run(1_000.0);
    assert_eq!((rig.requests.len(), rig.ended), (before, None));
    rig.control(Control::Resume);
    rig.run(1_010.0);
    assert_eq!(rig.requests.len(), 5);
}

#[test]
fn stop_waits_for_what_is_in_flight_and_then_drops_it() {
    for (took, pages, dropped, end) in [(5.0, 1, 0, 7.0), (60.0, 0, 1, 11.6)] {
        let mut rig = Rig::with(&[(A, vec![page(&["/1"]).took(took)])]);
        rig.seed(&[A, "http://a.example/2"]);
        rig.run(1.5);
        rig.control(Control::Stop(StopReason::Stopped));
        rig.run(100.0);
        assert_eq!(rig.ended, Some(StopReason::Stopped));
        assert!(rig.secs() < end, "{}", rig.secs());
        assert_eq!(rig.totals().pages, pages);
        assert_eq!(rig.abandoned.len(), dropped);
        assert!(rig.times("http://a.example/2").is_empty());
        rig.check();
    }
}

#[test]
fn blocks_take_effect_before_the_next_request_and_survive() {
    let shop = "http://shop.a.example/";
    let name = |name| Block::Name(Host::parse(name).unwrap());
    for (block, blocked, open) in [
        (name("a.example"), vec![A, shop], vec![B]),
        (name("shop.a.example"), vec![shop], vec![A, B]),
        (Block::Address([93, 184, 216, b'a'].into()), vec![A], vec![B, shop]),
    ] {
        let mut rig = Rig::with(&[]);
        rig.seed(&[A, B, shop, Z]);
        rig.run(0.05);
        rig.control(Control::Block(block.clone()));
        rig.run(10.0);
        let all =
            |rig: &Rig, urls: &[&str], count: usize| urls.iter().all(|url| rig.times(url).len() == count);
        assert!(all(&rig, &blocked, 0) && all(&rig, &open, 1), "{block:?}: {:?}", rig.requests);
        rig.restart();
        rig.run(20.0);
        assert!(all(&rig, &blocked, 0), "{block:?} after a restart");
        rig.control(Control::Unblock(block));
        rig.run(30.0);
        assert!(all(&rig, &blocked, 1));
    }
}
