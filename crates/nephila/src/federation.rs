//! `nephila federation`: the sites that crawl together, and the list of them.

use std::path::Path;

use clap::{Arg, ArgMatches, Command};
use nephila_node::config::FederationFile;
use nephila_node::peers::Name;
use serde_json::json;

use crate::args;
use crate::exit::{Ended, Failure, print, print_json};

/// The flags of the command.
pub(crate) fn command() -> Command {
    Command::new("federation")
        .about("The sites that crawl together")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("forget")
                .about("A site will never come back: the others take over its hosts")
                .after_help(
                    "Writes that into the list of sites, as its next version. Give that file to all agents of all other sites \
                     and start them again. What only the lost site knew is lost; what others had given to it they find again \
                     in their records, and pages that it fetched are fetched again.\n\nNever start its agents again: nobody \
                     takes what they send, and they would crawl hosts that others crawl too. A site that is only cut off \
                     needs none of this: what is found for it waits.",
                )
                .arg(Arg::new("site").value_name("SITE").required(true).help("Its name in the list"))
                .arg(
                    Arg::new("list")
                        .long("list")
                        .value_name("FILE")
                        .required(true)
                        .help("The list of sites, as `federation` names it in the agents' settings"),
                )
                .arg(args::json()),
        )
        .subcommand(
            Command::new("status")
                .about("What all sites are doing, as they say themselves")
                .arg(args::out())
                .arg(args::json()),
        )
        .subcommand(
            Command::new("delay")
                .about("Have all sites leave each host alone for so long at least, from now on")
                .after_help(
                    "Only at the site that the list of sites names as `operator`. Waits that a host asks for, and longer delays of \
                     single sites, stay as they are.",
                )
                .arg(Arg::new("delay").value_name("DELAY").required(true).help("Such as 30s; none to take it back"))
                .arg(args::out())
                .arg(args::json()),
        )
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Ended {
    let matches = match matches.subcommand() {
        Some(("forget", matches)) => matches,
        Some(("status", _)) => return crate::ask::run("federation", matches),
        Some(("delay", matches)) => return crate::ask::run("delay", matches),
        _ => return Ok(crate::exit::USAGE),
    };
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let site: Name = text("site").parse().map_err(Failure::usage)?;
    let list = text("list");
    let version = FederationFile::forget(Path::new(list), &site).map_err(anyhow::Error::from)?;
    if matches.get_flag("json") {
        print_json(&json!({ "schema": 1, "list": list, "version": version, "forgotten": site.as_str() }))?;
    } else {
        print(format!(
            "site {site} is gone by version {version} of {list}.\nGive this file to all agents of all other sites, and start them \
             again. Never start an agent of {site} again.\n"
        ))?;
    }
    Ok(0)
}
