//! What is written is read back: by pointer, by index, in order.

use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nephila_archive::{
    Capture, CdxLine, Compression, Content, ErrorKind, ReadError, Reader, RecordHead, WarcWriter, http,
    lookup, merge, read_record, recover, surt, verify,
};
use nephila_disk::{Cursor, Disk, Mode, RealDisk, SimDisk};
use proptest::prelude::*;

use crate::samples::{COMPRESSIONS, REQUEST, all, check_dir, options, plain, time};

fn bytes(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    Cursor::new(disk.open(path, Mode::Read).unwrap(), 0).read_to_end(&mut bytes).unwrap();
    bytes
}

fn round_trip(disk: Arc<dyn Disk>, dir: &Path, roll_bytes: u64, compression: Compression) {
    let (mut writer, recovery) =
        WarcWriter::open(Arc::clone(&disk), dir.to_path_buf(), options(roll_bytes, compression)).unwrap();
    assert!(recovery.repaired.is_empty());
    let samples = all();
    let mut pointers = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        let pointer = sample.append(&mut writer, time(index as i64)).unwrap();
        assert!(writer.buffered_bytes() < 3 << 20, "the buffer is bounded");
        writer.flush().unwrap();
        let record = read_record(&*disk, dir, &pointer).unwrap();
        assert_eq!(record.block, sample.archived, "{} while open", sample.url);
        pointers.push(pointer);
    }
    writer.close().unwrap();
    check_dir(&disk, dir);

    let recovery = recover(&disk, dir).unwrap();
    let merged = dir.join("index.cdxj");
    assert_eq!(merge(&*disk, dir, &merged).unwrap(), samples.len() as u64);
    let text = String::from_utf8(bytes(&*disk, &merged)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(text.is_ascii() && lines.is_sorted());
    for (sample, pointer) in samples.iter().zip(&pointers) {
        assert!(recovery.holds(pointer));
        let record = read_record(&*disk, dir, pointer).unwrap();
        assert_eq!(record.block, sample.archived, "{}", sample.url);
        assert_eq!(record.payload(), http::payload(&sample.archived));
        let get = |name| record.head.get(name);
        assert_eq!(get("WARC-Target-URI"), Some(sample.url.as_str()));
        assert_eq!(get("WARC-Truncated").is_some(), sample.truncated.is_some());
        assert_eq!(get("warc-ip-address"), Some("127.0.0.1"));
        assert_eq!(get("WARC-Protocol"), sample.spilled.then_some("h2"));
        let found = lookup(&*disk, std::slice::from_ref(&merged), &sample.url).unwrap();
        let line = found.iter().find(|line| line.url == sample.url).expect(&sample.url);
        let length = u64::from(pointer.length) - if compression == Compression::None { 4 } else { 0 };
        assert_eq!((line.offset, line.length), (pointer.offset, length));
        assert_eq!(line.digest.as_deref(), get("WARC-Payload-Digest"));
        assert_eq!(line.key, surt(&sample.url));
        assert_eq!(line.timestamp, "20260101000000");
    }
    assert!(lookup(&*disk, &[merged], "http://example.com/never").unwrap().is_empty());
}

#[test]
fn captures_come_back() {
    let rolled = [(1, Compression::Gzip), (1 << 20, Compression::Gzip), (1 << 20, Compression::Zstd)];
    for (roll_bytes, compression) in COMPRESSIONS.map(|how| (1 << 30, how)).into_iter().chain(rolled) {
        let root = tempfile::tempdir().unwrap();
        round_trip(Arc::new(RealDisk), &root.path().join("warc"), roll_bytes, compression);
        round_trip(Arc::new(SimDisk::new(1)), Path::new("/sim/warc"), roll_bytes, compression);
    }
}

#[test]
fn the_records_of_a_capture_belong_together() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let dir = PathBuf::from("/warc");
    let (mut writer, _) =
        WarcWriter::open(Arc::clone(&disk), dir.clone(), options(1 << 30, Compression::None)).unwrap();
    plain("http://example.com/a b\r\nInjected: yes", b"x").append(&mut writer, time(7)).unwrap();
    assert_eq!(writer.file_name().unwrap(), "test-20260101000000-00000-003.warc");
    writer.close().unwrap();
    let path = dir.join("test-20260101000000-00000-003.warc");
    let text = String::from_utf8(bytes(&*disk, &path)).unwrap();
    let mut reader = Reader::new(text.as_bytes());
    let mut heads = Vec::new();
    while let Some(head) = reader.next().unwrap() {
        assert!(text[head.offset as usize..].starts_with("WARC/1.1\r\n"));
        heads.push(head);
    }
    assert_eq!(reader.position(), text.len() as u64);
    let kinds: Vec<&str> = heads.iter().map(|head| head.kind()).collect();
    assert_eq!(kinds, ["warcinfo", "response", "request", "metadata"]);
    let id = |index: usize| heads[index].get("WARC-Record-ID");
    for head in &heads[1..] {
        assert_eq!(head.get("WARC-Warcinfo-ID"), id(0));
        assert_eq!(head.get("WARC-Date"), Some("2026-01-01T00:00:00.007Z"));
        assert_eq!(head.get("WARC-Target-URI"), Some("http://example.com/a%20b%0D%0AInjected:%20yes"));
    }
    assert_eq!(heads[1].get("WARC-Concurrent-To"), id(2));
    assert_eq!(heads[2].get("WARC-Concurrent-To"), id(1));
    assert_eq!(heads[3].get("WARC-Concurrent-To"), id(1));
    assert_eq!(heads[0].get("WARC-Filename"), Some("test-20260101000000-00000-003.warc"));
    let ids: std::collections::BTreeSet<_> = heads.iter().map(|head| head.get("WARC-Record-ID")).collect();
    assert_eq!(ids.len(), 4);
    assert!(text.contains("software: test\r\nrobots: rfc9309\r\nformat: WARC File Format 1.1\r\n"));
    assert!(text.contains("via: http://example.com/\r\ndepth: 1\r\n"));
    assert!(text.contains(std::str::from_utf8(REQUEST).unwrap()));
}

