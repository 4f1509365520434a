//! Giving room back: what is left in segments that are nearly empty moves out of them, a little at a time.

use super::Frontier;
use super::key::HostKey;
use super::queue::CHUNK_HEAD_BYTES;
use crate::Result;

/// Chunks that are moved at a time.
pub(super) const CHUNKS_MOVED: usize = 4;
/// Segments of blocks of which less than this is in use are emptied,
const SPARSE_PERCENT: u64 = 50;
/// and of chunks: they are smaller by far, and to move one its queue has to be found.
const SPARSE_CHUNKS_PERCENT: u64 = 25;

/// Segments of blocks that are being emptied, and at which blocks to go on.
pub(super) struct Emptied {
    segments: Vec<u32>,
    sieve: Option<usize>,
    hosts: Option<usize>,
    ledger: Option<usize>,
    tallies: Option<usize>,
}

impl Frontier {
    /// Moves all that is left in sparse segments, so that the next snapshot gives their room back. Takes its time.
    pub fn tidy(&mut self) -> Result<()> {
        // What is moved makes nothing else sparse.
        for _ in 0..=self.chunks.states().len() {
            self.empty_sparse_segments()?;
            if self.emptied.is_none() && self.to_move.is_empty() {
                break;
            }
            while self.emptied.is_some() {
                self.move_block()?;
            }
            while !self.to_move.is_empty() {
                self.move_chunks(CHUNKS_MOVED)?;
            }
        }
        Ok(())
    }

    /// Begins to move what is left in segments that are nearly empty, so that their room comes back: a little at a time.
    pub(super) fn empty_sparse_segments(&mut self) -> Result<()> {
        if self.emptied.is_none() {
            let segments = self.blocks.sparse(SPARSE_PERCENT);
            let begun =
                Emptied { segments, sieve: Some(0), hosts: Some(0), ledger: Some(0), tallies: Some(0) };
            self.emptied = (!begun.segments.is_empty()).then_some(begun);
        }
        if self.to_move.is_empty()
            && let Some(segment) = self.chunks.sparse(SPARSE_CHUNKS_PERCENT).first()
        {
            let blobs = self.chunks.blobs::<CHUNK_HEAD_BYTES>(*segment)?.into_iter();
            self.to_move = blobs.map(|(blob, key)| (HostKey::from_bytes(key), blob)).collect();
            // So that the queue of a host is found once for all of its chunks.
            self.to_move.sort_unstable();
        }
        Ok(())
    }

    pub(super) fn move_block(&mut self) -> Result<()> {
        let Some(emptied) = &mut self.emptied else { return Ok(()) };
        if let Some(from) = emptied.sieve {
            emptied.sieve = self.sieve.evacuate(&mut self.blocks, &emptied.segments, from)?;
        } else if let Some(from) = emptied.hosts {
            emptied.hosts = self.hosts.evacuate(&mut self.blocks, &emptied.segments, from)?;
        } else if let (Some(from), Some(ledger)) = (emptied.ledger, &mut self.ledger) {
            emptied.ledger = ledger.evacuate(&mut self.blocks, &emptied.segments, from)?;
        } else if let (Some(from), Some(tallies)) = (emptied.tallies, &mut self.tallies) {
            emptied.tallies = tallies.evacuate(&mut self.blocks, &emptied.segments, from)?;
        } else {
            self.emptied = None;
        }
        Ok(())
    }

    pub(super) fn move_chunks(&mut self, max: usize) -> Result<()> {
        for _ in 0..max {
            let Some((key, blob)) = self.to_move.pop() else { break };
            if let Some(queue) = self.hosts.load(&mut self.blocks, &mut self.chunks, key)? {
                queue.move_chunk(&mut self.chunks, blob)?;
            }
        }
        Ok(())
    }
}
