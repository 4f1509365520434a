//! What is found of hosts of other sites, on its way there.
//!
//! A host of another site is in the store of this one as any other is: the agent that holds its partition is its *courier*. So
//! the sieve knows what was sent, and a URL is sent once however often it is found; the host's queue is the outbox, on disk,
//! and moves with its partition. Where a host of ours would be asked, one of another site is emptied: its URLs go into a batch,
//! and when the other site has written that down, each is settled ([`Outcome::Sent`]). What was not answered for goes back into
//! the queue: a URL may so be sent twice, and is then known there.
//!
//! Of each site at most one batch is being filled and one is on its way. While a site does not answer, nothing is taken for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::abroad::Abroad;
use super::claims::Claims;
use super::dispatch::unasked;
use super::neighbours::Neighbours;
use super::outgoing::Outgoing;
use super::returning::Returning;
use super::saying::Sayings;
use super::{Action, Agent, Due, Ticket};
use crate::cash::{self, Total};
use crate::federation::{Batch, Federation, SiteEntry, SiteNumber};
use crate::frontier::{Place, Wait};
use crate::limits::{POST_BYTES_MAX, POST_URLS_MAX, POSTED_OF_HOST_MAX, UNSETTLED_MAX};
use crate::record::{Arrived, Found, How, LeftOut, Outcome, Record, site_page};
use crate::time::{Mono, Now};
use crate::url::{CleanUrl, Host, Url, clean, identify};

/// A batch that is not full goes this long after the first URL of it was taken. The more there is in one, the fewer bytes a URL
/// takes on the way, but a site that has nothing else to do waits for the first ones: so each waits twice as long as the one
/// before,
const GATHER_MIN: Duration = Duration::from_millis(250);
/// up to this, and all is as in the beginning when there was nothing to send for so long.
const GATHER_MAX: Duration = Duration::from_secs(8);
/// A host that finds no room in a batch is looked at again after this.
const ROOM_AGAIN: Duration = Duration::from_secs(1);
/// A site that does not take a batch is left alone for so long at first, and twice as long each time,
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// up to this.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// URLs for one other site of a stretched federation; then nothing more is fetched.
const LOOSE_MAX: usize = 200_000;
/// What a place of one that remembers remembers of what it has sent to another, by hash: 3 MB. Then it begins anew.
const LOOSE_KNOWN_MAX: usize = 375_000;

/// URLs and the hosts that they were taken from.
type Parcels = Vec<(u32, Due)>;

/// A batch on its way.
#[derive(Debug)]
struct Sent {
    post: u64,
    parcels: Parcels,
    loose: Vec<Found>,
}

/// The way to another site.
#[derive(Debug, Default)]
struct Route {
    filling: Parcels,
    bytes: usize,
    /// When what is being filled goes at the latest.
    goes_at: Option<Mono>,
    /// For how long the last one waited, and when it went.
    gathered: Duration,
    went: Mono,
    /// In a stretched federation: what was found and belongs there.
    loose: VecDeque<Found>,
    /// And if it is remembering, what that was so far.
    loose_known: BTreeSet<u64>,
    sent: Option<Sent>,
    /// Those of what is being filled and on its way that another site has given to us meanwhile, and how often they were tried:
    /// neither site may believe that the other one has them.
    returned: BTreeMap<String, u8>,
    failures: u32,
    /// The gateway that is asked: another one after each failure.
    gateway: usize,
    /// URLs that it has taken in this run,
    taken: u64,
    /// that it has sent,
    received: u64,
    /// and those of them that it may not send.
    refused: u64,
    /// Hosts that were claimed from it and of which it told more URLs than a host may have.
    cut_answers: u64,
    /// Nothing is sent before, since the last was not taken,
    not_before: Mono,
    /// or since it has had its part.
    paced_until: Mono,
}

impl Route {
    fn has_room(&self, now: Mono) -> bool {
        now >= self.not_before && self.filling.len() < POST_URLS_MAX && self.bytes < POST_BYTES_MAX
    }

    fn is_full(&self) -> bool {
        self.filling.len().max(self.loose.len()) >= POST_URLS_MAX || self.bytes >= POST_BYTES_MAX
    }

    /// Says when what is there goes, if that is not said.
    fn gather(&mut self, now: Mono) {
        if self.goes_at.is_some() || (self.filling.is_empty() && self.loose.is_empty()) {
            return;
        }
        let is_new = now.since(self.went) > GATHER_MAX;
        self.gathered = if is_new { GATHER_MIN } else { (self.gathered * 2).clamp(GATHER_MIN, GATHER_MAX) };
        self.goes_at = Some(now + self.gathered);
    }

