//! Reads robots.txt.

use std::borrow::Cow;
use std::time::Duration;

use url::Url;

use super::pattern::{Special, normalise};
use super::{
    CRAWL_DELAY_MAX, ROBOTS_BYTES_MAX, RULE_TEXT_BYTES_MAX, RULES_MAX, Robots, Rule, SITEMAP_URL_BYTES_MAX,
    SITEMAPS_MAX,
};

/// What is kept of the name in a user-agent line, where only that counts which a robots.txt says.
const PRODUCT_BYTES_MAX: usize = 256;

#[derive(Clone, Copy)]
enum Record {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
    Sitemap,
}

/// Names of records, with the misspellings that other crawlers accept. Each may be followed by white space and a colon,
/// or by white space alone.
const RECORD_NAMES: &[(&str, Record)] = &[
    ("disallow", Record::Disallow),
    ("allow", Record::Allow),
    ("user-agent", Record::UserAgent),
    ("sitemap", Record::Sitemap),
    ("crawl-delay", Record::CrawlDelay),
    ("useragent", Record::UserAgent),
    ("user agent", Record::UserAgent),
    ("user-agents", Record::UserAgent),
    ("user-agnet", Record::UserAgent),
    ("users-agent", Record::UserAgent),
    ("useg-agent", Record::UserAgent),
    ("ser-agent", Record::UserAgent),
    ("desallow", Record::Disallow),
    ("diallow", Record::Disallow),
    ("diasllow", Record::Disallow),
    ("disallaw", Record::Disallow),
    ("disallows", Record::Disallow),
    ("disalow", Record::Disallow),
    ("disllow", Record::Disallow),
    ("dissallow", Record::Disallow),
    ("dissalow", Record::Disallow),
    ("dsallow", Record::Disallow),
    ("crawl delay", Record::CrawlDelay),
    ("craw-delay", Record::CrawlDelay),
    ("clawl-delay", Record::CrawlDelay),
    ("crawl-deley", Record::CrawlDelay),
    ("sitemaps", Record::Sitemap),
    ("site-map", Record::Sitemap),
];

/// What the file says to one kind of reader: crawlers with our token, or all that it does not name.
#[derive(Default)]
struct Group {
    named: bool,
    /// Whether the line being read belongs to this group.
    current: bool,
    rules: Vec<Rule>,
    crawl_delay: Option<Duration>,
}

/// See [`Robots::parse`].
pub(super) fn parse(body: &[u8], token: &str) -> Robots {
    let (mut ours, mut everyone) = (Group::default(), Group::default());
    let mut sitemaps: Vec<String> = Vec::new();
    let mut rules_began = false;
    let text = decode(body);
    for (number, line) in (1..).zip(lines(&text)) {
        let line = trim(line.split(|&octet| octet == b'#').next().unwrap_or_default());
        let Some((record, value)) = split(line) else { continue };
        match record {
            Record::UserAgent => {
                if rules_began {
                    (ours.current, everyone.current, rules_began) = (false, false, false);
                }
                if names(value, token.as_bytes()) {
                    (ours.named, ours.current) = (true, true);
                } else if is_everyone(value) {
                    everyone.current = true;
                }
            }
            Record::Allow | Record::Disallow => {
                rules_began = true;
                let allow = matches!(record, Record::Allow);
                for group in [&mut ours, &mut everyone] {
                    group.add_rule(number, line, allow, value);
                }
            }
            Record::CrawlDelay => {
                for group in [&mut ours, &mut everyone].into_iter().filter(|group| group.current) {
                    group.crawl_delay = group.crawl_delay.max(crawl_delay(value));
                }
            }
            Record::Sitemap => {
                if let Some(url) = sitemap(value)
                    && sitemaps.len() < SITEMAPS_MAX
                    && !sitemaps.iter().any(|known| known == url)
                {
                    sitemaps.push(url.to_owned());
                }
            }
        }
    }
    let mut group = if ours.named { ours } else { everyone };
    group.rules.sort_by_key(|rule| (std::cmp::Reverse(rule.pattern.len()), !rule.allow));
    sitemaps.shrink_to_fit();
    Robots { rules: group.rules.into_boxed_slice(), crawl_delay: group.crawl_delay, sitemaps }
}

