//! What the web is: which hosts there are, where, with which pages and links, and what is expected of a crawler.
//!
//! Pure: everything follows from the configuration, and nothing is kept for a host or a page. Experiments use it to know
//! beforehand what a right crawl brings home.

use std::{
    collections::HashMap,
    fmt,
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    Kinds, WebConfig, WebError,
    kinds::{self, Home, Kind, Names, Special},
    reply::{self, Reply, RobotsSays},
    text::{self, Text},
};

/// Most hosts a web can have; bounded by the addresses below 127.128.0.0.
pub const HOSTS_MAX: u32 = 1_000_000;
/// Most ordinary pages a host can have.
pub const PAGES_MAX: u32 = 10_000_000;
/// The first own address of a host; before it are the machine's own and the control's.
const ADDRESSES: u32 = u32::from_be_bytes([127, 1, 0, 0]);
/// Where hosts that share an address are.
const ADDRESSES_SHARED: u32 = u32::from_be_bytes([127, 100, 0, 0]);
/// How many children a page has in the tree that makes every page reachable.
const CHILDREN: u64 = 8;
/// Extra links of a page at most, whatever the power law says.
const LINKS_MAX: u64 = 200;

/// What is expected of a crawler as to one URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Has to be fetched, whole, and only once.
    Expected,
    /// Has to be asked for, and not more often than this; it never succeeds, or the answer is cut by a limit.
    Tried(u32),
    /// May be fetched, once.
    Optional,
    /// May be asked for at any time and again: robots.txt, what it redirects to, and mere connects.
    Free,
    /// Must not be asked for.
    Forbidden(Offence),
    /// Is no URL of this web: nobody can have found it here.
    Unknown,
}

/// Why a URL must not be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// robots.txt says no, or could not be had.
    Robots,
    /// Only links that must not be followed lead there.
    Nofollow,
    /// The URL is beyond the limits on length, depth or repetition.
    Limits,
    /// The host's certificate is not valid.
    Tls,
    /// It is at a private address.
    Private,
}

/// Numbers that look random and are the same every time: SplitMix64 over a hash of what they are for.
#[derive(Clone, Debug)]
pub struct Mix(u64);

impl Mix {
    /// The sequence for this purpose.
    pub fn new(purpose: &[u64]) -> Mix {
        let fold = |state: u64, part: &u64| xxh3_64_with_seed(&part.to_le_bytes(), state);
        Mix(purpose.iter().fold(0, fold))
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The whole web.
#[derive(Debug)]
pub struct Plan {
    /// What it was made from, with the ports as they are.
    pub config: WebConfig,
    /// The kinds of the first hosts, then from the beginning again. Indexes of [`kinds::all`].
    cycle: Vec<usize>,
    /// Where in the cycle each kind stands.
    places: HashMap<usize, Vec<u32>>,
    text: Text,
}

/// Which of a host's names: most have only the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sub {
    /// The name itself.
    Bare,
    /// With `www.` before it.
    Www,
    /// With `rules.` before it: where a robots.txt redirects to another host.
    Rules,
}

/// One host under one of its names.
#[derive(Clone, Copy)]
pub struct Host<'p> {
    /// The web it is in.
    pub plan: &'p Plan,
    /// Its number in the web.
    pub index: u32,
    /// What kind it is.
    pub kind: &'static Kind,
    /// The kind's number in [`kinds::all`].
    pub kind_index: usize,
    /// Its number within the kind.
    pub serial: u32,
    /// Which name.
    pub sub: Sub,
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// What a request is for.
pub struct Target {
    /// What is expected of the crawler as to it.
    pub rule: Rule,
    /// Identity of the URL: equal for spellings of one URL.
    pub key: u64,
    what: What,
}

enum What {
    Robots,
    Page(u32),
    Special(Special),
    Home,
    Nothing,
}

/// A URL that a crawler has to fetch or try.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Where it is.
    pub host: Host<'a>,
    /// Whether over TLS.
    pub https: bool,
    /// Path and query.
    pub target: &'a str,
    /// Whether it has to be fetched or tried.
    pub rule: Rule,
    /// Identity of the URL.
    pub key: u64,
}

