//! The store that the agents of a site share: a Redis or Valkey Cluster.
//!
//! `docs/redis.md` says what lies where and why. In short: a partition is held by one agent at a time, which alone writes to it,
//! in commits that check the partition's epoch and version, write all or nothing, and may be repeated ([`commit`]). So
//! all is decided on this side, from what was read, and a server only looks up, compares two numbers and writes.
//!
//! A record is durable once it is [appended](RedisStore::append) and [flushed](RedisStore::flush). In the same commit the URL
//! that it settles changes its state, and what it found goes to the outbox of its partition, from where [`Store::admit`]
//! brings it to its hosts. What is still there when a store is opened is admitted then.
//!
//! # Invariants
//! Those of every [`Store`], for the partitions that it was opened for, and:
//! - What was flushed is in the memory of as many replicas as configured, and handed to the log of its primary.
//! - Who has opened a partition since has fenced us: every commit to it fails ([`Error::Fenced`]).
//! - Nothing that a command touches is longer than 64 KB, but for what was handed over and not settled.

mod admitting;
mod answers;
mod asking;
mod cluster;
mod commit;
mod copying;
mod keys;
mod leases;
mod link;
mod lists;
mod looking_back;
mod moving;
mod reached;
mod safety;
mod servers;
mod settling;
mod taking;
mod values;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use nephila_core::agent::{Admitted, Due, OverLimit, Stored, StoredHost, Taken, Totals, Visited};
use nephila_core::frontier::HostMemo;
use nephila_core::record::{Found, Record, Settled};
use nephila_core::site::{AgentId, Partitions};
use nephila_core::time::Wall;
use nephila_core::url::{Host, Url};

use self::admitting::Offer;
use self::cluster::Cluster;
use self::commit::Plan;
use self::keys::Keys;
use self::values::{
    Entry, HostRecord, Partition, Seen, Sums, bytes, list, pack, partition_and_number, place_of, senseless,
    unpack,
};
use crate::recent::Recent;
use crate::{Error, Known, Result, Store, StoreLimits};
use nephila_core::assign::partition_of;

pub use self::cluster::{ClusterOptions, Figures};
pub use self::copying::{Copies, CopyNote, RedisCopy};
pub use self::leases::{RedisLeases, SWAP};
pub use self::link::{Link, LinkOptions, Login, Wire, World};
pub use self::reached::Reached;
pub use self::servers::{RedisServers, ServerFigures};
pub use redis::{Cmd, Value, cmd};

/// Hosts whose records are kept here, too.
const HOSTS_MAX: usize = 20_000;
/// Pages whose addresses are.
const PAGES_MAX: usize = 10_000;
/// The field of a partition with what was counted in it.
const TOTALS: &[u8] = b"t";
/// Raises the epoch of a partition, and says what it holds.
pub const RAISE: &str = "\
redis.call('HSETNX', KEYS[1], 'v', 0)
redis.call('HINCRBY', KEYS[1], 'e', 1)
return redis.call('HMGET', KEYS[1], 'e', 'v', 's', 't')
";

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The cluster.
    pub cluster: ClusterOptions,
    /// The name of the crawl: what its keys begin with.
    pub crawl: String,
    /// The partitions that are held from now on.
    pub partitions: Vec<u16>,
    /// What admission stops at. URLs are counted over these partitions.
    pub limits: StoreLimits,
    /// Who writes, and so has the captures that its records speak of.
    pub writer: AgentId,
    /// Settings of the servers that would lose data are accepted. For experiments.
    pub accepts_unsafe: bool,
    /// What texts are hashed with that were met lately. Nobody outside may know it; drawn if it is not given.
    pub hash_key: Option<u64>,
}

