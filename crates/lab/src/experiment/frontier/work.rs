//! The process that works on a frontier, one phase at a time, and says how it goes.

use std::{
    collections::VecDeque,
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nephila_core::{
    agent::Due,
    assign::partition_of,
    limits::MOVED_URLS_MAX,
    record::{Found, How, LeftOut, Outcome as End, PageFlags, Pointer, Record, Settled},
    time::Wall,
    url::Host,
};
use nephila_disk::{Disk, RealDisk};
use nephila_node::config::Config;
use nephila_store::{
    LogReader,
    frontier::{Frontier, FrontierOptions, Range, SnapshotDone, Texts},
    history::shorten,
    log::Log,
};

use super::{
    Drained, Mark, Moved, Report,
    links::{Links, host_name, url},
};
use crate::experiment::process::{process_cpu, rss_bytes, rss_max_bytes, thread_cpu};

const LOG_SEGMENT_BYTES: u64 = 64 << 20;
/// Pages between two flushes.
const BATCH_PAGES: usize = 1_000;
/// URLs that are taken of a host at a time.
const TAKEN: usize = 16;
/// Hosts that are asked for URLs before a batch goes with those it has.
const TRIES_MAX: usize = 3_000;
const SEED_HOSTS: u64 = 100;
/// Later than everything that waits.
const LATE: Wall = Wall(1 << 41);
/// Marks at these leading digits of powers of ten.
const MARKS: [u64; 3] = [1, 2, 5];
/// URLs that are found again closer to a seed.
const GROWN: u64 = 100_000;

/// What to do.
#[derive(Clone, Debug)]
pub struct WorkOptions {
    /// `fill`, `open` or `use`.
    pub phase: String,
    /// Where.
    pub dir: PathBuf,
    /// As in [`super::FrontierExperiment`].
    pub urls: u64,
    /// As in [`super::FrontierExperiment`].
    pub seed: u64,
    /// As in [`super::FrontierExperiment`].
    pub drained: u64,
}

/// Works, and prints a line of JSON for each thing that is done.
pub fn frontier_work(options: &WorkOptions) -> anyhow::Result<()> {
    // Whoever started this closes its input when it is where it should be.
    std::io::stdin().read_to_end(&mut Vec::new()).context("cannot wait for the start")?;
    let begun = Instant::now();
    let mut work = Work::open(options, begun)?;
    match options.phase.as_str() {
        "fill" => work.fill(options),
        "open" => work.open_again(begun),
        "use" => work.use_it(options, begun),
        other => bail!("{other:?} is no phase"),
    }
}

fn say(report: &Report) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

struct Journal(LogReader);

impl Texts for Journal {
    fn found(&self, place: u64, index: usize) -> nephila_store::Result<Found> {
        let mut payload = Vec::new();
        self.0.read(place, &mut payload)?;
        let record = decode(&payload);
        let found = record.as_ref().and_then(|record| record.found().get(index));
        found.cloned().ok_or(nephila_store::Error::Corrupt {
            path: "journal".into(),
            place,
            what: "no such URL",
        })
    }
}

fn decode(payload: &[u8]) -> Option<Record> {
    postcard::from_bytes(payload).ok()
}

/// The longest call, by the clock on the wall and by the processor's.
#[derive(Default)]
struct Pause {
    wall: Duration,
    cpu: Duration,
}

impl Pause {
    fn watch<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let (began, cpu) = (Instant::now(), thread_cpu());
        let result = call();
        self.wall = self.wall.max(began.elapsed());
        self.cpu = self.cpu.max(thread_cpu().saturating_sub(cpu));
        result
    }
}

struct Work {
    dir: PathBuf,
    frontier: Frontier,
    log: Log,
    snapshot: Option<JoinHandle<nephila_store::Result<SnapshotDone>>>,
    /// The place of the last snapshot, and after how many bytes the next one follows, as in a crawl.
    snapshot_at: u64,
    snapshot_bytes: u64,
    synced: Instant,
    pause: Pause,
    begun: Instant,
}

