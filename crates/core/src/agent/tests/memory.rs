//! What outlives the process, and the room on the workbench.

use super::*;

#[test]
fn after_a_restart_every_host_counts_as_asked_just_now() {
    // Killed while the very first request is under way: nothing says that it was made.
    for (killed, rules) in
        [(0.05, status(404)), (1.15, status(404)), (1.15, robots("User-agent: *\nCrawl-delay: 9"))]
    {
        let delay = if rules.robots.is_some() && killed > 1.0 { 9.0 } else { 1.0 };
        let mut rig = Rig::with(&[(A_ROBOTS, vec![rules])]);
        rig.seed(&[A]);
        rig.run(killed);
        let before = rig.requests.len();
        rig.restart();
        rig.run(60.0);
        about(rig.requests[before].0 - killed, delay);
        assert_eq!(rig.outcome(A).unwrap().0, answered(200).unwrap());
    }
}

#[test]
fn waits_survive_a_restart() {
    for (reply, wait) in [(later(429, 600), 600.0), (status(503), MINUTE), (fail(Failure::Connect), MINUTE)] {
        let mut rig = Rig::with(&[(A, vec![reply, page(&[])])]);
        rig.seed(&[A]);
        rig.run(1.0 + 5.0);
        rig.restart();
        rig.run(HOUR);
        let times = rig.times(A);
        about(times[1] - times[0] - 0.1, wait);
        assert_eq!(rig.times(A_ROBOTS).len(), 1, "rules survive too");
    }
}

/// More hosts than the workbench has room for: they take turns, and one that comes back has forgotten nothing.
#[test]
fn hosts_come_and_go() {
    const ROOM: usize = 4;
    let names: Vec<String> =
        (b'a'..=b'y').map(|letter| format!("http://{}.example/", letter as char)).collect();
    let seeds: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut rig = Rig::new(Settings { hosts_max: ROOM, ..Settings::default() });
    for seed in &seeds {
        let links = VecDeque::from([page(&["/1", "/2"])]);
        rig.web.insert(seed.to_string(), links);
    }
    // It fails twice, and leaves in between; and it has a crawl-delay that it is not asked for again.
    rig.web.insert(A_ROBOTS.into(), VecDeque::from([robots("User-agent: *\nCrawl-delay: 7")]));
    rig.web.insert(A.into(), VecDeque::from([later(503, 100), later(503, 100), page(&["/1", "/2"])]));
    rig.seed(&seeds);
    let mut most = 0;
    for second in 1..600 {
        rig.run(f64::from(second));
        most = most.max(rig.agent.hosts(rig.at()).count());
        rig.check();
    }
    assert_eq!(most, ROOM);
    assert_eq!(rig.ended, Some(StopReason::Finished));
    let totals = rig.totals();
    assert_eq!((totals.pages, totals.hosts, totals.requests), (75, 25, 25 + 75 + 2));
    assert!(rig.store.kept.len() >= seeds.len() - ROOM, "{} left", rig.store.kept.len());
    let asked = rig.times(A);
    assert!(asked[1] - asked[0] >= 100.0 && asked[2] - asked[1] >= 100.0, "{asked:?}");
    let [first, second] = ["1", "2"].map(|page| rig.times(&format!("{A}{page}"))[0]);
    assert!(first - asked[2] >= 7.0 && second - first >= 7.0, "{asked:?} {first} {second}");
}

/// A host that the workbench has no room for when the round meets it does not wait for the next round.
#[test]
fn a_round_waits_for_room() {
    let names: Vec<String> =
        (b'a'..=b'y').map(|letter| format!("http://{}.example/", letter as char)).collect();
    let seeds: Vec<&str> = names.iter().map(String::as_str).collect();
    for room in [1, 2, 24, 25] {
        let rig = Rig::new(Settings { hosts_max: room, ..Settings::default() }).crawl(&seeds, HOUR);
        assert_eq!(rig.ended, Some(StopReason::Finished));
        for seed in &seeds {
            assert_eq!(rig.times(seed).len(), 1, "{seed} with room for {room}");
        }
        // The hosts of the first seeds come without a round, and then one more may look in vain.
        let rounds = if room < seeds.len() { 1..=2 } else { 0..=0 };
        assert!(rounds.contains(&rig.store.rounds), "{} rounds with room for {room}", rig.store.rounds);
    }
}

/// A crawl that was killed and does not run says what waits, though nobody goes round its hosts.
#[test]
fn stock_is_taken_of_a_crawl_that_does_not_run() {
    let mut rig = Rig::with(&[(A, vec![page(&["/1", "/2", "/3"])])]);
    rig.seed(&[A]);
    rig.run(1.5);
    let mut agent = Agent::new(rig.settings.clone(), Scope::new(ScopeKind::Any, Vec::new(), Vec::new()));
    let now = rig.at();
    for record in &rig.records {
        agent.replay(now, 0, record, &mut |_| None);
    }
    agent.start(now, Stored { known: 4, queued: 3, hosts: 1, ..Stored::default() }, &mut Vec::new());
    let host = Host::parse("a.example").unwrap();
    let stored = StoredHost { host, known: 4, queued: 3, due: 3, next: None, memo: None };
    agent.take_stock(&stored, now);
    let views: Vec<_> = agent.hosts(now).map(|view| (view.queue, view.place)).collect();
    assert!(matches!(&views[..], [(3, place)] if place != "idle"), "{views:?}");
    assert_eq!(agent.status(now).hosts.idle, 0);
}
