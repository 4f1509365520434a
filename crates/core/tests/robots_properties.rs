//! What holds for every robots.txt and every path.

use nephila_core::robots::{Directives, Robots};
use proptest::collection::vec;
use proptest::prelude::*;

/// The definition, word for word and without any thought of speed.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => true,
        [b'$'] => path.is_empty(),
        [b'*', rest @ ..] => (0..=path.len()).any(|skip| matches(rest, &path[skip..])),
        [first, rest @ ..] => path.first() == Some(first) && matches(rest, &path[1..]),
    }
}

fn allowed(rules: &[(bool, String)], path: &str) -> bool {
    let matching = rules.iter().filter(|(_, pattern)| matches(pattern.as_bytes(), path.as_bytes()));
    matching.map(|(allow, pattern)| (pattern.len(), *allow)).max().is_none_or(|(_, allow)| allow)
}

/// Text made of what robots.txt is made of, so that random files reach all of the parser.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        proptest::sample::select(vec![
            "User-agent",
            "useragent",
            "Disallow",
            "Allow",
            "Crawl-delay",
            "Sitemap",
            ":",
            " ",
            "\t",
            "*",
            "nephila",
            "other",
            "\n",
            "\r\n",
            "\r",
            "#",
            "/",
            "$",
            "%",
            "%2",
            "%2A",
            "a",
            "b",
            "http://a/",
            "9",
            ".",
            "\0",
            "\u{feff}",
            "ü",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        vec(any::<u8>(), 0..3),
    ];
    vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything_can_be_read(body in prop_oneof![plausible(), vec(any::<u8>(), 0..300)], token in ".{0,8}", path in ".*") {
        for token in [token.as_str(), "nephila"] {
            let robots = Robots::parse(&body, token);
            let decision = robots.decide(&path);
            // No rule, no prohibition; and a rule always names a line that is there.
            prop_assert!(decision.allowed || decision.rule.is_some());
            if let Some(rule) = decision.rule {
                let lines = body.iter().filter(|octet| matches!(octet, b'\n' | b'\r')).count() + 1;
                prop_assert!(rule.line >= 1 && rule.line as usize <= lines);
            }
            prop_assert!(robots.decide("/robots.txt").allowed);
        }
    }

    #[test]
    fn decisions_follow_the_definition(
        rules in vec((any::<bool>(), "[/*][ab/*]{0,6}[$]?"), 0..6),
        path in "/[ab/$*]{0,8}",
    ) {
        let mut body = String::from("User-agent: *\n");
        for (allow, pattern) in &rules {
            body += &format!("{}: {pattern}\n", if *allow { "Allow" } else { "Disallow" });
        }
        let robots = Robots::parse(body.as_bytes(), "nephila");
        prop_assert_eq!(robots.decide(&path).allowed, allowed(&rules, &path), "{}{}", body, path);
    }

    #[test]
    fn escaping_unreserved_characters_changes_nothing(
        rules in vec("[/*][ab~/*]{0,6}[$]?", 0..4),
        path in "/[ab~/]{0,8}",
        escaped in vec(any::<bool>(), 9),
        lower in any::<bool>(),
    ) {
        let body = format!("User-agent: *\nDisallow: {}\n", rules.join("\nDisallow: "));
        let respelt: String = path.chars().zip(&escaped).map(|(char, &escape)| match char {
            'a' | 'b' | '~' if escape && lower => format!("%{:02x}", u32::from(char)),
            'a' | 'b' | '~' if escape => format!("%{:02X}", u32::from(char)),
            _ => char.to_string(),
        }).collect();
        let robots = Robots::parse(body.as_bytes(), "nephila");
        prop_assert_eq!(robots.decide(&path), robots.decide(&respelt), "{}{} {}", body, path, respelt);
    }

    #[test]
    fn any_directives_can_be_read(value in "([a-z]{1,8}|nephila|nofollow|none|[:,; ]|.){0,20}") {
        // What a header says to somebody else never concerns us.
        prop_assert_eq!(Directives::from_header(&format!("x: {}", value.replace(':', "")), "nephila"), Directives::default());
        let header = Directives::from_header(&value, "nephila");
        let meta = Directives::from_meta(&value);
        if !value.contains(':') {
            prop_assert_eq!(header, meta);
        }
    }
}
