//! The list of a federation's sites, in a file that all of them have.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use nephila_core::assign::Position;
use nephila_core::federation::{Federation, NotAFederation, SiteEntry};
use serde::Deserialize;

use super::Config;
use super::site::PeerAddress;
use crate::directory::write_atomically;
use crate::peers::{Identity, Name};

/// The largest such file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// What copies of lists are called in the directory of a crawl, before their version.
const KEPT: &str = "federation-";
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
    /// It cannot be changed by a program.
    #[error(
        "{path} was not changed: write `version = {version}` and `gone = [{gone}]` at its beginning yourself",
        path = .path.display()
    )]
    Unchanged {
        /// The file.
        path: PathBuf,
        /// The version that it should have.
        version: u64,
        /// The sites that are gone, in quotes.
        gone: String,
    },
    /// It cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] std::io::Error),
    /// Nobody could say which site is nearest.
    #[error(
        "{} gives each host to the nearest site, and nothing says where hosts are: name a file in the MaxMind DB format with \
         `geoip` (docs/federation.md)",
        .0.display()
    )]
    NoPlaces(PathBuf),
    /// A site is gone by the list, and this agent shares its store with others.
    #[error(
        "{} says that a site is gone: agents that share a store cannot find again what that had been given yet, so leave the \
         `gone` line out, and what waits for that site goes on waiting (docs/federation.md)",
        .0.display()
    )]
    GoneAndShared(PathBuf),
    /// This site is not in it.
    #[error("{path} does not list the site {site}, which this agent's certificate names", path = .0.display(), site = .1)]
    NotListed(PathBuf, Name),
}

/// What the file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    /// Sites that are lost for good.
    #[serde(default)]
    gone: Vec<String>,
    /// The site that speaks for all where only one can.
    operator: Option<String>,
    #[serde(default)]
    partitioner: Partitioner,
    site: Vec<WrittenSite>,
    #[serde(default)]
    pinned: BTreeMap<String, String>,
    /// For comparisons: see [`Federation::stretched`].
    #[serde(default)]
    stretched: bool,
    /// For comparisons: see [`Federation::remembering`].
    #[serde(default)]
    remembering: bool,
}

/// What hosts that no rule names are divided by.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Partitioner {
    /// Their names.
    #[default]
    Hash,
    /// Where they are.
    Geography,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSite {
    name: String,
    gateways: Vec<String>,
    ca: PathBuf,
    /// What it may send here, unless that is everything.
    #[serde(rename = "may-send")]
    may_send: Option<Vec<String>>,
    /// Whether it may ask what this site has.
    #[serde(rename = "may-ask", default = "yes")]
    may_ask: bool,
    /// Where it is: degrees north and east.
    at: Option<(f64, f64)>,
}

fn yes() -> bool {
    true
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
        let file = FederationFile::read(path, identity.site())?;
        if file.federation.goes_by_place() && self.site.geoip.is_none() {
            return Err(FederationError::NoPlaces(file.path));
        }
        if self.shares_store() && file.federation.gone().next().is_some() {
            return Err(FederationError::GoneAndShared(file.path));
        }
        Ok(Some(file))
    }
}

impl FederationFile {
    /// The sites.
    pub fn federation(&self) -> &Federation {
        &self.federation
    }

    /// Reads the list for an agent of this site.
    pub(crate) fn read(path: &Path, me: &Name) -> Result<FederationFile, FederationError> {
        FederationFile::parse(&read_text(path)?, path, me)
    }

    /// Keeps a copy of the list in a crawl's directory, for those that follow.
    pub(crate) fn keep(&self, dir: &Path) -> Result<(), FederationError> {
        let copy = dir.join(format!("{KEPT}{}.toml", self.federation.list().version));
        write_atomically(&copy, read_text(&self.path)?.as_bytes())
            .map_err(|error| FederationError::Write(copy.clone(), error))
    }

