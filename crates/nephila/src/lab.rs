//! `nephila lab` and `nephila demo`: the synthetic web, the simulator and the experiments, for people who want to try a
//! crawler without touching anybody's server.

mod simulate;
mod wide_area;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use nephila_lab::demo;
use nephila_lab::experiment::{
    BenchOptions, ChaosOptions, ConnectionsOptions, FirstPageOptions, FrontierExperiment, FullDiskOptions,
    GapOptions, GarbageOptions, HandshakesOptions, HostileOptions, KillsOptions, ManyHostsOptions,
    MemoryOptions, Outcome, QualityOptions, RedisExperiment, RingOptions, ScalingOptions, ServerFaults,
    Setup, WebSpeedOptions, WorkOptions, bench, chaos, connections, federation, first_page, frontier,
    frontier_work, full_disk, gap, garbage, handshakes, hostile, kills, many_hosts, memory, quality, redis,
    ring, scaling, web_speed,
};
use nephila_lab::web::{Kinds, WebConfig, WebError, kinds, run_blocking};
use nephila_node::display::{self, Kind};

use crate::exit::{Ended, Failure, print_json};

/// `nephila demo` and its flags.
pub(crate) fn demo_command() -> Command {
    Command::new("demo")
        .about("Serve a small synthetic web on this machine and crawl it as three sites; nobody else is asked anything")
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .help("Where the crawl goes; must not exist yet [default: nephila-demo, or -2, -3, ...]"),
        )
        .arg(option("sites", "N", "3 sites over an emulated wide area, or 1 for a crawl alone [default: 3]"))
        .arg(flag("json", "Print what the crawler and the web say as one object"))
}

/// Runs `nephila demo`.
pub(crate) fn run_demo(matches: &ArgMatches) -> Ended {
    let out = matches.get_one::<String>("out").map(Path::new);
    if let Some(out) = out.filter(|out| out.exists()) {
        return Err(Failure::usage(format!(
            "{} exists, and each demonstration starts anew: name a directory that does not",
            out.display()
        )));
    }
    match number(matches, "sites", 3_u32)? {
        1 => {}
        3 => return run_demo_of_sites(matches, out),
        other => return Err(Failure::usage(format!("--sites: 1 or 3, not {other}"))),
    }
    let shown = demo::demo(out, Kind::fitting())?;
    if matches.get_flag("json") {
        let verdict = serde_json::to_value(&shown.verdict).context("cannot write the verdict")?;
        print_json(&serde_json::json!({ "schema": 1, "crawl": shown.summary.json(), "verdict": verdict }))?;
    } else {
        crate::exit::print(shown.text())?;
    }
    Ok(u8::from(shown.verdict.violations_total > 0))
}

fn run_demo_of_sites(matches: &ArgMatches, out: Option<&Path>) -> Ended {
    let kind = if matches.get_flag("json") { Kind::Quiet } else { Kind::fitting() };
    let shown = demo::demo_of_sites(out, kind)?;
    if matches.get_flag("json") {
        let site = |(name, status): &(String, serde_json::Value)| serde_json::json!({ "site": name, "status": status });
        let way = |(from, to, bytes): &(String, String, u64)| serde_json::json!({ "from": from, "to": to, "bytes": bytes });
        let verdict = serde_json::to_value(&shown.verdict).context("cannot write the verdict")?;
        let sites: Vec<_> = shown.statuses.iter().map(site).collect();
        let ways: Vec<_> = shown.bytes.iter().map(way).collect();
        print_json(&serde_json::json!({ "schema": 1, "sites": sites, "ways": ways, "verdict": verdict }))?;
    } else {
        crate::exit::print(shown.text())?;
    }
    Ok(u8::from(shown.verdict.violations_total > 0))
}

