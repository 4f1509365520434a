//! Partitions move from one store to another, back and forth, while both work and are closed and opened: together they know what
//! one store that never moved anything knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::{Cursor, ToTell};
use nephila_core::assign::partition_of;
use nephila_core::cash::{Gifts, minted};
use nephila_core::record::{Arrived, Found, How, Outcome, Record, Settled};
use nephila_core::settings::UrlOrder;
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
        Side::in_order(seed, held, UrlOrder::BreadthFirst)
    }

    fn in_order(seed: u64, held: Partitions, order: UrlOrder) -> Side {
        let options = FrontierOptions {
            order,
            ledger_bytes_max: [0, 1_000, 1 << 20][seed as usize / 9 % 3],
            tell_again: [2, 16][seed as usize % 2],
            me: AgentId::from(seed),
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

    /// Says what others are to be told, and where the record is.
    fn tell(&mut self, record: &Record) -> (u64, Vec<ToTell>) {
        let place = self.journal.append(record).unwrap();
        self.journal.flush().unwrap();
        let mut to_tell = Vec::new();
        if let Record::Settled(settled) = record {
            to_tell.extend(self.store.settle(place, settled).unwrap().to_tell);
        }
        to_tell.extend(self.store.admit(place, record, Some(&self.held.now)).unwrap().to_tell);
        (place, to_tell)
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
    pass_on(from, to, partition);
    from.hold(|held| assert!(held.remove(partition)));
    let tokens = vec![(partition, 2)];
    from.tell(&Record::Released { to: AgentId::from(8), tokens, since: from.journal.end() });
    to.hold(|held| assert!(held.insert(partition)));
}

/// Has the other side know all that is known of a partition.
fn pass_on(from: &mut Side, to: &mut Side, partition: u16) {
    let mut cursor = None;
    loop {
        let exported = from.store.export(&[partition], cursor.as_ref()).unwrap();
        to.tell(&Record::Moved { from: AgentId::from(7), moved: exported.moved });
        cursor = exported.next;
        if cursor.is_none() {
            break;
        }
    }
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
                    sides.iter_mut().for_each(|side| drop(side.tell(&record)));
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

/// What others were told of, as it reaches them.
fn arrival(told: &[ToTell]) -> Record {
    Record::Arrived(Arrived {
        from: AgentId::from(9),
        site: None,
        found: told.iter().map(|told| told.found.clone()).collect(),
        pages: vec![(None, told.len() as u32)],
        totals: told.iter().map(|told| told.total).collect(),
    })
}

/// What records have given to URLs, less what these have spent.
#[derive(Default)]
struct Given {
    by_url: BTreeMap<String, i128>,
    made: i128,
}

impl Given {
    fn count(&mut self, record: &Record) {
        self.made += i128::from(minted(record));
        if let Record::Settled(settled) = record {
            *self.by_url.entry(settled.url.clone()).or_default() -= i128::from(settled.spent.unwrap());
        }
        let hosts: Vec<Host> = record.found().iter().map(|found| Host::of(&url(&found.url))).collect();
        let gifts = Gifts::of(record, hosts.iter());
        for (at, (found, host)) in record.found().iter().zip(&hosts).enumerate() {
            *self.by_url.entry(found.url.clone()).or_default() += i128::from(gifts.to(host, at == 0));
        }
    }
}

/// Two sides find URLs of each other, tell each other late, twice or not at all, and pass partitions back and forth, some of that
/// in vain; then all is told.
#[test]
fn cash_that_is_told_and_moves_is_neither_lost_nor_doubled() {
    for seed in 0..SEEDS {
        let mut state = seed;
        let side = |seed, held| Side::in_order(seed, held, UrlOrder::Cash);
        let mut sides = [side(seed, Partitions::all()), side(seed + 100, Partitions::default())];
        let mut records: [Vec<(u64, Record)>; 2] = Default::default();
        let mut told: [Vec<ToTell>; 2] = Default::default();
        let mut holder: BTreeMap<u64, usize> = (0..HOSTS).map(|host| (host, 0)).collect();
        let mut given = Given::default();
        let links = |state: &mut u64| -> Vec<Found> {
            // Each once, as the store would have it.
            let numbers: BTreeSet<u64> =
                (0..draw(state) % 6).map(|_| draw(state) % (HOSTS * PAGES)).collect();
            numbers.into_iter().map(found).collect()
        };
        for step in 0..STEPS {
            let number = draw(&mut state) % (HOSTS * PAGES);
            let name = host(&format!("h{}.example", number % HOSTS));
            let at = holder[&(number % HOSTS)];
            match draw(&mut state) % 100 {
                _ if step == 0 => {
                    let record = Record::Seeds((0..HOSTS).map(found).collect());
                    given.count(&record);
                    let (place, to_tell) = sides[0].tell(&record);
                    records[0].push((place, record));
                    told[0].extend(to_tell);
                }
                0..60 => {
                    let taken = sides[at].store.take(&name, 1, false, Wall(u64::MAX)).unwrap();
                    for due in taken.due {
                        let settled = settled(due.url.as_str(), Outcome::Answered { status: 200 });
                        let found = links(&mut state);
                        let record = Record::Settled(Settled { spent: due.cash, found, ..settled });
                        given.count(&record);
                        let (place, to_tell) = sides[at].tell(&record);
                        records[at].push((place, record));
                        told[at].extend(to_tell);
                    }
                }
                60..80 => {
                    let from = (draw(&mut state) % 2) as usize;
                    let some = draw(&mut state) % 5;
                    let is_told = |_: &&ToTell| draw(&mut state).is_multiple_of(some + 1);
                    let heard: Vec<ToTell> = told[from].iter().filter(is_told).cloned().collect();
                    sides[1 - from].tell(&arrival(&heard));
                }
                80..94 => {
                    let (a, b) = sides.split_at_mut(1);
                    let (from, to) = if at == 0 { (&mut a[0], &mut b[0]) } else { (&mut b[0], &mut a[0]) };
                    if draw(&mut state).is_multiple_of(3) {
                        pass_on(from, to, partition_of(&name));
                    } else {
                        hand_over(from, to, &name);
                        holder.insert(number % HOSTS, 1 - at);
                    }
                }
                _ => {
                    let side = (draw(&mut state) % 2) as usize;
                    let snapshot = draw(&mut state).is_multiple_of(2);
                    sides[side].reopen(snapshot);
                }
            }
        }
        // What a partition that was passed on in vain has left is written over by what comes with it.
        for number in 0..HOSTS {
            let (a, b) = sides.split_at_mut(1);
            let at = holder[&number];
            let (from, to) = if at == 0 { (&mut a[0], &mut b[0]) } else { (&mut b[0], &mut a[0]) };
            hand_over(from, to, &host(&format!("h{number}.example")));
            holder.insert(number, 1 - at);
        }
        let sum = |sides: &mut [Side; 2]| -> i128 {
            sides.iter_mut().map(|side| side.store.cash().unwrap().sum()).sum()
        };
        assert_eq!(sum(&mut sides), given.made, "seed {seed}");
        for at in 0..2 {
            for (place, record) in &records[at] {
                let held = sides[at].held.now.clone();
                let again = sides[at].store.admit_again(*place, record, Some(&held)).unwrap();
                sides[1 - at].tell(&arrival(&again.to_tell));
            }
        }
        assert_eq!(sum(&mut sides), given.made, "seed {seed}, when all is told");
        for (text, units) in &given.by_url {
            let number: u64 = text[8..9].parse().unwrap();
            let known = sides[holder[&number]].store.look_up(&url(text)).unwrap().unwrap();
            assert_eq!(known.cash.map(i128::from), Some(*units), "{text}, seed {seed}");
        }
    }
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
