//! A site of agents that are killed, stopped and started again at random, judged by the web, by their journals and by their
//! archives.

mod faults;
mod lost;
mod servers;
mod takeover;
mod witness;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nephila_node::{control::Request, directory};
use rustix::process::Signal;

pub use self::servers::ServerFaults;
use self::{
    faults::{Fault, faults},
    lost::Lost,
    servers::Servers,
    takeover::Takeover,
    witness::Witness,
};
use super::{
    Outcome, Place, Setup,
    agents::Agents,
    archive,
    crawler::show,
    hostile::{judge, judge_manners},
    serve,
};
use crate::web::{PageBytes, Verdict, Web, WebConfig, plan::Mix};

/// Of twelve hosts four have an address each, and eight share one, across all agents.
const KINDS: &str = "plain,plain,plain,plain,neighbours";
/// An agent that was silent for so long is forgotten where there is a time-out.
const FORGET_AFTER: Duration = Duration::from_secs(30);
/// So long after the lost agent is back nothing is fetched twice any more but for what was in flight in a kill.
const OVERLAP_ENDS: Duration = Duration::from_secs(10);
const LATENCY_MS: (u32, u32) = (5, 15);
/// What this experiment has of its own where hosts are taken over: each has an address to itself, since one that is shared has
/// other waits besides,
const TAKEOVER_KINDS: &str = "plain";
/// and they take up to this part of the delay to answer, so that requests are in flight whenever an agent is killed.
const TAKEOVER_LATENCY: f64 = 0.75;
/// How long a request may take where agents share a store, whose hosts are left alone for so long if one may be in flight.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// The same where hosts are taken over: so much longer than what is allowed for the others that neither kind passes as the other.
const TAKEOVER_REQUEST_TIME_MAX: Duration = Duration::from_secs(15);
/// The figure of an agent that says how often it has found that others had ended its lease.
const FENCED: &str = "nephila_fenced_total";
const PAGE_BYTES: u32 = 8_000;
/// Small, so that kills hit files that are just being rolled.
const WARC_BYTES: &str = "1MB";
/// How much of what is fetched may be fetched again.
const OVERLAP_MAX: f64 = 0.005;
/// How long the agents may take to find each other.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// How long the crawl may go on after the last fault, beyond as long as the faults took.
const AFTER_MAX: Duration = Duration::from_secs(600);
/// The site is done when nothing was left to do for so many looks in a row, so far apart.
const LOOKS: u32 = 4;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often something that is due is looked for.
const TICK: Duration = Duration::from_millis(20);
/// How often it is said how things are.
const SAY_EVERY: Duration = Duration::from_secs(15);

/// How the experiment is done.
#[derive(Clone, Debug)]
pub struct ChaosOptions {
    /// The faults and the web follow from this.
    pub seed: u64,
    /// Agents that begin the site.
    pub agents: usize,
    /// Hosts of the web.
    pub hosts: u32,
    /// Pages of each.
    pub pages: u32,
    /// How long there are faults, in seconds; the delay between requests to a host is such that the crawl takes about as long.
    pub seconds: u64,
    /// How often an agent is killed,
    pub kill_every: Duration,
    /// and after how long it is started again, at least and at most.
    pub back_after: (Duration, Duration),
    /// How often an agent is stopped,
    pub stop_every: Duration,
    /// and for how long.
    pub stop_for: Duration,
    /// One more agent joins when a third of the time has passed.
    pub join: bool,
    /// An agent is lost with its disk when a third of the time has passed, and forgotten.
    pub lose: bool,
    /// Agents forget each other after half a minute of silence, and one is away when a third of the time has passed,
    pub times_out: bool,
    /// for so long. Others ask nothing of its hosts for half a minute more.
    pub away: Duration,
    /// The agents share a store in a Redis Cluster, and this happens to its servers.
    pub servers: Option<ServerFaults>,
    /// Nothing happens but that agents are killed, so seldom that others have taken over all hosts of one before it is back: how
    /// soon is judged. They have to share a store.
    pub takeover: bool,
}

impl Default for ChaosOptions {
    fn default() -> ChaosOptions {
        let seconds = Duration::from_secs;
        ChaosOptions {
            seed: 1,
            agents: 8,
            hosts: 100,
            pages: 500,
            seconds: 1_800,
            kill_every: seconds(5),
            back_after: (seconds(3), seconds(15)),
            stop_every: seconds(120),
            stop_for: seconds(60),
            join: false,
            lose: false,
            times_out: false,
            away: seconds(60),
            servers: None,
            takeover: false,
        }
    }
}

