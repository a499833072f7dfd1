//! What the tools and the fallback ask of the system.
//!
//! [`files`] opens and locks files where others may have put something else; [`procfs`] says of other
//! processes what `/proc` has. No file of a trace or of a ring is known here.

pub mod files;
pub mod procfs;
