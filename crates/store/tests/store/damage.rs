//! Whatever the tail of the journal looks like, the whole records before it are read, and the rest is cut.

use std::path::Path;
use std::sync::Arc;

use nephila_core::record::{Outcome, Record};
use nephila_disk::{Disk, Mode, SimDisk};
use nephila_store::{EmbeddedStore, ErrorKind, FRAME_BYTES_MAX, FrontierOptions, Store, StoreLimits};

use crate::samples::*;

fn read(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Mode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Bytes before the first record of a segment.
const HEAD_BYTES: usize = 24;
const KEPT: &str = "/crawl/store/damaged-";

/// The tails that are kept, by their names.
fn tails(disk: &dyn Disk) -> Vec<(String, Vec<u8>)> {
    let files = disk.list(Path::new(STORE)).unwrap().into_iter();
    let names = files.filter(|path| path.to_str().unwrap().starts_with(KEPT));
    names.map(|path| (path.to_str().unwrap().to_owned(), read(disk, &path))).collect()
}

/// A disk with a journal of these bytes and nothing else.
fn disk_with(bytes: &[u8]) -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    disk.create_dir_all(Path::new(STORE)).unwrap();
    disk.open(Path::new(JOURNAL), Mode::Create).unwrap().append(bytes).unwrap();
    disk
}

/// A journal as bytes, and where in them each of its records ends.
fn journal() -> (Vec<u8>, Vec<usize>) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let (_, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    let mut ends = vec![HEAD_BYTES];
    for number in 0..6 {
        let page = format!("http://a.example/{number}");
        let mut record = settled(&page, Outcome::Answered { status: 200 });
        record.found = vec![found(&format!("http://b.example/{number}"), number)];
        for record in [seeds([page]), Record::Settled(record)] {
            assert_eq!(journal.append(&record).unwrap() as usize + HEAD_BYTES, *ends.last().unwrap());
            ends.push(journal.end() as usize + HEAD_BYTES);
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
    let disk = disk_with(bytes);
    let end = ends[whole_records];
    let (store, read_only) = look(Arc::clone(&disk), NO_LIMITS).unwrap();
    assert_eq!(read_only, whole_records);
    assert_eq!(store.torn_bytes() as usize, bytes.len() - end);
    assert_eq!(read(&*disk, Path::new(JOURNAL)), bytes, "looking at it changes nothing");
    assert_eq!(disk.list(Path::new(STORE)).unwrap(), [Path::new(JOURNAL)], "looking at it adds nothing");

    let (store, journal, records) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    assert_eq!(records.len(), whole_records);
    assert_eq!(store.torn_bytes() as usize, bytes.len() - end);
    assert_eq!(journal.end() as usize + HEAD_BYTES, end);
    assert_eq!(store.is_damaged(), kept);
    let name = format!("{KEPT}{:012x}", end - HEAD_BYTES);
    let tail: Vec<(String, Vec<u8>)> = kept.then(|| (name, bytes[end..].to_vec())).into_iter().collect();
    assert_eq!(tails(&*disk), tail);

    let (mut store, mut journal, again) = open(disk, NO_LIMITS).unwrap();
    assert_eq!(again, records);
    assert_eq!((store.torn_bytes(), store.is_damaged()), (0, false));
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

/// Nothing is cut before it is kept, and no tail takes the place of another.
#[test]
fn each_damaged_tail_is_kept() {
    let (bytes, ends) = journal();
    let disk = SimDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut expected = Vec::new();
    // Twice at the same place, and not with the same records behind it.
    for (flipped, length) in [(8, ends[12]), (4, ends[12]), (4, ends[11]), (0, ends[12])] {
        let mut damaged = bytes[..length].to_vec();
        damaged[ends[flipped] + 20] ^= 1;
        disk.create_dir_all(Path::new(STORE)).unwrap();
        let mut file = disk.open(Path::new(JOURNAL), Mode::Append).unwrap();
        file.truncate(0).unwrap();
        file.append(&damaged).unwrap();
        for operations in 0.. {
            if operations == 0 {
                disk.set_capacity(disk.used_bytes() + 30);
                let error = open(Arc::clone(&shared), NO_LIMITS).err().unwrap();
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
                assert_eq!(read(&disk, Path::new(JOURNAL)), damaged, "nothing is cut that is not kept");
                disk.set_capacity(u64::MAX);
            }
            disk.fail_after(operations);
            let opened = open(Arc::clone(&shared), NO_LIMITS);
            disk.fail_after(u64::MAX);
            if read(&disk, Path::new(JOURNAL)) != damaged {
                break;
            }
            assert!(opened.is_err());
        }
        expected.push(damaged[ends[flipped]..].to_vec());
        open(Arc::clone(&shared), NO_LIMITS).unwrap();
    }
    let kept: Vec<Vec<u8>> = tails(&disk.power_cut()).into_iter().map(|(_, tail)| tail).collect();
    for tail in expected {
        assert!(kept.contains(&tail), "a tail of {} bytes is gone", tail.len());
    }
}

/// The power fails at any moment while a damaged tail is put away: it is in one place or the other.
#[test]
fn a_damaged_tail_survives_a_power_cut() {
    let (bytes, ends) = journal();
    let mut damaged = bytes;
    damaged[ends[4] + 20] ^= 1;
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new(STORE)).unwrap();
        let mut file = disk.open(Path::new(JOURNAL), Mode::Append).unwrap();
        file.append(&damaged).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new(STORE)).unwrap();
        disk.fail_after(seed / 20);
        drop(open(Arc::new(disk.clone()), NO_LIMITS));
        let disk = disk.power_cut();
        let kept = tails(&disk).into_iter().any(|(_, tail)| tail == damaged[ends[4]..]);
        assert!(kept || read(&disk, Path::new(JOURNAL)) == damaged, "seed {seed}");
    }
}

