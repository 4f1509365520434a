//! URLs that are plainly written: texts that parsing and cleaning would leave as they are, told by their looks.
//!
//! Everything doubtful is not plain: escapes, dot segments, international names, odd numbers. So what is said here of a
//! text is what the parser would say, or nothing.

use std::net::Ipv4Addr;

use super::{LABEL_BYTES_MAX, NAME_BYTES_MAX};

/// The host of a text that is plainly a clean URL and its own key, if it is.
pub(super) fn host(text: &str) -> Option<&str> {
    let (rest, default_port) = match text.strip_prefix("http") {
        Some(rest) => match rest.strip_prefix("s") {
            Some(rest) => (rest, 443),
            None => (rest, 80),
        },
        None => return None,
    };
    let rest = rest.strip_prefix("://")?;
    let (authority, target) = rest.split_at(rest.find('/')?);
    let host = match authority.split_once(':') {
        Some((host, port)) => {
            let number: u16 = port.parse().ok()?;
            let usual = !port.starts_with(['0', '+']) && number != default_port;
            usual.then_some(host)?
        }
        None => authority,
    };
    (is_plain_name(host) && is_plain_target(target)).then_some(host)
}

fn is_plain_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with("xn--")
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
        return false;
    }
    // What ends in a number is an address, and there are many ways to write one; std knows the one that stays.
    if last.starts_with(|first: char| first.is_ascii_digit()) {
        name.parse::<Ipv4Addr>().is_ok()
    } else {
        true
    }
}

/// Whether a path and query stay as they are.
fn is_plain_target(target: &str) -> bool {
    let stays = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'/' | b'-'
                    | b'.'
                    | b'_'
                    | b'~'
                    | b'?'
                    | b'='
                    | b'&'
                    | b'+'
                    | b','
                    | b';'
                    | b':'
                    | b'@'
                    | b'!'
            )
    };
    target.bytes().all(stays) && !target.contains("/.") && !target.ends_with('?')
}

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
