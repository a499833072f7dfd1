//! Events and their fields.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::field::Empty;
use tracing::{Level, debug, error, event, info, trace, warn};
use tracing_core::Metadata;

use crate::traced::{Traced, line};

/// Requirements: B1
pub(crate) fn events_have_their_fields() {
    let traced = Traced::started();
    for n in 0..3u32 {
        info!(n, path = "/index.html", "served");
    }
    let place = line!() - 2;
    let expected: Vec<String> = (0..3)
        .map(|n| {
            format!(
                "layer.events:events.rs-{place} 6 span=0 message=\"served\" n={n} path=\"/index.html\""
            )
        })
        .collect();
    assert_eq!(traced.lines(), expected);
}

/// A value with its own format.
struct Shown;

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a\"b")?;
        f.write_str("\0c")?;
        f.write_str("d")
    }
}

pub(crate) fn values_of_all_types() {
    let traced = Traced::started();
    info!(name: "numbers", a = -1i8, b = i64::MIN, c = u64::MAX, d = 7u8, e = 1.5f64, f = 0.1f32, g = true, h = false);
    info!(name: "large", a = i128::MIN, b = u128::MAX);
    let error = std::io::Error::from_raw_os_error(libc::ENOENT);
    info!(name: "texts", a = "x\u{fc}", b = String::from("y"), c = ?Some(1), d = %"shown", e = ?Shown, "{}-{:>3}", 1, 2);
    info!(name: "errors", error = &error as &(dyn std::error::Error + 'static));
    info!(name: "bytes", bytes = &b"ab"[..]);
    info!(name: "ends", a = "one\0two", b = ?format_args!("x{}y{}z", "1\u{0}2", 3), c = 9u64);
    info!(name: "absent", a = Empty, b = None::<u32>, c = Some(3u32));
    info!(name: "words", r#type = 1u64, http.method = "GET", "quoted name" = 2u64);
    assert_eq!(
        traced.lines(),
        [
            format!(
                "layer.events:numbers 6 span=0 a=-1 b={} c={} d=7 e=1.5 f={:?} g=true h=false",
                i64::MIN,
                u64::MAX,
                f64::from(0.1f32),
            ),
            format!(
                "layer.events:large 6 span=0 a=\"{}\" b=\"{}\"",
                i128::MIN,
                u128::MAX
            ),
            "layer.events:texts 6 span=0 message=\"1-  2\" a=\"x\u{fc}\" b=\"y\" c=\"Some(1)\" d=\"shown\" e=\"a\\\"b\"".into(),
            format!("layer.events:errors 6 span=0 error=\"{error}\""),
            "layer.events:bytes 6 span=0 bytes=\"[61 62]\"".into(),
            "layer.events:ends 6 span=0 a=\"one\" b=\"x1\" c=9".into(),
            "layer.events:absent 6 span=0 c=3".into(),
            "layer.events:words 6 span=0 type=1 http_method=\"GET\" quoted_name=2".into(),
        ]
    );
}

pub(crate) fn types_may_change() {
    let traced = Traced::started();
    let emit = |value: &dyn tracing::Value| info!(name: "changing", value);
    for _ in 0..2 {
        emit(&1u64);
        emit(&-1i64);
        emit(&"one");
        emit(&Empty);
    }
    let once = ["value=1", "value=-1", "value=\"one\"", ""];
    let expected: Vec<String> = once
        .iter()
        .cycle()
        .take(8)
        .map(|value| {
            format!("layer.events:changing 6 span=0 {value}")
                .trim_end()
                .into()
        })
        .collect();
    assert_eq!(traced.lines(), expected);
    assert_eq!(traced.described("layer.events:changing"), once.len());
}

/// Each event is recorded, even if several threads find a new layout at once.
pub(crate) fn types_that_several_threads_bring() {
    const THREADS: usize = 4;
    let traced = Traced::started();
    let values: [&(dyn tracing::Value + Sync); 4] = [&1u64, &-1i64, &true, &"one"];
    let barrier = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..16 {
                    barrier.wait();
                    info!(name: "brought", a = values[n / 4] as &dyn tracing::Value, b = values[n % 4] as &dyn tracing::Value);
                }
            });
        }
    });
    let lines = traced.lines();
    assert_eq!(lines.len(), 16 * THREADS);
    for of_one in lines.chunks(THREADS) {
        assert!(of_one.iter().all(|line| *line == of_one[0]), "{of_one:?}");
    }
}

mod elsewhere {
    pub(super) fn with_a_target() {
        tracing::info!(target: "shop::orders/new", "x");
    }
    pub(super) const LINE: u32 = line!() - 2;
}

