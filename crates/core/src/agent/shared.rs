//! The agent in a site whose agents share a store: what it is told and asks for, and what it remembers of its lease.
//!
//! How it works is in three parts: [`super::lease`] keeps the lease and watches those of others, [`super::takeover`] takes
//! partitions over and lets them go, [`super::post`] brings found URLs to whom they belong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::post::Post;
use super::takeover::Letting;
use super::{Action, Admitted, Agent, Stored, Ticket};
use crate::record::{Found, Outcome, Record};
use crate::site::{AgentId, Beat, Leases, Message, Partitions};
use crate::time::{Mono, Now, Wall};
use crate::url::{Host, Url};

/// How long a lease lasts, from before it was asked for.
pub(super) const LEASE: Duration = Duration::from_secs(5);
/// How much longer others wait: clocks may be wrong by one percent, on either side.
pub(super) const MARGIN_PART: u32 = 40;
/// How often it is renewed,
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// and how long an answer is waited for before it is tried again.
pub(super) const BEAT_TIME_MAX: Duration = Duration::from_secs(2);

/// Something that happened in or to a store that agents share.
#[derive(Debug)]
pub enum SharedEvent {
    /// The answer to [`SharedAction::Beat`], if there was one that the replicas have.
    Leased {
        /// As in the beat.
        number: u64,
        /// The incarnation that sent it; nothing if it was refused.
        incarnation: Option<u64>,
        /// All leases, then.
        leases: Box<Leases>,
    },
    /// The answer to [`SharedAction::TakeOver`], or a part of it.
    TookOver {
        /// As asked.
        incarnation: u64,
        /// The partitions.
        partitions: Vec<u16>,
        /// What the store holds in all of them that are held.
        stored: Stored,
    },
    /// The answer to [`SharedAction::LetGo`], or a part of it.
    LetGo {
        /// As asked.
        incarnation: u64,
        /// The partitions.
        partitions: Vec<u16>,
        /// What the store holds in those that are still held.
        stored: Stored,
    },
    /// Somebody else has taken a partition over: nothing more can be written to it.
    Fenced {
        /// The partition.
        partition: u16,
    },
    /// A record was not written and will not be, because somebody else has its partition.
    Refused {
        /// As given with [`super::Action::Write`].
        ticket: Ticket,
        /// The record.
        record: Box<Record>,
    },
    /// The answer to [`SharedAction::TakeElsewhere`].
    Elsewhere(Vec<(u64, Found)>),
    /// The answer to [`SharedAction::Offer`]: they are known, durably.
    Offered {
        /// As given.
        from: AgentId,
        /// As given.
        batch: (u64, u64),
        /// What the sieve said, of these and others; nothing if some of it is not of our partitions, and then nothing was done.
        admitted: Option<Admitted>,
    },
    /// The replicas of these partitions have not confirmed anything for some seconds, and those of all others do. What concerns
    /// these waits until they are not among them any more, and nothing is to be asked of their hosts meanwhile.
    Unconfirmed {
        /// The partitions, whoever holds them.
        partitions: Partitions,
    },
    /// The answer to [`SharedAction::Mark`].
    Marked {
        /// The host.
        host: Host,
    },
}

/// Something that a store which agents share should do. Those that concern a partition are done in their order.
#[derive(Clone, Debug)]
pub enum SharedAction {
    /// Have the table of leases take this in, atomically; answered by [`SharedEvent::Leased`] once the replicas have it, and not
    /// at all otherwise. An earlier one that has no answer need not be done any more.
    Beat(Box<Beat>),
    /// Raise the epochs of these partitions; answered by [`SharedEvent::TookOver`].
    TakeOver {
        /// To be given back with the answer.
        incarnation: u64,
        /// The partitions.
        partitions: Vec<u16>,
    },
    /// Let these partitions go when all that was done in them is durable; answered by [`SharedEvent::LetGo`].
    LetGo {
        /// To be given back with the answer.
        incarnation: u64,
        /// The partitions.
        partitions: Vec<u16>,
    },
    /// This agent was fenced: forget all partitions. Whatever else was asked for need not be done, but records that are not
    /// written are [refused](SharedEvent::Refused).
    Forget,
    /// Hand over what was found of hosts of other agents; answered by [`SharedEvent::Elsewhere`].
    TakeElsewhere {
        /// So many at most.
        max: usize,
    },
    /// Offer what other agents found, or this one before it held the partitions, which is acknowledged by that; answered by
    /// [`SharedEvent::Offered`] once all of it is decided and durable.
    Offer {
        /// To be given back with the answer.
        from: AgentId,
        /// To be given back with the answer.
        batch: (u64, u64),
        /// URLs, and the places of the records that found them.
        found: Vec<(u64, Found)>,
    },
    /// Others have got what records at these places found, each place once for each URL.
    Acknowledge {
        /// The places.
        places: Vec<u64>,
    },
    /// Note durably that a host is about to be asked; answered by [`SharedEvent::Marked`], but not while it is of a partition
    /// that is [not confirmed](SharedEvent::Unconfirmed). It holds until something is [kept](super::Action::Keep) of the host.
    Mark {
        /// The host.
        host: Host,
    },
}

