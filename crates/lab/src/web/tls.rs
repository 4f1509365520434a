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
    server::NoServerSessionStorage,
};

use super::{WebError, kinds::Certificate};

/// Names whose settings are kept; when there are more, all are made anew.
const NAMES_MAX: usize = 8_192;

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// The authorities, the one key that all hosts have, and the settings made so far.
pub(super) struct Tls {
    root: Issuer,
    intermediate: Issuer,
    unknown: Issuer,
    key: KeyPair,
    made: Mutex<HashMap<(String, Certificate), Arc<ServerConfig>>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Makes the authorities.
    pub(super) fn new() -> Result<Tls, WebError> {
        let root = CertifiedIssuer::self_signed(authority("Nephila lab root"), KeyPair::generate()?)?;
        let intermediate =
            CertifiedIssuer::signed_by(authority("Nephila lab intermediate"), KeyPair::generate()?, &root)?;
        let unknown = CertifiedIssuer::self_signed(authority("Nobody knows this one"), KeyPair::generate()?)?;
        Ok(Tls { root, intermediate, unknown, key: KeyPair::generate()?, made: Mutex::default() })
    }

    /// The root certificate.
    pub(super) fn root_pem(&self) -> String {
        self.root.pem()
    }

    /// Settings for a connection to a name.
    pub(super) fn config(&self, name: &str, certificate: Certificate) -> Result<Arc<ServerConfig>, WebError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = made.get(&(name.to_owned(), certificate)) {
            return Ok(Arc::clone(config));
        }
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain(name, certificate)?, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        if made.len() >= NAMES_MAX {
            made.clear();
        }
        made.insert((name.to_owned(), certificate), Arc::clone(&config));
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