pub(crate) fn names_and_levels() {
    let traced = Traced::started();
    error!(name: "a.b-c_d", x = 1u64);
    warn!(name: "two words: \u{fc}", x = 1u64);
    elsewhere::with_a_target();
    debug!(name: "event of a kind", x = 1u64);
    trace!(name: "event 12:x", x = 1u64);
    event!(name: "", target: "", Level::INFO, x = 1u64);
    let place = elsewhere::LINE;
    assert_eq!(
        traced.lines(),
        [
            "layer.events:a.b-c_d 3 span=0 x=1".into(),
            "layer.events:two_words___ 4 span=0 x=1".into(),
            format!("shop.orders_new:layer.events.elsewhere-{place} 6 span=0 message=\"x\""),
            "layer.events:event_of_a_kind 7 span=0 x=1".into(),
            "layer.events:event_12_x 14 span=0 x=1".into(),
            "_:_ 6 span=0 x=1".into(),
        ]
    );
}

pub(crate) fn log_records() {
    let traced = Traced::started();
    tracing_log::LogTracer::init().unwrap();
    log::info!("{} of log's", 1);
    let place = line!() - 1;
    log::error!(target: "shop", "bad");
    log::logger().log(
        &log::Record::builder()
            .level(log::Level::Warn)
            .args(format_args!("bare"))
            .build(),
    );
    let of_file = format!("log_module_path=\"layer::events\" log_file=\"{}\"", file!());
    assert_eq!(
        traced.lines(),
        [
            format!(
                "log:log_event 6 span=0 message=\"1 of log's\" log_target=\"layer::events\" {of_file} log_line={place}"
            ),
            format!(
                "log:log_event 3 span=0 message=\"bad\" log_target=\"shop\" {of_file} log_line={}",
                place + 2
            ),
            "log:log_event 4 span=0 message=\"bare\" log_target=\"\"".into(),
        ]
    );
}

/// Counts how often it is formatted.
#[derive(Default)]
struct Counted(AtomicUsize);

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fetch_add(1, Ordering::Relaxed);
        f.write_str("counted")
    }
}

pub(crate) fn nothing_without_a_trace() {
    let traced = Traced::new();
    let counted = Counted::default();
    let emit = || info!(name: "told", ?counted);
    // At the first event, the layout is unknown, so the value is formatted.
    emit();
    for _ in 0..10 {
        emit();
    }
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    traced.start();
    emit();
    assert_eq!(counted.0.load(Ordering::Relaxed), 2);
    traced.stop();
    emit();
    assert_eq!(counted.0.load(Ordering::Relaxed), 2);
    assert_eq!(
        traced.lines(),
        ["layer.events:told 6 span=0 counted=\"counted\""]
    );
}

pub(crate) fn filters() {
    let traced = Traced::started();
    traced.want_levels(1 << 4 | 1 << 14);
    for _ in 0..2 {
        error!(name: "e", x = 1u64);
        warn!(name: "w", x = 1u64);
        info!(name: "i", x = 1u64);
        debug!(name: "d", x = 1u64);
        trace!(name: "t", x = 1u64);
    }
    let names: Vec<_> = traced.seen(0).iter().map(line).collect();
    let twice = [
        "layer.events:w 4 span=0 x=1",
        "layer.events:t 14 span=0 x=1",
    ]
    .repeat(2);
    assert_eq!(names, twice);
}

/// A call site without a size, as macros may make them: several may have one address.
struct Sizeless;

static CALLSITE: Sizeless = Sizeless;

impl tracing_core::Callsite for Sizeless {
    fn set_interest(&self, _: tracing_core::Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        &ONE
    }
}

static ONE: Metadata<'static> = tracing_core::metadata! {
    name: "one",
    target: "sizeless",
    level: Level::INFO,
    fields: &["x"],
    callsite: &CALLSITE,
    kind: tracing_core::Kind::EVENT,
};

static OTHER: Metadata<'static> = tracing_core::metadata! {
    name: "other",
    target: "sizeless",
    level: Level::WARN,
    fields: &["y"],
    callsite: &CALLSITE,
    kind: tracing_core::Kind::EVENT,
};

/// Events of different call sites are different, even at one address.
pub(crate) fn callsites_at_one_address() {
    let traced = Traced::started();
    let emit = |metadata: &'static Metadata<'static>, value: u64| {
        let field = metadata.fields().iter().next().unwrap();
        let value: &dyn tracing_core::field::Value = &value;
        let values = [(&field, Some(value))];
        tracing_core::Event::dispatch(metadata, &metadata.fields().value_set(&values));
    };
    assert_eq!(ONE.callsite(), OTHER.callsite());
    for n in 0..2 {
        emit(&ONE, n);
        emit(&OTHER, 10 + n);
    }
    assert_eq!(
        traced.lines(),
        [
            "sizeless:one 6 span=0 x=0",
            "sizeless:other 4 span=0 y=10",
            "sizeless:one 6 span=0 x=1",
            "sizeless:other 4 span=0 y=11",
        ]
    );
}
