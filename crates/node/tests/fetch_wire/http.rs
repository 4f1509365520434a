//! Messages, whole and broken.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use nephila_archive::http::payload;
use nephila_core::agent::{Content, Cut, Order, Purpose};
use nephila_core::parse::LinkKind;
use nephila_core::record::Failure;
use nephila_core::settings::Private;
use nephila_node::config::{Config, Layer, Mistakes};
use nephila_node::fetch::{FetchConfig, Fetcher};
use tokio::sync::oneshot;

use crate::server::*;

fn links(content: &Content) -> Vec<(&str, LinkKind)> {
    match content {
        Content::Page { links, .. } => links.iter().map(|link| (link.url.path(), link.kind)).collect(),
        other => panic!("no page: {other:?}"),
    }
}

#[test]
fn the_request_is_what_we_promise_and_what_is_recorded() {
    let (sender, requests) = std::sync::mpsc::channel();
    let server = Server::new(move |mut stream, _| {
        sender.send(read_request(&mut stream).unwrap()).unwrap();
        stream.write_all(b"HTTP/1.1 304 Not Modified\r\nETag: W/\"2\"\r\n\r\n").unwrap();
        until_closed(&mut stream);
    });
    let config = FetchConfig {
        user_agent: "Mozilla/5.0 (compatible; nephila/0; +who@a.test)".into(),
        from: Some("who@a.test".into()),
        ..config()
    };
    let mut asked = order(server.url("/robots.txt?a=|b&c=%20'"));
    asked.purpose = Purpose::Robots { etag: Some("W/\"1\"".into()), last_modified: Some("long ago".into()) };
    let outcome = fetch(config, asked);
    let sent = requests.recv().unwrap();
    let expected = format!(
        "GET /robots.txt?a=|b&c=%20%27 HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\
         User-Agent: Mozilla/5.0 (compatible; nephila/0; +who@a.test)\r\nFrom: who@a.test\r\n\
         Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
         Accept-Encoding: gzip, deflate, br, zstd\r\nIf-None-Match: W/\"1\"\r\nIf-Modified-Since: long ago\r\n\r\n",
        server.port
    );
    assert_eq!(sent, expected);
    assert_eq!(outcome.capture.as_ref().unwrap().request, sent.as_bytes());
    assert_eq!(outcome.capture.as_ref().unwrap().address, HERE);
    assert_eq!(answer(&outcome).status, 304);
    assert_eq!(answer(&outcome).etag.as_deref(), Some("W/\"2\""));
    assert!(matches!(answer(&outcome).content, Content::Nothing));
}

#[test]
fn headers_for_one_host_go_to_no_other_and_are_not_kept() {
    let mut mistakes = Mistakes::default();
    let flag = |value: &str| ("header".to_owned(), vec![value.to_owned()]);
    for (value, is_sent) in
        [("127.0.0.1=X-Key: s3cret, and=more", true), ("127.0.0.2=X-Key: s3cret, and=more", false)]
    {
        let (sender, requests) = std::sync::mpsc::channel();
        let server = Server::new(move |mut stream, _| {
            sender.send(read_request(&mut stream).unwrap()).unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            until_closed(&mut stream);
        });
        let settings = Config::build(&[Layer::flags(vec![flag(value)])], &mut mistakes);
        assert!(!settings.to_toml(false, &[]).contains("s3cret"));
        let outcome =
            fetch(FetchConfig { host_headers: settings.headers, ..config() }, order(server.url("/")));
        let sent = requests.recv().unwrap();
        assert_eq!(sent.to_ascii_lowercase().contains("x-key: s3cret, and=more\r\n"), is_sent, "{sent}");
        let kept = String::from_utf8(outcome.capture.unwrap().request).unwrap();
        assert_eq!(kept, sent.replace("s3cret, and=more", "****************"));
    }
    mistakes.check().unwrap();
}

