//! The kernel's side of usertrace, as Rust sees it: system calls, ioctls and structures, and nothing clever.
//!
//! - [`uapi`] and [`crash`] are the two headers in `include/linux/`, name by name.
#![no_std]

pub mod crash;
pub mod uapi;
