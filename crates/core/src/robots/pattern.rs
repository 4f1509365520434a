//! The patterns of allow and disallow lines: how they are compared with a path.
//!
//! Pattern and path are first brought to one spelling (RFC 9309, 2.2.2): escapes of unreserved characters are decoded,
//! octets that may not stand in a URL, a `%` that begins no escape among them, are escaped, hexadecimal digits are upper
//! case. Escapes of reserved characters stay, so `%3D` is not `=`. A literal `*` or `$` is spelt `%2A` or `%24` (2.2.3),
//! which leaves the bare characters to mean "anything" and "the end".

/// Which characters mean more than themselves in what is normalised.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    /// A path: none.
    None,
    /// A pattern: `*` anywhere, `$` at the end.
    Pattern,
}

/// Brings a path or a pattern to the spelling in which they are compared. The result is ASCII.
pub(super) fn normalise(octets: &[u8], special: Special) -> String {
    let mut spelt = String::with_capacity(octets.len() + 8);
    let mut at = 0;
    while at < octets.len() {
        let octet = octets[at];
        let last = at + 1 == octets.len();
        at += 1;
        match octet {
            b'%' => match octets.get(at..at + 2).and_then(decode) {
                Some(decoded) => {
                    at += 2;
                    if is_unreserved(decoded) {
                        spelt.push(char::from(decoded));
                    } else {
                        push_escape(&mut spelt, decoded);
                    }
                }
                None => push_escape(&mut spelt, b'%'),
            },
            b'*' if special == Special::Pattern => spelt.push('*'),
            b'$' if special == Special::Pattern && last => spelt.push('$'),
            b'*' | b'$' => push_escape(&mut spelt, octet),
            _ if is_unreserved(octet) || is_reserved(octet) => spelt.push(char::from(octet)),
            _ => push_escape(&mut spelt, octet),
        }
    }
    spelt
}

/// Whether a normalised pattern matches a normalised path. Linear in both: each piece between stars is searched for
/// once, from where the one before it ended, and the leftmost place is always the best.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, to_end) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let Some((head, last)) = pattern.rsplit_once('*') else {
        return if to_end { path == pattern } else { path.starts_with(pattern) };
    };
    let mut pieces = head.split('*');
    let prefix = pieces.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(prefix) else { return false };
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        let Some(found) = rest.find(piece) else { return false };
        rest = &rest[found + piece.len()..];
    }
    if to_end { rest.ends_with(last) } else { rest.contains(last) }
}

fn decode(digits: &[u8]) -> Option<u8> {
    let digit = |octet: u8| char::from(octet).to_digit(16);
    match *digits {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    }
}

fn push_escape(spelt: &mut String, octet: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    spelt.push('%');
    spelt.push(char::from(DIGITS[usize::from(octet >> 4)]));
    spelt.push(char::from(DIGITS[usize::from(octet & 15)]));
}

fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)
}

fn is_reserved(octet: u8) -> bool {
    b":/?#[]@!$&'()*+,;=".contains(&octet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling() {
        for (octets, path, pattern) in [
            ("/foo/bar?baz=quz", "/foo/bar?baz=quz", "/foo/bar?baz=quz"),
            ("/foo/bar/ツ", "/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84"),
            ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84"),
            ("/foo/bar/%62%61%7A", "/foo/bar/baz", "/foo/bar/baz"),
            ("/a%3db=%2f%20 \"", "/a%3Db=%2F%20%20%22", "/a%3Db=%2F%20%20%22"),
            ("/%7Ea/~b", "/~a/~b", "/~a/~b"),
            ("/a*b$c$", "/a%2Ab%24c%24", "/a*b%24c$"),
            ("/%2a%24", "/%2A%24", "/%2A%24"),
            ("/100%", "/100%25", "/100%25"),
            ("/%4", "/%254", "/%254"),
            ("/%zz%+1", "/%25zz%25+1", "/%25zz%25+1"),
            ("/%4%31", "/%2541", "/%2541"),
            ("", "", ""),
            ("$", "%24", "$"),
        ] {
            assert_eq!(normalise(octets.as_bytes(), Special::None), path, "path {octets:?}");
            assert_eq!(normalise(octets.as_bytes(), Special::Pattern), pattern, "pattern {octets:?}");
        }
        assert_eq!(normalise(b"/b\xfccher\0", Special::None), "/b%FCcher%00");
    }

    #[test]
    fn matching() {
        for (pattern, yes, no) in [
            ("/", &["/", "/a"][..], &[][..]),
            ("/fish", &["/fish", "/fish.html", "/fishheads"], &["/Fish", "/catfish", "/fis"]),
            ("/fish*", &["/fish", "/fishheads"], &["/catfish"]),
            ("/*.php", &["/a.php", "/a/b.php?c", "/a.php5"], &["/", "/a.PHP"]),
            ("/*.php$", &["/a.php", "/a.php/b.php"], &["/a.php?c", "/a.php5"]),
            ("/a*bc*d", &["/abcd", "/abbcbcdd"], &["/abdc", "/acbd"]),
            ("/a*b$", &["/ab", "/abb", "/a/b/b"], &["/a", "/aba"]),
            ("/ab*b$", &["/abb"], &["/ab"]),
            ("*a", &["/a", "/ba"], &["/"]),
            ("/$", &["/"], &["/a"]),
            ("/a**b", &["/ab", "/acb"], &["/a"]),
            ("/a*$", &["/a", "/ab"], &["/"]),
            ("*", &["/", ""], &[]),
        ] {
            for path in yes {
                assert!(matches(pattern, path), "{pattern} should match {path}");
            }
            for path in no {
                assert!(!matches(pattern, path), "{pattern} should not match {path}");
            }
        }
    }

    /// A matcher that goes back and tries again would not return in the age of the universe.
    #[test]
    fn hostile_stars() {
        let path = "a".repeat(100_000);
        let pattern = "a*".repeat(5_000);
        assert!(matches(&pattern, &path));
        assert!(!matches(&format!("{pattern}b"), &path));
        assert!(!matches(&format!("*{pattern}b$"), &path));
        assert!(matches(&"*".repeat(500_000), &path));
        assert!(!matches(&format!("*{}b", "a".repeat(50_000)), &path));
    }
}
