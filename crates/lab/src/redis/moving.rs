//! Moving a slot from one primary to another while it is in use, key by key, as `redis-cli --cluster reshard` does.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use nephila_store::redis::{Link, Value, cmd};

use super::{ADMIN, PASSWORD, RedisCluster, accepted, expect_ok, text};

/// Keys that one command moves,
const KEYS_AT_ONCE: usize = 20;
/// and how many of them there may be in all.
const KEYS_MAX: usize = 10_000_000;
/// How long a server may take for a command that moves keys.
const MOVE_TIME_MAX: Duration = Duration::from_secs(10);

/// What it took to move a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Keys that were moved.
    pub keys: usize,
    /// From the first command to the last.
    pub took: Duration,
    /// The longest that one command took, seen from here.
    pub longest: Duration,
}

impl RedisCluster {
    /// Moves a slot to another primary. Clients may go on meanwhile.
    pub fn move_slot(&self, slot: u16, to: usize) -> anyhow::Result<Moved> {
        let from = self.primary_of(slot)?;
        ensure!(from != to, "slot {slot} is there already");
        let (mut source, mut target) = (self.link(from)?, self.link(to)?);
        let [from_id, to_id] = [&mut source, &mut target].map(|link| link.ask(cmd("CLUSTER").arg("MYID")));
        let (from_id, to_id) = (text(from_id?)?, text(to_id?)?);
        let begin = Instant::now();
        set_slot(&mut target, slot, "IMPORTING", &from_id)?;
        set_slot(&mut source, slot, "MIGRATING", &to_id)?;
        let mut moved = Moved::default();
        while moved.keys < KEYS_MAX {
            let keys = cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(KEYS_AT_ONCE).clone();
            let Value::Array(keys) = accepted(source.ask(&keys)?)? else { bail!("keys are not as expected") };
            if keys.is_empty() {
                break;
            }
            moved.keys += keys.len();
            let started = Instant::now();
            self.migrate(&mut source, to, keys)?;
            moved.longest = moved.longest.max(started.elapsed());
        }
        // The new primary first, so that nobody is sent to one that does not know.
        set_slot(&mut target, slot, "NODE", &to_id)?;
        set_slot(&mut source, slot, "NODE", &to_id)?;
        moved.took = begin.elapsed();
        Ok(moved)
    }

    fn migrate(&self, source: &mut Link, to: usize, keys: Vec<Value>) -> anyhow::Result<()> {
        let mut migrate = cmd("MIGRATE");
        let port = self.servers[to].ports()[0];
        migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(MOVE_TIME_MAX.as_millis() as u64);
        if self.options.login.is_some() {
            migrate.arg("AUTH2").arg(ADMIN).arg(PASSWORD);
        }
        migrate.arg("KEYS");
        for key in keys {
            let Value::BulkString(key) = key else { bail!("a key is not as expected") };
            migrate.arg(key);
        }
        expect_ok(source.ask(&migrate)?)
    }
}

fn set_slot(link: &mut Link, slot: u16, state: &str, node: &str) -> anyhow::Result<()> {
    expect_ok(link.ask(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(state).arg(node))?)
}
