//! The synthetic web: a seeded web of many hosts on the loopback network, and a judge of who crawls it.
//!
//! Hosts have names under the reserved `.test`, addresses in 127.0.0.0/9 (most have one of their own, some share one)
//! and a [kind](kinds): plain, or wrong in one particular way. A DNS server answers for their names, one listener serves
//! all of them over HTTP, another over HTTPS with the web's own root certificate.
//!
//! It promises:
//! - **Nothing is stored.** Names, addresses, pages and links are pure functions of the seed and the numbers of host and
//!   page ([`plan`]); only what was asked for is remembered, a few bytes a URL ([`judge`]).
//! - **Same seed, same web**, byte for byte, ports included where they are given.
//! - **The judge has no tolerance** and needs none: every time it takes errs in favour of the crawler.
//! - **It never leaves the machine**: the listeners take connections of the loopback device only.
//!
//! Everything runs on one thread of its own, so that what the judge sees has one order.

mod control;
mod dns;
mod exchange;
mod http2;
pub mod judge;
pub mod kinds;
pub mod plan;
mod reply;
mod server;
mod session;
mod text;
mod tls;
mod verdict;

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    str::FromStr,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::sync::{
    mpsc::{UnboundedSender, unbounded_channel},
    oneshot,
};

pub use reply::{Reply, Step};
pub use verdict::{KindVerdict, Tally, Verdict};

use plan::Plan;
use server::Server;

/// What kind of web to serve, and how the crawler under judgement is configured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    /// Everything is computed from this number.
    pub seed: u64,
    /// How many hosts there are, of all kinds.
    pub hosts: u32,
    /// How many ordinary pages a host has; some kinds have fewer, most have a few special ones besides.
    pub pages: u32,
    /// Which kinds of host there are.
    pub kinds: Kinds,
    /// Port for HTTP; 0 takes a free one.
    pub http_port: u16,
    /// Port for HTTPS; 0 takes a free one.
    pub https_port: u16,
    /// Port for DNS, UDP and TCP; 0 takes a free one.
    pub dns_port: u16,
    /// A host takes between so many milliseconds to answer, before `time_scale`.
    pub latency_ms: (u32, u32),
    /// How many places hosts are at, by turns. Who asks from [`asker`] is at that place,
    pub places: u32,
    /// and hosts of another place are so far away from there, back and forth, in milliseconds: a request takes longer by it, and
    /// the first on a connection by twice of it.
    pub far_ms: u64,
    /// How fast an answer is sent over HTTP/1.1; 0 is as fast as possible.
    pub bandwidth_bytes_s: u64,
    /// How large ordinary pages are.
    pub page_bytes: PageBytes,
    /// Links of an ordinary page beyond those that make every page reachable, on average.
    pub links_per_page: u32,
    /// How many in a hundred plain hosts are served over HTTPS.
    pub https_percent: u32,
    /// TLS sessions can be resumed by later connections.
    pub tls_resumption: bool,
    /// How many hosts the seed list names; 0 names all.
    pub seeds: u32,
    /// Every duration that the web asks of a crawler, or takes itself, is divided by this.
    pub time_scale: f64,
    /// The crawler's delay between requests to a host, as configured (not divided by `time_scale`).
    pub delay_ms: u64,
    /// The crawler's delay between requests to an address, as configured (not divided by `time_scale`).
    pub ip_delay_ms: u64,
    /// How many requests at once the crawler may have at an address.
    pub ip_parallel: u32,
    /// The crawler's limit of pages a host, which bounds what traps may cost.
    pub max_host_pages: u64,
    /// The crawler's product token, named in robots.txt files.
    pub agent: String,
}

impl Default for WebConfig {
    fn default() -> Self {
        WebConfig {
            seed: 1,
            hosts: 2_000,
            pages: 50,
            kinds: Kinds::All,
            http_port: 0,
            https_port: 0,
            dns_port: 0,
            latency_ms: (2, 40),
            places: 1,
            far_ms: 0,
            bandwidth_bytes_s: 0,
            page_bytes: PageBytes::Web,
            links_per_page: 10,
            https_percent: 25,
            tls_resumption: true,
            seeds: 0,
            time_scale: 1.0,
            delay_ms: 1_000,
            ip_delay_ms: 250,
            ip_parallel: 1,
            max_host_pages: 100_000,
            agent: "nephila".to_owned(),
        }
    }
}

