//! Agents of one name. The name is in the certificate: who comes with that of another agent and a number of its own has lost its
//! disk, or was started a second time. As long as the other one is well, it is the latter, and is not let into the site. Nobody
//! can tell when the other is only cut off: should both be in the site in the end, all agents say so.

use std::time::Duration;

use serde::Serialize;

use super::site::Site;
use super::{Action, Agent, Recipient, StopReason};
use crate::limits::AGENTS_MAX;
use crate::site::{AgentId, Greeting, Message};
use crate::time::{Mono, Now};

/// An agent that is not let in says hello every second: this long after the last one it has gone.
const ASKS_FOR: Duration = Duration::from_secs(5);
/// Others take an agent that was just killed for well for a few seconds: one in its place waits for so long before it gives up.
const PATIENCE: Duration = Duration::from_secs(12);

/// What becomes of two agents of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Between {
    /// This agent does not let the first into the site of the other.
    NotLetIn,
    /// The first is this agent, and is not let into the site of the other.
    Refused,
    /// Both are at work, or would begin the site.
    AtWork,
}

/// Two agents of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Namesakes {
    /// Their name.
    pub name: String,
    /// One of them, and where it is reached;
    pub one: (AgentId, String),
    /// and the other.
    pub other: (AgentId, String),
    /// What becomes of them.
    pub between: Between,
}

/// One that was not let in, lately.
#[derive(Debug)]
pub(super) struct Refusal {
    of: Namesakes,
    /// For the first time without a break,
    first: Mono,
    /// and for the last.
    last: Mono,
}

impl Site {
    /// Another agent of this name that is at work in the site.
    fn namesake(&self, of: AgentId, name: &str, now: Mono) -> Option<(AgentId, String)> {
        let me = self.me();
        let is_it = |id: AgentId| id != of && (id == me || self.is_well(id, now));
        let mut known = self.members.present().filter(|(_, member)| member.name == name);
        known.find(|(id, _)| is_it(*id)).map(|(id, member)| (id, member.address.clone()))
    }

    /// Takes note that one was not let in; says for how long that has been so.
    fn note_refusal(&mut self, of: Namesakes, now: Mono) -> Duration {
        self.refusals.retain(|_, refusal| now.since(refusal.last) < ASKS_FOR);
        let id = of.one.0;
        let first = self.refusals.get(&id).map_or(now, |refusal| refusal.first);
        if self.refusals.len() < AGENTS_MAX || self.refusals.contains_key(&id) {
            self.refusals.insert(id, Refusal { of, first, last: now });
        }
        now.since(first)
    }
}

impl Agent {
    /// Agents of one name of which this one knows.
    pub fn namesakes(&self, now: Now) -> Vec<Namesakes> {
        let site = &self.site;
        // Where a store is shared, leases tell who is at work.
        let Some(Greeting { me, member, peers, .. }) = self.introduce().filter(|_| !site.is_shared()) else {
            return Vec::new();
        };
        let refusals = site.refusals.values().filter(|refusal| now.mono.since(refusal.last) < ASKS_FOR);
        let mut list: Vec<Namesakes> = refusals.map(|refusal| refusal.of.clone()).collect();
        let mut at_work: Vec<_> = match site.members.is_founded() {
            true => {
                let present = site.members.present();
                let well = present.filter(|(id, _)| *id == me || site.is_well(*id, now.mono));
                well.map(|(id, member)| (&member.name, id, &member.address)).collect()
            }
            false => {
                let listed = site.met.iter().filter(|(_, met)| peers.contains(&met.member.address));
                let met = listed.map(|(id, met)| (&met.member.name, *id, &met.member.address));
                met.chain([(&member.name, me, &member.address)]).collect()
            }
        };
        at_work.sort_unstable();
        let pairs = at_work.windows(2).filter_map(|pair| match pair {
            [one, other] if one.0 == other.0 => Some((one, other)),
            _ => None,
        });
        list.extend(pairs.map(|(one, other)| Namesakes {
            name: one.0.clone(),
            one: (one.1, one.2.clone()),
            other: (other.1, other.2.clone()),
            between: Between::AtWork,
        }));
        list
    }

    /// Whether an agent that would join has the name of one that is at work: then it is told so, and not let in.
    pub(super) fn is_namesake(
        &mut self,
        from: AgentId,
        greeting: &Greeting,
        now: Now,
        out: &mut Vec<Action>,
    ) -> bool {
        let (name, address) = (&greeting.member.name, &greeting.member.address);
        // One that is in the site may have been killed before it had written that down.
        let is_in = self.site.members.get(from).is_some_and(|member| !member.is_gone());
        let Some(other) = self.site.namesake(from, name, now.mono).filter(|_| !is_in) else { return false };
        let one = (from, address.clone());
        let of = Namesakes { name: name.clone(), one, other: other.clone(), between: Between::NotLetIn };
        self.site.note_refusal(of, now.mono);
        // The way to an agent of this name leads to the other.
        let to = Recipient { agent: None, address: address.clone() };
        let (id, at) = other;
        out.push(Action::Send { to, message: Box::new(Message::NameTaken { to: from, id, at }) });
        true
    }

    /// The site that this agent would join has one of its name, which is at work.
    pub(super) fn on_name_taken(&mut self, to: AgentId, other: (AgentId, String), now: Now) {
        let Some(Greeting { me, member, .. }) = self.introduce() else { return };
        if self.site.members.is_founded() || to != me {
            return;
        }
        let of = Namesakes { name: member.name, one: (me, member.address), other, between: Between::Refused };
        if self.site.note_refusal(of, now.mono) >= PATIENCE {
            self.stop(StopReason::Error, now);
        }
    }
}
