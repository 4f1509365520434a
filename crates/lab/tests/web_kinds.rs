//! Each kind of host answers what it says, over real sockets.

mod web_client;

use std::{sync::Arc, time::Duration};

use nephila_lab::web::{
    Kinds, PageBytes, Web, WebConfig,
    judge::Violation,
    kinds::{self, Connect, Names},
    plan::{Host, Rule},
    serve,
};
use web_client::{Client, get, get_http2};

/// Times are so short that nothing asks for a wait worth mentioning.
async fn web_of(kinds: &str, hosts: u32) -> Web {
    let config = WebConfig {
        hosts,
        pages: 10,
        kinds: kinds.parse::<Kinds>().expect("a kind that exists"),
        latency_ms: (0, 0),
        page_bytes: PageBytes::Fixed(1_000),
        time_scale: 1e6,
        delay_ms: 0,
        ip_delay_ms: 0,
        ..WebConfig::default()
    };
    serve(config).await.expect("a web")
}

/// Whether the host can be spoken to at all.
fn answers(host: &Host<'_>) -> bool {
    let kind = host.kind;
    let named = !matches!(kind.names, Names::NxDomain | Names::ServFail | Names::Timeout)
        && !matches!(kind.names, Names::Private | Names::PrivateLoopback | Names::PrivateV6);
    named && matches!(kind.connect, Connect::Serve | Connect::OnlyHttp2) && !kind.name.starts_with("tls-")
}

/// Asks for each expected URL of a host on a new connection. One that is never answered, or whose end cannot be told, is
/// left after a moment.
async fn ask_for_all(web: Arc<Web>, index: u32) {
    let host = web.plan().host(index).expect("a host of the web");
    let mut expected = Vec::new();
    host.expected(|url| expected.push((url.host.name(), url.https, url.target.to_owned())));
    for (name, https, target) in expected {
        let host = web.plan().by_name(&name).expect("a name of the web");
        if host.kind.connect == Connect::OnlyHttp2 {
            let asking = get_http2(&web, &host, &target);
            let _ = tokio::time::timeout(Duration::from_millis(500), asking).await;
            continue;
        }
        let mut client = Client::connect(&web, &host, https).await;
        let _ = tokio::time::timeout(Duration::from_millis(50), client.get(&target)).await;
    }
}

#[tokio::test]
async fn every_kind_serves_what_it_expects() {
    let hosts = 2 * kinds::all().len() as u32;
    let web = Arc::new(web_of("all", hosts).await);
    for host in web.plan().hosts() {
        let mut expected = 0;
        host.expected(|_| expected += 1);
        let may_be_fetched = answers(&host) && host.kind.base == Rule::Expected;
        assert_eq!(expected > 0, may_be_fetched, "{}", host.kind.name);
    }
    // Some pages succeed at the fourth attempt only.
    let mut missing: Vec<u32> =
        web.plan().hosts().filter(|host| host.kind_index != 0).map(|host| host.index).collect();
    for _ in 0..4 {
        let mut tasks = tokio::task::JoinSet::new();
        for index in &missing {
            tasks.spawn(ask_for_all(Arc::clone(&web), *index));
        }
        tasks.join_all().await;
        let verdict = web.verdict();
        assert!(!verdict.violations.contains_key(&Violation::Unknown), "{:?}", verdict.violations);
        let is_missing = |index: &u32| {
            let host = web.plan().host(*index).expect("a host of the web");
            verdict.kinds[host.kind.name].coverage < 1.0
        };
        missing.retain(is_missing);
    }
    let names: Vec<&str> =
        missing.iter().filter_map(|index| Some(web.plan().host(*index)?.kind.name)).collect();
    assert_eq!(names, Vec::<&str>::new());
}

