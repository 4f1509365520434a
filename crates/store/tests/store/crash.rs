//! Kills, power cuts, failing and full disks at any moment, over many seeds: what was promised is there, nothing is torn.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use nephila_core::record::{Outcome, Record};
use nephila_core::time::Wall;
use nephila_disk::{Disk, Mode, SimDisk};
use nephila_store::{EmbeddedStore, ErrorKind, Journal, Result, Store};

use crate::samples::*;

const SEEDS: u64 = 1_000;
const LIVES: usize = 4;

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Safe {
    Buffered,
    FromKills,
    FromPowerCuts,
}

/// A record that was appended, and how safe it is.
struct Kept {
    place: u64,
    record: Record,
    safe: Safe,
}

fn record(random: &mut Random) -> Record {
    let mut page = || format!("http://h{}.example/{}", random.below(4), random.below(60));
    let mut record = settled(&page(), Outcome::Answered { status: 200 });
    record.found = (0..4).map(|_| found(&page(), 1)).collect();
    match random.below(4) {
        0 => Record::Seeds(record.found),
        1 => Record::RunStarted { at: Wall(random.below(1 << 40)) },
        // Longer than a sector, so that it can be torn in the middle.
        2 => seeds([format!("http://h0.example/{}", "x".repeat(random.below(2_000) as usize))]),
        _ => Record::Settled(record),
    }
}

/// Opens what the last life left, checks it, and writes until a random end or until the disk fails.
fn live(disk: &SimDisk, random: &mut Random, kept: &mut Vec<Kept>, sound: bool) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (mut store, mut journal, records) = match open_with(shared, small(random, NO_LIMITS)) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(!sound, "it cannot be opened any more: {error}");
            return;
        }
    };
    let safe = kept.iter().take_while(|kept| kept.safe > Safe::Buffered).count();
    assert!(records.len() >= safe, "{} of {safe} safe records", records.len());
    kept.truncate(records.len());
    let expected: Vec<(u64, Record)> = kept.iter().map(|kept| (kept.place, kept.record.clone())).collect();
    assert!(records == expected, "what is read is a prefix of what was written");
    for record in kept.iter_mut() {
        record.safe = Safe::FromPowerCuts;
    }
    match store.decide() {
        Ok(_) => check(&mut store, &records, sound),
        Err(error) => assert!(!sound, "{error}"),
    }
    write_on(store, &mut journal, random, kept);
}

/// What is known is what the records say. Even a question may need the disk, which fails unless it is `sound`.
fn check(store: &mut EmbeddedStore, records: &[(u64, Record)], sound: bool) {
    let mut urls = HashSet::new();
    for (_, record) in records {
        urls.extend(record.found().iter().map(|found| found.url.clone()));
        if let Record::Settled(settled) = record {
            urls.insert(settled.url.clone());
        }
    }
    assert_eq!(store.stored().known, urls.len() as u64);
    for text in urls.iter().take(5) {
        match store.look_up(&url(text)) {
            Ok(known) => assert!(known.is_some()),
            Err(error) => assert!(!sound, "{error}"),
        }
    }
}

fn write_on(store: EmbeddedStore, journal: &mut Journal, random: &mut Random, kept: &mut Vec<Kept>) {
    let (mut store, mut folded) = (Some(store), kept.len());
    for _ in 0..random.below(30) {
        let record = record(random);
        // A failure ends neither journal nor test: the next calls must cope with what it left.
        if let Ok(place) = journal.append(&record) {
            kept.push(Kept { place, record, safe: Safe::Buffered });
        }
        let turn = random.below(7);
        let (done, safe) = match turn {
            0 | 1 => (journal.sync().is_ok(), Safe::FromPowerCuts),
            2 | 3 => (journal.flush().is_ok(), Safe::FromKills),
            _ => (false, Safe::Buffered),
        };
        if !done {
            continue;
        }
        for record in kept.iter_mut().filter(|record| record.safe < safe) {
            record.safe = safe;
        }
        // It does end the store: an agent gives up.
        let new = &kept[folded..];
        folded = kept.len();
        if let Some(living) = &mut store
            && fold_and_save(living, journal, new, turn == 0).is_err()
        {
            store = None;
        }
    }
}

fn fold_and_save(store: &mut EmbeddedStore, journal: &Journal, new: &[Kept], save: bool) -> Result<()> {
    for kept in new {
        fold(store, kept.place, &kept.record)?;
    }
    if save {
        let done = store.begin_snapshot(journal.end(), MEMO, u64::MAX)?.run()?;
        store.end_snapshot(done)?;
    }
    Ok(())
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut disk = SimDisk::new(seed);
    let mut kept = Vec::new();
    for _ in 0..LIVES {
        match random.below(4) {
            0 => disk.fail_after(random.below(40)),
            1 => disk.set_capacity(disk.used_bytes() + random.below(5_000)),
            _ => disk.set_capacity(u64::MAX),
        }
        live(&disk, &mut random, &mut kept, false);
        if random.one_in(2) {
            disk = disk.kill();
        } else {
            disk = disk.power_cut();
            for record in kept.iter_mut().filter(|record| record.safe == Safe::FromKills) {
                record.safe = Safe::Buffered;
            }
        }
    }
    // A last life without failures looks at what is left.
    disk.set_capacity(u64::MAX);
    live(&disk, &mut random, &mut kept, true);
}

