//! A heap of blobs on disk: append-only segment files, in which blobs die and whose room comes back when all have.
//!
//! A blob is written once and read as often as one likes. Freeing it only counts: the last durable snapshot may still name
//! it, so a segment is removed by [`Heap::sweep`], once a newer snapshot is durable that names nothing in it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_disk::{Disk, File, Mode};
use serde::{Deserialize, Serialize};

use super::packing::Packer;
use crate::log::read_full;
use crate::{Error, Result};

/// A segment that has this many bytes is followed by another one.
const SEGMENT_BYTES: u64 = 64 << 20;
/// What is collected before it is handed to the kernel.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes before each blob: its checksum and its length.
const HEAD_BYTES: usize = 8;

/// Where a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Blob {
    segment: u32,
    offset: u32,
    bytes: u32,
}

impl Blob {
    /// Its room on the disk.
    pub(super) fn disk_bytes(self) -> u64 {
        u64::from(self.bytes) + HEAD_BYTES as u64
    }
}

/// What a snapshot says of a segment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct SegmentState {
    number: u32,
    bytes: u64,
    live_bytes: u64,
}

/// What may be done with the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everything.
    Write,
    /// They are read; what is appended stays in memory.
    Read,
}

struct Segment {
    /// None for what stays in memory.
    file: Option<Box<dyn File>>,
    /// Handed to the kernel.
    bytes: u64,
    live_bytes: u64,
    synced: bool,
}

/// See the module's documentation.
pub(super) struct Heap {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    name: &'static str,
    segments: BTreeMap<u32, Segment>,
    /// The segment that is written to, if there is one yet.
    open: Option<u32>,
    next: u32,
    access: Access,
    /// What follows the open segment's bytes.
    buffer: Vec<u8>,
    pub(super) packer: Packer,
    pub(super) read_bytes: std::cell::Cell<u64>,
    pub(super) written_bytes: u64,
}

