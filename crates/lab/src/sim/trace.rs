//! A fingerprint of a run: every event and every action in its order, with its time.

use std::fmt;
use std::sync::Arc;

use nephila_core::agent::{Action, Event, SharedAction, SharedEvent};
use nephila_core::site::AgentId;
use nephila_core::time::Mono;
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

/// Is told each line with its time in seconds.
pub(super) type Reader<'a> = &'a mut dyn FnMut(f64, &str);

/// Two runs that did the same have the same hash, whether somebody reads along or not.
#[derive(Default)]
pub(super) struct Trace<'a> {
    hasher: Xxh3,
    line: String,
    bytes: Vec<u8>,
    /// Where in them the message begins that was sent last.
    message_at: usize,
    /// How many lines it has.
    pub(super) lines: u64,
    /// Who wants to read along.
    reader: Option<Reader<'a>>,
}

impl<'a> Trace<'a> {
    /// A trace that somebody reads along.
    pub(super) fn read_by(reader: Reader<'a>) -> Trace<'a> {
        Trace { reader: Some(reader), ..Trace::default() }
    }

    /// Adds what happened at a moment.
    pub(super) fn note(&mut self, at: Mono, what: fmt::Arguments<'_>) {
        self.set_line(what);
        self.hasher.update(&at.0.to_le_bytes());
        self.hasher.update(self.line.as_bytes());
        self.tell(at);
    }

    /// The same for what is long, and often: it is put into words only for who reads along.
    fn note_long(&mut self, at: Mono, is: &impl Serialize, what: fmt::Arguments<'_>) {
        self.bytes.clear();
        self.pack(is);
        self.note_packed(at, what);
    }

    fn pack(&mut self, is: &impl Serialize) {
        let packed = postcard::to_extend(is, std::mem::take(&mut self.bytes));
        self.bytes = packed.expect("agents write all of it down, or tell it each other");
    }

    fn note_packed(&mut self, at: Mono, what: fmt::Arguments<'_>) {
        self.hasher.update(&at.0.to_le_bytes());
        self.hasher.update(&self.bytes);
        if self.reader.is_some() {
            self.set_line(what);
        }
        self.tell(at);
    }

    /// The message that was sent last, as it was noted.
    pub(super) fn sent(&self) -> Arc<[u8]> {
        self.bytes.get(self.message_at..).unwrap_or_default().into()
    }

    /// Adds that an agent of a site has got a message, which was noted when it was sent.
    pub(super) fn note_message(&mut self, at: Mono, to: usize, from: AgentId, packed: &[u8], event: &Event) {
        self.bytes.clear();
        self.pack(&(to, from));
        self.bytes.extend_from_slice(packed);
        self.note_packed(at, format_args!("{to} {event:?}"));
    }

    fn set_line(&mut self, what: fmt::Arguments<'_>) {
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = fmt::write(&mut self.line, what);
    }

    fn tell(&mut self, at: Mono) {
        self.lines += 1;
        if let Some(reader) = &mut self.reader {
            reader(at.0 as f64 / 1e6, &self.line);
        }
    }

    /// Adds what an agent of a site was told.
    pub(super) fn note_event(&mut self, at: Mono, index: usize, event: &Event) {
        match event {
            Event::Recorded { ticket, .. } => self.note(at, format_args!("{index} recorded {ticket:?}")),
            Event::Reread { records, .. } => self.note(at, format_args!("{index} reread {}", records.len())),
            Event::LookedBack { asked, looked, next } => {
                self.note(at, format_args!("{index} looked back {asked:?} {} {next:?}", looked.len()));
            }
            Event::Exported { to, .. } => self.note(at, format_args!("{index} exported {to:?}")),
            Event::Shared(SharedEvent::Leased { number, incarnation, leases }) => {
                let held =
                    leases.iter().map(|(id, lease)| (id, lease.incarnation, lease.number, lease.held.len()));
                let held: Vec<_> = held.collect();
                let said = (index, number, incarnation, &held);
                let what = format_args!("{index} leased {number} {incarnation:?} {held:?}");
                self.note_long(at, &said, what);
            }
            Event::Shared(SharedEvent::TookOver { partitions, stored, .. }) => {
                self.note(at, format_args!("{index} took over {} {stored:?}", partitions.len()));
            }
            Event::Shared(SharedEvent::LetGo { partitions, .. }) => {
                self.note(at, format_args!("{index} has let go {}", partitions.len()));
            }
            other => self.note(at, format_args!("{index} {other:?}")),
        }
    }

    /// Adds what it wants. Places in the journal are left out where records are: they are long.
    pub(super) fn note_action(&mut self, at: Mono, index: usize, action: &Action) {
        match action {
            Action::Send { to, message } => {
                self.bytes.clear();
                self.pack(&(index, &to.address));
                self.message_at = self.bytes.len();
                self.pack(message);
                self.note_packed(at, format_args!("{index} {action:?}"));
            }
            Action::Write { ticket, record, .. } => {
                self.note_long(at, &(index, ticket.0, record), format_args!("{index} {action:?}"));
            }
            Action::Admit { record, .. } => {
                self.note_long(
                    at,
                    &(index, record.found()),
                    format_args!("{index} admit {:?}", record.found()),
                );
            }
            Action::Shared(SharedAction::Beat(beat)) => {
                self.note_long(at, &(index, beat), format_args!("{index} {action:?}"));
            }
            Action::Shared(SharedAction::TakeOver { partitions, .. }) => {
                self.note(at, format_args!("{index} take over {}", partitions.len()));
            }
            Action::Shared(SharedAction::LetGo { partitions, .. }) => {
                self.note(at, format_args!("{index} let go {}", partitions.len()));
            }
            other => self.note(at, format_args!("{index} {other:?}")),
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hasher.digest()
    }
}
