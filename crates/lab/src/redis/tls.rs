//! Certificates of a cluster: an authority of its own, and one certificate that servers and clients share.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The certificate, its key, and the authority.
pub(super) fn files(dir: &Path) -> [PathBuf; 3] {
    ["cert.pem", "key.pem", "ca.pem"].map(|name| dir.join(name))
}

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

    let texts = [certificate.pem(), key.serialize_pem(), authority.pem()];
    let names = ["tls-cert-file", "tls-key-file", "tls-ca-cert-file"];
    let mut lines = Vec::new();
    for ((path, text), name) in files(dir).iter().zip(texts).zip(names) {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        // Who uses the key wants it to be a secret.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        lines.push(format!("{name} {}", path.display()));
    }
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
