//! Costs of one event, compared with LTTng-UST and with the floor: the time stamp and the same
//! stores, into a ring of the same size.
//!
//! Machines are noisy, and in a virtual machine most of the floor is the time stamp. So all
//! contestants take turns in one process, and the results are medians of ratios of batches that ran
//! next to each other (`contest.rs`). Criterion measures the main events once more, alone, to
//! compare builds.
//!
//! With `USERTRACE_BENCH_CRITERION`, only Criterion measures. With `USERTRACE_BENCH_OUT=DIRECTORY`,
//! as `scripts/bench` runs it, the results are written to `events.json` in that directory.

mod c;
mod contest;
mod contexts;
mod counted;
mod fallback;
mod floor;
mod idle;
mod layer;
mod ours;

use std::path::PathBuf;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use usertrace_bench::{EventWriter, Events, Noise, Rows, median, quantile, ratios};

use self::contest::{Contestant, contest, pin, timed};
use self::contexts::InContext;
use self::counted::Counting;
use self::floor::Floors;
use self::ours::{Ours, RING_SIZE};
use usertrace_bench::lttng::{self, Lttng, SESSIONS};

/// Number of rounds.
const ROUNDS: usize = 201;
/// Processes that write through fresh buffers.
const FRESH: usize = 21;
/// Bytes of records in a batch: a quarter of a ring, so that a reader has time.
const BATCH_BYTES: u64 = RING_SIZE as u64 / 4;

/// Bytes of the longest record with contexts.
const LONGEST: u64 = 256;

/// One kind of event.
struct Kind {
    name: &'static str,
    /// The provider's name for it.
    lttng: &'static str,
    /// How long our record is.
    len: u64,
    ours: fn(u64),
    /// # Safety
    /// As [`Floors::events`]'s.
    floor: unsafe fn(&Floors, usize, u64),
}

impl Kind {
    fn batch(&self) -> u64 {
        BATCH_BYTES / self.len
    }
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "0 bytes",
        lttng: "empty",
        len: 8,
        ours: ours::empty,
        floor: Floors::events::<0>,
    },
    Kind {
        name: "4 bytes",
        lttng: "number",
        len: 16,
        ours: ours::number,
        floor: Floors::events::<1>,
    },
    Kind {
        name: "32 bytes",
        lttng: "numbers",
        len: 40,
        ours: ours::numbers,
        floor: Floors::events::<4>,
    },
    Kind {
        name: "256 bytes",
        lttng: "block",
        len: 264,
        ours: ours::block,
        floor: Floors::events::<32>,
    },
    Kind {
        name: "4 bytes and a text of 20",
        lttng: "text",
        len: 40,
        ours: ours::text,
        floor: Floors::events::<4>,
    },
];

/// The kind of event that the targets are for.
const MAIN: &Kind = &KINDS[2];

