//! The writing thread: every record that it is given comes back, however many are waiting.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nephila_core::agent::{Agent, Ticket};
use nephila_core::record::Record;
use nephila_core::time::{Mono, Now, Wall};
use nephila_disk::SimDisk;
use nephila_node::config::Config;
use nephila_node::writer::{self, Job, Writing, Written};

const NOW: Wall = Wall(1_800_000_000_000);

#[test]
fn what_waits_is_all_written() {
    // So long that no batch ends by its time.
    let config = Config { settle_delay: Duration::from_secs(3_600), ..Config::default() };
    let disk = SimDisk::new(1);
    let mut agent = Agent::new(config.settings.clone(), config.scope(&[]));
    let now = Now { mono: Mono(0), wall: NOW };
    let opened = writer::open(Arc::new(disk), Path::new("/crawl"), &config, &mut agent, now).unwrap();
    let (go_on, all_queued) = mpsc::channel();
    let (written, tickets) = mpsc::channel();
    let mut first = true;
    let writing = Writing::start(opened.writer, move |done| {
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
        assert!(writing.write(Job { ticket: *ticket, record, capture: None, attempt: None }, NOW));
    }
    go_on.send(()).unwrap();
    writing.finish().unwrap();
    assert_eq!(tickets.try_iter().collect::<Vec<_>>(), sent);
}
