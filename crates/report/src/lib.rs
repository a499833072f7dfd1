//! Presents traces that [`usertrace_reader`] reads.
//!
//! [`html`] writes a trace as one page; [`export`] converts it to other formats; [`spans`] makes trees
//! of the spans of programs that use `tracing`.

mod durations;
pub mod export;
pub mod html;
mod pair_names;
pub mod spans;
mod varint;
