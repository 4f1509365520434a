//! Connections: TCP to the first address that answers (RFC 8305), then TLS where the URL asks for it.
//!
//! Only HTTP/1.1 is offered, because most servers that are offered both choose HTTP/2, which gains nothing where there is
//! one request at a time and cannot be recorded as it was. Who refuses it is asked again, after the usual delay, and
//! offered both. That is remembered until the server chooses anything but HTTP/2. TLS sessions are resumed.

use std::cell::RefCell;
use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use nephila_core::agent::FetchError;
use nephila_core::record::Failure;
use nephila_core::settings::Private;
use nephila_core::url::Origin;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, CertificateError, CipherSuite, ClientConfig, RootCertStore};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::TlsConnector;

use super::pool::Pool;
use super::record::is_short_of;
use super::wire::{Metered, Wire};
use super::{SetupError, failed, signatures};

/// How long an address has for itself before the next one is tried too (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Servers that refused HTTP/1.1 alone. When there are more, all are forgotten: each costs one refused connection more.
const ONLY_HTTP2_MAX: usize = 10_000;
/// What protocols are called in a TLS handshake.
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";
/// How many sessions rustls keeps for a server, whether there are so many or not.
const SESSIONS_PER_SERVER: usize = 8;

/// How connections are made.
pub(super) struct Connector {
    http1: TlsConnector,
    both: TlsConnector,
    only_http2: RefCell<HashSet<Origin>>,
    private: Private,
    bind: Vec<IpAddr>,
    timeout: Duration,
}

/// A connection that was made.
pub(super) struct Connected {
    pub(super) wire: Wire,
    pub(super) address: IpAddr,
    /// HTTP/2 is to be spoken over it.
    pub(super) http2: bool,
}

impl Connector {
    pub(super) fn new(
        ca_pem: Option<&[u8]>,
        sessions_max: usize,
        private: Private,
        bind: Vec<IpAddr>,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        for address in &bind {
            let bound = std::net::UdpSocket::bind((*address, 0));
            bound.map_err(|error| SetupError::Bind(*address, error))?;
        }
        let config = tls_config(ca_pem, sessions_max)?;
        // Both have the same sessions.
        let offering = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            TlsConnector::from(Arc::new(config))
        };
        let (http1, both) = (offering(&[HTTP1]), offering(&[HTTP1, HTTP2]));
        Ok(Connector { http1, both, only_http2: RefCell::default(), private, bind, timeout })
    }

    /// Whether this address may be connected to.
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        self.private.refuses(address).is_none()
    }

    /// Connects to the first of the addresses that answers. Each that is tried is added to `contacted`. When this
    /// machine runs out of descriptors, idle connections of `pool` are closed for it.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        addresses: &[IpAddr],
        deadline: Instant,
        pool: &Pool,
        contacted: &mut Vec<IpAddr>,
    ) -> Result<Connected, FetchError> {
        let until = deadline.min(Instant::now() + self.timeout);
        let (stream, address) = timeout_at(until, self.race(origin.port, addresses, pool, contacted))
            .await
            .unwrap_or_else(|_| Err(failed(Failure::Connect, "no connection in time")))?;
        // The request is one small write: waiting for more of it would only cost time.
        if let Err(error) = stream.set_nodelay(true) {
            return Err(failed(Failure::Connect, error));
        }
        if !origin.https {
            return Ok(Connected { wire: Wire::Plain(Metered::new(stream)), address, http2: false });
        }
        let name = ServerName::try_from(origin.host.as_str().to_owned())
            .map_err(|error| failed(Failure::Tls, format_args!("{}: {error}", origin.host)))?;
        let both = self.only_http2.borrow().contains(origin);
        let tls = if both { &self.both } else { &self.http1 };
        let until = deadline.min(Instant::now() + self.timeout);
        match timeout_at(until, tls.connect(name, Metered::new(stream))).await {
            Ok(Ok(stream)) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
                if both && !http2 {
                    self.only_http2.borrow_mut().remove(origin);
                }
                Ok(Connected { wire: Wire::Tls(Box::new(stream)), address, http2 })
            }
            Ok(Err(error)) => Err(self.refused(origin, both, &error)),
            Err(_) => Err(failed(Failure::Tls, "no handshake in time")),
        }
    }

    /// What a handshake that failed means. A server that does not want HTTP/1.1 is offered HTTP/2 too the next time; one
    /// that wants neither begins anew.
    fn refused(&self, origin: &Origin, both: bool, error: &io::Error) -> FetchError {
        let mut only_http2 = self.only_http2.borrow_mut();
        match tls_error(error) {
            Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) if !both => {
                if only_http2.len() >= ONLY_HTTP2_MAX {
                    only_http2.clear();
                }
                only_http2.insert(origin.clone());
                failed(Failure::Closed, "the server does not speak http/1.1")
            }
            _ => {
                only_http2.remove(origin);
                failed(Failure::Tls, describe(error))
            }
        }
    }

    /// Makes a connection, from where it should be.
    fn open(&self, to: SocketAddr) -> Connecting {
        let from = self.bind.iter().find(|from| from.is_ipv4() == to.is_ipv4()).copied();
        Box::pin(async move {
            let Some(from) = from else { return TcpStream::connect(to).await };
            let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.bind(SocketAddr::new(from, 0))?;
            socket.connect(to).await
        })
    }

    async fn race(
        &self,
        port: u16,
        addresses: &[IpAddr],
        pool: &Pool,
        contacted: &mut Vec<IpAddr>,
    ) -> Result<(TcpStream, IpAddr), FetchError> {
        let mut waiting = addresses.iter();
        let mut attempts = Attempts::default();
        let mut next_at = Instant::now();
        let mut last = None;
        loop {
            let more = !waiting.as_slice().is_empty();
            tokio::select! {
                biased;
                (address, result) = attempts.next(), if !attempts.0.is_empty() => {
                    match result {
                        Ok(stream) => return Ok((stream, address)),
                        Err(error) if is_short_of(&error) => {
                            contacted.retain(|tried| *tried != address);
                            if !pool.close_one() {
                                return Err(failed(Failure::NotTried, error));
                            }
                            attempts.begin(self.open(SocketAddr::new(address, port)), address, contacted);
                        }
                        Err(error) => last = Some(failed(Failure::Connect, format_args!("{address}: {error}"))),
                    }
                    next_at = Instant::now();
                }
                () = sleep_until(next_at), if more => {
                    let Some(&address) = waiting.next() else { continue };
                    if let Some(reason) = self.private.refuses(address) {
                        let refused = failed(Failure::PrivateAddress, format_args!("{address}: {reason}"));
                        last.get_or_insert(refused);
                        continue;
                    }
                    attempts.begin(self.open(SocketAddr::new(address, port)), address, contacted);
                    next_at = Instant::now() + ATTEMPT_DELAY;
                }
                else => return Err(last.unwrap_or_else(|| failed(Failure::Connect, "no address"))),
            }
        }
    }
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>>>>;

