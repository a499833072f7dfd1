//! Exit statuses that several commands share; their manual pages document them.

/// The command line is invalid; clap uses the same status.
pub(crate) const WRONG_COMMAND_LINE: u8 = 2;
/// Some of the input is damaged or missing.
pub(crate) const DAMAGED: u8 = 3;
/// The service is not enabled.
pub(crate) const NOT_ENABLED: u8 = 3;
