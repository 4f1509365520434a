//! What agents of a site tell each other. Any message may be lost, late, twice or out of order.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AgentId, Member, Members, Terms, Token, Wishes};
use crate::cash::{Account, Total};
use crate::federation::{Claim, Release, SiteNumber};
use crate::frontier::HostMemo;
use crate::politeness::GateMemo;
use crate::record::{Failure, Found};
use crate::time::{Mono, Wall};
use crate::url::{AddressKey, Fingerprint, Host, Origin};

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// From an agent that is not in a site yet.
    Hello(Greeting),
    /// The sender is well.
    Beat {
        /// Of which run.
        run: u64,
        /// The digest of its list of members.
        members: u64,
        /// The digest of what all are to know.
        wishes: u64,
        /// Counts the changes of what it holds in this run.
        holds: u64,
        /// How far it has come.
        figures: Figures,
        /// Sites of the federation, by their place in the list, for which too much waits with it.
        full: Vec<u16>,
    },
    /// Its list of members.
    Members(Members),
    /// What all are to know.
    Wishes(Wishes),
    /// What do you hold?
    AskHolds,
    /// The partitions that the sender holds, and their epochs.
    Holds {
        /// As in [`Message::Beat`].
        run: u64,
        /// As in [`Message::Beat`].
        version: u64,
        /// The partitions.
        partitions: Vec<(u16, u64)>,
        /// Others, of which it has something to give to who holds them.
        owes: Vec<u16>,
    },
    /// Some of the tokens that the receiver holds were made anew: these are the right ones.
    Outdated(Vec<(u16, Token)>),
    /// URLs that were found and belong to the receiver.
    Deliver {
        /// Names the batch in this run of the sender.
        batch: (u64, u64),
        /// By the page that they were found on.
        pages: Vec<LinkedPage>,
    },
    /// The same among agents that share a store.
    Offer {
        /// As in [`Message::Deliver`].
        batch: (u64, u64),
        /// With the places of the records that found them, which both can read.
        found: Vec<(u64, Found)>,
    },
    /// They are durable.
    Delivered {
        /// As in [`Message::Deliver`].
        batch: (u64, u64),
    },
    /// A part of what the sender knows of partitions that the receiver is to hold, or holds already.
    Move {
        /// Names the handover in this run of the sender.
        handover: (u64, u64),
        /// Counts its parts, from 0.
        part: u32,
        /// The partitions of which the receiver should have the tokens. Those of the others follow.
        owed: Vec<u16>,
        /// What the sender's calendar showed.
        at: Wall,
        /// What is known of their hosts.
        moved: Moved,
    },
    /// The part is durable.
    Moved {
        /// As in [`Message::Move`].
        handover: (u64, u64),
        /// As in [`Message::Move`].
        part: u32,
    },
    /// Parts before this one are missing: begin again.
    MoveAgain {
        /// As in [`Message::Move`].
        handover: (u64, u64),
    },
    /// The rules of a host of the sender are said to be at a host of the receiver.
    AskRules {
        /// Whose rules they are.
        origin: Origin,
        /// Where they are.
        url: String,
        /// Redirects so far.
        hops: u8,
    },
    /// Here they are, or why they are not.
    Rules {
        /// As in [`Message::AskRules`].
        origin: Origin,
        /// As in [`Message::AskRules`].
        url: String,
        /// As in [`Message::AskRules`].
        hops: u8,
        /// What the server said.
        result: Box<Result<RulesAnswer, Failure>>,
    },
    /// These tokens were last with agents that are gone, and the receiver is next.
    Orphans(Vec<(u16, Token)>),
    /// These tokens are passed on to the receiver.
    Grant {
        /// The partitions, and their epochs from now on.
        tokens: Vec<(u16, u64)>,
    },
    /// It has them, durably; or they are out of date.
    Granted {
        /// As in [`Message::Grant`].
        tokens: Vec<(u16, u64)>,
    },
    /// About turns at addresses.
    Turn(TurnMessage),
    /// To an agent that would join: it was told otherwise than the sender, and is not let in.
    Differs(Terms),
    /// To an agent that would join: one of its name is at work, and it is not let in.
    NameTaken {
        /// The agent that would join: others of its name may hear this, too.
        to: AgentId,
        /// The one that is at work,
        id: AgentId,
        /// and where it is reached.
        at: String,
    },
    /// Another site claims a host that the receiver holds.
    Claim {
        /// To be given back with the answer.
        call: u64,
        /// The other site.
        site: SiteNumber,
        /// What it asks.
        claim: Box<Claim>,
    },
    /// Another site, by its place in the list, has asked these addresses lately.
    Used {
        /// The site.
        site: u16,
        /// The addresses.
        addresses: Vec<AddressKey>,
    },
    /// The answer to [`Message::Claim`].
    Release {
        /// As given.
        call: u64,
        /// What is known of the host; nothing if that cannot be said now.
        release: Option<Box<Release>>,
    },
    /// Among agents that share a store: sites of the federation, by their place in the list, for which too much waits with the
    /// sender.
    Full(Vec<u16>),
}

