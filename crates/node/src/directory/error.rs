//! Why a crawl's directory cannot be used, and what to do about it.

use std::io;
use std::path::PathBuf;

use super::FORMAT;
use crate::config::FederationError;
use crate::config::Mistakes;

/// How many crawls a message lists.
const LISTED_MAX: usize = 10;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It holds something else.
    #[error("{0} exists and is not a crawl: choose another directory with --out")]
    NotACrawl(PathBuf),
    /// It is a file.
    #[error("{0} is a file: name the directory of a crawl with --out")]
    NotADirectory(PathBuf),
    /// There is no crawl there.
    #[error("there is no crawl in {0}: name its directory with --out")]
    NoCrawl(PathBuf),
    /// There is no crawl there, and nothing to begin one from.
    #[error(
        "there is no crawl in {0} to go on with: name the directory of one with --out, or a URL to begin one there"
    )]
    NothingThere(PathBuf),
    /// No crawl was named, and there is none near.
    #[error("there is no crawl below the current directory: name its directory with --out")]
    NoneNear,
    /// No crawl was named, and there are several near.
    #[error("several crawls are below the current directory: choose one with --out\n{}", listed(.0))]
    SeveralNear(Vec<PathBuf>),
    /// Another process uses it.
    #[error("{} in {dir} already: `nephila stop --out {dir}` ends it", who(*.pid), dir = .dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// The scope, or the order of URLs, is not that of the earlier runs.
    #[error(
        "the crawl in {} is another one:\n{}\nto go on with it, {advice}",
        .dir.display(),
        .differences.join("\n")
    )]
    FixedChanged {
        /// The directory.
        dir: PathBuf,
        /// What differs, a line each.
        differences: Vec<String>,
        /// What to change in the command so that they are the recorded ones.
        advice: String,
    },
    /// It is of a crawl alone, and an agent of a site was to use it.
    #[error(
        "{0} holds a crawl of one agent alone, which cannot become one of a site: choose another directory with `out`"
    )]
    Alone(PathBuf),
    /// It is of an agent of a site, and a crawl alone was to use it.
    #[error(
        "{0} is that of an agent of a site: `nephila agent` goes on with it; a crawl needs another --out"
    )]
    OfSite(PathBuf),
    /// It is of an agent with a store of its own, and one that shares one was to use it, or the other way round.
    #[error(
        "{} is that of an agent {}: {}, or move the crawl with `nephila store copy`, or choose another directory with `out`",
        .dir.display(),
        if *.is_shared { "that shares its store with others" } else { "with a store of its own" },
        if *.is_shared { "say where that is with `store`" } else { "leave `store` out" }
    )]
    OtherStore {
        /// The directory.
        dir: PathBuf,
        /// Which of the two it is.
        is_shared: bool,
    },
    /// It is of an agent whose crawl has another name in the store that agents share.
    #[error(
        "the crawl of the agent in {} is called {was} in the store that agents share, and the file says {is}: write `store-name = \
         {was:?}`, or begin another crawl in another directory with `out`",
        .dir.display()
    )]
    OtherName {
        /// The directory.
        dir: PathBuf,
        /// The name there.
        was: String,
        /// The name that was given.
        is: String,
    },
    /// It is of an agent with another name.
    #[error(
        "{} is that of agent {was} of its site, and the certificate says {is}: other agents know it by that name; name the \
         `identity` of {was}, or begin in another directory with `out`",
        .dir.display()
    )]
    OtherAgent {
        /// The directory.
        dir: PathBuf,
        /// Its agent.
        was: String,
        /// The agent that was started.
        is: String,
    },
    /// The list of sites is not the one that it began with.
    #[error(
        "the crawl in {} has another list of sites (version and digest {was}): go on with that list, give the new one a higher \
         `version`, or begin in another directory with `out`",
        .dir.display()
    )]
    OtherFederation {
        /// The directory.
        dir: PathBuf,
        /// The list that it has begun with.
        was: String,
    },
    /// The list of sites cannot follow on the one before, or cannot be kept.
    #[error(transparent)]
    Federation(#[from] FederationError),
    /// No seed is given or recorded.
    #[error(
        "there is nothing to start from: name a URL, as in `nephila crawl https://example.org/`, or a file with --seeds"
    )]
    NoSeeds,
    /// What an earlier run wrote cannot be read.
    #[error("{} cannot be used: {mistakes}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        mistakes: Mistakes,
    },
    /// It was written by a version that knows more than this one.
    #[error("{} has format {found}, and this version knows {FORMAT}: use a newer nephila", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
    /// The system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl DirectoryError {
    /// The exit code of a process that ends with it.
    pub fn exit_code(&self) -> u8 {
        match self {
            DirectoryError::Io { source, .. } if nephila_disk::is_full(source) => 4,
            DirectoryError::Io { .. } | DirectoryError::Locked { .. } | DirectoryError::Damaged { .. } => 1,
            _ => 2,
        }
    }
}

fn listed(dirs: &[PathBuf]) -> String {
    let mut lines: Vec<String> =
        dirs.iter().take(LISTED_MAX).map(|dir| format!("  {}", dir.display())).collect();
    if dirs.len() > LISTED_MAX {
        lines.push(format!("  and {} more", dirs.len() - LISTED_MAX));
    }
    lines.join("\n")
}

fn who(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid} is at work"),
        None => "another process is at work".to_owned(),
    }
}
