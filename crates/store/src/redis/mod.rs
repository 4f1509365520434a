//! Talking to the servers of a Redis or Valkey Cluster.

mod link;

pub use link::{Link, LinkOptions, Login};
pub use redis::{Cmd, Value, cmd};
