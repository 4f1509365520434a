//! What a page of HTML says: its links, and its wishes about them.

use std::borrow::Cow;
use std::ops::Range;

use encoding_rs::{Encoding, UTF_8};
use hashbrown::HashSet;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::charset::{decode_html, encode_query};
use super::headers::refresh_target;
use super::tags::{self, Attribute, Attributes, Element};
use super::{Link, LinkKind, relation};
use crate::robots::Directives;
use crate::url::{CleanUrl, PlainBase, Url, clean};

/// The most links that are taken from a page.
pub const LINKS_MAX: usize = 10_000;
/// The most bytes that they may have together. A page of short links resolved against a long base would exceed any
/// other limit.
pub const LINKS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most references that are looked at for them: not every reference is a link, and some are repeated.
const REFERENCES_MAX: usize = 4 * LINKS_MAX;
/// Room for the references of a page with links, and for their texts: most pages that have links need no more.
const REFERENCES_USUAL: usize = 64;
const TEXTS_BYTES_USUAL: usize = 2 << 10;

/// What a page says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Its links that can be fetched, in the order of the page, each once (a link that is once nofollow and once not
    /// is there twice).
    pub links: Vec<Link>,
    /// What `<meta name=robots>`, or one with our product token, asks of us.
    pub directives: Directives,
    /// There were more links than the limit.
    pub truncated_links: bool,
}

/// Reads a page. `charset_hint` is the charset of Content-Type, `base` the URL of the page, `token` our product token.
pub fn html(bytes: &[u8], charset_hint: Option<&str>, base: &Url, token: &str) -> Page {
    let decoded = decode_html(bytes, charset_hint);
    let mut found = Found { token, ..Found::default() };
    tags::read(decoded.text.as_bytes(), &mut found);
    found.resolve(base, decoded.encoding)
}

/// What was found in the tags. References are resolved at the end only: a `base` counts for those before it too.
#[derive(Default)]
struct Found<'a> {
    token: &'a str,
    /// The texts of all references, one after the other.
    texts: String,
    references: Vec<Reference>,
    base: Option<String>,
    directives: Directives,
    truncated: bool,
}

struct Reference {
    text: Range<usize>,
    kind: LinkKind,
    nofollow: bool,
}

impl tags::Sink for Found<'_> {
    fn element(&mut self, element: Element, attributes: &Attributes) {
        let reference = attributes.get(Attribute::Reference);
        let (relation, nofollow) = relation(attributes.get(Attribute::Rel).unwrap_or_default());
        match (element, reference) {
            (Element::A, Some(text)) => self.push(text, LinkKind::Anchor, nofollow),
            (Element::Area, Some(text)) => self.push(text, LinkKind::Area, nofollow),
            (Element::Frame, Some(text)) => self.push(text, LinkKind::Frame, false),
            (Element::Link, Some(text)) => {
                if let Some(kind) = relation {
                    self.push(text, kind, nofollow);
                }
            }
            // The first one with a reference counts, even if that turns out to be of no use.
            (Element::Base, Some(text)) if self.base.is_none() => self.base = Some(text.to_owned()),
            (Element::Meta, _) => self.meta(attributes),
            _ => {}
        }
    }
}

