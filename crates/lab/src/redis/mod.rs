//! A real Redis Cluster on loopback addresses, for tests and experiments: three primaries with a replica each.
//!
//! It promises:
//! - **It is the real thing**: six `redis-server` processes that append to files and fail over after a node timeout of two
//!   seconds; with TLS on every port, the bus included, and with an access control list, if asked.
//! - **Nothing is left behind**: every server has a shell beside it that ends it and removes its files when this process is gone,
//!   however it went.
//! - **It waits within bounds**: what has not come about within a limit is an error.

mod moving;
mod server;
pub mod simulated;
mod tls;
mod values;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nephila_store::redis::{Link, LinkOptions, Login, Value, cmd};

pub use moving::Moved;
use server::Server;

/// Servers of a cluster: each primary has one replica.
const SERVERS: usize = 6;
const PRIMARIES: usize = 3;
const SLOTS: u16 = 16_384;
/// How long a cluster may take to form, to fail over or to become whole again.
const HEALTHY_TIME_MAX: Duration = Duration::from_secs(60);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Keys of which one at least is in the slots of each primary.
const KEYS_TRIED_MAX: u32 = 64;
/// Who logs in, where that is asked: clients, servers at each other, and the lab itself.
const USER: &str = "nephila";
const REPLICA: &str = "replica";
const ADMIN: &str = "admin";
const PASSWORD: &str = "only-for-the-lab";
/// The least that clients have to be allowed; docs/redis.md has the same.
pub const RIGHTS: &str = "+get +hget +hmget +hgetall +lrange +lindex +set +hset +hsetnx +hincrby +hdel +rpush +lpush +ltrim +lrem +lset \
     +unlink +eval +evalsha +script|load +wait +cluster|slots +cluster|nodes +cluster|info +info +config|get";
/// The least that servers have to be allowed at each other.
pub const REPLICA_RIGHTS: &str = "+psync +replconf +ping";

/// How the servers of a cluster are set up.
#[derive(Clone, Debug, Default)]
pub struct RedisClusterOptions {
    /// Clients, replicas and the cluster bus need certificates of an authority that is made for this cluster.
    pub tls: bool,
    /// Nobody may do anything without logging in, and clients no more than [`RIGHTS`] say.
    pub login: bool,
    /// Further lines of each server's configuration, which may contradict the others.
    pub lines: Vec<String>,
}

/// See the module's documentation.
pub struct RedisCluster {
    servers: Vec<Server>,
    options: LinkOptions,
    dir: tempfile::TempDir,
}

impl RedisCluster {
    /// Starts one and waits until it is whole.
    pub fn start(options: &RedisClusterOptions) -> anyhow::Result<RedisCluster> {
        let program = server::program()?;
        let dir = tempfile::Builder::new().prefix("nephila-redis-").tempdir()?;
        let mut lines = Vec::new();
        let mut link = LinkOptions::default();
        if options.login {
            link.login = Some(Login { user: USER.to_owned(), password: PASSWORD.to_owned() });
            lines.push(format!("user {USER} on >{PASSWORD} ~* {RIGHTS}"));
            lines.push(format!("user {REPLICA} on >{PASSWORD} {REPLICA_RIGHTS}"));
            lines.push(format!("user {ADMIN} on >{PASSWORD} ~* &* +@all"));
            lines.push("user default off".to_owned());
            lines.push(format!("masteruser {REPLICA}"));
            lines.push(format!("masterauth {PASSWORD}"));
        }
        if options.tls {
            let (more, config) = tls::make(dir.path())?;
            lines.extend(more);
            link.tls = Some(config);
        }
        // The last of two that contradict each other holds.
        lines.extend_from_slice(&options.lines);
        let ports = free_ports(2 * SERVERS)?;
        let mut servers = Vec::new();
        for (number, ports) in ports.chunks_exact(2).enumerate() {
            let dir = dir.path().join(number.to_string());
            servers.push(Server::start(program.clone(), dir, [ports[0], ports[1]], options.tls, &lines)?);
        }
        let cluster = RedisCluster { servers, options: link, dir };
        cluster.join()?;
        Ok(cluster)
    }

