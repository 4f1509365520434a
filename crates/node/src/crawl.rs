//! A run of a crawl: performs what the agent decides and tells it what came of it.
//!
//! One thread runs the agent, the sieve and the connections of the first shard; a second one compresses, digests and writes
//! ([`crate::writer`]). Each further shard ([`crate::shard`]) has two threads of its own for the same. Where agents share a
//! store, others talk to it ([`crate::shared`]). Every action is performed in the order in which the agent gave it, and every
//! answer comes back as an event; nothing is decided here.

mod company;
mod descriptors;
mod elsewhere;
mod error;
mod own;
mod questions;
mod signals;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nephila_core::agent::{
    Action, Agent, Control, Event, FetchId, Fetched, LookBack, Order, StopReason, Ticket, Totals,
};
use nephila_core::site::{AgentId, Partitions};
use nephila_core::time::{Mono, Now};
use nephila_core::url::Url;
use nephila_disk::RealDisk;
use nephila_store::Store;
use nephila_store::redis::{RedisOptions, RedisStore};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior};

use self::company::Company;
use self::descriptors::Descriptors;
pub use self::error::CrawlError;
use self::own::Own;
pub use self::own::snapshot;
use self::questions::{Counted, Question};
use self::signals::Signals;
use crate::archiving::Archive;
use crate::asking::{Answer, Asked};
use crate::clock::Clock;
use crate::config::Config;
use crate::control::{self, Requests, Response};
use crate::directory::{self, Directory};
use crate::display::Display;
use crate::dns::Resolver;
use crate::fetch::{Captured, FetchConfig, Outcome};
use crate::fetch_log::Attempt;
use crate::looking_back::LookingBack;
use crate::metrics::{self, Metrics};
use crate::places::Places;
use crate::shard::Shards;
use crate::shared::{self, Gathered, Health, Said, SharedStore};
use crate::site::{Heard, Site};
use crate::summary::Summary;
use crate::writer::{self, Job, Opened, WriteError, Writing, Written};

/// Inputs that are handled before the display and the timers get a look in again.
const INPUTS_MAX: usize = 256;

/// How often the display is brought up to date.
const DISPLAY_EVERY: Duration = Duration::from_millis(250);

/// What reaches the loop from elsewhere.
enum Input {
    Event(Event),
    Fetched(Box<(Order, Outcome)>),
    Written(Written),
    WriterEnded,
    /// From the store that agents share.
    Said(Said),
    /// What is needed to answer a question was read from it.
    Gathered(Box<Question>, nephila_store::Result<Box<Gathered>>),
    /// Something to ask of an agent of the site.
    Ask(Box<Asked>),
    /// The answer to a question of another agent.
    Answer(AgentId, u64, Box<Answer>),
}

/// Runs the crawl in `directory` until it ends, and says how it went. `seeds` are all its seeds, old and new; `site` is whom it
/// crawls with, if it does not crawl alone.
pub fn run(
    config: &Config,
    directory: &Directory,
    seeds: Vec<Url>,
    site: Option<Site>,
    display: &mut Display,
) -> Result<Summary, CrawlError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CrawlError::Start)?;
    LocalSet::new().block_on(&runtime, async {
        let mut run = Run::open(config, directory, &seeds, site, display)?;
        let reason = run.work(seeds, display).await;
        run.requests.finish().await;
        run.close(directory, reason)
    })
}

/// Where sieve, queues and records are.
enum Base {
    Own(Box<Own>),
    Shared(Box<SharedStore>),
}

