//! Having each origin's robots.txt before anything else of it, and what it says.

use std::time::Duration;

use super::{Action, Agent, Answer, Content, Cut, Fetched};
use crate::frontier::{Errand, Place, Rules, RulesOf, Trouble};
use crate::limits::{ERRANDS_MAX, LOCATION_BYTES_MAX};
use crate::politeness;
use crate::record::{Failure, Found, How, Record, RobotsOutcome, RobotsRecord};
use crate::robots::Robots;
use crate::time::{Mono, Now, Wall};
use crate::url::{self, CleanUrl, Host, Origin, Url};

/// What robots.txt has to say about a URL.
pub(super) enum Word {
    Allowed,
    Disallowed {
        line: u32,
        rule: String,
    },
    /// Nothing, and this origin is left alone until then, because it fails while others of its host answer.
    Wait {
        until: Mono,
        failure: Failure,
    },
    /// Something that is not in memory but there in the journal.
    Recall {
        place: u64,
    },
    /// Nothing, and it will not be asked again.
    GivenUp,
    /// Nothing yet: it must be asked for, there.
    Ask {
        url: Url,
        hops: u8,
    },
}

impl Agent {
    /// What robots.txt says about a URL of a host.
    pub(super) fn word_on(&self, index: u32, url: &Url, origin: &Origin, now: Now) -> Word {
        let of = self.bench.host(index).rules_of(origin);
        if let Some(trouble) = of.and_then(|of| of.trouble.as_ref()) {
            let Trouble { failure, since, not_before, .. } = **trouble;
            if now.wall.since(since) >= self.settings.host_give_up {
                return Word::GivenUp;
            }
            if now.mono < not_before {
                return Word::Wait { until: not_before, failure };
            }
        }
        let usable = of.and_then(|of| {
            let rules = of.rules.as_ref()?;
            let fresh = now.wall < rules.fresh_until;
            let stale =
                now.mono < of.ask_after && now.wall.since(rules.fetched) < self.settings.robots_stale_max;
            (fresh || stale).then_some(rules)
        });
        let ask = || {
            let moved = of.and_then(|of| of.moved.as_deref().cloned());
            let (url, hops) = moved.unwrap_or_else(|| (origin.robots_url(), 0));
            Word::Ask { url, hops }
        };
        let Some(rules) = usable else { return ask() };
        let Some(robots) = &rules.robots else {
            return rules.place.map_or_else(ask, |place| Word::Recall { place });
        };
        let decision = robots.decide(path_and_query(url));
        match decision.rule {
            Some(rule) if !decision.allowed => {
                Word::Disallowed { line: rule.line, rule: rule.text.to_string() }
            }
            _ => Word::Allowed,
        }
    }

    /// A request for a robots.txt ended. `server` is the host that was asked, `home` the one whose rules they are.
    pub(super) fn rules_fetched(
        &mut self,
        (home, server): (u32, u32),
        errand: Errand,
        fetched: &mut Fetched,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Errand { origin, url, hops, .. } = &errand;
        self.note_closed(home, origin, fetched);
        let (status, bytes, retry_after) = match &fetched.result {
            Ok(answer) => (Some(answer.status), answer.bytes, answer.retry_after),
            Err(_) => (None, 0, None),
        };
        let (outcome, target) = match &mut fetched.result {
            Err(error) => (RobotsOutcome::Unreachable(error.failure), None),
            Ok(answer) => self.read_rules(home, origin, (url, *hops), answer, now),
        };
        let had_failed = self.bench.host(home).rules_of(origin).is_some_and(|of| of.failures > 0);
        let found = self.keep_rules(home, origin, now.wall, &outcome);
        self.keep_shared(home, now, out);
        let record = RobotsRecord {
            origin: origin.clone(),
            url: url.to_string(),
            at: now.wall,
            took: fetched.ended.since(fetched.started),
            bytes,
            status,
            asked: true,
            outcome: outcome.clone(),
            capture: None,
            found,
        };
        self.write(Record::Robots(record), Some(home), Some(fetched.fetch), out);
        if server != home {
            match outcome {
                RobotsOutcome::Unreachable(failure) if failure.is_host() => {
                    // That a port which another host made up cannot be reached says nothing about this one.
                    if self.origin_failed(server, &Origin::of(url), failure, now).is_none() {
                        self.host_failed(server, failure, retry_after, fetched.ended, now, out);
                    }
                }
                RobotsOutcome::Unreachable(_) => {}
                _ if self.bench.host(server).failure == Some(Failure::Busy) => {}
                _ => self.host_recovered(server, now, out),
            }
            if self.bench.host(home).place() != Place::Elsewhere {
                // It came too late: the host has given up waiting, and something else may be under way for it.
                return;
            }
        }
        match outcome {
            RobotsOutcome::Unreachable(Failure::NotTried | Failure::Closed) => {
                if server != home {
                    self.bench.host_mut(server).errands.push_front(errand);
                }
            }
            RobotsOutcome::Unreachable(failure) => {
                // What ails the host that was to deliver them does not ail this one.
                let failure = if server == home { failure } else { Failure::RobotsUnreachable };
                self.rules_unreachable(home, origin, failure, retry_after, now, out);
            }
            RobotsOutcome::ForAnother => {}
            // A host whose rules are elsewhere has not recovered before they were had.
            RobotsOutcome::Elsewhere => {
                if let Some(target) = target {
                    self.follow_rules((home, server), origin, (target, hops + 1), now, out);
                }
            }
            RobotsOutcome::Rules { .. } | RobotsOutcome::Unchanged { .. } | RobotsOutcome::None { .. } => {
                // A host whose pages ask for less has not recovered because its robots.txt was had as always.
                if had_failed || self.bench.host(home).failure != Some(Failure::Busy) {
                    self.host_recovered(home, now, out);
                }
                self.bring_home(home, server, now);
            }
        }
    }

