//! How often a host and an address are asked, and how long they are left alone.

use super::*;

#[test]
fn the_delay_runs_from_the_last_byte_and_the_longest_wish_counts() {
    for (name, rules, took, gap) in [
        ("the default", status(404), 0.1, 1.0),
        ("a crawl-delay", robots("User-agent: *\nCrawl-delay: 7"), 0.1, 7.0),
        ("a short crawl-delay", robots("User-agent: *\nCrawl-delay: 0.1"), 0.1, 1.0),
        ("a slow host", status(404), 3.0, 6.0),
    ] {
        let rig = Rig::with(&[
            (A_ROBOTS, vec![rules.took(took)]),
            (A, vec![page(&["/1", "/2"]).took(took)]),
            ("http://a.example/1", vec![page(&[]).took(took)]),
        ])
        .crawl(&[A], 100.0);
        let starts: Vec<f64> = rig.requests.iter().map(|(at, _)| *at).collect();
        assert_eq!(starts.len(), 4, "{name}");
        for pair in starts.windows(2) {
            assert!((pair[1] - pair[0] - took - gap).abs() < 0.001, "{name}: {starts:?}");
        }
    }
}

#[test]
fn a_host_that_wants_less_gets_less() {
    for (name, reply, wait) in [
        ("429 and a time", later(429, 30), 30.0),
        ("503 and a time", later(503, 3_600), HOUR),
        ("less than the delay", later(429, 0), 1.0),
        ("429 alone", status(429), MINUTE),
        ("503 alone", status(503), MINUTE),
    ] {
        let mut rig =
            Rig::with(&[(A, vec![reply.clone(), reply.clone(), page(&[])])]).crawl(&[A], 3.0 * HOUR);
        let times = rig.times(A);
        about(times[1] - times[0] - 0.1, wait);
        about(times[2] - times[1] - 0.1, if wait == MINUTE { 2.0 * MINUTE } else { wait });
        // It costs the URL no attempt.
        assert_eq!(rig.outcome(A), Some((answered(200).unwrap(), 1)), "{name}");
        rig.check();

        // The host's other URLs wait too, and then go first. When they fare better, the URL is to blame.
        let mut rig = Rig::with(&[(A, vec![reply.clone(), reply, page(&[])])])
            .crawl(&[A, "http://a.example/2"], 5.0 * HOUR);
        let (times, other) = (rig.times(A), rig.times("http://a.example/2")[0]);
        about(other - times[0] - 0.1, wait);
        assert!(times[1] > other, "{name}");
        assert_eq!(rig.outcome(A), Some((answered(200).unwrap(), 2)), "{name}");
        rig.check();
    }
}

#[test]
fn a_server_that_says_now_again_and_again_is_not_believed() {
    let mut rig = Rig::with(&[(A, vec![later(503, 0)])]).crawl(&[A], HOUR);
    // Three times, and then after 1, 2, 4, 8, 16 minutes.
    assert_eq!(rig.times(A).len(), 9, "{:?}", rig.times(A));
    rig.check();
}

#[test]
fn urls_that_are_always_busy_cost_their_host_little() {
    let busy: Vec<String> = (0..12).map(|number| format!("http://a.example/busy{number}")).collect();
    let good: Vec<String> = (0..50).map(|number| format!("http://a.example/good{number}")).collect();
    let plan: Vec<(&str, Vec<_>)> = busy.iter().map(|url| (url.as_str(), vec![status(503)])).collect();
    let seeds: Vec<&str> = busy.iter().chain(&good).map(String::as_str).collect();
    let mut rig = Rig::with(&plan).crawl(&seeds, 2.0 * DAY);
    for url in &good {
        assert_eq!(rig.outcome(url), Some((answered(200).unwrap(), 1)), "{url}");
    }
    rig.check();
}

#[test]
fn a_port_that_does_not_answer_does_not_stop_its_host() {
    for failure in [Failure::Connect, Failure::Tls] {
        let dead = "http://a.example:1/robots.txt";
        let links =
            ["http://a.example:1/", "http://a.example:1/x", "http://a.example/2", "http://a.example/3"];
        let mut rig =
            Rig::with(&[(A, vec![page(&links)]), (dead, vec![fail(failure)])]).crawl(&[A], 5.0 * DAY);
        for url in [A, "http://a.example/2", "http://a.example/3"] {
            assert_eq!(rig.outcome(url), Some((answered(200).unwrap(), 1)), "{url}");
        }
        assert!(rig.times("http://a.example/3")[0] < MINUTE);
        // The port itself is asked again as any host would be, and given up in the end.
        let times = rig.times(dead);
        about(times[1] - times[0] - 0.1, MINUTE);
        assert!((10..40).contains(&times.len()), "{times:?}");
        let failed = Outcome::Failed { failure: Failure::HostGivenUp, status: None };
        assert_eq!(rig.outcome("http://a.example:1/x"), Some((failed, 0)));
        rig.check();
    }
}

