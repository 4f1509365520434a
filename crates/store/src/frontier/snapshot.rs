//! A snapshot: all that the frontier has in memory, in one file that replaces the one before in one step.
//!
//! ```text
//! 0   8 bytes  magic "NEPHILAS"
//! 8   u32      format
//! 12  seven sections: the head (postcard), what is noted of hosts, URLs by host, accounts of URLs, what of them was heard and
//!     told, the owner's memo, what the sieve has noted; each in pieces of u32 length, u32 CRC-32, bytes, of which one without
//!     bytes is the last
//! ```
//!
//! All but the last section, which is the largest by far, is handed to the kernel when the snapshot is begun, so that memory
//! holds little of it; the last one while the owner goes on. All is on the disk when it is done.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_core::settings::UrlOrder;
use nephila_core::site::AgentId;
use nephila_disk::{Disk, File, Mode};
use serde::{Deserialize, Serialize};

use super::heap::SegmentState;
use super::op::Op;
use super::{hosts, ledger, sieve};
use crate::log::read_full;
use crate::{Error, Result};

const FILE_NAME: &str = "snapshot";
const NEW_NAME: &str = "snapshot.new";
const MAGIC: [u8; 8] = *b"NEPHILAS";
const FORMAT: u32 = 14;
const FILE_HEAD_BYTES: usize = 12;
const PIECE_HEAD_BYTES: usize = 8;
const PIECE_BYTES: usize = 1 << 20;

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
    pub(super) order: UrlOrder,
    pub(super) ledger_blocks: Vec<ledger::BlockState>,
    /// Cash of pages that link to nothing, and of URLs that limits keep out.
    pub(super) left_over: [u64; 2],
    pub(super) tally_blocks: Vec<ledger::BlockState>,
    /// Who was ever heard.
    pub(super) givers: Vec<AgentId>,
}

/// A snapshot on its way to the disk.
pub struct SnapshotJob {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    /// Files that must be durable first.
    pub(super) unsynced: Vec<PathBuf>,
    pub(super) dead: [Vec<u32>; 2],
    pub(super) place: u64,
    pub(crate) needed: u64,
    /// The snapshot itself, but for what the sieve has noted.
    pub(super) writing: Writing,
    pub(super) noted: Vec<Arc<Vec<Op>>>,
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
    pub fn run(mut self) -> Result<SnapshotDone> {
        let mut bytes = Vec::new();
        for ops in self.noted {
            bytes.clear();
            ops.iter().for_each(|op| op.encode(&mut bytes));
            self.writing.add(&bytes)?;
        }
        self.writing.end_section()?;
        for path in &self.unsynced {
            let mut file = self.disk.open(path, Mode::Append).map_err(Error::io("open", path))?;
            file.sync().map_err(Error::io("sync", path))?;
        }
        self.disk.sync_dir(&self.dir).map_err(Error::io("sync", &self.dir))?;
        let bytes = self.writing.bytes;
        self.writing.finish(&*self.disk, &self.dir)?;
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
    pub(super) accounts: Vec<u8>,
    pub(super) tallies: Vec<u8>,
    pub(super) memo: Vec<u8>,
}

/// A snapshot being written.
pub(super) struct Writing {
    file: Box<dyn File>,
    path: PathBuf,
    piece: Vec<u8>,
    bytes: u64,
}

impl Writing {
    /// Begins one, in the place of one that was not finished.
    pub(super) fn begin(disk: &dyn Disk, dir: &Path, head: &Head) -> Result<Writing> {
        let path = dir.join(NEW_NAME);
        match disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &path)(error));
            }
            _ => {}
        }
        let mut file = disk.open(&path, Mode::Create).map_err(Error::io("create", &path))?;
        let start = [&MAGIC[..], &FORMAT.to_le_bytes()].concat();
        file.append(&start).map_err(Error::io("write", &path))?;
        let mut writing = Writing { file, path, piece: Vec::new(), bytes: start.len() as u64 };
        writing.add(&postcard::to_stdvec(head).map_err(Error::Encode)?)?;
        writing.end_section()?;
        Ok(writing)
    }

    /// Adds to the section that is being written.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.piece.is_empty() {
                self.piece.reserve(PIECE_HEAD_BYTES + PIECE_BYTES);
                self.piece.extend_from_slice(&[0; PIECE_HEAD_BYTES]);
            }
            let room = PIECE_HEAD_BYTES + PIECE_BYTES - self.piece.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() == PIECE_HEAD_BYTES + PIECE_BYTES {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    /// Ends the section.
    pub(super) fn end_section(&mut self) -> Result<()> {
        if !self.piece.is_empty() {
            self.hand_over()?;
        }
        self.piece.extend_from_slice(&[0; PIECE_HEAD_BYTES]);
        self.hand_over()
    }

    fn hand_over(&mut self) -> Result<()> {
        let (head, bytes) = self.piece.split_at_mut(PIECE_HEAD_BYTES);
        head[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&crc32fast::hash(bytes).to_le_bytes());
        self.file.append(&self.piece).map_err(Error::io("write", &self.path))?;
        self.bytes += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// Makes it durable, and the one that counts. All sections must be written, and what they name durable.
    fn finish(mut self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        self.file.sync().map_err(Error::io("sync", &self.path))?;
        disk.rename(&self.path, &dir.join(FILE_NAME)).map_err(Error::io("rename", &self.path))?;
        disk.sync_dir(dir).map_err(Error::io("sync", dir))
    }
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
        let mut whole = Vec::new();
        loop {
            let head = next(PIECE_HEAD_BYTES as u64)?;
            let (length, checksum) = head.split_first_chunk::<4>().ok_or_else(|| senseless(dir))?;
            let piece = next(u64::from(u32::from_le_bytes(*length)))?;
            if crc32fast::hash(&piece).to_le_bytes() != *checksum {
                return Err(senseless(dir));
            }
            if piece.is_empty() {
                return Ok(whole);
            }
            whole.extend_from_slice(&piece);
        }
    };
    let head = section()?;
    let (host_ops, counts, accounts) = (section()?, section()?, section()?);
    let (tallies, memo, sieve_ops) = (section()?, section()?, section()?);
    let head = postcard::from_bytes(&head).map_err(|_| senseless(dir))?;
    Ok(Some(Snapshot { head, sieve_ops, host_ops, counts, accounts, tallies, memo }))
}

/// The snapshot is not what was written.
pub(super) fn senseless(dir: &Path) -> Error {
    let path: PathBuf = dir.join(FILE_NAME);
    Error::Corrupt { path, place: 0, what: "the snapshot makes no sense" }
}
