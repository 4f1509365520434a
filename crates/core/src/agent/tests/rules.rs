//! robots.txt: before anything else, by all its answers.

use super::*;

#[test]
fn what_each_answer_to_robots_txt_means() {
    enum Then {
        Fetched,
        Disallowed,
        Waits,
    }
    use Then::*;
    let forbids = robots("User-agent: *\nDisallow: /");
    let cut = |cut| Reply { cut: Some(cut), ..forbids.clone() };
    for (name, reply, then) in [
        ("200 without rules", robots(""), Fetched),
        ("200 that forbids", forbids.clone(), Disallowed),
        ("200 for others", robots("User-agent: other\nDisallow: /"), Fetched),
        ("200 for us, in another case", robots("User-agent: NEPHILA\nDisallow: /"), Disallowed),
        ("200 cut at our limit", cut(Cut::Length), Disallowed),
        ("200 cut by time", cut(Cut::Time), Waits),
        ("200 cut by the server", cut(Cut::Disconnect), Waits),
        ("401", status(401), Fetched),
        ("403", status(403), Fetched),
        ("404", status(404), Fetched),
        ("410", status(410), Fetched),
        ("429", status(429), Waits),
        ("500", status(500), Waits),
        ("503", status(503), Waits),
        ("a redirect to nowhere", status(301), Fetched),
        ("a redirect to itself", to("/robots.txt"), Fetched),
        ("a connection refused", fail(Failure::Connect), Waits),
        ("a certificate of no use", fail(Failure::Tls), Waits),
        ("a timeout", fail(Failure::Timeout), Waits),
        ("a reset", fail(Failure::Disconnected), Waits),
    ] {
        let mut rig = Rig::with(&[(A_ROBOTS, vec![reply])]).crawl(&[A], 40.0);
        rig.check();
        let outcome = rig.outcome(A).map(|(outcome, _)| outcome);
        match then {
            Fetched => assert_eq!(outcome, answered(200), "{name}"),
            Disallowed => assert!(matches!(outcome, Some(Outcome::Disallowed { line: 2, .. })), "{name}"),
            Waits => {
                assert_eq!(outcome, None, "{name}");
                rig.run(2.0 * HOUR);
                let times = rig.times(A_ROBOTS);
                about(times[1] - times[0] - 0.1, MINUTE);
                about(times[2] - times[1] - 0.1, 2.0 * MINUTE);
                about(times[3] - times[2] - 0.1, 4.0 * MINUTE);
                assert!(rig.times(A).is_empty(), "{name}");
            }
        }
    }
}

#[test]
fn robots_txt_that_redirects_to_another_host() {
    let rules = robots("User-agent: *\nDisallow: /secret");
    // The other host delivers under its own delay, and whatever its own rules are.
    let mut rig = Rig::with(&[
        (A_ROBOTS, vec![to(B_ROBOTS)]),
        (A, vec![page(&["/secret", "/open"])]),
        (B_ROBOTS, vec![rules.clone()]),
    ])
    .crawl(&[A], 30.0);
    assert!(matches!(rig.outcome("http://a.example/secret"), Some((Outcome::Disallowed { .. }, _))));
    assert_eq!(rig.outcome("http://a.example/open").unwrap().0, answered(200).unwrap());
    assert_eq!(rig.requests[1].1, B_ROBOTS);
    rig.check();

    // The rules of the other host itself are asked for again when it is crawled: they bind the host first asked.
    let rig = Rig::with(&[(A_ROBOTS, vec![to(B_ROBOTS)]), (B_ROBOTS, vec![rules])]).crawl(&[A, B], 30.0);
    assert_eq!(rig.times(B_ROBOTS).len(), 2);
    about(rig.times(B_ROBOTS)[1] - rig.times(B_ROBOTS)[0] - 0.1, 1.0);

    // Nobody waits longer than a minute for it; then it counts as unreachable, and doubles.
    for (name, there) in [
        ("no such name", None),
        ("refused", Some(fail(Failure::Connect))),
        ("an error", Some(status(500))),
        ("slow", Some(robots("").took(90.0))),
    ] {
        let mut rig = Rig::with(&[(A_ROBOTS, vec![to(B_ROBOTS)])]);
        match there {
            Some(reply) => rig.web.insert(B_ROBOTS.into(), VecDeque::from([reply])).map_or((), drop),
            None => rig.names.insert("b.example", VecDeque::from([Err(true)])).map_or((), drop),
        }
        let mut rig = rig.crawl(&[A], 1.5 * HOUR);
        rig.check();
        let times = rig.times(A_ROBOTS);
        if name == "slow" {
            // The answer that came too late is good for the next time.
            assert_eq!(times.len(), 1);
            about(rig.times(A)[0] - times[0], 2.0 * MINUTE);
            continue;
        }
        assert_eq!(rig.outcome(A), None, "{name}");
        let first = times[1] - times[0];
        assert!((MINUTE..2.0 * MINUTE + 7.0).contains(&first), "{name}: {times:?}");
        assert!(times[3] - times[2] > 1.8 * (times[2] - times[1] - MINUTE), "{name}: {times:?}");
        let host = rig.agent.host(&Host::parse("a.example").unwrap(), rig.at()).unwrap();
        assert_eq!(host.failure, Some(Failure::RobotsUnreachable), "{name}");
    }
}