#[test]
fn what_is_no_response_is_refused() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let (mut writer, _) =
        WarcWriter::open(Arc::clone(&disk), "/warc".into(), options(1 << 30, Compression::Gzip)).unwrap();
    for wire in ["", "\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let error = crate::samples::Sample::new("http://example.com/", wire)
            .append(&mut writer, time(0))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
    }
    let lost = Capture {
        target_uri: "http://example.com/",
        date: time(0),
        ip: None::<IpAddr>,
        protocol: None,
        request: b"",
        response: Content::Spilled(tempfile::tempfile().unwrap(), 100),
        truncated: None,
        metadata: &[],
    };
    assert_eq!(writer.append(&lost, time(0)).unwrap_err().kind(), ErrorKind::Io);
    writer.close().unwrap();
    assert!(disk.list(Path::new("/warc")).unwrap().is_empty(), "no file without a capture");
    let mut bad = options(1, Compression::Gzip);
    bad.prefix = "../x".to_owned();
    assert!(WarcWriter::open(disk, "/warc".into(), bad).is_err());
}

#[test]
fn shards_share_a_directory() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let dir = PathBuf::from("/warc");
    let mut pointers = Vec::new();
    for round in 0..3 {
        let recovery = recover(&disk, &dir).unwrap();
        assert!(pointers.iter().all(|(_, pointer)| recovery.holds(pointer)));
        let start = |shard| {
            let options = nephila_archive::Options { shard, ..options(1 << 30, Compression::Gzip) };
            WarcWriter::start(Arc::clone(&disk), dir.clone(), options, &recovery).unwrap()
        };
        let mut writers = [start(0), start(1)];
        for (shard, writer) in writers.iter_mut().enumerate() {
            let sample = plain(&format!("http://example.com/{round}/{shard}"), b"x");
            let pointer = sample.append(writer, time(0)).unwrap();
            pointers.push((sample, pointer));
            writer.flush().unwrap();
        }
        // Dropped, not closed: the next round finds open files.
    }
    recover(&disk, &dir).unwrap();
    check_dir(&disk, &dir);
    for (sample, pointer) in &pointers {
        assert_eq!(read_record(&*disk, &dir, pointer).unwrap().block, sample.archived);
    }
}

/// More lines than fit in memory, more files than are merged at once.
#[test]
fn large_indexes_are_sorted_and_merged() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let dir = PathBuf::from("/warc");
    let (mut writer, _) =
        WarcWriter::open(Arc::clone(&disk), dir.clone(), options(1 << 30, Compression::Gzip)).unwrap();
    let long = "x".repeat(8000);
    for index in 0..1200 {
        let capture = Capture {
            target_uri: &format!("http://example.com/{}/{long}", index * 7 % 1200),
            date: time(0),
            ip: None,
            protocol: None,
            request: b"",
            response: Content::Memory(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
            truncated: None,
            metadata: &[],
        };
        writer.append(&capture, time(0)).unwrap();
    }
    writer.close().unwrap();
    check_dir(&disk, &dir);
    let (mut writer, _) =
        WarcWriter::open(Arc::clone(&disk), dir.clone(), options(1, Compression::Gzip)).unwrap();
    for index in 0..150 {
        plain(&format!("http://example.org/{index}"), b"x").append(&mut writer, time(0)).unwrap();
    }
    writer.close().unwrap();
    let merged = dir.join("all.cdxj");
    for _ in 0..2 {
        assert_eq!(merge(&*disk, &dir, &merged).unwrap(), 1350);
    }
    let text = bytes(&*disk, &merged);
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    assert!(lines.len() == 1350 && lines.is_sorted());
    for index in [0, 1, 599, 1199] {
        let url = format!("http://example.com/{index}/{long}");
        let found = lookup(&*disk, std::slice::from_ref(&merged), &url).unwrap();
        assert_eq!(found.len(), 1, "{index}");
        assert_eq!(found[0].url, url);
    }
    assert!(disk.list(&dir).unwrap().iter().all(|path| !path.to_str().unwrap().contains("run")));
}

