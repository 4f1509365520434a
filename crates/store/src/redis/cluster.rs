//! The cluster as one thing to talk to: who serves a slot, and what to do when that changes or fails.
//!
//! Reads are answered at once. A commit is a script that checks all before it writes and may be repeated ([`super::commit`]):
//! it is kept until as many replicas as configured have it, and repeated until then. Whatever becomes of servers, the
//! commits of a slot are done in their order, and a read sees what was committed before it.
//!
//! What a client must know of such clusters:
//! - WAIT speaks of what its own connection did, so each primary has one connection, and when that breaks, what was not
//!   waited for is repeated on the next.
//! - While a slot moves, scripts are answered by TRYAGAIN or ASK until all its keys have moved. Nothing is done then but wait:
//!   the commits of that slot are kept, those of others go on. The same holds for slots whose primary is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};

use super::commit::SCRIPT;
use super::link::{Link, LinkOptions};
use super::reached::Reached;
use crate::{Error, Result};
use nephila_core::assign::PARTITIONS;

/// How long a slot that is not served is left alone, at first and later.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long a server may take to say who serves what.
const SLOTS_TIME_MAX: Duration = Duration::from_millis(500);
/// How long is waited for slots that somebody can do without.
const HASTE: Duration = Duration::from_millis(20);
/// How long a server waits for its replicas at a time, if it may take so long to answer.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// A primary whose replicas have not confirmed what it did for so long is not waited for by those whom it does not concern:
const HELD_UP_AFTER: Duration = Duration::from_secs(2);
/// it is asked so often whether they have now.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Commits that are under way before they are waited for,
const COMMITS_MAX: usize = 1_000;
/// and at most, if slots are not served or not confirmed.
const COMMITS_KEPT_MAX: usize = 20_000;
/// What a server says that is not ready for a command now.
/// A server whose memory is full is one of them: what it was told is kept until there is room.
const NOT_NOW: &[&str] =
    &["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "BUSY", "OOM"];
/// What it says of these while a slot moves away from it or to it.
const MOVES: &[&str] = &["ASK", "TRYAGAIN"];
/// Nobody is known to serve a slot.
const NOBODY: u16 = u16::MAX;

/// Where the cluster is and what it is trusted with.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Some of its servers, as `host:port`.
    pub nodes: Vec<String>,
    /// How to talk to them.
    pub link: LinkOptions,
    /// Replicas that must have what is acknowledged.
    pub replicas: u32,
    /// How long to wait for servers that fail over, move slots or cannot be reached. What takes longer fails, changes
    /// nothing, and may be tried again.
    pub patience: Duration,
}

/// How a store in a cluster fares, since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Commits that were made.
    pub commits: u64,
    /// Those that had to be sent again, because nobody knew what had become of them.
    pub repeated: u64,
    /// How long replicas were waited for.
    pub waited: Duration,
    /// Connections that were lost.
    pub lost: u64,
    /// How often slots turned out to be served by another server than before.
    pub moved: u64,
    /// Partitions of which something waits because nobody serves them now.
    pub unserved: u64,
}

/// A command on its way.
struct Sent {
    slot: u16,
    packed: Vec<u8>,
    /// What a commit makes the version of its partition.
    version: u64,
    /// Where the answer to a read goes; a commit has none.
    read: Option<usize>,
}

struct Node {
    address: String,
    link: Option<Link>,
}

/// See the module's documentation.
pub(super) struct Cluster {
    options: ClusterOptions,
    nodes: Vec<Node>,
    /// Who serves each slot.
    slots: Vec<u16>,
    /// The servers that there are, and whether each is a primary.
    servers: Vec<(String, bool)>,
    /// The number of the one that is asked next who serves what.
    asked_next: usize,
    /// Slots that are not served: since when, and until when they are left alone.
    away: HashMap<u16, (Instant, Instant)>,
    /// Primaries whose replicas did not confirm what they did: since when, and when they are asked again.
    alone: BTreeMap<u16, (Instant, Instant)>,
    /// Somebody else may serve a slot now.
    is_stale: bool,
    /// A server that had no room when it was last told something.
    full: Option<String>,
    /// What was refused for good, and not said yet.
    failed: Vec<Error>,
    /// What servers call the script.
    sha: String,
    /// Commits that were not sent,
    unsent: Vec<Sent>,
    /// and those that were done, with who did them, and may not have reached its replicas.
    unwaited: Vec<(u16, Sent)>,
    /// How many of both there were when they were last waited for.
    kept: usize,
    reached: Reached,
    /// Who answered what was last read, and how many connections had been lost before.
    last_read: (BTreeSet<u16>, u64),
    figures: Figures,
}

