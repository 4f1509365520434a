//! What goes wrong in a site, and when: drawn from the seed before the run.

use std::time::Duration;

use nephila_core::time::Mono;

use super::super::random::Random;
use super::{FAULTS_FOR, Happening, Sim};

/// How many there are in a run.
const FAULTS: (u64, u64) = (22, 20);
/// How long it takes at most to kill somebody on purpose, and to start it again.
const STRIKE_LASTS: Duration = Duration::from_secs(30);
/// How often that is done in a run. Each leads to more of what it waits for, and without an end to it some runs would be nothing
/// else, and take twenty times as long as others.
const STRIKES_MAX: u32 = 40;

/// Something that happens to a site.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// A process ends, and comes back on its disk.
    Kill { station: usize, back_after: Duration },
    /// A machine loses its power, and what its disk had not been told to keep.
    PowerCut { station: usize, back_after: Duration },
    /// A process is asked to end, and comes back.
    Stop { station: usize, back_after: Duration },
    /// An agent is lost with its disk, and forgotten; another one comes in its place.
    Lose { station: usize, back_after: Duration },
    /// A process ends and is forgotten, and comes back on its disk all the same.
    Forget { station: usize, back_after: Duration },
    /// A process stands still.
    Pause { station: usize, lasts: Duration },
    /// A disk fails for a while, after so many more changes: its process ends by that.
    FailingDisk { station: usize, changes: u64, lasts: Duration },
    /// A disk is slow.
    SlowDisk { station: usize, lasts: Duration },
    /// Nothing passes between two groups of agents: by their bits.
    Cut { side: u64, lasts: Duration },
    /// More messages are lost, and all take long.
    Storm { loss: u64, lasts: Duration },
}

impl Fault {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Fault::Kill { .. } => "kill",
            Fault::PowerCut { .. } => "power cut",
            Fault::Stop { .. } => "stop",
            Fault::Lose { .. } => "loss",
            Fault::Forget { .. } => "forgotten",
            Fault::Pause { .. } => "pause",
            Fault::FailingDisk { .. } => "failing disk",
            Fault::SlowDisk { .. } => "slow disk",
            Fault::Cut { .. } => "cut",
            Fault::Storm { .. } => "storm",
        }
    }

    /// The same for the next station that is up.
    pub(super) fn turned(mut self, stations: usize, is_up: impl Fn(usize) -> bool) -> Fault {
        if let Fault::Kill { station, .. }
        | Fault::PowerCut { station, .. }
        | Fault::Stop { station, .. }
        | Fault::Lose { station, .. }
        | Fault::FailingDisk { station, .. }
        | Fault::SlowDisk { station, .. }
        | Fault::Pause { station, .. } = &mut self
        {
            let others = (0..stations).map(|step| (*station + step) % stations);
            *station = others.clone().find(|other| is_up(*other)).unwrap_or(*station);
        }
        self
    }

    /// Whether what was counted may not count any more.
    pub(super) fn costs_something(&self) -> bool {
        use Fault::*;
        matches!(self, Lose { .. } | Forget { .. } | PowerCut { .. } | FailingDisk { .. })
    }

    /// How long it lasts.
    pub(super) fn lasts(&self) -> Duration {
        match self {
            Fault::Kill { back_after: lasts, .. }
            | Fault::PowerCut { back_after: lasts, .. }
            | Fault::Stop { back_after: lasts, .. }
            | Fault::Lose { back_after: lasts, .. }
            | Fault::Forget { back_after: lasts, .. }
            | Fault::Pause { lasts, .. }
            | Fault::FailingDisk { lasts, .. }
            | Fault::SlowDisk { lasts, .. }
            | Fault::Cut { lasts, .. }
            | Fault::Storm { lasts, .. } => *lasts,
        }
    }
}

/// The faults of a run and when each strikes.
pub(super) fn draw(seed: u64, stations: usize, within: Duration) -> Vec<(Duration, Fault)> {
    let mut random = Random::fork(seed, "faults of a site");
    let count = FAULTS.0 + random.below(FAULTS.1);
    let draw = |_| {
        let at = Duration::from_millis(random.below(within.as_millis() as u64));
        let station = random.below(stations as u64) as usize;
        let lasts = Duration::from_millis(
            [500, 5_000, 60_000, 300_000][random.below(4) as usize] + random.below(5_000),
        );
        let fault = match random.below(100) {
            0..42 => Fault::Kill { station, back_after: lasts },
            42..50 => Fault::Stop { station, back_after: lasts },
            50..70 => Fault::Pause { station, lasts },
            70..88 => Fault::Cut { side: 1 + random.below((1 << stations) - 2), lasts },
            _ => Fault::Storm { loss: 5 + random.below(60), lasts },
        };
        (at, fault)
    };
    let mut faults: Vec<(Duration, Fault)> = (0..count).map(draw).collect();
    // In some runs a disk is lost: then less can be promised.
    let mut random = Random::fork(seed, "losses of a site");
    if random.percent(25) {
        let at = Duration::from_millis(random.below(within.as_millis() as u64));
        let back_after = Duration::from_secs(30 + random.below(300));
        faults.push((at, Fault::Lose { station: random.below(stations as u64) as usize, back_after }));
    }
    // In some an agent is forgotten that comes back: then pages may be fetched again.
    let mut random = Random::fork(seed, "forgotten agents of a site");
    if random.percent(25) {
        for _ in 0..1 + random.below(3) {
            let at = Duration::from_millis(random.below(within.as_millis() as u64));
            let back_after = Duration::from_secs(25 + random.below(300));
            let station = random.below(stations as u64) as usize;
            faults.push((at, Fault::Forget { station, back_after }));
        }
    }
    let mut random = Random::fork(seed, "power cuts of a site");
    if random.percent(40) {
        for _ in 0..1 + random.below(5) {
            let at = Duration::from_millis(random.below(within.as_millis() as u64));
            // No machine comes back faster than this.
            let back_after =
                Duration::from_millis([2_000, 30_000][random.below(2) as usize] + random.below(5_000));
            let station = random.below(stations as u64) as usize;
            faults.push((at, Fault::PowerCut { station, back_after }));
        }
    }
    let mut random = Random::fork(seed, "disks of a site");
    if random.percent(50) {
        for _ in 0..1 + random.below(4) {
            let at = Duration::from_millis(random.below(within.as_millis() as u64));
            let lasts =
                Duration::from_millis([2_000, 60_000][random.below(2) as usize] + random.below(5_000));
            let (station, changes) = (random.below(stations as u64) as usize, random.below(40));
            let fault = match random.percent(60) {
                true => Fault::FailingDisk { station, changes, lasts },
                false => Fault::SlowDisk { station, lasts },
            };
            faults.push((at, fault));
        }
    }
    faults
}

impl Sim<'_> {
    /// What two agents do together is short: in so many of a hundred cases one of them is killed on purpose while they are at it.
    pub(super) fn strike_one(&mut self, from: usize, to: usize, percent: u64) {
        if self.now + STRIKE_LASTS > Mono(0) + FAULTS_FOR
            || self.strikes == STRIKES_MAX
            || !self.random.percent(percent)
        {
            return;
        }
        self.strikes += 1;
        let station = if self.random.percent(50) { from } else { to };
        let back_after = Duration::from_millis(100 + self.random.below(20_000));
        let wait = Duration::from_micros(self.random.below(60_000));
        self.after(wait, Happening::Fault(Fault::Kill { station, back_after }));
    }
}
