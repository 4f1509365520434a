//! The simulator as CI runs it: many seeds keep every promise, a seed always gives the same run, and each deliberate bug
//! is found.

use nephila_lab::sim::{self, Bug};

const SEEDS: u64 = 200;

#[test]
fn two_hundred_seeds_keep_the_promises() {
    let summary = sim::run_seeds(0..SEEDS, 2, sim::run, |_| {});
    let list: Vec<String> = summary.violations.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
    let total = &summary.total;
    println!("{total:#?}");
    // A run that never meets trouble proves nothing.
    for fault in
        ["kill", "power cut", "kill while writing", "power cut while writing", "disk full", "stop", "block"]
    {
        assert!(total.faults.get(fault).is_some_and(|count| *count >= 10), "{fault} is too rare");
    }
    for state in [
        "a busy address",
        "hosts whose rules are elsewhere",
        "process ended by a full disk",
        "process ended by a failed write",
        "not opened: failed write",
        "torn journal",
        "disallowed",
        "failed: no-such-name",
        "failed: private-address",
        "failed: host-given-up",
        "failed: server-error",
        "to be tried again: busy",
        "to be tried again: closed",
        "to be tried again: not-tried",
        "ended: waiting",
        "ended: stopped",
        "cash counted",
    ] {
        assert!(total.reached.get(state).is_some_and(|count| *count >= 5), "{state} is too rare");
    }
    assert!(total.lost_answers > 0, "no crash ever hit a request in flight");
    assert!(total.on_time > total.requests / 4, "requests are later than they might be");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let (first, second) = (sim::run(seed), sim::run(seed));
        assert_eq!(first.unwrap(), second.unwrap(), "seed {seed}");
    }
    assert_ne!(sim::run(1).unwrap().trace_hash, sim::run(2).unwrap().trace_hash);
}

#[test]
fn every_deliberate_bug_is_found() {
    for bug in Bug::ALL {
        let found = (0..SEEDS).find_map(|seed| sim::run_broken(seed, bug).err());
        let violation = found.unwrap_or_else(|| panic!("{bug:?} was not found in {SEEDS} runs"));
        println!("{bug:?}: {violation}");
    }
}
