//! From bytes to text: which character set a page is in.
//!
//! Asked in this order: a byte order mark, the `charset` of Content-Type, a `meta` (or the XML declaration) near the
//! start; failing all, UTF-8 if the bytes are that, and windows-1252 otherwise. Text that already is UTF-8 is not
//! copied.

use std::borrow::Cow;

use encoding_rs::{EncoderResult, Encoding, UTF_8, WINDOWS_1252};

use super::headers::charset_parameter;
use super::tags::{self, Attribute, Attributes, Element};

/// How far into a page its own word on its character set is looked for, in bytes.
const PRESCAN_BYTES_MAX: usize = 1024;

/// A text and the character set its bytes were in.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// The text, without a byte order mark. What is not valid in the character set is replaced by U+FFFD.
    pub text: Cow<'a, str>,
    /// The character set.
    pub encoding: &'static Encoding,
}

/// Decodes a page of HTML. `hint` is the charset of Content-Type.
pub fn decode_html<'a>(bytes: &'a [u8], hint: Option<&str>) -> Decoded<'a> {
    decode(bytes, hint, |start| {
        let mut charset = CharsetSink(None);
        tags::read(start, &mut charset);
        charset.0
    })
}

/// Decodes XML. `hint` is the charset of Content-Type.
pub fn decode_xml<'a>(bytes: &'a [u8], hint: Option<&str>) -> Decoded<'a> {
    decode(bytes, hint, |start| {
        let end = start.windows(2).position(|pair| pair == b"?>")?;
        let declaration = str::from_utf8(start[..end].strip_prefix(b"<?xml")?).ok()?;
        let (_, value) = declaration.split_once("encoding")?;
        let value = value.trim_start().strip_prefix('=')?.trim_start();
        let label = value.strip_prefix(['"', '\''])?.split(['"', '\'']).next()?;
        Encoding::for_label(label.as_bytes())
    })
}

fn decode<'a>(
    bytes: &'a [u8],
    hint: Option<&str>,
    prescan: impl Fn(&[u8]) -> Option<&'static Encoding>,
) -> Decoded<'a> {
    if let Some((encoding, mark_bytes)) = Encoding::for_bom(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(&bytes[mark_bytes..]);
        return Decoded { text, encoding };
    }
    let named = hint.and_then(|label| Encoding::for_label(label.as_bytes()));
    let named = named.or_else(|| {
        let found = prescan(&bytes[..bytes.len().min(PRESCAN_BYTES_MAX)])?;
        // It could be read as ASCII, so it is not in UTF-16, whatever it says.
        Some(if found.output_encoding() == found { found } else { UTF_8 })
    });
    let encoding = named.unwrap_or_else(|| if str::from_utf8(bytes).is_ok() { UTF_8 } else { WINDOWS_1252 });
    let (text, _) = encoding.decode_without_bom_handling(bytes);
    Decoded { text, encoding }
}

/// Encodes the query of a link as the WHATWG URL standard wants it of a page in a legacy character set: in that
/// character set, with characters it lacks as escaped decimal references.
pub(super) fn encode_query<'a>(encoding: &'static Encoding, query: &'a str) -> Cow<'a, [u8]> {
    if query.is_ascii() {
        return Cow::Borrowed(query.as_bytes());
    }
    let mut encoder = encoding.new_encoder();
    let mut bytes = Vec::with_capacity(query.len() * 2);
    let mut rest = query;
    loop {
        let (result, read) = encoder.encode_from_utf8_to_vec_without_replacement(rest, &mut bytes, true);
        rest = &rest[read..];
        match result {
            EncoderResult::InputEmpty => return Cow::Owned(bytes),
            EncoderResult::Unmappable(lacking) => {
                bytes.extend_from_slice(format!("%26%23{}%3B", u32::from(lacking)).as_bytes());
            }
            EncoderResult::OutputFull => bytes.reserve(rest.len() * 2 + 16),
        }
    }
}

