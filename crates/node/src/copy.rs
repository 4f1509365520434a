//! Moves what an agent of a stopped site knows from the store beside it to one that the site's agents share, and back.
//!
//! Where it is, its directory says (`crawl.toml`); where it is to be, the agent's file of settings. What is there stays as it
//! is until all of it is in the other place and durable; then that is noted, and last the directory is turned. Killed at any
//! moment, the same command begins again and nothing is lost:
//!
//! - *To a shared store* every agent of the site brings what it knows, one after another, and each notes in the store that it has
//!   begun and that it is done. No agent works with the store before all are. The first note comes before anything else is
//!   written, so that what a copy began is never taken for another crawl.
//! - *From a shared store* one agent takes everything, into a store that is made beside the old one and has its name only
//!   when it is whole. It is then a site of one. The others join that with empty stores, and get their part as always.
//!
//! A crawl that has left a shared store is still in it, as it was then, and nothing is ever copied into that: neither the note
//! that it was copied there once nor the one that it has left say anything of what agents have done since.
//!
//! Whatever is decided from the notes is decided again once all partitions are held: then nobody else can write one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nephila_core::agent::Agent;
use nephila_core::assign::PARTITIONS;
use nephila_core::record::Record;
use nephila_core::site::{AgentId, Leases, Member, Members};
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

/// How far a copy has come: each of them is a state that a kill may leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All partitions of the shared store are held.
    Held,
    /// It is noted that the copy has begun.
    Noted,
    /// The shared store has a calendar, and what all agents wish.
    Begun,
    /// One more URL or host was passed on.
    Piece,
    /// All of them are durable.
    Whole,
    /// It is noted that all of them are.
    Done,
    /// The agent's former store has another name.
    Aside,
    /// The store that was made has its place.
    Placed,
    /// It is noted that the crawl has left the shared store.
    Left,
    /// The directory says where the crawl is.
    Turned,
}

/// What was done.
#[derive(Debug)]
pub struct Copied {
    /// URLs and hosts that were read.
    pub pieces: u64,
    /// All of them had been copied before, by a command that ended before it could say so.
    pub was_done: bool,
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
             begin another crawl with another `store-name` and another `out`"
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
    copy_in_steps(config, dir, site, name, &mut |_| true)
}

/// The same, and says each step when it is done. It ends there if `goes_on` says so, as a kill would end it.
pub fn copy_in_steps(
    config: &Config,
    dir: &Path,
    site: &str,
    name: &str,
    goes_on: &mut dyn FnMut(Step) -> bool,
) -> Result<Copied, CopyError> {
    // Before the lock is taken, so that nothing is left behind in a directory that is not ours.
    Recorded::load(dir)?;
    let lock = Lock::take(dir)?;
    let recorded = Recorded::load(dir)?;
    let me = recorded.agent.ok_or_else(|| DirectoryError::Alone(dir.to_owned()))?;
    recorded.fixed_differences(dir, config)?;
    let mut of = Copying { config, dir, site, name, me, recorded: &recorded, goes_on };
    let mut copied = match (recorded.config.shares_store(), config.shares_store()) {
        (false, true) => of.copy_to_shared()?,
        (true, false) => of.copy_to_own()?,
        (true, true) => of.is_shared()?,
        (false, false) => return Err(of.is_there("in a store of its own", "name another with `store`")),
    };
    let turned = directory::turn(dir, lock, &recorded, config)?;
    of.step(Step::Turned)?;
    if copied.to_shared && EmbeddedStore::exists(&RealDisk, dir)? {
        copied.aside = Some(directory::set_store_aside(dir)?);
        of.step(Step::Aside)?;
    }
    // Until here nobody else may use it.
    drop(turned);
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
    goes_on: &'a mut dyn FnMut(Step) -> bool,
}

