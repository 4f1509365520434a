//! What the journals and archives of a site's agents say, looked at whenever one of them is down.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::{
    Outcome,
    agents::Agent,
    journal::{Answer, Journal, Repeats},
};
use crate::web::Web;

/// What a store holds that the agents share.
pub(super) struct InStore {
    /// Of each agent what it has archived.
    pub journals: Vec<Journal>,
    /// How many URLs of each host are known, and how many of them are not settled.
    pub hosts: BTreeMap<String, (u64, u64)>,
}

/// What is known so far, and what went wrong so far.
pub(super) struct Witness {
    /// Of each agent.
    journals: Vec<Journal>,
    /// Settled anywhere in the site, at the last looks.
    settled: HashSet<String>,
    repeats: Repeats,
    forgotten: Vec<String>,
    not_whole: Vec<String>,
    /// URLs that were asked for again although they were settled.
    again: Vec<String>,
    torn: u32,
    /// What a lost agent had settled.
    lost: HashSet<String>,
    /// What a store that agents share knew of each host at the last look.
    hosts: BTreeMap<String, (u64, u64)>,
    /// What had been asked for again when nothing settled was to be any more: of settled pages, and in all.
    calm_from: Option<(usize, usize)>,
}

impl Witness {
    /// Of so many agents that have done nothing yet.
    pub(super) fn new(agents: usize) -> Witness {
        Witness {
            journals: (0..agents).map(|_| Journal::default()).collect(),
            settled: HashSet::new(),
            repeats: Repeats::default(),
            forgotten: Vec::new(),
            not_whole: Vec::new(),
            again: Vec::new(),
            torn: 0,
            lost: HashSet::new(),
            hosts: BTreeMap::new(),
            calm_from: None,
        }
    }

    /// Looks at what an agent that is down has left.
    pub(super) fn look(&mut self, index: usize, agent: &Agent, web: &Web) -> anyhow::Result<()> {
        self.again.extend(self.repeats.of_settled(web, &self.settled));
        let mut journal = Journal::read(&agent.out)?;
        let before = &self.journals[index];
        if journal.history_end > before.history_end {
            // The history does not say what pages linked to. In the end all of it has to be settled all the same.
            journal.known.extend(before.known.iter().cloned());
        }
        for (before, after) in [(&before.known, &journal.known), (&before.settled, &journal.settled)] {
            let lost = before.difference(after).map(|url| format!("{}: {url}", agent.name));
            self.forgotten.extend(lost);
        }
        let not_whole = journal.not_whole(&agent.out, before.answers.len());
        self.not_whole.extend(not_whole.into_iter().map(|why| format!("{}: {why}", agent.name)));
        self.torn += u32::from(journal.torn_bytes > 0);
        self.settled.extend(journal.settled.iter().cloned());
        self.journals[index] = journal;
        Ok(())
    }

    /// Looks at what the store holds that the agents share.
    ///
    /// URLs that are known and not settled are only counted, host by host: they move between the keys of the store while it is
    /// read, so that one may be missed that is there. A lost one may be made up for by one that was found since; in the end it
    /// shows all the same, since it is not crawled.
    pub(super) fn look_at_store(&mut self, seen: InStore, web: &Web) {
        self.again.extend(self.repeats.of_settled(web, &self.settled));
        let InStore { journals, hosts } = seen;
        let settled: HashSet<String> =
            journals.iter().flat_map(|journal| journal.settled.iter().cloned()).collect();
        self.forgotten.extend(self.settled.difference(&settled).cloned());
        for (host, (before, _)) in &self.hosts {
            let (known, _) = hosts.get(host).copied().unwrap_or_default();
            if known < *before {
                self.forgotten.push(format!("{host}: {known} URLs are known, and {before} were"));
            }
        }
        (self.settled, self.journals, self.hosts) = (settled, journals, hosts);
    }

    /// From now on nothing that is settled should be asked for again, whatever there was before.
    pub(super) fn calm(&mut self, web: &Web) {
        self.again.extend(self.repeats.of_settled(web, &self.settled));
        self.calm_from = Some((self.again.len(), self.repeats.count));
    }

    /// Looks whether the agents' archives have all that the store says they have.
    pub(super) fn look_at_archives(&mut self, agents: &[Agent]) {
        for (journal, agent) in self.journals.iter().zip(agents) {
            let not_whole = journal.not_whole(&agent.out, 0).into_iter();
            self.not_whole.extend(not_whole.map(|why| format!("{}: {why}", agent.name)));
        }
    }

