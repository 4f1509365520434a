//! The store in a Redis Cluster: what a known URL takes there, what admission costs its primaries, and what moving the slot
//! of a very large host does to everybody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nephila_core::assign::{PARTITIONS, partition_of};
use nephila_core::record::{Found, How, LeftOut, Outcome as End, PageFlags, Pointer, Record, Settled};
use nephila_core::site::AgentId;
use nephila_core::time::Wall;
use nephila_core::url::Host;
use nephila_store::redis::{ClusterOptions, RedisOptions, RedisStore};
use nephila_store::{Store, StoreLimits};

use super::{Outcome, Setup, process::process_cpu};
use crate::redis::{Moved, RedisCluster, RedisClusterOptions};

const BYTES_MAX: f64 = 150.0;
const OFFERS_A_SECOND_MIN: f64 = 100_000.0;
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// URLs that are offered together,
const BATCH: u64 = 500;
/// and how many of them are new.
const NEW_PERCENT: u64 = 30;
const SERVERS: usize = 6;
/// How long batches may have to wait for a slot that moves.
const MOVE_TIME_MAX: Duration = Duration::from_secs(600);
const NO_LIMITS: StoreLimits = StoreLimits::NONE;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct RedisExperiment {
    /// What is offered follows from this.
    pub seed: u64,
    /// URLs that memory and rates are measured with.
    pub urls: u64,
    /// URLs of the host that is moved.
    pub moved_urls: u64,
}

impl Default for RedisExperiment {
    fn default() -> RedisExperiment {
        RedisExperiment { seed: 1, urls: 400_000, moved_urls: 5_000_000 }
    }
}

/// Memory for hosts of several sizes, then the rate, then the move.
pub fn redis(setup: &Setup, options: &RedisExperiment) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new("redis");
    setup.say("starting six redis-servers");
    let cluster = RedisCluster::start(&RedisClusterOptions::default())?;
    for urls_a_host in [10, 100, 2_000] {
        let hosts = (options.urls / 2 / urls_a_host).max(1);
        setup.say(format!("{hosts} hosts of {urls_a_host} URLs"));
        let ([waiting, done], settle_micros) = memory(&cluster, hosts, urls_a_host)?;
        outcome.figure(&format!("agent_cpu_us_a_settled_page_of_{urls_a_host}"), settle_micros);
        for (what, bytes) in [("waiting", waiting), ("fetched", done)] {
            let what = format!("memory of a {what} URL beyond its text, {urls_a_host} a host");
            let (wanted, measured) = (format!("<= {BYTES_MAX} bytes"), format!("{bytes:.0} bytes"));
            outcome.bar(what, wanted, measured, bytes <= BYTES_MAX);
        }
    }
    for hosts_a_batch in [10, 100] {
        setup.say(format!("batches of {BATCH} URLs of {hosts_a_batch} hosts"));
        let (rate, micros) = rate(&cluster, options, hosts_a_batch)?;
        outcome.figure(&format!("agent_cpu_us_a_url_of_{hosts_a_batch}_hosts"), micros);
        outcome.bar(
            format!("URLs admitted per CPU-second of a primary, {hosts_a_batch} hosts a batch"),
            format!(">= {OFFERS_A_SECOND_MIN}"),
            format!("{rate:.0}"),
            rate >= OFFERS_A_SECOND_MIN,
        );
    }
    moving(setup, &cluster, options, &mut outcome)?;
    Ok(outcome)
}

fn open(cluster: &RedisCluster, crawl: &str, partitions: Vec<u16>) -> anyhow::Result<RedisStore> {
    let link = cluster.link_options().clone();
    let patience = Duration::from_secs(5);
    let cluster = ClusterOptions { nodes: cluster.nodes(), link, replicas: 1, patience };
    let crawl = crawl.to_owned();
    Ok(RedisStore::open(&RedisOptions {
        cluster,
        crawl,
        partitions,
        limits: NO_LIMITS,
        writer: AgentId::default(),
        accepts_unsafe: false,
        hash_key: None,
    })?)
}

fn url(host: u64, number: u64) -> String {
    format!("https://www{host}.example.org/section-{}/article-{number}.html", number % 97)
}

fn found(url: String) -> Found {
    Found { url, depth: 1, how: How::Link, redirects: 0 }
}

