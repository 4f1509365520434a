//! Small forms of the lab's experiments, so that every change meets them: the same bars, on fewer hosts and in less time.
//! Bars that depend on the speed of the machine are left to `nephila lab`.

#![cfg(feature = "lab")]

use std::time::Duration;

use nephila_lab::experiment::{
    ChaosOptions, FederationOptions, FrontierExperiment, FullDiskOptions, GarbageOptions, HandshakesOptions,
    HostileOptions, KillsOptions, Outcome, RingOptions, ServerFaults, Setup, chaos, federation, frontier,
    full_disk, garbage, handshakes, hostile, kills, ring,
};
use nephila_lab::web::{Kinds, PageBytes, kinds};

/// Hosts that never say a word keep a crawl waiting for time-outs; `nephila lab hostile` has them too.
const SILENT: [&str; 3] = ["silent", "robots-timeout", "dns-timeout"];

fn setup() -> Setup {
    Setup { nephila: env!("CARGO_BIN_EXE_nephila").into(), keep: None, say: |_| {} }
}

#[expect(clippy::print_stdout, reason = "says so when an experiment cannot be done here")]
fn check(outcome: &Outcome) {
    println!("{outcome}");
    assert!(outcome.is_met(), "{outcome}");
}

#[test]
fn everything_that_hurts_is_crawled_by_the_rules() {
    let names: Vec<String> = kinds::all()
        .iter()
        .filter(|kind| kind.in_all)
        .map(|kind| kind.name.to_owned())
        .filter(|name| !SILENT.contains(&name.as_str()))
        .collect();
    let options = HostileOptions {
        hosts: names.len() as u32,
        pages: 8,
        scale: 600.0,
        latency_ms: (1, 3),
        page_bytes: PageBytes::Fixed(4_000),
        timeout: Some(Duration::from_secs(3)),
        kinds: Kinds::Only(names),
        compare: false,
        ..HostileOptions::default()
    };
    check(&hostile(&setup(), &options).unwrap());
}

/// What the handshakes cost is for `nephila lab`; how many there are, and how many of them resume, is the same everywhere.
#[test]
fn sessions_are_resumed() {
    let options = HandshakesOptions { pages: 200, hosts: 20, ..HandshakesOptions::default() };
    let outcome = handshakes(&setup(), &options).unwrap();
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !bar.what.contains("to both alone")).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn kills_lose_nothing() {
    check(&kills(&setup(), &KillsOptions { kills: 5, seconds: 10, ..KillsOptions::default() }).unwrap());
}

/// What depends on chance and on the machine is for `nephila lab`: what is in flight is a larger part of less.
#[test]
fn agents_that_are_killed_and_stopped_lose_nothing() {
    let seconds = Duration::from_secs;
    let options = ChaosOptions {
        agents: 3,
        hosts: 12,
        pages: 20,
        seconds: 20,
        kill_every: seconds(3),
        back_after: (seconds(1), seconds(3)),
        stop_every: seconds(20),
        stop_for: seconds(7),
        join: true,
        ..ChaosOptions::default()
    };
    let outcome = chaos(&setup(), &options).unwrap();
    let of_chance = ["overlap", "requests before the last fault"];
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !of_chance.contains(&&*bar.what)).collect();
    assert!(missed.is_empty(), "{outcome}");
}

/// The same with a store that they share, on six servers whose primaries are killed, too.
#[test]
fn agents_that_share_a_store_lose_nothing() {
    let seconds = Duration::from_secs;
    let options = ChaosOptions {
        agents: 2,
        hosts: 8,
        pages: 12,
        seconds: 24,
        kill_every: seconds(16),
        back_after: (seconds(1), seconds(2)),
        stop_every: seconds(24),
        stop_for: seconds(10),
        servers: Some(ServerFaults { kill_every: seconds(20), ..ServerFaults::default() }),
        ..ChaosOptions::default()
    };
    let outcome = chaos(&setup(), &options).unwrap();
    let of_chance = ["overlap", "requests before the last fault"];
    let is_of_chance = |what: &str| of_chance.contains(&what) || what.starts_with("hosts of a dead agent");
    let missed: Vec<_> = outcome.bars.iter().filter(|bar| !bar.met && !is_of_chance(&bar.what)).collect();
    assert!(missed.is_empty(), "{outcome}");
}

#[test]
fn strangers_change_nothing() {
    let options = GarbageOptions {
        hosts: 10,
        pages: 30,
        delay: Duration::from_millis(100),
        bytes: 200_000,
        ..GarbageOptions::default()
    };
    let outcome = garbage(&setup(), &options).unwrap();
    // How long the crawl takes beside it, and what it needs of memory meanwhile, is for `nephila lab`.
    let of_chance = ["requests before the last of it", "bytes of memory that an agent took more"];
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !of_chance.contains(&&*bar.what)).collect();
    assert!(missed.is_empty(), "{outcome}");
}

