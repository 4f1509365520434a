//! Redirects: chains, loops, ends and odd targets. Every hop is a URL that is fetched once.

use super::{Home, Kind, PLAIN, Special, Sub};
use crate::web::{
    plan::{Host, Rule},
    reply::Reply,
};

/// A chain that never ends costs no more than this. The length is not laid down; no browser follows more than 20.
const ENDLESS_MAX: u64 = 50;

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "moved",
            about: "the seed redirects from http to https with www., robots.txt too: the target counts as the seed",
            home: Home::Moved,
            subs: &[Sub::Www],
            ..PLAIN
        },
        Kind {
            name: "redirects",
            about: "chains of up to five, with every status: followed to the end",
            specials: chains,
            ..PLAIN
        },
        Kind {
            name: "redirect-loops",
            about: "loops and redirects to itself: each hop once",
            specials: loops,
            ..PLAIN
        },
        Kind {
            name: "redirect-endless",
            about: "a redirect that leads on for ever: given up after a while",
            specials: |_| vec![endless(1)],
            open: |_, target| target.strip_prefix("/endless/")?.parse().ok().map(endless),
            requests_max: |host| u64::from(host.pages()) + ENDLESS_MAX + 4,
            ..PLAIN
        },
        Kind {
            name: "redirect-odd",
            about: "relative and strange targets: resolved where they can be, results where they cannot",
            specials: odd,
            ..PLAIN
        },
    ]
}

fn hop(target: &str, status: u16, to: &str) -> Special {
    let to = to.to_owned();
    Special::page(target, Rule::Expected).answering(move |_| Reply::redirect(status, &to))
}

fn chains(host: &Host<'_>) -> Vec<Special> {
    let mut specials = Vec::new();
    for (chain, status) in [301, 302, 303, 307, 308].into_iter().enumerate() {
        let hops = chain + 1;
        for step in 0..hops {
            // Absolute and relative in turn.
            let base = if step % 2 == 0 { host.origin() } else { String::new() };
            let special = hop(&format!("/{status}/{step}"), status, &format!("{base}/{status}/{}", step + 1));
            specials.push(if step == 0 { special } else { special.unlinked() });
        }
        specials.push(Special::page(&format!("/{status}/{hops}"), Rule::Expected).unlinked());
    }
    specials
}

fn loops(_: &Host<'_>) -> Vec<Special> {
    vec![
        hop("/self", 301, "/self"),
        hop("/loop/a", 302, "/loop/b"),
        hop("/loop/b", 302, "/loop/c").unlinked(),
        hop("/loop/c", 302, "/loop/a").unlinked(),
        hop("/back", 301, "/"),
    ]
}

fn endless(number: u64) -> Special {
    let rule = if number == 1 { Rule::Expected } else { Rule::Optional };
    Special { rule, ..hop(&format!("/endless/{number}"), 302, &format!("/endless/{}", number + 1)) }
}

fn odd(host: &Host<'_>) -> Vec<Special> {
    vec![
        hop("/odd/relative", 302, "target-1"),
        Special::page("/odd/target-1", Rule::Expected).unlinked(),
        hop("/odd/up", 302, "../odd/target-2"),
        Special::page("/odd/target-2", Rule::Expected).unlinked(),
        hop(
            "/odd/scheme",
            302,
            &format!("//{}/odd/target-3", host.origin().split_once("//").map_or("", |o| o.1)),
        ),
        Special::page("/odd/target-3", Rule::Expected).unlinked(),
        hop("/odd/fragment", 302, "/odd/target-4#part"),
        Special::page("/odd/target-4", Rule::Expected).unlinked(),
        hop("/odd/query", 302, "?n=5"),
        Special::page("/odd/query?n=5", Rule::Expected).unlinked(),
        hop("/odd/mail", 302, "mailto:somebody@example.com"),
        hop("/odd/broken", 302, "http://[broken"),
        hop("/odd/empty-host", 302, "http:///"),
        hop("/odd/too-long", 302, &format!("/{}", "long/".repeat(2_000))),
        hop("/odd/choice", 300, "/odd/choice-target"),
        Special::page("/odd/choice-target", Rule::Optional).unlinked(),
        Special::page("/odd/missing", Rule::Expected)
            .answering(|_| Reply::new(301, "text/html", b"moved, but where?")),
        Special::page("/odd/two", Rule::Expected).answering(|_| {
            Reply::with_headers(302, "Location: /odd/two-a\r\nLocation: /odd/two-b\r\n", b"which?")
        }),
        Special::page("/odd/two-a", Rule::Optional).unlinked(),
        Special::page("/odd/two-b", Rule::Optional).unlinked(),
    ]
}
