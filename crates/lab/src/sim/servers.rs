//! The servers of the simulated web and its DNS: what they answer, which depends on how often they were asked.

use std::collections::BTreeMap;
use std::time::Duration;

use nephila_core::agent::{Addresses, Answer, Content, Cut, FetchError, NoAddress};
use nephila_core::assign::Position;
use nephila_core::parse::{Link, LinkKind};
use nephila_core::record::Failure;
use nephila_core::robots::Directives;
use nephila_core::url::Url;

use super::web::{
    Given, Health, Meaning, Name, Page, Plan, RULES_MOVED, Reply, Rules, Target, Trouble, given_for_others,
};

/// How long a request takes that is not answered,
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// and in a site, where hosts share addresses and wait for it.
pub(super) const SITE_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The servers of the web and its DNS, which remember how often they were asked.
#[derive(Default)]
pub(super) struct Servers {
    asked: BTreeMap<String, u32>,
    lookups: BTreeMap<String, u32>,
    /// Where hosts are, as far as that is known.
    positions: BTreeMap<String, Position>,
}

impl Servers {
    /// The same, where it is known where these hosts are.
    pub(super) fn at(positions: BTreeMap<String, Position>) -> Servers {
        Servers { positions, ..Servers::default() }
    }

    /// What a name resolves to.
    pub(super) fn resolve(&mut self, plan: &Plan, name: &str) -> Result<Addresses, NoAddress> {
        let count = self.lookups.entry(name.to_owned()).or_default();
        *count += 1;
        let no = |no_such_name| Err(NoAddress { no_such_name, detail: "simulated".into() });
        let Some(host) = plan.hosts.iter().find(|host| host.name == name) else { return no(true) };
        let position = self.positions.get(name).copied();
        let ttl = Duration::from_secs(if host.dns == Name::Rebinding { 5 } else { 300 });
        match host.dns {
            Name::None => no(true),
            Name::FailFirst(times) if *count <= times => no(false),
            Name::Rebinding if *count > 1 => {
                Ok(Addresses { list: vec![[10, 9, 9, 9].into()], ttl, position })
            }
            _ => {
                let list = [Some(host.address), host.other_address].into_iter().flatten().collect();
                Ok(Addresses { list, ttl, position })
            }
        }
    }

    /// What a request comes to.
    pub(super) fn ask(&mut self, plan: &Plan, url: &Url) -> Reply {
        let count = self.asked.entry(url.to_string()).or_default();
        *count += 1;
        let count = *count;
        let Some(&(index, target)) = plan.urls.get(url.as_str()) else {
            return plan.answer(url, 404, Meaning::Final, Content::Nothing, None);
        };
        let host = &plan.hosts[index];
        let mut reply = match (host.health, target) {
            (Health::Dead, _) => plan.trouble(url, Trouble::Refused),
            (Health::Busy, Target::Page(_)) => plan.trouble(url, Trouble::Busy(None)),
            _ => plan.reply(url, (index, target), count),
        };
        if matches!(target, Target::Robots | Target::RulesMoved) {
            reply.meaning = match reply.meaning {
                Meaning::UrlFailed | Meaning::HostFailed => Meaning::RulesFailed,
                other => other,
            };
        }
        if reply.took.is_zero() {
            reply.took = host.took;
        }
        reply
    }
}

