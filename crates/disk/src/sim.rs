//! A disk in memory that fails as real ones do, by a seed.
//!
//! A file has the bytes that readers see and, apart from them, the bytes that are durable; the difference is a list of
//! writes and truncations that [`File::sync`] empties. Names work the same way, with [`Disk::sync_dir`]. At a power cut
//! each entry of these lists is kept, lost or (writes) torn, on its own, in a way that depends only on the seed and on
//! what was done before. Directories themselves are always durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Disk, File, Mode};

/// The unit in which a write is torn: a disk writes a sector wholly or not at all.
const SECTOR_BYTES: u64 = 512;

/// A simulated disk: a handle that can be cloned, and that dies with the process that [`SimDisk::kill`] or
/// [`SimDisk::power_cut`] ends.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Mutex<State>>,
    life: u64,
}

struct State {
    /// Which process is alive; handles of an earlier one answer with an error.
    life: u64,
    random: u64,
    capacity_bytes: u64,
    operations_left: Option<u64>,
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    unsynced_names: Vec<NameChange>,
    files: BTreeMap<u64, Node>,
    next_file: u64,
}

#[derive(Default)]
struct Node {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Up to here the two are known to be the same.
    same: usize,
    unsynced: Vec<Change>,
}

enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate { len: u64 },
}

enum NameChange {
    Set { path: PathBuf, file: u64 },
    Rename { from: PathBuf, to: PathBuf, file: u64 },
    Remove { path: PathBuf, file: u64 },
}

impl SimDisk {
    /// An empty disk without a limit. The same seed and the same operations give the same disk after a power cut.
    pub fn new(seed: u64) -> SimDisk {
        let state = State {
            life: 0,
            random: seed,
            capacity_bytes: u64::MAX,
            operations_left: None,
            dirs: BTreeSet::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            files: BTreeMap::new(),
            next_file: 0,
        };
        SimDisk { shared: Arc::new(Mutex::new(state)), life: 0 }
    }

    /// Ends the process (`kill -9`): all that was handed over is still there, synced or not, and the returned disk sees
    /// it. Every older handle, of the disk and of its files, fails from now on. What was unsynced still is: a later
    /// power cut may take it. A failure set with [`SimDisk::fail_after`] is over.
    pub fn kill(&self) -> SimDisk {
        let mut state = lock(&self.shared);
        state.life += 1;
        state.operations_left = None;
        SimDisk { shared: Arc::clone(&self.shared), life: state.life }
    }

    /// Cuts the power and comes back. Synced data and synced names are as they were. Of what was not synced:
    /// - any subset of the writes to a file survives, each wholly or in some of its 512-byte sectors; a write that is
    ///   lost may still have made the file longer; holes read as zeros; a truncation counts as a write;
    /// - any subset of the creations, renames and removals happened, each wholly or not at all, in order.
    ///
    /// Every older handle fails from now on, and a failure set with [`SimDisk::fail_after`] is over.
    pub fn power_cut(&self) -> SimDisk {
        let mut state = lock(&self.shared);
        state.lose_power();
        state.life += 1;
        state.operations_left = None;
        SimDisk { shared: Arc::clone(&self.shared), life: state.life }
    }

    /// Limits the sum of the lengths of all files. An append beyond it writes what fits and fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        lock(&self.shared).capacity_bytes = bytes;
    }

    /// Lets `operations` more changes (appends, truncations, syncs, creations, renames, removals) through and fails all
    /// that follow, until the process ends. An append that fails this way may have written a part.
    pub fn fail_after(&self, operations: u64) {
        lock(&self.shared).operations_left = Some(operations);
    }

    /// The sum of the lengths of all files that have a name.
    pub fn used_bytes(&self) -> u64 {
        lock(&self.shared).used_bytes()
    }

    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        live(&self.shared, self.life)
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    // A test that panicked while it held the lock has failed already; what it left is still consistent enough to drop.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn live(shared: &Mutex<State>, life: u64) -> io::Result<MutexGuard<'_, State>> {
    let state = lock(shared);
    if state.life == life {
        Ok(state)
    } else {
        Err(io::Error::other("the process that held this was killed"))
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no such file: {}", path.display()))
}

