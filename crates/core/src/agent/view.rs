//! Questions that people ask of an agent. Nothing here changes it.

use std::time::Duration;

use super::rules::path_and_query;
use super::{Agent, HostCounts, HostView, Standing, Status, StoredHost};
use crate::frontier::{HostState, Name, Place};
use crate::record::Block;
use crate::scope::Scope;
use crate::settings::Settings;
use crate::site::{AgentId, Member};
use crate::time::{Mono, Now};
use crate::url::{Host, Origin, Url};

/// What robots.txt says about a URL, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RobotsView {
    /// It has not been had yet.
    NotYet,
    /// It allows the URL.
    Allowed,
    /// It forbids the URL.
    Disallowed {
        /// The line that does, from 1.
        line: u32,
        /// That line.
        rule: String,
    },
}

impl Agent {
    /// What the agent is doing.
    pub fn status(&mut self, now: Now) -> Status {
        let counts = self.bench.counts();
        let next_due = self.bench.next_alarm().filter(|_| counts.ready + counts.fetching == 0);
        Status {
            totals: super::Totals {
                over_limit: self.over.depth + self.over.host + self.over.urls,
                hosts: self.hosts.max(self.bench.len() as u64),
                ..self.totals.clone()
            },
            hosts: HostCounts { away: self.hosts.saturating_sub(self.bench.len() as u64), ..counts },
            queue: self.waiting_urls(),
            outgoing: self.outgoing_urls().0,
            outbox_full: self.is_any_outbox_full(),
            backed_up: self.is_backed_up(now),
            undecided: self.undecided,
            given_up: self.given_up,
            next_due_s: next_due.map(|at| at.since(now.mono).as_secs_f64()),
            in_flight: self.flights.len(),
            unsettled: self.unsettled.len(),
            paused: self.paused,
            stopping: self.is_stopping(),
            store_away: self.is_store_away(now),
            unconfirmed: self.unconfirmed_partitions(),
        }
    }

    /// Whether the store that agents share does not answer.
    pub fn is_store_away(&self, now: Now) -> bool {
        self.site.shared.as_ref().is_some_and(|shared| now.mono >= shared.valid_until && !shared.has_left)
    }

    /// How many partitions are held whose hosts wait because no replica confirms anything of them.
    pub(super) fn unconfirmed_partitions(&self) -> u64 {
        let Some(shared) = &self.site.shared else { return 0 };
        shared.unconfirmed.iter().filter(|partition| self.site.holds(*partition)).count() as u64
    }

    /// The other agents of the site, and how each of them is doing.
    pub fn company(&self, now: Now) -> impl Iterator<Item = (AgentId, &Member, Standing)> {
        let me = self.site.me();
        let others = self.site.members.iter().filter(move |(id, _)| *id != me);
        others.map(move |(id, member)| {
            let standing = match (member.is_gone(), self.site.is_well(id, now.mono)) {
                (true, _) => Standing::Gone,
                (false, true) => Standing::Well,
                (false, false) => Standing::Silent,
            };
            (id, member, standing)
        })
    }

    /// Whether it is about to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// How long the crawl has run, all runs together.
    pub fn elapsed(&self, now: Now) -> Duration {
        self.totals.elapsed_before + now.mono.since(self.started)
    }

    /// The hosts on the workbench.
    pub fn hosts(&self, now: Now) -> impl Iterator<Item = HostView> {
        self.bench.hosts().map(move |(_, host)| self.view(host, host.place(), host.until(), now))
    }

    /// One host that is on the workbench.
    pub fn host(&self, name: &Host, now: Now) -> Option<HostView> {
        let host = self.bench.host(self.bench.find(name)?);
        Some(self.view(host, host.place(), host.until(), now))
    }

    /// One host that is in the store, and where it is or would be.
    pub fn stored_host(&self, stored: &StoredHost, now: Now) -> HostView {
        self.host(&stored.host, now).unwrap_or_else(|| {
            let host = self.host_of(stored, now);
            let (place, until) = self.place_of(&host, now);
            self.view(&host, place, until.unwrap_or(Mono::NEVER), now)
        })
    }

    /// Counts a host of the store, if it is not on the workbench, by where it would be.
    pub fn count_stored(&self, stored: &StoredHost, now: Now, counts: &mut HostCounts) {
        if self.bench.find(&stored.host).is_none() {
            *self.place_of(&self.host_of(stored, now), now).0.counter(counts) += 1;
        }
    }

