//! What the end of a request means: for the URL, for its host, for its address, and for the links found.

use std::time::Duration;

use super::rules::target;
use super::{Action, Agent, Answer, Content, Cut, Due, Fetched, Task};
use crate::frontier::{Place, RulesOf, Trouble};
use crate::limits::WAIT_MAX;
use crate::parse::Link;
use crate::politeness;
use crate::record::{Failure, Found, How, LeftOut, Outcome, PageFlags, Record, Settled};
use crate::time::{Mono, Now, Wall};
use crate::url::{AddressKey, CleanUrl, Origin, Url, traps};

/// The wait after a request that this machine had no room for.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// So many 429 or 503 in a row are waited for as Retry-After says; after that, at least for the back-off.
const RETRY_AFTER_TRUSTED: u32 = 3;

/// A name that does not exist is asked for this often before it is given up.
const NO_SUCH_NAME_ASKS: u32 = 3;

impl Agent {
    pub(super) fn on_fetched(&mut self, mut fetched: Fetched, now: Now, out: &mut Vec<Action>) {
        let Some(flight) = self.flights.remove(&fetched.fetch) else { return };
        self.last_busy = now.mono;
        let index = flight.host;
        let contacted: Vec<AddressKey> = fetched.contacted.iter().map(|ip| AddressKey::of(*ip)).collect();
        for address in &flight.gates {
            let (asked, delay) = (contacted.contains(address), self.ip_delay_at(*address, now.mono));
            self.gates.release(*address, asked, fetched.ended, delay);
        }
        self.note_used(&contacted, now.mono);
        if fetched.result.is_ok() {
            let host = self.bench.host_mut(index);
            host.responded(fetched.ended.since(fetched.started), self.settings.request_timeout);
        }
        self.bench.put(index, Place::Idle);
        if self.unmark(index) {
            self.keep_shared(index, now, out);
        }
        if let Task::Rules { home, .. } = &flight.task {
            self.bench.host_mut(*home).held -= 1;
        }
        match flight.task {
            Task::Page(due) => {
                self.pages_in_flight -= 1;
                self.page_fetched(index, due, &contacted, &mut fetched, now, out);
            }
            Task::Rules { home, errand } => self.rules_fetched((home, index), errand, &mut fetched, now, out),
            Task::ForAnother(errand) => self.fetched_for_another(index, &errand, &mut fetched, now, out),
        }
        // Only now: the answer may have been the robots.txt that asks for a longer delay.
        let asked = !contacted.is_empty();
        let wait = if asked { self.delay(index) } else { NO_ROOM_WAIT };
        let host = self.bench.host_mut(index);
        host.not_before = host.not_before.max(fetched.ended + wait);
        if self.bench.host(index).place() == Place::Idle {
            self.settle_in(index, now);
        }
        for address in flight.gates {
            self.give_back_if_done(address, now);
            self.watch_gate(address, now);
        }
    }

    fn page_fetched(
        &mut self,
        index: u32,
        due: Due,
        contacted: &[AddressKey],
        fetched: &mut Fetched,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let ended = fetched.ended;
        let took = ended.since(fetched.started);
        let (outcome, attempts, page) = match &mut fetched.result {
            Ok(answer) => self.judge_answer(index, &due, contacted, ended, answer, now, out),
            Err(error) => {
                let failure = match error.failure {
                    Failure::Closed if self.is_closed_again(index, &due.url) => Failure::Disconnected,
                    failure => failure,
                };
                let (outcome, attempts) = self.judge_failure(index, &due, failure, ended, now, out);
                (outcome, attempts, PageLinks::default())
            }
        };
        let spent = due.cash.filter(|_| matches!(outcome, Outcome::Answered { .. }));
        let settled = Settled {
            url: due.url.into(),
            depth: due.depth,
            how: due.how,
            found_in: due.found_in,
            attempts,
            asked: !contacted.is_empty(),
            at: now.wall,
            took,
            bytes: fetched.result.as_ref().map_or(0, |answer| answer.bytes),
            outcome,
            capture: None,
            flags: page.flags,
            found: page.found,
            left_out: page.left_out,
            spent,
        };
        self.widen_scope(&settled.found);
        self.write(Record::Settled(settled), Some(index), Some(fetched.fetch), out);
    }