impl Cluster {
    /// Finds out who serves what.
    pub(super) fn open(options: ClusterOptions) -> Result<Cluster> {
        let nodes =
            options.nodes.iter().map(|address| Node { address: address.clone(), link: None }).collect();
        let slots = vec![NOBODY; usize::from(PARTITIONS)];
        let (servers, sha) = (Vec::new(), String::new());
        let mut cluster = Cluster {
            options,
            nodes,
            slots,
            servers,
            asked_next: 0,
            away: HashMap::new(),
            alone: BTreeMap::new(),
            is_stale: false,
            full: None,
            failed: Vec::new(),
            sha,
            unsent: Vec::new(),
            unwaited: Vec::new(),
            kept: 0,
            reached: Reached::default(),
            last_read: Default::default(),
            figures: Figures::default(),
        };
        cluster.refresh()?;
        Ok(cluster)
    }

    /// What time it is.
    pub(super) fn now(&self) -> Instant {
        self.options.link.now()
    }

    /// Lets some time pass.
    pub(super) fn pause(&self) {
        self.options.link.sleep(PAUSE);
    }

    /// Every server that serves slots or stands by, and whether it is a primary.
    pub(super) fn servers(&self) -> &[(String, bool)] {
        &self.servers
    }

    /// How it fares.
    pub(super) fn figures(&self) -> Figures {
        Figures { unserved: self.away.len() as u64, ..self.figures }
    }

    /// Who serves a slot, by its number.
    pub(super) fn server_of(&self, slot: u16) -> u16 {
        self.slots.get(usize::from(slot)).copied().unwrap_or(NOBODY)
    }

    /// What servers call the script of commits.
    pub(super) fn sha(&self) -> &str {
        &self.sha
    }

    /// Asks things of slots, all at once. Answers are in their order, and never a refusal.
    pub(super) fn read(&mut self, commands: impl IntoIterator<Item = (u16, Cmd)>) -> Result<Vec<Value>> {
        let patience = self.options.patience;
        let answers = self.ask_all(commands, patience)?;
        answers.into_iter().collect::<Option<_>>().ok_or_else(|| self.unavailable("slots are not served"))
    }

    /// The same, but not for long: what is not served now has no answer.
    pub(super) fn read_some(
        &mut self,
        commands: impl IntoIterator<Item = (u16, Cmd)>,
    ) -> Result<Vec<Option<Value>>> {
        self.ask_all(commands, HASTE.min(self.options.patience))
    }

    fn ask_all(
        &mut self,
        commands: impl IntoIterator<Item = (u16, Cmd)>,
        patience: Duration,
    ) -> Result<Vec<Option<Value>>> {
        let mut sent = Vec::new();
        for (slot, command) in commands {
            let packed = command.get_packed_command();
            sent.push(Sent { slot, packed, version: 0, read: Some(sent.len()) });
        }
        self.last_read = (BTreeSet::new(), self.figures.lost);
        let mut answers = vec![None; sent.len()];
        if sent.is_empty() {
            return Ok(answers);
        }
        let until = self.now() + patience;
        loop {
            // A read sees what was committed before it.
            let mut commits = std::mem::take(&mut self.unsent);
            commits.append(&mut sent);
            let held = self.attempt(commits, &mut answers)?;
            let (reads, mut commits): (Vec<Sent>, Vec<Sent>) =
                held.into_iter().partition(|sent| sent.read.is_some());
            self.unsent.append(&mut commits);
            sent = reads;
            let is_away = sent.iter().any(|sent| self.is_away_for(sent.slot, patience));
            if sent.is_empty() || is_away || self.now() >= until {
                return Ok(answers);
            }
            self.pause();
        }
    }

