//! `nephila store`: where the crawl of an agent is kept.

use clap::{Arg, ArgMatches, Command};
use nephila_node::config::Mistakes;
use nephila_node::copy::{self, Copied};
use serde_json::json;

use crate::agent::Told;
use crate::args;
use crate::exit::{Ended, print, print_json};

/// Its flags.
pub(crate) fn command() -> Command {
    Command::new("store").about("Where the crawl of an agent is kept").subcommand_required(true).arg_required_else_help(true).subcommand(
        Command::new("copy")
            .about("Move a stopped crawl to where the agent's file of settings says it is kept")
            .after_help(
                "With `store` in the file, from the store beside the agent to the one that agents share: stop all agents, add the \
                 line to their files, run this with each of them, one after another, and start them again.\n\nWithout `store`, \
                 back: stop all, take the line out, and run this with each. The first one takes the whole crawl, and the others \
                 get their part from it when they are started (`peers` has to list it).\n\nKilled in between, the same command \
                 begins again.",
            )
            .arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .required(true)
                    .help("Settings of the crawl and of this agent, as for `nephila agent`"),
            )
            .arg(args::json()),
    )
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches, mistakes: Mistakes) -> Ended {
    // It has this one.
    let Some((_, matches)) = matches.subcommand() else { return Ok(crate::exit::USAGE) };
    let told = Told::read(matches, mistakes)?;
    let (site, name) = (told.identity.site().to_string(), told.identity.agent().to_string());
    let copied = copy::copy(&told.config, &told.out, &site, &name).map_err(|error| match error {
        copy::CopyError::Directory(error) => error.into(),
        other => crate::exit::Failure::from(anyhow::Error::from(other)),
    })?;
    if matches.get_flag("json") {
        print_json(&data(&copied))?;
    } else {
        print(text(&copied))?;
    }
    Ok(0)
}

/// For people.
fn text(copied: &Copied) -> String {
    let Copied { pieces, was_done, to_shared, with, missing, aside } = copied;
    let mut text = match (to_shared, with) {
        (true, _) if *was_done => {
            "all that this agent knew had come to the store that agents share before\n".to_owned()
        }
        (false, None) if *was_done => {
            "the whole crawl had come to the store of this agent before, which has it now\n".to_owned()
        }
        (true, _) => format!("copied {pieces} URLs and hosts to the store that agents share\n"),
        (false, None) => format!(
            "copied {pieces} URLs and hosts to the store of this agent, which has the whole crawl now\n"
        ),
        (false, Some(name)) => format!(
            "agent {name} has the whole crawl: this one has an empty store, and gets its part when both run (`peers` has to list \
             {name})\n"
        ),
    };
    if !missing.is_empty() {
        text.push_str(&format!("still to be copied: {}; no agent starts before\n", missing.join(", ")));
    }
    if let Some(aside) = aside {
        text.push_str(&format!(
            "the store that was there is now {}: remove it when all is well\n",
            aside.display()
        ));
    }
    text
}

/// For programs; docs/json.md documents the fields.
fn data(copied: &Copied) -> serde_json::Value {
    json!({
        "schema": 1,
        "pieces": copied.pieces,
        "was_done": copied.was_done,
        "to": if copied.to_shared { "shared" } else { "own" },
        "with": copied.with,
        "missing": copied.missing,
        "aside": copied.aside.as_ref().map(|path| path.display().to_string()),
    })
}
