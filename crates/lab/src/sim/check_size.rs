//! Whether a run of a site was large enough to prove anything.

use std::collections::BTreeMap;

use nephila_core::time::Mono;

use super::Promise;
use super::driver::Broken;

/// What it has at least: agents, hosts, URLs to crawl, seconds and faults that took effect.
const LEAST: [(&str, u64); 5] = [
    ("agents", 5),
    ("hosts", 50),
    ("URLs to crawl", 2_000),
    ("seconds", 3_600),
    ("faults that took effect", 20),
];

/// A run of so many agents, hosts and URLs came to its end now.
pub(super) fn of_site(
    (agents, hosts, urls): (usize, usize, usize),
    now: Mono,
    faults: &BTreeMap<String, u64>,
) -> Result<(), Broken> {
    let is = [agents as u64, hosts as u64, urls as u64, now.0 / 1_000_000, faults.values().sum()];
    match LEAST.iter().zip(is).find(|((_, least), is)| is < least) {
        Some(((what, least), is)) => {
            Err((Promise::LargeEnough, format!("there were {is} {what}, and at least {least} are wanted")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_small_is_said() {
        let check = |size, seconds: u64, faults: u64| {
            let faults = [("kill".to_owned(), faults), ("cut".to_owned(), 1)].into();
            of_site(size, Mono(seconds * 1_000_000), &faults).map_err(|(_, what)| what)
        };
        assert_eq!(check((5, 50, 2_000), 3_600, 19), Ok(()));
        for (size, seconds, faults, word) in [
            ((4, 50, 2_000), 3_600, 19, "4 agents"),
            ((5, 49, 2_000), 3_600, 19, "49 hosts"),
            ((5, 50, 1_999), 3_600, 19, "1999 URLs"),
            ((5, 50, 2_000), 3_599, 19, "3599 seconds"),
            ((5, 50, 2_000), 3_600, 18, "19 faults"),
        ] {
            let said = check(size, seconds, faults).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
    }
}
