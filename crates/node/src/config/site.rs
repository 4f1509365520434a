//! What an agent is told of its site.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use nephila_core::scope::ScopeKind;
use nephila_core::site::{AgentId, SiteSettings, Terms};
use nephila_core::url::Url;

use super::values::{Codec, Given, Shown};
use super::{Config, Mistakes, StoreConfig};

/// Agents that a file may list.
const PEERS_MAX: usize = 256;

/// The settings of the group "Site"; [`super::table::SETTINGS`] says what each field means.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table of settings documents each field")]
pub struct SiteConfig {
    pub identity: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    pub address: Option<PeerAddress>,
    pub peers: Vec<PeerAddress>,
    pub capacity: u16,
    pub store: StoreConfig,
    pub forget_after: Option<Duration>,
    pub federation: Option<PathBuf>,
    pub gateway: Option<SocketAddr>,
    pub geoip: Option<PathBuf>,
}

impl Default for SiteConfig {
    fn default() -> SiteConfig {
        SiteConfig {
            identity: None,
            listen: None,
            address: None,
            peers: Vec::new(),
            capacity: 1,
            store: StoreConfig::default(),
            forget_after: None,
            federation: None,
            gateway: None,
            geoip: None,
        }
    }
}

impl Config {
    /// Whether it is that of an agent of a site.
    pub fn is_of_site(&self) -> bool {
        self.site != SiteConfig::default()
    }

    /// Checks that an agent of a site is told what it needs.
    pub fn check_site(&self, mistakes: &mut Mistakes) {
        let SiteConfig { identity, listen, address, .. } = &self.site;
        if identity.is_none() {
            mistakes.add("identity: name the directory that `nephila ca` made for this agent");
        }
        match listen {
            None => mistakes.add("listen: write where this agent listens to the others, such as 0.0.0.0:7946"),
            Some(listen) if address.is_none() && listen.ip().is_unspecified() => mistakes.add(format!(
                "address: listen is {listen}, which is no address to connect to: write where the other agents reach this one"
            )),
            Some(_) => {}
        }
        if self.site.gateway.is_some() && self.site.federation.is_none() {
            mistakes.add("gateway: other sites are listened to in a federation: name the list of its sites with `federation`");
        }
        self.site.store.check(mistakes);
    }

    /// Checks that an agent with so many seeds has something to crawl.
    pub fn check_seeds(&self, seeds: usize, mistakes: &mut Mistakes) {
        if seeds > 0 || !mistakes.list().is_empty() {
            return;
        }
        if self.site.federation.is_none() {
            mistakes.add(
                "urls: name where the crawl starts, the same for all agents, here or in a file with `seeds`",
            );
        } else if self.scope != ScopeKind::Any {
            mistakes.add(
                "scope: a site without seeds crawls what others send it: write scope = \"any\", and `include` or `exclude` as you like",
            );
        }
    }

    /// What the core is told of the site, for the agent of this number and name with these seeds.
    pub fn site_settings(&self, me: AgentId, name: String, seeds: &[Url]) -> SiteSettings {
        let SiteConfig { listen, address, peers, capacity, .. } = &self.site;
        let address = address.as_ref().map(|address| address.0.clone());
        SiteSettings {
            me,
            name,
            address: address.or(listen.map(|listen| listen.to_string())).unwrap_or_default(),
            capacity: *capacity,
            peers: peers.iter().map(|peer| peer.0.clone()).collect(),
            terms: Terms::of(&self.scope(seeds), seeds, &self.settings),
            shares_store: self.shares_store(),
            forget_after: self.site.forget_after,
        }
    }
}

/// Where an agent is reached: a name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress(String);

/// A text that says nothing of the kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not where an agent is reached: write HOST:PORT, such as 10.0.0.1:7946 or [::1]:7946")]
pub struct NotAPeerAddress(String);

impl FromStr for PeerAddress {
    type Err = NotAPeerAddress;

    fn from_str(text: &str) -> Result<PeerAddress, NotAPeerAddress> {
        let wrong = || NotAPeerAddress(text.to_owned());
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() > 0 { Ok(PeerAddress(address.to_string())) } else { Err(wrong()) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_name = (1..=253).contains(&host.len()) && host.bytes().all(fits);
        match port.parse::<u16>() {
            Ok(1..) if is_name => Ok(PeerAddress(text.to_ascii_lowercase())),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where agents are reached.
pub(super) struct PeerAddresses;

impl Codec<Vec<PeerAddress>> for PeerAddresses {
    const MANY: bool = true;
    fn read(given: &Given<'_>) -> Result<Vec<PeerAddress>, String> {
        let read = |word: &str| word.parse().map_err(|error: NotAPeerAddress| error.to_string());
        let mut peers: Vec<PeerAddress> = given.each().map(read).collect::<Result<_, _>>()?;
        // So that the same list is the same, however it is written.
        peers.sort();
        peers.dedup();
        if peers.len() > PEERS_MAX {
            return Err(format!("{} agents are too many: list some that are always there", peers.len()));
        }
        Ok(peers)
    }
    fn show(value: &Vec<PeerAddress>) -> Option<Shown> {
        if value.is_empty() {
            None
        } else {
            Some(Shown::List(value.iter().map(PeerAddress::to_string).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_agents_are_reached() {
        for (text, expected) in [
            ("10.0.0.1:7946", Some("10.0.0.1:7946")),
            ("[::0:1]:7946", Some("[::1]:7946")),
            ("Agent-1.example.org:1", Some("agent-1.example.org:1")),
            ("agent", None),
            ("agent:0", None),
            ("10.0.0.1:0", None),
            ("agent:70000", None),
            (":7946", None),
            ("a b:7946", None),
            ("::1:7946", None),
            ("http://agent:7946", None),
        ] {
            assert_eq!(
                text.parse().ok().map(|address: PeerAddress| address.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
