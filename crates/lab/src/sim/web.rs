//! The simulated web: what every host and page is and does, all of it from the seed, and what must come of each URL.
//!
//! [`Plan`] never changes; what depends on how often a server was asked is in `servers`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use nephila_core::agent::{Answer, FetchError};
use nephila_core::assign::partition_of;
use nephila_core::url::{Host, Url};

use super::random::Random;

/// Where hosts keep the rules that the robots.txt of others redirect to.
const RULES_FOR_OTHERS: &str = "/rules-for-others.txt";
pub(super) const RULES_MOVED: &str = "/moved-rules.txt";
const SITEMAP: &str = "/sitemap.xml";
/// Hosts of a site's web that are seeds.
const SITE_SEEDS: usize = 3;

/// What the robots.txt of a host does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rules {
    Missing,
    Given(Given),
    /// The first requests fail this way.
    FailFirst(u32, Trouble, Given),
    /// At another host.
    Elsewhere(usize),
    /// At another place of the host.
    Moved(Given),
}

/// The text of a robots.txt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Given {
    pub(super) disallow_private: bool,
    pub(super) disallow_all: bool,
    pub(super) crawl_delay_s: Option<u64>,
    pub(super) sitemap: bool,
}

/// The ways in which a request goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Trouble {
    Status500,
    Busy(Option<u64>),
    Refused,
    Timeout,
    Reset,
    CutShort,
    /// A kept-alive connection that had been closed.
    Stale,
}

/// What the name of a host does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Name {
    Good,
    None,
    FailFirst(u32),
    Private,
    /// Good, and later private.
    Rebinding,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Health {
    Good,
    /// Refuses all connections.
    Dead,
    /// Answers every page with 503.
    Busy,
}

pub(super) struct HostPlan {
    pub(super) name: String,
    pub(super) address: IpAddr,
    /// It may be asked there too.
    pub(super) other_address: Option<IpAddr>,
    pub(super) rules: Rules,
    pub(super) dns: Name,
    pub(super) health: Health,
    pub(super) pages: u32,
    pub(super) took: Duration,
    /// Its first page sends to the first page of this host.
    pub(super) welcome: Option<usize>,
}

impl HostPlan {
    fn never_answers(&self) -> bool {
        matches!(self.dns, Name::None | Name::Private) || self.health == Health::Dead
    }
}

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Page {
    Good {
        nofollow: bool,
    },
    Missing,
    Redirect(usize, u32),
    /// So many requests fail first; `None`: all do.
    Flaky(Option<u32>, Trouble),
}

/// What must come of a URL in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered(u16),
    Failed,
    Disallowed,
    /// Either of these two.
    NotAnswered,
    /// Depends on the moment.
    Any,
}

/// What the answer to a request means by the rules of behaviour, for the checkers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    /// A whole and final answer.
    Final,
    UrlFailed,
    Busy(Option<Duration>),
    HostFailed,
    Nothing,
    Rules {
        crawl_delay: Duration,
    },
    RulesForOthers,
    RulesMoved,
    RulesFailed,
}

impl Meaning {
    /// Whether it shows that a host works. One that says where its rules are does.
    pub(super) fn is_good_news(self) -> bool {
        use Meaning::*;
        matches!(self, Final | UrlFailed | Rules { .. } | RulesForOthers | RulesMoved)
    }
}

/// What a request comes to.
pub(super) struct Reply {
    pub(super) took: Duration,
    pub(super) meaning: Meaning,
    pub(super) result: Result<Answer, FetchError>,
    /// The bytes on the wire, if there is an answer.
    pub(super) wire: Option<Vec<u8>>,
}

/// A host as the core knows it.
#[derive(Clone, Debug)]
pub(super) struct PlannedHost {
    pub(super) name: Host,
    pub(super) partition: u16,
}

impl PlannedHost {
    fn of(name: Host) -> PlannedHost {
        PlannedHost { partition: partition_of(&name), name }
    }
}

