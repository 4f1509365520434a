//! Several sites that crawl a graph as one, each what belongs to it, by [`cash`] and by classes as one site does. What a page
//! gives to a page of another site has to be sent there, and that costs: how much is sent, and how good the order is with that.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use nephila_core::cash;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::graph::Graph;
use super::orders::Waiting;

/// What a site tells another of what its pages give to one of the other's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Telling {
    /// The first gift, with which the other hears of the page. All later ones stay at home. This is UniCrawl's way.
    First,
    /// The first gift, and the sum of those that came since whenever all that was given is so many times what was sent.
    Sums(f64),
    /// Everything, at once: nothing is late, and what is sent is not counted. Nobody can have this.
    Everything,
}

/// Sites that crawl as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sites {
    pub(super) count: u16,
    pub(super) telling: Telling,
    /// Pages that all sites together fetch while something is on its way from one to another.
    pub(super) late: usize,
    /// Which host belongs to whom follows from this.
    pub(super) seed: u64,
}

/// What came of it.
pub(super) struct Crawled {
    /// All pages that the seeds lead to, in the order in which they were fetched.
    pub(super) pages: Vec<u32>,
    /// What the sites sent each other: a page and what it is given, each time.
    pub(super) sent: u64,
}

/// A page and what it is given, on its way to its site.
struct Gift {
    arrives: usize,
    page: u32,
    units: u64,
}

/// What a site has found of a page of another site.
#[derive(Clone, Copy, Default)]
struct Told {
    /// It was sent at least once.
    once: bool,
    sent: u64,
    held: u64,
}

struct Crawl<'a> {
    graph: &'a Graph,
    sites: Sites,
    /// The site of each page.
    owner: Vec<u16>,
    /// What each page was given, as far as its site knows.
    units: Vec<u64>,
    is_known: Vec<bool>,
    is_fetched: Vec<bool>,
    entered: u64,
    /// What each site may fetch.
    waiting: Vec<BinaryHeap<Waiting>>,
    /// For each site, what it found of each page.
    told: Vec<Vec<Told>>,
    /// In the order in which it arrives.
    under_way: VecDeque<Gift>,
    crawled: Crawled,
}

impl Sites {
    /// Fetches all that the seeds lead to. Only the first site is told these; all sites fetch at the same rate, as long as they
    /// have something to fetch.
    pub(super) fn crawl(self, graph: &Graph, seeds: &[u32]) -> Crawled {
        let site = |page| {
            let hash = xxh3_64_with_seed(&graph.host(page).to_le_bytes(), self.seed);
            (hash % u64::from(self.count)) as u16
        };
        let pages = graph.pages();
        let mut crawl = Crawl {
            graph,
            sites: self,
            owner: (0..pages as u32).map(site).collect(),
            units: vec![0; pages],
            is_known: vec![false; pages],
            is_fetched: vec![false; pages],
            entered: 0,
            waiting: (0..self.count).map(|_| BinaryHeap::new()).collect(),
            told: vec![vec![Told::default(); pages]; usize::from(self.count)],
            under_way: VecDeque::new(),
            crawled: Crawled { pages: Vec::new(), sent: 0 },
        };
        for page in seeds {
            crawl.find(0, *page, cash::SEED);
        }
        crawl.run();
        crawl.crawled
    }
}