/// `nephila lab` and its flags.
pub(crate) fn command() -> Command {
    Command::new("lab")
        .about("Try and measure crawlers on a synthetic web")
        .subcommand_required(true)
        .subcommand(web_command())
        .subcommand(
            Command::new("sim")
                .about("Run an agent under virtual time through crashes and faults, and check its promises")
                .arg(flag("site", "Run a whole site of agents instead"))
                .arg(flag("shared", "Run a site of agents that share a store instead"))
                .arg(flag("federation", "Run several sites of agents as one instead; with --shared each of them shares a store"))
                .arg(option(
                    "trace",
                    "TEXT",
                    "Run one seed, and tell of every event and action that contains this",
                ))
                .arg(option("seed", "N", "The seed, or the first of several [default: 0]"))
                .arg(option("seeds", "N", "How many seeds [default: 1]"))
                .arg(option("jobs", "N", "How many at a time [default: as many as there are processors]"))
                .arg(flag("json", "Print the outcome as one object")),
        )
        .subcommand(
            experiment_command(
                "hostile",
                "Crawl everything that hurts: coverage, overlap, manners, traps, time lost",
            )
            .arg(option("hosts", "N", "Hosts [default: 200]"))
            .arg(option("pages", "N", "Pages a host [default: 500]"))
            .arg(option("scale", "N", "What every duration but time-outs is divided by [default: 50]"))
            .arg(flag("default-delays", "With the usual delays, on 20 hosts x 100 pages by default")),
        )
        .subcommand(
            experiment_command("kills", "Kill a crawl again and again, and see that nothing is lost")
                .arg(option("kills", "N", "How often [default: 50]"))
                .arg(option("seconds", "N", "How long the crawl would take without them [default: 120]")),
        )
        .subcommand(experiment_command(
            "full-disk",
            "Fill a small disk with a crawl, and go on when there is room",
        ))
        .subcommand(
            experiment_command("gap", "Measure the gaps between requests to a busy host").arg(option(
                "delay",
                "SECONDS,...",
                "The delays to try [default: 1,5]",
            )),
        )
        .subcommand(experiment_command(
            "memory",
            "Measure the memory of a million URLs and of endless bodies",
        ))
        .subcommand(
            experiment_command(
                "bench",
                "Measure what a page costs: processor time, memory, and the parts of it alone",
            )
            .arg(option("pages", "N", "Pages in all [default: 10000]"))
            .arg(option("hosts", "N", "Hosts that they are on [default: 1000]"))
            .arg(option("parallel", "N", "Requests at once [default: 64]"))
            .arg(option("compress", "HOW,...", "How archives are compressed, in turn [default: zstd,gzip]"))
            .arg(option("rounds", "N", "How often Nephila and the floor are measured, in turn [default: 5]"))
            .arg(option("peers", "NAME,...|none", "Crawlers to compare with [default: wget2,scrapy,spider]"))
            .arg(option(
                "peers-dir",
                "DIR",
                "Where they are installed and found again [default: removed at the end]",
            ))
            .arg(option("plot", "FILE", "Write a plot here, as SVG")),
        )
        .subcommand(experiment_command("first-page", "Measure the time from the start to the first page"))
        .subcommands(connection_commands())
        .subcommands(frontier_commands())
        .subcommands(site_commands())
        .subcommand(
            experiment_command("quality", "Measure how soon crawls have the important pages, by their order")
                .arg(option("graph", "FILE", "Links: two numbers of pages a line, with a tab between"))
                .arg(option("draws", "N", "How often seeds are drawn [default: 10]"))
                .arg(option("seeds", "N", "How many seeds a crawl begins with [default: 10]"))
                .arg(option("sites", "N", "Sites that crawl as one; 1 for none [default: 3]"))
                .arg(option(
                    "times",
                    "X,...",
                    "When they send what they found for a page again: when all of it is so many times what was sent \
                     [default: 1.5,2,4,8,16]",
                ))
                .arg(option("late", "N", "Pages that are fetched while something is on its way [default: 1000]"))
                .arg(option("plot", "FILE", "Write a plot here, as SVG")),
        )
}

