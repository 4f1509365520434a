//! Reading the journal: all of it in order, or one URL at its place.
//!
//! A found URL is addressed by its record's place and by its distance from the end of the frame: one URL of a sitemap of
//! 50,000 then costs one small read. This relies on the order of the fields of a record: the capture, which may be filled
//! in late, stands before the found URLs, and little stands behind them. The fingerprint tells whether the right one was
//! read.

use std::path::PathBuf;
use std::sync::Arc;

use nephila_core::record::{Found, Record};
use nephila_core::url::{Fingerprint, Origin, Url};
use nephila_disk::{Disk, File, Mode};
use postcard::ser_flavors::Size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::journal::{FILE_HEAD_BYTES, FRAME_HEAD_BYTES, frame_checksum, is_unborn, read_full};
use crate::{Error, FRAME_BYTES_MAX, Result};

/// How much is read at once when all is read.
const CHUNK_BYTES: usize = 1024 * 1024;
/// How much is read at first when one URL is wanted; most are far shorter.
const PEEK_BYTES: usize = 512;
/// How many bytes are looked at, again and again where need be, in search of a whole frame behind a broken one.
const SEARCH_BYTES_MAX: u64 = 256 << 20;

/// The first fields of the records that find URLs, as they are encoded.
#[derive(Deserialize)]
enum Head {
    Seeds,
    Settled { url: String },
    Robots { _origin: Origin, url: String },
}

/// Where a frame ends, and the page that its record is about.
pub(crate) struct Frame {
    pub(crate) place: u64,
    pub(crate) via: Option<String>,
    end: u64,
}

/// The journal, for reading.
pub(crate) struct Reader {
    file: Box<dyn File>,
    path: PathBuf,
}

impl Reader {
    pub(crate) fn open(disk: &Arc<dyn Disk>, path: PathBuf) -> Result<Reader> {
        let file = disk.open(&path, Mode::Read).map_err(Error::io("open", &path))?;
        Ok(Reader { file, path })
    }

    /// Passes every record to `each`, in order, until the end or the first frame that is not whole. Gives back where that
    /// is and how much follows.
    pub(crate) fn read_all(&self, mut each: impl FnMut(u64, Record)) -> Result<(u64, u64)> {
        if is_unborn(&*self.file, &self.path)? {
            return Ok((0, 0));
        }
        let length = self.file.len().map_err(Error::io("read", &self.path))?;
        let mut place = FILE_HEAD_BYTES as u64;
        let mut chunk = Chunk { bytes: Vec::new(), start: place, length };
        while let Some(payload) = self.next_payload(&mut chunk, place)? {
            let record = postcard::from_bytes(payload)
                .map_err(|_| self.corrupt(place, "the checksum is right and the record is unknown"))?;
            let next = place + (FRAME_HEAD_BYTES + payload.len()) as u64;
            each(place, record);
            place = next;
        }
        Ok((place, length - place))
    }

    /// Whether more follows `place` than a write that was not finished: a whole frame somewhere behind it. As a frame's
    /// checksum covers its place, nothing else passes for one. When the search takes too long the answer is yes.
    pub(crate) fn has_frame_behind(&self, place: u64) -> Result<bool> {
        let length = self.file.len().map_err(Error::io("read", &self.path))?;
        let mut chunk = Chunk { bytes: Vec::new(), start: place, length };
        let mut searched_bytes = 0;
        for place in place + 1..length {
            let Some(head) = self.fill(&mut chunk, place, FRAME_HEAD_BYTES)? else { return Ok(false) };
            let (bytes, _) = split_head(head);
            let fits = bytes <= FRAME_BYTES_MAX && bytes as u64 <= length - place;
            searched_bytes += 1 + if fits { bytes as u64 } else { 0 };
            if searched_bytes > SEARCH_BYTES_MAX || self.next_payload(&mut chunk, place)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The payload of the frame at `place`, if it is whole.
    fn next_payload<'a>(&self, chunk: &'a mut Chunk, place: u64) -> Result<Option<&'a [u8]>> {
        let Some(head) = self.fill(chunk, place, FRAME_HEAD_BYTES)? else { return Ok(None) };
        let (bytes, checksum) = split_head(head);
        if bytes == 0 || bytes > FRAME_BYTES_MAX {
            return Ok(None);
        }
        let Some(frame) = self.fill(chunk, place, FRAME_HEAD_BYTES + bytes)? else { return Ok(None) };
        let payload = &frame[FRAME_HEAD_BYTES..];
        Ok((frame_checksum(place, payload) == checksum).then_some(payload))
    }

