//! Connections: TCP to the first address that answers (RFC 8305), then TLS where the URL asks for it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nephila_core::agent::FetchError;
use nephila_core::record::Failure;
use nephila_core::settings::Private;
use nephila_core::url::Origin;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::TlsConnector;

use super::pool::Pool;
use super::record::{Wire, is_short_of};
use super::{SetupError, failed};

/// How long an address has for itself before the next one is tried too (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// How connections are made.
pub(super) struct Connector {
    tls: TlsConnector,
    private: Private,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(
        ca_pem: Option<&[u8]>,
        private: Private,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        let tls = TlsConnector::from(Arc::new(tls_config(ca_pem)?));
        Ok(Connector { tls, private, timeout })
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
    ) -> Result<(Wire, IpAddr), FetchError> {
        let until = deadline.min(Instant::now() + self.timeout);
        let (stream, address) = timeout_at(until, self.race(origin.port, addresses, pool, contacted))
            .await
            .unwrap_or_else(|_| Err(failed(Failure::Connect, "no connection in time")))?;
        // The request is one small write: waiting for more of it would only cost time.
        if let Err(error) = stream.set_nodelay(true) {
            return Err(failed(Failure::Connect, error));
        }
        if !origin.https {
            return Ok((Wire::Plain(stream), address));
        }
        let name = ServerName::try_from(origin.host.as_str().to_owned())
            .map_err(|error| failed(Failure::Tls, format_args!("{}: {error}", origin.host)))?;
        let until = deadline.min(Instant::now() + self.timeout);
        match timeout_at(until, self.tls.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok((Wire::Tls(Box::new(stream)), address)),
            Ok(Err(error)) => Err(failed(Failure::Tls, describe(&error))),
            Err(_) => Err(failed(Failure::Tls, "no handshake in time")),
        }
    }

    async fn race(
        &self,
        port: u16,
        addresses: &[IpAddr],
        pool: &Pool,
        contacted: &mut Vec<IpAddr>,
    ) -> Result<(TcpStream, IpAddr), FetchError> {
        let mut waiting = addresses.iter();
        let mut attempts = JoinSet::new();
        let mut next_at = Instant::now();
        let mut last = None;
        loop {
            let more = !waiting.as_slice().is_empty();
            tokio::select! {
                biased;
                Some(done) = attempts.join_next() => {
                    let (address, result): (IpAddr, io::Result<TcpStream>) =
                        done.map_err(|error| failed(Failure::NotTried, error))?;
                    match result {
                        Ok(stream) => return Ok((stream, address)),
                        Err(error) if is_short_of(&error) => {
                            contacted.retain(|tried| *tried != address);
                            if !pool.close_one() {
                                return Err(failed(Failure::NotTried, error));
                            }
                            // The descriptor is free when the task that held it has been dropped.
                            yield_now().await;
                            self.begin(&mut attempts, SocketAddr::new(address, port), contacted);
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
                    self.begin(&mut attempts, SocketAddr::new(address, port), contacted);
                    next_at = Instant::now() + ATTEMPT_DELAY;
                }
                else => return Err(last.unwrap_or_else(|| failed(Failure::Connect, "no address"))),
            }
        }
    }

    fn begin(
        &self,
        attempts: &mut JoinSet<(IpAddr, io::Result<TcpStream>)>,
        to: SocketAddr,
        contacted: &mut Vec<IpAddr>,
    ) {
        contacted.push(to.ip());
        attempts.spawn_local(async move { (to.ip(), TcpStream::connect(to).await) });
    }
}

fn tls_config(ca_pem: Option<&[u8]>) -> Result<ClientConfig, SetupError> {
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
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Names the kind of a failed handshake, and then the failure itself.
fn describe(error: &io::Error) -> String {
    use rustls::Error::*;
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return format!("connection: {error}");
    };
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
