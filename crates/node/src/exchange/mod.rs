//! How sites of a federation talk: batches of URLs, claims of hosts, and what sites say to all (`say.rs`), over gRPC and mutual
//! TLS, each with its answer.
//!
//! It promises that a batch comes from an agent of the site that it is said to be from, because that site's own authority made
//! its certificate; that a batch counts as taken only if the other site's agent has said so; and that nothing here waits for
//! another site or grows with what it does. Whether a batch is sent again is the agent's to decide.
//!
//! Any agent sends (`call.rs`). Those that have a `gateway` to listen at take what others send (`serve.rs`).

mod batch;
mod call;
mod questions;
mod say;
mod serve;
mod ways;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nephila_core::agent::Event;
use nephila_core::federation::{
    AddressesUsed, AskedRules, Batch, Claim, Federation, Heard, ListId, Release, SiteEntry, SiteNumber,
};
use nephila_core::record::Failure;
use nephila_core::site::RulesAnswer;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::AbortHandle;

use self::call::{Calling, TIMEOUT};
pub(crate) use self::questions::{Partner, Put, Question};
use self::serve::Server;
use self::ways::{Way, Ways};
use crate::peers::tasks::lock;
use crate::peers::{Foreign, Name};

/// What one site calls of another: to take a batch,
const DELIVER: &str = "/nephila.Federation/Deliver";
/// to hear which addresses are in use,
const TELL: &str = "/nephila.Federation/Tell";
/// to have a robots.txt of one of its hosts,
const RULES: &str = "/nephila.Federation/Rules";
/// which waits for the turn of that host, in its queue, as long as a host waits for its rules and longer,
const RULES_TIMEOUT: Duration = Duration::from_secs(75);
/// to answer what people ask,
const ASK: &str = "/nephila.Federation/Ask";
/// and to say what it knows of a host.
const CLAIM: &str = "/nephila.Federation/Claim";
/// Questions of other sites that wait for the agent.
const QUESTIONS_MAX: usize = 64;
/// The longest batch, compressed.
const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// The answer to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reply {
    /// The list of sites that the answering agent has.
    list: ListId,
    /// Whether the batch is durable there.
    taken: bool,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Released {
    /// The list of sites that the answering agent has.
    list: ListId,
    /// What is known of the host there; nothing if that cannot be said now.
    release: Option<Box<Release>>,
}

/// The answer to a question for rules: what the server said, or why it said nothing; nothing if that cannot be said now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FoundRules(Option<Box<Result<RulesAnswer, Failure>>>);

/// What comes from other sites.
pub(crate) enum FromSites {
    /// For the agent itself.
    Event(Event),
    /// A question.
    Put(Put),
}

/// What the agent has to say to a call.
enum Answer {
    Taken(bool),
    Release(Option<Box<Release>>),
    Rules(Option<Box<Result<RulesAnswer, Failure>>>),
    Heard(Option<Box<Heard>>),
}

/// Calls of others that the agent has not answered, each with its share of what may be under way at once: a caller that is gone
/// does not free that.
type Waiting = Arc<Mutex<HashMap<u64, (oneshot::Sender<Answer>, OwnedSemaphorePermit)>>>;

