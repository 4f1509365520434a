//! What is said in the log about other sites: how each is reached, when that has changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nephila_core::federation::ListId;

use crate::display;
use crate::peers::tasks::lock;

/// The same sort of thing is said once in this time.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// How a call to a site ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Open,
    /// The other site is there, and has not taken it.
    Busy,
    /// The other site has another list.
    OtherList(ListId),
    Closed(String),
}

/// What is known of the way to one site.
#[derive(Default)]
struct Known {
    /// Why each gateway could not be reached when it was last tried.
    errors: BTreeMap<String, String>,
    /// Whether it was last said that it is open, and when something else was.
    said_open: Option<bool>,
    warned: Option<Instant>,
}

/// What is known of the ways to all sites.
#[derive(Default)]
pub(super) struct Ways {
    sites: Mutex<HashMap<String, Known>>,
    refused: Mutex<Option<Instant>>,
}

impl Ways {
    /// Takes note of how a call ended, and says so if that is news. `gateways` is how many the site has: as long as one of them
    /// may be there, nothing is wrong.
    pub(super) fn note(&self, site: &str, gateway: &str, way: &Way, ours: ListId, gateways: usize) {
        let mut sites = lock(&self.sites);
        let known = sites.entry(site.to_owned()).or_default();
        let text = match way {
            Way::Open => {
                known.errors.clear();
                format!("site {site} takes what is found of its hosts")
            }
            Way::Busy => format!(
                "warning: site {site} is there, but does not take what is sent now, and that waits: it is busy, or its agent is not in its site yet"
            ),
            Way::OtherList(theirs) if theirs.version == ours.version => format!(
                "warning: site {site} has another list of sites than this agent, of the same version {}: nothing is exchanged until both have the same",
                ours.version
            ),
            Way::OtherList(theirs) => format!(
                "warning: site {site} has version {} of the list of sites, and this agent version {}: nothing is exchanged until both have the same",
                theirs.version, ours.version
            ),
            Way::Closed(error) => {
                known.errors.insert(gateway.to_owned(), error.clone());
                if known.errors.len() < gateways {
                    return;
                }
                let errors = known.errors.iter().map(|(gateway, error)| format!("\n  {gateway}: {error}"));
                format!(
                    "warning: site {site} is not reached, and what is found of its hosts waits{}",
                    errors.collect::<String>()
                )
            }
        };
        let is_open = *way == Way::Open;
        let is_news = match is_open {
            true => known.said_open != Some(true),
            false => known.warned.is_none_or(|at| at.elapsed() >= SAY_EVERY),
        };
        if is_news {
            display::note(&harmless_lines(&text));
            known.said_open = Some(is_open);
            known.warned = if is_open { known.warned } else { Some(Instant::now()) };
        }
    }

    /// Somebody was not let in.
    pub(super) fn refused(&self, from: &str, error: &str) {
        let mut said = lock(&self.refused);
        if said.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
            *said = Some(Instant::now());
            display::note(&display::one_line(&format!(
                "warning: a connection to the gateway from {from} was refused: {error}. If it is an agent of another site: is the `ca` of its site in the list the one that it has?"
            )));
        }
    }
}

fn harmless_lines(text: &str) -> String {
    text.lines().map(display::harmless).collect::<Vec<_>>().join("\n")
}
