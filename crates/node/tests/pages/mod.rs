//! Pages that were fetched, for tests of what is written of them.

use std::time::Duration;

use nephila_archive::Content;
use nephila_core::record::{How, LeftOut, Outcome, PageFlags, Settled};
use nephila_core::time::Wall;
use nephila_node::fetch::Captured;

pub(crate) const NOW: Wall = Wall(1_800_000_000_000);

/// A page that was answered.
pub(crate) fn settled(url: String) -> Settled {
    Settled {
        url,
        depth: 0,
        how: How::Link,
        found_in: 0,
        attempts: 1,
        asked: true,
        at: NOW,
        took: Duration::ZERO,
        bytes: 40,
        outcome: Outcome::Answered { status: 200 },
        capture: None,
        flags: PageFlags::default(),
        found: Vec::new(),
        left_out: LeftOut::default(),
        spent: None,
    }
}

/// What a shard received of it.
pub(crate) fn captured(shard: u16) -> Captured {
    Captured {
        shard,
        http2: false,
        request: b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        response: Content::Memory(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
        address: [127, 0, 0, 1].into(),
        at: NOW,
        cut: None,
        reservation: None,
    }
}
