//! What happens to the agents, and when.

use std::time::Duration;

use super::ChaosOptions;
use crate::web::plan::Mix;

/// What happens to an agent. Which one is decided when it happens: one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL, and started again after so long.
    Kill { back_after: Duration },
    /// SIGSTOP, and SIGCONT after so long.
    Stop { lasts: Duration },
    /// One more agent joins.
    Join,
    /// Killed, and gone for good with its disk.
    Lose,
    /// Killed, and back when the others have forgotten it.
    Away,
    /// A primary of the store that they share is killed, and started again.
    KillPrimary,
}

/// All that will happen, in its order.
pub(super) fn faults(options: &ChaosOptions) -> Vec<(Duration, Fault)> {
    let mut mix = Mix::new(&[options.seed, 0xc4a0]);
    let span = Duration::from_secs(options.seconds);
    let mut faults = Vec::new();
    for number in 1.. {
        let at = options.kill_every * number;
        if at >= span {
            break;
        }
        let (least, most) = options.back_after;
        faults.push((at, Fault::Kill { back_after: least + (most - least).mul_f64(mix.unit()) }));
    }
    for number in 0.. {
        // In the middle of each period, and over before the end.
        let at = options.stop_every * number + options.stop_every.saturating_sub(options.stop_for) / 2;
        if at + options.stop_for >= span || !options.stops() {
            break;
        }
        faults.push((at, Fault::Stop { lasts: options.stop_for }));
    }
    if let Some(servers) = options.servers.as_ref().filter(|_| !options.takeover) {
        let times = (1..).map(|number| servers.kill_every * number).take_while(|at| *at < span);
        faults.extend(times.map(|at| (at, Fault::KillPrimary)));
    }
    if options.join {
        faults.push((span / 3, Fault::Join));
    }
    if options.lose {
        faults.push((span / 3, Fault::Lose));
    }
    if options.times_out {
        faults.push((span / 3, Fault::Away));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_the_bars_are_for() {
        let options = ChaosOptions { join: true, ..ChaosOptions::default() };
        let all = faults(&options);
        let kills = all.iter().filter(|(_, fault)| matches!(fault, Fault::Kill { .. })).count();
        let stops = all.iter().filter(|(_, fault)| matches!(fault, Fault::Stop { .. })).count();
        assert_eq!((kills, stops, all.len()), (359, 15, 375));
        assert!(all.is_sorted_by_key(|(at, _)| *at));
        for (_, fault) in &all {
            if let Fault::Kill { back_after } = fault {
                assert!((3.0..=15.0).contains(&back_after.as_secs_f64()), "{back_after:?}");
            }
        }
        assert_ne!(all, faults(&ChaosOptions { seed: 2, ..options }));
    }

    #[test]
    fn nothing_else_happens_while_hosts_are_taken_over() {
        let options =
            ChaosOptions { servers: Some(super::super::ServerFaults::default()), ..ChaosOptions::takeover() };
        let all = faults(&options);
        assert!(all.len() >= 10, "{all:?}");
        let until_back = |fault: &Fault| match fault {
            Fault::Kill { back_after } => *back_after,
            other => panic!("{other:?}"),
        };
        for pair in all.windows(2) {
            assert!(pair[0].0 + until_back(&pair[0].1) < pair[1].0, "{pair:?}");
        }
    }
}
