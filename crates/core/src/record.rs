//! What a crawl writes down, and so what it is: its state is the fold of these records in their order.
//!
//! Each record is written atomically. The store folds them into the sieve and the queues, the agent into its hosts and
//! totals; after a crash both are rebuilt from the same sequence. Nothing that a record says may leave the agent
//! before the record is durable.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cash::Total;
use crate::frontier::HostMemo;
use crate::site::{AgentId, Members, Moved, Token, Wishes};
use crate::time::Wall;
use crate::url::{AddressKey, Host, Origin};

/// One atomic step of a crawl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// Where the crawl starts; acknowledged to the user once this is durable.
    Seeds(Vec<Found>),
    /// An attempt at a URL ended, or the URL was turned down without one.
    Settled(Settled),
    /// A request for a robots.txt ended.
    Robots(RobotsRecord),
    /// The manners that a host has asked for or forced on us; replaces what was written of it before.
    Host(HostRecord),
    /// An address asked to be left alone until then, because several of its hosts did.
    AddressWait {
        /// The address.
        address: AddressKey,
        /// When it may be asked again.
        not_before: Wall,
    },
    /// The operator wants nothing more of this host, domain or address.
    Block(Block),
    /// The operator takes a block back.
    Unblock(Block),
    /// A run of the crawl began.
    RunStarted {
        /// When, by the calendar.
        at: Wall,
    },
    /// It ended in order. A run without this record was killed; it counts up to the last record that it wrote.
    RunEnded {
        /// How long it ran.
        elapsed: Duration,
    },
    /// The agents of the site, as far as this one knows.
    Members(Members),
    /// What all agents of the site are to know, as far as this one does.
    Wishes(Wishes),
    /// Tokens that this agent has now, or has lost.
    Tokens(Vec<(u16, Token)>),
    /// Another agent has all that was known of these partitions, durably, and has their tokens from now on, under these epochs.
    Released {
        /// Which agent.
        to: AgentId,
        /// The partitions and the epochs.
        tokens: Vec<(u16, u64)>,
        /// The place of the last record before they were frozen: what later ones found of them was not told with the rest.
        since: u64,
    },
    /// Other agents found URLs that belong here.
    Arrived(Arrived),
    /// A part of what another agent knows of partitions that are to be held here, or are.
    Moved {
        /// Which agent.
        from: AgentId,
        /// What it knows.
        moved: Moved,
    },
    /// What this agent still knew of partitions whose tokens were made anew is durable with whoever held them.
    Recovered(Recovered),
    /// What this agent had given to sites that are gone by this version of the list of sites is found again, durably.
    Returned {
        /// The version.
        version: u64,
    },
    /// A host that belongs to this site by this version of the list of sites is ours, with all that other sites knew of it.
    Claimed {
        /// The host.
        host: Host,
        /// The version.
        version: u64,
        /// What it had asked for when it was another's.
        memo: Option<Box<HostMemo>>,
    },
    /// A host of this site is to be crawled by another one, which is nearer to it, until there is another list of sites.
    Granted {
        /// The host.
        host: Host,
        /// The version of the list of sites.
        version: u64,
        /// The name of the other site.
        to: String,
    },
    /// A record of another agent, which has archived what it is about. All that it says was known to the store that this one was
    /// copied from, and is told to this store otherwise.
    Copied {
        /// Which agent.
        from: AgentId,
        /// The record: of an attempt at a URL or at a robots.txt.
        record: Box<Record>,
    },
}

/// What was still known of partitions that were lost with an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The partitions, and the lives of their tokens.
    pub partitions: Vec<(u16, u64)>,
    /// Pages that had been fetched here,
    pub pages: u64,
    /// and links to them, or what else had led to them.
    pub urls: u64,
}

/// URLs that another agent found, or another site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// The agent; the one that writes this, if another site has sent them, or had been given them.
    pub from: AgentId,
    /// The site that has sent them to this agent.
    pub site: Option<String>,
    /// The URLs.
    pub found: Vec<Found>,
    /// The pages that they were found on, or the site in the form of [`site_page`], each with how many of the URLs are its.
    pub pages: Vec<(Option<String>, u32)>,
    /// What each of the URLs was given, where the crawl goes by that: none, or as many as there are URLs.
    pub totals: Vec<Total>,
}

/// What stands in the place of a page's URL where all that is known is which other site has found something. No page has such a
/// URL.
const SITE_PAGE: &str = "site:";

/// The same for a site of this name.
pub fn site_page(name: &str) -> String {
    format!("{SITE_PAGE}{name}")
}

/// The site that stands in the place of a page.
pub fn site_of_page(page: &str) -> Option<&str> {
    page.strip_prefix(SITE_PAGE)
}

impl Record {
    /// The URLs that this record makes known.
    pub fn found(&self) -> &[Found] {
        match self {
            Record::Seeds(found) => found,
            Record::Settled(settled) => &settled.found,
            Record::Robots(robots) => &robots.found,
            Record::Arrived(arrived) => &arrived.found,
            Record::Moved { moved, .. } => &moved.found,
            _ => &[],
        }
    }

