//! All that a store knows is copied into one of the other kind and back, and is the same then; also when the copy was
//! interrupted, and when several agents copy what they know into one store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::Totals;
use nephila_core::assign::partition_of;
use nephila_core::frontier::{HostMemo, HostState};
use nephila_core::record::{Found, How, Outcome, Record, RobotsOutcome, RobotsRecord, Settled};
use nephila_core::site::{AgentId, Moved, MovedHost, SeenUrl};
use nephila_core::time::{Mono, Now, Wall};
use nephila_core::url::{Fingerprint, Host, Origin};
use nephila_disk::{Disk, SimDisk};
use nephila_lab::redis::simulated::SimRedis;
use nephila_store::redis::{CopyNote, RedisCopy, RedisOptions, RedisStore};
use nephila_store::{
    EmbeddedCopy, EmbeddedStore, Error, FrontierOptions, Journal, Known, KnownState, Piece, Result, Store,
    StoreLimits,
};

use crate::samples::*;

const HOSTS: u64 = 5;
const PAGES: u64 = 60;
const LIMITS: StoreLimits =
    StoreLimits { max_depth: 4, max_host_pages: 30, max_urls: u64::MAX, ..StoreLimits::NONE };

fn agent(number: u64) -> AgentId {
    AgentId::from(number)
}

fn page(number: u64) -> String {
    format!("http://h{}.example/{}", number % HOSTS, number / HOSTS)
}

fn name(number: u64) -> Host {
    host(&format!("h{number}.example"))
}

fn options(cluster: &SimRedis, limits: StoreLimits, writer: AgentId) -> RedisOptions {
    RedisOptions {
        cluster: cluster.options(0),
        crawl: "copy:".to_owned(),
        // Another one is where the notes of copies are.
        partitions: (0..HOSTS)
            .map(|number| partition_of(&name(number)))
            .chain([nephila_core::assign::slot("leases")])
            .collect(),
        limits,
        writer,
        accepts_unsafe: true,
        hash_key: Some(1),
    }
}

/// A crawl as an agent would have left it, some of it twice and some of it elsewhere.
fn crawl(random: &mut Random, store: &mut EmbeddedStore, journal: &mut Journal) {
    let number = |random: &mut Random| page(random.below(HOSTS * PAGES));
    write(store, journal, &seeds((0..9).map(|_| number(random)).collect::<Vec<_>>()));
    for _ in 0..60 {
        let host = name(random.below(HOSTS));
        if random.one_in(10) {
            let seen = (0..3).map(|at| SeenUrl {
                fingerprint: Fingerprint::of(&url(&number(random))),
                place: 70 + at,
                is_sent: false,
            });
            let hosts = vec![MovedHost { host: host.clone(), memo: None, seen: seen.collect() }];
            let of_host = |seen: &SeenUrl| {
                (0..PAGES).any(|at| {
                    let page = format!("http://{host}/{at}");
                    Fingerprint::of(&url(&page)) == seen.fingerprint
                })
            };
            let hosts = hosts
                .into_iter()
                .map(|of| MovedHost { seen: of.seen.iter().copied().filter(of_host).collect(), ..of });
            let moved = Moved { hosts: hosts.collect(), ..Moved::default() };
            write(store, journal, &Record::Moved { from: agent(7), moved });
        }
        let taken = store.take(&host, 2, random.one_in(2), Wall(5_000)).unwrap();
        for due in taken.due {
            let links: Vec<Found> = (0..random.below(9))
                .map(|_| Found {
                    url: number(random),
                    depth: due.depth + 1,
                    how: How::Link,
                    redirects: random.below(3) as u8,
                })
                .collect();
            let outcome = match random.below(4) {
                0 => retry(random.below(9_000)),
                1 => Outcome::Disallowed { line: 3, rule: "/x".into() },
                _ => Outcome::Answered { status: 200 },
            };
            let capture =
                matches!(outcome, Outcome::Answered { .. }).then(|| pointer(random.below(9) as u32));
            let attempts = due.attempts + 1;
            let (depth, how, found_in) = (due.depth, due.how, due.found_in);
            let settled = settled(due.url.as_str(), outcome);
            write(
                store,
                journal,
                &Record::Settled(Settled {
                    found: links,
                    capture,
                    attempts,
                    depth,
                    how,
                    found_in,
                    ..settled
                }),
            );
        }
        if random.one_in(5) {
            let memo = memo_of(journal, &host, random.below(1_000));
            store.keep(&host, Some(&memo), Wall(0)).unwrap();
        }
        if random.one_in(15) {
            snapshot(store, journal).unwrap();
        }
    }
    snapshot(store, journal).unwrap();
}

