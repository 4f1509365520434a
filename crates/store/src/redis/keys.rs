//! What things are called in Redis.
//!
//! All keys of a host have its name in braces, and so they share a slot; what a partition has for itself has a short word in
//! braces that is in the same slot. Before them stands the name of the crawl, so that several can share a cluster.

use std::sync::OnceLock;

use nephila_core::url::Host;

use nephila_core::assign::{PARTITIONS, slot};

/// For each partition the shortest word whose slot it is.
fn words() -> &'static [String] {
    static WORDS: OnceLock<Vec<String>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let mut words = vec![String::new(); usize::from(PARTITIONS)];
        let mut missing = words.len();
        for number in 0_u32.. {
            let word = in_letters(number);
            let of_slot = &mut words[usize::from(slot(&word))];
            if of_slot.is_empty() {
                *of_slot = word;
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        words
    })
}

/// A number in 36 digits.
fn in_letters(mut number: u32) -> String {
    let mut text = Vec::new();
    loop {
        text.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[number as usize % 36]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    text.into_iter().rev().map(char::from).collect()
}

/// The names of a crawl's keys.
pub(super) struct Keys {
    crawl: String,
}

impl Keys {
    pub(super) fn new(crawl: &str) -> Keys {
        Keys { crawl: crawl.to_owned() }
    }

    fn of_partition(&self, partition: u16, rest: impl std::fmt::Display) -> String {
        format!("{}{{{}}}{rest}", self.crawl, words()[usize::from(partition)])
    }

    fn of_host(&self, host: &Host, rest: impl std::fmt::Display) -> String {
        format!("{}{{{}}}{rest}", self.crawl, host.as_str())
    }

    /// Epoch, version and sums of a partition.
    pub(super) fn partition(&self, partition: u16) -> String {
        self.of_partition(partition, 'p')
    }

    /// So many of its records.
    pub(super) fn records(&self, partition: u16, chunk: u64) -> String {
        self.of_partition(partition, format_args!("l{chunk}"))
    }

    /// Where no records are.
    pub(super) fn no_records(&self, partition: u16) -> String {
        self.of_partition(partition, 'l')
    }

    /// A part of a record that is too long to lie with others.
    pub(super) fn part(&self, partition: u16, number: u64, part: usize) -> String {
        self.of_partition(partition, format_args!("b{number}.{part}"))
    }

    /// What its records found and has not been admitted.
    pub(super) fn outbox(&self, partition: u16) -> String {
        self.of_partition(partition, 'o')
    }

    /// The names of so many of its hosts.
    pub(super) fn names(&self, partition: u16, chunk: u64) -> String {
        self.of_partition(partition, format_args!("h{chunk}"))
    }

    /// What is known of copies of the crawl, beside the leases.
    pub(super) fn copies(&self) -> String {
        format!("{}{{{}}}c", self.crawl, super::leases::TAG)
    }

    /// The lists of sites that the crawl has had, there too.
    pub(super) fn lists(&self) -> String {
        format!("{}{{{}}}f", self.crawl, super::leases::TAG)
    }

    /// The record of a host.
    pub(super) fn host(&self, host: &Host) -> String {
        self.of_host(host, "")
    }

    /// A bucket of its URLs.
    pub(super) fn bucket(&self, host: &Host, bucket: u32) -> String {
        self.of_host(host, format_args!("s{bucket}"))
    }

    /// A part of its queue of one class.
    pub(super) fn queue(&self, host: &Host, class: u8, chunk: u32) -> String {
        self.of_host(host, format_args!("q{class}.{chunk}"))
    }

    /// URLs that come back.
    pub(super) fn front(&self, host: &Host) -> String {
        self.of_host(host, 'f')
    }

    /// URLs that were handed over.
    pub(super) fn taken(&self, host: &Host) -> String {
        self.of_host(host, 't')
    }

    /// Of those under way, how they were found nearer.
    pub(super) fn nearer(&self, host: &Host) -> String {
        self.of_host(host, 'n')
    }

    /// URLs that wait for a time.
    pub(super) fn deferred(&self, host: &Host, leaf: u32) -> String {
        self.of_host(host, format_args!("d{leaf}"))
    }

    /// URLs that limits keep out.
    pub(super) fn kept_out(&self, host: &Host, chunk: u32) -> String {
        self.of_host(host, format_args!("k{chunk}"))
    }
}

/// The bucket of a URL, if its host has so many of them (at least 1).
///
/// Buckets are split one at a time, in turn, as in linear hashing: bucket `n` of a host that grows from `n` to `n + 1` buckets
/// takes half of the URLs of bucket [`split_from`].
pub(super) fn bucket_of(fingerprint: &[u8; 12], buckets: u32) -> u32 {
    let [a, b, c, d, ..] = *fingerprint;
    let hash = u32::from_le_bytes([a, b, c, d]);
    let whole = buckets.next_power_of_two();
    let bucket = hash & (whole - 1);
    if bucket < buckets { bucket } else { bucket & (whole / 2 - 1) }
}

/// The bucket that is split when bucket `new` is made.
pub(super) fn split_from(new: u32) -> u32 {
    new & ((new + 1).next_power_of_two() / 2 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nephila_core::assign::partition_of;

    #[test]
    fn a_partition_and_its_hosts_share_a_slot() {
        let keys = Keys::new("crawl:");
        let in_braces = |key: &str| slot(key.split(['{', '}']).nth(1).unwrap());
        for partition in (0..PARTITIONS).step_by(97) {
            assert_eq!(in_braces(&keys.partition(partition)), partition);
        }
        for name in ["www.example.org", "::1", "127.0.0.1"] {
            let host = Host::parse(name).unwrap();
            assert_eq!(in_braces(&keys.bucket(&host, 7)), partition_of(&host));
        }
    }

    #[test]
    fn a_url_moves_only_when_its_bucket_is_split() {
        let print = |number: u32| {
            let mut print = [0; 12];
            print[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
            print
        };
        for buckets in 1..70 {
            for number in 0..500 {
                let (before, after) =
                    (bucket_of(&print(number), buckets), bucket_of(&print(number), buckets + 1));
                assert!(before < buckets && after <= buckets);
                assert!(after == before || (before, after) == (split_from(buckets), buckets));
            }
        }
    }
}
