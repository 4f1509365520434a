//! Fetching over real sockets on 127.0.0.1, from servers that say what a test tells them to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod http;
mod http2;
mod limits;
mod names;
mod server;
mod tls;
