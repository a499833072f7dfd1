//! Spans, and events in them.

use std::collections::HashMap;

use tracing::field::Empty;
use tracing::{Span, info, info_span};

use crate::traced::{Traced, field, line};

/// The id of a span.
fn id(span: &Span) -> u64 {
    span.id().unwrap().into_u64()
}

pub(crate) fn life_of_a_span_is_recorded() {
    let traced = Traced::started();
    let first = info_span!("first", n = 7u64, later = Empty);
    let second = tracing::debug_span!(target: "shop::orders", "second one");
    second.follows_from(&first);
    first.record("later", "now");
    first.record("later", 8u64);
    first.in_scope(|| info!(name: "inside", x = true));
    info!(name: "outside", x = true);
    let ids = [id(&first), id(&second)];
    drop(second);
    drop(first);
    let [a, b] = ids;
    assert_eq!(
        traced.lines(),
        [
            format!("layer.spans:first.new 6 span={a} parent=0 n=7"),
            format!("shop.orders:second_one.new 7 span={b} parent=0"),
            format!("shop.orders:second_one.follows 7 span={b} follows={a}"),
            format!("layer.spans:first.record 6 span={a} later=\"now\""),
            format!("layer.spans:first.record 6 span={a} later=8"),
            format!("layer.spans:first.enter 6 span={a}"),
            format!("layer.spans:inside 6 span={a} x=true"),
            format!("layer.spans:first.exit 6 span={a}"),
            "layer.spans:outside 6 span=0 x=true".into(),
            format!("shop.orders:second_one.close 7 span={b}"),
            format!("layer.spans:first.close 6 span={a}"),
        ]
    );
}

pub(crate) fn nested_spans() {
    let traced = Traced::started();
    let outer = info_span!("outer").entered();
    let inner = info_span!("inner").entered();
    info!(name: "deep", x = 1u64);
    let [a, b] = [id(&outer), id(&inner)];
    drop(inner);
    info!(name: "shallow", x = 1u64);
    drop(outer);
    assert_eq!(
        traced.lines(),
        [
            format!("layer.spans:outer.new 6 span={a} parent=0"),
            format!("layer.spans:outer.enter 6 span={a}"),
            format!("layer.spans:inner.new 6 span={b} parent={a}"),
            format!("layer.spans:inner.enter 6 span={b}"),
            format!("layer.spans:deep 6 span={b} x=1"),
            format!("layer.spans:inner.exit 6 span={b}"),
            format!("layer.spans:inner.close 6 span={b}"),
            format!("layer.spans:shallow 6 span={a} x=1"),
            format!("layer.spans:outer.exit 6 span={a}"),
            format!("layer.spans:outer.close 6 span={a}"),
        ]
    );
}

pub(crate) fn chosen_parents() {
    let traced = Traced::started();
    let first = info_span!("first");
    let current = info_span!("current").entered();
    let child = info_span!(parent: &first, "child");
    let root = info_span!(parent: None, "root");
    info!(name: "of_first", parent: &first, x = 1u64);
    info!(name: "of_none", parent: None, x = 1u64);
    let [a, b, c, d] = [id(&first), id(&current), id(&child), id(&root)];
    assert_eq!(
        traced.lines(),
        [
            format!("layer.spans:first.new 6 span={a} parent=0"),
            format!("layer.spans:current.new 6 span={b} parent=0"),
            format!("layer.spans:current.enter 6 span={b}"),
            format!("layer.spans:child.new 6 span={c} parent={a}"),
            format!("layer.spans:root.new 6 span={d} parent=0"),
            format!("layer.spans:of_first 6 span={a} x=1"),
            "layer.spans:of_none 6 span=0 x=1".into(),
        ]
    );
}

pub(crate) fn several_threads() {
    const THREADS: u64 = 4;
    const TURNS: u64 = 500;
    let traced = Traced::started();
    let barrier = std::sync::Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let barrier = &barrier;
            scope.spawn(move || {
                // All threads reach the call sites at the same time.
                barrier.wait();
                for n in 0..TURNS {
                    let _turn = info_span!("turn", thread).entered();
                    info!(name: "n", thread, n);
                }
            });
        }
    });
    let mut threads_of_spans = HashMap::new();
    let mut turns = vec![0; THREADS as usize];
    for seen in traced.seen(0) {
        let span = field(&seen, "span");
        match seen.event.name.as_str() {
            "layer.spans:turn.new" => {
                let before = threads_of_spans.insert(span, field(&seen, "thread"));
                assert_eq!(before, None, "{}", line(&seen));
            }
            "layer.spans:n" => {
                let thread = field(&seen, "thread");
                assert_eq!(threads_of_spans[&span], thread);
                let turn: &mut u64 = &mut turns[thread.parse::<usize>().unwrap()];
                assert_eq!(field(&seen, "n"), turn.to_string());
                *turn += 1;
            }
            "layer.spans:turn.close" => drop(threads_of_spans.remove(&span).unwrap()),
            "layer.spans:turn.enter" | "layer.spans:turn.exit" => {
                assert!(threads_of_spans.contains_key(&span));
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(turns, [TURNS; THREADS as usize]);
    assert!(threads_of_spans.is_empty());
}
