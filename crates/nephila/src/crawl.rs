//! `nephila crawl`: everything between the flags and the run.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use nephila_node::config::table::SETTINGS;
use nephila_node::config::{self, CONTACT_VARIABLE, Config, Contact, Layer, Mistakes};
use nephila_node::directory::{self, Directory, Start, shell_word};
use nephila_node::display::{Display, Kind};
use nephila_node::seeds::Url;
use nephila_node::{crawl, seeds};
use serde_json::json;

use crate::args;
use crate::exit::{Ended, Failure, print, print_json};

/// How often a contact is asked for.
const QUESTIONS_MAX: usize = 3;
/// How many seeds are listed by --dry-run.
const SEEDS_LISTED_MAX: usize = 10;

/// Runs the command. `mistakes` are those in its flags.
pub(crate) fn run(matches: &ArgMatches, mut mistakes: Mistakes) -> Ended {
    let dry_run = matches.get_flag("dry-run");
    let mut config = read_config(matches, &mut mistakes);
    config.read_ca(&mut mistakes);
    if config.is_of_site() {
        mistakes.add("the settings identity, listen, address, peers and capacity are for `nephila agent`");
    }
    let before = mistakes.list().len();
    let seeds = seeds::read(&config, &mut mistakes);
    let out = match (&config.out, directory::default_for(&seeds)) {
        (Some(out), _) => out.clone(),
        (None, Ok(out)) => out,
        (None, Err(error)) => {
            // Seeds that could not be read have been reported as such.
            if mistakes.list().len() == before {
                mistakes.add(error.to_string());
            }
            PathBuf::new()
        }
    };
    // One that is wrong has been reported as such.
    let is_wrong = mistakes.list().iter().any(|mistake| mistake.contains("contact: "));
    if config.contact.is_none() && config::needs_contact(&seeds) && !dry_run && !is_wrong {
        let others = !mistakes.list().is_empty();
        match ask_for_contact(&config, others)? {
            Some(contact) => config.contact = Some(contact),
            None => mistakes.add(contact_is_missing(others)),
        }
    }
    mistakes.check()?;

    let fresh = matches.get_flag("fresh") && out.exists();
    let json = matches.get_flag("json");
    // The name of the directory is that of the first seed: with another one first, an older crawl is not met.
    let other = match config.out {
        None if !out.exists() => directory::with_seed(Path::new("."), &seeds),
        _ => None,
    };
    if dry_run {
        let (start, all) = if fresh { (Start::New, seeds) } else { directory::plan(&out, &config, &seeds)? };
        return dry(&config, &Plan { out: &out, start, seeds: &all, other }, json);
    }
    let set_aside = if fresh { Some(directory::set_aside(&out)?) } else { None };
    let (directory, start, seeds) = Directory::open(&out, &config, &seeds)?;
    let kind = if matches.get_flag("quiet") { Kind::Quiet } else { Kind::fitting() };
    let mut display = Display::new(kind, &config);
    display.say(&format!("{} in {}", said(start), out.display()));
    if let Some(other) = other {
        display.say(&format!("note: {}", same_seed(&other)));
    }
    if let Some(old) = set_aside {
        display.say(&format!("the crawl that was there is now in {}", old.display()));
    }
    display.say(&format!("scope: {}", config.scope(&seeds)));
    let summary = crawl::run(&config, &directory, seeds, None, &mut display).map_err(failure)?;
    display.finish(&summary);
    if json {
        print_json(&summary.json())?;
    }
    Ok(summary.exit_code())
}

/// What is read, the weakest first.
fn read_config(matches: &ArgMatches, mistakes: &mut Mistakes) -> Config {
    let flags = args::layer(matches);
    let mut layers = vec![Layer::user(mistakes), Layer::environment()];
    let named = matches.get_one::<String>("config").map(PathBuf::from);
    // Without seeds, an existing crawl is meant as it was.
    let recorded = matches
        .get_one::<String>("out")
        .filter(|_| !flags.has("urls") && !flags.has("seeds"))
        .map(|out| Path::new(out).join("crawl.toml"))
        .filter(|path| path.exists());
    if let Some(path) = named.or(recorded) {
        layers.push(Layer::file(&path, mistakes));
    }
    layers.push(flags);
    Config::build(&layers, mistakes)
}

/// Asks for a contact on a terminal and keeps it; nothing if there is nobody to ask.
fn ask_for_contact(config: &Config, do_not: bool) -> io::Result<Option<Contact>> {
    let reads_seeds = config.seeds.as_deref() == Some(Path::new("-"));
    if do_not || reads_seeds || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let mut terminal = io::stderr().lock();
    writeln!(
        terminal,
        "Webmasters have to know whom to write to about this crawl. It is sent with every request."
    )?;
    for _ in 0..QUESTIONS_MAX {
        write!(terminal, "Your email address, or a web page about the crawl: ")?;
        terminal.flush()?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.parse::<Contact>() {
            Ok(contact) => {
                if let Some(path) = config::user_file() {
                    match config::keep_contact(&path, &contact) {
                        Ok(()) => writeln!(terminal, "kept in {} for later crawls", path.display())?,
                        Err(error) => {
                            writeln!(terminal, "it could not be kept in {}: {error}", path.display())?
                        }
                    }
                }
                return Ok(Some(contact));
            }
            Err(error) => writeln!(terminal, "{error}")?,
        }
    }
    Ok(None)
}

