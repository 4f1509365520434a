//! What holds for every list of agents.

use std::collections::BTreeMap;

use nephila_core::assign::{PARTITIONS, Ring};
use proptest::collection::btree_map;
use proptest::prelude::*;

type Agents = BTreeMap<String, u16>;

/// Few, so that a case is quick, with capacities that are mostly alike and sometimes far apart.
fn agents() -> impl Strategy<Value = Agents> {
    btree_map("[a-z]{1,3}", prop_oneof![3 => 1..4_u16, 1 => 1..=u16::MAX], 2..12)
}

fn ring(agents: &Agents) -> Ring<&str> {
    Ring::new(agents.iter().map(|(id, capacity)| (id.as_str(), *capacity)))
}

/// Partitions and other keys, with their owners in both rings.
fn owners<'a>(
    one: &'a Ring<&str>,
    other: &'a Ring<&str>,
) -> impl Iterator<Item = (Option<&'a str>, Option<&'a str>)> {
    let partitions =
        (0..PARTITIONS).map(|partition| (one.owner(partition).copied(), other.owner(partition).copied()));
    let keys = (0..500_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    partitions.chain(keys.map(|key| (one.owner_of_key(key).copied(), other.owner_of_key(key).copied())))
}

proptest! {
    // Each tries all partitions.
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Read the other way round: an agent that leaves gives away its own and nothing else.
    #[test]
    fn who_joins_or_grows_only_takes(
        all in agents(),
        which in any::<prop::sample::Index>(),
        capacity in prop_oneof![Just(0), 1..4_u16],
    ) {
        let grown = which.get(&all.keys().collect::<Vec<_>>()).as_str();
        let mut before = all.clone();
        // None of it, or a little.
        before.insert(grown.to_owned(), capacity.min(all[grown]));
        for (old, new) in owners(&ring(&before), &ring(&all)) {
            prop_assert!(new == old || new == Some(grown), "from {old:?} to {new:?}, and {grown} grew");
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter(all in agents(), seed in any::<u64>()) {
        let mut listed: Vec<(&str, u16)> = all.iter().map(|(id, capacity)| (id.as_str(), *capacity)).collect();
        listed.sort_by_key(|(id, _)| id.bytes().fold(seed, |mixed, byte| (mixed ^ u64::from(byte)).wrapping_mul(seed | 1)));
        for (one, other) in owners(&ring(&all), &Ring::new(listed)) {
            prop_assert_eq!(one, other);
        }
    }

    /// Who comes next is who owns it when the owner and those in between are gone.
    #[test]
    fn the_next_nearest_inherit(all in agents(), partition in 0..PARTITIONS, count in 0..4_usize) {
        let owner = |agents: &Agents| ring(agents).owner(partition).map(|owner| (*owner).to_owned());
        let whole = ring(&all);
        let next = whole.next_nearest(partition, count);
        prop_assert_eq!(next.len(), count.min(all.len() - 1));
        let mut left = all.clone();
        for heir in next {
            left.remove(&owner(&left).unwrap());
            prop_assert_eq!(owner(&left), Some((*heir).to_owned()));
        }
    }

    #[test]
    fn partitions_are_keys(all in agents(), partition in 0..PARTITIONS) {
        let ring = ring(&all);
        prop_assert_eq!(ring.owner(partition), ring.owner_of_key(partition.into()));
    }

    /// Six standard deviations are allowed, as if each partition fell to an agent by chance.
    #[test]
    fn shares_are_as_capacities(all in agents()) {
        let ring = ring(&all);
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        for partition in 0..PARTITIONS {
            *counts.entry(ring.owner(partition).unwrap()).or_default() += 1.0;
        }
        let total: f64 = all.values().map(|capacity| f64::from(*capacity)).sum();
        for (id, capacity) in &all {
            let (share, tries) = (f64::from(*capacity) / total, f64::from(PARTITIONS));
            let off = (counts.get(id.as_str()).unwrap_or(&0.0) - share * tries).abs();
            prop_assert!(off <= 6.0 * (tries * share * (1.0 - share)).sqrt() + 4.0, "{id} is {off} off in {all:?}");
        }
    }
}
