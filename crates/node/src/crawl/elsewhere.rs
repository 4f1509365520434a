//! Questions about hosts of other sites, which are put to these, and questions of other sites, which are answered for this one.

use nephila_core::agent::HostView;
use nephila_core::site::AgentId;
use nephila_core::url::{self, Host};
use tokio::sync::oneshot;

use super::Run;
use super::questions::answer_later;
use crate::asking::{Answer, bytes_of};
use crate::control::{Request, Response};
use crate::display::one_line;
use crate::exchange::{Partner, Question};
use crate::report::{self, SiteStatus, UrlState, Why};
use crate::why::NO_FEDERATION;

/// Of one host.
const ONE: usize = 1;
/// How often a URL is sent from one site to another: to its registrar, and by that one to the nearest.
const SENT_ON_MAX: usize = 2;

impl Run {
    /// Puts a question to the site whose host it is about, and answers it. Gives it back if it is one for this site.
    pub(super) fn ask_elsewhere(
        &mut self,
        question: Request,
        reply: oneshot::Sender<Response>,
    ) -> Option<(Request, oneshot::Sender<Response>)> {
        let host = match &question {
            Request::Why { url } => url::parse_seed(url).ok().map(|url| Host::of(&url)),
            Request::Hosts { name: Some(name), .. } => Host::parse(name),
            _ => None,
        };
        let by_place = host.as_ref().filter(|host| self.agent.goes_to_nearest(host));
        match (question, by_place) {
            (Request::Why { url }, Some(host)) => {
                let why = self.why_by_place(url, host);
                answer_later(reply, async move { why.await.map_or_else(refused, |(_, response)| response) });
                None
            }
            (Request::Hosts { limit, sort, name: Some(name) }, Some(host)) => {
                let why = self.why_by_place(format!("http://{name}/"), host);
                let (asker, agents) = (self.asker(), self.agents());
                answer_later(reply, async move {
                    match why.await {
                        Ok((Some(partner), _)) => match hosts_of(&partner, name).await {
                            Ok(hosts) => {
                                let all = hosts.len() as u64;
                                report::of_other_site(report::hosts(&hosts, all), partner.name())
                            }
                            Err(why) => refused(why),
                        },
                        Ok((None, _)) => asker.hosts(agents, limit, sort, Some(name)).await,
                        Err(why) => refused(why),
                    }
                });
                None
            }
            (question, _) => self.ask_owner(question, host, reply),
        }
    }

    /// What is to be known of a URL whose host is the nearest site's, and the other site that says it: this one is asked first,
    /// and then the one that the URL was sent to, which may have sent it on.
    fn why_by_place(
        &self,
        url: String,
        host: &Host,
    ) -> impl Future<Output = Result<(Option<Partner>, Response), String>> + use<> {
        let (asker, holder) = (self.asker(), self.holder(host));
        let name = holder.and_then(|holder| self.agent.name_of(holder)).map(str::to_owned);
        let sites = self.agent.other_sites(crate::clock::Clock::now());
        let mut partners: Vec<Partner> = sites.iter().filter_map(|site| self.partner(&site.name)).collect();
        async move {
            let holder = holder.ok_or_else(|| "the site has not begun".to_owned())?;
            let mut why = asker.find(holder, name, url.clone()).await?;
            let mut by = None;
            for _ in 0..SENT_ON_MAX {
                let (UrlState::Sent { site, .. } | UrlState::OtherSite { site }) = &why.state else { break };
                // Nobody is asked twice.
                let Some(at) = partners.iter().position(|partner| partner.name() == site) else { break };
                let partner = partners.swap_remove(at);
                match why_of(&partner, url.clone()).await {
                    Ok(theirs) => (why, by) = (theirs, Some(partner)),
                    Err(reason) => return Ok((by, report::without_other_site(why.response(), &reason))),
                }
            }
            Ok((by, why.response()))
        }
    }