/// What a snapshot has folded cannot be taken back: without the journal that it stands on nothing is opened.
#[test]
fn a_journal_that_ends_before_the_snapshot_is_an_error() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let (mut store, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    for number in 0..5 {
        write(&mut store, &mut journal, &seeds([format!("http://a.example/{number}")]));
    }
    snapshot(&mut store, &mut journal).unwrap();
    drop((store, journal));
    let bytes = read(&*disk, Path::new(JOURNAL));
    let mut file = disk.open(Path::new(JOURNAL), Mode::Append).unwrap();
    file.truncate(bytes.len() as u64 - 1).unwrap();
    for _ in 0..2 {
        let error = open(Arc::clone(&disk), NO_LIMITS).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Format, "{error}");
        let error = look(Arc::clone(&disk), NO_LIMITS).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Format, "{error}");
        // Nor for those who do not look back at what the snapshot stands for.
        let options = FrontierOptions::default();
        let opened = EmbeddedStore::open(Arc::clone(&disk), Path::new(DIR), options, &mut ());
        assert_eq!(opened.err().unwrap().kind(), ErrorKind::Format);
    }
    assert_eq!(file.len().unwrap() as usize, bytes.len() - 1, "nothing is cut");
    file.append(&bytes[bytes.len() - 1..]).unwrap();
    let (mut store, ..) = open(disk, NO_LIMITS).unwrap();
    store.decide().unwrap();
    assert_eq!(store.stored().known, 5);
}

/// What limits kept out is needed when they are raised: without it nothing is opened.
#[test]
fn what_was_kept_out_and_is_gone_is_an_error() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let few = StoreLimits { max_host_pages: 2, ..NO_LIMITS };
    let (mut store, mut journal, _) = open(Arc::clone(&disk), few).unwrap();
    for number in 0..5 {
        write(&mut store, &mut journal, &seeds([format!("http://a.example/{number}")]));
    }
    snapshot(&mut store, &mut journal).unwrap();
    assert_eq!(store.stored().kept_out.host, 3);
    drop((store, journal));
    let kept_out = disk.list(&Path::new(JOURNAL).parent().unwrap().join("kept-out")).unwrap();
    let bytes = read(&*disk, &kept_out[0]);
    for length in [0, bytes.len() as u64 - 1] {
        disk.open(&kept_out[0], Mode::Append).unwrap().truncate(length).unwrap();
        for limits in [few, NO_LIMITS] {
            let error = open(Arc::clone(&disk), limits).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Format, "{error}");
        }
        let mut file = disk.open(&kept_out[0], Mode::Append).unwrap();
        file.truncate(0).unwrap();
        file.append(&bytes).unwrap();
    }
    let (mut store, ..) = open(disk, NO_LIMITS).unwrap();
    store.decide().unwrap();
    assert_eq!(store.stored().known, 5);
}