    /// Makes a cluster of servers that do not know each other. `redis-cli --cluster create` does the same, and sleeps.
    fn join(&self) -> anyhow::Result<()> {
        let mut links = Vec::new();
        for number in 0..SERVERS {
            links.push(eventually("a server does not start", || self.link(number))?);
        }
        let [first, bus] = self.servers[0].ports();
        for (number, link) in links.iter_mut().enumerate() {
            expect_ok(link.ask(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(number + 1))?)?;
            if number < PRIMARIES {
                let bound = |part: usize| part * usize::from(SLOTS) / PRIMARIES;
                let (from, to) = (bound(number), bound(number + 1) - 1);
                expect_ok(link.ask(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(from).arg(to))?)?;
            }
            if number > 0 {
                expect_ok(link.ask(cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(first).arg(bus))?)?;
            }
        }
        for number in PRIMARIES..SERVERS {
            let primary = text(links[number - PRIMARIES].ask(cmd("CLUSTER").arg("MYID"))?)?;
            let link = &mut links[number];
            eventually("servers do not meet", || {
                expect_ok(link.ask(cmd("CLUSTER").arg("REPLICATE").arg(&primary))?)
            })?;
        }
        self.wait_until_whole()
    }

    /// Waits until every server that runs agrees that all slots are served, and each primary has a replica in step.
    pub fn wait_until_whole(&self) -> anyhow::Result<()> {
        eventually("the cluster is not whole", || self.check_whole())
    }

    /// Whether that is so now.
    pub fn is_whole(&self) -> bool {
        self.servers.iter().all(Server::runs) && self.check_whole().is_ok()
    }

    /// Waits until the replicas have all that their primaries have now.
    pub fn wait_for_replicas(&self) -> anyhow::Result<()> {
        let mut primaries = 0;
        for number in (0..SERVERS).filter(|number| self.servers[*number].runs()) {
            let mut link = self.link(number)?;
            if !text(link.ask(cmd("INFO").arg("replication"))?)?.contains("role:master") {
                continue;
            }
            // Replicas confirm what was written over the same connection, and so all that came before it.
            let is_here = |link: &mut Link, key: u32| -> anyhow::Result<bool> {
                let answer = link.ask(cmd("SET").arg(format!("lab:{key}")).arg(1))?;
                Ok(!matches!(answer, Value::ServerError(error) if error.code() == "MOVED"))
            };
            let mut is_written = false;
            for key in 0..KEYS_TRIED_MAX {
                is_written = is_here(&mut link, key)?;
                if is_written {
                    break;
                }
            }
            if is_written {
                let replicas = accepted(link.ask(cmd("WAIT").arg(1).arg(1_000))?)?;
                ensure!(matches!(replicas, Value::Int(1..)), "server {number} has no replica in step");
                primaries += 1;
            }
        }
        ensure!(primaries == PRIMARIES, "there are {primaries} primaries");
        Ok(())
    }