/// Offers URLs as a page would that links to them.
fn offer(store: &mut RedisStore, urls: Vec<String>) -> anyhow::Result<u64> {
    let record = Record::Seeds(urls.into_iter().map(found).collect());
    let place = store.append(&record)?;
    store.confirm()?;
    let mut new = 0;
    for said in [store.admit(place, &record, None)?, store.decide()?] {
        new += said.new.iter().map(|(_, count)| count).sum::<u64>();
    }
    store.confirm()?;
    Ok(new)
}

/// A figure of a server.
fn figure(cluster: &RedisCluster, number: usize, section: &str, name: &str) -> anyhow::Result<f64> {
    let info = cluster.info(number, section)?;
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("a server does not say {name}"))?.trim().parse()?)
}

fn primaries(cluster: &RedisCluster) -> anyhow::Result<Vec<usize>> {
    let mut primaries = Vec::new();
    for slot in (0..PARTITIONS).step_by(64) {
        let primary = cluster.primary_of(slot)?;
        if !primaries.contains(&primary) {
            primaries.push(primary);
        }
    }
    Ok(primaries)
}

/// Memory of all primaries that is not a buffer.
fn memory_bytes(cluster: &RedisCluster, primaries: &[usize]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for number in primaries {
        sum += figure(cluster, *number, "memory", "used_memory")?;
        for buffer in
            ["mem_clients_normal", "mem_clients_slaves", "mem_total_replication_buffers", "mem_aof_buffer"]
        {
            sum -= figure(cluster, *number, "memory", buffer)?;
        }
    }
    Ok(sum)
}

/// Bytes of a URL that waits, and of one that was fetched; and what it takes to hand a URL over and settle it, here.
fn memory(cluster: &RedisCluster, hosts: u64, urls_a_host: u64) -> anyhow::Result<([f64; 2], f64)> {
    let primaries = primaries(cluster)?;
    let crawl = format!("m{urls_a_host}:");
    let mut store = open(cluster, &crawl, (0..PARTITIONS).collect())?;
    let before = memory_bytes(cluster, &primaries)?;
    let all = hosts * urls_a_host;
    // A host of which more is found comes round again and again.
    let urls: Vec<(u64, u64)> =
        (0..urls_a_host).flat_map(|number| (0..hosts).map(move |host| (host, number))).collect();
    let mut text = 0;
    for batch in urls.chunks(BATCH as usize) {
        let urls: Vec<String> = batch.iter().map(|(host, number)| url(*host, *number)).collect();
        text += urls.iter().map(String::len).sum::<usize>();
        offer(&mut store, urls)?;
    }
    ensure!(store.stored().known == all, "{} of {all} URLs are known", store.stored().known);
    let waiting = (memory_bytes(cluster, &primaries)? - before - text as f64) / all as f64;
    let cpu = process_cpu();
    for host in 0..hosts {
        let host = Host::parse(&format!("www{host}.example.org")).context("a host has no name")?;
        loop {
            let taken = store.take(&host, 100, false, Wall(0))?;
            if taken.due.is_empty() {
                break;
            }
            let settled = taken.due.into_iter().map(|due| settled(due.url.into(), due.depth, due.found_in));
            let records: Vec<Record> = settled.map(Record::Settled).collect();
            store.append_all(&records, &mut Vec::new())?;
        }
    }
    store.flush()?;
    let micros = (process_cpu() - cpu).as_secs_f64() * 1e6 / all as f64;
    ensure!(store.stored().queued == 0, "{} URLs are left", store.stored().queued);
    let done = (memory_bytes(cluster, &primaries)? - before - text as f64) / all as f64;
    forget(cluster, &primaries)?;
    Ok(([waiting, done], micros))
}

fn settled(url: String, depth: u16, found_in: u64) -> Settled {
    Settled {
        url,
        depth,
        how: How::Link,
        found_in,
        attempts: 1,
        asked: true,
        at: Wall(1_800_000_000_000),
        took: Duration::from_micros(123_456),
        bytes: 34_567,
        outcome: End::Answered { status: 200 },
        capture: Some(Pointer { shard: 1, file: 1_234, offset: 123_456_789, length: 12_345 }),
        flags: PageFlags::default(),
        found: Vec::new(),
        left_out: LeftOut { scope: 20, ..LeftOut::default() },
        spent: None,
    }
}

