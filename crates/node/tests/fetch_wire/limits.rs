//! Where a fetch ends although the server does not, and what it costs meanwhile.

use std::io::{ErrorKind, Write};
use std::thread;
use std::time::Duration;

use nephila_core::agent::{Content, Cut};
use nephila_core::record::Failure;
use nephila_node::fetch::FetchConfig;

use crate::server::*;

/// A server that sends a head and then one piece again and again, with pauses, until nobody listens.
fn endless(head: &'static str, piece: &'static str, pause: Duration) -> Server {
    Server::new(move |mut stream, _| {
        read_request(&mut stream);
        let mut sent = stream.write_all(head.as_bytes());
        while sent.is_ok() {
            sent = stream.write_all(piece.as_bytes());
            thread::sleep(pause);
        }
    })
}

const PLAIN: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn endless_bodies_are_cut_by_length() {
    let config = || FetchConfig { body_bytes_max: 300_000, spill_bytes: 100_000, ..config() };
    let cases = [
        (PLAIN, "<a href=/x>x</a>                                                     "),
        (CHUNKED, "400\r\n0123456789abcdef<a href=/x>x</a>"),
        (CHUNKED, "1\r\na\r\n"),
    ];
    for (head, piece) in cases {
        let filler = "x".repeat(0x400 - 32);
        let piece: &'static str = match piece {
            piece if piece.starts_with("400") => format!("{piece}{filler}\r\n").leak(),
            piece => piece.repeat(200).leak(),
        };
        let server = endless(head, piece, Duration::ZERO);
        let mut outcome = fetch(config(), order(server.url("/")));
        assert_eq!(answer(&outcome).cut, Some(Cut::Length), "{piece:.20}");
        let (bytes, spilled) = recorded(&mut outcome);
        assert!(spilled);
        assert_eq!(answer(&outcome).bytes, bytes.len() as u64);
        assert!(bytes.len() >= 300_000 && bytes.len() < 2_000_000, "{}", bytes.len());
        let sent: Vec<u8> =
            head.bytes().chain(piece.bytes().cycle().take(bytes.len() - head.len())).collect();
        assert!(bytes == sent, "what is recorded is what was sent");
    }
}

#[test]
fn the_largest_body_is_whole() {
    let body = "x".repeat(100_000);
    for (body_bytes_max, cut) in [(100_000, None), (99_999, Some(Cut::Length))] {
        let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{body}");
        let outcome = fetch_bytes(FetchConfig { body_bytes_max, ..config() }, bytes.as_bytes());
        assert_eq!(answer(&outcome).cut, cut);
    }
}

