//! Results of all measurements: the contents of `docs/bench/results.json`.

use serde::{Deserialize, Serialize};

use crate::{Machine, median};

/// Results of one run of `scripts/bench`. A measurement that was not possible is missing.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Results {
    /// The day, as `YYYY-MM-DD`.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// Events, measured natively.
    pub events: Events,
    /// Instructions, counted in the guest.
    pub instructions: Option<Counts>,
    /// An instrumented program that does nothing.
    pub start_up: Option<StartUp>,
    /// Events into files.
    pub to_disk: Option<ToDisk>,
    /// Calls that libraries wrap.
    #[serde(default)]
    pub wrapped: Option<Vec<WrappedCall>>,
    /// A server whose calls are wrapped.
    #[serde(default)]
    pub redis: Option<Redis>,
    /// Programs that read traces.
    #[serde(default)]
    pub readers: Option<Readers>,
}

/// The code that writes an event.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventWriter {
    /// The floor: the time stamp and the same stores, and nothing else.
    Floor,
    /// This project.
    Usertrace,
    /// LTTng-UST.
    Lttng,
    /// The `tracing` crate, by itself.
    Tracing,
    /// A loop with one load, test and branch.
    Branch,
}

/// Results of the event benchmark.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Events {
    /// The noise of the machine, before all else; for one thread, and for two.
    #[serde(default)]
    pub noise: Vec<Noise>,
    /// Each kind of event.
    pub events: Vec<Event>,
    /// The first lap through fresh buffers.
    pub first: Option<FirstLap>,
    /// The same with the pages of all rings populated at the start.
    pub first_prefault: Option<FirstLap>,
    /// An event that no trace wants.
    pub idle: Option<Idle>,
}

/// The noise of the machine: the floor beside a second contestant that is the same.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Noise {
    /// Number of threads that write at the same time.
    pub threads: usize,
    /// The second one in turns of the first; the median.
    pub same: f64,
    /// The quartiles.
    pub same_quartiles: [f64; 2],
    /// The slowest tenth of the floor's batches, in turns of its fastest tenth.
    pub spread: f64,
}

/// Costs of one kind of event. All ratios are medians of batches that ran next to each other.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Event {
    /// The code that writes it.
    pub who: EventWriter,
    /// The kind of ring, or the configuration.
    pub how: String,
    /// The payload.
    pub payload: String,
    /// Number of threads that write at the same time.
    pub threads: usize,
    /// Nanoseconds, the median.
    pub ns: f64,
    /// The quartiles.
    pub quartiles: [f64; 2],
    /// Ratio to the floor, with the same payload and number of threads.
    pub floors: f64,
    /// Ratio to our events with the same payload and number of threads, into a ring of a CPU and
    /// one trace.
    pub ours: f64,
}

/// Costs of the first lap through a ring, whose pages do not exist yet.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FirstLap {
    /// Nanoseconds for an event of 32 bytes in the first lap.
    pub ns: f64,
    /// The same in later laps.
    pub later_ns: f64,
    /// Median of the ratios.
    pub ratio: f64,
}

/// Costs of an event that no trace wants, and of a load, a test and a branch.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Idle {
    /// Nanoseconds of a turn of the loop with one load, test and branch.
    pub branch_ns: f64,
    /// Nanoseconds of a second such loop, at another address.
    pub same_ns: f64,
    /// Nanoseconds of an event while there is no trace.
    pub disabled_ns: f64,
    /// Nanoseconds of an event that is filtered out, while others are traced.
    pub filtered_ns: f64,
    /// Nanoseconds of an event that the condition of a filter rejects, with the first comparison.
    pub rejected_ns: Option<f64>,
    /// The same, with an evaluation of the condition that compares a number and a text.
    pub rejected_text_ns: Option<f64>,
    /// Nanoseconds of LTTng-UST's event while there is no session.
    pub lttng_disabled_ns: Option<f64>,
    /// Nanoseconds of LTTng-UST's event that a filter rejects by the first comparison.
    pub lttng_filtered_ns: Option<f64>,
    /// Nanoseconds of an event of the `tracing` crate, with a registry that has no layer.
    pub tracing_ns: Option<f64>,
    /// Nanoseconds of the same with our layer, while there is no trace.
    pub tracing_layer_ns: Option<f64>,
    /// The second loop, in turns of the first; the median.
    pub same: f64,
    /// The quartiles.
    pub same_quartiles: [f64; 2],
    /// The event while there is no trace, in turns of the first loop; the median.
    pub disabled: f64,
    /// The event that is filtered out, in turns of the first loop; the median.
    pub filtered: f64,
}

