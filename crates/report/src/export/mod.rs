//! Traces in the formats of others, made of what [`usertrace_reader`] gives: event by event, in the
//! order of time, with no more in memory than that event.

mod json;
mod pairs;
mod perfetto;
mod proto;

pub use json::Json;
pub use perfetto::Perfetto;
