//! What concerns all sites of a federation: whom they leave alone, whether they pause, how long they wait at least.
//!
//! Any site may block a host everywhere, and take that back. The *operator*, if the list of sites names one, may also set aside
//! what others have blocked, until they say so again; and only what the operator says of pauses and delays counts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Map;
use crate::limits::WAIT_MAX;
use crate::record::Block;

/// What something is said of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Concern {
    /// Whether these are left alone.
    Block(Block),
    /// Whether all sites pause.
    Pause,
    /// How long they leave a host alone at least.
    Delay,
}

/// What is said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Say {
    /// What others have said of it does not count.
    No,
    /// It is so.
    Yes,
    /// So many milliseconds.
    Millis(u64),
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Concern::Block(Block::Name(host)) => write!(f, "block {host}"),
            Concern::Block(Block::Address(address)) => write!(f, "block {address}"),
            Concern::Pause => f.write_str("pause"),
            Concern::Delay => f.write_str("delay"),
        }
    }
}

impl fmt::Display for Say {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Say::No => f.write_str("no"),
            Say::Yes => f.write_str("yes"),
            Say::Millis(millis) => write!(f, "{millis} ms"),
        }
    }
}

/// All that sites say to all.
pub type Concerns = Map<Concern, Say>;

impl Concerns {
    fn said(&self, site: Option<&str>, concern: &Concern) -> Option<Say> {
        self.section(site?)?.get(concern).map(|(say, _)| *say)
    }

    /// What is blocked everywhere, and by which sites.
    pub fn blocked(&self, operator: Option<&str>) -> BTreeMap<&Block, Vec<&str>> {
        let judge = operator.and_then(|operator| self.section(operator));
        let mut blocked = BTreeMap::<&Block, Vec<&str>>::new();
        for (site, section) in self.sections() {
            for (concern, _) in section.iter().filter(|(_, say)| **say == Say::Yes) {
                let Concern::Block(block) = concern else { continue };
                let since = section.get(concern).map(|(_, version)| version);
                let is_set_aside = judge.and_then(|judge| judge.get(concern));
                let is_set_aside =
                    is_set_aside.is_some_and(|(say, version)| *say == Say::No && Some(version) > since);
                if !is_set_aside {
                    blocked.entry(block).or_default().push(site);
                }
            }
        }
        blocked
    }

    /// The sites that have something blocked everywhere.
    pub fn blocked_by(&self, operator: Option<&str>, block: &Block) -> Vec<&str> {
        self.blocked(operator).remove(block).unwrap_or_default()
    }

    /// Whether all sites pause.
    pub fn are_paused(&self, operator: Option<&str>) -> bool {
        self.said(operator, &Concern::Pause) == Some(Say::Yes)
    }

    /// How long all sites leave a host alone at least.
    pub fn delay(&self, operator: Option<&str>) -> Option<Duration> {
        match self.said(operator, &Concern::Delay) {
            Some(Say::Millis(millis)) => Some(Duration::from_millis(millis).min(WAIT_MAX)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::Host;

    #[test]
    fn who_blocks_takes_back_and_the_operator_sets_aside() {
        let block = |name: &str| Block::Name(Host::parse(name).unwrap());
        let (a, b) = (block("a.test"), block("b.test"));
        let mut concerns = Concerns::default();
        let put = |concerns: &mut Concerns, site: &str, block: &Block, say| {
            concerns.put(site, 1, Concern::Block(block.clone()), say).unwrap();
        };
        put(&mut concerns, "lima", &a, Some(Say::Yes));
        put(&mut concerns, "oslo", &a, Some(Say::Yes));
        put(&mut concerns, "oslo", &b, Some(Say::Yes));
        assert_eq!(concerns.blocked(None), [(&a, vec!["lima", "oslo"]), (&b, vec!["oslo"])].into());
        put(&mut concerns, "lima", &a, None);
        assert_eq!(concerns.blocked_by(None, &a), ["oslo"]);
        put(&mut concerns, "paris", &a, Some(Say::No));
        assert_eq!(concerns.blocked_by(None, &a), ["oslo"], "nobody is the operator");
        assert!(concerns.blocked_by(Some("paris"), &a).is_empty());
        assert_eq!(concerns.blocked_by(Some("paris"), &b), ["oslo"]);
        put(&mut concerns, "oslo", &a, None);
        put(&mut concerns, "oslo", &a, Some(Say::Yes));
        assert_eq!(concerns.blocked_by(Some("paris"), &a), ["oslo"], "it has said so again");
    }

    #[test]
    fn only_the_operator_has_all_pause_and_wait() {
        let mut concerns = Concerns::default();
        concerns.put("lima", 1, Concern::Pause, Some(Say::Yes)).unwrap();
        concerns.put("lima", 1, Concern::Delay, Some(Say::Millis(1_500))).unwrap();
        for operator in [None, Some("paris")] {
            assert!(!concerns.are_paused(operator) && concerns.delay(operator).is_none());
        }
        let operator = Some("lima");
        assert!(concerns.are_paused(operator));
        assert_eq!(concerns.delay(operator), Some(Duration::from_millis(1_500)));
        concerns.put("lima", 1, Concern::Pause, None).unwrap();
        assert!(!concerns.are_paused(operator));
    }
}
