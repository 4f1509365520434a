//! The agent in its site: whom it crawls with, and which partitions are its own.
//!
//! A crawl alone is a site of one that holds everything, and then nothing here does anything.
//!
//! Invariants:
//! - *An agent asks hosts only of partitions whose token it has: what it knows of them is durable, and so is that it has it.*
//! - *A token that it passes on it has given up durably before the other is told.*

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use super::exchange::OtherSite;
use super::handover::{Arriving, Handover};
use super::keeper::Keeper;
use super::namesakes::{Namesakes, Refusal};
use super::outbox::Outbox;
use super::recovery::Recovery;
use super::shared::Shared;
pub use super::terms::{Acquaintance, Differing};
use super::turns::Turns;
use super::{Agent, Ticket};
use crate::assign::{Ring, partition_of};
use crate::record::{Record, Recovered};
use crate::site::{
    AgentId, Figures, Greeting, Member, Members, Partitions, SiteSettings, Table, Token, Tokens, Wishes,
};
use crate::time::{Mono, Now};
use crate::url::Host;

/// A member that was heard of within this time is worth talking to. Nothing else depends on it.
pub(super) const WELL: Duration = Duration::from_secs(5);
/// What was not answered is said again after this.
pub(super) const AGAIN: Duration = Duration::from_secs(2);

/// What is known of another agent in this run.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// When it was last heard of.
    pub(super) heard: Option<Mono>,
    /// What it said last of what it holds: in which run of its, and which version,
    pub(super) said: Option<(u64, u64)>,
    /// and what we have taken in.
    pub(super) known: Option<(u64, u64)>,
    /// The partitions of which it has something.
    pub(super) has: Partitions,
    /// Sites for which too much waits with it.
    pub(super) full: Vec<u16>,
    /// The digest of what all are to know, as far as it said last that it does.
    pub(super) wishes: Option<u64>,
}

impl Peer {
    /// Whether all is known that it has said.
    pub(super) fn is_heard(&self) -> bool {
        self.said.is_some() && self.said == self.known
    }
}

/// What is to be said to whom when a record is durable.
#[derive(Debug)]
pub(super) enum Reply {
    /// A batch was delivered.
    Delivered(AgentId, (u64, u64)),
    /// A part of what another agent knew, or this one.
    Moved {
        /// Whose,
        from: AgentId,
        /// of which handover,
        id: (u64, u64),
        /// and which part;
        part: u32,
        /// it is about these.
        of: Partitions,
    },
    /// Tokens were passed on to us.
    Granted(AgentId, Vec<(u16, u64)>),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Site {
    /// `None` for a crawl alone.
    pub(super) settings: Option<SiteSettings>,
    /// Where agents share a store; `None` where each has its own.
    pub(super) shared: Option<Box<Shared>>,
    pub(super) members: Members,
    pub(super) wishes: Wishes,
    pub(super) ring: Ring<AgentId>,
    pub(super) tokens: Tokens,
    /// The partitions whose tokens are here, durably.
    pub(super) held: Partitions,
    /// Those whose tokens were made anew elsewhere: what is known here of them goes there.
    owing: Partitions,
    /// Those that are about to leave: nothing new is asked of their hosts, and nothing admitted.
    frozen: Partitions,
    /// Everything held here is where it should be, or about to leave.
    pub(super) is_placed: bool,
    /// Those that are held and not about to leave; `None` for all.
    pub(super) open: Option<Arc<Partitions>>,
    /// From when on partitions may be asked that came in this run.
    pub(super) came: BTreeMap<u16, Mono>,
    /// Those whose tokens were made anew here, until when their hosts are left alone for that; never, once it is being written
    /// down that this is over.
    pub(super) resting: BTreeMap<u16, Mono>,
    pub(super) peers: BTreeMap<AgentId, Peer>,
    /// Agents that are not in a site either.
    pub(super) met: BTreeMap<AgentId, Greeting>,
    /// Agents that were told otherwise.
    pub(super) differing: BTreeMap<AgentId, Differing>,
    /// Agents that were not let in lately, because others have their names.
    pub(super) refusals: BTreeMap<AgentId, Refusal>,
    /// Counts the changes of what is held here, in this run.
    pub(super) holds: u64,
    /// When to look for tokens whose holders are gone.
    pub(super) orphans_at: Mono,
    /// These were gone and had none when tokens had changed so often.
    pub(super) no_orphans_at: Option<(u64, Vec<AgentId>)>,
    pub(super) next_beat: Mono,
    pub(super) beats: u64,
    /// Nobody is heard of, and others may take this agent for gone: it asks nothing.
    pub(super) is_cut_off: bool,
    /// It was forgotten and has joined again, and may not have heard who has taken over what: until then it asks nothing.
    pub(super) unsure_until: Option<Mono>,
    pub(super) replies: BTreeMap<Ticket, Reply>,
    /// Tokens that were passed on, and not confirmed.
    pub(super) granting: BTreeMap<AgentId, BTreeMap<u16, u64>>,
    pub(super) handovers: BTreeMap<AgentId, Handover>,
    pub(super) handovers_begun: u64,
    pub(super) arriving: BTreeMap<(AgentId, (u64, u64)), Arriving>,
    pub(super) recovery: Option<Recovery>,
    /// Of each partition: up to which life of its token all that is known here is with its holder.
    recovered: Table<u64>,
    /// There was nothing left to pass on when tokens had changed so often.
    recovered_all_at: Option<u64>,
    /// Pages and URLs that were passed on in this way.
    pub(super) recovered_counts: (u64, u64),
    /// How far others had come when they were last heard of.
    pub(super) figures: BTreeMap<AgentId, Figures>,
    pub(super) outbox: Outbox,
    pub(super) keeper: Keeper,
    pub(super) turns: Turns,
}

/// What an agent must not forget of its site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SiteMemo {
    members: Members,
    wishes: Wishes,
    tokens: Tokens,
    held: Partitions,
    owing: Partitions,
    granting: Vec<(AgentId, BTreeMap<u16, u64>)>,
    recovered: Table<u64>,
    recovered_counts: (u64, u64),
    figures: BTreeMap<AgentId, Figures>,
    outbox_from: u64,
}

