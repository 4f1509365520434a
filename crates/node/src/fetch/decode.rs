//! Content codings (gzip, deflate, br, zstd) undone, with a limit against bombs.
//!
//! Takes any bytes, never panics and never fails: what decodes is the result, and where nothing does the body was
//! labelled wrongly and is taken as it is.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// The most codings that are undone, one inside the other. Nobody has a use for more than one.
pub const CODINGS_MAX: usize = 4;
/// Up to this size the ratio is not looked at: short bodies may well consist of one repeated byte.
pub const RATIO_FREE_BYTES: usize = 1 << 20;
/// The window of zstd, as a power of two, that a decoder of the web has to support (RFC 9659), and so its memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// How much is decoded at a time. An error costs what was decoded in the same step, so it is not large.
const STEP_BYTES: usize = 8 << 10;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// gzip, x-gzip
    Gzip,
    /// deflate: zlib by the standard, raw deflate by some servers.
    Deflate,
    /// br
    Brotli,
    /// zstd
    Zstd,
}

/// Bounds for what decoding may give.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Bytes at most.
    pub bytes_max: usize,
    /// Times the size of the coded body at most, beyond [`RATIO_FREE_BYTES`].
    pub ratio_max: usize,
}

impl DecodeLimits {
    /// The most bytes that a coded body of this size may decode to.
    pub fn for_body(&self, coded_bytes: usize) -> usize {
        coded_bytes.saturating_mul(self.ratio_max).max(RATIO_FREE_BYTES).min(self.bytes_max)
    }
}

/// How decoding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With the end of the body.
    Whole,
    /// At a limit.
    Limit,
    /// At something that does not decode, or with a body that is cut.
    Broken,
}

/// The codings that the values of Content-Encoding name, in the order they were applied. One that is not known ends
/// the list: what is inside it cannot be read.
pub fn codings<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<Coding> {
    let mut found = Vec::new();
    for name in values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
        match name.to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => found.push(Coding::Gzip),
            b"deflate" => found.push(Coding::Deflate),
            b"br" => found.push(Coding::Brotli),
            b"zstd" => found.push(Coding::Zstd),
            b"" | b"identity" => {}
            // What was applied after an unknown coding can be undone, but leads nowhere.
            _ => return Vec::new(),
        }
    }
    if found.len() > CODINGS_MAX { Vec::new() } else { found }
}

/// Undoes `codings` (in the order they were applied) and returns at most `bytes_max` bytes.
pub fn decode<'a>(body: &'a [u8], codings: &[Coding], bytes_max: usize) -> (Cow<'a, [u8]>, End) {
    let as_it_is = |end| {
        let bytes = &body[..body.len().min(bytes_max)];
        (Cow::Borrowed(bytes), if bytes.len() < body.len() { End::Limit } else { end })
    };
    if codings.is_empty() || body.is_empty() {
        return as_it_is(End::Whole);
    }
    let mut source: Box<dyn BufRead + '_> = Box::new(body);
    for coding in codings.iter().rev() {
        let Some(decoder) = decoder(*coding, source) else { return as_it_is(End::Broken) };
        // Also between two codings nothing may grow without end.
        source = Box::new(BufReader::with_capacity(STEP_BYTES, decoder.take(bytes_max as u64 + 1)));
    }
    let mut decoded = Vec::new();
    let end = loop {
        let step = match source.fill_buf() {
            Ok([]) => break End::Whole,
            Ok(step) => step,
            Err(_) => break End::Broken,
        };
        let taken = step.len().min(bytes_max - decoded.len());
        decoded.extend_from_slice(&step[..taken]);
        if taken < step.len() {
            break End::Limit;
        }
        source.consume(taken);
    };
    if decoded.is_empty() && end == End::Broken { as_it_is(End::Broken) } else { (Cow::Owned(decoded), end) }
}

fn decoder<'a>(coding: Coding, mut source: Box<dyn BufRead + 'a>) -> Option<Box<dyn Read + 'a>> {
    Some(match coding {
        Coding::Gzip => Box::new(MultiGzDecoder::new(source)),
        Coding::Deflate if is_zlib(source.fill_buf().ok()?) => Box::new(ZlibDecoder::new(source)),
        Coding::Deflate => Box::new(DeflateDecoder::new(source)),
        Coding::Brotli => Box::new(brotli::Decompressor::new(source, STEP_BYTES)),
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(source).ok()?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).ok()?;
            Box::new(decoder)
        }
    })
}

/// Whether bytes start like zlib: method 8, and a check sum over the first two.
fn is_zlib(first: &[u8]) -> bool {
    matches!(first, [cmf, flags, ..] if cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flags)) % 31 == 0)
}