impl Expected<'_> {
    /// The whole URL.
    pub fn url(&self) -> String {
        format!("{}{}", self.host.origin_as(self.https), self.target)
    }
}

/// One request, as far as answers depend on it.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// The host asked.
    pub host: Host<'a>,
    /// Path and query as asked for.
    pub target: &'a str,
    /// How often this URL has been asked for, this time included.
    pub attempt: u32,
    /// How many requests this connection has seen, this one included.
    pub nth_on_connection: u32,
    /// Whether the request carries a cookie.
    pub cookie: bool,
}

impl Plan {
    /// The web of this configuration.
    pub fn new(config: WebConfig) -> Result<Plan, WebError> {
        let all = kinds::all();
        let find = |name: &String| kinds::find(name).ok_or_else(|| WebError::UnknownKind(name.clone()));
        let cycle: Vec<usize> = match &config.kinds {
            Kinds::All => {
                let times = |kind: usize| std::iter::repeat_n(kind, all[kind].share_address.max(1) as usize);
                let others: Vec<usize> =
                    (1..all.len()).filter(|kind| all[*kind].in_all).flat_map(times).collect();
                others.chunks(2).flat_map(|two| std::iter::once(0).chain(two.iter().copied())).collect()
            }
            Kinds::Only(names) => names.iter().map(find).collect::<Result<_, _>>()?,
        };
        if cycle.is_empty() {
            return Err(WebError::Config("kinds must name at least one kind".to_owned()));
        }
        let mut places: HashMap<usize, Vec<u32>> = HashMap::new();
        for (place, kind) in cycle.iter().enumerate() {
            places.entry(*kind).or_default().push(place as u32);
        }
        let text = Text::new(config.seed);
        Ok(Plan { config, cycle, places, text })
    }

    /// The host of this number, under its bare name.
    pub fn host(&self, index: u32) -> Option<Host<'_>> {
        if index >= self.config.hosts {
            return None;
        }
        let (round, place) = (index / self.cycle.len() as u32, index % self.cycle.len() as u32);
        let kind_index = self.cycle[place as usize];
        let places = &self.places[&kind_index];
        let rank = places.iter().position(|p| *p == place)? as u32;
        let serial = round * places.len() as u32 + rank;
        Some(Host { plan: self, index, kind: &kinds::all()[kind_index], kind_index, serial, sub: Sub::Bare })
    }

    /// All hosts, in order, under their bare names.
    pub fn hosts(&self) -> impl Iterator<Item = Host<'_>> {
        (0..self.config.hosts).filter_map(|index| self.host(index))
    }

    /// The host of this name, which may be one of its further names.
    pub fn by_name(&self, name: &str) -> Option<Host<'_>> {
        let name = name.strip_suffix('.').unwrap_or(name);
        if let Ok(address) = name.parse() {
            return self.by_address(address).filter(|host| host.kind.names == Names::Address);
        }
        let lower = name.to_ascii_lowercase();
        let rest = lower.strip_suffix(".test")?;
        let (sub, rest) = match rest.split_once('.') {
            None => (Sub::Bare, rest),
            Some(("www", rest)) => (Sub::Www, rest),
            Some(("rules", rest)) => (Sub::Rules, rest),
            Some(_) => return None,
        };
        let (kind, serial) = rest.rsplit_once('-')?;
        let canonical = serial == "0" || !serial.starts_with('0');
        let serial: u32 = serial.parse().ok().filter(|_| canonical)?;
        let places = self.places.get(&kinds::find(kind)?)?;
        let (round, rank) = (serial / places.len() as u32, serial % places.len() as u32);
        let index = round.checked_mul(self.cycle.len() as u32)?.checked_add(places[rank as usize])?;
        let host = self.host(index)?;
        (sub == Sub::Bare || host.kind.subs.contains(&sub)).then_some(Host { sub, ..host })
    }

    /// The host that has this address to itself.
    pub fn by_address(&self, address: Ipv4Addr) -> Option<Host<'_>> {
        let host = self.host(u32::from(address).checked_sub(ADDRESSES)?)?;
        (host.address() == address).then_some(host)
    }

    /// The URLs to start from: where each host is entered.
    pub fn seeds(&self) -> Vec<String> {
        let wanted = if self.config.seeds == 0 { self.config.hosts } else { self.config.seeds };
        self.hosts().take(wanted as usize).map(|host| format!("{}/", host.entry())).collect()
    }

    /// Host, scheme and target of an absolute URL of this web.
    pub fn locate<'u>(&self, url: &'u str) -> Option<(Host<'_>, bool, &'u str)> {
        let (scheme, rest) = url.split_once("://")?;
        let https = scheme == "https";
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        let name = authority.split(':').next()?;
        Some((self.by_name(name)?, https, if target.is_empty() { "/" } else { target }))
    }
}

