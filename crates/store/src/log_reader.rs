//! The reading half of the [log](crate::log): frames at their places, in its segments and in its [history](crate::history).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_disk::Disk;

use crate::history::History;
use crate::log::{Segment, frame_bytes, starts};
use crate::{Error, Result};

/// Segments that are kept open.
const OPEN_MAX: usize = 64;

/// Reads frames at their places.
pub struct LogReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segments: RefCell<BTreeMap<u64, Segment>>,
    /// The file of old records that was last read.
    history: RefCell<Option<History>>,
}

impl LogReader {
    /// Reads the log in `dir`.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> LogReader {
        LogReader { disk, dir: dir.to_owned(), segments: RefCell::default(), history: RefCell::default() }
    }

    /// The payload of the frame at a place where one is known to be and was flushed; of an old one what is kept of it.
    pub fn read(&self, place: u64, payload: &mut Vec<u8>) -> Result<()> {
        let mut history = self.history.borrow_mut();
        if let Some(history) = history.as_ref().filter(|history| history.holds(place)) {
            return history.frame(place, payload);
        }
        let mut segments = self.segments.borrow_mut();
        let held = segments.range(..=place).next_back().is_some_and(|(_, segment)| segment.holds(place));
        if !held {
            let starts = starts(&*self.disk, &self.dir)?;
            let missing =
                || Error::Corrupt { path: self.dir.clone(), place, what: "no segment holds this place" };
            let Some(at) = starts.partition_point(|start| *start <= place).checked_sub(1) else {
                let found = History::open(&*self.disk, &self.dir, place)?.ok_or_else(missing)?;
                return history.insert(found).frame(place, payload);
            };
            let mut segment = Segment::open(&*self.disk, &self.dir, starts[at])?.ok_or_else(missing)?;
            segment.end = starts.get(at + 1).copied();
            if segments.len() >= OPEN_MAX {
                segments.pop_first();
            }
            segments.insert(starts[at], segment);
        }
        match segments.range(..=place).next_back() {
            Some((_, segment)) => segment.frame(place, payload),
            None => unreachable!("it was just put there"),
        }
    }

    /// Passes on what is kept of the frames from one place to another, until it has read so many bytes or a block of old ones.
    /// Both places are those of frames. Says the place behind.
    pub fn read_on(
        &self,
        from: u64,
        until: u64,
        bytes_max: usize,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<u64> {
        if let Some(history) = History::open(&*self.disk, &self.dir, from)? {
            return history.block(from, each);
        }
        let (mut place, mut payload, mut bytes) = (from, Vec::new(), 0);
        while place <= until && bytes < bytes_max {
            self.read(place, &mut payload)?;
            each(place, &payload)?;
            bytes += payload.len();
            place += frame_bytes(&payload);
        }
        Ok(place)
    }
}
