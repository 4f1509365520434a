//! What a page costs, here and with other crawlers: the same web on one processor, one crawler after the other on another.
//!
//! Every crawler fetches all pages of hosts that have neither names nor delays, with what it is told of the same
//! connections at once. What counts is processor time, of all threads, in user and kernel code: it is the same on a busy
//! machine. In the same run the parts of a page are measured alone ([`floor`]).
//!
//! What a processor does in a second still changes from minute to minute where others share the machine. So Nephila and the
//! floor are measured in turn, several times over, and what counts is the middle one.

mod floor;
mod measure;
mod peers;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::json;

use self::{
    floor::{Floor, floor},
    measure::Cost,
    peers::Installed,
};
use super::{Outcome, Setup, crawler::Crawler, plot, process::Processors, serve};
use crate::web::{Web, WebConfig};
pub use peers::Peer;

const EXPERIMENT: &str = "bench";
const RUN_MAX: Duration = Duration::from_secs(1_800);
/// Of processor time a page, as a multiple of the floor.
const OF_FLOOR_MAX: f64 = 1.3;
const GZIP_PER_CPU_S_MIN: f64 = 7_500.0;
const ZSTD_PER_CPU_S_MIN: f64 = 8_000.0;
/// Of pages per CPU-second with zstd, as a multiple of the best that a peer reaches.
const OF_PEERS_MIN: [(Peer, f64); 2] = [(Peer::Wget2, 1.5), (Peer::Spider, 1.3)];

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The web follows from this.
    pub seed: u64,
    /// Pages in all.
    pub pages: u32,
    /// Hosts that they are on.
    pub hosts: u32,
    /// Requests at once.
    pub parallel: usize,
    /// How Nephila compresses its archive, in turn: values of `--compress`.
    pub compress: Vec<String>,
    /// How often Nephila and the floor are measured.
    pub rounds: usize,
    /// Other crawlers to compare with.
    pub peers: Vec<Peer>,
    /// Where they are installed, and found again the next time; a directory that is removed at the end if not given.
    pub peers_dir: Option<PathBuf>,
    /// Where a plot goes, as SVG.
    pub plot: Option<PathBuf>,
}

impl Default for BenchOptions {
    fn default() -> BenchOptions {
        BenchOptions {
            seed: 1,
            pages: 10_000,
            hosts: 1_000,
            parallel: 64,
            compress: vec!["zstd".to_owned(), "gzip".to_owned()],
            rounds: 5,
            peers: Peer::ALL.to_vec(),
            peers_dir: None,
            plot: None,
        }
    }
}

/// One crawl.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// Who, and how.
    who: String,
    /// Whether the pages were sent compressed.
    served_gzip: bool,
    /// What it does of the job.
    job: &'static str,
    pages_per_cpu_s: f64,
    cpu_us_per_page: f64,
    pages_per_s: f64,
    rss_max_mb: f64,
    coverage: f64,
    cost: Cost,
}

/// Nephila, with every way to compress, and the floor: one after the other, so that a ratio of them means something.
#[derive(Clone, Debug, Serialize)]
struct Round {
    rows: Vec<Row>,
    floor: Floor,
}

