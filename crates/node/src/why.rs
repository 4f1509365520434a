//! Questions about a crawl, answered from its agent and its store: by the loop of a running crawl, or from the files of one
//! that does not run.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use nephila_core::agent::{Agent, HostView, RobotsView, StopReason, StoredHost, Totals};
use nephila_core::cash::class_of;
use nephila_core::record::{Block, Failure, Outcome, Pointer, Record, RobotsRecord, Settled};
use nephila_core::site::AgentId;
use nephila_core::time::Now;
use nephila_core::url::{self, CleanUrl, Host, Origin, Url, traps};
use nephila_disk::{Disk, RealDisk};
use nephila_store::{EmbeddedStore, Known, KnownState, Store};

use crate::asking::{Answer, Ask};
use crate::clock::Clock;
use crate::control::{HostSort, Request, Response, block_name};
use crate::directory::{self, DirectoryError, Lock, Recorded};
use crate::memo::Replay;
use crate::report::{self, Captured, FoundBy, HasCash, UrlState, Why};
use crate::writer::{pointer_of, store_options};

/// Hosts that are sorted at a time at least, when the first of all are wanted.
const HOSTS_SORTED: usize = 10_000;

/// What to say of a crawl alone to who takes it for one of several.
pub(crate) const NO_SITE: &str = "this is a crawl alone: `nephila agent` begins a site";

/// The same for one of several sites.
pub(crate) const NO_FEDERATION: &str =
    "the sites of a federation are asked by an agent that runs, and that names a list of them (`federation`)";

/// Why a question about a crawl that does not run has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The directory does not say what it should.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The store cannot be read or written.
    #[error("cannot use the store of the crawl")]
    Store(#[from] nephila_store::Error),
}

/// What is written down, as far as questions need it.
pub(crate) trait Ledger {
    fn host(&mut self, host: &Host) -> nephila_store::Result<Option<StoredHost>>;
    /// The record at a place, and which agent has archived what it is about, if it need not be this one.
    fn record(&self, place: u64) -> nephila_store::Result<(Record, Option<AgentId>)>;
    /// All that is known of a URL, and the same of the last answer to it.
    fn look_up(&mut self, url: &Url) -> nephila_store::Result<Option<(Known, Option<AgentId>)>>;
    /// What a record of this agent says of a URL whose host it had before, and the same of the last answer to it.
    fn had(&self, place: u64, url: &Url) -> nephila_store::Result<(Known, Option<AgentId>)>;
    /// What was counted of the hosts that this agent has, if others have counted it too.
    fn totals(&self) -> Option<&Totals>;
    /// Passes on hosts, and says how many more there are that cannot be among the first.
    fn hosts(&mut self, each: &mut dyn FnMut(StoredHost)) -> nephila_store::Result<u64>;
}

impl Ledger for EmbeddedStore {
    fn host(&mut self, host: &Host) -> nephila_store::Result<Option<StoredHost>> {
        Store::host(self, host)
    }

    fn record(&self, place: u64) -> nephila_store::Result<(Record, Option<AgentId>)> {
        self.record_of(place)
    }

    fn look_up(&mut self, url: &Url) -> nephila_store::Result<Option<(Known, Option<AgentId>)>> {
        self.find(url)
    }

    fn had(&self, place: u64, url: &Url) -> nephila_store::Result<(Known, Option<AgentId>)> {
        EmbeddedStore::had(self, place, url)
    }

    fn totals(&self) -> Option<&Totals> {
        None
    }

    fn hosts(&mut self, each: &mut dyn FnMut(StoredHost)) -> nephila_store::Result<u64> {
        Store::hosts(self, each).map(|()| 0)
    }
}

/// What a question is answered from.
pub(crate) struct Crawl<'a> {
    pub agent: &'a mut Agent,
    pub store: &'a mut dyn Ledger,
    pub dir: &'a Path,
    pub running: bool,
    /// Why it does not run, if it said so.
    pub stop_reason: Option<StopReason>,
}

