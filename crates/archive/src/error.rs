//! What can go wrong, and what a caller does about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::Pointer;
use crate::reader::ReadError;

/// Why an operation on the archive failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system said no.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A spilled body could not be read back.
    #[error("cannot read the spilled body")]
    Body(#[source] io::Error),
    /// A file does not hold what it should.
    #[error("cannot read a record of {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ReadError,
    },
    /// There is nothing to archive: no byte of a final response came.
    #[error("the capture has no response")]
    NoResponse,
    /// A record takes more bytes than a pointer can say.
    #[error("the record is longer than 4 GiB")]
    TooLong,
    /// No file of the archive has this pointer's serial and shard.
    #[error("no WARC file has serial {} of shard {}", .0.file, .0.shard)]
    NoSuchFile(Pointer),
    /// The writer's options make no sense.
    #[error("{0}")]
    Options(&'static str),
    /// A line of an index file is not CDXJ.
    #[error("{} holds a line that is not CDXJ", path.display())]
    Index {
        /// Which file.
        path: PathBuf,
    },
}

/// What a caller does about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Stop, and go on when there is room.
    DiskFull,
    /// Stop: the file system or a file is broken.
    Io,
    /// This input cannot be archived or found; others can.
    Input,
}

impl Error {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { source, .. } | Error::Body(source) => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::DiskFull,
                _ => ErrorKind::Io,
            },
            Error::Read { .. } | Error::Index { .. } => ErrorKind::Io,
            Error::NoResponse | Error::TooLong | Error::NoSuchFile(_) | Error::Options(_) => ErrorKind::Input,
        }
    }

    /// For `map_err`: adds what was tried and where.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_path_buf(), source }
    }
}
