//! What a crawl durably knows: journal, sieve and queues.
//!
//! The state of a crawl is the fold of its [records](nephila_core::record::Record) in their order. The *journal* is those
//! records, in one file. The *sieve* (which URLs are known) and the *queues* (which of them are due, a queue a host) are
//! that fold, kept in memory and rebuilt from the journal when the crawl is opened. So there is one thing to make
//! durable and nothing that could disagree with it.
//!
//! The two halves live on two threads. [`Journal`] writes. [`Store`] folds what has been written and answers; it reads the
//! texts of URLs back from the journal, where they already are, and keeps none in memory.
//!
//! # How to use it
//! 1. [`Store::prune`] a record, then [`Journal::append`], then [`Journal::flush`] (or [`Journal::sync`]).
//! 2. Only then [`Store::settle`], if it settles a URL, and [`Store::admit`], with the place that append gave.
//! 3. [`Store::take`] URLs of a host; each is settled by a record or put back.
//!
//! The record given to admit must be the one that was written, as far as its found URLs go: they are read back from where
//! they stand in it.
//!
//! # Invariants
//! - A record that was flushed is read again after `kill -9`, and one that was synced also after a power cut; what is read is
//!   always a prefix of what was appended.
//! - A URL is known once, however often it is found, and never forgotten while the limits are not lowered.
//! - A URL that is known and not settled is in exactly one of three places: due, deferred, or taken. What was taken and not
//!   settled when the process ended is due again.
//! - Opening the journal gives the same state as having lived through it, apart from what was taken.
//! - A URL that a limit keeps out is not known, and stays in the journal: opened with a higher limit, it is admitted.
//! - A settled page whose capture the archive lost counts as not tried: see [`without_capture`].
//!
//! # What it costs
//! A known URL takes 46 to 52 bytes of memory in all once there are many, whatever its length (`tests/store/scale.rs`
//! measures it), and about 60 more while it waits for its time. A host takes up to 230 bytes, its name included. In the
//! journal a URL takes its text and about 4 bytes, once, and the record of each attempt at it. Opening reads the whole
//! journal: below one second for a million URLs.
//!
//! # On its way
//! [`frontier`] is sieve and queues on disk, for any number of URLs in bounded memory, and [`log`] a journal in segments whose
//! old end can be cut off. They keep the same invariants and have the same kinds of test; `nephila lab frontier` measures them.
//! [`Store`] does not stand on them yet.
//!
//! # Caveats
//! - Everything known is in memory: `max_urls` bounds it. The journal itself is never rewritten and grows with the crawl;
//!   URLs beyond a limit are written each time they are found, because nothing in memory knows them.
//! - A frame damaged in the middle of the file ends the journal there, and what follows is cut off:
//!   [`Store::torn_bytes`] says how much, and a crash alone never costs more than what was not synced. If whole frames are
//!   cut with it, the tail is first copied to `journal.damaged-N`: [`Store::damaged`] says where.
//! - Nothing here locks the directory.

mod error;
pub mod frontier;
pub mod history;
mod journal;
pub mod log;
mod queues;
mod reader;
mod sieve;
mod store;

pub use error::{Error, ErrorKind, Result};
pub use journal::{FRAME_BYTES_MAX, Journal};
pub use store::{HostQueue, Known, KnownState, Store, StoreLimits, without_capture};
