//! The thread of an agent that talks to the store: does what it is told in its order, tries again later what cannot be done now,
//! and says what has become durable. What concerns one shard waits for it, and the rest goes on.

use std::collections::{BTreeSet, VecDeque};

use nephila_core::agent::{Due, Event, SharedEvent, Ticket};
use nephila_core::assign::{PARTITIONS, partition_of};
use nephila_core::frontier::HostMemo;
use nephila_core::record::{Found, Record, RobotsOutcome};
use nephila_core::site::AgentId;
use nephila_core::time::Wall;
use nephila_core::url::{Host, identify};
use nephila_store::redis::{RedisOptions, RedisStore};
use nephila_store::{Error, Store};

use crate::redis::simulated::shard_of;

/// Something that is to be done.
pub(super) enum Task {
    Write { ticket: Ticket, record: Box<Record> },
    Take { host: Host, max: usize, fresh_first: bool },
    PutBack { host: Host, due: Vec<Due> },
    Keep { host: Host, memo: Option<Box<HostMemo>>, away_until: Wall },
    Mark { host: Host },
    Recall { host: Host, place: u64 },
    Visit { max: usize },
    Admit { place: u64, record: Box<Record> },
    Decide,
    TakeOver { incarnation: u64, partitions: Vec<u16> },
    LetGo { incarnation: u64, partitions: Vec<u16>, gone: usize },
    TakeElsewhere { max: usize },
    Offer { from: AgentId, batch: (u64, u64), found: Vec<(u64, Found)>, is_offered: bool },
    Acknowledge { places: Vec<u64> },
}

impl Task {
    /// The partition that it is of.
    fn partition(&self) -> Option<u16> {
        match self {
            Task::Write { record, .. } => {
                let host = match &**record {
                    Record::Settled(settled) => identify(&settled.url).map(|(host, _)| host),
                    Record::Robots(robots) if robots.outcome == RobotsOutcome::ForAnother => {
                        identify(&robots.url).map(|(host, _)| host)
                    }
                    Record::Robots(robots) => Some(robots.origin.host.clone()),
                    _ => None,
                };
                host.map(|host| partition_of(&host))
            }
            Task::Take { host, .. }
            | Task::PutBack { host, .. }
            | Task::Keep { host, .. }
            | Task::Mark { host } => Some(partition_of(host)),
            Task::Recall { place, .. } => Some((place % u64::from(PARTITIONS)) as u16),
            Task::TakeOver { partitions, .. } | Task::LetGo { partitions, .. } => partitions.first().copied(),
            _ => None,
        }
    }
}

/// See the module's documentation.
pub(super) struct Keeper {
    options: RedisOptions,
    store: Option<RedisStore>,
    tasks: VecDeque<Task>,
    /// Records that were written and are not known to be durable, with their places.
    written: VecDeque<(Ticket, u64, Box<Record>)>,
    /// What the agent is told.
    pub(super) said: VecDeque<Event>,
    /// What has become durable.
    pub(super) durable: Vec<(Ticket, u64, Box<Record>)>,
    /// What has not, and never will.
    pub(super) refused: Vec<Ticket>,
    /// Partitions that were taken over.
    pub(super) took_over: Vec<u16>,
    /// Hosts that something was under way for when they came.
    pub(super) under_way: u64,
    /// A server has lost what it had acknowledged.
    pub(super) broken: Option<String>,
    /// Nobody says what hosts have asked for, and that they may still be asked.
    pub(super) forgets: bool,
}

impl Keeper {
    pub(super) fn new(options: RedisOptions, forgets: bool) -> Keeper {
        Keeper {
            options,
            store: None,
            tasks: VecDeque::new(),
            written: VecDeque::new(),
            said: VecDeque::new(),
            durable: Vec::new(),
            refused: Vec::new(),
            took_over: Vec::new(),
            under_way: 0,
            broken: None,
            forgets,
        }
    }

