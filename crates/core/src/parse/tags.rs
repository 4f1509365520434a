//! From HTML to the few elements that matter to a crawler, with the few attributes of them that do.
//!
//! The tokenizer is html5gum's. This is the receiver of its tokens: it keeps nothing of other elements, reuses its
//! buffers, and so allocates nothing for a tag. It also does the part of tree construction without which tags would
//! be seen where there are none: the text of `script`, `style`, `title` and their like is not markup, and what is in a
//! `template` is not part of the page. Scripting counts as off, so the content of `noscript` is.

use std::convert::Infallible;

use html5gum::{Emitter, Error, Readable as _, Reader, State, Tokenizer};
use memchr::memchr;

use super::REFERENCE_BYTES_MAX;

/// The elements that are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    A,
    Area,
    Base,
    Frame,
    Link,
    Meta,
}

/// The attributes that are reported: of each kind, the first in its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    /// `href` or `src`.
    Reference,
    Rel,
    Name,
    HttpEquiv,
    Content,
    Charset,
}

/// How many kinds of attributes there are.
const ATTRIBUTES: usize = 6;

/// Receives the elements in the order of their start tags.
pub(super) trait Sink {
    fn element(&mut self, element: Element, attributes: &Attributes);
}

/// Reports the elements of a page to `sink`. The bytes are UTF-8, or at least ASCII where it matters.
pub(super) fn read(html: &[u8], sink: &mut impl Sink) {
    let reader = Tags { sink, tag: Tag::default(), last_start: Name::default(), templates: 0, foreign: 0 };
    let Ok(()) = Tokenizer::new_with_emitter(Markup(html), reader).finish();
}

/// What html5gum reads from: the page without its text, of which nobody is told anything. Where the tokenizer looks for the end
/// of text it is put there; a reference to a character that is left out with it ends before any tag.
struct Markup<'a>(&'a [u8]);

/// Whether a search for these bytes is one for the end of text: for `<`, and otherwise for what matters within text only.
#[inline(always)]
fn ends_text(needle: &[u8]) -> bool {
    needle.contains(&b'<') && needle.iter().all(|byte| matches!(byte, b'<' | b'&' | b'\0' | b'\r'))
}

impl Reader for Markup<'_> {
    type Error = Infallible;

    #[inline(always)]
    fn read_byte(&mut self) -> Result<Option<u8>, Infallible> {
        Ok(self.0.split_off_first().copied())
    }

    #[inline(always)]
    fn try_read_string(&mut self, text: &[u8], case_sensitive: bool) -> Result<bool, Infallible> {
        let mut reader = self.0.to_reader();
        let is_next = reader.try_read_string(text, case_sensitive)?;
        if is_next {
            self.0 = &self.0[text.len()..];
        }
        Ok(is_next)
    }

    // The needles are constants where this is inlined, and so is what follows from them.
    #[inline(always)]
    fn read_until<'b>(
        &'b mut self,
        needle: &[u8],
        buffer: &'b mut [u8; 4],
    ) -> Result<Option<&'b [u8]>, Infallible> {
        let count = if ends_text(needle) {
            self.0 = &self.0[memchr(b'<', self.0).unwrap_or(self.0.len())..];
            self.0.len().min(1)
        } else {
            self.0.to_reader().read_until(needle, buffer)?.map_or(0, <[u8]>::len)
        };
        let (found, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok((count > 0).then_some(found))
    }
}

/// The attributes of one tag.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    values: [Value; ATTRIBUTES],
}

#[derive(Debug, Default)]
struct Value {
    bytes: Vec<u8>,
    present: bool,
}

impl Attributes {
    /// The value of an attribute, with its character references decoded; `None` where there is none, or one beyond
    /// the limit on references.
    pub(super) fn get(&self, attribute: Attribute) -> Option<&str> {
        let value = &self.values[attribute as usize];
        let text = str::from_utf8(&value.bytes).ok();
        text.filter(|text| value.present && text.len() <= REFERENCE_BYTES_MAX)
    }

    fn push(&mut self, attribute: Attribute, text: &[u8]) {
        let bytes = &mut self.values[attribute as usize].bytes;
        // One byte more than allowed is enough to know that there were too many.
        let room = (REFERENCE_BYTES_MAX + 1).saturating_sub(bytes.len());
        bytes.extend_from_slice(&text[..text.len().min(room)]);
    }

    fn clear(&mut self) {
        for value in &mut self.values {
            value.bytes.clear();
            value.present = false;
        }
    }
}

/// A name of a tag or an attribute, in lower case. Names longer than any that matters become the empty name.
#[derive(Debug, Default, Clone, Copy)]
struct Name {
    bytes: [u8; Name::BYTES_MAX],
    length: usize,
}

impl Name {
    const BYTES_MAX: usize = 16;

