//! Tests of the shared protocol: the algorithm on the heap, step by step, and the real writer in
//! memory that processes share.

mod heap;
#[cfg(feature = "fallback")]
mod mapped;
#[cfg(feature = "fallback")]
mod quiescence;
