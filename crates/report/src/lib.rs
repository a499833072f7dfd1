//! Shows what [`usertrace_reader`] reads of traces.
//!
//! [`html`] makes one page of a trace; [`export`] writes it in the formats of others.

pub mod export;
pub mod html;
mod pair_names;
mod varint;
