//! What people ask about a crawl, answered: as text and as data. The same for a crawl that runs and one that does not.
//!
//! docs/json.md documents the data.

mod sites;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use nephila_core::agent::{
    Acquaintance, Between, Differing, HostCounts, HostView, MemberView, Namesakes, SiteView, Status,
    StopReason,
};
use nephila_core::record::{Block, Failure, How, Pointer, site_of_page};
use nephila_core::site::{Difference, Figures};
use nephila_core::time::Wall;
use nephila_disk::RealDisk;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::sites::other_site_words;
pub use self::sites::{SiteStatus, federation, of_other_site, without_other_site};
use crate::control::{Response, block_name};
use crate::directory;
use crate::display::{bytes, count, counted, span};
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

/// What a crawl is doing, as an answer. `running` is false when the files of a stopped crawl were read, which may say why it
/// stopped.
pub fn status(status: &Status, elapsed_s: f64, running: bool, stop_reason: Option<StopReason>) -> Response {
    let totals = &status.totals;
    let state = match (running, stop_reason) {
        (true, _) if status.stopping => "stopping",
        (true, _) if status.paused => "paused",
        (true, _) => "running",
        (false, Some(StopReason::Finished)) => "finished",
        (false, _) => "stopped",
    };
    let why = if running { "" } else { why_stopped(stop_reason) };
    let mut text = format!("{state} after {}{why}\n", span(elapsed_s));
    if running && status.store_away {
        let _ = writeln!(text, "  {STORE_AWAY}");
    }
    let _ = writeln!(
        text,
        "  {}, {} failed, {} forbidden by robots.txt, {}",
        counted(totals.pages, "page", "pages"),
        count(totals.failed),
        count(totals.disallowed),
        bytes(totals.bytes)
    );
    let _ = writeln!(
        text,
        "  {} known, {} queued, {}",
        counted(totals.known_urls, "URL", "URLs"),
        count(status.queue),
        counted(totals.hosts, "host", "hosts")
    );
    if status.outgoing > 0 || status.outbox_full {
        let _ = writeln!(
            text,
            "  {} for other sites{}",
            counted(status.outgoing, "URL waits", "URLs wait"),
            if status.outbox_full { ", too many for one of them (outbox-urls)" } else { "" }
        );
    }
    let places = places(&status.hosts);
    if !places.is_empty() {
        let _ = writeln!(text, "  hosts: {places}");
    }
    if !totals.failures.is_empty() {
        let _ = writeln!(text, "  failed attempts: {}", failures(&totals.failures));
    }
    let stop_reason = stop_reason.map(StopReason::name);
    let mut json = json!({ "schema": 1, "state": state, "elapsed_s": elapsed_s, "stop_reason": stop_reason });
    merge(&mut json, status);
    Response::Report { text, json }
}

/// What is said while a store that agents share is not there.
pub(crate) const STORE_AWAY: &str = "the store does not answer: nothing is asked until it does";

fn why_stopped(reason: Option<StopReason>) -> &'static str {
    match reason {
        Some(StopReason::Finished) => ": every URL is settled",
        Some(StopReason::Waiting) => ": URLs wait, and none was due within --max-wait",
        Some(StopReason::MaxPages) => ": --max-pages is reached",
        Some(StopReason::MaxBytes) => ": --max-bytes is reached",
        Some(StopReason::MaxTime) => ": --max-time is reached",
        Some(StopReason::MaxUrls) => ": what --max-urls let in is settled",
        Some(StopReason::NoSeed) => ": no seed could be fetched",
        Some(StopReason::Stopped) => ": `nephila stop` asked for it",
        Some(StopReason::Interrupted) => ": it was interrupted",
        Some(StopReason::Terminated) => ": it was told to terminate",
        Some(StopReason::DiskFull) => ": the disk is full",
        Some(StopReason::Replaced) => ": another process goes on as this agent",
        Some(StopReason::Error) => ": an error made it impossible to go on",
        None => ": it was killed, or could not go on; the same command tries again",
    }
}

