//! The rules of docs/behaviour.md, one by one: a scripted web, a store of a few lines, and the times of all requests.

mod ends;
mod exchange;
mod handovers;
mod keepers;
mod manners;
mod memory;
mod rules;
mod saying;
mod shared;
mod urls;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::assign::Position;
use crate::federation::{Batch, Claim, Release, SiteNumber};
use crate::frontier::HostMemo;
use crate::parse::{Link, LinkKind};
use crate::record::{Failure, Settled};
use crate::robots::Directives;
use crate::scope::ScopeKind;
use crate::site::{AgentId, Moved, MovedHost, RulesAnswer, SeenUrl, SiteSettings, Terms};
use crate::url::Fingerprint;

/// Every answer takes this long unless it says otherwise.
const TOOK: Duration = Duration::from_millis(100);
/// From a record to its being durable.
const RECORDED: Duration = Duration::from_millis(10);
const WALL_START: u64 = 1_800_000_000_000;

/// Agent 1 of a site, called one, which lists these.
fn first_agent(peers: Vec<String>, shares_store: bool) -> SiteSettings {
    SiteSettings {
        me: AgentId::from(1),
        name: "one".into(),
        address: "one".into(),
        capacity: 1,
        peers,
        terms: Terms::default(),
        shares_store,
        forget_after: None,
    }
}
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
    /// Where the round goes on, and how many there were.
    hand: Option<Host>,
    rounds: u32,
}

impl Table {
    fn admit(&mut self, record: &Record) -> Admitted {
        if self.late && matches!(record, Record::Settled(_)) {
            self.undecided.extend_from_slice(record.found());
            return Admitted { undecided: self.undecided.len() as u64, ..Admitted::default() };
        }
        self.add(record.found(), record.page(0))
    }

    fn decide(&mut self) -> Admitted {
        let found = std::mem::take(&mut self.undecided);
        self.add(&found, None)
    }

    fn add(&mut self, found: &[Found], page: Option<&str>) -> Admitted {
        let mut new: BTreeMap<Host, u64> = BTreeMap::new();
        for found in found {
            let url = Url::parse(&found.url).unwrap();
            if self.known.insert(Fingerprint::of(&url)) {
                let host = Host::of(&url);
                *new.entry(host.clone()).or_default() += 1;
                let Found { depth, how, redirects, .. } = *found;
                let via = page.map(str::to_owned);
                let due = Due { url, depth, how, redirects, attempts: 0, via, found_in: 0, cash: None };
                self.queues.entry(host).or_default().push_back(due);
            }
        }
        let hosts = self.queues.len() as u64;
        Admitted { new: new.into_iter().collect(), hosts, ..Admitted::default() }
    }

    fn memo(&self, host: &Host) -> Option<HostMemo> {
        self.kept.get(host).and_then(|(memo, _)| memo.clone())
    }

    fn visit(&mut self, now: Wall, max: usize) -> Visited {
        let mut visited = Visited::default();
        let mut hand = None;
        let from = self.hand.take();
        for (host, queue) in self.queues.iter().filter(|(host, _)| Some(*host) >= from.as_ref()) {
            let away_until = self.kept.get(host).map_or(Wall(0), |(_, until)| *until);
            let next = self.next(host);
            let due = if queue.is_empty() { next } else { Some(Wall(0)) };
            match due.map(|due| due.max(away_until)) {
                Some(due) if due <= now && visited.hosts.len() == max => {
                    hand = Some(host.clone());
                    break;
                }
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
        visited.is_last = hand.is_none();
        self.rounds += u32::from(visited.is_last);
        self.hand = hand;
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

/// What a server said when it was asked for its robots.txt.
type Rules = Box<Result<RulesAnswer, Failure>>;

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
    /// Batches for another site, and what was answered to those of one.
    posts: Vec<(u64, Box<Batch>)>,
    answers: Vec<(u64, bool)>,
    /// Claims to other sites, and what was answered to those of others.
    claims: Vec<(u64, SiteNumber, Box<Claim>)>,
    releases: Vec<(u64, Option<Box<Release>>)>,
    /// What was answered to other sites that wanted rules.
    rules_given: Vec<(u64, Option<Rules>)>,
    /// Where all addresses are.
    position: Option<Position>,
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
            posts: Vec::new(),
            answers: Vec::new(),
            claims: Vec::new(),
            releases: Vec::new(),
            rules_given: Vec::new(),
            position: None,
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
        self.start();
        self.find(seeds);
    }

    fn start(&mut self) {
        let mut out = Vec::new();
        self.agent.start(self.at(), Stored::default(), &mut out);
        self.perform(out);
    }

    fn find(&mut self, seeds: &[&str]) {
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
                Action::Keep { host, memo, away_until, .. } => {
                    self.store.kept.insert(host, (memo.map(|memo| *memo), away_until));
                }
                Action::Visit { max } => {
                    let visited = self.store.visit(self.at().wall, max);
                    self.later(Duration::ZERO, Event::Visited(visited));
                }
                Action::Take { host, max, fresh_first } => {
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
                // Other sites hear nothing of it.
                Action::Tell { .. } | Action::Say { .. } => {}
                // Nothing waits there for others.
                Action::Reread { until, .. } => {
                    self.later(Duration::ZERO, Event::Reread { records: Vec::new(), next: until + 1 });
                }
                said @ (Action::Send { .. }
                | Action::Export { .. }
                | Action::AskRules { .. }
                | Action::Heard { .. }
                | Action::LookBack(_)
                | Action::TellAnew { .. }
                | Action::Shared(_)) => {
                    unreachable!("nobody is there for {said:?}")
                }
                Action::End(reason) => self.ended = Some(reason),
                Action::CountQueued(mut counted) => {
                    self.store.queues.iter().for_each(|(host, queue)| counted.add(host, queue.len() as u64));
                    let decided = Admitted::default();
                    self.later(Duration::ZERO, Event::CountedQueued { counted, decided });
                }
                Action::ExportHost { call, from: Some(_), .. } => {
                    // No answer of this store says where to go on.
                    let (moved, decided) = (Moved::default(), Admitted::default());
                    self.later(
                        Duration::ZERO,
                        Event::ExportedHost { call, moved, next: None, decided: decided.into() },
                    );
                }
                Action::ExportHost { call, host, .. } => {
                    let memo = self.store.memo(&host);
                    let moved =
                        Moved { hosts: vec![MovedHost { host, memo, seen: Vec::new() }], ..Moved::default() };
                    let decided = Admitted::default();
                    self.later(
                        Duration::ZERO,
                        Event::ExportedHost { call, moved, next: None, decided: decided.into() },
                    );
                }
                Action::Claim { call, site, claim, .. } => self.claims.push((call, site, claim)),
                Action::Release { call, release } => self.releases.push((call, release)),
                Action::GiveRules { call, result } => self.rules_given.push((call, result)),
                Action::Post { post, batch, .. } => self.posts.push((post, batch)),
                Action::Answer { call, taken } => self.answers.push((call, taken)),
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
            .map(|ip| Addresses { list: vec![ip], ttl: Duration::from_secs(300), position: self.position })
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
