//! What is said of other sites of a federation, and in their name.

use std::fmt::Write;

use nephila_core::agent::{OtherSite, Status};
use serde_json::json;

use super::status;
use crate::control::Response;
use crate::display::{count, counted, span};

/// How another site of the federation fares.
pub(super) fn other_site_words(other: &OtherSite) -> String {
    let taken = counted(other.taken, "URL", "URLs");
    if other.is_gone {
        return format!("site {} is gone: its hosts belong to the others", other.name);
    }
    let mut text = match (other.is_reached, other.again_s) {
        (Some(false), Some(again)) => format!(
            "site {} does not take what is found of its hosts, which waits; it is tried again in {}",
            other.name,
            span(again)
        ),
        (Some(_), _) => format!("site {} has taken {taken} of its hosts from this agent", other.name),
        (None, _) => format!("site {}: nothing was sent there yet by this agent", other.name),
    };
    if other.waiting > 0 {
        let _ = write!(text, "; {} for it here", counted(other.waiting, "URL waits", "URLs wait"));
    }
    if other.is_full {
        text.push_str(", too many (outbox-urls), here or with another agent");
    }
    if other.received > 0 {
        let _ = write!(text, "; it has sent this agent {}", counted(other.received, "URL", "URLs"));
    }
    if other.refused > 0 {
        let _ = write!(text, ", {} of which it may not send (may-send)", count(other.refused));
    }
    text
}

/// An answer by another site of the federation, of which this is the name.
pub fn of_other_site(response: Response, site: &str) -> Response {
    let Response::Report { text, mut json } = response else { return response };
    if let Some(fields) = json.as_object_mut() {
        fields.insert("answered_by".to_owned(), site.into());
    }
    Response::Report { text: format!("site {site} says:\n{text}"), json }
}

/// An answer of this site to what another one could say better, and why that has not.
pub fn without_other_site(response: Response, why: &str) -> Response {
    let Response::Report { mut text, mut json } = response else { return response };
    let _ = writeln!(text, "  {why}");
    if let Some(fields) = json.as_object_mut() {
        fields.insert("note".to_owned(), why.into());
    }
    Response::Report { text, json }
}

/// What one site of a federation is doing, and for how long, or why it does not say so.
pub struct SiteStatus {
    /// Its name.
    pub site: String,
    /// It is the one of the agent that was asked.
    pub is_home: bool,
    /// What it says.
    pub status: Result<(Status, f64), String>,
}

/// What the sites of a federation are doing, as an answer.
pub fn federation(sites: &[SiteStatus]) -> Response {
    let (mut text, mut list) = (String::new(), Vec::new());
    for SiteStatus { site, is_home, status: of_site } in sites {
        let home = if *is_home { " (this one)" } else { "" };
        let told = of_site.as_ref().map(|(of_site, elapsed_s)| status(of_site, *elapsed_s, true, None));
        let (said, json, error) = match told {
            Ok(Response::Report { text, json }) => (text, Some(json), None),
            Ok(_) => continue,
            Err(why) => (format!("{why}\n"), None, Some(why)),
        };
        let _ = write!(text, "site {site}{home}: {said}");
        list.push(json!({ "site": site, "is_home": is_home, "status": json, "error": error }));
    }
    Response::Report { text, json: json!({ "schema": 1, "sites": list }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sites_are_named() {
        let other = |is_reached: Option<bool>| OtherSite {
            name: "lima".to_owned(),
            is_home: false,
            is_gone: false,
            is_reached,
            taken: 7,
            waiting: 0,
            is_full: false,
            received: 0,
            refused: 0,
            cut_answers: 0,
            again_s: (is_reached == Some(false)).then_some(3.0),
        };
        for (is_reached, expected) in [
            (Some(true), "site lima has taken 7 URLs of its hosts from this agent"),
            (
                Some(false),
                "site lima does not take what is found of its hosts, which waits; it is tried again in 3",
            ),
            (None, "site lima: nothing was sent there yet by this agent"),
        ] {
            let said = other_site_words(&other(is_reached));
            assert!(said.starts_with(expected), "{said}");
        }
        let full = OtherSite { waiting: 9, is_full: true, received: 5, refused: 2, ..other(Some(true)) };
        let expected = "; 9 URLs wait for it here, too many (outbox-urls), here or with another agent; it has sent this agent \
                        5 URLs, 2 of which it may not send (may-send)";
        assert!(other_site_words(&full).ends_with(expected), "{}", other_site_words(&full));
        let said = other_site_words(&OtherSite { is_gone: true, ..other(None) });
        assert_eq!(said, "site lima is gone: its hosts belong to the others");
    }
}
