//! One agent of the simulated site: performs its actions as the node does.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nephila_core::agent::{
    Action, Agent, Event, FetchError, FetchId, Fetched, LookBack, Order, Purpose, Recipient,
};
use nephila_core::assign::partition_of;
use nephila_core::federation::Federation;
use nephila_core::record::{Failure, Found};
use nephila_core::site::{AgentId, Message, Partitions, SiteSettings, Terms, TurnMessage};
use nephila_core::time::Mono;
use nephila_core::url::{Host, identify};
use nephila_disk::SimDisk;
use nephila_node::config::Config;
use nephila_node::directory;
use nephila_node::looking_back::LookingBack;
use nephila_node::writer::{self, WriteError};
use nephila_store::{Exported, KnownState, OwnStore, PlacedRecord, Store};

use super::super::check_cash::Cash;
use super::super::check_lost;
use super::super::check_polite::Begin;
use super::super::clock::Clock;
use super::super::driver::{Broken, InFlight, Process, broken};
use super::super::levels::Crash;
use super::super::random::Random;
use super::super::sites::{Answered, Asked, Told};
use super::super::web::{Meaning, PlannedHost, Reply};
use super::super::{Promise, SiteBug};
use super::disks::Trouble;
use super::network::{Letter, Parcel, all_turns};
use super::{Happening, Sim, ToProcess};

pub(super) const DIR: &str = "/crawl";

/// One agent: its disk, and its process while there is one.
pub(super) struct Station {
    pub(super) disk: SimDisk,
    pub(super) life: u64,
    pub(super) process: Option<Process>,
    pub(super) is_paused: bool,
    /// Requests that were answered and of which the process has not heard.
    pub(super) unheard: BTreeSet<FetchId>,
    /// URLs that are done by records which a power cut may take back.
    pub(super) unsynced: Vec<String>,
    /// It was in a site when its process ended, and will be in it when it is back.
    pub(super) was_in_site: bool,
    /// Something is on its disk that its process has not heard to be there.
    pub(super) is_untold: bool,
    /// What it could not be told while it stood still.
    pub(super) missed: VecDeque<ToProcess>,
    /// How wrong its calendar is.
    pub(super) skew_ms: i64,
    pub(super) clock: Clock,
    /// It was asked to end, and comes back then.
    pub(super) back_after: Option<Duration>,
    pub(super) site: SiteSettings,
    /// The federation that the site is of.
    pub(super) federation: Option<Federation>,
    /// The lists of sites that it had before.
    pub(super) earlier: Vec<Federation>,
    /// It is lost for good, with its site.
    pub(super) is_gone: bool,
    /// The last batch for another site, unless it was answered.
    pub(super) posting: Option<u64>,
    /// Addresses that other sites use, as its process was told, and when.
    pub(super) told: Told,
    /// What is wrong with its disk.
    pub(super) trouble: Trouble,
    /// What its records have made.
    pub(super) cash: Cash,
    config: Config,
}

fn address(index: usize) -> String {
    format!("agent-{index}")
}

impl Station {
    /// Agent `index` of a site that begins with the first `founders`.
    pub(super) fn new(
        seed: u64,
        index: usize,
        founders: usize,
        forget_after: Option<Duration>,
        config: &Config,
    ) -> Station {
        let mut random = Random::fork(seed ^ (index as u64) << 40, "station");
        let me = AgentId::from(random.next());
        let peers =
            if founders == 1 && index == 0 { Vec::new() } else { (0..founders).map(address).collect() };
        let site = SiteSettings {
            me,
            name: address(index),
            address: address(index),
            capacity: 1 + random.below(3) as u16,
            peers,
            terms: Terms::default(),
            shares_store: false,
            forget_after,
        };
        let skew_ms = [0, 0, -40_000, 3_000_000][random.below(4) as usize];
        let clock = Clock::drawn(&mut random);
        Station {
            disk: SimDisk::new(seed ^ index as u64),
            life: 0,
            process: None,
            is_paused: false,
            unheard: BTreeSet::new(),
            unsynced: Vec::new(),
            was_in_site: false,
            is_untold: false,
            missed: VecDeque::new(),
            skew_ms,
            clock,
            back_after: None,
            site,
            federation: None,
            earlier: Vec::new(),
            is_gone: false,
            posting: None,
            told: Told::default(),
            trouble: Trouble::default(),
            cash: Cash::new(seed ^ index as u64),
            config: config.clone(),
        }
    }

