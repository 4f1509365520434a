//! Transfer and content codings, right and wrong, and bombs.

use std::{io::Write as _, sync::LazyLock};

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};

use super::{ATTEMPTS_MAX, Kind, PLAIN, Special};
use crate::web::{
    plan::{Host, Plan, Rule, Visit},
    reply::{After, Reply, head},
    text::small_page,
};

/// What a bomb unfolds to: more than any limit on decoding.
const BOMB_BYTES: usize = 72 * 1024 * 1024;
/// Bombs of formats that allow it are made of copies of one part.
const BOMB_PART_BYTES: usize = 1024 * 1024;

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "chunked",
            about: "chunks of every lawful sort: the pages behind their links are found",
            specials: |_| CHUNKINGS.into_iter().flat_map(chunked).collect(),
            ..PLAIN
        },
        Kind {
            name: "chunked-bad",
            about: "chunks that break the rules: tried four times at most",
            specials: bad_chunks,
            ..PLAIN
        },
        Kind {
            name: "coded",
            about: "gzip, deflate with and without zlib, br and zstd: the pages behind their links are found",
            specials: |_| CODINGS.into_iter().flat_map(coded).collect(),
            ..PLAIN
        },
        Kind {
            name: "coded-wrong",
            about: "codings that are not what is said, unknown or broken: results, asked for once",
            specials: wrongly_coded,
            ..PLAIN
        },
        Kind {
            name: "bombs",
            about: "a bomb of each coding: fetched once, not unfolded",
            specials: |_| CODINGS.into_iter().filter_map(bomb).collect(),
            ..PLAIN
        },
    ]
}

type Encode = fn(&[u8]) -> Vec<u8>;

const CODINGS: [(&str, &str, Encode); 5] = [
    ("gzip", "gzip", gzip),
    ("deflate", "deflate", zlib),
    ("deflate-raw", "deflate", deflate),
    ("br", "br", brotli),
    ("zstd", "zstd", zstandard),
];

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to a Vec cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn brotli(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 64 * 1024, 2, 22);
    let _ = encoder.write_all(bytes);
    encoder.into_inner()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).unwrap_or_default()
}

