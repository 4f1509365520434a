//! An agent that is gone for good with its disk: who is told, and what becomes of what it knew.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use nephila_node::control::Request;

use super::{super::Outcome, super::agents::Agents, witness::Witness};
use crate::web::{Verdict, Web};

/// How often somebody is told that it will not come back, until that is taken in.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The lost agent.
pub(super) struct Lost {
    pub index: usize,
    told_at: Instant,
    /// Somebody has taken in that it will not come back.
    is_known: bool,
}

impl Lost {
    /// Nobody is told yet.
    pub(super) fn new(index: usize) -> Lost {
        Lost { index, told_at: Instant::now(), is_known: false }
    }

    /// Tells one of these agents, if it is time to.
    pub(super) fn tell(&mut self, agents: &Agents, whom: Option<usize>) -> bool {
        let Some(whom) = whom.filter(|_| !self.is_known && self.told_at.elapsed() >= TELL_EVERY) else {
            return false;
        };
        self.told_at = Instant::now();
        // It is refused as long as the others have heard of it lately.
        let agent = agents.list[self.index].name.clone();
        self.is_known = agents.ask(whom, &Request::Forget { agent }).is_some();
        self.is_known
    }

    /// What became of what it knew. Whatever the pages link to that agents have which are still there has to be crawled.
    pub(super) fn report(&self, witness: &Witness, web: &Web, verdict: &Verdict, outcome: &mut Outcome) {
        outcome.equal("the lost agent is forgotten", true, self.is_known);
        let reached: HashSet<String> = witness.answers().flat_map(|answer| links(web, &answer.url)).collect();
        let missed: Vec<String> = reached.iter().filter(|url| !witness.is_settled(url)).cloned().collect();
        outcome.none("URLs that links reach and nobody crawled", missed.len() as u64, &missed);
        outcome.figure("urls_that_links_reach", reached.len());
        let again = witness.lost().iter().filter(|url| witness.is_settled(url)).count();
        outcome.figure("pages_lost", witness.lost().len());
        outcome.figure("pages_lost_and_fetched_again", again);
        outcome.figure("urls_lost", witness.unsettled().len());
        outcome.figure("urls_never_fetched", verdict.expected - verdict.served);
    }
}

/// The URLs that a page of the web links to.
fn links(web: &Web, url: &str) -> Vec<String> {
    let Some((host, _, target)) = web.plan().locate(url) else { return Vec::new() };
    let Some(page) = host.page_of(target) else { return Vec::new() };
    let html = host.page(page);
    let html = String::from_utf8_lossy(&html);
    let targets = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let whole = |target: &str| match target.starts_with('/') {
        true => format!("{}{target}", host.origin()),
        false => target.to_owned(),
    };
    targets.map(whole).collect()
}
