//! Hosts that are left alone because their partition has just come, and others may have asked them: for a delay, and longer where
//! the token was made anew.

use std::time::Duration;

use super::{Action, Agent};
use crate::record::Record;
use crate::site::{Partitions, Token};
use crate::time::{Mono, Now};

/// The hosts of a partition whose token was made anew are left alone for so long at least: who had it may not be as gone as was
/// said.
const MINTED_WAIT: Duration = Duration::from_secs(30);

impl Agent {
    /// Leaves the hosts of a partition alone whose token is made anew here, or was by an earlier run that may have ended at once.
    pub(super) fn rest(&mut self, partition: u16, now: Now) {
        let until = now.mono + MINTED_WAIT;
        self.site.came.insert(partition, until);
        self.site.resting.insert(partition, until);
    }

    /// Begins the rest of partitions anew of which nobody has written down that it is over.
    pub(super) fn rest_again(&mut self, now: Now) {
        if self.site.is_alone() || self.site.is_shared() {
            return;
        }
        let is_new = |partition: &u16| self.site.token(*partition).is_new();
        let resting: Vec<u16> = self.site.held.iter().filter(is_new).collect();
        resting.into_iter().for_each(|partition| self.rest(partition, now));
    }

    /// Hosts of partitions that have come are left alone for as long as that takes, those too that were here before and are still
    /// in memory: others may have asked them meanwhile.
    pub(super) fn leave_alone(&mut self, came: &Partitions) {
        for index in 0..self.bench.index_end() {
            let host = self.bench.get(index).filter(|host| came.contains(host.partition));
            let Some(at) = host.and_then(|host| self.site.came_at(&host.name)) else { continue };
            let from = at + self.first_wait(index);
            let host = self.bench.host_mut(index);
            host.not_before = host.not_before.max(from);
        }
    }

    /// When a partition has rested, this agent passes the token on to itself. So a token that was made anew and never passed on
    /// says that its hosts are still to be left alone, whenever its holder starts.
    pub(super) fn end_rests(&mut self, now: Now, out: &mut Vec<Action>) {
        let site = &mut self.site;
        site.resting.retain(|partition, until| now.mono < *until || site.held.contains(*partition));
        let me = site.me();
        let mut rested = Vec::new();
        for (partition, until) in site.resting.iter_mut().filter(|(_, until)| now.mono >= **until) {
            let Token { holder, epoch } = site.tokens.get(*partition);
            if holder == me {
                *until = Mono::NEVER;
                rested.push((*partition, Token { holder, epoch: epoch + 1 }));
            }
        }
        if !rested.is_empty() {
            self.write(Record::Tokens(rested), None, None, out);
        }
    }
}
