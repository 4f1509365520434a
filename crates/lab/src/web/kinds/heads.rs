//! Heads of answers: lawful but rare, and unlawful.

use super::{ATTEMPTS_MAX, Kind, PLAIN, Special};
use crate::web::{
    plan::{Host, Rule},
    reply::{After, Reply},
};

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "rare-heads",
            about: "1xx before the answer, no reason, HTTP/1.0, bare line feeds, many and large headers: results, asked for \
                    once",
            specials: |_| {
                rare()
                    .into_iter()
                    .map(|(name, bytes, after)| special(name, Rule::Expected, bytes, after))
                    .collect()
            },
            ..PLAIN
        },
        Kind {
            name: "bad-heads",
            about: "heads that are no HTTP, or contradict themselves: taken or not, tried four times at most",
            specials: bad,
            ..PLAIN
        },
    ]
}

const BODY: &str = "<!doctype html><p>here it is</p>";

fn special(name: &str, rule: Rule, bytes: Vec<u8>, after: After) -> Special {
    Special::page(&format!("/head/{name}"), rule).answering(move |_| Reply::raw(bytes.clone()).then(after))
}

fn rare() -> Vec<(&'static str, Vec<u8>, After)> {
    let length = BODY.len();
    let answer = |before: &str, status: &str, headers: &str| {
        format!("{before}{status}\r\n{headers}Content-Length: {length}\r\n\r\n{BODY}").into_bytes()
    };
    let ok = "HTTP/1.1 200 OK";
    let many: String = (0..90).map(|number| format!("X-Many-{number}: {number}\r\n")).collect();
    vec![
        ("continue", answer("HTTP/1.1 100 Continue\r\n\r\n", ok, ""), After::Keep),
        (
            "hints",
            answer("HTTP/1.1 103 Early Hints\r\nLink: </never>; rel=preload\r\n\r\n", ok, ""),
            After::Keep,
        ),
        ("no-reason", answer("", "HTTP/1.1 200", ""), After::Keep),
        ("empty-reason", answer("", "HTTP/1.1 200 ", ""), After::Keep),
        ("many", answer("", ok, &many), After::Keep),
        ("large", answer("", ok, &format!("X-Large: {}\r\n", "x".repeat(16_000))), After::Keep),
        ("case", answer("", ok, "cOnTeNt-TyPe: text/html\r\n"), After::Keep),
        ("no-space", answer("", ok, "Content-Type:text/html\r\n"), After::Keep),
        ("latin", answer("", ok, "X-Latin: \u{e9}\r\n"), After::Keep),
        (
            "to-the-end",
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{BODY}").into_bytes(),
            After::Close,
        ),
        (
            "http-1.0",
            format!("HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n{BODY}").into_bytes(),
            After::Close,
        ),
        (
            "line-feeds",
            format!("HTTP/1.1 200 OK\nContent-Length: {length}\n\n{BODY}").into_bytes(),
            After::Keep,
        ),
    ]
}

fn bad(_: &Host<'_>) -> Vec<Special> {
    let length = BODY.len();
    let sized =
        |start: &str, headers: &str| format!("{start}\r\n{headers}Content-Length: {length}\r\n\r\n{BODY}");
    let ok = "HTTP/1.1 200 OK";
    let thousand: String = (0..1_000).map(|number| format!("X-Many-{number}: {number}\r\n")).collect();
    let cases = [
        ("fold", sized(ok, "X-Folded: one\r\n two\r\n\tthree\r\n")),
        ("thousand", sized(ok, &thousand)),
        ("megabyte", sized(ok, &format!("X-Large: {}\r\n", "x".repeat(1 << 20)))),
        ("garbage", "?%$ what is this\r\n\r\n".to_owned()),
        ("http-0.9", BODY.to_owned()),
        ("http-2", sized("HTTP/2 200 OK", "")),
        ("icy", sized("ICY 200 OK", "")),
        ("status-letters", sized("HTTP/1.1 abc OK", "")),
        ("status-long", sized("HTTP/1.1 20000 OK", "")),
        ("no-colon", sized(ok, "this line has no colon\r\n")),
        ("space-colon", sized(ok, "X-Space : odd\r\n")),
        ("nul", sized(ok, "X-Nul: a\0b\r\n")),
        ("two-lengths", sized(ok, "Content-Length: 5\r\n")),
        ("negative-length", format!("{ok}\r\nContent-Length: -1\r\n\r\n{BODY}")),
        ("huge-length", format!("{ok}\r\nContent-Length: 99999999999999999999999\r\n\r\n{BODY}")),
        ("length-and-chunks", sized(ok, "Transfer-Encoding: chunked\r\n")),
        ("unknown-transfer", format!("{ok}\r\nTransfer-Encoding: rot13\r\n\r\n{BODY}")),
        ("nothing", String::new()),
    ];
    let bad = |(name, text): (&str, String)| {
        let bytes = text.into_bytes();
        Special::page(&format!("/head/{name}"), Rule::Tried(ATTEMPTS_MAX))
            .answering(move |_| Reply::raw(bytes.clone()).fails().then(After::Close))
    };
    cases.map(bad).into()
}
