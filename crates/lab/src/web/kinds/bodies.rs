//! Bodies that are late, cut, endless, or not what the head says.

use std::time::Duration;

use super::{ATTEMPTS_MAX, Home, Kind, PLAIN, Special};
use crate::web::{
    plan::{Host, Rule, Visit},
    reply::{Reply, Step, head},
    text::small_page,
};

const MIB: usize = 1024 * 1024;
/// What a crawler takes of a body at most.
const BODY_BYTES_MAX: usize = 16 * MIB;
/// What may be under way in the buffers of both sides when the crawler has had enough.
const IN_FLIGHT_BYTES_MAX: usize = 16 * MIB;
/// Endless bodies come at 64 KiB every 5 ms: 13 MB/s, so that many at once do not stop the web.
const ENDLESS_PAUSE: Duration = Duration::from_millis(5);
const SLOW: Duration = Duration::from_secs(3);

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "slow",
            about: "takes three seconds to answer: waited for, and no other host waits with it",
            twist: |visit, reply| {
                reply.steps.insert(0, Step::Pause(visit.host.plan.config.scaled(SLOW)));
            },
            pages_max: 20,
            ..PLAIN
        },
        Kind {
            name: "stalled-head",
            about: "a page that is never answered: timed out, tried four times",
            specials: |_| vec![tried("/stalled", vec![Step::Stall])],
            ..PLAIN
        },
        Kind {
            name: "stalled-body",
            about: "a page that stops in the middle: timed out, tried four times",
            specials: |_| vec![tried("/stalled", vec![Step::Write(beginning(5_000)), Step::Stall])],
            ..PLAIN
        },
        Kind {
            name: "drip",
            about: "a page that comes at 100 bytes a second: below the least speed, tried four times",
            specials: |_| {
                let drops = Step::Endless(vec![b'x'; 100], Duration::from_secs(1));
                vec![tried("/drip", vec![Step::Write(beginning(1_000_000)), drops])]
            },
            ..PLAIN
        },
        Kind {
            name: "endless",
            about: "bodies without end, with and without chunks: cut at the largest body, once",
            specials: |_| vec![endless_plain(), endless_chunked()],
            pages_max: 5,
            bytes_max: (2 * (BODY_BYTES_MAX + IN_FLIGHT_BYTES_MAX) + 24 * MIB) as u64,
            ..PLAIN
        },
        Kind {
            name: "huge",
            about: "a page of 64 MiB, as its length says: cut at the largest body, once",
            specials: |_| {
                let answer = |_: &Visit<'_>| {
                    let page = Step::Write(beginning(64 * MIB));
                    Reply::steps(vec![page, Step::Write(vec![b' '; 64 * MIB - BEGINNING.len()])])
                };
                vec![Special::page("/huge", Rule::Tried(1)).answering(answer)]
            },
            pages_max: 5,
            bytes_max: (BODY_BYTES_MAX + IN_FLIGHT_BYTES_MAX + 24 * MIB) as u64,
            ..PLAIN
        },
        Kind {
            name: "endless-head",
            about: "header lines without end: given up, tried four times at most",
            specials: |_| {
                let line = format!("X-More: {}\r\n", "more ".repeat(200)).repeat(16).into_bytes();
                let steps = vec![Step::Write(head(200, "")), Step::Endless(line, ENDLESS_PAUSE)];
                vec![tried("/endless-head", steps)]
            },
            pages_max: 5,
            bytes_max: (4 * IN_FLIGHT_BYTES_MAX + 24 * MIB) as u64,
            ..PLAIN
        },
        Kind {
            name: "long-body",
            about: "more bytes than the length says, which look like another answer: not taken for one",
            home: Home::Http,
            specials: long_bodies,
            ..PLAIN
        },
        Kind {
            name: "lying-type",
            about: "content types that are wrong, empty, missing or broken: fetched all the same",
            specials: lying_types,
            ..PLAIN
        },
    ]
}

const BEGINNING: &str = "<!doctype html><p>this is only the beginning ";

/// Head of a page of this length, and how it begins.
fn beginning(length: usize) -> Vec<u8> {
    let mut bytes = head(200, &format!("Content-Type: text/html\r\nContent-Length: {length}\r\n\r\n"));
    bytes.extend_from_slice(BEGINNING.as_bytes());
    bytes
}

fn tried(target: &str, steps: Vec<Step>) -> Special {
    Special::page(target, Rule::Tried(ATTEMPTS_MAX)).answering(move |_| Reply::steps(steps.clone()).fails())
}

fn endless_plain() -> Special {
    Special::page("/endless/plain", Rule::Tried(1)).answering(|_| {
        let mut start = head(200, "Content-Type: text/html\r\nConnection: close\r\n\r\n");
        start.extend_from_slice(BEGINNING.as_bytes());
        let more = b"and on ".repeat(9_362);
        Reply::steps(vec![Step::Write(start), Step::Endless(more, ENDLESS_PAUSE)])
    })
}

fn endless_chunked() -> Special {
    Special::page("/endless/chunked", Rule::Tried(1)).answering(|_| {
        let start = head(200, "Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut chunk = b"10000\r\n".to_vec();
        chunk.resize(7 + 0x10000, b'.');
        chunk.extend_from_slice(b"\r\n");
        Reply::steps(vec![Step::Write(start), Step::Endless(chunk, ENDLESS_PAUSE)])
    })
}

fn long_bodies(_: &Host<'_>) -> Vec<Special> {
    (1..=3)
        .map(|number| {
            Special::page(&format!("/long/{number}"), Rule::Expected).answering(|visit| {
                let page = small_page(&visit.host, visit.target, "");
                let length = page.len();
                let headers = format!("Content-Type: text/html\r\nContent-Length: {length}\r\n\r\n");
                let mut bytes = head(200, &headers);
                bytes.extend_from_slice(page.as_bytes());
                bytes.extend_from_slice(
                    b"HTTP/1.1 301 Moved\r\nLocation: /never\r\nContent-Length: 0\r\n\r\n",
                );
                Reply::raw(bytes)
            })
        })
        .collect()
}

fn lying_types(_: &Host<'_>) -> Vec<Special> {
    const PAGE: &[u8] = b"<!doctype html><p>a page</p>";
    let cases: [(&str, &'static str, &'static [u8]); 7] = [
        ("html-as-image", "Content-Type: image/png\r\n", PAGE),
        ("image-as-html", "Content-Type: text/html\r\n", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0<a href=>\0\0"),
        ("missing", "", PAGE),
        ("empty", "Content-Type: \r\n", PAGE),
        ("broken", "Content-Type: ;;=//text\r\n", PAGE),
        ("twice", "Content-Type: image/gif\r\nContent-Type: text/html\r\n", PAGE),
        ("nothing", "Content-Type: text/html\r\n", b""),
    ];
    let special = |(name, headers, body): (&str, &'static str, &'static [u8])| {
        Special::page(&format!("/type/{name}"), Rule::Expected)
            .answering(move |_| Reply::with_headers(200, headers, body))
    };
    cases.map(special).into()
}
