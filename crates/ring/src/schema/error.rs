//! Errors of descriptions.

use usertrace_sys::uapi::LTT_META_MAX;

use super::field::FieldError;

/// Why a description is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The line is too long.
    #[error("longer than {LTT_META_MAX} bytes")]
    TooLong,
    /// The line is not UTF-8, or has control characters.
    #[error("not text")]
    NotText,
    /// The id is missing, not a number, or out of range.
    #[error("bad event id")]
    Id,
    /// The name is missing, or not `PROVIDER:NAME`.
    #[error("bad event name")]
    Name,
    /// The log level is missing, or not a number.
    #[error("bad log level")]
    Loglevel,
    /// A field is invalid.
    #[error("bad field {text:?}: {error}")]
    Field {
        /// The field as the description has it.
        text: String,
        /// What is wrong with it.
        error: FieldError,
    },
    /// The contexts name no channel, or have a format.
    #[error("bad contexts of a channel")]
    Channel,
    /// What a channel counts by is not `#CHANNEL VALUE KEY`.
    #[error("bad description of what a channel counts by")]
    Counting,
    /// The command line is empty or not properly encoded.
    #[error("bad command line")]
    Cmdline,
    /// The module is not `+BASE SIZE PIC BUILD_ID CRC LINK PATH` or `-BASE`.
    #[error("bad description of a module")]
    Module,
    /// The id already has another description.
    #[error("event id {0} has another description")]
    Conflict(u16),
}
