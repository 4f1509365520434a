//! The sort key of a URL in an index: host labels reversed, then path and query in a canonical form (SURT).
//!
//! The rules are those that web archives share (the Internet Archive's URL canonicaliser), because an index is only of use
//! if other tools compute the same key. They are cruder than the dedup key of a crawl: case is folded everywhere, session
//! ids and a leading `www.` go, query arguments are sorted. Input is a URL as the WHATWG serialises it; for anything
//! else some key comes out.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// The key of a URL: `http://www.Example.com/a?b` becomes `com,example)/a?b`.
pub fn surt(url: &str) -> String {
    let mut url = Cow::Borrowed(url.trim_ascii());
    if url.contains(['\t', '\n', '\r']) {
        url = url.replace(['\t', '\n', '\r'], "").into();
    }
    let (scheme, rest) = match url.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
        _ => return url.into_owned(),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (hierarchy, query) = match rest.split_once('?') {
        Some((hierarchy, query)) => (hierarchy, Some(query)),
        None => (rest, None),
    };
    let query = query.map(query_key).filter(|query| !query.is_empty());
    let mut key;
    match hierarchy.strip_prefix("//") {
        Some(rest) if !rest.is_empty() => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            match host_key(scheme, authority) {
                Some(host) => key = host + ")",
                None => key = scheme.to_owned() + ":",
            }
            key.push_str(&path_key(&normal_path(&unescape(path.as_bytes()))));
        }
        _ => {
            key = scheme.to_owned() + ":";
            key.push_str(&path_key(&unescape(hierarchy.as_bytes())));
        }
    }
    if let Some(query) = query {
        key.push('?');
        key.push_str(&query);
    }
    key
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Host and port; `None` if the host is empty or only dots.
fn host_key(scheme: &str, authority: &str) -> Option<String> {
    let host = authority.rsplit('@').next().unwrap_or_default().trim_end_matches(':');
    let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match host.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (host, None),
        },
    };
    let host = escape(&unescape(host.as_bytes())).to_ascii_lowercase().replace("..", ".");
    let host = host.trim_matches('.');
    let www = if host.starts_with("www") { WWW.find(host) } else { None };
    let host = www.map_or(host, |www| &host[www.end()..]);
    if host.is_empty() {
        return None;
    }
    let mut key = host.rsplit('.').collect::<Vec<_>>().join(",");
    let default = match scheme.to_ascii_lowercase().as_str() {
        "http" => 80,
        "https" => 443,
        _ => 0,
    };
    if let Some(port) =
        port.and_then(|port| port.parse::<u16>().ok()).filter(|port| ![0, default].contains(port))
    {
        key.push(':');
        key.push_str(&port.to_string());
    }
    Some(key)
}

/// Takes `.` and `..` away, and slashes that follow each other.
fn normal_path(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." if !kept.is_empty() => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    let mut normal = vec![b'/'];
    if let Some((last, before)) = kept.split_last() {
        for segment in before.iter().filter(|segment| !segment.is_empty()) {
            normal.extend_from_slice(segment);
            normal.push(b'/');
        }
        normal.extend_from_slice(last);
    }
    normal
}

fn path_key(path: &[u8]) -> String {
    let mut path = escape(path).to_ascii_lowercase();
    let sessions: &[Regex] = if path.contains('(') { &PATH_SESSIONS } else { &[] };
    for pattern in sessions {
        if let Some(found) = pattern.captures(&path) {
            path = format!("{}{}", &found[1], &found[2]);
        }
    }
    if path.len() > 1 && path.ends_with('/') {
        path.pop();
    }
    path
}

fn query_key(query: &str) -> String {
    let mut query = escape(&unescape(query.as_bytes()));
    for pattern in &*QUERY_SESSIONS {
        if let Some(found) = pattern.captures(&query) {
            query = format!("{}{}", &found[1], found.get(2).map_or("", |rest| rest.as_str()));
        }
    }
    query.make_ascii_lowercase();
    let mut arguments: Vec<(&str, Option<&str>)> = query
        .split('&')
        .map(|argument| match argument.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (argument, None),
        })
        .collect();
    arguments.sort();
    let arguments: Vec<String> = arguments
        .into_iter()
        .map(|(name, value)| value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}")))
        .collect();
    arguments.join("&")
}

