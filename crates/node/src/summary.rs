//! What a crawl came to: why it stopped, what it did, what remains and what to do next.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nephila_core::agent::{Status, StopReason, Totals};
use nephila_core::record::Failure;
use nephila_core::scope::ScopeKind;
use rustix::time::ClockId;
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::Config;
use crate::directory;
use crate::display::{bytes, count, counted, span};
use crate::report::{failures, merge, places};

/// A crawl with fewer pages than this says what the scope kept out.
const FEW_PAGES: u64 = 10;
/// How many statuses the text lists.
const STATUSES_LISTED_MAX: usize = 8;

/// What a crawl came to.
#[derive(Clone, Debug)]
pub struct Summary {
    status: Status,
    run: Totals,
    elapsed: Duration,
    run_elapsed: Duration,
    cpu: Duration,
    rss_max_mb: Option<f64>,
    reason: StopReason,
    out: PathBuf,
}

/// The figures of a crawl, or of one run of it.
#[derive(Serialize)]
struct Figures<'a> {
    #[serde(flatten)]
    totals: &'a Totals,
    elapsed_s: f64,
    cpu_s: f64,
    rss_max_mb: Option<f64>,
}

impl Summary {
    /// Sums up a run that ended like this. `before` are the totals that it began with; what the process used is
    /// measured here.
    pub fn new(
        status: Status,
        before: Totals,
        run_elapsed: Duration,
        reason: StopReason,
        out: &Path,
    ) -> Summary {
        Summary {
            run: difference(&status.totals, &before),
            status,
            elapsed: before.elapsed_before + run_elapsed,
            run_elapsed,
            cpu: cpu(),
            rss_max_mb: rss_max_mb(),
            reason,
            out: out.to_owned(),
        }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        self.reason.exit_code()
    }

    /// For programs; docs/json.md documents the fields.
    pub fn json(&self) -> Value {
        let figures = |totals, elapsed: Duration| Figures {
            totals,
            elapsed_s: elapsed.as_secs_f64(),
            cpu_s: self.cpu.as_secs_f64(),
            rss_max_mb: self.rss_max_mb,
        };
        let mut json = json!({
            "schema": 1,
            "stop_reason": self.reason.name(),
            "exit_code": self.exit_code(),
            "out": self.out.display().to_string(),
            "queue": self.status.queue,
            "hosts_given_up": self.status.given_up,
            "hosts_by_place": self.status.hosts,
        });
        merge(&mut json, &figures(&self.status.totals, self.elapsed));
        let mut run = json!({});
        merge(&mut run, &figures(&self.run, self.run_elapsed));
        if let Some(fields) = json.as_object_mut() {
            fields.insert("run".to_owned(), run);
        }
        json
    }

    /// Why it stopped, in one line.
    pub fn headline(&self, config: &Config) -> String {
        let settings = &config.settings;
        let limit = |name: &str, value: Option<String>| {
            format!("stopped: the limit --{name} {} is reached", value.unwrap_or_default())
        };
        match self.reason {
            StopReason::Finished => "finished: every URL of the crawl is settled".to_owned(),
            StopReason::Waiting => format!(
                "stopped: URLs are waiting, and none is due within {} (--max-wait)",
                span(settings.max_wait.as_secs_f64())
            ),
            StopReason::MaxPages => limit("max-pages", settings.max_pages.map(|max| max.to_string())),
            StopReason::MaxBytes => limit("max-bytes", settings.max_bytes.map(bytes)),
            StopReason::MaxTime => limit("max-time", settings.max_time.map(|max| span(max.as_secs_f64()))),
            StopReason::MaxUrls => limit("max-urls", Some(settings.max_urls.to_string())),
            StopReason::NoSeed => match self.reasons() {
                reasons if reasons.is_empty() => "stopped: no seed could be fetched".to_owned(),
                reasons => format!("stopped: no seed could be fetched: {}", reasons.join(", ")),
            },
            StopReason::Stopped => "stopped: `nephila stop` asked for it".to_owned(),
            StopReason::Interrupted => "stopped: interrupted".to_owned(),
            StopReason::Terminated => "stopped: told to terminate".to_owned(),
            StopReason::DiskFull => "stopped: the disk is full".to_owned(),
            StopReason::Replaced => {
                "stopped: another process goes on as this agent, with a copy of its directory".to_owned()
            }
            StopReason::Error => "stopped: an error made it impossible to go on".to_owned(),
        }
    }

