//! The runtime of a traced process: gets buffers from the kernel, follows traces as they come and
//! go, and survives `fork`.
//!
//! - [`init`] finds the kernel's calls, maps the areas (`update.rs`), and installs the handler of
//!   the update signal.
//! - An update (`refresh`) is started by that handler, or by the slow path of an event, which looks
//!   at the generation in the info area. Updates may start at any instruction, and in several
//!   threads at once; one thread does the work (`coalescing_lock.rs`).
//! - The state of the buffers lies in memory that `fork` wipes (`state.rs`). The child's first
//!   event finds it empty, and gets buffers of its own (A5). A child of `vfork` shares the memory;
//!   a wrapper of `vfork` keeps it out of per-CPU rings. The library does not notice a child of
//!   `clone` with `CLONE_VM`.
//!
//! Two copies of this crate in one process, as in a Rust program under a preload library, share all
//! of this if they find each other (`shared.rs`). Copies that do not find each other still share
//! the areas, the rings and the signal. The kernel then takes the acknowledgement of either copy
//! for that of both (A9): a thread that the other copy did not wait for may write a record into a
//! slot that already has another trace.

mod cmdline;
pub(crate) mod coalescing_lock;
mod complaint;
mod condition;
pub(crate) mod current;
mod debug_link;
mod dispatch;
mod dynamic;
pub(crate) mod env;
mod event_id_cache;
#[cfg(feature = "fallback")]
mod fallback;
mod hash;
mod info;
mod init;
mod kernel;
mod loaded;
mod modules;
mod object_log;
mod objects;
mod process_rules;
pub(crate) mod registry;
pub(crate) mod registry_lock;
mod reporting;
pub(crate) mod shared;
mod state;
mod stats;
mod status;
mod steer;
mod text;
mod update;
mod update_signal;
mod with_contexts;

pub use self::current::notice_objects;
pub use self::dispatch::{record, record_long, record_parts, record_variable, record_words};
pub use self::dynamic::{DescriptionError, declare, register, unregister};
pub use self::env::wants_all_stacks;
pub use self::info::{AreaField, BadArea};
pub use self::init::{init, init_before_main, init_with};
pub use self::kernel::Kernel;
pub use self::loaded::{Declared, callsites};
pub use self::reporting::{report, status};
pub use self::shared::Shared;
pub use self::stats::{TraceStats, stats};
pub use self::status::{Backend, NoFallback, Refused, Report, Status};
pub use self::steer::{flush, pause, resume};

pub(crate) use self::current::renew_threads;
pub(crate) use self::steer::output;
#[cfg(feature = "fallback")]
pub(crate) use self::steer::{RulesError, events, set_events};
