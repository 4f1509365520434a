//! Which agent is nearest to a partition, or to anything else that needs one agent that all agree on.
//!
//! Each key has each agent at some distance, which depends on nothing but the two and the agent's capacity; it belongs to the
//! nearest. That is weighted rendezvous hashing. The other way, several points an agent on a circle, shares keys less evenly, and
//! partitions too as long as agents are few: `nephila lab ring` compares them.
//!
//! # The distance
//! All agents of all versions have to agree on it, so it is computed with integers only:
//! - the agent's seed is the XXH3 hash, of 64 bits, of the bytes of its identifier;
//! - its draw for a key is the XXH3 hash, with that seed, of the key's 8 bytes, lowest first; a partition's key is its number;
//! - its distance is -log2(draw / 2^64) in units of 2^-40 ([`halvings`]), divided by its capacity.
//!
//! Where that is equal the larger draw is nearer, and then the lesser identifier.
//!
//! # Promises
//! - **Contravariance**: an agent that joins, or whose capacity grows, takes partitions and loses none; none moves between two
//!   others. With an agent that leaves it is the other way round.
//! - The order of the list does not matter.
//! - An agent's expected share is its part of all capacity: distances are exponentially distributed, with the capacity as rate.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::PARTITIONS;

/// Binary digits of a logarithm behind the point. Times any capacity it fits into 64 bits.
const DIGITS: u32 = 40;

/// The agents of a site, and which of them each partition should be with.
#[derive(Clone, Debug)]
pub struct Ring<A> {
    /// By identifier.
    agents: Vec<Agent<A>>,
    /// The place among the agents of each partition's owner; empty if there is no agent.
    owners: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Agent<A> {
    id: A,
    seed: u64,
    /// Not zero.
    capacity: u16,
}

impl<A: AsRef<[u8]>> Ring<A> {
    /// The ring of these agents, each with its identifier and its capacity, in a unit that is the same for all.
    ///
    /// An agent without capacity owns nothing. Of one that is listed twice the larger capacity counts.
    pub fn new(agents: impl IntoIterator<Item = (A, u16)>) -> Ring<A> {
        let agents = Ring::sorted(agents);
        let owners = (0..PARTITIONS).map_while(|partition| nearest(&agents, partition.into())).collect();
        Ring { agents, owners }
    }

    /// The ring of other agents than these. By contravariance only what those had is shared out anew that have left, and only
    /// those can have taken something that have come.
    pub fn with(&self, agents: impl IntoIterator<Item = (A, u16)>) -> Ring<A> {
        let agents = Ring::sorted(agents);
        let mut came: BTreeSet<u32> = (0..agents.len() as u32).collect();
        let place = |agent: &Agent<A>| {
            let place = agents.binary_search_by_key(&agent.id.as_ref(), |other| other.id.as_ref()).ok()?;
            (agents[place].capacity == agent.capacity).then_some(place as u32)
        };
        let places: Vec<Option<u32>> = self.agents.iter().map(place).collect();
        for place in places.iter().flatten() {
            came.remove(place);
        }
        let owner = |partition: u16| {
            let owner = self.owners.get(usize::from(partition));
            match owner.and_then(|owner| places[*owner as usize]) {
                Some(owner) => nearest_of(&agents, came.iter().copied().chain([owner]), partition.into()),
                None => nearest(&agents, partition.into()),
            }
        };
        let owners = (0..PARTITIONS).map_while(owner).collect();
        Ring { agents, owners }
    }

    fn sorted(agents: impl IntoIterator<Item = (A, u16)>) -> Vec<Agent<A>> {
        let mut agents: Vec<Agent<A>> = agents
            .into_iter()
            .filter(|(_, capacity)| *capacity > 0)
            .map(|(id, capacity)| Agent { seed: xxh3_64(id.as_ref()), id, capacity })
            .collect();
        agents
            .sort_by(|a, b| (a.id.as_ref(), Reverse(a.capacity)).cmp(&(b.id.as_ref(), Reverse(b.capacity))));
        agents.dedup_by(|later, first| later.id.as_ref() == first.id.as_ref());
        agents
    }

    /// Whom a partition should be with; nobody if there is no agent, or no such partition.
    pub fn owner(&self, partition: u16) -> Option<&A> {
        Some(&self.agents.get(*self.owners.get(usize::from(partition))? as usize)?.id)
    }

    /// The agent nearest to any key. This asks all agents and reads no table.
    pub fn owner_of_key(&self, key: u64) -> Option<&A> {
        Some(&self.agents.get(nearest(&self.agents, key)? as usize)?.id)
    }

