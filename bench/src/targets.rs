//! Performance targets, and whether the results meet them.

use std::fmt;

use crate::{Counts, Event, EventWriter, Load, Results};

/// A limit, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The quantity.
    pub what: &'static str,
    /// The limit, in words.
    pub limit: &'static str,
    /// The measured value, with enough digits to tell it from the limit.
    pub measured: String,
    /// It is so.
    pub met: bool,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.met { "met   " } else { "MISSED" };
        write!(
            f,
            "{verdict} {}: {} ({})",
            self.what, self.measured, self.limit
        )
    }
}

/// A ratio that must not exceed a limit, as text, and whether that holds.
fn most(value: f64, limit: f64) -> (String, bool) {
    (format!("{value:.2} ×"), value <= limit)
}

/// A ratio that must reach a limit, as text, and whether that holds.
fn least(value: f64, limit: f64) -> (String, bool) {
    (format!("{value:.1} ×"), value >= limit)
}

/// The payload that the targets are for.
pub(crate) const PAYLOAD: &str = "32 bytes";
/// Our rows.
pub(crate) const PER_CPU: &str = "per-CPU ring";
pub(crate) const SHARED: &str = "shared ring of a thread, fallback";
pub(crate) const SHARED_BY_ALL: &str = "shared ring of several threads, fallback";
pub(crate) const THREE: &str = "per-CPU rings of three traces";
pub(crate) const FROM_C: &str = "per-CPU ring, from C";
pub(crate) const LAYER: &str = "layer of `tracing`";
pub(crate) const COUNTED: &str = "counted, with a histogram";
/// `tracing`'s own row.
pub(crate) const FORMATTED: &str = "formatted to a sink";
/// The payload of events that go through `tracing`.
pub(crate) const TRACING_PAYLOAD: &str = "8 bytes and a text of 20";

/// Targets that were collected so far.
#[derive(Default)]
struct Targets(Vec<Target>);

impl Targets {
    /// Adds a target, if it was measured: the measured value, and whether that meets the limit.
    fn add(&mut self, what: &'static str, limit: &'static str, measured: Option<(String, bool)>) {
        if let Some((measured, met)) = measured {
            self.0.push(Target {
                what,
                limit,
                measured,
                met,
            });
        }
    }
}

impl Results {
    /// A row.
    pub(crate) fn row(
        &self,
        who: EventWriter,
        how: &str,
        payload: &str,
        threads: usize,
    ) -> Option<&Event> {
        self.events.events.iter().find(|event| {
            (
                event.who,
                event.how.as_str(),
                event.payload.as_str(),
                event.threads,
            ) == (who, how, payload, threads)
        })
    }

    /// LTTng-UST's rows of a payload, in the order of its configurations.
    pub(crate) fn lttng(&self, payload: &str, threads: usize) -> Vec<&Event> {
        let rows = self.events.events.iter();
        rows.filter(|event| {
            event.who == EventWriter::Lttng
                && event.payload == payload
                && event.threads == threads
                && !event.how.contains("sessions")
        })
        .collect()
    }

