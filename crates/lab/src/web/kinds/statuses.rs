//! Status codes: results, waits, and failures that are tried again.

use std::time::{Duration, SystemTime};

use super::{ATTEMPTS_MAX, Kind, PLAIN, Special};
use crate::web::{
    plan::{Host, Rule, Visit},
    reply::{After, Reply, Step, Wait, head},
};

/// What Retry-After says, before the time scale.
const RETRY_AFTER: Duration = Duration::from_secs(60);

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "statuses",
            about: "404, 410 and other 4xx, and odd 2xx and 3xx: results, asked for once",
            specials: |_| STATUSES.map(odd_status).into(),
            ..PLAIN
        },
        Kind {
            name: "busy-429",
            about: "429 with Retry-After in seconds, twice: the host is left alone that long, then the page is fetched",
            specials: |_| vec![busy(429, retry_in_seconds)],
            ..PLAIN
        },
        Kind {
            name: "busy-503",
            about: "the same with 503",
            specials: |_| vec![busy(503, retry_in_seconds)],
            ..PLAIN
        },
        Kind {
            name: "busy-date",
            about: "503 with Retry-After as a date, once",
            specials: |_| vec![busy_for(1, 503, retry_at_date)],
            ..PLAIN
        },
        Kind {
            name: "busy-zero",
            about: "Retry-After of 0, or a date long past: the ordinary delay holds",
            specials: |_| vec![busy(429, |_, _| no_wait(429, "0")), busy(503, |_, _| no_wait(503, PAST))],
            ..PLAIN
        },
        Kind {
            name: "busy-bare",
            about: "429 and 503 without Retry-After: the host is left alone for the back-off",
            specials: |_| vec![busy(429, bare), busy(503, bare)],
            ..PLAIN
        },
        Kind {
            name: "retry",
            about: "pages that fail in some way and succeed at the second, third or fourth attempt",
            specials: retries,
            ..PLAIN
        },
        Kind {
            name: "retry-never",
            about: "pages that always fail: tried four times",
            specials: |_| {
                let always = |(name, fail): (&str, Fail)| {
                    Special::page(&format!("/fails/{name}"), Rule::Tried(ATTEMPTS_MAX))
                        .answering(move |_| fail().fails())
                };
                FAILS.into_iter().map(always).collect()
            },
            ..PLAIN
        },
    ]
}

const PAST: &str = "Thu, 01 Jan 2015 00:00:00 GMT";
const STATUSES: [u16; 18] =
    [400, 401, 402, 403, 404, 405, 406, 410, 418, 451, 499, 203, 204, 205, 206, 226, 304, 305];

fn odd_status(status: u16) -> Special {
    Special::page(&format!("/status/{status}"), Rule::Expected).answering(move |_| match status {
        // These have no body, and say so by having no length.
        204 | 304 => {
            let mut bytes = head(status, "");
            bytes.extend_from_slice(b"\r\n");
            Reply::raw(bytes)
        }
        206 => Reply::with_headers(
            206,
            "Content-Range: bytes 0-6/100\r\nContent-Type: text/plain\r\n",
            b"partial",
        ),
        205 => Reply::with_headers(205, "", b""),
        _ => Reply::new(status, "text/html", b"<!doctype html><p>not what you asked for</p>"),
    })
}

/// A page that is busy twice and then there.
fn busy(status: u16, answer: fn(&Visit<'_>, u16) -> Reply) -> Special {
    busy_for(2, status, answer)
}

fn busy_for(times: u32, status: u16, answer: fn(&Visit<'_>, u16) -> Reply) -> Special {
    let page = Special::page(&format!("/busy/{status}"), Rule::Expected);
    let there = page.answer;
    Special {
        answer: Box::new(
            move |visit| if visit.attempt <= times { answer(visit, status) } else { there(visit) },
        ),
        ..page
    }
}

fn retry_in_seconds(visit: &Visit<'_>, status: u16) -> Reply {
    let seconds = visit.host.plan.config.scaled(RETRY_AFTER).as_secs_f64().ceil() as u64;
    Reply::with_headers(status, &format!("Retry-After: {seconds}\r\n"), b"busy")
        .waits(Wait::For(Duration::from_secs(seconds)))
}

fn retry_at_date(visit: &Visit<'_>, status: u16) -> Reply {
    let until = SystemTime::now() + visit.host.plan.config.scaled(RETRY_AFTER);
    let since_epoch = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Dates have whole seconds.
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs() + 1);
    let date = httpdate::fmt_http_date(until);
    Reply::with_headers(status, &format!("Retry-After: {date}\r\n"), b"busy").waits(Wait::Until(until))
}

fn no_wait(status: u16, retry_after: &str) -> Reply {
    Reply::with_headers(status, &format!("Retry-After: {retry_after}\r\n"), b"busy").unsettled()
}

fn bare(_: &Visit<'_>, status: u16) -> Reply {
    Reply::with_headers(status, "", b"busy").waits(Wait::Backoff)
}

type Fail = fn() -> Reply;

const FAILS: [(&str, Fail); 6] = [
    ("500", || Reply::new(500, "text/plain", b"broken")),
    ("408", || Reply::new(408, "text/plain", b"too slow")),
    ("504", || Reply::new(504, "text/plain", b"nobody there")),
    ("reset", || Reply::raw(broken_off()).then(After::Reset)),
    ("cut", || Reply::raw(broken_off()).then(After::Close)),
    ("cut-chunk", || {
        let mut bytes = head(200, "Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n");
        bytes.extend_from_slice(b"ff\r\n<p>this chunk is never");
        Reply::raw(bytes).then(After::Close)
    }),
];

/// Less than its length says.
fn broken_off() -> Vec<u8> {
    let mut bytes = head(200, "Content-Type: text/html\r\nContent-Length: 5000\r\n\r\n");
    bytes.extend_from_slice(b"<!doctype html><p>this page ends too");
    bytes
}

fn retries(_: &Host<'_>) -> Vec<Special> {
    // The reset needs a moment, or it could overtake what was written before it.
    let fail_at = |(number, (name, fail)): (usize, (&str, Fail))| {
        let succeeds_at = 2 + number as u32 % 3;
        let page = Special::page(&format!("/again/{name}/{succeeds_at}"), Rule::Expected);
        let there = page.answer;
        let answer = move |visit: &Visit<'_>| match visit.attempt < succeeds_at {
            true => {
                let mut reply = fail().fails();
                reply.steps.push(Step::Pause(Duration::from_millis(5)));
                reply
            }
            false => there(visit),
        };
        Special { answer: Box::new(answer), ..page }
    };
    FAILS.into_iter().enumerate().map(fail_at).collect()
}