pub(super) struct Plan {
    pub(super) seed: u64,
    /// Hosts lead to each other, and many pages are found on other hosts only.
    pub(super) of_site: bool,
    pub(super) hosts: Vec<HostPlan>,
    /// The same as the core names them.
    names: Vec<PlannedHost>,
    pub(super) urls: BTreeMap<String, (usize, Target)>,
    pub(super) seeds: Vec<Url>,
    /// What must be settled in the end.
    pub(super) must: BTreeMap<String, Fate>,
    /// What may be known at all.
    pub(super) may: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    Page(u32),
    Robots,
    RulesForOthers,
    RulesMoved,
    Sitemap,
}

impl Plan {
    /// The web of one agent: few hosts, with all that can happen.
    pub(super) fn new(seed: u64) -> Plan {
        let mut random = Random::fork(seed, "web");
        let count = 6 + random.below(6) as usize;
        let hosts: Vec<HostPlan> = (0..count).map(|index| host(&mut random, index, count)).collect();
        Plan::of(seed, hosts, false)
    }

    /// The web of a site: many hosts, all of which answer in the end.
    pub(super) fn of_site(seed: u64) -> Plan {
        let mut random = Random::fork(seed, "web of a site");
        let count = 50 + random.below(11) as usize;
        Plan::of(seed, (0..count).map(|index| host_of_site(&mut random, index, count)).collect(), true)
    }

    fn of(seed: u64, hosts: Vec<HostPlan>, of_site: bool) -> Plan {
        let count = hosts.len();
        let mut plan = Plan {
            seed,
            of_site,
            names: hosts.iter().filter_map(|host| Host::parse(&host.name)).map(PlannedHost::of).collect(),
            hosts,
            urls: BTreeMap::new(),
            seeds: Vec::new(),
            must: BTreeMap::new(),
            may: BTreeSet::new(),
        };
        for index in 0..count {
            let pages = plan.hosts[index].pages + 3;
            let mut targets: Vec<Target> = (0..pages).map(Target::Page).collect();
            targets.extend([Target::Robots, Target::RulesForOthers, Target::RulesMoved, Target::Sitemap]);
            for target in targets {
                plan.urls.insert(plan.url(index, target), (index, target));
            }
        }
        let seeds = match of_site {
            true => 0..SITE_SEEDS,
            // The last two hosts are in scope only if a seed redirects there.
            false => 0..count - 2,
        };
        plan.seeds = seeds.filter_map(|index| Url::parse(&plan.url(index, Target::Page(0))).ok()).collect();
        plan.foresee();
        plan
    }

    pub(super) fn path(&self, index: usize, target: Target) -> String {
        match target {
            Target::Page(0) => "/".into(),
            Target::Page(n) if self.draw(index, n, "path").percent(12) => format!("/private/p{n}"),
            Target::Page(n) => format!("/p{n}"),
            Target::Robots => "/robots.txt".into(),
            Target::RulesForOthers => RULES_FOR_OTHERS.into(),
            Target::RulesMoved => RULES_MOVED.into(),
            Target::Sitemap => SITEMAP.into(),
        }
    }

    pub(super) fn url(&self, index: usize, target: Target) -> String {
        format!("http://{}{}", self.hosts[index].name, self.path(index, target))
    }

    fn draw(&self, index: usize, page: u32, purpose: &str) -> Random {
        Random::fork(self.seed ^ ((index as u64) << 32 | u64::from(page)), purpose)
    }

    pub(super) fn page(&self, index: usize, n: u32) -> Page {
        if n == 0 {
            return match self.hosts[index].welcome {
                Some(other) => Page::Redirect(other, 0),
                None => Page::Good { nofollow: false },
            };
        }
        let mut random = self.draw(index, n, "page");
        let fails = Some(1 + random.below(3) as u32);
        let longest = if self.of_site { 60 } else { 900 };
        let wait = random.percent(50).then(|| [1, 20, 90, 900][random.below(4) as usize].min(longest));
        match random.below(100) {
            0..58 => Page::Good { nofollow: random.percent(8) },
            58..64 => Page::Missing,
            64..74 => {
                let other =
                    if random.percent(70) { index } else { random.below(self.hosts.len() as u64) as usize };
                Page::Redirect(other, random.below(u64::from(self.hosts[other].pages)) as u32)
            }
            74..78 => Page::Flaky(fails, Trouble::Status500),
            78..81 => Page::Flaky(fails, Trouble::Timeout),
            81..84 => Page::Flaky(fails, Trouble::CutShort),
            84..86 => Page::Flaky(fails, Trouble::Reset),
            // Rules that were had elsewhere end the back-off of such a host, which the checker of manners does not see.
            86..92 if self.of_site && matches!(self.hosts[index].rules, Rules::Elsewhere(_)) => {
                Page::Flaky(fails, Trouble::Status500)
            }
            86..92 => Page::Flaky(fails, Trouble::Busy(wait)),
            92..96 => Page::Flaky(Some(1), Trouble::Stale),
            96..98 => Page::Flaky(None, Trouble::Status500),
            _ => Page::Flaky(None, Trouble::Reset),
        }
    }

