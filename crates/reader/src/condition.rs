//! Conditions on the values of events, written as expressions: `--where`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use usertrace_expression::{
    Expression, Integer, ParseError, Reference, ReferenceKind, Segment, Source, Value as Operand,
};
use usertrace_ring::schema::{self, FieldType};

use crate::binding::{Area, Binding, Member, Part, Place};
use crate::field::Field;
use crate::metadata::{EventClass, Metadata, StreamClass};
use crate::value::{self, Enumeration, Number, Value};

/// A condition on the fields and contexts of an event.
///
/// [`bind`](Self::bind) looks up the names once for each kind of event. [`holds`](Self::holds)
/// then evaluates the condition for an event.
#[derive(Clone)]
pub struct Condition {
    text: Arc<str>,
    expression: Arc<Expression>,
}

/// A text is no condition. Prints the text with a caret under the place, on three lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionError {
    text: String,
    error: ParseError,
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.with_caret(self.text.as_bytes()).fmt(f)
    }
}

impl std::error::Error for ConditionError {}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        match Expression::parse(text.as_bytes()) {
            Ok(expression) => Ok(Self {
                text: text.into(),
                expression: Arc::new(expression),
            }),
            Err(error) => Err(ConditionError {
                text: text.to_owned(),
                error,
            }),
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.text).finish()
    }
}

/// The fields that a kind of event has: those of its packets, contexts, and its own.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// Fields that the packet of an event has.
    pub packet: &'a [Field],
    /// Contexts.
    pub contexts: &'a [Field],
    /// Fields of the event.
    pub fields: &'a [Field],
}

impl<'a> Declared<'a> {
    pub(crate) fn new(class: &'a StreamClass, event: &'a EventClass) -> Self {
        Self {
            packet: &class.packet,
            contexts: class.contexts.as_deref().unwrap_or_default(),
            fields: &event.fields,
        }
    }
}

/// The values of an event.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence<'a> {
    /// What the event declares: as it was bound.
    pub declared: Declared<'a>,
    /// The packet's fields.
    pub packet: &'a [u8],
    /// The contexts.
    pub contexts: &'a [u8],
    /// The event's fields.
    pub payload: &'a [u8],
    /// Whose event it is.
    pub process: ProcessOf<'a>,
}

/// Whose event it is, for contexts that the event does not have.
#[derive(Clone, Copy, Debug)]
pub enum ProcessOf<'a> {
    /// As the metadata of a trace say.
    Trace(&'a Metadata),
    /// A process id and a name.
    Process(u32, &'a str),
}

impl Condition {
    /// Looks up the condition's names in what an event declares.
    #[must_use]
    pub fn bind(&self, declared: &Declared<'_>) -> Binding {
        let references = self.expression.references(self.text.as_bytes());
        Binding(
            references
                .map(|reference| place(&reference, declared))
                .collect(),
        )
    }

    /// Whether an event fulfils the condition. An event that lacks what decides it does not.
    #[inline]
    #[must_use]
    pub fn holds(&self, binding: &Binding, occurrence: &Occurrence<'_>) -> bool {
        let mut values = BoundValues {
            binding,
            occurrence,
        };
        self.expression
            .evaluate(self.text.as_bytes(), &mut values)
            .is_match()
    }

    /// What to say of the names that none of these bindings has.
    pub fn unknown_names<'a>(
        &self,
        bindings: impl IntoIterator<Item = &'a Binding>,
    ) -> Vec<String> {
        let references: Vec<_> = self.expression.references(self.text.as_bytes()).collect();
        let mut is_known = vec![false; references.len()];
        for Binding(places) in bindings {
            for (is_known, place) in is_known.iter_mut().zip(places) {
                *is_known |= place.is_some();
            }
        }
        let unknown = references
            .iter()
            .zip(is_known)
            .filter(|(_, is_known)| !is_known);
        unknown
            .map(|(reference, _)| {
                let kind = match reference.kind() {
                    ReferenceKind::Field => "field",
                    ReferenceKind::Context | ReferenceKind::Application => "context",
                };
                format!("no event here has the {kind} \"{reference}\" of --where")
            })
            .collect()
    }
}

