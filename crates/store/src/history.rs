//! The old part of the journal, for looking back: records without what they found, compressed.
//!
//! Once everything that a segment of the [journal](crate::log) says is in a snapshot, nobody folds it again; but its records
//! are still asked for one at a time, by their places. [`shorten`] replaces such segments by files that hold only what such
//! questions need, in blocks of some hundred records:
//!
//! ```text
//! blocks without gaps, each: zstd of frames, each: u64 place, u32 length, payload
//! for each block: u64 place of its first frame, u64 offset, u32 length, u32 length unpacked, u32 CRC-32 of the block
//! u64 place behind the last frame
//! u32 number of blocks
//! u32 CRC-32 of everything behind the blocks
//! 8 bytes magic "NEPHILAH"
//! ```

use std::io;
use std::path::{Path, PathBuf};

use nephila_disk::{Disk, File, Mode};

use crate::log::read_full;
use crate::log::{Segment, segment_path, starts};
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"NEPHILAH";
const INDEX_BYTES: usize = 28;
const TAIL_BYTES: usize = 24;
/// A block is compressed when it has this many bytes.
const BLOCK_BYTES: usize = 128 << 10;
/// No block is longer, but for one record that alone is.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + FRAME_HEAD_BYTES + crate::log::FRAME_BYTES_MAX;
const LEVEL: i32 = 1;
const FRAME_HEAD_BYTES: usize = 12;

/// Replaces the segments that end at or before `before` by their short forms. `shorten` writes what is to be kept of a
/// payload, or nothing. Whatever interrupts it, every record can be read before and after.
pub fn shorten(
    disk: &dyn Disk,
    dir: &Path,
    before: u64,
    shorten: &dyn Fn(&[u8], &mut Vec<u8>),
) -> Result<()> {
    let starts = starts(disk, dir)?;
    for pair in starts.windows(2).filter(|pair| pair[1] <= before) {
        let (start, end) = (pair[0], pair[1]);
        write(disk, dir, start, end, shorten)?;
        let path = segment_path(dir, start);
        disk.remove(&path).map_err(Error::io("remove", &path))?;
    }
    Ok(())
}

fn history_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("history-{start:012x}"))
}

fn write(
    disk: &dyn Disk,
    dir: &Path,
    start: u64,
    end: u64,
    shorten: &dyn Fn(&[u8], &mut Vec<u8>),
) -> Result<()> {
    let (path, name) = (dir.join("history.new"), history_path(dir, start));
    match disk.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &path)(error));
        }
        _ => {}
    }
    let missing =
        || Error::Corrupt { path: segment_path(dir, start), place: start, what: "no whole segment" };
    let segment = Segment::open(disk, dir, start)?.ok_or_else(missing)?;
    let file = disk.open(&path, Mode::Create).map_err(Error::io("create", &path))?;
    let mut writer =
        Writer { file, path: path.clone(), offset: 0, block: Vec::new(), first: 0, index: Vec::new() };
    let read = segment.read_from(start, &mut |place, payload| writer.add(place, payload, shorten))?;
    if read != end {
        return Err(missing());
    }
    writer.finish(end)?;
    disk.rename(&path, &name).map_err(Error::io("rename", &path))?;
    disk.sync_dir(dir).map_err(Error::io("sync", dir))
}

struct Writer {
    file: Box<dyn File>,
    path: PathBuf,
    offset: u64,
    block: Vec<u8>,
    /// The place of the block's first frame.
    first: u64,
    index: Vec<u8>,
}

impl Writer {
    fn add(&mut self, place: u64, payload: &[u8], shorten: &dyn Fn(&[u8], &mut Vec<u8>)) -> Result<()> {
        if self.block.is_empty() {
            self.first = place;
        }
        let start = self.block.len();
        self.block.extend_from_slice(&place.to_le_bytes());
        self.block.extend_from_slice(&[0; 4]);
        shorten(payload, &mut self.block);
        let bytes = (self.block.len() - start - FRAME_HEAD_BYTES) as u32;
        if bytes == 0 {
            self.block.truncate(start);
        } else {
            self.block[start + 8..start + FRAME_HEAD_BYTES].copy_from_slice(&bytes.to_le_bytes());
        }
        if self.block.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<()> {
        let packed = zstd::bulk::compress(&self.block, LEVEL).map_err(Error::io("compress", &self.path))?;
        self.file.append(&packed).map_err(Error::io("write", &self.path))?;
        self.index.extend_from_slice(&self.first.to_le_bytes());
        self.index.extend_from_slice(&self.offset.to_le_bytes());
        self.index.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        self.index.extend_from_slice(&(self.block.len() as u32).to_le_bytes());
        self.index.extend_from_slice(&crc32fast::hash(&packed).to_le_bytes());
        self.offset += packed.len() as u64;
        self.block.clear();
        Ok(())
    }

    fn finish(mut self, end: u64) -> Result<()> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let blocks = (self.index.len() / INDEX_BYTES) as u32;
        self.index.extend_from_slice(&end.to_le_bytes());
        self.index.extend_from_slice(&blocks.to_le_bytes());
        let checksum = crc32fast::hash(&self.index);
        self.index.extend_from_slice(&checksum.to_le_bytes());
        self.index.extend_from_slice(&MAGIC);
        self.file.append(&self.index).map_err(Error::io("write", &self.path))?;
        self.file.sync().map_err(Error::io("sync", &self.path))
    }
}

/// Passes on what is kept of every old record before a place, in order.
pub(crate) fn read_all(
    disk: &dyn Disk,
    dir: &Path,
    before: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    for start in history_starts(disk, dir)?.into_iter().filter(|start| *start < before) {
        let history = History::read_index(disk, history_path(dir, start), start)?;
        for block in &history.blocks {
            let frames = history.unpack(block)?;
            let mut rest = &frames[..];
            while let Some((place, payload, next)) = split(rest) {
                each(place, payload)?;
                rest = next;
            }
        }
    }
    Ok(())
}

