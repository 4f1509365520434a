//! Hosts whose connections go wrong, TLS included.
//!
//! A connect that fails counts as a request, and the host is left alone for the back-off afterwards: robots.txt is what
//! is asked for first, so it cannot be had.

use super::{Certificate, Connect, Home, Kind, PLAIN};
use crate::web::{
    plan::{Offence, Rule, Visit},
    reply::{After, Reply},
};

/// Nothing of such a host can be had; only the front page exists, to say where the host is entered.
const DEAD: Kind = Kind { home: Home::Http, pages_max: 1, base: Rule::Forbidden(Offence::Robots), ..PLAIN };
const BAD_TLS: Kind = Kind { home: Home::Https, pages_max: 1, base: Rule::Forbidden(Offence::Tls), ..PLAIN };

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "dead",
            about: "resets every connection at once: backed off, never anything else",
            connect: Connect::Reset,
            ..DEAD
        },
        Kind {
            name: "silent",
            about: "takes connections and requests and never says anything: timed out and backed off",
            connect: Connect::Silent,
            ..DEAD
        },
        Kind {
            name: "idle-close",
            about: "closes each connection at its second request without an answer: asked once more on a new connection, \
                    after the full delay, at no attempt's cost",
            twist: close_at_second,
            requests_max: |host| 2 * (u64::from(host.pages()) + 8),
            ..PLAIN
        },
        Kind {
            name: "short-lived",
            about: "says Connection: close and means it: every page on a connection of its own",
            twist: |_, reply| reply.after = After::Close,
            ..PLAIN
        },
        Kind {
            name: "shared",
            about: "eight hosts have one address: its delay and its limit hold for all of them together",
            share_address: 8,
            pages_max: 50,
            ..PLAIN
        },
        Kind {
            name: "neighbours",
            about: "the same, of any length",
            share_address: 8,
            in_all: false,
            ..PLAIN
        },
        Kind {
            name: "tls-expired",
            about: "certificate of 2019",
            certificate: Certificate::Expired,
            ..BAD_TLS
        },
        Kind {
            name: "tls-name",
            about: "certificate of another name",
            certificate: Certificate::WrongName,
            ..BAD_TLS
        },
        Kind {
            name: "tls-untrusted",
            about: "certificate of an authority nobody knows",
            certificate: Certificate::Untrusted,
            ..BAD_TLS
        },
        Kind {
            name: "tls-self",
            about: "certificate of itself",
            certificate: Certificate::SelfSigned,
            ..BAD_TLS
        },
        Kind {
            name: "tls-incomplete",
            about: "the intermediate certificate is not sent along",
            certificate: Certificate::Incomplete,
            ..BAD_TLS
        },
        Kind {
            name: "tls-old",
            about: "refuses current versions of TLS",
            connect: Connect::OldTls,
            ..BAD_TLS
        },
        Kind {
            name: "tls-garbage",
            about: "plain HTTP where TLS should be",
            connect: Connect::Garbage,
            ..BAD_TLS
        },
        Kind { name: "tls-close", about: "closes at the TLS hello", connect: Connect::CloseTls, ..BAD_TLS },
    ]
}

fn close_at_second(visit: &Visit<'_>, reply: &mut Reply) {
    if visit.nth_on_connection >= 2 {
        *reply = Reply::steps(Vec::new()).unsettled().then(After::Close);
    }
}
