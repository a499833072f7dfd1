//! Trees of spans (B1, E8): what they are of any order of events, and what they take.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use proptest::prelude::*;
use usertrace_reader::{Item, Reader, Selection};
use usertrace_report::spans::{Collected, Collector, Ending, Options, Tree};
use usertrace_testing::processes::START;
use usertrace_testing::spans::SpanTrace;

fn collect(directory: &Path, options: Options) -> Collected {
    let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
    let mut collector = Collector::new(options);
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => collector.event(&event),
            Item::Lost(_) => {}
            Item::Error(error) => panic!("{error}"),
        }
    }
    collector.finish(reader.traces())
}

fn trees(directory: &Path, keep: usize) -> Collected {
    collect(
        directory,
        Options {
            keep,
            ..Options::default()
        },
    )
}

/// The spans as lines: depth, name, begin, end, busy, in children, and fields.
fn lines(tree: &Tree) -> Vec<String> {
    let line = |(index, depth): (usize, usize)| {
        let span = &tree.spans[index];
        let fields: Vec<_> = span.fields.iter().flat_map(|part| part.texts()).collect();
        let [begin, end] = [span.begin, span.end].map(|ns| ns - START);
        format!(
            "{depth} {} {begin}-{end} busy {} children {} {}",
            span.class.name,
            span.busy,
            span.in_children,
            fields.join(" ")
        )
    };
    tree.below(0).into_iter().map(line).collect()
}

/// The events of a span, relative to the start: time, name, duration, and fields.
fn events(tree: &Tree, span: usize) -> Vec<String> {
    let events = tree.spans[span].events.iter();
    let line = |event: &usertrace_report::spans::Happened| {
        let lasted = event
            .duration()
            .map_or(String::new(), |ns| format!(" {ns}"));
        let texts = event.all_texts().join(", ");
        format!("{} {}{lasted}: {texts}", event.ns - START, event.name())
    };
    events.map(line).collect()
}

/// What begins and ends in a span is one event with its duration and the fields of both, and what
/// the thread does otherwise is an event of the span that it is in.
///
/// Requirements: B1, E8
#[test]
fn spans_have_what_begins_and_ends_in_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    trace.request((100, 51), [1, 0], "/a");
    trace.query((101, 51), [2, 1], "items");
    // In no span yet.
    trace.malloc((102, 51), 1, 0x10);
    trace.enter((110, 51), true, 1);
    trace.malloc((111, 51), 24, 0x20);
    trace.free((112, 51), 0x10);
    trace.enter((120, 51), false, 2);
    trace.malloc((121, 51), 32, 0x30);
    trace.lock(51, 0x99, [130, 135, 138]);
    // Another thread, which is in no span, ends something of this one.
    trace.free((139, 52), 0x20);
    trace.other((140, 51));
    trace.other((141, 52));
    trace.exit((150, 51), false, 2);
    trace.close((151, 51), false, 2);
    // Its span has ended.
    trace.free((160, 51), 0x30);
    trace.exit((170, 51), true, 1);
    trace.close((180, 51), true, 1);
    // The same id again: nothing comes from before.
    trace.request((200, 51), [1, 0], "/b");
    trace.enter((201, 51), true, 1);
    trace.malloc((202, 51), 8, 0x40);
    trace.exit((203, 51), true, 1);
    trace.close((204, 51), true, 1);
    trace.request((300, 51), [1, 0], "/c");
    trace.enter((301, 51), true, 1);
    trace.free((302, 51), 0x40);
    trace.close((303, 51), true, 1);
    trace.finish();
    let collected = trees(directory.path(), 10);
    let [tree, second, third] = &collected.trees[..] else {
        panic!("{:?}", collected.trees)
    };
    assert_eq!(
        events(tree, 0),
        [
            "111 libc:malloc 28: size = 24, ptr = 0x20",
            "112 libc:free: ptr = 0x10",
            "160 libc:free: ptr = 0x30",
        ]
    );
    assert_eq!(
        events(tree, 1),
        [
            "121 libc:malloc: size = 32, ptr = 0x30",
            "130 pthread:mutex_lock 5: mutex = 0x99, result = 0",
            "135 pthread:mutex held 3: mutex = 0x99, result = 0",
            "140 libc:read: fd = 3",
        ]
    );
    assert_eq!(events(second, 0), ["202 libc:malloc: size = 8, ptr = 0x40"]);
    assert_eq!(events(third, 0), ["302 libc:free: ptr = 0x40"]);
    // What only an end has is found, too.
    for (field, count) in [
        ("mutex=0x99", 1),
        ("result=0", 1),
        ("ptr=0x40", 2),
        ("fd=3", 1),
    ] {
        let options = Options {
            keep: 10,
            field: Some(field.parse().unwrap()),
            ..Options::default()
        };
        let found = collect(directory.path(), options).trees.len();
        assert_eq!(found, count, "{field}");
    }
}

