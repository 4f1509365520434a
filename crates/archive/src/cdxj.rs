//! The index: one line a response, `KEY TIMESTAMP {json}`, sorted bytewise (C locale).
//!
//! Keys and fields are those that the indexers of other archives write for the same records, down to the odd ones: a
//! status or type is taken from the head as it is, and missing fields are left out. Lines are ASCII.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::{self, Write as _};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_disk::{Cursor, Disk, File, Mode};
use serde::Deserialize;

use crate::error::Error;
use crate::name::FileName;
use crate::record::RECORD_END;
use crate::surt::surt;

/// The longest line that is read. Ours are far shorter, since URLs are.
pub(crate) const LINE_BYTES_MAX: usize = 256 << 10;
/// How many bytes of lines an index keeps in memory before it writes them out as a sorted run.
const RUN_BYTES_MAX: usize = 4 << 20;
/// How many files are merged at once; more are merged in rounds.
const MERGE_FILES_MAX: usize = 64;
/// How much of a file is read or written at once.
const BUFFER_BYTES: usize = 64 << 10;

/// One line of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdxLine {
    /// The URL's sort key ([`surt`]).
    pub key: String,
    /// When it was captured: `YYYYMMDDhhmmss`, UTC.
    pub timestamp: String,
    /// The URL as fetched.
    pub url: String,
    /// The media type that the response named, without parameters.
    pub mime: Option<String>,
    /// The status of the response.
    pub status: Option<String>,
    /// The digest of the payload.
    pub digest: Option<String>,
    /// How many bytes of the WARC file the record takes (if it is not compressed, without the empty lines after it).
    pub length: u64,
    /// Where it starts.
    pub offset: u64,
    /// The name of the WARC file.
    pub filename: String,
}

#[derive(Deserialize)]
struct Json {
    url: String,
    mime: Option<String>,
    status: Option<String>,
    digest: Option<String>,
    length: String,
    offset: String,
    filename: String,
}

impl CdxLine {
    /// The line of a response record. `date` is the record's `WARC-Date`, `head` starts with the head of the response.
    pub(crate) fn new(
        url: &str,
        date: &str,
        head: &[u8],
        digest: Option<&str>,
        place: (&str, u64, u64),
    ) -> CdxLine {
        let (filename, offset, length) = place;
        let (status, mime) = status_and_mime(head);
        CdxLine {
            key: surt(url),
            timestamp: date.chars().filter(char::is_ascii_digit).take(14).collect(),
            url: url.to_owned(),
            mime,
            status,
            digest: digest.map(str::to_owned),
            length,
            offset,
            filename: filename.to_owned(),
        }
    }

    /// The length that the index gives for a record that takes so many bytes of this file. Of a plain record other
    /// indexers do not count the empty lines after it.
    pub(crate) fn length_of(record_bytes: u64, filename: &str) -> u64 {
        if filename.ends_with(".warc") {
            record_bytes.saturating_sub(RECORD_END.len() as u64)
        } else {
            record_bytes
        }
    }

    /// Reads a line, with or without its line end. `None` if it is not CDXJ, or lacks what points to a record.
    pub fn parse(line: &[u8]) -> Option<CdxLine> {
        let line = std::str::from_utf8(line).ok()?;
        let mut parts = line.trim_end_matches(['\r', '\n']).splitn(3, ' ');
        let (key, timestamp, json) = (parts.next()?, parts.next()?, parts.next()?);
        let json: Json = serde_json::from_str(json).ok()?;
        Some(CdxLine {
            key: key.to_owned(),
            timestamp: timestamp.to_owned(),
            url: json.url,
            mime: json.mime,
            status: json.status,
            digest: json.digest,
            length: json.length.parse().ok()?,
            offset: json.offset.parse().ok()?,
            filename: json.filename,
        })
    }
}

/// The line without its line end.
impl fmt::Display for CdxLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for text in [&self.key, " ", &self.timestamp, " {\"url\": "] {
            out.write_str(text)?;
        }
        Ascii(&self.url).fmt(out)?;
        let optional = [
            (", \"mime\": ", &self.mime),
            (", \"status\": ", &self.status),
            (", \"digest\": ", &self.digest),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                out.write_str(name)?;
                Ascii(value).fmt(out)?;
            }
        }
        write!(out, ", \"length\": \"{}\", \"offset\": \"{}\"", self.length, self.offset)?;
        write!(out, ", \"filename\": {}}}", Ascii(&self.filename))
    }
}

/// A JSON string in ASCII.
struct Ascii<'a>(&'a str);