impl Work {
    fn open(options: &WorkOptions, begun: Instant) -> anyhow::Result<Work> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let dir = options.dir.clone();
        let texts = Box::new(Journal(LogReader::new(Arc::clone(&disk), &dir)));
        let settings = FrontierOptions { secret: options.seed, ..FrontierOptions::default() };
        let (mut frontier, _) = Frontier::open(Arc::clone(&disk), &dir, settings, texts)?;
        let log = Log::open(&disk, &dir, frontier.place(), LOG_SEGMENT_BYTES, &mut |place, payload| {
            if let Some(record) = decode(payload) {
                fold(&mut frontier, place, &record)?;
            }
            Ok(())
        })?;
        frontier.advance(log.end());
        let snapshot_at = log.end();
        Ok(Work {
            dir,
            frontier,
            log,
            snapshot: None,
            snapshot_at,
            snapshot_bytes: Config::default().snapshot_bytes,
            synced: begun,
            pause: Pause::default(),
            begun,
        })
    }

    /// Fills it until enough is known, and then waits to be killed.
    fn fill(&mut self, options: &WorkOptions) -> anyhow::Result<()> {
        let mut links = Links::new(options.seed, options.urls);
        let seeds = (0..SEED_HOSTS.min(links.hosts())).map(|host| links.fresh(host, 0)).collect();
        self.write(&[Record::Seeds(seeds)])?;
        let mut next_mark = first_mark(options.urls);
        let mut since = Since::now(&self.frontier);
        while self.frontier.known_urls() < options.urls {
            let began = process_cpu();
            let due = self.take_batch(&mut links)?;
            since.cpu += process_cpu() - began;
            // Making the links up is no work of the frontier's.
            let records: Vec<Record> =
                due.into_iter().map(|due| page(due.url.into(), links.page())).collect();
            let began = process_cpu();
            self.write(&records)?;
            since.cpu += process_cpu() - began;
            if self.frontier.known_urls() >= next_mark {
                say(&Report::Mark(self.mark(&mut since, &links)?))?;
                next_mark = mark_after(next_mark);
            }
        }
        // The text of what is known is needed by the phases to come, which make up no links.
        fs::write(self.dir.join("text-bytes"), links.text_bytes.to_string())?;
        say(&Report::Filled { generated: links.generated })?;
        std::thread::sleep(Duration::from_secs(60));
        bail!("nobody killed it")
    }

    fn take_batch(&mut self, links: &mut Links) -> anyhow::Result<VecDeque<Due>> {
        let mut due = VecDeque::new();
        for tries in 0.. {
            if due.len() >= BATCH_PAGES || tries >= TRIES_MAX && !due.is_empty() {
                break;
            }
            let host = host_name(links.host()).context("not a host")?;
            let (frontier, pause) = (&mut self.frontier, &mut self.pause);
            due.extend(pause.watch(|| frontier.take(&host, TAKEN, false, LATE))?.due);
        }
        Ok(due)
    }

    /// Writes records, and folds them in once they are durable.
    fn write(&mut self, records: &[Record]) -> anyhow::Result<()> {
        let (log, pause) = (&mut self.log, &mut self.pause);
        let sync = self.synced.elapsed() >= Duration::from_secs(1);
        let places = pause.watch(|| {
            let places: nephila_store::Result<Vec<u64>> = records
                .iter()
                .map(|record| {
                    log.append(|out| {
                        postcard::to_io(record, out).map(drop).map_err(nephila_store::Error::Encode)
                    })
                })
                .collect();
            if sync { log.sync() } else { log.flush() }?;
            places
        })?;
        if sync {
            self.synced = Instant::now();
        }
        for (record, place) in records.iter().zip(places) {
            self.pause.watch(|| fold(&mut self.frontier, place, record))?;
        }
        self.frontier.advance(self.log.end());
        self.snapshot_if_due()
    }

    fn snapshot_if_due(&mut self) -> anyhow::Result<()> {
        let (frontier, log, pause) = (&mut self.frontier, &mut self.log, &mut self.pause);
        if let Some(thread) = self.snapshot.take_if(|thread| thread.is_finished()) {
            let done = joined(thread)?;
            pause.watch(|| frontier.end_snapshot(done))?;
        }
        if self.snapshot.is_none() && log.end() - self.snapshot_at > self.snapshot_bytes {
            let job = pause.watch(|| frontier.begin_snapshot(&[]))?;
            self.snapshot_at = log.end();
            let dir = self.dir.clone();
            self.snapshot = Some(std::thread::spawn(move || {
                let done = job.run()?;
                shorten(&RealDisk, &dir, done.needed, &without_links)?;
                Ok(done)
            }));
        }
        Ok(())
    }

    /// Writes everything down and lets go of what is not needed.
    fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(thread) = self.snapshot.take() {
            self.frontier.end_snapshot(joined(thread)?)?;
        }
        self.log.sync()?;
        // Twice: the first one makes the second one's room.
        self.frontier.snapshot(&[])?;
        let needed = self.frontier.snapshot(&[])?;
        shorten(&RealDisk, &self.dir, needed, &without_links)?;
        let text_bytes = fs::read_to_string(self.dir.join("text-bytes"))?.parse()?;
        say(&Report::Stopped { disk_bytes: dir_bytes(&self.dir)?, text_bytes })
    }

    /// Says when the first URL came, decides everything, and stops in order.
    fn open_again(&mut self, begun: Instant) -> anyhow::Result<()> {
        self.first_url(begun)?;
        self.frontier.decide()?;
        let (known, settled) = (self.frontier.known_urls(), self.frontier.settled_urls());
        say(&Report::Decided { known, settled })?;
        self.stop()
    }

    fn first_url(&mut self, begun: Instant) -> anyhow::Result<()> {
        let host = host_name(0).context("not a host")?;
        let taken = self.frontier.take(&host, 1, false, LATE)?;
        anyhow::ensure!(!taken.due.is_empty(), "nothing is due");
        say(&Report::Opened { after_s: begun.elapsed().as_secs_f64() })?;
        Ok(self.frontier.put_back(&host, &taken.due)?)
    }

    fn use_it(&mut self, options: &WorkOptions, begun: Instant) -> anyhow::Result<()> {
        self.first_url(begun)?;
        let hosts = Links::new(options.seed, options.urls).hosts();
        self.grow(hosts)?;
        let small = host_name(hosts / 100).context("not a host")?;
        let large = host_name(2).context("not a host")?;
        let partition = partition_of(&host_name(hosts / 50).context("not a host")?);
        for (what, range) in [
            ("small_host", Range::Host(small)),
            ("large_host", Range::Host(large)),
            ("partition", Range::Partition(partition)),
        ] {
            self.move_out(what, &range)?;
        }
        self.drain(options.drained, hosts)
    }

    /// Finds URLs again, closer to a seed than before.
    fn grow(&mut self, hosts: u64) -> anyhow::Result<()> {
        let mut known = Vec::new();
        for host in 0..hosts.min(1_000) {
            let name = host_name(host).context("not a host")?;
            self.frontier.hosts(&Range::Host(name), &mut |stored| known.push((host, stored.known)))?;
        }
        let began = process_cpu();
        let mut urls = 0;
        while urls < GROWN && !known.is_empty() {
            let found = (0..10).map(|turn| {
                let (host, count) = known[(urls + turn) as usize % known.len()];
                let number = (urls / known.len() as u64) % count.max(1);
                Found { url: url(host, number), depth: 1, how: How::Link, redirects: 0 }
            });
            let record = Record::Seeds(found.collect());
            self.write(&[record])?;
            urls += 10;
        }
        self.frontier.decide()?;
        say(&Report::Grown { urls, cpu_s: (process_cpu() - began).as_secs_f64() })
    }

    fn move_out(&mut self, what: &str, range: &Range) -> anyhow::Result<()> {
        let before = self.frontier.usage();
        let began = Instant::now();
        let (mut urls, mut waiting, mut text) = (0, 0, 0);
        let ranges = [range.clone()];
        let mut from = None;
        loop {
            let (moved, next) = self.frontier.export(&ranges, from.as_ref(), MOVED_URLS_MAX, &|_, _| None)?;
            urls += moved.hosts.iter().map(|host| host.seen.len() as u64).sum::<u64>();
            waiting += moved.found.len() as u64;
            text += moved.found.iter().map(|found| found.url.len() as u64).sum::<u64>();
            from = next;
            if from.is_none() {
                break;
            }
        }
        urls += waiting;
        self.frontier.forget(&ranges)?;
        let after = self.frontier.usage();
        say(&Report::Moved(Moved {
            what: what.to_owned(),
            urls,
            waiting,
            took_s: began.elapsed().as_secs_f64(),
            read_bytes: after.read_bytes - before.read_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
            own_bytes: 20 * urls + text,
        }))
    }

    /// Hands URLs over and settles them, host by host, without finding any more.
    fn drain(&mut self, drained: u64, hosts: u64) -> anyhow::Result<()> {
        let (began, before) = (process_cpu(), self.frontier.usage());
        let mut urls = 0;
        for host in (0..hosts).cycle().take(3 * hosts as usize) {
            if urls >= drained {
                break;
            }
            let host: Host = host_name(host).context("not a host")?;
            let taken = self.frontier.take(&host, 4 * TAKEN, false, LATE)?;
            let records: Vec<Record> =
                taken.due.into_iter().map(|due| page(due.url.into(), Vec::new())).collect();
            urls += records.len() as u64;
            self.write(&records)?;
        }
        let cpu = (process_cpu() - began).as_secs_f64();
        let usage = self.frontier.usage();
        let read_bytes = usage.read_bytes - before.read_bytes;
        self.stop()?;
        say(&Report::Drained(Drained {
            urls,
            cpu_us_per_url: cpu * 1e6 / urls.max(1) as f64,
            read_bytes_per_url: read_bytes as f64 / urls.max(1) as f64,
            disk_bytes_before: usage.disk_bytes,
            disk_bytes: self.frontier.usage().disk_bytes,
        }))
    }

    fn mark(&mut self, since: &mut Since, links: &Links) -> anyhow::Result<Mark> {
        let (usage, known) = (self.frontier.usage(), self.frontier.known_urls());
        let urls = (known - since.known).max(1) as f64;
        let pause = std::mem::take(&mut self.pause);
        let mark = Mark {
            known,
            settled: self.frontier.settled_urls(),
            cpu_us_per_url: since.cpu.as_secs_f64() * 1e6 / urls,
            read_bytes_per_url: (usage.read_bytes - since.read_bytes) as f64 / urls,
            written_bytes_per_url: (usage.written_bytes + self.log.end() - since.written_bytes) as f64 / urls,
            rss_bytes: rss_bytes(std::process::id())?,
            rss_max_bytes: rss_max_bytes(std::process::id())?,
            disk_bytes: dir_bytes(&self.dir)?,
            text_bytes: links.text_bytes,
            pause_s: pause.wall.as_secs_f64(),
            pause_cpu_s: pause.cpu.as_secs_f64(),
            wall_s: self.begun.elapsed().as_secs_f64(),
        };
        *since = Since {
            known,
            read_bytes: usage.read_bytes,
            written_bytes: usage.written_bytes + self.log.end(),
            cpu: Duration::ZERO,
        };
        Ok(mark)
    }
}

