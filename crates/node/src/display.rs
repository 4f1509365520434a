//! How a crawl shows itself on standard error: a few lines that change in place on a terminal, log lines otherwise.
//!
//! What is shown is a pure function of the agent's status and of the rates; only [`Display`] touches the terminal. It sets
//! no mode that would have to be restored: whatever ends the process, the terminal is usable. A display that cannot be
//! written is no reason to stop a crawl, so errors of writing are ignored.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nephila_core::agent::Status;

use crate::config::Config;
use crate::report::{failures, places};
use crate::summary::Summary;

/// Over how long the rates are measured that are shown.
const RATE_OVER: Duration = Duration::from_secs(10);
/// Over how long the rate is measured that the estimate of the end uses: longer, so that it does not jump.
const ESTIMATE_OVER: Duration = Duration::from_secs(60);
/// How many measurements are kept for that.
const SAMPLES_MAX: usize = 512;
/// How often a log line is written.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// A wait that is longer than this, in seconds, is told.
const LONG_WAIT_S: f64 = 10.0;
/// The width of the first column.
const LABEL_WIDTH: usize = 9;

/// How many lines of the terminal the display takes now. There is one terminal, and [`error`] has to know from anywhere.
static LINES_ON_SCREEN: AtomicUsize = AtomicUsize::new(0);

/// How a crawl shows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Lines that change in place.
    Live,
    /// A log line now and then.
    Lines,
    /// Not at all, unless something is wrong.
    Quiet,
}

impl Kind {
    /// What standard error can show.
    pub fn fitting() -> Kind {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if io::stderr().is_terminal() && !is_dumb { Kind::Live } else { Kind::Lines }
    }
}

/// What had been done at a moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    elapsed: Duration,
    pages: u64,
    bytes: u64,
    queue: u64,
}

/// How fast it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rates {
    pages_per_s: f64,
    bytes_per_s: f64,
    /// How fast the queue becomes shorter; it may as well become longer.
    drained_per_s: f64,
    /// Over a longer time, for estimates; 0 as long as there is too little to tell.
    steady_pages_per_s: f64,
    steady_bytes_per_s: f64,
    steady_drained_per_s: f64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Display {
    kind: Kind,
    config: Config,
    colour: bool,
    samples: VecDeque<Sample>,
    line_due: Option<Duration>,
    /// It was said that the crawl is about to end.
    said_stopping: bool,
    /// Whether the same command can go on with the crawl.
    again: bool,
}

impl Display {
    /// A display of a crawl with these settings; nothing is shown yet.
    pub fn new(kind: Kind, config: &Config) -> Display {
        // Any value but the empty one switches colours off: https://no-color.org.
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Display {
            kind,
            config: config.clone(),
            colour: kind == Kind::Live && !no_color,
            samples: VecDeque::new(),
            line_due: None,
            said_stopping: false,
            again: true,
        }
    }

    /// The same for a crawl that no command can go on with: it does not say what to do next.
    pub fn once(mut self) -> Display {
        self.again = false;
        self
    }

    /// Says something once, above what changes.
    pub fn say(&self, text: &str) {
        if self.kind != Kind::Quiet {
            print_above(text);
        }
    }

    /// Shows what the crawl is doing, `elapsed` after its beginning, all runs together.
    pub fn update(&mut self, status: &Status, elapsed: Duration) {
        self.sample(status, elapsed);
        let rates = self.rates();
        match self.kind {
            Kind::Live => {
                let (columns, rows) = terminal_size();
                let mut rows_left = rows.saturating_sub(1);
                let mut lines = frame(status, rates, &self.config, elapsed, self.again);
                lines.retain(|_| rows_left.checked_sub(1).inspect(|left| rows_left = *left).is_some());
                draw(&lines, columns, self.colour);
            }
            Kind::Lines => {
                if status.stopping && !std::mem::replace(&mut self.said_stopping, true) {
                    let requests = counted(status.in_flight as u64, "request", "requests");
                    print_above(&format!("stopping: {requests} in flight, settled first"));
                }
                let due = *self.line_due.get_or_insert(elapsed + LINE_EVERY);
                if elapsed >= due {
                    self.line_due = Some(elapsed + LINE_EVERY);
                    print_above(&log_line(status, rates, &self.config, elapsed));
                }
            }
            Kind::Quiet => {}
        }
    }