    /// A kept connection that was closed instead of an answer is an accident the first time. Again in a row, and on a new
    /// connection, it is a failure, so that it is not asked for ever.
    fn note_closed(&mut self, home: u32, origin: &Origin, fetched: &mut Fetched) {
        let of = self.rules_of_mut(home, origin);
        let was_closed = std::mem::take(&mut of.closed);
        if let Err(error) = &mut fetched.result
            && error.failure == Failure::Closed
        {
            match was_closed {
                true => error.failure = Failure::Disconnected,
                false => of.closed = true,
            }
        }
    }

    /// What an answer to a request for robots.txt means, and where it redirects to.
    pub(super) fn read_rules(
        &self,
        home: u32,
        origin: &Origin,
        (url, hops): (&Url, u8),
        answer: &mut Answer,
        now: Now,
    ) -> (RobotsOutcome, Option<Url>) {
        let settings = &self.settings;
        let ttl = answer
            .max_age
            .map_or(settings.robots_ttl, |age| age.max(settings.robots_ttl_min).min(settings.robots_ttl));
        let fresh_until = now.wall + ttl;
        let has_copy = self.bench.host(home).rules_of(origin).is_some_and(|of| of.rules.is_some());
        let outcome = match (answer.status, answer.cut) {
            (429 | 503, _) => RobotsOutcome::Unreachable(Failure::Busy),
            (500..=599, _) => RobotsOutcome::Unreachable(Failure::RobotsUnreachable),
            (200..=299, Some(Cut::Time)) => RobotsOutcome::Unreachable(Failure::Timeout),
            (200..=299, Some(Cut::Disconnect)) => RobotsOutcome::Unreachable(Failure::Disconnected),
            (200..=299, _) => RobotsOutcome::Rules {
                body: match std::mem::take(&mut answer.content) {
                    Content::Robots(body) => body,
                    _ => Vec::new(),
                },
                fresh_until,
                etag: answer.etag.take(),
                last_modified: answer.last_modified.take(),
            },
            (304, _) if has_copy => RobotsOutcome::Unchanged { fresh_until },
            (301 | 302 | 303 | 307 | 308, _) => {
                let target = answer.location.as_deref().and_then(|location| target(url, location));
                // Past the limit RFC 9309 lets the file count as unavailable, like a 404.
                match target.filter(|_| hops < settings.robots_redirects_max) {
                    Some(target) => return (RobotsOutcome::Elsewhere, Some(target)),
                    None => RobotsOutcome::None { fresh_until },
                }
            }
            (300..=499, _) => RobotsOutcome::None { fresh_until },
            // Nothing that HTTP defines: not a word to build on.
            _ => RobotsOutcome::Unreachable(Failure::RobotsUnreachable),
        };
        (outcome, None)
    }

