//! Reads the URLs that a crawl starts from: those on the command line, then those of a file or of standard input.
//!
//! Files are streamed: nothing but the URLs is kept. Repeated seeds count once, the first one first. Bad lines are
//! reported together, with their numbers.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use nephila_core::url::Fingerprint;
pub use nephila_core::url::{Url, parse_seed};

use crate::config::{Config, Mistakes};

/// The most seeds that a crawl can have.
pub const SEEDS_MAX: usize = 2_000_000;
/// The longest line of a file of seeds, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// A line that is longer than this, too, shows that it is no list of URLs: nothing more is read.
const LINE_SKIPPED_MAX: usize = 16 << 20;
/// And so do as many bad lines.
const BAD_MAX: usize = 100_000;
/// How many bad lines are reported one by one.
const REPORTED_MAX: usize = 20;

/// The seeds that a configuration names.
pub fn read(config: &Config, mistakes: &mut Mistakes) -> Vec<Url> {
    let mut seeds = Seeds::default();
    for text in &config.urls {
        match parse_seed(text) {
            Ok(url) => seeds.push(url),
            Err(error) => mistakes.add(error.to_string()),
        }
    }
    if let Some(path) = &config.seeds {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let result = if is_stdin {
            seeds.read_lines(io::stdin().lock(), &name, mistakes)
        } else {
            std::fs::File::open(path).and_then(|file| seeds.read_lines(BufReader::new(file), &name, mistakes))
        };
        if let Err(error) = result {
            mistakes.add(format!("seeds: cannot read {name}: {error}"));
        }
    }
    if seeds.list.len() > SEEDS_MAX {
        mistakes.add(format!("more than {SEEDS_MAX} seeds: make several crawls of them"));
    }
    seeds.list
}

/// Adds to a list those of another that it does not hold yet, and says how many.
pub(crate) fn merge(list: &mut Vec<Url>, more: &[Url]) -> usize {
    let before = list.len();
    let mut seen: HashSet<Fingerprint> = list.iter().map(Fingerprint::of).collect();
    list.extend(more.iter().filter(|url| seen.insert(Fingerprint::of(url))).cloned());
    list.len() - before
}

#[derive(Default)]
struct Seeds {
    list: Vec<Url>,
    seen: HashSet<Fingerprint>,
}

impl Seeds {
    fn push(&mut self, url: Url) {
        // One more than allowed is enough to notice.
        if self.list.len() <= SEEDS_MAX && self.seen.insert(Fingerprint::of(&url)) {
            self.list.push(url);
        }
    }

    fn read_lines(&mut self, mut input: impl BufRead, name: &str, mistakes: &mut Mistakes) -> io::Result<()> {
        let mut line = Vec::new();
        let mut bad = 0;
        for number in 1u64.. {
            line.clear();
            if (&mut input).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let mistake = if line.len() == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
                if !skip_line(&mut input)? {
                    mistakes.add(format!("{name}: line {number}: it does not end: this is no list of URLs"));
                    break;
                }
                Some(format!("the line is longer than {LINE_BYTES_MAX} bytes"))
            } else {
                self.take_line(&line, number == 1)
            };
            if let Some(mistake) = mistake {
                bad += 1;
                if bad <= REPORTED_MAX {
                    mistakes.add(format!("{name}: line {number}: {mistake}"));
                }
                if bad >= BAD_MAX {
                    mistakes.add(format!("{name}: too many bad lines: this is no list of URLs"));
                    break;
                }
            }
        }
        if bad > REPORTED_MAX {
            mistakes.add(format!("{name}: {} more bad lines", bad - REPORTED_MAX));
        }
        Ok(())
    }

    /// What is wrong with a line, if anything is.
    fn take_line(&mut self, line: &[u8], is_first: bool) -> Option<String> {
        let Ok(text) = str::from_utf8(line) else { return Some("the line is not UTF-8".to_owned()) };
        let text = if is_first { text.trim_start_matches('\u{feff}') } else { text }.trim();
        if text.is_empty() || text.starts_with('#') {
            return None;
        }
        match parse_seed(text) {
            Ok(url) => {
                self.push(url);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Reads to the end of a line; false if it has none.
fn skip_line(input: &mut impl BufRead) -> io::Result<bool> {
    let mut skipped = 0;
    while skipped < LINE_SKIPPED_MAX {
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|octet| *octet == b'\n');
        let bytes = end.map_or(buffer.len(), |end| end + 1);
        let is_end = end.is_some() || buffer.is_empty();
        input.consume(bytes);
        if is_end {
            return Ok(true);
        }
        skipped += bytes;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> (Vec<String>, Vec<String>) {
        let (mut seeds, mut mistakes) = (Seeds::default(), Mistakes::default());
        seeds.read_lines(text, "list", &mut mistakes).unwrap();
        (seeds.list.iter().map(Url::to_string).collect(), mistakes.list().to_vec())
    }

    #[test]
    fn good_lines() {
        let text = "\u{feff}# comment\nexample.org\r\n\n  https://example.org/a#x  \nhttps://EXAMPLE.org/a\n//b.test";
        let expected = ["https://example.org/", "https://example.org/a", "https://b.test/"];
        assert_eq!(lines(text.as_bytes()), (expected.map(str::to_owned).to_vec(), vec![]));
    }

    #[test]
    fn bad_lines_are_numbered() {
        let mut text = b"ftp://a.test/\n\nhttps://good.test/\n/path\n\xff\n".to_vec();
        text.extend(vec![b'a'; LINE_BYTES_MAX + 10]);
        text.extend(b"\nhttps://last.test/");
        let (seeds, mistakes) = lines(&text);
        assert_eq!(seeds, ["https://good.test/", "https://last.test/"]);
        let starts: Vec<&str> = mistakes.iter().map(|one| &one[..12]).collect();
        assert_eq!(starts, ["list: line 1", "list: line 4", "list: line 5", "list: line 6"], "{mistakes:?}");
    }

    #[test]
    fn many_bad_lines_are_counted() {
        let (_, mistakes) = lines("mailto:a\n".repeat(1_000).as_bytes());
        assert_eq!(mistakes.len(), REPORTED_MAX + 1);
        assert_eq!(mistakes[REPORTED_MAX], "list: 980 more bad lines");
    }

    #[test]
    fn what_does_not_end_is_given_up() {
        for endless in [&b"\0"[..], b"mailto:a\n"] {
            let (mut seeds, mut mistakes) = (Seeds::default(), Mistakes::default());
            let input = BufReader::new(Endless(endless.iter().copied().cycle()));
            seeds.read_lines(input, "list", &mut mistakes).unwrap();
            let said = mistakes.list().iter().any(|one| one.ends_with("this is no list of URLs"));
            assert!(said && mistakes.list().len() <= REPORTED_MAX + 2);
        }
    }

    struct Endless<I>(I);

    impl<I: Iterator<Item = u8>> Read for Endless<I> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.iter_mut().zip(&mut self.0).for_each(|(to, from)| *to = from);
            Ok(buffer.len())
        }
    }

    #[test]
    fn a_hundred_thousand_seeds() {
        let text: String = (0..100_000).map(|n| format!("http://h{}.test/{n}\n", n % 1_000)).collect();
        let (seeds, mistakes) = lines(text.as_bytes());
        assert_eq!((seeds.len(), mistakes.len()), (100_000, 0));
    }
}
