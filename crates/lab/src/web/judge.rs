//! The judge: what a crawler did, against what it was asked to do.
//!
//! Pure: it is told what happened and when (nanoseconds of any clock that only goes forward) and keeps a few bytes for
//! each URL, host and address that was asked. All times err in favour of the crawler, so that there is no tolerance: a
//! gap begins just before the last write of an answer (or, where the client left early, before the last write that went
//! well; or at the request, if nothing was written) and ends when the first byte of the next request was read.
//!
//! What it cannot see: requests to addresses outside of the web, and waits that depend on measured response times.

use std::{collections::HashMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Latest,
    plan::{Offence, Rule},
    reply::RobotsSays,
};

/// URLs that are remembered at most; further ones are served but not judged, and counted.
const URLS_MAX: usize = 20_000_000;
/// Repeats that are remembered one by one.
const REPEATS_MAX: usize = 10_000;
/// Examples that are kept of each sort of violation.
const EXAMPLES_MAX: usize = 20;
/// Gaps are counted in buckets, so many for each doubling.
const BUCKETS_AN_OCTAVE: u32 = 32;

/// What the crawler promised, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Between requests to a host.
    pub delay: u64,
    /// Between requests to an address.
    pub ip_delay: u64,
    /// Requests at once to an address.
    pub ip_parallel: u32,
    /// After each failure of a URL, before it is tried again.
    pub pauses: [u64; 3],
}

/// Sorts of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// Too early: delays of host and address, crawl-delay, Retry-After, back-off, pauses before retries.
    Politeness,
    /// Too many at once, at a host or at an address.
    Concurrency,
    /// Disallowed, not to be followed, before robots.txt was read or while it could not be.
    Robots,
    /// A private address was connected to.
    Private,
    /// The URL is beyond the limits on URLs.
    Limits,
    /// A host or a URL was asked for more often, or for more, than it is worth.
    Cost,
    /// A certificate that is not valid was accepted.
    Tls,
    /// A cookie came back.
    Cookies,
    /// The URL does not exist anywhere in the web.
    Unknown,
    /// Not a proper HTTP request.
    Malformed,
}

/// How often something happened, with the first examples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// How often.
    pub count: u64,
    /// The first twenty.
    pub examples: Vec<String>,
}

impl Tally {
    /// One more.
    pub fn add(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(example());
        }
    }
}

/// A request that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When its first byte was read.
    pub now: u64,
    /// Which host, as [`Host::key`](super::plan::Host::key) has it.
    pub host: u64,
    /// Its kind.
    pub kind: usize,
    /// The address it was sent to.
    pub address: u32,
    /// Whether over TLS.
    pub https: bool,
    /// Identity of the URL.
    pub url: u64,
    /// What is expected as to it.
    pub rule: Rule,
}

/// The end of an exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct Departure {
    /// Just before the last write that went well; none if nothing was written.
    pub last_write: Option<u64>,
    /// The whole answer was handed over.
    pub whole: bool,
    /// Bytes written.
    pub bytes: u64,
    /// Hash of the bytes written.
    pub digest: u64,
    /// The answer, whole, is final.
    pub settles: bool,
    /// The answer costs an attempt.
    pub url_failed: bool,
    /// What it means as an answer to robots.txt.
    pub robots: Option<RobotsSays>,
    /// The host asks to be left alone until then.
    pub not_before: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RobotsState {
    #[default]
    Unasked,
    Elsewhere,
    Unreachable,
    Open,
}

/// What is known of a host under one name.
#[derive(Clone, Debug, Default)]
pub struct HostSeen {
    pub(super) kind: usize,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    /// When the last request arrived.
    pub(super) last_arrival: u64,
    pub(super) open: u32,
    pub(super) open_max: u32,
    /// When its last expected page was served.
    pub(super) finish: u64,
    last_end: Option<u64>,
    not_before: u64,
    crawl_delay: u64,
    robots: [RobotsState; 2],
}