/// Events of the allocator leave room for the spans of a request.
///
/// Requirements: E8
#[test]
fn events_of_others_leave_room_for_spans() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    trace.request((1, 51), [1, 0], "/a");
    trace.enter((2, 51), true, 1);
    let count = 20_000;
    for n in 0..count {
        trace.malloc((10 + n, 51), 8, 0x1000 + n);
    }
    trace.query((200_000, 51), [2, 1], "items");
    trace.message((200_001, 51), 2, "found");
    trace.close((200_002, 51), false, 2);
    trace.close((200_003, 51), true, 1);
    trace.finish();
    let collected = trees(directory.path(), 1);
    let tree = &collected.trees[0];
    assert_eq!(tree.spans.len(), 2);
    assert_eq!(tree.spans[1].events.len(), 1);
    let kept = tree.spans[0].events.len() as u64;
    assert!(
        (1..count).contains(&kept) && kept + tree.left_out == count,
        "{kept}"
    );
}

/// A request moves between threads, has two queries at once, and an event.
///
/// Requirements: B1, E8
#[test]
fn tree_has_children_threads_events_and_links() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    trace.request((100, 51), [1, 0], "/a");
    trace.enter((110, 51), true, 1);
    trace.query((120, 51), [2, 1], "items");
    trace.enter((130, 51), false, 2);
    trace.exit((140, 51), false, 2);
    trace.exit((150, 51), true, 1);
    trace.query((160, 52), [3, 1], "users");
    trace.follows((161, 52), false, [3, 2]);
    trace.close((180, 52), false, 2);
    trace.enter((190, 52), true, 1);
    trace.message((195, 52), 1, "found");
    trace.close((200, 52), false, 3);
    trace.status((210, 52), 1, 200);
    // Another thread is in it at the same time.
    trace.enter((220, 51), true, 1);
    trace.exit((230, 52), true, 1);
    trace.exit((240, 51), true, 1);
    trace.close((300, 51), true, 1);
    trace.finish();
    let collected = trees(directory.path(), 10);
    let [tree] = &collected.trees[..] else {
        panic!("{:?}", collected.trees)
    };
    assert_eq!(
        lines(tree),
        [
            "0 shop:request 100-300 busy 90 children 80 path = \"/a\" status = 200",
            "1 shop:query 120-180 busy 10 children 0 table = \"items\"",
            "1 shop:query 160-200 busy 0 children 0 table = \"users\"",
        ]
    );
    let root = &tree.spans[0];
    let stays: Vec<_> = root
        .stays
        .iter()
        .map(|stay| (stay.thread, stay.begin - START, stay.end - START))
        .collect();
    assert_eq!(
        stays,
        [
            (Some(51), 110, 150),
            (Some(52), 190, 230),
            (Some(51), 220, 240)
        ]
    );
    let [event] = &root.events[..] else {
        panic!("{:?}", root.events)
    };
    assert_eq!(
        (&event.class.name[..], event.ns - START, event.thread),
        ("shop:main.rs-12", 195, Some(52))
    );
    assert_eq!(event.texts(), ["message = \"found\""]);
    assert_eq!(tree.spans[2].follows, [tree.spans[1].ids]);
    let process = &collected.processes[&tree.process];
    assert_eq!(process.thread_name(52), Some("worker-52"));
    let names: Vec<_> = collected
        .names
        .iter()
        .map(|name| {
            (
                &name.name[..],
                name.count(),
                name.total,
                name.busy,
                name.in_children,
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            ("shop:request", 1, 200, 90, 80),
            ("shop:query", 2, 100, 10, 0)
        ]
    );
    let [child] = &collected.names[0].children[..] else {
        panic!("{:?}", collected.names[0])
    };
    assert_eq!((child.name, child.count, child.total), (1, 2, 100));
}

