//! What the system knows of a process, and which processors threads run on.

use std::{fs, time::Duration};

use anyhow::Context as _;
use rustix::{
    param::clock_ticks_per_second,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

const PROCESSORS_MAX: usize = 1_024;

/// Processor time that a process has used, user and system, all threads.
pub(super) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = ticks(&stat).with_context(|| format!("{path} is not as expected"))?;
    Ok(Duration::from_secs(ticks) / u32::try_from(clock_ticks_per_second())?)
}

/// User and system time in a line of `/proc/PID/stat`. The name before them may have any character.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// How long the processors of this machine were in use, and how long they were there, in sum.
pub(super) fn machine() -> anyhow::Result<(Duration, Duration)> {
    let path = "/proc/stat";
    let stat = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let (busy, all) = machine_ticks(&stat).with_context(|| format!("{path} is not as expected"))?;
    let second = u32::try_from(clock_ticks_per_second())?;
    Ok((Duration::from_secs(busy) / second, Duration::from_secs(all) / second))
}

/// The same in the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn machine_ticks(stat: &str) -> Option<(u64, u64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().take(8);
    let ticks: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let all: u64 = ticks.iter().sum();
    Some((all - ticks.get(3)? - ticks.get(4)?, all))
}

/// Processor time that this process has used.
pub(super) fn process_cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// Processor time that this thread has used.
pub(super) fn thread_cpu() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Memory of a process that is in use now.
pub(super) fn rss_bytes(pid: u32) -> anyhow::Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The most that it ever had in use.
pub(super) fn rss_max_bytes(pid: u32) -> anyhow::Result<u64> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, field: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next());
    let kib: u64 = kib.with_context(|| format!("{path} has no {field}"))?.parse()?;
    Ok(kib * 1_024)
}

/// One processor for the web and another for who asks it: threads and processes begin where the thread that starts them is.
/// Dropped, this thread may run anywhere again.
pub(super) struct Processors {
    before: CpuSet,
    web: usize,
    other: usize,
}

impl Processors {
    /// The first two that there are; none if there is only one.
    pub(super) fn two() -> anyhow::Result<Option<Processors>> {
        let before = sched_getaffinity(None)?;
        let all: Vec<usize> = (0..PROCESSORS_MAX).filter(|cpu| before.is_set(*cpu)).take(2).collect();
        Ok(match all[..] {
            [web, other] => Some(Processors { before, web, other }),
            _ => None,
        })
    }

    /// What this thread starts from now on is with the web.
    pub(super) fn be_with_web(&self) -> anyhow::Result<()> {
        stay_on(self.web)
    }

    /// What this thread starts from now on is away from the web.
    pub(super) fn be_elsewhere(&self) -> anyhow::Result<()> {
        stay_on(self.other)
    }
}

impl Drop for Processors {
    fn drop(&mut self) {
        // What was allowed once is allowed again.
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn stay_on(processor: usize) -> anyhow::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).context("cannot choose a processor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read() {
        let stat = "7 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 99";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(ticks("7 (a) R 1"), None);
        let stat = "cpu  10 1 5 100 20 2 3 4 50 0\ncpu0 1";
        assert_eq!(machine_ticks(stat), Some((25, 145)));
        assert_eq!(machine_ticks("cpu  10 1"), None);
        let own = std::process::id();
        assert!(rss_bytes(own).unwrap() > 100_000);
        assert!(cpu(own).unwrap() < Duration::from_secs(3_600));
    }
}
