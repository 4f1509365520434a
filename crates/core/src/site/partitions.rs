//! Sets of partitions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::assign::PARTITIONS;

const WORDS: usize = PARTITIONS as usize / 64;

/// A set of partitions.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitions {
    words: Vec<u64>,
}

impl Default for Partitions {
    fn default() -> Partitions {
        Partitions { words: vec![0; WORDS] }
    }
}

impl fmt::Debug for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} partitions", self.len())
    }
}

impl Partitions {
    /// All of them.
    pub fn all() -> Partitions {
        Partitions { words: vec![u64::MAX; WORDS] }
    }

    /// Whether one is in it.
    pub fn contains(&self, partition: u16) -> bool {
        let word = self.words.get(usize::from(partition / 64)).copied().unwrap_or(0);
        word >> (partition % 64) & 1 == 1
    }

    /// Puts one in; says whether it was not.
    pub fn insert(&mut self, partition: u16) -> bool {
        let Some(word) = self.words.get_mut(usize::from(partition / 64)) else { return false };
        let before = *word;
        *word |= 1 << (partition % 64);
        *word != before
    }

    /// Takes one out; says whether it was in it.
    pub fn remove(&mut self, partition: u16) -> bool {
        let Some(word) = self.words.get_mut(usize::from(partition / 64)) else { return false };
        let before = *word;
        *word &= !(1 << (partition % 64));
        *word != before
    }

    /// Takes out all that are in another set.
    pub fn subtract(&mut self, other: &Partitions) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    /// Puts in all that are in another set.
    pub fn add(&mut self, other: &Partitions) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let bits = |(at, word): (usize, &u64)| {
            let (at, mut word) = (at as u16, *word);
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros() as u16;
                // The last of those that are set.
                word &= word.checked_sub(1)?;
                Some(at * 64 + bit)
            })
        };
        self.words.iter().enumerate().flat_map(bits)
    }
}

impl FromIterator<u16> for Partitions {
    fn from_iter<I: IntoIterator<Item = u16>>(partitions: I) -> Partitions {
        let mut set = Partitions::default();
        for partition in partitions {
            set.insert(partition);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let some = [0, 63, 64, 8_191, PARTITIONS - 1];
        let mut set: Partitions = some.into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), some);
        assert_eq!(set.len(), some.len());
        assert!(set.contains(64) && !set.contains(65));
        assert!(!set.insert(64) && set.insert(65));
        assert!(set.remove(64) && !set.remove(64) && !set.contains(64));
        let mut both = set.clone();
        both.add(&[1, 63].into_iter().collect());
        both.subtract(&[0, 65].into_iter().collect());
        assert_eq!(both.iter().collect::<Vec<_>>(), [1, 63, 8_191, PARTITIONS - 1]);
        assert!(Partitions::default().is_empty());
        assert_eq!(Partitions::all().len(), usize::from(PARTITIONS));
        assert!(!set.insert(PARTITIONS) && !set.contains(PARTITIONS));
    }
}
