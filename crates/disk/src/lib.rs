//! The one door to the file system that store and archive write through, and a version of it that fails.
//!
//! [`Disk`] and [`File`] are as small as the two users allow: append-only files, whole-file renames, and an explicit
//! sync for data and for names. [`RealDisk`] is the operating system. [`SimDisk`] is memory that forgets, reorders and
//! tears what was not synced, so that a test can cut the power at any moment and look at what is left.
//!
//! What a caller may rely on, on every disk:
//! - what [`File::append`] accepted survives the death of the process (`kill -9`);
//! - what was accepted before a successful [`File::sync`] survives a power cut, as long as the file's name does;
//! - a name (created, renamed or removed) survives a power cut once [`Disk::sync_dir`] on its directory succeeded;
//! - a rename happens wholly or not at all.
//!
//! Nothing else is promised: not the order of writes, not that a failed append left the file as it was.

mod real;
mod sim;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use real::RealDisk;
pub use sim::SimDisk;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// An existing file, for reading only.
    Read,
    /// For reading and appending; made if it is missing.
    Append,
    /// For reading and appending; fails with `AlreadyExists` if the name is taken.
    Create,
}

/// A file system. Shared as `Arc<dyn Disk>`.
pub trait Disk: Send + Sync {
    /// Makes the directory and its parents. One that exists is fine.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Opens a file; [`Mode`] says for what.
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn File>>;
    /// Renames a file, replacing what had the new name, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Handles that are open go on working.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The plain files directly in a directory, sorted by path. A missing directory has none.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Makes the names in a directory as durable as [`File::sync`] makes data. A rename between directories needs the
    /// sync of the directory it went to.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file. Writes only ever go to its end.
#[expect(
    clippy::len_without_is_empty,
    reason = "asking costs a system call and nobody asks only for emptiness"
)]
pub trait File: Send + Sync {
    /// Hands all of `bytes` to the kernel, or fails. After a failure any part of them may follow the old end: the caller
    /// truncates before it goes on.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Reads at an offset, as much as one call gives. 0 means the end (or an empty `buf`).
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file to a length (or grows it with zeros).
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes the data durable (fdatasync). The name needs [`Disk::sync_dir`].
    fn sync(&mut self) -> io::Result<()>;
    /// Says that nobody is going to read these bytes soon, which have been synced: they need not stay in memory.
    fn let_go(&self, bytes: Range<u64>) {
        let _ = bytes;
    }
}

/// Whether an error says that there is no room: on the disk, or in the part of it that the user may fill.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Reads a file from an offset to its end, as [`io::Read`].
pub struct Cursor {
    file: Box<dyn File>,
    offset: u64,
}

impl Cursor {
    /// Starts to read at `offset`.
    pub fn new(file: Box<dyn File>, offset: u64) -> Cursor {
        Cursor { file, offset }
    }
}

impl io::Read for Cursor {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(self.offset, buf)?;
        self.offset += count as u64;
        Ok(count)
    }
}
