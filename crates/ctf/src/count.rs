//! The event `usertrace:count`: the state of a counter.

use usertrace_ring::schema::{Element, Event, Field, FieldType, Integer, Scalar};
use usertrace_ring::{CountCell, CountKey};

/// Name of the event.
pub const COUNT_EVENT: &str = "usertrace:count";

/// Id of the event in its class of streams, which has no other.
pub(super) const COUNT_ID: u16 = 1;
/// Its log level: `TRACE_INFO`.
const LOGLEVEL: u32 = 6;

/// The state of a counter, with the names of everything.
#[derive(Clone, Debug)]
pub(super) struct CountState<'a> {
    /// Name of the event; empty for those that found no cell.
    pub(super) event: &'a str,
    pub(super) channel: &'a str,
    pub(super) cpu: u32,
    /// Name of the key; empty if the channel has none.
    pub(super) key_name: &'a str,
    pub(super) key_is_signed: bool,
    /// Name of the field with the values; empty if the channel has none.
    pub(super) value_name: &'a str,
    pub(super) value_is_signed: bool,
    pub(super) cell: &'a CountCell,
}

/// The description of the event.
pub(super) fn count_event() -> Event {
    let integer = |signed, len| {
        let big_endian = cfg!(target_endian = "big");
        Integer {
            signed,
            len,
            hex: false,
            big_endian,
        }
    };
    let scalar = |signed, len| FieldType::Scalar(Scalar::Integer(integer(signed, len)));
    let unsigned = Element::Scalar(Scalar::Integer(integer(false, 8)));
    let fields = [
        ("event", FieldType::Str),
        ("channel", FieldType::Str),
        ("cpu_id", scalar(false, 4)),
        ("key_name", FieldType::Str),
        ("key", FieldType::Str),
        ("value_name", FieldType::Str),
        ("count", scalar(false, 8)),
        ("values", scalar(false, 8)),
        ("sum", scalar(true, 8)),
        ("min", scalar(true, 8)),
        ("max", scalar(true, 8)),
        ("histogram", FieldType::Sequence(unsigned)),
    ];
    Event {
        id: COUNT_ID,
        name: COUNT_EVENT.to_owned(),
        loglevel: LOGLEVEL,
        format: None,
        fields: fields
            .into_iter()
            .map(|(name, kind)| Field {
                name: name.to_owned(),
                kind,
            })
            .collect(),
    }
}

impl CountState<'_> {
    /// The payload of the event.
    pub(super) fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let key = key_text(&self.cell.key, self.key_is_signed);
        push_text(&mut payload, self.event);
        push_text(&mut payload, self.channel);
        payload.extend_from_slice(&self.cpu.to_ne_bytes());
        push_text(&mut payload, self.key_name);
        push_text(&mut payload, &key);
        push_text(&mut payload, self.value_name);
        let values = self.cell.values.as_ref();
        let histogram = values.map_or(&[][..], |values| &values.histogram);
        let used = histogram.iter().rposition(|&bucket| bucket != 0);
        let histogram = &histogram[..used.map_or(0, |last| last + 1)];
        let number = values.map_or(0, |values| values.number());
        let known = values.filter(|_| number > 0);
        let extreme = |value: u64| match self.value_is_signed {
            true => value.cast_signed(),
            false => i64::try_from(value).unwrap_or(i64::MAX),
        };
        payload.extend_from_slice(&self.cell.count.to_ne_bytes());
        payload.extend_from_slice(&number.to_ne_bytes());
        for value in [
            known.map_or(0, |values| saturated(values.sum)),
            known.map_or(0, |values| extreme(values.min)),
            known.map_or(0, |values| extreme(values.max)),
        ] {
            payload.extend_from_slice(&value.to_ne_bytes());
        }
        payload.extend_from_slice(&(histogram.len() as u32).to_ne_bytes());
        for bucket in histogram {
            payload.extend_from_slice(&bucket.to_ne_bytes());
        }
        payload
    }
}

/// Appends a text and its NUL. The text ends at a NUL of its own.
fn push_text(payload: &mut Vec<u8>, text: &str) {
    payload.extend(text.bytes().take_while(|&byte| byte != 0));
    payload.push(0);
}

fn saturated(sum: i128) -> i64 {
    let limit = if sum < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(sum).unwrap_or(limit)
}

/// A key as text: numbers in decimal.
fn key_text(key: &CountKey, is_signed: bool) -> String {
    match key {
        CountKey::None => String::new(),
        CountKey::Number(number) if is_signed => number.cast_signed().to_string(),
        CountKey::Number(number) => number.to_string(),
        CountKey::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            // The writer cuts keys off, perhaps within a character.
            Err(error) if error.error_len().is_none() => {
                String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned()
            }
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use usertrace_ring::CountValues;

    use super::*;

    fn state(cell: &CountCell) -> CountState<'_> {
        CountState {
            event: "libc:malloc",
            channel: "sizes",
            cpu: 3,
            key_name: "",
            key_is_signed: false,
            value_name: "size",
            value_is_signed: true,
            cell,
        }
    }

    #[test]
    fn payload_agrees_with_the_description() {
        let mut histogram = [0; 64];
        (histogram[0], histogram[5]) = (1, 7);
        let cell = CountCell {
            count: 9,
            id: Some(1),
            key: CountKey::None,
            values: Some(CountValues {
                sum: i128::from(i64::MIN) - 1,
                min: (-3i64).cast_unsigned(),
                max: 31,
                histogram,
            }),
        };
        let payload = state(&cell).payload();
        let event = count_event();
        assert_eq!(event.payload_len(&payload), Some(payload.len()));
        let tail: Vec<u8> = [9, 8, i64::MIN, -3, 31]
            .iter()
            .flat_map(|n: &i64| n.to_ne_bytes())
            .chain(6u32.to_ne_bytes())
            .chain([1u64, 0, 0, 0, 0, 7].iter().flat_map(|n| n.to_ne_bytes()))
            .collect();
        assert!(payload.ends_with(&tail), "{payload:?}");
        assert!(payload.starts_with(b"libc:malloc\0sizes\0\x03\0\0\0\0\0size\0"));
        assert_eq!(Event::parse(event.line().as_bytes()), Ok(event));
    }

    #[test]
    fn keys_are_text() {
        let text = |key, signed| key_text(&key, signed);
        assert_eq!(text(CountKey::Number(u64::MAX), true), "-1");
        assert_eq!(
            text(CountKey::Number(u64::MAX), false),
            u64::MAX.to_string()
        );
        assert_eq!(text(CountKey::Text(b"/api".to_vec()), false), "/api");
        assert_eq!(
            text(CountKey::Text("aü".as_bytes()[..2].to_vec()), false),
            "a"
        );
        assert_eq!(text(CountKey::Text(b"\xffa".to_vec()), false), "\u{fffd}a");
        assert_eq!(text(CountKey::None, false), "");
    }
}
