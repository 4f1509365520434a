//! Dependencies point one way, and the core only computes.

use std::process::Command;

use serde_json::{Value, json};

use crate::sources::{code, is_word, root, rust, without_tests};

/// Which of our crates a crate may depend on. Tests may depend on any.
const LAYERS: &[(&str, &[&str])] = &[
    ("nephila-core", &[]),
    ("nephila-disk", &[]),
    ("nephila-store", &["nephila-core", "nephila-disk"]),
    ("nephila-archive", &["nephila-disk"]),
    ("nephila-node", &["nephila-store", "nephila-archive", "nephila-core", "nephila-disk"]),
    ("nephila-lab", &["nephila-node", "nephila-store", "nephila-archive", "nephila-core", "nephila-disk"]),
    ("nephila", &["nephila-node", "nephila-lab"]),
];

/// What the core may use of others: crates that turn bytes into bytes. Before a line is added here: does the crate read a
/// clock, open a socket or a file, start a thread, ask for random numbers, or need a runtime?
const CORE_USES: &[&str] = &[
    "crc",
    "encoding_rs",
    "hashbrown",
    "html5gum",
    "httpdate",
    "ipnet",
    "memchr",
    "psl",
    "quick-xml",
    "regex",
    "serde",
    "serde_bytes",
    "thiserror",
    "url",
    "xxhash-rust",
];

/// Something that the core must not mention: a path that starts with `std::`, or a word.
struct Ban {
    what: &'static str,
    why: &'static str,
}

const CLOCK: &str = "the time comes with the event";
const FILE: &str = "files are the disk's, and what is durable is asked for by an action";
const SOCKET: &str = "the network is the node's";
const THREAD: &str = "the core is one state machine on one thread, so that a run can be repeated";
const RUNTIME: &str = "the core is stepped, it never waits";
const PROCESS: &str = "settings are handed in, and what happens outside arrives as an event";
const OUTPUT: &str = "what there is to say leaves as an action or a status";
const CHANCE: &str = "the same seed must give the same run";

const BANS: &[Ban] = &[
    Ban { what: "std::time::Instant", why: CLOCK },
    Ban { what: "std::time::SystemTime", why: CLOCK },
    Ban { what: "Instant", why: CLOCK },
    Ban { what: "SystemTime", why: CLOCK },
    Ban { what: "std::fs", why: FILE },
    Ban { what: "std::path", why: FILE },
    Ban { what: "std::io", why: FILE },
    Ban { what: "std::os", why: FILE },
    Ban { what: "std::net::TcpListener", why: SOCKET },
    Ban { what: "std::net::TcpStream", why: SOCKET },
    Ban { what: "std::net::UdpSocket", why: SOCKET },
    Ban { what: "std::net::ToSocketAddrs", why: SOCKET },
    Ban { what: "TcpListener", why: SOCKET },
    Ban { what: "TcpStream", why: SOCKET },
    Ban { what: "UdpSocket", why: SOCKET },
    Ban { what: "to_socket_addrs", why: SOCKET },
    Ban { what: "std::thread", why: THREAD },
    Ban { what: "std::sync::Mutex", why: THREAD },
    Ban { what: "std::sync::RwLock", why: THREAD },
    Ban { what: "std::sync::Condvar", why: THREAD },
    Ban { what: "std::sync::Barrier", why: THREAD },
    Ban { what: "std::sync::mpsc", why: THREAD },
    Ban { what: "std::sync::atomic", why: THREAD },
    Ban { what: "Mutex", why: THREAD },
    Ban { what: "RwLock", why: THREAD },
    Ban { what: "thread_local", why: THREAD },
    Ban { what: "std::task", why: RUNTIME },
    Ban { what: "std::future", why: RUNTIME },
    Ban { what: "async", why: RUNTIME },
    Ban { what: "await", why: RUNTIME },
    Ban { what: "tokio", why: RUNTIME },
    Ban { what: "std::env", why: PROCESS },
    Ban { what: "std::process", why: PROCESS },
    Ban { what: "println", why: OUTPUT },
    Ban { what: "eprintln", why: OUTPUT },
    Ban { what: "print", why: OUTPUT },
    Ban { what: "eprint", why: OUTPUT },
    Ban { what: "std::hash::RandomState", why: CHANCE },
    Ban { what: "RandomState", why: CHANCE },
    Ban { what: "rand", why: CHANCE },
];

