//! The list of a federation's sites, in a file that all of them have.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use nephila_core::federation::{Federation, ListId, NotAFederation, SiteEntry};
use serde::Deserialize;

use super::Config;
use super::site::PeerAddress;
use crate::peers::{Identity, Name};

/// The largest such file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Gateways that a site may list.
const GATEWAYS_MAX: usize = 64;

/// Why a list of sites cannot be used. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum FederationError {
    /// The file cannot be read.
    #[error("cannot read {}, which `federation` names", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// It is no such list.
    #[error("{path} is not a list of sites (docs/federation.md): {why}", path = .0.display(), why = .1)]
    NotAList(PathBuf, String),
    /// Its sites are none.
    #[error("{} is not a list of sites (docs/federation.md)", .0.display())]
    NotSites(PathBuf, #[source] NotAFederation),
    /// This site is not in it.
    #[error("{path} does not list the site {site}, which this agent's certificate names", path = .0.display(), site = .1)]
    NotListed(PathBuf, Name),
}

/// What the file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u64,
    site: Vec<WrittenSite>,
    #[serde(default)]
    pinned: BTreeMap<String, String>,
    /// For comparisons: see [`Federation::stretched`].
    #[serde(default)]
    stretched: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSite {
    name: String,
    gateways: Vec<String>,
    ca: PathBuf,
}

/// The sites, and where the authorities of the others are.
#[derive(Debug)]
pub struct FederationFile {
    pub(crate) path: PathBuf,
    pub(crate) federation: Federation,
    pub(crate) authorities: Vec<(Name, PathBuf)>,
}

impl Config {
    /// Reads the list that `federation` names, for the agent of this identity.
    pub fn read_federation(&self, identity: &Identity) -> Result<Option<FederationFile>, FederationError> {
        let Some(path) = &self.site.federation else { return Ok(None) };
        FederationFile::read(path, identity.site()).map(Some)
    }
}

impl FederationFile {
    /// Which list it is.
    pub fn list(&self) -> ListId {
        self.federation.list()
    }

    /// Reads the list for an agent of this site.
    pub(crate) fn read(path: &Path, me: &Name) -> Result<FederationFile, FederationError> {
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|error| FederationError::Read(path.to_owned(), error))?;
        FederationFile::parse(&text, path, me)
    }

    fn parse(text: &str, path: &Path, me: &Name) -> Result<FederationFile, FederationError> {
        let wrong = |why: String| FederationError::NotAList(path.to_owned(), why);
        let written: Written = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let (mut sites, mut authorities) = (Vec::new(), Vec::new());
        for WrittenSite { name, gateways, ca } in written.site {
            let parsed: Name = name.parse().map_err(|error| wrong(format!("{error}")))?;
            let read = |gateway: &String| gateway.parse::<PeerAddress>().map(|address| address.to_string());
            let gateways = gateways.iter().map(read).collect::<Result<Vec<_>, _>>();
            let gateways = gateways.map_err(|error| wrong(format!("gateways of {name}: {error}")))?;
            if gateways.is_empty() || gateways.len() > GATEWAYS_MAX {
                return Err(wrong(format!("gateways of {name}: list 1 to {GATEWAYS_MAX} of its agents")));
            }
            if parsed != *me {
                let base = path.parent().unwrap_or(Path::new("."));
                authorities.push((parsed, base.join(ca)));
            }
            sites.push(SiteEntry { name, gateways });
        }
        if sites.len() == 1 && sites[0].name == me.as_str() {
            return Err(wrong("it lists no other site".to_owned()));
        }
        let fits = |domain: &String| {
            let is_label = |label: &str| !label.is_empty() && label.len() <= 63;
            domain.is_ascii() && domain.split('.').all(is_label)
        };
        if let Some(domain) = written.pinned.keys().find(|domain| !fits(domain)) {
            return Err(wrong(format!(
                "pinned: {domain:?} is not a domain, such as \"example.org\" or \"jp\""
            )));
        }
        if !sites.iter().any(|site| site.name == me.as_str()) {
            return Err(FederationError::NotListed(path.to_owned(), me.clone()));
        }
        let federation = Federation::new(written.version, sites, me.as_str(), written.pinned)
            .map_err(|error| FederationError::NotSites(path.to_owned(), error))?;
        let federation = if written.stretched { federation.stretched() } else { federation };
        Ok(FederationFile { path: path.to_owned(), federation, authorities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        version = 3
        [[site]]
        name = "paris"
        gateways = ["Paris.example:7947"]
        ca = "paris.pem"
        [[site]]
        name = "lima"
        gateways = ["10.0.0.1:7947", "10.0.0.2:7947"]
        ca = "/etc/lima.pem"
        [pinned]
        "jp" = "lima"
    "#;

    fn parse(text: &str, me: &str) -> Result<FederationFile, String> {
        let parsed = FederationFile::parse(text, Path::new("/a/list.toml"), &me.parse().unwrap());
        parsed.map_err(|error| {
            use std::error::Error;
            format!("{error}; {}", error.source().map(ToString::to_string).unwrap_or_default())
        })
    }

    #[test]
    fn a_list_is_read() {
        let list = parse(GOOD, "paris").unwrap();
        let sites: Vec<(&str, usize)> =
            list.federation.sites().map(|(_, site)| (&*site.name, site.gateways.len())).collect();
        assert_eq!(sites, [("lima", 2), ("paris", 1)]);
        assert_eq!(list.authorities, [("lima".parse().unwrap(), PathBuf::from("/etc/lima.pem"))]);
        let list = parse(GOOD, "lima").unwrap();
        assert_eq!(list.authorities, [("paris".parse().unwrap(), PathBuf::from("/a/paris.pem"))]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, me, expected) in [
            ("", "", "oslo", "does not list the site oslo"),
            ("version = 3", "", "paris", "missing field `version`"),
            ("\"jp\" = \"lima\"", "\"jp\" = \"oslo\"", "paris", "no site is called \"oslo\""),
            ("\"jp\"", "\"a..b\"", "paris", "\"a..b\" is not a domain"),
            ("\"lima\"\n", "\"paris\"\n", "paris", "two sites are called \"paris\""),
            ("10.0.0.1:7947", "10.0.0.1", "paris", "gateways of lima: \"10.0.0.1\" is not where"),
            ("[\"Paris.example:7947\"]", "[]", "paris", "gateways of paris: list 1 to 64"),
            ("name = \"lima\"", "name = \"Lima\"", "paris", "\"Lima\" is not a name"),
            ("gateways", "gateway", "paris", "unknown field `gateway`"),
        ] {
            let said = parse(&GOOD.replacen(from, to, 1), me).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }
}
