//! Sitemaps, which only robots.txt names, with pages that nothing else leads to.

use std::fmt::Write as _;

use super::{Kind, PLAIN, Special, codings::gzip};
use crate::web::{
    plan::{Host, Rule, Visit},
    reply::{Reply, Step, head},
};

const PAGES_A_MAP: u32 = 5;
/// More than the largest body: what comes after is not read.
const HUGE_BYTES: usize = 24 * 1024 * 1024;

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "sitemap",
            about: "one sitemap, named by robots.txt: its pages are found",
            robots: |visit| named(visit, &["/sitemap.xml"]),
            specials: |host| {
                let mut specials = pages("one");
                specials.push(map("/sitemap.xml", "application/xml", xml(host, "one").into_bytes()));
                specials
            },
            ..PLAIN
        },
        Kind {
            name: "sitemap-index",
            about: "an index of sitemaps, as XML, compressed and as text: the pages of all are found",
            robots: |visit| named(visit, &["/index.xml"]),
            specials: index,
            ..PLAIN
        },
        Kind {
            name: "sitemap-odd",
            about: "entities, CDATA, white space and a byte order mark: the pages are found. One that is broken: no harm",
            robots: |visit| named(visit, &["/odd.xml", "/broken.xml", "/missing.xml"]),
            specials: odd,
            ..PLAIN
        },
        Kind {
            name: "sitemap-huge",
            about: "a sitemap of 24 MiB: read as far as the limits allow, once",
            robots: |visit| named(visit, &["/huge.xml"]),
            specials: huge,
            pages_max: 5,
            ..PLAIN
        },
    ]
}

fn named(visit: &Visit<'_>, maps: &[&str]) -> Reply {
    let origin = visit.host.origin();
    let lines: String = maps.iter().map(|map| format!("Sitemap: {origin}{map}\n")).collect();
    Reply::robots(&format!("{lines}User-agent: *\nDisallow: /never/\n"))
}

fn page_target(map: &str, number: u32) -> String {
    format!("/mapped/{map}/{number}")
}

/// Pages that only a map names.
fn pages(map: &str) -> Vec<Special> {
    (1..=PAGES_A_MAP)
        .map(|number| Special::page(&page_target(map, number), Rule::Expected).unlinked())
        .collect()
}

fn map(target: &str, content_type: &'static str, body: Vec<u8>) -> Special {
    let answer = move |_: &Visit<'_>| Reply::new(200, content_type, &body);
    Special::page(target, Rule::Expected).unlinked().answering(answer)
}

fn xml(host: &Host<'_>, map: &str) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
    );
    for number in 1..=PAGES_A_MAP {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "<url><loc>{}{}</loc><lastmod>2024-01-01</lastmod><priority>0.5</priority></url>",
            host.origin(),
            page_target(map, number)
        );
    }
    text.push_str("</urlset>\n");
    text
}

fn index(host: &Host<'_>) -> Vec<Special> {
    let origin = host.origin();
    let entry = |target: &str| format!("<sitemap><loc>{origin}{target}</loc></sitemap>\n");
    let entries = ["/maps/xml.xml", "/maps/gz.xml.gz", "/maps/text.txt"].map(entry).concat();
    let index = format!(
        "<?xml version=\"1.0\"?>\n<sitemapindex xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n{entries}\
         </sitemapindex>\n"
    );
    let text: String =
        (1..=PAGES_A_MAP).map(|number| format!("{origin}{}\r\n", page_target("text", number))).collect();
    let mut specials = vec![
        map("/index.xml", "text/xml", index.into_bytes()),
        map("/maps/xml.xml", "application/xml", xml(host, "xml").into_bytes()),
        map("/maps/gz.xml.gz", "application/gzip", gzip(xml(host, "gz").as_bytes())),
        map("/maps/text.txt", "text/plain", text.into_bytes()),
    ];
    specials.extend(["xml", "gz", "text"].into_iter().flat_map(pages));
    specials
}

fn odd(host: &Host<'_>) -> Vec<Special> {
    let origin = host.origin();
    let odd = format!(
        "\u{feff}<?xml version='1.0'?>\n<!-- <loc>{origin}/never</loc> -->\n<s:urlset xmlns:s='http://www.sitemaps.org/schemas/sitemap/0.9'>\n\
         <s:url><s:loc>{origin}/odd-map/1?a=1&amp;b=2</s:loc></s:url>\n\
         <s:url><s:loc>\n   {origin}/odd-map/2\n  </s:loc></s:url>\n\
         <s:url><s:loc><![CDATA[{origin}/odd-map/3?x=1&y=2]]></s:loc></s:url>\n</s:urlset>\n"
    );
    let broken =
        format!("<urlset><url><loc>{origin}/odd-map/4</loc></url><url><loc>{origin}/odd-map/5</wrong></url");
    vec![
        map("/odd.xml", "application/xml; charset=utf-8", odd.into_bytes()),
        map("/broken.xml", "application/xml", broken.into_bytes()),
        Special::page("/missing.xml", Rule::Expected)
            .unlinked()
            .answering(|_| Reply::new(404, "text/html", b"no map")),
        Special::page("/odd-map/1?a=1&b=2", Rule::Expected).unlinked(),
        Special::page("/odd-map/2", Rule::Expected).unlinked(),
        Special::page("/odd-map/3?x=1&y=2", Rule::Expected).unlinked(),
        Special::page("/odd-map/4", Rule::Optional).unlinked(),
        Special::page("/odd-map/5", Rule::Optional).unlinked(),
    ]
}

fn huge(host: &Host<'_>) -> Vec<Special> {
    let whole = xml(host, "huge");
    let late = format!("<url><loc>{}/mapped/late</loc></url></urlset>\n", host.origin());
    let answer = move |_: &Visit<'_>| {
        let start = whole.trim_end().trim_end_matches("</urlset>");
        let length = start.len() + HUGE_BYTES + late.len();
        let mut first =
            head(200, &format!("Content-Type: application/xml\r\nContent-Length: {length}\r\n\r\n"));
        first.extend_from_slice(start.as_bytes());
        Reply::steps(vec![
            Step::Write(first),
            Step::Write(vec![b'\n'; HUGE_BYTES]),
            Step::Write(late.clone().into_bytes()),
        ])
    };
    let mut specials = pages("huge");
    specials.push(Special::page("/huge.xml", Rule::Tried(1)).unlinked().answering(answer));
    specials.push(Special::page("/mapped/late", Rule::Optional).unlinked());
    specials
}
