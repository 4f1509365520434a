//! A part of the web as a graph of links, with how important each page of it is.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hosts that the pages are cut into.
const HOSTS: usize = 1_000;
/// By this power of their rank hosts are smaller than the largest.
const SIZE_POWER: f64 = 0.8;
/// PageRank follows a link this often, and otherwise begins anew.
const DAMPING: f64 = 0.85;
const ROUNDS: usize = 100;
/// Pages and links that are read at most.
const PAGES_MAX: u32 = 1 << 27;
const LINKS_MAX: usize = 1 << 30;

/// Pages by number, and their links.
pub(super) struct Graph {
    /// Where the links of each page begin, and where those of the last end.
    starts: Vec<usize>,
    targets: Vec<u32>,
    /// The host of each page.
    hosts: Vec<u16>,
}

impl Graph {
    /// Reads links, a line each: the number of a page, a tab, and the number of one that it links to. May be compressed with
    /// zstd. Consecutive pages are then a host together.
    pub(super) fn read(path: &Path, seed: u64) -> anyhow::Result<Graph> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let reader: Box<dyn Read> = match path.extension().is_some_and(|extension| extension == "zst") {
            true => Box::new(zstd::Decoder::new(file)?),
            false => Box::new(file),
        };
        let mut links: Vec<(u32, u32)> = Vec::new();
        for (number, line) in BufReader::new(reader).lines().enumerate() {
            let line = line.with_context(|| format!("cannot read {}", path.display()))?;
            let link: Option<(u32, u32)> =
                line.split_once('\t').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
            let Some(link) = link.filter(|(from, to)| *from.max(to) < PAGES_MAX) else {
                bail!(
                    "line {} of {} is not two numbers of pages with a tab between",
                    number + 1,
                    path.display()
                )
            };
            ensure!(links.len() < LINKS_MAX, "{} has too many links", path.display());
            links.push(link);
        }
        ensure!(!links.is_empty(), "{} has no links", path.display());
        Ok(Graph::new(links, seed))
    }

    pub(super) fn new(mut links: Vec<(u32, u32)>, seed: u64) -> Graph {
        links.sort_unstable();
        links.dedup();
        let pages = links.iter().map(|(from, to)| from.max(to) + 1).max().unwrap_or(0) as usize;
        let mut starts = vec![0; pages + 1];
        links.iter().for_each(|(from, _)| starts[*from as usize + 1] += 1);
        (0..pages).for_each(|page| starts[page + 1] += starts[page]);
        let targets = links.into_iter().map(|(_, to)| to).collect();
        Graph { starts, targets, hosts: cut(pages, seed) }
    }

    pub(super) fn pages(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn links(&self, page: u32) -> &[u32] {
        &self.targets[self.starts[page as usize]..self.starts[page as usize + 1]]
    }

    /// The host that a page is on.
    pub(super) fn host(&self, page: u32) -> u16 {
        self.hosts[page as usize]
    }

    /// Whether a link leads to another host.
    pub(super) fn is_far(&self, from: u32, to: u32) -> bool {
        self.hosts[from as usize] != self.hosts[to as usize]
    }

    pub(super) fn far_links(&self) -> usize {
        let pages = 0..self.pages() as u32;
        pages.map(|page| self.links(page).iter().filter(|to| self.is_far(page, **to)).count()).sum()
    }

    /// How important each page is, once all links are known.
    pub(super) fn page_rank(&self) -> Vec<f64> {
        let pages = self.pages() as f64;
        let mut rank = vec![1.0 / pages; self.pages()];
        for _ in 0..ROUNDS {
            let (mut next, mut nowhere) = (vec![0.0; self.pages()], 0.0);
            for (page, rank) in (0..).zip(&rank) {
                let links = self.links(page);
                match links.len() {
                    0 => nowhere += rank,
                    count => links.iter().for_each(|to| next[*to as usize] += rank / count as f64),
                }
            }
            next.iter_mut()
                .for_each(|rank| *rank = (1.0 - DAMPING) / pages + DAMPING * (*rank + nowhere / pages));
            rank = next;
        }
        rank
    }
}

/// Cuts pages that follow each other into hosts, whose sizes follow a power law, in random order.
fn cut(pages: usize, seed: u64) -> Vec<u16> {
    let mut ranks: Vec<usize> = (1..=HOSTS).collect();
    ranks.sort_by_key(|rank| xxh3_64_with_seed(&rank.to_le_bytes(), seed));
    let sizes: Vec<f64> = ranks.iter().map(|rank| (*rank as f64).powf(-SIZE_POWER)).collect();
    let all: f64 = sizes.iter().sum();
    let mut hosts = Vec::with_capacity(pages);
    let mut until = 0.0;
    for (host, size) in (0..).zip(sizes) {
        until += size / all * pages as f64;
        hosts.resize((until.round() as usize).min(pages).max(hosts.len()), host);
    }
    hosts.resize(pages, HOSTS as u16 - 1);
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn importance_flows_along_links_and_adds_up_to_one() {
        let graph = Graph::new(vec![(0, 2), (1, 2), (2, 3)], 1);
        let rank = graph.page_rank();
        assert!((rank.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(rank[2] > rank[0] && rank[3] > rank[2] && (rank[0] - rank[1]).abs() < 1e-12, "{rank:?}");
    }

    #[test]
    fn every_page_has_a_host_and_hosts_differ_in_size() {
        let hosts = cut(100_000, 7);
        assert!(hosts.is_sorted() && hosts.len() == 100_000);
        let sizes = hosts.chunk_by(|a, b| a == b).map(<[u16]>::len);
        let (least, most) = (sizes.clone().min(), sizes.max());
        assert!(
            least.is_some_and(|least| least < 100) && most.is_some_and(|most| most > 3_000),
            "{least:?} {most:?}"
        );
    }
}