struct Run {
    agent: Agent,
    base: Base,
    /// For those who fetch.
    lease_until: Arc<AtomicU64>,
    shards: Shards,
    resolver: Rc<Resolver>,
    /// Where addresses are, if that is of interest.
    places: Option<Rc<Places>>,
    inputs: UnboundedSender<Input>,
    received: UnboundedReceiver<Input>,
    requests: Requests,
    metrics: Option<Metrics>,
    site: Option<Site>,
    company: Company,
    /// What was counted in the store that agents share.
    counted: Option<Counted>,
    /// Answers that the store gave at once; filled by `perform`, emptied by `settle`.
    answers: VecDeque<Event>,
    /// What a fetch received, from its end to the record that settles it.
    held: HashMap<FetchId, (Option<Captured>, Attempt)>,
    /// People who wait for a record to become durable.
    waiting: HashMap<Ticket, oneshot::Sender<Response>>,
    /// Who is told when a shared store has what was wished for, and since when each waits.
    wished: Vec<(Mono, oneshot::Sender<Response>)>,
    ended: Option<StopReason>,
    /// An answer could not be kept, and that was said.
    unkept: bool,
    /// The store has failed, and that was said.
    failed: bool,
    dir: PathBuf,
    looking_back: LookingBack,
    /// The totals when this run began.
    before: Totals,
}

impl Run {
    fn open(
        config: &Config,
        directory: &Directory,
        seeds: &[Url],
        site: Option<Site>,
        display: &Display,
    ) -> Result<Run, CrawlError> {
        let places = config.site.geoip.as_deref().map(Places::read).transpose()?.map(Rc::new);
        let metrics = config.metrics.map(|address| serve_metrics(address, display)).transpose()?;
        let most = Descriptors::plan(config, site.is_some())?;
        let parallel = most.fetches.min(config.settings.parallel);
        let settings = nephila_core::settings::Settings { parallel, ..config.settings.clone() };
        let mut agent = match &site {
            None => Agent::new(settings, config.scope(seeds)),
            Some(site) => site.agent(settings, config.scope(seeds)),
        };
        let dir = directory.path();
        let (inputs, received) = unbounded_channel();
        let base = match site.as_ref().and_then(Site::store) {
            None => Base::Own(Box::new(open_own(config, dir, &mut agent, inputs.clone(), display)?)),
            Some(options) => {
                let (mut store, copies) = shared::find(options, None).map_err(CrawlError::Shared)?;
                if let Some(site) = &site {
                    let told = site.with_kept_lists(agent, &mut store).map_err(CrawlError::Shared)?;
                    agent = told.map_err(CrawlError::NotHere)?;
                }
                if let Some(why) = crate::copy::obstacle(&copies) {
                    return Err(CrawlError::NotHere(why));
                }
                shared::refuse_empty(dir, options, &copies)?;
                Base::Shared(Box::new(open_shared(config, dir, options, store, inputs.clone())?))
            }
        };
        let spill = directory::spill(dir);
        std::fs::create_dir_all(&spill).map_err(|error| CrawlError::Spill(spill.clone(), error))?;
        let fetched = inputs.clone();
        let lease_until = Arc::new(AtomicU64::new(agent.lease_until().0));
        let shards =
            Shards::start(fetch_configs(config, &spill, &lease_until, most.idle), move |order, outcome| {
                // The loop may have ended; then nobody needs the answer.
                let _ = fetched.send(Input::Fetched(Box::new((order, outcome))));
            })?;
        let requests = control::serve(&directory::control_socket(dir)).map_err(CrawlError::Control)?;
        Ok(Run {
            before: Totals::default(),
            agent,
            base,
            lease_until,
            shards,
            resolver: Rc::new(Resolver::new(
                config.dns,
                config.dns_timeout,
                config.settings.resolve_parallel.min(most.names),
            )?),
            places,
            inputs,
            received,
            requests,
            metrics,
            site,
            company: Company::default(),
            counted: None,
            answers: VecDeque::new(),
            held: HashMap::new(),
            waiting: HashMap::new(),
            wished: Vec::new(),
            ended: None,
            unkept: false,
            failed: false,
            dir: dir.to_owned(),
            looking_back: LookingBack::new(config),
        })
    }

