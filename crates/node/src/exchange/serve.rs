//! Batches of other sites: connections are let in by their certificate, each batch is given to the agent, and its answer back.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nephila_core::agent::Event;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};

use super::{MESSAGE_BYTES_MAX, METHOD, Reply, Waiting, batch};
use crate::peers::Foreign;
use crate::peers::codec::{self, Postcard, Sized};
use crate::peers::tasks::{Tasks, lock};

/// Connections of other sites, and those that have not shown a certificate.
const CONNECTIONS_MAX: usize = 1_024;
const HANDSHAKES_MAX: usize = 64;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Batches of one connection at a time, and of all. Whoever comes with more comes again.
const CALLS_OF_ONE_MAX: u32 = 4;
const CALLS_MAX: usize = 16;
/// The agent answers when a batch is durable. What it has not answered by then was not taken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection over which nothing has come for this long is asked whether anybody is there,
const PING_EVERY: Duration = Duration::from_secs(60);
/// who has this long to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const WINDOW_BYTES: u32 = 1 << 20;
const HEADER_BYTES_MAX: u32 = 8 << 10;

#[derive(Clone)]
pub(super) struct Server {
    foreign: Arc<Foreign>,
    version: u64,
    events: mpsc::UnboundedSender<Event>,
    waiting: Waiting,
    calls: Arc<AtomicU64>,
    at_once: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

impl Server {
    pub(super) fn new(
        foreign: Arc<Foreign>,
        version: u64,
        events: mpsc::UnboundedSender<Event>,
        waiting: Waiting,
    ) -> Server {
        let [at_once, handshakes, connections] =
            [CALLS_MAX, HANDSHAKES_MAX, CONNECTIONS_MAX].map(|max| Arc::new(Semaphore::new(max)));
        Server { foreign, version, events, waiting, calls: Arc::default(), at_once, handshakes, connections }
    }

    /// Accepts connections for ever; with this future all of them end.
    pub(super) async fn run(self, listener: TcpListener) {
        let mut tasks = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = tasks.join_next() => continue,
            };
            let Ok((stream, _)) = accepted else {
                // No descriptors, most likely: try again when some are free.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            if let Ok(permit) = Arc::clone(&self.handshakes).try_acquire_owned() {
                drop(tasks.spawn(self.clone().let_in(stream, permit)));
            }
        }
    }

    async fn let_in(self, stream: TcpStream, handshake: OwnedSemaphorePermit) {
        let begin = async {
            stream.set_nodelay(true)?;
            self.foreign.accept(stream).await
        };
        let accepted = timeout(HANDSHAKE_TIMEOUT, begin).await;
        let (Ok(Ok((_, stream))), Ok(_connection)) = (accepted, self.connections.try_acquire()) else {
            return;
        };
        drop(handshake);
        let tasks = Tasks::default();
        let service = service_fn(|request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
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
        // Why it ended is the other side's to know, which comes again.
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        tasks.end().await;
    }

    async fn answer(self, request: http::Request<Incoming>) -> http::Response<Body> {
        if request.uri().path() != METHOD {
            return Status::unimplemented("there is nothing else to call").into_http();
        }
        let mut grpc = Grpc::new(Postcard::<Vec<u8>>::new()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        grpc.unary(Delivered(self), request).await
    }

    async fn deliver(self, batch: &[u8]) -> Result<Reply, Status> {
        let reply = |taken| Reply { version: self.version, taken };
        let Ok(_one) = self.at_once.try_acquire() else { return Ok(reply(false)) };
        let batch = batch::decode(batch).map_err(|error| Status::invalid_argument(error.to_string()))?;
        if batch.version != self.version {
            return Ok(reply(false));
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).insert(call, answer);
        let ending = |_| Status::unavailable("the agent is ending");
        self.events.send(Event::Batch { call, batch: Box::new(batch) }).map_err(ending)?;
        let answered = timeout(ANSWER_TIMEOUT, answered).await;
        lock(&self.waiting).remove(&call);
        Ok(reply(matches!(answered, Ok(Ok(true)))))
    }
}

/// What another site can call.
struct Delivered(Server);

impl UnaryService<Sized<Vec<u8>>> for Delivered {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: Request<Sized<Vec<u8>>>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move {
            let reply = server.deliver(&request.into_inner().message).await?;
            let encoded = codec::encode(&reply).map_err(|error| Status::internal(error.to_string()))?;
            Ok(Response::new(encoded))
        })
    }
}