    fn next_wake(&self) -> Option<Mono> {
        let waits = self.sent.is_none() && !(self.filling.is_empty() && self.loose.is_empty());
        let from = self.not_before.max(self.paced_until);
        let at = if self.is_full() { from } else { self.goes_at?.max(from) };
        waits.then_some(at)
    }

    fn back_off(&mut self, now: Mono) {
        let wait = BACKOFF_MIN.saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        self.gateway += 1;
        self.not_before = now + wait.min(BACKOFF_MAX);
    }
}

/// What an agent knows of a site of its federation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OtherSite {
    /// Its name.
    pub name: String,
    /// It is the agent's own.
    pub is_home: bool,
    /// It is lost for good.
    pub is_gone: bool,
    /// Whether it took the last batch that this agent has sent there; unknown before the first.
    pub is_reached: Option<bool>,
    /// URLs that it has taken from this agent in this run.
    pub taken: u64,
    /// URLs that wait for it with this agent.
    pub waiting: u64,
    /// So many wait that pages wait, too, or what is found for it is dropped; with another agent of this site, perhaps.
    pub is_full: bool,
    /// URLs that it has sent to this agent in this run,
    pub received: u64,
    /// and those of them that it may not send.
    pub refused: u64,
    /// Hosts of which it told more URLs than a host may have here, when they were claimed from it in this run; the rest was not
    /// asked for.
    pub cut_answers: u64,
    /// When it is tried again, in seconds, if it did not take the last.
    pub again_s: Option<f64>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) federation: Federation,
    /// By site; that to our own is not used.
    routes: Vec<Route>,
    posts: u64,
    /// Who waits until what came from another site is durable.
    calls: BTreeMap<Ticket, u64>,
    pub(super) outgoing: Outgoing,
    pub(super) abroad: Abroad,
    pub(super) neighbours: Neighbours,
    pub(super) returning: Returning,
    pub(super) claims: Claims,
    pub(super) sayings: Sayings,
    /// How long each host is left alone at least, because the federation's operator wants that.
    pub(super) least_delay: Duration,
}

impl Exchange {
    fn new(federation: Federation) -> Exchange {
        let routes = federation.sites().map(|_| Route::default()).collect();
        let outgoing = Outgoing::new(federation.sites().len());
        Exchange {
            routes,
            posts: 0,
            calls: BTreeMap::new(),
            outgoing,
            abroad: Abroad::default(),
            neighbours: Neighbours::default(),
            returning: Returning::default(),
            claims: Claims::default(),
            sayings: Sayings::new(&federation),
            least_delay: Duration::ZERO,
            federation,
        }
    }
}

impl Agent {
    /// The same agent, of a site of this federation.
    pub fn in_federation(mut self, federation: Federation) -> Agent {
        self.exchange = Some(Box::new(Exchange::new(federation)));
        self
    }

    /// In a stretched federation what a page links to and belongs to others leaves its record before that is written down.
    pub(super) fn divert(&mut self, record: &mut Record) {
        let Some(Exchange { federation, routes, .. }) = self.exchange.as_deref_mut() else { return };
        let found = match record {
            Record::Seeds(found) => found,
            Record::Settled(settled) => &mut settled.found,
            Record::Robots(robots) => &mut robots.found,
            _ => return,
        };
        found.retain(|found| {
            let Some(site) = federation.stretched_to(&found.url) else { return true };
            let route = &mut routes[site.index()];
            if federation.is_remembering() {
                if route.loose_known.len() >= LOOSE_KNOWN_MAX {
                    route.loose_known.clear();
                }
                if !route.loose_known.insert(xxh3_64(found.url.as_bytes())) {
                    return false;
                }
            }
            route.loose.push_back(found.clone());
            false
        });
    }

    /// Whether so much is on its way to other sites that nothing more should be found.
    pub(super) fn is_clogged(&self) -> bool {
        self.exchange
            .as_ref()
            .is_some_and(|exchange| exchange.routes.iter().any(|route| route.loose.len() > LOOSE_MAX))
    }

