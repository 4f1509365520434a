//! Reading WARC files: one record after another, or the one that a pointer names.
//!
//! A file is gzip with one member a record, zstd with one frame a record, or plain; each record says which by its first
//! byte. The reader trusts
//! nothing: heads are limited, lengths are checked against what is there, and a record counts as read only when its
//! member is complete (checksum and all) and ends where the record does. Blocks are streamed, never held.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::{Decompress, FlushDecompress, Status};
use nephila_disk::{Cursor, Disk, Mode};
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::error::Error;
use crate::name::FileName;
use crate::record::RECORD_END;
use crate::{Pointer, http};

/// The longest head of a record.
pub const RECORD_HEAD_BYTES_MAX: usize = 64 << 10;
/// The longest block that [`read_record`] holds in memory.
pub const BLOCK_BYTES_MAX: u64 = 256 << 20;
/// How much is unpacked in one go.
const UNPACK_BYTES: usize = 32 << 10;
/// The first byte of a gzip member; no plain record starts with it.
const GZIP_FIRST: u8 = 0x1f;
/// The first byte of a zstd frame; no plain record starts with it.
const ZSTD_FIRST: u8 = 0x28;
/// The largest window of a zstd frame, as a power of two, and so the memory that reading one takes.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system failed; the record may be fine.
    #[error("cannot read the file")]
    Io(#[source] io::Error),
    /// The file ends inside the record.
    #[error("the record at {offset} is cut off")]
    Cut {
        /// Where the record starts.
        offset: u64,
    },
    /// The bytes are no record.
    #[error("the record at {offset} is malformed: {reason}")]
    Malformed {
        /// Where the record starts.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
}

/// The head of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHead {
    /// Where the record starts in the file.
    pub offset: u64,
    /// The fields in order, names as written.
    pub fields: Vec<(String, String)>,
    /// The length of the block.
    pub block_bytes: u64,
}

impl RecordHead {
    /// The first value of a field; case does not matter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// `WARC-Type`, or nothing.
    pub fn kind(&self) -> &str {
        self.get("WARC-Type").unwrap_or_default()
    }

    fn parse(head: &[u8], offset: u64) -> Result<RecordHead, ReadError> {
        let malformed = |reason| ReadError::Malformed { offset, reason };
        // Nothing else guards the head of a plain record against a hole that a power cut left in it.
        if head.iter().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\r' | b'\n')) {
            return Err(malformed("its head holds control characters"));
        }
        let head = std::str::from_utf8(head).map_err(|_| malformed("its head is not UTF-8"))?;
        let mut lines = head.lines();
        if !lines.next().is_some_and(|version| version.starts_with("WARC/")) {
            return Err(malformed("it does not start with WARC/"));
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in lines.take_while(|line| !line.is_empty()) {
            match (line.starts_with([' ', '\t']), line.split_once(':'), fields.last_mut()) {
                (true, _, Some((_, value))) => value.push_str(line),
                (false, Some((name, value)), _) => fields.push((name.to_owned(), value.trim().to_owned())),
                _ => return Err(malformed("a line of its head is no field")),
            }
        }
        let mut head = RecordHead { offset, fields, block_bytes: 0 };
        let length = head.get("Content-Length").ok_or_else(|| malformed("it has no Content-Length"))?;
        head.block_bytes = length.parse().map_err(|_| malformed("its Content-Length is no number"))?;
        Ok(head)
    }
}

/// Reads the records of a WARC file in order.
///
/// `next` gives a head; `next_piece` then gives the block in pieces; `finish` (or the following `next`) skips what was
/// not read of it and confirms that the record is complete. After an error the reader is of no further use.
pub struct Reader<R> {
    source: R,
    /// How far the file has been read.
    position: u64,
    /// Where the current record starts.
    offset: u64,
    /// Unpacks the current member, if it is one.
    member: Option<Member>,
    /// Unpacked bytes of the current member; those before `taken` are used up.
    unpacked: Vec<u8>,
    taken: usize,
    /// What is left of the current block; `None` between records.
    block_left: Option<u64>,
    /// How many bytes the last piece of it had, which the caller may still look at.
    lent: usize,
}