    /// The lists that the crawl in a directory had before.
    pub(crate) fn earlier(&self, dir: &Path) -> Result<Vec<Federation>, FederationError> {
        let version = self.federation.list().version;
        let mut earlier = Vec::new();
        let entries = std::fs::read_dir(dir).map_err(|error| FederationError::Read(dir.to_owned(), error))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let kept = name.strip_prefix(KEPT).and_then(|rest| rest.strip_suffix(".toml"));
            if kept.and_then(|kept| kept.parse::<u64>().ok()).is_some_and(|kept| kept < version) {
                earlier.push(FederationFile::read_as_any(&path)?);
            }
        }
        Ok(earlier)
    }

    /// Whether the list may follow on those that the crawl in a directory had before: no site is left out, or comes back.
    pub(crate) fn check_follows(&self, dir: &Path) -> Result<(), FederationError> {
        for list in self.earlier(dir)? {
            for (_, before) in list.sites() {
                let now = self.federation.find(&before.name).map(|number| self.federation.site(number));
                let why = match now {
                    None => "is not in it any more: leave it there, and say that it is gone if it is",
                    Some(now) if before.is_gone && !now.is_gone => {
                        "was gone: others have its hosts. A site that begins there anew needs another name"
                    }
                    Some(_) => continue,
                };
                let why = format!("the site {} {why} (`nephila federation forget`)", before.name);
                return Err(FederationError::NotAList(self.path.clone(), why));
            }
        }
        Ok(())
    }

    /// The list as it is written.
    pub(crate) fn text(&self) -> Result<String, FederationError> {
        read_text(&self.path)
    }

    /// Reads a list, as seen by any of its sites.
    fn read_as_any(path: &Path) -> Result<Federation, FederationError> {
        FederationFile::parse_as_any(&read_text(path)?, path)
    }

    /// The same of a text that was read there.
    pub(crate) fn parse_as_any(text: &str, path: &Path) -> Result<Federation, FederationError> {
        let wrong = |why: String| FederationError::NotAList(path.to_owned(), why);
        let written: Written = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let present = written.site.iter().find(|site| !written.gone.contains(&site.name));
        let present = present.ok_or_else(|| wrong("it lists no site".to_owned()))?;
        let me: Name = present.name.parse().map_err(|error| wrong(format!("{error}")))?;
        Ok(FederationFile::parse(text, path, &me)?.federation)
    }

    /// Has a list say that a site is lost for good, in its next version. Says which version that is.
    pub fn forget(path: &Path, site: &Name) -> Result<u64, FederationError> {
        let text = read_text(path)?;
        let wrong = |why: String| FederationError::NotAList(path.to_owned(), why);
        let written: Written = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let is_left =
            |other: &&WrittenSite| other.name != site.as_str() && !written.gone.contains(&other.name);
        let left = written.site.iter().find(is_left);
        let left = left.ok_or_else(|| wrong(format!("without {site} no site would be left in it")))?;
        let me: Name = left.name.parse().map_err(|error| wrong(format!("{error}")))?;
        FederationFile::parse(&text, path, &me)?;
        if !written.site.iter().any(|other| other.name == site.as_str()) {
            return Err(FederationError::NotListed(path.to_owned(), site.clone()));
        }
        if written.gone.iter().any(|gone| gone == site.as_str()) {
            return Err(wrong(format!(
                "{site} is gone already, since version {} or before",
                written.version
            )));
        }
        let version = written.version.saturating_add(1);
        let gone = written.gone.iter().map(String::as_str).chain([site.as_str()]);
        let gone = gone.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        let changed = with_head(&text, &[("version", version.to_string()), ("gone", format!("[{gone}]"))]);
        // It may have been written in a way that this does not know.
        let is_right = toml::from_str::<Written>(&changed).is_ok_and(|read| {
            let all_gone = read.gone.len() == written.gone.len() + 1
                && read.gone.last().is_some_and(|last| last == site.as_str());
            (read.version, read.site.len(), all_gone) == (version, written.site.len(), true)
        });
        if !is_right {
            return Err(FederationError::Unchanged { path: path.to_owned(), version: version.into(), gone });
        }
        write_atomically(path, changed.as_bytes())
            .map_err(|error| FederationError::Write(path.to_owned(), error))?;
        Ok(version.into())
    }

    fn parse(text: &str, path: &Path, me: &Name) -> Result<FederationFile, FederationError> {
        let wrong = |why: String| FederationError::NotAList(path.to_owned(), why);
        let written: Written = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let (mut sites, mut authorities) = (Vec::new(), Vec::new());
        for WrittenSite { name, gateways, ca, may_send, may_ask, at } in written.site {
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
            let is_gone = written.gone.contains(&name);
            if let Some(domain) = may_send.iter().flatten().find(|domain| !is_domain(domain)) {
                return Err(wrong(format!("may-send of {name}: {}", not_a_domain(domain))));
            }
            let domains =
                may_send.map(|domains| domains.iter().map(|name| name.to_ascii_lowercase()).collect());
            let position = at.map(|degrees| position(&name, degrees)).transpose().map_err(wrong)?;
            if written.partitioner == Partitioner::Geography && !is_gone {
                by_place(&name, position, domains.is_some()).map_err(wrong)?;
            }
            let (may_send, may_not_ask) = (domains, !may_ask);
            sites.push(SiteEntry { name, gateways, is_gone, may_send, may_not_ask, position });
        }
        let is_listed = |name: &String| sites.iter().any(|site| site.name == *name);
        if let Some(other) = written.gone.iter().find(|name| !is_listed(name)) {
            return Err(wrong(format!("gone: {other:?} is not in the list: it has to stay there")));
        }
        if sites.len() == 1 && sites[0].name == me.as_str() {
            return Err(wrong("it lists no other site".to_owned()));
        }
        if let Some(domain) = written.pinned.keys().find(|domain| !is_domain(domain)) {
            return Err(wrong(format!("pinned: {}", not_a_domain(domain))));
        }
        if !sites.iter().any(|site| site.name == me.as_str()) {
            return Err(FederationError::NotListed(path.to_owned(), me.clone()));
        }
        let federation = Federation::new(written.version.into(), sites, me.as_str(), written.pinned)
            .map_err(|error| FederationError::NotSites(path.to_owned(), error))?;
        let federation = match &written.operator {
            Some(operator) => federation.operated_by(operator),
            None => Ok(federation),
        };
        let federation = federation.map_err(|error| FederationError::NotSites(path.to_owned(), error))?;
        let is_by_place = written.partitioner == Partitioner::Geography;
        let federation = if is_by_place { federation.by_place() } else { federation };
        let federation = if written.stretched { federation.stretched() } else { federation };
        let federation = if written.remembering { federation.remembering() } else { federation };
        Ok(FederationFile { path: path.to_owned(), federation, authorities })
    }
}

