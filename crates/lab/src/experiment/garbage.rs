//! Agents that strangers shout at: random bytes at every port of a site that crawls, in the clear, as what begins like TLS or
//! HTTP/2, and under certificates that are not of the site.

use std::{
    fs,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use nephila_node::{control::Request, directory, peers::ca};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use super::{
    Outcome, Setup,
    agents::{Agents, SITE},
    archive,
    hostile::judge,
    process::{rss_bytes, rss_max_bytes},
    serve,
};
use crate::web::{PageBytes, Web, WebConfig, plan::Mix};

const AGENTS: usize = 2;
const LATENCY_MS: (u32, u32) = (5, 15);
const PAGE_BYTES: u32 = 8_000;
/// Who shouts at one port at a time.
const VOICES: u64 = 8;
/// The most that is said over one connection.
const SHOUT_BYTES_MAX: u64 = 32 << 10;
/// Longer than an agent may let anybody wait who has not shown a certificate, or has asked for figures and not finished.
const CLOSED_WITHIN: Duration = Duration::from_secs(15);
/// What is kept of an answer.
const ANSWER_BYTES_MAX: u64 = 4 << 10;
/// How much more memory an agent may have had at most than it had before.
const GROWTH_BYTES_MAX: u64 = 8 << 20;
/// How long the agents may take to find each other,
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// how long the shouting may take,
const SHOUTING_MAX: Duration = Duration::from_secs(600);
/// and the rest of the crawl after it.
const AFTER_MAX: Duration = Duration::from_secs(600);
/// How often the agents are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The site is done when nothing was left to do for so many looks in a row.
const LOOKS: u32 = 6;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct GarbageOptions {
    /// What is shouted and the web follow from this.
    pub seed: u64,
    /// Hosts of the web.
    pub hosts: u32,
    /// Pages of each.
    pub pages: u32,
    /// The delay between requests to a host.
    pub delay: Duration,
    /// Random bytes that each port has to bear.
    pub bytes: u64,
}

impl Default for GarbageOptions {
    fn default() -> GarbageOptions {
        GarbageOptions {
            seed: 1,
            hosts: 40,
            pages: 600,
            delay: Duration::from_millis(200),
            bytes: 10_000_000,
        }
    }
}

/// Random bytes at every port of a site, and peers with wrong certificates and without any: nothing changes.
pub fn garbage(setup: &Setup, options: &GarbageOptions) -> anyhow::Result<Outcome> {
    let place = setup.place()?;
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: options.hosts,
        pages: options.pages,
        kinds: "plain".parse()?,
        latency_ms: LATENCY_MS,
        page_bytes: PageBytes::Fixed(PAGE_BYTES),
        delay_ms: options.delay.as_millis() as u64,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    let settings = format!("delay = \"{}ms\"\nip-delay = \"0s\"\nshards = 1\n", options.delay.as_millis());
    let mut agents = Agents::new(setup, place.path(), &web, (AGENTS, AGENTS), &settings)?;
    for index in 0..AGENTS {
        agents.start(index)?;
    }
    agents.wait_for_site(BEGIN_MAX)?;
    // Until all that is made once is made: rules, connections, buffers.
    wait_for(&mut agents, &web, 5 * u64::from(options.hosts))?;
    let ports = ports(&agents, &strangers(place.path())?)?;
    let mut outcome = Outcome::new("garbage");
    let memory = memory_of(&agents, rss_bytes)?;
    setup.say(format!("{} random bytes at each of {} ports", options.bytes, ports.len()));
    let (heard, watched) = shout(&mut agents, options, ports)?;
    let requests = web.seen().requests;
    let grown = memory_of(&agents, rss_max_bytes)?.into_iter().zip(&memory);
    let grown = grown.map(|(after, before)| after.saturating_sub(*before)).max().unwrap_or(0);
    report(&mut outcome, options, &heard, &watched);
    let wanted = format!("<= {GROWTH_BYTES_MAX}");
    outcome.bar("bytes of memory that an agent took more", wanted, grown, grown <= GROWTH_BYTES_MAX);
    finish(setup, &mut agents, &web, &mut outcome)?;
    let all = web.seen().requests;
    outcome.bar("requests before the last of it", format!("< {all}"), requests, requests < all);
    let verdict = web.verdict();
    judge(&mut outcome, &verdict);
    outcome.none("overlap", verdict.overlap.count, &verdict.overlap.examples);
    let archives: Vec<_> = agents.list.iter().map(|agent| directory::archive(&agent.out)).collect();
    let missing = archive::check_all(&mut outcome, &archives, &web)?;
    outcome.none(archive::MISSING, missing.count, &missing.examples);
    Ok(outcome)
}

fn wait_for(agents: &mut Agents, web: &Web, requests: u64) -> anyhow::Result<()> {
    let until = Instant::now() + BEGIN_MAX;
    while web.seen().requests < requests {
        let ended = agents.ended()?;
        ensure!(ended.is_empty(), "an agent ended by itself: {}", ended.join("\n"));
        ensure!(Instant::now() < until, "fewer than {requests} requests within {BEGIN_MAX:?}");
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn memory_of(agents: &Agents, bytes: fn(u32) -> anyhow::Result<u64>) -> anyhow::Result<Vec<u64>> {
    let running = agents.list.iter().filter_map(|agent| agent.running.as_ref());
    running.map(|running| bytes(running.id())).collect()
}

/// How somebody begins to shout.
#[derive(Clone)]
enum Opening {
    /// With these bytes, in the clear, and then anything.
    Plain(&'static [u8]),
    /// With less than says what it is; and then it waits.
    Unfinished,
    /// With a handshake that is right but for the certificate, and then with this.
    Tls(Arc<ClientConfig>, &'static [u8]),
}

/// One port, and how it is shouted at.
struct Port {
    name: String,
    address: SocketAddr,
    openings: Vec<Opening>,
    /// Whether an answer tells whoever shouts nothing.
    is_mute: fn(&[u8]) -> bool,
}

/// What HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a record of a handshake begins with: its length, and then that of a hello.
const HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

/// Every port of every agent.
fn ports(agents: &Agents, strangers: &[Arc<ClientConfig>]) -> anyhow::Result<Vec<Port>> {
    let mut ports = Vec::new();
    for agent in &agents.list {
        let mut openings = vec![Opening::Plain(&[]), Opening::Plain(HELLO), Opening::Plain(PREFACE)];
        for stranger in strangers {
            openings.push(Opening::Tls(Arc::clone(stranger), &[]));
            openings.push(Opening::Tls(Arc::clone(stranger), PREFACE));
        }
        openings.push(Opening::Unfinished);
        ports.push(Port {
            name: format!("peers of {}", agent.name),
            address: agent.address.parse()?,
            openings,
            is_mute: is_alert,
        });
        let begun =
            [&b""[..], b"GET /metrics HTTP/1.1\r\nhost: ", b"POST /metrics HTTP/1.1\r\n\r\n", PREFACE];
        ports.push(Port {
            name: format!("figures of {}", agent.name),
            address: agent.metrics.parse()?,
            openings: begun.into_iter().map(Opening::Plain).collect(),
            is_mute: is_refusal,
        });
    }
    Ok(ports)
}

/// Those who are not of the site: one without a certificate, one whose certificate says that it is an agent of the site, and one
/// of another site, both by an authority of their own.
fn strangers(dir: &Path) -> anyhow::Result<Vec<Arc<ClientConfig>>> {
    let mut strangers = vec![stranger(None)?];
    for (name, site) in [("forged-ca", SITE), ("other-ca", "other")] {
        let made = ca::make(&dir.join(name), &site.parse()?, &["agent-0".parse()?])?;
        strangers.push(stranger(made.agents.first().map(|agent| agent.dir.as_path()))?);
    }
    Ok(strangers)
}

fn stranger(identity: Option<&Path>) -> anyhow::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let anybody = Arc::new(Anybody(Arc::clone(&provider)));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(anybody);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(dir) => {
            let certificate = CertificateDer::from_pem_slice(&fs::read(dir.join("agent.pem"))?)?;
            let key = PrivateKeyDer::from_pem_slice(&fs::read(dir.join("agent.key"))?)?;
            builder.with_client_auth_cert(vec![certificate], key)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Takes any certificate: whoever shouts does not mind whom at.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What came of shouting at one port.
#[derive(Debug, Default)]
struct Heard {
    name: String,
    connections: u64,
    sent: u64,
    /// Answers that say more than they should.
    answers: Vec<String>,
    /// Connections that were not closed in time.
    left_open: u64,
}

/// What was seen of the agents meanwhile.
#[derive(Debug, Default)]
struct Watched {
    looks: u64,
    /// Looks at which an agent did not answer, or took the other for dead.
    silent: Vec<String>,
}

/// Has every port bear its bytes, and looks at the agents while it does.
fn shout(
    agents: &mut Agents,
    options: &GarbageOptions,
    ports: Vec<Port>,
) -> anyhow::Result<(Vec<Heard>, Watched)> {
    let until = Instant::now() + SHOUTING_MAX;
    let mut shouting = Vec::new();
    let mut heard = Vec::new();
    for (number, port) in ports.into_iter().enumerate() {
        let all = Arc::new(Mutex::new(Heard { name: port.name.clone(), ..Heard::default() }));
        let port = Arc::new(port);
        for voice in 0..VOICES {
            let (port, all, bytes) = (Arc::clone(&port), Arc::clone(&all), options.bytes);
            let mut mix = Mix::new(&[options.seed, 0x9a4b, number as u64, voice]);
            shouting.push(thread::spawn(move || {
                while locked(&all).sent < bytes && Instant::now() < until {
                    let said = port.shout(&mut mix)?;
                    locked(&all).add(&port, said);
                }
                anyhow::Ok(())
            }));
        }
        heard.push(all);
    }
    let mut watched = Watched::default();
    while shouting.iter().any(|voice| !voice.is_finished()) {
        watched.looks += 1;
        watched.silent.extend(agents.ended()?);
        for index in agents.running() {
            let is_well = agents.ask(index, &Request::Site).is_some_and(|site| {
                site["members"].as_array().is_some_and(|all| all.iter().all(|of| of["is_well"] == true))
            });
            if !is_well {
                watched.silent.push(format!("{} at look {}", agents.list[index].name, watched.looks));
            }
        }
        thread::sleep(LOOK_EVERY);
    }
    for voice in shouting {
        voice.join().map_err(|_| anyhow::anyhow!("a thread that shouts has panicked"))??;
    }
    Ok((heard.iter().map(|heard| std::mem::take(&mut *locked(heard))).collect(), watched))
}

fn locked(heard: &Mutex<Heard>) -> std::sync::MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was said over one connection, and what came back.
struct Said {
    sent: u64,
    answer: Vec<u8>,
    was_closed: bool,
    /// What came back came out of TLS.
    is_plain: bool,
}

impl Port {
    fn shout(&self, mix: &mut Mix) -> anyhow::Result<Said> {
        let stream =
            TcpStream::connect(self.address).with_context(|| format!("cannot reach {}", self.name))?;
        stream.set_read_timeout(Some(CLOSED_WITHIN))?;
        stream.set_write_timeout(Some(CLOSED_WITHIN))?;
        let random: Vec<u8> =
            (0..1 + mix.below(SHOUT_BYTES_MAX) / 8).flat_map(|_| mix.next_u64().to_le_bytes()).collect();
        let opening = &self.openings[mix.below(self.openings.len() as u64) as usize];
        Ok(match opening {
            Opening::Plain(begin) => {
                let mut stream = stream;
                let sent = write(&mut stream, begin, &random);
                // The other side may have closed it already.
                let _ = stream.shutdown(Shutdown::Write);
                listen(stream, sent, true)
            }
            Opening::Unfinished => {
                let mut stream = stream;
                let sent = write(&mut stream, &HELLO[..3], &[]);
                listen(stream, sent, true)
            }
            Opening::Tls(config, begin) => {
                let name = ServerName::IpAddress(self.address.ip().into());
                let connection = ClientConnection::new(Arc::clone(config), name)?;
                let mut stream = StreamOwned::new(connection, stream);
                let sent = write(&mut stream, begin, &random);
                listen(stream, sent, false)
            }
        })
    }
}

/// Writes as much as is taken, and says how much of what is random that was.
fn write(stream: &mut impl Write, begin: &[u8], random: &[u8]) -> u64 {
    if stream.write_all(begin).and_then(|()| stream.flush()).is_err() {
        return 0;
    }
    let mut sent = 0;
    while sent < random.len() {
        match stream.write(&random[sent..]) {
            Ok(count) if count > 0 => sent += count,
            _ => break,
        }
    }
    // If it is not taken any more, that is seen when it is read from.
    let _ = stream.flush();
    sent as u64
}

/// Reads until the other side has closed the connection, or for as long as it may leave it open.
fn listen(stream: impl Read, sent: u64, is_plain: bool) -> Said {
    let mut answer = Vec::new();
    let ended = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    let is_late =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    Said { sent, answer, was_closed: !ended.is_err_and(|error| is_late(&error)), is_plain }
}

impl Heard {
    fn add(&mut self, port: &Port, said: Said) {
        self.connections += 1;
        self.sent += said.sent;
        self.left_open += u64::from(!said.was_closed);
        let says_nothing = said.answer.is_empty() || (said.is_plain && (port.is_mute)(&said.answer));
        if !says_nothing {
            self.answers.push(format!("{}: {}", port.name, said.answer.escape_ascii()));
        }
    }
}

/// Whether bytes are alerts of TLS in the clear, and nothing else.
fn is_alert(answer: &[u8]) -> bool {
    answer.chunks(7).all(|record| matches!(record, [21, 3, _, 0, 2, _, _]))
}

/// Whether bytes are a refusal of HTTP.
fn is_refusal(answer: &[u8]) -> bool {
    answer.starts_with(b"HTTP/1.1 4")
}

fn report(outcome: &mut Outcome, options: &GarbageOptions, heard: &[Heard], watched: &Watched) {
    for port in heard {
        let what = format!("random bytes at the port for {}", port.name);
        outcome.bar(what, format!(">= {}", options.bytes), port.sent, port.sent >= options.bytes);
    }
    let answers: Vec<String> = heard.iter().flat_map(|port| port.answers.clone()).collect();
    outcome.none("answers that say something", answers.len() as u64, &answers);
    let left_open = heard.iter().map(|port| port.left_open).sum();
    outcome.none("connections that were left open", left_open, &[]);
    outcome.none("looks at which an agent was not well", watched.silent.len() as u64, &watched.silent);
    outcome.figure("connections", heard.iter().map(|port| port.connections).sum::<u64>());
    outcome.figure("looks", watched.looks);
}

/// Waits until nothing is left to do, and has all agents end.
fn finish(setup: &Setup, agents: &mut Agents, web: &Web, outcome: &mut Outcome) -> anyhow::Result<()> {
    let until = Instant::now() + AFTER_MAX;
    let (mut looks, mut why) = (0, String::new());
    setup.say(format!("{} requests; waiting for the end", web.seen().requests));
    while looks < LOOKS && Instant::now() < until && agents.ended()?.is_empty() {
        match agents.unfinished() {
            None => looks += 1,
            Some(unfinished) => (looks, why) = (0, unfinished),
        }
        thread::sleep(LOOK_EVERY);
    }
    let end = if looks < LOOKS { why.as_str() } else { "nothing was left to do" };
    outcome.equal("the end", "nothing was left to do", end);
    let disorderly = agents.end()?;
    outcome.none("agents that did not end in order", disorderly.len() as u64, &disorderly);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_and_refusals_are_told_from_answers() {
        let cases: [(&[u8], bool, bool); 5] = [
            (&[21, 3, 3, 0, 2, 2, 50], true, false),
            (&[21, 3, 3, 0, 2, 2, 50, 21, 3, 3, 0, 2, 1, 0], true, false),
            (&[21, 3, 3, 0, 2, 2, 50, 22], false, false),
            (b"HTTP/1.1 400 Bad Request\r\n", false, true),
            (b"HTTP/1.1 200 OK\r\n", false, false),
        ];
        for (answer, alert, refusal) in cases {
            assert_eq!((is_alert(answer), is_refusal(answer)), (alert, refusal), "{answer:?}");
        }
    }
}
