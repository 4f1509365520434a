//! The web's thread: listeners, connections, and HTTP/1.1 driven by hand, because it must be able to lie.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Semaphore, mpsc::UnboundedReceiver, oneshot},
    time::{sleep, timeout},
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use xxhash_rust::xxh3::Xxh3;

use super::{
    WebError, control, dns,
    judge::{Arrival, Departure, Judge, Manners, Violation, nanos},
    kinds::{self, Certificate, Connect},
    plan::{Host, Plan, Rule, Visit},
    reply::{After, Reply, RobotsSays, Step, Wait},
    tls::Tls,
    verdict::{Verdict, verdict},
};

/// The name under which the web speaks of itself; bare addresses do too.
pub(super) const CONTROL_NAME: &str = "lab.test";
const BACKLOG: i32 = 4_096;
const CONNECTIONS_MAX: usize = 50_000;
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Larger answers are written in parts, so that the time of the last write says something.
const WRITE_BYTES_MAX: usize = 64 * 1024;
/// How long a connection may be idle. Longer than any delay a crawler is asked to keep.
const IDLE_MAX: Duration = Duration::from_secs(900);
/// How long an answer may take, stalled ones included.
const EXCHANGE_MAX: Duration = Duration::from_secs(900);
const HANDSHAKE_MAX: Duration = Duration::from_secs(60);
/// A host that fails is left alone for at least this long, before the time scale.
const BACKOFF: Duration = Duration::from_secs(60);
/// Pauses before a URL that failed is tried again, before the time scale.
const PAUSES: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3_600)];

/// What all connections share.
#[derive(Debug)]
pub(super) struct Server {
    pub plan: Plan,
    pub tls: Tls,
    judge: Mutex<Judge>,
    clock: Instant,
    backoff: u64,
}

impl Server {
    pub(super) fn new(plan: Plan) -> Result<Server, WebError> {
        let config = &plan.config;
        let manners = Manners {
            delay: nanos(Duration::from_millis(config.delay_ms)),
            ip_delay: nanos(Duration::from_millis(config.ip_delay_ms)),
            ip_parallel: config.ip_parallel,
            pauses: PAUSES.map(|pause| nanos(config.scaled(pause))),
        };
        let judge = Mutex::new(Judge::new(manners, kinds::all().len()));
        let backoff = nanos(config.scaled(BACKOFF));
        Ok(Server { plan, tls: Tls::new()?, judge, clock: Instant::now(), backoff })
    }

    pub(super) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn verdict(&self) -> Verdict {
        verdict(&self.plan, &self.judge())
    }

    pub(super) fn reset(&self) {
        self.judge().reset();
    }

    pub(super) fn digest(&self, url: &str) -> Option<u64> {
        let (host, https, target) = self.plan.locate(url)?;
        let key = host.resolve(https, target).key;
        self.judge().urls.get(&key).map(|url| url.digest).filter(|digest| *digest != 0)
    }

    fn now(&self) -> u64 {
        nanos(self.clock.elapsed())
    }

    /// When the host may be asked again, after an answer that ended at `end`.
    fn not_before(&self, wait: Option<Wait>, end: u64) -> Option<u64> {
        Some(match wait? {
            Wait::Backoff => end + self.backoff,
            Wait::For(duration) => end + nanos(duration),
            Wait::Until(time) => self.now() + time.duration_since(SystemTime::now()).map_or(0, nanos),
        })
    }

    /// Judges a connection that came to nothing: it counts as a request, and if the host is to blame, as its failure.
    fn connect_failed(&self, host: &Host<'_>, https: bool, address: Ipv4Addr, at: u64, blame: bool) {
        let arrival = Arrival {
            now: at,
            host: host.key(),
            kind: host.kind_index,
            address: u32::from(address),
            https,
            url: host.resolve(https, "(connect)").key,
            rule: Rule::Free,
        };
        let mut judge = self.judge();
        judge.arrive(&arrival, &|| format!("connect to {}", host.name()));
        let robots = blame.then_some(RobotsSays::Unreachable);
        let not_before = blame.then_some(at + self.backoff);
        judge.depart(&arrival, &Departure { robots, not_before, ..Departure::default() });
    }
}

/// Listens on a port of all loopback addresses, and of no others.
pub(super) fn listen(what: &'static str, port: u16) -> Result<TcpListener, WebError> {
    let listen = || -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        // Where the system does not allow this, peers that are not on the loopback network are refused one by one.
        let _ = socket.bind_device(Some(b"lo"));
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    listen().map_err(|source| WebError::Listen { what, port, source })
}

