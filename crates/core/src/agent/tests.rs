//! The rules of docs/behaviour.md, one by one: a scripted web, a store of a few lines, and the times of all requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::frontier::HostMemo;
use crate::parse::{Link, LinkKind};
use crate::record::{Failure, Settled};
use crate::robots::Directives;
use crate::scope::ScopeKind;
use crate::url::Fingerprint;

/// Every answer takes this long unless it says otherwise.
const TOOK: Duration = Duration::from_millis(100);
/// From a record to its being durable.
const RECORDED: Duration = Duration::from_millis(10);
const WALL_START: u64 = 1_800_000_000_000;
const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;
const DAY: f64 = 24.0 * HOUR;

/// What a server does when it is asked.
#[derive(Clone, Default)]
struct Reply {
    status: u16,
    links: Vec<&'static str>,
    nofollow: bool,
    location: Option<String>,
    retry_after: Option<u64>,
    max_age: Option<u64>,
    etag: Option<&'static str>,
    cut: Option<Cut>,
    robots: Option<&'static str>,
    sitemap: Option<Vec<&'static str>>,
    failure: Option<Failure>,
    took: Option<f64>,
}

fn status(status: u16) -> Reply {
    Reply { status, ..Reply::default() }
}

fn page(links: &[&'static str]) -> Reply {
    Reply { links: links.to_vec(), ..status(200) }
}

fn robots(body: &'static str) -> Reply {
    Reply { robots: Some(body), ..status(200) }
}

fn to(location: &str) -> Reply {
    Reply { location: Some(location.into()), ..status(301) }
}

fn fail(failure: Failure) -> Reply {
    Reply { failure: Some(failure), ..Reply::default() }
}

fn later(status: u16, retry_after: u64) -> Reply {
    Reply { status, retry_after: Some(retry_after), ..Reply::default() }
}

impl Reply {
    fn took(mut self, secs: f64) -> Reply {
        self.took = Some(secs);
        self
    }

    fn result(self, url: &Url) -> Result<Answer, FetchError> {
        if let Some(failure) = self.failure {
            return Err(FetchError { failure, detail: String::new() });
        }
        let join = |link: &&str| url.join(link).unwrap();
        let content = match (self.robots, &self.sitemap) {
            (Some(body), _) => Content::Robots(body.into()),
            (_, Some(pages)) => {
                Content::Sitemap { pages: pages.iter().map(join).collect(), sitemaps: Vec::new() }
            }
            _ => Content::Page {
                links: self
                    .links
                    .iter()
                    .map(|link| Link { url: join(link).into(), kind: LinkKind::Anchor, nofollow: false })
                    .collect(),
                directives: Directives { nofollow: self.nofollow, ..Directives::default() },
            },
        };
        Ok(Answer {
            status: self.status,
            bytes: 1_000,
            cut: self.cut,
            location: self.location,
            retry_after: self.retry_after.map(Duration::from_secs),
            etag: self.etag.map(str::to_owned),
            last_modified: None,
            max_age: self.max_age.map(Duration::from_secs),
            content,
        })
    }
}

/// The least that a store can be.
#[derive(Default)]
struct Table {
    known: BTreeSet<Fingerprint>,
    settled: u64,
    queues: BTreeMap<Host, VecDeque<Due>>,
    deferred: Vec<(Wall, Due)>,
    taken: BTreeMap<String, Due>,
    /// Links are decided only when somebody asks for that.
    late: bool,
    undecided: Vec<Found>,
    /// What is kept of hosts, and until when they are passed by.
    kept: BTreeMap<Host, (Option<HostMemo>, Wall)>,
}

impl Table {
    fn admit(&mut self, record: &Record) -> Admitted {
        if self.late && matches!(record, Record::Settled(_)) {
            self.undecided.extend_from_slice(record.found());
            return Admitted { undecided: self.undecided.len() as u64, ..Admitted::default() };
        }
        self.add(record.found())
    }

    fn decide(&mut self) -> Admitted {
        let found = std::mem::take(&mut self.undecided);
        self.add(&found)
    }

    fn add(&mut self, found: &[Found]) -> Admitted {
        let mut new: BTreeMap<Host, u64> = BTreeMap::new();
        for found in found {
            let url = Url::parse(&found.url).unwrap();
            if self.known.insert(Fingerprint::of(&url)) {
                let host = Host::of(&url);
                *new.entry(host.clone()).or_default() += 1;
                let Found { depth, how, redirects, .. } = *found;
                let due = Due { url, depth, how, redirects, attempts: 0, via: None, found_in: 0 };
                self.queues.entry(host).or_default().push_back(due);
            }
        }
        let hosts = self.queues.len() as u64;
        Admitted { new: new.into_iter().collect(), hosts, ..Admitted::default() }
    }

    fn memo(&self, host: &Host) -> Option<HostMemo> {
        self.kept.get(host).and_then(|(memo, _)| memo.clone())
    }

    /// A whole round at once.
    fn visit(&self, now: Wall) -> Visited {
        let mut visited = Visited { is_last: true, ..Visited::default() };
        for (host, queue) in &self.queues {
            let away_until = self.kept.get(host).map_or(Wall(0), |(_, until)| *until);
            let next = self.next(host);
            let due = if queue.is_empty() { next } else { Some(Wall(0)) };
            match due.map(|due| due.max(away_until)) {
                Some(due) if due <= now => visited.hosts.push(StoredHost {
                    host: host.clone(),
                    known: 0,
                    queued: 0,
                    due: queue.len() as u64,
                    next,
                    memo: self.memo(host),
                }),
                due => visited.next = [visited.next, due].into_iter().flatten().min(),
            }
        }
        visited
    }

    fn settle(&mut self, settled: &Settled) {
        let Some(mut due) = self.taken.remove(&settled.url) else {
            panic!("{} was settled and not taken", settled.url)
        };
        due.attempts = settled.attempts;
        match settled.outcome {
            Outcome::Retry { not_before, .. } => self.deferred.push((not_before, due)),
            _ => self.settled += 1,
        }
    }

    fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Taken {
        let (due, wait) = std::mem::take(&mut self.deferred).into_iter().partition(|(at, _)| *at <= now);
        self.deferred = wait;
        for (_, due) in due {
            let queue = self.queues.entry(Host::of(&due.url)).or_default();
            if fresh_first { queue.push_back(due) } else { queue.push_front(due) }
        }
        let queue = self.queues.entry(host.clone()).or_default();
        let due: Vec<Due> = queue.drain(..max.min(queue.len())).collect();
        let left = queue.len() as u64;
        for due in &due {
            assert!(self.taken.insert(due.url.to_string(), due.clone()).is_none(), "{} taken twice", due.url);
        }
        Taken { host: host.clone(), due, left, next: self.next(host), memo: self.memo(host) }
    }

    fn put_back(&mut self, host: &Host, due: Vec<Due>) {
        for due in due.into_iter().rev() {
            self.taken.remove(due.url.as_str()).expect("only what was taken is put back");
            self.queues.entry(host.clone()).or_default().push_front(due);
        }
    }

    fn next(&self, host: &Host) -> Option<Wall> {
        self.deferred.iter().filter(|(_, due)| Host::of(&due.url) == *host).map(|(at, _)| *at).min()
    }

    fn queued(&self) -> u64 {
        self.known.len() as u64 - self.settled
    }
}

struct Rig {
    agent: Agent,
    settings: Settings,
    now: Mono,
    store: Table,
    /// What each URL answers, one after the other; the last one again and again.
    web: BTreeMap<String, VecDeque<Reply>>,
    /// Names that do not resolve to an address of their own.
    names: BTreeMap<&'static str, VecDeque<Result<IpAddr, bool>>>,
    pending: BTreeMap<(Mono, u64), Event>,
    sequence: u64,
    /// When each request was made, in seconds.
    requests: Vec<(f64, String)>,
    lookups: Vec<(f64, String)>,
    /// Those that must not go over a connection that was kept.
    anew: Vec<String>,
    abandoned: Vec<FetchId>,
    etags: Vec<Option<String>>,
    in_flight: BTreeMap<FetchId, (Mono, Url)>,
    records: Vec<Record>,
    recalled: u32,
    ended: Option<StopReason>,
}

impl Rig {
    fn new(settings: Settings) -> Rig {
        let scope = Scope::new(ScopeKind::Any, Vec::new(), Vec::new());
        Rig {
            agent: Agent::new(settings.clone(), scope),
            settings,
            now: Mono(0),
            store: Table::default(),
            web: BTreeMap::new(),
            names: BTreeMap::new(),
            pending: BTreeMap::new(),
            sequence: 0,
            requests: Vec::new(),
            lookups: Vec::new(),
            anew: Vec::new(),
            abandoned: Vec::new(),
            etags: Vec::new(),
            in_flight: BTreeMap::new(),
            records: Vec::new(),
            recalled: 0,
            ended: None,
        }
    }

    /// A rig in which these URLs answer so.
    fn with(web: &[(&str, Vec<Reply>)]) -> Rig {
        let mut rig =
            Rig::new(Settings { max_wait: Duration::from_secs(400 * 86_400), ..Settings::default() });
        rig.web = web.iter().map(|(url, replies)| (url.to_string(), replies.clone().into())).collect();
        rig.web.insert(Z.into(), VecDeque::from([later(503, 365 * 86_400)]));
        rig
    }

    fn crawl(mut self, seeds: &[&str], secs: f64) -> Rig {
        self.seed(seeds);
        self.run(secs);
        self
    }

    fn seed(&mut self, seeds: &[&str]) {
        let mut out = Vec::new();
        self.agent.start(self.at(), Stored::default(), &mut out);
        self.perform(out);
        self.step(Event::Seeds(seeds.iter().map(|seed| Url::parse(seed).unwrap()).collect()));
    }

    /// Kills the agent and starts another one from what was written.
    fn restart(&mut self) {
        let scope = Scope::new(ScopeKind::Any, Vec::new(), Vec::new());
        self.agent = Agent::new(self.settings.clone(), scope);
        self.pending.clear();
        self.in_flight.clear();
        self.ended = None;
        let taken = std::mem::take(&mut self.store.taken);
        for due in taken.into_values() {
            self.store.queues.entry(Host::of(&due.url)).or_default().push_front(due);
        }
        // Nothing of it was written down.
        self.store.kept.clear();
        let now = self.at();
        for record in &self.records {
            self.agent.replay(now, 0, record, &mut |_| None);
        }
        for (_, due) in &self.store.deferred {
            self.store.queues.entry(Host::of(&due.url)).or_default();
        }
        let (known, hosts) = (self.store.known.len() as u64, self.store.queues.len() as u64);
        let stored = Stored { known, queued: self.store.queued(), hosts, ..Stored::default() };
        let mut out = Vec::new();
        self.agent.start(self.at(), stored, &mut out);
        self.perform(out);
    }

    fn at(&self) -> Now {
        Now { mono: self.now, wall: Wall(WALL_START + self.now.0 / 1_000) }
    }

    fn secs(&self) -> f64 {
        self.now.0 as f64 / 1e6
    }

    /// Lets time pass until this many seconds after the beginning.
    fn run(&mut self, secs: f64) {
        let limit = Mono((secs * 1e6) as u64);
        for _ in 0..1_000_000 {
            if self.ended.is_some() {
                return;
            }
            let event = self.pending.first_key_value().map(|(key, _)| *key);
            let wake = self.agent.next_wake().map(|at| at.max(self.now));
            let next = [event.map(|key| key.0), wake].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= limit) else {
                self.now = limit;
                return;
            };
            self.now = next;
            match event.filter(|key| key.0 == next) {
                Some(key) => {
                    let event = self.pending.remove(&key).unwrap();
                    self.step(event);
                }
                None => self.step(Event::Wake),
            }
        }
        panic!("it never comes to rest");
    }

    fn step(&mut self, event: Event) {
        match &event {
            Event::Recorded { record, .. } => {
                self.records.push((**record).clone());
                if let Record::Settled(settled) = &**record {
                    self.store.settle(settled);
                }
            }
            Event::Fetched(fetched) => {
                self.in_flight.remove(&fetched.fetch);
            }
            _ => {}
        }
        let mut out = Vec::new();
        self.agent.step(self.at(), event, &mut out);
        self.perform(out);
    }

    fn later(&mut self, wait: Duration, event: Event) {
        self.sequence += 1;
        self.pending.insert((self.now + wait, self.sequence), event);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Decide => {
                    let admitted = self.store.decide();
                    self.later(Duration::ZERO, Event::Admitted(admitted));
                }
                Action::Admit { record, .. } => {
                    let admitted = self.store.admit(&record);
                    self.later(Duration::ZERO, Event::Admitted(admitted));
                }
                Action::Keep { host, memo, away_until } => {
                    self.store.kept.insert(host, (memo.map(|memo| *memo), away_until));
                }
                Action::Visit => {
                    let visited = self.store.visit(self.at().wall);
                    self.later(Duration::ZERO, Event::Visited(visited));
                }
                Action::Take { host, max, fresh_first, .. } => {
                    let taken = self.store.take(&host, max, fresh_first, self.at().wall);
                    self.later(Duration::ZERO, Event::Taken(taken));
                }
                Action::Recall { host, place } => {
                    self.recalled += 1;
                    let of_host =
                        |record: &&Record| matches!(record, Record::Robots(of) if of.origin.host == host);
                    let record =
                        self.records.iter().rev().find(of_host).map(|record| Box::new(record.clone()));
                    self.later(Duration::ZERO, Event::Recalled { host, record, place });
                }
                Action::PutBack { host, due } => self.store.put_back(&host, due),
                Action::Resolve { host } => self.resolve(host),
                Action::Fetch(order) => self.fetch(order),
                Action::Abandon(fetch) => {
                    self.abandoned.push(fetch);
                    let (started, url) = self.in_flight[&fetch].clone();
                    let dropped = |event: &Event| !matches!(event, Event::Fetched(f) if f.fetch == fetch);
                    self.pending.retain(|_, event| dropped(event));
                    self.answer(fetch, started, url, Duration::ZERO, fail(Failure::NotTried));
                }
                Action::Write { ticket, record, .. } => {
                    let place = self.sequence;
                    self.later(RECORDED, Event::Recorded { ticket, place, record });
                }
                Action::End(reason) => self.ended = Some(reason),
            }
        }
    }

    fn resolve(&mut self, host: Host) {
        self.lookups.push((self.secs(), host.to_string()));
        let own = IpAddr::from([93, 184, 216, host.as_str().as_bytes()[0]]);
        let answer = match self.names.get_mut(host.as_str()) {
            None => Ok(own),
            Some(answers) if answers.len() > 1 => answers.pop_front().unwrap(),
            Some(answers) => answers[0],
        };
        let answer = answer
            .map(|ip| Addresses { list: vec![ip], ttl: Duration::from_secs(300) })
            .map_err(|no_such_name| NoAddress { no_such_name, detail: String::new() });
        self.later(Duration::ZERO, Event::Resolved { host, answer });
    }

    fn fetch(&mut self, order: Order) {
        self.requests.push((self.secs(), order.url.to_string()));
        self.anew.extend(order.new_connection.then(|| order.url.to_string()));
        if let (Purpose::Robots { etag, .. }, A_ROBOTS) = (&order.purpose, order.url.as_str()) {
            self.etags.push(etag.clone());
        }
        let reply = match self.web.get_mut(order.url.as_str()) {
            Some(replies) if replies.len() > 1 => replies.pop_front().unwrap(),
            Some(replies) => replies[0].clone(),
            None if order.url.path() == "/robots.txt" => status(404),
            None => page(&[]),
        };
        let took = reply.took.map_or(TOOK, Duration::from_secs_f64);
        self.in_flight.insert(order.fetch, (self.now, order.url.clone()));
        self.answer(order.fetch, self.now, order.url, took, reply);
    }

    fn answer(&mut self, fetch: FetchId, started: Mono, url: Url, took: Duration, reply: Reply) {
        let contacted = vec![IpAddr::from([93, 184, 216, Host::of(&url).as_str().as_bytes()[0]])];
        let result = reply.result(&url);
        let fetched = Fetched { fetch, started, ended: self.now + took, contacted, result };
        self.later(took, Event::Fetched(fetched));
    }

    fn control(&mut self, control: Control) {
        self.step(Event::Control(control));
    }

    fn times(&self, url: &str) -> Vec<f64> {
        self.requests.iter().filter(|(_, asked)| asked == url).map(|(at, _)| *at).collect()
    }

    /// The last word on a URL, and the attempts that it took.
    fn outcome(&self, url: &str) -> Option<(Outcome, u8)> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Settled(settled) if settled.url == url => {
                Some((settled.outcome.clone(), settled.attempts))
            }
            _ => None,
        })
    }

    fn totals(&mut self) -> Totals {
        let now = self.at();
        self.agent.status(now).totals
    }

    /// What must hold at every quiet moment.
    fn check(&mut self) {
        let now = self.at();
        let status = self.agent.status(now);
        assert_eq!(status.queue, self.store.queued(), "queue");
        let hosts: BTreeMap<Host, usize> =
            self.in_flight.values().fold(BTreeMap::new(), |mut hosts, (_, url)| {
                *hosts.entry(Host::of(url)).or_default() += 1;
                hosts
            });
        assert!(hosts.values().all(|count| *count == 1), "two requests to a host");
    }
}

