//! Replicated maps: every site of a federation has all of them, and says what it has to say without asking anybody.
//!
//! A map has a *section* for each site, and only that site writes there. So who may write what is a question of who somebody
//! is, which a certificate answers; what of it counts is for those to say who read all sections ([`concerns`]). An entry of a
//! section has a version: of the list of sites by which it was written, and a counter that is above all of its section, and
//! above all that its writer knew of the key in others. With the name of the section, no two are the same but by agents of one
//! site that write at once. Of one key the later version counts.
//!
//! What is taken back leaves its version behind, so that an older copy does not bring it back. That can go when everybody has
//! it: then the site raises the *floor* of its section, and what is not above that and not in a copy of it is gone wherever it
//! is met. A site that wants to know whether another has the same compares digests of ranges of keys, and sends the ranges
//! that differ.
//!
//! To merge copies is commutative, associative and idempotent.

pub mod concerns;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::limits::{MAP_BYTES_MAX, MAP_ENTRIES_MAX};

/// Ranges of keys that are compared.
pub const RANGES: u8 = 16;
/// What an entry takes beside the text of its key.
const ENTRY_BYTES: usize = 16;

/// Which of two things was said later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// The version of the list of sites that its writer had.
    pub list: u64,
    /// Above all of its section, and all of its key in others.
    pub counter: u64,
}

/// What a site says of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Entry<V> {
    version: Version,
    /// Nothing if it was taken back.
    value: Option<V>,
}

/// What one site says, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section<K: Ord, V> {
    /// All up to this version that is not here is gone.
    floor: Version,
    entries: BTreeMap<K, Entry<V>>,
}

/// A map. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map<K: Ord, V> {
    /// By the names of the sites.
    sections: BTreeMap<String, Section<K, V>>,
}

/// A section is full: something has to be taken back first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a site can say {MAP_ENTRIES_MAX} things to all others, of {MAP_BYTES_MAX} bytes together, and has")]
pub struct Full;

impl<K: Ord, V> Default for Section<K, V> {
    fn default() -> Section<K, V> {
        Section { floor: Version::default(), entries: BTreeMap::new() }
    }
}

impl<K: Ord, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map { sections: BTreeMap::new() }
    }
}

impl<K: Ord + Clone + Display, V: Ord + Clone + Display> Section<K, V> {
    /// Whether nothing was ever said.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.floor == Version::default()
    }

    /// What it says of a key, and since which version.
    pub fn get(&self, key: &K) -> Option<(&V, Version)> {
        let entry = self.entries.get(key)?;
        Some((entry.value.as_ref()?, entry.version))
    }

    /// All that it says.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|(key, entry)| Some((key, entry.value.as_ref()?)))
    }

    /// The latest version of which anything is known.
    pub fn newest(&self) -> Version {
        self.entries.values().map(|entry| entry.version).max().unwrap_or_default().max(self.floor)
    }

    /// How many entries are there only to say that something was taken back.
    pub fn taken_back(&self) -> usize {
        self.entries.values().filter(|entry| entry.value.is_none()).count()
    }

    /// Takes in another copy.
    fn merge(&mut self, other: &Section<K, V>) {
        let keys: BTreeSet<&K> = self.entries.keys().chain(other.entries.keys()).collect();
        let floor = self.floor.max(other.floor);
        // What one copy has and the other knows of and has not is gone.
        let above =
            |entry: &Entry<V>, theirs: &Section<K, V>| (entry.version > theirs.floor).then(|| entry.clone());
        let survivor = |key: &K| match (self.entries.get(key), other.entries.get(key)) {
            (Some(ours), Some(theirs)) if ours.version == theirs.version => Some(ours.max(theirs).clone()),
            (Some(ours), Some(theirs)) if ours.version < theirs.version => above(theirs, self),
            (Some(ours), _) => above(ours, other),
            (None, Some(theirs)) => above(theirs, self),
            (None, None) => None,
        };
        let entries = keys.into_iter().filter_map(|key| Some((key.clone(), survivor(key)?)));
        let entries = entries.filter(|(_, entry)| entry.value.is_some() || entry.version > floor).collect();
        *self = Section { floor, entries };
    }

    /// Has all up to a version gone that is not here, and forgets what was taken back.
    fn raise_floor(&mut self, to: Version) {
        self.floor = self.floor.max(to);
        let floor = self.floor;
        self.entries.retain(|_, entry| entry.value.is_some() || entry.version > floor);
    }

    /// Digests of what is in each range.
    pub fn digests(&self) -> Vec<u64> {
        let bytes_of =
            |version: Version| [version.list.to_le_bytes(), version.counter.to_le_bytes()].concat();
        let mut ranges = vec![bytes_of(self.floor); usize::from(RANGES)];
        for (key, Entry { version, value }) in &self.entries {
            let text = key.to_string();
            let range = &mut ranges[usize::from(range_of(&text))];
            let value = value.as_ref().map_or_else(String::new, |value| format!("={value}"));
            for text in [text, value] {
                range.extend_from_slice(&(text.len() as u64).to_le_bytes());
                range.extend_from_slice(text.as_bytes());
            }
            range.append(&mut bytes_of(*version));
        }
        ranges.iter().map(|range| xxh3_64(range)).collect()
    }

    /// A number that differs when two copies do.
    pub fn digest(&self) -> u64 {
        let digests: Vec<u8> = self.digests().into_iter().flat_map(u64::to_le_bytes).collect();
        xxh3_64(&digests)
    }

    /// What is in these ranges. All of them together are a copy; of a part nothing can be told but what is there.
    pub fn part(&self, ranges: &[u8]) -> Section<K, V> {
        if (0..RANGES).all(|range| ranges.contains(&range)) {
            return self.clone();
        }
        let entries = self.entries.iter().filter(|(key, _)| ranges.contains(&range_of(&key.to_string())));
        let entries = entries.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        Section { floor: Version::default(), entries }
    }

    /// Whether it is so many times as large as a site may make it.
    fn is_beyond(&self, times: usize) -> bool {
        let bytes = self.entries.keys().map(|key| key.to_string().len() + ENTRY_BYTES).sum::<usize>();
        self.entries.len() > times * MAP_ENTRIES_MAX || bytes > times * MAP_BYTES_MAX
    }
}

