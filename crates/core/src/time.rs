//! The two kinds of time that the core is told of.
//!
//! [`Mono`] never goes back and counts suspend; every wait inside a run is measured with it. [`Wall`] is the calendar,
//! may be wrong by any amount, and appears only in what must outlive the process.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment on a clock that never goes back and counts suspend, in microseconds since a start nobody relies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mono(pub u64);

impl Mono {
    /// Later than anything that will happen.
    pub const NEVER: Mono = Mono(u64::MAX);

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;

    fn add(self, wait: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// A moment of the calendar, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wall(pub u64);

impl Wall {
    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Wall) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The same moment in another calendar, which shows `ours` when this one shows `theirs`.
    pub fn translated(self, theirs: Wall, ours: Wall) -> Wall {
        Wall(self.0.saturating_add_signed(ours.0.wrapping_sub(theirs.0) as i64))
    }
}

impl Add<Duration> for Wall {
    type Output = Wall;

    fn add(self, wait: Duration) -> Wall {
        Wall(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Wall {
    type Output = Wall;

    fn sub(self, span: Duration) -> Wall {
        Wall(self.0.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// What both clocks show at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For waits.
    pub mono: Mono,
    /// For what is written down.
    pub wall: Wall,
}

impl Now {
    /// The moment of the calendar to write down for the end of a wait: never too early, although the calendar shows whole
    /// milliseconds only.
    pub fn wall_after(self, wait: Duration) -> Wall {
        self.wall + wait + Duration::from_millis(2)
    }

    /// The moment of this run that corresponds to a written-down one. A past one is now: the calendar may have jumped,
    /// but what was due stays due.
    pub fn mono_at(self, wall: Wall) -> Mono {
        self.mono + wall.since(self.wall)
    }
}
