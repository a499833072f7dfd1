//! Presents traces that [`usertrace_reader`] reads.
//!
//! [`html`] writes a trace as one page; [`export`] converts it to other formats.

mod activity;
mod binary;
pub mod export;
mod fields;
pub mod heap;
pub mod html;
pub mod leaks;
mod pair_names;
pub mod stacks;
mod varint;
