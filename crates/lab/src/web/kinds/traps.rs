//! Endless traps. Each costs a crawler its limit of pages a host at most, and no other host a thing.

use super::{Kind, PLAIN, Special};
use crate::web::plan::{Host, Mix, Offence, Rule};

/// Requests beyond the pages: robots.txt and the like.
const BESIDES: u64 = 10;
/// Links from the start that are followed.
const DEPTH_MAX: u32 = 50;
/// How often a path segment may occur.
const SEGMENT_MAX: usize = 3;

const TRAP: Kind =
    Kind { pages_max: 100, requests_max: |host| host.plan.config.max_host_pages + BESIDES, ..PLAIN };

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "calendar",
            about: "a calendar with a next and a previous month for ever: stopped by the limit of pages a host",
            specials: |_| vec![month(2024, 1)],
            open: |_, target| {
                let (year, of_year) = target.strip_prefix("/calendar/")?.split_once('/')?;
                Some(month(
                    year.parse().ok()?,
                    of_year.parse().ok().filter(|month| (1..=12).contains(month))?,
                ))
            },
            ..TRAP
        },
        Kind {
            name: "sessions",
            about: "every link has a new session id: stopped by the limit of pages a host",
            specials: |host| vec![session(host, 0)],
            open: |host, target| {
                let id = u64::from_str_radix(target.strip_prefix("/session?sid=")?, 16).ok()?;
                Some(session(host, id))
            },
            ..TRAP
        },
        Kind {
            name: "query-trap",
            about: "filters that can be combined for ever: stopped by the limit of pages a host",
            specials: |_| vec![filter("/shop")],
            open: |_, target| target.starts_with("/shop?").then(|| filter(target)),
            ..TRAP
        },
        Kind {
            name: "deeper",
            about: "paths that grow by a new word each: stopped by the limit on depth, or on the length of URLs",
            specials: |_| vec![deeper("/deeper/", 0)],
            open: |_, target| {
                let depth = target.strip_prefix("/deeper/")?.matches('/').count() as u32;
                target.ends_with('/').then(|| deeper(target, depth))
            },
            requests_max: |host| u64::from(host.pages() + DEPTH_MAX) + BESIDES,
            ..TRAP
        },
        Kind {
            name: "repeating-path",
            about: "a relative link that repeats a path segment: stopped after three",
            specials: |_| (1..=SEGMENT_MAX).map(repeating).collect(),
            open: |_, target| {
                let times = target.matches("/again").count();
                (times > 0 && target == again(times)).then(|| repeating(times))
            },
            requests_max: |host| u64::from(host.pages()) + SEGMENT_MAX as u64 + BESIDES,
            ..TRAP
        },
    ]
}

fn month(year: u32, month_of_year: u32) -> Special {
    let (year, number) = (u64::from(year), u64::from(month_of_year));
    let months = year * 12 + number - 1;
    let link = |months: u64| format!("<a href=\"/calendar/{}/{}\">month</a>", months / 12, months % 12 + 1);
    let links = format!("{} {}", link(months + 1), link(months.saturating_sub(1)));
    Special::page(&format!("/calendar/{year}/{number}"), Rule::Optional).with_links(links)
}

fn session(host: &Host<'_>, id: u64) -> Special {
    let mut mix: Mix = host.mix(100, id);
    let links = [mix.next_u64(), mix.next_u64()]
        .map(|id| format!("<a href=\"/session?sid={id:x}\">on</a>\n"))
        .concat();
    Special::page(&format!("/session?sid={id:x}"), Rule::Optional).with_links(links)
}

fn filter(target: &str) -> Special {
    let count = target.matches('=').count();
    let separator = if count == 0 { "?" } else { "&amp;" };
    let href = target.replace('&', "&amp;");
    let link = |name: &str| format!("<a href=\"{href}{separator}{name}{count}=1\">filter</a>\n");
    Special::page(target, Rule::Optional).with_links(["size", "colour"].map(link).concat())
}

fn deeper(target: &str, depth: u32) -> Special {
    Special::page(target, Rule::Optional).with_links(format!("<a href=\"level-{}/\">deeper</a>", depth + 1))
}

fn again(times: usize) -> String {
    format!("{}/", "/again".repeat(times))
}

fn repeating(times: usize) -> Special {
    let rule = if times <= SEGMENT_MAX { Rule::Expected } else { Rule::Forbidden(Offence::Limits) };
    let special = Special::page(&again(times), rule).with_links("<a href=\"again/\">again</a>".to_owned());
    if times == 1 { special } else { special.unlinked() }
}
