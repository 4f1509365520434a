//! The stores from outside: what all of them promise, and the embedded one on disks that fail, on damaged files and at scale.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and may say what it measured"
)]

mod contract;
mod copy;
mod crash;
mod damage;
mod embedded;
mod frontier;
mod history;
mod moving;
mod redis;
mod samples;
mod scale;
