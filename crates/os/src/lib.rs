//! Access to files and processes, for the tools and the fallback.
//!
//! [`files`] opens and locks files where others may have put something else. [`procfs`] reads what
//! `/proc` has of other processes, and [`process`] opens descriptors of them. [`random`] has random
//! bytes, [`socket`] sets options of connections, and [`time`] knows the error of the clock.
//! Nothing here knows a file of a trace or of a ring.

pub mod files;
pub mod process;
pub mod procfs;
pub mod random;
pub mod socket;
pub mod time;
