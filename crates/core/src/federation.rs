//! A federation: several sites that crawl as one. Which site a host belongs to is a function that every site computes for itself
//! and comes to the same, from a list of sites that operators write and that has a version: sites with different lists exchange
//! nothing.
//!
//! Hosts of one registrable domain belong to one site: they link to each other more than to anybody else, and redirect to each
//! other for their robots.txt. A domain belongs to the site that a rule names for it or for a domain above it; without one, to
//! the site whose name and the domain's have the highest hash together, so that a site which joins takes its part from all the
//! others, and nothing moves between those.
//!
//! A site that will never come back stays in the list as *gone*: its hosts belong to the others as if it were not there, each
//! getting its part, and again nothing moves between those.
//!
//! By a list that goes *by place* that site is only a host's *registrar*: it finds out where the host is, and unless a rule names
//! the host's domain it may grant it to the site that is nearest (`agent::registrar`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::agent::Cursor;
use crate::assign::Position;
use crate::limits::SITES_MAX;
use crate::maps::Version;
use crate::maps::concerns::{Concern, Say};
use crate::record::Found;
use crate::site::{AgentId, Moved};
use crate::time::Wall;
use crate::url::{AddressKey, Host, Origin};

/// One of the sites, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SiteNumber(u16);

impl SiteNumber {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A site of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteEntry {
    /// Its name.
    pub name: String,
    /// Where some of its agents are reached from other sites. Any of them takes what is for the site.
    pub gateways: Vec<String>,
    /// It is lost for good, and nothing belongs to it any more.
    pub is_gone: bool,
    /// The domains of which it may send URLs here, with all names below; `None` for all.
    pub may_send: Option<BTreeSet<String>>,
    /// Its questions are not answered here.
    pub may_not_ask: bool,
    /// Where it is, if that is of interest.
    pub position: Option<Position>,
}

impl SiteEntry {
    /// Whether it may send URLs of a host here.
    pub(crate) fn may_send(&self, host: &Host) -> bool {
        self.may_send.as_ref().is_none_or(|domains| tails(host).any(|tail| domains.contains(tail)))
    }
}

/// The name of a host, and all names above it.
fn tails(host: &Host) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host.as_str()), |tail| Some(tail.split_once('.')?.1))
}

/// Which list of sites somebody has. Two that are the same give every host to the same site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListId {
    /// The version that its operators gave it.
    pub version: u64,
    /// Of all that says whose a host is; not of where sites are reached, which may look different from each.
    digest: u64,
}

impl fmt::Display for ListId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.version, self.digest)
    }
}

/// A list of sites that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAFederation {
    /// There are none, or too many.
    #[error("a federation has 1 to {SITES_MAX} sites, not {0}")]
    Size(usize),
    /// Two of one name.
    #[error("two sites are called {0:?}")]
    Twice(String),
    /// A name that is not in the list.
    #[error("no site is called {0:?}")]
    Unknown(String),
    /// Somebody's own site is gone, as the list says.
    #[error("{0:?}, the site that this is, is gone by this list: others have its hosts")]
    Gone(String),
}

/// All sites, and which of them this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Federation {
    version: u64,
    /// In the order of their names.
    sites: Vec<SiteEntry>,
    me: SiteNumber,
    /// Whose domains are that a rule names.
    pinned: BTreeMap<String, SiteNumber>,
    /// The site whose operator speaks for all.
    operator: Option<SiteNumber>,
    is_by_place: bool,
    is_stretched: bool,
    is_remembering: bool,
}