/// Ids are used again, ends are lost, parents are unknown, a span names itself, and two processes
/// have the same ids: each span is in the tree where it belongs.
///
/// Requirements: B1, E8
#[test]
fn hostile_and_incomplete_traces_give_trees() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    // Id 1 is reused after its end; then its end is lost, while it has a child.
    trace.request((100, 51), [1, 0], "/first");
    trace.close((110, 51), true, 1);
    trace.request((120, 51), [1, 0], "/lost");
    trace.query((130, 51), [2, 1], "t");
    trace.request((150, 51), [1, 0], "/again");
    // The child of the lost one is not the new one's.
    trace.close((160, 51), false, 2);
    // Its parent is itself, which was another span before.
    trace.query((170, 51), [5, 5], "itself");
    trace.close((175, 51), false, 5);
    trace.query((180, 51), [6, 77], "unknown");
    trace.close((185, 51), false, 6);
    // A parent ends first, and a child of it is made later.
    trace.request((200, 51), [8, 0], "/parent");
    trace.query((210, 51), [9, 8], "outlives");
    trace.close((220, 51), true, 8);
    trace.query((225, 51), [10, 9], "inner");
    trace.close((230, 51), false, 10);
    trace.close((260, 51), false, 9);
    // None of these is a span.
    trace.request((270, 51), [0, 0], "/none");
    trace.enter((271, 51), true, 0);
    trace.exit((272, 51), true, 99);
    trace.message((273, 51), 0, "nowhere");
    trace.close((274, 51), true, 0);
    trace.close((275, 51), true, 98);
    trace.other((400, 51));
    trace.finish();
    let mut other = SpanTrace::create(directory.path(), 8);
    other.request((105, 61), [1, 0], "/other");
    other.close((500, 61), true, 1);
    other.finish();

    let collected = trees(directory.path(), 100);
    let mut found: Vec<_> = collected
        .trees
        .iter()
        .map(|tree| {
            let root = &tree.spans[0];
            (lines(tree), root.ending, root.is_orphan)
        })
        .collect();
    found.sort_by_key(|(lines, ..)| lines[0].clone());
    let line = |text: &str| text.to_owned();
    let expected = [
        (
            vec![line(
                "0 shop:query 170-175 busy 0 children 0 table = \"itself\"",
            )],
            Ending::Closed,
            true,
        ),
        (
            vec![line(
                "0 shop:query 180-185 busy 0 children 0 table = \"unknown\"",
            )],
            Ending::Closed,
            true,
        ),
        (
            vec![line(
                "0 shop:request 100-110 busy 0 children 0 path = \"/first\"",
            )],
            Ending::Closed,
            false,
        ),
        (
            vec![line(
                "0 shop:request 105-500 busy 0 children 0 path = \"/other\"",
            )],
            Ending::Closed,
            false,
        ),
        (
            vec![
                line("0 shop:request 120-150 busy 0 children 20 path = \"/lost\""),
                line("1 shop:query 130-160 busy 0 children 0 table = \"t\""),
            ],
            Ending::Replaced,
            false,
        ),
        (
            vec![line(
                "0 shop:request 150-400 busy 0 children 0 path = \"/again\"",
            )],
            Ending::Open,
            false,
        ),
        (
            vec![
                line("0 shop:request 200-220 busy 0 children 10 path = \"/parent\""),
                line("1 shop:query 210-260 busy 0 children 5 table = \"outlives\""),
                line("2 shop:query 225-230 busy 0 children 0 table = \"inner\""),
            ],
            Ending::Closed,
            false,
        ),
    ];
    assert_eq!(found, expected);
    assert_eq!(collected.left_out.unbegun, 1);
    let requests = collected
        .names
        .iter()
        .find(|name| name.name == "shop:request")
        .unwrap();
    assert_eq!((requests.count(), requests.unended), (3, 2));
    // Ids are unique, and the same when the trace is read again.
    let ids = |of: &Collected| {
        let spans = of.trees.iter().flat_map(|tree| &tree.spans);
        spans.map(|span| span.ids.to_string()).collect::<Vec<_>>()
    };
    let mut all = ids(&collected);
    assert_eq!(all, ids(&trees(directory.path(), 100)));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 10);
}

