//! Going through a whole file: what recovery, re-indexing and `verify` share, and `verify` itself.

use std::io::{BufRead, BufReader};
use std::path::Path;

use nephila_disk::{Cursor, Disk, Mode};

use crate::cdxj::CdxLine;
use crate::error::Error;
use crate::http::{Split, Splitter};
use crate::reader::{ReadError, Reader, RecordHead};
use crate::record::{Digests, PIECE_BYTES, digest_field};

/// How many problems a report spells out; more are only counted.
pub const PROBLEMS_MAX: usize = 100;

/// A record that is complete, with what its block hashes to.
pub(crate) struct Scanned {
    pub(crate) head: RecordHead,
    pub(crate) length: u64,
    split: Split,
    block_digest: String,
    payload_digest: String,
}

impl Scanned {
    /// Whether the block is what the record says; a record that does not say is taken at its word.
    pub(crate) fn block_is_right(&self) -> bool {
        self.head.get("WARC-Block-Digest").is_none_or(|digest| digest == self.block_digest)
    }

    /// The record's line in the index, if it gets one.
    pub(crate) fn index_line(&self, filename: &str) -> Option<CdxLine> {
        if self.head.kind() != "response" {
            return None;
        }
        let (url, date) = (self.head.get("WARC-Target-URI")?, self.head.get("WARC-Date")?);
        let digest = self.head.get("WARC-Payload-Digest");
        let length = CdxLine::length_of(self.length, filename);
        Some(CdxLine::new(url, date, &self.split.head, digest, (filename, self.head.offset, length)))
    }
}

/// The next record of a file, read to its end and hashed in bounded memory.
pub(crate) fn scan_next<R: BufRead>(reader: &mut Reader<R>) -> Result<Option<Scanned>, ReadError> {
    let Some(head) = reader.next()? else { return Ok(None) };
    let mut splitter = Splitter::verbatim();
    let mut digests = Digests::default();
    loop {
        match reader.next_piece()? {
            [] => break,
            piece => splitter.feed(piece, &mut digests),
        };
    }
    let split = splitter.finish(&mut digests);
    let length = reader.finish()?;
    let (block_digest, payload_digest) =
        (digest_field(&digests.block.finish()), digest_field(&digests.payload.finish()));
    Ok(Some(Scanned { head, length, split, block_digest, payload_digest }))
}

/// What [`verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that are complete.
    pub records: u64,
    /// Responses among them.
    pub responses: u64,
    /// Responses with a chunked body among these.
    pub chunked: u64,
    /// How many problems there are.
    pub problem_count: u64,
    /// The first [`PROBLEMS_MAX`] of them.
    pub problems: Vec<Problem>,
}

/// Something wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the record starts.
    pub offset: u64,
    /// What is wrong with it.
    pub what: String,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problem_count == 0
    }

    fn add(&mut self, offset: u64, what: impl Into<String>) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { offset, what: what.into() });
        }
    }
}

/// Checks a WARC file: every record is complete, alone in its member and as long as it says, block and payload digests
/// match (the payload after de-chunking), the file starts with a warcinfo and every other record names it.
///
/// Fails only if the file cannot be read; what is wrong with its content is in the report. Nothing is checked beyond a
/// record that cannot be read.
pub fn verify(disk: &dyn Disk, path: &Path) -> Result<Report, Error> {
    let file = disk.open(path, Mode::Read).map_err(Error::io("open", path))?;
    let mut reader = Reader::new(BufReader::with_capacity(PIECE_BYTES, Cursor::new(file, 0)));
    let mut report = Report::default();
    let mut info_id: Option<String> = None;
    loop {
        match scan_next(&mut reader) {
            Ok(None) => break,
            Ok(Some(scanned)) => check(&scanned, &mut info_id, &mut report),
            Err(ReadError::Io(source)) => return Err(Error::io("read", path)(source)),
            Err(error) => {
                report.add(reader.position(), error.to_string());
                break;
            }
        }
    }
    if report.records == 0 {
        report.add(0, "the file holds no record");
    }
    Ok(report)
}

fn check(scanned: &Scanned, info_id: &mut Option<String>, report: &mut Report) {
    let head = &scanned.head;
    report.records += 1;
    for field in ["WARC-Type", "WARC-Record-ID", "WARC-Date"] {
        if head.get(field).is_none() {
            report.add(head.offset, format!("the record has no {field}"));
        }
    }
    if !scanned.block_is_right() {
        report.add(head.offset, format!("the block digest is {}", scanned.block_digest));
    }
    if head.kind() == "warcinfo" {
        *info_id = head.get("WARC-Record-ID").map(str::to_owned);
    } else if info_id.is_none() {
        report.add(head.offset, "no warcinfo comes before the record");
    } else if head.get("WARC-Warcinfo-ID") != info_id.as_deref() {
        report.add(head.offset, "the record does not name the warcinfo before it");
    }
    if head.kind() == "response" {
        report.responses += 1;
        report.chunked += u64::from(scanned.split.chunked);
        let said = head.get("WARC-Payload-Digest");
        if said.is_some_and(|said| said != scanned.payload_digest) {
            report.add(head.offset, format!("the payload digest is {}", scanned.payload_digest));
        }
    }
}
