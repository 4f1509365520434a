//! More than ten million random bytes at the port, in every layer: nothing changes.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw;
use crate::site::*;

const A: &str = "a.paris.nephila.internal";
const BYTES_EACH: usize = 2_500_000;
const CHUNK: usize = 50_000;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The same bytes in every run.
struct Random(u64);

impl Random {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        };
        (0..count.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(count).collect()
    }

    /// Frames of HTTP/2 with random types, flags and contents.
    fn frames(&mut self, count: usize) -> Vec<u8> {
        let mut frames = Vec::new();
        while frames.len() < count {
            let seed = self.bytes(4);
            let length = usize::from(seed[0]) * 20;
            frames.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes()[1..]);
            frames.extend_from_slice(&[seed[1] % 12, seed[2], 0, 0, 0, seed[3] % 4]);
            frames.extend(self.bytes(length));
        }
        frames
    }
}

/// Sends all of it if it can, waits until the other side has had enough, and says how much it was sent.
async fn pour(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, bytes: &[u8]) -> usize {
    let mut sent = 0;
    // It may break off at any moment.
    while let Ok(more @ 1..) = stream.write(&bytes[sent..]).await {
        sent += more;
    }
    let _ = stream.shutdown().await;
    let mut rest = Vec::new();
    let _ = within(stream.read_to_end(&mut rest)).await;
    sent
}

/// What a client says first.
fn hello(tls: &Arc<ClientConfig>) -> Vec<u8> {
    let name = ServerName::try_from(A).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::clone(tls), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

async fn pour_raw(address: SocketAddr, start: &[u8], random: &mut Random) {
    let mut sent = 0;
    while sent < BYTES_EACH {
        let bytes = [start, &random.bytes(CHUNK)].concat();
        sent += pour(TcpStream::connect(address).await.unwrap(), &bytes).await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn random_bytes_change_nothing() {
    let authority = Authority::new();
    let mut a = authority.agent(A);
    let b = authority.agent("b.paris.nephila.internal");
    b.send(&a, 1);
    assert_eq!(a.next().await.1, message(1));
    wait_until(|| b.peers.is_connected(&a.peer())).await;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let address = a.peers.address();
    let nobody = raw::tls(&authority.pem(), None, &[&TLS13]);
    // A record of TLS that says it is a handshake.
    for start in [&b""[..], &hello(&nobody), PREFACE, &[0x16, 3, 1, 0x3f, 0xff]] {
        pour_raw(address, start, &mut random).await;
    }
    // What comes after the first few bytes of each is not even read.
    assert!(a.peers.counts().refused > 100);
    assert!(b.peers.is_connected(&a.peer()));

    // An agent of the site that has gone mad, in and below HTTP/2, and in gRPC.
    let mad = raw::tls(&authority.pem(), Some(&authority.make(terms("c.paris.nephila.internal"))), &[&TLS13]);
    let mut sent = 0;
    for round in 0.. {
        if sent >= BYTES_EACH {
            break;
        }
        let stream = raw::connect(address, &mad, A).await.unwrap();
        let mut bytes = if round % 4 == 0 { Vec::new() } else { PREFACE.to_vec() };
        bytes.extend(if round % 2 == 0 { random.bytes(CHUNK) } else { random.frames(CHUNK) });
        sent += pour(stream, &bytes).await;
    }
    for _ in 0..20 {
        let body = raw::frame(&random.bytes(CHUNK));
        // Random bytes may even be a message; then it is c's.
        let _ = raw::call(address, &mad, A, "/nephila.Site/Deliver", body).await;
    }
    while let Some((from, _)) = a.inbox.try_recv() {
        assert_eq!(from, name("c"));
    }
    b.send(&a, 2);
    assert_eq!(a.next().await, ("b".to_owned(), message(2)));
    assert!(b.peers.is_connected(&a.peer()));
    assert_eq!(b.peers.peers()[0].last_error, None, "the connection of b has lasted");
}
