//! What was given to sites that are gone.
//!
//! With a site that is lost for good went what was given to it. Whoever gave it still has the records of that: so, once after the
//! list says that a site is gone, each agent reads its records from the first to the last for what it gave there, and writes that
//! down as returned. From there it goes to whoever holds its host's partition by now, as a link does, and on to the site that the
//! host belongs to. All of this may happen any number of times: a URL of which anything else is known is left as it is.

use std::time::Duration;

use super::{Action, Agent, LookBack};
use crate::federation::Federation;
use crate::limits::UNSETTLED_MAX;
use crate::record::{Arrived, Found, Outcome, Record, Settled};
use crate::time::{Mono, Now};

/// The wait between two looks at the records: there is other work too.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How far that is.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// The version of the list for which it was done last, durably.
    pub(super) done_for: u64,
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    /// It has not begun in this run, or has ended.
    #[default]
    Rests,
    /// It begins when the place of the last record is known.
    Begins,
    /// It goes on at a place, at this time; the second is that of the last record.
    From(u64, u64, Mono),
    Asked(LookBack),
}

impl Agent {
    /// Begins, if the list is another than the last time.
    pub(super) fn begin_returning(&mut self, out: &mut Vec<Action>) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        if exchange.returning.done_for == exchange.federation.version() || self.site.is_shared() {
            return;
        }
        let is_any_gone = exchange.federation.gone().next().is_some();
        if is_any_gone {
            exchange.returning.stage = Stage::Begins;
        } else {
            self.end_returning(out);
        }
    }

    /// A durable record says for which list it was done.
    pub(super) fn recall_returned(&mut self, version: u64) {
        if let Some(exchange) = self.exchange.as_deref_mut() {
            exchange.returning.done_for = version;
        }
    }

    /// Whether it is under way.
    pub(super) fn is_returning(&self) -> bool {
        self.exchange.as_deref().is_some_and(|exchange| !matches!(exchange.returning.stage, Stage::Rests))
    }

    pub(super) fn next_returning_wake(&self) -> Option<Mono> {
        match self.exchange.as_deref()?.returning.stage {
            Stage::From(_, _, at) if self.may_return() => Some(at),
            _ => None,
        }
    }

    /// One reads the records at a time, and no more is written than can be.
    fn may_return(&self) -> bool {
        self.site.recovery.is_none() && self.unsettled.len() < UNSETTLED_MAX / 2
    }

    /// Goes on.
    pub(super) fn tend_returning(&mut self, now: Now, out: &mut Vec<Action>) {
        let may_return = self.may_return();
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        if let (Stage::Begins, Some(last)) = (&exchange.returning.stage, self.site.outbox.last) {
            exchange.returning.stage = Stage::From(0, last, now.mono);
        }
        if let Stage::From(from, until, at) = exchange.returning.stage
            && may_return
            && now.mono >= at
        {
            let asked = LookBack { from, until, with_answers: false };
            exchange.returning.stage = Stage::Asked(asked);
            out.push(Action::LookBack(asked));
        }
    }

    /// Records that this asked for.
    pub(super) fn on_looked_back_for_sent(
        &mut self,
        asked: LookBack,
        records: impl Iterator<Item = Record>,
        next: Option<u64>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(exchange) = self.exchange.as_deref_mut() else { return };
        if !matches!(exchange.returning.stage, Stage::Asked(other) if other == asked) {
            return;
        }
        let found: Vec<Found> = records.filter_map(|record| returned(record, &exchange.federation)).collect();
        exchange.returning.stage = match next {
            Some(next) => Stage::From(next, asked.until, now.mono + LOOK_EVERY),
            None => Stage::Rests,
        };
        if !found.is_empty() {
            let pages = vec![(None, found.len() as u32)];
            let arrived = Arrived { from: self.site.me(), site: None, found, pages, totals: Vec::new() };
            self.write(Record::Arrived(arrived), None, None, out);
        }
        if next.is_none() {
            self.end_returning(out);
        }
    }

    /// All of it is written down before this is.
    fn end_returning(&mut self, out: &mut Vec<Action>) {
        let Some(exchange) = self.exchange.as_deref() else { return };
        let version = exchange.federation.version();
        self.write(Record::Returned { version }, None, None, out);
    }
}

/// What a record says of a URL that was given to a site that is gone.
fn returned(record: Record, federation: &Federation) -> Option<Found> {
    let Record::Settled(Settled { outcome: Outcome::Sent { to }, url, depth, how, .. }) = record else {
        return None;
    };
    let is_gone = federation.gone().any(|site| site == to);
    is_gone.then(|| Found { url, depth, how: how.returned(0), redirects: 0 })
}
