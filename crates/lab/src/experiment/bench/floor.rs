//! What the parts of a page cost alone: to fetch it, to find its tags, to digest and to compress what is archived of it.
//!
//! Everything is done with the bytes of a crawl that was just measured, on the same processor and in the same way, and
//! with nothing around it. The sum is a floor under what a crawler that uses these libraries can cost.

use std::{
    cell::RefCell, convert::Infallible, fs::File, hint::black_box, io::BufReader, path::Path, rc::Rc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use html5gum::{Emitter, Error, State, Tokenizer};
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use libdeflater::{CompressionLvl, Compressor};
use nephila_archive::{Reader, RecordHead, http::payload};
use serde::Serialize;
use sha1::{Digest as _, Sha1};
use tokio::{
    net::TcpStream,
    task::{JoinSet, LocalSet},
};

use super::super::{archive::files, process::thread_cpu};
use crate::web::Web;

/// Captures that are looked at.
const CAPTURES_MAX: usize = 1_000;
/// Room for a compressed record.
const MEMBER_BYTES_MAX: usize = 64 << 10;
/// Records up to this size are stored in their gzip members as they are, or packed with the level below: as the archive does
/// it.
const SHORT_BYTES_MAX: usize = 1 << 10;
const SHORT_LEVEL: i32 = -1;
/// Each part is done again and again for at least this long.
const LASTS: Duration = Duration::from_millis(800);
/// The level of both: the lowest.
const LEVEL: u32 = 1;

/// Processor time of a page, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Floor {
    /// Every request of the crawl over connections that are kept, by hyper.
    pub fetch_us: f64,
    /// Every tag, by html5gum.
    pub html_us: f64,
    /// The digests of all blocks and of the payload.
    pub digests_us: f64,
    /// All records, a gzip member each, by libdeflate.
    pub gzip_us: f64,
    /// All records, a zstd frame each.
    pub zstd_us: f64,
    /// How much smaller gzip makes a response.
    pub gzip_ratio: f64,
}

impl Floor {
    pub(super) fn with_gzip_us(&self) -> f64 {
        self.fetch_us + self.html_us + self.digests_us + self.gzip_us
    }

    pub(super) fn with_zstd_us(&self) -> f64 {
        self.fetch_us + self.html_us + self.digests_us + self.zstd_us
    }
}

/// Measures the parts on this thread, with the bytes of an archive and the web that they came from.
pub(super) fn floor(web: &Web, archive: &Path, connections: usize) -> anyhow::Result<Floor> {
    let captures = captures(archive)?;
    let pages = captures.len() as f64;
    let fetch_us = fetch(web, connections)?;
    let mut member = vec![0; MEMBER_BYTES_MAX];
    let mut deflate = Gzip::new();
    let (mut plain_bytes, mut packed_bytes) = (0, 0);
    for capture in &captures {
        let record = &capture.records[0];
        packed_bytes += deflate.pack(record, &mut member)?;
        plain_bytes += record.len();
    }
    let mut zstd = zstd_compressor(LEVEL as i32)?;
    let mut zstd_short = zstd_compressor(SHORT_LEVEL)?;
    Ok(Floor {
        fetch_us,
        html_us: each(&captures, |capture| {
            let Ok(()) = Tokenizer::new_with_emitter(&capture.html[..], Tags::default()).finish();
            Ok(())
        })? / pages,
        digests_us: each(&captures, |capture| {
            black_box(Sha1::digest(&capture.payload));
            capture.blocks.iter().for_each(|block| {
                black_box(Sha1::digest(block));
            });
            Ok(())
        })? / pages,
        gzip_us: each(&captures, |capture| {
            for record in &capture.records {
                black_box(deflate.pack(record, &mut member)?);
            }
            Ok(())
        })? / pages,
        zstd_us: each(&captures, |capture| {
            for record in &capture.records {
                let zstd = if record.len() <= SHORT_BYTES_MAX { &mut zstd_short } else { &mut zstd };
                black_box(zstd.compress_to_buffer(record, &mut member[..])?);
            }
            Ok(())
        })? / pages,
        gzip_ratio: plain_bytes as f64 / packed_bytes.max(1) as f64,
    })
}

/// What was archived of a page.
struct Capture {
    /// Response, request and metadata, as they are before compression.
    records: Vec<Vec<u8>>,
    blocks: Vec<Vec<u8>>,
    payload: Vec<u8>,
    /// The payload without content coding.
    html: Vec<u8>,
}

fn captures(archive: &Path) -> anyhow::Result<Vec<Capture>> {
    let mut captures: Vec<Capture> = Vec::new();
    for path in files(archive)? {
        let mut reader = Reader::new(BufReader::new(File::open(&path)?));
        while let Some(head) = reader.next()? {
            let mut block = Vec::new();
            loop {
                match reader.next_piece()? {
                    [] => break,
                    piece => block.extend_from_slice(piece),
                }
            }
            let is_page = |head: &RecordHead| {
                head.kind() == "response"
                    && !head.get("WARC-Target-URI").is_some_and(|uri| uri.ends_with("/robots.txt"))
            };
            let record = [plain_head(&head).as_slice(), &block, b"\r\n\r\n"].concat();
            match captures.last_mut() {
                _ if is_page(&head) => {
                    if captures.len() == CAPTURES_MAX {
                        return Ok(captures);
                    }
                    let payload = payload(&block);
                    let html = if payload.starts_with(b"\x1f\x8b") {
                        std::io::read_to_string(flate2::read::GzDecoder::new(&payload[..]))?.into_bytes()
                    } else {
                        payload.clone()
                    };
                    captures.push(Capture { records: vec![record], blocks: vec![block], payload, html });
                }
                Some(capture)
                    if matches!(head.kind(), "request" | "metadata") && capture.records.len() < 3 =>
                {
                    capture.records.push(record);
                    capture.blocks.push(block);
                }
                _ => {}
            }
        }
    }
    ensure!(!captures.is_empty(), "there is no page in {}", archive.display());
    Ok(captures)
}

