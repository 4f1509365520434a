//! Servers that say in HTTP/2 what no server should: frames as bytes, without a library in between.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nephila_core::agent::Cut;
use nephila_core::record::Failure;
use nephila_node::fetch::{FetchConfig, Fetcher, Outcome};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::server::*;
use crate::tls::{ANSWER, Fault, authority, secure, server_config};

type Tls = StreamOwned<ServerConnection, TcpStream>;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOODBYE: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// One that nobody has thought of yet.
const UNKNOWN: u8 = 0xbb;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A head with this status, which must have three digits.
fn head(stream: u32, status: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &[&[0x08, 3], status.as_bytes()].concat())
}

fn whole(stream: u32) -> Vec<u8> {
    [head(stream, "200"), frame(DATA, END_STREAM, stream, b"<a href=/x>x</a>")].concat()
}

/// A reset of a stream, or a goodbye after the last stream that was handled, with a reason.
fn reset(stream: u32, reason: u32) -> Vec<u8> {
    frame(RESET, 0, stream, &reason.to_be_bytes())
}

fn goodbye(last: u32, reason: u32) -> Vec<u8> {
    frame(GOODBYE, 0, 0, &[last.to_be_bytes(), reason.to_be_bytes()].concat())
}

/// A client that has begun to speak HTTP/2.
fn begin(config: &Arc<ServerConfig>, stream: TcpStream) -> Option<Tls> {
    let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream);
    let mut preface = [0; 24];
    tls.read_exact(&mut preface).ok()?;
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    tls.write_all(&frame(SETTINGS, 0, 0, &[])).ok()?;
    Some(tls)
}