/// Conditions see the fields of `.new` and `.record`, the latest value first, contexts, and times.
///
/// Requirements: E8
#[test]
fn roots_are_chosen_by_condition_field_and_id() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    for n in 0..10u64 {
        let (begin, thread) = (1000 * n, 50 + n as u32);
        trace.request((begin, thread), [1, 0], &format!("/{n}"));
        trace.query((begin + 10, thread), [2, 1], &format!("t{n}"));
        trace.message((begin + 11, thread), 2, "deep");
        trace.close((begin + 20, thread), false, 2);
        trace.status((begin + 30, thread), 1, 100);
        trace.status((begin + 31, thread), 1, 200 + n as u16);
        trace.close((begin + 100 + n, thread), true, 1);
    }
    trace.finish();
    let paths = |options: Options| -> Vec<String> {
        let options = Options {
            keep: 100,
            ..options
        };
        let collected = collect(directory.path(), options);
        assert_eq!(collected.unknown_names, Vec::<String>::new());
        let trees = collected.trees.iter();
        trees
            .map(|tree| tree.spans[0].fields[0].texts()[0].clone())
            .collect()
    };
    let condition = |text: &str| Options {
        condition: Some(text.parse().unwrap()),
        ..Options::default()
    };
    for (text, expected) in [
        ("status == 203", vec!["path = \"/3\""]),
        ("status == 100", vec![]),
        ("path == \"/4\" && status >= 200", vec!["path = \"/4\""]),
        ("duration_ns >= 108", vec!["path = \"/9\"", "path = \"/8\""]),
        (
            "$ctx.vtid == 51 && name == \"shop:request\"",
            vec!["path = \"/1\""],
        ),
        ("$ctx.pid == 8", vec![]),
        ("idle_ns == 102 && busy_ns == 0", vec!["path = \"/2\""]),
    ] {
        assert_eq!(paths(condition(text)), expected, "{text}");
    }
    for (text, expected) in [
        ("table=t5", vec!["path = \"/5\""]),
        ("status=206", vec!["path = \"/6\""]),
        ("status=0xcf", vec!["path = \"/7\""]),
        ("table=t", vec![]),
        ("nothing=1", vec![]),
    ] {
        let options = Options {
            field: Some(text.parse().unwrap()),
            ..Options::default()
        };
        assert_eq!(paths(options), expected, "{text}");
    }
    assert_eq!(
        collect(
            directory.path(),
            Options {
                field: Some("message=deep".parse().unwrap()),
                keep: 3,
                ..Options::default()
            }
        )
        .left_out
        .trees,
        7
    );
    // The numbers have only the chosen ones, with all their children.
    let numbers = collect(directory.path(), condition("path == \"/4\""));
    assert_eq!(
        (
            numbers.names[0].count(),
            numbers.names[0].total,
            numbers.names[0].in_children
        ),
        (1, 104, 10)
    );
    let unknown = collect(directory.path(), condition("no_such > 1 || status == 1"));
    assert_eq!(
        unknown.unknown_names.len(),
        1,
        "{:?}",
        unknown.unknown_names
    );
    // Queries as roots.
    let patterns = usertrace_reader::Patterns::new(&["query".to_owned()]).unwrap();
    let collected = collect(
        directory.path(),
        Options {
            roots: Some(patterns),
            keep: 100,
            ..Options::default()
        },
    );
    assert_eq!(collected.trees.len(), 10);
    assert!(
        collected
            .trees
            .iter()
            .all(|tree| tree.spans.len() == 1 && !tree.spans[0].is_orphan)
    );
}

