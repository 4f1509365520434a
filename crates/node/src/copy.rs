//! Moves what an agent of a stopped site knows from the store beside it to one that the site's agents share, and back.
//!
//! Where it is, its directory says (`crawl.toml`); where it is to be, the agent's file of settings. What is there stays as it
//! is until all of it is in the other place and durable; then that is noted, and last the directory is turned. Killed at any
//! moment, the same command begins again and nothing is lost:
//!
//! - *To a shared store* every agent of the site brings what it knows, one after another, and each notes in the store that it has
//!   begun and that it is done. No agent works with the store before all are.
//! - *From a shared store* one agent takes everything, into a store that is made beside the old one and has its name only
//!   when it is whole. It is then a site of one. The others join that with empty stores, and get their part as always.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nephila_core::agent::Agent;
use nephila_core::assign::PARTITIONS;
use nephila_core::record::Record;
use nephila_core::site::{AgentId, Leases, Member, Members};
use nephila_core::time::Wall;
use nephila_disk::RealDisk;
use nephila_store::redis::{Copies, CopyNote, RedisCopy, RedisLeases, RedisOptions, RedisStore};
use nephila_store::{EmbeddedCopy, EmbeddedStore, Piece, Store};

use crate::clock::Clock;
use crate::config::{Config, NoStore};
use crate::crawl::snapshot;
use crate::directory::{self, DirectoryError, Lock, Recorded};
use crate::display::note;
use crate::memo::{Pointed, Replay};
use crate::shared;
use crate::writer::store_options;

/// How long servers that fail over or cannot be reached are waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// An agent that has not renewed its lease for so long does not run.
const SILENT: Duration = Duration::from_secs(6);
/// How often it is said how far the copy is.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// Where a store is made.
const NEW: &str = "store.new";

/// Why nothing was copied, or not all.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The settings of the shared store cannot be used.
    #[error(transparent)]
    Settings(#[from] NoStore),
    /// A store failed.
    #[error("cannot copy: the same command begins again, and what is there stays as it is until then")]
    Store(#[from] nephila_store::Error),
    /// Files cannot be moved.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It may not be done.
    #[error("{0}")]
    Refused(String),
}

/// What was done.
#[derive(Debug)]
pub struct Copied {
    /// URLs and hosts that were read.
    pub pieces: u64,
    /// Whether the crawl is in the shared store now, or in this agent's own.
    pub to_shared: bool,
    /// The agent that has the crawl, if it is another one.
    pub with: Option<String>,
    /// Agents that have not copied theirs.
    pub missing: Vec<String>,
    /// Where the store is kept that was beside the agent before.
    pub aside: Option<PathBuf>,
}

/// Why agents may not work with a store yet, or not any more.
pub(crate) fn obstacle(copies: &Copies) -> Option<String> {
    if let Some((_, name)) = &copies.left_to {
        return Some(format!(
            "the crawl has left this store for that of agent {name}: run `nephila store copy` without `store` in the file, or \
             begin another crawl with another `store-name`"
        ));
    }
    let missing: Vec<&str> = copies.missing().into_iter().collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the crawl is being copied into this store, and the part of {} is not there yet: run `nephila store copy` with \
             the file of each",
            missing.join(", ")
        )
    })
}

/// Brings the crawl of an agent, by the name of its site and its own, to where its settings say.
pub fn copy(config: &Config, dir: &Path, site: &str, name: &str) -> Result<Copied, CopyError> {
    // Before the lock is taken, so that nothing is left behind in a directory that is not ours.
    Recorded::load(dir)?;
    let lock = Lock::take(dir)?;
    let recorded = Recorded::load(dir)?;
    let me = recorded.agent.ok_or_else(|| DirectoryError::Alone(dir.to_owned()))?;
    recorded.scope_differences(dir, config)?;
    let of = Copying { config, dir, site, name, me, recorded: &recorded };
    let mut copied = match (recorded.config.shares_store(), config.shares_store()) {
        (false, true) => of.to_shared()?,
        (true, false) => of.to_own()?,
        (is_shared, _) => {
            let (where_it_is, advice) = match is_shared {
                true => ("in a store that agents share", "leave `store` out"),
                false => ("in a store of its own", "name another with `store`"),
            };
            return Err(CopyError::Refused(format!(
                "the crawl in {} is {where_it_is}, and the file says the same: to move it, {advice}",
                dir.display()
            )));
        }
    };
    directory::turn(dir, lock, &recorded, config)?;
    if copied.to_shared && EmbeddedStore::exists(&RealDisk, dir)? {
        copied.aside = Some(directory::set_store_aside(dir)?);
    }
    Ok(copied)
}

/// What a copy is made of.
struct Copying<'a> {
    config: &'a Config,
    dir: &'a Path,
    site: &'a str,
    name: &'a str,
    me: AgentId,
    recorded: &'a Recorded,
}