    fn push(&mut self, text: &[u8]) {
        let end = self.length.saturating_add(text.len());
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(text);
        }
        self.length = end;
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The tag that is being read.
#[derive(Debug, Default)]
struct Tag {
    name: Name,
    is_end: bool,
    is_self_closing: bool,
    /// What the tag is, once its name is complete.
    element: Option<Element>,
    is_template: bool,
    /// The attribute that is being read: its name, and once that is complete, which of ours it is.
    attribute_name: Name,
    in_attribute: bool,
    attribute: Option<Attribute>,
    attributes: Attributes,
    has_shadow_root: bool,
}

impl Tag {
    fn restart(&mut self, is_end: bool) {
        if self.element.is_some() {
            self.attributes.clear();
        }
        self.name.length = 0;
        self.is_end = is_end;
        self.is_self_closing = false;
        self.element = None;
        self.is_template = false;
        self.in_attribute = false;
        self.attribute = None;
        self.has_shadow_root = false;
    }

    /// The name is complete when the first attribute or the end of the tag is met.
    fn finish_name(&mut self) {
        if self.is_end || self.element.is_some() || self.is_template {
            return;
        }
        match self.name.as_bytes() {
            b"a" => self.element = Some(Element::A),
            b"area" => self.element = Some(Element::Area),
            b"base" => self.element = Some(Element::Base),
            b"frame" | b"iframe" => self.element = Some(Element::Frame),
            b"link" => self.element = Some(Element::Link),
            b"meta" => self.element = Some(Element::Meta),
            b"template" => self.is_template = true,
            _ => {}
        }
    }

    /// The name of an attribute is complete when its value, the next attribute or the end of the tag is met.
    fn finish_attribute_name(&mut self) {
        if !std::mem::take(&mut self.in_attribute) {
            return;
        }
        let name = self.attribute_name.as_bytes();
        self.has_shadow_root |= self.is_template && name == b"shadowrootmode";
        let found = match (self.element, name) {
            (Some(Element::Frame), b"src") => Some(Attribute::Reference),
            (Some(Element::A | Element::Area | Element::Base | Element::Link), b"href") => {
                Some(Attribute::Reference)
            }
            (Some(Element::A | Element::Area | Element::Link), b"rel") => Some(Attribute::Rel),
            (Some(Element::Meta), b"name") => Some(Attribute::Name),
            (Some(Element::Meta), b"http-equiv") => Some(Attribute::HttpEquiv),
            (Some(Element::Meta), b"content") => Some(Attribute::Content),
            (Some(Element::Meta), b"charset") => Some(Attribute::Charset),
            _ => None,
        };
        // Of attributes with the same name the first counts.
        self.attribute = found.filter(|&found| !self.attributes.values[found as usize].present);
        if let Some(found) = self.attribute {
            self.attributes.values[found as usize].present = true;
        }
    }
}

struct Tags<'a, S> {
    sink: &'a mut S,
    tag: Tag,
    last_start: Name,
    /// How many templates are open around the current place.
    templates: usize,
    /// How many `svg` and `math` are open around the current place: there, and only there, a tag can close itself.
    foreign: usize,
}

impl<S: Sink> Tags<'_, S> {
    fn end_tag(&mut self) {
        match self.tag.name.as_bytes() {
            b"template" => self.templates = self.templates.saturating_sub(1),
            b"svg" | b"math" => self.foreign = self.foreign.saturating_sub(1),
            _ => {}
        }
    }

    fn start_tag(&mut self) -> Option<State> {
        let tag = &mut self.tag;
        tag.finish_name();
        tag.finish_attribute_name();
        self.last_start = tag.name;
        if let Some(element) = tag.element
            && self.templates == 0
        {
            self.sink.element(element, &tag.attributes);
        }
        if tag.is_template && (self.templates > 0 || !tag.has_shadow_root) {
            // A template with a shadow root is shown, and its end tag then has nothing to close here.
            self.templates += 1;
        }
        let closed = tag.is_self_closing;
        match tag.name.as_bytes() {
            b"svg" | b"math" if !closed => self.foreign += 1,
            _ if closed && self.foreign > 0 => return None,
            b"title" | b"textarea" => return Some(State::RcData),
            b"script" => return Some(State::ScriptData),
            b"style" | b"iframe" | b"xmp" | b"noembed" | b"noframes" => return Some(State::RawText),
            b"plaintext" => return Some(State::PlainText),
            _ => {}
        }
        None
    }
}

