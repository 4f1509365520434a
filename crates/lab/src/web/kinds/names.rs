//! Hosts whose names resolve in odd ways, or to where no crawler should go.

use super::{Home, Kind, Names, PLAIN, Special};
use crate::web::plan::{Offence, Rule};

const NOWHERE: Kind =
    Kind { home: Home::Http, pages_max: 1, base: Rule::Forbidden(Offence::Private), ..PLAIN };

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind { name: "dns-nxdomain", about: "the name does not exist", names: Names::NxDomain, ..NOWHERE },
        Kind { name: "dns-servfail", about: "the name server fails", names: Names::ServFail, ..NOWHERE },
        Kind {
            name: "dns-timeout",
            about: "the name server does not answer",
            names: Names::Timeout,
            ..NOWHERE
        },
        Kind {
            name: "dns-flaky",
            about: "the name server fails four times and then answers: all is fetched in the end",
            names: Names::Flaky(4),
            ..PLAIN
        },
        Kind {
            name: "dns-private",
            about: "resolves into 10.0.0.0/8: refused",
            names: Names::Private,
            ..NOWHERE
        },
        Kind {
            name: "dns-private-loopback",
            about: "resolves into 127.128.0.0/9: refused",
            names: Names::PrivateLoopback,
            ..NOWHERE
        },
        Kind {
            name: "dns-private-v6",
            about: "resolves to ::1 only: refused",
            names: Names::PrivateV6,
            ..NOWHERE
        },
        Kind {
            name: "dns-rebinding",
            about: "the first answers are good, later ones lead into 127.128.0.0/9: fetched as long as they are good, \
                    then refused; the check is on the address connected to",
            names: Names::Rebinding(4),
            base: Rule::Optional,
            ..PLAIN
        },
        Kind { name: "dns-alias", about: "two aliases before the address", names: Names::Alias, ..PLAIN },
        Kind {
            name: "dns-tcp",
            about: "UDP answers are cut: asked over TCP",
            names: Names::Truncated,
            ..PLAIN
        },
        Kind {
            name: "dns-no-ttl",
            about: "a TTL of 0 is no reason not to fetch",
            names: Names::NoTtl,
            ..PLAIN
        },
        Kind {
            name: "private-links",
            about: "links and redirects to private addresses in every spelling: none is connected to",
            specials: private_links,
            ..PLAIN
        },
    ]
}

fn private_links(host: &super::Host<'_>) -> Vec<Special> {
    let port = host.plan.config.http_port;
    // 127.128.0.1 as dotted, decimal, hexadecimal, octal and short numbers, and inside IPv6.
    let spellings = [
        "127.128.0.1",
        "2139095041",
        "0x7f800001",
        "0177.0200.0.1",
        "127.8388609",
        "[::ffff:127.128.0.1]",
        "10.0.0.1",
    ];
    let mut specials: Vec<Special> = spellings
        .into_iter()
        .enumerate()
        .map(|(number, address)| {
            let url = format!("http://{address}:{port}/secret");
            Special::page(&format!("/to-private/{number}"), Rule::Expected)
                .answering(move |_| crate::web::Reply::redirect(302, &url))
        })
        .collect();
    let links =
        spellings.map(|address| format!("<a href=\"http://{address}:{port}/secret\">private</a>")).concat();
    specials.push(Special::page("/private-links", Rule::Expected).with_links(links));
    specials
}
