//! `nephila agent`: one agent of a site, everything between its file of settings and the run.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use nephila_node::config::{self, Config, FederationFile, Layer, Mistakes};
use nephila_node::directory::Directory;
use nephila_node::display::{Display, Kind, note};
use nephila_node::peers::Identity;
use nephila_node::seeds::Url;
use nephila_node::site::Site;
use nephila_node::{crawl, seeds};

use crate::args::{self, switch};
use crate::crawl::{failure, said};
use crate::exit::{Ended, Failure, print_json};

/// Its flags.
pub(crate) fn command() -> Command {
    Command::new("agent")
        .about("One agent of a site: crawls together with others, started like this one")
        .after_help(
            "The file has the settings of the crawl, the same for all agents (urls or seeds, scope, contact, delay, ...), and those of \
             this agent: identity, listen, peers (docs/site.md). It runs until it is told to stop; the same command goes on.",
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .required(true)
                .help("Settings of the crawl and of this agent, in TOML"),
        )
        .args(args::flag("metrics"))
        .arg(switch("json", "Print what the run came to as one JSON object, on standard output"))
        .arg(switch("quiet", "Show no progress"))
}

/// What an agent's file of settings says.
pub(crate) struct Told {
    pub(crate) config: Config,
    pub(crate) seeds: Vec<Url>,
    pub(crate) identity: Identity,
    /// The sites of its federation.
    pub(crate) federation: Option<FederationFile>,
    /// The agent's directory.
    pub(crate) out: PathBuf,
}

impl Told {
    /// Reads the file that `--config` names. Flags win.
    pub(crate) fn read(matches: &ArgMatches, mut mistakes: Mistakes) -> Result<Told, Failure> {
        let path = matches.get_one::<String>("config").map(PathBuf::from).unwrap_or_default();
        let layers = [
            Layer::user(&mut mistakes),
            Layer::environment(),
            Layer::file(&path, &mut mistakes),
            args::layer(matches),
        ];
        let mut config = Config::build(&layers, &mut mistakes);
        config.read_ca(&mut mistakes);
        config.check_site(&mut mistakes);
        let seeds = seeds::read(&config, &mut mistakes);
        config.check_seeds(seeds.len(), &mut mistakes);
        if config.contact.is_none() && config::needs_contact(&seeds) {
            mistakes.add(
                "contact: webmasters have to know whom to write to: give your email address, or a web page",
            );
        }
        mistakes.check()?;
        let identity = config.site.identity.clone().unwrap_or_default();
        let identity = Identity::read(&identity).map_err(anyhow::Error::from)?;
        config.name_store(identity.site().as_str());
        let out =
            config.out.clone().unwrap_or_else(|| Path::new(&format!("nephila-{}", identity.agent())).into());
        let federation = config.read_federation(&identity);
        let federation =
            federation.map_err(|error| Failure::usage(format!("{:#}", anyhow::Error::from(error))))?;
        Ok(Told { config, seeds, identity, federation, out })
    }
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches, mistakes: Mistakes) -> Ended {
    let Told { config, seeds, identity, federation, out } = Told::read(matches, mistakes)?;
    let (mut directory, start, seeds) = Directory::open(&out, &config, &seeds)?;
    directory.name_agent(identity.agent().as_str())?;
    directory.name_federation(federation.as_ref())?;
    let site = Site::open(&config, &directory, &seeds, identity, federation).map_err(anyhow::Error::from)?;
    let kind = if matches.get_flag("quiet") { Kind::Quiet } else { Kind::fitting() };
    let mut display = Display::new(kind, &config);
    let (name, at) = (&site.settings().name, &site.settings().address);
    display.say(&format!(
        "agent {name} of the site {} at {at}: {} in {}",
        site.name(),
        said(start),
        out.display()
    ));
    if site.expires_soon() {
        note("warning: this agent's certificate ends within a month: `nephila ca` makes another");
    }
    display.say(&format!("scope: {}", config.scope(&seeds)));
    let summary = crawl::run(&config, &directory, seeds, Some(site), &mut display).map_err(failure)?;
    display.finish(&summary);
    if matches.get_flag("json") {
        print_json(&summary.json())?;
    }
    Ok(summary.exit_code())
}
