//! The command line as people meet it: what it refuses, what it says, and how it ends. Nothing here leaves the machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything here may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program, in a directory of its own, with nobody's configuration.
fn nephila(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nephila"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command.env_remove("NEPHILA_CONTACT").env("XDG_CONFIG_HOME", dir.join("user"));
    command
}

fn run(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    said(nephila(dir, args).output().expect("the program was built for this test"))
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what it says is text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A web server that answers every request with one page, from a thread that ends with the process.
fn server(page: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = std::io::BufReader::new(stream);
            let mut line = String::new();
            while std::io::BufRead::read_line(&mut reader, &mut line).is_ok_and(|count| count > 2) {
                line.clear();
            }
            let body = format!("Content-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}", page.len());
            let _ = write!(reader.get_mut(), "HTTP/1.1 200 OK\r\nConnection: close\r\n{body}");
        }
    });
    format!("http://{address}/")
}

/// Ends a process when the test does, however it does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} has not happened");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    fs::write(dir.join("bad.toml"), "delya = 1\nmax-depth = \"deep\"\n").unwrap();
    fs::write(dir.join("bad.txt"), "https://a.test/\nftp://b.test/\n").unwrap();
    fs::write(dir.join("letter"), "dear").unwrap();
    // What is typed, and what standard error must contain.
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["Usage"]),
        (&["dance"], &["unrecognized subcommand"]),
        (&["crawl"], &["nothing to start from", "nephila crawl https://example.org/"]),
        (
            &["crawl", "https://example.org/"],
            &["nephila crawl https://example.org/ --contact you@example.org"],
        ),
        (&["crawl", "http://a.test/", "--delay", "soon"], &["--delay: \"soon\" is not a duration"]),
        (&["crawl", "http://a.test/", "--delay"], &["a value is required"]),
        (&["crawl", "http://a.test/", "--max-pages", "-1"], &["--max-pages: \"-1\" is not a whole number"]),
        (&["crawl", "http://a.test/", "--delay", "-1s"], &["--delay: \"-1s\" is not a duration"]),
        (&["crawl", "https:/a.test/"], &["does not start as a URL does"]),
        (&["crawl", "ftp://a.test/"], &["only http and https"]),
        (&["crawl", "--seeds", "bad.txt"], &["line 2", "ftp"]),
        (&["crawl", "--seeds", "none.txt"], &["cannot read", "none.txt"]),
        (&["crawl", "http://a.test/", "--config", "none.toml"], &["none.toml: cannot be read"]),
        (&["crawl", "http://a.test/", "--out", "."], &["is not a crawl"]),
        (&["crawl", "http://a.test/", "--fresh", "--out", "."], &["is not a crawl"]),
        (&["crawl", "--out", "nowhere"], &["nowhere to go on with", "a URL to begin one"]),
        (&["status"], &["no crawl below the current directory"]),
        (&["status", "--out", "nowhere"], &["no crawl in nowhere"]),
        (&["status", "--foo"], &["--foo: unknown flag"]),
        (&["status", "--out", "letter"], &["letter is a file"]),
        (&["why", "not a url"], &["\"not a url\" is not a URL"]),
        (&["show", "http//a.test"], &["does not start as a URL does"]),
        (&["block", "https://a.test/x"], &["cannot be blocked"]),
        (&["block", "127.1.0.0/16"], &["only single addresses can be blocked"]),
        (&["hosts", "--limit", "all", "--out", "."], &["--limit"]),
        // All at once, from flags and file.
        (
            &["crawl", "http://a.test/", "--dealy", "3s", "--config", "bad.toml", "--scope", "moon", "--foo"],
            &[
                "5 mistakes",
                "--dealy: unknown flag; --delay is one",
                "--foo",
                "bad.toml: delya",
                "max-depth",
                "moon",
            ],
        ),
    ];
    for (args, expected) in cases {
        let (code, out, error) = run(dir, args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {error}");
        for part in *expected {
            assert!(error.contains(part), "{args:?} lacks {part:?}:\n{error}");
        }
    }
    let mut left: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["bad.toml", "bad.txt", "letter"]);
}

