//! The journal: the records of a crawl in one file, written once and in order.
//!
//! Layout, numbers little-endian:
//!
//! ```text
//! 0   8 bytes  magic "NEPHILAJ"
//! 8   u32      format, now 1
//! 12  u32      CRC-32 of the 12 bytes before
//! 16  frames without gaps, each:
//!     0  u32   length n of the payload, 1 to FRAME_BYTES_MAX
//!     4  u32   CRC-32 of: the frame's place as u64, the length as u32, the payload
//!     8  n     payload: the record in postcard
//! ```
//!
//! The place of a record is the offset of its frame. The place is in the checksum so that a frame of an earlier life that
//! a power cut left behind the end is not taken for a new one. A length of 0 is never whole, so zeros are not either.
//!
//! What [`Journal`] promises:
//! - [`Journal::append`] only buffers; nothing may be told to anyone before a flush.
//! - After [`Journal::flush`] the records survive `kill -9`, after [`Journal::sync`] a power cut.
//! - A flush that fails leaves the file at its last whole frame, keeps what was to be written and can be tried again; the
//!   places that were given out stay right.
//! - After a sync that fails nothing is accepted any more: the kernel may have dropped the pages and say yes next time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_core::record::Record;
use nephila_disk::{Disk, File, Mode};

use crate::{Error, Result};

/// The name of the journal in a crawl's directory.
pub(crate) const FILE_NAME: &str = "journal";
/// The longest payload that a frame may have. Sitemaps are the longest records and stay below a third of it; long lists of
/// seeds are to be split.
pub const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A journal's places fit into 48 bits.
pub(crate) const JOURNAL_BYTES_MAX: u64 = 1 << 48;
/// Bytes before the payload of a frame.
pub(crate) const FRAME_HEAD_BYTES: usize = 8;
/// Bytes before the first frame.
pub(crate) const FILE_HEAD_BYTES: usize = 16;
/// An append flushes first when this much is waiting.
const BUFFER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How many damaged tails are kept at most. Each is the work of a broken disk, so that nobody has many.
const TAILS_MAX: u32 = 1_000;
/// How much of a tail is copied at once.
const COPY_BYTES: usize = 1024 * 1024;
/// What the buffer keeps when it is empty.
const BUFFER_BYTES_KEPT: usize = 256 * 1024;

const MAGIC: [u8; 8] = *b"NEPHILAJ";
const FORMAT: u32 = 1;

/// The writing half of the store.
pub struct Journal {
    file: Box<dyn File>,
    path: PathBuf,
    buffer: Vec<u8>,
    flushed_bytes: u64,
    /// Behind `flushed_bytes` there may be a part of a write that failed.
    torn: bool,
    sync_failed: bool,
}

