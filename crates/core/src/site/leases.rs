//! The leases of agents that share a store: who is alive, and who may ask the hosts of which partitions. The store keeps one
//! table of them, and it changes by nothing but [`Leases::beat`], each time as a whole: whoever keeps it makes that atomic and
//! durable.
//!
//! Invariants:
//! - *A partition is held by one agent at most.*
//! - *Incarnations only grow, and no two processes ever have the same.*
//! - *What is old has no effect*: a beat of an incarnation that is not the agent's any more, or that comes after a later one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AgentId, Member, Partitions, Terms, Wishes};
use crate::limits::AGENTS_MAX;
use crate::time::Wall;

/// One agent's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Names the process, or what it was before it was fenced.
    pub incarnation: u64,
    /// Counts its beats: who sees another number than before knows that it was alive since.
    pub number: u64,
    /// What is to be known of the agent.
    pub member: Member,
    /// The partitions whose hosts it may ask.
    pub held: Partitions,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    /// Incarnations so far.
    drawn: u64,
    /// The calendar that all times in the store are of. It began as the first agent's, and goes on with whichever is alive.
    pub calendar: Wall,
    /// What those in the list were told, and must be told alike.
    pub terms: Option<Terms>,
    /// What all are to know, also those that come later.
    pub wishes: Wishes,
    list: BTreeMap<AgentId, Lease>,
}

/// What an agent says to the table every second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Who it is.
    pub me: AgentId,
    /// Its incarnation; 0 if it has none yet and wants one.
    pub incarnation: u64,
    /// Then: the incarnation in whose place it comes. Another one must not be there: it might be this very agent's, from a beat
    /// whose answer was lost.
    pub replaces: u64,
    /// Counts its beats, and grows from one to the next.
    pub number: u64,
    /// What is to be known of it.
    pub member: Member,
    /// What its calendar shows.
    pub calendar: Wall,
    /// What it was told.
    pub terms: Terms,
    /// What it knows of that all are to know.
    pub wishes: Wishes,
    /// The partitions that it holds or wants: those that another one has it does not get, and any other that it had it lets go.
    pub holds: Partitions,
    /// Agents that were silent for too long, with the incarnations and numbers they were last seen with: if these are still
    /// right, their leases end.
    pub fences: Vec<(AgentId, u64, u64)>,
    /// It ends.
    pub leaves: bool,
}