impl HostSeen {
    /// Its latest exchange.
    pub(super) fn latest(&self) -> Latest {
        let ended = self.last_end.filter(|_| self.open == 0);
        Latest { requests: self.requests, arrived: self.last_arrival, ended }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct AddressSeen {
    open: u32,
    last_end: Option<u64>,
}

/// What is known of a URL.
#[derive(Clone, Copy, Debug, Default)]
pub struct UrlSeen {
    pub(super) attempts: u32,
    failures: u8,
    pub(super) whole: bool,
    pub(super) digest: u64,
}

/// Connections, whatever came of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connections {
    /// How many there are now.
    pub open: u64,
    /// Most at once.
    pub open_max: u64,
    /// How many there were.
    pub count: u64,
    /// TLS handshakes that went well.
    pub handshakes: u64,
    /// Those that took up an earlier session.
    pub resumed: u64,
}

/// Gaps between requests of the hosts of a kind.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    count: u64,
    sum: u64,
    min: Option<u64>,
    buckets: Vec<u32>,
}

impl Gaps {
    fn add(&mut self, gap: u64) {
        self.count += 1;
        self.sum += gap;
        self.min = Some(self.min.map_or(gap, |min| min.min(gap)));
        let micros = (gap / 1_000).max(1);
        let octave = micros.ilog2();
        let within = ((micros - (1 << octave)) * u64::from(BUCKETS_AN_OCTAVE)) >> octave;
        let bucket = (octave * BUCKETS_AN_OCTAVE) as usize + within as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
    }

    /// The mean, in seconds.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64 / 1e9)
    }

    /// The smallest, in seconds.
    pub fn min_s(&self) -> Option<f64> {
        self.min.map(|min| min as f64 / 1e9)
    }

    /// The gap, in seconds, that this share of all gaps does not exceed, to 3 %.
    pub fn quantile_s(&self, share: f64) -> Option<f64> {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        })? as u32;
        let (octave, within) = (bucket / BUCKETS_AN_OCTAVE, bucket % BUCKETS_AN_OCTAVE);
        let micros =
            f64::from(within + BUCKETS_AN_OCTAVE) / f64::from(BUCKETS_AN_OCTAVE) * (1u64 << octave) as f64;
        Some(micros / 1e6)
    }
}

/// Everything that was seen.
#[derive(Debug)]
pub struct Judge {
    manners: Manners,
    pub(super) first: Option<u64>,
    pub(super) last: u64,
    pub(super) requests: u64,
    pub(super) robots_requests: u64,
    pub(super) unjudged: u64,
    pub(super) hosts: HashMap<u64, HostSeen>,
    addresses: HashMap<u32, AddressSeen>,
    pub(super) urls: HashMap<u64, UrlSeen>,
    /// When a URL that failed may be tried again.
    due: HashMap<u64, u64>,
    pub(super) dns_queries: HashMap<u32, u32>,
    pub(super) connections: Connections,
    pub(super) violations: HashMap<Violation, Tally>,
    pub(super) overlap: Tally,
    pub(super) repeats: Vec<(u64, String)>,
    pub(super) gaps: Vec<Gaps>,
}

impl Judge {
    /// A judge of a web with so many kinds of host, who has seen nothing.
    pub fn new(manners: Manners, kinds: usize) -> Judge {
        Judge {
            manners,
            first: None,
            last: 0,
            requests: 0,
            robots_requests: 0,
            unjudged: 0,
            hosts: HashMap::new(),
            addresses: HashMap::new(),
            urls: HashMap::new(),
            due: HashMap::new(),
            dns_queries: HashMap::new(),
            connections: Connections::default(),
            violations: HashMap::new(),
            overlap: Tally::default(),
            repeats: Vec::new(),
            gaps: vec![Gaps::default(); kinds],
        }
    }