/// The stream of the next request.
fn next_request(tls: &mut Tls) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        tls.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        tls.read_exact(&mut vec![0; length as usize]).ok()?;
        if head[3] == HEADERS {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

/// Sends one piece again and again until nobody listens, and counts what was sent.
fn flood(tls: &mut Tls, piece: &[u8], sent: &AtomicU64) {
    // More at once than a TLS record takes.
    let pieces = piece.repeat(20_000 / piece.len() + 1);
    while tls.write_all(&pieces).is_ok() {
        sent.fetch_add(pieces.len() as u64, Ordering::SeqCst);
    }
}

async fn ask(fetcher: &Fetcher, server: &Server) -> Outcome {
    fetcher.fetch(&secure(server), std::future::pending()).await
}

/// Runs a test with a fetcher and a server that it knows to speak HTTP/2, and that does as the script says then.
fn with_frames<F: Future>(
    config: FetchConfig,
    script: impl Fn(Tls, usize) + Send + Sync + 'static,
    test: impl FnOnce(std::rc::Rc<Fetcher>, Server) -> F,
) {
    let authority = authority("known");
    let tls = server_config(&authority, Fault::OnlyHttp2);
    let server = Server::new(move |stream, number| {
        if let Some(tls) = begin(&tls, stream) {
            // The first was refused.
            script(tls, number - 1);
        }
    });
    let config = FetchConfig { ca_pem: Some(authority.pem().into_bytes()), ..config };
    with_fetcher(config, |fetcher| async move {
        assert_eq!(failure(&ask(&fetcher, &server).await), Failure::Closed);
        test(fetcher, server).await;
    });
}

fn detail(outcome: &Outcome) -> &str {
    &outcome.fetched.result.as_ref().unwrap_err().detail
}

/// Limits that are soon reached, and no time-out that could be taken for one.
fn small() -> FetchConfig {
    FetchConfig { body_bytes_max: 300_000, head_bytes_max: 8 << 10, ..config() }
}

#[test]
fn floods_before_the_answer_end() {
    let padding = [&[255][..], &[0; 255]].concat();
    let cases = [
        frame(PING, 0, 0, &[0; 8]),
        frame(PING, 1, 0, &[0; 8]),
        frame(SETTINGS, 0, 0, &[]),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(PRIORITY, 0, 1, &[0; 5]),
        frame(PRIORITY, 0, 77, &[0; 5]),
        frame(UNKNOWN, 0, 0, &[0; 1_000]),
        frame(UNKNOWN, 0, 1, &[]),
        frame(DATA, PADDED, 1, &padding),
        frame(DATA, 0, 3, b"of no request"),
        [frame(HEADERS, 0, 1, &[]), frame(CONTINUATION, 0, 1, &[])].concat(),
        frame(CONTINUATION, 0, 1, &[0; 100]),
        head(1, "103"),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
    ];
    for piece in cases {
        let name = piece[..9].to_vec();
        let script = move |mut tls: Tls, _| {
            next_request(&mut tls);
            flood(&mut tls, &piece, &AtomicU64::new(0));
        };
        with_frames(small(), script, |fetcher, server| async move {
            let outcome = ask(&fetcher, &server).await;
            assert_eq!(failure(&outcome), Failure::Malformed, "{name:?}: {}", detail(&outcome));
        });
    }
}

#[test]
fn interim_heads_are_counted() {
    for (heads, status) in [(64, Some(200)), (65, None)] {
        let script = move |mut tls: Tls, _| {
            let Some(stream) = next_request(&mut tls) else { return };
            let answer = [head(stream, "103").repeat(heads), whole(stream)].concat();
            tls.write_all(&answer).unwrap();
            next_request(&mut tls);
        };
        with_frames(config(), script, |fetcher, server| async move {
            let outcome = ask(&fetcher, &server).await;
            let Some(status) = status else {
                assert_eq!(failure(&outcome), Failure::Malformed);
                return assert!(detail(&outcome).contains("interim heads"), "{}", detail(&outcome));
            };
            assert_eq!((answer(&outcome).status, answer(&outcome).cut), (status, None));
        });
    }
}

#[test]
fn floods_beside_a_body_end() {
    let padding = [&[255][..], &[0; 255]].concat();
    let cases = [
        (frame(PING, 0, 0, &[0; 8]), Cut::Length),
        (frame(UNKNOWN, 0, 1, &[0; 99]), Cut::Length),
        (frame(DATA, 0, 1, b"y"), Cut::Length),
        (frame(DATA, PADDED, 1, &padding), Cut::Disconnect),
    ];
    for (piece, cut) in cases {
        let name = piece[..9].to_vec();
        let script = move |mut tls: Tls, _| {
            let Some(stream) = next_request(&mut tls) else { return };
            tls.write_all(&[head(stream, "200"), frame(DATA, 0, stream, b"a body")].concat()).unwrap();
            flood(&mut tls, &piece, &AtomicU64::new(0));
        };
        with_frames(small(), script, |fetcher, server| async move {
            let mut outcome = ask(&fetcher, &server).await;
            assert_eq!(answer(&outcome).cut, Some(cut), "{name:?}");
            let recorded = String::from_utf8(recorded(&mut outcome).0).unwrap();
            assert!(recorded.trim_end_matches('y').ends_with("\r\n\r\na bod"), "{name:?}: {recorded:.99}");
        });
    }
}

#[test]
fn what_comes_between_two_requests_is_not_read() {
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    let script = move |mut tls: Tls, _| {
        let Some(stream) = next_request(&mut tls) else { return };
        tls.write_all(&whole(stream)).unwrap();
        // After the connection has come to rest.
        std::thread::sleep(Duration::from_millis(50));
        flood(&mut tls, &frame(PING, 0, 0, &[0; 8]), &counter);
    };
    with_frames(config(), script, |fetcher, server| async move {
        assert_eq!(answer(&ask(&fetcher, &server).await).status, 200);
        // Until the server can send no more, whatever the kernel's buffers hold: it does not end if it is read.
        let mut before = u64::MAX;
        while before != sent.load(Ordering::SeqCst) || before == 0 {
            before = sent.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert_eq!(answer(&ask(&fetcher, &server).await).status, 200);
        assert_eq!(server.connections(), 3, "refused, flooded, new");
    });
}

#[test]
fn a_few_frames_between_two_requests_do_no_harm() {
    let script = move |mut tls: Tls, _| {
        while let Some(stream) = next_request(&mut tls) {
            let beside = [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])].concat();
            tls.write_all(&[whole(stream), beside.repeat(20)].concat()).unwrap();
        }
    };
    with_frames(config(), script, |fetcher, server| async move {
        for _ in 0..3 {
            assert_eq!(answer(&ask(&fetcher, &server).await).status, 200);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(server.connections(), 2, "refused, kept");
    });
}

/// What a server may say about a request, on a new connection and on one that was used before.
#[test]
fn only_what_was_not_begun_with_is_not_tried() {
    use Failure::{Closed, Disconnected, Malformed};
    const INTERNAL: u32 = 2;
    const REFUSED: u32 = 7;
    const CALM: u32 = 11;
    type Reply = fn(u32) -> Vec<u8>;
    let cases: [(Reply, Failure, Failure, &str); 8] = [
        (|_| Vec::new(), Disconnected, Closed, "closed"),
        (|stream| reset(stream, REFUSED), Disconnected, Closed, "refused"),
        (|stream| goodbye(stream - 1, 0), Disconnected, Closed, "goodbye before it"),
        (|stream| reset(stream, INTERNAL), Disconnected, Disconnected, "reset"),
        (|stream| goodbye(stream, CALM), Disconnected, Disconnected, "goodbye after it"),
        (|_| b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), Malformed, Malformed, "not frames"),
        (|stream| frame(DATA, 0, stream, b"x"), Malformed, Malformed, "no head"),
        (
            |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x3f]),
            Malformed,
            Malformed,
            "no hpack",
        ),
    ];
    for (reply, when_new, when_reused, name) in cases {
        let script = move |mut tls: Tls, number: usize| {
            // The first answer of the second connection is good.
            for good in [number == 1, false] {
                let Some(stream) = next_request(&mut tls) else { return };
                if good {
                    tls.write_all(&whole(stream)).unwrap();
                    continue;
                }
                tls.write_all(&reply(stream)).unwrap();
                tls.conn.send_close_notify();
                tls.flush().ok();
                until_closed(&mut tls.sock);
                return;
            }
        };
        with_frames(config(), script, |fetcher, server| async move {
            let new = ask(&fetcher, &server).await;
            assert_eq!(failure(&new), when_new, "{name}, new: {}", detail(&new));
            assert_eq!(answer(&ask(&fetcher, &server).await).status, 200, "{name}");
            let reused = ask(&fetcher, &server).await;
            assert_eq!(failure(&reused), when_reused, "{name}, reused: {}", detail(&reused));
            assert_eq!(server.connections(), 3, "{name}");
        });
    }
}

