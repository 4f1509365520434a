//! Promise 1: no two agents ask a host at the same time, whatever each believes about who is alive.

use std::collections::BTreeMap;

use super::super::levels::Exchange;

/// Who asks whom.
#[derive(Default)]
pub(in crate::sim) struct Owners {
    asking: BTreeMap<String, usize>,
    /// Who made each request of the run.
    asked_by: Vec<usize>,
}

impl Owners {
    /// A request begins; its exchange is the number of all requests so far.
    pub(in crate::sim) fn begins(&mut self, host: &str, station: usize) -> Result<(), String> {
        self.asked_by.push(station);
        if let Some(other) = self.asking.insert(host.to_owned(), station) {
            return Err(format!("agent {station} asked {host} while agent {other} did"));
        }
        Ok(())
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
