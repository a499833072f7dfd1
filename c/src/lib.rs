//! `libusertrace`: the functions of `usertrace.h`, which documents them (F7).
//!
//! `scripts/c-library` links this crate into `libusertrace.so`, whose symbols have versions
//! (`usertrace.map`), and copies it as `libusertrace.a`.

pub mod context;
pub mod events;
pub mod list;
pub mod lttng;
pub mod probe;
pub mod record;
pub mod status;

usertrace::share!();
