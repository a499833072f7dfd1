//! The kernel's interface of usertrace in Rust: system calls, ioctls and structures, without
//! further logic.
//!
//! - [`uapi`] and [`crash`] correspond to the two headers in `include/linux/`, name by name.
//! - [`Calls`] has the three system calls, for traced programs.
//! - [`clock`] reads the clock of the time stamps.
//! - [`files`] has the ioctls of consumer files.
//! - [`description`] parses descriptions of events.
//! - [`filter`] decides which events a trace accepts, and [`limits`] has the capacities of this
//!   library.
//! - [`count`] has the buckets of histograms, and parses what to count.
//! - [`Scope`], [`Mode`] and [`Protocol`] are the properties of rings, and [`word`] encodes texts.

pub mod calls;
mod channel;
pub mod clock;
pub mod count;
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
