//! Experiments: commands that show what the crawler promises, on the synthetic web and with real processes.
//!
//! Each starts a [web](crate::web) in this process, runs `nephila crawl` on it as anyone would, and compares what the web's
//! judge, the journal and the archive say with its bars. What comes back is an [`Outcome`]: the figures, and for each bar
//! whether it is met. Experiments that cannot be done on a machine say so and are neither met nor missed.
//!
//! They promise:
//! - **Nothing is left behind** but what [`Setup::keep`] asks for: no files, no processes, no mounts.
//! - **They end**: every wait for a process has a limit.

mod agents;
mod archive;
mod bench;
mod chaos;
mod connections;
mod crawler;
mod federation;
mod first_page;
mod frontier;
mod full_disk;
mod gap;
mod garbage;
mod handshakes;
mod hostile;
mod journal;
mod kills;
mod many_hosts;
mod memory;
mod plot;
mod process;
mod quality;
mod redis;
mod ring;
mod scaling;
pub(crate) mod sites;
mod web_speed;

use std::{
    fmt::{self, Display},
    io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Map, Value};

pub use bench::{BenchOptions, Peer, bench};
pub use chaos::{ChaosOptions, ServerFaults, chaos};
pub use connections::{ConnectionsOptions, connections};
pub use federation::{FederationOptions, federation};
pub use first_page::{FirstPageOptions, first_page};
pub use frontier::{FrontierExperiment, WorkOptions, frontier, frontier_work};
pub use full_disk::{FullDiskOptions, full_disk};
pub use gap::{GapOptions, gap};
pub use garbage::{GarbageOptions, garbage};
pub use handshakes::{HandshakesOptions, handshakes};
pub use hostile::{HostileOptions, hostile};
pub use kills::{KillsOptions, kills};
pub use many_hosts::{ManyHostsOptions, ManyHostsPart, many_hosts};
pub use memory::{MemoryOptions, memory};
pub use quality::{QualityOptions, quality};
pub use redis::{RedisExperiment, redis};
pub use ring::{RingOptions, ring};
pub use scaling::{ScalingOptions, scaling};
pub use web_speed::{WebSpeedOptions, web_speed};

use crate::web::{Web, WebConfig, WebError};

/// Examples that a bar shows.
const EXAMPLES_MAX: usize = 20;

/// What all experiments need to know.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The crawler: the `nephila` binary.
    pub nephila: PathBuf,
    /// Everything is kept here, instead of in a directory that is removed at the end.
    pub keep: Option<PathBuf>,
    /// Told what is going on, a line at a time.
    pub say: fn(&str),
}

impl Setup {
    /// The crawler is the running program; nothing is kept or said.
    pub fn here() -> io::Result<Setup> {
        Ok(Setup { nephila: std::env::current_exe()?, keep: None, say: |_| {} })
    }

    fn say(&self, what: impl AsRef<str>) {
        (self.say)(what.as_ref());
    }

    fn place(&self) -> anyhow::Result<Place> {
        let Some(dir) = &self.keep else {
            let temporary = tempfile::Builder::new()
                .prefix("nephila-lab-")
                .tempdir()
                .context("cannot make a directory")?;
            return Ok(Place { dir: temporary.path().to_owned(), _temporary: Some(temporary) });
        };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let is_empty = dir.read_dir().is_ok_and(|mut entries| entries.next().is_none());
        anyhow::ensure!(is_empty, "{} is not empty: name a new directory", dir.display());
        Ok(Place { dir: dir.canonicalize()?, _temporary: None })
    }
}

/// Where the files of an experiment are.
struct Place {
    dir: PathBuf,
    /// Removes the directory when it goes.
    _temporary: Option<tempfile::TempDir>,
}

impl Place {
    fn path(&self) -> &Path {
        &self.dir
    }
}

/// What came of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub experiment: &'static str,
    /// Why it could not be done here, if it could not.
    pub skipped: Option<String>,
    /// What was asked, and what was found.
    pub bars: Vec<Bar>,
    /// Further figures.
    pub figures: Map<String, Value>,
    /// The figures as a table for people, if they are too many for lines.
    #[serde(skip)]
    pub table: String,
}