impl ChaosOptions {
    /// As far apart as it takes to see how hosts are taken over.
    pub fn takeover() -> ChaosOptions {
        let seconds = Duration::from_secs;
        ChaosOptions {
            pages: 150,
            seconds: 600,
            kill_every: seconds(50),
            back_after: (seconds(35), seconds(35)),
            takeover: true,
            ..ChaosOptions::default()
        }
    }

    /// Whether agents are stopped for a while.
    fn stops(&self) -> bool {
        !self.times_out && !self.takeover
    }

    /// How long a request may take.
    fn limit(&self) -> Duration {
        if self.takeover { TAKEOVER_REQUEST_TIME_MAX } else { REQUEST_TIME_MAX }
    }

    fn web(&self) -> anyhow::Result<WebConfig> {
        let delay_ms = self.delay().as_millis() as u64;
        let (kinds, latency_ms) = match self.takeover {
            true => (TAKEOVER_KINDS, (LATENCY_MS.0, (delay_ms as f64 * TAKEOVER_LATENCY) as u32)),
            false => (KINDS, LATENCY_MS),
        };
        Ok(WebConfig {
            seed: self.seed,
            hosts: self.hosts,
            pages: self.pages,
            kinds: kinds.parse()?,
            latency_ms,
            page_bytes: PageBytes::Fixed(PAGE_BYTES),
            delay_ms,
            ip_delay_ms: 0,
            ..WebConfig::default()
        })
    }

    /// The delay between requests to a host with which the crawl takes about as long as there are faults.
    fn delay(&self) -> Duration {
        if self.takeover {
            // Even hosts that answer at once have pages left then.
            return Duration::from_millis(self.seconds * 1_000 / u64::from(self.pages.max(1)));
        }
        let down = (self.back_after.0 + self.back_after.1).div_f64(2.0).div_duration_f64(self.kill_every);
        let stopped = if self.stops() { self.stop_for.div_duration_f64(self.stop_every) } else { 0.0 };
        // Where faults come faster than agents come back, some hit nobody.
        let share = 1.0 - ((down + stopped) / self.agents as f64).min(0.7);
        let page = Duration::from_secs(self.seconds).mul_f64(share) / self.pages.max(1);
        let ms = page.as_millis() as u64;
        Duration::from_millis(ms.saturating_sub(u64::from(LATENCY_MS.1)).max(1))
    }
}

/// Agents that are killed and stopped while they crawl together: all is crawled, nothing is lost, only what was in flight is
/// fetched again, and no host notices.
pub fn chaos(setup: &Setup, options: &ChaosOptions) -> anyhow::Result<Outcome> {
    let place = setup.place()?;
    let web = serve(options.web()?)?;
    let servers = options.servers.as_ref().map(Servers::start).transpose()?;
    let mut chaos = Chaos::new(setup, options, &place, &web, servers)?;
    chaos.begin()?;
    chaos.suffer()?;
    let mut outcome = Outcome::new("chaos");
    chaos.finish(&mut outcome)?;
    chaos.report(&mut outcome)?;
    Ok(outcome)
}

/// What ends a fault.
#[derive(Clone, Copy, Debug)]
enum Relief {
    Start,
    Continue,
}

/// What is fetched twice because two agents hold the same hosts.
#[derive(Clone, Copy, Debug)]
enum Overlap {
    /// It ends then.
    Ends(Instant),
    /// So much there was when it had.
    Ended(u64),
}

/// An experiment under way.
struct Chaos<'a> {
    setup: &'a Setup,
    options: &'a ChaosOptions,
    web: &'a Web,
    agents: Agents,
    /// The store that they share, if they do.
    servers: Option<Servers>,
    /// How hosts are taken over, if that is judged.
    takeover: Option<Takeover>,
    witness: Witness,
    /// Says whom a fault hits.
    mix: Mix,
    /// What is to be done for which agent, and when.
    reliefs: Vec<(Instant, usize, Relief)>,
    lost: Option<Lost>,
    /// Overlap up to a moment in which it should have ended, or when that will be.
    overlap: Option<Overlap>,
    kills: u32,
    stops: u32,
    /// How often agents that were alive have found that others had ended their leases.
    fenced: u64,
    /// Faults that found no agent running.
    in_vain: u32,
    /// What the web had been asked when the last fault began.
    requests_at_last: u64,
    ended_by_themselves: Vec<String>,
    began: Instant,
    said: Instant,
}

