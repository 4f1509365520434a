//! What sites ask of crawlers: robots.txt by RFC 9309, meta robots and `X-Robots-Tag`.
//!
//! [`Robots`] keeps of a robots.txt only what concerns one product token and answers whether a path may be fetched and
//! which line says so. Promises: no input makes it panic, what it keeps is bounded by [`ROBOTS_BYTES_MAX`],
//! [`RULES_MAX`] and [`SITEMAPS_MAX`], and a decision takes time in proportion to the length of all patterns and to that
//! of the path times the number of rules at worst, whatever the patterns.
//!
//! Where the RFC leaves room, or where files in the wild need leniency:
//!
//! - Misspelt record names and missing colons that other crawlers accept are accepted (parse.rs lists them).
//! - Only allow and disallow lines end a list of user-agent lines; records of other kinds, known or not, do not (2.2.4).
//! - A pattern that begins with neither `/` nor `*` can match nothing and is dropped. `$` is special only at the end.
//! - The length of a rule is that of its normalised pattern in octets, `*` and `$` included.
//! - There is no special treatment of `index.html`.
//! - Octets that are not UTF-8 compare as octets. Files that begin with a UTF-16 mark are read as UTF-16.
//! - A file cut at the limit loses its last line: half a rule may say the opposite of the whole.
//! - Crawl-delay belongs to the agents named above it in its group; if there are several, the longest counts.

mod directives;
mod parse;
mod pattern;
mod shared;

use std::time::Duration;

pub use directives::Directives;
pub use shared::SharedRobots;

/// How much of a robots.txt is read; what follows is ignored.
pub const ROBOTS_BYTES_MAX: usize = 500 * 1024;
/// How many rules of a group are kept; those that follow are ignored.
pub const RULES_MAX: usize = 20_000;
/// How many sitemaps of a robots.txt are kept; those that follow are ignored.
pub const SITEMAPS_MAX: usize = 1_000;
/// The longest sitemap URL that is kept.
pub const SITEMAP_URL_BYTES_MAX: usize = 2_048;
/// How much of a rule's line is kept for display.
pub const RULE_TEXT_BYTES_MAX: usize = 1_024;
/// The longest crawl-delay: ten years, which no crawl outlasts. Longer ones are shortened to it.
pub const CRAWL_DELAY_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The part of a robots.txt that concerns our product token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Robots {
    /// Longest pattern first, allow before disallow, then by line: the first that matches decides.
    rules: Box<[Rule]>,
    /// The pause between requests that the site asks for.
    pub crawl_delay: Option<Duration>,
    /// Absolute http and https URLs of sitemaps, as written, each once.
    pub sitemaps: Vec<String>,
}

/// One allow or disallow line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The line of the file, counted from 1.
    pub line: u32,
    /// The line as written, without comment and surrounding white space.
    pub text: Box<str>,
    allow: bool,
    /// Normalised, see [`pattern::normalise`].
    pattern: Box<str>,
}

/// Whether a path may be fetched, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Whether the path may be fetched.
    pub allowed: bool,
    /// The line that decides, if any does.
    pub rule: Option<&'a Rule>,
}

impl Robots {
    /// Reads a robots.txt for a crawler with this product token. Anything can be read; what makes no sense is ignored.
    pub fn parse(body: &[u8], token: &str) -> Robots {
        parse::parse(body, token)
    }

    /// What can be a rule to any reader of a robots.txt, each in its line, and nothing else: whoever is to hear only that cannot
    /// read a page by it. It is read as the whole would be.
    pub fn only_rules(body: &[u8]) -> Vec<u8> {
        parse::only_rules(body)
    }

    /// About how much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let rule = |rule: &Rule| size_of::<Rule>() + rule.text.len() + rule.pattern.len() + 32;
        let sitemaps: usize = self.sitemaps.iter().map(|url| size_of::<String>() + url.len()).sum();
        size_of::<Robots>() + self.rules.iter().map(rule).sum::<usize>() + sitemaps
    }

    /// What counts when a site has no robots.txt.
    pub fn allow_all() -> Robots {
        Robots { rules: Box::default(), crawl_delay: None, sitemaps: Vec::new() }
    }

    /// Decides about a URL by its path and query, which begin with `/`. The longest matching rule counts, among equally
    /// long ones an allow. /robots.txt itself is always allowed.
    pub fn decide(&self, path_and_query: &str) -> Decision<'_> {
        let path = path_and_query.split_once('?').map_or(path_and_query, |(path, _query)| path);
        if path == "/robots.txt" {
            return Decision { allowed: true, rule: None };
        }
        let path = pattern::normalise(path_and_query.as_bytes(), pattern::Special::None);
        match self.rules.iter().find(|rule| pattern::matches(&rule.pattern, &path)) {
            Some(rule) => Decision { allowed: rule.allow, rule: Some(rule) },
            None => Decision { allowed: true, rule: None },
        }
    }
}
