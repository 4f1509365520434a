//! Addresses that hosts of several sites share.
//!
//! Sites agree on nothing about single requests. Now and then each agent tells every other site which addresses it has asked
//! lately, and whoever hears that passes it on to all agents of its site. As long as others use an address too, it is left alone
//! for `ip-delay` times the number of sites that do: together they ask it about as often as one of them would. What another site
//! says counts for a while only, and can do no more than that.
//!
//! Until the word has come, and where it does not, each site keeps to the plain delay.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Action, Agent};
use crate::federation::AddressesUsed;
use crate::limits::{ADDRESSES_TOLD_MAX, ADDRESSES_USED_MAX};
use crate::site::Message;
use crate::time::{Mono, Now};
use crate::url::AddressKey;

/// How often others are told of addresses that are new,
const TELL_EVERY: Duration = Duration::from_secs(30);
/// and of those that are not.
const TELL_AGAIN: Duration = Duration::from_secs(300);
/// An address that was not asked for so long is not in use.
const USED_FOR: Duration = Duration::from_secs(600);
/// What another site has said counts for so long: it says it twice meanwhile.
const TOLD_FOR: Duration = Duration::from_secs(900);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// When this agent has last asked an address, and when it has told so.
    used: BTreeMap<AddressKey, (Mono, Option<Mono>)>,
    tell_at: Mono,
    /// Addresses that other sites use, each with the places of these in the list, and until when that counts.
    others: BTreeMap<AddressKey, Vec<(u16, Mono)>>,
}

impl Neighbours {
    fn note_used(&mut self, address: AddressKey, now: Mono) {
        let has_room = self.used.len() < ADDRESSES_USED_MAX;
        match self.used.get_mut(&address) {
            Some((asked, _)) => *asked = now,
            None if has_room => drop(self.used.insert(address, (now, None))),
            // It is asked all the same, and others do not hear of it.
            None => {}
        }
    }

    fn note_told(&mut self, site: u16, addresses: &[AddressKey], now: Mono) {
        for address in addresses.iter().take(ADDRESSES_TOLD_MAX) {
            if self.others.len() >= ADDRESSES_USED_MAX && !self.others.contains_key(address) {
                continue;
            }
            let sites = self.others.entry(*address).or_default();
            sites.retain(|(other, _)| *other != site);
            sites.push((site, now + TOLD_FOR));
        }
    }

    /// The addresses to tell of now.
    fn next_told(&mut self, now: Mono) -> Vec<AddressKey> {
        self.tell_at = now + TELL_EVERY;
        self.used.retain(|_, (asked, _)| now.since(*asked) < USED_FOR);
        self.others.retain(|_, sites| {
            sites.retain(|(_, until)| *until > now);
            !sites.is_empty()
        });
        let is_due = |told: &Option<Mono>| told.is_none_or(|told| now.since(told) >= TELL_AGAIN);
        let due = self.used.iter_mut().filter(|(_, (_, told))| is_due(told)).take(ADDRESSES_TOLD_MAX);
        due.map(|(address, (_, told))| {
            *told = Some(now);
            *address
        })
        .collect()
    }
}

impl Agent {
    /// Addresses were asked.
    pub(super) fn note_used(&mut self, addresses: &[AddressKey], now: Mono) {
        if let Some(exchange) = self.exchange.as_deref_mut() {
            addresses.iter().for_each(|address| exchange.neighbours.note_used(*address, now));
        }
    }

    /// How long an address is left alone after a request.
    pub(super) fn ip_delay_at(&self, address: AddressKey, now: Mono) -> Duration {
        let others = self.exchange.as_deref().and_then(|exchange| exchange.neighbours.others.get(&address));
        let others = others.map_or(0, |sites| sites.iter().filter(|(_, until)| *until > now).count());
        self.settings.ip_delay.saturating_mul(1 + others as u32)
    }

    /// Tells other sites what is due.
    pub(super) fn tend_neighbours(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        if now.mono < exchange.neighbours.tell_at {
            return;
        }
        let addresses = exchange.neighbours.next_told(now.mono);
        if addresses.is_empty() {
            return;
        }
        let federation = &exchange.federation;
        let used = Box::new(AddressesUsed { list: federation.list(), addresses });
        let others = federation.sites().filter(|(site, entry)| *site != federation.me() && !entry.is_gone);
        out.extend(others.map(|(site, _)| Action::Tell { site, used: used.clone() }));
    }

    /// Another site says which addresses it uses.
    pub(super) fn on_told(
        &mut self,
        call: u64,
        site: &str,
        used: AddressesUsed,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        out.push(Action::Answer { call, taken: true });
        let AddressesUsed { list, mut addresses } = used;
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let federation = &exchange.federation;
        let number = federation.find(site).filter(|number| *number != federation.me());
        let Some(number) = number.filter(|_| federation.list() == list) else { return };
        addresses.truncate(ADDRESSES_TOLD_MAX);
        let site = number.index() as u16;
        exchange.neighbours.note_told(site, &addresses, now.mono);
        let others: Vec<_> = self.site.others().collect();
        for other in others {
            self.send(other, Message::Used { site, addresses: addresses.clone() }, out);
        }
    }

    /// Another agent has heard that.
    pub(super) fn on_used(&mut self, site: u16, addresses: &[AddressKey], now: Now) {
        if let Some(exchange) = self.exchange.as_deref_mut()
            && usize::from(site) < exchange.federation.sites().len()
        {
            exchange.neighbours.note_told(site, addresses, now.mono);
        }
    }
}
