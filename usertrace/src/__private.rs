//! What the macros of this crate and the other crates of its workspace use: the C library, the
//! layer for `tracing`, the preload libraries, tests and benchmarks.
//!
//! It is not part of the public API: any release may change it. So these crates depend on the
//! release of `usertrace` that they were built with.

pub use crate::event::describe::{DescribedField, Description, Kind, Label, strip_raw};
pub use crate::event::field::{
    Buffer, Field, InlinePayload, MOST_WORDS_BY_ARGUMENTS, Payload, Scratch,
};
pub use crate::event::ip::{Caller, GivenPlace, capture_ip, set_ip, set_ip_of_caller, use_ip};
pub use crate::event::number::{Be, Hex, Number};
pub use crate::event::section::Entry;
pub use crate::runtime::{
    DescriptionError, Kernel, Shared, declare, init_before_main, init_with, notice_objects, record,
    record_long, record_parts, record_variable, record_words, register, unregister,
    wants_all_stacks,
};
pub use crate::writer::{Cursor, Prefault, Rseq};
