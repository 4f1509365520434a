//! Certificates of a cluster: an authority of its own, and one certificate that servers and clients share.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Writes the certificates to a directory. Gives back the lines that servers need, and what clients do.
pub(super) fn make(dir: &Path) -> anyhow::Result<(Vec<String>, Arc<ClientConfig>)> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // It must not have the name of what it signs.
    authority.distinguished_name.push(DnType::CommonName, "Nephila lab's redis");
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;

    let write = |name: &str, text: String| {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display())).map(|()| path)
    };
    let files = [
        ("tls-cert-file", write("cert.pem", certificate.pem())?),
        ("tls-key-file", write("key.pem", key.serialize_pem())?),
        ("tls-ca-cert-file", write("ca.pem", authority.pem())?),
    ];
    let mut lines: Vec<String> =
        files.iter().map(|(name, path)| format!("{name} {}", path.display())).collect();
    lines.extend(["tls-cluster yes", "tls-replication yes", "tls-auth-clients yes"].map(str::to_owned));

    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let own = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate.der().clone()], own)?;
    Ok((lines, Arc::new(config)))
}