/// A page, and one behind it that only what it says leads to.
fn pair(name: &str, answer: impl Fn(&Visit<'_>, &str) -> Reply + 'static) -> [Special; 2] {
    let inside = format!("/inside/{name}");
    let link = format!("<a href=\"{inside}\">inside</a>");
    [
        Special::page(&format!("/coded/{name}"), Rule::Expected)
            .answering(move |visit| answer(visit, &small_page(&visit.host, visit.target, &link))),
        Special::page(&inside, Rule::Expected).unlinked(),
    ]
}

fn coded((name, token, encode): (&'static str, &'static str, Encode)) -> [Special; 2] {
    pair(name, move |_, page| {
        let headers = format!("Content-Type: text/html\r\nContent-Encoding: {token}\r\n");
        Reply::with_headers(200, &headers, &encode(page.as_bytes()))
    })
}

type Chunking = fn(&[u8]) -> Vec<u8>;

const CHUNKINGS: [(&str, &str, Chunking); 6] = [
    ("one", "", |body| chunks(body, usize::MAX, |len| format!("{len:x}"), "")),
    ("small", "", |body| chunks(body, 7, |len| format!("{len:x}"), "")),
    ("extensions", "", |body| chunks(body, 50, |len| format!("{len:X};name=value;flag;q=\"a b\""), "")),
    ("zeros", "", |body| chunks(body, 50, |len| format!("{len:08x}"), "")),
    ("trailers", "Trailer: X-Sum\r\n", |body| {
        chunks(body, 50, |len| format!("{len:x}"), "X-Sum: 1\r\nX-More: 2\r\n")
    }),
    ("gzip", "Content-Encoding: gzip\r\n", |body| chunks(&gzip(body), 50, |len| format!("{len:x}"), "")),
];

fn chunks(body: &[u8], size: usize, line: fn(usize) -> String, trailers: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in body.chunks(size) {
        bytes.extend_from_slice(format!("{}\r\n", line(chunk.len())).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    bytes
}

fn chunked_head(headers: &str) -> Vec<u8> {
    head(200, &format!("Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n{headers}\r\n"))
}

fn chunked((name, headers, chunking): (&'static str, &'static str, Chunking)) -> [Special; 2] {
    pair(name, move |_, page| {
        let mut bytes = chunked_head(headers);
        bytes.extend_from_slice(&chunking(page.as_bytes()));
        Reply::raw(bytes)
    })
}

fn bad_chunks(_: &Host<'_>) -> Vec<Special> {
    let cases = [
        ("not-hex", "xyz\r\n<p>hello</p>\r\n0\r\n\r\n"),
        ("overflow", "ffffffffffffffffff\r\n<p>hello</p>\r\n0\r\n\r\n"),
        ("negative", "-5\r\n<p>hello</p>\r\n0\r\n\r\n"),
        ("no-end-of-chunk", "5\r\nhello6\r\nworld!\r\n0\r\n\r\n"),
        ("long-line", ""),
    ];
    let special = |(name, body): (&str, &'static str)| {
        Special::page(&format!("/chunks/{name}"), Rule::Tried(ATTEMPTS_MAX)).answering(move |_| {
            let mut bytes = chunked_head("");
            match body {
                "" => bytes
                    .extend_from_slice(format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(100_000)).as_bytes()),
                body => bytes.extend_from_slice(body.as_bytes()),
            }
            Reply::raw(bytes).fails().then(After::Close)
        })
    };
    cases.map(special).into()
}

fn wrongly_coded(_: &Host<'_>) -> Vec<Special> {
    let page = b"<!doctype html><p>some page</p>";
    let mut corrupt = gzip(&page.repeat(100));
    let middle = corrupt.len() / 2;
    corrupt[middle] ^= 0xff;
    let mut cut = gzip(&page.repeat(100));
    cut.truncate(40);
    let cases = [
        ("not-gzip", "gzip", page.to_vec()),
        ("not-br", "br", page.to_vec()),
        ("not-zstd", "zstd", page.to_vec()),
        ("unknown", "x-unheard-of", page.to_vec()),
        ("corrupt", "gzip", corrupt),
        ("cut", "gzip", cut),
        ("twice", "gzip, gzip", gzip(&gzip(page))),
        ("identity", "identity", page.to_vec()),
        ("empty", "gzip", Vec::new()),
    ];
    let special = |(name, token, body): (&str, &'static str, Vec<u8>)| {
        Special::page(&format!("/wrong/{name}"), Rule::Expected).answering(move |_| {
            let headers = format!("Content-Type: text/html\r\nContent-Encoding: {token}\r\n");
            Reply::with_headers(200, &headers, &body)
        })
    };
    cases.map(special).into()
}

/// The bombs, in the order of the codings. Made once.
static BOMBS: LazyLock<[Vec<u8>; 5]> = LazyLock::new(|| {
    let part = vec![0; BOMB_PART_BYTES];
    let copies = BOMB_BYTES / BOMB_PART_BYTES;
    let whole = vec![0; BOMB_BYTES];
    [
        // Members and frames may follow each other.
        gzip(&part).repeat(copies),
        zlib(&whole),
        deflate(&whole),
        brotli(&whole),
        zstandard(&part).repeat(copies),
    ]
});

fn bomb((name, token, _): (&'static str, &'static str, Encode)) -> Option<Special> {
    let number = CODINGS.iter().position(|coding| coding.0 == name)?;
    Some(Special::page(&format!("/bomb/{name}"), Rule::Expected).answering(move |_| {
        let headers = format!("Content-Type: text/html\r\nContent-Encoding: {token}\r\n");
        Reply::with_headers(200, &headers, &BOMBS[number])
    }))
}

/// Makes what takes long beforehand, so that no host has to wait for it.
pub(crate) fn prepare(plan: &Plan) {
    if plan.hosts().any(|host| host.kind.name == "bombs") {
        LazyLock::force(&BOMBS);
    }
}