    /// What it says, and which agent has archived what it is about, if that is another one.
    pub fn whose(self) -> (Record, Option<AgentId>) {
        match self {
            Record::Copied { from, record } => (*record, Some(from)),
            record => (record, None),
        }
    }

    /// Whether it says anything to sieve and queues, other than how an attempt ended.
    pub fn changes_the_store(&self) -> bool {
        let moves = matches!(self, Record::Moved { .. } | Record::Released { .. });
        moves || !self.found().is_empty()
    }

    /// Whether other agents count on it once they hear that it is durable: no power cut may take it back.
    pub fn is_for_others(&self) -> bool {
        matches!(
            self,
            Record::RunStarted { .. }
                | Record::Members(_)
                | Record::Tokens(_)
                | Record::Released { .. }
                | Record::Moved { .. }
                | Record::Arrived(_)
                | Record::Recovered(_)
                | Record::Granted { .. }
        )
    }

    /// The page that URL `index` of them was found on.
    pub fn page(&self, index: usize) -> Option<&str> {
        match self {
            Record::Settled(settled) => Some(&settled.url),
            Record::Robots(robots) => Some(&robots.url),
            Record::Moved { moved, .. } => moved.waiting.get(index)?.via.as_deref(),
            Record::Arrived(arrived) => {
                let mut end = 0;
                let mut pages = arrived.pages.iter();
                let page = pages.find(|(_, count)| {
                    end += *count as usize;
                    index < end
                });
                page?.0.as_deref()
            }
            _ => None,
        }
    }
}

/// A URL on its way to the sieve: canonical for fetching, in scope, and no trap by its looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The URL as it would be fetched.
    pub url: String,
    /// Links from a seed to here; redirects and sitemaps add none.
    pub depth: u16,
    /// What led to it.
    pub how: How,
    /// How many redirects in a row led to it.
    pub redirects: u8,
}

/// What led to a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum How {
    /// The user named it, or a URL that the user named redirects to it.
    Seed,
    /// A link on a page or in a header.
    Link,
    /// The answer to another URL sends here.
    Redirect,
    /// It is a sitemap, named by a robots.txt or by another sitemap.
    Sitemap,
    /// A sitemap lists it.
    Listed,
    /// It was given to another site, whose it is not any more. So it counts as not given away; otherwise it is like a link, or a
    /// sitemap.
    Returned {
        /// It is a sitemap.
        is_sitemap: bool,
        /// Attempts that it has used up there.
        attempts: u8,
    },
}

impl How {
    /// The same for a URL that another site had, and tried so often.
    pub fn returned(self, attempts: u8) -> How {
        match self {
            How::Returned { is_sitemap, attempts: before } => {
                How::Returned { is_sitemap, attempts: attempts.max(before) }
            }
            other => How::Returned { is_sitemap: other == How::Sitemap, attempts },
        }
    }
}

/// The end of one attempt at a URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// The URL, as it was found.
    pub url: String,
    /// As in [`Found`].
    pub depth: u16,
    /// As in [`Found`].
    pub how: How,
    /// The place of the record that it was found in.
    pub found_in: u64,
    /// Attempts that the URL has used up, this one included if it counts as one.
    pub attempts: u8,
    /// Whether a server was asked.
    pub asked: bool,
    /// When it ended.
    pub at: Wall,
    /// From the request to the last byte.
    pub took: Duration,
    /// Bytes received, head and body, as on the wire.
    pub bytes: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// Where the answer is archived, if one was. Filled in by whoever archives, before the record is written.
    pub capture: Option<Pointer>,
    /// What the page asks of those who keep or list it: "noindex", "noarchive" or both.
    pub flags: PageFlags,
    /// The links of the page that may be followed, to be admitted once this is durable.
    pub found: Vec<Found>,
    /// How many others it has.
    pub left_out: LeftOut,
    /// What it had been given and passes on to its links ([`crate::cash`]); `None` if it passes nothing on, because it was not
    /// answered, or because the crawl does not go by cash.
    pub spent: Option<u64>,
}

/// Links that were found and not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Out of scope.
    pub scope: u32,
    /// Traps by their looks.
    pub traps: u32,
    /// Of another site, for which too much waits already.
    pub outbox: u32,
}

/// Wishes of a page about its use, kept for whoever reads the archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageFlags {
    /// The page asks not to be listed.
    pub noindex: bool,
    /// The page asks not to be kept.
    pub noarchive: bool,
}

/// What came of an attempt at a URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// A final answer: the URL is done.
    Answered {
        /// The HTTP status.
        status: u16,
    },
    /// The URL failed and will be tried again.
    Retry {
        /// What went wrong.
        failure: Failure,
        /// The HTTP status, if there was one.
        status: Option<u16>,
        /// When it may be tried again, by the calendar.
        not_before: Wall,
    },
    /// The URL failed for good.
    Failed {
        /// What went wrong the last time.
        failure: Failure,
        /// The HTTP status, if there was one.
        status: Option<u16>,
    },
    /// robots.txt forbids it.
    Disallowed {
        /// The line of robots.txt that says so, from 1.
        line: u32,
        /// That line.
        rule: String,
    },
    /// It belongs to another site, which has written it down.
    Sent {
        /// The name of that site.
        to: String,
    },
}

