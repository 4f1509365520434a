//! The agent: a state machine from events and the time to actions.

mod event;
mod status;

pub use event::*;
pub use status::*;