/// What is known of a host, with its robots.txt.
fn memo_of(journal: &mut Journal, host: &Host, pages: u64) -> HostMemo {
    let robots = RobotsRecord {
        origin: Origin::of(&url(&format!("http://{host}/"))),
        url: format!("http://{host}/robots.txt"),
        at: Wall(pages),
        took: Default::default(),
        bytes: pages,
        status: Some(200),
        asked: true,
        outcome: RobotsOutcome::None { fresh_until: Wall(99_000) },
        capture: Some(pointer(3)),
        found: Vec::new(),
    };
    let place = journal.append(&Record::Robots(robots.clone())).unwrap();
    journal.flush().unwrap();
    let mut state = HostState::new(host.clone());
    (state.pages, state.not_before) = (pages, Mono(1_000 * pages));
    state.rules_of_mut(&robots.origin).seen = Some(place);
    state.memo(0, Now { mono: Mono(0), wall: Wall(0) }).unwrap()
}

/// What either kind of store says.
trait Answers {
    fn about(&mut self, url: &str) -> Option<(Known, Option<AgentId>)>;
    fn at(&mut self, place: u64) -> (Record, Option<AgentId>);
    fn of(&mut self, host: &Host) -> Option<HostMemo>;
}

impl Answers for EmbeddedStore {
    fn about(&mut self, text: &str) -> Option<(Known, Option<AgentId>)> {
        self.find(&url(text)).unwrap()
    }
    fn at(&mut self, place: u64) -> (Record, Option<AgentId>) {
        self.record_of(place).unwrap()
    }
    fn of(&mut self, host: &Host) -> Option<HostMemo> {
        self.host(host).unwrap().and_then(|stored| stored.memo)
    }
}

impl Answers for RedisStore {
    fn about(&mut self, text: &str) -> Option<(Known, Option<AgentId>)> {
        self.find(&url(text)).unwrap()
    }
    fn at(&mut self, place: u64) -> (Record, Option<AgentId>) {
        self.read_record(place).unwrap()
    }
    fn of(&mut self, host: &Host) -> Option<HostMemo> {
        self.host(host).unwrap().and_then(|stored| stored.memo)
    }
}

/// All that the store of agent 1 says, or one that has its crawl.
fn knowledge(store: &mut dyn Answers) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for number in 0..HOSTS * PAGES {
        let Some((mut known, mut by)) = store.about(&page(number)) else { continue };
        let mut cut = |settled: &mut Settled| {
            (settled.found_in, settled.found) = (0, Vec::new());
            by = settled.capture.map(|_| by.unwrap_or(agent(1)));
        };
        match &mut known.state {
            KnownState::Settled(settled) => cut(settled),
            KnownState::Retry { last, .. } => last.iter_mut().for_each(|last| cut(last)),
            _ => {}
        }
        // Of one that was tried that is not of interest any more.
        known.found.redirects = if known.state == KnownState::Queued { known.found.redirects } else { 0 };
        all.insert(page(number), format!("{known:?} by {by:?}"));
    }
    for number in 0..HOSTS {
        let Some(memo) = store.of(&name(number)) else { continue };
        let mut records = Vec::new();
        let places: Vec<u64> = memo.places().collect();
        for place in places {
            let (record, by) = store.at(place);
            records.push((record, by.unwrap_or(agent(1))));
        }
        all.insert(name(number).to_string(), format!("{:?} {records:?}", memo.with_places(|_| Some(0))));
    }
    all
}