    /// Whether a page is linked from the next host instead of its own.
    fn is_adopted(&self, index: usize, n: u32) -> bool {
        self.of_site && self.draw(index, n, "adopted").percent(30)
    }

    pub(super) fn links(&self, index: usize, n: u32) -> Vec<String> {
        let mut random = self.draw(index, n, "links");
        let count = self.hosts.len();
        let mut links = Vec::new();
        // Its own children, and those of the host before that it has taken in.
        for (parent, own) in [(index, true), ((index + count - 1) % count, false)] {
            for child in [2 * n + 1, 2 * n + 2].into_iter().filter(|child| *child < self.hosts[parent].pages)
            {
                if self.is_adopted(parent, child) != own {
                    links.push(self.url(parent, Target::Page(child)));
                }
            }
        }
        if self.of_site && n < 4 {
            let child = 2 * index + 1 + n as usize % 2;
            links.extend((child < count).then(|| self.url(child, Target::Page(0))));
        }
        for _ in 0..random.below(3) {
            let other = random.below(self.hosts.len() as u64) as usize;
            let page = random.below(u64::from(self.hosts[other].pages)) as u32;
            links.push(self.url(other, Target::Page(page)));
        }
        links
    }

    /// The rules that bind a host, once they are had.
    pub(super) fn rules_of(&self, index: usize) -> Given {
        match &self.hosts[index].rules {
            Rules::Missing => Given::default(),
            Rules::Given(given) | Rules::FailFirst(_, _, given) | Rules::Moved(given) => given.clone(),
            Rules::Elsewhere(_) => given_for_others(),
        }
    }

    /// Whether rules forbid a URL.
    pub(super) fn forbids(&self, url: &str) -> bool {
        let Some((index, target)) = self.urls.get(url) else { return false };
        let rules = self.rules_of(*index);
        matches!(target, Target::Page(_) | Target::Sitemap)
            && (rules.disallow_all
                || rules.disallow_private && self.path(*index, *target).starts_with("/private/"))
    }

    /// The host of a URL.
    pub(super) fn host_of(&self, url: &str) -> Option<PlannedHost> {
        match self.urls.get(url) {
            Some((index, _)) => self.names.get(*index).cloned(),
            None => Url::parse(url).ok().map(|url| PlannedHost::of(Host::of(&url))),
        }
    }

    /// The host that delivers the rules of this one, if it is another.
    pub(super) fn rules_elsewhere(&self, host: &str) -> Option<&str> {
        let plan = self.hosts.iter().find(|plan| plan.name == host)?;
        match plan.rules {
            Rules::Elsewhere(other) => Some(&self.hosts[other].name),
            _ => None,
        }
    }

    fn fate(&self, index: usize, target: Target) -> Fate {
        let host = &self.hosts[index];
        if host.dns == Name::Rebinding {
            return Fate::Any;
        }
        if host.never_answers() || host.health == Health::Busy && matches!(target, Target::Page(_)) {
            return Fate::NotAnswered;
        }
        if host.health == Health::Busy {
            return Fate::Any;
        }
        if let Rules::Elsewhere(other) = host.rules {
            let other = &self.hosts[other];
            if other.never_answers() {
                return Fate::NotAnswered;
            }
            // It may be in trouble of its own whenever it is asked.
            if other.dns == Name::Rebinding
                || other.health == Health::Busy
                || matches!(other.rules, Rules::Elsewhere(_))
            {
                return Fate::Any;
            }
        }
        if self.forbids(&self.url(index, target)) {
            return Fate::Disallowed;
        }
        match target {
            Target::Page(n) => match self.page(index, n) {
                Page::Missing => Fate::Answered(404),
                Page::Redirect(..) => Fate::Answered(301),
                Page::Flaky(None, _) => Fate::Failed,
                Page::Good { .. } | Page::Flaky(Some(_), _) => Fate::Answered(200),
            },
            _ => Fate::Answered(200),
        }
    }