/// Files that another crawler wrote, compressed and not.
#[test]
fn other_writers_files_are_read() {
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/warc/whirlwind"));
    if !data.exists() {
        println!("skipped: no ../shared/data");
        return;
    }
    let mut found = Vec::new();
    for name in ["whirlwind.warc", "whirlwind.warc.gz"] {
        let report = verify(&RealDisk, &data.join(name)).unwrap();
        assert!(report.is_ok(), "{name}: {report:?}");
        assert_eq!((report.records, report.responses), (4, 1), "{name}");
        let bytes = bytes(&RealDisk, &data.join(name));
        let kinds = contents(&bytes).into_iter().map(|(head, block)| (head.kind().to_owned(), block));
        found.push(kinds.collect::<Vec<_>>());
    }
    assert!(found[0] == found[1]);
}

/// The reader notices every kind of damage, and `verify` reports it.
#[test]
fn damage_is_noticed() {
    for compression in COMPRESSIONS {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let dir = PathBuf::from("/warc");
        let (mut writer, _) =
            WarcWriter::open(Arc::clone(&disk), dir.clone(), options(1 << 30, compression)).unwrap();
        for index in 0..2 {
            plain(&format!("http://example.com/{index}"), &[b'a'; 100]).append(&mut writer, time(0)).unwrap();
        }
        let path = dir.join(writer.file_name().unwrap());
        writer.close().unwrap();
        let good = bytes(&*disk, &path);
        let damaged = |bytes: &[u8]| {
            let copy = dir.join("copy");
            let mut file = disk.open(&copy, Mode::Append).unwrap();
            file.truncate(0).unwrap();
            file.append(bytes).unwrap();
            verify(&*disk, &copy).unwrap()
        };
        assert!(damaged(&good).is_ok());
        let mut ends = Vec::new();
        let mut reader = Reader::new(&good[..]);
        while reader.next().unwrap().is_some() {
            reader.finish().unwrap();
            ends.push(reader.position() as usize);
        }
        for cut in 1..good.len() {
            // A cut between records is no damage.
            assert_eq!(damaged(&good[..cut]).is_ok(), ends.contains(&cut), "cut at {cut}");
            let mut holed = good.clone();
            holed[cut] = 0;
            let mut flipped = good.clone();
            flipped[cut] ^= 4;
            // Every third place will do.
            for (what, bytes) in [("hole", holed), ("flip", flipped)].into_iter().filter(|_| cut % 3 == 0) {
                // Some bits of compressed files mean nothing, and may be any. Plain heads have no checksum: what guards
                // them finds holes.
                let noticed = !damaged(&bytes).is_ok()
                    || compression != Compression::None && contents(&bytes) == contents(&good)
                    || compression == Compression::None && (what == "flip" || bytes == good);
                assert!(noticed, "{compression:?}: {what} at {cut}");
            }
        }
        if compression == Compression::None {
            let mut wrong = good.clone();
            let at = good.windows(5).position(|window| window == b"aaaaa").unwrap();
            wrong[at] = b'b';
            let report = damaged(&wrong);
            assert_eq!(report.problem_count, 2, "block and payload: {report:?}");
        }
    }
}

/// All records, with their blocks.
fn contents(file: &[u8]) -> Vec<(RecordHead, Vec<u8>)> {
    let mut reader = Reader::new(file);
    let mut contents = Vec::new();
    while let Some(head) = reader.next().unwrap() {
        let mut block = Vec::new();
        while let piece @ [_, ..] = reader.next_piece().unwrap() {
            block.extend_from_slice(piece);
        }
        contents.push((head, block));
    }
    contents
}

proptest! {
    #[test]
    fn parsers_survive_anything(mut bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0..5) {
        let start: &[u8] = match kind {
            0 => b"WARC/1.1\r\nContent-Length: 7\r\n\r\n",
            1 => &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3],
            2 => &[0x28, 0xb5, 0x2f, 0xfd],
            3 => b"com,example)/ 20260101000000 {",
            _ => b"",
        };
        bytes.splice(..0, start.iter().copied());
        let mut reader = Reader::new(&bytes[..]);
        let mut records = 0;
        loop {
            match reader.next() {
                Ok(Some(_)) => records += 1,
                Ok(None) => break,
                Err(ReadError::Io(error)) => return Err(TestCaseError::fail(error.to_string())),
                Err(_) => break,
            }
        }
        prop_assert!(records <= bytes.len());
        CdxLine::parse(&bytes);
        http::payload(&bytes);
    }

    #[test]
    fn index_lines_round_trip(
        url in "\\PC{0,40}",
        mime in prop::option::of(any::<String>()),
        status in prop::option::of("[0-9]{3}"),
        offset: u64,
        length: u64,
    ) {
        let line = CdxLine {
            key: surt("http://example.com/"),
            timestamp: "20260101000000".to_owned(),
            url, mime, status, digest: None, length, offset,
            filename: "a.warc.gz".to_owned(),
        };
        let text = line.to_string();
        prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        prop_assert_eq!(CdxLine::parse(text.as_bytes()), Some(line));
    }
}
