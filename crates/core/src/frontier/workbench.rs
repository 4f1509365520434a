//! The workbench: the hosts in memory by their place, the ready ones in the order they became ready, the others by when to look
//! at them again.
//!
//! Invariant: *a host in [`Place::Ready`] is in the ready queue once, a host in a place that waits for a moment has an
//! alarm at that moment, and no other host has either.* Alarms that no longer match their host are skipped when met.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hashbrown::HashMap;

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

/// Whoever has an index has it from a host that cannot have left: see [`Workbench::remove`].
const GONE: &str = "a host that something is under way for stays on the workbench";

/// The hosts that an agent has in memory.
#[derive(Debug, Default)]
pub struct Workbench {
    /// By index. Those of hosts that have left are used again.
    hosts: Vec<Option<Box<HostState>>>,
    free: Vec<u32>,
    names: HashMap<Host, u32>,
    ready: VecDeque<u32>,
    /// Those at rest, and some that were; each once.
    resting: VecDeque<u32>,
    alarms: BinaryHeap<Reverse<(Mono, Alarm)>>,
    counts: HostCounts,
}

impl Workbench {
    /// The index of a host, which comes to the workbench if it is not there.
    pub fn index(&mut self, name: &Host) -> u32 {
        if let Some(index) = self.names.get(name) {
            return *index;
        }
        let host = Some(Box::new(HostState::new(name.clone())));
        let index = match self.free.pop() {
            Some(index) => {
                self.hosts[index as usize] = host;
                index
            }
            None => {
                self.hosts.push(host);
                u32::try_from(self.hosts.len() - 1).expect("four billion hosts do not fit into memory")
            }
        };
        self.names.insert(name.clone(), index);
        self.counts.idle += 1;
        self.rests(index);
        index
    }

    /// The index of a host that is on the workbench.
    pub fn find(&self, name: &Host) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// A host.
    pub fn host(&self, index: u32) -> &HostState {
        self.get(index).expect(GONE)
    }

    /// A host, to change.
    pub fn host_mut(&mut self, index: u32) -> &mut HostState {
        let host = self.hosts.get_mut(index as usize).and_then(Option::as_mut).expect(GONE);
        host.changed = true;
        host
    }

    /// A host, if there is one of this index.
    pub fn get(&self, index: u32) -> Option<&HostState> {
        self.hosts.get(index as usize)?.as_deref()
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = (u32, &HostState)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.filter_map(|(index, host)| Some((index as u32, host.as_deref()?)))
    }

    /// Has a host leave, if it is there. Nothing may be under way for it.
    pub fn remove(&mut self, index: u32) -> Option<Box<HostState>> {
        let host = self.hosts.get_mut(index as usize).and_then(Option::take)?;
        *host.place.counter(&mut self.counts) -= 1;
        self.names.remove(&host.name);
        self.free.push(index);
        Some(host)
    }

    /// Passes on those that have changed since this was last asked.
    pub fn take_changed(&mut self, mut each: impl FnMut(&HostState)) {
        for host in self.hosts.iter_mut().flatten().filter(|host| host.changed) {
            host.changed = false;
            each(host);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Above every index.
    pub fn index_end(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// How many are where.
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Puts a host in a place that waits for no moment.
    pub fn put(&mut self, index: u32, place: Place) {
        let Some(host) = self.hosts.get_mut(index as usize).and_then(Option::as_mut) else { return };
        if place == Place::Ready && host.place != Place::Ready {
            self.ready.push_back(index);
        }
        *host.place.counter(&mut self.counts) -= 1;
        *place.counter(&mut self.counts) += 1;
        host.place = place;
        host.until = Mono::NEVER;
        if place.is_rest() {
            host.shrink();
            self.rests(index);
        }
    }

    /// Puts a host at the end of the list of those at rest.
    pub fn rests(&mut self, index: u32) {
        if let Some(host) = self.hosts.get_mut(index as usize).and_then(Option::as_mut)
            && !std::mem::replace(&mut host.listed, true)
        {
            self.resting.push_back(index);
        }
    }

    /// The host that has been in that list for longest, out of it.
    pub fn next_resting(&mut self) -> Option<u32> {
        while let Some(index) = self.resting.pop_front() {
            if let Some(host) = self.hosts.get_mut(index as usize).and_then(Option::as_mut) {
                host.listed = false;
                if host.place.is_rest() {
                    return Some(index);
                }
            }
        }
        None
    }

    /// Puts a host in a place until a moment.
    pub fn put_until(&mut self, index: u32, place: Place, until: Mono) {
        self.put(index, place);
        if let Some(host) = self.hosts.get_mut(index as usize).and_then(Option::as_mut) {
            host.until = until;
        }
        self.alarms.push(Reverse((until, Alarm::Host(index))));
    }

    /// Has a gate looked at when its moment comes.
    pub fn set_gate_alarm(&mut self, address: AddressKey, at: Mono) {
        self.alarms.push(Reverse((at, Alarm::Gate(address))));
    }

    /// The host whose turn it is, out of the ready queue.
    pub fn next_ready(&mut self) -> Option<u32> {
        while let Some(index) = self.ready.pop_front() {
            if self.get(index).is_some_and(|host| host.place == Place::Ready) {
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
                Alarm::Host(index) if self.get(index).is_none_or(|host| host.until != at) => {
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
