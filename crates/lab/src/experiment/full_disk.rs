//! A disk that is too small: a clear stop, nothing torn, and on it goes when there is room.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nephila_node::directory;

use super::{
    Outcome, Setup, archive,
    crawler::Crawler,
    hostile::judge,
    journal::{Journal, Repeats},
    serve,
};
use crate::web::{PageBytes, WebConfig};

const EXPERIMENT: &str = "full-disk";
const RUN_MAX: Duration = Duration::from_secs(300);
const DELAY: Duration = Duration::from_millis(5);
const PAGE_BYTES: u32 = 16_000;
const DISK_FULL_CODE: i32 = 4;
const DISK_KB_LATER: u32 = 256 << 10;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct FullDiskOptions {
    /// The web follows from this.
    pub seed: u64,
    /// How large the disk is at first; the crawl needs about 25 MB.
    pub disk_kb: u32,
}

impl Default for FullDiskOptions {
    fn default() -> FullDiskOptions {
        FullDiskOptions { seed: 1, disk_kb: 4_096 }
    }
}

/// A small file system in memory; unmounted when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(dir: &Path, kb: u32) -> Option<SmallDisk> {
        mount(&["-t", "tmpfs", "-o", &format!("size={kb}k"), "tmpfs"], dir).then(|| SmallDisk(dir.to_owned()))
    }

    fn resize(&self, kb: u32) -> bool {
        mount(&["-o", &format!("remount,size={kb}k")], &self.0)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // If this fails the directory cannot be removed either, and that is reported.
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

fn mount(options: &[&str], dir: &Path) -> bool {
    Command::new("mount").args(options).arg(dir).output().is_ok_and(|output| output.status.success())
}

/// A crawl on a disk that is full before it is done.
pub fn full_disk(setup: &Setup, options: &FullDiskOptions) -> anyhow::Result<Outcome> {
    let place = setup.place()?;
    let mounted = place.path().join("disk");
    std::fs::create_dir(&mounted)?;
    let Some(disk) = SmallDisk::mount(&mounted, options.disk_kb) else {
        return Ok(Outcome::skipped(EXPERIMENT, "cannot mount a tmpfs"));
    };
    let mut outcome = Outcome::new(EXPERIMENT);
    let web = serve(WebConfig {
        seed: options.seed,
        hosts: 10,
        pages: 200,
        kinds: "plain".parse()?,
        latency_ms: (0, 2),
        page_bytes: PageBytes::Fixed(PAGE_BYTES),
        delay_ms: DELAY.as_millis() as u64,
        ip_delay_ms: 0,
        ..WebConfig::default()
    })?;
    let crawler = Crawler::new(setup, place.path(), "crawl", &web)?
        .in_directory(mounted.join("crawl"))
        .with_span("delay", DELAY)
        .with("ip-delay", "0s")
        .with("warc-size", "1MB");
    setup.say(crawler.command_line());
    let (mut settled, mut repeats, mut again) = (HashSet::new(), Repeats::default(), Vec::new());
    for (run, has_begun) in [("on the small disk", true), ("while it is still full", false)] {
        let ended = crawler.run(RUN_MAX)?;
        again.extend(repeats.of_settled(&web, &settled));
        setup.say(format!("{run}: exit code {}, {}", ended.code, ended.reason()));
        outcome.equal(format!("exit code {run}"), DISK_FULL_CODE, ended.code);
        // Where there was no room even to begin, there is no summary that could give a reason.
        if has_begun {
            outcome.equal(format!("stop reason {run}"), "disk-full", ended.reason());
        }
        let journal = Journal::read(&crawler.out)?;
        outcome.equal(format!("torn bytes of the journal {run}"), 0, journal.torn_bytes);
        let not_whole = journal.not_whole(&crawler.out, 0);
        outcome.none(format!("counted pages not whole {run}"), not_whole.len() as u64, &not_whole);
        archive::check_files(&mut outcome, &archive::files(&directory::archive(&crawler.out))?)?;
        settled = journal.settled;
    }
    outcome.figure("pages_before_the_disk_was_full", settled.len());
    anyhow::ensure!(disk.resize(DISK_KB_LATER), "cannot make the tmpfs larger");
    let ended = crawler.run(RUN_MAX)?;
    setup.say(format!("with room: exit code {}, {}", ended.code, ended.reason()));
    outcome.equal("stop reason with room", "finished", ended.reason());
    // What could not be written is fetched again; what was settled is not.
    again.extend(repeats.of_settled(&web, &settled));
    outcome.none("settled pages fetched again", again.len() as u64, &again);
    outcome.figure("fetched_again_because_not_written", repeats.count);
    judge(&mut outcome, &web.verdict());
    archive::check(&mut outcome, &directory::archive(&crawler.out), &web)?;
    Ok(outcome)
}
