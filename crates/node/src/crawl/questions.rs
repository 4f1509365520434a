//! What people ask of a run and tell it, and what other agents of its site ask for them.

use std::path::Path;
use std::time::Duration;

use nephila_core::agent::{Action, Control, Event, MemberView, StopReason, Totals};
use nephila_core::assign::partition_of;
use nephila_core::record::{Pointer, Record};
use nephila_core::site::{AgentId, Partitions};
use nephila_core::time::{Mono, Now};
use nephila_core::url::{self, Host};
use nephila_disk::RealDisk;
use nephila_store::Store;
use tokio::sync::oneshot;

use super::{Base, Input, Run};
use crate::asking::{Answer, Ask, Asked, Asker, READ_BYTES_MAX, bytes_of};
use crate::clock::Clock;
use crate::control::{Request, Response, block_name};
use crate::directory;
use crate::report::of_waiting;
use crate::shared::Gathered;
use crate::why::{Crawl, Ledger, NO_SITE};
use crate::writer::{WriteError, pointer_of};

/// A question that waits for something to be read, and where its answer goes.
pub(super) struct Question {
    ask: Ask,
    answered: Box<dyn FnOnce(Answer) + Send>,
    /// What was held when it was put, and what this process had counted.
    held: Partitions,
    own: Totals,
}

/// What was counted in the store in the partitions that an agent holds. While these are the same, only this process writes there
/// and so knows what was counted since.
pub(super) struct Counted {
    held: Partitions,
    at: Mono,
    /// In the store,
    totals: Totals,
    /// and of that by this process.
    own: Totals,
}

/// How long a shared store may take to keep what was wished for.
const WISH_TIME_MAX: Duration = Duration::from_secs(5);
/// For how long that is not read again: what was written while it was read may be counted twice until then.
const COUNTED_FOR: Duration = Duration::from_secs(60);

impl Question {
    /// The host that it is about, if it is about one.
    fn host(&self) -> Option<Host> {
        match &self.ask {
            Ask::Why { url } => url::parse_seed(url).ok().map(|url| Host::of(&url)),
            Ask::Host { name } => Host::parse(name),
            _ => None,
        }
    }
}

impl Run {
    pub(super) fn answer(&mut self, request: Request, reply: oneshot::Sender<Response>) {
        let now = Clock::now();
        if let Some(why) = self.why_not(&request) {
            // Whoever asked may have gone.
            let _ = reply.send(Response::Refused { why });
            return;
        }
        let control = match request {
            Request::Block { what } => Control::Block(what),
            Request::Unblock { what } => Control::Unblock(what),
            Request::Everywhere { what } => Control::Everywhere(what),
            Request::Pause => Control::Pause,
            Request::Resume => Control::Resume,
            Request::Stop => Control::Stop(StopReason::Stopped),
            Request::Forget { agent } => match self.whom_to_forget(&agent) {
                Ok(id) => Control::Forget(id),
                Err(why) => {
                    // Whoever asked may have gone.
                    let _ = reply.send(Response::Refused { why });
                    return;
                }
            },
            question if self.site.is_some() => {
                if let Some((question, reply)) = self.ask_elsewhere(question, reply) {
                    self.answer_for_site(question, reply);
                }
                return;
            }
            question => {
                self.decide_about(&question);
                // Whoever asked may have gone.
                let _ = reply.send(self.crawl(&mut Gathered::default()).answer(&question, now));
                return;
            }
        };
        let is_wish = !matches!(control, Control::Stop(_) | Control::Forget(_));
        let mut actions = Vec::new();
        self.agent.step(now, Event::Control(control), &mut actions);
        // It is confirmed once it would survive a crash.
        let ticket = actions.iter().find_map(|action| match action {
            Action::Write { ticket, record, .. }
                if matches!(
                    **record,
                    Record::Block(_) | Record::Unblock(_) | Record::Wishes(_) | Record::Members(_)
                ) =>
            {
                Some(*ticket)
            }
            _ => None,
        });
        match ticket {
            Some(ticket) => {
                self.waiting.insert(ticket, reply);
            }
            None if is_wish => self.wished.push((now.mono, reply)),
            None => {
                let _ = reply.send(Response::Done);
            }
        }
        self.perform(actions);
        self.answer_wished();
    }

