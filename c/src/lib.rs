//! The functions of `usertrace.h` (F7). The header says what they do.
//!
//! `scripts/c-library` links this into `libusertrace.so`, whose symbols have versions
//! (`usertrace.map`), and copies it as `libusertrace.a`.

pub mod context;
pub mod events;
pub mod list;
pub mod lttng;
pub mod probe;
pub mod record;
pub mod status;

usertrace::share!();
