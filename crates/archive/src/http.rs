//! Where an HTTP/1 response starts and ends in the bytes of a connection, and what its payload is.
//!
//! The payload is the body after transfer decoding (chunking removed) and before content decoding. The bytes come from
//! the network and may be anything: a head that does not parse is still a head (up to the first blank line), chunking
//! that breaks off or makes no sense gives the payload up to there.

use std::borrow::Cow;
use std::ops::Range;

use httparse::{EMPTY_HEADER, Header, ParserConfig, Status};

/// The longest head that is looked at. In a longer one no end is sought: all of it counts as head.
pub const HEAD_BYTES_MAX: usize = 1 << 20;
/// The most header lines of a head that is understood. With more, its framing is unknown.
pub const HEADERS_MAX: usize = 512;
/// Nearly all heads have fewer.
const HEADERS_USUAL_MAX: usize = 64;
/// The longest chunk-size line, extensions included. A longer one is malformed.
pub const CHUNK_LINE_BYTES_MAX: usize = 16 << 10;

/// Receives a message in pieces.
pub trait Parts {
    /// Bytes of the message: head, body with its chunking, trailers.
    fn message(&mut self, bytes: &[u8]);
    /// Bytes of its payload.
    fn payload(&mut self, bytes: &[u8]);
    /// Bytes that are both.
    fn both(&mut self, bytes: &[u8]) {
        self.payload(bytes);
        self.message(bytes);
    }
}

/// Collects the payload alone.
impl Parts for Vec<u8> {
    fn message(&mut self, _: &[u8]) {}

