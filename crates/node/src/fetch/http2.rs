//! One request and its answer over one connection, for servers that speak HTTP/2 and nothing else.
//!
//! What is recorded is what the messages would be in HTTP/1.1: a status line without a reason, the header fields in lower
//! case, and the body as it was framed. Limits, time-outs and cuts are those of HTTP/1.1, and so is one request at a time.
//!
//! A connection is read only while somebody waits for an answer. What a server sends meanwhile stays with the kernel until
//! the connection is wanted again, and whoever sent more than a few frames is not asked over it any more.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::Empty;
use nephila_core::agent::{Cut, FetchError};
use nephila_core::record::Failure;
use tokio::time::{Instant, timeout_at};

use super::exchange::{ExchangeLimits, Exchanged, Manner};
use super::failed;
use super::record::Recording;
use super::wire::{Meter, Wire};

/// What a server may send before it has to wait for us: little enough to hold for every connection at once.
const WINDOW_BYTES: u32 = 256 << 10;
/// What is read before it is looked at. Frames become many times larger in memory than they were on the wire.
const TURN_BYTES: u64 = 32 << 10;
/// What h2 may hold of small frames, by its own measure: 256 for each. The smallest with data in it has ten bytes, and a turn of
/// them, which is looked at before the next, should not be taken for an attack. The last read of a turn may double it.
const SMALL_FRAMES_MAX: usize = 2 * TURN_BYTES as usize / 10 * 256;
/// What may come over a connection that nothing was asked of: settings, pings, a goodbye.
const IDLE_BYTES_MAX: u64 = 16 << 10;
/// Interim heads before the final one.
const INTERIM_HEADS_MAX: u32 = 64;

/// A connection that requests can be sent over, one after the other. Closed when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Bytes>,
    driver: Box<Driver>,
    address: IpAddr,
}

/// What reads from and writes to the wire. It has no task of its own: it goes along with who waits for it.
#[derive(Debug)]
struct Driver {
    /// Gone when it has ended: that is how those who wait hear of it.
    connection: Option<h2::client::Connection<Wire>>,
    /// How it ended, if that was an error.
    error: Option<h2::Error>,
    meter: Rc<Meter>,
}

impl Driver {
    /// Ready when the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(()) };
        self.meter.give_turn(TURN_BYTES);
        let Poll::Ready(ended) = Pin::new(connection).poll(context) else { return Poll::Pending };
        self.connection = None;
        self.error = ended.err();
        Poll::Ready(())
    }

    /// Waits for something that needs the connection to go on.
    async fn along<T>(&mut self, mut awaited: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        poll_fn(|context| {
            if let Poll::Ready(done) = awaited(context) {
                return Poll::Ready(done);
            }
            // How it ended is told to who waits.
            let _ = self.poll(context);
            awaited(context)
        })
        .await
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
        let meter = wire.meter();
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .data_frame_budget(SMALL_FRAMES_MAX)
            .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX));
        let (sender, connection) = timeout_at(deadline, builder.handshake(wire))
            .await
            .map_err(|_| failed(Failure::Timeout, "no http/2 in time"))?
            .map_err(|error| failed(Failure::Connect, error))?;
        let driver = Box::new(Driver { connection: Some(connection), error: None, meter });
        Ok(Connection { sender, driver, address })
    }

    /// The address at the other end.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether the server has neither closed it nor said more than it may between two requests.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.driver.meter.allow(IDLE_BYTES_MAX);
        self.driver.poll(&mut Context::from_waker(Waker::noop())).is_pending()
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
        // Of the body, a window may be there before the head has been looked at.
        self.driver.meter.allow(limits.heads_bytes_max() + u64::from(WINDOW_BYTES));
        let response = timeout_at(deadline, self.answer(request, reused))
            .await
            .unwrap_or_else(|_| Err(failed(Failure::Timeout, "no answer in time")))?;
        recording.receive(&head(&response))?;
        if choosy && !limits.accepts(&response) {
            return Ok(Exchanged { recording, cut: Some(Cut::Length), connection: None });
        }
        self.driver.meter.allow(limits.wire_bytes_max());
        let cut = drain(response.into_body(), &mut self.driver, &mut recording, limits, deadline).await?;
        let connection = (cut.is_none() && self.is_quiet()).then_some(self);
        Ok(Exchanged { recording, cut, connection })
    }

    /// Sends a request and waits for the head of its answer.
    async fn answer(
        &mut self,
        request: Request<()>,
        reused: bool,
    ) -> Result<Response<RecvStream>, FetchError> {
        let Connection { sender, driver, .. } = self;
        let ready = driver.along(|context| sender.poll_ready(context)).await;
        let (mut response, _) = ready
            .and_then(|()| sender.send_request(request, true))
            .map_err(|error| driver.no_answer(error, reused))?;
        let mut interim = 0;
        let answer = driver.along(|context| {
            while let Poll::Ready(Some(Ok(_))) = response.poll_informational(context) {
                interim += 1;
            }
            if interim > INTERIM_HEADS_MAX {
                return Poll::Ready(None);
            }
            Pin::new(&mut response).poll(context).map(Some)
        });
        match answer.await {
            Some(answer) => answer.map_err(|error| driver.no_answer(error, reused)),
            None => Err(failed(
                Failure::Malformed,
                format_args!("more than {INTERIM_HEADS_MAX} interim heads before the answer"),
            )),
        }
    }
}