impl<'p> Host<'p> {
    /// Its name, or its address if it has none.
    pub fn name(&self) -> String {
        if self.kind.names == Names::Address {
            return self.address().to_string();
        }
        let sub = match self.sub {
            Sub::Bare => "",
            Sub::Www => "www.",
            Sub::Rules => "rules.",
        };
        format!("{sub}{}-{}.test", self.kind.name, self.serial)
    }

    /// Its address, which may be shared.
    pub fn address(&self) -> Ipv4Addr {
        match self.kind.share_address {
            0 => Ipv4Addr::from(ADDRESSES + self.index),
            group => Ipv4Addr::from(ADDRESSES_SHARED + self.serial / group),
        }
    }

    /// Numbers for some purpose that are the same for this host wherever in the web it stands.
    pub fn mix(&self, purpose: u64, number: u64) -> Mix {
        let kind = xxh3_64_with_seed(self.kind.name.as_bytes(), self.plan.config.seed);
        Mix::new(&[kind, u64::from(self.serial), purpose, number])
    }

    /// Under which of its names and schemes its pages are: `(name, https)`.
    pub fn home(&self) -> (Sub, bool) {
        match self.kind.home {
            Home::Mixed => (Sub::Bare, self.mix(1, 0).below(100) < u64::from(self.plan.config.https_percent)),
            Home::Http => (Sub::Bare, false),
            Home::Https => (Sub::Bare, true),
            Home::Moved => (Sub::Www, true),
        }
    }

    /// Scheme, name and port where its pages are.
    pub fn origin(&self) -> String {
        let (sub, https) = self.home();
        Host { sub, ..*self }.origin_as(https)
    }

    /// Scheme, name and port under this name.
    pub fn origin_as(&self, https: bool) -> String {
        let config = &self.plan.config;
        let name = self.name();
        match (https, config.http_port, config.https_port) {
            (false, 80, _) => format!("http://{name}"),
            (false, port, _) => format!("http://{name}:{port}"),
            (true, _, 443) => format!("https://{name}"),
            (true, _, port) => format!("https://{name}:{port}"),
        }
    }

    /// Scheme, name and port that a seed list has for it.
    pub fn entry(&self) -> String {
        match self.kind.home {
            Home::Moved => self.origin_as(false),
            _ => self.origin(),
        }
    }

    /// How many ordinary pages it has, the front page included.
    pub fn pages(&self) -> u32 {
        (self.kind.sizes)(self).min(self.kind.pages_max)
    }

    /// How long it takes to answer.
    pub fn latency(&self) -> Duration {
        let (low, high) = self.plan.config.latency_ms;
        let ms = u64::from(low) + self.mix(2, 0).below(u64::from(high - low) + 1);
        self.plan.config.scaled(Duration::from_millis(ms))
    }

    /// How much longer a request takes to it that comes from this address.
    pub fn distance(&self, from: IpAddr) -> Duration {
        let WebConfig { places, far_ms, .. } = &self.plan.config;
        let is_far = (0..*places).any(|place| place != self.index % places && from == super::asker(place));
        self.plan.config.scaled(Duration::from_millis(if is_far { *far_ms } else { 0 }))
    }

    /// A number for the judge that is this name's alone.
    pub fn key(&self) -> u64 {
        u64::from(self.index) * 4 + self.sub as u64
    }