    /// Whether a slot has not been served for so long.
    fn is_away_for(&self, slot: u16, time: Duration) -> bool {
        self.away.get(&slot).is_some_and(|(since, _)| self.now().duration_since(*since) >= time)
    }

    /// Adds a commit to what is on its way: it is done in its turn, and not acknowledged before [`Cluster::confirm`]. It makes
    /// the version of its partition this one.
    pub(super) fn commit(&mut self, slot: u16, version: u64, command: &Cmd) {
        self.figures.commits += 1;
        self.unsent.push(Sent { slot, packed: command.get_packed_command(), version, read: None });
    }

    /// How far partitions were.
    pub(super) fn reached(&self) -> &Reached {
        &self.reached
    }

    /// Notes how far partitions were before this was opened.
    pub(super) fn remember(&mut self, reached: Reached) {
        self.reached.add(reached);
    }

    /// For each server of these slots, one of its slots of which is known how far it was.
    pub(super) fn known_beside(&self, slots: &[u16]) -> Vec<u16> {
        let mut servers: BTreeSet<u16> = slots.iter().map(|slot| self.server_of(*slot)).collect();
        let served = self.reached.slots().filter(|slot| !self.away.contains_key(slot));
        served.filter(|slot| servers.remove(&self.server_of(*slot))).collect()
    }

    /// See [`Reached::check`].
    pub(super) fn check_reached(&mut self, slot: u16, epoch: u64, version: u64) -> Result<()> {
        self.reached.check(slot, epoch, version)
    }

    /// Makes room for another commit. An error if there is none.
    pub(super) fn make_room(&mut self) -> Result<()> {
        if self.unsent.len() + self.unwaited.len() < self.kept + COMMITS_MAX {
            return Ok(());
        }
        self.confirm()?;
        let is_too_much = self.kept >= COMMITS_KEPT_MAX;
        if is_too_much { Err(self.unavailable("slots are not served")) } else { Ok(()) }
    }

    /// Waits until every commit is done and the replicas have it, but for those of slots that are not served, or whose primary
    /// has no replicas for now: they are kept, and named.
    pub(super) fn confirm(&mut self) -> Result<BTreeSet<u16>> {
        let until = self.now() + self.options.patience;
        loop {
            let commits = std::mem::take(&mut self.unsent);
            let mut held = self.attempt(commits, &mut [])?;
            self.unsent.append(&mut held);
            self.wait_for_commits();
            let left: BTreeSet<u16> = self.unsent.iter().map(|sent| sent.slot).collect();
            let waits = self.unwaited.iter().any(|(number, _)| !self.is_server_alone(*number));
            let is_done = !waits && left.iter().all(|slot| self.is_away_for(*slot, HASTE));
            if is_done || self.now() >= until {
                self.kept = self.unsent.len() + self.unwaited.len();
                let unconfirmed = self.unwaited.iter().map(|(_, sent)| sent.slot);
                return Ok(left.into_iter().chain(unconfirmed).collect());
            }
            if !left.is_empty() {
                self.pause();
            }
        }
    }

    /// Asks primaries for the replicas that have what was committed, and those that have none for now whether they have some.
    fn wait_for_commits(&mut self) {
        // Of one that cannot be reached nothing is known; what it is to do is not served.
        self.alone.retain(|number, _| self.nodes[usize::from(*number)].link.is_some());
        let now = self.now();
        let mut numbers: BTreeSet<u16> = self.unwaited.iter().map(|(number, _)| *number).collect();
        numbers.extend(self.alone.keys());
        numbers.retain(|number| {
            !self.is_server_alone(*number) || self.alone.get(number).is_some_and(|(_, next)| now >= *next)
        });
        self.wait(numbers, HASTE);
    }

    /// Whether the replicas of a primary have not confirmed anything for some time.
    fn is_server_alone(&self, number: u16) -> bool {
        self.alone.get(&number).is_some_and(|(since, _)| self.now().duration_since(*since) >= HELD_UP_AFTER)
    }