/// Undoes percent escapes until none is left.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    if !bytes.contains(&b'%') {
        return bytes;
    }
    loop {
        let mut plain = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let hex = |offset: usize| bytes.get(at + offset).and_then(|byte| (*byte as char).to_digit(16));
            match (bytes[at], hex(1), hex(2)) {
                (b'%', Some(high), Some(low)) => {
                    plain.push((high * 16 + low) as u8);
                    at += 3;
                }
                (byte, ..) => {
                    plain.push(byte);
                    at += 1;
                }
            }
        }
        if plain.len() == bytes.len() {
            return plain;
        }
        bytes = plain;
    }
}

/// Escapes what is not printable ASCII, and `#` and `%`.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'#' | b'%' | 0..=b' ' | 0x7f.. => text.push_str(&format!("%{byte:02X}")),
            _ => text.push(*byte as char),
        }
    }
    text
}

fn patterns(sources: &[&str]) -> Vec<Regex> {
    sources.iter().map(|source| Regex::new(source).expect("the pattern is fixed and tested")).collect()
}

static WWW: LazyLock<Regex> = LazyLock::new(|| patterns(&[r"^www[0-9]*\."]).remove(0));

/// Session ids of ASP.NET in a path.
static PATH_SESSIONS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    patterns(&[
        r"^(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/([^?]+\.aspx.*)$",
        r"^(.*/)\([0-9a-z]{24}\)/([^?]+\.aspx.*)$",
    ])
});

/// Session ids in a query, of Java, PHP, others, ASP and ColdFusion.
static QUERY_SESSIONS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    patterns(&[
        r"(?i)^(.*)jsessionid=[0-9a-z]{32}(?:&(.*))?$",
        r"(?i)^(.*)phpsessid=[0-9a-z]{32}(?:&(.*))?$",
        r"(?i)^(.*)sid=[0-9a-z]{32}(?:&(.*))?$",
        r"(?i)^(.*)aspsessionid[a-z]{8}=[a-z]{24}(?:&(.*))?$",
        r"(?i)^(.*)cfid=[^&]+&cftoken=[^&]+(?:&(.*))?$",
    ])
});

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SID: &str = "0123456789abcdefABCDEF0123456789";

    #[test]
    fn keys_are_those_of_other_tools() {
        let session = format!("http://a.com/x?b=1&jsessionid={SID}&a=2");
        let cases = [
            ("http://www.example.com/", "com,example)/"),
            ("https://www2.Example.com:443/A/B/", "com,example)/a/b"),
            ("http://example.com:8080/x", "com,example:8080)/x"),
            ("http://user:pw@example.com/x", "com,example)/x"),
            ("http://127.0.0.1:8000/a", "1,0,0,127:8000)/a"),
            ("http://[::1]:80/a", "::1)/a"),
            ("http://example.com./a//b/../c", "com,example)/a/c"),
            ("http://example.com?x", "com,example)/?x"),
            ("http://example.com/?", "com,example)/"),
            ("http://example.com/#frag?x", "com,example)/"),
            ("http://example.com/?b=2&a=1&a&A=0", "com,example)/?a&a=0&a=1&b=2"),
            ("http://example.com/%7Ea%2520b%C3%A9?q=%C3%A9%23", "com,example)/~a%20b%c3%a9?q=%c3%a9%23"),
            ("http://example.com/a%zz%", "com,example)/a%25zz%25"),
            (&session, "com,a)/x?a=2&b=1"),
            ("http://a.com/x?cfid=1&cftoken=2", "com,a)/x"),
            ("http://a.com/(a(0123456789abcdef01234567))/p.aspx", "com,a)/p.aspx"),
            ("http://a.com/(0123456789abcdef01234567)/p.ASPX?x", "com,a)/p.aspx?x"),
            ("http://www.com/", "com)/"),
            ("http://../x", "http:/x"),
            ("dns:example.com", "dns:example.com"),
        ];
        for (url, key) in cases {
            assert_eq!(surt(url), key, "{url}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_key(text in "\\PC*") {
            surt(&text);
            let key = surt(&("http://a.com/".to_owned() + &text));
            prop_assert!(key.is_ascii());
        }
    }
}
