//! HTTP/2, for hosts that speak nothing else: the same answers, with their heads and bodies taken out of the HTTP/1.1 that
//! the kinds of host speak.
//!
//! What the judge takes for the bytes of such an answer is what an archive makes of it: the head as lines of HTTP/1.1,
//! with an empty reason, then the body.

use std::{future::poll_fn, sync::Arc, time::Duration};

use h2::{
    Reason, RecvStream, SendStream,
    server::{Builder, SendResponse},
};
use http::{HeaderName, HeaderValue, Response, header};
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::server::TlsStream;

use super::{
    exchange::{EXCHANGE_MAX, IDLE_MAX, WRITE_BYTES_MAX, without_port},
    judge::Violation,
    plan::Host,
    reply::{After, Step},
    server::{HANDSHAKE_MAX, Server},
    session::{Answering, Played, Request, Session},
};

/// Bytes that a stream takes at a time.
type Piece = std::io::Cursor<Vec<u8>>;

/// More requests at once than this are not even looked at. One is what a crawler has.
const STREAMS_MAX: u32 = 16;
const HEADERS_MAX: usize = 64;
/// What a client may listen to of a flood. The kernel holds some megabytes of it, whoever listens.
const FLOOD_BYTES_MAX: u64 = 32 << 20;
/// How long a client has to close a connection that was closed here.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// Serves one connection to its end.
pub(super) async fn serve(mut session: Session, stream: TlsStream<TcpStream>) {
    // A second handle, so that the connection can be closed slowly.
    let socket = SockRef::from(stream.get_ref().0).try_clone();
    let handshake = Builder::new().max_concurrent_streams(STREAMS_MAX).handshake::<_, Piece>(stream);
    let Ok(Ok(mut connection)) = timeout(HANDSHAKE_MAX, handshake).await else { return };
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = timeout(IDLE_MAX, connection.accept()) => {
                let Ok(Some(Ok((request, mut respond)))) = accepted else { break };
                let server = Arc::clone(&session.server);
                let arrived = server.now();
                match read(&request) {
                    Ok(request) => {
                        let answering = session.begin(&request, arrived);
                        answers.spawn(answer(server, answering, respond));
                    }
                    Err(why) => {
                        let local = session.local;
                        server.judge().violate(Violation::Malformed, || format!("to {local}: {why}"));
                        respond.send_reset(Reason::PROTOCOL_ERROR);
                    }
                }
            }
            Some(answered) = answers.join_next() => {
                if !matches!(answered, Ok(After::Keep)) {
                    connection.graceful_shutdown();
                }
            }
        }
    }
    // Answers that are under way notice that the connection is gone, and have the judge know.
    drop(connection);
    while answers.join_next().await.is_some() {}
    if let Ok(socket) = socket {
        linger(socket.into()).await;
    }
}

/// Sends frames that mean nothing for as long as somebody reads them. Nobody should for long.
pub(super) async fn flood(server: &Server, host: &Host<'_>, mut stream: TlsStream<TcpStream>) {
    // Settings, as they have to come first; then a priority, which is no longer heeded, of a request that was never made.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let pieces = [0, 0, 5, 2, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0].repeat(1_000);
    if stream.write_all(&settings).await.is_err() {
        return;
    }
    let mut sent = 0;
    let flooding = async {
        while sent <= FLOOD_BYTES_MAX && stream.write_all(&pieces).await.is_ok() {
            sent += pieces.len() as u64;
        }
    };
    let _ = timeout(EXCHANGE_MAX, flooding).await;
    if sent > FLOOD_BYTES_MAX {
        let why = || format!("{}: {sent} bytes of nothing were listened to", host.name());
        server.judge().violate(Violation::Cost, why);
    }
}

/// Waits until the client has closed too. Closed at once, a socket answers what is still on its way with a reset, and whoever
/// is told so need not read what was sent before it.
async fn linger(socket: std::net::TcpStream) {
    let Ok(mut socket) = TcpStream::from_std(socket) else { return };
    if socket.shutdown().await.is_ok() {
        let mut ignored = [0; 1024];
        let _ =
            timeout(LINGER_MAX, async { while matches!(socket.read(&mut ignored).await, Ok(1..)) {} }).await;
    }
}

fn read(request: &http::Request<RecvStream>) -> Result<Request, String> {
    let (uri, headers) = (request.uri(), request.headers());
    let Some(authority) = uri.authority() else { return Err("no authority".to_owned()) };
    if uri.scheme_str() != Some("https") {
        return Err(format!("scheme {:?} over TLS", uri.scheme_str()));
    }
    if request.method() != http::Method::GET || !request.body().is_end_stream() {
        return Err(format!("{} with a body", request.method()));
    }
    if headers.get(header::USER_AGENT).is_none_or(HeaderValue::is_empty) {
        return Err("no User-Agent".to_owned());
    }
    Ok(Request {
        target: uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        name: without_port(authority.as_str()).to_ascii_lowercase(),
        cookie: headers.contains_key(header::COOKIE),
    })
}

