//! What sites say to all sites: calls with an answer each, as claims are.

use std::sync::Arc;

use nephila_core::agent::Event;
use nephila_core::federation::{Heard, ListId, Saying, SiteNumber};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::call::TIMEOUT;
use super::serve::{ANSWER_TIMEOUT, Server};
use super::ways::Way;
use super::{Answer, Exchange};
use crate::peers::Name;

/// To hear what a site says to all.
pub(super) const SAY: &str = "/nephila.Federation/Say";

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Hearing {
    /// The list of sites that the answering agent has.
    pub(super) list: ListId,
    /// What is known there; nothing if that cannot be said now.
    pub(super) heard: Option<Box<Heard>>,
}

impl Exchange {
    /// Tells a site what is said to all. The answer is an event.
    pub(crate) fn say(&self, site: SiteNumber, gateway: String, call: u64, saying: &Saying) {
        let entry = self.federation.site(site);
        let (name, gateways) = (entry.name.clone(), entry.gateways.len());
        let (calling, events, ways) =
            (Arc::clone(&self.calling), self.events.clone(), Arc::clone(&self.ways));
        let (ours, bytes) = (self.federation.list(), postcard::to_stdvec(saying));
        self.runtime.spawn(async move {
            let answered = match (bytes, name.parse::<Name>()) {
                (Ok(bytes), Ok(site)) => calling.call::<Hearing>(SAY, &site, &gateway, bytes, TIMEOUT).await,
                // Neither can be: all of it can be written, and the list was read with these names.
                _ => Err("it cannot be sent".into()),
            };
            let (way, heard) = match answered {
                Ok(Some(told)) if told.list != ours => (Way::OtherList(told.list), None),
                Ok(Some(Hearing { heard: Some(heard), .. })) => (Way::Open, Some(heard)),
                Ok(_) => (Way::Busy, None),
                Err(error) => (Way::Closed(error.to_string()), None),
            };
            ways.note(&name, &gateway, &way, ours, gateways);
            // The agent may have ended.
            let _ = events.send(Event::Heard { call, heard });
        });
    }

    /// Answers another site that has said something to all.
    pub(crate) fn heard(&self, call: u64, heard: Option<Box<Heard>>) {
        self.reply(call, Answer::Heard(heard));
    }
}

impl Server {
    /// Another site says something to all.
    pub(super) async fn saying(
        &self,
        site: Name,
        permit: OwnedSemaphorePermit,
        saying: &[u8],
    ) -> Result<Hearing, Status> {
        let saying: Saying = postcard::from_bytes(saying).map_err(|_| {
            Status::invalid_argument("it is not understood: both sides should run the same version")
        })?;
        let list = self.list();
        if saying.list != list {
            return Ok(Hearing { list, heard: None });
        }
        let (site, saying) = (site.to_string(), Box::new(saying));
        let answered = self.ask(permit, ANSWER_TIMEOUT, |call| Event::Said { call, site, saying }).await?;
        let heard = match answered {
            Some(Answer::Heard(heard)) => heard,
            _ => None,
        };
        Ok(Hearing { list, heard })
    }
}