/// Empties the cluster for what comes next.
fn forget(cluster: &RedisCluster, primaries: &[usize]) -> anyhow::Result<()> {
    for number in primaries {
        cluster.ask(*number, &["FLUSHALL", "SYNC"])?;
    }
    Ok(())
}

/// Processor time of all primaries.
fn cpu_seconds(cluster: &RedisCluster, primaries: &[usize]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for number in primaries {
        sum += figure(cluster, *number, "cpu", "used_cpu_user")?
            + figure(cluster, *number, "cpu", "used_cpu_sys")?;
    }
    Ok(sum)
}

/// URLs that are offered per second of a primary's processor, and what each takes here.
fn rate(cluster: &RedisCluster, options: &RedisExperiment, hosts_a_batch: u64) -> anyhow::Result<(f64, f64)> {
    let primaries = primaries(cluster)?;
    let mut store = open(cluster, "r:", (0..PARTITIONS).collect())?;
    let mut random = Random { seed: options.seed, drawn: 0 };
    let hosts = 20 * hosts_a_batch;
    let mut known = vec![0; hosts as usize];
    // What is not new must be known.
    let before = options.urls / 2 / hosts;
    for host in 0..hosts {
        for first in (0..before).step_by(BATCH as usize) {
            offer(&mut store, (first..before.min(first + BATCH)).map(|number| url(host, number)).collect())?;
        }
        known[host as usize] = before;
    }
    let (mut offers, mut new, mut expected) = (0, 0, 0);
    let (cpu, own) = (cpu_seconds(cluster, &primaries)?, process_cpu());
    while offers < options.urls {
        let mut batch = Vec::new();
        let first = random.below(hosts);
        for host in (0..hosts_a_batch).map(|step| (first + step) % hosts) {
            for _ in 0..BATCH / hosts_a_batch {
                let known = &mut known[host as usize];
                let is_new = random.below(100) < NEW_PERCENT || *known == 0;
                let number = if is_new { *known } else { random.below(*known) };
                *known += u64::from(is_new);
                expected += u64::from(is_new);
                batch.push(url(host, number));
            }
        }
        offers += batch.len() as u64;
        new += offer(&mut store, batch)?;
    }
    let cpu = cpu_seconds(cluster, &primaries)? - cpu;
    let micros = (process_cpu() - own).as_secs_f64() * 1e6 / offers as f64;
    ensure!(new == expected, "{new} URLs were new, and {expected} should have been");
    forget(cluster, &primaries)?;
    Ok((offers as f64 / cpu, micros))
}

/// Numbers by a seed.
struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.drawn += 1;
        xxhash_rust::xxh3::xxh3_64_with_seed(&self.drawn.to_le_bytes(), self.seed) % end
    }
}

/// What was seen meanwhile.
#[derive(Default)]
struct Saw {
    /// Batches of the host that moved, and of others.
    batches: [u64; 2],
    /// How long its batches had to wait, and the longest that a batch of others took.
    longest: [Duration; 2],
}

/// Moves the slot of a very large host while it and others are in use by one agent.
fn moving(
    setup: &Setup,
    cluster: &RedisCluster,
    options: &RedisExperiment,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let host = Host::parse("www0.example.org").context("a host has no name")?;
    let slot = partition_of(&host);
    setup.say(format!("one host of {} URLs", options.moved_urls));
    let mut store = open(cluster, "l:", (0..PARTITIONS).collect())?;
    let mut first = 0;
    while first < options.moved_urls {
        let end = options.moved_urls.min(first + BATCH);
        offer(&mut store, (first..end).map(|number| url(0, number)).collect())?;
        first = end;
    }
    let slower_than = PAUSE_MAX.as_micros().to_string();
    for number in 0..SERVERS {
        cluster.ask(number, &["CONFIG", "SET", "slowlog-log-slower-than", &slower_than])?;
        cluster.ask(number, &["SLOWLOG", "RESET"])?;
    }
    let from = cluster.primary_of(slot)?;
    let to = *primaries(cluster)?.iter().find(|number| **number != from).context("there is one primary")?;
    setup.say(format!("moving slot {slot} from server {from} to server {to}"));
    let stop = AtomicBool::new(false);
    let (moved, saw) = std::thread::scope(|scope| {
        let goes_on = scope.spawn(|| go_on(&mut store, slot, options.moved_urls, &stop));
        let moved = cluster.move_slot(slot, to);
        // Those that had to wait go on.
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        (moved, goes_on.join())
    });
    let (moved, saw) = (moved?, saw.unwrap_or_else(|_| anyhow::bail!("a thread panicked"))?);
    report(cluster, outcome, &moved, &saw)?;
    store.flush()?;
    outcome.equal("offers that are undecided", 0, store.stored().undecided);
    let known = options.moved_urls + saw.batches[0];
    let of_host = |store: &mut RedisStore| -> anyhow::Result<u64> {
        Ok(store.host(&host)?.map_or(0, |stored| stored.known))
    };
    outcome.equal("URLs of the moved host that are known", known, of_host(&mut store)?);
    // What is there is counted by whoever opens it next.
    drop(store);
    let mut again = open(cluster, "l:", vec![slot])?;
    outcome.equal("and when it is opened again", known, of_host(&mut again)?);
    Ok(())
}

