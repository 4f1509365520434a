//! Makes the requests that the core orders, and says what came of them.
//!
//! A [`Fetcher`] decides nothing: where to, when and how often is in the order. It promises that
//! - what is captured is what went over the wire, byte for byte, below TLS and above HTTP (of HTTP/2, what it would have
//!   been in HTTP/1.1);
//! - `ended` is taken when the last byte came, before anything is decoded or parsed;
//! - no address is connected to that [`Private`] refuses;
//! - every fetch ends: at a limit of its size, at [`FetchConfig::request_timeout`], or when it is abandoned;
//! - memory is bounded: bodies in flight and not yet archived share [`FetchConfig::memory_bytes`], larger ones go to
//!   files, and decoding and parsing happen one long body at a time.
//!
//! It runs on one thread: inside a [`tokio::task::LocalSet`] of a current-thread runtime.

mod connect;
pub mod decode;
mod exchange;
pub mod head;
mod http2;
mod pool;
mod read;
mod record;
mod signatures;
mod wire;

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, FROM, HOST, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    USER_AGENT,
};
use http::{Request, Uri};
use http_body_util::Empty;
use nephila_archive::Content;
use nephila_core::agent::{Answer, Cut, FetchError, Fetched, Order, Purpose};
use nephila_core::record::Failure;
use nephila_core::settings::Private;
use nephila_core::time::{Mono, Now, Wall};
use nephila_core::url::{Host, Origin};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::HostHeader;
use connect::{Connected, Connector};
use decode::DecodeLimits;
use exchange::{ExchangeLimits, Exchanged, Manner};
use pool::Pool;
use read::Reader;
pub(crate) use read::read_archived;
pub use record::Reservation;
use record::{Recording, Store};

const ACCEPT_VALUE: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const ACCEPT_ENCODING_VALUE: &str = "gzip, deflate, br, zstd";

/// How requests are made. The defaults are those of docs/behaviour.md.
#[derive(Clone, Debug)]
pub struct FetchConfig {
    /// The shard that fetches.
    pub shard: u16,
    /// The User-Agent header.
    pub user_agent: String,
    /// Headers for certain hosts only.
    pub host_headers: Vec<HostHeader>,
    /// The From header: the operator's address.
    pub from: Option<String>,
    /// The product token that X-Robots-Tag and meta robots may address us by.
    pub token: String,
    /// Certificates, as PEM, that are trusted besides the usual ones.
    pub ca_pem: Option<Vec<u8>>,
    /// Servers whose TLS sessions are kept to be resumed; 0 for none.
    pub tls_sessions_max: usize,
    /// Which addresses that are not globally reachable may be asked.
    pub private: Private,
    /// The addresses of this machine that connections are made from, at most one of each kind; the system chooses otherwise.
    pub bind: Vec<IpAddr>,
    /// For all attempts to connect together, and again for the TLS handshake.
    pub connect_timeout: Duration,
    /// From the first attempt to connect to the last byte.
    pub request_timeout: Duration,
    /// From the end of the head to when the body has to be as fast as below.
    pub slow_after: Duration,
    /// The least average speed of a body, in bytes a second; 0 for none.
    pub slow_bytes_per_s: u64,
    /// The largest body that is taken, in bytes as sent, chunking not counted.
    pub body_bytes_max: u64,
    /// The largest head.
    pub head_bytes_max: usize,
    /// Media types whose bodies are taken, such as `text/html` or `image/*`; empty for all. HTML always is.
    pub accept: Vec<String>,
    /// Memory for bodies in flight and not yet archived.
    pub memory_bytes: usize,
    /// The size above which a body goes to a file.
    pub spill_bytes: usize,
    /// Where such files are made. They have no name and are gone with the process.
    pub spill_dir: PathBuf,
    /// The most bytes that a body is decoded to.
    pub decode_bytes_max: usize,
    /// The most times that decoding may enlarge a body.
    pub decode_ratio_max: usize,
    /// Connections that are kept open for the next request.
    pub idle_connections_max: usize,
    /// For how long.
    pub idle_timeout: Duration,
    /// Until when anybody may be asked, by the monotonic clock in microseconds. It is looked at last before a request is sent.
    pub lease_until: Arc<AtomicU64>,
}