    /// Works until the agent says that it is enough, or nothing can be written any more.
    async fn work(&mut self, seeds: Vec<Url>, display: &mut Display) -> StopReason {
        let mut interrupts = Signals::listen();
        let mut ticks = tokio::time::interval(DISPLAY_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut actions = Vec::new();
        let stored = match &self.base {
            Base::Own(own) => own.store.stored(),
            // That is known when it has taken partitions over.
            Base::Shared(_) => Default::default(),
        };
        self.agent.start(Clock::now(), stored, &mut actions);
        self.before = self.agent.status(Clock::now()).totals;
        self.perform(actions);
        self.settle();
        // Those that the crawl knows already fall out again before anything is written.
        self.step(Event::Seeds(seeds));
        loop {
            self.settle();
            self.answer_wished();
            if let Some(reason) = self.ended {
                self.company.say(&self.agent, self.site.as_ref(), display, Clock::now());
                return reason;
            }
            let wake = self.agent.next_wake();
            tokio::select! {
                Some(input) = self.received.recv() => {
                    self.take_in(input);
                    for _ in 0..INPUTS_MAX {
                        let Ok(input) = self.received.try_recv() else { break };
                        self.take_in(input);
                    }
                }
                Some((request, reply)) = self.requests.recv() => self.answer(request, reply),
                Some(heard) = heard(&mut self.site) => match heard {
                    Heard::Event(event) => self.step(event),
                    Heard::Asked(from, name, question, ask) => self.answer_agent(from, &name, question, ask),
                    Heard::Put((question, reply)) => self.answer_other_site(question, reply),
                },
                Some(reply) = asked(&mut self.metrics) => {
                    let (now, health) = (Clock::now(), self.health());
                    // Whoever asked may have gone.
                    let _ = reply.send(metrics::text(&self.agent.status(now), self.agent.elapsed(now), health));
                }
                reason = interrupts.next() => self.step(Event::Control(Control::Stop(reason))),
                () = sleep_until(wake) => self.step(Event::Wake),
                _ = ticks.tick() => {
                    let now = Clock::now();
                    self.company.say(&self.agent, self.site.as_ref(), display, now);
                    display.update(&self.agent.status(now), self.agent.elapsed(now));
                }
            }
        }
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.step(event),
            Input::Fetched(outcome) => {
                let (order, Outcome { fetched, capture, unkept }) = *outcome;
                // First, so that what follows does not start another fetch.
                if let Some(error) = unkept {
                    self.stop_unkept(error);
                }
                let attempt = attempt(order, &fetched, Clock::now());
                self.held.insert(fetched.fetch, (capture, attempt));
                self.step(Event::Fetched(fetched));
            }
            Input::Written(written) => self.fold(written),
            Input::Said(Said::Events(events)) => events.into_iter().for_each(|event| self.step(event)),
            Input::Said(Said::Failed(error)) => self.fail(&error),
            Input::Gathered(question, gathered) => self.answer_gathered(*question, gathered),
            Input::Ask(asked) => self.ask_agent(*asked),
            Input::Answer(to, question, answer) => self.send_answer(to, question, *answer),
            Input::WriterEnded => {
                self.ended.get_or_insert(StopReason::Error);
            }
        }
    }

    /// Takes in what has become durable in a store of its own.
    fn fold(&mut self, written: Written) {
        let Base::Own(own) = &mut self.base else { return };
        let (durable, end) = match written {
            Written::Snapshot(done) => {
                if let Err(error) = own.end_snapshot(done) {
                    self.fail(&WriteError::Store(error));
                }
                return;
            }
            Written::Records(durable, end) => (durable, end),
        };
        for done in durable {
            let Base::Own(own) = &mut self.base else { return };
            match own.fold(&done) {
                Ok(decided) => self.answers.extend(decided),
                Err(error) => self.fail(&WriteError::Store(error)),
            }
            if let Some(reply) = self.waiting.remove(&done.ticket) {
                // Whoever asked may have gone.
                let _ = reply.send(Response::Done);
            }
            self.step(Event::Recorded { ticket: done.ticket, place: done.place, record: done.record });
        }
        if let Base::Own(own) = &mut self.base
            && let Err(error) = own.snapshot_if_due(&mut self.agent, end, Clock::now())
        {
            self.fail(&WriteError::Store(error));
        }
    }