/// Offers one URL of the large host and twenty of others, again and again.
fn go_on(store: &mut RedisStore, slot: u16, first: u64, stop: &AtomicBool) -> anyhow::Result<Saw> {
    let mut saw = Saw::default();
    let mut waits_since = None;
    while !stop.load(Ordering::Relaxed) || waits_since.is_some() {
        let record = Record::Seeds(vec![found(url(0, first + saw.batches[0]))]);
        let place = store.append(&record)?;
        store.admit(place, &record, None)?;
        saw.batches[0] += 1;
        let begin = Instant::now();
        // None of them is in the slot that moves.
        let hosts = (1..400).cycle().skip(20 * saw.batches[1] as usize % 399);
        let hosts = hosts.filter(|host| {
            Host::parse(&format!("www{host}.example.org")).is_some_and(|host| partition_of(&host) != slot)
        });
        offer(store, hosts.take(20).map(|host| url(host, saw.batches[1])).collect())?;
        saw.batches[1] += 1;
        saw.longest[1] = saw.longest[1].max(begin.elapsed());
        let is_waiting = store.stored().undecided > 0 || store.confirm()?.contains(&slot);
        match (is_waiting, waits_since) {
            (true, None) => waits_since = Some(begin),
            (false, Some(since)) => {
                saw.longest[0] = saw.longest[0].max(since.elapsed());
                waits_since = None;
            }
            _ => {}
        }
        ensure!(waits_since.is_none_or(|since| since.elapsed() < MOVE_TIME_MAX), "the move has no end");
    }
    Ok(saw)
}

fn report(cluster: &RedisCluster, outcome: &mut Outcome, moved: &Moved, saw: &Saw) -> anyhow::Result<()> {
    let mut slow = Vec::new();
    for number in 0..SERVERS {
        let entries = cluster.ask(number, &["SLOWLOG", "LEN"])?;
        if entries != nephila_store::redis::Value::Int(0) {
            slow.push(format!("server {number}: {entries:?}"));
        }
    }
    outcome.none(format!("commands above {} ms", PAUSE_MAX.as_millis()), slow.len() as u64, &slow);
    let [waited, pause] = saw.longest;
    outcome.bar(
        "the longest pause of hosts in other slots",
        format!("<= {} ms", PAUSE_MAX.as_millis()),
        format!("{} ms", pause.as_millis()),
        pause <= PAUSE_MAX,
    );
    let mut scripts_micros: f64 = 0.0;
    for number in 0..SERVERS {
        let info = cluster.info(number, "latencystats")?;
        let line = info.lines().find_map(|line| line.strip_prefix("latency_percentiles_usec_evalsha:"));
        let longest = line.and_then(|line| line.rsplit_once("p99.9=")?.1.trim().parse().ok());
        scripts_micros = scripts_micros.max(longest.unwrap_or(0.0));
    }
    outcome.figure("of_1000_scripts_999_take_less_than_ms", scripts_micros / 1e3);
    outcome.figure("keys_moved", moved.keys);
    outcome.figure("move_seconds", moved.took.as_secs_f64());
    outcome.figure("longest_move_command_ms", moved.longest.as_secs_f64() * 1e3);
    outcome.figure("longest_wait_of_the_moved_host_seconds", waited.as_secs_f64());
    outcome.figure("batches_of_the_moved_host", saw.batches[0]);
    outcome.figure("batches_of_others", saw.batches[1]);
    Ok(())
}