/// Asserts that something lasted as long as it should, and at most a tenth (the jitter) and a moment longer.
#[track_caller]
fn about(actual: f64, expected: f64) {
    assert!(actual >= expected - 1e-6 && actual <= expected * 1.1 + 0.1, "{actual} instead of {expected}");
}

fn answered(status: u16) -> Option<Outcome> {
    Some(Outcome::Answered { status })
}

const A: &str = "http://a.example/";
const A_ROBOTS: &str = "http://a.example/robots.txt";
/// Seeded beside others it keeps a crawl from ending: its page is due in a year.
const Z: &str = "http://z.example/";
const B: &str = "http://b.example/";
const B_ROBOTS: &str = "http://b.example/robots.txt";

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
    let stale = fail(Failure::NotTried);
    let rig = Rig::with(&[(A_ROBOTS, vec![stale.clone(), status(404)]), (A, vec![stale, page(&[])])])
        .crawl(&[A], 20.0);
    let starts: Vec<f64> = rig.requests.iter().map(|(at, _)| *at).collect();
    assert_eq!(starts.len(), 4);
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 1.099_999), "{starts:?}");
    assert_eq!(rig.outcome(A), Some((answered(200).unwrap(), 1)));
    // What happens to connections that are kept does not happen to it twice.
    assert_eq!(rig.anew, [A]);
}

/// A page that makes its server hang up is not asked for again and again for nothing.
#[test]
fn a_connection_that_is_closed_again_costs_an_attempt() {
    let rig =
        Rig::with(&[(A_ROBOTS, vec![status(404)]), (A, vec![fail(Failure::NotTried); 9])]).crawl(&[A], DAY);
    assert_eq!(rig.times(A).len(), 5);
    let failed = Outcome::Failed { failure: Failure::Disconnected, status: None };
    assert_eq!(rig.outcome(A), Some((failed, 4)));
}

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