impl Crawl<'_> {
    /// Answers a question that changes nothing.
    pub(crate) fn answer(&mut self, request: &Request, now: Now) -> Response {
        let told = match request {
            Request::Status => self.tell(&Ask::Status, now),
            Request::Why { url } => self.tell(&Ask::Why { url: url.clone() }, now),
            Request::Hosts { limit, sort, name } => {
                self.tell(&Ask::Hosts { limit: *limit, sort: *sort, name: name.clone() }, now)
            }
            Request::Blocks => {
                let agent = &*self.agent;
                return report::blocks(agent.blocks().map(|block| (block, agent.blocked_by(block))));
            }
            Request::Site => {
                return match self.agent.site_view(now) {
                    Some(view) => report::site(&view, self.running),
                    None => Response::Refused { why: NO_SITE.to_owned() },
                };
            }
            Request::Federation => return Response::Refused { why: NO_FEDERATION.to_owned() },
            Request::Read { .. }
            | Request::Forget { .. }
            | Request::Block { .. }
            | Request::Unblock { .. }
            | Request::Everywhere { .. }
            | Request::Pause
            | Request::Resume
            | Request::Stop => return Response::Refused { why: "nothing runs there".to_owned() },
        };
        match told {
            Answer::Status { status, elapsed_s } => {
                report::status(&status, elapsed_s, self.running, self.stop_reason)
            }
            Answer::Hosts(hosts, all) => report::hosts(&hosts, all),
            Answer::Why(json) => match serde_json::from_str::<Why>(&json) {
                Ok(why) => why.response(),
                Err(error) => Response::Refused { why: error.to_string() },
            },
            Answer::Refused(why) => Response::Refused { why },
            Answer::Bytes(..) => Response::Refused { why: "nobody asked for bytes".to_owned() },
        }
    }

    /// What this agent says of what it has.
    pub(crate) fn tell(&mut self, ask: &Ask, now: Now) -> Answer {
        let told = match ask {
            Ask::Status => self.status(now),
            Ask::Hosts { limit, sort, name } => self.hosts(*limit, *sort, name.as_deref(), now),
            Ask::Host { name } => self.host(name, now),
            Ask::Why { url } => match url::parse_seed(url) {
                Ok(url) => self.why(&url, now).map(|why| Answer::why(&why)),
                Err(error) => Ok(Answer::Refused(error.to_string())),
            },
            Ask::Had { url, place } => match url::parse_seed(url) {
                Ok(url) => self.had(&url, *place, now).map(|why| Answer::why(&why)),
                Err(error) => Ok(Answer::Refused(error.to_string())),
            },
            Ask::Read { .. } => Ok(Answer::Refused("the archive is read elsewhere".to_owned())),
        };
        told.unwrap_or_else(|error| Answer::Refused(format!("the store cannot be read: {error}")))
    }

    fn status(&mut self, now: Now) -> nephila_store::Result<Answer> {
        let mut status = self.agent.status(now);
        if let Some(totals) = self.store.totals() {
            let Totals { known_urls, hosts, over_limit, elapsed_before, .. } = status.totals;
            status.totals = Totals { known_urls, hosts, over_limit, elapsed_before, ..totals.clone() };
        }
        if !self.running {
            // What was read is on the disk.
            status.unsettled = 0;
            // Each host that is away is met in the store. While there are many, it counts some of them too little.
            let (agent, counts) = (&*self.agent, &mut status.hosts);
            counts.away = 0;
            self.store.hosts(&mut |stored| agent.count_stored(&stored, now, counts))?;
            status.totals.hosts = status.hosts.sum();
        }
        // A crawl that does not run has not been running since its last record.
        let elapsed = if self.running { self.agent.elapsed(now) } else { status.totals.elapsed_before };
        Ok(Answer::Status { status: Box::new(status), elapsed_s: elapsed.as_secs_f64() })
    }

    /// The first hosts of all, or of those of a name and below it, in this order.
    fn hosts(
        &mut self,
        limit: usize,
        sort: HostSort,
        name: Option<&str>,
        now: Now,
    ) -> nephila_store::Result<Answer> {
        let mut on_bench: HashMap<String, HostView> =
            self.agent.hosts(now).map(|view| (view.host.clone(), view)).collect();
        let (mut hosts, mut all) = (Vec::new(), 0);
        let room = limit.saturating_mul(2).max(HOSTS_SORTED);
        let mut add = |view: HostView| {
            if !is_of(&view.host, name) {
                return;
            }
            all += 1;
            hosts.push(view);
            if hosts.len() >= room {
                sort_hosts(&mut hosts, sort);
                hosts.truncate(limit);
            }
        };
        let agent = &*self.agent;
        let others = self.store.hosts(&mut |stored| {
            let view = on_bench.remove(stored.host.as_str());
            add(view.unwrap_or_else(|| agent.stored_host(&stored, now)));
        })?;
        // Those that were asked for the robots.txt of another host, and nothing else.
        on_bench.into_values().for_each(&mut add);
        sort_hosts(&mut hosts, sort);
        hosts.truncate(limit);
        Ok(Answer::Hosts(hosts, all + others))
    }

    /// One host, if it is known.
    fn host(&mut self, name: &str, now: Now) -> nephila_store::Result<Answer> {
        let Some(host) = Host::parse(name) else {
            return Ok(Answer::Refused(format!("{name:?} is not the name of a host")));
        };
        let stored = self.store.host(&host)?;
        let view = stored.map(|stored| self.agent.stored_host(&stored, now));
        let hosts: Vec<HostView> = view.or_else(|| self.agent.host(&host, now)).into_iter().collect();
        let all = hosts.len() as u64;
        Ok(Answer::Hosts(hosts, all))
    }

    /// Makes sure that the agent knows what is known of a host, the rules of its robots.txt included.
    fn look_at(&mut self, host: &Host, now: Now) -> nephila_store::Result<()> {
        if let Some(stored) = self.store.host(host)? {
            for place in self.agent.look_at(stored, now) {
                let record = self.store.record(place).ok();
                self.agent.read_rules_back(host, place, record.as_ref().map(|(record, _)| record));
            }
        }
        Ok(())
    }

    fn why(&mut self, url: &Url, now: Now) -> nephila_store::Result<Why> {
        self.look_at(&Host::of(url), now)?;
        let (known, whose) = self.store.look_up(url)?.unzip();
        // A robots.txt is asked for without being found.
        let origin = Origin::of(url);
        let robots = self.agent.robots_seen(&origin).filter(|_| *url == origin.robots_url());
        let robots = robots.and_then(|place| match self.store.record(place) {
            Ok((Record::Robots(robots), whose)) => Some((robots, whose)),
            _ => None,
        });
        let (robots, whose_robots) = robots.unzip();
        let (capture, whose) = match known.as_ref().and_then(capture_of) {
            Some(capture) => (Some(capture), whose),
            None => (robots.as_ref().and_then(|robots| robots.capture), whose_robots),
        };
        let state = match &known {
            Some(known) => self.state_of_known(url, known, now),
            None => robots.as_ref().map_or_else(|| self.state_of_unknown(url), robots_state),
        };
        let cash = known.as_ref().and_then(cash_of);
        let found = known.map(|known| FoundBy::new(known.found.how, known.via, known.found.depth));
        // That nothing more is asked of its host is of interest even if this one is done.
        let block =
            self.agent.block_on(&Host::of(url)).filter(|_| !matches!(state, UrlState::Blocked { .. }));
        let blocked_by_sites = block.map(|block| self.agent.blocked_by(block)).unwrap_or_default();
        let blocked_by = block.map(block_name);
        Ok(Why {
            url: url.to_string(),
            state,
            found,
            blocked_by,
            answered_by: None,
            blocked_by_sites,
            capture: self.captured(capture, whose.flatten()),
            cash,
        })
    }

    /// What became of a URL whose host this agent had before.
    fn had(&mut self, url: &Url, place: u64, now: Now) -> nephila_store::Result<Why> {
        let (known, whose) = self.store.had(place, url)?;
        let capture = self.captured(capture_of(&known), whose);
        let state = self.state_of_known(url, &known, now);
        // One that was moved here is known without its text, and so without how it was found.
        let is_ours = !matches!(known.state, KnownState::Elsewhere { .. });
        let found = is_ours.then(|| FoundBy::new(known.found.how, known.via, known.found.depth));
        Ok(Why {
            url: url.to_string(),
            state,
            found,
            blocked_by: None,
            answered_by: None,
            blocked_by_sites: Vec::new(),
            capture,
            cash: None,
        })
    }

    /// Where an answer is archived that this agent has, or another.
    fn captured(&self, pointer: Option<Pointer>, whose: Option<AgentId>) -> Option<Captured> {
        let pointer = pointer?;
        if let Some(other) = whose.filter(|whose| Some(*whose) != self.agent.me()) {
            let Pointer { shard, file, .. } = pointer;
            let file = format!("archive/*-{file:05}-{shard:03}.warc*");
            let agent_name = self.agent.name_of(other).map(str::to_owned);
            return Some(Captured { agent: Some(other.to_string()), agent_name, file, pointer });
        }
        let path =
            nephila_archive::locate(&RealDisk, &directory::archive(self.dir), &pointer_of(&pointer)).ok()?;
        let file = path.strip_prefix(self.dir).unwrap_or(&path).display().to_string();
        let agent = self.agent.me().filter(|_| self.running);
        let agent_name = agent.and_then(|agent| self.agent.name_of(agent)).map(str::to_owned);
        Some(Captured { agent: agent.map(|agent| agent.to_string()), agent_name, file, pointer })
    }

    fn state_of_known(&self, url: &Url, known: &Known, now: Now) -> UrlState {
        let (attempts, failure, retry) = match &known.state {
            KnownState::Settled(settled) => return settled_state(settled),
            KnownState::Elsewhere { agent, place } => {
                let agent_name = self.agent.name_of(*agent).map(str::to_owned);
                return UrlState::Elsewhere { agent: agent.to_string(), agent_name, place: *place };
            }
            KnownState::Retry { not_before, attempts, last } => {
                let failure = match last.as_ref().map(|last| &last.outcome) {
                    Some(Outcome::Retry { failure, .. }) => Some(*failure),
                    _ => None,
                };
                (*attempts, failure, Some(*not_before))
            }
            KnownState::Queued | KnownState::Taken => (0, None, None),
        };
        let host = Host::of(url);
        if let Some(block) = self.agent.block_on(&host) {
            return self.blocked(block);
        }
        if self.agent.is_fetching(url) {
            return UrlState::Fetching;
        }
        if let RobotsView::Disallowed { line, rule } = self.agent.robots_on(url) {
            return UrlState::Disallowed { line, rule };
        }
        let (view, other_site) = (self.agent.host(&host, now), self.agent.other_site_name(&host));
        let retry_s = retry.map(|at| at.since(now.wall).as_secs_f64()).filter(|wait| *wait > 0.0);
        let reason = match &view {
            _ if !self.running => {
                "the crawl does not run; the same `nephila crawl` command goes on with it".to_owned()
            }
            _ if other_site.is_some() => {
                format!("to be sent to site {}, whose host it is", other_site.unwrap_or_default())
            }
            _ if retry_s.is_some() => "it failed and will be tried again".to_owned(),
            Some(view) => reason(view),
            None => "its turn".to_owned(),
        };
        let failure =
            failure.or(view.as_ref().filter(|view| view.failures > 0).and_then(|view| view.failure));
        let host_s = view.as_ref().and_then(|view| view.wait_s);
        UrlState::Waiting {
            reason,
            wait_s: [retry_s, host_s].into_iter().flatten().max_by(f64::total_cmp),
            host_queue: view.map_or(0, |view| view.queue),
            attempts,
            failure,
        }
    }

    fn blocked(&self, block: &Block) -> UrlState {
        UrlState::Blocked { by: block_name(block), sites: self.agent.blocked_by(block) }
    }

    fn state_of_unknown(&self, url: &Url) -> UrlState {
        let clean = CleanUrl::from(url.clone());
        if let Err(rule) = self.agent.scope().judge(&clean) {
            return UrlState::OutOfScope { rule: rule.to_string() };
        }
        if let Err(rule) = traps::check(&clean, &self.agent.settings().traps) {
            return UrlState::Trap { rule: rule.to_string() };
        }
        if let Some(block) = self.agent.block_on(&Host::of(url)) {
            return self.blocked(block);
        }
        if let Some(site) = self.agent.other_site_name(&Host::of(url)) {
            return UrlState::OtherSite { site: site.to_owned() };
        }
        match self.agent.robots_on(url) {
            RobotsView::Disallowed { line, rule } => UrlState::Disallowed { line, rule },
            RobotsView::Allowed | RobotsView::NotYet => UrlState::NotKnown,
        }
    }
}