/// Agents that crawl together.
fn site_commands() -> [Command; 5] {
    [
        experiment_command("ring", "Measure how evenly agents share, and that nothing moves needlessly")
            .arg(option("seeds", "N", "How many seeds are averaged over [default: 20]"))
            .arg(option("keys", "N", "Random keys, each time [default: 2000000]"))
            .arg(option("plot", "FILE", "Write a plot here, as SVG")),
        experiment_command(
            "chaos",
            "Kill and stop the agents of a site again and again, and see that nothing is lost",
        )
        .arg(option("agents", "N", "Agents that begin the site [default: 8]"))
        .arg(option("hosts", "N", "Hosts [default: 100]"))
        .arg(option("pages", "N", "Pages a host [default: 500, and 150 with --takeover]"))
        .arg(option(
            "seconds",
            "N",
            "How long there are faults, and about how long the crawl takes [default: 1800, and 600 with --takeover]",
        ))
        .arg(option(
            "kill-every",
            "SECONDS",
            "How often one is killed; it is back 3 to 15 s later [default: 5; with --takeover 50, and back 35 s later]",
        ))
        .arg(option("back-after", "SECONDS", "After how long it is back instead"))
        .arg(option(
            "stop-every",
            "SECONDS",
            "How often one is stopped, for half of this time [default: 120]",
        ))
        .arg(flag("join", "One more agent joins when a third of the time has passed"))
        .arg(store_option())
        .arg(option(
            "primary-every",
            "SECONDS",
            "How often a primary of the store is killed; it is back 5 s later [default: 20, and 7 with --regardless]",
        ))
        .arg(flag("regardless", "Kill primaries whether or not their replicas are in step"))
        .arg(
            flag("takeover", "With --store redis: kill agents and nothing else, and measure how soon others ask their hosts")
                .requires("store")
                .conflicts_with_all(["join", "lose", "time-out", "regardless", "stop-every", "primary-every"]),
        )
        .arg(
            flag("lose", "One is lost with its disk when a third of the time has passed, and forgotten")
                .conflicts_with("join"),
        )
        .arg(
            flag("time-out", "Agents forget each other after 30 s of silence, and one is away for longer; none is stopped")
                .conflicts_with_all(["join", "lose", "store"]),
        )
        .arg(
            option(
                "away",
                "SECONDS",
                "How long; others ask nothing of its hosts for 30 s more, so that above 60 pages are fetched twice [default: 60]",
            )
            .requires("time-out"),
        ),
        experiment_command(
            "scaling",
            "Measure what more agents bring, each with few connections, and what a page costs",
        )
        .arg(option("agents", "N", "How many are compared with one [default: 4]"))
        .arg(option("requests", "N", "Requests that are measured each time [default: 16000]"))
        .arg(option("rounds", "N", "How often both are measured, in turn [default: 2]"))
        .arg(store_option()),
        wide_area::command(),
        experiment_command(
            "garbage",
            "Send random bytes to every port of a site, with wrong certificates and without, and see that nothing changes",
        )
        .arg(option("bytes", "N", "Random bytes for each port [default: 10000000]")),
    ]
}

/// Which store the agents have.
fn store_option() -> Arg {
    option(
        "store",
        "KIND",
        "`own`: each agent has its own; `redis`: those of a site share one in a Redis Cluster [default: own]",
    )
    .value_parser(["own", "redis"])
}

fn shares_store(matches: &ArgMatches) -> bool {
    matches.get_one::<String>("store").is_some_and(|kind| kind == "redis")
}

/// The frontier on disk, and the store in a cluster.
fn frontier_commands() -> [Command; 3] {
    [
        experiment_command(
            "redis",
            "Measure the store in a Redis Cluster: memory, processor time, and a slot moved under load",
        )
        .arg(option("urls", "N", "URLs to measure memory and processor time with [default: 400000]"))
        .arg(option("moved-urls", "N", "URLs of the host whose slot is moved [default: 5000000]")),
        experiment_command(
            "frontier",
            "Fill, kill, open, move out of and drain a frontier on disk in little memory",
        )
        .arg(option("urls", "N", "URLs that are known in the end [default: 10000000]"))
        .arg(option("drained", "N", "URLs that are handed over in the end [default: 1000000]"))
        .arg(option("memory", "BYTES", "What it may use, page cache included [default: 2 GiB]"))
        .arg(option("plot", "FILE", "Write a plot here, as SVG")),
        Command::new("frontier-work")
            .about("One phase of `frontier`")
            .hide(true)
            .arg(Arg::new("phase").required(true))
            .arg(option("dir", "DIR", "Where").required(true))
            .arg(option("urls", "N", "As for frontier"))
            .arg(option("drained", "N", "As for frontier"))
            .arg(option("seed", "N", "As for frontier")),
    ]
}

