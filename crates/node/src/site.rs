//! An agent among the others of its site: what it says to them and hears of them.
//!
//! [`Peers`] carries messages and says by its certificate who sent them; here they are given to and taken from the agent. It
//! runs on a thread of its own, so that an agent that is busy with its store is not taken for dead.

use std::io;
use std::net::TcpListener;

use nephila_core::agent::{Event, Recipient};
use nephila_core::site::{AgentId, Message, SiteSettings};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::config::Config;
use crate::directory::Directory;
use crate::peers::{Identity, Inbox, Limits, Name, Peer, Peers};

/// Why an agent cannot be part of its site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It cannot be spoken to.
    #[error("cannot listen on {0}: choose another address for `listen`")]
    Listen(std::net::SocketAddr, #[source] io::Error),
    /// The means to speak could not be set up.
    #[error("cannot start to speak to other agents")]
    Start(#[source] io::Error),
    /// It is told too little.
    #[error("the settings of a site are missing")]
    Settings,
}

/// What one agent sends another.
#[derive(Serialize, Deserialize)]
struct Envelope {
    from: AgentId,
    /// Whoever is there if `None`. Another agent may be where this one was.
    to: Option<AgentId>,
    message: Message,
}

/// See the module's documentation.
pub struct Site {
    settings: SiteSettings,
    expires_soon: bool,
    peers: Peers<Envelope>,
    inbox: Inbox<Envelope>,
    /// Where `peers` runs; taken when it ends.
    runtime: Option<Runtime>,
}

impl Site {
    /// Begins to listen as the agent that `identity` says.
    pub fn open(config: &Config, directory: &Directory, identity: Identity) -> Result<Site, SiteError> {
        let (Some(listen), Some(me)) = (config.site.listen, directory.agent()) else {
            return Err(SiteError::Settings);
        };
        let listener = TcpListener::bind(listen).map_err(|error| SiteError::Listen(listen, error))?;
        let settings = config.site_settings(me, identity.agent().to_string());
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("peers").enable_all().build();
        let runtime = runtime.map_err(SiteError::Start)?;
        let expires_soon = identity.expires_soon();
        let started = runtime.block_on(async { Peers::start(identity, listener, Limits::default()) });
        let (peers, inbox) = started.map_err(SiteError::Start)?;
        Ok(Site { settings, expires_soon, peers, inbox, runtime: Some(runtime) })
    }

    /// What the agent is told of it.
    pub fn settings(&self) -> &SiteSettings {
        &self.settings
    }

    /// The site's name.
    pub fn name(&self) -> &Name {
        self.peers.identity().site()
    }

    /// Whether this agent's certificate ends within a month.
    pub fn expires_soon(&self) -> bool {
        self.expires_soon
    }

    /// Sends a message, which may get lost.
    pub(crate) fn send(&self, to: Recipient, message: Message) {
        let (id, peer) = match to.agent {
            Some((id, name)) => match name.parse() {
                Ok(name) => (Some(id), Peer::Agent(name)),
                // Nobody can have shown a certificate with such a name.
                Err(_) => return,
            },
            None => (None, Peer::At(to.address.as_str().into())),
        };
        let envelope = Envelope { from: self.settings.me, to: id, message };
        // Whatever is not sent is counted there, and said again as whatever gets lost on its way.
        let _ = self.peers.send(&peer, &to.address, &envelope);
    }

    /// The next message for this agent; none when there will be no more.
    pub(crate) async fn recv(&mut self) -> Option<Event> {
        loop {
            let (name, Envelope { from, to, message }) = self.inbox.recv().await?;
            if to.is_none_or(|to| to == self.settings.me) {
                return Some(Event::Message { from, name: name.to_string(), message: Box::new(message) });
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime must not be waited for on a thread of another.
            runtime.shutdown_background();
        }
    }
}
