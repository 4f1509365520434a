//! The nephila command line: reads the arguments and calls who does the work.

mod agent;
mod args;
mod ask;
mod ca;
mod crawl;
mod exit;
mod federation;
#[cfg(feature = "lab")]
mod lab;
mod store;

use std::ffi::OsString;
use std::process::ExitCode;

use nephila_node::config::Mistakes;
use nephila_node::display;

use exit::{Ended, USAGE};

/// A page is hundreds of small allocations and a few large ones, some given back on the other thread: the system's allocator
/// takes a tenth of all processor time for them (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(std::env::args_os().collect()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            display::error(failure.error.as_ref());
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: Vec<OsString>) -> Ended {
    let mut mistakes = Mistakes::default();
    let matches = match args::parse(args, &mut mistakes) {
        Ok(matches) => matches,
        Err(error) => {
            if let Err(mistakes) = mistakes.check() {
                display::error(&mistakes);
            }
            // Help that was asked for is no mistake.
            let code = if error.use_stderr() { USAGE } else { 0 };
            // Nothing can be said if even this cannot.
            let _ = error.print();
            return Ok(code);
        }
    };
    match matches.subcommand() {
        Some(("agent", matches)) => agent::run(matches, mistakes),
        Some(("crawl", matches)) => crawl::run(matches, mistakes),
        Some(("store", matches)) => store::run(matches, mistakes),
        other => {
            mistakes.check()?;
            match other {
                Some(("ca", matches)) => ca::run(matches),
                Some(("federation", matches)) => federation::run(matches),
                Some(("config", matches)) => ask::config(matches),
                Some(("show", matches)) => ask::show(matches),
                #[cfg(feature = "lab")]
                Some(("demo", matches)) => lab::run_demo(matches),
                #[cfg(feature = "lab")]
                Some(("lab", matches)) => lab::run(matches),
                Some((name, matches)) => ask::run(name, matches),
                None => Ok(USAGE),
            }
        }
    }
}
