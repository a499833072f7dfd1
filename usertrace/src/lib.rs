//! User-space tracing into buffers that the kernel owns.
//!
//! A program declares events, and writes them with plain stores: no system call, no lock. Its
//! buffers belong to the kernel, so events survive whatever happens to the program, and a kernel
//! crash too. A recorder (`usertrace record`) reads the same pages and writes CTF.
//!
//! # Quick start
//!
//! ```
//! usertrace::tracepoint! {
//!     /// A request was served.
//!     pub mod served {
//!         provider: "shop",
//!         name: "served",
//!         loglevel: Info,
//!         fields: { status: u16, path: str },
//!     }
//! }
//!
//! fn serve(path: &str) {
//!     usertrace::event!(served, status = 200, path = path);
//! }
//! # serve("/");
//! ```
//!
//! `usertrace record -o traces -- ./shop` runs the program and records its events, and `usertrace
//! view traces` prints them. The program need not initialise anything: a constructor does so before
//! `main`. [`event`](mod@event) lists the types of fields, and [`marker!`] declares an event where
//! it is written.
//!
//! | what | where |
//! |---|---|
//! | declare and write events | [`tracepoint!`], [`event!`](event!), [`marker!`], [`event`](mod@event) |
//! | whether this process is traced, and by what | [`status`], [`report`], [`stats`] |
//! | stop and go on, have readers look now | [`pause`], [`resume`], [`flush`] |
//! | the events that there are | [`callsites`] |
//! | functions that get events in the program itself | [`probe`] |
//! | what records say besides fields | [`context`](mod@context) |
//! | a socket by which others steer the program | [`control`] |
//!
//! # Features
//!
//! - `fallback`: records on kernels without trace buffers as well. Two daemons per program write
//!   the traces.
//! - Without it, the crate needs `libc` and little else. On a kernel without trace buffers, an
//!   event then costs a load and a branch, and [`status`] says why nothing is recorded.
//!
//! # Rust version
//!
//! The crate needs Rust 1.88 or later. Only a new minor version may need a later one. Modules and
//! macros whose names begin with two underscores are not part of the public API.
//!
//! # Signals, threads, `fork`
//!
//! - An event may be written anywhere: in signal handlers, inside `malloc`, in probes, before
//!   `main` and at exit. It allocates nothing, takes no lock, and preserves `errno`.
//! - The kernel notifies a program of changes by a signal, `SIGRTMIN+3`, unless `USERTRACE_SIGNAL`
//!   names another one. A program's own handler for that signal stays in place.
//! - A child of `fork` has buffers of its own, and so has each program that it executes. A child of
//!   `vfork` writes nothing to its parent's per-CPU rings: its events are counted as lost.
//! - A library with this crate stays in memory once it traces: `dlclose` succeeds, and unloads
//!   nothing.

#[doc(hidden)]
pub mod __private;
pub mod context;
pub mod control;
pub mod event;
#[cfg(feature = "fake")]
#[doc(hidden)]
pub mod fake;
mod os;
pub mod probe;
mod runtime;
mod unload;
mod unwind;
mod writer;

pub use event::{Callsite, Loglevel, Outcome};
pub use runtime::{
    AreaField, Backend, BadArea, Declared, NoFallback, Refused, Report, Status, TraceStats,
    callsites, flush, init, pause, report, resume, stats, status,
};
pub use usertrace_sys::{DiscoverError, Errno, clock};
pub use writer::RseqError;