    /// Why there are no pages.
    fn reasons(&self) -> Vec<String> {
        let (totals, hosts) = (&self.status.totals, &self.status.hosts);
        let mut reasons = vec![failures(&totals.failures)];
        if totals.disallowed > 0 {
            reasons.push(format!("{} forbidden by robots.txt", counted(totals.disallowed, "URL", "URLs")));
        }
        if hosts.blocked > 0 {
            reasons.push(format!("{} blocked", counted(hosts.blocked, "host", "hosts")));
        }
        reasons.retain(|reason| !reason.is_empty());
        reasons
    }

    /// For people. `again` says whether the same command could go on with the crawl; if not, nothing is said of what to do
    /// next.
    pub fn text(&self, config: &Config, again: bool) -> String {
        let totals = &self.status.totals;
        let mut text = format!("{}\n", self.headline(config));
        let in_this_run = match self.run.pages {
            pages if pages == totals.pages => String::new(),
            pages => format!(" ({} in this run)", count(pages)),
        };
        let _ = writeln!(
            text,
            "  {}{in_this_run}, {} failed, {} forbidden by robots.txt; {} in {}",
            counted(totals.pages, "page", "pages"),
            count(totals.failed),
            count(totals.disallowed),
            bytes(totals.bytes),
            span(self.elapsed.as_secs_f64())
        );
        let _ = writeln!(
            text,
            "  {} known on {}, {}",
            counted(totals.known_urls, "URL", "URLs"),
            counted(totals.hosts, "host", "hosts"),
            counted(totals.requests, "request", "requests")
        );
        if !totals.statuses.is_empty() {
            let _ = writeln!(text, "  answers: {}", statuses(totals));
        }
        if totals.failures.values().any(|number| *number > 0) {
            let _ = writeln!(text, "  failed attempts: {}", failures(&totals.failures));
        }
        text.push_str(&self.remaining(again));
        use StopReason::{Finished, NoSeed, Waiting};
        let by_itself = matches!(self.reason, Finished | Waiting | NoSeed);
        if again && by_itself && totals.pages < FEW_PAGES {
            text.push_str(&self.obstacles());
            text.push_str(&self.other_scheme(config));
            text.push_str(&self.few_pages(config));
        }
        let _ = writeln!(text, "  archive: {}", directory::archive(&self.out).display());
        if again {
            let _ = writeln!(text, "  next: {}", self.next());
        }
        text
    }

    /// What is left, and why.
    fn remaining(&self, again: bool) -> String {
        let totals = &self.status.totals;
        let mut text = String::new();
        if self.status.queue > 0 {
            let mut hosts = self.status.hosts;
            hosts.idle = 0;
            let _ = writeln!(
                text,
                "  remaining: {} on hosts: {}",
                counted(self.status.queue, "URL", "URLs"),
                places(&hosts)
            );
        }
        if totals.over_limit > 0 {
            let _ = writeln!(
                text,
                "  kept out: {} by --max-depth, --max-host-pages or --max-urls{}",
                counted(totals.over_limit, "URL", "URLs"),
                if again { "; raising the limit lets them in" } else { "" }
            );
        }
        if totals.traps > 0 {
            let _ = writeln!(
                text,
                "  left aside: {} that look like a trap",
                counted(totals.traps, "URL", "URLs")
            );
        }
        text
    }

