//! What a host answers: a script of writes and pauses, so that it can lie, stall and break off as real servers do, and
//! what that answer means to the judge.

use std::{fmt::Write as _, io::Write as _, time::Duration, time::SystemTime};

/// One thing a server does while it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Waits, unless the client leaves.
    Pause(Duration),
    /// Writes these bytes again and again, with a pause after each time, until the client leaves.
    Endless(Vec<u8>, Duration),
    /// Says nothing more until the client leaves.
    Stall,
}

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It stays open.
    Keep,
    /// It is closed in order.
    Close,
    /// It is reset.
    Reset,
}

/// What an answer to robots.txt comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsSays {
    /// There are rules, or none are needed; with the crawl-delay asked for.
    Open(Duration),
    /// Nothing may be fetched, and the file has to be asked for again later.
    Unreachable,
    /// The answer is elsewhere.
    Elsewhere,
}

/// How long an answer asks a crawler to stay away from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The first step of the back-off, because the host fails and does not say how long.
    Backoff,
    /// So long.
    For(Duration),
    /// Until then.
    Until(SystemTime),
}

/// An answer, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What the server does, in order.
    pub steps: Vec<Step>,
    /// What becomes of the connection.
    pub after: After,
    /// Sent whole, this is the final result of the URL: to ask again is overlap.
    pub settles: bool,
    /// This costs the URL one of its attempts, and the next has to wait.
    pub url_failed: bool,
    /// What it means as an answer to robots.txt.
    pub robots: Option<RobotsSays>,
    /// How long the crawler has to leave the host alone.
    pub wait: Option<Wait>,
}

impl Reply {
    /// An answer with length and type.
    pub fn new(status: u16, content_type: &str, body: &[u8]) -> Reply {
        Reply::with_headers(status, &format!("Content-Type: {content_type}\r\n"), body)
    }

    /// An answer with these header lines, each ending in CR LF, and a Content-Length.
    pub fn with_headers(status: u16, headers: &str, body: &[u8]) -> Reply {
        let mut bytes = head(status, headers);
        // Cannot fail: the writer is a Vec.
        let _ = write!(bytes, "Content-Length: {}\r\n\r\n", body.len());
        bytes.extend_from_slice(body);
        Reply::raw(bytes)
    }

    /// An answer of exactly these bytes.
    pub fn raw(bytes: Vec<u8>) -> Reply {
        Reply::steps(vec![Step::Write(bytes)])
    }

    /// An answer that does these things.
    pub fn steps(steps: Vec<Step>) -> Reply {
        Reply { steps, after: After::Keep, settles: true, url_failed: false, robots: None, wait: None }
    }

    /// An HTML page.
    pub fn html(body: &str) -> Reply {
        Reply::new(200, "text/html; charset=utf-8", body.as_bytes())
    }

    /// A robots.txt with these rules.
    pub fn robots(text: &str) -> Reply {
        Reply::new(200, "text/plain", text.as_bytes()).says(RobotsSays::Open(Duration::ZERO))
    }

    /// A redirect.
    pub fn redirect(status: u16, location: &str) -> Reply {
        Reply::with_headers(status, &format!("Location: {location}\r\n"), b"moved")
    }

    /// The same answer, which as an answer to robots.txt means this.
    pub fn says(self, robots: RobotsSays) -> Reply {
        let unreachable = robots == RobotsSays::Unreachable && self.wait.is_none();
        let wait = if unreachable { Some(Wait::Backoff) } else { self.wait };
        Reply { robots: Some(robots), wait, ..self }
    }

    /// The same answer, which is a failure of the URL that costs an attempt.
    pub fn fails(self) -> Reply {
        Reply { settles: false, url_failed: true, ..self }
    }

    /// The same answer, which asks to be left alone and costs no attempt.
    pub fn waits(self, wait: Wait) -> Reply {
        Reply { settles: false, wait: Some(wait), ..self }
    }

    /// The same answer, which leaves the URL open: asked again, it is no overlap.
    pub fn unsettled(self) -> Reply {
        Reply { settles: false, ..self }
    }

    /// The same answer, after which the connection ends so.
    pub fn then(self, after: After) -> Reply {
        Reply { after, ..self }
    }

    /// The same answer, later.
    pub fn after_pause(mut self, pause: Duration) -> Reply {
        self.steps.insert(0, Step::Pause(pause));
        self
    }
}

/// Status line and header lines, without the empty line at the end.
pub(super) fn head(status: u16, headers: &str) -> Vec<u8> {
    let mut text = String::with_capacity(128 + headers.len());
    // Cannot fail: the writer is a String.
    let _ = write!(text, "HTTP/1.1 {status} {}\r\nServer: lab\r\n{headers}", reason(status));
    text.into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        404 => "Not Found",
        408 => "Request Timeout",
        410 => "Gone",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Whatever",
    }
}
