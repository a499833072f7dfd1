//! Functions at code addresses, as rows keep them until they are written.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use usertrace_reader::{Event, Field};
use usertrace_ring::schema::{Element, FieldType, Integer, Scalar};
use usertrace_symbols::{AddressKind, Area, Frame, NamedField};

/// Memory of what is at an address, besides its frames, about.
const PLACE: usize = 64;

/// The numbers of frames, one for each address.
const NUMBERS: FieldType = FieldType::Sequence(Element::Scalar(Scalar::Integer(Integer {
    len: 4,
    signed: false,
    hex: false,
    big_endian: false,
})));

/// The fields of an event that may have code addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeFields {
    /// Those in a row: numbers of frames. They are called as the columns with the addresses.
    pub(crate) numbers: Vec<Field>,
    /// Where the addresses are.
    areas: Vec<(Area, String)>,
    /// Whether a field is a list of addresses.
    pub(crate) is_list: Vec<bool>,
}

impl CodeFields {
    pub(crate) fn of(event: &Event<'_>) -> Self {
        let contexts = event.stream.contexts.iter().flatten();
        let contexts = contexts.map(|field| (Area::Context, field));
        let own = event.class.fields.iter();
        let mut all = Self::default();
        for (area, field) in contexts.chain(own.map(|field| (Area::Payload, field))) {
            let (kind, is_list) = match field.kind {
                FieldType::Scalar(Scalar::Integer(kind)) => (kind, false),
                FieldType::Sequence(Element::Scalar(Scalar::Integer(kind)))
                | FieldType::Array(Element::Scalar(Scalar::Integer(kind)), _) => (kind, true),
                _ => continue,
            };
            if AddressKind::of_field(&field.name).is_none() || kind.len != 8 {
                continue;
            }
            let prefix = match area {
                Area::Context => "ctx_",
                Area::Payload => "",
            };
            all.numbers.push(Field {
                name: format!("{prefix}{}", field.name),
                kind: NUMBERS,
                length_name: None,
            });
            all.areas.push((area, field.name.clone()));
            all.is_list.push(is_list);
        }
        all
    }
}

/// The functions at addresses, each set of them once.
#[derive(Debug, Default)]
pub(crate) struct CodeTable {
    all: Vec<Arc<[Frame]>>,
    /// By the address of the frames, which stay where they are.
    numbers: HashMap<usize, u32, RandomState>,
}

impl CodeTable {
    /// Appends the numbers of all frames of an event. Returns how much memory the new ones take.
    pub(crate) fn push(
        &mut self,
        bytes: &mut Vec<u8>,
        fields: &CodeFields,
        named: &[NamedField<'_>],
    ) -> usize {
        let mut added = 0;
        for (area, name) in &fields.areas {
            let mut named = named.iter();
            let field = named.find(|field| field.area == *area && field.name == name);
            let frames = field.map(|field| &field.frames[..]).unwrap_or_default();
            bytes.extend((frames.len() as u32).to_ne_bytes());
            for (_, frames) in frames {
                let next = self.all.len() as u32;
                let number = *self.numbers.entry(frames.as_ptr().addr()).or_insert(next);
                if number == next {
                    self.all.push(Arc::clone(frames));
                    added += frames.iter().map(Frame::memory).sum::<usize>() + PLACE;
                }
                bytes.extend(number.to_ne_bytes());
            }
        }
        added
    }

    /// The frames with this number.
    pub(crate) fn get(&self, number: u64) -> &[Frame] {
        let number = usize::try_from(number).ok();
        let frames = number.and_then(|number| self.all.get(number));
        frames.map(|frames| &frames[..]).unwrap_or_default()
    }
}