/// See the module's documentation.
pub struct RedisStore {
    /// Behind a cell because records are read by whoever may not change anything.
    cluster: RefCell<Cluster>,
    keys: Keys,
    limits: StoreLimits,
    writer: AgentId,
    patience: Duration,
    /// Nothing is held, and nothing may be written.
    reads_only: bool,
    partitions: BTreeMap<u16, Partition>,
    /// What was counted in each of them that something was counted in.
    totals: BTreeMap<u16, Totals>,
    /// Records that are written are counted.
    counts: bool,
    hosts: HashMap<Host, HostRecord>,
    /// What they come to.
    total: Sums,
    /// Offers that are not decided, and how many of each record.
    offers: Vec<Offer>,
    undecided: HashMap<u64, usize>,
    /// Offers that are decided, by commits that are not confirmed: until then they stay in their outboxes.
    decided: Vec<Offer>,
    /// What was found of hosts of partitions that others hold, with the places of the records.
    elsewhere: VecDeque<(u64, Found)>,
    /// Those of them that could not be decided when that was last tried.
    offers_left: usize,
    /// The partitions of these.
    left_of: BTreeSet<u16>,
    /// Parts of their outboxes, where there are several.
    parts: HashMap<u64, usize>,
    /// Records that found something, since it was opened.
    appended: u64,
    /// What has been decided and not said.
    said: Admitted,
    recent: Recent,
    /// What was taken and not handed over, because that was not confirmed.
    handed: HashMap<Host, Taken>,
    /// What is known of URLs that are about to be settled, and whether they were handed over.
    looked_up: HashMap<[u8; 12], (Option<Seen>, Option<Entry>)>,
    /// The pages of records that were asked for lately.
    pages: HashMap<u64, Option<String>>,
    /// Of partitions, who has archived something of them.
    writers: RefCell<HashMap<u16, Vec<AgentId>>>,
    /// Where the round goes on: a partition, and a host of it.
    hand: (u16, u64),
}

impl RedisStore {
    /// Checks the servers' settings, takes the partitions over, and admits what was found and not admitted before.
    pub fn open(options: &RedisOptions) -> Result<RedisStore> {
        let cluster = Cluster::open(options.cluster.clone())?;
        if !options.accepts_unsafe {
            safety::check(cluster.servers(), &options.cluster)?;
        }
        let mut store = RedisStore::new(cluster, options);
        store.take_over(&options.partitions)?;
        Ok(store)
    }

    /// Opens it for questions about hosts of these partitions, whoever holds them. What has been read is not read again, so ask
    /// soon. Nothing may be asked for that changes something.
    pub fn open_to_read(options: &RedisOptions) -> Result<RedisStore> {
        let mut store = RedisStore::new(Cluster::open(options.cluster.clone())?, options);
        store.reads_only = true;
        let get = |number: &u16| {
            (*number, cmd("HMGET").arg(store.keys.partition(*number)).arg(&["e", "v", "s", "t"]).clone())
        };
        let commands: Vec<_> = options.partitions.iter().map(get).collect();
        let answers = store.cluster.get_mut().read(commands)?;
        for (number, answer) in options.partitions.iter().zip(answers) {
            // Nobody has written to one that has no number.
            if let Ok((partition, totals)) = held(answer) {
                store.partitions.insert(*number, partition);
                store.totals.extend(totals.map(|totals| (*number, totals)));
            }
        }
        Ok(store)
    }

    fn new(cluster: Cluster, options: &RedisOptions) -> RedisStore {
        RedisStore {
            cluster: RefCell::new(cluster),
            keys: Keys::new(&options.crawl),
            limits: options.limits,
            writer: options.writer,
            patience: options.cluster.patience,
            reads_only: false,
            partitions: BTreeMap::new(),
            totals: BTreeMap::new(),
            counts: true,
            hosts: HashMap::new(),
            total: Sums::default(),
            offers: Vec::new(),
            elsewhere: VecDeque::new(),
            undecided: HashMap::new(),
            decided: Vec::new(),
            offers_left: 0,
            left_of: BTreeSet::new(),
            parts: HashMap::new(),
            appended: 0,
            said: Admitted::default(),
            // The hash keys of the standard library are random.
            recent: Recent::new(options.hash_key.unwrap_or_else(|| RandomState::new().hash_one(0))),
            handed: HashMap::new(),
            looked_up: HashMap::new(),
            pages: HashMap::new(),
            writers: RefCell::default(),
            hand: (0, 0),
        }
    }

    /// How it fares.
    pub fn figures(&self) -> Figures {
        let cluster = self.cluster.borrow();
        let figures = cluster.figures();
        let alone = self.partitions.keys().filter(|number| cluster.is_alone(**number)).count() as u64;
        Figures { unserved: figures.unserved + alone, ..figures }
    }

    /// Where the primaries are whose replicas have not confirmed anything for some seconds. What concerns their partitions waits,
    /// so that little is done that may be lost, and the rest does not wait for it.
    pub fn alone(&self) -> Vec<String> {
        self.cluster.borrow().alone()
    }

