//! What a URL is to the crawler: what may be fetched, what counts as the same URL, and whose it is.
//!
//! Two spellings are kept apart. The URL *as fetched* is what [`clean`] returns, and it is what goes on the wire and
//! into the archive. The *key* ([`key`], and its hash [`Fingerprint`]) only answers "have we met this one before?" and
//! is never fetched, because a spelling that looks equal to us need not look equal to the server.
//!
//! Parsing is the `url` crate's (the WHATWG standard); this module adds only the crawler's own rules.

pub mod addresses;
mod clean_url;
mod plain;
pub mod traps;

use std::fmt;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use ::url::Url;
pub use addresses::AddressKey;
pub use clean_url::CleanUrl;
pub(crate) use clean_url::PlainBase;

/// The longest name that DNS can hold, in bytes, without its final dot.
const NAME_BYTES_MAX: usize = 253;
/// The longest label of a name, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// Why a text that a person gave us as a URL is not one that can be crawled. Each message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Nothing but white space.
    #[error("the URL is empty: give one such as https://example.org/")]
    Empty,
    /// Not a URL by the WHATWG standard.
    #[error("{text:?} is not a URL ({source}): give one such as https://example.org/")]
    Syntax {
        /// What was given.
        text: String,
        /// What the parser objected to.
        source: ::url::ParseError,
    },
    /// A path on its own, as a shell might complete it.
    #[error("{text:?} looks like a path: give a whole URL such as https://example.org{text}")]
    Path {
        /// What was given.
        text: String,
    },
    /// A scheme that is misspelt, or lacks its colon or slashes. Browsers guess; a guess could crawl somebody else.
    #[error("{text:?} does not start as a URL does: write http:// or https:// and then the name of the host")]
    Start {
        /// What was given.
        text: String,
    },
    /// A scheme other than http and https.
    #[error(
        "{text:?} has the scheme {scheme}, and only http and https can be crawled: start it with https://"
    )]
    Scheme {
        /// What was given.
        text: String,
        /// Its scheme.
        scheme: String,
    },
    /// A host that no DNS name can be.
    #[error("{text:?} has no host that DNS could hold: names have parts of 1 to 63 bytes and 253 in all")]
    Host {
        /// What was given.
        text: String,
    },
}

/// Reads a URL that a person typed. Without a scheme, `https://` is added; the result is [`clean`].
pub fn parse_seed(text: &str) -> Result<Url, UrlError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(UrlError::Empty);
    }
    if has_bad_start(text) {
        return Err(UrlError::Start { text: text.to_owned() });
    }
    let with_scheme = if has_scheme(text) {
        text.to_owned()
    } else if text.starts_with("//") {
        format!("https:{text}")
    } else if text.starts_with(['/', '.', '?', '#']) {
        return Err(UrlError::Path { text: text.to_owned() });
    } else {
        format!("https://{text}")
    };
    let url =
        Url::parse(&with_scheme).map_err(|source| UrlError::Syntax { text: text.to_owned(), source })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme { text: text.to_owned(), scheme: url.scheme().to_owned() });
    }
    clean(url).ok_or_else(|| UrlError::Host { text: text.to_owned() })
}

/// Whether a typed text starts with something that was meant to be `http://` or another scheme and is not:
/// `http//a.example`, `https:/a.example`, `ht!tp://a.example`.
fn has_bad_start(text: &str) -> bool {
    let is_http = |word: &str| word.eq_ignore_ascii_case("http") || word.eq_ignore_ascii_case("https");
    let (start, rest) = text.split_at(text.find(['/', ':', '?', '#']).unwrap_or(text.len()));
    match rest.strip_prefix(':') {
        Some(rest) if is_http(start) => has_scheme(text) && !rest.starts_with("//"),
        Some(rest) => rest.starts_with("//") && !has_scheme(text),
        None => is_http(start) && rest.starts_with("//"),
    }
}

