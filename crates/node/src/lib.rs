//! An agent as a library: it performs what the core decides.

pub mod clock;
pub mod config;
pub mod directory;
pub mod dns;
pub mod fetch;
pub mod seeds;
