//! The reader of rings: whatever a program wrote, and however far it came (F4, E7).

mod hostile;
mod lost;
mod plain;
mod shared;
mod window;
