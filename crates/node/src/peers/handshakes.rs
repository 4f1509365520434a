//! Connections that have not shown a certificate, or not asked yet: how many there may be, in all and from one address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use nephila_core::url::AddressKey;

use super::tasks::lock;

/// Addresses of which it is known that somebody was let in from there; the one of the longest ago is forgotten first.
const KNOWN_MAX: usize = 1_024;

/// How many there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// From one address.
    pub(crate) of_one: usize,
    /// From all.
    pub(crate) all: usize,
    /// And besides, from those from which somebody was let in before: strangers must not keep these out, however many addresses
    /// they have.
    pub(crate) kept: usize,
}

#[derive(Debug)]
pub(crate) struct Handshakes {
    most: Most,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    open: HashMap<AddressKey, usize>,
    all: usize,
    known: VecDeque<AddressKey>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Handshake {
    from: AddressKey,
    all: Arc<Handshakes>,
}

impl Handshakes {
    pub(crate) fn new(most: Most) -> Arc<Handshakes> {
        Arc::new(Handshakes { most, counts: Mutex::default() })
    }

    /// None if there are too many.
    pub(crate) fn begin(self: &Arc<Handshakes>, from: IpAddr) -> Option<Handshake> {
        let from = AddressKey::of(from);
        let (most, mut counts) = (self.most, lock(&self.counts));
        let its = counts.open.get(&from).copied().unwrap_or(0);
        let all_max = if counts.known.contains(&from) { most.all + most.kept } else { most.all };
        if its >= most.of_one || counts.all >= all_max {
            return None;
        }
        counts.open.insert(from, its + 1);
        counts.all += 1;
        Some(Handshake { from, all: Arc::clone(self) })
    }
}

impl Handshake {
    /// Who it is was shown, or asked properly.
    pub(crate) fn succeed(self) {
        let mut counts = lock(&self.all.counts);
        if counts.known.back() == Some(&self.from) {
            return;
        }
        counts.known.retain(|known| *known != self.from);
        counts.known.push_back(self.from);
        if counts.known.len() > KNOWN_MAX {
            counts.known.pop_front();
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut counts = lock(&self.all.counts);
        counts.all -= 1;
        if let Some(count) = counts.open.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.open.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_keep_nobody_out_who_was_in() {
        let handshakes = Handshakes::new(Most { of_one: 2, all: 3, kept: 1 });
        let begin = |last: u8| handshakes.begin(IpAddr::from([10, 0, 0, last]));
        begin(9).unwrap().succeed();
        let mut open = vec![begin(1).unwrap(), begin(1).unwrap()];
        assert!(begin(1).is_none());
        open.push(begin(2).unwrap());
        assert!(begin(2).is_none() && begin(3).is_none());
        let known = begin(9).unwrap();
        assert!(begin(9).is_none());
        // Whoever goes makes room.
        open.pop();
        assert!(begin(3).is_none());
        drop(known);
        open.push(begin(3).unwrap());
        drop(open);
        assert!(lock(&handshakes.counts).open.is_empty() && lock(&handshakes.counts).all == 0);
        // All addresses of a network of IPv6 are one.
        let six = |last| handshakes.begin(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
        let _open = [six(1).unwrap(), six(2).unwrap()];
        assert!(six(3).is_none());
    }
}
