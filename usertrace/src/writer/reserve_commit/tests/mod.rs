//! The algorithm on the heap, step by step; and the writer as it is, in memory that processes
//! share.

mod heap;
#[cfg(feature = "fallback")]
mod mapped;
#[cfg(feature = "fallback")]
mod quiescence;