#[test]
fn whole_messages_are_recorded_byte_for_byte_and_understood() {
    let page = "<a href=/x>x</a>";
    // The answer, its status, its payload.
    let cases: &[(String, u16, &str)] = &[
        (format!("HTTP/1.1 200 OK\r\ncontent-LENGTH:16\r\nX-odd :  1 \r\n\r\n{page}"), 200, page),
        (format!("HTTP/1.0 200 OK\nContent-Type: text/html\n\n{page}"), 200, page),
        (format!("HTTP/1.1 200\r\nConnection: close\r\n\r\n{page}"), 200, page),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             4;ext=\"v\"\r\n<a h\r\nC ; x\r\nref=/x>x</a>\r\n0\r\nTrailer: yes\r\n\r\n"
                .into(),
            200,
            page,
        ),
        (
            format!(
                "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=next\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
                 HTTP/1.1 203 OK\r\nContent-Length: 16\r\n\r\n{page}"
            ),
            203,
            page,
        ),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".into(), 101, ""),
        ("HTTP/1.1 204 None\r\n\r\n".into(), 204, ""),
        ("HTTP/1.1 404 \u{c4}\r\nContent-Length: 4\r\n\r\nnone".into(), 404, "none"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into(), 200, ""),
    ];
    for (bytes, status, body) in cases {
        let mut outcome = fetch_bytes(config(), bytes.as_bytes());
        let answer = answer(&outcome);
        assert_eq!((answer.status, answer.cut, answer.bytes), (*status, None, bytes.len() as u64), "{bytes}");
        if *body == page {
            assert_eq!(links(&answer.content), [("/x", LinkKind::Anchor)], "{bytes}");
        }
        assert_eq!(recorded(&mut outcome), (bytes.clone().into_bytes(), false));
        let start = bytes.rfind("HTTP/1.").unwrap();
        assert_eq!(payload(&bytes.as_bytes()[start..]), body.as_bytes(), "{bytes}");
    }
}

#[test]
fn bodies_that_are_not_whole_are_kept_and_cut() {
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n<a href=/x>", Cut::Disconnect),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n<a href=/x>\r\n", Cut::Disconnect),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n<a href=/x>\r\nzz\r\n", Cut::Disconnect),
    ];
    for (bytes, cut) in cases {
        let mut outcome = fetch_bytes(config(), bytes.as_bytes());
        let answer = answer(&outcome);
        assert_eq!((answer.status, answer.cut), (200, Some(cut)), "{bytes}");
        assert_eq!(links(&answer.content), [("/x", LinkKind::Anchor)], "{bytes}");
        assert_eq!(outcome.capture.as_ref().unwrap().cut, Some(cut));
        assert_eq!(recorded(&mut outcome).0, bytes.as_bytes());
    }
}

#[test]
fn what_is_no_answer() {
    let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(1_000));
    let cases: [(&[u8], Failure); 9] = [
        (b"", Failure::Disconnected),
        (b"HTTP/1.1 200 OK\r\nContent-", Failure::Disconnected),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Failure::Disconnected),
        (b"\x15\x03\x01\x00\x02\x02\x46", Failure::Malformed),
        (b"<html>HTTP/0.9 is not spoken here\r\n\r\n", Failure::Malformed),
        (b"HTTP/1.1 2000 OK\r\n\r\n", Failure::Malformed),
        (b"HTTP/2.0 200 OK\r\n\r\n", Failure::Malformed),
        (large.as_bytes(), Failure::Malformed),
        (many.as_bytes(), Failure::Malformed),
    ];
    for (bytes, expected) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        assert_eq!(failure(&fetch_bytes(config(), bytes)), expected, "{shown}");
    }
}

#[test]
fn more_than_the_length_says_ends_the_connection() {
    let server =
        Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 Smuggled\r\n\r\n", 9);
    with_fetcher(config(), |fetcher| async move {
        for _ in 0..2 {
            let outcome = fetcher.fetch(&order(server.url("/")), std::future::pending()).await;
            assert_eq!(answer(&outcome).status, 200);
            assert_eq!(answer(&outcome).cut, None);
        }
        assert_eq!(server.connections(), 2);
    });
}

#[test]
fn connections_are_kept_for_the_same_origin_and_address() {
    let server = Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 9);
    with_fetcher(config(), |fetcher| async move {
        let mut used = Vec::new();
        let other_name = |path| {
            let mut url = server.url(path);
            url.set_host(Some("localhost")).unwrap();
            url
        };
        for url in [server.url("/a"), server.url("/b"), other_name("/c"), server.url("/d"), other_name("/e")]
        {
            let outcome = fetcher.fetch(&order(url), std::future::pending()).await;
            assert_eq!(answer(&outcome).bytes, 40);
            used.push(server.connections());
        }
        assert_eq!(used, [1, 1, 2, 2, 2]);
        // One that was closed before it was answered goes over a new one.
        let new = Order { new_connection: true, ..order(server.url("/again")) };
        assert_eq!(answer(&fetcher.fetch(&new, std::future::pending()).await).bytes, 40);
        assert_eq!(server.connections(), 3);
        // Another address of the name: the old connection does not lead there.
        let elsewhere: IpAddr = "127.0.0.2".parse().unwrap();
        let mut moved = order(server.url("/f"));
        moved.addresses = vec![elsewhere];
        let outcome = fetcher.fetch(&moved, std::future::pending()).await;
        assert_eq!(outcome.fetched.contacted, [elsewhere]);
        assert_eq!(failure(&outcome), Failure::Connect);
    });
}