    #[allow(clippy::too_many_arguments)] // one private step of on_fetched, split off to be readable
    fn judge_answer(
        &mut self,
        index: u32,
        due: &Due,
        contacted: &[AddressKey],
        ended: Mono,
        answer: &mut Answer,
        now: Now,
        out: &mut Vec<Action>,
    ) -> (Outcome, u8, PageLinks) {
        let status = answer.status;
        if matches!(status, 429 | 503) {
            let again = self.is_busy_again(index, &due.url);
            self.host_failed(index, Failure::Busy, answer.retry_after, ended, now, out);
            self.address_busy(index, contacted, now, out);
            if again {
                let (outcome, attempts) = self.retry_or_fail(due, Failure::Busy, Some(status), now);
                return (outcome, attempts, PageLinks::default());
            }
            // It is the host that waits, and then its other URLs go first: perhaps they are not to blame.
            let wait = self.host_wait(index, now);
            let wait = if self.bench.host(index).due > 0 { wait.saturating_mul(2) } else { wait };
            let not_before = now.wall + wait;
            let outcome = Outcome::Retry { failure: Failure::Busy, status: Some(status), not_before };
            return (outcome, due.attempts, PageLinks::default());
        }
        self.host_recovered(index, now, out);
        self.rules_of_mut(index, &Origin::of(&due.url)).trouble = None;
        let failure = match (answer.cut, status) {
            (Some(Cut::Time), _) | (_, 408) => Some(Failure::Timeout),
            (Some(Cut::Disconnect), _) => Some(Failure::Disconnected),
            (_, 500..=599) => Some(Failure::ServerError),
            _ => None,
        };
        if let Some(failure) = failure {
            let (outcome, attempts) = self.retry_or_fail(due, failure, Some(status), now);
            return (outcome, attempts, PageLinks::default());
        }
        let page = self.links_of(due, answer);
        (Outcome::Answered { status }, due.attempts.saturating_add(1), page)
    }

    fn judge_failure(
        &mut self,
        index: u32,
        due: &Due,
        failure: Failure,
        ended: Mono,
        now: Now,
        out: &mut Vec<Action>,
    ) -> (Outcome, u8) {
        match failure {
            Failure::NotTried | Failure::Closed => {
                (Outcome::Retry { failure, status: None, not_before: now.wall }, due.attempts)
            }
            Failure::PrivateAddress => (Outcome::Failed { failure, status: None }, due.attempts),
            _ if failure.is_host() => {
                let not_before = match self.origin_failed(index, &Origin::of(&due.url), failure, now) {
                    Some(not_before) => not_before,
                    None => {
                        self.host_failed(index, failure, None, ended, now, out);
                        now.wall + self.host_wait(index, now)
                    }
                };
                (Outcome::Retry { failure, status: None, not_before }, due.attempts)
            }
            _ => self.retry_or_fail(due, failure, None, now),
        }
    }

    fn retry_or_fail(&self, due: &Due, failure: Failure, status: Option<u16>, now: Now) -> (Outcome, u8) {
        let outcome = match self.settings.retry_pauses.get(usize::from(due.attempts)) {
            Some(pause) => Outcome::Retry { failure, status, not_before: now.wall_after(*pause) },
            None => Outcome::Failed { failure, status },
        };
        (outcome, due.attempts.saturating_add(1))
    }

    /// Whether a connection was closed instead of an answer to this URL, and not for the first time: then it is no accident of
    /// connections that are kept, and costs the URL an attempt.
    fn is_closed_again(&mut self, index: u32, url: &Url) -> bool {
        self.bench.host_mut(index).closed_urls.met_before(url)
    }

