//! What a crawl durably knows: journal, sieve and queues.
//!
//! The state of a crawl is the fold of its [records](nephila_core::record::Record) in their order. The *journal* is those
//! records, on disk, in segments ([`log`]). The *sieve* (which URLs are known) and the *queues* (which of them are due, a
//! queue a host) are that fold ([`frontier`]): on disk for any number of URLs, with what has happened lately in memory. Now
//! and then a snapshot writes down what is in memory, so that opening folds only the records behind it; older ones are kept
//! without their links, to look back at ([`history`]).
//!
//! [`Store`] is what an agent asks of a store, and what every store promises. [`EmbeddedStore`] is the one that an agent has
//! beside it. Its two halves live on two threads. [`Journal`] writes. [`EmbeddedStore`] folds what has been written and
//! answers. [`redis::RedisStore`] is one that agents share, in a Redis Cluster; what follows is about the other.
//!
//! # How to use it
//! 1. [`Store::prune`] a record, then [`Journal::append`], then [`Journal::flush`] (or [`Journal::sync`]).
//! 2. Only then [`Store::settle`], if it settles a URL, and [`Store::admit`], with the place that append gave. Whether a URL
//!    is new may be said with a later answer; [`Store::decide`] asks for all of them.
//! 3. [`Store::take`] URLs of a host; each is settled by a record or put back.
//! 4. [`EmbeddedStore::begin_snapshot`] from time to time, and at the end.
//!
//! # Invariants
//! Those of every [`Store`], and:
//! - A record that was flushed is read again after `kill -9`, and one that was synced also after a power cut; what is read is
//!   always a prefix of what was appended.
//! - After an error of an operation that changes what is in memory there is no snapshot, and no other change, until the store is
//!   opened again: what may be half done is not written down in the place of the journal.
//! - What a snapshot knows stays known even when limits are lowered; the records behind it are admitted under the limits of the
//!   day.
//! - A settled page whose capture the archive lost counts as not tried: see [`without_capture`].
//!
//! # Caveats
//! - A frame damaged in the middle of the journal ends it there, and what follows is cut off: [`EmbeddedStore::torn_bytes`] says
//!   how much, and a crash alone never costs more than what was not synced. If whole frames are cut with it, they are first
//!   kept in files named `damaged-*`: [`EmbeddedStore::is_damaged`] says so.
//! - The last snapshot, with its owner's memo, stands for the records before it: opening passes on only those behind it, unless
//!   the owner wants to look back ([`Reader`]).
//! - Where the URLs of a host or in all reach their limit, records that are folded again may be decided in another order: then a
//!   URL that was known and not tried may be kept out after a crash, and another be known in its place.
//! - Nothing here locks the directory.

mod copy;
mod embedded;
mod error;
pub mod frontier;
mod guarded;
pub mod history;
mod journal;
pub mod log;
mod log_reader;
mod recent;
pub mod redis;
mod store;

pub use copy::{EmbeddedCopy, Piece};
pub use embedded::{EmbeddedStore, Reader, StoreJob, without_capture};
pub use error::{Error, ErrorKind, Result};
pub use frontier::FrontierOptions;
pub use journal::Journal;
pub use log::FRAME_BYTES_MAX;
pub use log_reader::LogReader;
pub use store::{Cash, Exported, Known, KnownState, OwnStore, PlacedRecord, Store, StoreLimits};