    /// Where a page leads: by links, or by a redirect.
    pub(super) fn leads(&self, index: usize, target: Target) -> Vec<String> {
        match target {
            Target::Page(n) => match self.page(index, n) {
                Page::Redirect(other, to) => vec![self.url(other, Target::Page(to))],
                Page::Good { nofollow: false } | Page::Flaky(Some(_), _) => self.links(index, n),
                _ => Vec::new(),
            },
            Target::Sitemap => (self.hosts[index].pages..self.hosts[index].pages + 3)
                .map(|n| self.url(index, Target::Page(n)))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Works out what must and what may become known. What is found of a host that only a seed's redirect brought into
    /// scope depends on what was fetched first, unless it was found on that host itself.
    fn foresee(&mut self) {
        let others = if self.of_site { 0 } else { 2 };
        let mut in_scope: BTreeSet<usize> = (0..self.hosts.len() - others).collect();
        let first = in_scope.clone();
        in_scope.extend(first.iter().filter_map(|index| self.hosts[*index].welcome));
        let (mut must, mut may) = (BTreeMap::new(), BTreeSet::new());
        let mut work: Vec<(String, bool)> = self.seeds.iter().map(|url| (url.to_string(), true)).collect();
        while let Some((url, certain)) = work.pop() {
            let Some(&(index, target)) = self.urls.get(&url) else { continue };
            let fate = self.fate(index, target);
            let more = may.insert(url.clone()) | (certain && must.insert(url, fate).is_none());
            if !more {
                continue;
            }
            if self.rules_of(index).sitemap {
                // Asking for any of its URLs makes its sitemap known.
                work.push((self.url(index, Target::Sitemap), certain && matches!(fate, Fate::Answered(_))));
            }
            if !matches!(fate, Fate::Answered(_) | Fate::Any) {
                continue;
            }
            let certain = certain && fate != Fate::Any;
            let welcome = target == Target::Page(0) && self.hosts[index].welcome.is_some();
            for to in self.leads(index, target) {
                let other = self.urls[&to].0;
                let sure = first.contains(&other) || other == index || welcome;
                if in_scope.contains(&other) {
                    work.push((to, certain && sure));
                }
            }
        }
        (self.must, self.may) = (must, may);
    }

    /// The bytes of the answer with this status.
    pub(super) fn wire(&self, url: &str, status: u16) -> Vec<u8> {
        let filling = || "x".repeat(50 + Random::fork(self.seed, url).below(1_500) as usize);
        let body = match self.urls.get(url) {
            Some((index, Target::Robots | Target::RulesMoved)) if status == 200 => {
                self.rules_of(*index).text(&self.hosts[*index].name)
            }
            Some((_, Target::RulesForOthers)) => given_for_others().text(""),
            Some((index, target)) if status == 200 => {
                let leads = self.leads(*index, *target);
                let is_map = *target == Target::Sitemap;
                let link = |url: &String| match is_map {
                    true => format!("<url><loc>{url}</loc></url>"),
                    false => format!("<a href=\"{url}\">to</a>"),
                };
                let links: String = leads.iter().map(link).collect();
                if is_map { format!("<urlset>{links}</urlset>") } else { format!("{links}<p>{}", filling()) }
            }
            _ => filling(),
        };
        let kind = match self.urls.get(url) {
            Some((index, target @ Target::Page(_))) if status == 301 => {
                format!("Location: {}\r\n", self.leads(*index, *target).concat())
            }
            Some((_, Target::Page(_))) => "Content-Type: text/html\r\n".into(),
            _ => String::new(),
        };
        let length = body.len();
        format!("HTTP/1.1 {status} Simulated\r\n{kind}Content-Length: {length}\r\n\r\n{body}").into_bytes()
    }
}

impl Given {
    pub(super) fn text(&self, host: &str) -> String {
        let mut text = String::from("User-agent: *\n");
        if self.disallow_private {
            text.push_str("Disallow: /private/\n");
        }
        if self.disallow_all {
            text.push_str("Disallow: /\n");
        }
        if let Some(delay) = self.crawl_delay_s {
            text.push_str(&format!("Crawl-delay: {delay}\n"));
        }
        if self.sitemap {
            text.push_str(&format!("Sitemap: http://{host}{SITEMAP}\n"));
        }
        text
    }
}

pub(super) fn given_for_others() -> Given {
    Given { disallow_private: true, ..Given::default() }
}

fn host_of_site(random: &mut Random, index: usize, count: usize) -> HostPlan {
    let given = Given {
        disallow_private: random.percent(70),
        disallow_all: false,
        crawl_delay_s: random.percent(10).then(|| [2, 12, 25][random.below(3) as usize]),
        sitemap: random.percent(30),
    };
    let trouble = match random.below(3) {
        0 => Trouble::Status500,
        1 => Trouble::Timeout,
        _ => Trouble::Stale,
    };
    let rules = match random.below(100) {
        0..25 => Rules::Missing,
        25..75 => Rules::Given(given),
        75..83 => Rules::FailFirst(1 + random.below(2) as u32, trouble, given),
        83..91 => Rules::Moved(given),
        _ => Rules::Elsewhere((index + 1 + random.below(count as u64 - 1) as usize) % count),
    };
    let dns = if random.percent(7) { Name::FailFirst(1) } else { Name::Good };
    let took = if random.percent(8) { 3_000 } else { 20 + random.below(500) };
    // A third of the hosts share four addresses, and some of these have two of them.
    let shared = |random: &mut Random| 200 + random.below(4) as u8;
    let (last, other) = match random.percent(35) {
        true => (shared(random), random.percent(25).then(|| shared(random))),
        false => (index as u8, None),
    };
    HostPlan {
        name: format!("h{index}.example"),
        address: [93, 184, 216, last].into(),
        other_address: other.map(|last| [93, 184, 216, last].into()),
        rules,
        dns,
        health: Health::Good,
        pages: 60 + random.below(30) as u32,
        took: Duration::from_millis(took),
        welcome: None,
    }
}

fn host(random: &mut Random, index: usize, count: usize) -> HostPlan {
    let given = Given {
        disallow_private: random.percent(70),
        disallow_all: index > 0 && random.percent(5),
        crawl_delay_s: random.percent(25).then(|| [2, 5, 30][random.below(3) as usize]),
        sitemap: random.percent(30),
    };
    let given = Given { sitemap: given.sitemap && !given.disallow_all, ..given };
    let other = (index + 1 + random.below(count as u64 - 1) as usize) % count;
    let trouble = match random.below(5) {
        0 => Trouble::Status500,
        1 => Trouble::Busy(random.percent(50).then_some(200)),
        2 => Trouble::Refused,
        3 => Trouble::Timeout,
        _ => Trouble::Stale,
    };
    let rules = match random.below(100) {
        0..25 => Rules::Missing,
        25..60 => Rules::Given(given.clone()),
        60..75 => Rules::FailFirst(1 + random.below(3) as u32, trouble, given.clone()),
        75..88 => Rules::Elsewhere(other),
        _ => Rules::Moved(given.clone()),
    };
    let (dns, health) = match random.below(100) {
        _ if index == 0 => (Name::Good, Health::Good),
        0..5 => (Name::None, Health::Good),
        5..12 => (Name::FailFirst(1 + random.below(3) as u32), Health::Good),
        12..16 => (Name::Private, Health::Good),
        16..20 => (Name::Rebinding, Health::Good),
        20..24 => (Name::Good, Health::Dead),
        24..28 => (Name::Good, Health::Busy),
        _ => (Name::Good, Health::Good),
    };
    // A third of the hosts share three addresses.
    let last = if random.percent(35) { 200 + random.below(3) as u8 } else { index as u8 };
    let address = if dns == Name::Private { [10, 0, 0, last] } else { [93, 184, 216, last] };
    let took = if random.percent(8) { 3_000 } else { 20 + random.below(500) };
    HostPlan {
        name: format!("h{index}.example"),
        address: address.into(),
        other_address: None,
        rules,
        dns,
        health,
        pages: 3 + random.below(14) as u32,
        took: Duration::from_millis(took),
        welcome: (random.percent(10) && index > 0 && index + 2 < count)
            .then(|| count - 1 - random.below(2) as usize),
    }
}
