//! What agents of a site ask each other for people, so that any of them answers for all: how far the crawl is, which hosts it
//! has, what became of a URL, and what was fetched.
//!
//! Nothing here changes a crawl. Whoever does not answer in time is named, and the answer is that of the others.

use std::time::Duration;

use nephila_core::agent::{HostView, Status};
use nephila_core::record::Pointer;
use nephila_core::site::AgentId;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::control::{HostSort, Response};
use crate::report::{self, UrlState, Why};
use crate::why::sort_hosts;

/// How long other agents have to answer.
const PATIENCE: Duration = Duration::from_secs(5);
const NOBODY: &str = "no agent of the site has answered";
/// How often a URL may have changed hands.
const HANDS_MAX: usize = 64;
/// How much of an archived answer is passed on at a time.
pub(crate) const READ_BYTES_MAX: usize = 1 << 20;

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// What are you doing?
    Status,
    /// Which hosts do you have?
    Hosts { limit: usize, sort: HostSort, name: Option<String> },
    /// Do you have the host of this name?
    Host { name: String },
    /// What about this URL?
    Why { url: String },
    /// What does the record at this place in your journal say about this URL?
    Had { url: String, place: u64 },
    /// What does your archive hold there, from this byte on?
    Read { pointer: Pointer, from: u64 },
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Status {
        status: Box<Status>,
        elapsed_s: f64,
    },
    /// The first hosts, and how many there are.
    Hosts(Vec<HostView>, u64),
    /// [`Why`], in JSON.
    Why(String),
    /// Bytes as they came over the wire, and whether they are the last.
    Bytes(Vec<u8>, bool),
    Refused(String),
}

impl Answer {
    pub(crate) fn why(why: &Why) -> Answer {
        match serde_json::to_string(why) {
            Ok(json) => Answer::Why(json),
            Err(error) => Answer::Refused(error.to_string()),
        }
    }
}

/// A question to an agent, which may be this one, and where the answer goes. Without an answer it is dropped.
pub(crate) type Asked = (AgentId, Ask, oneshot::Sender<Answer>);

/// Asks agents, by having the run do it.
pub(crate) struct Asker<F>(pub(crate) F);

impl<F: Fn(Asked)> Asker<F> {
    async fn ask(&self, agent: AgentId, ask: Ask) -> Option<Answer> {
        let (sender, receiver) = oneshot::channel();
        (self.0)((agent, ask, sender));
        tokio::time::timeout(PATIENCE, receiver).await.ok()?.ok()
    }

    /// Asks several agents, all at once; those that do not answer are named.
    async fn ask_all(&self, agents: Vec<(AgentId, String)>, ask: &Ask) -> (Vec<Answer>, Vec<String>) {
        let asked = agents.into_iter().map(|(agent, name)| {
            let (sender, receiver) = oneshot::channel();
            (self.0)((agent, ask.clone(), sender));
            (name, receiver)
        });
        let asked: Vec<_> = asked.collect();
        let until = tokio::time::Instant::now() + PATIENCE;
        let (mut answers, mut silent) = (Vec::new(), Vec::new());
        for (name, receiver) in asked {
            match tokio::time::timeout_at(until, receiver).await {
                Ok(Ok(answer)) => answers.push(answer),
                _ => silent.push(name),
            }
        }
        (answers, silent)
    }

    /// What all of these agents are doing, how long the crawl has run, and who has not answered.
    pub(crate) async fn sum(&self, agents: Vec<(AgentId, String)>) -> Option<(Status, f64, Vec<String>)> {
        let (answers, silent) = self.ask_all(agents, &Ask::Status).await;
        let mut sum: Option<(Status, f64)> = None;
        for answer in answers {
            let Answer::Status { status, elapsed_s } = answer else { continue };
            match &mut sum {
                Some((sum, longest)) => {
                    sum.add(&status);
                    *longest = longest.max(elapsed_s);
                }
                None => sum = Some((*status, elapsed_s)),
            }
        }
        sum.map(|(status, elapsed_s)| (status, elapsed_s, silent))
    }