#[test]
fn redirects_of_robots_txt_have_a_limit() {
    let hop = |n: usize| format!("http://a.example/r{n}");
    for (hops, asked) in [(5, true), (6, false)] {
        let mut rig = Rig::with(&[(A_ROBOTS, vec![to("/r1")])]);
        for n in 1..hops {
            rig.web.insert(hop(n), VecDeque::from([to(&hop(n + 1))]));
        }
        rig.web.insert(hop(hops), VecDeque::from([robots("User-agent: *\nDisallow: /")]));
        let rig = rig.crawl(&[A], 60.0);
        assert_eq!(!rig.times(&hop(hops)).is_empty(), asked);
        // Past the limit the file counts as missing.
        assert_eq!(rig.times(A).is_empty(), asked);
    }
}

#[test]
fn robots_txt_is_kept_and_asked_for_again_with_validators() {
    for (max_age, ttl) in [(None, DAY), (Some(7_200), 2.0 * HOUR), (Some(0), HOUR), (Some(900_000), DAY)] {
        let first = Reply { etag: Some("\"1\""), max_age, ..robots("User-agent: *\nDisallow: /no") };
        // A page that fails for an hour and eleven minutes, and a link found a day later.
        let mut rig = Rig::with(&[(A_ROBOTS, vec![first, status(304)]), (A, vec![page(&[])])]);
        rig.seed(&[A, Z]);
        rig.run(ttl - 10.0);
        rig.step(Event::Seeds(vec![Url::parse("http://a.example/2").unwrap()]));
        rig.run(ttl - 5.0);
        assert_eq!(rig.times(A_ROBOTS).len(), 1, "{max_age:?}");
        rig.run(ttl + 5.0);
        rig.step(Event::Seeds(vec![Url::parse("http://a.example/no").unwrap()]));
        rig.run(ttl + 10.0);
        assert_eq!(rig.times(A_ROBOTS).len(), 2, "{max_age:?}");
        assert_eq!(rig.etags, [None, Some("\"1\"".to_owned())]);
        assert!(matches!(rig.outcome("http://a.example/no"), Some((Outcome::Disallowed { .. }, _))));
    }
}