    /// All partitions of these.
    pub fn unconfirmed(&self) -> Partitions {
        let cluster = self.cluster.borrow();
        match cluster.alone().is_empty() {
            true => Partitions::default(),
            false => Partitions::all().iter().filter(|number| cluster.is_alone(*number)).collect(),
        }
    }

    /// The server that serves a partition, as far as is known: what one server does not do now need not be asked of it again for
    /// another partition.
    pub fn server_of(&self, partition: u16) -> u16 {
        self.cluster.borrow().server_of(partition)
    }

    /// How far partitions were, as was confirmed to this process.
    pub fn reached(&self) -> Reached {
        self.cluster.borrow().reached().clone()
    }

    /// Is told that, by whoever had the store open before: a partition that is taken over and is not so far any more is
    /// [lost](Error::Lost).
    pub fn remember(&mut self, reached: Reached) {
        self.cluster.get_mut().remember(reached);
    }

    /// Takes partitions over from whoever had them, and admits what was found there and not admitted.
    pub fn take_over(&mut self, partitions: &[u16]) -> Result<()> {
        self.refuse_alone(partitions)?;
        let raise = |number: &u16| {
            let mut raise = cmd("EVAL");
            raise.arg(RAISE).arg(1).arg(self.keys.partition(*number));
            (*number, raise)
        };
        let mut commands: Vec<_> = partitions.iter().map(raise).collect();
        // Who has emptied one of them has emptied its server.
        let beside = self.cluster.get_mut().known_beside(partitions);
        let look =
            |number: &u16| (*number, cmd("HMGET").arg(self.keys.partition(*number)).arg(&["e", "v"]).clone());
        commands.extend(beside.iter().map(look));
        let cluster = self.cluster.get_mut();
        let mut answers = cluster.read(commands)?;
        cluster.flush_reads()?;
        let answers_beside = answers.split_off(partitions.len());
        for (number, answer) in partitions.iter().zip(answers) {
            self.let_go_now(*number);
            let (partition, totals) = held(answer)?;
            let Partition { epoch, version, .. } = partition;
            // It was raised by one.
            self.cluster.get_mut().check_reached(*number, epoch.saturating_sub(1), version)?;
            self.cluster.get_mut().check_reached(*number, epoch, version)?;
            self.total.add(&partition.sums);
            self.partitions.insert(*number, partition);
            self.totals.extend(totals.map(|totals| (*number, totals)));
        }
        for (number, answer) in beside.into_iter().zip(answers_beside) {
            let (epoch, version) = held(answer).map_or((0, 0), |(held, _)| (held.epoch, held.version));
            self.cluster.get_mut().check_reached(number, epoch, version)?;
        }
        self.readmit(partitions)?;
        self.empty_outboxes(partitions)?;
        self.flush_partitions(partitions)
    }

    /// Lets a partition go, after all that was done in it is durable: somebody else may take it over then.
    pub fn let_go(&mut self, partition: u16) -> Result<()> {
        self.flush_partitions(&[partition])?;
        self.let_go_now(partition);
        Ok(())
    }

    /// Forgets a partition that somebody else has taken over.
    pub fn let_go_now(&mut self, partition: u16) {
        let Some(Partition { sums, .. }) = self.partitions.remove(&partition) else { return };
        self.total.subtract(&sums);
        self.totals.remove(&partition);
        self.cluster.get_mut().forget(partition);
        self.writers.get_mut().remove(&partition);
        self.hosts.retain(|host, _| partition_of(host) != partition);
        self.handed.retain(|host, _| partition_of(host) != partition);
        // What its records found is in its outbox, and whose it is now will offer it.
        let is_its = |place: u64| partition_and_number(place).0 == partition;
        self.undecided.retain(|place, _| !is_its(*place));
        self.parts.retain(|place, _| !is_its(*place));
        self.elsewhere.retain(|(place, _)| !is_its(*place));
        for offers in [&mut self.decided, &mut self.offers] {
            offers.retain(|offer| !is_its(offer.place));
            let moved = offers.extract_if(.., |offer| partition_of(&offer.host) == partition);
            self.elsewhere.extend(moved.map(|offer| (offer.place, offer.found)));
        }
        // What others found they send to whoever has it now.
        self.elsewhere.retain(|(place, _)| self.undecided.contains_key(place));
    }