    /// Whether the primary of a slot has no replicas for now: what is done there is not confirmed.
    pub(super) fn is_alone(&self, slot: u16) -> bool {
        !self.alone.is_empty() && self.is_server_alone(self.server_of(slot))
    }

    /// Where the primaries are that have none.
    pub(super) fn alone(&self) -> Vec<String> {
        let alone = self.alone.keys().filter(|number| self.is_server_alone(**number));
        alone.map(|number| self.nodes[usize::from(*number)].address.clone()).collect()
    }

    /// Waits until every commit is done and the replicas have it.
    pub(super) fn flush(&mut self) -> Result<()> {
        let until = self.now() + self.options.patience;
        while !self.confirm()?.is_empty() {
            if self.now() >= until {
                return Err(self.unavailable("what was written is not confirmed"));
            }
            self.pause();
        }
        Ok(())
    }

    /// Waits until the replicas have what was done by what was last read.
    pub(super) fn flush_reads(&mut self) -> Result<()> {
        let until = self.now() + self.options.patience;
        let (mut numbers, lost) = std::mem::take(&mut self.last_read);
        if self.figures.lost > lost {
            // What was done over a connection that is gone is not waited for over another.
            return Err(self.unavailable("what was written is not confirmed"));
        }
        loop {
            numbers = self.wait(numbers, WAIT_MAX);
            if numbers.is_empty() {
                return Ok(());
            }
            if self.now() >= until {
                return Err(self.unavailable("what was written is not confirmed"));
            }
        }
    }

    /// Asks primaries for their replicas; those that have had none for some time wait for them no longer than this. Gives back
    /// those that lack some.
    fn wait(&mut self, numbers: BTreeSet<u16>, time_max_alone: Duration) -> BTreeSet<u16> {
        let began = self.now();
        // All are asked before any is waited for.
        for number in &numbers {
            let time_max = if self.is_server_alone(*number) { time_max_alone } else { WAIT_MAX };
            let time_max = time_max.min(self.options.link.answer_time_max / 2);
            let mut wait = cmd("WAIT");
            wait.arg(self.options.replicas).arg(time_max.as_millis() as u64);
            let link = self.nodes[usize::from(*number)].link.as_mut();
            if link.is_none_or(|link| link.push(&wait).and_then(|()| link.send()).is_err()) {
                self.lose(*number);
            }
        }
        let mut lacking = BTreeSet::new();
        for number in numbers {
            let answer = self.nodes[usize::from(number)].link.as_mut().map(Link::answer);
            match answer {
                Some(Ok(Value::Int(replicas))) if replicas >= i64::from(self.options.replicas) => {
                    for (_, sent) in self.unwaited.extract_if(.., |(other, _)| *other == number) {
                        self.reached.note(sent.slot, 0, sent.version);
                    }
                    self.alone.remove(&number);
                    continue;
                }
                // Some have not answered in time: they are asked again.
                Some(Ok(Value::Int(_))) => {
                    let now = self.now();
                    self.alone.entry(number).or_insert((began, now)).1 = now + PROBE_EVERY;
                }
                _ => self.lose(number),
            }
            lacking.insert(number);
        }
        self.figures.waited += self.now().duration_since(began);
        lacking
    }

    /// A connection is gone, and with it all knowledge of what was done over it and not waited for.
    fn lose(&mut self, number: u16) {
        self.figures.lost += u64::from(self.nodes[usize::from(number)].link.take().is_some());
        self.is_stale = true;
        let lost = self.unwaited.extract_if(.., |(other, _)| *other == number).map(|(_, sent)| sent);
        let mut again: Vec<Sent> = lost.collect();
        self.figures.repeated += again.len() as u64;
        again.append(&mut self.unsent);
        self.unsent = again;
    }

