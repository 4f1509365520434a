//! What more agents bring: the rate of one agent and of several, each limited by its connections, and what a page costs.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{
    Outcome, Setup,
    agents::Agents,
    process::{cpu, machine, process_cpu},
    serve,
};
use crate::{
    redis::{RedisCluster, RedisClusterOptions},
    web::{PageBytes, Web, WebConfig},
};

/// Each further agent has to bring this part of what the first does.
const SHARE_MIN: f64 = 0.9875;
/// How much of the machine may be in use; above that it may be what limits the rate.
const BUSY_MAX: f64 = 0.8;
/// How much more processor time a page may take with several agents.
const COST_MAX: f64 = 1.10;
/// What an agent that shares a store has to do in a second of the processor, of what one with a store of its own does.
const SHARED_MIN: f64 = 0.70;
/// More than any host is asked for.
const PAGES: u32 = 1_000;
const PAGE_BYTES: u32 = 8_000;
/// How long the agents may take to find each other.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// How often the web is asked how far they are.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A request takes this many times its latency and its share of the connections at most, or it goes wrong.
const SLOW_MAX: u32 = 20;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct ScalingOptions {
    /// The web follows from this.
    pub seed: u64,
    /// How many agents are compared with one.
    pub agents: usize,
    /// Hosts, each with an address of its own.
    pub hosts: u32,
    /// Requests that an agent may have under way.
    pub parallel: u32,
    /// How long a host takes to answer.
    pub latency_ms: u32,
    /// Requests that pass before anything is measured.
    pub warm_up: u64,
    /// Requests that are measured, whoever makes them.
    pub requests: u64,
    /// How often both are measured, in turn.
    pub rounds: u32,
    /// The agents share a store in a Redis Cluster; one that has its own is compared with them.
    pub redis: bool,
}

impl Default for ScalingOptions {
    fn default() -> ScalingOptions {
        ScalingOptions {
            seed: 1,
            agents: 4,
            hosts: 2_000,
            parallel: 10,
            latency_ms: 50,
            warm_up: 8_000,
            requests: 16_000,
            rounds: 2,
            redis: false,
        }
    }
}

/// What was measured of some agents, once or in sum.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    took: Duration,
    pages: u64,
    /// Processor time of all agents,
    cpu: Duration,
    /// of the web,
    web_cpu: Duration,
    /// and of all processors together, whoever used them, with how much there was.
    busy: Duration,
    all: Duration,
}

impl Measured {
    fn add(&mut self, other: &Measured) {
        self.took += other.took;
        self.pages += other.pages;
        self.cpu += other.cpu;
        self.web_cpu += other.web_cpu;
        self.busy += other.busy;
        self.all += other.all;
    }

    fn pages_per_s(&self) -> f64 {
        self.pages as f64 / self.took.as_secs_f64()
    }

    fn cpu_us_per_page(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.pages.max(1) as f64
    }

    fn busy_share(&self) -> f64 {
        self.busy.div_duration_f64(self.all)
    }
}

/// One agent and several, at the same work: as many times the rate, for nearly the same processor time a page.
pub fn scaling(setup: &Setup, options: &ScalingOptions) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new("scaling");
    let (mut one, mut several, mut own) = (Measured::default(), Measured::default(), Measured::default());
    let cluster = options.redis.then(|| RedisCluster::start(&RedisClusterOptions::default())).transpose()?;
    let mut table = format!(
        "{:>6}  {:>5}  {:>5}  {:>8}  {:>9}  {:>11}  {:>12}  {:>7}\n",
        "agents", "store", "round", "pages", "pages/s", "CPU us/page", "web us/page", "machine"
    );
    for round in 1..=options.rounds {
        let mut parts =
            vec![(1, cluster.as_ref(), &mut one), (options.agents, cluster.as_ref(), &mut several)];
        if options.redis {
            parts.push((1, None, &mut own));
        }
        for (count, cluster, sum) in parts {
            let store = if cluster.is_some() { "redis" } else { "own" };
            let name = format!("round-{round}-{count}-{store}");
            let measured = measure(setup, options, count, cluster, &name)?;
            sum.add(&measured);
            // Writing to a String cannot fail.
            let _ = writeln!(
                table,
                "{count:>6}  {store:>5}  {round:>5}  {:>8}  {:>9.1}  {:>11.0}  {:>12.0}  {:>6.0}%",
                measured.pages,
                measured.pages_per_s(),
                measured.cpu_us_per_page(),
                measured.web_cpu.as_secs_f64() * 1e6 / measured.pages.max(1) as f64,
                measured.busy_share() * 100.0,
            );
        }
    }
    report(options, &one, &several, &mut outcome);
    if options.redis {
        let share = own.cpu_us_per_page() / one.cpu_us_per_page();
        let what = "pages a second of the processor with a shared store, of one's own";
        outcome.bar(what, format!(">= {SHARED_MIN:.2}"), format!("{share:.3}"), share >= SHARED_MIN);
        outcome.figure("own_cpu_us_per_page", own.cpu_us_per_page());
    }
    outcome.table = table;
    Ok(outcome)
}

