//! The list of a site's agents. It changes when one joins or is forgotten, and never because one seems to be dead.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Leases;
use crate::assign::Ring;
use crate::limits::AGENTS_MAX;

/// Names an agent for as long as it has its disk: one that comes back without it is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(pub [u8; 8]);

/// For people in digits, otherwise as it is.
impl Serialize for AgentId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(self) } else { self.0.serialize(to) }
    }
}

impl<'de> Deserialize<'de> for AgentId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AgentId, D::Error> {
        if from.is_human_readable() {
            return String::deserialize(from)?.parse().map_err(D::Error::custom);
        }
        Deserialize::deserialize(from).map(AgentId)
    }
}

impl AsRef<[u8]> for AgentId {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A text that names no agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the number of an agent: it has 16 hexadecimal digits")]
pub struct NotAnAgentId(String);

impl FromStr for AgentId {
    type Err = NotAnAgentId;

    fn from_str(text: &str) -> Result<AgentId, NotAnAgentId> {
        let is_one = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| is_one);
        number.map(AgentId::from).ok_or_else(|| NotAnAgentId(text.to_owned()))
    }
}

impl From<u64> for AgentId {
    fn from(number: u64) -> AgentId {
        AgentId(number.to_be_bytes())
    }
}

/// What is said of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, for people and in its certificate.
    pub name: String,
    /// Where others reach it.
    pub address: String,
    /// Its share of the work, in relation to that of others.
    pub capacity: u16,
    /// Counts what it has said of itself, so that the last word counts.
    pub version: u64,
    /// Counts how often it has joined.
    pub life: u32,
    /// Up to this life it was forgotten. Only the agent itself begins another.
    pub forgotten: u32,
}

impl Member {
    /// Whether it was forgotten, and has not joined again.
    pub fn is_gone(&self) -> bool {
        self.forgotten >= self.life
    }

    /// Takes in another copy; says whether anything has changed.
    fn merge(&mut self, other: &Member) -> bool {
        let lives = (self.life.max(other.life), self.forgotten.max(other.forgotten));
        // A number has one name: nobody else may come under it.
        let newer = self.name == other.name
            && (other.version, &other.address, other.capacity) > (self.version, &self.address, self.capacity);
        let changed = newer || lives != (self.life, self.forgotten);
        if newer {
            *self = other.clone();
        }
        (self.life, self.forgotten) = lives;
        changed
    }
}

/// The two lists are of different sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherSite;

/// The agents of a site, those that are gone included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// Those that it began with, in order: the first holder of each partition follows from them, and they tell sites apart. Empty
    /// until the site has begun.
    founders: Vec<(AgentId, u16)>,
    list: BTreeMap<AgentId, Member>,
}

impl Members {
    /// The members that a site begins with.
    pub fn found(list: BTreeMap<AgentId, Member>) -> Members {
        let founders = list.iter().map(|(id, member)| (*id, member.capacity)).collect();
        Members { founders, list }
    }

    /// Those that have leases.
    pub fn leased(leases: &Leases) -> Members {
        Members::found(leases.iter().map(|(id, lease)| (id, lease.member.clone())).collect())
    }

    /// Whether the site has begun.
    pub fn is_founded(&self) -> bool {
        !self.founders.is_empty()
    }

    /// The ring over those that the site began with.
    pub fn first_ring(&self) -> Ring<AgentId> {
        Ring::new(self.founders.iter().copied())
    }

    /// The ring over those that take part.
    pub fn ring(&self) -> Ring<AgentId> {
        Ring::new(self.shares())
    }

    /// What it depends on.
    pub fn shares(&self) -> Vec<(AgentId, u16)> {
        self.present().map(|(id, member)| (id, member.capacity)).collect()
    }