    /// Sends every command once, those of a slot in their order. Gives back those that have to be sent again; what was lost and
    /// comes before them is in `unsent` then.
    fn attempt(&mut self, sent: Vec<Sent>, answers: &mut [Option<Value>]) -> Result<Vec<Sent>> {
        if self.is_stale {
            // Whoever can be asked says who serves what; otherwise this attempt fails, too.
            self.is_stale = self.refresh().is_err();
        }
        let now = self.now();
        let mut by_node: Vec<Vec<Sent>> = Vec::new();
        by_node.resize_with(self.nodes.len(), Vec::new);
        let mut held = Vec::new();
        for sent in sent {
            if self.away.get(&sent.slot).is_some_and(|(_, until)| now < *until) {
                held.push(sent);
                continue;
            }
            match by_node.get_mut(usize::from(self.slots[usize::from(sent.slot)])) {
                Some(of_node) => of_node.push(sent),
                None => self.hold(sent, &mut held),
            }
        }
        for (number, sent) in by_node.iter().enumerate().filter(|(_, sent)| !sent.is_empty()) {
            if self.send(number, sent).is_err() {
                self.lose(number as u16);
            }
        }
        for (number, sent) in by_node.into_iter().enumerate().filter(|(_, sent)| !sent.is_empty()) {
            self.receive(number as u16, sent, answers, &mut held);
        }
        match self.failed.pop() {
            Some(error) => {
                // Others are not concerned: what they told is kept.
                let commits = held.into_iter().filter(|sent| sent.read.is_none());
                self.unsent.extend(commits);
                Err(error)
            }
            None => Ok(held),
        }
    }

    fn send(&mut self, number: usize, sent: &[Sent]) -> io::Result<()> {
        let node = &mut self.nodes[number];
        if node.link.is_none() {
            let mut link = Link::connect(&node.address, &self.options.link)?;
            // A server forgets scripts when it ends, and a replica never had them. One that is still loading takes none.
            if let Value::ServerError(error) = link.ask(cmd("SCRIPT").arg("LOAD").arg(SCRIPT))? {
                return Err(io::Error::other(error.code().to_owned()));
            }
            node.link = Some(link);
        }
        let Some(link) = &mut node.link else { return Ok(()) };
        for sent in sent {
            link.push_packed(&sent.packed)?;
        }
        link.send()
    }

    /// Takes the answers of a server.
    fn receive(&mut self, number: u16, sent: Vec<Sent>, answers: &mut [Option<Value>], held: &mut Vec<Sent>) {
        let (mut held_slots, mut failed_slots) = (BTreeSet::new(), BTreeSet::new());
        for sent in sent {
            let Some(link) = self.nodes[usize::from(number)].link.as_mut() else {
                self.hold(sent, held);
                continue;
            };
            match link.answer() {
                Err(_) => {
                    self.lose(number);
                    self.hold(sent, held);
                }
                Ok(_) if failed_slots.contains(&sent.slot) => {}
                // What came before it was not done, and so this was not either, or did not see it.
                Ok(_) if held_slots.contains(&sent.slot) => held.push(sent),
                Ok(Value::ServerError(error)) if NOT_NOW.contains(&error.code()) => {
                    held_slots.insert(sent.slot);
                    // The slot may be elsewhere now, and what it was told here may not be.
                    self.take_back(sent.slot);
                    self.is_stale |= !MOVES.contains(&error.code());
                    if error.code() == "OOM" {
                        self.full = Some(self.nodes[usize::from(number)].address.clone());
                    }
                    if error.code() == "MOVED" {
                        // It is served, however long it was not.
                        self.away.remove(&sent.slot);
                    }
                    self.hold(sent, held);
                }
                Ok(Value::ServerError(error)) if error.code() == "NOSCRIPT" => {
                    // It is given the script again with the next connection.
                    held_slots.insert(sent.slot);
                    self.take_back(sent.slot);
                    self.lose(number);
                    self.hold(sent, held);
                }
                Ok(Value::ServerError(error)) => {
                    if error.code() == "BEHIND" && self.take_back(sent.slot) {
                        held_slots.insert(sent.slot);
                        held.push(sent);
                    } else {
                        failed_slots.insert(sent.slot);
                        self.forget(sent.slot);
                        self.failed.push(self.refused(number, sent.slot, &error));
                    }
                }
                Ok(answer) => {
                    self.away.remove(&sent.slot);
                    match sent.read {
                        Some(at) => {
                            answers[at] = Some(answer);
                            self.last_read.0.insert(number);
                        }
                        None => {
                            self.full = None;
                            self.unwaited.push((number, sent));
                        }
                    }
                }
            }
        }
    }