/// What is kept is bounded, whatever a trace has: the slowest roots stay, and a huge tree is cut.
///
/// Requirements: E8
#[test]
fn memory_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    for n in 0..1000u64 {
        let length = n.wrapping_mul(7919) % 1000;
        trace.request((2000 * n, 51), [1, 0], "/");
        trace.close((2000 * n + length, 51), true, 1);
    }
    let mut time = 3_000_000;
    trace.request((time, 51), [1, 0], "/huge");
    for _ in 0..30_000 {
        time += 1;
        trace.query((time, 51), [2, 1], "t");
        trace.enter((time, 51), false, 2);
        trace.message((time, 51), 2, "x");
        trace.exit((time, 51), false, 2);
        trace.close((time, 51), false, 2);
    }
    trace.close((time, 51), true, 1);
    trace.finish();
    let collected = trees(directory.path(), 5);
    let durations: Vec<_> = collected.trees.iter().map(Tree::duration).collect();
    assert_eq!(durations, [30_000, 999, 998, 997, 996]);
    assert_eq!(collected.left_out.trees, 996);
    let huge = &collected.trees[0];
    assert_eq!(huge.spans.len(), 10_000);
    // The rest: spans, an event and a thread each.
    assert_eq!(huge.left_out, 3 * 20_001);
    let queries = &collected
        .names
        .iter()
        .find(|name| name.name == "shop:query")
        .unwrap();
    assert_eq!(queries.count(), 30_000);
}

/// A span of the model.
#[derive(Clone, Debug)]
struct Model {
    id: u64,
    parent: Option<usize>,
    is_request: bool,
    begin: i64,
    end: Option<i64>,
    is_closed: bool,
    stays: Vec<(u32, i64, Option<i64>)>,
}

/// The length of the union of some periods.
fn union(mut periods: Vec<(i64, i64)>) -> i64 {
    periods.sort_unstable();
    let (mut sum, mut until) = (0, i64::MIN);
    for (begin, end) in periods {
        sum += (end - begin.max(until)).max(0);
        until = until.max(end);
    }
    sum
}

#[derive(Clone, Debug)]
enum Step {
    New(u64, u64, bool),
    Enter(u64),
    Exit(u64),
    Close(u64),
}

