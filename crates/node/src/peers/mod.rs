//! How the agents of a site talk: messages over gRPC and mutual TLS, whatever they say.
//!
//! It promises that a message comes from the agent whose name it is given with, because that agent's certificate says so and
//! the site's authority made it ([`ca`]); that messages to a peer arrive in the order in which they were sent, as long as
//! one connection lasts, and each at most once; that nothing here waits for a peer or grows with what peers do: what finds no
//! room on its way out is dropped and counted, and what comes in faster than it is taken is held back at its source. It does
//! not promise that a message arrives: whoever needs that repeats it until the other side has said so.
//!
//! Each agent has one connection to each peer that it speaks to (`link.rs`), and lets one in from each (`serve.rs`).

pub mod ca;
pub(crate) mod codec;
mod foreign;
pub(crate) mod handshakes;
mod identity;
mod link;
mod name;
mod serve;
pub(crate) mod tasks;

use std::collections::HashMap;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

pub(crate) use foreign::Foreign;
pub use identity::{Identity, IdentityError};
pub(crate) use link::Calls;
use link::Link;
pub use link::PeerView;
pub use name::{Name, NotAName, Peer};
pub use serve::Inbox;
use serve::{Counters, Server, Speaking};
use tasks::lock;

/// How much of everything there may be.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest message; longer ones are neither sent nor received.
    pub message_bytes_max: usize,
    /// What may wait for one peer.
    pub queue_bytes_max: usize,
    /// What may have come from all peers and not been taken.
    pub inbox_bytes_max: usize,
    /// What may be under way to us over one connection.
    pub window_bytes: u32,
    /// The longest head of a request or an answer.
    pub header_bytes_max: u32,
    /// Peers that are spoken to at once.
    pub links_max: usize,
    /// Peers that speak to us at once.
    pub connections_max: usize,
    /// Connections whose other side has not yet shown a certificate; further ones are closed.
    pub handshakes_max: usize,
    /// Those of one address,
    pub handshakes_of_one_max: usize,
    /// and those that there may be besides from addresses at which somebody was let in before.
    pub handshakes_kept: usize,
    /// How long it may take until both sides have shown one.
    pub handshake_timeout: Duration,
    /// When nobody has wanted anything sent to a peer for this long, the connection to it is closed.
    pub idle_timeout: Duration,
    /// A peer that says nothing is asked whether it is there, this often;
    pub ping_every: Duration,
    /// one that does not answer within this is gone.
    pub ping_timeout: Duration,
    /// The first pause before a connection is tried again; it doubles.
    pub reconnect_min: Duration,
    /// Where the doubling ends.
    pub reconnect_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: 4 << 20,
            queue_bytes_max: 16 << 20,
            inbox_bytes_max: 32 << 20,
            window_bytes: 1 << 20,
            header_bytes_max: 8 << 10,
            links_max: 2_048,
            connections_max: 2_048,
            handshakes_max: 128,
            // Agents of a lab are all at one.
            handshakes_of_one_max: 32,
            handshakes_kept: 64,
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            ping_every: Duration::from_secs(2),
            ping_timeout: Duration::from_secs(4),
            reconnect_min: Duration::from_millis(100),
            reconnect_max: Duration::from_secs(2),
        }
    }
}

/// Why a message was not even queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// It is too long.
    #[error("a message of {bytes} bytes is too long: at most {bytes_max} are possible")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
    /// It cannot be written down.
    #[error("a message cannot be encoded: {0}")]
    Unwritable(String),
    /// Too much waits for this peer.
    #[error("too much waits for {0}")]
    Full(Peer),
    /// Too many peers are spoken to.
    #[error("no more than {0} peers can be spoken to")]
    TooManyPeers(usize),
}

/// What has happened since the start, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Connections of peers that were let in.
    pub accepted: u64,
    /// Connections that were not, because of their certificate, their time or their number.
    pub refused: u64,
    /// Messages that came.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Messages that were to be sent.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Messages that were not even queued.
    pub not_queued: u64,
}

/// The ways to peers, each with the task that goes it.
type Links = HashMap<Peer, (Arc<Link>, AbortHandle)>;

/// The peers of an agent: messages go out here, and come in through the [`Inbox`]. All connections end when it is dropped.
#[derive(Debug)]
pub struct Peers<M> {
    identity: Arc<Identity>,
    limits: Arc<Limits>,
    address: SocketAddr,
    runtime: Handle,
    serving: AbortHandle,
    counters: Arc<Counters>,
    queued: AtomicU64,
    queued_bytes: AtomicU64,
    not_queued: AtomicU64,
    links: Arc<Mutex<Links>>,
    speaking: Arc<Speaking>,
    of: PhantomData<fn(M)>,
}

