//! How a command ends: an exit code, and for people a message.

use std::fmt::Display;
use std::io::{self, Write};

use nephila_node::config::Mistakes;
use nephila_node::directory::DirectoryError;

/// A mistake in the command or the configuration.
pub(crate) const USAGE: u8 = 2;

/// Why a command failed, and the exit code to end with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

/// The exit code of a command that ended as it should, or why it did not.
pub(crate) type Ended = Result<u8, Failure>;

impl Failure {
    /// Something that the user can put right in the command.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure { code: USAGE, error: anyhow::anyhow!("{message}") }
    }

    /// Something that the user asked for and that cannot be done.
    pub(crate) fn refused(message: impl Display) -> Failure {
        Failure { code: 1, error: anyhow::anyhow!("{message}") }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { code: 1, error }
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Failure {
        Failure { code: USAGE, error: mistakes.into() }
    }
}

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Failure {
        Failure { code: error.exit_code(), error: error.into() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure { code: 1, error: error.into() }
    }
}

/// Writes to standard output. That nobody reads it any more (`nephila hosts | head`) is no error.
pub(crate) fn print(bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes an object as one line.
pub(crate) fn print_json(json: &serde_json::Value) -> io::Result<()> {
    print(format!("{json}\n"))
}
