//! An agent that does not take what comes slows down who sends it, and nothing piles up between them.

use std::time::Duration;

use nephila_node::peers::{Limits, NotSent};

use crate::site::*;

const MESSAGE_BYTES: usize = 32 << 10;

#[tokio::test(flavor = "current_thread")]
async fn a_slow_reader_slows_the_sender_down() {
    let limits = Limits {
        message_bytes_max: 64 << 10,
        queue_bytes_max: 1 << 20,
        inbox_bytes_max: 256 << 10,
        window_bytes: 128 << 10,
        ..limits()
    };
    // What may be anywhere between the two, in messages: queue, inbox, window, and a few that are being handed on.
    let between_max = ((1 << 20) + (256 << 10) + (128 << 10)) / MESSAGE_BYTES as u64 + 8;
    let authority = Authority::new();
    let a = authority.agent_with("a.paris.nephila.internal", limits.clone());
    let mut b = authority.agent_with("b.paris.nephila.internal", limits);
    let (to, address) = (b.peer(), b.address());
    let text = "x".repeat(MESSAGE_BYTES);
    let (mut sent, mut taken) = (0, 0);
    for round in 0..20 {
        // Until nothing moves any more.
        let mut full = 0;
        while full < 10 {
            match a.peers.send(&to, &address, &Message { number: sent, text: text.clone() }) {
                Ok(()) => (sent, full) = (sent + 1, 0),
                Err(NotSent::Full(_)) => {
                    full += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Err(error) => panic!("{error}"),
            }
            assert!(sent - taken <= between_max, "round {round}: {} messages are on their way", sent - taken);
        }
        for _ in 0..10 {
            assert_eq!(b.next().await.1.number, taken);
            taken += 1;
        }
    }
    while taken < sent {
        assert_eq!(b.next().await.1.number, taken);
        taken += 1;
    }
    assert!(b.inbox.try_recv().is_none());
    let view = a.peers.peers().remove(0);
    assert_eq!((view.sent, view.waiting_bytes, view.last_error), (sent, 0, None));
    assert!(view.dropped >= 200, "{}", view.dropped);
}