#[test]
fn a_head_beyond_the_limit_is_malformed() {
    let script = move |mut tls: Tls, _| {
        let Some(stream) = next_request(&mut tls) else { return };
        // The status, a field of a hundred bytes, and the same again and again for a byte each.
        let block = [&[0x88][..], &[0x40, 1, b'a', 100], &[b'x'; 100], &[0xbe; 2_000]].concat();
        tls.write_all(&frame(HEADERS, END_HEADERS, stream, &block)).ok();
        until_closed(&mut tls.sock);
    };
    with_frames(small(), script, |fetcher, server| async move {
        let outcome = ask(&fetcher, &server).await;
        assert_eq!(failure(&outcome), Failure::Malformed, "{}", detail(&outcome));
    });
}

/// A server is not asked for ever as it once wanted to be.
#[test]
fn servers_may_change_what_they_speak() {
    let tls_answer = |config: &Arc<ServerConfig>, stream: TcpStream| {
        let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream);
        if read_request(&mut tls).is_some() {
            tls.write_all(ANSWER).unwrap();
            tls.conn.send_close_notify();
            tls.flush().unwrap();
        }
    };
    for (changed, then) in [
        (Fault::None, None),
        (Fault::NoProtocol, None),
        // It is a failure, but not for ever.
        (Fault::OtherProtocol, Some(Failure::Tls)),
    ] {
        let authority = authority("known");
        // Refused, spoken, changed, and once more.
        let faults = [Fault::OnlyHttp2, Fault::OnlyHttp2, changed, Fault::None, Fault::OnlyHttp2];
        let configs = faults.map(|fault| server_config(&authority, fault));
        let server = Server::new(move |stream, number| match number {
            0 | 1 | 4 => {
                let Some(mut tls) = begin(&configs[number], stream) else { return };
                let Some(stream) = next_request(&mut tls) else { return };
                tls.write_all(&[whole(stream), goodbye(stream, 0)].concat()).unwrap();
                until_closed(&mut tls.sock);
            }
            _ => tls_answer(&configs[number], stream),
        });
        let config = FetchConfig { ca_pem: Some(authority.pem().into_bytes()), ..config() };
        with_fetcher(config, |fetcher| async move {
            assert_eq!(failure(&ask(&fetcher, &server).await), Failure::Closed);
            assert!(ask(&fetcher, &server).await.capture.unwrap().http2);
            let outcome = ask(&fetcher, &server).await;
            match then {
                Some(then) => assert_eq!(failure(&outcome), then),
                None => assert!(!outcome.capture.unwrap().http2),
            }
            assert!(!ask(&fetcher, &server).await.capture.unwrap().http2);
            assert_eq!(failure(&ask(&fetcher, &server).await), Failure::Closed, "HTTP/1.1 comes first again");
            assert_eq!(server.connections(), 5);
        });
    }
}