impl WebConfig {
    /// A duration of the web, divided by the time scale.
    pub fn scaled(&self, duration: Duration) -> Duration {
        duration.div_f64(self.time_scale)
    }

    fn check(&self) -> Result<(), WebError> {
        let wrong = |what: &str| Err(WebError::Config(what.to_owned()));
        if !(self.time_scale.is_finite() && self.time_scale >= 0.001) {
            return wrong("time_scale must be a number of at least 0.001");
        }
        if self.hosts == 0 || self.hosts > plan::HOSTS_MAX {
            return wrong("hosts must be between 1 and 1,000,000");
        }
        if self.pages == 0 || self.pages > plan::PAGES_MAX {
            return wrong("pages must be between 1 and 10,000,000");
        }
        if self.places == 0 {
            return wrong("places must be at least 1: hosts are somewhere");
        }
        if self.latency_ms.0 > self.latency_ms.1 {
            return wrong("latency_ms must be a range from low to high");
        }
        Ok(())
    }
}

/// The first place's.
const FIRST_ASKER: Ipv4Addr = Ipv4Addr::new(127, 200, 0, 1);

/// The address that a crawler at a place asks from.
pub fn asker(place: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(FIRST_ASKER).wrapping_add(place))
}

/// Which kinds of host a web has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kinds {
    /// All there are; every third host is plain.
    All,
    /// Only those of these names, in turn.
    Only(Vec<String>),
}

impl FromStr for Kinds {
    type Err = WebError;

    fn from_str(text: &str) -> Result<Self, WebError> {
        if text == "all" {
            return Ok(Kinds::All);
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        match names.iter().find(|name| kinds::find(name).is_none()) {
            Some(unknown) => Err(WebError::UnknownKind(unknown.clone())),
            None => Ok(Kinds::Only(names)),
        }
    }
}

impl TryFrom<String> for Kinds {
    type Error = WebError;

    fn try_from(text: String) -> Result<Self, WebError> {
        text.parse()
    }
}

impl From<Kinds> for String {
    fn from(kinds: Kinds) -> String {
        match kinds {
            Kinds::All => "all".to_owned(),
            Kinds::Only(names) => names.join(","),
        }
    }
}

/// How large ordinary pages are, before any content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageBytes {
    /// All the same (or a little more, where the links need it).
    Fixed(u32),
    /// As on the web: log-normal, median 25 KB, up to 4 MB.
    Web,
}

impl FromStr for PageBytes {
    type Err = WebError;

    fn from_str(text: &str) -> Result<Self, WebError> {
        match (text, text.parse()) {
            ("web", _) => Ok(PageBytes::Web),
            (_, Ok(bytes)) => Ok(PageBytes::Fixed(bytes)),
            _ => {
                Err(WebError::Config(format!("page_bytes must be `web` or a number of bytes, not {text:?}")))
            }
        }
    }
}

/// Why the web could not be served.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// A setting has no sense.
    #[error("lab web: {0}")]
    Config(String),
    /// There is no kind of host of this name.
    #[error("no kind of host is called {0:?}: `nephila lab web --list-kinds` lists them; `all` means all")]
    UnknownKind(String),
    /// A port could not be had.
    #[error("cannot listen on port {port} for {what}")]
    Listen {
        /// What the port is for.
        what: &'static str,
        /// The port that was asked for.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// The thread or a file could not be made.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// No certificates could be made.
    #[error("cannot make certificates")]
    Certificates(#[from] rcgen::Error),
    /// No TLS settings could be made.
    #[error("cannot set up tls")]
    Tls(#[from] rustls::Error),
}

/// What a web has seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Requests in all, robots.txt and connects that failed included.
    pub requests: u64,
    /// Requests for robots.txt, for what it redirects to, and connects that failed.
    pub robots_requests: u64,
    /// Requests for what had been served.
    pub overlap: u64,
    /// The connections that they came over.
    pub connections: judge::Connections,
}

/// A host's latest exchange. Times are nanoseconds of the web's clock ([`Web::now`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Latest {
    /// How many requests the host has had.
    pub requests: u64,
    /// When the last of them arrived.
    pub arrived: u64,
    /// When its answer ended: just before the last write, and at its arrival if nothing was written. Nothing while it goes on.
    pub ended: Option<u64>,
}

