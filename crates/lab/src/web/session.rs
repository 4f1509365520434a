//! What all ways to speak HTTP have in common: who is asked on a connection, how that is judged and what is answered.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use xxhash_rust::xxh3::Xxh3;

use super::{
    control,
    judge::{Arrival, Departure, Violation},
    kinds::Connect,
    plan::{Host, Visit},
    reply::{After, Reply, RobotsSays, Step},
    server::{CONTROL_NAME, Server},
};

/// A request, as far as it matters here.
pub(super) struct Request {
    /// Path and query.
    pub target: String,
    /// The name of the host, in lower case and without a port.
    pub name: String,
    /// Whether it carries a cookie.
    pub cookie: bool,
}

/// One connection's side of the conversation.
pub(super) struct Session {
    pub server: Arc<Server>,
    pub local: Ipv4Addr,
    /// Who asks.
    peer: IpAddr,
    https: bool,
    requests: u32,
    /// The host that the first request was for; connections must not be shared between hosts.
    host: Option<u64>,
}

/// What is to be done about a request.
pub(super) struct Answering {
    /// What is said, pauses included.
    pub steps: Vec<Step>,
    /// What is to become of the connection.
    pub after: After,
    /// Who has to be told of the end, and what the answer means.
    judged: Option<(Arrival, Reply)>,
}

/// What came of an answer.
#[derive(Default)]
pub(super) struct Played {
    last_write: Option<u64>,
    bytes: u64,
    hash: Xxh3,
    /// The whole answer was handed over.
    pub whole: bool,
}

impl Played {
    /// These bytes were written; `before` is just before that.
    pub(super) fn wrote(&mut self, bytes: &[u8], before: u64) {
        self.last_write = Some(before);
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }
}

impl Session {
    pub(super) fn new(server: Arc<Server>, (local, peer): (Ipv4Addr, IpAddr), https: bool) -> Session {
        Session { server, local, peer, https, requests: 0, host: None }
    }

    /// A request whose first byte was read at `arrived`: has it judged, and finds the answer.
    pub(super) fn begin(&mut self, request: &Request, arrived: u64) -> Answering {
        self.requests += 1;
        let server = Arc::clone(&self.server);
        let host = server.plan.by_name(&request.name);
        let is_control = request.name == CONTROL_NAME
            || request.name == "localhost"
            || host.is_none() && request.name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if is_control {
            let steps = control::answer(&server, &request.target).steps;
            return Answering { steps, after: After::Keep, judged: None };
        }
        let Some(host) = host else {
            server.judge().violate(Violation::Unknown, || format!("{}: no such host", request.name));
            let steps = Reply::new(404, "text/plain", b"no such host\n").steps;
            return Answering { steps, after: After::Close, judged: None };
        };
        self.check_connection(&host);
        let (arrival, mut reply) = self.judge(&host, request, arrived);
        if host.kind.connect == Connect::Silent {
            reply = Reply::steps(vec![Step::Stall]).says(RobotsSays::Unreachable);
        }
        let ways = if self.requests == 1 { 2 } else { 1 };
        let latency = host.latency() + host.distance(self.peer) * ways;
        let mut steps = std::mem::take(&mut reply.steps);
        if latency > Duration::ZERO {
            steps.insert(0, Step::Pause(latency));
        }
        Answering { steps, after: reply.after, judged: Some((arrival, reply)) }
    }

    fn check_connection(&mut self, host: &Host<'_>) {
        let first = *self.host.get_or_insert(host.key());
        if first != host.key() {
            let why = || format!("{}: on a connection of another host", host.name());
            self.server.judge().violate(Violation::Malformed, why);
        }
        if host.address() != self.local {
            let why = || format!("{}: at {}, not at its address", host.name(), self.local);
            self.server.judge().violate(Violation::Malformed, why);
        }
    }

    fn judge(&self, host: &Host<'_>, request: &Request, arrived: u64) -> (Arrival, Reply) {
        let target = host.resolve(self.https, &request.target);
        let arrival = Arrival {
            now: arrived,
            host: host.key(),
            kind: host.kind_index,
            address: u32::from(self.local),
            https: self.https,
            url: target.key,
            rule: target.rule,
        };
        let name = || format!("{}{}", host.origin_as(self.https), request.target);
        let mut judge = self.server.judge();
        let attempt = judge.arrive(&arrival, &name);
        if request.cookie && !host.kind.takes_cookies {
            judge.violate(Violation::Cookies, name);
        }
        drop(judge);
        let visit = Visit {
            host: *host,
            target: &request.target,
            attempt,
            nth_on_connection: self.requests,
            cookie: request.cookie,
        };
        (arrival, host.answer(&target, &visit))
    }
}

impl Answering {
    /// The answer was given, as far as the client stayed for it. Returns what becomes of the connection.
    pub(super) fn end(self, server: &Server, played: &Played) -> After {
        if let Some((arrival, reply)) = self.judged {
            let end = played.last_write.unwrap_or(arrival.now);
            let departure = Departure {
                last_write: played.last_write,
                whole: played.whole,
                bytes: played.bytes,
                digest: played.hash.digest(),
                settles: reply.settles,
                url_failed: reply.url_failed,
                robots: reply.robots,
                not_before: server.not_before(reply.wait, end),
            };
            server.judge().depart(&arrival, &departure);
        }
        if played.whole { self.after } else { After::Close }
    }
}
