//! The store that the agents of a site share: where it is, and how it is spoken to.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use nephila_core::site::AgentId;
use nephila_store::redis::{ClusterOptions, LinkOptions, Login, RedisOptions};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::{Config, Mistakes, PeerAddress};
use crate::writer::store_limits;

/// How long servers that fail over or cannot be reached are waited for before something else is done.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long a server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Servers that a URL may name, and the longest name of a crawl or a user.
const NODES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;
/// How much of a file is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The settings of the store; [`super::table::SETTINGS`] says what each field means.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table of settings documents each field")]
pub struct StoreConfig {
    pub url: Option<StoreUrl>,
    pub name: Option<StoreName>,
    pub password: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub replicas: u32,
    pub plain: bool,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        let (url, name, password, ca, certificate, key) = (None, None, None, None, None, None);
        StoreConfig { url, name, password, ca, certificate, key, replicas: 1, plain: false }
    }
}

impl StoreConfig {
    /// Checks that the settings make sense together.
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        let Some(url) = &self.url else {
            if *self != StoreConfig::default() {
                mistakes.add(
                    "store: it is missing, and other settings speak of it: write rediss://USER@HOST:PORT",
                );
            }
            return;
        };
        match (url.user.is_some(), self.password.is_some()) {
            (true, false) => {
                mistakes.add("store-password: name the file with the password of the user in store")
            }
            (false, true) => {
                mistakes.add("store: name the user whose password it is: rediss://USER@HOST:PORT,...");
            }
            _ => {}
        }
        if let Some(node) = url.nodes.iter().find(|node| !self.plain && !is_on_this_machine(node)) {
            let lacks = match (url.tls, &url.user) {
                (true, Some(_)) => None,
                (true, None) => Some("whoever reaches it could change everything without a login"),
                (false, _) => Some("whoever is between could read and change everything without TLS"),
            };
            if let Some(lacks) = lacks {
                mistakes.add(format!(
                    "store: {node} is on another machine, and {lacks}: write rediss://USER@HOST:PORT,... (docs/redis.md says how \
                     to set that up), or, on a network that nobody else is on, store-plain = true"
                ));
            }
        }
        if url.tls && self.ca.is_none() {
            mistakes.add("store-ca: name the file with the authority that the servers' certificates are of");
        }
        if !url.tls && (self.ca.is_some() || self.certificate.is_some() || self.key.is_some()) {
            mistakes.add("store: certificates are for TLS: write rediss:// with two s");
        }
        if self.certificate.is_some() != self.key.is_some() {
            mistakes.add("store-certificate and store-key: give both or neither");
        }
        if self.replicas == 0 {
            mistakes.add("store-replicas: must be more than 0: what one server alone has is lost with it");
        }
    }

    fn login(&self) -> Result<Option<Login>, NoStore> {
        let user = self.url.as_ref().and_then(|url| url.user.clone());
        let (Some(user), Some(path)) = (user, &self.password) else { return Ok(None) };
        let password = String::from_utf8(read(path, true)?).map_err(|_| NoStore::NotText(path.clone()))?;
        Ok(Some(Login { user, password: password.trim_end_matches(['\r', '\n']).to_owned() }))
    }

    fn tls(&self) -> Result<Option<Arc<ClientConfig>>, NoStore> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| NoStore::Tls(ca.clone(), error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unusable = |error| NoStore::Tls(ca.clone(), error);
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(roots);
        Ok(Some(Arc::new(match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let own = PrivateKeyDer::from_pem_slice(&read(key, true)?)
                    .map_err(|_| NoStore::NotPem(key.clone(), "key"))?;
                let chain = certificates(certificate)?;
                config
                    .with_client_auth_cert(chain, own)
                    .map_err(|error| NoStore::Tls(certificate.clone(), error))?
            }
            _ => config.with_no_client_auth(),
        })))
    }
}

impl Config {
    /// Whether the agents of the site share a store.
    pub fn shares_store(&self) -> bool {
        self.site.store.url.is_some()
    }

