//! The log of fetches: DIR/logs/fetch.jsonl, one line an attempt.
//!
//! Lines are written together with the records of the same attempts. The file is rolled when it is large; rolled files are
//! compressed, and the oldest go.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::{Compression, write::GzEncoder};
use nephila_core::time::Wall;
use nephila_disk::{Disk, File, Mode};
use serde::Serialize;

/// One attempt at a URL, or at a robots.txt.
#[derive(Clone, Debug, Serialize)]
pub struct Attempt {
    /// When it ended, as in RFC 3339.
    #[serde(serialize_with = "rfc3339")]
    pub time: Wall,
    /// What was asked for.
    pub url: String,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// Bytes received.
    pub bytes: u64,
    /// From the request to the last byte.
    pub ms: u64,
    /// The address that was asked.
    pub address: Option<IpAddr>,
    /// The page that the URL was found on.
    pub via: Option<String>,
    /// Links from a seed.
    pub depth: u16,
    /// Which attempt it was, from 1.
    pub attempt: u8,
    /// What went wrong, or why the body is not whole.
    pub reason: Option<String>,
    /// The WARC file that has the answer.
    pub warc: Option<String>,
    /// Where in it.
    pub offset: Option<u64>,
}

fn rfc3339<S: serde::Serializer>(at: &Wall, serializer: S) -> Result<S::Ok, S::Error> {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    serializer.collect_str(&at.unwrap_or(jiff::Timestamp::MAX))
}

/// See the module's documentation.
pub struct FetchLog {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn File>,
    len: u64,
    buffer: Vec<u8>,
    roll_bytes: u64,
    files_max: usize,
}

impl FetchLog {
    /// Opens the log. A line that a crash tore is cut off. It is rolled at `roll_bytes`, and `files_max` rolled ones are kept.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, roll_bytes: u64, files_max: usize) -> io::Result<FetchLog> {
        if let Some(dir) = path.parent() {
            disk.create_dir_all(dir)?;
        }
        let mut file = disk.open(path, Mode::Append)?;
        let len = whole_lines(&*file)?;
        file.truncate(len)?;
        Ok(FetchLog { disk, path: path.into(), file, len, buffer: Vec::new(), roll_bytes, files_max })
    }

    /// Adds a line, to be written by the next flush.
    pub fn add(&mut self, attempt: &Attempt) {
        serde_json::to_writer(&mut self.buffer, attempt).expect("an attempt is plain data");
        self.buffer.push(b'\n');
    }

    /// Hands the lines to the kernel. After an error the file is as before, and the lines wait for another try.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.append(&self.buffer) {
            self.file.truncate(self.len)?;
            return Err(error);
        }
        self.len += self.buffer.len() as u64;
        self.buffer.clear();
        if self.len >= self.roll_bytes { self.roll() } else { Ok(()) }
    }

    fn roll(&mut self) -> io::Result<()> {
        let rolled = self.rolled()?;
        let serial = rolled.last().map_or(1, |(serial, _)| serial + 1);
        let raw = self.path.with_file_name(format!("fetch-{serial:06}.jsonl"));
        self.disk.rename(&self.path, &raw)?;
        self.file = self.disk.open(&self.path, Mode::Append)?;
        self.len = 0;
        self.compress(&raw)?;
        let excess = (rolled.len() + 1).saturating_sub(self.files_max);
        for (_, path) in rolled.into_iter().take(excess) {
            self.disk.remove(&path)?;
        }
        Ok(())
    }

    /// The rolled files by their number, oldest first.
    fn rolled(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let files =
            self.disk.list(self.path.parent().unwrap_or(Path::new(".")))?.into_iter().filter_map(|path| {
                let digits = path.file_name()?.to_str()?.strip_prefix("fetch-")?.split('.').next()?;
                Some((digits.parse().ok()?, path.clone()))
            });
        let mut files: Vec<(u64, PathBuf)> = files.collect();
        files.sort();
        Ok(files)
    }

    fn compress(&self, raw: &Path) -> io::Result<()> {
        let from = self.disk.open(raw, Mode::Read)?;
        let target = raw.with_extension("jsonl.gz");
        let to = self.disk.open(&target, Mode::Append)?;
        let mut packer = GzEncoder::new(Appending(to), Compression::fast());
        let mut piece = vec![0; 1 << 16];
        let mut at = 0;
        loop {
            let read = from.read_at(at, &mut piece)?;
            if read == 0 {
                break;
            }
            packer.write_all(&piece[..read])?;
            at += read as u64;
        }
        packer.finish()?.0.sync()?;
        self.disk.remove(raw)
    }
}

struct Appending(Box<dyn File>);

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where the last whole line ends.
fn whole_lines(file: &dyn File) -> io::Result<u64> {
    let mut end = file.len()?;
    let mut piece = [0; 4096];
    while end > 0 {
        let start = end.saturating_sub(piece.len() as u64);
        let read = file.read_at(start, &mut piece[..(end - start) as usize])?;
        if let Some(at) = piece[..read].iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use nephila_disk::{Cursor, SimDisk};

    use super::*;

    fn attempt(number: u64) -> Attempt {
        Attempt {
            time: Wall(number),
            url: format!("http://a.test/{number}"),
            status: Some(200),
            bytes: number,
            ms: 1,
            address: None,
            via: None,
            depth: 0,
            attempt: 1,
            reason: None,
            warc: None,
            offset: None,
        }
    }

    fn text(disk: &dyn Disk, path: &Path) -> String {
        let mut bytes = Vec::new();
        Cursor::new(disk.open(path, Mode::Read).unwrap(), 0).read_to_end(&mut bytes).unwrap();
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
            bytes = plain;
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn it_is_rolled_and_the_oldest_go() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let path = Path::new("/crawl/logs/fetch.jsonl");
        let mut log = FetchLog::open(Arc::clone(&disk), path, 400, 2).unwrap();
        for number in 0..20 {
            log.add(&attempt(number));
            log.flush().unwrap();
        }
        let files = disk.list(Path::new("/crawl/logs")).unwrap();
        let names: Vec<_> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        // What is left is the end of the log, whole and in order.
        let all: String = files.iter().filter(|file| *file != path).map(|file| text(&*disk, file)).collect();
        let all = all + &text(&*disk, path);
        let lines: Vec<serde_json::Value> =
            all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<u64> = lines.iter().map(|line| line["bytes"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (20 - numbers.len() as u64..20).collect::<Vec<_>>());
        assert!(
            numbers.len() >= 4 && lines[0]["time"].as_str().unwrap().starts_with("1970-01-01T00:00:00.0")
        );
    }

    #[test]
    fn a_torn_line_is_cut_off() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let path = Path::new("/crawl/logs/fetch.jsonl");
        let mut log = FetchLog::open(Arc::clone(&disk), path, 1 << 20, 2).unwrap();
        log.add(&attempt(1));
        log.flush().unwrap();
        let whole = text(&*disk, path);
        drop(log);
        disk.open(path, Mode::Append).unwrap().append(&[b'x'; 9_000]).unwrap();
        FetchLog::open(Arc::clone(&disk), path, 1 << 20, 2).unwrap();
        assert_eq!(text(&*disk, path), whole);
    }
}
