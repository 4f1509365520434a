//! One request and its answer over one connection.

use std::cell::RefCell;
use std::error::Error;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Parts, SendRequest};
use nephila_archive::http::HEADERS_MAX;
use nephila_core::agent::{Cut, FetchError};
use nephila_core::parse::headers::content_type;
use nephila_core::record::Failure;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::time::{Instant, timeout_at};

use super::failed;
use super::record::{Recorder, Recording, Tape};
use super::wire::Wire;

/// The smallest buffer that hyper works with.
const BUFFER_BYTES_MIN: usize = 8 << 10;

/// What sets one exchange apart from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// The connection has been used before.
    pub(super) reused: bool,
    /// Only media types that are asked for are taken.
    pub(super) choosy: bool,
}

/// Where an exchange ends even if the server does not.
#[derive(Clone, Debug)]
pub(super) struct ExchangeLimits {
    /// Of the final head.
    pub(super) head_bytes_max: usize,
    /// Of the body, chunking removed.
    pub(super) body_bytes_max: u64,
    /// This long after the head came the body has to be as fast as below.
    pub(super) slow_after: Duration,
    /// On average, in bytes a second.
    pub(super) slow_bytes_per_s: u64,
    /// Media types whose bodies are taken; empty for all.
    pub(super) accept: Vec<String>,
}

impl ExchangeLimits {
    /// Whether the body of an answer is wanted. One without a type is; so is every page, because links come from there.
    pub(super) fn accepts<B>(&self, response: &Response<B>) -> bool {
        let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let Some(value) = value.filter(|_| !self.accept.is_empty() && response.status().is_success()) else {
            return true;
        };
        let essence = content_type(value).essence.to_ascii_lowercase();
        let matches = |wanted: &String| match wanted.strip_suffix('*') {
            Some(kind) => essence.starts_with(kind),
            None => essence == *wanted,
        };
        matches!(essence.as_str(), "text/html" | "application/xhtml+xml") || self.accept.iter().any(matches)
    }

    /// What may be received at most, interim heads and chunking included: a body of one-byte chunks is mostly chunking.
    pub(super) fn wire_bytes_max(&self) -> u64 {
        self.body_bytes_max.saturating_mul(2).saturating_add(self.heads_bytes_max())
    }

    /// What may be received at most before the final head is there: interim heads, the head, and what of the body comes
    /// along with it. hyper checks the size of each head.
    pub(super) fn heads_bytes_max(&self) -> u64 {
        8 * self.head_bytes_max.max(BUFFER_BYTES_MIN) as u64
    }

    /// The moment at which a body that began at `begun` and has this many bytes becomes too slow.
    pub(super) fn slow_at(&self, begun: Instant, body_bytes: u64) -> Option<Instant> {
        let earned_ms = body_bytes.saturating_mul(1_000).checked_div(self.slow_bytes_per_s)?;
        begun.checked_add(self.slow_after.max(Duration::from_millis(earned_ms)))
    }
}

/// A connection on which nothing is under way. Closed when dropped.
///
/// It is no more than the wire: what hyper needs to speak over it is made for each exchange and given back after it, so
/// that thousands of connections can wait at little cost.
#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire,
    address: IpAddr,
}

/// How an exchange ended.
pub(super) struct Exchanged<C> {
    pub(super) recording: Recording,
    /// Why the answer is not whole.
    pub(super) cut: Option<Cut>,
    /// The connection, if it can be used again.
    pub(super) connection: Option<C>,
}

impl Connection {
    pub(super) fn new(wire: Wire, address: IpAddr) -> Connection {
        Connection { wire, address }
    }