impl Crawl<'_> {
    fn run(&mut self) {
        let mut idle = 0;
        for site in (0..self.sites.count).cycle() {
            let now = self.crawled.pages.len();
            while self.under_way.front().is_some_and(|gift| gift.arrives <= now) {
                self.arrive();
            }
            idle = if self.fetch_next(site) { 0 } else { idle + 1 };
            if idle == self.sites.count {
                // Everybody waits for what is on its way.
                if !self.arrive() {
                    return;
                }
                idle = 0;
            }
        }
    }

    /// The first of what is under way arrives.
    fn arrive(&mut self) -> bool {
        let gift = self.under_way.pop_front();
        gift.iter().for_each(|gift| self.give(gift.page, gift.units));
        gift.is_some()
    }

    /// Fetches the best page that a site knows.
    fn fetch_next(&mut self, site: u16) -> bool {
        while let Some(Waiting { score, page, .. }) = self.waiting[usize::from(site)].pop() {
            // What has grown since waits elsewhere too.
            let at = page as usize;
            if self.is_fetched[at] || score.total_cmp(&score_of(self.units[at])).is_ne() {
                continue;
            }
            self.is_fetched[at] = true;
            self.crawled.pages.push(page);
            let graph = self.graph;
            let links = graph.links(page);
            let far = links.iter().filter(|to| graph.is_far(page, **to)).count() as u64;
            let shares = cash::share(self.units[at] + cash::GRANT, links.len() as u64 - far, far);
            for to in links {
                self.find(site, *to, if graph.is_far(page, *to) { shares.far } else { shares.near });
            }
            return true;
        }
        false
    }

    /// A site has found a page, and something for it.
    fn find(&mut self, site: u16, page: u32, units: u64) {
        if self.owner[page as usize] == site || self.sites.telling == Telling::Everything {
            return self.give(page, units);
        }
        let told = &mut self.told[usize::from(site)][page as usize];
        told.held += units;
        let is_due = match self.sites.telling {
            Telling::Sums(times) => (told.sent + told.held) as f64 >= told.sent as f64 * times,
            Telling::First | Telling::Everything => false,
        };
        if told.once && !is_due {
            return;
        }
        let units = std::mem::take(&mut told.held);
        (told.once, told.sent) = (true, told.sent + units);
        self.crawled.sent += 1;
        self.under_way.push_back(Gift { arrives: self.crawled.pages.len() + self.sites.late, page, units });
    }

    /// A page's own site hears that it is there, and what it is given.
    fn give(&mut self, page: u32, units: u64) {
        let at = page as usize;
        let before = score_of(self.units[at]);
        self.units[at] += units;
        let score = score_of(self.units[at]);
        let is_new = !std::mem::replace(&mut self.is_known[at], true);
        if !self.is_fetched[at] && (is_new || score.total_cmp(&before).is_ne()) {
            let waiting = Waiting { score, entered: Reverse(self.entered), page };
            self.entered += 1;
            self.waiting[usize::from(self.owner[at])].push(waiting);
        }
    }
}

fn score_of(units: u64) -> f64 {
    -f64::from(cash::class_of(units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::quality::orders::Order;

    /// Pages of many hosts with some links each.
    fn web() -> Graph {
        let link = |n: u64| (n % 2_000, xxh3_64_with_seed(&n.to_le_bytes(), 5) % 2_000);
        Graph::new((0..20_000).map(link).map(|(from, to)| (from as u32, to as u32)).collect(), 1)
    }

    fn crawl(telling: Telling, late: usize) -> Crawled {
        Sites { count: 3, telling, late, seed: 1 }.crawl(&web(), &[0, 1])
    }

    #[test]
    fn one_site_crawls_as_it_does_alone() {
        let graph = web();
        let alone = Order::CashClasses.crawl(&graph, &graph.page_rank(), &[0, 1]);
        for telling in [Telling::First, Telling::Sums(2.0), Telling::Everything] {
            let crawled = Sites { count: 1, telling, late: 9, seed: 1 }.crawl(&graph, &[0, 1]);
            assert_eq!(crawled.sent, 0);
            // Seeds come first there, and have no more than their class here.
            assert_eq!(crawled.pages, alone);
        }
    }

    #[test]
    fn whatever_is_told_all_is_fetched_once() {
        let graph = web();
        let mut alone = Order::BreadthFirst.crawl(&graph, &graph.page_rank(), &[0, 1]);
        alone.sort_unstable();
        for (telling, late) in [
            (Telling::First, 0),
            (Telling::First, 10_000),
            (Telling::Sums(2.0), 50),
            (Telling::Everything, 0),
        ] {
            let mut pages = crawl(telling, late).pages;
            pages.sort_unstable();
            assert!(pages == alone, "{telling:?}, {late} late");
        }
    }

    #[test]
    fn the_sooner_sums_are_sent_the_more_is() {
        let sent = |telling| crawl(telling, 10).sent;
        let first = sent(Telling::First);
        assert!(first > 1_000, "{first}");
        let (seldom, often) = (sent(Telling::Sums(8.0)), sent(Telling::Sums(1.5)));
        assert!(first < seldom && seldom < often, "{first} {seldom} {often}");
        assert_eq!(sent(Telling::Everything), 0);
    }
}