/// Whether a typed text starts with a scheme. `example.org:8080/a` does not: a digit after the colon means a port.
fn has_scheme(text: &str) -> bool {
    let Some((before, after)) = text.split_once(':') else { return false };
    before.starts_with(|c: char| c.is_ascii_alphabetic())
        && before.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        && !after.starts_with(|c: char| c.is_ascii_digit())
}

/// The URL as fetched, or `None` if it cannot be: http or https, a host that DNS could hold, and neither fragment nor
/// user name nor password.
pub fn clean(mut url: Url) -> Option<Url> {
    if !matches!(url.scheme(), "http" | "https") || !can_be_resolved(&url) {
        return None;
    }
    if url.fragment().is_some() {
        url.set_fragment(None);
    }
    if !url.username().is_empty() || url.password().is_some() {
        url.set_username("").ok()?;
        url.set_password(None).ok()?;
    }
    Some(url)
}

fn can_be_resolved(url: &Url) -> bool {
    match url.host() {
        None => false,
        Some(::url::Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            name.len() <= NAME_BYTES_MAX
                && name.split('.').all(|label| !label.is_empty() && label.len() <= LABEL_BYTES_MAX)
        }
        Some(_) => true,
    }
}

/// The key by which two spellings count as one URL.
///
/// It is the WHATWG serialisation (which already drops default ports, resolves dot segments, escaped ones too, and
/// lower-cases names) without fragment, user name and password; escapes of unreserved characters (RFC 3986: letters,
/// digits, `-._~`) are decoded and the hexadecimal digits of all other escapes are in upper case; an empty query is
/// dropped. Parameters are neither sorted nor removed.
///
/// The key is itself a URL, and the key of that URL is the same key.
pub fn key(url: &Url) -> String {
    let text = url.as_str();
    let mut key = String::with_capacity(text.len());
    key.push_str(url.scheme());
    key.push_str("://");
    key.push_str(url.host_str().unwrap_or_default());
    if let Some(port) = url.port() {
        key.push_str(&format!(":{port}"));
    }
    push_normal(&mut key, url.path());
    if let Some(query) = url.query().filter(|query| !query.is_empty()) {
        key.push('?');
        push_normal(&mut key, query);
    }
    key
}

fn push_normal(out: &mut String, part: &str) {
    let mut rest = part;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(value) = escaped_byte(rest) else {
            out.push('%');
            rest = &rest[1..];
            continue;
        };
        // A stray '%' must not become an escape by what is decoded behind it: "%%34%31" would read "%41", and that
        // is another URL, whose key would then be another key.
        let behind_stray = out.as_bytes().iter().rev().take(2).any(|&byte| byte == b'%');
        if is_unreserved(value) && !behind_stray {
            out.push(char::from(value));
        } else {
            out.push('%');
            out.extend(rest[1..3].chars().map(|digit| digit.to_ascii_uppercase()));
        }
        rest = &rest[3..];
    }
    out.push_str(rest);
}

