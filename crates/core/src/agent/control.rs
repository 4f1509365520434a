//! What people want of a crawl: of this agent, of its site, or of all sites of its federation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stopping::StopReason;
use super::{Action, Agent, canonical};
use crate::maps::Full;
use crate::record::{Block, Record};
use crate::site::AgentId;
use crate::time::Now;

/// Wishes of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Ask nothing more of these, from the next request on.
    Block(Block),
    /// Take a block back.
    Unblock(Block),
    /// Start no request until told to go on.
    Pause,
    /// Go on.
    Resume,
    /// The same of all sites of the federation.
    Everywhere(Everywhere),
    /// An agent of the site will not come back: others take over what it held.
    Forget(AgentId),
    /// Settle what is in flight and end.
    Stop(StopReason),
}

/// What is wanted of all sites of a federation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Everywhere {
    /// Ask nothing more of these.
    Block(Block),
    /// Take a block back.
    Unblock(Block),
    /// Start no request until told to go on.
    Pause,
    /// Go on.
    Resume,
    /// Leave each host alone for so long at least, from its next answer on; or for as long as each site wants.
    Delay(Option<Duration>),
}

/// Why something is not said to all sites.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MayNotSay {
    /// There are no others.
    #[error("this agent is in no federation: without --everywhere it is for its own site")]
    Alone,
    /// It is for others to say.
    #[error("only {0}, the operator by the list of sites, can say that to all sites")]
    ForTheOperator(String),
    /// It is for nobody to say.
    #[error("nobody can say that to all sites: the list of sites names no `operator`")]
    ForNobody,
    /// It was said by others.
    #[error("it is blocked everywhere by {0}, and can be taken back there{or_by}", or_by = .1.as_ref().map_or_else(String::new, |by| format!(", or by {by}, the operator")))]
    ByOthers(String, Option<String>),
    /// Nobody has said it.
    #[error("it is not blocked everywhere")]
    NotSaid,
    /// There is no room.
    #[error(transparent)]
    Full(#[from] Full),
}

impl Agent {
    pub(super) fn on_control(&mut self, control: Control, now: Now, out: &mut Vec<Action>) {
        match control {
            Control::Forget(id) => self.forget(id, now, out),
            Control::Stop(reason) => self.stop(reason, now),
            Control::Everywhere(what) => self.say_everywhere(&what, now, out),
            wish if !self.site.is_alone() => self.wish(wish, now, out),
            Control::Block(block) => {
                let block = canonical(block);
                self.blocks.insert(block.clone());
                self.write(Record::Block(block), None, None, out);
                self.settle_all_in(now);
            }
            Control::Unblock(block) => {
                let block = canonical(block);
                self.blocks.remove(&block);
                self.write(Record::Unblock(block), None, None, out);
                self.away.want();
                self.settle_all_in(now);
            }
            Control::Pause => self.paused = true,
            Control::Resume => self.paused = false,
        }
    }
}
