//! The lab's web over real sockets: listeners, names, certificates, the judge's endpoints.

mod web_client;

use nephila_lab::web::{Kinds, PageBytes, WebConfig, judge::Violation, serve};
use web_client::{Client, get, resolve};

fn small(kinds: &str) -> WebConfig {
    WebConfig {
        hosts: 8,
        pages: 5,
        kinds: kinds.parse::<Kinds>().expect("kinds that exist"),
        latency_ms: (0, 0),
        page_bytes: PageBytes::Fixed(2_000),
        delay_ms: 0,
        ip_delay_ms: 0,
        https_percent: 0,
        ..WebConfig::default()
    }
}

#[tokio::test]
async fn a_polite_visitor_gets_everything_and_a_clean_verdict() {
    let web = serve(small("plain")).await.unwrap();
    for host in web.plan().hosts() {
        let mut client = Client::connect(&web, &host, false).await;
        assert!(client.get("/robots.txt").await.starts_with("HTTP/1.1 200 OK\r\n"));
        let front = client.get("/").await;
        assert!(front.contains("href=\"/p/1\""), "{front}");
        for page in 1..5 {
            let target = format!("/p/{page}");
            let answer = client.get(&target).await;
            assert_eq!(answer.as_bytes(), host.page(page), "the plan says what is served");
            let digest = web.digest(&format!("{}{target}", host.origin())).unwrap();
            assert_eq!(digest, xxhash_rust::xxh3::xxh3_64(answer.as_bytes()));
        }
    }
    let verdict = web.verdict();
    assert_eq!((verdict.coverage, verdict.expected, verdict.served), (1.0, 40, 40));
    assert_eq!((verdict.requests, verdict.robots_requests, verdict.overlap.count), (48, 8, 0));
    assert_eq!(verdict.violations_total, 0, "{:?}", verdict.violations);
    assert_eq!(verdict.kinds["plain"].hosts, 8);
    assert!(verdict.kinds["plain"].finish_s.is_some());
    web.shutdown();
}

#[tokio::test]
async fn an_impolite_visitor_is_found_out() {
    let web = serve(WebConfig { delay_ms: 60_000, ..small("plain") }).await.unwrap();
    let host = web.plan().host(0).unwrap();
    let mut client = Client::connect(&web, &host, false).await;
    client.get("/").await;
    client.get("/").await;
    client.get("/no-such-page").await;
    let other = web.plan().host(1).unwrap();
    client.get_as(&other.name(), "/robots.txt").await;
    let verdict = web.verdict();
    let count = |sort| verdict.violations.get(&sort).map_or(0, |tally| tally.count);
    assert_eq!(count(Violation::Politeness), 2, "{:?}", verdict.violations);
    assert_eq!(count(Violation::Robots), 3);
    assert_eq!(count(Violation::Unknown), 1);
    assert_eq!(count(Violation::Malformed), 2, "a shared connection, to the wrong address");
    assert_eq!(verdict.overlap.count, 1);
    assert_eq!(verdict.missed.count, 39);
    assert_eq!(web.repeats(), [format!("{}/", host.origin())]);
    assert!(web.crawl_options("ca".as_ref(), "seeds".as_ref()).ends_with("--delay 60000ms --ip-delay 0ms"));
}