    /// What stood in the way and stays there until somebody does something about it.
    fn obstacles(&self) -> String {
        let totals = &self.status.totals;
        let mut text = String::new();
        // They are looked at again in each run.
        let private = self.run.failures.get(&Failure::PrivateAddress).copied().unwrap_or(0);
        if private > 0 {
            let _ = writeln!(
                text,
                "  private addresses: {} refused; the same command with --allow-private=NET, such as 10.0.0.0/8, asks \
                 those of the network NET",
                counted(private, "attempt was", "attempts were")
            );
        }
        if totals.disallowed > 0 {
            let _ = writeln!(
                text,
                "  robots.txt: it forbids {}; `nephila why URL` shows the line",
                counted(totals.disallowed, "URL", "URLs")
            );
        }
        if self.status.hosts.blocked > 0 {
            let _ = writeln!(
                text,
                "  blocked: {}; `nephila block` lists what is, `nephila unblock` takes it back",
                counted(self.status.hosts.blocked, "host", "hosts")
            );
        }
        text
    }

    /// What may be wrong when nothing answers at a seed to which the scheme was added.
    fn other_scheme(&self, config: &Config) -> String {
        let failed = |failure| self.status.totals.failures.get(&failure).is_some_and(|number| *number > 0);
        let added = config.urls.iter().find(|text| !text.contains("//"));
        match added.filter(|_| {
            self.reason == StopReason::NoSeed && (failed(Failure::Tls) || failed(Failure::Connect))
        }) {
            Some(text) => format!(
                "  https:// was added to {text}: if it answers only without TLS, write http://{text}\n"
            ),
            None => String::new(),
        }
    }

    /// Whether something is queued that the same command would try later, without anybody doing anything else.
    fn tries_again(&self) -> bool {
        let hosts = &self.status.hosts;
        let waiting = hosts.ready
            + hosts.fetching
            + hosts.delay
            + hosts.address
            + hosts.resolving
            + hosts.robots
            + hosts.backing_off
            + hosts.retrying;
        self.status.queue > 0 && waiting > 0
    }

    /// What the scope kept out, and which flag would let it in.
    fn few_pages(&self, config: &Config) -> String {
        let out = self.status.totals.out_of_scope;
        if out == 0 {
            return String::new();
        }
        let wider = match config.scope {
            ScopeKind::Prefix => {
                Some("--scope site would include the rest of the site, --scope any everything")
            }
            ScopeKind::Site => {
                Some("--scope domain would include other names of the domain, --scope any everything")
            }
            ScopeKind::Domain => Some("--scope any would include everything"),
            ScopeKind::Any => None,
        };
        let patterns = match (config.include.is_empty(), config.exclude.is_empty()) {
            (true, true) => None,
            (false, true) => Some("without --include more would match"),
            (true, false) => Some("without --exclude less would be left out"),
            (false, false) => Some("--include and --exclude leave URLs out too"),
        };
        let hints: Vec<&str> = wider.into_iter().chain(patterns).collect();
        format!(
            "  few pages: {} out of scope ({}); {} (with another --out)\n",
            if out == 1 { "1 link was".to_owned() } else { format!("{} links were", count(out)) },
            config.scope,
            hints.join("; ")
        )
    }

    fn next(&self) -> &'static str {
        match self.reason {
            StopReason::Finished => "nothing; the same command with --fresh starts over",
            StopReason::Waiting if self.tries_again() => {
                "the same command later goes on; `nephila hosts` says who waits for what"
            }
            StopReason::Waiting => "`nephila unblock` takes a block back; the same command then goes on",
            StopReason::MaxPages | StopReason::MaxBytes | StopReason::MaxTime | StopReason::MaxUrls => {
                "the same command with a higher limit goes on"
            }
            StopReason::NoSeed if self.tries_again() => {
                "`nephila why URL` says what became of a seed; the same command tries again"
            }
            StopReason::NoSeed => "`nephila why URL` says what became of a seed",
            StopReason::Stopped | StopReason::Interrupted | StopReason::Terminated => {
                "the same command goes on"
            }
            StopReason::DiskFull => "make room; the same command then goes on, and nothing is lost",
            StopReason::Replaced => {
                "an agent has one directory and one process: end the other one, or give this one a directory of its own"
            }
            StopReason::Error => "see what is said above; the same command tries again",
        }
    }
}

