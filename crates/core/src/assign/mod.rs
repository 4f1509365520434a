//! Whose a host is, inside a site.
//!
//! Hosts are divided into [`PARTITIONS`] sets by their name alone, for good ([`partition_of`]). Which agent a partition should
//! be with follows from the list of agents ([`Ring`]); whether it is there already is another matter, and not decided here.
//!
//! Both are functions that everybody computes for himself and comes to the same: they must not change between versions.

mod position;
mod ring;

pub use position::Position;
pub use ring::Ring;

use crate::url::{AddressKey, Host};

/// How many partitions a site has: as many as a Redis Cluster has slots.
pub const PARTITIONS: u16 = 16_384;

/// The slot of a key in a Redis Cluster.
const SLOT: crc::Crc<u16, crc::Table<1>> = crc::Crc::<u16, crc::Table<1>>::new(&crc::CRC_16_XMODEM);

/// The partition of a host: the Redis slot of its tag.
pub fn partition_of(host: &Host) -> u16 {
    slot(host.as_str())
}

/// The partition of an address: who has its token keeps the address, whatever agents the hosts there are with.
pub fn partition_of_address(address: AddressKey) -> u16 {
    slot(&address.to_string())
}

/// The slot of keys with this in their braces.
pub fn slot(tag: &str) -> u16 {
    SLOT.checksum(tag.as_bytes()) % PARTITIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_the_slots_of_redis() {
        // As CLUSTER KEYSLOT answers.
        for (tag, expected) in [("123456789", 12_739), ("foo", 12_182), ("somekey", 11_058)] {
            assert_eq!(slot(tag), expected);
        }
        assert_eq!(partition_of(&Host::parse("FOO").unwrap()), 12_182);
    }
}
