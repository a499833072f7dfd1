//! Costs of one event of a number and a text of 20 bytes, in turns: ours, by `event!` and by the
//! layer of `tracing`, and those of other crates. None of them writes to a disk.
//!
//! - `fastrace`: an event with two properties, in a local span; a reporter drops it.
//! - `tracing-chrome`: the same event as our layer's; a thread of its own formats it, to nowhere.
//! - `tracy-client`: a message, and the number as its colour. No profiler is connected, so the
//!   client keeps it in memory.
//! - `perfetto-sdk`: an instant event with two arguments; its service keeps the last ones in
//!   memory.

#[path = "../../benches/event/contest.rs"]
#[allow(dead_code, reason = "not all of the benchmark is here")]
mod contest;
#[path = "../../benches/event/floor.rs"]
mod floor;
#[path = "../../benches/event/ours.rs"]
#[allow(dead_code, reason = "not all of the benchmark is here")]
mod ours;
mod perfetto;

use std::borrow::Cow;
use std::hint::black_box;
use std::io;

use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use fastrace::local::LocalSpan;
use fastrace::{Event, Span};
use tracing::Dispatch;
use tracing::dispatcher::with_default;
use tracing_subscriber::prelude::*;
use tracy_client::Client;
use usertrace_bench::{median, quantile, ratios};

use self::contest::{Contestant, contest};
use self::floor::Floors;
use self::ours::Ours;

const TEXT: &str = "twenty bytes of text";
/// Events in a batch.
const BATCH: u64 = 8192;
/// Events of one span of `fastrace`, which keeps a limited number for each.
const OF_SPAN: u64 = 512;
const ROUNDS: usize = 101;

/// Drops what it gets.
struct Nowhere;

impl Reporter for Nowhere {
    fn report(&mut self, _: Vec<SpanRecord>) {}
}

#[inline(never)]
fn by_tracing(count: u64) {
    for n in 0..count {
        tracing::info!(n = black_box(n), text = black_box(TEXT));
    }
}

#[inline(never)]
fn by_fastrace(count: u64) {
    let mut left = count;
    while left > 0 {
        let some = left.min(OF_SPAN);
        let root = Span::root("batch", SpanContext::random());
        let _parent = root.set_local_parent();
        for n in 0..some {
            LocalSpan::add_event(Event::new("layer").with_properties(|| {
                [
                    ("n", Cow::from(black_box(n).to_string())),
                    ("text", Cow::from(TEXT)),
                ]
            }));
        }
        left -= some;
    }
}

#[inline(never)]
fn by_tracy(client: &Client, count: u64) {
    for n in 0..count {
        client.color_message(TEXT, black_box(n) as u32, 0);
    }
}

fn main() {
    let ours = Ours::attach();
    let floors = Floors::new();
    fastrace::set_reporter(Nowhere, Config::default());
    let client = Client::start();
    let mut session = perfetto::start();
    let layer = tracing_subscriber::registry().with(usertrace_tracing::Layer::new());
    let layer = Dispatch::new(layer);
    let (chrome, _guard) = tracing_chrome::ChromeLayerBuilder::new()
        .writer(io::sink())
        .include_args(true)
        .build();
    let chrome = Dispatch::new(tracing_subscriber::registry().with(chrome));

    let contestants = [
        // SAFETY: there is one thread.
        Contestant::new(BATCH, |thread| unsafe { floors.events::<4>(thread, BATCH) }),
        // Twice: the noise of the machine.
        // SAFETY: there is one thread.
        Contestant::new(BATCH, |thread| unsafe { floors.events::<4>(thread, BATCH) }),
        Contestant::new(BATCH, |_| ours::layer(BATCH)).prepared(|| ours.read()),
        Contestant::new(BATCH, |_| with_default(&layer, || by_tracing(BATCH)))
            .prepared(|| ours.read()),
        Contestant::new(BATCH, |_| by_fastrace(BATCH)).prepared(fastrace::flush),
        Contestant::new(BATCH, |_| with_default(&chrome, || by_tracing(BATCH))),
        Contestant::new(BATCH, |_| by_tracy(&client, BATCH)),
        Contestant::new(BATCH, |_| perfetto::events(BATCH)),
    ];
    let names = [
        "floor",
        "floor, once more",
        "usertrace, event!",
        "usertrace, layer of tracing",
        "fastrace",
        "tracing-chrome",
        "tracy-client",
        "perfetto-sdk",
    ];
    let times = contest(&contestants, 1, ROUNDS);
    println!("| who | ns (quartiles) | in floors | in event!s |\n|---|---|---|---|");
    for (name, ns) in names.iter().zip(&times) {
        println!(
            "| {name} | {:.1} ({:.1}–{:.1}) | {:.2} | {:.2} |",
            median(ns),
            quantile(ns, 0.25),
            quantile(ns, 0.75),
            median(&ratios(ns, &times[0])),
            median(&ratios(ns, &times[2])),
        );
    }
    session.stop_blocking();
    assert_eq!(ours.lost(), 0, "our rings were large enough");
}
