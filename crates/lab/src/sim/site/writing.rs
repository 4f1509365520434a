//! What the agents of the simulated site write, and what becomes of it.

use std::time::Duration;

use nephila_core::agent::{Event, FetchId, Ticket};
use nephila_core::assign::partition_of_address;
use nephila_core::record::{Arrived, How, Record};
use nephila_core::site::AgentId;
use nephila_core::url::AddressKey;
use nephila_node::crawl::snapshot;
use nephila_node::writer::{Done, Job, WriteError};
use nephila_store::Store;

use super::super::SiteBug;
use super::super::check_lost;
use super::super::driver::{Broken, Process};
use super::super::levels::{Exchange, Level};
use super::super::web::HostPlan;
use super::station::Station;
use super::{Happening, Sim, TROUBLE_LASTS, ToProcess};

const COMMIT_AFTER: Duration = Duration::from_millis(20);
const SYNC_AFTER: Duration = Duration::from_secs(1);

impl Station {
    fn note_unsynced(&mut self, durable: &[Done]) {
        for done in durable {
            if let Record::Settled(settled) = &*done.record
                && check_lost::is_done(&settled.outcome)
            {
                self.unsynced.push(settled.url.clone());
            }
        }
    }
}

impl Sim<'_> {
    pub(super) fn write(
        &mut self,
        index: usize,
        ticket: Ticket,
        mut record: Box<Record>,
        fetch: Option<FetchId>,
    ) -> Result<(), Broken> {
        let wall = self.clock(index).wall;
        let station = &mut self.stations[index];
        let life = station.life;
        let Some(process) = &mut station.process else { return Ok(()) };
        process.store.prune(&mut record);
        if let (Some(SiteBug::AddsWhatIsTold), Record::Arrived(arrived)) = (self.bug, &mut *record) {
            // As if nobody had said anything before.
            arrived.totals.iter_mut().for_each(|total| total.giver = AgentId::from(ticket.0));
        }
        if let Record::Tokens(tokens) = &*record {
            let open = process.agent.open_partitions();
            for (partition, token) in tokens {
                let holds = open.is_some_and(|open| open.contains(*partition));
                self.rests.written((index, station.site.me), (*partition, *token), holds, self.now);
            }
        }
        let (exchange, capture) = match fetch.and_then(|fetch| process.held.remove(&fetch)) {
            Some((exchange, capture)) => (Some(exchange), capture),
            None => (None, None),
        };
        process.exchanges.extend(exchange.map(|exchange| (ticket, exchange)));
        let commit = !std::mem::replace(&mut process.commit_due, true);
        let sync = !std::mem::replace(&mut process.sync_due, true);
        let capture = capture.filter(|_| self.bug != Some(SiteBug::ForgetsToArchive));
        let written = process.writer.write(Job { ticket, record, capture, attempt: None }, wall);
        if let Err(error) = written {
            return self.disk_failed(index, &error);
        }
        let wait = if commit || sync { self.disk_wait(index) } else { Duration::ZERO };
        if commit {
            self.after(COMMIT_AFTER + wait, Happening::ToProcess(index, life, ToProcess::Commit));
        }
        if sync {
            self.after(SYNC_AFTER + wait, Happening::ToProcess(index, life, ToProcess::Sync));
        }
        Ok(())
    }

    pub(super) fn commit(&mut self, index: usize) -> Result<(), Broken> {
        let station = &mut self.stations[index];
        let Some(process) = &mut station.process else { return Ok(()) };
        (process.commit_due, station.is_untold) = (false, false);
        let durable = match process.writer.commit() {
            Ok(durable) => durable,
            Err(error) => return self.disk_failed(index, &error),
        };
        let end = process.writer.end();
        // What others count on was synced, and all before it.
        let is_synced = durable.iter().any(|done| done.record.is_for_others());
        self.stations[index].note_unsynced(&durable);
        self.durable(index, durable)?;
        if is_synced {
            self.is_synced(index);
        }
        if !self.random.percent(5) {
            return Ok(());
        }
        self.sync(index)?;
        let clock = self.clock(index);
        let Some(process) = &mut self.stations[index].process else { return Ok(()) };
        let Process { agent, store, pointed, .. } = process;
        let done = snapshot(agent, store, pointed, end, clock).and_then(|job| job.run());
        let ended = done.and_then(|done| process.store.end_snapshot(done));
        if let Err(error) = ended {
            return self.disk_failed(index, &WriteError::Store(error));
        }
        self.reach("snapshot");
        Ok(())
    }

    fn durable(&mut self, index: usize, durable: Vec<Done>) -> Result<(), Broken> {
        for done in &durable {
            self.lost.acknowledged(&done.record, Level::Kernel);
            self.copies.written(self.stations[index].site.me, &done.record);
            self.archived.written(self.stations[index].site.me, &done.record);
            let Some(process) = &mut self.stations[index].process else { return Ok(()) };
            process.pointed.see(&done.record);
            if let Some(exchange) = process.exchanges.remove(&done.ticket) {
                self.polite.kept(exchange, Level::Kernel);
                self.twice.kept(exchange, Level::Kernel);
            }
            match &*done.record {
                Record::Released { tokens, .. } if !tokens.is_empty() => self.reach("tokens given up"),
                Record::Settled(settled) if check_lost::is_done(&settled.outcome) => {
                    self.settled_by.insert(settled.url.clone(), index);
                }
                Record::Granted { .. } => self.reach("a host granted to the nearest site"),
                Record::Members(_) => self.reach("the list of members changed"),
                Record::Arrived(Arrived { from, found, .. })
                    if *from == self.stations[index].site.me
                        && found.iter().any(|found| matches!(found.how, How::Returned { .. })) =>
                {
                    self.reach("URLs found again that a lost site had");
                }
                Record::Tokens(tokens) => {
                    let has_changed = |host: &HostPlan| {
                        let kept = partition_of_address(AddressKey::of(host.address));
                        tokens.iter().any(|(partition, _)| *partition == kept)
                    };
                    if self.plan.hosts.iter().any(has_changed) {
                        self.reach("an address with another keeper");
                    }
                    self.trouble(TROUBLE_LASTS);
                }
                _ => {}
            }
        }
        for Done { ticket, place, record } in durable {
            self.stations[index].cash.written(place, &record);
            let Some(process) = &mut self.stations[index].process else { return Ok(()) };
            if let Record::Settled(settled) = &*record {
                match process.store.settle(place, settled) {
                    Ok(decided) if decided.is_news() => process.answers.push_back(Event::Decided(decided)),
                    Ok(_) => {}
                    Err(error) => return self.disk_failed(index, &WriteError::Store(error)),
                }
            }
            self.tell(index, Event::Recorded { ticket, place, record })?;
        }
        Ok(())
    }

    pub(super) fn sync(&mut self, index: usize) -> Result<(), Broken> {
        let Some(process) = &mut self.stations[index].process else { return Ok(()) };
        process.sync_due = false;
        let is_untold = process.commit_due;
        if let Err(error) = process.writer.sync() {
            return self.disk_failed(index, &error);
        }
        self.stations[index].is_untold = is_untold;
        self.is_synced(index);
        Ok(())
    }

    /// All that the kernel has of an agent is on its disk.
    fn is_synced(&mut self, index: usize) {
        self.stations[index].unsynced.clear();
        let its = |exchange: Exchange| self.owners.asked_by(exchange) == Some(index);
        self.polite.synced(&its);
        self.twice.synced(&its);
    }
}
