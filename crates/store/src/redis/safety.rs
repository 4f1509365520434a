//! What a server's settings must be, so that nothing acknowledged is lost. Every server is asked before it is trusted with
//! anything.

use std::io;

use redis::{Value, cmd};

use super::cluster::ClusterOptions;
use super::link::{Link, LinkOptions};
use crate::{Error, Result};

/// A setting, what it may be, and why nothing else will do.
struct Rule {
    name: &'static str,
    allowed: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        name: "appendonly",
        allowed: &["yes"],
        why: "what is only in memory is lost when a server restarts",
    },
    Rule {
        name: "appendfsync",
        allowed: &["everysec", "always"],
        why: "a power cut would cost more than a second",
    },
    Rule {
        name: "no-appendfsync-on-rewrite",
        allowed: &["no"],
        why: "a power cut would cost all that was written during a rewrite",
    },
    Rule { name: "maxmemory-policy", allowed: &["noeviction"], why: "known URLs would be forgotten" },
    Rule {
        name: "cluster-replica-no-failover",
        allowed: &["no"],
        why: "what a primary served would be served by nobody when it ends",
    },
];

/// The same where servers are spoken to with TLS: the links between them carry as much.
const TLS_RULES: &[Rule] = &[
    Rule {
        name: "tls-cluster",
        allowed: &["yes"],
        why: "whoever reaches its cluster bus could change the cluster",
    },
    Rule {
        name: "tls-replication",
        allowed: &["yes"],
        why: "what a primary sends to its replica could be read on the way",
    },
    Rule { name: "port", allowed: &["0"], why: "whoever connects there is spoken to without TLS" },
];

/// Refuses servers whose settings are not safe, and says which line of which to change.
pub(super) fn check(servers: &[(String, bool)], options: &ClusterOptions) -> Result<()> {
    let (mut wrong, mut lacking) = (Vec::new(), Vec::new());
    for (node, is_primary) in servers {
        let found = check_server(node, *is_primary, options, &mut wrong);
        lacking.extend(found.map_err(|error| Error::of_server(node, &error))?);
    }
    let may_pass = wrong.is_empty();
    wrong.append(&mut lacking);
    if wrong.is_empty() { Ok(()) } else { Err(Error::Unsafe { wrong, may_pass }) }
}

/// Adds what is wrong with the settings of a server. Says what it lacks.
fn check_server(
    node: &str,
    is_primary: bool,
    options: &ClusterOptions,
    wrong: &mut Vec<String>,
) -> io::Result<Option<String>> {
    let mut link = Link::connect(node, &options.link)?;
    let is_private = options.link.tls.is_some() && !options.link.accepts_plain;
    let tls_rules = if is_private { TLS_RULES } else { &[] };
    for Rule { name, allowed, why } in RULES.iter().chain(tls_rules) {
        let is = setting(&mut link, name)?;
        if !allowed.contains(&is.as_str()) {
            wrong.push(format!("{node} has `{name} {is}` and needs `{name} {}`: {why}", allowed[0]));
        }
    }
    if is_private && options.link.login.is_some() && obeys_anybody(node, options)? {
        wrong.push(format!("{node} obeys whoever does not log in, and needs `user default off`"));
    }
    let info = text(link.ask(cmd("CLUSTER").arg("INFO"))?)?;
    if !info.lines().any(|line| line == "cluster_slots_assigned:16384") {
        wrong.push(format!("{node} is in a cluster that does not serve all slots: add the missing ones"));
    }
    if is_primary {
        let info = text(link.ask(cmd("INFO").arg("replication"))?)?;
        let online = info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online"));
        let (online, needed) = (online.count(), options.replicas as usize);
        if online < needed {
            return Ok(Some(format!("{node} has {online} replicas in step and needs {needed}: add some")));
        }
    }
    Ok(None)
}

/// Whether a server does what it is told without a login.
fn obeys_anybody(node: &str, options: &ClusterOptions) -> io::Result<bool> {
    // What is asked is no secret.
    let nobody = LinkOptions { login: None, accepts_plain: true, ..options.link.clone() };
    let answer = Link::connect(node, &nobody)?.ask(&cmd("PING"))?;
    Ok(!matches!(answer, Value::ServerError(_)))
}

fn setting(link: &mut Link, name: &str) -> io::Result<String> {
    match link.ask(cmd("CONFIG").arg("GET").arg(name))? {
        Value::ServerError(error) => {
            let why = format!("its settings cannot be read ({}): allow `+config|get`", error.code());
            Err(io::Error::other(why))
        }
        // Older servers lack some settings, and have what they name.
        Value::Array(found) if found.is_empty() => Ok("no".to_owned()),
        Value::Array(mut found) => found.pop().map_or_else(|| Ok(String::new()), text),
        other => Err(io::Error::other(format!("{other:?} is no setting"))),
    }
}

/// An answer that is a text.
pub(super) fn text(answer: Value) -> io::Result<String> {
    match answer {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(io::Error::other),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Ok(text),
        Value::ServerError(error) => Err(io::Error::other(format!("it answers {}", error.code()))),
        other => Err(io::Error::other(format!("{other:?} is no text"))),
    }
}
