//! What kind of content a body is, whatever its Content-Type claims.
//!
//! This follows the WHATWG's sniffing standard where a crawler's interest is a browser's, and departs from it in one
//! way: a page declared as text/plain that starts like HTML is read as HTML, since following its links harms nobody.

use encoding_rs::Encoding;

use super::headers::content_type;

/// How many bytes at the start of a body decide.
pub const SNIFF_BYTES_MAX: usize = 1024;

/// What a body is to the crawler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentKind {
    /// HTML or XHTML: has links.
    Html,
    /// XML other than XHTML, such as a sitemap or a feed.
    Xml,
    /// Other text.
    Text,
    /// Everything else.
    Other,
}

/// What no text starts with, and where it stands.
const BINARY: &[(usize, &[u8])] = &[
    (0, b"\x89PNG\r\n\x1a\n"),
    (0, b"\xff\xd8\xff"),
    (0, b"GIF87a"),
    (0, b"GIF89a"),
    (0, b"II*\0"),
    (0, b"MM\0*"),
    (0, b"\0\0\x01\0"),
    (8, b"WEBPVP"),
    (8, b"WAVEfmt"),
    (8, b"AVI LIST"),
    (4, b"ftyp"),
    (0, b"\x1a\x45\xdf\xa3"),
    (0, b"OggS\0"),
    (0, b"fLaC"),
    (0, b"ID3"),
    (0, b"%PDF-"),
    (0, b"%!PS-Adobe-"),
    (0, b"PK\x03\x04"),
    (0, b"\x1f\x8b"),
    (0, b"BZh"),
    (0, b"\xfd7zXZ\0"),
    (0, b"\x28\xb5\x2f\xfd"),
    (0, b"7z\xbc\xaf\x27\x1c"),
    (0, b"Rar!\x1a\x07"),
    (0, b"wOFF"),
    (0, b"wOF2"),
    (0, b"\0asm"),
    (0, b"\x7fELF"),
];

/// Tags that pages without a document type start with.
const HTML_TAGS: &[&[u8]] = &[
    b"html",
    b"head",
    b"body",
    b"script",
    b"iframe",
    b"frameset",
    b"meta",
    b"link",
    b"base",
    b"title",
    b"style",
    b"h1",
    b"div",
    b"font",
    b"table",
    b"center",
    b"a",
    b"b",
    b"br",
    b"p",
    b"ul",
];

/// Roots of XML that is often declared as HTML.
const XML_ROOTS: &[&[u8]] = &[b"rss", b"feed", b"rdf:rdf", b"urlset", b"sitemapindex"];

/// What kind of content a body is, by its Content-Type, if there is one, and its `first` bytes (at least
/// [`SNIFF_BYTES_MAX`], or all).
pub fn kind(content_type_value: Option<&str>, first: &[u8]) -> ContentKind {
    let first = &first[..first.len().min(SNIFF_BYTES_MAX)];
    let essence = content_type(content_type_value.unwrap_or_default()).essence.to_ascii_lowercase();
    match essence.as_str() {
        "text/html" | "application/xhtml+xml" => match () {
            () if is_binary_format(first) => ContentKind::Other,
            () if has_xml_root(first) => ContentKind::Xml,
            () => ContentKind::Html,
        },
        ""
        | "text/plain"
        | "unknown/unknown"
        | "application/unknown"
        | "*/*"
        | "application/octet-stream"
        | "binary/octet-stream" => sniff(first),
        "image/svg+xml" => ContentKind::Other,
        "text/xml" | "application/xml" => xml_or_xhtml(first),
        "application/json" | "application/javascript" | "application/x-javascript" => ContentKind::Text,
        other if other.ends_with("+xml") => xml_or_xhtml(first),
        other if other.starts_with("text/") => ContentKind::Text,
        other if !other.contains('/') => sniff(first),
        _ => ContentKind::Other,
    }
}

fn xml_or_xhtml(first: &[u8]) -> ContentKind {
    match sniff(first) {
        ContentKind::Html => ContentKind::Html,
        _ if is_binary_format(first) => ContentKind::Other,
        _ => ContentKind::Xml,
    }
}

