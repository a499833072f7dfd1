//! Makes trees of spans out of events.

use std::collections::HashMap;
use std::sync::Arc;

use usertrace_reader::{Condition, Event, Patterns, Trace, value};

use super::class::Class;
use super::condition::{Facts, FieldText, SpanCondition};
use super::ids::{IdMaker, Ids};
use super::inside::{Inside, Mark};
use super::live::{Live, LiveSpans};
use super::names::{Ended, Name, Names, OpenChildren};
use super::process::ProcessInfo;
use super::role::Role;
use super::slowest::Slowest;
use super::thread;
use super::tree::{Ending, Paired, Part, Span, Stay, Tree};

/// Most open spans of all processes. Further ones are counted.
const MAX_OPEN: usize = 1 << 20;
/// Most parts of a span that bring fields, and most links of one.
const MAX_PARTS: usize = 128;
/// Limits of a tree: spans, bytes, and bytes of all trees that are not complete, with what
/// conditions need of other open spans. Further spans, events, fields, and periods of threads are
/// counted.
const MAX_SPANS: usize = 10_000;
const MAX_TREE: usize = 8 << 20;
const MAX_TREES: usize = 256 << 20;
/// Limits of both from which on events of other sources than `tracing` are left out: spans must
/// have room beside them.
const MAX_TREE_OF_OTHERS: usize = MAX_TREE / 8;
const MAX_TREES_OF_OTHERS: usize = MAX_TREES / 2;

/// A class, with the index of its name.
type NamedClass = (Arc<Class>, usize);

/// What to collect.
#[derive(Debug, Default)]
pub struct Options {
    /// Only spans that fulfil it have a part in the numbers, and only such roots are listed. It
    /// knows a span's fields, the contexts of its `.new`, and `duration_ns`, `busy_ns`, `idle_ns`
    /// and `name`.
    pub condition: Option<Condition>,
    /// Spans with these names are roots, and no others. By default, those without a parent are.
    pub roots: Option<Patterns>,
    /// Only trees with this field in one of their spans or events.
    pub field: Option<FieldText>,
    /// Only trees with a span whose id has these hexadecimal digits at its beginning.
    pub id: Option<String>,
    /// How many trees to keep, those with the slowest roots. None costs the least.
    pub keep: usize,
}

/// What has no place in the numbers or the trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Spans for which there was no room, as too many were open.
    pub no_room: u64,
    /// `.close` events of unknown spans: these began before the recording, or their `.new` was
    /// lost.
    pub unbegun: u64,
    /// Trees that fulfil the conditions and are not kept.
    pub trees: u64,
    /// Whether the limit of memory was the reason for some of them.
    pub is_cut: bool,
}

/// An open span.
#[derive(Debug)]
struct Node {
    ids: Ids,
    /// Tells it from an earlier span with the same id.
    serial: u64,
    class: Arc<Class>,
    name: usize,
    /// Id and serial of its parent.
    parent: Option<(u64, u64)>,
    children: OpenChildren,
    /// Its tree, and its index there if there was room.
    tree: Option<(u64, Option<usize>)>,
    parts: Vec<Part>,
    contexts: Box<[u8]>,
    /// Bytes of both, if they are not counted with the tree.
    bytes: usize,
    /// The thread and the index of each period that has not ended.
    stays: Vec<(Option<i64>, usize)>,
}

#[derive(Debug)]
struct ProcessSpans {
    info: ProcessInfo,
    ids: IdMaker,
    live: LiveSpans<Node>,
    last: i64,
    trace: usize,
}

/// A tree with open spans.
#[derive(Debug)]
struct OpenTree {
    tree: Tree,
    /// How many of its spans are open.
    open: usize,
    /// Whether its root fulfils the condition.
    is_wanted: bool,
}

/// Collects the spans of all processes. Memory holds what is open, the numbers of each name, and
/// the trees that are kept.
#[derive(Debug)]
pub struct Collector {
    roots: Option<Patterns>,
    field: Option<FieldText>,
    id: Option<String>,
    condition: Option<SpanCondition>,
    has_trees: bool,
    classes: u32,
    /// By trace, class of streams, and event id, with the index of the name.
    class_indices: HashMap<(usize, u32, u16), Option<NamedClass>, ahash::RandomState>,
    /// The classes of other events, in the same way.
    others: HashMap<(usize, u32, u16), Arc<Class>>,
    inside: Inside,
    processes: HashMap<usize, ProcessSpans>,
    names: Names,
    trees: HashMap<u64, OpenTree>,
    /// Number of the next tree, and of the next span.
    next: u64,
    open: usize,
    bytes: usize,
    slowest: Slowest,
    left_out: LeftOut,
}

