//! How safe something is, and what takes it away.

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Only the process knows.
    Memory,
    /// The kernel has it: a kill does not take it.
    Kernel,
    /// The disk has it: a power cut does not take it.
    Disk,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    Kill,
    Power,
}

impl Crash {
    /// Whether what is so safe is still there.
    pub(super) fn spares(self, level: Level) -> bool {
        match self {
            Crash::Kill => level >= Level::Kernel,
            Crash::Power => level >= Level::Disk,
        }
    }
}

/// Names one request of a run, over all processes.
pub(super) type Exchange = u64;
