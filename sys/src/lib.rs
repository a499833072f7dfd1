//! The kernel's side of usertrace, as Rust sees it: system calls, ioctls and structures, and
//! nothing clever.
//!
//! - [`uapi`] and [`crash`] are the two headers in `include/linux/`, name by name.
//! - [`Calls`] are the three system calls, for the program that is traced.
//! - [`clock`] is the clock of the time stamps.
//! - [`files`] are the ioctls of the files that a consumer reads.
//! - [`description`] is how events are described.
//! - [`filter`] is which events a trace accepts, and [`limits`] how many of what a program has room
//!   for.
//! - [`Scope`], [`Mode`] and [`Protocol`] are how rings are written, and [`word`] is how texts are.

pub mod calls;
mod channel;
pub mod clock;
pub mod crash;
pub mod description;
pub mod files;
pub mod filter;
pub mod limits;
mod printable;
pub mod uapi;
pub mod word;

pub use calls::{Calls, DiscoverError, Update};
pub use channel::{Mode, Protocol, Scope};
pub use printable::printable;
pub use syscalls::Errno;
