//! What is particular to the store in a Redis Cluster: who may write, what happens to servers, and how large things become.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nephila_core::assign::partition_of;
use nephila_core::record::{Outcome, Record, Settled};
use nephila_core::site::{AgentId, Beat, Member, Terms, Wishes};
use nephila_core::time::Wall;
use nephila_core::url::Host;
use nephila_lab::redis::simulated::SimRedis;
use nephila_lab::redis::{REPLICA_RIGHTS, RIGHTS, RedisCluster, RedisClusterOptions};
use nephila_store::redis::{
    LinkOptions, RedisLeases, RedisOptions, RedisServers, RedisStore, ServerFigures, Value,
};
use nephila_store::{Error, KnownState, Store};

use crate::contract::redis::{cluster, options};
use crate::samples::*;

fn page(number: u64) -> String {
    format!("http://a.example/{number}")
}

/// Makes URLs known, as an agent would.
fn offer(store: &mut RedisStore, urls: impl IntoIterator<Item = String>) {
    let record = seeds(urls);
    let place = store.append(&record).unwrap();
    store.flush().unwrap();
    store.admit(place, &record, None).unwrap();
    store.decide().unwrap();
    store.flush().unwrap();
}

fn of(cluster: &RedisCluster) -> RedisOptions {
    let mut options = options(NO_LIMITS);
    options.cluster.nodes = cluster.nodes();
    options.cluster.link = cluster.link_options().clone();
    options
}

#[test]
fn who_comes_later_fences_who_was_there() {
    let options = options(NO_LIMITS);
    let mut first = RedisStore::open(&options).unwrap();
    offer(&mut first, (0..9).map(page));
    let taken = first.take(&host("a.example"), 3, false, Wall(0)).unwrap();

    let mut second = RedisStore::open(&options).unwrap();
    let record = Record::Settled(settled(taken.due[0].url.as_str(), Outcome::Answered { status: 200 }));
    let place = first.append(&record);
    let failed = place.and_then(|_| first.flush()).unwrap_err();
    assert!(matches!(failed, Error::Fenced { partition } if partition == partition_of(&host("a.example"))));
    let known = second.look_up(&url(&page(0))).unwrap().unwrap();
    assert_eq!(known.state, KnownState::Queued, "nothing of it was written, and it is due again");
    assert_eq!(second.take(&host("a.example"), 99, false, Wall(0)).unwrap().due.len(), 9);
}

#[test]
fn who_was_fenced_and_does_not_know_comes_to_an_end() {
    let options = options(NO_LIMITS);
    let mut first = RedisStore::open(&options).unwrap();
    offer(&mut first, (0..200).map(page));
    let mut left = 200 - first.take(&host("a.example"), 3, false, Wall(0)).unwrap().due.len();

    let mut second = RedisStore::open(&options).unwrap();
    left += 3;
    while left > 0 {
        left -= second.take(&host("a.example"), 99, false, Wall(0)).unwrap().due.len();
    }
    // All that it remembers to be queued is gone.
    first.take(&host("a.example"), 99, false, Wall(0)).unwrap_err();
}

#[test]
fn what_was_found_stays_in_the_outbox_until_it_is_durably_known() {
    let cluster = SimRedis::new(0, None);
    let (a, b) = (partition_of(&host("a.example")), partition_of(&host("b.example")));
    let options = RedisOptions { cluster: cluster.options(0), partitions: vec![a, b], ..options(NO_LIMITS) };
    let mut first = RedisStore::open(&options).unwrap();
    offer(&mut first, [page(0)]);
    // Another one has b.example by now, and the first does not know.
    let mut second = RedisStore::open(&RedisOptions { partitions: vec![b], ..options.clone() }).unwrap();
    let elsewhere = "http://b.example/1";
    let record =
        Settled { found: vec![found(elsewhere, 3)], ..settled(&page(0), Outcome::Answered { status: 200 }) };
    let record = Record::Settled(record);
    let place = first.append(&record).unwrap();
    first.flush().unwrap();
    first.admit(place, &record, None).unwrap();
    let refused = first.decide().and_then(|_| first.flush()).unwrap_err();
    assert!(matches!(refused, Error::Fenced { partition } if partition == b));
    assert_eq!(first.taken_over().unwrap(), [b]);
    first.let_go_now(b);
    first.flush().unwrap();
    assert_eq!(first.take_elsewhere(9), [(place, found(elsewhere, 3))]);
    // It ends before it has sent it.
    let mut third = RedisStore::open(&RedisOptions { partitions: vec![a], ..options }).unwrap();
    assert_eq!(third.take_elsewhere(9), [(place, found(elsewhere, 3))]);
    assert_eq!(second.offer(vec![(place, found(elsewhere, 3))]), []);
    assert_eq!(second.decide().unwrap().new.len(), 1);
}

