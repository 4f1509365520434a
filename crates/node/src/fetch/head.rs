//! What the head of an answer says, from the bytes as they came.
//!
//! Takes any bytes and never panics. What cannot be understood is left out; only a status line that is none makes the
//! whole head useless.

use std::time::Duration;

use nephila_archive::http::read_head;
use nephila_core::agent::Answer;
use nephila_core::limits::WAIT_MAX;
use nephila_core::parse::headers::{
    self, HEADER_LINKS_MAX, cache_control, content_type, refresh_target, retry_after_s,
};
use nephila_core::parse::{Link, LinkKind, REFERENCE_BYTES_MAX};
use nephila_core::robots::Directives;
use nephila_core::time::Wall;
use nephila_core::url::{Url, clean};

/// The longest ETag or Last-Modified that is kept: they are written down with every robots.txt.
pub const VALIDATOR_BYTES_MAX: usize = 1_024;

/// The final head of an answer.
#[derive(Debug)]
pub struct Head<'a> {
    /// The HTTP status.
    pub status: u16,
    fields: Vec<(&'a str, &'a [u8])>,
}

impl<'a> Head<'a> {
    /// Reads a head, up to its blank line if there is one. `None`: this is no head of HTTP/1.
    pub fn parse(bytes: &'a [u8]) -> Option<Head<'a>> {
        read_head(bytes, |status, headers| Head {
            status,
            fields: headers.iter().map(|field| (field.name, field.value)).collect(),
        })
    }

    /// Whether the status says that the body is what was asked for.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// All values of a field, in order.
    pub fn all(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.fields.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// The first value of a field, as text.
    pub fn text(&self, name: &'static str) -> Option<String> {
        self.all(name).next().map(|value| String::from_utf8_lossy(value).trim().to_owned())
    }

    /// The answer as far as the head tells; the caller adds what it knows of the body. `now` is when it came.
    pub fn answer(&self, now: Wall) -> Answer {
        let validator = |name| {
            let fits = |value: &String| value.len() <= VALIDATOR_BYTES_MAX && !value.contains('\u{fffd}');
            self.text(name).filter(fits)
        };
        let retry_after = self.all("retry-after").find_map(|value| retry_after_s(value, now.0 / 1_000));
        Answer {
            status: self.status,
            location: self.text("location"),
            retry_after: retry_after.map(|seconds| Duration::from_secs(seconds).min(WAIT_MAX)),
            etag: validator("etag"),
            last_modified: validator("last-modified"),
            max_age: self.max_age(),
            ..Answer::default()
        }
    }

    fn max_age(&self) -> Option<Duration> {
        let mut max_age_s: Option<u64> = None;
        for control in self.all("cache-control").map(cache_control) {
            if control.no_cache || control.no_store {
                return Some(Duration::ZERO);
            }
            max_age_s = max_age_s.or(control.max_age_s);
        }
        max_age_s.map(|seconds| Duration::from_secs(seconds).min(WAIT_MAX))
    }

    /// The charset that Content-Type names.
    pub fn charset(&self) -> Option<String> {
        content_type(&self.text("content-type")?).charset.map(str::to_owned)
    }

    /// The links of the fields Link and Refresh. `base` is the URL of the page.
    pub fn links(&self, base: &Url) -> Vec<Link> {
        let mut found: Vec<Link> =
            self.all("link").flat_map(|value| headers::links(value, base)).take(HEADER_LINKS_MAX).collect();
        for value in self.all("refresh").map(String::from_utf8_lossy) {
            let target = refresh_target(&value).filter(|target| target.len() <= REFERENCE_BYTES_MAX);
            let url = target.and_then(|target| base.join(target).ok()).and_then(clean);
            found.extend(url.map(|url| Link { url: url.into(), kind: LinkKind::Refresh, nofollow: false }));
        }
        found
    }

    /// What X-Robots-Tag asks of the agent called `token`.
    pub fn directives(&self, token: &str) -> Directives {
        let mut found = Directives::default();
        for value in self.all("x-robots-tag") {
            found.merge(Directives::from_header(&String::from_utf8_lossy(value), token));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use nephila_archive::http::HEADERS_MAX;
    use proptest::prelude::*;

    use super::*;

    const NOW: Wall = Wall(1_000_000_000);

    fn url() -> Url {
        Url::parse("http://a.test/dir/page").unwrap()
    }

    #[test]
    fn reads_what_concerns_a_crawler() {
        let head = Head::parse(
            b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nETag: \"x\"\r\nLast-Modified: then\r\nLocation: /new\r\n\
              Cache-Control: public\r\nCACHE-CONTROL: max-age=60\r\nContent-Type: text/html; charset=koi8-r\r\n\
              Link: <next>; rel=next\r\nRefresh: 0; url=other\r\nX-Robots-Tag: noindex\r\n\
              X-Robots-Tag: somebody: nofollow\r\n\r\n",
        )
        .unwrap();
        let answer = head.answer(NOW);
        assert_eq!(answer.status, 503);
        assert!(!head.is_success());
        assert_eq!(answer.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(answer.etag.as_deref(), Some("\"x\""));
        assert_eq!(answer.last_modified.as_deref(), Some("then"));
        assert_eq!(answer.location.as_deref(), Some("/new"));
        assert_eq!(answer.max_age, Some(Duration::from_secs(60)));
        assert_eq!(head.charset().as_deref(), Some("koi8-r"));
        let links = head.links(&url());
        let found: Vec<_> = links.iter().map(|link| (link.url.as_str(), link.kind)).collect();
        assert_eq!(
            found,
            [("http://a.test/dir/next", LinkKind::Header), ("http://a.test/dir/other", LinkKind::Refresh)]
        );
        let directives = head.directives("nephila");
        assert!(directives.noindex && !directives.nofollow);
    }

    #[test]
    fn bounds_and_doubts() {
        let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        let long = head(&format!("ETag: {}", "e".repeat(VALIDATOR_BYTES_MAX + 1)));
        assert_eq!(Head::parse(long.as_bytes()).unwrap().answer(NOW).etag, None);
        let ages = [
            ("Cache-Control: no-cache, max-age=60", Some(Duration::ZERO)),
            ("Cache-Control: max-age=60\r\nCache-Control: no-store", Some(Duration::ZERO)),
            ("Cache-Control: max-age=99999999999999999999", Some(WAIT_MAX)),
            ("Pragma: no-cache", None),
        ];
        for (fields, expected) in ages {
            let bytes = head(fields);
            assert_eq!(Head::parse(bytes.as_bytes()).unwrap().answer(NOW).max_age, expected, "{fields}");
        }
        let many = head(&"X: y\r\n".repeat(HEADERS_MAX + 1));
        assert!(Head::parse(many.as_bytes()).is_none());
    }

    #[test]
    fn tells_what_is_no_head() {
        for bytes in
            [&b""[..], b"hello", b"HTTP/1.1 200 OK\r\nA: b\r\n", b"ICY 200 OK\r\n\r\n", b"\x16\x03\x01"]
        {
            assert!(Head::parse(bytes).is_none(), "{bytes:?}");
        }
        // A line that is no field does not spoil the others.
        let head = Head::parse(b"HTTP/1.0 301 \r\nno field at all\r\nLocation : /x\r\n\r\n").unwrap();
        assert_eq!(head.answer(NOW).location.as_deref(), Some("/x"));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let with_status = [&b"HTTP/1.1 200 OK\r\n"[..], &bytes, b"\r\n\r\n"].concat();
            for bytes in [&bytes, &with_status] {
                if let Some(head) = Head::parse(bytes) {
                    head.answer(NOW);
                    head.links(&url());
                    head.directives("nephila");
                    head.charset();
                }
            }
        }
    }
}
