//! Who had a host may not be as gone as was said: of a partition whose token an agent has made anew it asks nothing for a while,
//! however often it is killed and started meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use nephila_core::site::{AgentId, Token};
use nephila_core::time::Mono;

/// 30 seconds, by a clock that is one percent fast.
const REST: Duration = Duration::from_millis(29_700);

/// A token that was made anew.
struct Made {
    station: usize,
    life: u64,
    at: Mono,
}

/// See the module's documentation.
#[derive(Default)]
pub(in crate::sim) struct Rests(BTreeMap<u16, Made>);

impl Rests {
    /// An agent is about to write down what has become of a token; `holds` if it has the partition.
    pub(in crate::sim) fn written(
        &mut self,
        (station, me): (usize, AgentId),
        (partition, token): (u16, Token),
        holds: bool,
        at: Mono,
    ) {
        let is_its = self.0.get(&partition).is_some_and(|made| made.station == station);
        let same_life = self.0.get(&partition).is_some_and(|made| made.life == token.life());
        if token.holder == me && token.is_new() && !holds {
            self.0.insert(partition, Made { station, life: token.life(), at });
        } else if is_its && !(same_life && token.holder == me) {
            // It comes from another agent, or goes there.
            self.0.remove(&partition);
        }
    }

    /// An agent asks a host of a partition.
    pub(in crate::sim) fn asks(&self, station: usize, partition: u16, now: Mono) -> Result<(), String> {
        let made = self.0.get(&partition).filter(|made| made.station == station);
        match made.map(|made| now.since(made.at)) {
            Some(since) if since < REST => {
                Err(format!("agent {station} asks {since:?} after it has made the token {partition} anew"))
            }
            _ => Ok(()),
        }
    }
}
