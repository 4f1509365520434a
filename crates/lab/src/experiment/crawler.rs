//! A crawl as a process of its own.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::Setup;
use crate::web::Web;

/// How often a process that is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How much of its log is shown when something went wrong.
const LOG_LINES_SHOWN: usize = 15;

/// A `nephila crawl` that can be started, and started again.
pub(super) struct Crawler {
    nephila: PathBuf,
    /// The crawl's directory.
    pub out: PathBuf,
    log: PathBuf,
    said: PathBuf,
    arguments: Vec<String>,
}

impl Crawler {
    /// A crawl of a web, with its files in `dir` under this name.
    pub(super) fn new(setup: &Setup, dir: &Path, name: &str, web: &Web) -> anyhow::Result<Crawler> {
        let at = |end: &str| dir.join(format!("{name}{end}"));
        let (ca, seeds) = (at("-ca.pem"), at("-seeds.txt"));
        fs::write(&ca, &web.ca_pem).with_context(|| format!("cannot write {}", ca.display()))?;
        fs::write(&seeds, web.seeds().join("\n") + "\n")
            .with_context(|| format!("cannot write {}", seeds.display()))?;
        let crawler = Crawler {
            nephila: setup.nephila.clone(),
            out: at(""),
            log: at(".log"),
            said: at(".json"),
            arguments: vec![
                "crawl".to_owned(),
                "--json".to_owned(),
                "--allow-private=127.0.0.0/9".to_owned(),
            ],
        };
        Ok(crawler.with("dns", web.dns_addr).with("ca", ca.display()).with("seeds", seeds.display()))
    }

    /// With this setting.
    pub(super) fn with(mut self, setting: &str, value: impl ToString) -> Crawler {
        self.arguments.extend([format!("--{setting}"), value.to_string()]);
        self
    }

    /// With one more seed.
    pub(super) fn and_seed(mut self, url: String) -> Crawler {
        self.arguments.push(url);
        self
    }

    /// With this duration as a setting.
    pub(super) fn with_span(self, setting: &str, span: Duration) -> Crawler {
        self.with(setting, show(span))
    }

    /// With the crawl's directory elsewhere.
    pub(super) fn in_directory(self, out: PathBuf) -> Crawler {
        Crawler { out, ..self }
    }

    /// The command line, for people.
    pub(super) fn command_line(&self) -> String {
        format!("nephila {} --out {}", self.arguments.join(" "), self.out.display())
    }

    /// The command that runs it.
    pub(super) fn command(&self) -> anyhow::Result<Command> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.nephila);
        command
            .args(&self.arguments)
            .arg("--out")
            .arg(&self.out)
            .stdin(Stdio::null())
            .stdout(File::create(&self.said)?)
            .stderr(log);
        Ok(command)
    }

    /// Starts it.
    pub(super) fn start(&self) -> anyhow::Result<Running> {
        Running::start(&mut self.command()?)
    }

    /// Runs it to its end, which has to come within `limit`.
    pub(super) fn run(&self, limit: Duration) -> anyhow::Result<Ended> {
        let mut running = self.start()?;
        let Some(status) = running.wait(limit)? else {
            bail!("the crawl did not end within {limit:?}\n{}", self.log_end());
        };
        self.ended(status, running.started.elapsed())
    }

    /// What it said at its end.
    fn ended(&self, status: ExitStatus, took: Duration) -> anyhow::Result<Ended> {
        let said = fs::read_to_string(&self.said)?;
        let json = said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        let json = json.unwrap_or_default();
        let reason = json["stop_reason"].as_str().map_or_else(|| self.log_end(), str::to_owned);
        Ok(Ended { code: status.code().unwrap_or(-1), json, reason, took })
    }

    /// The last lines of its log.
    pub(super) fn log_end(&self) -> String {
        last_lines(&self.log)
    }
}

/// The last lines of a log.
pub(super) fn last_lines(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

/// A crawl that is under way; killed when this is dropped.
pub(super) struct Running {
    child: Child,
    pub started: Instant,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts it.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Running> {
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot run {}", command.get_program().display()))?;
        Ok(Running { child, started: Instant::now(), status: None })
    }

    /// Sends it a signal; it is not waited for.
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(rustix::process::kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits for the end, but not longer than this.
    pub(super) fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let until = Instant::now() + limit;
        loop {
            self.status = self.child.try_wait()?;
            let left = until.saturating_duration_since(Instant::now());
            if self.status.is_some() || left.is_zero() {
                return Ok(self.status);
            }
            std::thread::sleep(LOOK_EVERY.min(left));
        }
    }

    /// The process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL. False if the process had ended by itself.
    pub(super) fn kill(&mut self) -> anyhow::Result<bool> {
        if self.wait(Duration::ZERO)?.is_some() {
            return Ok(false);
        }
        self.child.kill()?;
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status.code().is_none())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() {
            // It may have ended since.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A crawl that has ended by itself.
pub(super) struct Ended {
    /// Its exit code.
    pub code: i32,
    json: Value,
    reason: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Ended {
    /// A figure of its summary.
    pub(super) fn figure(&self, name: &str) -> anyhow::Result<f64> {
        self.json[name].as_f64().with_context(|| format!("the crawl gave no {name}: {}", self.reason))
    }

    /// Why it stopped: the reason in its summary, or the end of its log if it could not even begin.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

/// A duration as settings have it, rounded up to a microsecond.
pub(super) fn show(span: Duration) -> String {
    format!("{}us", span.as_nanos().div_ceil(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_never_shortened() {
        assert_eq!(show(Duration::from_nanos(1_001)), "2us");
        assert_eq!(show(Duration::from_millis(20)), "20000us");
        assert_eq!(show(Duration::ZERO), "0us");
    }
}
