//! Which URLs look like a trap by their shape alone: an endless space of pages that a site makes up as one asks.
//!
//! These rules know no site and no software; what they miss is bounded by the limits on depth and on pages a host.

use serde::{Deserialize, Serialize};

use super::CleanUrl;

/// The limits of the rules here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrapLimits {
    /// The longest URL as fetched, in bytes.
    pub url_bytes_max: usize,
    /// How often the same segment may occur in a path, wherever in it.
    pub segment_repeats_max: usize,
}

impl Default for TrapLimits {
    fn default() -> TrapLimits {
        TrapLimits { url_bytes_max: 2048, segment_repeats_max: 3 }
    }
}

/// The rule that keeps a URL out, and by how much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trap {
    /// The URL is too long.
    #[error("the URL has {bytes} bytes, more than {max}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A path such as /a/b/a/b/a/b/a/b.
    #[error("the path segment {segment:?} occurs {times} times, more than {max}")]
    Repeats {
        /// The segment that repeats the most.
        segment: String,
        /// How often it occurs.
        times: usize,
        /// The limit.
        max: usize,
    },
}

/// Whether a URL may be admitted as far as its shape tells.
pub fn check(url: &CleanUrl, limits: &TrapLimits) -> Result<(), Trap> {
    let bytes = url.as_str().len();
    if bytes > limits.url_bytes_max {
        return Err(Trap::TooLong { bytes, max: limits.url_bytes_max });
    }
    // A path ends in '/' or does not: that is one empty segment and no repetition of others between slashes.
    let path = url.path().strip_prefix('/').unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.bytes().filter(|&byte| byte == b'/').count() < limits.segment_repeats_max {
        return Ok(());
    }
    let mut segments: Vec<&str> = path.split('/').collect();
    segments.sort_unstable();
    let most = segments.chunk_by(|one, next| one == next).max_by_key(|same| same.len());
    match most {
        Some(same) if same.len() > limits.segment_repeats_max => Err(Trap::Repeats {
            segment: same[0].to_owned(),
            times: same.len(),
            max: limits.segment_repeats_max,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Url;
    use super::*;

    #[test]
    fn shapes() {
        let limits = TrapLimits::default();
        for (path, expected) in [
            ("", None),
            ("a/a/a", None),
            ("a/a/a/", None),
            ("a/a/a/a", Some(("a", 4))),
            ("a/b/a/b/a/b/a/b/a", Some(("a", 5))),
            ("a/b/c/d/e/f/g/h/i/j/k", None),
            ("a//b//c//d/", None),
            ("a//b//c//d//e", Some(("", 4))),
            ("?a/a/a/a/a", None),
        ] {
            let url = Url::parse(&format!("http://a.example/{path}")).unwrap().into();
            let expected = match expected {
                Some((segment, times)) => Err(Trap::Repeats { segment: segment.to_owned(), times, max: 3 }),
                None => Ok(()),
            };
            assert_eq!(check(&url, &limits), expected, "{path}");
        }
    }

    #[test]
    fn length() {
        let limits = TrapLimits::default();
        let of_bytes = |bytes: usize| {
            Url::parse(&format!("http://a.example/{}", "x".repeat(bytes - 17))).unwrap().into()
        };
        assert_eq!(check(&of_bytes(2048), &limits), Ok(()));
        let trap = check(&of_bytes(2049), &limits).unwrap_err();
        assert_eq!(trap.to_string(), "the URL has 2049 bytes, more than 2048");
    }
}