    /// The `count` agents that come after the owner of a partition, the nearest first: the first is who owned it before the
    /// owner joined, or will when the owner leaves.
    pub fn next_nearest(&self, partition: u16, count: usize) -> Vec<&A> {
        // Sorting keeps the order of identifiers where distances are equal.
        let mut agents: Vec<(Distance, &A)> =
            self.agents.iter().map(|agent| (agent.distance(partition.into()), &agent.id)).collect();
        agents.sort_by_key(|(distance, _)| *distance);
        agents.into_iter().skip(1).take(count).map(|(_, id)| id).collect()
    }
}

impl<A> Agent<A> {
    fn distance(&self, key: u64) -> Distance {
        Distance { draw: xxh3_64_with_seed(&key.to_le_bytes(), self.seed), capacity: self.capacity }
    }
}

/// The place of the agent that is nearest to a key; of several the first.
fn nearest<A>(agents: &[Agent<A>], key: u64) -> Option<u32> {
    nearest_of(agents, 0..agents.len() as u32, key)
}

/// The same of the agents at these places.
fn nearest_of<A>(agents: &[Agent<A>], places: impl Iterator<Item = u32>, key: u64) -> Option<u32> {
    let distances = places.map(|place| (agents[place as usize].distance(key), place));
    distances.min().map(|(_, place)| place)
}

/// How far an agent is from a key: the halvings of its draw divided by its capacity, compared as the fractions they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Distance {
    draw: u64,
    capacity: u16,
}

impl Distance {
    /// With the halvings of both.
    fn compare(&self, own: u64, other: &Distance, others: u64) -> Ordering {
        let by_halvings = (own * u64::from(other.capacity)).cmp(&(others * u64::from(self.capacity)));
        by_halvings.then(other.draw.cmp(&self.draw))
    }
}

impl Ord for Distance {
    fn cmp(&self, other: &Distance) -> Ordering {
        if self.capacity == other.capacity {
            // Halvings never grow with the draw.
            return other.draw.cmp(&self.draw);
        }
        // Nearly always it is clear without knowing them exactly.
        let (own, others) = (halvings_about(self.draw), halvings_about(other.draw));
        if self.compare(own + ABOUT, other, others.saturating_sub(ABOUT)).is_lt() {
            Ordering::Less
        } else if self.compare(own.saturating_sub(ABOUT), other, others + ABOUT).is_gt() {
            Ordering::Greater
        } else {
            self.compare(halvings(self.draw), other, halvings(other.draw))
        }
    }
}