#[test]
fn silence_and_dripping_are_cut_by_time() {
    let ms = Duration::from_millis;
    let in_all = FetchConfig { request_timeout: ms(300), ..config() };
    let slow = FetchConfig { slow_after: ms(200), slow_bytes_per_s: 10_000, ..config() };
    // Never an answer.
    let server = endless("", "", ms(20));
    assert_eq!(failure(&fetch(in_all.clone(), order(server.url("/")))), Failure::Timeout);
    // Never the end of the head.
    let server = endless("HTTP/1.1 200 OK\r\n", "X: y\r\n", ms(20));
    assert_eq!(failure(&fetch(in_all.clone(), order(server.url("/")))), Failure::Timeout);
    for config in [in_all, slow] {
        let server = endless(PLAIN, "<a href=/x>x</a>", ms(20));
        let outcome = fetch(config, order(server.url("/")));
        assert_eq!(answer(&outcome).cut, Some(Cut::Time));
        assert!(matches!(&answer(&outcome).content, Content::Page { links, .. } if links.len() == 1));
    }
    // Slow to think, but not to speak.
    let server = Server::new(move |mut stream, _| {
        read_request(&mut stream);
        thread::sleep(ms(400));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    let config = FetchConfig { slow_after: ms(200), slow_bytes_per_s: 10_000, ..config() };
    assert_eq!(answer(&fetch(config, order(server.url("/")))).cut, None);
}

#[test]
fn endless_interim_answers_end() {
    let server = endless("", "HTTP/1.1 102 Processing\r\nX: y\r\n\r\n", Duration::ZERO);
    let outcome = fetch(config(), order(server.url("/")));
    assert_eq!(failure(&outcome), Failure::Malformed);
    assert!(outcome.fetched.result.unwrap_err().detail.contains("interim"));
}

#[test]
fn large_pages_are_read_from_their_file() {
    let body =
        ("<a href=/x>x</a>\n".to_owned() + &"<p>text</p>".repeat(100_000)).repeat(2) + "<a href=/last>l</a>";
    let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut outcome = fetch_bytes(config(), bytes.as_bytes());
    let Content::Page { links, .. } = &answer(&outcome).content else { panic!("no page") };
    assert_eq!(links.iter().map(|link| link.url.path()).collect::<Vec<_>>(), ["/x", "/last"]);
    assert!(recorded(&mut outcome) == (bytes.into_bytes(), true));
}

#[test]
fn bombs_cost_their_limit() {
    let page =
        [b"<a href=/first>f</a>".to_vec(), vec![b' '; 20 << 20], b"<a href=/last>l</a>".to_vec()].concat();
    let coded = zstd::encode_all(&page[..], 1).unwrap();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\nContent-Length: {}\r\n\r\n", coded.len());
    let bytes = [head.as_bytes(), &coded].concat();
    for (decode_ratio_max, expected) in [(100, 1), (1_000_000, 2)] {
        let outcome = fetch_bytes(FetchConfig { decode_ratio_max, ..config() }, &bytes);
        let Content::Page { links, .. } = &answer(&outcome).content else { panic!("no page") };
        assert_eq!((links.len(), answer(&outcome).cut), (expected, None));
    }
}

#[test]
fn fetches_wait_for_memory_and_none_is_lost() {
    let page = format!("HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n{}", "x".repeat(40_000));
    let servers: Vec<Server> = (0..8).map(|_| Server::saying(page.clone(), 1)).collect();
    // Two blocks for eight: all but two wait, and what does not fit goes to files.
    let config = FetchConfig { memory_bytes: 32 << 10, ..config() };
    with_fetcher(config, |fetcher| async move {
        let held = fetcher.fetch(&order(servers[0].url("/")), std::future::pending()).await;
        let mut tasks = tokio::task::JoinSet::new();
        for server in servers {
            let fetcher = std::rc::Rc::clone(&fetcher);
            tasks.spawn_local(
                async move { fetcher.fetch(&order(server.url("/")), std::future::pending()).await },
            );
        }
        let mut whole = 0;
        while let Some(outcome) = tasks.join_next().await {
            let mut outcome = outcome.unwrap();
            // The first server closed after its only answer.
            whole +=
                usize::from(outcome.fetched.result.is_ok() && recorded(&mut outcome).0 == page.as_bytes());
        }
        assert!(whole >= 7, "{whole}");
        drop(held);
    });
}

#[test]
fn a_fetch_that_waits_for_memory_can_be_abandoned() {
    let server = Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 1);
    with_fetcher(FetchConfig { memory_bytes: 1, ..config() }, |fetcher| async move {
        let held = fetcher.fetch(&order(server.url("/")), std::future::pending()).await;
        let waiting =
            fetcher.fetch(&order(server.url("/")), tokio::time::sleep(Duration::from_millis(50))).await;
        assert_eq!((failure(&waiting), waiting.fetched.contacted), (Failure::NotTried, vec![]));
        assert_eq!(server.connections(), 1);
        drop(held);
        let freed = fetcher.fetch(&order(server.url("/")), std::future::pending()).await;
        assert_eq!(freed.fetched.contacted, [HERE]);
    });
}

#[test]
fn an_answer_that_cannot_be_kept_is_not_tried_and_said() {
    let page = format!("HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n{}", "x".repeat(4_000));
    let config = FetchConfig { spill_bytes: 1_000, spill_dir: "/nonexistent/spill".into(), ..config() };
    let outcome = fetch_bytes(config, page.as_bytes());
    assert_eq!(failure(&outcome), Failure::NotTried);
    assert_eq!(outcome.unkept.map(|error| error.kind()), Some(ErrorKind::NotFound));
    assert!(fetch_bytes(crate::server::config(), page.as_bytes()).unkept.is_none());
}