/// The range of the key with this text.
fn range_of(text: &str) -> u8 {
    (xxh3_64(text.as_bytes()) % u64::from(RANGES)) as u8
}

impl<K: Ord + Clone + Display, V: Ord + Clone + Display> Map<K, V> {
    /// What a site says; nothing if nothing was ever heard of it.
    pub fn section(&self, site: &str) -> Option<&Section<K, V>> {
        self.sections.get(site)
    }

    /// All sites of which something was heard, and what they say.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section<K, V>)> {
        self.sections.iter().map(|(site, section)| (site.as_str(), section))
    }

    /// The same map with one section alone, or a part of it.
    pub fn of_section(site: &str, section: Section<K, V>) -> Map<K, V> {
        // One in which nothing was ever said is none.
        let section = Some(section).filter(|section| !section.is_empty());
        Map { sections: section.into_iter().map(|section| (site.to_owned(), section)).collect() }
    }

    /// Has a site say something of a key, or take back what it has said. Whoever calls this speaks for that site, by the list of
    /// this version. Says whether anything has changed.
    pub fn put(&mut self, site: &str, list: u64, key: K, value: Option<V>) -> Result<bool, Full> {
        let of_key = self.sections.values().filter_map(|section| Some(section.entries.get(&key)?.version));
        let newest = of_key.chain(self.section(site).map(Section::newest)).max().unwrap_or_default();
        let version = match newest.list >= list {
            true => Version { counter: newest.counter.saturating_add(1), ..newest },
            false => Version { list, counter: 1 },
        };
        let known = self.section(site).and_then(|section| section.get(&key)).map(|(value, _)| value);
        if known == value.as_ref() {
            return Ok(false);
        }
        let mut section = self.sections.get(site).cloned().unwrap_or_default();
        let grows = value.is_some() && known.is_none();
        section.entries.insert(key, Entry { version, value });
        if grows && section.is_beyond(1) {
            return Err(Full);
        }
        self.sections.insert(site.to_owned(), section);
        Ok(true)
    }

    /// Takes in what a site is heard to say, unless it is more than a site can say, and than several agents of it that have not
    /// heard of each other could. Says whether anything has changed.
    pub fn hear(&mut self, site: &str, said: &Section<K, V>) -> Result<bool, Full> {
        let mut section = self.sections.get(site).cloned().unwrap_or_default();
        section.merge(said);
        if section.is_beyond(2) {
            return Err(Full);
        }
        let is_new = self.sections.get(site).map_or(!section.is_empty(), |known| *known != section);
        if is_new {
            self.sections.insert(site.to_owned(), section);
        }
        Ok(is_new)
    }

    /// Has a site say that all up to a version is gone that is not in its section.
    pub fn raise_floor(&mut self, site: &str, to: Version) {
        if let Some(section) = self.sections.get_mut(site) {
            section.raise_floor(to);
        }
    }

    /// Takes in another copy, of an agent of the same site.
    pub fn merge(&mut self, other: &Map<K, V>) {
        for (site, section) in &other.sections {
            self.sections.entry(site.clone()).or_default().merge(section);
        }
    }

    /// A number that differs when two copies do.
    pub fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        for (site, section) in &self.sections {
            bytes.extend_from_slice(&(site.len() as u64).to_le_bytes());
            bytes.extend_from_slice(site.as_bytes());
            bytes.extend_from_slice(&section.digest().to_le_bytes());
        }
        xxh3_64(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Plain = Map<String, u8>;

    fn version() -> impl Strategy<Value = Version> {
        (1..3_u64, 0..6_u64).prop_map(|(list, counter)| Version { list, counter })
    }

    /// A section as it may come from anybody.
    fn section() -> impl Strategy<Value = Section<String, u8>> {
        let entry = (version(), prop::option::of(0..3_u8));
        let entries = prop::collection::btree_map("[a-d]", entry, 0..5);
        (version(), entries).prop_map(|(floor, entries)| {
            let entries = entries.into_iter().map(|(key, (version, value))| (key, Entry { version, value }));
            let mut section = Section { floor: Version::default(), entries: entries.collect() };
            section.raise_floor(floor);
            section
        })
    }

    fn joined(a: &Section<String, u8>, b: &Section<String, u8>) -> Section<String, u8> {
        let mut sum = a.clone();
        sum.merge(b);
        sum
    }

    proptest! {
        #[test]
        fn merging_does_not_care_for_order_or_repetition(a in section(), b in section(), c in section()) {
            prop_assert_eq!(joined(&a, &a), a.clone());
            prop_assert_eq!(joined(&a, &b), joined(&b, &a));
            prop_assert_eq!(joined(&joined(&a, &b), &c), joined(&a, &joined(&b, &c)));
            prop_assert_eq!(joined(&joined(&a, &b), &b), joined(&a, &b));
        }

        #[test]
        fn ranges_that_differ_are_all_that_has_to_be_sent(
            old in section(),
            said in prop::collection::vec(("[a-d]", prop::option::of(0..3_u8)), 0..4),
            is_raised: bool,
        ) {
            let mut map = Plain { sections: [("paris".to_owned(), old.clone())].into() };
            for (key, value) in said {
                map.put("paris", 1, key, value).unwrap();
            }
            if is_raised {
                map.raise_floor("paris", map.sections["paris"].newest());
            }
            let new = &map.sections["paris"];
            let pairs = new.digests().into_iter().zip(old.digests()).zip(0..RANGES);
            let differ: Vec<u8> =
                pairs.filter_map(|((ours, theirs), range)| (ours != theirs).then_some(range)).collect();
            let heard = joined(&old, &new.part(&differ));
            prop_assert_eq!(heard.digest(), new.digest());
            prop_assert_eq!(&heard, new);
        }
    }

    #[test]
    fn the_last_word_counts_and_stays_when_it_is_forgotten() {
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let mut map = Plain::default();
        assert_eq!(map.put("paris", 1, a.clone(), None), Ok(false), "nothing is there to be taken back");
        assert_eq!(
            (Plain::of_section("paris", Section::default()), map.digest()),
            (map.clone(), Plain::default().digest())
        );
        assert_eq!(map.put("paris", 1, a.clone(), Some(1)), Ok(true));
        assert_eq!(map.put("paris", 1, a.clone(), Some(1)), Ok(false));
        let old = map.clone();
        assert_eq!(map.put("lima", 1, b, Some(2)), Ok(true));
        assert_eq!(map.put("lima", 1, a.clone(), Some(2)), Ok(true));
        assert_eq!(map.put("paris", 1, a.clone(), None), Ok(true));
        let section = |map: &Plain, site: &str| map.section(site).cloned().unwrap();
        let paris = section(&map, "paris");
        assert!(paris.newest() > section(&map, "lima").newest(), "it had heard of that");
        assert_eq!((paris.taken_back(), paris.iter().count()), (1, 0));
        map.raise_floor("paris", paris.newest());
        assert_eq!(section(&map, "paris").taken_back(), 0);
        map.merge(&old);
        assert_eq!(section(&map, "paris").get(&a), None, "an older copy does not bring it back");
        let mut late = old;
        assert_eq!(late.hear("paris", &section(&map, "paris")), Ok(true));
        assert_eq!((late.section("paris"), late.section("lima")), (map.section("paris"), None));
        // By a later list all is later, whatever was counted before.
        assert_eq!(map.put("paris", 2, a.clone(), Some(3)), Ok(true));
        assert_eq!(section(&map, "paris").get(&a), Some((&3, Version { list: 2, counter: 1 })));
    }

    #[test]
    fn a_section_has_an_end() {
        let mut map = Plain::default();
        for number in 0..MAP_ENTRIES_MAX {
            assert_eq!(map.put("paris", 1, number.to_string(), Some(1)), Ok(true));
        }
        assert_eq!(map.put("paris", 1, "more".to_owned(), Some(1)), Err(Full));
        assert_eq!(map.put("paris", 1, "7".to_owned(), None), Ok(true), "what is there can be taken back");
        assert_eq!(map.put("lima", 1, "more".to_owned(), Some(1)), Ok(true));
        assert_eq!(map.put("lima", 1, "x".repeat(MAP_BYTES_MAX), Some(1)), Err(Full));
        let before = map.clone();
        let text = |number: usize| format!("{number}{}", "x".repeat(200));
        let version = Version { list: 1, counter: 9 };
        let much = (0..700).map(|number| (text(number), Entry { version, value: Some(1) })).collect();
        let much = Section { floor: Version::default(), entries: much };
        assert_eq!((map.hear("lima", &much), &map), (Err(Full), &before));
    }
}
