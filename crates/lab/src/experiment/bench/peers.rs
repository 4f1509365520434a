//! Other crawlers: where they are found or how they are installed, and how they are set on the same hosts.
//!
//! Nothing outside of the directory for peers is changed. One that cannot be had is left out, and why is said.

use std::{
    fmt::{self, Display},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
};

use anyhow::{Context as _, bail};

use crate::web::Web;

/// A crawler that others use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// GNU Wget2: C, files on disk.
    Wget2,
    /// Scrapy: Python, a framework.
    Scrapy,
    /// spider: Rust, a library.
    Spider,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 3] = [Peer::Wget2, Peer::Scrapy, Peer::Spider];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Wget2 => "wget2",
            Peer::Scrapy => "scrapy",
            Peer::Spider => "spider",
        }
    }

    /// What it does of the job, as it is run here.
    pub(super) fn job(self) -> &'static str {
        match self {
            Peer::Wget2 => "robots.txt, bodies as files; no archive, does not resume",
            Peer::Scrapy => "robots.txt, links; keeps nothing",
            Peer::Spider => "robots.txt, links; pages in memory",
        }
    }

    /// Finds it, or installs it into a directory, and makes what is needed to run it there.
    pub(super) fn install(self, dir: &Path) -> anyhow::Result<Installed> {
        let dir = dir.join(self.name());
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let program = match self {
            Peer::Wget2 => wget2(&dir)?,
            Peer::Scrapy => scrapy(&dir)?,
            Peer::Spider => spider(&dir)?,
        };
        Ok(Installed { peer: self, dir, program })
    }
}

impl Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Peer> {
        let found = Peer::ALL.into_iter().find(|peer| peer.name() == name);
        found.with_context(|| format!("no peer is called {name:?}: there are wget2, scrapy and spider"))
    }
}

/// A peer that can be run.
pub(super) struct Installed {
    pub peer: Peer,
    dir: PathBuf,
    program: PathBuf,
}

impl Installed {
    /// The command that crawls a web, with its files in `out`, by its defaults or with so many connections.
    pub(super) fn command(
        &self,
        web: &Web,
        out: &Path,
        connections: Option<usize>,
    ) -> anyhow::Result<Command> {
        fs::create_dir_all(out)?;
        let seeds = out.join("seeds.txt");
        fs::write(&seeds, web.seeds().join("\n") + "\n")?;
        let mut command = Command::new(&self.program);
        match self.peer {
            Peer::Wget2 => {
                command.args([
                    "--no-config",
                    "--quiet",
                    "--recursive",
                    "--level=inf",
                    "--span-hosts",
                    "--input-file",
                ]);
                command.arg(&seeds).arg("--directory-prefix").arg(out.join("files"));
                command.args(connections.map(|count| format!("--max-threads={count}")));
                // Where it was unpacked, if it was.
                let libraries = self.dir.join("usr/lib");
                command.env("LD_LIBRARY_PATH", format!("{0}:{0}/{1}", libraries.display(), multiarch()));
            }
            Peer::Scrapy => {
                command.arg(self.dir.join("crawl.py")).arg(&seeds);
                command.args(connections.map(|count| count.to_string()));
            }
            Peer::Spider => {
                command.arg(&seeds).args(connections.map(|count| count.to_string()));
            }
        }
        let log = fs::File::create(out.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(out);
        Ok(command)
    }
}

/// Where Debian has libraries of this architecture.
fn multiarch() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

fn wget2(dir: &Path) -> anyhow::Result<PathBuf> {
    if run(Command::new("wget2").arg("--version"), dir).is_ok() {
        return Ok("wget2".into());
    }
    let program = dir.join("usr/bin/wget2");
    if !program.exists() {
        // Debian's packages, unpacked and not installed.
        run(Command::new("apt-get").args(["download", "wget2", "libwget0", "libgpgme11"]), dir)?;
        for entry in fs::read_dir(dir)? {
            let package = entry?.path();
            if package.extension().is_some_and(|end| end == "deb") {
                run(Command::new("dpkg").arg("--extract").arg(&package).arg(dir), dir)?;
            }
        }
    }
    Ok(program)
}

fn scrapy(dir: &Path) -> anyhow::Result<PathBuf> {
    let python = dir.join("venv/bin/python");
    if run(Command::new(&python).args(["-c", "import scrapy"]), dir).is_err() {
        run(Command::new("python3").args(["-m", "venv", "venv"]), dir)?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "scrapy"]), dir)?;
    }
    fs::write(dir.join("crawl.py"), SCRAPY)?;
    Ok(python)
}

fn spider(dir: &Path) -> anyhow::Result<PathBuf> {
    let program = dir.join("target/release/bench-spider");
    let source = dir.join("src/main.rs");
    // It may be there from before it was changed here.
    if !program.exists() || fs::read_to_string(&source).ok().as_deref() != Some(SPIDER) {
        fs::create_dir_all(dir.join("src"))?;
        fs::write(dir.join("Cargo.toml"), SPIDER_MANIFEST)?;
        fs::write(&source, SPIDER)?;
        let target = dir.join("target");
        run(Command::new("cargo").args(["build", "--release", "--target-dir"]).arg(target), dir)?;
    }
    Ok(program)
}

/// Runs a command that has to succeed.
fn run(command: &mut Command, dir: &Path) -> anyhow::Result<()> {
    let name = command.get_program().display().to_string();
    let output = command
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{name} failed: {}",
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default()
        );
    }
    Ok(())
}

const SCRAPY: &str = r#"
import sys

from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Bench(CrawlSpider):
    name = "bench"
    start_urls = open(sys.argv[1]).read().split()
    rules = [Rule(LinkExtractor(), follow=True)]


settings = {"ROBOTSTXT_OBEY": True, "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False}
if len(sys.argv) > 2:
    settings["CONCURRENT_REQUESTS"] = int(sys.argv[2])
process = CrawlerProcess(settings)
process.crawl(Bench)
process.start()
"#;

const SPIDER_MANIFEST: &str = r#"[package]
name = "bench-spider"
version = "0.0.0"
edition = "2021"

[workspace]

[dependencies]
spider = "2"
"#;

/// One site after the other by default, as its users crawl; otherwise as many at once as there may be connections, and all with
/// one client, which is half of its cost when each site makes its own.
const SPIDER: &str = r#"use spider::tokio;
use spider::website::Website;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds = std::fs::read_to_string(arguments.next().expect("a file of seeds")).expect("seeds");
    let parallel: usize = arguments.next().map_or(1, |count| count.parse().expect("a number"));
    let client = Website::new("http://127.0.0.1/").configure_http_client();
    let room = std::sync::Arc::new(tokio::sync::Semaphore::new(parallel));
    let mut crawls = tokio::task::JoinSet::new();
    for seed in seeds.lines().map(str::to_owned) {
        let place = room.clone().acquire_owned().await.expect("never closed");
        let client = client.clone();
        crawls.spawn(async move {
            let mut website = Website::new(&seed);
            website.with_respect_robots_txt(true);
            if parallel > 1 {
                website.set_http_client(client);
            }
            website.crawl().await;
            drop(place);
        });
    }
    while crawls.join_next().await.is_some() {}
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_names() {
        for peer in Peer::ALL {
            assert_eq!(peer.name().parse::<Peer>().ok(), Some(peer));
        }
        assert!("curl".parse::<Peer>().is_err());
    }

    #[test]
    fn what_fails_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            run(Command::new("sh").args(["-c", "echo no such thing >&2; exit 1"]), dir.path()).unwrap_err();
        assert_eq!(error.to_string(), "sh failed: no such thing");
    }
}