/// Where a site is.
fn position(name: &str, (north, east): (f64, f64)) -> Result<Position, String> {
    let wrong = || format!("at of {name}: write degrees north and east, such as [48.9, 2.4]");
    Position::new(north, east).ok_or_else(wrong)
}

/// Whether a site can be one of those that each crawl the hosts they are nearest to.
fn by_place(name: &str, position: Option<Position>, is_limited: bool) -> Result<(), String> {
    if position.is_none() {
        let why = "partitioner is \"geography\": write where it is, as degrees north and east";
        return Err(format!("at of {name}: {why}, such as at = [48.9, 2.4]"));
    }
    if is_limited {
        let why = "a host that is nearest to this site may come from any other one";
        return Err(format!("may-send of {name}: {why}: leave may-send out, or take partitioner = \"hash\""));
    }
    Ok(())
}

fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| !label.is_empty() && label.len() <= 63;
    text.is_ascii() && text.split('.').all(is_label)
}

fn not_a_domain(text: &str) -> String {
    format!("{text:?} is not a domain, such as \"example.org\" or \"jp\"")
}

fn read_text(path: &Path) -> Result<String, FederationError> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .and_then(|bytes| match bytes as u64 > FILE_BYTES_MAX {
            true => Err(std::io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes"))),
            false => Ok(()),
        })
        .map_err(|error| FederationError::Read(path.to_owned(), error))?;
    Ok(text)
}

