//! A fingerprint of a run: every event and every action in its order, with its time.

use std::fmt;

use nephila_core::time::Mono;
use xxhash_rust::xxh3::Xxh3;

/// Is told each line with its time in seconds.
pub(super) type Reader<'a> = &'a mut dyn FnMut(f64, &str);

/// Two runs that did the same have the same hash.
#[derive(Default)]
pub(super) struct Trace<'a> {
    hasher: Xxh3,
    line: String,
    /// How many lines it has.
    pub(super) lines: u64,
    /// Who wants to read along.
    reader: Option<Reader<'a>>,
}

impl<'a> Trace<'a> {
    /// A trace that somebody reads along.
    pub(super) fn read_by(reader: Reader<'a>) -> Trace<'a> {
        Trace { reader: Some(reader), ..Trace::default() }
    }

    /// Adds what happened at a moment.
    pub(super) fn note(&mut self, at: Mono, what: fmt::Arguments<'_>) {
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = fmt::write(&mut self.line, what);
        self.hasher.update(&at.0.to_le_bytes());
        self.hasher.update(self.line.as_bytes());
        self.lines += 1;
        if let Some(reader) = &mut self.reader {
            reader(at.0 as f64 / 1e6, &self.line);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hasher.digest()
    }
}
