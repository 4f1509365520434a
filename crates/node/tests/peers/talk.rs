//! Agents that are what they say: what they send arrives, again after a restart, and only as fast as it can.

use std::net::SocketAddr;
use std::time::Duration;

use nephila_node::peers::{Identity, Limits, NotSent, Peer, ca};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::raw;
use crate::site::*;

#[tokio::test(flavor = "current_thread")]
async fn agents_with_certificates_of_the_command_talk() {
    let dir = tempfile::tempdir().unwrap();
    let made = ca::make(dir.path(), &name("paris"), &[name("a"), name("b")]).unwrap();
    let identity = |at: usize| Identity::read(&made.agents[at].dir).unwrap();
    let mut a = Agent::start(identity(0), listener(), limits());
    let mut b = Agent::start(identity(1), listener(), limits());
    for number in 0..1_000 {
        a.send(&b, number);
    }
    for number in 0..1_000 {
        assert_eq!(b.next().await, ("a".to_owned(), message(number)));
    }
    b.send(&a, 7);
    assert_eq!(a.next().await, ("b".to_owned(), message(7)));
    assert!(a.inbox.try_recv().is_none());
    // A message may be there before its sender knows that it was let in.
    wait_until(|| a.peers.is_connected(&peer("b")) && b.peers.is_connected(&peer("a"))).await;
    let (counts, views) = (b.peers.counts(), a.peers.peers());
    assert_eq!((counts.accepted, counts.refused, counts.received), (1, 0, 1_000));
    assert_eq!(counts.received_bytes, a.peers.counts().queued_bytes);
    assert_eq!((views.len(), views[0].sent, views[0].dropped), (1, 1_000, 0));
    assert_eq!((&views[0].peer, &views[0].address), (&peer("b"), &b.address()));
}

#[tokio::test(flavor = "current_thread")]
async fn messages_go_to_who_they_are_for_or_to_nobody() {
    let authority = Authority::new();
    let a = authority.agent("a.paris.nephila.internal");
    let mut b = authority.agent("b.paris.nephila.internal");
    // At b's address there is no c.
    a.peers.send(&peer("c"), &b.address(), &message(1)).unwrap();
    wait_until(|| a.peers.peers().iter().any(|view| view.peer == peer("c") && view.last_error.is_some()))
        .await;
    let view = a.peers.peers().remove(0);
    assert!(!view.connected && view.dropped == 1 && view.waiting_bytes == 0, "{view:?}");
    assert!(view.last_error.as_ref().unwrap().contains("certificate"), "{view:?}");
    a.send(&b, 2);
    assert_eq!(b.next().await, ("a".to_owned(), message(2)));
    a.peers.forget(&peer("c"));
    assert_eq!(a.peers.peers().len(), 1);
    // Who does not know who is there may say so.
    a.peers.send(&Peer::At(b.address().into()), &b.address(), &message(3)).unwrap();
    assert_eq!(b.next().await, ("a".to_owned(), message(3)));
}

#[tokio::test(flavor = "current_thread")]
async fn a_peer_that_restarts_is_found_again() {
    let authority = Authority::new();
    let a = authority.agent("a.paris.nephila.internal");
    let dir = authority.make(terms("b.paris.nephila.internal"));
    let listener = listener();
    let at = listener.local_addr().unwrap();
    let mut b = Agent::start(Identity::read(&dir).unwrap(), listener, limits());
    a.send(&b, 1);
    assert_eq!(b.next().await.1, message(1));
    wait_until(|| a.peers.is_connected(&peer("b"))).await;
    drop(b);
    wait_until(|| !a.peers.is_connected(&peer("b"))).await;
    // What is said meanwhile may be lost: it is repeated, as the protocol above does.
    let mut b =
        Agent::start(Identity::read(&dir).unwrap(), std::net::TcpListener::bind(at).unwrap(), limits());
    let heard = within(async {
        loop {
            a.send(&b, 2);
            let next = tokio::time::timeout(Duration::from_millis(20), b.inbox.recv()).await;
            if let Ok(Some(heard)) = next {
                return heard;
            }
        }
    });
    assert_eq!(heard.await, (name("a"), message(2)));
    wait_until(|| a.peers.is_connected(&peer("b"))).await;
}

#[tokio::test(flavor = "current_thread")]
async fn whoever_is_not_spoken_to_is_left() {
    let authority = Authority::new();
    let limits = Limits { idle_timeout: Duration::from_millis(50), ..limits() };
    let a = authority.agent_with("a.paris.nephila.internal", limits);
    let mut b = authority.agent("b.paris.nephila.internal");
    for number in 0..3 {
        a.send(&b, number);
        assert_eq!(b.next().await.1, message(number));
        wait_until(|| a.peers.peers().is_empty()).await;
    }
    assert_eq!(b.peers.counts().accepted, 3);
}