/// One thing that is asked of the crawler.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What.
    pub what: String,
    /// What it should be.
    pub wanted: String,
    /// What it is.
    pub measured: String,
    /// Whether that is good enough.
    pub met: bool,
    /// What went wrong, for instance.
    pub examples: Vec<String>,
}

impl Outcome {
    fn new(experiment: &'static str) -> Outcome {
        Outcome { experiment, skipped: None, bars: Vec::new(), figures: Map::new(), table: String::new() }
    }

    fn skipped(experiment: &'static str, why: impl Into<String>) -> Outcome {
        Outcome { skipped: Some(why.into()), ..Outcome::new(experiment) }
    }

    fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }

    fn bar(&mut self, what: impl Into<String>, wanted: impl Display, measured: impl Display, met: bool) {
        let (what, wanted, measured) = (what.into(), wanted.to_string(), measured.to_string());
        self.bars.push(Bar { what, wanted, measured, met, examples: Vec::new() });
    }

    /// Something that must not happen at all.
    fn none(&mut self, what: impl Into<String>, count: u64, examples: &[String]) {
        self.bar(what, 0, count, count == 0);
        if let Some(bar) = self.bars.last_mut() {
            bar.examples = examples.iter().take(EXAMPLES_MAX).cloned().collect();
        }
    }

    /// Something that must be equal to what is expected.
    fn equal<T: Display + PartialEq>(&mut self, what: impl Into<String>, wanted: T, measured: T) {
        let met = wanted == measured;
        self.bar(what, wanted, measured, met);
    }

    /// Whether no bar is missed.
    pub fn is_met(&self) -> bool {
        self.bars.iter().all(|bar| bar.met)
    }

    /// As one object, for `--json`.
    pub fn to_json(&self) -> Value {
        let mut json = serde_json::to_value(self).unwrap_or_default();
        json["met"] = self.is_met().into();
        json
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.skipped {
            return writeln!(f, "{}: skipped: {why}", self.experiment);
        }
        let width = |text: fn(&Bar) -> &str| self.bars.iter().map(|bar| text(bar).len()).max().unwrap_or(0);
        let (what, wanted) = (width(|bar| &bar.what), width(|bar| &bar.wanted));
        for bar in &self.bars {
            let met = if bar.met { "met   " } else { "MISSED" };
            writeln!(f, "{met}  {:what$}  wanted {:wanted$}  is {}", bar.what, bar.wanted, bar.measured)?;
            for example in &bar.examples {
                writeln!(f, "          {example}")?;
            }
        }
        f.write_str(&self.table)?;
        for (name, value) in self.figures.iter().filter(|_| self.table.is_empty()) {
            match value.as_f64().filter(|_| value.is_f64()) {
                // As many digits as say something.
                Some(number) => writeln!(f, "        {name}: {}", (number * 1_000.0).round() / 1_000.0)?,
                None => writeln!(f, "        {name}: {value}")?,
            }
        }
        let all = if self.is_met() { "every bar is met" } else { "a bar is MISSED" };
        writeln!(f, "{}: {all}", self.experiment)
    }
}

/// Starts a web.
fn serve(config: WebConfig) -> anyhow::Result<Web> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(crate::web::serve(config)).map_err(|error: WebError| error)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_met_when_all_its_bars_are() {
        let mut outcome = Outcome::new("try");
        outcome.equal("coverage", 1.0, 1.0);
        outcome.figure("pages", 7.0);
        outcome.figure("seconds", 1.0 / 3.0);
        assert!(outcome.is_met() && outcome.to_json()["met"] == true);
        outcome.none("violations", 2, &["http://a.test/: too early".to_owned()]);
        assert!(!outcome.is_met() && outcome.to_json()["met"] == false);
        let text = outcome.to_string();
        for part in [
            "met     coverage",
            "MISSED  violations",
            "too early",
            "pages: 7\n",
            "seconds: 0.333\n",
            "a bar is MISSED",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_neither_met_nor_missed() {
        let outcome = Outcome::skipped("try", "cannot mount");
        assert!(outcome.is_met());
        assert_eq!(outcome.to_string(), "try: skipped: cannot mount\n");
    }
}
