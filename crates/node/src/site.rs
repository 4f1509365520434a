//! An agent among the others of its site: what it says to them and hears of them.
//!
//! [`Peers`] carries messages and says by its certificate who sent them; here they are given to and taken from the agent. It
//! runs on a thread of its own, so that an agent that is busy with its store is not taken for dead.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use nephila_core::agent::{Action, Agent, Event, Recipient};
use nephila_core::federation::Federation;
use nephila_core::scope::Scope;
use nephila_core::settings::Settings;
use nephila_core::site::{AgentId, Member, Message, SiteSettings};
use nephila_core::url::Url;
use nephila_store::redis::{RedisOptions, RedisStore};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::asking::{Answer, Ask};
use crate::config::{Config, FederationError, FederationFile, NoStore};
use crate::directory::Directory;
use crate::exchange::{Exchange, FromSites, Partner, Put};
use crate::peers::{Foreign, Identity, IdentityError, Inbox, Limits, Name, NotSent, Peer, Peers};

/// Questions to other agents at a time.
const PENDING_MAX: usize = 4_096;

/// Why an agent cannot be part of its site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It cannot be spoken to.
    #[error("cannot listen on {1}: choose another address for `{0}`")]
    Listen(&'static str, SocketAddr, #[source] io::Error),
    /// The means to speak could not be set up.
    #[error("cannot start to speak to other agents")]
    Start(#[source] io::Error),
    /// An authority of another site cannot be used.
    #[error("an authority that {} names cannot be used: it is the `ca/ca.pem` that `nephila ca` made at that site", .0.display())]
    Authority(PathBuf, #[source] IdentityError),
    /// A list of sites that it had before cannot be read.
    #[error(transparent)]
    Federation(#[from] FederationError),
    /// The store that its agents share cannot be spoken to as the settings say.
    #[error(transparent)]
    Store(#[from] NoStore),
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
    said: Said,
}

#[derive(Serialize, Deserialize)]
enum Said {
    Message(Box<Message>),
    /// A question, and its number.
    Ask(u64, Ask),
    /// The answer to the question of this number.
    Answer(u64, Answer),
}

/// What an agent hears.
pub(crate) enum Heard {
    /// For the agent itself.
    Event(Event),
    /// Another one asks something: by its number and name, with the number of the question.
    Asked(AgentId, String, u64, Ask),
    /// Somebody at another site does.
    Put(Put),
}

/// Questions that are not answered, each with whom it was put to.
type Pending = HashMap<u64, (AgentId, oneshot::Sender<Answer>)>;

/// See the module's documentation.
pub struct Site {
    settings: SiteSettings,
    /// The store that its agents share, if they do.
    store: Option<RedisOptions>,
    expires_soon: bool,
    peers: Peers<Envelope>,
    inbox: Inbox<Envelope>,
    /// The other sites of its federation,
    exchange: Option<Exchange>,
    /// the lists of them that there were before, as far as this agent had them,
    earlier_lists: Vec<Federation>,
    /// and that of now as it is written.
    list_text: Option<String>,
    questions: u64,
    pending: Pending,
    /// Where `peers` runs; taken when it ends.
    runtime: Option<Runtime>,
}

impl Site {
    /// Begins to listen as the agent that `identity` says, to crawl from these seeds.
    pub fn open(
        config: &Config,
        directory: &Directory,
        seeds: &[Url],
        identity: Identity,
        federation: Option<FederationFile>,
    ) -> Result<Site, SiteError> {
        let (Some(listen), Some(me)) = (config.site.listen, directory.agent()) else {
            return Err(SiteError::Settings);
        };
        let listener = bind("listen", listen)?;
        let mut settings = config.site_settings(me, identity.agent().to_string(), seeds);
        settings.terms = settings.terms.in_site(identity.site().as_str());
        if let Some(list) = federation.as_ref().map(|file| file.federation().list()) {
            settings.terms = settings.terms.in_federation(list);
        }
        let store = config.shared_store(me, &identity.site().to_string())?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("peers").enable_all().build();
        let runtime = runtime.map_err(SiteError::Start)?;
        let earlier = federation.as_ref().map(|list| list.earlier(directory.path()));
        let earlier_lists = earlier.transpose()?.unwrap_or_default();
        let list_text = federation.as_ref().map(FederationFile::text).transpose()?;
        let exchange = match federation {
            Some(list) => Some(open_exchange(config, list, &identity, &runtime)?),
            None => None,
        };
        let expires_soon = identity.expires_soon();
        let started = runtime.block_on(async { Peers::start(identity, listener, Limits::default()) });
        let (peers, inbox) = started.map_err(SiteError::Start)?;
        let (questions, pending) = (0, Pending::new());
        let runtime = Some(runtime);
        Ok(Site {
            settings,
            store,
            expires_soon,
            peers,
            inbox,
            exchange,
            earlier_lists,
            list_text,
            questions,
            pending,
            runtime,
        })
    }

    /// What the agent is told of it.
    pub fn settings(&self) -> &SiteSettings {
        &self.settings
    }

    /// The agent of it that this is.
    pub(crate) fn agent(&self, settings: Settings, scope: Scope) -> Agent {
        let agent = Agent::of_site(settings, scope, self.settings.clone());
        match &self.exchange {
            Some(exchange) => {
                let agent = agent.in_federation(exchange.federation().clone());
                agent.with_earlier_lists(self.earlier_lists.clone())
            }
            None => agent,
        }
    }

    /// The same agent, told of all lists of sites that its site has had: the store that its agents share keeps them. An agent
    /// with a list that the site has no more is told why it cannot begin.
    pub(crate) fn with_kept_lists(
        &self,
        agent: Agent,
        store: &mut RedisStore,
    ) -> nephila_store::Result<Result<Agent, String>> {
        let Some((exchange, text)) = self.exchange.as_ref().zip(self.list_text.as_deref()) else {
            return Ok(Ok(agent));
        };
        let list = exchange.federation().list();
        let mut lists = self.earlier_lists.clone();
        for (version, text) in store.keep_list(list.version, text)? {
            let read = FederationFile::parse_as_any(&text, Path::new("the store"));
            let kept = match read {
                Ok(kept) => kept,
                Err(error) => {
                    return Ok(Err(format!("the store has a list of sites of version {version}: {error}")));
                }
            };
            if version > list.version {
                let ours = list.version;
                return Ok(Err(format!(
                    "the list of sites is of version {ours}, and agents that share this store have had version {version}: give \
                     this agent that one"
                )));
            }
            if version == list.version && kept.list() != list {
                return Ok(Err(format!(
                    "agents that share this store have another list of sites, of the same version {version}: compare the two"
                )));
            }
            if version < list.version && lists.iter().all(|known| known.version() != version) {
                lists.push(kept);
            }
        }
        Ok(Ok(agent.with_earlier_lists(lists)))
    }

    /// Says what the agent wants others to hear, of this site or of another one.
    pub(crate) fn perform(&self, action: Action) {
        match (action, &self.exchange) {
            // Whatever is not sent is counted there, and said again as whatever gets lost on its way.
            (Action::Send { to, message }, _) => drop(self.say(to, Said::Message(message))),
            (Action::Post { site, gateway, post, batch }, Some(exchange)) => {
                exchange.post(site, gateway, post, batch);
            }
            (Action::Answer { call, taken }, Some(exchange)) => exchange.answer(call, taken),
            (Action::Claim { site, gateway, call, claim }, Some(exchange)) => {
                exchange.claim(site, gateway, call, &claim);
            }
            (Action::Release { call, release }, Some(exchange)) => exchange.release(call, release),
            (Action::AskRules { site, gateway, call, ask }, Some(exchange)) => {
                exchange.ask_rules(site, gateway, call, &ask);
            }
            (Action::Tell { site, used }, Some(exchange)) => exchange.tell(site, &used),
            (Action::GiveRules { call, result }, Some(exchange)) => exchange.give_rules(call, result),
            (Action::Say { site, gateway, call, saying }, Some(exchange)) => {
                exchange.say(site, gateway, call, &saying);
            }
            (Action::Heard { call, heard }, Some(exchange)) => exchange.heard(call, heard),
            _ => {}
        }
    }

    /// The store that its agents share, if they do.
    pub(crate) fn store(&self) -> Option<&RedisOptions> {
        self.store.as_ref()
    }

    /// The site's name.
    pub fn name(&self) -> &Name {
        self.peers.identity().site()
    }

    /// Whether this agent's certificate ends within a month.
    pub fn expires_soon(&self) -> bool {
        self.expires_soon
    }

    /// Peers to which there is no connection, and why, as far as that is known.
    pub(crate) fn unreachable(&self) -> Vec<(String, String)> {
        let views = self.peers.peers().into_iter().filter(|view| !view.connected);
        views.filter_map(|view| Some((view.address, view.last_error?))).collect()
    }

    fn say(&self, to: Recipient, said: Said) -> Result<(), NotSent> {
        let (id, peer) = match to.agent {
            Some((id, name)) => match name.parse() {
                Ok(name) => (Some(id), Peer::Agent(name)),
                // Nobody can have shown a certificate with such a name.
                Err(_) => return Ok(()),
            },
            None => (None, Peer::At(to.address.as_str().into())),
        };
        let envelope = Envelope { from: self.settings.me, to: id, said };
        self.peers.send(&peer, &to.address, &envelope)
    }

    /// Another site, to put questions to.
    pub(crate) fn partner(&self, name: &str) -> Option<Partner> {
        self.exchange.as_ref()?.partner(name)
    }

    /// Puts a question to another agent.
    pub(crate) fn ask(&mut self, to: AgentId, member: &Member, ask: Ask, reply: oneshot::Sender<Answer>) {
        // Whoever asked may have gone.
        self.pending.retain(|_, (_, reply)| !reply.is_closed());
        if self.pending.len() >= PENDING_MAX {
            return;
        }
        self.questions += 1;
        self.pending.insert(self.questions, (to, reply));
        let _ = self.say(recipient(to, member), Said::Ask(self.questions, ask));
    }

    /// Answers a question of another agent.
    pub(crate) fn answer(&self, to: AgentId, member: &Member, question: u64, answer: Answer) {
        if let Err(error) = self.say(recipient(to, member), Said::Answer(question, answer)) {
            let refused = Answer::Refused(format!("the answer cannot be sent: {error}"));
            let _ = self.say(recipient(to, member), Said::Answer(question, refused));
        }
    }

    /// The next of what is said to this agent; none when there will be no more.
    pub(crate) async fn recv(&mut self) -> Option<Heard> {
        loop {
            let (name, Envelope { from, to, said }) = tokio::select! {
                received = self.inbox.recv() => received?,
                Some(heard) = from_sites(&mut self.exchange) => match heard {
                    FromSites::Event(event) => return Some(Heard::Event(event)),
                    FromSites::Put(put) => return Some(Heard::Put(put)),
                },
            };
            if to.is_some_and(|to| to != self.settings.me) {
                continue;
            }
            let name = name.to_string();
            match said {
                Said::Message(message) => return Some(Heard::Event(Event::Message { from, name, message })),
                Said::Ask(question, ask) => return Some(Heard::Asked(from, name, question, ask)),
                Said::Answer(question, answer) => {
                    if self.pending.get(&question).is_some_and(|(asked, _)| *asked == from)
                        && let Some((_, reply)) = self.pending.remove(&question)
                    {
                        // Whoever asked may have gone.
                        let _ = reply.send(answer);
                    }
                }
            }
        }
    }
}

fn bind(setting: &'static str, address: SocketAddr) -> Result<TcpListener, SiteError> {
    TcpListener::bind(address).map_err(|error| SiteError::Listen(setting, address, error))
}

/// Begins to speak to other sites.
fn open_exchange(
    config: &Config,
    list: FederationFile,
    identity: &Identity,
    runtime: &Runtime,
) -> Result<Exchange, SiteError> {
    let FederationFile { path, federation, authorities } = list;
    let authorities: Vec<(Name, &Path)> =
        authorities.iter().map(|(site, path)| (site.clone(), path.as_path())).collect();
    let foreign = Foreign::new(identity, &authorities).map_err(|error| SiteError::Authority(path, error))?;
    let listener = config.site.gateway.map(|gateway| bind("gateway", gateway)).transpose()?;
    let started = runtime.block_on(async { Exchange::start(federation, foreign, listener) });
    started.map_err(SiteError::Start)
}

async fn from_sites(exchange: &mut Option<Exchange>) -> Option<FromSites> {
    match exchange {
        Some(exchange) => exchange.recv().await,
        None => std::future::pending().await,
    }
}

fn recipient(id: AgentId, member: &Member) -> Recipient {
    Recipient { agent: Some((id, member.name.clone())), address: member.address.clone() }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime must not be waited for on a thread of another.
            runtime.shutdown_background();
        }
    }
}
