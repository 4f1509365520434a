//! What other sites call: connections are let in by their certificate, each call is given to the agent, and its answer back.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nephila_core::agent::Event;
use nephila_core::federation::{AddressesUsed, AskedRules, Claim, Federation, ListId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};

use super::say::SAY;
use super::ways::Ways;
use super::{
    ASK, Answer, CLAIM, DELIVER, FoundRules, MESSAGE_BYTES_MAX, Put, Question, RULES, RULES_TIMEOUT,
    Released, Reply, TELL, Waiting, batch,
};
use crate::asking;
use crate::peers::codec::{self, Postcard, Sized};
use crate::peers::handshakes::{Handshake, Handshakes, Most};
use crate::peers::tasks::{Tasks, accept, lock};
use crate::peers::{Foreign, Name};

/// Connections of one other site,
const CONNECTIONS_MAX: usize = 64;
/// and batches of it that are being read or not answered. Whoever comes with more comes again.
pub(super) const CALLS_MAX: usize = 16;
/// Calls over one connection: as many as may wait for an answer, with those for rules, and questions.
const CALLS_OF_ONE_MAX: u32 = 40;
/// robots.txt that it waits for.
const RULES_OF_ONE_MAX: usize = 16;
/// Questions of it that are not answered. They are answered one by one, and take a tenth of the time at most,
const QUESTIONS_OF_ONE_MAX: usize = 4;
const QUESTION_PAUSES: u32 = 9;
/// but none waits longer than this for the one before.
const QUESTION_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Connections that have not shown a certificate.
const HANDSHAKES_MAX: Most = Most { of_one: 16, all: 256, kept: 64 };
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a batch may take to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection without a call for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// The agent answers when a batch is durable. What it has not answered by then was not taken.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection over which nothing has come for this long is asked whether anybody is there,
const PING_EVERY: Duration = Duration::from_secs(60);
/// who has this long to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const WINDOW_BYTES: u32 = 256 << 10;
const HEADER_BYTES_MAX: u32 = 8 << 10;

/// What another site may have more of.
struct Room {
    connections: Semaphore,
    calls: Arc<Semaphore>,
    rules: Arc<Semaphore>,
    questions: Arc<Semaphore>,
    /// When the next question may be answered, if one may at all.
    next_question: Option<Arc<tokio::sync::Mutex<Instant>>>,
}

#[derive(Clone)]
pub(super) struct Server {
    foreign: Arc<Foreign>,
    list: ListId,
    events: mpsc::UnboundedSender<Event>,
    questions: mpsc::Sender<Put>,
    waiting: Waiting,
    ways: Arc<Ways>,
    calls: Arc<AtomicU64>,
    handshakes: Arc<Handshakes>,
    room: Arc<HashMap<Name, Room>>,
}

impl Server {
    pub(super) fn new(
        foreign: Arc<Foreign>,
        federation: &Federation,
        (events, questions): (mpsc::UnboundedSender<Event>, mpsc::Sender<Put>),
        waiting: Waiting,
        ways: Arc<Ways>,
    ) -> Server {
        let room = |site: &Name| {
            let number = federation.find(site.as_str());
            let may_ask = number.is_some_and(|number| !federation.site(number).may_not_ask);
            let room = Room {
                connections: Semaphore::new(CONNECTIONS_MAX),
                calls: Arc::new(Semaphore::new(CALLS_MAX)),
                rules: Arc::new(Semaphore::new(RULES_OF_ONE_MAX)),
                questions: Arc::new(Semaphore::new(QUESTIONS_OF_ONE_MAX)),
                next_question: may_ask.then(|| Arc::new(tokio::sync::Mutex::new(Instant::now()))),
            };
            (site.clone(), room)
        };
        let room = Arc::new(foreign.sites().map(room).collect());
        let (calls, handshakes) = (Arc::default(), Handshakes::new(HANDSHAKES_MAX));
        Server { foreign, list: federation.list(), events, questions, waiting, ways, calls, handshakes, room }
    }

    /// Accepts connections for ever; with this future all of them end.
    pub(super) async fn run(self, listener: TcpListener) {
        let mut tasks = JoinSet::new();
        loop {
            let (stream, from) = accept(&listener, &mut tasks).await;
            if let Some(handshake) = self.handshakes.begin(from.ip()) {
                drop(tasks.spawn(self.clone().let_in(stream, from.ip(), handshake)));
            }
        }
    }

