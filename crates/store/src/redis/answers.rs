//! What servers answer, read from the bytes of a connection: RESP2, which they speak with whoever has not asked for another.
//!
//! Nothing of it is trusted: answers are no longer and no deeper than they may be, and memory is taken for what has come, not for
//! what is said to come.

use std::io::{self, Read};

use redis::Value;

/// What is read from the connection at once, at least.
const READ_BYTES: usize = 16 << 10;
/// A line: a number, a word or two, or what is wrong.
const LINE_BYTES_MAX: usize = 64 << 10;
/// A text: what servers have as their own limit.
const TEXT_BYTES_MAX: usize = 512 << 20;
/// Lists in lists.
const DEPTH_MAX: usize = 8;
/// Entries of a list for which room is made before they have come.
const ENTRIES_EXPECTED: usize = 1_000;

/// The answers of one connection, in their order.
#[derive(Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    /// What was received and not read lies from here to there.
    at: usize,
    end: usize,
}

impl Answers {
    /// The next one. After an error there is none.
    pub(super) fn next(&mut self, stream: &mut impl Read) -> io::Result<Value> {
        self.value(stream, 0)
    }

    fn value(&mut self, stream: &mut impl Read, depth: usize) -> io::Result<Value> {
        let line = self.line(stream)?;
        let text = &line[1..];
        match line[0] {
            b'*' | b'$' if text == b"-1" => Ok(Value::Nil),
            b':' => Ok(Value::Int(number(text)?)),
            b'$' => {
                let length = count(text, TEXT_BYTES_MAX)?;
                let mut text = self.take(stream, length + 2)?;
                let is_whole = text.ends_with(b"\r\n");
                text.truncate(length);
                if is_whole { Ok(Value::BulkString(text)) } else { Err(senseless("a text does not end")) }
            }
            b'*' if depth == DEPTH_MAX => Err(senseless("lists are too deep")),
            b'*' => {
                let entries = count(text, usize::MAX)?;
                let mut list = Vec::with_capacity(entries.min(ENTRIES_EXPECTED));
                for _ in 0..entries {
                    list.push(self.value(stream, depth + 1)?);
                }
                Ok(Value::Array(list))
            }
            b'+' if text == b"OK" => Ok(Value::Okay),
            b'+' => Ok(Value::SimpleString(String::from_utf8_lossy(text).into_owned())),
            b'-' => redis::parse_redis_value(&[line, b"\r\n"].concat()).map_err(io::Error::other),
            _ => Err(senseless("it is no answer")),
        }
    }

    /// The next line, without its end and not empty.
    fn line(&mut self, stream: &mut impl Read) -> io::Result<&[u8]> {
        let mut looked_at = 0;
        let length = loop {
            let unread = &self.bytes[self.at..self.end];
            if let Some(end) = unread[looked_at..].iter().position(|byte| *byte == b'\n') {
                break looked_at + end + 1;
            }
            looked_at = unread.len();
            if looked_at > LINE_BYTES_MAX {
                return Err(senseless("a line does not end"));
            }
            self.receive(stream)?;
        };
        self.at += length;
        let line = self.bytes[self.at - length..self.at].strip_suffix(b"\r\n");
        line.filter(|line| !line.is_empty()).ok_or_else(|| senseless("a line is none"))
    }

    fn take(&mut self, stream: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
        while self.end - self.at < count {
            self.receive(stream)?;
        }
        let taken = self.bytes[self.at..self.at + count].to_vec();
        self.at += count;
        Ok(taken)
    }

    /// Has more bytes come.
    fn receive(&mut self, stream: &mut impl Read) -> io::Result<()> {
        self.bytes.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        if self.bytes.len() - self.end < READ_BYTES {
            self.bytes.resize(self.bytes.len() * 2 + READ_BYTES, 0);
        }
        match stream.read(&mut self.bytes[self.end..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.end += count;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn number(text: &[u8]) -> io::Result<i64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| senseless("a number is none"))
}

fn count(text: &[u8], max: usize) -> io::Result<usize> {
    let count = usize::try_from(number(text)?).ok().filter(|count| *count <= max);
    count.ok_or_else(|| senseless("a length is none"))
}

fn senseless(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Comes in pieces.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.1);
            self.0.read(&mut buffer[..count])
        }
    }

    #[test]
    fn answers_are_what_the_client_library_reads() {
        let long = format!("${}\r\n{}\r\n", 100_000, "x".repeat(100_000));
        let answers = [
            "+OK\r\n",
            "+PONG\r\n",
            ":-12\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nbc\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n*2\r\n:1\r\n$1\r\nb\r\n-ERR one of many\r\n$-1\r\n",
            "-MOVED 7 10.0.0.1:7000\r\n",
            "-FENCED the epoch is 4\r\n",
            &long,
        ];
        let all = answers.concat();
        for piece in [1, 7, 1 << 20] {
            let (mut stream, mut read) = (Trickle(all.as_bytes(), piece), Answers::default());
            for answer in answers {
                let expected = redis::parse_redis_value(answer.as_bytes()).unwrap();
                assert_eq!(read.next(&mut stream).unwrap(), expected, "{answer}");
            }
            assert_eq!(read.next(&mut stream).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let deep = "*1\r\n".repeat(DEPTH_MAX + 1) + ":1\r\n";
        let endless = "+".repeat(LINE_BYTES_MAX + READ_BYTES * 2);
        let wrong =
            ["x\r\n", "\r\n", "\n", ":1\n", ":\r\n", ":one\r\n", "$-2\r\n", "$999999999\r\n", "$1\r\nabc"];
        for text in wrong.into_iter().chain([&deep[..], &endless]) {
            let error = Answers::default().next(&mut text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{:?}", &text[..text.len().min(20)]);
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes in prop::collection::vec(prop::sample::select(b"+-:$*01\r\nx".to_vec()), 0..60)) {
            let (mut stream, mut read) = (&bytes[..], Answers::default());
            while read.next(&mut stream).is_ok() {}
        }
    }
}