#[tokio::test(flavor = "current_thread")]
async fn limits_hold() {
    let authority = Authority::new();
    let limits = Limits {
        message_bytes_max: 1_000,
        links_max: 2,
        handshakes_of_one_max: 2,
        handshake_timeout: Duration::from_millis(300),
        ..limits()
    };
    let a = authority.agent_with("a.paris.nephila.internal", limits.clone());
    let mut b = authority.agent_with("b.paris.nephila.internal", limits);
    let long = Message { number: 1, text: "x".repeat(1_000) };
    let refused = a.peers.send(&b.peer(), &b.address(), &long);
    assert_eq!(refused, Err(NotSent::TooLong { bytes: 1_003, bytes_max: 1_000 }));
    for other in ["c", "d"] {
        a.peers.send(&peer(other), "127.0.0.1:1", &message(1)).unwrap();
    }
    assert_eq!(a.peers.send(&b.peer(), &b.address(), &message(1)), Err(NotSent::TooManyPeers(2)));
    assert_eq!(a.peers.counts().not_queued, 2);
    a.peers.forget(&peer("c"));
    a.send(&b, 2);
    assert_eq!(b.next().await.1, message(2));

    // Two may be silent for a while; a third is turned away at once, and in the end all are.
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(b.peers.address()).await.unwrap());
    }
    assert_eq!(within(silent[2].read_u8()).await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    for mut stream in silent {
        assert!(within(stream.read_u8()).await.is_err());
    }
    a.send(&b, 3);
    assert_eq!(b.next().await.1, message(3));
    assert_eq!(b.peers.counts().refused, 3);
}

/// Idle connections of somebody without a certificate.
#[cfg(target_os = "linux")] // elsewhere a machine need not have two such addresses
#[tokio::test(flavor = "current_thread")]
async fn one_address_does_not_take_all_places() {
    let authority = Authority::new();
    let limits = Limits {
        handshakes_max: 8,
        handshakes_of_one_max: 4,
        handshake_timeout: Duration::from_secs(60),
        ..limits()
    };
    let a = authority.agent("a.paris.nephila.internal");
    let mut b = authority.agent_with("b.paris.nephila.internal", limits);
    let mut silent = Vec::new();
    for _ in 0..20 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        // Another address of this machine.
        socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
        silent.push(socket.connect(b.peers.address()).await.unwrap());
    }
    wait_until(|| b.peers.counts().refused == 16).await;
    a.send(&b, 1);
    assert_eq!(b.next().await.1, message(1));
}

/// A connection that its agent has forgotten, as after a crash, gives way to the next one of that agent.
#[tokio::test(flavor = "current_thread")]
async fn the_newest_connection_of_a_peer_counts() {
    let authority = Authority::new();
    let mut a = authority.agent("a.paris.nephila.internal");
    let dir = authority.make(terms("b.paris.nephila.internal"));
    let tls = raw::tls(&authority.pem(), Some(&dir), &[&rustls::version::TLS13]);
    let mut old = raw::connect(a.peers.address(), &tls, "a.paris.nephila.internal").await.unwrap();
    wait_until(|| a.peers.counts().accepted == 1).await;
    let b = Agent::start(Identity::read(&dir).unwrap(), listener(), limits());
    b.send(&a, 1);
    assert_eq!(a.next().await, ("b".to_owned(), message(1)));
    let mut rest = Vec::new();
    // However it ends.
    let _ = within(old.read_to_end(&mut rest)).await;
    wait_until(|| b.peers.is_connected(&peer("a"))).await;
    assert_eq!((a.peers.counts().accepted, a.peers.counts().refused), (2, 0));
}

/// Passes bytes on between an agent and a port of its own, until it is told to keep them.
async fn relay(to: SocketAddr, silent: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let to = TcpStream::connect(to).await.unwrap();
            let mut silent = silent.clone();
            tokio::spawn(async move {
                let (mut from, mut to) = (from, to);
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                    // As a machine that lost its power: nothing comes any more, not even an end.
                    () = async { drop(silent.wait_for(|silent| *silent).await) } => std::future::pending().await,
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "current_thread")]
async fn a_peer_that_is_silently_gone_is_noticed_on_both_sides() {
    let authority = Authority::new();
    let (ping_every, ping_timeout) = (Duration::from_millis(20), Duration::from_millis(200));
    let limits = Limits { ping_every, ping_timeout, handshake_timeout: ping_timeout, ..limits() };
    let a = authority.agent_with("a.paris.nephila.internal", limits.clone());
    let mut b = authority.agent_with("b.paris.nephila.internal", limits);
    let (go_silent, silent) = watch::channel(false);
    let address = relay(b.peers.address(), silent).await.to_string();
    a.peers.send(&b.peer(), &address, &message(1)).unwrap();
    assert_eq!(b.next().await.1, message(1));
    wait_until(|| a.peers.is_connected(&b.peer())).await;
    assert_eq!(b.peers.speakers(), [name("a")]);
    go_silent.send(true).unwrap();
    wait_until(|| !a.peers.is_connected(&b.peer())).await;
    wait_until(|| b.peers.speakers().is_empty()).await;
}

#[tokio::test(flavor = "current_thread")]
async fn nothing_is_left_of_who_ends() {
    let authority = Authority::new();
    let limits = Limits { inbox_bytes_max: 1_000, ..limits() };
    let a = authority.agent_with("a.paris.nephila.internal", limits.clone());
    let b = authority.agent_with("b.paris.nephila.internal", limits);
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for number in 0..1_000 {
        a.send(&b, number);
    }
    b.send(&a, 1);
    wait_until(|| a.peers.is_connected(&b.peer()) && b.peers.is_connected(&a.peer())).await;
    wait_until(|| b.peers.counts().received > 10).await;
    // What came to it can still be taken, and what did not find room there is gone.
    let Agent { peers, inbox } = b;
    drop(peers);
    a.peers.forget(&peer("b"));
    // Of a, only who listens.
    wait_until(|| alive() == 1).await;
    drop(a);
    wait_until(|| alive() == 0).await;
    drop(inbox);
}
