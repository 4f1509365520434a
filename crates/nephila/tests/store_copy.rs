//! `nephila store copy` on a site of two agents: a crawl that was begun beside them goes on in a Redis Cluster, and ends
//! beside them again. Nothing is fetched twice, and everything can still be shown. And whatever is cut, repeated or done in
//! another order, no agent is left without its crawl.

#![cfg(feature = "lab")]
#![allow(clippy::unwrap_used, reason = "a test fails where this does")]

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nephila_lab::redis::{RedisCluster, RedisClusterOptions};
use nephila_lab::web::{PageBytes, Web, WebConfig, serve};
use nephila_node::config::{Config, Layer, Mistakes};
use nephila_node::copy::{Step, copy_in_steps};
use serde_json::Value;

/// How long anything here may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(90);

/// Each test has servers and agents of its own, and is slow enough alone.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Two agents and their files.
struct Site {
    dir: PathBuf,
    settings: String,
    /// What the crawl is called in a store that they share, if not as the site.
    store_name: Option<String>,
    /// Further settings of a store that they share.
    store_lines: String,
    running: Vec<Child>,
}

impl Drop for Site {
    fn drop(&mut self) {
        for agent in &mut self.running {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

const NAMES: [&str; 2] = ["a", "b"];

impl Site {
    fn new(dir: &Path, web: &Web) -> Site {
        fs::write(dir.join("web-ca.pem"), &web.ca_pem).unwrap();
        fs::write(dir.join("seeds.txt"), web.seeds().join("\n")).unwrap();
        let settings = format!(
            "dns = \"{}\"\nallow-private = \"127.0.0.0/9\"\ndelay = \"200ms\"\nip-delay = \"0s\"\nseeds = {:?}\nca = {:?}\n",
            web.dns_addr,
            dir.join("seeds.txt"),
            dir.join("web-ca.pem")
        );
        let site = Site {
            dir: dir.to_owned(),
            settings,
            store_name: None,
            store_lines: String::new(),
            running: Vec::new(),
        };
        let (code, _, said) = site.run(&["ca", "--out", "ca", "--site", "lab", "a", "b"]);
        assert_eq!(code, Some(0), "{said}");
        site
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nephila"));
        command.args(args).current_dir(&self.dir).stdin(Stdio::null());
        command.env_remove("NEPHILA_CONTACT").env("XDG_CONFIG_HOME", self.dir.join("user"));
        command
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(args).output().expect("the program was built for this test");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Writes the files of settings of both, with where the store is, if they share one.
    fn settle(&self, addresses: &[String], store: Option<&str>) {
        let called =
            self.store_name.as_ref().map(|name| format!("store-name = {name:?}\n")).unwrap_or_default();
        let store =
            store.map(|url| format!("store = {url:?}\n{called}{}", self.store_lines)).unwrap_or_default();
        for (name, address) in NAMES.iter().zip(addresses) {
            let identity = self.dir.join("ca/agents").join(name);
            let text = format!(
                "{}{store}out = {:?}\nidentity = {identity:?}\nlisten = {address:?}\npeers = {addresses:?}\n",
                self.settings,
                self.dir.join(name)
            );
            fs::write(self.dir.join(format!("{name}.toml")), text).unwrap();
        }
    }

    fn start(&mut self) {
        for name in NAMES {
            let log = OpenOptions::new().create(true).append(true).open(self.dir.join(format!("{name}.log")));
            let mut command = self.command(&["agent", "--config", &format!("{name}.toml")]);
            self.running.push(command.stdout(Stdio::null()).stderr(log.unwrap()).spawn().unwrap());
        }
    }

    fn stop(&mut self) {
        for name in NAMES {
            assert_eq!(self.run(&["stop", "--out", name]).0, Some(0));
        }
        for mut agent in self.running.drain(..) {
            agent.wait().unwrap();
        }
    }

    fn status(&self) -> Option<Value> {
        let (code, said, _) = self.run(&["status", "--json", "--out", "a"]);
        let status: Value = serde_json::from_str(&said).ok().filter(|_| code == Some(0))?;
        (status["silent"].as_array().is_none_or(Vec::is_empty)).then_some(status)
    }

    /// The status of a site that is paused, once all that was found is with whom it belongs to.
    fn status_at_rest(&mut self) -> Value {
        let mut last = None;
        self.wait("rest", |site| {
            let status = site.status();
            let is_the_same =
                last.as_ref().zip(status.as_ref()).is_some_and(|(last, status)| is_same(last, status));
            last = status;
            // Found URLs are gathered for a second, and travel after that.
            std::thread::sleep(Duration::from_secs(3));
            is_the_same
        });
        last.unwrap()
    }

    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Site) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            let logs = || {
                NAMES.map(|name| fs::read_to_string(self.dir.join(format!("{name}.log"))).unwrap_or_default())
            };
            assert!(start.elapsed() < PATIENCE, "{what} has not happened: {:?} {:?}", self.status(), logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn copy(&self, name: &str) -> (Option<i32>, String, String) {
        self.run(&["store", "copy", "--config", &format!("{name}.toml")])
    }

    /// Copies in this process, and ends after the step that `is_last` says, by its number and kind. Says which were done.
    fn copy_to(&self, name: &str, is_last: impl Fn(usize, Step) -> bool) -> (Vec<Step>, Result<(), String>) {
        let mut mistakes = Mistakes::default();
        let layers = [Layer::file(&self.dir.join(format!("{name}.toml")), &mut mistakes)];
        let mut config = Config::build(&layers, &mut mistakes);
        config.read_ca(&mut mistakes);
        config.name_store("lab");
        assert_eq!(mistakes.list(), [""; 0]);
        let mut steps = Vec::new();
        let mut goes_on = |step| {
            steps.push(step);
            !is_last(steps.len() - 1, step)
        };
        let copied = copy_in_steps(&config, &self.dir.join(name), "lab", name, &mut goes_on);
        (steps, copied.map(drop).map_err(|error| format!("{error:?}")))
    }

    /// Has the same command done again by the program. Says how it ended and what it said.
    fn copy_again(&self, name: &str) -> (Option<i32>, String) {
        let (code, said, error) = self.copy(name);
        (code, format!("{said}{error}"))
    }

    /// How many stores an agent has under their name, and how many that were set aside.
    fn stores(&self, name: &str) -> (usize, usize) {
        let entries = fs::read_dir(self.dir.join(name)).unwrap();
        let names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        let count = |is: fn(&str) -> bool| names.iter().filter(|name| is(name)).count();
        (count(|name| name == "store"), count(|name| name.starts_with("store.old-")))
    }

    /// Copies the directories of both agents.
    fn put(&self, from: &str, to: &str) {
        fs::create_dir_all(self.dir.join(to)).unwrap();
        for name in NAMES {
            let (from, to) = (self.dir.join(from).join(name), self.dir.join(to).join(name));
            let _ = fs::remove_dir_all(&to);
            assert!(Command::new("cp").arg("-r").args([&from, &to]).status().unwrap().success());
        }
    }

    /// What an agent that does not run knows.
    fn known(&self, name: &str) -> Value {
        let (code, said, error) = self.run(&["status", "--json", "--out", name]);
        assert_eq!(code, Some(0), "{said}{error}");
        serde_json::from_str(&said).unwrap()
    }

    /// All archived answers can be had from either agent.
    fn shows(&self, urls: &[String]) {
        for (url, name) in urls.iter().flat_map(|url| NAMES.map(|name| (url, name))) {
            let (code, said, error) = self.run(&["show", url, "--out", name]);
            assert!(code == Some(0) && said.starts_with("HTTP/"), "{name}: {url}: {error}");
            let (_, said, _) = self.run(&["why", url, "--out", name]);
            assert!(said.contains("fetched"), "{name}: {url}: {said}");
        }
    }
}

/// Whether as much is known, queued and counted.
fn is_same(one: &Value, other: &Value) -> bool {
    let same = ["pages", "bytes", "known_urls", "requests", "statuses"];
    one["queue"] == other["queue"] && same.iter().all(|of| one["totals"][of] == other["totals"][of])
}

fn free_address(index: u8) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let listener = TcpListener::bind(format!("127.{}.{high}.{low}:0", 200 + index)).unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A cluster that is spoken to, and speaks to itself, with TLS and logins alone, where it is, and settings of agents for it. They
/// may do what docs/redis.md says that they have to, and no more.
fn private_cluster(dir: &Path) -> (RedisCluster, String, String) {
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md")).unwrap();
    let line = docs.lines().find(|line| line.starts_with("user nephila ")).unwrap();
    let line = line.replace("user nephila ", "user agents ").replace("NEPHILA-PASSWORD", "secret");
    assert!(line.contains("on >secret ~paris:* "), "{line}");
    let lines = vec![line.replace("paris", "lab")];
    let cluster = RedisCluster::start(&RedisClusterOptions { tls: true, login: true, lines }).unwrap();
    let password = dir.join("store-password");
    fs::write(&password, "secret\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let [certificate, key, ca] = cluster.certificate_files();
    let settings = format!(
        "store-password = {password:?}\nstore-ca = {ca:?}\nstore-certificate = {certificate:?}\nstore-key = {key:?}\n"
    );
    let url = format!("rediss://agents@{}", cluster.nodes().join(","));
    (cluster, url, settings)
}

#[test]
fn a_crawl_goes_on_in_the_other_kind_of_store() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let web = serve(WebConfig {
        hosts: 8,
        pages: 30,
        kinds: "plain".parse().unwrap(),
        latency_ms: (1, 3),
        page_bytes: PageBytes::Fixed(2_000),
        delay_ms: 200,
        ip_delay_ms: 0,
        ..WebConfig::default()
    });
    let web = runtime.block_on(web).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut site = Site::new(dir.path(), &web);
    let addresses = [free_address(0), free_address(1)];
    site.settle(&addresses, None);
    site.start();
    site.wait("a part of the crawl", |_| web.seen().requests >= 40);
    assert_eq!(site.run(&["pause", "--out", "b"]).0, Some(0));
    site.wait("a pause", |site| {
        site.status().is_some_and(|status| status["state"] == "paused" && status["in_flight"] == 0)
    });
    let (cluster, store, settings) = private_cluster(dir.path());
    site.store_lines = settings;
    site.settle(&addresses, Some(&store));
    let (code, _, said) = site.copy("a");
    assert!(code == Some(1) && said.contains("at work"), "{said}");
    let before = site.status_at_rest();
    site.stop();

    let (code, said, error) = site.copy("a");
    assert!(code == Some(0) && said.contains("still to be copied: b"), "{said}{error}");
    let (code, _, said) = site.run(&["agent", "--config", "a.toml"]);
    assert!(code == Some(1) && said.contains("the part of b is not there"), "{said}");
    let (code, said, error) = site.copy("b");
    assert!(code == Some(0) && !said.contains("still"), "{said}{error}");
    let (code, _, said) = site.copy("b");
    assert!(code == Some(1) && said.contains("says the same"), "{said}");

    site.start();
    site.wait("the same in the shared store", |site| {
        site.status().is_some_and(|status| is_same(&status, &before) && status["state"] == "paused")
    });
    assert_eq!(site.run(&["resume", "--out", "a"]).0, Some(0));
    let goal = web.seen().requests + 40;
    // On a machine that is very slow to begin with, all may have been crawled before.
    site.wait("a further part of the crawl", |_| {
        web.seen().requests >= goal || web.verdict().coverage == 1.0
    });
    assert_eq!(site.run(&["pause", "--out", "a"]).0, Some(0));
    site.wait("a pause", |site| {
        site.status().is_some_and(|status| status["state"] == "paused" && status["in_flight"] == 0)
    });
    site.shows(&web.seeds()[..2]);
    let before = site.status_at_rest();
    site.stop();

    // Servers have refused them nothing.
    for number in 0..6 {
        let refused = cluster.ask(number, &["ACL", "LOG"]).unwrap();
        assert_eq!(format!("{refused:?}"), "array([])");
    }

    site.settle(&addresses, None);
    let (code, said, error) = site.copy("b");
    assert!(code == Some(0) && said.contains("has the whole crawl now"), "{said}{error}");
    site.settle(&addresses, Some(&store));
    let (code, _, said) = site.run(&["agent", "--config", "a.toml"]);
    assert!(code == Some(1) && said.contains("has left this store for that of agent b"), "{said}");
    site.settle(&addresses, None);
    let (code, said, error) = site.copy("a");
    assert!(code == Some(0) && said.contains("agent b has the whole crawl"), "{said}{error}");

    site.start();
    site.wait("the same in stores of their own", |site| {
        site.status().is_some_and(|status| is_same(&status, &before))
    });
    // The other one may not have heard of the pause yet.
    assert_eq!(site.run(&["resume", "--out", "b"]).0, Some(0));
    site.wait("the end of the crawl", |_| web.verdict().coverage == 1.0);
    site.wait("rest", |site| {
        site.status().is_some_and(|status| status["queue"] == 0 && status["in_flight"] == 0)
    });
    assert_eq!(web.repeats(), [""; 0]);
    assert_eq!(web.verdict().violations_total, 0, "{}", web.verdict());
    site.shows(&web.seeds());
    site.stop();
}

/// Removes a crawl as docs/site.md says.
fn remove_keys(cluster: &RedisCluster, name: &str) {
    // A command that a server was too busy for is given again.
    for _ in 0..100 {
        let mut left = 0;
        for node in cluster.nodes() {
            let (host, port) = node.rsplit_once(':').unwrap();
            let cli = format!("redis-cli -h {host} -p {port} -c");
            let scan = format!("{cli} --scan --pattern '{name}:*'");
            let remove = format!("{scan} | tee /dev/stderr | sed 's/.*/UNLINK \"&\"/' | {cli}");
            let output = Command::new("sh").args(["-c", &remove]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            left += output.stderr.len();
        }
        if left == 0 {
            return;
        }
    }
    panic!("keys of {name} are still there");
}

/// The steps to cut at, of all that were done: each kind, and of many of one kind the first, one between and the last.
fn cuts(steps: &[Step]) -> Vec<(usize, Step)> {
    let mut cuts: Vec<usize> = Vec::new();
    for step in steps {
        let of: Vec<usize> = (0..steps.len()).filter(|at| steps[*at] == *step).collect();
        cuts.extend([of[0], of[of.len() / 2], of[of.len() - 1]]);
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts.into_iter().map(|at| (at, steps[at])).collect()
}

/// A site of two that has crawled a part of a web and was stopped. Its directories are below `kept`, too.
fn stopped_site(dir: &Path) -> (Site, [String; 2], tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let web = serve(WebConfig {
        hosts: 6,
        pages: 12,
        kinds: "plain".parse().unwrap(),
        latency_ms: (1, 3),
        page_bytes: PageBytes::Fixed(1_000),
        delay_ms: 200,
        ip_delay_ms: 0,
        ..WebConfig::default()
    });
    let web = runtime.block_on(web).unwrap();
    let mut site = Site::new(dir, &web);
    let addresses = [free_address(2), free_address(3)];
    site.settle(&addresses, None);
    site.start();
    site.wait("a part of the crawl", |_| web.seen().requests >= 30);
    site.stop();
    site.put("", "kept");
    (site, addresses, runtime)
}

#[test]
fn a_copy_that_is_cut_anywhere_is_done_again() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let (mut site, addresses, _runtime) = stopped_site(dir.path());
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let store = format!("redis://{}", cluster.nodes().join(","));

    // To the shared store and back without a cut.
    site.settle(&addresses, Some(&store));
    let (there, done) = site.copy_to("a", |_, _| false);
    done.unwrap();
    let began = Instant::now();
    assert_eq!(site.copy_again("b").0, Some(0));
    let took = began.elapsed();
    site.settle(&addresses, None);
    let (back, done) = site.copy_to("b", |_, _| false);
    done.unwrap();
    let (code, said) = site.copy_again("a");
    assert!(code == Some(0) && said.contains("agent b has the whole crawl"), "{said}");
    let expected = site.known("b");
    assert!(expected["totals"]["known_urls"].as_u64() > Some(10), "{expected}");
    let comes_back = |site: &Site, what: &str| {
        assert_eq!((site.stores("a").0, site.stores("b").0), (1, 1), "{what}");
        assert!(is_same(&site.known("b"), &expected), "{what}: {} {expected}", site.known("b"));
    };

    let (there, back) = (cuts(&there), cuts(&back));
    for kind in [Step::Held, Step::Noted, Step::Begun, Step::Piece, Step::Whole, Step::Done, Step::Turned] {
        assert!(there.iter().any(|(_, step)| *step == kind), "{kind:?} {there:?}");
    }
    for kind in [Step::Held, Step::Piece, Step::Whole, Step::Aside, Step::Placed, Step::Left, Step::Turned] {
        assert!(back.iter().any(|(_, step)| *step == kind), "{kind:?} {back:?}");
    }
    for round in 0..there.len().max(back.len()) {
        let ((to, cut_to), (from, cut_from)) = (there[round % there.len()], back[round % back.len()]);
        let what = format!("cut at {cut_to:?} ({to}) and {cut_from:?} ({from})");
        site.put("kept", "");
        site.store_name = Some(format!("cut-{round}"));
        site.settle(&addresses, Some(&store));
        for name in NAMES {
            // Others have as many steps before the pieces, and another number of them.
            let (steps, done) = site.copy_to(name, |at, _| at == to);
            if name == "a" {
                assert!(done.is_err() && steps.last() == Some(&cut_to), "{what}: {steps:?}");
            }
            let (code, said) = site.copy_again(name);
            let is_as_expected = match steps.last() {
                Some(Step::Aside) => code == Some(1) && said.contains("says the same"),
                Some(Step::Done | Step::Turned) => code == Some(0) && said.contains("had come"),
                _ => code == Some(0) && said.contains("copied ") && !said.contains("copied 0"),
            };
            assert!(is_as_expected, "{what}: {name}: {said}");
            assert_eq!(site.stores(name), (0, 1), "{what}: {name}");
        }
        site.settle(&addresses, None);
        let (steps, done) = site.copy_to("b", |at, _| at == from);
        assert!(done.is_err() && steps.last() == Some(&cut_from), "{what}: {steps:?}");
        let (code, said) = site.copy_again("b");
        let is_as_expected = match cut_from {
            Step::Turned => code == Some(1) && said.contains("says the same"),
            Step::Left => code == Some(0) && said.contains("had come"),
            _ => code == Some(0) && said.contains("has the whole crawl now") && !said.contains("copied 0"),
        };
        assert!(is_as_expected, "{what}: {said}");
        // The other one has only to make an empty store.
        let _ = site.copy_to("a", |at, _| at == round % 4);
        let (code, said) = site.copy_again("a");
        assert!(code == Some(0) || said.contains("says the same"), "{what}: {said}");
        comes_back(&site, &what);
    }

    // And killed, at ten times between the beginning and the end.
    for tenth in 0..10 {
        let what = format!("killed after {tenth} tenths of {took:?}");
        site.put("kept", "");
        site.store_name = Some(format!("kill-{tenth}"));
        for (names, store) in [(["a", "b"], Some(&*store)), (["b", "a"], None)] {
            site.settle(&addresses, store);
            for name in names {
                let mut command = site.command(&["store", "copy", "--config", &format!("{name}.toml")]);
                let mut copy = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                std::thread::sleep(took * tenth / 10);
                copy.kill().unwrap();
                copy.wait().unwrap();
                let (code, said) = site.copy_again(name);
                assert!(code == Some(0) || said.contains("says the same"), "{what}: {name}: {said}");
            }
        }
        comes_back(&site, &what);
    }
}

#[test]
fn nothing_is_copied_to_where_a_crawl_has_left_or_taken_from_where_none_is() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let (mut site, addresses, _runtime) = stopped_site(dir.path());
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let store = format!("redis://{}", cluster.nodes().join(","));
    let recorded = |site: &Site, name: &str| fs::read(site.dir.join(name).join("crawl.toml")).unwrap();
    // A copy is refused, and nothing has changed.
    let refuses = |site: &Site, name: &str, why: &str| {
        let before = (recorded(site, name), site.stores(name));
        let (code, said) = site.copy_again(name);
        assert!(code == Some(1) && said.contains(why) && !said.contains("copied 0"), "{said}");
        assert!((recorded(site, name), site.stores(name)) == before, "{said}");
    };

    // An agent that has gone on with its own store after it was copied.
    site.store_name = Some("one".to_owned());
    site.settle(&addresses, Some(&store));
    site.copy_to("a", |_, step| step == Step::Done).1.unwrap_err();
    assert_eq!(site.run(&["block", "elsewhere.test", "--out", "a"]).0, Some(0));
    refuses(&site, "a", "has gone on with its own since");
    site.put("kept", "");

    // There and back, and there again.
    site.store_name = Some("two".to_owned());
    site.settle(&addresses, Some(&store));
    for name in NAMES {
        assert_eq!(site.copy_again(name).0, Some(0));
    }
    site.put("", "shared");
    site.settle(&addresses, None);
    assert_eq!(site.copy_again("b").0, Some(0));
    assert_eq!(site.copy_again("a").0, Some(0));
    let expected = site.known("b");
    site.settle(&addresses, Some(&store));
    for name in ["b", "a"] {
        let why = if name == "a" { "there is nothing to copy" } else { "has left it for that of agent b" };
        refuses(&site, name, why);
    }
    assert_eq!(site.known("b"), expected);
    // Under another name, or where nothing is left of it.
    site.put("", "own");
    for other in ["three", "two"] {
        site.put("own", "");
        site.store_name = Some(other.to_owned());
        site.settle(&addresses, Some(&store));
        if other == "two" {
            remove_keys(&cluster, other);
        }
        let (code, said) = site.copy_again("b");
        assert!(code == Some(0) && said.contains("copied ") && !said.contains("copied 0"), "{said}");
    }
    // The name is that of another crawl, and this one does not begin anew.
    site.store_name = Some("four".to_owned());
    site.settle(&addresses, Some(&store));
    let (code, _, said) = site.run(&["agent", "--config", "b.toml"]);
    assert!(code == Some(2) && said.contains("store-name = \"two\""), "{said}");
    refuses(&site, "b", "is called two there");

    // The crawl has left for a store that is gone, and is put back.
    site.put("shared", "");
    remove_keys(&cluster, "two");
    site.store_name = Some("two".to_owned());
    site.settle(&addresses, Some(&store));
    let (code, _, said) = site.run(&["agent", "--config", "b.toml"]);
    assert!(code == Some(1) && said.contains("the store knows nothing of it"), "{said}");
    site.settle(&addresses, None);
    refuses(&site, "b", "nothing of the crawl in");
    site.put("kept", "");
    site.store_name = Some("five".to_owned());
    site.settle(&addresses, Some(&store));
    for name in NAMES {
        assert_eq!(site.copy_again(name).0, Some(0));
    }
    site.settle(&addresses, None);
    site.copy_to("b", |_, step| step == Step::Left).1.unwrap_err();
    let (place, away) = (site.dir.join("b/store"), site.dir.join("b/away"));
    fs::rename(&place, &away).unwrap();
    refuses(&site, "b", "put it back");
    fs::rename(&away, &place).unwrap();
    // Meanwhile no command takes it for one that was copied to the shared store.
    site.settle(&addresses, Some(&store));
    refuses(&site, "b", "has left this store for that of agent b");
    site.settle(&addresses, None);
    let (code, said) = site.copy_again("b");
    assert!(code == Some(0) && said.contains("had come"), "{said}");
    assert!(is_same(&site.known("b"), &expected));
}

#[test]
fn servers_on_other_machines_are_spoken_to_in_private() {
    let dir = tempfile::tempdir().unwrap();
    let temporary = dir.path();
    let site = Site {
        dir: temporary.to_owned(),
        settings: "urls = [\"http://127.0.0.1:1/\"]\nallow-private = \"all\"\n".to_owned(),
        store_name: None,
        store_lines: String::new(),
        running: Vec::new(),
    };
    assert_eq!(site.run(&["ca", "--out", "ca", "--site", "lab", "a", "b"]).0, Some(0));
    for (store, what) in [
        ("redis://192.0.2.1:6379", "store: 192.0.2.1:6379 is on another machine, and whoever is between"),
        ("rediss://192.0.2.1:6379", "store: 192.0.2.1:6379 is on another machine, and whoever reaches it"),
    ] {
        site.settle(&[free_address(4), free_address(5)], Some(store));
        for command in [&["agent"][..], &["store", "copy"]] {
            let (code, _, said) = site.run(&[command, &["--config", "a.toml"]].concat());
            assert!(code == Some(2) && said.contains(what), "{said}");
            assert!(said.contains("store-plain = true"), "{said}");
        }
    }
}