#[tokio::test]
async fn robots_txt_is_as_the_kind_says() {
    let cases: [(&str, &[&str]); 9] = [
        ("robots-404", &["HTTP/1.1 404"]),
        ("robots-500", &["HTTP/1.1 500", "HTTP/1.1 500"]),
        ("robots-429", &["HTTP/1.1 429", "HTTP/1.1 429", "HTTP/1.1 200"]),
        ("robots-flips", &["HTTP/1.1 502", "HTTP/1.1 502", "HTTP/1.1 200"]),
        ("robots-redirect-1", &["HTTP/1.1 301"]),
        ("robots-elsewhere", &["HTTP/1.1 302"]),
        ("robots-html", &["HTTP/1.1 200"]),
        ("robots-large", &["HTTP/1.1 200"]),
        ("robots-disallow", &["HTTP/1.1 200"]),
    ];
    for (kind, starts) in cases {
        let web = web_of(kind, 1).await;
        let host = web.plan().host(0).unwrap();
        for start in starts {
            let answer = get(&web, &host, "/robots.txt").await;
            assert!(answer.starts_with(start), "{kind}: {answer}");
        }
    }
    let web = web_of("robots-large", 1).await;
    assert!(get(&web, &web.plan().host(0).unwrap(), "/robots.txt").await.len() > 600 * 1024);
    let web = web_of("robots-429", 1).await;
    let answer = get(&web, &web.plan().host(0).unwrap(), "/robots.txt").await;
    assert!(answer.contains("\r\nRetry-After: 1\r\n"), "whole seconds, at least one: {answer}");
}

#[tokio::test]
async fn forbidden_urls_are_violations() {
    let cases = [
        ("robots-rules", "/private/page", Violation::Robots),
        ("robots-disallow", "/", Violation::Robots),
        ("robots-groups", "/second/page", Violation::Robots),
        ("robots-wildcards", "/w/query?a=1&secret=1", Violation::Robots),
        ("meta-robots", "/behind/none", Violation::Robots),
        ("rel-nofollow", "/rel/list", Violation::Robots),
        ("repeating-path", "/again/again/again/again/", Violation::Limits),
        ("malformed-html", "/never/1", Violation::Unknown),
    ];
    for (kind, target, violation) in cases {
        let web = web_of(kind, 1).await;
        let host = web.plan().host(0).unwrap();
        get(&web, &host, "/robots.txt").await;
        get(&web, &host, target).await;
        let found: Vec<Violation> = web.verdict().violations.into_keys().collect();
        assert_eq!(found, [violation], "{kind}");
    }
}

#[tokio::test]
async fn spellings_of_a_url_are_one_url() {
    let web = web_of("spellings", 1).await;
    let host = web.plan().host(0).unwrap();
    get(&web, &host, "/robots.txt").await;
    for target in ["/s/page-1", "/s/%70age-1", "/s/page-1?", "/s/%c3%a9", "/s/%C3%A9"] {
        assert!(get(&web, &host, target).await.starts_with("HTTP/1.1 200"), "{target}");
    }
    let verdict = web.verdict();
    assert_eq!((verdict.overlap.count, verdict.violations_total), (3, 0), "{:?}", verdict.violations);
}

