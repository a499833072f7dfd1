//! The reader of rings: whatever a program wrote, and however far it came (F4, E7).

mod hostile;
mod lost;
mod plain;
mod shared;
#[path = "../../../crates/cli/tests/support/mod.rs"]
mod support;
mod window;
