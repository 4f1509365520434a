//! What concerns all agents of a site, and which of them was told does not matter: blocks, pauses, and what redirects of seeds
//! add to the scope. Spread like the list of members, and written down by each; where agents share a store, kept there with the
//! leases, and brought to all by their beats.

use super::{Action, Agent, Control, canonical};
use crate::record::{Block, Record};
use crate::site::{AgentId, Message, Wishes};
use crate::time::Now;
use crate::url::Url;

impl Agent {
    /// The operator says something that concerns all agents.
    pub(super) fn wish(&mut self, control: Control, now: Now, out: &mut Vec<Action>) {
        let mut wishes = self.site.wishes.clone();
        match control {
            Control::Block(block) => wishes.block(canonical(block), true),
            Control::Unblock(block) => wishes.block(canonical(block), false),
            Control::Pause => wishes.pause(true),
            Control::Resume => wishes.pause(false),
            Control::Everywhere(_) | Control::Forget(_) | Control::Stop(_) => {}
        }
        self.site.wishes = wishes;
        self.follow_wishes(now);
        self.write_own(Record::Wishes(self.site.wishes.clone()), out);
        self.beat_soon(now);
    }

    /// Takes in what another agent knows of them, or the store.
    pub(super) fn on_wishes(&mut self, wishes: &Wishes, now: Now, out: &mut Vec<Action>) {
        if self.site.wishes.merge(wishes) {
            self.follow_wishes(now);
            self.write_own(Record::Wishes(wishes.clone()), out);
        }
    }

    /// Another agent knows of wishes with this digest: if they are others than here, it is told those, and tells its own.
    pub(super) fn compare_wishes(&mut self, from: AgentId, digest: u64, out: &mut Vec<Action>) {
        if digest != self.site.wishes.digest() {
            // As a whole it may be longer than a message.
            for part in self.site.wishes.parts() {
                self.send(from, Message::Wishes(part), out);
            }
        }
    }

    /// Takes in what an earlier run wrote down.
    pub(super) fn recall_wishes(&mut self, wishes: &Wishes) {
        self.site.wishes.merge(wishes);
        self.obey_wishes();
    }

    /// Takes in a block that was written down, in a site while nobody ran.
    pub(super) fn recall_block(&mut self, block: Block, is_blocked: bool) {
        if !self.site.is_alone() {
            self.site.wishes.block(block, is_blocked);
            return self.obey_wishes();
        }
        match is_blocked {
            true => self.blocks.insert(block),
            false => self.blocks.remove(&block),
        };
    }

    /// Whether the store that agents share is known to have all of them.
    pub fn are_wishes_kept(&self) -> bool {
        let shared = self.site.shared.as_ref();
        shared.is_none_or(|shared| shared.leases.wishes.digest() == self.site.wishes.digest())
    }

    pub(super) fn follow_wishes(&mut self, now: Now) {
        self.obey_wishes();
        self.away.want();
        self.settle_all_in(now);
    }

    /// Has the agent be as it should by them.
    pub(super) fn obey_wishes(&mut self) {
        self.blocks = self.site.wishes.blocked().cloned().collect();
        self.paused = self.site.wishes.is_paused();
        self.obey_all_sites();
        for url in self.site.wishes.seeds().filter_map(|url| Url::parse(url).ok()) {
            self.scope.add_seed(&url);
        }
    }
}