    /// Whether a partition is held, as far as is known here.
    pub fn holds(&self, partition: u16) -> bool {
        self.partitions.contains_key(&partition)
    }

    /// The partitions that somebody else has taken over since. To be asked when what is read makes no sense: it may be another's.
    pub fn taken_over(&mut self) -> Result<Vec<u16>> {
        let get = |number: &u16| (*number, cmd("HGET").arg(self.keys.partition(*number)).arg("e").clone());
        let commands: Vec<_> = self.partitions.keys().map(get).collect();
        let answers = self.cluster.get_mut().read(commands)?;
        let mut taken = Vec::new();
        for ((number, held), answer) in self.partitions.iter().zip(answers) {
            if bytes(answer)?.as_deref() != Some(held.epoch.to_string().as_bytes()) {
                taken.push(*number);
            }
        }
        Ok(taken)
    }

    /// Waits until all that was appended, and everything else that was done, is durable.
    pub fn flush(&mut self) -> Result<()> {
        self.cluster.get_mut().flush()?;
        self.empty_decided(&BTreeSet::new())?;
        self.cluster.get_mut().flush()
    }

    fn partition(&self, number: u16) -> Result<&Partition> {
        self.partitions.get(&number).ok_or(Error::Fenced { partition: number })
    }

    /// The same, but only for partitions that are served: gives back those whose commits are not confirmed yet. What was
    /// appended to one of them is not durable, and will be when it is not among them any more.
    pub fn confirm(&mut self) -> Result<BTreeSet<u16>> {
        let unconfirmed = self.cluster.get_mut().confirm()?;
        self.empty_decided(&unconfirmed)?;
        Ok(unconfirmed)
    }

    /// Whether a host was marked before this store was opened, and nothing has been fetched since: who did so may still be at it,
    /// and has to be given the time that a fetch may take, from the moment of the opening.
    pub fn is_under_way(&mut self, host: &Host) -> Result<bool> {
        Ok(self.loaded(host)?.is_under_way)
    }

    /// Notes that a host is about to be asked: for whoever takes it over, something is under way. That holds from when it is
    /// [confirmed](RedisStore::confirm) until something is [kept](Store::keep) of it.
    pub fn mark(&mut self, host: &Host) -> Result<()> {
        let record = self.loaded(host)?;
        if record.is_marked {
            return Ok(());
        }
        let record = HostRecord { is_marked: true, ..record };
        self.commit(partition_of(host), Plan::default(), vec![(host.clone(), record)])
    }

    /// Keeps something of a host that is about to be asked, or is: if it is marked, it stays so.
    pub fn keep_marked(&mut self, host: &Host, memo: Option<&HostMemo>) -> Result<()> {
        let mut record = self.loaded(host)?;
        (record.memo, record.away_until, record.is_kept) = (memo.cloned(), 0, true);
        self.commit(partition_of(host), Plan::default(), vec![(host.clone(), record)])
    }

    /// Waits until what was done in these partitions is durable.
    fn flush_partitions(&mut self, numbers: &[u16]) -> Result<()> {
        let until = self.cluster.get_mut().now() + self.patience;
        loop {
            let unconfirmed = self.confirm()?;
            let left: Vec<u16> =
                numbers.iter().copied().filter(|number| unconfirmed.contains(number)).collect();
            if left.is_empty() {
                return Ok(());
            }
            self.refuse_alone(&left)?;
            if self.cluster.get_mut().now() >= until {
                let what = "what was written is not confirmed";
                return Err(Error::Unavailable { what, seconds: self.patience.as_secs() });
            }
            self.cluster.get_mut().pause();
        }
    }

    /// What has to be confirmed is not begun where that takes long.
    fn refuse_alone(&mut self, numbers: &[u16]) -> Result<()> {
        let cluster = self.cluster.get_mut();
        match numbers.iter().any(|number| cluster.is_alone(*number)) {
            true => Err(Error::Unavailable { what: "what was written is not confirmed", seconds: 0 }),
            false => Ok(()),
        }
    }

    /// The records of hosts. What was taken of them in an earlier epoch is due again then.
    fn load(&mut self, hosts: &[Host]) -> Result<()> {
        let (missing, commands) = self.missing(hosts);
        let answers = self.cluster.get_mut().read(commands)?;
        missing.into_iter().zip(answers).try_for_each(|(host, answer)| self.keep_record(host, answer))
    }

