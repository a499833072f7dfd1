//! Contexts: the fields with which all payloads of a channel begin.

use usertrace_sys::description::decimal;

use super::event::{fields, fixed_len, len_of};
use super::{DescriptionError, EventTable, Field};
use crate::PayloadLengths;

/// Prefix of a description of contexts, in place of an event id.
const MARK: char = '@';

/// The contexts of a channel, as the process described them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contexts {
    /// Index of the channel.
    pub channel: u32,
    /// The contexts in the order of the payload: at least one.
    pub fields: Vec<Field>,
    /// Length in bytes, if it is the same for all values.
    fixed_len: Option<usize>,
}

impl Contexts {
    /// Whether a line describes contexts.
    pub(super) fn is_described_by(line: &str) -> bool {
        line.starts_with(MARK)
    }

    /// Parses a description without the NUL at its end.
    pub(super) fn parse(line: &str) -> Result<Self, DescriptionError> {
        let rest = line.strip_prefix(MARK).ok_or(DescriptionError::Channel)?;
        let (channel, described) = rest.split_once(' ').ok_or(DescriptionError::Channel)?;
        let channel = decimal(channel).ok_or(DescriptionError::Channel)?;
        let (format, fields) = fields(described)?;
        if format.is_some() {
            return Err(DescriptionError::Channel);
        }
        Ok(Self {
            channel,
            fixed_len: fixed_len(&fields),
            fields,
        })
    }

    /// Formats the description.
    #[must_use]
    pub fn line(&self) -> String {
        let fields: Vec<_> = self.fields.iter().map(Field::to_string).collect();
        format!("{MARK}{} {}", self.channel, fields.join(";"))
    }

    /// Splits a payload into its contexts and the payload of the event. None if it is too short.
    #[must_use]
    pub fn split<'a>(&self, payload: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let len = match self.fixed_len {
            Some(len) => len,
            None => len_of(&self.fields, payload)?,
        };
        let padded = len.checked_next_multiple_of(8)?;
        Some((payload.get(..len)?, payload.get(padded..)?))
    }
}

/// Payload lengths in a channel with or without contexts.
#[derive(Clone, Copy, Debug)]
pub struct InChannel<'a> {
    /// The events of the process.
    pub events: &'a EventTable,
    /// The contexts of the channel.
    pub contexts: Option<&'a Contexts>,
}

impl PayloadLengths for InChannel<'_> {
    #[inline(always)]
    fn payload_len(&self, id: u16, bytes: &[u8]) -> Option<usize> {
        let Some(contexts) = self.contexts else {
            return self.events.payload_len(id, bytes);
        };
        let (_, rest) = contexts.split(bytes)?;
        let len = self.events.payload_len(id, rest)?;
        Some(bytes.len() - rest.len() + len)
    }

    fn record_lens(&self) -> &[u32] {
        match self.contexts {
            None => self.events.record_lens(),
            Some(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::{Description, FieldError};

    fn contexts(line: &str) -> Contexts {
        match Description::parse(line.as_bytes()) {
            Ok(Description::Contexts(contexts)) => contexts,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn contexts_are_parsed() {
        let line = "@1 u32 vtid;c8[16] procname;u64 app.request";
        let contexts = contexts(line);
        assert_eq!((contexts.channel, contexts.line()), (1, line.to_owned()));
        let names: Vec<_> = contexts.fields.iter().map(|f| &f.name[..]).collect();
        assert_eq!(names, ["vtid", "procname", "app.request"]);
    }

    #[test]
    fn events_follow_their_padded_contexts() {
        let mut events = EventTable::default();
        events.describe(b"7 a:b 0 u8 x;str s").unwrap();
        let payload = b"\x01\0\0\0\0\0\0\0xabc\0 and more";
        for (line, context) in [("@1 u32 vtid", 4), ("@1 u64 app.x", 8), ("@1 str s", 2)] {
            let contexts = contexts(line);
            let (context, rest) = (&payload[..context], &payload[8..]);
            assert_eq!(contexts.split(payload), Some((context, rest)), "{line}");
            assert_eq!(contexts.split(&payload[..7]), None);
            let lengths = InChannel {
                events: &events,
                contexts: Some(&contexts),
            };
            assert_eq!(lengths.payload_len(7, payload), Some(13));
            assert_eq!(lengths.payload_len(7, &payload[..12]), None);
            assert_eq!(lengths.payload_len(8, payload), None);
        }
        let without = InChannel {
            events: &events,
            contexts: None,
        };
        assert_eq!(without.payload_len(7, b"xabc\0"), Some(5));
    }

    proptest! {
        /// Nearly valid lines, and arbitrary payloads.
        ///
        /// Requirements: F4
        #[test]
        fn arbitrary_contexts_are_survived(
            line in "@[0-9]{0,2} (u8|str|c8\\[16\\]|u64\\[\\]|fmt) [a-z.]{0,3}(;(u64|str|s16\\[9\\]|none) x){0,3}",
            payload in prop::collection::vec(0u8..3, 0..64),
        ) {
            if let Ok(Description::Contexts(contexts)) = Description::parse(line.as_bytes()) {
                let again = Description::parse(contexts.line().as_bytes());
                prop_assert_eq!(again, Ok(Description::Contexts(contexts.clone())));
                if let Some((context, rest)) = contexts.split(&payload) {
                    prop_assert!(context.len() + rest.len() <= payload.len());
                    prop_assert!((payload.len() - rest.len()).is_multiple_of(8));
                }
            }
        }
    }

    #[test]
    fn invalid_contexts_are_refused() {
        for (line, error) in [
            ("@", DescriptionError::Channel),
            ("@1", DescriptionError::Channel),
            ("@ u8 x", DescriptionError::Channel),
            ("@-1 u8 x", DescriptionError::Channel),
            ("@4294967296 u8 x", DescriptionError::Channel),
            ("@1 fmt a", DescriptionError::Channel),
            (
                "@1 ",
                DescriptionError::Field {
                    text: String::new(),
                    error: FieldError::Name,
                },
            ),
            (
                "@1 u8 x;u7 y",
                DescriptionError::Field {
                    text: "u7 y".into(),
                    error: FieldError::Type,
                },
            ),
        ] {
            assert_eq!(Description::parse(line.as_bytes()), Err(error), "{line}");
        }
    }
}
