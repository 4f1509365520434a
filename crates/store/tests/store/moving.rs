//! Partitions move from one store to another, back and forth, while both work and are closed and opened: together they know what
//! one store that never moved anything knows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::Cursor;
use nephila_core::assign::partition_of;
use nephila_core::record::{Found, How, Outcome, Record};
use nephila_core::site::{AgentId, Partitions};
use nephila_core::time::Wall;
use nephila_core::url::Host;
use nephila_disk::SimDisk;
use nephila_store::{EmbeddedStore, FrontierOptions, Journal, KnownState, OwnStore, Reader, Store};

use crate::samples::{host, settled, url};

const DIR: &str = "/crawl";
const HOSTS: u64 = 6;
const PAGES: u64 = 40;
const STEPS: u64 = 300;
const SEEDS: u64 = 60;

/// What was to be admitted when the records were written.
struct Held {
    /// By place.
    since: BTreeMap<u64, Partitions>,
    now: Partitions,
}

impl Reader for Held {
    fn open(&self) -> Option<&Partitions> {
        Some(&self.now)
    }

    fn replay(&mut self, place: u64, _: &Record, _: &mut nephila_core::agent::Kept<'_>) {
        if let Some(held) = self.since.get(&place) {
            self.now = held.clone();
        }
    }
}

/// One agent's store, and the partitions that it holds.
struct Side {
    disk: SimDisk,
    store: EmbeddedStore,
    journal: Journal,
    held: Held,
    /// What was held at the last snapshot.
    base: Partitions,
    options: FrontierOptions,
}

impl Side {
    fn new(seed: u64, held: Partitions) -> Side {
        let options = FrontierOptions {
            block_urls_max: 4,
            sieve_bytes_max: [0, 2_000, 1 << 20][seed as usize % 3],
            pending_bytes_max: [0, 500, 1 << 20][seed as usize / 3 % 3],
            ..FrontierOptions::default()
        };
        let disk = SimDisk::new(seed);
        let base = held.clone();
        let mut held = Held { since: BTreeMap::new(), now: held };
        let (store, journal) =
            EmbeddedStore::open(Arc::new(disk.clone()), Path::new(DIR), options, &mut held).unwrap();
        Side { disk, store, journal, held, base, options }
    }

    fn tell(&mut self, record: &Record) {
        let place = self.journal.append(record).unwrap();
        self.journal.flush().unwrap();
        if let Record::Settled(settled) = record {
            self.store.settle(place, settled).unwrap();
        }
        self.store.admit(place, record, Some(&self.held.now)).unwrap();
    }

    /// From the next record on other partitions are held.
    fn hold(&mut self, change: impl FnOnce(&mut Partitions)) {
        change(&mut self.held.now);
        let place = self.journal.append(&Record::RunStarted { at: Wall(0) }).unwrap();
        self.journal.flush().unwrap();
        self.held.since.insert(place, self.held.now.clone());
    }

    fn reopen(&mut self, snapshot: bool) {
        if snapshot {
            self.journal.sync().unwrap();
            let job = self.store.begin_snapshot(self.journal.end(), b"memo", u64::MAX).unwrap();
            let done = job.run().unwrap();
            self.store.end_snapshot(done).unwrap();
            self.base = self.held.now.clone();
        }
        self.disk = self.disk.kill();
        let mut held = Held { since: self.held.since.clone(), now: self.base.clone() };
        let disk = Arc::new(self.disk.clone());
        let opened = EmbeddedStore::open(disk, Path::new(DIR), self.options, &mut held).unwrap();
        (self.store, self.journal) = opened;
        assert_eq!(held.now, self.held.now);
        self.held = held;
    }
}

fn page(number: u64) -> String {
    format!("http://h{}.example/{}", number % HOSTS, number / HOSTS)
}

fn found(number: u64) -> Found {
    Found { url: page(number), depth: (number % 5) as u16, how: How::Link, redirects: 0 }
}

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
}

/// Moves the partition of a host from one side to the other, as agents do.
fn hand_over(from: &mut Side, to: &mut Side, host: &Host) {
    let partition = partition_of(host);
    let mut cursor = None;
    loop {
        let exported = from.store.export(&[partition], cursor.as_ref()).unwrap();
        to.tell(&Record::Moved { from: AgentId::from(7), moved: exported.moved });
        cursor = exported.next;
        if cursor.is_none() {
            break;
        }
    }
    from.hold(|held| assert!(held.remove(partition)));
    from.tell(&Record::Released { to: AgentId::from(8), tokens: vec![(partition, 2)] });
    to.hold(|held| assert!(held.insert(partition)));
}

