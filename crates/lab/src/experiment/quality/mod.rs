//! How soon a crawler has the important pages, by the order in which it fetches: orders are replayed on the links of a crawl
//! that was made before.
//!
//! What counts is the area under the curve of how much of all importance (PageRank over the whole graph) the pages have that were
//! fetched so far: 1 if all of it is had at once, 0.5 if it comes evenly.
//!
//! The same for several sites, each of which knows what it was told, with how much they had to tell each other.

mod graph;
mod orders;
mod sites;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread;

use anyhow::{anyhow, ensure};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::graph::Graph;
use self::orders::Order;
use self::sites::{Sites, Telling};
use super::plot::{self, Line};
use super::{Outcome, Setup};

/// What an order must reach that uses nothing but what a crawler knows at that moment.
const AREA_MIN: f64 = 0.66;
/// What several sites must reach, in parts of what one site does,
const PART_OF_ONE: f64 = 0.99;
/// with so many times what they send each other if they send every page once.
const SENT_MAX: f64 = 2.0;
/// Sites by whose number a page's site can be kept.
const SITES_MAX: u16 = 99;
/// Points of a curve that are drawn.
const POINTS: usize = 200;
/// Seeds that lead to less than this part of all pages are drawn again.
const PART_MIN: f64 = 0.99;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct QualityOptions {
    /// Hosts and seeds follow from it.
    pub seed: u64,
    /// The links, a line each: the number of a page, a tab, the number of another.
    pub graph: PathBuf,
    /// How often seeds are drawn.
    pub draws: u16,
    /// Pages that a crawl begins with.
    pub seeds: u16,
    /// Sites that crawl as one; below two, none do.
    pub sites: u16,
    /// When sites send what they found for each other's pages again: when all of it is so many times what they had sent. Each
    /// of these is tried.
    pub times: Vec<f64>,
    /// Pages that are fetched, by all sites together, while something is on its way.
    pub late: usize,
    /// Where a plot goes, as SVG.
    pub plot: Option<PathBuf>,
}

impl Default for QualityOptions {
    fn default() -> QualityOptions {
        let graph = PathBuf::from("../shared/data/graph/cnr-2000/cnr-2000.arcs.zst");
        let times = vec![1.5, 2.0, 4.0, 8.0, 16.0];
        QualityOptions { seed: 1, graph, draws: 10, seeds: 10, sites: 3, times, late: 1_000, plot: None }
    }
}

/// Who crawls, and how.
#[derive(Clone, Copy, Debug)]
enum Way {
    Alone(Order),
    Together(Sites),
}

impl Way {
    /// All ways that are compared.
    fn all(options: &QualityOptions) -> Vec<Way> {
        let alone = Order::ALL.into_iter().map(Way::Alone);
        let sums = options.times.iter().map(|times| Telling::Sums(*times));
        let tellings = [Telling::Everything, Telling::First].into_iter().chain(sums);
        let (count, late, seed) = (options.sites, options.late, options.seed);
        let together = tellings.map(|telling| Way::Together(Sites { count, telling, late, seed }));
        if count < 2 { alone.collect() } else { alone.chain(together).collect() }
    }

    fn name(self) -> String {
        match self {
            Way::Alone(order) => order.name().to_owned(),
            Way::Together(Sites { count, telling: Telling::Everything, .. }) => {
                format!("{count} sites that know all")
            }
            Way::Together(Sites { count, telling: Telling::First, .. }) => {
                format!("{count} sites, first score")
            }
            Way::Together(Sites { count, telling: Telling::Sums(times), .. }) => {
                format!("{count} sites, sums x {times}")
            }
        }
    }

    /// The pages in their order, and what was sent between sites.
    fn crawl(self, graph: &Graph, rank: &[f64], seeds: &[u32]) -> (Vec<u32>, u64) {
        match self {
            Way::Alone(order) => (order.crawl(graph, rank, seeds), 0),
            Way::Together(sites) => {
                let crawled = sites.crawl(graph, seeds);
                (crawled.pages, crawled.sent)
            }
        }
    }
}

/// What came of a way to crawl.
#[derive(Clone, Debug, Serialize)]
struct Found {
    order: String,
    /// The mean over all draws.
    area: f64,
    /// The worst of them.
    least: f64,
    /// What sites sent each other, pages with what they are given: the mean.
    sent: f64,
    #[serde(skip)]
    curve: Vec<(f64, f64)>,
}

/// Replays every order from several draws of seeds.
pub fn quality(setup: &Setup, options: &QualityOptions) -> anyhow::Result<Outcome> {
    if !options.graph.exists() {
        return Ok(Outcome::skipped("quality", format!("no {}", options.graph.display())));
    }
    ensure!(options.draws > 0 && options.seeds > 0, "there is nothing to begin with");
    ensure!(options.sites <= SITES_MAX, "{SITES_MAX} sites can be had here, not {}", options.sites);
    ensure!(options.times.iter().all(|times| *times > 1.0), "a sum is sent again when it has grown");
    let graph = Graph::read(&options.graph, options.seed)?;
    let rank = graph.page_rank();
    let draws = draw(&graph, &rank, options)?;
    let replayed = |way: Way| -> Found {
        let crawled: Vec<_> = draws.iter().map(|seeds| way.crawl(&graph, &rank, seeds)).collect();
        let curves: Vec<Vec<f64>> = crawled.iter().map(|(pages, _)| curve(pages, &rank)).collect();
        let areas = curves.iter().map(|curve| curve.iter().sum::<f64>() / curve.len() as f64);
        let curve = curves.first().map(|curve| thinned(curve)).unwrap_or_default();
        let area = areas.clone().sum::<f64>() / draws.len() as f64;
        let sent = crawled.iter().map(|(_, sent)| *sent as f64).sum::<f64>() / draws.len() as f64;
        Found { order: way.name(), area, least: areas.fold(1.0, f64::min), sent, curve }
    };
    let all = Way::all(options);
    let mut found = Vec::new();
    for ways in all.chunks(thread::available_parallelism().map_or(1, usize::from)) {
        let some = thread::scope(|scope| {
            let running: Vec<_> = ways.iter().map(|way| scope.spawn(|| replayed(*way))).collect();
            running.into_iter().map(|one| one.join()).collect::<Result<Vec<_>, _>>()
        });
        found.extend(some.map_err(|_| anyhow!("a thread panicked"))?);
        setup.say(format!("{} of {} orders are done", found.len(), all.len()));
    }
    if let Some(path) = &options.plot {
        let line =
            |one: &Found| Line { name: format!("{}: {:.3}", one.order, one.area), points: one.curve.clone() };
        let lines: Vec<Line> = found.iter().map(line).collect();
        plot::together(path, "How much of all importance is had", "part of the pages", &lines)?;
    }
    judge(options, &graph, &found)
}

