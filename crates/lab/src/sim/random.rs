//! The one source of chance of a simulated run.

/// SplitMix64: small, fast, and good enough to choose cases.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// A source of its own for each purpose, so that a change in one place does not change all others.
    pub(super) fn fork(seed: u64, purpose: &str) -> Random {
        Random(xxhash_rust::xxh3::xxh3_64_with_seed(purpose.as_bytes(), seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