impl Federation {
    /// The federation of these sites, from the point of view of `me`. `pinned` are domains, at any level, and the sites that they
    /// belong to with all names below; of several the longest counts.
    pub fn new(
        version: u64,
        mut sites: Vec<SiteEntry>,
        me: &str,
        pinned: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Federation, NotAFederation> {
        if sites.is_empty() || sites.len() > SITES_MAX {
            return Err(NotAFederation::Size(sites.len()));
        }
        sites.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(twice) = sites.windows(2).find(|two| two[0].name == two[1].name) {
            return Err(NotAFederation::Twice(twice[0].name.clone()));
        }
        let find = |name: &str| {
            let at = sites.binary_search_by(|site| site.name.as_str().cmp(name));
            at.map(|at| SiteNumber(at as u16)).map_err(|_| NotAFederation::Unknown(name.to_owned()))
        };
        let me = find(me)?;
        if sites[me.index()].is_gone {
            return Err(NotAFederation::Gone(sites[me.index()].name.clone()));
        }
        let pin = |(domain, site): (String, String)| Ok((domain.to_ascii_lowercase(), find(&site)?));
        let pinned = pinned.into_iter().map(pin).collect::<Result<_, NotAFederation>>()?;
        Ok(Federation {
            version,
            sites,
            me,
            pinned,
            operator: None,
            is_by_place: false,
            is_stretched: false,
            is_remembering: false,
        })
    }

    /// The same sites, one of which speaks for all where only one can.
    pub fn operated_by(self, site: &str) -> Result<Federation, NotAFederation> {
        let operator = self.find(site).ok_or_else(|| NotAFederation::Unknown(site.to_owned()))?;
        Ok(Federation { operator: Some(operator), ..self })
    }

    /// The site that speaks for all, if there is one and it is not gone.
    pub fn operator(&self) -> Option<&str> {
        let entry = self.site(self.operator?);
        (!entry.is_gone).then_some(&*entry.name)
    }

    /// The same sites, each of which crawls the hosts that it is the nearest to, other than those that a rule names.
    pub fn by_place(self) -> Federation {
        Federation { is_by_place: true, ..self }
    }

    /// Whether it is where hosts are that counts.
    pub fn goes_by_place(&self) -> bool {
        self.is_by_place
    }

    /// Whether a host is the nearest site's.
    pub(crate) fn is_by_place(&self, host: &Host) -> bool {
        self.is_by_place && self.pinned(host).is_none()
    }

    /// Whether another site may say that a host is its own.
    pub(crate) fn may_claim(&self, site: &str, host: &Host) -> bool {
        let owner = self.site_of(host);
        match owner == self.me {
            true => self.is_by_place(host) && self.find(site).is_some_and(|site| site != self.me),
            false => self.site(owner).name == site,
        }
    }

    /// The site that is nearest to a place.
    pub(crate) fn nearest(&self, place: Position) -> Option<SiteNumber> {
        let present = self.sites().filter(|(_, site)| !site.is_gone);
        let apart = present.filter_map(|(number, site)| Some((number, site.position?.apart(place))));
        apart.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(number, _)| number)
    }

    /// The site that what waits of a host is counted for. Where a host is that is the nearest site's, nobody knows who only has
    /// its name.
    pub fn counted_for(&self, host: &Host) -> SiteNumber {
        if self.is_by_place(host) { self.me } else { self.site_of(host) }
    }

    /// The same sites as one that is stretched over all places, for comparisons: each *URL* belongs to one, by its hash, all of
    /// them ask every host, and what others find is sent as often as it is found. Nobody should crawl like this: hosts are asked
    /// by several at once, and what is on its way is lost with its agent.
    pub fn stretched(self) -> Federation {
        Federation { is_stretched: true, ..self }
    }

    /// The same, where each place remembers what it has sent to others and does not send it again, as far as it remembers.
    pub fn remembering(self) -> Federation {
        Federation { is_remembering: true, ..self }
    }

    /// Whether places remember what they have sent.
    pub(crate) fn is_remembering(&self) -> bool {
        self.is_remembering
    }

    /// The site that a URL of a stretched federation belongs to, if that is another one.
    pub(crate) fn stretched_to(&self, url: &str) -> Option<SiteNumber> {
        let hash = self.is_stretched.then(|| xxh3_64_with_seed(url.as_bytes(), 0))?;
        let site = SiteNumber((hash % self.sites.len() as u64) as u16);
        (site != self.me).then_some(site)
    }

