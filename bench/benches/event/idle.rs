//! Events that no trace wants, beside a loop with one load, test and branch.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::Dispatch;
use tracing::dispatcher::with_default;
use usertrace::Callsite;
use usertrace::event;
use usertrace_bench::{Idle, median, quantile, ratios};

use super::contest::{Contestant, contest};
use super::layer;
use super::ours::{self, Ours};
use usertrace_bench::lttng::{self, Lttng, SESSIONS};

/// Some tenths of a millisecond: long beside what comes before it.
const BATCH: u64 = 1_000_000;

/// An event that no trace of the fake kernel's asks for: that one asks for all that are in the
/// section of the callsites, and this one is not.
mod filtered {
    use super::Callsite;

    pub(crate) static CALLSITE: Callsite = Callsite::new("bench", "filtered", "");

    #[inline(never)]
    pub(crate) fn record(_: u64, _: u64, _: u64, _: u64) -> usertrace::Outcome {
        unreachable!("no trace wants it")
    }
}

#[inline(never)]
fn filtered(count: u64) {
    for n in 0..count {
        let n = black_box(n);
        event!(filtered, n, n, n, n);
    }
}

/// The variable of the loop that an event is compared with. `measure` stores to it, or else the
/// compiler would remove the load.
#[repr(align(64))]
struct Wanted(AtomicU32);

static WANTED: [Wanted; 2] = [const { Wanted(AtomicU32::new(0)) }; 2];

#[inline(never)]
fn wanted(a: u64, b: u64, c: u64, d: u64) {
    black_box((a, b, c, d));
}

/// One of several loops that are alike.
#[inline(never)]
fn branch<const COPY: usize>(count: u64) {
    for n in 0..count {
        let n = black_box(n);
        if WANTED[COPY].0.load(Ordering::Relaxed) != 0 {
            wanted(n, n, n, n);
        }
    }
}

/// Conditions that reject all events, by name. The first is the filter of LTTng's session.
pub(crate) const REJECTED: [(&str, &str); 2] = [
    ("rejected by a condition", "a == 0xffffffffff"),
    (
        "rejected by a condition with a text",
        "b == 0xffffffffff || $ctx.procname == \"none\"",
    ),
];

/// Times of events that filters reject by their values: ours, the same by a slower condition, and
/// LTTng-UST's, if it is there.
fn rejected(ours: &Ours, lttng: Option<&Lttng>, rounds: usize) -> Vec<Vec<f64>> {
    let batch = BATCH / 50;
    let turn = |(_, condition): (&str, &'static str)| {
        let filter = format!("1 bench:rejected if {condition}");
        Contestant::new(batch, move |_| ours::rejected(batch))
            .prepared(move || ours.filter(&filter))
    };
    let mut contestants: Vec<_> = REJECTED.map(turn).into();
    let _session = lttng.map(|lttng| {
        let events = lttng.events("filtered");
        contestants.push(Contestant::new(batch, move |_| events(batch)));
        SESSIONS[0].start(&lttng::output(), 0)
    });
    let times = contest(&contestants, 1, rounds);
    ours.filter("1");
    times
}

pub(crate) fn measure(ours: &Ours, lttng: Option<&Lttng>, rounds: usize) -> Idle {
    for wanted in &WANTED {
        wanted.0.store(black_box(0), Ordering::Relaxed);
    }
    let turn = |events: fn(u64)| Contestant::new(BATCH, move |_| events(BATCH));
    // All are prepared alike: what comes before a batch is a part of what the processor finds.
    let off = || ours.trace(0);
    let on = || ours.trace(1);
    let registry = Dispatch::new(tracing_subscriber::registry());
    let mut contestants = vec![
        turn(branch::<0>).prepared(off),
        turn(branch::<1>).prepared(off),
        turn(ours::numbers).prepared(off),
        turn(filtered).prepared(on),
        turn(layer::events).prepared(off),
        Contestant::new(BATCH, |_| with_default(&registry, || layer::events(BATCH))).prepared(off),
    ];
    if let Some(lttng) = lttng {
        let numbers = lttng.events("numbers");
        contestants.push(Contestant::new(BATCH, move |_| numbers(BATCH)).prepared(off));
    }
    let times = contest(&contestants, 1, rounds);
    ours.trace(1);
    let rejected = rejected(ours, lttng, rounds);
    let same = ratios(&times[1], &times[0]);
    Idle {
        branch_ns: median(&times[0]),
        same_ns: median(&times[1]),
        disabled_ns: median(&times[2]),
        filtered_ns: median(&times[3]),
        lttng_disabled_ns: times.get(6).map(|times| median(times)),
        rejected_ns: Some(median(&rejected[0])),
        rejected_text_ns: Some(median(&rejected[1])),
        lttng_filtered_ns: rejected.get(2).map(|times| median(times)),
        tracing_ns: Some(median(&times[5])),
        tracing_layer_ns: Some(median(&times[4])),
        same: median(&same),
        same_quartiles: [quantile(&same, 0.25), quantile(&same, 0.75)],
        disabled: median(&ratios(&times[2], &times[0])),
        filtered: median(&ratios(&times[3], &times[0])),
    }
}