    /// Forgets everything, except what is going on: exchanges that are open end as usual.
    pub fn reset(&mut self) {
        let mut fresh = Judge::new(self.manners, self.gaps.len());
        let open_hosts = self.hosts.drain().filter(|(_, seen)| seen.open > 0);
        let forget = |seen: HostSeen| HostSeen { kind: seen.kind, open: seen.open, ..HostSeen::default() };
        fresh.hosts = open_hosts.map(|(key, seen)| (key, forget(seen))).collect();
        let open_addresses = self.addresses.drain().filter(|(_, seen)| seen.open > 0);
        let forget = |seen: AddressSeen| AddressSeen { open: seen.open, last_end: None };
        fresh.addresses = open_addresses.map(|(key, seen)| (key, forget(seen))).collect();
        let open = self.connections.open;
        fresh.connections = Connections { open, open_max: open, ..Connections::default() };
        *self = fresh;
    }

    /// How often an answer was wrong, of one sort.
    pub fn count(&self, violation: Violation) -> u64 {
        self.violations.get(&violation).map_or(0, |tally| tally.count)
    }

    /// How many requests came for URLs that had a whole, final answer.
    pub fn overlap(&self) -> u64 {
        self.overlap.count
    }

    /// Takes down a violation.
    pub fn violate(&mut self, violation: Violation, example: impl FnOnce() -> String) {
        self.violations.entry(violation).or_default().add(example);
    }

    /// A connection begins.
    pub fn connected(&mut self) {
        self.connections.count += 1;
        self.connections.open += 1;
        self.connections.open_max = self.connections.open_max.max(self.connections.open);
    }

    /// A connection ends.
    pub fn disconnected(&mut self) {
        self.connections.open = self.connections.open.saturating_sub(1);
    }

    /// A TLS handshake went well.
    pub fn handshake(&mut self, resumed: bool) {
        self.connections.handshakes += 1;
        self.connections.resumed += u64::from(resumed);
    }

    /// Counts a DNS query for a host, and says how many there were before.
    pub fn dns_query(&mut self, host: u32) -> u32 {
        let count = self.dns_queries.entry(host).or_default();
        *count += 1;
        *count - 1
    }

    /// A request arrived; `name` describes it in examples. Returns how often the URL was asked for, this time included.
    pub fn arrive(&mut self, arrival: &Arrival, name: &dyn Fn() -> String) -> u32 {
        self.first.get_or_insert(arrival.now);
        self.last = self.last.max(arrival.now);
        self.requests += 1;
        self.robots_requests += u64::from(arrival.rule == Rule::Free);
        self.arrive_at_host(arrival, name);
        self.arrive_at_address(arrival, name);
        self.check_robots(arrival, name);
        self.arrive_at_url(arrival, name)
    }

    fn arrive_at_host(&mut self, arrival: &Arrival, name: &dyn Fn() -> String) {
        let Arrival { now, kind, .. } = *arrival;
        let host = self.hosts.entry(arrival.host).or_insert_with(|| HostSeen { kind, ..HostSeen::default() });
        host.requests += 1;
        host.last_arrival = now;
        host.open += 1;
        host.open_max = host.open_max.max(host.open);
        let open = host.open;
        let needed = self.manners.delay.max(host.crawl_delay);
        let early_by = host.not_before.saturating_sub(now);
        let gap = host.last_end.map(|end| now.saturating_sub(end));
        let asked_to_wait = host.last_end.is_some_and(|end| host.not_before > end + needed);
        if open > 1 {
            self.violate(Violation::Concurrency, || format!("{}: {open} at once at the host", name()));
            return;
        }
        if let Some(gap) = gap {
            if !asked_to_wait {
                self.gaps[kind].add(gap);
            }
            if gap < needed {
                let (gap, needed) = (seconds(gap), seconds(needed));
                self.violate(Violation::Politeness, || {
                    format!("{}: {gap} after the last, not {needed}", name())
                });
            }
        }
        if early_by > 0 {
            let early = seconds(early_by);
            self.violate(Violation::Politeness, || {
                format!("{}: {early} earlier than the host asked", name())
            });
        }
    }

