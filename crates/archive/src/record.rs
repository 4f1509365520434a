//! What a capture is, and how one record is put into bytes.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use data_encoding::{BASE32, HEXLOWER};
use jiff::Timestamp;

use crate::error::Error;
use crate::http::{Parts, Split, Splitter};
use crate::sha1_pair::{Hasher, update_both};

/// How much of a body is looked at in one go.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// What follows a record's block.
pub(crate) const RECORD_END: &[u8] = b"\r\n\r\n";

/// One exchange with a server.
pub struct Capture<'a> {
    /// The URL as fetched.
    pub target_uri: &'a str,
    /// When the request was sent; shared by all records of the capture.
    pub date: Timestamp,
    /// The address connected to.
    pub ip: Option<IpAddr>,
    /// What was spoken, if it was not what request and response are written in (`WARC-Protocol`).
    pub protocol: Option<&'a str>,
    /// The request as sent, head and all. Empty: no request record.
    pub request: &'a [u8],
    /// What came back.
    pub response: Content,
    /// Why the response is not whole, if it is not.
    pub truncated: Option<Truncated>,
    /// For the metadata record, in this order (via, depth, fetch time, ...). Empty: no metadata record.
    pub metadata: &'a [(&'a str, String)],
}

/// The bytes of a response as they came off the wire: head included, chunking and content coding included.
pub enum Content {
    /// In memory.
    Memory(Vec<u8>),
    /// In a file, from its start to this length. It is read twice.
    Spilled(File, u64),
}

/// Why a response was cut (`WARC-Truncated`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncated {
    /// It was longer than allowed.
    Length,
    /// It took longer than allowed.
    Time,
    /// The server closed the connection early.
    Disconnect,
}

impl Truncated {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Truncated::Length => "length",
            Truncated::Time => "time",
            Truncated::Disconnect => "disconnect",
        }
    }
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::Spilled(_, length) => *length,
        }
    }

    /// Hands out the bytes of a range in order, in pieces, until `each` says false.
    pub(crate) fn pieces(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(&[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        match self {
            Content::Memory(bytes) => {
                for piece in bytes[range.start as usize..range.end as usize].chunks(PIECE_BYTES) {
                    if !each(piece)? {
                        break;
                    }
                }
            }
            Content::Spilled(file, _) => {
                let mut buffer = vec![0; PIECE_BYTES];
                let mut at = range.start;
                while at < range.end {
                    let wanted = PIECE_BYTES.min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
                    file.read_exact_at(&mut buffer[..wanted], at).map_err(Error::Body)?;
                    at += wanted as u64;
                    if !each(&buffer[..wanted])? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds the final response in the bytes and its digests.
    pub(crate) fn measure(&self, answers_head_request: bool) -> Result<Measured, Error> {
        let mut splitter = Splitter::wire(answers_head_request);
        let mut digests = Digests::default();
        self.pieces(0..self.len(), |piece| Ok(splitter.feed(piece, &mut digests)))?;
        let split = splitter.finish(&mut digests);
        if split.start == split.end {
            return Err(Error::NoResponse);
        }
        Ok(Measured {
            split,
            block_digest: digest_field(&digests.block.finish()),
            payload_digest: digest_field(&digests.payload.finish()),
        })
    }
}

/// A response, located and hashed.
pub(crate) struct Measured {
    pub(crate) split: Split,
    pub(crate) block_digest: String,
    pub(crate) payload_digest: String,
}

/// Hashes a message and its payload.
#[derive(Default)]
pub(crate) struct Digests {
    pub(crate) block: Hasher,
    pub(crate) payload: Hasher,
}

impl Parts for Digests {
    fn message(&mut self, bytes: &[u8]) {
        self.block.update(bytes);
    }

    fn payload(&mut self, bytes: &[u8]) {
        self.payload.update(bytes);
    }

    fn both(&mut self, bytes: &[u8]) {
        update_both(&mut self.block, &mut self.payload, bytes);
    }
}

/// How long a digest is as WARC and CDXJ write it.
const DIGEST_BYTES: usize = 37;

/// A digest as WARC and CDXJ write it.
pub(crate) fn digest_field(digest: &[u8]) -> String {
    let mut field = String::with_capacity(DIGEST_BYTES);
    field.push_str("sha1:");
    BASE32.encode_append(digest, &mut field);
    field
}

/// How long a record id is.
const ID_BYTES: usize = 47;

/// Makes record ids that no other writer makes: a count, hashed with random keys.
pub(crate) struct Ids {
    /// The standard library's hash keys, 128 bits, are the one source of randomness that needs no dependency.
    keys: RandomState,
    count: u64,
}

impl Ids {
    pub(crate) fn new() -> Ids {
        Ids { keys: RandomState::new(), count: 0 }
    }

    pub(crate) fn next(&mut self) -> String {
        self.count += 1;
        let half = |which: u8| u128::from(self.keys.hash_one((self.count, which)));
        let mut bytes = (half(0) << 64 | half(1)).to_le_bytes();
        // Version 4, variant 1: the form of a random UUID.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut id = String::with_capacity(ID_BYTES);
        let mut before = "<urn:uuid:";
        for part in [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]] {
            id.push_str(before);
            HEXLOWER.encode_append(part, &mut id);
            before = "-";
        }
        id.push('>');
        id
    }
}

/// A time as records have it, in milliseconds: WARC 1.1 allows fractions of a second.
pub(crate) fn date_field(date: Timestamp) -> String {
    format!("{date:.3}")
}

/// Room for the head of a record; most fit.
const FIELDS_BYTES: usize = 640;

/// The head of a record, as it grows.
pub(crate) struct Fields(String);

impl Fields {
    pub(crate) fn new(kind: &str, id: &str, date: &str) -> Fields {
        let mut fields = Fields(String::with_capacity(FIELDS_BYTES));
        fields.0.push_str("WARC/1.1\r\n");
        fields.push("WARC-Type", kind);
        fields.push("WARC-Record-ID", id);
        fields.push("WARC-Date", date);
        fields
    }

    pub(crate) fn push(&mut self, name: &str, value: &str) {
        push_field(&mut self.0, name, value);
    }

    pub(crate) fn finish(mut self, block_bytes: u64) -> Vec<u8> {
        self.push("Content-Length", &block_bytes.to_string());
        self.0.push_str("\r\n");
        self.0.into_bytes()
    }
}

/// The URL as it stands in records and in the index: anything that could end the line or the word is escaped (in a URL
/// that was serialised properly, nothing is).
pub(crate) fn plain_uri(uri: &str) -> Cow<'_, str> {
    if uri.bytes().all(|byte| matches!(byte, 0x21..=0x7e)) {
        return Cow::Borrowed(uri);
    }
    let mut plain = String::with_capacity(uri.len());
    for byte in uri.bytes() {
        match byte {
            0x21..=0x7e => plain.push(byte as char),
            _ => write!(plain, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
    }
    Cow::Owned(plain)
}

/// Named fields as a block of `application/warc-fields`.
pub(crate) fn warc_fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut block = String::with_capacity(FIELDS_BYTES);
    for (name, value) in fields {
        push_field(&mut block, name, value);
    }
    block.into_bytes()
}

fn push_field(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str(": ");
    // Looked at to its end, without a way out: that is a few instructions for many bytes.
    if value.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~')) {
        text.push_str(value);
    } else {
        // A line break in a value would start a field of somebody else's choice.
        text.extend(value.chars().map(|char| if char.is_control() { ' ' } else { char }));
    }
    text.push_str("\r\n");
}
