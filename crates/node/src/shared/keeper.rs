//! What talks to the store that agents share: does what it is told in its order, tries again later what cannot be done now,
//! and says what has become durable. What concerns one server waits for it, and the rest goes on.
//!
//! It knows no thread, so that the simulator drives it too; [`super::SharedStore`] runs one on a thread of its own.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use nephila_core::agent::{
    Action, Admitted, Cursor, Due, Event, SharedAction, SharedEvent, Stored, Ticket, Visited,
};
use nephila_core::assign::{PARTITIONS, partition_of};
use nephila_core::federation::UrlsBySite;
use nephila_core::frontier::HostMemo;
use nephila_core::record::{Found, Record, RobotsOutcome};
use nephila_core::site::{AgentId, Moved, Partitions};
use nephila_core::time::Wall;
use nephila_core::url::{Host, identify};
use nephila_store::redis::{Reached, RedisOptions, RedisStore};
use nephila_store::{Error, Exported, Result, Store};

/// Records that are written together.
const RECORDS_MAX: usize = 128;

/// When a host is met again that was passed by because its server is away.
const MEET_AGAIN: Duration = Duration::from_secs(1);

/// Something that is to be done.
#[derive(Debug)]
#[allow(missing_docs, reason = "each is the action of the same name, and the records that are to be written")]
pub enum Task {
    Write { ticket: Ticket, record: Box<Record> },
    Take { host: Host, max: usize, fresh_first: bool, now: Wall },
    PutBack { host: Host, due: Vec<Due> },
    Keep { host: Host, memo: Option<Box<HostMemo>>, away_until: Wall, is_asked: bool },
    Mark { host: Host },
    Recall { host: Host, place: u64 },
    Visit { max: usize, now: Wall },
    Admit { place: u64, record: Box<Record> },
    Decide,
    TakeOver { incarnation: u64, partitions: Vec<u16> },
    LetGo { incarnation: u64, partitions: Vec<u16>, gone: usize },
    TakeElsewhere { max: usize },
    Offer { from: AgentId, batch: (u64, u64), found: Vec<(u64, Found)>, is_offered: bool },
    Acknowledge { places: Vec<u64> },
    ExportHost { call: u64, host: Host, from: Option<Cursor> },
    CountQueued { counted: UrlsBySite, at: (u16, u64) },
}

impl Task {
    /// What an action asks of the store, now by the calendar of the site; the action itself if it asks nothing of it.
    pub fn of(action: Action, now: Wall) -> std::result::Result<Task, Box<Action>> {
        Ok(match action {
            Action::Admit { place, record, .. } => Task::Admit { place, record },
            Action::Decide => Task::Decide,
            Action::Take { host, max, fresh_first } => Task::Take { host, max, fresh_first, now },
            Action::Keep { host, memo, away_until, is_asked } => {
                Task::Keep { host, memo, away_until, is_asked }
            }
            Action::Visit { max } => Task::Visit { max, now },
            Action::Recall { host, place } => Task::Recall { host, place },
            Action::PutBack { host, due } => Task::PutBack { host, due },
            Action::Shared(SharedAction::TakeOver { incarnation, partitions }) => {
                Task::TakeOver { incarnation, partitions }
            }
            Action::Shared(SharedAction::LetGo { incarnation, partitions }) => {
                Task::LetGo { incarnation, partitions, gone: 0 }
            }
            Action::Shared(SharedAction::TakeElsewhere { max }) => Task::TakeElsewhere { max },
            Action::Shared(SharedAction::Offer { from, batch, found }) => {
                Task::Offer { from, batch, found, is_offered: false }
            }
            Action::Shared(SharedAction::Acknowledge { places }) => Task::Acknowledge { places },
            Action::Shared(SharedAction::Mark { host }) => Task::Mark { host },
            Action::ExportHost { call, host, from } => Task::ExportHost { call, host, from },
            Action::CountQueued(counted) => Task::CountQueued { counted, at: (0, 0) },
            other => return Err(Box::new(other)),
        })
    }

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
                    Record::Host(host) => Some(host.host.clone()),
                    Record::Claimed { host, .. } | Record::Granted { host, .. } => Some(host.clone()),
                    Record::Moved { moved, .. } => moved.hosts.first().map(|moved| moved.host.clone()),
                    _ => None,
                };
                host.map(|host| partition_of(&host))
            }
            Task::Take { host, .. }
            | Task::PutBack { host, .. }
            | Task::Keep { host, .. }
            | Task::ExportHost { host, .. }
            | Task::Mark { host } => Some(partition_of(host)),
            Task::Recall { place, .. } => Some(partition_of_place(*place)),
            Task::TakeOver { partitions, .. } | Task::LetGo { partitions, .. } => partitions.first().copied(),
            _ => None,
        }
    }
}