/// What a URL has, and where it waits.
fn cash_of(known: &Known) -> Option<HasCash> {
    let units = known.cash?;
    let class = (known.state == KnownState::Queued).then(|| class_of(units));
    Some(HasCash { units, class })
}

/// Where the last answer to a URL is archived.
fn capture_of(known: &Known) -> Option<Pointer> {
    match &known.state {
        KnownState::Settled(settled) => settled.capture,
        KnownState::Retry { last, .. } => last.as_ref().and_then(|last| last.capture),
        KnownState::Queued | KnownState::Taken | KnownState::Elsewhere { .. } => None,
    }
}

fn settled_state(settled: &Settled) -> UrlState {
    match &settled.outcome {
        Outcome::Answered { status } => UrlState::Fetched {
            status: *status,
            at_ms: settled.at.0,
            bytes: settled.bytes,
            took_s: settled.took.as_secs_f64(),
            attempt: settled.attempts,
        },
        Outcome::Failed { failure, status } | Outcome::Retry { failure, status, .. } => UrlState::Failed {
            failure: *failure,
            status: *status,
            at_ms: settled.at.0,
            attempts: settled.attempts,
        },
        Outcome::Disallowed { line, rule } => UrlState::Disallowed { line: *line, rule: rule.clone() },
        Outcome::Sent { to } => UrlState::Sent { site: to.clone(), at_ms: settled.at.0 },
    }
}