/// The head of a record as the writer wrote it.
fn plain_head(head: &RecordHead) -> Vec<u8> {
    let fields: String = head.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("WARC/1.1\r\n{fields}\r\n").into_bytes()
}

/// Does something with every capture, again and again, and says how many microseconds one round takes.
fn each(captures: &[Capture], mut what: impl FnMut(&Capture) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut rounds = 0;
    let begun = thread_cpu();
    loop {
        captures.iter().try_for_each(&mut what)?;
        rounds += 1;
        let took = thread_cpu() - begun;
        if took >= LASTS {
            return Ok(took.as_secs_f64() * 1e6 / f64::from(rounds));
        }
    }
}

/// With a checksum, as the archive has it.
fn zstd_compressor(level: i32) -> anyhow::Result<zstd::bulk::Compressor<'static>> {
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

struct Gzip {
    stored: Compressor,
    packed: Compressor,
}

impl Gzip {
    fn new() -> Gzip {
        let level =
            |level: u32| CompressionLvl::new(level as i32).expect("libdeflate has the levels 0 to 12");
        Gzip { stored: Compressor::new(level(0)), packed: Compressor::new(level(LEVEL)) }
    }

    fn pack(&mut self, record: &[u8], member: &mut [u8]) -> anyhow::Result<usize> {
        let compressor = if record.len() <= SHORT_BYTES_MAX { &mut self.stored } else { &mut self.packed };
        let packed = compressor.gzip_compress(record, member);
        packed.with_context(|| {
            format!("a record of {} bytes does not fit into {MEMBER_BYTES_MAX}", record.len())
        })
    }
}

/// Asks for every page of the web, and for every robots.txt first, and forgets what comes. Microseconds a page.
fn fetch(web: &Web, connections: usize) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let hosts = web.plan().hosts().map(|host| (host.name(), host.pages(), host.address()));
    let hosts: Rc<RefCell<Vec<_>>> = Rc::new(RefCell::new(hosts.collect()));
    let pages: u32 = hosts.borrow().iter().map(|(_, pages, _)| pages).sum();
    let port = web.http_port;
    let begun = thread_cpu();
    LocalSet::new().block_on(&runtime, async {
        let mut asking = JoinSet::new();
        for _ in 0..connections {
            let hosts = Rc::clone(&hosts);
            asking.spawn_local(async move {
                loop {
                    let Some((name, pages, address)) = hosts.borrow_mut().pop() else {
                        return anyhow::Ok(());
                    };
                    let stream = TcpStream::connect((address, port)).await?;
                    ask(stream, &format!("{name}:{port}"), pages).await?;
                }
            });
        }
        while let Some(asked) = asking.join_next().await {
            asked??;
        }
        anyhow::Ok(())
    })?;
    Ok((thread_cpu() - begun).as_secs_f64() * 1e6 / f64::from(pages))
}

async fn ask(stream: TcpStream, host: &str, pages: u32) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(connection);
    let mut target = "/robots.txt".to_owned();
    for page in 0..=pages {
        sender.ready().await?;
        let request = Request::get(target.as_str())
            .header("host", host)
            .header("user-agent", "Mozilla/5.0 (compatible; nephila-lab)")
            .header("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
            .header("accept-encoding", "gzip, deflate, br, zstd")
            .body(Empty::<Bytes>::new())?;
        let mut body = sender.send_request(request).await?.into_body();
        while let Some(frame) = body.frame().await {
            black_box(frame.context("an answer broke off")?);
        }
        target = if page == 0 { "/".to_owned() } else { format!("/p/{page}") };
    }
    Ok(())
}

/// Counts links and forgets everything: what an emitter has to do at least, so that the tokenizer does all its work.
#[derive(Default)]
struct Tags {
    is_end: bool,
    links: u64,
}

impl Emitter for Tags {
    type Token = Infallible;

    fn init_start_tag(&mut self) {
        self.is_end = false;
    }
    fn init_end_tag(&mut self) {
        self.is_end = true;
    }
    fn push_attribute_value(&mut self, text: &[u8]) {
        self.links += text.len() as u64;
    }
    fn emit_current_tag(&mut self) -> Option<State> {
        None
    }
    fn current_is_appropriate_end_tag_token(&mut self) -> bool {
        self.is_end
    }
    fn should_emit_errors(&mut self) -> bool {
        false
    }
    fn pop_token(&mut self) -> Option<Infallible> {
        None
    }
    fn emit_eof(&mut self) {
        black_box(self.links);
    }
    fn push_tag_name(&mut self, _: &[u8]) {}
    fn init_attribute(&mut self) {}
    fn push_attribute_name(&mut self, _: &[u8]) {}
    fn set_self_closing(&mut self) {}
    fn set_last_start_tag(&mut self, _: Option<&[u8]>) {}
    fn emit_error(&mut self, _: Error) {}
    fn emit_string(&mut self, _: &[u8]) {}
    fn init_comment(&mut self) {}
    fn push_comment(&mut self, _: &[u8]) {}
    fn emit_current_comment(&mut self) {}
    fn init_doctype(&mut self) {}
    fn push_doctype_name(&mut self, _: &[u8]) {}
    fn emit_current_doctype(&mut self) {}
    fn set_force_quirks(&mut self) {}
    fn set_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn set_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_system_identifier(&mut self, _: &[u8]) {}
}