impl Copying<'_> {
    fn to_shared(&self) -> Result<Copied, CopyError> {
        if !EmbeddedStore::exists(&RealDisk, self.dir)? {
            let why = format!("the agent in {} has never run: there is nothing to copy", self.dir.display());
            return Err(CopyError::Refused(why));
        }
        let now = Clock::now();
        let mut agent = self.agent(&self.recorded.config);
        let options = store_options(&self.recorded.config);
        let mut replay = Replay::new(&mut agent, now, None);
        let mut source = EmbeddedStore::open_read_only(Arc::new(RealDisk), self.dir, options, &mut replay)?;
        let mut kept = Ok(());
        // What happened since the last snapshot is not in the store.
        agent.memo(now, |host, memo, away_until| {
            if kept.is_ok() {
                kept = source.keep(host, memo, away_until);
            }
        });
        kept?;
        let mut members: Vec<(AgentId, String)> =
            agent.members().map(|(id, of)| (id, of.name.clone())).collect();
        if !members.iter().any(|(id, _)| *id == self.me) {
            members.push((self.me, self.name.to_owned()));
        }

        let mut options = self.shared(self.config)?;
        options.limits.max_urls = options.limits.max_urls.saturating_mul(members.len() as u64);
        let (_, copies) =
            shared::find(&RedisOptions { partitions: Vec::new(), ..options.clone() }, Some(PATIENCE))?;
        let mut table = RedisLeases::open(options.cluster.clone(), &options.crawl)?;
        if copies.notes.get(&self.me).is_none_or(|note| !note.is_done) {
            self.may_copy_into(&copies, &mut table)?;
            let ours = table.begin(now.wall, agent.wishes())?.calendar;
            let store = RedisStore::open(&options)?;
            if copies.notes.is_empty() && !store.is_unused() {
                return Err(CopyError::Refused(self.not_empty()));
            }
            let totals = agent.status(now).totals;
            return self.bring(&mut source, &agent, store, &options, (now.wall, ours), members, &totals);
        }
        let missing = copies.missing().into_iter().map(str::to_owned).collect();
        Ok(Copied { pieces: 0, to_shared: true, with: None, missing, aside: None })
    }

    /// Whether the shared store is one that this crawl may be copied into.
    fn may_copy_into(&self, copies: &Copies, table: &mut RedisLeases) -> Result<(), CopyError> {
        if let Some((_, name)) = &copies.left_to {
            return Err(CopyError::Refused(format!(
                "a crawl has left this store for that of agent {name}, and is still in it: choose another `store-name`, the \
                 same for all agents, or remove its keys"
            )));
        }
        if copies.notes.is_empty() && table.look()?.drawn() > 0 {
            return Err(CopyError::Refused(self.not_empty()));
        }
        if !copies.notes.is_empty() && !copies.are_of(self.me) {
            return Err(CopyError::Refused(format!(
                "the crawl of a site that {} is no agent of is being copied into this store: choose another `store-name`, the \
                 same for all agents",
                self.name
            )));
        }
        Ok(())
    }

    fn not_empty(&self) -> String {
        "there is a crawl of this name in the store already: choose another `store-name`, the same for all agents".to_owned()
    }

    #[allow(clippy::too_many_arguments, reason = "the last step of one function, split off to be readable")]
    fn bring(
        &self,
        source: &mut EmbeddedStore,
        agent: &Agent,
        mut store: RedisStore,
        options: &RedisOptions,
        (theirs, ours): (Wall, Wall),
        members: Vec<(AgentId, String)>,
        totals: &nephila_core::agent::Totals,
    ) -> Result<Copied, CopyError> {
        let note = CopyNote { name: self.name.to_owned(), is_done: false, members };
        store.note_copy(self.me, &note, &Default::default())?;
        let mut copy = RedisCopy::begin(store, options);
        let mut progress = Progress::new();
        source.each_piece(self.me, agent.needs_records_from(), &mut |piece| {
            progress.count();
            copy.add(piece.translated(theirs, ours))
        })?;
        let mut store = copy.end()?;
        // They come along as a whole and once, in the same step as the end.
        store.note_copy(self.me, &CopyNote { is_done: true, ..note }, totals)?;
        let missing = store.copies()?.missing().into_iter().map(str::to_owned).collect();
        Ok(Copied { pieces: progress.pieces, to_shared: true, with: None, missing, aside: None })
    }

    fn to_own(&self) -> Result<Copied, CopyError> {
        let options = self.shared(&self.recorded.config)?;
        let (_, copies) =
            shared::find(&RedisOptions { partitions: Vec::new(), ..options.clone() }, Some(PATIENCE))?;
        let done = |with: Option<String>| Copied {
            pieces: 0,
            to_shared: false,
            with,
            missing: Vec::new(),
            aside: None,
        };
        match &copies.left_to {
            Some((agent, _)) if *agent == self.me => return Ok(done(None)),
            Some((_, name)) => {
                let aside = self.make_own(|_, _, _| Ok(()))?;
                return Ok(Copied { aside, ..done(Some(name.clone())) });
            }
            None => {}
        }
        if let Some(why) = obstacle(&copies) {
            return Err(CopyError::Refused(why));
        }
        let mut table = RedisLeases::open(options.cluster.clone(), &options.crawl)?;
        let leases = self.stopped(&mut table)?;
        let mut store = RedisStore::open(&options)?;
        let mut progress = Progress::new();
        let aside = self.make_own(|copy, agent, pointed| {
            let now = Clock::now();
            let site = self.config.site_settings(self.me, self.name.to_owned(), &self.recorded.seeds);
            let member = Member {
                name: site.name,
                address: site.address,
                capacity: site.capacity,
                version: 1,
                life: 1,
                forgotten: 0,
            };
            for record in [
                Record::Members(Members::found([(self.me, member)].into())),
                Record::Wishes(leases.wishes.clone()),
            ] {
                let place = copy.write(&record)?;
                agent.replay(now, place, &record, &mut |_| None);
            }
            agent.add_totals(&store.totals());
            store.each_piece(&mut |piece: Piece| {
                progress.count();
                for (record, _) in piece.captures().into_iter().filter(|(_, by)| *by == Some(self.me)) {
                    pointed.see(&record);
                }
                copy.add(piece.translated(leases.calendar, now.wall))
            })
        })?;
        store.note_left(self.me, self.name)?;
        Ok(Copied { pieces: progress.pieces, aside, ..done(None) })
    }

    /// Makes a store beside the agent, and puts it in the place of the one that is there.
    fn make_own(
        &self,
        fill: impl FnOnce(&mut EmbeddedCopy, &mut Agent, &mut Pointed) -> nephila_store::Result<()>,
    ) -> Result<Option<PathBuf>, CopyError> {
        let (new, now) = (self.dir.join(NEW), Clock::now());
        match fs::remove_dir_all(&new) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(CopyError::Io { what: "remove", path: new, source });
            }
            _ => {}
        }
        let mut agent = self.agent(self.config);
        let mut pointed = Pointed::default();
        let mut copy = EmbeddedCopy::begin(Arc::new(RealDisk), &new, store_options(self.config), self.me)?;
        let (began, ended) =
            (Record::RunStarted { at: now.wall }, Record::RunEnded { elapsed: Duration::ZERO });
        let place = copy.write(&began)?;
        agent.replay(now, place, &began, &mut |_| None);
        fill(&mut copy, &mut agent, &mut pointed)?;
        let (mut store, place, end) = copy.end(&ended)?;
        agent.replay(now, place, &ended, &mut |_| None);
        let done = snapshot(&mut agent, &mut store, &pointed, end, now)?.run()?;
        store.end_snapshot(done)?;
        drop(store);
        let aside = match EmbeddedStore::exists(&RealDisk, self.dir)? {
            true => Some(directory::set_store_aside(self.dir)?),
            false => None,
        };
        directory::put_store(&new, self.dir)?;
        Ok(aside)
    }

    fn agent(&self, config: &Config) -> Agent {
        let seeds = &self.recorded.seeds;
        let site = config.site_settings(self.me, self.name.to_owned(), seeds);
        Agent::of_site(config.settings.clone(), config.scope(seeds), site)
    }

    /// How the shared store is spoken to.
    fn shared(&self, config: &Config) -> Result<RedisOptions, CopyError> {
        let Some(mut options) = config.shared_store(self.me, self.site)? else {
            return Err(CopyError::Refused("the shared store is not named".to_owned()));
        };
        options.partitions = (0..PARTITIONS).collect();
        options.cluster.patience = PATIENCE;
        options.cluster.link.answer_time_max = ANSWER_TIME_MAX;
        Ok(options)
    }

    /// The leases, if nobody renews one.
    fn stopped(&self, table: &mut RedisLeases) -> Result<Leases, CopyError> {
        let before = table.look()?;
        if before.iter().next().is_none() {
            return Ok(before);
        }
        note(&format!(
            "agents have leases that may be of processes that were killed: looking for {} s",
            SILENT.as_secs()
        ));
        std::thread::sleep(SILENT);
        let leases = table.look()?;
        let running = leases.iter().filter(|(id, lease)| before.get(*id) != Some(*lease));
        let running: Vec<&str> = running.map(|(_, lease)| lease.member.name.as_str()).collect();
        match running.is_empty() {
            true => Ok(leases),
            false => Err(CopyError::Refused(format!(
                "agents work with the store ({}): `nephila stop` ends them",
                running.join(", ")
            ))),
        }
    }
}

/// Says from time to time how far it is.
struct Progress {
    pieces: u64,
    said: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { pieces: 0, said: Instant::now() }
    }

    fn count(&mut self) {
        self.pieces += 1;
        if self.said.elapsed() >= SAID_EVERY {
            self.said = Instant::now();
            note(&format!("copied {} URLs and hosts so far", self.pieces));
        }
    }
}
