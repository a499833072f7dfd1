//! The columns of an event.

use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};
use usertrace_reader::Field;
use usertrace_ring::schema::{Element, FieldType, Integer, Scalar};

use crate::fields::{Fields, Part};
use crate::names::ColumnNames;

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// An integer of so many bits: 8, 16, 32 or 64.
    Integer {
        bits: u8,
        signed: bool,
    },
    F32,
    F64,
    /// Text in UTF-8.
    Text,
    /// Text in UTF-8, of which there are few different ones.
    Symbol,
    /// Any bytes.
    Bytes,
}

/// How many values a column has in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Count {
    /// One.
    One,
    /// None or one.
    Optional,
    /// Any number.
    List,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) count: Count,
}

const U32: Kind = Kind::Integer {
    bits: 32,
    signed: false,
};
const U64: Kind = Kind::Integer {
    bits: 64,
    signed: false,
};
const S64: Kind = Kind::Integer {
    bits: 64,
    signed: true,
};

/// Columns of all rows, in this order: those of [`Fixed`].
const FIXED: [(&str, Kind, Count); 9] = [
    ("time", S64, Count::One),
    ("trace", Kind::Symbol, Count::Optional),
    ("process", Kind::Symbol, Count::Optional),
    ("pid", S64, Count::Optional),
    ("tid", S64, Count::Optional),
    ("cpu", U32, Count::Optional),
    ("provider", Kind::Symbol, Count::Optional),
    ("name", Kind::Symbol, Count::One),
    ("loglevel", U32, Count::Optional),
];

/// Columns of losses, in this order behind the fixed ones: those of [`OfLoss`].
const OF_LOSS: [(&str, Kind, Count); 4] = [
    ("lost", Kind::Symbol, Count::One),
    ("lost_count", U64, Count::One),
    ("lost_since", S64, Count::One),
    ("lost_file", Kind::Symbol, Count::One),
];

/// Columns that engines make of the names of directories.
const OF_DIRECTORIES: [&str; 3] = ["host", "date", "event"];

/// Indices of the columns that all rows have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fixed {
    Time,
    Trace,
    Process,
    Pid,
    Tid,
    Cpu,
    Provider,
    Name,
    Loglevel,
}

/// Indices of the columns of losses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfLoss {
    What = FIXED.len() as isize,
    Count,
    Since,
    File,
}

/// The columns of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A column of its own.
    Own(usize),
    /// An enumeration: its value, and its labels.
    Enum { value: usize, label: usize },
    /// Text: as UTF-8; and its bytes where it is not, if that has happened.
    Text { text: usize, bytes: Option<usize> },
    /// What is at code addresses.
    Code {
        function: usize,
        file: usize,
        line: usize,
    },
    /// [`Fixed::Cpu`].
    Cpu,
    /// [`Fixed::Tid`], as the ring says.
    RingThread,
}

/// The columns of an event in a class of streams, and where its fields are in them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub(crate) columns: Vec<Column>,
    pub(crate) packet: Vec<Place>,
    pub(crate) contexts: Vec<Place>,
    pub(crate) own: Vec<Place>,
    pub(crate) code: Vec<Place>,
    /// The context with the thread's id.
    pub(crate) thread: Option<usize>,
}

fn columns(of: &[(&str, Kind, Count)]) -> Vec<Column> {
    let columns = of.iter().map(|&(name, kind, count)| Column {
        name: name.to_owned(),
        kind,
        count,
    });
    columns.collect()
}

/// Assigns the columns of an event.
#[derive(Debug)]
struct Assigning {
    columns: Vec<Column>,
    names: ColumnNames,
}

impl Assigning {
    fn add(&mut self, name: String, kind: Kind, count: Count) -> usize {
        self.columns.push(Column { name, kind, count });
        self.columns.len() - 1
    }

