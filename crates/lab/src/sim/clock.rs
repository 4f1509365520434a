//! Clocks of agents that are wrong: each runs a little too fast or too slow, and shows what it likes.

use std::time::Duration;

use nephila_core::time::Mono;

use super::random::Random;

/// How wrong they may be, in percent.
pub(super) const DRIFT: u32 = 1;

/// How late a process may wake, in microseconds.
const LATE_US: u64 = 5_000;

/// A clock that is wrong.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// How many of its microseconds there are in a thousand.
    rate: u64,
    began: u64,
}

impl Clock {
    pub(super) fn drawn(random: &mut Random) -> Clock {
        Clock { rate: [990, 1_000, 1_010][random.below(3) as usize], began: random.below(1 << 40) }
    }

    pub(super) fn local(self, now: Mono) -> Mono {
        Mono(self.began + now.0 * self.rate / 1_000)
    }

    /// When a process wakes that wants to at this time: other things happen meanwhile. One that has to go on does so at once.
    pub(super) fn wake(self, local: Mono) -> Mono {
        let late = (local.0 ^ self.began).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.global(local) + if local.0 > 0 { Duration::from_micros(late % LATE_US) } else { Duration::ZERO }
    }

    /// The first moment when it shows this.
    pub(super) fn global(self, local: Mono) -> Mono {
        Mono((local.0.saturating_sub(self.began)).saturating_mul(1_000).div_ceil(self.rate))
    }
}