fn main() {
    // `cargo test --benches` only checks that it runs.
    let rounds = if std::env::args().any(|arg| arg == "--test") {
        1
    } else {
        ROUNDS
    };
    if fallback::is_child(rounds) {
        return;
    }
    if std::env::var_os("USERTRACE_BENCH_CRITERION").is_some() {
        let lttng = Lttng::load();
        criterion(&Ours::attach(), &Floors::new(), lttng.as_ref());
        return;
    }
    let lttng = Lttng::load();
    let ours = Ours::attach();
    let floors = Floors::new();

    let mut events = Events {
        noise: noise(&floors, rounds),
        ..Events::default()
    };
    let rows = &mut Rows::default();
    let parts = Parts::asked();
    if parts.wants("sizes") {
        match &lttng {
            Some(lttng) => measure_beside_lttng(rows, &ours, &floors, lttng, rounds),
            None => measure_alone(rows, &ours, &floors, rounds),
        }
    }
    if parts.wants("three") {
        eprintln!("three traces");
        three(rows, &ours, &floors, lttng.as_ref(), rounds);
    }
    if parts.wants("counted") {
        eprintln!("events that are counted");
        counted::measure(rows, &ours, &floors, rounds);
    }
    if parts.wants("c") {
        eprintln!("events in C");
        c::measure(rows, &ours, &floors, rounds);
    }
    if parts.wants("layer") {
        eprintln!("the layer of tracing");
        layer::measure(rows, &ours, &floors, rounds);
    }
    if parts.wants("idle") {
        eprintln!("events that no trace wants");
        events.idle = Some(idle::measure(&ours, lttng.as_ref(), rounds));
    }
    events.events = std::mem::take(rows).into_events();
    if parts.wants("fallback") {
        eprintln!("the fallback");
        fallback::measure(&mut events.events);
    }
    if parts.wants("first") {
        let fresh = if rounds == 1 { 1 } else { FRESH };
        events.first = Some(fallback::first(fresh, ""));
        events.first_prefault = Some(fallback::first(fresh, "all"));
    }
    assert_eq!(ours.lost(), 0, "our rings were large enough");

    if parts.are_all() {
        criterion(&ours, &floors, lttng.as_ref());
    }
    say(&events);
    if let Some(directory) = std::env::var_os("USERTRACE_BENCH_OUT") {
        let path = PathBuf::from(directory).join("events.json");
        let text = serde_json::to_string_pretty(&events).expect("plain data");
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

/// The parts of the measurement, in order.
const PARTS: [&str; 8] = [
    "sizes", "three", "counted", "c", "layer", "idle", "fallback", "first",
];

/// The parts that were asked for.
struct Parts(Option<Vec<String>>);

impl Parts {
    /// From `USERTRACE_BENCH_PARTS`, names separated by blanks. All parts if it is not set.
    fn asked() -> Self {
        Self(std::env::var("USERTRACE_BENCH_PARTS").ok().map(|asked| {
            let asked: Vec<_> = asked.split_whitespace().map(str::to_owned).collect();
            for part in &asked {
                assert!(
                    PARTS.contains(&part.as_str()),
                    "there is no part {part:?}; parts: {}",
                    PARTS.join(" ")
                );
            }
            asked
        }))
    }

    fn wants(&self, part: &str) -> bool {
        debug_assert!(PARTS.contains(&part));
        let asked = self.0.as_ref();
        asked.is_none_or(|asked| asked.iter().any(|asked| asked == part))
    }

    fn are_all(&self) -> bool {
        self.0.is_none()
    }
}

/// The noise of the machine: the floor beside itself.
fn noise(floors: &Floors, rounds: usize) -> Vec<Noise> {
    let of = |threads| {
        let times = contest(&[floor(floors, MAIN), floor(floors, MAIN)], threads, rounds);
        let same = ratios(&times[1], &times[0]);
        Noise {
            threads,
            same: median(&same),
            same_quartiles: [quantile(&same, 0.25), quantile(&same, 0.75)],
            spread: quantile(&times[0], 0.9) / quantile(&times[0], 0.1),
        }
    };
    let noise = Vec::from([1, 2].map(of));
    noise
        .iter()
        .for_each(|noise| eprintln!("{}", noise_line(noise)));
    noise
}

fn noise_line(noise: &Noise) -> String {
    let [low, high] = noise.same_quartiles;
    format!(
        "noise, {} threads: the floor is {:.2} floors (quartiles {low:.2} to {high:.2}); its \
         slowest tenth takes {:.2} times as long as its fastest",
        noise.threads, noise.same, noise.spread
    )
}

/// Our events, in turns with LTTng-UST in each of its configurations.
fn measure_beside_lttng(
    rows: &mut Rows,
    ours: &Ours,
    floors: &Floors,
    lttng: &Lttng,
    rounds: usize,
) {
    for session in SESSIONS {
        eprintln!("beside LTTng-UST, {}", session.title);
        let started = session.start(&lttng::output(), 0);
        for kind in &KINDS {
            for threads in [1, 2] {
                let loop_ = lttng.events(kind.lttng);
                let batch = kind.batch();
                let other = Contestant::new(batch, move |_| loop_(batch)).prepared(lttng::rest);
                let others = vec![(session.title.to_string(), other)];
                measure(rows, ours, floors, kind, threads, rounds, others);
                started.clear();
            }
        }
        note_lost(&started, session.title);
    }
}

/// Our events, where there is no LTTng-UST.
fn measure_alone(rows: &mut Rows, ours: &Ours, floors: &Floors, rounds: usize) {
    for kind in &KINDS {
        for threads in [1, 2] {
            measure(rows, ours, floors, kind, threads, rounds, Vec::new());
        }
    }
}

/// The floor of a kind.
fn floor<'a>(floors: &'a Floors, kind: &'a Kind) -> Contestant<'a> {
    let batch = kind.batch();
    // SAFETY: a contestant's batches have different threads.
    Contestant::new(batch, move |thread| unsafe {
        (kind.floor)(floors, thread, batch)
    })
}

/// Our events of a kind.
fn our<'a>(ours: &'a Ours, kind: &'a Kind) -> Contestant<'a> {
    let batch = kind.batch();
    Contestant::new(batch, move |_| (kind.ours)(batch)).prepared(|| ours.read())
}

/// The floor, ours, and others, in turns.
fn measure<'a>(
    rows: &mut Rows,
    ours: &'a Ours,
    floors: &'a Floors,
    kind: &'a Kind,
    threads: usize,
    rounds: usize,
    others: Vec<(String, Contestant<'a>)>,
) {
    let mut names = vec![
        (EventWriter::Floor, String::new()),
        (EventWriter::Usertrace, "per-CPU ring".to_string()),
    ];
    let mut contestants = vec![floor(floors, kind), our(ours, kind)];
    for (name, contestant) in others {
        names.push((EventWriter::Lttng, name));
        contestants.push(contestant);
    }
    let times = contest(&contestants, threads, rounds);
    rows.add(names, kind.name, threads, &times);
}

/// Each event into three traces.
fn three(rows: &mut Rows, ours: &Ours, floors: &Floors, lttng: Option<&Lttng>, rounds: usize) {
    let batch = MAIN.batch();
    let sessions: Vec<_> = lttng
        .into_iter()
        .flat_map(|_| (0..ours::TRACES).map(|copy| SESSIONS[0].start(&lttng::output(), copy)))
        .collect();
    ours.trace(ours::TRACES);
    let mut names = vec![
        (EventWriter::Floor, String::new()),
        (
            EventWriter::Usertrace,
            "per-CPU rings of three traces".to_string(),
        ),
    ];
    let mut contestants = vec![floor(floors, MAIN), our(ours, MAIN)];
    if let Some(lttng) = lttng {
        let loop_ = lttng.events(MAIN.lttng);
        names.push((
            EventWriter::Lttng,
            format!("{}, three sessions", SESSIONS[0].title),
        ));
        contestants.push(Contestant::new(batch, move |_| loop_(batch)).prepared(lttng::rest));
    }
    let times = contest(&contestants, 1, rounds);
    ours.trace(1);
    rows.add(names, MAIN.name, 1, &times);
    for session in &sessions {
        note_lost(session, "three sessions");
    }
}

fn note_lost(session: &lttng::Started, title: &str) {
    let lost = session.lost();
    if lost > 0 {
        eprintln!("LTTng-UST, {title}: lost {lost} events, which are cheaper than others");
    }
}

/// The main ones once more.
fn criterion(ours: &Ours, floors: &Floors, lttng: Option<&Lttng>) {
    pin(0);
    let mut criterion = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("event");
    group.throughput(Throughput::Elements(1));
    let mut bench = |name: String, contestant: Contestant<'_>, events: &dyn Fn(u64)| {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| {
                let (mut left, mut total) = (count, Duration::ZERO);
                while left > 0 {
                    let batch = left.min(contestant.events);
                    (contestant.prepare)();
                    total += timed(|| events(batch));
                    left -= batch;
                }
                total
            });
        });
    };
    for kind in &KINDS {
        // SAFETY: there is one thread.
        bench(
            format!("floor, {}", kind.name),
            floor(floors, kind),
            &|count| unsafe {
                (kind.floor)(floors, 0, count);
            },
        );
        bench(kind.name.into(), our(ours, kind), &kind.ours);
    }
    for name in contexts::NAMES {
        let in_context = InContext::new(ours, name);
        let batch = Contestant::new(BATCH_BYTES / LONGEST, |_| ());
        let batch = batch.prepared(|| in_context.read());
        bench(format!("{}, {name}", MAIN.name), batch, &contexts::events);
    }
    let counting = Counting::new(ours);
    for (name, events) in counted::WAYS {
        let batch = Contestant::new(MAIN.batch(), |_| ());
        bench(format!("{name}, 4 bytes"), batch, &events);
    }
    drop(counting);
    for (name, condition) in idle::REJECTED {
        let filter = format!("1 bench:rejected if {condition}");
        ours.filter(&filter);
        let batch = Contestant::new(MAIN.batch(), |_| ());
        bench(format!("{name}, {}", MAIN.name), batch, &ours::rejected);
    }
    ours.filter("1 bench:rejected if a != 0xffffffffff");
    let batch = Contestant::new(MAIN.batch(), |_| ()).prepared(|| ours.read());
    let name = format!("accepted by a condition, {}", MAIN.name);
    bench(name, batch, &ours::rejected);
    ours.filter("1");
    if let Some(lttng) = lttng {
        let session = SESSIONS[0].start(&lttng::output(), 0);
        let loop_ = lttng.events(MAIN.lttng);
        let nothing = Contestant::new(MAIN.batch(), |_| ());
        bench(format!("LTTng-UST, {}", MAIN.name), nothing, &|count| {
            loop_(count)
        });
        let loop_ = lttng.events("filtered");
        let nothing = Contestant::new(MAIN.batch(), |_| ());
        let name = format!("LTTng-UST, rejected by a filter, {}", MAIN.name);
        bench(name, nothing, &|count| loop_(count));
        drop(session);
    }
    group.finish();
}

fn say(events: &Events) {
    for noise in &events.noise {
        println!("{}", noise_line(noise));
    }
    for event in &events.events {
        println!(
            "{:?} {}, {}, {} threads: {:.1} ns, {:.2} floors, {:.2} of ours",
            event.who, event.how, event.payload, event.threads, event.ns, event.floors, event.ours
        );
    }
    for first in events.first.iter().chain(&events.first_prefault) {
        println!(
            "first lap {:.1} ns, later {:.1} ns: {:.2}",
            first.ns, first.later_ns, first.ratio
        );
    }
    println!("{:#?}", events.idle);
}