    /// One of them.
    pub fn get(&self, id: AgentId) -> Option<&Member> {
        self.list.get(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (AgentId, &Member)> {
        self.list.iter().map(|(id, member)| (*id, member))
    }

    /// Those that are not gone.
    pub fn present(&self) -> impl Iterator<Item = (AgentId, &Member)> {
        self.iter().filter(|(_, member)| !member.is_gone())
    }

    /// Whether one was forgotten.
    pub fn is_gone(&self, id: AgentId) -> bool {
        self.list.get(&id).is_some_and(Member::is_gone)
    }

    /// Takes in what is said of one agent; says whether anything has changed. There is room for so many.
    pub fn put(&mut self, id: AgentId, member: &Member) -> bool {
        let has_room = self.list.len() < AGENTS_MAX;
        match self.list.get_mut(&id) {
            Some(known) => known.merge(member),
            None if !has_room => false,
            None => {
                self.list.insert(id, member.clone());
                true
            }
        }
    }

    /// Takes note that an agent will not come back; says whether anything has changed.
    pub fn forget(&mut self, id: AgentId) -> bool {
        let Some(member) = self.list.get_mut(&id).filter(|member| !member.is_gone()) else { return false };
        member.forgotten = member.life;
        true
    }

    /// Has an agent that was forgotten join again, which only it may say; says whether it had been.
    pub fn rejoin(&mut self, id: AgentId) -> bool {
        let Some(member) = self.list.get_mut(&id).filter(|member| member.is_gone()) else { return false };
        member.life = member.forgotten + 1;
        true
    }

    /// Takes in another copy of the list; says whether anything has changed.
    pub fn merge(&mut self, other: &Members) -> Result<bool, OtherSite> {
        let mut changed = false;
        if self.founders != other.founders {
            if self.is_founded() && other.is_founded() {
                return Err(OtherSite);
            }
            if other.is_founded() {
                self.founders.clone_from(&other.founders);
                changed = true;
            }
        }
        for (id, member) in &other.list {
            changed |= self.put(*id, member);
        }
        Ok(changed)
    }

    /// A number that differs when the lists do.
    pub fn digest(&self) -> u64 {
        let mut bytes = Vec::with_capacity(self.list.len() * 128);
        for (id, capacity) in &self.founders {
            bytes.extend_from_slice(&id.0);
            bytes.extend_from_slice(&capacity.to_le_bytes());
        }
        for (id, member) in &self.list {
            bytes.extend_from_slice(&id.0);
            for text in [&member.name, &member.address] {
                bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
            bytes.extend_from_slice(&member.capacity.to_le_bytes());
            bytes.extend_from_slice(&member.version.to_le_bytes());
            bytes.extend_from_slice(&member.life.to_le_bytes());
            bytes.extend_from_slice(&member.forgotten.to_le_bytes());
        }
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(version: u64, life: u32, forgotten: u32) -> Member {
        let (name, address) = ("a".into(), format!("127.0.0.{version}:1"));
        Member { name, address, capacity: 1, version, life, forgotten }
    }

    fn lists() -> Vec<Members> {
        let site =
            Members::found([(AgentId::from(1), member(1, 1, 0)), (AgentId::from(2), member(1, 1, 0))].into());
        let mut lists = vec![site];
        for (id, version, life, forgotten) in
            [(1, 2, 1, 0), (1, 1, 1, 1), (3, 1, 1, 0), (3, 4, 1, 0), (2, 3, 1, 1), (4, 1, 1, 1), (4, 1, 2, 1)]
        {
            let mut list = lists[0].clone();
            list.put(AgentId::from(id), &member(version, life, forgotten));
            lists.push(list);
        }
        lists
    }

    #[test]
    fn lists_become_one_in_any_order() {
        let lists = lists();
        let join = |order: &mut dyn Iterator<Item = &Members>| {
            let mut sum = Members::default();
            for list in order {
                sum.merge(list).unwrap();
            }
            sum
        };
        let sum = join(&mut lists.iter());
        assert_eq!(sum, join(&mut lists.iter().rev()));
        assert_eq!(sum, join(&mut lists.iter().chain(&lists)));
        assert_eq!(sum.digest(), join(&mut lists.iter().skip(3).chain(&lists[..3])).digest());
        assert!(
            sum.is_gone(AgentId::from(1)) && sum.is_gone(AgentId::from(2)) && !sum.is_gone(AgentId::from(3))
        );
        assert_eq!(sum.get(AgentId::from(1)).map(|member| member.version), Some(2));
        // One of those that were forgotten has joined again.
        assert_eq!(sum.present().count(), 2);
        assert!(!sum.is_gone(AgentId::from(4)));
        assert!(!sum.clone().merge(&sum).unwrap());
        let mut later = sum.clone();
        assert!(later.forget(AgentId::from(4)) && !later.forget(AgentId::from(4)));
        assert!(later.is_gone(AgentId::from(4)) && later.rejoin(AgentId::from(4)));
        assert!(!later.is_gone(AgentId::from(4)) && !later.rejoin(AgentId::from(4)));
    }

    #[test]
    fn numbers_are_read_back() {
        let id = AgentId::from(0x00ab_cdef_0123_4567);
        assert_eq!(id.to_string().parse(), Ok(id));
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!((json.as_str(), serde_json::from_str(&json).unwrap()), ("\"00abcdef01234567\"", id));
        for wrong in ["", "1", "00abcdef0123456", "00abcdef01234567a", "00abcdef0123456x", "+0abcdef01234567"]
        {
            assert!(wrong.parse::<AgentId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sites_are_not_mixed() {
        let other = Members::found([(AgentId::from(9), member(1, 1, 0))].into());
        let mut list = lists().remove(0);
        assert_eq!(list.merge(&other), Err(OtherSite));
        assert_eq!(list, lists().remove(0));
        let mut fresh = Members::default();
        assert_eq!(fresh.merge(&other), Ok(true));
        assert_eq!(fresh, other);
    }
}
