//! Hosts that are crawled by the nearest site.
//!
//! Where a host is shows when its name is resolved, and not before: nobody who finds a URL could compute whose it is. So by a
//! list of sites that goes by place the site that a host would belong to by its name is its *registrar*. It gets all that
//! others find of the host, and at the host's turn it looks where that is. If another site is nearest, it *grants* the host to
//! that one, for good as long as the list is the same: that is noted durably, and from then on it does with the host as with
//! any that belongs to another site. What is nearest to itself, or nowhere that is known, it crawls itself.
//!
//! The other site sends what it finds of the host to the registrar, as everybody does, until the registrar sends it something
//! of it: then it *claims* the host as one does that had been another's (`claims`), and the registrar says what it knows. A host
//! that the registrar does not confirm goes on being sent there. Both may have sent a URL to each other before either hears of
//! it: what comes back while it is on its way is kept.
//!
//! Grants are in the journal and with what is kept of hosts, and move with partitions. A registrar whose agent was lost with its
//! disk may have forgotten some: where the token of a partition was made anew it asks all other sites before it asks a host for
//! the first time after a start. One that holds the host by a grant keeps it, and it is granted to that one again.

use std::time::Duration;

use super::claims::version_of;
use super::{Action, Agent};
use crate::assign::{Position, partition_of};
use crate::federation::SiteNumber;
use crate::frontier::{Errand, Grant, HostState, Place, Wait};
use crate::record::{Arrived, Record, site_page};
use crate::time::Now;
use crate::url::{Host, identify};

