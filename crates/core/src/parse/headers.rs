//! The header fields that a crawler acts on, as values: none of these functions fails on any bytes.

use std::time::UNIX_EPOCH;

use super::{Link, LinkKind, REFERENCE_BYTES_MAX, relation};
use crate::url::{Url, clean};

/// The most links that are taken from one `Link` field.
pub const HEADER_LINKS_MAX: usize = 100;

/// Content-Type, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentType<'a> {
    /// Type and subtype as given, such as `text/html`; compare it without regard to case.
    pub essence: &'a str,
    /// The charset, without quotes.
    pub charset: Option<&'a str>,
}

/// Takes the value of Content-Type apart.
pub fn content_type(value: &str) -> ContentType<'_> {
    // Servers that send the field twice end up with both values in one: the first counts.
    let end = value.find([';', ',']).unwrap_or(value.len());
    let (essence, parameters) = value.split_at(end);
    ContentType { essence: essence.trim(), charset: charset_parameter(parameters) }
}

/// The charset named in a text such as `text/html; charset="utf-8"`, by the lenient rule of HTML for `meta`.
pub(super) fn charset_parameter(text: &str) -> Option<&str> {
    const NAME: &[u8] = b"charset";
    let mut rest = text;
    loop {
        let at = rest.as_bytes().windows(NAME.len()).position(|part| part.eq_ignore_ascii_case(NAME))?;
        rest = &rest[at + NAME.len()..];
        let Some(value) = rest.trim_ascii_start().strip_prefix('=') else { continue };
        let value = value.trim_ascii_start();
        let label = match value.chars().next()? {
            quote @ ('"' | '\'') => value[1..].split(quote).next(),
            _ => value.split(|c: char| c == ';' || c == ',' || c.is_ascii_whitespace()).next(),
        };
        return label.map(str::trim).filter(|label| !label.is_empty());
    }
}

/// Where a `Refresh`, as a header or in a `meta`, leads to, by the HTML standard's rule: `5; url='/next'`. `None` if it
/// only loads the same page again, or is not understood.
pub fn refresh_target(value: &str) -> Option<&str> {
    let value = value.trim_ascii_start();
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits == 0 && !value.starts_with('.') {
        return None;
    }
    let rest = value[digits..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !rest.starts_with(|c: char| c == ';' || c == ',' || c.is_ascii_whitespace()) {
        return None;
    }
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix([';', ',']).unwrap_or(rest).trim_ascii_start();
    let target = after_url_sign(rest).unwrap_or(rest);
    let target = match target.chars().next()? {
        quote @ ('"' | '\'') => target[1..].split(quote).next()?,
        _ => target,
    };
    let target = target.trim_ascii();
    (!target.is_empty()).then_some(target)
}

/// What follows `url =`, if the text starts with that.
fn after_url_sign(text: &str) -> Option<&str> {
    let (name, rest) = text.split_at_checked(3)?;
    let rest = rest.trim_ascii_start().strip_prefix('=')?;
    name.eq_ignore_ascii_case("url").then_some(rest.trim_ascii_start())
}

/// The links of a `Link` header field (RFC 8288) whose relation is one that is followed. `base` is the URL of the page,
/// whatever `base` elements it has.
pub fn links(value: &[u8], base: &Url) -> Vec<Link> {
    let value = String::from_utf8_lossy(value);
    let mut rest = &*value;
    let mut links = Vec::new();
    while links.len() < HEADER_LINKS_MAX {
        let Some((_, from_target)) = rest.split_once('<') else { break };
        let Some((target, after)) = from_target.split_once('>') else { break };
        let parameters = Parameters::read(after);
        rest = parameters.rest;
        let (kind, nofollow) = relation(parameters.rel.as_deref().unwrap_or_default());
        // A link that is about another page than this one says nothing of this one.
        if kind.is_none() || parameters.has_anchor || target.len() > REFERENCE_BYTES_MAX {
            continue;
        }
        if let Some(url) = base.join(target).ok().and_then(clean) {
            links.push(Link { url: url.into(), kind: LinkKind::Header, nofollow });
        }
    }
    links
}

/// The parameters of one link, and what is left of the field behind them.
struct Parameters<'a> {
    rel: Option<String>,
    has_anchor: bool,
    rest: &'a str,
}

