//! The two clocks of this machine, read together.

use std::time::{SystemTime, UNIX_EPOCH};

use nephila_core::time::{Mono, Now, Wall};
use rustix::time::{ClockId, clock_gettime};

/// What waits are measured with: it never goes back, and where the system has such a clock it counts suspend.
#[cfg(target_os = "linux")]
const MONO: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONO: ClockId = ClockId::Monotonic;

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

impl Clock {
    /// What both show now.
    pub fn now() -> Now {
        let mono = clock_gettime(MONO);
        let seconds = u64::try_from(mono.tv_sec).unwrap_or_default();
        let microseconds = u64::try_from(mono.tv_nsec).unwrap_or_default() / 1_000;
        // A calendar before 1970 is a broken one; wall time may be wrong by any amount anyway.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            mono: Mono(seconds.saturating_mul(1_000_000).saturating_add(microseconds)),
            wall: Wall(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_and_knows_the_century() {
        let first = Clock::now();
        let second = Clock::now();
        assert!(second.mono >= first.mono);
        assert!(second.mono.since(first.mono).as_secs() < 60, "microseconds were mistaken for another unit");
        let year_2020_ms = 1_577_836_800_000;
        let year_2200_ms = 7_258_118_400_000;
        assert!((year_2020_ms..year_2200_ms).contains(&second.wall.0), "{second:?}");
    }
}
