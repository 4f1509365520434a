//! Our decisions on thousands of real robots.txt agree with those of the Python library protego.
//!
//! Each file is asked for paths made from its own rules: as written, longer, shorter, in other case, in other escapes, and
//! some that have nothing to do with them. robots_protego.py asks protego the same and finds the reason for each
//! difference by experiment; a difference without a reason in RFC 9309 fails the test. Octets that are not UTF-8 are not
//! asked about: protego never sees them.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "all of this is a test")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nephila_core::robots::Robots;
use serde_json::{Value, json};

const AGREEMENT_MIN: f64 = 0.999;
const EXAMPLES_A_REASON: usize = 3;

/// A way to ask about every file.
struct Sample {
    name: &'static str,
    /// As an agent that the file names, rather than as nephila, which none does.
    named: bool,
    /// With a literal `$` where rules have one, and with escapes of reserved characters.
    contested: bool,
    paths_a_file: usize,
    /// Sections of RFC 9309 on which protego is known to differ so often here that they are counted apart.
    apart: &'static [&'static str],
}

const SAMPLES: [Sample; 3] = [
    Sample { name: "as nephila", named: false, contested: false, paths_a_file: 40, apart: &[] },
    // protego ends a list of user-agent lines at a crawl-delay. That is common between the agents that a file names.
    Sample { name: "as agents named", named: true, contested: false, paths_a_file: 20, apart: &["2.2.4"] },
    Sample {
        name: "contested spellings",
        named: false,
        contested: true,
        paths_a_file: 10,
        apart: &["2.2.2: escapes", "2.2.3"],
    },
];

/// A small generator of numbers (splitmix64), so that every run asks the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).expect("it is below a usize")
    }

    fn pick<'a>(&mut self, from: &'a [impl AsRef<str>]) -> &'a str {
        from[self.below(from.len())].as_ref()
    }
}

/// The values of all lines whose name contains `name`, as far as they are UTF-8.
fn values(text: &str, name: &str) -> Vec<String> {
    let lines = text.split(['\n', '\r']).map(|line| line.split('#').next().unwrap_or_default());
    let records = lines.filter_map(|line| line.split_once(':'));
    let named = records.filter(|(found, _)| found.to_ascii_lowercase().contains(name));
    named
        .map(|(_, value)| value.trim().to_owned())
        .filter(|value| !value.is_empty() && !value.contains('\u{fffd}'))
        .collect()
}

/// A path and query as a URL has them: printable ASCII, no fragment.
fn as_in_urls(path: &str) -> String {
    path.bytes()
        .map(|octet| match octet {
            b'!'..=b'~' if !b"\"<>`#\\".contains(&octet) => char::from(octet).to_string(),
            _ => format!("%{octet:02X}"),
        })
        .collect()
}

/// A path that has to do with a rule. `contested` paths spell a `$` or an escape in a way that RFC 9309 and protego are
/// known to see differently.
fn path_near(rule: &str, contested: bool, random: &mut Random) -> String {
    let filling = random.pick(&["", "x", "a/b", "Foo.html", "*"]);
    let end = if contested { rule } else { rule.trim_end_matches('$') };
    let mut path = as_in_urls(&format!("/{}", end.trim_start_matches('/').replace('*', filling)));
    let at = random.below(path.len());
    let octet = path.as_bytes()[at];
    let in_escape = path[..at].bytes().rev().take(2).any(|before| before == b'%');
    match random.below(10) {
        _ if contested && at > 0 && b"/?=&:,;+!@()".contains(&octet) => {
            path.replace_range(at..=at, &format!("%{octet:02X}"));
        }
        0..=2 => path += random.pick(&["a", "/", "/index.html", "?a=b", "&c", ".php", "%20", "*"]),
        3 if path.ends_with("index.html") => path.truncate(path.len() - "index.html".len()),
        3 => path.truncate(at.max(1)),
        4 if octet.is_ascii_alphabetic() => {
            let other = char::from(octet ^ 0x20).to_string();
            path.replace_range(at..=at, &other);
        }
        5 | 6 if !in_escape && (octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)) => {
            let escape = random.pick(&[format!("%{octet:02X}"), format!("%{octet:02x}")]).to_owned();
            path.replace_range(at..=at, &escape);
        }
        7 if at > 0 && !in_escape => path.insert_str(at, random.pick(&["x", "/", "%C3%BC", "?"])),
        _ => {}
    }
    path
}

