//! `nephila lab sim`: seeds of the simulator.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::ArgMatches;
use nephila_lab::sim;
use nephila_node::display;

use super::number;
use crate::exit::{Ended, print_json};

pub(super) fn run(matches: &ArgMatches) -> Ended {
    let first: u64 = number(matches, "seed", 0)?;
    let seeds: u64 = number(matches, "seeds", 1)?;
    type Run = fn(u64) -> Result<sim::Report, sim::Violation>;
    let is_federation = matches.get_flag("federation");
    let (run, traced, states): (Run, Traced, &[&str]) = if is_federation && matches.get_flag("shared") {
        (sim::run_shared_federation, sim::run_shared_federation_traced, &sim::SHARED_FEDERATION_STATES)
    } else if is_federation {
        (sim::run_federation, sim::run_federation_traced, &sim::FEDERATION_STATES)
    } else if matches.get_flag("shared") {
        (sim::run_shared, sim::run_shared_traced, &sim::SHARED_STATES)
    } else if matches.get_flag("site") {
        (sim::run_site, sim::run_site_traced, &sim::SITE_STATES)
    } else {
        (sim::run, sim::run_traced, &[])
    };
    if let Some(text) = matches.get_one::<String>("trace") {
        return trace(first, traced, text);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs: usize = number(matches, "jobs", processors)?;
    let summary = sim::run_seeds(first..first.saturating_add(seeds), jobs, run, |summary| {
        if summary.runs.is_multiple_of(100) {
            display::note(&format!("{} of {seeds} seeds", summary.runs));
        }
    });
    let unreached = summary.unreached(states);
    if matches.get_flag("json") {
        print_json(&serde_json::to_value(&summary).context("cannot write the summary")?)?;
    } else {
        crate::exit::print(summary_text(&summary))?;
    }
    for state in &unreached {
        display::note(&format!("never reached: {state}"));
    }
    Ok(u8::from(!summary.violations.is_empty() || !unreached.is_empty()))
}

/// Runs one seed and tells of every event and action.
type Traced = fn(u64, &mut dyn FnMut(f64, &str)) -> Result<sim::Report, sim::Violation>;

/// Runs one seed and prints the events and actions that contain a text.
fn trace(seed: u64, run: Traced, text: &str) -> Ended {
    let mut failed = None;
    let mut tell = |at: f64, line: &str| {
        if line.contains(text) && failed.is_none() {
            failed = crate::exit::print(format!("{at:.6} {line}\n")).err();
        }
    };
    let outcome = run(seed, &mut tell);
    if let Some(error) = failed {
        return Err(error.into());
    }
    crate::exit::print(match &outcome {
        Ok(_) => "no promise was broken\n".to_owned(),
        Err(violation) => format!("BROKEN: {violation}\n"),
    })?;
    Ok(u8::from(outcome.is_err()))
}

fn summary_text(summary: &sim::Summary) -> String {
    let total = &summary.total;
    let counts = |counts: &BTreeMap<String, u64>| {
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!(
        "{} seeds: {} requests by {} processes in {} s of virtual time; trace {:016x}\n  faults: {}\n  reached: {}\n",
        summary.runs,
        total.requests,
        total.processes,
        total.virtual_s,
        total.trace_hash,
        counts(&total.faults),
        counts(&total.reached),
    );
    for violation in &summary.violations {
        text.push_str(&format!("  BROKEN: {violation}\n"));
    }
    text.push_str(if summary.violations.is_empty() {
        "no promise was broken\n"
    } else {
        "a promise was BROKEN\n"
    });
    text
}
