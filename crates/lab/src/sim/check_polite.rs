//! Promise 2, as the servers see it: one request at a time, the gaps that were asked for, robots.txt first and obeyed,
//! no private address, nothing that is blocked; also across kills and restarts.
//!
//! What a server said binds as soon as it was received; after a crash what was durable still does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use nephila_core::settings::Settings;
use nephila_core::time::Mono;

use super::levels::{Crash, Exchange, Level};
use super::web::{Meaning, Plan};

const DAY: Duration = Duration::from_secs(86_400);
/// A request may be ordered at the last moment of a day and wait for its address.
const FRESH_SLACK: Duration = Duration::from_secs(60);

/// A request that begins.
pub(super) struct Begin<'a> {
    pub(super) host: &'a str,
    pub(super) url: &'a str,
    pub(super) address: IpAddr,
    /// It is for rules, not for a page.
    pub(super) for_rules: bool,
    /// Which site asks. What it knows of an address others do not know,
    pub(super) site: usize,
    /// but for how many they are that use it.
    pub(super) sites: u32,
}

struct Fact {
    exchange: Exchange,
    level: Level,
    at: Mono,
    meaning: Meaning,
    url: String,
}

#[derive(Default)]
struct Host {
    in_flight: u32,
    last_end: Option<Mono>,
    facts: Vec<Fact>,
    /// When its rules were last had, by whatever process: a record that nobody was told of may survive too.
    rules_at: Option<Mono>,
    /// The same for the rules that it keeps for others.
    rules_for_others: bool,
    /// Who asks it has no right to any more, and could not break it off: its address may be asked by others.
    is_let_go: bool,
}

#[derive(Default)]
struct Address {
    in_flight: u32,
    last_end: Option<Mono>,
    /// Ends that lie in the socket of an agent that stood still. With several requests at a time it may begin another before it
    /// has read of them, as if they were under way.
    unread: BTreeMap<Exchange, Mono>,
    /// Hosts that were busy in this life, and until when.
    busy: BTreeMap<String, Mono>,
    closed: Vec<(Exchange, Level, Mono)>,
    /// Others use it too, and it is left alone for longer.
    shared_until: Mono,
}

/// What a host has asked for, by what is remembered of it.
#[derive(Default)]
struct Wishes {
    delay: Duration,
    not_before: Mono,
    failures: u32,
    has_rules: bool,
    rules_failed_at: Option<Mono>,
}

pub(super) struct Polite {
    settings: Settings,
    hosts: BTreeMap<String, Host>,
    /// By the site that asks them.
    addresses: BTreeMap<(usize, IpAddr), Address>,
    /// Where each request was made that was answered,
    asked: BTreeMap<Exchange, (String, (usize, IpAddr))>,
    /// and those of which the kernel has the record and a power cut may take it.
    of_kernel: BTreeSet<Exchange>,
    blocked: BTreeMap<String, Level>,
    /// So many percent of any wait may be missing: clocks of agents run as fast as that.
    hurry: u32,
    /// How often a request began exactly when it first might.
    pub(super) on_time: u64,
    /// Agents are forgotten that may be at work. Others do not know what those heard, so that what hosts say binds nobody but
    /// for the gaps; and they do not know when those ask an address, so that addresses are not looked at.
    pub(super) is_loose: bool,
}

impl Polite {
    pub(super) fn new(settings: Settings) -> Polite {
        Polite {
            settings,
            hosts: BTreeMap::new(),
            addresses: BTreeMap::new(),
            asked: BTreeMap::new(),
            of_kernel: BTreeSet::new(),
            blocked: BTreeMap::new(),
            hurry: 0,
            on_time: 0,
            is_loose: false,
        }
    }

    /// The same for agents whose clocks may be fast.
    pub(super) fn with_clocks(settings: Settings, hurry: u32) -> Polite {
        Polite { hurry, ..Polite::new(settings) }
    }

    /// What a wait comes to at least.
    fn least(&self, wait: Duration) -> Duration {
        wait - wait * self.hurry / 100
    }

