//! A Redis Cluster that is simulated, with virtual time, for a store to run on as if it were a real one: what the store writes to
//! its connections are the bytes that a server would read, and it reads those that a server would answer.
//!
//! It is as unkind as the real thing. Replicas come after their primaries, and what one lacks when its primary is lost is gone.
//! WAIT speaks of what its own connection has written. Connections break, before a command is done or after it, so that nobody
//! knows which. Servers refuse, stand still, and are cut off from some of their clients.
//!
//! Scripts are not interpreted: the few that the store has are done here by hand.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nephila_core::assign::{PARTITIONS, slot};
use nephila_store::redis::{ClusterOptions, LinkOptions, RAISE, SWAP, Wire, World};

use super::values::{Answer, Data, Text, Values, is_write};

/// Primaries, each with a replica.
pub const SHARDS: usize = 3;
/// What the script of commits is called: there is but one.
const SHA: &str = "commit";

/// A way to break the servers on purpose, to see whether anybody notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerBug {
    /// Commits are done whatever their epoch and version.
    IgnoresEpochs,
    /// WAIT says that the replica has what it does not have.
    AnswersBeforeTheReplica,
    /// What is found and not admitted is not kept.
    LosesOutboxes,
}

/// What a primary did and its replica may lack: keys and what they hold since.
struct Change {
    at: Duration,
    number: u64,
    keys: Vec<(Text, Option<Arc<Data>>)>,
}

struct Shard {
    values: Values,
    replica: Values,
    /// What the replica lacks.
    behind: VecDeque<Change>,
    /// Writes that were done, and those that the replica has.
    done: u64,
    /// Which of the two servers is the primary.
    primary: usize,
    /// Counts the primaries: connections do not survive one.
    generation: u64,
    /// Nobody serves it until then,
    down_until: Duration,
    /// Whether its two servers have the script of commits: they forget it when they end.
    has_script: [bool; 2],
    /// it refuses everything until then,
    refuses_until: Duration,
    /// and nothing reaches its replica until then.
    frozen_until: Duration,
    /// How long that takes otherwise.
    lag: Duration,
}

struct State {
    now: Duration,
    shards: Vec<Shard>,
    bug: Option<ServerBug>,
    /// Clients that reach no server until then.
    cut: BTreeMap<usize, Duration>,
    /// Of a thousand commands so many break their connection, until then.
    breaking: (u64, Duration),
    chance: u64,
    /// Commands whose answers were lost.
    unknown: u64,
}

/// See the module's documentation.
#[derive(Clone)]
pub struct SimRedis {
    state: Arc<Mutex<State>>,
    base: Instant,
}

impl fmt::Debug for SimRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a simulated cluster")
    }
}

impl SimRedis {
    /// An empty cluster. What is left to chance depends on the seed.
    pub fn new(seed: u64, bug: Option<ServerBug>) -> SimRedis {
        let shard = |number: usize| Shard {
            values: Values::default(),
            replica: Values::default(),
            behind: VecDeque::new(),
            done: 0,
            primary: 0,
            generation: 0,
            down_until: Duration::ZERO,
            has_script: [false; 2],
            refuses_until: Duration::ZERO,
            frozen_until: Duration::ZERO,
            lag: Duration::from_millis([2, 30, 200][(seed as usize + number) % 3]),
        };
        let state = State {
            now: Duration::ZERO,
            shards: (0..SHARDS).map(shard).collect(),
            bug,
            cut: BTreeMap::new(),
            breaking: (0, Duration::ZERO),
            chance: seed,
            unknown: 0,
        };
        SimRedis { state: Arc::new(Mutex::new(state)), base: Instant::now() }
    }

