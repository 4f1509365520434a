//! The directory of a crawl: what is where in it, who may use it, and whether a command may go on with it.
//!
//! `crawl.toml` records the settings of the last run, the seeds of all runs and why the last one ended; it is also a
//! file for `--config`. It is written before anything is fetched and replaced atomically, so that it is there and whole
//! whenever the directory holds anything else. One process at a time holds the lock.
//!
//! The seeds that it records may not have reached the crawl's journal (a crash can come between), so whoever runs a crawl
//! offers all of them again; those that are known cost nothing.

mod error;

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use nephila_core::agent::StopReason;
use nephila_core::settings::Private;
use nephila_core::site::AgentId;
use nephila_core::url::{Fingerprint, Host, Url};

pub use error::DirectoryError;

use crate::config::table::SETTINGS;
use crate::config::{Config, FederationFile, Layer, Mistakes, NOTES};
use crate::seeds;

/// The version of the form of the directory.
const FORMAT: i64 = 1;
/// More seeds than this are kept in a file of their own.
const URLS_MAX: usize = 50;
/// Settings that have to stay as they are, because what was left aside cannot be found again, or not what was given to whom.
const FIXED: &[&str] = &["scope", "include", "exclude", "order"];
/// How many entries of the current directory are looked at for crawls.
const ENTRIES_MAX: usize = 10_000;
/// How many crawls are read in search of a seed.
const CRAWLS_READ_MAX: usize = 100;
/// What stands between the name of a crawl that was set aside and the time when it was.
const ASIDE: &str = ".old-";

/// Where an agent has its own store.
const STORE: &str = "store";
const RECORD: &str = "crawl.toml";
const LOCK: &str = "lock";
const SEEDS: &str = "seeds.txt";

fn cannot(what: &str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let what = format!("{what} {}", path.display());
    move |source| DirectoryError::Io { what, source }
}

/// What a command would do in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Begin a crawl.
    New,
    /// Go on with the crawl that is there.
    Resume {
        /// How many seeds are new to it.
        seeds_added: usize,
    },
    /// Nothing: the crawl is finished, and nothing new is asked of it.
    Finished,
}

/// What a crawl's directory records.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The settings of its last run.
    pub config: Config,
    /// The seeds of all runs.
    pub seeds: Vec<Url>,
    /// Why the last run ended; nothing while one runs, or if it could not say.
    pub stop_reason: Option<StopReason>,
    /// Which agent it is of, if it is of a site.
    pub agent: Option<AgentId>,
    /// What its certificate called it. Earlier builds did not record that.
    agent_name: Option<String>,
    /// The list of sites that it had last.
    federation: Option<String>,
}

impl Recorded {
    /// Reads what is recorded in a directory.
    pub fn load(dir: &Path) -> Result<Recorded, DirectoryError> {
        let path = dir.join(RECORD);
        if !path.exists() {
            return Err(DirectoryError::NoCrawl(dir.to_owned()));
        }
        let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
        let notes = text.parse::<toml::Table>().ok().and_then(|table| table.get(NOTES).cloned());
        let found = notes.as_ref().and_then(|notes| notes.get("format")).and_then(toml::Value::as_integer);
        if let Some(found) = found.filter(|found| *found > FORMAT) {
            return Err(DirectoryError::Newer { path, found });
        }
        let mut mistakes = Mistakes::default();
        if found.is_none() {
            mistakes.add(format!("it lacks the table [{NOTES}] with its format"));
        }
        let layer = Layer::text(RECORD, dir, &text, &mut mistakes);
        let config = Config::build(&[layer], &mut mistakes);
        let seeds = seeds::read(&config, &mut mistakes);
        let note =
            |name: &str| notes.as_ref().and_then(|notes| notes.get(name)).and_then(toml::Value::as_str);
        let stop_reason = note("stop_reason").and_then(StopReason::named);
        let agent = note("agent").and_then(|text| {
            let read = text.parse::<AgentId>();
            read.inspect_err(|error| mistakes.add(error.to_string())).ok()
        });
        let agent_name = note("agent_name").map(str::to_owned);
        let federation = note("federation").map(str::to_owned);
        match mistakes.check() {
            Ok(()) => Ok(Recorded { config, seeds, stop_reason, agent, agent_name, federation }),
            Err(mistakes) => Err(DirectoryError::Damaged { path, mistakes }),
        }
    }

