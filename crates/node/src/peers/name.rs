//! How sites and agents are called, and how a certificate says so.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What the names in certificates end in. Names below `internal` are never on the public net.
const DOMAIN: &str = "nephila.internal";
/// The longest name: that of a label of DNS.
const NAME_BYTES_MAX: usize = 63;

/// The name of an agent or of a site: one label of DNS, so that a certificate can carry it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// A text that is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name: write 1 to 63 small letters, digits and -, no - at the ends")]
pub struct NotAName(String);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Name, NotAName> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(fits)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if is_name {
            Ok(Name(text.into()))
        } else {
            Err(NotAName(text.chars().take(NAME_BYTES_MAX + 1).collect()))
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whom to speak to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// This agent, and nobody else who may be there.
    Agent(Name),
    /// Whichever agent of the site is at this address.
    At(Arc<str>),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Agent(name) => name.fmt(f),
            Peer::At(address) => f.write_str(address),
        }
    }
}

/// The name in the certificates of a site's authority; those of its agents are below it.
pub(super) fn site_domain(site: &Name) -> String {
    format!("{site}.{DOMAIN}")
}

/// The name in the certificate of an agent.
pub(super) fn agent_domain(agent: &Name, site: &Name) -> String {
    format!("{agent}.{}", site_domain(site))
}

/// The agent and the site that the name in a certificate means.
pub(super) fn parse_agent_domain(domain: &str) -> Option<(Name, Name)> {
    let (agent, rest) = domain.split_once('.')?;
    let (site, rest) = rest.split_once('.')?;
    if rest == DOMAIN { Some((agent.parse().ok()?, site.parse().ok()?)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "agent-1", "0", &"a".repeat(63)] {
            let name: Name = good.parse().unwrap();
            assert_eq!(name.to_string(), good);
            assert_eq!(parse_agent_domain(&agent_domain(&name, &name)), Some((name.clone(), name)));
        }
        for bad in ["", "A", "a.b", "-a", "a-", "a_b", "*", "é", "a b", "../a", &"a".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
        for bad in ["", "a", "a.b", "a.b.nephila.example", "a.b.c.nephila.internal", "*.b.nephila.internal"] {
            assert_eq!(parse_agent_domain(bad), None, "{bad}");
        }
    }
}
