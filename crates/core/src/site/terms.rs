//! What all agents of a site must be told alike, and how two of them find out that they were not.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::federation::ListId;
use crate::scope::Scope;
use crate::settings::Settings;
use crate::url::Url;

/// Digests of what must be the same for all agents of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    scope: u64,
    seeds: u64,
    manners: u64,
    site: u64,
    federation: u64,
}

impl Terms {
    /// Those of an agent with these seeds and settings; `scope` is that of the seeds.
    pub fn of(scope: &Scope, seeds: &[Url], settings: &Settings) -> Terms {
        let mut urls: Vec<&str> = seeds.iter().map(Url::as_str).collect();
        urls.sort_unstable();
        urls.dedup();
        let Settings { delay, ip_delay, ip_parallel, slow_factor, request_timeout, order, .. } = settings;
        let manners =
            format!("{delay:?} {ip_delay:?} {ip_parallel} {slow_factor} {request_timeout:?} {order}");
        Terms {
            scope: digest(scope.rules()),
            seeds: digest(urls),
            manners: digest([manners.as_str()]),
            site: 0,
            federation: 0,
        }
    }

    /// The same for an agent of the site of this name: another site may have been given the same store.
    pub fn in_site(self, name: &str) -> Terms {
        Terms { site: digest([name]), ..self }
    }

    /// The same for an agent with a list of sites.
    pub fn in_federation(self, list: ListId) -> Terms {
        Terms { federation: digest([&*list.to_string()]), ..self }
    }

    /// What two agents were told differently.
    pub fn differences(&self, other: &Terms) -> Vec<Difference> {
        let pairs = [
            (self.scope == other.scope, Difference::Scope),
            (self.seeds == other.seeds, Difference::Seeds),
            (self.manners == other.manners, Difference::Manners),
            (self.site == other.site, Difference::Site),
            (self.federation == other.federation, Difference::Federation),
        ];
        pairs.into_iter().filter(|(same, _)| !same).map(|(_, difference)| difference).collect()
    }
}

fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for text in texts {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.digest()
}

/// Something that two agents of a site were told differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Difference {
    /// What belongs to the crawl.
    Scope,
    /// Where it starts.
    Seeds,
    /// How often a server is asked, and for how long an answer is waited for.
    Manners,
    /// Which site it is.
    Site,
    /// Which others there are.
    Federation,
}

/// By the settings to compare.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::Scope => "the scope (scope, include, exclude)",
            Difference::Seeds => "the seeds (urls, seeds)",
            Difference::Site => "the site (identity; another one needs another store-name)",
            Difference::Federation => "the list of sites (federation)",
            Difference::Manners => {
                "the manners (delay, ip-delay, ip-parallel, slow-factor, request-timeout, order)"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scope::ScopeKind;

    #[test]
    fn what_differs_is_named() {
        let url = |text: &str| Url::parse(text).unwrap();
        let (a, b) = (url("https://a.example/"), url("https://b.example/x"));
        let terms = |kind: ScopeKind, seeds: &[Url], settings: Settings| {
            let mut scope = Scope::new(kind, Vec::new(), Vec::new());
            for seed in seeds {
                scope.add_seed(seed);
            }
            Terms::of(&scope, seeds, &settings)
        };
        let slower = || Settings { delay: Duration::from_secs(9), ..Settings::default() };
        let more_pages = || Settings { max_pages: Some(3), parallel: 7, ..Settings::default() };
        let ours = terms(ScopeKind::Site, &[a.clone(), b.clone()], Settings::default());
        use Difference::{Manners, Scope as InScope, Seeds, Site};
        for (theirs, expected) in [
            (terms(ScopeKind::Site, &[b.clone(), a.clone(), a.clone()], more_pages()), vec![]),
            (terms(ScopeKind::Site, std::slice::from_ref(&a), Settings::default()), vec![Seeds]),
            (terms(ScopeKind::Any, &[a.clone(), b.clone()], Settings::default()), vec![InScope]),
            (terms(ScopeKind::Site, &[a.clone(), b.clone()], slower()), vec![Manners]),
            (terms(ScopeKind::Any, &[b], slower()), vec![InScope, Seeds, Manners]),
            (ours.in_site("rome"), vec![Site]),
        ] {
            assert_eq!(ours.differences(&theirs), expected);
            assert_eq!(theirs.differences(&ours), expected);
        }
    }
}
