//! How far the frontier on disk goes: filled, killed, opened, moved out of and drained, in a process that may use little memory.
//!
//! The work is done by processes of their own ([`work`]), in a memory cgroup that counts the page cache too where one can be
//! made; this one starts them, kills one of them, and compares what they report with the bars.

mod cgroup;
mod links;
mod work;

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

pub use work::{WorkOptions, frontier_work};

use self::cgroup::Cgroup;
use super::{
    Outcome, Setup,
    plot::{self, Line},
};

const EXPERIMENT: &str = "frontier";
/// From the last tenth but one to the last half.
const CPU_RATIO_MAX: f64 = 1.5;
const RSS_BYTES_MAX: u64 = 1_000_000_000;
const BEYOND_TEXT_MAX: f64 = 40.0;
const MANY_URLS: u64 = 10_000_000;
const PAUSE_MAX: Duration = Duration::from_secs(1);
const CLEAN_RESTART_MAX: Duration = Duration::from_secs(5);
const KILLED_RESTART_MAX: Duration = Duration::from_secs(30);
/// What moving out a host may read or write beyond what the host itself takes: its ends share blocks with others.
const FOREIGN_BYTES_MAX: u64 = 1 << 20;
/// A phase that takes longer is given up.
const PHASE_MAX: Duration = Duration::from_secs(4 * 3_600);

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct FrontierExperiment {
    /// The links follow from this.
    pub seed: u64,
    /// How many URLs are known in the end.
    pub urls: u64,
    /// The memory that the process and its page cache may have.
    pub memory_bytes: u64,
    /// How many URLs are handed over and settled in the end.
    pub drained: u64,
    /// Where a plot goes, as SVG.
    pub plot: Option<PathBuf>,
}

impl Default for FrontierExperiment {
    fn default() -> FrontierExperiment {
        FrontierExperiment {
            seed: 1,
            urls: 10_000_000,
            memory_bytes: 2 << 30,
            drained: 1_000_000,
            plot: None,
        }
    }
}

/// What a working process says, a line of JSON each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    /// This many URLs are known.
    Mark(Mark),
    /// All are, and nothing is written down but the journal.
    Filled { generated: u64 },
    /// The frontier is open and has handed over its first URL.
    Opened { after_s: f64 },
    /// Every offer is decided.
    Decided { known: u64, settled: u64 },
    /// A snapshot is durable, and what is not needed is gone.
    Stopped { disk_bytes: u64, text_bytes: u64 },
    /// URLs that were known and queued were found again, closer to a seed.
    Grown { urls: u64, cpu_s: f64 },
    /// A host or a partition moved out.
    Moved(Moved),
    /// URLs were handed over and settled.
    Drained(Drained),
}

/// How it is doing, since the mark before.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mark {
    known: u64,
    settled: u64,
    cpu_us_per_url: f64,
    read_bytes_per_url: f64,
    written_bytes_per_url: f64,
    rss_bytes: u64,
    rss_max_bytes: u64,
    disk_bytes: u64,
    text_bytes: u64,
    /// The longest call, by the clock on the wall, and the most processor time of any.
    pause_s: f64,
    pause_cpu_s: f64,
    wall_s: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Moved {
    what: String,
    urls: u64,
    waiting: u64,
    took_s: f64,
    read_bytes: u64,
    written_bytes: u64,
    /// What it took itself, about.
    own_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Drained {
    urls: u64,
    cpu_us_per_url: f64,
    read_bytes_per_url: f64,
    disk_bytes_before: u64,
    disk_bytes: u64,
}

/// Fills a frontier, kills it, and does everything with it that a site will.
pub fn frontier(setup: &Setup, options: &FrontierExperiment) -> anyhow::Result<Outcome> {
    let place = setup.place()?;
    let dir = place.path().join("frontier");
    let cgroup = Cgroup::make(options.memory_bytes);
    let mut outcome = Outcome::new(EXPERIMENT);
    let limited = match &cgroup {
        Ok(_) => format!("{} MiB, page cache included", options.memory_bytes >> 20),
        Err(why) => format!("not limited: {why}"),
    };
    setup.say(format!("memory: {limited}"));
    outcome.figure("memory_limit", limited);
    let phases = Phases { setup, options, dir: &dir, cgroup: cgroup.ok() };
    let marks = phases.fill(&mut outcome)?;
    phases.open_after_kill(&mut outcome)?;
    phases.open_after_stop(&mut outcome)?;
    judge_marks(&mut outcome, options.urls, &marks);
    if let Some(path) = &options.plot {
        draw(path, &marks)?;
    }
    Ok(outcome)
}

struct Phases<'a> {
    setup: &'a Setup,
    options: &'a FrontierExperiment,
    dir: &'a Path,
    cgroup: Option<Cgroup>,
}