/// There is one connection to a host at a time: the old one is closed before the new one is opened.
#[test]
fn a_new_connection_takes_the_place_of_the_old_one() {
    let (closed, is_closed) = std::sync::mpsc::channel();
    let (closed, is_closed) = (std::sync::Mutex::new(closed), std::sync::Mutex::new(is_closed));
    let server = Server::new(move |mut stream, number| {
        read_request(&mut stream);
        let old_one = || is_closed.lock().unwrap().recv_timeout(Duration::from_secs(5));
        let status = if number == 0 || old_one().is_ok() { 200 } else { 500 };
        write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\nok").unwrap();
        until_closed(&mut stream);
        closed.lock().unwrap().send(()).ok();
    });
    with_fetcher(config(), |fetcher| async move {
        for new_connection in [false, true, true] {
            let order = Order { new_connection, ..order(server.url("/")) };
            assert_eq!(answer(&fetcher.fetch(&order, std::future::pending()).await).status, 200);
        }
        assert_eq!(server.connections(), 3);
    });
}

#[test]
fn a_kept_connection_that_closes_is_left_or_not_tried() {
    // Closes after the first answer, at once or when the second request comes.
    for (at_once, expected) in [(true, None), (false, Some(Failure::Closed))] {
        let (closed, is_closed) = std::sync::mpsc::channel();
        let server = Server::new(move |mut stream, _| {
            read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            if !at_once {
                read_request(&mut stream);
            }
            drop(stream);
            closed.send(()).ok();
        });
        with_fetcher(config(), |fetcher| async move {
            let first = fetcher.fetch(&order(server.url("/")), std::future::pending()).await;
            assert_eq!(answer(&first).status, 200);
            if at_once {
                tokio::task::spawn_blocking(move || is_closed.recv().unwrap()).await.unwrap();
                // The end of the connection is here; the task that drives it has to be told.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let second = fetcher.fetch(&order(server.url("/")), std::future::pending()).await;
            assert_eq!(second.fetched.result.as_ref().err().map(|error| error.failure), expected);
            assert_eq!(second.fetched.contacted, [HERE]);
            assert_eq!(server.connections(), if at_once { 2 } else { 1 });
        });
    }
}

#[test]
fn a_server_that_says_close_is_asked_over_a_new_connection() {
    let server = Server::saying("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 9);
    with_fetcher(config(), |fetcher| async move {
        for number in 1..4 {
            let outcome = fetcher.fetch(&order(server.url("/")), std::future::pending()).await;
            assert_eq!(answer(&outcome).status, 200);
            assert_eq!(server.connections(), number);
        }
    });
}

#[test]
fn idle_connections_are_bounded() {
    let servers: Vec<Server> =
        (0..3).map(|_| Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 9)).collect();
    let config = FetchConfig { idle_connections_max: 2, ..config() };
    with_fetcher(config, |fetcher| async move {
        // There is room for the first two; the third is asked over a new connection each time.
        for at in [0, 1, 2, 0, 1, 2] {
            fetcher.fetch(&order(servers[at].url("/")), std::future::pending()).await;
        }
        let connections: Vec<usize> = servers.iter().map(Server::connections).collect();
        assert_eq!(connections, [1, 1, 2]);
    });
}

#[test]
fn nobody_there_and_nobody_allowed() {
    let unused = std::net::TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{unused}/").parse().unwrap();
    let outcome = fetch(config(), order(url));
    assert_eq!((failure(&outcome), outcome.fetched.contacted), (Failure::Connect, vec![HERE]));

    let server = Server::saying("HTTP/1.1 200 OK\r\n\r\n", 1);
    let refusing = |private| FetchConfig { private, ..config() };
    for private in [Private::Refused, Private::Within(vec!["10.0.0.0/8".parse().unwrap()])] {
        let outcome = fetch(refusing(private), order(server.url("/")));
        assert_eq!((failure(&outcome), outcome.fetched.contacted), (Failure::PrivateAddress, vec![]));
    }
    assert_eq!(server.connections(), 0);
    let within = refusing(Private::Within(vec!["127.0.0.0/9".parse().unwrap()]));
    let mut mixed = order(server.url("/"));
    mixed.addresses = vec!["10.0.0.1".parse().unwrap(), HERE];
    assert_eq!(answer(&fetch(within, mixed)).status, 200);
}

#[test]
fn requests_come_from_the_address_that_they_should_come_from() {
    let (sender, peers) = std::sync::mpsc::channel();
    let server = Server::new(move |mut stream, _| {
        sender.send(stream.peer_addr().unwrap().ip()).unwrap();
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let from: IpAddr = "127.0.0.9".parse().unwrap();
    for (bind, expected) in [(vec![from], from), (Vec::new(), HERE)] {
        let outcome = fetch(FetchConfig { bind, ..config() }, order(server.url("/")));
        assert_eq!((answer(&outcome).status, peers.recv().unwrap()), (204, expected));
    }
    let elsewhere = FetchConfig { bind: vec!["192.0.2.1".parse().unwrap()], ..config() };
    let refused = Fetcher::new(elsewhere).err().unwrap();
    assert!(refused.to_string().contains("cannot send from 192.0.2.1"), "{refused}");
}

#[test]
fn the_next_address_is_tried_when_one_fails_or_is_silent() {
    let server = Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 1);
    // Nobody listens on the second address. The third is full: it takes no more connections and does not refuse them.
    let nobody: IpAddr = "127.0.0.3".parse().unwrap();
    let full: IpAddr = "127.0.0.4".parse().unwrap();
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&std::net::SocketAddr::new(full, server.port).into()).unwrap();
    listener.listen(0).unwrap();
    let _filling: Vec<_> = (0..4)
        .map(|_| {
            let filling = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            filling.set_nonblocking(true).unwrap();
            filling.connect(&std::net::SocketAddr::new(full, server.port).into()).ok();
            filling
        })
        .collect();
    let mut asked = order(server.url("/"));
    asked.addresses = vec![nobody, full, HERE];
    let outcome = fetch(config(), asked);
    assert_eq!(outcome.fetched.result.as_ref().unwrap().status, 200);
    assert_eq!(outcome.fetched.contacted, [nobody, full, HERE]);
    assert_eq!(outcome.capture.unwrap().address, HERE);
}

#[test]
fn an_abandoned_fetch_ends_and_closes() {
    let (closed, is_closed) = std::sync::mpsc::channel();
    let server = Server::new(move |mut stream, _| {
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf").unwrap();
        until_closed(&mut stream);
        closed.send(()).unwrap();
    });
    with_fetcher(config(), |fetcher| async move {
        let (abandon, abandoned) = oneshot::channel();
        let order = order(server.url("/"));
        let fetch = fetcher.fetch(&order, async { abandoned.await.unwrap() });
        let abandoning = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            abandon.send(()).unwrap();
        };
        let (outcome, ()) = tokio::join!(fetch, abandoning);
        assert_eq!((failure(&outcome), outcome.fetched.contacted), (Failure::NotTried, vec![HERE]));
        let waiting = tokio::task::spawn_blocking(move || is_closed.recv_timeout(Duration::from_secs(10)));
        waiting.await.unwrap().expect("the server sees the end");
    });
}

