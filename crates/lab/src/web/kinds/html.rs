//! HTML as it is found: malformed, with bases, refreshes, frames and links in odd places.
//!
//! What counts as a link follows the HTML standard's tokenizer, with scripting off.

use super::{Kind, PLAIN, Special};
use crate::web::{
    plan::{Host, Rule, Visit},
    reply::Reply,
    text::small_page,
};

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "malformed-html",
            about: "links in broken markup are found; what looks like one in comments and scripts is none",
            specials: malformed,
            ..PLAIN
        },
        Kind {
            name: "link-places",
            about: "area, frame, iframe, link, meta refresh and the Link header are followed",
            specials: places,
            ..PLAIN
        },
        Kind {
            name: "base-href",
            about: "relative links are relative to the base",
            specials: bases,
            ..PLAIN
        },
        Kind {
            name: "cookies",
            about: "cookies are set and never come back",
            specials: |_| {
                let set = |visit: &Visit<'_>| set_cookie(visit, 200, "");
                vec![
                    Special::page("/cookie/1", Rule::Expected).answering(set),
                    Special::page("/cookie/2", Rule::Expected).answering(set),
                    Special::page("/cookie/3", Rule::Expected).answering(set),
                ]
            },
            ..PLAIN
        },
        Kind {
            name: "cookie-wall",
            about: "a page that redirects to itself until a cookie comes back: asked for at most twice",
            specials: |_| {
                vec![Special::page("/wall", Rule::Tried(2)).answering(|visit| match visit.cookie {
                    true => Reply::html(&small_page(&visit.host, "behind the wall", "")),
                    false => set_cookie(visit, 302, "Location: /wall\r\n").unsettled(),
                })]
            },
            takes_cookies: true,
            ..PLAIN
        },
    ]
}

fn set_cookie(visit: &Visit<'_>, status: u16, headers: &str) -> Reply {
    let headers = format!("{headers}Set-Cookie: id={}; Path=/\r\nContent-Type: text/html\r\n", visit.attempt);
    Reply::with_headers(status, &headers, b"<!doctype html><p>remember me</p>")
}

/// A page of this markup and the pages that it leads to.
fn page_and_targets(name: &str, html: &'static str, targets: &[&str]) -> Vec<Special> {
    let page = Special::page(&format!("/html/{name}"), Rule::Expected)
        .answering(move |_| Reply::new(200, "text/html", html.as_bytes()));
    let behind = targets.iter().map(|target| Special::page(target, Rule::Expected).unlinked());
    std::iter::once(page).chain(behind).collect()
}

fn malformed(_: &Host<'_>) -> Vec<Special> {
    let cases: [(&str, &'static str, &[&str]); 12] = [
        ("unquoted", "<p><a href=/a/unquoted class=x>no quotes", &["/a/unquoted"]),
        ("single", "<A HREF='/a/single'>single quotes</a", &["/a/single"]),
        ("spaces", "<a\n\thref \n=\n \" \n/a/spaces\t \">space everywhere</a>", &["/a/spaces"]),
        ("inside", "<a href=\"/a/in\n\tside\">line breaks within</a>", &["/a/inside"]),
        ("entities", "<a href='/a/e?x=1&amp;y=2&copy=3&#x26;z=4'>entities</a>", &["/a/e?x=1&y=2&copy=3&z=4"]),
        ("unclosed", "<div <p><a href=/a/unclosed><b><i><a href=/a/unclosed-2", &["/a/unclosed"]),
        ("twice", "<a href=/a/first href=/a/second>the first counts</a>", &["/a/first"]),
        ("nested", "<table><a href=/a/nested><tr></a><a href=/a/nested-2>", &["/a/nested", "/a/nested-2"]),
        ("slashes", "<a/href=/a/slashes/>slashes</a/>", &["/a/slashes/"]),
        ("comment", "<!-- <a href=/never/1>no</a> --><!--><a href=/a/comment>yes</a>", &["/a/comment"]),
        (
            "script",
            "<script>document.write('<a href=\"/never/2\">no</a>')</script><style>a[href='/never/3']{}</style>\
             <a href=/a/script>yes</a>",
            &["/a/script"],
        ),
        ("nul", "<a href=\"/a/nul\" \0data-x=\0>nul bytes</a>\0\0", &["/a/nul"]),
    ];
    cases.into_iter().flat_map(|(name, html, targets)| page_and_targets(name, html, targets)).collect()
}

fn places(_: &Host<'_>) -> Vec<Special> {
    let cases: [(&str, &'static str, &[&str]); 6] = [
        ("area", "<map><area href=/at/area></map>", &["/at/area"]),
        ("frames", "<frameset><frame src=/at/frame></frameset>", &["/at/frame"]),
        ("iframe", "<iframe src=\"/at/iframe\"></iframe>", &["/at/iframe"]),
        (
            "link",
            "<link rel=canonical href=/at/canonical><link rel='alternate' href=/at/alternate>\
             <link rel=NEXT href=/at/next><link rel=prev href=/at/prev>",
            &["/at/canonical", "/at/alternate", "/at/next", "/at/prev"],
        ),
        ("refresh", "<meta http-equiv=refresh content='0;url=/at/refresh'>", &["/at/refresh"]),
        (
            "refresh-odd",
            "<meta http-equiv=\"Refresh\" content=\" 5 ; URL = '/at/refresh-odd' \">",
            &["/at/refresh-odd"],
        ),
    ];
    let mut specials: Vec<Special> =
        cases.into_iter().flat_map(|(name, html, targets)| page_and_targets(name, html, targets)).collect();
    specials.push(Special::page("/html/header", Rule::Expected).answering(|_| {
        let headers = "Link: </at/header-next>; rel=\"next\", </at/header-alternate>; rel=alternate\r\n\
                       Content-Type: text/html\r\n";
        Reply::with_headers(200, headers, b"<!doctype html><p>see the head</p>")
    }));
    specials.extend(
        ["/at/header-next", "/at/header-alternate"]
            .map(|target| Special::page(target, Rule::Expected).unlinked()),
    );
    // Assets are fetched only if asked for.
    specials.push(
        Special::page("/html/assets", Rule::Expected).with_links(
            "<img src=/asset/1.png><script src=/asset/2.js></script><link rel=stylesheet href=/asset/3.css>"
                .to_owned(),
        ),
    );
    let assets = ["/asset/1.png", "/asset/2.js", "/asset/3.css"];
    specials.extend(assets.map(|target| Special::page(target, Rule::Optional).unlinked()));
    specials
}

fn bases(_: &Host<'_>) -> Vec<Special> {
    let cases: [(&str, &'static str, &[&str]); 4] = [
        ("base", "<base href=/based/on/><a href=this>base</a>", &["/based/on/this"]),
        ("base-relative", "<base href='../based/up/'><a href=that>base</a>", &["/based/up/that"]),
        (
            "base-twice",
            "<base target=_top><base href=/based/first/><base href=/based/second/><a href=one>the first counts</a>",
            &["/based/first/one"],
        ),
        ("base-late", "<a href=late>before the base</a><base href=/based/late/>", &["/based/late/late"]),
    ];
    cases.into_iter().flat_map(|(name, html, targets)| page_and_targets(name, html, targets)).collect()
}
