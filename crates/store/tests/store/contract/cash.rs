//! What stores promise that go by cash, one promise at a time.

use nephila_core::agent::Due;
use nephila_core::cash::{GRANT, SEED, minted};
use nephila_core::record::{Found, How, Record, Settled};
use nephila_store::{Store, StoreLimits};

use super::Harness;
use super::promises::{a, decided, done, names, page, take, with_and_without_saving};
use crate::samples::*;

/// A page that was answered, had so much, and links to these pages of `a.example`.
fn linking(from: &str, spent: u64, to: &[&str]) -> Record {
    let links = to.iter().map(|name| found(&page(name), 1)).collect();
    Record::Settled(Settled { found: links, spent: Some(spent), ..settled(from, done()) })
}

fn cash_of<H: Harness>(harness: &mut H, name: &str) -> Option<u64> {
    harness.store().look_up(&url(&page(name))).unwrap().and_then(|known| known.cash)
}

/// The end of the attempt at a URL that was handed over.
fn answered(due: &Due, links: Vec<Found>) -> Record {
    let settled = settled(due.url.as_str(), done());
    Record::Settled(Settled { found: links, spent: due.cash, ..settled })
}

pub(crate) fn what_was_given_most_comes_first<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        decided(harness, &linking(&page("p"), 0, &["2", "3", "4"]));
        decided(harness, &linking("http://b.example/", 3 * GRANT, &["1"]));
        save(harness);
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        let taken = take(harness, 9, 0);
        assert_eq!(names(&taken)[0], "1");
        let cash: Vec<u64> = taken.due.iter().filter_map(|due| due.cash).collect();
        assert_eq!((cash[0], cash[1..].iter().sum()), (4 * GRANT, GRANT));
    });
}

pub(crate) fn a_url_that_waits_moves_up_when_it_is_given_more<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        decided(harness, &linking(&page("p"), 0, &["1", "2", "3"]));
        save(harness);
        for spent in [GRANT, 0, 7] {
            decided(harness, &linking(&page("q"), spent, &["3"]));
        }
        decided(harness, &linking(&page("q"), 0, &["2"]));
        assert_eq!(harness.store().stored().known, 5);
        assert_eq!(names(&take(harness, 2, 0)), ["3", "2"]);
        save(harness);
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        // Those that were taken come back.
        let again = take(harness, 9, 0);
        assert_eq!((again.due.len(), again.left), (3, 0));
        assert_eq!(cash_of(harness, "3"), Some(4 * GRANT + 7 + GRANT / 3));
    });
}

pub(crate) fn what_is_done_keeps_what_it_is_given<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        decided(harness, &linking(&page("p"), 5, &["1"]));
        let due = take(harness, 1, 0).due.remove(0);
        // While it is under way it is given more.
        decided(harness, &linking(&page("q"), 2, &["1"]));
        save(harness);
        decided(harness, &answered(&due, vec![found(&page("2"), 2)]));
        assert_eq!(cash_of(harness, "1"), Some(GRANT + 2));
        decided(harness, &linking(&page("r"), 3, &["1"]));
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        assert_eq!(
            (cash_of(harness, "1"), cash_of(harness, "2")),
            (Some(2 * GRANT + 5), Some(2 * GRANT + 5))
        );
        assert_eq!(names(&take(harness, 9, 0)), ["2"]);
    });
}

pub(crate) fn what_a_page_spends_is_given_to_the_last_unit<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        let mut made = 0;
        let mut record = seeds(["http://a.example/", "http://b.example/"]);
        for _ in 0..30 {
            made += minted(&record);
            decided(harness, &record);
            let Some(due) = take(harness, 1, 0).due.pop() else { break };
            let links = ["1", "2", "3", "4", "5", "6", "7"].iter().take(due.url.path().len() % 6);
            let mut links: Vec<Found> = links.map(|name| found(&page(name), 1)).collect();
            links.extend((0..seed % 3).map(|_| found("http://b.example/x", 1)));
            record = answered(&due, links);
        }
        save(harness);
        harness.restart(NO_LIMITS, &[]);
        let cash = harness.cash().unwrap();
        assert_eq!(cash.sum(), i128::from(made));
        assert_eq!(cash.kept_out, 0);
    });
}

pub(crate) fn a_url_that_was_found_nearer_is_as_near<H: Harness>(seed: u64) {
    let mut harness = H::new(seed, NO_LIMITS);
    for (depth, how) in [(9, How::Link), (3, How::Sitemap), (5, How::Listed)] {
        let link = Found { how, ..found(&page("1"), depth) };
        let from = Settled { found: vec![link], spent: Some(0), ..settled(&page("p"), done()) };
        harness.tell(&Record::Settled(from));
    }
    harness.store().decide().unwrap();
    let due = take(&mut harness, 9, 0).due.remove(0);
    assert_eq!((due.depth, due.how, due.cash), (3, How::Sitemap, Some(3 * GRANT)));
}

pub(crate) fn limits_keep_cash_out_and_give_it_back<H: Harness>(seed: u64) {
    let limits = StoreLimits { max_depth: 0, ..NO_LIMITS };
    with_and_without_saving(seed, limits, |harness: &mut H, save| {
        decided(harness, &linking(&page("p"), 11, &["1"]));
        assert_eq!(cash_of(harness, "1"), None);
        let cash = harness.cash().unwrap();
        assert_eq!((cash.kept_out, cash.sum()), (GRANT + 11, i128::from(GRANT) + 11));
        save(harness);
        for (limits, kept_out) in [(limits, GRANT + 11), (NO_LIMITS, 0)] {
            harness.restart(limits, &[]);
            harness.store().decide().unwrap();
            let cash = harness.cash().unwrap();
            assert_eq!((cash.kept_out, cash.sum()), (kept_out, i128::from(GRANT) + 11));
        }
        assert_eq!(cash_of(harness, "1"), Some(GRANT + 11));
        assert_eq!(names(&take(harness, 9, 0)), ["1"]);
    });
}

pub(crate) fn seeds_are_given_theirs_once<H: Harness>(seed: u64) {
    with_and_without_saving(seed, NO_LIMITS, |harness: &mut H, save| {
        let mut record = seeds([page("1"), page("2")]);
        decided(harness, &record);
        save(harness);
        harness.restart(NO_LIMITS, &[]);
        harness.store().decide().unwrap();
        harness.store().prune(&mut record);
        assert_eq!(record.found(), []);
        let mut record = seeds([page("2"), page("3")]);
        harness.store().prune(&mut record);
        decided(harness, &record);
        assert_eq!(["1", "2", "3"].map(|name| cash_of(harness, name)), [Some(SEED); 3]);
        assert_eq!(harness.store().host(&a()).unwrap().unwrap().known, 3);
    });
}