    /// How a client of this number talks to it. It is never waited for: what cannot be done now fails.
    pub fn options(&self, client: usize) -> ClusterOptions {
        let world = Client { cluster: self.clone(), client };
        ClusterOptions {
            nodes: (0..SHARDS).flat_map(|shard| [0, 1].map(|server| address(shard, server))).collect(),
            link: LinkOptions { world: Some(Arc::new(world)), ..LinkOptions::default() },
            replicas: 1,
            patience: Duration::ZERO,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has failed the test.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass until then.
    pub fn set_now(&self, now: Duration) {
        let state = &mut *self.state();
        state.now = now;
        for shard in &mut state.shards {
            shard.replicate(now);
        }
    }

    /// A primary is lost, with all that its replica lacks. Nobody serves its slots for a while, and then its replica does, which
    /// has none itself for a while. Says how many writes are gone.
    pub fn fail_over(&self, shard: usize, down_for: Duration, alone_for: Duration) -> usize {
        let state = &mut *self.state();
        let now = state.now;
        let shard = &mut state.shards[shard];
        let lost = shard.behind.len();
        shard.behind.clear();
        shard.values = shard.replica.clone();
        shard.done += 1;
        shard.has_script[shard.primary] = false;
        shard.primary = 1 - shard.primary;
        shard.generation += 1;
        shard.down_until = now + down_for;
        shard.frozen_until = now + down_for + alone_for;
        lost
    }

    /// Nothing reaches the replica of a shard for so long.
    pub fn freeze(&self, shard: usize, lasts: Duration) {
        let state = &mut *self.state();
        let until = state.now + lasts;
        let frozen = &mut state.shards[shard].frozen_until;
        *frozen = (*frozen).max(until);
    }

    /// A shard refuses everything for so long.
    pub fn refuse(&self, shard: usize, lasts: Duration) {
        let state = &mut *self.state();
        state.shards[shard].refuses_until = state.now + lasts;
        state.shards[shard].has_script = [false; 2];
    }

    /// A client reaches no server for so long.
    pub fn cut(&self, client: usize, lasts: Duration) {
        let state = &mut *self.state();
        let until = state.now + lasts;
        state.cut.insert(client, until);
    }

    /// Of a thousand commands so many break their connection, for so long.
    pub fn break_some(&self, of_thousand: u64, lasts: Duration) {
        let state = &mut *self.state();
        state.breaking = (of_thousand, state.now + lasts);
    }

    /// Whether a replica lacks something.
    pub fn is_behind(&self, shard: usize) -> bool {
        !self.state().shards[shard].behind.is_empty()
    }

    /// How many commands were done and never answered.
    pub fn unknown_outcomes(&self) -> u64 {
        self.state().unknown
    }
}

/// The shard of a slot.
pub fn shard_of(slot: u16) -> usize {
    usize::from(slot) * SHARDS / usize::from(PARTITIONS)
}

fn address(shard: usize, server: usize) -> String {
    format!("10.0.0.{}:{}", shard + 1, 7000 + server)
}

impl Shard {
    fn replicate(&mut self, now: Duration) {
        while let Some(change) = self.behind.front() {
            if now < self.frozen_until || change.at + self.lag > now {
                return;
            }
            self.replicate_one();
        }
    }

    fn replicate_one(&mut self) {
        if let Some(change) = self.behind.pop_front() {
            for (key, data) in change.keys {
                self.replica.put(key, data);
            }
        }
    }

    /// How many replicas have the first so many writes.
    fn wait(&mut self, written: u64, now: Duration) -> i64 {
        while now >= self.frozen_until && self.behind.front().is_some_and(|change| change.number <= written) {
            self.replicate_one();
        }
        i64::from(self.behind.front().is_none_or(|change| change.number > written))
    }
}

impl State {
    /// A number below `end`, by chance.
    fn below(&mut self, end: u64) -> u64 {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % end
    }

    fn is_cut(&self, client: usize) -> bool {
        self.cut.get(&client).is_some_and(|until| self.now < *until)
    }

    fn slots(&self) -> Answer {
        let per = |shard: usize| {
            // See shard_of.
            let first_of = |shard: usize| (shard * usize::from(PARTITIONS)).div_ceil(SHARDS) as i64;
            let (first, last) = (first_of(shard), first_of(shard + 1) - 1);
            let (host, port) = (format!("10.0.0.{}", shard + 1), 7000 + self.shards[shard].primary as i64);
            let primary = Answer::List(vec![Answer::Text(host.into_bytes().into()), Answer::Number(port)]);
            Answer::List(vec![Answer::Number(first), Answer::Number(last), primary])
        };
        Answer::List((0..SHARDS).map(per).collect())
    }

    /// Does a command that came to a server over a connection that has written so much.
    fn command(&mut self, server: (usize, usize), words: &[&[u8]], written: &mut u64) -> Answer {
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        match (word(0), word(1)) {
            (b"SCRIPT", _) => {
                let shard = &mut self.shards[server.0];
                if self.now < shard.down_until || self.now < shard.refuses_until {
                    return Answer::Error("LOADING Redis is loading the dataset in memory".into());
                }
                shard.has_script[server.1] = true;
                return Answer::Text(SHA.as_bytes().into());
            }
            (b"CLUSTER", b"SLOTS") => return self.slots(),
            // Who wants to know all servers only looks at their settings.
            (b"CLUSTER", _) => return Answer::Text(Text::default()),
            (b"WAIT", _) => {
                let now = self.now;
                let replicas = self.shards[server.0].wait(*written, now);
                let lies = self.bug == Some(ServerBug::AnswersBeforeTheReplica);
                return Answer::Number(if lies { 1 } else { replicas });
            }
            _ => {}
        }
        let key = word(if word(0).starts_with(b"EVAL") { 3 } else { 1 });
        let slot = slot_of(key);
        let (now, bug) = (self.now, self.bug);
        let number = shard_of(slot);
        let shard = &mut self.shards[number];
        if (number, shard.primary) != server {
            return Answer::Error(format!("MOVED {slot} {}", address(number, shard.primary)));
        }
        if now < shard.down_until || now < shard.refuses_until {
            return Answer::Error("CLUSTERDOWN the cluster is down".into());
        }
        shard.values.touched.clear();
        let answer = match word(0) {
            b"EVALSHA" if !shard.has_script[server.1] => Answer::Error("NOSCRIPT No matching script.".into()),
            b"EVALSHA" => shard.values.commit(&words[2..], bug),
            b"EVAL" if word(1) == RAISE.as_bytes() => shard.values.raise(key),
            b"EVAL" if word(1) == SWAP.as_bytes() => shard.values.swap(key, word(4), &words[5..]),
            _ if is_write(word(0)) => Answer::Error("ERR nobody writes without a script".into()),
            _ => shard.values.command(words, bug),
        };
        if !shard.values.touched.is_empty() {
            shard.done += 1;
            *written = shard.done;
            let keys = std::mem::take(&mut shard.values.touched);
            let with_data = |key: Text| {
                let data = shard.values.get(&key).cloned();
                (key, data)
            };
            let keys = keys.into_iter().map(with_data).collect();
            shard.behind.push_back(Change { at: now, number: shard.done, keys });
        }
        answer
    }
}

/// The slot of a key: that of what stands in its braces.
fn slot_of(key: &[u8]) -> u16 {
    let text = String::from_utf8_lossy(key);
    let tag = text.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    slot(tag.unwrap_or(&text))
}

/// One client of the cluster.
#[derive(Debug)]
struct Client {
    cluster: SimRedis,
    client: usize,
}

impl World for Client {
    fn connect(&self, node: &str) -> io::Result<Box<dyn Wire>> {
        let state = self.cluster.state();
        let all = (0..SHARDS).flat_map(|shard| [(shard, 0), (shard, 1)]);
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let server =
            all.into_iter().find(|(shard, server)| address(*shard, *server) == node).ok_or_else(refused)?;
        let shard = &state.shards[server.0];
        // The other of the two is the one that was lost.
        if state.is_cut(self.client) || state.now < shard.down_until && server.1 != shard.primary {
            return Err(refused());
        }
        Ok(Box::new(Connection {
            cluster: self.cluster.clone(),
            client: self.client,
            server,
            generation: shard.generation,
            written: 0,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            read: 0,
            is_broken: false,
        }))
    }

    fn now(&self) -> Instant {
        self.cluster.base + self.cluster.state().now
    }
}

struct Connection {
    cluster: SimRedis,
    client: usize,
    server: (usize, usize),
    generation: u64,
    /// The number of the last write that was made over it.
    written: u64,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// So much of it was read.
    read: usize,
    is_broken: bool,
}

impl Wire for Connection {}

impl Connection {
    fn is_lost(&self, state: &State) -> bool {
        self.is_broken
            || state.is_cut(self.client)
            || state.shards[self.server.0].generation != self.generation
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.incoming.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let cluster = self.cluster.clone();
        let state = &mut *cluster.state();
        let incoming = std::mem::take(&mut self.incoming);
        let mut at = 0;
        while let Some((words, end)) = read_command(&incoming[at..]) {
            if self.is_lost(state) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let breaks = state.now < state.breaking.1 && state.below(1_000) < state.breaking.0;
            let is_done = !breaks || state.below(2) == 0;
            if is_done {
                state.command(self.server, &words, &mut self.written).write_to(&mut self.outgoing);
            }
            if breaks {
                state.unknown += u64::from(is_done);
                self.is_broken = true;
                self.outgoing.clear();
                self.read = 0;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            at += end;
        }
        self.incoming.extend_from_slice(&incoming[at..]);
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_lost(&self.cluster.state()) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if self.read == self.outgoing.len() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let count = (&self.outgoing[self.read..]).read(buffer)?;
        self.read += count;
        if self.read == self.outgoing.len() {
            self.outgoing.clear();
            self.read = 0;
        }
        Ok(count)
    }
}

/// The first command of what was sent, and how long it is.
fn read_command(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let mut at = 0;
    // Behind what kind of line it is there is a number.
    let line = |at: &mut usize| {
        let rest = bytes.get(*at + 1..)?;
        let end = rest.iter().position(|byte| *byte == b'\r')?;
        *at += end + 3;
        rest[..end]
            .iter()
            .try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + usize::from(digit - b'0')))
    };
    if bytes.is_empty() {
        return None;
    }
    let count = line(&mut at)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = line(&mut at)?;
        words.push(bytes.get(at..at + length)?);
        at += length + 2;
    }
    Some((words, at))
}