    /// The same as an answer to people.
    pub(crate) async fn status(&self, agents: Vec<(AgentId, String)>) -> Response {
        match self.sum(agents).await {
            Some((status, elapsed_s, silent)) => {
                report::of_site(report::status(&status, elapsed_s, true, None), &silent)
            }
            None => Response::Refused { why: NOBODY.to_owned() },
        }
    }

    /// One host that this agent has.
    pub(crate) async fn host(&self, holder: AgentId, name: String) -> Answer {
        let answer = self.ask(holder, Ask::Host { name }).await;
        answer.unwrap_or_else(|| Answer::Refused(NOBODY.to_owned()))
    }

    /// The first hosts of all of these agents.
    pub(crate) async fn hosts(
        &self,
        agents: Vec<(AgentId, String)>,
        limit: usize,
        sort: HostSort,
        name: Option<String>,
    ) -> Response {
        let (answers, silent) = self.ask_all(agents, &Ask::Hosts { limit, sort, name }).await;
        let (mut hosts, mut all) = (Vec::new(), 0);
        for answer in answers {
            let Answer::Hosts(some, count) = answer else { continue };
            hosts.extend(some);
            all += count;
        }
        sort_hosts(&mut hosts, sort);
        hosts.truncate(limit);
        report::of_site(report::hosts(&hosts, all), &silent)
    }

    /// What became of a URL whose host this agent has, for people.
    pub(crate) async fn why(&self, holder: AgentId, name: Option<String>, url: String) -> Response {
        match self.find(holder, name, url).await {
            Ok(why) => why.response(),
            Err(why) => Response::Refused { why },
        }
    }

    /// What became of a URL whose host this agent has, or why nobody says so.
    pub(crate) async fn find(
        &self,
        holder: AgentId,
        name: Option<String>,
        url: String,
    ) -> Result<Why, String> {
        let mut answer = self.ask(holder, Ask::Why { url: url.clone() }).await;
        let mut last: Option<Why> = None;
        for _ in 0..HANDS_MAX {
            let why = match answer {
                Some(Answer::Why(json)) => serde_json::from_str::<Why>(&json),
                Some(Answer::Refused(why)) if last.is_none() => return Err(why),
                _ => break,
            };
            let Ok(mut why) = why else { break };
            if let Some(last) = last {
                // Who had it says what came of it; how it was found is known to who has it too.
                why.found = why.found.or(last.found);
            }
            let UrlState::Elsewhere { agent, place, .. } = &why.state else { return Ok(why) };
            let before = agent.parse().ok();
            let place = *place;
            last = Some(why);
            answer = match before {
                Some(agent) => self.ask(agent, Ask::Had { url: url.clone(), place }).await,
                None => None,
            };
        }
        last.ok_or_else(|| {
            format!(
                "{} has the host, and does not answer: ask again when `nephila site status` lists it as well",
                report::agent_words(&holder.to_string(), name.as_deref())
            )
        })
    }

    /// A part of what an agent's archive holds.
    pub(crate) async fn read(
        &self,
        agent: AgentId,
        name: Option<String>,
        pointer: Pointer,
        from: u64,
    ) -> Answer {
        let answer = self.ask(agent, Ask::Read { pointer, from }).await;
        answer.unwrap_or_else(|| {
            Answer::Refused(format!(
                "{}, which has it in its archive, does not answer",
                report::agent_words(&agent.to_string(), name.as_deref())
            ))
        })
    }
}

/// A part of what an archive holds, for who has asked for it.
pub(crate) fn bytes_of(answer: Answer) -> Response {
    match answer {
        Answer::Bytes(bytes, is_last) => Response::Bytes { hex: to_hex(&bytes), is_last },
        Answer::Refused(why) => Response::Refused { why },
        _ => Response::Refused { why: "what was answered makes no sense".to_owned() },
    }
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        hex.push(char::from(DIGITS[usize::from(byte >> 4)]));
        hex.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    hex
}

/// The bytes that hexadecimal digits stand for.
pub fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_hexadecimal_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(to_hex(&[0x0a, 0xf0]), "0af0");
        for wrong in ["0", "0g", "000", "é"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
