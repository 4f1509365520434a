//! What is said in the log about the other agents of a site: whom this one waits for, and who was told otherwise.

use std::collections::HashSet;
use std::time::Duration;

use nephila_core::agent::Agent;
use nephila_core::site::AgentId;
use nephila_core::time::Mono;

use crate::display::{self, Display};
use crate::report::{differing_words, waiting_words};

/// After how long it is said for the first time whom an agent waits for,
const FIRST: Duration = Duration::from_secs(5);
/// and how often from then on.
const EVERY: Duration = Duration::from_secs(60);

/// What has been said.
#[derive(Default)]
pub(super) struct Company {
    /// The agents of which it was said that they were told otherwise.
    differing: HashSet<AgentId>,
    /// When to say again whom this agent waits for.
    due: Option<Mono>,
}

impl Company {
    /// Says what is news.
    pub(super) fn say(&mut self, agent: &Agent, display: &Display, now: Mono) {
        for of in agent.differing() {
            if self.differing.insert(of.id) {
                let word = if of.refuses { "error" } else { "warning" };
                display::note(&format!("{word}: {}", display::harmless(&differing_words(of))));
            }
        }
        if let Some((there, missing)) = agent.waits_for_site()
            && now >= *self.due.get_or_insert(now + FIRST)
        {
            self.due = Some(now + EVERY);
            display.say(&display::harmless(&waiting_words(&there, &missing)));
        }
    }
}
