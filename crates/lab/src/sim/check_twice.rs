//! Promise 4: no URL is asked for again after a whole and final answer to it, apart from what was in flight in a crash,
//! which is counted.

use std::collections::{BTreeMap, BTreeSet};

use super::levels::{Crash, Exchange, Level};

#[derive(Default)]
pub(super) struct Twice {
    answered: BTreeMap<String, (Exchange, Level)>,
    /// The URL of each answer, as long as that is the last one,
    urls: BTreeMap<Exchange, String>,
    /// and those answers that the kernel has and a power cut may take.
    of_kernel: BTreeSet<Exchange>,
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
        if let Some((before, _)) = self.answered.insert(url.to_owned(), (exchange, Level::Memory)) {
            self.urls.remove(&before);
            self.of_kernel.remove(&before);
        }
        self.urls.insert(exchange, url.to_owned());
    }

    pub(super) fn kept(&mut self, exchange: Exchange, kept: Level) {
        let answered = self.urls.get(&exchange).and_then(|url| self.answered.get_mut(url));
        let Some((_, level)) = answered else { return };
        *level = (*level).max(kept);
        if *level == Level::Kernel {
            self.of_kernel.insert(exchange);
        }
    }

    /// All that the kernel has of a process is on the disk; `its` says which requests were its.
    pub(super) fn synced(&mut self, its: &dyn Fn(Exchange) -> bool) {
        for exchange in self.of_kernel.extract_if(.., |exchange| its(*exchange)) {
            let answered = self.urls.get(&exchange).and_then(|url| self.answered.get_mut(url));
            if let Some((_, level)) = answered.filter(|(_, level)| *level == Level::Kernel) {
                *level = Level::Disk;
            }
        }
    }

    /// Agents were lost with all that they had: what they fetched may be fetched again.
    pub(super) fn lost(&mut self, its: &dyn Fn(Exchange) -> bool) {
        self.forget(&|exchange, _| its(exchange));
    }

    fn forget(&mut self, is_lost: &dyn Fn(Exchange, Level) -> bool) {
        self.answered.retain(|_, (exchange, level)| {
            let keeps = !is_lost(*exchange, *level);
            if !keeps {
                self.urls.remove(exchange);
                self.of_kernel.remove(exchange);
            }
            keeps
        });
    }

    /// A process has ended; `its` says which requests were its.
    pub(super) fn crashed(&mut self, crash: Crash, its: &dyn Fn(Exchange) -> bool) {
        let before = self.answered.len();
        self.forget(&|exchange, level| !crash.spares(level) && its(exchange));
        self.lost_answers += (before - self.answered.len()) as u64;
    }
}
