//! A block of the sieve as it lies on disk: for each host its key and how many URLs follow, then their fingerprints and values,
//! all in order.
//!
//! Blocks are read, merged and cut as they lie: what is between two changes is copied and never decoded, so that a merge costs
//! little more than its changes and its bytes.

use super::key::{HostKey, Key};
use super::op::Value;

/// Bytes of an entry behind its host.
const ENTRY_BYTES: usize = 20;
const PRINT_BYTES: usize = 12;
/// Bytes before the entries of a host: its key and how many follow.
const RUN_BYTES: usize = 12;

type Entry = [u8; ENTRY_BYTES];

/// The URLs of a host.
#[derive(Clone, Copy)]
struct Run<'a> {
    host: HostKey,
    entries: &'a [Entry],
}

/// The hosts of a block; ends at the first that makes no sense.
fn runs(mut bytes: &[u8]) -> impl Iterator<Item = Run<'_>> {
    std::iter::from_fn(move || {
        let (run, rest) = first_run(bytes)?;
        bytes = rest;
        Some(run)
    })
}

fn first_run(bytes: &[u8]) -> Option<(Run<'_>, &[u8])> {
    let (host, rest) = bytes.split_first_chunk::<8>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let length = (u32::from_le_bytes(*count) as usize).checked_mul(ENTRY_BYTES)?;
    let (entries, rest) = rest.split_at_checked(length)?;
    Some((Run { host: HostKey::from_bytes(*host), entries: entries.as_chunks().0 }, rest))
}

fn print_of(entry: &Entry) -> &[u8] {
    &entry[..PRINT_BYTES]
}

fn value_of(entry: &Entry) -> Option<Value> {
    entry.last_chunk().and_then(|value| Value::decode(*value))
}

fn key_of(host: HostKey, entry: &Entry) -> Key {
    let mut key = [0; Key::BYTES];
    key[..8].copy_from_slice(&host.to_bytes());
    key[8..].copy_from_slice(print_of(entry));
    Key::from_bytes(key)
}

/// Whether these are the bytes of a block. Everything else here may be asked only of such.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    let mut length = 0;
    let sound = runs(bytes).all(|run| {
        length += RUN_BYTES + size_of_val(run.entries);
        run.entries.iter().all(|entry| value_of(entry).is_some())
    });
    sound && length == bytes.len()
}

/// Its URLs, in order.
pub(super) fn entries(bytes: &[u8]) -> impl Iterator<Item = (Key, Value)> {
    runs(bytes).flat_map(|run| {
        run.entries.iter().filter_map(move |entry| Some((key_of(run.host, entry), value_of(entry)?)))
    })
}

/// The fingerprints of its URLs, in order.
pub(super) fn prints(bytes: &[u8]) -> impl Iterator<Item = &[u8; PRINT_BYTES]> {
    runs(bytes).flat_map(|run| run.entries).filter_map(|entry| entry.first_chunk())
}

/// What it says of a URL.
pub(super) fn get(bytes: &[u8], key: &Key) -> Option<Value> {
    let run = runs(bytes).find(|run| run.host >= key.host()).filter(|run| run.host == key.host())?;
    let at = run.entries.binary_search_by(|entry| print_of(entry).cmp(&key.fingerprint())).ok()?;
    value_of(&run.entries[at])
}

/// Goes through a block once, from change to change.
pub(super) struct Cursor<'a> {
    run: Option<Run<'a>>,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        let mut cursor = Cursor { run: None, rest: bytes };
        cursor.next_run();
        cursor
    }

    fn next_run(&mut self) {
        (self.run, self.rest) = match first_run(self.rest) {
            Some((run, rest)) => (Some(run), rest),
            None => (None, &self.rest[..0]),
        };
    }

    /// Copies everything before a URL, passes that URL by, and says what is known of it. Keys must ascend from call to call.
    pub(super) fn copy_before(&mut self, key: &Key, out: &mut Building) -> Option<Value> {
        let host = key.host();
        while let Some(run) = self.run.filter(|run| run.host < host) {
            out.extend(run.host, run.entries);
            self.next_run();
        }
        let run = self.run.as_mut().filter(|run| run.host == host)?;
        let print = key.fingerprint();
        let (before, behind) = run.entries.split_at(position(run.entries, &print));
        out.extend(host, before);
        run.entries = behind;
        let (entry, behind) = behind.split_first().filter(|(entry, _)| print_of(entry) == print)?;
        run.entries = behind;
        value_of(entry)
    }

    /// Copies what is left.
    pub(super) fn copy_rest(mut self, out: &mut Building) {
        while let Some(run) = self.run {
            out.extend(run.host, run.entries);
            self.next_run();
        }
    }
}

/// Where the first entry is that is not before `print`: most often close by, so that is looked first.
fn position(entries: &[Entry], print: &[u8; PRINT_BYTES]) -> usize {
    let is_before = |entry: &Entry| print_of(entry) < &print[..];
    let mut reach = 1;
    while entries.get(reach - 1).is_some_and(is_before) {
        reach *= 2;
    }
    let from = reach / 2;
    let to = reach.min(entries.len());
    from + entries[from..to].partition_point(is_before)
}

