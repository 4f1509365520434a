//! What the operator wants: read from flags, files and the environment, checked, and made usable.
//!
//! It promises that all mistakes, wherever they are, are found in one go and that each message says what to do; that a
//! flag and a key of a file have the same name, form and meaning; and that a [`Config`] without mistakes is usable as it
//! is. [`table`] is the one place that knows the names.

mod contact;
mod federation;
mod layer;
mod reference;
mod site;
mod store;
pub mod table;
mod units;
mod values;

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use nephila_core::scope::{Scope, ScopeKind};
use nephila_core::settings::{Settings, UrlOrder};
use nephila_core::url::{Host, Url, addresses};
use regex::Regex;

pub use contact::{Contact, NotAContact};
pub use federation::{FederationError, FederationFile};
pub(crate) use layer::NOTES;
pub use layer::{CONTACT_VARIABLE, Layer, Mistakes, keep_contact, user_file};
pub use reference::reference;
pub use site::{NotAPeerAddress, PeerAddress, SiteConfig};
pub use store::{NoStore, NotAStore, StoreConfig, StoreName, StoreUrl};
use table::SETTINGS;
pub use units::read_span;
pub use values::Shown;

/// The product token when no other is chosen.
const AGENT_NAME: &str = "nephila";
/// How much of a file of root certificates is read.
const CA_BYTES_MAX: u64 = 4 << 20;

/// Everything that an operator can choose for a crawl. [`table::SETTINGS`] says what each field means.
#[derive(Clone, Debug)]
#[allow(
    missing_docs,
    reason = "the table of settings documents each field, and the reference is made from it"
)]
pub struct Config {
    pub settings: Settings,
    pub urls: Vec<String>,
    pub seeds: Option<PathBuf>,
    pub scope: ScopeKind,
    pub include: Vec<Regex>,
    pub exclude: Vec<Regex>,
    pub accept: Vec<String>,
    pub contact: Option<Contact>,
    pub agent_name: String,
    pub dns: Option<SocketAddr>,
    /// What requests are sent from, if the system does not choose.
    pub bind: Vec<IpAddr>,
    pub dns_timeout: Duration,
    pub ca: Option<PathBuf>,
    /// What is in the file `ca`; see [`Config::read_ca`].
    pub ca_pem: Option<Vec<u8>>,
    pub tls_sessions_max: usize,
    pub headers: Vec<HostHeader>,
    pub connect_timeout: Duration,
    pub slow_after: Duration,
    pub slow_bytes_per_s: u64,
    pub body_bytes_max: u64,
    pub head_bytes_max: usize,
    pub decode_bytes_max: u64,
    pub decode_ratio_max: u64,
    pub memory_bytes: u64,
    pub spill_bytes: u64,
    pub idle_connections_max: usize,
    pub idle_timeout: Duration,
    pub shards: usize,
    pub out: Option<PathBuf>,
    pub compress: Compress,
    pub metrics: Option<SocketAddr>,
    pub warc_roll_bytes: u64,
    pub warc_prefix: String,
    pub refetch_missing: bool,
    pub durability: Durability,
    pub sync_every: Duration,
    pub sync_bytes: u64,
    pub snapshot_bytes: u64,
    /// Room for URLs that limits keep out.
    pub kept_out_bytes: u64,
    pub store_memory_bytes: u64,
    pub settle_delay: Duration,
    pub log_roll_bytes: u64,
    pub log_files_max: usize,
    pub site: SiteConfig,
}

/// Shards that there are at most if nobody says how many.
const SHARDS_MAX: usize = 8;

/// A header that requests to one host carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostHeader {
    /// The host, and no other: a redirect elsewhere does not take it along.
    pub host: Host,
    /// The name of the header.
    pub name: HeaderName,
    /// Its value, which may be a secret: it is not recorded anywhere.
    pub value: HeaderValue,
}

