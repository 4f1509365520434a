//! Whatever the tail of the file looks like, the whole records before it are read, and the rest is cut.

use std::path::Path;
use std::sync::Arc;

use nephila_core::record::{Outcome, Record};
use nephila_disk::{Disk, Mode, SimDisk};
use nephila_store::{ErrorKind, FRAME_BYTES_MAX};

use crate::samples::*;

fn read(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Mode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// A journal as bytes, and where each of its records ends.
fn journal() -> (Vec<u8>, Vec<usize>) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let (_, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    let mut ends = vec![journal.len() as usize];
    for number in 0..6 {
        let page = format!("http://a.example/{number}");
        let mut record = settled(&page, Outcome::Answered { status: 200 });
        record.found = vec![found(&format!("http://b.example/{number}"), number)];
        for record in [seeds([page]), Record::Settled(record)] {
            assert_eq!(journal.append(&record).unwrap() as usize, *ends.last().unwrap());
            ends.push(journal.len() as usize);
        }
    }
    journal.flush().unwrap();
    let bytes = read(&*disk, Path::new(JOURNAL));
    assert_eq!(bytes.len(), *ends.last().unwrap());
    (bytes, ends)
}

/// Opens a journal of these bytes twice: it has so many records, the rest is cut, and then nothing more is to be cut. The
/// rest is kept if and only if there are whole records in it.
fn check(bytes: &[u8], whole_records: usize, ends: &[usize], kept: bool) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.open(Path::new(JOURNAL), Mode::Create).unwrap().append(bytes).unwrap();

    let holds = |_: &_| true;
    let mut read_only = 0;
    let count = &mut |_, _: &Record| read_only += 1;
    let store =
        nephila_store::Store::open_read_only(Arc::clone(&disk), Path::new(DIR), NO_LIMITS, &holds, count)
            .unwrap();
    assert_eq!(read_only, whole_records);
    assert_eq!(store.torn_bytes() as usize, bytes.len() - ends[whole_records]);
    let length = disk.open(Path::new(JOURNAL), Mode::Read).unwrap().len().unwrap();
    assert_eq!(length as usize, bytes.len(), "looking at it changes nothing");

    let (store, journal, records) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    assert_eq!(records.len(), whole_records);
    assert_eq!(store.torn_bytes() as usize, bytes.len() - ends[whole_records]);
    assert_eq!(journal.len() as usize, ends[whole_records]);
    let tail = store.damaged().map(|path| read(&*disk, path));
    assert_eq!(tail.as_deref(), kept.then_some(&bytes[ends[whole_records]..]));

    let (mut store, mut journal, again) = open(disk, NO_LIMITS).unwrap();
    assert_eq!(again, records);
    assert_eq!((store.torn_bytes(), store.damaged()), (0, None));
    write(&mut store, &mut journal, &seeds(["http://c.example/"]));
}

#[test]
fn cut_at_any_byte() {
    let (bytes, ends) = journal();
    for length in ends[0]..=bytes.len() {
        let whole = ends.iter().filter(|end| **end <= length).count() - 1;
        check(&bytes[..length], whole, &ends, false);
    }
}

#[test]
fn any_bit_flipped() {
    let (bytes, ends) = journal();
    for at in ends[0]..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let whole = ends.iter().filter(|end| **end <= at).count() - 1;
        check(&damaged, whole, &ends, whole + 2 < ends.len());
    }
}

#[test]
fn tails_that_are_not_records() {
    let (bytes, ends) = journal();
    let stale = bytes[ends[3]..].to_vec();
    for (what, tail) in [
        ("zeros", vec![0; 5_000]),
        ("a few zeros", vec![0; 3]),
        ("ones", vec![0xff; 5_000]),
        ("text", b"the quick brown fox jumps over the lazy dog".to_vec()),
        ("whole frames that belong elsewhere", stale),
        ("a length and nothing else", 100u32.to_le_bytes().to_vec()),
    ] {
        eprintln!("{what}");
        check(&[&bytes[..], &tail].concat(), ends.len() - 1, &ends, false);
    }
}

/// Nobody is told where a tail is before it is there, and none takes the place of another.
#[test]
fn each_damaged_tail_is_kept() {
    let (bytes, ends) = journal();
    let disk = SimDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut tails = Vec::new();
    for record in [8, 4, 0] {
        let mut damaged = bytes.clone();
        damaged[ends[record] + 20] ^= 1;
        disk.create_dir_all(Path::new(DIR)).unwrap();
        let mut file = disk.open(Path::new(JOURNAL), Mode::Append).unwrap();
        file.truncate(0).unwrap();
        file.append(&damaged).unwrap();
        disk.set_capacity(disk.used_bytes() + 3);
        let error = open(Arc::clone(&shared), NO_LIMITS).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
        assert_eq!(read(&disk, Path::new(JOURNAL)), damaged, "nothing is cut that is not kept");
        disk.set_capacity(u64::MAX);
        let (store, _, _) = open(Arc::clone(&shared), NO_LIMITS).unwrap();
        tails.push((store.damaged().unwrap().to_path_buf(), damaged[ends[record]..].to_vec()));
    }
    let disk = disk.power_cut();
    for (number, (path, tail)) in tails.into_iter().enumerate() {
        assert_eq!(path, Path::new(&format!("{JOURNAL}.damaged-{}", number + 1)));
        assert_eq!(read(&disk, &path), tail);
    }
}

#[test]
fn a_journal_exists_once_it_was_made() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let exists = || nephila_store::Store::exists(&*disk, Path::new(DIR)).unwrap();
    assert!(!exists());
    open(Arc::clone(&disk), NO_LIMITS).unwrap();
    assert!(exists());
    disk.open(Path::new(JOURNAL), Mode::Append).unwrap().truncate(0).unwrap();
    assert!(!exists());
}

/// A checksum that is right over a record that nobody can read is no torn write: nothing is cut.
#[test]
fn an_unknown_record_is_an_error() {
    let (mut bytes, ends) = journal();
    bytes.truncate(ends[2]);
    let place = bytes.len() as u64;
    let payload = [200u8, 1, 2, 3];
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place.to_le_bytes());
    hasher.update(&4u32.to_le_bytes());
    hasher.update(&payload);
    bytes.extend(4u32.to_le_bytes());
    bytes.extend(hasher.finalize().to_le_bytes());
    bytes.extend(payload);
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.open(Path::new(JOURNAL), Mode::Create).unwrap().append(&bytes).unwrap();
    let error = open(Arc::clone(&disk), NO_LIMITS).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Format, "{error}");
    let length = disk.open(Path::new(JOURNAL), Mode::Read).unwrap().len().unwrap();
    assert_eq!(length as usize, bytes.len());
}

#[test]
fn a_record_that_is_too_long_is_refused_and_others_are_not() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let (_, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    let before = journal.len();
    let error = journal.append(&seeds(["x".repeat(FRAME_BYTES_MAX)])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    assert_eq!(journal.append(&seeds(["http://a.example/"])).unwrap(), before);
    journal.sync().unwrap();
    assert_eq!(open(disk, NO_LIMITS).unwrap().2.len(), 1);
}

#[test]
fn there_is_no_crawl_to_look_at() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let look =
        nephila_store::Store::open_read_only(disk, Path::new(DIR), NO_LIMITS, &|_| true, &mut |_, _| {});
    assert_eq!(look.err().unwrap().kind(), ErrorKind::Missing);
}
