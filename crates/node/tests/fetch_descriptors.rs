//! What happens when this process has no descriptor left. Alone in its process: the limit is everybody's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "fetch_wire/server.rs"]
#[allow(dead_code, reason = "shared with tests that use all of it")]
mod server;

use std::fs::{self, File};
use std::time::Duration;

use nephila_core::record::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::*;

/// Takes what the limit leaves.
fn all_descriptors() -> Vec<File> {
    let all: Vec<File> = (0..400).map_while(|_| File::open("/dev/null").ok()).collect();
    assert!(all.len() < 200, "the limit holds");
    all
}

/// How many sockets this process has.
fn sockets() -> usize {
    let is_socket = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_socket).count()
}

#[test]
fn idle_connections_make_room_and_then_nothing_is_tried() {
    let limit = Rlimit { current: Some(200), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let (kept, other, third) = (Server::saying(answer, 9), Server::saying(last, 1), Server::saying(last, 1));
    with_fetcher(config(), |fetcher| async move {
        let at_rest = sockets();
        let fetch =
            async |server: &Server| fetcher.fetch(&order(server.url("/")), std::future::pending()).await;
        assert_eq!(server::answer(&fetch(&kept).await).status, 200);
        let all = all_descriptors();

        // The kept connection is closed for the new one, on both sides.
        assert_eq!(server::answer(&fetch(&other).await).status, 200);

        // The second server wants its connection closed: nothing is left that could be closed.
        drop(all);
        for _ in 0..500 {
            if sockets() == at_rest {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(sockets(), at_rest);
        let all = all_descriptors();
        let outcome = fetch(&third).await;
        assert_eq!(failure(&outcome), Failure::NotTried);
        assert!(outcome.fetched.contacted.is_empty());
        drop(all);
        assert_eq!(server::answer(&fetch(&third).await).status, 200);
    });
}
