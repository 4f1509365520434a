//! What the fuzzer does with its bytes: one function a parser.
//!
//! None may panic on any bytes, and each asserts what its parser promises beyond that. The targets in `fuzz_targets/`
//! feed them what the fuzzer invents; the test `corpora` of the crate `nephila` feeds them every file of `corpus/` in
//! each run of the tests, so that what was found once stays found.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use nephila_archive::http::Splitter;
use nephila_archive::{CdxLine, ReadError, Reader, Record, recover, surt, verify};
use nephila_core::parse::html::LINKS_MAX;
use nephila_core::parse::sitemap::ENTRIES_MAX;
use nephila_core::parse::{Link, content, html as pages, sitemap as sitemaps};
use nephila_core::robots::{CRAWL_DELAY_MAX, ROBOTS_BYTES_MAX, Robots, SITEMAPS_MAX};
use nephila_core::time::Wall;
use nephila_core::url::traps::TrapLimits;
use nephila_core::url::{
    AddressKey, CleanUrl, Fingerprint, Host, Origin, Url, addresses, clean, key, parse_seed, traps,
};
use nephila_disk::{Disk, Mode, SimDisk};
use nephila_node::fetch::decode::{DecodeLimits, codings, decode};
use nephila_node::fetch::head::Head;

const TOKEN: &str = "nephila";
/// How many lines of a robots.txt are tried as paths.
const PATHS_MAX: usize = 64;
/// A name that the archive takes for one of its own files.
const WARC_NAME: &str = "fuzz-20260101000000-00000-000.warc.gz";

fn base() -> Url {
    Url::parse("http://a.example/dir/page?q#f").expect("it is a URL")
}

fn assert_clean(link: &Link) {
    let parsed = Url::parse(link.url.as_str()).ok().and_then(clean);
    assert_eq!(parsed.map(CleanUrl::from).as_ref(), Some(&link.url), "links are clean");
}

/// A URL as a person types it, and as a page refers to it.
pub fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let typed = parse_seed(&text).ok();
    let linked = base().join(&text).ok().and_then(clean);
    for url in typed.into_iter().chain(linked) {
        assert_eq!(clean(url.clone()).as_ref(), Some(&url), "cleaning twice is cleaning once");
        let key_url = Url::parse(&key(&url)).expect("a key is a URL");
        assert_eq!(key(&key_url), key(&url), "the key of a key is that key");
        assert_eq!(Fingerprint::of(&key_url), Fingerprint::of(&url));
        assert!(clean(key_url).is_some(), "a key can be fetched");
        let origin = Origin::of(&url);
        assert_eq!(Origin::of(&origin.robots_url()), origin, "a robots.txt lies on the origin it speaks for");
        assert_eq!(Host::parse(origin.host.as_str()).as_ref(), Some(&origin.host), "a host can be read back");
        if let Some(ip) = origin.host.ip() {
            addresses::special(ip);
            AddressKey::of(ip);
        }
        // Either verdict is fine.
        let _ = traps::check(&url.into(), &TrapLimits::default());
    }
    if let Some(host) = Host::parse(&text) {
        assert_eq!(Host::parse(host.as_str()).as_ref(), Some(&host), "a host can be read back");
    }
}

/// A robots.txt, asked about paths that its own lines name.
pub fn robots(data: &[u8]) {
    let robots = Robots::parse(data, TOKEN);
    assert!(robots.sitemaps.len() <= SITEMAPS_MAX);
    assert!(robots.crawl_delay.is_none_or(|delay| delay <= CRAWL_DELAY_MAX));
    assert!(robots.decide("/robots.txt").allowed);
    if data.len() < ROBOTS_BYTES_MAX {
        let ended = [data, b"\n"].concat();
        assert_eq!(Robots::parse(&ended, TOKEN), robots, "a line needs no end");
    }
    let lines = data.split(|byte| matches!(byte, b'\r' | b'\n'));
    for line in lines.take(PATHS_MAX).map(String::from_utf8_lossy) {
        let value = line.split_once(':').map_or(&*line, |(_, value)| value).trim();
        let path = format!("/{}", value.strip_prefix('/').unwrap_or(value));
        if let Some(rule) = robots.decide(&path).rule {
            assert!((1..=data.len()).contains(&(rule.line as usize)), "a rule has a line of the file");
        }
    }
}

/// A page of HTML, in the charset that it names or in another.
pub fn html(data: &[u8]) {
    content::kind(None, data);
    let text = String::from_utf8_lossy(data);
    content::kind(Some(&text), data);
    for hint in [None, Some("windows-1252"), Some("shift_jis"), Some("utf-16le")] {
        let page = pages::html(data, hint, &base(), TOKEN);
        assert!(page.links.len() <= LINKS_MAX);
        let mut met = HashSet::new();
        for link in page.links {
            assert_clean(&link);
            assert!(met.insert((link.url, link.nofollow)), "a link is there once");
        }
    }
}

