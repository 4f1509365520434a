//! Hosts to measure federations of sites with: sizes, and how often others link to them, by power laws; four of five links stay
//! within the host; URLs of 60 to 80 bytes, in which beyond the directory 40 bits are random.

use std::fmt::Write as _;

use super::{Home, Kind, PLAIN};
use crate::web::{
    plan::{Host, Mix},
    reply,
};

/// The largest host, in averages.
const LARGEST: f64 = 30.0;
/// Directories of a host.
const DIRECTORIES: u64 = 16;
/// How many children a page has in the tree that makes every page of a host reachable.
const CHILDREN: u64 = 4;
/// Hosts that the front page of one leads to, so that all are reachable from the first.
const NEXT_HOSTS: u32 = 2;
/// Links of a page beyond those.
const LINKS: u64 = 16;
/// Of them, so many in a hundred lead to other hosts.
const ELSEWHERE_PERCENT: u64 = 20;
/// How much more often low numbers are linked to than high ones, of hosts and of pages: a power of a uniform number.
const POPULARITY: i32 = 3;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "federation",
        about: "for measurements of several sites: sizes and links by power laws, URLs that do not compress well",
        home: Home::Http,
        in_all: false,
        sizes: size,
        target,
        page_of,
        page: |host, page| answer(&html(host, page)),
        ..PLAIN
    }]
}

/// Pages of a host, front page included: by a Pareto law of exponent 2, as many on average as the web says.
fn size(host: &Host<'_>) -> u32 {
    let mean = f64::from(host.plan.config.pages);
    let drawn = 0.5 * mean / (1.0 - host.mix(0xf0, 0).unit()).sqrt();
    (drawn.min(LARGEST * mean) as u32).max(1)
}

fn target(host: &Host<'_>, page: u64, out: &mut String) {
    if page == 0 {
        return out.push('/');
    }
    let random = host.mix(0xf1, page).next_u64() >> 24;
    // Writing to a String cannot fail.
    let _ = write!(out, "/archive/part-{:02}/{random:010x}-{page}.html", page % DIRECTORIES);
}

fn page_of(host: &Host<'_>, wanted: &str) -> Option<u32> {
    if wanted == "/" {
        return Some(0);
    }
    let page: u32 = wanted.strip_suffix(".html")?.rsplit_once('-')?.1.parse().ok()?;
    let mut spelling = String::new();
    target(host, u64::from(page), &mut spelling);
    (page > 0 && page < host.pages() && spelling == wanted).then_some(page)
}

fn answer(body: &[u8]) -> Vec<u8> {
    let headers = format!("Content-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n", body.len());
    [&reply::head(200, &headers), body].concat()
}

fn html(host: &Host<'_>, page: u32) -> Vec<u8> {
    let mut html = format!("<!doctype html><html><head><title>page {page}</title></head><body><ul>\n");
    for url in links(host, page, &mut host.mix(0xf2, u64::from(page))) {
        let _ = writeln!(html, "<li><a href=\"{url}\">more</a>");
    }
    html.push_str("</ul></body></html>\n");
    html.into_bytes()
}

/// Where the links of a page lead.
fn links(host: &Host<'_>, page: u32, mix: &mut Mix) -> Vec<String> {
    let (hosts, pages) = (host.plan.config.hosts, u64::from(host.pages()));
    let url = |prefix: &str, host: &Host<'_>, page: u64| {
        let mut url = prefix.to_owned();
        target(host, page, &mut url);
        url
    };
    let popular = |count: u64, mix: &mut Mix| (count as f64 * mix.unit().powi(POPULARITY)) as u64;
    let first = u64::from(page) * CHILDREN + 1;
    let mut links: Vec<String> =
        (first..(first + CHILDREN).min(pages)).map(|child| url("", host, child)).collect();
    if page == 0 {
        let next = host.index * NEXT_HOSTS + 1;
        let next = (next..next.saturating_add(NEXT_HOSTS)).filter_map(|index| host.plan.host(index));
        links.extend(next.map(|other| url(&other.origin(), &other, 0)));
    }
    for _ in 0..LINKS {
        let other = popular(u64::from(hosts), mix) as u32;
        match host.plan.host(other).filter(|_| mix.below(100) < ELSEWHERE_PERCENT) {
            Some(other) => {
                let page = popular(u64::from(other.pages()), mix);
                links.push(url(&other.origin(), &other, page));
            }
            None => links.push(url("", host, popular(pages, mix))),
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::web::{
        WebConfig,
        plan::{Plan, Rule},
    };

    #[test]
    fn a_web_is_as_it_should_be() {
        let kinds = "federation".parse().unwrap();
        let config = WebConfig { hosts: 200, pages: 40, kinds, http_port: 40_000, ..WebConfig::default() };
        let plan = Plan::new(config).unwrap();
        let sizes: Vec<u32> = plan.hosts().map(|host| host.pages()).collect();
        let mean = sizes.iter().sum::<u32>() as f64 / sizes.len() as f64;
        assert!((25.0..55.0).contains(&mean), "{mean}");
        assert!(sizes.iter().any(|size| *size > 150), "no host is large");
        // Everything is reachable from the first front page, and exists.
        let first = plan.host(0).unwrap().origin() + "/";
        let (mut known, mut open) = (HashSet::from([first.clone()]), vec![first]);
        let (mut inside, mut outside) = (0, 0);
        while let Some(from) = open.pop() {
            let (host, https, wanted) = plan.locate(&from).unwrap();
            assert_eq!(host.resolve(https, wanted).rule, Rule::Expected, "{from}");
            let page = host.page_of(wanted).unwrap();
            for link in links(&host, page, &mut host.mix(0xf2, u64::from(page))) {
                let url = if link.starts_with('/') {
                    inside += 1;
                    host.origin() + &link
                } else {
                    outside += 1;
                    link
                };
                assert!(url.ends_with(":40000/") || (60..=80).contains(&url.len()), "{url}");
                if known.insert(url.clone()) {
                    open.push(url);
                }
            }
        }
        assert_eq!(known.len() as u32, sizes.iter().sum::<u32>());
        let share = f64::from(inside) / f64::from(inside + outside);
        assert!((0.78..0.86).contains(&share), "{share}");
    }
}
