//! The end of a run: why it comes, and when.

use std::time::Duration;

use super::{Action, Agent};
use crate::time::{Mono, Now};

/// When nothing is due for this long, or in a site nothing was fetched, what was offered and not decided is decided: it may cost
/// a store seconds, and something new may be among it.
const IDLE_MIN: Duration = Duration::from_secs(5);

/// The wish to end, and until when what is in flight may go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping {
    pub(super) reason: StopReason,
    pub(super) deadline: Mono,
    pub(super) abandoned: bool,
}

impl Agent {
    pub(super) fn stop(&mut self, reason: StopReason, now: Now) {
        if self.stopping.is_none() {
            let deadline = now.mono + self.settings.stop_grace;
            self.stopping = Some(Stopping { reason, deadline, abandoned: false });
        }
    }

    /// Ends the run when there is nothing left to do, or no longer any wish to. An agent of a site goes on, but what may be new
    /// has to be decided there too: nobody else would find it.
    pub(super) fn end_if_done(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.ended || !self.flights.is_empty() || !self.unsettled.is_empty() || self.admitting > 0 {
            return;
        }
        let reason = match self.stopping {
            Some(stopping) if self.is_leaving() && now.mono < stopping.deadline => return,
            Some(stopping) => stopping.reason,
            // Who shares a store has it decide with every beat.
            None if self.paused || self.site.is_shared() => return,
            None => {
                let counts = self.bench.counts();
                if counts.ready + counts.resolving > 0 || self.resolving > 0 {
                    return;
                }
                let max_wait = self.settings.max_wait;
                let next = [self.bench.next_alarm(), self.away.wake()].into_iter().flatten().min();
                let is_due_in = |wait| next.is_some_and(|at| at <= now.mono + wait);
                let is_idle = match self.site.is_alone() {
                    true => !self.away.wanted && !is_due_in(max_wait.min(IDLE_MIN)),
                    // There is always something to look at soon, and be it who does not take what waits for him.
                    false => now.mono.since(self.last_busy) >= IDLE_MIN,
                };
                if !is_idle {
                    return;
                }
                if self.undecided > 0 {
                    // One of them may be new.
                    self.admitting += 1;
                    self.last_busy = now.mono;
                    out.push(Action::Decide);
                    return;
                }
                if is_due_in(max_wait) || !self.site.is_alone() {
                    return;
                }
                self.reason_for_the_end()
            }
        };
        self.ended = true;
        out.push(Action::End(reason));
    }

    fn reason_for_the_end(&self) -> StopReason {
        if self.totals.pages == 0 {
            StopReason::NoSeed
        } else if self.queue > 0 {
            StopReason::Waiting
        } else if self.over.urls > 0 {
            StopReason::MaxUrls
        } else {
            StopReason::Finished
        }
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Every URL is settled.
    Finished,
    /// URLs wait, and none is due soon.
    Waiting,
    /// `--max-pages`.
    MaxPages,
    /// `--max-bytes`.
    MaxBytes,
    /// `--max-time`.
    MaxTime,
    /// Every URL that was admitted is settled, and `--max-urls` kept others out.
    MaxUrls,
    /// No seed gave an answer.
    NoSeed,
    /// `nephila stop`.
    Stopped,
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// The disk is full.
    DiskFull,
    /// Another process goes on as this agent of its site.
    Replaced,
    /// Something broke.
    Error,
}

impl StopReason {
    /// All of them.
    pub const ALL: [StopReason; 13] = {
        use StopReason::*;
        [
            Finished,
            Waiting,
            MaxPages,
            MaxBytes,
            MaxTime,
            MaxUrls,
            NoSeed,
            Stopped,
            Interrupted,
            Terminated,
            DiskFull,
            Replaced,
            Error,
        ]
    };

    /// The reason of this name.
    pub fn named(name: &str) -> Option<StopReason> {
        StopReason::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// The name in `--json` and logs.
    pub fn name(self) -> &'static str {
        use StopReason::*;
        match self {
            Finished => "finished",
            Waiting => "waiting",
            MaxPages => "max-pages",
            MaxBytes => "max-bytes",
            MaxTime => "max-time",
            MaxUrls => "max-urls",
            NoSeed => "no-seed",
            Stopped => "stopped",
            Interrupted => "interrupted",
            Terminated => "terminated",
            DiskFull => "disk-full",
            Replaced => "replaced",
            Error => "error",
        }
    }

    /// The exit code of the process.
    pub fn exit_code(self) -> u8 {
        use StopReason::*;
        match self {
            Finished | MaxPages | MaxBytes | MaxTime => 0,
            Error | Replaced => 1,
            Waiting | Stopped => 3,
            MaxUrls | DiskFull => 4,
            NoSeed => 5,
            Interrupted => 130,
            Terminated => 143,
        }
    }
}
