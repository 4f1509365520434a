//! Why a run could not begin or go on, and what a process that ends with it says.

use std::net::SocketAddr;
use std::path::PathBuf;

use nephila_core::agent::StopReason;

use crate::fetch::SetupError;
use crate::places::PlacesError;
use crate::writer::WriteError;
use crate::{directory, dns};

/// Why a run could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum CrawlError {
    /// The runtime could not be started.
    #[error("cannot start")]
    Start(#[source] std::io::Error),
    /// The process may not open enough.
    #[error(
        "the process may have {usable} descriptors, and needs {needed}: raise the limit (`ulimit -n`, or LimitNOFILE of a service)"
    )]
    Descriptors {
        /// How many it may have.
        usable: usize,
        /// How many it needs at least.
        needed: usize,
    },
    /// The means to fetch could not be set up.
    #[error("cannot set up fetching")]
    Fetch(#[from] SetupError),
    /// Names could not be resolved at all.
    #[error(transparent)]
    Dns(#[from] dns::SetupError),
    /// Nobody can say where addresses are.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// The directory for large bodies could not be made.
    #[error("cannot make {}", .0.display())]
    Spill(PathBuf, #[source] std::io::Error),
    /// A large body could not be kept.
    #[error("cannot keep a large body in {}", .0.display())]
    Unkept(PathBuf, #[source] std::io::Error),
    /// The control socket could not be opened.
    #[error("cannot listen on the control socket")]
    Control(#[source] std::io::Error),
    /// Nobody can be told the figures.
    #[error("cannot serve figures on {0}: choose another address with --metrics, or `metrics` in a file")]
    Metrics(SocketAddr, #[source] std::io::Error),
    /// Nothing can be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The index could not be written.
    #[error("cannot write the index of the archive")]
    Index(#[source] nephila_archive::Error),
    /// The store of the site is not there, or not to be trusted.
    #[error("cannot use the store that the agents share")]
    Shared(#[source] nephila_store::Error),
    /// The crawl is not in the store of the site, or not all of it.
    #[error("{0}")]
    NotHere(String),
    /// The directory could not be brought up to date.
    #[error(transparent)]
    Directory(#[from] directory::DirectoryError),
}

impl CrawlError {
    /// The exit code of a process that ends with it: 4 if room on the disk would help, like a run that filled the disk.
    pub fn exit_code(&self) -> u8 {
        let disk_full = match self {
            CrawlError::Directory(error) => return error.exit_code(),
            // It is what a setting says that is wrong.
            CrawlError::Places(_) | CrawlError::Fetch(SetupError::Bind(..)) => return 2,
            CrawlError::Write(error) => error.is_disk_full(),
            CrawlError::Index(error) => error.kind() == nephila_archive::ErrorKind::DiskFull,
            CrawlError::Start(error)
            | CrawlError::Control(error)
            | CrawlError::Spill(_, error)
            | CrawlError::Unkept(_, error) => nephila_disk::is_full(error),
            CrawlError::Shared(error) => error.kind() == nephila_store::ErrorKind::DiskFull,
            CrawlError::Descriptors { .. }
            | CrawlError::Fetch(_)
            | CrawlError::Dns(_)
            | CrawlError::Metrics(..)
            | CrawlError::NotHere(_) => false,
        };
        if disk_full { StopReason::DiskFull.exit_code() } else { StopReason::Error.exit_code() }
    }
}
