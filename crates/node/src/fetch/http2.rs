//! One request and its answer over one connection, for servers that speak HTTP/2 and nothing else.
//!
//! What is recorded is what the messages would be in HTTP/1.1: a status line without a reason, the header fields in lower
//! case, and the body as it was framed. Limits, time-outs and cuts are those of HTTP/1.1, and so is one request at a time.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use nephila_core::agent::{Cut, FetchError};
use nephila_core::record::Failure;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::exchange::{ExchangeLimits, Exchanged, Manner, no_answer};
use super::failed;
use super::record::{Recorder, Recording, Tape, Wire};

/// What a server may send before it has to wait for us: little enough to hold for every connection at once.
const WINDOW_BYTES: u32 = 256 << 10;

/// The tasks of a connection: what hyper begins for it ends with it.
#[derive(Clone, Debug, Default)]
struct Tasks(Rc<RefCell<JoinSet<()>>>);

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.borrow_mut();
        // Each request leaves one behind.
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }
}

/// A connection that requests can be sent over, one after the other. Closed when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    address: IpAddr,
    tasks: Tasks,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // One of them holds the others.
        self.tasks.0.borrow_mut().abort_all();
    }
}

impl Connection {
    /// Begins to speak HTTP/2 over a connection.
    pub(super) async fn open(
        wire: Wire,
        address: IpAddr,
        limits: &ExchangeLimits,
        deadline: Instant,
    ) -> Result<Self, FetchError> {
        let tasks = Tasks::default();
        // A tape without a recording: the messages are recorded, not the frames that they come in.
        let io = Recorder { wire, tape: Tape::default() };
        let mut builder = http2::Builder::new(tasks.clone());
        builder
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX));
        let (sender, connection) = timeout_at(deadline, builder.handshake(io))
            .await
            .map_err(|_| failed(Failure::Timeout, "no http/2 in time"))?
            .map_err(|error| failed(Failure::Connect, error))?;
        // Its errors reach whoever waits for an answer; one that waits for no answer is only to be closed.
        tasks.0.borrow_mut().spawn_local(async move { drop(connection.await) });
        Ok(Connection { sender, address, tasks })
    }

    /// The address at the other end.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether a request can be sent over it.
    pub(super) fn is_open(&self) -> bool {
        self.sender.is_ready()
    }

    /// Sends a request and receives the answer onto the recording, as far as it comes.
    pub(super) async fn exchange(
        mut self,
        request: Request<Empty<Bytes>>,
        mut recording: Recording,
        limits: &ExchangeLimits,
        deadline: Instant,
        Manner { reused, choosy }: Manner,
    ) -> Result<Exchanged<Connection>, FetchError> {
        recording.sent = sent(&request);
        let request = absolute(request)?;
        let response = tokio::select! {
            biased;
            response = self.sender.send_request(request) => response,
            () = sleep_until(deadline) => return Err(failed(Failure::Timeout, "no answer in time")),
        };
        let response = response.map_err(|error| no_answer(&error, 0, reused))?;
        recording.receive(&head(&response))?;
        if choosy && !limits.accepts(&response) {
            return Ok(Exchanged { recording, cut: Some(Cut::Length), connection: None });
        }
        let cut = drain(response.into_body(), &mut recording, limits, deadline).await?;
        let connection = (cut.is_none() && self.is_open()).then_some(self);
        Ok(Exchanged { recording, cut, connection })
    }
}

/// Receives a body. Returns why it is not whole.
async fn drain(
    mut body: Incoming,
    recording: &mut Recording,
    limits: &ExchangeLimits,
    deadline: Instant,
) -> Result<Option<Cut>, FetchError> {
    let begun = Instant::now();
    let mut body_bytes = 0;
    loop {
        let until = limits.slow_at(begun, body_bytes).map_or(deadline, |slow| slow.min(deadline));
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = sleep_until(until) => return Ok(Some(Cut::Time)),
        };
        match frame {
            // A stream that was reset with "no error", or whose connection said goodbye, has no end of its own.
            None if body.is_end_stream() => return Ok(None),
            None | Some(Err(_)) => return Ok(Some(Cut::Disconnect)),
            // Trailers are no data, and nothing in HTTP/1.1 without chunks.
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                body_bytes += data.len() as u64;
                recording.receive(&data)?;
            }
        }
        if body_bytes > limits.body_bytes_max {
            return Ok(Some(Cut::Length));
        }
    }
}

/// The same request as HTTP/2 has it: the host is part of what is asked for.
fn absolute(mut request: Request<Empty<Bytes>>) -> Result<Request<Empty<Bytes>>, FetchError> {
    let unfit = |error: http::Error| failed(Failure::Malformed, error);
    let host = request.headers_mut().remove(HOST);
    let authority: Authority = host
        .as_ref()
        .map_or(&[][..], HeaderValue::as_bytes)
        .try_into()
        .map_err(|error: http::uri::InvalidUri| unfit(error.into()))?;
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts).map_err(|error| unfit(error.into()))?;
    Ok(request)
}

/// A request as it would be in HTTP/1.1.
fn sent(request: &Request<Empty<Bytes>>) -> Vec<u8> {
    let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    put_fields(&mut bytes, request.headers());
    bytes
}

/// The head of an answer as it would be in HTTP/1.1.
fn head(response: &Response<Incoming>) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {} \r\n", response.status().as_u16()).into_bytes();
    put_fields(&mut bytes, response.headers());
    bytes
}

fn put_fields(bytes: &mut Vec<u8>, fields: &HeaderMap) {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat()
    };
    bytes.extend(fields.iter().flat_map(line));
    bytes.extend_from_slice(b"\r\n");
}
