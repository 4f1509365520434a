//! Who may crawl together: agents that were told the same. And, until a site has begun, who is there and who is missing.

use serde::Serialize;

use super::site::Site;
use super::{Action, Agent, Recipient, StopReason};
use crate::limits::AGENTS_MAX;
use crate::site::{AgentId, Difference, Greeting, Message, Terms};
use crate::time::Now;

/// An agent that was told otherwise than this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// Who it is.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// What differs.
    pub what: Vec<Difference>,
    /// Whether it is in a site, and does not let this agent in; otherwise it is this one that does not crawl with it.
    pub refuses: bool,
}

/// An agent that was heard of before the site has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Acquaintance {
    /// Its name.
    pub name: String,
    /// Where it is reached.
    pub address: String,
    /// Whether it lists the same agents to begin with. If not, it does not begin the site with this one.
    pub lists_the_same: bool,
}

impl Site {
    /// Those that were heard of while the site has not begun.
    pub(super) fn there(&self) -> Vec<Acquaintance> {
        let Some(settings) = &self.settings else { return Vec::new() };
        let known = |of: &Greeting| Acquaintance {
            name: of.member.name.clone(),
            address: of.member.address.clone(),
            lists_the_same: of.peers == settings.peers,
        };
        self.met.values().map(known).collect()
    }

    /// Where listed agents should be and none was heard of, while the site has not begun.
    pub(super) fn missing(&self) -> Vec<String> {
        let Some(settings) = self.settings.as_ref().filter(|_| !self.members.is_founded()) else {
            return Vec::new();
        };
        let is_there = |peer: &String| {
            *peer == settings.address || self.met.values().any(|of| of.member.address == *peer)
        };
        settings.peers.iter().filter(|peer| !is_there(peer)).cloned().collect()
    }

    fn note_differing(&mut self, differing: Differing) {
        if self.differing.len() < AGENTS_MAX || self.differing.contains_key(&differing.id) {
            self.differing.insert(differing.id, differing);
        }
    }
}

impl Agent {
    /// Who is there, and who is missing, for the site to begin; `None` once it has begun, and for a crawl alone.
    pub fn waits_for_site(&self) -> Option<(Vec<Acquaintance>, Vec<String>)> {
        let waits = !self.site.is_alone() && !self.site.is_shared() && !self.site.members.is_founded();
        waits.then(|| (self.site.there(), self.site.missing()))
    }

    /// The agents that were told otherwise than this one.
    pub fn differing(&self) -> impl Iterator<Item = &Differing> {
        self.site.differing.values()
    }

    /// Whether an agent was told otherwise than this one: then they do not crawl together. If it would join a site, it is told.
    pub(super) fn refuses(&mut self, from: AgentId, greeting: &Greeting, out: &mut Vec<Action>) -> bool {
        let Some(ours) = self.site.settings.as_ref().map(|settings| settings.terms) else { return true };
        let what = ours.differences(&greeting.terms);
        if what.is_empty() {
            self.site.differing.remove(&from);
            return false;
        }
        self.site.met.remove(&from);
        let (name, address) = (greeting.member.name.clone(), greeting.member.address.clone());
        self.site.note_differing(Differing { id: from, name: name.clone(), what, refuses: false });
        if self.site.members.is_founded() {
            let to = Recipient { agent: Some((from, name)), address };
            out.push(Action::Send { to, message: Box::new(Message::Differs(ours)) });
        }
        true
    }