    /// All targets that were measured.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = Targets::default();
        self.add_event_targets(&mut targets);
        self.add_path_targets(&mut targets);
        self.add_process_targets(&mut targets);
        // Not one of `Counts::targets`, by which the guest's run fails: it is not met yet.
        targets.add(
            "instructions of an event with its loop (in the guest)",
            "at most 52",
            self.instructions
                .as_ref()
                .map(|counts| (format!("{:.0}", counts.ours), counts.ours <= 52.0)),
        );
        targets
            .0
            .extend(self.instructions.iter().flat_map(Counts::targets));
        targets.0
    }

    /// The event path: against the floor, LTTng-UST, other threads, and a disabled event.
    fn add_event_targets(&self, targets: &mut Targets) {
        let ours = |threads| self.row(EventWriter::Usertrace, PER_CPU, PAYLOAD, threads);
        let floor = |threads| self.row(EventWriter::Floor, "", PAYLOAD, threads);

        targets.add(
            "an event of 32 bytes, against the floor",
            "at most 1.15 ×",
            ours(1).map(|row| most(row.floors, 1.15)),
        );
        for (what, payload, limit, bound) in [
            (
                "an event of 256 bytes, against the floor",
                "256 bytes",
                "at most 1.25 ×",
                1.25,
            ),
            (
                "an event of 4 bytes and a text of 20, against the floor",
                "4 bytes and a text of 20",
                "at most 1.15 ×",
                1.15,
            ),
        ] {
            let row = self.row(EventWriter::Usertrace, PER_CPU, payload, 1);
            targets.add(what, limit, row.map(|row| most(row.floors, bound)));
        }
        targets.add(
            "an event of 32 bytes in three traces, against the floor",
            "at most 2.6 ×",
            self.row(EventWriter::Usertrace, THREE, PAYLOAD, 1)
                .map(|row| most(row.floors, 2.6)),
        );
        // LTTng-UST's cheapest configuration counts.
        let cheapest = |threads| {
            let rows = self.lttng(PAYLOAD, threads);
            rows.into_iter().map(|row| row.ours).min_by(f64::total_cmp)
        };
        targets.add(
            "LTTng-UST's cheapest event of 32 bytes, against ours",
            "at least 6 ×",
            cheapest(1).map(|ratio| least(ratio, 6.0)),
        );
        targets.add(
            "a counted event of 4 bytes with a histogram, against the floor of a record",
            "at most 1.3 ×",
            self.row(EventWriter::Usertrace, COUNTED, "4 bytes", 1)
                .map(|row| most(row.floors, 1.3)),
        );
        // In floors: what the machine costs two threads is in both.
        targets.add(
            "an event of each of two threads, against one of one thread (in floors)",
            "at most 1.05 ×",
            ours(1)
                .zip(ours(2))
                .map(|(one, two)| most(two.floors / one.floors, 1.05)),
        );
        targets.add(
            "the same in nanoseconds, against what two threads do to the floor",
            "at most 1.05 ×",
            ours(1).zip(ours(2)).zip(floor(1).zip(floor(2))).map(
                |((one, two), (floor_one, floor_two))| {
                    most((two.ns / one.ns) / (floor_two.ns / floor_one.ns), 1.05)
                },
            ),
        );
        targets.add(
            "an event that is disabled, against a load, a test and a branch",
            "at most 1.1 × what two such loops differ",
            self.events.idle.as_ref().map(|idle| {
                let spread = idle.same.max(1.0 / idle.same).max(1.0) * 1.1;
                most(idle.disabled.max(idle.filtered), spread)
            }),
        );
    }

    /// Other ways to write an event, and the first lap.
    fn add_path_targets(&self, targets: &mut Targets) {
        targets.add(
            "an event of 32 bytes into a shared ring of a thread, against the floor",
            "at most 1.5 ×",
            self.row(EventWriter::Usertrace, SHARED, PAYLOAD, 1)
                .map(|row| most(row.floors, 1.5)),
        );
        targets.add(
            "the same of a ring of several threads",
            "at most 2 ×",
            self.row(EventWriter::Usertrace, SHARED_BY_ALL, PAYLOAD, 1)
                .map(|row| most(row.floors, 2.0)),
        );
        targets.add(
            "an event of 32 bytes from C, against Rust's",
            "at most 1.05 ×",
            self.row(EventWriter::Usertrace, FROM_C, PAYLOAD, 1)
                .map(|row| most(row.ours, 1.05)),
        );
        let layer = self.row(EventWriter::Usertrace, LAYER, TRACING_PAYLOAD, 1);
        let formatted = self.row(EventWriter::Tracing, FORMATTED, TRACING_PAYLOAD, 1);
        targets.add(
            "an event of 8 bytes and a text through the layer of `tracing`, against `event!`",
            "at most 1.8 ×",
            layer.map(|row| most(row.ours, 1.8)),
        );
        targets.add(
            "the same event formatted by `tracing` to a sink, against the layer",
            "at least 5 ×",
            layer
                .zip(formatted)
                .map(|(layer, formatted)| least(formatted.ours / layer.ours, 5.0)),
        );
        targets.add(
            "the first lap through fresh buffers, against later ones",
            "at most 1.3 ×",
            self.events
                .first
                .as_ref()
                .map(|first| most(first.ratio, 1.3)),
        );
        targets.add(
            "the same with USERTRACE_PREFAULT=all",
            "at most 1.5 ×",
            self.events
                .first_prefault
                .as_ref()
                .map(|first| most(first.ratio, 1.5)),
        );
    }

    /// Events into files, and the cost of an instrumented program that does nothing.
    fn add_process_targets(&self, targets: &mut Targets) {
        let to_disk = self.to_disk.as_ref();
        targets.add(
            "events into files without a loss, fallback, against LTTng-UST",
            "at least 2 ×",
            to_disk.map(|disk| least(disk.faster, 2.0)),
        );
        targets.add(
            "the consumer's time for each of these events, against LTTng-UST's",
            "at most 0.3 ×",
            to_disk.map(|disk| most(disk.consumer, 0.3)),
        );
        targets.add(
            "bytes in the files for each of them, against LTTng-UST's",
            "at most 1 ×",
            to_disk.map(|disk| most(disk.usertrace.bytes / disk.lttng.bytes, 1.0)),
        );
        targets.add(
            "bytes in the files for an event of 4 bytes, against LTTng-UST's",
            "at most 1 ×",
            to_disk
                .and_then(|disk| disk.small_bytes)
                .map(|[ours, theirs]| most(ours / theirs, 1.0)),
        );
        let start_up = self.start_up.as_ref();
        targets.add(
            "start of an instrumented program that does nothing",
            "at most 0.25 ms later",
            start_up.map(|start| (format!("{:.2} ms", start.later_ms), start.later_ms <= 0.25)),
        );
        targets.add(
            "its own memory",
            "at most 40 KiB more",
            start_up.map(|start| {
                let more = start.instrumented.own() - start.plain.own();
                (format!("{more:.0} KiB"), more <= 40.0)
            }),
        );
        let waiting = self.redis.as_ref().map(|redis| &redis.waiting);
        let pipelined = (self.redis.as_ref()).and_then(|redis| redis.pipelined.as_ref());
        let loss = |load: Option<&Load>| {
            // On a busy machine, the rates tell more of others than of the server.
            load.filter(|load| load.lttng.loss > 0.0)
                .map(|load| most(load.usertrace.loss / load.lttng.loss, 1.0 / 3.0))
        };
        targets.add(
            "processor time that `--malloc --pthread` adds to redis, against LTTng-UST's wrappers",
            "at most a third",
            waiting.map(|load| most(load.usertrace.more_ns / load.lttng.more_ns, 1.0 / 3.0)),
        );
        targets.add(
            "requests per second that it loses by that, against LTTng-UST's wrappers",
            "at most a third",
            loss(waiting),
        );
        targets.add(
            "the same, of a server that is busy: clients send 16 requests at a time",
            "at most a third",
            loss(pipelined),
        );
    }
}

