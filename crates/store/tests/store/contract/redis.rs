//! The store in a Redis Cluster: a real one, which all tests share and each has a crawl of its own in.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nephila_core::assign::partition_of;
use nephila_core::record::Record;
use nephila_core::site::AgentId;
use nephila_lab::redis::simulated::SimRedis;
use nephila_lab::redis::{RedisCluster, RedisClusterOptions};
use nephila_store::StoreLimits;
use nephila_store::redis::{ClusterOptions, RedisOptions, RedisStore};

use super::{Harness, reader};
use crate::samples::host;

/// The cluster of this process, which ends with it. Who logs in there has the least rights that a store needs, so that every
/// test shows that they are enough.
pub(crate) fn cluster() -> &'static RedisCluster {
    static CLUSTER: OnceLock<RedisCluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        RedisCluster::start(&RedisClusterOptions { login: true, ..RedisClusterOptions::default() }).unwrap()
    })
}

/// Only what the tests have hosts in: taking over all partitions takes a while.
fn partitions() -> Vec<u16> {
    let names = ["a.example", "b.example", "c.example", "nobody.example", "::1"].map(str::to_owned);
    let names = names.into_iter().chain((0..40).map(|number| format!("h{number}.example")));
    names.map(|name| partition_of(&host(&name))).collect()
}

/// A crawl that nobody else has.
pub(crate) fn options(limits: StoreLimits) -> RedisOptions {
    static CRAWLS: AtomicU64 = AtomicU64::new(0);
    RedisOptions {
        cluster: ClusterOptions {
            nodes: cluster().nodes(),
            link: cluster().link_options().clone(),
            replicas: 1,
            patience: Duration::from_secs(20),
        },
        crawl: format!("c{}:", CRAWLS.fetch_add(1, Ordering::Relaxed)),
        partitions: partitions(),
        limits,
        writer: AgentId::default(),
        accepts_unsafe: true,
        hash_key: None,
    }
}

pub(crate) struct OnRedis {
    options: RedisOptions,
    store: RedisStore,
}

impl Harness for OnRedis {
    type Store = RedisStore;

    fn new(_: u64, limits: StoreLimits) -> OnRedis {
        let options = options(limits);
        OnRedis { store: RedisStore::open(&options).unwrap(), options }
    }

    fn store(&mut self) -> &mut RedisStore {
        &mut self.store
    }

    fn write(&mut self, record: &Record) -> u64 {
        let place = self.store.append(record).unwrap();
        self.store.flush().unwrap();
        place
    }

    fn save(&mut self) {
        self.store.flush().unwrap();
    }

    fn restart(&mut self, limits: StoreLimits, lost_files: &[u32]) {
        // Nothing is done when a store is dropped: what was not flushed is not sent.
        self.options.limits = limits;
        self.store = RedisStore::open(&self.options).unwrap();
        self.store.look_back(&mut reader(lost_files)).unwrap();
    }
}

/// The same store in a cluster that is simulated.
pub(crate) struct OnSimRedis(OnRedis);

impl Harness for OnSimRedis {
    type Store = RedisStore;

    fn new(seed: u64, limits: StoreLimits) -> OnSimRedis {
        let options = RedisOptions {
            cluster: SimRedis::new(seed, None).options(0),
            crawl: String::new(),
            partitions: partitions(),
            limits,
            writer: AgentId::default(),
            accepts_unsafe: true,
            hash_key: Some(seed),
        };
        OnSimRedis(OnRedis { store: RedisStore::open(&options).unwrap(), options })
    }

    fn store(&mut self) -> &mut RedisStore {
        self.0.store()
    }

    fn write(&mut self, record: &Record) -> u64 {
        self.0.write(record)
    }

    fn save(&mut self) {
        self.0.save();
    }

    fn restart(&mut self, limits: StoreLimits, lost_files: &[u32]) {
        self.0.restart(limits, lost_files);
    }
}
