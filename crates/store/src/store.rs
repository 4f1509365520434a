//! What an agent asks of a store, whichever it is: the sieve, the queues, and what is kept with hosts.
//!
//! A store folds records, each of them told of once it is durable and by its place: first [`Store::settle`], if it settles a
//! URL, then [`Store::admit`], if it found any. How a record becomes durable, and how a store is opened, is each store's own.
//!
//! # What every store promises
//! - A URL is known once, however often and in whatever spelling it is offered. It is not forgotten while the limits stay as
//!   they are, and once it was tried, never. Whether an offer was new may be said late, and is said once.
//! - A URL that is known and not settled is in exactly one of three places: due, deferred, or taken. What was taken and not
//!   settled when the process ended is due again, in whatever order.
//! - A URL that a limit keeps out is not known, and is noted, as long as there is room for that: opened with a higher limit, it
//!   is admitted.
//! - Figures ([`Store::stored`], [`Store::hosts`]) are right when everything is decided, but for two. The URLs of a host that
//!   are due may be counted too high, by those that were found nearer to a seed or settled while they waited, until the old
//!   entry is met. The hosts in all may be counted too low while there are very many.
//! - In a store that goes by cash ([`nephila_core::settings::UrlOrder`]), what a URL has is the sum of what it was given, less
//!   what it has spent, whatever became of it; all of it together is what all records have made. Of a host's URLs that wait to be
//!   tried for the first time, those in the best class come first, and within it in the order in which they came to it. When
//!   everything is decided, each is in the class of what it has.
//! - After an error nothing is lost that was told before; what failed may have been done or not until the store is opened again.
//!
//! `tests/store/contract` tries all but the last of them on every store.

use nephila_core::agent::{Admitted, Cursor, Due, Stored, StoredHost, Taken, Visited};
use nephila_core::frontier::HostMemo;
use nephila_core::record::{Found, Record, Settled};
use nephila_core::site::{AgentId, Moved, Partitions};
use nephila_core::time::Wall;
use nephila_core::url::{Host, Url};

use crate::Result;

/// See the module's documentation.
pub trait Store {
    /// Drops from what a record found the URLs that this store need not be offered again, so that less is written down. To be
    /// called before the record is made durable. Dropping nothing is always right. What was offered before may be
    /// lost with an agent of the site that is gone: a store that agents do not share forgets what it was offered when a record
    /// lists them anew.
    fn prune(&mut self, record: &mut Record);

    /// Offers to the sieve what a record found, in order; what is new goes to the end of its host's queue, and what waits
    /// there and was found nearer to a seed than before moves up. What cannot be said at once follows with the next answer.
    /// URLs of partitions that are not `open` (`None`: all are) are passed over: they are for others, or for later; by cash the
    /// answer, or a later one, says what others are to be told of them.
    fn admit(&mut self, place: u64, record: &Record, open: Option<&Partitions>) -> Result<Admitted>;

    /// Decides about everything that was offered.
    fn decide(&mut self) -> Result<Admitted>;

    /// Decides about everything that was offered of a host, so that [`Store::look_up`] is right about its URLs.
    fn decide_host(&mut self, host: &Host) -> Result<Admitted>;

    /// Notes the end of an attempt: the URL is done, or deferred until it may be tried again, and known in any case. Its
    /// attempts are then those that the record says. Says what has been decided about URLs that were offered before.
    fn settle(&mut self, place: u64, settled: &Settled) -> Result<Admitted>;

    /// Hands over up to `max` URLs of a host: first those that were put back, then those whose time has come again, the
    /// earliest first, then the others, the lowest depth first (a store may take depths beyond 248 for equal), or by cash the
    /// best class, and within it in the order in which they were decided to be new. With `fresh_first`, the others come before
    /// those that come back. Says also what is kept of the host.
    fn take(&mut self, host: &Host, max: usize, fresh_first: bool, now: Wall) -> Result<Taken>;

    /// Puts URLs that were taken and not tried back at the head of their host's queue, first one first. Those that were
    /// settled since are left as they are.
    fn put_back(&mut self, host: &Host, due: &[Due]) -> Result<()>;

    /// Keeps what the agent knows of a host; [`Store::visit`] passes it by until `away_until`. It need not outlive the process
    /// at once: after a crash it may be what was kept before.
    fn keep(&mut self, host: &Host, memo: Option<&HostMemo>, away_until: Wall) -> Result<()>;

    /// Goes on with the round over all hosts and says of which something is due: of `max` at most, which is at least 1. A round
    /// meets each host once.
    fn visit(&mut self, now: Wall, max: usize) -> Result<Visited>;