async fn answer(server: Arc<Server>, mut answering: Answering, respond: SendResponse<Piece>) -> After {
    let mut played = Played::default();
    let steps = std::mem::take(&mut answering.steps);
    let after = answering.after;
    let mut stream = Stream { server: &server, respond, body: None };
    let whole = timeout(EXCHANGE_MAX, stream.play(steps, &mut played)).await.unwrap_or(false);
    played.whole = whole && stream.end(after);
    answering.end(&server, &played)
}

/// One exchange.
struct Stream<'s> {
    server: &'s Server,
    respond: SendResponse<Piece>,
    /// Once the head is sent.
    body: Option<SendStream<Piece>>,
}

impl Stream<'_> {
    /// Does what an answer consists of; false if the client did not stay for it.
    async fn play(&mut self, steps: Vec<Step>, played: &mut Played) -> bool {
        for step in steps {
            let done = match step {
                Step::Write(bytes) => self.write(&bytes, played).await,
                Step::Pause(pause) => self.pause(pause).await,
                Step::Stall => {
                    self.pause(EXCHANGE_MAX).await;
                    false
                }
                Step::Endless(bytes, pause) => {
                    while self.write(&bytes, played).await && self.pause(pause).await {}
                    false
                }
            };
            if !done {
                return false;
            }
        }
        true
    }

    async fn write(&mut self, bytes: &[u8], played: &mut Played) -> bool {
        let mut rest = bytes;
        if self.body.is_none() {
            let Some((head, length)) = head(bytes) else { return false };
            played.wrote(&written(&head), self.server.now());
            let Ok(body) = self.respond.send_response(head, false) else { return false };
            self.body = Some(body);
            rest = &bytes[length..];
        }
        let Some(body) = &mut self.body else { return false };
        while !rest.is_empty() {
            body.reserve_capacity(rest.len().min(WRITE_BYTES_MAX));
            let Some(Ok(room)) = poll_fn(|context| body.poll_capacity(context)).await else { return false };
            let (piece, others) = rest.split_at(room.min(rest.len()).min(WRITE_BYTES_MAX));
            let before = self.server.now();
            if body.send_data(Piece::new(piece.to_vec()), false).is_err() {
                return false;
            }
            played.wrote(piece, before);
            rest = others;
        }
        true
    }

    /// Ends an answer that was written whole.
    fn end(&mut self, after: After) -> bool {
        match (&mut self.body, after) {
            (Some(body), After::Keep | After::Close) => body.send_data(Piece::default(), true).is_ok(),
            (Some(body), After::Reset) => {
                body.send_reset(Reason::INTERNAL_ERROR);
                true
            }
            (None, _) => {
                self.respond.send_reset(Reason::INTERNAL_ERROR);
                true
            }
        }
    }

    /// Waits; false if the client left meanwhile.
    async fn pause(&mut self, pause: Duration) -> bool {
        let left = poll_fn(|context| match &mut self.body {
            Some(body) => body.poll_reset(context),
            None => self.respond.poll_reset(context),
        });
        tokio::select! {
            () = sleep(pause) => true,
            _ = left => false,
        }
    }
}

/// The head at the beginning of an answer in HTTP/1.1, without what only concerns a connection, and its length.
fn head(bytes: &[u8]) -> Option<(Response<()>, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = parsed.parse(bytes) else { return None };
    let mut response = Response::new(());
    *response.status_mut() = parsed.code?.try_into().ok()?;
    for header in parsed.headers.iter() {
        let name: HeaderName = header.name.parse().ok()?;
        if name != header::CONNECTION && name != header::TRANSFER_ENCODING {
            response.headers_mut().append(name, HeaderValue::from_bytes(header.value).ok()?);
        }
    }
    Some((response, length))
}

/// A head as archives have it.
fn written(head: &Response<()>) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {} \r\n", head.status().as_u16()).into_bytes();
    for (name, value) in head.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_lose_what_concerns_connections() {
        let bytes =
            b"HTTP/1.1 404 Not Found\r\nServer: lab\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
                      Set-Cookie: a\r\nSet-Cookie: b\r\n\r\nbody";
        let (head, length) = head(bytes).unwrap();
        assert_eq!(&bytes[length..], b"body");
        let lines = written(&head);
        let expected = "HTTP/1.1 404 \r\nserver: lab\r\nset-cookie: a\r\nset-cookie: b\r\n\r\n";
        assert_eq!(String::from_utf8(lines).unwrap(), expected);
        assert!(super::head(b"HTTP/1.1 200 OK\r\nServer").is_none());
    }
}
