//! Support for the tests of several crates.
//!
//! - [`RingWriter`], [`shared`], [`count_table`] and [`dump`] simulate a kernel and traced
//!   programs. They are written from the headers alone and do not use the numbers of the crates
//!   under test, so that a mistake is not made twice. [`fields`] and [`processes`] make traces of
//!   any content, and [`spans`] those of `tracing`'s layer. [`expression_model`] makes filter
//!   expressions, and evaluates them.
//! - [`babeltrace`], [`relayd`], [`tools`], [`spark`] and [`browser`] run other projects' programs,
//!   which judge traces.
//! - [`open_metrics`] parses metrics.
//! - [`documents`] and [`examples`] run the commands of the documents, in a [`terminal`].
//! - [`wait`], [`counts`], [`daemons`], [`exited`], [`seccomp`] and [`containers`] are for tests
//!   that run programs; [`shop`] checks the trace of one, and [`requests`] puts a server under
//!   load.
//!
//! Nothing here depends on the library `usertrace`: its unit tests use this crate, and a program
//! cannot have the library twice. So the library itself has the simulated kernel for tests, as
//! feature `fake`.
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    clippy::must_use_candidate,
    reason = "a test panics where something is wrong"
)]

pub mod babeltrace;
pub mod browser;
pub mod c_library;
pub mod compiled;
pub mod containers;
pub mod count_table;
pub mod counts;
pub mod daemons;
pub mod documents;
pub mod dump;
pub mod examples;
pub mod exited;
pub mod expression_model;
pub mod extraction;
pub mod fields;
pub mod open_metrics;
pub mod processes;
mod relay_log;
pub mod relayd;
pub mod requests;
mod ring_writer;
pub mod runs;
pub mod seccomp;
pub mod shared;
pub mod shop;
pub mod spans;
pub mod spark;
pub mod terminal;
pub mod tools;
pub mod wait;

pub use ring_writer::{RingWriter, events, read_each, words};

/// Declares the event `test:numbered` as the module `numbered` at this place. Its fields are a
/// thread and a number, or with `n` only a number.
#[macro_export]
macro_rules! numbered_event {
    () => {
        $crate::numbered_event! { { thread: u32, number: u64 } }
    };
    (n) => {
        $crate::numbered_event! { { n: u64 } }
    };
    ($fields:tt) => {
        usertrace::tracepoint! {
            /// A numbered event.
            pub mod numbered {
                provider: "test",
                name: "numbered",
                loglevel: Info,
                fields: $fields,
            }
        }
    };
}
