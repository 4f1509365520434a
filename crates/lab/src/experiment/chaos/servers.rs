//! The store that the agents share, in six servers: what happens to these, and what is seen of the site from there.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use nephila_core::{
    assign::partition_of,
    record::Record,
    site::{AgentId, Leases, Partitions},
    url::Host,
};
use nephila_node::directory::Recorded;
use nephila_store::{
    Store as _, StoreLimits,
    redis::{ClusterOptions, RedisLeases, RedisOptions, RedisStore},
};

use super::super::{Outcome, agents::Agent, journal::Journal};
use super::witness::InStore;
use crate::{
    redis::{RedisCluster, RedisClusterOptions},
    web::{Web, plan::Mix},
};

/// What the crawl is called there.
const NAME: &str = "chaos";
/// Of the primaries that the times allow to kill, one in so many has to be killed.
const KILLED_PART: usize = 3;
/// How often the leases and the cluster are looked at.
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
    /// Leases that were ended by others, of agents that were dead and of such as were not.
    ended: u32,
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
            ended: 0,
        })
    }

    /// What agents have to be told, in TOML.
    pub(super) fn settings(&self) -> String {
        let nodes = self.cluster.nodes().join(",");
        format!("store = \"redis://{nodes}\"\nstore-name = {NAME:?}\n")
    }

    /// Whether a server is down or about to be.
    pub(super) fn are_hit(&self) -> bool {
        self.wants_kill || !self.down.is_empty()
    }

    /// Has a primary killed, at once or when its replica is in step.
    pub(super) fn kill_primary(&mut self, mix: &mut Mix) -> anyhow::Result<()> {
        self.wants_kill = true;
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

    /// Starts servers again, and looks at who is alive.
    pub(super) fn tend(&mut self) -> anyhow::Result<()> {
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
        Ok(())
    }

    fn look_at_leases(&mut self) {
        if self.table.is_none() {
            self.table = RedisLeases::open(self.options.cluster.clone(), &self.options.crawl).ok();
        }
        let Some(Ok(leases)) = self.table.as_mut().map(RedisLeases::look) else { return };
        // Nobody leaves before the end.
        let ended = self.leases.iter().filter(|(id, _)| leases.get(*id).is_none());
        self.ended += ended.count() as u32;
        self.leases = leases;
    }

    /// The partitions that an agent held at the last look.
    pub(super) fn held_by(&self, agent: &Agent) -> Option<&Partitions> {
        let id = Recorded::load(&agent.out).ok()?.agent?;
        self.leases.get(id).map(|lease| &lease.held)
    }

    /// All that the store holds of the web's hosts and the replicas have. Nothing if it cannot be read now.
    pub(super) fn read(&mut self, agents: &[Agent], web: &Web) -> Option<InStore> {
        let hosts = web.plan().hosts().filter_map(|host| Host::parse(&host.name()));
        let partitions = hosts.map(|host| partition_of(&host)).collect();
        let options = RedisOptions { partitions, ..self.options.clone() };
        let ids: BTreeMap<AgentId, usize> = (0..)
            .zip(agents)
            .filter_map(|(index, agent)| Some((Recorded::load(&agent.out).ok()?.agent?, index)))
            .collect();
        let try_once = || -> anyhow::Result<InStore> {
            let mut journals: Vec<Journal> = agents.iter().map(|_| Journal::default()).collect();
            let mut store = RedisStore::open_to_read(&options)?;
            let mut hosts = BTreeMap::new();
            store.hosts(&mut |host| {
                hosts.insert(host.host.to_string(), (host.known, host.queued));
            })?;
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
            Ok(InStore { journals, hosts })
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

    /// Adds what was seen. So many primaries were to be killed.
    pub(super) fn report(&self, to_kill: usize, outcome: &mut Outcome) {
        outcome.figure("leases_ended_by_others", self.ended);
        outcome.figure("primaries_killed", self.kills);
        // A kill waits until it is allowed. A store that hardly ever allows one has not been tried.
        let least = to_kill.div_ceil(KILLED_PART);
        if least > 0 {
            let met = self.kills as usize >= least;
            outcome.bar("primaries of the store that were killed", format!(">= {least}"), self.kills, met);
        }
    }
}
