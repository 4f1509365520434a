//! What becomes of a URL: its attempts, its redirects, its links.

use super::*;

#[test]
fn a_failing_url_has_four_attempts() {
    let cut = |cut| Reply { cut: Some(cut), ..page(&["/never"]) };
    for (name, reply, failure) in [
        ("500", status(500), Failure::ServerError),
        ("502", status(502), Failure::ServerError),
        ("408", status(408), Failure::Timeout),
        ("reset", fail(Failure::Disconnected), Failure::Disconnected),
        ("timeout", fail(Failure::Timeout), Failure::Timeout),
        ("not http", fail(Failure::Malformed), Failure::Malformed),
        ("cut by time", cut(Cut::Time), Failure::Timeout),
        ("cut by the server", cut(Cut::Disconnect), Failure::Disconnected),
    ] {
        let mut rig = Rig::with(&[(A, vec![reply])]).crawl(&[A, "http://a.example/2"], DAY);
        let times = rig.times(A);
        assert_eq!(times.len(), 4, "{name}");
        for (pair, wait) in times.windows(2).zip([MINUTE, 10.0 * MINUTE, HOUR]) {
            assert!(
                pair[1] - pair[0] - 0.1 >= wait - 1e-6 && pair[1] - pair[0] < wait + 2.0,
                "{name}: {times:?}"
            );
        }
        let (outcome, attempts) = rig.outcome(A).unwrap();
        assert!(matches!(outcome, Outcome::Failed { failure: f, .. } if f == failure), "{name}: {outcome:?}");
        assert_eq!(attempts, 4, "{name}");
        // Its host is none the worse for it.
        assert!(rig.times("http://a.example/2")[0] < 10.0, "{name}");
        assert!(rig.times("http://a.example/never").is_empty(), "{name}");
        rig.check();
    }
    // The attempt that succeeds is the last one; results are results.
    for (replies, count, last) in [
        (vec![status(500), status(500), status(500), page(&[])], 4, 200),
        (vec![status(404)], 1, 404),
        (vec![status(410)], 1, 410),
        (vec![Reply { cut: Some(Cut::Length), ..page(&[]) }], 1, 200),
    ] {
        let rig = Rig::with(&[(A, replies)]).crawl(&[A], DAY);
        assert_eq!(rig.times(A).len(), count);
        assert_eq!(rig.outcome(A), Some((answered(last).unwrap(), count as u8)));
    }
}

#[test]
fn a_connection_that_had_been_closed_costs_no_attempt() {
    let stale = fail(Failure::Closed);
    let rig = Rig::with(&[(A_ROBOTS, vec![stale.clone(), status(404)]), (A, vec![stale, page(&[])])])
        .crawl(&[A], 20.0);
    let starts: Vec<f64> = rig.requests.iter().map(|(at, _)| *at).collect();
    assert_eq!(starts.len(), 4);
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 1.099_999), "{starts:?}");
    assert_eq!(rig.outcome(A), Some((answered(200).unwrap(), 1)));
    // What happens to connections that are kept does not happen to it twice.
    assert_eq!(rig.anew, [A_ROBOTS, A]);
}

/// A page that makes its server hang up is not asked for again and again for nothing.
#[test]
fn a_connection_that_is_closed_again_costs_an_attempt() {
    let rig =
        Rig::with(&[(A_ROBOTS, vec![status(404)]), (A, vec![fail(Failure::Closed); 9])]).crawl(&[A], DAY);
    assert_eq!(rig.times(A).len(), 5);
    let failed = Outcome::Failed { failure: Failure::Disconnected, status: None };
    assert_eq!(rig.outcome(A), Some((failed, 4)));
}

/// As when the lease of an agent ends.
#[test]
fn what_this_side_breaks_off_costs_no_attempt_however_often() {
    let mut answers = vec![fail(Failure::NotTried); 9];
    answers.push(page(&[]));
    let rig = Rig::with(&[(A_ROBOTS, vec![status(404)]), (A, answers)]).crawl(&[A], DAY);
    assert_eq!((rig.times(A).len(), rig.outcome(A)), (10, Some((answered(200).unwrap(), 1))));
}

#[test]
fn what_a_seed_redirects_to_counts_as_the_seed() {
    for (kind, seed, expected) in [
        (ScopeKind::Site, A, vec!["http://b.example/start", "http://b.example/in"]),
        (ScopeKind::Any, A, vec!["http://b.example/start", "http://b.example/in", "http://c.example/out"]),
    ] {
        let mut rig = Rig::with(&[
            (A, vec![to("http://b.example/start")]),
            ("http://b.example/start", vec![page(&["/in", "http://c.example/out"])]),
        ]);
        rig.agent = Agent::new(Settings::default(), Scope::new(kind, Vec::new(), Vec::new()));
        let mut rig = rig.crawl(&[seed], 60.0);
        for url in &expected {
            assert_eq!(rig.times(url).len(), 1, "{url}");
        }
        assert_eq!(rig.store.known.len(), 1 + expected.len());
        assert_eq!(rig.totals().out_of_scope, 3 - expected.len() as u64);
        assert_eq!(rig.totals().seeds_answered, 2);
    }
}

#[test]
fn chains_and_loops_of_redirects_end() {
    let hop = |n: usize| format!("http://a.example/{n}");
    let mut rig = Rig::with(&[]);
    for n in 0..20 {
        rig.web.insert(hop(n), VecDeque::from([to(&hop(n + 1))]));
    }
    let mut rig = rig.crawl(&[&hop(0), B], 100.0);
    assert_eq!(rig.times(&hop(10)).len(), 1);
    assert!(rig.times(&hop(11)).is_empty());
    assert_eq!(rig.totals().traps, 1);

    let rig = Rig::with(&[(A, vec![to("/x")]), ("http://a.example/x", vec![to("/")])]).crawl(&[A], 100.0);
    assert_eq!(rig.requests.len(), 3);
}

#[test]
fn nofollow_is_not_followed_from_there() {
    for nofollow in [true, false] {
        let first = Reply { nofollow, ..page(&["/1"]) };
        let rig = Rig::with(&[(A, vec![first])]).crawl(&[A], 20.0);
        assert_eq!(rig.times("http://a.example/1").is_empty(), nofollow);
    }
}