/// Experiments about connections and those who wait for them.
fn connection_commands() -> [Command; 4] {
    [
        experiment_command("handshakes", "Measure pages that need a TLS handshake each, against these alone")
            .arg(option("pages", "N", "Pages [default: 20000]"))
            .arg(option("hosts", "N", "On so many hosts [default: 1000]")),
        experiment_command("connections", "Measure the memory of TLS connections that are kept open")
            .arg(option("hosts", "N", "Hosts, and so connections [default: 2000]")),
        experiment_command(
            "many-hosts",
            "Measure a crawl of many hosts with long delays: punctuality, rate, processor",
        )
        .arg(option("hosts", "N", "Hosts of each part [default: as many as the bars are for]"))
        .arg(option("page-bytes", "N", "How large pages are [default: 4000]"))
        .arg(option(
            "only",
            "PART",
            "Only `many` (20,000 hosts at 5 s) or only `kept` (5,000 at 1.25 s)",
        )),
        experiment_command("web-speed", "Measure how fast one core serves the synthetic web").arg(option(
            "hosts",
            "N",
            "Hosts [default: 100000]",
        )),
    ]
}

fn experiment_command(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .arg(option("seed", "N", "What everything is computed from [default: 1]"))
        .arg(option("keep", "DIR", "Keep the files of the experiment here"))
        .arg(flag("json", "Print the outcome as one object"))
}

fn web_command() -> Command {
    let default = WebConfig::default();
    Command::new("web")
        .about("Serve a synthetic web on the loopback network until Ctrl-C, and judge who crawls it")
        .arg(option("seed", "N", format!("What the web is computed from [default: {}]", default.seed)))
        .arg(option("hosts", "N", format!("How many hosts there are [default: {}]", default.hosts)))
        .arg(option(
            "pages",
            "N",
            format!("How many pages an ordinary host has [default: {}]", default.pages),
        ))
        .arg(option(
            "kinds",
            "KIND,...",
            "Which kinds of host there are: all, or some by name [default: all]",
        ))
        .arg(flag("list-kinds", "List the kinds of host, and what is particular about each"))
        .arg(option("http-port", "N", "Where HTTP is served [default: a free one]"))
        .arg(option("https-port", "N", "Where HTTPS is served [default: a free one]"))
        .arg(option("dns-port", "N", "Where DNS is answered [default: a free one]"))
        .arg(option("time-scale", "N", "What every duration of the web is divided by [default: 1]"))
        .arg(option(
            "dir",
            "DIR",
            "Where its root certificate and its list of seeds are written [default: nephila-lab-web]",
        ))
        .arg(flag("json", "Print the verdict as one object"))
}

fn option(name: &'static str, value: &'static str, help: impl Into<clap::builder::StyledStr>) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Runs `nephila lab`.
pub(crate) fn run(matches: &ArgMatches) -> Ended {
    match matches.subcommand() {
        Some(("web", matches)) => web(matches),
        Some(("sim", matches)) => simulate::run(matches),
        Some(("frontier-work", matches)) => work_on_frontier(matches),
        Some((name, matches)) => {
            let outcome = experiment(name, matches)?;
            if matches.get_flag("json") {
                print_json(&outcome.to_json())?;
            } else {
                crate::exit::print(outcome.to_string())?;
            }
            Ok(u8::from(!outcome.is_met()))
        }
        None => Err(Failure::usage("name what the lab should do: `nephila lab --help` lists it")),
    }
}