#[test]
fn purposes_decide_how_a_body_is_read() {
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let message = |head: &str, body: &[u8]| {
        [format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
    };
    let ask = |purpose: Purpose, bytes: Vec<u8>| {
        let server = Server::saying(bytes, 1);
        let mut asked = order(server.url("/dir/"));
        asked.purpose = purpose;
        fetch(config(), asked).fetched.result.unwrap().content
    };
    let robots = || Purpose::Robots { etag: None, last_modified: None };

    let page = b"<meta name=robots content=noarchive><a href=x>x</a>";
    let head = "200 OK\r\nContent-Encoding: gzip\r\nLink: </next>; rel=next\r\nX-Robots-Tag: noindex\r\n\
                Refresh: 1; url=r";
    let Content::Page { links, directives } = ask(Purpose::Page, message(head, &gzip(page))) else {
        panic!()
    };
    let paths: Vec<&str> = links.iter().map(|link| link.url.path()).collect();
    assert_eq!(paths, ["/next", "/dir/r", "/dir/x"]);
    assert!(directives.noindex && directives.noarchive && !directives.nofollow);

    // Links of a head count, whatever the body is.
    let content = ask(Purpose::Page, message("200 OK\r\nLink: </next>; rel=next", b"%PDF-1.4 \0\0"));
    assert!(matches!(content, Content::Page { links, .. } if links.len() == 1));
    assert!(matches!(ask(Purpose::Page, message("200 OK", b"%PDF-1.4 \0\0")), Content::Nothing));
    assert!(matches!(ask(Purpose::Page, message("404 No", page)), Content::Nothing));

    let sitemap = b"<urlset><url><loc>http://a.test/1</loc></url></urlset>";
    for bytes in [sitemap.to_vec(), gzip(sitemap)] {
        let Content::Sitemap { pages, .. } = ask(Purpose::Sitemap, message("200 OK", &bytes)) else {
            panic!()
        };
        assert_eq!(pages.iter().map(|page| page.as_str()).collect::<Vec<_>>(), ["http://a.test/1"]);
    }

    let rules = "User-agent: *\nDisallow: /x\n".repeat(30_000);
    let coded = message("200 OK\r\nContent-Encoding: x-gzip", &gzip(rules.as_bytes()));
    let Content::Robots(text) = ask(robots(), coded) else { panic!() };
    assert_eq!(text, &rules.as_bytes()[..500 * 1024 + 1]);
    assert!(matches!(ask(robots(), message("404 No", b"Disallow: /")), Content::Nothing));
}
