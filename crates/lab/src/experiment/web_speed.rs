//! What the synthetic web can do: how fast one core serves it, plain and over TLS, and what a hundred thousand hosts cost.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use rustls::{
    CipherSuite, ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

use super::{
    Outcome, Setup,
    process::{Processors, process_cpu, rss_bytes, thread_cpu},
    serve,
};
use crate::web::{PageBytes, Web, WebConfig};

const EXPERIMENT: &str = "web-speed";
const WANTED_PER_S: f64 = 30_000.0;
const PAGE_BYTES: u32 = 16_000;
/// More than are asked for, so that none is asked for twice.
const PAGES_A_HOST: u32 = 100_000;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct WebSpeedOptions {
    /// The webs follow from this.
    pub seed: u64,
    /// How many hosts there are.
    pub hosts: u32,
    /// How many connections ask at once, each another host.
    pub connections: u32,
    /// For how long, each time.
    pub lasts: Duration,
}

impl Default for WebSpeedOptions {
    fn default() -> WebSpeedOptions {
        WebSpeedOptions { seed: 1, hosts: 100_000, connections: 64, lasts: Duration::from_secs(10) }
    }
}

/// Asks a web for plain pages over connections that are kept alive, as fast as it answers; again over TLS; and then every
/// host once, over a connection of its own. The judge is on.
pub fn web_speed(setup: &Setup, options: &WebSpeedOptions) -> anyhow::Result<Outcome> {
    let Some(processors) = Processors::two()? else {
        return Ok(Outcome::skipped(EXPERIMENT, "needs two processors"));
    };
    let mut outcome = Outcome::new(EXPERIMENT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let before_bytes = rss_bytes(std::process::id())?;
    let begun = Instant::now();
    let web = start(&processors, options, 0)?;
    outcome.figure("start_ms", begun.elapsed().as_secs_f64() * 1e3);
    outcome.figure(
        "memory_at_start_mb",
        (rss_bytes(std::process::id())?.saturating_sub(before_bytes)) as f64 / 1e6,
    );

    setup.say(format!("{} connections for {:?}, plain", options.connections, options.lasts));
    let (pages, per_s, per_cpu_s) = runtime.block_on(ask_for_pages(&web, options, None))?;
    outcome.bar(
        "16 KB pages per second of one core",
        format!(">= {WANTED_PER_S}"),
        format!("{per_cpu_s:.0}"),
        per_cpu_s >= WANTED_PER_S,
    );
    outcome.figure("pages_per_s", per_s);
    let asked = pages + u64::from(options.connections);
    outcome.equal("requests that the judge saw", asked, web.seen().requests);
    drop(web);

    setup.say("the same over TLS");
    let web = start(&processors, options, 100)?;
    let tls = tls_client(&web)?;
    let (_, per_s, per_cpu_s) = runtime.block_on(ask_for_pages(&web, options, Some(tls)))?;
    outcome.figure("https_pages_per_s", per_s);
    outcome.figure("https_pages_per_cpu_s", per_cpu_s);
    drop(web);

    setup.say(format!("{} hosts, once each", options.hosts));
    let web = start(&processors, options, 0)?;
    let before_bytes = rss_bytes(std::process::id())?;
    let begun = Instant::now();
    runtime.block_on(ask_every_host(&web, options))?;
    outcome.figure("hosts_met_per_s", f64::from(options.hosts) / begun.elapsed().as_secs_f64());
    let grown = rss_bytes(std::process::id())?.saturating_sub(before_bytes);
    outcome.figure("bytes_per_host_met", grown as f64 / f64::from(options.hosts));
    outcome.equal("hosts that the judge saw", u64::from(options.hosts), web.seen().requests);
    Ok(outcome)
}

fn start(processors: &Processors, options: &WebSpeedOptions, https_percent: u32) -> anyhow::Result<Web> {
    processors.be_with_web()?;
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: options.hosts,
        pages: PAGES_A_HOST,
        kinds: "plain".parse()?,
        latency_ms: (0, 0),
        page_bytes: PageBytes::Fixed(PAGE_BYTES),
        https_percent,
        tls_resumption: false,
        delay_ms: 0,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    processors.be_elsewhere()?;
    Ok(web)
}

/// A client that trusts the web and resumes nothing.
pub(super) fn tls_client(web: &Web) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(web.ca_pem.as_bytes())?)?;
    let mut provider = rustls::crypto::ring::default_provider();
    // As the crawler does, so that the same handshakes are compared.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// How many pages came, how many a second, and how many for a second of the web's processor time: what this process