    /// Whether a URL is answered with 429 or 503 by a host that was well, and not for the first time: then it is the URL that
    /// is to blame as much as the host, and it costs it an attempt.
    fn is_busy_again(&mut self, index: u32, url: &Url) -> bool {
        let host = self.bench.host_mut(index);
        if host.failures > 0 {
            return false;
        }
        host.busy_urls.met_before(url)
    }

    /// An origin failed. If others of its host answer, it alone is left alone for longer and longer, and this says until when;
    /// otherwise it is the host that fails.
    pub(super) fn origin_failed(
        &mut self,
        index: u32,
        origin: &Origin,
        failure: Failure,
        now: Now,
    ) -> Option<Wall> {
        let host = self.bench.host(index);
        let well = |of: &RulesOf| of.origin != *origin && of.rules.is_some() && of.trouble.is_none();
        if failure == Failure::Busy || host.failures > 0 || !host.rules.iter().any(well) {
            return None;
        }
        let trouble = host.rules_of(origin).and_then(|of| of.trouble.as_ref());
        let (failures, since) =
            trouble.map_or((1, now.wall), |trouble| (trouble.failures.saturating_add(1), trouble.since));
        let wait = politeness::back_off(&self.settings, failures, &mut self.jitter);
        let not_before = now.mono + wait;
        let trouble = Trouble { failures, failure, since, not_before };
        self.rules_of_mut(index, origin).trouble = Some(Box::new(trouble));
        Some(now.wall_after(wait))
    }

    /// A host failed: it is left alone for longer and longer, and in the end given up.
    pub(super) fn host_failed(
        &mut self,
        index: u32,
        failure: Failure,
        retry_after: Option<Duration>,
        ended: Mono,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let delay = self.delay(index);
        let host = self.bench.host_mut(index);
        if failure == Failure::NoSuchName && host.failure != Some(failure) {
            // Its asks are counted on their own: other troubles before say nothing about the name.
            host.failures = 0;
        }
        host.failures = host.failures.saturating_add(1);
        host.failure = Some(failure);
        let since = *host.failing_since.get_or_insert(now.wall);
        let wait = match (failure, retry_after) {
            (Failure::NoSuchName, _) => self.settings.no_such_name_span / (NO_SUCH_NAME_ASKS - 1),
            (_, Some(wait)) => {
                // A server that says "now" again and again does not mean it.
                let often = host.failures.saturating_sub(RETRY_AFTER_TRUSTED);
                let least = if often > 0 {
                    politeness::back_off(&self.settings, often, &mut self.jitter)
                } else {
                    delay
                };
                wait.min(WAIT_MAX).max(delay).max(least)
            }
            (_, None) => politeness::back_off(&self.settings, host.failures, &mut self.jitter).max(delay),
        };
        host.not_before = host.not_before.max(ended + wait);
        let given_up = now.wall.since(since) >= self.settings.host_give_up
            || (failure == Failure::NoSuchName && host.failures >= NO_SUCH_NAME_ASKS);
        if given_up {
            host.not_before = now.mono;
        }
        self.give_up(index, given_up);
        let not_before = now.wall_after(self.host_wait(index, now));
        let record = self.bench.host(index).record(not_before);
        self.write_own(Record::Host(record), out);
        self.keep_shared(index, now, out);
        self.put_back(index, out);
    }

    /// A host answered: its failures are history.
    pub(super) fn host_recovered(&mut self, index: u32, now: Now, out: &mut Vec<Action>) {
        let host = self.bench.host_mut(index);
        if host.failures == 0 {
            return;
        }
        (host.failures, host.failing_since, host.failure) = (0, None, None);
        let record = host.record(now.wall);
        self.write_own(Record::Host(record), out);
        self.keep_shared(index, now, out);
    }

    /// How long a host is still to be left alone.
    fn host_wait(&self, index: u32, now: Now) -> Duration {
        self.bench.host(index).not_before.since(now.mono)
    }

