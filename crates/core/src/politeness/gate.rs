//! The gate of an address: how many requests at once, and how far apart, whatever hosts they are for.
//!
//! Hosts that share an address queue at its gate in the order they came. A gate exists only while it has something to
//! remember, so memory follows what is being asked, not what was ever asked.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::limits::{BUSY_HOSTS_MAX, WAIT_MAX};
use crate::settings::Settings;
use crate::time::Mono;
use crate::url::{AddressKey, Host};

/// What one address is doing.
#[derive(Debug, Default)]
pub struct Gate {
    in_flight: u32,
    next: Mono,
    /// Hosts that wait for their turn; filled by [`Gates::turn`], emptied by [`Gates::admit_next`].
    queue: VecDeque<u32>,
    /// Hosts that said 429 or 503 lately, and until when that counts. By their names, as they may leave the workbench meanwhile.
    busy: Vec<(Host, Mono)>,
    alarm: Mono,
}

/// Whether a request to some addresses may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Yes: it has been counted in.
    Now,
    /// No: the host was queued at this gate.
    Later(AddressKey),
}

/// What must be known of a gate where another agent is to ask its address. On the way time passes, so that waits are never
/// shorter than they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateMemo {
    /// For how long the address is still to be left alone.
    pub rest: Duration,
    /// Hosts that said 429 or 503 lately, and for how long that still counts.
    pub busy: Vec<(Host, Duration)>,
}

/// The gates of all addresses in use.
#[derive(Debug, Default)]
pub struct Gates {
    gates: HashMap<AddressKey, Gate>,
    swept_len: usize,
}

impl Gates {
    /// Starts a request of `host` to `addresses` if all of them are free, or queues it at the first that is not.
    pub fn turn(&mut self, host: u32, addresses: &[AddressKey], settings: &Settings, now: Mono) -> Turn {
        for address in addresses {
            let gate = self.gates.entry(*address).or_default();
            if gate.in_flight >= settings.ip_parallel || now < gate.next {
                gate.queue.push_back(host);
                return Turn::Later(*address);
            }
        }
        for address in addresses {
            self.gates.entry(*address).or_default().in_flight += 1;
        }
        Turn::Now
    }

    /// Queues a host that may not ask yet.
    pub fn queue(&mut self, host: u32, address: AddressKey) {
        self.gates.entry(address).or_default().queue.push_back(host);
    }

    /// Has a host leave the queue.
    pub fn leave(&mut self, host: u32, address: AddressKey) {
        if let Some(gate) = self.gates.get_mut(&address) {
            gate.queue.retain(|other| *other != host);
        }
    }

    /// Whether hosts wait here.
    pub fn is_wanted(&self, address: AddressKey) -> bool {
        self.gates.get(&address).is_some_and(|gate| !gate.queue.is_empty())
    }

    /// Whether a request is in flight.
    pub fn is_busy(&self, address: AddressKey) -> bool {
        self.gates.get(&address).is_some_and(|gate| gate.in_flight > 0)
    }

    /// For how long an address is still to be left alone.
    pub fn rest(&self, address: AddressKey, now: Mono) -> Duration {
        self.gates.get(&address).map_or(Duration::ZERO, |gate| gate.next.since(now))
    }

    /// What another agent must know of an address.
    pub fn memo(&self, address: AddressKey, now: Mono) -> GateMemo {
        let Some(gate) = self.gates.get(&address) else { return GateMemo::default() };
        let busy = gate.busy.iter().filter(|(_, until)| *until > now);
        let busy = busy.map(|(host, until)| (host.clone(), until.since(now))).collect();
        GateMemo { rest: gate.next.since(now), busy }
    }

    /// What others must know, of all addresses.
    pub fn memos(&self, now: Mono) -> impl Iterator<Item = (AddressKey, GateMemo)> {
        let memos = self.gates.keys().map(move |address| (*address, self.memo(*address, now)));
        memos.filter(|(_, memo)| *memo != GateMemo::default())
    }

    /// Takes in what another agent knows of an address.
    pub fn learn(&mut self, address: AddressKey, memo: GateMemo, now: Mono) {
        if memo == GateMemo::default() {
            return;
        }
        let gate = self.gates.entry(address).or_default();
        gate.next = gate.next.max(now + memo.rest.min(WAIT_MAX));
        gate.busy.retain(|(_, until)| *until > now);
        for (host, wait) in memo.busy {
            let until = now + wait.min(WAIT_MAX);
            if let Some((_, known)) = gate.busy.iter_mut().find(|(other, _)| *other == host) {
                *known = until.max(*known);
            } else if gate.busy.len() < BUSY_HOSTS_MAX {
                gate.busy.push((host, until));
            }
        }
    }

    /// Ends a request: `contacted` says whether the address was really asked, and so must be left alone for a while.
    pub fn release(&mut self, address: AddressKey, contacted: bool, ended: Mono, delay: Duration) {
        if let Some(gate) = self.gates.get_mut(&address) {
            gate.in_flight = gate.in_flight.saturating_sub(1);
            if contacted {
                gate.next = gate.next.max(ended + delay);
            }
        }
    }

    /// Keeps an address closed until then.
    pub fn close_until(&mut self, address: AddressKey, until: Mono) {
        let gate = self.gates.entry(address).or_default();
        gate.next = gate.next.max(until);
    }

    /// Notes that a host of this address is overloaded until then, and tells whether several are.
    pub fn note_busy(&mut self, address: AddressKey, host: &Host, now: Mono, until: Mono) -> bool {
        let gate = self.gates.entry(address).or_default();
        gate.busy.retain(|(other, until)| other != host && *until > now);
        if gate.busy.len() < BUSY_HOSTS_MAX {
            gate.busy.push((host.clone(), until));
        }
        gate.busy.len() > 1
    }

