//! Sitemaps: XML lists of pages, XML lists of sitemaps, and plain lists of URLs.
//!
//! Real ones are cut off, in the wrong character set, in the wrong namespace or in none. Read leniently, in one pass,
//! and what was understood before a mistake counts.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::REFERENCE_BYTES_MAX;
use super::charset::decode_xml;
use crate::url::{Url, clean};

/// The most entries that are taken from one sitemap: what the protocol allows in a file.
pub const ENTRIES_MAX: usize = 50_000;
/// The most bytes that they may have together.
pub const ENTRIES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How many mistakes in its XML a sitemap may have before the rest is left.
const MISTAKES_MAX: usize = 100;

/// What a sitemap lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sitemap {
    /// Pages, as clean URLs, in order.
    pub pages: Vec<Url>,
    /// Other sitemaps, as clean URLs, in order.
    pub sitemaps: Vec<Url>,
    /// There were more entries than the limits allow.
    pub capped: bool,
}

/// A sitemap while it is read.
struct Entries<'a> {
    base: &'a Url,
    found: Sitemap,
    bytes: usize,
}

impl Entries<'_> {
    /// Adds an entry, and says whether there is room for another.
    fn push(&mut self, entry: Entry, text: &str) -> bool {
        if text.is_empty() || text.len() > REFERENCE_BYTES_MAX {
            return true;
        }
        let Some(url) = self.base.join(text).ok().and_then(clean) else { return true };
        let found = &mut self.found;
        self.bytes += url.as_str().len();
        if found.pages.len() + found.sitemaps.len() == ENTRIES_MAX || self.bytes > ENTRIES_BYTES_MAX {
            found.capped = true;
            return false;
        }
        match entry {
            Entry::Page => found.pages.push(url),
            Entry::Sitemap => found.sitemaps.push(url),
        }
        true
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Page,
    Sitemap,
}

/// Reads a sitemap that is no longer compressed. `base` is the URL it came from.
pub fn sitemap(bytes: &[u8], base: &Url) -> Sitemap {
    let text = decode_xml(bytes, None).text;
    let text = text.trim_start();
    let mut entries = Entries { base, found: Sitemap::default(), bytes: 0 };
    if text.starts_with('<') {
        read_xml(text, &mut entries);
    } else {
        read_lines(text, &mut entries);
    }
    entries.found
}

/// A URL a line. Lines that are no absolute URL are left out: they are more likely prose than paths.
fn read_lines(text: &str, entries: &mut Entries) {
    for line in text.lines().map(str::trim) {
        let is_absolute = line.split_once("://").is_some_and(|(scheme, _)| {
            scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
        });
        if is_absolute && !entries.push(Entry::Page, line) {
            return;
        }
    }
}

/// The place in the XML: names are compared without their prefixes, and `loc` counts directly below an entry only, so
/// that those of images and videos do not.
#[derive(Default)]
struct Place {
    depth: usize,
    entry: Option<(Entry, usize)>,
    /// The text of the `loc` that is being read.
    loc: Option<String>,
}

impl Place {
    fn open(&mut self, name: &str) {
        self.depth += 1;
        // Some lists of sitemaps leave `loc` out: what text there is in an entry before any element is its own.
        self.loc = None;
        if name.eq_ignore_ascii_case("url") {
            self.entry = Some((Entry::Page, self.depth));
        } else if name.eq_ignore_ascii_case("sitemap") {
            self.entry = Some((Entry::Sitemap, self.depth));
            self.loc = Some(String::new());
        } else if name.eq_ignore_ascii_case("loc")
            && self.entry.is_some_and(|(_, depth)| depth + 1 == self.depth)
        {
            self.loc = Some(String::new());
        }
    }

    /// Closes an element; returns the entry that is complete by that.
    fn close(&mut self) -> Option<(Entry, String)> {
        self.depth = self.depth.saturating_sub(1);
        let (entry, depth) = self.entry?;
        if self.depth < depth {
            self.entry = None;
        }
        self.loc.take().map(|loc| (entry, loc))
    }