/// An answer for a whole site, but for the agents that did not give theirs.
pub fn of_site(response: Response, silent: &[String]) -> Response {
    let Response::Report { mut text, mut json } = response else { return response };
    if !silent.is_empty() {
        let _ = writeln!(text, "without {}, which did not answer", silent.join(", "));
    }
    if let Some(fields) = json.as_object_mut() {
        fields.insert("silent".to_owned(), silent.into());
    }
    Response::Report { text, json }
}

/// The same for an agent that waits for the others to begin the site.
pub fn of_waiting(response: Response, waits: Option<&(Vec<Acquaintance>, Vec<String>)>) -> Response {
    let Response::Report { mut text, json } = response else { return response };
    if let Some((there, missing)) = waits {
        let _ = writeln!(text, "{}", waiting_words(there, missing));
    }
    Response::Report { text, json }
}

/// What an agent waits for that is in no site yet, in words.
pub(crate) fn waiting_words(there: &[Acquaintance], missing: &[String]) -> String {
    let known = |of: &Acquaintance| {
        let lists = if of.lists_the_same { "" } else { ", whose list of `peers` is another one" };
        format!("{} at {}{lists}", of.name, of.address)
    };
    let there: Vec<String> = there.iter().map(known).collect();
    let list = |list: &[String]| if list.is_empty() { "nobody".to_owned() } else { list.join(", ") };
    format!("waiting for the site to begin: heard of {}; missing: {}", list(&there), list(missing))
}

/// That an agent was told otherwise, in words.
pub(crate) fn differing_words(of: &Differing) -> String {
    let what: Vec<String> = of.what.iter().map(Difference::to_string).collect();
    let (name, what) = (agent_words(&of.id.to_string(), Some(&of.name)), what.join(", "));
    match of.refuses {
        true => format!(
            "the site does not let this agent in: {name} has other settings. Compare, and make equal for all agents: {what}"
        ),
        false => format!(
            "{name} is not let in: it has other settings than this agent. Compare, and make equal for all agents: {what}"
        ),
    }
}

/// That two agents have one name, in words.
pub(crate) fn namesakes_words(of: &Namesakes) -> String {
    let Namesakes { name, one: (one, at), other: (other, other_at), between } = of;
    match between {
        Between::NotLetIn => format!(
            "another agent {name} ({one}) at {at} is not let in: {name} ({other}) is at work at {other_at}. Stop one of them"
        ),
        Between::Refused => format!(
            "the site does not let this agent in: it has an agent {name} ({other}), which is at work at {other_at}. Stop one of them, \
             or give this one a certificate of its own"
        ),
        Between::AtWork => format!(
            "two agents are called {name}, and both are at work: {one} at {at}, and {other} at {other_at}. Stop the one that should not \
             be there, and have it forgotten by its number"
        ),
    }
}

/// What is to be said of a site as a whole.
fn site_words(view: &SiteView, running: bool) -> String {
    if view.members.is_empty() {
        return match running {
            true => format!("site not begun\n{}", waiting_words(&view.there, &view.missing)),
            false => "nothing runs there; the site had not begun".to_owned(),
        };
    }
    if !running {
        return "nothing runs there; what this agent knew last of its site".to_owned();
    }
    let present = view.members.iter().filter(|of| !of.member.is_gone() && of.id != view.me);
    let owed: usize = present.map(|of| usize::from(of.figures.owing)).sum();
    let mut text = match (view.misplaced + view.owing + view.handovers + owed, view.unrecovered) {
        (0, 0) => "site settled".to_owned(),
        (0, _) => "site looking for what is still known of hosts that were lost".to_owned(),
        _ => "site moving hosts to whom they should be with".to_owned(),
    };
    text.push_str(&lost_words(&view.members));
    for MemberView { member, is_well, held, .. } in view.members.iter().filter(|of| of.held > 0) {
        let name = &member.name;
        let partitions = counted(*held as u64, "partition", "partitions");
        match (member.is_gone(), is_well) {
            (true, _) => {
                let _ = write!(
                    text,
                    "\nthe hosts in {partitions} of {name}, which is forgotten, wait until others have taken them over"
                );
            }
            (_, false) => {
                let _ = write!(text, "\nthe hosts in {partitions} of {name}, which is silent, wait for it");
            }
            _ => {}
        }
    }
    for other in view.sites.iter().filter(|other| !other.is_home) {
        let _ = write!(text, "\n{}", other_site_words(other));
    }
    text
}

