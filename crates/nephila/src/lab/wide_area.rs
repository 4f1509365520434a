//! `nephila lab federation` and its flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command};
use nephila_lab::experiment::FederationOptions;

use super::{experiment_command, flag, number, option, shares_store, store_option};
use crate::exit::Failure;

pub(super) fn command() -> Command {
    experiment_command(
        "federation",
        "Crawl as several sites over an emulated wide area, and count what passes between them",
    )
    .arg(option("sites", "N", "How many sites [default: 3]"))
    .arg(option("agents", "N", "Agents of each [default: 1]"))
    .arg(option("hosts", "N", "Hosts of the web [default: 1000]"))
    .arg(option("pages", "N", "Pages of each, on average [default: 40]"))
    .arg(store_option())
    .arg(option("round-trip", "MS", "From one site to another and back, in milliseconds [default: 80]"))
    .arg(option("loss", "PART", "Which part of the packets is lost beneath TCP; takes root [default: 0]"))
    .arg(option("jitter", "MS", "How late each packet is at most; takes root [default: 0]"))
    .arg(option("places", "NAME,...", "Where the sites are, instead of how many there are and how far apart"))
    .arg(option("places-dir", "DIR", "Where the round trips between places are looked up"))
    .arg(option("delay", "MS", "Between two requests to a host [default: 0]"))
    .arg(option("width", "N", "Requests at once, of all sites together [default: 96]"))
    .arg(option(
        "order",
        "HOW",
        "Which URLs of a host come first: breadth-first or cash [default: breadth-first]",
    ))
    .arg(option("cut", "SECONDS", "Cut the last site off for so long [default: 0]"))
    .arg(option("halves", "SECONDS", "Cut half of the sites off from the others for so long [default: 0]"))
    .arg(flag("change", "Give every third host another site when a third of the pages were asked for"))
    .arg(flag("geography", "Have each host crawled by the site that is nearest to it"))
    .arg(option(
        "far",
        "MS",
        "How far hosts are from all sites but one each, there and back, in milliseconds [default: 0]",
    ))
    .arg(option(
        "host-places",
        "N",
        "Places that hosts are at, the first of which have a site each [default: as many as sites]",
    ))
    .arg(flag("lose", "Take the last site away for good when a third of the pages were asked for"))
    .arg(flag("compare", "Compare with one site that is stretched over all places"))
    .arg(flag(
        "evaluate",
        "Crawl at several distances, with loss, with two sites and stretched, and compare all of it",
    ))
    .arg(option("plot", "FILE", "Write a plot of that here, as SVG"))
}

/// What the flags say.
pub(super) fn options(matches: &ArgMatches, seed: u64) -> Result<FederationOptions, Failure> {
    let default = FederationOptions::default();
    let ms = |name: &str, default: Duration| {
        number(matches, name, default.as_millis() as u64).map(Duration::from_millis)
    };
    let [cut, halves] = ["cut", "halves"].map(|name| number(matches, name, 0).map(Duration::from_secs));
    let (cut, halves) = (cut?, halves?);
    let word = |name: &str| matches.get_one::<String>(name);
    Ok(FederationOptions {
        seed,
        sites: number(matches, "sites", default.sites)?,
        agents: number(matches, "agents", default.agents)?,
        shares_store: shares_store(matches),
        hosts: number(matches, "hosts", default.hosts)?,
        pages: number(matches, "pages", default.pages)?,
        round_trip: ms("round-trip", default.round_trip)?,
        loss: number(matches, "loss", default.loss)?,
        jitter: ms("jitter", default.jitter)?,
        places: word("places")
            .map(|places| places.split(',').map(|place| place.trim().to_owned()).collect())
            .unwrap_or_default(),
        places_dir: word("places-dir").map_or(default.places_dir, PathBuf::from),
        delay: ms("delay", default.delay)?,
        width: number(matches, "width", default.width)?,
        order: match word("order") {
            Some(order) => order.parse().map_err(|error| Failure::usage(format!("--order: {error}")))?,
            None => default.order,
        },
        cut,
        halves,
        lose: matches.get_flag("lose"),
        change: matches.get_flag("change"),
        geography: matches.get_flag("geography"),
        far: ms("far", default.far)?,
        host_places: number(matches, "host-places", default.host_places)?,
        compare: matches.get_flag("compare"),
        evaluate: matches.get_flag("evaluate"),
        plot: word("plot").map(PathBuf::from),
        limit: default.limit + 2 * (cut + halves),
        ..default
    })
}