#[test]
fn flags_of_later_versions_are_unknown() {
    let temporary = tempfile::tempdir().unwrap();
    for flag in [
        "--proxy=x",
        "--cookies=x",
        "--auth=x",
        "--assets",
        "--tls=lenient",
        "--obey-noarchive",
        "--per-host=2",
        "--rescope",
    ] {
        let (code, _, error) = run(temporary.path(), &["crawl", "http://a.test/", flag]);
        assert_eq!(code, Some(2));
        assert!(error.contains("unknown flag"), "{flag}: {error}");
    }
    let (code, _, error) = run(temporary.path(), &["crawl", "http://a.test/", "--compress", "brotli"]);
    assert!(code == Some(2) && error.contains("use gzip, zstd or none"), "{error}");
}

#[test]
fn a_dry_run_makes_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let args = ["crawl", "http://a.test/", "--scope", "domain", "--delay", "2s", "--dry-run"];
    let (code, out, error) = run(dir, &args);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    for part in [
        "a new crawl in nephila-a.test",
        "all names in a.test",
        "delay = \"2s\"",
        "Mozilla/5.0",
        "http://a.test/",
    ] {
        assert!(out.contains(part), "{out}");
    }
    let mut args = args.to_vec();
    args.push("--json");
    let (code, out, _) = run(dir, &args);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["start"], &json["settings"]["delay"]), (Some(0), &"new".into(), &"2s".into()));
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn a_contact_can_come_from_everywhere() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let crawl = ["crawl", "https://example.org/", "--dry-run"];
    let from_variable =
        |value: &str| said(nephila(dir, &crawl).env("NEPHILA_CONTACT", value).output().unwrap());
    let (code, out, _) = from_variable("env@example.org");
    assert!(code == Some(0) && out.contains("+env@example.org)"), "{out}");
    let (code, _, error) = from_variable("nobody");
    assert!(code == Some(2) && error.contains("NEPHILA_CONTACT"), "{error}");
    fs::create_dir_all(dir.join("user/nephila")).unwrap();
    fs::write(dir.join("user/nephila/config.toml"), "contact = \"https://example.org/us\"\n").unwrap();
    let (code, out, _) = run(dir, &crawl);
    assert!(code == Some(0) && out.contains("+https://example.org/us)"), "{out}");
    fs::write(dir.join("user/nephila/config.toml"), "delay = 1\n").unwrap();
    let (code, _, error) = run(dir, &crawl);
    assert!(code == Some(2) && error.contains("holds contact only"), "{error}");
    fs::remove_dir_all(dir.join("user")).unwrap();

    // A wrong one is one mistake; a missing one among others comes without a command that would not work either.
    let (code, _, error) = run(dir, &["crawl", "https://example.org/", "--contact", "me"]);
    assert!(
        code == Some(2) && error.contains("neither an email address") && !error.contains("mistakes"),
        "{error}"
    );
    let (code, _, error) = run(dir, &["crawl", "https://example.org/", "--delay", "soon"]);
    assert!(code == Some(2) && error.contains("2 mistakes") && !error.contains("Run"), "{error}");
    // Nothing is sent by a dry run, so that it needs none.
    let (code, out, _) = run(dir, &crawl);
    assert!(code == Some(0) && out.contains("a contact will be needed: --contact"), "{out}");
    let (_, out, _) = run(dir, &[&crawl[..], &["--json"]].concat());
    assert!(out.contains("\"contact_needed\":true"), "{out}");
}

#[test]
fn seeds_from_standard_input() {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = nephila(temporary.path(), &["crawl", "--seeds", "-", "--dry-run", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || {
        for number in 0..100_000 {
            writeln!(input, "http://h{}.test/{number}", number % 1_000).unwrap();
        }
    });
    let (code, out, _) = said(child.wait_with_output().unwrap());
    writing.join().unwrap();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["seeds"]), (Some(0), &100_000.into()));
}

#[test]
fn help_and_reference() {
    let temporary = tempfile::tempdir().unwrap();
    let (code, short, _) = run(temporary.path(), &["crawl", "-h"]);
    assert!(code == Some(0) && short.contains("--delay") && !short.contains("--backoff-min"));
    let (code, long, _) = run(temporary.path(), &["crawl", "--help"]);
    assert!(code == Some(0) && long.contains("--backoff-min"));
    let (code, reference, _) = run(temporary.path(), &["config", "--reference"]);
    let written = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    assert!(code == Some(0) && reference == fs::read_to_string(written).unwrap());
}

