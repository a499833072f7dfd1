//! Models of the rings' protocols under [loom](https://docs.rs/loom), which tries every order in
//! which threads may come, and every value that a load may see by the rules of weak memory. The
//! tests are all there is.