    fn payload(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The payload of a whole response.
pub fn payload(response: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut splitter = Splitter::verbatim();
    splitter.feed(response, &mut payload);
    splitter.finish(&mut payload);
    payload
}

/// The head of the final response in bytes off the wire, and its payload, which is copied only where it is chunked.
pub fn split(wire: &[u8]) -> (Vec<u8>, Cow<'_, [u8]>) {
    struct Nothing;
    impl Parts for Nothing {
        fn message(&mut self, _: &[u8]) {}
        fn payload(&mut self, _: &[u8]) {}
    }
    let mut splitter = Splitter::wire(false);
    splitter.feed(wire, &mut Nothing);
    let split = splitter.finish(&mut Nothing);
    let body = &wire[split.start as usize..split.end as usize][split.head.len()..];
    if !split.chunked {
        return (split.head, Cow::Borrowed(body));
    }
    let mut payload = Vec::with_capacity(body.len());
    Dechunker::new().feed(body, &mut |data| payload.extend_from_slice(data));
    (split.head, Cow::Owned(payload))
}

/// Splits a response that arrives in pieces.
pub struct Splitter {
    /// Take the bytes as one message, all of them: for records, which are cut already.
    verbatim: bool,
    /// The answer to a HEAD request has no body whatever its head says.
    no_body: bool,
    state: State,
    /// Until the head's end is found all bytes so far, afterwards the final head.
    head: Vec<u8>,
    start: u64,
    end: u64,
    chunked: bool,
}

enum State {
    Head,
    EndlessHead,
    Body(Framing),
    Over,
}

enum Framing {
    Length(u64),
    Chunked(Dechunker),
    ToEnd,
}

/// What a [`Splitter`] found out.
pub struct Split {
    /// Where in the bytes the final response starts.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Its head, with the blank line if there is one.
    pub head: Vec<u8>,
    /// Whether its body is chunked.
    pub chunked: bool,
}

impl Splitter {
    /// For bytes off the wire: interim responses (1xx) and empty lines before the final response are left out, and so is
    /// what follows its end. Bytes after the end are no part of this message; a server that sends them sends the start of
    /// something nobody asked for.
    pub fn wire(answers_head_request: bool) -> Splitter {
        Splitter {
            verbatim: false,
            no_body: answers_head_request,
            state: State::Head,
            head: Vec::new(),
            start: 0,
            end: 0,
            chunked: false,
        }
    }

    /// For the block of a record: all bytes are the message.
    pub fn verbatim() -> Splitter {
        Splitter { verbatim: true, ..Splitter::wire(false) }
    }

    /// Takes the next bytes. False: the message is over, more bytes are of no interest.
    pub fn feed(&mut self, bytes: &[u8], parts: &mut impl Parts) -> bool {
        match &self.state {
            // Nearly always the head is whole in the first bytes, and only it is copied.
            State::Head if self.head.is_empty() => self.seek_body(bytes, parts),
            State::Head => {
                let mut all = std::mem::take(&mut self.head);
                all.extend_from_slice(bytes);
                self.seek_body(&all, parts);
            }
            State::EndlessHead => {
                parts.message(bytes);
                self.end += bytes.len() as u64;
            }
            State::Body(_) => self.body(bytes, parts),
            State::Over => self.after(bytes, parts),
        }
        self.verbatim || !matches!(self.state, State::Over)
    }

    /// No more bytes will come.
    pub fn finish(mut self, parts: &mut impl Parts) -> Split {
        if matches!(self.state, State::Head) {
            // No blank line came: what there is is head.
            parts.message(&self.head);
            self.end += self.head.len() as u64;
        }
        Split { start: self.start, end: self.end, head: self.head, chunked: self.chunked }
    }

    fn seek_body(&mut self, bytes: &[u8], parts: &mut impl Parts) {
        let mut at = 0;
        let found = loop {
            if !self.verbatim {
                at += bytes[at..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            }
            let Some(length) = head_length(&bytes[at..]) else { break None };
            let meaning = Meaning::of(&bytes[at..at + length]);
            if !self.verbatim && meaning.interim {
                at += length;
                continue;
            }
            break Some((length, meaning));
        };
        self.start += at as u64;
        self.end = self.start;
        let length = found.as_ref().map_or(bytes.len() - at, |(length, _)| *length);
        let (head, rest) = bytes[at..].split_at(length);
        self.head = head.to_vec();
        if let Some((length, meaning)) = found {
            parts.message(&self.head);
            self.end += length as u64;
            self.chunked = matches!(meaning.framing, Some(Framing::Chunked(_))) && !self.no_body;
            self.state = match meaning.framing {
                Some(framing) if !self.no_body => State::Body(framing),
                _ => State::Over,
            };
            self.body(rest, parts);
        } else if self.head.len() > HEAD_BYTES_MAX {
            parts.message(&self.head);
            self.end += self.head.len() as u64;
            self.state = State::EndlessHead;
        }
    }

    fn body(&mut self, bytes: &[u8], parts: &mut impl Parts) {
        let State::Body(framing) = &mut self.state else { return self.after(bytes, parts) };
        let (taken, over) = match framing {
            Framing::ToEnd => {
                parts.both(bytes);
                (bytes.len(), false)
            }
            Framing::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                parts.both(&bytes[..taken]);
                *left -= taken as u64;
                (taken, *left == 0)
            }
            Framing::Chunked(dechunker) => {
                let mut at = 0;
                let taken = dechunker.ranges(bytes, &mut |data| {
                    parts.message(&bytes[at..data.start]);
                    at = data.end;
                    parts.both(&bytes[data]);
                });
                parts.message(&bytes[at..taken]);
                (taken, dechunker.is_over())
            }
        };
        self.end += taken as u64;
        if over {
            self.state = State::Over;
            self.after(&bytes[taken..], parts);
        }
    }

    fn after(&mut self, bytes: &[u8], parts: &mut impl Parts) {
        if self.verbatim {
            parts.message(bytes);
            self.end += bytes.len() as u64;
        }
    }
}

/// The length of the head at the start of `bytes`, its blank line included. A line of white space is blank, as other
/// readers of WARC files have it.
fn head_length(bytes: &[u8]) -> Option<usize> {
    let mut blank = true;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if blank => return Some(at + 1),
            b'\n' => blank = true,
            b'\t' | 0x0b | 0x0c | b'\r' | b' ' | 0x1c..=0x1f => {}
            _ => blank = false,
        }
    }
    None
}

