//! HTTP/1.1 by hand, because it must be able to lie: one connection, from its first request to its end.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::server::TlsStream;

use super::{
    judge::Violation,
    reply::{After, Step},
    server::HANDSHAKE_MAX,
    session::{Played, Request, Session},
};

const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Larger answers are written in parts, so that the time of the last write says something.
pub(super) const WRITE_BYTES_MAX: usize = 64 * 1024;
/// What is read at once, and what a connection has for it while it is in use.
const BUFFER_BYTES: usize = 4_096;
/// How long a connection may be idle. Longer than any delay a crawler is asked to keep.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(900);
/// How long an answer may take, stalled ones included.
pub(super) const EXCHANGE_MAX: Duration = Duration::from_secs(900);

/// The bytes of a connection, inside TLS or not.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        buffer.reserve(BUFFER_BYTES);
        match self {
            Stream::Plain(stream) => stream.read_buf(buffer).await,
            Stream::Tls(stream) => stream.read_buf(buffer).await,
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes).await,
            Stream::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    async fn close(&mut self, after: After) {
        let _ = match (after, self) {
            (After::Reset, Stream::Plain(stream)) => stream.set_zero_linger(),
            (After::Reset, Stream::Tls(stream)) => stream.get_ref().0.set_zero_linger(),
            (_, Stream::Plain(stream)) => stream.shutdown().await,
            (_, Stream::Tls(stream)) => stream.shutdown().await,
        };
    }
}

/// A connection, once it can be spoken on.
pub(super) struct Connection {
    session: Session,
    stream: Stream,
    /// What was read and not yet used.
    buffer: Vec<u8>,
    /// When the first byte of the current request was read.
    arrived: u64,
}

impl Connection {
    pub(super) fn new(session: Session, stream: Stream) -> Connection {
        Connection { session, stream, buffer: Vec::with_capacity(BUFFER_BYTES), arrived: 0 }
    }

    pub(super) async fn serve(mut self) {
        let mut after = After::Keep;
        while after == After::Keep {
            let Some((request, is_last)) = self.read_request().await else { break };
            let mut answering = self.session.begin(&request, self.arrived);
            let played = self.play(std::mem::take(&mut answering.steps)).await;
            after = match answering.end(&self.session.server, &played) {
                After::Keep if is_last => After::Close,
                after => after,
            };
        }
        self.stream.close(after).await;
    }

    /// Reads a request, and whether it says that it is the last; none when the client is gone or what it sends is not
    /// HTTP.
    async fn read_request(&mut self) -> Option<(Request, bool)> {
        if self.buffer.is_empty() {
            match timeout(IDLE_MAX, self.stream.read(&mut self.buffer)).await {
                Ok(Ok(1..)) => {}
                _ => return None,
            }
        }
        self.arrived = self.session.server.now();
        loop {
            match parse(&self.buffer) {
                Ok(Some(parsed)) => {
                    let length = parsed.head_bytes + parsed.body_bytes;
                    while self.buffer.len() < length {
                        self.read_more().await?;
                    }
                    self.buffer.drain(..length);
                    return Some((parsed.request, parsed.is_last));
                }
                Ok(None) if self.buffer.len() < HEAD_BYTES_MAX => self.read_more().await?,
                Ok(None) => return self.malformed("request head too large"),
                Err(why) => return self.malformed(&why),
            }
        }
    }

    async fn read_more(&mut self) -> Option<()> {
        match timeout(HANDSHAKE_MAX, self.stream.read(&mut self.buffer)).await {
            Ok(Ok(1..)) => Some(()),
            _ => None,
        }
    }

    fn malformed(&self, why: &str) -> Option<(Request, bool)> {
        let Session { server, local, .. } = &self.session;
        server.judge().violate(Violation::Malformed, || format!("to {local}: {why}"));
        None
    }

