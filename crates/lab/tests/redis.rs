//! The lab's Redis Cluster is a real one: it fails over, moves slots, and keeps strangers out.

use std::time::{Duration, Instant};

use nephila_lab::redis::{RedisCluster, RedisClusterOptions};
use nephila_store::redis::{Link, LinkOptions, Value, cmd};

/// The slot of `a`, as CLUSTER KEYSLOT answers.
const SLOT: u16 = 15_495;

#[test]
fn it_fails_over_and_moves_slots() {
    let mut cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let first = cluster.primary_of(SLOT).unwrap();
    let mut link = cluster.link(first).unwrap();
    assert_eq!(link.ask(cmd("SET").arg("a").arg("kept")).unwrap(), Value::Okay);
    assert_eq!(link.ask(cmd("WAIT").arg(1).arg(5_000)).unwrap(), Value::Int(1));

    cluster.kill(first).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while cluster.primary_of(SLOT).unwrap() == first {
        assert!(Instant::now() < until, "the replica does not take over");
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.restart(first).unwrap();
    cluster.wait_until_whole().unwrap();

    let second = cluster.primary_of(SLOT).unwrap();
    let other = cluster.primary_of(0).unwrap();
    assert!(second != first && second != other);
    assert_eq!(cluster.move_slot(SLOT, other).unwrap().keys, 1);
    assert_eq!(cluster.primary_of(SLOT).unwrap(), other);
    assert_eq!(cluster.ask(other, &["GET", "a"]).unwrap(), Value::BulkString(b"kept".to_vec()));
    let moved = cluster.link(second).unwrap().ask(cmd("GET").arg("a")).unwrap();
    assert!(matches!(moved, Value::ServerError(error) if error.code() == "MOVED"));
}

#[test]
fn strangers_are_kept_out() {
    let cluster = RedisCluster::start(&RedisClusterOptions {
        tls: true,
        login: true,
        ..RedisClusterOptions::default()
    })
    .unwrap();
    let number = cluster.primary_of(SLOT).unwrap();
    assert_eq!(cluster.ask(number, &["GET", "a"]).unwrap(), Value::Nil);
    cluster.move_slot(SLOT, cluster.primary_of(0).unwrap()).unwrap();

    let node = &cluster.nodes()[number];
    let plain = LinkOptions { tls: None, login: None, ..cluster.link_options().clone() };
    let answer = Link::connect(node, &plain).and_then(|mut link| link.ask(&cmd("PING")));
    assert!(answer.is_err(), "without a certificate: {answer:?}");
    let nobody = LinkOptions { login: None, ..cluster.link_options().clone() };
    let answer = Link::connect(node, &nobody).unwrap().ask(&cmd("PING")).unwrap();
    assert!(matches!(answer, Value::ServerError(error) if error.code() == "NOAUTH"));
}
