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

use super::{Action, Admitted, Agent};
use crate::federation::{SiteNumber, UrlsBySite};
use crate::record::{Found, How, Record};
use crate::settings::OutboxFull;
use crate::time::{Mono, Now};
use crate::url::identify;

/// How long after a count that is no more than an estimate the store counts again: it looks at every host.
const COUNT_EVERY: Duration = Duration::from_secs(300);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// URLs that wait, by site.
    waiting: Vec<u64>,
    /// Those that were taken since the store was asked to count, if it was and has not answered.
    taken_since: Option<Vec<u64>>,
    /// What waits is not known, or too high.
    is_rough: bool,
    count_at: Mono,
    /// Sites for which an agent of ours has too much.
    full: Vec<bool>,
}

impl Outgoing {
    pub(super) fn new(sites: usize) -> Outgoing {
        let (waiting, full) = (vec![0; sites], vec![false; sites]);
        Outgoing { waiting, taken_since: None, is_rough: true, count_at: Mono(0), full }
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
    }

    fn take(&mut self, site: SiteNumber) {
        let at = site.index();
        self.waiting[at] = self.waiting[at].saturating_sub(1);
        if let Some(taken) = &mut self.taken_since {
            taken[at] += 1;
        }
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
        exchange.outgoing.is_rough |= admitted.moved != (0, 0);
    }

    /// A record is durable.
    pub(super) fn count_outgoing_in(&mut self, record: &Record) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let (federation, outgoing) = (&exchange.federation, &mut exchange.outgoing);
        let site_of = |url: &str| identify(url).map(|(host, _)| federation.counted_for(&host));
        match record {
            Record::Settled(settled) if settled.outcome.is_final() => {
                if let Some(site) = site_of(&settled.url) {
                    outgoing.take(site);
                }
            }
            // What of it is known here already, or is new, is known when the store has counted.
            Record::Moved { .. } | Record::Arrived(_) => {
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
        let (max, site) = (self.settings.outbox_urls_max, &self.site);
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let outgoing = &mut exchange.outgoing;
        if outgoing.is_rough && outgoing.taken_since.is_none() && now.mono >= outgoing.count_at {
            outgoing.taken_since = Some(vec![0; outgoing.waiting.len()]);
            outgoing.is_rough = false;
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

    /// The store has counted the URLs that wait.
    pub(super) fn on_counted_queued(&mut self, counted: &UrlsBySite) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let outgoing = &mut exchange.outgoing;
        let taken = outgoing.taken_since.take().unwrap_or_default();
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
