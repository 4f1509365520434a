//! One server: a process, its files, and the shell that outlives neither.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Ends the server when its own input ends, and removes its files unless told to keep them. The last one removes the cluster's
/// directory.
const GUARD: &str = r#"
"$0" "$1/redis.conf" >"$1/out" 2>&1 &
echo $!
read -r word
kill -9 $! 2>/dev/null
wait 2>/dev/null
test "$word" = keep && exit
rm -rf "$1"
ls -d "${1%/*}"/[0-9]* >/dev/null 2>&1 || rm -rf "${1%/*}"
"#;

pub(super) struct Server {
    program: PathBuf,
    dir: PathBuf,
    /// For clients, and of the cluster bus.
    ports: [u16; 2],
    process: Option<Process>,
}

struct Process {
    guard: Child,
    pid: Pid,
}

impl Server {
    /// Starts one in a new directory.
    pub(super) fn start(
        program: PathBuf,
        dir: PathBuf,
        ports: [u16; 2],
        tls: bool,
        lines: &[String],
    ) -> anyhow::Result<Server> {
        fs::create_dir(&dir)?;
        let mut conf = String::new();
        let (port, tls_port) = if tls { (0, ports[0]) } else { (ports[0], 0) };
        writeln!(conf, "port {port}\ntls-port {tls_port}\ncluster-port {}", ports[1])?;
        writeln!(conf, "bind 127.0.0.1\ndir {}\nlogfile {}/log", dir.display(), dir.display())?;
        conf.push_str("cluster-enabled yes\ncluster-node-timeout 2000\nappendonly yes\nsave \"\"\n");
        // A replica need not be waited for to come with others.
        conf.push_str("maxmemory-policy noeviction\nrepl-diskless-sync-delay 0\n");
        lines.iter().try_for_each(|line| writeln!(conf, "{line}"))?;
        fs::write(dir.join("redis.conf"), conf)?;
        let process = Some(Process::start(&program, &dir)?);
        Ok(Server { program, dir, ports, process })
    }

    pub(super) fn ports(&self) -> [u16; 2] {
        self.ports
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    pub(super) fn runs(&self) -> bool {
        self.process.is_some()
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, |process| process.pid.as_raw_nonzero().get().unsigned_abs())
    }

    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.process.take().context("it does not run")?.end(true)
    }

    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.is_none(), "it runs");
        self.process = Some(Process::start(&self.program, &self.dir)?);
        Ok(())
    }

    pub(super) fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    pub(super) fn pause_for(&self, time: Duration) -> anyhow::Result<()> {
        self.pause()?;
        let pid = self.process.as_ref().context("it does not run")?.pid;
        std::thread::spawn(move || {
            std::thread::sleep(time);
            // Unless it has been killed since.
            let _ = kill_process(pid, Signal::CONT);
        });
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let process = self.process.as_ref().context("it does not run")?;
        Ok(kill_process(process.pid, signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // Whether or not it can be waited for: its input is closed, and so it ends.
            let _ = process.end(false);
        }
    }
}

impl Process {
    fn start(program: &Path, dir: &Path) -> anyhow::Result<Process> {
        let mut guard = Command::new("sh")
            .args(["-c", GUARD])
            .args([program, dir])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run sh")?;
        let mut line = String::new();
        BufReader::new(guard.stdout.take().context("sh has no output")?).read_line(&mut line)?;
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        Ok(Process { guard, pid: pid.with_context(|| format!("{line:?} is no process"))? })
    }

    /// Ends the server at once. Its files stay if they are to be kept.
    fn end(mut self, keeps: bool) -> anyhow::Result<()> {
        if let Some(mut input) = self.guard.stdin.take()
            && keeps
        {
            input.write_all(b"keep\n")?;
        }
        self.guard.wait()?;
        Ok(())
    }
}

/// `redis-server`, which is installed if it is missing.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _only = ONE_AT_A_TIME.lock();
    if runs("redis-server") {
        return Ok("redis-server".into());
    }
    let apt = |words: &[&str]| {
        Command::new("apt-get")
            .args(["--yes", "--quiet", "-o", "DPkg::Lock::Timeout=300"])
            .args(words)
            // Debian's package would start a server of its own.
            .env("RUNLEVEL", "1")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
    };
    let install = ["install", "--no-install-recommends", "redis-server"];
    let failed = match apt(&install) {
        Ok(output) if output.status.success() => None,
        // The list of packages may be old or missing.
        _ => apt(&["update"])
            .and_then(|_| apt(&install))
            .map(|output| (!output.status.success()).then_some(output))?,
    };
    if !runs("redis-server") {
        let said = failed.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned());
        bail!(
            "there is no redis-server (Debian's package of this name has it): {}",
            said.unwrap_or_default()
        );
    }
    Ok("redis-server".into())
}

fn runs(program: &str) -> bool {
    let status = Command::new(program).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
