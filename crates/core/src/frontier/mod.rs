//! The hosts of an agent and whose turn it is.
//!
//! # The life of a host
//! A host is born when the first of its URLs is admitted, or when another host's robots.txt redirects to it. From then
//! on it is always in exactly one [`Place`]. With nothing due it is idle. With something due it waits for its delay, then
//! stands in the ready queue, and when its turn comes it is asked: its name is resolved, its address has a gate to
//! pass, its robots.txt comes before its pages. A request in flight makes it wait again. A host that fails is left alone
//! for longer and longer and, in the end, given up; a blocked one stays where it is until it is unblocked.
//!
//! The URLs themselves are in the store; a host holds only the few that it took for its next turns. When there are more hosts
//! than the workbench has room for, those at rest leave it, and the store keeps what must not be forgotten of them
//! ([`HostMemo`]). They come back when something of them is due.

mod host;
mod workbench;

pub use host::{
    Asker, Errand, Grant, HostMemo, HostState, LastUrls, Name, Place, Rules, RulesOf, Trouble, Wait,
};
pub use workbench::{Alarm, Workbench};
