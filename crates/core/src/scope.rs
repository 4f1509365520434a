//! Which URLs belong to a crawl: a place around the seeds, narrowed by patterns.
//!
//! The seeds themselves always belong to it. A judgement costs a few string comparisons however many seeds there are,
//! and names the rule that kept a URL out and the flag that would let it in.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::Bound;
use std::str::FromStr;

use hashbrown::HashSet;
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::url::{CleanUrl, Fingerprint, Host, Url};

/// How many names or prefixes the scope in words lists before it says how many more there are.
const LISTED_MAX: usize = 5;

/// How far around its seeds a crawl goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScopeKind {
    /// The site of a seed, and there only what is below the seed's directory.
    Prefix,
    /// The names of the seeds with and without `www.`, http and https, any port.
    #[default]
    Site,
    /// All names below the registrable domains of the seeds. Where the public suffix list knows no domain, the name.
    Domain,
    /// Everything.
    Any,
}

impl ScopeKind {
    /// The word for it on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            ScopeKind::Prefix => "prefix",
            ScopeKind::Site => "site",
            ScopeKind::Domain => "domain",
            ScopeKind::Any => "any",
        }
    }
}

impl fmt::Display for ScopeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is not a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope {0:?}: use site, domain, prefix or any")]
pub struct UnknownScope(String);

impl FromStr for ScopeKind {
    type Err = UnknownScope;

    fn from_str(word: &str) -> Result<ScopeKind, UnknownScope> {
        [ScopeKind::Prefix, ScopeKind::Site, ScopeKind::Domain, ScopeKind::Any]
            .into_iter()
            .find(|kind| kind.as_str() == word)
            .ok_or_else(|| UnknownScope(word.to_owned()))
    }
}

/// Why a URL is out of scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfScope {
    /// It is not at the place of any seed.
    #[error("outside the scope {kind} of the seeds; --scope {wider} would include it")]
    Place {
        /// The scope of this crawl.
        kind: ScopeKind,
        /// The narrowest scope that holds the URL.
        wider: ScopeKind,
    },
    /// There are `--include` patterns, and none matches.
    #[error("no --include pattern matches it; another --include that does would include it")]
    NotIncluded,
    /// An `--exclude` pattern matches.
    #[error("--exclude {pattern:?} matches it; without that it would be included")]
    Excluded {
        /// The first pattern that matches.
        pattern: String,
    },
}

/// The scope of a crawl.
#[derive(Debug, Clone)]
pub struct Scope {
    kind: ScopeKind,
    include: Vec<Regex>,
    exclude: Vec<Regex>,
    seeds: HashSet<Fingerprint>,
    /// Names of the seeds, without `www.`. Looked at for nearly every link, and there may be many.
    sites: HashSet<Box<str>>,
    /// Registrable domains of the seeds.
    domains: BTreeSet<Box<str>>,
    /// Site and directory of the seeds, as in `example.org/docs/`. None is the beginning of another, so that the only
    /// one that a URL can begin with is the greatest that is not above it.
    prefixes: BTreeSet<Box<str>>,
}

impl Scope {
    /// A scope without seeds yet. The patterns are searched for in the whole URL: with `include`, one must match;
    /// of `exclude`, none may.
    pub fn new(kind: ScopeKind, include: Vec<Regex>, exclude: Vec<Regex>) -> Scope {
        Scope {
            kind,
            include,
            exclude,
            seeds: HashSet::new(),
            sites: HashSet::new(),
            domains: BTreeSet::new(),
            prefixes: BTreeSet::new(),
        }
    }

    /// What makes it differ from another one with the same seeds.
    pub fn rules(&self) -> Vec<&str> {
        fn sorted(patterns: &[Regex]) -> Vec<&str> {
            let mut texts: Vec<&str> = patterns.iter().map(Regex::as_str).collect();
            texts.sort_unstable();
            texts
        }
        let (include, exclude) = (sorted(&self.include), sorted(&self.exclude));
        [vec![self.kind.as_str(), "include"], include, vec!["exclude"], exclude].concat()
    }