    /// An agent of the site that this one would join does not let it in.
    pub(super) fn on_differs(&mut self, from: AgentId, name: &str, theirs: &Terms, now: Now) {
        let Some(ours) = self.site.settings.as_ref().map(|settings| settings.terms) else { return };
        let what = ours.differences(theirs);
        if self.site.members.is_founded() || what.is_empty() {
            return;
        }
        self.site.note_differing(Differing { id: from, name: name.to_owned(), what, refuses: true });
        self.stop(StopReason::Error, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Between, Event, Stored};
    use crate::scope::{Scope, ScopeKind};
    use crate::settings::Settings;
    use crate::site::SiteSettings;
    use crate::time::{Mono, Wall};
    use crate::url::Url;

    const NOW: Now = Now { mono: Mono(1_000_000_000), wall: Wall(1_800_000_000_000) };

    /// An agent that lists these, after its first beat, and what it has sent.
    fn agent(name: &str, id: u64, peers: &[&str], seed: &str) -> (Agent, Vec<Message>) {
        let seed = Url::parse(seed).unwrap();
        let mut scope = Scope::new(ScopeKind::Site, Vec::new(), Vec::new());
        scope.add_seed(&seed);
        let site = SiteSettings {
            me: id.into(),
            name: name.to_owned(),
            address: name.to_owned(),
            capacity: 1,
            peers: peers.iter().map(|peer| (*peer).to_owned()).collect(),
            terms: Terms::of(&scope, &[seed], &Settings::default()),
            shares_store: false,
            forget_after: None,
        };
        let mut agent = Agent::of_site(Settings::default(), scope, site);
        let mut out = Vec::new();
        agent.start(NOW, Stored::default(), &mut out);
        agent.step(NOW, Event::Wake, &mut out);
        (agent, sent(out))
    }

    fn sent(out: Vec<Action>) -> Vec<Message> {
        let message = |action| match action {
            Action::Send { message, .. } => Some(*message),
            _ => None,
        };
        out.into_iter().filter_map(message).collect()
    }

    /// Passes messages on; gives back the answers.
    fn hear(agent: &mut Agent, (from, name): (u64, &str), messages: &[Message]) -> Vec<Message> {
        let mut out = Vec::new();
        for message in messages {
            let message = Box::new(message.clone());
            agent.step(NOW, Event::Message { from: from.into(), name: name.to_owned(), message }, &mut out);
        }
        sent(out)
    }

    fn members(agent: &Agent) -> usize {
        agent.site_view(NOW).unwrap().members.len()
    }

    #[test]
    fn only_who_was_told_the_same_is_let_into_a_site() {
        for (seed, is_same) in [("https://a.example/", true), ("https://b.example/", false)] {
            let (mut one, _) = agent("one", 1, &[], "https://a.example/");
            let (mut two, hellos) = agent("two", 2, &["one"], seed);
            assert_eq!(members(&one), 1);
            let answers = hear(&mut one, (2, "two"), &hellos);
            hear(&mut two, (1, "one"), &answers);
            assert_eq!((members(&one), members(&two)), if is_same { (2, 2) } else { (1, 0) });
            assert_eq!(two.stopping.is_some_and(|stopping| stopping.reason == StopReason::Error), !is_same);
            let differing = |agent: &Agent| {
                agent.differing().map(|of| (of.name.clone(), of.what.clone(), of.refuses)).collect::<Vec<_>>()
            };
            let expected = |name: &str, refuses| match is_same {
                true => Vec::new(),
                false => vec![(name.to_owned(), vec![Difference::Seeds], refuses)],
            };
            assert_eq!(differing(&one), expected("two", false));
            assert_eq!(differing(&two), expected("one", true));
            // Nobody who is in a site is thrown out of it by a word of another.
            hear(&mut one, (2, "two"), &[Message::Differs(Terms::default())]);
            assert!(one.stopping.is_none());
        }
    }

    #[test]
    fn a_site_is_not_begun_with_who_was_told_otherwise() {
        for (seed, is_same) in [("https://a.example/", true), ("https://b.example/", false)] {
            let peers = ["one", "two", "three"];
            let (mut one, _) = agent("one", 1, &peers, "https://a.example/");
            let waits = |agent: &Agent| {
                let (there, missing) = agent.waits_for_site().unwrap();
                (there.into_iter().map(|of| of.name).collect::<Vec<_>>(), missing)
            };
            assert_eq!(waits(&one), (vec![], vec!["two".to_owned(), "three".to_owned()]));
            let (_, hellos) = agent("two", 2, &peers, "https://a.example/");
            hear(&mut one, (2, "two"), &hellos[..1]);
            let (_, hellos) = agent("three", 3, &peers, seed);
            hear(&mut one, (3, "three"), &hellos[..1]);
            assert!(one.stopping.is_none(), "nobody knows who is wrong");
            if !is_same {
                assert_eq!(waits(&one), (vec!["two".to_owned()], vec!["three".to_owned()]));
            }
            one.step(Now { mono: Mono(NOW.mono.0 + 2_000_000), ..NOW }, Event::Wake, &mut Vec::new());
            assert_eq!(members(&one), if is_same { 3 } else { 0 });
        }
    }

    #[test]
    fn a_site_begins_also_if_one_is_there_that_will_join() {
        let peers = ["one", "two"];
        let (mut one, _) = agent("one", 1, &peers, "https://a.example/");
        for (name, id) in [("three", 3), ("two", 2)] {
            let (_, hellos) = agent(name, id, &peers, "https://a.example/");
            hear(&mut one, (id, name), &hellos[..1]);
        }
        one.step(Now { mono: Mono(NOW.mono.0 + 2_000_000), ..NOW }, Event::Wake, &mut Vec::new());
        assert_eq!(members(&one), 2);
    }

    #[test]
    fn one_of_two_of_a_name_is_not_let_in() {
        let (mut one, _) = agent("one", 1, &[], "https://a.example/");
        let (mut two, hellos) = agent("two", 2, &["one"], "https://a.example/");
        let answers = hear(&mut one, (2, "two"), &hellos);
        hear(&mut two, (1, "one"), &answers);
        let later = |s: u64| Now { mono: Mono(NOW.mono.0 + s * 1_000_000), ..NOW };
        let at = |agent: &mut Agent, s: u64, from: (u64, &str), messages: &[Message]| {
            let mut out = Vec::new();
            for message in messages {
                let (message, name) = (Box::new(message.clone()), from.1.to_owned());
                agent.step(later(s), Event::Message { from: from.0.into(), name, message }, &mut out);
            }
            sent(out)
        };
        let beats = |s: u64| {
            let mut out = Vec::new();
            two.step(later(s), Event::Wake, &mut out);
            sent(out)
        };
        let beats: Vec<Vec<Message>> = (0..30).map(beats).collect();
        let (mut again, hellos) = agent("two", 3, &["one"], "https://a.example/");
        let between = |agent: &Agent, s: u64| {
            agent.namesakes(later(s)).into_iter().map(|of| (of.one.0, of.between)).collect::<Vec<_>>()
        };
        for s in 1..16 {
            at(&mut one, s, (2, "two"), &beats[s as usize]);
            let answers = at(&mut one, s, (3, "two"), &hellos);
            at(&mut again, s, (1, "one"), &answers);
            assert_eq!(between(&one, s), [(3.into(), Between::NotLetIn)]);
            assert_eq!(between(&again, s), [(3.into(), Between::Refused)]);
            // One that was just killed is not well for long.
            assert_eq!(again.stopping.is_some(), s >= 13, "{s}");
        }
        assert_eq!((members(&one), members(&again)), (2, 0));
        // When the other is silent, it may have lost its disk.
        let (mut again, hellos) = agent("two", 4, &["one"], "https://a.example/");
        let answers = at(&mut one, 28, (4, "two"), &hellos);
        at(&mut again, 28, (1, "one"), &answers);
        assert_eq!((members(&one), members(&again)), (3, 3));
        assert_eq!((between(&one, 28), between(&again, 28)), (vec![], vec![]));
        // If it comes back all the same, everybody says so.
        let mut out = Vec::new();
        again.step(later(29), Event::Wake, &mut out);
        at(&mut one, 29, (4, "two"), &sent(out));
        at(&mut one, 29, (2, "two"), &beats[29]);
        at(&mut again, 29, (2, "two"), &beats[29]);
        assert_eq!(between(&one, 29), [(2.into(), Between::AtWork)]);
        assert_eq!(between(&again, 29), [(2.into(), Between::AtWork)]);
    }
}