/// Final answers by status, the most frequent first.
fn statuses(totals: &Totals) -> String {
    let mut list: Vec<_> = totals.statuses.iter().collect();
    list.sort_by_key(|(status, number)| (std::cmp::Reverse(**number), **status));
    let listed = list.iter().take(STATUSES_LISTED_MAX);
    let mut words: Vec<String> =
        listed.map(|(status, number)| format!("{status}: {}", count(**number))).collect();
    if list.len() > STATUSES_LISTED_MAX {
        words.push(format!("{} others", list.len() - STATUSES_LISTED_MAX));
    }
    words.join(", ")
}

/// What was added since.
fn difference(now: &Totals, before: &Totals) -> Totals {
    fn each<K: Ord + Clone>(
        now: &std::collections::BTreeMap<K, u64>,
        before: &std::collections::BTreeMap<K, u64>,
    ) -> std::collections::BTreeMap<K, u64> {
        let less = |(key, number): (&K, &u64)| {
            (key.clone(), number.saturating_sub(before.get(key).copied().unwrap_or(0)))
        };
        now.iter().map(less).filter(|(_, number)| *number > 0).collect()
    }
    let less = |field: fn(&Totals) -> u64| field(now).saturating_sub(field(before));
    Totals {
        pages: less(|totals| totals.pages),
        failed: less(|totals| totals.failed),
        disallowed: less(|totals| totals.disallowed),
        sent: less(|totals| totals.sent),
        received: less(|totals| totals.received),
        dropped: less(|totals| totals.dropped),
        claimed: less(|totals| totals.claimed),
        granted: less(|totals| totals.granted),
        retries: less(|totals| totals.retries),
        bytes: less(|totals| totals.bytes),
        requests: less(|totals| totals.requests),
        known_urls: less(|totals| totals.known_urls),
        hosts: less(|totals| totals.hosts),
        out_of_scope: less(|totals| totals.out_of_scope),
        traps: less(|totals| totals.traps),
        over_limit: less(|totals| totals.over_limit),
        seeds_answered: less(|totals| totals.seeds_answered),
        statuses: each(&now.statuses, &before.statuses),
        failures: each(&now.failures, &before.failures),
        elapsed_before: Duration::ZERO,
    }
}

/// The processor time that this process has used.
pub(crate) fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    let seconds = Duration::from_secs(u64::try_from(used.tv_sec).unwrap_or(0));
    seconds + Duration::from_nanos(u64::try_from(used.tv_nsec).unwrap_or(0))
}