impl Driver {
    /// What it means that no answer came. What the server says it has not begun with, or a connection that had waited and
    /// turns out to be closed, is nobody's fault; but one made for this request should have been good for it.
    fn no_answer(&mut self, error: h2::Error, reused: bool) -> FetchError {
        let refused =
            error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
        // What ended with its connection does not know why.
        let error = match self.error.take() {
            Some(cause) if error.is_io() => cause,
            _ => error,
        };
        let failure = if self.meter.is_exceeded() || error.is_library() {
            Failure::Malformed
        } else if reused && (refused || error.is_io()) {
            Failure::Closed
        } else {
            Failure::Disconnected
        };
        failed(failure, error)
    }
}

/// Receives a body. Returns why it is not whole.
async fn drain(
    mut body: RecvStream,
    driver: &mut Driver,
    recording: &mut Recording,
    limits: &ExchangeLimits,
    deadline: Instant,
) -> Result<Option<Cut>, FetchError> {
    let begun = Instant::now();
    let mut body_bytes = 0;
    loop {
        let until = limits.slow_at(begun, body_bytes).map_or(deadline, |slow| slow.min(deadline));
        let Ok(data) = timeout_at(until, driver.along(|context| body.poll_data(context))).await else {
            return Ok(Some(Cut::Time));
        };
        match data {
            Some(Ok(data)) => {
                body_bytes += data.len() as u64;
                recording.receive(&data)?;
                // It can fail only where more is given back than came.
                let _ = body.flow_control().release_capacity(data.len());
            }
            Some(Err(_)) if driver.meter.is_exceeded() => return Ok(Some(Cut::Length)),
            Some(Err(_)) => return Ok(Some(Cut::Disconnect)),
            None => break,
        }
        if body_bytes > limits.body_bytes_max {
            return Ok(Some(Cut::Length));
        }
    }
    // Trailers are no data, and nothing in HTTP/1.1 without chunks; but they are the end.
    match timeout_at(deadline, driver.along(|context| body.poll_trailers(context))).await {
        Ok(Ok(_)) => Ok(None),
        Ok(Err(_)) => Ok(Some(Cut::Disconnect)),
        Err(_) => Ok(Some(Cut::Time)),
    }
}

/// The same request as HTTP/2 has it: the host is part of what is asked for.
fn absolute(request: Request<Empty<Bytes>>) -> Result<Request<()>, FetchError> {
    let mut request = request.map(drop);
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
fn head(response: &Response<RecvStream>) -> Vec<u8> {
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
