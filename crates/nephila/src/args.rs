//! The flags of every command. Those of `crawl` are made from the table of settings.
//!
//! The parser of flags stops at the first mistake; here each is noted and taken out of the way, so that all are
//! reported at once, together with those of the configuration.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use nephila_node::config::table::{Group, SETTINGS, Setting};
use nephila_node::config::{Layer, Mistakes};

/// How many mistakes in flags are looked for.
const MISTAKES_MAX: usize = 50;

/// The whole command line.
pub(crate) fn command() -> Command {
    let nephila = Command::new("nephila")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A web crawler for people who crawl from more than one place")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(crawl())
        .subcommands(asking())
        .subcommand(site())
        .subcommand(crate::agent::command())
        .subcommand(crate::store::command())
        .subcommand(crate::ca::command())
        .subcommand(crate::federation::command())
        .subcommand(
            Command::new("config")
                .about("Print the settings of a crawl, as a file for --config")
                .arg(out())
                .arg(switch("changed", "Only those that are not as by default"))
                .arg(switch("reference", "Print docs/settings.md instead, which explains all settings")),
        );
    #[cfg(feature = "lab")]
    let nephila = nephila.subcommand(crate::lab::demo_command()).subcommand(crate::lab::command());
    nephila
}

fn crawl() -> Command {
    Command::new("crawl")
        .about("Crawl from these URLs, or go on with a crawl")
        .after_help(
            "The same command goes on with a crawl that was stopped; a flag that is left out is as by default again. \
             `nephila crawl --out DIR` without URLs goes on with the crawl in DIR, with its recorded settings.\n\n\
             Flags win over the file of --config, that over NEPHILA_CONTACT, and that over the contact in \
             ~/.config/nephila/config.toml.\n\nDurations are 500ms, 2s, 1.5h, 3d; sizes 64KiB, 10GB.",
        )
        .args(of_crawls().map(setting))
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .help("Settings from a TOML file; its keys are the names of the flags, and flags win"),
        )
        .arg(switch("fresh", "Start over: the crawl that is there is renamed to DIR.old-TIME"))
        .arg(switch("dry-run", "Say what would be done, and do nothing"))
        .arg(switch("json", "Print what the crawl came to as one JSON object, on standard output"))
        .arg(switch("quiet", "Show no progress"))
}

/// The settings of a crawl alone.
fn of_crawls() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| setting.group != Group::Site)
}

/// The flag of a setting, for a command that takes few of them.
pub(crate) fn flag(name: &str) -> Option<Arg> {
    of_crawls().find(|setting| setting.name == name).map(setting)
}

fn setting(setting: &'static Setting) -> Arg {
    let help = match setting.default_words().as_str() {
        "none" => setting.about.to_owned(),
        default => format!("{} [default: {default}]", setting.about),
    };
    let arg = Arg::new(setting.name).value_name(setting.value).help(help).hide_short_help(setting.advanced);
    let arg = arg.action(if setting.many { ArgAction::Append } else { ArgAction::Set });
    match setting.name {
        "urls" => return arg.num_args(0..),
        "refetch-missing" => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        // `--allow-private URL` must not take the URL for a network.
        "allow-private" => arg.num_args(0..=1).require_equals(true).default_missing_value("all"),
        "include" | "exclude" => arg.allow_hyphen_values(true),
        _ => arg,
    }
    .long(setting.name)
    .help_heading(setting.group.title())
}

/// The commands that ask a crawl something or tell it something.
fn asking() -> Vec<Command> {
    let url = || {
        let help = "The URL; without a scheme, https:// is added";
        Arg::new("url").value_name("URL").required(true).help(help)
    };
    let whom = |help| Arg::new("whom").value_name("HOST|DOMAIN|IP").help(help);
    let one =
        |name: &'static str, about: &'static str| Command::new(name).about(about).arg(out()).arg(json());
    vec![
        one("status", "What a crawl is doing, or how far it came"),
        one("why", "What became of a URL, or what it waits for").arg(url()),
        one("hosts", "The hosts of a crawl")
            .arg(Arg::new("name").value_name("NAME").help("Only this host, and those below its name"))
            .arg(Arg::new("limit").long("limit").value_name("N").help("How many at most [default: 50]"))
            .arg(
                Arg::new("sort")
                    .long("sort")
                    .value_name("BY")
                    .value_parser(["queue", "pages", "wait", "failures", "name"])
                    .default_value("queue")
                    .help("Which ones first"),
            ),
        Command::new("show")
            .about("Print the archived answer to a URL: its head and its decoded body")
            .arg(out())
            .arg(switch("raw", "As it came over the wire"))
            .arg(url()),
        one("block", "Ask nothing more of a host, a domain or an address; alone: list what is blocked")
            .arg(whom("A name, which stands for all names below it too, or one address"))
            .arg(everywhere()),
        one("unblock", "Take a block back")
            .arg(whom("As it was blocked; `nephila block` lists it").required(true))
            .arg(everywhere()),
        one("pause", "Start no request until told to go on").arg(everywhere()),
        one("resume", "Go on after a pause").arg(everywhere()),
        one("stop", "Settle what is in flight and end"),
    ]
}