#[test]
fn a_full_disk_tears_nothing() {
    check(&full_disk(&setup(), &FullDiskOptions::default()).unwrap());
}

#[test]
fn a_frontier_that_was_killed_knows_everything() {
    let options = FrontierExperiment { urls: 20_000, drained: 5_000, ..FrontierExperiment::default() };
    let outcome = frontier(&setup(), &options).unwrap();
    let bar = outcome.bars.iter().find(|bar| bar.what == "URLs known after kill -9");
    assert!(bar.is_some_and(|bar| bar.met), "{outcome}");
    assert!(outcome.figures["drained_urls"].as_u64() >= Some(5_000), "{outcome}");
}

/// How long the table takes is for `nephila lab`.
#[test]
fn agents_share_evenly_and_nothing_moves_needlessly() {
    let options = RingOptions { seeds: 2, keys: 20_000, agents: vec![2, 3, 10], ..RingOptions::default() };
    let outcome = ring(&setup(), &options).unwrap();
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !bar.what.contains("processor time")).collect();
    assert!(missed.is_empty() && outcome.bars.len() == 4, "{outcome}");
}

#[test]
fn what_a_lost_site_had_the_others_crawl() {
    let options = FederationOptions {
        agents: 2,
        hosts: 40,
        pages: 40,
        round_trip: Duration::from_millis(40),
        lose: true,
        ..FederationOptions::default()
    };
    let outcome = federation(&setup(), &options).unwrap();
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !bar.what.starts_with("bytes")).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(outcome.figures["fetched_by_the_lost_site"].as_u64() > Some(50), "{outcome}");
}

#[test]
fn hosts_move_when_the_list_of_sites_changes() {
    let options = FederationOptions {
        agents: 2,
        hosts: 40,
        pages: 40,
        round_trip: Duration::from_millis(40),
        change: true,
        ..FederationOptions::default()
    };
    let outcome = federation(&setup(), &options).unwrap();
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !bar.what.starts_with("bytes")).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(outcome.figures["hosts_claimed"].as_u64() > Some(3), "{outcome}");
}

#[test]
fn each_host_is_crawled_by_the_nearest_site() {
    let options = FederationOptions {
        agents: 2,
        hosts: 40,
        pages: 40,
        round_trip: Duration::from_millis(40),
        geography: true,
        ..FederationOptions::default()
    };
    let outcome = federation(&setup(), &options).unwrap();
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !bar.what.starts_with("bytes")).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(outcome.figures["hosts_granted"].as_u64() > Some(10), "{outcome}");
}

/// How few bytes pass between sites depends on how many URLs there are; `nephila lab federation` has more.
#[test]
fn sites_crawl_as_one_also_when_one_is_cut_off() {
    let options = FederationOptions {
        agents: 2,
        hosts: 40,
        pages: 40,
        round_trip: Duration::from_millis(40),
        cut: Duration::from_secs(5),
        ..FederationOptions::default()
    };
    let outcome = federation(&setup(), &options).unwrap();
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !bar.what.starts_with("bytes")).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(outcome.figures["urls_sent"].as_u64() > Some(500), "{outcome}");
}

#[test]
fn halves_of_five_sites_that_are_cut_apart_crawl_on() {
    let options = FederationOptions {
        sites: 5,
        hosts: 40,
        pages: 40,
        round_trip: Duration::from_millis(40),
        halves: Duration::from_secs(5),
        ..FederationOptions::default()
    };
    let outcome = federation(&setup(), &options).unwrap();
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !bar.what.starts_with("bytes")).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(outcome.figures["urls_sent"].as_u64() > Some(500), "{outcome}");
}

/// Each site has a crawl of its own in the cluster.
#[test]
fn sites_that_share_stores_crawl_as_one() {
    let options = FederationOptions {
        sites: 2,
        agents: 2,
        shares_store: true,
        hosts: 30,
        pages: 30,
        round_trip: Duration::from_millis(20),
        change: true,
        ..FederationOptions::default()
    };
    let outcome = federation(&setup(), &options).unwrap();
    let missed: Vec<_> =
        outcome.bars.iter().filter(|bar| !bar.met && !bar.what.starts_with("bytes")).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(outcome.figures["urls_sent"].as_u64() > Some(200), "{outcome}");
    assert!(outcome.figures["hosts_claimed"].as_u64() > Some(3), "{outcome}");
}
