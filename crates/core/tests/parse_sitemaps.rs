//! Sitemaps as others wrote them.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use nephila_core::parse::sitemap::sitemap;
use nephila_core::url::Url;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
const OURS: &str = "feeds/sitemaps";
const COMMONS: &str = "robots/crawler-commons/src/test/resources/sitemaps";

/// Folder, file, pages, sitemaps.
const FILES: &[(&str, &str, usize, usize)] = &[
    (OURS, "example_1_url.xml", 1, 0),
    (OURS, "example_2_url.xml", 2, 0),
    (OURS, "sitemap.xml", 3, 0),
    (OURS, "sitemap_index.xml", 0, 2),
    // A feed is no sitemap.
    (COMMONS, "atom.xml", 0, 0),
    (COMMONS, "sitemap.badns.xml", 2, 0),
    (COMMONS, "sitemap.ns.xml", 2, 0),
    // Without any `loc`.
    (COMMONS, "sitemap.index.xml", 0, 15),
    (COMMONS, "sitemap.txt", 2, 0),
    (COMMONS, "sitemap-with-bom.txt", 2, 0),
    (COMMONS, "do-not-visit.txt", 1, 0),
    (COMMONS, "extension/hebdenbridgetimes-articles-sitemap.xml", 74, 0),
    (COMMONS, "extension/pagemaps-sitemap.xml", 2, 0),
    (COMMONS, "extension/shinpaideshou-news-sitemap.xml", 3, 0),
    (COMMONS, "extension/sitemap-images.xml", 1, 0),
    (COMMONS, "extension/sitemap-links.xml", 3, 0),
    (COMMONS, "extension/sitemap-mobile.xml", 3, 0),
    (COMMONS, "extension/sitemap-news.xml", 2, 0),
    (COMMONS, "extension/sitemap-videos-tvshow.xml", 1, 0),
    (COMMONS, "extension/sitemap-videos.xml", 3, 0),
];

#[test]
fn fixtures() {
    if !std::fs::exists(DATA).unwrap() {
        eprintln!("skipped: no ../shared/data");
        return;
    }
    let base = Url::parse("http://a.example/sitemap.xml").unwrap();
    for &(folder, file, pages, sitemaps) in FILES {
        let bytes = std::fs::read(format!("{DATA}/{folder}/{file}")).unwrap();
        let found = sitemap(&bytes, &base);
        assert_eq!((found.pages.len(), found.sitemaps.len()), (pages, sitemaps), "{file}");
        // Cut off anywhere, it gives the first of its entries and nothing else.
        for cut in (0..bytes.len()).step_by(bytes.len() / 50 + 1) {
            let part = sitemap(&bytes[..cut], &base);
            if file.ends_with(".xml") {
                assert!(found.pages.starts_with(&part.pages), "{file} cut at {cut}");
                assert!(found.sitemaps.starts_with(&part.sitemaps), "{file} cut at {cut}");
            }
        }
    }
}