    /// Says what the crawl is called in the store that agents share, if they share one and nobody said so: as the site. With the
    /// name a directory records which crawl it is of.
    pub fn name_store(&mut self, site: &str) {
        let store = &mut self.site.store;
        if store.url.is_some() && store.name.is_none() {
            store.name = Some(StoreName(site.to_owned()));
        }
    }

    /// How the store is spoken to that the agents of a site share, for the agent of this number; nothing if each has its own.
    pub fn shared_store(&self, me: AgentId, site: &str) -> Result<Option<RedisOptions>, NoStore> {
        let store = &self.site.store;
        let Some(url) = &store.url else { return Ok(None) };
        let (login, tls) = (store.login()?, store.tls()?);
        let link = LinkOptions {
            login,
            tls,
            accepts_plain: store.plain,
            answer_time_max: ANSWER_TIME_MAX,
            ..LinkOptions::default()
        };
        let nodes = url.nodes.iter().map(PeerAddress::to_string).collect();
        let name = store.name.as_ref().map_or(site, |name| &name.0);
        Ok(Some(RedisOptions {
            cluster: ClusterOptions { nodes, link, replicas: store.replicas, patience: PATIENCE },
            crawl: format!("{name}:"),
            partitions: Vec::new(),
            limits: store_limits(self),
            writer: me,
            accepts_unsafe: false,
            hash_key: None,
        }))
    }
}

/// Why the store cannot be spoken to as the settings say. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum NoStore {
    /// A file cannot be read.
    #[error("cannot read {}, which the settings of the store name", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A secret is none.
    #[error("{} can be read by everybody: run chmod 600 {}, or make a new one if others may have read it", .0.display(), .0.display())]
    Exposed(PathBuf),
    /// A password is not text.
    #[error("{} is not text: write the password of the store's user into it", .0.display())]
    NotText(PathBuf),
    /// A file is not what it should be.
    #[error("{} holds no {} in PEM form", .0.display(), .1)]
    NotPem(PathBuf, &'static str),
    /// Certificates cannot be used.
    #[error("{} cannot be used to speak to the store", .0.display())]
    Tls(PathBuf, #[source] rustls::Error),
}

fn read(path: &Path, is_secret: bool) -> Result<Vec<u8>, NoStore> {
    use std::io::Read as _;
    let failed = |error| NoStore::Read(path.to_owned(), error);
    let file = std::fs::File::open(path).map_err(failed)?;
    if is_secret && file.metadata().map_err(failed)?.mode() & 0o004 > 0 {
        return Err(NoStore::Exposed(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, NoStore> {
    let wrong = || NoStore::NotPem(path.to_owned(), "certificate");
    let pem = read(path, false)?;
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|_| wrong())?;
    if found.is_empty() { Err(wrong()) } else { Ok(found) }
}

/// Where a cluster is: some of its servers, and who logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl {
    tls: bool,
    user: Option<String>,
    nodes: Vec<PeerAddress>,
}

/// What a crawl is called in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreName(String);

/// A text that says nothing of the kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAStore {
    /// It is not the URL of a cluster.
    #[error(
        "{0:?} is not where a store is: write rediss://USER@HOST:PORT,HOST:PORT, or redis:// without TLS"
    )]
    Url(String),
    /// It has the password in it.
    #[error("a password is no setting: put it into a file that store-password names, and leave it out here")]
    Password,
    /// It is no name.
    #[error("{0:?} is not a name: up to {NAME_BYTES_MAX} letters, digits, -, _ and .")]
    Name(String),
}

/// Whether what is said to a server stays on this machine. Of a name nobody can tell, but for the usual one.
fn is_on_this_machine(node: &PeerAddress) -> bool {
    let text = node.to_string();
    match text.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_canonical().is_loopback(),
        Err(_) => text.starts_with("localhost:"),
    }
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

impl FromStr for StoreUrl {
    type Err = NotAStore;