/// What was lost with agents that are forgotten, and what of it others had copies of.
fn lost_words(members: &[MemberView]) -> String {
    let gone = members.iter().filter(|of| of.member.is_gone());
    let sum = |figure: &dyn Fn(&Figures) -> u64| gone.clone().map(|of| figure(&of.figures)).sum::<u64>();
    let (pages, urls) = (sum(&|figures| figures.pages), sum(&|figures| figures.urls));
    if pages + urls == 0 {
        return String::new();
    }
    let all = |figure: &dyn Fn(&Figures) -> u64| members.iter().map(|of| figure(&of.figures)).sum::<u64>();
    let again = all(&|figures| figures.recovered_pages);
    format!(
        "\nwith forgotten agents went {} and {}; others have brought back {} that they had fetched, and {}",
        counted(pages, "page", "pages"),
        counted(urls, "known URL", "known URLs"),
        counted(again, "page", "pages"),
        counted(all(&|figures| figures.recovered_urls), "link of their pages", "links of their pages"),
    )
}

/// The agents of a site, as an answer; `running` is false when they were read from the files of an agent that does not run.
pub fn site(view: &SiteView, running: bool) -> Response {
    let mut text = site_words(view, running);
    text.push('\n');
    for differing in &view.differing {
        let _ = writeln!(text, "{}", differing_words(differing));
    }
    for namesakes in &view.namesakes {
        let _ = writeln!(text, "{}", namesakes_words(namesakes));
    }
    let width = view.members.iter().map(|of| of.member.name.len()).max().unwrap_or(0).clamp(5, 50);
    if !view.members.is_empty() {
        let _ = writeln!(
            text,
            "{:width$}  {:16}  {:21}  {:>8}  {:>10}  {:>12}  {:>12}  state",
            "agent", "number", "address", "capacity", "partitions", "pages", "URLs"
        );
    }
    for MemberView { id, member, is_well, held, figures } in &view.members {
        let state = match (member.is_gone(), is_well) {
            (true, _) => "forgotten",
            _ if !running => "joined",
            (_, false) => "silent",
            _ => "well",
        };
        // Of an agent that was not heard of nothing is known.
        let is_known = *figures != Figures::default();
        let figure = |figure: u64| if is_known { count(figure) } else { "-".to_owned() };
        let this_one = if *id == view.me { " (this one)" } else { "" };
        let owing = match figures.owing {
            0 => String::new(),
            owing => {
                format!(", owes others what it has of {}", counted(owing.into(), "partition", "partitions"))
            }
        };
        let _ = writeln!(
            text,
            "{:width$}  {id}  {:21}  {:>8}  {:>10}  {:>12}  {:>12}  {state}{owing}{this_one}",
            member.name,
            member.address,
            member.capacity,
            count(*held as u64),
            figure(figures.pages),
            figure(figures.urls),
        );
    }
    let mut json = json!({ "schema": 1, "running": running, "begun": !view.members.is_empty() });
    merge(&mut json, view);
    Response::Report { text, json }
}

/// The hosts of a crawl, as an answer; `hosts` are in their order already, `all` is how many there are.
pub fn hosts(hosts: &[HostView], all: u64) -> Response {
    let width = hosts.iter().map(|host| host.host.len()).max().unwrap_or(0).clamp(4, 50);
    let mut text = format!("{:width$} {:>9} {:>9}  {}\n", "host", "pages", "queued", "state");
    for host in hosts {
        let place = PLACES.iter().find(|place| place.name == host.place);
        let _ = write!(
            text,
            "{:width$} {:>9} {:>9}  {}",
            host.host,
            count(host.pages),
            count(host.queue),
            place.map_or(&*host.place, |place| place.one)
        );
        // One for which nothing waits has nothing to wait for.
        if let Some(wait_s) = host.wait_s.filter(|_| host.queue > 0) {
            let _ = write!(text, " ({} more)", span(wait_s));
        }
        if let Some(failure) = host.failure.filter(|_| host.failures > 0) {
            let _ = write!(
                text,
                ", {} in a row: {}",
                counted(host.failures.into(), "failure", "failures"),
                failure.name()
            );
        }
        if host.given_up {
            text.push_str(", given up");
        }
        text.push('\n');
    }
    let more = all.saturating_sub(hosts.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "and {} more (--limit)", count(more));
    }
    Response::Report { text, json: json!({ "schema": 1, "hosts_total": all, "hosts": hosts }) }
}