    pub(super) fn push(&mut self, task: Task) {
        match task {
            // Each shard on its own: one that is away does not hold up the others.
            Task::TakeOver { incarnation, partitions } => {
                for partitions in by_shard(partitions) {
                    self.tasks.push_back(Task::TakeOver { incarnation, partitions });
                }
            }
            Task::LetGo { incarnation, partitions, gone } => {
                for partitions in by_shard(partitions) {
                    self.tasks.push_back(Task::LetGo { incarnation, partitions, gone });
                }
            }
            task => self.tasks.push_back(task),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.written.is_empty()
    }

    pub(super) fn store(&mut self) -> Option<&mut RedisStore> {
        self.store.as_mut()
    }

    /// The agent was fenced: forgets all.
    pub(super) fn forget(&mut self) {
        self.store = None;
        for task in std::mem::take(&mut self.tasks) {
            if let Task::Write { ticket, record } = task {
                self.refuse(ticket, record);
            }
        }
        for (ticket, _, record) in std::mem::take(&mut self.written) {
            self.refuse(ticket, record);
        }
    }

    fn refuse(&mut self, ticket: Ticket, record: Box<Record>) {
        self.refused.push(ticket);
        self.said.push_back(Event::Shared(SharedEvent::Refused { ticket, record }));
    }

    /// Does what can be done now.
    pub(super) fn work(&mut self, now: Wall) {
        if self.store.is_none() {
            match RedisStore::open(&self.options) {
                Ok(store) => self.store = Some(store),
                Err(_) => return,
            }
        }
        let (mut left, mut away) = (VecDeque::new(), BTreeSet::new());
        while let Some(mut task) = self.tasks.pop_front() {
            let shard = task.partition().map(shard_of);
            if shard.is_some_and(|shard| away.contains(&shard)) {
                left.push_back(task);
                continue;
            }
            loop {
                match self.perform(&mut task, now) {
                    Ok(()) => break,
                    Err(Error::Fenced { partition }) => {
                        let is_held = self.lose(partition);
                        if task.partition() == Some(partition) && !matches!(task, Task::TakeOver { .. }) {
                            self.drop_task(task);
                            break;
                        }
                        if !is_held {
                            left.push_back(task);
                            break;
                        }
                    }
                    Err(Error::Unavailable { .. } | Error::StoreFull { .. }) => {
                        away.extend(shard);
                        left.push_back(task);
                        break;
                    }
                    Err(error) => {
                        if !self.is_anothers(&error) {
                            return;
                        }
                        left.push_back(task);
                        break;
                    }
                }
            }
        }
        self.tasks = left;
        self.confirm();
    }

    /// What was read makes no sense. Says whether that is because somebody else has written it.
    fn is_anothers(&mut self, error: &Error) -> bool {
        let Some(store) = &mut self.store else { return true };
        match store.taken_over() {
            Ok(taken) if taken.is_empty() => {
                self.broken.get_or_insert(error.to_string());
                false
            }
            Ok(taken) => {
                for partition in taken {
                    self.lose(partition);
                }
                true
            }
            Err(_) => true,
        }
    }

    /// Somebody else has raised an epoch. Says whether the partition was held until now.
    fn lose(&mut self, partition: u16) -> bool {
        let Some(store) = &mut self.store else { return false };
        let is_held = store.holds(partition);
        store.let_go_now(partition);
        if is_held {
            self.said.push_back(Event::Shared(SharedEvent::Fenced { partition }));
        }
        let is_its = |place: u64| (place % u64::from(PARTITIONS)) as u16 == partition;
        let (lost, kept) =
            std::mem::take(&mut self.written).into_iter().partition(|(_, place, _)| is_its(*place));
        self.written = kept;
        let lost: VecDeque<(Ticket, u64, Box<Record>)> = lost;
        for (ticket, _, record) in lost {
            self.refuse(ticket, record);
        }
        is_held
    }

    /// What was to be done in a partition that is not ours.
    fn drop_task(&mut self, task: Task) {
        if let Task::Write { ticket, record } = task {
            self.refuse(ticket, record);
        }
    }

    fn confirm(&mut self) {
        let unconfirmed = loop {
            let Some(store) = &mut self.store else { return };
            match store.confirm() {
                Ok(unconfirmed) => break unconfirmed,
                Err(Error::Fenced { partition }) => {
                    self.lose(partition);
                }
                Err(Error::Unavailable { .. } | Error::StoreFull { .. }) => return,
                Err(error) => {
                    self.is_anothers(&error);
                    return;
                }
            }
        };
        let is_durable = |place: u64| !unconfirmed.contains(&((place % u64::from(PARTITIONS)) as u16));
        let (durable, left) =
            std::mem::take(&mut self.written).into_iter().partition(|(_, place, _)| is_durable(*place));
        self.written = left;
        self.durable.extend::<VecDeque<_>>(durable);
    }

    fn perform(&mut self, task: &mut Task, now: Wall) -> Result<(), Error> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let said = &mut self.said;
        match task {
            Task::Write { ticket, record } => {
                store.prune(record);
                let place = store.append(record)?;
                self.written.push_back((*ticket, place, record.clone()));
            }
            Task::Take { host, max, fresh_first } => {
                let mut taken = store.take(host, *max, *fresh_first, now)?;
                if store.is_under_way(host)? && !self.forgets {
                    taken.memo = Some(HostMemo::of_one_under_way(taken.memo));
                    self.under_way += 1;
                }
                said.push_back(Event::Taken(taken));
            }
            Task::PutBack { host, due } => store.put_back(host, due)?,
            Task::Keep { host, memo, away_until } => {
                let memo = memo.as_deref().filter(|_| !self.forgets);
                store.keep(host, memo, *away_until)?;
            }
            Task::Mark { host } => {
                store.mark(host)?;
                said.push_back(Event::Shared(SharedEvent::Marked { host: host.clone() }));
            }
            Task::Recall { host, place } => {
                let record = match store.record(*place) {
                    Err(error @ (Error::Unavailable { .. } | Error::Fenced { .. })) => return Err(error),
                    record => record.ok().map(Box::new),
                };
                said.push_back(Event::Recalled { host: host.clone(), record, place: *place });
            }
            Task::Visit { max } => {
                let mut visited = store.visit(now, *max)?;
                for stored in &mut visited.hosts {
                    if store.is_under_way(&stored.host)? && !self.forgets {
                        stored.memo = Some(HostMemo::of_one_under_way(stored.memo.take()));
                        self.under_way += 1;
                    }
                }
                said.push_back(Event::Visited(visited));
            }
            Task::Admit { place, record } => {
                said.push_back(Event::Admitted(store.admit(*place, record, None)?));
            }
            Task::Decide => said.push_back(Event::Admitted(store.decide()?)),
            Task::TakeOver { incarnation, partitions } => {
                store.take_over(partitions)?;
                self.took_over.extend(partitions.iter());
                let (incarnation, partitions, stored) = (*incarnation, partitions.clone(), store.stored());
                said.push_back(Event::Shared(SharedEvent::TookOver { incarnation, partitions, stored }));
            }
            Task::LetGo { incarnation, partitions, gone } => {
                while let Some(partition) = partitions.get(*gone) {
                    if store.holds(*partition) {
                        store.let_go(*partition)?;
                    }
                    *gone += 1;
                }
                let (incarnation, partitions, stored) = (*incarnation, partitions.clone(), store.stored());
                said.push_back(Event::Shared(SharedEvent::LetGo { incarnation, partitions, stored }));
            }
            Task::TakeElsewhere { max } => {
                said.push_back(Event::Shared(SharedEvent::Elsewhere(store.take_elsewhere(*max))));
            }
            Task::Offer { from, batch, found, is_offered } => {
                let hosts =
                    found.iter().filter_map(|(_, found)| Some(partition_of(&identify(&found.url)?.0)));
                let partitions: BTreeSet<u16> = hosts.collect();
                let mut admitted = None;
                if partitions.iter().all(|partition| store.holds(*partition)) {
                    if !std::mem::replace(is_offered, true) {
                        store.offer(found.clone());
                    }
                    let decided = store.decide()?;
                    let is_done = store.stored().undecided == 0
                        && store.confirm()?.intersection(&partitions).next().is_none();
                    if !is_done {
                        said.push_back(Event::Decided(decided));
                        return Err(Error::Unavailable { what: "it is not decided", seconds: 0 });
                    }
                    admitted = Some(decided);
                }
                let (from, batch) = (*from, *batch);
                said.push_back(Event::Shared(SharedEvent::Offered { from, batch, admitted }));
            }
            Task::Acknowledge { places } => {
                // What fails here is kept by the store.
                store.acknowledge(places.drain(..))?;
            }
        }
        Ok(())
    }
}

fn by_shard(partitions: Vec<u16>) -> Vec<Vec<u16>> {
    let mut shards: Vec<Vec<u16>> = Vec::new();
    for partition in partitions {
        match shards.last_mut().filter(|shard| shard_of(shard[0]) == shard_of(partition)) {
            Some(shard) => shard.push(partition),
            None => shards.push(vec![partition]),
        }
    }
    shards
}