impl Journal {
    /// Opens the journal of a directory, or makes one. [`Journal::start_at`] must follow.
    pub(crate) fn open(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Journal> {
        disk.create_dir_all(dir).map_err(Error::io("create", dir))?;
        let path = dir.join(FILE_NAME);
        let mut file = disk.open(&path, Mode::Append).map_err(Error::io("open", &path))?;
        if is_unborn(&*file, &path)? {
            file.truncate(0).map_err(Error::io("truncate", &path))?;
            file.append(&file_head()).map_err(Error::io("write", &path))?;
        }
        let flushed_bytes = file.len().map_err(Error::io("read", &path))?;
        Ok(Journal { file, path, buffer: Vec::new(), flushed_bytes, torn: false, sync_failed: false })
    }

    /// Copies what follows the last whole frame to a file of its own, durably, and says to which.
    pub(crate) fn keep_tail(&self, whole_bytes: u64, disk: &Arc<dyn Disk>, dir: &Path) -> Result<PathBuf> {
        let (mut copy, path) = create_tail(disk, dir)?;
        if let Err(source) = self.copy_tail(whole_bytes, &mut *copy) {
            // Half a copy is of no use. If it cannot be removed either, the next one gets another name.
            let _ = disk.remove(&path);
            return Err(Error::io("write", &path)(source));
        }
        disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
        Ok(path)
    }

    fn copy_tail(&self, whole_bytes: u64, copy: &mut dyn File) -> io::Result<()> {
        let mut piece = vec![0; COPY_BYTES];
        let mut offset = whole_bytes;
        loop {
            let count = read_full(&*self.file, offset, &mut piece)?;
            if count == 0 {
                return copy.sync();
            }
            copy.append(&piece[..count])?;
            offset += count as u64;
        }
    }

    /// Cuts what follows the last whole frame, and makes that and the file's name durable: otherwise a power cut could
    /// bring the old tail back behind the frames that are written now.
    pub(crate) fn start_at(&mut self, whole_bytes: u64, disk: &Arc<dyn Disk>, dir: &Path) -> Result<()> {
        if whole_bytes < self.flushed_bytes {
            self.file.truncate(whole_bytes).map_err(Error::io("truncate", &self.path))?;
            self.flushed_bytes = whole_bytes;
        }
        self.file.sync().map_err(Error::io("sync", &self.path))?;
        disk.sync_dir(dir).map_err(Error::io("sync", dir))
    }

    /// Adds a record to what the next flush writes and says at which place it will be. An error means that it was not
    /// added.
    pub fn append(&mut self, record: &Record) -> Result<u64> {
        self.check()?;
        if self.buffer.len() >= BUFFER_BYTES_MAX {
            self.flush()?;
        }
        let start = self.buffer.len();
        let place = self.len();
        match encode(&mut self.buffer, place, record) {
            Ok(()) => Ok(place),
            Err(error) => {
                self.buffer.truncate(start);
                Err(error)
            }
        }
    }

    /// Hands everything to the kernel. After an error the same can be tried again.
    pub fn flush(&mut self) -> Result<()> {
        self.check()?;
        if self.torn {
            self.file.truncate(self.flushed_bytes).map_err(Error::io("truncate", &self.path))?;
            self.torn = false;
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Err(source) = self.file.append(&self.buffer) {
            self.torn = self.file.truncate(self.flushed_bytes).is_err();
            return Err(Error::io("write", &self.path)(source));
        }
        self.flushed_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Ok(())
    }

    /// Flushes, and makes everything durable.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync().map_err(|source| {
            self.sync_failed = true;
            Error::io("sync", &self.path)(source)
        })
    }

    /// The length of the journal in bytes, with what is not flushed yet: the place of the next record.
    #[expect(clippy::len_without_is_empty, reason = "it always has its head")]
    pub fn len(&self) -> u64 {
        self.flushed_bytes + self.buffer.len() as u64
    }

    fn check(&self) -> Result<()> {
        if self.sync_failed { Err(Error::Unsynced { path: self.path.clone() }) } else { Ok(()) }
    }
}

/// Makes the file that the next damaged tail is kept in.
fn create_tail(disk: &Arc<dyn Disk>, dir: &Path) -> Result<(Box<dyn File>, PathBuf)> {
    let mut number = 1;
    loop {
        let path = dir.join(format!("{FILE_NAME}.damaged-{number}"));
        match disk.open(&path, Mode::Create) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < TAILS_MAX => number += 1,
            Err(error) => return Err(Error::io("create", &path)(error)),
        }
    }
}

/// Appends the frame of a record to `buffer`; after an error its tail is undefined.
fn encode(buffer: &mut Vec<u8>, place: u64, record: &Record) -> Result<()> {
    let start = buffer.len();
    buffer.extend([0; FRAME_HEAD_BYTES]);
    postcard::to_io(record, &mut *buffer).map_err(Error::Encode)?;
    let bytes = buffer.len() - start - FRAME_HEAD_BYTES;
    if bytes > FRAME_BYTES_MAX || place + bytes as u64 >= JOURNAL_BYTES_MAX {
        return Err(Error::TooLong { bytes: bytes as u64 });
    }
    let (head, payload) = buffer[start..].split_at_mut(FRAME_HEAD_BYTES);
    let (length, checksum) = head.split_at_mut(4);
    length.copy_from_slice(&(bytes as u32).to_le_bytes());
    checksum.copy_from_slice(&frame_checksum(place, payload).to_le_bytes());
    Ok(())
}