/// How far the calendars of two agents may be apart. Who moves that of the site on has a valid lease, and so that was not longer
/// ago than a lease lasts, nor was it read longer ago.
const CALENDARS_APART: Duration = LEASE.saturating_mul(2).saturating_add(Duration::from_millis(250));

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// 0 while it has none.
    pub(super) incarnation: u64,
    /// The incarnation in whose place it would come.
    pub(super) replaces: u64,
    pub(super) number: u64,
    /// Beats without an answer, and when each was sent.
    pub(super) sent: VecDeque<(u64, Mono)>,
    pub(super) next_beat: Mono,
    /// The lease ends then.
    pub(super) valid_until: Mono,
    /// What time it is.
    pub(super) now: Mono,
    /// What was in flight when the lease ended has been broken off.
    pub(super) is_broken_off: bool,
    pub(super) leases: Leases,
    /// Since when it has this incarnation.
    pub(super) joined: Mono,
    /// When they were last read.
    pub(super) read_at: Option<Mono>,
    /// Of each agent the incarnation and number that it was last seen with, and since when.
    pub(super) watched: BTreeMap<AgentId, (u64, u64, Mono)>,
    /// The digest of the wishes that are kept beside them, and since when it is that.
    pub(super) wishes_since: Option<(u64, Mono)>,
    /// What the calendar of the site showed, and when that was heard.
    calendar: Option<(Wall, Mono)>,
    /// Partitions that are being taken over,
    pub(super) taking: Partitions,
    /// that are on their way out,
    pub(super) letting: Option<Letting>,
    /// and that are let go but not free for others yet.
    pub(super) gone: Partitions,
    /// Hosts may be in memory whose partitions are lost.
    pub(super) has_lost: bool,
    /// Hosts that the store knows to be about to be asked, or to be asked now.
    marked: BTreeSet<u32>,
    /// Partitions whose replicas do not confirm anything for now.
    pub(super) unconfirmed: Partitions,
    /// Seeds that wait for a partition to be written to.
    pub(super) seeds: Vec<Url>,
    pub(super) has_left: bool,
    pub(super) post: Post,
}

impl Shared {
    pub(super) fn is_valid(&self) -> bool {
        self.now < self.valid_until
    }

    /// Whether partitions are coming, and whether some are going.
    pub(super) fn handovers(&self) -> usize {
        usize::from(!self.taking.is_empty()) + usize::from(self.letting.is_some() || !self.gone.is_empty())
    }

    /// What the calendar of the site shows.
    pub(super) fn wall(&self, now: Now) -> Wall {
        self.calendar.map_or(now.wall, |(wall, at)| wall + now.mono.since(at))
    }

    /// How much later a moment is to be written down, so that it is not too early for whoever reads it.
    pub(super) fn slack(&self) -> Duration {
        CALENDARS_APART
    }

    /// Takes in what the calendar of the site showed. Who has a valid lease moves it on and is not set back by it.
    pub(super) fn set_calendar(&mut self, wall: Wall, now: Now) {
        if self.calendar.is_none() || !self.is_valid() || wall > self.wall(now) {
            self.calendar = Some((wall, now.mono));
        }
    }
}

impl Agent {
    pub(super) fn on_shared(&mut self, event: SharedEvent, now: Now, out: &mut Vec<Action>) {
        use SharedEvent::*;
        match event {
            Leased { number, incarnation, leases } => self.on_leased(number, incarnation, *leases, now, out),
            TookOver { incarnation, partitions, stored } => {
                self.on_took_over(incarnation, &partitions, stored, now, out);
            }
            LetGo { incarnation, partitions, stored } => {
                self.on_let_go(incarnation, &partitions, stored, now)
            }
            Fenced { partition } => self.on_fenced(partition, now, out),
            Refused { ticket, record } => self.on_refused(ticket, &record, now, out),
            Elsewhere(found) => self.on_elsewhere(found),
            Offered { from, batch, admitted } => self.on_offered(from, batch, admitted, now, out),
            Unconfirmed { partitions } => {
                if let Some(shared) = &mut self.site.shared {
                    shared.unconfirmed = partitions;
                    shared.post.try_held_up();
                }
            }
            Marked { host } => {
                if let Some(index) = self.bench.find(&host) {
                    if let Some(shared) = &mut self.site.shared {
                        shared.marked.insert(index);
                    }
                    self.carry_on(index, now, out);
                }
            }
        }
    }