    fn step(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.agent.step(Clock::now(), event, &mut actions);
        self.lease_until.store(self.agent.lease_until().0, Ordering::Relaxed);
        self.perform(actions);
    }

    /// How the store fares that agents share.
    fn health(&self) -> Option<Health> {
        let Base::Shared(shared) = &self.base else { return None };
        let now = Clock::now();
        let held = self.agent.open_partitions().map(Partitions::len).unwrap_or_default();
        Some(Health { lease_left: self.agent.lease_until().since(now.mono), held, ..shared.health() })
    }

    /// Gives the agent the answers that are there already, until there are none.
    fn settle(&mut self) {
        while let Some(event) = self.answers.pop_front() {
            self.step(event);
        }
        if let Base::Own(own) = &mut self.base {
            own.hand_over();
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Resolve { host } => {
                    let (resolver, inputs) = (Rc::clone(&self.resolver), self.inputs.clone());
                    let places = self.places.clone();
                    tokio::task::spawn_local(async move {
                        let mut answer = resolver.resolve(&host).await;
                        if let (Ok(addresses), Some(places)) = (&mut answer, places) {
                            addresses.position =
                                addresses.list.iter().find_map(|address| places.locate(*address));
                        }
                        // The loop may have ended; then nobody needs the answer.
                        let _ = inputs.send(Input::Event(Event::Resolved { host, answer }));
                    });
                }
                Action::Fetch(order) => self.shards.fetch(order),
                Action::Abandon(fetch) => self.shards.abandon(fetch),
                Action::Write { ticket, record, fetch } => {
                    let (capture, attempt) = match fetch.and_then(|fetch| self.held.remove(&fetch)) {
                        Some((capture, attempt)) => (capture, Some(attempt)),
                        None => (None, None),
                    };
                    let (job, now) = (Job { ticket, record, capture, attempt }, Clock::now().wall);
                    match &mut self.base {
                        Base::Own(own) => own.write(job, now),
                        Base::Shared(shared) => shared.write(job, now),
                    }
                }
                said @ (Action::Send { .. }
                | Action::Post { .. }
                | Action::Answer { .. }
                | Action::Claim { .. }
                | Action::Release { .. }
                | Action::AskRules { .. }
                | Action::Tell { .. }
                | Action::GiveRules { .. }
                | Action::Say { .. }
                | Action::Heard { .. }) => {
                    if let Some(site) = &self.site {
                        site.perform(said);
                    }
                }
                Action::End(reason) => {
                    self.ended.get_or_insert(reason);
                }
                Action::LookBack(asked) => self.look_back(asked),
                of_store => self.ask_store(of_store),
            }
        }
    }

    /// Has the store do something; what it answers at once the agent hears next.
    fn ask_store(&mut self, action: Action) {
        let now = Clock::now();
        match &mut self.base {
            Base::Own(own) => match own.perform(action, now.wall) {
                Ok(answer) => self.answers.extend(answer),
                Err(error) => self.fail(&WriteError::Store(error)),
            },
            Base::Shared(shared) => shared.perform(action, self.agent.calendar(now)),
        }
    }

    /// Reads records again, and on another thread the answers that they are about.
    fn look_back(&mut self, asked: LookBack) {
        let Base::Own(own) = &self.base else { return };
        let (records, next) = match own.kept_records(asked.from, asked.until) {
            Ok(read) => read,
            Err(error) => return self.fail(&WriteError::Store(error)),
        };
        if !asked.with_answers {
            let looked = records.into_iter().map(|(place, record)| (place, record, None)).collect();
            self.answers.push_back(Event::LookedBack { asked, looked, next });
            return;
        }
        let (reader, dir, inputs) =
            (self.looking_back.clone(), directory::archive(&self.dir), self.inputs.clone());
        let reading = tokio::task::spawn_blocking(move || reader.read(&RealDisk, &dir, records, next));
        tokio::task::spawn_local(async move {
            // An answer that makes a parser panic must not end the crawl: it and its neighbours lead nowhere then.
            let (looked, next) = reading.await.unwrap_or((Vec::new(), next));
            // The loop may have ended; then nobody needs them.
            let _ = inputs.send(Input::Event(Event::LookedBack { asked, looked, next }));
        });
    }

    /// An answer could not be kept: settles what is in flight and ends.
    fn stop_unkept(&mut self, error: std::io::Error) {
        let reason = if nephila_disk::is_full(&error) { StopReason::DiskFull } else { StopReason::Error };
        // The others in flight may meet the same.
        if !std::mem::replace(&mut self.unkept, true) {
            crate::display::error(&CrawlError::Unkept(directory::spill(&self.dir), error));
        }
        self.step(Event::Control(Control::Stop(reason)));
    }

    /// The store has failed: what is in flight cannot be told from what is done, so nothing more is asked of anybody.
    fn fail(&mut self, error: &WriteError) {
        // Whatever is asked of it meanwhile fails for the same reason.
        if !std::mem::replace(&mut self.failed, true) {
            crate::display::error(error);
        }
        self.ended = Some(if error.is_disk_full() { StopReason::DiskFull } else { StopReason::Error });
    }

    /// Writes down how long it took, finishes the archive and its index, and sums up.
    fn close(mut self, directory: &Directory, mut reason: StopReason) -> Result<Summary, CrawlError> {
        let now = Clock::now();
        let run_elapsed = self.agent.elapsed(now) - self.before.elapsed_before;
        let status = self.agent.status(now);
        let dir = directory.path();
        let closed = match self.base {
            Base::Own(own) => own.close(&mut self.agent, run_elapsed, status.unsettled == 0, now),
            Base::Shared(shared) => {
                shared.finish();
                Ok(())
            }
        };
        let closed = closed.and_then(|()| {
            nephila_archive::merge(&RealDisk, &directory::archive(dir), &directory::index(dir))
                .map_err(CrawlError::Index)?;
            directory.mark_ended(reason)?;
            Ok(())
        });
        match closed {
            Err(error) if error.exit_code() == StopReason::DiskFull.exit_code() => {
                crate::display::error(&error);
                reason = StopReason::DiskFull;
                // If there is room for that.
                let _ = directory.mark_ended(reason);
            }
            closed => closed?,
        }
        Ok(Summary::new(status, self.before, run_elapsed, reason, directory.path()))
    }
}