    /// The same, if their slots are served. Gives back those that are not there.
    fn load_some(&mut self, hosts: &[Host]) -> Result<HashSet<Host>> {
        let (missing, commands) = self.missing(hosts);
        let answers = self.cluster.get_mut().read_some(commands)?;
        let mut unserved = HashSet::new();
        for (host, answer) in missing.into_iter().zip(answers) {
            let kept = match answer {
                Some(answer) => self.keep_record(host.clone(), answer),
                None => Err(Error::Unavailable { what: "slots are not served", seconds: 0 }),
            };
            match kept {
                Err(Error::Unavailable { .. }) => {
                    self.hosts.remove(&host);
                    unserved.insert(host);
                }
                kept => kept?,
            }
        }
        Ok(unserved)
    }

    fn missing(&mut self, hosts: &[Host]) -> (Vec<Host>, Vec<(u16, Cmd)>) {
        if self.hosts.len() + hosts.len() > HOSTS_MAX {
            // All that is in them is committed.
            self.hosts.clear();
        }
        let missing: Vec<Host> =
            hosts.iter().filter(|host| !self.hosts.contains_key(*host)).cloned().collect();
        let get = |host: &Host| (partition_of(host), cmd("GET").arg(self.keys.host(host)).clone());
        let commands = missing.iter().map(get).collect();
        (missing, commands)
    }

    fn keep_record(&mut self, host: Host, answer: Value) -> Result<()> {
        let epoch = self.partition(partition_of(&host))?.epoch;
        let mut record = match bytes(answer)? {
            Some(bytes) => unpack(&bytes)?,
            None => HostRecord { epoch, is_new: true, ..HostRecord::default() },
        };
        let mut is_again = record.epoch != epoch && (record.taken > 0 || record.is_marked);
        if self.reads_only {
            record.is_under_way |= std::mem::take(&mut is_again) && record.is_marked;
        }
        self.hosts.insert(host.clone(), record);
        let put_back = if is_again { self.put_all_back(&host) } else { Ok(()) };
        if put_back.is_err() {
            // It is loaded again when that can be done.
            self.hosts.remove(&host);
        }
        put_back
    }

    /// A host's record, to be changed and then [committed](RedisStore::commit).
    fn loaded(&mut self, host: &Host) -> Result<HostRecord> {
        self.load(std::slice::from_ref(host))?;
        self.hosts.get(host).cloned().ok_or_else(|| senseless("a host is missing"))
    }

    /// Commits a plan of a partition together with the records of hosts of it. After an error nothing of it was done.
    fn commit(&mut self, number: u16, mut plan: Plan, changed: Vec<(Host, HostRecord)>) -> Result<()> {
        self.cluster.get_mut().make_room()?;
        let mut partition = *self.partition(number)?;
        for sums in [&mut partition.sums, &mut self.total] {
            sums.add(&plan.added);
            sums.subtract(&plan.removed);
        }
        for (host, record) in &changed {
            if record.is_new {
                let chunk = partition.sums.names / values::CHUNK_ENTRIES as u64;
                plan.push(self.keys.names(number, chunk), vec![host.as_str().as_bytes().to_vec()]);
                partition.sums.names += 1;
            }
            if record.counts() && !self.hosts.get(host).is_some_and(HostRecord::counts) {
                partition.sums.hosts += 1;
                self.total.hosts += 1;
            }
            plan.set(self.keys.host(host), pack(&HostRecord { epoch: partition.epoch, ..record.clone() })?);
        }
        let sums = pack(&partition.sums)?;
        let key = self.keys.partition(number);
        let command =
            plan.command(self.cluster.get_mut().sha(), &key, partition.epoch, partition.version, &sums);
        partition.version += 1;
        let version = partition.version;
        self.partitions.insert(number, partition);
        for (host, record) in changed {
            self.hosts.insert(host, HostRecord { epoch: partition.epoch, is_new: false, ..record });
        }
        self.cluster.get_mut().commit(number, version, &command);
        Ok(())
    }

    /// Changes what was counted in a partition.
    fn plan_totals(&mut self, number: u16, plan: &mut Plan, change: impl FnOnce(&mut Totals)) -> Result<()> {
        let totals = self.totals.entry(number).or_default();
        change(totals);
        plan.set_field(self.keys.partition(number), TOTALS, pack(totals)?);
        Ok(())
    }