    /// The moment to call [`Gates::admit_next`], if hosts wait here and no such moment is set yet.
    pub fn wants_alarm(&mut self, address: AddressKey, settings: &Settings, now: Mono) -> Option<Mono> {
        let gate = self.gates.get_mut(&address)?;
        // With all slots taken, the end of a request calls; until then no time will help.
        if gate.queue.is_empty() || gate.in_flight >= settings.ip_parallel {
            return None;
        }
        let at = gate.next.max(now);
        (gate.alarm <= now || gate.alarm > at).then(|| {
            gate.alarm = at;
            at
        })
    }

    /// The host whose turn it is, if the gate is open.
    pub fn admit_next(&mut self, address: AddressKey, settings: &Settings, now: Mono) -> Option<u32> {
        let gate = self.gates.get_mut(&address)?;
        if now < gate.next || gate.in_flight >= settings.ip_parallel {
            return None;
        }
        gate.queue.pop_front()
    }

    /// When the address may next be asked.
    pub fn next(&self, address: AddressKey) -> Option<Mono> {
        self.gates.get(&address).map(|gate| gate.next)
    }

    /// Forgets gates that have nothing left to remember. Cheap: runs only when their number has doubled.
    pub fn sweep(&mut self, now: Mono) {
        if self.gates.len() < 2 * self.swept_len.max(512) {
            return;
        }
        self.gates.retain(|_, gate| {
            gate.busy.retain(|(_, until)| *until > now);
            gate.in_flight > 0 || gate.next > now || !gate.queue.is_empty() || !gate.busy.is_empty()
        });
        self.swept_len = self.gates.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> AddressKey {
        AddressKey::of([127, 0, 0, last].into())
    }

    #[test]
    fn one_request_at_a_time_and_a_delay_between() {
        let settings = Settings::default();
        let mut gates = Gates::default();
        let here = [address(1)];
        assert_eq!(gates.turn(1, &here, &settings, Mono(0)), Turn::Now);
        assert_eq!(gates.turn(2, &here, &settings, Mono(0)), Turn::Later(here[0]));
        assert_eq!(gates.wants_alarm(here[0], &settings, Mono(0)), None);
        gates.release(here[0], true, Mono(1_000), settings.ip_delay);
        let opens = Mono(1_000) + settings.ip_delay;
        assert_eq!(gates.admit_next(here[0], &settings, Mono(2_000)), None);
        assert_eq!(gates.wants_alarm(here[0], &settings, Mono(2_000)), Some(opens));
        assert_eq!(gates.wants_alarm(here[0], &settings, Mono(3_000)), None);
        assert_eq!(gates.admit_next(here[0], &settings, opens), Some(2));
        assert_eq!(gates.turn(2, &here, &settings, opens), Turn::Now);
    }

    #[test]
    fn a_request_to_two_addresses_holds_both_or_none() {
        let settings = Settings::default();
        let mut gates = Gates::default();
        assert_eq!(gates.turn(1, &[address(2)], &settings, Mono(0)), Turn::Now);
        assert_eq!(gates.turn(2, &[address(1), address(2)], &settings, Mono(0)), Turn::Later(address(2)));
        assert_eq!(gates.turn(3, &[address(1)], &settings, Mono(0)), Turn::Now);
    }

    #[test]
    fn what_one_agent_knows_of_an_address_another_learns() {
        let settings = Settings::default();
        let (mut here, mut there) = (Gates::default(), Gates::default());
        let [a, b] = ["a", "b"].map(|name| Host::parse(name).unwrap());
        assert_eq!(here.turn(1, &[address(2)], &settings, Mono(0)), Turn::Now);
        assert_eq!(here.memo(address(1), Mono(0)), GateMemo::default());
        here.note_busy(address(1), &a, Mono(0), Mono(900));
        here.close_until(address(1), Mono(500));
        let memo = here.memo(address(1), Mono(100));
        assert_eq!(here.memos(Mono(100)).collect::<Vec<_>>(), [(address(1), memo.clone())]);
        there.close_until(address(1), Mono(2_100));
        for number in 0..2 * BUSY_HOSTS_MAX {
            there.note_busy(address(1), &Host::parse(&format!("c{number}")).unwrap(), Mono(0), Mono(1_000));
        }
        there.learn(address(1), memo.clone(), Mono(2_000));
        assert_eq!(there.rest(address(1), Mono(2_000)), Duration::from_micros(400));
        assert!(there.note_busy(address(1), &b, Mono(2_799), Mono(3_000)), "a is busy until 2,800");
        // A wait never becomes shorter.
        there.learn(address(1), GateMemo { rest: Duration::from_micros(1), busy: Vec::new() }, Mono(2_000));
        assert_eq!(there.turn(1, &[address(1)], &settings, Mono(2_399)), Turn::Later(address(1)));
        assert!(there.is_wanted(address(1)) && !there.is_busy(address(1)));
        there.leave(1, address(1));
        assert!(!there.is_wanted(address(1)));
        assert_eq!(there.turn(1, &[address(1)], &settings, Mono(2_400)), Turn::Now);
        assert!(there.is_busy(address(1)));
    }

    #[test]
    fn several_busy_hosts_make_a_busy_address() {
        let mut gates = Gates::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| Host::parse(name).unwrap());
        assert!(!gates.note_busy(address(1), &a, Mono(0), Mono(100)));
        assert!(!gates.note_busy(address(1), &a, Mono(10), Mono(110)));
        assert!(gates.note_busy(address(1), &b, Mono(20), Mono(120)));
        assert!(!gates.note_busy(address(1), &c, Mono(200), Mono(300)));
    }
}
