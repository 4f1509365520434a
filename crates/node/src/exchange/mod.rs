//! How sites of a federation talk: batches of URLs over gRPC and mutual TLS, each with its answer.
//!
//! It promises that a batch comes from an agent of the site that it is said to be from, because that site's own authority made
//! its certificate; that a batch counts as taken only if the other site's agent has said so; and that nothing here waits for
//! another site or grows with what it does. Whether a batch is sent again is the agent's to decide.
//!
//! Any agent sends (`call.rs`). Those that have a `gateway` to listen at take what others send (`serve.rs`).

mod batch;
mod call;
mod serve;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use nephila_core::agent::Event;
use nephila_core::federation::{Batch, Federation, SiteNumber};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use self::call::Calling;
use self::serve::Server;
use crate::display;
use crate::peers::tasks::lock;
use crate::peers::{Foreign, Name};

/// What one site calls of another.
const METHOD: &str = "/nephila.Federation/Deliver";
/// The longest batch, compressed.
const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// The answer to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reply {
    /// The version of the list of sites that the answering agent has.
    version: u64,
    /// Whether the batch is durable there.
    taken: bool,
}

/// Batches of others that the agent has not answered.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<bool>>>>;

/// What was last said of the way to each site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Unknown,
    Open,
    /// The other site has another version of the list.
    Version(u64),
    Closed(String),
}

/// See the module's documentation.
pub(crate) struct Exchange {
    federation: Federation,
    calling: Arc<Calling>,
    runtime: Handle,
    events: mpsc::UnboundedSender<Event>,
    received: mpsc::UnboundedReceiver<Event>,
    waiting: Waiting,
    ways: Arc<Mutex<HashMap<String, Way>>>,
    serving: Option<AbortHandle>,
}

impl Exchange {
    /// Begins to listen, if there is a listener. Everything runs on the runtime that this is called in.
    pub(crate) fn start(
        federation: Federation,
        foreign: Foreign,
        listener: Option<std::net::TcpListener>,
    ) -> io::Result<Exchange> {
        let (events, received) = mpsc::unbounded_channel();
        let (runtime, foreign, waiting) = (Handle::current(), Arc::new(foreign), Waiting::default());
        let serving = match listener {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let (foreign, waiting) = (Arc::clone(&foreign), Arc::clone(&waiting));
                let server = Server::new(foreign, federation.version(), events.clone(), waiting);
                Some(runtime.spawn(server.run(listener)).abort_handle())
            }
            None => None,
        };
        let calling = Arc::new(Calling::new(foreign));
        Ok(Exchange {
            federation,
            calling,
            runtime,
            events,
            received,
            waiting,
            ways: Arc::default(),
            serving,
        })
    }

    /// The sites.
    pub(crate) fn federation(&self) -> &Federation {
        &self.federation
    }

    /// Sends a batch to a site. The answer is an event.
    pub(crate) fn post(&self, site: SiteNumber, gateway: String, post: u64, batch: &Batch) {
        let name = self.federation.site(site).name.clone();
        let (Some(bytes), Ok(site)) = (batch::encode(batch), name.parse::<Name>()) else {
            // Neither can be: URLs have a longest length, and the list was read with these names.
            let _ = self.events.send(Event::Posted { post, taken: false });
            return;
        };
        let (calling, events, ways) =
            (Arc::clone(&self.calling), self.events.clone(), Arc::clone(&self.ways));
        let version = self.federation.version();
        self.runtime.spawn(async move {
            let (way, taken) = match calling.deliver(&site, &gateway, bytes).await {
                Ok(reply) if reply.version != version => (Way::Version(reply.version), false),
                Ok(reply) => (Way::Open, reply.taken),
                Err(error) => (Way::Closed(format!("{gateway}: {error}")), false),
            };
            say_way(&ways, name, way, version);
            // The agent may have ended.
            let _ = events.send(Event::Posted { post, taken });
        });
    }

    /// Answers a batch that came.
    pub(crate) fn answer(&self, call: u64, taken: bool) {
        if let Some(reply) = lock(&self.waiting).remove(&call) {
            // Whoever sent it may have gone.
            let _ = reply.send(taken);
        }
    }

    /// What happens next.
    pub(crate) async fn recv(&mut self) -> Option<Event> {
        self.received.recv().await
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// Says in the log how a site is reached, when that has changed.
fn say_way(ways: &Mutex<HashMap<String, Way>>, site: String, way: Way, version: u64) {
    let kind = |way: &Way| std::mem::discriminant(way);
    let before = lock(ways).insert(site.clone(), way.clone()).unwrap_or_default();
    if kind(&before) == kind(&way) {
        return;
    }
    display::note(&display::harmless(&match way {
        Way::Unknown => return,
        Way::Open => format!("site {site} takes what is found of its hosts"),
        Way::Version(other) => format!(
            "warning: site {site} has version {other} of the list of sites, and this agent version {version}: nothing is exchanged until both have the same"
        ),
        Way::Closed(error) => {
            format!("warning: site {site} is not reached, and what is found of its hosts waits: {error}")
        }
    }));
}
