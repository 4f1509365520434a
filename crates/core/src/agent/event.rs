//! What an agent is told and what it asks for: its only doors.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::admitted::{Admitted, OverLimit};
use super::control::Control;
use super::handover::Cursor;
use super::shared::{SharedAction, SharedEvent};
use super::stopping::StopReason;
use crate::assign::Position;
use crate::federation::{
    AddressesUsed, AskedRules, Batch, Claim, Heard, Release, Saying, SiteNumber, UrlsBySite,
};
use crate::frontier::HostMemo;
use crate::parse::Link;
use crate::record::{Failure, How, Record};
use crate::robots::Directives;
use crate::site::{AgentId, Message, Moved, Partitions, RulesAnswer};
use crate::time::{Mono, Wall};
use crate::url::{Host, Url};

/// Names one fetch of this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// Names one record of this run on its way to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The user names URLs to start from.
    Seeds(Vec<Url>),
    /// The answer to [`Action::Admit`] and to [`Action::Decide`].
    Admitted(Admitted),
    /// The sieve had to decide about URLs that were offered before.
    Decided(Admitted),
    /// The answer to [`Action::Take`].
    Taken(Taken),
    /// The answer to [`Action::Visit`].
    Visited(Visited),
    /// The answer to [`Action::Resolve`].
    Resolved {
        /// The name asked for.
        host: Host,
        /// Its addresses in the order to try them, and how long they hold; or why there are none, and how long that holds.
        answer: Result<Addresses, NoAddress>,
    },
    /// The answer to [`Action::Fetch`].
    Fetched(Fetched),
    /// The record of this ticket is durable, at this place in the journal.
    Recorded {
        /// As given with [`Action::Write`].
        ticket: Ticket,
        /// Its place in the journal.
        place: u64,
        /// The record as it was written: with where its capture is, and without what the sieve knew already.
        record: Box<Record>,
    },
    /// The answer to [`Action::Recall`].
    Recalled {
        /// The host.
        host: Host,
        /// The record, if it could be read.
        record: Option<Box<Record>>,
        /// Where it is.
        place: u64,
    },
    /// The operator speaks.
    Control(Control),
    /// Another agent of the site speaks.
    Message {
        /// Who.
        from: AgentId,
        /// The name in its certificate.
        name: String,
        /// What it says.
        message: Box<Message>,
    },
    /// The answer to [`Action::Export`].
    Exported {
        /// As asked.
        to: AgentId,
        /// As asked.
        handover: (u64, u64),
        /// What is known of some of the hosts.
        moved: Moved,
        /// Where to go on, unless this is the end.
        next: Option<Cursor>,
        /// What the sieve had to decide first.
        decided: Box<Admitted>,
    },
    /// The answer to [`Action::Reread`].
    Reread {
        /// Records that found URLs, and their places, in order.
        records: Vec<(u64, Box<Record>)>,
        /// Where to go on: behind them and others that found none.
        next: u64,
    },
    /// The answer to [`Action::LookBack`].
    LookedBack {
        /// What was asked.
        asked: LookBack,
        /// Records, their places, and the archived answers that they are about.
        looked: Vec<(u64, Box<Record>, Option<Box<Answer>>)>,
        /// Where to go on, unless this is the end.
        next: Option<u64>,
    },
    /// The answer to [`Action::Post`].
    Posted {
        /// As given.
        post: u64,
        /// Whether the other site has written the batch down; if not, or if nobody knows, it is sent again.
        taken: bool,
    },
    /// Another site of the federation has found URLs; to be answered by [`Action::Answer`].
    Batch {
        /// To be given back with the answer.
        call: u64,
        /// Which site.
        site: String,
        /// The URLs.
        batch: Box<Batch>,
    },
    /// The answer to [`Action::Claim`].
    Claimed {
        /// As given.
        call: u64,
        /// What the other site says, if it says anything.
        release: Option<Box<Release>>,
    },
    /// Another site claims a host; to be answered by [`Action::Release`].
    Claim {
        /// To be given back with the answer.
        call: u64,
        /// Which site.
        site: String,
        /// What it asks.
        claim: Box<Claim>,
    },
    /// Another site tells which addresses it uses; to be answered by [`Action::Answer`].
    Told {
        /// To be given back with the answer.
        call: u64,
        /// Which site.
        site: String,
        /// The addresses.
        used: Box<AddressesUsed>,
    },
    /// The answer to [`Action::AskRules`].
    RulesOfSite {
        /// As given.
        call: u64,
        /// What the server said, or why it said nothing, if the other site says so.
        result: Option<Box<Result<RulesAnswer, Failure>>>,
    },
    /// Another site wants rules that a host of this one has; to be answered by [`Action::GiveRules`].
    RulesAsked {
        /// To be given back with the answer.
        call: u64,
        /// What it asks.
        ask: Box<AskedRules>,
    },
    /// Another site says something to all; to be answered by [`Action::Heard`].
    Said {
        /// To be given back with the answer.
        call: u64,
        /// Which site.
        site: String,
        /// What it says.
        saying: Box<Saying>,
    },
    /// The answer to [`Action::Say`].
    Heard {
        /// As given.
        call: u64,
        /// What the other site says to that, if it says anything.
        heard: Option<Box<Heard>>,
    },
    /// The answer to [`Action::ExportHost`].
    ExportedHost {
        /// As given.
        call: u64,
        /// Which of its URLs are done or were tried, or a part of them, and what is kept of the host.
        moved: Moved,
        /// Where to go on, unless this is the end.
        next: Option<Cursor>,
        /// What had to be decided first.
        decided: Box<Admitted>,
    },
    /// The answer to [`Action::CountQueued`].
    CountedQueued {
        /// The counts.
        counted: UrlsBySite,
        /// What had been decided before.
        decided: Admitted,
    },
    /// From the store that agents share.
    Shared(SharedEvent),
    /// Time has passed.
    Wake,
}

