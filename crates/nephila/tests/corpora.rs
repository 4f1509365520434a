//! Feeds every file of the fuzz corpora to the function that the fuzzer feeds (see fuzz/src/lib.rs).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is a library where the fuzzer uses it")]
mod targets;

/// A name, and what it does with bytes.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("cdxj", targets::cdxj),
    ("html", targets::html),
    ("http_head", targets::http_head),
    ("robots", targets::robots),
    ("sitemap", targets::sitemap),
    ("url", targets::url),
    ("warc", targets::warc),
];

fn entries(dir: &str) -> BTreeSet<PathBuf> {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz")).join(dir);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    entries.map(|entry| entry.expect("a directory of the project can be read").path()).collect()
}

#[test]
fn every_corpus_passes() {
    for (name, target) in TARGETS {
        let files = entries(&format!("corpus/{name}"));
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            // The name of the last file that was announced is the one that fails.
            println!("{}", file.display());
            target(&fs::read(&file).expect("a file of the corpus can be read"));
        }
    }
}

/// A target that nobody feeds here would find things that nobody hears of again.
#[test]
fn every_target_is_fed() {
    let names = |dir| -> Vec<String> {
        let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        entries(dir).into_iter().filter_map(stem).collect()
    };
    let fed: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names("fuzz_targets"), fed);
    assert_eq!(names("corpus"), fed);
}