/// Finds what a page says of its own character set: the first `meta` that names a known one.
struct CharsetSink(Option<&'static Encoding>);

impl tags::Sink for CharsetSink {
    fn element(&mut self, element: Element, attributes: &Attributes) {
        if element != Element::Meta || self.0.is_some() {
            return;
        }
        let is_content_type = attributes
            .get(Attribute::HttpEquiv)
            .is_some_and(|name| name.trim().eq_ignore_ascii_case("content-type"));
        let label = attributes.get(Attribute::Charset).or_else(|| {
            attributes.get(Attribute::Content).filter(|_| is_content_type).and_then(charset_parameter)
        });
        self.0 = label.and_then(|label| Encoding::for_label(label.as_bytes()));
        if self.0.is_some_and(|found| found.name() == "x-user-defined") {
            self.0 = Some(WINDOWS_1252);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_character_set() {
        let meta = b"<meta charset=shift_jis>";
        for (bytes, hint, expected) in [
            (&b"\xef\xbb\xbfa"[..], Some("iso-8859-1"), "UTF-8"),
            (b"\xff\xfea\0", Some("utf-8"), "UTF-16LE"),
            (b"\xfe\xff\0a", None, "UTF-16BE"),
            (meta, Some("iso-8859-2"), "ISO-8859-2"),
            (meta, Some("no such"), "Shift_JIS"),
            (meta, None, "Shift_JIS"),
            (b"<META HTTP-EQUIV='Content-Type' CONTENT='text/html; charset = \"koi8-r\"'>", None, "KOI8-R"),
            (b"<meta http-equiv=content-type content=\"text/html;charset=EUC-JP;x\">", None, "EUC-JP"),
            (b"<meta content='text/html; charset=koi8-r'>", None, "UTF-8"),
            (b"<meta charset=what><meta charset=gbk>", None, "GBK"),
            (b"<!-- <meta charset=gbk> --><meta charset=big5>", None, "Big5"),
            (b"<script>'<meta charset=gbk>'</script><meta charset=big5>", None, "Big5"),
            (b"<meta charset=utf-16>", None, "UTF-8"),
            (b"<meta charset=x-user-defined>", None, "windows-1252"),
            ("caf\u{e9}".as_bytes(), None, "UTF-8"),
            (b"caf\xe9", None, "windows-1252"),
            (b"", None, "UTF-8"),
        ] {
            let found = decode_html(bytes, hint).encoding.name();
            assert_eq!(found, expected, "{:?} {hint:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn far_from_the_start_is_too_far() {
        let page = |spaces: usize| format!("{}<meta charset=gbk>", " ".repeat(spaces)).into_bytes();
        assert_eq!(decode_html(&page(1000), None).encoding.name(), "GBK");
        assert_eq!(decode_html(&page(1024), None).encoding.name(), "UTF-8");
    }

    #[test]
    fn xml_declarations() {
        for (bytes, hint, expected) in [
            (&b"<?xml version='1.0' encoding='ISO-8859-1'?>\xe9"[..], None, "windows-1252"),
            (b"<?xml version=\"1.0\" encoding = \"utf-16\" ?>", None, "UTF-8"),
            (b"<?xml version='1.0' encoding='koi8-r'?>", Some("gbk"), "GBK"),
            (b"<?xml version='1.0'?><a encoding='koi8-r'/>", None, "UTF-8"),
            (b"<?xml encoding", None, "UTF-8"),
            (b"\xe9", None, "windows-1252"),
        ] {
            let found = decode_xml(bytes, hint).encoding.name();
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn utf_8_is_not_copied() {
        for (bytes, hint) in [
            ("caf\u{e9}".as_bytes(), None),
            ("\u{feff}caf\u{e9}".as_bytes(), None),
            (b"plain", Some("windows-1252")),
            (b"plain", Some("shift_jis")),
        ] {
            assert!(matches!(decode_html(bytes, hint).text, Cow::Borrowed(_)), "{bytes:?}");
        }
        assert_eq!(decode_html(b"a\xffb", Some("utf-8")).text, "a\u{fffd}b");
        assert_eq!(decode_html(b"caf\xe9", None).text, "caf\u{e9}");
    }

    #[test]
    fn queries() {
        for (label, query, expected) in [
            ("windows-1252", "q=caf\u{e9}", &b"q=caf\xe9"[..]),
            ("windows-1252", "q=\u{3042}x", b"q=%26%2312354%3Bx"),
            ("shift_jis", "q=\u{3042}", b"q=\x82\xa0"),
            ("gbk", "plain", b"plain"),
        ] {
            let encoding = Encoding::for_label(label.as_bytes()).unwrap();
            assert_eq!(&*encode_query(encoding, query), expected, "{label} {query}");
        }
    }
}