fn copy_out(disk: &SimDisk, limits: StoreLimits, each: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
    let options = FrontierOptions { limits, ..FrontierOptions::default() };
    let mut store = EmbeddedStore::open_read_only(Arc::new(disk.clone()), Path::new(DIR), options, &mut ())?;
    store.each_piece(agent(1), u64::MAX, each)
}

#[test]
fn what_is_copied_and_copied_back_is_the_same() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let disk = SimDisk::new(seed);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (mut store, mut journal, _) = open_with(Arc::clone(&shared), small(&mut random, LIMITS)).unwrap();
        crawl(&mut random, &mut store, &mut journal);
        store.decide().unwrap();
        drop((store, journal));
        let (mut source, _) = look(Arc::clone(&shared), LIMITS).unwrap();
        let (stored, before) = (source.stored(), knowledge(&mut source));

        let cluster = SimRedis::new(seed, None);
        let options = options(&cluster, LIMITS, agent(1));
        let begin = || RedisCopy::begin(RedisStore::open(&options).unwrap(), &options);
        // It is killed somewhere, and begun again.
        let (mut copy, mut left) = (begin(), random.below(900));
        let killed = copy_out(&disk, LIMITS, &mut |piece| {
            left = left.checked_sub(1).ok_or(Error::NoRecord { place: 0 })?;
            copy.add(piece)
        });
        assert!(killed.is_ok() || left == 0);
        drop(copy);
        let mut copy = begin();
        copy_out(&disk, LIMITS, &mut |piece| copy.add(piece)).unwrap();
        copy.end().unwrap();

        let mut redis = RedisStore::open(&options).unwrap();
        assert_eq!(knowledge(&mut redis), before, "seed {seed}");
        let of_redis = redis.stored();
        assert_eq!(
            (of_redis.known, of_redis.queued, of_redis.hosts),
            (stored.known, stored.queued, stored.hosts),
            "seed {seed}"
        );

        let back: Arc<dyn Disk> = Arc::new(SimDisk::new(seed));
        let roomy = FrontierOptions { limits: LIMITS, ..FrontierOptions::default() };
        let mut copy = EmbeddedCopy::begin(Arc::clone(&back), Path::new(DIR), roomy, agent(1)).unwrap();
        redis.each_piece(&mut |piece| copy.add(piece)).unwrap();
        let (mut store, _, end) = copy.end(&Record::RunEnded { elapsed: Default::default() }).unwrap();
        let done = store.begin_snapshot(end, MEMO, u64::MAX).unwrap().run().unwrap();
        store.end_snapshot(done).unwrap();
        drop(store);
        let (mut store, _) = look(Arc::clone(&back), LIMITS).unwrap();
        assert_eq!(knowledge(&mut store), before, "seed {seed}");
        let again = store.stored();
        assert_eq!(
            (again.known, again.queued, again.hosts),
            (stored.known, stored.queued, stored.hosts),
            "seed {seed}"
        );

        // And what limits keep out has come along.
        let all = |store: &mut EmbeddedStore| -> BTreeSet<String> { knowledge(store).into_keys().collect() };
        let (mut source, _) = look(shared, NO_LIMITS).unwrap();
        let (mut store, _) = look(back, NO_LIMITS).unwrap();
        assert_eq!(all(&mut source), all(&mut store), "seed {seed}");
    }
}

