//! How long to leave a server alone.
//!
//! Every wait here runs from the last byte received, or from the failure, to the next request. Nothing in this module
//! ever shortens a wait that a server asked for.

mod gate;

use std::time::Duration;

use crate::limits::WAIT_MAX;
use crate::settings::Settings;

pub use gate::{Gate, GateMemo, Gates, Turn};

/// The delay between two requests to a host: the longest of what the operator, the host's robots.txt and the host's
/// speed ask for.
pub fn delay(settings: &Settings, crawl_delay: Option<Duration>, response: Option<Duration>) -> Duration {
    let slow = response.map_or(0.0, |time| time.as_secs_f64() * settings.slow_factor);
    settings
        .delay
        .max(crawl_delay.unwrap_or_default())
        .max(Duration::try_from_secs_f64(slow).unwrap_or(WAIT_MAX))
        .min(WAIT_MAX)
}

/// The wait after the `failures`-th failure of a host in a row: doubling, bounded, with jitter that only adds.
pub fn back_off(settings: &Settings, failures: u32, jitter: &mut Jitter) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let wait = settings.backoff_min.saturating_mul(1 << doublings).min(settings.backoff_max);
    wait + jitter.up_to(wait / 10)
}

/// The smoothed response time after one more response. None takes longer than `most`: where one seems to have, it was this
/// process that stood still, which says nothing of the host.
pub fn smooth(before: Option<Duration>, took: Duration, most: Duration) -> Option<Duration> {
    match before {
        _ if took > most => before,
        None => Some(took),
        Some(before) => Some((before * 7 + took) / 8),
    }
}

/// A seeded source of small additions to waits, so that what failed together does not come back together.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// The same seed gives the same sequence.
    pub fn new(seed: u64) -> Jitter {
        Jitter(seed)
    }

    /// Something from zero to `most`, evenly spread.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        // SplitMix64: one addition and three mixing steps; good enough to spread waits.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        most.mul_f64((z ^ (z >> 31)) as f64 / u64::MAX as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_the_longest_wish() {
        let settings = Settings::default();
        let secs = Duration::from_secs;
        for (crawl_delay, response, expected) in [
            (None, None, secs(1)),
            (Some(secs(30)), None, secs(30)),
            (Some(Duration::from_millis(10)), None, secs(1)),
            (None, Some(secs(4)), secs(8)),
            (Some(secs(5)), Some(secs(4)), secs(8)),
            (Some(Duration::MAX), None, WAIT_MAX),
            (None, Some(Duration::MAX), WAIT_MAX),
        ] {
            assert_eq!(delay(&settings, crawl_delay, response), expected);
        }
        let unhurried = Settings { slow_factor: 0.0, ..settings };
        assert_eq!(delay(&unhurried, None, Some(secs(40))), secs(1));
    }

    #[test]
    fn what_a_process_slept_through_is_not_the_hosts_fault() {
        let [one, nine, most] = [1, 9, 60].map(Duration::from_secs);
        assert_eq!(smooth(None, one, most), Some(one));
        assert_eq!(smooth(Some(one), nine, most), Some(2 * one));
        assert_eq!(smooth(Some(one), most + one, most), Some(one));
        assert_eq!(smooth(None, most + one, most), None);
    }

    #[test]
    fn back_off_doubles_to_its_bound_and_jitter_only_adds() {
        let settings = Settings::default();
        let mut jitter = Jitter::new(7);
        for failures in 1..40 {
            let plain =
                Duration::from_secs(60).saturating_mul(1 << (failures - 1).min(20)).min(settings.backoff_max);
            let wait = back_off(&settings, failures, &mut jitter);
            assert!(wait >= plain && wait <= plain.mul_f64(1.1), "{failures}: {wait:?}");
        }
    }
}
