//! WARC 1.1 in and out, and its CDXJ index. Knows nothing of crawling.
//!
//! A [`WarcWriter`] turns captures (what went over the wire) into records, one gzip member (or zstd frame) each, in files
//! named `PREFIX-TIMESTAMP-SERIAL-SHARD.warc.gz` that carry the suffix `.open` until they are finished; [`recover`] cuts open
//! files back to their last whole record after a crash. A [`Pointer`] says where a response record is; [`read_record`]
//! follows it. [`verify`] checks a whole file, [`merge`] and [`lookup`] work on the index.
//!
//! Promises:
//! - a record is in a file wholly or not at all, as far as any reader of a recovered directory can see;
//! - a record that was synced before a crash is there after it, at the same [`Pointer`];
//! - memory does not grow with the size of a body, of a file or of the index;
//! - the parsers ([`Reader`], [`CdxLine::parse`], [`http`]) take any bytes and never panic.
//!
//! Everything is written through [`nephila_disk::Disk`].

mod cdxj;
mod error;
pub mod http;
mod name;
mod pack;
mod reader;
mod record;
mod recover;
mod sha1_pair;
mod surt;
mod verify;
mod writer;

use serde::{Deserialize, Serialize};

pub use cdxj::{CdxLine, lookup, merge};
pub use error::{Error, ErrorKind};
pub use http::payload;
pub use pack::Compression;
pub use reader::{
    BLOCK_BYTES_MAX, RECORD_HEAD_BYTES_MAX, ReadError, Reader, Record, RecordHead, locate, read_record,
    read_record_of,
};
pub use record::{Capture, Content, Truncated};
pub use recover::{Recovery, Repair, recover};
pub use surt::surt;
pub use verify::{PROBLEMS_MAX, Problem, Report, verify};
pub use writer::{BUFFER_BYTES_MAX, Options, WarcWriter};

/// Where a response record is. Stays valid when its file is finished and renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pointer {
    /// The writer that wrote it: SHARD in the file's name.
    pub shard: u16,
    /// SERIAL in the file's name; each writer counts its own.
    pub file: u32,
    /// Where the record (its gzip member or zstd frame, if compressed) starts in the file.
    pub offset: u64,
    /// How many bytes of the file it takes.
    pub length: u32,
}
