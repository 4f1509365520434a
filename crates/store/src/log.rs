//! A log of frames in segments: written once and in order, read at any place, cut off at its old end.
//!
//! A frame's *place* is how many bytes of frames were ever written before it; it never changes, and it is what the rest of
//! the store calls a record by. A segment is a file named after the place of its first frame:
//!
//! ```text
//! 0   8 bytes  magic "NEPHILAJ"
//! 8   u32      format, FORMAT
//! 12  u64      place of the first frame
//! 20  u32      CRC-32 of the 20 bytes before
//! 24  frames without gaps, each:
//!     0  u32   length n of the payload, 1 to FRAME_BYTES_MAX
//!     4  u32   CRC-32 of: the frame's place as u64, the length as u32, the payload
//!     8  n     payload
//! ```
//!
//! The place is in the checksum so that a frame of an earlier life that a power cut left behind the end is not taken for a
//! new one. A length of 0 is never whole, so zeros are not either.
//!
//! What [`Log`] promises:
//! - [`Log::append`] only buffers; nothing may be told to anyone before a flush.
//! - After [`Log::flush`] the frames survive `kill -9`, after [`Log::sync`] a power cut.
//! - A flush that fails leaves the file at its last whole frame, keeps what was to be written and can be tried again; the
//!   places that were given out stay right.
//! - After a sync that fails nothing is accepted any more: the kernel may have dropped the pages and say yes next time.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_disk::{Disk, File, Mode};

use crate::{Error, Result};

/// The longest payload that a frame may have. Sitemaps are the longest records and stay below a third of it; long lists of
/// seeds are to be split.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Bytes before the payload of a frame.
const FRAME_HEAD_BYTES: usize = 8;
/// How many bytes are looked at, again and again where need be, in search of a whole frame behind a broken one.
const SEARCH_BYTES_MAX: u64 = 256 << 20;

const MAGIC: [u8; 8] = *b"NEPHILAJ";
pub(crate) const FORMAT: u32 = 14;
const HEAD_BYTES: usize = 24;
/// An append flushes first when this much is waiting.
const BUFFER_BYTES_MAX: usize = 8 << 20;
/// How much of a segment is read at once when one frame is: nearly all are shorter.
const FRAME_BYTES_USUAL: usize = 4 << 10;
/// How much is read at once when all is read.
const CHUNK_BYTES: usize = 1 << 20;

/// The writing half.
pub struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Box<dyn File>,
    /// The place of the open segment's first frame.
    start: u64,
    /// The place behind all that was handed to the kernel.
    flushed: u64,
    buffer: Vec<u8>,
    segment_bytes: u64,
    /// Behind what was handed over there may be a part of a write that failed.
    torn: bool,
    sync_failed: bool,
    torn_bytes: u64,
    damaged: bool,
}

/// What is whole of a log.
struct Whole {
    /// The segments that are.
    starts: Vec<u64>,
    /// The place behind the last whole frame.
    end: u64,
    /// Segments behind it.
    behind: Vec<u64>,
    /// How much there is behind it in all.
    torn_bytes: u64,
}

