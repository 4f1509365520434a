//! The end of a run: when everything is done, what the agents know is compared with what the web held.

use std::path::Path;

use nephila_core::agent::SiteView;
use nephila_core::assign::{PARTITIONS, partition_of};
use nephila_core::site::Partitions;
use nephila_core::time::Mono;
use nephila_core::url::Host;
use nephila_node::writer::WriteError;
use nephila_store::{KnownState, OwnStore, Store};

use super::super::Promise;
use super::super::check_lost;
use super::super::driver::{Broken, Process, broken};
use super::station::{DIR, Station};
use super::{FAULTS_FOR, Happening, LOOK_EVERY, REST, Sim};

impl Sim<'_> {
    /// Whether everything is done: then the run ends.
    pub(super) fn look(&mut self) -> Result<bool, Broken> {
        self.after(LOOK_EVERY, Happening::Look);
        self.check_outgoing()?;
        let is_agreed = self.look_at_said();
        if self.now < self.faults_end.max(Mono(0) + FAULTS_FOR) {
            return Ok(false);
        }
        if self.now > self.faults_end + REST {
            let views: Vec<_> = (0..self.stations.len()).map(|index| self.view(index)).collect();
            return Err((Promise::NothingLost, format!("the crawl does not finish: {views:?}")));
        }
        let mut waiting = vec![0; self.stations.len()];
        for (station, waiting) in self.stations.iter_mut().zip(&mut waiting) {
            // What a handover that came to nothing has left does not count.
            let Some(Process { agent, store, .. }) = &mut station.process else { continue };
            let open = agent.open_partitions();
            let counted = store.hosts(&mut |stored| {
                let is_open = open.is_some_and(|open| open.contains(partition_of(&stored.host)));
                *waiting += if is_open { stored.queued } else { 0 };
            });
            counted.map_err(|error| (Promise::NothingLost, error.to_string()))?;
            // What is not decided may be new.
            *waiting += store.stored().undecided;
        }
        let mut open = 0;
        let is_left = |index: &usize| !self.stations[*index].is_gone;
        let left: Vec<usize> = (0..self.stations.len()).filter(is_left).collect();
        let is_done = left.into_iter().all(|index| {
            let clock = self.clock(index);
            self.stations[index].process.as_mut().is_some_and(|process| {
                let status = process.agent.status(clock);
                let view = process.agent.site_view(clock);
                open += process.agent.open_partitions().map_or(0, Partitions::len);
                let is_quiet = |view: SiteView| {
                    let moving = view.misplaced + view.owing + view.handovers + view.unrecovered;
                    moving == 0 && !view.is_delivering
                };
                waiting[index] == 0 && status.unsettled == 0 && view.is_some_and(is_quiet)
            })
        });
        if !is_done || !is_agreed || open != usize::from(PARTITIONS) * self.sites() {
            return Ok(false);
        }
        self.check_end()?;
        self.check_cash()?;
        self.check_archives()?;
        self.check_said()?;
        Ok(true)
    }

    /// Compares what agents count that waits for other sites with what their stores hold.
    fn check_outgoing(&mut self) -> Result<(), Broken> {
        for index in 0..self.stations.len() {
            let clock = self.clock(index);
            let Station { process: Some(process), federation: Some(federation), .. } =
                &mut self.stations[index]
            else {
                continue;
            };
            let is_held_up = process.agent.status(clock).hosts.held_up > 0;
            let (counted, is_exact) = process.agent.outgoing_urls();
            let mut stored = 0;
            let counting = process.store.hosts(&mut |host| {
                stored += if federation.counted_for(&host.host) == federation.me() { 0 } else { host.queued };
            });
            if let Err(error) = counting {
                self.disk_failed(index, &WriteError::Store(error))?;
                continue;
            }
            if is_exact && counted != stored {
                let what = format!("agent {index} counts {counted} URLs for other sites, its store {stored}");
                return Err((Promise::Bounded, what));
            }
            if is_held_up {
                self.reach("pages that wait for room on the way to another site");
            }
            if is_exact && stored > 0 {
                self.reach("URLs that wait for other sites, counted");
            }
        }
        Ok(())
    }

    /// All cash that records have made is somewhere. What was lost with a disk or its power, or fetched by two agents, nobody
    /// counts.
    fn check_cash(&mut self) -> Result<(), Broken> {
        let is_exact = !self.has_lost && !self.has_forgotten && !self.has_kept_more;
        if !self.by_cash || !is_exact {
            return Ok(());
        }
        let (mut made, mut there) = (0, 0);
        let (mut given, mut heard) = (0_i128, 0_i128);
        let mut sums = Vec::new();
        for station in &mut self.stations {
            let Some(process) = &mut station.process else { return Ok(()) };
            // What a handover that came to nothing has left is counted where it is held.
            let (open, mut is_left) = (process.agent.open_partitions(), false);
            let is_open = |host: &Host| open.is_some_and(|open| open.contains(partition_of(host)));
            let counted = process.store.hosts(&mut |stored| is_left |= !is_open(&stored.host));
            counted.map_err(|error| (Promise::CashKept, error.to_string()))?;
            if is_left {
                return Ok(());
            }
            let cash = process.store.cash().map_err(|error| (Promise::CashKept, error.to_string()))?;
            sums.push((station.cash.made(), cash));
            (given, heard) = (given + i128::from(cash.given), heard + i128::from(cash.heard));
            made += station.cash.made();
            there += cash.sum();
        }
        self.reach("cash counted");
        // Sites have heard what agents have with the hosts of others, and not as given.
        if self.sites() == 1 && heard > given {
            let what = format!("{given} units of cash were given to others, and {heard} heard of: {sums:?}");
            return Err((Promise::CashKept, what));
        }
        if made != there {
            let what = format!("{made} units of cash were made, and there are {there}: {sums:?}");
            return Err((Promise::CashKept, what));
        }
        Ok(())
    }

    /// Every page that was counted is whole in an archive.
    fn check_archives(&mut self) -> Result<(), Broken> {
        for index in 0..self.stations.len() {
            // What is read back must not lie in a buffer.
            self.sync(index)?;
            let Station { process: Some(process), site, disk, .. } = &mut self.stations[index] else {
                continue;
            };
            let whole = self.archived.check(&self.plan, site.me, process, disk, Path::new(DIR));
            whole.map_err(|what| (Promise::NothingLost, format!("agent {index} ends: {what}")))?;
        }
        Ok(())
    }

    fn view(&mut self, index: usize) -> String {
        let clock = self.clock(index);
        match &mut self.stations[index].process {
            Some(process) => {
                let status = process.agent.status(clock);
                let view = process.agent.site_view(clock).map(|view| {
                    (
                        view.held,
                        view.misplaced,
                        view.owing,
                        view.handovers,
                        view.unrecovered,
                        view.is_delivering,
                    )
                });
                format!("{index}: queue {}, {:?}, {view:?}", status.queue, status.hosts)
            }
            None => format!("{index}: down"),
        }
    }

    /// Compares what the site knows with what the web held.
    fn check_end(&mut self) -> Result<(), Broken> {
        let mut held = 0;
        for index in 0..self.stations.len() {
            let clock = self.clock(index);
            let process = self.stations[index].process.as_ref();
            if let Some(view) = process.and_then(|process| process.agent.site_view(clock)) {
                held += view.held;
                self.count_run_out(view.turns_run_out);
            }
        }
        if held != usize::from(PARTITIONS) * self.sites() {
            return Err((Promise::OneOwner, format!("{held} partitions are held in the end")));
        }
        let lost = broken(Promise::NothingLost);
        let mut lost_urls = 0;
        let mut missing = Vec::new();
        for (url, fate) in &self.plan.must {
            let (mut found, mut is_seen) = (None, false);
            let host = self.plan.host_of(url).ok_or_else(|| lost(format!("{url} has no host")))?;
            let parsed = check_lost::parsed(url).map_err(&lost)?;
            for station in self.stations.iter_mut().filter(|station| station.may_be_home(&host.name)) {
                let Some(process) = &mut station.process else { continue };
                match check_lost::state_of(&mut process.store, &parsed).map_err(&lost)? {
                    Some(KnownState::Settled(settled)) => {
                        // The site that it was given to may have done it, and nothing more have been found of its host since it
                        // is this one's.
                        found =
                            Some(settled).filter(|settled| check_lost::is_done(&settled.outcome)).or(found);
                    }
                    Some(KnownState::Elsewhere { .. }) => is_seen |= holds(process, host.partition),
                    None => {}
                    Some(other) if holds(process, host.partition) => {
                        return Err(lost(format!("{url} is {other:?} in the end")));
                    }
                    // It is left from a handover that came to nothing.
                    Some(_) => {}
                }
            }
            // Whoever settled it may have handed its host over since; what a power cut might have taken back may have been kept.
            let is_kept = (self.has_kept_more || self.has_kept_untold) && (is_seen || found.is_some());
            let is_settled = found.is_some() || self.lost.was_settled(url) || is_kept;
            if self.has_lost && !is_seen && !is_kept && !self.copies.has(url) {
                lost_urls += 1;
                if let Some(page) = self.copies.lead_to(&self.plan, url) {
                    return Err(lost(format!("{url} is not crawled, and {page} leads there")));
                }
            } else if !is_settled {
                missing.push(url.clone());
            }
            if let Some(settled) = found {
                check_lost::compare(url, *fate, &settled.outcome).map_err(&lost)?;
            }
        }
        if !missing.is_empty() {
            missing.truncate(20);
            return Err(lost(format!("may be fetched and were not settled: {}", missing.join(" "))));
        }
        self.report.reached.insert("URLs that had to be crawled".to_owned(), self.plan.must.len() as u64);
        if self.has_lost {
            self.report.reached.insert("URLs lost with a disk".to_owned(), lost_urls);
        }
        Ok(())
    }
}

/// Whether an agent may ask the hosts of a partition.
fn holds(process: &Process, partition: u16) -> bool {
    process.agent.open_partitions().is_some_and(|open| open.contains(partition))
}