/// What a body is by its first bytes alone.
fn sniff(first: &[u8]) -> ContentKind {
    if is_binary_format(first) {
        return ContentKind::Other;
    }
    if let Some((encoding, _)) = Encoding::for_bom(first) {
        return sniff_text(encoding.decode(first).0.as_bytes()).unwrap_or(ContentKind::Text);
    }
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    sniff_text(first).unwrap_or(if first.iter().any(is_binary) {
        ContentKind::Other
    } else {
        ContentKind::Text
    })
}

fn is_binary_format(first: &[u8]) -> bool {
    BINARY.iter().any(|&(at, signature)| first.get(at..).is_some_and(|rest| rest.starts_with(signature)))
}

/// Whether a body that is declared as HTML is XML of a kind that has no links of HTML. Nothing but its root says so: pages
/// begin with XML declarations, instructions to servers, and worse.
fn has_xml_root(first: &[u8]) -> bool {
    let decoded = Encoding::for_bom(first).map(|(encoding, _)| encoding.decode(first).0);
    let text = decoded.as_ref().map_or(first, |text| text.as_bytes());
    first_tag(text).0.is_some_and(|tag| starts_with_tag(tag, XML_ROOTS))
}

/// HTML or XML, if the first tag, behind the XML declaration, comments and the like, says so.
fn sniff_text(text: &[u8]) -> Option<ContentKind> {
    match first_tag(text) {
        (Some(tag), _) if is_doctype_html(tag) || starts_with_tag(tag, HTML_TAGS) => Some(ContentKind::Html),
        (Some(tag), _) if starts_with_tag(tag, XML_ROOTS) => Some(ContentKind::Xml),
        (_, guess) => guess,
    }
}

/// What follows the `<` of the first tag, or of the document type of HTML, behind the XML declaration, comments and the like;
/// and what these are a sign of.
fn first_tag(text: &[u8]) -> (Option<&[u8]>, Option<ContentKind>) {
    let mut rest = text.trim_ascii_start();
    let mut guess = None;
    while let Some(tag) = rest.strip_prefix(b"<") {
        let (end, kind): (&[u8], _) = if tag.starts_with(b"!--") {
            (b"-->", ContentKind::Html)
        } else if tag.starts_with(b"?xml") {
            (b"?>", ContentKind::Xml)
        } else if (tag.starts_with(b"?") || tag.starts_with(b"!")) && !is_doctype_html(tag) {
            // A processing instruction, or the document type of some other language.
            (b">", ContentKind::Xml)
        } else {
            return (Some(tag), guess);
        };
        guess = guess.or(Some(kind));
        let Some(at) = tag.windows(end.len()).position(|part| part == end) else { break };
        rest = tag[at + end.len()..].trim_ascii_start();
    }
    (None, guess)
}

fn is_doctype_html(tag: &[u8]) -> bool {
    const DOCTYPE: &[u8] = b"!doctype";
    tag.split_at_checked(DOCTYPE.len()).is_some_and(|(start, name)| {
        start.eq_ignore_ascii_case(DOCTYPE)
            && name.first().is_some_and(u8::is_ascii_whitespace)
            && starts_with_tag(name.trim_ascii_start(), &[b"html"])
    })
}

