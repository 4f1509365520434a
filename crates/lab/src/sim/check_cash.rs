//! For crawls that go by cash: none is lost and none comes from nowhere. What all records on the disk have made is with URLs that
//! wait, kept by those that are done, or said to be left over.

use std::collections::BTreeMap;

use nephila_core::cash::minted;
use nephila_core::record::Record;
use nephila_store::{EmbeddedStore, ErrorKind, OwnStore, Store};

use super::random::Random;

pub(super) struct Cash {
    /// When to count: apart from all else that is left to chance, so that runs are as they are without.
    random: Random,
    /// What each record has made, by its place in the journal.
    made: BTreeMap<u64, u64>,
    /// How often it was counted.
    pub(super) counted: u64,
}

impl Cash {
    pub(super) fn new(seed: u64) -> Cash {
        Cash { random: Random::fork(seed, "cash"), made: BTreeMap::new(), counted: 0 }
    }

    /// Whether it is to be counted now.
    pub(super) fn is_due(&mut self) -> bool {
        self.random.percent(5)
    }

    /// A record is durable.
    pub(super) fn written(&mut self, place: u64, record: &Record) {
        self.made.insert(place, minted(record));
    }

    /// A new process has found a journal that ends here, without what a power cut took and with what nobody was told of.
    pub(super) fn reopened(&mut self, store: &mut EmbeddedStore, end: u64) -> Result<(), String> {
        let cannot = |error: nephila_store::Error| format!("the journal cannot be read: {error}");
        self.made.retain(|place, _| *place < end);
        let mut next = self.made.last_key_value().map(|(place, _)| *place).or((end > 0).then_some(0));
        while let Some(from) = next {
            let (records, behind) = store.kept_records(from, end - 1).map_err(cannot)?;
            for (place, record) in records {
                self.made.entry(place).or_insert_with(|| minted(&record));
            }
            next = behind;
        }
        Ok(())
    }

    /// What all records have made.
    pub(super) fn made(&self) -> i128 {
        self.made.values().copied().map(i128::from).sum()
    }

    /// Counts all of it. Everything durable must be folded, and decided.
    pub(super) fn count(&mut self, store: &mut EmbeddedStore) -> Result<(), String> {
        let cash = match store.cash() {
            Ok(cash) => cash,
            Err(error) if error.kind() == ErrorKind::Format => return Err(error.to_string()),
            // A disk that fails ends the process soon.
            Err(_) => return Ok(()),
        };
        let made = self.made();
        self.counted += 1;
        if cash.sum() != made {
            return Err(format!("{made} units of cash were made, and there is {cash:?}, {}", cash.sum()));
        }
        match store.stored().undecided {
            0 => Ok(()),
            left => Err(format!("{left} URLs are not decided")),
        }
    }
}