impl Found<'_> {
    fn meta(&mut self, attributes: &Attributes) {
        let Some(content) = attributes.get(Attribute::Content) else { return };
        if let Some(name) = attributes.get(Attribute::Name).map(str::trim)
            && (name.eq_ignore_ascii_case("robots") || name.eq_ignore_ascii_case(self.token))
        {
            self.directives.merge(Directives::from_meta(content));
        }
        if attributes.get(Attribute::HttpEquiv).is_some_and(|name| name.eq_ignore_ascii_case("refresh"))
            && let Some(target) = refresh_target(content)
        {
            self.push(target, LinkKind::Refresh, false);
        }
    }

    fn push(&mut self, text: &str, kind: LinkKind, nofollow: bool) {
        if self.references.len() == REFERENCES_MAX {
            self.truncated = true;
            return;
        }
        if self.references.is_empty() {
            self.references.reserve(REFERENCES_USUAL);
            self.texts.reserve(TEXTS_BYTES_USUAL);
        }
        let start = self.texts.len();
        self.texts.push_str(text);
        self.references.push(Reference { text: start..self.texts.len(), kind, nofollow });
    }

    fn resolve(self, page: &Url, encoding: &'static Encoding) -> Page {
        // A base that is no URL, or cannot be one's base, leaves the page's own.
        let base = self.base.as_deref().and_then(|text| page.join(text).ok());
        let base = base.filter(|base| !matches!(base.scheme(), "data" | "javascript"));
        let base = base.as_ref().unwrap_or(page);
        let encode: &dyn Fn(&str) -> Cow<'_, [u8]> = &|query| encode_query(encoding, query);
        let legacy = encoding.output_encoding() != UTF_8;
        let plain = PlainBase::new(base);
        let parsed = |text: &str| -> Option<CleanUrl> {
            let options = Url::options().base_url(Some(base));
            let options = if legacy { options.encoding_override(Some(encode)) } else { options };
            options.parse(text).ok().and_then(clean).map(CleanUrl::from)
        };
        let mut links = Vec::with_capacity(self.references.len().min(LINKS_MAX));
        let mut met = HashSet::with_capacity(2 * links.capacity());
        let mut truncated_links = self.truncated;
        let mut bytes = 0;
        for reference in self.references {
            // Pages repeat themselves: what was resolved once, or is a link already, is not resolved again.
            let seed = u64::from(reference.nofollow);
            let text = &self.texts[reference.text];
            if !met.insert(xxh3_64_with_seed(text.as_bytes(), seed)) {
                continue;
            }
            let Some(url) = plain.resolve(text).or_else(|| parsed(text)) else { continue };
            if url.as_str() != text && !met.insert(xxh3_64_with_seed(url.as_str().as_bytes(), seed)) {
                continue;
            }
            bytes += url.as_str().len();
            if links.len() == LINKS_MAX || bytes > LINKS_BYTES_MAX {
                truncated_links = true;
                break;
            }
            links.push(Link { url, kind: reference.kind, nofollow: reference.nofollow });
        }
        Page { links, directives: self.directives, truncated_links }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(text: &str) -> Page {
        html(text.as_bytes(), None, &Url::parse("http://a.example/dir/page?q").unwrap(), "nephila")
    }

    /// The links of a page as text: the URL without its origin where that is the page's own.
    fn urls(page: &Page) -> Vec<&str> {
        let short = |link: &'_ Link| -> usize {
            if link.url.as_str().starts_with("http://a.example/") { 16 } else { 0 }
        };
        page.links.iter().map(|link| &link.url.as_str()[short(link)..]).collect()
    }

    #[test]
    fn elements_that_link() {
        use LinkKind::{Alternate, Anchor, Area, Canonical, Frame, Next, Prev, Refresh};
        for (text, kind) in [
            ("<a href=/x>", Anchor),
            ("<A HREF='/x'>", Anchor),
            ("<a title='>' href = \"/x\" >", Anchor),
            ("<a href='/y' \n href2=/z></a><a\thref=/x>", Anchor),
            ("<svg><a href=/x></svg>", Anchor),
            ("<map><area href=/x></map>", Area),
            ("<frameset><frame src=/x></frameset>", Frame),
            ("<iframe src=/x></iframe>", Frame),
            ("<link rel=canonical href=/x>", Canonical),
            ("<link href=/x rel='foo CANONICAL'/>", Canonical),
            ("<link rel=alternate hreflang=de href=/x>", Alternate),
            ("<link rel=next href=/x>", Next),
            ("<link rel=prev href=/x>", Prev),
            ("<link rel=previous href=/x>", Prev),
            ("<meta http-equiv=Refresh content='0; url=/x'>", Refresh),
            ("<noscript><meta http-equiv=refresh content='0; url=/x'></noscript>", Refresh),
            ("<noscript><a href=/x></noscript>", Anchor),
            ("<template shadowrootmode=open><a href=/x></template>", Anchor),
        ] {
            let page = page(text);
            let found: Vec<_> = page.links.iter().map(|link| (link.url.path(), link.kind)).collect();
            assert_eq!(found.last(), Some(&("/x", kind)), "{text}");
        }
    }

    #[test]
    fn what_is_no_link() {
        for text in [
            "<a>",
            "<a name=x>",
            "<abbr href=/x>",
            "</a href=/x>",
            "<link href=/x>",
            "<link rel=stylesheet href=/x>",
            "<link rel='alternate stylesheet' href=/x>",
            "<meta http-equiv=refresh content=5>",
            "<meta name=refresh content='0;url=/x'>",
            "<a href='mailto:a@b'><a href='javascript:void(0)'><a href='data:,x'><a href=tel:1><a href='http://'>",
            "<!-- <a href=/x> -->",
            "<script>'<a href=/x>'</script>",
            "<script><!--<script></script>'<a href=/x>'--></script>",
            "<style><a href=/x></style>",
            "<title><a href=/x></title>",
            "<textarea><a href=/x></textarea>",
            "<iframe><a href=/x></iframe>",
            "<noframes><a href=/x></noframes>",
            "<xmp><a href=/x></xmp>",
            "<plaintext><a href=/x>",
            "<template><a href=/x></template>",
            "<template><template shadowrootmode=open></template><a href=/x></template>",
            "<svg><![CDATA[<a href=/x>]]></svg>",
            "<a href=/x",
            "<img src=/x><script src=/x></script>",
        ] {
            assert_eq!(page(text).links, [], "{text}");
        }
    }

    #[test]
    fn what_comes_behind_odd_markup_is_read() {
        for text in [
            "<script></script>",
            "<script><!-- </script>",
            "<title>x</title>",
            "<svg><title/><style/><script/></svg>",
            "<math></math>",
            "<template></template></template>",
            "<template shadowrootmode=open><template></template></template>",
            "<![CDATA[ x ]]>",
            "<a href=/dir",
            "\0<\0p>",
            "</script>",
            "<unknown-element-with-a-very-long-name a-very-long-attribute-indeed=1>",
            "<p <p>",
            "<!doctype html public '<' \">\">",
            "<!>",
            "<?php echo ?>",
        ] {
            let text = format!("{text}<p><a href=/x>");
            assert!(urls(&page(&text)).contains(&"/x"), "{text}");
        }
    }

    #[test]
    fn references_resolve() {
        for (text, expected) in [
            ("x", "/dir/x"),
            ("../x", "/x"),
            ("?x", "/dir/page?x"),
            ("#x", "/dir/page?q"),
            ("", "/dir/page?q"),
            ("//b.example", "http://b.example/"),
            ("  x\ty\n z ", "/dir/xy%20z"),
            ("?a=1&amp;b=2&lt=3&copy=4", "/dir/page?a=1&b=2&lt=3&copy=4"),
            ("?a&#x3d;1&#38;b", "/dir/page?a=1&b"),
            ("http://u:p@a.example/x#y", "/x"),
            ("/caf\u{e9}?caf\u{e9}", "/caf%C3%A9?caf%C3%A9"),
            ("http:x", "/dir/x"),
            ("\\x", "/x"),
        ] {
            assert_eq!(urls(&page(&format!("<a href=\"{text}\">"))), [expected], "{text}");
        }
        assert_eq!(urls(&page("<a href>")), ["/dir/page?q"]);
        assert_eq!(urls(&page("<a href=/1 href=/2>")), ["/1"]);
    }

    #[test]
    fn bases() {
        for (text, expected) in [
            ("<base href=/b/><a href=x>", "/b/x"),
            ("<a href=x><base href=/b/>", "/b/x"),
            ("<base target=_top><base href=/b/><base href=/c/><a href=x>", "/b/x"),
            ("<base href='http://'><base href=/c/><a href=x>", "/dir/x"),
            ("<base href='data:,'><a href=x>", "/dir/x"),
            ("<base href='javascript:1'><a href=x>", "/dir/x"),
            ("<base href='http://b.example/'><a href=x>", "http://b.example/x"),
            ("<template><base href=/b/></template><a href=x>", "/dir/x"),
            ("<base href=/b/><a href='#top'>", "/b/"),
            ("<base href=/b/><meta http-equiv=refresh content='0;url=x'>", "/b/x"),
        ] {
            assert_eq!(urls(&page(text)), [expected], "{text}");
        }
    }

    #[test]
    fn nofollow() {
        for (text, expected) in [
            ("<a href=x>", false),
            ("<a href=x rel=nofollow>", true),
            ("<a href=x rel='noopener  NoFollow'>", true),
            ("<a href=x rel='ugc sponsored'>", false),
            ("<a href=x rel=xnofollow>", false),
            ("<area href=x rel=nofollow>", true),
            ("<link rel='next nofollow' href=x>", true),
            ("<iframe src=x rel=nofollow>", false),
        ] {
            assert_eq!(page(text).links[0].nofollow, expected, "{text}");
        }
    }

    #[test]
    fn directives() {
        for (text, nofollow, noindex) in [
            ("<meta name=robots content='noindex, nofollow'>", true, true),
            ("<meta name=Nephila content=nofollow>", true, false),
            ("<meta name=otherbot content=none>", false, false),
            ("<meta content=noindex name=' ROBOTS '><meta name=robots content=nofollow>", true, true),
            ("<template><meta name=robots content=none></template>", false, false),
            ("<!-- <meta name=robots content=none> -->", false, false),
            ("<meta name=robots>", false, false),
        ] {
            let found = page(text).directives;
            assert_eq!((found.nofollow, found.noindex), (nofollow, noindex), "{text}");
        }
    }

    #[test]
    fn legacy_character_sets_encode_queries() {
        let base = Url::parse("http://a.example/").unwrap();
        for (bytes, hint, expected) in [
            (&b"<a href='/\xe9?\xe9'>"[..], Some("iso-8859-1"), "/%C3%A9?%E9"),
            (b"<a href='/\xe9?\xe9'>", None, "/%C3%A9?%E9"),
            (b"<meta charset=shift_jis><a href='?\x82\xa0'>", None, "/?%82%A0"),
            (b"<meta charset=windows-1252><a href='?&#12354;'>", None, "/?%26%2312354%3B"),
            (b"<a href='?\xc3\xa9'>", Some("utf-8"), "/?%C3%A9"),
            (b"\xff\xfe<\0a\0 \0h\0r\0e\0f\0=\0?\0\xe9\0>\0", None, "/?%C3%A9"),
        ] {
            let page = html(bytes, hint, &base, "nephila");
            let found = &page.links[0].url.as_str()["http://a.example".len()..];
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn limits() {
        let distinct = |count: usize| (0..count).map(|n| format!("<a href=/{n}>")).collect::<String>();
        let full = page(&distinct(LINKS_MAX));
        assert_eq!((full.links.len(), full.truncated_links), (LINKS_MAX, false));
        let over = page(&distinct(LINKS_MAX + 1));
        assert_eq!((over.links.len(), over.truncated_links), (LINKS_MAX, true));
        let same = page(&"<a href=/x><a href=/x rel=nofollow>".repeat(LINKS_MAX));
        assert_eq!((same.links.len(), same.truncated_links), (2, false));
        let long = page(&format!("<a href='/{}'><a href=/x>", "x".repeat(40_000)));
        assert_eq!(urls(&long), ["/x"]);
        let short: String = (100_000..101_000).map(|n| format!("<a href={n}>")).collect();
        let heavy = page(&format!("<base href='/{}/'>{short}", "x".repeat(8_000)));
        let each = heavy.links[0].url.as_str().len();
        assert_eq!((heavy.links.len(), heavy.truncated_links), (LINKS_BYTES_MAX / each, true));
        let many = page(&"<a href=mailto:a>".repeat(REFERENCES_MAX + 1));
        assert_eq!((many.links.len(), many.truncated_links), (0, true));
    }

    proptest! {
        #[test]
        fn nothing_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            text in "(<a |<base |<meta |<template|<svg|<script|</|>|href=|rel=|content=|['\" =&;#<>/]|\\PC){0,40}",
        ) {
            let base = Url::parse("http://a.example/").unwrap();
            for hint in [None, Some("utf-16le"), Some("iso-2022-jp"), Some("gb18030")] {
                html(&bytes, hint, &base, "nephila");
                html(text.as_bytes(), hint, &base, "nephila");
            }
        }
    }
}
