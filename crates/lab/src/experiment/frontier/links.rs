//! Links that never end: ten a page, seven of them known, hosts by a power law.

use nephila_core::{
    record::{Found, How},
    url::Host,
};

/// Links on a page,
const LINKS: usize = 10;
/// and of ten of them how many are new.
const NEW_IN_TEN: u64 = 3;
/// URLs to a host, on average.
const URLS_A_HOST: u64 = 100;
const HOSTS_MIN: u64 = 100;

/// Numbers by a seed.
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

/// Where links lead to.
pub(super) struct Links {
    random: Random,
    /// How many URLs of each host exist.
    counts: Vec<u32>,
    pub(super) generated: u64,
    pub(super) text_bytes: u64,
}

impl Links {
    /// For about this many URLs in the end.
    pub(super) fn new(seed: u64, urls: u64) -> Links {
        let hosts = (urls / URLS_A_HOST).max(HOSTS_MIN);
        Links { random: Random(seed), counts: vec![0; hosts as usize], generated: 0, text_bytes: 0 }
    }

    pub(super) fn hosts(&self) -> u64 {
        self.counts.len() as u64
    }

    /// A host; the number n is n times as rare as the first.
    pub(super) fn host(&mut self) -> u64 {
        let share = self.random.below(1 << 53) as f64 / (1u64 << 53) as f64;
        let hosts = self.counts.len() as f64;
        (hosts.powf(share) as u64).clamp(1, self.hosts()) - 1
    }

    /// A URL that nobody knows.
    pub(super) fn fresh(&mut self, host: u64, depth: u16) -> Found {
        let count = &mut self.counts[host as usize];
        let url = url(host, u64::from(*count));
        *count += 1;
        self.generated += 1;
        self.text_bytes += url.len() as u64;
        Found { url, depth, how: How::Link, redirects: 0 }
    }

    /// The links of a page.
    pub(super) fn page(&mut self) -> Vec<Found> {
        (0..LINKS)
            .map(|_| {
                let host = self.host();
                let known = u64::from(self.counts[host as usize]);
                if known == 0 || self.random.below(10) < NEW_IN_TEN {
                    let depth = 2 + self.random.below(3) as u16;
                    return self.fresh(host, depth);
                }
                let number = self.random.below(known);
                Found { url: url(host, number), depth: 4, how: How::Link, redirects: 0 }
            })
            .collect()
    }
}

/// The name of a host.
pub(super) fn host_name(host: u64) -> Option<Host> {
    Host::parse(&format!("www.site-{host}.example"))
}

/// A URL of a host, 57 to 70 bytes long.
pub(super) fn url(host: u64, number: u64) -> String {
    let hash = Random(host << 32 | number).next();
    format!("http://www.site-{host}.example/section-{}/{:x}/page-{number}.html", hash % 97, hash >> 24)
}
