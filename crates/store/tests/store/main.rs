//! The store from outside: against a naive model, on disks that fail, on damaged files and at scale.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and may say what it measured"
)]

mod crash;
mod damage;
mod frontier;
mod history;
mod limits;
mod model;
mod samples;
mod scale;
mod visits;