/// A host that is about to be granted is looked at again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Agent {
    /// Whether a host goes to the nearest site.
    pub fn goes_to_nearest(&self, host: &Host) -> bool {
        self.exchange.as_deref().is_some_and(|exchange| exchange.federation.is_by_place(host))
    }

    pub(super) fn is_by_place(&self, index: u32) -> bool {
        self.goes_to_nearest(&self.bench.host(index).name)
    }

    /// The other site that does all for a host that is done for it, or knows who does.
    pub(super) fn other_site_of(&self, host: &HostState) -> Option<SiteNumber> {
        let federation = &self.exchange.as_deref()?.federation;
        let (me, registrar) = (federation.me(), federation.site_of(&host.name));
        let version = version_of(federation.version());
        let site = if !federation.is_by_place(&host.name) {
            registrar
        } else if registrar == me {
            host.granted.filter(|grant| grant.version == version).map_or(me, |grant| grant.to)
        } else if host.claimed == version {
            me
        } else {
            registrar
        };
        (site != me).then_some(site)
    }

    /// Whether URLs of a host are ours to take from another site.
    pub(super) fn takes_from(&self, sender: SiteNumber, host: &Host) -> bool {
        let Some(exchange) = self.exchange.as_deref() else { return true };
        let registrar = exchange.federation.site_of(host);
        registrar == exchange.federation.me() || registrar == sender && exchange.federation.is_by_place(host)
    }

    /// The name of a host was resolved.
    pub(super) fn locate(&mut self, index: u32, position: Option<Position>) {
        let Some(exchange) = self.exchange.as_deref() else { return };
        let nearest = position.and_then(|position| exchange.federation.nearest(position));
        let host = self.bench.host_mut(index);
        // A name whose addresses are at several places is where it was first, or it would go to and fro.
        if !host.is_located {
            (host.is_located, host.nearest) = (true, nearest);
        }
    }

    /// Whether it is not known yet who crawls a host of ours, or who does is not told yet.
    pub(super) fn decides(&self, index: u32) -> bool {
        let host = self.bench.host(index);
        let Some(exchange) = self.exchange.as_deref().filter(|_| !host.given_up) else { return false };
        let (federation, me) = (&exchange.federation, exchange.federation.me());
        federation.is_by_place(&host.name)
            && federation.site_of(&host.name) == me
            && (!host.is_located || host.nearest.is_some_and(|nearest| nearest != me))
    }

    /// Looks where a host is, or grants it to the site that is nearest.
    pub(super) fn decide(&mut self, index: u32, now: Now, out: &mut Vec<Action>) {
        let host = self.bench.host(index);
        if !host.is_located {
            return self.resolve(index, out);
        }
        // What is under way is ours.
        if let (0, Some(to)) = (host.held, host.nearest) {
            let name = host.name.clone();
            self.grant(&name, to, Some(index), out);
        }
        self.bench.put_until(index, Place::Waiting(Wait::Claim), now.mono + LOOK_AGAIN);
    }

    fn grant(&mut self, host: &Host, to: SiteNumber, of: Option<u32>, out: &mut Vec<Action>) {
        let Some(exchange) = self.exchange.as_deref() else { return };
        let federation = &exchange.federation;
        let (version, to) = (federation.version(), federation.site(to).name.clone());
        self.write(Record::Granted { host: host.clone(), version, to }, of, None, out);
    }

    /// A host is durably another site's.
    pub(super) fn host_is_granted(&mut self, host: &Host, version: u64, to: &str, now: Now) {
        let Some(index) = self.bench.find(host) else { return };
        self.recall_granted(index, version, to);
        if self.is_at_rest(index) {
            self.settle_in(index, now);
        }
    }

    /// A record of an earlier run says the same.
    pub(super) fn recall_granted(&mut self, index: u32, version: u64, to: &str) {
        let Some(exchange) = self.exchange.as_deref() else { return };
        // A site that has left the list has nothing any more.
        let Some(to) = exchange.federation.find(to) else { return };
        let host = self.bench.host_mut(index);
        host.granted = Some(Grant { to, version: version_of(version) });
        host.is_owned = false;
    }

    /// Whether there is reason to ask the registrar of a host whether it is ours: it has sent something of it here.
    pub(super) fn may_be_granted(&self, index: u32, site: SiteNumber) -> bool {
        let Some(exchange) = self.exchange.as_deref() else { return false };
        let (host, federation) = (self.bench.host(index), &exchange.federation);
        if !federation.is_by_place(&host.name) || federation.site_of(&host.name) != site {
            return false;
        }
        host.is_offered.unwrap_or_else(|| {
            let page = site_page(&federation.site(site).name);
            host.errands.iter().any(|errand| errand.asker.is_some())
                || host.head.iter().any(|due| due.via.as_deref() == Some(&*page))
        })
    }

    /// Something came from other sites, by way of another agent of ours perhaps, and is about to be written down.
    pub(super) fn heed_offers(&mut self, arrived: &Arrived) {
        let Some(exchange) = self.exchange.as_deref().filter(|exchange| exchange.federation.goes_by_place())
        else {
            return;
        };
        let federation = &exchange.federation;
        let mut found = arrived.found.iter();
        for (page, count) in &arrived.pages {
            let of_page = found.by_ref().take(*count as usize);
            for (host, _) in of_page.filter_map(|found| identify(&found.url)) {
                let registrar = &federation.site(federation.site_of(&host)).name;
                if page.as_deref() == Some(&*site_page(registrar))
                    && let Some(index) = self.bench.find(&host)
                {
                    self.bench.host_mut(index).is_offered = Some(true);
                }
            }
        }
    }

    /// Something new of a host waits. Where agents share a store nobody here knows whether its registrar has sent that, but the
    /// store does.
    pub(super) fn heed_new(&mut self, index: u32) {
        if self.site.is_shared() {
            let host = self.bench.host_mut(index);
            host.is_offered = host.is_offered.filter(|is_offered| *is_offered);
        }
    }

    /// The registrar of a host says that it is not ours.
    pub(super) fn is_not_granted(&mut self, host: &Host, now: Now) {
        let Some(index) = self.bench.find(host) else { return };
        self.bench.host_mut(index).is_offered = Some(false);
        if self.is_at_rest(index) {
            self.settle_in(index, now);
        }
    }

    /// A host that we had granted and have forgotten about is granted again.
    pub(super) fn confirm_grant(&mut self, host: &Host, to: SiteNumber, out: &mut Vec<Action>) {
        let index = self.bench.find(host);
        self.grant(host, to, index, out);
    }

    /// Whether a host of ours may be with a site that we do not know of: it may have been granted since it was claimed, and been
    /// lost with whoever knew that.
    pub(super) fn may_have_forgotten_grants(&self, host: &Host, claimed: u64) -> bool {
        let Some(exchange) = self.exchange.as_deref() else { return false };
        if self.site.token(partition_of(host)).life() == 0 {
            return false;
        }
        let mut lists = std::iter::once(&exchange.federation).chain(&exchange.claims.earlier);
        lists.any(|list| list.version() > claimed && list.is_by_place(host))
    }

    /// What is wanted of a host that is another site's: that one is asked if we have granted the host to it.
    pub(super) fn pass_on(&mut self, errand: Errand, site: SiteNumber, now: Now, out: &mut Vec<Action>) {
        let host = Host::of(&errand.url);
        let is_ours_to_pass = self.exchange.as_deref().is_some_and(|exchange| {
            let federation = &exchange.federation;
            federation.is_by_place(&host) && federation.site_of(&host) == federation.me()
        });
        if is_ours_to_pass && now.mono < errand.until {
            let of_another = errand.asker.is_some().then(|| errand.clone());
            if self.call_site((&errand.origin, &errand.url, errand.hops), of_another, site, out) {
                return;
            }
        }
        self.fail_errand(&errand, now, out);
    }
}