    fn check_whole(&self) -> anyhow::Result<()> {
        let mut primaries = 0;
        for number in (0..SERVERS).filter(|number| self.servers[*number].runs()) {
            let mut link = self.link(number)?;
            let info = text(link.ask(cmd("CLUSTER").arg("INFO"))?)?;
            for line in ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6"] {
                ensure!(info.contains(line), "server {number} does not say {line}");
            }
            let replicas = text(link.ask(cmd("CLUSTER").arg("NODES"))?)?.matches("slave").count();
            ensure!(replicas == SERVERS - PRIMARIES, "server {number} knows of {replicas} replicas");
            let info = text(link.ask(cmd("INFO").arg("replication"))?)?;
            if info.contains("role:master") && has_slots(&mut link)? {
                primaries += 1;
                let in_step =
                    info.lines().any(|line| line.starts_with("slave0:") && line.contains("state=online"));
                ensure!(in_step, "primary {number} has no replica in step");
            }
        }
        ensure!(primaries == PRIMARIES, "there are {primaries} primaries");
        Ok(())
    }

    /// The addresses of the servers, by their numbers.
    pub fn nodes(&self) -> Vec<String> {
        self.servers.iter().map(Server::address).collect()
    }

    /// How clients talk to them.
    pub fn link_options(&self) -> &LinkOptions {
        &self.options
    }

    /// The certificate that clients show, its key, and the authority of all certificates, where there is TLS.
    pub fn certificate_files(&self) -> [PathBuf; 3] {
        tls::files(self.dir.path())
    }

    /// A new connection to a server, over which everything is allowed.
    pub fn link(&self, number: usize) -> anyhow::Result<Link> {
        let node = self.servers[number].address();
        let admin = || Login { user: ADMIN.to_owned(), password: PASSWORD.to_owned() };
        let options =
            LinkOptions { login: self.options.login.as_ref().map(|_| admin()), ..self.options.clone() };
        Link::connect(&node, &options).with_context(|| format!("cannot connect to {node}"))
    }

    /// Asks a server one thing, which it must not refuse.
    pub fn ask(&self, number: usize, command: &[&str]) -> anyhow::Result<Value> {
        let mut asked = cmd(command.first().context("nothing is asked")?);
        for word in &command[1..] {
            asked.arg(*word);
        }
        accepted(self.link(number)?.ask(&asked)?)
    }

    /// The section of a server's INFO, as a text.
    pub fn info(&self, number: usize, section: &str) -> anyhow::Result<String> {
        text(self.ask(number, &["INFO", section])?)
    }

    /// The number of the server that is the primary of a slot, as most of those that run see it.
    pub fn primary_of(&self, slot: u16) -> anyhow::Result<usize> {
        let mut votes = [0; SERVERS];
        for number in (0..SERVERS).filter(|number| self.servers[*number].runs()) {
            if let Some(primary) =
                self.link(number).and_then(|mut link| self.seen_primary(&mut link, slot))?
            {
                votes[primary] += 1;
            }
        }
        let (most, number) = votes.iter().zip(0..).max().context("there is no server")?;
        ensure!(*most > 0, "nobody serves slot {slot}");
        Ok(number)
    }

    fn seen_primary(&self, link: &mut Link, slot: u16) -> anyhow::Result<Option<usize>> {
        let Value::Array(ranges) = accepted(link.ask(cmd("CLUSTER").arg("SLOTS"))?)? else {
            bail!("slots are not as expected")
        };
        for range in ranges {
            if let Value::Array(range) = range
                && let [Value::Int(from), Value::Int(to), Value::Array(primary), ..] = &range[..]
                && (*from..=*to).contains(&i64::from(slot))
                && let Some(Value::Int(port)) = primary.get(1)
            {
                return Ok(self.servers.iter().position(|server| i64::from(server.ports()[0]) == *port));
            }
        }
        Ok(None)
    }

    /// Ends a server at once, as a crash of the process would.
    pub fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].kill()
    }

    /// Starts a server that was killed, on what it left on its disk.
    pub fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].restart()
    }

    /// Stops a server without ending it: it answers nobody.
    pub fn pause(&self, number: usize) -> anyhow::Result<()> {
        self.servers[number].pause()
    }

    /// Lets a server go on that was paused.
    pub fn resume(&self, number: usize) -> anyhow::Result<()> {
        self.servers[number].resume()
    }

    /// Pauses a server and lets it go on after a while, whatever happens meanwhile.
    pub fn pause_for(&self, number: usize, time: Duration) -> anyhow::Result<()> {
        self.servers[number].pause_for(time)
    }

    /// The process of a server.
    pub fn pid(&self, number: usize) -> u32 {
        self.servers[number].pid()
    }
}

/// Whether a server serves slots.
fn has_slots(link: &mut Link) -> anyhow::Result<bool> {
    let nodes = text(link.ask(cmd("CLUSTER").arg("NODES"))?)?;
    Ok(nodes.lines().any(|line| line.contains("myself") && line.split_whitespace().count() > 8))
}

/// Tries until it works or the time is over.
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let end = Instant::now() + HEALTHY_TIME_MAX;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() >= end => return Err(error.context(what.to_owned())),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// An answer that is not a refusal.
fn accepted(answer: Value) -> anyhow::Result<Value> {
    match answer {
        Value::ServerError(error) => bail!("{} {}", error.code(), error.details().unwrap_or_default()),
        answer => Ok(answer),
    }
}

fn expect_ok(answer: Value) -> anyhow::Result<()> {
    accepted(answer).map(drop)
}

fn text(answer: Value) -> anyhow::Result<String> {
    match accepted(answer)? {
        Value::BulkString(bytes) => Ok(String::from_utf8(bytes)?),
        Value::SimpleString(text) => Ok(text),
        Value::VerbatimString { text, .. } => Ok(text),
        other => bail!("{other:?} is not a text"),
    }
}

/// Ports that nobody uses now. They are all held until all are found, so that they differ.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<Result<_, _>>()
        .context("there is no free port")?;
    Ok(held
        .iter()
        .map(|socket| socket.local_addr().map(|address| address.port()))
        .collect::<Result<_, _>>()?)
}