/// The same file with these values before its first table, each on a line of its own, and all else as it was.
fn with_head(text: &str, values: &[(&str, String)]) -> String {
    let (mut lines, mut left) = (Vec::new(), values.to_vec());
    let mut in_head = true;
    for line in text.lines() {
        in_head &= !line.trim_start().starts_with('[');
        let key = line.split_once('=').map(|(key, _)| key.trim()).filter(|_| in_head);
        match left.iter().position(|(name, _)| Some(*name) == key) {
            Some(at) => {
                let (name, value) = left.remove(at);
                lines.push(format!("{name} = {value}"));
            }
            None => lines.push(line.to_owned()),
        }
    }
    let new = left.into_iter().map(|(name, value)| format!("{name} = {value}"));
    new.chain(lines).map(|line| line + "\n").collect()
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
        let lima = GOOD.replace(
            "ca = \"/etc/lima.pem\"",
            "ca = \"l.pem\"\nmay-send = [\"JP\", \"example.org\"]\nmay-ask = false",
        );
        let limited = parse(&lima, "paris").unwrap();
        let lima = limited.federation.sites().next().unwrap().1.clone();
        assert!(lima.may_send.unwrap().iter().eq(["example.org", "jp"]) && lima.may_not_ask);
        assert_eq!(limited.federation.list(), list.federation.list());
        assert_eq!(list.federation.operator(), None);
        let operated = GOOD.replacen("version = 3", "version = 3\noperator = \"lima\"", 1);
        assert_eq!(parse(&operated, "paris").unwrap().federation.operator(), Some("lima"));
        let at = |text: &str, name: &str, at: &str| text.replace(name, &format!("{name}\nat = {at}"));
        let by_place = at(&at(GOOD, "name = \"paris\"", "[48.9, 2.4]"), "name = \"lima\"", "[-12, -77]");
        let by_place = by_place.replacen("version = 3", "version = 3\npartitioner = \"geography\"", 1);
        let list = parse(&by_place, "paris").unwrap().federation;
        let lima = list.sites().next().unwrap().1.position;
        assert!(list.goes_by_place() && lima == Position::new(-12.0, -77.0));
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
            (
                "[pinned]",
                "may-send = [\"*.jp\", \"\"]\n[pinned]",
                "paris",
                "may-send of lima: \"\" is not a domain",
            ),
            ("\"lima\"\n", "\"paris\"\n", "paris", "two sites are called \"paris\""),
            ("10.0.0.1:7947", "10.0.0.1", "paris", "gateways of lima: \"10.0.0.1\" is not where"),
            ("[\"Paris.example:7947\"]", "[]", "paris", "gateways of paris: list 1 to 64"),
            ("name = \"lima\"", "name = \"Lima\"", "paris", "\"Lima\" is not a name"),
            ("gateways", "gateway", "paris", "unknown field `gateway`"),
            ("version = 3", "version = 3\ngone = [\"oslo\"]", "paris", "\"oslo\" is not in the list"),
            ("version = 3", "version = 3\ngone = [\"paris\"]", "paris", "is gone by this list"),
            ("version = 3", "version = 3\noperator = \"oslo\"", "paris", "no site is called \"oslo\""),
            ("version = 3", "version = 3\npartitioner = \"place\"", "paris", "unknown variant `place`"),
            (
                "version = 3",
                "version = 3\npartitioner = \"geography\"",
                "paris",
                "at of paris: partitioner is",
            ),
            ("[[site]]", "[[site]]\nat = [90.5, 2.4]", "paris", "at of paris: write degrees north and east"),
            (
                "version = 3\n        [[site]]",
                "version = 3\npartitioner = \"geography\"\n[[site]]\nat = [48.9, 2.4]\nmay-send = [\"fr\"]",
                "paris",
                "may-send of paris: a host that is nearest",
            ),
        ] {
            let said = parse(&GOOD.replacen(from, to, 1), me).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_site_is_forgotten_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.toml");
        let forget = |text: &str, site: &str| {
            std::fs::write(&path, text).unwrap();
            let version = FederationFile::forget(&path, &site.parse().unwrap());
            version.map(|version| (version, std::fs::read_to_string(&path).unwrap()))
        };
        let three = format!("# ours\n{GOOD}")
            .replace("[pinned]", "[[site]]\nname = \"oslo\"\ngateways = [\"o:1\"]\nca = \"o.pem\"\n[pinned]");
        let (version, text) = forget(&three, "lima").unwrap();
        assert_eq!((version, &text[..50]), (4, "gone = [\"lima\"]\n# ours\n\nversion = 4\n        [[site"));
        let list = FederationFile::parse(&text, &path, &"paris".parse().unwrap()).unwrap();
        assert_eq!(list.federation.gone().collect::<Vec<_>>(), ["lima"]);
        let (version, text) = forget(&text, "oslo").unwrap();
        assert!(version == 5 && text.starts_with("gone = [\"lima\", \"oslo\"]\n"), "{text}");
        for (text, site, expected) in [
            (&*text, "lima", "lima is gone already"),
            (&*text, "paris", "without paris no site would be left"),
            (GOOD, "oslo", "does not list the site oslo"),
            (
                &GOOD.replace("version = 3", "\"version\" = 3"),
                "lima",
                "write `version = 4` and `gone = [\"lima\"]`",
            ),
        ] {
            let said = forget(text, site).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "nothing is changed");
        }
    }

    #[test]
    fn lists_follow_on_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.toml");
        let list = |version: u64, gone: &str, from: &str, to: &str| {
            let head = format!("version = {version}\ngone = [{gone}]");
            std::fs::write(&path, GOOD.replacen("version = 3", &head, 1).replace(from, to)).unwrap();
            FederationFile::read(&path, &"paris".parse().unwrap()).unwrap()
        };
        let first = list(1, "", "", "");
        first.keep(dir.path()).unwrap();
        assert_eq!(first.earlier(dir.path()).unwrap(), []);
        let other_rule = list(2, "", "\"jp\"", "\"pe\"");
        other_rule.check_follows(dir.path()).unwrap();
        assert_eq!(other_rule.earlier(dir.path()).unwrap().len(), 1);
        let said = list(2, "", "lima", "oslo").check_follows(dir.path()).unwrap_err().to_string();
        assert!(said.contains("the site lima is not in it any more"), "{said}");
        let lost = list(2, "\"lima\"", "", "");
        lost.check_follows(dir.path()).unwrap();
        lost.keep(dir.path()).unwrap();
        let said = list(3, "", "", "").check_follows(dir.path()).unwrap_err().to_string();
        assert!(said.contains("the site lima was gone"), "{said}");
    }
}
