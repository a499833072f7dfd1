//! The code addresses in an event.

use std::collections::HashMap;
use std::sync::Arc;

use usertrace_reader::{Event, Field, Number, Value, Values};

use crate::frame::Frame;
use crate::stack::{AddressKind, MAX_FRAMES};

/// Where an event has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Among its contexts.
    Context,
    /// Among its own fields.
    Payload,
}

/// A field with code addresses, and what they are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedField<'a> {
    /// Where it is.
    pub area: Area,
    /// Its name.
    pub name: &'a str,
    /// What its addresses point to.
    pub kind: AddressKind,
    /// It is a list of addresses.
    pub is_list: bool,
    /// Each address, and its functions: the innermost of those that are inlined there first.
    pub frames: Vec<(u64, Arc<[Frame]>)>,
    /// The trace knows the module at one of the addresses at least.
    pub(crate) is_known: bool,
}

/// Remembers which classes of events have code addresses.
#[derive(Debug, Default)]
pub(crate) struct AddressFields {
    /// By the addresses of the class of the stream and of the event. These change only when the
    /// reader looks for new declarations.
    known: HashMap<[usize; 2], bool>,
    last: Option<([usize; 2], bool)>,
}

impl AddressFields {
    pub(crate) fn clear(&mut self) {
        (self.known, self.last) = (HashMap::new(), None);
    }

    /// Whether events of this class have any code address.
    #[inline]
    pub(crate) fn has_any(&mut self, event: &Event<'_>) -> bool {
        let class = [
            std::ptr::from_ref(event.stream).addr(),
            std::ptr::from_ref(event.class).addr(),
        ];
        match self.last {
            Some((last, has_any)) if last == class => has_any,
            _ => {
                let has_any = *self.known.entry(class).or_insert_with(|| {
                    let contexts = event.stream.contexts.iter().flatten();
                    let mut names = contexts.chain(&event.class.fields);
                    names.any(|field| AddressKind::of_field(&field.name).is_some())
                });
                self.last = Some((class, has_any));
                has_any
            }
        }
    }
}

/// The fields with code addresses of an event, without their names.
pub(crate) fn addresses<'a>(event: &Event<'a>) -> Vec<NamedField<'a>> {
    let contexts: &'a [Field] = event.stream.contexts.as_deref().unwrap_or_default();
    let areas = [
        (Area::Context, contexts, event.contexts),
        (Area::Payload, &event.class.fields, event.payload),
    ];
    let mut found = Vec::new();
    for (area, fields, bytes) in areas {
        for (field, value) in Values::new(fields, bytes) {
            let Some(kind) = AddressKind::of_field(&field.name) else {
                continue;
            };
            let bits = |number| match number {
                Number::Integer(kind, bits) if kind.len == 8 => Some(bits),
                _ => None,
            };
            let (is_list, addresses): (_, Vec<u64>) = match value {
                Value::Scalar(number) => (false, bits(number).into_iter().collect()),
                Value::List(numbers) => (true, numbers.take(MAX_FRAMES).filter_map(bits).collect()),
                _ => continue,
            };
            let addresses = addresses.into_iter().filter(|&address| address != 0);
            let frames: Vec<_> = addresses.map(|address| (address, Arc::default())).collect();
            if !frames.is_empty() {
                found.push(NamedField {
                    area,
                    name: &field.name,
                    kind,
                    is_list,
                    frames,
                    is_known: false,
                });
            }
        }
    }
    found
}