/// Instructions of one event of 32 bytes, in the program and in the kernel; and of the kernel's
/// other work.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counts {
    /// The floor.
    pub floor: f64,
    /// Ours: from the test of its mask on, and with what each sub-buffer takes.
    pub ours: f64,
    /// Ours in the first lap, in which the kernel gets each page.
    pub ours_fresh: f64,
    /// Ours with the context `vtid`.
    #[serde(default)]
    pub with_vtid: Option<f64>,
    /// One `write()` to `user_events_data`.
    pub user_events: f64,
    /// A breakpoint on an instruction that the kernel emulates.
    pub uprobe: f64,
    /// A breakpoint on an instruction that the kernel steps over.
    pub uprobe_stepped: f64,
    /// First writes to pages.
    pub faults: Option<Faults>,
    /// System calls with nothing to do.
    pub idle_calls: Option<IdleCalls>,
    /// Starts of a trace.
    pub starts: Option<Starts>,
    /// Ways into a file.
    pub volume: Option<Volume>,
}

/// Instructions of the first write to a page, with the clearing of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Faults {
    /// Of a memfd that is mapped and shared, from the last page to the first.
    pub memfd: f64,
    /// The same from the first page to the last.
    pub memfd_in_order: f64,
    /// Of a ring, so that each fault brings one page: from the last to the first.
    pub alone: f64,
    /// Of a ring that is filled in order.
    pub in_order: f64,
}

/// Instructions of system calls that find nothing to do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct IdleCalls {
    /// `getppid`
    pub getppid: f64,
    /// `ltt_update` for the next trace, where there is none.
    pub update: f64,
    /// `ltt_switch` of a buffer with consumer files that no reader waits for.
    pub switch: f64,
}

/// Processes that there are in [`Starts`].
pub const PROCESSES: usize = 1000;

/// Instructions of the `write()` that starts a trace, while processes sleep that asked for buffers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Starts {
    /// One process, which uses no signal.
    pub one: f64,
    /// [`PROCESSES`] of them.
    pub many: f64,
    /// One process, which uses a signal.
    pub one_by_signal: f64,
    /// Half of [`PROCESSES`].
    pub half_by_signal: f64,
    /// [`PROCESSES`] of them.
    pub many_by_signal: f64,
}

impl Starts {
    /// For each process that uses a signal: in the first half of them, in the second, and over all.
    #[must_use]
    pub fn by_process(&self) -> [f64; 3] {
        let [one, half, many] = [1.0, (PROCESSES / 2) as f64, PROCESSES as f64];
        [
            (self.half_by_signal - self.one_by_signal) / (half - one),
            (self.many_by_signal - self.half_by_signal) / (many - half),
            (self.many_by_signal - self.one_by_signal) / (many - one),
        ]
    }
}

/// Instructions of the reading side, for each MiB that it brings into a new file in memory.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Volume {
    /// Our recorder, of events of 32 bytes: with a look at each record.
    pub ours: f64,
    /// One `write()` of the same ring from where it is mapped, in blocks, without a look.
    pub copied: f64,
    /// `cat` through a pipe.
    pub pipe: f64,
    /// The mapped reader of ftrace's ring buffer: each sub-buffer by a `write()`.
    pub ftrace: f64,
    /// Pages by reference into a pipe and from there into the file (`vmsplice`, `splice`).
    pub spliced: f64,
}

/// Events into files, none of which may be lost: ours on the fallback, and LTTng-UST's.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ToDisk {
    /// Our events per second in LTTng-UST's; the median of the turns.
    pub faster: f64,
    /// Our consumer's time in LTTng-UST's; likewise.
    pub consumer: f64,
    /// Ours.
    pub usertrace: Disk,
    /// LTTng-UST's.
    pub lttng: Disk,
    /// Bytes of the files for an event of 4 bytes: ours, and LTTng-UST's.
    #[serde(default)]
    pub small_bytes: Option<[f64; 2]>,
}

