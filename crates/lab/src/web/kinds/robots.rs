//! Every case of robots.txt.

use std::{fmt::Write as _, time::Duration};

use super::{Home, Kind, PLAIN, Special, codings::gzip};
use crate::web::{
    plan::{Host, Offence, Rule, Sub, Visit},
    reply::{After, Reply, RobotsSays, Step, Wait},
};

const DISALLOWED: Rule = Rule::Forbidden(Offence::Robots);
const OPEN: RobotsSays = RobotsSays::Open(Duration::ZERO);
const RULES: &str = "User-agent: *\nDisallow: /private/\n";
const CRAWL_DELAY: Duration = Duration::from_secs(2);
const CRAWL_DELAY_LONG: Duration = Duration::from_secs(300);
const SLOW: Duration = Duration::from_secs(5);

/// One page that the rules allow, one that they do not.
const RULED: Kind = Kind { specials: ruled, ..PLAIN };
/// Nothing of such a host may be fetched.
const CLOSED: Kind = Kind { pages_max: 3, base: DISALLOWED, ..PLAIN };

pub(crate) fn kinds() -> Vec<Kind> {
    let mut kinds = answers();
    kinds.extend(redirects());
    kinds.extend(contents());
    kinds
}

/// Statuses and silences.
fn answers() -> Vec<Kind> {
    vec![
        Kind {
            name: "robots-404",
            about: "no robots.txt: all is allowed",
            robots: |_| Reply::new(404, "text/html", b"<a href=/never>nothing here</a>").says(OPEN),
            ..PLAIN
        },
        Kind {
            name: "robots-401",
            about: "robots.txt needs a password: all is allowed",
            robots: |_| Reply::new(401, "text/plain", b"").says(OPEN),
            ..PLAIN
        },
        Kind {
            name: "robots-403",
            about: "robots.txt is forbidden: all is allowed",
            robots: |_| Reply::new(403, "text/plain", b"").says(OPEN),
            ..PLAIN
        },
        Kind {
            name: "robots-410",
            about: "robots.txt is gone: all is allowed",
            robots: |_| Reply::new(410, "text/plain", b"").says(OPEN),
            ..PLAIN
        },
        Kind {
            name: "robots-500",
            about: "robots.txt fails: nothing is fetched, and it is asked for again after the back-off",
            robots: |_| Reply::new(500, "text/plain", RULES.as_bytes()).says(RobotsSays::Unreachable),
            ..CLOSED
        },
        Kind {
            name: "robots-503",
            about: "robots.txt is not available: as with 500",
            robots: |_| Reply::new(503, "text/plain", b"").says(RobotsSays::Unreachable),
            ..CLOSED
        },
        Kind {
            name: "robots-429",
            about: "robots.txt is asked for too often, twice, with Retry-After; then all goes on",
            robots: |visit| match visit.attempt {
                1 | 2 => retry_after(visit, Duration::from_secs(90)).says(RobotsSays::Unreachable),
                _ => Reply::robots(RULES),
            },
            ..RULED
        },
        Kind {
            name: "robots-flips",
            about: "robots.txt fails twice and then answers: nothing before, everything after",
            robots: |visit| match visit.attempt {
                1 | 2 => Reply::new(502, "text/plain", b"").says(RobotsSays::Unreachable),
                _ => Reply::robots(RULES),
            },
            ..RULED
        },
        Kind {
            name: "robots-slow",
            about: "robots.txt takes five seconds: waited for",
            robots: |visit| Reply::robots(RULES).after_pause(visit.host.plan.config.scaled(SLOW)),
            ..RULED
        },
        Kind {
            name: "robots-timeout",
            about: "robots.txt is never answered: nothing is fetched",
            robots: |_| Reply::steps(vec![Step::Stall]).says(RobotsSays::Unreachable),
            ..CLOSED
        },
        Kind {
            name: "robots-reset",
            about: "the connection is reset at robots.txt: nothing is fetched",
            robots: |_| Reply::steps(Vec::new()).then(After::Reset).says(RobotsSays::Unreachable),
            ..CLOSED
        },
    ]
}

