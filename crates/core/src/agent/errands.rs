//! robots.txt that redirect to hosts of other agents: asked for there, in that host's queue and under its delays, and sent back.
//!
//! Nothing is repeated: who waits for rules gives up after a while, as for any host that does not deliver, and asks again later.

use super::abroad::give_rules;
use super::{Action, Agent, Answer, Content, Fetched};
use crate::assign::partition_of;
use crate::frontier::{Asker, Errand, Place};
use crate::limits::ERRANDS_MAX;
use crate::record::{Failure, Record, RobotsOutcome, RobotsRecord};
use crate::site::{AgentId, Message, RulesAnswer};
use crate::time::Now;
use crate::url::{Host, Origin, Url, clean};

/// No host of this agent: rules that another agent delivers.
const NO_SERVER: u32 = u32::MAX;

impl Agent {
    /// Asks the agent that a host belongs to for the rules of one of ours.
    pub(super) fn ask_another(
        &mut self,
        home: u32,
        origin: &Origin,
        (url, hops): (Url, u8),
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let holder = self.site.token(partition_of(&Host::of(&url))).holder;
        if !self.site.is_well(holder, now.mono) {
            return self.rules_unreachable(home, origin, Failure::RobotsUnreachable, None, now, out);
        }
        self.wait_elsewhere(home, now);
        let url = url.to_string();
        self.send(holder, Message::AskRules { origin: origin.clone(), url, hops }, out);
    }

    /// Another agent wants rules that a host of ours has.
    pub(super) fn on_ask_rules(
        &mut self,
        from: AgentId,
        origin: Origin,
        url: &str,
        hops: u8,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(url) = Url::parse(url).ok().and_then(clean) else { return };
        let until = now.mono + self.settings.robots_elsewhere_max;
        let errand = Errand { origin, url, hops, until, asker: Some(Asker::Agent(from)) };
        self.take_errand(errand, now, out);
    }

    /// Takes on what another agent or another site wants.
    pub(super) fn take_errand(&mut self, errand: Errand, now: Now, out: &mut Vec<Action>) {
        let host = Host::of(&errand.url);
        if !self.site.is_ours(&host) {
            return self.deliver_rules(&errand, Err(Failure::RobotsUnreachable), out);
        }
        let index = self.bench.index(&host);
        let same = |other: &Errand| {
            (&other.origin, &other.url, other.asker) == (&errand.origin, &errand.url, errand.asker)
        };
        if self.bench.host(index).errands.iter().any(same) {
            return;
        }
        if self.bench.host(index).errands.len() >= ERRANDS_MAX || self.blocked(index) {
            return self.deliver_rules(&errand, Err(Failure::RobotsUnreachable), out);
        }
        let host = self.bench.host_mut(index);
        if errand.asker.is_some() {
            // Another reason to ask its registrar whose it is.
            host.is_offered = host.is_offered.filter(|is_offered| *is_offered);
        }
        host.errands.push_back(errand);
        if self.is_at_rest(index) {
            self.settle_in(index, now);
        }
    }

    /// Sends rules back to who asked for them, or why there are none.
    pub(super) fn deliver_rules(
        &mut self,
        errand: &Errand,
        result: Result<RulesAnswer, Failure>,
        out: &mut Vec<Action>,
    ) {
        match errand.asker {
            Some(Asker::Agent(asker)) => {
                let result = Box::new(result);
                let (origin, url, hops) = (errand.origin.clone(), errand.url.to_string(), errand.hops);
                self.send(asker, Message::Rules { origin, url, hops, result }, out);
            }
            Some(Asker::Site(call)) => give_rules(call, result, out),
            None => {}
        }
    }

