//! Questions that people ask of an agent. Nothing here changes it.

use std::time::Duration;

use super::rules::path_and_query;
use super::{Agent, HostView, Status};
use crate::frontier::{HostState, Name, Seen};
use crate::record::Block;
use crate::time::Now;
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
                hosts: u64::from(self.bench.len()),
                ..self.totals.clone()
            },
            hosts: counts,
            queue: self.queue,
            given_up: self.bench.hosts().filter(|(_, host)| host.given_up).count() as u64,
            next_due_s: next_due.map(|at| at.since(now.mono).as_secs_f64()),
            in_flight: self.flights.len(),
            unsettled: self.unsettled.len(),
            paused: self.paused,
            stopping: self.stopping.is_some(),
        }
    }

    /// How long the crawl has run, all runs together.
    pub fn elapsed(&self, now: Now) -> Duration {
        self.totals.elapsed_before + now.mono.since(self.started)
    }

    /// All hosts, in the order they became known.
    pub fn hosts(&self, now: Now) -> impl Iterator<Item = HostView> {
        self.bench.hosts().map(move |(index, host)| self.view(index, host, now))
    }

    /// One host.
    pub fn host(&self, name: &Host, now: Now) -> Option<HostView> {
        let index = self.bench.find(name)?;
        Some(self.view(index, self.bench.host(index), now))
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

    /// The last answer to a request for the robots.txt of an origin.
    pub fn robots_seen(&self, origin: &Origin) -> Option<&Seen> {
        self.bench.host(self.bench.find(&origin.host)?).rules_of(origin)?.seen.as_ref()
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

    fn view(&self, index: u32, host: &HostState, now: Now) -> HostView {
        let until = host.until().max(host.not_before);
        HostView {
            host: host.name.to_string(),
            place: host.place().name(),
            queue: host.due + host.head.len() as u64,
            pages: host.pages,
            wait_s: (until > now.mono && until != crate::time::Mono::NEVER)
                .then(|| until.since(now.mono).as_secs_f64()),
            delay_s: self.delay(index).as_secs_f64(),
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
