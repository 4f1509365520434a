//! The commands that ask a crawl something or tell it something: of the process that runs it or, when none does, of its
//! files.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use nephila_node::asking::from_hex;
use nephila_node::config::{read_span, reference};
use nephila_node::control::{self, Block, CallError, Everywhere, HostSort, Request, Response, block_name};
use nephila_node::directory::{self, DirectoryError, Recorded};
use nephila_node::display::{harmless, note};
use nephila_node::report::{Captured, Why, decoded};
use nephila_node::{seeds, why};
use serde_json::json;

use crate::exit::{Ended, Failure, print, print_json};

/// How many hosts are listed when nobody says.
const HOSTS_LISTED: usize = 50;

/// How many blocks an error lists.
const BLOCKS_LISTED_MAX: usize = 10;

/// The longest answer that another agent's archive may hold.
const ANSWER_BYTES_MAX: usize = 5 << 30;

/// Runs the command `name`.
pub(crate) fn run(name: &str, matches: &ArgMatches) -> Ended {
    let request = request(name, matches)?;
    // `site` has its flags below.
    let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
    let dir = dir(matches)?;
    if let Request::Unblock { what } = &request {
        check_blocked(&dir, what)?;
    }
    let response = ask(&dir, &request)?;
    let json = matches.get_flag("json");
    match response {
        Response::Done if json => print_json(&json!({ "schema": 1, "done": true }))?,
        Response::Done => print(format!("{}\n", done(&request)))?,
        Response::Report { json: data, .. } if json => print_json(&data)?,
        Response::Report { text, .. } => print(harmless(&text).as_bytes())?,
        Response::Refused { why } => return Err(Failure::refused(why)),
        Response::Bytes { .. } => return Err(Failure::refused("nobody asked for bytes")),
    }
    Ok(0)
}

/// What was done, for people.
fn done(request: &Request) -> String {
    match request {
        Request::Block { what } => format!("blocked {}", block_name(what)),
        Request::Unblock { what } => format!("unblocked {}", block_name(what)),
        Request::Everywhere { what } => match what {
            Everywhere::Block(what) => format!("blocked {} everywhere", block_name(what)),
            Everywhere::Unblock(what) => format!("unblocked {} everywhere", block_name(what)),
            Everywhere::Pause => "all sites pause; `nephila resume --everywhere` goes on".to_owned(),
            Everywhere::Resume => "all sites go on".to_owned(),
            Everywhere::Delay(Some(delay)) => {
                format!("all sites leave each host alone for {delay:?} at least")
            }
            Everywhere::Delay(None) => "all sites leave hosts alone for as long as each wants".to_owned(),
        },
        Request::Pause => "paused; `nephila resume` goes on".to_owned(),
        Request::Resume => "resumed".to_owned(),
        Request::Stop => "stopping: what is in flight is settled first".to_owned(),
        Request::Forget { agent } => format!("forgot {agent}: the others take over what it had"),
        _ => "done".to_owned(),
    }
}

/// Refuses to take back what was never blocked: most likely it is spelt otherwise.
fn check_blocked(dir: &Path, what: &Block) -> Result<(), Failure> {
    let (Response::Report { json, .. }, name) = (ask(dir, &Request::Blocks)?, block_name(what)) else {
        return Ok(());
    };
    let names: Vec<&str> =
        json["blocks"].as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
    if names.contains(&name.as_str()) {
        return Ok(());
    }
    let blocked = match names.len() {
        0 => "nothing is".to_owned(),
        1..=BLOCKS_LISTED_MAX => format!("blocked: {}", names.join(", ")),
        _ => "`nephila block` lists what is".to_owned(),
    };
    Err(Failure::refused(format!("{name} is not blocked; {blocked}")))
}

/// `nephila show URL`.
pub(crate) fn show(matches: &ArgMatches) -> Ended {
    let request = Request::Why { url: url(matches)? };
    let dir = dir(matches)?;
    let json = match ask(&dir, &request)? {
        Response::Report { json, .. } => json,
        Response::Refused { why } => return Err(Failure::refused(why)),
        Response::Done | Response::Bytes { .. } => {
            return Err(Failure::refused("the running crawl gave no answer"));
        }
    };
    let why: Why = serde_json::from_value(json).map_err(anyhow::Error::from)?;
    let Some(capture) = &why.capture else {
        return Err(Failure::refused(format!("there is no archived answer: {}", why.state.text())));
    };
    let raw = matches.get_flag("raw");
    let elsewhere = why.answered_by.clone().map(|site| (why.url.clone(), site));
    let answer = match &capture.agent {
        Some(agent) => read_from(&dir, agent, elsewhere, capture)?,
        None if elsewhere.is_some() => read_from(&dir, "", elsewhere, capture)?,
        None => capture.read(&dir).map_err(anyhow::Error::from)?,
    };
    let answer = if raw { answer } else { decoded(answer) };
    if io::stdout().is_terminal() && !raw {
        print(harmless(&String::from_utf8_lossy(&answer).replace("\r\n", "\n")).as_bytes())?;
    } else {
        print(answer)?;
    }
    Ok(0)
}

/// What the archive of another agent holds, or of another site: then with the URL and its name.
fn read_from(
    dir: &Path,
    agent: &str,
    elsewhere: Option<(String, String)>,
    capture: &Captured,
) -> Result<Vec<u8>, Failure> {
    let mut answer = Vec::new();
    while answer.len() <= ANSWER_BYTES_MAX {
        let from = answer.len() as u64;
        let (agent, elsewhere) = (agent.to_owned(), elsewhere.clone());
        let request = Request::Read { agent, elsewhere, pointer: capture.pointer, from };
        match ask(dir, &request)? {
            Response::Bytes { hex, is_last } => {
                let Some(bytes) = from_hex(&hex) else { break };
                answer.extend_from_slice(&bytes);
                if is_last {
                    return Ok(answer);
                }
            }
            Response::Refused { why } => return Err(Failure::refused(why)),
            _ => break,
        }
    }
    Err(Failure::refused("the running agent gave no answer that makes sense"))
}

