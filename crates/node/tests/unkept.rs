//! A crawl that cannot keep what it receives ends, instead of asking for the same again and again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nephila_core::settings::{Private, Settings};
use nephila_node::config::Config;
use nephila_node::crawl;
use nephila_node::directory::Directory;
use nephila_node::display::{Display, Kind};
use nephila_node::seeds::Url;

/// A server whose one page is too large for memory, and how often that was asked for.
fn server() -> (Url, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &counter);
        }
    });
    (url, asked)
}

fn answer(mut stream: TcpStream, asked: &AtomicUsize) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
        head.push(byte[0]);
    }
    let (status, body) = if head.starts_with(b"GET /robots.txt") {
        ("404 Not Found", String::new())
    } else {
        asked.fetch_add(1, Ordering::SeqCst);
        ("200 OK", "x".repeat(100_000))
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    // The other side may have gone.
    let _ = stream.write_all((head + &body).as_bytes());
}

#[test]
fn a_body_that_cannot_be_kept_ends_the_run() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("crawl");
    let (url, asked) = server();
    let zero = Duration::ZERO;
    let config = Config {
        settings: Settings {
            delay: zero,
            ip_delay: zero,
            private: Private::Allowed,
            max_time: Some(Duration::from_secs(20)),
            ..Settings::default()
        },
        spill_bytes: 10_000,
        ..Config::default()
    };
    let (directory, _, seeds) = Directory::open(&dir, &config, &[url]).unwrap();
    // A directory in which nobody can make files, not even root.
    std::os::unix::fs::symlink("/proc/self", dir.join("spill")).unwrap();
    let mut display = Display::new(Kind::Quiet, &config);
    for runs in 1..3 {
        let summary = crawl::run(&config, &directory, seeds.clone(), None, &mut display).unwrap();
        assert_eq!(summary.json()["stop_reason"], "error");
        assert_eq!(summary.exit_code(), 1);
        assert_eq!(asked.load(Ordering::SeqCst), runs, "it is asked for once a run");
    }
    // Nothing is lost by it.
    std::fs::remove_file(dir.join("spill")).unwrap();
    let summary = crawl::run(&config, &directory, seeds, None, &mut display).unwrap();
    assert_eq!((summary.exit_code(), asked.load(Ordering::SeqCst)), (0, 3));
}