#[cfg(feature = "lab")]
#[test]
fn a_web_and_its_verdict() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let (code, out, _) = run(dir, &["lab", "web", "--list-kinds"]);
    assert!(code == Some(0) && out.contains("plain ") && out.lines().count() > 20, "{out}");
    for (wrong, part) in [(["--hosts", "0"], "hosts must be"), (["--kinds", "moon"], "--list-kinds")] {
        let (code, _, error) = run(dir, &[&["lab", "web"], &wrong[..]].concat());
        assert!(code == Some(2) && error.contains(part), "{error}");
    }
    for (json, part) in [(false, "nobody has asked for anything\n"), (true, "\"coverage\":0.0")] {
        let mut args = vec!["lab", "web", "--hosts", "3", "--dir", if json { "json" } else { "text" }];
        args.extend(json.then_some("--json"));
        let mut command = nephila(dir, &args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut web = Running(child);
        // Written once it listens for its end.
        let seeds = dir.join(args[5]).join("seeds.txt");
        wait_until("a web that is served", || {
            fs::read_to_string(&seeds).is_ok_and(|text| text.ends_with('\n'))
        });
        let killed = Command::new("kill").args(["-INT", &web.0.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let mut out = String::new();
        std::io::Read::read_to_string(&mut web.0.stdout.take().unwrap(), &mut out).unwrap();
        assert_eq!(web.0.wait().unwrap().code(), Some(0), "{out}");
        assert!(out.contains(part) && out.starts_with('{') == json, "{out}");
    }
}

/// A crawl of one page, from its beginning to starting over.
#[test]
fn a_crawl_and_what_can_be_asked_of_it() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let url = server("<a href='https://elsewhere.test/'>x</a><a href='/'>y</a>");
    let crawl = ["crawl", &url, "--allow-private", "--out", "one", "--json"];
    let (code, out, error) = run(dir, &crawl);
    assert_eq!(code, Some(0), "{error}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["stop_reason"], &json["pages"]), (&"finished".into(), &1.into()), "{json}");
    assert!(error.contains("scope: the name 127.0.0.1"), "{error}");
    assert!(error.contains("1 link was out of scope") && error.contains("--scope domain"), "{error}");

    let (code, out, error) = run(dir, &crawl);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["run"]["requests"], &json["pages"]), (Some(0), &0.into(), &1.into()), "{json}");
    assert!(error.contains("--fresh"), "{error}");
    let (code, _, error) = run(dir, &[&crawl[..], &["--scope", "any"]].concat());
    assert!(code == Some(2) && error.contains("scope: \"site\" there, \"any\" here"), "{error}");

    let asked = |args: &[&str], part: &str| {
        let (code, out, error) = run(dir, args);
        assert!(code == Some(0) && out.contains(part), "{args:?}: {out}{error}");
    };
    asked(&["status"], "finished after");
    asked(&["status", "--json"], "\"state\":\"finished\"");
    asked(&["why", &url], "status 200");
    asked(&["why", "https://elsewhere.test/"], "out of scope");
    asked(&["hosts"], "127.0.0.1");
    asked(&["show", &url], "<a href='/'>y</a>");
    asked(&["config"], "allow-private = \"all\"");
    asked(&["block"], "nothing is blocked\n");
    asked(&["hosts", "127.0.0.1", "--json"], "\"hosts_total\":1,");
    asked(&["hosts", "elsewhere.test", "--json"], "\"hosts_total\":0,");
    asked(&["block", "127.0.0.1"], "blocked 127.0.0.1\n");
    asked(&["why", &url], "nothing more is asked of its host: blocked by 127.0.0.1\n");
    asked(&["block", "Sub.Elsewhere.test"], "blocked sub.elsewhere.test\n");
    asked(&["block"], "127.0.0.1\nsub.elsewhere.test\n");
    asked(&["unblock", "127.0.0.1", "--json"], "{\"done\":true,\"schema\":1}");
    asked(&["block", "--json"], "{\"blocks\":[\"sub.elsewhere.test\"],\"everywhere\":{},\"schema\":1}");
    for args in
        [&["stop"][..], &["pause"], &["show", "https://elsewhere.test/"], &["unblock", "elsewhere.test"]]
    {
        assert_eq!(run(dir, args).0, Some(1), "{args:?}");
    }
    let (_, _, error) = run(dir, &["unblock", "127.0.0.1"]);
    assert!(error.contains("127.0.0.1 is not blocked; blocked: sub.elsewhere.test"), "{error}");

    let (code, _, error) = run(dir, &[&crawl[..], &["--fresh", "--quiet"]].concat());
    assert_eq!((code, error.as_str()), (Some(0), ""));
    // What was set aside is not meant.
    asked(&["status"], "finished after");
    // Another seed first means another directory; whoever did not mean that is told.
    let (_, out, _) = run(dir, &["crawl", "http://a.test/", &url, "--dry-run"]);
    assert!(out.contains("in nephila-a.test\nnote: the crawl in one has one of these seeds"), "{out}");
}