#[test]
fn a_host_that_is_about_to_be_asked_is_marked() {
    let options = options(NO_LIMITS);
    let a = host("a.example");
    let mut first = RedisStore::open(&options).unwrap();
    offer(&mut first, [page(0)]);
    first.mark(&a).unwrap();
    first.flush().unwrap();
    assert!(!first.is_under_way(&a).unwrap(), "it is our own");
    assert!(RedisStore::open(&options).unwrap().is_under_way(&a).unwrap());
    let mut second = RedisStore::open(&RedisOptions { crawl: "marks:".into(), ..options.clone() }).unwrap();
    second.mark(&a).unwrap();
    second.flush().unwrap();
    second.keep(&a, None, Wall(0)).unwrap();
    second.flush().unwrap();
    let options = RedisOptions { crawl: "marks:".into(), ..options };
    assert!(!RedisStore::open(&options).unwrap().is_under_way(&a).unwrap(), "it was taken back");
}

#[test]
fn leases_are_one_table_for_all() {
    let simulated = SimRedis::new(1, None);
    for cluster in [options(NO_LIMITS).cluster, simulated.options(0)] {
        let mut clients = [0, 1].map(|_| RedisLeases::open(cluster.clone(), "leases:").unwrap());
        let member = |me: u64| Member {
            name: me.to_string(),
            address: me.to_string(),
            capacity: 1,
            version: 0,
            life: 1,
            forgotten: 0,
        };
        let mut beat = |client: usize, incarnation, number, holds: &[u16], fences: &[(AgentId, u64, u64)]| {
            let me = client as u64;
            let beat = Beat {
                me: AgentId::from(me),
                incarnation,
                replaces: 0,
                number,
                member: member(me),
                calendar: Wall(7),
                terms: Terms::default(),
                wishes: Wishes::default(),
                holds: holds.iter().copied().collect(),
                fences: fences.to_vec(),
                leaves: false,
            };
            let (incarnation, leases) = clients[client].beat(&beat).unwrap();
            let held =
                |me: u64| leases.get(AgentId::from(me)).map(|lease| lease.held.iter().collect::<Vec<_>>());
            (incarnation, [held(0), held(1)])
        };
        let some = |held: &[u16]| Some(held.to_vec());
        assert_eq!(beat(0, 0, 1, &[], &[]), (Some(1), [some(&[]), None]));
        assert_eq!(beat(1, 0, 1, &[], &[]), (Some(2), [some(&[]), some(&[])]));
        assert_eq!(beat(0, 1, 2, &[1, 2], &[]), (Some(1), [some(&[1, 2]), some(&[])]));
        assert_eq!(beat(1, 2, 2, &[2, 3], &[]), (Some(2), [some(&[1, 2]), some(&[3])]));
        assert_eq!(beat(1, 2, 2, &[], &[]).0, None, "it is not newer");
        assert_eq!(beat(1, 2, 3, &[2, 3], &[(AgentId::from(0), 1, 2)]), (Some(2), [None, some(&[2, 3])]));
        assert_eq!(beat(0, 1, 3, &[1], &[]).0, None, "it was fenced");
    }
}

#[test]
fn wishes_and_the_calendar_are_kept_beside_the_leases() {
    let simulated = SimRedis::new(1, None);
    for cluster in [options(NO_LIMITS).cluster, simulated.options(0)] {
        let open = || RedisLeases::open(cluster.clone(), "wishes:").unwrap();
        assert_eq!((open().look().unwrap().drawn(), open().look().unwrap().calendar), (0, Wall(0)));
        let (mut paused, mut widened) = (Wishes::default(), Wishes::default());
        paused.pause(true);
        widened.add_seed("http://a.example/");
        open().begin(Wall(9), &paused).unwrap();
        let leases = open().begin(Wall(5), &widened).unwrap();
        assert_eq!(leases, open().look().unwrap());
        assert!(leases.wishes.is_paused() && leases.wishes.seeds().eq(["http://a.example/"]));
        assert_eq!((leases.drawn(), leases.calendar), (1, Wall(9)), "it began before");
    }
}

#[test]
fn who_was_there_before_may_still_be_at_it() {
    let options = options(NO_LIMITS);
    let (a, b) = (host("a.example"), host("b.example"));
    let mut first = RedisStore::open(&options).unwrap();
    offer(&mut first, (0..9).map(page).chain(["http://b.example/".to_owned()]));
    first.take(&a, 3, false, Wall(0)).unwrap();
    first.take(&b, 1, false, Wall(0)).unwrap();
    first.mark(&a).unwrap();
    first.flush().unwrap();
    assert!(!first.is_under_way(&a).unwrap(), "it is our own");
    let settle = |store: &mut RedisStore, asked: bool| {
        let due = store.take(&a, 1, false, Wall(0)).unwrap().due.remove(0);
        let outcome = Outcome::Answered { status: 200 };
        let record = Record::Settled(Settled { asked, ..settled(due.url.as_str(), outcome) });
        store.append(&record).unwrap();
        store.flush().unwrap();
    };
    // Who comes next may end before it asks for anything, or turn something down without asking.
    let mut second = RedisStore::open(&options).unwrap();
    assert_eq!([&a, &b].map(|host| second.is_under_way(host).unwrap()), [true, false]);
    let mut third = RedisStore::open(&options).unwrap();
    settle(&mut third, false);
    assert!(third.is_under_way(&a).unwrap());
    settle(&mut third, true);
    assert!(!third.is_under_way(&a).unwrap());
}