/// A web that is being served, until it is dropped or [shut down](Web::shutdown).
#[derive(Debug)]
pub struct Web {
    /// Where HTTP is answered, on every address of 127.0.0.0/8.
    pub http_port: u16,
    /// Where HTTPS is answered, on every address of 127.0.0.0/8.
    pub https_port: u16,
    /// Where DNS is answered, UDP and TCP.
    pub dns_addr: SocketAddr,
    /// The root certificate that a crawler has to trust, as PEM.
    pub ca_pem: String,
    server: Arc<Server>,
    /// Each sender sent to the web's thread is answered; the thread ends when this is dropped.
    calls: Option<UnboundedSender<std::sync::mpsc::Sender<()>>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts to serve a web. Its listeners accept connections when this returns.
pub async fn serve(config: WebConfig) -> Result<Web, WebError> {
    config.check()?;
    raise_descriptor_limit();
    let http = server::listen("http", config.http_port)?;
    let https = server::listen("https", config.https_port)?;
    let dns = dns::bind(config.dns_port)?;
    let port_of = |listener: &std::net::TcpListener, what| match listener.local_addr() {
        Ok(address) => Ok(address.port()),
        Err(source) => Err(WebError::Listen { what, port: 0, source }),
    };
    let (http_port, https_port) = (port_of(&http, "http")?, port_of(&https, "https")?);
    let dns_addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port_of(&dns.tcp, "dns")?));
    let plan = Plan::new(WebConfig { http_port, https_port, dns_port: dns_addr.port(), ..config })?;
    let server = Arc::new(Server::new(plan)?);
    let ca_pem = server.tls.root_pem();

    let (calls, called) = unbounded_channel();
    let (ready, is_ready) = oneshot::channel();
    let serving = Arc::clone(&server);
    let thread = std::thread::Builder::new()
        .name("lab-web".to_owned())
        .spawn(move || server::run(&serving, (http, https, dns), ready, called))
        .map_err(|source| WebError::Io { what: "start the web's thread".to_owned(), source })?;
    match is_ready.await {
        Ok(Ok(())) => {}
        Ok(Err(source)) => return Err(WebError::Io { what: "run the web's thread".to_owned(), source }),
        Err(_) => return Err(WebError::Config("the web's thread ended at once".to_owned())),
    }
    Ok(Web { http_port, https_port, dns_addr, ca_pem, server, calls: Some(calls), thread: Some(thread) })
}

/// Every host may have a connection open, so as many descriptors as the system allows are wanted. Where it does not, some
/// connections wait.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

impl Web {
    /// The URLs to start from.
    pub fn seeds(&self) -> Vec<String> {
        self.server.plan.seeds()
    }

    /// What this web is: names, addresses, pages, and what is expected of a crawler.
    pub fn plan(&self) -> &Plan {
        &self.server.plan
    }

    /// What the judge says of everything since the start or the last [reset](Web::reset).
    pub fn verdict(&self) -> Verdict {
        self.catch_up();
        self.server.verdict()
    }

    /// What there was so far, without any judgement: cheap, however many pages there are.
    pub fn seen(&self) -> Seen {
        self.catch_up();
        let judge = self.server.judge();
        Seen {
            requests: judge.requests,
            robots_requests: judge.robots_requests,
            overlap: judge.overlap(),
            connections: judge.connections,
        }
    }

