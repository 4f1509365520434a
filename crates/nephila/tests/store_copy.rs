//! `nephila store copy` on a site of two agents: a crawl that was begun beside them goes on in a Redis Cluster, and ends
//! beside them again. Nothing is fetched twice, and everything can still be shown.

#![cfg(feature = "lab")]
#![allow(clippy::unwrap_used, reason = "a test fails where this does")]

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nephila_lab::redis::{RedisCluster, RedisClusterOptions};
use nephila_lab::web::{PageBytes, Web, WebConfig, serve};
use serde_json::Value;

/// How long anything here may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(90);

/// Two agents and their files.
struct Site {
    dir: PathBuf,
    settings: String,
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
        let site = Site { dir: dir.to_owned(), settings, running: Vec::new() };
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
        let store = store.map(|url| format!("store = {url:?}\n")).unwrap_or_default();
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

#[test]
fn a_crawl_goes_on_in_the_other_kind_of_store() {
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
    let cluster = RedisCluster::start(&RedisClusterOptions::default()).unwrap();
    let store = format!("redis://{}", cluster.nodes().join(","));
    site.settle(&addresses, Some(&store));
    let (code, _, said) = site.copy("a");
    assert!(code == Some(1) && said.contains("at work"), "{said}");
    let before = site.status().unwrap();
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
    let before = site.status().unwrap();
    site.stop();

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