#[test]
fn agents_send_each_other_what_they_find_and_hand_partitions_over() {
    let mut options = options(NO_LIMITS);
    let (a, b) = (host("a.example"), host("b.example"));
    let mut of_b =
        RedisStore::open(&RedisOptions { partitions: vec![partition_of(&b)], ..options.clone() }).unwrap();
    options.partitions.retain(|partition| *partition != partition_of(&b));
    let mut of_a = RedisStore::open(&options).unwrap();
    let urls = [page(1), "http://b.example/1".to_owned(), page(2), "http://b.example/2".to_owned()];
    offer(&mut of_a, [page(0)]);
    let found = urls.iter().map(|url| found(url, 3)).collect();
    let record = Record::Settled(Settled { found, ..settled(&page(0), Outcome::Answered { status: 200 }) });
    let place = of_a.append(&record).unwrap();
    of_a.admit(place, &record, None).unwrap();
    of_a.decide().unwrap();
    of_a.flush().unwrap();
    assert_eq!((of_a.stored().known, of_a.stored().undecided), (3, 0));
    assert_eq!(of_a.take_elsewhere(9).len(), 2);
    // It ends before anybody has got them.
    let mut of_a = RedisStore::open(&options).unwrap();
    let sent = of_a.take_elsewhere(9);
    let texts: Vec<&str> = sent.iter().map(|(_, found)| found.url.as_str()).collect();
    assert_eq!(texts, ["http://b.example/1", "http://b.example/2"]);
    let places: Vec<u64> = sent.iter().map(|(place, _)| *place).collect();
    assert_eq!(of_b.offer(sent), []);
    assert_eq!(of_b.decide().unwrap().new, [(b.clone(), 2)]);
    of_b.flush().unwrap();
    of_a.acknowledge(places).unwrap();
    of_a.flush().unwrap();
    assert_eq!(RedisStore::open(&options).unwrap().take_elsewhere(9), []);
    let mut of_a = RedisStore::open(&options).unwrap();
    let taken = of_b.take(&b, 1, false, Wall(0)).unwrap();
    assert_eq!((taken.due[0].via.as_deref(), taken.due[0].depth), (Some(page(0).as_str()), 3));

    of_b.let_go(partition_of(&b)).unwrap();
    assert!(matches!(of_b.take(&b, 1, false, Wall(0)).unwrap_err(), Error::Fenced { .. }));
    assert_eq!(of_b.stored().known, 0);
    of_a.take_over(&[partition_of(&b)]).unwrap();
    assert_eq!(of_a.stored().known, 5);
    assert_eq!(of_a.take(&b, 9, false, Wall(0)).unwrap().due.len(), 2);
    assert!(!of_a.is_under_way(&b).unwrap(), "it was taken, and nobody was about to ask it");
    assert_eq!(of_a.take(&a, 9, false, Wall(0)).unwrap().due.len(), 2);
}

#[test]
fn records_are_appended_together_as_one_by_one() {
    let options = options(NO_LIMITS);
    let mut store = RedisStore::open(&options).unwrap();
    offer(&mut store, (0..9).map(page));
    store.take(&host("a.example"), 5, false, Wall(0)).unwrap();
    // One of them twice, one that was not taken, one that nobody knows, and one of another host.
    let end = |url: &str, outcome| Record::Settled(settled(url, outcome));
    let done = || Outcome::Answered { status: 200 };
    let records = [
        end(&page(0), retry(50)),
        end(&page(0), retry(70)),
        end(&page(1), done()),
        end(&page(7), done()),
        end(&page(99), done()),
        end(&page(1), retry(60)),
        end("http://b.example/", retry(10)),
        Record::RunStarted { at: Wall(1) },
    ];
    let mut places = Vec::new();
    store.append_all(&records, &mut places).unwrap();
    store.flush().unwrap();
    assert_eq!(places.len(), records.len());
    for (place, record) in places.iter().zip(&records) {
        assert_eq!(store.record(*place).unwrap(), *record);
    }
    let stored = store.stored();
    assert_eq!((stored.known, stored.queued), (11, 9));
    let taken = store.take(&host("a.example"), 99, false, Wall(69)).unwrap();
    let paths: Vec<&str> = taken.due.iter().map(|due| due.url.path()).collect();
    assert_eq!((paths, taken.next), (vec!["/1", "/5", "/6", "/8"], Some(Wall(70))));
}

