//! What events cost, here and elsewhere: what is measured, and the report that is made of it.
//!
//! - `benches/event` measures events natively, beside LTTng-UST and the floor.
//! - `guest-bench` counts instructions in the guest: of an event, beside `user_events` and uprobes,
//!   and of the kernel's own work.
//! - `start-up` measures what an instrumented program costs that does nothing.
//! - `wrapped` measures what calls cost that the libraries to preload wrap (`scripts/bench
//!   wrapped`).
//! - `extraction` measures what it takes to extract traces of dumps (`scripts/bench crash`).
//! - `bench-report` makes `docs/bench` of what the others found. `scripts/bench` runs them all.

mod ended;
pub mod lttng;
mod machine;
mod picture;
mod program;
mod report;
mod results;
mod statistics;
mod targets;

pub use self::ended::{Ended, reap, size};
pub use self::machine::Machine;
pub use self::picture::picture;
pub use self::program::{begun, now, wait};
pub use self::report::{figures, report, with_figures};
pub use self::results::{
    Counts, Disk, Event, Events, Faults, First, Idle, IdleCalls, Memory, PROCESSES, Results,
    StartUp, Starts, ToDisk, Volume, Who,
};
pub use self::statistics::{median, quantile};
pub use self::targets::Target;
