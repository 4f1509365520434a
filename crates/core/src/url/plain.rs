//! URLs that are plainly written: texts that parsing and cleaning would leave as they are, told by their looks.
//!
//! Everything doubtful is not plain: escapes, dot segments, international names, odd numbers. So what is said here of a
//! text is what the parser would say, or nothing.

use std::net::Ipv4Addr;
use std::ops::Range;

use super::{LABEL_BYTES_MAX, NAME_BYTES_MAX};

/// The host of a text that is plainly a clean URL and its own key, if it is.
pub(super) fn host(text: &str) -> Option<&str> {
    places(text).map(|(host, _)| &text[host])
}

/// Where in such a text its host is, and where its path begins.
pub(super) fn places(text: &str) -> Option<(Range<usize>, usize)> {
    let (rest, default_port) = match text.strip_prefix("http") {
        Some(rest) => match rest.strip_prefix("s") {
            Some(rest) => (rest, 443),
            None => (rest, 80),
        },
        None => return None,
    };
    let rest = rest.strip_prefix("://")?;
    let (authority, target) = rest.split_at(place(rest, b'/')?);
    let host = match place(authority, b':') {
        Some(colon) => {
            let port = &authority[colon + 1..];
            let number: u16 = port.parse().ok()?;
            let usual = !port.starts_with(['0', '+']) && number != default_port;
            usual.then_some(&authority[..colon])?
        }
        None => authority,
    };
    let start = text.len() - rest.len();
    (is_plain_name(host) && is_plain_target(target))
        .then_some((start..start + host.len(), text.len() - target.len()))
}

/// Where a byte is first. On texts as short as these this is quicker than what std has for long ones.
fn place(text: &str, wanted: u8) -> Option<usize> {
    text.bytes().position(|byte| byte == wanted)
}

fn is_plain_name(name: &str) -> bool {
    if name.len() > NAME_BYTES_MAX {
        return false;
    }
    let name_bytes = name.as_bytes();
    let mut label = 0;
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'.' if at == label || at - label > LABEL_BYTES_MAX => return false,
            b'.' => label = at + 1,
            b'x' if at == label && name_bytes[at..].starts_with(b"xn--") => return false,
            b'a'..=b'z' | b'0'..=b'9' | b'-' => {}
            _ => return false,
        }
    }
    if !(1..=LABEL_BYTES_MAX).contains(&(name.len() - label)) {
        return false;
    }
    // What ends in a number is an address, and there are many ways to write one; std knows the one that stays.
    !name_bytes[label].is_ascii_digit() || name.parse::<Ipv4Addr>().is_ok()
}

/// Whether a path and query stay as they are.
pub(super) fn is_plain_target(target: &str) -> bool {
    let mut before = 0;
    let all_stay = target.bytes().all(|byte| {
        let begins_dot_segment = before == b'/' && byte == b'.';
        before = byte;
        STAYS[usize::from(byte)] && !begins_dot_segment
    });
    all_stay && before != b'?'
}

/// Which bytes stay as they are, wherever in path and query.
static STAYS: [bool; 256] = {
    let mut stays = [false; 256];
    let others = b"/-._~?=&+,;:@!";
    let mut byte = 0;
    while byte < stays.len() {
        stays[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        stays[others[at] as usize] = true;
        at += 1;
    }
    stays
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Fingerprint, Host, Url, clean, identify};
    use super::*;

    #[test]
    fn usual_urls_are_plain() {
        for (text, expected) in [
            ("http://a.example/", "a.example"),
            ("https://www.a-b.example:8443/Dir/page.html?q=1&r=a+b,c;d:e@f!", "www.a-b.example"),
            ("http://127.1.0.5:8080/p/3", "127.1.0.5"),
            ("http://a/~me/x..y?.", "a"),
        ] {
            assert_eq!(host(text), Some(expected), "{text}");
        }
        for text in [
            "http://a.example",
            "http://a.example:80/",
            "http://a.example:080/",
            "http://a.example:+81/",
            "http://a.example:99999/",
            "http://A.example/",
            "http://a..example/",
            "http://a.example./",
            "http://xn--a.example/",
            "http://1.2.3/",
            "http://01.2.3.4/",
            "http://0x1/",
            "http://a.0x1/",
            "http://[::1]/",
            "http://u@a.example/",
            "http://a.example/../x",
            "http://a.example/x/.",
            "http://a.example/%41",
            "http://a.example/?",
            "http://a.example/?'",
            "http://a.example/x#y",
            "http://a.example/\\x",
            "ftp://a.example/",
            "http:///x",
        ] {
            assert_eq!(host(text), None, "{text}");
        }
    }

    proptest! {
        /// Where there is a short cut, it leads to the same place.
        #[test]
        fn the_parser_agrees(
            text in "https?://[a-c0-2.x-]{1,8}(:[0-9]{1,5})?/?([a-b/.?=&~%#@:; \\\\']|%41){0,10}"
        ) {
            let parsed = Url::parse(&text).ok().and_then(clean);
            let expected = parsed.as_ref().map(|url| (Host::of(url), Fingerprint::of(url)));
            prop_assert_eq!(identify(&text), expected);
            if host(&text).is_some() {
                prop_assert_eq!(parsed.map(String::from), Some(text));
            }
        }
    }
}