#[test]
fn a_partition_that_is_lost_costs_no_other() {
    let options = options(NO_LIMITS);
    let (a, b) = (host("a.example"), host("b.example"));
    let mut first = RedisStore::open(&options).unwrap();
    offer(&mut first, (0..9).map(page).chain((0..9).map(|number| format!("http://b.example/{number}"))));
    let of_a = RedisOptions { partitions: vec![partition_of(&a)], ..options.clone() };
    let mut second = RedisStore::open(&of_a).unwrap();
    // Commits to both are on their way when it turns out.
    for host in [&b, &a, &b] {
        first.keep(host, None, Wall(7)).unwrap();
    }
    assert!(
        matches!(first.confirm().unwrap_err(), Error::Fenced { partition } if partition == partition_of(&a))
    );
    first.let_go_now(partition_of(&a));
    first.flush().unwrap();
    assert_eq!(first.take(&b, 99, false, Wall(0)).unwrap().due.len(), 9);
    assert_eq!(second.take(&a, 99, false, Wall(0)).unwrap().due.len(), 9);
    assert_eq!((first.stored().known, second.stored().known), (9, 9));
}

#[test]
fn servers_that_have_forgotten_the_script_are_given_it_again() {
    let mut cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let mut options = of(&cluster);
    options.cluster.patience = Duration::from_secs(20);
    let mut store = RedisStore::open(&options).unwrap();
    offer(&mut store, (0..100).map(page));
    (0..6).for_each(|number| drop(cluster.ask(number, &["SCRIPT", "FLUSH"])));
    offer(&mut store, (100..200).map(page));
    let hosts = (0..100).filter_map(|number| Host::parse(&format!("h{number}.example")));
    let hosts: Vec<Host> = hosts.filter(|host| options.partitions.contains(&partition_of(host))).collect();
    // One that is started again answers before it has loaded what it had, and has the script no more.
    for number in 0..6 {
        cluster.kill(number).unwrap();
        cluster.restart(number).unwrap();
        offer(&mut store, hosts.iter().map(|host| format!("http://{}/{number}", host.as_str())));
    }
    let until = Instant::now() + Duration::from_secs(20);
    while store.decide().unwrap().undecided > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(hosts.len() > 20);
    assert_eq!(store.stored().known, 200 + 6 * hosts.len() as u64);
}

#[test]
fn a_store_that_somebody_emptied_is_not_gone_on_with() {
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let mut store = RedisStore::open(&of(&cluster)).unwrap();
    offer(&mut store, (0..100).map(page));
    // Replicas refuse that, and follow.
    (0..6).for_each(|number| drop(cluster.ask(number, &["FLUSHALL"])));
    store.append(&seeds((100..200).map(page))).unwrap();
    let failed = store.flush().unwrap_err();
    assert!(matches!(&failed, Error::WentBack { .. }), "{failed}");
}

/// Two hosts of which one server has both, and their partitions.
fn two_of_one_server(cluster: &RedisCluster) -> [(Host, u16); 2] {
    let of = |number: u64| host(&format!("h{number}.example"));
    let server = |host: &Host| cluster.primary_of(partition_of(host)).unwrap();
    let first = of(0);
    let second = (1..).map(of).find(|second| server(second) == server(&first)).unwrap();
    [first, second].map(|host| (host.clone(), partition_of(&host)))
}

#[test]
fn a_partition_that_somebody_emptied_is_not_begun_anew() {
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let [(a, of_a), (b, of_b)] = two_of_one_server(&cluster);
    let open = |partitions: Vec<u16>| RedisStore::open(&RedisOptions { partitions, ..of(&cluster) }).unwrap();
    let urls = |host: &Host| (0..9).map(|number| format!("http://{}/{number}", host.as_str())).collect();
    let (urls_a, urls_b): (Vec<String>, Vec<String>) = (urls(&a), urls(&b));
    let (mut first, mut second) = (open(vec![of_a]), open(vec![of_b]));
    offer(&mut first, urls_a.clone());
    offer(&mut second, urls_b.clone());
    // Who had it and takes it over again knows nothing else, and goes on with it.
    first.let_go(of_a).unwrap();
    first.take_over(&[of_a]).unwrap();
    assert_eq!(first.stored().known, 9);

    cluster.ask(cluster.primary_of(of_a).unwrap(), &["FLUSHALL"]).unwrap();
    first.append(&seeds(urls_a)).unwrap();
    let failed = first.flush().unwrap_err();
    assert!(matches!(&failed, Error::WentBack { .. }), "{failed}");
    first.let_go_now(of_a);
    let is_lost = |failed: Result<(), Error>| {
        let failed = failed.unwrap_err();
        assert!(matches!(&failed, Error::Lost { .. }), "{failed}");
    };
    is_lost(first.take_over(&[of_a]));
    // It was fenced, and comes again.
    let mut again = open(Vec::new());
    again.remember(first.reached());
    is_lost(again.take_over(&[of_a]));
    // Another one did not know that partition, and knows one beside it.
    is_lost(second.take_over(&[of_a]));
}