    /// Why what is wanted cannot be done here.
    fn why_not(&self, request: &Request) -> Option<String> {
        match request {
            Request::Pause | Request::Resume if self.agent.is_stopping() => {
                Some("the crawl is ending: it settles what is in flight, and asks nothing more".to_owned())
            }
            Request::Resume if self.agent.is_paused_by_all() && !self.agent.wishes().is_paused() => {
                Some("all sites pause: `nephila resume --everywhere` at the operator's site".to_owned())
            }
            Request::Unblock { what } if !self.agent.wishes().is_blocked(what) => {
                let by = self.agent.blocked_by(what);
                let name = block_name(what);
                let how = format!("`nephila unblock {name} --everywhere` there takes that back");
                (!by.is_empty()).then(|| format!("{name} is blocked everywhere, by {}: {how}", by.join(", ")))
            }
            Request::Everywhere { what } => self.agent.may_say(what).err().map(|error| error.to_string()),
            _ => None,
        }
    }

    /// Confirms what a shared store is known to have, and says of what it does not have after a while that it has not.
    pub(super) fn answer_wished(&mut self) {
        if self.wished.is_empty() {
            return;
        }
        let (now, are_kept) = (Clock::now().mono, self.agent.are_wishes_kept());
        let is_over = |(since, _): &mut (Mono, _)| are_kept || now.since(*since) >= WISH_TIME_MAX;
        for (_, reply) in self.wished.extract_if(.., is_over) {
            let why = "the store does not answer: this agent holds to it from now on, and the others hear of it, and it is \
                       written down, when the store is back";
            // Whoever asked may have gone.
            let _ = reply.send(match are_kept {
                true => Response::Done,
                false => Response::Refused { why: why.to_owned() },
            });
        }
    }

    /// What questions are answered from: the agent, and its own store or what was read of the one that it shares.
    fn crawl<'a>(&'a mut self, gathered: &'a mut Gathered) -> Crawl<'a> {
        Crawl {
            agent: &mut self.agent,
            store: match &mut self.base {
                Base::Own(own) => &mut own.store,
                Base::Shared(_) => gathered,
            },
            dir: &self.dir,
            running: true,
            stop_reason: None,
        }
    }

    /// Whoever asks about a URL should hear what will be decided about it.
    fn decide_about(&mut self, question: &Request) {
        if let Request::Why { url } = question {
            self.decide_about_url(url);
        }
    }

    fn decide_about_url(&mut self, url: &str) {
        let (Ok(url), Base::Own(own)) = (url::parse_seed(url), &mut self.base) else { return };
        match own.store.decide_host(&Host::of(&url)) {
            Ok(decided) => self.answers.push_back(Event::Decided(decided)),
            Err(error) => self.fail(&WriteError::Store(error)),
        }
        self.settle();
    }

    /// Asks agents of the site.
    pub(super) fn asker(&self) -> Asker<impl Fn(Asked) + use<>> {
        let inputs = self.inputs.clone();
        Asker(move |asked| {
            // The loop may have ended; then nobody needs the answer.
            let _ = inputs.send(Input::Ask(Box::new(asked)));
        })
    }

    /// The agents of the site, and their names.
    pub(super) fn agents(&self) -> Vec<(AgentId, String)> {
        let members = self.agent.members();
        let mut agents: Vec<(AgentId, String)> = members.map(|(id, of)| (id, of.name.clone())).collect();
        if agents.is_empty() {
            // The site has not begun.
            agents.extend(self.agent.me().map(|me| (me, String::new())));
        }
        agents
    }

