//! Compression: how records become what a file holds, one member or frame each.

use flate2::{Compress, FlushCompress, Status};
use libdeflater::{CompressionLvl, Compressor};
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective as Directive;
use zstd::zstd_safe::{self, CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

/// So much of a record is gathered before it is packed: nearly all are packed in one go, which is quicker.
const GATHERED_BYTES_MAX: usize = 256 << 10;
/// Room for what is packed in one step.
const PACKED_BYTES: usize = 64 << 10;
/// The lowest level: a crawler archives faster than higher ones compress.
const LEVEL: u8 = 1;
/// Records up to this size are packed lightly: stored in their gzip members as they are, or by zstd without entropy coding.
/// Most are the requests and metadata of pages. Packing them as others are would take a fifth off them, in a quarter of the
/// time that the page itself takes.
const SHORT_BYTES_MAX: usize = 1 << 10;
/// The level of zstd for them.
const SHORT_LEVEL: i32 = -1;

/// How WARC files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all: `.warc`.
    None,
    /// A gzip member a record: `.warc.gz`.
    Gzip,
    /// A zstd frame a record, with its length and a checksum: `.warc.zst`.
    Zstd,
}

impl Compression {
    /// What the names of such files end in.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Compression::None => ".warc",
            Compression::Gzip => ".warc.gz",
            Compression::Zstd => ".warc.zst",
        }
    }
}

/// Packs records.
pub(crate) struct Packer {
    codec: Codec,
    /// What was gathered of the record and is not packed yet.
    gathered: Vec<u8>,
    /// Where one step of packing goes; its content is of no interest between steps.
    packed: Vec<u8>,
    /// How long the record is.
    record_bytes: u64,
    /// Some of the record was packed, and its end was not.
    midway: bool,
}

enum Codec {
    None,
    Gzip(Gzip),
    Zstd { short: CCtx<'static>, other: CCtx<'static> },
}

/// What is whole in memory is packed in one go by libdeflate, which is as quick as zlib and packs a quarter closer; only
/// what is longer takes the streams of zlib.
struct Gzip {
    stored: Compressor,
    whole: Compressor,
    /// Of the long record that is being packed.
    stream: Option<Box<Compress>>,
}

impl Gzip {
    fn new() -> Gzip {
        let level = |level: u8| CompressionLvl::new(level.into()).expect("libdeflate has the levels 0 to 12");
        Gzip { stored: Compressor::new(level(0)), whole: Compressor::new(level(LEVEL)), stream: None }
    }

    fn pack_whole(&mut self, record: &[u8], packed: &mut Vec<u8>, output: &mut Vec<u8>) {
        let compressor = if record.len() <= SHORT_BYTES_MAX { &mut self.stored } else { &mut self.whole };
        let room = compressor.gzip_compress_bound(record.len());
        // Bytes that exist already are not written first.
        packed.resize(packed.len().max(room), 0);
        let count = compressor.gzip_compress(record, packed).expect("there is room for any outcome");
        output.extend_from_slice(&packed[..count]);
    }
}

impl Packer {
    pub(crate) fn new(compression: Compression) -> Packer {
        let codec = match compression {
            Compression::None => Codec::None,
            Compression::Gzip => Codec::Gzip(Gzip::new()),
            Compression::Zstd => Codec::Zstd { short: new_zstd(SHORT_LEVEL), other: new_zstd(LEVEL.into()) },
        };
        Packer { codec, gathered: Vec::new(), packed: Vec::new(), record_bytes: 0, midway: false }
    }

    /// Starts a record of this length, forgetting one that was given up.
    pub(crate) fn start(&mut self, record_bytes: u64) {
        self.gathered.clear();
        self.record_bytes = record_bytes;
        match &mut self.codec {
            // A new one each time: a reset in the middle of a stream does not clear all of zlib-rs's state (as of 0.6), and
            // the next member would be damaged.
            Codec::Gzip(gzip) => gzip.stream = None,
            Codec::Zstd { other, .. } if self.midway => {
                other.reset(ResetDirective::SessionOnly).expect("a session can be given up at any time");
            }
            Codec::Zstd { .. } | Codec::None => {}
        }
        self.midway = false;
    }

