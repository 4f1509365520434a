//! What a question needs of the store that agents share, read by connections of its own while the agent goes on.

use std::cmp::Reverse;
use std::collections::HashMap;

use nephila_core::agent::{StoredHost, Totals};
use nephila_core::assign::partition_of;
use nephila_core::frontier::HostMemo;
use nephila_core::record::Record;
use nephila_core::site::AgentId;
use nephila_core::url::{Host, Url, parse_seed};
use nephila_store::redis::{RedisOptions, RedisStore};
use nephila_store::{Error, Known, Result, Store};

use crate::asking::Ask;
use crate::control::HostSort;
use crate::why::{Ledger, is_of};

/// Hosts that are kept of all, the first by what the store says.
const HOSTS_KEPT_MAX: usize = 20_000;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Gathered {
    host: Option<StoredHost>,
    known: Option<(Known, Option<AgentId>)>,
    records: HashMap<u64, (Record, Option<AgentId>)>,
    hosts: Vec<StoredHost>,
    others: u64,
    totals: Option<Totals>,
}

impl Gathered {
    /// For a question that needs nothing else.
    pub(crate) fn counted(totals: Totals) -> Gathered {
        Gathered { totals: Some(totals), ..Gathered::default() }
    }

    /// Reads what a question needs. `places` are those of records that the agent knows of, `held` its partitions.
    pub(crate) fn read(
        options: &RedisOptions,
        ask: &Ask,
        places: Vec<u64>,
        held: Vec<u16>,
    ) -> Result<Gathered> {
        match ask {
            Ask::Why { url } => match parse_seed(url) {
                Ok(url) => Gathered::about(options, &url, places),
                Err(_) => Ok(Gathered::default()),
            },
            Ask::Hosts { limit, sort, name } => {
                let max = (*limit).max(HOSTS_KEPT_MAX);
                Gathered::hosts(options, max, *sort, name.as_deref(), held)
            }
            Ask::Status => {
                let store = RedisStore::open_to_read(&RedisOptions { partitions: held, ..options.clone() })?;
                Ok(Gathered::counted(store.totals()))
            }
            Ask::Host { name } => match Host::parse(name) {
                Some(host) => Gathered::of_host(options, &host),
                None => Ok(Gathered::default()),
            },
            Ask::Had { .. } | Ask::Read { .. } => Ok(Gathered::default()),
        }
    }

    fn of_host(options: &RedisOptions, host: &Host) -> Result<Gathered> {
        let partition = partition_of(host);
        let mut store =
            RedisStore::open_to_read(&RedisOptions { partitions: vec![partition], ..options.clone() })?;
        let mut gathered = Gathered::default();
        if store.holds(partition) {
            gathered.host = store.host(host)?;
        }
        Ok(gathered)
    }

    fn about(options: &RedisOptions, url: &Url, mut places: Vec<u64>) -> Result<Gathered> {
        let host = Host::of(url);
        let partition = partition_of(&host);
        let mut store =
            RedisStore::open_to_read(&RedisOptions { partitions: vec![partition], ..options.clone() })?;
        let mut gathered = Gathered::default();
        if !store.holds(partition) {
            return Ok(gathered);
        }
        gathered.host = store.host(&host)?;
        gathered.known = store.find(url)?;
        if let Some(stored) = &mut gathered.host {
            places.extend(stored.memo.iter().flat_map(HostMemo::places));
            if store.is_under_way(&host)? {
                stored.memo = Some(HostMemo::of_one_under_way(stored.memo.take()));
            }
        }
        for place in places {
            // One that cannot be read is missed when it is needed.
            gathered.records.extend(store.read_record(place).ok().map(|read| (place, read)));
        }
        Ok(gathered)
    }

    fn hosts(
        options: &RedisOptions,
        max: usize,
        sort: HostSort,
        name: Option<&str>,
        held: Vec<u16>,
    ) -> Result<Gathered> {
        let mut store = RedisStore::open_to_read(&RedisOptions { partitions: held, ..options.clone() })?;
        let mut gathered = Gathered::default();
        store.hosts(&mut |stored| {
            if !is_of(stored.host.as_str(), name) {
                return;
            }
            gathered.hosts.push(stored);
            if gathered.hosts.len() >= 2 * max {
                gathered.keep_first(max, sort);
            }
        })?;
        Ok(gathered)
    }

    fn keep_first(&mut self, max: usize, sort: HostSort) {
        match sort {
            HostSort::Name => self.hosts.sort_by(|a, b| a.host.cmp(&b.host)),
            HostSort::Queue => self.hosts.sort_by_key(|stored| Reverse(stored.due)),
            HostSort::Pages => self.hosts.sort_by_key(|stored| Reverse(stored.known - stored.queued)),
            // Those that are left alone or fail are in memory, or have nothing due.
            HostSort::Failures | HostSort::Wait => self.hosts.sort_by_key(|stored| stored.due),
        }
        self.others += self.hosts.len().saturating_sub(max) as u64;
        self.hosts.truncate(max);
    }
}

impl Ledger for Gathered {
    fn host(&mut self, host: &Host) -> Result<Option<StoredHost>> {
        Ok(self.host.take_if(|stored| stored.host == *host))
    }

    fn record(&self, place: u64) -> Result<(Record, Option<AgentId>)> {
        self.records.get(&place).cloned().ok_or(Error::NoRecord { place })
    }

    fn look_up(&mut self, _: &Url) -> Result<Option<(Known, Option<AgentId>)>> {
        Ok(self.known.take())
    }

    fn had(&self, place: u64, _: &Url) -> Result<(Known, Option<AgentId>)> {
        // Whoever has the partition has its records.
        Err(Error::NoRecord { place })
    }

    fn totals(&self) -> Option<&Totals> {
        self.totals.as_ref()
    }

    fn hosts(&mut self, each: &mut dyn FnMut(StoredHost)) -> Result<u64> {
        self.hosts.drain(..).for_each(each);
        Ok(self.others)
    }
}
