//! A Bloom filter over the fingerprints of one block: says of most new URLs at once that they are.
//!
//! Its bits lie in one cache line a URL. At [`BITS_PER_URL`] about one new URL in a hundred looks known and waits for the
//! block to be read.

/// Bits for each URL that the filter is made for.
const BITS_PER_URL: usize = 12;
/// Bits set for each.
const BITS_SET: u32 = 6;
/// Words of a cache line.
const LINE_WORDS: usize = 8;

pub(super) struct Filter {
    lines: Box<[[u64; LINE_WORDS]]>,
    /// URLs that it was given.
    urls: usize,
}

impl Filter {
    /// For this many URLs.
    pub(super) fn new(urls: usize) -> Filter {
        let lines = (urls * BITS_PER_URL).div_ceil(64 * LINE_WORDS).max(1);
        Filter { lines: vec![[0; LINE_WORDS]; lines].into_boxed_slice(), urls: 0 }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Whether it was given all that it is made for.
    pub(super) fn is_full(&self) -> bool {
        self.urls * BITS_PER_URL > self.lines.len() * 64 * LINE_WORDS
    }

    /// How many bytes one for this many URLs takes.
    pub(super) fn bytes_for(urls: usize) -> usize {
        (urls * BITS_PER_URL).div_ceil(8)
    }

    /// As it lies on disk.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.memory_bytes());
        self.lines.iter().flatten().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }

    /// From the disk, where it was given so many URLs; `None` if that makes no sense.
    pub(super) fn decode(bytes: &[u8], urls: usize) -> Option<Filter> {
        let (words, rest) = bytes.as_chunks::<8>();
        let (lines, more) = words.as_chunks::<LINE_WORDS>();
        let line = |line: &[[u8; 8]; LINE_WORDS]| line.map(u64::from_le_bytes);
        let is_whole = rest.is_empty() && more.is_empty() && !lines.is_empty();
        is_whole.then(|| Filter { lines: lines.iter().map(line).collect(), urls })
    }

    pub(super) fn insert(&mut self, print: &[u8; 12]) {
        let (line, bits) = self.place(print);
        for bit in positions(bits) {
            self.lines[line][bit / 64] |= 1 << (bit % 64);
        }
        self.urls += 1;
    }

    pub(super) fn contains(&self, print: &[u8; 12]) -> bool {
        let (line, bits) = self.place(print);
        positions(bits).all(|bit| self.lines[line][bit / 64] & 1 << (bit % 64) != 0)
    }

    /// The line of a fingerprint, and the bits that say where in it: fingerprints are hashes, so their bytes will do.
    fn place(&self, print: &[u8; 12]) -> (usize, u64) {
        let [a, b, c, d, rest @ ..] = *print;
        let line = (u64::from(u32::from_le_bytes([a, b, c, d])) * self.lines.len() as u64) >> 32;
        (line as usize, u64::from_le_bytes(rest))
    }
}

fn positions(bits: u64) -> impl Iterator<Item = usize> {
    (0..BITS_SET).map(move |turn| (bits >> (9 * turn) & 511) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(number: u64) -> [u8; 12] {
        let hash = xxhash_rust::xxh3::xxh3_128(&number.to_le_bytes()).to_le_bytes();
        let mut print = [0; 12];
        print.copy_from_slice(&hash[..12]);
        print
    }

    #[test]
    fn holds_what_it_was_given_and_little_else() {
        let mut filter = Filter::new(6_000);
        (0..6_000).for_each(|number| filter.insert(&print(number)));
        assert!((0..6_000).all(|number| filter.contains(&print(number))));
        let wrong = (6_000..106_000).filter(|number| filter.contains(&print(*number))).count();
        assert!((100..2_000).contains(&wrong), "{wrong} of 100,000");
        assert!(!filter.is_full());
        (0..100).for_each(|number| filter.insert(&print(number)));
        assert!(filter.is_full());
        assert!(filter.memory_bytes() <= Filter::bytes_for(6_000) + 64);
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        assert!(Filter::decode(&bytes, 6_000).is_some_and(|again| again.lines == filter.lines));
        assert!(Filter::decode(&bytes[8..], 1).is_none() && Filter::decode(&[], 1).is_none());
    }
}