/// What to do about a missing contact: the whole command to run instead, unless it has other mistakes.
fn contact_is_missing(others: bool) -> String {
    const WHY: &str = "contact: webmasters have to know whom to write to";
    if others {
        return format!("{WHY}: give --contact with your email address, or a web page");
    }
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    format!(
        "{WHY}. Run (with your own address, or a web page):\n    nephila {}\n  or set {CONTACT_VARIABLE}",
        with_contact(args)
    )
}

/// The arguments with a contact in the place of any other.
fn with_contact(mut args: Vec<String>) -> String {
    let end = |args: &[String]| args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    while let Some(at) = args[..end(&args)].iter().position(|arg| arg.split('=').next() == Some("--contact"))
    {
        let has_value = args.remove(at).contains('=');
        if !has_value && at < end(&args) {
            args.remove(at);
        }
    }
    let at = end(&args);
    args.splice(at..at, ["--contact".to_owned(), "you@example.org".to_owned()]);
    args.iter().map(|arg| shell_word(arg)).collect::<Vec<_>>().join(" ")
}

fn same_seed(other: &Path) -> String {
    format!("the crawl in {0} has one of these seeds; --out {0} would go on with that one", other.display())
}

pub(crate) fn said(start: Start) -> String {
    match start {
        Start::New => "a new crawl".to_owned(),
        Start::Resume { seeds_added: 0 } => "going on with the crawl".to_owned(),
        Start::Resume { seeds_added: 1 } => "going on with the crawl, with 1 more seed,".to_owned(),
        Start::Resume { seeds_added } => format!("going on with the crawl, with {seeds_added} more seeds,"),
        Start::Finished => "nothing is left to do (--fresh would start over)".to_owned(),
    }
}

pub(crate) fn failure(error: crawl::CrawlError) -> Failure {
    Failure { code: error.exit_code(), error: error.into() }
}

/// What would be done.
struct Plan<'a> {
    out: &'a Path,
    start: Start,
    seeds: &'a [Url],
    /// Another crawl that may have been meant.
    other: Option<PathBuf>,
}

/// Says what would be done.
fn dry(config: &Config, plan: &Plan<'_>, json: bool) -> Ended {
    let Plan { out, start, seeds, other } = plan;
    let scope = config.scope(seeds).to_string();
    let contact_needed = config.contact.is_none() && config::needs_contact(seeds);
    let default = Config::default();
    let changed = SETTINGS
        .iter()
        .filter(|setting| !["urls", "seeds", "out"].contains(&setting.name))
        .filter_map(|setting| Some((setting, setting.show(config)?)))
        .filter(|(setting, shown)| setting.show(&default).as_ref() != Some(shown));
    if json {
        let (start, seeds_added) = match *start {
            Start::New => ("new", seeds.len()),
            Start::Resume { seeds_added } => ("resume", seeds_added),
            Start::Finished => ("finished", 0),
        };
        let settings: serde_json::Map<_, _> =
            changed.map(|(setting, shown)| (setting.name.to_owned(), shown.words().into())).collect();
        print_json(&json!({
            "schema": 1,
            "dry_run": true,
            "start": start,
            "out": out.display().to_string(),
            "scope": scope,
            "seeds": seeds.len(),
            "seeds_added": seeds_added,
            "user_agent": config.user_agent(),
            "contact_needed": contact_needed,
            "settings": settings,
        }))?;
        return Ok(0);
    }
    let mut text = format!("{} in {}\n", said(*start), out.display());
    if let Some(other) = other {
        text.push_str(&format!("note: {}\n", same_seed(other)));
    }
    text.push_str(&format!("scope: {scope}\nuser agent: {}\n", config.user_agent()));
    if contact_needed {
        text.push_str("note: a contact will be needed: --contact with your email address, or a web page\n");
    }
    text.push_str(&format!("seeds: {}\n", seeds.len()));
    for url in seeds.iter().take(SEEDS_LISTED_MAX) {
        text.push_str(&format!("  {url}\n"));
    }
    if seeds.len() > SEEDS_LISTED_MAX {
        text.push_str(&format!("  and {} more\n", seeds.len() - SEEDS_LISTED_MAX));
    }
    text.push_str("settings that are not as by default:\n");
    let lines: Vec<String> =
        changed.map(|(setting, shown)| format!("  {} = {}\n", setting.name, shown.toml())).collect();
    text.push_str(&if lines.is_empty() { "  none\n".to_owned() } else { lines.concat() });
    text.push_str("nothing was fetched, and nothing was made\n");
    print(text)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::with_contact;

    #[test]
    fn the_command_that_names_a_contact() {
        for (typed, expected) in [
            ("crawl a.test", "crawl a.test --contact you@example.org"),
            ("crawl --delay 2s -- a.test", "crawl --delay 2s --contact you@example.org -- a.test"),
            ("crawl --contact none a.test", "crawl a.test --contact you@example.org"),
            ("crawl --contact=none a.test", "crawl a.test --contact you@example.org"),
            ("crawl a.test -- --contact", "crawl a.test --contact you@example.org -- --contact"),
            ("crawl a.test --exclude (x)", "crawl a.test --exclude '(x)' --contact you@example.org"),
        ] {
            assert_eq!(with_contact(typed.split(' ').map(str::to_owned).collect()), expected);
        }
    }
}