    fn url_key(&self, https: bool, target: &str) -> u64 {
        xxh3_64_with_seed(target.as_bytes(), self.key() * 2 + u64::from(https))
    }

    /// What a request for a target (path and query) is for.
    pub fn resolve(&self, https: bool, target: &str) -> Target {
        let made = |rule, spelling: &str, what| Target { rule, key: self.url_key(https, spelling), what };
        if self.sub == Sub::Rules {
            return match (self.kind.open)(self, target) {
                Some(special) => made(special.rule, target, What::Special(special)),
                None => made(Rule::Unknown, target, What::Nothing),
            };
        }
        if (self.sub, https) != self.home() {
            let entered = target == "/" && self.kind.home == Home::Moved && self.sub == Sub::Bare && !https;
            let rule = match (entered, target) {
                (true, _) => Rule::Expected,
                (false, "/robots.txt") => Rule::Free,
                _ => Rule::Optional,
            };
            return made(rule, target, What::Home);
        }
        if target == "/robots.txt" {
            return made(Rule::Free, target, What::Robots);
        }
        let spelling = (self.kind.spelling)(target);
        let mut specials = (self.kind.specials)(self).into_iter();
        if let Some(special) = specials.find(|special| special.target == spelling) {
            return made(special.rule, &spelling, What::Special(special));
        }
        if let Some(special) = (self.kind.open)(self, target) {
            return made(special.rule, target, What::Special(special));
        }
        match self.page_of(target) {
            Some(page) => made(self.kind.base, target, What::Page(page)),
            None => made(Rule::Unknown, target, What::Nothing),
        }
    }

    /// Which ordinary page a target is.
    pub fn page_of(&self, target: &str) -> Option<u32> {
        (self.kind.page_of)(self, target)
    }

    /// Names every URL that a crawler has to fetch or try.
    pub fn expected(&self, mut each: impl FnMut(&Expected<'_>)) {
        let (sub, https) = self.home();
        let home = Host { sub, ..*self };
        let mut name = |host: Host<'_>, https: bool, target: &str, rule: Rule| {
            if matches!(rule, Rule::Expected | Rule::Tried(_)) {
                each(&Expected { host, https, target, rule, key: host.url_key(https, target) });
            }
        };
        if self.kind.home == Home::Moved {
            name(Host { sub: Sub::Bare, ..*self }, false, "/", Rule::Expected);
        }
        let mut target = String::new();
        for page in 0..self.pages() {
            target.clear();
            (self.kind.target)(&home, u64::from(page), &mut target);
            name(home, https, &target, self.kind.base);
        }
        for special in (self.kind.specials)(&home) {
            name(home, https, &special.target, special.rule);
        }
    }

    /// The answer to a visit of a target.
    pub fn answer(&self, target: &Target, visit: &Visit<'_>) -> Reply {
        let mut reply = match &target.what {
            What::Robots => (self.kind.robots)(visit),
            What::Page(page) => Reply::raw((self.kind.page)(self, *page)),
            What::Special(special) => (special.answer)(visit),
            What::Home => {
                let moved = Reply::redirect(301, &format!("{}{}", self.origin(), visit.target));
                if visit.target == "/robots.txt" { moved.says(RobotsSays::Elsewhere) } else { moved }
            }
            What::Nothing => Reply::new(404, "text/html; charset=utf-8", b"<p>no such page</p>"),
        };
        (self.kind.twist)(visit, &mut reply);
        reply
    }