impl State {
    /// SplitMix64: small, and good enough to choose what a power cut takes.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().filter_map(|file| self.files.get(file)).map(|node| node.bytes.len() as u64).sum()
    }

    fn room_bytes(&self) -> u64 {
        match self.capacity_bytes {
            u64::MAX => u64::MAX,
            capacity => capacity.saturating_sub(self.used_bytes()),
        }
    }

    /// Counts one change; fails when [`SimDisk::fail_after`] says so.
    fn admit(&mut self) -> io::Result<()> {
        match &mut self.operations_left {
            Some(0) => Err(io::Error::other("injected failure")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn node(&mut self, file: u64) -> &mut Node {
        self.files.get_mut(&file).expect("a live handle's file is kept until the process ends")
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    fn lose_power(&mut self) {
        let mut names = std::mem::take(&mut self.durable_names);
        for change in std::mem::take(&mut self.unsynced_names) {
            if self.coin() {
                change.apply(&mut names);
            }
        }
        let mut files = std::mem::take(&mut self.files);
        let named: BTreeSet<u64> = names.values().copied().collect();
        files.retain(|file, _| named.contains(file));
        for node in files.values_mut() {
            for change in std::mem::take(&mut node.unsynced) {
                self.half_apply(change, &mut node.durable);
            }
            node.bytes.clone_from(&node.durable);
            node.same = node.bytes.len();
        }
        self.files = files;
        self.durable_names = names.clone();
        self.names = names;
    }

    /// What is left of one unsynced change.
    fn half_apply(&mut self, change: Change, bytes: &mut Vec<u8>) {
        let (offset, written) = match change {
            Change::Truncate { .. } => {
                if self.coin() {
                    change.apply(bytes);
                }
                return;
            }
            Change::Write { offset, bytes } => (offset, bytes),
        };
        match self.next() % 8 {
            0..=2 => Change::Write { offset, bytes: written }.apply(bytes),
            3 | 4 => {}
            5 => {
                let end = (offset + written.len() as u64) as usize;
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
            }
            _ => {
                let mut at = 0;
                while at < written.len() {
                    let position = offset + at as u64;
                    let room = (SECTOR_BYTES - position % SECTOR_BYTES) as usize;
                    let next = written.len().min(at + room);
                    if self.coin() {
                        Change::Write { offset: position, bytes: written[at..next].to_vec() }.apply(bytes);
                    }
                    at = next;
                }
            }
        }
    }
}

impl Change {
    fn apply(&self, target: &mut Vec<u8>) {
        match self {
            Change::Truncate { len } => target.resize(*len as usize, 0),
            Change::Write { offset, bytes } => {
                let start = *offset as usize;
                if start == target.len() {
                    return target.extend_from_slice(bytes);
                }
                let end = start + bytes.len();
                if target.len() < end {
                    target.resize(end, 0);
                }
                target[start..end].copy_from_slice(bytes);
            }
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            NameChange::Set { path, file } => {
                names.insert(path.clone(), *file);
            }
            NameChange::Rename { from, to, file } => {
                if names.get(from) == Some(file) {
                    names.remove(from);
                }
                names.insert(to.clone(), *file);
            }
            NameChange::Remove { path, file } => {
                if names.get(path) == Some(file) {
                    names.remove(path);
                }
            }
        }
    }

    fn dir(&self) -> Option<&Path> {
        match self {
            NameChange::Set { path, .. } | NameChange::Remove { path, .. } => path.parent(),
            NameChange::Rename { to, .. } => to.parent(),
        }
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state()?;
        state.admit()?;
        state.dirs.extend(dir.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn File>> {
        let mut state = self.state()?;
        let file = match (state.names.get(path).copied(), mode) {
            (Some(_), Mode::Create) => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, path.display().to_string()));
            }
            (Some(file), _) => file,
            (None, Mode::Read) => return Err(missing(path)),
            (None, _) => {
                if !path.parent().is_some_and(|dir| state.dirs.contains(dir)) {
                    return Err(missing(path));
                }
                state.admit()?;
                let file = state.next_file;
                state.next_file += 1;
                state.files.insert(file, Node::default());
                state.change_names(NameChange::Set { path: path.to_path_buf(), file });
                file
            }
        };
        Ok(Box::new(SimFile {
            shared: Arc::clone(&self.shared),
            life: self.life,
            file,
            writable: mode != Mode::Read,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state()?;
        let file = state.names.get(from).copied().ok_or_else(|| missing(from))?;
        if !to.parent().is_some_and(|dir| state.dirs.contains(dir)) {
            return Err(missing(to));
        }
        state.admit()?;
        state.change_names(NameChange::Rename { from: from.to_path_buf(), to: to.to_path_buf(), file });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state()?;
        let file = state.names.get(path).copied().ok_or_else(|| missing(path))?;
        state.admit()?;
        state.change_names(NameChange::Remove { path: path.to_path_buf(), file });
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.state()?;
        Ok(state.names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state()?;
        if !state.dirs.contains(dir) {
            return Err(missing(dir));
        }
        state.admit()?;
        let changes = std::mem::take(&mut state.unsynced_names);
        for change in changes {
            if change.dir() == Some(dir) {
                change.apply(&mut state.durable_names);
            } else {
                state.unsynced_names.push(change);
            }
        }
        Ok(())
    }
}

struct SimFile {
    shared: Arc<Mutex<State>>,
    life: u64,
    file: u64,
    writable: bool,
}

impl SimFile {
    /// The disk, if the handle is alive and may write.
    fn writable(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = live(&self.shared, self.life)?;
        if self.writable {
            Ok(state)
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading"))
        }
    }
}

impl Node {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.bytes);
        if let Change::Truncate { len } = change {
            self.same = self.same.min(len as usize);
        }
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        self.unsynced.clear();
        self.durable.truncate(self.same);
        self.durable.extend_from_slice(&self.bytes[self.same..]);
        self.same = self.bytes.len();
    }
}

impl File for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.writable()?;
        let room = state.room_bytes();
        let mut fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let mut outcome = state.admit();
        if outcome.is_err() {
            fits = (state.next() % (fits as u64 + 1)) as usize;
        } else if fits < bytes.len() {
            outcome = Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        if fits > 0 {
            let node = state.node(self.file);
            let offset = node.bytes.len() as u64;
            node.change(Change::Write { offset, bytes: bytes[..fits].to_vec() });
        }
        outcome
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = live(&self.shared, self.life)?;
        let bytes = &state.node(self.file).bytes;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let count = buf.len().min(bytes.len() - start);
        buf[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = live(&self.shared, self.life)?;
        Ok(state.node(self.file).bytes.len() as u64)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.writable()?;
        state.admit()?;
        state.node(self.file).change(Change::Truncate { len });
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = live(&self.shared, self.life)?;
        state.admit()?;
        state.node(self.file).sync();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIR: &str = "/d";

    fn disk(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk
    }

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    fn read(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
        let file = disk.open(&path(name), Mode::Read).ok()?;
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        Some(bytes)
    }

    proptest! {
        /// Whatever happens after the last sync, the synced bytes are there; a kill loses nothing at all.
        #[test]
        fn synced_data_survives(
            seed: u64,
            synced in prop::collection::vec(prop::collection::vec(1u8.., 0..1500), 0..6),
            unsynced in prop::collection::vec(prop::collection::vec(1u8.., 0..1500), 0..6),
        ) {
            let disk = disk(seed);
            let mut file = disk.open(&path("a"), Mode::Create).unwrap();
            disk.sync_dir(Path::new(DIR)).unwrap();
            for part in &synced {
                file.append(part).unwrap();
            }
            file.sync().unwrap();
            for part in &unsynced {
                file.append(part).unwrap();
            }
            let (synced, unsynced) = (synced.concat(), unsynced.concat());

            let disk = disk.kill();
            prop_assert!(file.append(b"x").is_err());
            prop_assert_eq!(read(&disk, "a").unwrap(), [synced.clone(), unsynced.clone()].concat());

            let disk = disk.power_cut();
            let left = read(&disk, "a").unwrap();
            prop_assert_eq!(&left[..synced.len()], &synced[..]);
            prop_assert!(left.len() <= synced.len() + unsynced.len());
            for (at, byte) in left[synced.len()..].iter().enumerate() {
                prop_assert!(*byte == 0 || *byte == unsynced[at], "a byte that nobody wrote there");
            }
            // Nothing is pending any more: another cut changes nothing.
            prop_assert_eq!(read(&disk.power_cut(), "a").unwrap(), left);
        }

        /// The same seed and the same operations leave the same disk.
        #[test]
        fn the_seed_decides(seed: u64) {
            let run = || {
                let disk = disk(seed);
                let mut file = disk.open(&path("a"), Mode::Append).unwrap();
                file.append(&[7; 4000]).unwrap();
                file.append(&[8; 4000]).unwrap();
                read(&disk.power_cut(), "a")
            };
            prop_assert_eq!(run(), run());
        }
    }

    /// Over many seeds each fate of an unsynced write, name and truncation occurs.
    #[test]
    fn unsynced_changes_meet_every_fate() {
        let (mut whole, mut lost, mut hole, mut torn) = (0, 0, 0, 0);
        let (mut renamed, mut kept, mut created, mut uncut) = (0, 0, 0, 0);
        for seed in 0..300 {
            let disk = disk(seed);
            let mut file = disk.open(&path("a"), Mode::Append).unwrap();
            file.append(b"base").unwrap();
            file.sync().unwrap();
            disk.sync_dir(Path::new(DIR)).unwrap();
            file.truncate(0).unwrap();
            file.append(&[b'x'; 2000]).unwrap();
            disk.open(&path("new"), Mode::Create).unwrap();
            disk.rename(&path("a"), &path("b")).unwrap();
            let disk = disk.power_cut();
            let names = disk.list(Path::new(DIR)).unwrap();
            created += usize::from(names.contains(&path("new")));
            let now_b = names.contains(&path("b"));
            assert_ne!(now_b, names.contains(&path("a")), "a rename happens wholly or not at all");
            renamed += usize::from(now_b);
            kept += usize::from(!now_b);
            let bytes = read(&disk, if now_b { "b" } else { "a" }).unwrap();
            let written = bytes.iter().filter(|byte| **byte == b'x').count();
            uncut += usize::from(bytes == b"base");
            match written {
                2000 => whole += 1,
                0 if bytes.len() == 2000 => hole += 1,
                0 => lost += 1,
                _ => torn += 1,
            }
        }
        for (what, count) in [
            ("whole", whole),
            ("lost", lost),
            ("hole", hole),
            ("torn", torn),
            ("renamed", renamed),
            ("not renamed", kept),
            ("created", created),
            ("not created", 300 - created),
            ("truncation lost", uncut),
        ] {
            assert!(count > 0, "{what} never happened");
        }
    }

    #[test]
    fn synced_names_survive() {
        for seed in 0..50 {
            let disk = disk(seed);
            for name in ["gone", "old"] {
                disk.open(&path(name), Mode::Create).unwrap();
            }
            disk.rename(&path("old"), &path("new")).unwrap();
            disk.remove(&path("gone")).unwrap();
            disk.sync_dir(Path::new(DIR)).unwrap();
            let disk = disk.power_cut();
            assert_eq!(disk.list(Path::new(DIR)).unwrap(), [path("new")]);
        }
    }

    #[test]
    fn a_full_disk_takes_what_fits() {
        let disk = disk(1);
        disk.set_capacity(10);
        let mut file = disk.open(&path("a"), Mode::Create).unwrap();
        file.append(b"1234567").unwrap();
        let error = file.append(b"abcdef").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(read(&disk, "a").unwrap(), b"1234567abc");
        file.truncate(7).unwrap();
        disk.set_capacity(100);
        file.append(b"abcdef").unwrap();
        assert_eq!(read(&disk, "a").unwrap(), b"1234567abcdef");
        disk.remove(&path("a")).unwrap();
        assert_eq!(disk.used_bytes(), 0);
    }

    #[test]
    fn failures_start_when_told_and_end_with_the_process() {
        let disk = disk(1);
        let mut file = disk.open(&path("a"), Mode::Create).unwrap();
        disk.fail_after(1);
        file.append(b"whole").unwrap();
        assert!(file.append(b"part").is_err());
        assert!(file.sync().is_err());
        assert!(disk.open(&path("b"), Mode::Create).is_err());
        let disk = disk.kill();
        assert!(read(&disk, "a").unwrap().starts_with(b"whole"));
        assert!(disk.open(&path("b"), Mode::Create).is_ok());
    }
}
