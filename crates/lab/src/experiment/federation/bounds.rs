//! What the graph of a web allows: figures that no crawler can be better than.

use std::collections::BTreeSet;

use anyhow::Context;
use nephila_core::{
    federation::{Federation, SiteEntry},
    url::Host,
};
use xxhash_rust::xxh3::xxh3_64;

use super::{FederationOptions, LATENCY_MS, site_names, web_config};
use crate::web::plan::{self, Plan};

/// Bits of a URL that is not a host's front page that nothing else says.
const RANDOM_BITS: f64 = 40.0;

/// See the module's documentation.
pub(super) struct Bounds {
    /// The time that the largest host takes, which is asked for one page after the other.
    pub(super) seconds: f64,
    /// Links on pages of one site to URLs of another, each once a page.
    pub(super) foreign_links: u64,
    /// How many URLs each site finds of others, all together.
    pub(super) foreign_urls: u64,
    /// Bytes that these take if nothing but what is random in them is sent.
    pub(super) bytes: f64,
}

impl Bounds {
    /// How much of what is found a cache that forgets nothing keeps from being sent.
    pub(super) fn hit_rate(&self) -> f64 {
        1.0 - self.foreign_urls as f64 / self.foreign_links.max(1) as f64
    }

    pub(super) fn of(options: &FederationOptions) -> anyhow::Result<Bounds> {
        // Which port it is served on makes no difference.
        let plan = Plan::new(web_config(options)?).context("there is no such web")?;
        let names = site_names(options.sites);
        let entry = |name: &String| SiteEntry { name: name.clone(), ..SiteEntry::default() };
        let federation = Federation::new(1, names.iter().map(entry).collect(), &names[0], [])?;
        let owner = |host: &plan::Host<'_>| {
            let name = Host::parse(&host.name())?;
            Some(federation.site_of(&name))
        };
        let owners: Vec<_> = plan.hosts().map(|host| owner(&host)).collect();
        let mut found = BTreeSet::new();
        let (mut foreign_links, mut random, mut largest) = (0, 0_u64, 0);
        for host in plan.hosts() {
            largest = largest.max(host.pages());
            let own = owners[host.index as usize];
            for page in 0..host.pages() {
                let html = (host.kind.page)(&host, page);
                let html = String::from_utf8_lossy(&html);
                let links = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
                // Those inside a host have no origin.
                let far: BTreeSet<&str> = links.filter(|link| link.starts_with("http")).collect();
                for link in far {
                    let Some((other, _, target)) = plan.locate(link) else { continue };
                    if owners[other.index as usize] == own {
                        continue;
                    }
                    foreign_links += 1;
                    if found.insert((own, xxh3_64(link.as_bytes()))) && target != "/" {
                        random += 1;
                    }
                }
            }
        }
        let seconds = f64::from(largest) * f64::from(LATENCY_MS) / 1_000.0;
        let bytes = random as f64 * RANDOM_BITS / 8.0;
        Ok(Bounds { seconds, foreign_links, foreign_urls: found.len() as u64, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_says_what_it_allows() {
        let of = |sites| {
            Bounds::of(&FederationOptions { sites, hosts: 60, pages: 20, ..FederationOptions::default() })
        };
        let (two, nine) = (of(2).unwrap(), of(9).unwrap());
        assert!(two.foreign_links > 1_000 && nine.foreign_links > two.foreign_links);
        // The more places there are, the less often each finds the same.
        assert!(nine.foreign_urls > two.foreign_urls && nine.hit_rate() < two.hit_rate());
        assert!(two.foreign_urls < two.foreign_links && two.bytes <= 5.0 * two.foreign_urls as f64);
        assert!(two.seconds >= 20.0 * 0.02 && two.seconds == nine.seconds);
    }
}