    /// Takes a host of the store to the workbench, room or not, for somebody who asks about it. Says which of its rules are only
    /// in the journal: see [`Agent::read_rules_back`].
    pub fn look_at(&mut self, stored: StoredHost, now: Now) -> Vec<u64> {
        let index = self.bench.index(&stored.host);
        if !self.bench.host(index).is_known() {
            self.make_known(index, stored.memo, now);
            let host = self.bench.host_mut(index);
            (host.due, host.retry_at) = (stored.due, stored.next);
            self.settle_in(index, now);
        }
        let rules = self.bench.host(index).rules.iter().filter_map(|of| of.rules.as_ref());
        rules.filter(|rules| rules.robots.is_none()).filter_map(|rules| rules.place).collect()
    }

    /// Tells what the store has of a host that is on the workbench because of records: of a crawl that does not run nobody goes
    /// round to find out.
    pub fn take_stock(&mut self, stored: &StoredHost, now: Now) {
        if let Some(index) = self.bench.find(&stored.host) {
            let host = self.bench.host_mut(index);
            (host.due, host.retry_at) = (stored.due, stored.next);
            self.settle_in(index, now);
        }
    }

    fn host_of(&self, stored: &StoredHost, now: Now) -> HostState {
        let mut host = HostState::new(stored.host.clone());
        host.remember(stored.memo.clone(), self.runs, now);
        (host.due, host.retry_at) = (stored.due, stored.next);
        host
    }

    /// The block that a host falls under.
    pub fn block_on(&self, name: &Host) -> Option<&Block> {
        let index = self.bench.find(name);
        let addresses = index.map_or(&Name::Unknown, |index| &self.bench.host(index).addresses);
        self.block_of(name, addresses)
    }

    /// All blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter()
    }

    /// Whether a URL is being fetched.
    pub fn is_fetching(&self, url: &Url) -> bool {
        self.flights.values().any(|flight| matches!(&flight.task, super::Task::Page(due) if due.url == *url))
    }

    /// Where the records are of the robots.txt files of a host that is on the workbench.
    pub fn rules_places(&self, name: &Host) -> Vec<u64> {
        let host = self.bench.find(name).map(|index| self.bench.host(index));
        let rules = host.into_iter().flat_map(|host| &host.rules);
        rules.flat_map(|of| [of.seen, of.rules.as_ref().and_then(|rules| rules.place)]).flatten().collect()
    }

    /// How many URLs are known and not settled.
    pub fn waiting_urls(&self) -> u64 {
        self.queue.max(0) as u64
    }

    /// The scope, with what redirects of seeds have added.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where in the journal the last answer to a request for the robots.txt of an origin is.
    pub fn robots_seen(&self, origin: &Origin) -> Option<u64> {
        self.bench.host(self.bench.find(&origin.host)?).rules_of(origin)?.seen
    }

    /// What robots.txt says about a URL, by the copy that we have.
    pub fn robots_on(&self, url: &Url) -> RobotsView {
        let rules = self
            .bench
            .find(&Host::of(url))
            .and_then(|index| self.bench.host(index).rules_of(&Origin::of(url))?.rules.as_ref());
        let Some(rules) = rules else { return RobotsView::NotYet };
        // Rules that were dropped from memory are read back when their host has its turn.
        let Some(robots) = &rules.robots else { return RobotsView::NotYet };
        let decision = robots.decide(path_and_query(url));
        match decision.rule.filter(|_| !decision.allowed) {
            Some(rule) => RobotsView::Disallowed { line: rule.line, rule: rule.text.to_string() },
            None => RobotsView::Allowed,
        }
    }

    fn view(&self, host: &HostState, place: Place, until: Mono, now: Now) -> HostView {
        let until = until.max(host.not_before);
        let shared = self.site.shared.as_ref();
        let is_unconfirmed = matches!(place, Place::Ready | Place::Taking)
            && shared.is_some_and(|shared| shared.unconfirmed.contains(host.partition));
        HostView {
            host: host.name.to_string(),
            place: if is_unconfirmed { "unconfirmed" } else { place.name() }.into(),
            queue: host.due + host.head.len() as u64,
            pages: host.pages,
            wait_s: (until > now.mono && until != Mono::NEVER).then(|| until.since(now.mono).as_secs_f64()),
            delay_s: self.delay_of(host).as_secs_f64(),
            failures: host.failures,
            failure: host.failure,
            given_up: host.given_up,
            addresses: match &host.addresses {
                Name::At(list, _) => list.iter().map(|ip| ip.to_string()).collect(),
                _ => Vec::new(),
            },
        }
    }
}
