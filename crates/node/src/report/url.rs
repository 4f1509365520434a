//! What is to be known about one URL.

use std::fmt::Write;
use std::path::Path;

use nephila_core::record::{Failure, How, Pointer, site_of_page};
use nephila_core::time::Wall;
use nephila_disk::RealDisk;
use serde::{Deserialize, Serialize};

use super::report;
use crate::control::Response;
use crate::directory;
use crate::display::{bytes, counted, span};
use crate::fetch::decode;
use crate::fetch::head::Head;
use crate::writer::pointer_of;

/// How much of a decoded body is shown.
const SHOWN_BYTES_MAX: usize = 64 << 20;

/// What is to be known about one URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The URL, as it would be fetched.
    pub url: String,
    /// Where it stands.
    #[serde(flatten)]
    pub state: UrlState,
    /// How it became known, if it is.
    pub found: Option<FoundBy>,
    /// What blocks its host, if it is done or belongs to no crawl anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The site that says all this, if it is another one of the federation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The sites of the federation that have that blocked everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by_sites: Vec<String>,
    /// Where its answer is in the archive, if there is one.
    pub capture: Option<Captured>,
    /// What it has, in a crawl that goes by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cash: Option<HasCash>,
}

/// What a URL was given and has not spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HasCash {
    /// In units, of which every page that is fetched adds 2^20.
    pub units: u64,
    /// The class that it waits in at its host, the best of which is 0; none once it was handed over.
    pub class: Option<u8>,
}

/// How a URL became known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundBy {
    /// What led to it: seed, link, redirect, sitemap, listed (in a sitemap) or returned (by another site, or from one that is
    /// gone).
    pub how: String,
    /// The page it was found on.
    pub via: Option<String>,
    /// The site of the federation that has found it, and sent it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Links from a seed.
    pub depth: u16,
}

impl FoundBy {
    /// In the form of a report.
    pub fn new(how: How, via: Option<String>, depth: u16) -> FoundBy {
        let how = match how {
            How::Seed => "seed",
            How::Link => "link",
            How::Redirect => "redirect",
            How::Sitemap => "sitemap",
            How::Listed => "listed",
            How::Returned { .. } => "returned",
        };
        let site = via.as_deref().and_then(site_of_page).map(str::to_owned);
        FoundBy { how: how.to_owned(), via: via.filter(|_| site.is_none()), site, depth }
    }
}

/// Where an answer is in the archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Captured {
    /// The number of the agent whose archive it is, in a site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// The WARC file, below the directory of the crawl.
    pub file: String,
    /// As the archive names the place.
    pub pointer: Pointer,
}

impl Captured {
    /// The answer from the archive, as it came over the wire.
    pub fn read(&self, dir: &Path) -> Result<Vec<u8>, nephila_archive::Error> {
        let archive = directory::archive(dir);
        Ok(nephila_archive::read_record(&RealDisk, &archive, &pointer_of(&self.pointer))?.block)
    }
}

/// An answer that came over the wire: its head, and then its body without transfer and content coding.
pub fn decoded(mut answer: Vec<u8>) -> Vec<u8> {
    let payload = nephila_archive::payload(&answer);
    let codings =
        Head::parse(&answer).map(|head| decode::codings(head.all("content-encoding"))).unwrap_or_default();
    let (body, _) = decode::decode(&payload, &codings, SHOWN_BYTES_MAX);
    let blank = answer.windows(4).position(|window| window == b"\r\n\r\n");
    answer.truncate(blank.map_or(0, |blank| blank + 4));
    answer.extend_from_slice(&body);
    answer
}

/// Where a URL stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum UrlState {
    /// It belongs to the crawl and has not been found yet, or a limit keeps it out.
    NotKnown,
    /// It does not belong to the crawl.
    OutOfScope {
        /// By which rule.
        rule: String,
    },
    /// It looks like a trap.
    Trap {
        /// By which rule.
        rule: String,
    },
    /// The operator blocked it.
    Blocked {
        /// By what.
        by: String,
        /// The sites of the federation that have it blocked everywhere.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sites: Vec<String>,
    },
    /// robots.txt forbids it.
    Disallowed {
        /// The line, from 1.
        line: u32,
        /// What the line says.
        rule: String,
    },
    /// Nothing here has linked to it, and its host belongs to another site of the federation.
    OtherSite {
        /// The name of that site.
        site: String,
    },
    /// It belongs to another site of the federation, and was given to it.
    Sent {
        /// The name of that site.
        site: String,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// Another agent of the site is done with it.
    Elsewhere {
        /// Which, by its number.
        agent: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_name: Option<String>,
        /// Where in its journal it says what came of it.
        place: u64,
    },
    /// It will be fetched.
    Waiting {
        /// What for, in words.
        reason: String,
        /// For how long at least, if that is known.
        wait_s: Option<f64>,
        /// How many URLs of its host are before it or wait with it.
        host_queue: u64,
        /// Attempts that it has used up.
        attempts: u8,
        /// What went wrong last.
        failure: Option<Failure>,
    },
    /// It is being fetched.
    Fetching,
    /// It has a final answer.
    Fetched {
        /// The HTTP status.
        status: u16,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// Bytes received.
        bytes: u64,
        /// How long it took, in seconds.
        took_s: f64,
        /// At which attempt.
        attempt: u8,
    },
    /// It failed for good.
    Failed {
        /// What went wrong last.
        failure: Failure,
        /// The HTTP status, if there was one.
        status: Option<u16>,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// How many attempts there were.
        attempts: u8,
    },
}