    /// The disk of an agent that is down is about to be removed: what it alone knew may be fetched again, or not at all.
    pub(super) fn lose(&mut self, index: usize) {
        let journal = std::mem::take(&mut self.journals[index]);
        self.lost = journal.settled;
        self.settled = self.journals.iter().flat_map(|journal| journal.settled.iter().cloned()).collect();
    }

    /// Looks at everything once more, when all agents have ended.
    pub(super) fn look_again(&mut self, agents: &[Agent], web: &Web) -> anyhow::Result<()> {
        for (index, agent) in agents.iter().enumerate().filter(|(_, agent)| agent.out.exists()) {
            self.look(index, agent, web)?;
            let before: HashSet<String> = self.not_whole.iter().cloned().collect();
            let all = self.journals[index].not_whole(&agent.out, 0);
            let all = all.into_iter().map(|why| format!("{}: {why}", agent.name));
            self.not_whole.extend(all.filter(|why| !before.contains(why)));
        }
        Ok(())
    }

    /// Adds what must not happen; what is settled may be asked for again where agents are forgotten while they live, but not any
    /// more when all have found each other.
    pub(super) fn report(&self, web: &Web, may_repeat: bool, outcome: &mut Outcome) {
        let mut answers: HashMap<&str, u32> = HashMap::new();
        for answer in self.answers() {
            *answers.entry(&answer.url).or_default() += 1;
        }
        let twice: Vec<String> =
            answers.iter().filter(|(_, count)| **count > 1).map(|(url, _)| (*url).to_owned()).collect();
        let mut none = |what: &str, examples: &[String]| outcome.none(what, examples.len() as u64, examples);
        none("URLs known or settled and then forgotten", &self.forgotten);
        none("counted pages not whole in the archive", &self.not_whole);
        if may_repeat {
            outcome.figure("settled_pages_asked_for_again", self.again.len());
            outcome.figure("pages_settled_twice_in_the_site", twice.len());
            let late = self.again_when_calm(web, &twice);
            outcome.none(
                "settled pages asked for again 10 s after the lost agent is back, and later",
                late.len() as u64,
                &late,
            );
        } else {
            none("settled pages asked for again", &self.again);
            none("pages settled twice in the site", &twice);
        }
        outcome.figure("kills_that_tore_a_journal", self.torn);
    }

    /// Pages that were asked for again since there should have been calm, and were settled before: by the journals that had been
    /// looked at by then, or because there is a second answer to them that counts. What was in flight in a kill has only one:
    /// the first was lost with the process.
    fn again_when_calm(&self, web: &Web, twice: &[String]) -> Vec<String> {
        let Some((of_settled, in_all)) = self.calm_from else { return self.again.clone() };
        let repeats = web.repeats();
        let unknown = web.seen().overlap - repeats.len() as u64;
        let asked: HashSet<String> = repeats.into_iter().skip(in_all).collect();
        let mut late: HashSet<&String> = self.again.iter().skip(of_settled).collect();
        late.extend(twice.iter().filter(|url| asked.contains(*url)));
        let mut late: Vec<String> = late.into_iter().cloned().collect();
        late.sort_unstable();
        if unknown > 0 {
            late.push(format!("perhaps {unknown} more, too many for the web to remember"));
        }
        late
    }

    /// All answers that count, in the whole site.
    pub(super) fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.journals.iter().flat_map(|journal| &journal.answers)
    }

    /// Whether a URL is settled anywhere in the site.
    pub(super) fn is_settled(&self, url: &str) -> bool {
        self.settled.contains(url)
    }

    /// Those that are known in the site and settled nowhere.
    pub(super) fn unsettled(&self) -> Vec<String> {
        let known: HashSet<&String> = self.journals.iter().flat_map(|journal| &journal.known).collect();
        let mut unsettled: Vec<String> =
            known.into_iter().filter(|url| !self.is_settled(url)).cloned().collect();
        // The records of a store that agents share do not say what pages linked to, but it counts.
        let queued = self.hosts.iter().filter(|(_, (_, queued))| *queued > 0);
        unsettled.extend(queued.map(|(host, (_, queued))| format!("{host}: {queued} URLs")));
        unsettled
    }

    /// How many URLs the store knows that agents share.
    pub(super) fn known_in_store(&self) -> u64 {
        self.hosts.values().map(|(known, _)| known).sum()
    }

    /// What a lost agent had settled.
    pub(super) fn lost(&self) -> &HashSet<String> {
        &self.lost
    }
}