impl Default for Config {
    fn default() -> Config {
        let secs = Duration::from_secs;
        Config {
            settings: Settings::default(),
            urls: Vec::new(),
            seeds: None,
            scope: ScopeKind::Site,
            include: Vec::new(),
            exclude: Vec::new(),
            accept: Vec::new(),
            contact: None,
            agent_name: AGENT_NAME.to_owned(),
            dns: None,
            bind: Vec::new(),
            dns_timeout: secs(5),
            ca: None,
            ca_pem: None,
            tls_sessions_max: 2_048,
            headers: Vec::new(),
            connect_timeout: secs(10),
            slow_after: secs(10),
            slow_bytes_per_s: 1 << 10,
            body_bytes_max: 16 << 20,
            head_bytes_max: 64 << 10,
            decode_bytes_max: 64 << 20,
            decode_ratio_max: 100,
            memory_bytes: 256_000_000,
            spill_bytes: 256_000,
            idle_connections_max: 2_048,
            idle_timeout: secs(15),
            shards: 0,
            out: None,
            compress: Compress::Gzip,
            metrics: None,
            warc_roll_bytes: 1_000_000_000,
            warc_prefix: "nephila".to_owned(),
            refetch_missing: false,
            durability: Durability::Kernel,
            sync_every: secs(1),
            sync_bytes: 64_000_000,
            snapshot_bytes: 256_000_000,
            kept_out_bytes: 10_000_000_000,
            store_memory_bytes: 600_000_000,
            settle_delay: Duration::from_millis(20),
            log_roll_bytes: 256_000_000,
            log_files_max: 20,
            site: SiteConfig::default(),
        }
    }
}

impl Config {
    /// Reads layers, the weakest first: what a later one says replaces what an earlier one said. What could not be read
    /// is added to `mistakes`, and the result is usable only if there are none.
    pub fn build(layers: &[Layer], mistakes: &mut Mistakes) -> Config {
        let mut config = Config::default();
        for layer in layers {
            layer.apply(&mut config, mistakes);
        }
        config.settings.token = config.agent_name.to_ascii_lowercase();
        for (name, holds, what) in config.bounds() {
            if !holds {
                mistakes.add(format!("{name}: {what}"));
            }
        }
        config
    }

    /// What must hold beyond the form of each value.
    fn bounds(&self) -> Vec<(&'static str, bool, &'static str)> {
        let settings = &self.settings;
        let positive = "must be more than 0";
        vec![
            ("max-host-pages", settings.max_host_pages > 0, positive),
            ("max-urls", settings.max_urls > 0, positive),
            ("outbox-urls", settings.outbox_urls_max > 0, positive),
            ("send-rate", settings.send_rate != Some(0), positive),
            ("max-pages", settings.max_pages != Some(0), "must be more than 0; --dry-run fetches nothing"),
            ("max-url-bytes", settings.traps.url_bytes_max >= 32, "must be at least 32 bytes"),
            ("max-segment-repeats", settings.traps.segment_repeats_max > 0, positive),
            (
                "order",
                settings.order == UrlOrder::BreadthFirst || !self.shares_store(),
                "agents that share a store go breadth first: leave `order` out, or `store`",
            ),
            ("tell-again", settings.tell_again > 1, "must be at least 2"),
            ("workbench-hosts", settings.hosts_max > 0, positive),
            ("shards", self.shards <= 64, "must be at most 64"),
            ("ip-parallel", settings.ip_parallel > 0, positive),
            ("parallel", settings.parallel > 0, positive),
            ("parallel", settings.parallel <= 100_000, "must be at most 100000"),
            ("dns-parallel", settings.resolve_parallel > 0, positive),
            ("slow-factor", settings.slow_factor <= 1_000.0, "must be at most 1000"),
            ("backoff-min", !settings.backoff_min.is_zero(), positive),
            (
                "backoff-max",
                settings.backoff_max >= settings.backoff_min,
                "must be at least backoff-min: raise it, or lower that",
            ),
            (
                "robots-ttl",
                settings.robots_ttl >= settings.robots_ttl_min,
                "must be at least robots-ttl-min: raise it, or lower that",
            ),
            ("retry-pauses", settings.retry_pauses.len() <= 100, "must be at most 100 durations"),
            ("dns-timeout", !self.dns_timeout.is_zero(), positive),
            ("connect-timeout", !self.connect_timeout.is_zero(), positive),
            ("request-timeout", !self.settings.request_timeout.is_zero(), positive),
            ("max-body", self.body_bytes_max >= 1 << 10, "must be at least 1KiB"),
            ("max-body", self.body_bytes_max <= 4 << 30, "must be at most 4GiB"),
            ("max-head", self.head_bytes_max >= 1 << 10, "must be at least 1KiB"),
            ("max-head", self.head_bytes_max <= 16 << 20, "must be at most 16MiB"),
            ("max-decoded", self.decode_bytes_max >= 1 << 10, "must be at least 1KiB"),
            ("max-decode-ratio", self.decode_ratio_max > 0, positive),
            ("memory", self.memory_bytes >= 1 << 20, "must be at least 1MiB"),
            (
                "spill",
                self.spill_bytes <= self.memory_bytes / 4,
                "must be at most a quarter of memory: lower it, or raise that",
            ),
            ("warc-size", self.warc_roll_bytes >= 10_000, "must be at least 10KB"),
            ("sync-every", !self.sync_every.is_zero(), positive),
            ("sync-bytes", self.sync_bytes > 0, positive),
            ("snapshot-bytes", self.snapshot_bytes > 0, positive),
            ("settle-delay", self.settle_delay <= Duration::from_secs(1), "must be at most 1s"),
            ("log-size", self.log_roll_bytes >= 10_000, "must be at least 10KB"),
            ("log-files", self.log_files_max <= 10_000, "must be at most 10000"),
            ("capacity", self.site.capacity <= 1_000, "must be at most 1000"),
            ("store-replicas", self.site.store.replicas <= 10, "must be at most 10"),
            (
                "forget-after",
                self.site.forget_after.is_none_or(|after| after >= Duration::from_secs(20)),
                "must be at least 20s: agents are heard of every second, and need time to come back",
            ),
            (
                "forget-after",
                self.site.forget_after.is_none() || !self.shares_store(),
                "is for agents that do not share a store: in one that is shared, leases end by themselves",
            ),
        ]
    }

