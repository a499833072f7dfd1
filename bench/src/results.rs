//! What is measured: the contents of `docs/bench/results.json`.

use serde::{Deserialize, Serialize};

use crate::Machine;

/// Everything of one run of `scripts/bench`. What could not be measured is missing.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Results {
    /// The day, as `YYYY-MM-DD`.
    pub date: String,
    /// Where.
    pub machine: Machine,
    /// Events, natively.
    pub events: Events,
    /// Instructions, in the guest.
    pub instructions: Option<Counts>,
    /// An instrumented program that does nothing.
    pub start_up: Option<StartUp>,
}

/// What writes an event.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// The time stamp and the same stores, and nothing else.
    Floor,
    /// This project.
    Usertrace,
    /// LTTng-UST.
    Lttng,
    /// A loop with one load, test and branch.
    Branch,
}

/// What the event bench finds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Events {
    /// One by one.
    pub events: Vec<Event>,
    /// Through fresh buffers.
    pub first: Option<First>,
    /// The same with the pages of all rings asked for at the start.
    pub first_prefault: Option<First>,
    /// An event that no trace wants.
    pub idle: Option<Idle>,
}

/// What one kind of event costs. All ratios are medians over neighbours in time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Event {
    /// Who writes it.
    pub who: Who,
    /// Into what.
    pub how: String,
    /// What it carries.
    pub payload: String,
    /// How many threads do it at the same time.
    pub threads: usize,
    /// Nanoseconds, the median.
    pub ns: f64,
    /// The quartiles.
    pub quartiles: [f64; 2],
    /// In floors of this payload and so many threads.
    pub floors: f64,
    /// In our events of this payload and so many threads, into a ring of the CPU and one trace.
    pub ours: f64,
}

/// What the first lap through a ring costs, whose pages nobody ever touched.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct First {
    /// Nanoseconds for an event of 32 bytes in the first lap.
    pub ns: f64,
    /// And in later ones.
    pub later_ns: f64,
    /// Median of the ratios.
    pub ratio: f64,
}

/// What an event costs that no trace wants, and what a load, a test and a branch cost.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Idle {
    /// Nanoseconds of a turn of the loop with one load, test and branch.
    pub branch_ns: f64,
    /// Nanoseconds of a second such loop, which differs from the first in nothing but where it lies.
    pub same_ns: f64,
    /// Nanoseconds of an event while there is no trace.
    pub disabled_ns: f64,
    /// Nanoseconds of an event that is filtered out, while others are traced.
    pub filtered_ns: f64,
    /// Nanoseconds of LTTng-UST's event while there is no session.
    pub lttng_disabled_ns: Option<f64>,
    /// Nanoseconds of LTTng-UST's event that a filter rejects.
    pub lttng_filtered_ns: Option<f64>,
    /// The second loop, in turns of the first; the median.
    pub same: f64,
    /// The quartiles.
    pub same_quartiles: [f64; 2],
    /// The event while there is no trace, in turns of the first loop; the median.
    pub disabled: f64,
    /// The event that is filtered out, in turns of the first loop; the median.
    pub filtered: f64,
}

/// Instructions of one event of 32 bytes, in the program and in the kernel.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counts {
    /// The floor.
    pub floor: f64,
    /// Ours: from the test of its mask on, and with what each sub-buffer takes.
    pub ours: f64,
    /// Ours in the first lap, in which the kernel gets each page.
    pub ours_fresh: f64,
    /// One `write()` to `user_events_data`.
    pub user_events: f64,
    /// A breakpoint on an instruction that the kernel emulates.
    pub uprobe: f64,
    /// A breakpoint on an instruction that the kernel steps over.
    pub uprobe_stepped: f64,
}

/// What an instrumented program costs that does nothing.
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
    /// What is there because this process is.
    #[must_use]
    pub fn own(&self) -> f64 {
        self.anonymous + self.shared
    }
}