    /// Adds a seed: it belongs to the crawl, and so does what is around it. False if it is one already.
    pub fn add_seed(&mut self, seed: &Url) -> bool {
        if !self.seeds.insert(Fingerprint::of(seed)) {
            return false;
        }
        let host = Host::name_of(seed);
        let site = site(host);
        self.sites.insert(site.into());
        self.domains.insert(domain(host).into());
        let mut prefix = format!("{site}{}", seed.path());
        prefix.truncate(prefix.rfind('/').map_or(prefix.len(), |at| at + 1));
        if !self.has_prefix_of(&prefix) {
            let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
            let longer: Vec<Box<str>> = self
                .prefixes
                .range::<str, _>(from)
                .take_while(|one| one.starts_with(&prefix))
                .cloned()
                .collect();
            for one in longer {
                self.prefixes.remove(&one);
            }
            self.prefixes.insert(prefix.into());
        }
        true
    }

    /// Whether a URL belongs to the crawl.
    pub fn judge(&self, url: &CleanUrl) -> Result<(), OutOfScope> {
        let Err(out) = self.judge_as_found(url) else { return Ok(()) };
        let is_seed =
            Fingerprint::of_text(url.as_str()).is_some_and(|known_by| self.seeds.contains(&known_by));
        if is_seed { Ok(()) } else { Err(out) }
    }

    /// Whether its host may have URLs that belong to the crawl, which robots.txt as such need not do.
    pub fn reaches(&self, robots: &CleanUrl) -> bool {
        let is_near = self.kind == ScopeKind::Any || self.narrowest(robots) <= self.kind.max(ScopeKind::Site);
        let is_match = |pattern: &Regex| pattern.is_match(robots.as_str());
        is_near
            && (self.include.is_empty() || self.include.iter().any(is_match))
            && !self.exclude.iter().any(is_match)
    }

    fn judge_as_found(&self, url: &CleanUrl) -> Result<(), OutOfScope> {
        if self.kind != ScopeKind::Any {
            let wider = self.narrowest(url);
            if wider > self.kind {
                return Err(OutOfScope::Place { kind: self.kind, wider });
            }
        }
        if !self.include.is_empty() && !self.include.iter().any(|pattern| pattern.is_match(url.as_str())) {
            return Err(OutOfScope::NotIncluded);
        }
        match self.exclude.iter().find(|pattern| pattern.is_match(url.as_str())) {
            Some(pattern) => Err(OutOfScope::Excluded { pattern: pattern.to_string() }),
            None => Ok(()),
        }
    }

    /// The narrowest scope, at least as wide as this one, that holds the URL.
    fn narrowest(&self, url: &CleanUrl) -> ScopeKind {
        let host = url.host_name();
        let site = site(host);
        if self.kind <= ScopeKind::Prefix && self.has_prefix_of(&format!("{site}{}", url.path())) {
            ScopeKind::Prefix
        } else if self.kind <= ScopeKind::Site && self.sites.contains(site) {
            ScopeKind::Site
        } else if self.domains.contains(domain(host)) {
            ScopeKind::Domain
        } else {
            ScopeKind::Any
        }
    }

    fn has_prefix_of(&self, place: &str) -> bool {
        let not_above = (Bound::Unbounded, Bound::Included(place));
        self.prefixes.range::<str, _>(not_above).next_back().is_some_and(|one| place.starts_with(&**one))
    }
}

/// The name that stands for a site: without `www.`.
fn site(host: &str) -> &str {
    host.strip_prefix("www.").unwrap_or(host)
}

/// The registrable domain, or the site where the public suffix list does not know one.
fn domain(host: &str) -> &str {
    let known = psl::domain(host.as_bytes()).filter(|domain| domain.suffix().is_known());
    let name = known.and_then(|domain| str::from_utf8(domain.as_bytes()).ok());
    name.filter(|_| host.parse::<IpAddr>().is_err()).unwrap_or_else(|| site(host))
}

/// Says the scope in words, as one line.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocols = "http and https, any port";
        match self.kind {
            ScopeKind::Any => write!(f, "every name, {protocols}")?,
            ScopeKind::Site if self.sites.len() == 1 => {
                let name = self.sites.iter().next().map_or("", |name| name);
                if name.parse::<IpAddr>().is_ok() {
                    write!(f, "the name {name}, {protocols}")?;
                } else {
                    write!(f, "the names {name} and www.{name}, {protocols}")?;
                }
            }
            ScopeKind::Site => {
                let names = self.sites.iter().cloned().collect();
                write!(f, "the names {}, with and without www., {protocols}", listed(&names))?;
            }
            ScopeKind::Domain => write!(f, "all names in {}, {protocols}", listed(&self.domains))?,
            ScopeKind::Prefix => {
                let places = listed(&self.prefixes);
                write!(f, "what starts with {places}, with and without www., {protocols}")?;
            }
        }
        if !self.include.is_empty() {
            write!(f, "; of these only URLs that match {}", alternatives(&self.include))?;
        }
        if !self.exclude.is_empty() {
            write!(f, "; no URLs that match {}", alternatives(&self.exclude))?;
        }
        Ok(())
    }
}

