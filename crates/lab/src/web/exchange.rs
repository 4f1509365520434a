//! HTTP/1.1 by hand, because it must be able to lie: one connection, from its first request to its end.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use xxhash_rust::xxh3::Xxh3;

use super::{
    control,
    judge::{Arrival, Departure, Violation},
    kinds::Connect,
    plan::{Host, Visit},
    reply::{After, Reply, RobotsSays, Step},
    server::{CONTROL_NAME, HANDSHAKE_MAX, Server},
};

const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Larger answers are written in parts, so that the time of the last write says something.
const WRITE_BYTES_MAX: usize = 64 * 1024;
/// How long a connection may be idle. Longer than any delay a crawler is asked to keep.
const IDLE_MAX: Duration = Duration::from_secs(900);
/// How long an answer may take, stalled ones included.
const EXCHANGE_MAX: Duration = Duration::from_secs(900);

/// The bytes of a connection, inside TLS or not.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        buffer.reserve(4_096);
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

/// A request, as far as it matters here.
struct Request {
    target: String,
    name: String,
    cookie: bool,
    close: bool,
}

/// What came of an answer.
#[derive(Default)]
struct Played {
    last_write: Option<u64>,
    bytes: u64,
    hash: Xxh3,
    whole: bool,
}

/// A connection, once it can be spoken on.
pub(super) struct Connection {
    server: Arc<Server>,
    stream: Stream,
    local: Ipv4Addr,
    https: bool,
    /// What was read and not yet used.
    buffer: Vec<u8>,
    /// When the first byte of the current request was read.
    arrived: u64,
    requests: u32,
    /// The host that the first request was for; connections must not be shared between hosts.
    host: Option<u64>,
}

impl Connection {
    pub(super) fn new(server: Arc<Server>, stream: Stream, local: Ipv4Addr, https: bool) -> Connection {
        let buffer = Vec::with_capacity(4_096);
        Connection { server, stream, local, https, buffer, arrived: 0, requests: 0, host: None }
    }

    pub(super) async fn serve(mut self) {
        let mut after = After::Keep;
        while after == After::Keep {
            let Some(request) = self.read_request().await else { break };
            self.requests += 1;
            after = self.exchange(&request).await;
        }
        self.stream.close(after).await;
    }