/// A gzip member or a zstd frame.
struct Member {
    codec: Codec,
    ended: bool,
}

enum Codec {
    Gzip(Decompress),
    Zstd(Box<DCtx<'static>>),
}

impl<R: BufRead> Reader<R> {
    /// Starts at the start of a file, or at the start of a record of it.
    pub fn new(source: R) -> Reader<R> {
        Reader {
            source,
            position: 0,
            offset: 0,
            member: None,
            unpacked: Vec::new(),
            taken: 0,
            block_left: None,
            lent: 0,
        }
    }

    /// Where the next record starts, once the current one is finished.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The head of the next record, or `None` at the end of the file.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not lend the block")]
    pub fn next(&mut self) -> Result<Option<RecordHead>, ReadError> {
        self.finish()?;
        self.offset = self.position;
        let start = self.source.fill_buf().map_err(ReadError::Io)?;
        match start.first() {
            None => return Ok(None),
            Some(&GZIP_FIRST) => self.member = Some(Member::gzip()),
            Some(&ZSTD_FIRST) => self.member = Some(Member::zstd()),
            Some(_) => self.member = None,
        }
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
            if head.len() >= RECORD_HEAD_BYTES_MAX {
                return Err(self.malformed("its head is too long"));
            }
            let bytes = self.fill()?;
            let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            let line = line.min(RECORD_HEAD_BYTES_MAX - head.len());
            head.extend_from_slice(&bytes[..line]);
            if line == 0 {
                return Err(self.cut_or_short("its head has no end"));
            }
            self.consume(line);
        }
        let head = RecordHead::parse(&head, self.offset)?;
        self.block_left = Some(head.block_bytes);
        Ok(Some(head))
    }

    /// The next bytes of the block; none at its end.
    pub fn next_piece(&mut self) -> Result<&[u8], ReadError> {
        self.consume(self.lent);
        self.lent = 0;
        let left = self.block_left.unwrap_or(0);
        if left == 0 {
            return Ok(&[]);
        }
        let count = self.fill()?.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            return Err(self.cut_or_short("its block is shorter than Content-Length"));
        }
        self.block_left = Some(left - count as u64);
        self.lent = count;
        self.fill().map(|bytes| &bytes[..count])
    }

    /// Skips the rest of the current record, confirms that it is complete, and gives its length in the file.
    pub fn finish(&mut self) -> Result<u64, ReadError> {
        if self.block_left.is_none() {
            return Ok(0);
        }
        while !self.next_piece()?.is_empty() {}
        for expected in RECORD_END {
            match self.fill()?.first() {
                Some(byte) if byte == expected => self.consume(1),
                Some(_) => return Err(self.malformed("its block is longer than Content-Length")),
                None => return Err(self.cut_or_short("no empty lines follow its block")),
            }
        }
        if self.member.is_some() && !self.fill()?.is_empty() {
            return Err(self.malformed("its member does not end with it"));
        }
        self.block_left = None;
        self.member = None;
        Ok(self.position - self.offset)
    }

    fn malformed(&self, reason: &'static str) -> ReadError {
        ReadError::Malformed { offset: self.offset, reason }
    }

    /// Bytes ran out: the file did, unless the record sits in a member that is complete.
    fn cut_or_short(&self, reason: &'static str) -> ReadError {
        if self.member.is_some() { self.malformed(reason) } else { ReadError::Cut { offset: self.offset } }
    }

    /// Some more bytes of the current record; none at the end of its member, or of a plain file.
    fn fill(&mut self) -> Result<&[u8], ReadError> {
        let Some(member) = &mut self.member else { return self.source.fill_buf().map_err(ReadError::Io) };
        while self.taken == self.unpacked.len() && !member.ended {
            let packed = self.source.fill_buf().map_err(ReadError::Io)?;
            if packed.is_empty() {
                return Err(ReadError::Cut { offset: self.offset });
            }
            self.unpacked.clear();
            self.taken = 0;
            let count = member
                .unpack(packed, &mut self.unpacked)
                .map_err(|reason| ReadError::Malformed { offset: self.offset, reason })?;
            self.source.consume(count);
            self.position += count as u64;
        }
        Ok(&self.unpacked[self.taken..])
    }

    fn consume(&mut self, count: usize) {
        if self.member.is_some() {
            self.taken += count;
        } else {
            self.source.consume(count);
            self.position += count as u64;
        }
    }
}

