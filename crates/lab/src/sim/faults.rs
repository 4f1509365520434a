//! What goes wrong, and when: drawn from the seed before the run.

use std::time::Duration;

use super::levels::Crash;
use super::random::Random;

/// Steps of the driver within which faults strike; most runs have more.
const STEPS: u64 = 900;

/// Something that happens to a process.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// It ends between two steps.
    Crash(Crash),
    /// It ends in the middle of what it writes, this many changes of the disk later.
    CrashInWrite(Crash, u64),
    /// The disk has only so much room left, for so long.
    DiskFull(u64, Duration),
    /// The operator stops it.
    Stop,
    /// The operator pauses it for so long.
    Pause(Duration),
    /// The operator blocks one of the hosts for so long.
    Block(u64, Duration),
}

impl Fault {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Fault::Crash(Crash::Kill) => "kill",
            Fault::Crash(Crash::Power) => "power cut",
            Fault::CrashInWrite(Crash::Kill, _) => "kill while writing",
            Fault::CrashInWrite(Crash::Power, _) => "power cut while writing",
            Fault::DiskFull(..) => "disk full",
            Fault::Stop => "stop",
            Fault::Pause(_) => "pause",
            Fault::Block(..) => "block",
        }
    }
}

/// The faults of a run and the step before which each strikes, in order.
pub(super) fn draw(seed: u64) -> Vec<(u64, Fault)> {
    let mut random = Random::fork(seed, "faults");
    let count = 3 + random.below(4);
    // Only runs without power cuts may compress: how long a compressed record is depends on chance that is not the seed's.
    let power = random.percent(60);
    let mut faults: Vec<(u64, Fault)> = (0..count)
        .map(|_| {
            // Half of them early, when most is going on.
            let steps = if random.percent(50) { STEPS / 4 } else { STEPS };
            let at = random.below(steps);
            let crash = if power && random.percent(60) { Crash::Power } else { Crash::Kill };
            let fault = match random.below(100) {
                0..30 => Fault::Crash(crash),
                30..58 => Fault::CrashInWrite(crash, random.below(12)),
                58..70 => Fault::DiskFull(random.below(6_000), Duration::from_secs(1 + random.below(600))),
                70..78 => Fault::Stop,
                78..84 => Fault::Pause(Duration::from_secs(random.below(300))),
                _ => Fault::Block(random.next(), Duration::from_secs(random.below(300))),
            };
            (at, fault)
        })
        .collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

/// Whether what happens depends on how long records are: then they must not be compressed.
pub(super) fn depend_on_sizes(faults: &[(u64, Fault)]) -> bool {
    faults.iter().any(|(_, fault)| match fault {
        Fault::Crash(crash) => *crash == Crash::Power,
        Fault::CrashInWrite(..) | Fault::DiskFull(..) => true,
        Fault::Stop | Fault::Pause(_) | Fault::Block(..) => false,
    })
}
