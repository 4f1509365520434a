//! What people ask of a run and tell it.

use nephila_core::agent::{Action, Control, Event, MemberView, StopReason};
use nephila_core::record::Record;
use nephila_core::site::{AgentId, Standing};
use nephila_core::url::{self, Host};
use nephila_store::Store;
use tokio::sync::oneshot;

use super::Run;
use crate::clock::Clock;
use crate::control::{Request, Response};
use crate::why::{Crawl, NO_SITE};

impl Run {
    pub(super) fn answer(&mut self, request: Request, reply: oneshot::Sender<Response>) {
        let now = Clock::now();
        let control = match request {
            Request::Block { what } => Control::Block(what),
            Request::Unblock { what } => Control::Unblock(what),
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
            question => {
                self.decide_about(&question);
                let mut crawl = Crawl {
                    agent: &mut self.agent,
                    store: &mut self.store,
                    dir: &self.dir,
                    running: true,
                    stop_reason: None,
                };
                // Whoever asked may have gone.
                let _ = reply.send(crawl.answer(&question, now));
                return;
            }
        };
        let mut actions = Vec::new();
        self.agent.step(now, Event::Control(control), &mut actions);
        // It is confirmed once it would survive a crash.
        let ticket = actions.iter().find_map(|action| match action {
            Action::Write { ticket, record, .. }
                if matches!(**record, Record::Block(_) | Record::Unblock(_) | Record::Members(_)) =>
            {
                Some(*ticket)
            }
            _ => None,
        });
        match ticket {
            Some(ticket) => {
                self.waiting.insert(ticket, reply);
            }
            None => {
                let _ = reply.send(Response::Done);
            }
        }
        self.perform(actions);
    }

    /// Whoever asks about a URL should hear what will be decided about it.
    fn decide_about(&mut self, question: &Request) {
        let Request::Why { url } = question else { return };
        let Ok(url) = url::parse_seed(url) else { return };
        match self.store.decide_host(&Host::of(&url)) {
            Ok(decided) => self.answers.push_back(Event::Decided(decided)),
            Err(error) => self.fail(&error),
        }
        self.settle();
    }

    /// The agent of this name or number, if it may be forgotten.
    fn whom_to_forget(&self, agent: &str) -> Result<AgentId, String> {
        let view = self.agent.site_view(Clock::now()).ok_or(NO_SITE)?;
        let is_it = |of: &&MemberView| {
            of.id.to_string() == agent || of.member.name == agent && of.member.standing != Standing::Gone
        };
        let found: Vec<&MemberView> = view.members.iter().filter(is_it).collect();
        match found[..] {
            [] => Err(format!("the site has no agent {agent}: `nephila site status` lists them")),
            [of] if of.member.standing == Standing::Gone => Err(format!("{agent} is forgotten already")),
            [of] if of.is_well => Err(format!(
                "{agent} is well: stop it first, and only if it is not to come back: what it alone knows is lost then"
            )),
            [of] => Ok(of.id),
            _ => Err(format!(
                "several agents are called {agent}: give the number of one, as `nephila site status` lists it"
            )),
        }
    }
}