#[test]
fn a_failing_host_is_left_alone_for_longer_and_given_up_in_the_end() {
    // A host that answers robots.txt, and nothing else, does not begin anew each time that it is asked for.
    for (url, reply) in [(A_ROBOTS, fail(Failure::Connect)), (A_ROBOTS, fail(Failure::Tls)), (A, status(503))]
    {
        let seeds = if url == A { vec![A] } else { vec![A, "http://a.example/2"] };
        let mut rig = Rig::with(&[(url, vec![reply])]).crawl(&seeds, 5.0 * DAY);
        let times = rig.times(url);
        let mut wait = MINUTE;
        for pair in times.windows(2) {
            // robots.txt may have come in between.
            let between = pair[1] - pair[0] - 0.1;
            about(if between - wait > 1.0 && url == A { between - 1.1 } else { between }, wait);
            wait = (wait * 2.0).min(6.0 * HOUR);
        }
        assert!(times.last().unwrap() - times[0] >= 3.0 * DAY - 7.0 * HOUR, "{times:?}");
        assert!(times.last().unwrap() - times[0] < 3.0 * DAY + 7.0 * HOUR, "{times:?}");
        for url in seeds {
            let failed = Outcome::Failed { failure: Failure::HostGivenUp, status: None };
            assert_eq!(rig.outcome(url), Some((failed, 0)), "{url}");
        }
        rig.check();
    }
}

#[test]
fn a_name_that_does_not_exist_is_asked_for_three_times_in_a_day() {
    for before in [vec![], vec![Err(false), Err(false), Err(false)]] {
        let others = before.len();
        let answers = before.into_iter().chain([Err(true)]).collect();
        let mut rig = Rig::with(&[]);
        rig.names.insert("a.example", answers);
        let mut rig = rig.crawl(&[A], 3.0 * DAY);
        let lookups: Vec<f64> = rig.lookups.iter().skip(others).map(|(at, _)| *at).collect();
        assert_eq!(lookups.len(), 3);
        about(lookups[2] - lookups[0], DAY);
        let failed = Outcome::Failed { failure: Failure::NoSuchName, status: None };
        assert_eq!(rig.outcome(A), Some((failed, 0)));
        assert!(rig.requests.is_empty());
        rig.check();
    }
}

#[test]
fn a_name_that_cannot_be_resolved_now_backs_the_host_off() {
    let mut rig = Rig::with(&[]);
    rig.names.insert("a.example", VecDeque::from([Err(false), Err(false), Ok([93, 184, 216, 97].into())]));
    let rig = rig.crawl(&[A], HOUR);
    let lookups: Vec<f64> = rig.lookups.iter().map(|(at, _)| *at).collect();
    about(lookups[1] - lookups[0], MINUTE);
    about(lookups[2] - lookups[1], 2.0 * MINUTE);
    assert_eq!(rig.outcome(A).unwrap().0, answered(200).unwrap());
}

#[test]
fn addresses_that_are_nobodys_business_are_not_asked() {
    let ok: IpAddr = [93, 184, 216, 97].into();
    for (name, answers, pages) in [
        ("private", vec![Ok([10, 0, 0, 1].into())], 0),
        ("loopback", vec![Ok([127, 0, 0, 1].into())], 0),
        ("private the second time", vec![Ok(ok), Ok([192, 168, 0, 1].into())], 1),
    ] {
        let mut rig = Rig::with(&[]);
        rig.names.insert("a.example", answers.into());
        let mut rig = rig.crawl(&[A, Z], 400.0);
        rig.step(Event::Seeds(vec![Url::parse("http://a.example/2").unwrap()]));
        rig.run(800.0);
        assert_eq!(rig.times(A).len(), pages, "{name}");
        let failed = Outcome::Failed { failure: Failure::PrivateAddress, status: None };
        assert_eq!(rig.outcome("http://a.example/2"), Some((failed, 0)), "{name}");
        rig.check();
    }
}

#[test]
fn hosts_of_an_address_take_turns() {
    let hosts = ["http://a1.example/", "http://a2.example/", "http://a3.example/"];
    let mut rig = Rig::with(&[]);
    for host in hosts {
        rig.web.insert(host.into(), VecDeque::from([page(&["/1", "/2", "/3"])]));
    }
    let rig = rig.crawl(&hosts, 60.0);
    assert_eq!(rig.requests.len(), 15);
    for pair in rig.requests.windows(2) {
        assert!(pair[1].0 - pair[0].0 - 0.1 >= 0.249_999, "{pair:?}");
    }
    // In any three requests in a row each of them has its turn.
    for three in rig.requests.windows(3) {
        let names: BTreeSet<&str> = three.iter().map(|(_, url)| &url[..11]).collect();
        assert_eq!(names.len(), 3, "{three:?}");
    }
}

#[test]
fn two_busy_hosts_make_a_busy_address() {
    let busy = ["http://a1.example/", "http://a2.example/"];
    let other = "http://a3.example/";
    for count in [1, 2] {
        let mut rig = Rig::with(&[(other, vec![page(&["/1", "/2", "/3", "/4", "/5"])])]);
        for host in &busy[..count] {
            rig.web.insert(host.to_string(), VecDeque::from([later(503, 100), page(&[])]));
        }
        let rig = rig.crawl(&[busy[0], busy[1], other], 90.0);
        let late = rig.requests.iter().filter(|(at, _)| *at > 10.0).count();
        assert_eq!(rig.times("http://a3.example/5").len() + late, if count == 1 { 1 } else { 0 });
    }
}

#[test]
fn a_slow_host_holds_up_nobody() {
    let mut rig = Rig::with(&[(A, vec![page(&[]).took(59.0)]), (B, vec![page(&["/1", "/2", "/3"])])]);
    rig.names.insert("c.example", VecDeque::from([Err(false)]));
    let rig = rig.crawl(&[A, "http://c.example/", B], 20.0);
    assert_eq!(rig.requests.iter().filter(|(_, url)| url.starts_with(B)).count(), 5);
}
