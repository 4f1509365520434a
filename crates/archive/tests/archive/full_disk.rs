//! A full disk: a clear error, nothing torn, and on it goes when there is room.

use std::path::PathBuf;
use std::sync::Arc;

use nephila_archive::{Compression, ErrorKind, WarcWriter, read_record, verify};
use nephila_disk::{Disk, SimDisk};

use crate::samples::{check_dir, noise, options, plain, time};

/// How many captures of which size, a roll length, and the room that the disk has at first.
const CASES: &[(u64, usize, u64, u64)] = &[
    (40, 1000, 1 << 30, 20_000),
    // Rolls hit the limit while they write an index.
    (40, 1000, 3000, 20_000),
    (40, 1000, 3000, 21_000),
    (40, 1000, 3000, 22_000),
    // Bodies that are written ahead.
    (5, 1_500_000, 1 << 30, 5_000_000),
    (5, 1_500_000, 1 << 30, 5_600_000),
];

#[test]
fn a_full_disk_tears_nothing() {
    for (captures, body_bytes, roll_bytes, capacity) in CASES {
        let sim = SimDisk::new(1);
        sim.set_capacity(*capacity);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let dir = PathBuf::from("/warc");
        let (mut writer, _) =
            WarcWriter::open(Arc::clone(&disk), dir.clone(), options(*roll_bytes, Compression::Gzip))
                .unwrap();
        let mut kept = Vec::new();
        let mut failures = 0;
        for count in 0..*captures {
            let body = noise(*body_bytes, count);
            let sample = plain(&format!("http://example.com/{count}"), &body);
            for attempt in 0..3 {
                let result = sample.append(&mut writer, time(0)).and_then(|pointer| {
                    // The capture stays in the buffer if only this fails.
                    kept.push((sample.archived.clone(), pointer));
                    writer.flush()
                });
                let Err(error) = result else { break };
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
                failures += 1;
                for path in disk.list(&dir).unwrap() {
                    let report =
                        path.extension().filter(|ext| *ext == "open").map(|_| verify(&*disk, &path).unwrap());
                    let torn = report.is_some_and(|report| report.records > 0 && !report.is_ok());
                    assert!(!torn, "{} is torn", path.display());
                }
                if kept.last().is_some_and(|(archived, _)| *archived == sample.archived) {
                    // Was appended: only the flush is to be repeated.
                    sim.set_capacity(u64::MAX);
                    writer.flush().unwrap();
                    break;
                }
                if attempt == 1 {
                    sim.set_capacity(u64::MAX);
                }
            }
        }
        assert!(failures > 0, "the disk was never full");
        writer.close().unwrap();
        check_dir(&disk, &dir);
        assert_eq!(kept.len() as u64, *captures);
        for (archived, pointer) in &kept {
            assert!(read_record(&*disk, &dir, pointer).unwrap().block == *archived);
        }
    }
}

/// A process that stops at a full disk is started again: still full, then with room.
#[test]
fn a_new_process_goes_on_when_there_is_room() {
    let sim = SimDisk::new(1);
    sim.set_capacity(10_000);
    let dir = PathBuf::from("/warc");
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (mut writer, _) = WarcWriter::open(disk, dir.clone(), options(1 << 30, Compression::Gzip)).unwrap();
    let mut kept = Vec::new();
    for count in 0.. {
        let sample = plain(&format!("http://example.com/{count}"), &noise(900, count));
        let pointer = sample.append(&mut writer, time(0)).unwrap();
        if writer.flush().is_err() {
            break;
        }
        kept.push((sample.archived, pointer));
    }
    assert!(!kept.is_empty());
    let sim = sim.kill();
    sim.set_capacity(sim.used_bytes());
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let error =
        WarcWriter::open(Arc::clone(&disk), dir.clone(), options(1 << 30, Compression::Gzip)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::DiskFull);
    sim.set_capacity(u64::MAX);
    let (_, recovery) =
        WarcWriter::open(Arc::clone(&disk), dir.clone(), options(1 << 30, Compression::Gzip)).unwrap();
    check_dir(&disk, &dir);
    for (archived, pointer) in &kept {
        assert!(recovery.holds(pointer));
        assert!(read_record(&*disk, &dir, pointer).unwrap().block == *archived);
    }
}