impl Member {
    fn gzip() -> Member {
        Member { codec: Codec::Gzip(Decompress::new_gzip(15)), ended: false }
    }

    fn zstd() -> Member {
        let mut context = DCtx::create();
        let limit = DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX);
        context.set_parameter(limit).expect("every zstd has such windows");
        Member { codec: Codec::Zstd(Box::new(context)), ended: false }
    }

    /// Unpacks some, and says how many packed bytes that took.
    fn unpack(&mut self, packed: &[u8], unpacked: &mut Vec<u8>) -> Result<usize, &'static str> {
        unpacked.reserve(UNPACK_BYTES);
        let count = match &mut self.codec {
            Codec::Gzip(inflate) => {
                let before = inflate.total_in();
                let status = inflate
                    .decompress_vec(packed, unpacked, FlushDecompress::None)
                    .map_err(|_| "its gzip member is damaged")?;
                self.ended = status == Status::StreamEnd;
                (inflate.total_in() - before) as usize
            }
            Codec::Zstd(context) => {
                let (mut input, mut output) = (InBuffer::around(packed), OutBuffer::around(unpacked));
                let left = context
                    .decompress_stream(&mut output, &mut input)
                    .map_err(|_| "its zstd frame is damaged")?;
                self.ended = left == 0;
                input.pos()
            }
        };
        if count == 0 && unpacked.is_empty() && !self.ended {
            return Err("its member makes no progress");
        }
        Ok(count)
    }
}

/// A whole record in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its head.
    pub head: RecordHead,
    /// Its block: for a response, the bytes off the wire.
    pub block: Vec<u8>,
}

impl Record {
    /// The payload of a response: its body after transfer decoding, before content decoding.
    pub fn payload(&self) -> Vec<u8> {
        http::payload(&self.block)
    }
}

/// The file of an archive that holds a pointer's record, whether it is still being written or not.
pub fn locate(disk: &dyn Disk, dir: &Path, pointer: &Pointer) -> Result<PathBuf, Error> {
    let files = disk.list(dir).map_err(Error::io("list", dir))?;
    let found = files.into_iter().find(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
        name.is_some_and(|(name, _)| (name.serial, name.shard) == (pointer.file, pointer.shard))
    });
    found.ok_or(Error::NoSuchFile(*pointer))
}

/// Reads the record that a pointer names. What was appended is there to be read once it is flushed.
pub fn read_record(disk: &dyn Disk, dir: &Path, pointer: &Pointer) -> Result<Record, Error> {
    read_record_of(disk, &locate(disk, dir, pointer)?, pointer)
}

/// The same, of the file that holds it.
pub fn read_record_of(disk: &dyn Disk, path: &Path, pointer: &Pointer) -> Result<Record, Error> {
    let file = disk.open(path, Mode::Read).map_err(Error::io("open", path))?;
    let bytes = Cursor::new(file, pointer.offset).take(u64::from(pointer.length));
    let wrong = |source| Error::Read { path: path.to_owned(), source };
    let mut reader = Reader::new(BufReader::new(bytes));
    let cut = || wrong(ReadError::Cut { offset: pointer.offset });
    let mut head = reader.next().map_err(wrong)?.ok_or_else(cut)?;
    head.offset = pointer.offset;
    if head.block_bytes > BLOCK_BYTES_MAX {
        return Err(wrong(ReadError::Malformed {
            offset: pointer.offset,
            reason: "its block is too long to show",
        }));
    }
    let mut block = Vec::new();
    loop {
        match reader.next_piece().map_err(wrong)? {
            [] => break,
            piece => block.extend_from_slice(piece),
        }
    }
    reader.finish().map_err(wrong)?;
    Ok(Record { head, block })
}
