//! Exit statuses that mean the same for more than one command; their manual pages say so.

/// What was typed makes no sense. It is clap's, too.
pub(crate) const WRONG_COMMAND_LINE: u8 = 2;
/// Something of what was to be read is damaged, or missing.
pub(crate) const DAMAGED: u8 = 3;