    /// Answers a question for the whole site, as far as its agents answer.
    fn answer_for_site(&mut self, question: Request, reply: oneshot::Sender<Response>) {
        let now = Clock::now();
        let (asker, agents) = (self.asker(), self.agents());
        let holder_of = |url: &str| {
            let url = url::parse_seed(url).ok()?;
            self.agent.holder_of(&Host::of(&url)).or(self.agent.me())
        };
        match question {
            Request::Status => {
                let waits = self.agent.waits_for_site();
                answer_later(reply, async move { of_waiting(asker.status(agents).await, waits.as_ref()) });
            }
            Request::Hosts { limit, sort, name } => {
                answer_later(reply, async move { asker.hosts(agents, limit, sort, name).await });
            }
            Request::Why { url } => match holder_of(&url) {
                Some(holder) => {
                    let name = self.agent.name_of(holder).map(str::to_owned);
                    answer_later(reply, async move { asker.why(holder, name, url).await });
                }
                None => drop(reply.send(Response::Refused { why: format!("{url:?} is not a URL") })),
            },
            Request::Read { agent, pointer, from, .. } => match agent.parse::<AgentId>() {
                Ok(agent) => {
                    let name = self.agent.name_of(agent).map(str::to_owned);
                    answer_later(
                        reply,
                        async move { bytes_of(asker.read(agent, name, pointer, from).await) },
                    );
                }
                Err(error) => drop(reply.send(Response::Refused { why: error.to_string() })),
            },
            question => drop(reply.send(self.crawl(&mut Gathered::default()).answer(&question, now))),
        }
    }

    /// Has an agent answer a question, this one or another.
    pub(super) fn ask_agent(&mut self, (agent, ask, reply): Asked) {
        if Some(agent) == self.agent.me() {
            return self.tell(ask, move |answer| drop(reply.send(answer)));
        }
        if let (Some(site), Some(member)) = (&mut self.site, self.agent.member(agent)) {
            site.ask(agent, member, ask, reply);
        }
    }

    /// Another agent asks something.
    pub(super) fn answer_agent(&mut self, from: AgentId, name: &str, question: u64, ask: Ask) {
        if self.agent.member(from).is_some_and(|member| member.name == name) {
            let inputs = self.inputs.clone();
            self.tell(ask, move |answer| drop(inputs.send(Input::Answer(from, question, Box::new(answer)))));
        }
    }

    pub(super) fn send_answer(&mut self, to: AgentId, question: u64, answer: Answer) {
        if let (Some(site), Some(member)) = (&self.site, self.agent.member(to)) {
            site.answer(to, member, question, answer);
        }
    }

    /// What this agent says of what it has; what is in the archive is read on a thread of its own.
    fn tell(&mut self, ask: Ask, answered: impl FnOnce(Answer) + Send + 'static) {
        match ask {
            Ask::Read { pointer, from } => {
                let dir = self.dir.clone();
                tokio::task::spawn_blocking(move || answered(read(&dir, &pointer, from)));
            }
            Ask::Why { .. } | Ask::Hosts { .. } | Ask::Status if matches!(self.base, Base::Shared(_)) => {
                let now = Clock::now();
                let held = self.agent.open_partitions().cloned().unwrap_or_default();
                let own = self.agent.status(now).totals;
                let counted = self.counted.as_ref().filter(|counted| {
                    matches!(ask, Ask::Status)
                        && counted.held == held
                        && now.mono.since(counted.at) < COUNTED_FOR
                });
                if let Some(counted) = counted {
                    let mut totals = own.since(&counted.own);
                    totals.add(&counted.totals);
                    return answered(self.crawl(&mut Gathered::counted(totals)).tell(&ask, now));
                }
                self.gather(Question { ask, answered: Box::new(answered), held, own });
            }
            ask => {
                if let Ask::Why { url } = &ask {
                    self.decide_about_url(url);
                }
                answered(self.crawl(&mut Gathered::default()).tell(&ask, Clock::now()));
            }
        }
    }