/// A crawl that runs, asked and told over its socket.
#[test]
fn a_running_crawl_listens() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let url = server("<a href='/1'>1</a><a href='/2'>2</a><a href='/3'>3</a>");
    let crawl = ["crawl", &url, "--allow-private", "--delay", "1h", "--max-wait", "2h", "--out", "one"];
    let mut running =
        Running(nephila(dir, &crawl).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("a crawl that listens", || dir.join("one/control.sock").exists());
    let asked = |args: &[&str], part: &str| {
        let (code, out, error) = run(dir, args);
        assert!(code == Some(0) && out.contains(part), "{args:?}: {out}{error}");
    };
    asked(&["status", "--json"], "\"state\":\"running\"");
    let (code, _, error) = run(dir, &crawl);
    assert!(code == Some(1) && error.contains(&format!("process {}", running.0.id())), "{error}");
    asked(&["pause"], "paused; `nephila resume` goes on\n");
    asked(&["status"], "paused after");
    asked(&["block", "127.0.0.1"], "blocked 127.0.0.1\n");
    asked(&["block"], "127.0.0.1\n");
    let (code, _, error) = run(dir, &["unblock", "127.0.0.2"]);
    assert!(code == Some(1) && error.contains("127.0.0.2 is not blocked"), "{error}");
    // With its only host blocked it would have nothing to wait for.
    asked(&["unblock", "127.0.0.1"], "unblocked 127.0.0.1\n");
    asked(&["resume"], "resumed\n");
    asked(&["why", &format!("{url}1")], url.as_str());
    // Whether the answer is heard before the process ends is a matter of the socket, and tested there.
    run(dir, &["stop"]);
    wait_until("the end", || running.0.try_wait().unwrap().is_some());
    assert_eq!(running.0.wait().unwrap().code(), Some(3));
    assert!(!dir.join("one/control.sock").exists());
    asked(&["status"], ": `nephila stop` asked for it\n");
    asked(&["status", "--json"], "\"stop_reason\":\"stopped\"");
}

/// Whoever stops a crawl off a terminal hears what it waits for, and whoever pauses it then that it is too late.
#[test]
fn a_crawl_that_ends_says_so() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    // Who connects waits for an answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let args = ["crawl", &url, "--allow-private", "--out", "one"];
    let mut crawl = Running(nephila(dir, &args).stderr(Stdio::piped()).spawn().unwrap());
    wait_until("a request in flight", || run(dir, &["status", "--json"]).1.contains("\"in_flight\":1,"));
    assert_eq!(run(dir, &["stop"]).0, Some(0));
    for word in ["pause", "resume"] {
        let (code, _, error) = run(dir, &[word]);
        assert!(code == Some(1) && error.contains("the crawl is ending"), "{error}");
    }
    let said = std::io::BufReader::new(crawl.0.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(said).map_while(Result::ok);
    assert!(lines.any(|line| line == "stopping: 1 request in flight, settled first"));
}