    /// Its version alone.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Which list it is.
    pub fn list(&self) -> ListId {
        let mut hash = Xxh3::new();
        let mut add = |text: &str| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        self.sites.iter().for_each(|site| add(&site.name));
        add(if self.is_stretched { "stretched" } else { "" });
        for (domain, site) in &self.pinned {
            add(domain);
            add(&self.site(*site).name);
        }
        self.gone().for_each(&mut add);
        if self.is_by_place {
            add("by place");
            self.sites.iter().for_each(|site| add(&format!("{:?}", site.position)));
        }
        if let Some(operator) = self.operator {
            add("operator");
            add(&self.site(operator).name);
        }
        ListId { version: self.version, digest: hash.digest() }
    }

    /// The sites that are gone.
    pub fn gone(&self) -> impl Iterator<Item = &str> {
        self.sites.iter().filter(|site| site.is_gone).map(|site| &*site.name)
    }

    /// Which site this is.
    pub fn me(&self) -> SiteNumber {
        self.me
    }

    /// All sites.
    pub fn sites(&self) -> impl ExactSizeIterator<Item = (SiteNumber, &SiteEntry)> {
        self.sites.iter().enumerate().map(|(at, site)| (SiteNumber(at as u16), site))
    }

    /// One of them.
    pub fn site(&self, number: SiteNumber) -> &SiteEntry {
        &self.sites[number.index()]
    }

    /// The number of a site.
    pub fn find(&self, name: &str) -> Option<SiteNumber> {
        self.sites().find(|(_, site)| site.name == name).map(|(number, _)| number)
    }

    /// The name of the site that a host belongs to.
    pub fn owner(&self, host: &Host) -> &str {
        &self.site(self.site_of(host)).name
    }

    /// The site that a host belongs to.
    pub fn site_of(&self, host: &Host) -> SiteNumber {
        if self.is_stretched {
            return self.me;
        }
        if let Some(site) = self.pinned(host) {
            return site;
        }
        let domain = registrable(host);
        let hash = |site: &SiteEntry| {
            xxh3_64_with_seed(domain.as_bytes(), xxh3_64_with_seed(site.name.as_bytes(), 0))
        };
        let present = self.sites().filter(|(_, site)| !site.is_gone);
        present.max_by_key(|(_, site)| hash(site)).map_or(self.me, |(number, _)| number)
    }

    /// The site that a rule names for a host.
    fn pinned(&self, host: &Host) -> Option<SiteNumber> {
        if self.pinned.is_empty() {
            return None;
        }
        let mut pinned = tails(host).filter_map(|tail| self.pinned.get(tail));
        pinned.find(|site| !self.site(**site).is_gone).copied()
    }
}

/// The registrable domain of a host, by the public suffix list and, where that does not know the last label, below that; the
/// host itself if it is an address or a suffix.
fn registrable(host: &Host) -> &str {
    let name = host.as_str();
    let domain = psl::domain(name.as_bytes()).and_then(|domain| str::from_utf8(domain.as_bytes()).ok());
    domain.filter(|_| host.ip().is_none()).unwrap_or(name)
}

/// How many URLs there are of the hosts of each site.
#[derive(Clone, Debug)]
pub struct UrlsBySite {
    federation: Box<Federation>,
    urls: Vec<u64>,
}

impl UrlsBySite {
    /// None yet.
    pub(crate) fn none(federation: &Federation) -> UrlsBySite {
        UrlsBySite { federation: Box::new(federation.clone()), urls: vec![0; federation.sites.len()] }
    }

    /// Counts those of a host.
    pub fn add(&mut self, host: &Host, urls: u64) {
        if urls > 0 {
            self.urls[self.federation.counted_for(host).index()] += urls;
        }
    }

    /// The counts, in the order of the sites.
    pub(crate) fn urls(&self) -> &[u64] {
        &self.urls
    }

