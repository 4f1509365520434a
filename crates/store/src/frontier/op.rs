//! What the sieve keeps of a URL, and what it notes until the block of that URL is read.

use super::key::{Key, Place};

/// How far a URL has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the queue of its host, in this class; the place is that of the record that it was found in.
    Queued { class: u8 },
    /// Tried, and to be tried again; the place is that of the last attempt, here and below.
    Tried,
    /// Given to another site.
    Sent,
    /// Done.
    Settled,
}

impl Stage {
    /// Whether nothing more is to be done about it here.
    pub(super) fn is_done(self) -> bool {
        matches!(self, Stage::Sent | Stage::Settled)
    }
}

/// What is known of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) stage: Stage,
    pub(super) place: Place,
}

impl Value {
    pub(super) fn encode(self) -> [u8; 8] {
        let (stage, class) = match self.stage {
            Stage::Queued { class } => (0, class),
            Stage::Tried => (1, 0),
            Stage::Settled => (2, 0),
            Stage::Sent => (3, 0),
        };
        let [a, b, c, d, e, f] = self.place.bytes();
        [stage, class, a, b, c, d, e, f]
    }

    pub(super) fn decode([stage, class, a, b, c, d, e, f]: [u8; 8]) -> Option<Value> {
        let stage = match stage {
            0 => Stage::Queued { class },
            1 => Stage::Tried,
            2 => Stage::Settled,
            3 => Stage::Sent,
            _ => return None,
        };
        Some(Value { stage, place: Place::from_bytes([a, b, c, d, e, f]) })
    }
}

/// What is noted of a URL until its block is read.
#[derive(Clone, Copy)]
pub(super) struct Op {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) class: u8,
    pub(super) place: Place,
    /// Which of the URLs of its record it is.
    pub(super) index: [u8; 3],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It was not known and is queued.
    New,
    /// It may be known.
    Check,
    /// It may be known; if it is not, it stays so.
    Probe,
    /// It is not to be known any more.
    Forget,
    Tried,
    Sent,
    Settled,
}

impl Kind {
    /// Whether somebody waits for what comes of it.
    pub(super) fn is_question(self) -> bool {
        matches!(self, Kind::Check | Kind::Probe)
    }
}

impl Op {
    pub(super) const ENCODED_BYTES: usize = Key::BYTES + 11;

    pub(super) fn new(key: Key, kind: Kind, class: u8, place: u64, index: usize) -> Op {
        let [x, y, z, ..] = (index as u32).to_le_bytes();
        Op { key, kind, class, place: Place::new(place), index: [x, y, z] }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            Kind::New => 0,
            Kind::Check => 1,
            Kind::Tried => 2,
            Kind::Settled => 3,
            Kind::Probe => 4,
            Kind::Forget => 5,
            Kind::Sent => 6,
        };
        let mut bytes = [0; Op::ENCODED_BYTES];
        bytes[..Key::BYTES].copy_from_slice(self.key.bytes());
        let [a, b, c, d, e, f] = self.place.bytes();
        let [x, y, z] = self.index;
        bytes[Key::BYTES..].copy_from_slice(&[kind, self.class, a, b, c, d, e, f, x, y, z]);
        out.extend_from_slice(&bytes);
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Op> {
        let (key, rest) = bytes.split_first_chunk::<{ Key::BYTES }>()?;
        let ([kind, class, a, b, c, d, e, f, x, y, z], []) = rest.split_first_chunk::<11>()? else {
            return None;
        };
        let kind = match kind {
            0 => Kind::New,
            1 => Kind::Check,
            2 => Kind::Tried,
            3 => Kind::Settled,
            4 => Kind::Probe,
            5 => Kind::Forget,
            6 => Kind::Sent,
            _ => return None,
        };
        let place = Place::from_bytes([*a, *b, *c, *d, *e, *f]);
        Some(Op { key: Key::from_bytes(*key), kind, class: *class, place, index: [*x, *y, *z] })
    }
}