/// A block being written.
#[derive(Default)]
pub(super) struct Building {
    bytes: Vec<u8>,
    urls: usize,
    /// The last host, and where its head is.
    run: Option<(HostKey, usize)>,
}

impl Building {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.urls = 0;
        self.run = None;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn urls(&self) -> usize {
        self.urls
    }

    fn extend(&mut self, host: HostKey, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        self.urls += entries.len();
        let (head, before) = match self.run {
            Some((last, head)) if last == host => (head, (self.bytes.len() - head - RUN_BYTES) / ENTRY_BYTES),
            _ => {
                let head = self.bytes.len();
                self.bytes.extend_from_slice(&host.to_bytes());
                self.bytes.extend_from_slice(&[0; 4]);
                self.run = Some((host, head));
                (head, 0)
            }
        };
        let count = (before + entries.len()) as u32;
        self.bytes[head + 8..head + RUN_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes.extend_from_slice(entries.as_flattened());
    }

    /// Adds a URL behind all others.
    pub(super) fn push(&mut self, key: &Key, value: Value) {
        let mut entry = [0; ENTRY_BYTES];
        entry[..PRINT_BYTES].copy_from_slice(&key.fingerprint());
        entry[PRINT_BYTES..].copy_from_slice(&value.encode());
        self.extend(key.host(), &[entry]);
    }

    /// Cuts it into blocks of so many URLs: each with its first key.
    pub(super) fn cut(&self, urls: usize) -> Vec<(Key, Building)> {
        let mut cut: Vec<(Key, Building)> = Vec::with_capacity(self.urls.div_ceil(urls));
        for run in runs(&self.bytes) {
            let mut entries = run.entries;
            while let Some(first) = entries.first() {
                if cut.last().is_none_or(|(_, last)| last.urls == urls) {
                    cut.push((key_of(run.host, first), Building::default()));
                }
                let Some((_, last)) = cut.last_mut() else { break };
                let (now, later) = entries.split_at(entries.len().min(urls - last.urls));
                last.extend(run.host, now);
                entries = later;
            }
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nephila_core::url::Fingerprint;
    use proptest::prelude::*;

    use super::super::key::Place;
    use super::super::op::Stage;
    use super::*;

    fn key(host: u8, print: u16) -> Key {
        let mut bytes = [7; 12];
        bytes[..2].copy_from_slice(&print.to_be_bytes());
        Key::new(HostKey::from_bytes([host; 8]), Fingerprint(bytes))
    }

    fn value(number: u64) -> Value {
        Value { stage: Stage::Queued { class: number as u8 }, place: Place::new(number) }
    }

    fn block(known: &BTreeMap<Key, Value>) -> Building {
        let mut building = Building::default();
        known.iter().for_each(|(key, value)| building.push(key, *value));
        building
    }

    proptest! {
        #[test]
        fn merging_is_what_a_map_does(
            known in prop::collection::btree_map((0_u8..6, 0_u16..400), 0_u64..9, 0..300),
            changes in prop::collection::btree_map((0_u8..7, 0_u16..400), prop::option::of(10_u64..19), 0..80),
            size in 1_usize..50,
        ) {
            let mut map: BTreeMap<Key, Value> =
                known.into_iter().map(|((host, print), number)| (key(host, print), value(number))).collect();
            let old = block(&map);
            prop_assert!(is_whole(old.bytes()));
            let mut new = Building::default();
            let mut cursor = Cursor::new(old.bytes());
            for ((host, print), number) in changes {
                let key = key(host, print);
                prop_assert_eq!(get(old.bytes(), &key), map.get(&key).copied());
                prop_assert_eq!(cursor.copy_before(&key, &mut new), map.remove(&key));
                if let Some(number) = number {
                    new.push(&key, value(number));
                    map.insert(key, value(number));
                }
            }
            cursor.copy_rest(&mut new);
            prop_assert!(is_whole(new.bytes()));
            prop_assert_eq!(new.urls(), map.len());
            prop_assert!(entries(new.bytes()).eq(map.iter().map(|(key, value)| (*key, *value))));
            prop_assert!(prints(new.bytes()).copied().eq(map.keys().map(Key::fingerprint)));
            let cut = new.cut(size);
            for (first, part) in &cut {
                prop_assert_eq!(entries(part.bytes()).next().map(|(key, _)| key), Some(*first));
                prop_assert!(part.urls() <= size);
            }
            let all = cut.iter().flat_map(|(_, part)| entries(part.bytes()));
            prop_assert!(all.eq(map.into_iter()));
        }
    }

    #[test]
    fn what_is_no_block_is_told() {
        let map = (0..5).map(|number| (key(number as u8 / 2, number as u16), value(number))).collect();
        let good = block(&map);
        let good = good.bytes();
        assert!(is_whole(good) && is_whole(&[]));
        assert!((1..good.len()).all(|end| !is_whole(&good[..end])
            || end == RUN_BYTES + 2 * ENTRY_BYTES
            || end == 2 * (RUN_BYTES + 2 * ENTRY_BYTES)));
        let mut bad = good.to_vec();
        bad[8] = 200;
        assert!(!is_whole(&bad));
        let mut bad = good.to_vec();
        bad[RUN_BYTES + PRINT_BYTES] = 9;
        assert!(!is_whole(&bad));
    }
}