#[test]
fn an_older_robots_txt_is_used_while_a_newer_one_cannot_be_had() {
    for (reply, wait) in [
        (status(500), 1.0),
        (fail(Failure::Connect), 1.0),
        // What wants less gets less, rules or no rules.
        (later(503, 300), 300.0),
        (later(429, 300), 300.0),
    ] {
        let first = robots("User-agent: *\nDisallow: /no");
        let mut rig = Rig::with(&[(A_ROBOTS, vec![first, reply.clone()])]).crawl(&[A, Z], DAY + 10.0);
        let seeds = ["http://a.example/no", "http://a.example/yes"];
        rig.step(Event::Seeds(seeds.iter().map(|seed| Url::parse(seed).unwrap()).collect()));
        rig.run(DAY + HOUR);
        let asked = rig.times(A_ROBOTS)[1];
        let fetched = rig.times("http://a.example/yes");
        assert_eq!(fetched.len(), 1);
        about(fetched[0] - asked - 0.1, wait);
        assert!(matches!(rig.outcome("http://a.example/no"), Some((Outcome::Disallowed { .. }, _))));
        // But not for ever.
        rig.run(31.0 * DAY);
        rig.step(Event::Seeds(vec![Url::parse("http://a.example/more").unwrap()]));
        rig.run(31.0 * DAY + HOUR);
        assert!(rig.times("http://a.example/more").is_empty());
        rig.check();
    }
}

/// Nor is a robots.txt, which counts as unreachable then; what came in between counts anew.
#[test]
fn a_connection_that_is_closed_again_instead_of_robots_txt_backs_the_host_off() {
    let closed = fail(Failure::Closed);
    let rig = Rig::with(&[(A_ROBOTS, vec![closed.clone(); 9])]).crawl(&[A], HOUR);
    let times = rig.times(A_ROBOTS);
    about(times[1] - times[0], 1.1);
    about(times[2] - times[1] - 0.1, MINUTE);
    about(times[3] - times[2], 1.1);
    about(times[4] - times[3] - 0.1, 2.0 * MINUTE);
    assert!(times.len() < 14, "{times:?}");
    assert_eq!(rig.outcome(A), None);
    let rig =
        Rig::with(&[(A_ROBOTS, vec![closed.clone(), status(500), closed, status(404)])]).crawl(&[A], HOUR);
    assert_eq!(rig.times(A_ROBOTS).len(), 4);
    assert_eq!(rig.anew, [A_ROBOTS, A_ROBOTS]);
}

#[test]
fn sitemaps_of_robots_txt_are_read() {
    let sitemap = Reply { sitemap: Some(vec!["/1", "/2"]), ..status(200) };
    let rig = Rig::with(&[
        (A_ROBOTS, vec![robots("Sitemap: http://a.example/map.xml")]),
        ("http://a.example/map.xml", vec![sitemap]),
    ])
    .crawl(&[A], 20.0);
    assert_eq!(rig.times("http://a.example/2").len(), 1);
    assert_eq!(rig.requests.len(), 5);
}

#[test]
fn rules_that_find_no_room_in_memory_are_read_back() {
    let rules = || vec![robots("User-agent: *\nDisallow: /no")];
    let robots_txts: Vec<String> = (0..9).map(|host| format!("http://h{host}.example/robots.txt")).collect();
    let plan: Vec<(&str, Vec<_>)> = robots_txts.iter().map(|url| (url.as_str(), rules())).collect();
    let seeds: Vec<String> = (0..9)
        .flat_map(|host| ["yes", "no", "more"].map(|page| format!("http://h{host}.example/{page}")))
        .collect();
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let mut rig = Rig::with(&plan);
    rig.settings.robots_bytes_max = 0;
    rig.agent = Agent::new(rig.settings.clone(), Scope::new(ScopeKind::Any, Vec::new(), Vec::new()));
    let mut rig = rig.crawl(&seeds, HOUR);
    for seed in seeds {
        let outcome = rig.outcome(seed).unwrap().0;
        assert_eq!(
            matches!(outcome, Outcome::Disallowed { .. }),
            seed.ends_with("/no"),
            "{seed}: {outcome:?}"
        );
    }
    for url in &robots_txts {
        assert_eq!(rig.times(url).len(), 1, "{url} was asked for again instead of being read back");
    }
    assert!(rig.recalled > 0);
    rig.check();
}