/// Agents of a site are told the same, or do not crawl together.
#[test]
fn an_agent_with_other_seeds_is_not_let_in() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    assert_eq!(run(dir, &["ca", "--out", "ca", "--site", "paris", "a", "b"]).0, Some(0));
    // The two are bound at the same time, so that they differ.
    let ports = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [a, b] = ports.each_ref().map(|port| port.local_addr().unwrap().to_string());
    drop(ports);
    let file = |name: &str, listen: &str, path: &str| {
        let text = format!(
            "urls = [\"http://127.0.0.1:1/{path}\"]\nallow-private = \"all\"\npeers = [\"{a}\"]\nidentity = \"ca/agents/{name}\"\n\
             listen = \"{listen}\"\nout = \"{name}\"\n"
        );
        fs::write(dir.join(format!("{name}.toml")), text).unwrap();
    };
    file("a", &a, "");
    file("b", &b, "other");
    let agent = nephila(dir, &["agent", "--config", "a.toml"]).stderr(Stdio::piped()).spawn();
    let mut agent = Running(agent.unwrap());
    let site = || run(dir, &["site", "status", "--out", "a"]);
    wait_until("a site that has begun", || site().1.contains("well (this one)"));
    let (code, _, error) = run(dir, &["agent", "--config", "b.toml"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("error: the site does not let this agent in: agent a ("), "{error}");
    assert!(error.contains("make equal for all agents: the seeds (urls, seeds)\n"), "{error}");
    assert!(site().1.contains("agent b (") && !site().1.contains("silent"), "{}", site().1);
    let (code, out, _) = run(dir, &["site", "status", "--out", "b"]);
    assert_eq!((code, out.as_str()), (Some(0), "nothing runs there; the site had not begun\n"));
    assert_eq!(run(dir, &["stop", "--out", "a"]).0, Some(0));
    wait_until("the end", || agent.0.try_wait().unwrap().is_some());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut agent.0.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(said.matches(" is not let in: it has other settings than this agent").count(), 1, "{said}");
    let (code, out, _) = site();
    assert!(code == Some(0) && out.starts_with("nothing runs there; what this agent knew last"), "{out}");
    // Others may run, and hear nothing of what is said here.
    for (question, words) in [("status", "what it knew last"), ("block", "hear of this when it does")] {
        let mut args = vec![question, "--out", "a"];
        args.extend((question == "block").then_some("a.example"));
        let (code, _, error) = run(dir, &args);
        assert!(code == Some(0) && error.contains(words), "{question}: {error}");
    }
    // A file that has another scope than the agent began with.
    let text = fs::read_to_string(dir.join("a.toml")).unwrap();
    fs::write(dir.join("a.toml"), format!("scope = \"domain\"\n{text}")).unwrap();
    let (code, _, error) = run(dir, &["agent", "--config", "a.toml"]);
    assert!(code == Some(2) && error.contains("write in the agent's file what is there"), "{error}");
}

/// Agents of a site in a directory, with their files.
struct Moving<'a> {
    dir: &'a Path,
    running: Vec<(String, Running)>,
}

impl Moving<'_> {
    /// Starts an agent with the certificate of `name` and the directory `out`.
    fn start(&mut self, (name, out): (&str, &str), listen: &str, peers: &[&str]) {
        let text = format!(
            "urls = [\"http://127.0.0.1:1/\"]\nallow-private = \"all\"\npeers = {peers:?}\nidentity = \"ca/agents/{name}\"\n\
             listen = {listen:?}\nout = {out:?}\n"
        );
        fs::write(self.dir.join(format!("{out}.toml")), text).unwrap();
        let mut agent = nephila(self.dir, &["agent", "--config", &format!("{out}.toml")]);
        self.running.push((out.to_owned(), Running(agent.stderr(Stdio::piped()).spawn().unwrap())));
    }

    fn stop(&mut self, out: &str) {
        assert_eq!(run(self.dir, &["stop", "--out", out]).0, Some(0));
        let index = self.running.iter().position(|(of, _)| of == out).unwrap();
        let (_, mut agent) = self.running.remove(index);
        wait_until("the end", || agent.0.try_wait().unwrap().is_some());
    }

    fn site(&self, out: &str) -> String {
        run(self.dir, &["site", "status", "--out", out]).1
    }

    /// Waits until all that run see each other well at these addresses.
    fn wait_well(&self, addresses: &[&str]) {
        for (out, _) in &self.running {
            wait_until("agents that see each other", || {
                let site = self.site(out);
                let is_well = |at: &&str| {
                    site.lines().any(|line| line.contains(&format!(" {at} ")) && line.contains("  well"))
                };
                addresses.iter().all(is_well) && !site.contains("silent")
            });
        }
    }
}