fn judge(options: &QualityOptions, graph: &Graph, found: &[Found]) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new("quality");
    let name = Order::CashClasses.name();
    let alone = found.iter().find(|one| one.order == name).map_or(0.0, |one| one.area);
    outcome.bar(
        format!("area under the curve by {name}"),
        format!(">= {AREA_MIN}"),
        format!("{alone:.4}"),
        alone >= AREA_MIN,
    );
    let first = Way::all(options).iter().zip(found).find_map(|(way, found)| match way {
        Way::Together(Sites { telling: Telling::First, .. }) => Some(found.sent),
        _ => None,
    });
    if let Some(first) = first {
        judge_sites(options, found, (alone, first), &mut outcome);
    }
    outcome.figure("orders", serde_json::to_value(found)?);
    outcome.figure("pages", graph.pages());
    outcome.figure("links_to_other_hosts", graph.far_links());
    let mut table = format!("{:23}  area   least   of one site     sent  times first score\n", "order");
    for Found { order, area, least, sent, .. } in found {
        write!(table, "{order:23}  {area:.4} {least:.4}  {:11.4}", area / alone)?;
        match first.filter(|_| *sent > 0.0) {
            Some(first) => writeln!(table, "  {sent:7.0}  {:.3}", sent / first)?,
            None => writeln!(table)?,
        }
    }
    outcome.table = table;
    Ok(outcome)
}

/// Of the ways to tell each other sums, that counts which is good enough and sends the least; or that which is best, if none is.
fn judge_sites(options: &QualityOptions, found: &[Found], (alone, first): (f64, f64), outcome: &mut Outcome) {
    let sums: Vec<_> = Way::all(options)
        .into_iter()
        .zip(found)
        .filter(|(way, _)| matches!(way, Way::Together(Sites { telling: Telling::Sums(_), .. })))
        .map(|(_, found)| found)
        .collect();
    let good = sums.iter().filter(|one| one.area >= PART_OF_ONE * alone);
    let least = good.min_by(|a, b| a.sent.total_cmp(&b.sent));
    let best = sums.iter().max_by(|a, b| a.area.total_cmp(&b.area));
    let Some(one) = least.or(best) else { return };
    let part = one.area / alone;
    let what = format!("area by {}, of that of one site", one.order);
    outcome.bar(what, format!(">= {PART_OF_ONE}"), format!("{part:.4}"), part >= PART_OF_ONE);
    let times = one.sent / first;
    let what = format!("sent by {}, of what is sent by first score", one.order);
    outcome.bar(what, format!("<= {SENT_MAX}"), format!("{times:.3}"), times <= SENT_MAX);
}

/// Seeds for each crawl, at random among all pages.
fn draw(graph: &Graph, rank: &[f64], options: &QualityOptions) -> anyhow::Result<Vec<Vec<u32>>> {
    let mut draws = Vec::new();
    for number in 0..u64::from(options.draws) * 100 {
        let seed = |place: u16| {
            let drawn = xxh3_64_with_seed(
                &[number.to_le_bytes(), u64::from(place).to_le_bytes()].concat(),
                options.seed,
            );
            (drawn % graph.pages() as u64) as u32
        };
        let mut seeds: Vec<u32> = (0..options.seeds).map(seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        if Order::BreadthFirst.crawl(graph, rank, &seeds).len() as f64 >= graph.pages() as f64 * PART_MIN {
            draws.push(seeds);
        }
        if draws.len() == usize::from(options.draws) {
            return Ok(draws);
        }
    }
    Err(anyhow!("seeds at random hardly ever lead to {PART_MIN} of the pages: draw more of them"))
}

/// How much importance there is after each page, of all that is met.
fn curve(pages: &[u32], rank: &[f64]) -> Vec<f64> {
    let all: f64 = pages.iter().map(|page| rank[*page as usize]).sum();
    let had = pages.iter().scan(0.0, |had, page| {
        *had += rank[*page as usize] / all;
        Some(*had)
    });
    had.collect()
}

fn thinned(curve: &[f64]) -> Vec<(f64, f64)> {
    let at = |point: usize| {
        let page = (point * curve.len() / POINTS).clamp(1, curve.len());
        (page as f64 / curve.len() as f64, curve[page - 1])
    };
    (0..=POINTS).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_with_all_that_is_met() {
        let curve = curve(&[2, 0], &[0.1, 0.6, 0.3]);
        assert!((curve[0] - 0.75).abs() < 1e-9 && (curve[1] - 1.0).abs() < 1e-9, "{curve:?}");
        let drawn = thinned(&curve);
        assert_eq!((drawn.len(), drawn[0].0, drawn[POINTS].0), (POINTS + 1, 0.5, 1.0));
    }
}
