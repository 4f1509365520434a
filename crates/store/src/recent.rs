//! The URLs that were offered lately, so that what every page of a site links to is not offered again and again.
//!
//! Two generations: when the young one is full, the old one is forgotten.

use hashbrown::HashMap;
use nephila_core::url::{Fingerprint, Host};

/// URLs of a generation: a few ten bytes each.
const GENERATION: usize = 1 << 18;

#[derive(Default)]
pub(crate) struct Recent {
    young: HashMap<(u64, Fingerprint), u16>,
    old: HashMap<(u64, Fingerprint), u16>,
}

impl Recent {
    /// Whether a URL was offered lately at this depth or a lower one.
    pub(crate) fn knows(&self, host: &Host, fingerprint: Fingerprint, depth: u16) -> bool {
        let key = (hash(host), fingerprint);
        [&self.young, &self.old].iter().any(|urls| urls.get(&key).is_some_and(|known| *known <= depth))
    }

    /// A URL is known.
    pub(crate) fn add(&mut self, host: &Host, fingerprint: Fingerprint, depth: u16) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        let known = self.young.entry((hash(host), fingerprint)).or_insert(depth);
        *known = depth.min(*known);
    }
}

/// Fingerprints are compared within a host only, where nobody can hide the pages of another.
fn hash(host: &Host) -> u64 {
    xxhash_rust::xxh3::xxh3_64(host.as_str().as_bytes())
}
