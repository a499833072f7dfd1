//! Exports traces to other formats: event by event in order of time, as [`usertrace_reader`] reads
//! them. Memory holds only the current event.

mod json;
mod pairs;
mod perfetto;
mod proto;

pub use json::Json;
pub use perfetto::Perfetto;