    fn text(&mut self, text: &str) {
        if let Some(loc) = &mut self.loc
            && loc.len() <= REFERENCE_BYTES_MAX
        {
            loc.push_str(text);
        }
    }
}

fn read_xml(text: &str, entries: &mut Entries) {
    let mut reader = Reader::from_str(text);
    let config = reader.config_mut();
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    config.allow_dangling_amp = true;
    let mut place = Place::default();
    let mut mistakes = 0;
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => place.open(tag.local_name().as_ref()),
            Ok(Event::End(_)) => {
                if let Some((entry, loc)) = place.close()
                    && !entries.push(entry, loc.trim())
                {
                    return;
                }
            }
            Ok(Event::Text(text)) => place.text(&text),
            Ok(Event::CData(text)) => place.text(&text),
            Ok(Event::GeneralRef(reference)) => match reference.resolve_char_ref() {
                Ok(Some(character)) => place.text(character.encode_utf8(&mut [0; 4])),
                // An entity that XML does not define is more likely an ampersand that nobody escaped.
                _ => match resolve_predefined_entity(&reference) {
                    Some(character) => place.text(character),
                    None => ["&", &reference, ";"].into_iter().for_each(|part| place.text(part)),
                },
            },
            Ok(Event::Eof) => return,
            Ok(_) => {}
            Err(_) => {
                mistakes += 1;
                if mistakes > MISTAKES_MAX {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let found = sitemap(text.as_bytes(), &Url::parse("http://a.example/dir/sitemap.xml").unwrap());
        assert!(!found.capped);
        let texts = |urls: Vec<Url>| urls.into_iter().map(String::from).collect();
        (texts(found.pages), texts(found.sitemaps))
    }

    #[test]
    fn pages() {
        let image = "<image:image><image:loc>http://a.example/i</image:loc></image:image>";
        let with_image = format!("<urlset><url>{image}<loc>http://a.example/1</loc>{image}</url></urlset>");
        let expected = "http://a.example/1";
        for text in [
            "<?xml version='1.0'?><urlset xmlns='x'><url><loc>http://a.example/1</loc></url></urlset>",
            "<s:urlset xmlns:s='x'><s:url><s:loc>http://a.example/1</s:loc></s:url></s:urlset>",
            "<URLSET><URL><LOC>http://a.example/1</LOC></URL></URLSET>",
            "<urlset><url><loc>\n  http://a.example/1 \n</loc><lastmod>2026</lastmod></url></urlset>",
            "<urlset><url><loc><![CDATA[http://a.example/1]]></loc></url></urlset>",
            "<urlset><url><loc> <!-- c --><![CDATA[ http://a.example/1 ]]></loc></url></urlset>",
            "<urlset><url><loc>http://a.example&#x2F;&#49;</loc></url></urlset>",
            "<urlset><url><loc>/1</loc></url></urlset>",
            "<urlset><url><loc>http://a.example/1#top</loc></url></urlset>",
            // Cut off, in a place where the last URL is complete and where it is not.
            "<urlset><url><loc>http://a.example/1</loc></url><url><lo",
            "<urlset><url><loc>http://a.example/1</loc></url><url><loc>http://a.example/2",
            // Mistakes.
            "<urlset><url><loc>http://a.example/1</loc></urlset>",
            "<urlset><url><lastmod>x</lastmo><loc>http://a.example/1</loc></url></urlset>",
            "<urlset><url><loc></loc></url><url><loc>mailto:a</loc></url><url><loc>http://a.example/1</loc></url>",
            "<urlset></oops><url><loc>http://a.example/1</loc></url></urlset>",
            "\u{feff}  <urlset><url><loc>http://a.example/1</loc></url></urlset>",
            "<urlset><loc>http://a.example/2</loc><url><loc>http://a.example/1</loc></url></urlset>",
            &with_image,
        ] {
            assert_eq!(read(text), (vec![expected.to_owned()], vec![]), "{text}");
        }
    }

    #[test]
    fn ampersands() {
        for (text, expected) in [
            ("?a=1&amp;b=2", "?a=1&b=2"),
            ("?a=1&b=2", "?a=1&b=2"),
            ("?a=1&copy;b=2", "?a=1&copy;b=2"),
            ("?a=1&#0;", "?a=1&"),
        ] {
            let (pages, _) = read(&format!("<urlset><url><loc>http://a.example/{text}</loc></url></urlset>"));
            assert_eq!(pages, [format!("http://a.example/{expected}")], "{text}");
        }
    }

    #[test]
    fn sitemaps_of_sitemaps() {
        let text = "<sitemapindex><sitemap><loc>http://a.example/1.xml</loc></sitemap>\
                    <sitemap><loc>http://b.example/2.xml.gz</loc></sitemap></sitemapindex>";
        let expected = vec!["http://a.example/1.xml".to_owned(), "http://b.example/2.xml.gz".to_owned()];
        assert_eq!(read(text), (vec![], expected.clone()));
        let bare = "<sitemapindex><sitemap>\nhttp://a.example/1.xml</sitemap>\
                    <sitemap> http://b.example/2.xml.gz <lastmod>x</lastmod></sitemap></sitemapindex>";
        assert_eq!(read(bare).1, expected[..1]);
    }

    #[test]
    fn lines() {
        let text =
            "\u{feff}http://a.example/1\r\n\r\n  HTTPS://a.example/2\nsome prose\n/3\nftp://a.example/4\n";
        let expected = vec!["http://a.example/1".to_owned(), "https://a.example/2".to_owned()];
        assert_eq!(read(text), (expected, vec![]));
        assert_eq!(read(""), (vec![], vec![]));
    }

    #[test]
    fn character_sets() {
        let base = Url::parse("http://a.example/").unwrap();
        let latin =
            b"<?xml version='1.0' encoding='iso-8859-1'?><urlset><url><loc>/caf\xe9</loc></url></urlset>";
        let lying =
            b"<?xml version='1.0' encoding='utf-16'?><urlset><url><loc>/caf\xc3\xa9</loc></url></urlset>";
        let text = "<urlset><url><loc>/caf\u{e9}</loc></url></urlset>";
        let utf_16: Vec<u8> =
            [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect();
        for bytes in [&latin[..], lying, &utf_16] {
            assert_eq!(sitemap(bytes, &base).pages, [base.join("/caf%C3%A9").unwrap()]);
        }
    }

    #[test]
    fn limits() {
        let base = Url::parse("http://a.example/").unwrap();
        let entries = |count: usize| "<url><loc>/a</loc></url>".repeat(count);
        let full = sitemap(entries(ENTRIES_MAX).as_bytes(), &base);
        assert_eq!((full.pages.len(), full.capped), (ENTRIES_MAX, false));
        let over = sitemap(entries(ENTRIES_MAX + 1).as_bytes(), &base);
        assert_eq!((over.pages.len(), over.capped), (ENTRIES_MAX, true));
        let lines = sitemap("http://a.example/\n".repeat(ENTRIES_MAX + 1).as_bytes(), &base);
        assert_eq!((lines.pages.len(), lines.capped), (ENTRIES_MAX, true));
        let long = format!(
            "<url><loc>/{}</loc></url><url><loc>/a</loc></url>",
            "a&amp;".repeat(REFERENCE_BYTES_MAX)
        );
        assert_eq!(sitemap(long.as_bytes(), &base).pages, [base.join("/a").unwrap()]);
        let line = format!("http://a.example/{}\n", "x".repeat(1024 - 17));
        let heavy = sitemap(line.repeat(20_000).as_bytes(), &base);
        assert_eq!((heavy.pages.len(), heavy.capped), (ENTRIES_BYTES_MAX / 1024, true));
    }

    proptest! {
        #[test]
        fn nothing_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            text in "(</?url>|</?loc>|<!\\[CDATA\\[|\\]\\]>|&[a-z#]{0,3};?|<!--|-->|<\\?|[a-z/:<>é\"]){0,30}",
        ) {
            let base = Url::parse("http://a.example/").unwrap();
            sitemap(&bytes, &base);
            sitemap(text.as_bytes(), &base);
        }
    }
}