/// `nephila config`.
pub(crate) fn config(matches: &ArgMatches) -> Ended {
    if matches.get_flag("reference") {
        print(reference())?;
        return Ok(0);
    }
    let recorded = Recorded::load(&dir(matches)?)?;
    print(recorded.config.to_toml(matches.get_flag("changed"), &["out"]))?;
    Ok(0)
}

fn request(name: &str, matches: &ArgMatches) -> Result<Request, Failure> {
    let whom = |text: &String| control::parse_block(text).map_err(Failure::usage);
    // Only these two commands take one.
    let given = matches.try_get_one::<String>("whom").ok().flatten();
    // Only these four have it.
    let is_everywhere = matches.try_get_one::<bool>("everywhere").ok().flatten() == Some(&true);
    Ok(match name {
        "block" | "unblock" | "pause" | "resume" if is_everywhere => {
            let what = given.map(whom).transpose()?;
            let what = match (name, what) {
                ("block", Some(what)) => Everywhere::Block(what),
                ("unblock", Some(what)) => Everywhere::Unblock(what),
                ("pause", _) => Everywhere::Pause,
                ("resume", _) => Everywhere::Resume,
                _ => return Err(Failure::usage("--everywhere: name a host, a domain or an address")),
            };
            Request::Everywhere { what }
        }
        "delay" => Request::Everywhere { what: Everywhere::Delay(span(matches)?) },
        "status" => Request::Status,
        "why" => Request::Why { url: url(matches)? },
        "hosts" => Request::Hosts { limit: limit(matches)?, sort: sort(matches), name: host(matches)? },
        "block" => match given {
            Some(text) => Request::Block { what: whom(text)? },
            None => Request::Blocks,
        },
        "unblock" => Request::Unblock { what: whom(given.unwrap_or(&String::new()))? },
        "pause" => Request::Pause,
        "resume" => Request::Resume,
        "stop" => Request::Stop,
        "federation" => Request::Federation,
        "site" => match matches.subcommand() {
            Some(("forget", matches)) => {
                let agent = matches.get_one::<String>("agent").cloned().unwrap_or_default();
                Request::Forget { agent }
            }
            _ => Request::Site,
        },
        other => return Err(Failure::usage(format!("{other} is not a command"))),
    })
}

fn span(matches: &ArgMatches) -> Result<Option<Duration>, Failure> {
    match matches.get_one::<String>("delay").map_or("none", String::as_str) {
        "none" => Ok(None),
        text => read_span(text).map(Some).map_err(Failure::usage),
    }
}

fn url(matches: &ArgMatches) -> Result<String, Failure> {
    let text = matches.get_one::<String>("url").cloned().unwrap_or_default();
    seeds::parse_seed(&text).map(String::from).map_err(Failure::usage)
}

fn limit(matches: &ArgMatches) -> Result<usize, Failure> {
    match matches.get_one::<String>("limit") {
        None => Ok(HOSTS_LISTED),
        Some(word) => word
            .parse()
            .map_err(|_| Failure::usage(format!("--limit: {word:?} is not a whole number: write 100"))),
    }
}

fn host(matches: &ArgMatches) -> Result<Option<String>, Failure> {
    let Some(text) = matches.get_one::<String>("name") else { return Ok(None) };
    match control::host_name(text) {
        Some(name) => Ok(Some(name)),
        None => Err(Failure::usage(format!(
            "{text:?} is not the name of a host: write it without scheme, port and path"
        ))),
    }
}

fn sort(matches: &ArgMatches) -> HostSort {
    match matches.get_one::<String>("sort").map_or("", String::as_str) {
        "pages" => HostSort::Pages,
        "wait" => HostSort::Wait,
        "failures" => HostSort::Failures,
        "name" => HostSort::Name,
        _ => HostSort::Queue,
    }
}

/// The crawl that is meant.
fn dir(matches: &ArgMatches) -> Result<PathBuf, Failure> {
    match matches.get_one::<String>("out") {
        Some(path) if Path::new(path).is_file() => Err(DirectoryError::NotADirectory(path.into()).into()),
        Some(dir) => Ok(PathBuf::from(dir)),
        None => Ok(directory::find(Path::new("."))?),
    }
}

/// What whoever asks an agent of a site that does not run should know of the answer.
fn of_one_that_does_not_run(request: &Request) -> &'static str {
    match request {
        Request::Block { .. } | Request::Unblock { .. } | Request::Pause | Request::Resume => {
            "this agent does not run, and the others of its site hear of this when it does: tell one that runs (--out), \
             and it holds at once"
        }
        _ => {
            "this agent does not run: this is what it knew last. One that runs answers for all of the site (--out)"
        }
    }
}

fn ask(dir: &Path, request: &Request) -> Result<Response, Failure> {
    match control::call(&directory::control_socket(dir), request) {
        Ok(response) => Ok(response),
        Err(CallError::NotRunning) => {
            let response = why::ask_files(dir, request).map_err(|error| match error {
                why::AskError::Directory(error) => Failure::from(error),
                other => anyhow::Error::from(other).into(),
            })?;
            if !matches!(response, Response::Refused { .. }) && Recorded::load(dir)?.agent.is_some() {
                note(of_one_that_does_not_run(request));
            }
            Ok(response)
        }
        Err(error) => Err(anyhow::Error::from(error).into()),
    }
}
