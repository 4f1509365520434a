//! When each agent of a site wants to be woken. Only those are asked that something has happened to.

use nephila_core::time::Mono;

pub(super) struct Wakes {
    at: Vec<Option<Mono>>,
    /// Something has happened to these in this step.
    touched: Vec<bool>,
}

impl Wakes {
    /// Of so many agents, none of which was asked yet.
    pub(super) fn of(agents: usize) -> Wakes {
        Wakes { at: vec![None; agents], touched: vec![true; agents] }
    }

    /// Something happens to an agent.
    pub(super) fn touch(&mut self, agent: usize) {
        self.touched[agent] = true;
    }

    /// Something happens to who knows whom.
    pub(super) fn touch_all(&mut self) {
        self.touched.fill(true);
    }

    pub(super) fn is_touched(&self, agent: usize) -> bool {
        self.touched[agent]
    }

    /// Begins a step: who is to be woken next, and when.
    pub(super) fn next(&mut self, mut ask: impl FnMut(usize) -> Option<Mono>) -> Option<(Mono, usize)> {
        for (agent, at) in self.at.iter_mut().enumerate() {
            if std::mem::take(&mut self.touched[agent]) {
                *at = ask(agent);
            }
        }
        self.at.iter().enumerate().filter_map(|(agent, at)| Some(((*at)?, agent))).min()
    }
}