    /// The columns of what is at the addresses of a field.
    fn code(&mut self, field: &str, is_list: bool) -> Place {
        let count = match is_list {
            true => Count::List,
            false => Count::Optional,
        };
        let mut add = |what: &str, kind| {
            let name = self.names.take(&format!("{field}_{what}"), "");
            self.add(name, kind, count)
        };
        Place::Code {
            function: add("function", Kind::Symbol),
            file: add("file", Kind::Symbol),
            line: add("line", U32),
        }
    }

    /// The columns of some fields. `prefix` is in front of all their names; `if_taken` in front of
    /// those that another column has.
    fn fields(
        &mut self,
        fields: &[Field],
        prefix: &str,
        if_taken: &str,
        is_raw: impl Fn(usize) -> bool,
    ) -> Vec<Place> {
        let mut places = Vec::new();
        for field in fields {
            let name = self
                .names
                .take(&format!("{prefix}{}", field.name), if_taken);
            let (kind, count) = kind_of(&field.kind);
            let column = self.add(name, kind, count);
            places.push(match field.kind {
                FieldType::Enum(..) => Place::Enum {
                    value: column,
                    label: 0,
                },
                _ if kind == Kind::Text => Place::Text {
                    text: column,
                    bytes: None,
                },
                _ => Place::Own(column),
            });
        }
        // Fields have their names before labels have theirs.
        for (n, place) in places.iter_mut().enumerate() {
            match place {
                Place::Enum { value, label } => {
                    let name = format!("{}_label", self.columns[*value].name);
                    let name = self.names.take(&name, "");
                    *label = self.add(name, Kind::Symbol, Count::Optional);
                }
                Place::Text { text, bytes } if is_raw(n) => {
                    let name = format!("{}_bytes", self.columns[*text].name);
                    let name = self.names.take(&name, "");
                    *bytes = Some(self.add(name, Kind::Bytes, Count::Optional));
                }
                _ => {}
            }
        }
        places
    }
}

/// Fields whose text was not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) contexts: Vec<usize>,
    pub(crate) own: Vec<usize>,
}

impl Raw {
    pub(crate) fn has(&self, part: Part, n: usize) -> bool {
        match part {
            Part::Packet | Part::Code => false,
            Part::Contexts => self.contexts.contains(&n),
            Part::Own => self.own.contains(&n),
        }
    }

    pub(crate) fn insert(&mut self, part: Part, n: usize) {
        match part {
            // Owners of rings are numbers, and names of code are always UTF-8.
            Part::Packet | Part::Code => {}
            Part::Contexts => self.contexts.push(n),
            Part::Own => self.own.push(n),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.contexts.is_empty() && self.own.is_empty()
    }
}

impl Layout {
    /// The columns of losses, whose fields are those of [`Shape::of_losses`].
    ///
    /// [`Shape::of_losses`]: crate::shape::Shape::of_losses
    pub(crate) fn of_losses(has_cpu: bool) -> Self {
        let text = |column: OfLoss| Place::Text {
            text: column as usize,
            bytes: None,
        };
        Self {
            columns: [columns(&FIXED), columns(&OF_LOSS)].concat(),
            packet: has_cpu.then_some(Place::Cpu).into_iter().collect(),
            contexts: Vec::new(),
            code: Vec::new(),
            own: vec![
                text(OfLoss::What),
                Place::Own(OfLoss::Count as usize),
                Place::Own(OfLoss::Since as usize),
                text(OfLoss::File),
            ],
            thread: None,
        }
    }

    /// Where the fields of a part are.
    pub(crate) fn part(&self, part: Part) -> &[Place] {
        match part {
            Part::Packet => &self.packet,
            Part::Contexts => &self.contexts,
            Part::Own => &self.own,
            Part::Code => &self.code,
        }
    }