/// The byte that the escape at the start of `text` stands for.
fn escaped_byte(text: &str) -> Option<u8> {
    let [b'%', high, low, ..] = text.as_bytes() else { return None };
    let value = char::from(*high).to_digit(16)? * 16 + char::from(*low).to_digit(16)?;
    u8::try_from(value).ok()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// What the seen-set keeps of a URL: the low 96 bits of the XXH3 hash of its [`key`].
///
/// Among 10^9 URLs the probability that any two share a fingerprint by chance is 6 x 10^-12. The hash is not a secret,
/// so somebody could make two of their own URLs collide; therefore fingerprints are compared within a host only, where
/// nobody can hide the pages of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 12]);

impl Fingerprint {
    /// The fingerprint of a URL, by its key.
    pub fn of(url: &Url) -> Fingerprint {
        if is_own_key(url) { Fingerprint::of_key(url.as_str()) } else { Fingerprint::of_key(&key(url)) }
    }

    /// That of a clean URL, from its text.
    pub fn of_text(text: &str) -> Option<Fingerprint> {
        match plain::host(text) {
            Some(_) => Some(Fingerprint::of_key(text)),
            None => Some(Fingerprint::of(&Url::parse(text).ok()?)),
        }
    }

    fn of_key(key: &str) -> Fingerprint {
        let [bytes @ .., _, _, _, _] = xxhash_rust::xxh3::xxh3_128(key.as_bytes()).to_le_bytes();
        Fingerprint(bytes)
    }
}

/// Whether a URL is certainly its own key: most are, and need not be copied to become it.
fn is_own_key(url: &Url) -> bool {
    let text = url.as_str();
    url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        && !text.ends_with('?')
        && !text.as_bytes().contains(&b'%')
}

/// Whose a URL is and what it is known by, from its text; `None` if it cannot be fetched. Texts that are plainly written as
/// [`clean`] returns them, and most are, are not parsed for it.
pub fn identify(text: &str) -> Option<(Host, Fingerprint)> {
    if let Some(host) = plain::host(text) {
        return Some((Host(Arc::from(host)), Fingerprint::of_key(text)));
    }
    let url = clean(Url::parse(text).ok()?)?;
    Some((Host::of(&url), Fingerprint::of(&url)))
}

/// A host: a name without scheme and port, the unit of queueing and politeness.
///
/// It is in lower case, in the ASCII form of international names, without a trailing dot; IPv6 addresses are without
/// brackets. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "Arc<str>")]
pub struct Host(Arc<str>);

/// A text that should have been a host and is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host name or an address")]
pub struct NotAHost(String);

impl Host {
    /// The host of a URL that [`clean`] let through.
    pub fn of(url: &Url) -> Host {
        Host(Arc::from(Host::name_of(url)))
    }

    /// Its name, where that is enough.
    pub fn name_of(url: &Url) -> &str {
        let name = url.host_str().unwrap_or_default();
        let name = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        name.strip_suffix('.').unwrap_or(name)
    }

    /// Reads a name or an address, with or without brackets, in any case; `None` if [`clean`] would not let it through
    /// as the host of a URL. A port is not part of a host.
    pub fn parse(text: &str) -> Option<Host> {
        // The parser of hosts is only reachable through a URL's; what would be anything but a host is refused first.
        // A colon is left only in brackets. Addresses take the same way: std and the parser of URLs spell some
        // differently (::ffff:1.2.3.4, ::ffff:102:304), and a host that is read back must be the one it was.
        let bracketed = text.parse::<Ipv6Addr>().ok().map(|address| format!("[{address}]"));
        let text = bracketed.as_deref().unwrap_or(text);
        if text.contains(['/', '?', '#', '@', '\\', '\t', '\n', '\r', ' '])
            || text.contains(':') && !(text.starts_with('[') && text.ends_with(']'))
        {
            return None;
        }
        let url = Url::parse(&format!("http://{text}/")).ok()?;
        clean(url).map(|url| Host::of(&url))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, if the host is one and not a name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Host {
    type Error = NotAHost;

    fn try_from(text: String) -> Result<Host, NotAHost> {
        Host::parse(&text).ok_or(NotAHost(text))
    }
}

impl From<Host> for Arc<str> {
    fn from(host: Host) -> Arc<str> {
        host.0
    }
}

/// Scheme, host and port: what one robots.txt speaks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// https rather than http.
    pub https: bool,
    /// The host.
    pub host: Host,
    /// The port, also where it is the default one.
    pub port: u16,
}

impl Origin {
    /// The origin of a URL that [`clean`] let through.
    pub fn of(url: &Url) -> Origin {
        let https = url.scheme() == "https";
        Origin { https, host: Host::of(url), port: url.port().unwrap_or(default_port(https)) }
    }

    /// Where the robots.txt of this origin is.
    pub fn robots_url(&self) -> Url {
        Url::parse(&format!("{self}/robots.txt")).expect("a host came out of a URL, so it fits into one")
    }
}

fn default_port(https: bool) -> u16 {
    if https { 443 } else { 80 }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.https { "https://" } else { "http://" })?;
        match self.host.as_str() {
            address if address.contains(':') => write!(f, "[{address}]")?,
            name => f.write_str(name)?,
        }
        if self.port != default_port(self.https) {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn seeds() {
        for (typed, expected) in [
            ("example.org", "https://example.org/"),
            ("  example.org/a?b#c \n", "https://example.org/a?b"),
            ("http://Example.ORG", "http://example.org/"),
            ("HTTP://example.org:80/", "http://example.org/"),
            ("//example.org/a", "https://example.org/a"),
            ("example.org:8080/a", "https://example.org:8080/a"),
            ("localhost:8080", "https://localhost:8080/"),
            ("http.example", "https://http.example/"),
            ("http/a", "https://http/a"),
            ("example.org//a", "https://example.org//a"),
            ("127.0.0.1", "https://127.0.0.1/"),
            ("[::1]:80/a", "https://[::1]:80/a"),
            ("https://user:secret@example.org/", "https://example.org/"),
            ("example.org/?u=http://a/", "https://example.org/?u=http://a/"),
            ("bücher.example", "https://xn--bcher-kva.example/"),
        ] {
            assert_eq!(parse_seed(typed).map(String::from), Ok(expected.to_owned()), "{typed}");
        }
    }

    #[test]
    fn seeds_that_are_refused_say_what_to_do() {
        for (typed, message) in [
            (" ", "the URL is empty: give one such as https://example.org/"),
            ("/etc/passwd", "looks like a path"),
            ("./a.html", "looks like a path"),
            ("ftp://example.org/", "has the scheme ftp, and only http and https can be crawled"),
            ("mailto:a@example.org", "has the scheme mailto"),
            ("ht!tp://x", "does not start as a URL does: write http:// or https://"),
            ("https:/example.org", "does not start as a URL does"),
            ("https:example.org", "does not start as a URL does"),
            ("HTTP:\\\\example.org", "does not start as a URL does"),
            ("http//example.org", "does not start as a URL does"),
            ("https://", "is not a URL (empty host)"),
            ("http://a b/", "is not a URL"),
            ("http://a..b/", "has no host that DNS could hold"),
            ("http://./", "has no host that DNS could hold"),
        ] {
            let error = parse_seed(typed).unwrap_err().to_string();
            assert!(error.contains(message), "{typed}: {error}");
        }
        let long = format!("http://{}.example/", "a".repeat(64));
        assert!(matches!(parse_seed(&long), Err(UrlError::Host { .. })));
    }

    #[test]
    fn cleaning() {
        for (given, expected) in [
            ("http://a.example/p?q#f", Some("http://a.example/p?q")),
            ("http://a.example/p#", Some("http://a.example/p")),
            ("http://u:p@a.example/p", Some("http://a.example/p")),
            ("http://u@a.example/", Some("http://a.example/")),
            ("http://a.example/?", Some("http://a.example/?")),
            ("http://a.example./", Some("http://a.example./")),
            ("mailto:a@a.example", None),
            ("javascript:void(0)", None),
            ("data:text/html,hello", None),
            ("ftp://a.example/", None),
            ("file:///etc/passwd", None),
        ] {
            assert_eq!(clean(url(given)).map(String::from).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn keys() {
        for (given, expected) in [
            ("HTTP://A.Example:80/%7Euser/%61?x=%2d#top", "http://a.example/~user/a?x=-"),
            ("http://u:p@a.example", "http://a.example/"),
            ("http://a.example/?", "http://a.example/"),
            ("http://a.example/?#", "http://a.example/"),
            ("http://a.example/?b=2&a=1&", "http://a.example/?b=2&a=1&"),
            ("http://a.example/%2f%c3%a9", "http://a.example/%2F%C3%A9"),
            ("http://a.example/é", "http://a.example/%C3%A9"),
            ("http://a.example/a/%2e%2E/b/%2e", "http://a.example/b/"),
            ("http://a.example/a%2e%2e/b", "http://a.example/a../b"),
            ("http://a.example/%2541", "http://a.example/%2541"),
            ("http://a.example/%zz%4", "http://a.example/%zz%4"),
            ("http://a.example/%%34%31", "http://a.example/%%341"),
            ("http://a.example/%4%31", "http://a.example/%4%31"),
            ("https://a.example:443/", "https://a.example/"),
            ("https://a.example:80/", "https://a.example:80/"),
        ] {
            assert_eq!(key(&url(given)), expected, "{given}");
        }
    }

    proptest! {
        #[test]
        fn the_key_of_a_key_is_the_key(
            path in "([a-z./%]|%[0-9a-fA-F]{2}|\\PC){0,40}",
            query in "([a-z&=%?]|%[0-9a-fA-F]{2}|\\PC){0,20}",
        ) {
            if let Ok(parsed) = Url::parse(&format!("http://a.example/{path}?{query}")) {
                let once = key(&parsed);
                prop_assert_eq!(&key(&url(&once)), &once);
            }
        }

        #[test]
        fn typed_text_never_panics_and_gives_hosts_that_read_back(text in "\\PC{0,40}") {
            if let Ok(seed) = parse_seed(&text) {
                let host = Host::of(&seed);
                prop_assert_eq!(Host::parse(host.as_str()), Some(host));
                prop_assert_eq!(Origin::of(&Origin::of(&seed).robots_url()), Origin::of(&seed));
            }
            let _ = Host::parse(&text);
        }
    }

    #[test]
    fn fingerprints_follow_keys() {
        let one = Fingerprint::of(&url("http://a.example/%7Ea?#x"));
        assert_eq!(one, Fingerprint::of(&url("http://a.example:80/~a")));
        assert_ne!(one, Fingerprint::of(&url("https://a.example/~a")));
        // Stores keep fingerprints: a change of the hash or of the key would make every crawl forget what it has seen.
        assert_eq!(data_of(one), "a79351d5477fb3938444803a");
    }

    fn data_of(fingerprint: Fingerprint) -> String {
        fingerprint.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn hosts() {
        for (given, expected) in [
            ("http://A.Example:8080/", "a.example"),
            ("http://a.example./", "a.example"),
            ("http://[2001:DB8::1]/", "2001:db8::1"),
            ("http://0x7f.1/", "127.0.0.1"),
        ] {
            assert_eq!(Host::of(&url(given)).as_str(), expected, "{given}");
        }
        for (text, expected) in [
            ("A.Example", Some("a.example")),
            ("a.example.", Some("a.example")),
            ("[::1]", Some("::1")),
            ("::1", Some("::1")),
            ("::ffff:10.0.0.1", Some("::ffff:a00:1")),
            ("::ffff:a00:1", Some("::ffff:a00:1")),
            ("a.example:80", None),
            ("a.example/b", None),
            ("u@a.example", None),
            ("", None),
            (".", None),
            ("a b", None),
        ] {
            assert_eq!(Host::parse(text).as_ref().map(Host::as_str), expected, "{text}");
        }
        assert_eq!(Host::parse("::1").and_then(|host| host.ip()), "::1".parse().ok());
        assert_eq!(Host::parse("a.example").and_then(|host| host.ip()), None);
        assert_eq!(serde_json::to_string(&Host::parse("a.example")).unwrap(), r#""a.example""#);
        assert!(serde_json::from_str::<Host>(r#""a/b""#).is_err());
    }

    #[test]
    fn origins() {
        for (given, expected) in [
            ("http://a.example/x", "http://a.example/robots.txt"),
            ("https://a.example:443/x", "https://a.example/robots.txt"),
            ("https://a.example:80/x", "https://a.example:80/robots.txt"),
            ("http://[::1]:8080/x", "http://[::1]:8080/robots.txt"),
        ] {
            let origin = Origin::of(&url(given));
            assert_eq!(origin.robots_url().as_str(), expected);
            assert_eq!(format!("{origin}/robots.txt"), expected);
        }
    }
}