/// Leaves out hosts of which something newer is to be kept once their server is back: what the store knows of them is too old
/// to go by. So are those whose server has no replicas: nothing is asked of them. They are met again soon.
fn pass_by_waiting(visited: &mut Visited, left: &VecDeque<Task>, unconfirmed: &Partitions, now: Wall) {
    let unkept: HashSet<&Host> = left
        .iter()
        .filter_map(|task| match task {
            Task::Keep { host, .. } => Some(host),
            _ => None,
        })
        .collect();
    let count = visited.hosts.len();
    visited
        .hosts
        .retain(|stored| !unkept.contains(&stored.host) && !unconfirmed.contains(partition_of(&stored.host)));
    if visited.hosts.len() < count {
        let soon = now + MEET_AGAIN;
        visited.next = Some(visited.next.map_or(soon, |next| next.min(soon)));
    }
}

fn partition_of_place(place: u64) -> u16 {
    (place % u64::from(PARTITIONS)) as u16
}

/// See the module's documentation.
pub struct Keeper {
    options: RedisOptions,
    store: Option<RedisStore>,
    /// What the store was known to hold when it was last forgotten: it must not hold less.
    reached: Reached,
    tasks: VecDeque<Task>,
    /// Records that were written and are not known to be durable, with their places.
    written: VecDeque<(Ticket, u64, Box<Record>)>,
    said: Vec<Event>,
    broken: Option<Error>,
    /// A server had no more memory when something was last tried.
    full: Option<Error>,
    /// Partitions that nothing was confirmed of for some seconds, as the agent was told.
    unconfirmed: Partitions,
}

impl Keeper {
    /// One that opens the store when there is something to do, or has it already.
    pub fn new(options: RedisOptions, store: Option<RedisStore>) -> Keeper {
        let (tasks, written) = (VecDeque::new(), VecDeque::new());
        let reached = Reached::default();
        let (said, unconfirmed) = (Vec::new(), Partitions::default());
        Keeper { options, store, reached, tasks, written, said, broken: None, full: None, unconfirmed }
    }

    /// Adds something to be done.
    pub fn push(&mut self, task: Task) {
        self.tasks.push_back(task);
    }

    /// How much is not done, or not durable.
    pub fn waiting(&self) -> usize {
        self.tasks.len() + self.written.len()
    }