    /// Whether the record in a directory is a crawl's and not another program's file of the same name.
    fn is_one(dir: &Path) -> bool {
        let text = fs::read_to_string(dir.join(RECORD)).unwrap_or_default();
        text.parse::<toml::Table>().is_ok_and(|table| table.get(NOTES).is_some_and(toml::Value::is_table))
    }

    /// What its crawl is called in the store that agents share and what a command calls it, if these differ. Earlier builds did
    /// not record a name that was not given.
    pub(crate) fn other_name(&self, config: &Config) -> Option<(String, String)> {
        let (was, is) = (self.config.site.store.name.as_ref()?, config.site.store.name.as_ref()?);
        (was != is).then(|| (was.to_string(), is.to_string()))
    }

    /// What differs between the recorded scope and order and those of a command.
    pub(crate) fn fixed_differences(&self, dir: &Path, config: &Config) -> Result<(), DirectoryError> {
        let default = Config::default();
        let (mut differences, mut leave_out, mut give) = (Vec::new(), Vec::new(), Vec::new());
        for setting in SETTINGS.iter().filter(|setting| FIXED.contains(&setting.name)) {
            let (was, is) = (setting.show(&self.config), setting.show(config));
            let said =
                |shown: &Option<_>| shown.as_ref().map_or("none".to_owned(), crate::config::Shown::toml);
            if was == is {
                continue;
            }
            differences.push(format!("  {}: {} there, {} here", setting.name, said(&was), said(&is)));
            match was {
                Some(words) if Some(&words) != setting.show(&default).as_ref() => {
                    give.extend(words.each().map(|word| format!("--{} {}", setting.name, shell_word(word))));
                }
                _ => leave_out.push(format!("--{}", setting.name)),
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        let advice: Vec<String> = [("leave out", leave_out.join(" and ")), ("give", give.join(" "))]
            .into_iter()
            .filter(|(_, flags)| !flags.is_empty())
            .map(|(what, flags)| format!("{what} {flags}"))
            .collect();
        let advice = match self.agent {
            // It has no such flags, and a mistake in its file may have been noticed before it was in any site.
            Some(_) => "write in the agent's file what is there. If it has never been in a site, remove the directory instead".into(),
            None => format!("{}; another crawl begins with another --out", advice.join(" and ")),
        };
        Err(DirectoryError::FixedChanged { dir: dir.to_owned(), differences, advice })
    }

    /// Whether a command lets more URLs in than the recorded settings did.
    fn is_widened_by(&self, config: &Config) -> bool {
        let (was, is) = (&self.config.settings, &config.settings);
        is.max_depth > was.max_depth
            || is.max_host_pages > was.max_host_pages
            || is.max_urls > was.max_urls
            // URLs at addresses that were refused are tried again where they are allowed.
            || is.private != was.private && is.private != Private::Refused
    }
}

/// A word as a shell has to be told it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// What a command would do in a directory, and with which seeds. Changes nothing.
pub fn plan(dir: &Path, config: &Config, seeds: &[Url]) -> Result<(Start, Vec<Url>), DirectoryError> {
    if !dir.join(RECORD).exists() {
        check_free(dir)?;
        return if seeds.is_empty() && config.site.federation.is_none() {
            Err(DirectoryError::NothingThere(dir.to_owned()))
        } else {
            Ok((Start::New, seeds.to_vec()))
        };
    }
    let mut recorded = Recorded::load(dir)?;
    match (recorded.agent, config.is_of_site()) {
        (None, true) => return Err(DirectoryError::Alone(dir.to_owned())),
        (Some(_), false) => return Err(DirectoryError::OfSite(dir.to_owned())),
        _ => {}
    }
    if recorded.config.shares_store() != config.shares_store() {
        let (dir, is_shared) = (dir.to_owned(), recorded.config.shares_store());
        return Err(DirectoryError::OtherStore { dir, is_shared });
    }
    if let Some((was, is)) = recorded.other_name(config) {
        return Err(DirectoryError::OtherName { dir: dir.to_owned(), was, is });
    }
    recorded.fixed_differences(dir, config)?;
    let seeds_added = seeds::merge(&mut recorded.seeds, seeds);
    let finished = recorded.stop_reason == Some(StopReason::Finished);
    if finished && seeds_added == 0 && !recorded.is_widened_by(config) {
        return Ok((Start::Finished, recorded.seeds));
    }
    Ok((Start::Resume { seeds_added }, recorded.seeds))
}

/// A directory may become a crawl if there is nothing in it but what an attempt to begin one can have left.
fn check_free(dir: &Path) -> Result<(), DirectoryError> {
    let ours =
        |name: &std::ffi::OsStr| name == LOCK || name == SEEDS || name.to_string_lossy().ends_with(".tmp");
    let mut entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(DirectoryError::NotACrawl(dir.to_owned()));
        }
        Err(error) => return Err(cannot("read", dir)(error)),
    };
    if entries.any(|entry| entry.is_ok_and(|entry| !ours(&entry.file_name()))) {
        return Err(DirectoryError::NotACrawl(dir.to_owned()));
    }
    Ok(())
}