/// The file is elsewhere.
fn redirects() -> Vec<Kind> {
    vec![
        Kind {
            name: "robots-redirect-1",
            about: "robots.txt is one redirect away, and its rules hold",
            robots: |visit| chain(visit, 0, 1),
            open: |_, target| chained(target, 1),
            ..RULED
        },
        Kind {
            name: "robots-redirect-5",
            about: "robots.txt is five redirects away, and its rules hold",
            robots: |visit| chain(visit, 0, 5),
            open: |_, target| chained(target, 5),
            ..RULED
        },
        Kind {
            name: "robots-redirect-6",
            about: "robots.txt is six redirects away: five are followed. What then holds is not laid down (RFC 9309 lets it \
                    count as absent), so pages may be fetched or not",
            robots: |visit| chain(visit, 0, 6),
            open: |_, target| chained(target, 6),
            base: Rule::Optional,
            pages_max: 5,
            ..PLAIN
        },
        Kind {
            name: "robots-elsewhere",
            about: "robots.txt is at another host, whose own robots.txt would not allow it: fetched there all the same, \
                    under that host's delays, and its rules hold here",
            home: Home::Http,
            subs: &[Sub::Rules],
            robots: |visit| {
                let to = Host { sub: Sub::Rules, ..visit.host }.origin_as(false);
                Reply::redirect(302, &format!("{to}/its-robots.txt")).says(RobotsSays::Elsewhere)
            },
            open: |host, target| match (host.sub, target) {
                (Sub::Rules, "/its-robots.txt") => {
                    Some(Special::page(target, Rule::Free).answering(|_| Reply::robots(RULES)))
                }
                // Not what the host first asked is told, so it says nothing about that.
                (Sub::Rules, "/robots.txt") => {
                    let closed = |_: &Visit<'_>| {
                        Reply::new(
                            200,
                            "text/plain",
                            b"User-agent: *
Disallow: /
",
                        )
                    };
                    Some(Special::page(target, Rule::Free).answering(closed))
                }
                _ => None,
            },
            ..RULED
        },
    ]
}

/// What the file says.
fn contents() -> Vec<Kind> {
    vec![
        Kind {
            name: "robots-rules",
            about: "an ordinary Disallow line holds",
            robots: |_| Reply::robots(RULES),
            ..RULED
        },
        Kind {
            name: "robots-disallow",
            about: "all is disallowed: nothing but robots.txt is fetched",
            robots: |_| Reply::robots("User-agent: *\nDisallow: /\n"),
            requests_max: |_| 4,
            ..CLOSED
        },
        Kind {
            name: "robots-empty",
            about: "an empty file: all is allowed",
            robots: |_| Reply::robots(""),
            ..PLAIN
        },
        Kind {
            name: "robots-html",
            about: "a web page instead of rules: no rules, all is allowed",
            robots: |_| {
                Reply::html("<!doctype html><html><body><p>Oops! <a href=/never>Home</a></body></html>")
                    .says(OPEN)
            },
            ..PLAIN
        },
        Kind {
            name: "robots-large",
            about: "600 KiB of rules: those in the first 500 KiB hold, the others do not",
            robots: |_| Reply::robots(&large()),
            specials: |host| {
                let mut specials = ruled(host);
                specials.push(Special::page("/late/page", Rule::Expected));
                specials
            },
            ..PLAIN
        },
        Kind {
            name: "robots-bom",
            about: "a byte order mark before the rules, which hold",
            robots: |_| Reply::robots(&format!("\u{feff}{RULES}")),
            ..RULED
        },
        Kind {
            name: "robots-cr",
            about: "lines end in carriage returns alone, and the rules hold",
            robots: |_| Reply::robots(&RULES.replace('\n', "\r")),
            ..RULED
        },
        Kind {
            name: "robots-gzip",
            about: "the file is compressed, and the rules hold",
            robots: |_| {
                let headers = "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n";
                Reply::with_headers(200, headers, &gzip(RULES.as_bytes())).says(OPEN)
            },
            ..RULED
        },
        Kind {
            name: "robots-delay",
            about: "a crawl-delay of two seconds is kept",
            robots: |visit| delayed(visit, CRAWL_DELAY),
            pages_max: 20,
            ..PLAIN
        },
        Kind {
            name: "robots-delay-long",
            about: "a crawl-delay of five minutes is kept too",
            robots: |visit| delayed(visit, CRAWL_DELAY_LONG),
            pages_max: 3,
            ..PLAIN
        },
        Kind {
            name: "robots-groups",
            about: "the crawler's groups are merged, whatever their case, and the one for all others does not hold",
            robots: groups,
            specials: |_| {
                vec![
                    Special::page("/first/page", DISALLOWED),
                    Special::page("/second/page", DISALLOWED),
                    Special::page("/others/page", Rule::Expected),
                ]
            },
            ..PLAIN
        },
        Kind {
            name: "robots-wildcards",
            about: "wildcards, end marks, the longest match and escapes",
            robots: |_| Reply::robots(WILDCARDS),
            specials: wildcards,
            ..PLAIN
        },
    ]
}