    /// Whether everything is done and durable.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.written.is_empty() && self.unconfirmed.is_empty()
    }

    /// The store, while there is one.
    pub fn store(&mut self) -> Option<&mut RedisStore> {
        self.store.as_mut()
    }

    /// What the agent is to be told.
    pub fn said(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.said)
    }

    /// Why the store cannot be used any more.
    pub fn broken(&mut self) -> Option<Error> {
        self.broken.take()
    }

    /// Why what is left cannot be done: a server has no more memory.
    pub fn full(&self) -> Option<&Error> {
        self.full.as_ref()
    }

    /// The agent was fenced: forgets all.
    pub fn forget(&mut self) {
        if let Some(store) = self.store.take() {
            self.reached = store.reached();
        }
        self.tell_unconfirmed();
        for task in std::mem::take(&mut self.tasks) {
            self.drop_task(task);
        }
        for (ticket, _, record) in std::mem::take(&mut self.written) {
            self.refuse(ticket, record);
        }
    }

    /// Where the primaries are that have no replicas for now.
    pub fn alone(&self) -> Vec<String> {
        self.store.as_ref().map(RedisStore::alone).unwrap_or_default()
    }

    /// Tells the agent which partitions wait for replicas, if others did before.
    fn tell_unconfirmed(&mut self) {
        let partitions = self.store.as_ref().map(RedisStore::unconfirmed).unwrap_or_default();
        if partitions != self.unconfirmed {
            self.unconfirmed = partitions.clone();
            self.said.push(Event::Shared(SharedEvent::Unconfirmed { partitions }));
        }
    }

    /// A record will not be written.
    pub fn refuse(&mut self, ticket: Ticket, record: Box<Record>) {
        self.said.push(Event::Shared(SharedEvent::Refused { ticket, record }));
    }

    /// Does what can be done now.
    pub fn work(&mut self) {
        if self.store.is_none() {
            match RedisStore::open(&self.options) {
                Ok(mut store) => {
                    store.remember(std::mem::take(&mut self.reached));
                    self.store = Some(store);
                }
                Err(_) => return,
            }
        }
        self.full = None;
        self.split_by_server();
        let (mut left, mut away, mut taking) = (VecDeque::new(), HashSet::new(), Vec::new());
        while let Some(task) = self.tasks.pop_front() {
            for task in self.write_together(task, &away) {
                let server = self.server_of(&task);
                if server.is_some_and(|server| away.contains(&server)) {
                    left.push_back(task);
                } else if !self.try_to(task, &mut left, &mut taking) {
                    away.extend(server);
                }
                if self.broken.is_some() {
                    return;
                }
            }
        }
        self.tasks = left;
        self.confirm(taking);
    }

    /// The server that something is to be asked of.
    fn server_of(&self, task: &Task) -> Option<u16> {
        Some(self.store.as_ref()?.server_of(task.partition()?))
    }

    /// Does one thing, as often as that may help. False if its server does not serve it now.
    fn try_to(&mut self, mut task: Task, left: &mut VecDeque<Task>, taking: &mut Vec<Task>) -> bool {
        loop {
            match self.perform(&mut task) {
                Ok(()) => {
                    if let (Task::Visit { now, .. }, Some(Event::Visited(visited))) =
                        (&task, self.said.last_mut())
                    {
                        pass_by_waiting(visited, left, &self.unconfirmed, *now);
                    }
                    if matches!(task, Task::Take { .. } | Task::Mark { .. } | Task::ExportHost { .. }) {
                        taking.push(task);
                    }
                    return true;
                }
                // What went back is seen for certain when it is taken over again.
                Err(Error::Fenced { partition } | Error::WentBack { partition }) => {
                    let is_held = self.lose(partition);
                    if task.partition() == Some(partition) && !matches!(task, Task::TakeOver { .. }) {
                        self.drop_task(task);
                        return true;
                    }
                    if !is_held {
                        left.push_back(task);
                        return true;
                    }
                }
                Err(error) => {
                    let is_away = self.is_away(&error);
                    if is_away || self.is_anothers(error) {
                        left.push_back(task);
                    }
                    return !is_away;
                }
            }
        }
    }

    /// Whether a server does not do it now, and may later.
    fn is_away(&mut self, error: &Error) -> bool {
        if let Error::StoreFull { node } = error {
            self.full = Some(Error::StoreFull { node: node.clone() });
        }
        matches!(error, Error::Unavailable { .. } | Error::StoreFull { .. })
    }

    /// Each server on its own: one that is away does not hold up the others.
    fn split_by_server(&mut self) {
        let Some(store) = &self.store else { return };
        let is_split = |task: &Task| matches!(task, Task::TakeOver { .. } | Task::LetGo { gone: 0, .. });
        if !self.tasks.iter().any(is_split) {
            return;
        }
        let by_server = |partitions: Vec<u16>| {
            let mut parts: Vec<(u16, Vec<u16>)> = Vec::new();
            for partition in partitions {
                let server = store.server_of(partition);
                match parts.iter_mut().find(|(other, _)| *other == server) {
                    Some((_, part)) => part.push(partition),
                    None => parts.push((server, vec![partition])),
                }
            }
            parts.into_iter().map(|(_, partitions)| partitions)
        };
        for task in std::mem::take(&mut self.tasks) {
            match task {
                Task::TakeOver { incarnation, partitions } => self.tasks.extend(
                    by_server(partitions).map(|partitions| Task::TakeOver { incarnation, partitions }),
                ),
                Task::LetGo { incarnation, partitions, gone: 0 } => {
                    self.tasks.extend(by_server(partitions).map(|partitions| Task::LetGo {
                        incarnation,
                        partitions,
                        gone: 0,
                    }))
                }
                task => self.tasks.push_back(task),
            }
        }
    }

    /// Writes a record together with those that follow it, which costs less. Gives back what is to be done alone: what was not
    /// written, and whatever is no record.
    fn write_together(&mut self, first: Task, away: &HashSet<u16>) -> Vec<Task> {
        let may_be_written = |of: &Keeper, task: &Task| {
            let is_away = of.server_of(task).is_some_and(|server| away.contains(&server));
            matches!(task, Task::Write { .. }) && !is_away
        };
        let mut together = vec![first];
        if !may_be_written(self, &together[0]) {
            return together;
        }
        while together.len() < RECORDS_MAX
            && self.tasks.front().is_some_and(|next| may_be_written(self, next))
        {
            together.extend(self.tasks.pop_front());
        }
        let Some(store) = self.store.as_mut().filter(|_| together.len() > 1) else { return together };
        let (mut tickets, mut records) = (Vec::new(), Vec::new());
        for task in together {
            if let Task::Write { ticket, mut record } = task {
                store.prune(&mut record);
                tickets.push(ticket);
                records.push(record);
            }
        }
        let mut places = Vec::new();
        // What is wrong with one of them is seen again when that is written alone.
        let _ = store.append_all(&records, &mut places);
        let mut all = tickets.into_iter().zip(records);
        for (place, (ticket, record)) in places.into_iter().zip(&mut all) {
            self.written.push_back((ticket, place, record));
        }
        all.map(|(ticket, record)| Task::Write { ticket, record }).collect()
    }

    /// What was read makes no sense. Says whether that is because somebody else has written it.
    fn is_anothers(&mut self, error: Error) -> bool {
        let Some(store) = &mut self.store else { return true };
        if matches!(error, Error::Lost { .. }) {
            self.broken.get_or_insert(error);
            return false;
        }
        match store.taken_over() {
            Ok(taken) if taken.is_empty() => {
                self.broken.get_or_insert(error);
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
            self.said.push(Event::Shared(SharedEvent::Fenced { partition }));
        }
        let is_lost = |place: u64| partition_of_place(place) == partition;
        let (lost, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.written).into_iter().partition(|(_, place, _)| is_lost(*place));
        self.written = kept;
        for (ticket, _, record) in lost {
            self.refuse(ticket, record);
        }
        is_held
    }

    /// What was to be done in a partition that is not ours.
    fn drop_task(&mut self, task: Task) {
        match task {
            Task::Write { ticket, record } => self.refuse(ticket, record),
            // Whoever asks hears that it cannot be said.
            Task::ExportHost { call, .. } => self.say_exported(call, None),
            _ => {}
        }
    }

    fn say_exported(&mut self, call: u64, exported: Option<Exported>) {
        let (moved, next, decided) = match (exported, &mut self.store) {
            (Some(exported), _) => (exported.moved, exported.next, exported.decided),
            (None, Some(store)) => (Moved::default(), None, store.news()),
            (None, None) => Default::default(),
        };
        self.said.push(Event::ExportedHost { call, moved, next, decided: Box::new(decided) });
    }

    /// Says what has become durable, of what was written, taken and marked.
    fn confirm(&mut self, taking: Vec<Task>) {
        let unconfirmed = loop {
            let Some(store) = &mut self.store else { return };
            match store.confirm() {
                Ok(unconfirmed) => break unconfirmed,
                Err(Error::Fenced { partition } | Error::WentBack { partition }) => {
                    self.lose(partition);
                }
                Err(error) => {
                    if !self.is_away(&error) {
                        self.is_anothers(error);
                    }
                    return self.tasks.extend(taking);
                }
            }
        };
        // What is handed over after this is of partitions that the agent knows to go on.
        self.tell_unconfirmed();
        let is_durable = |place: u64| !unconfirmed.contains(&partition_of_place(place));
        let (durable, left): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.written).into_iter().partition(|(_, place, _)| is_durable(*place));
        self.written = left;
        let recorded = |(ticket, place, record)| Event::Recorded { ticket, place, record };
        self.said.extend(durable.into_iter().map(recorded));
        for task in taking {
            self.hand_over(task, &unconfirmed);
        }
    }

    /// Hands over what was taken, or says what was marked, if that is confirmed by now.
    fn hand_over(&mut self, task: Task, unconfirmed: &BTreeSet<u16>) {
        let waits = |host: &Host| {
            let partition = partition_of(host);
            unconfirmed.contains(&partition) || self.unconfirmed.contains(partition)
        };
        if let Task::Mark { host } = &task {
            match waits(host) {
                true => self.tasks.push_back(task),
                false => self.said.push(Event::Shared(SharedEvent::Marked { host: host.clone() })),
            }
            return;
        }
        if let Task::ExportHost { call, host, from } = &task {
            // As long as that was not confirmed, another may have the host already, and know more of it.
            let told = match (waits(host), &mut self.store) {
                (false, Some(store)) => store.export_host(host, from.as_ref()).ok(),
                _ => None,
            };
            match told {
                Some(exported) => self.say_exported(*call, Some(exported)),
                None => self.tasks.push_back(task),
            }
            return;
        }
        let Task::Take { host, max, fresh_first, now } = &task else { return };
        let waits = waits(host);
        let Some(store) = &mut self.store else { return };
        let mut take = || {
            let mut taken = store.take(host, *max, *fresh_first, *now)?;
            if store.is_under_way(host)? {
                taken.memo = Some(HostMemo::of_one_under_way(taken.memo));
            }
            Ok::<_, Error>(taken)
        };
        if !waits && let Ok(taken) = take() {
            self.said.push(Event::Taken(taken));
        } else {
            // What is wrong is seen when it is tried again.
            self.tasks.push_back(task);
        }
    }

    fn perform(&mut self, task: &mut Task) -> Result<()> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let (said, written) = (&mut self.said, &self.written);
        match task {
            Task::Write { ticket, record } => {
                store.prune(record);
                let place = store.append(record)?;
                self.written.push_back((*ticket, place, record.clone()));
            }
            Task::Take { host, max, fresh_first, now } => store.begin_take(host, *max, *fresh_first, *now)?,
            Task::PutBack { host, due } => store.put_back(host, due)?,
            Task::Keep { host, memo, is_asked: true, .. } => store.keep_marked(host, memo.as_deref())?,
            Task::Keep { host, memo, away_until, .. } => store.keep(host, memo.as_deref(), *away_until)?,
            Task::Mark { host } => store.mark(host)?,
            Task::Recall { host, place } => {
                let record = match store.record(*place) {
                    Err(error @ (Error::Unavailable { .. } | Error::Fenced { .. })) => return Err(error),
                    record => record.ok().map(Box::new),
                };
                said.push(Event::Recalled { host: host.clone(), record, place: *place });
            }
            Task::Visit { max, now } => {
                let mut visited = store.visit(*now, *max)?;
                for stored in &mut visited.hosts {
                    if store.is_under_way(&stored.host)? {
                        stored.memo = Some(HostMemo::of_one_under_way(stored.memo.take()));
                    }
                }
                said.push(Event::Visited(visited));
            }
            Task::Admit { place, record } => said.push(Event::Admitted(store.admit(*place, record, None)?)),
            Task::Decide => said.push(Event::Admitted(store.decide()?)),
            Task::TakeOver { incarnation, partitions } => {
                store.take_over(partitions)?;
                let stored = stored(store, written);
                let (incarnation, partitions) = (*incarnation, partitions.clone());
                said.push(Event::Shared(SharedEvent::TookOver { incarnation, partitions, stored }));
            }
            Task::LetGo { incarnation, partitions, gone } => {
                while let Some(partition) = partitions.get(*gone) {
                    if store.holds(*partition) {
                        store.let_go(*partition)?;
                    }
                    *gone += 1;
                }
                let stored = stored(store, written);
                let (incarnation, partitions) = (*incarnation, partitions.clone());
                said.push(Event::Shared(SharedEvent::LetGo { incarnation, partitions, stored }));
            }
            Task::TakeElsewhere { max } => {
                said.push(Event::Shared(SharedEvent::Elsewhere(store.take_elsewhere(*max))));
            }
            Task::Offer { from, batch, found, is_offered } => {
                let (admitted, is_done) = offer(store, found, is_offered)?;
                if !is_done {
                    said.extend(admitted.map(Event::Decided));
                    return Err(Error::Unavailable { what: "it is not decided", seconds: 0 });
                }
                let (from, batch) = (*from, *batch);
                said.push(Event::Shared(SharedEvent::Offered { from, batch, admitted }));
            }
            Task::ExportHost { host, .. } => store.touch(partition_of(host))?,
            Task::CountQueued { counted, at } => {
                if let Some(next) = store.count_queued(*at, &mut |host, urls| counted.add(host, urls))? {
                    *at = next;
                    return Err(Error::Unavailable { what: "not all is counted", seconds: 0 });
                }
                add_untold(counted, written);
                // What was decided before is in the counts.
                let (counted, decided) = (counted.clone(), store.news());
                said.push(Event::CountedQueued { counted, decided });
            }
            // What fails here is kept by the store.
            Task::Acknowledge { places } => store.acknowledge(places.drain(..))?,
        }
        Ok(())
    }
}