fn experiment(name: &str, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let setup = Setup {
        keep: matches.get_one::<String>("keep").map(PathBuf::from),
        say: display::note,
        ..Setup::here().context("cannot find the running program")?
    };
    let seed = number(matches, "seed", 1)?;
    Ok(match name {
        "hostile" => hostile(&setup, &hostile_options(matches, seed)?)?,
        "kills" => {
            let default = KillsOptions::default();
            let kills_wanted = number(matches, "kills", default.kills)?;
            let seconds = number(matches, "seconds", default.seconds)?;
            kills(&setup, &KillsOptions { seed, kills: kills_wanted, seconds })?
        }
        "gap" => {
            let mut options = GapOptions { seed, ..GapOptions::default() };
            if let Some(words) = matches.get_one::<String>("delay") {
                options.delays =
                    words.split(',').map(|word| seconds("delay", word)).collect::<Result<_, _>>()?;
            }
            gap(&setup, &options)?
        }
        "bench" => bench(&setup, &bench_options(matches, seed)?)?,
        "full-disk" => full_disk(&setup, &FullDiskOptions { seed, ..FullDiskOptions::default() })?,
        "memory" => memory(&setup, &MemoryOptions { seed, ..MemoryOptions::default() })?,
        "first-page" => first_page(&setup, &FirstPageOptions { seed, ..FirstPageOptions::default() })?,
        "handshakes" => {
            let default = HandshakesOptions::default();
            let pages = number(matches, "pages", default.pages)?;
            let hosts = number(matches, "hosts", default.hosts)?;
            handshakes(&setup, &HandshakesOptions { seed, pages, hosts, ..default })?
        }
        "frontier" => {
            let default = FrontierExperiment::default();
            let options = FrontierExperiment {
                seed,
                urls: number(matches, "urls", default.urls)?,
                drained: number(matches, "drained", default.drained)?,
                memory_bytes: number(matches, "memory", default.memory_bytes)?,
                plot: matches.get_one::<String>("plot").map(PathBuf::from),
            };
            frontier(&setup, &options)?
        }
        "quality" => quality(&setup, &quality_options(matches, seed)?)?,
        "redis" => redis(&setup, &redis_options(matches, seed)?)?,
        "ring" => {
            let default = RingOptions::default();
            let options = RingOptions {
                seed,
                seeds: number(matches, "seeds", default.seeds)?,
                keys: number(matches, "keys", default.keys)?,
                plot: matches.get_one::<String>("plot").map(PathBuf::from),
                ..default
            };
            ring(&setup, &options)?
        }
        "chaos" => chaos(&setup, &chaos_options(matches, seed)?)?,
        "scaling" => scaling(&setup, &scaling_options(matches, seed)?)?,
        "federation" => federation(&setup, &wide_area::options(matches, seed)?)?,
        "garbage" => garbage(&setup, &garbage_options(matches, seed)?)?,
        "connections" => {
            let hosts = number(matches, "hosts", ConnectionsOptions::default().hosts)?;
            connections(&setup, &ConnectionsOptions { seed, hosts })?
        }
        "many-hosts" => {
            let mut options = ManyHostsOptions { seed, ..ManyHostsOptions::default() };
            options.page_bytes = number(matches, "page-bytes", options.page_bytes)?;
            if let Some(only) = matches.get_one::<String>("only") {
                options.parts.retain(|part| part.name == only);
                if options.parts.is_empty() {
                    return Err(Failure::usage(format!(
                        "--only: there is no part {only:?}: `many` or `kept`"
                    )));
                }
            }
            for part in &mut options.parts {
                part.hosts = number(matches, "hosts", part.hosts)?;
            }
            many_hosts(&setup, &options)?
        }
        _ => {
            let default = WebSpeedOptions::default();
            web_speed(
                &setup,
                &WebSpeedOptions { seed, hosts: number(matches, "hosts", default.hosts)?, ..default },
            )?
        }
    })
}

