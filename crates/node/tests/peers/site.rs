//! A site for a test: an authority of its own, and agents on free ports.

use std::fs;
use std::future::Future;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::civil::{Date, date};
use nephila_node::peers::{Identity, Inbox, Limits, Name, Peer, Peers};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// How long anything here may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the agents of these tests say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) number: u64,
    pub(crate) text: String,
}

pub(crate) fn message(number: u64) -> Message {
    Message { number, text: format!("message {number}") }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn peer(text: &str) -> Peer {
    Peer::Agent(name(text))
}

/// How the certificate of an agent is made.
pub(crate) struct Terms {
    pub(crate) domain: &'static str,
    /// When it begins and ends.
    pub(crate) valid: (Date, Date),
    pub(crate) usages: Vec<ExtendedKeyUsagePurpose>,
}

pub(crate) fn terms(domain: &'static str) -> Terms {
    let usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    Terms { domain, valid: (date(2020, 1, 1), date(2120, 1, 1)), usages }
}

/// An authority that signs whatever a test wants, which that of `nephila ca` does not.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The directory of an agent.
    pub(crate) fn make(&self, terms: Terms) -> PathBuf {
        let mut params = CertificateParams::new(vec![terms.domain.to_owned()]).unwrap();
        let time = |date: Date| {
            date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
        };
        (params.not_before, params.not_after) = (time(terms.valid.0), time(terms.valid.1));
        params.extended_key_usages = terms.usages;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let dir = tempfile::Builder::new().tempdir_in(self.dir.path()).unwrap().keep();
        fs::write(dir.join("ca.pem"), self.pem()).unwrap();
        fs::write(dir.join("agent.pem"), certificate.pem()).unwrap();
        fs::write(dir.join("agent.key"), key.serialize_pem()).unwrap();
        fs::set_permissions(dir.join("agent.key"), fs::Permissions::from_mode(0o600)).unwrap();
        dir
    }

    /// An agent of site paris.
    pub(crate) fn agent(&self, domain: &'static str) -> Agent {
        self.agent_with(domain, limits())
    }

    pub(crate) fn agent_with(&self, domain: &'static str, limits: Limits) -> Agent {
        Agent::start(Identity::read(&self.make(terms(domain))).unwrap(), listener(), limits)
    }
}

/// Limits that keep tests short.
pub(crate) fn limits() -> Limits {
    let reconnect = Duration::from_millis(5);
    Limits { reconnect_min: reconnect, reconnect_max: 4 * reconnect, ..Limits::default() }
}

pub(crate) fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// A running agent.
pub(crate) struct Agent {
    pub(crate) peers: Peers<Message>,
    pub(crate) inbox: Inbox<Message>,
}

impl Agent {
    pub(crate) fn start(identity: Identity, listener: TcpListener, limits: Limits) -> Agent {
        let (peers, inbox) = Peers::start(identity, listener, limits).unwrap();
        Agent { peers, inbox }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::Agent(self.peers.identity().agent().clone())
    }

    pub(crate) fn address(&self) -> String {
        self.peers.address().to_string()
    }

    pub(crate) fn send(&self, to: &Agent, number: u64) {
        self.peers.send(&to.peer(), &to.address(), &message(number)).unwrap();
    }

    /// The next message and its sender.
    pub(crate) async fn next(&mut self) -> (String, Message) {
        let (from, message) = within(self.inbox.recv()).await.unwrap();
        (from.to_string(), message)
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it has not happened in time")
}

pub(crate) async fn wait_until(mut is_so: impl FnMut() -> bool) {
    within(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