/// What is wrong with the dependencies that `cargo metadata` lists.
fn crossed(metadata: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for package in list(&metadata["packages"]) {
        let name = text(&package["name"]);
        let Some((_, may)) = LAYERS.iter().find(|(crate_name, _)| *crate_name == name) else {
            wrong.push(format!(
                "{name} is in no layer: a new crate needs a reason that a module does not meet"
            ));
            continue;
        };
        let dependencies = list(&package["dependencies"]);
        for used in dependencies.iter().filter(|used| used["kind"] != "dev").map(|used| text(&used["name"])) {
            if used.starts_with("nephila") {
                if !may.contains(&used.as_str()) {
                    wrong.push(format!("{name} must not depend on {used}"));
                }
            } else if name == "nephila-core" && !CORE_USES.contains(&used.as_str()) {
                wrong.push(format!("{name} must not use {used}, unless it only computes and is listed here"));
            }
        }
    }
    wrong
}

/// The bans that a source of the core breaks, with their lines. Comments, literals and tests are left out.
fn broken(text: &str) -> Vec<(usize, &'static Ban)> {
    let code = without_tests(&code(text));
    let line = |at: usize| code[..at].matches('\n').count() + 1;
    let mut found = Vec::new();
    for (at, word) in words(&code) {
        found.extend(BANS.iter().filter(|ban| ban.what == word).map(|ban| (line(at), ban)));
        if matches!(word, "std" | "core" | "alloc") && code[at + word.len()..].trim_start().starts_with("::")
        {
            let mut paths = Vec::new();
            use_tree(&code[at + word.len()..], "std", &mut paths);
            let hits = BANS.iter().filter(|ban| paths.iter().any(|path| reaches(path, ban.what)));
            found.extend(hits.map(|ban| (line(at), ban)));
        }
    }
    found
}

/// Whether a path is what is banned, something in it, or a module through which it could be reached unseen.
fn reaches(path: &str, banned: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    within(path, banned) || within(banned, path)
}

fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    code.split(|char| !is_word(char)).filter_map(move |word| {
        let start = code[at..].find(word).map_or(at, |skipped| at + skipped);
        at = start + word.len();
        (!word.is_empty()).then_some((start, word))
    })
}

/// Spells out the paths of `::a::{b, c::*}`, and returns what follows. Globs and `self` stand for the module itself.
fn use_tree<'a>(code: &'a str, prefix: &str, paths: &mut Vec<String>) -> &'a str {
    let Some(inner) = code.trim_start().strip_prefix("::").map(str::trim_start) else {
        paths.push(prefix.to_owned());
        return code;
    };
    if let Some(mut rest) = inner.strip_prefix('{') {
        loop {
            rest = branch(rest.trim_start(), prefix, paths).trim_start();
            match rest.strip_prefix(',') {
                Some(more) if !more.trim_start().starts_with('}') => rest = more,
                _ => return rest.split_once('}').map_or("", |(_, after)| after),
            }
        }
    }
    branch(inner, prefix, paths)
}

/// One branch of a use tree: a name, and what hangs on it.
fn branch<'a>(code: &'a str, prefix: &str, paths: &mut Vec<String>) -> &'a str {
    let name = &code[..code.find(|char| !is_word(char)).unwrap_or(code.len())];
    let rest = &code[name.len()..];
    match name {
        "" | "self" => {
            paths.push(prefix.to_owned());
            rest.strip_prefix('*').unwrap_or(rest)
        }
        name => {
            let rest = use_tree(rest, &format!("{prefix}::{name}"), paths);
            // A new name changes nothing.
            match rest.trim_start().strip_prefix("as ") {
                Some(renamed) => renamed.trim_start().trim_start_matches(is_word),
                None => rest,
            }
        }
    }
}

