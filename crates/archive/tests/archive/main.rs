//! The archive from outside: what goes in comes out, whatever happens in between.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it skips"
)]

mod crash;
mod full_disk;
mod python;
mod round_trip;
mod samples;