    /// Several hosts of an address want less: the address is left alone as long as this one asks.
    fn address_busy(&mut self, index: u32, contacted: &[AddressKey], now: Now, out: &mut Vec<Action>) {
        let until = self.bench.host(index).not_before;
        let not_before = now.wall_after(self.host_wait(index, now));
        for address in contacted {
            if self.gates.note_busy(*address, &self.bench.host(index).name, now.mono, until) {
                self.gates.close_until(*address, until);
                self.no_use_for_turn(*address);
                self.address_waits.push((*address, not_before));
                self.write_own(Record::AddressWait { address: *address, not_before }, out);
            }
        }
    }

    /// What an answer adds to the crawl.
    pub(super) fn links_of(&self, due: &Due, answer: &mut Answer) -> PageLinks {
        match (answer.status, &answer.location) {
            (301 | 302 | 303 | 307 | 308, Some(location)) => self.redirect(due, location),
            _ => self.links(due, std::mem::take(&mut answer.content)),
        }
    }

    fn redirect(&self, due: &Due, location: &str) -> PageLinks {
        let mut page = PageLinks::default();
        let Some(url) = target(&due.url, location).map(CleanUrl::from) else { return page };
        let how = match due.how {
            How::Seed => How::Seed,
            How::Sitemap | How::Returned { is_sitemap: true, .. } => How::Sitemap,
            How::Link | How::Redirect | How::Listed | How::Returned { .. } => How::Redirect,
        };
        if due.redirects >= self.settings.redirects_max {
            page.left_out.traps += 1;
            return page;
        }
        // What a seed redirects to is in scope by that alone.
        if how == How::Seed || self.may_follow(&url, &mut page.left_out) {
            page.found.push(Found { url: url.into(), depth: due.depth, how, redirects: due.redirects + 1 });
        }
        page
    }

    fn links(&self, due: &Due, content: Content) -> PageLinks {
        let mut page = PageLinks::default();
        match content {
            Content::Page { links, directives } => {
                page.flags = PageFlags { noindex: directives.noindex, noarchive: directives.noarchive };
                let links = links.into_iter().filter(|link| !link.nofollow && !directives.nofollow);
                self.follow(
                    links.map(|Link { url, .. }| url),
                    How::Link,
                    due.depth.saturating_add(1),
                    &mut page,
                );
            }
            Content::Sitemap { pages, sitemaps } => {
                let [sitemaps, pages] = [sitemaps, pages].map(|urls| urls.into_iter().map(CleanUrl::from));
                self.follow(sitemaps, How::Sitemap, due.depth, &mut page);
                self.follow(pages, How::Listed, due.depth, &mut page);
            }
            Content::Robots(_) | Content::Nothing => {}
        }
        page
    }

    fn follow(&self, urls: impl Iterator<Item = CleanUrl>, how: How, depth: u16, page: &mut PageLinks) {
        for url in urls {
            if self.may_follow(&url, &mut page.left_out) {
                page.found.push(Found { url: url.into(), depth, how, redirects: 0 });
            }
        }
    }

    pub(super) fn may_follow(&self, url: &CleanUrl, left_out: &mut LeftOut) -> bool {
        if self.scope.judge(url).is_err() {
            left_out.scope += 1;
        } else if traps::check(url, &self.settings.traps).is_err() {
            left_out.traps += 1;
        } else {
            return true;
        }
        false
    }

    /// Whether nothing is under way for a host, so that it may be put elsewhere.
    pub(super) fn is_at_rest(&self, index: u32) -> bool {
        use Place::*;
        self.bench
            .get(index)
            .is_some_and(|host| matches!(host.place(), Idle | Ready | Waiting(_) | Blocked | Leaving))
    }
}

/// What a page adds to the crawl.
#[derive(Default)]
pub(super) struct PageLinks {
    pub(super) found: Vec<Found>,
    left_out: LeftOut,
    flags: PageFlags,
}