/// See [`Robots::only_rules`].
pub(super) fn only_rules(body: &[u8]) -> Vec<u8> {
    let text = decode(body);
    let (mut kept, mut blank) = (Vec::new(), 0);
    for line in lines(&text) {
        let line = trim(line.split(|&octet| octet == b'#').next().unwrap_or_default());
        let Some(said) = split(line).map(|(record, value)| meaning(record, value)) else {
            blank += 1;
            continue;
        };
        if kept.len() + blank + said.len() >= ROBOTS_BYTES_MAX {
            break;
        }
        kept.resize(kept.len() + std::mem::take(&mut blank), b'\n');
        kept.extend(said);
        kept.push(b'\n');
    }
    kept
}

/// A line as it is read: its record, and as much of the value as counts.
fn meaning(record: Record, value: &[u8]) -> Vec<u8> {
    let is_no_space = |octet: &&u8| **octet > b' ';
    let (name, bytes) = match record {
        // The name of a product, whatever follows it.
        Record::UserAgent => {
            ("User-agent", value.iter().take_while(is_no_space).take(PRODUCT_BYTES_MAX).count())
        }
        Record::Allow | Record::Disallow => {
            let name = if matches!(record, Record::Allow) { "Allow" } else { "Disallow" };
            (name, if can_match(value) { value.len() } else { 0 })
        }
        Record::CrawlDelay => ("Crawl-delay", digits(value)),
        Record::Sitemap => ("Sitemap", sitemap(value).map_or(0, str::len)),
    };
    [name.as_bytes(), b": ", &value[..bytes]].concat()
}

impl Group {
    fn add_rule(&mut self, line: u32, text: &[u8], allow: bool, value: &[u8]) {
        if !self.current || !can_match(value) || self.rules.len() == RULES_MAX {
            return;
        }
        let text = &text[..text.len().min(RULE_TEXT_BYTES_MAX)];
        self.rules.push(Rule {
            line,
            text: String::from_utf8_lossy(text).into(),
            allow,
            pattern: normalise(value, Special::Pattern).into_boxed_str(),
        });
    }
}

/// Cuts the body to the limit and removes the byte order mark; UTF-16 becomes UTF-8, all else stays as it is.
fn decode(body: &[u8]) -> Cow<'_, [u8]> {
    let cut = body.len() > ROBOTS_BYTES_MAX;
    let body = &body[..body.len().min(ROBOTS_BYTES_MAX)];
    let mut text = match encoding_rs::Encoding::for_bom(body) {
        Some((encoding, mark_bytes)) if encoding == encoding_rs::UTF_8 => Cow::Borrowed(&body[mark_bytes..]),
        Some((encoding, mark_bytes)) => match encoding.decode_without_bom_handling(&body[mark_bytes..]).0 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        },
        None => Cow::Borrowed(body),
    };
    if cut {
        let end = text.iter().rposition(|&octet| is_line_end(octet)).unwrap_or(0);
        match &mut text {
            Cow::Borrowed(text) => *text = &text[..end],
            Cow::Owned(text) => text.truncate(end),
        }
    }
    text
}

/// Lines end in CR, LF or both.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&octet| octet == b'\n').flat_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.split(|&octet| octet == b'\r')
    })
}

fn is_line_end(octet: u8) -> bool {
    octet == b'\n' || octet == b'\r'
}

/// Removes white space and control characters, NUL included, from both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b'\0'..=b' ', rest @ ..] | [rest @ .., b'\0'..=b' '] = text {
        text = rest;
    }
    text
}