impl Default for FetchConfig {
    fn default() -> FetchConfig {
        FetchConfig {
            shard: 0,
            user_agent: format!("Mozilla/5.0 (compatible; nephila/{})", env!("CARGO_PKG_VERSION")),
            host_headers: Vec::new(),
            from: None,
            token: "nephila".into(),
            ca_pem: None,
            tls_sessions_max: 2_048,
            private: Private::Refused,
            bind: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            slow_after: Duration::from_secs(10),
            slow_bytes_per_s: 1_024,
            body_bytes_max: 16 << 20,
            head_bytes_max: 64 << 10,
            accept: Vec::new(),
            memory_bytes: 256_000_000,
            spill_bytes: 256_000,
            spill_dir: std::env::temp_dir(),
            decode_bytes_max: 64 << 20,
            decode_ratio_max: 100,
            idle_connections_max: 2_048,
            idle_timeout: Duration::from_secs(30),
            lease_until: Arc::new(AtomicU64::new(Mono::NEVER.0)),
        }
    }
}

/// Why a fetcher cannot be made of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The certificates given are of no use.
    #[error("the additional certificates cannot be used: {0}")]
    Ca(String),
    /// TLS refuses to be set up.
    #[error("tls cannot be set up")]
    Tls(#[source] rustls::Error),
    /// Connections cannot be made from where they should be.
    #[error("cannot send from {0}: name an address of this machine with `bind-address`")]
    Bind(IpAddr, #[source] std::io::Error),
    /// A header cannot hold the text that is meant for it.
    #[error("{text:?} cannot be sent as {name}")]
    Header {
        /// The header.
        name: &'static str,
        /// The text.
        text: String,
    },
}

/// What came of a request.
pub struct Outcome {
    /// For the core.
    pub fetched: Fetched,
    /// For the archive: there if and only if there is an answer.
    pub capture: Option<Captured>,
    /// Why this machine could not keep what was received. It could not keep the next answer either, so nobody should be
    /// asked for one.
    pub unkept: Option<io::Error>,
}

/// What went over the wire.
pub struct Captured {
    /// The shard that fetched it.
    pub shard: u16,
    /// The request as sent.
    pub request: Vec<u8>,
    /// The answer as received: interim heads, chunking and content coding included, and what the server may have sent
    /// behind its end.
    pub response: Content,
    /// They went over HTTP/2, and are given here as they would be in HTTP/1.1.
    pub http2: bool,
    /// The address at the other end.
    pub address: IpAddr,
    /// When the request, or the first attempt to connect for it, was begun.
    pub at: Wall,
    /// Whether and why the body is not whole.
    pub cut: Option<Cut>,
    /// The memory that `response` takes of the budget: to be dropped together with it.
    pub reservation: Option<Reservation>,
}

/// Makes requests.
pub struct Fetcher {
    shard: u16,
    store: Rc<Store>,
    connector: Connector,
    pool: Pool,
    reader: Reader,
    limits: ExchangeLimits,
    request_timeout: Duration,
    /// The headers that all requests have.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Those that requests to one host have.
    host_headers: Vec<HostHeader>,
    lease_until: Arc<AtomicU64>,
}

/// What is known of a request while it is under way, and stays known when it is broken off.
#[derive(Default)]
struct Progress {
    started: Option<Now>,
    contacted: Vec<IpAddr>,
}

/// An answer that was received.
struct Received {
    recording: Recording,
    cut: Option<Cut>,
    address: IpAddr,
    http2: bool,
}

/// A connection on which nothing is under way, by what is spoken over it.
#[derive(Debug)]
enum Connection {
    Http1(exchange::Connection),
    Http2(http2::Connection),
}

impl Connection {
    async fn open(
        connected: Connected,
        limits: &ExchangeLimits,
        deadline: Instant,
    ) -> Result<Connection, FetchError> {
        let Connected { wire, address, http2 } = connected;
        Ok(if http2 {
            Connection::Http2(http2::Connection::open(wire, address, limits, deadline).await?)
        } else {
            Connection::Http1(exchange::Connection::new(wire, address))
        })
    }

    fn address(&self) -> IpAddr {
        match self {
            Connection::Http1(connection) => connection.address(),
            Connection::Http2(connection) => connection.address(),
        }
    }

    /// Whether it may be used again, as far as anybody can know before.
    fn is_usable(&mut self) -> bool {
        match self {
            Connection::Http1(connection) => connection.is_quiet(),
            Connection::Http2(connection) => connection.is_quiet(),
        }
    }

    async fn exchange(
        self,
        request: Request<Empty<Bytes>>,
        recording: Recording,
        limits: &ExchangeLimits,
        deadline: Instant,
        manner: Manner,
    ) -> Result<Exchanged<Connection>, FetchError> {
        fn wrap<C>(exchanged: Exchanged<C>, wrapper: fn(C) -> Connection) -> Exchanged<Connection> {
            let Exchanged { recording, cut, connection } = exchanged;
            Exchanged { recording, cut, connection: connection.map(wrapper) }
        }
        Ok(match self {
            Connection::Http1(one) => {
                wrap(one.exchange(request, recording, limits, deadline, manner).await?, Connection::Http1)
            }
            Connection::Http2(two) => {
                wrap(two.exchange(request, recording, limits, deadline, manner).await?, Connection::Http2)
            }
        })
    }
}

impl Fetcher {
    /// A fetcher by this configuration.
    pub fn new(config: FetchConfig) -> Result<Rc<Fetcher>, SetupError> {
        let mut headers = vec![
            (ACCEPT, HeaderValue::from_static(ACCEPT_VALUE)),
            (ACCEPT_ENCODING, HeaderValue::from_static(ACCEPT_ENCODING_VALUE)),
        ];
        if let Some(from) = config.from {
            headers.insert(0, (FROM, header_value("From", from)?));
        }
        headers.insert(0, (USER_AGENT, header_value("User-Agent", config.user_agent)?));
        let decode_limits =
            DecodeLimits { bytes_max: config.decode_bytes_max, ratio_max: config.decode_ratio_max };
        let store = Rc::new(Store::new(config.memory_bytes, config.spill_bytes, config.spill_dir));
        Ok(Rc::new(Fetcher {
            shard: config.shard,
            connector: Connector::new(
                config.ca_pem.as_deref(),
                config.tls_sessions_max,
                config.private,
                config.bind,
                config.connect_timeout,
            )?,
            pool: Pool::new(config.idle_connections_max, config.idle_timeout),
            reader: Reader::new(Rc::clone(&store), &config.token, decode_limits),
            store,
            limits: ExchangeLimits {
                head_bytes_max: config.head_bytes_max,
                body_bytes_max: config.body_bytes_max,
                slow_after: config.slow_after,
                slow_bytes_per_s: config.slow_bytes_per_s,
                accept: config.accept,
            },
            request_timeout: config.request_timeout,
            headers,
            host_headers: config.host_headers,
            lease_until: config.lease_until,
        }))
    }

    /// Makes a request. If `abandon` is ready before the whole answer is there, the connection is closed and the fetch
    /// ends as not tried.
    pub async fn fetch(&self, order: &Order, abandon: impl Future<Output = ()>) -> Outcome {
        let mut progress = Progress::default();
        let received = {
            let asking = pin!(self.ask(order, &mut progress));
            tokio::select! {
                biased;
                () = abandon => Err(failed(Failure::NotTried, "abandoned")),
                received = asking => received,
            }
        };
        let now = Clock::now();
        let started = progress.started.unwrap_or(now);
        let (result, capture) = match received {
            Ok(received) => match self.read(order, received, started.wall, now.wall).await {
                Ok((answer, captured)) => (Ok(answer), Some(captured)),
                Err(error) => (Err(error), None),
            },
            Err(error) => (Err(error), None),
        };
        let fetched = Fetched {
            fetch: order.fetch,
            started: started.mono,
            ended: now.mono,
            contacted: progress.contacted,
            result,
        };
        Outcome { fetched, capture, unkept: self.store.failure.take() }
    }

    /// Everything up to the last byte.
    async fn ask(&self, order: &Order, progress: &mut Progress) -> Result<Received, FetchError> {
        let request = self.request(order)?;
        let origin = Origin::of(&order.url);
        let reservation = self.store.budget.first_block().await;
        self.check_begin(order.begin_before)?;
        let recording = Recording::new(Rc::clone(&self.store), reservation);
        let deadline = Instant::now() + self.request_timeout;
        let kept = self.kept_connection(&origin, order);
        let reused = kept.is_some();
        progress.started = Some(Clock::now());
        let connection = match kept {
            Some(connection) => {
                progress.contacted.push(connection.address());
                connection
            }
            None => {
                let (addresses, contacted) = (&order.addresses, &mut progress.contacted);
                let connected =
                    self.connector.connect(&origin, addresses, deadline, &self.pool, contacted).await?;
                Connection::open(connected, &self.limits, deadline).await?
            }
        };
        // If this process stood still meanwhile, others may ask the host by now.
        self.check_begin(Mono(self.lease_until.load(Ordering::Relaxed)))?;
        let address = connection.address();
        let http2 = matches!(connection, Connection::Http2(_));
        let manner = Manner { reused, choosy: order.purpose == Purpose::Page };
        let exchanged = connection.exchange(request, recording, &self.limits, deadline, manner).await?;
        let Exchanged { recording, cut, connection } = exchanged;
        if let Some(connection) = connection {
            self.pool.put(origin, connection);
        }
        Ok(Received { recording, cut, address, http2 })
    }

    /// Whether a request that may begin until then still may.
    fn check_begin(&self, until: Mono) -> Result<(), FetchError> {
        if Clock::now().mono < until {
            return Ok(());
        }
        Err(failed(Failure::NotTried, "it waited for too long to begin"))
    }

    /// A connection that is open already and may be used.
    fn kept_connection(&self, origin: &Origin, order: &Order) -> Option<Connection> {
        // One that is not used is closed: there is one connection to a host at a time.
        let kept = self.pool.take(origin, &order.addresses);
        let mut connection = kept.filter(|_| !order.new_connection)?;
        (self.connector.allows(connection.address()) && connection.is_usable()).then_some(connection)
    }

    async fn read(
        &self,
        order: &Order,
        received: Received,
        started: Wall,
        now: Wall,
    ) -> Result<(Answer, Captured), FetchError> {
        let Received { mut recording, cut, address, http2 } = received;
        let mut request = std::mem::take(&mut recording.sent);
        for header in self.headers_of(order) {
            blank(&mut request, header.value.as_bytes());
        }
        let (wire, reservation) = recording.into_content();
        let (mut answer, response) =
            self.reader.read(order.url.clone(), order.purpose.clone(), wire, now).await?;
        answer.cut = cut;
        let shard = self.shard;
        Ok((answer, Captured { shard, request, response, http2, address, at: started, cut, reservation }))
    }

    /// The headers that are for this host alone.
    fn headers_of(&self, order: &Order) -> impl Iterator<Item = &HostHeader> {
        let host = Host::name_of(&order.url);
        self.host_headers.iter().filter(move |header| header.host.as_str() == host)
    }

    fn request(&self, order: &Order) -> Result<Request<Empty<Bytes>>, FetchError> {
        let url = &order.url;
        let unfit = |error: &dyn Display| {
            failed(Failure::Malformed, format_args!("{url} cannot be asked for: {error}"))
        };
        let target =
            url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let uri = Uri::try_from(target).map_err(|error| unfit(&error))?;
        let name = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::try_from(host).map_err(|error| unfit(&error))?);
        headers.extend(self.headers.iter().cloned());
        for HostHeader { name, value, .. } in self.headers_of(order) {
            headers.insert(name.clone(), value.clone());
        }
        if let Purpose::Robots { etag, last_modified } = &order.purpose {
            for (name, value) in [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, last_modified)] {
                // One that cannot be sent back costs no more than an answer that could have been shorter.
                let value = value.as_deref().and_then(|value| HeaderValue::from_str(value).ok());
                headers.extend(value.map(|value| (name, value)));
            }
        }
        Ok(request)
    }
}

/// Makes a secret unreadable in a request that is kept.
fn blank(request: &mut [u8], secret: &[u8]) {
    if secret.is_empty() {
        return;
    }
    let mut from = 0;
    while let Some(at) = request[from..].windows(secret.len()).position(|window| window == secret) {
        request[from + at..from + at + secret.len()].fill(b'*');
        from += at + secret.len();
    }
}

fn header_value(name: &'static str, text: String) -> Result<HeaderValue, SetupError> {
    HeaderValue::from_str(&text).map_err(|_| SetupError::Header { name, text })
}

fn failed(failure: Failure, detail: impl Display) -> FetchError {
    FetchError { failure, detail: detail.to_string() }
}
