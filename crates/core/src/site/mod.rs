//! A site: agents that crawl together. Who belongs to it, who holds what, and what passes between them.
//!
//! Only data and the rules by which two copies of it become one; [`crate::agent`] decides with them. Every rule is commutative,
//! associative and idempotent, so that agents may hear of things late, twice and in any order, and still agree in the end.

mod leases;
mod members;
mod message;
mod partitions;
mod table;
mod terms;
mod tokens;
mod wishes;

use std::time::Duration;

pub use leases::{Beat, Lease, Leases, Refused};
pub use members::{AgentId, Member, Members, NotAnAgentId, OtherSite};
pub use message::{
    Figures, GivenTurn, Greeting, LinkedPage, Message, Moved, MovedHost, RulesAnswer, SeenUrl, TurnId,
    TurnMessage, Waiting,
};
pub use partitions::Partitions;
pub(crate) use table::Table;
pub use terms::{Difference, Terms};
pub use tokens::{Token, Tokens};
pub use wishes::Wishes;

/// What an agent is told of its site before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSettings {
    /// Who it is. Drawn when its directory is made, and kept there.
    pub me: AgentId,
    /// Its name, for people.
    pub name: String,
    /// Where others reach it.
    pub address: String,
    /// Its share of the work, in relation to that of others.
    pub capacity: u16,
    /// Where others may be met. An agent that is listed itself waits for all of them and begins the site with them; one that is
    /// not joins the site of whomever it meets; and where nobody is listed it begins one alone.
    pub peers: Vec<String>,
    /// What it must have been told as all others were.
    pub terms: Terms,
    /// Its agents share a store: then nobody need be met, since the store has all leases.
    pub shares_store: bool,
    /// An agent that was not heard of for so long is forgotten, and one that hears of nobody for half of it asks nothing.
    pub forget_after: Option<Duration>,
}