    /// Has read what a question needs of the store that agents share, on a thread of its own.
    fn gather(&mut self, question: Question) {
        let Base::Shared(shared) = &self.base else { return };
        let (options, inputs) = (shared.options().clone(), self.inputs.clone());
        let held = question.held.iter().collect();
        let places = question.host().map(|host| self.agent.rules_places(&host)).unwrap_or_default();
        tokio::task::spawn_blocking(move || {
            let gathered = Gathered::read(&options, &question.ask, places, held).map(Box::new);
            // The loop may have ended; then nobody needs the answer.
            let _ = inputs.send(Input::Gathered(Box::new(question), gathered));
        });
    }

    /// Answers a question with what was read for it.
    pub(super) fn answer_gathered(
        &mut self,
        question: Question,
        gathered: nephila_store::Result<Box<Gathered>>,
    ) {
        let host = question.host();
        let is_ours =
            |host: &Host| self.agent.open_partitions().is_none_or(|open| open.contains(partition_of(host)));
        let answer = match gathered {
            // Whoever has it knows more, and nothing of it must come to this agent's workbench.
            Ok(_) if host.as_ref().is_some_and(|host| !is_ours(host)) => {
                Answer::Refused("its host is just changing hands: ask again".to_owned())
            }
            Ok(mut gathered) => {
                let now = Clock::now();
                if let Some(totals) = gathered.totals().cloned() {
                    let (held, own) = (question.held.clone(), question.own.clone());
                    self.counted = Some(Counted { held, at: now.mono, totals, own });
                }
                let now = Now { wall: self.agent.calendar(now), ..now };
                self.crawl(&mut gathered).tell(&question.ask, now)
            }
            Err(error) => Answer::Refused(format!("the store cannot be read: {error}")),
        };
        (question.answered)(answer);
    }

    /// The agent of this name or number, if it may be forgotten.
    fn whom_to_forget(&self, agent: &str) -> Result<AgentId, String> {
        let view = self.agent.site_view(Clock::now()).ok_or(NO_SITE)?;
        if matches!(self.base, Base::Shared(_)) {
            return Err(
                "agents that share a store need not be forgotten: others go on with its hosts".to_owned()
            );
        }
        let is_it =
            |of: &&MemberView| of.id.to_string() == agent || of.member.name == agent && !of.member.is_gone();
        let found: Vec<&MemberView> = view.members.iter().filter(is_it).collect();
        match found[..] {
            [] => Err(format!("the site has no agent {agent}: `nephila site status` lists them")),
            [of] if of.member.is_gone() => Err(format!("{agent} is forgotten already")),
            [of] if of.is_well => Err(format!(
                "{agent} was heard of in the last few seconds: stop it first, and only if it is not to come back, since what it \
                 alone knows is lost then; if it has just stopped, say so again in a few seconds"
            )),
            [of] => Ok(of.id),
            _ => Err(format!(
                "several agents are called {agent}: give the number of one, as `nephila site status` lists it"
            )),
        }
    }
}

/// Answers when it can be.
pub(super) fn answer_later(
    reply: oneshot::Sender<Response>,
    answer: impl Future<Output = Response> + 'static,
) {
    tokio::task::spawn_local(async move {
        // Whoever asked may have gone.
        let _ = reply.send(answer.await);
    });
}

/// A part of what the archive holds.
fn read(dir: &Path, pointer: &Pointer, from: u64) -> Answer {
    match nephila_archive::read_record(&RealDisk, &directory::archive(dir), &pointer_of(pointer)) {
        Ok(record) => {
            let from = usize::try_from(from).unwrap_or(usize::MAX).min(record.block.len());
            let until = record.block.len().min(from + READ_BYTES_MAX);
            Answer::Bytes(record.block[from..until].to_vec(), until == record.block.len())
        }
        Err(error) => Answer::Refused(format!("the archive cannot be read: {error}")),
    }
}
