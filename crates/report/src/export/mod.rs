//! Exports traces to other formats: event by event in order of time, as [`usertrace_reader`] reads
//! them. Memory holds only the current event, and what has begun and not ended; for profiles, the
//! sums of all call stacks.

mod code_place;
mod json;
mod otlp;
mod pairs;
mod perfetto;
mod proto;
mod span_tracks;
mod stacks;

pub use json::{Json, json_fields};
pub use otlp::{LeftOut, Otlp};
pub use perfetto::Perfetto;
pub use stacks::{NoStacksError, StackExport, StackFormat};
