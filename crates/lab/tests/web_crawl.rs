//! What the web expects can be done: a small crawler, in no hurry to be fast or to survive anything, that follows the
//! rules finds all of it and breaks none. It has no delays, because the web asks for none here.

#![allow(clippy::unwrap_used, reason = "a test fails where this does")]

mod web_client;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io::Read,
    sync::Arc,
    time::{Duration, SystemTime},
};

use nephila_core::{
    parse::{
        LinkKind,
        content::{self, ContentKind},
        headers, html, sitemap,
    },
    robots::{Directives, Robots},
    url::{self, Url, traps},
};
use nephila_lab::web::{
    PageBytes, Web, WebConfig,
    kinds::{Connect, Names},
    serve,
};
use web_client::Client;

const AGENT: &str = "nephila";
const HOST_PAGES_MAX: usize = 80;
const DEPTH_MAX: u32 = 50;
const REDIRECTS_MAX: u32 = 10;
/// These need a crawler that knows when to stop waiting or reading; and certificates and names are not followed here.
const NOT_FOR_THIS: [&str; 8] = [
    "stalled-head",
    "stalled-body",
    "drip",
    "endless",
    "endless-head",
    "huge",
    "robots-timeout",
    "sitemap-huge",
];

struct Answer {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Answer {
    fn all(&self, name: &str) -> impl Iterator<Item = String> {
        let named = self.headers.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    fn get(&self, name: &str) -> Option<String> {
        self.all(name).next()
    }

    /// The body without its content coding, or nothing if that cannot be undone within limits.
    fn decoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let body = self.body.as_slice();
        let coding = self.get("content-encoding").unwrap_or_default();
        let reader: Box<dyn Read> = match coding.as_str() {
            "gzip" => Box::new(flate2::read::MultiGzDecoder::new(body)),
            "deflate" if body.first() == Some(&0x78) => Box::new(flate2::read::ZlibDecoder::new(body)),
            "deflate" => Box::new(flate2::read::DeflateDecoder::new(body)),
            "br" => Box::new(brotli::Decompressor::new(body, 4096)),
            "zstd" => Box::new(zstd::Decoder::new(body).unwrap()),
            // A sitemap that is itself compressed.
            _ if body.starts_with(&[0x1f, 0x8b]) => Box::new(flate2::read::MultiGzDecoder::new(body)),
            _ => Box::new(body),
        };
        let _ = reader.take(1 << 20).read_to_end(&mut out);
        out
    }
}

/// Reads an answer as strictly as HTTP has it; nothing if it is none, or not whole.
fn read(bytes: &[u8]) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(len) = head.parse(bytes).ok()? else { return None };
    let status = head.code?;
    if (100..200).contains(&status) {
        return read(&bytes[len..]);
    }
    let headers = head.headers.iter().map(|header| (header.name.to_owned(), header.value.to_vec())).collect();
    let mut answer = Answer { status, headers, body: bytes[len..].to_vec() };
    if matches!(status, 204 | 304) {
        answer.body.clear();
    } else if answer.get("transfer-encoding").is_some() {
        answer.body = dechunked(&bytes[len..])?;
    } else if let Some(length) = answer.get("content-length") {
        let length: usize = length.parse().ok()?;
        answer.body.get(length..)?;
        answer.body.truncate(length);
    }
    Some(answer)
}

fn dechunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let httparse::Status::Complete((start, len)) = httparse::parse_chunk_size(rest).ok()? else {
            return None;
        };
        let len = usize::try_from(len).ok()?;
        if len == 0 {
            return Some(body);
        }
        let chunk = rest.get(start..)?.get(..len)?;
        body.extend_from_slice(chunk);
        rest = rest[start + len..].strip_prefix(b"\r\n")?;
    }
}

struct Due {
    url: Url,
    depth: u32,
    redirects: u32,
    sitemap: bool,
}

struct Crawl {
    web: Arc<Web>,
    names: Vec<String>,
    queue: VecDeque<Due>,
    seen: HashSet<String>,
    /// Rules by origin; none while they cannot be had.
    robots: HashMap<String, Option<Robots>>,
}

impl Crawl {
    async fn run(web: Arc<Web>, index: u32) {
        let host = web.plan().host(index).unwrap();
        let names = vec![host.name(), format!("www.{}", host.name())];
        let seed = Url::parse(&host.entry()).unwrap();
        let mut crawl = Crawl {
            web: Arc::clone(&web),
            names,
            queue: VecDeque::new(),
            seen: HashSet::new(),
            robots: HashMap::new(),
        };
        crawl.admit(Due { url: seed, depth: 0, redirects: 0, sitemap: false });
        while let Some(due) = crawl.queue.pop_front() {
            crawl.visit(due).await;
        }
    }

    fn admit(&mut self, due: Due) {
        let Some(url) = url::clean(due.url.clone()) else { return };
        let in_scope = url.host_str().is_some_and(|name| self.names.iter().any(|known| known == name));
        let within =
            due.depth <= DEPTH_MAX && due.redirects <= REDIRECTS_MAX && self.seen.len() < HOST_PAGES_MAX;
        let fits = traps::check(&url.clone().into(), &traps::TrapLimits::default()).is_ok();
        if in_scope && within && fits && self.seen.insert(url::key(&url)) {
            self.queue.push_back(Due { url, ..due });
        }
    }