/// What is blocked, and by which sites everywhere, as an answer.
pub fn blocks<'a>(blocks: impl Iterator<Item = (&'a Block, Vec<String>)>) -> Response {
    let blocks: BTreeMap<String, Vec<String>> =
        blocks.map(|(block, sites)| (block_name(block), sites)).collect();
    let line = |(name, sites): (&String, &Vec<String>)| match sites.len() {
        0 => format!("{name}\n"),
        _ => format!("{name} (everywhere, by {})\n", sites.join(", ")),
    };
    let text = match blocks.len() {
        0 => "nothing is blocked\n".to_owned(),
        _ => blocks.iter().map(line).collect(),
    };
    let names: Vec<&String> = blocks.keys().collect();
    let everywhere: BTreeMap<_, _> = blocks.iter().filter(|(_, sites)| !sites.is_empty()).collect();
    Response::Report { text, json: json!({ "schema": 1, "blocks": names, "everywhere": everywhere }) }
}

/// A place where hosts can be.
struct Place {
    /// As in [`HostView::place`].
    name: &'static str,
    /// What is said of one host there, and of several.
    one: &'static str,
    many: &'static str,
    count: fn(&HostCounts) -> u64,
}

const fn place(
    name: &'static str,
    one: &'static str,
    many: &'static str,
    count: fn(&HostCounts) -> u64,
) -> Place {
    Place { name, one, many, count }
}

const PLACES: [Place; 15] = [
    place("fetching", "being asked", "being asked", |hosts| hosts.fetching),
    place("ready", "ready", "ready", |hosts| hosts.ready),
    place("delay", "waiting for its delay", "waiting for their delay", |hosts| hosts.delay),
    place("address", "waiting for its address", "waiting for their address", |hosts| hosts.address),
    place("resolving", "being looked up", "being looked up", |hosts| hosts.resolving),
    place("robots", "waiting for robots.txt", "waiting for robots.txt", |hosts| hosts.robots),
    place("backing_off", "backing off", "backing off", |hosts| hosts.backing_off),
    place("retrying", "waiting to retry", "waiting to retry", |hosts| hosts.retrying),
    place("blocked", "blocked", "blocked", |hosts| hosts.blocked),
    place("leaving", "about to be another agent's", "about to be other agents'", |hosts| hosts.leaving),
    place("outgoing", "of another site", "of other sites", |hosts| hosts.outgoing),
    place("claimed", "waits for the site that had it", "wait for the sites that had them", |hosts| {
        hosts.claimed
    }),
    place(
        "held_up",
        "waits for room on the way to other sites",
        "wait for room on the way to other sites",
        |hosts| hosts.held_up,
    ),
    place("idle", "idle", "idle", |hosts| hosts.idle),
    place("away", "not in memory", "not in memory", |hosts| hosts.away),
];

