//! Descriptions of channels that count.

use usertrace_sys::count::{is_key, is_value};
use usertrace_sys::description::decimal;

use super::DescriptionError;

/// Prefix of the description, in place of an event id.
const MARK: char = '#';
/// Stands for a name that the channel does not have.
const NONE: &str = "-";

/// What a channel counts by, as the process described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Index of the channel.
    pub channel: u32,
    /// The field whose values it adds up.
    pub value: Option<String>,
    /// The field, or context (`$ctx.NAME`), whose values it counts apart.
    pub key: Option<String>,
}

impl Counting {
    /// Whether a line describes a channel that counts.
    pub(super) fn is_described_by(line: &str) -> bool {
        line.starts_with(MARK)
    }

    /// Parses a description without the NUL at its end.
    pub(super) fn parse(line: &str) -> Result<Self, DescriptionError> {
        let words = line.strip_prefix(MARK).map(|line| line.split(' '));
        let mut words = words.ok_or(DescriptionError::Counting)?;
        let mut word = || words.next().ok_or(DescriptionError::Counting);
        let channel = decimal(word()?).ok_or(DescriptionError::Counting)?;
        let name = |word: &str, is_valid: &dyn Fn(&[u8]) -> bool| match word {
            NONE => Ok(None),
            name if is_valid(name.as_bytes()) => Ok(Some(name.to_owned())),
            _ => Err(DescriptionError::Counting),
        };
        let value = name(word()?, &is_value)?;
        let key = name(word()?, &is_key)?;
        match words.next() {
            None => Ok(Self {
                channel,
                value,
                key,
            }),
            Some(_) => Err(DescriptionError::Counting),
        }
    }

    /// Formats the description.
    #[must_use]
    pub fn line(&self) -> String {
        let name = |name: &Option<String>| name.as_deref().unwrap_or(NONE).to_owned();
        let (value, key) = (name(&self.value), name(&self.key));
        format!("{MARK}{} {value} {key}", self.channel)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::schema::{Description, DescriptionError};

    #[test]
    fn counting_is_parsed() {
        for line in [
            "#2 - -",
            "#31 size -",
            "#3 - path",
            "#4 bytes_read $ctx.procname",
            "#4 n $ctx.app.request",
        ] {
            let described = Description::parse(line.as_bytes()).unwrap();
            assert!(matches!(described, Description::Counting(_)));
            assert_eq!(described.line(), line);
        }
        for line in [
            "#",
            "#2",
            "#2 -",
            "#2 - - -",
            "#-2 - -",
            "#02 - -",
            "#00 - -",
            "# - -",
            "#4294967296 - -",
            "#2 $ctx.vtid -",
            "#2 - $ctx.nothing",
            "#2  - -",
            "#2 7 -",
            "#2 - - ",
        ] {
            let error = Description::parse(line.as_bytes());
            assert_eq!(error, Err(DescriptionError::Counting), "{line}");
        }
    }

    proptest! {
        /// Requirements: F4
        #[test]
        fn arbitrary_counting_is_survived(line in "#[0-9]{0,2}( [-a-z$.0_]{0,9}){0,4}") {
            if let Ok(described) = Description::parse(line.as_bytes()) {
                prop_assert_eq!(described.line(), line);
            }
        }
    }
}
