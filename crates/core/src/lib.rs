//! All decisions of the crawler, without input or output.
//!
//! Nothing here reads a clock, opens a socket or a file, starts a thread or knows an async runtime. What happens in the
//! world arrives as events with the time they happened at; what should happen leaves as actions. The same code
//! therefore runs in a node on real sockets and in the simulator under virtual time, and does the same given the same.

pub mod agent;
pub mod assign;
pub mod cash;
pub mod federation;
pub mod frontier;
pub mod limits;
pub mod maps;
pub mod parse;
pub mod politeness;
pub mod record;
pub mod robots;
pub mod scope;
pub mod settings;
pub mod site;
pub mod time;
pub mod url;