/// Something that should be done.
#[derive(Clone, Debug)]
pub enum Action {
    /// Offer to the sieve what this durable record found; answered by [`Event::Admitted`].
    Admit {
        /// Where the record is in the journal.
        place: u64,
        /// The record.
        record: Box<Record>,
        /// The partitions whose URLs are for this agent; `None` for all. All others are on their way to whom they belong to, so
        /// what was open when the record became durable counts, and not what is by the time that the store does this.
        open: Option<Arc<Partitions>>,
        /// It was offered before, and was of others then, or is to be told to others once more: what it gives was given.
        again: bool,
    },
    /// The holders of these partitions have lost what they were told of their URLs, by cash; answered by [`Event::Decided`].
    TellAnew {
        /// The partitions.
        partitions: Vec<u16>,
    },
    /// Decide about all URLs that were offered to the sieve and not answered for; answered by [`Event::Admitted`].
    Decide,
    /// Hand over the next URLs of a host that are due; answered by [`Event::Taken`].
    Take {
        /// The host.
        host: Host,
        /// How many at most.
        max: usize,
        /// Those that were never handed over before those that come back: what came back may be why the host fails.
        fresh_first: bool,
    },
    /// Keep this of a host that leaves the memory; whoever goes round passes it by until then.
    Keep {
        /// The host.
        host: Host,
        /// What must not be forgotten of it.
        memo: Option<Box<HostMemo>>,
        /// Nothing can be asked of it before.
        away_until: Wall,
        /// Where agents share a store: it is about to be asked, or is. That it is [marked](SharedAction::Mark) stays so.
        is_asked: bool,
    },
    /// Go on with the round over all hosts, or begin another, and say of which something is due; answered by
    /// [`Event::Visited`].
    Visit {
        /// How many hosts there is room for.
        max: usize,
    },
    /// Read back a record with the robots.txt of a host; answered by [`Event::Recalled`].
    Recall {
        /// The host.
        host: Host,
        /// Where the record is in the journal.
        place: u64,
    },
    /// Put URLs that were taken and not tried back at the head of their queue.
    PutBack {
        /// Their host.
        host: Host,
        /// The URLs, first one first.
        due: Vec<Due>,
    },
    /// Ask for the addresses of a name; answered by [`Event::Resolved`].
    Resolve {
        /// The name.
        host: Host,
    },
    /// Make a request; answered by [`Event::Fetched`].
    Fetch(Order),
    /// Break off a fetch; it still answers.
    Abandon(FetchId),
    /// Archive what the fetch received, if it received anything, and then make the record durable; answered by
    /// [`Event::Recorded`]. Each [`Event::Fetched`] leads to exactly one of these that names its fetch.
    Write {
        /// To be given back with the answer.
        ticket: Ticket,
        /// The record.
        record: Box<Record>,
        /// The fetch that it settles.
        fetch: Option<FetchId>,
    },
    /// Tell another agent something. It may get lost.
    Send {
        /// Whom.
        to: Recipient,
        /// What to tell.
        message: Box<Message>,
    },
    /// Read a part of all that is known of the hosts of these partitions; answered by [`Event::Exported`].
    Export {
        /// To be given back with the answer.
        to: AgentId,
        /// To be given back with the answer.
        handover: (u64, u64),
        /// The partitions.
        partitions: Vec<u16>,
        /// Where to go on, unless this is the beginning.
        from: Option<Cursor>,
    },
    /// Read records of the journal again; answered by [`Event::Reread`].
    Reread {
        /// The place of the first,
        from: u64,
        /// and of the last.
        until: u64,
    },
    /// Read what is kept of all records once more; answered by [`Event::LookedBack`].
    LookBack(LookBack),
    /// Hand URLs to another site; answered by [`Event::Posted`], within a time.
    Post {
        /// The site.
        site: SiteNumber,
        /// Which of its agents to ask.
        gateway: String,
        /// To be given back with the answer.
        post: u64,
        /// The URLs.
        batch: Box<Batch>,
    },
    /// Answer [`Event::Batch`].
    Answer {
        /// As given.
        call: u64,
        /// Whether it is durable.
        taken: bool,
    },
    /// Claim a host from another site; answered by [`Event::Claimed`], within a time.
    Claim {
        /// The site.
        site: SiteNumber,
        /// Which of its agents to ask.
        gateway: String,
        /// To be given back with the answer.
        call: u64,
        /// What to ask.
        claim: Box<Claim>,
    },
    /// Answer [`Event::Claim`].
    Release {
        /// As given.
        call: u64,
        /// What is known of the host; nothing if that cannot be said now.
        release: Option<Box<Release>>,
    },
    /// Tell another site which addresses are in use here. It may get lost.
    Tell {
        /// The site.
        site: SiteNumber,
        /// The addresses.
        used: Box<AddressesUsed>,
    },
    /// Ask another site for a robots.txt; answered by [`Event::RulesOfSite`], within a time.
    AskRules {
        /// The site.
        site: SiteNumber,
        /// Which of its agents to ask.
        gateway: String,
        /// To be given back with the answer.
        call: u64,
        /// What to ask.
        ask: Box<AskedRules>,
    },
    /// Answer [`Event::RulesAsked`].
    GiveRules {
        /// As given.
        call: u64,
        /// As in [`Event::RulesOfSite`].
        result: Option<Box<Result<RulesAnswer, Failure>>>,
    },
    /// Say something to another site; answered by [`Event::Heard`], within a time.
    Say {
        /// The site.
        site: SiteNumber,
        /// Which of its agents to ask.
        gateway: String,
        /// To be given back with the answer.
        call: u64,
        /// What to say.
        saying: Box<Saying>,
    },
    /// Answer [`Event::Said`].
    Heard {
        /// As given.
        call: u64,
        /// What is known here; nothing if that cannot be said now.
        heard: Option<Box<Heard>>,
    },
    /// Read which URLs of a host are done or were tried, or a part of them; answered by [`Event::ExportedHost`].
    ExportHost {
        /// To be given back with the answer.
        call: u64,
        /// The host.
        host: Host,
        /// Where to go on, unless this is the beginning.
        from: Option<Cursor>,
    },
    /// Count the URLs of all hosts that are not settled; answered by [`Event::CountedQueued`].
    CountQueued(UrlsBySite),
    /// To the store that agents share.
    Shared(SharedAction),
    /// Everything is settled: end the run.
    End(StopReason),
}