#[test]
fn dependencies_point_one_way() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root());
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    assert_eq!(metadata["packages"].as_array().map(Vec::len), Some(LAYERS.len()));
    let wrong = crossed(&metadata);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn crossing_a_layer_is_noticed() {
    for (package, used, kind, expected) in [
        ("nephila-core", "nephila-store", Value::Null, true),
        ("nephila-core", "tokio", Value::Null, true),
        ("nephila-core", "url", Value::Null, false),
        ("nephila-core", "serde_json", json!("dev"), false),
        ("nephila-core", "cc", json!("build"), true),
        ("nephila-disk", "nephila-core", Value::Null, true),
        ("nephila-archive", "nephila-core", Value::Null, true),
        ("nephila-store", "nephila-archive", Value::Null, true),
        ("nephila-node", "nephila-lab", Value::Null, true),
        ("nephila-node", "nephila-lab", json!("dev"), false),
        ("nephila-node", "tokio", Value::Null, false),
        ("nephila", "nephila-core", Value::Null, true),
        ("nephila-extra", "url", Value::Null, true),
    ] {
        let dependency = json!({ "name": used, "kind": kind });
        let metadata = json!({ "packages": [{ "name": package, "dependencies": [dependency] }] });
        assert_eq!(!crossed(&metadata).is_empty(), expected, "{package} -> {used} ({kind})");
    }
}

#[test]
fn the_core_only_computes() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for source in rust() {
        // Files of tests are declared under cfg(test) elsewhere.
        if !source.path.starts_with("crates/core/src/") || source.path.ends_with("/tests.rs") {
            continue;
        }
        count += 1;
        for (line, ban) in broken(&source.text) {
            wrong.push(format!("{}:{line}: {}: {}", source.path, ban.what, ban.why));
        }
    }
    assert!(count > 10, "the core has moved");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_ban_is_noticed() {
    for ban in BANS {
        let what = ban.what;
        let mut samples = vec![
            format!("fn f() {{ {what}(); }}"),
            format!("fn f() {{ {what}::new(1); }}"),
            format!("fn f() {{}}\nuse {what} as other;"),
        ];
        if let Some((module, name)) = what.rsplit_once("::") {
            samples.push(format!("use {module}::{{fmt, {name}}};"));
            samples.push(format!("use {module}::{{fmt::{{self, Display}}, {name} as other, cmp}};"));
            samples.push(format!("use {module}::*;"));
            samples.push(format!("use ::{module}::{{\n    fmt::*,\n    {name}::*,\n}};"));
        }
        for sample in samples {
            let found = broken(&sample);
            assert!(found.iter().any(|(_, found)| found.what == what), "{what} in {sample}");
            let hidden = [
                format!("// {what}\n/* {sample} */"),
                format!("fn f() {{ \"{what}\"; r#\"{what}\"#; }}"),
                format!("#[cfg(test)]\nmod tests {{ {sample} }}"),
            ];
            for text in hidden {
                assert!(broken(&text).is_empty(), "{text}");
            }
        }
    }
    assert_eq!(broken("a\n\nuse std::fs;").first().map(|(line, _)| *line), Some(3));
}

#[test]
fn what_only_computes_is_fine() {
    for text in [
        "use std::time::{Duration, UNIX_EPOCH};",
        "use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};",
        "use std::sync::Arc;",
        "use std::collections::{BTreeMap, HashMap, HashSet};",
        "use std::{cmp, fmt::{self, Write as _}, ops::Range};",
        "fn f(standard: u8, instant: u8, asynchronous: u8) -> std::fmt::Result { core::mem::take(&mut x) }",
    ] {
        let found: Vec<_> = broken(text).iter().map(|(_, ban)| ban.what).collect();
        assert!(found.is_empty(), "{text}: {found:?}");
    }
}
