//! The one table of settings: their names, what they mean and where they go.
//!
//! Flags, keys of files, the help text, `nephila config` and docs/settings.md are all made from it, so that none of them
//! can differ from another. Defaults are those of [`Config::default`].

use super::Config;
use super::site::PeerAddresses;
use super::values::{
    Addresses, Choice, Codec, Count, File, Given, HostHeaders, Listen, MediaTypes, Name, Networks, Number,
    Patterns, Server, Shown, Size, Span, Spans, Texts, Word,
};

/// A setting.
pub struct Setting {
    /// Its name: `--name` on the command line, `name = ...` in a file.
    pub name: &'static str,
    /// What stands for its value in help.
    pub value: &'static str,
    /// What it means.
    pub about: &'static str,
    /// What it is about.
    pub group: Group,
    /// Whether the short help leaves it out.
    pub advanced: bool,
    /// Whether it may be given several times.
    pub many: bool,
    pub(super) read: fn(&mut Config, &Given<'_>) -> Result<(), String>,
    pub(super) show: fn(&Config) -> Option<Shown>,
}

impl Setting {
    /// Its value in a configuration, if it has one.
    pub fn show(&self, config: &Config) -> Option<Shown> {
        (self.show)(config)
    }

    /// The default in words.
    pub fn default_words(&self) -> String {
        match self.show(&Config::default()) {
            Some(shown) => shown.words(),
            None => "none".to_owned(),
        }
    }
}

/// What settings are about, in the order of help and documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Where the crawl starts and how far it goes.
    Scope,
    /// When it ends.
    Limits,
    /// Who is asking.
    Identity,
    /// How gently.
    Manners,
    /// What happens after failures.
    Failures,
    /// How robots.txt is kept.
    Robots,
    /// How connections are made.
    Network,
    /// What is kept, and where.
    Output,
    /// Whom it crawls with.
    Site,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 9] = [
        Group::Scope,
        Group::Limits,
        Group::Identity,
        Group::Manners,
        Group::Failures,
        Group::Robots,
        Group::Network,
        Group::Output,
        Group::Site,
    ];

    /// The heading above them.
    pub fn title(self) -> &'static str {
        match self {
            Group::Scope => "Seeds and scope",
            Group::Limits => "Limits",
            Group::Identity => "Identity",
            Group::Manners => "Manners",
            Group::Failures => "Failures",
            Group::Robots => "robots.txt",
            Group::Network => "Network",
            Group::Output => "Output",
            Group::Site => "Site (for `nephila agent` alone)",
        }
    }
}

/// Each row: whether the short help shows it, name, value, how it is read, the field, what it means.
macro_rules! settings {
    ($($group:ident { $($level:ident $name:literal $value:literal $codec:ident $($field:ident).+: $about:literal;)* })*) => {
        /// All settings, grouped.
        pub static SETTINGS: &[Setting] = &[$($(Setting {
            name: $name,
            value: $value,
            about: $about,
            group: Group::$group,
            advanced: settings!(@$level),
            many: many_of(|config| &config.$($field).+, || $codec),
            read: |config, given| {
                config.$($field).+ = <$codec as Codec<_>>::read(given)?;
                Ok(())
            },
            show: |config| <$codec as Codec<_>>::show(&config.$($field).+),
        }),*),*];
    };
    (@common) => { false };
    (@advanced) => { true };
}

/// Yes or no for one run. It is never written back: a crawl that goes on later is asked again.
struct Once;

impl Codec<bool> for Once {
    fn read(given: &Given<'_>) -> Result<bool, String> {
        match given.words {
            [word] => word.trim().parse().map_err(|_| format!("{word:?} is not possible: use true or false")),
            words => Err(format!("{} values are given: write one", words.len())),
        }
    }
    fn show(_: &bool) -> Option<Shown> {
        None
    }
}

/// Whether a codec takes several values; the accessor only says which type it is to read.
const fn many_of<T, C: Codec<T>>(_field: fn(&Config) -> &T, _codec: fn() -> C) -> bool {
    C::MANY
}