impl Copying<'_> {
    fn step(&mut self, step: Step) -> nephila_store::Result<()> {
        match (self.goes_on)(step) {
            true => Ok(()),
            false => Err(nephila_store::Error::Unavailable { what: "the copy was ended", seconds: 0 }),
        }
    }

    /// The refusal to move a crawl to where it is.
    fn is_there(&self, where_it_is: &str, advice: &str) -> CopyError {
        CopyError::Refused(format!(
            "the crawl in {} is {where_it_is}, and the file says the same: to move it, {advice}",
            self.dir.display()
        ))
    }

    /// Where the crawl is in a shared store and shall be: there is something to do only if a copy to there was ended last thing.
    fn is_shared(&mut self) -> Result<Copied, CopyError> {
        if let Some((was, is)) = self.recorded.other_name(self.config) {
            return Err(CopyError::Refused(format!(
                "the crawl in {} is in a store that agents share and is called {was} there, and the file says {is}: to move it, leave \
                 `store` out first, and then name the other one",
                self.dir.display()
            )));
        }
        if EmbeddedStore::exists(&RealDisk, self.dir)? {
            let copies = self.copies(&self.shared(&self.recorded.config)?)?;
            // The store that is here may be what was copied from there.
            if copies.left_to.is_some() {
                return Err(CopyError::Refused(obstacle(&copies).unwrap_or_default()));
            }
            if copies.notes.get(&self.me).is_some_and(|note| note.is_done) {
                return Ok(self.had_come(&copies));
            }
        }
        Err(self.is_there("in a store that agents share", "leave `store` out"))
    }

    /// All that this agent knew had been brought to the shared store before.
    fn had_come(&self, copies: &Copies) -> Copied {
        let missing = copies.missing().into_iter().map(str::to_owned).collect();
        Copied { pieces: 0, was_done: true, to_shared: true, with: None, missing, aside: None }
    }

    /// What the shared store knows of copies. Changes nothing there.
    fn copies(&self, options: &RedisOptions) -> Result<Copies, CopyError> {
        let options = RedisOptions { partitions: Vec::new(), ..options.clone() };
        Ok(shared::find(&options, Some(PATIENCE))?.1)
    }

    fn copy_to_shared(&mut self) -> Result<Copied, CopyError> {
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
        if members.is_empty() {
            // It would be a whole site, and the crawl of the others could not be copied to where that is.
            return Err(CopyError::Refused(format!(
                "the agent in {} has an empty store, and has not been with the others of its site since: there is nothing to copy. Start \
                 it together with them first, or leave it out, and let it begin in another directory with `out` when all is copied",
                self.dir.display()
            )));
        }
        if !members.iter().any(|(id, _)| *id == self.me) {
            members.push((self.me, self.name.to_owned()));
        }
        let note = CopyNote {
            name: self.name.to_owned(),
            is_done: false,
            members,
            journal_end: source.written_to()?,
        };

        let mut options = self.shared(self.config)?;
        options.limits.max_urls = options.limits.max_urls.saturating_mul(note.members.len() as u64);
        let copies = self.copies(&options)?;
        let mut table = RedisLeases::open(options.cluster.clone(), &options.crawl)?;
        if self.may_copy_into(&copies, &note, &mut table)? {
            return Ok(self.had_come(&copies));
        }
        let mut store = RedisStore::open(&options)?;
        self.step(Step::Held)?;
        let copies = store.copies()?;
        if self.may_copy_into(&copies, &note, &mut table)? {
            return Ok(self.had_come(&copies));
        }
        if copies.notes.is_empty() && !store.is_unused() {
            return Err(CopyError::Refused(not_empty()));
        }
        store.note_copy(self.me, &note, &Default::default())?;
        self.step(Step::Noted)?;
        let ours = table.begin(now.wall, agent.wishes())?.calendar;
        self.step(Step::Begun)?;
        let mut copy = RedisCopy::begin(store, &options);
        let mut progress = Progress::new();
        source.each_piece(self.me, agent.needs_records_from(), &mut |piece| {
            progress.count();
            copy.add(piece.translated(now.wall, ours))?;
            self.step(Step::Piece)
        })?;
        let mut store = copy.end()?;
        self.step(Step::Whole)?;
        // They come along as a whole and once, in the same step as the end.
        let totals = agent.status(now).totals;
        store.note_copy(self.me, &CopyNote { is_done: true, ..note }, &totals)?;
        self.step(Step::Done)?;
        Ok(Copied { pieces: progress.pieces, was_done: false, ..self.had_come(&store.copies()?) })
    }

    /// Whether all that this agent knows is in the shared store already. If not, it is one that this crawl may be copied into.
    fn may_copy_into(
        &self,
        copies: &Copies,
        ours: &CopyNote,
        table: &mut RedisLeases,
    ) -> Result<bool, CopyError> {
        let refused = |why: String| Err(CopyError::Refused(why));
        // First of all: whatever else is noted was so before it left.
        if let Some((_, name)) = &copies.left_to {
            let of = self.config.site.store.name.as_ref().map_or(self.site.to_owned(), ToString::to_string);
            return refused(format!(
                "a crawl of this name was in the store and has left it for that of agent {name}: choose another `store-name`, the same \
                 for all agents, or remove what is left of it, the keys that begin with `{of}:` (docs/site.md says how)"
            ));
        }
        match copies.notes.get(&self.me) {
            // Earlier builds did not say how far.
            Some(note) if note.is_done && [0, ours.journal_end].contains(&note.journal_end) => {
                return Ok(true);
            }
            Some(note) if note.is_done => {
                return refused(format!(
                    "{} has copied its crawl into this store before, and has gone on with its own since: choose another `store-name`, the \
                     same for all agents",
                    self.name
                ));
            }
            _ => {}
        }
        if !copies.notes.is_empty() && !copies.are_of(self.me) {
            return refused(format!(
                "the crawl of a site that {} is no agent of is being copied into this store: choose another `store-name`, the \
                 same for all agents",
                self.name
            ));
        }
        // As long as somebody is missing nobody works there, and who does says what it was told.
        if table.look()?.terms.is_some() {
            return refused(not_empty());
        }
        Ok(false)
    }

    fn copy_to_own(&mut self) -> Result<Copied, CopyError> {
        let options = self.shared(&self.recorded.config)?;
        let copies = self.copies(&options)?;
        if let Some(copied) = self.has_left(&copies)? {
            return Ok(copied);
        }
        let mut table = RedisLeases::open(options.cluster.clone(), &options.crawl)?;
        let leases = self.stopped(&mut table)?;
        if leases.drawn() == 0 {
            return Err(CopyError::Refused(self.nothing_there()));
        }
        let mut store = RedisStore::open(&options)?;
        self.step(Step::Held)?;
        if let Some(copied) = self.has_left(&store.copies()?)? {
            return Ok(copied);
        }
        let mut progress = Progress::new();
        let new = self.make_own(|of, copy, agent, pointed| {
            let now = Clock::now();
            let site = of.config.site_settings(of.me, of.name.to_owned(), &of.recorded.seeds);
            let member = Member {
                name: site.name,
                address: site.address,
                capacity: site.capacity,
                version: 1,
                life: 1,
                forgotten: 0,
            };
            for record in [
                Record::Members(Members::found([(of.me, member)].into())),
                Record::Wishes(leases.wishes.clone()),
            ] {
                let place = copy.write(&record)?;
                agent.replay(now, place, &record, &mut |_| None);
            }
            agent.add_totals(&store.totals());
            store.each_piece(&mut |piece: Piece| {
                progress.count();
                for (record, _) in piece.captures().into_iter().filter(|(_, by)| *by == Some(of.me)) {
                    pointed.see(&record);
                }
                copy.add(piece.translated(leases.calendar, now.wall))?;
                of.step(Step::Piece)
            })
        })?;
        if progress.pieces == 0 {
            return Err(CopyError::Refused(self.nothing_there()));
        }
        let after = table.look()?;
        if after.drawn() != leases.drawn() || !after.iter().eq(leases.iter()) {
            let why = "agents have begun to work with the store meanwhile: `nephila stop` ends them";
            return Err(CopyError::Refused(why.to_owned()));
        }
        let aside = self.put_own(&new)?;
        store.note_left(self.me, self.name)?;
        self.step(Step::Left)?;
        Ok(Copied { pieces: progress.pieces, aside, ..taken(None) })
    }

    /// What there is to be done if the crawl has left the shared store.
    fn has_left(&mut self, copies: &Copies) -> Result<Option<Copied>, CopyError> {
        match &copies.left_to {
            Some((agent, _)) if *agent == self.me => match EmbeddedStore::exists(&RealDisk, self.dir)? {
                true => Ok(Some(Copied { was_done: true, ..taken(None) })),
                false => Err(CopyError::Refused(format!(
                    "the crawl has left the shared store for that of this agent, which is not in {}: put it back as `store` (the last that \
                     was there is the newest `store.old-TIME`), and run this again",
                    self.dir.display()
                ))),
            },
            Some((_, name)) => {
                let new = self.make_own(|_, _, _, _| Ok(()))?;
                let aside = self.put_own(&new)?;
                Ok(Some(Copied { aside, ..taken(Some(name.clone())) }))
            }
            None => obstacle(copies).map_or(Ok(None), |why| Err(CopyError::Refused(why))),
        }
    }

    fn nothing_there(&self) -> String {
        format!(
            "nothing of the crawl in {} is in the store that agents share: see that `store-name` is the one that it had, and that nobody has \
             removed its keys; a new crawl begins in another directory with `out`",
            self.dir.display()
        )
    }

    /// Makes a store beside the one that is there, and says where.
    fn make_own(
        &mut self,
        fill: impl FnOnce(&mut Self, &mut EmbeddedCopy, &mut Agent, &mut Pointed) -> nephila_store::Result<()>,
    ) -> Result<PathBuf, CopyError> {
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
        fill(self, &mut copy, &mut agent, &mut pointed)?;
        let (mut store, place, end) = copy.end(&ended)?;
        agent.replay(now, place, &ended, &mut |_| None);
        let done = snapshot(&mut agent, &mut store, &pointed, end, now)?.run()?;
        store.end_snapshot(done)?;
        self.step(Step::Whole)?;
        Ok(new)
    }

    /// Puts the store that was made in the place of the one that is there.
    fn put_own(&mut self, new: &Path) -> Result<Option<PathBuf>, CopyError> {
        let aside = match EmbeddedStore::exists(&RealDisk, self.dir)? {
            true => Some(directory::set_store_aside(self.dir)?),
            false => None,
        };
        self.step(Step::Aside)?;
        directory::put_store(new, self.dir)?;
        self.step(Step::Placed)?;
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

fn not_empty() -> String {
    "there is a crawl of this name in the store already: choose another `store-name`, the same for all agents"
        .to_owned()
}

/// The crawl is with this agent, or with another one.
fn taken(with: Option<String>) -> Copied {
    Copied { pieces: 0, was_done: false, to_shared: false, with, missing: Vec::new(), aside: None }
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