impl fmt::Display for Ascii<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // To its end, without a way out: that is a few instructions for many bytes.
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') & !matches!(byte, b'"' | b'\\');
        if self.0.bytes().fold(true, |plain, byte| plain & is_plain(byte)) {
            return ["\"", self.0, "\""].into_iter().try_for_each(|text| out.write_str(text));
        }
        let quoted = serde_json::to_string(self.0).map_err(|_| fmt::Error)?;
        for char in quoted.chars() {
            if (' '..='~').contains(&char) {
                write!(out, "{char}")?;
            } else {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

/// Status and media type, read from a head without asking whether it is valid.
fn status_and_mime(head: &[u8]) -> (Option<String>, Option<String>) {
    let mut lines = head.split(|byte| *byte == b'\n').map(text);
    let first = lines.next().unwrap_or_default();
    let after = first.trim_end().split_once(' ').map_or("", |(_, rest)| rest.trim());
    let mut any = false;
    let mut media_type: Option<String> = None;
    // Whether there was a line above, and whether it was part of the type.
    let mut above = None;
    for line in lines {
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(of_type) = above
            && line.starts_with([' ', '\t'])
        {
            // A folded line shares the fate of the line above it.
            if let Some(value) = media_type.as_mut().filter(|_| of_type) {
                value.push_str(line);
            }
            continue;
        }
        above = Some(false);
        let Some((name, value)) = line.split_once(':') else { continue };
        any = true;
        if media_type.is_none() && name.trim_end_matches([' ', '\t']).eq_ignore_ascii_case("content-type") {
            media_type = Some(value.trim_start().to_owned());
            above = Some(true);
        }
    }
    if after.is_empty() && !any {
        return (None, None);
    }
    let status = after.split(' ').next().unwrap_or_default().to_owned();
    let mime = media_type.map(|value| {
        value.split(|char: char| char == ';' || char.is_whitespace()).next().unwrap_or_default().to_owned()
    });
    (Some(status), mime)
}

/// Header bytes as text: UTF-8, or else Latin-1.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Collects the lines of one WARC file in bounded memory and writes them sorted.
///
/// Nothing of it needs to survive a crash: the WARC file says it all.
pub(crate) struct IndexBuilder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// All lines, one after the other as they came, and where each is.
    text: String,
    lines: Vec<Range<usize>>,
    runs: Vec<PathBuf>,
    finished: bool,
}

impl IndexBuilder {
    /// An index that will be at `path`.
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf) -> IndexBuilder {
        let (text, lines, runs) = (String::new(), Vec::new(), Vec::new());
        IndexBuilder { disk, path, text, lines, runs, finished: false }
    }

    /// Makes sure that there is memory for the next line. Apart from `push` so that the caller can fail before it wrote
    /// the record.
    pub(crate) fn make_room(&mut self) -> Result<(), Error> {
        if self.text.len() < RUN_BYTES_MAX {
            return Ok(());
        }
        self.spill()
    }

    pub(crate) fn push(&mut self, line: &CdxLine) {
        debug_assert!(!self.finished, "a finished index takes no lines");
        let start = self.text.len();
        writeln!(self.text, "{line}").expect("writing to a string cannot fail");
        self.lines.push(start..self.text.len());
    }

    fn spill(&mut self) -> Result<(), Error> {
        let run = with_suffix(&self.path, &format!("run{}", self.runs.len()));
        self.write_lines(&run)?;
        self.runs.push(run);
        self.lines.clear();
        self.text.clear();
        Ok(())
    }

    fn write_lines(&mut self, path: &Path) -> Result<(), Error> {
        let text = self.text.as_bytes();
        self.lines.sort_unstable_by(|one, other| text[one.clone()].cmp(&text[other.clone()]));
        let mut out = Out::create(&*self.disk, path)?;
        for line in &self.lines {
            out.write(&text[line.clone()])?;
        }
        out.finish()
    }

    /// Writes the index, durably but for its name. May be called again, whether it failed or not.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if self.finished {
            return Ok(());
        }
        if self.runs.is_empty() {
            let temporary = with_suffix(&self.path, "tmp");
            self.write_lines(&temporary)?;
            rename(&*self.disk, &temporary, &self.path)?;
        } else {
            if !self.lines.is_empty() {
                self.spill()?;
            }
            merge_files(&*self.disk, self.runs.clone(), &self.path)?;
        }
        self.finished = true;
        for run in self.runs.drain(..) {
            // A run that stays is found and removed at the next start.
            let _ = self.disk.remove(&run);
        }
        Ok(())
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn rename(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), Error> {
    disk.rename(from, to).map_err(Error::io("rename", from))
}

/// Merges the indexes of all finished WARC files of a directory into one sorted index, replacing the file at `out` in
/// one step. Returns how many lines it has.
pub fn merge(disk: &dyn Disk, dir: &Path, out: &Path) -> Result<u64, Error> {
    let mut files = disk.list(dir).map_err(Error::io("list", dir))?;
    files.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(FileName::is_index));
    let lines = merge_files(disk, files, out)?;
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    disk.sync_dir(parent).map_err(Error::io("sync", parent))?;
    Ok(lines)
}