/// Two agents, one of which has had a host before.
#[test]
fn agents_copy_into_one_store_in_any_order() {
    let fetched = |number: u64, file: u32| {
        let settled = settled(&page(number), Outcome::Answered { status: 200 });
        Record::Settled(Settled { capture: Some(pointer(file)), ..settled })
    };
    let (first, second) = (SimDisk::new(1), SimDisk::new(2));
    let (mut store, mut journal, _) = open(Arc::new(first.clone()), NO_LIMITS).unwrap();
    write(&mut store, &mut journal, &seeds([page(0), page(1)]));
    let place = journal.append(&fetched(0, 4)).unwrap();
    journal.sync().unwrap();
    let (mut store, mut journal, _) = open(Arc::new(second.clone()), NO_LIMITS).unwrap();
    let seen = vec![SeenUrl { fingerprint: Fingerprint::of(&url(&page(0))), place, is_sent: false }];
    let hosts = vec![MovedHost { host: name(0), memo: None, seen }];
    let record = Record::Moved { from: agent(1), moved: Moved { hosts, ..Moved::default() } };
    write(&mut store, &mut journal, &record);
    write(&mut store, &mut journal, &seeds([page(HOSTS)]));
    write(&mut store, &mut journal, &fetched(HOSTS, 5));
    journal.sync().unwrap();

    for order in [vec![2], vec![1, 2], vec![2, 1], vec![2, 1, 2]] {
        let cluster = SimRedis::new(1, None);
        for number in &order {
            let disk = if *number == 1 { &first } else { &second };
            let options = options(&cluster, NO_LIMITS, agent(*number));
            let mut copy = RedisCopy::begin(RedisStore::open(&options).unwrap(), &options);
            let (mut source, _) = look(Arc::new(disk.clone()), NO_LIMITS).unwrap();
            source.each_piece(agent(*number), u64::MAX, &mut |piece| copy.add(piece)).unwrap();
            copy.end().unwrap();
        }
        let mut redis = RedisStore::open(&options(&cluster, NO_LIMITS, agent(3))).unwrap();
        let (known, by) = redis.find(&url(&page(0))).unwrap().unwrap();
        match known.state {
            KnownState::Settled(settled) => {
                assert_eq!((by, settled.capture), (Some(agent(1)), Some(pointer(4))))
            }
            state => {
                assert_eq!(state, KnownState::Elsewhere { agent: agent(1), place });
                assert!(!order.contains(&1), "{order:?}");
            }
        }
        let (known, by) = redis.find(&url(&page(HOSTS))).unwrap().unwrap();
        assert!(matches!(known.state, KnownState::Settled(_)) && by == Some(agent(2)), "{order:?}");
        let queued = if order.contains(&1) { 1 } else { 0 };
        assert_eq!((redis.stored().queued, redis.stored().known), (queued, 2 + queued), "{order:?}");
    }
}

#[test]
fn a_store_knows_who_has_copied_into_it_and_who_has_left() {
    let cluster = SimRedis::new(1, None);
    let options = options(&cluster, NO_LIMITS, agent(1));
    let mut store = RedisStore::open(&options).unwrap();
    assert!(store.is_unused() && store.copies().unwrap().missing().is_empty());
    let members = vec![(agent(1), "a".to_owned()), (agent(2), "b".to_owned())];
    let note = |name: &str, is_done| CopyNote {
        name: name.into(),
        is_done,
        members: members.clone(),
        journal_end: 7,
    };
    store.note_copy(agent(1), &note("a", false), &Totals::default()).unwrap();
    assert_eq!(store.copies().unwrap().missing(), ["a", "b"].into());
    let totals = Totals { pages: 3, bytes: 4, ..Totals::default() };
    store.note_copy(agent(1), &note("a", true), &totals).unwrap();
    assert_eq!(store.copies().unwrap().missing(), ["b"].into());
    store.note_copy(agent(2), &note("b", true), &totals).unwrap();
    store.note_left(agent(2), "b").unwrap();
    let mut store = RedisStore::open(&options).unwrap();
    let copies = store.copies().unwrap();
    assert!(copies.missing().is_empty() && copies.are_of(agent(2)) && !copies.are_of(agent(3)));
    assert_eq!(copies.left_to, Some((agent(2), "b".to_owned())));
    assert!(!store.is_unused());
    assert_eq!((store.totals().pages, store.totals().bytes), (6, 8));
}
