//! Models of the ring protocols under [loom](https://docs.rs/loom), which tries every interleaving
//! of threads, and every value that a load may return under weak memory ordering. The crate has
//! only tests.
