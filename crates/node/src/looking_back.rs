//! Reads answers out of the archive again, for whoever looks for the links on their pages.
//!
//! Only what an answer adds to a crawl is wanted: of the answers to pages and sitemaps that were settled with them. One that
//! cannot be read any more is left out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_archive::{Pointer, locate, read_record_of};
use nephila_core::agent::{Answer, Content, Purpose};
use nephila_core::record::{How, Record, Settled};
use nephila_core::url::Url;
use nephila_disk::Disk;
use nephila_store::PlacedRecord;

use crate::config::Config;
use crate::fetch::decode::DecodeLimits;
use crate::fetch::read_archived;
use crate::writer::pointer_of;

/// Links that are read before somebody looks at them.
const LINKS_MAX: usize = 16_384;

/// A record, its place, and the answer that it is about.
pub type Looked = (u64, Box<Record>, Option<Box<Answer>>);

/// Reads answers again.
#[derive(Clone)]
pub struct LookingBack {
    token: Arc<str>,
    limits: DecodeLimits,
}

impl LookingBack {
    /// As this configuration has answers read.
    pub fn new(config: &Config) -> LookingBack {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = DecodeLimits {
            bytes_max: bytes(config.decode_bytes_max),
            ratio_max: bytes(config.decode_ratio_max),
        };
        LookingBack { token: config.settings.token.as_str().into(), limits }
    }

    /// Adds to records the answers that they are about, from the archive in `dir`; to the first of them at least. Says where to
    /// go on: where it has stopped, or else at `next`.
    pub fn read(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        records: Vec<PlacedRecord>,
        next: Option<u64>,
    ) -> (Vec<Looked>, Option<u64>) {
        let (mut looked, mut links) = (Vec::with_capacity(records.len()), 0);
        let mut archive = Archive { disk, dir, last: None };
        for (place, record) in records {
            if links >= LINKS_MAX {
                return (looked, Some(place));
            }
            let answer = match &*record {
                Record::Settled(settled) if settled.outcome.is_final() => self.answer(&mut archive, settled),
                _ => None,
            };
            links += match answer.as_ref().map(|answer| &answer.content) {
                Some(Content::Page { links, .. }) => links.len(),
                Some(Content::Sitemap { pages, sitemaps }) => pages.len() + sitemaps.len(),
                _ => 0,
            };
            looked.push((place, record, answer.map(Box::new)));
        }
        (looked, next)
    }

    fn answer(&self, archive: &mut Archive<'_>, settled: &Settled) -> Option<Answer> {
        let block = archive.read(&pointer_of(&settled.capture?))?;
        let url = Url::parse(&settled.url).ok()?;
        let purpose = if settled.how == How::Sitemap { Purpose::Sitemap } else { Purpose::Page };
        read_archived(&block, url, purpose, &self.token, &self.limits)
    }
}

/// An archive that is read in about the order in which it was written.
struct Archive<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    /// The file that was last read, by shard and number.
    last: Option<((u16, u32), PathBuf)>,
}

impl Archive<'_> {
    fn read(&mut self, pointer: &Pointer) -> Option<Vec<u8>> {
        let file = (pointer.shard, pointer.file);
        let last = self.last.as_ref().filter(|(last, _)| *last == file);
        if let Some(Ok(record)) = last.map(|(_, path)| read_record_of(self.disk, path, pointer)) {
            return Some(record.block);
        }
        // A file that is finished gets another name.
        let path = locate(self.disk, self.dir, pointer).ok()?;
        let record = read_record_of(self.disk, &path, pointer).ok()?;
        self.last = Some((file, path));
        Some(record.block)
    }
}
