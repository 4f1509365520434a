//! What the operator may choose, as far as it concerns decisions. Already checked: every value here is usable.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::url::addresses;
use crate::url::traps::TrapLimits;

/// Which of the URLs that wait at a host are fetched first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UrlOrder {
    /// Those that are nearest to a seed.
    #[default]
    BreadthFirst,
    /// Those that were given most by the pages that link to them: see [`crate::cash`].
    Cash,
}

impl UrlOrder {
    /// Its name as a setting.
    pub fn name(self) -> &'static str {
        match self {
            UrlOrder::BreadthFirst => "breadth-first",
            UrlOrder::Cash => "cash",
        }
    }
}

impl fmt::Display for UrlOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is no order of URLs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not possible: use breadth-first or cash")]
pub struct UnknownOrder(String);

impl FromStr for UrlOrder {
    type Err = UnknownOrder;

    fn from_str(word: &str) -> Result<UrlOrder, UnknownOrder> {
        [UrlOrder::BreadthFirst, UrlOrder::Cash]
            .into_iter()
            .find(|order| order.name() == word)
            .ok_or_else(|| UnknownOrder(word.to_owned()))
    }
}

/// The settings of an agent. Defaults are those of docs/behaviour.md.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The product token that robots.txt addresses us by, lower case.
    pub token: String,
    /// Stop after this many answered URLs.
    pub max_pages: Option<u64>,
    /// Stop after this many bytes received.
    pub max_bytes: Option<u64>,
    /// Stop after this long, over all runs.
    pub max_time: Option<Duration>,
    /// End when nothing is due for this long.
    pub max_wait: Duration,
    /// Links from a seed that are followed at most.
    pub max_depth: u16,
    /// URLs that one host may have.
    pub max_host_pages: u64,
    /// URLs that the crawl may know; admission stops there.
    pub max_urls: u64,
    /// URLs that may wait for one other site of a federation.
    pub outbox_urls_max: u64,
    /// What happens when they do.
    pub outbox_full: OutboxFull,
    /// URLs a second that are sent to other sites, each of which gets an equal part; all that they take if not given.
    pub send_rate: Option<u64>,
    /// Which URLs of a host come first. It stays the same as long as the crawl does.
    pub order: UrlOrder,
    /// By cash: how many times as much a URL of another agent or site must have been given before it is told again.
    pub tell_again: u32,
    /// What is taken for a trap by its looks.
    pub traps: TrapLimits,
    /// From the last byte of an answer to the next request to the same host.
    pub delay: Duration,
    /// The same for an address.
    pub ip_delay: Duration,
    /// Requests at once to one address.
    pub ip_parallel: u32,
    /// The delay is at least this many times the smoothed response time; 0 switches that off.
    pub slow_factor: f64,
    /// First wait after a failure of a host; doubles.
    pub backoff_min: Duration,
    /// Where doubling ends.
    pub backoff_max: Duration,
    /// A host that failed for this long is given up.
    pub host_give_up: Duration,
    /// Over how long a name that does not exist is asked for twice again.
    pub no_such_name_span: Duration,
    /// The waits between the attempts at a URL; one attempt more than there are waits.
    pub retry_pauses: Vec<Duration>,
    /// How long a robots.txt is used before it is asked for again.
    pub robots_ttl: Duration,
    /// What Cache-Control may shorten that to.
    pub robots_ttl_min: Duration,
    /// How old a robots.txt may be that is used while a newer one cannot be had.
    pub robots_stale_max: Duration,
    /// How long a robots.txt may wait in another host's queue.
    pub robots_elsewhere_max: Duration,
    /// Redirects of robots.txt that are followed.
    pub robots_redirects_max: u8,
    /// Rules of robots.txt that are kept in memory; the others are read back from the journal when their host has its turn.
    pub robots_bytes_max: usize,
    /// Hosts in memory; the others are in the store.
    pub hosts_max: usize,
    /// Redirects in a row that are followed.
    pub redirects_max: u8,
    /// From the start of a request to the last byte of its answer. Agents of a site count on each other's being the same.
    pub request_timeout: Duration,
    /// Fetches at once.
    pub parallel: usize,
    /// DNS questions at once.
    pub resolve_parallel: usize,
    /// Which addresses that are not globally reachable may be asked.
    pub private: Private,
    /// From the wish to stop to the end of what is still being fetched.
    pub stop_grace: Duration,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        const DAY: u64 = 24 * HOUR;
        let secs = Duration::from_secs;
        Settings {
            token: "nephila".into(),
            max_pages: None,
            max_bytes: None,
            max_time: None,
            max_wait: secs(10 * MINUTE),
            max_depth: 50,
            max_host_pages: 100_000,
            max_urls: 1_000_000_000,
            outbox_urls_max: 10_000_000,
            outbox_full: OutboxFull::Wait,
            send_rate: None,
            order: UrlOrder::BreadthFirst,
            tell_again: 16,
            traps: TrapLimits::default(),
            delay: secs(1),
            ip_delay: Duration::from_millis(250),
            ip_parallel: 1,
            slow_factor: 2.0,
            backoff_min: secs(MINUTE),
            backoff_max: secs(6 * HOUR),
            host_give_up: secs(3 * DAY),
            no_such_name_span: secs(DAY),
            retry_pauses: vec![secs(MINUTE), secs(10 * MINUTE), secs(HOUR)],
            robots_ttl: secs(DAY),
            robots_ttl_min: secs(HOUR),
            robots_stale_max: secs(30 * DAY),
            robots_elsewhere_max: secs(MINUTE),
            robots_redirects_max: 5,
            robots_bytes_max: 64_000_000,
            hosts_max: 100_000,
            redirects_max: 10,
            request_timeout: secs(MINUTE),
            parallel: 512,
            resolve_parallel: 64,
            private: Private::Refused,
            stop_grace: secs(10),
            seed: 0,
        }
    }
}

/// What happens when as many URLs wait for another site as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxFull {
    /// No more pages are asked for until there is room.
    Wait,
    /// What is found for that site is left out.
    Drop,
}

/// A word for something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not possible: use wait or drop")]
pub struct NotOutboxFull(String);

impl FromStr for OutboxFull {
    type Err = NotOutboxFull;

    fn from_str(word: &str) -> Result<OutboxFull, NotOutboxFull> {
        match word {
            "wait" => Ok(OutboxFull::Wait),
            "drop" => Ok(OutboxFull::Drop),
            _ => Err(NotOutboxFull(word.to_owned())),
        }
    }
}

impl fmt::Display for OutboxFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutboxFull::Wait => "wait",
            OutboxFull::Drop => "drop",
        })
    }
}

/// Which addresses that are not globally reachable may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Private {
    /// None.
    Refused,
    /// Those in these networks.
    Within(Vec<IpNet>),
    /// All.
    Allowed,
}

impl Private {
    /// Why this address may not be connected to, if it may not.
    pub fn refuses(&self, address: IpAddr) -> Option<&'static str> {
        let reason = addresses::special(address)?;
        match self {
            Private::Allowed => None,
            Private::Within(networks) if networks.iter().any(|net| net.contains(&address)) => None,
            _ => Some(reason),
        }
    }
}