/// Addresses that nobody listens at: all are bound at the same time, so that they differ.
fn free_addresses<const COUNT: usize>() -> [String; COUNT] {
    let ports = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    ports.each_ref().map(|port| port.local_addr().unwrap().to_string())
}

/// An agent may be started at another address, and so may all of them at once.
#[test]
fn agents_move_to_other_addresses() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    assert_eq!(run(dir, &["ca", "--out", "ca", "--site", "paris", "a", "b"]).0, Some(0));
    let addresses: [String; 5] = free_addresses();
    let [a, b, b_moved, a_last, b_last] = addresses.each_ref().map(String::as_str);
    let mut site = Moving { dir, running: Vec::new() };
    site.start(("a", "a"), a, &[a, b]);
    site.start(("b", "b"), b, &[a, b]);
    site.wait_well(&[a, b]);
    site.stop("b");
    site.start(("b", "b"), b_moved, &[a, b]);
    site.wait_well(&[a, b_moved]);
    assert!(!site.site("a").contains(b), "{}", site.site("a"));
    site.stop("a");
    site.stop("b");
    // With the certificate of another, nobody would listen to it.
    let mixed = fs::read_to_string(dir.join("b.toml")).unwrap().replace("ca/agents/b", "ca/agents/a");
    fs::write(dir.join("mixed.toml"), mixed).unwrap();
    let (code, _, error) = run(dir, &["agent", "--config", "mixed.toml"]);
    assert!(code == Some(2) && error.contains("is that of agent b of its site, and"), "{error}");
    site.start(("a", "a"), a_last, &[a_last, b_last]);
    site.start(("b", "b"), b_last, &[a_last, b_last]);
    site.wait_well(&[a_last, b_last]);
}

/// Two agents of one name do not crawl side by side; but one takes the place of one that has lost its disk.
#[test]
fn a_second_agent_of_a_name_is_not_let_in() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    assert_eq!(run(dir, &["ca", "--out", "ca", "--site", "paris", "a", "b"]).0, Some(0));
    let addresses: [String; 3] = free_addresses();
    let [a, b, b_again] = addresses.each_ref().map(String::as_str);
    let mut site = Moving { dir, running: Vec::new() };
    site.start(("a", "a"), a, &[a, b]);
    site.start(("b", "b"), b, &[a, b]);
    site.wait_well(&[a, b]);
    site.start(("b", "again"), b_again, &[a, b]);
    wait_until("a word to those that are there", || {
        ["a", "b"].iter().all(|out| site.site(out).contains("another agent b ("))
    });
    let (_, mut again) = site.running.pop().unwrap();
    wait_until("the end", || again.0.try_wait().unwrap().is_some());
    assert_eq!(again.0.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut again.0.stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("error: the site does not let this agent in: it has an agent b ("), "{said}");
    assert!(said.contains(&format!("which is at work at {b}.")), "{said}");
    let status = site.site("a");
    let old = status.lines().find(|line| line.starts_with("b ")).unwrap().split_whitespace().nth(1).unwrap();
    site.stop("b");
    fs::remove_dir_all(dir.join("b")).unwrap();
    site.start(("b", "b"), b, &[a]);
    wait_until("an agent in its place", || site.site("b").contains("well (this one)"));
    wait_until("an old agent that may be forgotten", || {
        run(dir, &["site", "forget", old, "--out", "a"]).0 == Some(0)
    });
    wait_until("one agent of the name", || {
        let site = site.site("a");
        let lines: Vec<&str> = site.lines().filter(|line| line.starts_with("b ")).collect();
        let is =
            |line: &&str, state: &str| line.contains(old) == (state == "forgotten") && line.ends_with(state);
        lines.len() == 2 && ["well", "forgotten"].iter().all(|state| lines.iter().any(|line| is(line, state)))
    });
}