    pub(super) fn begins(&mut self, plan: &Plan, begin: &Begin<'_>, now: Mono) -> Result<(), String> {
        let judged = self.judge(plan, begin, now);
        self.hosts.entry(begin.host.to_owned()).or_default().in_flight += 1;
        self.addresses.entry((begin.site, begin.address)).or_default().in_flight += 1;
        judged
    }

    fn judge(&mut self, plan: &Plan, begin: &Begin<'_>, now: Mono) -> Result<(), String> {
        let Begin { host: name, url, address, for_rules, site, .. } = *begin;
        let wishes = self.wishes(name);
        let delay = self.least(wishes.delay);
        let host = self.hosts.entry(name.to_owned()).or_default();
        if host.in_flight > 0 {
            return Err(format!("{url} was asked for while {name} still answered"));
        }
        let earliest = host.last_end.map_or(Mono(0), |end| end + delay).max(wishes.not_before);
        if now < earliest {
            return Err(format!("{url} was asked for {:?} too early", earliest.since(now)));
        }
        self.on_time += u64::from(now == earliest);
        if self.blocked.contains_key(name) {
            return Err(format!("{url} was asked for although {name} is blocked"));
        }
        self.address_begins(url, (site, address), now)?;
        if !for_rules {
            self.page_begins(plan, name, url, now)?;
        }
        Ok(())
    }

    fn address_begins(&mut self, url: &str, (site, ip): (usize, IpAddr), now: Mono) -> Result<(), String> {
        if !matches!(ip, IpAddr::V4(v4) if v4.octets()[..3] == [93, 184, 216]) {
            return Err(format!("{url} was asked for at {ip}, which is private"));
        }
        if self.is_loose {
            return Ok(());
        }
        let delay = self.least(self.settings.ip_delay);
        let address = self.addresses.entry((site, ip)).or_default();
        if address.in_flight >= self.settings.ip_parallel {
            return Err(format!("{url} was asked for while {ip} still answered"));
        }
        let earliest = address.last_end.map_or(Mono(0), |end| end + delay);
        let earliest = earliest.max(address.shared_until);
        let earliest = address.closed.iter().fold(earliest, |earliest, (_, _, until)| earliest.max(*until));
        if now < earliest {
            return Err(format!("{url} was asked for {:?} too early for {ip}", earliest.since(now)));
        }
        Ok(())
    }

    fn page_begins(&self, plan: &Plan, name: &str, url: &str, now: Mono) -> Result<(), String> {
        let wishes = self.wishes(name);
        let had = match plan.rules_elsewhere(name) {
            Some(other) => self.hosts.get(other).is_some_and(|host| host.rules_for_others),
            None => match self.hosts.get(name).and_then(|host| host.rules_at) {
                Some(at) if now.since(at) > DAY + FRESH_SLACK => {
                    wishes.rules_failed_at.is_some_and(|failed| failed > at)
                }
                had => had.is_some(),
            },
        };
        if !had {
            return Err(format!("{url} was asked for before robots.txt"));
        }
        if plan.forbids(url) {
            return Err(format!("{url} was asked for although robots.txt forbids it"));
        }
        let failures = || {
            let facts = self.hosts.get(name).into_iter().flat_map(|host| &host.facts);
            facts.filter(|fact| fact.url == url && fact.meaning == Meaning::UrlFailed)
        };
        let pauses = &self.settings.retry_pauses;
        match (failures().count(), failures().next_back()) {
            (count, _) if count > pauses.len() => Err(format!("{url} was tried more than {count} times")),
            (count, Some(last)) if now < last.at + self.least(pauses[count - 1]) => {
                Err(format!("{url} was tried again {:?} after a failure", now.since(last.at)))
            }
            _ => Ok(()),
        }
    }

