//! Where the hosts of the web are, in a file in the MaxMind DB format: a tree of the bits of addresses, then the entries that its
//! leaves lead to, then what is to be known of both.

use std::net::Ipv4Addr;

const BITS: usize = 32;
/// What stands between the tree and the entries, and before what is to be known of them.
const SEPARATOR_BYTES: u32 = 16;
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// Degrees north and east.
pub(super) type Place = (f64, f64);

/// What a bit of an address leads to.
#[derive(Clone, Copy)]
enum Next {
    Nothing,
    Node(usize),
    Place(usize),
}

/// A file that says where these addresses are.
pub(super) fn file(addresses: &[(Ipv4Addr, Place)]) -> Vec<u8> {
    let mut places: Vec<Place> = Vec::new();
    let mut tree = vec![[Next::Nothing; 2]];
    for (address, place) in addresses {
        let entry = places.iter().position(|other| other == place).unwrap_or_else(|| {
            places.push(*place);
            places.len() - 1
        });
        let mut node = 0;
        for bit in (0..BITS).rev() {
            let side = (u32::from(*address) >> bit & 1) as usize;
            if bit == 0 {
                tree[node][side] = Next::Place(entry);
            } else if let Next::Node(next) = tree[node][side] {
                node = next;
            } else {
                tree.push([Next::Nothing; 2]);
                tree[node][side] = Next::Node(tree.len() - 1);
                node = tree.len() - 1;
            }
        }
    }
    let mut entries = Vec::new();
    let starts: Vec<u32> = places
        .iter()
        .map(|(north, east)| {
            let start = entries.len() as u32;
            map(&mut entries, 1);
            text(&mut entries, "location");
            map(&mut entries, 2);
            for (name, degrees) in [("latitude", north), ("longitude", east)] {
                text(&mut entries, name);
                entries.push(3 << 5 | 8);
                entries.extend(degrees.to_be_bytes());
            }
            start
        })
        .collect();
    let nodes = tree.len() as u32;
    let mut file = Vec::new();
    for next in tree.into_iter().flatten() {
        let record = match next {
            Next::Nothing => nodes,
            Next::Node(node) => node as u32,
            Next::Place(entry) => nodes + SEPARATOR_BYTES + starts[entry],
        };
        file.extend(record.to_be_bytes());
    }
    file.extend([0; SEPARATOR_BYTES as usize]);
    file.extend(entries);
    file.extend(MARKER);
    about(&mut file, nodes);
    file
}

/// What is to be known of such a file.
fn about(file: &mut Vec<u8>, nodes: u32) {
    map(file, 9);
    text(file, "node_count");
    file.push(6 << 5 | 4);
    file.extend(nodes.to_be_bytes());
    let numbers = [
        ("record_size", BITS as u16),
        ("ip_version", 4),
        ("binary_format_major_version", 2),
        ("binary_format_minor_version", 0),
    ];
    for (name, number) in numbers {
        text(file, name);
        file.push(5 << 5 | 2);
        file.extend(number.to_be_bytes());
    }
    text(file, "build_epoch");
    file.extend([8, 2]);
    file.extend(1_u64.to_be_bytes());
    text(file, "database_type");
    text(file, "Nephila-Lab-City");
    text(file, "languages");
    file.extend([0, 4]);
    text(file, "description");
    map(file, 0);
}

fn map(to: &mut Vec<u8>, pairs: u8) {
    to.push(7 << 5 | pairs);
}

/// Of at most 28 bytes: what is longer is written in another way.
fn text(to: &mut Vec<u8>, text: &str) {
    to.push(2 << 5 | text.len() as u8);
    to.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use nephila_core::assign::Position;
    use nephila_node::places::Places;

    use super::*;

    #[test]
    fn a_crawl_reads_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("geoip.mmdb");
        let at = |number: u32| (Ipv4Addr::from(0x7f00_0001 + number * 77), (f64::from(number % 3), -0.5));
        let addresses: Vec<_> = (0..200).map(at).collect();
        std::fs::write(&path, file(&addresses)).unwrap();
        let places = Places::read(&path).unwrap();
        for (address, (north, east)) in addresses {
            assert_eq!(places.locate(address.into()), Position::new(north, east));
        }
        for nowhere in ["127.0.0.2", "8.8.8.8", "::1"] {
            assert_eq!(places.locate(nowhere.parse().unwrap()), None);
        }
    }
}
