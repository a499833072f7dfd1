//! A root span with all spans below it.

use std::sync::Arc;

use usertrace_reader::{Field, Printer, Values};

use super::class::Class;
use super::ids::Ids;

/// How a span ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By its event `.close`.
    Closed,
    /// Its `.close` is missing: its id was used again at its end.
    Replaced,
    /// It was open at the last event of its process, which is its end here.
    Open,
}

/// Fields that a span got at once, or an event in it.
#[derive(Clone, Debug)]
pub struct Part {
    /// The class of the event that brought them.
    pub class: Arc<Class>,
    /// When, in ns since 1970.
    pub ns: i64,
    /// The thread, if it is known.
    pub thread: Option<i64>,
    pub(crate) payload: Box<[u8]>,
    /// What ended, of an event that began something.
    pub paired: Option<Box<Paired>>,
}

/// The end of what an event in a span began.
#[derive(Clone, Debug)]
pub struct Paired {
    /// What began and ended: `libc:read` of `libc:read_entry` and `libc:read_exit`.
    pub name: String,
    /// The event that ended it.
    pub end: Part,
}

impl Part {
    /// The name of the event, or of what it began if that has ended.
    #[must_use]
    pub fn name(&self) -> &str {
        let paired = self.paired.as_deref();
        paired.map_or(&self.class.name, |paired| &paired.name)
    }

    /// How long what the event began lasted, in ns.
    #[must_use]
    pub fn duration(&self) -> Option<i64> {
        let end = &self.paired.as_deref()?.end;
        Some(end.ns.saturating_sub(self.ns).max(0))
    }

    /// The event, and the one that ended what it began.
    pub fn with_end(&self) -> impl Iterator<Item = &Self> {
        let end = self.paired.as_deref().map(|paired| &paired.end);
        std::iter::once(self).chain(end)
    }

    /// The fields with their values.
    #[must_use]
    pub fn values(&self) -> Values<'_> {
        self.class.values(&self.payload)
    }

    /// The fields, and their bytes.
    #[must_use]
    pub fn own(&self) -> (&[Field], &[u8]) {
        self.class.own(&self.payload)
    }

    /// Each field with the bytes of its value.
    pub fn each(&self) -> impl Iterator<Item = (&Field, &[u8])> {
        let (fields, mut bytes) = self.own();
        fields.iter().map(move |field| {
            // The reader has checked that all are there.
            let len = field.kind.len(bytes).unwrap_or(0).min(bytes.len());
            let (own, rest) = bytes.split_at(len);
            bytes = rest;
            (field, own)
        })
    }

    /// Each field of the event, and of the one that ended what it began, as text: `NAME = VALUE`.
    /// What both say is there once.
    #[must_use]
    pub fn all_texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for text in self.with_end().flat_map(Self::texts) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }

    /// Each field as text: `NAME = VALUE`.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let text = |(field, bytes)| {
            let mut text = Vec::new();
            Printer::fields(&mut text, std::slice::from_ref(field), bytes);
            let text = String::from_utf8_lossy(&text);
            let text = text.strip_prefix("{ ").unwrap_or(&text);
            text.strip_suffix(" }").unwrap_or(text).to_owned()
        };
        self.each().map(text).collect()
    }
}

/// An event in a span.
pub type Happened = Part;

/// A period while a thread was in a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The thread, if it is known.
    pub thread: Option<i64>,
    /// From, in ns since 1970.
    pub begin: i64,
    /// To; the end of the span if the `.exit` is missing.
    pub end: i64,
}

/// A span of a tree.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its unique ids.
    pub ids: Ids,
    /// The id that `tracing` gave to it.
    pub own_id: u64,
    /// The index of its parent in the tree, which is lower than its own. `None` for the root.
    pub parent: Option<usize>,
    /// Its name, as `PROVIDER:NAME`, is that of the class.
    pub class: Arc<Class>,
    /// In ns since 1970.
    pub begin: i64,
    /// In ns since 1970.
    pub end: i64,
    /// How it ended.
    pub ending: Ending,
    /// How long at least one thread was in it.
    pub busy: i64,
    /// How long at least one direct child was open.
    pub in_children: i64,
    /// Its fields, in the order in which it got them.
    pub fields: Vec<Part>,
    /// When which thread was in it.
    pub stays: Vec<Stay>,
    /// Events in it.
    pub events: Vec<Happened>,
    /// The spans that it follows from. An unknown one has span id 0.
    pub follows: Vec<Ids>,
    /// It has a parent, which is not in the trace.
    pub is_orphan: bool,
}

impl Span {
    /// Its duration in ns.
    #[must_use]
    pub fn duration(&self) -> i64 {
        self.end.saturating_sub(self.begin).max(0)
    }
}

/// A root span with all spans below it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Number of its process.
    pub process: usize,
    /// The spans in the order of their begin; the root is the first one.
    pub spans: Vec<Span>,
    /// Spans, events, and periods of threads that had no room.
    pub left_out: u64,
    pub(crate) bytes: usize,
}

impl Tree {
    /// The duration of the root, in ns.
    #[must_use]
    pub fn duration(&self) -> i64 {
        self.spans.first().map_or(0, Span::duration)
    }

    /// The time when the last span ends. Spans may outlive their root.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.spans.iter().map(|span| span.end).max().unwrap_or(0)
    }

    /// The indices of a span and of all below it, each with its depth: parents before their
    /// children, and children in the order of their begin.
    #[must_use]
    pub fn below(&self, top: usize) -> Vec<(usize, usize)> {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.spans.len()];
        for (index, span) in self.spans.iter().enumerate() {
            if let Some(parent) = span.parent {
                children[parent].push(index);
            }
        }
        let (mut order, mut rest) = (Vec::new(), vec![(top, 0)]);
        while let Some((index, depth)) = rest.pop() {
            order.push((index, depth));
            let below = children[index].iter().rev();
            rest.extend(below.map(|&child| (child, depth + 1)));
        }
        order
    }
}