impl Log {
    /// Opens the log in `dir` or starts one, passes on every whole frame from `from` on, and cuts off what follows the last
    /// of them.
    pub fn open(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        from: u64,
        segment_bytes: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Log> {
        Log::open_to(disk, dir, (from, 0), segment_bytes, each)
    }

    /// The same for a log that must be whole up to a place at least: otherwise nothing is cut.
    pub(crate) fn open_to(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        (from, needed): (u64, u64),
        segment_bytes: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Log> {
        disk.create_dir_all(dir).map_err(Error::io("create", dir))?;
        let Whole { starts, end, behind, torn_bytes } = read_whole(&**disk, dir, from, each)?;
        check_end(dir, end, needed)?;
        let mut damaged = false;
        if torn_bytes > 0 {
            damaged = keep_what_is_whole(&**disk, dir, starts.last().copied(), end, &behind)?;
        }
        // What is left of it was never told to anybody.
        for start in behind {
            let path = segment_path(dir, start);
            match disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path)(error));
                }
                _ => {}
            }
        }
        let mut log = match starts.last() {
            Some(start) => {
                let path = segment_path(dir, *start);
                let mut file = disk.open(&path, Mode::Append).map_err(Error::io("open", &path))?;
                let whole = HEAD_BYTES as u64 + (end - start);
                if file.len().map_err(Error::io("measure", &path))? > whole {
                    file.truncate(whole).map_err(Error::io("truncate", &path))?;
                }
                Log::new(disk, dir, file, (*start, end), segment_bytes)
            }
            None => {
                let file = create(&**disk, dir, end)?;
                Log::new(disk, dir, file, (end, end), segment_bytes)
            }
        };
        // Otherwise a power cut could bring the old tail back behind the frames that are written now.
        log.file.sync().map_err(Error::io("sync", &segment_path(dir, log.start)))?;
        disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
        (log.torn_bytes, log.damaged) = (torn_bytes, damaged);
        Ok(log)
    }

    /// How many bytes behind the last whole frame were found when it was opened.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Whether there were whole frames among them: a damaged disk, or a power cut that took a write and spared a later one.
    /// They are kept beside the log, in files named `damaged-*`.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    fn new(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        file: Box<dyn File>,
        (start, flushed): (u64, u64),
        segment_bytes: u64,
    ) -> Log {
        Log {
            disk: disk.clone(),
            dir: dir.to_owned(),
            file,
            start,
            flushed,
            buffer: Vec::new(),
            segment_bytes,
            torn: false,
            sync_failed: false,
            torn_bytes: 0,
            damaged: false,
        }
    }

    /// The place of the next frame.
    pub fn end(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Adds a frame to what the next flush writes and says at which place it will be. An error means that it was not added.
    pub fn append(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<u64> {
        self.check()?;
        if self.buffer.len() >= BUFFER_BYTES_MAX {
            self.flush()?;
        }
        if self.end() - self.start >= self.segment_bytes {
            self.roll()?;
        }
        let (start, place) = (self.buffer.len(), self.end());
        self.buffer.extend([0; FRAME_HEAD_BYTES]);
        let filled = fill(&mut self.buffer);
        let bytes = self.buffer.len() - start - FRAME_HEAD_BYTES;
        let checked = match filled {
            Ok(()) if bytes == 0 || bytes > FRAME_BYTES_MAX => Err(Error::TooLong { bytes: bytes as u64 }),
            filled => filled,
        };
        if let Err(error) = checked {
            self.buffer.truncate(start);
            return Err(error);
        }
        let (head, payload) = self.buffer[start..].split_at_mut(FRAME_HEAD_BYTES);
        head[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
        head[4..].copy_from_slice(&frame_checksum(place, payload).to_le_bytes());
        Ok(place)
    }

    /// Ends the segment and begins another one.
    fn roll(&mut self) -> Result<()> {
        // A reader takes a segment for whole once there is another one.
        self.sync()?;
        self.file = create(&*self.disk, &self.dir, self.flushed)?;
        self.disk.sync_dir(&self.dir).map_err(Error::io("sync", &self.dir))?;
        self.start = self.flushed;
        Ok(())
    }

    fn path(&self) -> PathBuf {
        segment_path(&self.dir, self.start)
    }

    /// Hands everything to the kernel. After an error the same can be tried again.
    pub fn flush(&mut self) -> Result<()> {
        self.check()?;
        let whole = HEAD_BYTES as u64 + (self.flushed - self.start);
        if self.torn {
            self.file.truncate(whole).map_err(|error| Error::io("truncate", &self.path())(error))?;
            self.torn = false;
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Err(source) = self.file.append(&self.buffer) {
            self.torn = self.file.truncate(whole).is_err();
            return Err(Error::io("write", &self.path())(source));
        }
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Flushes, and makes everything durable.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync().map_err(|source| {
            self.sync_failed = true;
            Error::io("sync", &segment_path(&self.dir, self.start))(source)
        })
    }

    /// Removes segments of which every frame is before `place`: nobody will look back at them.
    pub fn cut(&mut self, place: u64) -> Result<()> {
        let starts = starts(&*self.disk, &self.dir)?;
        for pair in starts.windows(2).filter(|pair| pair[1] <= place && pair[0] != self.start) {
            let path = segment_path(&self.dir, pair[0]);
            self.disk.remove(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.sync_failed { Err(Error::Unsynced { path: self.path() }) } else { Ok(()) }
    }
}

/// Passes on every whole frame of the log in `dir` from `from` on, and changes nothing. It must be whole up to `needed` at least.
/// Gives back how much follows the last.
pub(crate) fn read_only_to(
    disk: &dyn Disk,
    dir: &Path,
    (from, needed): (u64, u64),
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let whole = read_whole(disk, dir, from, each)?;
    check_end(dir, whole.end, needed)?;
    Ok(whole.torn_bytes)
}

fn check_end(dir: &Path, end: u64, needed: u64) -> Result<()> {
    let what = "the journal is shorter than it was";
    if end < needed { Err(Error::Corrupt { path: dir.to_owned(), place: end, what }) } else { Ok(()) }
}

/// Cuts off whatever follows a place. Opening the log makes that durable.
pub(crate) fn cut_behind(disk: &dyn Disk, dir: &Path, end: u64) -> Result<()> {
    for start in starts(disk, dir)?.into_iter().rev() {
        let path = segment_path(dir, start);
        if start > end {
            disk.remove(&path).map_err(Error::io("remove", &path))?;
            continue;
        }
        let mut file = disk.open(&path, Mode::Append).map_err(Error::io("open", &path))?;
        let whole = HEAD_BYTES as u64 + (end - start);
        if file.len().map_err(Error::io("measure", &path))? > whole {
            file.truncate(whole).map_err(Error::io("truncate", &path))?;
        }
        break;
    }
    Ok(())
}

/// Whether there is a log in `dir`. One whose making was interrupted is none.
pub(crate) fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool> {
    for start in starts(disk, dir)? {
        if Segment::open(disk, dir, start)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The place of the first frame that the log in `dir` still has, if there is a log.
pub fn first_place(disk: &dyn Disk, dir: &Path) -> Result<Option<u64>> {
    Ok(starts(disk, dir)?.first().copied())
}

fn read_whole(
    disk: &dyn Disk,
    dir: &Path,
    from: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Whole> {
    let mut starts = starts(disk, dir)?;
    if starts.first().is_some_and(|first| *first > from) {
        let path = segment_path(dir, starts[0]);
        return Err(Error::Corrupt { path, place: from, what: "the journal before it is missing" });
    }
    if starts.is_empty() {
        check_end(dir, 0, from)?;
    }
    let mut end = from;
    let mut at = starts.partition_point(|start| *start <= from).saturating_sub(1);
    let mut torn_bytes = 0;
    while let Some(start) = starts.get(at).copied() {
        // A segment that does not begin where the last one ended was made and never written to.
        let Some(segment) = Segment::open(disk, dir, start)? else {
            check_end(dir, start, from)?;
            break;
        };
        let length = segment.file.len().map_err(Error::io("measure", &segment.path))?;
        // Who wants it from there on knows that it went so far.
        check_end(dir, start + length.saturating_sub(HEAD_BYTES as u64), from)?;
        end = segment.read_from(from.max(start), each)?;
        torn_bytes = length.saturating_sub(HEAD_BYTES as u64 + (end - start));
        at += 1;
        if starts.get(at).is_some_and(|next| *next != end) {
            break;
        }
    }
    let behind = starts.split_off(at.min(starts.len()));
    for start in &behind {
        let path = segment_path(dir, *start);
        let file = disk.open(&path, Mode::Read).map_err(Error::io("open", &path))?;
        let length = file.len().map_err(Error::io("measure", &path))?;
        torn_bytes += length.saturating_sub(HEAD_BYTES as u64);
    }
    Ok(Whole { starts, end, behind, torn_bytes })
}

/// Keeps what is behind the last whole frame, if there are whole frames in it.
fn keep_what_is_whole(
    disk: &dyn Disk,
    dir: &Path,
    last: Option<u64>,
    end: u64,
    behind: &[u64],
) -> Result<bool> {
    let mut damaged = false;
    if let Some(start) = last
        && let Some(segment) = Segment::open(disk, dir, start)?
        && segment.has_frame_behind(end)?
    {
        segment.copy_tail(disk, dir, end)?;
        damaged = true;
    }
    for start in behind {
        let whole = Segment::open(disk, dir, *start)?;
        let mut frames = 0;
        if let Some(segment) = &whole {
            segment.read_from(*start, &mut |_, _| {
                frames += 1;
                Ok(())
            })?;
        }
        if frames > 0 {
            let (from, to) = (segment_path(dir, *start), damaged_path(disk, dir, *start)?);
            disk.rename(&from, &to).map_err(Error::io("rename", &from))?;
            damaged = true;
        }
    }
    if damaged {
        // Nothing is cut before its copy has a name.
        disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
    }
    Ok(damaged)
}

/// A name for what is kept of a damaged log from a place on; those that were kept before stay.
fn damaged_path(disk: &dyn Disk, dir: &Path, place: u64) -> Result<PathBuf> {
    let taken = disk.list(dir).map_err(Error::io("list", dir))?;
    let mut path = dir.join(format!("damaged-{place:012x}"));
    let mut number = 1;
    while taken.contains(&path) {
        number += 1;
        path = dir.join(format!("damaged-{place:012x}-{number}"));
    }
    Ok(path)
}

/// How far it is from a frame with this payload to the next.
pub(crate) fn frame_bytes(payload: &[u8]) -> u64 {
    (FRAME_HEAD_BYTES + payload.len()) as u64
}

/// A segment, for reading.
pub(crate) struct Segment {
    file: Box<dyn File>,
    path: PathBuf,
    start: u64,
    /// The place behind it, if it is not written to any more.
    pub(crate) end: Option<u64>,
    /// It holds the places before this one at least.
    seen: Cell<u64>,
}

impl Segment {
    /// `None` if its making was interrupted.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, start: u64) -> Result<Option<Segment>> {
        let path = segment_path(dir, start);
        let file = disk.open(&path, Mode::Read).map_err(Error::io("open", &path))?;
        let mut found = [0; HEAD_BYTES];
        let count = read_full(&*file, 0, &mut found).map_err(Error::io("read", &path))?;
        if found == head(start) {
            return Ok(Some(Segment { file, path, start, end: None, seen: Cell::new(start) }));
        }
        let length = file.len().map_err(Error::io("measure", &path))?;
        // The head is synced before the first frame is written.
        if length <= HEAD_BYTES as u64
            && (head(start).starts_with(&found[..count]) || found.iter().all(|byte| *byte == 0))
        {
            return Ok(None);
        }
        Err(Error::NotAJournal { path })
    }

    /// Whether a place is in it: an open one may have ended meanwhile, or have grown.
    pub(crate) fn holds(&self, place: u64) -> bool {
        if let Some(end) = self.end {
            return place < end;
        }
        if place >= self.seen.get()
            && let Ok(length) = self.file.len()
        {
            self.seen.set(self.start + length.saturating_sub(HEAD_BYTES as u64));
        }
        place < self.seen.get()
    }

    pub(crate) fn frame(&self, place: u64, payload: &mut Vec<u8>) -> Result<()> {
        let corrupt = |what| Error::Corrupt { path: self.path.clone(), place, what };
        let offset = HEAD_BYTES as u64 + (place - self.start);
        let io = |source| Error::io("read", &self.path)(source);
        payload.clear();
        payload.resize(FRAME_BYTES_USUAL, 0);
        let count = read_full(&*self.file, offset, payload).map_err(io)?;
        payload.truncate(count);
        let Some(head) = payload.first_chunk::<FRAME_HEAD_BYTES>() else { return Err(corrupt("no frame")) };
        let (bytes, checksum) = split(head);
        if bytes == 0 || bytes > FRAME_BYTES_MAX {
            return Err(corrupt("no frame"));
        }
        payload.drain(..FRAME_HEAD_BYTES);
        let had = payload.len();
        payload.resize(bytes, 0);
        let mut whole = had >= bytes;
        if !whole {
            let behind = offset + (FRAME_HEAD_BYTES + had) as u64;
            whole = read_full(&*self.file, behind, &mut payload[had..]).map_err(io)? == bytes - had;
        }
        if !whole || frame_checksum(place, payload) != checksum {
            return Err(corrupt("the checksum is wrong"));
        }
        Ok(())
    }

    /// Whether more follows `place` than a write that was not finished: a whole frame somewhere behind it. As a frame's
    /// checksum covers its place, nothing else passes for one. When the search takes too long the answer is yes.
    fn has_frame_behind(&self, place: u64) -> Result<bool> {
        let rest = self.tail(place)?;
        let mut searched_bytes = 0;
        for at in 1..rest.len().saturating_sub(FRAME_HEAD_BYTES) {
            let (bytes, checksum) = split(&rest[at..]);
            let Some(payload) = rest.get(at + FRAME_HEAD_BYTES..at + FRAME_HEAD_BYTES + bytes) else {
                continue;
            };
            if payload.is_empty() {
                continue;
            }
            searched_bytes += bytes as u64;
            if searched_bytes > SEARCH_BYTES_MAX || frame_checksum(place + at as u64, payload) == checksum {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Everything from a place on. A segment is not much longer than it is meant to be.
    fn tail(&self, place: u64) -> Result<Vec<u8>> {
        let offset = HEAD_BYTES as u64 + (place - self.start);
        let length = self.file.len().map_err(Error::io("measure", &self.path))?;
        let mut rest = vec![0; length.saturating_sub(offset) as usize];
        let count = read_full(&*self.file, offset, &mut rest).map_err(Error::io("read", &self.path))?;
        rest.truncate(count);
        Ok(rest)
    }

    /// Copies everything from a place on to a file of its own, durably.
    fn copy_tail(&self, disk: &dyn Disk, dir: &Path, place: u64) -> Result<()> {
        let path = dir.join("damaged.new");
        let mut copy = disk.open(&path, Mode::Append).map_err(Error::io("create", &path))?;
        copy.truncate(0).map_err(Error::io("truncate", &path))?;
        copy.append(&self.tail(place)?).map_err(Error::io("write", &path))?;
        copy.sync().map_err(Error::io("sync", &path))?;
        disk.rename(&path, &damaged_path(disk, dir, place)?).map_err(Error::io("rename", &path))
    }

    /// Passes on every whole frame from `from` on, and says where the last one ends.
    pub(crate) fn read_from(&self, from: u64, each: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<u64> {
        let mut place = from;
        let (mut bytes, mut at) = (Vec::new(), 0);
        loop {
            let wanted = |rest: &[u8]| match rest.split_first_chunk::<FRAME_HEAD_BYTES>() {
                Some((head, _)) => match split(head).0 {
                    0 => 0,
                    length if length > FRAME_BYTES_MAX => 0,
                    length => FRAME_HEAD_BYTES + length,
                },
                None => FRAME_HEAD_BYTES,
            };
            let rest: &[u8] = bytes.get(at..).unwrap_or_default();
            let want = wanted(rest);
            if want == 0 {
                return Ok(place);
            }
            if rest.len() < want || rest.len() < FRAME_HEAD_BYTES {
                let mut more = vec![0; want.max(CHUNK_BYTES)];
                let offset = HEAD_BYTES as u64 + (place - self.start);
                let count =
                    read_full(&*self.file, offset, &mut more).map_err(Error::io("read", &self.path))?;
                if count < want {
                    return Ok(place);
                }
                more.truncate(count);
                (bytes, at) = (more, 0);
                continue;
            }
            let (head, payload) = rest[..want].split_at(FRAME_HEAD_BYTES);
            if frame_checksum(place, payload) != split(head).1 {
                return Ok(place);
            }
            each(place, payload)?;
            place += want as u64;
            at += want;
        }
    }
}

/// The checksum of the frame at `place`. The payload is one that fits into a frame.
fn frame_checksum(place: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place.to_le_bytes());
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Fills `buf` from `offset` on, as far as the file goes.
pub(crate) fn read_full(file: &dyn File, offset: u64, mut buf: &mut [u8]) -> io::Result<usize> {
    let mut total = 0;
    while !buf.is_empty() {
        let count = file.read_at(offset + total as u64, buf)?;
        if count == 0 {
            break;
        }
        total += count;
        buf = &mut buf[count..];
    }
    Ok(total)
}

fn split(head: &[u8]) -> (usize, u32) {
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    (number(0) as usize, number(4))
}

fn head(start: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..20].copy_from_slice(&start.to_le_bytes());
    let checksum = crc32fast::hash(&head[..20]);
    head[20..].copy_from_slice(&checksum.to_le_bytes());
    head
}

fn create(disk: &dyn Disk, dir: &Path, start: u64) -> Result<Box<dyn File>> {
    let path = segment_path(dir, start);
    let mut file = disk.open(&path, Mode::Append).map_err(Error::io("create", &path))?;
    file.truncate(0).map_err(Error::io("truncate", &path))?;
    file.append(&head(start)).map_err(Error::io("write", &path))?;
    file.sync().map_err(Error::io("sync", &path))?;
    Ok(file)
}

pub(crate) fn segment_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("journal-{start:012x}"))
}

/// The first places of all segments, in order.
pub(crate) fn starts(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>> {
    let files = disk.list(dir).map_err(Error::io("list", dir))?;
    let start = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("journal-")?;
        u64::from_str_radix(name, 16).ok()
    };
    let mut starts: Vec<u64> = files.iter().filter_map(start).collect();
    starts.sort_unstable();
    Ok(starts)
}