    /// Puts a question to the site that a host has by its name.
    fn ask_owner(
        &mut self,
        question: Request,
        host: Option<Host>,
        reply: oneshot::Sender<Response>,
    ) -> Option<(Request, oneshot::Sender<Response>)> {
        let partner = match &question {
            Request::Read { elsewhere: Some((_, site)), .. } => self.partner(site),
            _ => host.as_ref().and_then(|host| self.partner(self.agent.other_site_name(host)?)),
        };
        let is_of_many = matches!(question, Request::Federation);
        let Some(partner) = partner.filter(|_| !is_of_many) else {
            if is_of_many {
                self.ask_all_sites(reply);
                return None;
            }
            return Some((question, reply));
        };
        let (asker, agents) = (self.asker(), self.agents());
        match question {
            Request::Why { url } => {
                let holder = host.and_then(|host| self.holder(&host));
                let name = holder.and_then(|holder| self.agent.name_of(holder)).map(str::to_owned);
                answer_later(reply, async move {
                    let theirs = why_of(&partner, url.clone()).await;
                    let holder = holder.ok_or_else(|| "the site has not begun".to_owned());
                    let ours = match holder {
                        Ok(holder) => asker.find(holder, name, url).await,
                        Err(why) => Err(why),
                    };
                    match (theirs, ours) {
                        (Ok(theirs), _) if theirs.state != UrlState::NotKnown => theirs.response(),
                        (Ok(_), Ok(ours)) => {
                            let why = format!("site {} does not know it", partner.name());
                            report::without_other_site(ours.response(), &why)
                        }
                        (Ok(theirs), Err(_)) => theirs.response(),
                        (Err(why), Ok(ours)) => report::without_other_site(ours.response(), &why),
                        (Err(why), Err(_)) => Response::Refused { why },
                    }
                });
            }
            Request::Hosts { limit, sort, name } => answer_later(reply, async move {
                let asked = name.clone().unwrap_or_default();
                match hosts_of(&partner, asked).await {
                    Ok(hosts) => {
                        let all = hosts.len() as u64;
                        report::of_other_site(report::hosts(&hosts, all), partner.name())
                    }
                    Err(why) => {
                        let ours = asker.hosts(agents, limit, sort, name).await;
                        report::without_other_site(ours, &why)
                    }
                }
            }),
            Request::Read { elsewhere: Some((url, _)), pointer, from, .. } => {
                answer_later(reply, async move {
                    let answer = partner.ask(&Question::Read { url, pointer, from }).await;
                    bytes_of(answer.unwrap_or_else(Answer::Refused))
                });
            }
            question => return Some((question, reply)),
        }
        None
    }

    /// Has all sites of the federation say what they are doing.
    fn ask_all_sites(&mut self, reply: oneshot::Sender<Response>) {
        let (asker, agents) = (self.asker(), self.agents());
        let now = crate::clock::Clock::now();
        let sites = self.agent.other_sites(now);
        let asking: Vec<_> = sites
            .into_iter()
            .filter(|site| !site.is_gone)
            .map(|site| {
                let partner = self.partner(&site.name);
                let asking =
                    partner.map(|partner| tokio::task::spawn_local(async move { status_of(&partner).await }));
                (site.name, site.is_home, asking)
            })
            .collect();
        answer_later(reply, async move {
            if asking.is_empty() {
                return Response::Refused { why: NO_FEDERATION.to_owned() };
            }
            let home = asker.sum(agents).await.map(|(status, elapsed_s, _)| (status, elapsed_s));
            let mut home = Some(home.ok_or_else(|| "no agent has answered".to_owned()));
            let mut sites = Vec::new();
            for (site, is_home, asking) in asking {
                let status = match asking {
                    Some(asking) => asking.await.unwrap_or_else(|_| Err("it cannot be asked".to_owned())),
                    None => home
                        .take()
                        .filter(|_| is_home)
                        .unwrap_or_else(|| Err("it cannot be asked".to_owned())),
                };
                sites.push(SiteStatus { site, is_home, status });
            }
            report::federation(&sites)
        });
    }

    fn partner(&self, name: &str) -> Option<Partner> {
        self.site.as_ref()?.partner(name)
    }

    /// The agent of this site that has a host, or this one.
    fn holder(&self, host: &Host) -> Option<AgentId> {
        self.agent.holder_of(host).or(self.agent.me())
    }