/// takes and this thread does not.
async fn ask_for_pages(
    web: &Web,
    options: &WebSpeedOptions,
    tls: Option<TlsConnector>,
) -> anyhow::Result<(u64, f64, f64)> {
    let webs_cpu = || process_cpu().saturating_sub(thread_cpu());
    let (begun, before) = (Instant::now(), webs_cpu());
    let until = begun + options.lasts;
    let mut asking = JoinSet::new();
    for host in web.plan().hosts().take(options.connections as usize) {
        let (address, name, tls) = (host.address(), host.name(), tls.clone());
        let port = if tls.is_some() { web.https_port } else { web.http_port };
        asking.spawn(async move {
            let stream = connect((address, port).into()).await?;
            match tls {
                None => ask(stream, &name, until).await,
                Some(tls) => {
                    let stream = tls.connect(ServerName::try_from(name.clone())?, stream).await?;
                    ask(stream, &name, until).await
                }
            }
        });
    }
    let mut pages = 0;
    while let Some(asked) = asking.join_next().await {
        pages += asked??;
    }
    let used = webs_cpu() - before;
    Ok((pages, pages as f64 / begun.elapsed().as_secs_f64(), pages as f64 / used.as_secs_f64()))
}

/// Asks every host for its robots.txt, over a connection of its own.
async fn ask_every_host(web: &Web, options: &WebSpeedOptions) -> anyhow::Result<()> {
    let mut asking: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for host in web.plan().hosts() {
        while asking.len() >= options.connections as usize {
            asking.join_next().await.context("there is one")???;
        }
        let (address, name) = ((host.address(), web.http_port), host.name());
        asking.spawn(async move {
            let mut stream = connect(address.into()).await?;
            get(&mut stream, &mut Vec::new(), &name, "/robots.txt").await
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked??;
    }
    Ok(())
}

pub(super) async fn connect(to: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Asks for robots.txt and then for one page after the other, and gives back how many came.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    name: &str,
    until: Instant,
) -> anyhow::Result<u64> {
    let mut buffer = Vec::with_capacity(2 * PAGE_BYTES as usize);
    get(&mut stream, &mut buffer, name, "/robots.txt").await?;
    let mut pages = 0;
    while Instant::now() < until {
        pages += 1;
        get(&mut stream, &mut buffer, name, &format!("/p/{pages}")).await?;
    }
    Ok(pages)
}

/// Asks for a target and reads the answer, which has a length, into the buffer.
pub(super) async fn get(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    buffer: &mut Vec<u8>,
    name: &str,
    target: &str,
) -> anyhow::Result<()> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {name}\r\nUser-Agent: nephila-lab\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    buffer.clear();
    let mut whole = None;
    while whole.is_none_or(|whole| buffer.len() < whole) {
        ensure!(stream.read_buf(buffer).await? > 0, "the web closed the connection");
        if whole.is_none() {
            whole = answer_bytes(buffer)?;
        }
    }
    Ok(())
}

/// How long an answer is, head and body, once its head is there.
fn answer_bytes(buffer: &[u8]) -> anyhow::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut answer = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = answer.parse(buffer)? else { return Ok(None) };
    ensure!(answer.code == Some(200), "the web answered {:?}", answer.code);
    let length = answer.headers.iter().find(|header| header.name == "Content-Length");
    let length: usize = std::str::from_utf8(length.context("no length")?.value)?.parse()?;
    Ok(Some(head + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_measured_by_their_heads() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nbo";
        assert_eq!(answer_bytes(answer).unwrap(), Some(45));
        assert_eq!(answer_bytes(&answer[..20]).unwrap(), None);
        assert!(answer_bytes(b"HTTP/1.1 404 No\r\n\r\n").is_err());
    }
}