    /// The columns of an event with these fields.
    pub(crate) fn of(event: &Fields, raw: &Raw) -> Self {
        let reserved: Vec<&str> = [&FIXED[..], &OF_LOSS]
            .concat()
            .iter()
            .map(|(name, ..)| *name)
            .chain(OF_DIRECTORIES)
            .collect();
        let mut assigning = Assigning {
            columns: columns(&FIXED),
            names: ColumnNames::new(&reserved),
        };
        // Names of fields do not depend on the channel, except where they look like a context's.
        let own = assigning.fields(&event.own, "", "field_", |n| raw.has(Part::Own, n));
        let thread = event
            .contexts
            .iter()
            .position(|context| context.name == "vtid");
        let contexts =
            assigning.fields(&event.contexts, "ctx_", "", |n| raw.has(Part::Contexts, n));
        let of_packet = event.packet.iter().map(|field| {
            let of_ring = std::slice::from_ref(field);
            match &field.name[..] {
                "cpu_id" => Place::Cpu,
                "tid" => Place::RingThread,
                _ => assigning.fields(of_ring, "packet_", "", |_| false)[0],
            }
        });
        let packet = of_packet.collect();
        let code = event.code.numbers.iter().zip(&event.code.is_list);
        let code = code.map(|(field, is_list)| assigning.code(&field.name, *is_list));
        let code = code.collect();
        Self {
            columns: assigning.columns,
            packet,
            contexts,
            own,
            code,
            thread,
        }
    }
}

fn kind_of(of: &FieldType) -> (Kind, Count) {
    match of {
        FieldType::Scalar(scalar) => (kind_of_scalar(*scalar), Count::One),
        FieldType::Enum(integer, _) => (kind_of_integer(*integer), Count::One),
        FieldType::Str
        | FieldType::Array(Element::Char, _)
        | FieldType::Sequence(Element::Char) => (Kind::Text, Count::One),
        FieldType::Array(Element::Scalar(scalar), _)
        | FieldType::Sequence(Element::Scalar(scalar)) => match kind_of_scalar(*scalar) {
            Kind::Integer {
                bits: 8,
                signed: false,
            } => (Kind::Bytes, Count::One),
            kind => (kind, Count::List),
        },
    }
}

fn kind_of_scalar(scalar: Scalar) -> Kind {
    match scalar {
        Scalar::Integer(integer) => kind_of_integer(integer),
        Scalar::Bool => Kind::Integer {
            bits: 8,
            signed: false,
        },
        Scalar::Float { len: 4 } => Kind::F32,
        Scalar::Float { .. } => Kind::F64,
    }
}

fn kind_of_integer(integer: Integer) -> Kind {
    Kind::Integer {
        bits: 8 * integer.len,
        signed: integer.signed,
    }
}

/// The schema of a file with these columns.
pub(crate) fn of_file(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|column| type_of(column).map(Arc::new));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let root = Type::group_type_builder("events").with_fields(fields);
    Ok(Arc::new(root.build()?))
}

fn type_of(column: &Column) -> Result<Type, ParquetError> {
    let value = |name: &str, repetition| {
        let (physical, logical) = match column.kind {
            Kind::Integer { bits, signed } => {
                let physical = if bits == 64 {
                    Physical::INT64
                } else {
                    Physical::INT32
                };
                // Readers of the format's first version know a number without a type, too.
                let logical = (bits, signed) != (64, true);
                let logical = logical.then(|| LogicalType::integer(bits.cast_signed(), signed));
                (physical, logical)
            }
            Kind::F32 => (Physical::FLOAT, None),
            Kind::F64 => (Physical::DOUBLE, None),
            Kind::Text | Kind::Symbol => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Bytes => (Physical::BYTE_ARRAY, None),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    };
    match column.count {
        Count::One => value(&column.name, Repetition::REQUIRED),
        Count::Optional => value(&column.name, Repetition::OPTIONAL),
        Count::List => {
            let element = value("element", Repetition::REQUIRED)?;
            let list = Type::group_type_builder("list")
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![Arc::new(element)])
                .build()?;
            Type::group_type_builder(&column.name)
                .with_repetition(Repetition::REQUIRED)
                .with_converted_type(ConvertedType::LIST)
                .with_logical_type(Some(LogicalType::List))
                .with_fields(vec![Arc::new(list)])
                .build()
        }
    }
}