    /// An ordinary page as it goes over the wire.
    pub fn page(&self, page: u32) -> Vec<u8> {
        let config = &self.plan.config;
        let mut mix = self.mix(3, u64::from(page));
        let mut html = String::with_capacity(4096);
        // Writing to a String cannot fail.
        let _ = write!(
            html,
            "<!doctype html><html><head><meta charset=\"utf-8\"><title>page {page} of {}</title></head>\n<body><ul>\n",
            self.name()
        );
        self.write_links(&mut html, page, &mut mix);
        html.push_str("</ul>\n");
        let wanted = text::page_bytes(config.page_bytes, &mut self.mix(4, u64::from(page)));
        let end = b"</p></body></html>\n";
        let filler = wanted.saturating_sub(html.len() + end.len());
        let len = html.len() + filler + end.len();
        let mut bytes = Vec::with_capacity(len + 128);
        let headers = format!("Content-Type: text/html; charset=utf-8\r\nContent-Length: {len}\r\n\r\n");
        bytes.extend_from_slice(&reply::head(200, &headers));
        bytes.extend_from_slice(html.as_bytes());
        self.plan.text.append(&mut bytes, mix.next_u64(), filler);
        bytes.extend_from_slice(end);
        bytes
    }

    fn write_links(&self, html: &mut String, page: u32, mix: &mut Mix) {
        let pages = u64::from(self.pages());
        let mut link = |prefix: &str, page: u64| {
            html.push_str("<li><a href=\"");
            html.push_str(prefix);
            page_target(html, page);
            html.push_str("\">more</a>\n");
        };
        let first_child = u64::from(page) * CHILDREN + 1;
        for child in first_child..(first_child + CHILDREN).min(pages) {
            link("", child);
        }
        // A Pareto number of links (exponent 2, mean links_per_page), to pages that are the more popular the lower
        // their number is.
        let mean = f64::from(self.plan.config.links_per_page);
        let count = (mean * 0.5 / (1.0 - mix.unit()).sqrt()) as u64;
        for _ in 0..count.min(LINKS_MAX) {
            if mix.below(5) < 4 {
                link("", (pages as f64 * mix.unit().powi(3)) as u64);
            } else if let Some(other) = self.neighbour(mix) {
                let popular = (f64::from(other.pages()) * mix.unit().powi(3)) as u64;
                link(&other.entry(), if other.kind_index == 0 { popular } else { 0 });
            }
        }
        if page == 0 {
            self.write_backbone(html);
            for special in (self.kind.specials)(self) {
                html.push_str(&special.html);
                html.push('\n');
            }
        }
    }

    /// Some other host, mostly one nearby: the logarithm of the distance is uniform.
    fn neighbour(&self, mix: &mut Mix) -> Option<Host<'p>> {
        let hosts = u64::from(self.plan.config.hosts);
        let distance = ((hosts as f64).powf(mix.unit()) as u64).max(1);
        let from = u64::from(self.index) + hosts;
        let index = if mix.below(2) == 0 { from + distance } else { from - distance.min(hosts) };
        self.plan.host((index % hosts) as u32).filter(|host| host.index != self.index)
    }

    /// Links between front pages of plain hosts that make every host reachable from the first: a tree of plain hosts,
    /// each of which also links to the hosts that follow it up to the next plain one.
    fn write_backbone(&self, html: &mut String) {
        if self.kind_index != 0 {
            return;
        }
        let places = &self.plan.places[&0];
        let plain = |serial: u32| {
            let (round, rank) = (serial / places.len() as u32, serial % places.len() as u32);
            self.plan.host(round * self.plan.cycle.len() as u32 + places[rank as usize])
        };
        let next = [self.serial * 2 + 1, self.serial * 2 + 2].into_iter().filter_map(plain);
        let others = (self.index + 1..)
            .map_while(|index| self.plan.host(index))
            .take_while(|host| host.kind_index != 0);
        for host in next.chain(others.take(self.plan.cycle.len())) {
            let _ = writeln!(html, "<li><a href=\"{}/\">{}</a>", host.entry(), host.name());
        }
    }
}

/// The page of a target as [`page_target`] writes it.
pub(super) fn numbered_page(host: &Host<'_>, target: &str) -> Option<u32> {
    if target == "/" {
        return Some(0);
    }
    let number = target.strip_prefix("/p/")?;
    let page: u32 = number.parse().ok()?;
    // One spelling a page: "/p/07" is not "/p/7".
    (page > 0 && page < host.pages() && !number.starts_with(['0', '+'])).then_some(page)
}