    /// Answers a question of another site.
    pub(super) fn answer_other_site(&mut self, question: Question, reply: oneshot::Sender<Answer>) {
        let (asker, agents) = (self.asker(), self.agents());
        let host = match &question {
            Question::Status => None,
            Question::Host { name } => Host::parse(name),
            Question::Why { url } | Question::Read { url, .. } => {
                url::parse_seed(url).ok().map(|url| Host::of(&url))
            }
        };
        let holder = host.and_then(|host| self.holder(&host));
        let name = holder.and_then(|holder| self.agent.name_of(holder)).map(str::to_owned);
        tokio::task::spawn_local(async move {
            let answer = match (question, holder) {
                (Question::Status, _) => match asker.sum(agents).await {
                    Some((status, elapsed_s, _)) => Answer::Status { status: Box::new(status), elapsed_s },
                    None => Answer::Refused("no agent of the site has answered".to_owned()),
                },
                (Question::Host { name }, Some(holder)) => asker.host(holder, name).await,
                (Question::Why { url }, Some(holder)) => match asker.find(holder, name, url).await {
                    Ok(why) => Answer::why(&why),
                    Err(why) => Answer::Refused(why),
                },
                (Question::Read { url, pointer, from }, Some(holder)) => {
                    let capture = asker.find(holder, name, url).await.ok().and_then(|why| why.capture);
                    // Nothing else of the archive is for others to read.
                    match capture.filter(|capture| capture.pointer == pointer) {
                        Some(capture) => {
                            let agent = capture.agent.and_then(|agent| agent.parse().ok());
                            asker.read(agent.unwrap_or(holder), capture.agent_name, pointer, from).await
                        }
                        None => Answer::Refused("no answer to that URL is archived there".to_owned()),
                    }
                }
                (_, None) => Answer::Refused("there is no such host".to_owned()),
            };
            // Whoever asked may have gone.
            let _ = reply.send(answer);
        });
    }
}

fn refused(why: String) -> Response {
    Response::Refused { why }
}

async fn why_of(partner: &Partner, url: String) -> Result<Why, String> {
    let Answer::Why(json) = answered(partner, partner.ask(&Question::Why { url: url.clone() }).await)? else {
        return Err(senseless(partner));
    };
    let mut why = read_why(&json).map_err(|_| senseless(partner))?;
    if why.url != url {
        return Err(senseless(partner));
    }
    why.answered_by = Some(partner.name().to_owned());
    Ok(why)
}

/// What is known of a URL, as another site has written it. No text of it has more than one line.
fn read_why(json: &str) -> serde_json::Result<Why> {
    let mut why = serde_json::from_str(json)?;
    flatten(&mut why);
    serde_json::from_value(why)
}

fn flatten(value: &mut serde_json::Value) {
    use serde_json::Value::{Array, Object, String};
    match value {
        String(text) => *text = one_line(text),
        Array(values) => values.iter_mut().for_each(flatten),
        Object(fields) => fields.values_mut().for_each(flatten),
        _ => {}
    }
}

async fn hosts_of(partner: &Partner, name: String) -> Result<Vec<HostView>, String> {
    match answered(partner, partner.ask(&Question::Host { name }).await)? {
        Answer::Hosts(mut hosts, _) if hosts.len() <= ONE => {
            for host in &mut hosts {
                host.host = one_line(&host.host);
                host.addresses.iter_mut().for_each(|address| *address = one_line(address));
            }
            Ok(hosts)
        }
        _ => Err(senseless(partner)),
    }
}

async fn status_of(partner: &Partner) -> Result<(nephila_core::agent::Status, f64), String> {
    match answered(partner, partner.ask(&Question::Status).await)? {
        Answer::Status { status, elapsed_s } => Ok((*status, elapsed_s)),
        _ => Err(senseless(partner)),
    }
}

fn answered(partner: &Partner, answer: Result<Answer, String>) -> Result<Answer, String> {
    match answer? {
        Answer::Refused(why) => Err(format!("site {} does not say: {}", partner.name(), one_line(&why))),
        answer => Ok(answer),
    }
}

fn senseless(partner: &Partner) -> String {
    format!("what site {} has answered makes no sense", partner.name())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_another_site_says_begins_no_line() {
        let mut value = json!({ "a": "x\ny", "b": [{ "c": "\n" }, 1, null], "d": "plain" });
        flatten(&mut value);
        assert_eq!(value, json!({ "a": "x\\u{a}y", "b": [{ "c": "\\u{a}" }, 1, null], "d": "plain" }));
    }
}
