//! The project's files, and Rust source with the parts taken out that are not code.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the project.
pub(crate) struct Source {
    /// Relative to the root of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The files with one of these endings, in order, without what is built, hidden or not text.
pub(crate) fn files(endings: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root(), "", endings, &mut found);
    assert!(!found.is_empty(), "no file ends in {endings:?}");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The files that hold Rust.
pub(crate) fn rust() -> Vec<Source> {
    files(&[".rs"])
}

fn collect(dir: &Path, prefix: &str, endings: &[&str], found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).expect("a directory of the project can be read") {
        let entry = entry.expect("a directory of the project can be read");
        let name = entry.file_name().into_string().expect("names in the project are UTF-8");
        let path = format!("{prefix}{name}");
        let hidden = name.starts_with('.') && name != ".ci";
        // Crawls end up in nephila-NAME where the command is given, and no fuzz corpus need be text.
        if hidden || name == "target" || name.starts_with("nephila-") || path == "fuzz/corpus" {
            continue;
        }
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), endings, found);
        } else if endings.iter().any(|ending| path.ends_with(ending)) {
            let text = fs::read_to_string(entry.path()).expect("sources are UTF-8");
            found.push(Source { path, text });
        }
    }
}

/// The source with comments and the contents of literals blanked. Lines and columns stay where they are.
pub(crate) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let length = blank_length(&chars, at);
        if length == 0 {
            out.push(chars[at]);
            at += 1;
        }
        for char in &chars[at..at + length] {
            out.push(if *char == '\n' { '\n' } else { ' ' });
        }
        at += length;
    }
    out
}

/// How many characters from here on are a comment or a literal.
fn blank_length(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    match rest {
        ['/', '/', ..] => rest.iter().position(|char| *char == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment_length(rest),
        ['"', ..] => 1 + escaped_length(&rest[1..], '"'),
        ['\'', '\\', ..] => 1 + escaped_length(&rest[1..], '\''),
        ['\'', _, '\'', ..] => 3,
        ['r', '"' | '#', ..] if at == 0 || !is_word(chars[at - 1]) || chars[at - 1] == 'b' => {
            raw_length(rest)
        }
        _ => 0,
    }
}

fn block_comment_length(rest: &[char]) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < rest.len() {
        let (step, deeper) = match rest[at..] {
            ['/', '*', ..] => (2, 1),
            ['*', '/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += deeper;
    }
    at
}

/// Up to and with the `end` that no backslash escapes.
fn escaped_length(rest: &[char], end: char) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != end {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of `r"..."` or `r#"..."#`; 0 if this is a raw identifier.
fn raw_length(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|char| **char == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let start = 2 + hashes;
    let inside = rest[start..].windows(end.len()).position(|window| window == end);
    inside.map_or(rest.len(), |inside| start + inside + end.len())
}

/// Whether a character can be part of a name.
pub(crate) fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Code (see [`code`]) with everything blanked that `#[cfg(test)]` stands before.
pub(crate) fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let length = MARK.len() + item_length(&item[MARK.len()..]);
        out.extend(item[..length].chars().map(|char| if char == '\n' { '\n' } else { ' ' }));
        rest = &item[length..];
    }
    out + rest
}

/// How many bytes of code the item at its start has: up to its `;`, or to the end of its braces.
pub(crate) fn item_length(code: &str) -> usize {
    let mut depth = 0;
    for (at, char) in code.char_indices() {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(char, ';' | '}') {
            return at + 1;
        }
    }
    code.len()
}

#[test]
fn only_code_is_left() {
    for (text, expected) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        ("f(\"g\\\"h\", 'i', '\\'', 'j')", "f(      ,    ,     ,    )"),
        ("f::<'a>(x: &'a str)", "f::<'a>(x: &'a str)"),
        ("r\"k\\\" l r#\"m\"n\"# o br\"p\" r#type", "      l          o b     r#type"),
        ("\"never closed", "             "),
    ] {
        assert_eq!(code(text), expected, "{text}");
    }
}

#[test]
fn tests_are_left_out() {
    for (text, expected) in [
        (
            "a(); #[cfg(test)] mod tests { b(); { c() } } d()",
            "a();                                         d()",
        ),
        ("#[cfg(test)]\nmod tests;\na", "            \n          \na"),
        ("#[cfg(test)] fn f() -> [u8; 4] { g() } a", "                                       a"),
        ("#[cfg(unix)] mod m { a }", "#[cfg(unix)] mod m { a }"),
    ] {
        assert_eq!(without_tests(text), expected, "{text}");
    }
}