/// The most memory that this process has held, in millions of bytes, where the system tells.
fn rss_max_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nephila_core::agent::HostCounts;

    use super::*;

    fn summary(reason: StopReason, totals: Totals, before: Totals) -> Summary {
        let status = Status {
            totals,
            hosts: HostCounts { backing_off: 2, idle: 5, ..HostCounts::default() },
            queue: 40,
            outgoing: 0,
            outbox_full: false,
            backed_up: false,
            undecided: 0,
            given_up: 1,
            next_due_s: None,
            in_flight: 0,
            unsettled: 0,
            paused: false,
            stopping: true,
            store_away: false,
            unconfirmed: 0,
        };
        Summary::new(status, before, Duration::from_millis(1_500), reason, Path::new("crawl"))
    }

    fn totals() -> Totals {
        Totals {
            pages: 100,
            failed: 3,
            bytes: 5_000,
            known_urls: 143,
            hosts: 7,
            statuses: BTreeMap::from([(200, 90), (404, 10)]),
            failures: BTreeMap::from([(Failure::Timeout, 4)]),
            ..Totals::default()
        }
    }

    /// Scripts depend on these names and on what they mean.
    #[test]
    fn the_fields_of_json() {
        let before = Totals {
            pages: 60,
            statuses: BTreeMap::from([(200, 60)]),
            elapsed_before: Duration::from_secs(10),
            ..Totals::default()
        };
        let json = summary(StopReason::Waiting, totals(), before).json();
        for (field, value) in [
            ("schema", json!(1)),
            ("pages", json!(100)),
            ("failed", json!(3)),
            ("bytes", json!(5_000)),
            ("known_urls", json!(143)),
            ("hosts", json!(7)),
            ("elapsed_s", json!(11.5)),
            ("stop_reason", json!("waiting")),
            ("exit_code", json!(3)),
            ("disallowed", json!(0)),
            ("sent", json!(0)),
            ("received", json!(0)),
            ("dropped", json!(0)),
            ("claimed", json!(0)),
            ("granted", json!(0)),
            ("out_of_scope", json!(0)),
            ("requests", json!(0)),
            ("retries", json!(0)),
            ("statuses", json!({ "200": 90, "404": 10 })),
            ("failures", json!({ "timeout": 4 })),
            ("out", json!("crawl")),
            ("queue", json!(40)),
        ] {
            assert_eq!(json[field], value, "{field}");
        }
        assert!(json["cpu_s"].as_f64().unwrap() > 0.0 && json["rss_max_mb"].as_f64().unwrap() > 1.0);
        let run = &json["run"];
        assert_eq!((&run["pages"], &run["elapsed_s"]), (&json!(40), &json!(1.5)));
        assert_eq!(run["statuses"], json!({ "200": 30, "404": 10 }));
        assert!(!serde_json::to_string(&json).unwrap().contains('\n'));
    }

    /// Every field that a program can meet is in docs/json.md.
    #[test]
    fn the_fields_are_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let document = std::fs::read_to_string(path).unwrap();
        let json = summary(StopReason::Finished, totals(), Totals::default()).json();
        let objects = [&json, &json["run"], &json["hosts_by_place"]];
        for field in objects.iter().flat_map(|object| object.as_object().unwrap().keys()) {
            assert!(document.contains(&format!("`{field}`")), "{field} is not in docs/json.md");
        }
        for reason in StopReason::ALL {
            let row = format!("| `{}` | {} |", reason.name(), reason.exit_code());
            assert!(document.contains(&row), "{row} is not in docs/json.md");
        }
    }

    #[test]
    fn every_reason_says_what_to_do() {
        let mut config = Config::default();
        config.settings.max_pages = Some(100);
        use StopReason::*;
        for (reason, headline, next) in [
            (Finished, "finished", "--fresh"),
            (Waiting, "within 10m (--max-wait)", "later goes on"),
            (MaxPages, "--max-pages 100 is reached", "higher limit"),
            (NoSeed, "no seed", "nephila why"),
            (DiskFull, "disk is full", "make room"),
            (Interrupted, "interrupted", "the same command goes on"),
        ] {
            let text = summary(reason, totals(), Totals::default()).text(&config, true);
            assert!(text.lines().next().unwrap().contains(headline), "{text}");
            assert!(text.lines().last().unwrap().contains(next), "{text}");
            assert!(text.contains("remaining: 40 URLs on hosts: 2 backing off\n"), "{text}");
            assert!(
                text.contains("  100 pages, 3 failed") && text.contains("answers: 200: 90, 404: 10"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_scheme_that_was_added_is_named_when_nothing_answers() {
        let tls = Totals { pages: 0, failures: BTreeMap::from([(Failure::Tls, 3)]), ..Totals::default() };
        let dns = Totals { pages: 0, failures: BTreeMap::from([(Failure::Dns, 3)]), ..Totals::default() };
        for (url, totals, reason, is_named) in [
            ("a.test/x", &tls, StopReason::NoSeed, true),
            ("https://a.test/x", &tls, StopReason::NoSeed, false),
            ("a.test/x", &dns, StopReason::NoSeed, false),
            ("a.test/x", &tls, StopReason::Waiting, false),
        ] {
            let config = Config { urls: vec![url.to_owned()], ..Config::default() };
            let text = summary(reason, totals.clone(), Totals::default()).text(&config, true);
            assert_eq!(text.contains("write http://a.test/x\n"), is_named, "{text}");
        }
    }

    #[test]
    fn few_pages_are_explained() {
        let few = Totals { pages: 9, out_of_scope: 1_234, ..totals() };
        let many = Totals { pages: 10, out_of_scope: 1_234, ..totals() };
        let none = Totals { pages: 9, ..totals() };
        for (kind, flag) in [
            (ScopeKind::Prefix, "--scope site"),
            (ScopeKind::Site, "--scope domain"),
            (ScopeKind::Domain, "--scope any"),
        ] {
            let config = Config { scope: kind, ..Config::default() };
            let text = |totals: &Totals| {
                summary(StopReason::Finished, totals.clone(), Totals::default()).text(&config, true)
            };
            assert!(text(&few).contains("1,234 links were out of scope"), "{}", text(&few));
            assert!(text(&few).contains(flag), "{}", text(&few));
            assert!(!text(&many).contains("out of scope") && !text(&none).contains("out of scope"));
            // Somebody ended it: that there are few pages says nothing.
            let ended = summary(StopReason::Interrupted, few.clone(), Totals::default()).text(&config, true);
            assert!(!ended.contains("few pages"), "{ended}");
        }
    }

    /// Each obstacle is named with what takes it away, and nobody is told to try again in vain.
    #[test]
    fn no_seed_is_explained() {
        let failing = |failure| Totals { failures: BTreeMap::from([(failure, 2)]), ..Totals::default() };
        let disallowed = Totals { disallowed: 1, ..Totals::default() };
        let hosts = |backing_off, blocked| HostCounts { backing_off, blocked, ..HostCounts::default() };
        for (totals, hosts, headline, hint, tries_again) in [
            (
                failing(Failure::PrivateAddress),
                hosts(0, 0),
                "private-address 2",
                "--allow-private=NET",
                false,
            ),
            (failing(Failure::Connect), hosts(1, 0), "fetched: connect 2", "nephila why URL", true),
            (failing(Failure::HostGivenUp), hosts(0, 0), "host-given-up 2", "nephila why URL", false),
            (disallowed, hosts(0, 0), "1 URL forbidden by robots.txt", "shows the line", false),
            (Totals::default(), hosts(0, 1), "1 host blocked", "nephila unblock", false),
        ] {
            let mut summary = summary(StopReason::NoSeed, totals, Totals::default());
            summary.status.queue = hosts.backing_off + hosts.blocked;
            summary.status.hosts = hosts;
            let text = summary.text(&Config::default(), true);
            assert!(text.lines().next().unwrap().contains(headline), "{text}");
            assert!(text.contains(hint), "{text}");
            assert_eq!(text.contains("tries again"), tries_again, "{text}");
        }
        let before = failing(Failure::PrivateAddress);
        let allowed = summary(StopReason::Finished, Totals { pages: 1, ..before.clone() }, before);
        assert!(!allowed.text(&Config::default(), true).contains("--allow-private"));
        let mut blocked = summary(StopReason::Waiting, totals(), Totals::default());
        blocked.status.hosts = hosts(0, 1);
        let text = blocked.text(&Config::default(), true);
        assert!(text.lines().last().unwrap().contains("nephila unblock"), "{text}");
    }

    #[test]
    fn what_cannot_be_gone_on_with_has_no_next() {
        let totals = Totals { pages: 1, out_of_scope: 5, over_limit: 3, ..totals() };
        let text = summary(StopReason::Waiting, totals, Totals::default()).text(&Config::default(), false);
        for word in ["next:", "few pages", "raising the limit"] {
            assert!(!text.contains(word), "{text}");
        }
    }
}
