//! Collects declarations of a `metadata` file, independent of its language.

use std::collections::HashMap;
use std::sync::Arc;

use usertrace_ring::schema::{Element, FieldType, Integer, Scalar};

use crate::field::{Field, Length};
use crate::metadata::{Clock, EnvValue, EventClass, Metadata, StreamClass};

/// Type of a member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A full time of the trace's clock, in 64 bits.
    Time,
    /// The low 48 bits of an event's time.
    EventTime,
    EventId,
    /// A byte of a string.
    Char,
    Field(FieldType),
}

/// Whether a member is a single value, an array or a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    Array(i128),
    /// Its length is in the member of this name.
    Sequence(String),
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) kind: Type,
    pub(super) shape: Shape,
}

pub(super) const fn unsigned(len: u8) -> FieldType {
    FieldType::Scalar(Scalar::Integer(Integer {
        len,
        signed: false,
        hex: false,
        big_endian: false,
    }))
}

/// An error: its line, if it is not the current one, and a message.
pub(super) type MemberError = (Option<usize>, String);

/// The declarations so far.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    uuid: Option<[u8; 16]>,
    clock: Option<(String, Clock)>,
    clock_uid: Option<String>,
    env: Vec<(String, EnvValue)>,
    classes: Vec<StreamClass>,
    /// Index of each class.
    ids: HashMap<u32, usize>,
}

impl Declarations {
    pub(super) fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// Whether a trace is readable without any further declarations.
    pub(super) fn is_enough(&self) -> bool {
        self.uuid.is_some() && self.clock.is_some()
    }

    pub(super) fn is_clock(&self, name: &str) -> bool {
        self.clock.as_ref().is_some_and(|(known, _)| known == name)
    }

    pub(super) fn trace(&mut self, uuid: [u8; 16]) -> Result<(), String> {
        match self.uuid.replace(uuid) {
            None => Ok(()),
            Some(_) => Err("another trace".to_owned()),
        }
    }

    pub(super) fn environment(&mut self, env: impl IntoIterator<Item = (String, EnvValue)>) {
        self.env.extend(env);
    }

    /// Declares the clock. It was at 0 `offset_s` seconds and `offset` cycles after 1970.
    pub(super) fn clock(
        &mut self,
        name: String,
        freq: u64,
        offset_s: i64,
        offset: u64,
    ) -> Result<(), String> {
        let clock = Clock::new(freq, offset_s, offset).filter(|_| self.clock.is_none());
        let clock =
            clock.ok_or("a clock that does not run, or is of too long ago, or another one")?;
        self.clock = Some((name, clock));
        Ok(())
    }

    /// Adds what the declaration of the clock may say besides: its unique id, and its precision in
    /// cycles.
    pub(super) fn clock_quality(&mut self, uid: Option<String>, precision: Option<u64>) {
        self.clock_uid = uid.filter(|uid| !uid.is_empty());
        if let (Some((_, clock)), Some(precision)) = (&mut self.clock, precision) {
            clock.set_precision(precision);
        }
    }

    pub(super) fn stream(
        &mut self,
        id: u32,
        packet: Vec<Field>,
        contexts: Option<Vec<Field>>,
    ) -> Result<(), String> {
        let Length::Fixed(packet_len) = Length::of(&packet) else {
            return Err("a packet's context of any length".to_owned());
        };
        if packet_len > super::stream::MAX_PACKET_CONTEXT {
            return Err("a packet's context that is too long".to_owned());
        }
        if self.ids.insert(id, self.classes.len()).is_some() {
            return Err(format!("stream {id} is declared twice"));
        }
        let class = StreamClass::new(id, packet, packet_len, contexts);
        self.classes.push(class);
        Ok(())
    }

    pub(super) fn event(
        &mut self,
        stream_id: u32,
        id: u16,
        name: String,
        loglevel: Option<u32>,
        fields: Vec<Field>,
    ) -> Result<(), String> {
        let class = self.ids.get(&stream_id).copied();
        let class = class.and_then(|class| self.classes.get_mut(class));
        let class = class
            .ok_or_else(|| format!("an event of stream {stream_id}, which is not declared"))?;
        class.declare(EventClass {
            id,
            name,
            loglevel,
            len: Length::of(&fields),
            fields,
            is_wanted: true,
            binding: None,
        });
        Ok(())
    }

    /// Ends the declarations. `cut`: the line at which the file is cut short.
    pub(super) fn end(mut self, cut: Option<usize>) -> Result<Metadata, String> {
        let missing = |what| format!("it declares no {what}");
        let uuid = self.uuid.ok_or_else(|| missing("trace"))?;
        let (_, clock) = self.clock.ok_or_else(|| missing("clock"))?;
        for class in &mut self.classes {
            if let Some(id) = class.end() {
                return Err(format!("event id {id} is declared twice"));
            }
        }
        Ok(Metadata {
            uuid,
            clock,
            clock_uid: self.clock_uid,
            env: self.env,
            classes: Arc::new(self.classes),
            cut,
        })
    }
}

/// Converts members to fields. A sequence's length is in the member before it, which is merged into
/// the field. `shown` maps names to how they are shown.
pub(super) fn fields(
    members: Vec<Member>,
    shown: impl Fn(&str) -> &str,
) -> Result<Vec<Field>, MemberError> {
    let mut fields: Vec<Field> = Vec::new();
    // The last member, if it may be the length of a sequence.
    let mut length: Option<String> = None;
    for member in members {
        let wrong = |what: &str| (Some(member.line), format!("{} is {what}", member.name));
        let element = |kind| match kind {
            Type::Char => Ok(Element::Char),
            Type::Field(FieldType::Scalar(scalar)) => Ok(Element::Scalar(scalar)),
            _ => Err(wrong("an array of something strange")),
        };
        let mut length_name = None;
        let before = length.take();
        let kind = match (member.shape.clone(), member.kind.clone()) {
            (Shape::Single, Type::Field(kind)) => {
                if kind == unsigned(4) {
                    length = Some(member.name.clone());
                }
                kind
            }
            (Shape::Single, Type::Char | Type::Time | Type::EventTime | Type::EventId) => {
                return Err(wrong("of a strange type"));
            }
            (Shape::Array(len), kind) => {
                let len = u16::try_from(len).ok().filter(|&len| len > 0);
                let len = len.ok_or_else(|| wrong("an array of a strange length"))?;
                FieldType::Array(element(kind)?, len)
            }
            (Shape::Sequence(name), kind) => {
                if before.as_ref() != Some(&name) {
                    return Err(wrong("a sequence without its length before it"));
                }
                let kind = FieldType::Sequence(element(kind)?);
                length_name = fields.pop().map(|length| length.name);
                kind
            }
        };
        fields.push(Field {
            name: shown(&member.name).to_owned(),
            kind,
            length_name,
        });
    }
    Ok(fields)
}

/// Length in bytes of a number of this many bits. None if no number has as many.
pub(super) fn number_len<T: Into<i128>>(bits: T) -> Option<u8> {
    match bits.into() {
        8 => Some(1),
        16 => Some(2),
        32 => Some(4),
        64 => Some(8),
        _ => None,
    }
}

/// Whether integers of this base are displayed as hexadecimal. None for bases other than 10 and 16.
pub(super) fn is_hex<T: Into<i128>>(base: T) -> Option<bool> {
    match base.into() {
        10 => Some(false),
        16 => Some(true),
        _ => None,
    }
}

pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let is_valid = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    let digits = is_valid.then(|| text.replace('-', ""))?;
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}
