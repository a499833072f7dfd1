//! Presents traces that [`usertrace_reader`] reads.
//!
//! [`html`] writes a trace as one page; [`export`] converts it to other formats; [`stacks`] adds up
//! what happened by call stack; [`spans`] makes trees of the spans of programs that use `tracing`,
//! and [`calls`] of the functions that they call.

mod activity;
mod binary;
pub mod calls;
mod durations;
pub mod export;
mod fields;
pub mod heap;
pub mod html;
pub mod leaks;
mod pair_names;
mod process_text;
pub mod spans;
pub mod stacks;
mod varint;
