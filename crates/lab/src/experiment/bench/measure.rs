//! What a process cost: its processor time, its memory, its time by the clock.

use std::{
    fs,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::{
    param::clock_ticks_per_second,
    process::{Pid, WaitId, WaitIdOptions, waitid},
};
use serde::Serialize;

/// How often a process that is waited for is looked at: its memory is the largest that was seen.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a process and its children cost, all threads together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Cost {
    /// Processor time in its own code.
    pub user_s: f64,
    /// Processor time in the kernel.
    pub system_s: f64,
    /// From its start to its end.
    pub wall_s: f64,
    /// The most memory it had.
    pub rss_max_mb: f64,
    /// Its exit code; -1 if a signal ended it.
    pub exit_code: i32,
}

impl Cost {
    pub(super) fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// Runs a command to its end, which has to come within `limit`.
pub(super) fn run(command: &mut Command, limit: Duration) -> anyhow::Result<Cost> {
    let program = command.get_program().to_owned();
    let begun = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
    let mut child = KilledAtEnd(child);
    let pid = Pid::from_child(&child.0);
    let mut rss_max_kb = 0;
    loop {
        // The process stays a zombie, whose figures can be read, until it is waited for below.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(pid), look)?.is_some() {
            break;
        }
        rss_max_kb = rss_max_kb.max(rss_peak_kb(pid).unwrap_or(0));
        if begun.elapsed() > limit {
            bail!("{} did not end within {limit:?}", program.display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let wall_s = begun.elapsed().as_secs_f64();
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    let (user_s, system_s) = cpu_times(&stat).context("cannot read the times of a process")?;
    let status = child.0.wait()?;
    let exit_code = status.code().unwrap_or(-1);
    Ok(Cost { user_s, system_s, wall_s, rss_max_mb: rss_max_kb as f64 / 1e3, exit_code })
}

struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        // It may have ended, and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rss_peak_kb(pid: Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// User and system time of a process and the children it has waited for, from its line in `/proc`.
fn cpu_times(stat: &str) -> Option<(f64, f64)> {
    // The name of the program, in brackets, may hold anything; the fields behind it are numbers.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<f64> =
        fields.split_ascii_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    let &[user, system, children_user, children_system] = ticks.as_slice() else { return None };
    let per_s = clock_ticks_per_second() as f64;
    Some(((user + children_user) / per_s, (system + children_system) / per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let per_s = clock_ticks_per_second();
        let stat =
            format!("12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 {} {} {} 0 20 0", 3 * per_s, 2 * per_s, per_s);
        assert_eq!(cpu_times(&stat), Some((4.0, 2.0)));
        assert_eq!(cpu_times("12 (a) S 1 2"), None);
    }

    #[test]
    fn a_process_is_measured() {
        let cost = run(Command::new("sh").args(["-c", "exit 7"]), Duration::from_secs(60)).unwrap();
        assert_eq!(cost.exit_code, 7);
        assert!(cost.wall_s > 0.0);
        assert!(run(Command::new("sh").args(["-c", "sleep 60"]), Duration::ZERO).is_err());
    }
}
