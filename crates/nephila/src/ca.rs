//! `nephila ca`: a site's authority and the certificates of its agents.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command};
use nephila_node::peers::Name;
use nephila_node::peers::ca::{self, Made};
use serde_json::json;

use crate::args;
use crate::exit::{Ended, Failure, print, print_json};

/// The flags of the command.
pub(crate) fn command() -> Command {
    Command::new("ca")
        .about("Make the certificates with which the agents of a site know each other")
        .after_help(
            "The first run makes the site's authority in DIR/ca and, for each agent, a directory DIR/agents/NAME to copy to \
             its machine. The same command with further names makes those, and leaves alone what is there. To renew an \
             agent, remove its directory first.\n\nNames are those that the site knows its agents by: small letters, digits \
             and -.",
        )
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .required(true)
                .help("Where to keep the authority: not on an agent's machine"),
        )
        .arg(Arg::new("site").long("site").value_name("NAME").required(true).help("The name of the site"))
        .arg(
            Arg::new("agents")
                .value_name("AGENT")
                .required(true)
                .action(ArgAction::Append)
                .num_args(1..)
                .help("The names of its agents"),
        )
        .arg(args::json())
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Ended {
    let out = matches.get_one::<String>("out").map_or("", String::as_str);
    let site: Name =
        matches.get_one::<String>("site").map_or("", String::as_str).parse().map_err(Failure::usage)?;
    let mut agents: Vec<Name> = Vec::new();
    for text in matches.get_many::<String>("agents").into_iter().flatten() {
        agents.push(text.parse().map_err(Failure::usage)?);
    }
    let made = ca::make(Path::new(out), &site, &agents).map_err(anyhow::Error::from)?;
    if matches.get_flag("json") {
        print_json(&data(&site, &made))?
    } else {
        print(text(&site, &made))?
    }
    Ok(0)
}

/// For people.
fn text(site: &Name, made: &Made) -> String {
    let mut text = match made.ca_until {
        Some(until) => format!(
            "made the authority of site {site} in {}, valid until {until}\n  keep it to yourself: whoever has its ca.key can \
             make agents of this site\n",
            made.ca.display()
        ),
        None => String::new(),
    };
    for agent in &made.agents {
        let dir = agent.dir.display();
        text.push_str(&match agent.until {
            Some(until) => format!("made agent {} in {dir}, valid until {until}\n", agent.name),
            None => format!("agent {} is there already: {dir}\n", agent.name),
        });
    }
    text.push_str(
        "\nCopy each agent's directory to its machine, where the agent's user alone can read it, and name it in the agent's \
         configuration:\n",
    );
    for agent in &made.agents {
        text.push_str(&format!("  identity = \"/etc/nephila/{}\"\n", agent.name));
    }
    text
}

/// For programs; docs/json.md documents the fields.
fn data(site: &Name, made: &Made) -> serde_json::Value {
    let agents = made.agents.iter().map(|agent| {
        json!({
            "name": agent.name.as_str(),
            "dir": agent.dir.display().to_string(),
            "made": agent.until.is_some(),
            "valid_until": agent.until.map(|until| until.to_string()),
        })
    });
    json!({
        "schema": 1,
        "site": site.as_str(),
        "ca": made.ca.display().to_string(),
        "ca_made": made.ca_until.is_some(),
        "ca_valid_until": made.ca_until.map(|until| until.to_string()),
        "agents": agents.collect::<Vec<_>>(),
    })
}
