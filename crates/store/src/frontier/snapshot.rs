//! A snapshot: all that the frontier has in memory, in one file that replaces the one before in one step.
//!
//! ```text
//! 0   8 bytes  magic "NEPHILAS"
//! 8   u32      format, now 2
//! 12  five sections, each: u64 length, u32 CRC-32, bytes
//!     the head (postcard), what the sieve has noted, what is noted of hosts, URLs by host, the owner's memo
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_disk::{Disk, Mode};
use serde::{Deserialize, Serialize};

use super::heap::SegmentState;
use super::{hosts, sieve};
use crate::log::read_full;
use crate::{Error, Result};

const FILE_NAME: &str = "snapshot";
const NEW_NAME: &str = "snapshot.new";
const MAGIC: [u8; 8] = *b"NEPHILAS";
const FORMAT: u32 = 2;
const FILE_HEAD_BYTES: usize = 12;
const SECTION_HEAD_BYTES: usize = 12;

/// What the snapshot says of everything on the heaps.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) place: u64,
    pub(super) secret: u64,
    pub(super) known: u64,
    pub(super) settled: u64,
    /// The limits, and what they kept out: depth, pages of a host, URLs.
    pub(super) limits: [u64; 3],
    pub(super) over: [u64; 3],
    pub(super) kept_out_from: u64,
    pub(super) kept_out_end: u64,
    pub(super) blocks: Vec<SegmentState>,
    pub(super) chunks: Vec<SegmentState>,
    pub(super) sieve_blocks: Vec<sieve::BlockState>,
    pub(super) host_blocks: Vec<hosts::BlockState>,
    pub(super) hosts: u64,
}

/// A snapshot on its way to the disk.
pub struct SnapshotJob {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    /// Files that must be durable first.
    pub(super) unsynced: Vec<PathBuf>,
    pub(super) dead: [Vec<u32>; 2],
    pub(super) place: u64,
    pub(super) needed: u64,
    pub(super) head: Head,
    pub(super) rest: [Vec<u8>; 4],
}

/// A snapshot that is durable.
pub struct SnapshotDone {
    pub(super) dead: [Vec<u32>; 2],
    pub(super) bytes: u64,
    /// The place that it was taken at: opening folds the records from here on.
    pub place: u64,
    /// Records before this place are not needed any more, but to look back.
    pub needed: u64,
}

impl SnapshotJob {
    /// Makes everything that the snapshot names durable, and then the snapshot.
    pub fn run(self) -> Result<SnapshotDone> {
        for path in &self.unsynced {
            let mut file = self.disk.open(path, Mode::Append).map_err(Error::io("open", path))?;
            file.sync().map_err(Error::io("sync", path))?;
        }
        self.disk.sync_dir(&self.dir).map_err(Error::io("sync", &self.dir))?;
        let bytes = write(&*self.disk, &self.dir, &self.head, self.rest.each_ref().map(|part| &part[..]))?;
        Ok(SnapshotDone { dead: self.dead, needed: self.needed, bytes, place: self.place })
    }
}

/// What was written down.
#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) head: Head,
    pub(super) sieve_ops: Vec<u8>,
    pub(super) host_ops: Vec<u8>,
    pub(super) counts: Vec<u8>,
    pub(super) memo: Vec<u8>,
}

/// Writes a snapshot, durably, and says how long it is. What it names must be durable already.
pub(super) fn write(disk: &dyn Disk, dir: &Path, head: &Head, rest: [&[u8]; 4]) -> Result<u64> {
    let path = dir.join(NEW_NAME);
    match disk.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &path)(error));
        }
        _ => {}
    }
    let mut file = disk.open(&path, Mode::Create).map_err(Error::io("create", &path))?;
    let head = postcard::to_stdvec(head).map_err(Error::Encode)?;
    let mut bytes = Vec::with_capacity(FILE_HEAD_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    let mut written = bytes.len() as u64;
    file.append(&bytes).map_err(Error::io("write", &path))?;
    for section in [&head[..], rest[0], rest[1], rest[2], rest[3]] {
        let mut section_head = Vec::with_capacity(SECTION_HEAD_BYTES);
        section_head.extend_from_slice(&(section.len() as u64).to_le_bytes());
        section_head.extend_from_slice(&crc32fast::hash(section).to_le_bytes());
        file.append(&section_head).map_err(Error::io("write", &path))?;
        file.append(section).map_err(Error::io("write", &path))?;
        written += (SECTION_HEAD_BYTES + section.len()) as u64;
    }
    file.sync().map_err(Error::io("sync", &path))?;
    let name = dir.join(FILE_NAME);
    disk.rename(&path, &name).map_err(Error::io("rename", &path))?;
    disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
    Ok(written)
}

/// Reads the snapshot of a directory, if there is one.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Snapshot>> {
    let path = dir.join(FILE_NAME);
    let file = match disk.open(&path, Mode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", &path)(error)),
    };
    let length = file.len().map_err(Error::io("measure", &path))?;
    let mut offset = 0;
    let mut next = |bytes: u64| -> Result<Vec<u8>> {
        if bytes > length - offset {
            return Err(senseless(dir));
        }
        let mut part = vec![0; bytes as usize];
        let count = read_full(&*file, offset, &mut part).map_err(Error::io("read", &path))?;
        offset += bytes;
        if count < part.len() { Err(senseless(dir)) } else { Ok(part) }
    };
    let head = next(FILE_HEAD_BYTES as u64)?;
    if head[..8] != MAGIC {
        return Err(senseless(dir));
    }
    let found = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    if found != FORMAT {
        return Err(Error::Version { path: path.clone(), found, known: FORMAT });
    }
    let mut section = || -> Result<Vec<u8>> {
        let head = next(SECTION_HEAD_BYTES as u64)?;
        let (bytes, checksum) = head.split_first_chunk::<8>().ok_or_else(|| senseless(dir))?;
        let section = next(u64::from_le_bytes(*bytes))?;
        if crc32fast::hash(&section).to_le_bytes() != *checksum {
            return Err(senseless(dir));
        }
        Ok(section)
    };
    let head = section()?;
    let (sieve_ops, host_ops, counts, memo) = (section()?, section()?, section()?, section()?);
    let head = postcard::from_bytes(&head).map_err(|_| senseless(dir))?;
    Ok(Some(Snapshot { head, sieve_ops, host_ops, counts, memo }))
}

/// The snapshot is not what was written.
pub(super) fn senseless(dir: &Path) -> Error {
    let path: PathBuf = dir.join(FILE_NAME);
    Error::Corrupt { path, place: 0, what: "the snapshot makes no sense" }
}
