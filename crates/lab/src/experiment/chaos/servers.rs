//! The store that the agents share, in six servers: what happens to these, and what is seen of the site from there.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use nephila_core::{
    assign::partition_of,
    record::Record,
    site::{AgentId, Leases},
    url::Host,
};
use nephila_node::directory::Recorded;
use nephila_store::{
    StoreLimits,
    redis::{ClusterOptions, RedisLeases, RedisOptions, RedisStore},
};

use super::super::{Outcome, agents::Agent, journal::Journal};
use crate::{
    redis::{RedisCluster, RedisClusterOptions},
    web::{Web, plan::Mix},
};

/// What the crawl is called there.
const NAME: &str = "chaos";
/// How long a request may take at most: hosts that may be asked by an agent that is gone are left alone for so long.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// How soon hosts of a dead agent have to be asked again, beyond their delay and that time.
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// How long nothing else must happen meanwhile for that to be fair.
const UNDISTURBED: Duration = Duration::from_secs(25);
/// How often the leases and the web are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often it is tried to read all that the store holds.
const TRIES_MAX: u32 = 40;

/// What happens to the servers.
#[derive(Clone, Copy, Debug)]
pub struct ServerFaults {
    /// How often a primary is killed,
    pub kill_every: Duration,
    /// and after how long it is started again.
    pub back_after: Duration,
    /// Whether or not its replica is in step.
    pub regardless: bool,
}

impl Default for ServerFaults {
    fn default() -> ServerFaults {
        let seconds = Duration::from_secs;
        ServerFaults { kill_every: seconds(20), back_after: seconds(5), regardless: false }
    }
}

/// A host of an agent that is gone.
struct Orphan {
    since: Instant,
    /// Requests that it had had.
    requests: u64,
    is_disturbed: bool,
}

/// See the module's documentation.
pub(super) struct Servers {
    faults: ServerFaults,
    cluster: RedisCluster,
    options: RedisOptions,
    table: Option<RedisLeases>,
    leases: Leases,
    looked: Instant,
    /// A primary is to be killed as soon as its replica is in step.
    wants_kill: bool,
    /// Servers that are down, and when they are started again.
    down: Vec<(Instant, usize)>,
    kills: u32,
    /// Leases that were ended by others.
    fenced: u32,
    orphans: HashMap<u64, Orphan>,
    /// How long it took until they were asked again: all, and those that nothing else has delayed.
    again: Vec<Duration>,
    again_undisturbed: Vec<Duration>,
}

impl Servers {
    /// Starts the servers.
    pub(super) fn start(faults: &ServerFaults) -> anyhow::Result<Servers> {
        let cluster = RedisCluster::start(&RedisClusterOptions::default())?;
        let link = cluster.link_options().clone();
        let patience = Duration::from_millis(200);
        let options = RedisOptions {
            cluster: ClusterOptions { nodes: cluster.nodes(), link, replicas: 1, patience },
            crawl: format!("{NAME}:"),
            partitions: Vec::new(),
            limits: StoreLimits::NONE,
            writer: AgentId::default(),
            accepts_unsafe: true,
            hash_key: None,
        };
        Ok(Servers {
            faults: *faults,
            cluster,
            options,
            table: None,
            leases: Leases::default(),
            looked: Instant::now(),
            wants_kill: false,
            down: Vec::new(),
            kills: 0,
            fenced: 0,
            orphans: HashMap::new(),
            again: Vec::new(),
            again_undisturbed: Vec::new(),
        })
    }

    /// What agents have to be told, in TOML.
    pub(super) fn settings(&self) -> String {
        let nodes = self.cluster.nodes().join(",");
        let limit = REQUEST_TIME_MAX.as_secs();
        format!("store = \"redis://{nodes}\"\nstore-name = {NAME:?}\nrequest-timeout = \"{limit}s\"\n")
    }

    /// Whether a server is down or about to be.
    pub(super) fn are_hit(&self) -> bool {
        self.wants_kill || !self.down.is_empty()
    }

    /// Has a primary killed, at once or when its replica is in step.
    pub(super) fn kill_primary(&mut self, mix: &mut Mix) -> anyhow::Result<()> {
        self.wants_kill = true;
        self.disturbed();
        self.kill_if_possible(mix)
    }

    fn kill_if_possible(&mut self, mix: &mut Mix) -> anyhow::Result<()> {
        let may_be_killed = self.faults.regardless || self.down.is_empty() && self.cluster.is_whole();
        if !self.wants_kill || !may_be_killed {
            return Ok(());
        }
        let slot = mix.below(16_384) as u16;
        // Nobody serves it, perhaps.
        let Ok(number) = self.cluster.primary_of(slot) else { return Ok(()) };
        if self.down.iter().any(|(_, down)| *down == number) {
            return Ok(());
        }
        self.wants_kill = false;
        self.cluster.kill(number)?;
        self.kills += 1;
        self.down.push((Instant::now() + self.faults.back_after, number));
        Ok(())
    }

    /// Starts servers again, and looks at who is alive and at what is asked.
    pub(super) fn tend(&mut self, web: &Web) -> anyhow::Result<()> {
        let now = Instant::now();
        let (back, down) = std::mem::take(&mut self.down).into_iter().partition(|(at, _)| *at <= now);
        self.down = down;
        for (_, number) in back {
            self.cluster.restart(number)?;
        }
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        let kills = u64::from(self.kills);
        self.kill_if_possible(&mut Mix::new(&[kills, 0xc4a2]))?;
        self.look_at_leases();
        self.look_for_orphans(web);
        Ok(())
    }

