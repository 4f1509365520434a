//! The kinds of host, each wrong in one particular way, with what a right crawler does about it.
//!
//! A kind is a row of a table: what differs from [`PLAIN`]. The rules follow the project's documented behaviour; where
//! that is silent, the kind's `about` says what is expected instead. To add a kind, add a row.

mod bench;
mod bodies;
mod charsets;
mod codings;
mod connections;
mod directives;
mod federation;
mod heads;
mod html;
mod http2;
mod names;
mod redirects;
mod robots;
mod sitemaps;
mod statuses;
mod traps;
mod urls;

use std::{collections::HashMap, sync::LazyLock};

use super::{
    plan::{Host, Rule, Sub, Visit, numbered_page, page_target},
    reply::Reply,
    text::small_page,
};

pub(super) use codings::prepare;

/// How often a URL that fails is tried, at most.
pub const ATTEMPTS_MAX: u32 = 4;

/// One kind of host.
pub struct Kind {
    /// Its name, which its hosts' names begin with.
    pub name: &'static str,
    /// What is particular about it and what a right crawler does, in a sentence.
    pub about: &'static str,
    /// Where its pages are.
    pub home: Home,
    /// Which names it has besides the bare one.
    pub subs: &'static [Sub],
    /// Groups of its hosts have one address; so many stand together in a web of all kinds. 0 if each has its own.
    pub share_address: u32,
    /// Ordinary pages at most.
    pub pages_max: u32,
    /// How many of them a host has, if no more than that.
    pub sizes: fn(&Host<'_>) -> u32,
    /// Where each of them is,
    pub target: fn(&Host<'_>, u64, &mut String),
    /// and which one is where.
    pub page_of: fn(&Host<'_>, &str) -> Option<u32>,
    /// What is expected as to its ordinary pages.
    pub base: Rule,
    /// Answers robots.txt.
    pub robots: fn(&Visit<'_>) -> Reply,
    /// Its pages that are not ordinary.
    pub specials: fn(&Host<'_>) -> Vec<Special>,
    /// Pages that are too many to list.
    pub open: fn(&Host<'_>, &str) -> Option<Special>,
    /// Makes one of all spellings of a target.
    pub spelling: fn(&str) -> String,
    /// Changes every answer.
    pub twist: fn(&Visit<'_>, &mut Reply),
    /// Cookies may come back to it.
    pub takes_cookies: bool,
    /// What it does to connections.
    pub connect: Connect,
    /// What its certificate is like.
    pub certificate: Certificate,
    /// How its names resolve.
    pub names: Names,
    /// Makes its ordinary pages, as they go over the wire.
    pub page: fn(&Host<'_>, u32) -> Vec<u8>,
    /// A web of all kinds has it; others have to be asked for.
    pub in_all: bool,
    /// How many requests it may cost, robots.txt included.
    pub requests_max: fn(&Host<'_>) -> u64,
    /// How many bytes it may send.
    pub bytes_max: u64,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Where the pages of a host are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Under http or https, as the seed has it.
    Mixed,
    /// Under http.
    Http,
    /// Under https.
    Https,
    /// At https with `www.`, where http without it redirects to.
    Moved,
}

/// What a host does to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// Serves them.
    Serve,
    /// Resets them at once.
    Reset,
    /// Reads what comes and never says anything.
    Silent,
    /// Answers the TLS hello with plain HTTP.
    Garbage,
    /// Knows only versions of TLS that nobody should use.
    OldTls,
    /// Closes at the TLS hello.
    CloseTls,
    /// Serves them, but speaks only HTTP/2: whoever offers HTTP/1.1 alone is refused.
    OnlyHttp2,
    /// The same, but never answers: it sends frames that mean nothing, for as long as somebody reads them.
    FloodHttp2,
}

/// What the certificate of a host is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certificate {
    /// Right.
    Valid,
    /// Ended in 2020.
    Expired,
    /// For another name.
    WrongName,
    /// Of an authority that nobody knows.
    Untrusted,
    /// Of itself.
    SelfSigned,
    /// Of an intermediate authority whose certificate is not sent along.
    Incomplete,
}

/// How the names of a host resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// To the address, for five minutes.
    Plain,
    /// Not at all.
    NxDomain,
    /// The server fails.
    ServFail,
    /// The server fails so often before it answers.
    Flaky(u32),
    /// No answer.
    Timeout,
    /// To the address so many times, then into 127.128.0.0/9, with a TTL of 0.
    Rebinding(u32),
    /// Into 127.128.0.0/9.
    PrivateLoopback,
    /// Into 10.0.0.0/8.
    Private,
    /// To `::1`, and to no IPv4 address.
    PrivateV6,
    /// Over a chain of aliases.
    Alias,
    /// Only over TCP: UDP answers are cut.
    Truncated,
    /// To the address, with a TTL of 0.
    NoTtl,
    /// There is no name: the address stands in URLs.
    Address,
}

/// A page that is not ordinary.
pub struct Special {
    /// Path and query.
    pub target: String,
    /// What is expected as to it.
    pub rule: Rule,
    /// How the front page links to it, in HTML.
    pub html: String,
    /// Answers requests for it.
    pub answer: Answer,
}

/// Answers a visit.
pub type Answer = Box<dyn Fn(&Visit<'_>) -> Reply>;

impl Special {
    /// A small page that the front page links to.
    pub fn page(target: &str, rule: Rule) -> Special {
        Special {
            target: target.to_owned(),
            rule,
            html: format!("<a href=\"{target}\">special</a>"),
            answer: Box::new(|visit| Reply::html(&small_page(&visit.host, visit.target, ""))),
        }
    }

    /// The same, but with these links on it, in HTML.
    pub fn with_links(self, links: String) -> Special {
        self.answering(move |visit| Reply::html(&small_page(&visit.host, visit.target, &links)))
    }

    /// The same, but linked by the front page like this.
    pub fn linked(self, html: &str) -> Special {
        Special { html: html.to_owned(), ..self }
    }

    /// The same, but not linked by the front page.
    pub fn unlinked(self) -> Special {
        self.linked("")
    }

    /// The same, but answered so.
    pub fn answering(self, answer: impl Fn(&Visit<'_>) -> Reply + 'static) -> Special {
        Special { answer: Box::new(answer), ..self }
    }
}

/// A host without anything wrong: rules that matter little, pages that are all to be fetched.
pub const PLAIN: Kind = Kind {
    name: "plain",
    about: "nothing is wrong: every page is fetched once",
    home: Home::Mixed,
    subs: &[],
    share_address: 0,
    pages_max: u32::MAX,
    sizes: |host| host.plan.config.pages,
    target: |_, page, out| page_target(out, page),
    page_of: numbered_page,
    base: Rule::Expected,
    robots: |_| Reply::robots("User-agent: *\nDisallow: /never/\n"),
    specials: |_| Vec::new(),
    open: |_, _| None,
    spelling: str::to_owned,
    twist: |_, _| {},
    takes_cookies: false,
    connect: Connect::Serve,
    certificate: Certificate::Valid,
    names: Names::Plain,
    page: |host, page| host.page(page),
    in_all: true,
    requests_max: |_| u64::MAX,
    bytes_max: u64::MAX,
};

/// All kinds; the first is [`PLAIN`].
pub fn all() -> &'static [Kind] {
    static ALL: LazyLock<Vec<Kind>> = LazyLock::new(|| {
        let tables = [
            vec![PLAIN],
            robots::kinds(),
            directives::kinds(),
            redirects::kinds(),
            statuses::kinds(),
            bodies::kinds(),
            codings::kinds(),
            charsets::kinds(),
            html::kinds(),
            urls::kinds(),
            traps::kinds(),
            sitemaps::kinds(),
            heads::kinds(),
            connections::kinds(),
            http2::kinds(),
            names::kinds(),
            bench::kinds(),
            federation::kinds(),
        ];
        tables.into_iter().flatten().collect()
    });
    &ALL
}

/// The number of the kind of this name.
pub fn find(name: &str) -> Option<usize> {
    static BY_NAME: LazyLock<HashMap<&'static str, usize>> =
        LazyLock::new(|| all().iter().enumerate().map(|(index, kind)| (kind.name, index)).collect());
    BY_NAME.get(name).copied()
}