    /// The bytes from `place` on, out of the chunk, which is read anew where it does not hold them.
    fn fill<'a>(&self, chunk: &'a mut Chunk, place: u64, bytes: usize) -> Result<Option<&'a [u8]>> {
        let left = chunk.length.saturating_sub(place);
        if left < bytes as u64 {
            return Ok(None);
        }
        let held = (place - chunk.start) as usize;
        if chunk.bytes.len() < held + bytes {
            let wanted = bytes.max(left.min(CHUNK_BYTES as u64) as usize);
            chunk.bytes = vec![0; wanted];
            let count =
                read_full(&*self.file, place, &mut chunk.bytes).map_err(Error::io("read", &self.path))?;
            chunk.bytes.truncate(count);
            chunk.start = place;
        }
        let held = (place - chunk.start) as usize;
        Ok(chunk.bytes.get(held..held + bytes))
    }

    /// The record at a place where one is known to be.
    pub(crate) fn record(&self, place: u64) -> Result<Record> {
        let (bytes, checksum) = self.head(place)?;
        let mut payload = vec![0; bytes];
        let count = read_full(&*self.file, place + FRAME_HEAD_BYTES as u64, &mut payload)
            .map_err(Error::io("read", &self.path))?;
        if count < bytes || frame_checksum(place, &payload) != checksum {
            return Err(self.corrupt(place, "the checksum is wrong"));
        }
        postcard::from_bytes(&payload).map_err(|_| self.corrupt(place, "the record is unknown"))
    }

    /// The frame at a place where a record with found URLs is known to be.
    pub(crate) fn frame(&self, place: u64) -> Result<Frame> {
        let (bytes, _) = self.head(place)?;
        let start = place + FRAME_HEAD_BYTES as u64;
        let end = start + bytes as u64;
        let via = match self.decode(place, start, end)? {
            Head::Seeds => None,
            Head::Settled { url } | Head::Robots { url, .. } => Some(url),
        };
        Ok(Frame { place, via, end })
    }

    /// The found URL with this fingerprint, at this distance from the end of the frame.
    pub(crate) fn found(
        &self,
        frame: &Frame,
        distance: u32,
        fingerprint: Fingerprint,
    ) -> Result<(Found, Url)> {
        let moved = || self.corrupt(frame.place, "a URL is not where it was");
        let start = frame
            .end
            .checked_sub(u64::from(distance))
            .filter(|start| *start > frame.place)
            .ok_or_else(moved)?;
        let found: Found = self.decode(frame.place, start, frame.end)?;
        let url = Url::parse(&found.url)
            .ok()
            .filter(|url| Fingerprint::of(url) == fingerprint)
            .ok_or_else(moved)?;
        Ok((found, url))
    }

    /// Length and checksum of the frame at `place`.
    fn head(&self, place: u64) -> Result<(usize, u32)> {
        let mut head = [0; FRAME_HEAD_BYTES];
        let count = read_full(&*self.file, place, &mut head).map_err(Error::io("read", &self.path))?;
        let (bytes, checksum) = split_head(&head);
        if count < FRAME_HEAD_BYTES || bytes == 0 || bytes > FRAME_BYTES_MAX {
            return Err(self.corrupt(place, "no frame"));
        }
        Ok((bytes, checksum))
    }

    /// Decodes a value that starts at `start` and ends before `end`, reading no more than it must.
    fn decode<T: DeserializeOwned>(&self, place: u64, start: u64, end: u64) -> Result<T> {
        let all = (end - start) as usize;
        let mut wanted = PEEK_BYTES.min(all);
        loop {
            let mut bytes = vec![0; wanted];
            let count = read_full(&*self.file, start, &mut bytes).map_err(Error::io("read", &self.path))?;
            match postcard::take_from_bytes(&bytes[..count]) {
                Ok((value, _)) => return Ok(value),
                Err(_) if count == wanted && wanted < all => wanted = (wanted * 8).min(all),
                Err(_) => return Err(self.corrupt(place, "the record is unknown")),
            }
        }
    }

    pub(crate) fn corrupt(&self, place: u64, what: &'static str) -> Error {
        Error::Corrupt { path: self.path.clone(), place, what }
    }
}

