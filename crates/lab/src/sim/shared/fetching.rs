//! What the agents of the simulated site ask of servers, and what becomes of the answers.

use std::time::Duration;

use nephila_core::agent::{Event, FetchError, FetchId, Fetched, Order, Purpose, Ticket};
use nephila_core::assign::partition_of;
use nephila_core::record::{Failure, Pointer, Record};
use nephila_core::url::Host;
use nephila_node::shared::Task;

use super::super::Promise;
use super::super::check_polite::Begin;
use super::super::driver::{Broken, InFlight, broken};
use super::super::levels::Exchange;
use super::super::web::{Meaning, Reply};
use super::{Happening, Sim, ToProcess};

impl Sim<'_> {
    pub(super) fn fetch(&mut self, index: usize, order: Order) -> Result<(), Broken> {
        let started = self.clock(index);
        if started.mono >= order.begin_before {
            return Err((Promise::OneOwner, format!("{} is asked for without a lease", order.url)));
        }
        let name = Host::of(&order.url);
        let host = name.to_string();
        let for_rules = matches!(order.purpose, Purpose::Robots { .. });
        let reply = self.servers.ask(&self.plan, &order.url);
        let home = self.stations[index].home;
        self.exchanges.push((home, partition_of(&name)));
        self.report.requests += 1;
        let Some(address) = order.addresses.first().copied() else {
            return Err((Promise::Bounded, format!("{} was to be fetched nowhere", order.url)));
        };
        let (took, exchange) = (reply.took, self.exchanges.len() as Exchange);
        let flight =
            InFlight { exchange, host, url: order.url, address, for_rules, started, reply, site: home };
        self.owners.begins(&flight.host, index, None).map_err(broken(Promise::OneOwner))?;
        if !for_rules {
            self.twice.begins(flight.url.as_str()).map_err(broken(Promise::NothingTwice))?;
        }
        if self.now < self.trouble_end {
            self.polite.troubled();
        }
        self.polite.begins(&self.plan, &flight.begin(), self.now).map_err(broken(Promise::Polite))?;
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
        // Whoever has taken its partition over since knows nothing of it.
        let partition = self.exchanges[flight.exchange as usize - 1];
        let is_late = self.taken.get(&partition).is_some_and(|(before, ..)| flight.exchange <= *before);
        let heard = (!is_late).then_some((flight.exchange, flight.reply.meaning));
        let begin = Begin { sites: station.told.sites_at(flight.address, self.now), ..flight.begin() };
        if begin.sites > 1 {
            *self.report.reached.entry("an address that another site uses".to_owned()).or_default() += 1;
        }
        self.polite.ends(&begin, heard, station.paused_since.is_some(), self.now);
        if is_late && flight.reply.meaning == Meaning::RulesForOthers {
            // Whoever asked needs them for a host of its own.
            self.polite.rules_for_others(&flight.host);
        }
        self.owners.ends(&flight.host);
        if flight.reply.meaning == Meaning::Final && !flight.for_rules && !is_late {
            self.twice.answered(flight.url.as_str(), flight.exchange);
        }
        station.unheard.insert(fetch);
    }

    /// A process closes a connection.
    pub(super) fn abandon(&mut self, index: usize, fetch: FetchId) {
        let station = &mut self.stations[index];
        if station.unheard.contains(&fetch) {
            // It has been answered.
            return;
        }
        let Some(process) = &mut station.process else { return };
        let Some(flight) = process.in_flight.get_mut(&fetch) else { return };
        self.polite.ends(&flight.begin(), None, false, self.now);
        self.owners.ends(&flight.host);
        let error = FetchError { failure: Failure::NotTried, detail: "abandoned".into() };
        flight.reply =
            Reply { meaning: Meaning::Nothing, result: Err(error), wire: None, took: flight.reply.took };
        station.unheard.insert(fetch);
        let life = station.life;
        self.reach("a request broken off at the end of the lease");
        self.after(Duration::from_millis(1), Happening::ToProcess(index, life, ToProcess::Answered(fetch)));
    }

    /// A process hears of an answer.
    pub(super) fn fetched(&mut self, index: usize, fetch: FetchId) -> Result<(), Broken> {
        let ended = self.clock(index).mono;
        self.stations[index].unheard.remove(&fetch);
        let Some(process) = &mut self.stations[index].process else { return Ok(()) };
        let Some(flight) = process.in_flight.remove(&fetch) else { return Ok(()) };
        self.polite.reads((flight.site, flight.address), flight.exchange);
        process.held.insert(fetch, (flight.exchange, flight.reply.wire));
        let event = Event::Fetched(Fetched {
            fetch,
            started: flight.started.mono,
            ended,
            contacted: vec![flight.address],
            result: flight.reply.result,
        });
        self.tell(index, event)
    }

    /// Keeps what was received, before anything is written of it.
    pub(super) fn archive(
        &mut self,
        index: usize,
        ticket: Ticket,
        mut record: Box<Record>,
        fetch: Option<FetchId>,
    ) -> Task {
        let station = &mut self.stations[index];
        let held = station.process.as_mut().and_then(|process| process.held.remove(&fetch?));
        if let Some((exchange, wire)) = held {
            if let Some(process) = &mut station.process {
                process.exchanges.insert(ticket, exchange);
            }
            if let Some(wire) = wire {
                let archive = &mut self.archives[station.archive].received;
                archive.push(wire);
                let file = (archive.len() - 1) as u32;
                let pointer = Some(Pointer { shard: station.archive as u16, file, offset: 0, length: 0 });
                match &mut *record {
                    Record::Settled(settled) => settled.capture = pointer,
                    Record::Robots(robots) => robots.capture = pointer,
                    _ => {}
                }
            }
        }
        Task::Write { ticket, record }
    }
}
