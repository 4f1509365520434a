//! Agents of a site talk over real sockets: with each other, and with those who are none.

#![allow(clippy::unwrap_used, reason = "a test fails where this does")]

mod cost;
mod garbage;
mod pressure;
mod raw;
mod site;
mod strangers;
mod talk;