/// Where a process says that its figures are. What else it says has to be kept open.
fn figures_of(process: &mut Running) -> (impl Iterator<Item = String>, String) {
    let said = std::io::BufReader::new(process.0.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(said).map_while(Result::ok);
    let address = lines
        .find_map(|line| Some(line.strip_prefix("figures: http://")?.strip_suffix("/metrics")?.to_owned()));
    (lines, address.expect("it says where the figures are"))
}

#[test]
fn figures_are_served_while_it_runs() {
    let temporary = tempfile::tempdir().unwrap();
    // Who connects waits for an answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let args = ["crawl", &url, "--allow-private", "--metrics", "127.0.0.1:0"];
    let child = nephila(temporary.path(), &args).stderr(Stdio::piped()).spawn().unwrap();
    let mut crawl = Running(child);
    let (_lines, address) = figures_of(&mut crawl);
    wait_until("a request in flight", || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut figures = String::new();
        std::io::Read::read_to_string(&mut stream, &mut figures).unwrap();
        assert!(figures.contains("\nnephila_pages_total 0\n"), "{figures}");
        figures.contains("\nnephila_requests_in_flight 1\n")
    });
    let args = ["crawl", "http://127.0.0.1:1/", "--out", "other", "--metrics", &address];
    let (code, _, error) = run(temporary.path(), &args);
    assert!(code == Some(1) && error.contains("choose another address with --metrics"), "{error}");
}

#[test]
fn an_agent_serves_figures_too() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    assert_eq!(run(dir, &["ca", "--out", "ca", "--site", "paris", "a"]).0, Some(0));
    // The flag wins: nobody else can listen where the file says.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "urls = [\"http://127.0.0.1:1/\"]\nallow-private = \"all\"\nidentity = \"ca/agents/a\"\nlisten = \"{free}\"\n\
         out = \"a\"\nmetrics = \"{}\"\n",
        taken.local_addr().unwrap()
    );
    fs::write(dir.join("a.toml"), text).unwrap();
    let args = ["agent", "--config", "a.toml", "--metrics", "127.0.0.1:0"];
    let mut agent = Running(nephila(dir, &args).stderr(Stdio::piped()).spawn().unwrap());
    let (_lines, address) = figures_of(&mut agent);
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut figures = String::new();
    std::io::Read::read_to_string(&mut stream, &mut figures).unwrap();
    assert!(figures.contains("\nnephila_pages_total 0\n"), "{figures}");
}

#[test]
fn certificates_of_a_site() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let ca = ["ca", "--out", "site", "--site", "paris"];
    let with = |more: &[&str]| run(dir, &[&ca[..], more].concat());
    let (code, out, error) = with(&["a", "b"]);
    assert!(code == Some(0) && error.is_empty(), "{error}");
    for part in [
        "made the authority of site paris in site/ca, valid until 20",
        "made agent a in site/agents/a, valid until 20",
    ] {
        assert!(out.contains(part), "{out}");
    }
    assert!(out.contains("identity = \"/etc/nephila/b\""), "{out}");
    let key = fs::read(dir.join("site/agents/a/agent.key")).unwrap();
    let (code, out, _) = with(&["c", "a", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &json["ca_made"], &json["agents"][0]["made"]),
        (Some(0), &false.into(), &true.into()),
        "{json}"
    );
    assert_eq!(json["agents"][1]["made"], false, "{json}");
    assert_eq!(fs::read(dir.join("site/agents/a/agent.key")).unwrap(), key);
    for (more, status, part) in [
        (&["a/../b"][..], 2, "is not a name"),
        (&[], 2, "<AGENT>"),
        (&["d", "--site", "rome"], 2, "cannot be used multiple times"),
    ] {
        let (code, _, error) = with(more);
        assert!(code == Some(status) && error.contains(part), "{error}");
    }
    let (code, _, error) = run(dir, &["ca", "--out", "site", "--site", "rome", "d"]);
    assert!(code == Some(1) && error.contains("site/ca is not the authority of site rome"), "{error}");
}
