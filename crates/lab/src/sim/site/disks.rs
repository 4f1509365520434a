//! Disks of single agents that are slow or fail for a while. A process that cannot write ends, and is started again.

use std::time::Duration;

use nephila_core::time::Mono;
use nephila_node::writer::WriteError;
use nephila_store::ErrorKind;

use super::super::Promise;
use super::super::driver::Broken;
use super::super::levels::Crash;
use super::station::Station;
use super::{Happening, Sim};

/// How much longer a slow disk takes at most, in microseconds.
const SLOW_US: u64 = 3_000_000;
/// So many changes a disk that fails lets through while a process starts, at most,
const CHANGES_OPENING: u64 = 15;
/// and so many when it has started.
const CHANGES: u64 = 200;
/// Who starts a process again that could not write waits so long at most, in milliseconds.
const BACK_AFTER_MS: u64 = 20_000;

/// What is wrong with a disk.
#[derive(Default)]
pub(super) struct Trouble {
    slow_until: Mono,
    fails_until: Mono,
}

impl Station {
    /// Whether its disk fails now.
    fn fails(&self, now: Mono) -> bool {
        now <= self.trouble.fails_until && self.trouble.fails_until > Mono(0)
    }
}

impl Sim<'_> {
    /// The disk of an agent is slow for so long.
    pub(super) fn slow_disk(&mut self, index: usize, lasts: Duration) {
        self.stations[index].trouble.slow_until = self.now + lasts;
    }

    /// The disk of an agent fails for so long, after so many more changes.
    pub(super) fn fail_disk(&mut self, index: usize, changes: u64, lasts: Duration) {
        let station = &mut self.stations[index];
        station.trouble.fails_until = station.trouble.fails_until.max(self.now + lasts);
        station.disk.fail_after(changes);
        self.after(lasts, Happening::DiskWell(index));
    }

    /// A disk does not fail any more, unless it was to fail for longer.
    pub(super) fn disk_well(&mut self, index: usize) {
        let station = &self.stations[index];
        if self.now >= station.trouble.fails_until {
            station.disk.fail_after(u64::MAX);
        }
    }

    /// How much longer the disk of an agent takes now.
    pub(super) fn disk_wait(&mut self, index: usize) -> Duration {
        if self.now >= self.stations[index].trouble.slow_until {
            return Duration::ZERO;
        }
        self.reach("a slow disk waited for");
        Duration::from_micros(self.random.below(SLOW_US))
    }

    /// A process starts.
    pub(super) fn disk_opens(&mut self, index: usize) {
        if self.stations[index].fails(self.now) {
            self.stations[index].disk.fail_after(self.random.below(CHANGES_OPENING));
        }
    }

    /// It has started, and is looked at: that does not fail.
    pub(super) fn disk_rests(&self, index: usize) {
        self.stations[index].disk.fail_after(u64::MAX);
    }

    /// It was looked at.
    pub(super) fn disk_opened(&mut self, index: usize) {
        if self.stations[index].fails(self.now) {
            self.stations[index].disk.fail_after(self.random.below(CHANGES));
        }
    }

    /// A process could not start.
    pub(super) fn not_opened(&mut self, index: usize, error: &WriteError) -> Result<(), Broken> {
        self.expect_failure(index, error)?;
        self.reach("not started: failing disk");
        let station = &mut self.stations[index];
        station.life += 1;
        station.disk = station.disk.kill();
        let wait = Duration::from_millis(1_000 + self.random.below(BACK_AFTER_MS));
        self.after(wait, Happening::Restart(index));
        Ok(())
    }

    /// A process could not write: it ends by that.
    pub(super) fn disk_failed(&mut self, index: usize, error: &WriteError) -> Result<(), Broken> {
        self.expect_failure(index, error)?;
        self.reach("ended by a failing disk");
        // What could not be synced is on the disk all the same.
        self.has_kept_more = true;
        let back_after = Duration::from_millis(100 + self.random.below(BACK_AFTER_MS));
        self.crash(index, Crash::Kill, back_after);
        Ok(())
    }

    /// Only a disk that fails may be the reason, and not what is on it.
    fn expect_failure(&self, index: usize, error: &WriteError) -> Result<(), Broken> {
        let is_of_disk = match error {
            WriteError::Archive(_) | WriteError::Log(_) => true,
            WriteError::Journal(error) | WriteError::Store(error) => {
                !matches!(error.kind(), ErrorKind::Format | ErrorKind::Input)
            }
            _ => false,
        };
        if is_of_disk && self.stations[index].fails(self.now) {
            return Ok(());
        }
        Err((Promise::NothingLost, format!("agent {index} cannot go on: {error}: {error:?}")))
    }
}