    /// The record at a place; of an old one all but its links.
    fn record(&self, place: u64) -> Result<Record>;

    /// All that the store knows of a URL.
    fn look_up(&mut self, url: &Url) -> Result<Option<Known>>;

    /// One host.
    fn host(&mut self, host: &Host) -> Result<Option<StoredHost>>;

    /// Passes on every host, in any order.
    fn hosts(&mut self, each: &mut dyn FnMut(StoredHost)) -> Result<()>;

    /// What it holds in all.
    fn stored(&self) -> Stored;
}

/// A store that one agent has for itself: partitions leave it for the store of another agent, and its journal is the outbox.
pub trait OwnStore: Store {
    /// Reads what is known of the hosts of some partitions, from `from` on as far as it likes, and says where to go on, unless
    /// that is all. From the first part to the last nothing of these partitions may change, and nothing be taken. Says also what
    /// has been decided about URLs that were offered before.
    fn export(&mut self, partitions: &[u16], from: Option<&Cursor>) -> Result<Exported>;

    /// Records from one place to another that found URLs, with all that they found; as many as it likes, and the place behind
    /// them. To be called only for places that a snapshot was told to keep.
    fn records(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, u64)>;

    /// Where all cash of the crawl is, if it goes by that. Looks at every URL.
    fn cash(&mut self) -> Result<Cash>;

    /// What is kept of all records from one place to another; as many as it likes, and where to go on, unless that is all. An
    /// old record may come without its links.
    fn kept_records(&self, from: u64, until: u64) -> Result<(Vec<PlacedRecord>, Option<u64>)>;
}

/// A record and its place.
pub type PlacedRecord = (u64, Box<Record>);

/// A part of what is known of some hosts.
#[derive(Debug)]
pub struct Exported {
    /// What is known.
    pub moved: Moved,
    /// Where to go on, unless this is the end.
    pub next: Option<Cursor>,
    /// What had to be decided first.
    pub decided: Admitted,
}

/// What admission stops at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Links from a seed.
    pub max_depth: u16,
    /// URLs of one host.
    pub max_host_pages: u64,
    /// URLs in all.
    pub max_urls: u64,
    /// Bytes of what these keep out that are noted. In a store that agents share all of it is.
    pub kept_out_bytes: u64,
}

impl StoreLimits {
    /// Admission does not stop.
    pub const NONE: StoreLimits = StoreLimits {
        max_depth: u16::MAX,
        max_host_pages: u64::MAX,
        max_urls: u64::MAX,
        kept_out_bytes: u64::MAX,
    };
}

/// What the store says of a URL that it knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// How it was found, as far as that is still known.
    pub found: Found,
    /// The page it was found on.
    pub via: Option<String>,
    /// How far it has come.
    pub state: KnownState,
    /// What it was given and has not spent, where the crawl goes by that.
    pub cash: Option<u64>,
}

/// Where all cash of a crawl is, if it goes by that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cash {
    /// With URLs that wait,
    pub waiting: u64,
    /// with those that were handed over or are done,
    pub kept: u64,
    /// left over by pages that link to nothing,
    pub rest: u64,
    /// given to URLs that limits keep out,
    pub kept_out: u64,
    /// and given to URLs that others have. What they have heard of that is with these URLs, or kept out.
    pub given: u64,
    /// How much of what is with the URLs here others have given: with them it is counted as given, too.
    pub heard: u64,
}

impl Cash {
    /// All of it. Of one store among several it may be less than nothing: what others have given is counted there.
    pub fn sum(&self) -> i128 {
        let here = [self.waiting, self.kept, self.rest, self.kept_out, self.given];
        here.into_iter().map(i128::from).sum::<i128>() - i128::from(self.heard)
    }
}

/// How far a URL has come.
#[derive(Debug, Clone, PartialEq)]
pub enum KnownState {
    /// It waits for its turn and was not tried yet.
    Queued,
    /// It was handed over and is not settled.
    Taken,
    /// It was tried and will be again.
    Retry {
        /// Not before this.
        not_before: Wall,
        /// Attempts that it has used up.
        attempts: u8,
        /// The last of them, as it was written, if it was here: whether the archive still has its capture is not asked again.
        last: Option<Box<Settled>>,
    },
    /// It is done.
    Settled(Box<Settled>),
    /// Another agent had it before, and is done with it.
    Elsewhere {
        /// Which.
        agent: AgentId,
        /// The place in its journal.
        place: u64,
    },
}
