//! The agents of a site, each a process of its own on loopback.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use nephila_core::agent::StopReason;
use nephila_node::{
    control::{self, Request, Response},
    directory,
    peers::{Name, ca},
};
use rustix::process::Signal;
use serde_json::Value;

use super::{
    Setup,
    crawler::{Running, last_lines},
};
use crate::web::Web;

/// What the site is called.
pub(super) const SITE: &str = "lab";
/// The port that is tried next for an agent to listen on, below those that the kernel gives to connections,
static NEXT_PORT: AtomicU16 = AtomicU16::new(10_000);
/// and how many are tried for each.
const PORTS_TRIED: u32 = 1_000;
/// Agents that have addresses.
const AGENTS_MAX: usize = 100;
/// How often agents that are waited for are asked.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// How long an agent may take to tell its figures.
const FIGURES_MAX: Duration = Duration::from_secs(1);
/// How long agents that are told to end may take, each.
const END_MAX: Duration = Duration::from_secs(60);

/// One agent, whether it runs or not.
pub(super) struct Agent {
    pub name: String,
    /// Its directory.
    pub out: PathBuf,
    /// Where others reach it,
    pub address: String,
    /// and where it tells figures.
    pub metrics: String,
    /// Where other sites reach it.
    pub gateway: String,
    config: PathBuf,
    log: PathBuf,
    pub running: Option<Running>,
}

/// See the module's documentation.
pub(super) struct Agents {
    nephila: PathBuf,
    pub list: Vec<Agent>,
}

impl Agents {
    /// Agents that crawl a web, with these settings (in TOML) and their files in `dir`. The first `founders` of them begin the
    /// site, the others join it. None is started.
    pub(super) fn new(
        setup: &Setup,
        dir: &Path,
        web: &Web,
        (founders, count): (usize, usize),
        settings: &str,
    ) -> anyhow::Result<Agents> {
        Agents::of_site(setup, dir, web, (founders, count), settings, (SITE, &web.seeds()))
    }

    /// The same for a site of this name that is told these seeds.
    pub(super) fn of_site(
        setup: &Setup,
        dir: &Path,
        web: &Web,
        (founders, count): (usize, usize),
        settings: &str,
        (site, urls): (&str, &[String]),
    ) -> anyhow::Result<Agents> {
        ensure!((1..=AGENTS_MAX).contains(&count), "a site has 1 to {AGENTS_MAX} agents here, not {count}");
        let (web_ca, seeds) = (dir.join("web-ca.pem"), dir.join("seeds.txt"));
        fs::write(&web_ca, &web.ca_pem)?;
        fs::write(&seeds, urls.join("\n") + "\n")?;
        let names: Vec<Name> =
            (0..count).map(|index| Ok(format!("agent-{index}").parse()?)).collect::<anyhow::Result<_>>()?;
        let made = ca::make(&dir.join("ca"), &site.parse()?, &names)?;
        let addresses: Vec<String> = (0..count).map(free_address).collect::<anyhow::Result<_>>()?;
        let mut list = Vec::new();
        for (made, listen) in made.agents.iter().zip(&addresses) {
            let name = made.name.to_string();
            let at = |end: &str| dir.join(format!("{name}{end}"));
            let (out, config) = (at(""), at(".toml"));
            let mut text = format!("{settings}dns = {:?}\n", web.dns_addr.to_string());
            text += "allow-private = \"127.0.0.0/9\"\n";
            for (key, value) in [("ca", &web_ca), ("seeds", &seeds), ("out", &out), ("identity", &made.dir)] {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{key} = {value:?}");
            }
            let (metrics, gateway) = (free_address(list.len())?, free_address(list.len())?);
            if settings.contains("federation = ") {
                let _ = writeln!(text, "gateway = {gateway:?}");
            }
            let _ = writeln!(
                text,
                "listen = {listen:?}\nmetrics = {metrics:?}\npeers = {:?}",
                &addresses[..founders]
            );
            fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
            let (log, address) = (at(".log"), listen.clone());
            list.push(Agent { name, log, out, address, metrics, gateway, config, running: None });
        }
        Ok(Agents { nephila: setup.nephila.clone(), list })
    }

    /// Starts one, or starts it again.
    pub(super) fn start(&mut self, index: usize) -> anyhow::Result<()> {
        let agent = &mut self.list[index];
        let log = OpenOptions::new().create(true).append(true).open(&agent.log)?;
        let mut command = Command::new(&self.nephila);
        command.args(["agent", "--json", "--config"]).arg(&agent.config).stdin(Stdio::null()).stderr(log);
        command.stdout(File::create(agent.config.with_extension("json"))?);
        agent.running = Some(Running::start(&mut command)?);
        Ok(())
    }

    /// `nephila federation forget`: another site will not come back.
    pub(super) fn forget_site(&self, site: &str, list: &Path) -> anyhow::Result<ExitStatus> {
        let mut command = Command::new(&self.nephila);
        command.args(["federation", "forget", site, "--list"]).arg(list).stdout(Stdio::null());
        Ok(command.status()?)
    }