settings! {
    Scope {
        common "urls" "URL" Texts urls:
            "Where to start. On the command line: without a flag. Without a scheme, https:// is added";
        common "seeds" "FILE" File seeds:
            "A file of URLs to start from, one a line; - is standard input. Empty lines and lines that start with # are skipped";
        common "scope" "KIND" Choice scope:
            "How far to go from the seeds: site (their names, with and without www.), domain (all names of their domains), prefix (below their directories), any (everywhere)";
        common "include" "REGEX" Patterns include:
            "Only URLs that match; may be given several times, and one has to match";
        common "exclude" "REGEX" Patterns exclude: "No URLs that match; may be given several times";
        common "accept" "TYPE" MediaTypes accept:
            "Besides HTML, take only bodies of these media types, such as application/pdf or image/*; of others the head alone is kept. All if not given";
        common "order" "HOW" Choice settings.order:
            "Which URLs of a host come first: breadth-first (those nearest to a seed) or cash (those that were given most by the pages that link to them; not where agents share a store). It cannot be changed later";
    }
    Limits {
        common "max-pages" "N" Count settings.max_pages: "End after this many pages, over all runs of the crawl";
        common "max-depth" "N" Count settings.max_depth: "Links from a seed that are followed at most";
        common "max-time" "DURATION" Span settings.max_time: "End after this long, over all runs of the crawl";
        common "max-bytes" "SIZE" Size settings.max_bytes:
            "End after this many bytes received, over all runs of the crawl";
        common "max-host-pages" "N" Count settings.max_host_pages: "URLs that one host may have";
        common "max-wait" "DURATION" Span settings.max_wait:
            "End when nothing is due for this long; what remains stays queued";
        advanced "max-urls" "N" Count settings.max_urls: "URLs that the crawl may know in all";
        advanced "kept-out" "SIZE" Size kept_out_bytes:
            "Room on disk for URLs that these limits keep out, so that they come back when a limit is raised; what is beyond it is only counted. Not for a store that agents share";
        advanced "max-url-bytes" "SIZE" Size settings.traps.url_bytes_max: "The longest URL that is followed";
        advanced "max-segment-repeats" "N" Count settings.traps.segment_repeats_max:
            "How often one path segment may occur in a URL that is followed";
        advanced "max-redirects" "N" Count settings.redirects_max: "Redirects in a row that are followed";
    }
    Identity {
        common "contact" "EMAIL|URL" Word contact:
            "Whom webmasters can write to; sent with every request. Also taken from NEPHILA_CONTACT and from the user's configuration, ~/.config/nephila/config.toml";
        common "agent-name" "NAME" Name agent_name: "The product token that robots.txt files address this crawl by";
    }
    Manners {
        common "delay" "DURATION" Span settings.delay:
            "From the last byte of an answer to the next request to the same host";
        common "ip-delay" "DURATION" Span settings.ip_delay: "The same for an address, whatever its hosts";
        advanced "ip-parallel" "N" Count settings.ip_parallel: "Requests at once to one address";
        advanced "slow-factor" "X" Number settings.slow_factor:
            "The delay is at least this many times the host's response time; 0 switches that off";
        advanced "parallel" "N" Count settings.parallel: "Requests at once to all hosts together";
        advanced "jitter-seed" "N" Count settings.seed: "The number that random additions to waits are drawn from";
    }
    Failures {
        advanced "backoff-min" "DURATION" Span settings.backoff_min:
            "The first wait after a failure of a host; it doubles with each failure";
        advanced "backoff-max" "DURATION" Span settings.backoff_max: "Where the doubling ends";
        advanced "host-give-up" "DURATION" Span settings.host_give_up: "A host that failed for this long is given up";
        advanced "no-such-name-span" "DURATION" Span settings.no_such_name_span:
            "Over how long a name that does not exist is asked for twice again";
        advanced "retry-pauses" "DURATION,..." Spans settings.retry_pauses:
            "The waits between the attempts at a URL; one attempt more than there are waits";
    }
    Robots {
        advanced "robots-ttl" "DURATION" Span settings.robots_ttl: "How long a robots.txt is used before it is asked for again";
        advanced "robots-ttl-min" "DURATION" Span settings.robots_ttl_min: "What Cache-Control may shorten that to";
        advanced "robots-stale-max" "DURATION" Span settings.robots_stale_max:
            "How old a robots.txt may be that is used while a newer one cannot be had";
        advanced "robots-elsewhere-max" "DURATION" Span settings.robots_elsewhere_max:
            "How long a robots.txt that redirects to another host may wait in that host's queue";
        advanced "robots-memory" "SIZE" Size settings.robots_bytes_max:
            "Memory for rules of robots.txt; those that find no room are read back from the journal when they are needed";
        advanced "workbench-hosts" "N" Count settings.hosts_max:
            "Hosts in memory, about a kilobyte each at rest; those at rest leave it when others need the room";
        advanced "robots-redirects" "N" Count settings.robots_redirects_max: "Redirects of robots.txt that are followed";
    }
    Network {
        common "allow-private" "NET,..." Networks settings.private:
            "Which addresses that are not globally reachable may be asked: all (the flag alone), none, or those in these networks";
        common "dns" "ADDRESS" Server dns: "The DNS server to ask; the system's if not given";
        advanced "bind-address" "ADDRESS,..." Addresses bind: "The address of this machine that requests come from, one for IPv4 and one for IPv6; the system chooses if not given";
        common "header" "HOST=NAME: VALUE" HostHeaders headers:
            "A header for requests to this host and no other; may be given several times. Its value is not recorded: give it again to go on";
        common "ca" "FILE" File ca: "Root certificates to trust besides the usual ones, in PEM form";
        advanced "tls-sessions" "N" Count tls_sessions_max: "Servers whose TLS sessions are kept to be resumed; 0 for none";
        advanced "dns-parallel" "N" Count settings.resolve_parallel: "DNS questions at once";
        advanced "dns-timeout" "DURATION" Span dns_timeout: "How long to wait for one DNS answer";
        advanced "connect-timeout" "DURATION" Span connect_timeout: "How long to wait for a connection";
        advanced "request-timeout" "DURATION" Span settings.request_timeout: "From the start of a request to the last byte of its answer";
        advanced "slow-after" "DURATION" Span slow_after: "When an answer has taken this long, slow-rate applies";
        advanced "slow-rate" "SIZE" Size slow_bytes_per_s: "An answer slower than this, in bytes a second, is cut";
        advanced "max-body" "SIZE" Size body_bytes_max: "The largest body; what is longer is cut";
        advanced "max-head" "SIZE" Size head_bytes_max: "The largest head of an answer";
        advanced "max-decoded" "SIZE" Size decode_bytes_max: "How much of a body is read after decompression";
        advanced "max-decode-ratio" "N" Count decode_ratio_max: "How many times its size a body may decompress to";
        advanced "memory" "SIZE" Size memory_bytes: "What all bodies in flight may take; a fetch waits for its share";
        advanced "spill" "SIZE" Size spill_bytes: "A body larger than this is kept in a file";
        advanced "shards" "N" Count shards:
            "Threads that fetch, each with one that archives; 0: as many as there are processors, at most 8";
        advanced "idle-connections" "N" Count idle_connections_max: "Connections kept open for later requests";
        advanced "idle-timeout" "DURATION" Span idle_timeout: "How long a connection is kept open without a request";
    }
    Output {
        common "out" "DIR" File out: "The directory of the crawl; ./nephila-<name of the first seed> if not given";
        common "compress" "HOW" Choice compress: "How WARC files are compressed: gzip (.warc.gz, which every tool reads), zstd (.warc.zst, smaller and quicker) or none";
        common "metrics" "ADDRESS" Listen metrics:
            "Serve figures for Prometheus at http://ADDRESS/metrics, such as 127.0.0.1:9464, to everybody who can connect to it";
        advanced "warc-size" "SIZE" Size warc_roll_bytes: "A WARC file of this size is closed and another begun";
        advanced "warc-prefix" "NAME" Name warc_prefix: "What the names of WARC files start with";
        advanced "refetch-missing" "BOOL" Once refetch_missing:
            "true: go on although WARC files were removed, and fetch their pages again. Not recorded with the crawl";
        advanced "durability" "HOW" Choice durability:
            "When a page counts: kernel (handed to the kernel: survives the end of the process) or power (synced to the disk: survives the loss of power)";
        advanced "sync-every" "DURATION" Span sync_every: "How often what was written is synced to the disk, at least";
        advanced "sync-bytes" "SIZE" Size sync_bytes: "After how many bytes it is synced in any case";
        advanced "snapshot-bytes" "SIZE" Size snapshot_bytes: "After how many bytes of the journal sieve and queues are written down";
        advanced "store-memory" "SIZE" Size store_memory_bytes: "Memory for sieve and queues; more of them are on disk";
        advanced "settle-delay" "DURATION" Span settle_delay:
            "How long a page may wait for others so that they are written together; three times as long where agents share a store";
        advanced "log-size" "SIZE" Size log_roll_bytes: "A fetch log of this size is compressed and another begun";
        advanced "log-files" "N" Count log_files_max: "How many old fetch logs are kept";
        advanced "stop-grace" "DURATION" Span settings.stop_grace:
            "When the crawl is told to stop: how long what is being fetched may still take";
    }    Site {
        common "identity" "DIR" File site.identity:
            "The directory with this agent's certificate and key and the site's authority, made by `nephila ca`";
        common "listen" "ADDRESS" Listen site.listen: "Where this agent listens to the others, such as 0.0.0.0:7946";
        common "address" "HOST:PORT" Word site.address: "Where the others reach this agent; what listen says if not given";
        common "peers" "HOST:PORT,..." PeerAddresses site.peers:
            "Where agents of the site are reached. Those that are listed begin the site together, when all of them are there; who is not listed joins it. Without any, this agent begins a site alone";
        advanced "forget-after" "DURATION" Span site.forget_after:
            "Agents that are silent for this long are forgotten, as by `nephila site forget`, and one that hears of nobody for half of it asks nothing. Should such an agent still be at work, hosts are asked by two until it hears of it. Never if not given; the same for all agents";
        common "capacity" "N" Count site.capacity: "This agent's share of the hosts, in relation to that of others; 0 to give all that it has to them";
        common "federation" "FILE" File site.federation:
            "The list of the sites that crawl as one with this one, the same for all agents of all sites (docs/federation.md)";
        common "gateway" "ADDRESS" Listen site.gateway:
            "Where this agent listens to agents of other sites, such as 0.0.0.0:7947. Without it, it only sends";
        common "geoip" "FILE" File site.geoip:
            "Where addresses are, in the MaxMind DB format (.mmdb), by cities or at least by countries; for a federation in which each host is the nearest site's";
        advanced "outbox-urls" "N" Count settings.outbox_urls_max:
            "URLs that may wait at this agent for one other site of its federation";
        advanced "outbox-full" "HOW" Choice settings.outbox_full:
            "What happens when as many wait: wait (no agent of the site asks for more pages until there is room; robots.txt is asked for, and what other sites send is taken) or drop (what is found for that site is left out)";
        advanced "send-rate" "N" Count settings.send_rate:
            "URLs a second that this agent sends to other sites, each of which gets an equal part: what is more waits. As many as they take if not given";
        advanced "tell-again" "N" Count settings.tell_again:
            "With order = \"cash\": how many times as much a URL of another agent, or of another site, must have been given before it is told again. Fewer bring the order nearer to that of one agent alone, and cost more messages";
        common "store" "URL" Word site.store.url:
            "A Redis or Valkey Cluster for all agents of the site to share: rediss://USER@HOST:PORT,HOST:PORT with some of its servers; redis:// without TLS, for servers on this machine. Without it each agent has a store of its own, in its directory";
        common "store-name" "NAME" Word site.store.name:
            "What the crawl is called in the store that agents share, the same for all of them; the site's name if not given";
        common "store-password" "FILE" File site.store.password: "The file with the password of the user that store names";
        common "store-ca" "FILE" File site.store.ca: "The authority that the servers' certificates are of, in PEM form; for rediss://";
        common "store-certificate" "FILE" File site.store.certificate:
            "The certificate that this agent shows to the servers, in PEM form, if they ask for one";
        common "store-key" "FILE" File site.store.key: "Its key, in PEM form";
        advanced "store-replicas" "N" Count site.store.replicas:
            "How many replicas have to have what counts; each primary needs as many";
        advanced "store-plain" "BOOL" Choice site.store.plain:
            "true: servers on other machines may be spoken to without TLS or a login, and speak so to each other. Only on a network that nobody else is on";
    }
}