    /// Drops the commits of a slot that is not ours any more.
    pub(super) fn forget(&mut self, slot: u16) {
        self.unsent.retain(|sent| sent.slot != slot);
        self.unwaited.retain(|(_, sent)| sent.slot != slot);
        self.failed.retain(|error| match error {
            Error::Fenced { partition } | Error::WentBack { partition } => *partition != slot,
            _ => true,
        });
    }

    /// Keeps a command for later, because its slot is not served.
    fn hold(&mut self, sent: Sent, held: &mut Vec<Sent>) {
        let now = self.now();
        let (since, until) = self.away.entry(sent.slot).or_insert((now, now));
        // The longer it takes, the less often it is asked for.
        *until = now + (now.duration_since(*since) / 8).clamp(PAUSE, PAUSE_MAX);
        held.push(sent);
    }

    /// Has commits of a slot repeated that were not waited for. Says whether there are any.
    fn take_back(&mut self, slot: u16) -> bool {
        let before = self.unsent.len();
        self.unsent.extend(self.unwaited.extract_if(.., |(_, sent)| sent.slot == slot).map(|(_, sent)| sent));
        self.figures.repeated += (self.unsent.len() - before) as u64;
        self.unsent.len() > before
    }

    fn refused(&self, number: u16, slot: u16, error: &redis::ServerError) -> Error {
        match error.code() {
            "FENCED" => Error::Fenced { partition: slot },
            "BEHIND" => Error::WentBack { partition: slot },
            "WRONGTYPE" => Error::Redis {
                node: self.nodes[usize::from(number)].address.clone(),
                what: format!(
                    "a key of slot {slot} that this crawl has written holds something else now: whoever else uses this \
                     cluster must leave the keys of the crawl alone"
                ),
            },
            code => Error::Redis {
                node: self.nodes[usize::from(number)].address.clone(),
                what: format!("{code} {}", error.details().unwrap_or_default()),
            },
        }
    }

    fn unavailable(&self, what: &'static str) -> Error {
        if let Some(node) = &self.full {
            return Error::StoreFull { node: node.clone() };
        }
        Error::Unavailable { what, seconds: self.options.patience.as_secs() }
    }

    /// Asks one server after another who serves what. Each time another one is the first: one that does not answer is not
    /// waited for again and again, and one that has not heard of a change is not believed for long.
    pub(super) fn refresh(&mut self) -> Result<()> {
        let mut last = Error::Unavailable { what: "no server is named", seconds: 0 };
        let count = self.nodes.len();
        for _ in 0..count {
            let number = self.asked_next % count;
            self.asked_next = number + 1;
            match self.ask_slots(number) {
                Ok(()) => return Ok(()),
                Err(error) => last = Error::of_server(&self.nodes[number].address, &error),
            }
        }
        Err(last)
    }

    fn ask_slots(&mut self, number: usize) -> io::Result<()> {
        let address = self.nodes[number].address.clone();
        // A connection of its own: on the other, answers are in order.
        let answer_time_max = SLOTS_TIME_MAX.min(self.options.link.answer_time_max);
        let options = LinkOptions { answer_time_max, ..self.options.link.clone() };
        let mut link = Link::connect(&address, &options)?;
        if self.sha.is_empty()
            && let Value::BulkString(sha) = link.ask(cmd("SCRIPT").arg("LOAD").arg(SCRIPT))?
        {
            self.sha = String::from_utf8(sha).map_err(io::Error::other)?;
        }
        let answer = link.ask(cmd("CLUSTER").arg("SLOTS"))?;
        let ranges =
            served(&answer, &address).ok_or_else(|| io::Error::other("it is not part of a cluster"))?;
        let mut slots = vec![NOBODY; usize::from(PARTITIONS)];
        for (from, to, address) in ranges {
            let number = match self.nodes.iter().position(|node| node.address == address) {
                Some(number) => number,
                None => {
                    self.nodes.push(Node { address, link: None });
                    self.nodes.len() - 1
                }
            };
            slots[from..=to].fill(number as u16);
        }
        let is_known = self.slots.iter().any(|number| *number != NOBODY);
        self.figures.moved += u64::from(is_known && self.slots != slots);
        self.slots = slots;
        // The other answer leaves out replicas that have nothing yet.
        let nodes = link.ask(cmd("CLUSTER").arg("NODES"))?;
        self.servers = servers(&nodes).ok_or_else(|| io::Error::other("it does not know its cluster"))?;
        Ok(())
    }
}

