//! The kernel's side of usertrace, as Rust sees it: system calls, ioctls and structures, and nothing clever.
//!
//! - [`uapi`] and [`crash`] are the two headers in `include/linux/`, name by name.
//! - [`Calls`] are the three system calls, for the program that is traced.
//! - [`files`] are the ioctls of the files that a consumer reads.
//! - [`Scope`], [`Mode`] and [`Protocol`] are how rings are written, and [`word`] is how texts are.

pub mod calls;
mod channel;
pub mod crash;
pub mod files;
mod printable;
pub mod uapi;
pub mod word;

pub use calls::{Calls, DiscoverError, Update};
pub use channel::{Mode, Protocol, Scope};
pub use printable::printable;
pub use syscalls::Errno;
