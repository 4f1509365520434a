//! Pages that say what crawlers may do with them: meta robots, X-Robots-Tag, rel=nofollow.

use super::{Kind, PLAIN, Special};
use crate::web::{
    plan::{Host, Offence, Rule},
    reply::Reply,
    text::small_page,
};

const NOT_FOLLOWED: Rule = Rule::Forbidden(Offence::Nofollow);

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "meta-robots",
            about: "links of pages with meta nofollow are not followed; noindex and noarchive change nothing about that",
            specials: meta,
            ..PLAIN
        },
        Kind {
            name: "header-robots",
            about: "the same said by X-Robots-Tag, also for one crawler alone",
            specials: header,
            ..PLAIN
        },
        Kind {
            name: "rel-nofollow",
            about: "links with rel=nofollow are not followed; a page also linked without is fetched",
            specials: rel,
            ..PLAIN
        },
    ]
}

/// A page that says something, and a page behind it that is linked from nowhere else.
fn pair(name: &str, follows: bool, answer: impl Fn(&str) -> Reply + 'static) -> [Special; 2] {
    let behind = format!("/behind/{name}");
    let link = format!("<a href=\"{behind}\">behind</a>");
    let rule = if follows { Rule::Expected } else { NOT_FOLLOWED };
    [
        Special::page(&format!("/says/{name}"), Rule::Expected).answering(move |_| answer(&link)),
        Special::page(&behind, rule).unlinked(),
    ]
}

fn meta(_: &Host<'_>) -> Vec<Special> {
    let cases = [
        ("nofollow", "<meta name=\"robots\" content=\"nofollow\">", false),
        ("none", "<META NAME=ROBOTS CONTENT=' NONE '>", false),
        ("list", "<meta content=\"noindex, NoFollow\" name=\"Robots\">", false),
        ("noindex", "<meta name=\"robots\" content=\"noindex\">", true),
        ("noarchive", "<meta name=\"robots\" content=\"noarchive\">", true),
        ("other", "<meta name=\"description\" content=\"nofollow\">", true),
    ];
    let special = |(name, tag, follows): (&str, &'static str, bool)| {
        pair(name, follows, move |link| {
            Reply::html(&format!(
                "<!doctype html><html><head>{tag}<title>said</title></head><body>{link}</body></html>"
            ))
        })
    };
    cases.into_iter().flat_map(special).collect()
}

fn header(host: &Host<'_>) -> Vec<Special> {
    let agent = &host.plan.config.agent;
    let cases = [
        ("nofollow", "X-Robots-Tag: nofollow\r\n".to_owned(), false),
        ("none", "x-robots-tag: none\r\n".to_owned(), false),
        ("second", "X-Robots-Tag: noarchive\r\nX-Robots-Tag: noindex, nofollow\r\n".to_owned(), false),
        ("ours", format!("X-Robots-Tag: {agent}: nofollow\r\n"), false),
        ("other", "X-Robots-Tag: otherbot: nofollow\r\n".to_owned(), true),
        ("noindex", "X-Robots-Tag: noindex\r\n".to_owned(), true),
    ];
    let special = |(name, line, follows): (&str, String, bool)| {
        pair(name, follows, move |link| {
            Reply::with_headers(200, &format!("{line}Content-Type: text/html\r\n"), link.as_bytes())
        })
    };
    cases.into_iter().flat_map(special).collect()
}

fn rel(_: &Host<'_>) -> Vec<Special> {
    vec![
        Special::page("/rel/nofollow", NOT_FOLLOWED).linked("<a rel=nofollow href=/rel/nofollow>no</a>"),
        Special::page("/rel/list", NOT_FOLLOWED)
            .linked("<a href=\"/rel/list\" rel=\"external  NOFOLLOW\">no</a>"),
        Special::page("/rel/area", NOT_FOLLOWED).linked("<map><area href=/rel/area rel=nofollow></map>"),
        Special::page("/rel/other", Rule::Expected).linked("<a rel=noopener href=/rel/other>yes</a>"),
        Special::page("/rel/both", Rule::Expected)
            .linked("<a rel=nofollow href=/rel/both>no</a> <a href=/rel/elsewhere>yes</a>"),
        Special::page("/rel/elsewhere", Rule::Expected).unlinked().answering(|visit| {
            Reply::html(&small_page(
                &visit.host,
                "elsewhere",
                "<a href=/rel/both>the link that may be followed</a>",
            ))
        }),
    ]
}
