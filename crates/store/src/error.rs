//! What can go wrong, and what a caller does about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why an operation on the store failed.
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
    /// A file has the journal's name and is something else.
    #[error("{} is not a journal of nephila: move it away, or name another directory", path.display())]
    NotAJournal {
        /// Which file.
        path: PathBuf,
    },
    /// The journal was written by another version of the program.
    #[error(
        "{} has format {found} and this nephila reads format {known}: use the version that wrote it, or another directory",
        path.display()
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The only one that this program reads.
        known: u32,
    },
    /// The crawl fetches URLs in another order.
    #[error("{} is of a crawl with `order = \"{found}\"`, which stays as it is: give it, or name another directory", path.display())]
    Order {
        /// Where it is.
        path: PathBuf,
        /// The order that it has.
        found: &'static str,
    },
    /// A record that was whole is not what it should be: a damaged disk, or a mistake of ours.
    #[error("{} is damaged at byte {place}: {what}", path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// Where the record starts.
        place: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A record takes more bytes than a frame may have.
    #[error("a record of {bytes} bytes is longer than the {} that one may have", crate::FRAME_BYTES_MAX)]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// A record cannot be encoded.
    #[error("a record cannot be encoded")]
    Encode(#[source] postcard::Error),
    /// An earlier sync failed, and the kernel does not say again what it lost.
    #[error("{} could not be synced earlier: nothing more is written until it is opened again", path.display())]
    Unsynced {
        /// Which file.
        path: PathBuf,
    },
    /// An earlier operation failed, and may have left what is in memory half changed.
    #[error("the store failed earlier ({first}): nothing more is done with it until it is opened again")]
    Failed {
        /// What was said then.
        first: String,
        /// What to do about that.
        kind: ErrorKind,
    },
    /// A server of a cluster says what it should not.
    #[error("{node}: {what}")]
    Redis {
        /// Which server.
        node: String,
        /// What it says.
        what: String,
    },
    /// A server and this agent do not trust each other.
    #[error("{node}: {what}; see `store`, `store-password`, `store-ca` and `store-certificate`")]
    Denied {
        /// Which server.
        node: String,
        /// Why not.
        what: String,
    },
    /// The cluster does not answer, or not with what it should.
    #[error("{what}, for {seconds} s")]
    Unavailable {
        /// What is missing.
        what: &'static str,
        /// For how long it was waited for.
        seconds: u64,
    },
    /// A server has no more memory.
    #[error("{node} has no more memory: raise `maxmemory`, or add servers")]
    StoreFull {
        /// Which server.
        node: String,
    },
    /// A partition is not ours, or not any more.
    #[error("partition {partition} belongs to another agent")]
    Fenced {
        /// Which one.
        partition: u16,
    },
    /// A server has lost what it had acknowledged.
    #[error("partition {partition} is not what it was: a server has lost what it had acknowledged")]
    WentBack {
        /// Which one.
        partition: u16,
    },
    /// The same, as a primary says that has its replicas: it is no old one that will hear of a newer.
    #[error(
        "{what} in the store is not what it was: a server has lost what it had acknowledged. Stop all agents, and have the \
         servers read their files again, or begin another crawl, in other directories and with another `store-name`"
    )]
    Lost {
        /// What is not.
        what: String,
    },
    /// Servers are set up so that data would be lost.
    #[error("the cluster is not safe:\n{}", wrong.join("\n"))]
    Unsafe {
        /// What to change, a line each.
        wrong: Vec<String>,
        /// It may be otherwise in a moment: replicas are missing that may be about to come.
        may_pass: bool,
    },
    /// No record is at a place.
    #[error("no record is at {place}")]
    NoRecord {
        /// The place.
        place: u64,
    },
}

/// What a caller does about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Stop, and go on when there is room.
    DiskFull,
    /// There is no crawl here.
    Missing,
    /// Stop: the file system is broken.
    Io,
    /// Stop: the file is not one that can be read.
    Format,
    /// This record cannot be written; others can.
    Input,
    /// Stop, and try again later.
    Unavailable,
    /// Stop what concerns this partition: somebody else has it.
    Fenced,
    /// Stop: the servers have to be set up otherwise.
    Setup,
}

impl Error {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { source, .. } if nephila_disk::is_full(source) => ErrorKind::DiskFull,
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => ErrorKind::Missing,
                _ => ErrorKind::Io,
            },
            Error::Unsynced { .. } => ErrorKind::Io,
            Error::Failed { kind, .. } => *kind,
            Error::NotAJournal { .. }
            | Error::Version { .. }
            | Error::Order { .. }
            | Error::Corrupt { .. } => ErrorKind::Format,
            Error::TooLong { .. } | Error::Encode(_) => ErrorKind::Input,
            Error::Redis { .. } | Error::WentBack { .. } | Error::Lost { .. } | Error::NoRecord { .. } => {
                ErrorKind::Format
            }
            Error::Unavailable { .. } => ErrorKind::Unavailable,
            Error::StoreFull { .. } => ErrorKind::DiskFull,
            Error::Fenced { .. } => ErrorKind::Fenced,
            Error::Unsafe { .. } | Error::Denied { .. } => ErrorKind::Setup,
        }
    }

    /// What whoever asks next is told.
    pub(crate) fn again(&self) -> Error {
        if let Error::Failed { first, kind } = self {
            return Error::Failed { first: first.clone(), kind: *kind };
        }
        let mut first = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            first.push_str(&format!(": {error}"));
            source = error.source();
        }
        Error::Failed { first, kind: self.kind() }
    }

    /// A server cannot be talked to.
    pub(crate) fn of_server(node: &str, error: &io::Error) -> Error {
        let (node, what) = (node.to_owned(), error.to_string());
        match error.kind() {
            // What TLS does not like is said so.
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData => Error::Denied { node, what },
            _ => Error::Redis { node, what },
        }
    }

    /// For `map_err`: adds what was tried and where.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_path_buf(), source }
    }
}

/// The result of an operation on the store.
pub type Result<T> = std::result::Result<T, Error>;