    /// The URLs of all sites but this one.
    pub fn of_others(&self) -> u64 {
        let me = self.federation.me.index();
        self.urls.iter().enumerate().filter(|(at, _)| *at != me).map(|(_, urls)| urls).sum()
    }
}

/// What one site tells another: URLs that it has found and that belong there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The sender's list of sites.
    pub list: ListId,
    /// The URLs.
    pub found: Vec<Found>,
    /// What the sender's site has given to each of them, where it goes by that: none, or as many as there are URLs.
    pub units: Vec<u64>,
}

/// What one site asks another whose host is said to have the rules of one of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRules {
    /// The list of sites by which that host is the other's.
    pub list: ListId,
    /// Whose rules they are.
    pub origin: Origin,
    /// Where they are.
    pub url: String,
    /// Redirects so far.
    pub hops: u8,
}

/// What one site tells another: addresses that it has asked lately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressesUsed {
    /// The sender's list of sites.
    pub list: ListId,
    /// The addresses.
    pub addresses: Vec<AddressKey>,
}

/// What one site asks another before it asks a host that may have been the other's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The list of sites by which the host is the asker's.
    pub list: ListId,
    /// The host.
    pub host: Host,
    /// Where to go on, unless this is the beginning.
    pub from: Option<Cursor>,
}

/// What the other knows of that host, or a part of it. It will not ask it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Whether the host was its own until now.
    pub was_owner: bool,
    /// It still is: the host was granted to it by the one that asks, which has forgotten that.
    pub keeps: bool,
    /// Which of its agents says so,
    pub agent: AgentId,
    /// and when, by its calendar.
    pub at: Wall,
    /// What the host had asked for, and its URLs that are done or were tried.
    pub moved: Moved,
    /// Where to go on, unless this is the end.
    pub next: Option<Cursor>,
}

/// A part of what a site says to all, or none of it and only what it is compared by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saying {
    /// The teller's list of sites.
    pub list: ListId,
    /// Which site says so: the teller itself, or one that is gone.
    pub of: String,
    /// Digests of all that it says, by ranges.
    pub digests: Vec<u64>,
    /// Nothing was ever said, as far as the teller knows.
    pub is_empty: bool,
    /// What it says in the ranges that are to be told.
    pub part: Section,
}

/// What one site says to all.
pub type Section = crate::maps::Section<Concern, Say>;

