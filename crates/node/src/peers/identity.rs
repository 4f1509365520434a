//! Who an agent is, and how it tells the agents of its site from everybody else: TLS 1.3, certificates on both sides, one
//! authority.
//!
//! It promises that a connection exists only between two agents of one site, that each knows the other's name from its
//! certificate and from nothing else, and that whoever has no certificate of the site sees no more than ours.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::ca::{AGENT_CERTIFICATE, AGENT_KEY, CA_CERTIFICATE};
use super::name::{Name, Peer, agent_domain, parse_agent_domain, site_domain};

/// How much of a file is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How long before its end a certificate is worth a warning.
const WARN_BEFORE: Duration = Duration::from_secs(30 * 86_400);

/// Why an agent cannot be who it should be. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {}: `nephila ca` makes it, and the agent's user must be able to read it", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A file is not what it should be.
    #[error("{path} holds no {what} in PEM form: take it from what `nephila ca` made", path = .0.display(), what = .1)]
    NotPem(PathBuf, &'static str),
    /// The key is not secret.
    #[error("{} can be read by everybody: run chmod 600 {}, or make a new one if others may have read it", .0.display(), .0.display())]
    Exposed(PathBuf),
    /// Certificate and key, or certificate and authority, do not belong together.
    #[error("{} cannot be used with the files beside it: take all of them from one directory that `nephila ca` made", .0.display())]
    Mismatch(PathBuf, #[source] rustls::Error),
    /// The certificate is not valid now.
    #[error("{} is not valid now: see whether the clock is right; if it is, remove the agent's directory from where `nephila ca` keeps it and run that again", .0.display())]
    Expired(PathBuf),
    /// The certificate does not say who has it.
    #[error("{} names no agent of a site: take it from what `nephila ca` made", .0.display())]
    Nameless(PathBuf),
}

/// An agent's certificate and key, and its site's authority. The key is kept in memory and shown to nobody.
pub struct Identity {
    agent: Name,
    site: Name,
    expires_soon: bool,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// The same, for whichever agent of the site is there.
    to_any: TlsConnector,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} of {})", self.agent, self.site)
    }
}

impl Identity {
    /// Reads what `nephila ca` made for an agent: a directory with `ca.pem`, `agent.pem` and `agent.key`.
    pub fn read(dir: &Path) -> Result<Identity, IdentityError> {
        let (ca_path, path, key_path) =
            (dir.join(CA_CERTIFICATE), dir.join(AGENT_CERTIFICATE), dir.join(AGENT_KEY));
        let roots = Arc::new(read_roots(&ca_path)?);
        let chain = read_certificates(&path)?;
        let key_pem = read_file(&key_path)?;
        let mode =
            std::fs::metadata(&key_path).map_err(|error| IdentityError::Read(key_path.clone(), error))?;
        if mode.mode() & 0o007 != 0 {
            return Err(IdentityError::Exposed(key_path));
        }
        let key = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|_| IdentityError::NotPem(key_path.clone(), "private key"))?;

        let verifier = verifier(&roots).map_err(|error| IdentityError::Mismatch(ca_path, error))?;
        match verifier.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()) {
            Ok(_) => {}
            Err(rustls::Error::InvalidCertificate(error)) if is_out_of_date(&error) => {
                return Err(IdentityError::Expired(path));
            }
            Err(error) => return Err(IdentityError::Mismatch(path, error)),
        }
        let later = UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()) + WARN_BEFORE);
        let expires_soon = verifier.verify_client_cert(&chain[0], &chain[1..], later).is_err();
        let Some((agent, site)) = who(&chain[0]) else { return Err(IdentityError::Nameless(path)) };

        let mismatch = |error| IdentityError::Mismatch(path.clone(), error);
        let server = server_config(verifier, chain.clone(), key.clone_key()).map_err(mismatch)?;
        let any = AnyAgent::new(&roots, site.clone()).map_err(mismatch)?;
        let client = client_config(roots, chain.clone(), key.clone_key()).map_err(mismatch)?;
        let mut to_any = client.clone();
        to_any.dangerous().set_certificate_verifier(Arc::new(any));
        Ok(Identity {
            agent,
            site,
            expires_soon,
            chain,
            key,
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            to_any: TlsConnector::from(Arc::new(to_any)),
        })
    }

    /// The agent's name.
    pub fn agent(&self) -> &Name {
        &self.agent
    }

    /// Its site.
    pub fn site(&self) -> &Name {
        &self.site
    }

    /// Whether its certificate ends within a month.
    pub fn expires_soon(&self) -> bool {
        self.expires_soon
    }

    /// How it speaks to agents of another site.
    pub(super) fn client_of(
        &self,
        roots: Arc<RootCertStore>,
        any: AnyAgent,
    ) -> Result<ClientConfig, rustls::Error> {
        let mut config = client_config(roots, self.chain.clone(), self.key.clone_key())?;
        config.dangerous().set_certificate_verifier(Arc::new(any));
        Ok(config)
    }

    /// How it is spoken to by those that this lets in.
    pub(super) fn server_of(
        &self,
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Result<ServerConfig, rustls::Error> {
        server_config(verifier, self.chain.clone(), self.key.clone_key())
    }

    /// Lets somebody in who connected, and says which agent of the site it is.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<(Name, server::TlsStream<TcpStream>)> {
        let stream = self.acceptor.accept(stream).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        match certificate.and_then(who) {
            Some((agent, site)) if site == self.site => Ok((agent, stream)),
            _ => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the certificate names no agent of this site",
            )),
        }
    }

    /// Makes sure that who was connected to is this agent of the site.
    pub(super) async fn connect(
        &self,
        to: &Peer,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let name = ServerName::try_from(self.domain_of(to)).map_err(io::Error::other)?;
        let connector = match to {
            Peer::Agent(_) => &self.connector,
            Peer::At(_) => &self.to_any,
        };
        connector.connect(name, stream).await
    }

    /// What a peer is called in certificates; for one whose name is not known, its site.
    pub(super) fn domain_of(&self, peer: &Peer) -> String {
        match peer {
            Peer::Agent(name) => agent_domain(name, &self.site),
            Peer::At(_) => site_domain(&self.site),
        }
    }
}