    pub(super) fn on_message_shared(
        &mut self,
        from: AgentId,
        message: Message,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        match message {
            Message::Offer { batch, found } => self.on_offer(from, batch, found, now, out),
            Message::Delivered { batch } => self.on_accepted(from, batch, out),
            Message::AskRules { origin, url, hops } => self.on_ask_rules(from, origin, &url, hops, now, out),
            Message::Rules { origin, url, hops, result } => {
                self.on_rules(&origin, &url, hops, *result, now, out);
            }
            Message::Turn(turn) => self.on_turn_message(from, turn, now, out),
            Message::Claim { call, site, claim } => self.on_claim_message(from, (site, call), *claim, out),
            Message::Release { call, release } => self.on_release(call, release, out),
            Message::Used { site, addresses } => self.on_used(site, &addresses, now),
            Message::Full(sites) => self.on_full(from, sites, now),
            // The others are for sites whose agents have stores of their own.
            _ => {}
        }
    }

    /// Whether a store that agents share knows that this host is about to be asked.
    pub(super) fn is_marked(&self, index: u32) -> bool {
        self.site.shared.as_ref().is_none_or(|shared| shared.marked.contains(&index))
    }

    /// Whether nothing may be asked of a host because it would not be confirmed.
    pub(super) fn is_unconfirmed(&self, index: u32) -> bool {
        let partition = self.bench.host(index).partition;
        self.site.shared.as_ref().is_some_and(|shared| shared.unconfirmed.contains(partition))
    }

    /// A host is not about to be asked any more. Says whether it was marked.
    pub(super) fn unmark(&mut self, index: u32) -> bool {
        self.site.shared.as_mut().is_some_and(|shared| shared.marked.remove(&index))
    }

    /// Whether it is about to leave its site.
    pub(super) fn is_leaving(&self) -> bool {
        self.site.shared.as_ref().is_some_and(|shared| !shared.has_left)
    }

    /// Hands a record out to be written that a later run of this agent would replay. Where agents share a store none does.
    pub(super) fn write_own(&mut self, record: Record, out: &mut Vec<Action>) {
        if !self.site.is_shared() {
            self.write(record, None, None, out);
        }
    }

    /// What has become of a host is kept with it: nobody reads old records. What depends on that is done in its partition, too,
    /// and so comes after it, or not at all.
    fn keep_host(&mut self, host: &Host, now: Now, out: &mut Vec<Action>) {
        if let Some(index) = self.bench.find(host) {
            self.keep_shared(index, now, out);
        }
    }

    /// Seeds, unless there is nowhere to write them yet: then they wait.
    pub(super) fn may_write_seeds(&mut self, urls: Vec<Url>) -> Option<Vec<Url>> {
        match self.site.shared.as_mut().filter(|_| self.site.held.is_empty()) {
            Some(shared) => {
                shared.seeds.extend(urls);
                None
            }
            None => Some(urls),
        }
    }

    /// What others may read by a calendar that is ahead of this one is written down for later.
    pub(super) fn allow_for_others(&self, outcome: &mut Outcome) {
        if let (Outcome::Retry { not_before, .. }, Some(shared)) = (outcome, &self.site.shared) {
            *not_before = *not_before + shared.slack();
        }
    }

    /// A record is durable.
    pub(super) fn on_recorded_shared(&mut self, record: &Record, now: Now, out: &mut Vec<Action>) {
        if let Some(shared) = &mut self.site.shared {
            shared.post.wants_a_look();
        }
        match record {
            Record::Claimed { host, version, memo } => {
                self.host_is_claimed(host, *version, memo.as_deref(), now);
                self.keep_host(host, now, out);
            }
            Record::Granted { host, version, to } => {
                self.host_is_granted(host, *version, to, now);
                self.keep_host(host, now, out);
            }
            // Another site may have done what is about to be asked for, or tried it.
            Record::Moved { moved, .. } => {
                moved.hosts.iter().for_each(|moved| self.put_back_all(&moved.host, now, out));
            }
            Record::Arrived(arrived) => self.put_back_tried(&arrived.found, now, out),
            _ => {}
        }
        // If its partition was lost meanwhile, nothing more holds its host here.
        self.sweep_lost(now, out);
    }
}