#[tokio::test]
async fn connections_go_wrong_as_the_kind_says() {
    let web = web_of("dead", 1).await;
    // The reset may come before connect returns, or after.
    let _ = tokio::net::TcpStream::connect((web.plan().host(0).unwrap().address(), web.http_port)).await;
    assert_eq!(web.verdict().requests, 1);

    let web = web_of("idle-close", 1).await;
    let host = web.plan().host(0).unwrap();
    let mut client = Client::connect(&web, &host, host.home().1).await;
    assert!(client.get("/robots.txt").await.starts_with("HTTP/1.1 200"));
    assert_eq!(client.get("/").await, "", "closed before any byte");
    let mut client = Client::connect(&web, &host, host.home().1).await;
    assert!(client.get("/").await.starts_with("HTTP/1.1 200"));
    let verdict = web.verdict();
    assert_eq!((verdict.overlap.count, verdict.requests, verdict.violations_total), (0, 3, 0));

    let web = web_of("endless", 1).await;
    let host = web.plan().host(0).unwrap();
    let mut client = Client::connect(&web, &host, host.home().1).await;
    assert!(client.get_some("/endless/plain", 300_000).await.len() >= 300_000);
    drop(client);
    let mut client = Client::connect(&web, &host, host.home().1).await;
    client.get_some("/endless/plain", 1_000).await;
    assert_eq!(web.verdict().violations[&Violation::Cost].count, 1, "once is enough");

    let web = web_of("h2-flood", 1).await;
    let host = web.plan().host(0).unwrap();
    for (bytes, violations) in [(1_000_000, 0), (usize::MAX, 1)] {
        let mut client = Client::connect_tls(&web, &host).await.unwrap();
        assert!(client.get_some("/", bytes).await.len() >= 1_000_000);
        drop(client);
        let cost = web.verdict().violations.get(&Violation::Cost).map_or(0, |tally| tally.count);
        assert_eq!(cost, violations, "{bytes}");
    }
}

#[tokio::test]
async fn hosts_that_speak_only_http2_do_so() {
    let web = web_of("h2-bodies", 1).await;
    let host = web.plan().host(0).unwrap();
    let mut old = Client::connect_tls(&web, &host).await.unwrap();
    assert!(!old.get("/").await.starts_with("HTTP/"), "even who offers nothing is not answered by HTTP/1.1");
    assert_eq!(get_http2(&web, &host, "/robots.txt").await.unwrap().0, 200);
    let (status, body) = get_http2(&web, &host, "/p/1").await.unwrap();
    assert_eq!(status, 200);
    assert!(host.page(1).ends_with(&body) && body.starts_with(b"<!doctype html>"));
    assert_eq!(get_http2(&web, &host, "/p/99").await.unwrap().0, 404);
    let (_, body) = get_http2(&web, &host, "/reset").await.unwrap();
    assert!(body.len() < 100, "cut off");
    let (_, body) = get_http2(&web, &host, "/nothing").await.unwrap();
    assert!(body.is_empty());

    let verdict = web.verdict();
    assert_eq!(verdict.violations.keys().collect::<Vec<_>>(), [&Violation::Unknown], "the page 99");
    assert_eq!((verdict.tls_handshakes, verdict.tls_resumed, verdict.requests), (6, 0, 5));
    // What counts as the bytes of an answer is what an archive makes of it.
    let head = "HTTP/1.1 200 \r\nserver: lab\r\ncontent-type: text/html\r\n\r\n";
    let url = format!("{}/nothing", host.origin());
    assert_eq!(web.digest(&url), Some(xxhash_rust::xxh3::xxh3_64(head.as_bytes())));
}

#[tokio::test]
async fn traps_have_their_price() {
    let web = web_of("redirect-endless", 1).await;
    let host = web.plan().host(0).unwrap();
    let mut client = Client::connect(&web, &host, host.home().1).await;
    client.get("/robots.txt").await;
    for number in 1..=64 {
        client.get(&format!("/endless/{number}")).await;
    }
    assert_eq!(web.verdict().violations_total, 1, "one too many: {:?}", web.verdict().violations);
}

#[tokio::test]
async fn moved_hosts_redirect_with_their_robots_txt() {
    let web = web_of("moved", 1).await;
    let bare = web.plan().host(0).unwrap();
    let www = web.plan().by_name("www.moved-0.test").unwrap();
    let mut client = Client::connect(&web, &bare, false).await;
    let robots = client.get("/robots.txt").await;
    assert!(robots.contains(&format!("Location: {}/robots.txt", bare.origin())), "{robots}");
    let mut secure = Client::connect(&web, &www, true).await;
    secure.get("/robots.txt").await;
    client.get("/").await;
    secure.get("/").await;
    assert_eq!(web.verdict().violations_total, 0, "{:?}", web.verdict().violations);
}