    /// Takes in what a robots.txt says, now or when an earlier run is replayed; returns the sitemaps it names.
    pub(super) fn keep_rules(
        &mut self,
        home: u32,
        origin: &Origin,
        at: Wall,
        outcome: &RobotsOutcome,
    ) -> Vec<Found> {
        let (mut robots, fresh_until, etag, last_modified) = match outcome {
            RobotsOutcome::Rules { body, fresh_until, etag, last_modified } => {
                let robots = Robots::parse(body, &self.settings.token);
                (robots, *fresh_until, etag.clone(), last_modified.clone())
            }
            RobotsOutcome::None { fresh_until } => (Robots::allow_all(), *fresh_until, None, None),
            RobotsOutcome::Unchanged { fresh_until } => {
                let of = self.rules_of_mut(home, origin);
                (of.moved, of.failures, of.trouble) = (None, 0, None);
                if let Some(rules) = &mut of.rules {
                    (rules.fresh_until, rules.fetched) = (*fresh_until, at);
                }
                return Vec::new();
            }
            RobotsOutcome::Elsewhere | RobotsOutcome::Unreachable(_) | RobotsOutcome::ForAnother => {
                return Vec::new();
            }
        };
        let found = self.sitemaps(&robots.sitemaps);
        // The names of the sitemaps have done their work; what is kept for each host should be small.
        robots.sitemaps = Vec::new();
        let rules = Rules {
            crawl_delay: robots.crawl_delay,
            robots: Some(self.shared.share(robots)),
            place: None,
            fetched: at,
            fresh_until,
            etag: etag.map(String::into_boxed_str),
            last_modified: last_modified.map(String::into_boxed_str),
        };
        let of = self.rules_of_mut(home, origin);
        (of.moved, of.failures, of.ask_after, of.trouble) = (None, 0, Mono(0), None);
        let before = of.rules.replace(rules);
        self.shared.give_back(before.and_then(|rules| rules.robots));
        found
    }

    /// Notes that the answer to a request for a robots.txt is durable, there: from now on its rules can be read back.
    pub(super) fn rules_are_at(&mut self, home: u32, robots: &RobotsRecord, place: u64) {
        let of = self.rules_of_mut(home, &robots.origin);
        of.seen = Some(place);
        if matches!(robots.outcome, RobotsOutcome::Rules { .. } | RobotsOutcome::None { .. }) {
            if let Some(rules) = &mut of.rules {
                rules.place = Some(place);
            }
            self.make_room_for_rules(home);
        }
    }

    /// Drops rules from memory that can be read back, host by host, until there is room.
    fn make_room_for_rules(&mut self, except: u32) {
        let end = self.bench.index_end();
        for _ in 0..end {
            if self.shared.memory_bytes() <= self.settings.robots_bytes_max {
                return;
            }
            self.rules_hand = (self.rules_hand + 1) % end;
            if self.rules_hand == except || self.bench.get(self.rules_hand).is_none() {
                continue;
            }
            for of in &mut self.bench.host_mut(self.rules_hand).rules {
                if let Some(rules) = of.rules.as_mut().filter(|rules| rules.place.is_some()) {
                    self.shared.give_back(rules.robots.take());
                }
            }
        }
    }

    /// Rules were read back; or could not be, and are asked for again.
    pub(super) fn on_recalled(
        &mut self,
        host: &Host,
        place: u64,
        record: Option<Box<Record>>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(index) = self.bench.find(host) else { return };
        self.read_rules_back(host, place, record.as_deref());
        self.make_room_for_rules(index);
        self.carry_on(index, now, out);
    }

    /// Takes in rules that were in the journal only.
    pub fn read_rules_back(&mut self, host: &Host, place: u64, record: Option<&Record>) {
        let Some(index) = self.bench.find(host) else { return };
        let robots = match record {
            Some(Record::Robots(RobotsRecord { outcome: RobotsOutcome::Rules { body, .. }, .. })) => {
                Some(Robots::parse(body, &self.settings.token))
            }
            Some(Record::Robots(RobotsRecord { outcome: RobotsOutcome::None { .. }, .. })) => {
                Some(Robots::allow_all())
            }
            _ => None,
        };
        let of = self.bench.host_mut(index).rules.iter_mut();
        let found = of.filter_map(|of| of.rules.as_mut()).find(|rules| rules.place == Some(place));
        if let Some(rules) = found.filter(|rules| rules.robots.is_none()) {
            match robots {
                Some(mut robots) => {
                    robots.sitemaps = Vec::new();
                    rules.robots = Some(self.shared.share(robots));
                }
                None => rules.place = None,
            }
        }
    }

    /// What is remembered of an origin of a host, made if need be.
    pub(super) fn rules_of_mut(&mut self, index: u32, origin: &Origin) -> &mut RulesOf {
        let host = self.bench.host_mut(index);
        if let Some(RulesOf { rules: Some(rules), .. }) = host.make_room_for(origin) {
            self.shared.give_back(rules.robots);
        }
        self.bench.host_mut(index).rules_of_mut(origin)
    }

