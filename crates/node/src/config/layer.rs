//! Where settings come from: flags, files, the environment; and what is wrong with them.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::table::SETTINGS;
use super::values::Given;
use super::{Config, Contact};

/// The environment variable that names a contact.
pub const CONTACT_VARIABLE: &str = "NEPHILA_CONTACT";
/// The largest file of settings.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Flags that say what to do now rather than how to crawl, and so are no keys of a file.
const FLAGS_ONLY: &[&str] = &["config", "dry-run", "fresh", "json", "quiet"];
/// The table in which a crawl keeps notes of its own, in a file that otherwise holds settings.
pub(crate) const NOTES: &str = "crawl";

/// What is wrong with a configuration, all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<String>);

impl Mistakes {
    /// Adds one.
    pub fn add(&mut self, mistake: impl Into<String>) {
        self.0.push(mistake.into());
    }

    /// All of them, in the order met.
    pub fn list(&self) -> &[String] {
        &self.0
    }

    /// An error if there are any.
    pub fn check(self) -> Result<(), Mistakes> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [one] => f.write_str(one),
            all => {
                write!(f, "{} mistakes", all.len())?;
                all.iter().try_for_each(|one| write!(f, "\n  {one}"))
            }
        }
    }
}

impl std::error::Error for Mistakes {}

/// Settings from one place, not yet understood.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// How messages name the place of a key: what stands before it.
    prefix: String,
    /// What relative paths are relative to.
    base: PathBuf,
    values: Vec<(String, Vec<String>)>,
}

impl Layer {
    /// Flags and their values.
    pub fn flags(values: Vec<(String, Vec<String>)>) -> Layer {
        Layer { prefix: "--".to_owned(), base: PathBuf::new(), values }
    }

    /// What the environment says.
    pub fn environment() -> Layer {
        let contact = std::env::var(CONTACT_VARIABLE).ok().filter(|contact| !contact.trim().is_empty());
        Layer {
            prefix: format!("{CONTACT_VARIABLE}: "),
            base: PathBuf::new(),
            values: contact.map(|contact| ("contact".to_owned(), vec![contact])).into_iter().collect(),
        }
    }

    /// A file that the user named.
    pub fn file(path: &Path, mistakes: &mut Mistakes) -> Layer {
        match read_file(path) {
            Ok(text) => {
                let base = path.parent().unwrap_or(Path::new(""));
                Layer::text(&path.display().to_string(), base, &text, mistakes)
            }
            Err(error) => {
                mistakes.add(format!("{}: cannot be read: {error}", path.display()));
                Layer::default()
            }
        }
    }

    /// The user's own file, which need not exist and holds nothing but a contact.
    pub fn user(mistakes: &mut Mistakes) -> Layer {
        let Some(path) = user_file().filter(|path| path.exists()) else { return Layer::default() };
        let mut layer = Layer::file(&path, mistakes);
        for (name, _) in layer.values.extract_if(.., |(name, _)| name != "contact") {
            mistakes.add(format!(
                "{}{name}: this file holds contact only: put {name} into a file for --config",
                layer.prefix
            ));
        }
        layer
    }

    /// The text of a file; `name` is how messages call it.
    pub fn text(name: &str, base: &Path, text: &str, mistakes: &mut Mistakes) -> Layer {
        let mut layer = Layer { prefix: format!("{name}: "), base: base.to_owned(), values: Vec::new() };
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                let before = &text.as_bytes()[..error.span().map_or(0, |span| span.start.min(text.len()))];
                let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
                mistakes.add(format!("{name}: line {line}: {}", error.message().replace('\n', ": ")));
                return layer;
            }
        };
        for (key, value) in &table {
            if key == NOTES && value.is_table() {
                // A crawl's own file: unless something stronger says otherwise, that crawl is meant.
                layer.values.push(("out".to_owned(), vec![".".to_owned()]));
                continue;
            }
            match words(value) {
                Ok(words) => layer.values.push((key.clone(), words)),
                Err(what) => mistakes.add(format!("{name}: {key}: {what}")),
            }
        }
        layer
    }

    /// Whether it says anything of this setting.
    pub fn has(&self, name: &str) -> bool {
        self.values.iter().any(|(key, _)| key == name)
    }

    pub(super) fn apply(&self, config: &mut Config, mistakes: &mut Mistakes) {
        for (name, words) in &self.values {
            let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
                mistakes.add(format!("{}{name}: {}", self.prefix, unknown(name)));
                continue;
            };
            if words.is_empty() && !setting.many {
                mistakes.add(format!("{}{name}: the list is empty: write a value", self.prefix));
            } else if let Err(what) = (setting.read)(config, &Given { words, base: &self.base }) {
                mistakes.add(format!("{}{name}: {what}", self.prefix));
            }
        }
    }
}

/// What to say of a key that is none.
fn unknown(name: &str) -> String {
    if FLAGS_ONLY.contains(&name) {
        return format!("possible only as a flag: --{name}");
    }
    let near =
        SETTINGS.iter().map(|setting| (strsim::damerau_levenshtein(setting.name, name), setting.name)).min();
    match near {
        Some((distance, near)) if distance <= 2 => format!("unknown key; {near} is one"),
        _ => "unknown key; docs/settings.md lists all".to_owned(),
    }
}

/// A value of TOML as the words that a flag would be given.
fn words(value: &toml::Value) -> Result<Vec<String>, &'static str> {
    let word = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        toml::Value::Datetime(_) => Err("is a date: write a text, a number or a list of them"),
        toml::Value::Array(_) => Err("is a list of lists: write one list"),
        toml::Value::Table(_) => Err("is a table: write a text, a number or a list of them"),
    };
    match value {
        toml::Value::Array(values) => values.iter().map(word).collect(),
        value => word(value).map(|word| vec![word]),
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Where the user's own configuration is, if the environment says where users keep theirs.
pub fn user_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(base.join("nephila/config.toml"))
}

/// Keeps a contact in the user's own file, for later crawls.
pub fn keep_contact(path: &Path, contact: &Contact) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let quoted = toml::Value::String(contact.to_string());
    crate::directory::write_atomically(path, format!("contact = {quoted}\n").as_bytes())
}