    /// The address at the other end.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether the server has neither closed it nor said anything since its last answer.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut nobody = Context::from_waker(Waker::noop());
        Pin::new(&mut self.wire).poll_read(&mut nobody, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Sends a request and receives the answer onto the recording, as far as it comes.
    pub(super) async fn exchange(
        self,
        request: Request<Empty<Bytes>>,
        recording: Recording,
        limits: &ExchangeLimits,
        deadline: Instant,
        Manner { reused, choosy }: Manner,
    ) -> Result<Exchanged<Connection>, FetchError> {
        let Connection { wire, address } = self;
        // TLS has ways to send nothing too. What HTTP makes of the rest is limited below.
        let meter = wire.meter();
        meter.allow(limits.wire_bytes_max().saturating_mul(2));
        let tape: Tape = Rc::new(RefCell::new(Some(recording)));
        let (mut sender, mut driver) = speak(wire, &tape, limits).await?;
        limit_received(&tape, Some(limits.heads_bytes_max()));
        let response = timeout_at(deadline, driver.along(sender.send_request(request)))
            .await
            .map_err(|_| failed(Failure::Timeout, "no answer in time"))?;
        limit_received(&tape, None);
        let ended = match response {
            Ok(response) if choosy && !limits.accepts(&response) => Ok(Some(Cut::Length)),
            Ok(response) => Ok(drain(response.into_body(), &mut driver, &tape, limits, deadline).await),
            Err(error) => Err(error),
        };
        let mut recording = tape.borrow_mut().take().expect("put there above, and nobody else takes it");
        if let Some(error) = recording.failure.take() {
            return Err(error);
        }
        let cut = match ended {
            Err(error) if meter.is_exceeded() => return Err(told(Failure::Malformed, &error)),
            Err(error) => return Err(no_answer(&error, recording.length(), reused)),
            Ok(Some(Cut::Disconnect)) if meter.is_exceeded() => Some(Cut::Length),
            Ok(cut) => cut,
        };
        // After a whole answer it comes to rest at once, or has to be closed.
        let is_over = cut.is_none() && recording.is_given() && sender.is_ready();
        let wire = if is_over { driver.into_wire() } else { None };
        Ok(Exchanged { recording, cut, connection: wire.map(|wire| Connection { wire, address }) })
    }
}

/// Begins to speak HTTP over a wire.
async fn speak(
    wire: Wire,
    tape: &Tape,
    limits: &ExchangeLimits,
) -> Result<(SendRequest<Empty<Bytes>>, Driver), FetchError> {
    let recorder = Recorder { wire, tape: Rc::clone(tape) };
    let (sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .max_headers(HEADERS_MAX)
        .max_buf_size(limits.head_bytes_max.max(BUFFER_BYTES_MIN))
        .max_header_size(limits.head_bytes_max)
        .allow_spaces_after_header_name_in_responses(true)
        .ignore_invalid_headers_in_responses(true)
        .handshake(recorder)
        .await
        .map_err(|error| failed(Failure::Connect, error))?;
    Ok((sender, Driver { connection, has_ended: false }))
}

/// What reads from and writes to the wire. It has no task of its own: it goes along with who waits for it.
struct Driver {
    connection: http1::Connection<Recorder, Empty<Bytes>>,
    has_ended: bool,
}

impl Driver {
    /// Waits for something that needs the connection to go on.
    async fn along<T>(&mut self, awaited: impl Future<Output = T>) -> T {
        let mut awaited = pin!(awaited);
        poll_fn(|context| {
            if let Poll::Ready(done) = awaited.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            if !self.has_ended {
                // How it ended is told to who waits.
                self.has_ended = self.connection.poll_without_shutdown(context).is_ready();
            }
            awaited.as_mut().poll(context)
        })
        .await
    }

    /// The wire, unless more than the answer came over it.
    fn into_wire(self) -> Option<Wire> {
        let Parts { io, read_buf, .. } = self.connection.into_parts();
        (!self.has_ended && read_buf.is_empty()).then_some(io.wire)
    }
}

/// Receives a body and forgets it: the recording has it. Returns why it is not whole.
async fn drain(
    mut body: Incoming,
    driver: &mut Driver,
    tape: &Tape,
    limits: &ExchangeLimits,
    deadline: Instant,
) -> Option<Cut> {
    let begun = Instant::now();
    let mut body_bytes = 0;
    loop {
        let until = limits.slow_at(begun, body_bytes).map_or(deadline, |slow| slow.min(deadline));
        let Ok(frame) = timeout_at(until, driver.along(body.frame())).await else { return Some(Cut::Time) };
        match frame {
            None => return None,
            Some(Ok(frame)) => body_bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => return Some(Cut::Disconnect),
        }
        let received = tape.borrow().as_ref().map_or(0, Recording::length);
        if body_bytes > limits.body_bytes_max || received > limits.wire_bytes_max() {
            return Some(Cut::Length);
        }
    }
}

fn limit_received(tape: &Tape, bytes_max: Option<u64>) {
    if let Some(recording) = &mut *tape.borrow_mut() {
        recording.bytes_max = bytes_max;
    }
}

/// What it means that no answer came.
fn no_answer(error: &hyper::Error, received_bytes: u64, reused: bool) -> FetchError {
    let failure = match received_bytes {
        0 if reused => Failure::Closed,
        0 => Failure::Disconnected,
        _ if error.is_parse() => Failure::Malformed,
        _ => Failure::Disconnected,
    };
    told(failure, error)
}

fn told(failure: Failure, error: &hyper::Error) -> FetchError {
    match error.source() {
        Some(source) => failed(failure, format_args!("{error}: {source}")),
        None => failed(failure, error),
    }
}
