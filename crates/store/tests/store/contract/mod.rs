//! What every store promises, as tests that are run on all of them.
//!
//! [`Harness`] is what a kind of store brings along; [`store_contract`] then makes a test of each promise
//! ([`promises`]), and lets random operations be answered by the store and by one that is obviously right ([`generated`],
//! [`memory`]).

mod cash;
mod embedded;
mod generated;
mod memory;
mod promises;
pub(crate) mod redis;

use nephila_core::agent::Admitted;
use nephila_core::record::Record;
use nephila_core::settings::UrlOrder;
use nephila_store::{Cash, OwnStore as _, Store, StoreLimits};

use self::embedded::{OnRealDisk, OnSimDisk};
use self::memory::MemoryStore;
use self::redis::{OnRedis, OnSimRedis};
use crate::samples::{Told, add};

/// A kind of store and its surroundings.
pub(crate) trait Harness {
    /// The store.
    type Store: Store;

    /// Which URLs of a host come first.
    const ORDER: UrlOrder = UrlOrder::BreadthFirst;

    /// An empty one. What is left to chance depends on the seed.
    fn new(seed: u64, limits: StoreLimits) -> Self;

    fn store(&mut self) -> &mut Self::Store;

    /// Makes a record durable, and says its place. The store is told next.
    fn write(&mut self, record: &Record) -> u64;

    /// Has everything outlive the process, what is kept with hosts too.
    fn save(&mut self);

    /// Ends the process without notice and opens what it has left. The archive has lost these files since.
    fn restart(&mut self, limits: StoreLimits, lost_files: &[u32]);

    /// Where all cash is, if the store can say it.
    fn cash(&mut self) -> Option<Cash> {
        None
    }

    /// Writes a record and tells the store, as an agent would.
    fn tell(&mut self, record: &Record) -> (u64, Admitted) {
        let place = self.write(record);
        (place, fold(self.store(), place, record))
    }
}

/// Tells a store of a record that was written.
fn fold(store: &mut impl Store, place: u64, record: &Record) -> Admitted {
    let mut said = Admitted::default();
    if let Record::Settled(settled) = record {
        said = store.settle(place, settled).unwrap();
    }
    if !record.found().is_empty() {
        add(&mut said, store.admit(place, record, None).unwrap());
    }
    said
}

/// A reader whose archive has lost these files, and that forgives what can be forgiven.
fn reader(lost_files: &[u32]) -> Told {
    Told { lost_files: lost_files.to_vec(), looks_back: true, forgives: true, ..Told::default() }
}

/// The store that the others are compared with.
struct InMemory<const CASH: bool = false> {
    store: MemoryStore,
    place: u64,
}

/// The order of a harness that goes by cash, or does not.
const fn order(by_cash: bool) -> UrlOrder {
    if by_cash { UrlOrder::Cash } else { UrlOrder::BreadthFirst }
}

impl<const CASH: bool> Harness for InMemory<CASH> {
    type Store = MemoryStore;

    const ORDER: UrlOrder = order(CASH);

    fn new(_: u64, limits: StoreLimits) -> Self {
        InMemory { store: MemoryStore::new(limits, Self::ORDER), place: 0 }
    }

    fn cash(&mut self) -> Option<Cash> {
        self.store.cash().ok()
    }

    fn store(&mut self) -> &mut MemoryStore {
        &mut self.store
    }

    fn write(&mut self, record: &Record) -> u64 {
        self.place += 1;
        self.store.write(self.place, record);
        self.place
    }

    fn save(&mut self) {}

    fn restart(&mut self, limits: StoreLimits, lost_files: &[u32]) {
        self.store.restart(limits, &mut reader(lost_files));
    }
}

macro_rules! promises {
    ($of:ident, $harness:ty: $($promise:ident,)*) => {
        $(#[test]
        fn $promise() {
            for seed in 0..promises::SEEDS {
                $of::$promise::<$harness>(seed);
            }
        })*
    };
}

/// One test for each promise.
macro_rules! store_contract {
    ($name:ident, $harness:ty, $seeds:expr) => {
        mod $name {
            use super::*;

            store_contract!(@promises $harness:
                a_url_is_known_once,
                every_offer_is_answered_once,
                the_lowest_depth_comes_first_and_then_the_oldest,
                what_comes_back_comes_first,
                a_url_that_is_found_nearer_moves_up,
                what_is_deferred_comes_back_in_its_time,
                what_is_put_back_comes_first_and_what_is_settled_does_not,
                what_was_taken_at_the_end_is_due_again,
                a_url_that_nobody_offered_can_be_settled,
                limits_keep_out_and_higher_ones_admit,
                what_was_tried_stays_known_under_lower_limits,
                what_does_not_count_any_more_is_due_again,
                figures_are_right_when_all_is_decided,
                every_state_can_be_looked_up,
                a_url_comes_back_as_it_was_found,
                records_are_read_at_their_places,
                what_is_kept_with_hosts_is_there_again,
                a_round_meets_each_host_that_something_is_due_of,
                pruning_loses_nothing,
                what_was_sent_is_known_until_it_is_returned,
                what_another_has_done_or_tried_is_done_or_tried,
            );

            #[test]
            fn random_operations_are_answered_as_in_memory() {
                generated::operations::<$harness>($seeds);
            }

            #[test]
            fn random_rounds_are_those_in_memory() {
                generated::rounds::<$harness>($seeds);
            }
        }
    };
    (@promises $harness:ty: $($promise:ident,)*) => { promises!(promises, $harness: $($promise,)*); };
}

/// The same for stores that go by cash.
macro_rules! cash_contract {
    ($name:ident, $harness:ty, $seeds:expr) => {
        mod $name {
            use super::*;

            promises!(promises, $harness:
                a_url_is_known_once,
                every_offer_is_answered_once,
                what_is_deferred_comes_back_in_its_time,
                what_was_taken_at_the_end_is_due_again,
                a_url_that_nobody_offered_can_be_settled,
                what_was_tried_stays_known_under_lower_limits,
                figures_are_right_when_all_is_decided,
                records_are_read_at_their_places,
                what_is_kept_with_hosts_is_there_again,
                a_round_meets_each_host_that_something_is_due_of,
            );
            promises!(cash, $harness:
                what_was_given_most_comes_first,
                a_url_that_waits_moves_up_when_it_is_given_more,
                what_is_done_keeps_what_it_is_given,
                what_a_page_spends_is_given_to_the_last_unit,
                a_url_that_was_found_nearer_is_as_near,
                limits_keep_cash_out_and_give_it_back,
                seeds_are_given_theirs_once,
            );

            #[test]
            fn random_operations_are_answered_as_in_memory() {
                generated::operations::<$harness>($seeds);
            }
        }
    };
}

store_contract!(in_memory, InMemory, 10);
store_contract!(on_a_real_disk, OnRealDisk, 5);
store_contract!(on_a_disk_that_fails, OnSimDisk<false, false>, 20);
store_contract!(in_little_memory, OnSimDisk<true, false>, 60);
store_contract!(on_redis, OnRedis, 6);
store_contract!(on_simulated_redis, OnSimRedis, 20);
cash_contract!(by_cash_in_memory, InMemory<true>, 10);
cash_contract!(by_cash_on_a_disk_that_fails, OnSimDisk<false, true>, 40);
cash_contract!(by_cash_in_little_memory, OnSimDisk<true, true>, 120);