/// What agents tell each other about addresses: whose turn it is there, and what is known of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TurnMessage {
    /// The sender wants its turn at addresses that the receiver keeps, or goes on to use it.
    Ask {
        /// In which run of the sender, and when by its clock: both are said back with the turn.
        asked: (u64, Mono),
        /// The addresses, and the turn that it has already.
        turns: Vec<(AddressKey, Option<TurnId>)>,
    },
    /// Turns at addresses that the sender keeps.
    Given {
        /// Its run, and the changes of what it held in it so far.
        of: (u64, u64),
        /// The turns.
        turns: Vec<GivenTurn>,
    },
    /// Others want these turns.
    Recall(Vec<(AddressKey, TurnId)>),
    /// These turns are over.
    Over(Vec<(AddressKey, TurnId, GateMemo)>),
    /// What was said with these turns is known.
    Heard(Vec<(AddressKey, TurnId)>),
    /// What turns do you have at addresses that the sender keeps?
    Call {
        /// As in [`TurnMessage::Given`].
        of: (u64, u64),
        /// Where agents share a store: the sender keeps them by the table of leases that its beat of this number is in.
        lease: u64,
    },
    /// All that the sender has, and all that it knows of addresses which the receiver keeps.
    Has {
        /// As in [`TurnMessage::Call`].
        of: (u64, u64),
        /// The digest of its list of members.
        members: u64,
        /// As in [`TurnMessage::Ask`].
        asked: (u64, Mono),
        /// The addresses at which it has its turn or has something in flight, and others that it knows something of.
        turns: Vec<(AddressKey, bool, GateMemo)>,
    },
}

/// How far an agent has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Pages that it has fetched.
    pub pages: u64,
    /// URLs that it knows and others do not: those of its partitions.
    pub urls: u64,
    /// Partitions that others hold, and of which it has something that they should have.
    pub owing: u16,
    /// Of partitions that were lost with other agents: pages that it had fetched when they were its own,
    pub recovered_pages: u64,
    /// and URLs that it found again on its pages.
    pub recovered_urls: u64,
}

/// Names a turn: the run of the agent that gave it, and a number.
pub type TurnId = (u64, u64);

/// A turn at an address, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GivenTurn {
    /// The address.
    pub address: AddressKey,
    /// As in [`TurnMessage::Ask`].
    pub asked: (u64, Mono),
    /// The turn; none as long as the address is to be left alone.
    pub turn: Option<TurnId>,
    /// Whether others wait for it.
    pub is_wanted: bool,
    /// What is known of the address.
    pub gate: GateMemo,
}

/// What a server said when it was asked for rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesAnswer {
    /// The HTTP status.
    pub status: u16,
    /// Whether the body is, as far as it counts.
    pub is_whole: bool,
    /// The Location header.
    pub location: Option<String>,
    /// How long Cache-Control lets it be used.
    pub max_age: Option<Duration>,
    /// The text of the robots.txt, as far as it counts.
    pub body: Vec<u8>,
}

/// What an agent says of itself before it is in a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Who it is.
    pub me: AgentId,
    /// What is to be known of it.
    pub member: Member,
    /// Whom it would begin a site with.
    pub peers: Vec<String>,
    /// What it was told, which must be what all others were.
    pub terms: Terms,
}

/// Links of one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedPage {
    /// The page.
    pub via: Option<String>,
    /// The links.
    pub found: Vec<Found>,
    /// What each was given, where the crawl goes by that.
    pub totals: Vec<Total>,
}

/// What one agent knows of hosts and another is to know, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// The hosts.
    pub hosts: Vec<MovedHost>,
    /// Their URLs that are not done,
    pub found: Vec<Found>,
    /// and, of each, how far it has come.
    pub waiting: Vec<Waiting>,
    /// What URLs have, where the crawl goes by that: those that are done, in the order of the hosts, and then the others. Nothing
    /// if that is not said.
    pub accounts: Vec<Account>,
}

impl Moved {
    /// What an agent said whose calendar shows `theirs` when ours shows `ours`. On the way time has passed, so that waits are
    /// never shorter than they were.
    pub fn translated(mut self, theirs: Wall, ours: Wall) -> Moved {
        for host in &mut self.hosts {
            host.memo = host.memo.take().map(|memo| memo.translated(theirs, ours));
        }
        for waiting in &mut self.waiting {
            waiting.not_before = waiting.not_before.map(|at| at.translated(theirs, ours));
        }
        self
    }
}

/// What is known of a host, or a part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedHost {
    /// The host.
    pub host: Host,
    /// What must not be forgotten of it.
    pub memo: Option<HostMemo>,
    /// Its URLs that are done.
    pub seen: Vec<SeenUrl>,
}

/// A URL that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenUrl {
    /// What it is told by.
    pub fingerprint: Fingerprint,
    /// Where the sender's journal says what came of it.
    pub place: u64,
    /// All that came of it is that it was given to another site.
    pub is_sent: bool,
}

/// How far a URL has come that is not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The page it was found on.
    pub via: Option<String>,
    /// Attempts that it has used up.
    pub attempts: u8,
    /// When it may be tried again, if it was tried.
    pub not_before: Option<Wall>,
}