    /// A request ended. `heard` is none if nobody was there any more to hear the answer; who is paused hears it later.
    pub(super) fn ends(
        &mut self,
        begin: &Begin<'_>,
        heard: Option<(Exchange, Meaning)>,
        is_paused: bool,
        now: Mono,
    ) {
        let Begin { host: name, url, address: ip, for_rules, site, sites } = *begin;
        let host = self.hosts.entry(name.to_owned()).or_default();
        host.in_flight -= 1;
        host.last_end = Some(now);
        if let Some((exchange, meaning)) = heard {
            self.asked.insert(exchange, (name.to_owned(), (site, ip)));
            match meaning {
                Meaning::Rules { .. } => host.rules_at = Some(now),
                Meaning::RulesForOthers => host.rules_for_others = true,
                _ => {}
            }
            let fact = Fact { exchange, level: Level::Memory, at: now, meaning, url: url.to_owned() };
            if !self.is_loose {
                host.facts.push(fact);
            }
        }
        let is_let_go = std::mem::take(&mut self.hosts.entry(name.to_owned()).or_default().is_let_go);
        let until = self.wishes(name).not_before;
        let gap = self.least(self.settings.ip_delay * sites);
        let address = self.addresses.entry((site, ip)).or_default();
        if heard.is_some() && sites > 1 && !is_paused {
            address.shared_until = address.shared_until.max(now + gap);
        }
        if !is_let_go {
            address.in_flight -= 1;
            match heard {
                Some((exchange, _)) if is_paused && self.settings.ip_parallel > 1 => {
                    address.unread.insert(exchange, now);
                }
                _ => address.last_end = Some(now),
            }
        }
        if let (Some((exchange, Meaning::Busy(_))), false) = (heard, for_rules) {
            address.busy.insert(name.to_owned(), until);
            let is_shared = address.busy.iter().any(|(other, until)| other != name && *until > now);
            if is_shared && !self.is_loose {
                address.closed.push((exchange, Level::Memory, until));
            }
        }
    }

    /// An answer was read.
    pub(super) fn reads(&mut self, address: (usize, IpAddr), exchange: Exchange) {
        let Some(address) = self.addresses.get_mut(&address) else { return };
        let end = address.unread.remove(&exchange);
        address.last_end = address.last_end.max(end);
    }

    /// A URL goes to an agent that does not know when it was tried last. What its failure said of the host stays.
    pub(super) fn tried_anew(&mut self, url: &str) {
        let facts = self.hosts.values_mut().flat_map(|host| &mut host.facts);
        facts.filter(|fact| fact.url == url).for_each(|fact| fact.url.clear());
    }

    /// Rules were had that a host keeps for others.
    pub(super) fn rules_for_others(&mut self, host: &str) {
        self.hosts.entry(host.to_owned()).or_default().rules_for_others = true;
    }

    /// Whoever makes this request has lost its lease, and with it its turn at the address.
    pub(super) fn lets_go(&mut self, begin: &Begin<'_>) {
        let host = self.hosts.entry(begin.host.to_owned()).or_default();
        if !std::mem::replace(&mut host.is_let_go, true) {
            self.addresses.entry((begin.site, begin.address)).or_default().in_flight -= 1;
        }
    }

    pub(super) fn blocks(&mut self, host: &str) {
        self.blocked.insert(host.to_owned(), Level::Memory);
    }

    /// The record of a block is this safe now; it may have been taken back meanwhile.
    pub(super) fn block_kept(&mut self, host: &str, kept: Level) {
        if let Some(level) = self.blocked.get_mut(host) {
            *level = (*level).max(kept);
        }
    }

    pub(super) fn unblocks(&mut self, host: &str) {
        self.blocked.remove(host);
    }

    /// What the record of this exchange says is this safe now.
    pub(super) fn kept(&mut self, exchange: Exchange, level: Level) {
        self.raise(exchange, |before| before.max(level));
        if level == Level::Kernel {
            self.of_kernel.insert(exchange);
        }
    }