/// Fields of a description, as conditions are bound to.
#[must_use]
pub fn fields_of(description: &[schema::Field]) -> Vec<Field> {
    let field = |field: &schema::Field| Field {
        name: field.name.clone(),
        kind: field.kind.clone(),
        // As traces call it.
        length_name: matches!(field.kind, FieldType::Sequence(_))
            .then(|| format!("_{}_length", field.name)),
    };
    description.iter().map(field).collect()
}

/// Finds what a reference names.
fn place(reference: &Reference<'_>, declared: &Declared<'_>) -> Option<Place> {
    let mut names: Vec<String> = Vec::new();
    let mut index = None;
    for segment in reference.segments() {
        match (segment, index) {
            (Segment::Name(name), None) => names.push(String::from_utf8_lossy(name).into_owned()),
            (Segment::Index(number), None) => index = Some(usize::try_from(number).ok()?),
            // Events have neither structures nor arrays in arrays.
            _ => return None,
        }
    }
    // A name may contain dots.
    let name = names.join(".");
    let member = |area, name: &str| member(area, declared, name, index);
    match reference.kind() {
        ReferenceKind::Field => member(Area::Payload, &name),
        ReferenceKind::Application => member(Area::Contexts, &format!("app.{name}")),
        ReferenceKind::Context => context(&name, member),
    }
}

/// Finds a context: in the event, or what is known of its packet or its process.
fn context(name: &str, member: impl Fn(Area, &str) -> Option<Place>) -> Option<Place> {
    let contexts = |name| member(Area::Contexts, name);
    let packet = |name| member(Area::Packet, name);
    match name {
        // The ring's CPU is exact, that of the context was taken a moment before.
        "cpu_id" => packet("cpu_id").or_else(|| contexts("cpu_id")),
        "vtid" | "tid" => contexts("vtid").or_else(|| packet("tid")),
        "vpid" | "pid" => contexts("vpid").or(Some(Place::ProcessId)),
        "procname" => contexts("procname").or(Some(Place::ProcessName)),
        "hostname" => contexts("hostname").or(Some(Place::HostName)),
        name => contexts(name).or_else(|| packet(name)),
    }
}

/// Finds a field of this name, or the count of a sequence.
fn member(area: Area, declared: &Declared<'_>, name: &str, index: Option<usize>) -> Option<Place> {
    let fields = area.fields(declared);
    let count_of = |field: &Field| field.length_name.as_deref() == Some(name);
    // Traces have `_` in place of characters that identifiers cannot have.
    let is_like = |field: &Field| identifier(&field.name).eq(identifier(name));
    let found = fields.iter().position(|field| field.name == name);
    let found = found.or_else(|| fields.iter().position(is_like));
    let (field, part) = match found {
        Some(field) => (field, index.map_or(Part::Whole, Part::Element)),
        None => (fields.iter().position(count_of)?, Part::Count),
    };
    let is_there = match (&fields.get(field)?.kind, part) {
        (FieldType::Array(schema::Element::Scalar(_), length), Part::Element(index)) => {
            index < usize::from(*length)
        }
        (FieldType::Sequence(schema::Element::Scalar(_)), Part::Element(_)) => true,
        (_, Part::Element(_)) => false,
        (FieldType::Array(schema::Element::Scalar(_), _), Part::Whole)
        | (FieldType::Sequence(schema::Element::Scalar(_)), Part::Whole) => false,
        (_, Part::Whole) => true,
        (_, Part::Count) => index.is_none(),
    };
    let before = fields.get(..field)?.iter();
    let at = before
        .map(|field| field.kind.fixed_len())
        .sum::<Option<usize>>();
    let place = Place::Member(Member {
        area,
        index: field,
        at,
        part,
    });
    is_there.then_some(place)
}

/// The characters of a name as an identifier.
fn identifier(name: &str) -> impl Iterator<Item = char> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().map(allowed)
}

