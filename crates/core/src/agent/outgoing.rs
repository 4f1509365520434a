//! How much waits for other sites, and what follows when it is too much.
//!
//! What is found for another site is in the queues of the store, and so on disk, until that site has taken it: for as long as it
//! is cut off. So there is a limit on how many URLs may wait for one site. At the limit an agent asks for no more pages, and no
//! other agent of its site does, which hears of it with the next beat: they would only find more. robots.txt is asked for, and
//! what other sites send is taken, so that two sites that wait for each other go on as soon as they meet. Or, if the operator
//! would rather lose links than time, the site goes on and leaves out what it finds for that site.
//!
//! Nobody keeps these counts on disk. The store counts at the start, since whose a host is changes with the list of sites. From
//! then on each answer of the store is added, and each URL that another site has taken is subtracted. What partitions bring
//! along that come or go is only estimated, and never too low: the store counts again after a while.

use std::time::Duration;

use super::site::{Peer, Site, WELL};
use super::{Action, Admitted, Agent};
use crate::federation::{SiteNumber, UrlsBySite};
use crate::record::{Found, How, Record};
use crate::settings::OutboxFull;
use crate::site::{AgentId, Message};
use crate::time::{Mono, Now};
use crate::url::identify;

/// How long after a count that is no more than an estimate the store counts again: it looks at every host.
const COUNT_EVERY: Duration = Duration::from_secs(300);

/// How long after a count a store that agents share counts again, when URLs wait by what the agent counts and no host has any.
const DOUBT_EVERY: Duration = Duration::from_secs(60);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// URLs that wait, by site.
    waiting: Vec<u64>,
    /// Those that were taken since the store was asked to count, if it was and has not answered.
    taken_since: Option<Vec<u64>>,
    /// Those that have come since then.
    added_since: Vec<u64>,
    /// What waits is not known, or too high.
    is_rough: bool,
    /// It may be too high by what came and went while a store that agents share counted.
    has_drifted: bool,
    count_at: Mono,
    /// Sites for which an agent of ours has too much.
    full: Vec<bool>,
}

impl Outgoing {
    pub(super) fn new(sites: usize) -> Outgoing {
        let (waiting, added_since, full) = (vec![0; sites], vec![0; sites], vec![false; sites]);
        let (taken_since, is_rough, has_drifted, count_at) = (None, true, false, Mono(0));
        Outgoing { waiting, taken_since, added_since, is_rough, has_drifted, count_at, full }
    }

    /// URLs that wait for a site.
    pub(super) fn waiting(&self, site: SiteNumber) -> u64 {
        self.waiting[site.index()]
    }

    /// Whether an agent of our site has too much for that one.
    pub(super) fn is_full(&self, site: SiteNumber) -> bool {
        self.full[site.index()]
    }

    fn add(&mut self, site: SiteNumber, urls: u64) {
        self.waiting[site.index()] += urls;
        self.added_since[site.index()] += urls;
    }

    /// Whether the store is to count, where so many may wait at most. Where agents share one it counts while they go on, and so
    /// what it says may be too high: again only if that matters.
    fn wants_count(&self, max: u64) -> bool {
        self.is_rough || self.has_drifted && self.waiting.iter().any(|waiting| *waiting >= max / 2)
    }

    fn take(&mut self, site: SiteNumber) {
        let at = site.index();
        self.waiting[at] = self.waiting[at].saturating_sub(1);
        if let Some(taken) = &mut self.taken_since {
            taken[at] += 1;
        }
    }
}

impl Site {
    /// Sites for which too much waits with other agents.
    pub(super) fn full_elsewhere(&self, now: Mono) -> impl Iterator<Item = u16> {
        let is_well = move |id: AgentId, peer: &Peer| match self.is_shared() {
            true => peer.heard.is_some_and(|heard| now.since(heard) < WELL),
            false => self.is_well(id, now),
        };
        let well = self.peers.iter().filter(move |(id, peer)| !peer.full.is_empty() && is_well(**id, peer));
        well.flat_map(|(_, peer)| peer.full.iter().copied())
    }
}

