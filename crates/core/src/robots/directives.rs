//! What a page says about itself: `<meta name="robots">` and the `X-Robots-Tag` header.
//!
//! Both carry the same words. They only ever take permission away, so everything found on a page is merged by "or", and
//! what is not understood is ignored. Values of other directives (`unavailable_after: Fri, 25 Jun 2027 ...`,
//! `max-image-preview: none`) are never mistaken for words of their own.

use serde::{Deserialize, Serialize};

/// Directives that take a value after a colon, as opposed to the name of an agent before one.
const VALUED: [&str; 4] = ["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"];

/// What a page asks of crawlers, as far as it concerns us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directives {
    /// Links of this page are not to be followed.
    pub nofollow: bool,
    /// This page is not to be indexed.
    pub noindex: bool,
    /// No copy of this page is to be shown.
    pub noarchive: bool,
}

impl Directives {
    /// Reads the `content` of a `<meta>` whose name is `robots` or our product token (the caller has checked that).
    ///
    /// Words are separated by commas, semicolons or white space, in any case of letters.
    pub fn from_meta(content: &str) -> Directives {
        let mut found = Directives::default();
        for piece in content.split([',', ';']) {
            match piece.split_once(':') {
                None => found.take_words(piece),
                Some((before, _value)) => found.take_words(split_last_word(before).0),
            }
        }
        found
    }

    /// Reads one value of `X-Robots-Tag`. Several such headers are read one by one and merged.
    ///
    /// A name and a colon (`otherbot: noindex, nofollow`) address what follows, up to the next such name, to that agent
    /// only; `*` and `robots` address everybody. Words that are not addressed to `token` are ignored.
    pub fn from_header(value: &str, token: &str) -> Directives {
        let mut found = Directives::default();
        let mut ours = true;
        for piece in value.split([',', ';']) {
            let mut rest = piece;
            while let Some((before, after)) = rest.split_once(':') {
                let (words, name) = split_last_word(before);
                if ours {
                    found.take_words(words);
                }
                rest = "";
                if is_agent(name) {
                    ours = name == "*"
                        || name.eq_ignore_ascii_case("robots")
                        || name.eq_ignore_ascii_case(token);
                    rest = after;
                }
            }
            if ours {
                found.take_words(rest);
            }
        }
        found
    }

    /// Adds what another source (a second meta element, a header) says of the same page.
    pub fn merge(&mut self, other: Directives) {
        self.nofollow |= other.nofollow;
        self.noindex |= other.noindex;
        self.noarchive |= other.noarchive;
    }

    fn take_words(&mut self, words: &str) {
        for word in words.split_whitespace() {
            let none = word.eq_ignore_ascii_case("none");
            self.nofollow |= none || word.eq_ignore_ascii_case("nofollow");
            self.noindex |= none || word.eq_ignore_ascii_case("noindex");
            self.noarchive |= word.eq_ignore_ascii_case("noarchive");
        }
    }
}

/// Splits the text before a colon into the words that stand alone and the name that the colon belongs to.
fn split_last_word(text: &str) -> (&str, &str) {
    let text = text.trim_end();
    match text.rfind(char::is_whitespace) {
        Some(at) => (&text[..at], text[at..].trim_start()),
        None => ("", text),
    }
}

/// Whether a name before a colon is an agent's: neither a directive with a value nor the hour of a date.
fn is_agent(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '*')
        && !VALUED.iter().any(|valued| name.eq_ignore_ascii_case(valued))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `f`, `i` and `a` for nofollow, noindex and noarchive.
    fn letters(found: Directives) -> String {
        [(found.nofollow, 'f'), (found.noindex, 'i'), (found.noarchive, 'a')]
            .into_iter()
            .filter_map(|(set, letter)| set.then_some(letter))
            .collect()
    }

    #[test]
    fn meta() {
        for (content, expected) in [
            ("", ""),
            ("all", ""),
            ("index, follow", ""),
            ("nofollow", "f"),
            ("noindex", "i"),
            ("noarchive", "a"),
            ("NOINDEX,NoFollow", "fi"),
            ("noindex nofollow", "fi"),
            ("noindex;nofollow\t,\nnoarchive", "fia"),
            ("none", "fi"),
            (" None ", "fi"),
            ("nonexistent, nofollowing, xnoindex", ""),
            ("max-image-preview: none", ""),
            ("max-image-preview:none, nofollow", "f"),
            ("nofollow max-image-preview : none", "f"),
            ("unavailable_after: Friday, 25-Jun-10 15:00:00 PST, noarchive", "a"),
            ("noindex: nofollow", ""),
            (":,:;::", ""),
            ("noindex\u{3000}nofollow", "fi"),
        ] {
            assert_eq!(letters(Directives::from_meta(content)), expected, "{content:?}");
        }
    }

    #[test]
    fn header() {
        for (value, expected) in [
            ("", ""),
            ("noindex", "i"),
            ("noindex, nofollow", "fi"),
            ("none", "fi"),
            ("otherbot: noindex, nofollow", ""),
            ("nephila: noindex, nofollow", "fi"),
            ("Nephila : noindex", "i"),
            ("nephila2: noindex", ""),
            ("*: nofollow", "f"),
            ("robots: nofollow", "f"),
            ("noarchive, otherbot: noindex, nofollow", "a"),
            ("otherbot: noindex, nephila: nofollow", "f"),
            ("noarchive otherbot: noindex", "a"),
            ("otherbot: nephila: nofollow", "f"),
            ("unavailable_after: 25 Jun 2010 15:00:00 PST", ""),
            ("unavailable_after: 25 Jun 2010 15:00:00 PST, noindex", "i"),
            ("unavailable_after: Sun, 06 Nov 1994 08:49:37 GMT, noindex", "i"),
            ("unavailable_after: 2027-06-25T15:00:00+02:00, nofollow", "f"),
            ("otherbot: unavailable_after: Friday, 25-Jun-10 15:00:00 PST, noindex", ""),
            ("max-image-preview: none, max-snippet:-1, noarchive", "a"),
            (": noindex", ""),
            ("::::", ""),
        ] {
            assert_eq!(letters(Directives::from_header(value, "nephila")), expected, "{value:?}");
        }
    }

    #[test]
    fn merge_is_or() {
        let mut all = Directives::from_meta("nofollow");
        all.merge(Directives::from_header("noindex", "nephila"));
        all.merge(Directives::default());
        assert_eq!(letters(all), "fi");
    }
}
