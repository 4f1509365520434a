//! What the sources look like. Where the limits are ratchets, exceptions are listed and leave the list when they can.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::{code, files, is_word, item_length, root, rust};

/// The longest line, unless it holds text that is better not broken. rustfmt breaks code at 110.
const COLUMNS_MAX: usize = 130;
/// The longest function, in lines. Aim for 70.
const FUNCTION_LINES_MAX: usize = 100;
/// The longest file without its tests, in lines. Aim for 500.
const FILE_LINES_MAX: usize = 700;
/// Functions that are longer, as `path::name`, each with the reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("crates/archive/tests/archive/python.rs::other_tools_agree_on_keys", "nearly all of it is a table"),
    ("crates/lab/src/web/judge.rs::the_judge_judges", "nearly all of it is a table"),
];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];
/// Code that is not finished, or was meant to go.
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];
/// The one source that may allow itself `unsafe`: `#![allow(unsafe_code)]`.
const UNSAFE: &str = "crates/archive/src/sha1_pair.rs";
/// Words that belong to somebody's workplace and not to the project. In two halves, so that they are not found here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/home", "/"),
    ("sub", "agent"),
    ("this ses", "sion"),
    ("developer ses", "sion"),
    (".lib", "rary/"),
];

/// What is wrong with a source, each with its line.
fn untidy(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !text.starts_with("//!") {
        wrong.push(format!("{path}:1: does not begin with //! and what it is for"));
    }
    let named = |part: &str| EMPTY_NAMES.contains(&part.strip_suffix(".rs").unwrap_or(part));
    if path.split('/').any(named) {
        wrong.push(format!("{path}: has a name that says nothing"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !line.contains('"') {
            wrong.push(format!("{path}:{number}: has {columns} columns, {COLUMNS_MAX} are allowed"));
        }
    }
    let code = code(text);
    for (number, line) in (1..).zip(code.lines()) {
        if line.contains("unsafe_code") && path != UNSAFE {
            wrong.push(format!("{path}:{number}: only {UNSAFE} may have unsafe code"));
        }
        for word in UNFINISHED {
            let before = |at: usize| line[..at].chars().next_back();
            if line.match_indices(&format!("{word}!")).any(|(at, _)| !before(at).is_some_and(is_word)) {
                wrong.push(format!("{path}:{number}: {word}! is not finished"));
            }
        }
    }
    let own = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count();
    let all_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
    if own > FILE_LINES_MAX && !all_tests {
        wrong.push(format!("{path}: has {own} lines without its tests, {FILE_LINES_MAX} are allowed"));
    }
    wrong
}

/// The functions that are too long, as `path::name`, with their lines.
fn long_functions(path: &str, text: &str) -> Vec<(String, usize)> {
    let code = code(text);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let name: &str = code[at + "fn ".len()..].split(|char| !is_word(char)).next().unwrap_or_default();
        // Not the type fn(..), and no word that ends in fn.
        if name.is_empty() || code[..at].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let lines = code[at..at + item_length(&code[at..])].lines().count();
        if lines > FUNCTION_LINES_MAX {
            found.push((format!("{path}::{name}"), lines));
        }
    }
    found
}

/// The words in a text that belong elsewhere.
fn out_of_place(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    ELSEWHERE.iter().map(|(start, end)| format!("{start}{end}")).filter(|word| text.contains(word)).collect()
}

/// The targets of the links in a text of Markdown that lead to files.
fn linked_files(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
    targets.filter(|target| !target.is_empty() && !target.contains(':')).collect()
}

#[test]
fn sources_are_tidy() {
    let wrong: Vec<String> = rust().iter().flat_map(|source| untidy(&source.path, &source.text)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn untidiness_is_noticed() {
    let long = format!("//! a\n// {}\n", "b".repeat(COLUMNS_MAX));
    let long_text = format!("//! a\nconst B: &str = \"{}\";\n", "b".repeat(COLUMNS_MAX));
    let lines = |count| format!("//! a\n{}", "b();\n".repeat(count - 1));
    let with_tests = lines(FILE_LINES_MAX) + "\n#[cfg(test)]\nmod tests {\n    b();\n}\n";
    for (path, text, expected) in [
        ("a.rs", "//! a\nfn b() {}\n", 0),
        ("a.rs", "fn b() {}\n", 1),
        ("a/util/b.rs", "//! a\n", 1),
        ("a/helpers.rs", "//! a\n", 1),
        ("a/utility.rs", "//! a\n", 0),
        ("a.rs", "//! a\n#![allow(unsafe_code)]\n", 1),
        (UNSAFE, "//! a\n#![allow(unsafe_code)]\n", 0),
        ("a.rs", "//! a\nfn b() { todo!() }\nfn c() { unimplemented!(\"d\") }\n", 2),
        ("a.rs", "//! a\n// todo!()\nfn b() { \"todo!\"; not_todo!(); }\n", 0),
        ("a.rs", &long, 1),
        ("a.rs", &long_text, 0),
        ("a.rs", &lines(FILE_LINES_MAX), 0),
        ("a.rs", &lines(FILE_LINES_MAX + 1), 1),
        ("a.rs", &with_tests, 0),
        ("a/tests/b.rs", &lines(FILE_LINES_MAX + 1), 0),
    ] {
        assert_eq!(untidy(path, text).len(), expected, "{path}: {text}");
    }
}

#[test]
fn functions_are_short() {
    let found: Vec<_> = rust().iter().flat_map(|source| long_functions(&source.path, &source.text)).collect();
    let allowed: BTreeSet<&str> = LONG_FUNCTIONS.iter().map(|(name, _)| *name).collect();
    let wrong: Vec<_> = found.iter().filter(|(name, _)| !allowed.contains(name.as_str())).collect();
    assert!(wrong.is_empty(), "longer than {FUNCTION_LINES_MAX} lines: {wrong:#?}");
    let stale: Vec<_> =
        allowed.iter().filter(|name| !found.iter().any(|(found, _)| found == **name)).collect();
    assert!(stale.is_empty(), "no longer too long, take them off the list: {stale:?}");
}

#[test]
fn long_functions_are_noticed() {
    let function =
        |lines: usize| format!("fn a(b: [u8; 2], c: fn (u8)) -> u8 {{\n{}}}\n", "d();\n".repeat(lines - 2));
    assert!(long_functions("e.rs", &function(FUNCTION_LINES_MAX)).is_empty());
    let found = long_functions("e.rs", &function(FUNCTION_LINES_MAX + 1));
    assert_eq!(found, [("e.rs::a".to_owned(), FUNCTION_LINES_MAX + 1)]);
    let many = format!("mod f {{ trait G {{ fn h();\n{} }} }}", "fn i() {}\n".repeat(FUNCTION_LINES_MAX + 1));
    assert!(long_functions("e.rs", &many).is_empty());
}

#[test]
fn the_project_speaks_of_itself() {
    for file in files(&[".rs", ".md", ".toml", ".py", ".sh", ".html", ".js", "Makefile", ".ci/run"]) {
        let found = out_of_place(&file.text);
        assert!(found.is_empty(), "{}: {found:?}", file.path);
    }
}

#[test]
fn words_out_of_place_are_noticed() {
    for (start, end) in ELSEWHERE {
        assert_eq!(out_of_place(&format!("see {}{end} for", start.to_uppercase())).len(), 1);
    }
    assert!(out_of_place("a site at work, or at home").is_empty());
}

#[test]
fn the_map_names_every_crate() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let manifests = files(&["Cargo.toml"]);
    let crates = manifests.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    for dir in crates.filter(|dir| dir.starts_with("crates/")) {
        assert!(map.contains(dir), "ARCHITECTURE.md does not mention {dir}");
    }
}

#[test]
fn every_crate_obeys_the_workspace_lints() {
    for manifest in files(&["Cargo.toml"]).iter().filter(|file| file.path.starts_with("crates/")) {
        assert!(manifest.text.contains("[lints]\nworkspace = true"), "{}", manifest.path);
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    assert_eq!(
        linked_files("[a](b.md) ![c](d/e.png#f) [g](https://h.example/) [i](#j)"),
        ["b.md", "d/e.png"]
    );
    for file in files(&[".md"]) {
        let dir = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        for target in linked_files(&file.text) {
            assert!(root().join(dir).join(target).exists(), "{}: {target} is not there", file.path);
        }
    }
}
