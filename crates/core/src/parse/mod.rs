//! What fetched bytes say: the kind of content, links, wishes of the page, sitemaps, and the headers that matter.
//!
//! All of it comes from strangers. Nothing here fails or panics on any input: what cannot be understood is left out,
//! and everything that is collected has a limit.

pub mod charset;
pub mod content;
pub mod headers;
pub mod html;
pub mod sitemap;
mod tags;

use serde::{Deserialize, Serialize};

use crate::url::CleanUrl;

/// The longest reference (the text of a link, before it is resolved) that is read, in bytes. Longer ones are left out:
/// they are data in the guise of URLs.
pub const REFERENCE_BYTES_MAX: usize = 8 * 1024;

/// A link that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where it leads.
    pub url: CleanUrl,
    /// What kind of link it is.
    pub kind: LinkKind,
    /// The link itself says that it is not to be followed from here. (The page may say so for all its links.)
    pub nofollow: bool,
}

/// How a link was expressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// `<a href>`
    Anchor,
    /// `<area href>`
    Area,
    /// `<frame src>`, `<iframe src>`
    Frame,
    /// `<link rel=canonical>`
    Canonical,
    /// `<link rel=alternate>`, but not of a style sheet
    Alternate,
    /// `<link rel=next>`
    Next,
    /// `<link rel=prev>`
    Prev,
    /// `<meta http-equiv=refresh>` or the header `Refresh`
    Refresh,
    /// The header `Link`, with one of the relations above
    Header,
    /// An entry of a sitemap
    Sitemap,
}

/// The kind of link that the tokens of a `rel` make, if it is one that is followed, and whether they say nofollow.
fn relation(rel: &str) -> (Option<LinkKind>, bool) {
    let has = |token: &str| rel.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case(token));
    let kind = if has("canonical") {
        Some(LinkKind::Canonical)
    } else if has("next") {
        Some(LinkKind::Next)
    } else if has("prev") || has("previous") {
        Some(LinkKind::Prev)
    } else if has("alternate") && !has("stylesheet") {
        Some(LinkKind::Alternate)
    } else {
        None
    };
    (kind, has("nofollow"))
}