/// What to ask about a file, with our answers.
fn ask(file: &Path, sample: &Sample) -> Value {
    let body = std::fs::read(file).unwrap();
    let text = String::from_utf8_lossy(&body);
    let mut random =
        Random(text.bytes().fold(7, |hash, octet| hash.wrapping_mul(31).wrapping_add(octet.into())));
    let mut rules = values(&text, "allow");
    rules.retain(|rule| rule.starts_with(['/', '*']));
    let mut agents = vec!["nephila".to_owned()];
    if sample.named {
        agents = values(&text, "agent");
        agents.retain(|agent| agent != "*");
    }
    if agents.is_empty() {
        return json!({"file": file, "asked": []});
    }
    let agent = random.pick(&agents);
    let robots = Robots::parse(&body, agent);
    let ask_path = |_| {
        let path = if rules.is_empty() || random.below(8) == 0 {
            random
                .pick(&["/", "/index.html", "/a/b?c=d", "/%7Euser/", "/search?q=x", "/robots.txt"])
                .to_owned()
        } else {
            path_near(random.pick(&rules), sample.contested, &mut random)
        };
        json!([agent, path, robots.decide(&path).allowed])
    };
    let asked: Vec<Value> = (0..sample.paths_a_file).map(ask_path).collect();
    json!({"file": file, "asked": asked})
}

/// Lets the Python script answer all requests in one process; its answer is the list of disagreements.
fn disagreements(python: &str, requests: &[Value]) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/robots_protego.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{python}: {error}"));
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    // The script reads all of its input before it writes: no deadlock.
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "robots_protego.py failed: {}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn decisions_agree_with_protego() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/robots/protego");
    if !data.exists() {
        println!("skipped: no ../shared/data");
        return;
    }
    let Ok(python) = std::env::var("NEPHILA_PYTHON") else {
        println!("skipped: NEPHILA_PYTHON is not set (make test sets it)");
        return;
    };
    let folder = data.join("tests/test_data").canonicalize().unwrap();
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 4_200, "only {} files in {}", files.len(), folder.display());

    for sample in &SAMPLES {
        check(sample, &python, &files);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred thousand")]
fn check(sample: &Sample, python: &str, files: &[PathBuf]) {
    let requests: Vec<Value> = files.iter().map(|file| ask(file, sample)).collect();
    let asked: usize = requests.iter().map(|request| request["asked"].as_array().unwrap().len()).sum();
    let disagreements = disagreements(python, &requests);
    let mut reasons: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for disagreement in &disagreements {
        reasons.entry(disagreement["why"].as_str().unwrap_or("unexplained")).or_default().push(disagreement);
    }
    let is_apart = |reason: &str| sample.apart.iter().any(|section| reason.starts_with(section));
    let apart: usize =
        reasons.iter().filter(|(reason, _)| is_apart(reason)).map(|(_, of_it)| of_it.len()).sum();
    let agreement = 1.0 - disagreements.len() as f64 / asked as f64;
    let agreement_else = 1.0 - (disagreements.len() - apart) as f64 / (asked - apart) as f64;
    println!(
        "{}: {} files, {asked} decisions, {:.3} % agree with protego",
        sample.name,
        files.len(),
        agreement * 100.0
    );
    if apart > 0 {
        println!("    and {:.3} % apart from {}", agreement_else * 100.0, sample.apart.join(", "));
    }
    for (reason, of_it) in &reasons {
        println!("{:6} {reason}", of_it.len());
        for example in of_it.iter().take(EXAMPLES_A_REASON) {
            println!("       {example}");
        }
    }
    assert!(
        !reasons.contains_key("unexplained"),
        "{}: disagreements that RFC 9309 does not explain",
        sample.name
    );
    assert!(agreement_else >= AGREEMENT_MIN, "{}: agreement is {agreement_else}", sample.name);
}