impl Site {
    /// A site of one that holds everything.
    pub(super) fn alone() -> Site {
        Site { held: Partitions::all(), open: None, ..Site::fresh(None) }
    }

    /// The site of an agent that knows nothing of it yet.
    pub(super) fn of(settings: SiteSettings) -> Site {
        Site::fresh(Some(settings))
    }

    fn fresh(settings: Option<SiteSettings>) -> Site {
        let members = Members::default();
        let is_shared = settings.as_ref().is_some_and(|settings| settings.shares_store);
        Site {
            shared: is_shared.then(Default::default),
            settings,
            ring: members.ring(),
            tokens: Tokens::of(&members),
            members,
            wishes: Wishes::default(),
            held: Partitions::default(),
            owing: Partitions::default(),
            frozen: Partitions::default(),
            is_placed: false,
            open: Some(Arc::default()),
            came: BTreeMap::new(),
            resting: BTreeMap::new(),
            peers: BTreeMap::new(),
            met: BTreeMap::new(),
            differing: BTreeMap::new(),
            refusals: BTreeMap::new(),
            holds: 0,
            orphans_at: Mono(0),
            no_orphans_at: None,
            next_beat: Mono(0),
            beats: 0,
            is_cut_off: false,
            unsure_until: None,
            replies: BTreeMap::new(),
            granting: BTreeMap::new(),
            handovers: BTreeMap::new(),
            handovers_begun: 0,
            arriving: BTreeMap::new(),
            recovery: None,
            recovered: Table::default(),
            recovered_all_at: None,
            recovered_counts: (0, 0),
            figures: BTreeMap::new(),
            outbox: Outbox::default(),
            keeper: Keeper::default(),
            turns: Turns::default(),
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.settings.is_none()
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub(super) fn me(&self) -> AgentId {
        self.settings.as_ref().map(|settings| settings.me).unwrap_or_default()
    }

    /// Whether the hosts of a partition may be asked.
    pub(super) fn may_ask(&self, partition: u16) -> bool {
        self.open.as_ref().is_none_or(|open| open.contains(partition))
    }

    /// Whether a host may be asked.
    pub(super) fn is_ours(&self, host: &Host) -> bool {
        self.open.as_ref().is_none_or(|open| open.contains(partition_of(host)))
    }

    /// Asks nothing more of these partitions, and admits nothing.
    pub(super) fn freeze(&mut self, partitions: &[u16]) {
        for partition in partitions {
            self.frozen.insert(*partition);
        }
        self.refresh();
    }

    /// Goes on with those of these partitions that are held.
    pub(super) fn thaw(&mut self, partitions: &[u16]) {
        for partition in partitions {
            if self.held.contains(*partition) {
                self.frozen.remove(*partition);
            }
        }
        self.refresh();
    }

    /// Partitions are not held any more.
    pub(super) fn let_go(&mut self, partitions: &[u16]) {
        for partition in partitions {
            self.held.remove(*partition);
            self.frozen.remove(*partition);
            self.came.remove(partition);
        }
        self.refresh();
    }

    /// The same for all of them. Says which.
    pub(super) fn lose_all(&mut self) -> Partitions {
        let held = std::mem::take(&mut self.held);
        self.frozen = Partitions::default();
        self.came.clear();
        self.resting.clear();
        self.refresh();
        held
    }

    fn refresh(&mut self) {
        self.is_placed = false;
        if !self.is_alone() {
            let mut open = self.held.clone();
            open.subtract(&self.frozen);
            self.open = Some(Arc::new(open));
        }
    }

    /// Whether its token is here.
    pub(super) fn holds(&self, partition: u16) -> bool {
        self.held.contains(partition)
    }

    /// From when on the hosts of a partition may be asked, if it came in this run.
    pub(super) fn came_at(&self, host: &Host) -> Option<Mono> {
        if self.came.is_empty() { None } else { self.came.get(&partition_of(host)).copied() }
    }

    pub(super) fn token(&self, partition: u16) -> Token {
        self.tokens.get(partition)
    }

    /// Who should hold a partition.
    pub(super) fn heir(&self, partition: u16) -> Option<AgentId> {
        self.ring.owner(partition).copied()
    }

    /// Whether an agent was heard of lately.
    pub(super) fn is_well(&self, id: AgentId, now: Mono) -> bool {
        if self.is_shared() {
            return self.members.get(id).is_some();
        }
        let heard = self.peers.get(&id).and_then(|peer| peer.heard);
        heard.is_some_and(|heard| now.since(heard) < WELL) && !self.members.is_gone(id)
    }

    pub(super) fn is_gone(&self, id: AgentId) -> bool {
        self.members.is_gone(id)
    }

    /// Those that are to be talked to.
    pub(super) fn others(&self) -> impl Iterator<Item = AgentId> {
        let me = self.me();
        self.members.present().map(|(id, _)| id).filter(move |id| *id != me)
    }

    /// Partitions that are held here and should be elsewhere, by where.
    pub(super) fn misplaced(&self) -> BTreeMap<AgentId, Vec<u16>> {
        let mut misplaced: BTreeMap<AgentId, Vec<u16>> = BTreeMap::new();
        for partition in self.held.iter().filter(|partition| !self.frozen.contains(*partition)) {
            if let Some(heir) = self.heir(partition).filter(|heir| *heir != self.me()) {
                misplaced.entry(heir).or_default().push(partition);
            }
        }
        misplaced
    }

    /// Whether something of a partition is here that another agent holds and should have.
    pub(super) fn owes(&self, partition: u16) -> bool {
        self.owing.contains(partition)
    }

    /// What other agents should have, by whom.
    pub(super) fn owed(&self) -> BTreeMap<AgentId, Vec<u16>> {
        let mut owed: BTreeMap<AgentId, Vec<u16>> = BTreeMap::new();
        for partition in self.owing.iter() {
            owed.entry(self.tokens.get(partition).holder).or_default().push(partition);
        }
        owed
    }

    /// Whether another agent has said what it holds, as far as it has said that there is something to say.
    pub(super) fn is_heard(&self, id: AgentId) -> bool {
        self.peers.get(&id).is_some_and(Peer::is_heard)
    }

    pub(super) fn held_with_epochs(&self) -> Vec<(u16, u64)> {
        let me = self.me();
        let tokens = self.held.iter().map(|partition| (partition, self.tokens.get(partition)));
        // Of some it may be known that they were made anew, and not yet be durable.
        tokens.filter(|(_, token)| token.holder == me).map(|(at, token)| (at, token.epoch)).collect()
    }

    /// Partitions whose tokens were made anew elsewhere, and of which something is here.
    pub(super) fn owing(&self) -> Vec<u16> {
        let me = self.me();
        // Those that are known to be lost and are not written down yet, too.
        let lost = self.held.iter().filter(|partition| self.tokens.get(*partition).holder != me);
        self.owing.iter().chain(lost).collect()
    }

    /// Whether a partition may be handed over to an agent: not while it has something of its own of it to give away.
    pub(super) fn may_go_to(&self, partition: u16, to: AgentId) -> bool {
        self.peers.get(&to).is_some_and(|peer| peer.is_heard() && !peer.has.contains(partition))
    }

    /// Takes in a list of members; says whether anything has changed. That of another site is not ours.
    pub(super) fn learn_members(&mut self, other: &Members) -> bool {
        let began = self.members.is_founded();
        let shares = self.members.shares();
        let Ok(changed) = self.members.merge(other) else { return false };
        if self.members.shares() != shares {
            self.ring = self.ring.with(self.members.shares());
            self.refresh();
        }
        if !began && self.members.is_founded() {
            self.tokens = Tokens::of(&self.members);
            (self.recovered_all_at, self.no_orphans_at) = (None, None);
            let me = self.me();
            self.held =
                self.tokens.iter().filter(|(_, token)| token.holder == me).map(|(at, _)| at).collect();
            self.met.clear();
            self.refresh();
        }
        changed
    }

    /// Joins again after it was forgotten; says whether it was. What others hold of what it held they will say.
    pub(super) fn rejoin(&mut self) -> bool {
        let is_back = self.members.rejoin(self.me());
        if is_back {
            self.ring = self.ring.with(self.members.shares());
            self.refresh();
        }
        is_back
    }

    /// An agent has these, or has heard that others do: they need not be passed on to it any more.
    pub(super) fn granted(&mut self, to: AgentId, tokens: &[(u16, u64)]) {
        let Some(granting) = self.granting.get_mut(&to) else { return };
        for (partition, epoch) in tokens {
            if granting.get(partition).is_some_and(|passed| passed <= epoch) {
                granting.remove(partition);
            }
        }
    }

    /// Whether a partition is being handed over.
    pub(super) fn is_handed_over(&self, partition: u16) -> bool {
        self.handovers.values().any(|handover| handover.is_of(partition))
    }

    /// Takes in tokens that a record speaks of.
    pub(super) fn take_tokens(&mut self, tokens: &[(u16, Token)]) {
        let me = self.me();
        for (partition, token) in tokens {
            self.tokens.learn(*partition, *token);
            if self.tokens.get(*partition).holder == me {
                self.held.insert(*partition);
                if !self.is_handed_over(*partition) {
                    // It may have been lost, and be back before what was known of it had gone, or before that was written down.
                    self.frozen.remove(*partition);
                }
                self.owing.remove(*partition);
            } else {
                // What is known of it here has to go there.
                self.held.remove(*partition);
                self.owing.insert(*partition);
            }
        }
        self.holds += 1;
        self.refresh();
    }

    pub(super) fn release_tokens(&mut self, to: AgentId, tokens: &[(u16, u64)]) {
        for (partition, epoch) in tokens {
            self.tokens.learn(*partition, Token { holder: to, epoch: *epoch });
            self.held.remove(*partition);
            self.owing.remove(*partition);
            self.frozen.remove(*partition);
            self.came.remove(partition);
        }
        // Those that it has already it need not be given.
        self.granting.entry(to).or_default().extend(tokens.iter().copied());
        self.holds += 1;
        self.refresh();
    }

    /// Partitions of which this agent may know something that their holders do not, and the holders.
    pub(super) fn unrecovered(&self) -> impl Iterator<Item = (u16, AgentId)> + '_ {
        let is_new =
            |partition: u16, token: Token| token.life() > self.recovered.get(partition).unwrap_or_default();
        let tokens = self.tokens.iter().filter(move |(partition, token)| is_new(*partition, *token));
        tokens.map(|(partition, token)| (partition, token.holder))
    }

    /// Whether there are none. Mostly that is known without looking at all.
    pub(super) fn is_recovered(&mut self) -> bool {
        let changes = Some(self.tokens.changes());
        if self.recovered_all_at != changes {
            self.recovered_all_at = changes.filter(|_| self.unrecovered().next().is_none());
        }
        self.recovered_all_at.is_some()
    }

    pub(super) fn take_recovered(&mut self, recovered: &Recovered) {
        for (partition, life) in &recovered.partitions {
            let known = self.recovered.get(*partition).unwrap_or_default();
            self.recovered.set(*partition, known.max(*life));
        }
        self.recovered_counts.0 += recovered.pages;
        self.recovered_counts.1 += recovered.urls;
    }

    /// Takes in a record of an earlier run.
    pub(super) fn replay(&mut self, record: &Record) {
        match record {
            Record::Members(members) => drop(self.learn_members(members)),
            Record::Tokens(tokens) => self.take_tokens(tokens),
            Record::Released { to, tokens, .. } => self.release_tokens(*to, tokens),
            Record::Recovered(recovered) => self.take_recovered(recovered),
            _ => {}
        }
    }

    /// What must not be forgotten of it.
    pub(super) fn memo(&self) -> SiteMemo {
        SiteMemo {
            members: self.members.clone(),
            wishes: self.wishes.clone(),
            tokens: self.tokens.clone(),
            held: self.held.clone(),
            owing: self.owing.clone(),
            granting: self.granting.iter().map(|(id, tokens)| (*id, tokens.clone())).collect(),
            recovered: self.recovered.clone(),
            recovered_counts: self.recovered_counts,
            figures: self.figures.clone(),
            outbox_from: self.outbox.lowest(),
        }
    }

    /// Takes in what an earlier run wrote down.
    pub(super) fn remember(&mut self, memo: SiteMemo) {
        (self.members, self.wishes, self.tokens) = (memo.members, memo.wishes, memo.tokens);
        (self.held, self.owing) = (memo.held, memo.owing);
        (self.recovered, self.recovered_counts) = (memo.recovered, memo.recovered_counts);
        self.figures = memo.figures;
        let me = self.me();
        // It may have been known that some are lost, and not been written down.
        for partition in self.held.iter().collect::<Vec<u16>>() {
            if self.tokens.get(partition).holder != me {
                self.held.remove(partition);
                self.owing.insert(partition);
            }
        }
        self.granting = memo.granting.into_iter().collect();
        (self.recovered_all_at, self.no_orphans_at) = (None, None);
        self.ring = self.members.ring();
        self.outbox.from = memo.outbox_from;
        self.refresh();
    }
}

/// How another agent of the site is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was heard of lately.
    Well,
    /// It was not.
    Silent,
    /// It was forgotten.
    Gone,
}

