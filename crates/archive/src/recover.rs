//! Making an archive whole again after whatever ended the last process.
//!
//! Files are append-only and carry `.open` until they are synced, so the damage of a crash is at the end of open files:
//! from the first record there that is not whole, everything is cut. Finished files are whole by construction; one that
//! lost its index to a power cut gets a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_disk::{Cursor, Disk, Mode};

use crate::Pointer;
use crate::cdxj::IndexBuilder;
use crate::error::Error;
use crate::name::FileName;
use crate::reader::{ReadError, Reader};
use crate::record::PIECE_BYTES;
use crate::verify::scan_next;

/// What an archive holds after recovery.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// The length of each file, by shard and serial.
    files: BTreeMap<(u16, u32), u64>,
    /// The files that had been left open.
    pub repaired: Vec<Repair>,
}

/// What was done to a file that had been left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Its name once finished.
    pub file: String,
    /// How many bytes of whole records it has. 0: there was no capture in it and it is gone.
    pub whole_bytes: u64,
    /// How many bytes were cut off.
    pub cut_bytes: u64,
}

impl Recovery {
    /// Whether the record that a pointer names survived.
    ///
    /// A serial whose file did not survive at all is given out again, unless [`Recovery::reserve`] keeps it.
    pub fn holds(&self, pointer: &Pointer) -> bool {
        let end = pointer.offset.checked_add(u64::from(pointer.length));
        end.is_some_and(|end| self.reaches(pointer.shard, pointer.file, end))
    }

    /// Whether a file survived up to there at least.
    pub fn reaches(&self, shard: u16, serial: u32, end: u64) -> bool {
        self.files.get(&(shard, serial)).is_some_and(|whole| end <= *whole)
    }

    /// Keeps a serial from being given out: a file of that number did not survive, but records elsewhere name it.
    pub fn reserve(&mut self, shard: u16, serial: u32) {
        self.files.entry((shard, serial)).or_insert(0);
    }

    /// The first serial that no file of a shard has.
    pub(crate) fn next_serial(&self, shard: u16) -> u32 {
        self.files
            .keys()
            .filter(|file| file.0 == shard)
            .map(|file| file.1.saturating_add(1))
            .max()
            .unwrap_or(0)
    }
}

/// Cuts every open file of the directory back to its last whole record and finishes it, and rebuilds missing indexes.
/// For all shards at once, before any of them writes. Doing it again changes nothing.
pub fn recover(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Recovery, Error> {
    disk.create_dir_all(dir).map_err(Error::io("create", dir))?;
    let mut recovery = Recovery::default();
    let files = disk.list(dir).map_err(Error::io("list", dir))?;
    let name_of = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let names: BTreeSet<String> = files.iter().filter_map(name_of).collect();
    let mut indexes = BTreeSet::new();
    for name in &names {
        let Some((file, open)) = FileName::parse(name) else { continue };
        let indexed = names.contains(&file.index());
        let whole_bytes = match (open, indexed) {
            (true, _) => {
                let repair = finish_open(disk, dir, &file)?;
                let whole_bytes = repair.whole_bytes;
                recovery.repaired.push(repair);
                whole_bytes
            }
            (false, true) => length(disk, &dir.join(name))?,
            (false, false) => scan(disk, dir, &file, name)?.whole_bytes,
        };
        if whole_bytes > 0 {
            recovery.files.insert((file.shard, file.serial), whole_bytes);
            indexes.insert(file.index());
        }
    }
    // What is left of indexes that were being written, and indexes whose file a power cut took.
    let useless = |name: &&String| {
        FileName::is_leftover(name) || FileName::is_index(name) && !indexes.contains(name.as_str())
    };
    for name in names.iter().filter(useless) {
        let path = dir.join(name);
        // Writing an index above may have used up what the last process left of it.
        if let Err(error) = disk.remove(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(Error::io("remove", &path)(error));
        }
    }
    disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
    Ok(recovery)
}

fn length(disk: &Arc<dyn Disk>, path: &Path) -> Result<u64, Error> {
    let file = disk.open(path, Mode::Read).map_err(Error::io("open", path))?;
    file.len().map_err(Error::io("measure", path))
}

fn finish_open(disk: &Arc<dyn Disk>, dir: &Path, name: &FileName) -> Result<Repair, Error> {
    let (open, warc) = (dir.join(name.open()), dir.join(name.warc()));
    let all_bytes = length(disk, &open)?;
    let mut scanned = scan(disk, dir, name, &name.open())?;
    if scanned.captures == 0 {
        disk.remove(&open).map_err(Error::io("remove", &open))?;
        scanned.whole_bytes = 0;
    } else {
        let mut file = disk.open(&open, Mode::Append).map_err(Error::io("open", &open))?;
        if all_bytes > scanned.whole_bytes {
            file.truncate(scanned.whole_bytes).map_err(Error::io("truncate", &open))?;
        }
        // Its bytes may only be in the kernel still; a finished file is a synced one.
        file.sync().map_err(Error::io("sync", &open))?;
        disk.rename(&open, &warc).map_err(Error::io("rename", &open))?;
    }
    let cut_bytes = all_bytes - scanned.whole_bytes;
    Ok(Repair { file: name.warc(), whole_bytes: scanned.whole_bytes, cut_bytes })
}

struct Whole {
    whole_bytes: u64,
    captures: u64,
}

/// Reads a file as far as it is whole and, if there is a capture in it, writes its index.
fn scan(disk: &Arc<dyn Disk>, dir: &Path, name: &FileName, as_named: &str) -> Result<Whole, Error> {
    let path = dir.join(as_named);
    let file = disk.open(&path, Mode::Read).map_err(Error::io("open", &path))?;
    let mut reader = Reader::new(BufReader::with_capacity(PIECE_BYTES, Cursor::new(file, 0)));
    let mut index = IndexBuilder::new(Arc::clone(disk), dir.join(name.index()));
    let mut whole = Whole { whole_bytes: 0, captures: 0 };
    loop {
        match scan_next(&mut reader) {
            // Plain files have no checksum but the digest: a record with a hole in it is not whole.
            Ok(Some(scanned)) if scanned.block_is_right() => {
                whole.whole_bytes = reader.position();
                if let Some(line) = scanned.index_line(&name.warc()) {
                    whole.captures += 1;
                    index.make_room()?;
                    index.push(&line);
                }
            }
            Err(ReadError::Io(source)) => return Err(Error::io("read", &path)(source)),
            _ => break,
        }
    }
    if whole.captures > 0 {
        index.finish()?;
    }
    Ok(whole)
}