#[test]
fn leases_that_somebody_emptied_are_not_begun_anew() {
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let mut leases = RedisLeases::open(of(&cluster).cluster, "leases:").unwrap();
    let member =
        Member { name: "a".into(), address: "a".into(), capacity: 1, version: 0, life: 1, forgotten: 0 };
    let mut beat = Beat {
        me: AgentId::from(1),
        incarnation: 0,
        replaces: 0,
        number: 1,
        member,
        calendar: Wall(7),
        terms: Terms::default(),
        wishes: Wishes::default(),
        holds: Default::default(),
        fences: Vec::new(),
        leaves: false,
    };
    assert_eq!(leases.beat(&beat).unwrap().0, Some(1));
    (0..6).for_each(|number| drop(cluster.ask(number, &["FLUSHALL"])));
    (beat.incarnation, beat.number) = (1, 2);
    let failed = leases.beat(&beat).unwrap_err();
    assert!(matches!(&failed, Error::Lost { .. }), "{failed}");
}

#[test]
fn a_full_server_loses_nothing() {
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let mut options = of(&cluster);
    options.cluster.patience = Duration::from_millis(200);
    let mut store = RedisStore::open(&options).unwrap();
    offer(&mut store, (0..100).map(page));
    let limit = |bytes: &str| {
        (0..6).for_each(|number| drop(cluster.ask(number, &["CONFIG", "SET", "maxmemory", bytes])))
    };
    limit("1mb");
    let record = seeds((100..200).map(page));
    let place = store.append(&record).unwrap();
    let failed = store.flush().unwrap_err();
    assert!(matches!(&failed, Error::StoreFull { .. }), "{failed}");
    limit("0");
    store.flush().unwrap();
    store.admit(place, &record, None).unwrap();
    store.decide().unwrap();
    store.flush().unwrap();
    assert_eq!(store.stored().known, 200);
    assert_eq!(RedisStore::open(&options).unwrap().stored().known, 200);
}

#[test]
fn a_host_lies_in_many_small_values() {
    let options = options(NO_LIMITS);
    let mut store = RedisStore::open(&options).unwrap();
    let long = "x".repeat(1_500);
    let urls: Vec<String> = (0..2_000).map(|number| format!("{}/{long}", page(number))).collect();
    for urls in urls.chunks(500) {
        offer(&mut store, urls.iter().cloned());
    }
    let primary = cluster().primary_of(partition_of(&host("a.example"))).unwrap();
    let slot = partition_of(&host("a.example")).to_string();
    let Value::Array(keys) = cluster().ask(primary, &["CLUSTER", "GETKEYSINSLOT", &slot, "100000"]).unwrap()
    else {
        panic!("keys are a list")
    };
    let mut buckets = 0;
    for key in keys {
        let Value::BulkString(key) = key else { panic!("{key:?} is a text") };
        let key = String::from_utf8(key).unwrap();
        let Some(rest) = key.strip_prefix(&options.crawl) else { continue };
        let Value::Int(bytes) = cluster().ask(primary, &["MEMORY", "USAGE", &key, "SAMPLES", "0"]).unwrap()
        else {
            panic!("{key} has a size")
        };
        assert!(bytes < 64 << 10, "{key} takes {bytes} bytes");
        if rest.starts_with("{a.example}s") {
            buckets += 1;
            let encoding = cluster().ask(primary, &["OBJECT", "ENCODING", &key]).unwrap();
            assert_eq!(encoding, Value::BulkString(b"listpack".to_vec()), "{key}");
        }
    }
    assert_eq!(buckets, 2_000_u64.div_ceil(64));
    for text in &urls {
        assert!(store.look_up(&url(text)).unwrap().is_some(), "{text} is not known");
    }
    offer(&mut store, urls);
    assert_eq!(store.stored().known, 2_000);
}

/// Settles one URL after another, and gives back those that were acknowledged.
fn settle_all(store: &mut RedisStore, mut each: impl FnMut(usize)) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    loop {
        let taken = store.take(&host("a.example"), 20, false, Wall(0)).unwrap();
        if taken.due.is_empty() {
            return acknowledged;
        }
        for due in taken.due {
            let outcome = Outcome::Answered { status: 200 };
            let record = Settled { attempts: 1, ..settled(due.url.as_str(), outcome) };
            store.append(&Record::Settled(record)).unwrap();
            store.flush().unwrap();
            assert!(acknowledged.insert(due.url.to_string()), "{} was handed over twice", due.url);
            each(acknowledged.len());
        }
    }
}

