//! The simulator of whole sites as CI runs it: seeds keep every promise, a seed always gives the same run, and each deliberate
//! bug is found.

use nephila_lab::sim::{self, Promise, SiteBug, Violation};

const SEEDS: u64 = 5;
/// Within how many seeds a bug is found.
const FOUND_WITHIN: u64 = 20;

#[test]
fn sites_keep_the_promises() {
    let summary = sim::run_seeds(0..SEEDS, 2, sim::run_site, |_| {});
    let list: Vec<String> = summary.violations.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
    println!("{:#?}", summary.total);
    // A run that never meets trouble proves nothing.
    for fault in ["kill", "pause", "cut", "storm"] {
        assert!(summary.total.faults.get(fault).is_some_and(|count| *count >= SEEDS), "{fault} is too rare");
    }
    for state in [
        "a handover",
        "tokens given up",
        "journal read again for others",
        "killed with found URLs on their way",
        "a turn at an address wanted back",
        "a turn at an address that ran out",
        "an address with another keeper",
        "an agent back at another address",
        "a keeper of addresses killed with turns out",
        "turns told to a keeper that did not know",
    ] {
        assert!(summary.total.reached.contains_key(state), "{state} is too rare");
    }
}

#[test]
fn a_seed_is_one_run() {
    assert_eq!(sim::run_site(1).unwrap(), sim::run_site(1).unwrap());
}

#[test]
fn bugs_of_sites_are_found() {
    for bug in SiteBug::ALL {
        // What is added too often does nothing else.
        let is_found = |found: &Violation| match bug {
            SiteBug::AddsWhatIsTold => found.promise == Promise::CashKept,
            _ => found.promise != Promise::LargeEnough,
        };
        let found = (0..FOUND_WITHIN).filter_map(|seed| sim::run_site_broken(seed, bug).err()).find(is_found);
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
