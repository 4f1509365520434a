//! What an agent has its store do, on servers to which something happens.

#![allow(clippy::unwrap_used, reason = "a test fails where this does")]

use std::time::{Duration, Instant};

use nephila_core::agent::{Event, SharedEvent, Ticket};
use nephila_core::assign::partition_of;
use nephila_core::record::{HostRecord, Record};
use nephila_core::site::AgentId;
use nephila_core::time::Wall;
use nephila_core::url::Host;
use nephila_lab::redis::{RedisCluster, RedisClusterOptions};
use nephila_node::shared::{Keeper, Task};
use nephila_store::StoreLimits;
use nephila_store::redis::{ClusterOptions, RedisOptions};

fn options(cluster: &RedisCluster) -> RedisOptions {
    RedisOptions {
        cluster: ClusterOptions {
            nodes: cluster.nodes(),
            link: cluster.link_options().clone(),
            replicas: 1,
            patience: Duration::from_millis(300),
        },
        crawl: "keeper:".to_owned(),
        partitions: Vec::new(),
        limits: StoreLimits::NONE,
        writer: AgentId::default(),
        accepts_unsafe: true,
        hash_key: None,
    }
}

/// Has it work until it says what is waited for.
fn work(keeper: &mut Keeper, what: impl Fn(&Event) -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !keeper.said().iter().any(&what) {
        assert!(Instant::now() < until, "it does not come about");
        keeper.work();
        assert!(keeper.broken().is_none());
    }
}

fn take_over(partitions: Vec<u16>) -> Task {
    Task::TakeOver { incarnation: 1, partitions }
}

fn took_over(event: &Event) -> bool {
    matches!(event, Event::Shared(SharedEvent::TookOver { .. }))
}

fn write(ticket: u64, host: &Host) -> Task {
    let record = HostRecord {
        host: host.clone(),
        not_before: Wall(0),
        failure: None,
        failures: 0,
        failing_since: None,
        given_up: false,
    };
    Task::Write { ticket: Ticket(ticket), record: Box::new(Record::Host(record)) }
}

#[test]
fn a_store_that_somebody_emptied_is_not_gone_on_with() {
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let host = Host::parse("a.example").unwrap();
    let partition = partition_of(&host);
    let mut keeper = Keeper::new(options(&cluster), None);
    keeper.push(take_over(vec![partition]));
    work(&mut keeper, took_over);
    keeper.push(write(1, &host));
    work(&mut keeper, |event| matches!(event, Event::Recorded { .. }));
    cluster.ask(cluster.primary_of(partition).unwrap(), &["FLUSHALL"]).unwrap();
    keeper.push(write(2, &host));
    work(&mut keeper, |event| matches!(event, Event::Shared(SharedEvent::Fenced { .. })));
    // The agent has the partition in its lease, and wants it again; or it was fenced, and comes again.
    keeper.forget();
    keeper.push(take_over(vec![partition]));
    keeper.work();
    let broken = keeper.broken().map(|error| error.to_string());
    assert!(broken.as_ref().is_some_and(|error| error.contains("not what it was")), "{broken:?}");
}

/// What it says, working so often.
fn rounds(keeper: &mut Keeper, count: usize) -> Vec<Event> {
    let mut said = Vec::new();
    for _ in 0..count {
        keeper.work();
        assert!(keeper.broken().is_none());
        said.append(&mut keeper.said());
    }
    said
}

#[test]
fn a_primary_without_a_replica_holds_up_nobody_else() {
    let mut cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let of = |number: u64| Host::parse(&format!("h{number}.example")).unwrap();
    let server = |host: &Host| cluster.primary_of(partition_of(host)).unwrap();
    let a = of(0);
    let b = (1..).map(of).find(|b| server(b) != server(&a)).unwrap();
    let c = (1..).map(of).find(|c| server(c) != server(&a) && partition_of(c) != partition_of(&b)).unwrap();
    let primary = server(&a);
    let port = cluster.nodes()[primary].rsplit_once(':').unwrap().1.to_owned();
    let replica = (0..6)
        .find(|number| {
            cluster.info(*number, "replication").unwrap().contains(&format!("master_port:{port}\r\n"))
        })
        .unwrap();
    let mut keeper = Keeper::new(options(&cluster), None);
    keeper.push(take_over(vec![partition_of(&a), partition_of(&b)]));
    let mut took = 0;
    while took < 2 {
        took += rounds(&mut keeper, 1).iter().filter(|event| took_over(event)).count();
    }

    cluster.kill(replica).unwrap();
    keeper.push(write(1, &a));
    let until = Instant::now() + Duration::from_secs(20);
    let told = |event: &Event| match event {
        Event::Shared(SharedEvent::Unconfirmed { partitions }) => Some(partitions.clone()),
        _ => None,
    };
    let unconfirmed = loop {
        assert!(Instant::now() < until, "nobody says that nothing is confirmed");
        if let Some(unconfirmed) = rounds(&mut keeper, 1).iter().find_map(told) {
            break unconfirmed;
        }
    };
    assert!(unconfirmed.contains(partition_of(&a)) && !unconfirmed.contains(partition_of(&b)));
    assert_eq!(keeper.alone(), [cluster.nodes()[primary].clone()]);

    // All else goes on, and what is to be confirmed there is not said.
    let waited = |keeper: &mut Keeper| keeper.store().unwrap().figures().waited;
    let before = waited(&mut keeper);
    keeper.push(Task::Mark { host: a.clone() });
    keeper.push(write(2, &a));
    keeper.push(take_over(vec![partition_of(&c)]));
    let mut said = Vec::new();
    for ticket in 10..40 {
        keeper.push(write(ticket, &b));
        said.append(&mut rounds(&mut keeper, 1));
    }
    said.append(&mut rounds(&mut keeper, 10));
    let recorded = |said: &[Event]| {
        let ticket = |event: &Event| match event {
            Event::Recorded { ticket, .. } => Some(ticket.0),
            _ => None,
        };
        said.iter().filter_map(ticket).collect::<Vec<u64>>()
    };
    assert_eq!(recorded(&said), (10..40).collect::<Vec<u64>>());
    assert!(said.iter().any(took_over), "partitions of other servers are taken over");
    assert!(!said.iter().any(|event| matches!(event, Event::Shared(SharedEvent::Marked { .. }))));
    // Each round that waited for it would take half a second.
    let waited = waited(&mut keeper) - before;
    assert!(waited < Duration::from_secs(5), "others were held up for {waited:?}");
    assert!(keeper.store().unwrap().figures().unserved > 0);

    cluster.restart(replica).unwrap();
    let (mut said, until) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    while !said.iter().any(|event| matches!(event, Event::Shared(SharedEvent::Marked { .. }))) {
        assert!(Instant::now() < until, "it does not go on");
        said.append(&mut rounds(&mut keeper, 1));
    }
    said.append(&mut rounds(&mut keeper, 1));
    assert_eq!(recorded(&said), [1, 2]);
    assert!(said.iter().find_map(told).is_some_and(|unconfirmed| unconfirmed.is_empty()));
    assert!(keeper.alone().is_empty());
}