impl Heap {
    /// Opens the segments that a snapshot names and removes all others of this heap.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        name: &'static str,
        states: &[SegmentState],
        access: Access,
    ) -> Result<Heap> {
        let mut heap = Heap {
            disk,
            dir: dir.to_owned(),
            name,
            segments: BTreeMap::new(),
            open: None,
            next: states.iter().map(|state| state.number + 1).max().unwrap_or(0),
            access,
            buffer: Vec::new(),
            packer: Packer::default(),
            read_bytes: std::cell::Cell::new(0),
            written_bytes: 0,
        };
        for state in states {
            let path = heap.path(state.number);
            // What is written from now on goes to segments of its own.
            let file = match heap.disk.open(&path, Mode::Read) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Error::Corrupt { path, place: 0, what: "it is missing" });
                }
                opened => opened.map_err(Error::io("open", &path))?,
            };
            let length = file.len().map_err(Error::io("measure", &path))?;
            if length < state.bytes {
                return Err(Error::Corrupt { path, place: length, what: "it is shorter than it was" });
            }
            let segment =
                Segment { file: Some(file), bytes: state.bytes, live_bytes: state.live_bytes, synced: true };
            heap.segments.insert(state.number, segment);
        }
        for path in heap.disk.list(dir).map_err(Error::io("list", dir))? {
            let number = path.file_name().and_then(|file| file.to_str()).and_then(|file| number(name, file));
            let foreign = number.is_some_and(|number| !heap.segments.contains_key(&number));
            if foreign && access == Access::Write {
                heap.disk.remove(&path).map_err(Error::io("remove", &path))?;
            }
        }
        Ok(heap)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{}-{number:08}", self.name))
    }

    /// Keeps a blob. It may be read at once, and as durable as the next snapshot makes it.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<Blob> {
        let number = self.room_for(bytes.len())?;
        let Some(segment) = self.segments.get_mut(&number) else {
            unreachable!("room_for made it");
        };
        let offset = segment.bytes + self.buffer.len() as u64;
        let blob = Blob { segment: number, offset: offset as u32, bytes: bytes.len() as u32 };
        self.buffer.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
        self.buffer.extend_from_slice(&blob.bytes.to_le_bytes());
        self.buffer.extend_from_slice(bytes);
        segment.live_bytes += blob.disk_bytes();
        self.written_bytes += blob.disk_bytes();
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(blob)
    }

    /// The segment to write to: the open one, or a new one if that is full.
    fn room_for(&mut self, bytes: usize) -> Result<u32> {
        if let Some(number) = self.open {
            let used =
                self.segments.get(&number).map_or(0, |segment| segment.bytes) + self.buffer.len() as u64;
            if used + bytes as u64 <= SEGMENT_BYTES || used == 0 || self.access == Access::Read {
                return Ok(number);
            }
            self.flush()?;
        }
        let number = self.next;
        let path = self.path(number);
        let file = match self.access {
            Access::Write => Some(self.disk.open(&path, Mode::Create).map_err(Error::io("create", &path))?),
            Access::Read => None,
        };
        self.segments.insert(number, Segment { file, bytes: 0, live_bytes: 0, synced: true });
        self.next += 1;
        self.open = Some(number);
        Ok(number)
    }

    /// Hands what was appended to the kernel. After an error nothing more can be appended to the segment.
    pub(super) fn flush(&mut self) -> Result<()> {
        let Some(number) = self.open.filter(|_| !self.buffer.is_empty()) else { return Ok(()) };
        let path = self.path(number);
        let Some(segment) = self.segments.get_mut(&number) else {
            unreachable!("the open segment is there");
        };
        let Some(file) = &mut segment.file else { return Ok(()) };
        if let Err(source) = file.append(&self.buffer) {
            // What is behind its end is nobody's; the same can be tried again.
            file.truncate(segment.bytes).map_err(Error::io("truncate", &path))?;
            return Err(Error::io("write", &path)(source));
        }
        segment.bytes += self.buffer.len() as u64;
        segment.synced = false;
        self.buffer.clear();
        Ok(())
    }

    /// Reads a blob into `bytes`, replacing what is there.
    pub(super) fn read(&self, blob: Blob, bytes: &mut Vec<u8>) -> Result<()> {
        let corrupt = |what| self.corrupt(blob, what);
        let segment = self.segments.get(&blob.segment).ok_or_else(|| corrupt("the segment is gone"))?;
        let whole = HEAD_BYTES + blob.bytes as usize;
        // What was there is not zeroed first.
        bytes.truncate(whole);
        bytes.resize(whole, 0);
        let offset = u64::from(blob.offset);
        if offset >= segment.bytes {
            let start = (offset - segment.bytes) as usize;
            let held =
                self.buffer.get(start..start + whole).ok_or_else(|| corrupt("the blob is not there"))?;
            bytes.copy_from_slice(held);
        } else if let Some(file) = &segment.file {
            let path = || self.path(blob.segment);
            let count =
                read_full(&**file, offset, bytes).map_err(|error| Error::io("read", &path())(error))?;
            if count < whole {
                return Err(corrupt("the blob is cut"));
            }
            self.read_bytes.set(self.read_bytes.get() + whole as u64);
        }
        let (checksum, _) = head(bytes);
        bytes.drain(..HEAD_BYTES);
        if crc32fast::hash(bytes) != checksum {
            return Err(corrupt("the checksum is wrong"));
        }
        Ok(())
    }

    /// A blob is not what it should be.
    pub(super) fn corrupt(&self, blob: Blob, what: &'static str) -> Error {
        Error::Corrupt { path: self.path(blob.segment), place: u64::from(blob.offset), what }
    }

    /// The blobs of a segment that is not written to any more, dead ones too, in order, each with its first bytes.
    pub(super) fn blobs<const N: usize>(&self, number: u32) -> Result<Vec<(Blob, [u8; N])>> {
        let Some(segment) = self.segments.get(&number) else { return Ok(Vec::new()) };
        let Some(file) = &segment.file else { return Ok(Vec::new()) };
        let mut blobs = Vec::new();
        let mut offset = 0;
        let mut bytes = vec![0; HEAD_BYTES + N];
        while offset < segment.bytes {
            read_full(&**file, offset, &mut bytes).map_err(Error::io("read", &self.path(number)))?;
            let blob = Blob { segment: number, offset: offset as u32, bytes: head(&bytes).1 };
            offset += blob.disk_bytes();
            blobs.extend(bytes.last_chunk().map(|first| (blob, *first)));
        }
        Ok(blobs)
    }

    /// Nobody needs this blob any more, once the next snapshot is durable.
    pub(super) fn free(&mut self, blob: Blob) {
        if let Some(segment) = self.segments.get_mut(&blob.segment) {
            segment.live_bytes = segment.live_bytes.saturating_sub(blob.disk_bytes());
        }
    }

    /// The files that a sync has to make durable: those that were written to since this was last asked. Everything must have
    /// been flushed.
    pub(super) fn begin_sync(&mut self) -> Vec<PathBuf> {
        let written = self.segments.iter_mut().filter(|(_, segment)| !segment.synced);
        let numbers: Vec<u32> = written
            .map(|(number, segment)| {
                segment.synced = true;
                *number
            })
            .collect();
        numbers.into_iter().map(|number| self.path(number)).collect()
    }

    /// What the snapshot has to say of this heap: all segments that hold something.
    pub(super) fn states(&self) -> Vec<SegmentState> {
        let live = self.segments.iter().filter(|(_, segment)| segment.live_bytes > 0);
        live.map(|(number, segment)| SegmentState {
            number: *number,
            bytes: segment.bytes,
            live_bytes: segment.live_bytes,
        })
        .collect()
    }

    /// The segments that a snapshot taken now would not name.
    pub(super) fn dead(&self) -> Vec<u32> {
        let dead = self
            .segments
            .iter()
            .filter(|(number, segment)| segment.live_bytes == 0 && self.open != Some(**number));
        dead.map(|(number, _)| *number).collect()
    }

    /// Removes segments that were [`Heap::dead`] before a snapshot that is durable now.
    pub(super) fn sweep(&mut self, dead: &[u32]) -> Result<()> {
        for number in dead {
            if self.segments.remove(number).is_some() {
                let path = self.path(*number);
                self.disk.remove(&path).map_err(Error::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// The segments to be emptied: those of which less than `percent` is alive. The open one is none of them.
    pub(super) fn sparse(&self, percent: u64) -> Vec<u32> {
        let sparse = self.segments.iter().filter(|(number, segment)| {
            self.open != Some(**number)
                && segment.live_bytes > 0
                && segment.live_bytes * 100 < segment.bytes * percent
        });
        sparse.map(|(number, _)| *number).collect()
    }

    /// Whether a blob is in one of these segments.
    pub(super) fn is_in(blob: Blob, segments: &[u32]) -> bool {
        segments.binary_search(&blob.segment).is_ok()
    }

    /// The room that it takes on the disk.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum::<u64>() + self.buffer.len() as u64
    }

    /// The part of it that is in use.
    pub(super) fn live_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.live_bytes).sum()
    }
}

/// Checksum and length.
fn head(bytes: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (number(0), number(4))
}

/// The number in the name of a segment of the heap `name`.
fn number(name: &str, file: &str) -> Option<u32> {
    file.strip_prefix(name)?.strip_prefix('-')?.parse().ok()
}