/// Whether bytes start like gzip.
pub fn is_gzip(first: &[u8]) -> bool {
    first.starts_with(b"\x1f\x8b")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn encode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => gzip(bytes),
            Coding::Deflate => zlib(bytes),
            Coding::Brotli => {
                let mut out = Vec::new();
                brotli::BrotliCompress(&mut &*bytes, &mut out, &brotli::enc::BrotliEncoderParams::default())
                    .unwrap();
                out
            }
            Coding::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        }
    }

    fn text() -> Vec<u8> {
        (0..20_000).flat_map(|line| format!("line {line} of a text\n").into_bytes()).collect()
    }

    #[test]
    fn names_of_codings() {
        let cases: [(&[&str], &[Coding]); 7] = [
            (&[], &[]),
            (&["gzip"], &[Coding::Gzip]),
            (&["X-GZip , identity"], &[Coding::Gzip]),
            (&["deflate", "br"], &[Coding::Deflate, Coding::Brotli]),
            (&["zstd,,"], &[Coding::Zstd]),
            (&["gzip, secret"], &[]),
            (&["gzip,gzip,gzip,gzip,gzip"], &[]),
        ];
        for (values, expected) in cases {
            assert_eq!(codings(values.iter().map(|value| value.as_bytes())), expected, "{values:?}");
        }
    }

    #[test]
    fn whole_bodies() {
        let text = text();
        let mut cases: Vec<(Vec<u8>, Vec<Coding>)> =
            ALL.iter().map(|&coding| (encode(coding, &text), vec![coding])).collect();
        cases.push((raw_deflate(&text), vec![Coding::Deflate]));
        cases.push((encode(Coding::Brotli, &gzip(&text)), vec![Coding::Gzip, Coding::Brotli]));
        cases.push(([gzip(&text[..100]), gzip(&text[100..])].concat(), vec![Coding::Gzip]));
        cases.push((text.clone(), vec![]));
        for (body, codings) in cases {
            let (decoded, end) = decode(&body, &codings, 1 << 30);
            assert!(*decoded == text && end == End::Whole, "{codings:?} {end:?} {}", decoded.len());
        }
    }

    #[test]
    fn what_decodes_of_a_broken_body_is_kept() {
        let text = text();
        for coding in ALL {
            let mut body = encode(coding, &text);
            body.truncate(body.len() / 2);
            let (decoded, _) = decode(&body, &[coding], 1 << 30);
            assert!(
                text.starts_with(&decoded) && decoded.len() > text.len() / 10,
                "{coding:?} {}",
                decoded.len()
            );
        }
        let trailing = [gzip(&text), b"garbage".to_vec()].concat();
        assert!(*decode(&trailing, &[Coding::Gzip], 1 << 30).0 == text);
    }

    #[test]
    fn a_wrong_label_does_no_harm() {
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd] {
            let body = b"<html><a href=/x>x</a></html>";
            assert_eq!(decode(body, &[coding], 100), (Cow::Borrowed(&body[..]), End::Broken), "{coding:?}");
        }
    }

    #[test]
    fn bombs_stop_at_the_limit() {
        let zeros = vec![0; 8 << 20];
        for coding in ALL {
            let bomb = encode(coding, &zeros);
            let limits = DecodeLimits { bytes_max: 4 << 20, ratio_max: 100 };
            let max = limits.for_body(bomb.len());
            assert!(max < zeros.len());
            let (decoded, end) = decode(&bomb, &[coding], max);
            assert_eq!((decoded.len(), end), (max, End::Limit), "{coding:?}");
            // A bomb inside a bomb.
            let wrapped = gzip(&bomb);
            assert!(decode(&wrapped, &[coding, Coding::Gzip], max).0.len() <= max, "{coding:?}");
        }
        assert_eq!(decode(&zeros, &[], 10).1, End::Limit);
    }

    #[test]
    fn limits() {
        let limits = DecodeLimits { bytes_max: 64 << 20, ratio_max: 100 };
        let cases =
            [(10, RATIO_FREE_BYTES), (100_000, 10_000_000), (16 << 20, 64 << 20), (usize::MAX, 64 << 20)];
        for (coded, expected) in cases {
            assert_eq!(limits.for_body(coded), expected);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_something(
            bytes in proptest::collection::vec(any::<u8>(), 0..500),
            layers in proptest::collection::vec(0_usize..4, 0..4),
            start in 0_usize..4,
        ) {
            let codings: Vec<Coding> = layers.iter().map(|&layer| ALL[layer]).collect();
            let mut damaged = encode(ALL[start], &text()[..2_000]);
            let at = bytes.len() % damaged.len();
            damaged[at] ^= bytes.first().copied().unwrap_or(1);
            for body in [&bytes, &damaged] {
                let (decoded, _) = decode(body, &codings, 4_000);
                prop_assert!(decoded.len() <= 4_000);
            }
        }
    }
}