/// Where hosts are, those places only that have any.
pub(crate) fn places(hosts: &HostCounts) -> String {
    let words = PLACES.iter().filter_map(|place| {
        let number = (place.count)(hosts);
        (number > 0).then(|| counted(number, place.one, place.many))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Failures by kind, the most frequent first.
pub(crate) fn failures(failures: &std::collections::BTreeMap<Failure, u64>) -> String {
    let mut list: Vec<_> = failures.iter().filter(|(_, number)| **number > 0).collect();
    list.sort_by_key(|(failure, number)| (std::cmp::Reverse(**number), **failure));
    list.iter()
        .map(|(failure, number)| format!("{} {}", failure.name(), count(**number)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn report(text: String, data: &impl Serialize) -> Response {
    let mut json = json!({ "schema": 1 });
    merge(&mut json, data);
    Response::Report { text, json }
}

/// Adds the fields of a value to an object.
pub(crate) fn merge(object: &mut serde_json::Value, data: &impl Serialize) {
    let data = serde_json::to_value(data).expect("reports have no keys but strings");
    if let (Some(object), serde_json::Value::Object(data)) = (object.as_object_mut(), data) {
        object.extend(data);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nephila_core::agent::Totals;
    use nephila_core::record::site_page;
    use nephila_core::site::Member;

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

    #[test]
    fn status_and_hosts() {
        let totals = Totals {
            pages: 12_345,
            bytes: 6_000_000,
            failures: BTreeMap::from([(Failure::Dns, 2), (Failure::Timeout, 30)]),
            ..Totals::default()
        };
        let status_of = Status {
            totals,
            hosts: HostCounts { fetching: 1, delay: 2_000, ..HostCounts::default() },
            queue: 7,
            outgoing: 1_200,
            outbox_full: true,
            given_up: 0,
            next_due_s: None,
            in_flight: 1,
            unsettled: 0,
            paused: false,
            stopping: false,
            store_away: false,
        };
        for (running, reason, word, why) in [
            (true, None, "running", ""),
            (false, Some(StopReason::Finished), "finished", ": every URL is settled"),
            (false, Some(StopReason::MaxPages), "stopped", ": --max-pages is reached"),
            (false, None, "stopped", ": it was killed, or could not go on; the same command tries again"),
        ] {
            let Response::Report { text, json } = status(&status_of, 61.0, running, reason) else { panic!() };
            assert!(text.starts_with(&format!("{word} after 1m 1s{why}\n  12,345 pages")), "{text}");
            assert_eq!(json["stop_reason"], json!(reason.map(StopReason::name)));
            assert!(text.contains("hosts: 1 being asked, 2,000 waiting for their delay"), "{text}");
            assert!(text.contains("failed attempts: timeout 30, dns 2"), "{text}");
            assert!(text.contains("1,200 URLs wait for other sites, too many for one"), "{text}");
            assert_eq!((&json["state"], &json["totals"]["pages"]), (&json!(word), &json!(12_345)));
        }
        let view = HostView {
            host: "a.test".to_owned(),
            place: "backing_off".into(),
            queue: 3,
            pages: 1_000,
            wait_s: Some(59.9),
            delay_s: 1.0,
            failures: 2,
            failure: Some(Failure::Connect),
            given_up: false,
            addresses: vec![],
        };
        let Response::Report { text, json } = hosts(&[view], 5) else { panic!() };
        assert!(
            text.contains("1,000         3  backing off (1m more), 2 failures in a row: connect"),
            "{text}"
        );
        assert!(text.ends_with("and 4 more (--limit)\n"), "{text}");
        assert_eq!(json["hosts"][0]["host"], "a.test");
    }

    #[test]
    fn a_site_says_whose_hosts_wait() {
        let member = |number: u64, name: &str, is_gone, is_well, held| {
            let (name, address) = (name.to_owned(), format!("{name}:7946"));
            let member =
                Member { name, address, capacity: 1, version: 1, life: 1, forgotten: u32::from(is_gone) };
            MemberView { id: number.into(), member, is_well, held, figures: Figures::default() }
        };
        let view = |members| SiteView {
            me: 1.into(),
            members,
            there: Vec::new(),
            missing: Vec::new(),
            differing: Vec::new(),
            namesakes: Vec::new(),
            held: 1,
            misplaced: 0,
            owing: 0,
            unrecovered: 0,
            handovers: 0,
            is_delivering: false,
            sites: Vec::new(),
            turns: 0,
            turns_out: 0,
            turns_run_out: 0,
        };
        let one = |is_gone| member(1, "one", is_gone, true, 5_000);
        for (of, running, expected) in [
            (
                view(vec![one(false), member(2, "two", false, true, 9)]),
                true,
                vec!["site settled\nagent", "well (this one)"],
            ),
            (
                view(vec![one(false), member(2, "two", false, false, 9)]),
                true,
                vec![
                    "site settled\nthe hosts in 9 partitions of two, which is silent, wait for it\n",
                    "silent\n",
                ],
            ),
            (
                view(vec![one(false), member(2, "two", true, false, 1)]),
                true,
                vec![
                    "the hosts in 1 partition of two, which is forgotten, wait until others have taken them over\n",
                ],
            ),
            (view(vec![one(false), member(2, "two", true, false, 0)]), true, vec!["site settled\nagent"]),
            (view(vec![one(true)]), true, vec!["forgotten (this one)\n"]),
            (
                view(vec![one(false)]),
                false,
                vec!["nothing runs there; what this agent knew last", "joined (this one)\n"],
            ),
            (view(vec![]), false, vec!["nothing runs there; the site had not begun\n"]),
            (
                SiteView {
                    there: vec![Acquaintance {
                        name: "two".into(),
                        address: "two:1".into(),
                        lists_the_same: true,
                    }],
                    missing: vec!["three:1".into(), "four:1".into()],
                    ..view(vec![])
                },
                true,
                vec![
                    "site not begun\nwaiting for the site to begin: heard of two at two:1; missing: three:1, four:1\n",
                ],
            ),
            (
                SiteView {
                    differing: vec![Differing {
                        id: 3.into(),
                        name: "three".into(),
                        what: vec![Difference::Seeds],
                        refuses: false,
                    }],
                    ..view(vec![one(false)])
                },
                true,
                vec!["agent three (0000000000000003) is not let in", "the seeds (urls, seeds)"],
            ),
        ] {
            let Response::Report { text, json } = site(&of, running) else { panic!() };
            assert!(expected.iter().all(|words| text.contains(words)), "{expected:?} {text}");
            assert_eq!((&json["running"], &json["begun"]), (&json!(running), &json!(!of.members.is_empty())));
        }
    }

    #[test]
    fn a_site_says_that_two_have_one_name() {
        let (one, other) = ((1.into(), "one:1".into()), (2.into(), "one:2".into()));
        let namesakes = vec![Namesakes { name: "one".into(), one, other, between: Between::AtWork }];
        let Response::Report { text, json } = site(&SiteView { namesakes, ..SiteView::default() }, true)
        else {
            panic!()
        };
        let expected = "two agents are called one, and both are at work: 0000000000000001 at one:1, and";
        assert!(text.contains(expected), "{text}");
        assert_eq!(json["namesakes"][0]["between"], "at-work");
    }

    /// The field names of the counts are the names of the places; a host has words of its own in each.
    #[test]
    fn every_place_has_words() {
        let counts = serde_json::to_value(HostCounts::default()).unwrap();
        let mut names: Vec<&str> = PLACES.iter().map(|place| place.name).collect();
        names.sort_unstable();
        let mut fields: Vec<&str> = counts.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(names, fields);
        let one_each = HostCounts { delay: 1, address: 2, idle: 1, ..HostCounts::default() };
        assert_eq!(places(&one_each), "1 waiting for its delay, 2 waiting for their address, 1 idle");
    }

    #[test]
    fn blocks_are_listed() {
        let list = ["b.test", "127.0.0.1", "a.test"].map(|text| crate::control::parse_block(text).unwrap());
        let by = |block: &Block| match *block == list[2] {
            true => vec!["lima".to_owned(), "oslo".to_owned()],
            false => Vec::new(),
        };
        let Response::Report { text, json } = blocks(list.iter().map(|block| (block, by(block)))) else {
            panic!()
        };
        assert_eq!(text, "127.0.0.1\na.test (everywhere, by lima, oslo)\nb.test\n");
        assert_eq!(json["blocks"], json!(["127.0.0.1", "a.test", "b.test"]));
        assert_eq!(json["everywhere"], json!({ "a.test": ["lima", "oslo"] }));
        let Response::Report { text, json } = blocks(std::iter::empty()) else { panic!() };
        assert_eq!((text.as_str(), &json["blocks"]), ("nothing is blocked\n", &json!([])));
    }
}
