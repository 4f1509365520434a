//! The way to one peer: a bounded queue, and a connection that is made when there is something to say.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::Streaming;

use super::codec::{METHOD, Postcard, Sized};
use super::name::Peer;
use super::tasks::{Tasks, lock};
use super::{Identity, Limits};

/// How many bytes of an error are kept to be shown.
const ERROR_BYTES_MAX: usize = 300;

/// What is known of the way to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The peer.
    pub peer: Peer,
    /// Where it is looked for.
    pub address: String,
    /// Whether it answers there now.
    pub connected: bool,
    /// Bytes that wait to be sent.
    pub waiting_bytes: usize,
    /// Messages that were handed to the connection.
    pub sent: u64,
    /// Messages that found no room, or that waited for a connection that was not made.
    pub dropped: u64,
    /// Why the last connection ended or was not made.
    pub last_error: Option<String>,
}

/// The way to one peer.
#[derive(Debug)]
pub(super) struct Link {
    peer: Peer,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    address: String,
    messages: VecDeque<Bytes>,
    bytes: usize,
    /// Who waits for the next message: the stream of the connection or, when there is none, the task of the link.
    taker: Option<Waker>,
    /// When somebody last wanted something sent.
    wanted: Instant,
    connected: bool,
    sent: u64,
    dropped: u64,
    last_error: Option<String>,
}

impl Link {
    pub(super) fn new(peer: Peer, address: &str) -> Link {
        let state = State {
            address: address.to_owned(),
            messages: VecDeque::new(),
            bytes: 0,
            taker: None,
            wanted: Instant::now(),
            connected: false,
            sent: 0,
            dropped: 0,
            last_error: None,
        };
        Link { peer, state: Mutex::new(state) }
    }

    /// Queues a message, and says whether there was room. The next connection goes to this address.
    pub(super) fn put(&self, address: &str, message: Bytes, queue_bytes_max: usize) -> bool {
        let mut state = lock(&self.state);
        state.wanted = Instant::now();
        if state.address != address {
            address.clone_into(&mut state.address);
        }
        if state.bytes + message.len() > queue_bytes_max {
            state.dropped += 1;
            return false;
        }
        state.bytes += message.len();
        state.messages.push_back(message);
        let taker = state.taker.take();
        drop(state);
        if let Some(taker) = taker {
            taker.wake();
        }
        true
    }

    pub(super) fn view(&self) -> PeerView {
        let state = lock(&self.state);
        PeerView {
            peer: self.peer.clone(),
            address: state.address.clone(),
            connected: state.connected,
            waiting_bytes: state.bytes,
            sent: state.sent,
            dropped: state.dropped,
            last_error: state.last_error.clone(),
        }
    }

    /// Whether nobody has wanted anything sent for a while.
    pub(super) fn is_idle(&self, idle_timeout: Duration) -> bool {
        lock(&self.state).wanted.elapsed() >= idle_timeout
    }

    /// Connects and sends, again and again, until nobody has wanted anything sent for a while.
    pub(super) async fn run(self: &Arc<Link>, identity: &Identity, limits: &Limits) {
        let mut pause = limits.reconnect_min;
        while !self.is_idle(limits.idle_timeout) {
            if timeout(limits.idle_timeout, poll_fn(|cx| self.poll_waiting(cx))).await.is_err() {
                continue;
            }
            let begun = Instant::now();
            let error = self.session(identity, limits).await.err();
            if !std::mem::take(&mut lock(&self.state).connected) {
                // Nothing waits for who cannot be reached: it would be stale when it came.
                self.drop_waiting();
            } else if begun.elapsed() > limits.reconnect_max {
                pause = limits.reconnect_min;
            }
            if let Some(error) = error {
                let mut text = describe(&*error);
                text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
                lock(&self.state).last_error = Some(text);
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits.reconnect_max);
        }
    }

    /// One connection, from its beginning to its end. It is well if nobody had anything more to say.
    async fn session(self: &Arc<Link>, identity: &Identity, limits: &Limits) -> Result<(), BoxError> {
        let tasks = Tasks::default();
        let ended = self.talk(identity, limits, &tasks).await;
        // No stream of this connection takes messages that the next one should.
        tasks.end().await;
        ended
    }

    async fn talk(
        self: &Arc<Link>,
        identity: &Identity,
        limits: &Limits,
        tasks: &Tasks,
    ) -> Result<(), BoxError> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection in time");
        let begin = async {
            let address = lock(&self.state).address.clone();
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream = identity.connect(&self.peer, stream).await?;
            let mut builder = http2::Builder::new(tasks.starter());
            builder
                .timer(TokioTimer::new())
                .keep_alive_interval(limits.ping_every)
                .keep_alive_timeout(limits.ping_timeout)
                .keep_alive_while_idle(true)
                .max_header_list_size(limits.header_bytes_max)
                .max_send_buf_size(limits.window_bytes as usize);
            Ok::<_, BoxError>(builder.handshake(TokioIo::new(stream)).await?)
        };
        let (sender, connection) = timeout(limits.handshake_timeout, begin).await.map_err(|_| late())??;
        let origin = format!("https://{}", identity.domain_of(&self.peer)).parse()?;
        let conversation = async {
            let mut grpc = Grpc::with_origin(Calls(sender), origin);
            let path = PathAndQuery::from_static(METHOD);
            let request = tonic::Request::new(Taking(Arc::clone(self)));
            let call = grpc.streaming(request, path, Postcard::<()>::new());
            // Only with the head of the answer is it known that the other side took our certificate.
            let answer = timeout(limits.handshake_timeout, call).await.map_err(|_| late())??;
            lock(&self.state).connected = true;
            let mut answers: Streaming<Sized<()>> = answer.into_inner();
            match answers.message().await? {
                Some(_) => Err(BoxError::from("it answered where there is nothing to answer")),
                None => Err(BoxError::from("it ended the stream")),
            }
        };
        tokio::select! {
            ended = conversation => ended,
            ended = connection => Err(ended.err().map_or_else(|| "it closed the connection".into(), BoxError::from)),
            () = self.idle(limits.idle_timeout) => Ok(()),
        }
    }

    /// Returns when nobody has wanted anything sent for a while.
    async fn idle(&self, idle_timeout: Duration) {
        loop {
            let since = lock(&self.state).wanted.elapsed();
            match idle_timeout.checked_sub(since) {
                Some(rest) if !rest.is_zero() => sleep(rest).await,
                _ => return,
            }
        }
    }

    fn drop_waiting(&self) {
        let mut state = lock(&self.state);
        state.dropped += state.messages.len() as u64;
        state.messages.clear();
        state.bytes = 0;
    }

    /// Ready when there is something to send.
    fn poll_waiting(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.messages.is_empty() {
            state.taker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}

/// The messages of a link, as the stream of a call takes them.
struct Taking(Arc<Link>);

impl Stream for Taking {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = lock(&self.0.state);
        let Some(message) = state.messages.pop_front() else {
            state.taker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        state.bytes -= message.len();
        state.sent += 1;
        Poll::Ready(Some(message))
    }
}

/// How tonic calls over hyper's connection.
pub(crate) struct Calls(pub(crate) SendRequest<Body>);

impl GrpcService<Body> for Calls {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<http::Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
