//! The URLs of the web platform tests: parsed as browsers do, and with keys that are stable.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use nephila_core::url::{Fingerprint, Host, Origin, Url, clean, key, parse_seed};
use serde_json::Value;

const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../shared/data/robots/crawler-commons/src/test/resources/url-utils/wpt-urltestdata.json"
);

#[test]
fn web_platform_tests() {
    let Ok(text) = std::fs::read_to_string(PATH) else {
        eprintln!("skipped: no ../shared/data");
        return;
    };
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut cleaned = 0;
    let mut unlike_browsers = Vec::new();
    for case in &cases {
        let Some(input) = case["input"].as_str() else { continue };
        // Typed text of any kind is refused or gives a clean URL.
        if let Ok(seed) = parse_seed(input) {
            assert_eq!(clean(seed.clone()), Some(seed));
        }
        let base = case["base"].as_str().and_then(|base| Url::parse(base).ok());
        let Ok(url) = Url::options().base_url(base.as_ref()).parse(input) else { continue };
        let parsed = url.to_string();
        let Some(url) = clean(url) else { continue };
        if case["href"].as_str() != Some(&parsed) {
            unlike_browsers.push((input, parsed));
        }
        cleaned += 1;
        assert_eq!(clean(url.clone()), Some(url.clone()));
        let once = key(&url);
        let again = Url::parse(&once).unwrap();
        assert_eq!(key(&again), once, "{input}");
        assert_eq!(Fingerprint::of(&again), Fingerprint::of(&url), "{input}");
        assert_eq!(Host::of(&again), Host::of(&url), "{input}");
        assert_eq!(Host::parse(Host::of(&url).as_str()), Some(Host::of(&url)), "{input}");
        assert_eq!(Origin::of(&Origin::of(&url).robots_url()), Origin::of(&url), "{input}");
    }
    assert!(cleaned > 200, "only {cleaned} of {} could be fetched", cases.len());
    assert_eq!(unlike_browsers, []);
}
