//! Other sites: their agents are known by certificates of their own authorities, each of which speaks for its own site alone.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::identity::{self, AnyAgent, Identity, IdentityError};
use super::name::{Name, site_domain};

/// What is needed to speak to one other site.
struct ForeignSite {
    connector: TlsConnector,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// How an agent tells the agents of other sites from each other and from everybody else.
pub(crate) struct Foreign {
    sites: BTreeMap<Name, ForeignSite>,
    acceptor: TlsAcceptor,
}

impl Foreign {
    /// As the agent of this identity; with each other site its authority.
    pub(crate) fn new(identity: &Identity, sites: &[(Name, &Path)]) -> Result<Foreign, IdentityError> {
        let mut all = RootCertStore::empty();
        let mut known = BTreeMap::new();
        for (site, path) in sites {
            let mismatch = |error| IdentityError::Mismatch((*path).to_owned(), error);
            let roots = Arc::new(identity::read_roots(path)?);
            all.roots.extend(roots.roots.iter().cloned());
            let verifier = identity::verifier(&roots).map_err(mismatch)?;
            let any = AnyAgent::new(&roots, site.clone()).map_err(mismatch)?;
            let connector = TlsConnector::from(Arc::new(identity.client_of(roots, any).map_err(mismatch)?));
            known.insert(site.clone(), ForeignSite { connector, verifier });
        }
        let mismatch = |error| {
            IdentityError::Mismatch(sites.first().map_or("".into(), |(_, path)| (*path).into()), error)
        };
        let verifier = identity::verifier(&Arc::new(all)).map_err(mismatch)?;
        let acceptor = TlsAcceptor::from(Arc::new(identity.server_of(verifier).map_err(mismatch)?));
        Ok(Foreign { sites: known, acceptor })
    }

    /// The other sites.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &Name> {
        self.sites.keys()
    }

    /// Lets somebody in who connected, and says of which site it is.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<(Name, server::TlsStream<TcpStream>)> {
        let stream = self.acceptor.accept(stream).await?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let named = chain.first().and_then(identity::who).map(|(_, site)| site);
        let denied = || {
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the certificate names no agent of a site of the federation",
            )
        };
        let (Some(site), Some((leaf, others))) = (named, chain.split_first()) else { return Err(denied()) };
        // It was made by one of the authorities: was it that of the site which it names?
        let known = self.sites.get(&site).ok_or_else(denied)?;
        known.verifier.verify_client_cert(leaf, others, UnixTime::now()).map_err(|_| denied())?;
        Ok((site, stream))
    }

    /// Makes sure that who was connected to is an agent of this site.
    pub(crate) async fn connect(
        &self,
        site: &Name,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "no authority of that site is known");
        let ForeignSite { connector, .. } = self.sites.get(site).ok_or_else(unknown)?;
        let name = ServerName::try_from(site_domain(site)).map_err(io::Error::other)?;
        connector.connect(name, stream).await
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::net::TcpListener;

    use super::super::ca;
    use super::super::ca::{AGENT_CERTIFICATE, AGENT_KEY, CA_CERTIFICATE};
    use super::super::name::agent_domain;
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// A site with one agent: its authority, and who the agent is.
    fn site(dir: &Path, site: &str) -> (PathBuf, Identity) {
        let made = ca::make(&dir.join(site), &name(site), &[name("a")]).unwrap();
        (made.ca.join(CA_CERTIFICATE), Identity::read(&made.agents[0].dir).unwrap())
    }

    /// Whom an agent takes another for that connects, and whether that takes it for one of `paris`.
    async fn meet(server: &Foreign, client: &Foreign) -> (Option<String>, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let paris = name("paris");
        let (accepted, connected) = tokio::join!(server.accept(accepted), client.connect(&paris, stream));
        (accepted.ok().map(|(site, _)| site.to_string()), connected.is_ok())
    }

    #[tokio::test]
    async fn an_authority_speaks_for_its_own_site_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (paris_ca, paris) = site(dir.path(), "paris");
        let (lima_ca, lima) = site(dir.path(), "lima");
        let (oslo_ca, oslo) = site(dir.path(), "oslo");
        // A partner whose authority is bound to no name, and makes an agent of another site.
        let rogue = dir.path().join("rogue");
        std::fs::create_dir(&rogue).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let rogue_ca = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, &key);
        let agent_key = KeyPair::generate().unwrap();
        let domain = agent_domain(&name("a"), &name("lima"));
        let agent = CertificateParams::new([domain]).unwrap().signed_by(&agent_key, &issuer).unwrap();
        std::fs::write(rogue.join(CA_CERTIFICATE), rogue_ca.pem()).unwrap();
        std::fs::write(rogue.join(AGENT_CERTIFICATE), agent.pem()).unwrap();
        std::fs::write(rogue.join(AGENT_KEY), agent_key.serialize_pem()).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(rogue.join(AGENT_KEY), std::fs::Permissions::from_mode(0o600)).unwrap();
        let false_lima = Identity::read(&rogue).unwrap();

        let rogue_ca = rogue.join(CA_CERTIFICATE);
        let known = [(name("lima"), &*lima_ca), (name("tokyo"), &*rogue_ca)];
        let server = Foreign::new(&paris, &known).unwrap();
        let of = |identity: &Identity, ca: &Path| Foreign::new(identity, &[(name("paris"), ca)]).unwrap();
        assert_eq!(meet(&server, &of(&lima, &paris_ca)).await, (Some("lima".to_owned()), true));
        // The certificate of the client is looked at after its part of the handshake is done.
        assert_eq!(meet(&server, &of(&false_lima, &paris_ca)).await.0, None);
        assert_eq!(meet(&server, &of(&oslo, &paris_ca)).await.0, None);
        // Who connects is not fooled either.
        assert!(!meet(&Foreign::new(&oslo, &known).unwrap(), &of(&lima, &paris_ca)).await.1);
        assert!(!meet(&server, &of(&lima, &oslo_ca)).await.1);
    }
}