impl<'a> Parameters<'a> {
    fn read(mut rest: &'a str) -> Parameters<'a> {
        let mut rel = None;
        let mut has_anchor = false;
        loop {
            rest = rest.trim_start_matches(|c: char| c == ';' || c.is_ascii_whitespace());
            let name_end = rest.find(['=', ';', ',']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(name_end);
            let name = name.trim_end();
            let (value, after) = match after.strip_prefix('=') {
                Some(after) => read_value(after.trim_ascii_start()),
                None => (String::new(), after),
            };
            // The first rel counts.
            if name.eq_ignore_ascii_case("rel") && rel.is_none() {
                rel = Some(value);
            } else if name.eq_ignore_ascii_case("anchor") {
                has_anchor = true;
            }
            rest = after.trim_ascii_start();
            if !rest.starts_with(';') {
                return Parameters { rel, has_anchor, rest };
            }
        }
    }
}

/// Reads a token or a quoted string; returns it and what follows.
fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        return (text[..end].trim_end().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    (value, "")
}

/// How many seconds to wait by `Retry-After`, a number of seconds or a date; 0 for a date that is past. `now_unix_s` is
/// the current time in seconds since 1970.
pub fn retry_after_s(value: &[u8], now_unix_s: u64) -> Option<u64> {
    let value = str::from_utf8(value).ok()?.trim();
    if let Some(seconds) = seconds(value) {
        return Some(seconds);
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let until_s = date.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Some(until_s.saturating_sub(now_unix_s))
}

/// A number of seconds. One that is too large to hold is as large as can be held.
fn seconds(text: &str) -> Option<u64> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The parts of `Cache-Control` that bear on how long an answer may be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// For how many seconds it may be used.
    pub max_age_s: Option<u64>,
    /// It is to be asked for again before each use.
    pub no_cache: bool,
    /// It is not to be kept.
    pub no_store: bool,
}

/// Reads `Cache-Control`. What is not understood is left out.
pub fn cache_control(value: &[u8]) -> CacheControl {
    let mut found = CacheControl::default();
    let Ok(value) = str::from_utf8(value) else { return found };
    for directive in value.split(',') {
        let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
        let name = name.trim();
        if name.eq_ignore_ascii_case("max-age") {
            found.max_age_s = found.max_age_s.or(seconds(argument.trim().trim_matches('"')));
        }
        found.no_cache |= name.eq_ignore_ascii_case("no-cache");
        found.no_store |= name.eq_ignore_ascii_case("no-store");
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn content_types() {
        for (value, essence, charset) in [
            ("text/html", "text/html", None),
            ("Text/HTML; Charset=UTF-8", "Text/HTML", Some("UTF-8")),
            ("text/html;charset=\"utf-8\"", "text/html", Some("utf-8")),
            ("text/html; charset='gbk' ; x=y", "text/html", Some("gbk")),
            ("text/html; a=b; charset=gbk; c", "text/html", Some("gbk")),
            ("text/html; charset=", "text/html", None),
            ("text/html; charset", "text/html", None),
            ("text/html; charset charset = gbk", "text/html", Some("gbk")),
            ("text/html, text/plain; charset=gbk", "text/html", Some("gbk")),
            (" ; charset=gbk", "", Some("gbk")),
            ("", "", None),
        ] {
            assert_eq!(content_type(value), ContentType { essence, charset }, "{value}");
        }
    }

    #[test]
    fn refreshes() {
        for (value, expected) in [
            ("0; url=/a", Some("/a")),
            ("5;URL='/a b'", Some("/a b")),
            ("5;url=\"/a\"garbage", Some("/a")),
            ("5;url=\"/a", Some("/a")),
            (" 1.5 , Url = /a ", Some("/a")),
            ("0 /a", Some("/a")),
            ("0; /a", Some("/a")),
            ("0;url", Some("url")),
            (".5;url=/a", Some("/a")),
            ("5", None),
            ("5;", None),
            ("5;url=", None),
            ("5;url=''", None),
            ("url=/a", None),
            ("", None),
            ("x;url=/a", None),
            ("5x;url=/a", None),
        ] {
            assert_eq!(refresh_target(value), expected, "{value}");
        }
    }

    #[test]
    fn link_fields() {
        let base = Url::parse("http://a.example/dir/page").unwrap();
        for (value, expected) in [
            ("</n>; rel=next", &["http://a.example/n"][..]),
            ("<n>; rel=\"next\", <p>; rel='prev'", &["http://a.example/dir/n"]),
            ("<n>; rel=\"x NEXT\", <p>; rel=previous", &["http://a.example/dir/n", "http://a.example/dir/p"]),
            ("<a,b;c>; title=\"x, <y>; rel=next\"; rel=canonical", &["http://a.example/dir/a,b;c"]),
            ("<a>; title=\"q\\\"; rel=next\"; rel=alternate", &["http://a.example/dir/a"]),
            ("<a>; rel=preload; rel=next, <b>; rel=\"alternate stylesheet\"", &[]),
            ("<a>; rel=next; anchor=\"/other\"", &[]),
            ("<a> ; rel = next", &["http://a.example/dir/a"]),
            ("<a>;;rel=next;", &["http://a.example/dir/a"]),
            ("<a>, <b>; rel=next", &["http://a.example/dir/b"]),
            ("<mailto:x@y>; rel=next", &[]),
            ("<a", &[]),
            ("<a>; rel=\"next", &["http://a.example/dir/a"]),
            ("", &[]),
        ] {
            let found = links(value.as_bytes(), &base);
            assert!(found.iter().all(|link| link.kind == LinkKind::Header && !link.nofollow));
            let urls: Vec<&str> = found.iter().map(|link| link.url.as_str()).collect();
            assert_eq!(urls, expected, "{value}");
        }
        assert!(links(b"<a>; rel=\"next nofollow\"", &base)[0].nofollow);
        assert_eq!(links("<a>; rel=next,".repeat(1000).as_bytes(), &base).len(), HEADER_LINKS_MAX);
    }

    #[test]
    fn retry_after() {
        let now = 1_794_700_800; // Sun, 15 Nov 2026 00:00:00 GMT
        for (value, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 15 Nov 2026 00:02:00 GMT", Some(120)),
            ("Sun, 15 Nov 2020 00:02:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after_s(value.as_bytes(), now), expected, "{value}");
        }
    }

    #[test]
    fn cache_controls() {
        let none = CacheControl::default();
        for (value, expected) in [
            ("", none),
            ("max-age=60", CacheControl { max_age_s: Some(60), ..none }),
            ("public, Max-Age=\"60\", max-age=5", CacheControl { max_age_s: Some(60), ..none }),
            ("no-cache, no-store", CacheControl { no_cache: true, no_store: true, ..none }),
            ("no-cache=\"x\"", CacheControl { no_cache: true, ..none }),
            ("max-age=-1, max-age", none),
            ("s-maxage=60", none),
        ] {
            assert_eq!(cache_control(value.as_bytes()), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            text in "[<>;,=\" '\\\\a-zA-Z0-9é.]{0,40}",
        ) {
            let base = Url::parse("http://a.example/").unwrap();
            for value in [&bytes[..], text.as_bytes()] {
                links(value, &base);
                retry_after_s(value, 0);
                cache_control(value);
            }
            content_type(&text);
            refresh_target(&text);
            charset_parameter(&text);
        }
    }
}