/// An agent by its name, if that is known, and its number.
pub(crate) fn agent_words(number: &str, name: Option<&str>) -> String {
    name.map_or_else(|| format!("agent {number}"), |name| format!("agent {name} ({number})"))
}

/// A moment of the calendar for people.
fn moment(at_ms: u64) -> String {
    let at = i64::try_from(Wall(at_ms).0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "an unknown moment".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

impl UrlState {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            UrlState::NotKnown => {
                "not known: nothing has linked to it yet, or a limit keeps it out".to_owned()
            }
            UrlState::OutOfScope { rule } => format!("out of scope: {rule}"),
            UrlState::Trap { rule } => format!("left aside as a trap: {rule}"),
            UrlState::Blocked { by, sites } if sites.is_empty() => {
                format!("blocked by {by}: `nephila unblock {by}` takes that back")
            }
            UrlState::Blocked { by, sites } => {
                let sites = sites.join(", ");
                format!(
                    "blocked by {by} everywhere, by site {sites}: `nephila unblock {by} --everywhere` there takes that back"
                )
            }
            UrlState::Disallowed { line, rule } => format!("forbidden by line {line} of robots.txt: {rule}"),
            UrlState::OtherSite { site } => {
                format!("not known here: its host belongs to site {site}, which may know it")
            }
            UrlState::Sent { site, at_ms } => {
                format!("given to site {site}, whose host it is, {}", moment(*at_ms))
            }
            UrlState::Elsewhere { agent, agent_name, .. } => {
                let agent = agent_words(agent, agent_name.as_deref());
                format!("done by {agent}, which had its host before and does not answer now")
            }
            UrlState::Fetching => "being fetched now".to_owned(),
            UrlState::Waiting { reason, wait_s, host_queue, attempts, failure } => {
                let mut text = format!("waiting: {reason}");
                if let Some(wait_s) = wait_s {
                    let _ = write!(text, "; not before {} from now", span(*wait_s));
                }
                let _ = write!(text, "; its host has {} waiting", counted(*host_queue, "URL", "URLs"));
                if let Some(failure) = failure {
                    let tried = counted(u64::from(*attempts), "attempt", "attempts");
                    let _ = write!(text, "; {tried} used up, the last failure was {}", failure.name());
                }
                text
            }
            UrlState::Fetched { status, at_ms, bytes: received, took_s, attempt } => format!(
                "fetched {}: status {status}, {}, in {}, at attempt {attempt}",
                moment(*at_ms),
                bytes(*received),
                span(*took_s)
            ),
            UrlState::Failed { failure, status, at_ms, attempts } => {
                let status = status.map(|status| format!(" (status {status})")).unwrap_or_default();
                let tried = match attempts {
                    0 => "without a request".to_owned(),
                    _ => format!("after {}", counted(u64::from(*attempts), "attempt", "attempts")),
                };
                format!("failed {} {tried}: {}{status}", moment(*at_ms), failure.name())
            }
        }
    }
}

impl Why {
    /// In words.
    pub fn text(&self) -> String {
        let says = self.answered_by.as_ref().map(|site| format!("site {site} says: ")).unwrap_or_default();
        let mut text = format!("{}\n  {says}{}\n", self.url, self.state.text());
        if let Some(found) = &self.found {
            let via = match (&found.via, &found.site) {
                (_, Some(site)) => format!(" found by site {site}"),
                (Some(via), None) => format!(" on {via}"),
                (None, None) => String::new(),
            };
            let _ = writeln!(text, "  known as a {}{via}, depth {}", found.how, found.depth);
        }
        if let Some(by) = &self.blocked_by {
            let sites = self.blocked_by_sites.join(", ");
            let whose = if sites.is_empty() { sites } else { format!(" everywhere, by site {sites}") };
            let _ = writeln!(text, "  nothing more is asked of its host: blocked by {by}{whose}");
        }
        if let Some(HasCash { units, class }) = &self.cash {
            let class = class.map(|class| format!(": it waits in class {class}")).unwrap_or_default();
            let _ = writeln!(text, "  has {}{class}", counted(*units, "unit of cash", "units of cash"));
        }
        if let Some(Captured { agent, agent_name, file, pointer }) = &self.capture {
            let whose =
                agent.as_ref().map(|agent| format!(" by {}", agent_words(agent, agent_name.as_deref())));
            let whose = whose.unwrap_or_default();
            let _ = writeln!(text, "  archived{whose} in {file} at {}", pointer.offset);
        }
        text
    }

