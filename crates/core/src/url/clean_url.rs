//! Clean URLs as text: what links are as long as nothing is asked of their servers.
//!
//! A page has many links and few of them are new, so they are not parsed where that can be avoided: what is plainly written
//! ([`super::plain`]) is put together from the text.

use std::ops::Range;

use ::url::Position;

use super::{Host, Url, clean, plain};

/// The text of a URL that [`clean`] let through, and where in it host and path are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CleanUrl {
    text: String,
    host: Range<usize>,
    path: Range<usize>,
}

impl CleanUrl {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of its [`Host`].
    pub fn host_name(&self) -> &str {
        &self.text[self.host.clone()]
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        &self.text[self.path.clone()]
    }
}

/// Of a URL that [`clean`] let through.
impl From<Url> for CleanUrl {
    fn from(url: Url) -> CleanUrl {
        let bracket = usize::from(url.host_str().is_some_and(|host| host.starts_with('[')));
        let host = url[..Position::BeforeHost].len() + bracket;
        let host = host..host + Host::name_of(&url).len();
        let path = url[..Position::BeforePath].len()..url[..Position::AfterPath].len();
        CleanUrl { text: url.into(), host, path }
    }
}

impl From<CleanUrl> for String {
    fn from(url: CleanUrl) -> String {
        url.text
    }
}

/// What plain references are resolved against.
pub(crate) struct PlainBase {
    /// Scheme, host and port, and where in it the host is; if what is on that origin can be fetched.
    origin: Option<(String, Range<usize>)>,
}

impl PlainBase {
    pub(crate) fn new(base: &Url) -> PlainBase {
        let origin = clean(base.clone()).map(|base| {
            let CleanUrl { mut text, host, path } = base.into();
            text.truncate(path.start);
            (text, host)
        });
        PlainBase { origin }
    }

    /// Where a reference leads, if it is plainly written: what the parser and [`clean`] would say, or nothing.
    pub(crate) fn resolve(&self, reference: &str) -> Option<CleanUrl> {
        let path_end = |path: &str| path.bytes().position(|byte| byte == b'?').unwrap_or(path.len());
        if reference.starts_with('/') {
            let (origin, host) = self.origin.as_ref()?;
            if reference.starts_with("//") || !plain::is_plain_target(reference) {
                return None;
            }
            let mut text = String::with_capacity(origin.len() + reference.len());
            text.push_str(origin);
            text.push_str(reference);
            let path = origin.len()..origin.len() + path_end(reference);
            return Some(CleanUrl { text, host: host.clone(), path });
        }
        let (host, target) = plain::places(reference)?;
        let path = target..target + path_end(&reference[target..]);
        Some(CleanUrl { text: reference.to_owned(), host, path })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(url: &CleanUrl) -> [&str; 3] {
        [url.as_str(), url.host_name(), url.path()]
    }

    #[test]
    fn its_parts() {
        for (text, host, path) in [
            ("http://a.example/", "a.example", "/"),
            ("https://a.example.:81/x/y?z", "a.example", "/x/y"),
            ("http://[::1]:81/?z", "::1", "/"),
            ("http://127.0.0.1/x", "127.0.0.1", "/x"),
        ] {
            let url = CleanUrl::from(clean(Url::parse(text).unwrap()).unwrap());
            assert_eq!(parts(&url), [text, host, path]);
        }
    }

    #[test]
    fn what_is_plain_is_not_parsed() {
        let base = PlainBase::new(&Url::parse("http://u:p@a.example:81/dir/page?q").unwrap());
        for (reference, expected) in [
            ("/x/y?z", Some(["http://a.example:81/x/y?z", "a.example", "/x/y"])),
            ("https://b.example/x?y", Some(["https://b.example/x?y", "b.example", "/x"])),
            ("//b.example/x", None),
            ("/x/../y", None),
            ("/%41", None),
            ("/x#y", None),
            (" /x", None),
            ("x", None),
            ("", None),
            ("?y", None),
            ("http:/x", None),
        ] {
            assert_eq!(base.resolve(reference).as_ref().map(parts), expected, "{reference}");
        }
        let base = PlainBase::new(&Url::parse("ftp://a.example/").unwrap());
        assert_eq!(base.resolve("/x"), None);
    }

    proptest! {
        /// Where there is a short cut, it leads to the same place.
        #[test]
        fn the_parser_agrees(
            base in "(http|https|ftp|data)://([a-c]@)?(\\[::1\\]|[a-c0-2.]{1,6})(:[0-9]{1,3})?/[a-c/.]{0,4}(\\?q)?",
            reference in "(https?://[a-c0-2.x-]{1,8}(:[0-9]{1,5})?)?/?([a-b/.?=&~%#@:; \\\\']|%41){0,10}"
        ) {
            if let Ok(base) = Url::parse(&base)
                && let Some(short) = PlainBase::new(&base).resolve(&reference)
            {
                let parsed = base.join(&reference).ok().and_then(clean).map(CleanUrl::from);
                prop_assert_eq!(Some(short), parsed);
            }
        }
    }
}
