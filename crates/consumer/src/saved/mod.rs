//! Settings of traces in TOML files: `usertrace save` and `usertrace load`.
//!
//! `docs/reference/saved-traces.md` describes the files. Each key of a trace or a channel is a
//! control file ([`key`]), so the four steps share one table: to [`capture`] a trace, to [`print`](mod@print) it,
//! to [`parse`] the text, and to [`create`] the trace.

mod capture;
mod create;
mod error;
mod key;
mod parse;
mod print;
mod text_file;
mod trace;

pub use create::{IfExists, LoadedTraces, load_saved_traces};
pub use error::SavedTraceError;
pub use print::print_saved_traces;
pub use text_file::{read_saved_traces, saved_traces_below};
pub use trace::{SavedFile, SavedTrace};