/// The checksum of the frame at `place`. The payload is one that fits into a frame.
pub(crate) fn frame_checksum(place: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place.to_le_bytes());
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

fn file_head() -> [u8; FILE_HEAD_BYTES] {
    head_with_format(FORMAT)
}

fn head_with_format(format: u32) -> [u8; FILE_HEAD_BYTES] {
    let mut head = [0; FILE_HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&format.to_le_bytes());
    let checksum = crc32fast::hash(&head[..12]);
    head[12..].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// Checks the head of the file. True if there is none yet: the file is empty, or its making was interrupted.
pub(crate) fn is_unborn(file: &dyn File, path: &Path) -> Result<bool> {
    let mut bytes = [0; FILE_HEAD_BYTES + 1];
    let count = read_full(file, 0, &mut bytes).map_err(Error::io("read", path))?;
    let head = &bytes[..count.min(FILE_HEAD_BYTES)];
    if head == file_head() {
        return Ok(false);
    }
    // The head is synced before the first frame is written, so a file without one has nothing behind it either.
    if count <= FILE_HEAD_BYTES && (file_head().starts_with(head) || head.iter().all(|byte| *byte == 0)) {
        return Ok(true);
    }
    let format = head.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    match format {
        Some(found) if head == head_with_format(found) => {
            Err(Error::Version { path: path.to_path_buf(), found, known: FORMAT })
        }
        _ => Err(Error::NotAJournal { path: path.to_path_buf() }),
    }
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

#[cfg(test)]
mod tests {
    use nephila_disk::SimDisk;

    use super::*;

    fn open_over(bytes: &[u8]) -> (Arc<dyn Disk>, Result<Journal>) {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let dir = Path::new("/crawl");
        disk.create_dir_all(dir).unwrap();
        disk.open(&dir.join(FILE_NAME), Mode::Create).unwrap().append(bytes).unwrap();
        let journal = Journal::open(&disk, dir);
        (disk, journal)
    }

    #[test]
    fn a_head_that_was_interrupted_is_written_again() {
        let head = file_head();
        for bytes in [&[][..], &head[..1], &head[..15], &head, &[0; 3], &[0; 16]] {
            let (disk, journal) = open_over(bytes);
            assert_eq!(journal.unwrap().len(), FILE_HEAD_BYTES as u64);
            let file = disk.open(Path::new("/crawl/journal"), Mode::Read).unwrap();
            let mut read = [0; FILE_HEAD_BYTES];
            assert_eq!(read_full(&*file, 0, &mut read).unwrap(), FILE_HEAD_BYTES);
            assert_eq!(read, head, "{bytes:?}");
            assert_eq!(file.len().unwrap(), FILE_HEAD_BYTES as u64);
        }
    }

    #[test]
    fn files_that_are_not_ours_are_left_alone() {
        let newer = head_with_format(FORMAT + 1);
        let mut wrong_checksum = file_head();
        wrong_checksum[15] ^= 1;
        for (bytes, message) in [
            (&b"dear diary"[..], "/crawl/journal is not a journal of nephila: move it away"),
            (&[0; 17], "is not a journal"),
            (&wrong_checksum, "is not a journal"),
            (&newer, "has format 2 and this nephila reads format 1: use the version that wrote it"),
        ] {
            let (disk, journal) = open_over(bytes);
            let error = journal.err().unwrap();
            assert!(error.to_string().contains(message), "{error}");
            assert_eq!(error.kind(), crate::ErrorKind::Format);
            let file = disk.open(Path::new("/crawl/journal"), Mode::Read).unwrap();
            let mut read = vec![0; bytes.len() + 1];
            assert_eq!(read_full(&*file, 0, &mut read).unwrap(), bytes.len());
            assert_eq!(&read[..bytes.len()], bytes);
        }
    }
}