#[test]
fn crashes_lose_nothing_that_was_promised() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_full_disk_tears_nothing_and_goes_on_when_there_is_room() {
    let disk = SimDisk::new(7);
    let (_, mut journal, _) = open(Arc::new(disk.clone()), NO_LIMITS).unwrap();
    journal.append(&seeds(["http://a.example/1"])).unwrap();
    journal.sync().unwrap();
    let (end, used_bytes) = (journal.end(), disk.used_bytes());
    disk.set_capacity(used_bytes + 10);
    let place = journal.append(&seeds(["http://a.example/2"])).unwrap();
    assert_eq!(place, end);
    for _ in 0..3 {
        assert_eq!(journal.flush().unwrap_err().kind(), ErrorKind::DiskFull);
        assert_eq!(disk.used_bytes(), used_bytes);
    }
    journal.append(&seeds(["http://a.example/3"])).unwrap();
    disk.set_capacity(u64::MAX);
    journal.sync().unwrap();
    let (mut store, _, records) = open(Arc::new(disk.power_cut()), NO_LIMITS).unwrap();
    store.decide().unwrap();
    assert_eq!(records.len(), 3);
    assert_eq!(records[1].0, place);
    assert_eq!(store.stored().queued, 3);
}

/// The disk fails so badly that not even the torn write can be cut off, and then it is well again.
#[test]
fn a_torn_write_is_cut_off_later_if_not_at_once() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (_, mut journal, _) = open(Arc::new(disk.clone()), NO_LIMITS).unwrap();
        let empty_bytes = disk.used_bytes();
        journal.append(&seeds([format!("http://a.example/{}", "x".repeat(3_000))])).unwrap();
        disk.fail_after(0);
        assert_eq!(journal.flush().unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(journal.flush().unwrap_err().kind(), ErrorKind::Io);
        disk.fail_after(u64::MAX);
        journal.flush().unwrap();
        assert_eq!(disk.used_bytes(), empty_bytes + journal.end());
        assert_eq!(open(Arc::new(disk.kill()), NO_LIMITS).unwrap().2.len(), 1);
    }
}

#[test]
fn a_crawl_cannot_start_on_a_full_disk_but_can_later() {
    let disk = SimDisk::new(7);
    disk.set_capacity(5);
    assert_eq!(open(Arc::new(disk.clone()), NO_LIMITS).err().unwrap().kind(), ErrorKind::DiskFull);
    disk.set_capacity(u64::MAX);
    assert!(open(Arc::new(disk), NO_LIMITS).is_ok());
}

#[test]
fn nothing_is_accepted_after_a_sync_that_failed() {
    let disk = SimDisk::new(7);
    let (_, mut journal, _) = open(Arc::new(disk.clone()), NO_LIMITS).unwrap();
    journal.append(&seeds(["http://a.example/1"])).unwrap();
    disk.fail_after(1);
    assert_eq!(journal.sync().unwrap_err().kind(), ErrorKind::Io);
    for _ in 0..2 {
        assert_eq!(journal.sync().unwrap_err().kind(), ErrorKind::Io);
        assert!(journal.append(&seeds(["http://a.example/2"])).is_err());
        assert!(journal.flush().is_err());
    }
    let (_, mut journal, records) = open(Arc::new(disk.kill()), NO_LIMITS).unwrap();
    assert_eq!(records.len(), 1);
    journal.append(&seeds(["http://a.example/2"])).unwrap();
    journal.sync().unwrap();
}

/// Also where a record is half there, and without writing anything.
#[test]
fn a_crawl_that_was_killed_can_be_looked_at() {
    for with_snapshot in [false, true] {
        let sim = SimDisk::new(7);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
        write(&mut store, &mut journal, &seeds(["http://a.example/1"]));
        if with_snapshot {
            snapshot(&mut store, &mut journal).unwrap();
        }
        write(&mut store, &mut journal, &seeds(["http://a.example/2"]));
        disk.open(Path::new(JOURNAL), Mode::Append).unwrap().append(&[9, 0, 0, 0, 1]).unwrap();
        let dead = sim.kill();
        // Nothing that is written gets through.
        dead.fail_after(0);
        let (mut look, records) = look(Arc::new(dead), NO_LIMITS).unwrap();
        assert_eq!((look.stored().known, look.torn_bytes(), records), (2, 5, 2));
        assert_eq!(look.take(&host("a.example"), 9, false, Wall(0)).unwrap().due.len(), 2);
    }
}