    /// The other site that a host belongs to, as far as this agent knows.
    pub(super) fn other_site(&self, host: &Host) -> Option<SiteNumber> {
        let Exchange { federation, .. } = self.exchange.as_deref()?;
        if federation.is_by_place(host)
            && let Some(index) = self.bench.find(host)
        {
            return self.other_site_of(self.bench.host(index));
        }
        Some(federation.site_of(host)).filter(|site| *site != federation.me())
    }

    /// The name of the other site that a host belongs to.
    pub fn other_site_name(&self, host: &Host) -> Option<&str> {
        let number = self.other_site(host)?;
        Some(&self.exchange.as_deref()?.federation.site(number).name)
    }

    /// A host of another site has its turn.
    pub(super) fn post_next(&mut self, index: u32, site: SiteNumber, now: Now, out: &mut Vec<Action>) {
        if self.may_be_granted(index, site) {
            return self.claim(index, now);
        }
        // Its rules are asked for by its own site.
        for errand in std::mem::take(&mut self.bench.host_mut(index).errands) {
            self.pass_on(errand, site, now, out);
        }
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let route = &mut exchange.routes[site.index()];
        let host = self.bench.host_mut(index);
        if host.is_known() && host.head.is_empty() && host.due == 0 {
            return self.settle_in(index, now);
        }
        if !route.has_room(now.mono) {
            let until = route.not_before.max(now.mono + ROOM_AGAIN);
            return self.bench.put_until(index, Place::Waiting(Wait::Exchange), until);
        }
        if host.head.is_empty() {
            let host = host.name.clone();
            self.bench.put(index, Place::Taking);
            return out.push(Action::Take { host, max: POSTED_OF_HOST_MAX, fresh_first: false });
        }
        while !route.is_full() {
            let Some(due) = host.head.pop_front() else { break };
            route.bytes += due.url.as_str().len();
            route.filling.push((index, due));
        }
        host.held += 1;
        self.bench.put(index, Place::Outgoing);
        // What found no room comes next.
        self.put_back(index, out);
    }

    /// Sends what is to go now.
    pub(super) fn tend_exchange(&mut self, now: Now, out: &mut Vec<Action>) {
        self.tend_returning(now, out);
        self.tend_claims(now, out);
        self.tend_outgoing(now, out);
        self.tend_neighbours(now, out);
        self.tend_sayings(now, out);
        let (rate, by_cash) = (self.settings.send_rate, self.goes_by_cash());
        let Some(Exchange { federation, routes, posts, .. }) = self.exchange.as_deref_mut() else { return };
        if self.ended {
            return;
        }
        let me = federation.me();
        let others = federation.sites().filter(|(site, entry)| *site != me && !entry.is_gone).count();
        for ((site, entry), route) in federation.sites().zip(routes) {
            route.gather(now.mono);
            if route.next_wake().is_none_or(|at| at > now.mono) {
                continue;
            }
            *posts += 1;
            let parcels = std::mem::take(&mut route.filling);
            (route.bytes, route.goes_at, route.went) = (0, None, now.mono);
            let loose: Vec<Found> = route.loose.drain(..route.loose.len().min(POST_URLS_MAX)).collect();
            let found = parcels.iter().map(|(_, due)| found_of(due)).chain(loose.iter().cloned()).collect();
            route.paced_until = now.mono + pace(rate, others, parcels.len() + loose.len());
            let given = parcels.iter().map(|(_, due)| due.cash.map_or(0, cash::rounded));
            let units = match by_cash {
                true => given.chain(loose.iter().map(|_| 0)).collect(),
                false => Vec::new(),
            };
            let batch = Box::new(Batch { list: federation.list(), found, units });
            route.sent = Some(Sent { post: *posts, parcels, loose });
            let gateway = gateway_of(entry, route);
            out.push(Action::Post { site, gateway: gateway.unwrap_or_default(), post: *posts, batch });
        }
    }

    /// Where a site is reached, as far as is known.
    pub(super) fn gateway_of(&self, site: SiteNumber) -> Option<String> {
        let Exchange { federation, routes, .. } = self.exchange.as_deref()?;
        gateway_of(federation.site(site), routes.get(site.index())?)
    }

    /// It was not reached there.
    pub(super) fn try_another_gateway(&mut self, site: SiteNumber) {
        if let Some(exchange) = self.exchange.as_deref_mut() {
            exchange.routes[site.index()].gateway += 1;
        }
    }

