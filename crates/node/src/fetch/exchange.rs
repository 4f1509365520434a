//! One request and its answer over one connection.

use std::error::Error;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use nephila_archive::http::HEADERS_MAX;
use nephila_core::agent::{Cut, FetchError};
use nephila_core::parse::headers::content_type;
use nephila_core::record::Failure;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::failed;
use super::record::{Recorder, Recording, Tape, Wire};

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
    pub(super) fn accepts(&self, response: &Response<Incoming>) -> bool {
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
    fn wire_bytes_max(&self) -> u64 {
        self.body_bytes_max.saturating_mul(2).saturating_add(self.heads_bytes_max())
    }

    /// What may be received at most before the final head is there: interim heads, the head, and what of the body comes
    /// along with it. hyper checks the size of each head.
    fn heads_bytes_max(&self) -> u64 {
        8 * self.head_bytes_max.max(BUFFER_BYTES_MIN) as u64
    }

    /// The moment at which a body that began at `begun` and has this many bytes becomes too slow.
    pub(super) fn slow_at(&self, begun: Instant, body_bytes: u64) -> Option<Instant> {
        let earned_ms = body_bytes.saturating_mul(1_000).checked_div(self.slow_bytes_per_s)?;
        begun.checked_add(self.slow_after.max(Duration::from_millis(earned_ms)))
    }
}

/// A connection that requests can be sent over, one after the other. Closed when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    tape: Tape,
    address: IpAddr,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Begins to speak HTTP over a connection.
    pub(super) async fn open(
        wire: Wire,
        address: IpAddr,
        limits: &ExchangeLimits,
    ) -> Result<Self, FetchError> {
        let tape = Tape::default();
        let recorder = Recorder { wire, tape: Rc::clone(&tape) };
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
        // Its errors reach whoever waits for an answer; one that waits for no answer is only to be closed.
        let driver = tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(Connection { sender, tape, address, driver })
    }

    /// The address at the other end.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether it is known to be of no more use.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the previous exchange is over. False: the connection ended with it.
    pub(super) async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and receives the answer onto the recording, as far as it comes.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Empty<Bytes>>,
        recording: Recording,
        limits: &ExchangeLimits,
        deadline: Instant,
        Manner { reused, choosy }: Manner,
    ) -> Result<(Recording, Option<Cut>), FetchError> {
        *self.tape.borrow_mut() = Some(recording);
        self.limit_received(Some(limits.heads_bytes_max()));
        let response = tokio::select! {
            biased;
            response = self.sender.send_request(request) => response,
            () = sleep_until(deadline) => return Err(failed(Failure::Timeout, "no answer in time")),
        };
        self.limit_received(None);
        let ended = match response {
            Ok(response) if choosy && !limits.accepts(&response) => Ok(Some(Cut::Length)),
            Ok(response) => Ok(self.drain(response.into_body(), limits, deadline).await),
            Err(error) => Err(error),
        };
        let mut recording = self.tape.borrow_mut().take().expect("put there above, and nobody else takes it");
        if let Some(error) = recording.failure.take() {
            return Err(error);
        }
        match ended {
            Ok(cut) => Ok((recording, cut)),
            Err(error) => Err(no_answer(&error, recording.length(), reused)),
        }
    }

    /// Receives a body and forgets it: the recording has it. Returns why it is not whole.
    async fn drain(&self, mut body: Incoming, limits: &ExchangeLimits, deadline: Instant) -> Option<Cut> {
        let begun = Instant::now();
        let mut body_bytes = 0;
        loop {
            let until = limits.slow_at(begun, body_bytes).map_or(deadline, |slow| slow.min(deadline));
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = sleep_until(until) => return Some(Cut::Time),
            };
            match frame {
                None => return None,
                Some(Ok(frame)) => body_bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
                Some(Err(_)) => return Some(Cut::Disconnect),
            }
            if body_bytes > limits.body_bytes_max || self.received() > limits.wire_bytes_max() {
                return Some(Cut::Length);
            }
        }
    }

    fn limit_received(&self, bytes_max: Option<u64>) {
        if let Some(recording) = &mut *self.tape.borrow_mut() {
            recording.bytes_max = bytes_max;
        }
    }

    fn received(&self) -> u64 {
        self.tape.borrow().as_ref().map_or(0, Recording::length)
    }
}

/// What it means that no answer came.
pub(super) fn no_answer(error: &hyper::Error, received_bytes: u64, reused: bool) -> FetchError {
    let failure = match received_bytes {
        0 if reused => Failure::NotTried,
        0 => Failure::Disconnected,
        _ if error.is_parse() => Failure::Malformed,
        _ => Failure::Disconnected,
    };
    match error.source() {
        Some(source) => failed(failure, format_args!("{error}: {source}")),
        None => failed(failure, error),
    }
}