fn merge_files(disk: &dyn Disk, files: Vec<PathBuf>, out: &Path) -> Result<u64, Error> {
    let mut waiting = VecDeque::from(files);
    let mut rounds = Vec::new();
    while waiting.len() > MERGE_FILES_MAX {
        let some: Vec<PathBuf> = waiting.drain(..MERGE_FILES_MAX).collect();
        let round = with_suffix(out, &format!("runm{}", rounds.len()));
        merge_some(disk, &some, &round)?;
        waiting.push_back(round.clone());
        rounds.push(round);
    }
    let temporary = with_suffix(out, "tmp");
    let lines = merge_some(disk, waiting.make_contiguous(), &temporary)?;
    rename(disk, &temporary, out)?;
    for round in rounds {
        disk.remove(&round).map_err(Error::io("remove", &round))?;
    }
    Ok(lines)
}

fn merge_some(disk: &dyn Disk, files: &[PathBuf], out: &Path) -> Result<u64, Error> {
    let mut sources = Vec::new();
    let mut heads = BinaryHeap::new();
    for path in files {
        let mut source = Lines::open(disk, path)?;
        if let Some(line) = source.next()? {
            heads.push(Reverse((line, sources.len())));
        }
        sources.push(source);
    }
    let mut merged = Out::create(disk, out)?;
    let mut count = 0;
    while let Some(Reverse((line, source))) = heads.pop() {
        merged.write(&line)?;
        count += 1;
        if let Some(next) = sources[source].next()? {
            heads.push(Reverse((next, source)));
        }
    }
    merged.finish()?;
    Ok(count)
}

/// The lines of a file.
struct Lines {
    path: PathBuf,
    reader: BufReader<Cursor>,
}

impl Lines {
    fn open(disk: &dyn Disk, path: &Path) -> Result<Lines, Error> {
        let file = disk.open(path, Mode::Read).map_err(Error::io("open", path))?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(file, 0));
        Ok(Lines { path: path.to_path_buf(), reader })
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX as u64);
        limited.read_until(b'\n', &mut line).map_err(Error::io("read", &self.path))?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) => Err(Error::Index { path: self.path.clone() }),
        }
    }
}

/// A file being written in larger pieces.
struct Out {
    path: PathBuf,
    file: Box<dyn File>,
    buffer: Vec<u8>,
}

impl Out {
    /// Starts anew, whatever had that name.
    fn create(disk: &dyn Disk, path: &Path) -> Result<Out, Error> {
        let mut file = disk.open(path, Mode::Append).map_err(Error::io("create", path))?;
        file.truncate(0).map_err(Error::io("empty", path))?;
        Ok(Out { path: path.to_path_buf(), file, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.file.append(&self.buffer).map_err(Error::io("write", &self.path))?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Error> {
        self.file.append(&self.buffer).map_err(Error::io("write", &self.path))?;
        self.file.sync().map_err(Error::io("sync", &self.path))
    }
}

/// All captures of a URL that the given sorted index files know, by key: spellings that share a key are found together.
/// Each file is searched by halving, so that its size hardly matters.
pub fn lookup(disk: &dyn Disk, files: &[PathBuf], url: &str) -> Result<Vec<CdxLine>, Error> {
    let mut found = Vec::new();
    let needle = format!("{} ", surt(url));
    for path in files {
        let file = disk.open(path, Mode::Read).map_err(Error::io("open", path))?;
        let index = Sorted { path, file };
        let mut at = index.first_not_below(needle.as_bytes())?;
        while let Some((_, line)) = index.line_from(at)? {
            if !line.starts_with(needle.as_bytes()) {
                break;
            }
            found.push(CdxLine::parse(&line).ok_or_else(|| Error::Index { path: path.clone() })?);
            at += line.len() as u64;
        }
    }
    Ok(found)
}

/// A sorted file of lines.
struct Sorted<'a> {
    path: &'a PathBuf,
    file: Box<dyn File>,
}

impl Sorted<'_> {
    /// Where the first line starts that does not sort below `needle`.
    fn first_not_below(&self, needle: &[u8]) -> Result<u64, Error> {
        let (mut low, mut high) = (0, self.file.len().map_err(Error::io("measure", self.path))?);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.line_after(middle)? {
                Some((_, line)) if line.as_slice() < needle => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(self.line_after(low)?.map_or(low, |(start, _)| start))
    }

    /// The first line that starts at `offset` or after it.
    fn line_after(&self, offset: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
        if offset == 0 {
            return self.line_from(0);
        }
        match self.line_from(offset - 1)? {
            Some((start, rest)) => self.line_from(start + rest.len() as u64),
            None => Ok(None),
        }
    }

    /// The bytes from `offset` to the end of the line.
    fn line_from(&self, offset: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let mut line = vec![0; 512];
        let mut filled = 0;
        loop {
            let read = self.file.read_at(offset + filled as u64, &mut line[filled..]);
            let count = read.map_err(Error::io("read", self.path))?;
            if let Some(end) = line[filled..filled + count].iter().position(|byte| *byte == b'\n') {
                line.truncate(filled + end + 1);
                return Ok(Some((offset, line)));
            }
            filled += count;
            if count == 0 && filled == 0 {
                return Ok(None);
            }
            if count == 0 || filled >= LINE_BYTES_MAX {
                return Err(Error::Index { path: self.path.clone() });
            }
            line.resize((filled * 2).max(512), 0);
        }
    }
}