/// What the store holds, as the agent counts it: what it has not been told of yet it will count then.
fn stored(store: &RedisStore, written: &VecDeque<(Ticket, u64, Box<Record>)>) -> Stored {
    let is_final = |record: &Record| match record {
        Record::Settled(settled) => settled.outcome.is_final(),
        _ => false,
    };
    let untold = written.iter().filter(|(_, _, record)| is_final(record)).count() as u64;
    let stored = store.stored();
    Stored { queued: stored.queued + untold, ..stored }
}

/// What is done and the agent has not been told of yet it will count off then.
fn add_untold(counted: &mut UrlsBySite, written: &VecDeque<(Ticket, u64, Box<Record>)>) {
    for (_, _, record) in written {
        if let Record::Settled(settled) = &**record
            && settled.outcome.is_final()
            && let Some((host, _)) = identify(&settled.url)
        {
            counted.add(&host, 1);
        }
    }
}

/// Offers what others have found. Says what was decided, unless it is not of our partitions, and whether that is all and durable.
fn offer(
    store: &mut RedisStore,
    found: &[(u64, Found)],
    is_offered: &mut bool,
) -> Result<(Option<Admitted>, bool)> {
    let partitions: BTreeSet<u16> =
        found.iter().filter_map(|(_, found)| Some(partition_of(&identify(&found.url)?.0))).collect();
    if !partitions.iter().all(|partition| store.holds(*partition)) {
        return Ok((None, true));
    }
    if !std::mem::replace(is_offered, true) {
        store.offer(found.to_vec());
    }
    let decided = store.decide()?;
    let is_done =
        !store.is_left_of(&partitions) && store.confirm()?.intersection(&partitions).next().is_none();
    Ok((Some(decided), is_done))
}