/// A sitemap, as XML or as text.
pub fn sitemap(data: &[u8]) {
    let found = sitemaps::sitemap(data, &base());
    assert!(found.pages.len() + found.sitemaps.len() <= ENTRIES_MAX);
    for url in found.pages.into_iter().chain(found.sitemaps) {
        assert_eq!(clean(url.clone()), Some(url), "entries are clean");
    }
}

/// The whole records of a WARC file with their blocks, and how it ends.
fn records(source: impl BufRead) -> (Vec<Record>, Result<(), ReadError>) {
    let mut reader = Reader::new(source);
    let mut found = Vec::new();
    let mut next = || -> Result<Option<Record>, ReadError> {
        let Some(head) = reader.next()? else { return Ok(None) };
        let mut block = Vec::new();
        loop {
            match reader.next_piece()? {
                [] => break,
                piece => block.extend_from_slice(piece),
            }
        }
        assert_eq!(block.len() as u64, head.block_bytes, "a block is as long as its head says");
        reader.finish()?;
        Ok(Some(Record { head, block }))
    };
    loop {
        match next() {
            Ok(Some(record)) => found.push(record),
            Ok(None) => return (found, Ok(())),
            Err(error) => return (found, Err(error)),
        }
    }
}

/// A WARC file: read, recovered as if a crash had left it, and verified.
pub fn warc(data: &[u8]) {
    let (found, end) = records(data);
    let (found_bytewise, end_bytewise) = records(BufReader::with_capacity(1, data));
    assert_eq!(found, found_bytewise, "it does not matter how the bytes arrive");
    // Of several mistakes another one may be met first.
    assert_eq!(end.is_ok(), end_bytewise.is_ok());

    let dir = Path::new("/archive");
    let path = dir.join(WARC_NAME);
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(0));
    disk.create_dir_all(dir).expect("this disk does not fail");
    let mut file = disk.open(&path.with_extension("gz.open"), Mode::Create).expect("this disk does not fail");
    file.append(data).expect("this disk does not fail");
    recover(&disk, dir).expect("recovery copes with any content");
    let again = recover(&disk, dir).expect("recovery copes with any content");
    assert!(again.repaired.is_empty(), "what was recovered needs no repair");
    if disk.open(&path, Mode::Read).is_ok() {
        let report = verify(&*disk, &path).expect("this disk does not fail");
        assert!((1..=found.len() as u64).contains(&report.records), "recovery keeps whole records only");
    }
}

/// What a server answers: a head, and a body in the codings that the head names.
pub fn http_head(data: &[u8]) {
    let (mut payload, mut payload_bytewise) = (Vec::new(), Vec::new());
    let mut splitter = Splitter::wire(false);
    splitter.feed(data, &mut payload);
    let split = splitter.finish(&mut payload);
    let mut splitter = Splitter::wire(false);
    for byte in data {
        if !splitter.feed(std::slice::from_ref(byte), &mut payload_bytewise) {
            break;
        }
    }
    let split_bytewise = splitter.finish(&mut payload_bytewise);
    assert_eq!(payload, payload_bytewise, "it does not matter how the bytes arrive");
    assert_eq!(
        (split.start, split.end, &split.head, split.chunked),
        (split_bytewise.start, split_bytewise.end, &split_bytewise.head, split_bytewise.chunked)
    );
    assert!(split.start <= split.end && split.end <= data.len() as u64);

    let Some(head) = Head::parse(&split.head) else { return };
    head.answer(Wall(1_800_000_000_000));
    head.directives(TOKEN);
    head.charset();
    for link in head.links(&base()) {
        assert_clean(&link);
    }
    let bytes_max = DecodeLimits { bytes_max: 4 << 20, ratio_max: 100 }.for_body(payload.len());
    let (decoded, _) = decode(&payload, &codings(head.all("content-encoding")), bytes_max);
    assert!(decoded.len() <= bytes_max, "decoding keeps to its limit");
}

/// A line of an index, and a URL to make a key of.
pub fn cdxj(data: &[u8]) {
    if let Some(line) = CdxLine::parse(data) {
        assert_eq!(CdxLine::parse(line.to_string().as_bytes()), Some(line), "a line can be read back");
    }
    let text = String::from_utf8_lossy(data);
    surt(&text);
    if let Some(url) = Url::parse(&text).ok().and_then(clean) {
        let sort_key = surt(url.as_str());
        assert!(!sort_key.contains([' ', '\n']), "a key ends at the first space of its line: {sort_key:?}");
    }
}
