//! The simulator of federations as CI runs it: seeds keep every promise, a seed always gives the same run, and each deliberate
//! bug is found.

use nephila_lab::sim::{self, Promise, SiteBug, Violation};

const SEEDS: u64 = 12;
/// Within how many seeds a bug is found.
const FOUND_WITHIN: u64 = 20;

#[test]
fn federations_keep_the_promises() {
    let summary = sim::run_seeds(0..SEEDS, 2, sim::run_federation, |_| {});
    let list: Vec<String> = summary.violations.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
    println!("{:#?}", summary.total);
    // A run that never meets trouble proves nothing.
    for fault in ["kill", "pause", "cut", "storm", "power cut"] {
        assert!(summary.total.faults.get(fault).is_some_and(|count| *count >= SEEDS), "{fault} is too rare");
    }
    assert!(summary.unreached(&sim::FEDERATION_STATES).is_empty());
}

#[test]
fn a_seed_is_one_run() {
    assert_eq!(sim::run_federation(1).unwrap(), sim::run_federation(1).unwrap());
}

#[test]
fn bugs_of_federations_are_found() {
    let is_found = |found: &Violation| found.promise != Promise::LargeEnough;
    for bug in SiteBug::FEDERATED {
        let broken = |seed| sim::run_federation_broken(seed, bug).err();
        let found = (0..FOUND_WITHIN).filter_map(broken).find(is_found);
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
