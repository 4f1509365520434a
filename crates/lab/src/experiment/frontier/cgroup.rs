//! A memory cgroup, of either version, for as long as an experiment needs it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

/// Removed when it goes; what was in it must have ended.
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes a group whose processes, with the pages they read and write, get at most this much memory.
    pub(super) fn make(memory_bytes: u64) -> anyhow::Result<Cgroup> {
        let name = format!("nephila-lab-{}", std::process::id());
        let (parent, limit) = match own_group()? {
            Version::One(path) => (path, "memory.limit_in_bytes"),
            Version::Two(path) => (path, "memory.max"),
        };
        let dir = parent.join(name);
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let cgroup = Cgroup(dir);
        let file = cgroup.0.join(limit);
        fs::write(&file, memory_bytes.to_string())
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(cgroup)
    }

    /// Puts a process into it.
    pub(super) fn add(&self, pid: u32) -> anyhow::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).context("cannot limit its memory")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // One that cannot be removed is empty and takes nothing.
        let _ = fs::remove_dir(&self.0);
    }
}

enum Version {
    One(PathBuf),
    Two(PathBuf),
}

/// The memory cgroup that this process is in.
fn own_group() -> anyhow::Result<Version> {
    let groups = fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
    let own = |controller: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers
                .split(',')
                .any(|one| one == controller)
                .then(|| path.trim_start_matches('/').to_owned())
        })
    };
    if let Some(path) = own("memory") {
        return Ok(Version::One(nearest(Path::new("/sys/fs/cgroup/memory"), &path)));
    }
    let root = Path::new("/sys/fs/cgroup");
    let path = own("").context("there are no cgroups")?;
    let dir = nearest(root, &path);
    let controllers = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    if !controllers.split_whitespace().any(|one| one == "memory") {
        bail!("{} does not hand the memory controller on", dir.display());
    }
    Ok(Version::Two(dir))
}

/// The group, or the root where the group cannot be seen from in here.
fn nearest(root: &Path, path: &str) -> PathBuf {
    let dir = root.join(path);
    if dir.is_dir() { dir } else { root.to_owned() }
}
