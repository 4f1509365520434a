//! Promise 4: no URL is asked for again after a whole and final answer to it, apart from what was in flight in a crash,
//! which is counted.

use std::collections::BTreeMap;

use super::levels::{Crash, Exchange, Level};

#[derive(Default)]
pub(super) struct Twice {
    answered: BTreeMap<String, (Exchange, Level)>,
    /// Answers that a crash took before they were durable, and that may be asked for again.
    pub(super) lost_answers: u64,
}

impl Twice {
    /// A page is asked for.
    pub(super) fn begins(&self, url: &str) -> Result<(), String> {
        match self.answered.get(url) {
            Some((_, level)) => Err(format!("{url} was asked for again; its answer was {level:?} already")),
            None => Ok(()),
        }
    }

    /// A whole and final answer was received.
    pub(super) fn answered(&mut self, url: &str, exchange: Exchange) {
        self.answered.insert(url.to_owned(), (exchange, Level::Memory));
    }

    pub(super) fn kept(&mut self, exchange: Exchange, kept: Level) {
        for (_, level) in self.answered.values_mut().filter(|(other, _)| *other == exchange) {
            *level = (*level).max(kept);
        }
    }

    /// All that the kernel has of a process is on the disk; `its` says which requests were its.
    pub(super) fn synced(&mut self, its: &dyn Fn(Exchange) -> bool) {
        let of_kernel = self.answered.values_mut().filter(|(_, level)| *level == Level::Kernel);
        for (_, level) in of_kernel.filter(|(exchange, _)| its(*exchange)) {
            *level = Level::Disk;
        }
    }

    /// Agents were lost with all that they had: what they fetched may be fetched again.
    pub(super) fn lost(&mut self, its: &dyn Fn(Exchange) -> bool) {
        self.answered.retain(|_, (exchange, _)| !its(*exchange));
    }

    /// A process has ended; `its` says which requests were its.
    pub(super) fn crashed(&mut self, crash: Crash, its: &dyn Fn(Exchange) -> bool) {
        let before = self.answered.len();
        self.answered.retain(|_, (exchange, level)| crash.spares(*level) || !its(*exchange));
        self.lost_answers += (before - self.answered.len()) as u64;
    }
}