    /// What was last asked of each host that was asked anything, by [`plan::Host::key`].
    pub fn latest(&self) -> HashMap<u64, Latest> {
        self.catch_up();
        self.server.judge().hosts.iter().map(|(key, host)| (*key, host.latest())).collect()
    }

    /// What the web's clock shows, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.server.now()
    }

    /// Makes the judge, and whatever answers differently the second time, forget all that was asked.
    pub fn reset(&self) {
        self.catch_up();
        self.server.reset();
    }

    /// The XXH3 hash of the bytes of the last whole answer to a URL, head and body as they went over the wire (inside
    /// TLS), if there was one.
    pub fn digest(&self, url: &str) -> Option<u64> {
        self.catch_up();
        self.server.digest(url)
    }

    /// The same for every URL that had a whole answer, by its identity ([`plan::Target::key`]).
    pub fn digests(&self) -> HashMap<u64, u64> {
        self.catch_up();
        let judge = self.server.judge();
        judge.urls.iter().map(|(key, url)| (*key, url.digest)).filter(|(_, digest)| *digest != 0).collect()
    }

    /// URLs asked for after a whole, final answer to them, in the order of the requests, as far as they are remembered.
    pub fn repeats(&self) -> Vec<String> {
        self.catch_up();
        self.server.judge().repeats.iter().map(|(_, url)| url.clone()).collect()
    }

    /// The command line, after `nephila crawl`, that crawls this web as it is configured, given where its two files were
    /// written.
    pub fn crawl_options(&self, ca: &Path, seeds: &Path) -> String {
        let (config, usual) = (&self.server.plan.config, WebConfig::default());
        let mut options = format!(
            "--dns {} --ca {} --allow-private=127.0.0.0/9 --seeds {}",
            self.dns_addr,
            ca.display(),
            seeds.display()
        );
        if (config.delay_ms, config.ip_delay_ms) != (usual.delay_ms, usual.ip_delay_ms) {
            options += &format!(" --delay {}ms --ip-delay {}ms", config.delay_ms, config.ip_delay_ms);
        }
        if config.max_host_pages != usual.max_host_pages {
            options += &format!(" --max-host-pages {}", config.max_host_pages);
        }
        options
    }

    /// Stops serving and waits for the end of it.
    pub fn shutdown(mut self) {
        self.end();
    }

    /// Waits until the web's thread has taken down what it just did: an answer can be read before it is judged.
    fn catch_up(&self) {
        let (done, is_done) = std::sync::mpsc::channel();
        if self.calls.as_ref().is_some_and(|calls| calls.send(done).is_ok()) {
            // An error means that the thread has ended, and with it all that could be waited for.
            let _ = is_done.recv();
        }
    }

    fn end(&mut self) {
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves a web until Ctrl-C or SIGTERM, and returns the verdict.
///
/// Writes `ca.pem` and `seeds.txt` into `dir`, then calls `on_ready` with the web and the `nephila crawl` command line
/// that crawls it.
pub fn run_blocking(
    config: WebConfig,
    dir: &Path,
    on_ready: impl FnOnce(&Web, &str),
) -> Result<Verdict, WebError> {
    let failed = |what: String| move |source| WebError::Io { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("start a runtime".to_owned()))?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        // Before anybody can know that the web is there.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed("watch for Ctrl-C".to_owned()))?;
        let mut terminate =
            signal(SignalKind::terminate()).map_err(failed("watch for SIGTERM".to_owned()))?;
        let web = serve(config).await?;
        let (ca, seeds) = (dir.join("ca.pem"), dir.join("seeds.txt"));
        std::fs::create_dir_all(dir).map_err(failed(format!("make the directory {}", dir.display())))?;
        std::fs::write(&ca, &web.ca_pem).map_err(failed(format!("write {}", ca.display())))?;
        let mut lines = web.seeds().join("\n");
        lines.push('\n');
        std::fs::write(&seeds, lines).map_err(failed(format!("write {}", seeds.display())))?;
        on_ready(&web, &format!("nephila crawl {}", web.crawl_options(&ca, &seeds)));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(web.verdict())
    })
}