/// Who serves which slots, from the answer to CLUSTER SLOTS.
fn served(answer: &Value, asked: &str) -> Option<Vec<(usize, usize, String)>> {
    let Value::Array(ranges) = answer else { return None };
    let range = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [Value::Int(from), Value::Int(to), primary, ..] = &range[..] else { return None };
        let (from, to) = (usize::try_from(*from).ok()?, usize::try_from(*to).ok()?);
        (from <= to && to < usize::from(PARTITIONS)).then_some((from, to, address(primary, asked)?))
    };
    ranges.iter().map(range).collect()
}

/// The servers that there are and whether each is a primary, from the answer to CLUSTER NODES.
fn servers(answer: &Value) -> Option<Vec<(String, bool)>> {
    let text = match answer {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::VerbatimString { text, .. } => text,
        _ => return None,
    };
    let mut servers = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ').skip(1);
        let (address, flags) = (words.next()?.split('@').next()?, words.next()?);
        // Those that have failed cannot be asked.
        if !flags.split(',').any(|flag| ["fail", "noaddr", "handshake"].contains(&flag)) {
            // A primary that serves no slots has nothing to lose: five words follow, and then its slots.
            servers.push((address.to_owned(), flags.contains("master") && words.nth(5).is_some()));
        }
    }
    Some(servers)
}

/// Where a server is.
fn address(server: &Value, asked: &str) -> Option<String> {
    let Value::Array(server) = server else { return None };
    let [host, Value::Int(port), ..] = &server[..] else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() => std::str::from_utf8(host).ok()?.to_owned(),
        // Where it was asked.
        _ => asked.rsplit_once(':')?.0.to_owned(),
    };
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    Some(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_what_is_read() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let range = |from, to, host: &str| {
            let primary = Value::Array(vec![text(host), Value::Int(7_000), text("id")]);
            Value::Array(vec![Value::Int(from), Value::Int(to), primary])
        };
        let read = |range| served(&Value::Array(vec![range]), "127.0.0.1:7001");
        for (host, address) in
            [("10.1.1.1", "10.1.1.1:7000"), ("", "127.0.0.1:7000"), ("fd00::1", "[fd00::1]:7000")]
        {
            assert_eq!(read(range(5, 9, host)), Some(vec![(5, 9, address.to_owned())]));
        }
        for senseless in [range(9, 5, "a"), range(0, 16_384, "a"), range(-1, 5, "a"), Value::Nil] {
            assert_eq!(read(senseless), None);
        }
        assert_eq!(served(&Value::Okay, "a:1"), None);
    }

    #[test]
    fn servers_are_read() {
        let nodes = "1a 127.0.0.1:7000@7100 myself,master - 0 0 1 connected 0-16383\n\
                     2b 127.0.0.1:7001@7101,name slave 1a 0 1 1 connected\n\
                     3c 127.0.0.1:7002@7102 master,fail - 0 0 2 disconnected\n\
                     4d 127.0.0.1:7003@7103 master - 0 0 3 connected\n";
        let read = servers(&Value::BulkString(nodes.into())).unwrap();
        let read: Vec<(&str, bool)> =
            read.iter().map(|(address, serves)| (&address[10..], *serves)).collect();
        assert_eq!(read, [("7000", true), ("7001", false), ("7003", false)]);
        assert_eq!(servers(&Value::BulkString(b"1a".to_vec())), None);
    }
}
