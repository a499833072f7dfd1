//! Why a description is none.

use usertrace_sys::uapi::LTT_META_MAX;

use super::field::FieldError;

/// A description that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// Longer than a description can be.
    #[error("longer than {LTT_META_MAX} bytes")]
    TooLong,
    /// Not UTF-8, or with control characters.
    #[error("not text")]
    NotText,
    /// The id is missing, not a number, or none of an event's.
    #[error("bad event id")]
    Id,
    /// The name is missing, or not `PROVIDER:NAME`.
    #[error("bad event name")]
    Name,
    /// The log level is missing, or not a number.
    #[error("bad log level")]
    Loglevel,
    /// A field is none.
    #[error("bad field {text:?}: {error}")]
    Field {
        /// What stands for it in the description.
        text: String,
        /// What is wrong.
        error: FieldError,
    },
    /// It is one of contexts, and says of no channel, or not which, what its payloads begin with.
    #[error("bad contexts of a channel")]
    Channel,
    /// It is one of a command line, and that is none.
    #[error("bad command line")]
    Cmdline,
    /// The id has another description.
    #[error("event id {0} has another description")]
    Conflict(u16),
}
