//! What a running agent tells Prometheus: figures of its status as text, over HTTP, at `/metrics`.
//!
//! No figure names a host that is crawled, and none has more rows than there are kinds of what it counts, or servers of a store
//! that agents share, so that the text is as short for a large crawl as for a small one. docs/metrics.md documents the names.
//! Whoever can connect can read: the operator chooses the address.

use std::convert::Infallible;
use std::fmt::{Display, Write};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nephila_core::agent::Status;
use nephila_store::redis::ServerFigures;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use crate::peers::handshakes::{Handshakes, Most};
use crate::peers::tasks;
use crate::shared::Health;
use crate::summary;

/// How many may ask at once; further ones are turned away. One address must not keep all others out.
const CONNECTIONS_MAX: Most = Most { of_one: 16, all: 64, kept: 16 };
/// Whose questions wait for the run.
const ASKED_MAX: usize = 8;
/// How long one of them may take in all.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head of a question; no smaller one is possible.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Those who ask for figures. Nobody is listened to any more when this is dropped.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    asked: mpsc::Receiver<oneshot::Sender<String>>,
    accepting: AbortHandle,
}

impl Metrics {
    /// Starts to listen.
    pub fn serve(address: SocketAddr) -> io::Result<Metrics> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let (ask, asked) = mpsc::channel(ASKED_MAX);
        let accepting = tokio::spawn(accept(listener, ask)).abort_handle();
        Ok(Metrics { address, asked, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the figures of now are to be sent, as [`text`] writes them, when somebody asks.
    pub async fn asked(&mut self) -> Option<oneshot::Sender<String>> {
        self.asked.recv().await
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, ask: mpsc::Sender<oneshot::Sender<String>>) {
    let room = Handshakes::new(CONNECTIONS_MAX);
    // They end with this task.
    let mut tasks = JoinSet::new();
    loop {
        let (stream, from) = tasks::accept(&listener, &mut tasks).await;
        let Some(place) = room.begin(from.ip()) else { continue };
        let ask = ask.clone();
        tasks.spawn(async move {
            // Whoever breaks off, or takes too long, gets no answer.
            let answered = tokio::time::timeout(CONNECTION_TIMEOUT, answer_one(stream, ask)).await;
            if let Ok(Ok(())) = answered {
                place.succeed();
            }
        });
    }
}

async fn answer_one(stream: TcpStream, ask: mpsc::Sender<oneshot::Sender<String>>) -> hyper::Result<()> {
    let service = service_fn(|request| {
        let ask = ask.clone();
        async move { Ok::<_, Infallible>(answer(&request, ask).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn answer(
    request: &Request<Incoming>,
    ask: mpsc::Sender<oneshot::Sender<String>>,
) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "the figures are at /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "figures can only be read\n");
    }
    let (reply, replied) = oneshot::channel();
    let figures = match ask.send(reply).await {
        Ok(()) => replied.await.ok(),
        Err(_) => None,
    };
    let Some(figures) = figures else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "the crawl is ending\n");
    };
    let mut response = Response::new(Full::from(figures));
    let content_type = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// The figures of an agent, `elapsed` after the beginning of its crawl, all runs together, and of the store that it shares.
pub fn text(status: &Status, elapsed: Duration, health: Option<Health>) -> String {
    let totals = &status.totals;
    let mut page = Page::default();
    page.info();
    for (name, about, value) in [
        ("pages", "URLs with a final answer, whatever its status", totals.pages),
        ("failed_urls", "URLs that failed for good", totals.failed),
        ("disallowed_urls", "URLs that robots.txt forbids", totals.disallowed),
        ("sent_urls", "URLs that other sites have written down", totals.sent),
        ("received_urls", "URLs that other sites have sent", totals.received),
        ("dropped_urls", "URLs of other sites that were left out, since too many waited", totals.dropped),
        ("claimed_hosts", "Hosts that were other sites' and are this one's", totals.claimed),
        ("granted_hosts", "Hosts of this site that other sites crawl, which are nearer", totals.granted),
        ("retries", "Attempts that are followed by another", totals.retries),
        ("received_bytes", "Bytes received, as on the wire", totals.bytes),
        ("requests", "Requests made, robots.txt and failed connections included", totals.requests),
        ("out_of_scope_links", "Links that were left aside because of the scope", totals.out_of_scope),
        ("trap_urls", "URLs that were left aside because they look like a trap", totals.traps),
    ] {
        page.one(&format!("{name}_total"), "counter", about, value);
    }
    page.one(
        "elapsed_seconds_total",
        "counter",
        "How long the crawl ran, all runs together",
        elapsed.as_secs_f64(),
    );
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];
    let mut answers = classes.map(|class| (class, 0));
    for (status, count) in &totals.statuses {
        let class = usize::from(status / 100).wrapping_sub(1).min(classes.len() - 1);
        answers[class].1 += count;
    }
    page.many("answers_total", "counter", "Final answers by class of status", "class", answers);
    let failures = totals.failures.iter().map(|(failure, count)| (failure.name(), *count));
    page.many("failed_attempts_total", "counter", "Attempts that failed, by kind", "kind", failures);
    for (name, about, value) in [
        ("known_urls", "URLs that the crawl knows", totals.known_urls),
        ("known_hosts", "Hosts that the crawl knows", totals.hosts),
        ("over_limit_urls", "URLs that a limit keeps out", totals.over_limit),
        ("queued_urls", "URLs known and not settled", status.queue),
        ("outgoing_urls", "URLs that wait for other sites", status.outgoing),
        ("outbox_full", "1 while too many wait for a site", status.outbox_full.into()),
        ("hosts_given_up", "Hosts that failed for so long that they were given up", status.given_up),
        ("requests_in_flight", "Requests under way", status.in_flight as u64),
        ("unsettled_records", "Records on their way to the disk", status.unsettled as u64),
        ("paused", "1 while the operator has it paused", status.paused.into()),
        ("stopping", "1 while it is about to end", status.stopping.into()),
    ] {
        page.one(name, "gauge", about, value);
    }
    let hosts = &status.hosts;
    let places = [
        ("idle", hosts.idle),
        ("ready", hosts.ready),
        ("fetching", hosts.fetching),
        ("delay", hosts.delay),
        ("address", hosts.address),
        ("resolving", hosts.resolving),
        ("robots", hosts.robots),
        ("backing_off", hosts.backing_off),
        ("retrying", hosts.retrying),
        ("blocked", hosts.blocked),
        ("leaving", hosts.leaving),
        ("outgoing", hosts.outgoing),
        ("claimed", hosts.claimed),
        ("held_up", hosts.held_up),
        ("away", hosts.away),
    ];
    page.many("hosts", "gauge", "Hosts by where they are", "place", places);
    if let Some(health) = health {
        page.health(&health);
    }
    page.process();
    page.0
}

/// The text, line by line.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, about: &str) {
        // A String takes everything.
        let _ = writeln!(self.0, "# HELP {name} {about}.\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, about: &str, value: impl Display) {
        let name = format!("nephila_{name}");
        self.head(&name, kind, about);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn many<R: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        about: &str,
        label: &str,
        rows: impl IntoIterator<Item = (R, V)>,
    ) {
        let name = format!("nephila_{name}");
        self.head(&name, kind, about);
        for (row, value) in rows {
            // In quotes, and what would end them is escaped as Prometheus wants it.
            let _ = writeln!(self.0, "{name}{{{label}={:?}}} {value}", row.as_ref());
        }
    }

    /// Of a store that agents share.
    fn health(&mut self, health: &Health) {
        let Health { store, waiting, fenced, lease_left, held, servers } = health;
        for (name, about, value) in [
            ("store_commits", "Commits to the store", store.commits),
            ("store_repeated_commits", "Commits sent again because their fate was unknown", store.repeated),
            ("store_lost_connections", "Connections to servers of the store that were lost", store.lost),
            ("store_moves", "Times that slots were served by another server than before", store.moved),
            ("fenced", "Times that this process lost its lease to others", *fenced),
        ] {
            self.one(&format!("{name}_total"), "counter", about, value);
        }
        let waited = store.waited.as_secs_f64();
        self.one("store_wait_seconds_total", "counter", "How long replicas were waited for", waited);
        self.one(
            "store_unserved_partitions",
            "gauge",
            "Partitions that no server serves now",
            store.unserved,
        );
        self.one("store_waiting_tasks", "gauge", "What is not done in the store, or not confirmed", waiting);
        self.one("lease_seconds", "gauge", "What is left of the lease", lease_left.as_secs_f64());
        self.one("held_partitions", "gauge", "Partitions that this agent holds", held);
        self.servers(servers);
    }

    /// What the servers of that store say of themselves.
    fn servers(&mut self, servers: &[ServerFigures]) {
        let mut rows = |name: &str, about: &str, figure: fn(&ServerFigures) -> Option<u64>| {
            let rows = servers.iter().filter_map(|of| Some((&of.node, figure(of)?)));
            self.many(&format!("store_server_{name}"), "gauge", about, "server", rows);
        };
        rows("memory_bytes", "Memory that a primary uses", |of| Some(of.memory_bytes));
        rows("memory_max_bytes", "Memory that it may use, or 0", |of| Some(of.memory_bytes_max));
        rows("replicas", "Replicas of it that are in step", |of| Some(of.replicas));
        rows("lag_bytes", "What the last of these has not confirmed yet", |of| of.lag_bytes);
    }

    fn info(&mut self) {
        let version = [(env!("CARGO_PKG_VERSION"), 1)];
        self.many("build_info", "gauge", "Which version runs", "version", version);
    }

    /// Under the names that all programs use.
    fn process(&mut self) {
        self.head("process_cpu_seconds_total", "counter", "Processor time of the process");
        let _ = writeln!(self.0, "process_cpu_seconds_total {}", summary::cpu().as_secs_f64());
        if let Some(bytes) = resident_bytes() {
            self.head("process_resident_memory_bytes", "gauge", "Memory that the process holds");
            let _ = writeln!(self.0, "process_resident_memory_bytes {bytes}");
        }
    }
}

/// The memory that this process holds, where the system tells.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nephila_core::agent::{HostCounts, Totals};
    use nephila_core::record::Failure;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn status() -> Status {
        let totals = Totals {
            pages: 12_345,
            statuses: BTreeMap::from([
                (99, 1),
                (200, 30),
                (204, 3),
                (404, 10),
                (599, 4),
                (999, 5),
                (65_535, 6),
            ]),
            failures: BTreeMap::from([(Failure::Dns, 2), (Failure::RobotsUnreachable, 30)]),
            ..Totals::default()
        };
        Status {
            totals,
            hosts: HostCounts { fetching: 1, away: 2_000, ..HostCounts::default() },
            queue: 7,
            outgoing: 0,
            outbox_full: false,
            backed_up: false,
            undecided: 0,
            given_up: 0,
            next_due_s: None,
            in_flight: 1,
            unsettled: 0,
            paused: true,
            stopping: false,
            store_away: false,
            unconfirmed: 0,
        }
    }

    /// Asks, and returns all that comes back.
    async fn ask(address: SocketAddr, question: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // It may break off while it is still being asked.
        let _ = stream.write_all(question).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    /// Connections over which nothing is asked.
    #[cfg(target_os = "linux")] // elsewhere a machine need not have two such addresses
    #[tokio::test(flavor = "current_thread")]
    async fn who_asks_nothing_keeps_nobody_out() {
        let mut metrics = Metrics::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = metrics.address();
        let mut silent = Vec::new();
        for _ in 0..40 {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
            silent.push(socket.connect(address).await.unwrap());
        }
        let asking =
            tokio::spawn(async move { ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await });
        let asked = tokio::time::timeout(CONNECTION_TIMEOUT / 2, metrics.asked()).await;
        asked.unwrap().unwrap().send("figures".to_owned()).unwrap();
        assert!(asking.await.unwrap().ends_with("figures"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn figures_are_served() {
        let mut metrics = Metrics::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = metrics.address();
        let answering = async {
            while let Some(reply) = metrics.asked().await {
                reply.send(text(&status(), Duration::from_millis(1_500), None)).unwrap();
            }
        };
        let asking = async {
            let page = ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
            for line in [
                "content-type: text/plain; version=0.0.4; charset=utf-8\r",
                "# TYPE nephila_pages_total counter",
                "nephila_pages_total 12345",
                "nephila_elapsed_seconds_total 1.5",
                "nephila_answers_total{class=\"2xx\"} 33",
                "nephila_answers_total{class=\"3xx\"} 0",
                "nephila_answers_total{class=\"5xx\"} 4",
                "nephila_answers_total{class=\"other\"} 12",
                "nephila_failed_attempts_total{kind=\"robots-unreachable\"} 30",
                "nephila_hosts{place=\"away\"} 2000",
                "nephila_paused 1",
                "nephila_stopping 0",
            ] {
                assert!(page.lines().any(|found| found == line.trim_end()), "{line} is not in {page}");
            }
            for (question, status) in [
                (&b"HEAD /metrics HTTP/1.0\r\n\r\n"[..], "200 OK"),
                (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "405 "),
                (b"GET /hosts HTTP/1.1\r\nHost: a\r\n\r\n", "404 "),
                (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400 "),
            ] {
                let answer = ask(address, question).await;
                assert_eq!(answer.get(9..9 + status.len()), Some(status), "{answer}");
            }
            // Ten million random bytes.
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            for _ in 0..160 {
                let word = || {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random.to_le_bytes()
                };
                let noise: Vec<u8> = std::iter::repeat_with(word).take(8_000).flatten().collect();
                ask(address, &noise).await;
            }
            let endless = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 1 << 20]].concat();
            assert!(ask(address, &endless).await.starts_with("HTTP/1.1 431 "));
            let again = ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert!(again.contains("nephila_pages_total 12345"), "{again}");
        };
        tokio::select! {
            () = answering => panic!("nobody can ask any more"),
            () = asking => {}
        }
    }

    /// As Prometheus wants it: each figure once, its rows together, and every name in docs/metrics.md.
    #[test]
    fn figures_are_well_formed_and_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let docs = std::fs::read_to_string(path).unwrap();
        let server = ServerFigures { node: "a:1".to_owned(), lag_bytes: Some(7), ..ServerFigures::default() };
        let health = Health { servers: vec![server], ..Health::default() };
        let text = text(&status(), Duration::ZERO, Some(health));
        assert!(text.contains("\nnephila_store_server_lag_bytes{server=\"a:1\"} 7\n"), "{text}");
        let mut heads = std::collections::BTreeSet::new();
        let mut name = "";
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# HELP ") {
                name = head.split(' ').next().unwrap();
                assert!(heads.insert(name), "{name} is there twice");
                assert!(docs.contains(&format!("`{name}`")), "{name} is not in docs/metrics.md");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                assert_eq!(kind.ends_with("counter"), name.ends_with("_total"), "{kind}");
            } else {
                let (row, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(row.split('{').next(), Some(name));
                value.parse::<f64>().unwrap();
            }
        }
        let documented = docs.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(documented, heads.len(), "docs/metrics.md has figures that are not there");
    }
}
