//! Access to files and processes, for the tools and the fallback.
//!
//! [`files`] opens and locks files in directories that others may write to. [`procfs`] reads about
//! other processes in `/proc`. This crate does not know traces or rings.

pub mod files;
pub mod procfs;
