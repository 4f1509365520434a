//! Promise 3 where a disk is lost: it costs only what nobody else had a copy of. All that the pages lead to which others have in
//! their archives, and all seeds, are crawled in the end.

use std::collections::{BTreeMap, BTreeSet};

use nephila_core::record::{Outcome, Record, Settled};
use nephila_core::site::AgentId;

use super::super::check_lost;
use super::super::web::Plan;

/// Who knows what came of which URLs.
#[derive(Default)]
pub(super) struct Copies {
    of: BTreeMap<String, BTreeSet<AgentId>>,
    /// Those that were answered.
    answered: BTreeSet<String>,
}

impl Copies {
    /// An agent has made a record durable.
    pub(super) fn written(&mut self, agent: AgentId, record: &Record) {
        if let Record::Settled(Settled { url, outcome, .. }) = record
            && check_lost::is_done(outcome)
        {
            self.of.entry(url.clone()).or_default().insert(agent);
            if matches!(outcome, Outcome::Answered { .. }) {
                self.answered.insert(url.clone());
            }
        }
    }

    /// A power cut has taken back what came of a URL.
    pub(super) fn taken_back(&mut self, agent: AgentId, url: &str) {
        if let Some(agents) = self.of.get_mut(url) {
            agents.remove(&agent);
        }
    }

    /// An agent has lost its disk.
    pub(super) fn lost(&mut self, agent: AgentId) {
        self.of.values_mut().for_each(|agents| {
            agents.remove(&agent);
        });
    }

    /// Whether somebody knows what came of a URL.
    pub(super) fn has(&self, url: &str) -> bool {
        self.of.get(url).is_some_and(|agents| !agents.is_empty())
    }

    /// What leads to a URL that everybody could know of.
    pub(super) fn lead_to(&self, plan: &Plan, url: &str) -> Option<String> {
        if plan.seeds.iter().any(|seed| seed.as_str() == url) {
            return Some("its being a seed".into());
        }
        let pages = self.answered.iter().filter(|page| self.has(page));
        let mut leading = pages.filter(|page| {
            plan.urls
                .get(*page)
                .is_some_and(|(index, target)| plan.leads(*index, *target).iter().any(|to| to == url))
        });
        leading.next().cloned()
    }
}
