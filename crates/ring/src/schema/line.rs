//! Validation of lines of the control channel, before they are parsed.

use usertrace_sys::uapi::LTT_META_MAX;

use super::DescriptionError;

/// Validates a line as text, and strips the NUL at its end.
pub(super) fn text(line: &[u8]) -> Result<&str, DescriptionError> {
    let line = line.strip_suffix(&[0]).unwrap_or(line);
    if line.len() >= LTT_META_MAX {
        return Err(DescriptionError::TooLong);
    }
    let line = std::str::from_utf8(line).map_err(|_| DescriptionError::NotText)?;
    if line.chars().any(char::is_control) {
        return Err(DescriptionError::NotText);
    }
    Ok(line)
}