fn ruled(_: &Host<'_>) -> Vec<Special> {
    vec![Special::page("/private/page", DISALLOWED), Special::page("/open/page", Rule::Expected)]
}

fn retry_after(visit: &Visit<'_>, wait: Duration) -> Reply {
    let seconds = visit.host.plan.config.scaled(wait).as_secs_f64().ceil() as u64;
    Reply::with_headers(429, &format!("Retry-After: {seconds}\r\n"), b"")
        .waits(Wait::For(Duration::from_secs(seconds)))
}

/// The answer after `step` of `steps` redirects. After five the file may be given up, so that is as good as its end.
fn chain(visit: &Visit<'_>, step: u32, steps: u32) -> Reply {
    if step == steps {
        return Reply::robots(RULES);
    }
    let says = if step < 5 { RobotsSays::Elsewhere } else { OPEN };
    Reply::redirect(301, &format!("{}/robots-{}.txt", visit.host.origin(), step + 1)).says(says)
}

fn chained(target: &str, steps: u32) -> Option<Special> {
    let step: u32 = target.strip_prefix("/robots-")?.strip_suffix(".txt")?.parse().ok()?;
    let rule = match step {
        1..=5 => Rule::Free,
        6 if steps == 6 => Rule::Forbidden(Offence::Limits),
        _ => return None,
    };
    Some(Special::page(target, rule).answering(move |visit| chain(visit, step, steps)))
}

fn large() -> String {
    let mut text = RULES.to_owned();
    let mut number = 0;
    // Short lines, so that a limit on rules is met as little as possible: comments fill the space.
    while text.len() < 520 * 1024 {
        number += 1;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# {number} {}", "padding ".repeat(60));
    }
    text.push_str("Disallow: /late/\n");
    while text.len() < 600 * 1024 {
        text.push_str("# more\n");
    }
    text
}

fn delayed(visit: &Visit<'_>, delay: Duration) -> Reply {
    let delay = visit.host.plan.config.scaled(delay);
    // Rounded up to what is written, so that the judge asks for no more than that.
    let millis = delay.as_micros().div_ceil(1_000) as u64;
    let text = format!("User-agent: *\nCrawl-delay: {}.{:03}\n", millis / 1_000, millis % 1_000);
    Reply::robots(&text).says(RobotsSays::Open(Duration::from_millis(millis)))
}

fn groups(visit: &Visit<'_>) -> Reply {
    let agent = &visit.host.plan.config.agent;
    Reply::robots(&format!(
        "User-agent: {}\nDisallow: /first/\n\nUser-agent: *\nDisallow: /\n\nUser-agent: other\nUser-agent: {}\n\
         Disallow: /second/\n",
        agent.to_uppercase(),
        agent.to_lowercase(),
    ))
}

const WILDCARDS: &str = "User-agent: *\n\
    Disallow: /*.pdf$\n\
    Disallow: /w/private\n\
    Allow: /w/private/but-open\n\
    Disallow: /*/inner/\n\
    Disallow: /w/caf%C3%A9\n\
    Disallow: /w/query?*secret=\n\
    Allow: /w/tie\n\
    Disallow: /w/tie\n\
    Disallow:\n";

fn wildcards(_: &Host<'_>) -> Vec<Special> {
    let rules = [
        ("/w/file.pdf", DISALLOWED),
        ("/w/file.pdf?page=2", Rule::Expected),
        ("/w/private", DISALLOWED),
        ("/w/privateer", DISALLOWED),
        ("/w/private/but-open/page", Rule::Expected),
        ("/w/outer/inner/page", DISALLOWED),
        ("/w/outer/inner", Rule::Expected),
        ("/w/caf%C3%A9", DISALLOWED),
        ("/w/query?secret=1", DISALLOWED),
        ("/w/query?a=1&amp;secret=1", DISALLOWED),
        ("/w/query?a=1", Rule::Expected),
        ("/w/tie", Rule::Expected),
    ];
    rules
        .map(|(href, rule)| Special { target: href.replace("&amp;", "&"), ..Special::page(href, rule) })
        .into()
}
