//! What a crawl archived, against what the web served.

use std::{
    collections::HashMap,
    fs,
    io::{BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context as _;
use nephila_archive::{Reader, verify};
use nephila_disk::RealDisk;
use xxhash_rust::xxh3::xxh3_64;

use super::{EXAMPLES_MAX, Outcome};
use crate::web::{
    Step, Tally, Web,
    plan::{Rule, Visit},
};

/// Checks archives with other people's tools; run by the Python that this variable names.
const SCRIPT: &str = include_str!("../../../archive/tests/check_warc.py");
const PYTHON: &str = "NEPHILA_PYTHON";
/// What must not be, of a crawl that was to archive all.
pub(super) const MISSING: &str = "expected pages that are not whole in the archive";

/// Adds the bars that every archive has to meet: all files are in order, every page that was expected is there, and every
/// answer that was sent whole is there byte for byte.
pub(super) fn check(outcome: &mut Outcome, archive: &Path, web: &Web) -> anyhow::Result<()> {
    let missing = check_all(outcome, &[archive.to_owned()], web)?;
    outcome.none(MISSING, missing.count, &missing.examples);
    Ok(())
}

/// The same of the archives of several agents together. Says which pages are not there.
pub(super) fn check_all(outcome: &mut Outcome, archives: &[PathBuf], web: &Web) -> anyhow::Result<Tally> {
    let files: Vec<Vec<PathBuf>> = archives.iter().map(|archive| files(archive)).collect::<Result<_, _>>()?;
    // An agent may have had nothing to crawl.
    let used: Vec<&PathBuf> = archives
        .iter()
        .zip(&files)
        .filter(|(_, files)| !files.is_empty())
        .map(|(archive, _)| archive)
        .collect();
    let files = files.concat();
    check_files(outcome, &files)?;
    let kept = read_responses(&files, web)?;
    check_bytes(outcome, &kept);
    used.into_iter().try_for_each(|archive| check_with_python(outcome, archive))?;
    Ok(missing(&kept, web))
}

/// The WARC files of an archive, those still open included.
pub(super) fn files(archive: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(archive).with_context(|| format!("cannot list {}", archive.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    files.retain(|path| path.to_str().is_some_and(|path| path.contains(".warc")));
    files.sort();
    Ok(files)
}

/// Every member of every file is complete and has the digests it says.
pub(super) fn check_files(outcome: &mut Outcome, files: &[PathBuf]) -> anyhow::Result<()> {
    let (mut records, mut problem_count, mut problems) = (0, 0, Vec::new());
    for path in files {
        // A full disk may not even have room for the first record of a file.
        if path.extension().is_some_and(|end| end == "open") && fs::metadata(path)?.len() == 0 {
            continue;
        }
        let report = verify(&RealDisk, path)?;
        records += report.records;
        problem_count += report.problem_count;
        let name = path.file_name().unwrap_or_default().display().to_string();
        problems.extend(
            report.problems.iter().map(|problem| format!("{name} at {}: {}", problem.offset, problem.what)),
        );
    }
    outcome.figure("warc_files", files.len());
    outcome.figure("warc_records", records);
    outcome.none("records of the archive that are damaged", problem_count, &problems);
    Ok(())
}

/// The last answer of a URL, as it was archived.
struct Kept {
    url: String,
    cut: bool,
    /// Whether it is what the web served; none if the web served nothing whole.
    right: Option<bool>,
}

/// The last response to each URL of the web, by the URL's identity.
fn read_responses(files: &[PathBuf], web: &Web) -> anyhow::Result<HashMap<u64, Kept>> {
    let served = web.digests();
    let mut kept = HashMap::new();
    for path in files {
        let mut reader = Reader::new(BufReader::with_capacity(1 << 20, fs::File::open(path)?));
        while let Some(head) = reader.next()? {
            let url = head.get("WARC-Target-URI").unwrap_or_default().to_owned();
            let Some((host, https, target)) = web.plan().locate(&url).filter(|_| head.kind() == "response")
            else {
                continue;
            };
            let key = host.resolve(https, target).key;
            let mut block = Vec::new();
            loop {
                match reader.next_piece()? {
                    [] => break,
                    piece => block.extend_from_slice(piece),
                }
            }
            let cut = head.get("WARC-Truncated").is_some();
            let right =
                served.get(&key).map(|digest| *digest == xxh3_64(&block) || is_message_of(&block, web, &url));
            kept.insert(key, Kept { url, cut, right });
        }
    }
    Ok(kept)
}

/// Whether a block is the one HTTP message in what the web sends for a URL. A few hosts send more than that: interim
/// answers (1xx) before it, and bytes beyond its length, neither of which belong into a response record.
fn is_message_of(block: &[u8], web: &Web, url: &str) -> bool {
    let Some((host, https, target)) = web.plan().locate(url) else { return false };
    let visit = Visit { host, target, attempt: 1, nth_on_connection: 1, cookie: false };
    let mut sent = Vec::new();
    for step in host.answer(&host.resolve(https, target), &visit).steps {
        if let Step::Write(bytes) = step {
            sent.extend_from_slice(&bytes);
        }
    }
    let mut message = sent.as_slice();
    while message.starts_with(b"HTTP/1.1 1") {
        let Some(end) = message.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
        message = &message[end + 4..];
    }
    message.starts_with(block) && whole_bytes(block) == Some(block.len())
}

/// How long a message is by its own length, head included.
fn whole_bytes(message: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = answer.parse(message).ok()? else { return None };
    let length = answer.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
    Some(head + std::str::from_utf8(length.value).ok()?.parse::<usize>().ok()?)
}

/// The expected pages that are not whole in the archive.
fn missing(kept: &HashMap<u64, Kept>, web: &Web) -> Tally {
    let mut missing = Tally::default();
    for host in web.plan().hosts() {
        host.expected(|page| {
            if page.rule == Rule::Expected && kept.get(&page.key).is_none_or(|kept| kept.cut) {
                missing.add(|| page.url());
            }
        });
    }
    missing
}

fn check_bytes(outcome: &mut Outcome, kept: &HashMap<u64, Kept>) {
    let compared = || kept.values().filter(|kept| !kept.cut && kept.right.is_some());
    let mut differ: Vec<String> =
        compared().filter(|kept| kept.right == Some(false)).map(|kept| kept.url.clone()).collect();
    differ.sort();
    outcome.figure("answers_compared", compared().count());
    outcome.none("answers that differ from what was served", differ.len() as u64, &differ);
}

fn check_with_python(outcome: &mut Outcome, archive: &Path) -> anyhow::Result<()> {
    let Some(python) = std::env::var_os(PYTHON) else {
        outcome.figure("other_tools", format!("skipped: {PYTHON} is not set"));
        return Ok(());
    };
    let mut child = Command::new(&python)
        .arg("-")
        .arg(archive)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", python.display()))?;
    // The pipe is closed at the end of this statement, so that the script begins.
    child.stdin.take().context("the pipe that was asked for")?.write_all(SCRIPT.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    let last = lines.last().cloned().unwrap_or_default();
    outcome.bar("warcio and cdxj-indexer agree", "0 failed", last, output.status.success());
    if let Some(bar) = outcome.bars.last_mut().filter(|bar| !bar.met) {
        bar.examples = lines.into_iter().take(EXAMPLES_MAX).collect();
    }
    Ok(())
}