/// The right to change a crawl, until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "open as long as the lock is held")] File);

impl Lock {
    /// Takes the lock of a crawl, or says who has it.
    pub fn take(dir: &Path) -> Result<Lock, DirectoryError> {
        let path = dir.join(LOCK);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(cannot("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Whose it is is a courtesy; the lock holds without it.
                let _ = file.take(20).read_to_string(&mut pid);
                return Err(DirectoryError::Locked { dir: dir.to_owned(), pid: pid.trim().parse().ok() });
            }
            Err(TryLockError::Error(error)) => return Err(cannot("lock", &path)(error)),
        }
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(cannot("write", &path))?;
        Ok(Lock(file))
    }
}

/// The directory of a crawl that this process runs.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The part of its record that stays as it is during the run.
    settings: String,
    agent: Option<AgentId>,
    agent_name: Option<String>,
    federation: Option<String>,
    _lock: Lock,
}

impl Directory {
    /// Begins a crawl or takes one up again, and returns all its seeds. `seeds` may be empty if the directory is a crawl.
    pub fn open(
        path: &Path,
        config: &Config,
        seeds: &[Url],
    ) -> Result<(Directory, Start, Vec<Url>), DirectoryError> {
        // Before the lock is taken, so that nothing is left behind in a directory that is not ours.
        plan(path, config, seeds)?;
        fs::create_dir_all(path).map_err(cannot("make", path))?;
        let lock = Lock::take(path)?;
        let (start, seeds) = plan(path, config, seeds)?;
        let settings = settings_text(config, &seeds);
        let (agent, agent_name, federation) = match start {
            _ if !config.is_of_site() => (None, None, None),
            // The hash keys of the standard library are random.
            Start::New => {
                let agent = AgentId::from(RandomState::new().hash_one(std::process::id()));
                (Some(agent), None, None)
            }
            Start::Resume { .. } | Start::Finished => {
                let recorded = Recorded::load(path)?;
                (recorded.agent, recorded.agent_name, recorded.federation)
            }
        };
        let path = path.to_owned();
        let directory = Directory { path, settings, agent, agent_name, federation, _lock: lock };
        if start != Start::Finished {
            if seeds.len() > URLS_MAX {
                let lines: String = seeds.iter().map(|seed| format!("{seed}\n")).collect();
                directory.replace(SEEDS, &lines)?;
            }
            directory.record(None)?;
        }
        Ok((directory, start, seeds))
    }