/// Crawls the same web with Nephila and others, measures the floor, and compares.
pub fn bench(setup: &Setup, options: &BenchOptions) -> anyhow::Result<Outcome> {
    ensure!(options.hosts > 0 && options.pages >= options.hosts, "there must be at least one page a host");
    ensure!(options.rounds > 0, "there must be at least one round");
    ensure!(!options.compress.is_empty(), "no way to compress is given");
    let Some(processors) = Processors::two()? else {
        return Ok(Outcome::skipped(EXPERIMENT, "needs two processors"));
    };
    let place = setup.place()?;
    let mut outcome = Outcome::new(EXPERIMENT);
    let (mut rows, mut floors, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
    let (peers, missing) = install(setup, options, place.path());
    for kind in ["bench", "bench-gzip"] {
        processors.be_with_web()?;
        let web = web(options, kind)?;
        processors.be_elsewhere()?;
        let measured = (0..options.rounds).map(|_| round(setup, options, place.path(), kind, &web));
        let measured: Vec<Round> = measured.collect::<anyhow::Result<_>>()?;
        for of in 0..options.compress.len() {
            let all = measured.iter().map(|round| &round.rows[of]);
            rows.push(middle(all, |row| row.pages_per_cpu_s).clone());
        }
        floors.push(*middle(measured.iter().map(|round| &round.floor), Floor::with_zstd_us));
        rounds.push(measured);
        for peer in &peers {
            let with = options.parallel;
            for (how, connections) in [(String::new(), None), (format!(", {with} at once"), Some(with))] {
                rows.push(peer_row(setup, place.path(), peer, how, connections, kind, &web)?);
            }
        }
    }
    if let Some(spider) = peers.iter().find(|peer| peer.peer == Peer::Spider) {
        // It is made for one site at a time, so it may show what it can do with one.
        processors.be_with_web()?;
        let web = web(&BenchOptions { hosts: 1, ..options.clone() }, "bench")?;
        processors.be_elsewhere()?;
        let how = ", all on one host".to_owned();
        rows.push(peer_row(setup, place.path(), spider, how, Some(options.parallel), "bench", &web)?);
    }
    bars(&mut outcome, &rounds[0]);
    peer_bars(&mut outcome, &rows);
    outcome.table =
        table(&rows, &floors) + &missing.iter().map(|why| format!("missing: {why}\n")).collect::<String>();
    if let Some(path) = &options.plot {
        let bars: Vec<(String, f64)> = rows.iter().map(|row| (row.label(), row.pages_per_cpu_s)).collect();
        let title =
            format!("pages per CPU-second, {} pages of 16 KB on {} hosts", options.pages, options.hosts);
        plot::bars(path, &title, &bars)?;
    }
    outcome.figure("rows", json!(rows));
    outcome.figure("missing", json!(missing));
    outcome.figure("floor", json!({ "plain": floors[0], "served_gzip": floors[1] }));
    outcome.figure("rounds", json!({ "plain": rounds[0], "served_gzip": rounds[1] }));
    Ok(outcome)
}

/// Crawls the web with every way to compress, and measures the floor with the pages of the last archive.
fn round(
    setup: &Setup,
    options: &BenchOptions,
    place: &Path,
    kind: &str,
    web: &Web,
) -> anyhow::Result<Round> {
    // One round leaves nothing to the next: neither room taken on the disk nor pages in its cache.
    let dir = tempfile::tempdir_in(place).context("cannot make a directory for a round")?;
    let mut rows = Vec::new();
    let mut archive = None;
    for compress in &options.compress {
        let name = format!("{kind}-archived-{compress}");
        let crawler = nephila(setup, options, dir.path(), &name, web)?.with("compress", compress);
        setup.say(crawler.command_line());
        web.reset();
        let cost = measure::run(&mut crawler.command()?, RUN_MAX)?;
        ensure!(cost.exit_code == 0, "the crawl failed\n{}", crawler.log_end());
        let job = "robots.txt, WARC as on the wire, digests, index, journal";
        rows.push(row(setup, format!("nephila {compress}"), job, kind, web, cost));
        archive = Some(crawler.out.join("archive"));
    }
    setup.say("the parts of a page alone");
    let archive = archive.context("no way to compress is given")?;
    let floor = floor(web, &archive, options.parallel)?;
    Ok(Round { rows, floor })
}

/// The one in the middle by a figure; of an even number the lower of the two.
fn middle<'a, T>(all: impl Iterator<Item = &'a T>, figure: impl Fn(&T) -> f64) -> &'a T {
    let mut all: Vec<&T> = all.collect();
    all.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    all[(all.len() - 1) / 2]
}

/// One crawl by a peer.
fn peer_row(
    setup: &Setup,
    dir: &Path,
    peer: &Installed,
    how: String,
    connections: Option<usize>,
    kind: &str,
    web: &Web,
) -> anyhow::Result<Row> {
    let who = format!("{}{how}", peer.peer);
    let out = dir.join(format!("{kind}-{}", who.replace([' ', ','], "-")));
    setup.say(&who);
    web.reset();
    let cost = measure::run(&mut peer.command(web, &out, connections)?, RUN_MAX)?;
    // What it kept is of no interest, and there may be much of it.
    let _ = std::fs::remove_dir_all(out.join("files"));
    Ok(row(setup, who, peer.peer.job(), kind, web, cost))
}

/// Those of the peers that can be had, and why the others cannot.
fn install(setup: &Setup, options: &BenchOptions, dir: &Path) -> (Vec<Installed>, Vec<String>) {
    let dir = options.peers_dir.clone().unwrap_or_else(|| dir.join("peers"));
    let (mut installed, mut missing) = (Vec::new(), Vec::new());
    for peer in &options.peers {
        setup.say(format!("looking for {peer}"));
        match peer.install(&dir) {
            Ok(found) => installed.push(found),
            Err(error) => missing.push(format!("{peer}: {error:#}")),
        }
    }
    (installed, missing)
}

fn web(options: &BenchOptions, kind: &str) -> anyhow::Result<Web> {
    serve(WebConfig {
        seed: options.seed,
        hosts: options.hosts,
        pages: options.pages / options.hosts,
        kinds: kind.parse()?,
        latency_ms: (0, 0),
        delay_ms: 0,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })
}

fn nephila(
    setup: &Setup,
    options: &BenchOptions,
    dir: &Path,
    name: &str,
    web: &Web,
) -> anyhow::Result<Crawler> {
    Ok(Crawler::new(setup, dir, name, web)?
        .with("delay", "0s")
        .with("ip-delay", "0s")
        .with("slow-factor", "0")
        .with("parallel", options.parallel)
        // As many as there are hosts: each is asked again and again.
        .with("idle-connections", options.hosts))
}