    /// SIGKILL. False if it had ended by itself.
    pub(super) fn kill(&mut self, index: usize) -> anyhow::Result<bool> {
        match self.list[index].running.take() {
            Some(mut running) => running.kill(),
            None => Ok(false),
        }
    }

    /// Agents that ended without being asked to since the last call, and what they said last. They do not run from then on.
    pub(super) fn ended(&mut self) -> anyhow::Result<Vec<String>> {
        let mut ended = Vec::new();
        for agent in &mut self.list {
            let Some(running) = &mut agent.running else { continue };
            if let Some(status) = running.wait(Duration::ZERO)? {
                ended.push(format!("{}: {status}\n{}", agent.name, last_lines(&agent.log)));
                agent.running = None;
            }
        }
        Ok(ended)
    }

    /// What an agent that runs answers; nothing if it does not.
    pub(super) fn ask(&self, index: usize, request: &Request) -> Option<Value> {
        match control::call(&directory::control_socket(&self.list[index].out), request) {
            Ok(Response::Report { json, .. }) => Some(json),
            Ok(Response::Done) => Some(Value::Null),
            _ => None,
        }
    }

    /// A figure that an agent tells Prometheus; nothing if it does not answer soon.
    pub(super) fn figure(&self, index: usize, name: &str) -> Option<f64> {
        let address: SocketAddr = self.list[index].metrics.parse().ok()?;
        let mut stream = TcpStream::connect_timeout(&address, FIGURES_MAX).ok()?;
        stream.set_read_timeout(Some(FIGURES_MAX)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Those that run.
    pub(super) fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.list.len()).filter(|index| self.list[*index].running.is_some())
    }

    /// Waits until all that run are in the same site.
    pub(super) fn wait_for_site(&mut self, limit: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + limit;
        loop {
            let is_in = |index| self.ask(index, &Request::Site).is_some_and(|site| site["begun"] == true);
            if self.running().all(is_in) {
                return Ok(());
            }
            let ended = self.ended()?;
            ensure!(ended.is_empty(), "an agent ended: {}", ended.join("\n"));
            ensure!(Instant::now() < until, "the agents did not find each other within {limit:?}");
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Why the site is not done yet, if it is not: something is queued, under way, on its way to another agent or moving, or an
    /// agent is not well.
    pub(super) fn unfinished(&self) -> Option<String> {
        let mut asked = None;
        for index in self.running() {
            let name = &self.list[index].name;
            let Some(site) = self.ask(index, &Request::Site) else {
                return Some(format!("{name} does not answer"));
            };
            let gone = |of: &Value| {
                let [life, forgotten] = ["life", "forgotten"].map(|what| of["member"][what].as_u64());
                forgotten >= life
            };
            let members = site["members"].as_array().into_iter().flatten();
            if let Some(silent) = members.filter(|of| !gone(of)).find(|of| of["is_well"] != true) {
                return Some(format!("{} is silent, says {name}", silent["member"]["name"]));
            }
            for what in ["misplaced", "owing", "handovers", "unrecovered"] {
                if site[what] != 0 {
                    return Some(format!("{name} has {} {what}", site[what]));
                }
            }
            if site["is_delivering"] != false {
                return Some(format!("{name} is delivering"));
            }
            asked = Some(index);
        }
        let Some(status) = asked.and_then(|index| self.ask(index, &Request::Status)) else {
            return Some("nobody tells how far the site is".to_owned());
        };
        if status["silent"].as_array().is_none_or(|silent| !silent.is_empty()) {
            return Some(format!("{} did not answer", status["silent"]));
        }
        let left =
            ["queue", "in_flight", "unsettled", "undecided"].into_iter().find(|what| status[what] != 0);
        left.map(|what| format!("{what} is {}", status[what]))
    }

    /// Has all of them end in order; says which did not.
    pub(super) fn end(&mut self) -> anyhow::Result<Vec<String>> {
        for agent in &self.list {
            if let Some(running) = &agent.running {
                running.signal(Signal::TERM)?;
            }
        }
        let terminated = i32::from(StopReason::Terminated.exit_code());
        let mut disorderly = Vec::new();
        for agent in &mut self.list {
            let Some(mut running) = agent.running.take() else { continue };
            match running.wait(END_MAX)? {
                Some(status) if status.code() == Some(terminated) => {}
                Some(status) => {
                    disorderly.push(format!("{}: {status}\n{}", agent.name, last_lines(&agent.log)))
                }
                None => disorderly.push(format!("{}: did not end within {END_MAX:?}", agent.name)),
            }
        }
        Ok(disorderly)
    }
}

/// An address that an agent can listen on, also after it was away for a while. It is none of those that connections come from,
/// so that nobody takes its port meanwhile; hosts of the web have addresses below these. Experiments of one process have the same
/// addresses: each port is given once.
fn free_address(index: usize) -> anyhow::Result<String> {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 128 + u8::try_from(index)?, high, low);
    for _ in 0..PORTS_TRIED {
        let socket = SocketAddrV4::new(address, NEXT_PORT.fetch_add(1, Ordering::Relaxed));
        if TcpListener::bind(socket).is_ok() {
            return Ok(socket.to_string());
        }
    }
    bail!("cannot listen on {address}, on any of {PORTS_TRIED} ports")
}