    async fn let_in(self, stream: TcpStream, from: IpAddr, handshake: Handshake) {
        // Answers are short, and waited for. Without it they only come later.
        let _ = stream.set_nodelay(true);
        let (site, stream) = match timeout(HANDSHAKE_TIMEOUT, self.foreign.accept(stream)).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) => return self.ways.refused(&from.to_string(), &error.to_string()),
            Err(_) => return,
        };
        handshake.succeed();
        let Some(Room { connections, .. }) = self.room.get(&site) else { return };
        let Ok(_connection) = connections.try_acquire() else { return };
        let (tasks, called) = (Tasks::default(), Arc::new(Mutex::new(Instant::now())));
        let service = service_fn(|request| {
            *lock(&called) = Instant::now();
            let (server, site) = (self.clone(), site.clone());
            async move { Ok::<_, Infallible>(server.answer(site, request).await) }
        });
        let mut builder = http2::Builder::new(tasks.starter());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_concurrent_streams(CALLS_OF_ONE_MAX)
            .max_header_list_size(HEADER_BYTES_MAX)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        tokio::select! {
            // Why it ended is the other side's to know, which comes again.
            _ = builder.serve_connection(TokioIo::new(stream), service) => {}
            () = idle(&called) => {}
        }
        tasks.end().await;
    }

    async fn answer(self, site: Name, request: http::Request<Incoming>) -> http::Response<Body> {
        let Some(room) = self.room.get(&site) else {
            return Status::permission_denied("nobody knows this site").into_http();
        };
        let mut calls = &room.calls;
        let method = match request.uri().path() {
            DELIVER => Method::Deliver(site),
            CLAIM => Method::Claim(site),
            TELL => Method::Tell(site),
            RULES => {
                calls = &room.rules;
                Method::Rules
            }
            ASK => match &room.next_question {
                Some(next) => {
                    calls = &room.questions;
                    Method::Ask(Arc::clone(next))
                }
                None => {
                    let why = format!("it answers no questions of site {site}");
                    return Status::permission_denied(why).into_http();
                }
            },
            SAY => Method::Say(site),
            _ => return Status::unimplemented("there is nothing else to call").into_http(),
        };
        // Before anything of it is read.
        let Ok(permit) = Arc::clone(calls).try_acquire_owned() else {
            return Status::resource_exhausted("too much of this site is under way").into_http();
        };
        let mut grpc = Grpc::new(Postcard::<Vec<u8>>::new()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let patience = if matches!(method, Method::Rules) { RULES_TIMEOUT } else { ANSWER_TIMEOUT };
        let answered =
            timeout(READ_TIMEOUT + patience, grpc.unary(Called(self, method, Some(permit)), request));
        answered.await.unwrap_or_else(|_| Status::deadline_exceeded("it takes too long").into_http())
    }

    /// Another site uses these addresses.
    async fn told(self, site: Name, permit: OwnedSemaphorePermit, used: &[u8]) -> Result<Reply, Status> {
        let used: AddressesUsed = postcard::from_bytes(used).map_err(|_| {
            Status::invalid_argument("it is not understood: both sides should run the same version")
        })?;
        let (site, used) = (site.to_string(), Box::new(used));
        let answered = self.ask(permit, ANSWER_TIMEOUT, |call| Event::Told { call, site, used }).await?;
        Ok(Reply { list: self.list, taken: matches!(answered, Some(Answer::Taken(true))) })
    }

    /// Another site wants a robots.txt that a host of this one has.
    async fn rules(self, permit: OwnedSemaphorePermit, ask: &[u8]) -> Result<FoundRules, Status> {
        let ask: AskedRules = postcard::from_bytes(ask).map_err(|_| {
            Status::invalid_argument("it is not understood: both sides should run the same version")
        })?;
        let ask = Box::new(ask);
        match self.ask(permit, RULES_TIMEOUT, |call| Event::RulesAsked { call, ask }).await? {
            Some(Answer::Rules(result)) => Ok(FoundRules(result)),
            _ => Ok(FoundRules(None)),
        }
    }

    /// Somebody at another site wants to know something.
    async fn question(
        self,
        next: Arc<tokio::sync::Mutex<Instant>>,
        question: &[u8],
    ) -> Result<asking::Answer, Status> {
        let question: Question = postcard::from_bytes(question).map_err(|_| {
            Status::invalid_argument("it is not understood: both sides should run the same version")
        })?;
        let mut next = next.lock().await;
        tokio::time::sleep_until((*next).into()).await;
        let began = Instant::now();
        let (reply, replied) = oneshot::channel();
        let answered = match self.questions.try_send((question, reply)) {
            Ok(()) => timeout(ANSWER_TIMEOUT, replied).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        *next = Instant::now() + (began.elapsed() * QUESTION_PAUSES).min(QUESTION_PAUSE_MAX);
        answered.ok_or_else(|| Status::unavailable("the agent does not answer now"))
    }

    /// Another site claims a host.
    async fn claim(self, site: Name, permit: OwnedSemaphorePermit, claim: &[u8]) -> Result<Released, Status> {
        let claim: Claim = postcard::from_bytes(claim).map_err(|_| {
            Status::invalid_argument("it is not understood: both sides should run the same version")
        })?;
        if claim.list != self.list {
            return Ok(Released { list: self.list, release: None });
        }
        let (site, claim) = (site.to_string(), Box::new(claim));
        let answered = self.ask(permit, ANSWER_TIMEOUT, |call| Event::Claim { call, site, claim }).await?;
        let release = match answered {
            Some(Answer::Release(release)) => release,
            _ => None,
        };
        Ok(Released { list: self.list, release })
    }

    /// The list of sites that this agent has.
    pub(super) fn list(&self) -> ListId {
        self.list
    }

    /// Tells the agent of a call, and says what it answers in time.
    pub(super) async fn ask(
        &self,
        permit: OwnedSemaphorePermit,
        patience: Duration,
        event: impl FnOnce(u64) -> Event,
    ) -> Result<Option<Answer>, Status> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).insert(call, (answer, permit));
        if self.events.send(event(call)).is_err() {
            lock(&self.waiting).remove(&call);
            return Err(Status::unavailable("the agent is ending"));
        }
        Ok(timeout(patience, answered).await.ok().and_then(Result::ok))
    }

    async fn deliver(
        self,
        site: Name,
        permit: OwnedSemaphorePermit,
        batch: Vec<u8>,
    ) -> Result<Reply, Status> {
        let reply = |taken| Reply { list: self.list, taken };
        // It takes longer than the others on this thread should wait.
        let decoded = tokio::task::spawn_blocking(move || batch::decode(&batch)).await;
        let batch = decoded.map_err(|_| Status::internal("it cannot be read"))?;
        let batch = batch.map_err(|error| Status::invalid_argument(error.to_string()))?;
        if batch.list != self.list {
            return Ok(reply(false));
        }
        let (site, batch) = (site.to_string(), Box::new(batch));
        let answered = self.ask(permit, ANSWER_TIMEOUT, |call| Event::Batch { call, site, batch }).await?;
        Ok(reply(matches!(answered, Some(Answer::Taken(true)))))
    }
}