fn robots_state(robots: &RobotsRecord) -> UrlState {
    match robots.status {
        Some(status) => UrlState::Fetched {
            status,
            at_ms: robots.at.0,
            bytes: robots.bytes,
            took_s: robots.took.as_secs_f64(),
            attempt: 1,
        },
        None => UrlState::Waiting {
            reason: "it could not be had, and is asked for again before anything else of its host".to_owned(),
            wait_s: None,
            host_queue: 0,
            attempts: 0,
            failure: Some(Failure::RobotsUnreachable),
        },
    }
}

fn reason(host: &HostView) -> String {
    let failure = host.failure.map_or("it failed", |failure| failure.name());
    match &*host.place {
        "fetching" => "another URL of its host is being fetched".to_owned(),
        "delay" => "its host's delay".to_owned(),
        "address" => "another host at the same address has its turn".to_owned(),
        "resolving" => "its host's name is being looked up".to_owned(),
        "robots" => "its host's robots.txt is elsewhere and being asked for".to_owned(),
        "unconfirmed" => "a server of the store, no replica of which confirms what it is told".to_owned(),
        "backing_off" => format!("its host is left alone for a while ({failure})"),
        _ if host.given_up => format!("its host was given up ({failure}); it is about to be settled"),
        _ => "its turn".to_owned(),
    }
}

