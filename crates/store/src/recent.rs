//! The URLs that were offered lately, so that what every page of a site links to is not offered again and again.
//!
//! A table that grows to a fixed size and forgets: where it is full, the oldest of a few goes. It is asked by text; another
//! spelling of a URL is another text here, and for the sieve to know. What it must not do is claim to know what was never
//! offered: that URL would be lost. So texts are told apart by 64 bits of a hash whose key nobody outside knows, and only
//! [`WAYS`] of them are compared: the probability that this ever happens is 10^-4 in a crawl of a hundred million pages.

use hashbrown::{HashMap, HashSet};
use nephila_core::record::{How, Record};

/// URLs of a set: as many as one line of the processor's cache holds.
const WAYS: usize = 7;
/// Sets of a table that is new,
const SETS_MIN: usize = 1 << 8;
/// and at most: 8 MB.
const SETS_MAX: usize = 1 << 17;
/// URLs further from their seeds are not noted.
const DEPTH_MAX: u16 = 254;

/// What a text is told by. Its low bits say in which set it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Print(u64);

/// The latest first.
#[derive(Clone, Copy, Default)]
struct Set {
    prints: [u64; WAYS],
    /// The depth and one, or 0 if there is no URL.
    depths: [u8; WAYS + 1],
}

impl Set {
    fn find(&self, print: Print) -> Option<usize> {
        (0..WAYS).find(|at| self.prints[*at] == print.0 && self.depths[*at] > 0)
    }

    fn push(&mut self, print: u64, depth: u8) {
        self.prints.copy_within(..WAYS - 1, 1);
        self.depths.copy_within(..WAYS - 1, 1);
        (self.prints[0], self.depths[0]) = (print, depth);
    }
}

pub(crate) struct Recent {
    key: u64,
    sets: Vec<Set>,
    /// How many URLs were added.
    added: usize,
}

impl Recent {
    /// An empty one. Nobody outside may know the key.
    pub(crate) fn new(key: u64) -> Recent {
        Recent { key, sets: vec![Set::default(); SETS_MIN], added: 0 }
    }

    /// Drops from what a record found what was offered lately, and what it names twice.
    pub(crate) fn prune(&self, record: &mut Record) {
        // What a seed redirects to widens the scope when the record is replayed, known or not. The seeds themselves are
        // given to the scope at every start.
        let keeps_seeds = !matches!(record, Record::Seeds(_));
        let found = match record {
            Record::Seeds(found) => found,
            Record::Settled(settled) => &mut settled.found,
            Record::Robots(robots) => &mut robots.found,
            _ => return,
        };
        let mut depths: HashMap<Print, u32> = HashMap::new();
        found.retain(|found| {
            let print = self.print(&found.url);
            if self.knows(print, found.depth) {
                return keeps_seeds && found.how == How::Seed;
            }
            let depth = u32::from(found.depth);
            let nearest = depths.entry(print).or_insert(u32::MAX);
            let is_nearer = depth < *nearest;
            *nearest = depth.min(*nearest);
            is_nearer
        });
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Recent::new(self.key);
    }

    /// What this text is told by here.
    pub(crate) fn print(&self, text: &str) -> Print {
        Print(xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), self.key))
    }

    /// Whether a URL was offered lately at this depth or a lower one.
    pub(crate) fn knows(&self, print: Print, depth: u16) -> bool {
        let set = &self.sets[place(print.0, self.sets.len())];
        set.find(print).is_some_and(|at| u16::from(set.depths[at]) <= depth.saturating_add(1))
    }

    /// A URL is known.
    pub(crate) fn add(&mut self, print: Print, depth: u16) {
        if depth > DEPTH_MAX {
            return;
        }
        // Half full, few sets are.
        if self.added >= self.sets.len() * WAYS / 2 && self.sets.len() < SETS_MAX {
            self.grow();
        }
        let depth = depth as u8 + 1;
        let at = place(print.0, self.sets.len());
        let set = &mut self.sets[at];
        match set.find(print) {
            Some(at) => set.depths[at] = depth.min(set.depths[at]),
            None => {
                set.push(print.0, depth);
                self.added += 1;
            }
        }
    }

    /// Doubles the sets: each becomes two.
    fn grow(&mut self) {
        let sets = 2 * self.sets.len();
        let old = std::mem::replace(&mut self.sets, vec![Set::default(); sets]);
        for set in old {
            for at in (0..WAYS).rev().filter(|at| set.depths[*at] > 0) {
                self.sets[place(set.prints[at], sets)].push(set.prints[at], set.depths[at]);
            }
        }
    }
}

/// Drops what a page names twice in the same words.
pub(crate) fn drop_repeated(record: &mut Record) {
    let found = match record {
        Record::Seeds(found) => found,
        Record::Settled(settled) => &mut settled.found,
        Record::Robots(robots) => &mut robots.found,
        _ => return,
    };
    let mut met: HashSet<String> = HashSet::with_capacity(found.len());
    found.retain(|found| met.insert(found.url.clone()));
}

/// In which of so many sets a print is; their number is a power of two.
fn place(print: u64, sets: usize) -> usize {
    print as usize & (sets - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_what_it_was_told_and_nothing_else() {
        let mut recent = Recent::new(7);
        let print = |recent: &Recent, number: usize| recent.print(&format!("http://a.example/{number}"));
        for number in 0..100_000 {
            recent.add(print(&recent, number), (number % 300) as u16);
        }
        let mut forgotten = 0;
        for number in 0..200_000 {
            let depth = (number % 300) as u16;
            let told = number < 100_000 && depth <= DEPTH_MAX;
            let print = print(&recent, number);
            let knows = recent.knows(print, depth);
            assert!(told || !knows, "{number}");
            forgotten += usize::from(told && !knows);
            assert_eq!(recent.knows(print, u16::MAX), knows, "{number} from further away");
            assert!(depth == 0 || !recent.knows(print, depth - 1), "{number} from nearer");
        }
        assert!(forgotten < 10_000, "{forgotten}");
        assert!((100_000 / WAYS..SETS_MAX).contains(&recent.sets.len()), "{}", recent.sets.len());
    }

    #[test]
    fn the_lowest_depth_counts() {
        let mut recent = Recent::new(7);
        let print = recent.print("http://a.example/");
        for (told, known) in [(5, 5), (7, 5), (2, 2), (0, 0)] {
            recent.add(print, told);
            assert!(recent.knows(print, known), "{told}");
            assert!(known == 0 || !recent.knows(print, known - 1), "{told}");
        }
    }

    #[test]
    fn the_oldest_of_a_set_goes() {
        let mut recent = Recent::new(7);
        let prints: Vec<Print> = (0..=WAYS as u64).map(|number| Print(number << 32 | 77)).collect();
        prints.iter().for_each(|print| recent.add(*print, 1));
        let known: Vec<bool> = prints.iter().map(|print| recent.knows(*print, 1)).collect();
        assert_eq!((known[0], known[1..].iter().all(|known| *known)), (false, true));
    }
}