/// Reads the head of a response, up to its blank line if there is one, as leniently as browsers do, and hands its status
/// and headers on. `None`: this is no head of HTTP/1, or one with too many headers.
pub fn read_head<'h, T>(head: &'h [u8], read: impl FnOnce(u16, &[Header<'h>]) -> T) -> Option<T> {
    let mut config = ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    config.ignore_invalid_headers_in_responses(true);
    // Few heads have many headers, and room for them costs time.
    let (mut few, mut many) = ([EMPTY_HEADER; HEADERS_USUAL_MAX], Vec::new());
    let mut response = httparse::Response::new(&mut few);
    let mut parsed = config.parse_response(&mut response, head);
    if parsed == Err(httparse::Error::TooManyHeaders) {
        many.resize(HEADERS_MAX, EMPTY_HEADER);
        response = httparse::Response::new(&mut many);
        parsed = config.parse_response(&mut response, head);
    }
    match (parsed, response.code) {
        (Ok(Status::Complete(_)), Some(status)) => Some(read(status, response.headers)),
        _ => None,
    }
}

/// What a head says about the bytes that follow it.
struct Meaning {
    interim: bool,
    framing: Option<Framing>,
}

impl Meaning {
    fn of(head: &[u8]) -> Meaning {
        let unknown = Meaning { interim: false, framing: Some(Framing::ToEnd) };
        read_head(head, |status, headers| Meaning::by(status, headers)).unwrap_or(unknown)
    }

    fn by(status: u16, headers: &[Header<'_>]) -> Meaning {
        // 101 is a final answer: nothing HTTP follows it.
        let interim = (100..200).contains(&status) && status != 101;
        let framing = match status {
            204 | 304 => None,
            _ => Some(Framing::of(headers)),
        };
        Meaning { interim, framing }
    }
}

impl Framing {
    fn of(headers: &[Header<'_>]) -> Framing {
        let values = |name: &'static str| {
            headers
                .iter()
                .filter(move |header| header.name.eq_ignore_ascii_case(name))
                .flat_map(|header| header.value.split(|byte| *byte == b','))
                .map(<[u8]>::trim_ascii)
        };
        // Codings other than chunked below it (gzip as a transfer coding) are not undone: nothing sends them.
        if values("transfer-encoding")
            .next_back()
            .is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
        {
            return Framing::Chunked(Dechunker::new());
        }
        if values("transfer-encoding").next().is_some() {
            return Framing::ToEnd;
        }
        let mut lengths = values("content-length");
        let Some(first) = lengths.next() else { return Framing::ToEnd };
        let digits = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(first).ok().and_then(|text| text.parse().ok());
        match number {
            Some(length) if digits && lengths.all(|other| other == first) => Framing::Length(length),
            _ => Framing::ToEnd,
        }
    }
}

/// Removes chunking from bytes that arrive in pieces.
pub struct Dechunker {
    state: ChunkState,
    line: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size,
    Data(u64),
    /// The line end after a chunk's data; how many bytes of it were seen.
    DataEnd(usize),
    /// A trailer line; whether anything is on it.
    Trailer(bool),
    Over,
    Malformed,
}

impl Default for Dechunker {
    fn default() -> Dechunker {
        Dechunker::new()
    }
}

impl Dechunker {
    /// At the start of a body.
    pub fn new() -> Dechunker {
        Dechunker { state: ChunkState::Size, line: Vec::new() }
    }

    /// The last chunk and its trailers have been seen.
    pub fn is_over(&self) -> bool {
        self.state == ChunkState::Over
    }

    /// The bytes stopped making sense. The data up to there was given out.
    pub fn is_malformed(&self) -> bool {
        self.state == ChunkState::Malformed
    }

    /// Takes bytes, gives out data, and says how many of the bytes belong to the body: all, until it is over.
    pub fn feed(&mut self, bytes: &[u8], data: &mut dyn FnMut(&[u8])) -> usize {
        self.ranges(bytes, &mut |range| data(&bytes[range]))
    }

    /// The same, saying where the data is.
    fn ranges(&mut self, bytes: &[u8], data: &mut dyn FnMut(Range<usize>)) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                ChunkState::Over => break,
                ChunkState::Malformed => return bytes.len(),
                ChunkState::Data(left) => {
                    let count = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                    data(at..at + count);
                    at += count;
                    let left = left - count as u64;
                    self.state = if left == 0 { ChunkState::DataEnd(0) } else { ChunkState::Data(left) };
                }
                _ => {
                    self.state = self.step(bytes[at]);
                    at += 1;
                }
            }
        }
        at
    }

    fn step(&mut self, byte: u8) -> ChunkState {
        match self.state {
            ChunkState::Size => {
                self.line.push(byte);
                if byte != b'\n' {
                    let fits = self.line.len() < CHUNK_LINE_BYTES_MAX;
                    return if fits { ChunkState::Size } else { ChunkState::Malformed };
                }
                let size = httparse::parse_chunk_size(&self.line);
                self.line.clear();
                match size {
                    Ok(Status::Complete((_, 0))) => ChunkState::Trailer(false),
                    Ok(Status::Complete((_, size))) => ChunkState::Data(size),
                    _ => ChunkState::Malformed,
                }
            }
            ChunkState::DataEnd(0) if byte == b'\r' => ChunkState::DataEnd(1),
            ChunkState::DataEnd(1) if byte == b'\n' => ChunkState::Size,
            ChunkState::DataEnd(_) => ChunkState::Malformed,
            ChunkState::Trailer(filled) => match byte {
                b'\n' if !filled => ChunkState::Over,
                b'\n' => ChunkState::Trailer(false),
                b'\r' => ChunkState::Trailer(filled),
                _ => ChunkState::Trailer(true),
            },
            state => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Both {
        message: Vec<u8>,
        payload: Vec<u8>,
    }

    impl Parts for Both {
        fn message(&mut self, bytes: &[u8]) {
            self.message.extend_from_slice(bytes);
        }

        fn payload(&mut self, bytes: &[u8]) {
            self.payload.extend_from_slice(bytes);
        }
    }

    fn split(bytes: &[u8], piece: usize, mut splitter: Splitter) -> (Split, Both) {
        let mut both = Both::default();
        for piece in bytes.chunks(piece) {
            if !splitter.feed(piece, &mut both) {
                break;
            }
        }
        (splitter.finish(&mut both), both)
    }

    /// (name, bytes off the wire, the message in them, its payload)
    const CASES: &[(&str, &str, &str, &str)] = &[
        ("to the end", "HTTP/1.1 200 OK\r\n\r\nbody", "HTTP/1.1 200 OK\r\n\r\nbody", "body"),
        (
            "bytes after Content-Length are cut",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nboHTTP/1.1 ",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nbo",
            "bo",
        ),
        (
            "less than Content-Length",
            "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nbo",
            "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nbo",
            "bo",
        ),
        (
            "lengths that contradict each other frame nothing",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nbody",
            "body",
        ),
        (
            "a length beyond all numbers",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nbody",
            "body",
        ),
        (
            "interim responses and empty lines go",
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\r\nHTTP/1.1 100 \r\n\r\nHTTP/1.1 200 OK\r\n\r\nb",
            "HTTP/1.1 200 OK\r\n\r\nb",
            "b",
        ),
        ("101 is final", "HTTP/1.1 101 S\r\n\r\nHTTP", "HTTP/1.1 101 S\r\n\r\nHTTP", "HTTP"),
        ("204 has no body", "HTTP/1.1 204 N\r\n\r\nx", "HTTP/1.1 204 N\r\n\r\n", ""),
        (
            "304 has no body",
            "HTTP/1.1 304 N\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 304 N\r\nContent-Length: 1\r\n\r\n",
            "",
        ),
        (
            "chunked, with an extension and a trailer, beats Content-Length",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: Chunked\r\n\r\n\
             3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\nmore",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: Chunked\r\n\r\n\
             3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
            "abc0123456789",
        ),
        (
            "chunking that breaks off",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\nde",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\nde",
            "abcde",
        ),
        (
            "chunking that makes no sense keeps all bytes",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\nde",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\nde",
            "abc",
        ),
        (
            "a chunk longer than it says",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "abc",
        ),
        ("no HTTP at all", "hello\r\n\r\nbody", "hello\r\n\r\nbody", "body"),
        (
            "bare line feeds",
            "HTTP/1.0 200\nContent-Length: 2\n\nbody",
            "HTTP/1.0 200\nContent-Length: 2\n\nbo",
            "bo",
        ),
        (
            "a line of blanks ends a head",
            "HTTP/1.1 200 OK\r\n  \r\nbody",
            "HTTP/1.1 200 OK\r\n  \r\nbody",
            "body",
        ),
        ("no blank line", "HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 200 OK\r\nX: ", ""),
        ("nothing", "", "", ""),
        ("nothing final", "HTTP/1.1 100 Continue\r\n\r\n", "", ""),
    ];

    #[test]
    fn responses_are_split() {
        for (name, wire, message, payload) in CASES {
            for piece in [1, 3, 7, 1000] {
                let (split, both) = split(wire.as_bytes(), piece, Splitter::wire(false));
                assert_eq!(String::from_utf8_lossy(&both.message), *message, "{name}");
                assert_eq!(String::from_utf8_lossy(&both.payload), *payload, "{name}");
                assert_eq!(&wire[split.start as usize..split.end as usize], *message, "{name}");
                assert!(message.as_bytes().starts_with(&split.head), "{name}");
            }
        }
    }

    #[test]
    fn a_record_is_taken_as_it_is() {
        for (name, _, message, payload) in CASES.iter().filter(|case| !case.2.is_empty()) {
            assert_eq!(super::payload(message.as_bytes()), payload.as_bytes(), "{name}");
        }
        let odd = b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc";
        let (_, both) = split(odd, 5, Splitter::verbatim());
        assert_eq!(both.message, odd);
    }

    #[test]
    fn the_answer_to_head_has_no_body() {
        let wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n";
        let (split, both) = split(wire, 9, Splitter::wire(true));
        assert!(both.message.ends_with(b"\r\n\r\n") && both.payload.is_empty() && !split.chunked);
    }

    #[test]
    fn an_endless_head_takes_bounded_memory() {
        let mut splitter = Splitter::wire(false);
        let mut both = Both::default();
        for _ in 0..40 {
            assert!(splitter.feed(&[b'a'; 1 << 16], &mut both));
        }
        assert!(splitter.head.len() <= HEAD_BYTES_MAX + (1 << 16));
        let split = splitter.finish(&mut both);
        assert_eq!((split.end, both.message.len()), (40 << 16, 40 << 16));
        assert!(both.payload.is_empty());
    }

    proptest! {
        /// Any bytes, in any pieces, give the same parts, which lie where the splitter says.
        #[test]
        fn pieces_do_not_matter(
            head in "(HTTP/1.1 (100|200|204) O\r\n(Transfer-Encoding: chunked\r\n|Content-Length: 4\r\n)?\r\n){0,2}",
            body in "([0-9a-f]{1,2}\r\n[a-z]{0,12}\r\n){0,3}(0\r\n\r\n)?",
            tail in prop::collection::vec(any::<u8>(), 0..30),
            piece in 1usize..20,
        ) {
            let wire = [head.as_bytes(), body.as_bytes(), &tail].concat();
            let (first, whole) = split(&wire, wire.len().max(1), Splitter::wire(false));
            let (second, pieces) = split(&wire, piece, Splitter::wire(false));
            prop_assert_eq!(&whole.message, &pieces.message);
            prop_assert_eq!(&whole.payload, &pieces.payload);
            prop_assert_eq!((first.start, first.end), (second.start, second.end));
            prop_assert_eq!(&wire[first.start as usize..first.end as usize], &whole.message[..]);
            // What was cut once is not cut again, and has the same payload.
            prop_assert_eq!(super::payload(&whole.message), whole.payload);
        }
    }
}