/// Whether a host has this name, or one below it; without a name all are meant.
pub(crate) fn is_of(host: &str, name: Option<&str>) -> bool {
    let below = |name| host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.is_none_or(below)
}

pub(crate) fn sort_hosts(hosts: &mut [HostView], sort: HostSort) {
    hosts.sort_by(|a, b| a.host.cmp(&b.host));
    match sort {
        HostSort::Queue => hosts.sort_by_key(|host| Reverse(host.queue)),
        HostSort::Pages => hosts.sort_by_key(|host| Reverse(host.pages)),
        HostSort::Failures => hosts.sort_by_key(|host| Reverse(host.failures)),
        HostSort::Name => {}
        HostSort::Wait => {
            hosts.sort_by(|a, b| b.wait_s.unwrap_or(0.0).total_cmp(&a.wait_s.unwrap_or(0.0)));
        }
    }
}

/// Answers a request about a crawl that does not run, from its files. Only a block or its removal writes anything.
pub fn ask_files(dir: &Path, request: &Request) -> Result<Response, AskError> {
    let recorded = Recorded::load(dir)?;
    if recorded.config.shares_store() {
        let why = "this agent does not run, and what it knows is in the store of its site: ask one that runs";
        return Ok(Response::Refused { why: why.to_owned() });
    }
    let record = match request {
        Request::Block { what } => Some(Record::Block(what.clone())),
        Request::Unblock { what } => Some(Record::Unblock(what.clone())),
        _ => None,
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let options = store_options(&recorded.config);
    if let Some(record) = record {
        let _lock = Lock::take(dir)?;
        if !EmbeddedStore::exists(&*disk, dir)? {
            return Ok(Response::Refused { why: "the crawl has no journal to write that into".to_owned() });
        }
        let (_, mut journal) = EmbeddedStore::open(disk, dir, options, &mut ())?;
        journal.append(&record)?;
        journal.sync()?;
        return Ok(Response::Done);
    }
    let (settings, scope) = (recorded.config.settings.clone(), recorded.config.scope(&recorded.seeds));
    let mut agent = match recorded.agent {
        Some(me) => {
            Agent::of_site(settings, scope, recorded.config.site_settings(me, String::new(), &recorded.seeds))
        }
        None => Agent::new(settings, scope),
    };
    let now = Clock::now();
    let mut replay = Replay::new(&mut agent, now, None);
    let mut store = EmbeddedStore::open_read_only(disk, dir, options, &mut replay)?;
    if let (Request::Site, Some(view)) = (request, agent.site_view(now)) {
        // As it was when it ran.
        return Ok(report::site(&view, false));
    }
    agent.start(now, store.stored(), &mut Vec::new());
    Store::hosts(&mut store, &mut |stored| agent.take_stock(&stored, now))?;
    let mut crawl = Crawl {
        agent: &mut agent,
        store: &mut store,
        dir,
        running: false,
        stop_reason: recorded.stop_reason,
    };
    Ok(crawl.answer(request, now))
}