/// Takes any certificate that the site's authority made for an agent of the site, and no other.
#[derive(Debug)]
pub(super) struct AnyAgent {
    site: Name,
    of_one: Arc<WebPkiServerVerifier>,
}

impl AnyAgent {
    pub(super) fn new(roots: &Arc<RootCertStore>, site: Name) -> Result<AnyAgent, rustls::Error> {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider());
        let of_one = builder.build().map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(AnyAgent { site, of_one })
    }
}

impl ServerCertVerifier for AnyAgent {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // Who it says it is; whether that is true is looked at then.
        let wrong = || rustls::Error::InvalidCertificate(CertificateError::NotValidForName);
        let (agent, _) = who(certificate).filter(|(_, site)| *site == self.site).ok_or_else(wrong)?;
        let name = ServerName::try_from(agent_domain(&agent, &self.site)).map_err(|_| wrong())?;
        self.of_one.verify_server_cert(certificate, intermediates, &name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.of_one.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.of_one.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.of_one.supported_verify_schemes()
    }
}

/// The agent and the site that a certificate names, which has been verified against the authority before.
pub(super) fn who(certificate: &CertificateDer<'_>) -> Option<(Name, Name)> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut domains = parsed.valid_dns_names();
    let (Some(domain), None) = (domains.next(), domains.next()) else { return None };
    parsed.verify_is_valid_for_subject_name(&ServerName::try_from(domain).ok()?).ok()?;
    parse_agent_domain(domain)
}

fn is_out_of_date(error: &CertificateError) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(error, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

/// Whether an agent's certificate was made by this authority and is valid now; used by [`super::ca`].
pub(super) fn check(ca: &Path, certificate: &Path, agent: &Name, site: &Name) -> Result<(), IdentityError> {
    let mismatch = |error| IdentityError::Mismatch(certificate.to_owned(), error);
    let chain = read_certificates(certificate)?;
    let verifier = verifier(&Arc::new(read_roots(ca)?)).map_err(mismatch)?;
    match verifier.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()) {
        Ok(_) if who(&chain[0]).is_some_and(|found| (&found.0, &found.1) == (agent, site)) => Ok(()),
        Ok(_) => Err(IdentityError::Nameless(certificate.to_owned())),
        Err(rustls::Error::InvalidCertificate(error)) if is_out_of_date(&error) => {
            Err(IdentityError::Expired(certificate.to_owned()))
        }
        Err(error) => Err(mismatch(error)),
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(super) fn verifier(roots: &Arc<RootCertStore>) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider())
        // Nobody needs to be told whose certificate is asked for.
        .clear_root_hint_subjects()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))
}

fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Connections last, and each one is a look at the certificates.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client_config(
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    // It would travel in the clear.
    config.enable_sni = false;
    Ok(config)
}

pub(super) fn read_roots(path: &Path) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|_| IdentityError::NotPem(path.to_owned(), "certificate"))?;
    }
    Ok(roots)
}

/// The certificates in a file, at least one.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let pem = read_file(path)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(IdentityError::NotPem(path.to_owned(), "certificate")),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, IdentityError> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, FILE_BYTES_MAX), &mut bytes))
        .map_err(|error| IdentityError::Read(path.to_owned(), error))?;
    Ok(bytes)
}