    /// Has another agent in this place, with a disk of its own, that joins whomever it meets at `addresses` if there is a site.
    /// Says who it was.
    pub(super) fn renew(&mut self, seed: u64, addresses: Option<Vec<String>>) -> AgentId {
        let mut random = Random::fork(seed, "an agent in the place of another");
        self.disk = SimDisk::new(random.next());
        self.was_in_site = false;
        if let Some(mut addresses) = addresses {
            addresses.retain(|peer| *peer != self.site.address);
            self.site.peers = addresses;
        }
        std::mem::replace(&mut self.site.me, AgentId::from(random.next()))
    }

    /// Has it start at another address the next time. Gives the one before, and the new one.
    pub(super) fn move_away(&mut self) -> (String, String) {
        let next = format!("{}-moved-{}", self.site.name, self.life);
        (std::mem::replace(&mut self.site.address, next.clone()), next)
    }

    /// Whether a host belongs to its site by its name, or may do so by its place.
    pub(super) fn may_be_home(&self, host: &Host) -> bool {
        self.federation.as_ref().is_none_or(|federation| {
            federation.goes_by_place() || federation.site_of(host) == federation.me()
        })
    }

    fn answer(&mut self, event: Event) {
        if let Some(process) = &mut self.process {
            process.answers.push_back(event);
        }
    }

    pub(super) fn next_wake(&mut self) -> Option<Mono> {
        let clock = self.clock;
        let process = self.process.as_mut().filter(|_| !self.is_paused)?;
        process.agent.next_wake().map(|at| clock.wake(at))
    }
}