/// Events of 32 bytes into files, by one thread that waits for room.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Disk {
    /// From the first one to the last one's being in a file.
    pub events_per_second: f64,
    /// Nanoseconds of a processor for each event, of all processes but the one that writes events.
    pub consumer_ns: f64,
    /// Bytes of the files for each event.
    pub bytes: f64,
}

impl Disk {
    /// That of several turns.
    #[must_use]
    pub fn median(runs: &[Self]) -> Self {
        let of = |part: fn(&Self) -> f64| median(&runs.iter().map(part).collect::<Vec<_>>());
        Self {
            events_per_second: of(|run| run.events_per_second),
            consumer_ns: of(|run| run.consumer_ns),
            bytes: of(|run| run.bytes),
        }
    }
}

/// A pair of calls that libraries wrap, in a program of one thread.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WrappedCall {
    /// The calls.
    pub calls: String,
    /// The library that wraps them, and what becomes of their events.
    pub how: String,
    /// Nanoseconds of a pair.
    pub ns: f64,
    /// Nanoseconds more than without a library.
    pub more_ns: f64,
}

/// A `redis-server` under load.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Redis {
    /// Clients wait for each answer. The server is idle for about half of the time.
    #[serde(flatten)]
    pub waiting: Load,
    /// Clients send 16 requests at a time. The server is busy.
    #[serde(default)]
    pub pipelined: Option<Load>,
}

/// A server under one load, in turns.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Load {
    /// As it is.
    pub plain: Served,
    /// The same once more: what the differences are worth.
    #[serde(default)]
    pub again: Option<Served>,
    /// Recorded by `usertrace record --malloc --pthread`.
    pub usertrace: Served,
    /// Recorded with `--flight` as well: the recorder reads no event while the server runs.
    #[serde(default)]
    pub flight: Option<Served>,
    /// With LTTng-UST's wrappers of the C library and of pthread, in a session.
    pub lttng: Served,
}

/// What a server does in one way. Differences are medians over neighbours in time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Served {
    /// Requests per second.
    pub rate: f64,
    /// The part of the rate that is lost, of what it does plain.
    pub loss: f64,
    /// Nanoseconds of a processor that the server itself takes for each request. Other load on the
    /// machine hardly changes it.
    pub ns: f64,
    /// Nanoseconds more than plain.
    pub more_ns: f64,
    /// Events that found no room, for each request.
    #[serde(default)]
    pub lost_events: f64,
}

/// Programs that read one trace and print all of it, in turns.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Readers {
    /// Events of the trace.
    pub events: u64,
    /// The programs, ours first.
    pub rows: Vec<Reader>,
}

/// A program that reads a trace: medians.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Reader {
    /// The command.
    pub command: String,
    /// Seconds by the clock.
    pub seconds: f64,
    /// Seconds of a processor.
    pub processor: f64,
    /// The most memory that it had, in MiB.
    pub peak_mib: f64,
}

/// Costs of an instrumented program that does nothing.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StartUp {
    /// Milliseconds from before the spawn to `main`, without the library.
    pub plain_ms: f64,
    /// The same, instrumented.
    pub instrumented_ms: f64,
    /// Median of the differences of neighbours in time.
    pub later_ms: f64,
    /// Memory of the program without the library.
    pub plain: Memory,
    /// The same, instrumented.
    pub instrumented: Memory,
}

/// Memory of a process that is resident, in KiB, as `status` and `smaps_rollup` say it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Memory {
    /// All of it.
    pub rss: f64,
    /// Of no file.
    pub anonymous: f64,
    /// Shared memory: of no file that would be there otherwise.
    pub shared: f64,
    /// Pages of programs and libraries, which are there once however many processes map them.
    pub file: f64,
    /// All of it, with what is shared in proportion.
    pub pss: f64,
}

impl Memory {
    /// Memory that exists because of this process.
    #[must_use]
    pub fn own(&self) -> f64 {
        self.anonymous + self.shared
    }
}
