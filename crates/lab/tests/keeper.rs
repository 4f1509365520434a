//! What an agent has its store do, on servers to which something happens.

#![allow(clippy::unwrap_used, reason = "a test fails where this does")]

use std::time::{Duration, Instant};

use nephila_core::agent::{Event, SharedEvent, Ticket};
use nephila_core::assign::partition_of;
use nephila_core::record::{Found, How, Record};
use nephila_core::site::AgentId;
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
    let url = format!("http://{}/", host.as_str());
    let found = vec![Found { url, depth: 0, how: How::Seed, redirects: 0 }];
    Task::Write { ticket: Ticket(ticket), record: Box::new(Record::Seeds(found)) }
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