#[test]
fn what_is_unknown_is_repeated_and_done_once() {
    let mut cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let mut options = of(&cluster);
    // Servers that pause for longer are given up and asked anew.
    options.cluster.link =
        LinkOptions { answer_time_max: Duration::from_millis(150), ..options.cluster.link };
    let mut store = RedisStore::open(&options).unwrap();
    offer(&mut store, (0..200).map(page));
    let slot = partition_of(&host("a.example"));
    let first = cluster.primary_of(slot).unwrap();
    let acknowledged = settle_all(&mut store, |settled| match settled {
        // What is sent now is done when it goes on, and nobody waits for the answer.
        40 | 80 => cluster.pause_for(first, Duration::from_millis(400)).unwrap(),
        // Its replica takes over, and has none itself before it is back.
        120 => {
            cluster.kill(first).unwrap();
            let until = Instant::now() + Duration::from_secs(30);
            while cluster.primary_of(slot).unwrap() == first {
                assert!(Instant::now() < until, "nobody takes over");
            }
            cluster.restart(first).unwrap();
        }
        _ => {}
    });
    assert_ne!(cluster.primary_of(slot).unwrap(), first);
    assert_eq!(acknowledged.len(), 200);
    let stored = store.stored();
    assert_eq!((stored.known, stored.queued), (200, 0));
    drop(store);
    let mut again = RedisStore::open(&options).unwrap();
    assert_eq!((again.stored().known, again.stored().queued), (200, 0));
    for number in 0..200 {
        let known = again.look_up(&url(&page(number))).unwrap().unwrap();
        assert!(matches!(known.state, KnownState::Settled(_)));
    }
}

#[test]
fn a_slot_moves_while_it_is_in_use() {
    let cluster =
        RedisCluster::start(&RedisClusterOptions { tls: true, login: true, ..Default::default() }).unwrap();
    let options = of(&cluster);
    let mut store = RedisStore::open(&options).unwrap();
    for first in (0..2_000).step_by(500) {
        offer(&mut store, (first..first + 500).map(page));
    }
    let slot = partition_of(&host("a.example"));
    let from = cluster.primary_of(slot).unwrap();
    let to = (0..3).find(|number| *number != from).unwrap();
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| cluster.move_slot(slot, to).unwrap());
        for first in (2_000..4_000).step_by(100) {
            offer(&mut store, (first..first + 100).map(page));
        }
        assert!(moves.join().unwrap().keys > 60);
    });
    assert_eq!(cluster.primary_of(slot).unwrap(), to);
    drop(store);
    let mut again = RedisStore::open(&options).unwrap();
    assert_eq!(again.stored().known, 4_000);
    assert!((0..4_000).all(|number| again.look_up(&url(&page(number))).unwrap().is_some()));
}