/// Returns when nothing was called for a while.
async fn idle(called: &Mutex<Instant>) {
    loop {
        let since = lock(called).elapsed();
        match IDLE_MAX.checked_sub(since) {
            Some(rest) if !rest.is_zero() => tokio::time::sleep(rest).await,
            _ => return,
        }
    }
}

/// What another site can call, and which one calls.
#[derive(Clone)]
enum Method {
    Deliver(Name),
    Claim(Name),
    Tell(Name),
    Rules,
    /// Not before the last one has been answered for a while.
    Ask(Arc<tokio::sync::Mutex<Instant>>),
    /// By which site.
    Say(Name),
}

struct Called(Server, Method, Option<OwnedSemaphorePermit>);

impl UnaryService<Sized<Vec<u8>>> for Called {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: Request<Sized<Vec<u8>>>) -> Self::Future {
        let (server, method, permit) = (self.0.clone(), self.1.clone(), self.2.take());
        Box::pin(async move {
            let permit = permit.ok_or_else(|| Status::internal("it is one call"))?;
            let said = request.into_inner().message;
            let encoded = match method {
                Method::Deliver(site) => codec::encode(&server.deliver(site, permit, said).await?),
                Method::Tell(site) => codec::encode(&server.told(site, permit, &said).await?),
                Method::Rules => codec::encode(&server.rules(permit, &said).await?),
                Method::Ask(next) => codec::encode(&server.question(next, &said).await?),
                Method::Claim(site) => codec::encode(&server.claim(site, permit, &said).await?),
                Method::Say(site) => codec::encode(&server.saying(site, permit, &said).await?),
            };
            Ok(Response::new(encoded.map_err(|error| Status::internal(error.to_string()))?))
        })
    }
}
