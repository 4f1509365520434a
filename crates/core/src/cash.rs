//! Cash: how important a page is, as far as a crawler can know while it crawls.
//!
//! A page that was fetched passes on all that it was given, and a grant of its own, to the pages that it links to; a page that
//! waits adds up what it is given, and the one that was given most is fetched first. That is OPIC (Abiteboul, Preda and
//! Cobena), with two changes, each of which `nephila lab quality` shows the worth of:
//! - **The grant.** Without it the cash of the seeds is all there is, and thins out until what is far from them gets nothing.
//! - **Links to other hosts weigh more** than those inside a host, most of which are on every page of it and say little.
//!
//! Cash is counted in whole units and none is lost: what cannot be shared evenly is said too.

/// What every page has when it is fetched, beyond what it was given.
pub const GRANT: u64 = 1 << 20;
/// What a seed was given, by whoever named it.
pub const SEED: u64 = GRANT << 6;
/// How much more a link to another host weighs than one within the host.
pub const FAR_WEIGHT: u64 = 32;
/// Amounts of so many bits, and all above, are the best class, which is 0.
const BEST: u32 = 50;

/// What the links of a page get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Each link within its host.
    pub near: u64,
    /// Each link to another host.
    pub far: u64,
    /// What is left, and goes to nobody.
    pub rest: u64,
}

/// Shares the cash of a page that was fetched, grant included, among its links.
pub fn share(cash: u64, near: u64, far: u64) -> Shares {
    let weights = near.saturating_add(far.saturating_mul(FAR_WEIGHT));
    let each = cash.checked_div(weights).unwrap_or(0);
    let (near_share, far_share) = (each, each * FAR_WEIGHT);
    Shares { near: near_share, far: far_share, rest: cash - near_share * near - far_share * far }
}

/// The class that a page with so much waits in: the more, the lower. One class is twice the one below.
pub fn class_of(cash: u64) -> u8 {
    BEST.saturating_sub(cash.max(1).ilog2()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_page_has_is_shared_or_said_to_be_left() {
        for (cash, near, far) in
            [(0, 3, 4), (1, 0, 1), (100, 0, 0), (GRANT, 30, 2), (u64::MAX, 7, 9), (999, 1_000, 0)]
        {
            let shares = share(cash, near, far);
            assert_eq!(shares.near * near + shares.far * far + shares.rest, cash);
            assert!(shares.rest < (near + far * FAR_WEIGHT).max(1) || near + far == 0);
        }
        assert_eq!(share(663, 2, 2), Shares { near: 10, far: 320, rest: 3 });
    }

    #[test]
    fn more_cash_is_never_in_a_worse_class() {
        let amounts =
            (0..2_000).chain((11..64).flat_map(|octave| [(1 << octave) - 1, 1 << octave, 5 << (octave - 2)]));
        let classes: Vec<u8> = amounts.map(class_of).collect();
        assert!(classes.is_sorted_by(|better, worse| better >= worse), "{classes:?}");
        assert_eq!((class_of(0), class_of(1), class_of(u64::MAX)), (50, 50, 0));
        assert_eq!(class_of(GRANT) - class_of(2 * GRANT), 1);
    }
}