    /// What was ever counted in the partitions that are held, or were when it was opened to be read: pages, bytes and so on.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        self.totals.values().for_each(|totals| sum.add(totals));
        sum
    }

    /// What has been decided since that was last said.
    pub fn news(&mut self) -> Admitted {
        let said = std::mem::take(&mut self.said);
        Admitted { undecided: self.offers.len() as u64, hosts: self.total.hosts, ..said }
    }
}

/// A partition and what was counted in it, from the answer to [`RAISE`].
fn held(answer: Value) -> Result<(Partition, Option<Totals>)> {
    let mut parts = list(answer)?.into_iter();
    let mut next = || parts.next().map_or(Ok(None), bytes);
    let number = |bytes: Option<Vec<u8>>| {
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.and_then(|text| text.parse().ok()).ok_or_else(|| senseless("a partition has no number"))
    };
    let (epoch, version) = (number(next()?)?, number(next()?)?);
    let sums = next()?.map_or(Ok(Sums::default()), |bytes| unpack(&bytes))?;
    let totals = next()?.map(|bytes| unpack(&bytes)).transpose()?;
    Ok((Partition { epoch, version, sums }, totals))
}

impl Store for RedisStore {
    fn prune(&mut self, record: &mut Record) {
        self.recent.prune(record);
    }

    /// Which partitions are open it knows itself.
    fn admit(&mut self, place: u64, record: &Record, _: Option<&Partitions>) -> Result<Admitted> {
        if !self.partitions.contains_key(&partition_and_number(place).0) {
            // Whoever has its partition now has what it found.
            return Ok(self.news());
        }
        if self.offers_left.max(self.elsewhere.len()) >= admitting::OFFERS_LEFT_MAX {
            self.decide_offers()?;
            if self.offers_left.max(self.elsewhere.len()) >= admitting::OFFERS_LEFT_MAX {
                return Err(Error::Unavailable {
                    what: "too much that was found waits for others",
                    seconds: 0,
                });
            }
        }
        for found in record.found() {
            self.recent.add(self.recent.print(&found.url), found.depth);
        }
        self.offer_all(place, record.found());
        if self.offers.len() >= self.offers_left + admitting::OFFERS_MAX {
            self.decide_offers()?;
        }
        Ok(self.news())
    }

    fn decide(&mut self) -> Result<Admitted> {
        self.decide_offers()?;
        Ok(self.news())
    }

    fn decide_host(&mut self, _: &Host) -> Result<Admitted> {
        self.decide()
    }

    fn settle(&mut self, _: u64, _: &Settled) -> Result<Admitted> {
        // Its URL was settled when the record was appended.
        Ok(self.news())
    }

    fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken> {
        self.take_of(host, max, fresh_first, now)
    }

    fn put_back(&mut self, host: &Host, due: &[Due]) -> Result<()> {
        self.put_back_of(host, due)
    }

    fn keep(&mut self, host: &Host, memo: Option<&HostMemo>, away_until: Wall) -> Result<()> {
        let mut record = self.loaded(host)?;
        (record.memo, record.away_until, record.is_kept) = (memo.cloned(), away_until.0, true);
        record.is_marked = false;
        self.commit(partition_of(host), Plan::default(), vec![(host.clone(), record)])
    }

    fn visit(&mut self, now: Wall, max: usize) -> Result<Visited> {
        self.go_round(now, max)
    }

    fn record(&self, place: u64) -> Result<Record> {
        Ok(self.read_record(place)?.0)
    }

    fn look_up(&mut self, url: &Url) -> Result<Option<Known>> {
        Ok(self.find(url)?.map(|(known, _)| known))
    }

    fn host(&mut self, host: &Host) -> Result<Option<StoredHost>> {
        let record = self.loaded(host)?;
        let epoch = self.partition(partition_of(host))?.epoch;
        Ok(record.counts().then(|| record.stored(host.clone(), epoch)))
    }

    fn hosts(&mut self, each: &mut dyn FnMut(StoredHost)) -> Result<()> {
        self.each_host(each)
    }

    fn stored(&self) -> Stored {
        Stored {
            known: self.total.known,
            queued: self.total.known.saturating_sub(self.total.settled),
            hosts: self.total.hosts,
            undecided: self.offers.len() as u64,
            kept_out: OverLimit::from(self.total.over),
        }
    }
}