#[tokio::test]
async fn the_judge_is_asked_over_http() {
    let web = serve(small("plain")).await.unwrap();
    let host = web.plan().host(0).unwrap();
    get(&web, &host, "/robots.txt").await;
    let mut control = Client::connect_to(format!("127.0.0.1:{}", web.http_port), "lab.test").await;
    let body = |answer: String| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    let verdict: serde_json::Value = serde_json::from_str(&body(control.get("/.lab/verdict").await)).unwrap();
    assert_eq!(verdict["requests"], 1);
    assert_eq!(verdict["expected"], 40);
    assert_eq!(verdict["kinds"]["plain"]["requests"], 1);
    control.get("/.lab/reset").await;
    let verdict: serde_json::Value = serde_json::from_str(&body(control.get("/.lab/verdict").await)).unwrap();
    assert_eq!(verdict["requests"], 0);
    assert_eq!(body(control.get("/.lab/seeds").await).lines().count(), 8);
    let digest = format!("/.lab/digest/{}/p/1", host.origin());
    assert!(control.get(&digest).await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn hosts_take_their_time() {
    let slow = WebConfig { latency_ms: (50, 50), bandwidth_bytes_s: 10_000, ..small("plain") };
    let web = serve(slow).await.unwrap();
    let host = web.plan().host(0).unwrap();
    let start = std::time::Instant::now();
    let answer = get(&web, &host, "/p/1").await;
    assert_eq!(answer.as_bytes(), host.page(1));
    // 50 ms, and more than 2,000 bytes at 10,000 a second, of which the first part comes at once.
    assert!(start.elapsed() >= std::time::Duration::from_millis(50 + 180), "{:?}", start.elapsed());
}

#[tokio::test]
async fn private_addresses_are_watched() {
    let web = serve(small("plain")).await.unwrap();
    let _ = tokio::net::TcpStream::connect(("127.128.0.1", web.http_port)).await.unwrap();
    // The connection is judged by the web's thread: ask it something, so that it must have come by.
    get(&web, &web.plan().host(0).unwrap(), "/robots.txt").await;
    assert_eq!(web.verdict().violations[&Violation::Private].count, 1);
}

#[tokio::test]
async fn names_resolve_as_their_kind_has_it() {
    let kinds = "plain,dns-nxdomain,dns-servfail,dns-timeout,dns-private,dns-rebinding,dns-tcp,dns-alias";
    let web = serve(small(kinds)).await.unwrap();
    let address = |name: &str| web.plan().by_name(name).unwrap().address().to_string();
    let a = |name: &'static str| resolve(&web, name, "A");
    assert_eq!(a("plain-0.test").await, Some(("NoError".to_owned(), vec![address("plain-0.test")])));
    assert_eq!(a("PLAIN-0.test").await, Some(("NoError".to_owned(), vec![address("plain-0.test")])));
    assert_eq!(resolve(&web, "plain-0.test", "AAAA").await, Some(("NoError".to_owned(), vec![])));
    assert_eq!(a("plain-00.test").await.unwrap().0, "NXDomain");
    assert_eq!(a("elsewhere.test").await.unwrap().0, "NXDomain");
    assert_eq!(a("dns-nxdomain-0.test").await.unwrap().0, "NXDomain");
    assert_eq!(a("dns-servfail-0.test").await.unwrap().0, "ServFail");
    assert_eq!(a("dns-timeout-0.test").await, None);
    assert_eq!(a("dns-private-0.test").await.unwrap().1, ["10.0.0.0"]);
    for _ in 0..4 {
        assert_eq!(a("dns-rebinding-0.test").await.unwrap().1, [address("dns-rebinding-0.test")]);
    }
    assert_eq!(a("dns-rebinding-0.test").await.unwrap().1, ["127.129.0.5"]);
    assert_eq!(a("dns-tcp-0.test").await.unwrap().1, [address("dns-tcp-0.test")]);
    assert_eq!(a("dns-alias-0.test").await.unwrap().1.last(), Some(&address("dns-alias-0.test")));
}

#[tokio::test]
async fn certificates_are_as_their_kind_has_it() {
    let bad =
        ["tls-expired", "tls-name", "tls-untrusted", "tls-self", "tls-incomplete", "tls-old", "tls-garbage"];
    let web =
        serve(WebConfig { https_percent: 100, ..small(&format!("plain,{}", bad.join(","))) }).await.unwrap();
    let plain = web.plan().by_name("plain-0.test").unwrap();
    let mut client = Client::connect_tls(&web, &plain).await.unwrap();
    assert!(client.get("/robots.txt").await.starts_with("HTTP/1.1 200"));
    for kind in bad {
        let host = web.plan().by_name(&format!("{kind}-0.test")).unwrap();
        assert!(Client::connect_tls(&web, &host).await.is_err(), "{kind}");
    }
    let verdict = web.verdict();
    for kind in bad {
        assert_eq!(verdict.kinds[kind].requests, 1, "{kind}: a failed connect counts as a request");
    }
    // The host asked to be left alone, and was not.
    let host = web.plan().by_name("tls-self-0.test").unwrap();
    assert!(Client::connect_tls(&web, &host).await.is_err());
    assert_eq!(web.verdict().violations[&Violation::Politeness].count, 1);
}