/// What a [`Collector`] has collected.
#[derive(Debug)]
pub struct Collected {
    /// The numbers of each name, those with the longest total time first.
    pub names: Vec<Name>,
    /// The trees, the one with the slowest root first.
    pub trees: Vec<Tree>,
    /// What is missing.
    pub left_out: LeftOut,
    /// Processes by number.
    pub processes: HashMap<usize, ProcessInfo>,
    /// What to say of names in the condition that no span has.
    pub unknown_names: Vec<String>,
}

impl Collector {
    /// A collector without spans.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            roots: options.roots,
            field: options.field,
            id: options.id,
            condition: options.condition.map(SpanCondition::new),
            has_trees: options.keep > 0,
            classes: 0,
            class_indices: HashMap::default(),
            others: HashMap::new(),
            inside: Inside::default(),
            processes: HashMap::new(),
            names: Names::default(),
            trees: HashMap::new(),
            next: 0,
            open: 0,
            bytes: 0,
            slowest: Slowest::new(options.keep),
            left_out: LeftOut::default(),
        }
    }

    /// Takes an event. Events must come in the order of time.
    pub fn event(&mut self, event: &Event<'_>) {
        let Some((class, name)) = self.class(event) else {
            // A process lasts as long as its events.
            if let Some(process) = self.processes.get_mut(&event.trace.process()) {
                process.last = process.last.max(event.ns);
                if self.has_trees {
                    self.other(event);
                }
            }
            return;
        };
        let number = event.trace.process();
        let process = self.processes.entry(number).or_insert_with(|| {
            let metadata = event.trace.metadata();
            ProcessSpans {
                info: ProcessInfo::of(metadata),
                ids: IdMaker::new(metadata),
                live: LiveSpans::default(),
                last: event.ns,
                trace: event.trace.number(),
            }
        });
        (process.last, process.trace) = (process.last.max(event.ns), event.trace.number());
        let thread = thread::thread(event);
        process.info.note_thread(event, thread);
        let id = |index| value::integer(&event.class.fields, index, event.payload).unwrap_or(0);
        let span = id(0);
        if span == 0 {
            return;
        }
        match class.role {
            Role::New => self.begin(event, class, name, [span, id(1)], thread),
            Role::Close => match process.live.close(span) {
                Some(live) => self.end(number, live, event.ns, Ending::Closed, Some(event.trace)),
                None => self.left_out.unbegun += 1,
            },
            Role::Enter => {
                process.live.enter(span, thread, event.ns);
                self.begin_stay(number, span, thread, event.ns);
            }
            Role::Exit => {
                process.live.exit(span, thread, event.ns);
                self.end_stay(number, span, thread, event.ns);
            }
            Role::Record => self.record(event, class, span, thread),
            Role::Follows => {
                let followed = process.live.get(id(1));
                let unknown = Ids {
                    trace_id: 0,
                    span_id: 0,
                };
                let followed = followed.map_or(unknown, |live| live.value.ids);
                self.with_span(number, span, |span| {
                    (span.follows.len() < MAX_PARTS).then(|| {
                        span.follows.push(followed);
                        size_of::<Ids>()
                    })
                });
            }
            Role::InSpan => {
                let len = size_of::<Part>() + event.payload.len();
                self.with_span(number, span, |span| {
                    span.events.push(part(event, class, thread));
                    Some(len)
                });
            }
        }
    }

    /// Something happens in the span that the thread is in, or ends what began there.
    fn other(&mut self, event: &Event<'_>) {
        let number = event.trace.process();
        let thread = thread::thread(event);
        let Some(process) = self.processes.get(&number) else {
            return;
        };
        let id = thread.and_then(|thread| process.live.current_id(thread));
        let node = id.and_then(|id| Some((id, &process.live.get(id)?.value)));
        let mark = node.and_then(|(span, node)| {
            let (tree, at) = node.tree?;
            let events = &self.trees.get(&tree)?.tree.spans.get(at?)?.events;
            Some(Mark {
                process: number,
                span,
                serial: node.serial,
                event: events.len(),
            })
        });
        let node_of = |mark: &Mark| {
            let live = self.processes.get(&mark.process)?.live.get(mark.span)?;
            Some(&live.value).filter(|node| node.serial == mark.serial)
        };
        let is_open = |mark: &Mark| node_of(mark).is_some();
        let (ended, is_begin) = self.inside.event(event, mark, is_open);
        let ended: Vec<_> = ended
            .into_iter()
            .filter_map(|(mark, name)| Some((node_of(&mark)?.tree?, mark.event, name)))
            .collect();
        if ended.is_empty() && id.is_none() {
            return;
        }
        let place = (event.trace.number(), event.stream.id, event.class.id);
        let class = self.others.entry(place).or_insert_with(|| {
            self.classes += 1;
            Arc::new(Class::of_thread(self.classes - 1, event))
        });
        let class = Arc::clone(class);
        let len = size_of::<Part>() + event.payload.len();
        let is_part = !ended.is_empty();
        for ((key, at), index, name) in ended {
            let Some(open) = self.trees.get_mut(&key) else {
                continue;
            };
            let span = at.and_then(|at| open.tree.spans.get_mut(at));
            let begin = span.and_then(|span| span.events.get_mut(index));
            let has_room = open.tree.bytes <= MAX_TREE && self.bytes <= MAX_TREES;
            if let Some(begin) = begin.filter(|_| has_room) {
                let end = part(event, Arc::clone(&class), thread);
                let len = size_of::<Paired>() + name.len() + event.payload.len();
                begin.paired = Some(Box::new(Paired { name, end }));
                open.tree.bytes += len;
                self.bytes += len;
            }
        }
        // What only ends something is shown there.
        let Some(id) = id.filter(|_| is_begin || !is_part) else {
            return;
        };
        let is_full = self.bytes > MAX_TREES_OF_OTHERS;
        self.with_span_below(MAX_TREE_OF_OTHERS, number, id, |span| {
            let part = part(event, class, thread);
            (!is_full).then(|| {
                span.events.push(part);
                len
            })
        });
    }

    /// A span gets further fields.
    fn record(&mut self, event: &Event<'_>, class: Arc<Class>, id: u64, thread: Option<i64>) {
        let has_room = self.bytes <= MAX_TREES;
        let has_condition = self.condition.is_some();
        let live = self.processes.get_mut(&event.trace.process());
        let Some(live) = live.and_then(|process| process.live.get_mut(id)) else {
            return;
        };
        let node = &mut live.value;
        let place = node.tree.and_then(|(key, at)| at.map(|_| key));
        let tree = place.and_then(|key| self.trees.get_mut(&key));
        if tree.is_none() && !has_condition {
            return;
        }
        let has_room = has_room
            && node.parts.len() < MAX_PARTS
            && tree.as_ref().is_none_or(|open| open.tree.bytes <= MAX_TREE);
        let len = size_of::<Part>() + event.payload.len();
        match (tree, has_room) {
            (Some(open), false) => {
                open.tree.left_out += 1;
                return;
            }
            (None, false) => return,
            (Some(open), true) => open.tree.bytes += len,
            (None, true) => node.bytes += len,
        }
        node.parts.push(part(event, class, thread));
        self.bytes += len;
    }

    /// Ends everything. `traces` are those of the reader.
    #[must_use]
    pub fn finish(mut self, traces: &[Trace]) -> Collected {
        let mut numbers: Vec<usize> = self.processes.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(process) = self.processes.get_mut(&number) else {
                continue;
            };
            let (last, trace) = (process.last, traces.get(process.trace));
            for (_, live) in process.live.close_all() {
                self.end(number, live, last, Ending::Open, trace);
            }
        }
        let (trees, dropped, is_cut) = self.slowest.finish();
        Collected {
            names: self.names.finish(),
            trees,
            left_out: LeftOut {
                trees: dropped,
                is_cut,
                ..self.left_out
            },
            processes: (self.processes.into_iter())
                .map(|(number, process)| (number, process.info))
                .collect(),
            unknown_names: self
                .condition
                .map(|condition| condition.unknown_names())
                .unwrap_or_default(),
        }
    }

    /// The class of an event and the index of its name; `None` if it does not belong to spans.
    fn class(&mut self, event: &Event<'_>) -> Option<NamedClass> {
        let key = (event.trace.number(), event.stream.id, event.class.id);
        if let Some(known) = self.class_indices.get(&key) {
            return known.clone();
        }
        let class = Class::of(self.classes, event).map(|class| {
            self.classes += 1;
            let name = match class.role {
                Role::New => self.names.number(&class.name),
                _ => 0,
            };
            (Arc::new(class), name)
        });
        self.class_indices.insert(key, class.clone());
        class
    }

    fn begin(
        &mut self,
        event: &Event<'_>,
        class: Arc<Class>,
        name: usize,
        [id, parent]: [u64; 2],
        thread: Option<i64>,
    ) {
        let number = event.trace.process();
        // Its `.close` was lost.
        let replaced = self.live(number).and_then(|live| live.close(id));
        if let Some(live) = replaced {
            self.end(number, live, event.ns, Ending::Replaced, Some(event.trace));
        }
        if self.open >= MAX_OPEN {
            self.left_out.no_room += 1;
            return;
        }
        self.next += 1;
        let serial = self.next;
        let roots = self.roots.as_ref();
        let is_named_root = roots.is_some_and(|roots| roots.accept(&class.name));
        let Some(process) = self.processes.get_mut(&number) else {
            return;
        };
        let around = process.live.get_mut(parent).filter(|_| parent != 0);
        let parent_node = around.map(|live| {
            live.value.children.begin(name, event.ns);
            let node = &live.value;
            (node.serial, node.ids, node.tree)
        });
        let of_parent = parent_node.filter(|_| !is_named_root);
        let of_parent_ids = parent_node.map(|(_, ids, _)| ids);
        let ids = process
            .ids
            .of_span(&class.name, id, event.ns, of_parent_ids);
        let new_span = |parent| Span {
            ids,
            own_id: id,
            parent,
            class: Arc::clone(&class),
            begin: event.ns,
            end: event.ns,
            ending: Ending::Open,
            busy: 0,
            in_children: 0,
            fields: Vec::new(),
            stays: Vec::new(),
            events: Vec::new(),
            follows: Vec::new(),
            is_orphan: parent.is_none() && of_parent_ids.is_none() && !is_no_parent(event),
        };
        let tree = match of_parent {
            Some((_, _, None)) => None,
            Some((_, _, Some((key, at)))) => {
                let len = size_of::<Span>() + event.payload.len();
                let added = self.trees.get_mut(&key).and_then(|open| {
                    let has_room = open.tree.spans.len() < MAX_SPANS
                        && open.tree.bytes + len <= MAX_TREE
                        && self.bytes + len <= MAX_TREES;
                    let Some(at) = at.filter(|_| has_room) else {
                        open.tree.left_out += 1;
                        return None;
                    };
                    open.tree.spans.push(new_span(Some(at)));
                    open.open += 1;
                    open.tree.bytes += len;
                    self.bytes += len;
                    Some(open.tree.spans.len() - 1)
                });
                Some((key, added))
            }
            None if !self.has_trees || (self.roots.is_some() && !is_named_root) => None,
            None => {
                let len = size_of::<Tree>() + size_of::<Span>() + event.payload.len();
                let tree = Tree {
                    process: number,
                    spans: vec![new_span(None)],
                    left_out: 0,
                    bytes: len,
                };
                self.bytes += len;
                let open = OpenTree {
                    tree,
                    open: 1,
                    is_wanted: true,
                };
                self.trees.insert(serial, open);
                Some((serial, Some(0)))
            }
        };
        let is_in_tree = matches!(tree, Some((_, Some(_))));
        let has_condition = self.condition.is_some();
        let keeps = is_in_tree || has_condition && self.bytes <= MAX_TREES;
        let len = event.payload.len() + event.contexts.len();
        let bytes = if keeps && !is_in_tree { len } else { 0 };
        self.bytes += bytes;
        let node = Node {
            bytes,
            ids,
            serial,
            name,
            parent: parent_node.map(|(serial, ..)| (parent, serial)),
            children: OpenChildren::default(),
            tree,
            parts: match keeps {
                true => vec![part(event, Arc::clone(&class), thread)],
                false => Vec::new(),
            },
            contexts: match keeps && has_condition {
                true => event.contexts.into(),
                false => Box::default(),
            },
            stays: Vec::new(),
            class,
        };
        process.live.begin(id, event.ns, node);
        self.open += 1;
    }

    /// A span that is no longer among the open ones ends.
    fn end(
        &mut self,
        number: usize,
        live: Live<Node>,
        ns: i64,
        ending: Ending,
        trace: Option<&Trace>,
    ) {
        self.open -= 1;
        let (busy, begin, node) = (live.busy(ns), live.begin, live.value);
        self.bytes = self.bytes.saturating_sub(node.bytes);
        let duration = ns.saturating_sub(begin);
        let facts = Facts {
            name: &node.class.name,
            duration,
            busy,
            parts: &node.parts,
            contexts: &node.contexts,
            trace,
        };
        let is_wanted = self
            .condition
            .as_mut()
            .is_none_or(|condition| condition.holds(&facts));
        match ending {
            Ending::Closed if is_wanted => {
                let ended = Ended {
                    duration,
                    busy,
                    now: ns,
                    children: &node.children,
                };
                self.names.add(node.name, ended);
            }
            Ending::Replaced | Ending::Open if is_wanted => {
                self.names.all[node.name].unended += 1;
            }
            _ => {}
        }
        if let Some((id, serial)) = node.parent
            && let Some(parent) = self.live(number).and_then(|live| live.get_mut(id))
            && parent.value.serial == serial
        {
            parent.value.children.end(node.name, begin, ns);
        }
        let Some((key, Some(at))) = node.tree else {
            return;
        };
        let Some(open) = self.trees.get_mut(&key) else {
            return;
        };
        if at == 0 {
            open.is_wanted = is_wanted;
        }
        if let Some(span) = open.tree.spans.get_mut(at) {
            span.end = ns;
            span.ending = ending;
            span.busy = busy;
            span.in_children = node.children.in_children(ns);
            span.fields = node.parts;
            for (_, stay) in node.stays {
                if let Some(stay) = span.stays.get_mut(stay) {
                    stay.end = ns;
                }
            }
        }
        open.open -= 1;
        if open.open == 0
            && let Some(open) = self.trees.remove(&key)
        {
            self.bytes = self.bytes.saturating_sub(open.tree.bytes);
            let is_found = self.field.as_ref().is_none_or(|of| of.is_in(&open.tree))
                && self.id.as_ref().is_none_or(|id| has_id(&open.tree, id));
            if open.is_wanted && is_found {
                self.slowest.add(open.tree);
            }
        }
    }

    fn begin_stay(&mut self, number: usize, id: u64, thread: Option<i64>, ns: i64) {
        let mut added = None;
        self.with_span(number, id, |span| {
            added = Some(span.stays.len());
            span.stays.push(Stay {
                thread,
                begin: ns,
                end: ns,
            });
            Some(size_of::<Stay>())
        });
        if let Some(stay) = added
            && let Some(live) = self.live(number).and_then(|live| live.get_mut(id))
        {
            live.value.stays.push((thread, stay));
        }
    }

    fn end_stay(&mut self, number: usize, id: u64, thread: Option<i64>, ns: i64) {
        let Some(live) = self.live(number).and_then(|live| live.get_mut(id)) else {
            return;
        };
        let stays = &mut live.value.stays;
        let Some(at) = stays.iter().rposition(|(of, _)| *of == thread) else {
            return;
        };
        let (_, stay) = stays.remove(at);
        let place = live.value.tree;
        if let Some((key, Some(at))) = place
            && let Some(open) = self.trees.get_mut(&key)
            && let Some(span) = open.tree.spans.get_mut(at)
            && let Some(stay) = span.stays.get_mut(stay)
        {
            stay.end = ns;
        }
    }

    /// Adds something to an open span in its tree, if that has room. `add` returns how many bytes
    /// it takes; none if the span is full.
    fn with_span(&mut self, number: usize, id: u64, add: impl FnOnce(&mut Span) -> Option<usize>) {
        self.with_span_below(MAX_TREE, number, id, add);
    }

    /// The same, if the tree has no more than so many bytes.
    fn with_span_below(
        &mut self,
        max: usize,
        number: usize,
        id: u64,
        add: impl FnOnce(&mut Span) -> Option<usize>,
    ) {
        let place = self.live(number).and_then(|live| live.get(id)?.value.tree);
        let Some((key, at)) = place else {
            return;
        };
        let Some(open) = self.trees.get_mut(&key) else {
            return;
        };
        let has_room = open.tree.bytes <= max && self.bytes <= MAX_TREES;
        let span = at.filter(|_| has_room);
        let span = span.and_then(|at| open.tree.spans.get_mut(at));
        match span.and_then(add) {
            Some(len) => {
                open.tree.bytes += len;
                self.bytes += len;
            }
            None => open.tree.left_out += 1,
        }
    }

    fn live(&mut self, number: usize) -> Option<&mut LiveSpans<Node>> {
        Some(&mut self.processes.get_mut(&number)?.live)
    }
}

/// Whether a `.new` names no parent.
fn is_no_parent(event: &Event<'_>) -> bool {
    value::integer(&event.class.fields, 1, event.payload).unwrap_or(0) == 0
}

fn part(event: &Event<'_>, class: Arc<Class>, thread: Option<i64>) -> Part {
    Part {
        class,
        ns: event.ns,
        thread,
        payload: event.payload.into(),
        paired: None,
    }
}

fn has_id(tree: &Tree, digits: &str) -> bool {
    let mut spans = tree.spans.iter();
    spans.any(|span| span.ids.to_string().starts_with(digits))
}
