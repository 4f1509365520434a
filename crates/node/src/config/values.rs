//! How each sort of setting is read from words and written back.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use ipnet::IpNet;
use nephila_core::settings::Private;
use nephila_core::url::Host;
use regex::{Regex, RegexBuilder};

use super::HostHeader;
use super::units;

/// The largest compiled form of one pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// The longest name: of the product, of the prefix of WARC files.
const NAME_BYTES_MAX: usize = 64;

/// What was given for one setting: on the command line, or in a file.
pub(super) struct Given<'a> {
    /// The values, at least one.
    pub(super) words: &'a [String],
    /// What relative paths are relative to.
    pub(super) base: &'a Path,
}

impl Given<'_> {
    fn one(&self) -> Result<&str, String> {
        match self.words {
            [word] => Ok(word.trim()),
            words => Err(format!("{} values are given: write one", words.len())),
        }
    }

    /// The values, where commas separate them too.
    pub(super) fn each(&self) -> impl Iterator<Item = &str> {
        self.words.iter().flat_map(|word| word.split(',')).map(str::trim).filter(|word| !word.is_empty())
    }
}

/// A value as it is written to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A number, as it is.
    Number(String),
    /// A text, to be quoted.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

impl Shown {
    /// As the right side of a line of TOML.
    pub fn toml(&self) -> String {
        let quoted = |text: &String| toml::Value::String(text.clone()).to_string();
        match self {
            Shown::Number(text) => text.clone(),
            Shown::Text(text) => quoted(text),
            Shown::List(texts) => format!("[{}]", texts.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        }
    }

    /// One by one.
    pub fn each(&self) -> impl Iterator<Item = &str> {
        match self {
            Shown::Number(text) | Shown::Text(text) => std::slice::from_ref(text),
            Shown::List(texts) => texts.as_slice(),
        }
        .iter()
        .map(String::as_str)
    }

    /// As the value of a flag.
    pub fn words(&self) -> String {
        match self {
            Shown::Number(text) | Shown::Text(text) => text.clone(),
            Shown::List(texts) => texts.join(","),
        }
    }
}

/// How a setting of type `T` is read and written. `None` is written for what is not set.
pub(super) trait Codec<T> {
    /// Whether it may be given several times.
    const MANY: bool = false;
    fn read(given: &Given<'_>) -> Result<T, String>;
    fn show(value: &T) -> Option<Shown>;
}

/// "none", for a limit that is switched off.
fn optional<T>(
    given: &Given<'_>,
    read: impl Fn(&Given<'_>) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if given.one()? == "none" { Ok(None) } else { read(given).map(Some) }
}

/// A duration.
pub(super) struct Span;

impl Codec<Duration> for Span {
    fn read(given: &Given<'_>) -> Result<Duration, String> {
        units::read_span(given.one()?)
    }
    fn show(value: &Duration) -> Option<Shown> {
        Some(Shown::Text(units::show_span(*value)))
    }
}

impl Codec<Option<Duration>> for Span {
    fn read(given: &Given<'_>) -> Result<Option<Duration>, String> {
        optional(given, <Span as Codec<Duration>>::read)
    }
    fn show(value: &Option<Duration>) -> Option<Shown> {
        value.as_ref().and_then(<Span as Codec<Duration>>::show)
    }
}

/// Several durations; "none" for an empty list.
pub(super) struct Spans;

impl Codec<Vec<Duration>> for Spans {
    fn read(given: &Given<'_>) -> Result<Vec<Duration>, String> {
        if given.words.iter().all(|word| word == "none") {
            return Ok(Vec::new());
        }
        given.each().map(units::read_span).collect()
    }
    fn show(value: &Vec<Duration>) -> Option<Shown> {
        let words: Vec<String> = value.iter().map(|span| units::show_span(*span)).collect();
        Some(Shown::Text(if words.is_empty() { "none".to_owned() } else { words.join(",") }))
    }
}

/// A number of bytes.
pub(super) struct Size;

impl Codec<u64> for Size {
    fn read(given: &Given<'_>) -> Result<u64, String> {
        units::read_size(given.one()?)
    }
    fn show(value: &u64) -> Option<Shown> {
        Some(Shown::Text(units::show_size(*value)))
    }
}

impl Codec<usize> for Size {
    fn read(given: &Given<'_>) -> Result<usize, String> {
        let bytes = units::read_size(given.one()?)?;
        usize::try_from(bytes).map_err(|_| format!("{bytes} bytes are too many for this machine"))
    }
    fn show(value: &usize) -> Option<Shown> {
        Some(Shown::Text(units::show_size(*value as u64)))
    }
}

impl Codec<Option<u64>> for Size {
    fn read(given: &Given<'_>) -> Result<Option<u64>, String> {
        optional(given, <Size as Codec<u64>>::read)
    }
    fn show(value: &Option<u64>) -> Option<Shown> {
        value.as_ref().and_then(<Size as Codec<u64>>::show)
    }
}

/// A whole number.
pub(super) struct Count;

fn read_count<T: TryFrom<u64>>(given: &Given<'_>) -> Result<T, String> {
    let word = given.one()?;
    let digits: String = word.chars().filter(|c| !matches!(c, ',' | '_')).collect();
    let number: u64 = digits
        .parse()
        .ok()
        .filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| format!("{word:?} is not a whole number: write 1000"))?;
    // TOML holds no larger number than this.
    let number = i64::try_from(number).map(i64::unsigned_abs).map_err(|_| format!("{word} is too large"))?;
    T::try_from(number).map_err(|_| format!("{word} is too large"))
}

macro_rules! counts {
    ($($type:ty),*) => {$(
        impl Codec<$type> for Count {
            fn read(given: &Given<'_>) -> Result<$type, String> {
                read_count(given)
            }
            fn show(value: &$type) -> Option<Shown> {
                Some(Shown::Number(value.to_string()))
            }
        }
    )*};
}
counts!(u8, u16, u32, u64, usize);

impl Codec<Option<u64>> for Count {
    fn read(given: &Given<'_>) -> Result<Option<u64>, String> {
        optional(given, read_count)
    }
    fn show(value: &Option<u64>) -> Option<Shown> {
        value.as_ref().and_then(<Count as Codec<u64>>::show)
    }
}

/// A number that need not be whole.
pub(super) struct Number;

impl Codec<f64> for Number {
    fn read(given: &Given<'_>) -> Result<f64, String> {
        let word = given.one()?;
        let number = word.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| format!("{word:?} is not a number of at least 0: write 2 or 1.5"))
    }
    fn show(value: &f64) -> Option<Shown> {
        Some(Shown::Number(value.to_string()))
    }
}

/// Anything that reads itself from one word.
pub(super) struct Word;

impl<T: FromStr<Err: Display> + Display> Codec<Option<T>> for Word {
    fn read(given: &Given<'_>) -> Result<Option<T>, String> {
        optional(given, |given| given.one()?.parse().map_err(|error: T::Err| error.to_string()))
    }
    fn show(value: &Option<T>) -> Option<Shown> {
        value.as_ref().map(|value| Shown::Text(value.to_string()))
    }
}

/// One of a few words, of which there always is one.
pub(super) struct Choice;

impl<T: FromStr<Err: Display> + Display> Codec<T> for Choice {
    fn read(given: &Given<'_>) -> Result<T, String> {
        given.one()?.parse().map_err(|error: T::Err| error.to_string())
    }
    fn show(value: &T) -> Option<Shown> {
        Some(Shown::Text(value.to_string()))
    }
}

/// Texts that are taken as they are, commas included.
pub(super) struct Texts;

impl Codec<Vec<String>> for Texts {
    const MANY: bool = true;
    fn read(given: &Given<'_>) -> Result<Vec<String>, String> {
        Ok(given.words.to_vec())
    }
    fn show(value: &Vec<String>) -> Option<Shown> {
        if value.is_empty() { None } else { Some(Shown::List(value.clone())) }
    }
}

/// Regular expressions.
pub(super) struct Patterns;

impl Codec<Vec<Regex>> for Patterns {
    const MANY: bool = true;
    fn read(given: &Given<'_>) -> Result<Vec<Regex>, String> {
        let compile = |text: &String| RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
        let (good, bad): (Vec<_>, Vec<_>) =
            given.words.iter().map(|text| (text, compile(text))).partition(|(_, result)| result.is_ok());
        if bad.is_empty() {
            return Ok(good.into_iter().filter_map(|(_, result)| result.ok()).collect());
        }
        // The last line of the library's message says what is wrong; those before it only draw the place.
        let reasons = bad.iter().filter_map(|(text, result)| {
            let reason = result.as_ref().err()?.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Some(format!("{text:?} is not a regular expression ({reason})"))
        });
        Err(reasons.collect::<Vec<_>>().join("; "))
    }
    fn show(value: &Vec<Regex>) -> Option<Shown> {
        <Texts as Codec<Vec<String>>>::show(&value.iter().map(|one| one.as_str().to_owned()).collect())
    }
}

/// Headers for hosts by name.
pub(super) struct HostHeaders;

impl Codec<Vec<HostHeader>> for HostHeaders {
    const MANY: bool = true;
    fn read(given: &Given<'_>) -> Result<Vec<HostHeader>, String> {
        // What was given is not repeated in the message: it may be a secret.
        let wrong = || "write HOST=NAME: VALUE, such as 'example.org=X-Key: 123'".to_owned();
        let read = |word: &String| {
            let (host, header) = word.split_once('=').ok_or_else(wrong)?;
            let (name, value) = header.split_once(':').ok_or_else(wrong)?;
            let host = Host::parse(host.trim()).ok_or_else(wrong)?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            Ok(HostHeader { host, name, value })
        };
        given.words.iter().map(read).collect()
    }
    fn show(_: &Vec<HostHeader>) -> Option<Shown> {
        // It may be a secret: it is neither written down nor shown.
        None
    }
}

/// Media types, with `*` for any subtype.
pub(super) struct MediaTypes;

impl Codec<Vec<String>> for MediaTypes {
    const MANY: bool = true;
    fn read(given: &Given<'_>) -> Result<Vec<String>, String> {
        let token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        let read = |word: &str| match word.split_once('/') {
            Some((kind, sub)) if token(kind) && (token(sub) || sub == "*") => Ok(word.to_ascii_lowercase()),
            _ => Err(format!("{word:?} is not a media type: write text/html or image/*")),
        };
        given.each().map(read).collect()
    }
    fn show(value: &Vec<String>) -> Option<Shown> {
        <Texts as Codec<Vec<String>>>::show(value)
    }
}

/// A file or directory; relative ones are made absolute, so that they mean the same later.
pub(super) struct File;

impl Codec<Option<PathBuf>> for File {
    fn read(given: &Given<'_>) -> Result<Option<PathBuf>, String> {
        match given.one()? {
            "" => Err("the name is empty".to_owned()),
            "-" => Ok(Some(PathBuf::from("-"))),
            name => std::path::absolute(given.base.join(name)).map(Some).map_err(|error| error.to_string()),
        }
    }
    fn show(value: &Option<PathBuf>) -> Option<Shown> {
        value.as_ref().map(|path| Shown::Text(path.display().to_string()))
    }
}

/// A name of letters, digits, `-` and `_`.
pub(super) struct Name;

impl Codec<String> for Name {
    fn read(given: &Given<'_>) -> Result<String, String> {
        let word = given.one()?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if word.is_empty() || word.len() > NAME_BYTES_MAX || !word.bytes().all(fits) {
            return Err(format!("{word:?} is not a name: up to {NAME_BYTES_MAX} letters, digits, - and _"));
        }
        Ok(word.to_owned())
    }
    fn show(value: &String) -> Option<Shown> {
        Some(Shown::Text(value.clone()))
    }
}

/// The address of a DNS server; port 53 if none is given.
pub(super) struct Server;

impl Codec<Option<SocketAddr>> for Server {
    fn read(given: &Given<'_>) -> Result<Option<SocketAddr>, String> {
        optional(given, |given| {
            let word = given.one()?;
            let bare = word.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
            word.parse::<SocketAddr>()
                .or(bare)
                .map_err(|_| format!("{word:?} is not an address: write 127.0.0.1:5353 or [::1]:53"))
        })
    }
    fn show(value: &Option<SocketAddr>) -> Option<Shown> {
        value.as_ref().map(|server| Shown::Text(server.to_string()))
    }
}

/// An address to listen on; "none" for none.
pub(super) struct Listen;

impl Codec<Option<SocketAddr>> for Listen {
    fn read(given: &Given<'_>) -> Result<Option<SocketAddr>, String> {
        optional(given, |given| {
            let word = given.one()?;
            word.parse().map_err(|_| format!("{word:?} is not an address with a port: write 127.0.0.1:9464"))
        })
    }
    fn show(value: &Option<SocketAddr>) -> Option<Shown> {
        value.as_ref().map(|address| Shown::Text(address.to_string()))
    }
}

/// Addresses of this machine.
pub(super) struct Addresses;

impl Codec<Vec<IpAddr>> for Addresses {
    fn read(given: &Given<'_>) -> Result<Vec<IpAddr>, String> {
        let address = |word: &str| {
            word.parse().map_err(|_| format!("{word:?} is not an address: write 192.0.2.7 or 2001:db8::7"))
        };
        let addresses: Vec<IpAddr> = given.each().map(address).collect::<Result<_, String>>()?;
        let (v4, v6): (Vec<&IpAddr>, Vec<&IpAddr>) = addresses.iter().partition(|address| address.is_ipv4());
        if v4.len() > 1 || v6.len() > 1 {
            return Err("name at most one address for IPv4 and one for IPv6".to_owned());
        }
        Ok(addresses)
    }
    fn show(value: &Vec<IpAddr>) -> Option<Shown> {
        (!value.is_empty()).then(|| Shown::List(value.iter().map(IpAddr::to_string).collect()))
    }
}

/// Which private addresses may be asked: all, none, or those in some networks.
pub(super) struct Networks;

impl Codec<Private> for Networks {
    fn read(given: &Given<'_>) -> Result<Private, String> {
        let words: Vec<&str> = given.each().collect();
        match words[..] {
            ["all" | "true"] => return Ok(Private::Allowed),
            ["none" | "false"] | [] => return Ok(Private::Refused),
            _ => {}
        }
        let network = |word: &&str| {
            let single = word.parse::<IpAddr>().map(IpNet::from);
            word.parse::<IpNet>()
                .or(single)
                .map_err(|_| format!("{word:?} is not a network: write 10.0.0.0/8, or all"))
        };
        words.iter().map(network).collect::<Result<_, _>>().map(Private::Within)
    }
    fn show(value: &Private) -> Option<Shown> {
        Some(match value {
            Private::Refused => Shown::Text("none".to_owned()),
            Private::Allowed => Shown::Text("all".to_owned()),
            Private::Within(networks) => Shown::List(networks.iter().map(IpNet::to_string).collect()),
        })
    }
}
