//! Connections that wait for the next request to the same origin.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use nephila_core::url::Origin;
use tokio::time::Instant;

use super::Connection;

/// At most one connection an origin and a bounded number in all.
///
/// When there is no room, the newcomer is closed: hosts come round in turn, so that the connection unused for longest is
/// the one needed next, and to close that would be to find none of them again. One that has waited too long is closed
/// when the pool is next used, whether the server has closed it meanwhile or not.
#[derive(Debug)]
pub(super) struct Pool {
    idle: RefCell<Shelf>,
    idle_max: usize,
    idle_timeout: Duration,
}

#[derive(Debug, Default)]
struct Shelf {
    /// By the order in which they came to rest.
    rested: BTreeMap<u64, Idle>,
    places: HashMap<Origin, u64>,
    next: u64,
}

#[derive(Debug)]
struct Idle {
    origin: Origin,
    connection: Connection,
    since: Instant,
}

impl Shelf {
    fn remove(&mut self, origin: &Origin) -> Option<Connection> {
        let place = self.places.remove(origin)?;
        self.rested.remove(&place).map(|idle| idle.connection)
    }

    fn put(&mut self, origin: Origin, connection: Connection) {
        self.places.insert(origin.clone(), self.next);
        self.rested.insert(self.next, Idle { origin, connection, since: Instant::now() });
        self.next += 1;
    }

    /// Closes the connection unused for longest, if it is unused for this long.
    fn close_first(&mut self, unused: Duration) -> bool {
        let Some(first) = self.rested.first_entry() else { return false };
        if first.get().since.elapsed() < unused {
            return false;
        }
        let idle = first.remove();
        self.places.remove(&idle.origin);
        true
    }
}

impl Pool {
    pub(super) fn new(idle_max: usize, idle_timeout: Duration) -> Pool {
        Pool { idle: RefCell::default(), idle_max, idle_timeout }
    }

    /// The connection to an origin, if there is one that leads to one of these addresses.
    pub(super) fn take(&self, origin: &Origin, addresses: &[IpAddr]) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while idle.close_first(self.idle_timeout) {}
        let connection = idle.remove(origin)?;
        addresses.contains(&connection.address()).then_some(connection)
    }

    /// Keeps a connection whose exchange is over.
    pub(super) fn put(&self, origin: Origin, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        while idle.close_first(self.idle_timeout) {}
        idle.remove(&origin);
        if idle.rested.len() < self.idle_max {
            idle.put(origin, connection);
        }
    }

    /// Closes the connection that is unused for longest. False: there is none.
    pub(super) fn close_one(&self) -> bool {
        self.idle.borrow_mut().close_first(Duration::ZERO)
    }
}
