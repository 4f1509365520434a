//! What many URLs and a hundred thousand hosts cost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nephila_core::record::Record;
use nephila_core::time::Wall;
use nephila_disk::{Disk, File, Mode, RealDisk};
use nephila_store::{EmbeddedStore, FrontierOptions, Journal, Store};

use crate::samples::*;

const URLS: usize = 300_000;
const RECORD_URLS: usize = 1_000;
const HOSTS: usize = 100_000;
/// The budgets together, and what tables that grow take more than they hold.
const MEMORY_BYTES_MAX: u64 = 12 << 20;
/// Long URLs, so that the journal is longer than a segment.
const LONG_URLS: usize = 80_000;
const LONG_URL_BYTES: usize = 1_000;

/// A fraction of what the URLs of these tests would take.
fn little() -> FrontierOptions {
    FrontierOptions {
        sieve_bytes_max: 4 << 20,
        filter_bytes_max: 2 << 20,
        pending_bytes_max: 2 << 20,
        hot_hosts_max: 200,
        ..FrontierOptions::default()
    }
}

fn open_in(disk: Arc<dyn Disk>, dir: &Path) -> (EmbeddedStore, Journal) {
    EmbeddedStore::open(disk, dir, little(), &mut ()).unwrap()
}

fn batch(start: usize) -> Record {
    let page =
        |number| found(&format!("https://www.host-{}.example/section/page-{number}.html", number % 100), 1);
    Record::Seeds((start..start + RECORD_URLS).map(page).collect())
}

#[test]
fn many_urls() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut journal) = open_in(Arc::new(RealDisk), dir.path());
    let mut memory_bytes_max = 0;
    let begun = Instant::now();
    for start in (0..URLS).step_by(RECORD_URLS) {
        write(&mut store, &mut journal, &batch(start));
        if start % (10 * RECORD_URLS) == 0 {
            memory_bytes_max = memory_bytes_max.max(store.memory_bytes());
        }
    }
    store.decide().unwrap();
    let admitted = begun.elapsed();
    assert_eq!(store.stored().known, URLS as u64);
    assert!(memory_bytes_max <= MEMORY_BYTES_MAX, "{memory_bytes_max} bytes");

    let begun = Instant::now();
    let mut taken = 0;
    for number in (0..100).cycle().take(2_000) {
        taken +=
            store.take(&host(&format!("www.host-{number}.example")), 8, false, Wall(0)).unwrap().due.len();
    }
    assert_eq!(taken, 16_000);
    eprintln!(
        "{memory_bytes_max} bytes at worst; {URLS} written and admitted in {admitted:.2?}, {taken} taken in {:.2?}",
        begun.elapsed()
    );
}

/// The operating system's files, with a count of what is read of them.
struct Counting(Arc<AtomicU64>);

struct CountingFile(Box<dyn File>, Arc<AtomicU64>);

impl Disk for Counting {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn File>> {
        Ok(Box::new(CountingFile(RealDisk.open(path, mode)?, Arc::clone(&self.0))))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
}

impl File for CountingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read_at(offset, buf)?;
        self.1.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

/// Opens the crawl and says how much was read for it.
fn opening_reads(dir: &Path) -> (u64, EmbeddedStore, Journal) {
    let read_bytes = Arc::new(AtomicU64::new(0));
    let (mut store, journal) = open_in(Arc::new(Counting(Arc::clone(&read_bytes))), dir);
    store.decide().unwrap();
    assert_eq!((store.stored().known, store.stored().queued), (LONG_URLS as u64, LONG_URLS as u64));
    (read_bytes.load(Ordering::Relaxed), store, journal)
}

/// Without a snapshot opening reads all of the journal; with one, of its old part only what is kept for looking back.
#[test]
fn opening_reads_little_after_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut journal) = open_in(Arc::new(RealDisk), dir.path());
    let long = "x".repeat(LONG_URL_BYTES);
    for start in (0..LONG_URLS).step_by(RECORD_URLS) {
        let page = |number| format!("https://www.host-{}.example/{number}/{long}", number % 100);
        write(&mut store, &mut journal, &seeds((start..start + RECORD_URLS).map(page)));
    }
    drop((store, journal));
    let (all_bytes, mut store, mut journal) = opening_reads(dir.path());
    assert!(all_bytes >= (LONG_URLS * LONG_URL_BYTES) as u64, "{all_bytes} bytes");
    snapshot(&mut store, &mut journal).unwrap();
    drop((store, journal));
    let (bytes, mut store, _) = opening_reads(dir.path());
    eprintln!("{all_bytes} bytes read without a snapshot, {bytes} with one");
    assert!(bytes * 3 <= all_bytes, "{bytes} of {all_bytes} bytes");
    // The texts of what is due are in the queues, also when the records that they were found in are short.
    let taken = store.take(&host("www.host-7.example"), 1, false, Wall(0)).unwrap();
    assert_eq!(taken.due[0].url.as_str(), format!("https://www.host-7.example/7/{long}"));
    let known = store.look_up(&taken.due[0].url).unwrap().unwrap();
    assert_eq!(known.found.url, taken.due[0].url.as_str());
}

#[test]
fn a_hundred_thousand_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut journal) = open_in(Arc::new(RealDisk), dir.path());
    let record = seeds((0..HOSTS).map(|number| format!("https://www.host-{number}.example/")));
    let admitted = write(&mut store, &mut journal, &record);
    let more = store.decide().unwrap();
    let new = admitted.new.iter().chain(&more.new).map(|(_, count)| *count).sum::<u64>();
    assert_eq!(new, HOSTS as u64);
    let memory_bytes = store.memory_bytes();
    eprintln!("{memory_bytes} bytes for {HOSTS} hosts");
    assert!(memory_bytes <= MEMORY_BYTES_MAX, "{memory_bytes} bytes");
    for number in 0..1_000 {
        let taken = store.take(&host(&format!("www.host-{number}.example")), 8, false, Wall(0)).unwrap();
        assert_eq!(taken.due[0].url.as_str(), format!("https://www.host-{number}.example/"));
    }
    let mut hosts = 0;
    store.hosts(&mut |_| hosts += 1).unwrap();
    assert_eq!(hosts, HOSTS);
}