/// The first few of a set: "a", "a and b", "a, b, c, d, e and 99,995 more".
fn listed(all: &BTreeSet<Box<str>>) -> String {
    let mut words: Vec<String> = all.iter().take(LISTED_MAX).map(|one| one.to_string()).collect();
    if all.len() > LISTED_MAX {
        words.push(format!("{} more", grouped(all.len() - LISTED_MAX)));
    }
    match words.split_last() {
        None => "no seed yet".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

/// A number with its thousands set apart.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn alternatives(patterns: &[Regex]) -> String {
    patterns.iter().map(Regex::as_str).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn scope(kind: ScopeKind, seeds: &[&str]) -> Scope {
        let mut scope = Scope::new(kind, Vec::new(), Vec::new());
        for seed in seeds {
            scope.add_seed(&url(seed));
        }
        scope
    }

    #[test]
    fn places() {
        use ScopeKind::{Any, Domain, Prefix, Site};
        // Scope, seed, URL, and the narrowest scope that holds the URL if this one does not.
        for (kind, seed, found, wider) in [
            (Site, "http://example.org/a/b", "https://example.org:8443/", None),
            (Site, "http://example.org/", "http://www.example.org/x", None),
            (Site, "http://www.example.org/", "http://example.org/x", None),
            (Site, "http://example.org/", "http://blog.example.org/", Some(Domain)),
            (Site, "http://example.org/", "http://example.com/", Some(Any)),
            (Site, "http://example.org/", "http://notexample.org/", Some(Any)),
            (Site, "http://127.0.0.1:80/", "http://127.0.0.1:81/", None),
            (Site, "http://127.0.0.1/", "http://127.0.0.2/", Some(Any)),
            (Site, "http://example.org./", "http://example.org/", None),
            (Domain, "http://www.example.co.uk/", "https://a.b.example.co.uk/", None),
            (Domain, "http://www.example.co.uk/", "http://other.co.uk/", Some(Any)),
            (Domain, "http://one.github.io/", "http://two.github.io/", Some(Any)),
            (Domain, "http://github.io/", "http://two.github.io/", Some(Any)),
            (Domain, "http://a.nephila.test/", "http://a.nephila.test/x", None),
            (Domain, "http://a.nephila.test/", "http://www.a.nephila.test/x", None),
            (Domain, "http://a.nephila.test/", "http://b.nephila.test/", Some(Any)),
            (Domain, "http://10.0.0.1/", "http://10.1.0.1/", Some(Any)),
            (Prefix, "http://example.org/docs/a.html", "https://www.example.org/docs/b/c?d", None),
            (Prefix, "http://example.org/docs/", "http://example.org/docs/", None),
            (Prefix, "http://example.org/docs/", "http://example.org/docs", Some(Site)),
            (Prefix, "http://example.org/docs/", "http://example.org/docsmore/", Some(Site)),
            (Prefix, "http://example.org/docs/", "http://a.example.org/docs/", Some(Domain)),
            (Prefix, "http://example.org", "http://example.org/anything", None),
            (Any, "http://example.org/", "http://example.com/", None),
        ] {
            let judged = scope(kind, &[seed]).judge(&url(found).into());
            let expected = wider.map_or(Ok(()), |wider| Err(OutOfScope::Place { kind, wider }));
            assert_eq!(judged, expected, "{kind}: {seed} {found}");
        }
    }

    #[test]
    fn hosts_in_reach() {
        let prefix = scope(ScopeKind::Prefix, &["http://a.example/docs/"]);
        let any = |include: &[&str], exclude: &[&str]| {
            let patterns = |all: &[&str]| all.iter().map(|one| Regex::new(one).unwrap()).collect();
            Scope::new(ScopeKind::Any, patterns(include), patterns(exclude))
        };
        for (scope, of, expected) in [
            (&prefix, "http://www.a.example/robots.txt", true),
            (&prefix, "http://b.a.example/robots.txt", false),
            (&any(&[], &[]), "http://b.example/robots.txt", true),
            (&any(&[], &["//b[.]"]), "http://b.example/robots.txt", false),
            (&any(&["//a[.]"], &[]), "http://b.example/robots.txt", false),
            (&any(&["//a[.]"], &[]), "http://a.example/robots.txt", true),
        ] {
            assert_eq!(scope.reaches(&url(of).into()), expected, "{of}");
        }
    }

    #[test]
    fn prefixes_that_hold_each_other() {
        let seeds = [
            "http://a.example/x/y/z/",
            "http://a.example/x/b/",
            "http://a.example/x/y/",
            "http://a.example/x/y/q/r",
        ];
        let scope = scope(ScopeKind::Prefix, &seeds);
        assert_eq!(
            scope.prefixes.iter().map(|one| &**one).collect::<Vec<_>>(),
            ["a.example/x/b/", "a.example/x/y/"]
        );
        for (path, inside) in [
            ("/x/y/a", true),
            ("/x/y/z/a", true),
            ("/x/b/", true),
            ("/x/", false),
            ("/x/c", false),
            ("/z", false),
        ] {
            assert_eq!(
                scope.judge(&url(&format!("http://a.example{path}")).into()).is_ok(),
                inside,
                "{path}"
            );
        }
    }

    #[test]
    fn patterns_narrow_and_remove_but_seeds_stay() {
        let patterns =
            |texts: &[&str]| texts.iter().map(|text| Regex::new(text).unwrap()).collect::<Vec<_>>();
        let mut scope =
            Scope::new(ScopeKind::Site, patterns(&["/docs/", "/blog/"]), patterns(&[r"\?print", "old"]));
        scope.add_seed(&url("http://example.org/?print"));
        for (found, message) in [
            ("http://example.org/docs/a", None),
            ("http://example.org/?print#top", None),
            ("http://example.org/", Some("no --include pattern matches")),
            ("http://example.org/blog/old", Some("--exclude \"old\" matches it")),
            ("http://example.com/docs/", Some("--scope any would include it")),
        ] {
            let judged = scope.judge(&url(found).into()).map_err(|out| out.to_string());
            match message {
                None => assert_eq!(judged, Ok(()), "{found}"),
                Some(message) => {
                    assert!(judged.clone().unwrap_err().contains(message), "{found}: {judged:?}")
                }
            }
        }
        let words = "the names example.org and www.example.org, http and https, any port; \
                     of these only URLs that match /docs/ or /blog/; no URLs that match \\?print or old";
        assert_eq!(scope.to_string(), words);
    }

    #[test]
    fn words() {
        let protocols = "http and https, any port";
        for (kind, seeds, expected) in [
            (ScopeKind::Any, &["http://a.example/"][..], "every name"),
            (ScopeKind::Site, &["http://127.0.0.1/"], "the name 127.0.0.1"),
            (
                ScopeKind::Site,
                &["http://b.org/", "http://www.a.org"],
                "the names a.org and b.org, with and without www.",
            ),
            (ScopeKind::Domain, &["http://x.a.org/", "http://y.a.org"], "all names in a.org"),
            (ScopeKind::Prefix, &["http://a.org/x/y"], "what starts with a.org/x/, with and without www."),
        ] {
            assert_eq!(scope(kind, seeds).to_string(), format!("{expected}, {protocols}"));
        }
    }

    #[test]
    fn many_seeds() {
        let mut scope = scope(ScopeKind::Site, &[]);
        for number in 0..100_000 {
            scope.add_seed(&url(&format!("http://h{number}.example/")));
        }
        assert_eq!(scope.judge(&url("http://www.h99999.example/x").into()), Ok(()));
        let words = "the names h0.example, h1.example, h10.example, h100.example, h1000.example and 99,995 more, \
                     with and without www., http and https, any port";
        assert_eq!(scope.to_string(), words);
    }

    #[test]
    fn kinds_read_and_write_as_on_the_command_line() {
        for word in ["prefix", "site", "domain", "any"] {
            let kind: ScopeKind = word.parse().unwrap();
            assert_eq!(kind.to_string(), word);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{word:?}"));
        }
        let error = "host".parse::<ScopeKind>().unwrap_err().to_string();
        assert_eq!(error, "unknown scope \"host\": use site, domain, prefix or any");
    }
}
