//! What comes from peers: connections are let in by their certificate, and their messages into one bounded inbox.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready as ready_or_return};

use bytes::Bytes;
use futures_core::Stream;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status};

use super::codec::{METHOD, Postcard, Sized};
use super::handshakes::{Handshake, Handshakes, Most};
use super::name::Name;
use super::tasks::{Tasks, accept, lock};
use super::{Identity, Limits};

/// What came to a listener, in numbers.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// Messages as they come in. While nobody takes them out, those who send them wait.
#[derive(Debug)]
pub struct Inbox<M> {
    received: mpsc::UnboundedReceiver<(Name, M, OwnedSemaphorePermit)>,
}

impl<M> Inbox<M> {
    /// The next message, and whose it is; none when there will be no more.
    pub async fn recv(&mut self) -> Option<(Name, M)> {
        self.received.recv().await.map(|(from, message, _)| (from, message))
    }

    /// The next message, if it is there.
    pub fn try_recv(&mut self) -> Option<(Name, M)> {
        self.received.try_recv().ok().map(|(from, message, _)| (from, message))
    }
}

/// Where messages are put.
struct Door<M> {
    sender: mpsc::UnboundedSender<(Name, M, OwnedSemaphorePermit)>,
    /// A permit a byte.
    room: Arc<Semaphore>,
    bytes_max: usize,
}

impl<M> Clone for Door<M> {
    fn clone(&self) -> Door<M> {
        Door { sender: self.sender.clone(), room: Arc::clone(&self.room), bytes_max: self.bytes_max }
    }
}

impl<M> Door<M> {
    /// Puts a message into the inbox when there is room for it. An error if nobody will take it out.
    async fn put(&self, from: &Name, sized: Sized<M>) -> Result<(), Status> {
        let bytes = u32::try_from(sized.bytes.clamp(1, self.bytes_max)).unwrap_or(u32::MAX);
        let gone = || Status::unavailable("the agent is ending");
        let permit = tokio::select! {
            permit = Arc::clone(&self.room).acquire_many_owned(bytes) => permit.map_err(|_| gone())?,
            () = self.sender.closed() => return Err(gone()),
        };
        self.sender.send((from.clone(), sized.message, permit)).map_err(|_| gone())
    }
}

/// Listens, and lets agents of the site in.
pub(super) struct Server<M> {
    identity: Arc<Identity>,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    handshakes: Arc<Handshakes>,
    connections: Arc<Semaphore>,
    speaking: Arc<Speaking>,
    door: Door<M>,
}

impl<M> Clone for Server<M> {
    fn clone(&self) -> Server<M> {
        Server {
            identity: Arc::clone(&self.identity),
            limits: Arc::clone(&self.limits),
            counters: Arc::clone(&self.counters),
            handshakes: Arc::clone(&self.handshakes),
            connections: Arc::clone(&self.connections),
            speaking: Arc::clone(&self.speaking),
            door: self.door.clone(),
        }
    }
}