fn report(options: &ScalingOptions, one: &Measured, several: &Measured, outcome: &mut Outcome) {
    let count = options.agents;
    let (rate, wanted) = (several.pages_per_s() / one.pages_per_s(), SHARE_MIN * count as f64);
    let what = format!("pages a second of {count} agents, of one");
    outcome.bar(what, format!(">= {wanted:.2}"), format!("{rate:.3}"), rate >= wanted);
    let busy = one.busy_share().max(several.busy_share());
    outcome.bar(
        "the machine's processors in use",
        format!("< {BUSY_MAX}"),
        format!("{busy:.2}"),
        busy < BUSY_MAX,
    );
    let cost = several.cpu_us_per_page() / one.cpu_us_per_page();
    let what = format!("processor time a page of {count} agents, of one");
    outcome.bar(what, format!("<= {COST_MAX:.2}"), format!("{cost:.3}"), cost <= COST_MAX);
    for (name, measured) in [("one", one), ("several", several)] {
        outcome.figure(&format!("{name}_pages"), measured.pages);
        outcome.figure(&format!("{name}_pages_per_s"), measured.pages_per_s());
        outcome.figure(&format!("{name}_cpu_us_per_page"), measured.cpu_us_per_page());
        outcome.figure(&format!("{name}_machine_busy"), measured.busy_share());
    }
}

/// Measures so many agents between two numbers of requests, when all of them are busy.
fn measure(
    setup: &Setup,
    options: &ScalingOptions,
    count: usize,
    cluster: Option<&RedisCluster>,
    name: &str,
) -> anyhow::Result<Measured> {
    let place = match &setup.keep {
        Some(dir) => Setup { keep: Some(dir.join(name)), ..setup.clone() }.place()?,
        None => setup.place()?,
    };
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: options.hosts,
        pages: PAGES,
        kinds: "plain".parse()?,
        latency_ms: (options.latency_ms, options.latency_ms),
        page_bytes: PageBytes::Fixed(PAGE_BYTES),
        https_percent: 0,
        delay_ms: 0,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    // No connection is closed, so that as many are made whoever asks.
    let mut settings = format!(
        "delay = \"0s\"\nip-delay = \"0s\"\nparallel = {}\nshards = 1\nidle-timeout = \"1h\"\nidle-connections = {}\n",
        options.parallel,
        2 * options.hosts
    );
    if let Some(cluster) = cluster {
        let nodes = cluster.nodes().join(",");
        let _ = writeln!(settings, "store = \"redis://{nodes}\"\nstore-name = {name:?}");
    }
    let mut agents = Agents::new(setup, place.path(), &web, (count, count), &settings)?;
    for index in 0..count {
        agents.start(index)?;
    }
    agents.wait_for_site(BEGIN_MAX)?;
    let slots = options.parallel * u32::try_from(count)?;
    let limit = |requests: u64| {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        BEGIN_MAX + Duration::from_millis(options.latency_ms.into()) * SLOW_MAX * (requests / slots + 1)
    };
    wait_for(&mut agents, &web, options.warm_up, limit(options.warm_up))?;
    let before = Reading::take(&agents, &web)?;
    setup.say(format!("{count} agents: measuring {} requests", options.requests));
    let until = web.seen().requests + options.requests;
    wait_for(&mut agents, &web, until, limit(options.requests))?;
    let after = Reading::take(&agents, &web)?;
    Ok(Measured {
        took: after.at - before.at,
        pages: after.pages - before.pages,
        cpu: after.cpu - before.cpu,
        web_cpu: after.web_cpu - before.web_cpu,
        busy: after.machine.0 - before.machine.0,
        all: after.machine.1 - before.machine.1,
    })
}

/// What the system and the web say at one moment.
struct Reading {
    at: Instant,
    pages: u64,
    cpu: Duration,
    web_cpu: Duration,
    machine: (Duration, Duration),
}

impl Reading {
    fn take(agents: &Agents, web: &Web) -> anyhow::Result<Reading> {
        let running = agents.list.iter().filter_map(|agent| agent.running.as_ref());
        let cpu: Duration = running.map(|running| cpu(running.id())).sum::<anyhow::Result<_>>()?;
        let (at, seen) = (Instant::now(), web.seen());
        let pages = seen.requests - seen.robots_requests;
        Ok(Reading { at, pages, cpu, web_cpu: process_cpu(), machine: machine()? })
    }
}

fn wait_for(agents: &mut Agents, web: &Web, requests: u64, limit: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + limit;
    while web.seen().requests < requests {
        let ended = agents.ended()?;
        ensure!(ended.is_empty(), "an agent ended by itself: {}", ended.join("\n"));
        let made = web.seen().requests;
        ensure!(Instant::now() < until, "only {made} requests of {requests} were made within {limit:?}");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
