//! What ordinary pages say: words from a seeded pool, cut out anew for every page.

use super::{
    PageBytes,
    plan::{Host, Mix},
};

/// The pool is cut, never copied whole, so its size only bounds how alike two pages may be.
const POOL_BYTES: usize = 1 << 20;
const PAGE_BYTES_MEDIAN: f64 = 25_000.0;
const PAGE_BYTES_MIN: f64 = 600.0;
const PAGE_BYTES_MAX: f64 = 4_000_000.0;
/// Spread of the logarithm of page sizes: one page in a hundred is above 400 KB.
const PAGE_BYTES_SIGMA: f64 = 1.2;

/// The pool of text.
#[derive(Debug)]
pub(super) struct Text {
    pool: Vec<u8>,
}

impl Text {
    pub(super) fn new(seed: u64) -> Text {
        const SYLLABLES: [&str; 24] = [
            "ne", "phi", "la", "ra", "to", "mi", "ka", "so", "ven", "dor", "est", "ul", "web", "sil", "ken",
            "ar", "bo", "li", "tam", "que", "rin", "pos", "ga", "hel",
        ];
        let mut mix = Mix::new(&[seed, 0x7e87]);
        let mut pool = Vec::with_capacity(POOL_BYTES + 64);
        pool.extend_from_slice(b"<p>");
        let mut words = 0;
        while pool.len() < POOL_BYTES {
            for _ in 0..=mix.below(3) {
                pool.extend_from_slice(SYLLABLES[mix.below(SYLLABLES.len() as u64) as usize].as_bytes());
            }
            words += 1;
            pool.extend_from_slice(if words % 60 == 0 { b".</p>\n<p>" } else { b" " });
        }
        Text { pool }
    }

    /// Appends `len` bytes of text, starting at a place of the pool that `place` chooses.
    pub(super) fn append(&self, out: &mut Vec<u8>, place: u64, len: usize) {
        let mut from = (place % self.pool.len() as u64) as usize;
        let mut left = len;
        while left > 0 {
            let part = left.min(self.pool.len() - from);
            out.extend_from_slice(&self.pool[from..from + part]);
            left -= part;
            from = 0;
        }
    }
}

/// How large a page should be.
pub(super) fn page_bytes(wanted: PageBytes, mix: &mut Mix) -> usize {
    match wanted {
        PageBytes::Fixed(bytes) => bytes as usize,
        PageBytes::Web => {
            // The sum of twelve uniform numbers is as good as normal here.
            let normal: f64 = (0..12).map(|_| mix.unit()).sum::<f64>() - 6.0;
            let bytes = PAGE_BYTES_MEDIAN * (PAGE_BYTES_SIGMA * normal).exp();
            bytes.clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX) as usize
        }
    }
}

/// A small page of a host that is not one of its ordinary ones, with `links` as it says in HTML.
pub(super) fn small_page(host: &Host<'_>, title: &str, links: &str) -> String {
    format!(
        "<!doctype html><html><head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body><p>{title} of {}</p>\n{links}\n</body></html>\n",
        host.name()
    )
}
