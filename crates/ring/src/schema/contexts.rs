//! What the payloads of a channel begin with, in front of the fields of events.

use usertrace_sys::description::decimal;

use super::event::fields;
use super::{DescriptionError, EventTable, Field};
use crate::PayloadLengths;

/// What a description of contexts begins with, in place of an event's id.
const MARK: char = '@';

/// The contexts of a channel, as its process described them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contexts {
    /// The channel's index.
    pub channel: u32,
    /// The contexts, in the order in which they are in the payload: at least one.
    pub fields: Vec<Field>,
    /// How long they are, if that does not depend on the values.
    fixed_len: Option<usize>,
}

impl Contexts {
    /// Whether a description is one of contexts.
    pub(super) fn is_described_by(line: &str) -> bool {
        line.starts_with(MARK)
    }

    /// Parses a description, without the NUL at its end.
    pub(super) fn parse(line: &str) -> Result<Self, DescriptionError> {
        let rest = line.strip_prefix(MARK).ok_or(DescriptionError::Channel)?;
        let (channel, described) = rest.split_once(' ').ok_or(DescriptionError::Channel)?;
        let channel = decimal(channel).ok_or(DescriptionError::Channel)?;
        let (format, fields) = fields(described)?;
        if format.is_some() {
            return Err(DescriptionError::Channel);
        }
        let mut lens = fields.iter();
        let fixed_len = lens.try_fold(0usize, |len, field| {
            len.checked_add(field.kind.fixed_len()?)
        });
        Ok(Self {
            channel,
            fields,
            fixed_len,
        })
    }

    /// Its description, as it is parsed.
    #[must_use]
    pub fn line(&self) -> String {
        let fields: Vec<_> = self.fields.iter().map(Field::to_string).collect();
        format!("{MARK}{} {}", self.channel, fields.join(";"))
    }

    /// A payload's contexts, and what is left of it for its event. None if it is too short.
    #[must_use]
    pub fn split<'a>(&self, payload: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let len = match self.fixed_len {
            Some(len) => len,
            None => super::event::len_of(&self.fields, payload)?,
        };
        let padded = len.checked_next_multiple_of(8)?;
        Some((payload.get(..len)?, payload.get(padded..)?))
    }
}

/// The payloads in a channel that has these contexts, if it has any.
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
    fn an_event_is_behind_its_padded_contexts() {
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
        /// F4: lines that are nearly right, and payloads of anything.
        #[test]
        fn no_contexts_are_too_strange(
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
    fn what_is_no_description_of_contexts_is_refused() {
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