impl Area {
    #[inline]
    fn fields<'a>(self, declared: &Declared<'a>) -> &'a [Field] {
        match self {
            Self::Packet => declared.packet,
            Self::Contexts => declared.contexts,
            Self::Payload => declared.fields,
        }
    }

    #[inline]
    fn bytes<'a>(self, occurrence: &Occurrence<'a>) -> &'a [u8] {
        match self {
            Self::Packet => occurrence.packet,
            Self::Contexts => occurrence.contexts,
            Self::Payload => occurrence.payload,
        }
    }
}

/// The values of an event, for an evaluation.
struct BoundValues<'a> {
    binding: &'a Binding,
    occurrence: &'a Occurrence<'a>,
}

impl<'a> Source for BoundValues<'a> {
    type Text = &'a [u8];
    type Labels = Enumeration<'a>;

    #[inline]
    fn value(&mut self, reference: usize) -> Operand<&'a [u8], Enumeration<'a>> {
        match self.binding.0.get(reference).copied().flatten() {
            None => Operand::Missing,
            Some(Place::Member(member)) => {
                member_value(&member, self.occurrence).unwrap_or(Operand::Missing)
            }
            Some(Place::ProcessId) => self.occurrence.process.id(),
            Some(Place::ProcessName) => text(self.occurrence.process.name()),
            Some(Place::HostName) => text(self.occurrence.process.host()),
        }
    }

    #[inline]
    fn byte(&mut self, text: &'a [u8], at: usize) -> Option<u8> {
        text.get(at).copied()
    }

    fn next_label(&mut self, labels: &mut Enumeration<'a>) -> Option<&'a [u8]> {
        labels.take_name().map(str::as_bytes)
    }
}

fn text<Labels>(text: Option<&str>) -> Operand<&[u8], Labels> {
    text.map_or(Operand::Missing, |text| Operand::Text(text.as_bytes()))
}

#[inline]
fn member_value<'a>(
    member: &Member,
    occurrence: &Occurrence<'a>,
) -> Option<Operand<&'a [u8], Enumeration<'a>>> {
    let fields = member.area.fields(&occurrence.declared);
    let bytes = member.area.bytes(occurrence);
    let bytes = match member.at {
        Some(at) => bytes.get(at..)?,
        None => value::find(fields, member.index, bytes)?,
    };
    let value = match (
        value::read(&fields.get(member.index)?.kind, bytes).0,
        member.part,
    ) {
        (_, Part::Count) => return Some(Operand::Unsigned(value::count(bytes).into())),
        (Value::Scalar(value), Part::Whole) => value,
        (Value::Text(text), Part::Whole) => return Some(Operand::Text(text)),
        (Value::Enum(value), Part::Whole) => {
            let integer = match value.kind.signed {
                true => Integer::Signed(value.bits.cast_signed()),
                false => Integer::Unsigned(value.bits),
            };
            return Some(Operand::Enumeration(integer, value));
        }
        (Value::List(elements), Part::Element(index)) => elements.get(index)?,
        _ => return None,
    };
    Some(match value {
        Number::Integer(kind, bits) if kind.signed => Operand::Signed(bits.cast_signed()),
        Number::Integer(_, bits) => Operand::Unsigned(bits),
        Number::Bool(byte) => Operand::Bool(byte != 0),
        Number::F32(number) => Operand::Float(number.into()),
        Number::F64(number) => Operand::Float(number),
    })
}

impl<'a> ProcessOf<'a> {
    fn id<Text, Labels>(self) -> Operand<Text, Labels> {
        match self {
            Self::Trace(metadata) => metadata.pid().map_or(Operand::Missing, Operand::Signed),
            Self::Process(pid, _) => Operand::Unsigned(pid.into()),
        }
    }

    fn name(self) -> Option<&'a str> {
        match self {
            Self::Trace(metadata) => metadata.owner_name(),
            Self::Process(_, name) => Some(name),
        }
    }

    fn host(self) -> Option<&'a str> {
        match self {
            Self::Trace(metadata) => metadata.env_text("hostname"),
            Self::Process(..) => None,
        }
    }
}
