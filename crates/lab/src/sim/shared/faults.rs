//! What goes wrong in a site whose agents share a store, and when: drawn from the seed before the run.

use std::time::Duration;

use super::super::random::Random;
use crate::redis::simulated::SHARDS;

/// How many there are in a run.
const FAULTS: (u64, u64) = (28, 20);

/// Something that happens to a site.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// A process ends, and comes back on its archive.
    Kill { station: usize, back_after: Duration },
    /// An agent is lost with its directory: its archive, and who it was. Another one comes in its place, with an empty one.
    Lose { station: usize, back_after: Duration },
    /// A process is asked to end, and comes back.
    Stop { station: usize, back_after: Duration },
    /// A process stands still.
    Pause { station: usize, lasts: Duration },
    /// Nothing passes between two groups of agents: by their bits.
    Cut { side: u64, lasts: Duration },
    /// An agent does not reach the store.
    CutOff { station: usize, lasts: Duration },
    /// More messages are lost, and all take long.
    Storm { loss: u64, lasts: Duration },
    /// The store answers an agent slowly.
    Slow { station: usize, lasts: Duration },
    /// Some servers refuse everything.
    Refuse { shard: usize, lasts: Duration },
    /// A primary is cut off from its replica and then lost, with all that it did meanwhile.
    FailOver { shard: usize, alone_before: Duration, lasts: Duration },
    /// Connections to the store break, before or after something was done.
    Break { of_thousand: u64, lasts: Duration },
}

impl Fault {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Fault::Kill { .. } => "kill",
            Fault::Lose { .. } => "loss",
            Fault::Stop { .. } => "stop",
            Fault::Pause { .. } => "pause",
            Fault::Cut { .. } => "cut",
            Fault::CutOff { .. } => "cut off from the store",
            Fault::Storm { .. } => "storm",
            Fault::Slow { .. } => "slow store",
            Fault::Refuse { .. } => "refusing store",
            Fault::FailOver { .. } => "failover",
            Fault::Break { .. } => "broken connections to the store",
        }
    }

    /// The same for the next station that is up.
    pub(super) fn turned(mut self, stations: usize, is_up: impl Fn(usize) -> bool) -> Fault {
        if let Fault::Kill { station, .. }
        | Fault::Lose { station, .. }
        | Fault::Stop { station, .. }
        | Fault::Pause { station, .. }
        | Fault::CutOff { station, .. }
        | Fault::Slow { station, .. } = &mut self
        {
            let others = (0..stations).map(|step| (*station + step) % stations);
            *station = others.clone().find(|other| is_up(*other)).unwrap_or(*station);
        }
        self
    }

    /// How long it lasts.
    pub(super) fn lasts(&self) -> Duration {
        match self {
            Fault::Kill { back_after: lasts, .. }
            | Fault::Lose { back_after: lasts, .. }
            | Fault::Stop { back_after: lasts, .. }
            | Fault::Pause { lasts, .. }
            | Fault::Cut { lasts, .. }
            | Fault::CutOff { lasts, .. }
            | Fault::Storm { lasts, .. }
            | Fault::Slow { lasts, .. }
            | Fault::Refuse { lasts, .. }
            | Fault::FailOver { lasts, .. }
            | Fault::Break { lasts, .. } => *lasts,
        }
    }
}

/// The faults of a run and when each strikes.
pub(super) fn draw(seed: u64, stations: usize, within: Duration) -> Vec<(Duration, Fault)> {
    let mut random = Random::fork(seed, "faults of a site that shares a store");
    let count = FAULTS.0 + random.below(FAULTS.1);
    let draw = |_| {
        let at = Duration::from_millis(random.below(within.as_millis() as u64));
        let station = random.below(stations as u64) as usize;
        let shard = random.below(SHARDS as u64) as usize;
        let lasts = Duration::from_millis(
            [500, 3_000, 8_000, 90_000][random.below(4) as usize] + random.below(3_000),
        );
        let short = lasts.min(Duration::from_secs(12));
        let fault = match random.below(100) {
            0..24 => Fault::Kill { station, back_after: lasts },
            24..30 => Fault::Stop { station, back_after: lasts },
            30..48 => Fault::Pause { station, lasts },
            48..54 => Fault::Cut { side: 1 + random.below((1 << stations) - 2), lasts },
            54..62 => Fault::CutOff { station, lasts },
            62..67 => Fault::Storm { loss: 5 + random.below(60), lasts },
            67..73 => Fault::Slow { station, lasts },
            73..80 => Fault::Refuse { shard, lasts: short },
            80..92 => {
                let alone_before = Duration::from_millis([0, 300, 2_000][random.below(3) as usize]);
                Fault::FailOver {
                    shard,
                    alone_before,
                    lasts: Duration::from_millis(1_000 + random.below(5_000)),
                }
            }
            _ => Fault::Break { of_thousand: 5 + random.below(100), lasts: short },
        };
        (at, fault)
    };
    let mut faults: Vec<(Duration, Fault)> = (0..count).map(draw).collect();
    // In some runs agents are lost with what they had.
    let mut random = Random::fork(seed, "losses of a site that shares a store");
    if random.percent(40) {
        for _ in 0..1 + random.below(3) {
            let at = Duration::from_millis(random.below(within.as_millis() as u64));
            // Often before the lease of the one that was lost has ended.
            let back_after =
                Duration::from_millis([500, 60_000][random.below(2) as usize] + random.below(5_000));
            faults.push((at, Fault::Lose { station: random.below(stations as u64) as usize, back_after }));
        }
    }
    faults
}