fn chaos_options(matches: &ArgMatches, seed: u64) -> Result<ChaosOptions, Failure> {
    let takeover = matches.get_flag("takeover");
    let default = if takeover { ChaosOptions::takeover() } else { ChaosOptions::default() };
    let span = |name: &str, default: Duration| {
        matches.get_one::<String>(name).map_or(Ok(default), |word| seconds(name, word))
    };
    let stop_every = span("stop-every", default.stop_every)?;
    let mut servers = ServerFaults { regardless: matches.get_flag("regardless"), ..ServerFaults::default() };
    if servers.regardless {
        servers.kill_every = Duration::from_secs(7);
    }
    servers.kill_every = span("primary-every", servers.kill_every)?;
    Ok(ChaosOptions {
        seed,
        agents: number(matches, "agents", default.agents)?,
        hosts: number(matches, "hosts", default.hosts)?,
        pages: number(matches, "pages", default.pages)?,
        seconds: number(matches, "seconds", default.seconds)?,
        kill_every: span("kill-every", default.kill_every)?,
        back_after: (span("back-after", default.back_after.0)?, span("back-after", default.back_after.1)?),
        stop_every,
        stop_for: stop_every / 2,
        join: matches.get_flag("join"),
        lose: matches.get_flag("lose"),
        times_out: matches.get_flag("time-out"),
        away: span("away", default.away)?,
        servers: shares_store(matches).then_some(servers),
        takeover,
    })
}

fn scaling_options(matches: &ArgMatches, seed: u64) -> Result<ScalingOptions, Failure> {
    let default = ScalingOptions::default();
    Ok(ScalingOptions {
        seed,
        agents: number(matches, "agents", default.agents)?,
        requests: number(matches, "requests", default.requests)?,
        rounds: number(matches, "rounds", default.rounds)?,
        redis: shares_store(matches),
        ..default
    })
}

fn hostile_options(matches: &ArgMatches, seed: u64) -> Result<HostileOptions, Failure> {
    let usual = matches.get_flag("default-delays");
    let default = if usual { HostileOptions::default_delays() } else { HostileOptions::default() };
    Ok(HostileOptions {
        seed,
        hosts: number(matches, "hosts", default.hosts)?,
        pages: number(matches, "pages", default.pages)?,
        scale: number(matches, "scale", default.scale)?,
        ..default
    })
}

fn garbage_options(matches: &ArgMatches, seed: u64) -> Result<GarbageOptions, Failure> {
    let default = GarbageOptions::default();
    Ok(GarbageOptions { seed, bytes: number(matches, "bytes", default.bytes)?, ..default })
}

fn quality_options(matches: &ArgMatches, seed: u64) -> Result<QualityOptions, Failure> {
    let default = QualityOptions::default();
    let times = match matches.get_one::<String>("times") {
        None => default.times,
        Some(words) => {
            let times = words.split(',').map(|word| word.trim().parse()).collect::<Result<_, _>>();
            times.map_err(|_| Failure::usage(format!("--times: {words:?} are not numbers")))?
        }
    };
    Ok(QualityOptions {
        seed,
        graph: matches.get_one::<String>("graph").map_or(default.graph, PathBuf::from),
        draws: number(matches, "draws", default.draws)?,
        seeds: number(matches, "seeds", default.seeds)?,
        sites: number(matches, "sites", default.sites)?,
        times,
        late: number(matches, "late", default.late)?,
        plot: matches.get_one::<String>("plot").map(PathBuf::from),
    })
}

fn redis_options(matches: &ArgMatches, seed: u64) -> Result<RedisExperiment, Failure> {
    let default = RedisExperiment::default();
    let urls = number(matches, "urls", default.urls)?;
    Ok(RedisExperiment { seed, urls, moved_urls: number(matches, "moved-urls", default.moved_urls)? })
}

fn work_on_frontier(matches: &ArgMatches) -> Ended {
    let default = FrontierExperiment::default();
    let word = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    frontier_work(&WorkOptions {
        phase: word("phase"),
        dir: word("dir").into(),
        urls: number(matches, "urls", default.urls)?,
        seed: number(matches, "seed", default.seed)?,
        drained: number(matches, "drained", default.drained)?,
    })?;
    Ok(0)
}

