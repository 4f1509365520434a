//! What the driver does for the agent: it performs actions and brings back what came of them, as the node does.

use std::fmt::Debug;
use std::time::Duration;

use nephila_core::agent::{
    Action, Content, Control, Due, Event, FetchError, FetchId, Fetched, Order, Purpose, Ticket,
};
use nephila_core::record::{Block, Failure, Outcome, Record, Settled};
use nephila_core::time::{Mono, Wall};
use nephila_core::url::Host;
use nephila_node::config::Durability;
use nephila_node::crawl::snapshot;
use nephila_node::writer::{Done, Job, WriteError};
use nephila_store::{ErrorKind, Store};

use super::driver::{Broken, Happening, InFlight, Process, Sim, broken};
use super::levels::Level;
use super::trace::Trace;
use super::web::{Meaning, Reply};
use super::{Bug, Promise};

const COMMIT_AFTER: Duration = Duration::from_millis(20);
const SYNC_AFTER: Duration = Duration::from_secs(1);

impl Sim<'_> {
    pub(super) fn perform(&mut self, actions: Vec<Action>) -> Result<(), Broken> {
        let (clock, life) = (self.clock(), self.life);
        for action in actions {
            note_action(&mut self.trace, self.now, &action);
            // A write that fails ends the process in the middle of a list.
            let Some(process) = &mut self.process else { return Ok(()) };
            match action {
                Action::Admit { place, record, .. } => match process.store.admit(place, &record, None) {
                    Ok(admitted) => {
                        process.answers.push_back(Event::Admitted(admitted));
                        if self.bug == Some(Bug::GivesTwice)
                            && let Err(error) = process.store.admit(place, &record, None)
                        {
                            return self.store_failed(error);
                        }
                    }
                    Err(error) => return self.store_failed(error),
                },
                Action::Decide => match process.store.decide() {
                    Ok(admitted) => process.answers.push_back(Event::Admitted(admitted)),
                    Err(error) => return self.store_failed(error),
                },
                Action::Take { host, max, fresh_first } => {
                    match process.store.take(&host, max, fresh_first, clock.wall) {
                        Ok(taken) => process.answers.push_back(Event::Taken(taken)),
                        Err(error) => return self.store_failed(error),
                    }
                }
                Action::Keep { host, memo, away_until, .. } => {
                    let memo = memo.filter(|_| self.bug != Some(Bug::ForgetsHosts));
                    if let Err(error) = process.store.keep(&host, memo.as_deref(), away_until) {
                        return self.store_failed(error);
                    }
                    self.reach("a host left the workbench");
                }
                Action::Visit { max } => match process.store.visit(clock.wall, max) {
                    Ok(visited) => process.answers.push_back(Event::Visited(visited)),
                    Err(error) => return self.store_failed(error),
                },
                Action::Recall { host, place } => {
                    let record = process.store.record(place).ok().map(Box::new);
                    process.answers.push_back(Event::Recalled { host, record, place });
                }
                Action::PutBack { host, due } => {
                    if let Err(error) = process.store.put_back(&host, &due) {
                        return self.store_failed(error);
                    }
                }
                Action::Resolve { host } => {
                    let wait = Duration::from_millis(1 + self.random.below(60));
                    self.after(wait, Happening::Resolved { life, host });
                }
                Action::Fetch(order) => self.fetch(order)?,
                Action::Abandon(fetch) => self.fetched(fetch, true)?,
                Action::Write { ticket, record, fetch } => self.write(ticket, record, fetch),
                Action::Send { .. }
                | Action::Post { .. }
                | Action::Answer { .. }
                | Action::Export { .. }
                | Action::ExportHost { .. }
                | Action::CountQueued(_)
                | Action::Claim { .. }
                | Action::Release { .. }
                | Action::AskRules { .. }
                | Action::Tell { .. }
                | Action::GiveRules { .. }
                | Action::Say { .. }
                | Action::Heard { .. }
                | Action::Reread { .. }
                | Action::TellAnew { .. }
                | Action::LookBack(_)
                | Action::Shared(_) => {
                    return Err((Promise::Bounded, "an agent alone wants to talk to others".to_owned()));
                }
                Action::End(reason) => process.ended = Some(reason),
            }
        }
        Ok(())
    }

    fn fetch(&mut self, order: Order) -> Result<(), Broken> {
        let host = Host::of(&order.url).to_string();
        let for_rules = matches!(order.purpose, Purpose::Robots { .. });
        let reply = self.servers.ask(&self.plan, &order.url);
        self.exchanges += 1;
        self.report.requests += 1;
        let Some(address) = order.addresses.first().copied() else {
            return Err((Promise::Bounded, format!("{} was to be fetched nowhere", order.url)));
        };
        let took = reply.took;
        let started = self.clock();
        let exchange = self.exchanges;
        let flight = InFlight { exchange, host, url: order.url, address, for_rules, started, reply, site: 0 };
        if self.finished {
            return Err((Promise::NothingTwice, format!("{} was asked for after the end", flight.url)));
        }
        if !for_rules {
            self.twice.begins(flight.url.as_str()).map_err(broken(Promise::NothingTwice))?;
        }
        let times = if self.bug == Some(Bug::AsksTwice) && exchange.is_multiple_of(7) { 2 } else { 1 };
        for _ in 0..times {
            self.polite.begins(&self.plan, &flight.begin(), self.now).map_err(broken(Promise::Polite))?;
        }
        if let Some(process) = &mut self.process {
            process.in_flight.insert(order.fetch, flight);
        }
        self.after(took, Happening::Fetched { life: self.life, fetch: order.fetch });
        Ok(())
    }

    pub(super) fn fetched(&mut self, fetch: FetchId, abandoned: bool) -> Result<(), Broken> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let Some(mut flight) = process.in_flight.remove(&fetch) else { return Ok(()) };
        if abandoned {
            let error = FetchError { failure: Failure::NotTried, detail: "abandoned".into() };
            flight.reply =
                Reply { meaning: Meaning::Nothing, result: Err(error), wire: None, ..flight.reply };
        }
        self.polite.ends(&flight.begin(), Some((flight.exchange, flight.reply.meaning)), false, self.now);
        if flight.reply.meaning == Meaning::Final && !flight.for_rules {
            self.twice.answered(flight.url.as_str(), flight.exchange);
        }
        let capture = flight.take_capture();
        let capture = capture.filter(|_| self.bug != Some(Bug::ForgetsToArchive));
        process.held.insert(fetch, (flight.exchange, capture));
        if let Ok(answer) = &mut flight.reply.result {
            match (self.bug, &mut answer.content) {
                (Some(Bug::HalvesRetryAfter), _) => {
                    answer.retry_after = answer.retry_after.map(|wait| wait / 2)
                }
                (Some(Bug::ReadsNoRules), Content::Robots(text)) => text.clear(),
                (Some(Bug::DropsLinks), Content::Page { links, .. }) => drop(links.pop()),
                _ => {}
            }
        }
        let ended = if self.bug == Some(Bug::MeasuresFromTheStart) { flight.started.mono } else { self.now };
        self.tell(Event::Fetched(Fetched {
            fetch,
            started: flight.started.mono,
            ended,
            contacted: vec![flight.address],
            result: flight.reply.result,
        }))
    }

    fn write(&mut self, ticket: Ticket, mut record: Box<Record>, fetch: Option<FetchId>) {
        let wall = self.clock().wall;
        let Some(process) = &mut self.process else { return };
        if let (Some(Bug::ForgetsHosts), Record::Host(host)) = (self.bug, &mut *record) {
            (host.not_before, host.failures, host.failing_since) = (Wall(0), 0, None);
        }
        process.store.prune(&mut record);
        let (exchange, capture) = match fetch.and_then(|fetch| process.held.remove(&fetch)) {
            Some((exchange, capture)) => (Some(exchange), capture),
            None => (None, None),
        };
        process.exchanges.extend(exchange.map(|exchange| (ticket, exchange)));
        if self.bug == Some(Bug::AcknowledgesBeforeFlush) {
            self.lost.acknowledged(&record, Level::Kernel);
        }
        let commit = !std::mem::replace(&mut process.commit_due, true);
        let sync = !std::mem::replace(&mut process.sync_due, true);
        let written = process.writer.write(Job { ticket, record, capture, attempt: None }, wall);
        if let Err(error) = written {
            return self.write_failed(&error);
        }
        let life = self.life;
        if commit {
            self.after(COMMIT_AFTER, Happening::Commit { life });
        }
        if sync {
            self.after(SYNC_AFTER, Happening::Sync { life });
        }
    }

    pub(super) fn commit(&mut self) -> Result<(), Broken> {
        let Some(process) = &mut self.process else { return Ok(()) };
        process.commit_due = false;
        match process.writer.commit() {
            Ok(durable) => {
                let end = process.writer.end();
                self.durable(durable)?;
                self.count_cash_sometimes()?;
                self.snapshot_sometimes(end)
            }
            Err(error) => {
                self.write_failed(&error);
                Ok(())
            }
        }
    }

    /// Tells everyone that records are durable.
    fn durable(&mut self, durable: Vec<Done>) -> Result<(), Broken> {
        let level = if self.config.durability == Durability::Power { Level::Disk } else { Level::Kernel };
        for done in &durable {
            let Some(process) = &mut self.process else { return Ok(()) };
            self.lost.acknowledged(&done.record, level);
            process.pointed.see(&done.record);
            self.cash.written(done.place, &done.record);
            if let Some(exchange) = process.exchanges.remove(&done.ticket) {
                self.polite.kept(exchange, level);
                self.twice.kept(exchange, level);
            }
            if let Some(host) = process.blocks.remove(&done.ticket) {
                self.polite.block_kept(&host, level);
            }
            self.note_outcome(&done.record);
        }
        for Done { ticket, place, record } in durable {
            let Some(process) = &mut self.process else { return Ok(()) };
            if let Record::Settled(settled) = &*record
                && !(self.bug == Some(Bug::ForgetsToSettle) && place % 5 == 0)
            {
                let settled = match self.bug {
                    Some(Bug::KeepsWhatItSpends) => &Settled { spent: None, ..settled.clone() },
                    _ => settled,
                };
                match process.store.settle(place, settled) {
                    Ok(decided) if decided.is_news() => process.answers.push_back(Event::Decided(decided)),
                    Ok(_) => {}
                    Err(error) => return self.store_failed(error),
                }
            }
            self.tell(Event::Recorded { ticket, place, record })?;
        }
        Ok(())
    }

    /// Counts all cash now and then. What that decides is told to the agent.
    fn count_cash_sometimes(&mut self) -> Result<(), Broken> {
        if !self.goes_by_cash() || !self.cash.is_due() {
            return Ok(());
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        match process.store.decide() {
            Ok(decided) => process.answers.push_back(Event::Decided(decided)),
            Err(error) => return self.store_failed(error),
        }
        self.cash.count(&mut process.store).map_err(broken(Promise::CashKept))
    }

    /// Has the store written down now and then, up to the last record that is folded in.
    fn snapshot_sometimes(&mut self, end: u64) -> Result<(), Broken> {
        if !self.random.percent(10) || self.bug == Some(Bug::ForgetsHosts) {
            return Ok(());
        }
        self.sync()?;
        let clock = self.clock();
        let Some(process) = &mut self.process else { return Ok(()) };
        let Process { agent, store, pointed, .. } = process;
        let done = snapshot(agent, store, pointed, end, clock).and_then(|job| job.run());
        match done.and_then(|done| process.store.end_snapshot(done)) {
            Ok(()) => {
                self.reach("snapshot");
                Ok(())
            }
            Err(error) => self.store_failed(error),
        }
    }

    /// The store cannot be read or written: the process ends.
    pub(super) fn store_failed(&mut self, error: nephila_store::Error) -> Result<(), Broken> {
        match error.kind() {
            ErrorKind::Format | ErrorKind::Input => {
                Err((Promise::NothingLost, format!("the store cannot be used: {error}")))
            }
            _ => {
                self.write_failed(&WriteError::Journal(error));
                Ok(())
            }
        }
    }

    fn note_outcome(&mut self, record: &Record) {
        let state = match record {
            Record::Settled(settled) => match &settled.outcome {
                Outcome::Answered { status } => format!("answered {status}"),
                Outcome::Retry { failure, .. } => format!("to be tried again: {}", failure.name()),
                Outcome::Failed { failure, .. } => format!("failed: {}", failure.name()),
                Outcome::Disallowed { .. } => "disallowed".to_owned(),
                Outcome::Sent { .. } => "sent".to_owned(),
            },
            Record::AddressWait { .. } => "a busy address".to_owned(),
            _ => return,
        };
        self.reach(&state);
    }

    pub(super) fn sync(&mut self) -> Result<(), Broken> {
        let Some(process) = &mut self.process else { return Ok(()) };
        process.sync_due = false;
        // What is written and not committed is not told to anyone, but handed over all the same.
        match process.writer.sync() {
            Ok(()) => self.all_synced(),
            Err(error) => self.write_failed(&error),
        }
        Ok(())
    }

    pub(super) fn all_synced(&mut self) {
        self.polite.synced(&|_| true);
        self.lost.synced();
        self.twice.synced(&|_| true);
    }

    pub(super) fn control(&mut self, control: Control) -> Result<(), Broken> {
        let clock = self.clock();
        let Some(process) = &mut self.process else {
            // It died while it started: the operator says it again to the next one.
            self.controls.push(control);
            return Ok(());
        };
        let mut blocked = None;
        match &control {
            Control::Block(Block::Name(host)) => {
                self.polite.blocks(host.as_str());
                blocked = Some(host.to_string());
                if self.bug == Some(Bug::IgnoresBlocks) {
                    return Ok(());
                }
            }
            Control::Unblock(block @ Block::Name(host)) => {
                self.wanted_blocks.remove(block);
                self.polite.unblocks(host.as_str());
            }
            _ => {}
        }
        self.trace.note(self.now, format_args!("{control:?}"));
        let mut actions = Vec::new();
        process.agent.step(clock, Event::Control(control), &mut actions);
        for action in &actions {
            if let (Action::Write { ticket, record, .. }, Some(host)) = (action, &blocked)
                && matches!(**record, Record::Block(_))
            {
                process.blocks.insert(*ticket, host.clone());
            }
        }
        self.perform(actions)
    }
}

pub(super) fn note_event(trace: &mut Trace<'_>, at: Mono, event: &Event) {
    match event {
        Event::Recorded { ticket, .. } => trace.note(at, format_args!("recorded {ticket:?}")),
        Event::Taken(taken) => {
            trace.note(
                at,
                format_args!("taken {} {:?} {} {:?}", taken.host, urls(&taken.due), taken.left, taken.next),
            );
        }
        other => trace.note(at, format_args!("{other:?}")),
    }
}

fn urls(due: &[Due]) -> impl Debug {
    due.iter().map(|due| due.url.as_str().to_owned()).collect::<Vec<_>>()
}

/// Places in the journal and in the archive are left out: they depend on how well records compress.
fn note_action(trace: &mut Trace<'_>, at: Mono, action: &Action) {
    match action {
        Action::Decide => trace.note(at, format_args!("decide")),
        Action::Admit { record, .. } => trace.note(at, format_args!("admit {:?}", record.found())),
        other => trace.note(at, format_args!("{other:?}")),
    }
}
