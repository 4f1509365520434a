//! Whom webmasters can write to: an email address or a web page. Sent with every request, so it is checked first.

use std::fmt;
use std::str::FromStr;

use nephila_core::url::{Host, Url};

/// The longest contact, in bytes: it is part of every request.
const CONTACT_BYTES_MAX: usize = 200;

/// Whom webmasters can write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contact {
    /// An email address; also sent as `From`.
    Email(String),
    /// A page about the crawl.
    Page(String),
}

/// A text that is no contact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither an email address nor a web page: write you@example.org or https://example.org/about"
)]
pub struct NotAContact(String);

impl FromStr for Contact {
    type Err = NotAContact;

    fn from_str(text: &str) -> Result<Contact, NotAContact> {
        let text = text.trim();
        let wrong = || NotAContact(text.chars().take(CONTACT_BYTES_MAX).collect());
        // Nothing that could end the header line or the comment in which the contact stands.
        let harmless =
            |c: char| c.is_ascii_graphic() && !matches!(c, '(' | ')' | ';' | '"' | '\\' | '<' | '>');
        if text.len() > CONTACT_BYTES_MAX || !text.chars().all(harmless) {
            return Err(wrong());
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            let named =
                Url::parse(text).is_ok_and(|url| url.host_str().is_some_and(|name| name.contains('.')));
            return if named { Ok(Contact::Page(text.to_owned())) } else { Err(wrong()) };
        }
        let (person, name) = text.rsplit_once('@').ok_or_else(wrong)?;
        let name_is_good = name.contains('.') && Host::parse(name).is_some_and(|host| host.ip().is_none());
        if person.is_empty() || person.contains(['@', ',', '/', ':']) || !name_is_good {
            return Err(wrong());
        }
        Ok(Contact::Email(text.to_owned()))
    }
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contact::Email(text) | Contact::Page(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts() {
        let email = |text: &str| Ok(Contact::Email(text.to_owned()));
        let page = |text: &str| Ok(Contact::Page(text.to_owned()));
        for good in ["me@example.org", "a.b+crawl@mail.example.org"] {
            assert_eq!(good.parse(), email(good));
        }
        for good in ["https://example.org/about", "http://example.org"] {
            assert_eq!(good.parse(), page(good));
        }
        for bad in [
            "",
            "me",
            "@example.org",
            "me@",
            "me@localhost",
            "me@1.2.3.4",
            "a@b@example.org",
            "me@exa mple.org",
            "ftp://example.org/",
            "https://",
            "https://localhost/",
            "me@example.org\r\nX: y",
            "https://example.org/a;b",
            "https://example.org/(a)",
            "mé@example.org",
        ] {
            assert!(bad.parse::<Contact>().is_err(), "{bad}");
        }
        assert!(format!("{}@example.org", "a".repeat(200)).parse::<Contact>().is_err());
    }
}