fn bench_options(matches: &ArgMatches, seed: u64) -> Result<BenchOptions, Failure> {
    let default = BenchOptions::default();
    let word = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    Ok(BenchOptions {
        seed,
        pages: number(matches, "pages", default.pages)?,
        hosts: number(matches, "hosts", default.hosts)?,
        parallel: number(matches, "parallel", default.parallel)?,
        compress: word("compress")
            .map_or(default.compress, |words| words.split(',').map(str::to_owned).collect()),
        rounds: number(matches, "rounds", default.rounds)?,
        peers: match word("peers") {
            None => default.peers,
            Some("none") => Vec::new(),
            Some(names) => {
                let peers = names.split(',').map(str::parse).collect::<Result<_, _>>();
                peers.map_err(|error: anyhow::Error| Failure::usage(format!("--peers: {error}")))?
            }
        },
        peers_dir: word("peers-dir").map(PathBuf::from),
        plot: word("plot").map(PathBuf::from),
    })
}

fn seconds(name: &str, word: &str) -> Result<Duration, Failure> {
    let parsed =
        word.trim().trim_end_matches('s').parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    parsed
        .filter(|delay| !delay.is_zero())
        .ok_or_else(|| Failure::usage(format!("--{name}: {word:?} is not a number of seconds above 0")))
}

fn web(matches: &ArgMatches) -> Ended {
    if matches.get_flag("list-kinds") {
        let width = kinds::all().iter().map(|kind| kind.name.len()).max().unwrap_or(0);
        let line = |kind: &kinds::Kind| format!("{:width$}  {}\n", kind.name, kind.about);
        crate::exit::print(kinds::all().iter().map(line).collect::<String>())?;
        return Ok(0);
    }
    let default = WebConfig::default();
    let config = WebConfig {
        seed: number(matches, "seed", default.seed)?,
        hosts: number(matches, "hosts", default.hosts)?,
        pages: number(matches, "pages", default.pages)?,
        kinds: matches
            .get_one::<String>("kinds")
            .map_or(Ok(Kinds::All), |kinds| kinds.parse())
            .map_err(not_served)?,
        http_port: number(matches, "http-port", 0)?,
        https_port: number(matches, "https-port", 0)?,
        dns_port: number(matches, "dns-port", 0)?,
        time_scale: number(matches, "time-scale", default.time_scale)?,
        ..default
    };
    let json = matches.get_flag("json");
    let dir = matches.get_one::<String>("dir").map_or("nephila-lab-web".into(), PathBuf::from);
    let verdict = run_blocking(config, &dir, |web, command| {
        let text = format!(
            "the web is served: http on port {}, https on port {}, dns on {}\ncrawl it with:\n  {command}\n\
             Ctrl-C ends it and prints the verdict",
            web.http_port, web.https_port, web.dns_addr
        );
        if json {
            display::note(&text);
        } else {
            // Where nobody reads it, nobody misses it.
            let _ = crate::exit::print(format!("{text}\n"));
        }
    })
    .map_err(not_served)?;
    if json {
        print_json(&serde_json::to_value(verdict).context("cannot write the verdict")?)?;
    } else {
        crate::exit::print(verdict.to_string())?;
    }
    Ok(0)
}

/// Settings that make no sense are mistakes in the command.
fn not_served(error: WebError) -> Failure {
    match error {
        WebError::Config(_) | WebError::UnknownKind(_) => Failure::usage(error),
        other => anyhow::Error::new(other).context("cannot serve the web").into(),
    }
}

fn number<T: std::str::FromStr>(matches: &ArgMatches, name: &str, default: T) -> Result<T, Failure> {
    match matches.get_one::<String>(name) {
        None => Ok(default),
        Some(word) => {
            word.parse().map_err(|_| Failure::usage(format!("--{name}: {word:?} is not a number that fits")))
        }
    }
}
