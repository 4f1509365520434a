//! An agent as a library: it performs what the core decides.
//!
//! [`crawl::run`] is a run of a crawl. Everything else is what it needs: settings ([`config`]), the crawl's directory
//! ([`directory`]), the network ([`fetch`], [`dns`]), the disk ([`writer`]), and people ([`control`], [`display`], [`why`]).

mod archiving;
pub mod asking;
pub mod clock;
pub mod config;
pub mod control;
pub mod copy;
pub mod crawl;
pub mod directory;
pub mod display;
pub mod dns;
mod exchange;
pub mod fetch;
pub mod fetch_log;
pub mod looking_back;
mod lost_pages;
pub mod memo;
pub mod metrics;
pub mod peers;
pub mod places;
pub mod report;
pub mod seeds;
mod shard;
pub mod shared;
pub mod site;
pub mod summary;
pub mod why;
pub mod writer;
