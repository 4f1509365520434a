//! What a recorded answer says: its head, and by the purpose of the request its links, sitemap or rules.
//!
//! Short bodies are read at once. Long ones, and those that may become long by decoding, are read by another thread, one
//! after the other, so that the memory for it is that of one body.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::rc::Rc;
use std::sync::Arc;

use nephila_archive::Content as Wire;
use nephila_archive::http::{Splitter, split};
use nephila_core::agent::{Answer, Content, FetchError, Purpose};
use nephila_core::parse::Link;
use nephila_core::parse::content::{ContentKind, SNIFF_BYTES_MAX, kind};
use nephila_core::parse::headers::content_type;
use nephila_core::parse::html::html;
use nephila_core::parse::sitemap::sitemap;
use nephila_core::record::Failure;
use nephila_core::robots::{Directives, ROBOTS_BYTES_MAX};
use nephila_core::time::Wall;
use nephila_core::url::Url;
use tokio::sync::Semaphore;

use super::decode::{Coding, DecodeLimits, End, codings, decode, is_gzip};
use super::failed;
use super::head::Head;
use super::record::Store;

/// The longest body that is read at once, as received and decoded.
const INLINE_BYTES_MAX: usize = 1 << 20;
/// How much of a longer one is looked at to find out whether the rest is of interest: more than the heads may have.
const FIRST_BYTES: u64 = 1 << 20;
/// A long body is taken from its file in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// Reads answers.
pub(super) struct Reader {
    store: Rc<Store>,
    token: Arc<str>,
    limits: DecodeLimits,
    /// Held by whoever reads a long body.
    long: Arc<Semaphore>,
}

/// What has to be known to read a body.
struct Plan {
    url: Url,
    purpose: Purpose,
    token: Arc<str>,
    codings: Vec<Coding>,
    charset: Option<String>,
    links: Vec<Link>,
    directives: Directives,
}

impl Reader {
    pub(super) fn new(store: Rc<Store>, token: &str, limits: DecodeLimits) -> Reader {
        Reader { store, token: token.into(), limits, long: Arc::new(Semaphore::new(1)) }
    }

    fn unreadable(&self, error: io::Error) -> FetchError {
        self.store.fail("read back", error)
    }

    /// Reads an answer that was received at `now`, and gives its bytes back.
    pub(super) async fn read(
        &self,
        url: Url,
        purpose: Purpose,
        wire: Wire,
        now: Wall,
    ) -> Result<(Answer, Wire), FetchError> {
        let length = length(&wire);
        let is_short = matches!(wire, Wire::Memory(_)) && length <= INLINE_BYTES_MAX as u64;
        let first = Message::split(&wire, if is_short { length } else { FIRST_BYTES })
            .map_err(|error| self.unreadable(error))?;
        let Some(head) = Head::parse(&first.head) else {
            return Err(failed(Failure::Malformed, "the head is not http"));
        };
        let mut answer = Answer { bytes: length, ..head.answer(now) };
        if !head.is_success() {
            return Ok((answer, wire));
        }
        let plan = Plan::new(&head, url, purpose, Arc::clone(&self.token));
        let is_page = plan.purpose == Purpose::Page;
        let content_type = head.text("content-type");
        let is_html = |first: &[u8]| kind(content_type.as_deref(), first) == ContentKind::Html;
        // What cannot be HTML by its name is not worth decoding; what can, is decoded once.
        if is_page && !(is_short && names_html(content_type.as_deref())) {
            let (sample, _) = decode(&first.payload, &plan.codings, SNIFF_BYTES_MAX);
            if !is_html(&sample) {
                answer.content = plan.without_body();
                return Ok((answer, wire));
            }
        }
        if is_short {
            let bytes_max = plan.bytes_max(&self.limits, first.payload.len());
            let (body, end) = decode(&first.payload, &plan.codings, bytes_max.min(INLINE_BYTES_MAX));
            if is_page && !is_html(&body) {
                answer.content = plan.without_body();
                return Ok((answer, wire));
            }
            if end != End::Limit || body.len() == bytes_max {
                answer.content = plan.content(&body, &self.limits);
                return Ok((answer, wire));
            }
        }
        drop(first);
        let (content, wire) = self.read_long(plan, wire).await?;
        answer.content = content;
        Ok((answer, wire))
    }

    async fn read_long(&self, plan: Plan, wire: Wire) -> Result<(Content, Wire), FetchError> {
        let turn = Arc::clone(&self.long).acquire_owned().await.expect("the semaphore is never closed");
        let limits = self.limits;
        let reading = tokio::task::spawn_blocking(move || {
            let payload = Message::split(&wire, u64::MAX)?.payload;
            let (body, _) = decode(&payload, &plan.codings, plan.bytes_max(&limits, payload.len()));
            let content = plan.content(&body, &limits);
            drop(turn);
            Ok((content, wire))
        });
        match reading.await {
            Ok(read) => read.map_err(|error| self.unreadable(error)),
            // A body that makes a parser panic must not end the crawl.
            Err(error) => Err(failed(Failure::Malformed, format_args!("reading it failed: {error}"))),
        }
    }
}

