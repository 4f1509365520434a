//! What a million URLs and a hundred thousand hosts cost.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nephila_core::record::Record;
use nephila_core::time::Wall;
use nephila_disk::{Disk, RealDisk};
use nephila_store::{Journal, Store};

use crate::samples::*;

const URLS: usize = 1_000_000;
/// Enough to see what opening costs without making the tests slow.
const OPENED_URLS: usize = 200_000;
const RECORD_URLS: usize = 1_000;
const HOSTS: usize = 100_000;
/// Promised in the crate's documentation.
const URL_BYTES_MAX: f64 = 64.0;
/// Of a host with one URL, that URL included.
const HOST_BYTES_MAX: f64 = 300.0;

fn open_in(dir: &Path) -> (Store, Journal) {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    Store::open(disk, dir, NO_LIMITS, &|_| true, &mut |_, _| {}).unwrap()
}

fn batch(start: usize) -> Record {
    let page =
        |number| found(&format!("https://www.host-{}.example/section/page-{number}.html", number % 100), 1);
    Record::Seeds((start..start + RECORD_URLS).map(page).collect())
}

#[test]
fn a_million_urls() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut journal) = open_in(dir.path());
    let mut url_bytes_max = 0.0_f64;
    let begun = Instant::now();
    for start in (0..URLS).step_by(RECORD_URLS) {
        let record = batch(start);
        write(&mut store, &mut journal, &record);
        // Tables are emptiest just after they have grown, so the worst is somewhere on the way.
        if store.known_urls() >= 100_000 {
            url_bytes_max = url_bytes_max.max(store.memory_bytes() as f64 / store.known_urls() as f64);
        }
    }
    let admitted = begun.elapsed();
    assert_eq!(store.known_urls(), URLS as u64);
    let url_bytes = store.memory_bytes() as f64 / URLS as f64;
    assert!(url_bytes_max <= URL_BYTES_MAX, "{url_bytes_max} bytes a URL");

    let begun = Instant::now();
    let mut taken = 0;
    for number in (0..100).cycle().take(2_000) {
        taken +=
            store.take(&host(&format!("www.host-{number}.example")), 8, false, Wall(0)).unwrap().due.len();
    }
    assert_eq!(taken, 16_000);
    eprintln!(
        "{url_bytes:.1} bytes a URL at the end, {url_bytes_max:.1} at worst; {URLS} written and admitted in \
         {admitted:.2?}, {taken} taken in {:.2?}",
        begun.elapsed()
    );
}

#[test]
fn opening_reads_everything_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut journal) = open_in(dir.path());
    for start in (0..OPENED_URLS).step_by(RECORD_URLS) {
        write(&mut store, &mut journal, &batch(start));
    }
    drop((store, journal));
    let begun = Instant::now();
    let (store, journal) = open_in(dir.path());
    eprintln!("{OPENED_URLS} opened in {:.2?}, {} bytes of journal", begun.elapsed(), journal.len());
    assert_eq!((store.known_urls(), store.queued()), (OPENED_URLS as u64, OPENED_URLS as u64));
}

#[test]
fn a_hundred_thousand_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut journal) = open_in(dir.path());
    let record = seeds((0..HOSTS).map(|number| format!("https://www.host-{number}.example/")));
    let admitted = write(&mut store, &mut journal, &record);
    assert_eq!(admitted.new.len(), HOSTS);
    let host_bytes = store.memory_bytes() as f64 / HOSTS as f64;
    eprintln!("{host_bytes:.1} bytes a host");
    assert!(host_bytes <= HOST_BYTES_MAX, "{host_bytes} bytes a host");
    // One URL of a long record costs one small read, not the whole record.
    for number in 0..1_000 {
        let taken = store.take(&host(&format!("www.host-{number}.example")), 8, false, Wall(0)).unwrap();
        assert_eq!(taken.due[0].url.as_str(), format!("https://www.host-{number}.example/"));
    }
}
