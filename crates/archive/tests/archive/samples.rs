//! Captures to write, and what must come back.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use nephila_archive::{
    Capture, Compression, Content, Error, Options, Pointer, Truncated, WarcWriter, verify,
};
use nephila_disk::Disk;

/// A response as a server sends it, and as it must be archived.
pub(crate) struct Sample {
    pub(crate) url: String,
    pub(crate) wire: Vec<u8>,
    pub(crate) archived: Vec<u8>,
    pub(crate) truncated: Option<Truncated>,
    pub(crate) spilled: bool,
}

/// Every way to compress.
pub(crate) const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zstd];

pub(crate) const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: example.com\r\nUser-Agent: test\r\n\r\n";

/// Midnight, plus some milliseconds.
pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + ms).unwrap()
}

pub(crate) fn options(roll_bytes: u64, compression: Compression) -> Options {
    Options {
        prefix: "test".to_owned(),
        shard: 3,
        roll_bytes,
        compression,
        info: vec![("software".to_owned(), "test".to_owned()), ("robots".to_owned(), "rfc9309".to_owned())],
    }
}

impl Sample {
    pub(crate) fn new(url: &str, wire: impl Into<Vec<u8>>) -> Sample {
        let wire = wire.into();
        Sample { url: url.to_owned(), archived: wire.clone(), wire, truncated: None, spilled: false }
    }

    pub(crate) fn spilled(mut self) -> Sample {
        self.spilled = true;
        self
    }

    pub(crate) fn append(&self, writer: &mut WarcWriter, now: Timestamp) -> Result<Pointer, Error> {
        let response = if self.spilled {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&self.wire).unwrap();
            // The length is what counts, not the end of the file.
            file.write_all(b"beyond").unwrap();
            Content::Spilled(file, self.wire.len() as u64)
        } else {
            Content::Memory(self.wire.clone())
        };
        let capture = Capture {
            target_uri: &self.url,
            date: now,
            ip: Some("127.0.0.1".parse().unwrap()),
            protocol: self.spilled.then_some("h2"),
            request: REQUEST,
            response,
            truncated: self.truncated,
            metadata: &[("via", "http://example.com/".to_owned()), ("depth", "1".to_owned())],
        };
        writer.append(&capture, now)
    }
}

/// Bytes that do not compress, the same for the same seed.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| step()).collect()
}

pub(crate) fn plain(url: &str, body: &[u8]) -> Sample {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Sample::new(url, [head.as_bytes(), body].concat())
}

pub(crate) fn chunked(url: &str, body: &[u8], chunk: usize) -> Sample {
    let mut wire =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for data in body.chunks(chunk) {
        wire.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        wire.extend_from_slice(data);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    Sample::new(url, wire)
}

/// Everything that servers do.
pub(crate) fn all() -> Vec<Sample> {
    let big = noise(3 << 20, 1);
    let mut cut = plain("http://example.com/cut", b"hello");
    cut.wire.extend_from_slice(b"trailing garbage");
    let mut interim = plain("http://example.com/interim", b"hello");
    interim.wire = [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", &interim.wire[..]].concat();
    let mut short =
        Sample::new("http://example.com/short", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort");
    short.truncated = Some(Truncated::Disconnect);
    let mut broken = chunked("http://example.com/broken", b"some data in chunks", 7);
    broken.wire.truncate(broken.wire.len() - 9);
    broken.archived.clone_from(&broken.wire);
    broken.truncated = Some(Truncated::Time);
    let mut long = plain("http://example.com/long", &noise(100_000, 2)).spilled();
    long.truncated = Some(Truncated::Length);
    vec![
        plain("http://www.example.com/", b"<html>hello</html>"),
        plain("https://example.com:8443/A/../b?z=1&a=2#not-sent", b""),
        Sample::new(
            "http://example.com/gone",
            "HTTP/1.0 404 Not Found\r\ncontent-type:text/html\r\n\r\nnothing",
        ),
        Sample::new("http://example.com/moved", "HTTP/1.1 301 \r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
        Sample::new("http://example.com/head-only", "HTTP/1.1 200 OK\r\nX-Y: z"),
        Sample::new("http://example.com/no-http", "SSH-2.0-OpenSSH_9.2\r\n\r\nwhat"),
        Sample::new("http://example.com/no-status", "HTTP/1.1\r\nA: b\r\n\r\nbody"),
        Sample::new("http://example.com/word", "hello"),
        Sample::new("http://example.com/bytes", b"\xff\xfe\x00\n\n\x00\xff".to_vec()),
        Sample::new(
            "http://example.com/latin",
            b"HTTP/1.1 200 OK\r\nContent-Type: te\xe9t/\xfcx;a\r\n\r\nx".to_vec(),
        ),
        Sample::new(
            "http://example.com/utf",
            "HTTP/1.1 200 OK\r\nContent-Type: \u{e9}\u{1f577}\"\\ x\r\n\r\nx",
        ),
        Sample::new("http://example.com/empty-type", "HTTP/1.1 200 OK\r\nContent-Type:\r\n\r\nx"),
        Sample::new(
            "http://example.com/folded",
            "HTTP/1.1 200 OK\r\nX: 1\r\nContent-Type: a/\r\n b\r\n\r\nx",
        ),
        Sample::new(
            "http://example.com/odd-lines",
            "HTTP/1.1 200 OK\r\nrubbish\r\n  X: 1\r\nContent-Type : a/b\r\n \r\nx",
        ),
        Sample::new("http://example.com/304", "HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
        chunked("http://example.com/chunked", b"some data in chunks", 7),
        chunked("http://example.com/chunked-big", &big, 100_000).spilled(),
        chunked("http://example.com/chunked-empty", b"", 7),
        plain("http://example.com/big", &big),
        plain("http://example.com/big-spilled", &big).spilled(),
        plain("http://example.com/zeros", &vec![0; 4 << 20]).spilled(),
        plain("http://127.0.0.1:8080/a%20b/%7Ec?x=%C3%A9&PHPSESSID=0123456789abcdef0123456789abcdef", b"x"),
        plain("http://[::1]/", b"x"),
        plain("http://xn--bcher-kva.example./", b"x"),
        cut,
        interim,
        short,
        broken,
        long,
    ]
}

/// Every WARC file of a directory is finished, indexed and in order.
pub(crate) fn check_dir(disk: &Arc<dyn Disk>, dir: &Path) {
    let names: Vec<_> = disk.list(dir).unwrap();
    for path in &names {
        let name = path.to_str().unwrap();
        assert!(
            [".warc", ".warc.gz", ".warc.zst", ".cdxj"].iter().any(|end| name.ends_with(end)),
            "left over: {name}"
        );
        if !name.ends_with(".cdxj") {
            let report = verify(&**disk, path).unwrap();
            assert!(report.is_ok(), "{name}: {report:?}");
            assert!(report.responses > 0, "{name} holds no capture");
            let (stem, _) = name.rsplit_once(".warc").unwrap();
            let index = stem.to_owned() + ".cdxj";
            assert!(names.contains(&index.clone().into()), "{index} is missing");
        }
    }
    let warcs = names.iter().filter(|path| path.extension().is_some_and(|ext| ext != "cdxj")).count();
    assert_eq!(warcs * 2, names.len(), "an index without a file");
}