    /// Adds bytes of the record.
    pub(crate) fn pack(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        if matches!(self.codec, Codec::None) {
            return output.extend_from_slice(bytes);
        }
        if self.gathered.len() + bytes.len() > GATHERED_BYTES_MAX {
            self.step(false, output);
        }
        self.gathered.extend_from_slice(bytes);
    }

    /// Ends the record.
    pub(crate) fn finish(&mut self, output: &mut Vec<u8>) {
        self.step(true, output);
        self.midway = false;
    }

    fn step(&mut self, end: bool, output: &mut Vec<u8>) {
        match &mut self.codec {
            Codec::None => {}
            Codec::Gzip(gzip) if end && !self.midway => {
                gzip.pack_whole(&self.gathered, &mut self.packed, output);
            }
            Codec::Gzip(gzip) => {
                self.packed.resize(self.packed.len().max(PACKED_BYTES), 0);
                let deflate = gzip.stream.get_or_insert_with(|| Box::new(new_deflate()));
                run_deflate(deflate, &self.gathered, end, &mut self.packed, output);
            }
            Codec::Zstd { short, other } if end && !self.midway => {
                let context = if self.gathered.len() <= SHORT_BYTES_MAX { short } else { other };
                self.packed.clear();
                self.packed.reserve(zstd_safe::compress_bound(self.gathered.len()));
                context.compress2(&mut self.packed, &self.gathered).expect("there is room for any outcome");
                output.extend_from_slice(&self.packed);
            }
            Codec::Zstd { other, .. } => {
                if !self.midway {
                    other
                        .set_pledged_src_size(Some(self.record_bytes))
                        .expect("the length is set between records");
                }
                run_zstd(other, &self.gathered, end, &mut self.packed, output);
            }
        }
        self.gathered.clear();
        self.midway = true;
    }
}

fn run_deflate(deflate: &mut Compress, mut input: &[u8], end: bool, packed: &mut [u8], output: &mut Vec<u8>) {
    let flush = if end { FlushCompress::Finish } else { FlushCompress::None };
    loop {
        let (taken, given) = (deflate.total_in(), deflate.total_out());
        let status = deflate.compress(input, packed, flush).expect("deflate takes any input");
        input = &input[(deflate.total_in() - taken) as usize..];
        let count = (deflate.total_out() - given) as usize;
        output.extend_from_slice(&packed[..count]);
        if status == Status::StreamEnd || !end && input.is_empty() && count < packed.len() {
            break;
        }
    }
}

fn run_zstd(
    context: &mut CCtx<'static>,
    input: &[u8],
    end: bool,
    packed: &mut Vec<u8>,
    output: &mut Vec<u8>,
) {
    let directive = if end { Directive::ZSTD_e_end } else { Directive::ZSTD_e_continue };
    let mut input_left = InBuffer::around(input);
    packed.reserve(PACKED_BYTES);
    loop {
        let mut room = OutBuffer::around(packed);
        let left = context
            .compress_stream2(&mut room, &mut input_left, directive)
            .expect("a record is as long as it was said to be");
        output.extend_from_slice(room.as_slice());
        if if end { left == 0 } else { input_left.pos() == input.len() } {
            break;
        }
    }
}

fn new_deflate() -> Compress {
    Compress::new_gzip(flate2::Compression::new(LEVEL.into()), 15)
}

fn new_zstd(level: i32) -> CCtx<'static> {
    let mut context = CCtx::create();
    for parameter in [CParameter::CompressionLevel(level), CParameter::ChecksumFlag(true)] {
        context.set_parameter(parameter).expect("every zstd knows it");
    }
    context
}
