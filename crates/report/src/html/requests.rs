//! The slowest root spans of `tracing` for the page, each with all spans below it.

use std::collections::HashMap;

use serde::Serialize;

use crate::spans::{Collected, Ending, Part, Span, Tree};

/// How many root spans the page has at most.
pub(super) const ROOTS: usize = 100;
/// Most events of a span. The page shows fewer of them at once.
const MAX_EVENTS: usize = 1000;
/// Most bytes of all trees, as JSON before compression, roughly.
const MAX_BYTES: usize = 16 << 20;

/// What the page has, as `page/spans.js` reads it. Times are ns since the first event.
#[derive(Debug, Serialize)]
pub(super) struct Requests {
    names: Vec<String>,
    /// Process, id and name.
    threads: Vec<(usize, Option<i64>, String)>,
    pub(super) trees: Vec<TreeRow>,
    /// Root spans that are not here.
    further: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct TreeRow {
    process: usize,
    left_out: u64,
    spans: Vec<SpanRow>,
}

#[derive(Debug, Serialize)]
struct SpanRow {
    id: String,
    name: usize,
    /// Index of the parent, or -1.
    parent: i64,
    begin: i64,
    duration: i64,
    busy: i64,
    ending: &'static str,
    orphan: bool,
    fields: Vec<[String; 2]>,
    /// Thread, begin and end.
    stays: Vec<[i64; 3]>,
    events: Vec<EventRow>,
    follows: Vec<String>,
}

#[derive(Debug, Serialize)]
struct EventRow {
    name: usize,
    time: i64,
    /// Of what it began, or -1.
    duration: i64,
    thread: usize,
    fields: Vec<[String; 2]>,
}

/// Numbers for names and threads.
#[derive(Default)]
struct Tables {
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    threads: Vec<(usize, Option<i64>, String)>,
    by_thread: HashMap<(usize, Option<i64>), usize>,
}

impl Tables {
    fn name(&mut self, name: &str) -> usize {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    fn thread(&mut self, collected: &Collected, process: usize, tid: Option<i64>) -> usize {
        if let Some(&known) = self.by_thread.get(&(process, tid)) {
            return known;
        }
        let info = collected.processes.get(&process);
        let name = info.and_then(|info| info.thread_name(tid?));
        let name = name.unwrap_or_default().to_owned();
        self.threads.push((process, tid, name));
        self.by_thread
            .insert((process, tid), self.threads.len() - 1);
        self.threads.len() - 1
    }
}

impl Requests {
    /// `begin`: the time of the first event, in ns since 1970.
    pub(super) fn new(collected: &Collected, begin: i64) -> Self {
        let mut tables = Tables::default();
        let mut bytes = 0;
        let mut trees = Vec::new();
        for tree in &collected.trees {
            let row = tree_row(&mut tables, collected, tree, begin);
            bytes += row.spans.iter().map(size_of_span).sum::<usize>();
            if bytes > MAX_BYTES {
                break;
            }
            trees.push(row);
        }
        let cut = collected.trees.len() - trees.len();
        Self {
            names: tables.names,
            threads: tables.threads,
            trees,
            further: collected.left_out.trees + cut as u64,
        }
    }
}

/// How long the JSON of a span is, roughly.
fn size_of_span(span: &SpanRow) -> usize {
    let fields = |fields: &[[String; 2]]| {
        let lens = fields
            .iter()
            .map(|[name, text]| name.len() + text.len() + 8);
        lens.sum::<usize>()
    };
    let events = span.events.iter().map(|event| 60 + fields(&event.fields));
    200 + fields(&span.fields) + 40 * span.stays.len() + events.sum::<usize>()
}

fn tree_row(tables: &mut Tables, collected: &Collected, tree: &Tree, begin: i64) -> TreeRow {
    let mut left_out = tree.left_out;
    let mut row = |span: &Span| {
        left_out += span.events.len().saturating_sub(MAX_EVENTS) as u64;
        let since = |ns: i64| ns.saturating_sub(begin);
        SpanRow {
            id: span.ids.to_string(),
            name: tables.name(&span.class.name),
            parent: span.parent.map_or(-1, |parent| parent as i64),
            begin: since(span.begin),
            duration: span.duration(),
            busy: span.busy,
            ending: match span.ending {
                Ending::Closed => "",
                Ending::Replaced => "its end was lost",
                Ending::Open => "open at the end",
            },
            orphan: span.is_orphan,
            fields: fields(&span.fields),
            stays: (span.stays.iter())
                .map(|stay| {
                    let thread = tables.thread(collected, tree.process, stay.thread);
                    [thread as i64, since(stay.begin), since(stay.end)]
                })
                .collect(),
            events: (span.events.iter().take(MAX_EVENTS))
                .map(|event| EventRow {
                    name: tables.name(event.name()),
                    time: since(event.ns),
                    duration: event.duration().unwrap_or(-1),
                    thread: tables.thread(collected, tree.process, event.thread),
                    fields: fields(event.with_end()),
                })
                .collect(),
            follows: span.follows.iter().map(ToString::to_string).collect(),
        }
    };
    let spans = tree.spans.iter().map(&mut row).collect();
    TreeRow {
        process: tree.process,
        left_out,
        spans,
    }
}

/// Names and values, the latest value of each.
fn fields<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Vec<[String; 2]> {
    let mut all: Vec<[String; 2]> = Vec::new();
    for part in parts {
        let (fields, _) = part.own();
        for (field, text) in fields.iter().zip(part.texts()) {
            let value = match text.split_once(" = ") {
                Some((_, value)) => value.to_owned(),
                None => text,
            };
            match all.iter_mut().find(|[name, _]| *name == field.name) {
                Some([_, known]) => *known = value,
                None => all.push([field.name.clone(), value]),
            }
        }
    }
    all
}