fn serve_metrics(address: SocketAddr, display: &Display) -> Result<Metrics, CrawlError> {
    let metrics = Metrics::serve(address).map_err(|error| CrawlError::Metrics(address, error))?;
    display.say(&format!("figures: http://{}/metrics", metrics.address()));
    Ok(metrics)
}

async fn heard(site: &mut Option<Site>) -> Option<Heard> {
    match site {
        Some(site) => site.recv().await,
        None => std::future::pending().await,
    }
}

async fn asked(metrics: &mut Option<Metrics>) -> Option<oneshot::Sender<String>> {
    match metrics {
        Some(metrics) => metrics.asked().await,
        None => std::future::pending().await,
    }
}

/// Says what opening the crawl found broken.
fn say_mended(opened: &Opened, display: &Display) {
    let (store, pages) = (&opened.store, opened.lost_pages);
    match (store.is_damaged(), store.torn_bytes()) {
        (true, bytes) => crate::display::note(&format!(
            "warning: the journal is damaged: {bytes} bytes of it do not count any more and are kept beside it in files named \
             damaged-*; what they recorded is found and fetched again"
        )),
        (false, 0) => {}
        (false, bytes) => {
            display.say(&format!("note: cut {bytes} bytes that a crash left unfinished in the journal"))
        }
    }
    if pages > 0 {
        crate::display::note(&format!(
            "warning: {pages} fetched pages are not in the archive any more and are fetched again"
        ));
    }
}