/// The site as one agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteView {
    /// Who it is.
    pub me: AgentId,
    /// The members, those that are gone included.
    pub members: Vec<MemberView>,
    /// Until the site has begun: agents that have been heard of,
    pub there: Vec<Acquaintance>,
    /// and where of those that were listed none has.
    pub missing: Vec<String>,
    /// Agents that were told otherwise than this one.
    pub differing: Vec<Differing>,
    /// Agents of one name.
    pub namesakes: Vec<Namesakes>,
    /// Partitions whose tokens it has.
    pub held: usize,
    /// Those of them that should be elsewhere.
    pub misplaced: usize,
    /// Partitions of this agent whose hosts wait because no replica of their server in a store that is shared confirms anything.
    pub unconfirmed: u64,
    /// Partitions whose tokens were made anew elsewhere, and of which it still has something.
    pub owing: usize,
    /// Partitions whose tokens were made anew, and of which it may know something that their holders do not.
    pub unrecovered: usize,
    /// Handovers under way, from here and to here.
    pub handovers: usize,
    /// Whether found URLs are on their way to others.
    pub is_delivering: bool,
    /// The sites of its federation, as this agent knows them.
    pub sites: Vec<OtherSite>,
    /// Addresses at which it has its turn,
    pub turns: usize,
    /// turns at addresses that it keeps, of any agent,
    pub turns_out: usize,
    /// and how many of these have run out in this run because their agents were silent.
    pub turns_run_out: u64,
}