impl Agent {
    /// URLs wait that were not known before.
    pub(super) fn count_outgoing(&mut self, admitted: &Admitted) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        for (host, new) in admitted.new.iter().chain(&admitted.again) {
            let site = exchange.federation.counted_for(host);
            exchange.outgoing.add(site, *new);
        }
        // What has come or gone with partitions, or was done by two.
        exchange.outgoing.is_rough |= admitted.moved != (0, 0) && !self.site.is_shared();
    }

    /// Partitions have come or gone with what waits in them.
    pub(super) fn outgoing_is_rough(&mut self) {
        if let Some(exchange) = self.exchange.as_deref_mut() {
            exchange.outgoing.is_rough = true;
        }
    }

    /// The store that was asked to count will not say how many there are.
    pub(super) fn forget_count(&mut self) {
        if let Some(exchange) = self.exchange.as_deref_mut() {
            (exchange.outgoing.taken_since, exchange.outgoing.is_rough) = (None, true);
        }
    }

    /// Tells the other agents that share the store for which sites too much waits here. (Those that do not share one say so with
    /// their beats.)
    pub(super) fn tell_full(&mut self, out: &mut Vec<Action>) {
        let full = self.full_sites();
        if !full.is_empty() {
            let others: Vec<AgentId> = self.site.others().collect();
            others.into_iter().for_each(|other| self.send(other, Message::Full(full.clone()), out));
        }
    }

    /// Another agent says so.
    pub(super) fn on_full(&mut self, from: AgentId, sites: Vec<u16>, now: Now) {
        if self.exchange.is_some() && self.site.members.get(from).is_some() {
            let peer = self.site.peers.entry(from).or_default();
            (peer.heard, peer.full) = (Some(now.mono), sites);
        }
    }

    /// A record is durable.
    pub(super) fn count_outgoing_in(&mut self, record: &Record) {
        let is_shared = self.site.is_shared();
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let (federation, outgoing) = (&exchange.federation, &mut exchange.outgoing);
        let site_of = |url: &str| identify(url).map(|(host, _)| federation.counted_for(&host));
        match record {
            Record::Settled(settled) if settled.outcome.is_final() => {
                if let Some(site) = site_of(&settled.url) {
                    outgoing.take(site);
                }
            }
            // What of it is known here already, or is new, is known when the store has counted. One that agents share says it.
            Record::Moved { .. } | Record::Arrived(_) if !is_shared => {
                let is_moved = |found: &&Found| {
                    matches!(record, Record::Moved { .. }) || matches!(found.how, How::Returned { .. })
                };
                for found in record.found().iter().filter(is_moved) {
                    if let Some(site) = site_of(&found.url).filter(|site| *site != federation.me()) {
                        outgoing.add(site, 1);
                        outgoing.is_rough = true;
                    }
                }
            }
            _ => {}
        }
    }

    /// Has the store count if that is due, and looks who has too much.
    pub(super) fn tend_outgoing(&mut self, now: Now, out: &mut Vec<Action>) {
        let is_doubtful = self.is_queue_doubtful();
        let (max, site) = (self.settings.outbox_urls_max, &self.site);
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let outgoing = &mut exchange.outgoing;
        let is_due = match is_doubtful {
            true => now.mono + (COUNT_EVERY - DOUBT_EVERY) >= outgoing.count_at,
            false => outgoing.wants_count(max) && now.mono >= outgoing.count_at,
        };
        if is_due && outgoing.taken_since.is_none() {
            outgoing.taken_since = Some(vec![0; outgoing.waiting.len()]);
            outgoing.added_since.fill(0);
            (outgoing.is_rough, outgoing.has_drifted) = (false, false);
            outgoing.count_at = now.mono + COUNT_EVERY;
            out.push(Action::CountQueued(UrlsBySite::none(&exchange.federation)));
        }
        let me = exchange.federation.me();
        for (number, _) in exchange.federation.sites().filter(|(number, _)| *number != me) {
            outgoing.full[number.index()] = outgoing.waiting[number.index()] >= max;
        }
        for other in site.full_elsewhere(now.mono) {
            if let Some(full) = outgoing.full.get_mut(usize::from(other)) {
                *full = true;
            }
        }
    }

    /// Whether URLs wait in a store that agents share by what this one counts, and nothing is to be done.
    fn is_queue_doubtful(&mut self) -> bool {
        let is_idle = self.flights.is_empty() && self.unsettled.is_empty() && self.bench.ready_len() == 0;
        self.site.is_shared() && self.queue != 0 && is_idle && self.bench.next_alarm().is_none()
    }

    /// The store has counted the URLs that wait.
    pub(super) fn on_counted_queued(&mut self, counted: &UrlsBySite) {
        let is_shared = self.site.is_shared();
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let outgoing = &mut exchange.outgoing;
        let Some(taken) = outgoing.taken_since.take() else { return };
        if is_shared {
            // Hosts were counted one after the other. What has gone since may have been counted or not.
            for ((waiting, counted), added) in
                outgoing.waiting.iter_mut().zip(counted.urls()).zip(&outgoing.added_since)
            {
                *waiting = counted + added;
            }
            outgoing.has_drifted = taken.iter().chain(&outgoing.added_since).any(|urls| *urls > 0);
            if !outgoing.has_drifted {
                self.queue = counted.urls().iter().sum::<u64>() as i64;
            }
            return;
        }
        let waiting = outgoing.waiting.iter_mut().zip(counted.urls());
        for ((waiting, counted), taken) in waiting.zip(taken) {
            *waiting = counted.saturating_sub(taken);
        }
    }

    /// Whether pages wait, since what they would link to has no room.
    pub(super) fn is_outbox_full(&self) -> bool {
        self.settings.outbox_full == OutboxFull::Wait && self.is_any_outbox_full()
    }

    /// Whether too much waits for any site.
    pub(super) fn is_any_outbox_full(&self) -> bool {
        self.exchange.as_deref().is_some_and(|exchange| exchange.outgoing.full.contains(&true))
    }

    /// Leaves out of what a page links to what there is no room for, if that is what the operator wants.
    pub(super) fn drop_outgoing(&self, record: &mut Record) {
        let Some(exchange) = self.exchange.as_deref() else { return };
        let (federation, outgoing) = (&exchange.federation, &exchange.outgoing);
        let Record::Settled(settled) = record else { return };
        if self.settings.outbox_full != OutboxFull::Drop || !self.is_any_outbox_full() {
            return;
        }
        let before = settled.found.len();
        let has_room = |found: &Found| {
            identify(&found.url).is_none_or(|(host, _)| !outgoing.is_full(federation.counted_for(&host)))
        };
        settled.found.retain(has_room);
        settled.left_out.outbox += (before - settled.found.len()) as u32;
    }

    /// The sites that this agent has too much for, to tell the others of its own.
    pub(super) fn full_sites(&self) -> Vec<u16> {
        let Some(exchange) = self.exchange.as_deref() else { return Vec::new() };
        let (max, me) = (self.settings.outbox_urls_max, exchange.federation.me().index());
        let waiting = exchange.outgoing.waiting.iter().enumerate();
        let full = waiting.filter(|(at, waiting)| *at != me && **waiting >= max);
        full.map(|(at, _)| at as u16).collect()
    }

    /// URLs that wait for other sites, and whether that is exact.
    pub fn outgoing_urls(&self) -> (u64, bool) {
        let Some(exchange) = self.exchange.as_deref() else { return (0, true) };
        let (outgoing, me) = (&exchange.outgoing, exchange.federation.me());
        let sites = exchange.federation.sites().filter(|(site, _)| *site != me);
        let sum = sites.map(|(site, _)| outgoing.waiting(site)).sum();
        (sum, !outgoing.is_rough && outgoing.taken_since.is_none())
    }
}
