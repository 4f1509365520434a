//! A crawl that is opened again: what a crash can have done is mended, and anything else is refused with what to do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pages;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nephila_core::agent::{Agent, Ticket};
use nephila_core::record::Record;
use nephila_core::time::{Mono, Now};
use nephila_disk::{Disk, Mode, SimDisk};
use nephila_node::config::Config;
use nephila_node::fetch::Captured;
use nephila_node::writer::{self, Job, Opened, WriteError, Writer};

use pages::{NOW, captured, settled};

const DIR: &str = "/crawl";
const JOURNAL: &str = "/crawl/store/journal-000000000000";

fn open(disk: &SimDisk, refetch_missing: bool) -> Result<Opened, WriteError> {
    // Small, so that each page has a file of its own.
    let config = Config { refetch_missing, warc_roll_bytes: 1, ..Config::default() };
    let mut agent = Agent::new(config.settings.clone(), config.scope(&[]));
    let now = Now { mono: Mono(0), wall: NOW };
    writer::open(Arc::new(disk.clone()), Path::new(DIR), &config, &mut agent, now)
}

fn refused(disk: &SimDisk) -> String {
    open(disk, false).err().expect("it is refused").to_string()
}

fn lost_pages(disk: &SimDisk) -> u64 {
    open(disk, false).unwrap().lost_pages
}

fn write(writer: &mut Writer, record: Record, capture: Option<Captured>) {
    writer.write(Job { ticket: Ticket(0), record: Box::new(record), capture, attempt: None }, NOW).unwrap();
}

/// Begins a run and fetches these pages.
fn run(disk: &SimDisk, refetch_missing: bool, pages: &[&str]) -> Writer {
    let mut writer = open(disk, refetch_missing).unwrap().writer;
    write(&mut writer, Record::RunStarted { at: NOW }, None);
    // That is synced, and no page is there before.
    writer.commit().unwrap();
    for page in pages {
        let settled = settled(format!("http://a.example/{page}"));
        let capture = captured(0);
        write(&mut writer, Record::Settled(settled), Some(capture));
    }
    writer.commit().unwrap();
    writer
}

fn end(mut writer: Writer) {
    write(&mut writer, Record::RunEnded { elapsed: Duration::from_secs(1) }, None);
    writer.commit().unwrap();
    writer.close().unwrap();
}

fn warc(disk: &SimDisk, serial: u32) -> PathBuf {
    let is_it = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("-{serial:05}-000.warc.gz"));
    disk.list(&Path::new(DIR).join("archive")).unwrap().into_iter().find(is_it).expect("the file is there")
}

#[test]
fn a_missing_file_is_refused_unless_its_pages_may_be_fetched_again() {
    let disk = SimDisk::new(1);
    end(run(&disk, false, &["a", "b", "c"]));
    assert_eq!(lost_pages(&disk), 0);
    // Cut short is as bad as gone.
    let cut = warc(&disk, 0);
    disk.open(&cut, Mode::Append).unwrap().truncate(100).unwrap();
    disk.remove(&warc(&disk, 2)).unwrap();
    for _ in 0..2 {
        let error = refused(&disk);
        for part in
            ["/crawl/archive", "*-00000-000.warc*  (1 page)\n", "*-00002-000.warc*", "--refetch-missing"]
        {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("-00001-"), "{error}");
    }
    assert_eq!(open(&disk, true).unwrap().lost_pages, 2);
    // As long as they were not all fetched again, it is asked again.
    end(run(&disk, true, &["a"]));
    assert!(!refused(&disk).contains("-00000-"));
    end(run(&disk, true, &["c"]));
    assert_eq!(lost_pages(&disk), 0);
}

#[test]
fn what_a_power_cut_can_take_is_fetched_again() {
    let disk = SimDisk::new(1);
    run(&disk, false, &["a", "b"]).sync().unwrap();
    let disk = disk.kill();
    assert_eq!(lost_pages(&disk), 0);
    disk.remove(&warc(&disk, 1)).unwrap();
    assert_eq!(lost_pages(&disk), 1);
    // That stays so however many runs follow.
    end(run(&disk, false, &["c"]));
    assert_eq!(lost_pages(&disk), 1);
    // The first file had been finished, and synced, before the second was begun.
    disk.remove(&warc(&disk, 0)).unwrap();
    assert!(refused(&disk).contains("*-00000-000.warc*"));
}

/// Whatever the power cut leaves of which file, nobody is blamed for it, not even in the moment in which a run ends.
#[test]
fn no_power_cut_is_refused() {
    let mut lost = 0;
    for seed in 0..300 {
        let mut disk = SimDisk::new(seed);
        for _ in 0..3 {
            let mut writer = run(&disk, false, &["a", "b"]);
            if seed % 3 > 0 {
                write(&mut writer, Record::RunEnded { elapsed: Duration::ZERO }, None);
                writer.commit().unwrap();
            }
            if seed % 3 > 1 {
                writer.close().unwrap();
            }
            disk = disk.power_cut();
            lost += lost_pages(&disk);
        }
    }
    assert!(lost > 0, "no power cut ever took a file");
}

#[test]
fn an_archive_without_its_journal_is_refused() {
    let remove = |disk: &SimDisk| disk.remove(Path::new(JOURNAL)).unwrap();
    let empty = |disk: &SimDisk| disk.open(Path::new(JOURNAL), Mode::Append).unwrap().truncate(0).unwrap();
    for damage in [&remove as &dyn Fn(&SimDisk), &empty] {
        let disk = SimDisk::new(1);
        end(run(&disk, false, &["a"]));
        damage(&disk);
        for _ in 0..2 {
            let error = refused(&disk);
            for part in ["/crawl/archive", "put the journal back", "--fresh"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
    // That is no flag of an agent's command.
    let error = WriteError::NoJournal { archive: "/crawl/archive".into(), is_of_site: true }.to_string();
    assert!(error.contains("`out`") && !error.contains("--fresh"), "{error}");
}

/// It is not for want of writing that it cannot be used.
#[test]
fn a_damaged_store_says_so() {
    let disk = SimDisk::new(1);
    end(run(&disk, false, &["a"]));
    let mut file = disk.open(Path::new(JOURNAL), Mode::Append).unwrap();
    file.truncate(0).unwrap();
    file.append(&[b'x'; 100]).unwrap();
    assert!(refused(&disk).starts_with("cannot use the store of the crawl"), "{}", refused(&disk));
    // What the disk did to it nobody can put right by another command.
    let corrupt = nephila_store::Error::Corrupt { path: JOURNAL.into(), place: 7, what: "a wrong checksum" };
    let error = WriteError::Store(corrupt).to_string();
    assert!(error.contains("--fresh"), "{error}");
}
