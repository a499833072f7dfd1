//! A line of the control channel, before it is known what it describes.

use usertrace_sys::uapi::LTT_META_MAX;

use super::DescriptionError;

/// The line as text, without the NUL that may be at its end.
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