    /// As an answer.
    pub fn response(&self) -> Response {
        report(self.text(), self)
    }
}

#[cfg(test)]
mod tests {
    use nephila_core::record::site_page;

    use super::super::without_other_site;
    use super::*;

    #[test]
    fn every_state_has_words() {
        use UrlState::*;
        let waiting = Waiting {
            reason: "its host's delay".to_owned(),
            wait_s: Some(90.0),
            host_queue: 1_234,
            attempts: 2,
            failure: Some(Failure::Timeout),
        };
        let fetched =
            Fetched { status: 404, at_ms: 1_700_000_000_000, bytes: 1_500, took_s: 0.25, attempt: 1 };
        let untried = Failed { failure: Failure::HostGivenUp, status: None, at_ms: 0, attempts: 0 };
        let failed = Failed { failure: Failure::ServerError, status: Some(500), at_ms: 0, attempts: 4 };
        for (state, expected) in [
            (NotKnown, "not known"),
            (OutOfScope { rule: "--exclude".to_owned() }, "out of scope: --exclude"),
            (Trap { rule: "too long".to_owned() }, "trap: too long"),
            (Blocked { by: "a.test".to_owned(), sites: Vec::new() }, "`nephila unblock a.test`"),
            (
                Blocked { by: "a.test".to_owned(), sites: vec!["lima".to_owned()] },
                "a.test everywhere, by site lima: `nephila unblock a.test --everywhere`",
            ),
            (OtherSite { site: "oslo".to_owned() }, "its host belongs to site oslo"),
            (Sent { site: "lima".to_owned(), at_ms: 0 }, "given to site lima, whose host it is, 1970"),
            (Disallowed { line: 7, rule: "Disallow: /x".to_owned() }, "line 7 of robots.txt: Disallow: /x"),
            (
                Elsewhere { agent: "00000000000000a1".to_owned(), agent_name: None, place: 7 },
                "done by agent 00000000000000a1,",
            ),
            (
                Elsewhere { agent: "00a1".to_owned(), agent_name: Some("c".to_owned()), place: 7 },
                "done by agent c (00a1),",
            ),
            (Fetching, "being fetched now"),
            (
                waiting,
                "waiting: its host's delay; not before 1m 30s from now; its host has 1,234 URLs waiting; 2 attempts used up, the last failure was timeout",
            ),
            (fetched, "fetched 2023-11-14 22:13:20 UTC: status 404, 1.5 kB, in 250 ms, at attempt 1"),
            (failed, "failed 1970-01-01 00:00:00 UTC after 4 attempts: server-error (status 500)"),
            (untried, "failed 1970-01-01 00:00:00 UTC without a request: host-given-up"),
        ] {
            assert!(state.text().contains(expected), "{}", state.text());
        }
    }

    #[test]
    fn why_reads_back_from_its_data() {
        let pointer = Pointer { shard: 0, file: 1, offset: 22, length: 333 };
        let why = Why {
            url: "https://a.test/".to_owned(),
            state: UrlState::Fetched { status: 200, at_ms: 1, bytes: 2, took_s: 0.5, attempt: 1 },
            found: Some(FoundBy::new(How::Link, Some("https://a.test/b".to_owned()), 3)),
            blocked_by: Some("a.test".to_owned()),
            answered_by: None,
            blocked_by_sites: vec!["lima".to_owned()],
            capture: Some(Captured {
                agent: None,
                agent_name: None,
                file: "archive/a.warc.gz".to_owned(),
                pointer,
            }),
            cash: Some(HasCash { units: 1_234, class: Some(40) }),
        };
        let Response::Report { text, json } = why.response() else { panic!() };
        assert_eq!(json["schema"], 1);
        assert_eq!(json["state"], "fetched");
        assert_eq!(json["status"], 200);
        assert_eq!(json["capture"]["pointer"]["offset"], 22);
        assert_eq!(serde_json::from_value::<Why>(json).unwrap(), why);
        assert!(text.contains("known as a link on https://a.test/b, depth 3"), "{text}");
        assert!(text.contains("archived in archive/a.warc.gz at 22"), "{text}");
        assert!(text.contains("has 1,234 units of cash: it waits in class 40"), "{text}");
        let theirs = Why { answered_by: Some("lima".to_owned()), ..why.clone() };
        assert!(theirs.text().contains("  site lima says: fetched"), "{}", theirs.text());
        let Response::Report { text, json } = without_other_site(why.response(), "site lima is away") else {
            panic!()
        };
        assert!(text.ends_with("site lima is away\n") && json["note"] == "site lima is away", "{text}");
        let sent = Why { found: Some(FoundBy::new(How::Link, Some(site_page("lima")), 3)), ..why };
        assert!(sent.text().contains("known as a link found by site lima, depth 3"), "{}", sent.text());
        assert!(text.contains("nothing more is asked of its host: blocked by a.test"), "{text}");
    }
}