    /// Reads a request; none when the client is gone or what it sends is not HTTP.
    async fn read_request(&mut self) -> Option<Request> {
        if self.buffer.is_empty() {
            match timeout(IDLE_MAX, self.stream.read(&mut self.buffer)).await {
                Ok(Ok(1..)) => {}
                _ => return None,
            }
        }
        self.arrived = self.server.now();
        loop {
            match parse(&self.buffer) {
                Ok(Some((request, head_len, body_len))) => {
                    while self.buffer.len() < head_len + body_len {
                        self.read_more().await?;
                    }
                    self.buffer.drain(..head_len + body_len);
                    return Some(request);
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

    fn malformed(&self, why: &str) -> Option<Request> {
        self.server.judge().violate(Violation::Malformed, || format!("to {}: {why}", self.local));
        None
    }

    /// Answers one request, and says what becomes of the connection.
    async fn exchange(&mut self, request: &Request) -> After {
        let server = Arc::clone(&self.server);
        let is_control = request.name == CONTROL_NAME
            || request.name == "localhost"
            || request.name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if is_control {
            let reply = control::answer(&server, &request.target);
            let played = self.play(reply.steps).await;
            return if played.whole && !request.close { After::Keep } else { After::Close };
        }
        let Some(host) = server.plan.by_name(&request.name) else {
            server.judge().violate(Violation::Unknown, || format!("{}: no such host", request.name));
            let _ = self.play(Reply::new(404, "text/plain", b"no such host\n").steps).await;
            return After::Close;
        };
        self.check_connection(&host);
        let (arrival, mut reply) = self.begin(&host, request);
        if host.kind.connect == Connect::Silent {
            reply = Reply::steps(vec![Step::Stall]).says(RobotsSays::Unreachable);
        }
        let latency = host.latency();
        let mut steps = std::mem::take(&mut reply.steps);
        if latency > Duration::ZERO {
            steps.insert(0, Step::Pause(latency));
        }
        let played = self.play(steps).await;
        let end = played.last_write.unwrap_or(arrival.now);
        let departure = Departure {
            last_write: played.last_write,
            whole: played.whole,
            bytes: played.bytes,
            digest: played.hash.digest(),
            settles: reply.settles,
            url_failed: reply.url_failed,
            robots: reply.robots,
            not_before: server.not_before(reply.wait, end),
        };
        server.judge().depart(&arrival, &departure);
        match (played.whole, reply.after, request.close) {
            (true, After::Keep, false) => After::Keep,
            (true, After::Keep, true) | (false, ..) => After::Close,
            (true, after, _) => after,
        }
    }

    fn check_connection(&mut self, host: &Host<'_>) {
        let first = *self.host.get_or_insert(host.key());
        if first != host.key() {
            let why = || format!("{}: on a connection of another host", host.name());
            self.server.judge().violate(Violation::Malformed, why);
        }
        if host.address() != self.local {
            let why = || format!("{}: at {}, not at its address", host.name(), self.local);
            self.server.judge().violate(Violation::Malformed, why);
        }
    }

    /// Has the request judged, and finds the answer.
    fn begin(&self, host: &Host<'_>, request: &Request) -> (Arrival, Reply) {
        let target = host.resolve(self.https, &request.target);
        let arrival = Arrival {
            now: self.arrived,
            host: host.key(),
            kind: host.kind_index,
            address: u32::from(self.local),
            https: self.https,
            url: target.key,
            rule: target.rule,
        };
        let name = || format!("{}{}", host.origin_as(self.https), request.target);
        let mut judge = self.server.judge();
        let attempt = judge.arrive(&arrival, &name);
        if request.cookie && !host.kind.takes_cookies {
            judge.violate(Violation::Cookies, name);
        }
        drop(judge);
        let visit = Visit {
            host: *host,
            target: &request.target,
            attempt,
            nth_on_connection: self.requests,
            cookie: request.cookie,
        };
        (arrival, host.answer(&target, &visit))
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
        let bandwidth = self.server.plan.config.bandwidth_bytes_s;
        const PARTS_A_SECOND: u32 = 50;
        let part_len = match bandwidth {
            0 => WRITE_BYTES_MAX,
            bandwidth => ((bandwidth / u64::from(PARTS_A_SECOND)) as usize).clamp(1, WRITE_BYTES_MAX),
        };
        let mut parts = bytes.chunks(part_len).peekable();
        while let Some(part) = parts.next() {
            let before = self.server.now();
            if self.stream.write_all(part).await.is_err() {
                return false;
            }
            played.last_write = Some(before);
            played.bytes += part.len() as u64;
            played.hash.update(part);
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

/// A request at the beginning of a buffer, with the lengths of its head and its body; none while it is not whole.
fn parse(buffer: &[u8]) -> Result<Option<(Request, usize, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head_len = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let (method, target) = (parsed.method.unwrap_or(""), parsed.path.unwrap_or(""));
    let mut request = Request { target: target.to_owned(), name: String::new(), cookie: false, close: false };
    let (mut body_len, mut hosts, mut agent) = (0, 0, false);
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
            request.close = value.eq_ignore_ascii_case("close");
        } else if header.name.eq_ignore_ascii_case("content-length") {
            body_len = value.parse().ok().filter(|len| *len <= BODY_BYTES_MAX).ok_or("body too large")?;
        }
    }
    let is_control = target.starts_with("/.lab/");
    if hosts != 1 {
        return Err(format!("{hosts} Host headers"));
    }
    if !is_control && (method != "GET" || body_len > 0) {
        return Err(format!("{method} with a body of {body_len} bytes"));
    }
    if !is_control && !agent {
        return Err("no User-Agent".to_owned());
    }
    if !target.starts_with('/') {
        return Err(format!("target {target:?} does not start with a slash"));
    }
    Ok(Some((request, head_len, body_len)))
}

/// A Host header without its port.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => authority,
    }
}