impl Outcome {
    /// Whether the URL needs no further attempt.
    pub fn is_final(&self) -> bool {
        !matches!(self, Outcome::Retry { .. })
    }

    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Outcome::Answered { status } => Some(*status),
            Outcome::Retry { status, .. } | Outcome::Failed { status, .. } => *status,
            Outcome::Disallowed { .. } | Outcome::Sent { .. } => None,
        }
    }
}

/// The kinds of failure that are told apart. Those of a host back the host off and cost its URLs no attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// Host: the name does not exist.
    NoSuchName,
    /// Host: the name could not be resolved now.
    Dns,
    /// Every address of the name is one that may not be asked.
    PrivateAddress,
    /// Host: no connection.
    Connect,
    /// Host: no TLS session that can be trusted.
    Tls,
    /// Host: robots.txt cannot be had.
    RobotsUnreachable,
    /// Host: 429 or 503, a plea for less.
    Busy,
    /// URL: the answer did not begin or end in time, or came too slowly.
    Timeout,
    /// URL: the connection broke before the answer was whole.
    Disconnected,
    /// URL: what came is not HTTP.
    Malformed,
    /// URL: a server error.
    ServerError,
    /// Nobody's: this side gave up before there was an answer, or had no room for it; tried again.
    NotTried,
    /// The host failed for so long that it was given up.
    HostGivenUp,
    /// Nobody's, the first time: a connection that was kept had been closed before the answer began; tried again.
    Closed,
}

impl Failure {
    /// Whether the host is to blame rather than the URL.
    pub fn is_host(self) -> bool {
        use Failure::*;
        matches!(self, NoSuchName | Dns | Connect | Tls | RobotsUnreachable | Busy)
    }

    /// The name used in logs, figures and `--json`.
    pub fn name(self) -> &'static str {
        use Failure::*;
        match self {
            NoSuchName => "no-such-name",
            Dns => "dns",
            PrivateAddress => "private-address",
            Connect => "connect",
            Tls => "tls",
            RobotsUnreachable => "robots-unreachable",
            Busy => "busy",
            Timeout => "timeout",
            Disconnected => "disconnected",
            Malformed => "malformed",
            ServerError => "server-error",
            NotTried => "not-tried",
            HostGivenUp => "host-given-up",
            Closed => "closed",
        }
    }
}

/// Where a record is in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// The writer that made the file.
    pub shard: u16,
    /// Serial number of the WARC file.
    pub file: u32,
    /// First byte of the response record.
    pub offset: u64,
    /// Its length as stored.
    pub length: u32,
}

/// The end of one request for a robots.txt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RobotsRecord {
    /// Whose rules were asked for.
    pub origin: Origin,
    /// What was asked: the origin's robots.txt or where it redirects to.
    pub url: String,
    /// When the answer came.
    pub at: Wall,
    /// From the request to the last byte.
    pub took: Duration,
    /// Bytes received.
    pub bytes: u64,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// Whether a server was asked, and not another agent.
    pub asked: bool,
    /// What it means.
    pub outcome: RobotsOutcome,
    /// Where the answer is archived, if one was.
    pub capture: Option<Pointer>,
    /// The sitemaps that it names and that may be fetched.
    pub found: Vec<Found>,
}

/// What the answer to a request for robots.txt means for its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RobotsOutcome {
    /// Rules to obey.
    Rules {
        /// The file, as far as it counts.
        body: Vec<u8>,
        /// Until when it need not be asked for again.
        fresh_until: Wall,
        /// Its ETag.
        etag: Option<String>,
        /// Its Last-Modified.
        last_modified: Option<String>,
    },
    /// The rules we have are still right.
    Unchanged {
        /// Until when they need not be asked for again.
        fresh_until: Wall,
    },
    /// There are none: all is allowed.
    None {
        /// Until when that need not be asked again.
        fresh_until: Wall,
    },
    /// They are said to be elsewhere; a further request follows.
    Elsewhere,
    /// They cannot be had now: nothing is allowed.
    Unreachable(Failure),
    /// They were sent to the agent that wants them.
    ForAnother,
}

/// What is remembered of a host's wishes and troubles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// The host.
    pub host: Host,
    /// Not to be asked before this.
    pub not_before: Wall,
    /// Why.
    pub failure: Option<Failure>,
    /// Failures in a row.
    pub failures: u32,
    /// When the first of them was.
    pub failing_since: Option<Wall>,
    /// The host was given up: its URLs have failed.
    pub given_up: bool,
}

/// What an operator can block.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Block {
    /// This name and every name under it.
    Name(Host),
    /// Every host at this address.
    Address(std::net::IpAddr),
}
