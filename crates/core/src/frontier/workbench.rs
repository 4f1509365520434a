//! The workbench: all hosts by their place, the ready ones in the order they became ready, the others by when to look
//! at them again.
//!
//! Invariant: *a host in [`Place::Ready`] is in the ready queue once, a host in a place that waits for a moment has an
//! alarm at that moment, and no other host has either.* Alarms that no longer match their host are skipped when met.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::{HostState, Place};
use crate::agent::HostCounts;
use crate::time::Mono;
use crate::url::{AddressKey, Host};

/// What to look at when its moment comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// A host.
    Host(u32),
    /// The gate of an address.
    Gate(AddressKey),
}

/// All hosts of an agent.
#[derive(Debug, Default)]
pub struct Workbench {
    hosts: Vec<HostState>,
    names: HashMap<Host, u32>,
    ready: VecDeque<u32>,
    alarms: BinaryHeap<Reverse<(Mono, Alarm)>>,
    counts: HostCounts,
}

impl Workbench {
    /// The index of a host, made if it is new.
    pub fn index(&mut self, name: &Host) -> u32 {
        if let Some(index) = self.names.get(name) {
            return *index;
        }
        let index = u32::try_from(self.hosts.len()).expect("hosts are bounded by the URLs that may be known");
        self.hosts.push(HostState::new(name.clone()));
        self.names.insert(name.clone(), index);
        self.counts.idle += 1;
        index
    }

    /// The index of a host that is known.
    pub fn find(&self, name: &Host) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// A host.
    pub fn host(&self, index: u32) -> &HostState {
        &self.hosts[index as usize]
    }

    /// A host, to change.
    pub fn host_mut(&mut self, index: u32) -> &mut HostState {
        &mut self.hosts[index as usize]
    }

    /// All hosts, in the order they became known.
    pub fn hosts(&self) -> impl Iterator<Item = (u32, &HostState)> {
        self.hosts.iter().enumerate().map(|(index, host)| (index as u32, host))
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// How many are where.
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Puts a host in a place that waits for no moment.
    pub fn put(&mut self, index: u32, place: Place) {
        let host = &mut self.hosts[index as usize];
        if place == Place::Ready && host.place != Place::Ready {
            self.ready.push_back(index);
        }
        *host.place.counter(&mut self.counts) -= 1;
        *place.counter(&mut self.counts) += 1;
        host.place = place;
        host.until = Mono::NEVER;
    }

    /// Puts a host in a place until a moment.
    pub fn put_until(&mut self, index: u32, place: Place, until: Mono) {
        self.put(index, place);
        self.hosts[index as usize].until = until;
        self.alarms.push(Reverse((until, Alarm::Host(index))));
    }

    /// Has a gate looked at when its moment comes.
    pub fn set_gate_alarm(&mut self, address: AddressKey, at: Mono) {
        self.alarms.push(Reverse((at, Alarm::Gate(address))));
    }

    /// The host whose turn it is, out of the ready queue.
    pub fn next_ready(&mut self) -> Option<u32> {
        while let Some(index) = self.ready.pop_front() {
            if self.hosts[index as usize].place == Place::Ready {
                // It has left the queue; whoever asked puts it where it goes next.
                self.put(index, Place::Idle);
                return Some(index);
            }
        }
        None
    }

    /// How many hosts are in the ready queue, and some that have left it.
    pub fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// The moment of the next alarm.
    pub fn next_alarm(&mut self) -> Option<Mono> {
        loop {
            let Reverse((at, alarm)) = *self.alarms.peek()?;
            match alarm {
                Alarm::Host(index) if self.hosts[index as usize].until != at => {
                    self.alarms.pop();
                }
                _ => return Some(at),
            }
        }
    }

    /// The next alarm that is due.
    pub fn ring(&mut self, now: Mono) -> Option<Alarm> {
        if self.next_alarm()? > now {
            return None;
        }
        self.alarms.pop().map(|Reverse((_, alarm))| alarm)
    }
}