fn steps() -> impl Strategy<Value = Vec<(Step, u32, u64)>> {
    let id = || 1..7u64;
    let step = prop_oneof![
        2 => (id(), 0..7u64, any::<bool>()).prop_map(|(id, parent, of)| Step::New(id, parent, of)),
        3 => id().prop_map(Step::Enter),
        3 => id().prop_map(Step::Exit),
        2 => id().prop_map(Step::Close),
    ];
    prop::collection::vec((step, 51..54u32, 0..5u64), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any order of events gives the spans, times and numbers of a model that keeps everything.
    ///
    /// Requirements: B1, E8
    #[test]
    fn trees_are_those_of_a_model(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let mut trace = SpanTrace::create(directory.path(), 7);
        let mut all: Vec<Model> = Vec::new();
        let mut open: HashMap<u64, usize> = HashMap::new();
        let mut now = 0i64;
        for (step, thread, by) in &steps {
            now += by.cast_signed();
            let at = (now.cast_unsigned(), *thread);
            match *step {
                Step::New(id, parent, is_request) => {
                    match is_request {
                        true => trace.request(at, [id, parent], "/"),
                        false => trace.query(at, [id, parent], "t"),
                    }
                    if let Some(before) = open.remove(&id) {
                        all[before].end = Some(now);
                    }
                    let parent = open.get(&parent).copied();
                    open.insert(id, all.len());
                    all.push(Model { id, parent, is_request, begin: now, end: None, is_closed: false, stays: Vec::new() });
                }
                Step::Enter(id) => {
                    let Some(&of) = open.get(&id) else { continue };
                    trace.enter(at, all[of].is_request, id);
                    all[of].stays.push((*thread, now, None));
                }
                Step::Exit(id) => {
                    let Some(&of) = open.get(&id) else { continue };
                    // A thread leaves what it is in.
                    let stay = all[of].stays.iter_mut().rfind(|(of, _, end)| of == thread && end.is_none());
                    let Some(stay) = stay else { continue };
                    stay.2 = Some(now);
                    trace.exit(at, all[of].is_request, id);
                }
                Step::Close(id) => {
                    let Some(of) = open.remove(&id) else { continue };
                    trace.close(at, all[of].is_request, id);
                    (all[of].end, all[of].is_closed) = (Some(now), true);
                }
            }
        }
        now += 1;
        trace.other((now.cast_unsigned(), 51));
        trace.finish();

        let end = |span: &Model| span.end.unwrap_or(now);
        let mut expected = BTreeMap::new();
        let mut totals: BTreeMap<bool, (u64, u128, u128, u128)> = BTreeMap::new();
        for (index, span) in all.iter().enumerate() {
            let own_end = end(span);
            let stays = span.stays.iter().map(|&(_, begin, stay)| (begin, stay.unwrap_or(own_end)));
            let busy = union(stays.collect());
            let children = all.iter().filter(|child| child.parent == Some(index));
            let children = children.map(|child| (child.begin, end(child).min(own_end)));
            let in_children = union(children.collect());
            let mut root = index;
            while let Some(parent) = all[root].parent {
                root = parent;
            }
            let place = (span.begin, span.id, all[root].begin, all[root].id, index);
            expected.insert(place, (own_end, busy, in_children, span.is_closed));
            if span.is_closed {
                let of = totals.entry(span.is_request).or_default();
                let sum = |ns: i64| u128::from(ns.cast_unsigned());
                *of = (of.0 + 1, of.1 + sum(own_end - span.begin), of.2 + sum(busy), of.3 + sum(in_children));
            }
        }
        let collected = trees(directory.path(), 1000);
        let mut found: Vec<_> = collected.trees.iter().flat_map(|tree| {
            let root = &tree.spans[0];
            tree.spans.iter().map(move |span| (
                (span.begin - START, span.own_id, root.begin - START, root.own_id),
                (span.end - START, span.busy, span.in_children, span.ending == Ending::Closed),
            ))
        }).collect();
        found.sort();
        let mut expected: Vec<_> = expected.into_iter()
            .map(|((begin, id, root, root_id, _), values)| ((begin, id, root, root_id), values)).collect();
        expected.sort();
        prop_assert_eq!(found, expected);
        for (is_request, numbers) in totals {
            let name = if is_request { "shop:request" } else { "shop:query" };
            let name = collected.names.iter().find(|known| known.name == name).unwrap();
            prop_assert_eq!((name.count(), name.total, name.busy, name.in_children), numbers);
            let of_children: u128 = name.children.iter().map(|child| child.total).sum();
            prop_assert!(of_children >= name.in_children);
        }
    }
}