impl Sim<'_> {
    pub(super) fn open(&mut self, index: usize) -> Result<(), Broken> {
        let clock = self.clock(index);
        if self.stations[index].process.is_some() || self.stations[index].is_gone {
            return Ok(());
        }
        self.disk_opens(index);
        let station = &mut self.stations[index];
        let config = &station.config;
        let mut agent = Agent::of_site(config.settings.clone(), config.scope(&[]), station.site.clone());
        if let Some(federation) = &station.federation {
            agent = agent.in_federation(federation.clone()).with_earlier_lists(station.earlier.clone());
        }
        let disk = Arc::new(station.disk.clone());
        let opened = writer::open(disk, Path::new(DIR), config, &mut agent, clock);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return self.not_opened(index, &error),
        };
        self.disk_rests(index);
        let station = &mut self.stations[index];
        let mut process = Process::new(agent, opened);
        if self.by_cash {
            let counted = station.cash.reopened(&mut process.store, process.writer.end());
            counted.map_err(broken(Promise::CashKept))?;
        }
        for url in self.lost.settled().filter(|_| !self.has_forgotten) {
            let mut is_held = |host: &PlannedHost| {
                let open = process.agent.open_partitions();
                // What it has yet to hear from the site that had the host before does not count.
                let federation = station.federation.as_ref();
                let is_sure =
                    station.earlier.is_empty() && !federation.is_some_and(Federation::goes_by_place);
                station.may_be_home(&host.name)
                    && open.is_some_and(|open| open.contains(host.partition))
                    && (is_sure || process.agent.owns(&host.name))
            };
            if self.plan.host_of(url).is_some_and(|host| is_held(&host)) {
                match check_lost::state(&mut process.store, url).map_err(broken(Promise::NothingLost))? {
                    Some(KnownState::Settled(_) | KnownState::Elsewhere { .. }) => {}
                    other => {
                        let what = format!("{url} was counted and agent {index} finds it {other:?}");
                        return Err((Promise::NothingLost, what));
                    }
                }
            }
        }
        let whole =
            self.archived.check(&self.plan, station.site.me, &mut process, &station.disk, Path::new(DIR));
        whole.map_err(|what| (Promise::NothingLost, format!("agent {index} starts: {what}")))?;
        let mut actions = Vec::new();
        process.agent.start(clock, process.store.stored(), &mut actions);
        station.process = Some(process);
        self.disk_opened(index);
        self.report.processes += 1;
        self.perform(index, actions)?;
        // In a federation only the first site is told.
        match self.are_neighbours(index, 0) {
            true => self.tell(index, Event::Seeds(self.plan.seeds.clone())),
            false => Ok(()),
        }
    }

    pub(super) fn tell(&mut self, index: usize, event: Event) -> Result<(), Broken> {
        if self.stations[index].process.is_some() {
            self.trace.note_event(self.now, index, &event);
        }
        self.step(index, event)
    }

    /// What another agent has written arrives.
    pub(super) fn deliver(&mut self, index: usize, letter: Letter) -> Result<(), Broken> {
        let Letter { from, name, message, packed } = letter;
        let event = Event::Message { from, name, message };
        if self.stations[index].process.is_some() {
            self.trace.note_message(self.now, index, from, &packed, &event);
        }
        self.step(index, event)
    }

    fn step(&mut self, index: usize, event: Event) -> Result<(), Broken> {
        let clock = self.clock(index);
        self.wakes.touch(index);
        let Station { told, federation, .. } = &mut self.stations[index];
        told.note(federation.as_ref(), &event, self.now);
        let Some(process) = &mut self.stations[index].process else { return Ok(()) };
        let mut actions = Vec::new();
        process.agent.step(clock, event, &mut actions);
        self.perform(index, actions)
    }

    /// Gives each agent the answers that its store gave at once.
    pub(super) fn drain(&mut self) -> Result<(), Broken> {
        for index in 0..self.stations.len() {
            if !self.wakes.is_touched(index) {
                continue;
            }
            while let Some(event) =
                self.stations[index].process.as_mut().and_then(|process| process.answers.pop_front())
            {
                self.tell(index, event)?;
            }
        }
        Ok(())
    }

    pub(super) fn arrive(&mut self, Parcel { from, to, message, packed }: Parcel) -> Result<(), Broken> {
        if self.network.is_cut(from.0, to, self.now) {
            return Ok(());
        }
        let (station, life) = (&self.stations[to], self.stations[to].life);
        if station.process.is_none() {
            return Ok(());
        }
        let name = self.stations[from.0].site.name.clone();
        let letter = Box::new(Letter { from: from.1, name, message, packed });
        self.happen(Happening::ToProcess(to, life, ToProcess::Letter(letter))).map(drop)
    }

    fn perform(&mut self, index: usize, actions: Vec<Action>) -> Result<(), Broken> {
        let life = self.stations[index].life;
        for action in actions {
            self.trace.note_action(self.now, index, &action);
            if self.stations[index].process.is_none() {
                return Ok(());
            }
            let action = match self.in_store(index, action) {
                Ok(Some(action)) => action,
                Ok(None) => continue,
                Err(error) => return self.disk_failed(index, &WriteError::Store(error)),
            };
            let action = match Asked::of(action) {
                Ok((gateway, asked)) => {
                    self.ask_site(index, &gateway, asked);
                    continue;
                }
                Err(other) => *other,
            };
            let action = match Answered::of(action) {
                Ok((call, answered)) => {
                    self.answer_call(index, call, answered);
                    continue;
                }
                Err(other) => *other,
            };
            match action {
                Action::Tell { site, used } => self.tell_site(index, site, &used),
                Action::Send { to, message } => self.send(index, &to, message),
                Action::Resolve { host } => {
                    let wait = Duration::from_millis(1 + self.random.below(60));
                    self.after(wait, Happening::ToProcess(index, life, ToProcess::Resolved(host)));
                }
                Action::Fetch(order) => self.fetch(index, order)?,
                Action::Abandon(fetch) => self.abandon(index, fetch),
                Action::Write { ticket, record, fetch } => self.write(index, ticket, record, fetch)?,
                Action::End(reason) => {
                    let Some(back_after) = self.stations[index].back_after.take() else {
                        return Err((Promise::Bounded, format!("agent {index} ends: {}", reason.name())));
                    };
                    self.sync(index)?;
                    self.crash(index, Crash::Kill, back_after);
                }
                other => {
                    return Err((Promise::Bounded, format!("agent {index} wants {other:?}")));
                }
            }
        }
        Ok(())
    }

    /// Does what is for the store alone; gives back what is not.
    fn in_store(&mut self, index: usize, action: Action) -> Result<Option<Action>, nephila_store::Error> {
        let clock = self.clock(index);
        let Some(process) = &mut self.stations[index].process else { return Ok(None) };
        let answers = &mut process.answers;
        match action {
            Action::Admit { place, record, open, again } => {
                let is_in = |open: Option<&Partitions>, found: &Found| {
                    let host = identify(&found.url).map(|(host, _)| partition_of(&host));
                    host.is_some_and(|partition| open.is_some_and(|open| open.contains(partition)))
                };
                let open_now = process.agent.open_partitions();
                let mut found = record.found().iter();
                let froze = found.any(|found| is_in(open.as_deref(), found) && !is_in(open_now, found));
                let admitted = match again {
                    true => process.store.admit_again(place, &record, open.as_deref())?,
                    false => process.store.admit(place, &record, open.as_deref())?,
                };
                answers.push_back(Event::Admitted(admitted));
                if froze {
                    self.reach("a partition frozen just as something of it became durable");
                }
            }
            Action::TellAnew { partitions } => {
                answers.push_back(Event::Decided(process.store.tell_anew(&partitions)?));
            }
            Action::Decide => {
                answers.push_back(Event::Admitted(process.store.decide()?));
            }
            Action::Take { host, max, fresh_first } => {
                let taken = process.store.take(&host, max, fresh_first, clock.wall)?;
                answers.push_back(Event::Taken(taken));
            }
            Action::Keep { host, memo, away_until, .. } => {
                let memo = memo.filter(|_| self.bug != Some(SiteBug::ForgetsDelays));
                process.store.keep(&host, memo.as_deref(), away_until)?;
            }
            Action::Visit { max } => {
                answers.push_back(Event::Visited(process.store.visit(clock.wall, max)?));
            }
            Action::Recall { host, place } => {
                let record = process.store.record(place).ok().map(Box::new);
                answers.push_back(Event::Recalled { host, record, place });
            }
            Action::PutBack { host, due } => process.store.put_back(&host, &due)?,
            Action::Export { to, handover, partitions, from } => {
                let exported = process.store.export(&partitions, from.as_ref())?;
                self.exported(index, to, handover, exported);
            }
            Action::ExportHost { call, host, from } => {
                let exported = process.store.export_host(&host, from.as_ref())?;
                self.exported_host(index, call, exported);
            }
            Action::CountQueued(mut counted) => {
                let counting = process.store.count_queued(&mut |host, urls| counted.add(host, urls));
                let decided = counting?;
                answers.push_back(Event::CountedQueued { counted, decided });
            }
            Action::Reread { from, until } => {
                let (mut records, next) = process.store.records(from, until)?;
                if self.bug == Some(SiteBug::LosesOutboxes) {
                    records.clear();
                }
                answers.push_back(Event::Reread { records, next });
                self.reach("journal read again for others");
            }
            Action::LookBack(asked) => {
                let records = process.store.kept_records(asked.from, asked.until)?;
                self.looked_back(index, asked, records);
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// What the store knows of a host that another site claims.
    fn exported_host(&mut self, index: usize, call: u64, exported: Exported) {
        let Exported { mut moved, next, decided } = exported;
        if self.bug == Some(SiteBug::ReleasesWithoutSeen) {
            moved.hosts.iter_mut().for_each(|host| host.seen.clear());
        }
        self.stations[index].answer(Event::ExportedHost { call, moved, next, decided: Box::new(decided) });
    }

    /// Records that were read once more, and with them the answers that they are about, if these are wanted.
    fn looked_back(
        &mut self,
        index: usize,
        asked: LookBack,
        (mut records, next): (Vec<PlacedRecord>, Option<u64>),
    ) {
        if self.bug == Some(SiteBug::KeepsNoRecords) {
            records.clear();
        }
        let (looked, next) = if asked.with_answers {
            let reader = LookingBack::new(&self.stations[index].config);
            let archive = directory::archive(Path::new(DIR));
            reader.read(&self.stations[index].disk, &archive, records, next)
        } else {
            (records.into_iter().map(|(place, record)| (place, record, None)).collect(), next)
        };
        self.stations[index].answer(Event::LookedBack { asked, looked, next });
        self.reach(match asked.with_answers {
            true => "pages read again for links",
            false => "journal read for what was lost",
        });
    }

    fn exported(&mut self, index: usize, to: AgentId, handover: (u64, u64), exported: Exported) {
        let Exported { mut moved, next, decided } = exported;
        if self.bug == Some(SiteBug::MovesWithoutSeen) {
            moved.hosts.iter_mut().for_each(|host| host.seen.clear());
        }
        let is_home = |url: &str| {
            let host = self.plan.host_of(url);
            host.is_none_or(|host| self.stations[index].may_be_home(&host.name))
        };
        if moved.found.iter().any(|found| !is_home(&found.url)) {
            self.reach("a handover with URLs of other sites");
        }
        self.stations[index].answer(Event::Exported {
            to,
            handover,
            moved,
            next,
            decided: Box::new(decided),
        });
    }

    fn send(&mut self, index: usize, to: &Recipient, mut message: Box<Message>) {
        let from = (index, self.stations[index].site.me);
        let is_it = |station: &Station| {
            let is_meant = to.agent.as_ref().is_none_or(|(id, _)| *id == station.site.me);
            station.site.address == to.address && is_meant
        };
        let Some(to) = self.stations.iter().position(is_it) else { return };
        match (self.bug, &mut *message) {
            (Some(SiteBug::IgnoresKeepers), Message::Turn(TurnMessage::Ask { asked, turns })) => {
                let from = (to, self.stations[to].site.me);
                let parcel = Parcel::unpacked(from, index, all_turns(*asked, turns));
                return self.after(Duration::from_millis(1), Happening::Parcel(parcel));
            }
            (Some(SiteBug::ForgetsTurns), Message::Turn(TurnMessage::Has { turns, .. })) => {
                turns.iter_mut().for_each(|(_, is_out, _)| *is_out = false);
            }
            _ => {}
        }
        if matches!(*message, Message::Move { .. } | Message::Moved { .. } | Message::Grant { .. }) {
            self.strike_one(index, to, 6);
        }
        match *message {
            Message::Move { part, .. } if part > 0 => self.reach("a handover of several parts"),
            Message::Move { .. } => self.reach("a handover"),
            Message::MoveAgain { .. } => self.reach("a handover begun again"),
            Message::Claim { .. } => self.reach("a claim passed on to another agent"),
            Message::Deliver { .. } => self.reach("a delivery"),
            Message::Turn(TurnMessage::Recall(_)) => self.reach("a turn at an address wanted back"),
            Message::Turn(TurnMessage::Over(_)) if self.stations[index].back_after.is_some() => {
                self.reach("turns given back at a stop");
            }
            Message::Turn(TurnMessage::Has { ref turns, .. })
                if turns.iter().any(|(_, is_out, _)| *is_out) =>
            {
                self.reach("turns told to a keeper that did not know");
            }
            _ => {}
        }
        let mut waits = self.network.carry(index, to, self.now);
        let Some(last) = waits.pop() else { return };
        let parcel = Parcel { from, to, message, packed: self.trace.sent() };
        for wait in waits {
            self.after(wait, Happening::Parcel(parcel.clone()));
        }
        self.after(last, Happening::Parcel(parcel));
    }

    fn fetch(&mut self, index: usize, order: Order) -> Result<(), Broken> {
        let host = order.url.host_str().unwrap_or_default().to_owned();
        self.check_blocked(&host)?;
        let for_rules = matches!(order.purpose, Purpose::Robots { .. });
        let reply = self.servers.ask(&self.plan, &order.url);
        self.exchanges += 1;
        self.report.requests += 1;
        let choice = self.random.below(order.addresses.len().max(1) as u64) as usize;
        let Some(address) = order.addresses.get(choice).copied() else {
            return Err((Promise::Bounded, format!("{} was to be fetched nowhere", order.url)));
        };
        let (took, started, exchange) = (reply.took, self.clock(index), self.exchanges);
        let site = self.home_of(index);
        let flight = InFlight { exchange, host, url: order.url, address, for_rules, started, reply, site };
        let partition = identify(flight.url.as_str()).map(|(host, _)| partition_of(&host));
        if let Some(partition) = partition {
            let rests = self.rests.asks(index, partition, self.now);
            rests.map_err(|what| (Promise::Polite, what))?;
        }
        let is_stray = self.is_stray(index, &flight.host);
        let of_two = self.owners.begins(&flight.host, index, is_stray.then_some(self.now));
        let is_forgiven = self.owners.was_stray(&flight.host, self.now);
        if let Err(what) = of_two {
            if !is_forgiven {
                return Err((Promise::OneOwner, what));
            }
            self.reach("two at a host, one of them forgotten");
        }
        if !for_rules && let Err(what) = self.twice.begins(flight.url.as_str()) {
            if !self.has_forgotten {
                return Err((Promise::NothingTwice, what));
            }
            self.reach("a page fetched again after a loss");
        }
        if self.now < self.trouble_end {
            self.polite.troubled();
        }
        if let Err(what) = self.polite.begins(&self.plan, &flight.begin(), self.now)
            && !is_forgiven
        {
            return Err((Promise::Polite, what));
        }
        let life = self.stations[index].life;
        if let Some(process) = &mut self.stations[index].process {
            process.in_flight.insert(order.fetch, flight);
        }
        self.after(took, Happening::ToProcess(index, life, ToProcess::Answered(order.fetch)));
        Ok(())
    }

    /// A server has answered, whether anybody listens or not.
    pub(super) fn answered(&mut self, index: usize, life: u64, fetch: FetchId) {
        let station = &mut self.stations[index];
        let process = station.process.as_ref().filter(|_| station.life == life);
        let Some(flight) = process.and_then(|process| process.in_flight.get(&fetch)) else { return };
        if station.unheard.contains(&fetch) {
            // It was broken off.
            return;
        }
        let heard = (flight.exchange, flight.reply.meaning);
        let begin = Begin { sites: station.told.sites_at(flight.address, self.now), ..flight.begin() };
        if begin.sites > 1 {
            *self.report.reached.entry("an address that another site uses".to_owned()).or_default() += 1;
        }
        self.polite.ends(&begin, Some(heard), station.is_paused, self.now);
        self.owners.ends(&flight.host);
        if flight.reply.meaning == Meaning::Final && !flight.for_rules {
            self.twice.answered(flight.url.as_str(), flight.exchange);
        }
        station.unheard.insert(fetch);
    }

    /// A process that was to end, and stood still meanwhile, closes a connection.
    fn abandon(&mut self, index: usize, fetch: FetchId) {
        let station = &mut self.stations[index];
        if !station.unheard.insert(fetch) {
            // It has been answered.
            return;
        }
        let Some(flight) = station.process.as_mut().and_then(|process| process.in_flight.get_mut(&fetch))
        else {
            return;
        };
        self.polite.ends(&flight.begin(), None, false, self.now);
        self.owners.ends(&flight.host);
        let error = FetchError { failure: Failure::NotTried, detail: "abandoned".into() };
        flight.reply =
            Reply { meaning: Meaning::Nothing, result: Err(error), wire: None, took: flight.reply.took };
        let life = station.life;
        self.after(Duration::from_millis(1), Happening::ToProcess(index, life, ToProcess::Answered(fetch)));
    }

    /// A process hears of an answer.
    pub(super) fn fetched(&mut self, index: usize, fetch: FetchId) -> Result<(), Broken> {
        let ended = self.clock(index).mono;
        self.stations[index].unheard.remove(&fetch);
        let Some(process) = &mut self.stations[index].process else { return Ok(()) };
        let Some(mut flight) = process.in_flight.remove(&fetch) else { return Ok(()) };
        self.polite.reads((flight.site, flight.address), flight.exchange);
        let capture = flight.take_capture();
        process.held.insert(fetch, (flight.exchange, capture));
        let event = Event::Fetched(Fetched {
            fetch,
            started: flight.started.mono,
            ended,
            contacted: vec![flight.address],
            result: flight.reply.result,
        });
        self.tell(index, event)
    }
}