/// Connections that are being made.
#[derive(Default)]
struct Attempts(Vec<(IpAddr, Connecting)>);

impl Attempts {
    fn begin(&mut self, connecting: Connecting, to: IpAddr, contacted: &mut Vec<IpAddr>) {
        contacted.push(to);
        self.0.push((to, connecting));
    }

    /// The first that comes to an end.
    async fn next(&mut self) -> (IpAddr, io::Result<TcpStream>) {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Poll::Ready(result) = self.0[at].1.as_mut().poll(context) {
                    return Poll::Ready((self.0.swap_remove(at).0, result));
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn tls_config(ca_pem: Option<&[u8]>, sessions_max: usize) -> Result<ClientConfig, SetupError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = ca_pem {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| SetupError::Ca(error.to_string()))?;
            roots.add(certificate).map_err(|error| SetupError::Ca(error.to_string()))?;
        }
        if roots.len() == before {
            return Err(SetupError::Ca("there is no certificate in it".into()));
        }
    }
    let mut provider = signatures::provider();
    // The usual order has the strongest first. A crawler reads what is public: the cheapest first, of those that are good.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = match sessions_max {
        0 => Resumption::disabled(),
        servers => Resumption::in_memory_sessions(servers.saturating_mul(SESSIONS_PER_SERVER)),
    };
    Ok(config)
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Names the kind of a failed handshake, and then the failure itself.
fn describe(error: &io::Error) -> String {
    use rustls::Error::*;
    let Some(tls) = tls_error(error) else { return format!("connection: {error}") };
    let kind = match tls {
        InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => "expired",
        InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "wrong name",
        InvalidCertificate(CertificateError::UnknownIssuer) => "untrusted issuer",
        InvalidCertificate(_) => "certificate",
        AlertReceived(_) => "refused by the server",
        _ => "protocol",
    };
    format!("{kind}: {tls}")
}