/// The commands about the agents of a site.
fn site() -> Command {
    let one =
        |name: &'static str, about: &'static str| Command::new(name).about(about).arg(out()).arg(json());
    Command::new("site")
        .about("The agents of a site")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(one("status", "All agents of the site, as this one sees them"))
        .subcommand(
            one("forget", "An agent will not come back: the others take over what it had")
                .after_help(
                    "What it alone knew is lost: pages that it fetched are fetched again, and URLs that only it knew are found again \
                     where other pages link to them. An agent that comes back needs none of this: its hosts wait for it.",
                )
                .arg(Arg::new("agent").value_name("AGENT").required(true).help("Its name, or its number")),
        )
}

fn everywhere() -> Arg {
    switch("everywhere", "At all sites of the federation")
}

pub(crate) fn out() -> Arg {
    Arg::new("out")
        .long("out")
        .value_name("DIR")
        .help("The directory of the crawl; not needed if there is only one below the current directory")
}

pub(crate) fn json() -> Arg {
    switch("json", "Print one JSON object instead")
}

pub(crate) fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Reads the arguments. Mistakes that leave the rest readable are noted; the error is for what does not, and for help.
pub(crate) fn parse(mut args: Vec<OsString>, mistakes: &mut Mistakes) -> Result<ArgMatches, clap::Error> {
    join_negative_values(&mut args);
    for _ in 0..MISTAKES_MAX {
        let error = match command().try_get_matches_from(&args) {
            Ok(matches) => return Ok(matches),
            Err(error) => error,
        };
        let Some(at) = place(&error, &args) else { return Err(error) };
        mistakes.add(message(&error));
        let has_value = args.remove(at).to_string_lossy().contains('=');
        let is_known = error.kind() != ErrorKind::UnknownArgument;
        if !has_value && args.get(at).is_some_and(|next| is_value(&next.to_string_lossy(), is_known)) {
            args.remove(at);
        }
    }
    command().try_get_matches_from(&args)
}

/// Makes `--max-pages -1` `--max-pages=-1`: a number after a flag is its value and not another flag, and whoever reads it can
/// say what is wrong with it.
fn join_negative_values(args: &mut Vec<OsString>) {
    let mut at = 1;
    while at + 1 < args.len() && args[at] != "--" {
        let (flag, value) = (args[at].to_string_lossy(), args[at + 1].to_string_lossy());
        let is_number =
            value.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if flag.starts_with("--") && !flag.contains('=') && is_number {
            args[at] = format!("{flag}={value}").into();
            args.remove(at + 1);
        }
        at += 1;
    }
}

/// Whether what follows a wrong flag is its value, so that it is not taken for a seed. After a flag that does not exist, a
/// guess: what has neither a dot nor a scheme is no URL that anybody would write.
fn is_value(next: &str, is_known: bool) -> bool {
    !next.starts_with('-') && (is_known || !next.contains('.') && !next.contains("://"))
}

/// Which argument an error is about.
fn place(error: &clap::Error, args: &[OsString]) -> Option<usize> {
    if !matches!(
        error.kind(),
        ErrorKind::UnknownArgument
            | ErrorKind::InvalidValue
            | ErrorKind::ArgumentConflict
            | ErrorKind::NoEquals
            | ErrorKind::TooManyValues
            | ErrorKind::WrongNumberOfValues
    ) {
        return None;
    }
    let Some(ContextValue::String(about)) = error.get(ContextKind::InvalidArg) else { return None };
    // Known ones are named with what stands for their value: `--delay <DURATION>`.
    let name = about.split([' ', '=', '[']).next().filter(|name| name.starts_with('-'))?;
    let with_value = format!("{name}=");
    let is_it = |arg: &OsStr| arg == name || arg.to_string_lossy().starts_with(&with_value);
    args.iter().position(|arg| is_it(arg))
}

fn message(error: &clap::Error) -> String {
    if error.kind() != ErrorKind::UnknownArgument {
        let text = error.to_string();
        return text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    }
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        Some(ContextValue::Strings(words)) => words.first().map(String::as_str),
        _ => None,
    };
    let hint = word(ContextKind::SuggestedArg).map(|near| format!("; {near} is one")).unwrap_or_default();
    format!("{}: unknown flag{hint}", word(ContextKind::InvalidArg).unwrap_or_default())
}

/// The settings that the flags of a command give.
pub(crate) fn layer(matches: &ArgMatches) -> Layer {
    let given = of_crawls().filter_map(|setting| {
        // Only `crawl` has all of these flags.
        let words = matches.try_get_many::<String>(setting.name).ok().flatten()?;
        Some((setting.name.to_owned(), words.cloned().collect()))
    });
    Layer::flags(given.collect())
}
