//! What all agents of a site are to know of the crawl: what the operator blocked, whether it is paused, what redirects of
//! seeds have added to the scope, and what the sites of its federation say to each other.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::limits::{SCOPE_SEEDS_MAX, SITE_BLOCKS_MAX};
use crate::maps::concerns::Concerns;
use crate::record::Block;

/// See the module's documentation. What can be taken back is counted, so that the last word counts: it holds while the number of
/// changes is odd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    blocks: BTreeMap<Block, u32>,
    pauses: u32,
    seeds: BTreeSet<String>,
    concerns: Concerns,
}

fn holds(changes: u32) -> bool {
    changes % 2 == 1
}

impl Wishes {
    /// Blocks something, or takes that back. There is room for so many.
    pub fn block(&mut self, block: Block, is_blocked: bool) {
        let has_room = self.blocks.len() < SITE_BLOCKS_MAX;
        match self.blocks.get_mut(&block) {
            Some(changes) if holds(*changes) != is_blocked => *changes += 1,
            None if is_blocked && has_room => drop(self.blocks.insert(block, 1)),
            _ => {}
        }
    }

    /// What is blocked.
    pub fn blocked(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|(_, changes)| holds(**changes)).map(|(block, _)| block)
    }

    /// Whether this is blocked.
    pub fn is_blocked(&self, block: &Block) -> bool {
        self.blocks.get(block).is_some_and(|changes| holds(*changes))
    }

    /// Pauses the site, or has it go on.
    pub fn pause(&mut self, is_paused: bool) {
        self.pauses += u32::from(holds(self.pauses) != is_paused);
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        holds(self.pauses)
    }

    /// Adds a URL to those that the scope is around. There is room for so many.
    pub fn add_seed(&mut self, url: &str) {
        if self.seeds.len() < SCOPE_SEEDS_MAX && !self.seeds.contains(url) {
            self.seeds.insert(url.to_owned());
        }
    }

    /// Those URLs.
    pub fn seeds(&self) -> impl Iterator<Item = &str> {
        self.seeds.iter().map(String::as_str)
    }

    /// What all sites of the federation say.
    pub fn concerns(&self) -> &Concerns {
        &self.concerns
    }

    /// The same, to be changed.
    pub fn concerns_mut(&mut self) -> &mut Concerns {
        &mut self.concerns
    }

    /// Nothing but this, of all that sites say.
    pub fn of_concerns(concerns: Concerns) -> Wishes {
        Wishes { concerns, ..Wishes::default() }
    }

    /// The same in parts that come to the whole when they are merged: one for the own site, and one for what each site of the
    /// federation says.
    pub fn parts(&self) -> Vec<Wishes> {
        let own = Wishes { concerns: Concerns::default(), ..self.clone() };
        let sections = self.concerns.sections();
        let sections = sections.map(|(site, section)| Concerns::of_section(site, section.clone()));
        std::iter::once(own).chain(sections.map(Wishes::of_concerns)).collect()
    }

    /// Takes in another copy; says whether anything has changed.
    pub fn merge(&mut self, other: &Wishes) -> bool {
        let before = self.digest();
        for (block, changes) in &other.blocks {
            if self.blocks.contains_key(block) || self.blocks.len() < SITE_BLOCKS_MAX {
                let known = self.blocks.entry(block.clone()).or_default();
                *known = (*known).max(*changes);
            }
        }
        self.pauses = self.pauses.max(other.pauses);
        other.seeds.iter().for_each(|url| self.add_seed(url));
        self.concerns.merge(&other.concerns);
        self.digest() != before
    }

    /// A number that differs when two copies do.
    pub fn digest(&self) -> u64 {
        let mut bytes = Vec::with_capacity(64);
        let mut text = |text: &str| {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        };
        self.seeds.iter().for_each(|url| text(url));
        for (block, changes) in &self.blocks {
            match block {
                Block::Name(host) => text(host.as_str()),
                Block::Address(address) => text(&address.to_string()),
            }
            text(&changes.to_string());
        }
        text(&self.pauses.to_string());
        bytes.extend_from_slice(&self.concerns.digest().to_le_bytes());
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::concerns::{Concern, Say};
    use crate::url::Host;

    #[test]
    fn wishes_become_one_in_any_order() {
        let name = |name: &str| Block::Name(Host::parse(name).unwrap());
        let mut first = Wishes::default();
        first.block(name("a.test"), true);
        first.block(name("b.test"), true);
        first.add_seed("http://www.a.test/");
        let (mut second, mut third) = (first.clone(), first.clone());
        second.block(name("a.test"), false);
        second.block(name("c.test"), true);
        second.pause(true);
        third.block(name("b.test"), true);
        third.block(name("never.test"), false);
        third.add_seed("http://c.test/");
        let mut sum = first.clone();
        assert!(sum.merge(&second) && sum.merge(&third));
        let mut other = third.clone();
        assert!(other.merge(&second) && !other.merge(&first));
        assert_eq!((&sum, sum.digest()), (&other, other.digest()));
        sum.concerns_mut().put("paris", 1, Concern::Pause, Some(Say::Yes)).unwrap();
        let mut parts = Wishes::default();
        assert!(
            sum.parts().iter().all(|part| parts.merge(part))
                && parts == sum
                && sum.digest() != other.digest()
        );
        assert_eq!(sum.blocked().collect::<Vec<_>>(), [&name("b.test"), &name("c.test")]);
        assert!(sum.is_paused() && sum.seeds().eq(["http://c.test/", "http://www.a.test/"]));
        sum.pause(true);
        sum.pause(false);
        assert!(!sum.is_paused() && other.merge(&sum) && !other.is_paused());
        assert!(!other.clone().merge(&first));
    }
}