impl Phases<'_> {
    /// Runs a phase and passes on what it reports, until it ends or `each` says that it is enough and it is killed.
    fn run(&self, phase: &str, mut each: impl FnMut(&Report) -> bool) -> anyhow::Result<()> {
        let mut command = Command::new(&self.setup.nephila);
        command.args(["lab", "frontier-work", phase, "--dir"]).arg(self.dir);
        for (name, value) in [
            ("--urls", self.options.urls),
            ("--seed", self.options.seed),
            ("--drained", self.options.drained),
        ] {
            command.arg(name).arg(value.to_string());
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start")?;
        let ended = self.listen(&mut child, &mut each);
        // Whatever happened, it does not outlive this.
        let _ = child.kill();
        let status = child.wait().context("cannot wait")?;
        ensure!(ended? || status.success(), "{phase} ended with {status}");
        Ok(())
    }

    fn listen(&self, child: &mut Child, each: &mut dyn FnMut(&Report) -> bool) -> anyhow::Result<bool> {
        if let Some(cgroup) = &self.cgroup {
            cgroup.add(child.id())?;
        }
        // It begins when its input ends: by then it is in the cgroup.
        drop(child.stdin.take());
        let begun = Instant::now();
        let output = child.stdout.take().context("no output")?;
        for line in BufReader::new(output).lines() {
            let line = line.context("cannot read")?;
            let report: Report =
                serde_json::from_str(&line).with_context(|| format!("unexpected: {line}"))?;
            self.setup.say(&line);
            if each(&report) {
                return Ok(true);
            }
            ensure!(begun.elapsed() < PHASE_MAX, "it takes too long");
        }
        Ok(false)
    }

    /// Fills it, and kills the process when it is full.
    fn fill(&self, outcome: &mut Outcome) -> anyhow::Result<Vec<Mark>> {
        let mut marks = Vec::new();
        let mut generated = None;
        self.run("fill", |report| {
            match report {
                Report::Mark(mark) => marks.push(mark.clone()),
                Report::Filled { generated: urls } => generated = Some(*urls),
                _ => {}
            }
            generated.is_some()
        })?;
        outcome.figure("generated_urls", generated.unwrap_or_default());
        Ok(marks)
    }

    fn open_after_kill(&self, outcome: &mut Outcome) -> anyhow::Result<()> {
        let generated = outcome.figures["generated_urls"].as_u64().unwrap_or_default();
        let (mut after_s, mut decided, mut beyond) = (f64::MAX, 0, f64::MAX);
        self.run("open", |report| {
            match report {
                Report::Opened { after_s: s } => after_s = *s,
                Report::Decided { known, .. } => decided = *known,
                Report::Stopped { disk_bytes, text_bytes } => {
                    beyond = (*disk_bytes as f64 - *text_bytes as f64) / decided.max(1) as f64;
                }
                _ => {}
            }
            false
        })?;
        at_most(
            outcome,
            "restart to first URL after kill -9",
            KILLED_RESTART_MAX.as_secs_f64(),
            after_s,
            "s",
        );
        outcome.equal("URLs known after kill -9", generated, decided);
        // Of few URLs, the files that are only begun take more than the URLs.
        if self.options.urls >= MANY_URLS {
            at_most(outcome, "disk a known URL beyond its text", BEYOND_TEXT_MAX, beyond, "bytes");
        } else {
            outcome.figure("disk_bytes_per_url_beyond_text", beyond);
        }
        Ok(())
    }

    fn open_after_stop(&self, outcome: &mut Outcome) -> anyhow::Result<()> {
        let mut reports = Vec::new();
        self.run("use", |report| {
            reports.push(report.clone());
            false
        })?;
        for report in reports {
            match report {
                Report::Opened { after_s } => {
                    let max = CLEAN_RESTART_MAX.as_secs_f64();
                    at_most(outcome, "restart to first URL after a clean stop", max, after_s, "s");
                }
                Report::Moved(moved) => {
                    let foreign =
                        (moved.read_bytes + moved.written_bytes).saturating_sub(3 * moved.own_bytes);
                    let what = format!("bytes touched to move out {} beyond three times its own", moved.what);
                    at_most(outcome, &what, FOREIGN_BYTES_MAX as f64, foreign as f64, "bytes");
                    outcome.figure(&format!("moved_{}_urls", moved.what), moved.urls);
                    outcome.figure(&format!("moved_{}_s", moved.what), moved.took_s);
                }
                Report::Grown { urls, cpu_s } => {
                    outcome.figure("grown_cpu_us_per_url", cpu_s * 1e6 / urls.max(1) as f64);
                }
                Report::Drained(drained) => {
                    outcome.figure("drained_urls", drained.urls);
                    outcome.figure("drained_cpu_us_per_url", drained.cpu_us_per_url);
                    outcome.figure("drained_read_bytes_per_url", drained.read_bytes_per_url);
                    outcome.figure("drained_disk_bytes_before", drained.disk_bytes_before);
                    outcome.figure("drained_disk_bytes", drained.disk_bytes);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn at_most(outcome: &mut Outcome, what: &str, wanted: f64, is: f64, unit: &str) {
    outcome.bar(what, format!("<= {wanted} {unit}"), format!("{is:.3} {unit}"), is <= wanted);
}

/// What must hold while it grows.
/// Draws how it does as it grows.
fn draw(path: &Path, marks: &[Mark]) -> anyhow::Result<()> {
    let line = |name: &str, figure: fn(&Mark) -> f64| Line {
        name: name.to_owned(),
        points: marks.iter().map(|mark| (mark.known as f64, figure(mark))).collect(),
    };
    let lines = [
        line("processor time a URL (us)", |mark| mark.cpu_us_per_url),
        line("read a URL (bytes)", |mark| mark.read_bytes_per_url),
        line("written a URL (bytes)", |mark| mark.written_bytes_per_url),
        line("resident memory (MB)", |mark| mark.rss_bytes as f64 / 1e6),
        line("disk (MB)", |mark| mark.disk_bytes as f64 / 1e6),
        line("longest pause (s)", |mark| mark.pause_s),
    ];
    plot::lines(path, "A frontier on disk as it grows", "URLs known", &lines)
}

fn judge_marks(outcome: &mut Outcome, urls: u64, marks: &[Mark]) {
    let cpu = |upto: u64| marks.iter().find(|mark| mark.known >= upto).map(|mark| mark.cpu_us_per_url);
    if let (Some(late), Some(early)) = (cpu(urls), cpu(urls / 10)) {
        outcome.figure("cpu_us_per_url_early", early);
        outcome.figure("cpu_us_per_url_late", late);
        let what = "CPU a URL, the last half against the last half of the first tenth";
        at_most(outcome, what, CPU_RATIO_MAX, late / early, "");
    }
    let rss = marks.iter().map(|mark| mark.rss_max_bytes).max().unwrap_or_default();
    at_most(outcome, "resident memory", RSS_BYTES_MAX as f64, rss as f64, "bytes");
    let pause = marks.iter().map(|mark| mark.pause_s).fold(0.0, f64::max);
    at_most(outcome, "longest pause", PAUSE_MAX.as_secs_f64(), pause, "s");
    let pause = marks.iter().map(|mark| mark.pause_cpu_s).fold(0.0, f64::max);
    outcome.figure("longest_pause_cpu_s", pause);
    if let Some(last) = marks.last() {
        outcome.figure("read_bytes_per_url_late", last.read_bytes_per_url);
        outcome.figure("written_bytes_per_url_late", last.written_bytes_per_url);
    }
}
