//! The table of leases: who is alive, and who holds what. Its rules are in the core ([`Leases::beat`]); here it is read, changed
//! and written back if nobody has written it meanwhile.
//!
//! Whatever is said of it was confirmed by the replicas: who relied on a lease, or on the end of one, that a failover takes back
//! would ask a host while another does.

use std::collections::BTreeMap;

use nephila_core::assign::slot;
use nephila_core::site::{AgentId, Beat, Lease, Leases};
use nephila_core::time::Wall;
use redis::{Value, cmd};

use super::cluster::{Cluster, ClusterOptions};
use super::values::{fields, pack, senseless, unpack};
use crate::{Error, Result};

/// Writes the table if its version is the one that was read. KEYS: the table. ARGV: the version, how many words follow that are
/// fields and what to put there, these, and then the fields to remove.
pub const SWAP: &str = "\
local is = redis.call('HGET', KEYS[1], 'v') or '0'
if is ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'v', is + 1)
local n = tonumber(ARGV[2])
if n > 0 then redis.call('HSET', KEYS[1], unpack(ARGV, 3, 2 + n)) end
if #ARGV > 2 + n then redis.call('HDEL', KEYS[1], unpack(ARGV, 3 + n)) end
return 1
";

/// What is in the table's slot.
const TAG: &str = "leases";
/// The field of the version,
const VERSION: &[u8] = b"v";
/// and that of what is not a lease.
const REST: &[u8] = b"r";
/// How often a beat is tried whose table others have written meanwhile.
const TRIES_MAX: usize = 20;

/// See the module's documentation.
pub struct RedisLeases {
    cluster: Cluster,
    key: String,
}

impl RedisLeases {
    /// The leases of a crawl.
    pub fn open(options: ClusterOptions, crawl: &str) -> Result<RedisLeases> {
        Ok(RedisLeases { cluster: Cluster::open(options)?, key: format!("{crawl}{{{TAG}}}") })
    }

    /// Has the table take a beat in. Says the incarnation of who sent it, unless it was refused, and what the table holds then.
    /// After an error nobody knows whether it was taken in.
    pub fn beat(&mut self, beat: &Beat) -> Result<(Option<u64>, Leases)> {
        for _ in 0..TRIES_MAX {
            let (version, before) = self.read()?;
            let mut leases = before.clone();
            let Ok(incarnation) = leases.beat(beat) else { return Ok((None, before)) };
            let mut words = Vec::new();
            for (id, lease) in leases.iter().filter(|(id, lease)| before.get(*id) != Some(*lease)) {
                words.extend([id.0.to_vec(), pack(lease)?]);
            }
            words.extend([REST.to_vec(), pack(&(leases.drawn(), leases.calendar))?]);
            let gone = before.iter().filter(|(id, _)| leases.get(*id).is_none());
            let gone: Vec<Vec<u8>> = gone.map(|(id, _)| id.0.to_vec()).collect();
            let mut swap = cmd("EVAL");
            swap.arg(SWAP).arg(1).arg(&self.key).arg(version).arg(words.len()).arg(words).arg(gone);
            let answer = self.cluster.read([(slot(TAG), swap)])?.pop();
            if answer == Some(Value::Int(1)) {
                self.cluster.flush_reads()?;
                return Ok((Some(incarnation), leases));
            }
        }
        Err(Error::Unavailable { what: "the leases change all the time", seconds: 0 })
    }

    /// What the table holds, which need not be confirmed.
    pub fn look(&mut self) -> Result<Leases> {
        Ok(self.read()?.1)
    }

    fn read(&mut self) -> Result<(u64, Leases)> {
        let get = cmd("HGETALL").arg(&self.key).clone();
        let answer = self.cluster.read([(slot(TAG), get)])?.pop().unwrap_or(Value::Nil);
        let (mut version, mut rest, mut list) = (0, (0, Wall(0)), BTreeMap::new());
        for (field, value) in fields(answer)? {
            match &field[..] {
                VERSION => {
                    let text = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
                    version = text.ok_or_else(|| senseless("the leases have no version"))?;
                }
                REST => rest = unpack(&value)?,
                id => {
                    let id = id.try_into().map_err(|_| senseless("a lease is nobody's"))?;
                    list.insert(AgentId(id), unpack::<Lease>(&value)?);
                }
            }
        }
        Ok((version, Leases::kept(rest.0, rest.1, list)))
    }
}
