//! robots.txt that redirect to hosts of other sites: asked for there, by the agent that has the host, in its queue and under its
//! delays, and sent back. What agents of one site do for each other (`errands`), across sites.
//!
//! Nothing is repeated: a host whose rules do not come counts them as not reachable after a while, and asks again later. What
//! another site says that its server said is believed: whoever redirects its robots.txt there believes that host.
//!
//! A site that is asked for a host that it has granted to the nearest one passes the question on, once.
//!
//! Who asks may name any URL, and need not have been redirected there. So it hears only of hosts that belong to the crawl here,
//! and of what they say only what a robots.txt can.

use std::collections::BTreeMap;

use super::{Action, Agent};
use crate::assign::partition_of;
use crate::federation::{AskedRules, SiteNumber};
use crate::frontier::{Asker, Errand};
use crate::limits::{LOCATION_BYTES_MAX, RELAYED_MAX, RULES_ASKED_MAX};
use crate::record::Failure;
use crate::robots::{ROBOTS_BYTES_MAX, Robots};
use crate::site::{Message, RulesAnswer};
use crate::time::{Mono, Now};
use crate::url::{CleanUrl, Host, Origin, Url, clean};

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Abroad {
    calls: u64,
    /// Questions to other sites, and what another site wanted of us, if that is what they are about.
    asked: BTreeMap<u64, (AskedRules, Option<Errand>)>,
    /// Calls of other sites that were passed on to another agent of ours, and until when somebody waits for the answer.
    relayed: Vec<(u64, Origin, String, u8, Mono)>,
}

impl Agent {
    /// Asks the site that a host belongs to for the rules of one of ours.
    pub(super) fn ask_site(
        &mut self,
        home: u32,
        origin: &Origin,
        (url, hops): (Url, u8),
        site: SiteNumber,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        if self.call_site((origin, &url, hops), None, site, out) {
            self.wait_elsewhere(home, now);
        } else {
            self.rules_unreachable(home, origin, Failure::RobotsUnreachable, None, now, out);
        }
    }

    /// Asks another site for rules, for a host of ours or for what another site wanted of us, if there is room for a question.
    pub(super) fn call_site(
        &mut self,
        (origin, url, hops): (&Origin, &Url, u8),
        of_another: Option<Errand>,
        site: SiteNumber,
        out: &mut Vec<Action>,
    ) -> bool {
        let gateway = self.gateway_of(site);
        let exchange = self.exchange.as_deref_mut();
        let exchange = exchange.filter(|exchange| exchange.abroad.asked.len() < RULES_ASKED_MAX);
        let Some((exchange, gateway)) = exchange.zip(gateway) else { return false };
        exchange.abroad.calls += 1;
        let call = exchange.abroad.calls;
        let (list, url) = (exchange.federation.list(), url.to_string());
        let ask = AskedRules { list, origin: origin.clone(), url, hops };
        exchange.abroad.asked.insert(call, (ask.clone(), of_another));
        out.push(Action::AskRules { site, gateway, call, ask: Box::new(ask) });
        true
    }

    /// What another site says; nothing if it does not.
    pub(super) fn on_rules_of_site(
        &mut self,
        call: u64,
        result: Option<Box<Result<RulesAnswer, Failure>>>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let asked = self.exchange.as_deref_mut().and_then(|exchange| exchange.abroad.asked.remove(&call));
        let Some((AskedRules { origin, url, hops, .. }, of_another)) = asked else { return };
        if result.is_none()
            && let Some(site) = Url::parse(&url).ok().and_then(|url| self.other_site(&Host::of(&url)))
        {
            self.try_another_gateway(site);
        }
        let mut result = result.map_or(Err(Failure::RobotsUnreachable), |result| *result);
        if let Ok(answer) = &mut result {
            answer.body.truncate(ROBOTS_BYTES_MAX + 1);
        }
        match of_another {
            Some(errand) => self.deliver_rules(&errand, result, out),
            None => self.on_rules(&origin, &url, hops, result, now, out),
        }
    }

    /// Another site wants rules that a host of ours has.
    pub(super) fn on_rules_asked(&mut self, call: u64, ask: AskedRules, now: Now, out: &mut Vec<Action>) {
        let AskedRules { list, origin, url, hops } = ask;
        let parsed = Url::parse(&url).ok().and_then(clean);
        let until = now.mono + self.settings.robots_elsewhere_max;
        let Some((exchange, parsed)) = self.exchange.as_deref_mut().zip(parsed) else {
            return out.push(Action::GiveRules { call, result: None });
        };
        let host = Host::of(&parsed);
        let federation = &exchange.federation;
        let is_ours = federation.site_of(&host) == federation.me() || federation.is_by_place(&host);
        // Of patterns only its URLs may show that it belongs to the crawl.
        let is_known =
            self.scope.reaches(&CleanUrl::from(parsed.clone())) || self.bench.find(&host).is_some();
        if exchange.federation.list() != list || !is_ours || !is_known {
            return out.push(Action::GiveRules { call, result: None });
        }
        if self.site.is_ours(&host) {
            let errand = Errand { origin, url: parsed, hops, until, asker: Some(Asker::Site(call)) };
            return self.take_errand(errand, now, out);
        }
        let holder = self.site.token(partition_of(&host)).holder;
        let relayed = &mut exchange.abroad.relayed;
        relayed.retain(|(.., until)| now.mono < *until);
        if holder == self.site.me() || !self.site.is_well(holder, now.mono) || relayed.len() >= RELAYED_MAX {
            return out.push(Action::GiveRules { call, result: None });
        }
        relayed.push((call, origin.clone(), url.clone(), hops, until));
        self.send(holder, Message::AskRules { origin, url, hops }, out);
    }

    /// The answer of an agent that a call of another site was passed on to.
    pub(super) fn relay_rules(
        &mut self,
        origin: &Origin,
        url: &str,
        hops: u8,
        result: &Result<RulesAnswer, Failure>,
        out: &mut Vec<Action>,
    ) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        let is_it = |(_, of, other, after, _): &mut (u64, Origin, String, u8, Mono)| {
            (&*of, &**other, *after) == (origin, url, hops)
        };
        for (call, ..) in exchange.abroad.relayed.extract_if(.., is_it) {
            give_rules(call, result.clone(), out);
        }
    }
}

/// What another site hears of an answer: what a robots.txt can say, and of a redirect where it goes.
pub(super) fn give_rules(call: u64, result: Result<RulesAnswer, Failure>, out: &mut Vec<Action>) {
    let result = result.map(|answer| {
        let RulesAnswer { status, is_whole, location, max_age, body } = answer;
        let location =
            location.filter(|text| (300..400).contains(&status) && text.len() <= LOCATION_BYTES_MAX);
        let body = if (200..300).contains(&status) { Robots::only_rules(&body) } else { Vec::new() };
        RulesAnswer { status, is_whole, location, max_age, body }
    });
    out.push(Action::GiveRules { call, result: Some(Box::new(result)) });
}
