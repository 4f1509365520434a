//! What people ask of other sites: whoever has a host answers for it. Nothing that is asked changes anything, and an answer is as
//! short as an agent of one's own site would give it.

use std::sync::Arc;
use std::time::Duration;

use nephila_core::record::Pointer;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::ASK;
use super::call::Calling;
use crate::asking::Answer;
use crate::peers::Name;

/// How long a gateway has to answer,
const PATIENCE: Duration = Duration::from_secs(10);
/// and how many are asked before nobody is taken to be there.
const GATEWAYS_ASKED_MAX: usize = 3;

/// A question of one site to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// What are you doing?
    Status,
    /// What of the host of this name?
    Host { name: String },
    /// What about this URL?
    Why { url: String },
    /// What does your archive hold at this place, from this byte on, if it is the answer to this URL?
    Read { url: String, pointer: Pointer, from: u64 },
}

/// One that was put here, and where its answer goes.
pub(crate) type Put = (Question, oneshot::Sender<Answer>);

/// Another site, to be asked.
pub(crate) struct Partner {
    pub(super) name: Name,
    pub(super) gateways: Vec<String>,
    pub(super) calling: Arc<Calling>,
    pub(super) runtime: Handle,
}

impl Partner {
    /// The site's name.
    pub(crate) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Puts a question to one gateway after the other, until one answers. The error says in words why none has.
    pub(crate) async fn ask(&self, question: &Question) -> Result<Answer, String> {
        let said = postcard::to_stdvec(question).map_err(|error| error.to_string())?;
        let mut errors = Vec::new();
        for gateway in self.gateways.iter().take(GATEWAYS_ASKED_MAX) {
            let (calling, name) = (Arc::clone(&self.calling), self.name.clone());
            let (to, said) = (gateway.clone(), said.clone());
            let called = self.runtime.spawn(async move {
                let answered = calling.call::<Answer>(ASK, &name, &to, said, PATIENCE).await;
                answered.map_err(|error| error.to_string())
            });
            errors.push(match called.await {
                Ok(Ok(Some(answer))) => return Ok(answer),
                Ok(Ok(None)) => format!("{gateway}: it has no time for questions now"),
                Ok(Err(error)) => format!("{gateway}: {error}"),
                Err(_) => format!("{gateway}: this agent is ending"),
            });
        }
        Err(format!("site {} gives no answer ({})", self.name, errors.join("; ")))
    }
}