    fn arrive_at_address(&mut self, arrival: &Arrival, name: &dyn Fn() -> String) {
        let address = self.addresses.entry(arrival.address).or_default();
        address.open += 1;
        let open = address.open;
        let gap = address.last_end.map(|end| arrival.now.saturating_sub(end));
        let needed = self.manners.ip_delay;
        if open > self.manners.ip_parallel {
            self.violate(Violation::Concurrency, || format!("{}: {open} at once at the address", name()));
        } else if let Some(gap) = gap.filter(|gap| *gap < needed) {
            let (gap, needed) = (seconds(gap), seconds(needed));
            self.violate(Violation::Politeness, || {
                format!("{}: {gap} after the last at the address, not {needed}", name())
            });
        }
    }

    fn check_robots(&mut self, arrival: &Arrival, name: &dyn Fn() -> String) {
        if arrival.rule == Rule::Free {
            return;
        }
        let state = self.hosts.get(&arrival.host).map(|host| host.robots[usize::from(arrival.https)]);
        let why = match state.unwrap_or_default() {
            RobotsState::Open => None,
            RobotsState::Unasked => Some("before robots.txt was asked for"),
            RobotsState::Elsewhere => Some("before the redirects of robots.txt were followed"),
            RobotsState::Unreachable => Some("while robots.txt cannot be had"),
        };
        if let Some(why) = why {
            self.violate(Violation::Robots, || format!("{}: {why}", name()));
        }
        let (violation, why) = match arrival.rule {
            Rule::Forbidden(Offence::Robots) => (Violation::Robots, "disallowed"),
            Rule::Forbidden(Offence::Nofollow) => (Violation::Robots, "no link to be followed leads there"),
            Rule::Forbidden(Offence::Limits) => (Violation::Limits, "beyond the limits on URLs"),
            Rule::Forbidden(Offence::Tls) => (Violation::Tls, "the certificate is not valid"),
            Rule::Forbidden(Offence::Private) => (Violation::Private, "a private address"),
            Rule::Unknown => (Violation::Unknown, "no such URL"),
            Rule::Expected | Rule::Tried(_) | Rule::Optional | Rule::Free => return,
        };
        self.violate(violation, || format!("{}: {why}", name()));
    }

    fn arrive_at_url(&mut self, arrival: &Arrival, name: &dyn Fn() -> String) -> u32 {
        if arrival.rule == Rule::Unknown {
            return 1;
        }
        if self.urls.len() >= URLS_MAX && !self.urls.contains_key(&arrival.url) {
            self.unjudged += 1;
            return 1;
        }
        let url = self.urls.entry(arrival.url).or_default();
        url.attempts = url.attempts.saturating_add(1);
        let seen = *url;
        if arrival.rule == Rule::Free {
            return seen.attempts;
        }
        if seen.whole {
            self.overlap.add(name);
            if self.repeats.len() < REPEATS_MAX {
                self.repeats.push((arrival.now, name()));
            }
        }
        if let Rule::Tried(max) = arrival.rule
            && seen.attempts > max
        {
            self.violate(Violation::Cost, || {
                format!("{}: asked for {} times, at most {max} are worth it", name(), seen.attempts)
            });
        }
        let early = self.due.get(&arrival.url).map_or(0, |due| due.saturating_sub(arrival.now));
        if early > 0 {
            self.violate(Violation::Politeness, || {
                format!("{}: retried {} too early", name(), seconds(early))
            });
        }
        seen.attempts
    }

