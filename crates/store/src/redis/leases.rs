//! The table of leases: who is alive, and who holds what. Its rules are in the core ([`Leases::beat`]); here it is read, changed
//! and written back if nobody has written it meanwhile.
//!
//! Whatever is said of it was confirmed by the replicas: who relied on a lease, or on the end of one, that a failover takes back
//! would ask a host while another does.

use std::collections::BTreeMap;

use nephila_core::assign::slot;
use nephila_core::site::{AgentId, Beat, Lease, Leases, Member, Partitions, Wishes};
use nephila_core::time::Wall;
use redis::{Value, cmd};

use super::cluster::{Cluster, ClusterOptions};
use super::values::{bytes, fields, pack, senseless, unpack};
use crate::{Error, Result};

/// Writes the table if its version is the one that was read. KEYS: the table and where wishes are. ARGV: the version, the wishes
/// or nothing if they stay as they are, how many words follow that are fields and what to put there, these, and then the fields
/// to remove.
pub const SWAP: &str = "\
local is = redis.call('HGET', KEYS[1], 'v') or '0'
if is ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'v', is + 1)
if ARGV[2] ~= '' then redis.call('SET', KEYS[2], ARGV[2]) end
local n = tonumber(ARGV[3])
if n > 0 then redis.call('HSET', KEYS[1], unpack(ARGV, 4, 3 + n)) end
if #ARGV > 3 + n then redis.call('HDEL', KEYS[1], unpack(ARGV, 4 + n)) end
return 1
";

/// What is in the table's slot.
pub(super) const TAG: &str = "leases";
/// The field of the version,
const VERSION: &[u8] = b"v";
/// that of what is not a lease,
const REST: &[u8] = b"r";
/// that of what all agents were told,
const TERMS: &[u8] = b"t";
/// and that of the digest of the wishes, which are read only when somebody knows others.
const DIGEST: &[u8] = b"d";
/// How often a beat is tried whose table others have written meanwhile.
const TRIES_MAX: usize = 20;

/// See the module's documentation.
pub struct RedisLeases {
    cluster: Cluster,
    key: String,
    wishes: String,
    /// What each agent was last seen to hold, as it is written and as it is read: it is long, and seldom another.
    held: BTreeMap<AgentId, (Vec<u8>, Partitions)>,
    /// The highest version that was confirmed.
    reached: u64,
}

/// The table as it was read.
struct Table {
    version: u64,
    /// Of the wishes, which are those of whoever asked if they are the same.
    digest: u64,
    leases: Leases,
}

impl RedisLeases {
    /// The leases of a crawl.
    pub fn open(options: ClusterOptions, crawl: &str) -> Result<RedisLeases> {
        let (key, wishes) = (format!("{crawl}{{{TAG}}}"), format!("{crawl}{{{TAG}}}w"));
        Ok(RedisLeases { cluster: Cluster::open(options)?, key, wishes, held: BTreeMap::new(), reached: 0 })
    }

    /// Has the table take a beat in. Says the incarnation of who sent it, unless it was refused, and what the table holds then.
    /// After an error nobody knows whether it was taken in.
    pub fn beat(&mut self, beat: &Beat) -> Result<(Option<u64>, Leases)> {
        self.change(&beat.wishes, &mut |leases| leases.beat(beat).ok())
    }

    /// Has the calendar begin if it has not, and adds wishes, before any agent is there. Says what the table holds then.
    pub fn begin(&mut self, calendar: Wall, wishes: &Wishes) -> Result<Leases> {
        let begin = &mut |leases: &mut Leases| {
            leases.begin(calendar);
            leases.wishes.merge(wishes);
            Some(())
        };
        Ok(self.change(wishes, begin)?.1)
    }

    /// What the table holds, which need not be confirmed.
    pub fn look(&mut self) -> Result<Leases> {
        Ok(self.read(&Wishes::default())?.leases)
    }