impl<'a> Chaos<'a> {
    fn new(
        setup: &'a Setup,
        options: &'a ChaosOptions,
        place: &Place,
        web: &'a Web,
        servers: Option<Servers>,
    ) -> anyhow::Result<Chaos<'a>> {
        let delay = show(options.delay());
        let mut settings =
            format!("delay = {delay:?}\nip-delay = \"0s\"\nwarc-size = {WARC_BYTES:?}\nshards = 1\n");
        if options.times_out {
            settings += &format!("forget-after = {:?}\n", show(FORGET_AFTER));
        }
        if let Some(servers) = &servers {
            settings += &servers.settings();
            settings += &format!("request-timeout = {:?}\n", show(options.limit()));
        }
        let takeover = options.takeover.then(|| Takeover::new(options.delay(), options.limit()));
        if let Some(takeover) = &takeover {
            ensure!(servers.is_some(), "only agents that share a store take over hosts of one that is away");
            let (back, most) = (options.back_after.0, takeover.most());
            ensure!(back >= most, "an agent that is back after {back:?} is back before {most:?} have passed");
            // The delay is to be the same for hosts that answer at once and for those that do not.
            settings += "slow-factor = 0\n";
        }
        let count = options.agents + usize::from(options.join);
        let agents = Agents::new(setup, place.path(), web, (options.agents, count), &settings)?;
        Ok(Chaos {
            setup,
            options,
            web,
            agents,
            servers,
            takeover,
            witness: Witness::new(count),
            mix: Mix::new(&[options.seed, 0xc4a1]),
            reliefs: Vec::new(),
            lost: None,
            overlap: None,
            kills: 0,
            stops: 0,
            fenced: 0,
            in_vain: 0,
            requests_at_last: 0,
            ended_by_themselves: Vec::new(),
            began: Instant::now(),
            said: Instant::now(),
        })
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        let options = self.options;
        self.setup.say(format!(
            "{} agents, {} hosts with {} pages each, a delay of {:?}",
            options.agents,
            options.hosts,
            options.pages,
            options.delay()
        ));
        for index in 0..options.agents {
            self.agents.start(index)?;
        }
        self.agents.wait_for_site(BEGIN_MAX)?;
        self.began = Instant::now();
        Ok(())
    }

    /// All faults, and the end of each.
    fn suffer(&mut self) -> anyhow::Result<()> {
        let mut faults = faults(self.options).into_iter().peekable();
        while faults.peek().is_some()
            || !self.reliefs.is_empty()
            || self.servers.as_ref().is_some_and(Servers::are_hit)
        {
            let now = Instant::now();
            if let Some((_, fault)) = faults.next_if(|(at, _)| self.began + *at <= now) {
                self.happen(fault)?;
            }
            self.relieve()?;
            self.tell_of_loss();
            self.note_overlap(now);
            self.tend()?;
            self.ended_by_themselves.extend(self.agents.ended()?);
            if self.said.elapsed() >= SAY_EVERY {
                self.say_how_things_are();
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// What is to be done and looked at all the time.
    fn tend(&mut self) -> anyhow::Result<()> {
        if let Some(servers) = &mut self.servers {
            servers.tend()?;
        }
        if let Some(takeover) = &mut self.takeover {
            takeover.look(self.web);
        }
        Ok(())
    }

    /// Takes down how often an agent found that it was fenced, before its process ends and takes that along. Who is killed, and
    /// whose lease is ended then, is not among them.
    fn note_fenced(&mut self, index: usize) {
        if self.servers.is_some() {
            self.fenced += self.agents.figure(index, FENCED).map_or(0, |times| times as u64);
        }
    }

    fn say_how_things_are(&mut self) {
        self.said = Instant::now();
        self.setup.say(format!(
            "{:.0} s: {} requests, {} kills, {} stops",
            self.began.elapsed().as_secs_f64(),
            self.web.seen().requests,
            self.kills,
            self.stops
        ));
    }

    /// Those that run, and are not stopped.
    fn victims(&self) -> Vec<usize> {
        let is_hit = |index: &usize| self.reliefs.iter().any(|(_, other, _)| other == index);
        self.agents.running().filter(|index| !is_hit(index)).collect()
    }

    fn victim(&mut self) -> Option<usize> {
        let all = self.victims();
        let at = self.mix.below(all.len().max(1) as u64) as usize;
        all.get(at).copied()
    }

    fn note_overlap(&mut self, now: Instant) {
        if let Some(Overlap::Ends(at)) = self.overlap
            && at <= now
        {
            self.witness.calm(self.web);
            self.overlap = Some(Overlap::Ended(self.web.seen().overlap));
        }
    }

    /// Tells an agent that another one will not come back.
    fn tell_of_loss(&mut self) {
        let whom = self.victims().first().copied();
        if let Some(lost) = &mut self.lost
            && lost.tell(&self.agents, whom)
        {
            self.setup.say(format!("{} is forgotten", self.agents.list[lost.index].name));
        }
    }

    fn happen(&mut self, fault: Fault) -> anyhow::Result<()> {
        self.requests_at_last = self.web.seen().requests;
        if fault == Fault::Join {
            self.setup.say("one more agent joins");
            return self.agents.start(self.agents.list.len() - 1);
        }
        if fault == Fault::KillPrimary {
            return self.kill_primary();
        }
        let Some(index) = self.victim() else {
            self.in_vain += 1;
            return Ok(());
        };
        let (lasts, relief) = match fault {
            Fault::Kill { back_after } => {
                self.kill(index)?;
                (back_after, Relief::Start)
            }
            Fault::Stop { lasts } => {
                self.signal(index, Signal::STOP)?;
                self.stops += 1;
                (lasts, Relief::Continue)
            }
            Fault::Lose => {
                self.agents.kill(index)?;
                let agent = &self.agents.list[index];
                self.witness.look(index, agent, self.web)?;
                self.witness.lose(index);
                self.setup.say(format!("{} is lost with its disk", agent.name));
                std::fs::remove_dir_all(&agent.out)?;
                self.lost = Some(Lost::new(index));
                return Ok(());
            }
            Fault::Away => {
                self.agents.kill(index)?;
                self.witness.look(index, &self.agents.list[index], self.web)?;
                self.setup.say(format!("{} is away", self.agents.list[index].name));
                self.overlap = Some(Overlap::Ends(Instant::now() + self.options.away + OVERLAP_ENDS));
                (self.options.away, Relief::Start)
            }
            Fault::Join | Fault::KillPrimary => return Ok(()),
        };
        self.reliefs.push((Instant::now() + lasts, index, relief));
        Ok(())
    }

    fn kill(&mut self, index: usize) -> anyhow::Result<()> {
        if self.takeover.is_some() {
            self.look_at_store();
        }
        self.note_fenced(index);
        let at = self.web.now();
        let hit = self.agents.kill(index)?;
        self.kills += u32::from(hit);
        self.in_vain += u32::from(!hit);
        let agent = &self.agents.list[index];
        match (&self.servers, &mut self.takeover) {
            (None, _) => self.witness.look(index, agent, self.web)?,
            (Some(servers), Some(takeover)) => {
                if let Some(held) = servers.held_by(agent) {
                    takeover.killed(held, at, self.web);
                }
            }
            (Some(_), None) => {}
        }
        Ok(())
    }

    /// Looks at what the store holds, and then kills a primary of it.
    fn kill_primary(&mut self) -> anyhow::Result<()> {
        self.look_at_store();
        self.servers.as_mut().map_or(Ok(()), |servers| servers.kill_primary(&mut self.mix))
    }

    /// Looks at what the store holds, if it can be read now.
    fn look_at_store(&mut self) {
        if let Some(seen) =
            self.servers.as_mut().and_then(|servers| servers.read(&self.agents.list, self.web))
        {
            self.witness.look_at_store(seen, self.web);
        }
    }

    fn signal(&self, index: usize, signal: Signal) -> anyhow::Result<()> {
        self.agents.list[index].running.as_ref().map_or(Ok(()), |running| running.signal(signal))
    }

    fn relieve(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.reliefs).into_iter().partition(|(at, ..)| *at <= now);
        self.reliefs = later;
        for (_, index, relief) in due {
            match relief {
                Relief::Start => self.agents.start(index)?,
                Relief::Continue => self.signal(index, Signal::CONT)?,
            }
        }
        Ok(())
    }

    /// Waits until nothing is left to do, and has all agents end.
    fn finish(&mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        let faults_took = self.began.elapsed();
        let until = Instant::now() + faults_took + AFTER_MAX;
        let mut looks = 0;
        let mut why = String::new();
        while looks < LOOKS && Instant::now() < until && self.ended_by_themselves.is_empty() {
            self.tell_of_loss();
            self.tend()?;
            match self.agents.unfinished() {
                None => looks += 1,
                Some(unfinished) => (looks, why) = (0, unfinished),
            }
            self.ended_by_themselves.extend(self.agents.ended()?);
            if self.said.elapsed() >= SAY_EVERY {
                self.setup.say(format!("{} requests; {why}", self.web.seen().requests));
                self.said = Instant::now();
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let end = if looks < LOOKS { why.as_str() } else { "nothing was left to do" };
        outcome.equal("the end", "nothing was left to do", end);
        outcome.figure("faults_s", faults_took.as_secs_f64());
        outcome.figure("seconds", self.began.elapsed().as_secs_f64());
        let said = self.agents.running().next().and_then(|index| self.agents.ask(index, &Request::Status));
        outcome.figure("pages", said.map(|said| said["totals"]["pages"].clone()).unwrap_or_default());
        for index in self.agents.running().collect::<Vec<_>>() {
            self.note_fenced(index);
        }
        let disorderly = self.agents.end()?;
        outcome.none("agents that did not end in order", disorderly.len() as u64, &disorderly);
        Ok(())
    }

    fn report(mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        match &mut self.servers {
            Some(servers) => {
                let seen = servers.read(&self.agents.list, self.web).context("the store cannot be read")?;
                self.witness.look_at_store(seen, self.web);
                self.witness.look_at_archives(&self.agents.list);
                let faults = faults(self.options).into_iter();
                let to_kill = faults.filter(|(_, fault)| *fault == Fault::KillPrimary).count();
                servers.report(to_kill, outcome);
            }
            None => self.witness.look_again(&self.agents.list, self.web)?,
        }
        match &self.takeover {
            Some(takeover) => {
                takeover.report(outcome);
                outcome.none("kills that found no agent running", u64::from(self.in_vain), &[]);
            }
            // One that was stopped for long enough is alive and does not know yet that others have its hosts.
            None if self.servers.is_some() => {
                let met = self.fenced > 0;
                outcome.bar("times that an agent was alive and fenced", "> 0", self.fenced, met);
            }
            None => {}
        }
        let verdict = self.web.verdict();
        let (last, all) = (self.requests_at_last, verdict.requests);
        outcome.bar("requests before the last fault", format!("< {all}"), last, last < all);
        let ended = &self.ended_by_themselves;
        outcome.none("agents that ended by themselves", ended.len() as u64, ended);
        self.witness.report(self.web, self.options.times_out, outcome);
        let there = self.agents.list.iter().filter(|agent| agent.out.exists());
        let archives: Vec<_> = there.map(|agent| directory::archive(&agent.out)).collect();
        let missing = archive::check_all(outcome, &archives, self.web)?;
        match &self.lost {
            Some(lost) => {
                judge_manners(outcome, &verdict);
                lost.report(&self.witness, self.web, &verdict, outcome);
                outcome.figure("pages_in_no_archive", missing.count);
            }
            None => {
                judge(outcome, &verdict);
                outcome.none(archive::MISSING, missing.count, &missing.examples);
                let unsettled = self.witness.unsettled();
                outcome.none(
                    "URLs known in the site and settled nowhere",
                    unsettled.len() as u64,
                    &unsettled,
                );
                if self.servers.is_some() {
                    let known = self.witness.known_in_store();
                    outcome.equal("URLs that the store knows", verdict.expected, known);
                }
                self.judge_overlap(&verdict, outcome);
            }
        }
        outcome.figure("requests_for_what_was_served", verdict.overlap.count);
        outcome.figure("delay_s", self.options.delay().as_secs_f64());
        outcome.figure("kills", self.kills);
        outcome.figure("stops", self.stops);
        outcome.figure("faults_in_vain", self.in_vain);
        Ok(())
    }

    /// What was fetched twice. Where agents forget each other, only what was after the lost one had been back for a while counts.
    fn judge_overlap(&self, verdict: &Verdict, outcome: &mut Outcome) {
        let (what, earlier) = match self.overlap {
            None => ("overlap", 0),
            Some(Overlap::Ended(overlap)) => {
                ("overlap 10 s after the lost agent is back, and later", overlap)
            }
            Some(Overlap::Ends(_)) => return outcome.bar("the lost agent", "back", "not back", false),
        };
        if !self.options.times_out {
            let pages = self.witness.answers().count() as u64;
            outcome.equal("pages that the journals count", verdict.expected, pages);
        }
        outcome.figure("overlap_before", earlier);
        let overlap = (verdict.overlap.count - earlier) as f64 / verdict.expected.max(1) as f64;
        let wanted = format!("< {OVERLAP_MAX}");
        outcome.bar(what, wanted, format!("{overlap:.5}"), overlap < OVERLAP_MAX);
    }
}
