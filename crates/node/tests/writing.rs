//! The writing threads: every record that they are given comes back, however many are waiting, after its capture is archived.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pages;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nephila_core::agent::{Agent, Ticket};
use nephila_core::record::{Arrived, Record};
use nephila_core::site::{AgentId, Token};
use nephila_core::time::{Mono, Now};
use nephila_disk::SimDisk;
use nephila_node::config::{Config, Durability};
use nephila_node::writer::{self, Done, Job, Opened, WriteError, Writing, Written};
use nephila_store::Store;

use pages::{NOW, captured, settled};

const DIR: &str = "/crawl";
const PAGES: u64 = 300;

fn open(disk: &SimDisk, config: &Config) -> Result<Opened, WriteError> {
    let mut agent = Agent::new(config.settings.clone(), config.scope(&[]));
    let now = Now { mono: Mono(0), wall: NOW };
    writer::open(Arc::new(disk.clone()), Path::new(DIR), config, &mut agent, now)
}

/// A page that a shard has fetched.
fn page(number: u64, shard: u16) -> Job {
    let settled = settled(format!("http://h{shard}.example/{number}"));
    let capture = captured(shard);
    let record = Box::new(Record::Settled(settled));
    Job { ticket: Ticket(number), record, capture: Some(capture), attempt: None }
}

fn shard_of(done: &Done) -> u16 {
    match &*done.record {
        Record::Settled(settled) => settled.capture.unwrap().shard,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_waits_is_all_written() {
    // So long that no batch ends by its time.
    let config = Config { settle_delay: Duration::from_secs(3_600), ..Config::default() };
    let opened = open(&SimDisk::new(1), &config).unwrap();
    let (go_on, all_queued) = mpsc::channel();
    let (written, tickets) = mpsc::channel();
    let mut first = true;
    let mut writing = Writing::start(opened.writer, opened.archives, move |done| {
        if let Written::Records(records, _) = done {
            records.into_iter().for_each(|done| written.send(done.ticket).unwrap());
        }
        if std::mem::take(&mut first) {
            all_queued.recv().unwrap();
        }
    })
    .unwrap();
    let sent: Vec<Ticket> = (0..2_000).map(Ticket).collect();
    for ticket in &sent {
        let record = Box::new(Record::RunStarted { at: NOW });
        writing.write(Job { ticket: *ticket, record, capture: None, attempt: None }, NOW);
        assert!(writing.hand_over());
    }
    go_on.send(()).unwrap();
    writing.finish().unwrap();
    assert_eq!(tickets.try_iter().collect::<Vec<_>>(), sent);
}

/// Each shard archives into files of its own, and whatever the power spares of the journal has its captures.
#[test]
fn shards_archive_before_the_journal_says_so() {
    use Durability::{Kernel, Power};
    for (seed, durability, killed) in
        [(1, Kernel, false), (2, Power, false), (3, Kernel, true), (4, Power, true)]
    {
        let config = Config { shards: 3, warc_roll_bytes: 10_000, durability, ..Config::default() };
        let disk = SimDisk::new(seed);
        let opened = open(&disk, &config).unwrap();
        let (written, records) = mpsc::channel();
        let mut writing = Writing::start(opened.writer, opened.archives, move |done| {
            if let Written::Records(records, _) = done {
                records.into_iter().for_each(|done| written.send(done).unwrap());
            }
        })
        .unwrap();
        for number in 0..PAGES {
            writing.write(page(number, (number % 3) as u16), NOW);
            assert!(number % 5 > 0 || writing.hand_over());
        }
        assert!(writing.hand_over());
        if killed {
            // In the middle of it: what was told of is there, and its captures with it.
            (0..PAGES / 2).for_each(|_| drop(records.recv().unwrap()));
            let disk = disk.kill();
            assert!(writing.finish().is_err());
            let opened = open(&disk, &config).unwrap();
            assert_eq!(opened.lost_pages, 0);
            assert!(opened.store.stored().known >= PAGES / 2);
            continue;
        }
        writing.finish().unwrap();
        let all: Vec<Done> = records.try_iter().collect();
        assert!(all.iter().all(|done| u64::from(shard_of(done)) == done.ticket.0 % 3));
        let tickets: BTreeSet<u64> = all.iter().map(|done| done.ticket.0).collect();
        assert!(tickets.into_iter().eq(0..PAGES));
        assert_eq!(open(&disk.power_cut(), &config).unwrap().lost_pages, 0);
    }
}

/// A disk that fails under one shard ends all writing, with the reason.
#[test]
fn what_other_agents_count_on_survives_a_power_cut() {
    let config = Config::default();
    assert_eq!(config.durability, Durability::Kernel);
    let arrived = Record::Arrived(Arrived {
        from: AgentId::from(2),
        site: None,
        found: Vec::new(),
        pages: Vec::new(),
        totals: Vec::new(),
    });
    let tokens = Record::Tokens(vec![(7, Token { holder: AgentId::from(1), epoch: 2 })]);
    // What was not synced is lost now and then.
    for (record, is_lost) in [(arrived, false), (tokens, false), (Record::Seeds(Vec::new()), true)] {
        let lost = (0..20).filter(|seed| {
            let disk = SimDisk::new(*seed);
            let mut writer = open(&disk, &config).unwrap().writer;
            let begin = writer.end();
            let record = Box::new(record.clone());
            writer.write(Job { ticket: Ticket(1), record, capture: None, attempt: None }, NOW).unwrap();
            assert_eq!(writer.commit().unwrap().len(), 1);
            open(&disk.power_cut(), &config).unwrap().writer.end() == begin
        });
        assert_eq!(lost.count() > 0, is_lost, "{record:?}");
    }
}

#[test]
fn a_shard_that_cannot_archive_ends_the_writing() {
    for operations in 0..40 {
        let sync_every = Duration::from_millis(1);
        let config = Config { shards: 3, sync_every, ..Config::default() };
        let disk = SimDisk::new(operations);
        let opened = open(&disk, &config).unwrap();
        disk.fail_after(operations);
        let (ended, has_ended) = mpsc::channel::<()>();
        let mut writing = Writing::start(opened.writer, opened.archives, move |_| {
            // Dropped with the thread.
            let _ = &ended;
        })
        .unwrap();
        for number in 0..PAGES {
            writing.write(page(number, (number % 3) as u16), NOW);
            // False once it is known.
            let _ = writing.hand_over();
        }
        assert!(has_ended.recv().is_err(), "nobody says anything, and the thread ends");
        let error = writing.finish().unwrap_err();
        assert!(
            matches!(error, WriteError::Archive(_) | WriteError::Journal(_) | WriteError::Log(_)),
            "{error}"
        );
    }
}
