//! The same web, crawled by three sites as one: each an agent of its own, with the distances of three cities between them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nephila_node::directory::shell_word;
use nephila_node::display::{self, Kind};
use serde_json::Value;

use super::{HOSTS, SETTINGS, free_directory, serve, verdict_words};
use crate::experiment::Setup;
use crate::experiment::sites::{Shape, Sites, SitesPlan};
use crate::wan::Way;
use crate::web::{Verdict, Web};

/// Where the sites are.
const CITIES: [&str; 3] = ["paris", "tokyo", "lima"];
/// From one to another and back, in milliseconds, as measured in 2018.
const ROUND_TRIPS_MS: [[u64; 3]; 3] = [[0, 227, 171], [227, 0, 232], [171, 232, 0]];
/// Bytes a second, in each direction.
const BYTES_PER_S: u64 = 20_000_000 / 8;
/// How long the crawl may take, how often it is shown, and how often it has to look done in a row.
const LIMIT: Duration = Duration::from_secs(180);
const SHOW_EVERY: Duration = Duration::from_secs(1);
const LOOKS: u32 = 5;

/// How a demonstration went.
pub struct SitesDemo {
    /// What each site says of itself.
    pub statuses: Vec<(String, Value)>,
    /// What the web says.
    pub verdict: Verdict,
    /// Bytes from one site to another, by their names.
    pub bytes: Vec<(String, String, u64)>,
    out: PathBuf,
    url: String,
}

/// Serves the web, has three sites crawl it, and judges the crawl. `out` is a directory that does not exist yet.
pub fn demo(out: Option<&Path>, display: Kind) -> anyhow::Result<SitesDemo> {
    let out = out.map_or_else(free_directory, Path::to_owned);
    let web = serve()?;
    let say = if matches!(display, Kind::Quiet) { |_: &str| {} } else { display::note };
    let setup = Setup { say, ..Setup::here().context("cannot find the running program")? };
    let names = CITIES.map(str::to_owned);
    let plan = SitesPlan {
        names: &names,
        agents: 1,
        settings: &settings(),
        pinned: &pinned(&web),
        at: None,
        shape: Shape::Federation,
        store: None,
        way: &|from, to| Way {
            round_trip: Duration::from_millis(ROUND_TRIPS_MS[from][to]),
            bytes_per_s: BYTES_PER_S,
            ..Way::default()
        },
    };
    std::fs::create_dir(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let out = out.canonicalize()?;
    say(&format!(
        "{HOSTS} hosts on 127.0.0.0/9, and three sites that crawl them as one in {}: {}. Their distances are emulated, and nobody else is asked anything.",
        out.display(),
        CITIES.join(", ")
    ));
    let mut sites = Sites::found(&setup, &plan, &out, &web)?;
    sites.start()?;
    let began = Instant::now();
    let (mut quiet, mut shown) = (0, String::new());
    while quiet < LOOKS {
        std::thread::sleep(SHOW_EVERY);
        let unfinished = sites.unfinished()?;
        ensure!(began.elapsed() < LIMIT, "the crawl is not done within {LIMIT:?}: {unfinished:?}");
        quiet = if unfinished.is_none() { quiet + 1 } else { 0 };
        let line = line(&sites.statuses());
        if line != shown {
            say(&format!("{:>3} s{line}", began.elapsed().as_secs()));
            shown = line;
        }
    }
    let statuses = sites.statuses().into_iter().map(Option::unwrap_or_default);
    let statuses = names.iter().cloned().zip(statuses).collect();
    let bytes = sites.bytes().into_iter();
    let bytes = bytes.map(|(from, to, (there, back))| (names[from].clone(), names[to].clone(), there + back));
    let (bytes, verdict) = (bytes.collect(), web.verdict());
    let disorderly = sites.end()?;
    ensure!(disorderly.is_empty(), "agents did not end in order: {}", disorderly.join("\n"));
    let url = web.seeds().first().cloned().unwrap_or_default();
    web.shutdown();
    Ok(SitesDemo { statuses, verdict, bytes, out, url })
}

/// The settings of the crawl, as lines of a file.
fn settings() -> String {
    let mut text = String::new();
    let of_agents = |name: &str| !matches!(name, "max-time" | "max-wait" | "allow-private");
    for (name, value) in SETTINGS.iter().filter(|(name, _)| of_agents(name)) {
        // Writing to a String cannot fail.
        let _ = match value.parse::<u64>() {
            Ok(number) => writeln!(text, "{name} = {number}"),
            Err(_) if value.contains(',') => {
                writeln!(text, "{name} = {:?}", value.split(',').collect::<Vec<_>>())
            }
            Err(_) => writeln!(text, "{name} = {value:?}"),
        };
    }
    text
}

/// Hosts that share an address are of one site, as an operator would have it.
fn pinned(web: &Web) -> Vec<(String, String)> {
    let shared = web.plan().hosts().filter(|host| host.kind.share_address > 0);
    let site = |address: std::net::Ipv4Addr| CITIES[u32::from(address) as usize % CITIES.len()].to_owned();
    shared.map(|host| (host.name(), site(host.address()))).collect()
}

fn line(statuses: &[Option<Value>]) -> String {
    let mut text = String::new();
    for (city, status) in CITIES.iter().zip(statuses) {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        // Writing to a String cannot fail.
        let _ = match status {
            Some(status) => write!(
                text,
                "   {city} {} pages, {} queued, {} sent",
                number(&status["totals"]["pages"]),
                number(&status["queue"]),
                number(&status["totals"]["sent"])
            ),
            None => write!(text, "   {city} does not answer"),
        };
    }
    text
}

impl SitesDemo {
    /// In words, what the web says and what to do next.
    pub fn text(&self) -> String {
        let mut text = verdict_words(&self.verdict);
        for (from, to, bytes) in &self.bytes {
            let _ = writeln!(text, "  {from} to {to}: {bytes} bytes");
        }
        // As it was called, so that it works where nothing is installed.
        let binary = shell_word(&std::env::args().next().unwrap_or_else(|| "nephila".to_owned()));
        let out = self.out.join(CITIES[0]).join("agent-0");
        let out = shell_word(&out.display().to_string());
        let _ = writeln!(
            text,
            "  look at it:  {binary} why --out {out} {}\n               {binary} hosts --out {out}\n  each demonstration starts anew, in a directory of its own; `{binary} demo --sites 1` is a crawl alone",
            self.url,
        );
        text
    }
}