    /// A request on behalf of another agent ended.
    pub(super) fn fetched_for_another(
        &mut self,
        server: u32,
        errand: &Errand,
        fetched: &mut Fetched,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let (status, bytes, retry_after) = match &fetched.result {
            Ok(answer) => (Some(answer.status), answer.bytes, answer.retry_after),
            Err(_) => (None, 0, None),
        };
        let result = match &mut fetched.result {
            Ok(answer) => Ok(RulesAnswer::of(answer)),
            Err(error) => Err(error.failure),
        };
        let failure = match (&result, status) {
            (Err(failure), _) => Some(*failure).filter(|failure| failure.is_host()),
            (_, Some(429 | 503)) => Some(Failure::Busy),
            _ => None,
        };
        if let Some(failure) = failure {
            // That a port which another host made up cannot be reached says nothing about this one.
            if self.origin_failed(server, &Origin::of(&errand.url), failure, now).is_none() {
                self.host_failed(server, failure, retry_after, fetched.ended, now, out);
            }
        } else if result.is_ok() && self.bench.host(server).failure != Some(Failure::Busy) {
            self.host_recovered(server, now, out);
        }
        let record = RobotsRecord {
            origin: errand.origin.clone(),
            url: errand.url.to_string(),
            at: now.wall,
            took: fetched.ended.since(fetched.started),
            bytes,
            status,
            asked: true,
            outcome: RobotsOutcome::ForAnother,
            capture: None,
            found: Vec::new(),
        };
        self.write(Record::Robots(record), Some(server), Some(fetched.fetch), out);
        self.deliver_rules(errand, result, out);
    }

    /// Another agent has what one of our hosts waits for.
    pub(super) fn on_rules(
        &mut self,
        origin: &Origin,
        url: &str,
        hops: u8,
        result: Result<RulesAnswer, Failure>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        self.relay_rules(origin, url, hops, &result, out);
        let Some(home) = self.bench.find(&origin.host) else { return };
        let Ok(url) = Url::parse(url) else { return };
        if self.bench.host(home).place() != Place::Elsewhere {
            // It came too late.
            return;
        }
        let status = result.as_ref().ok().map(|answer| answer.status);
        let (outcome, target) = match result {
            Ok(answer) => self.read_rules(home, origin, (&url, hops), &mut answer.into_answer(), now),
            Err(_) => (RobotsOutcome::Unreachable(Failure::RobotsUnreachable), None),
        };
        let found = self.keep_rules(home, origin, now.wall, &outcome);
        self.keep_shared(home, now, out);
        let record = RobotsRecord {
            origin: origin.clone(),
            url: url.to_string(),
            at: now.wall,
            took: Default::default(),
            bytes: 0,
            status,
            asked: false,
            outcome: outcome.clone(),
            capture: None,
            found,
        };
        self.write(Record::Robots(record), Some(home), None, out);
        match (outcome, target) {
            (RobotsOutcome::Elsewhere, Some(target)) => {
                self.follow_rules((home, NO_SERVER), origin, (target, hops.saturating_add(1)), now, out);
            }
            (
                RobotsOutcome::Rules { .. } | RobotsOutcome::Unchanged { .. } | RobotsOutcome::None { .. },
                _,
            ) => {
                if self.bench.host(home).failure != Some(Failure::Busy) {
                    self.host_recovered(home, now, out);
                }
                self.settle_in(home, now);
            }
            _ => self.rules_unreachable(home, origin, Failure::RobotsUnreachable, None, now, out),
        }
    }
}

impl RulesAnswer {
    fn of(answer: &mut Answer) -> RulesAnswer {
        RulesAnswer {
            status: answer.status,
            is_whole: answer.cut.is_none() || answer.cut == Some(super::Cut::Length),
            location: answer.location.take(),
            max_age: answer.max_age,
            body: match std::mem::take(&mut answer.content) {
                Content::Robots(body) => body,
                _ => Vec::new(),
            },
        }
    }

    fn into_answer(self) -> Answer {
        Answer {
            status: self.status,
            cut: (!self.is_whole).then_some(super::Cut::Disconnect),
            location: self.location,
            max_age: self.max_age,
            content: Content::Robots(self.body),
            ..Answer::default()
        }
    }
}