    /// What a request said is as safe now as `level` says of how safe it was.
    fn raise(&mut self, exchange: Exchange, level: impl Fn(Level) -> Level) {
        let Some((host, address)) = self.asked.get(&exchange) else { return };
        let facts = self.hosts.get_mut(host).into_iter().flat_map(|host| &mut host.facts);
        for fact in facts.filter(|fact| fact.exchange == exchange) {
            fact.level = level(fact.level);
        }
        let closed = self.addresses.get_mut(address).into_iter().flat_map(|address| &mut address.closed);
        for closed in closed.filter(|closed| closed.0 == exchange) {
            closed.1 = level(closed.1);
        }
    }

    /// All that the kernel has of a process is on the disk; `its` says which requests were its.
    pub(super) fn synced(&mut self, its: &dyn Fn(Exchange) -> bool) {
        let synced = |level| if level == Level::Kernel { Level::Disk } else { level };
        let exchanges: Vec<Exchange> = self.of_kernel.extract_if(.., |exchange| its(*exchange)).collect();
        for exchange in exchanges {
            self.raise(exchange, synced);
        }
        self.blocked.values_mut().for_each(|level| *level = synced(*level));
    }

    /// A process has ended; `its` says which requests were its.
    pub(super) fn crashed(&mut self, crash: Crash, its: &dyn Fn(Exchange) -> bool) {
        let is_lost = |exchange, level| !crash.spares(level) && its(exchange);
        for host in self.hosts.values_mut() {
            for fact in host.facts.iter_mut().filter(|fact| is_lost(fact.exchange, fact.level)) {
                // A record that nobody was told of may survive: what it asked for does not bind, but what it allows is
                // allowed.
                if fact.meaning.is_good_news() {
                    (fact.meaning, fact.level) = (Meaning::Final, Level::Disk);
                }
            }
            host.facts.retain(|fact| !is_lost(fact.exchange, fact.level));
        }
        for address in self.addresses.values_mut() {
            let ends = address.unread.extract_if(.., |exchange, _| its(*exchange)).map(|(_, end)| end).max();
            address.last_end = address.last_end.max(ends);
            address.closed.retain(|closed| !is_lost(closed.0, closed.1));
        }
        self.blocked.retain(|_, level| crash.spares(*level));
    }

    /// An agent was lost with all that it had, from others too. What hosts said before does not bind any more, but for the gaps
    /// that every agent keeps.
    pub(super) fn lost(&mut self) {
        self.hosts.values_mut().for_each(|host| host.facts.clear());
        self.addresses.values_mut().for_each(|address| address.closed.clear());
    }

    /// Something goes wrong between agents: that hosts of an address were busy may now be known to some of them only.
    pub(super) fn troubled(&mut self) {
        for address in self.addresses.values_mut() {
            address.busy.clear();
            address.closed.clear();
        }
    }

    /// A new process begins. That several hosts of an address were busy is remembered only if it was acted upon.
    pub(super) fn restarted(&mut self) {
        self.addresses.values_mut().for_each(|address| address.busy.clear());
    }

    fn wishes(&self, name: &str) -> Wishes {
        let settings = &self.settings;
        let mut wishes = Wishes { delay: settings.delay, ..Wishes::default() };
        for fact in self.hosts.get(name).into_iter().flat_map(|host| &host.facts) {
            let asked = match fact.meaning {
                Meaning::Rules { crawl_delay } => {
                    wishes.delay = settings.delay.max(crawl_delay);
                    wishes.has_rules = true;
                    wishes.failures = 0;
                    continue;
                }
                meaning if meaning.is_good_news() => {
                    wishes.failures = 0;
                    continue;
                }
                Meaning::RulesFailed => {
                    wishes.rules_failed_at = Some(fact.at);
                    // Older rules are used meanwhile.
                    if wishes.has_rules {
                        continue;
                    }
                    None
                }
                Meaning::HostFailed => None,
                Meaning::Busy(wait) => wait,
                _ => continue,
            };
            wishes.failures += 1;
            let doubled = settings.backoff_min * (1 << (wishes.failures - 1).min(20));
            let wait = asked.unwrap_or(doubled.min(settings.backoff_max)).max(wishes.delay);
            wishes.not_before = wishes.not_before.max(fact.at + self.least(wait));
        }
        wishes
    }
}