fn open_own(
    config: &Config,
    dir: &Path,
    agent: &mut Agent,
    inputs: UnboundedSender<Input>,
    display: &Display,
) -> Result<Own, CrawlError> {
    let mut opened = writer::open(Arc::new(RealDisk), dir, config, agent, Clock::now())?;
    say_mended(&opened, display);
    let snapshot_at = opened.writer.end();
    let archives = std::mem::take(&mut opened.archives);
    let writing = start_writing(opened.writer, archives, inputs)?;
    Ok(Own::new(opened.store, opened.pointed, writing, snapshot_at, config.snapshot_bytes))
}

fn open_shared(
    config: &Config,
    dir: &Path,
    options: &RedisOptions,
    store: RedisStore,
    inputs: UnboundedSender<Input>,
) -> Result<SharedStore, CrawlError> {
    let said = move |said| {
        // The loop may have ended; then nobody needs to know.
        let _ = inputs.send(Input::Said(said));
    };
    Ok(SharedStore::start(config, dir, options.clone(), store, said)?)
}

fn start_writing(
    writer: writer::Writer,
    archives: Vec<Archive>,
    inputs: UnboundedSender<Input>,
) -> Result<Writing, CrawlError> {
    /// Says that the thread has ended, however it ended.
    struct Last(UnboundedSender<Input>);
    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.0.send(Input::WriterEnded);
        }
    }
    let last = Last(inputs);
    Writing::start(writer, archives, move |written| {
        let _ = last.0.send(Input::Written(written));
    })
    .map_err(CrawlError::Start)
}

/// What each shard may do and use: of what there is, its part.
fn fetch_configs(
    config: &Config,
    spill_dir: &Path,
    lease_until: &Arc<AtomicU64>,
    idle_max: usize,
) -> Vec<FetchConfig> {
    let shards = config.shards();
    // None is a number too, where nothing need be.
    let part = |of: usize| of / usize::from(shards);
    let one = |shard| FetchConfig {
        shard,
        user_agent: config.user_agent(),
        host_headers: config.headers.clone(),
        from: config.from(),
        token: config.settings.token.clone(),
        ca_pem: config.ca_pem.clone(),
        tls_sessions_max: part(config.tls_sessions_max),
        private: config.settings.private.clone(),
        bind: config.bind.clone(),
        connect_timeout: config.connect_timeout,
        request_timeout: config.settings.request_timeout,
        slow_after: config.slow_after,
        slow_bytes_per_s: config.slow_bytes_per_s,
        body_bytes_max: config.body_bytes_max,
        head_bytes_max: config.head_bytes_max,
        accept: config.accept.clone(),
        memory_bytes: part(usize::try_from(config.memory_bytes).unwrap_or(usize::MAX)).max(1),
        spill_bytes: usize::try_from(config.spill_bytes).unwrap_or(usize::MAX),
        spill_dir: spill_dir.to_owned(),
        decode_bytes_max: usize::try_from(config.decode_bytes_max).unwrap_or(usize::MAX),
        decode_ratio_max: usize::try_from(config.decode_ratio_max).unwrap_or(usize::MAX),
        idle_connections_max: part(config.idle_connections_max.min(idle_max)),
        idle_timeout: config.idle_timeout,
        lease_until: Arc::clone(lease_until),
    };
    (0..shards).map(one).collect()
}

/// What the log says of a fetch.
fn attempt(order: Order, fetched: &Fetched, now: Now) -> Attempt {
    let (status, bytes, reason) = match &fetched.result {
        Ok(answer) => {
            (Some(answer.status), answer.bytes, answer.cut.map(|cut| format!("{cut:?}").to_lowercase()))
        }
        Err(error) => (None, 0, Some(format!("{}: {}", error.failure.name(), error.detail))),
    };
    Attempt {
        time: now.wall,
        url: order.url.into(),
        status,
        bytes,
        ms: u64::try_from(fetched.ended.since(fetched.started).as_millis()).unwrap_or(u64::MAX),
        address: fetched.contacted.last().copied(),
        via: order.via,
        depth: order.depth,
        attempt: order.attempt,
        reason,
        warc: None,
        offset: None,
    }
}

async fn sleep_until(wake: Option<Mono>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(Instant::now() + wake.since(Clock::now().mono)).await,
        None => std::future::pending().await,
    }
}
