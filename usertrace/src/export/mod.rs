//! Traces in the formats of others, made of what [`reader`](crate::reader) gives: event by event, in the order of time,
//! with no more in memory than that event.

mod json;

pub use json::Json;