/// Which records are to be read once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookBack {
    /// The place to go on from.
    pub from: u64,
    /// The place of the last one that counts.
    pub until: u64,
    /// Whether the archived answers are to be read too.
    pub with_answers: bool,
}

/// Whom a message is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// The agent and its name, and nobody else who may be there; `None` for whoever is.
    pub agent: Option<(AgentId, String)>,
    /// Where it is reached.
    pub address: String,
}

/// URLs handed over by the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Their host.
    pub host: Host,
    /// The URLs, in the order to fetch them.
    pub due: Vec<Due>,
    /// How many more of the host's are due now.
    pub left: u64,
    /// When the next one becomes due that waits for its time.
    pub next: Option<Wall>,
    /// What was kept of the host.
    pub memo: Option<HostMemo>,
}

/// Hosts of which something is due, met in a part of a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Visited {
    /// The hosts.
    pub hosts: Vec<StoredHost>,
    /// When something of one of the others becomes due.
    pub next: Option<Wall>,
    /// Whether this was the end of the round.
    pub is_last: bool,
}

/// What the store holds of one host.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredHost {
    /// The host.
    pub host: Host,
    /// URLs that it has.
    pub known: u64,
    /// Those that are not settled.
    pub queued: u64,
    /// Those of them that are due.
    pub due: u64,
    /// When the next one becomes due that waits for its time.
    pub next: Option<Wall>,
    /// What the agent has it keep.
    pub memo: Option<HostMemo>,
}

