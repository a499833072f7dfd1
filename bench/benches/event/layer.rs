//! The same event by `event!`, by `tracing` with our layer, and by `tracing`'s own formatting, to
//! nowhere.

use std::hint::black_box;
use std::io;

use tracing::Dispatch;
use tracing::dispatcher::with_default;
use tracing_subscriber::prelude::*;
use usertrace_bench::{EventWriter, Rows};

use super::contest::{Contestant, contest};
use super::floor::Floors;
use super::ours::{self, Ours};
use super::{Kind, floor, our};

/// Its records, with the span's id that the layer adds, are the longest.
const KIND: Kind = Kind {
    name: "8 bytes and a text of 20",
    lttng: "",
    len: 48,
    ours: ours::layer,
    floor: Floors::events::<4>,
};

#[inline(never)]
pub(crate) fn events(count: u64) {
    for n in 0..count {
        tracing::info!(n = black_box(n), text = black_box(ours::TEXT));
    }
}

/// Makes the layer the program's own, and writes through it. What does so later finds it there.
pub(crate) fn measure(rows: &mut Rows, ours: &Ours, floors: &Floors, rounds: usize) {
    // As in most programs. The other one is it for the time of a batch.
    tracing_subscriber::registry()
        .with(usertrace_tracing::Layer::new())
        .init();
    let formatter = tracing_subscriber::fmt().with_writer(io::sink).finish();
    let formatter = &Dispatch::new(formatter);
    let batch = KIND.batch();
    let turn = |events: fn(u64)| Contestant::new(batch, move |_| events(batch));
    let times = contest(
        &[
            floor(floors, &KIND),
            our(ours, &KIND),
            turn(events).prepared(|| ours.read()),
            turn(|count| tracing::info_span!("span").in_scope(|| events(count)))
                .prepared(|| ours.read()),
            Contestant::new(batch, |_| with_default(formatter, || events(batch))),
        ],
        1,
        rounds,
    );
    let names = [
        (EventWriter::Floor, ""),
        (EventWriter::Usertrace, "per-CPU ring"),
        (EventWriter::Usertrace, "layer of `tracing`"),
        (EventWriter::Usertrace, "layer of `tracing`, in a span"),
        (EventWriter::Tracing, "formatted to a sink"),
    ];
    let names = names.map(|(who, how)| (who, how.to_owned())).into();
    rows.add(names, KIND.name, 1, &times);
}
