//! An agent that is gone for good with its disk: who is told, and what becomes of what it knew.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use nephila_core::time::Wall;
use nephila_node::{clock::Clock, control::Request};

use super::{super::Outcome, super::agents::Agents, witness::Witness};
use crate::web::{Verdict, Web};

/// How often somebody is told that it will not come back, until that is taken in.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// When it is taken in, all agents that run know after this.
const KNOWN_AFTER: Duration = Duration::from_secs(5);

/// The lost agent.
pub(super) struct Lost {
    pub index: usize,
    told_at: Instant,
    /// When all knew that it will not come back.
    known_at: Option<Wall>,
}

impl Lost {
    /// Nobody is told yet.
    pub(super) fn new(index: usize) -> Lost {
        Lost { index, told_at: Instant::now(), known_at: None }
    }

    /// Tells one of these agents, if it is time to.
    pub(super) fn tell(&mut self, agents: &Agents, whom: Option<usize>) -> bool {
        let Some(whom) = whom.filter(|_| self.known_at.is_none() && self.told_at.elapsed() >= TELL_EVERY)
        else {
            return false;
        };
        self.told_at = Instant::now();
        // It is refused as long as the others have heard of it lately.
        let agent = agents.list[self.index].name.clone();
        let is_taken_in = agents.ask(whom, &Request::Forget { agent }).is_some();
        if is_taken_in {
            self.known_at = Some(Clock::now().wall + KNOWN_AFTER);
        }
        is_taken_in
    }

    /// What became of what it knew. Whatever pages link to that were fetched when all knew of the loss has to be crawled, by
    /// agents that are still there.
    pub(super) fn report(&self, witness: &Witness, web: &Web, verdict: &Verdict, outcome: &mut Outcome) {
        let Some(known_at) = self.known_at else {
            return outcome.bar("the lost agent", "forgotten", "never forgotten", false);
        };
        let later = witness.answers().filter(|answer| answer.at >= known_at);
        let reached: HashSet<String> = later.flat_map(|answer| links(web, &answer.url)).collect();
        let missed: Vec<String> = reached.iter().filter(|url| !witness.is_settled(url)).cloned().collect();
        outcome.none("URLs that later links reach and nobody crawled", missed.len() as u64, &missed);
        outcome.figure("urls_that_later_links_reach", reached.len());
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
