//! The web's thread: listeners, what all connections share, and how connections begin.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use rustls::HandshakeKind;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Semaphore, mpsc::UnboundedReceiver, oneshot},
    time::{sleep, timeout},
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use super::{
    WebError, dns,
    exchange::{Connection, Stream},
    http2,
    judge::{Arrival, Departure, Judge, Manners, Violation, nanos},
    kinds::{self, Certificate, Connect},
    plan::{Host, Plan, Rule},
    reply::{RobotsSays, Wait},
    session::Session,
    tls::{Terms, Tls},
    verdict::{Verdict, verdict},
};

/// The name under which the web speaks of itself; bare addresses do too.
pub(super) const CONTROL_NAME: &str = "lab.test";
const BACKLOG: i32 = 4_096;
const CONNECTIONS_MAX: usize = 50_000;
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(60);
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
        let tls = Tls::new(config.tls_resumption)?;
        Ok(Server { plan, tls, judge, clock: Instant::now(), backoff })
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

    pub(super) fn now(&self) -> u64 {
        nanos(self.clock.elapsed())
    }

    /// When the host may be asked again, after an answer that ended at `end`.
    pub(super) fn not_before(&self, wait: Option<Wait>, end: u64) -> Option<u64> {
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
        kinds::prepare(&server.plan);
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
                    server.judge().connected();
                    connection(Arc::clone(&server), stream, https).await;
                    server.judge().disconnected();
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
    let Ok(peer) = stream.peer_addr() else { return };
    let (local, peer) = (*local.ip(), peer.ip());
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
            let Some((stream, http2)) = accepted else { return };
            if let Some(host) = by_address.filter(|host| host.kind.connect == Connect::FloodHttp2) {
                server.connect_failed(&host, https, local, server.now(), true);
                http2::flood(&server, &host, stream).await;
            } else if http2 {
                // Boxed, so that connections without it are not as large.
                Box::pin(http2::serve(Session::new(server, (local, peer), https), stream)).await;
            } else {
                Connection::new(Session::new(server, (local, peer), https), Stream::Tls(Box::new(stream)))
                    .serve()
                    .await;
            }
        }
        _ => Connection::new(Session::new(server, (local, peer), https), Stream::Plain(stream)).serve().await,
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

/// A TLS session, and whether HTTP/2 is spoken over it.
async fn handshake(
    server: &Server,
    stream: TcpStream,
    local: Ipv4Addr,
) -> Option<(TlsStream<TcpStream>, bool)> {
    stream.readable().await.ok()?;
    let at = server.now();
    let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await.ok()?;
    let name = start.client_hello().server_name().map(str::to_owned);
    let name = name.unwrap_or_else(|| CONTROL_NAME.to_owned());
    let host = server.plan.by_name(&name);
    let certificate = host.map_or(Certificate::Valid, |host| host.kind.certificate);
    let http2 =
        host.is_some_and(|host| matches!(host.kind.connect, Connect::OnlyHttp2 | Connect::FloodHttp2));
    let config = server.tls.config(&name, Terms { certificate, http2 }).ok()?;
    match (start.into_stream(config).await, host) {
        (Ok(stream), _) => {
            let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            server.judge().handshake(resumed);
            Some((stream, http2))
        }
        (Err(_), Some(host)) => {
            server.connect_failed(&host, true, local, at, certificate != Certificate::Valid);
            None
        }
        (Err(_), None) => None,
    }
}