impl<M: Serialize + DeserializeOwned + Send + 'static> Peers<M> {
    /// Starts to listen. Everything runs on the runtime that this is called in; messages can be sent and taken anywhere. One that
    /// stands still for longer than `ping_timeout` is taken for dead by its peers.
    pub fn start(
        identity: Identity,
        listener: std::net::TcpListener,
        limits: Limits,
    ) -> io::Result<(Peers<M>, Inbox<M>)> {
        let (identity, limits, counters) = (Arc::new(identity), Arc::new(limits), Arc::<Counters>::default());
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let (server, inbox) = Server::new(Arc::clone(&identity), Arc::clone(&limits), Arc::clone(&counters));
        let speaking = server.speaking();
        let runtime = Handle::current();
        let serving = runtime.spawn(server.run(listener)).abort_handle();
        let peers = Peers {
            identity,
            limits,
            address,
            runtime,
            serving,
            counters,
            queued: AtomicU64::new(0),
            queued_bytes: AtomicU64::new(0),
            not_queued: AtomicU64::new(0),
            links: Arc::default(),
            speaking,
            of: PhantomData,
        };
        Ok((peers, inbox))
    }

    /// Queues a message to a peer, which is at `address` (`HOST:PORT`). Never waits. An error means that it is not sent; that
    /// there is none does not mean that it arrives.
    pub fn send(&self, to: &Peer, address: &str, message: &M) -> Result<(), NotSent> {
        let bytes_max = self.limits.message_bytes_max;
        let queued = match codec::encode(message) {
            Ok(encoded) if encoded.len() > bytes_max => {
                Err(NotSent::TooLong { bytes: encoded.len(), bytes_max })
            }
            Ok(encoded) => {
                let bytes = encoded.len() as u64;
                self.queue(to, address, encoded).map(|()| bytes)
            }
            Err(error) => Err(NotSent::Unwritable(error.to_string())),
        };
        match queued {
            Ok(bytes) => {
                self.queued.fetch_add(1, Ordering::Relaxed);
                self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.not_queued.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn queue(&self, to: &Peer, address: &str, message: bytes::Bytes) -> Result<(), NotSent> {
        let mut links = lock(&self.links);
        if !links.contains_key(to) {
            if links.len() >= self.limits.links_max {
                return Err(NotSent::TooManyPeers(self.limits.links_max));
            }
            let link = Arc::new(Link::new(to.clone(), address));
            let running = self.runtime.spawn(self.run_link(Arc::clone(&link), to.clone()));
            links.insert(to.clone(), (link, running.abort_handle()));
        }
        let has_room =
            links.get(to).is_some_and(|(link, _)| link.put(address, message, self.limits.queue_bytes_max));
        if has_room { Ok(()) } else { Err(NotSent::Full(to.clone())) }
    }

    fn run_link(&self, link: Arc<Link>, peer: Peer) -> impl Future<Output = ()> + use<M> {
        let (identity, limits) = (Arc::clone(&self.identity), Arc::clone(&self.limits));
        let links = Arc::clone(&self.links);
        async move {
            loop {
                link.run(&identity, &limits).await;
                let mut links = lock(&links);
                // Somebody may have wanted something meanwhile.
                if link.is_idle(limits.idle_timeout) {
                    links.remove(&peer);
                    return;
                }
            }
        }
    }

    /// Ends the connection to a peer and drops what waits for it.
    pub fn forget(&self, peer: &Peer) {
        if let Some((_, running)) = lock(&self.links).remove(peer) {
            running.abort();
        }
    }

    /// Who we are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where peers are listened to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Those who are spoken to, by name.
    pub fn peers(&self) -> Vec<PeerView> {
        let mut views: Vec<PeerView> = lock(&self.links).values().map(|(link, _)| link.view()).collect();
        views.sort_by(|a, b| a.peer.cmp(&b.peer));
        views
    }

    /// Whether the connection to a peer stands.
    pub fn is_connected(&self, peer: &Peer) -> bool {
        lock(&self.links).get(peer).is_some_and(|(link, _)| link.view().connected)
    }

    /// Those whose connections to us stand, by name.
    pub fn speakers(&self) -> Vec<Name> {
        let mut names = self.speaking.names();
        names.sort();
        names
    }

    /// What has happened so far.
    pub fn counts(&self) -> PeerCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PeerCounts {
            accepted: read(&self.counters.accepted),
            refused: read(&self.counters.refused),
            received: read(&self.counters.messages),
            received_bytes: read(&self.counters.bytes),
            queued: read(&self.queued),
            queued_bytes: read(&self.queued_bytes),
            not_queued: read(&self.not_queued),
        }
    }
}

impl<M> Drop for Peers<M> {
    fn drop(&mut self) {
        self.serving.abort();
        for (_, running) in lock(&self.links).values() {
            running.abort();
        }
    }
}