/// One of the members.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberView {
    /// Who it is.
    pub id: AgentId,
    /// What is said of it.
    pub member: Member,
    /// Whether it was heard of lately.
    pub is_well: bool,
    /// Partitions whose tokens it has, as far as is known.
    pub held: usize,
    /// How far it had come when it was last heard of.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Agent {
    /// The site as this agent sees it; `None` if it crawls alone.
    pub fn site_view(&self, now: Now) -> Option<SiteView> {
        let site = &self.site;
        let me = site.settings.as_ref()?.me;
        let mut held: BTreeMap<AgentId, usize> = BTreeMap::new();
        for (_, token) in site.tokens.iter() {
            *held.entry(token.holder).or_default() += 1;
        }
        let members = site.members.iter().map(|(id, member)| MemberView {
            id,
            member: member.clone(),
            is_well: id == me || site.is_well(id, now.mono),
            held: held.get(&id).copied().unwrap_or_default(),
            figures: match id == me {
                true => self.figures(),
                false => site.figures.get(&id).copied().unwrap_or_default(),
            },
        });
        Some(SiteView {
            me,
            members: members.collect(),
            there: site.there(),
            missing: site.missing(),
            differing: site.differing.values().cloned().collect(),
            namesakes: self.namesakes(now),
            held: site.held.len(),
            misplaced: site.misplaced().values().map(Vec::len).sum(),
            unconfirmed: self.unconfirmed_partitions(),
            owing: site.owing.len(),
            unrecovered: site.unrecovered().count(),
            handovers: match &site.shared {
                Some(shared) => shared.handovers(),
                None => site.handovers.len(),
            },
            is_delivering: match &site.shared {
                Some(shared) => !shared.post.is_empty(),
                None => !site.outbox.is_empty() || self.is_returning(),
            },
            sites: self.other_sites(now),
            turns: site.turns.len(),
            turns_out: site.keeper.out(),
            turns_run_out: site.keeper.run_out,
        })
    }

    /// How far it has come.
    pub(super) fn figures(&self) -> Figures {
        let (recovered_pages, recovered_urls) = self.site.recovered_counts;
        let (pages, urls) = (self.totals.pages, self.totals.known_urls);
        // More than there are partitions cannot be.
        let owing = u16::try_from(self.site.owing.len()).unwrap_or(u16::MAX);
        Figures { pages, urls, owing, recovered_pages, recovered_urls }
    }

    /// Which agent of its site it is; `None` if it crawls alone.
    pub fn me(&self) -> Option<AgentId> {
        self.site.settings.as_ref().map(|settings| settings.me)
    }

    /// The agents of the site that are not gone.
    pub fn members(&self) -> impl Iterator<Item = (AgentId, &Member)> {
        self.site.members.present()
    }

    /// What all agents of the site are to know.
    pub fn wishes(&self) -> &Wishes {
        &self.site.wishes
    }

    /// The name of an agent of the site, gone or not.
    pub fn name_of(&self, id: AgentId) -> Option<&str> {
        self.site.members.get(id).map(|member| member.name.as_str())
    }

    /// Who has a host, as far as this agent of a site knows.
    pub fn holder_of(&self, host: &Host) -> Option<AgentId> {
        let is_known = !self.site.is_alone() && self.site.members.is_founded();
        is_known.then(|| self.site.token(partition_of(host)).holder)
    }

    /// An agent of the site, unless it is gone.
    pub fn member(&self, id: AgentId) -> Option<&Member> {
        self.site.members.get(id).filter(|member| !member.is_gone())
    }

    /// The partitions whose URLs the store is to admit; `None` for all.
    pub fn open_partitions(&self) -> Option<&Partitions> {
        self.site.open.as_deref()
    }

    /// The first record of the journal that may be read again, with all it found.
    pub fn needs_records_from(&self) -> u64 {
        if self.site.is_alone() { u64::MAX } else { self.site.outbox.lowest() }
    }
}