/// A beat had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Leases {
    /// As they were kept: how many incarnations were drawn, the leases, and what else there is.
    pub fn kept(
        drawn: u64,
        calendar: Wall,
        terms: Option<Terms>,
        wishes: Wishes,
        list: BTreeMap<AgentId, Lease>,
    ) -> Leases {
        Leases { drawn, calendar, terms, wishes, list }
    }

    /// Sets the calendar before anybody is there, if it is not set yet.
    pub fn begin(&mut self, calendar: Wall) {
        if self.drawn == 0 {
            (self.drawn, self.calendar) = (1, calendar);
        }
    }

    /// Incarnations so far.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// Takes a beat in. Says the incarnation of who sent it.
    pub fn beat(&mut self, beat: &Beat) -> Result<u64, Refused> {
        let current = self.incarnation_of(beat.me);
        if beat.incarnation == 0 {
            if current != beat.replaces || (current == 0 && self.list.len() >= AGENTS_MAX) {
                return Err(Refused);
            }
            self.fence(beat);
            // Nobody is there who would be told otherwise, or all were told the same.
            let is_alone = self.list.keys().all(|id| *id == beat.me);
            if !is_alone && self.terms.is_some_and(|terms| terms != beat.terms) {
                return Err(Refused);
            }
            self.terms = Some(beat.terms);
            self.wishes.merge(&beat.wishes);
            if self.drawn == 0 {
                self.calendar = beat.calendar;
            }
            self.drawn += 1;
            let member = Member { version: self.drawn, ..beat.member.clone() };
            let lease =
                Lease { incarnation: self.drawn, number: beat.number, member, held: Partitions::default() };
            self.list.insert(beat.me, lease);
            return Ok(self.drawn);
        }
        let is_new = self.list.get(&beat.me).is_some_and(|lease| lease.number < beat.number);
        if current != beat.incarnation || !is_new {
            return Err(Refused);
        }
        self.calendar = self.calendar.max(beat.calendar);
        self.wishes.merge(&beat.wishes);
        self.fence(beat);
        if beat.leaves {
            self.list.remove(&beat.me);
            return Ok(current);
        }
        let mut held = beat.holds.clone();
        for (_, other) in self.iter().filter(|(id, _)| *id != beat.me) {
            held.subtract(&other.held);
        }
        if let Some(lease) = self.list.get_mut(&beat.me) {
            (lease.number, lease.held) = (beat.number, held);
        }
        Ok(current)
    }

    /// Ends the leases of those that were silent for too long.
    fn fence(&mut self, beat: &Beat) {
        for (id, incarnation, number) in &beat.fences {
            let is_silent = |lease: &Lease| (lease.incarnation, lease.number) == (*incarnation, *number);
            if *id != beat.me && self.list.get(id).is_some_and(is_silent) {
                self.list.remove(id);
            }
        }
    }

    /// The incarnation that an agent has; 0 if it has none.
    pub fn incarnation_of(&self, id: AgentId) -> u64 {
        self.list.get(&id).map_or(0, |lease| lease.incarnation)
    }

    /// The lease of an agent.
    pub fn get(&self, id: AgentId) -> Option<&Lease> {
        self.list.get(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (AgentId, &Lease)> {
        self.list.iter().map(|(id, lease)| (*id, lease))
    }

    /// What nobody holds.
    pub fn free(&self) -> Partitions {
        let mut free = Partitions::all();
        for lease in self.list.values() {
            free.subtract(&lease.held);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scope::{Scope, ScopeKind};
    use crate::settings::Settings;

    fn beat(me: u64, incarnation: u64, number: u64, holds: &[u16]) -> Beat {
        let name = format!("agent-{me}");
        let member = Member { address: name.clone(), name, capacity: 1, version: 0, life: 1, forgotten: 0 };
        Beat {
            me: AgentId::from(me),
            incarnation,
            replaces: 0,
            number,
            member,
            calendar: Wall(100 * me),
            terms: Terms::default(),
            wishes: Wishes::default(),
            holds: holds.iter().copied().collect(),
            fences: Vec::new(),
            leaves: false,
        }
    }

    fn held(leases: &Leases, me: u64) -> Vec<u16> {
        leases.get(AgentId::from(me)).map(|lease| lease.held.iter().collect()).unwrap_or_default()
    }

    #[test]
    fn a_partition_has_one_holder_until_it_is_let_go() {
        let mut leases = Leases::default();
        assert_eq!(leases.beat(&beat(1, 0, 1, &[])), Ok(1));
        assert_eq!(leases.beat(&beat(2, 0, 1, &[])), Ok(2));
        assert_eq!(leases.calendar, Wall(100), "who comes later does not set it");
        leases.beat(&beat(1, 1, 2, &[1, 2, 3])).unwrap();
        leases.beat(&beat(2, 2, 2, &[3, 4])).unwrap();
        assert_eq!((held(&leases, 1), held(&leases, 2)), (vec![1, 2, 3], vec![4]));
        assert!(!leases.free().contains(4) && leases.free().contains(5));
        leases.beat(&beat(1, 1, 3, &[1, 2])).unwrap();
        leases.beat(&beat(2, 2, 3, &[3, 4])).unwrap();
        assert_eq!(held(&leases, 2), [3, 4]);
        assert_eq!(leases.beat(&Beat { leaves: true, ..beat(2, 2, 4, &[]) }), Ok(2));
        assert!(leases.get(AgentId::from(2)).is_none() && leases.free().contains(3));
    }

    #[test]
    fn what_is_old_has_no_effect() {
        let mut leases = Leases::default();
        leases.beat(&beat(1, 0, 1, &[])).unwrap();
        leases.beat(&beat(1, 1, 5, &[7])).unwrap();
        let before = leases.clone();
        for old in [beat(1, 1, 5, &[]), beat(1, 1, 4, &[]), beat(1, 9, 9, &[]), beat(1, 0, 9, &[])] {
            assert_eq!(leases.beat(&old), Err(Refused));
            assert_eq!(leases, before);
        }
        // It starts again: what it had is anybody's.
        assert_eq!(leases.beat(&Beat { replaces: 1, ..beat(1, 0, 1, &[]) }), Ok(2));
        assert!(leases.free().contains(7));
        assert_eq!(leases.beat(&Beat { replaces: 1, ..beat(1, 0, 1, &[]) }), Err(Refused), "once");
        assert_eq!(leases.beat(&beat(1, 1, 6, &[7])), Err(Refused));
    }

    #[test]
    fn only_who_is_still_silent_is_fenced() {
        let mut leases = Leases::default();
        leases.beat(&beat(1, 0, 1, &[])).unwrap();
        leases.beat(&beat(2, 0, 1, &[])).unwrap();
        leases.beat(&beat(2, 2, 2, &[8])).unwrap();
        let fence =
            |number| Beat { fences: vec![(AgentId::from(2), 2, number)], ..beat(1, 1, number + 1, &[8]) };
        leases.beat(&fence(1)).unwrap();
        assert_eq!((held(&leases, 1), held(&leases, 2)), (vec![], vec![8]), "it was heard of since");
        leases.beat(&fence(2)).unwrap();
        assert_eq!(held(&leases, 1), [8]);
        assert_eq!(leases.beat(&beat(2, 2, 3, &[8])), Err(Refused));
        assert_eq!(leases.beat(&beat(2, 0, 4, &[])), Ok(3), "incarnations only grow");
    }
    #[test]
    fn only_who_was_told_the_same_comes_to_those_who_are_there() {
        let mut leases = Leases::default();
        let slower = || {
            let settings = Settings { delay: Duration::from_secs(9), ..Settings::default() };
            Terms::of(&Scope::new(ScopeKind::Any, Vec::new(), Vec::new()), &[], &settings)
        };
        let told_otherwise = |fences| Beat { terms: slower(), fences, ..beat(2, 0, 1, &[]) };
        leases.beat(&beat(1, 0, 1, &[])).unwrap();
        leases.beat(&beat(1, 1, 2, &[7])).unwrap();
        assert_eq!(leases.beat(&told_otherwise(Vec::new())), Err(Refused));
        assert_eq!(leases.beat(&told_otherwise(vec![(AgentId::from(1), 1, 1)])), Err(Refused), "it is alive");
        // It was killed, and what it was told does not count any more.
        assert_eq!(leases.beat(&told_otherwise(vec![(AgentId::from(1), 1, 2)])), Ok(2));
        assert_eq!(leases.terms, Some(slower()));
        assert_eq!(leases.beat(&beat(1, 0, 3, &[])), Err(Refused));
        leases.beat(&Beat { leaves: true, ..beat(2, 2, 2, &[]) }).unwrap();
        assert_eq!(leases.beat(&beat(1, 0, 3, &[])), Ok(3), "nobody is there");
    }

    #[test]
    fn wishes_stay_when_all_have_left() {
        let mut leases = Leases::default();
        let mut paused = Wishes::default();
        paused.pause(true);
        leases.beat(&beat(1, 0, 1, &[])).unwrap();
        leases.beat(&Beat { wishes: paused.clone(), leaves: true, ..beat(1, 1, 2, &[]) }).unwrap();
        assert_eq!(leases.beat(&Beat { wishes: Wishes::default(), ..beat(1, 1, 9, &[]) }), Err(Refused));
        leases.beat(&beat(2, 0, 1, &[])).unwrap();
        assert_eq!(leases.wishes, paused);
    }
}
