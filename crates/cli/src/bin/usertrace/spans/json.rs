//! Spans as JSON.

use serde::Serialize;
use serde_json::value::RawValue;
use usertrace_report::export::json_fields;
use usertrace_report::spans::{Collected, Ending, LeftOut, Part, Span, Tree};

/// The numbers of all names.
#[derive(Serialize)]
pub(super) struct NamesJson<'a> {
    names: Vec<NameJson<'a>>,
    unbegun: u64,
    left_out: u64,
}

#[derive(Serialize)]
struct NameJson<'a> {
    name: &'a str,
    count: u64,
    open: u64,
    total_ns: u128,
    busy_ns: u128,
    in_children_ns: u128,
    min_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    children: Vec<ChildJson<'a>>,
}

#[derive(Serialize)]
struct ChildJson<'a> {
    name: &'a str,
    count: u64,
    total_ns: u128,
}

/// The roots of trees.
#[derive(Serialize)]
pub(super) struct RootsJson<'a> {
    roots: Vec<RootJson<'a>>,
    /// Further ones that fulfil the conditions.
    further: u64,
}

#[derive(Serialize)]
struct RootJson<'a> {
    #[serde(flatten)]
    process: ProcessJson<'a>,
    spans: u64,
    #[serde(flatten)]
    span: SpanJson<'a>,
}

#[derive(Serialize)]
struct ProcessJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i64>,
}

/// A span and those below it.
#[derive(Serialize)]
pub(super) struct TreeJson<'a> {
    #[serde(flatten)]
    process: ProcessJson<'a>,
    trace_id: String,
    left_out: u64,
    spans: Vec<NodeJson<'a>>,
}

#[derive(Serialize)]
struct NodeJson<'a> {
    depth: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(flatten)]
    span: SpanJson<'a>,
    threads: Vec<StayJson<'a>>,
    events: Vec<EventJson<'a>>,
    follows: Vec<String>,
}

#[derive(Serialize)]
struct SpanJson<'a> {
    id: String,
    name: &'a str,
    time: String,
    duration_ns: i64,
    busy_ns: i64,
    idle_ns: i64,
    in_children_ns: i64,
    ending: &'static str,
    parent_unknown: bool,
    fields: Box<RawValue>,
}

#[derive(Serialize)]
struct StayJson<'a> {
    thread: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// From the begin of the first span.
    from_ns: i64,
    to_ns: i64,
}

#[derive(Serialize)]
struct EventJson<'a> {
    event: &'a str,
    time: String,
    from_ns: i64,
    /// Of what it began, and which event ended that.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_by: Option<&'a str>,
    thread: Option<i64>,
    fields: Box<RawValue>,
}

pub(super) fn names(collected: &Collected) -> NamesJson<'_> {
    let names = &collected.names;
    let children = |of: &[usertrace_report::spans::Child]| {
        of.iter()
            .filter_map(|child| {
                Some(ChildJson {
                    name: &names.get(child.name)?.name,
                    count: child.count,
                    total_ns: child.total,
                })
            })
            .collect()
    };
    let LeftOut {
        unbegun, no_room, ..
    } = collected.left_out;
    NamesJson {
        names: names
            .iter()
            .filter(|name| name.count() + name.unended > 0)
            .map(|name| NameJson {
                name: &name.name,
                count: name.count(),
                open: name.unended,
                total_ns: name.total,
                busy_ns: name.busy,
                in_children_ns: name.in_children,
                min_ns: name.min(),
                p50_ns: name.percentile(50),
                p99_ns: name.percentile(99),
                max_ns: name.max(),
                children: children(&name.children),
            })
            .collect(),
        unbegun,
        left_out: no_room,
    }
}

pub(super) fn roots(collected: &Collected) -> RootsJson<'_> {
    let roots = collected.trees.iter().filter_map(|tree| {
        Some(RootJson {
            process: process(collected, tree),
            spans: tree.spans.len() as u64 + tree.left_out,
            span: span(tree.spans.first()?),
        })
    });
    RootsJson {
        roots: roots.collect(),
        further: collected.left_out.trees,
    }
}

pub(super) fn tree<'a>(collected: &'a Collected, tree: &'a Tree, top: usize) -> TreeJson<'a> {
    let begin = tree.spans[top].begin;
    let info = collected.processes.get(&tree.process);
    let name = |thread: Option<i64>| info?.thread_name(thread?);
    let node = |(index, depth): (usize, usize)| {
        let of = &tree.spans[index];
        let stays = of.stays.iter().map(|stay| StayJson {
            thread: stay.thread,
            name: name(stay.thread),
            from_ns: stay.begin.saturating_sub(begin),
            to_ns: stay.end.saturating_sub(begin),
        });
        let events = of.events.iter().map(|event| EventJson {
            event: &event.class.name,
            time: event.ns.to_string(),
            from_ns: event.ns.saturating_sub(begin),
            duration_ns: event.duration(),
            ended_by: (event.paired.as_deref()).map(|paired| &paired.end.class.name[..]),
            thread: event.thread,
            fields: fields(event.with_end()),
        });
        NodeJson {
            depth,
            parent: of.parent.map(|parent| tree.spans[parent].ids.to_string()),
            span: span(of),
            threads: stays.collect(),
            events: events.collect(),
            follows: of.follows.iter().map(ToString::to_string).collect(),
        }
    };
    TreeJson {
        process: process(collected, tree),
        trace_id: format!("{:032x}", tree.spans[top].ids.trace_id),
        left_out: tree.left_out,
        spans: tree.below(top).into_iter().map(node).collect(),
    }
}

fn process<'a>(collected: &'a Collected, tree: &Tree) -> ProcessJson<'a> {
    let info = collected.processes.get(&tree.process);
    ProcessJson {
        host: info.and_then(|info| info.host.as_deref()),
        process: info.and_then(|info| info.name.as_deref()),
        pid: info.and_then(|info| info.pid),
    }
}

fn span(span: &Span) -> SpanJson<'_> {
    SpanJson {
        id: span.ids.to_string(),
        name: &span.class.name,
        time: span.begin.to_string(),
        duration_ns: span.duration(),
        busy_ns: span.busy,
        idle_ns: span.duration().saturating_sub(span.busy),
        in_children_ns: span.in_children,
        ending: match span.ending {
            Ending::Closed => "closed",
            Ending::Replaced => "lost",
            Ending::Open => "open",
        },
        parent_unknown: span.is_orphan,
        fields: fields(&span.fields),
    }
}

/// The fields of all parts, the latest value of each, as an object.
fn fields<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Box<RawValue> {
    let mut all: Vec<(&str, Vec<u8>)> = Vec::new();
    for part in parts {
        for (field, bytes) in part.each() {
            let mut text = Vec::new();
            json_fields(&mut text, std::slice::from_ref(field), bytes);
            // Without the braces.
            let member = text[1..text.len() - 1].to_vec();
            match all.iter_mut().find(|(name, _)| *name == field.name) {
                Some((_, known)) => *known = member,
                None => all.push((&field.name, member)),
            }
        }
    }
    let members: Vec<_> = all.iter().map(|(_, member)| &member[..]).collect();
    let object = [b"{", &members.join(&b","[..])[..], b"}"].concat();
    let object = String::from_utf8_lossy(&object).into_owned();
    RawValue::from_string(object).unwrap_or_default()
}