/// See the module's documentation.
pub(crate) struct Exchange {
    federation: Federation,
    calling: Arc<Calling>,
    runtime: Handle,
    events: mpsc::UnboundedSender<Event>,
    received: mpsc::UnboundedReceiver<Event>,
    questions: mpsc::Receiver<Put>,
    waiting: Waiting,
    ways: Arc<Ways>,
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
        let (put, questions) = mpsc::channel(QUESTIONS_MAX);
        let (runtime, foreign, waiting) = (Handle::current(), Arc::new(foreign), Waiting::default());
        let ways = Arc::<Ways>::default();
        let serving = match listener {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let (foreign, waiting) = (Arc::clone(&foreign), Arc::clone(&waiting));
                let ways = Arc::clone(&ways);
                let server = Server::new(foreign, &federation, (events.clone(), put), waiting, ways);
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
            questions,
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
    pub(crate) fn post(&self, site: SiteNumber, gateway: String, post: u64, batch: Box<Batch>) {
        let entry = self.federation.site(site);
        let (name, gateways) = (entry.name.clone(), entry.gateways.len());
        let (calling, events, ways) =
            (Arc::clone(&self.calling), self.events.clone(), Arc::clone(&self.ways));
        let ours = self.federation.list();
        self.runtime.spawn(async move {
            // It takes longer than the others on this thread should wait.
            let encoded = tokio::task::spawn_blocking(move || batch::encode(&batch)).await;
            let answered = match (encoded, name.parse::<Name>()) {
                (Ok(Some(bytes)), Ok(site)) => {
                    calling.call::<Reply>(DELIVER, &site, &gateway, bytes, TIMEOUT).await
                }
                // Neither can be: URLs can be written, and the list was read with these names.
                _ => Err("it cannot be sent".into()),
            };
            let (way, taken) = match answered {
                Ok(Some(reply)) if reply.list != ours => (Way::OtherList(reply.list), false),
                Ok(Some(Reply { taken: true, .. })) => (Way::Open, true),
                Ok(_) => (Way::Busy, false),
                Err(error) => (Way::Closed(error.to_string()), false),
            };
            ways.note(&name, &gateway, &way, ours, gateways);
            // The agent may have ended.
            let _ = events.send(Event::Posted { post, taken });
        });
    }

    /// Claims a host from a site. The answer is an event.
    pub(crate) fn claim(&self, site: SiteNumber, gateway: String, call: u64, claim: &Claim) {
        let entry = self.federation.site(site);
        let (name, gateways) = (entry.name.clone(), entry.gateways.len());
        let (calling, events, ways) =
            (Arc::clone(&self.calling), self.events.clone(), Arc::clone(&self.ways));
        let (ours, bytes) = (self.federation.list(), postcard::to_stdvec(claim));
        self.runtime.spawn(async move {
            let answered = match (bytes, name.parse::<Name>()) {
                (Ok(bytes), Ok(site)) => {
                    calling.call::<Released>(CLAIM, &site, &gateway, bytes, TIMEOUT).await
                }
                // Neither can be: hosts can be written, and the list was read with these names.
                _ => Err("it cannot be sent".into()),
            };
            let (way, release) = match answered {
                Ok(Some(released)) if released.list != ours => (Way::OtherList(released.list), None),
                Ok(Some(Released { release: Some(release), .. })) => (Way::Open, Some(release)),
                Ok(_) => (Way::Busy, None),
                Err(error) => (Way::Closed(error.to_string()), None),
            };
            ways.note(&name, &gateway, &way, ours, gateways);
            // The agent may have ended.
            let _ = events.send(Event::Claimed { call, release });
        });
    }

    /// Answers a batch that came.
    pub(crate) fn answer(&self, call: u64, taken: bool) {
        self.reply(call, Answer::Taken(taken));
    }

    /// Answers a claim that came.
    pub(crate) fn release(&self, call: u64, release: Option<Box<Release>>) {
        self.reply(call, Answer::Release(release));
    }

    /// Asks a site for a robots.txt that one of its hosts has. The answer is an event.
    pub(crate) fn ask_rules(&self, site: SiteNumber, gateway: String, call: u64, ask: &AskedRules) {
        let name = self.federation.site(site).name.clone();
        let (calling, events) = (Arc::clone(&self.calling), self.events.clone());
        let bytes = postcard::to_stdvec(ask);
        self.runtime.spawn(async move {
            let answered = match (bytes, name.parse::<Name>()) {
                (Ok(bytes), Ok(site)) => {
                    calling.call::<FoundRules>(RULES, &site, &gateway, bytes, RULES_TIMEOUT).await
                }
                // Neither can be: URLs can be written, and the list was read with these names.
                _ => Err("it cannot be sent".into()),
            };
            // How the site is reached is said when something is sent there.
            let result = answered.ok().flatten().and_then(|FoundRules(result)| result);
            // The agent may have ended.
            let _ = events.send(Event::RulesOfSite { call, result });
        });
    }

    /// Tells a site which addresses are in use here, at the first of its gateways that hears of it.
    pub(crate) fn tell(&self, site: SiteNumber, used: &AddressesUsed) {
        let SiteEntry { name, gateways, .. } = self.federation.site(site).clone();
        let (calling, bytes) = (Arc::clone(&self.calling), postcard::to_stdvec(used));
        self.runtime.spawn(async move {
            let (Ok(bytes), Ok(site)) = (bytes, name.parse::<Name>()) else { return };
            for gateway in gateways {
                // It is said again after a while in any case.
                let told = calling.call::<Reply>(TELL, &site, &gateway, bytes.clone(), TIMEOUT).await;
                if matches!(told, Ok(Some(Reply { taken: true, .. }))) {
                    return;
                }
            }
        });
    }

    /// Answers such a question.
    pub(crate) fn give_rules(&self, call: u64, result: Option<Box<Result<RulesAnswer, Failure>>>) {
        self.reply(call, Answer::Rules(result));
    }

    fn reply(&self, call: u64, answer: Answer) {
        if let Some((reply, _)) = lock(&self.waiting).remove(&call) {
            // Whoever called may have gone.
            let _ = reply.send(answer);
        }
    }

    /// A site to put questions to, if there is another one of this name that is not gone.
    pub(crate) fn partner(&self, name: &str) -> Option<Partner> {
        let number = self.federation.find(name).filter(|number| *number != self.federation.me())?;
        let entry = self.federation.site(number);
        let name = entry.name.parse().ok().filter(|_| !entry.is_gone)?;
        let (calling, runtime) = (Arc::clone(&self.calling), self.runtime.clone());
        Some(Partner { name, gateways: entry.gateways.clone(), calling, runtime })
    }

    /// What happens next.
    pub(crate) async fn recv(&mut self) -> Option<FromSites> {
        tokio::select! {
            event = self.received.recv() => event.map(FromSites::Event),
            Some(put) = self.questions.recv() => Some(FromSites::Put(put)),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::{Path, PathBuf};

    use nephila_core::federation::Saying;
    use nephila_core::record::{Found, How};
    use tokio::time::timeout;

    use super::serve::CALLS_MAX;
    use super::*;
    use crate::peers::{Identity, ca};

    const LONG: Duration = Duration::from_secs(20);

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// Two sites with an agent each: the authority of each, and who its agent is.
    fn sites(dir: &Path) -> [(PathBuf, Identity); 2] {
        ["paris", "lima"].map(|site| {
            let made = ca::make(&dir.join(site), &name(site), &[name("a")]).unwrap();
            (made.ca.join("ca.pem"), Identity::read(&made.agents[0].dir).unwrap())
        })
    }

    fn federation(me: &str, version: u64, gateway: &str) -> Federation {
        let gateways = vec![gateway.to_owned()];
        let entry = SiteEntry { gateways, ..SiteEntry::default() };
        let site = |name: &str| SiteEntry { name: name.to_owned(), ..entry.clone() };
        Federation::new(version, vec![site("paris"), site("lima")], me, []).unwrap()
    }

    fn batch(list: ListId) -> Box<Batch> {
        let url = "http://a.test/".to_owned();
        Box::new(Batch {
            list,
            found: vec![Found { url, depth: 1, how: How::Link, redirects: 0 }],
            units: Vec::new(),
        })
    }

    async fn next(exchange: &mut Exchange) -> Event {
        match timeout(LONG, exchange.recv()).await.expect("nothing happens") {
            Some(FromSites::Event(event)) => event,
            _ => panic!("a question"),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn batches_are_taken_refused_or_left_and_never_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let [(paris_ca, paris), (lima_ca, lima)] = sites(dir.path());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gateway = listener.local_addr().unwrap().to_string();
        let foreign = |identity, site, ca| Foreign::new(identity, &[(name(site), ca)]).unwrap();
        let of_paris = foreign(&paris, "lima", &*lima_ca);
        let of_lima = || foreign(&lima, "paris", &*paris_ca);
        let mut server = Exchange::start(federation("paris", 1, &gateway), of_paris, Some(listener)).unwrap();
        let mut client = Exchange::start(federation("lima", 1, &gateway), of_lima(), None).unwrap();
        let to = client.federation().find("paris").unwrap();
        for taken in [true, false] {
            client.post(to, gateway.clone(), 7, batch(client.federation().list()));
            let Event::Batch { call, site, batch } = next(&mut server).await else { panic!("no batch") };
            assert_eq!((&*site, &*batch.found[0].url), ("lima", "http://a.test/"));
            server.answer(call, taken);
            let Event::Posted { post: 7, taken: said } = next(&mut client).await else { panic!("no answer") };
            assert_eq!(said, taken);
        }
        // What a site says to all comes with the name in its certificate.
        let list = client.federation().list();
        let saying = Saying {
            list,
            of: "lima".to_owned(),
            digests: Vec::new(),
            is_empty: true,
            part: Default::default(),
        };
        client.say(to, gateway.clone(), 5, &saying);
        let Event::Said { call, site, saying: told } = next(&mut server).await else { panic!("nothing") };
        assert_eq!((&*site, &*told), ("lima", &saying));
        server.heard(call, None);
        assert!(matches!(next(&mut client).await, Event::Heard { call: 5, heard: None }));
        // One with another list is told so, and the agent never hears of it.
        let mut other = Exchange::start(federation("lima", 2, &gateway), of_lima(), None).unwrap();
        other.post(to, gateway.clone(), 8, batch(other.federation().list()));
        assert!(matches!(next(&mut other).await, Event::Posted { post: 8, taken: false }));
        // Whoever goes before it is answered frees nothing.
        let calling = Calling::new(Arc::new(of_lima()));
        let bytes = batch::encode(&batch(client.federation().list())).unwrap();
        let paris = name("paris");
        for _ in 0..3 * CALLS_MAX {
            let called = calling.call::<Reply>(DELIVER, &paris, &gateway, bytes.clone(), TIMEOUT);
            let _ = timeout(Duration::from_millis(30), called).await;
        }
        let mut calls = Vec::new();
        while let Ok(Some(FromSites::Event(Event::Batch { call, .. }))) =
            timeout(Duration::from_millis(300), server.recv()).await
        {
            calls.push(call);
        }
        assert!((1..=CALLS_MAX).contains(&calls.len()), "{} calls", calls.len());
        calls.into_iter().for_each(|call| server.answer(call, false));
        assert!(lock(&server.waiting).is_empty());
        client.post(to, gateway, 9, batch(client.federation().list()));
        let Event::Batch { call, .. } = next(&mut server).await else { panic!("no batch") };
        server.answer(call, true);
        assert!(matches!(next(&mut client).await, Event::Posted { post: 9, taken: true }));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn questions_are_answered_to_those_who_may_ask() {
        let dir = tempfile::tempdir().unwrap();
        let [(paris_ca, paris), (lima_ca, lima)] = sites(dir.path());
        let of_lima = || Foreign::new(&lima, &[(name("paris"), &*paris_ca)]).unwrap();
        for may_not_ask in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let gateway = listener.local_addr().unwrap().to_string();
            let entry = |name: &str| SiteEntry {
                name: name.to_owned(),
                gateways: vec!["127.0.0.1:1".to_owned(), gateway.clone()],
                may_not_ask,
                ..SiteEntry::default()
            };
            let list = |me| Federation::new(1, vec![entry("paris"), entry("lima")], me, []).unwrap();
            let of_paris = Foreign::new(&paris, &[(name("lima"), &*lima_ca)]).unwrap();
            let mut server = Exchange::start(list("paris"), of_paris, Some(listener)).unwrap();
            let client = Exchange::start(list("lima"), of_lima(), None).unwrap();
            assert!(client.partner("lima").is_none() && client.partner("oslo").is_none());
            let partner = client.partner("paris").unwrap();
            let asking = tokio::spawn(async move {
                let question = Question::Why { url: "http://a.test/".to_owned() };
                partner.ask(&question).await
            });
            if may_not_ask {
                let refused = asking.await.unwrap().unwrap_err();
                assert!(refused.contains("answers no questions of site lima"), "{refused}");
                continue;
            }
            let Some(FromSites::Put((Question::Why { url }, reply))) = server.recv().await else { panic!() };
            assert_eq!(url, "http://a.test/");
            assert!(reply.send(crate::asking::Answer::Why("{}".to_owned())).is_ok());
            assert!(matches!(asking.await.unwrap(), Ok(crate::asking::Answer::Why(json)) if json == "{}"));
        }
    }
}