fn starts_with_tag(tag: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|name| {
        tag.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
            && tag
                .get(name.len())
                .is_none_or(|&next| next == b'>' || next == b'/' || next.is_ascii_whitespace())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &[u8] = b"\n<!DOCTYPE html><title>x</title>";
    const XHTML: &[u8] = b"<?xml version='1.0'?>\n<!DOCTYPE html PUBLIC 'x'><html xmlns='y'>";
    const SITEMAP: &[u8] = b"<?xml version='1.0'?><!-- made --><urlset xmlns='y'>";
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    #[test]
    fn kinds() {
        use ContentKind::{Html, Other, Text, Xml};
        let comment = "x".repeat(SNIFF_BYTES_MAX);
        let long = format!("<?xml version='1.0'?>\n<!-- {comment} -->\n<!DOCTYPE html PUBLIC 'x'><html>")
            .into_bytes();
        for (declared, first, expected) in [
            (Some("text/html; charset=utf-8"), PAGE, Html),
            (Some("TEXT/HTML"), b"no markup at all", Html),
            (Some("text/html"), b"", Html),
            (Some("text/html"), b"a \0 stray byte", Html),
            (Some("text/html"), PNG, Other),
            (Some("text/html"), b"%PDF-1.7", Other),
            (Some("text/html"), b"\x1f\x8b\x08", Other),
            (Some("text/html"), b"\xff\xfe<\0h\0t\0m\0l\0>\0", Html),
            (Some("text/html"), XHTML, Html),
            (Some("text/html"), SITEMAP, Xml),
            (Some("text/html"), b"<rss version='2.0'>", Xml),
            (Some("text/html"), b"\xff\xfe<\0r\0s\0s\0>\0", Xml),
            (Some("text/html"), b"<?xml version='1.0'?><?xml-stylesheet href='x'?><feed>", Xml),
            (Some("text/html"), &long, Html),
            (Some("text/html"), b"<!DOCTYPE  html>\n<main>", Html),
            (Some("text/html"), b"<!DOCTYPE\nhtml>", Html),
            (Some("text/html"), b"<!DOCTYPE\thtml>Hello <a href=x>", Html),
            (Some("text/html"), b"<!DOCTYPE>", Html),
            (Some("text/html"), b"<!DOCTYPE", Html),
            (Some("text/html"), b"<?xml version=\"1.0\"?><section>", Html),
            (Some("text/html"), b"<?php if (1): ?><nav>", Html),
            (Some("text/html"), b"<![if IE]><nav>", Html),
            (Some("text/html"), b"<? <a> ?><p>", Html),
            (Some("application/xhtml+xml"), b"<?xml version='1.0'?><section>", Html),
            (Some("application/xhtml+xml"), XHTML, Html),
            (Some("application/xml"), XHTML, Html),
            (Some("application/xml"), SITEMAP, Xml),
            (Some("text/xml"), PNG, Other),
            (Some("application/rss+xml"), b"<rss>", Xml),
            (Some("application/foo+xml"), b"", Xml),
            (Some("image/svg+xml"), b"<svg><a href='x'/></svg>", Other),
            (None, PAGE, Html),
            (None, b"<!doctype\t HTML\n>", Html),
            (None, b"<!DOCTYPE\nhtml PUBLIC 'x'>", Html),
            (None, b"<!DOCTYPEhtml>", Xml),
            (None, b"<!DOCTYPE htmlx>", Xml),
            (None, b"<A HREF=x>", Html),
            (None, b"<!-- a comment --> text", Html),
            (None, b"<article", Text),
            (None, b"<abbr>", Text),
            (None, b"\xef\xbb\xbf  <html>", Html),
            (None, b"\xff\xfe<\0h\0t\0m\0l\0>\0", Html),
            (None, b"\xff\xfeh\0i\0", Text),
            (None, SITEMAP, Xml),
            (None, b"<?xml version='1.0'?><unheard-of/>", Xml),
            (None, b"<?xml", Xml),
            (None, PNG, Other),
            (None, b"plain \x1b[1m text", Text),
            (None, b"not \0 text", Other),
            (None, b"", Text),
            (Some(""), PAGE, Html),
            (Some("garbage"), PAGE, Html),
            (Some("*/*"), PAGE, Html),
            (Some("text/plain"), PAGE, Html),
            (Some("text/plain"), b"plain", Text),
            (Some("text/plain"), PNG, Other),
            (Some("application/octet-stream"), PAGE, Html),
            (Some("application/octet-stream"), b"\x01\x02", Other),
            (Some("text/css"), b"<html>", Text),
            (Some("application/json"), b"{}", Text),
            (Some("image/png"), PNG, Other),
            (Some("image/png"), PAGE, Other),
            (Some("application/pdf"), b"%PDF-1.7", Other),
            (Some("video/mp4"), b"", Other),
        ] {
            assert_eq!(kind(declared, first), expected, "{declared:?} {:?}", String::from_utf8_lossy(first));
        }
    }
}
