//! Connections that wait for the next request to the same origin.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use nephila_core::url::Origin;
use tokio::time::Instant;

use super::exchange::Connection;

/// At most one connection an origin and a bounded number in all; the one unused for longest goes first.
///
/// One that has waited too long is closed when the pool is next used. One that the server closes is closed at once, by
/// the task that drives it, and left out when it is met here.
#[derive(Debug)]
pub(super) struct Pool {
    /// In the order in which they came to rest.
    idle: RefCell<VecDeque<Idle>>,
    idle_max: usize,
    idle_timeout: Duration,
}

#[derive(Debug)]
struct Idle {
    origin: Origin,
    connection: Connection,
    since: Instant,
}

impl Pool {
    pub(super) fn new(idle_max: usize, idle_timeout: Duration) -> Pool {
        Pool { idle: RefCell::default(), idle_max, idle_timeout }
    }

    /// The connection to an origin, if there is one that leads to one of these addresses.
    pub(super) fn take(&self, origin: &Origin, addresses: &[IpAddr]) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        self.sweep(&mut idle);
        let at = idle.iter().position(|one| one.origin == *origin)?;
        let connection = idle.remove(at)?.connection;
        (addresses.contains(&connection.address()) && !connection.is_closed()).then_some(connection)
    }

    /// Keeps a connection whose exchange is over.
    pub(super) fn put(&self, origin: Origin, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        self.sweep(&mut idle);
        idle.retain(|one| one.origin != origin);
        if !connection.is_closed() {
            idle.push_back(Idle { origin, connection, since: Instant::now() });
        }
        while idle.len() > self.idle_max {
            idle.pop_front();
        }
    }

    /// Closes the connection that is unused for longest. False: there is none.
    pub(super) fn close_one(&self) -> bool {
        self.idle.borrow_mut().pop_front().is_some()
    }

    fn sweep(&self, idle: &mut VecDeque<Idle>) {
        while idle.front().is_some_and(|one| one.since.elapsed() >= self.idle_timeout) {
            idle.pop_front();
        }
    }
}
