//! Tests of the ring reader, whatever the program wrote, and wherever it stopped (F4, E7).

mod count;
mod hostile;
mod lost;
mod plain;
mod shared;
mod window;
