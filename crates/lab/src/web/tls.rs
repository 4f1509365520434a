//! Certificates of the web: its own authority, and for every name a certificate as its kind has it, made on demand.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{NoServerSessionStorage, ResolvesServerCertUsingSni},
    sign::{CertifiedKey, SigningKey, SingleCertAndKey},
};

use super::{WebError, kinds::Certificate};

/// Names whose settings are kept, at less than 2 KB each; when there are more, all are made anew.
const NAMES_MAX: usize = 32_768;

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// What is particular to the settings of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// What its certificate is like.
    pub certificate: Certificate,
    /// It speaks HTTP/2 and nothing else.
    pub http2: bool,
}

/// The authorities, the one key that all hosts have, and the settings made so far.
pub(super) struct Tls {
    root: Issuer,
    intermediate: Issuer,
    unknown: Issuer,
    key: KeyPair,
    signer: Arc<dyn SigningKey>,
    /// What the settings of all hosts have in common: one key for tickets, for instance.
    base: ServerConfig,
    made: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Makes the authorities. Only with `resumption` do sessions go on over later connections.
    pub(super) fn new(resumption: bool) -> Result<Tls, WebError> {
        let root = CertifiedIssuer::self_signed(authority("Nephila lab root"), KeyPair::generate()?)?;
        let intermediate =
            CertifiedIssuer::signed_by(authority("Nephila lab intermediate"), KeyPair::generate()?, &root)?;
        let unknown = CertifiedIssuer::self_signed(authority("Nobody knows this one"), KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signer = provider.key_provider.load_private_key(der)?;
        let mut base = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        base.session_storage = Arc::new(NoServerSessionStorage {});
        base.send_tls13_tickets = usize::from(resumption);
        if resumption {
            base.ticketer = rustls::crypto::ring::Ticketer::new()?;
        }
        Ok(Tls { root, intermediate, unknown, key, signer, base, made: Mutex::default() })
    }

    /// The root certificate.
    pub(super) fn root_pem(&self) -> String {
        self.root.pem()
    }

    /// Settings for a connection to a name, whose terms are always the same.
    pub(super) fn config(&self, name: &str, terms: Terms) -> Result<Arc<ServerConfig>, WebError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = made.get(name) {
            return Ok(Arc::clone(config));
        }
        let certified = CertifiedKey::new(self.chain(name, terms.certificate)?, Arc::clone(&self.signer));
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        config.alpn_protocols = vec![if terms.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let config = Arc::new(config);
        if made.len() >= NAMES_MAX {
            made.clear();
        }
        made.insert(name.to_owned(), Arc::clone(&config));
        Ok(config)
    }

    fn chain(&self, name: &str, certificate: Certificate) -> Result<Vec<CertificateDer<'static>>, WebError> {
        let subject = if certificate == Certificate::WrongName { "another-name.test" } else { name };
        let mut params = CertificateParams::new(vec![subject.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, subject);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = date_time_ymd(2019, 1, 1);
        if certificate == Certificate::Expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        Ok(match certificate {
            Certificate::SelfSigned => vec![params.self_signed(&self.key)?.into()],
            Certificate::Untrusted => {
                vec![params.signed_by(&self.key, &self.unknown)?.into(), self.unknown.der().clone()]
            }
            Certificate::Incomplete => vec![params.signed_by(&self.key, &self.intermediate)?.into()],
            Certificate::Valid | Certificate::Expired | Certificate::WrongName => {
                vec![params.signed_by(&self.key, &self.intermediate)?.into(), self.intermediate.der().clone()]
            }
        })
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}
