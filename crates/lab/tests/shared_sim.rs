//! The simulator of sites whose agents share a store, as CI runs it: seeds keep every promise, a seed always gives the same run,
//! and each deliberate bug is found.

use nephila_lab::sim::{self, Promise, SharedBug, Violation};

const SEEDS: u64 = 4;
/// Within how many seeds a bug is found.
const FOUND_WITHIN: u64 = 200;

#[test]
fn sites_that_share_a_store_keep_the_promises() {
    let summary = sim::run_seeds(0..SEEDS, 2, sim::run_shared, |_| {});
    // A seed is one run, whatever runs beside it.
    let again = sim::run_seeds(0..SEEDS, 1, sim::run_shared, |_| {});
    assert_eq!(summary.total, again.total);
    let list: Vec<String> = summary.violations.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
    println!("{:#?}", summary.total);
    // A run that never meets trouble proves nothing.
    let faults: u64 = summary.total.faults.values().sum();
    assert!(faults >= 20 * SEEDS, "{faults} faults are too few");
    for fault in ["kill", "pause", "failover"] {
        assert!(summary.total.faults.get(fault).is_some_and(|count| *count >= SEEDS), "{fault} is too rare");
    }
    for state in [
        "a handover",
        "an outcome that nobody knows",
        "double handover",
        "failover between write and WAIT",
        "fenced",
        "fenced with records on their way",
        "a turn at an address wanted back",
        "redelivery after a crash",
        "takeover during handover",
        "turns told to a keeper that did not know",
        "wake-up after the lease",
    ] {
        assert!(summary.total.reached.contains_key(state), "{state} is too rare");
    }
}

#[test]
fn bugs_of_sites_that_share_a_store_are_found() {
    let is_found = |found: &Violation| found.promise != Promise::LargeEnough;
    for bug in SharedBug::ALL {
        let found =
            (0..FOUND_WITHIN).filter_map(|seed| sim::run_shared_broken(seed, bug).err()).find(is_found);
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn federations_of_such_sites_keep_the_promises() {
    let seeds = 7..7 + SEEDS;
    let summary = sim::run_seeds(seeds, 2, sim::run_shared_federation, |_| {});
    let list: Vec<String> = summary.violations.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
    for state in [
        "a batch that was sent again",
        "a claim passed on to another agent",
        "a host claimed from another site",
        "another list of sites",
        "killed with URLs on their way to another site",
    ] {
        assert!(summary.total.reached.contains_key(state), "{state} is too rare");
    }
}

#[test]
fn bugs_of_federations_of_such_sites_are_found() {
    let is_found = |found: &Violation| found.promise != Promise::LargeEnough;
    for bug in SharedBug::OF_FEDERATIONS {
        let mut broken =
            (0..FOUND_WITHIN).filter_map(|seed| sim::run_shared_federation_broken(seed, bug).err());
        let found = broken.find(is_found);
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