/// What had been done at the last mark.
struct Since {
    known: u64,
    read_bytes: u64,
    written_bytes: u64,
    cpu: Duration,
}

impl Since {
    fn now(frontier: &Frontier) -> Since {
        Since { known: frontier.known_urls(), read_bytes: 0, written_bytes: 0, cpu: Duration::ZERO }
    }
}

fn fold(frontier: &mut Frontier, place: u64, record: &Record) -> nephila_store::Result<()> {
    if let Record::Settled(settled) = record {
        frontier.settle(place, settled)?;
    }
    frontier.admit(place, record, None).map(drop)
}

/// What is kept of a record when it is only looked back at.
fn without_links(payload: &[u8], out: &mut Vec<u8>) {
    let Some(mut record) = decode(payload) else { return };
    match &mut record {
        Record::Settled(settled) => settled.found.clear(),
        Record::Seeds(found) => found.clear(),
        _ => {}
    }
    // Writing to memory does not fail.
    let _ = postcard::to_io(&record, out);
}

fn joined(thread: JoinHandle<nephila_store::Result<SnapshotDone>>) -> anyhow::Result<SnapshotDone> {
    match thread.join() {
        Ok(done) => Ok(done?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The record of a page that was fetched.
fn page(url: String, found: Vec<Found>) -> Record {
    Record::Settled(Settled {
        url,
        depth: 1,
        how: How::Link,
        found_in: 0,
        attempts: 1,
        asked: true,
        at: Wall(1 << 40),
        took: Duration::from_millis(70),
        bytes: 16_000,
        outcome: End::Answered { status: 200 },
        capture: Some(Pointer { shard: 0, file: 300, offset: 1 << 28, length: 5_000 }),
        flags: PageFlags::default(),
        found,
        left_out: LeftOut { scope: 3, ..LeftOut::default() },
        spent: None,
    })
}

/// The first mark worth setting.
fn first_mark(urls: u64) -> u64 {
    let mut mark = 1;
    while mark * 1_000 < urls {
        mark = mark_after(mark);
    }
    mark
}

fn mark_after(mark: u64) -> u64 {
    let power = 10u64.pow(mark.ilog10());
    MARKS.iter().map(|digit| digit * power).find(|next| *next > mark).unwrap_or(10 * power)
}

fn dir_bytes(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        // A snapshot may be renamed meanwhile.
        bytes += entry?.metadata().map_or(0, |metadata| metadata.len());
    }
    Ok(bytes)
}