    /// An exchange ended.
    pub fn depart(&mut self, arrival: &Arrival, departure: &Departure) {
        let end = departure.last_write.unwrap_or(arrival.now);
        self.last = self.last.max(end);
        let address = self.addresses.entry(arrival.address).or_default();
        address.open = address.open.saturating_sub(1);
        address.last_end = address.last_end.max(Some(end));
        self.depart_from_host(arrival, departure, end);
        if let Some(robots) = departure.robots {
            self.learn_robots(arrival, departure.whole, robots);
        }
        let Some(url) = self.urls.get_mut(&arrival.url) else { return };
        if departure.whole {
            url.digest = departure.digest;
        }
        url.whole |= departure.whole && departure.settles && arrival.rule != Rule::Free;
        if departure.url_failed && arrival.rule != Rule::Free {
            let pause = self.manners.pauses[usize::from(url.failures).min(self.manners.pauses.len() - 1)];
            url.failures = url.failures.saturating_add(1);
            self.due.insert(arrival.url, end + pause);
        }
    }

    fn depart_from_host(&mut self, arrival: &Arrival, departure: &Departure, end: u64) {
        let Some(host) = self.hosts.get_mut(&arrival.host) else { return };
        host.open = host.open.saturating_sub(1);
        host.last_end = host.last_end.max(Some(end));
        host.bytes += departure.bytes;
        host.not_before = host.not_before.max(departure.not_before.unwrap_or(0));
        if departure.whole && departure.settles && arrival.rule == Rule::Expected {
            host.finish = host.finish.max(end);
        }
    }

    /// What robots.txt said holds for the name that was asked and, at the end of redirects, for those of the same host
    /// that were sent there.
    fn learn_robots(&mut self, arrival: &Arrival, whole: bool, says: RobotsSays) {
        let (state, crawl_delay) = match says {
            RobotsSays::Open(delay) if whole => (RobotsState::Open, nanos(delay)),
            RobotsSays::Open(_) => return,
            RobotsSays::Elsewhere => (RobotsState::Elsewhere, 0),
            RobotsSays::Unreachable => (RobotsState::Unreachable, 0),
        };
        let first = arrival.host & !3;
        for key in first..first + 4 {
            let Some(host) = self.hosts.get_mut(&key) else { continue };
            for (https, known) in host.robots.iter_mut().enumerate() {
                let asked = key == arrival.host && https == usize::from(arrival.https);
                // A good copy stays good.
                let learns =
                    if asked { *known != RobotsState::Open } else { *known == RobotsState::Elsewhere };
                if learns && (asked || state != RobotsState::Elsewhere) {
                    *known = state;
                    host.crawl_delay = host.crawl_delay.max(crawl_delay);
                }
            }
        }
    }
}