    fn from_str(text: &str) -> Result<StoreUrl, NotAStore> {
        let wrong = || NotAStore::Url(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(wrong()),
        };
        let (user, nodes) = match rest.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => return Err(NotAStore::Password),
            Some((user, nodes)) if is_name(user) => (Some(user.to_owned()), nodes),
            Some(_) => return Err(wrong()),
            None => (None, rest),
        };
        let nodes =
            nodes.trim_end_matches('/').split(',').map(|node| node.trim().parse().map_err(|_| wrong()));
        let nodes: Vec<PeerAddress> = nodes.collect::<Result<_, _>>()?;
        if nodes.len() > NODES_MAX { Err(wrong()) } else { Ok(StoreUrl { tls, user, nodes }) }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "rediss://" } else { "redis://" })?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        let nodes: Vec<String> = self.nodes.iter().map(PeerAddress::to_string).collect();
        f.write_str(&nodes.join(","))
    }
}

impl FromStr for StoreName {
    type Err = NotAStore;

    fn from_str(text: &str) -> Result<StoreName, NotAStore> {
        if is_name(text) { Ok(StoreName(text.to_owned())) } else { Err(NotAStore::Name(text.to_owned())) }
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_store_is() {
        for (text, expected) in [
            ("redis://10.0.0.1:6379", Ok("redis://10.0.0.1:6379")),
            ("redis://10.0.0.1:6379,Redis-2:6379/", Ok("redis://10.0.0.1:6379,redis-2:6379")),
            ("rediss://nephila@[::1]:6379", Ok("rediss://nephila@[::1]:6379")),
            ("redis://me:secret@a:1", Err(NotAStore::Password)),
            ("redis://", Err(NotAStore::Url("redis://".into()))),
            ("redis://a", Err(NotAStore::Url("redis://a".into()))),
            ("http://a:1", Err(NotAStore::Url("http://a:1".into()))),
            ("a:1", Err(NotAStore::Url("a:1".into()))),
        ] {
            let read = text.parse().map(|url: StoreUrl| url.to_string());
            assert_eq!(read, expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn settings_that_do_not_fit_together() {
        let url = |text: &str| Some(text.parse().unwrap());
        let file = || Some(PathBuf::from("/f"));
        let none = StoreConfig::default();
        for (store, mistake) in [
            (none.clone(), None),
            (StoreConfig { url: url("redis://127.0.0.1:1,[::1]:1,localhost:1"), ..none.clone() }, None),
            (StoreConfig { url: url("rediss://[::1]:1"), ca: file(), ..none.clone() }, None),
            (StoreConfig { ca: file(), ..none.clone() }, Some("store: it is missing")),
            (StoreConfig { plain: true, ..none.clone() }, Some("store: it is missing")),
            (StoreConfig { url: url("rediss://[::1]:1"), ..none.clone() }, Some("store-ca: name")),
            (StoreConfig { url: url("redis://[::1]:1"), ca: file(), ..none.clone() }, Some("rediss://")),
            (StoreConfig { url: url("redis://u@[::1]:1"), ..none.clone() }, Some("store-password: name")),
            (
                StoreConfig { url: url("redis://[::1]:1"), password: file(), ..none.clone() },
                Some("name the user"),
            ),
            (
                StoreConfig { url: url("redis://[::1]:1"), replicas: 0, ..none.clone() },
                Some("store-replicas"),
            ),
            // Other machines.
            (
                StoreConfig { url: url("redis://[::1]:1,a:1"), ..none.clone() },
                Some("a:1 is on another machine"),
            ),
            (StoreConfig { url: url("redis://10.0.0.1:1"), ..none.clone() }, Some("rediss://USER@HOST:PORT")),
            (StoreConfig { url: url("rediss://a:1"), ca: file(), ..none.clone() }, Some("without a login")),
            (
                StoreConfig { url: url("redis://u@a:1"), password: file(), ..none.clone() },
                Some("could read and change"),
            ),
            (StoreConfig { url: url("rediss://u@a:1"), password: file(), ca: file(), ..none.clone() }, None),
            (StoreConfig { url: url("redis://a:1"), plain: true, ..none }, None),
        ] {
            let mut mistakes = Mistakes::default();
            store.check(&mut mistakes);
            assert_eq!(mistakes.list().len(), usize::from(mistake.is_some()), "{:?}", mistakes.list());
            assert!(
                mistake.is_none_or(|mistake| mistakes.list()[0].contains(mistake)),
                "{:?}",
                mistakes.list()
            );
        }
    }
}
