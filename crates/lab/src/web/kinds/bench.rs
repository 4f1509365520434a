//! Hosts to measure crawlers with: pages that are all alike, 16 KB with 30 links, as compressible as pages of the web.
//!
//! They have no names, so that crawlers which cannot be told whom to ask for names crawl the same hosts as all others.

use std::{fmt::Write as _, io::Write as _, sync::LazyLock};

use flate2::{Compression, write::GzEncoder};

use super::{Home, Kind, Names, PLAIN};
use crate::web::{
    plan::{Host, Mix, page_target},
    reply,
};

/// Bytes of a page before any content coding.
const PAGE_BYTES: usize = 16_000;
/// Links of every page.
const LINKS: u64 = 30;
/// How many of them make every page reachable, at most.
const CHILDREN: u64 = 8;
/// Of the others, so many in a hundred lead to other hosts.
const ELSEWHERE_PERCENT: u64 = 20;
/// Text to cut pages out of.
const POOL_BYTES: usize = 1 << 20;
/// Different words, and sentences made of them that come again and again: they decide how well pages compress.
const WORDS: u64 = 1_000;
const SENTENCES: u64 = 34;
/// Of the sentences of a page, so many in a hundred come again and again.
const REPEATED_PERCENT: u64 = 80;

pub(super) fn kinds() -> Vec<Kind> {
    let bench = Kind { home: Home::Http, names: Names::Address, in_all: false, ..PLAIN };
    vec![
        Kind {
            name: "bench",
            about: "for measurements: without a name, pages of 16 KB with 30 links",
            page: |host, page| answer(&html(host, page), ""),
            ..bench
        },
        Kind {
            name: "bench-gzip",
            about: "the same, sent compressed",
            page: |host, page| answer(&gzip(&html(host, page)), "Content-Encoding: gzip\r\n"),
            ..bench
        },
    ]
}

fn answer(body: &[u8], coding: &str) -> Vec<u8> {
    let length = body.len();
    let headers =
        format!("Content-Type: text/html; charset=utf-8\r\n{coding}Content-Length: {length}\r\n\r\n");
    let mut bytes = reply::head(200, &headers);
    bytes.extend_from_slice(body);
    bytes
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 2), Compression::new(1));
    // Cannot fail: the writer is a Vec.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

fn html(host: &Host<'_>, page: u32) -> Vec<u8> {
    let mut mix = host.mix(0xbe, u64::from(page));
    let mut html = String::with_capacity(PAGE_BYTES);
    // Writing to a String cannot fail.
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>page {page} of {}</title></head>\n\
         <body><nav><ul class=\"links\">\n",
        host.name()
    );
    for target in targets(host, page, &mut mix) {
        let _ = writeln!(html, "<li class=\"entry\"><a class=\"more\" href=\"{target}\">more of it</a></li>");
    }
    html.push_str("</ul></nav><main>\n");
    let end = "</p></main></body></html>\n";
    let mut bytes = html.into_bytes();
    let filler = PAGE_BYTES.saturating_sub(bytes.len() + end.len());
    let pool = &*POOL;
    let from = mix.below((pool.len() - PAGE_BYTES) as u64) as usize;
    bytes.extend_from_slice(&pool[from..from + filler]);
    bytes.extend_from_slice(end.as_bytes());
    bytes
}

/// Where the links of a page lead.
fn targets(host: &Host<'_>, page: u32, mix: &mut Mix) -> Vec<String> {
    let pages = u64::from(host.pages());
    let first_child = u64::from(page) * CHILDREN + 1;
    let target = |page: u64| {
        let mut target = String::new();
        page_target(&mut target, page);
        target
    };
    let mut targets: Vec<String> = (first_child..(first_child + CHILDREN).min(pages)).map(target).collect();
    while (targets.len() as u64) < LINKS {
        let to = target(mix.below(pages));
        let other = mix.below(u64::from(host.plan.config.hosts)) as u32;
        match host.plan.host(other).filter(|_| mix.below(100) < ELSEWHERE_PERCENT) {
            Some(other) => targets.push(other.origin() + &to),
            None => targets.push(to),
        }
    }
    targets
}

static POOL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    const SYLLABLES: [&str; 24] = [
        "ne", "phi", "la", "ra", "to", "mi", "ka", "so", "ven", "dor", "est", "ul", "web", "sil", "ken",
        "ar", "bo", "li", "tam", "que", "rin", "pos", "ga", "hel",
    ];
    let mut mix = Mix::new(&[0xbe, 1]);
    let mut pick = |end: u64| mix.below(end) as usize;
    let words: Vec<String> =
        (0..WORDS).map(|_| (0..=pick(3)).map(|_| SYLLABLES[pick(24)]).collect::<String>()).collect();
    let sentence = |pick: &mut dyn FnMut(u64) -> usize| {
        (0..6 + pick(6)).map(|_| words[pick(WORDS)].as_str()).collect::<Vec<_>>().join(" ")
    };
    let repeated: Vec<String> = (0..SENTENCES).map(|_| sentence(&mut pick)).collect();
    let mut pool = String::with_capacity(POOL_BYTES + 1_000);
    while pool.len() < POOL_BYTES {
        pool.push_str("<p class=\"text\">");
        for _ in 0..5 {
            if pick(100) < REPEATED_PERCENT as usize {
                pool.push_str(&repeated[pick(SENTENCES)]);
            } else {
                pool.push_str(&sentence(&mut pick));
            }
            pool.push_str(". ");
        }
        pool.push_str("</p>\n");
    }
    pool.into_bytes()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::{WebConfig, plan::Plan};

    #[test]
    fn pages_are_as_they_should_be() {
        let config = WebConfig {
            hosts: 100,
            pages: 50,
            kinds: "bench".parse().unwrap(),
            http_port: 80,
            ..WebConfig::default()
        };
        let plan = Plan::new(config).unwrap();
        for (host, page) in [(0, 0), (7, 3), (99, 49)] {
            let host = plan.host(host).unwrap();
            let html = html(&host, page);
            assert_eq!(html.len(), PAGE_BYTES);
            let ratio = html.len() as f64 / gzip(&html).len() as f64;
            assert!((3.5..4.5).contains(&ratio), "{ratio}");
            let text = String::from_utf8(html).unwrap();
            let links: Vec<_> =
                text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
            assert_eq!(links.len() as u64, LINKS);
            for link in links {
                let (host, target) = match link.strip_prefix("http://") {
                    None => (host, link),
                    Some(rest) => {
                        let (name, target) = rest.split_once('/').unwrap();
                        (plan.by_name(name).unwrap(), &link[link.len() - target.len() - 1..])
                    }
                };
                assert_eq!(host.resolve(false, target).rule, crate::web::plan::Rule::Expected, "{link}");
            }
        }
    }
}