/// The answer to that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The ranges in which that site says something else, as far as is known here,
    pub differ: Vec<u8>,
    /// and the latest version of it that is.
    pub newest: Version,
    /// All of it, if the teller has nothing: then it has lost that.
    pub lost: Option<Box<Section>>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn federation(names: &[&str], pinned: &[(&str, &str)]) -> Federation {
        let pinned = pinned.iter().map(|(domain, site)| ((*domain).to_owned(), (*site).to_owned()));
        Federation::new(1, names.iter().map(|name| site(name)).collect(), names[0], pinned).unwrap()
    }

    /// A site; one that is gone has a cross behind its name.
    fn site(name: &str) -> SiteEntry {
        let is_gone = name.ends_with('+');
        SiteEntry { name: name.trim_end_matches('+').to_owned(), is_gone, ..SiteEntry::default() }
    }

    fn owner<'a>(federation: &'a Federation, host: &str) -> &'a str {
        &federation.site(federation.site_of(&Host::parse(host).unwrap())).name
    }

    #[test]
    fn the_longest_rule_counts_and_others_are_left_to_the_hash() {
        let pinned = [("jp", "tokyo"), ("example.jp", "paris"), ("Example.ORG", "lima")];
        let federation = federation(&["paris", "tokyo", "lima"], &pinned);
        for (host, expected) in [
            ("a.jp", "tokyo"),
            ("www.example.jp", "paris"),
            ("example.org", "lima"),
            ("deep.www.example.org", "lima"),
        ] {
            assert_eq!(owner(&federation, host), expected, "{host}");
        }
        for (host, expected) in [
            ("www.nasa.gov", "nasa.gov"),
            ("a.b.co.uk", "b.co.uk"),
            ("rules.a.test", "a.test"),
            ("localhost", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
            ("github.io", "github.io"),
        ] {
            assert_eq!(registrable(&Host::parse(host).unwrap()), expected);
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let new = |names: &[&str], me: &str, pin: &str| {
            let pinned = [("org".to_owned(), pin.to_owned())];
            Federation::new(1, names.iter().map(|name| site(name)).collect(), me, pinned).map(|_| ())
        };
        assert_eq!(new(&[], "a", "a"), Err(NotAFederation::Size(0)));
        assert_eq!(new(&["a", "b", "a"], "a", "a"), Err(NotAFederation::Twice("a".into())));
        assert_eq!(new(&["a"], "b", "a"), Err(NotAFederation::Unknown("b".into())));
        assert_eq!(new(&["a"], "a", "c"), Err(NotAFederation::Unknown("c".into())));
        assert_eq!(new(&["a", "b"], "a", "b"), Ok(()));
        assert_eq!(new(&["a+", "b"], "a", "b"), Err(NotAFederation::Gone("a".into())));
        let operated = |by: &str| federation(&["a", "b", "c+"], &[]).operated_by(by);
        assert_eq!(operated("d"), Err(NotAFederation::Unknown("d".into())));
        assert_eq!(operated("b").unwrap().operator(), Some("b"));
        assert_eq!(operated("c").unwrap().operator(), None, "it is gone");
    }

    proptest! {
        #[test]
        fn a_site_that_joins_takes_from_all_and_nothing_else_moves(host in "[a-z]{1,12}\\.(org|net|test)") {
            let before = federation(&["paris", "tokyo", "lima"], &[]);
            let after = federation(&["lima", "oslo", "paris", "tokyo"], &[]);
            let (old, new) = (owner(&before, &host), owner(&after, &host));
            prop_assert!(new == old || new == "oslo");
        }
    }

    proptest! {
        #[test]
        fn a_site_that_is_gone_leaves_its_part_to_all_and_nothing_else_moves(host in "[a-z]{1,12}\\.(org|net|jp)") {
            let before = federation(&["paris", "tokyo", "lima"], &[("jp", "tokyo")]);
            let after = federation(&["paris", "tokyo+", "lima"], &[("jp", "tokyo")]);
            let (old, new) = (owner(&before, &host), owner(&after, &host));
            prop_assert!(new != "tokyo" && (new == old || old == "tokyo"));
        }
    }

    #[test]
    fn lists_that_differ_are_told_apart() {
        let names = ["paris", "tokyo"];
        let list = federation(&names, &[("jp", "tokyo")]).list();
        let mut moved = federation(&["tokyo", "paris"], &[("JP", "tokyo")]);
        moved.sites[0].gateways.push("a:1".to_owned());
        assert_eq!(moved.list(), list);
        for other in [
            federation(&names, &[("jp", "paris")]),
            federation(&names, &[]),
            federation(&["paris", "tokyo", "lima"], &[("jp", "tokyo")]),
            federation(&["paris", "tokyo+"], &[("jp", "tokyo")]),
            federation(&names, &[("jp", "tokyo")]).stretched(),
            federation(&names, &[("jp", "tokyo")]).by_place(),
            federation(&names, &[("jp", "tokyo")]).operated_by("tokyo").unwrap(),
        ] {
            assert!(other.list() != list && other.list().version == list.version);
        }
    }

    #[test]
    fn sites_share_evenly() {
        let federation = federation(&["paris", "tokyo", "lima"], &[]);
        let mut counts = BTreeMap::<&str, u32>::new();
        for number in 0..3_000 {
            *counts.entry(owner(&federation, &format!("h{number}.org"))).or_default() += 1;
        }
        assert!(counts.len() == 3 && counts.values().all(|count| (900..1_100).contains(count)), "{counts:?}");
    }
}