    fn look_at_leases(&mut self) {
        if self.table.is_none() {
            self.table = RedisLeases::open(self.options.cluster.clone(), &self.options.crawl).ok();
        }
        let Some(Ok(leases)) = self.table.as_mut().map(RedisLeases::look) else { return };
        // Nobody leaves before the end.
        let ended = self.leases.iter().filter(|(id, _)| leases.get(*id).is_none());
        self.fenced += ended.count() as u32;
        self.leases = leases;
    }

    fn look_for_orphans(&mut self, web: &Web) {
        if self.orphans.is_empty() {
            return;
        }
        let arrivals = web.arrivals();
        for (_, orphan) in self.orphans.extract_if(|key, orphan| {
            arrivals.get(key).is_some_and(|(requests, _)| *requests > orphan.requests)
        }) {
            let took = orphan.since.elapsed();
            self.again.push(took);
            if !orphan.is_disturbed {
                self.again_undisturbed.push(took);
            }
        }
    }

    /// An agent was killed: its hosts are others' from now on, or its own when it is back.
    pub(super) fn killed(&mut self, agent: &Agent, web: &Web) {
        self.disturbed();
        let id = Recorded::load(&agent.out).ok().and_then(|recorded| recorded.agent);
        let Some(lease) = id.and_then(|id| self.leases.get(id)) else { return };
        let arrivals = web.arrivals();
        for host in web.plan().hosts() {
            let is_its =
                Host::parse(&host.name()).is_some_and(|name| lease.held.contains(partition_of(&name)));
            let (requests, _) = arrivals.get(&host.key()).copied().unwrap_or_default();
            if is_its {
                let orphan = Orphan { since: Instant::now(), requests, is_disturbed: false };
                self.orphans.insert(host.key(), orphan);
            }
        }
    }

    /// Something else happens that may delay what was begun.
    pub(super) fn disturbed(&mut self) {
        for orphan in self.orphans.values_mut().filter(|orphan| orphan.since.elapsed() < UNDISTURBED) {
            orphan.is_disturbed = true;
        }
    }

    /// All that the store holds of the web's hosts and the replicas have, by the agent that has archived it. Nothing if it cannot
    /// be read now.
    pub(super) fn read(&mut self, agents: &[Agent], web: &Web) -> Option<Vec<Journal>> {
        let hosts = web.plan().hosts().filter_map(|host| Host::parse(&host.name()));
        let partitions = hosts.map(|host| partition_of(&host)).collect();
        let options = RedisOptions { partitions, ..self.options.clone() };
        let ids: BTreeMap<AgentId, usize> = (0..)
            .zip(agents)
            .filter_map(|(index, agent)| Some((Recorded::load(&agent.out).ok()?.agent?, index)))
            .collect();
        let try_once = || -> anyhow::Result<Vec<Journal>> {
            let mut journals: Vec<Journal> = agents.iter().map(|_| Journal::default()).collect();
            let mut store = RedisStore::open_to_read(&options)?;
            for partition in options.partitions.iter().copied() {
                if store.holds(partition) {
                    store.each_record(partition, &mut |record: Record, whose| {
                        let index = whose.and_then(|whose| ids.get(&whose)).copied().unwrap_or(0);
                        journals[index].add(&record);
                    })?;
                }
            }
            // What was read is only what was acknowledged if no failover can take it back.
            self.cluster.wait_for_replicas()?;
            Ok(journals)
        };
        let tries = if self.kills == 0 { 1 } else { TRIES_MAX };
        (0..tries).find_map(|_| {
            let read = try_once().ok();
            if read.is_none() {
                std::thread::sleep(LOOK_EVERY);
            }
            read
        })
    }

    /// Adds what was seen.
    pub(super) fn report(&self, delay: Duration, outcome: &mut Outcome) {
        outcome.bar("agents that were fenced", "> 0", self.fenced, self.fenced > 0);
        outcome.figure("fenced", self.fenced);
        outcome.figure("primaries_killed", self.kills);
        let limit = delay + REQUEST_TIME_MAX + REQUEST_TIME_MAX / 40;
        for (name, times) in [("all", &self.again), ("undisturbed", &self.again_undisturbed)] {
            let mut times: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
            times.sort_by(f64::total_cmp);
            let at =
                |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().max(1) - 1));
            outcome.figure(&format!("hosts_of_dead_agents_{name}"), times.len());
            outcome.figure(&format!("asked_again_s_median_{name}"), at(0.5).copied().unwrap_or_default());
            outcome.figure(&format!("asked_again_s_most_{name}"), at(1.0).copied().unwrap_or_default());
        }
        let soon = self.again_undisturbed.iter().filter(|time| **time <= AGAIN_MAX + delay).count();
        outcome.figure("asked_again_within_10_s_and_delay_undisturbed", soon);
        if let Some(most) = self.again_undisturbed.iter().max() {
            let beyond = most.saturating_sub(limit).as_secs_f64();
            let wanted = format!("<= {} s", AGAIN_MAX.as_secs());
            outcome.bar(
                "hosts of a dead agent asked again, beyond their delay and the limit of a fetch",
                wanted,
                format!("{beyond:.1} s"),
                beyond <= AGAIN_MAX.as_secs_f64(),
            );
        }
    }
}
