//! What a store says of URLs that it was offered.

use crate::cash::Total;
use crate::record::Found;
use crate::url::Host;

/// What the sieve said of the URLs that a record found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// For each host that got any: how many new URLs wait in its queue.
    pub new: Vec<(Host, u64)>,
    /// URLs that were known already.
    pub known: u64,
    /// URLs beyond a limit, by which.
    pub over: OverLimit,
    /// URLs that are not decided yet, in all: the answer follows with that to another offer, or to
    /// [`Action::Decide`](super::Action::Decide).
    pub undecided: u64,
    /// Hosts that are known, in all; when they are very many, those met last may be missing.
    pub hosts: u64,
    /// By how much the URLs that are known have become more, apart from new ones, and those of them that are not settled, because
    /// they came from another agent or went to one, or were done by both.
    pub moved: (i64, i64),
    /// Where the crawl goes by cash: URLs that were given to other sites, by host, and wait once more to be sent there.
    pub again: Vec<(Host, u64)>,
    /// Where the crawl goes by cash: URLs of others that they are to be told of.
    pub to_tell: Vec<ToTell>,
}

/// A URL that another agent has, or is to have, with what it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToTell {
    /// Of a record that found it: what is told of it is told when this is.
    pub place: u64,
    /// The URL.
    pub found: Found,
    /// The page that it was found on.
    pub via: Option<String>,
    /// What it was given, and by whom.
    pub total: Total,
    /// It was asked for, as one that may not have been told before.
    pub again: bool,
}

impl Admitted {
    /// Whether it says more than how much is undecided.
    pub fn is_news(&self) -> bool {
        let moved = self.moved != (0, 0);
        let tells = !self.to_tell.is_empty() || !self.again.is_empty();
        !self.new.is_empty() || self.known > 0 || self.over != OverLimit::default() || moved || tells
    }
}

/// URLs that were not admitted because of a limit. They come back if the limit is raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverLimit {
    /// Deeper than `max_depth`.
    pub depth: u64,
    /// More than `max_host_pages` on their host.
    pub host: u64,
    /// More than `max_urls` in all.
    pub urls: u64,
}
