//! `nephila lab`: the synthetic web, for people who want to try a crawler without touching anybody's server.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command};
use nephila_lab::web::{Kinds, WebConfig, run_blocking};

use crate::exit::{Ended, print_json};

/// The command and its flags.
pub(crate) fn command() -> Command {
    let default = WebConfig::default();
    let number = |name: &'static str, value: String, help: &str| {
        Arg::new(name).long(name).value_name("N").help(format!("{help} [default: {value}]"))
    };
    Command::new("lab")
        .about("Try and measure crawlers on a synthetic web")
        .subcommand_required(true)
        .subcommand(
            Command::new("web")
                .about("Serve a synthetic web on the loopback network until Ctrl-C, and judge who crawls it")
                .arg(number("seed", default.seed.to_string(), "What the web is computed from"))
                .arg(number("hosts", default.hosts.to_string(), "How many hosts there are"))
                .arg(number("pages", default.pages.to_string(), "How many pages an ordinary host has"))
                .arg(
                    Arg::new("kinds")
                        .long("kinds")
                        .value_name("KIND,...")
                        .default_value("all")
                        .help("Which kinds of host there are: all, plain, or some by name"),
                )
                .arg(number("http-port", "a free one".to_owned(), "Where HTTP is served"))
                .arg(number("https-port", "a free one".to_owned(), "Where HTTPS is served"))
                .arg(number("dns-port", "a free one".to_owned(), "Where DNS is answered"))
                .arg(number(
                    "time-scale",
                    default.time_scale.to_string(),
                    "What every duration of the web is divided by",
                ))
                .arg(
                    Arg::new("dir")
                        .long("dir")
                        .value_name("DIR")
                        .default_value("nephila-lab-web")
                        .help("Where its root certificate and its list of seeds are written"),
                ),
        )
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Ended {
    match matches.subcommand() {
        Some(("web", matches)) => web(matches),
        _ => Err(crate::exit::Failure::usage("name what the lab should do: web")),
    }
}

fn web(matches: &ArgMatches) -> Ended {
    let default = WebConfig::default();
    let config = WebConfig {
        seed: number(matches, "seed", default.seed)?,
        hosts: number(matches, "hosts", default.hosts)?,
        pages: number(matches, "pages", default.pages)?,
        kinds: matches
            .get_one::<String>("kinds")
            .map_or(Ok(Kinds::All), |kinds| kinds.parse())
            .map_err(crate::exit::Failure::usage)?,
        http_port: number(matches, "http-port", 0)?,
        https_port: number(matches, "https-port", 0)?,
        dns_port: number(matches, "dns-port", 0)?,
        time_scale: number(matches, "time-scale", default.time_scale)?,
        ..default
    };
    let dir = matches.get_one::<String>("dir").map(PathBuf::from).unwrap_or_default();
    let verdict = run_blocking(config, &dir, |web, command| {
        // Where nobody reads it, nobody misses it.
        let _ = crate::exit::print(format!(
            "the web is served: http on port {}, https on port {}, dns on {}\ncrawl it with:\n  {command}\n\
             Ctrl-C ends it and prints the verdict\n",
            web.http_port, web.https_port, web.dns_addr
        ));
    })
    .context("cannot serve the web")?;
    print_json(&serde_json::to_value(verdict).context("cannot write the verdict")?)?;
    Ok(0)
}

fn number<T: std::str::FromStr>(
    matches: &ArgMatches,
    name: &str,
    default: T,
) -> Result<T, crate::exit::Failure> {
    match matches.get_one::<String>(name) {
        None => Ok(default),
        Some(word) => word.parse().map_err(|_| {
            crate::exit::Failure::usage(format!("--{name}: {word:?} is not a number that fits"))
        }),
    }
}