/// Text, comments and document types are not ours, and errors are the normal state of the web.
impl<S: Sink> Emitter for Tags<'_, S> {
    type Token = Infallible;

    fn init_start_tag(&mut self) {
        self.tag.restart(false);
    }

    fn init_end_tag(&mut self) {
        self.tag.restart(true);
    }

    #[inline]
    fn push_tag_name(&mut self, text: &[u8]) {
        self.tag.name.push(text);
    }

    fn init_attribute(&mut self) {
        self.tag.finish_name();
        self.tag.finish_attribute_name();
        self.tag.attribute = None;
        if self.tag.element.is_some() || self.tag.is_template {
            self.tag.attribute_name.length = 0;
            self.tag.in_attribute = true;
        }
    }

    #[inline]
    fn push_attribute_name(&mut self, text: &[u8]) {
        if self.tag.in_attribute {
            self.tag.attribute_name.push(text);
        }
    }

    #[inline]
    fn init_attribute_value(&mut self) {
        self.tag.finish_attribute_name();
    }

    #[inline]
    fn push_attribute_value(&mut self, text: &[u8]) {
        if let Some(attribute) = self.tag.attribute {
            self.tag.attributes.push(attribute, text);
        }
    }

    fn set_self_closing(&mut self) {
        self.tag.is_self_closing = true;
    }

    fn emit_current_tag(&mut self) -> Option<State> {
        if self.tag.is_end {
            self.end_tag();
            None
        } else {
            self.start_tag()
        }
    }

    fn current_is_appropriate_end_tag_token(&mut self) -> bool {
        self.tag.is_end && self.tag.name.as_bytes() == self.last_start.as_bytes()
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&mut self) -> bool {
        self.foreign > 0
    }

    fn set_last_start_tag(&mut self, name: Option<&[u8]>) {
        self.last_start = Name::default();
        self.last_start.push(name.unwrap_or_default());
    }

    #[inline]
    fn should_emit_errors(&mut self) -> bool {
        false
    }

    #[inline]
    fn pop_token(&mut self) -> Option<Infallible> {
        None
    }

    fn emit_eof(&mut self) {}
    fn emit_error(&mut self, _: Error) {}
    #[inline]
    fn emit_string(&mut self, _: &[u8]) {}
    fn init_comment(&mut self) {}
    fn push_comment(&mut self, _: &[u8]) {}
    fn emit_current_comment(&mut self) {}
    fn init_doctype(&mut self) {}
    fn push_doctype_name(&mut self, _: &[u8]) {}
    fn emit_current_doctype(&mut self) {}
    fn set_force_quirks(&mut self) {}
    fn set_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn set_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_system_identifier(&mut self, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct All(Vec<(Element, Vec<Option<String>>)>);

    impl Sink for All {
        fn element(&mut self, element: Element, attributes: &Attributes) {
            use Attribute::{Charset, Content, HttpEquiv, Name, Reference, Rel};
            let values = [Reference, Rel, Name, HttpEquiv, Content, Charset]
                .map(|attribute| attributes.get(attribute).map(str::to_owned));
            self.0.push((element, values.to_vec()));
        }
    }

    fn with_text(html: &[u8]) -> All {
        let mut all = All::default();
        let reader = Tags {
            sink: &mut all,
            tag: Tag::default(),
            last_start: Name::default(),
            templates: 0,
            foreign: 0,
        };
        let Ok(()) = Tokenizer::new_with_emitter(html, reader).finish();
        all
    }

    fn without_text(html: &[u8]) -> All {
        let mut all = All::default();
        read(html, &mut all);
        all
    }

    #[test]
    fn text_makes_no_difference() {
        for (html, count) in [
            ("a&amp<a href=x>&lt<a href='y'>&", 2),
            ("&#<a href=x>&#x<a href=y>&#6<a href=z>&notit<a href=0>", 4),
            ("a\rb\r\n<\r<a\rhref=x>\0<a href=\"y\r\nz\">", 2),
            ("<title>&<a href=x></title><a href=y>", 1),
            ("<script>a<!--b<script>c</script>d<a href=x>--></script><a href=y>", 1),
            ("<plaintext><a href=x>", 0),
            ("<svg><![CDATA[ <a href=x> ]]><a href=y></svg>", 1),
            ("a < b <a href=x", 0),
        ] {
            let found = without_text(html.as_bytes());
            assert_eq!((found.0.len(), &found), (count, &with_text(html.as_bytes())), "{html}");
        }
    }

    proptest! {
        #[test]
        fn any_text_makes_no_difference(parts in prop::collection::vec(0_usize..PARTS.len(), 0..60)) {
            let html: Vec<u8> = parts.into_iter().flat_map(|part| PARTS[part].iter().copied()).collect();
            prop_assert_eq!(without_text(&html), with_text(&html));
        }
    }

    /// What odd pages are made of.
    const PARTS: &[&[u8]] = &[
        b"<",
        b">",
        b"/",
        b"!",
        b"?",
        b"-",
        b"--",
        b"=",
        b"\"",
        b"'",
        b" ",
        b"\r",
        b"\n",
        b"\0",
        b"&",
        b"&#",
        b"&#x",
        b"&lt;",
        b"&notin",
        b";",
        b"a",
        b"x9",
        b"\xc3\xa4",
        b"<a ",
        b"href=",
        b"href=\"",
        b"</a>",
        b"<title>",
        b"</title",
        b"<script>",
        b"</script>",
        b"<!--",
        b"-->",
        b"--!>",
        b"<style>",
        b"</style>",
        b"<textarea>",
        b"</textarea ",
        b"<svg>",
        b"</svg>",
        b"<![CDATA[",
        b"]]>",
        b"<!doctype ",
        b"<meta content='",
        b"<base href=/b>",
        b"<template>",
        b"</template>",
        b"<plaintext>",
        b"<iframe src=x>",
        b"</iframe>",
        b"public",
    ];
}