/// Serves until nobody can call any more. The body of the web's thread.
pub(super) fn run(
    server: &Arc<Server>,
    (http, https, dns): (TcpListener, TcpListener, dns::Sockets),
    ready: oneshot::Sender<io::Result<()>>,
    mut calls: UnboundedReceiver<std::sync::mpsc::Sender<()>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        let start = || -> io::Result<()> {
            let http = tokio::net::TcpListener::from_std(http)?;
            let https = tokio::net::TcpListener::from_std(https)?;
            let udp = tokio::net::UdpSocket::from_std(dns.udp)?;
            let tcp = tokio::net::TcpListener::from_std(dns.tcp)?;
            let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            tokio::spawn(accept(Arc::clone(server), http, false, Arc::clone(&room)));
            tokio::spawn(accept(Arc::clone(server), https, true, room));
            tokio::spawn(dns::serve_udp(Arc::clone(server), udp));
            tokio::spawn(dns::serve_tcp(Arc::clone(server), tcp));
            Ok(())
        };
        let started = start();
        let failed = started.is_err();
        if ready.send(started).is_err() || failed {
            return;
        }
        while let Some(call) = calls.recv().await {
            // A timer makes the runtime look for events first: what the kernel already has counts as done.
            sleep(Duration::from_millis(2)).await;
            // Who called may have stopped waiting.
            let _ = call.send(());
        }
    });
}

async fn accept(server: Arc<Server>, listener: tokio::net::TcpListener, https: bool, room: Arc<Semaphore>) {
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) if peer.ip().is_loopback() => {
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    connection(server, stream, https).await;
                    drop(place);
                });
            }
            Ok(_) => {}
            // No descriptors left, most likely: some connection has to end first.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn connection(server: Arc<Server>, stream: TcpStream, https: bool) {
    let Ok(SocketAddr::V4(local)) = stream.local_addr() else { return };
    let local = *local.ip();
    let _ = stream.set_nodelay(true);
    if local.octets()[1] >= 128 {
        server.judge().violate(Violation::Private, || format!("connect to {local}"));
        return;
    }
    let at = server.now();
    let by_address = server.plan.by_address(local);
    match by_address.map_or(Connect::Serve, |host| host.kind.connect) {
        Connect::Reset => {
            if let Some(host) = by_address {
                server.connect_failed(&host, https, local, at, true);
            }
            let _ = stream.set_zero_linger();
        }
        connect @ (Connect::Garbage | Connect::OldTls | Connect::CloseTls) if https => {
            if let Some(host) = by_address {
                refuse_tls(&server, stream, &host, local, connect).await;
            }
        }
        _ if https => {
            let Ok(accepted) = timeout(HANDSHAKE_MAX, handshake(&server, stream, local)).await else {
                return;
            };
            if let Some(stream) = accepted {
                Connection::new(server, Stream::Tls(Box::new(stream)), local, https).serve().await;
            }
        }
        _ => Connection::new(server, Stream::Plain(stream), local, https).serve().await,
    }
}

/// Answers the TLS hello with something that ends it.
async fn refuse_tls(
    server: &Server,
    mut stream: TcpStream,
    host: &Host<'_>,
    local: Ipv4Addr,
    connect: Connect,
) {
    let mut hello = [0; 4096];
    if !matches!(timeout(HANDSHAKE_MAX, stream.read(&mut hello)).await, Ok(Ok(1..))) {
        return;
    }
    server.connect_failed(host, true, local, server.now(), true);
    let words: &[u8] = match connect {
        Connect::Garbage => b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        // Alert, of TLS 1.0: fatal, protocol version.
        Connect::OldTls => &[21, 3, 1, 0, 2, 2, 70],
        _ => &[],
    };
    let _ = stream.write_all(words).await;
    let _ = stream.shutdown().await;
}

async fn handshake(server: &Server, stream: TcpStream, local: Ipv4Addr) -> Option<TlsStream<TcpStream>> {
    stream.readable().await.ok()?;
    let at = server.now();
    let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await.ok()?;
    let name = start.client_hello().server_name().map(str::to_owned);
    let name = name.unwrap_or_else(|| CONTROL_NAME.to_owned());
    let host = server.plan.by_name(&name);
    let certificate = host.map_or(Certificate::Valid, |host| host.kind.certificate);
    let config = server.tls.config(&name, certificate).ok()?;
    match (start.into_stream(config).await, host) {
        (Ok(stream), _) => Some(stream),
        (Err(_), Some(host)) => {
            server.connect_failed(&host, true, local, at, certificate != Certificate::Valid);
            None
        }
        (Err(_), None) => None,
    }
}

enum Stream {
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

struct Connection {
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
    fn new(server: Arc<Server>, stream: Stream, local: Ipv4Addr, https: bool) -> Connection {
        let buffer = Vec::with_capacity(4_096);
        Connection { server, stream, local, https, buffer, arrived: 0, requests: 0, host: None }
    }

    async fn serve(mut self) {
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
