//! Settings of traces in TOML files: `usertrace save` and `usertrace load`.
//!
//! `docs/reference/saved-traces.md` describes the files. Each key of a trace or a channel is a
//! control file, so four steps share one table (`key`): to read a trace (`capture`), to print it
//! (`print`), to parse the text (`parse`), and to create the trace (`create`).

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