    /// Does what an answer consists of, as far as the client stays for it.
    async fn play(&mut self, steps: Vec<Step>) -> Played {
        let mut played = Played::default();
        let whole = timeout(EXCHANGE_MAX, async {
            for step in steps {
                let done = match step {
                    Step::Write(bytes) => self.write(&bytes, &mut played).await,
                    Step::Pause(pause) => self.pause(pause).await,
                    Step::Stall => {
                        self.pause(EXCHANGE_MAX).await;
                        false
                    }
                    Step::Endless(bytes, pause) => {
                        while self.write(&bytes, &mut played).await && self.pause(pause).await {}
                        false
                    }
                };
                if !done {
                    return false;
                }
            }
            true
        });
        let whole = whole.await.unwrap_or(false);
        played.whole = whole;
        played
    }

    async fn write(&mut self, bytes: &[u8], played: &mut Played) -> bool {
        let bandwidth = self.session.server.plan.config.bandwidth_bytes_s;
        const PARTS_A_SECOND: u32 = 50;
        let part_len = match bandwidth {
            0 => WRITE_BYTES_MAX,
            bandwidth => ((bandwidth / u64::from(PARTS_A_SECOND)) as usize).clamp(1, WRITE_BYTES_MAX),
        };
        let mut parts = bytes.chunks(part_len).peekable();
        while let Some(part) = parts.next() {
            let before = self.session.server.now();
            if self.stream.write_all(part).await.is_err() {
                return false;
            }
            played.wrote(part, before);
            if bandwidth > 0
                && parts.peek().is_some()
                && !self.pause(Duration::from_secs(1) / PARTS_A_SECOND).await
            {
                return false;
            }
        }
        true
    }

    /// Waits; false if the client left meanwhile.
    async fn pause(&mut self, pause: Duration) -> bool {
        let end = sleep(pause);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return true,
                read = self.stream.read(&mut self.buffer) => match read {
                    Ok(1..) if self.buffer.len() < HEAD_BYTES_MAX => {}
                    _ => return false,
                },
            }
        }
    }
}

/// A request at the beginning of a buffer.
struct Parsed {
    request: Request,
    head_bytes: usize,
    body_bytes: usize,
    is_last: bool,
}

/// The request at the beginning of a buffer; none while its head is not whole.
fn parse(buffer: &[u8]) -> Result<Option<Parsed>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head_bytes = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let (method, target) = (parsed.method.unwrap_or(""), parsed.path.unwrap_or(""));
    let mut request = Request { target: target.to_owned(), name: String::new(), cookie: false };
    let (mut body_bytes, mut hosts, mut agent, mut is_last) = (0, 0, false, false);
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| format!("{}: not text", header.name))?;
        if header.name.eq_ignore_ascii_case("host") {
            hosts += 1;
            request.name = without_port(value).to_ascii_lowercase();
        } else if header.name.eq_ignore_ascii_case("cookie") {
            request.cookie = true;
        } else if header.name.eq_ignore_ascii_case("user-agent") {
            agent = !value.is_empty();
        } else if header.name.eq_ignore_ascii_case("connection") {
            is_last = value.eq_ignore_ascii_case("close");
        } else if header.name.eq_ignore_ascii_case("content-length") {
            body_bytes = value.parse().ok().filter(|len| *len <= BODY_BYTES_MAX).ok_or("body too large")?;
        }
    }
    let is_control = target.starts_with("/.lab/");
    if hosts != 1 {
        return Err(format!("{hosts} Host headers"));
    }
    if !is_control && (method != "GET" || body_bytes > 0) {
        return Err(format!("{method} with a body of {body_bytes} bytes"));
    }
    if !is_control && !agent {
        return Err("no User-Agent".to_owned());
    }
    if !target.starts_with('/') {
        return Err(format!("target {target:?} does not start with a slash"));
    }
    Ok(Some(Parsed { request, head_bytes, body_bytes, is_last }))
}

/// An authority without its port.
pub(super) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => authority,
    }
}
