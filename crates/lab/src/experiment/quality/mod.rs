//! How soon a crawler has the important pages, by the order in which it fetches: orders are replayed on the links of a crawl
//! that was made before.
//!
//! What counts is the area under the curve of how much of all importance (PageRank over the whole graph) the pages have that were
//! fetched so far: 1 if all of it is had at once, 0.5 if it comes evenly.

mod graph;
mod orders;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread;

use anyhow::{anyhow, ensure};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::graph::Graph;
use self::orders::Order;
use super::plot::{self, Line};
use super::{Outcome, Setup};

/// What an order must reach that uses nothing but what a crawler knows at that moment.
const AREA_MIN: f64 = 0.66;
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
    /// Where a plot goes, as SVG.
    pub plot: Option<PathBuf>,
}

impl Default for QualityOptions {
    fn default() -> QualityOptions {
        let graph = PathBuf::from("../shared/data/graph/cnr-2000/cnr-2000.arcs.zst");
        QualityOptions { seed: 1, graph, draws: 10, seeds: 10, plot: None }
    }
}

/// What came of an order.
#[derive(Clone, Debug, Serialize)]
struct Found {
    order: &'static str,
    /// The mean over all draws.
    area: f64,
    /// The worst of them.
    least: f64,
    #[serde(skip)]
    curve: Vec<(f64, f64)>,
}

/// Replays every order from several draws of seeds.
pub fn quality(setup: &Setup, options: &QualityOptions) -> anyhow::Result<Outcome> {
    if !options.graph.exists() {
        return Ok(Outcome::skipped("quality", format!("no {}", options.graph.display())));
    }
    ensure!(options.draws > 0 && options.seeds > 0, "there is nothing to begin with");
    let graph = Graph::read(&options.graph, options.seed)?;
    let rank = graph.page_rank();
    let draws = draw(&graph, &rank, options)?;
    let replayed = |order: Order| -> Found {
        let curves: Vec<Vec<f64>> =
            draws.iter().map(|seeds| curve(&order.crawl(&graph, &rank, seeds), &rank)).collect();
        let areas = curves.iter().map(|curve| curve.iter().sum::<f64>() / curve.len() as f64);
        let curve = curves.first().map(|curve| thinned(curve)).unwrap_or_default();
        let area = areas.clone().sum::<f64>() / draws.len() as f64;
        Found { order: order.name(), area, least: areas.fold(1.0, f64::min), curve }
    };
    let mut found = Vec::new();
    for orders in Order::ALL.chunks(thread::available_parallelism().map_or(1, usize::from)) {
        let some = thread::scope(|scope| {
            let running: Vec<_> = orders.iter().map(|order| scope.spawn(|| replayed(*order))).collect();
            running.into_iter().map(|one| one.join()).collect::<Result<Vec<_>, _>>()
        });
        found.extend(some.map_err(|_| anyhow!("a thread panicked"))?);
        setup.say(format!("{} of {} orders are done", found.len(), Order::ALL.len()));
    }
    if let Some(path) = &options.plot {
        let line =
            |one: &Found| Line { name: format!("{}: {:.3}", one.order, one.area), points: one.curve.clone() };
        let lines: Vec<Line> = found.iter().map(line).collect();
        plot::together(path, "How much of all importance is had", "part of the pages", &lines)?;
    }
    judge(&graph, &found)
}

fn judge(graph: &Graph, found: &[Found]) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new("quality");
    let name = Order::CashClasses.name();
    let area = found.iter().find(|one| one.order == name).map_or(0.0, |one| one.area);
    outcome.bar(
        format!("area under the curve by {name}"),
        format!(">= {AREA_MIN}"),
        format!("{area:.4}"),
        area >= AREA_MIN,
    );
    outcome.figure("orders", serde_json::to_value(found)?);
    outcome.figure("pages", graph.pages());
    outcome.figure("links_to_other_hosts", graph.far_links());
    let mut table = format!("{:22}  area   least\n", "order");
    for one in found {
        writeln!(table, "{:22}  {:.4} {:.4}", one.order, one.area, one.least)?;
    }
    outcome.table = table;
    Ok(outcome)
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