    /// Reads the file that `ca` names. Apart from [`Config::build`], so that a crawl whose file is gone can still be
    /// looked at.
    pub fn read_ca(&mut self, mistakes: &mut Mistakes) {
        let Some(path) = &self.ca else { return };
        let mut pem = Vec::new();
        let file = std::fs::File::open(path);
        if let Err(error) = file.and_then(|file| file.take(CA_BYTES_MAX).read_to_end(&mut pem)) {
            mistakes.add(format!("ca: cannot read {}: {error}", path.display()));
            return;
        }
        let marker = b"-----BEGIN CERTIFICATE-----";
        if !pem.windows(marker.len()).any(|window| window == marker) {
            mistakes.add(format!("ca: {} holds no certificate in PEM form", path.display()));
        }
        self.ca_pem = Some(pem);
    }

    /// The scope around these seeds.
    pub fn scope(&self, seeds: &[Url]) -> Scope {
        let mut scope = Scope::new(self.scope, self.include.clone(), self.exclude.clone());
        for seed in seeds {
            scope.add_seed(seed);
        }
        scope
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from).min(SHARDS_MAX);
        let shards = if self.shards == 0 { processors() } else { self.shards };
        u16::try_from(shards).unwrap_or(u16::MAX).max(1)
    }

    /// The User-Agent header.
    pub fn user_agent(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let name = match self.agent_name.as_str() {
            AGENT_NAME => String::new(),
            // The token that robots.txt files name has to be recognisable in what servers log.
            other => format!("{other}; "),
        };
        let contact = self.contact.as_ref().map(|contact| format!("; +{contact}")).unwrap_or_default();
        format!("Mozilla/5.0 (compatible; {name}nephila/{version}{contact})")
    }

    /// The From header, if there is one.
    pub fn from(&self) -> Option<String> {
        match &self.contact {
            Some(Contact::Email(email)) => Some(email.clone()),
            _ => None,
        }
    }

    /// The settings as lines of a file: all that have a value, or those that are not as by default.
    pub fn to_toml(&self, only_changed: bool, leave_out: &[&str]) -> String {
        let default = Config::default();
        let mut text = String::new();
        let is_wanted = |setting: &&table::Setting| {
            let is_ours = setting.group != table::Group::Site || self.is_of_site();
            is_ours && !leave_out.contains(&setting.name)
        };
        for setting in SETTINGS.iter().filter(is_wanted) {
            let shown = setting.show(self);
            if only_changed && shown == setting.show(&default) {
                continue;
            }
            if let Some(shown) = shown {
                text.push_str(&format!("{} = {}\n", setting.name, shown.toml()));
            }
        }
        text
    }
}

/// Whether somebody else's server is among the seeds, so that a contact is needed: anything but a private address or a
/// name that by its ending exists on this machine only.
pub fn needs_contact(seeds: &[Url]) -> bool {
    seeds.iter().any(|seed| {
        let host = Host::of(seed);
        let name = host.as_str();
        match host.ip() {
            Some(ip) => addresses::special(ip).is_none(),
            None => !(name == "localhost" || name.ends_with(".localhost") || name.ends_with(".test")),
        }
    })
}

/// How WARC files are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    /// One gzip member a record.
    Gzip,
    /// One zstd frame a record.
    Zstd,
    /// Not at all.
    None,
}

