//! Benchmarks of events, in this project and elsewhere, and the report of their results.
//!
//! - `benches/event` measures events natively, beside LTTng-UST and the floor.
//! - `guest-bench` counts instructions in the guest: of an event, of `user_events` and uprobes for
//!   comparison, and of the kernel's own work.
//! - `start-up` measures the start and the memory of an instrumented program that does nothing.
//! - `to-disk` measures events into files, or through a relay (`scripts/bench relay`).
//! - `wrapped` measures calls that preload libraries wrap, ours and those of others.
//! - `redis` measures a server whose calls are wrapped, beside LTTng-UST's wrappers.
//! - `readers` measures programs that read a trace, beside babeltrace2.
//! - `extraction` measures time and memory to extract traces from dumps (`scripts/bench crash`).
//! - `bench-report` writes `docs/bench` from the results. `scripts/bench` runs them all.

mod curves;
mod growth;
pub mod lttng;
mod machine;
mod picture;
mod program;
mod report;
mod results;
mod rows;
mod statistics;
mod targets;

pub use self::growth::{Growth, GrowthRow, growth_page, growth_picture};
pub use self::machine::Machine;
pub use self::picture::picture;
pub use self::program::{now, report_processor, report_start, wait};
pub use self::report::{figures, report, with_figures};
pub use self::results::{
    Counts, Disk, Event, EventWriter, Events, Faults, FirstLap, Idle, IdleCalls, Load, Memory,
    Noise, PROCESSES, Reader, Readers, Redis, Results, Served, StartUp, Starts, ToDisk, Volume,
    WrappedCall,
};
pub use self::rows::Rows;
pub use self::statistics::{median, quantile, ratios};
pub use self::targets::Target;
