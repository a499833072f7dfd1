//! Presents traces that [`usertrace_reader`] reads.
//!
//! [`html`] writes a trace as one page; [`export`] converts it to other formats.

pub mod export;
pub mod html;
mod pair_names;
mod varint;