/// Says what is kept of a host.
pub type Kept<'a> = dyn FnMut(&Host) -> Option<HostMemo> + 'a;

/// What the store holds in all when a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// URLs that are known.
    pub known: u64,
    /// Those that are not settled.
    pub queued: u64,
    /// Hosts that are known.
    pub hosts: u64,
    /// URLs that the sieve has not decided about.
    pub undecided: u64,
    /// URLs that limits keep out.
    pub kept_out: OverLimit,
}

/// A URL whose turn has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// The URL.
    pub url: Url,
    /// As in [`crate::record::Found`].
    pub depth: u16,
    /// As in [`crate::record::Found`].
    pub how: How,
    /// As in [`crate::record::Found`].
    pub redirects: u8,
    /// Attempts that it has used up.
    pub attempts: u8,
    /// The page it was found on.
    pub via: Option<String>,
    /// The place of the record that it was found in.
    pub found_in: u64,
    /// What it was given, where the crawl goes by that: see [`crate::cash`].
    pub cash: Option<u64>,
}

/// The addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// In the order to try them.
    pub list: Vec<IpAddr>,
    /// How long they hold.
    pub ttl: Duration,
    /// Where they are, as far as that is known and of interest.
    pub position: Option<Position>,
}

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAddress {
    /// The name does not exist, as opposed to: could not be found out now.
    pub no_such_name: bool,
    /// In words, for logs.
    pub detail: String,
}

/// A request to make.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its name.
    pub fetch: FetchId,
    /// What to ask for.
    pub url: Url,
    /// Where: the first that answers, and no others.
    pub addresses: Vec<IpAddr>,
    /// What the answer is for, and so how to read it.
    pub purpose: Purpose,
    /// The page it was found on.
    pub via: Option<String>,
    /// Links from a seed.
    pub depth: u16,
    /// Which attempt this is, from 1.
    pub attempt: u8,
    /// Not over a connection that was kept: one was closed instead of an answer before.
    pub new_connection: bool,
    /// If it has not begun by then, it is not tried any more: others may ask the host, or its addresses.
    pub begin_before: Mono,
}

/// What an answer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A page: parse it for links if it has any.
    Page,
    /// A sitemap.
    Sitemap,
    /// A robots.txt, with the validators of the copy that we have.
    Robots {
        /// For If-None-Match.
        etag: Option<String>,
        /// For If-Modified-Since.
        last_modified: Option<String>,
    },
}

/// How a request ended.
#[derive(Debug)]
pub struct Fetched {
    /// As in the order.
    pub fetch: FetchId,
    /// When the request, or the first attempt to connect for it, was begun.
    pub started: Mono,
    /// When the last byte was received, or the failure seen.
    pub ended: Mono,
    /// The addresses that a connection was tried to or used.
    pub contacted: Vec<IpAddr>,
    /// The answer, or why there is none.
    pub result: Result<Answer, FetchError>,
}

/// Why a request has no answer that can be used at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchError {
    /// The kind. [`Failure::Closed`] when the connection turned out to be closed before any byte of an answer,
    /// [`Failure::NotTried`] when this machine ran out of something, or when the fetch was abandoned.
    pub failure: Failure,
    /// In words, for logs.
    pub detail: String,
}

/// An answer, as far as it came.
#[derive(Debug, Default)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Bytes received, head and body, as on the wire.
    pub bytes: u64,
    /// Whether and why the body is not whole.
    pub cut: Option<Cut>,
    /// The Location header.
    pub location: Option<String>,
    /// What Retry-After says, from the moment of the answer.
    pub retry_after: Option<Duration>,
    /// The ETag header.
    pub etag: Option<String>,
    /// The Last-Modified header.
    pub last_modified: Option<String>,
    /// How long Cache-Control lets it be used; zero for no-store and no-cache.
    pub max_age: Option<Duration>,
    /// What the answer contains that concerns us.
    pub content: Content,
}

/// Why a body is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It is longer than we take: kept, and good enough.
    Length,
    /// It took too long.
    Time,
    /// The connection ended early.
    Disconnect,
}

/// What an answer contains that concerns us.
#[derive(Debug, Default)]
pub enum Content {
    /// Nothing.
    #[default]
    Nothing,
    /// Links, of a page or of its head.
    Page {
        /// The links, in the order found.
        links: Vec<Link>,
        /// What the page or its head asks of robots.
        directives: Directives,
    },
    /// The URLs of a sitemap.
    Sitemap {
        /// Pages.
        pages: Vec<Url>,
        /// Further sitemaps.
        sitemaps: Vec<Url>,
    },
    /// The text of a robots.txt, decoded, as far as it counts.
    Robots(Vec<u8>),
}
