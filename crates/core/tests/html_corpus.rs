//! Real pages: all links of all of them, as a full HTML parser (html5ever's, with scripting off) finds them.
//!
//! The numbers below were compared link by link with that parser when they were written down.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};

use nephila_core::parse::LinkKind;
use nephila_core::parse::content::{ContentKind, kind};
use nephila_core::parse::html::html;
use nephila_core::url::{CleanUrl, Url, clean};

const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/html");

/// Kind of link, and how many distinct ones all pages have.
const LINKS: &[(LinkKind, usize)] = &[
    (LinkKind::Anchor, 18_029),
    (LinkKind::Area, 57),
    (LinkKind::Frame, 198),
    (LinkKind::Canonical, 88),
    (LinkKind::Alternate, 288),
    (LinkKind::Next, 7),
    (LinkKind::Prev, 6),
    (LinkKind::Refresh, 2),
];

fn pages_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            found.push(path);
        }
    }
}

#[test]
fn all_links_of_all_pages() {
    if !std::fs::exists(PAGES).unwrap() {
        eprintln!("skipped: no ../shared/data");
        return;
    }
    let mut paths = Vec::new();
    pages_below(Path::new(PAGES), &mut paths);
    let base = Url::parse("http://a.example/dir/page").unwrap();
    let mut links = Vec::new();
    for path in &paths {
        let bytes = std::fs::read(path).unwrap();
        let page = html(&bytes, None, &base, "nephila");
        assert!(!page.truncated_links);
        links.extend(page.links);
    }
    assert_eq!(paths.len(), 159);
    for link in &links {
        let parsed = clean(Url::parse(link.url.as_str()).unwrap());
        assert_eq!(parsed.map(CleanUrl::from).as_ref(), Some(&link.url));
    }
    for &(kind, count) in LINKS {
        assert_eq!(links.iter().filter(|link| link.kind == kind).count(), count, "{kind:?}");
    }
}

#[test]
fn pages_are_recognised_without_a_content_type() {
    if !std::fs::exists(PAGES).unwrap() {
        eprintln!("skipped: no ../shared/data");
        return;
    }
    let mut paths = Vec::new();
    pages_below(Path::new(PAGES), &mut paths);
    for path in &paths {
        // One of them is a feed under the name of a page.
        let expected = if path.ends_with("sample_rss.html") { ContentKind::Xml } else { ContentKind::Html };
        assert_eq!(kind(None, &std::fs::read(path).unwrap()), expected, "{}", path.display());
    }
}

#[test]
fn a_page_cut_anywhere_gives_no_other_links() {
    if !std::fs::exists(PAGES).unwrap() {
        eprintln!("skipped: no ../shared/data");
        return;
    }
    let mut paths = Vec::new();
    pages_below(Path::new(PAGES), &mut paths);
    paths.sort();
    let base = Url::parse("http://a.example/dir/page").unwrap();
    // A page whose base comes late would resolve its first links otherwise; of these few none does.
    for path in paths.iter().step_by(40) {
        let bytes = std::fs::read(path).unwrap();
        let whole = html(&bytes, Some("utf-8"), &base, "nephila").links;
        for cut in (0..bytes.len()).step_by(bytes.len() / 20 + 1) {
            let part = html(&bytes[..cut], Some("utf-8"), &base, "nephila").links;
            assert!(whole.starts_with(&part), "{} cut at {cut}", path.display());
        }
    }
}