impl Plan {
    fn reply(&self, url: &Url, (index, target): (usize, Target), count: u32) -> Reply {
        let host = &self.hosts[index];
        let redirect = |to: String, meaning| self.answer(url, 301, meaning, Content::Nothing, Some(to));
        match target {
            Target::RulesForOthers => self.rules(url, &given_for_others(), Meaning::RulesForOthers),
            Target::Robots => match &host.rules {
                Rules::Missing => {
                    let none = Meaning::Rules { crawl_delay: Duration::ZERO };
                    self.answer(url, 404, none, Content::Nothing, None)
                }
                Rules::FailFirst(times, trouble, _) if count <= *times => self.trouble(url, *trouble),
                Rules::Given(given) | Rules::FailFirst(_, _, given) => {
                    self.rules(url, given, given.meaning())
                }
                Rules::Elsewhere(other) => {
                    redirect(self.url(*other, Target::RulesForOthers), Meaning::RulesMoved)
                }
                Rules::Moved(_) => redirect(RULES_MOVED.into(), Meaning::RulesMoved),
            },
            Target::RulesMoved => match &host.rules {
                Rules::Moved(given) => self.rules(url, given, given.meaning()),
                _ => self.answer(url, 404, Meaning::Final, Content::Nothing, None),
            },
            Target::Sitemap => {
                let pages = self.leads(index, target).iter().filter_map(|url| Url::parse(url).ok()).collect();
                let content = Content::Sitemap { pages, sitemaps: Vec::new() };
                self.answer(url, 200, Meaning::Final, content, None)
            }
            Target::Page(n) => match self.page(index, n) {
                Page::Missing => self.answer(url, 404, Meaning::Final, Content::Nothing, None),
                Page::Redirect(other, to) => redirect(self.url(other, Target::Page(to)), Meaning::Final),
                Page::Flaky(times, trouble) if times.is_none_or(|times| count <= times) => {
                    self.trouble(url, trouble)
                }
                Page::Flaky(..) => self.good(url, (index, n), false),
                Page::Good { nofollow } => self.good(url, (index, n), nofollow),
            },
        }
    }

    fn good(&self, url: &Url, (index, n): (usize, u32), nofollow: bool) -> Reply {
        let links = self
            .links(index, n)
            .iter()
            .filter_map(|link| Url::parse(link).ok())
            .map(|url| Link { url: url.into(), kind: LinkKind::Anchor, nofollow: false })
            .collect();
        let directives = Directives { nofollow, ..Directives::default() };
        self.answer(url, 200, Meaning::Final, Content::Page { links, directives }, None)
    }

    fn rules(&self, url: &Url, given: &Given, meaning: Meaning) -> Reply {
        let host = url.host_str().unwrap_or_default();
        self.answer(url, 200, meaning, Content::Robots(given.text(host).into_bytes()), None)
    }

    fn answer(
        &self,
        url: &Url,
        status: u16,
        meaning: Meaning,
        content: Content,
        location: Option<String>,
    ) -> Reply {
        let wire = self.wire(url.as_str(), status);
        let bytes = wire.len() as u64;
        let answer = Answer { status, bytes, location, content, ..Answer::default() };
        Reply { took: Duration::ZERO, meaning, result: Ok(answer), wire: Some(wire) }
    }

    fn trouble(&self, url: &Url, trouble: Trouble) -> Reply {
        let failed = |failure, meaning, took| Reply {
            took,
            meaning,
            result: Err(FetchError { failure, detail: "simulated".into() }),
            wire: None,
        };
        let nothing = Content::Nothing;
        match trouble {
            Trouble::Status500 => self.answer(url, 500, Meaning::UrlFailed, nothing, None),
            Trouble::Busy(wait) => {
                let wait = wait.map(Duration::from_secs);
                let status = if wait.is_some() { 429 } else { 503 };
                let mut reply = self.answer(url, status, Meaning::Busy(wait), nothing, None);
                if let Ok(answer) = &mut reply.result {
                    answer.retry_after = wait;
                }
                reply
            }
            Trouble::CutShort => {
                let mut reply = self.answer(url, 200, Meaning::UrlFailed, nothing, None);
                if let Ok(answer) = &mut reply.result {
                    answer.cut = Some(Cut::Disconnect);
                }
                if let Some(wire) = &mut reply.wire {
                    wire.truncate(wire.len() - 20);
                }
                reply
            }
            Trouble::Refused => failed(Failure::Connect, Meaning::HostFailed, Duration::from_millis(40)),
            Trouble::Timeout => {
                let took = if self.of_site { SITE_REQUEST_TIMEOUT } else { REQUEST_TIMEOUT };
                failed(Failure::Timeout, Meaning::UrlFailed, took)
            }
            Trouble::Reset => failed(Failure::Disconnected, Meaning::UrlFailed, Duration::ZERO),
            Trouble::Stale => failed(Failure::Closed, Meaning::Nothing, Duration::from_millis(2)),
        }
    }
}

impl Given {
    fn meaning(&self) -> Meaning {
        Meaning::Rules { crawl_delay: Duration::from_secs(self.crawl_delay_s.unwrap_or(0)) }
    }
}
