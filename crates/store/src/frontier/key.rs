//! What things are sorted by: partition, then host, then URL, so that a host or a partition is one range.

use std::hash::{BuildHasherDefault, Hasher};
use std::ops::RangeInclusive;

use nephila_core::assign::partition_of;
use nephila_core::url::{Fingerprint, Host};
use serde::{Deserialize, Serialize};

/// A host: its partition and 48 bits of a hash of its name that nobody outside can compute.
///
/// Among ten million hosts the probability that any two share a key is 10^-5, and then they share a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct HostKey(u64);

impl HostKey {
    pub(super) fn of(host: &Host, secret: u64) -> HostKey {
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(host.as_str().as_bytes(), secret);
        HostKey(u64::from(partition_of(host)) << 48 | hash >> 16)
    }

    /// The keys of a partition.
    pub(super) fn of_partition(partition: u16) -> RangeInclusive<HostKey> {
        let first = u64::from(partition) << 48;
        HostKey(first)..=HostKey(first | ((1 << 48) - 1))
    }

    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 8]) -> HostKey {
        HostKey(u64::from_be_bytes(bytes))
    }
}

/// Hosts of some ranges.
pub(super) struct HostRanges(Vec<RangeInclusive<HostKey>>);

impl HostRanges {
    pub(super) fn new(mut ranges: Vec<RangeInclusive<HostKey>>) -> HostRanges {
        ranges.sort_by_key(|range| *range.start());
        HostRanges(ranges)
    }

    pub(super) fn contain(&self, host: HostKey) -> bool {
        self.meet(host, Some(host))
    }

    /// Whether a host from `first` to `last` may be in one of them; without a last one, any from there on.
    pub(super) fn meet(&self, first: HostKey, last: Option<HostKey>) -> bool {
        let next = self.0.partition_point(|range| *range.end() < first);
        self.0.get(next).is_some_and(|range| last.is_none_or(|last| *range.start() <= last))
    }
}

/// A map by host. Its order is the same in every run, as everything has to be that reaches the disk.
pub(super) type HostMap<V> = hashbrown::HashMap<HostKey, V, BuildHasherDefault<AsIs>>;

/// Keys of hosts are hashes already.
#[derive(Clone, Copy, Default)]
pub(super) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// A URL: its host's key and its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; Key::BYTES]);

/// The order of the bytes, but compared as numbers: keys are compared more often than anything else is done.
impl Ord for Key {
    fn cmp(&self, other: &Key) -> std::cmp::Ordering {
        self.numbers().cmp(&other.numbers())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Key {
    pub(super) const BYTES: usize = 20;
    /// Before every other.
    pub(super) const FIRST: Key = Key([0; Key::BYTES]);

    pub(super) fn new(host: HostKey, fingerprint: Fingerprint) -> Key {
        let mut bytes = [0; Key::BYTES];
        bytes[..8].copy_from_slice(&host.to_bytes());
        bytes[8..].copy_from_slice(&fingerprint.0);
        Key(bytes)
    }

    pub(super) fn from_bytes(bytes: [u8; Key::BYTES]) -> Key {
        Key(bytes)
    }

    /// The keys of the URLs of these hosts.
    pub(super) fn of_hosts(hosts: RangeInclusive<HostKey>) -> RangeInclusive<Key> {
        Key::new(*hosts.start(), Fingerprint([0; 12]))..=Key::new(*hosts.end(), Fingerprint([255; 12]))
    }

    fn numbers(&self) -> (u128, u32) {
        let [high @ .., a, b, c, d] = self.0;
        (u128::from_be_bytes(high), u32::from_be_bytes([a, b, c, d]))
    }

    pub(super) fn bytes(&self) -> &[u8; Key::BYTES] {
        &self.0
    }

    pub(super) fn host(&self) -> HostKey {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        HostKey::from_bytes([a, b, c, d, e, f, g, h])
    }

    pub(super) fn fingerprint(&self) -> [u8; 12] {
        let mut print = [0; 12];
        print.copy_from_slice(&self.0[8..]);
        print
    }
}

/// A place in the journal, in 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place([u8; 6]);

impl Place {
    pub(super) fn new(place: u64) -> Place {
        let [bytes @ .., _, _] = place.to_le_bytes();
        Place(bytes)
    }

    pub(super) fn from_bytes(bytes: [u8; 6]) -> Place {
        Place(bytes)
    }

    pub(super) fn bytes(self) -> [u8; 6] {
        self.0
    }

    pub(super) fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_in_its_partition() {
        let host = Host::parse("www.example.org").unwrap();
        let key = HostKey::of(&host, 7);
        assert!(HostKey::of_partition(partition_of(&host)).contains(&key));
        assert_ne!(key, HostKey::of(&host, 8));
    }

    #[test]
    fn ranges_meet_what_they_contain() {
        let ranges = HostRanges::new([9, 2, 3].map(HostKey::of_partition).to_vec());
        let host = |partition: u64| HostKey(partition << 48 | 77);
        for (partition, is_in) in [(1, false), (2, true), (3, true), (4, false), (9, true), (10, false)] {
            assert_eq!(ranges.contain(host(partition)), is_in, "{partition}");
            assert_eq!(ranges.meet(host(partition), None), partition < 10, "{partition}");
        }
        assert!(ranges.meet(host(4), Some(host(9))) && !ranges.meet(host(4), Some(host(8))));
    }

    #[test]
    fn a_host_is_one_range() {
        let hosts =
            ["a.example", "b.example", "c.example"].map(|name| HostKey::of(&Host::parse(name).unwrap(), 1));
        for host in hosts {
            let range = Key::of_hosts(host..=host);
            for other in hosts {
                for byte in [0, 77, 255] {
                    let key = Key::new(other, Fingerprint([byte; 12]));
                    assert_eq!(range.contains(&key), other == host);
                    assert_eq!(key.host(), other);
                }
            }
        }
    }
}