pub(super) fn page_target(out: &mut String, page: u64) {
    match page {
        0 => out.push('/'),
        page => {
            // Writing to a String cannot fail.
            let _ = write!(out, "/p/{page}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::web::PageBytes;

    fn plan(hosts: u32, kinds: &str) -> Plan {
        let config =
            WebConfig { hosts, kinds: kinds.parse().unwrap(), http_port: 8080, ..WebConfig::default() };
        Plan::new(WebConfig { https_port: 8443, page_bytes: PageBytes::Fixed(3_000), ..config }).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_web() {
        let (one, two) = (plan(300, "all"), plan(300, "all"));
        let other = Plan::new(WebConfig { seed: 2, ..one.config.clone() }).unwrap();
        assert_eq!(one.seeds(), two.seeds());
        for index in [0, 1, 2, 77, 298] {
            let [a, b, c] = [&one, &two, &other].map(|plan| plan.host(index).unwrap());
            assert_eq!(a.page(0), b.page(0));
            assert_ne!(a.page(0), c.page(0), "{a:?}");
        }
    }

    #[test]
    fn a_plain_host_is_the_same_whatever_else_the_web_has() {
        let (all, plain) = (plan(400, "all"), plan(200, "plain"));
        let [a, b] = [&all, &plain].map(|plan| plan.by_name("plain-17.test").unwrap());
        assert_eq!((a.pages(), a.home(), a.latency()), (b.pages(), b.home(), b.latency()));
        assert_eq!(a.page(3).len(), b.page(3).len(), "only links to other hosts differ");
    }

    #[test]
    fn names_and_addresses_lead_back_to_their_host() {
        let plan = plan(1_000, "all");
        let mut names = HashSet::new();
        for host in plan.hosts() {
            assert_eq!(plan.by_name(&host.name()).map(|host| host.index), Some(host.index));
            assert!(names.insert(host.name()));
            let address = host.address();
            assert!(address.octets()[1] < 128, "{host:?} is at {address}");
            if host.kind.share_address == 0 {
                assert_eq!(plan.by_address(address).map(|host| host.index), Some(host.index));
            }
        }
        for no_name in
            ["plain-01.test", "plain-.test", "www.plain-0.test", "plain-0", "x.test", "plain-99999999.test"]
        {
            assert!(plan.by_name(no_name).is_none(), "{no_name}");
        }
        assert!(plan.by_name("WWW.Moved-0.Test.").is_some());
        let [first, eighth, ninth] =
            ["0", "7", "8"].map(|serial| plan.by_name(&format!("shared-{serial}.test")).unwrap());
        assert_eq!(first.address(), eighth.address());
        assert_ne!(first.address(), ninth.address());
    }

    #[test]
    fn two_hundred_hosts_have_every_kind() {
        let plan = plan(200, "all");
        let kinds: HashSet<usize> = plan.hosts().map(|host| host.kind_index).collect();
        assert_eq!(kinds.len(), kinds::all().iter().filter(|kind| kind.in_all).count());
    }

    /// All hrefs on an ordinary page.
    fn links(host: &Host<'_>, page: u32) -> Vec<String> {
        let html = String::from_utf8(host.page(page)).unwrap();
        html.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_page_is_reachable_from_its_front_page() {
        let plan = plan(3, "plain");
        let host = plan.host(1).unwrap();
        let mut found: HashSet<String> = HashSet::from(["/".to_owned()]);
        let mut open = vec![0];
        while let Some(page) = open.pop() {
            for link in links(&host, page).into_iter().filter(|link| link.starts_with('/')) {
                if found.insert(link.clone()) {
                    open.push(host.page_of(&link).unwrap());
                }
            }
        }
        assert_eq!(found.len(), host.pages() as usize);
    }

    #[test]
    fn every_host_is_reachable_from_the_first() {
        let plan = plan(500, "all");
        let mut found = HashSet::from([0]);
        let mut open = vec![plan.host(0).unwrap()];
        while let Some(host) = open.pop() {
            for link in links(&host, 0) {
                let Some((other, ..)) = plan.locate(&link) else { continue };
                if found.insert(other.index) && other.kind_index == 0 {
                    open.push(other);
                }
            }
        }
        assert_eq!(found.len(), 500);
    }
}