/// A stretch of the journal in memory.
struct Chunk {
    bytes: Vec<u8>,
    start: u64,
    /// Of the whole file, as far as it is to be read.
    length: u64,
}

fn split_head(head: &[u8]) -> (usize, u32) {
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    (number(0) as usize, number(4))
}

/// For each URL that a record found, how far from the end of the encoded record it starts.
pub(crate) fn distances(record: &Record) -> impl Iterator<Item = u32> {
    // What is encoded behind the found URLs.
    let behind = match record {
        Record::Settled(settled) => encoded_bytes(&settled.left_out),
        _ => 0,
    };
    let mut distance = behind + record.found().iter().map(encoded_bytes).sum::<usize>();
    record.found().iter().map(move |found| {
        let here = distance;
        distance -= encoded_bytes(found);
        here as u32
    })
}

fn encoded_bytes(value: &impl Serialize) -> usize {
    postcard::serialize_with_flavor(value, Size::default()).expect("counting bytes does not run out of them")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nephila_core::record::{
        How, LeftOut, Outcome, PageFlags, Pointer, RobotsOutcome, RobotsRecord, Settled,
    };
    use nephila_core::time::Wall;

    use super::*;

    fn found(url: &str, depth: u16) -> Found {
        Found { url: url.into(), depth, how: How::Link, redirects: 3 }
    }

    fn records() -> [(Record, Option<&'static str>); 3] {
        let long = format!("http://a.example/{}", "x".repeat(3_000));
        let urls = vec![found("http://a.example/", 0), found(&long, 300), found("http://b.example/c", 50)];
        let origin = Origin::of(&Url::parse("https://a.example:444/").unwrap());
        let settled = Settled {
            url: "http://a.example/page".into(),
            depth: 4,
            how: How::Link,
            attempts: 1,
            asked: true,
            at: Wall(1 << 40),
            took: Duration::from_millis(70),
            bytes: 70_000,
            outcome: Outcome::Answered { status: 200 },
            capture: None,
            flags: PageFlags::default(),
            found: urls.clone(),
            left_out: LeftOut { scope: 1_000, traps: 7 },
        };
        let robots = RobotsRecord {
            origin: origin.clone(),
            url: origin.robots_url().into(),
            at: Wall(1 << 40),
            took: Duration::from_millis(70),
            bytes: 70_000,
            status: Some(200),
            outcome: RobotsOutcome::Elsewhere,
            capture: None,
            found: urls.clone(),
        };
        [
            (Record::Seeds(urls), None),
            (Record::Settled(settled), Some("http://a.example/page")),
            (Record::Robots(robots), Some("https://a.example:444/robots.txt")),
        ]
    }

    /// Fails when fields of the records move in a way that the addresses of URLs do not know of.
    #[test]
    fn every_found_url_is_at_its_distance() {
        for (record, via) in records() {
            let distances: Vec<u32> = distances(&record).collect();
            let mut captured = record.clone();
            match &mut captured {
                Record::Settled(Settled { capture, .. }) | Record::Robots(RobotsRecord { capture, .. }) => {
                    *capture = Some(Pointer { shard: 1, file: 300, offset: 1 << 30, length: 70_000 });
                }
                _ => {}
            }
            for written in [&record, &captured] {
                let bytes = postcard::to_stdvec(written).unwrap();
                let (head, _) = postcard::take_from_bytes(&bytes).unwrap();
                let head_url = match head {
                    Head::Seeds => None,
                    Head::Settled { url } | Head::Robots { url, .. } => Some(url),
                };
                assert_eq!(head_url.as_deref(), via);
                assert_eq!(distances.len(), written.found().len());
                for (found, distance) in written.found().iter().zip(&distances) {
                    let at = bytes.len() - *distance as usize;
                    let (read, _): (Found, _) = postcard::take_from_bytes(&bytes[at..]).unwrap();
                    assert_eq!(read, *found);
                }
            }
        }
    }
}