impl Counts {
    /// Those that are counted in the guest.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        let mut add = |what, limit, (measured, met)| {
            targets.push(Target {
                what,
                limit,
                measured,
                met,
            });
        };
        add(
            "instructions of an event in the first lap, against later ones (in the guest)",
            "at most 1.5 ×",
            most(self.ours_fresh / self.ours, 1.5),
        );
        add(
            "instructions of a user_events write, against an event's (in the guest)",
            "at least 15 ×",
            least(self.user_events / self.ours, 15.0),
        );
        add(
            "instructions of a uprobe hit, against an event's (in the guest)",
            "at least 30 ×",
            least(self.uprobe / self.ours, 30.0),
        );
        if let Some(faults) = &self.faults {
            add(
                "instructions of a first write to a page of a ring, one page at a time, against a memfd's (in the guest)",
                "at most 0.65 ×",
                most(faults.alone / faults.memfd, 0.65),
            );
            add(
                "the same, of a ring that is filled in order (in the guest)",
                "at most 0.36 ×",
                most(faults.in_order / faults.memfd_in_order, 0.36),
            );
        }
        if let Some(calls) = &self.idle_calls {
            add(
                "instructions of an ltt_update with nothing to do, against getppid's (in the guest)",
                "at most 2 ×",
                most(calls.update / calls.getppid, 2.0),
            );
            add(
                "instructions of an ltt_switch with nothing to do, against getppid's (in the guest)",
                "at most 2 ×",
                most(calls.switch / calls.getppid, 2.0),
            );
        }
        if let Some(starts) = &self.starts {
            add(
                "instructions of starting a trace, with 1,000 sleeping processes without a signal, against 1 (in the guest)",
                "at most 1.05 ×",
                most(starts.many / starts.one, 1.05),
            );
            let [first, second, _] = starts.by_process();
            add(
                "the same with a signal, by process: of the second 500 against the first 500 (in the guest)",
                "at most 1.1 ×",
                most(second / first, 1.1),
            );
        }
        targets
    }
}
