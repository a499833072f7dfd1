//! Descriptions of a process's command line.

use super::{DescriptionError, percent};

/// Prefix of the description, in place of an event id.
const MARK: &str = "$ ";

/// Whether a line describes a command line.
pub(super) fn is_described_by(line: &str) -> bool {
    line.starts_with(MARK)
}

/// Parses a description without the NUL at its end.
pub(super) fn parse(line: &str) -> Result<String, DescriptionError> {
    let word = line.strip_prefix(MARK).filter(|word| !word.is_empty());
    let bytes = word.and_then(percent::decode_bytes);
    let bytes = bytes.ok_or(DescriptionError::Cmdline)?;
    // Arguments may be any bytes.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Formats a description, see [`parse`].
pub(super) fn line(text: &str) -> String {
    format!("{MARK}{}", percent::encode(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::schema::{Description, DescriptionError};

    #[test]
    fn command_lines_are_parsed() {
        let parse = |line: &str| Description::parse(line.as_bytes());
        for (line, text) in [
            ("$ .%2Fserver%20--port%2080", "./server --port 80"),
            ("$ a%0Ab\0", "a\nb"),
            ("$ %FFa", "\u{fffd}a"),
        ] {
            assert_eq!(parse(line), Ok(Description::Cmdline(text.to_owned())));
        }
        for line in ["$ ", "$ a b", "$ /", "$ %2", "$ %zz"] {
            assert_eq!(parse(line), Err(DescriptionError::Cmdline), "{line}");
        }
    }

    proptest! {
        #[test]
        fn command_lines_round_trip(text in ".{1,200}") {
            let description = Description::Cmdline(text);
            prop_assert_eq!(Description::parse(description.line().as_bytes()), Ok(description));
        }
    }
}