    /// Replaces what changes by what the crawl came to.
    pub fn finish(&mut self, summary: &Summary) {
        if self.kind != Kind::Quiet {
            print_above(summary.text(&self.config, self.again).trim_end());
        } else if summary.exit_code() != 0 {
            print_above(&summary.headline(&self.config));
        }
    }

    fn sample(&mut self, status: &Status, elapsed: Duration) {
        let Status { totals, queue, .. } = status;
        let sample = Sample { elapsed, pages: totals.pages, bytes: totals.bytes, queue: *queue };
        self.samples.push_back(sample);
        let is_old = |first: &Sample| elapsed.saturating_sub(first.elapsed) > ESTIMATE_OVER;
        while self.samples.len() > SAMPLES_MAX || self.samples.len() > 2 && is_old(&self.samples[0]) {
            self.samples.pop_front();
        }
    }

    fn rates(&self) -> Rates {
        let Some(last) = self.samples.back() else { return Rates::default() };
        let over = |window: Duration, at_least: Duration| {
            let within = |sample: &&Sample| last.elapsed.saturating_sub(sample.elapsed) <= window;
            let first = self.samples.iter().find(within).unwrap_or(last);
            let time = last.elapsed.saturating_sub(first.elapsed);
            let is_enough = !time.is_zero() && time >= at_least;
            let rate = |more: f64| if is_enough { more / time.as_secs_f64() } else { 0.0 };
            [
                rate(last.pages.saturating_sub(first.pages) as f64),
                rate(last.bytes.saturating_sub(first.bytes) as f64),
                rate(first.queue as f64 - last.queue as f64),
            ]
        };
        let [pages_per_s, bytes_per_s, drained_per_s] = over(RATE_OVER, Duration::ZERO);
        let [steady_pages_per_s, steady_bytes_per_s, steady_drained_per_s] = over(ESTIMATE_OVER, RATE_OVER);
        Rates {
            pages_per_s,
            bytes_per_s,
            drained_per_s,
            steady_pages_per_s,
            steady_bytes_per_s,
            steady_drained_per_s,
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = io::stderr().lock().write_all(erase().as_bytes());
    }
}

/// Says something on standard error.
pub fn note(text: &str) {
    print_above(text);
}

/// A text that servers may have had a part in, without what a terminal would obey: control characters and those that
/// change the direction of writing are shown by their number.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let harms = |c: char| match c {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    };
    if !text.contains(harms) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harms(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// The same in one line, for what is put into an answer of several lines: others must not begin one of their own.
pub fn one_line(text: &str) -> String {
    harmless(text).replace('\n', "\\u{a}").replace('\t', "\\u{9}")
}

/// Says on standard error what went wrong and why.
pub fn error(error: &dyn Error) {
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    print_above(&harmless(&text));
}

/// Writes lines where the display was; the next update draws it again below them.
fn print_above(text: &str) {
    let _ = io::stderr().lock().write_all(format!("{}{text}\n", erase()).as_bytes());
}

/// What takes the display off the screen.
fn erase() -> String {
    match LINES_ON_SCREEN.swap(0, Ordering::Relaxed) {
        0 => String::new(),
        lines => format!("\r\x1b[{lines}A\x1b[J"),
    }
}

/// Draws the display over itself, in one write and without clearing first, so that it does not flicker.
fn draw(lines: &[Line], columns: usize, colour: bool) {
    let before = LINES_ON_SCREEN.swap(lines.len(), Ordering::Relaxed);
    // Terminals that know the first and last sequence show all changes between them at once; others ignore them.
    let mut text = "\x1b[?2026h\r".to_owned();
    if before > 0 {
        text.push_str(&format!("\x1b[{before}A"));
    }
    for line in lines {
        text.push_str(&line.paint(columns, colour));
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J\x1b[?2026l");
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Columns and rows of the terminal.
fn terminal_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// A line of the display.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    label: &'static str,
    text: String,
    /// Whether it tells of trouble.
    alarm: bool,
}

impl Line {
    fn new(label: &'static str, text: String) -> Line {
        Line { label, text, alarm: false }
    }

    /// As shown, at most so wide. A terminal wraps a line that is as wide as itself, so one column stays free.
    fn paint(&self, columns: usize, colour: bool) -> String {
        let plain: String = format!("{:LABEL_WIDTH$}{}", self.label, self.text)
            .chars()
            .take(columns.saturating_sub(1))
            .collect();
        if !colour {
            return plain;
        }
        let (label, rest) = plain.split_at(plain.len().min(LABEL_WIDTH));
        let shade = if self.alarm { "\x1b[33m" } else { "" };
        format!("\x1b[1m{label}\x1b[0m{shade}{rest}\x1b[0m")
    }
}

/// The lines of the display.
fn frame(status: &Status, rates: Rates, config: &Config, elapsed: Duration, again: bool) -> Vec<Line> {
    let totals = &status.totals;
    let settings = &config.settings;
    let of = |limit: Option<String>| limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
    let state = match (status.stopping, status.paused) {
        (true, _) => "stopping: waiting for what is in flight; Ctrl-C again ends at once",
        (false, true) => "paused: `nephila resume` goes on",
        (false, false) if again => "crawling; Ctrl-C stops, the same command goes on",
        (false, false) => "crawling; Ctrl-C stops",
    };
    let mut lines = vec![
        Line {
            label: "nephila",
            text: format!(
                "{}{}  {state}",
                span(elapsed.as_secs_f64()),
                of(settings.max_time.map(|limit| span(limit.as_secs_f64())))
            ),
            alarm: status.paused || status.stopping,
        },
        Line::new(
            "pages",
            format!(
                "{}{}  {:.1}/s",
                count(totals.pages),
                of(settings.max_pages.map(count)),
                rates.pages_per_s
            ),
        ),
        Line::new(
            "received",
            format!(
                "{}{}  {}/s",
                bytes(totals.bytes),
                of(settings.max_bytes.map(bytes)),
                bytes(rates.bytes_per_s as u64)
            ),
        ),
        Line::new(
            "queue",
            format!("{}  {}", counted(status.queue, "URL", "URLs"), outlook(status, rates, config, elapsed)),
        ),
        Line::new("hosts", format!("{}  {}", count(totals.hosts), places(&status.hosts))),
    ];
    if let Some(text) = troubles(status) {
        lines.push(Line { label: "errors", text, alarm: true });
    }
    lines
}

/// The same as one line of a log.
fn log_line(status: &Status, rates: Rates, config: &Config, elapsed: Duration) -> String {
    let totals = &status.totals;
    let mut parts = vec![
        format!("{} ({:.1}/s)", counted(totals.pages, "page", "pages"), rates.pages_per_s),
        format!("{} ({}/s)", bytes(totals.bytes), bytes(rates.bytes_per_s as u64)),
        format!("{} queued", count(status.queue)),
        outlook(status, rates, config, elapsed),
    ];
    let places = places(&status.hosts);
    if !places.is_empty() {
        parts.push(format!("hosts: {places}"));
    }
    parts.extend(troubles(status).map(|text| format!("errors: {text}")));
    parts.retain(|part| !part.is_empty());
    format!("{}: {}", span(elapsed.as_secs_f64()), parts.join("; "))
}

/// When it may end, as far as that can be told now, or what it waits for. No figure is better than a wrong one.
fn outlook(status: &Status, rates: Rates, config: &Config, elapsed: Duration) -> String {
    if status.paused || status.stopping {
        return String::new();
    }
    let is_long = |due_s: &f64| status.in_flight == 0 && status.queue > 0 && *due_s > LONG_WAIT_S;
    if let Some(due_s) = status.next_due_s.filter(is_long) {
        return format!("next request in {}", span(due_s));
    }
    let (totals, settings) = (&status.totals, &config.settings);
    let at = |left: u64, now: f64, steady: f64| agree(now, steady).then(|| left as f64 / steady);
    let pages_left = settings.max_pages.map(|max| max.saturating_sub(totals.pages));
    let bytes_left = settings.max_bytes.map(|max| max.saturating_sub(totals.bytes));
    let ends = [
        at(status.queue, rates.drained_per_s, rates.steady_drained_per_s),
        pages_left.and_then(|left| at(left, rates.pages_per_s, rates.steady_pages_per_s)),
        bytes_left.and_then(|left| at(left, rates.bytes_per_s, rates.steady_bytes_per_s)),
    ];
    let estimate = ends.into_iter().flatten().min_by(f64::total_cmp).filter(|_| most_hosts_move(status));
    let at_most = settings.max_time.map(|max| max.saturating_sub(elapsed).as_secs_f64());
    match (estimate, at_most) {
        (Some(left), at_most) if at_most.is_none_or(|most| left < most) => {
            format!("about {} left at this rate", span(left))
        }
        (_, Some(most)) => format!("at most {} left (--max-time)", span(most)),
        _ => String::new(),
    }
}

/// Whether a rate is about the same now and over a longer time, so that something can be concluded from it. It is not when
/// the fast hosts are done and the slow ones remain.
fn agree(now: f64, steady: f64) -> bool {
    now > 0.0 && steady > 0.0 && now <= 2.0 * steady && steady <= 2.0 * now
}

/// Whether most hosts that have something queued are being asked in turn, rather than waiting for something else.
fn most_hosts_move(status: &Status) -> bool {
    let hosts = &status.hosts;
    let moving = hosts.fetching + hosts.ready + hosts.delay + hosts.address + hosts.resolving;
    moving > hosts.backing_off + hosts.retrying + hosts.robots + hosts.blocked
}

/// What went wrong so far, by kind.
fn troubles(status: &Status) -> Option<String> {
    let totals = &status.totals;
    let mut parts = vec![failures(&totals.failures)];
    for (class, name) in [(4, "4xx"), (5, "5xx")] {
        let number: u64 =
            totals.statuses.iter().filter(|(status, _)| **status / 100 == class).map(|(_, n)| n).sum();
        if number > 0 {
            parts.push(format!("{name} {}", count(number)));
        }
    }
    if totals.failed > 0 {
        parts.push(format!("{} failed for good", counted(totals.failed, "URL", "URLs")));
    }
    if status.given_up > 0 {
        parts.push(format!("{} given up", counted(status.given_up, "host", "hosts")));
    }
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() { None } else { Some(parts.join(", ")) }
}

/// A number with its thousands set apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and what it counts.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A size to about three digits.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if number < 1_000 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1_000.0;
    let mut unit = 0;
    // What would be shown as 1000 is 1.0 of the next.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    let decimals = if value < 99.95 { 1 } else { 0 };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A duration in its two greatest units.
pub(crate) fn span(seconds: f64) -> String {
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds.max(0.0) * 1_000.0);
    }
    let seconds = seconds.round() as u64;
    let (days, hours, minutes, rest) =
        (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let two = |great: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{great}{unit}"),
        _ => format!("{great}{unit} {small}{part}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => two(minutes, "m", rest, "s"),
        (0, _, _) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nephila_core::agent::{HostCounts, Totals};
    use nephila_core::record::Failure;

    use super::*;

    fn status() -> Status {
        let totals = Totals {
            pages: 12_345,
            bytes: 678_000_000,
            hosts: 2_021,
            failed: 1,
            statuses: BTreeMap::from([(200, 12_000), (404, 340), (410, 2), (500, 3)]),
            failures: BTreeMap::from([(Failure::Timeout, 12)]),
            ..Totals::default()
        };
        Status {
            totals,
            hosts: HostCounts { fetching: 12, delay: 2_000, backing_off: 9, ..HostCounts::default() },
            queue: 5_000,
            outgoing: 0,
            outbox_full: false,
            backed_up: false,
            undecided: 0,
            given_up: 2,
            next_due_s: None,
            in_flight: 12,
            unsettled: 0,
            paused: false,
            stopping: false,
            store_away: false,
            unconfirmed: 0,
        }
    }

    const RATES: Rates = Rates {
        pages_per_s: 52.04,
        bytes_per_s: 1_500_000.0,
        drained_per_s: 45.0,
        steady_pages_per_s: 50.0,
        steady_bytes_per_s: 1e6,
        steady_drained_per_s: 50.0,
    };

    fn shown(status: &Status, config: &Config, width: usize) -> Vec<String> {
        let lines = frame(status, RATES, config, Duration::from_secs(151), true);
        lines.iter().map(|line| line.paint(width, false)).collect()
    }

    #[test]
    fn terminals_are_told_nothing_by_servers() {
        for (text, shown) in [
            ("plain: ü \n\ttext", "plain: ü \n\ttext"),
            ("\u{1b}]0;x\u{7}\u{1b}[31m", "\\u{1b}]0;x\\u{7}\\u{1b}[31m"),
            ("\u{9b}2J\r\u{202e}", "\\u{9b}2J\\u{d}\\u{202e}"),
        ] {
            assert_eq!(harmless(text), shown);
        }
        assert_eq!(one_line("it\nsite paris:\u{1b}\t[m"), "it\\u{a}site paris:\\u{1b}\\u{9}[m");
    }

    #[test]
    fn a_frame() {
        assert_eq!(
            shown(&status(), &Config::default(), 200),
            [
                "nephila  2m 31s  crawling; Ctrl-C stops, the same command goes on",
                "pages    12,345  52.0/s",
                "received 678 MB  1.5 MB/s",
                "queue    5,000 URLs  about 1m 40s left at this rate",
                "hosts    2,021  12 being asked, 2,000 waiting for their delay, 9 backing off",
                "errors   timeout 12, 4xx 342, 5xx 3, 1 URL failed for good, 2 hosts given up",
            ]
        );
    }

    #[test]
    fn limits_shorten_the_estimate() {
        let mut config = Config::default();
        for (set, expected) in [
            ((|c| c.settings.max_pages = Some(12_845)) as fn(&mut Config), "about 10s left"),
            (|c| c.settings.max_bytes = Some(680_000_000), "about 2s left"),
            (|c| c.settings.max_time = Some(Duration::from_secs(152)), "at most 1s left (--max-time)"),
        ] {
            set(&mut config);
            let lines = shown(&status(), &config, 200);
            assert!(lines[3].contains(expected), "{lines:?}");
        }
        let lines = shown(&status(), &config, 200);
        assert!(lines[0].contains("2m 31s of 2m 32s") && lines[1].contains("12,345 of 12,845"), "{lines:?}");
    }

    #[test]
    fn what_cannot_be_estimated_is_not() {
        let config = Config::default();
        let mostly_waiting = HostCounts { fetching: 1, backing_off: 9, ..HostCounts::default() };
        for (what, status, rates) in [
            ("most hosts wait", Status { hosts: mostly_waiting, ..status() }, RATES),
            ("it is paused", Status { paused: true, ..status() }, RATES),
            ("the queue grows", status(), Rates { drained_per_s: -1.0, ..RATES }),
            ("the queue grew", status(), Rates { steady_drained_per_s: -1.0, ..RATES }),
            ("the rate has fallen", status(), Rates { drained_per_s: 20.0, ..RATES }),
            ("too little is known", status(), Rates { steady_drained_per_s: 0.0, ..RATES }),
        ] {
            assert_eq!(outlook(&status, rates, &config, Duration::ZERO), "", "{what}");
        }
        // Between two requests to one host there is always a short wait.
        let status = Status { next_due_s: Some(1.0), in_flight: 0, ..status() };
        assert_eq!(outlook(&status, RATES, &config, Duration::ZERO), "about 1m 40s left at this rate");
    }

    #[test]
    fn what_cannot_be_gone_on_with_is_not_promised() {
        let lines = frame(&status(), RATES, &Config::default(), Duration::ZERO, false);
        assert!(lines[0].text.ends_with("crawling; Ctrl-C stops"), "{lines:?}");
    }

    #[test]
    fn waiting_and_pausing_are_said() {
        let config = Config::default();
        let waiting = Status { next_due_s: Some(61.0), in_flight: 0, ..status() };
        assert!(shown(&waiting, &config, 200)[3].ends_with("next request in 1m 1s"));
        let paused = Status { paused: true, ..status() };
        assert!(shown(&paused, &config, 200)[0].contains("paused"));
        let stopping = Status { stopping: true, ..status() };
        let lines = shown(&stopping, &config, 200);
        assert!(lines[0].contains("stopping") && !lines[3].contains("left"), "{lines:?}");
    }

    #[test]
    fn lines_fit_the_terminal() {
        for width in [1, 5, 9, 10, 20, 40, 80] {
            for line in frame(&status(), RATES, &Config::default(), Duration::ZERO, true) {
                assert!(line.paint(width, false).chars().count() < width);
                let mut visible = 0;
                let mut escape = false;
                for c in line.paint(width, true).chars() {
                    match c {
                        '\x1b' => escape = true,
                        'm' if escape => escape = false,
                        _ if escape => {}
                        _ => visible += 1,
                    }
                }
                assert!(visible < width, "{visible} of {width}");
            }
        }
    }

    #[test]
    fn a_log_line() {
        assert_eq!(
            log_line(&status(), RATES, &Config::default(), Duration::from_secs(151)),
            "2m 31s: 12,345 pages (52.0/s); 678 MB (1.5 MB/s); 5,000 queued; about 1m 40s left at this rate; \
             hosts: 12 being asked, 2,000 waiting for their delay, 9 backing off; \
             errors: timeout 12, 4xx 342, 5xx 3, 1 URL failed for good, 2 hosts given up"
        );
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let mut display = Display::new(Kind::Quiet, &Config::default());
        let mut at = |tenths: u64, pages: u64| {
            let mut status = status();
            status.totals.pages = pages;
            display.update(&status, Duration::from_millis(tenths * 100));
            assert!(display.samples.len() <= SAMPLES_MAX + 1);
            display.rates()
        };
        assert_eq!(at(0, 1_000).pages_per_s, 0.0);
        assert_eq!(at(10, 1_010).pages_per_s, 10.0);
        // A minute of ten pages a second, then ten seconds of twenty.
        for tenths in 11..=600 {
            at(tenths, 1_000 + tenths);
        }
        for tenths in 601..=700 {
            at(tenths, 1_600 + 2 * (tenths - 600));
        }
        let rates = at(701, 1_802);
        assert!((rates.pages_per_s - 20.0).abs() < 0.5, "{rates:?}");
        assert!((10.0..13.0).contains(&rates.steady_pages_per_s), "{rates:?}");
    }

    #[test]
    fn a_few_seconds_are_no_steady_rate() {
        let mut display = Display::new(Kind::Quiet, &Config::default());
        let mut at = |seconds: u64| {
            let status = Status { queue: 5_000 - 10 * seconds, ..status() };
            display.update(&status, Duration::from_secs(seconds));
            display.rates()
        };
        at(0);
        let rates = at(5);
        assert_eq!((rates.drained_per_s, rates.steady_drained_per_s), (10.0, 0.0));
        at(10);
        assert_eq!(at(20).steady_drained_per_s, 10.0);
    }

    #[test]
    fn numbers_for_people() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (99_949, "99.9 kB"),
            (99_950, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (seconds, text) in [
            (0.0, "0 ms"),
            (0.25, "250 ms"),
            (0.9999, "1s"),
            (59.9, "1m"),
            (61.0, "1m 1s"),
            (3_600.0, "1h"),
            (7_380.0, "2h 3m"),
            (90_000.0, "1d 1h"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}
