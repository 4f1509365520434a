//! Cash: how important a page is, as far as a crawler can know while it crawls.
//!
//! A page that was fetched passes on all that it was given, and a grant of its own, to the pages that it links to; a page that
//! waits adds up what it is given, and the one that was given most is fetched first. That is OPIC (Abiteboul, Preda and
//! Cobena), with two changes, each of which `nephila lab quality` shows the worth of:
//! - **The grant.** Without it the cash of the seeds is all there is, and thins out until what is far from them gets nothing.
//! - **Links to other hosts weigh more** than those inside a host, most of which are on every page of it and say little.
//!
//! Cash is counted in whole units and none is lost: what cannot be shared evenly is said too.
//!
//! Everything about it follows from records: what is made ([`minted`]), what a page had and spends ([`Settled::spent`]), and who
//! gets how much ([`Gifts`]). So a journal that is read again leads to the same sums. A page shares among the links that are
//! followed; if there are none, what it had is left over.
//!
//! # Several agents, several sites
//! What a page gives to a URL that another agent has, or another site, has to be told there, and whatever is told may be lost,
//! late or told twice. So nobody tells what is to be added: a *giver* tells all that it has ever given to a URL ([`Total`]), who
//! has the URL remembers the highest that it heard from each giver, and only what is above that is new. Then it does not matter
//! how often something is told, in which order, or by way of whom; and a giver need not tell again before it has become much more
//! ([`crate::settings::Settings::tell_again`]). What was given and not told is held back, and not lost: all cash there is, is
//! with the URLs, or left over, or given by somebody and not heard of yet.
//!
//! A giver is an agent, for what its own records found of partitions that were not its own at the time; or a whole site, for what
//! its agents have found of the hosts of another one. What moves with a partition is what each URL has, and what was heard of it
//! from whom ([`Account`]).

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::record::{Record, Settled};
use crate::site::AgentId;
use crate::url::{Host, identify};

/// What every page has when it is fetched, beyond what it was given.
pub const GRANT: u64 = 1 << 20;
/// What a seed was given, by whoever named it.
pub const SEED: u64 = GRANT << 6;
/// How much more a link to another host weighs than one within the host.
pub const FAR_WEIGHT: u64 = 32;
/// Amounts of so many bits, and all above, are the best class, which is 0.
const BEST: u32 = 50;

/// What somebody has given to a URL in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// The agent, or what stands for a site: [`site_giver`].
    pub giver: AgentId,
    /// How much.
    pub units: u64,
}

/// What stands for all agents of a site.
pub fn site_giver(name: &str) -> AgentId {
    AgentId::from(xxh3_64(name.as_bytes()))
}

/// What moves with a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// What it has.
    pub units: u64,
    /// What it was heard to be given: all of that was added.
    pub heard: Vec<Total>,
}

/// How many classes better a URL must be before it is told again, if that is to be when it was given so many times as much.
pub fn classes_of(times: u32) -> u8 {
    times.max(2).next_power_of_two().ilog2() as u8
}

/// What goes to another site: of each amount only its class, so that it takes next to no room. Never more than there is.
pub fn rounded(units: u64) -> u64 {
    units.checked_ilog2().map_or(0, |bits| 1 << bits)
}

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

/// What a record adds to all the cash there is.
pub fn minted(record: &Record) -> u64 {
    match record {
        Record::Seeds(found) => SEED.saturating_mul(found.len() as u64),
        Record::Settled(Settled { spent: Some(_), .. }) => GRANT,
        // As a page that links to its sitemaps.
        Record::Robots(robots) if !robots.found.is_empty() => GRANT,
        _ => 0,
    }
}

/// What of a page's cash goes to nobody: all, if it has no links.
pub fn left_over(settled: &Settled) -> u64 {
    let cash = settled.spent.map_or(0, |spent| spent.saturating_add(GRANT));
    if settled.found.is_empty() { cash } else { 0 }
}

/// What a record gives to the URLs that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gifts {
    /// The host of the page that the URLs were found on.
    page: Option<Host>,
    near: u64,
    far: u64,
    /// What cannot be shared evenly: the first URL gets it too.
    odd: u64,
}

impl Gifts {
    /// What a record gives to URLs that it found, of these hosts.
    pub fn of<'a>(record: &Record, hosts: impl Iterator<Item = &'a Host> + Clone) -> Gifts {
        let (page, spent) = match record {
            Record::Settled(settled) => (Some(&settled.url), settled.spent.unwrap_or_default()),
            Record::Robots(robots) => (Some(&robots.url), 0),
            _ => (None, 0),
        };
        let page = page.and_then(|url| identify(url)).map(|(host, _)| host);
        let near = hosts.clone().filter(|host| Some(*host) == page.as_ref()).count() as u64;
        let far = hosts.count() as u64 - near;
        let cash = minted(record).saturating_add(spent);
        let Shares { near: near_share, far: far_share, rest } = match record {
            Record::Seeds(_) => Shares { near: 0, far: SEED, rest: cash.saturating_sub(SEED * far) },
            _ => share(cash, near, far),
        };
        Gifts { page, near: near_share, far: far_share, odd: rest }
    }

    /// What a URL of a host gets, that may be the first of all.
    pub fn to(&self, host: &Host, is_first: bool) -> u64 {
        let share = if self.page.as_ref() == Some(host) { self.near } else { self.far };
        share + if is_first { self.odd } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::{Found, How, LeftOut, Outcome, PageFlags};
    use crate::time::Wall;

    fn found(urls: &[&str]) -> Vec<Found> {
        let found = |url: &&str| Found { url: (*url).to_owned(), depth: 1, how: How::Link, redirects: 0 };
        urls.iter().map(found).collect()
    }

    fn settled(spent: Option<u64>, urls: &[&str]) -> Record {
        Record::Settled(Settled {
            url: "http://a.example/".into(),
            depth: 0,
            how: How::Link,
            found_in: 0,
            attempts: 1,
            asked: true,
            at: Wall(0),
            took: Duration::ZERO,
            bytes: 0,
            outcome: Outcome::Answered { status: 200 },
            capture: None,
            flags: PageFlags::default(),
            found: found(urls),
            left_out: LeftOut::default(),
            spent,
        })
    }

    #[test]
    fn what_a_record_makes_and_spends_is_given_to_the_last_unit() {
        let urls = ["http://a.example/1", "http://b.example/1", "http://a.example/2", "http://c.example/"];
        for record in [
            Record::Seeds(found(&urls)),
            Record::Seeds(Vec::new()),
            settled(Some(12_345), &urls),
            settled(Some(0), &[]),
            settled(None, &urls),
            Record::RunStarted { at: Wall(0) },
        ] {
            let hosts: Vec<Host> =
                record.found().iter().filter_map(|found| Some(identify(&found.url)?.0)).collect();
            let gifts = Gifts::of(&record, hosts.iter());
            let given: u64 = hosts.iter().enumerate().map(|(at, host)| gifts.to(host, at == 0)).sum();
            let spent = match &record {
                Record::Settled(settled) => settled.spent.unwrap_or_default(),
                _ => 0,
            };
            let had = if hosts.is_empty() { 0 } else { minted(&record) + spent };
            assert_eq!(given, had, "{record:?}");
        }
        let hosts = urls.map(|url| identify(url).unwrap().0);
        let gifts = Gifts::of(&settled(Some(0), &urls), hosts.iter());
        assert_eq!(gifts.to(&hosts[1], false), FAR_WEIGHT * gifts.to(&hosts[0], false));
    }

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
