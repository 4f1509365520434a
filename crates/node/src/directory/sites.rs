//! Which list of sites a crawl has, as its directory records it.
//!
//! The list of a crawl that has begun stays the same, but that sites may be gone by a later version: hosts that belong to another
//! site by another list would not move there.

use nephila_core::federation::Federation;

/// A list of sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SitesRecord {
    /// Its version and digest as if no site were gone; without a federation, that there is none.
    list: String,
    /// The sites that are gone.
    gone: Vec<String>,
}

impl SitesRecord {
    pub(super) fn of(federation: Option<&Federation>) -> SitesRecord {
        let Some(federation) = federation else {
            return SitesRecord { list: "none".to_owned(), gone: Vec::new() };
        };
        let list = federation.before_losses(federation.list().version).to_string();
        SitesRecord { list, gone: federation.gone().map(str::to_owned).collect() }
    }

    /// What the notes of a directory say, by their names.
    pub(super) fn read<'a>(note: impl Fn(&str) -> Option<&'a str>) -> Option<SitesRecord> {
        let gone = note("gone").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        Some(SitesRecord { list: note("federation")?.to_owned(), gone })
    }

    /// The notes.
    pub(super) fn text(&self) -> String {
        let gone =
            if self.gone.is_empty() { String::new() } else { format!("gone = {:?}\n", self.gone.join(" ")) };
        format!("federation = {:?}\n{gone}", self.list)
    }

    /// Version and digest.
    pub(super) fn list(&self) -> &str {
        &self.list
    }

    fn version(&self) -> Option<u64> {
        self.list.split_once('-').and_then(|(version, _)| version.parse().ok())
    }

    /// Whether a crawl that had this list may go on with that of this federation.
    pub(super) fn may_become(&self, federation: Option<&Federation>) -> bool {
        let next = SitesRecord::of(federation);
        let before =
            self.version().zip(federation).map(|(version, list)| list.before_losses(version).to_string());
        let is_later =
            self.version() < next.version() && self.gone.iter().all(|site| next.gone.contains(site));
        *self == next || before.as_ref() == Some(&self.list) && is_later
    }
}

#[cfg(test)]
mod tests {
    use nephila_core::federation::SiteEntry;

    use super::*;

    /// A site that is gone has a cross behind its name.
    fn federation(version: u64, sites: &[&str]) -> Federation {
        let site = |name: &&str| {
            let is_gone = name.ends_with('+');
            SiteEntry { name: name.trim_end_matches('+').to_owned(), gateways: Vec::new(), is_gone }
        };
        Federation::new(version, sites.iter().map(site).collect(), "a", []).unwrap()
    }

    #[test]
    fn nothing_changes_but_that_sites_are_gone_by_a_later_version() {
        let three = federation(1, &["a", "b", "c"]);
        let without_c = federation(2, &["a", "b", "c+"]);
        for (was, is, expected) in [
            (Some(&three), Some(&three), true),
            (None, None, true),
            (Some(&three), None, false),
            (None, Some(&three), false),
            (Some(&three), Some(&without_c), true),
            (Some(&without_c), Some(&without_c), true),
            (Some(&without_c), Some(&federation(3, &["a", "b+", "c+"])), true),
            (Some(&three), Some(&federation(1, &["a", "b", "c+"])), false),
            (Some(&without_c), Some(&federation(1, &["a", "b", "c"])), false),
            (Some(&without_c), Some(&federation(3, &["a", "b", "c"])), false),
            (Some(&three), Some(&federation(2, &["a", "b"])), false),
            (Some(&three), Some(&federation(2, &["a", "b", "c", "d"])), false),
        ] {
            let recorded = SitesRecord::of(was);
            assert_eq!(recorded.may_become(is), expected, "{recorded:?} to {is:?}");
            let notes: toml::Table = recorded.text().parse().unwrap();
            let note = |name: &str| notes.get(name).and_then(toml::Value::as_str);
            assert_eq!(SitesRecord::read(note), Some(recorded));
        }
    }
}
