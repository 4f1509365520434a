//! Hosts that speak HTTP/2 and nothing else. Who offers only HTTP/1.1 is refused, which counts as a request: the next
//! attempt, with HTTP/2, has to wait for the delay.

use std::time::Duration;

use super::{ATTEMPTS_MAX, Connect, Home, Host, Kind, PLAIN, Special};
use crate::web::{
    plan::{Offence, Rule},
    reply::{After, Reply, Step, head},
    text::small_page,
};

/// Requests beyond the pages: robots.txt, and connections that are refused.
const SPARE_REQUESTS: u64 = 8;
const ONLY: Kind = Kind {
    home: Home::Https,
    connect: Connect::OnlyHttp2,
    requests_max: |host| u64::from(host.pages()) + SPARE_REQUESTS,
    ..PLAIN
};

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind { name: "h2", about: "speaks only HTTP/2: every page is fetched, over it", ..ONLY },
        Kind {
            name: "h2-goaway",
            about: "speaks only HTTP/2 and says goodbye after every answer: each page on a connection of its own",
            twist: |_, reply| reply.after = After::Close,
            ..ONLY
        },
        Kind {
            name: "h2-bodies",
            about: "speaks only HTTP/2, with bodies that have no length, no end, stop or are reset: cut and tried again \
                    as over HTTP/1.1",
            specials: bodies,
            pages_max: 5,
            requests_max: |_| u64::MAX,
            ..ONLY
        },
        Kind {
            name: "h2-flood",
            about: "speaks only HTTP/2, and instead of answers sends frames that mean nothing for ever: not listened to for long, \
                    and backed off",
            home: Home::Https,
            connect: Connect::FloodHttp2,
            pages_max: 1,
            base: Rule::Forbidden(Offence::Robots),
            ..PLAIN
        },
    ]
}

fn bodies(_: &Host<'_>) -> Vec<Special> {
    let start = |fields: &str| head(200, &format!("Content-Type: text/html\r\n{fields}\r\n"));
    let tried = |target: &str, steps: Vec<Step>, after: After| {
        Special::page(target, Rule::Tried(ATTEMPTS_MAX))
            .answering(move |_| Reply::steps(steps.clone()).fails().then(after))
    };
    let announced = start("Content-Length: 100000\r\n");
    let cut_off = vec![
        Step::Write([&announced[..], b"<p>not all of it"].concat()),
        // The reset needs a moment, or it could overtake what was written before it.
        Step::Pause(Duration::from_millis(20)),
    ];
    let endless = start("");
    vec![
        Special::page("/no-length", Rule::Expected).answering(move |visit| {
            let page = small_page(&visit.host, visit.target, "").into_bytes();
            let (first, second) = page.split_at(page.len() / 2);
            let parts = [start("").as_slice(), first].concat();
            Reply::steps(vec![Step::Write(parts), Step::Write(second.to_vec())])
        }),
        Special::page("/nothing", Rule::Expected).answering(move |_| Reply::raw(start(""))),
        Special::page("/endless", Rule::Tried(1)).answering(move |_| {
            let more = Step::Endless(b"and on ".repeat(9_362), Duration::from_millis(5));
            Reply::steps(vec![Step::Write(endless.clone()), more])
        }),
        tried("/stalled", vec![Step::Write(announced), Step::Stall], After::Keep),
        tried("/reset", cut_off.clone(), After::Reset),
        // Less than was announced.
        tried("/short", cut_off, After::Keep),
    ]
}