/// When a page counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it was handed to the kernel.
    Kernel,
    /// When it was synced to the disk.
    Power,
}

/// A word that is not among those that a setting takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not possible: {choices}")]
pub struct NotAChoice {
    word: String,
    choices: &'static str,
}

impl FromStr for Compress {
    type Err = NotAChoice;

    fn from_str(word: &str) -> Result<Compress, NotAChoice> {
        match word {
            "gzip" => Ok(Compress::Gzip),
            "zstd" => Ok(Compress::Zstd),
            "none" => Ok(Compress::None),
            _ => Err(NotAChoice { word: word.to_owned(), choices: "use gzip, zstd or none" }),
        }
    }
}

impl fmt::Display for Compress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compress::Gzip => "gzip",
            Compress::Zstd => "zstd",
            Compress::None => "none",
        })
    }
}

impl FromStr for Durability {
    type Err = NotAChoice;

    fn from_str(word: &str) -> Result<Durability, NotAChoice> {
        match word {
            "kernel" => Ok(Durability::Kernel),
            "power" => Ok(Durability::Power),
            _ => Err(NotAChoice { word: word.to_owned(), choices: "use kernel or power" }),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Kernel => "kernel",
            Durability::Power => "power",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn file(text: &str, mistakes: &mut Mistakes) -> Layer {
        Layer::text("crawl.toml", Path::new("/base"), text, mistakes)
    }

    fn flags(given: &[(&str, &[&str])]) -> Layer {
        let owned = |words: &&[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Layer::flags(given.iter().map(|(name, words)| ((*name).to_owned(), owned(words))).collect())
    }

    fn build(text: &str, given: &[(&str, &[&str])]) -> Result<Config, Vec<String>> {
        let mut mistakes = Mistakes::default();
        let layers = [file(text, &mut mistakes), flags(given)];
        let mut config = Config::build(&layers, &mut mistakes);
        config.read_ca(&mut mistakes);
        if mistakes.list().is_empty() { Ok(config) } else { Err(mistakes.list().to_vec()) }
    }

    #[test]
    fn flags_win_over_files() {
        let config = build(
            "delay = 5\nip-delay = \"1.5s\"\ninclude = [\"a,b\", \"c\"]\nmax-pages = 7\nretry-pauses = [\"1s\", 2]",
            &[("delay", &["250ms"]), ("allow-private", &["127.0.0.0/9,10.1.2.3"]), ("max-pages", &["none"])],
        )
        .unwrap();
        assert_eq!(config.settings.delay, Duration::from_millis(250));
        assert_eq!(config.settings.ip_delay, Duration::from_millis(1_500));
        assert_eq!(config.settings.max_pages, None);
        assert_eq!(config.settings.retry_pauses, [Duration::from_secs(1), Duration::from_secs(2)]);
        assert_eq!(config.include.iter().map(Regex::as_str).collect::<Vec<_>>(), ["a,b", "c"]);
        assert!(config.settings.private.refuses("127.0.0.1".parse().unwrap()).is_none());
        assert!(config.settings.private.refuses("10.1.2.4".parse().unwrap()).is_some());
    }

    #[test]
    fn relative_paths_are_relative_to_the_file() {
        let config = build("seeds = \"a/b.txt\"\nout = \"/x\"", &[]).unwrap();
        assert_eq!(config.seeds.as_deref(), Some(Path::new("/base/a/b.txt")));
        assert_eq!(config.out.as_deref(), Some(Path::new("/x")));
    }

    #[test]
    fn each_mistake_is_named() {
        // File, flag, its value, and what the only message must contain.
        for (text, name, word, expected) in [
            ("delya = 1", "", "", "crawl.toml: delya: unknown key; delay is one"),
            ("json = true", "", "", "only as a flag"),
            ("delay = [1, 2]", "", "", "crawl.toml: delay: 2 values are given"),
            ("delay = { a = 1 }", "", "", "crawl.toml: delay: is a table"),
            ("delay = ", "", "", "crawl.toml: line 1"),
            ("", "delay", "soon", "--delay: \"soon\" is not a duration"),
            ("", "max-bytes", "10G", "--max-bytes: \"10G\" is not a size"),
            ("", "max-pages", "many", "--max-pages: \"many\" is not a whole number"),
            ("", "max-depth", "70000", "--max-depth: 70000 is too large"),
            ("", "scope", "world", "use site, domain, prefix or any"),
            ("", "include", "(", "--include: \"(\" is not a regular expression"),
            ("", "contact", "me", "you@example.org"),
            ("", "agent-name", "my bot", "letters, digits"),
            ("", "dns", "localhost", "127.0.0.1:5353"),
            ("", "allow-private", "10.0.0.0/33", "10.0.0.0/8"),
            ("", "accept", "html", "text/html"),
            ("", "header", "X-Key: 123", "write HOST=NAME: VALUE"),
            ("", "ca", "/nonexistent/ca.pem", "ca: cannot read"),
            ("", "ca", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "no certificate"),
            ("", "compress", "brotli", "use gzip, zstd or none"),
            ("", "order", "depth-first", "use breadth-first or cash"),
            ("", "bind-address", "eth0", "is not an address"),
            ("", "bind-address", "127.0.0.1,::1,127.0.0.2", "at most one address for IPv4"),
            ("", "durability", "disk", "use kernel or power"),
            ("", "refetch-missing", "maybe", "use true or false"),
            ("", "slow-factor", "-1", "at least 0"),
            ("", "parallel", "0", "parallel: must be more than 0"),
            ("", "backoff-max", "1s", "backoff-max: must be at least backoff-min"),
            ("", "spill", "1GB", "spill: must be at most a quarter of memory"),
        ] {
            let words = [word];
            let given = [(name, &words[..])];
            let mistakes = build(text, if name.is_empty() { &[] } else { &given }).expect_err(text);
            assert_eq!(mistakes.len(), 1, "{text} {name} {word}: {mistakes:?}");
            assert!(mistakes[0].contains(expected), "{} / {expected}", mistakes[0]);
        }
    }

    #[test]
    fn all_mistakes_at_once() {
        let text = "delay = \"x\"\nfoo = 1\nmax-depth = -1\nscope = true";
        let given: &[(&str, &[&str])] = &[("delay", &["y"]), ("ip-parallel", &["0"]), ("dns", &["z"])];
        let mistakes = build(text, given).unwrap_err();
        assert_eq!(mistakes.len(), 7, "{mistakes:?}");
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let given: &[(&str, &[&str])] = &[
            ("delay", &["1500ms"]),
            ("include", &["a\"b\\d,{2}", "c"]),
            ("allow-private", &["10.0.0.0/8,::1"]),
            ("max-bytes", &["10GB"]),
            ("contact", &["me@example.org"]),
            ("retry-pauses", &["none"]),
            ("slow-factor", &["1.5"]),
            ("accept", &["text/html,image/*"]),
        ];
        let config = build("", given).unwrap();
        for only_changed in [true, false] {
            let text = config.to_toml(only_changed, &[]);
            let again = build(&text, &[]).unwrap();
            assert_eq!(again.to_toml(false, &[]), config.to_toml(false, &[]));
            assert_eq!(text.lines().count() > 40, !only_changed, "{text}");
        }
        assert_eq!(build("", &[]).unwrap().to_toml(true, &[]), "");
        // What is meant for one run is not recorded.
        let once = build("refetch-missing = true", &[]).unwrap();
        assert!(once.refetch_missing);
        assert_eq!(once.to_toml(true, &[]), "");
    }

    #[test]
    fn who_is_asking() {
        let version = env!("CARGO_PKG_VERSION");
        let user_agent = |given: &[(&str, &[&str])]| build("", given).unwrap().user_agent();
        assert_eq!(user_agent(&[]), format!("Mozilla/5.0 (compatible; nephila/{version})"));
        let given: &[(&str, &[&str])] = &[("contact", &["me@example.org"]), ("agent-name", &["MyBot"])];
        assert_eq!(
            user_agent(given),
            format!("Mozilla/5.0 (compatible; MyBot; nephila/{version}; +me@example.org)")
        );
        let config = build("", given).unwrap();
        assert_eq!(config.settings.token, "mybot");
        assert_eq!(config.from().as_deref(), Some("me@example.org"));
    }

    #[test]
    fn who_needs_a_contact() {
        for (seeds, needed) in [
            (&["http://127.0.0.1:8080/", "http://[::1]/", "http://10.0.0.1/"][..], false),
            (&["http://a.test/", "http://localhost/", "http://b.localhost/"], false),
            (&["http://a.test/", "https://example.org/"], true),
            (&["http://8.8.8.8/"], true),
            (&["http://test/"], true),
        ] {
            let seeds: Vec<Url> = seeds.iter().map(|seed| Url::parse(seed).unwrap()).collect();
            assert_eq!(needs_contact(&seeds), needed, "{seeds:?}");
        }
    }
}
