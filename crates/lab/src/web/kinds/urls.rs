//! URLs: spellings of one and the same, look-alikes that are not, too long, too many, and not for crawlers at all.

use std::fmt::Write as _;

use super::{Kind, PLAIN, Special};
use crate::web::{
    plan::{Host, Offence, Rule},
    reply::Reply,
};

/// The longest URL that is admitted.
const URL_BYTES_MAX: usize = 2_048;
/// Links of the page that has most.
const MANY: usize = 20_000;
/// So many links of a page a crawler takes at least. It may stop somewhere, and where is not laid down.
const MANY_TAKEN: usize = 5_000;

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "spellings",
            about: "many spellings of one URL: fetched once",
            specials: spellings,
            spelling: one_spelling,
            ..PLAIN
        },
        Kind {
            name: "look-alikes",
            about: "URLs that differ, if little: each is fetched",
            specials: look_alikes,
            ..PLAIN
        },
        Kind { name: "long-urls", about: "2,048 bytes are fetched, 2,049 are not", specials: long, ..PLAIN },
        Kind {
            name: "many-links",
            about: "20,000 links on a page: at least the first 5,000 are taken",
            specials: many,
            ..PLAIN
        },
        Kind {
            name: "other-schemes",
            about: "mailto, javascript, data, tel, ftp and broken links: none is followed",
            specials: |_| vec![Special::page("/schemes", Rule::Expected).with_links(SCHEMES.to_owned())],
            ..PLAIN
        },
        Kind {
            name: "duplicates",
            about: "pages with the same bytes: each is fetched, once",
            specials: |_| {
                let same = |number| {
                    Special::page(&format!("/same/{number}"), Rule::Expected).answering(|_| {
                        Reply::html("<!doctype html><html><body><p>the same everywhere</p></body></html>")
                    })
                };
                (1..=5).map(same).collect()
            },
            ..PLAIN
        },
    ]
}

fn spellings(host: &Host<'_>) -> Vec<Special> {
    let origin = host.origin();
    let shouted = origin.to_uppercase();
    let hrefs = [
        "/s/page-1",
        "/s/./page-1",
        "/s/x/../page-1",
        "/s/x/%2e%2E/page-1",
        "/s/%70age-1",
        "/s/p%61g%65%2D1",
        "/s/page-1#top",
        "/s/page-1?",
        "/s/page-1?#top",
        "\\s\\page-1",
        " /s/page-1 ",
        "s/page-1",
        "./s/page-1",
    ];
    let mut links: String = hrefs.map(|href| format!("<a href=\"{href}\">one</a>\n")).concat();
    // Writing to a String cannot fail.
    let _ = writeln!(links, "<a href=\"{origin}/s/page-1\">one</a> <a href=\"{shouted}/s/page-1\">one</a>");
    vec![
        Special::page("/s/page-1", Rule::Expected).linked(&links),
        Special::page("/s/%C3%A9", Rule::Expected)
            .linked("<a href=\"/s/%c3%a9\">one</a> <a href=\"/s/é\">one</a> <a href=\"/s/%C3%A9\">one</a>"),
        Special::page("/s/q?a=b", Rule::Expected).linked(
            "<a href=\"/s/q?a=%62\">one</a> <a href=\"/s/q?%61=b\">one</a> <a href=\"/s/q?a=b#x\">one</a>",
        ),
    ]
}

/// Escapes of unreserved characters decoded, hexadecimal digits in capitals, an empty query dropped.
fn one_spelling(target: &str) -> String {
    let mut out = String::with_capacity(target.len());
    let mut rest = target;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let digits = rest.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match digits {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                out.push(char::from(byte))
            }
            Some(byte) => {
                let _ = write!(out, "%{byte:02X}");
            }
            None => {
                out.push('%');
                rest = &rest[at + 1..];
                continue;
            }
        }
        rest = &rest[at + 3..];
    }
    out.push_str(rest);
    out.strip_suffix('?').map(str::to_owned).unwrap_or(out)
}

fn look_alikes(_: &Host<'_>) -> Vec<Special> {
    let targets = [
        "/l/page",
        "/l/Page",
        "/l/page/",
        "/l/page?a=1&b=2",
        "/l/page?b=2&a=1",
        "/l/page?a=1",
        "/l/page?a=01",
        "/l/page?a=%2B",
        "/l/page?a=+",
        "/l/page?a=%20",
        "/l/a%2Fb",
        "/l/a/b",
        "/l//a/b",
        "/l/page;x=1",
        "/l/page%3Bx=1",
    ];
    let special = |target: &str| {
        let href = target.replace('&', "&amp;");
        Special::page(target, Rule::Expected).linked(&format!("<a href=\"{href}\">one of many</a>"))
    };
    targets.map(special).into()
}

fn long(host: &Host<'_>) -> Vec<Special> {
    let of_length = |length: usize, rule: Rule| {
        let path = "/long/";
        let missing = length.saturating_sub(host.origin().len() + path.len());
        Special::page(&format!("{path}{}", "x".repeat(missing)), rule)
    };
    vec![
        of_length(1_000, Rule::Expected),
        of_length(URL_BYTES_MAX, Rule::Expected),
        of_length(URL_BYTES_MAX + 1, Rule::Forbidden(Offence::Limits)),
        of_length(7_000, Rule::Forbidden(Offence::Limits)),
    ]
}

fn many(host: &Host<'_>) -> Vec<Special> {
    let pages = host.pages().max(2) as usize;
    let page = Special::page("/many", Rule::Expected).answering(move |_| {
        let mut html = String::with_capacity(MANY * 40);
        html.push_str("<!doctype html><html><body>\n");
        for number in 0..MANY {
            // Most lead to ordinary pages, again and again, so that this costs reading and not fetching.
            let _ = match number {
                4_999 => writeln!(html, "<a href=/many/{MANY_TAKEN}>x</a>"),
                19_999 => writeln!(html, "<a href=/many/{MANY}>x</a>"),
                number if pages > 2 => {
                    writeln!(html, "<a href=\"/p/{}#{number}\">x</a>", 1 + number % (pages - 1))
                }
                number => writeln!(html, "<a href=\"/#{number}\">x</a>"),
            };
        }
        Reply::html(&html)
    });
    vec![
        page,
        Special::page(&format!("/many/{MANY_TAKEN}"), Rule::Expected).unlinked(),
        Special::page(&format!("/many/{MANY}"), Rule::Optional).unlinked(),
    ]
}

const SCHEMES: &str = "<a href='mailto:somebody@example.com'>x</a> <a href='javascript:void(0)'>x</a>\n\
    <a href='data:text/html,<a href=/never>x</a>'>x</a> <a href='tel:+41'>x</a> <a href='ftp://ftp.test/'>x</a>\n\
    <a href='file:///etc/passwd'>x</a> <a href='http://'>x</a> <a href='http://[::1'>x</a> <a href='http://a b/'>x</a>\n\
    <a href='about:blank'>x</a> <a href='ws://x.test/'>x</a> <a href='blob:x'>x</a> <a href>x</a> <a href=#only>x</a>\n\
    <a href='http://user:secret@%zz/'>x</a> <a href='https://name.test:99999/'>x</a>";