#[test]
fn a_journal_exists_once_it_was_made() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let exists = || EmbeddedStore::exists(&*disk, Path::new(DIR)).unwrap();
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
    let place = (bytes.len() - HEAD_BYTES) as u64;
    let payload = [200u8, 1, 2, 3];
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place.to_le_bytes());
    hasher.update(&4u32.to_le_bytes());
    hasher.update(&payload);
    bytes.extend(4u32.to_le_bytes());
    bytes.extend(hasher.finalize().to_le_bytes());
    bytes.extend(payload);
    let disk = disk_with(&bytes);
    let error = open(Arc::clone(&disk), NO_LIMITS).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Format, "{error}");
    let length = disk.open(Path::new(JOURNAL), Mode::Read).unwrap().len().unwrap();
    assert_eq!(length as usize, bytes.len());
}

#[test]
fn a_record_that_is_too_long_is_refused_and_others_are_not() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let (_, mut journal, _) = open(Arc::clone(&disk), NO_LIMITS).unwrap();
    let before = journal.end();
    let error = journal.append(&seeds(["x".repeat(FRAME_BYTES_MAX)])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    assert_eq!(journal.append(&seeds(["http://a.example/"])).unwrap(), before);
    journal.sync().unwrap();
    assert_eq!(open(disk, NO_LIMITS).unwrap().2.len(), 1);
}

#[test]
fn there_is_no_crawl_to_look_at() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    assert_eq!(look(Arc::clone(&disk), NO_LIMITS).err().unwrap().kind(), ErrorKind::Missing);
    assert!(disk.list(Path::new(STORE)).unwrap().is_empty());
    open(Arc::clone(&disk), NO_LIMITS).unwrap();
    assert!(look(disk, NO_LIMITS).is_ok());
}

/// A file that the snapshot names is missing: it is said which, and none is made in its place.
#[test]
fn a_missing_segment_is_named() {
    for name in ["blocks-00000000", "chunks-00000000"] {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let options = FrontierOptions {
            sieve_bytes_max: 0,
            filter_bytes_max: 0,
            pending_bytes_max: 0,
            hot_hosts_max: 1,
            hot_bytes_max: 0,
            ..FrontierOptions::default()
        };
        let (mut store, mut journal, _) = open_with(Arc::clone(&disk), options).unwrap();
        for number in 0..20 {
            let urls = (0..200).map(|page| format!("http://{number}.example/{page}"));
            write_decided(&mut store, &mut journal, &seeds(urls));
        }
        snapshot(&mut store, &mut journal).unwrap();
        drop((store, journal));
        let path = Path::new(STORE).join(name);
        disk.remove(&path).unwrap();
        for error in [
            look(Arc::clone(&disk), NO_LIMITS).err().unwrap(),
            open(Arc::clone(&disk), NO_LIMITS).err().unwrap(),
            open(Arc::clone(&disk), NO_LIMITS).err().unwrap(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Format);
            let text = error.to_string();
            assert!(text.contains(name) && text.contains("it is missing"), "{text}");
        }
        assert!(disk.open(&path, Mode::Read).is_err(), "none is made in its place");
    }
}

/// The journal of an older version is neither read nor overlooked.
#[test]
fn an_old_journal_is_refused() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.open(&Path::new(DIR).join("journal"), Mode::Create).unwrap().append(b"NEPHILAJ").unwrap();
    let errors = [
        open(Arc::clone(&disk), NO_LIMITS).err(),
        look(Arc::clone(&disk), NO_LIMITS).err(),
        EmbeddedStore::exists(&*disk, Path::new(DIR)).err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Format, "{error}");
    }
}