/// A duration in the judge's unit.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(nanos: u64) -> String {
    format!("{:.6} s", nanos as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn judge() -> Judge {
        let pauses = [60 * SECOND, 600 * SECOND, 3_600 * SECOND];
        Judge::new(Manners { delay: SECOND, ip_delay: SECOND / 4, ip_parallel: 1, pauses }, 1)
    }

    /// One exchange: arrives, is answered whole at `end`.
    struct Exchange {
        at: u64,
        end: u64,
        host: u64,
        url: u64,
        rule: Rule,
        departure: Departure,
    }

    fn page(at: u64, end: u64, host: u64, url: u64) -> Exchange {
        let departure =
            Departure { last_write: Some(end), whole: true, settles: true, ..Departure::default() };
        Exchange { at, end, host, url, rule: Rule::Expected, departure }
    }

    fn robots(at: u64, end: u64, host: u64, says: RobotsSays) -> Exchange {
        let departure = Departure { robots: Some(says), ..page(at, end, host, 1).departure };
        Exchange { rule: Rule::Free, departure, ..page(at, end, host, 1) }
    }

    const OPEN: RobotsSays = RobotsSays::Open(Duration::ZERO);

    /// Plays exchanges in the order in which their beginnings and ends happen. Hosts below 100 have addresses of their own.
    fn play(exchanges: &[Exchange]) -> Judge {
        let mut judge = judge();
        let arrival = |e: &Exchange| Arrival {
            now: e.at,
            host: e.host * 4,
            kind: 0,
            address: if e.host < 100 { e.host as u32 } else { 100 },
            https: false,
            url: e.host << 32 | e.url,
            rule: e.rule,
        };
        let mut events: Vec<(u64, bool, &Exchange)> =
            exchanges.iter().flat_map(|e| [(e.at, true, e), (e.end, false, e)]).collect();
        events.sort_by_key(|(at, begins, _)| (*at, !*begins));
        for (_, begins, exchange) in events {
            match begins {
                true => {
                    judge.arrive(&arrival(exchange), &|| "example".to_owned());
                }
                false => judge.depart(&arrival(exchange), &exchange.departure),
            }
        }
        judge
    }

    #[test]
    fn the_judge_judges() {
        let s = SECOND;
        let open = || robots(0, 1, 1, OPEN);
        let retry_after =
            || Departure { not_before: Some(10 * s), settles: false, ..page(2 * s, 2 * s, 1, 2).departure };
        let failed = || Departure { url_failed: true, settles: false, ..page(2 * s, 2 * s, 1, 2).departure };
        type Case = (&'static str, Vec<Exchange>, Option<Violation>);
        let cases: Vec<Case> = vec![
            (
                "a second apart",
                vec![open(), page(s + 1, s + 2, 1, 2), page(2 * s + 2, 2 * s + 3, 1, 3)],
                None,
            ),
            ("a nanosecond early", vec![open(), page(s, s + 2, 1, 2)], Some(Violation::Politeness)),
            (
                "two at once",
                vec![open(), page(2 * s, 9 * s, 1, 2), page(3 * s, 4 * s, 1, 3)],
                Some(Violation::Concurrency),
            ),
            ("no robots.txt", vec![page(s, s + 1, 1, 2)], Some(Violation::Robots)),
            (
                "robots.txt cannot be had",
                vec![robots(0, 1, 1, RobotsSays::Unreachable), page(2 * s, 2 * s, 1, 2)],
                Some(Violation::Robots),
            ),
            (
                "robots.txt redirects and nobody followed",
                vec![robots(0, 1, 1, RobotsSays::Elsewhere), page(2 * s, 2 * s, 1, 2)],
                Some(Violation::Robots),
            ),
            (
                "robots.txt is good the second time",
                vec![
                    robots(0, 1, 1, RobotsSays::Unreachable),
                    robots(s + 1, s + 2, 1, OPEN),
                    page(3 * s, 3 * s, 1, 2),
                ],
                None,
            ),
            (
                "disallowed",
                vec![open(), Exchange { rule: Rule::Forbidden(Offence::Robots), ..page(2 * s, 2 * s, 1, 2) }],
                Some(Violation::Robots),
            ),
            (
                "crawl-delay kept",
                vec![robots(0, 1, 1, RobotsSays::Open(Duration::from_secs(5))), page(5 * s + 1, 6 * s, 1, 2)],
                None,
            ),
            (
                "crawl-delay not kept",
                vec![robots(0, 1, 1, RobotsSays::Open(Duration::from_secs(5))), page(5 * s, 6 * s, 1, 2)],
                Some(Violation::Politeness),
            ),
            (
                "retry-after kept",
                vec![
                    open(),
                    Exchange { departure: retry_after(), ..page(2 * s, 2 * s, 1, 2) },
                    page(10 * s, 10 * s, 1, 2),
                ],
                None,
            ),
            (
                "retry-after not kept",
                vec![
                    open(),
                    Exchange { departure: retry_after(), ..page(2 * s, 2 * s, 1, 2) },
                    page(9 * s, 9 * s, 1, 3),
                ],
                Some(Violation::Politeness),
            ),
            (
                "retried in time",
                vec![
                    open(),
                    Exchange { departure: failed(), ..page(2 * s, 2 * s, 1, 2) },
                    page(62 * s, 62 * s, 1, 2),
                ],
                None,
            ),
            (
                "retried too early, though another page is due",
                vec![
                    open(),
                    Exchange { departure: failed(), ..page(2 * s, 2 * s, 1, 2) },
                    page(61 * s, 61 * s, 1, 2),
                ],
                Some(Violation::Politeness),
            ),
            (
                "two hosts of an address apart",
                vec![robots(0, 1, 100, OPEN), robots(s / 4 + 1, s / 4 + 1, 101, OPEN)],
                None,
            ),
            (
                "two hosts of an address too close",
                vec![robots(0, 1, 100, OPEN), robots(s / 4, s / 4, 101, OPEN)],
                Some(Violation::Politeness),
            ),
            (
                "two hosts of an address at once",
                vec![robots(0, 2 * s, 100, OPEN), robots(s, s, 101, OPEN)],
                Some(Violation::Concurrency),
            ),
            (
                "asked for more often than it is worth",
                vec![
                    open(),
                    Exchange {
                        rule: Rule::Tried(1),
                        departure: Departure::default(),
                        ..page(2 * s, 2 * s, 1, 2)
                    },
                    Exchange {
                        rule: Rule::Tried(1),
                        departure: Departure::default(),
                        ..page(4 * s, 4 * s, 1, 2)
                    },
                ],
                Some(Violation::Cost),
            ),
            (
                "made up",
                vec![open(), Exchange { rule: Rule::Unknown, ..page(2 * s, 2 * s, 1, 2) }],
                Some(Violation::Unknown),
            ),
        ];
        for (name, exchanges, expected) in cases {
            let judge = play(&exchanges);
            let found: Vec<Violation> = judge.violations.keys().copied().collect();
            assert_eq!(found, Vec::from_iter(expected), "{name}: {:?}", judge.violations);
            assert_eq!(judge.overlap(), 0, "{name}");
        }
    }

    #[test]
    fn a_request_after_a_whole_final_answer_is_overlap() {
        let s = SECOND;
        let broken = Departure { whole: false, ..page(2 * s, 2 * s, 1, 2).departure };
        let judge = play(&[
            robots(0, 1, 1, OPEN),
            Exchange { departure: broken, ..page(2 * s, 2 * s, 1, 2) },
            page(4 * s, 4 * s, 1, 2),
            robots(6 * s, 6 * s, 1, OPEN),
            page(8 * s, 8 * s, 1, 2),
        ]);
        assert_eq!(judge.overlap(), 1);
        assert_eq!(judge.repeats, [(8 * s, "example".to_owned())]);
    }

    #[test]
    fn gaps_run_from_the_last_write_that_went_well() {
        let s = SECOND;
        // The client left at 60 s; the last byte that reached it was written at 2 s.
        let left = Departure { last_write: Some(2 * s), ..Departure::default() };
        let judge =
            play(&[robots(0, 1, 1, OPEN), Exchange { departure: left, ..page(2 * s, 60 * s, 1, 2) }, {
                page(60 * s + 1, 61 * s, 1, 3)
            }]);
        assert!(judge.violations.is_empty(), "{:?}", judge.violations);
        let gaps = &judge.gaps[0];
        assert_eq!((gaps.count, gaps.min), (2, Some(2 * s - 1)));
        let p99 = gaps.quantile_s(0.99).unwrap();
        assert!((56.0..=58.1).contains(&p99), "{p99}");
    }

    #[test]
    fn a_reset_forgets_all_but_what_is_open() {
        let mut judge = play(&[robots(0, 1, 1, OPEN), page(2, 3, 1, 2)]);
        assert_eq!(judge.count(Violation::Politeness), 2, "host and address");
        let arrival = Arrival {
            now: 9 * SECOND,
            host: 4,
            kind: 0,
            address: 1,
            https: false,
            url: 9,
            rule: Rule::Expected,
        };
        judge.arrive(&arrival, &String::new);
        judge.reset();
        assert_eq!((judge.requests, judge.count(Violation::Politeness), judge.urls.len()), (0, 0, 0));
        assert_eq!(judge.hosts[&4].open, 1);
        judge.depart(&arrival, &Departure::default());
        assert_eq!(judge.hosts[&4].open, 0);
    }
}