    pub(super) fn sitemaps(&self, named: &[String]) -> Vec<Found> {
        named
            .iter()
            .filter_map(|text| url::clean(Url::parse(text).ok()?).map(CleanUrl::from))
            .filter(|url| self.scope.judge(url).is_ok())
            .filter(|url| url::traps::check(url, &self.settings.traps).is_ok())
            .map(|url| Found { url: url.into(), depth: 1, how: How::Sitemap, redirects: 0 })
            .collect()
    }

    /// Follows a redirect of a robots.txt, in the queue of the host it leads to.
    pub(super) fn follow_rules(
        &mut self,
        (home, server): (u32, u32),
        origin: &Origin,
        (target, hops): (Url, u8),
        now: Now,
        out: &mut Vec<Action>,
    ) {
        if let Some(site) = self.other_site(&Host::of(&target)) {
            return self.ask_site(home, origin, (target, hops), site, now, out);
        }
        if !self.site.is_ours(&Host::of(&target)) {
            return self.ask_another(home, origin, (target, hops), now, out);
        }
        let to = self.bench.index(&Host::of(&target));
        if to == home {
            self.rules_of_mut(home, origin).moved = Some(Box::new((target, hops)));
            return self.bring_home(home, server, now);
        }
        if self.bench.host(to).errands.len() >= ERRANDS_MAX || self.blocked(to) {
            return self.rules_unreachable(home, origin, Failure::RobotsUnreachable, None, now, out);
        }
        let until = self.wait_elsewhere(home, now);
        let errand = Errand { origin: origin.clone(), url: target, hops, until, asker: None };
        self.bench.host_mut(to).errands.push_back(errand);
        if to != server && self.is_at_rest(to) {
            self.settle_in(to, now);
        }
    }

    /// Has a host wait for its rules, and says until when. The whole detour has one limit: a second host on the way does not
    /// start it again.
    pub(super) fn wait_elsewhere(&mut self, home: u32, now: Now) -> Mono {
        if self.bench.host(home).place() == Place::Elsewhere {
            return self.bench.host(home).until();
        }
        let until = now.mono + self.settings.robots_elsewhere_max;
        self.bench.put_until(home, Place::Elsewhere, until);
        until
    }

    /// A host whose rules were had elsewhere goes on.
    fn bring_home(&mut self, home: u32, server: u32, now: Now) {
        if home != server && self.bench.host(home).place() == Place::Elsewhere {
            self.settle_in(home, now);
        }
    }

    /// Nobody delivered the rules of a host in time.
    pub(super) fn rules_overdue(&mut self, home: u32, now: Now, out: &mut Vec<Action>) {
        let Some(due) = self.bench.host(home).head.front() else {
            return self.settle_in(home, now);
        };
        let origin = Origin::of(&due.url);
        self.rules_unreachable(home, &origin, Failure::RobotsUnreachable, None, now, out);
    }

    /// The rules of an origin cannot be had now: older ones are used for a while, or nothing is allowed.
    pub(super) fn rules_unreachable(
        &mut self,
        home: u32,
        origin: &Origin,
        failure: Failure,
        retry_after: Option<Duration>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let stale_max = self.settings.robots_stale_max;
        let of = self.rules_of_mut(home, origin);
        of.moved = None;
        of.failures += 1;
        let failures = of.failures;
        let usable = of.rules.as_ref().is_some_and(|rules| now.wall.since(rules.fetched) < stale_max);
        if !usable || failure == Failure::Busy {
            let failure = if failure.is_host() { failure } else { Failure::RobotsUnreachable };
            if self.origin_failed(home, origin, failure, now).is_none() {
                self.host_failed(home, failure, retry_after, now.mono, now, out);
            }
        }
        if usable {
            // A host that wants less is left alone first, and then the older rules are used for a while.
            let from = if failure == Failure::Busy { self.bench.host(home).not_before } else { now.mono };
            let wait = politeness::back_off(&self.settings, failures, &mut self.jitter);
            self.rules_of_mut(home, origin).ask_after = from + wait;
        }
        if self.bench.host(home).place() == Place::Elsewhere {
            self.settle_in(home, now);
        }
    }
}

/// Where a Location leads, if to something that can be fetched.
pub(super) fn target(base: &Url, location: &str) -> Option<Url> {
    if location.len() > LOCATION_BYTES_MAX {
        return None;
    }
    url::clean(base.join(location).ok()?)
}

/// What robots.txt rules are matched with.
pub(super) fn path_and_query(url: &Url) -> &str {
    &url[::url::Position::BeforePath..::url::Position::AfterQuery]
}