/// Splits a line into record and value.
fn split(line: &[u8]) -> Option<(Record, &[u8])> {
    RECORD_NAMES.iter().find_map(|&(name, record)| {
        let (written, rest) = line.split_at_checked(name.len())?;
        if !written.eq_ignore_ascii_case(name.as_bytes()) {
            return None;
        }
        let value = trim(rest);
        match value.strip_prefix(b":") {
            Some(value) => Some((record, trim(value))),
            None => (value.len() < rest.len()).then_some((record, value)),
        }
    })
}

/// Whether a user-agent line names our token: as its product token, which a version or a comment may follow, or as
/// its whole value.
fn names(value: &[u8], token: &[u8]) -> bool {
    let is_token = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_');
    let product_bytes = value.iter().take_while(|octet| is_token(octet)).count();
    let ours = |name: &[u8]| !name.is_empty() && name.eq_ignore_ascii_case(token);
    ours(&value[..product_bytes]) || ours(value)
}

fn is_everyone(value: &[u8]) -> bool {
    matches!(value, [b'*'] | [b'*', b'\0'..=b' ', ..])
}

fn can_match(value: &[u8]) -> bool {
    matches!(value.first(), Some(b'/' | b'*'))
}

fn digits(value: &[u8]) -> usize {
    value.iter().take_while(|octet| octet.is_ascii_digit() || **octet == b'.').count()
}

/// The number that a value begins with, in seconds. What follows it (a unit, a range) is ignored, and so is a value
/// that begins with none (a sign, `NaN`).
fn crawl_delay(value: &[u8]) -> Option<Duration> {
    let seconds: f64 = std::str::from_utf8(&value[..digits(value)]).ok()?.parse().ok()?;
    Some(Duration::from_secs_f64(seconds.min(CRAWL_DELAY_MAX.as_secs_f64())))
}

