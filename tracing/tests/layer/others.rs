//! Other layers, and other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::{Event, Subscriber, info, info_span, warn};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;
use usertrace::fake::process::{child, wait};

use crate::traced::{Traced, line};

/// Counts the events that it sees.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl<S: Subscriber> tracing_subscriber::Layer<S> for Counter {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn other_layers_see_all() {
    let traced = Traced::without_layer();
    let [below, above] = [Counter::default(), Counter::default()];
    tracing_subscriber::registry()
        .with(below.clone())
        // A filter of this layer does not affect the others.
        .with(usertrace_tracing::Layer::new().with_filter(LevelFilter::WARN))
        .with(above.clone())
        .init();
    let emit = || {
        info!(name: "i", x = 1u64);
        warn!(name: "w", x = 1u64);
    };
    emit();
    traced.start();
    emit();
    traced.stop();
    emit();
    assert_eq!(traced.lines(), ["layer.others:w 4 span=0 x=1"]);
    for counter in [below, above] {
        assert_eq!(counter.0.load(Ordering::Relaxed), 6);
    }
}

pub(crate) fn subscribers_have_their_own_spans() {
    let traced = Traced::without_layer();
    traced.start();
    let new = || tracing_subscriber::registry().with(usertrace_tracing::Layer::new());
    let [one, other] = [new(), new()].map(tracing::Dispatch::new);
    let told = |on: &tracing::Dispatch| {
        tracing::dispatcher::with_default(on, || {
            info!(name: "told", x = 1u64);
            info!(name: "told", x = 2u64);
        });
    };
    let span = tracing::dispatcher::with_default(&one, || info_span!("span").entered());
    let id = span.id().unwrap().into_u64();
    for on in [&one, &other, &one] {
        told(on);
    }
    drop(span);
    told(&one);
    let mut lines = traced.lines();
    lines.retain(|line| line.contains("told"));
    let expected: Vec<String> = [id, 0, id, 0]
        .iter()
        .flat_map(|id| [1, 2].map(|x| format!("layer.others:told 6 span={id} x={x}")))
        .collect();
    assert_eq!(lines, expected);
}

pub(crate) fn spans_that_are_kept_from_it() {
    let traced = Traced::without_layer();
    tracing_subscriber::registry()
        .with(usertrace_tracing::Layer::new().with_filter(LevelFilter::INFO))
        .with(Counter::default())
        .init();
    traced.start();
    let span = info_span!("span").entered();
    let emit = || info!(name: "told", x = 1u64);
    emit();
    let hidden = tracing::debug_span!("hidden").entered();
    emit();
    let deep = info_span!("deep").entered();
    emit();
    let ids = [&span, &span, &deep, &span, &span].map(|span| span.id().unwrap().into_u64());
    drop(deep);
    emit();
    drop(hidden);
    emit();
    let mut lines = traced.lines();
    assert!(
        lines[4].contains(&format!("deep.new 6 span={} parent={}", ids[2], ids[0])),
        "{lines:?}"
    );
    lines.retain(|line| line.contains("told"));
    let expected = ids.map(|id| format!("layer.others:told 6 span={id} x=1"));
    assert_eq!(lines, expected);
}

/// Requirements: A5
pub(crate) fn children_have_events_of_their_own() {
    let traced = Traced::started();
    let emit = |who: &str| info_span!("span", who).in_scope(|| info!(name: "told", who));
    emit("parent");
    let child = child(|| {
        emit("child");
        // A layout that the parent lacks.
        info!(name: "new", x = 1u64);
    });
    assert_eq!(wait(child), 0);
    emit("parent");
    let told = |process| -> Vec<String> {
        let seen = traced.seen(process);
        let mut told: Vec<_> = seen.iter().map(line).collect();
        told.retain(|line| line.contains("told") || line.contains("new 6 span=0"));
        told.iter()
            .map(|line| {
                line.split_once("who=")
                    .map_or(line.as_str(), |(_, who)| who)
            })
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(told(0), ["\"parent\"", "\"parent\""]);
    assert_eq!(told(1), ["\"child\"", "layer.others:new 6 span=0 x=1"]);
}
