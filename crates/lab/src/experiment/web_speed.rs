//! How fast the synthetic web is: one core serves, another asks.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use super::{Outcome, Setup, serve};
use crate::web::{PageBytes, WebConfig};

const EXPERIMENT: &str = "web-speed";
const WANTED_PER_S: f64 = 10_000.0;
const PAGE_BYTES: u32 = 16_000;
/// More than are asked for, so that none is asked for twice.
const PAGES_A_HOST: u32 = 100_000;
const PROCESSORS_MAX: usize = 1_024;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct WebSpeedOptions {
    /// The web follows from this.
    pub seed: u64,
    /// How many connections ask at once, each another host.
    pub connections: u32,
    /// For how long.
    pub lasts: Duration,
}

impl Default for WebSpeedOptions {
    fn default() -> WebSpeedOptions {
        WebSpeedOptions { seed: 1, connections: 64, lasts: Duration::from_secs(10) }
    }
}

/// Asks a web for plain pages over connections that are kept alive, as fast as it answers. The judge is on.
pub fn web_speed(setup: &Setup, options: &WebSpeedOptions) -> anyhow::Result<Outcome> {
    // Threads begin on the processors of the thread that starts them: the web's on one, this one's on another.
    let before = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..PROCESSORS_MAX).filter(|cpu| before.is_set(*cpu)).take(2).collect();
    let &[one, other] = processors.as_slice() else {
        return Ok(Outcome::skipped(EXPERIMENT, "needs two processors"));
    };
    stay_on(one)?;
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: options.connections,
        pages: PAGES_A_HOST,
        kinds: "plain".parse()?,
        latency_ms: (0, 0),
        page_bytes: PageBytes::Fixed(PAGE_BYTES),
        https_percent: 0,
        delay_ms: 0,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    stay_on(other)?;
    setup.say(format!("{} connections for {:?}", options.connections, options.lasts));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begun = Instant::now();
    let pages = runtime.block_on(async {
        let mut asking = JoinSet::new();
        for host in web.plan().hosts() {
            let address = (host.address(), web.http_port);
            let name = host.name();
            let until = begun + options.lasts;
            asking.spawn(async move { ask(TcpStream::connect(address).await?, &name, until).await });
        }
        let mut pages = 0;
        while let Some(asked) = asking.join_next().await {
            pages += asked??;
        }
        anyhow::Ok(pages)
    })?;
    let per_s = pages as f64 / begun.elapsed().as_secs_f64();
    sched_setaffinity(None, &before)?;
    let verdict = web.verdict();
    let mut outcome = Outcome::new(EXPERIMENT);
    outcome.bar(
        "16 KB pages a second",
        format!(">= {WANTED_PER_S}"),
        format!("{per_s:.0}"),
        per_s >= WANTED_PER_S,
    );
    outcome.equal("pages that the judge saw", pages, verdict.requests - verdict.robots_requests);
    Ok(outcome)
}

fn stay_on(processor: usize) -> anyhow::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).context("cannot choose a processor")
}

/// Asks for robots.txt and then for one page after the other, and gives back how many came.
async fn ask(mut stream: TcpStream, name: &str, until: Instant) -> anyhow::Result<u64> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(2 * PAGE_BYTES as usize);
    get(&mut stream, &mut buffer, name, "/robots.txt").await?;
    let mut pages = 0;
    while Instant::now() < until {
        pages += 1;
        get(&mut stream, &mut buffer, name, &format!("/p/{pages}")).await?;
    }
    Ok(pages)
}

async fn get(stream: &mut TcpStream, buffer: &mut Vec<u8>, name: &str, target: &str) -> anyhow::Result<()> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {name}\r\nUser-Agent: nephila-lab\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
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