#[test]
fn what_moves_is_neither_lost_nor_doubled() {
    for seed in 0..SEEDS {
        let mut state = seed;
        let mut sides = [Side::new(seed, Partitions::all()), Side::new(seed + 100, Partitions::default())];
        // How far each URL has come: whether it is done.
        let mut known: BTreeMap<String, bool> = BTreeMap::new();
        let mut holder: BTreeMap<u64, usize> = (0..HOSTS).map(|host| (host, 0)).collect();
        for _ in 0..STEPS {
            let number = draw(&mut state) % (HOSTS * PAGES);
            let name = host(&format!("h{}.example", number % HOSTS));
            let at = holder[&(number % HOSTS)];
            match draw(&mut state) % 100 {
                0..50 => {
                    let numbers: Vec<u64> =
                        (0..1 + draw(&mut state) % 6).map(|_| draw(&mut state) % (HOSTS * PAGES)).collect();
                    let record = Record::Seeds(numbers.iter().map(|number| found(*number)).collect());
                    // Each side takes what is its.
                    sides.iter_mut().for_each(|side| side.tell(&record));
                    for number in numbers {
                        known.entry(page(number)).or_insert(false);
                    }
                }
                50..80 => {
                    let taken = sides[at].store.take(&name, 2, false, Wall(u64::MAX)).unwrap();
                    for due in taken.due {
                        let text = due.url.to_string();
                        assert_eq!(known.get(&text), Some(&false), "{text} was handed over, seed {seed}");
                        let again = draw(&mut state).is_multiple_of(4);
                        let not_before = Wall(draw(&mut state) % 1_000);
                        let failure = nephila_core::record::Failure::Timeout;
                        let outcome = match again {
                            true => Outcome::Retry { failure, status: None, not_before },
                            false => Outcome::Answered { status: 200 },
                        };
                        sides[at].tell(&Record::Settled(settled(&text, outcome)));
                        known.insert(text, !again);
                    }
                }
                80..92 => {
                    let (a, b) = sides.split_at_mut(1);
                    let (from, to) = if at == 0 { (&mut a[0], &mut b[0]) } else { (&mut b[0], &mut a[0]) };
                    hand_over(from, to, &name);
                    holder.insert(number % HOSTS, 1 - at);
                }
                _ => {
                    let side = (draw(&mut state) % 2) as usize;
                    let snapshot = draw(&mut state).is_multiple_of(2);
                    sides[side].reopen(snapshot);
                }
            }
        }
        compare(&mut sides, &holder, &known, seed);
    }
}

fn compare(sides: &mut [Side; 2], holder: &BTreeMap<u64, usize>, known: &BTreeMap<String, bool>, seed: u64) {
    let mut counts = (0, 0);
    for side in sides.iter_mut() {
        side.store.decide().unwrap();
        let stored = side.store.stored();
        counts = (counts.0 + stored.known, counts.1 + stored.queued);
    }
    let waiting = known.values().filter(|done| !**done).count() as u64;
    assert_eq!(counts, (known.len() as u64, waiting), "seed {seed}");
    for number in 0..HOSTS * PAGES {
        let text = page(number);
        for (at, side) in sides.iter_mut().enumerate() {
            let state = side.store.look_up(&url(&text)).unwrap().map(|known| known.state);
            let expected = known.get(&text).filter(|_| holder[&(number % HOSTS)] == at);
            let is_right = matches!(
                (&state, expected),
                (None, None)
                    | (Some(KnownState::Settled(_) | KnownState::Elsewhere { .. }), Some(true))
                    | (Some(KnownState::Queued | KnownState::Retry { .. }), Some(false))
            );
            assert!(is_right, "{text} is {state:?} at {at} and should be {expected:?}, seed {seed}");
        }
    }
    // And everything that waits is handed over once.
    let mut handed = Vec::new();
    for host_number in 0..HOSTS {
        let name = host(&format!("h{host_number}.example"));
        let store = &mut sides[holder[&host_number]].store;
        let taken = store.take(&name, usize::MAX, false, Wall(u64::MAX)).unwrap();
        handed.extend(taken.due.into_iter().map(|due| due.url.to_string()));
    }
    handed.sort();
    let expected: Vec<&String> = known.iter().filter(|(_, done)| !**done).map(|(text, _)| text).collect();
    assert_eq!(handed.iter().collect::<Vec<_>>(), expected, "seed {seed}");
}

/// Others say where to go on with a host, and may say anything.
#[test]
fn a_host_is_told_from_where_somebody_can_go_on() {
    let all = Partitions::all();
    let mut side = Side::new(0, all);
    for number in 0..HOSTS * 4 {
        side.tell(&Record::Seeds(vec![found(number)]));
        side.tell(&Record::Settled(settled(&page(number), Outcome::Answered { status: 200 })));
    }
    let of = host("h0.example");
    let mut seen = |from: Option<Vec<u8>>| {
        let told = side.store.export_host(&of, from.map(Cursor).as_ref()).unwrap();
        assert_eq!(told.next, None);
        told.moved.hosts.first().map(|host| host.seen.len())
    };
    assert_eq!(seen(None), Some(4));
    for bytes in [vec![], vec![7], vec![0; 11], vec![0; 13], vec![255; 5_000]] {
        assert_eq!(seen(Some(bytes)), None);
    }
    // Of the right length it is between two URLs, if not at one.
    assert_eq!((seen(Some(vec![0; 12])), seen(Some(vec![255; 12]))), (Some(4), Some(0)));
}