/// Reads an answer out of an archive; `None` if it makes no sense any more.
pub(crate) fn read_archived(
    wire: &[u8],
    url: Url,
    purpose: Purpose,
    token: &Arc<str>,
    limits: &DecodeLimits,
) -> Option<Answer> {
    let (head, payload) = split(wire);
    let head = Head::parse(&head)?;
    let mut answer = Answer { bytes: wire.len() as u64, ..head.answer(Wall(0)) };
    if !head.is_success() {
        return Some(answer);
    }
    let plan = Plan::new(&head, url, purpose, Arc::clone(token));
    let (body, _) = decode(&payload, &plan.codings, plan.bytes_max(limits, payload.len()));
    let content_type = head.text("content-type");
    let is_page = plan.purpose == Purpose::Page;
    answer.content = if is_page && kind(content_type.as_deref(), &body) != ContentKind::Html {
        plan.without_body()
    } else {
        plan.content(&body, limits)
    };
    Some(answer)
}

impl Plan {
    fn new(head: &Head<'_>, url: Url, purpose: Purpose, token: Arc<str>) -> Plan {
        Plan {
            codings: codings(head.all("content-encoding")),
            charset: head.charset(),
            links: head.links(&url),
            directives: head.directives(&token),
            token,
            url,
            purpose,
        }
    }

    /// How far the body is decoded.
    fn bytes_max(&self, limits: &DecodeLimits, payload_bytes: usize) -> usize {
        let bytes_max = limits.for_body(payload_bytes);
        match self.purpose {
            // One byte more shows that the file is longer than what counts of it.
            Purpose::Robots { .. } => bytes_max.min(ROBOTS_BYTES_MAX + 1),
            _ => bytes_max,
        }
    }

    /// What the head alone says.
    fn without_body(self) -> Content {
        if self.links.is_empty() && self.directives == Directives::default() {
            return Content::Nothing;
        }
        Content::Page { links: self.links, directives: self.directives }
    }

    /// What head and body say.
    fn content(self, body: &[u8], limits: &DecodeLimits) -> Content {
        match self.purpose {
            Purpose::Robots { .. } => Content::Robots(body.to_vec()),
            Purpose::Page => {
                let page = html(body, self.charset.as_deref(), &self.url, &self.token);
                let (mut links, mut directives) = (self.links, self.directives);
                links.extend(page.links);
                directives.merge(page.directives);
                Content::Page { links, directives }
            }
            Purpose::Sitemap => {
                // A sitemap is often a compressed file, which is no content coding.
                let codings: &[Coding] = if is_gzip(body) { &[Coding::Gzip] } else { &[] };
                let (body, _) = decode(body, codings, limits.for_body(body.len()));
                let found = sitemap(&body, &self.url);
                Content::Sitemap { pages: found.pages, sitemaps: found.sitemaps }
            }
        }
    }
}

/// Whether a Content-Type says HTML. The body may still be something else.
fn names_html(content_type_value: Option<&str>) -> bool {
    let essence = content_type_value.map(|value| content_type(value).essence);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("text/html"))
}

fn length(wire: &Wire) -> u64 {
    match wire {
        Wire::Memory(bytes) => bytes.len() as u64,
        Wire::Spilled(_, length) => *length,
    }
}

/// The final head of an answer and its payload: chunking removed, content codings not.
struct Message<'a> {
    head: Vec<u8>,
    payload: Cow<'a, [u8]>,
}

impl Message<'_> {
    /// Takes the first `bytes_max` bytes apart.
    fn split(wire: &Wire, bytes_max: u64) -> io::Result<Message<'_>> {
        let (mut file, length): (&File, u64) = match wire {
            Wire::Memory(bytes) => {
                let count = bytes.len().min(usize::try_from(bytes_max).unwrap_or(usize::MAX));
                let (head, payload) = split(&bytes[..count]);
                return Ok(Message { head, payload });
            }
            Wire::Spilled(file, length) => (file, *length),
        };
        let mut splitter = Splitter::wire(false);
        let mut payload = Vec::new();
        file.rewind()?;
        let mut left = file.take(bytes_max.min(length));
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = left.read(&mut piece)?;
            if count == 0 || !splitter.feed(&piece[..count], &mut payload) {
                break;
            }
        }
        let head = splitter.finish(&mut payload).head;
        Ok(Message { head, payload: payload.into() })
    }
}