    async fn visit(&mut self, due: Due) {
        let origin = due.url.origin().ascii_serialization();
        if !self.robots.contains_key(&origin) {
            let robots = self.read_robots(&due.url).await;
            for map in robots.iter().flat_map(|robots| robots.sitemaps.clone()) {
                let Ok(url) = Url::parse(&map) else { continue };
                self.admit(Due { url, depth: 1, redirects: 0, sitemap: true });
            }
            self.robots.insert(origin.clone(), robots);
        }
        let Some(Some(robots)) = self.robots.get(&origin) else { return };
        if !robots.decide(&target(&due.url)).allowed {
            return;
        }
        let mut attempts = 0;
        while attempts < 4 {
            match self.fetch(&due.url).await {
                Some(answer) if matches!(answer.status, 429 | 503) => wait_as_told(&answer).await,
                Some(answer) if answer.status != 408 && answer.status < 500 => {
                    return self.follow(&due, &answer);
                }
                // Longer than any pause between attempts that this web asks for.
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            attempts += 1;
        }
    }

    fn follow(&mut self, due: &Due, answer: &Answer) {
        let next = |url, depth| Due { url, depth, redirects: 0, sitemap: false };
        if let (301 | 302 | 303 | 307 | 308, Some(location)) = (answer.status, answer.get("location")) {
            let Ok(url) = due.url.join(&location) else { return };
            return self.admit(Due { redirects: due.redirects + 1, ..next(url, due.depth) });
        }
        let body = answer.decoded();
        if due.sitemap {
            let map = sitemap::sitemap(&body, &due.url);
            map.sitemaps
                .into_iter()
                .for_each(|url| self.admit(Due { sitemap: true, ..next(url, due.depth + 1) }));
            map.pages.into_iter().for_each(|url| self.admit(next(url, due.depth + 1)));
            return;
        }
        let content_type = answer.get("content-type");
        if content::kind(content_type.as_deref(), &body) != ContentKind::Html {
            return;
        }
        let charset = content_type.as_deref().and_then(|value| headers::content_type(value).charset);
        let page = html::html(&body, charset, &due.url, AGENT);
        let mut directives = page.directives;
        answer.all("x-robots-tag").for_each(|value| directives.merge(Directives::from_header(&value, AGENT)));
        let in_head = answer.all("link").flat_map(|value| headers::links(value.as_bytes(), &due.url));
        for link in page.links.into_iter().chain(in_head) {
            if !link.nofollow && !directives.nofollow && link.kind != LinkKind::Sitemap {
                self.admit(next(Url::parse(link.url.as_str()).unwrap(), due.depth + 1));
            }
        }
    }

    /// The rules of an origin, after up to five redirects; asked for again as long as they cannot be had, but not for ever.
    async fn read_robots(&self, url: &Url) -> Option<Robots> {
        for _ in 0..4 {
            let mut at = url.join("/robots.txt").unwrap();
            for _ in 0..=5 {
                let Some(answer) = self.fetch(&at).await else { break };
                match (answer.status, answer.get("location")) {
                    (200..=299, _) => return Some(Robots::parse(&answer.decoded(), AGENT)),
                    (300..=399, Some(location)) => at = at.join(&location).unwrap(),
                    (429, _) => {
                        wait_as_told(&answer).await;
                        break;
                    }
                    (400..=499, _) => return Some(Robots::allow_all()),
                    _ => break,
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }

    async fn fetch(&self, url: &Url) -> Option<Answer> {
        let plan = self.web.plan();
        let host = plan.by_name(url.host_str()?)?;
        let mut client = Client::try_connect(&self.web, &host, url.scheme() == "https").await.ok()?;
        read(&client.get_bytes(&host.name(), &target(url)).await)
    }
}

fn target(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

async fn wait_as_told(answer: &Answer) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let seconds = answer.get("retry-after").and_then(|value| headers::retry_after_s(value.as_bytes(), now));
    tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(0)) + Duration::from_millis(10)).await;
}

#[tokio::test]
async fn who_follows_the_rules_finds_everything() {
    let web = WebConfig {
        hosts: 200,
        pages: 12,
        latency_ms: (0, 0),
        page_bytes: PageBytes::Fixed(1_500),
        time_scale: 1e6,
        delay_ms: 0,
        ip_delay_ms: 0,
        max_host_pages: HOST_PAGES_MAX as u64,
        ..WebConfig::default()
    };
    let web = Arc::new(serve(web).await.unwrap());
    let mut tried = HashSet::new();
    let mut tasks = tokio::task::JoinSet::new();
    for host in web.plan().hosts() {
        let resolves = matches!(host.kind.names, Names::Plain | Names::NoTtl);
        let speaks = host.kind.connect == Connect::Serve;
        if host.kind_index > 0 && resolves && speaks && !NOT_FOR_THIS.contains(&host.kind.name) {
            tried.insert(host.kind.name);
            tasks.spawn(Crawl::run(Arc::clone(&web), host.index));
        }
    }
    assert!(tried.len() > 75, "{}", tried.len());
    tasks.join_all().await;
    let verdict = web.verdict();
    assert_eq!(verdict.violations_total, 0, "{:#?}", verdict.violations);
    assert_eq!(verdict.overlap.examples, Vec::<String>::new());
    let missed: Vec<&&str> = tried.iter().filter(|kind| verdict.kinds[**kind].coverage < 1.0).collect();
    assert!(missed.is_empty(), "{missed:?}: {:?}", verdict.missed.examples);
}