    /// Changes the table, if `change` says something; then that is confirmed. `wishes` are likely those in the table.
    fn change<T>(
        &mut self,
        wishes: &Wishes,
        change: &mut dyn FnMut(&mut Leases) -> Option<T>,
    ) -> Result<(Option<T>, Leases)> {
        for _ in 0..TRIES_MAX {
            let Table { version, digest, leases: before } = self.read(wishes)?;
            let mut leases = before.clone();
            if version < self.reached {
                // Whether a primary says so that has its replicas is known when it has written something.
                if self.swap(version, Vec::new(), &[], &[])? {
                    return Err(Error::Lost { what: "the table of leases".to_owned() });
                }
                continue;
            }
            let Some(said) = change(&mut leases) else { return Ok((None, before)) };
            let mut words = Vec::new();
            for (id, lease) in leases.iter().filter(|(id, lease)| before.get(*id) != Some(*lease)) {
                words.extend([id.0.to_vec(), pack(lease)?]);
            }
            words.extend([REST.to_vec(), pack(&(leases.drawn(), leases.calendar))?]);
            if leases.terms != before.terms {
                words.extend([TERMS.to_vec(), pack(&leases.terms)?]);
            }
            let mut packed = Vec::new();
            if leases.wishes.digest() != digest {
                packed = pack(&leases.wishes)?;
                words.extend([DIGEST.to_vec(), pack(&leases.wishes.digest())?]);
            }
            let gone = before.iter().filter(|(id, _)| leases.get(*id).is_none());
            let gone: Vec<Vec<u8>> = gone.map(|(id, _)| id.0.to_vec()).collect();
            if self.swap(version, packed, &words, &gone)? {
                self.reached = version + 1;
                return Ok((Some(said), leases));
            }
        }
        Err(Error::Unavailable { what: "the leases change all the time", seconds: 0 })
    }

    /// Writes the table if it is still of this version, and waits until the replicas have it. False if it is of another.
    fn swap(&mut self, version: u64, wishes: Vec<u8>, words: &[Vec<u8>], gone: &[Vec<u8>]) -> Result<bool> {
        let mut swap = cmd("EVAL");
        swap.arg(SWAP).arg(2).arg(&self.key).arg(&self.wishes);
        swap.arg(version).arg(wishes).arg(words.len()).arg(words).arg(gone);
        let answer = self.cluster.read([(slot(TAG), swap)])?.pop();
        let is_written = answer == Some(Value::Int(1));
        if is_written {
            self.cluster.flush_reads()?;
        }
        Ok(is_written)
    }

    fn read(&mut self, wishes: &Wishes) -> Result<Table> {
        let get = cmd("HGETALL").arg(&self.key).clone();
        let answer = self.cluster.read([(slot(TAG), get)])?.pop().unwrap_or(Value::Nil);
        let (mut version, mut rest, mut list) = (0, (0, Wall(0)), BTreeMap::new());
        let (mut terms, mut digest) = (None, Wishes::default().digest());
        for (field, value) in fields(answer)? {
            match &field[..] {
                VERSION => {
                    let text = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
                    version = text.ok_or_else(|| senseless("the leases have no version"))?;
                }
                REST => rest = unpack(&value)?,
                TERMS => terms = unpack(&value)?,
                DIGEST => digest = unpack(&value)?,
                id => {
                    let id = AgentId(id.try_into().map_err(|_| senseless("a lease is nobody's"))?);
                    list.insert(id, self.lease(id, &value)?);
                }
            }
        }
        self.held.retain(|id, _| list.contains_key(id));
        let wishes = if digest == wishes.digest() { wishes.clone() } else { self.read_wishes()? };
        Ok(Table { version, digest, leases: Leases::kept(rest.0, rest.1, terms, wishes, list) })
    }

    /// Unpacks a lease.
    fn lease(&mut self, id: AgentId, bytes: &[u8]) -> Result<Lease> {
        let cannot = |_| senseless("a lease cannot be read");
        // Its fields, in their order.
        let ((incarnation, number, member), rest) =
            postcard::take_from_bytes::<(u64, u64, Member)>(bytes).map_err(cannot)?;
        let held = match self.held.get(&id).filter(|(written, _)| written == rest) {
            Some((_, held)) => held.clone(),
            None => {
                let held: Partitions = unpack(rest)?;
                self.held.insert(id, (rest.to_vec(), held.clone()));
                held
            }
        };
        Ok(Lease { incarnation, number, member, held })
    }

    fn read_wishes(&mut self) -> Result<Wishes> {
        let get = cmd("GET").arg(&self.wishes).clone();
        let answer = self.cluster.read([(slot(TAG), get)])?.pop().unwrap_or(Value::Nil);
        bytes(answer)?.map_or_else(|| Ok(Wishes::default()), |wishes| unpack(&wishes))
    }
}
