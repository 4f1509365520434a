//! Decisions on the robots.txt fixtures of crawler-commons are those that its own tests expect, except where RFC 9309
//! or our rules say otherwise (marked below).

use std::path::PathBuf;
use std::time::Duration;

use nephila_core::robots::Robots;

/// Fixture, product token, path, whether it may be fetched.
const DECISIONS: &[(&str, &str, &str, bool)] = &[
    ("robots-with-utf8-bom.txt", "foobot", "/profile", false),
    ("robots-with-utf16le-bom.txt", "foobot", "/profile", false),
    ("robots-with-utf16be-bom.txt", "foobot", "/profile", false),
    ("robots-with-utf16be-bom.txt", "foobot", "/a", true),
    ("www.flot.com-robots.txt", "foobot", "/img/", false),
    ("directive-typos-robots.txt", "bot1", "/desallow/", false),
    ("directive-typos-robots.txt", "bot1", "/dissalow/", false),
    ("directive-typos-robots.txt", "bot2", "/useragent/", false),
    ("directive-typos-robots.txt", "bot3", "/useg-agent/", false),
    ("directive-typos-robots.txt", "bot4", "/useragent-no-colon/", false),
    ("format-errors-robots.txt", "bot1", "/whitespace-before-colon/", false),
    ("format-errors-robots.txt", "bot1", "/no-colon/", false),
    ("format-errors-robots.txt", "bot2", "/no-colon-useragent/", false),
    ("format-errors-robots.txt", "bot3", "/whitespace-before-colon/", true),
    ("format-errors-robots.txt", "bot3", "/", false),
    ("many-user-agents.txt", "wget", "/", false),
    ("many-user-agents.txt", "mysuperlongbotnamethatmatchesnothing", "/", true),
    ("many-user-agents.txt", "mysuperlongbotnamethatmatchesnothing", "/bot-trap/", false),
    ("merge-rules.txt", "wget", "/foo/bar/bar.txt", true),
    ("merge-rules.txt", "wget", "/tmp/bar/bar.txt", false),
    ("merge-rules.txt", "wget", "/ckh/bar/bar.txt", true),
    // crawler-commons says true, because it takes `Allow: /index.html` to allow `/` too. By RFC 9309, 2.2.2 the longest
    // rule that matches is `Disallow: /*`.
    ("precedence-of-rules.txt", "wget", "/", false),
    ("precedence-of-rules.txt", "wget", "/index.html", true),
    ("precedence-of-rules.txt", "wget", "/foo/bar", true),
    ("precedence-of-rules.txt", "wget", "/bar/foo", false),
    ("precedence-of-rules.txt", "testy", "/", true),
    ("precedence-of-rules.txt", "testy", "/foo/bar", true),
    ("precedence-of-rules.txt", "testy", "/foo/blue", false),
    ("precedence-of-rules.txt", "testy", "/foo/", false),
    ("precedence-of-rules.txt", "testy", "/foo/tar", false),
    ("malformed-path.txt", "bot1", "/wiki/Wikipedia_talk:Mediation_Committee/", false),
    ("malformed-path.txt", "bot1", "/wiki/", true),
    ("dos-line-endings.txt", "bot1", "/", true),
    ("wildcards.txt", "anybot", "/wishlist/bogus", false),
    ("wildcards.txt", "anybot", "/wishlist/universal/page", true),
    ("wildcards.txt", "anybot", "/anydirectoryhere/gcrnsts", false),
    ("twitter.com-robots.txt", "foobot", "/a?b", false),
    ("twitter.com-robots.txt", "foobot", "/a/with_friends", false),
    ("twitter.com-robots.txt", "foobot", "/a", true),
    ("rfc9309-example-simple-robots.txt", "foobot", "/example/page.html", true),
    ("rfc9309-example-simple-robots.txt", "foobot", "/example/allowed.gif", true),
    ("rfc9309-example-simple-robots.txt", "foobot", "/", false),
    ("rfc9309-example-simple-robots.txt", "foobot", "/path/index.html", false),
    ("rfc9309-example-simple-robots.txt", "barbot", "/", true),
    ("rfc9309-example-simple-robots.txt", "barbot", "/example/page.html", false),
    ("rfc9309-example-simple-robots.txt", "bazbot", "/", true),
    ("rfc9309-example-simple-robots.txt", "bazbot", "/example/page.html", false),
    ("rfc9309-example-simple-robots.txt", "quxbot", "/", true),
    ("rfc9309-example-simple-robots.txt", "quxbot", "/example/page.html", true),
    ("rfc9309-example-simple-robots.txt", "anyotherbot", "/publications/doc1.html", true),
    ("rfc9309-example-simple-robots.txt", "anyotherbot", "/example/page.html", false),
    ("rfc9309-example-simple-robots.txt", "anyotherbot", "/example.gif", false),
    ("rfc9309-example-simple-robots.txt", "anyotherbot", "/", true),
    ("rfc9309-example-longest-match-robots.txt", "foobot", "/example/page/", true),
    ("rfc9309-example-longest-match-robots.txt", "foobot", "/example/page/index.html", true),
    ("rfc9309-example-longest-match-robots.txt", "foobot", "/example/page/disallowed.gif", false),
    ("rfc9309-example-longest-match-robots.txt", "foobot", "/", true),
    ("rfc9309-example-rule-group-merging.txt", "examplebot", "/foo", false),
    ("rfc9309-example-rule-group-merging.txt", "examplebot", "/bar", false),
    ("rfc9309-example-rule-group-merging.txt", "examplebot", "/baz", false),
    ("rfc9309-example-rule-group-merging.txt", "examplebot", "/", true),
    ("rfc9309-example-rule-group-merging.txt", "anyotherbot", "/foo", false),
    ("rfc9309-example-rule-group-merging.txt", "anyotherbot", "/baz", true),
    ("rfc9309-example-rule-group-merging.txt", "bazbot", "/foo", true),
    ("rfc9309-example-rule-group-merging.txt", "bazbot", "/baz", false),
    ("crawl-delay-group-merging.txt", "mybot", "/private/", false),
    ("crawl-delay-group-merging.txt", "mybot", "/login/", true),
    ("crawl-delay-group-merging.txt", "yourbot", "/private/", false),
    ("crawl-delay-group-merging.txt", "yourbot", "/login/", false),
    ("crawl-delay-group-merging.txt", "yourbot", "/", true),
    ("crawl-delay-group-merging.txt", "anyotherbot", "/private/", true),
    ("crawl-delay-group-merging.txt", "anyotherbot", "/", true),
    ("extensions-group-merging.txt", "mybot", "/private/", false),
    ("extensions-group-merging.txt", "mybot", "/login/", false),
    ("extensions-group-merging.txt", "mybot", "/", true),
    ("extensions-group-merging.txt", "yourbot", "/private/", false),
    ("extensions-group-merging.txt", "yourbot", "/login/", false),
    ("extensions-group-merging.txt", "anyotherbot", "/", false),
    ("extensions-group-merging.txt", "anyotherbot", "/llms.txt", true),
    ("extension-robots.txt", "mybot", "/private/", false),
    ("extension-robots.txt", "otherbot", "/private/", true),
];