    pub(super) fn next_exchange_wake(&self) -> Option<Mono> {
        let exchange = self.exchange.as_deref().filter(|_| !self.ended)?;
        let others = [self.next_returning_wake(), self.next_claim_wake()].into_iter().flatten();
        exchange.routes.iter().filter_map(Route::next_wake).chain(others).min()
    }

    /// The sites of the federation.
    pub fn other_sites(&self, now: Now) -> Vec<OtherSite> {
        let Some(Exchange { federation, routes, outgoing, .. }) = self.exchange.as_deref() else {
            return Vec::new();
        };
        let view = |((number, site), route): ((SiteNumber, &SiteEntry), &Route)| OtherSite {
            name: site.name.clone(),
            is_home: number == federation.me(),
            is_gone: site.is_gone,
            is_reached: (route.failures > 0 || route.taken > 0).then_some(route.failures == 0),
            taken: route.taken,
            waiting: outgoing.waiting(number),
            is_full: outgoing.is_full(number),
            received: route.received,
            refused: route.refused,
            cut_answers: route.cut_answers,
            again_s: (route.failures > 0).then(|| route.not_before.since(now.mono).as_secs_f64()),
        };
        federation.sites().zip(routes).map(view).collect()
    }

    /// Another site has written a batch down, or has not.
    pub(super) fn on_posted(&mut self, post: u64, taken: bool, now: Now, out: &mut Vec<Action>) {
        let Some(Exchange { federation, routes, .. }) = self.exchange.as_deref_mut() else { return };
        let is_it = |route: &Route| route.sent.as_ref().is_some_and(|sent| sent.post == post);
        let Some(at) = routes.iter().position(is_it) else { return };
        let route = &mut routes[at];
        let Some(Sent { mut parcels, loose, .. }) = route.sent.take() else { return };
        let mut sent_to = None;
        if taken {
            (route.failures, route.not_before) = (0, now.mono);
            route.taken += parcels.len() as u64;
            sent_to = federation.sites().nth(at).map(|(_, site)| site.name.clone());
        } else {
            route.back_off(now.mono);
            loose.into_iter().rev().for_each(|found| route.loose.push_front(found));
            parcels.append(&mut route.filling);
            route.bytes = 0;
        }
        let returned = |(index, mut due): (u32, Due)| {
            let attempts = route.returned.remove(due.url.as_str());
            due.attempts = due.attempts.max(attempts.unwrap_or(0));
            (index, due, attempts.is_some())
        };
        let parcels: Vec<(u32, Due, bool)> = parcels.into_iter().map(returned).collect();
        let mut hosts = BTreeSet::new();
        for (index, due, is_returned) in parcels {
            hosts.insert(index);
            match sent_to.clone().filter(|_| !is_returned) {
                Some(to) => {
                    let sent = Outcome::Sent { to };
                    self.write(Record::Settled(unasked(due, sent, now)), Some(index), None, out);
                }
                // What was not taken goes back into the queue.
                None => self.bench.host_mut(index).head.push_back(due),
            }
        }
        for index in &hosts {
            if self.site.holds(self.bench.host(*index).partition) {
                self.put_back(*index, out);
            } else {
                self.bench.host_mut(*index).head.clear();
            }
        }
        self.release(hosts, now);
    }

    /// URLs are about to be written down, or offered to a store that agents share, that another site has given back to us.
    pub(super) fn heed_returned(&mut self, found: &[Found]) {
        for found in found {
            let How::Returned { attempts, .. } = found.how else { continue };
            let host = identify(&found.url).and_then(|(host, _)| self.bench.find(&host));
            let is_away = |index: &u32| self.bench.host(*index).held > 0;
            let Some(index) = host.filter(is_away) else { continue };
            let Some(exchange) = self.exchange.as_deref_mut() else { return };
            for route in &mut exchange.routes {
                let sent = route.sent.iter().flat_map(|sent| &sent.parcels);
                let mut parcels = sent.chain(&route.filling);
                if parcels.any(|(of, due)| *of == index && due.url.as_str() == found.url) {
                    let known = route.returned.entry(found.url.clone()).or_default();
                    *known = attempts.max(*known);
                }
            }
        }
    }

    /// Nothing of these hosts is on its way any more.
    fn release(&mut self, hosts: BTreeSet<u32>, now: Now) {
        for index in hosts {
            self.bench.host_mut(index).held -= 1;
            self.settle_in(index, now);
        }
    }

