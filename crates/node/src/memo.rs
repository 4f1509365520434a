//! What is written down with each snapshot of the store, so that a start need not read what happened before it.

use std::collections::BTreeMap;

use nephila_archive::Recovery;
use nephila_core::agent::{Agent, AgentMemo, Kept};
use nephila_core::record::{Failure, Pointer, Record, Settled};
use nephila_core::settings::Private;
use nephila_core::site::Partitions;
use nephila_core::time::Now;
use nephila_store::Reader;
use serde::{Deserialize, Serialize};

use crate::lost_pages::LostPages;
use crate::writer::pointer_of;

/// How far into each WARC file, named by shard and serial, the records of the store point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pointed(BTreeMap<(u16, u32), u64>);

impl Pointed {
    /// A durable record names this capture.
    pub fn see(&mut self, record: &Record) {
        let pointer = match record {
            Record::Settled(settled) => settled.capture,
            Record::Robots(robots) => robots.capture,
            _ => None,
        };
        if let Some(pointer) = pointer {
            self.see_pointer(&pointer);
        }
    }

    fn see_pointer(&mut self, pointer: &Pointer) {
        let end = self.0.entry((pointer.shard, pointer.file)).or_default();
        *end = (*end).max(pointer.offset.saturating_add(pointer.length.into()));
    }

    /// The highest serial of a shard.
    pub fn serial_max(&self, shard: u16) -> Option<u32> {
        self.0.range((shard, 0)..=(shard, u32::MAX)).next_back().map(|((_, serial), _)| *serial)
    }

    fn are_held_by(&self, archive: &Recovery) -> bool {
        self.0.iter().all(|((shard, file), end)| archive.reaches(*shard, *file, *end))
    }
}

/// See the module's documentation.
#[derive(Serialize, Deserialize)]
pub(crate) struct Memo {
    agent: AgentMemo,
    pointed: Pointed,
    /// Which private addresses might be asked.
    private: String,
}

impl Memo {
    /// To be written down.
    pub(crate) fn encode(agent: AgentMemo, pointed: Pointed, private: &Private) -> Vec<u8> {
        let memo = Memo { agent, pointed, private: in_words(private) };
        postcard::to_stdvec(&memo).expect("numbers, text and lists of them can be encoded")
    }
}

fn in_words(private: &Private) -> String {
    format!("{private:?}")
}

/// Brings an agent to where the store is when the store is opened.
pub(crate) struct Replay<'a> {
    pub(crate) agent: &'a mut Agent,
    pub(crate) now: Now,
    /// The archive, unless nothing is to be done about what it has lost.
    pub(crate) archive: Option<&'a Recovery>,
    pub(crate) pointed: Pointed,
    pub(crate) lost: LostPages,
    /// What may be asked has changed since the last snapshot.
    private_changed: bool,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(agent: &'a mut Agent, now: Now, archive: Option<&'a Recovery>) -> Replay<'a> {
        Replay {
            agent,
            now,
            archive,
            pointed: Pointed::default(),
            lost: LostPages::default(),
            private_changed: false,
        }
    }
}

impl Reader for Replay<'_> {
    fn memo(&mut self, memo: &[u8]) -> Option<bool> {
        let Memo { agent, pointed, private } = postcard::from_bytes(memo).ok()?;
        self.private_changed = private != in_words(&self.agent.settings().private);
        let looks_back = match self.archive {
            Some(archive) => self.private_changed || !pointed.are_held_by(archive),
            None => false,
        };
        self.agent.remember(agent);
        self.pointed = pointed;
        Some(looks_back)
    }

    fn holds(&mut self, pointer: &Pointer) -> bool {
        self.pointed.see_pointer(pointer);
        let Some(archive) = self.archive else { return true };
        let held = archive.holds(&pointer_of(pointer));
        self.lost.see_pointer(pointer, held);
        held
    }

    /// The operator may have allowed the address since.
    fn forgives(&self, failure: Failure) -> bool {
        failure == Failure::PrivateAddress && self.private_changed
    }

    fn open(&self) -> Option<&Partitions> {
        self.agent.open_partitions()
    }

    fn replay(&mut self, place: u64, record: &Record, kept: &mut Kept<'_>) {
        self.lost.see_record(record);
        self.agent.replay(self.now, place, record, kept);
    }

    fn look_back(&mut self, _: u64, record: &Record, was: Option<&Settled>, kept: &mut Kept<'_>) {
        self.lost.see_record(record);
        if let Some(was) = was {
            self.agent.take_back(self.now, was, kept);
        }
    }
}