#[test]
fn others_go_on_while_a_slot_is_not_served() {
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let mut options = of(&cluster);
    options.cluster.patience = Duration::from_millis(300);
    let mut store = RedisStore::open(&options).unwrap();
    let of_b = |number: u64| format!("http://b.example/{number}");
    offer(&mut store, (0..9).map(page).chain((0..9).map(of_b)));
    // As if it were moving: what needs a key that is not there has to wait.
    let slot = partition_of(&host("a.example"));
    let from = cluster.primary_of(slot).unwrap();
    let to = (0..3).find(|number| *number != from).unwrap();
    let [from_id, to_id] =
        [from, to].map(|number| match cluster.ask(number, &["CLUSTER", "MYID"]).unwrap() {
            Value::BulkString(id) => String::from_utf8(id).unwrap(),
            other => panic!("{other:?} is no name"),
        });
    cluster.ask(to, &["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &from_id]).unwrap();
    cluster.ask(from, &["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &to_id]).unwrap();
    for round in 1..4 {
        // At another depth, and so in a chunk that is new.
        let urls = (0..9).map(|number| found(&page(100 * round + number), round as u16));
        let record =
            Record::Seeds(urls.chain((0..9).map(|number| found(&of_b(100 * round + number), 0))).collect());
        let place = store.append(&record).unwrap();
        store.admit(place, &record, None).unwrap();
        store.decide().unwrap();
        assert_eq!(store.confirm().unwrap(), BTreeSet::from([slot]));
        let taken = store.take(&host("b.example"), 9, false, Wall(0)).unwrap();
        assert_eq!((taken.due.len(), taken.left), (9, 9));
        let failed = store.take(&host("a.example"), 9, false, Wall(0)).unwrap_err();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed}");
    }
    assert_eq!(store.stored().undecided, 18, "what came after the commit that waits has to wait, too");
    assert!(matches!(store.flush().unwrap_err(), Error::Unavailable { .. }));
    cluster.move_slot(slot, to).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    store.decide().unwrap();
    store.flush().unwrap();
    assert_eq!((store.stored().known, store.stored().undecided), (72, 0));
    assert_eq!(store.take(&host("a.example"), 99, false, Wall(0)).unwrap().due.len(), 36);
    let again = RedisStore::open(&options).unwrap();
    assert_eq!(again.stored().known, 72);
}

#[test]
fn unsafe_settings_are_refused_with_the_line_to_change() {
    let mut cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let mut options = RedisOptions { accepts_unsafe: false, ..of(&cluster) };
    RedisStore::open(&options).unwrap();
    options.cluster.replicas = 2;
    let refused = |options: &RedisOptions| match RedisStore::open(options) {
        Err(Error::Unsafe { wrong, may_pass }) => {
            assert_eq!(may_pass, options.cluster.replicas > 1, "replicas may come, settings do not change");
            wrong.join("\n")
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is accepted"),
    };
    assert!(refused(&options).contains("has 1 replicas in step and needs 2"));
    options.cluster.replicas = 1;
    for (name, bad, good) in [
        ("appendonly", "no", "yes"),
        ("appendfsync", "no", "everysec"),
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ("no-appendfsync-on-rewrite", "yes", "no"),
    ] {
        cluster.ask(4, &["CONFIG", "SET", name, bad]).unwrap();
        let wrong = refused(&options);
        let node = &cluster.nodes()[4];
        assert!(wrong.contains(&format!("{node} has `{name} {bad}` and needs `{name} {good}`")), "{wrong}");
        assert_eq!(wrong.lines().count(), 1, "{wrong}");
        cluster.ask(4, &["CONFIG", "SET", name, good]).unwrap();
    }
    let primary = cluster.primary_of(0).unwrap();
    let replica = (3..6).find(|number| {
        cluster
            .info(*number, "replication")
            .unwrap()
            .contains(&format!("master_port:{}\r\n", cluster.nodes()[primary].rsplit_once(':').unwrap().1))
    });
    cluster.kill(replica.unwrap()).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while RedisStore::open(&options).is_ok() {
        assert!(Instant::now() < until, "a primary without a replica is accepted");
    }
}

#[test]
fn links_that_others_can_read_or_use_are_refused() {
    let cluster =
        RedisCluster::start(&RedisClusterOptions { tls: true, login: true, ..Default::default() }).unwrap();
    let options = RedisOptions { accepts_unsafe: false, ..of(&cluster) };
    drop(RedisStore::open(&options).unwrap());
    let node = &cluster.nodes()[4];
    let refused = |what: &str| match RedisStore::open(&options) {
        Err(Error::Unsafe { wrong, may_pass: false }) => {
            assert!(wrong.len() == 1 && wrong[0].starts_with(&format!("{node} {what}")), "{wrong:?}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is accepted"),
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = free.port().to_string();
    // Connections that there are stay as they are.
    for (name, bad, good) in
        [("tls-replication", "no", "yes"), ("tls-cluster", "no", "yes"), ("port", &port, "0")]
    {
        cluster.ask(4, &["CONFIG", "SET", name, bad]).unwrap();
        refused(&format!("has `{name} {bad}` and needs `{name} {good}`: "));
        cluster.ask(4, &["CONFIG", "SET", name, good]).unwrap();
    }
    cluster.ask(4, &["ACL", "SETUSER", "default", "on", "nopass", "+ping"]).unwrap();
    refused("obeys whoever does not log in");
    // Nobody else is on this network.
    let mut accepting = options.clone();
    accepting.cluster.link.accepts_plain = true;
    RedisStore::open(&accepting).unwrap();
}

#[test]
fn primaries_say_how_they_fare() {
    let mut cluster =
        RedisCluster::start(&RedisClusterOptions { login: true, ..Default::default() }).unwrap();
    let mut servers = RedisServers::open(of(&cluster).cluster).unwrap();
    let primary = cluster.primary_of(0).unwrap();
    cluster.ask(primary, &["CONFIG", "SET", "maxmemory", "500mb"]).unwrap();
    let node = cluster.nodes()[primary].clone();
    let figures = servers.look();
    assert_eq!(figures.len(), 3, "{figures:?}");
    for of in &figures {
        let bytes_max = if of.node == node { 500 << 20 } else { 0 };
        assert!(of.memory_bytes > 100_000 && of.memory_bytes_max == bytes_max, "{of:?}");
        assert!(of.replicas == 1 && of.lag_bytes.is_some(), "{of:?}");
    }
    cluster.kill(primary + 3).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let is_alone = |of: &ServerFigures| of.node == node && (of.replicas, of.lag_bytes) == (0, None);
    while !servers.look().iter().any(is_alone) {
        assert!(Instant::now() < until, "{:?}", servers.look());
    }
    cluster.kill(primary).unwrap();
    assert_eq!(servers.look().len(), 2);
}

/// The words between these marks in the sources of the store.
fn named(before: &str, after: char) -> BTreeSet<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis");
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        found.extend(
            text.split(before).skip(1).filter_map(|rest| Some(rest.split_once(after)?.0.to_lowercase())),
        );
    }
    found
}

#[test]
fn the_documented_rights_are_the_commands_that_are_sent() {
    let mut sent: BTreeSet<String> =
        ["cmd(\"", "add(\""].iter().flat_map(|before| named(before, '"')).collect();
    sent.extend(named("redis.call('", '\''));
    // Whoever may not log in yet may do that, and whoever does not log in is refused this.
    for free in ["auth", "ping"] {
        assert!(sent.remove(free), "{free}");
    }
    for (command, parts) in [("script", "LOAD"), ("config", "GET"), ("cluster", "SLOTS NODES INFO")] {
        assert!(sent.remove(command), "{command}");
        let asked = named(&format!("cmd(\"{}\").arg(\"", command.to_uppercase()), '"');
        let parts: BTreeSet<String> = parts.split(' ').map(str::to_lowercase).collect();
        assert_eq!(asked, parts);
        sent.extend(parts.iter().map(|part| format!("{command}|{part}")));
    }
    let allowed: BTreeSet<String> = RIGHTS.split_whitespace().map(|right| right[1..].to_owned()).collect();
    assert_eq!(sent, allowed);
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for (user, rights) in [("nephila", RIGHTS), ("replica", REPLICA_RIGHTS)] {
        let line = docs.lines().find(|line| line.starts_with(&format!("user {user} ")));
        assert!(line.is_some_and(|line| line.ends_with(rights)), "{line:?}");
    }
}

#[test]
fn a_replica_that_was_away_for_long_gets_all_again() {
    let lines = ["repl-backlog-size 16kb", "cluster-allow-replica-migration no"].map(str::to_owned).into();
    let mut cluster =
        RedisCluster::start(&RedisClusterOptions { lines, ..RedisClusterOptions::default() }).unwrap();
    // The primary has another replica, so that what is written meanwhile can be acknowledged.
    let slot = partition_of(&host("a.example"));
    let primary = cluster.primary_of(slot).unwrap();
    let [stays, leaves] = [primary + 3, (primary + 1) % 3 + 3];
    let Value::BulkString(id) = cluster.ask(primary, &["CLUSTER", "MYID"]).unwrap() else {
        panic!("it has no name")
    };
    cluster.ask(leaves, &["CLUSTER", "REPLICATE", std::str::from_utf8(&id).unwrap()]).unwrap();
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < until, "{what} has not come about");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let in_step = |cluster: &RedisCluster| {
        cluster.info(primary, "replication").unwrap().matches("state=online").count()
    };
    wait("two replicas", &|| in_step(&cluster) == 2);
    let full_syncs = |cluster: &RedisCluster| -> u64 {
        let stats = cluster.info(primary, "stats").unwrap();
        stats.lines().find_map(|line| line.strip_prefix("sync_full:")?.parse().ok()).unwrap()
    };

    let mut options = RedisOptions { partitions: vec![slot], ..of(&cluster) };
    options.cluster.patience = Duration::from_secs(20);
    let mut store = RedisStore::open(&options).unwrap();
    offer(&mut store, (0..2_000).map(page));
    let before = full_syncs(&cluster);
    let mut is_back = false;
    let acknowledged = settle_all(&mut store, |settled| match settled {
        100 => cluster.kill(leaves).unwrap(),
        // A page is some hundred bytes, so that what it has missed is far longer than what is kept for it.
        1_000 => {
            assert_eq!(full_syncs(&cluster), before);
            cluster.restart(leaves).unwrap();
        }
        // Commits go on while it is sent all that there is.
        1_001..2_000 if !is_back => {
            is_back = full_syncs(&cluster) > before && in_step(&cluster) == 2;
            // On a slow machine there would be no pages left.
            std::thread::sleep(Duration::from_millis(10));
        }
        _ => {}
    });
    assert_eq!(acknowledged.len(), 2_000);
    wait("a replica that is back", &|| full_syncs(&cluster) > before && in_step(&cluster) == 2);

    // What is acknowledged from now on, the one that was away has.
    cluster.kill(stays).unwrap();
    offer(&mut store, (2_000..2_100).map(page));
    cluster.kill(primary).unwrap();
    wait("a new primary", &|| cluster.primary_of(slot).is_ok_and(|number| number == leaves));
    drop(store);
    cluster.restart(stays).unwrap();
    let mut again = RedisStore::open(&options).unwrap();
    assert_eq!((again.stored().known, again.stored().queued), (2_100, 100));
    for url in acknowledged {
        let known = again.look_up(&self::url(&url)).unwrap().unwrap();
        assert!(matches!(known.state, KnownState::Settled(_)), "{url}");
    }
}