/// Fixture, product token, crawl-delay in seconds.
const CRAWL_DELAYS: &[(&str, &str, Option<u64>)] = &[
    ("dos-line-endings.txt", "bot1", Some(1)),
    ("astore.amazon.com-robots.txt", "bot1", Some(5)),
    ("twitter.com-robots.txt", "msnbot", Some(10)),
    ("twitter.com-robots.txt", "googlebot", None),
    ("crawl-delay-group-merging.txt", "mybot", Some(10)),
    ("crawl-delay-group-merging.txt", "yourbot", None),
    ("crawl-delay-group-merging.txt", "anyotherbot", Some(30)),
];

/// Fixture, sitemaps.
const SITEMAPS: &[(&str, &[&str])] = &[
    ("www.flot.com-robots.txt", &["http://flot.com/sitemap_index.xml"]),
    ("sitemap-robots-dedup.txt", &["http://example.org/sitemap.xml"]),
    // crawler-commons also takes a bare URL on a line of its own; that is no record of any kind.
    (
        "sitemap-robots.txt",
        &["http://domain.com/sitemap.xml", "http://domain.com/dir/MixedCased-sitemap.xml"],
    ),
    // crawler-commons resolves relative URLs; the sitemaps protocol asks for full ones.
    ("relative-sitemap-robots.txt", &[]),
];

#[test]
fn fixtures() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/robots/crawler-commons/src/test/resources/robots");
    if !folder.exists() {
        println!("skipped: no ../shared/data");
        return;
    }
    let parse = |fixture: &str, token: &str| {
        let body = std::fs::read(folder.join(fixture)).unwrap_or_else(|error| panic!("{fixture}: {error}"));
        Robots::parse(&body, token)
    };
    for &(fixture, token, path, allowed) in DECISIONS {
        assert_eq!(parse(fixture, token).decide(path).allowed, allowed, "{fixture} {token} {path}");
    }
    for &(fixture, token, seconds) in CRAWL_DELAYS {
        let expected = seconds.map(Duration::from_secs);
        assert_eq!(parse(fixture, token).crawl_delay, expected, "{fixture} {token}");
    }
    for &(fixture, sitemaps) in SITEMAPS {
        assert_eq!(parse(fixture, "nephila").sitemaps, sitemaps, "{fixture}");
    }
}