impl PartialOrd for Distance {
    fn partial_cmp(&self, other: &Distance) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// How often 2^64 has to be halved to become `draw`: -log2(draw / 2^64), in units of 2^-[`DIGITS`], rounded up. 0 counts as 1.
fn halvings(draw: u64) -> u64 {
    let zeros = draw.max(1).leading_zeros();
    (u64::from(zeros + 1) << DIGITS) - logarithm(draw.max(1) << zeros)
}

/// The digits of the logarithm of a mantissa from 1 to 2, which is in units of 2^-63.
///
/// It is squared; if that is at least 2, the next digit is 1, and it is halved.
const fn logarithm(mut mantissa: u64) -> u64 {
    let (mut digits, mut count) = (0, 0);
    while count < DIGITS {
        let square = mantissa as u128 * mantissa as u128;
        let is_two = square >> 127 == 1;
        digits = digits << 1 | is_two as u64;
        mantissa = if is_two { square >> 64 } else { square >> 63 } as u64;
        count += 1;
    }
    digits
}

/// Differs by less than [`ABOUT`] from [`halvings`], and is found at once: between the logarithms of a table it goes straight on.
fn halvings_about(draw: u64) -> u64 {
    let zeros = draw.max(1).leading_zeros();
    // Behind the first digit, which is 1: eight that are looked up, and some of the rest.
    let fraction = draw.max(1) << zeros << 1;
    let (at, rest) = ((fraction >> 56) as usize, fraction << 8 >> 40);
    let (low, high) = (LOGARITHMS[at], LOGARITHMS[at + 1]);
    (u64::from(zeros + 1) << DIGITS) - (low + (((high - low) * rest) >> 24))
}

/// A straight line between two points of log2 that are 2^-8 apart misses it by less than 2^-18: by (2^-8)^2 / (8 ln 2) at most.
const ABOUT: u64 = 1 << (DIGITS - 18);

/// The logarithms of 1 + n/256.
static LOGARITHMS: [u64; 257] = {
    let mut table = [1 << DIGITS; 257];
    let mut at = 0;
    while at < 256 {
        table[at] = logarithm((256 + at as u64) << 55);
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halvings_are_logarithms() {
        let unit = 2.0_f64.powi(-(DIGITS as i32));
        let mut draws: Vec<u64> = (0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1, !(1 << bit)]).collect();
        draws.extend((0..2_000_u64).map(|number| xxh3_64(&number.to_le_bytes())));
        draws.extend([2, u64::MAX]);
        for draw in draws {
            let (exact, ours) = (64.0 - (draw as f64).log2(), halvings(draw) as f64 * unit);
            assert!((ours - exact).abs() <= 2.0 * unit, "{draw}: {ours} is not {exact}");
            assert!(halvings_about(draw).abs_diff(halvings(draw)) < ABOUT, "{draw}");
        }
        assert_eq!((halvings(0), halvings(1), halvings(1 << 63)), (64 << DIGITS, 64 << DIGITS, 1 << DIGITS));
        assert_eq!(halvings(u64::MAX), 1);
        assert!(halvings(0).checked_mul(u16::MAX.into()).is_some());
    }

    /// Draws that are close, and capacities that make them equal: sorting must not depend on where it begins.
    #[test]
    fn distances_are_in_one_order() {
        let draws =
            (0..4).flat_map(|step| [u64::MAX - step, (1 << 63) + (step << 22), (1 << 62) + step, step]);
        let mut all: Vec<Distance> =
            draws.flat_map(|draw| [1, 2, 3, u16::MAX].map(|capacity| Distance { draw, capacity })).collect();
        all.sort();
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                assert_eq!(one.cmp(other), at.cmp(&other_at), "{one:?}, {other:?}");
            }
        }
    }

    /// What is computed here is computed by agents of other versions too: this must never change.
    #[test]
    fn everybody_comes_to_the_same() {
        let ring = Ring::new([("a", 1), ("b", 2), ("c", 3)]);
        let owners: String = (0..PARTITIONS).filter_map(|partition| ring.owner(partition)).copied().collect();
        assert_eq!(&owners[..32], "bcbbcccccaacbccbcbccacbcbbccbbcc");
        assert_eq!(["a", "b", "c"].map(|agent| owners.matches(agent).count()), [2_691, 5_469, 8_224]);
        let keyed: String = (0..32).filter_map(|key| ring.owner_of_key(key << 59 | 7)).copied().collect();
        assert_eq!(keyed, "ccacbccabaccccbbcccbcbcbcbbccccc");
    }

    /// Whoever comes, leaves or changes: what is derived from the ring before is what a new one would be.
    #[test]
    fn a_ring_follows_its_agents() {
        let mut agents: Vec<(String, u16)> = Vec::new();
        let mut ring: Ring<String> = Ring::new([]);
        for step in 0..60_u64 {
            let draw = xxh3_64(&step.to_le_bytes());
            let (id, capacity) = (format!("agent-{}", draw % 9), (draw >> 8) as u16 % 4);
            agents.retain(|(other, _)| *other != id);
            if draw >> 32 & 3 > 0 {
                agents.push((id, capacity));
            }
            ring = ring.with(agents.iter().cloned());
            let anew = Ring::new(agents.iter().cloned());
            assert!(
                (0..PARTITIONS).all(|partition| ring.owner(partition) == anew.owner(partition)),
                "{step}"
            );
        }
    }

    #[test]
    fn few_agents_and_strange_ones() {
        let none: Ring<&str> = Ring::new([("a", 0)]);
        assert_eq!((none.owner(0), none.owner_of_key(9), none.next_nearest(0, 3).len()), (None, None, 0));
        let one = Ring::new([("a", 1), ("b", 0)]);
        assert_eq!(
            (one.owner(0), one.owner(PARTITIONS - 1), one.owner(PARTITIONS)),
            (Some(&"a"), Some(&"a"), None)
        );
        assert_eq!((one.owner_of_key(u64::MAX), one.next_nearest(7, 3).len()), (Some(&"a"), 0));
        let twice = Ring::new([("a", 1), ("b", 3), ("a", 5), ("a", 2)]);
        let once = Ring::new([("b", 3), ("a", 5)]);
        assert_eq!(twice.owners, once.owners);
        assert_eq!(twice.next_nearest(0, 9).len(), 1);
    }
}
