//! What is kept with hosts, and the round over all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::Visited;
use nephila_core::frontier::{HostMemo, HostState};
use nephila_core::record::{Outcome, Record};
use nephila_core::time::{Mono, Now, Wall};
use nephila_disk::{Disk, SimDisk};
use nephila_store::{EmbeddedStore, Store};

use crate::samples::*;

const SEEDS: u64 = 60;
const HOSTS: u64 = 40;

/// A memo that can be told from others.
fn memo(pages: u64) -> HostMemo {
    let now = Now { mono: Mono(0), wall: Wall(0) };
    let mut state = HostState::new(host("a.example"));
    state.pages = pages;
    state.memo(1, now).unwrap()
}

fn round(store: &mut EmbeddedStore, now: Wall) -> Visited {
    let mut whole = Visited::default();
    for _ in 0..10_000 {
        let part = store.visit(now).unwrap();
        whole.hosts.extend(part.hosts);
        whole.next = [whole.next, part.next].into_iter().flatten().min();
        if part.is_last {
            return whole;
        }
    }
    panic!("the round has no end");
}

#[derive(Clone, Default)]
struct Host {
    due: BTreeSet<String>,
    late: BTreeMap<String, Wall>,
    memo: Option<HostMemo>,
    away_until: Wall,
}

/// Each host of which something is due is met once a round, with what is kept of it, whatever is in memory and whatever
/// was written down in between.
#[test]
fn a_round_meets_whom_something_is_due_of() {
    for seed in 0..SEEDS {
        let random = &mut Random(seed);
        let disk = SimDisk::new(seed);
        let open = |random: &mut Random| open_with(Arc::new(disk.clone()), small(random, NO_LIMITS)).unwrap();
        let (mut store, mut journal, _) = open(random);
        let mut model: BTreeMap<String, Host> = BTreeMap::new();
        for step in 0..300 {
            let now = Wall(step * 10);
            let name = format!("h{}.example", random.below(HOSTS));
            let of = model.entry(name.clone()).or_default();
            match random.below(6) {
                0 | 1 => {
                    let page = format!("http://{name}/{step}");
                    write(&mut store, &mut journal, &seeds([&page]));
                    of.due.insert(page);
                }
                2 => {
                    let taken = store.take(&host(&name), 1, false, now).unwrap();
                    for due in taken.due {
                        let page = due.url.to_string();
                        of.due.remove(&page);
                        of.late.remove(&page);
                        let until = Wall(now.0 + 1 + random.below(2_000));
                        let outcome = match random.below(2) {
                            0 => Outcome::Answered { status: 200 },
                            _ => {
                                of.late.insert(page.clone(), until);
                                retry(until.0)
                            }
                        };
                        write(&mut store, &mut journal, &Record::Settled(settled(&page, outcome)));
                    }
                }
                3 => {
                    of.memo = random.one_in(3).then(|| memo(1 + step));
                    of.away_until = Wall(random.below(4_000));
                    store.keep(&host(&name), of.memo.as_ref(), of.away_until).unwrap();
                }
                4 => snapshot(&mut store, &mut journal).unwrap(),
                _ if random.one_in(4) => {
                    snapshot(&mut store, &mut journal).unwrap();
                    drop((store, journal));
                    (store, journal, _) = open(random);
                }
                _ => {}
            }
            store.decide().unwrap();
            assert_eq!(store.kept(&host(&name)).unwrap(), model[&name].memo, "seed {seed} step {step}");
            if random.one_in(10) {
                compare(round(&mut store, now), &model, now, seed);
            }
        }
    }
}

fn compare(round: Visited, model: &BTreeMap<String, Host>, now: Wall, seed: u64) {
    let when = |of: &Host| {
        let due = if of.due.is_empty() { of.late.values().min().copied() } else { Some(Wall(0)) };
        due.map(|due| due.max(of.away_until))
    };
    let due: Vec<&String> =
        model.iter().filter(|(_, of)| when(of).is_some_and(|due| due <= now)).map(|(name, _)| name).collect();
    let mut met: Vec<String> = round.hosts.iter().map(|stored| stored.host.to_string()).collect();
    met.sort();
    assert!(met.iter().eq(due), "seed {seed}: {met:?}");
    for stored in &round.hosts {
        assert_eq!(stored.memo, model[stored.host.as_str()].memo, "seed {seed}");
    }
    let next = model.values().filter_map(when).filter(|due| *due > now).min();
    assert_eq!(round.next, next, "seed {seed}");
}

/// What the owner gave to the last snapshot is there at the next start, and only what came after it is read again.
#[test]
fn a_memo_stands_for_the_records_before_it() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    write(&mut store, &mut journal, &seeds(["http://a.example/", "http://b.example/"]));
    snapshot(&mut store, &mut journal).unwrap();
    let later = Record::Settled(settled("http://a.example/", Outcome::Answered { status: 200 }));
    write(&mut store, &mut journal, &later);
    journal.sync().unwrap();
    drop((store, journal));
    for looks_back in [false, true] {
        let mut told = Told { looks_back, ..Told::default() };
        let options = nephila_store::FrontierOptions::default();
        let store =
            EmbeddedStore::open_read_only(Arc::clone(&disk), Path::new(DIR), options, &mut told).unwrap();
        assert_eq!((store.stored().known, store.stored().queued, store.stored().hosts), (2, 1, 2));
        assert_eq!(told.memo.as_deref(), Some(MEMO));
        let records: Vec<&Record> = told.records.iter().map(|(_, record)| record).collect();
        assert_eq!(records.len(), 1 + usize::from(looks_back));
        assert_eq!(records.last(), Some(&&later));
    }
}
