//! What people ask about a crawl, answered: as text and as data. The same for a crawl that runs and one that does not.
//!
//! docs/json.md documents the data.

mod sites;
mod url;

use std::collections::BTreeMap;
use std::fmt::Write;

use nephila_core::agent::{
    Acquaintance, Between, Differing, HostCounts, HostView, MemberView, Namesakes, SiteView, Status,
    StopReason,
};
use nephila_core::record::{Block, Failure};
use nephila_core::site::{Difference, Figures};
use serde::Serialize;
use serde_json::json;

use self::sites::other_site_words;
pub use self::sites::{SiteStatus, federation, of_other_site, without_other_site};
pub(crate) use self::url::agent_words;
pub use self::url::{Captured, FoundBy, HasCash, UrlState, Why, decoded};
use crate::control::{Response, block_name};
use crate::display::{bytes, count, counted, span};

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
    if running && status.unconfirmed > 0 {
        let _ = writeln!(text, "  {}", unconfirmed_words(status.unconfirmed));
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
    if status.backed_up {
        let _ =
            writeln!(text, "  pages wait: an agent of the site does not keep up with what is found for it");
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

/// What there is to say while a server of the store has no replicas.
fn unconfirmed_words(partitions: u64) -> String {
    format!(
        "the hosts in {} wait: no replica of their server in the store confirms what it is told",
        counted(partitions, "partition", "partitions")
    )
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
    if view.unconfirmed > 0 {
        let _ = write!(text, "\n{}", unconfirmed_words(view.unconfirmed));
    }
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
    use nephila_core::site::Member;

    use super::*;

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
            backed_up: false,
            undecided: 0,
            given_up: 0,
            next_due_s: None,
            in_flight: 1,
            unsettled: 0,
            paused: false,
            stopping: false,
            store_away: false,
            unconfirmed: 0,
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
            unconfirmed: 0,
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
