//! What a page costs that needs a full TLS handshake, against what handshake and page cost alone.

use std::time::Duration;

use anyhow::Context as _;
use rustls::pki_types::ServerName;
use tokio::task::JoinSet;

use super::{
    Outcome, Setup,
    crawler::Crawler,
    process::{Processors, thread_cpu},
    serve,
    web_speed::{connect, get, tls_client},
};
use crate::web::{PageBytes, Web, WebConfig};

const EXPERIMENT: &str = "handshakes";
const RATIO_MAX: f64 = 1.5;
const RUN_MAX: Duration = Duration::from_secs(1_800);

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct HandshakesOptions {
    /// The web follows from this.
    pub seed: u64,
    /// Pages to fetch, each over a connection of its own.
    pub pages: u64,
    /// On so many hosts.
    pub hosts: u32,
    /// Connections at once.
    pub parallel: usize,
    /// How large pages are.
    pub page_bytes: u32,
}

impl Default for HandshakesOptions {
    fn default() -> HandshakesOptions {
        HandshakesOptions { seed: 1, pages: 20_000, hosts: 1_000, parallel: 64, page_bytes: 16_000 }
    }
}

/// Crawls hosts that close every connection and resume no session, then hosts that resume them, and then does handshakes
/// and requests alone.
pub fn handshakes(setup: &Setup, options: &HandshakesOptions) -> anyhow::Result<Outcome> {
    let Some(processors) = Processors::two()? else {
        return Ok(Outcome::skipped(EXPERIMENT, "needs two processors"));
    };
    let mut outcome = Outcome::new(EXPERIMENT);
    let full_us = crawl(setup, options, &processors, false, &mut outcome)?;
    let resumed_us = crawl(setup, options, &processors, true, &mut outcome)?;
    setup.say("handshakes and pages alone");
    let web = start(options, &processors, false)?;
    let alone_us = alone_us(&web, options)?;
    outcome.equal("connections alone", options.pages, web.seen().connections.handshakes);
    let ratio = full_us / alone_us;
    outcome.bar(
        "a page with a full handshake, to both alone",
        format!("<= {RATIO_MAX}"),
        format!("{ratio:.2}"),
        ratio <= RATIO_MAX,
    );
    outcome.figure("page_with_full_handshake_us", full_us);
    outcome.figure("page_with_resumed_handshake_us", resumed_us);
    outcome.figure("alone_us", alone_us);
    Ok(outcome)
}

fn start(options: &HandshakesOptions, processors: &Processors, tls_resumption: bool) -> anyhow::Result<Web> {
    processors.be_with_web()?;
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: options.hosts,
        // Enough that all hosts have some left when there have been enough.
        pages: u32::try_from(10 * options.pages / u64::from(options.hosts))?,
        kinds: "short-lived".parse()?,
        latency_ms: (0, 0),
        page_bytes: PageBytes::Fixed(options.page_bytes),
        https_percent: 100,
        tls_resumption,
        delay_ms: 0,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    processors.be_elsewhere()?;
    Ok(web)
}

/// The processor time of a crawl for each of its handshakes, in microseconds.
fn crawl(
    setup: &Setup,
    options: &HandshakesOptions,
    processors: &Processors,
    resumption: bool,
    outcome: &mut Outcome,
) -> anyhow::Result<f64> {
    let web = start(options, processors, resumption)?;
    let name = if resumption { "resumed" } else { "full" };
    let place = match &setup.keep {
        Some(dir) => Setup { keep: Some(dir.join(name)), ..setup.clone() }.place()?,
        None => setup.place()?,
    };
    let crawler = Crawler::new(setup, place.path(), name, &web)?
        .with("delay", "0s")
        .with("ip-delay", "0s")
        .with("slow-factor", "0")
        .with("parallel", options.parallel)
        .with("tls-sessions", 2 * options.hosts)
        .with("max-pages", options.pages);
    setup.say(crawler.command_line());
    let ended = crawler.run(RUN_MAX)?;
    let (connections, cpu_s) = (web.seen().connections, ended.figure("cpu_s")?);
    let pages = ended.figure("pages")?;
    let enough = pages >= options.pages as f64;
    outcome.bar(format!("pages, {name}"), format!(">= {}", options.pages), pages, enough);
    // All but the first of a host: there is one request at a time.
    let hosts = u64::from(options.hosts);
    let wanted = if resumption { connections.handshakes.saturating_sub(hosts) } else { 0 };
    outcome.equal(format!("sessions resumed, {name}"), wanted, connections.resumed);
    Ok(cpu_s * 1e6 / connections.handshakes as f64)
}

/// The processor time of one connection with its handshake and one page, in microseconds: rustls and as little as can be.
fn alone_us(web: &Web, options: &HandshakesOptions) -> anyhow::Result<f64> {
    let tls = tls_client(web)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let before = thread_cpu();
    runtime.block_on(async {
        let mut asking: JoinSet<anyhow::Result<()>> = JoinSet::new();
        for number in 0..options.pages {
            while asking.len() >= options.parallel {
                asking.join_next().await.context("there is one")???;
            }
            let (index, page) = (number % u64::from(options.hosts), number / u64::from(options.hosts) + 1);
            let host = web.plan().host(index as u32).context("a host of the web")?;
            let (address, name, tls) = ((host.address(), web.https_port), host.name(), tls.clone());
            asking.spawn(async move {
                let stream = connect(address.into()).await?;
                let mut stream = tls.connect(ServerName::try_from(name.clone())?, stream).await?;
                get(&mut stream, &mut Vec::new(), &name, &format!("/p/{page}")).await
            });
        }
        while let Some(asked) = asking.join_next().await {
            asked??;
        }
        anyhow::Ok(())
    })?;
    Ok((thread_cpu() - before).as_secs_f64() * 1e6 / options.pages as f64)
}
