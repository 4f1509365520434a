//! The network between agents: whatever is sent arrives late, in another order, twice, or not at all.

use std::sync::Arc;
use std::time::Duration;

use nephila_core::politeness::GateMemo;
use nephila_core::site::{AgentId, GivenTurn, Message, TurnId, TurnMessage};
use nephila_core::time::Mono;
use nephila_core::url::AddressKey;

use super::super::random::Random;

/// A message on its way.
#[derive(Clone)]
pub(in crate::sim) struct Parcel {
    pub(in crate::sim) from: (usize, AgentId),
    pub(in crate::sim) to: usize,
    pub(in crate::sim) message: Box<Message>,
    /// As the trace has it.
    pub(in crate::sim) packed: Arc<[u8]>,
}

impl Parcel {
    /// One that nobody has sent.
    pub(in crate::sim) fn unpacked(from: (usize, AgentId), to: usize, message: Box<Message>) -> Parcel {
        Parcel { from, to, message, packed: Arc::default() }
    }
}

/// A message that has arrived.
pub(in crate::sim) struct Letter {
    pub(in crate::sim) from: AgentId,
    /// Whose certificate it came with.
    pub(in crate::sim) name: String,
    pub(in crate::sim) message: Box<Message>,
    pub(in crate::sim) packed: Arc<[u8]>,
}

/// What a keeper says that gives every turn that it is asked for.
pub(in crate::sim) fn all_turns(asked: (u64, Mono), wanted: &[(AddressKey, Option<TurnId>)]) -> Box<Message> {
    let given = |(address, _): &(AddressKey, _)| GivenTurn {
        address: *address,
        asked,
        turn: Some((u64::MAX, asked.1.0)),
        is_wanted: false,
        gate: GateMemo::default(),
    };
    Box::new(Message::Turn(TurnMessage::Given {
        of: (u64::MAX, 0),
        turns: wanted.iter().map(given).collect(),
    }))
}

pub(in crate::sim) struct Network {
    random: Random,
    /// Percent of messages that are lost, and of those that arrive twice.
    loss: u64,
    twice: u64,
    /// One group of agents, by their bits, is cut off from the others until then.
    cuts: Vec<(u64, Mono)>,
    storm: (u64, Mono),
}

impl Network {
    pub(in crate::sim) fn new(seed: u64) -> Network {
        let mut random = Random::fork(seed, "network");
        let (loss, twice) = ([0, 1, 5][random.below(3) as usize], [0, 2][random.below(2) as usize]);
        Network { random, loss, twice, cuts: Vec::new(), storm: (0, Mono(0)) }
    }

    pub(in crate::sim) fn cut(&mut self, side: u64, until: Mono) {
        self.cuts.push((side, until));
    }

    pub(in crate::sim) fn storm(&mut self, loss: u64, until: Mono) {
        self.storm = (loss, until);
    }

    /// Whether anything passes between two agents now.
    pub(in crate::sim) fn is_cut(&mut self, a: usize, b: usize, now: Mono) -> bool {
        self.cuts.retain(|(_, until)| *until > now);
        self.cuts.iter().any(|(side, _)| (side >> a & 1) != (side >> b & 1))
    }

    /// After how long a message arrives, each time that it does.
    pub(in crate::sim) fn carry(&mut self, from: usize, to: usize, now: Mono) -> Vec<Duration> {
        if self.is_cut(from, to, now) {
            return Vec::new();
        }
        let is_storm = self.storm.1 > now;
        let loss = if is_storm { self.storm.0 } else { self.loss };
        if self.random.percent(loss) {
            return Vec::new();
        }
        let times = 1 + u64::from(self.random.percent(self.twice));
        let slow = if is_storm { 2_000_000 } else { 20_000 };
        (0..times).map(|_| Duration::from_micros(200 + self.random.below(slow))).collect()
    }
}