    /// URLs that another site has found, and that are ours as far as it knows. What is not, or not in our scope, or not for that
    /// site to send, is left out: the other site need not be trusted.
    pub(super) fn on_batch(&mut self, call: u64, site: &str, batch: Batch, out: &mut Vec<Action>) {
        let federation = self.exchange.as_ref().map(|exchange| &exchange.federation);
        let is_our_list = federation.is_some_and(|federation| federation.list() == batch.list);
        // One that was never let into its site would keep it to itself.
        let is_out = match self.site.is_shared() {
            true => self.site.held.is_empty(),
            false => !self.site.members.is_founded(),
        };
        if !is_our_list || is_out || self.unsettled.len() >= UNSETTLED_MAX {
            return out.push(Action::Answer { call, taken: false });
        }
        let sender = federation.and_then(|federation| federation.find(site));
        let Some(sender) = sender else { return out.push(Action::Answer { call, taken: false }) };
        let (mut found, mut refused) = (Vec::with_capacity(batch.found.len()), 0);
        let giver = cash::site_giver(site);
        // A partner need not be trusted: it is believed no more of one URL than all pages that this agent has fetched could have
        // given.
        let most = cash::SEED.saturating_add(cash::GRANT.saturating_mul(self.totals.pages));
        let mut totals = Vec::new();
        let urls = batch.found.into_iter().take(POST_URLS_MAX + POSTED_OF_HOST_MAX);
        for (at, mut one) in urls.enumerate() {
            let Some(url) = Url::parse(&one.url).ok().and_then(clean) else { continue };
            let (host, url) = (Host::of(&url), CleanUrl::from(url));
            if !self.may_send(sender, &host) {
                refused += 1;
            } else if self.takes_from(sender, &host) && self.may_follow(&url, &mut LeftOut::default()) {
                // The user has named it elsewhere: that does not widen the scope here.
                one.how = if one.how == How::Seed { How::Link } else { one.how };
                // Then we may have given it to the site that it belonged to.
                one.how = if self.may_have_been_theirs(&host) { one.how.returned(0) } else { one.how };
                found.push(Found { url: url.into(), ..one });
                let units = batch.units.get(at).copied().unwrap_or(0).min(most);
                totals.extend(self.goes_by_cash().then_some(Total { giver, units }));
            }
        }
        if let Some(exchange) = &mut self.exchange {
            let route = &mut exchange.routes[sender.index()];
            route.received += (refused + found.len()) as u64;
            route.refused += refused as u64;
        }
        if found.is_empty() {
            return out.push(Action::Answer { call, taken: true });
        }
        let pages = vec![(Some(site_page(site)), found.len() as u32)];
        let site = Some(site.to_owned());
        let record = Record::Arrived(Arrived { from: self.site.me(), site, found, pages, totals });
        let ticket = self.write(record, None, None, out);
        if let Some(exchange) = &mut self.exchange {
            exchange.calls.insert(ticket, call);
        }
    }

    fn may_send(&self, site: SiteNumber, host: &Host) -> bool {
        self.exchange.as_ref().is_none_or(|exchange| exchange.federation.site(site).may_send(host))
    }

    /// A record is durable, or will never be.
    pub(super) fn answer_call(&mut self, ticket: Ticket, taken: bool, out: &mut Vec<Action>) {
        let call = self.exchange.as_mut().and_then(|exchange| exchange.calls.remove(&ticket));
        out.extend(call.map(|call| Action::Answer { call, taken }));
    }
}

impl Exchange {
    /// A site has told of a claimed host, and was not asked for the rest, if it was cut.
    pub(super) fn note_cut_answer(&mut self, site: SiteNumber, was_cut: bool) {
        self.routes[site.index()].cut_answers += u64::from(was_cut);
    }
}

fn gateway_of(entry: &SiteEntry, route: &Route) -> Option<String> {
    entry.gateways.get(route.gateway % entry.gateways.len().max(1)).cloned()
}

/// How long a site that was sent so many URLs gets no more, if all sites together may get so many a second.
fn pace(rate: Option<u64>, sites: usize, urls: usize) -> Duration {
    let Some(rate) = rate.filter(|rate| *rate > 0) else { return Duration::ZERO };
    Duration::from_secs_f64((urls * sites) as f64 / rate as f64)
}

fn found_of(due: &Due) -> Found {
    // One that was tried was ours until now.
    let how = if due.attempts > 0 { due.how.returned(due.attempts) } else { due.how };
    Found { url: due.url.as_str().to_owned(), depth: due.depth, how, redirects: due.redirects }
}
