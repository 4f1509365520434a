//! Which addresses may be connected to, and which of them are one machine to us.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Rows of the IANA special-purpose registry for IPv4, first match wins: network, length of its prefix, and why it is
/// refused, or `None` for the parts that are globally reachable.
const V4: &[([u8; 4], u32, Option<&str>)] = &[
    ([0, 0, 0, 0], 8, Some("this network (0.0.0.0/8)")),
    ([10, 0, 0, 0], 8, Some("private (10.0.0.0/8)")),
    ([100, 64, 0, 0], 10, Some("shared by carriers (100.64.0.0/10)")),
    ([127, 0, 0, 0], 8, Some("loopback (127.0.0.0/8)")),
    ([169, 254, 0, 0], 16, Some("link-local (169.254.0.0/16)")),
    ([172, 16, 0, 0], 12, Some("private (172.16.0.0/12)")),
    ([192, 0, 0, 9], 32, None),
    ([192, 0, 0, 10], 32, None),
    ([192, 0, 0, 0], 24, Some("protocol assignments (192.0.0.0/24)")),
    ([192, 0, 2, 0], 24, Some("documentation (192.0.2.0/24)")),
    ([192, 88, 99, 0], 24, Some("6to4 relays (192.88.99.0/24)")),
    ([192, 168, 0, 0], 16, Some("private (192.168.0.0/16)")),
    ([198, 18, 0, 0], 15, Some("benchmarking (198.18.0.0/15)")),
    ([198, 51, 100, 0], 24, Some("documentation (198.51.100.0/24)")),
    ([203, 0, 113, 0], 24, Some("documentation (203.0.113.0/24)")),
    ([224, 0, 0, 0], 4, Some("multicast (224.0.0.0/4)")),
    ([240, 0, 0, 0], 4, Some("reserved (240.0.0.0/4)")),
];

/// The same for IPv6, after the forms that carry an IPv4 address. Global unicast is 2000::/3: the last rows refuse all
/// that is outside.
const V6: &[([u16; 8], u32, Option<&str>)] = &[
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, Some("unspecified (::)")),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Some("loopback (::1)")),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Some("local NAT64 (64:ff9b:1::/48)")),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Some("private (fc00::/7)")),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Some("link-local (fe80::/10)")),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Some("multicast (ff00::/8)")),
    ([0x2001, 1, 0, 0, 0, 0, 0, 1], 128, None),
    ([0x2001, 1, 0, 0, 0, 0, 0, 2], 128, None),
    ([0x2001, 1, 0, 0, 0, 0, 0, 3], 128, None),
    ([0x2001, 3, 0, 0, 0, 0, 0, 0], 32, None),
    ([0x2001, 4, 0x112, 0, 0, 0, 0, 0], 48, None),
    ([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, None),
    ([0x2001, 0x30, 0, 0, 0, 0, 0, 0], 28, None),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Some("protocol assignments (2001::/23)")),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Some("documentation (2001:db8::/32)")),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Some("documentation (3fff::/20)")),
    ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, None),
    ([0, 0, 0, 0, 0, 0, 0, 0], 0, Some("outside global unicast (2000::/3)")),
];

/// Why an address is not globally reachable, or `None` if it is.
///
/// This follows the IANA special-purpose registries, and adds multicast. IPv6 forms that carry an IPv4 address
/// (mapped, compatible, 6to4, Teredo, NAT64) are as reachable as that address.
pub fn special(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v4(v4: Ipv4Addr) -> Option<&'static str> {
    let bits = u32::from(v4);
    let row = V4.iter().find(|(network, length, _)| {
        let shift = 32 - length;
        bits >> shift == u32::from_be_bytes(*network) >> shift
    });
    row.and_then(|(_, _, why)| *why)
}

fn special_v6(v6: Ipv6Addr) -> Option<&'static str> {
    match v6.segments() {
        // The unspecified address and loopback are in the space of compatible addresses without being one.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => {}
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            return special_v4(inner(high, low));
        }
        [0x2002, high, low, ..] => return special_v4(inner(high, low)),
        [0x2001, 0, server_high, server_low, _, _, client_high, client_low] => {
            return special_v4(inner(server_high, server_low))
                .or_else(|| special_v4(inner(!client_high, !client_low)));
        }
        _ => {}
    }
    let bits = u128::from(v6);
    let row = V6.iter().find(|(network, length, _)| {
        // A shift by all 128 bits is what checked_shr refuses: a prefix of no bits holds everything.
        let prefix = |value: u128| value.checked_shr(128 - length).unwrap_or(0);
        prefix(bits) == prefix(u128::from(Ipv6Addr::from(*network)))
    });
    row.and_then(|(_, _, why)| *why)
}

fn inner(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

/// What counts as one address for politeness: an IPv4 address, or the /64 of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AddressKey(IpAddr);

impl AddressKey {
    /// The key of an address. An IPv4 address mapped into IPv6 has the key of the IPv4 address.
    pub fn of(ip: IpAddr) -> AddressKey {
        AddressKey(match ip.to_canonical() {
            IpAddr::V4(v4) => IpAddr::V4(v4),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) >> 64 << 64)),
        })
    }
}

impl fmt::Display for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(v4) => write!(f, "{v4}"),
            IpAddr::V6(v6) => write!(f, "{v6}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_refused_and_why() {
        for (address, why) in [
            ("0.1.2.3", "this network"),
            ("10.255.0.1", "private"),
            ("100.64.0.1", "carriers"),
            ("100.127.255.255", "carriers"),
            ("127.0.0.1", "loopback"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.8", "protocol"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4"),
            ("192.168.1.1", "private"),
            ("198.19.255.255", "benchmarking"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::7f00:1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.1", "private"),
            ("64:ff9b::a00:1", "private"),
            ("64:ff9b:1::808:808", "NAT64"),
            ("100::1", "outside global unicast"),
            ("100:0:0:1::1", "outside global unicast"),
            ("5f00::1", "outside global unicast"),
            ("fec0::1", "outside global unicast"),
            ("2001:2::1", "protocol"),
            ("2001:10::1", "protocol"),
            ("2001:1ff:ffff::1", "protocol"),
            ("2001:db8::1", "documentation"),
            ("3fff:fff::1", "documentation"),
            ("2002:c0a8:0101::1", "private"),
            // Teredo: the server is 10.0.0.1; then the client is 192.168.0.1, its bits inverted.
            ("2001:0:a00:1:0:0:f7f7:f7f7", "private"),
            ("2001:0:808:808:0:0:3f57:fffe", "private"),
            ("fc00::1", "private"),
            ("fdff::1", "private"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("ff02::1", "multicast"),
        ] {
            let given = special(address.parse().unwrap());
            assert!(given.is_some_and(|text| text.contains(why)), "{address}: {given:?}");
        }
    }

    #[test]
    fn addresses_that_are_reachable() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.0.9",
            "192.0.0.10",
            "192.0.1.0",
            "192.31.196.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:1::1",
            "2001:4:112::1",
            "2001:20::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2002:808:808::1",
            "2001:0:808:808:0:0:f7f7:f7f7",
            "2606:4700::1111",
            "3ffe::1",
        ] {
            assert_eq!(special(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn keys() {
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(AddressKey::of(address.parse().unwrap()).to_string(), expected);
        }
    }
}