    /// Records what the agent's certificate calls it, which stays so: others know its number by that name.
    pub fn name_agent(&mut self, name: &str) -> Result<(), DirectoryError> {
        match &self.agent_name {
            Some(was) if was != name => {
                let (dir, was, is) = (self.path.clone(), was.clone(), name.to_owned());
                Err(DirectoryError::OtherAgent { dir, was, is })
            }
            Some(_) => Ok(()),
            None => {
                self.agent_name = Some(name.to_owned());
                self.record(None)
            }
        }
    }

    /// Records which list of sites the crawl has, if that may follow on the one that it had.
    pub fn name_federation(&mut self, file: Option<&FederationFile>) -> Result<(), DirectoryError> {
        let list = file.map_or("none".to_owned(), |file| file.federation().list().to_string());
        if let Some(was) = self.federation.as_ref().filter(|was| **was != list) {
            let version =
                |list: &str| list.split_once('-').and_then(|(version, _)| version.parse::<u64>().ok());
            let is_later = version(was).zip(version(&list)).is_some_and(|(was, is)| was < is);
            let (dir, was) = (self.path.clone(), was.clone());
            match file {
                Some(file) if is_later => file.check_follows(&dir)?,
                _ => return Err(DirectoryError::OtherFederation { dir, was }),
            }
        }
        if let Some(file) = file {
            file.keep(&self.path)?;
        }
        self.federation = Some(list);
        self.record(None)
    }

    /// Records why the run ended.
    pub fn mark_ended(&self, reason: StopReason) -> Result<(), DirectoryError> {
        self.record(Some(reason))
    }

    fn record(&self, stop_reason: Option<StopReason>) -> Result<(), DirectoryError> {
        let ended = stop_reason.map(|reason| format!("stop_reason = \"{}\"\n", reason.name()));
        let agent = self.agent.map(|agent| format!("agent = \"{agent}\"\n"));
        let agent_name = self.agent_name.as_ref().map(|name| format!("agent_name = {name:?}\n"));
        let federation = self.federation.as_ref().map(|list| format!("federation = {list:?}\n"));
        let version = env!("CARGO_PKG_VERSION");
        let how = match self.agent {
            Some(_) => {
                "An agent of a site, by nephila. `nephila agent` with its file of settings goes on with it"
            }
            None => "A crawl by nephila. `nephila crawl --out` with this directory goes on with it",
        };
        let text = format!(
            "# {how}.\n{}\n[{NOTES}]\nformat = {FORMAT}\nsoftware = \"nephila {version}\"\n{}{}{}{}",
            self.settings,
            agent.unwrap_or_default(),
            agent_name.unwrap_or_default(),
            federation.unwrap_or_default(),
            ended.unwrap_or_default()
        );
        self.replace(RECORD, &text)
    }

