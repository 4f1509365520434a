//! The archive from outside: what goes in comes out, whatever happens in between.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod full_disk;
mod python;
mod round_trip;
mod samples;