impl<M: DeserializeOwned + Send + 'static> Server<M> {
    pub(super) fn new(
        identity: Arc<Identity>,
        limits: Arc<Limits>,
        counters: Arc<Counters>,
    ) -> (Server<M>, Inbox<M>) {
        let (sender, received) = mpsc::unbounded_channel();
        let bytes_max = limits.inbox_bytes_max.min(Semaphore::MAX_PERMITS);
        let door = Door { sender, room: Arc::new(Semaphore::new(bytes_max)), bytes_max };
        let most = Most {
            of_one: limits.handshakes_of_one_max,
            all: limits.handshakes_max,
            kept: limits.handshakes_kept,
        };
        let server = Server {
            handshakes: Handshakes::new(most),
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            speaking: Arc::default(),
            identity,
            limits,
            counters,
            door,
        };
        (server, Inbox { received })
    }

    /// Who speaks to us.
    pub(super) fn speaking(&self) -> Arc<Speaking> {
        Arc::clone(&self.speaking)
    }

    /// Accepts connections for ever; with this future all of them end.
    pub(super) async fn run(self, listener: TcpListener) {
        let mut tasks = JoinSet::new();
        loop {
            let (stream, from) = accept(&listener, &mut tasks).await;
            // Whoever is turned away comes back, if it is one of ours.
            match self.handshakes.begin(from.ip()) {
                Some(handshake) => drop(tasks.spawn(self.clone().let_in(stream, handshake))),
                None => drop(self.counters.refused.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    async fn let_in(self, stream: TcpStream, handshake: Handshake) {
        let begin = async {
            stream.set_nodelay(true)?;
            self.identity.accept(stream).await
        };
        let accepted = timeout(self.limits.handshake_timeout, begin).await;
        let (Ok(Ok((from, stream))), Ok(_connection)) = (accepted, self.connections.try_acquire()) else {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        handshake.succeed();
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let mut turn = self.speaking.take_over(&from).await;
        let tasks = Tasks::default();
        let service = service_fn(|request| {
            let deliver = Deliver { from: from.clone(), server: self.clone() };
            async move { Ok::<_, Infallible>(deliver.answer(request).await) }
        });
        let limits = &self.limits;
        let mut builder = http2::Builder::new(tasks.starter());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.ping_every)
            .keep_alive_timeout(limits.ping_timeout)
            .max_concurrent_streams(1)
            .max_header_list_size(limits.header_bytes_max)
            .initial_stream_window_size(limits.window_bytes)
            .initial_connection_window_size(limits.window_bytes);
        tokio::select! {
            // Why it ended is the other side's to know, which comes again.
            _ = builder.serve_connection(TokioIo::new(stream), service) => {}
            () = turn.taken_over() => {}
        }
        tasks.end().await;
        self.speaking.end(&from, turn);
    }
}

/// Who speaks: each peer over one connection, the newest. One that the peer has given up without our knowing says nothing
/// after the one that follows it.
#[derive(Debug, Default)]
pub(super) struct Speaking(Mutex<HashMap<Name, Speaker>>);

/// The connection that a peer has.
#[derive(Debug)]
struct Speaker {
    /// Dropped to end it.
    _stop: oneshot::Sender<Infallible>,
    /// Closed when it has ended.
    ended: oneshot::Receiver<Infallible>,
    number: u64,
}

/// A connection's part of it.
struct Turn {
    stop: oneshot::Receiver<Infallible>,
    _ended: oneshot::Sender<Infallible>,
    number: u64,
}

impl Speaking {
    /// All of them.
    pub(super) fn names(&self) -> Vec<Name> {
        lock(&self.0).keys().cloned().collect()
    }

    /// Ends the connection that a peer has, and waits until it has ended.
    async fn take_over(&self, peer: &Name) -> Turn {
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (before, number) = {
            let mut speakers = lock(&self.0);
            let number = speakers.get(peer).map_or(0, |speaker| speaker.number + 1);
            (speakers.insert(peer.clone(), Speaker { _stop: stop, ended, number }), number)
        };
        if let Some(Speaker { _stop, ended, .. }) = before {
            drop(_stop);
            let _ = ended.await;
        }
        Turn { stop: stopped, _ended: end, number }
    }

    fn end(&self, peer: &Name, turn: Turn) {
        let mut speakers = lock(&self.0);
        if speakers.get(peer).is_some_and(|speaker| speaker.number == turn.number) {
            speakers.remove(peer);
        }
    }
}

impl Turn {
    async fn taken_over(&mut self) {
        let _ = (&mut self.stop).await;
    }
}

/// What a peer can call.
struct Deliver<M> {
    from: Name,
    server: Server<M>,
}

impl<M: DeserializeOwned + Send + 'static> Deliver<M> {
    async fn answer(self, request: http::Request<Incoming>) -> http::Response<Body> {
        if request.uri().path() != METHOD {
            return Status::unimplemented("there is nothing else to call").into_http();
        }
        let message_bytes_max = self.server.limits.message_bytes_max;
        let mut grpc = Grpc::new(Postcard::<M>::new()).max_decoding_message_size(message_bytes_max);
        grpc.streaming(self, request).await
    }

    /// Puts all messages into the inbox, as fast as they are taken out there.
    async fn deliver(self, mut messages: Streaming<Sized<M>>) -> Result<(), Status> {
        let counters = Arc::clone(&self.server.counters);
        while let Some(sized) = messages.message().await? {
            counters.messages.fetch_add(1, Ordering::Relaxed);
            counters.bytes.fetch_add(sized.bytes as u64, Ordering::Relaxed);
            self.server.door.put(&self.from, sized).await?;
        }
        Ok(())
    }
}

impl<M: DeserializeOwned + Send + 'static> StreamingService<Sized<M>> for Deliver<M> {
    type Response = Bytes;
    type ResponseStream = Delivering;
    type Future = Ready<Result<Response<Delivering>, Status>>;

    fn call(&mut self, request: Request<Streaming<Sized<M>>>) -> Self::Future {
        let deliver = Deliver { from: self.from.clone(), server: self.server.clone() };
        ready(Ok(Response::new(Delivering(Box::pin(deliver.deliver(request.into_inner()))))))
    }
}

/// The answer to a stream of messages: nothing, until it ends. Its head goes out at once, and says that the peer was let in.
struct Delivering(Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>);

impl Stream for Delivering {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        Poll::Ready(ready_or_return!(self.0.as_mut().poll(cx)).err().map(Err))
    }
}
