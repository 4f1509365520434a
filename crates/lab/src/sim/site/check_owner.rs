//! Promise 1: no two agents ask a host at the same time, whatever each believes about who is alive.

use std::collections::BTreeMap;
use std::time::Duration;

use nephila_core::time::Mono;

use super::super::levels::Exchange;

/// How long what a stray agent asked for may disturb others: a request and a delay.
const STRAY_LASTS: Duration = Duration::from_secs(60);

/// Who asks whom.
#[derive(Default)]
pub(in crate::sim) struct Owners {
    asking: BTreeMap<String, usize>,
    /// When a host was last asked by an agent that others took for gone.
    stray: BTreeMap<String, Mono>,
    /// Who made each request of the run.
    asked_by: Vec<usize>,
}

impl Owners {
    /// A request begins; its exchange is the number of all requests so far. `stray` is the moment, if others take who asks for
    /// gone.
    pub(in crate::sim) fn begins(
        &mut self,
        host: &str,
        station: usize,
        stray: Option<Mono>,
    ) -> Result<(), String> {
        self.asked_by.push(station);
        if let Some(now) = stray {
            self.stray.insert(host.to_owned(), now);
        }
        if let Some(other) = self.asking.insert(host.to_owned(), station) {
            return Err(format!("agent {station} asked {host} while agent {other} did"));
        }
        Ok(())
    }

    /// Whether a host was asked lately by an agent that others took for gone: then it may be asked twice.
    pub(in crate::sim) fn was_stray(&self, host: &str, now: Mono) -> bool {
        self.stray.get(host).is_some_and(|at| now.since(*at) < STRAY_LASTS)
    }

    pub(in crate::sim) fn ends(&mut self, host: &str) {
        self.asking.remove(host);
    }

    /// Who made a request.
    pub(in crate::sim) fn asked_by(&self, exchange: Exchange) -> Option<usize> {
        let before = usize::try_from(exchange).ok()?.checked_sub(1)?;
        self.asked_by.get(before).copied()
    }
}
