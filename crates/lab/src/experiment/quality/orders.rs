//! Orders in which a crawler can fetch the pages of a graph, of which it knows what was linked to so far.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use nephila_core::cash;

use super::graph::Graph;

/// A rule for which of the known pages is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The most important first, of all pages, known or not.
    Omniscient,
    /// The most important first, of those that are known: somebody says how important they will turn out to be.
    Oracle,
    /// As they were found.
    BreadthFirst,
    /// Those that most known pages link to.
    InLinks,
    /// OPIC: the cash of the seeds, shared evenly.
    Opic,
    /// OPIC, with a grant for every page.
    Granted,
    /// By [`cash`], to the last unit.
    Cash,
    /// By [`cash`], as far as queues tell amounts apart.
    CashClasses,
}

impl Order {
    pub(super) const ALL: [Order; 8] = [
        Order::Omniscient,
        Order::Oracle,
        Order::CashClasses,
        Order::Cash,
        Order::Granted,
        Order::Opic,
        Order::BreadthFirst,
        Order::InLinks,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Omniscient => "omniscient",
            Order::Oracle => "oracle of the known",
            Order::BreadthFirst => "breadth first",
            Order::InLinks => "known in-links",
            Order::Opic => "OPIC",
            Order::Granted => "OPIC with grants",
            Order::Cash => "cash, exactly",
            Order::CashClasses => "cash, by classes",
        }
    }

    /// All pages that the seeds lead to, in this order.
    pub(super) fn crawl(self, graph: &Graph, rank: &[f64], seeds: &[u32]) -> Vec<u32> {
        let by = |rule: &dyn Fn(&mut Known, u32)| Known::new(graph.pages()).crawl(graph, seeds, rule);
        match self {
            Order::Omniscient => {
                let mut pages = by(&|_, _| {});
                pages.sort_by(|a, b| rank[*b as usize].total_cmp(&rank[*a as usize]));
                pages
            }
            Order::Oracle => by(&|known, page| {
                graph.links(page).iter().for_each(|to| known.scores[*to as usize] = rank[*to as usize]);
            }),
            Order::BreadthFirst => by(&|_, _| {}),
            Order::InLinks => by(&|known, page| known.add(graph.links(page), 1.0)),
            Order::Opic => by(&|known, page| {
                let links = graph.links(page);
                known.add(links, known.cash[page as usize] / links.len().max(1) as f64);
            }),
            Order::Granted => by(&|known, page| {
                let links = graph.links(page);
                known.add(
                    links,
                    (cash::GRANT as f64 / cash::SEED as f64 + known.cash[page as usize])
                        / links.len().max(1) as f64,
                );
            }),
            Order::Cash => by(&|known, page| known.share(graph, page, |units| units as f64)),
            Order::CashClasses => {
                by(&|known, page| known.share(graph, page, |units| -f64::from(cash::class_of(units))))
            }
        }
    }
}

/// What a crawler knows.
struct Known {
    /// What is fetched first is what has most.
    scores: Vec<f64>,
    /// What each page was given.
    cash: Vec<f64>,
    units: Vec<u64>,
    waiting: BinaryHeap<Waiting>,
}

impl Known {
    fn new(pages: usize) -> Known {
        Known {
            scores: vec![0.0; pages],
            cash: vec![0.0; pages],
            units: vec![0; pages],
            waiting: BinaryHeap::new(),
        }
    }

    fn add(&mut self, pages: &[u32], cash: f64) {
        for page in pages {
            self.cash[*page as usize] += cash;
            self.scores[*page as usize] = self.cash[*page as usize];
        }
    }

    fn share(&mut self, graph: &Graph, page: u32, score: impl Fn(u64) -> f64) {
        let links = graph.links(page);
        let far = links.iter().filter(|to| graph.is_far(page, **to)).count() as u64;
        let shares = cash::share(self.units[page as usize] + cash::GRANT, links.len() as u64 - far, far);
        for to in links {
            let units = &mut self.units[*to as usize];
            *units += if graph.is_far(page, *to) { shares.far } else { shares.near };
            self.scores[*to as usize] = score(*units);
        }
    }

    /// Fetches page after page. Of pages with the same score, the one that has had it for longest is next.
    fn crawl(mut self, graph: &Graph, seeds: &[u32], rule: &dyn Fn(&mut Known, u32)) -> Vec<u32> {
        let (mut is_known, mut is_fetched) = (vec![false; graph.pages()], vec![false; graph.pages()]);
        let (mut order, mut entered) = (Vec::new(), 0);
        // Seeds come first, whoever links to them.
        for page in seeds {
            self.cash[*page as usize] = 1.0;
            self.units[*page as usize] = cash::SEED;
            is_known[*page as usize] = true;
            self.waiting.push(Waiting { score: f64::MAX, entered: Reverse(entered), page: *page });
            entered += 1;
        }
        let mut before = Vec::new();
        while let Some(Waiting { score, page, .. }) = self.waiting.pop() {
            // What has grown since waits elsewhere too.
            let is_old = score < f64::MAX && score.total_cmp(&self.scores[page as usize]).is_ne();
            if is_fetched[page as usize] || is_old {
                continue;
            }
            is_fetched[page as usize] = true;
            order.push(page);
            let links = graph.links(page);
            before.clear();
            before.extend(links.iter().map(|to| self.scores[*to as usize]));
            rule(&mut self, page);
            for (to, before) in links.iter().zip(&before) {
                let score = self.scores[*to as usize];
                let is_new = !std::mem::replace(&mut is_known[*to as usize], true);
                if !is_fetched[*to as usize] && (is_new || score.total_cmp(before).is_ne()) {
                    self.waiting.push(Waiting { score, entered: Reverse(entered), page: *to });
                    entered += 1;
                }
            }
        }
        order
    }
}

/// A page that waits, as it was when its score was this.
pub(super) struct Waiting {
    pub(super) score: f64,
    pub(super) entered: Reverse<u64>,
    pub(super) page: u32,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.score.total_cmp(&other.score).then(self.entered.cmp(&other.entered))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_fetches_all_that_is_linked_to_once() {
        let graph = Graph::new(vec![(0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (4, 0)], 1);
        let rank = graph.page_rank();
        for order in Order::ALL {
            let mut pages = order.crawl(&graph, &rank, &[0]);
            pages.sort_unstable();
            assert_eq!(pages, [0, 1, 2, 3], "{}", order.name());
        }
    }

    #[test]
    fn orders_go_by_what_they_say() {
        // 0 links to 1 and 2, 1 to 3, 4 and 5, 2 to 5: what 5 is given is more than what 3 and 4 are.
        let graph = Graph::new(vec![(0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (2, 5)], 1);
        let rank = graph.page_rank();
        let crawl = |order: Order| order.crawl(&graph, &rank, &[0]);
        assert_eq!(crawl(Order::BreadthFirst), [0, 1, 2, 3, 4, 5]);
        assert_eq!(crawl(Order::InLinks), [0, 1, 2, 5, 3, 4]);
        assert_eq!(crawl(Order::Opic), [0, 1, 2, 5, 3, 4]);
        assert_eq!(crawl(Order::Omniscient)[0], 5);
    }
}