fn row(setup: &Setup, who: String, job: &'static str, kind: &str, web: &Web, cost: Cost) -> Row {
    let verdict = web.verdict();
    let pages = verdict.served as f64;
    let row = Row {
        who,
        served_gzip: kind.ends_with("gzip"),
        job,
        pages_per_cpu_s: pages / cost.cpu_s().max(1e-9),
        cpu_us_per_page: cost.cpu_s() * 1e6 / pages.max(1.0),
        pages_per_s: pages / cost.wall_s,
        rss_max_mb: cost.rss_max_mb,
        coverage: verdict.coverage,
        cost,
    };
    setup.say(format!(
        "  {:.0} pages per CPU-second, {:.1} us a page, {:.0} pages a second",
        row.pages_per_cpu_s, row.cpu_us_per_page, row.pages_per_s
    ));
    row
}

/// What is in the middle of all rounds has to reach the bar; the figures of each are shown with it.
fn bars(outcome: &mut Outcome, rounds: &[Round]) {
    for (who, per_cpu_s_min, floor_us) in [
        ("nephila zstd", ZSTD_PER_CPU_S_MIN, Floor::with_zstd_us as fn(&Floor) -> f64),
        ("nephila gzip", GZIP_PER_CPU_S_MIN, Floor::with_gzip_us),
    ] {
        let rows = rounds.iter().flat_map(|round| round.rows.iter().map(move |row| (row, &round.floor)));
        let rows: Vec<(&Row, &Floor)> = rows.filter(|(row, _)| row.who == who).collect();
        if rows.is_empty() {
            continue;
        }
        let coverage = rows.iter().map(|(row, _)| row.coverage).fold(1.0, f64::min);
        outcome.equal(format!("{who}: coverage"), 1.0, coverage);
        let of_all = |figures: &[f64], digits: usize| {
            let figures: Vec<String> = figures.iter().map(|figure| format!("{figure:.digits$}")).collect();
            figures.join(", ")
        };
        let per_cpu_s: Vec<f64> = rows.iter().map(|(row, _)| row.pages_per_cpu_s).collect();
        let counted = *middle(per_cpu_s.iter(), |figure| *figure);
        outcome.bar(
            format!("{who}: pages per CPU-second"),
            format!(">= {per_cpu_s_min}"),
            format!("{counted:.0} (of {})", of_all(&per_cpu_s, 0)),
            counted >= per_cpu_s_min,
        );
        let times: Vec<f64> = rows.iter().map(|(row, floor)| row.cpu_us_per_page / floor_us(floor)).collect();
        let counted = *middle(times.iter(), |figure| *figure);
        outcome.bar(
            format!("{who}: CPU time a page, as a multiple of the floor"),
            format!("<= {OF_FLOOR_MAX}"),
            format!("{counted:.2} (of {})", of_all(&times, 2)),
            counted <= OF_FLOOR_MAX,
        );
    }
}

/// How Nephila, with zstd, compares with the best of each peer that was measured.
fn peer_bars(outcome: &mut Outcome, rows: &[Row]) {
    let best = |who: &str| {
        let plain = rows.iter().filter(|row| !row.served_gzip && row.who.starts_with(who));
        plain.map(|row| row.pages_per_cpu_s).max_by(f64::total_cmp)
    };
    for (peer, times_min) in OF_PEERS_MIN {
        if let (Some(ours), Some(theirs)) = (best("nephila zstd"), best(peer.name())) {
            let times = ours / theirs.max(1e-9);
            outcome.bar(
                format!("pages per CPU-second, as a multiple of the best of {peer}"),
                format!(">= {times_min}"),
                format!("{times:.2}"),
                times >= times_min,
            );
        }
    }
}

impl Row {
    fn label(&self) -> String {
        format!("{}{}", self.who, if self.served_gzip { ", served gzip" } else { "" })
    }
}

fn table(rows: &[Row], floors: &[Floor]) -> String {
    let width = rows.iter().map(|row| row.label().len()).max().unwrap_or(0);
    let mut text =
        format!("{:width$}  pages/CPU-s  us/page  user  sys  pages/s  RSS MB  coverage  what it does\n", "");
    for row in rows {
        let pages = row.cost.cpu_s() * row.pages_per_cpu_s;
        let us = |seconds: f64| seconds * 1e6 / pages.max(1.0);
        text += &format!(
            "{:width$}  {:11.0}  {:7.1}  {:4.0}  {:3.0}  {:7.0}  {:6.0}  {:8.3}  {}\n",
            row.label(),
            row.pages_per_cpu_s,
            row.cpu_us_per_page,
            us(row.cost.user_s),
            us(row.cost.system_s),
            row.pages_per_s,
            row.rss_max_mb,
            row.coverage,
            row.job
        );
    }
    for (floor, served) in floors.iter().zip(["plain", "gzip"]) {
        text += &format!(
            "floor, served {served}: fetch {:.1} us, html {:.1}, digests {:.1}, gzip {:.1} or zstd {:.1}: {:.1} with gzip, \
             {:.1} with zstd; gzip makes responses {:.2} times smaller\n",
            floor.fetch_us,
            floor.html_us,
            floor.digests_us,
            floor.gzip_us,
            floor.zstd_us,
            floor.with_gzip_us(),
            floor.with_zstd_us(),
            floor.gzip_ratio
        );
    }
    text
}