    fn replace(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        let path = self.path.join(name);
        write_atomically(&path, text.as_bytes()).map_err(cannot("write", &path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which agent it is of, if it is of a site.
    pub fn agent(&self) -> Option<AgentId> {
        self.agent
    }
}

/// The settings and seeds as they are recorded. The directory itself is not: it may be moved.
fn settings_text(config: &Config, seeds: &[Url]) -> String {
    let mut text = if seeds.len() > URLS_MAX {
        format!("seeds = \"{SEEDS}\"\n")
    } else {
        let quoted = |seed: &Url| format!("    {},\n", toml::Value::String(seed.to_string()));
        format!("urls = [\n{}]\n", seeds.iter().map(quoted).collect::<String>())
    };
    text.push_str(&config.to_toml(false, &["urls", "seeds", "out"]));
    text
}

/// Where the WARC files of a crawl are.
pub fn archive(dir: &Path) -> PathBuf {
    dir.join("archive")
}

/// The index of all WARC files of a crawl.
pub fn index(dir: &Path) -> PathBuf {
    archive(dir).join("index.cdxj")
}

/// The log of all attempts.
pub fn fetch_log(dir: &Path) -> PathBuf {
    dir.join("logs/fetch.jsonl")
}

/// Where bodies wait that are too large for memory.
pub fn spill(dir: &Path) -> PathBuf {
    dir.join("spill")
}

/// Where a running crawl listens.
pub fn control_socket(dir: &Path) -> PathBuf {
    dir.join("control.sock")
}

/// The directory of a crawl that names none: after its first seed.
pub fn default_for(seeds: &[Url]) -> Result<PathBuf, DirectoryError> {
    let first = seeds.first().ok_or(DirectoryError::NoSeeds)?;
    // Colons of IPv6 addresses mean something to some tools.
    Ok(PathBuf::from(format!("nephila-{}", Host::of(first).as_str().replace(':', "-"))))
}

/// The only crawl that is the given directory or directly below it. Those that were set aside do not count.
pub fn find(near: &Path) -> Result<PathBuf, DirectoryError> {
    if near.join(RECORD).exists() {
        return Ok(near.to_owned());
    }
    let mut crawls = crawls_in(near).map_err(cannot("read", near))?;
    match crawls.len() {
        0 => Err(DirectoryError::NoneNear),
        1 => Ok(crawls.remove(0)),
        _ => Err(DirectoryError::SeveralNear(crawls)),
    }
}

/// A crawl directly below a directory that has one of these seeds, so that whoever begins another can be told of it.
pub fn with_seed(near: &Path, seeds: &[Url]) -> Option<PathBuf> {
    let wanted: HashSet<Fingerprint> = seeds.iter().map(Fingerprint::of).collect();
    let has_one = |path: &PathBuf| {
        let seeds = Recorded::load(path).map(|recorded| recorded.seeds).unwrap_or_default();
        seeds.iter().any(|seed| wanted.contains(&Fingerprint::of(seed)))
    };
    // A courtesy: what cannot be read is passed over.
    crawls_in(near).unwrap_or_default().into_iter().take(CRAWLS_READ_MAX).find(has_one)
}

/// The crawls directly below a directory, by name, without those that were set aside.
fn crawls_in(near: &Path) -> io::Result<Vec<PathBuf>> {
    let is_aside = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.rsplit_once(ASIDE).is_some_and(|(_, stamp)| stamp.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut crawls: Vec<PathBuf> = fs::read_dir(near)?
        .take(ENTRIES_MAX)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| !is_aside(path) && path.join(RECORD).exists() && Recorded::is_one(path))
        // As one would type it.
        .map(|path| path.strip_prefix("./").map(Path::to_owned).unwrap_or(path))
        .collect();
    crawls.sort();
    Ok(crawls)
}

/// Records that the crawl of an agent goes on with other settings.
pub(crate) fn turn(
    path: &Path,
    lock: Lock,
    recorded: &Recorded,
    config: &Config,
) -> Result<Directory, DirectoryError> {
    let (settings, agent) = (settings_text(config, &recorded.seeds), recorded.agent);
    let (agent_name, federation) = (recorded.agent_name.clone(), recorded.federation.clone());
    let path = path.to_owned();
    let directory = Directory { path, settings, agent, agent_name, federation, _lock: lock };
    directory.record(recorded.stop_reason)?;
    Ok(directory)
}

/// Puts a store that was made in another directory into that of a crawl, which has none.
pub(crate) fn put_store(made: &Path, dir: &Path) -> Result<(), DirectoryError> {
    let new = made.join(STORE);
    fs::rename(&new, dir.join(STORE)).map_err(cannot("rename", &new))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(cannot("sync", dir))?;
    fs::remove_dir_all(made).map_err(cannot("remove", made))
}

/// Renames the store of a crawl, and returns the new name.
pub(crate) fn set_store_aside(dir: &Path) -> Result<PathBuf, DirectoryError> {
    let store = dir.join(STORE);
    let new = beside(&store);
    fs::rename(&store, &new).map_err(cannot("rename", &store))?;
    Ok(new)
}

/// A name that is free, for what is at a path and is to make room.
fn beside(path: &Path) -> PathBuf {
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    let with = |suffix: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("{ASIDE}{stamp}{suffix}"));
        PathBuf::from(name)
    };
    let free = (1..=100)
        .map(|n| with(if n == 1 { String::new() } else { format!("-{n}") }))
        .find(|new| !new.exists());
    free.unwrap_or_else(|| with(format!("-{}", std::process::id())))
}

/// Renames the directory of a crawl, so that another can begin in its place, and returns the new name. Refuses what is
/// not a crawl, and a crawl that runs.
pub fn set_aside(dir: &Path) -> Result<PathBuf, DirectoryError> {
    if !Recorded::is_one(dir) {
        return Err(DirectoryError::NotACrawl(dir.to_owned()));
    }
    let _lock = Lock::take(dir)?;
    let new = beside(&std::path::absolute(dir).map_err(cannot("find", dir))?);
    fs::rename(dir, &new).map_err(cannot("rename", dir))?;
    Ok(new)
}

/// Replaces a file so that after a crash at any moment either the old or the new one is there, whole.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(texts: &[&str]) -> Vec<Url> {
        texts.iter().map(|text| Url::parse(text).unwrap()).collect()
    }

    fn config(flags: &[(&str, &str)]) -> Config {
        let mut mistakes = Mistakes::default();
        let given = flags.iter().map(|(name, word)| ((*name).to_owned(), vec![(*word).to_owned()]));
        let config = Config::build(&[Layer::flags(given.collect())], &mut mistakes);
        assert_eq!(mistakes.list(), [""; 0]);
        config
    }

    /// What a second command does in the directory of a first.
    fn second(
        first: &[(&str, &str)],
        finished: bool,
        flags: &[(&str, &str)],
        seeds: &[&str],
    ) -> Result<(Start, Vec<Url>), DirectoryError> {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("crawl");
        let (directory, start, _) =
            Directory::open(&dir, &config(first), &urls(&["https://a.test/", "https://b.test/x"])).unwrap();
        assert_eq!(start, Start::New);
        if finished {
            directory.mark_ended(StopReason::Finished).unwrap();
        }
        drop(directory);
        let planned = plan(&dir, &config(flags), &urls(seeds));
        let (_, start, seeds) = Directory::open(&dir, &config(flags), &urls(seeds))?;
        assert_eq!(planned.unwrap(), (start, seeds.clone()));
        Ok((start, seeds))
    }

    #[test]
    fn resuming() {
        let both: &[&str] = &["https://a.test/", "https://b.test/x"];
        let more: &[&str] = &["https://c.test/", "https://a.test/#same"];
        type Flags = &'static [(&'static str, &'static str)];
        // Flags of the first command, whether it finished, flags and seeds of the second, what that does, with how many.
        type Case<'a> = (Flags, bool, Flags, &'a [&'a str], Start, usize);
        let cases: &[Case<'_>] = &[
            (&[], false, &[], both, Start::Resume { seeds_added: 0 }, 2),
            (&[], false, &[], &[], Start::Resume { seeds_added: 0 }, 2),
            (&[], false, &[("delay", "9s")], more, Start::Resume { seeds_added: 1 }, 3),
            (&[], true, &[], both, Start::Finished, 2),
            (&[], true, &[("delay", "9s"), ("max-pages", "9")], both, Start::Finished, 2),
            (&[], true, &[], more, Start::Resume { seeds_added: 1 }, 3),
            (&[], true, &[("max-depth", "60")], both, Start::Resume { seeds_added: 0 }, 2),
            (&[], true, &[("max-depth", "6")], both, Start::Finished, 2),
            (&[], true, &[("allow-private", "all")], both, Start::Resume { seeds_added: 0 }, 2),
            (&[("allow-private", "all")], true, &[], both, Start::Finished, 2),
            (&[("scope", "any")], true, &[("scope", "any")], both, Start::Finished, 2),
        ];
        for (first, finished, flags, seeds, start, count) in cases {
            let (found, all) = second(first, *finished, flags, seeds).unwrap();
            assert_eq!((found, all.len()), (*start, *count), "{first:?} {finished} {flags:?} {seeds:?}");
        }
    }

    #[test]
    fn another_scope_is_refused_with_the_difference() {
        type Flags = &'static [(&'static str, &'static str)];
        // Flags of the first command, those of the second, and what the refusal says.
        let cases: &[(Flags, Flags, &[&str])] = &[
            (
                &[("scope", "domain"), ("exclude", "a b")],
                &[("include", "x")],
                &[
                    "scope: \"domain\" there, \"site\" here",
                    "exclude: [\"a b\"] there, none here",
                    "include: none there, [\"x\"] here",
                    "leave out --include and give --scope domain --exclude 'a b';",
                    "--out",
                ],
            ),
            (&[], &[("scope", "any"), ("exclude", "x")], &["it, leave out --scope and --exclude; another"]),
            (
                &[("order", "cash")],
                &[],
                &["order: \"cash\" there, \"breadth-first\" here", "give --order cash;"],
            ),
            // What is the same already is not repeated.
            (
                &[("scope", "any"), ("include", "a")],
                &[("scope", "any"), ("include", "b")],
                &["it, give --include a; another"],
            ),
        ];
        for (first, flags, parts) in cases {
            let error = second(first, false, flags, &["https://a.test/"]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            for part in *parts {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
    }

    #[test]
    fn another_crawl_of_a_shared_store_is_refused() {
        let named = |name: &str| {
            let mut config = config(&[("store", "redis://127.0.0.1:6379")]);
            config.site.store.name = (!name.is_empty()).then(|| name.parse().unwrap());
            config.name_store("site");
            config
        };
        let temporary = tempfile::tempdir().unwrap();
        let (dir, seeds) = (temporary.path(), urls(&["https://a.test/"]));
        drop(Directory::open(dir, &named(""), &seeds).unwrap());
        let before = fs::read(dir.join(RECORD)).unwrap();
        // The site's name is the one that was meant.
        for (name, is_same) in [("", true), ("site", true), ("other", false)] {
            match Directory::open(dir, &named(name), &seeds) {
                Ok((_, start, _)) => assert!(is_same && start == Start::Resume { seeds_added: 0 }),
                Err(error) => {
                    assert!(!is_same && error.exit_code() == 2, "{error}");
                    assert!(error.to_string().contains("write `store-name = \"site\"`"), "{error}");
                }
            }
            assert_eq!(fs::read(dir.join(RECORD)).unwrap(), before);
        }
    }

    #[test]
    fn many_seeds_have_a_file() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path();
        let many: Vec<Url> = (0..200).map(|n| Url::parse(&format!("https://h{n}.test/")).unwrap()).collect();
        Directory::open(dir, &config(&[]), &many[..2]).unwrap();
        assert!(!dir.join(SEEDS).exists());
        let (_, start, _) = Directory::open(dir, &config(&[]), &many).unwrap();
        assert_eq!(start, Start::Resume { seeds_added: 198 });
        let recorded = Recorded::load(dir).unwrap();
        assert_eq!(recorded.seeds.len(), 200);
        // The record is a file for --config, and means this crawl.
        let mut mistakes = Mistakes::default();
        let again = Config::build(&[Layer::file(&dir.join(RECORD), &mut mistakes)], &mut mistakes);
        assert_eq!(mistakes.list(), [""; 0]);
        assert_eq!(again.out.unwrap().components().collect::<PathBuf>(), dir);
    }

    #[test]
    fn one_process_at_a_time() {
        let temporary = tempfile::tempdir().unwrap();
        let seeds = urls(&["https://a.test/"]);
        let first = Directory::open(temporary.path(), &config(&[]), &seeds).unwrap();
        let error = Directory::open(temporary.path(), &config(&[]), &seeds).unwrap_err();
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        assert!(matches!(set_aside(temporary.path()), Err(DirectoryError::Locked { .. })));
        drop(first);
        Directory::open(temporary.path(), &config(&[]), &seeds).unwrap();
    }

    #[test]
    fn what_is_not_ours_stays_as_it_is() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("letter"), "dear").unwrap();
        let error = Directory::open(temporary.path(), &config(&[]), &urls(&["https://a.test/"])).unwrap_err();
        assert!(matches!(error, DirectoryError::NotACrawl(_)), "{error}");
        assert!(matches!(set_aside(temporary.path()), Err(DirectoryError::NotACrawl(_))));
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
        let file = temporary.path().join("letter");
        let error = Directory::open(&file, &config(&[]), &urls(&["https://a.test/"])).unwrap_err();
        assert!(matches!(error, DirectoryError::NotACrawl(_)), "{error}");
    }

    #[test]
    fn starting_over_keeps_the_old() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("crawl");
        let seeds = urls(&["https://a.test/"]);
        drop(Directory::open(&dir, &config(&[]), &seeds).unwrap());
        let first = set_aside(&dir).unwrap();
        drop(Directory::open(&dir, &config(&[]), &seeds).unwrap());
        let second = set_aside(&dir).unwrap();
        assert!(first != second && !dir.exists());
        assert!(Recorded::load(&first).is_ok() && Recorded::load(&second).is_ok());
    }

    #[test]
    fn damage_and_newer_formats_are_told() {
        let temporary = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("", "lacks the table"),
            ("[crawl]\nformat = 99", "use a newer nephila"),
            ("foo = 1\nurls = [\"ftp://x/\"]\n[crawl]\nformat = 1", "2 mistakes"),
            ("urls = ", "line 1"),
        ] {
            fs::write(temporary.path().join(RECORD), text).unwrap();
            let error = plan(temporary.path(), &config(&[]), &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_only_crawl_is_found() {
        let temporary = tempfile::tempdir().unwrap();
        let seeds = urls(&["https://a.test/"]);
        assert!(matches!(find(temporary.path()), Err(DirectoryError::NoneNear)));
        let (one, two) = (temporary.path().join("one"), temporary.path().join("two"));
        drop(Directory::open(&one, &config(&[]), &seeds).unwrap());
        assert_eq!(find(temporary.path()).unwrap(), one);
        assert_eq!(find(&one).unwrap(), one);
        drop(Directory::open(&two, &config(&[]), &seeds).unwrap());
        let error = find(temporary.path()).unwrap_err().to_string();
        assert!(error.contains("/one\n") && error.contains("/two"), "{error}");
        set_aside(&two).unwrap();
        assert_eq!(find(temporary.path()).unwrap(), one);
    }

    #[test]
    fn a_crawl_with_the_same_seed_is_found() {
        let temporary = tempfile::tempdir().unwrap();
        let (near, crawl) = (temporary.path(), temporary.path().join("crawl"));
        drop(Directory::open(&crawl, &config(&[]), &urls(&["https://a.test/", "https://b.test/"])).unwrap());
        assert_eq!(with_seed(near, &urls(&["https://c.test/", "https://b.test/#same"])), Some(crawl.clone()));
        assert_eq!(with_seed(near, &urls(&["https://c.test/"])), None);
        set_aside(&crawl).unwrap();
        assert_eq!(with_seed(near, &urls(&["https://b.test/"])), None);
    }

    #[test]
    fn names_of_directories() {
        for (seed, name) in [
            ("https://www.example.org/a", "nephila-www.example.org"),
            ("http://127.0.0.1:8080/", "nephila-127.0.0.1"),
            ("http://[::1]/", "nephila---1"),
        ] {
            assert_eq!(default_for(&urls(&[seed])).unwrap(), Path::new(name));
        }
        assert!(matches!(default_for(&[]), Err(DirectoryError::NoSeeds)));
    }
}
