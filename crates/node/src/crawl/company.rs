//! What is said in the log about the other agents of a site, and the store that they share: whom this one waits for, who was told
//! otherwise, and who comes and goes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use nephila_core::agent::{Agent, Between, Standing};
use nephila_core::site::AgentId;
use nephila_core::time::{Mono, Now};

use crate::display::{self, Display};
use crate::report::{STORE_AWAY, differing_words, namesakes_words, waiting_words};
use crate::site::Site;

/// After how long it is said for the first time whom an agent waits for,
const FIRST: Duration = Duration::from_secs(5);
/// and how often from then on.
const EVERY: Duration = Duration::from_secs(60);
/// How often it is looked who is there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A store is not said to be away before: an agent that starts has yet to be let in.
const AWAY_MIN: Duration = Duration::from_secs(5);

/// What has been said.
#[derive(Default)]
pub(super) struct Company {
    /// The agents of which it was said that they were told otherwise.
    differing: HashSet<AgentId>,
    /// Agents of one name of which it was said.
    namesakes: HashSet<(AgentId, AgentId, Between)>,
    /// When to say again whom this agent waits for.
    due: Option<Mono>,
    /// How the others were doing, and their names.
    others: HashMap<AgentId, (String, Standing)>,
    looked: Option<Mono>,
    /// Since when the store is away, and whether that was said.
    away: Option<(Mono, bool)>,
    /// When it was last said of another site that it sends what it may not, and of how much.
    refused: HashMap<String, (Mono, u64)>,
    /// The same of one that tells too much of hosts that are claimed from it.
    cut_answers: HashMap<String, (Mono, u64)>,
}

impl Company {
    /// Says what is news.
    pub(super) fn say(&mut self, agent: &Agent, site: Option<&Site>, display: &Display, now: Now) {
        for of in agent.differing() {
            if self.differing.insert(of.id) {
                let word = if of.refuses { "error" } else { "warning" };
                display::note(&format!("{word}: {}", display::harmless(&differing_words(of))));
            }
        }
        for of in agent.namesakes(now) {
            if self.namesakes.insert((of.one.0, of.other.0, of.between)) {
                let word = if of.between == Between::Refused { "error" } else { "warning" };
                display::note(&format!("{word}: {}", display::harmless(&namesakes_words(&of))));
            }
        }
        if let Some((there, missing)) = agent.waits_for_site()
            && now.mono >= *self.due.get_or_insert(now.mono + FIRST)
        {
            self.due = Some(now.mono + EVERY);
            display.say(&display::harmless(&waiting_words(&there, &missing)));
            for (address, error) in site.map(Site::unreachable).unwrap_or_default() {
                display.say(&display::harmless(&format!("  {address}: {error}")));
            }
        }
        if self.looked.is_none_or(|looked| now.mono.since(looked) >= LOOK_EVERY) {
            self.looked = Some(now.mono);
            self.say_who_is_there(agent, display, now);
            self.say_store(agent, display, now);
            self.say_refused(agent, now);
            self.say_cut_answers(agent, now);
        }
    }

    fn say_who_is_there(&mut self, agent: &Agent, display: &Display, now: Now) {
        let mut present = HashSet::new();
        for (id, member, standing) in agent.company(now) {
            present.insert(id);
            let known = self.others.get(&id).map(|(_, standing)| *standing);
            let said = match (known, standing) {
                // Nobody has been heard of when an agent starts.
                (None, Standing::Silent | Standing::Gone) => None,
                (Some(known), standing) if known == standing => None,
                (_, Standing::Well) => Some(format!("agent {} at {} is there", member.name, member.address)),
                (_, Standing::Silent) => Some(format!("agent {} is silent", member.name)),
                (_, Standing::Gone) => {
                    Some(format!("agent {} is forgotten: others take its hosts", member.name))
                }
            };
            self.others.insert(id, (member.name.clone(), standing));
            said.into_iter().for_each(|said| display.say(&display::harmless(&said)));
        }
        // In a store that is shared, nothing is known of one whose lease has ended.
        self.others.retain(|id, (name, _)| {
            let is_present = present.contains(id);
            if !is_present {
                display.say(&display::harmless(&format!("agent {name} has left: others take its hosts")));
            }
            is_present
        });
    }

    fn say_refused(&mut self, agent: &Agent, now: Now) {
        for other in agent.other_sites(now).into_iter().filter(|other| other.refused > 0) {
            let said = self.refused.get(&other.name);
            let is_news =
                said.is_none_or(|(at, refused)| *refused < other.refused && now.mono.since(*at) >= EVERY);
            if is_news {
                display::note(&format!(
                    "warning: site {} sends URLs that it may not send here, {} so far: `may-send` in the list of sites says which it may",
                    other.name, other.refused
                ));
                self.refused.insert(other.name, (now.mono, other.refused));
            }
        }
    }

    fn say_cut_answers(&mut self, agent: &Agent, now: Now) {
        for other in agent.other_sites(now).into_iter().filter(|other| other.cut_answers > 0) {
            let said = self.cut_answers.get(&other.name);
            let is_news =
                said.is_none_or(|(at, cut)| *cut < other.cut_answers && now.mono.since(*at) >= EVERY);
            if is_news {
                display::note(&format!(
                    "warning: site {} tells of more URLs than a host may have here (max-host-pages) when hosts are claimed from it, {} so \
                     far: the rest was not asked for",
                    other.name,
                    display::counted(other.cut_answers, "host", "hosts")
                ));
                self.cut_answers.insert(other.name, (now.mono, other.cut_answers));
            }
        }
    }

    fn say_store(&mut self, agent: &Agent, display: &Display, now: Now) {
        match (agent.is_store_away(now), &mut self.away) {
            (true, None) => self.away = Some((now.mono, false)),
            (true, Some((since, is_said))) if !*is_said && now.mono.since(*since) >= AWAY_MIN => {
                *is_said = true;
                display::note(&format!("warning: {STORE_AWAY}"));
            }
            (false, Some((_, is_said))) => {
                if *is_said {
                    display.say("the store is back");
                }
                self.away = None;
            }
            _ => {}
        }
    }
}