fn history_starts(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>> {
    let files = disk.list(dir).map_err(Error::io("list", dir))?;
    let start = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("history-")?;
        u64::from_str_radix(name, 16).ok()
    };
    let mut starts: Vec<u64> = files.iter().filter_map(start).collect();
    starts.sort_unstable();
    Ok(starts)
}

/// The first of the frames of a block: its place, its payload, and the others.
fn split(frames: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (head, rest) = frames.split_first_chunk::<FRAME_HEAD_BYTES>()?;
    let (payload, rest) = rest.split_at_checked(number32(head, 8) as usize)?;
    Some((number64(head, 0), payload, rest))
}

/// A file of old records, for reading.
pub(crate) struct History {
    file: Box<dyn File>,
    path: PathBuf,
    start: u64,
    end: u64,
    blocks: Vec<Block>,
}

struct Block {
    first: u64,
    offset: u64,
    bytes: u32,
    unpacked_bytes: u32,
    checksum: u32,
}

impl History {
    /// The file that holds a place, if there is one.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, place: u64) -> Result<Option<History>> {
        let starts = history_starts(disk, dir)?;
        let Some(start) = starts.into_iter().rfind(|start| *start <= place) else { return Ok(None) };
        let history = History::read_index(disk, history_path(dir, start), start)?;
        Ok(Some(history).filter(|history| history.holds(place)))
    }

    fn read_index(disk: &dyn Disk, path: PathBuf, start: u64) -> Result<History> {
        let corrupt = |what| Error::Corrupt { path: path.clone(), place: start, what };
        let file = disk.open(&path, Mode::Read).map_err(Error::io("open", &path))?;
        let length = file.len().map_err(Error::io("measure", &path))?;
        let read = |offset: u64, bytes: usize| -> Result<Vec<u8>> {
            let mut part = vec![0; bytes];
            let count = read_full(&*file, offset, &mut part).map_err(Error::io("read", &path))?;
            if count < bytes { Err(corrupt("the history is cut")) } else { Ok(part) }
        };
        let tail_at = length.checked_sub(TAIL_BYTES as u64).ok_or_else(|| corrupt("the history is cut"))?;
        let tail = read(tail_at, TAIL_BYTES)?;
        let blocks = u64::from(number32(&tail, 8));
        let index_at = tail_at.checked_sub(blocks * INDEX_BYTES as u64);
        let index_at = index_at.filter(|_| tail[16..] == MAGIC).ok_or_else(|| corrupt("it is no history"))?;
        let index = read(index_at, (tail_at - index_at) as usize + 12)?;
        if crc32fast::hash(&index) != number32(&tail, 12) {
            return Err(corrupt("the checksum of the index is wrong"));
        }
        let blocks = index[..index.len() - 12].as_chunks::<INDEX_BYTES>().0.iter().map(|entry| Block {
            first: number64(entry, 0),
            offset: number64(entry, 8),
            bytes: number32(entry, 16),
            unpacked_bytes: number32(entry, 20),
            checksum: number32(entry, 24),
        });
        let (blocks, end) = (blocks.collect(), number64(&tail, 0));
        Ok(History { file, path, start, end, blocks })
    }

    /// Whether a place is in it.
    pub(crate) fn holds(&self, place: u64) -> bool {
        (self.start..self.end).contains(&place)
    }

    fn corrupt(&self, place: u64, what: &'static str) -> Error {
        Error::Corrupt { path: self.path.clone(), place, what }
    }

    fn unpack(&self, block: &Block) -> Result<Vec<u8>> {
        let mut packed = vec![0; block.bytes as usize];
        let count =
            read_full(&*self.file, block.offset, &mut packed).map_err(Error::io("read", &self.path))?;
        if count < packed.len() || crc32fast::hash(&packed) != block.checksum {
            return Err(self.corrupt(block.first, "the checksum is wrong"));
        }
        let bytes = (block.unpacked_bytes as usize).min(BLOCK_BYTES_MAX);
        zstd::bulk::decompress(&packed, bytes).map_err(|_| self.corrupt(block.first, "it cannot be unpacked"))
    }

    /// Passes on the frames of one block from a place on, and says the place behind them.
    pub(crate) fn block(&self, from: u64, each: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<u64> {
        let at = self.blocks.partition_point(|block| block.first <= from).saturating_sub(1);
        let Some(block) = self.blocks.get(at) else { return Ok(self.end) };
        let frames = self.unpack(block)?;
        let mut rest = &frames[..];
        while let Some((place, payload, next)) = split(rest) {
            if place >= from {
                each(place, payload)?;
            }
            rest = next;
        }
        Ok(self.blocks.get(at + 1).map_or(self.end, |next| next.first))
    }

    /// What is kept of the payload at a place.
    pub(crate) fn frame(&self, place: u64, payload: &mut Vec<u8>) -> Result<()> {
        let gone = || self.corrupt(place, "nothing is kept of this record");
        let at = self.blocks.partition_point(|block| block.first <= place).checked_sub(1).ok_or_else(gone)?;
        let frames = self.unpack(&self.blocks[at])?;
        let mut rest = &frames[..];
        while let Some((found, kept, next)) = split(rest) {
            if found == place {
                payload.clear();
                payload.extend_from_slice(kept);
                return Ok(());
            }
            rest = next;
        }
        Err(gone())
    }
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    u64::from(number32(bytes, at)) | u64::from(number32(bytes, at + 4)) << 32
}