fn sitemap(value: &[u8]) -> Option<&str> {
    if value.len() > SITEMAP_URL_BYTES_MAX {
        return None;
    }
    let value = std::str::from_utf8(value).ok()?;
    let url = Url::parse(value).ok()?;
    matches!(url.scheme(), "http" | "https").then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` or `-` for each path that nephila may fetch or not.
    fn answers(body: impl AsRef<[u8]>, paths: &[&str]) -> String {
        let robots = Robots::parse(body.as_ref(), "nephila");
        paths.iter().map(|path| if robots.decide(path).allowed { '+' } else { '-' }).collect()
    }

    #[test]
    fn groups() {
        for (body, expected) in [
            ("", "++"),
            ("User-agent: *\nDisallow: /a", "-+"),
            ("user-AGENT:Nephila\ndisALLOW:/a", "-+"),
            ("User-agent: nephila/1.0 (hello)\nDisallow: /a", "-+"),
            ("User-agent: nephila2\nDisallow: /a", "++"),
            ("User-agent: neph\nDisallow: /a", "++"),
            ("User-agent: nephila-news\nDisallow: /a", "++"),
            ("User-agent: *bot\nDisallow: /a", "++"),
            ("User-agent: * bot\nDisallow: /a", "-+"),
            ("Disallow: /a", "++"),
            ("User-agent:\nDisallow: /a", "++"),
            // A group of our own replaces the general one, wherever it stands, even an empty one.
            ("User-agent: *\nDisallow: /a\nUser-agent: nephila\nDisallow: /b", "+-"),
            ("User-agent: nephila\nDisallow: /b\nUser-agent: *\nDisallow: /a", "+-"),
            ("User-agent: *\nDisallow: /\nUser-agent: nephila", "++"),
            ("User-agent: *\nDisallow: /\nUser-agent: nephila\nDisallow:", "++"),
            // Groups that name us are merged, and so are those for everyone.
            (
                "User-agent: nephila\nDisallow: /a\nUser-agent: x\nDisallow: /\nUser-agent: NEPHILA\nDisallow: /b",
                "--",
            ),
            (
                "User-agent: *\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: *\nDisallow: /b",
                "--",
            ),
            // Several agents share a group; blank lines and other records do not end it.
            ("User-agent: x\nUser-agent: nephila\nUser-agent: y\nDisallow: /a", "-+"),
            ("User-agent: nephila\n\nUser-agent: y\n\nDisallow: /a", "-+"),
            (
                "User-agent: nephila\nSitemap: http://a/\nCrawl-delay: 1\nFoo: bar\nUser-agent: y\nDisallow: /a",
                "-+",
            ),
            ("User-agent: nephila\nDisallow:\nUser-agent: y\nDisallow: /a", "++"),
            ("User-agent: nephila\nDisallow: nonsense\nUser-agent: y\nDisallow: /a", "++"),
        ] {
            assert_eq!(answers(body, &["/a", "/b"]), expected, "{body:?}");
        }
    }

    #[test]
    fn only_what_can_be_a_rule_is_passed_on() {
        let body = "\u{feff}<html>secret\nuseragent nephila/1 (secret)\n\nDisallow: /a b # secret\nDisallow: secret\rsecret\r\n\
                    Crawl-delay: 1.5 secret\nSitemap: secret\nSitemap: http://a/\nallow secret\nsecret: /\nsecret";
        let kept = only_rules(body.as_bytes());
        let expected = "\nUser-agent: nephila/1\n\nDisallow: /a b\nDisallow: \n\nCrawl-delay: 1.5\nSitemap: \nSitemap: http://a/\n\
                        Allow: \n";
        assert_eq!(String::from_utf8_lossy(&kept), expected);
        assert_eq!(only_rules(b"secret").len(), 0);
        // It means the same, to every line's number, and as often as it is passed on.
        let (read, again) = (Robots::parse(body.as_bytes(), "nephila"), Robots::parse(&kept, "nephila"));
        let deciding = |robots: &Robots| robots.decide("/a%20b").rule.map(|rule| rule.line);
        assert_eq!((deciding(&read), deciding(&again)), (Some(4), Some(4)));
        assert_eq!((read.crawl_delay, &read.sitemaps), (again.crawl_delay, &again.sitemaps));
        assert_eq!(only_rules(&kept), kept);
        let long = "Disallow: /x\n".repeat(ROBOTS_BYTES_MAX / 10);
        assert!(only_rules(long.as_bytes()).len() <= ROBOTS_BYTES_MAX);
        // UTF-16 grows.
        let long: Vec<u8> = [0xfe, 0xff]
            .into_iter()
            .chain("Disallow: /\u{4e2d}\n".repeat(40_000).encode_utf16().flat_map(u16::to_be_bytes))
            .collect();
        assert!(only_rules(&long).len() <= ROBOTS_BYTES_MAX);
    }

    #[test]
    fn lines_as_found_in_the_wild() {
        for body in [
            "User-agent: *\r\nDisallow: /a\r\n",
            "User-agent: *\rDisallow: /a\r",
            "\u{feff}User-agent: *\nDisallow: /a",
            "  User-agent\t:\t*  # everyone\n\tDisallow :/a# not a",
            "User-agent *\nDisallow /a",
            "User agent: *\nDisallow: /a",
            "useragent: *\ndisalow: /a",
            "User-agent: *\ndissallow /a",
            "\0User-agent: *\0\n\0\0Disallow: /a\0\0",
            "<html><body>\nUser-agent: *\nDisallow: /a\n</body>",
            "\u{b}\u{c}User-agent: *\u{1f}\nDisallow: /a",
        ] {
            assert_eq!(answers(body, &["/a", "/b"]), "-+", "{body:?}");
        }
        for body in [
            "<html><p>User-agent: *</p>\n<p>Disallow: /</p>",
            "User-agent: *\nDisallow:/a/\nDisallowed: /\nDisallow/a\nNoindex: /",
            "User-agent: *\nDisallow: a\nDisallow: http://x/a\nDisallow: $",
            "User-agent: * Disallow: /",
        ] {
            assert_eq!(answers(body, &["/a", "/b"]), "++", "{body:?}");
        }
    }

    #[test]
    fn encodings() {
        let body = "User-agent: *\nDisallow: /ü";
        let utf16 = |mark: [u8; 2], bytes: fn(u16) -> [u8; 2]| {
            mark.into_iter().chain(body.encode_utf16().flat_map(bytes)).collect::<Vec<u8>>()
        };
        let latin1 = body.chars().map(|char| u8::try_from(char).unwrap()).collect::<Vec<u8>>();
        for (body, expected) in [
            (body.as_bytes().to_vec(), "--+"),
            (utf16([0xff, 0xfe], u16::to_le_bytes), "--+"),
            (utf16([0xfe, 0xff], u16::to_be_bytes), "--+"),
            (latin1, "++-"),
        ] {
            assert_eq!(answers(&body, &["/ü", "/%c3%bc", "/%fc"]), expected, "{body:?}");
        }
    }

    #[test]
    fn the_longest_rule_decides() {
        for (rules, path, allowed, line) in [
            ("Disallow: /a\nAllow: /ab", "/abc", true, Some(3)),
            ("Allow: /ab\nDisallow: /a", "/abc", true, Some(2)),
            ("Disallow: /a\nAllow: /a", "/a", true, Some(3)),
            ("Disallow: /a\nDisallow: /a", "/a", false, Some(2)),
            ("Allow: /\nDisallow: /*.gif$", "/x.gif", false, Some(3)),
            ("Allow: /\nDisallow: /*.gif$", "/x.gif?a", true, Some(2)),
            ("Disallow: /", "/robots.txt", true, None),
            ("Disallow: /", "/robots.txt?a=/", true, None),
            ("Disallow: /", "/a/robots.txt", false, Some(2)),
            ("Disallow: /path/file-with-a-%2A.html", "/path/file-with-a-*.html", false, Some(2)),
            ("Disallow: /path/file-with-a-%2A.html", "/path/file-with-a-b.html", true, None),
            ("Disallow: /path/foo-%24", "/path/foo-$", false, Some(2)),
            ("Disallow: /a?b=%3D", "/a?b==", true, None),
            ("Disallow:", "/", true, None),
        ] {
            let robots = Robots::parse(format!("User-agent: *\n{rules}").as_bytes(), "nephila");
            let decision = robots.decide(path);
            let found = (decision.allowed, decision.rule.map(|rule| rule.line));
            assert_eq!(found, (allowed, line), "{rules:?} {path}");
        }
        let robots = Robots::parse(b"\r\n# x\rUser-agent:*\r\n   DisAllow :  /a b  # private\n", "nephila");
        let rule = robots.decide("/a%20b").rule.unwrap();
        assert_eq!((rule.line, &*rule.text), (4, "DisAllow :  /a b"));
    }

    #[test]
    fn all_or_nothing() {
        assert!(Robots::allow_all().decide("/a").allowed);
        assert!(Robots::parse(b"User-agent: *\nDisallow: /", "nephila").decide("/robots.txt").allowed);
        assert_eq!(Robots::parse(b"", "nephila"), Robots::allow_all());
    }

    #[test]
    fn crawl_delays() {
        for (lines, expected) in [
            ("Crawl-delay: 10", Some(Duration::from_secs(10))),
            ("crawl-delay: 0.25", Some(Duration::from_millis(250))),
            ("Crawl-delay: .5", Some(Duration::from_millis(500))),
            ("Crawl delay 3 # seconds", Some(Duration::from_secs(3))),
            ("Crawl-delay: 10s", Some(Duration::from_secs(10))),
            ("Crawl-delay: 5-10", Some(Duration::from_secs(5))),
            ("Crawl-delay: 0", Some(Duration::ZERO)),
            ("Crawl-delay: 5\nDisallow: /\nCrawl-delay: 2", Some(Duration::from_secs(5))),
            ("Crawl-delay: 99999999999999999999999999", Some(CRAWL_DELAY_MAX)),
            ("Crawl-delay: -1", None),
            ("Crawl-delay: NaN", None),
            ("Crawl-delay: inf", None),
            ("Crawl-delay: 1.2.3", None),
            ("Crawl-delay: .", None),
            ("Crawl-delay:", None),
            ("User-agent: nephila\nDisallow: /", None),
            ("Disallow: /\nUser-agent: x\nCrawl-delay: 9", None),
        ] {
            let robots = Robots::parse(format!("User-agent: *\n{lines}").as_bytes(), "nephila");
            assert_eq!(robots.crawl_delay, expected, "{lines:?}");
        }
        let nines = format!("User-agent: *\nCrawl-delay: {}", "9".repeat(1_000));
        assert_eq!(Robots::parse(nines.as_bytes(), "nephila").crawl_delay, Some(CRAWL_DELAY_MAX));
    }

    #[test]
    fn sitemaps() {
        let body = "Sitemap: http://a/1.xml\nUser-agent: x\nsitemap https://b/A?b\nSITEMAPS : HTTP://c/\n\
            Sitemap: http://a/1.xml\nSitemap: /relative.xml\nSitemap: ftp://a/\nSitemap: http://\nSitemap:\nSitemap: x";
        let robots = Robots::parse(body.as_bytes(), "nephila");
        assert_eq!(robots.sitemaps, ["http://a/1.xml", "https://b/A?b", "HTTP://c/"]);
    }

    #[test]
    fn limits() {
        let many: String =
            (0..SITEMAPS_MAX + 5).map(|number| format!("Sitemap: http://a/{number}\n")).collect();
        assert_eq!(Robots::parse(many.as_bytes(), "nephila").sitemaps.len(), SITEMAPS_MAX);

        let long = format!("Sitemap: http://a/{}", "a".repeat(SITEMAP_URL_BYTES_MAX));
        assert!(Robots::parse(long.as_bytes(), "nephila").sitemaps.is_empty());

        let many: String = (0..RULES_MAX + 5).map(|number| format!("Disallow: /{number:05}\n")).collect();
        let robots = Robots::parse(format!("User-agent: *\n{many}").as_bytes(), "nephila");
        assert_eq!(robots.rules.len(), RULES_MAX);
        assert!(!robots.decide(&format!("/{:05}", RULES_MAX - 1)).allowed);
        assert!(robots.decide(&format!("/{RULES_MAX:05}")).allowed);

        let long = format!("User-agent: *\nDisallow: /{}", "ü".repeat(RULE_TEXT_BYTES_MAX));
        let robots = Robots::parse(long.as_bytes(), "nephila");
        assert!(robots.rules[0].text.len() <= RULE_TEXT_BYTES_MAX + "\u{fffd}".len());
        assert!(robots.decide(&format!("/{}", "ü".repeat(RULE_TEXT_BYTES_MAX - 1))).allowed);
    }

    #[test]
    fn a_file_cut_at_the_limit_loses_its_last_line() {
        let start = "User-agent: *\nDisallow: /a\n";
        let comment = "#".repeat(ROBOTS_BYTES_MAX - start.len() - "\nDisallow: /".len());
        let body = format!("{start}{comment}\nDisallow: /b\nDisallow: /c");
        assert_eq!(answers(&body, &["/a", "/b", "/c"]), "-++");
        assert_eq!(answers(&body[..ROBOTS_BYTES_MAX], &["/a", "/b", "/c"]), "---");
        assert_eq!(answers("#".repeat(ROBOTS_BYTES_MAX + 1), &["/a"]), "+");
    }
}
