//! Rows that wait in memory until they are written, column by column.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use parquet::data_type::ByteArray;
use usertrace_reader::{Enumeration, Event, Field, LossKind, Lost, Number, Value, Values, value};

use crate::origin::{Constants, Origin, Origins};
use crate::schema::{Column, Count, Fixed, Kind, Layout, OfLoss, Place};

/// Memory of a column without values, in bytes: about what its buffers take from the first row on.
const EMPTY_COLUMN: usize = 256;
/// Memory of a different value of a column of symbols, besides its bytes.
const SYMBOL: usize = 128;

/// The values of a column.
#[derive(Debug)]
pub(crate) enum Data {
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    /// Values one after the other, and where each ends.
    Bytes(Vec<u8>, Vec<usize>),
    Symbols(Symbols),
}

/// Different values, each once, and which of them each row has.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    pub(crate) values: Vec<ByteArray>,
    pub(crate) rows: Vec<u32>,
    numbers: HashMap<Box<[u8]>, u32, RandomState>,
}

impl Symbols {
    /// Returns how much memory it takes besides the row's number.
    fn push(&mut self, value: &[u8]) -> usize {
        if let Some(&last) = self.rows.last()
            && self.values[last as usize].data() == value
        {
            self.rows.push(last);
            return 0;
        }
        if let Some(&number) = self.numbers.get(value) {
            self.rows.push(number);
            return 0;
        }
        let number = self.values.len() as u32;
        self.values.push(value.to_vec().into());
        self.numbers.insert(value.into(), number);
        self.rows.push(number);
        2 * value.len() + SYMBOL
    }
}

/// The values of a column, with the levels that Parquet has for them: whether there is a value, and
/// whether it is a further one of its row.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) data: Data,
    /// Empty if each row has a value.
    pub(crate) definition: Vec<i16>,
    /// Empty if no row has several values.
    pub(crate) repetition: Vec<i16>,
    count: Count,
}

impl Buffer {
    fn new(column: &Column) -> Self {
        let data = match column.kind {
            Kind::Integer { bits: 64, .. } => Data::I64(Vec::new()),
            Kind::Integer { .. } => Data::I32(Vec::new()),
            Kind::F32 => Data::F32(Vec::new()),
            Kind::F64 => Data::F64(Vec::new()),
            Kind::Text | Kind::Bytes => Data::Bytes(Vec::new(), Vec::new()),
            Kind::Symbol => Data::Symbols(Symbols::default()),
        };
        Self {
            data,
            definition: Vec::new(),
            repetition: Vec::new(),
            count: column.count,
        }
    }

    /// Memory of one value, besides bytes of variable length.
    fn width(&self) -> usize {
        let value = match self.data {
            Data::I32(_) | Data::F32(_) | Data::Symbols(_) => 4,
            Data::I64(_) | Data::F64(_) | Data::Bytes(..) => 8,
        };
        value
            + match self.count {
                Count::One => 0,
                Count::Optional => 2,
                Count::List => 4,
            }
    }

    fn null(&mut self) {
        self.definition.push(0);
    }

    fn is_there(&mut self) {
        if self.count == Count::Optional {
            self.definition.push(1);
        }
    }

    fn integer(&mut self, bits: u64) {
        self.is_there();
        self.push_integer(bits);
    }

    /// The bits are sign-extended: the lower ones are the value in fewer bits.
    fn push_integer(&mut self, bits: u64) {
        match &mut self.data {
            Data::I32(values) => values.push(bits as i32),
            Data::I64(values) => values.push(bits.cast_signed()),
            other => mismatch(other),
        }
    }

    fn push_number(&mut self, number: Number) {
        match (number, &mut self.data) {
            (Number::Integer(_, bits), _) => self.push_integer(bits),
            (Number::Bool(byte), _) => self.push_integer(byte.into()),
            (Number::F32(number), Data::F32(values)) => values.push(number),
            (Number::F64(number), Data::F64(values)) => values.push(number),
            (_, other) => mismatch(other),
        }
    }

    /// Returns how much memory it takes besides [`width`](Self::width).
    fn bytes(&mut self, value: &[u8]) -> usize {
        self.is_there();
        match &mut self.data {
            Data::Bytes(bytes, ends) => {
                bytes.extend_from_slice(value);
                ends.push(bytes.len());
                value.len()
            }
            Data::Symbols(symbols) => symbols.push(value),
            other => {
                mismatch(other);
                0
            }
        }
    }

    fn optional(&mut self, value: Option<&str>) -> usize {
        match value {
            Some(value) => self.bytes(value.as_bytes()),
            None => {
                self.null();
                0
            }
        }
    }

    /// Returns how much memory it takes besides [`width`](Self::width).
    fn list(&mut self, elements: impl Iterator<Item = Number>) -> usize {
        if let Data::Bytes(bytes, ends) = &mut self.data {
            let before = bytes.len();
            bytes.extend(elements.filter_map(|element| match element {
                Number::Integer(_, bits) => Some(bits as u8),
                Number::Bool(byte) => Some(byte),
                Number::F32(_) | Number::F64(_) => None,
            }));
            ends.push(bytes.len());
            return bytes.len() - before;
        }
        let mut count = 0;
        for element in elements {
            self.repetition.push(i16::from(count > 0));
            self.definition.push(1);
            self.push_number(element);
            count += 1;
        }
        if count == 0 {
            self.repetition.push(0);
            self.definition.push(0);
        }
        count * self.width()
    }
}

/// A layout is made of the fields of an event, so their types agree. If they did not, the column
/// would have too few values, and writing it would fail.
fn mismatch(data: &Data) {
    debug_assert!(false, "a value of another type for {data:?}");
}

/// The labels of a value, as one text.
fn labels<'a>(of: &Enumeration<'a>) -> Option<Cow<'a, str>> {
    let mut names = of.names();
    let first = names.next()?;
    let mut all = Cow::Borrowed(first);
    for name in names {
        let all = all.to_mut();
        all.push_str(", ");
        all.push_str(name);
    }
    Some(all)
}

/// Rows of one file.
#[derive(Debug)]
pub(crate) struct Rows {
    /// The columns. Those of origins stay empty.
    columns: Vec<Buffer>,
    origins: Origins,
    len: usize,
    /// Memory that the values take.
    bytes: usize,
    /// Memory of each row, besides values of variable length.
    width: usize,
}

impl Rows {
    pub(crate) fn new(columns: &[Column]) -> Self {
        let columns: Vec<_> = columns.iter().map(Buffer::new).collect();
        let own = columns.iter().enumerate();
        let own = own.filter(|(index, _)| !Origins::have(*index));
        Self {
            len: 0,
            bytes: columns.len() * EMPTY_COLUMN,
            width: own.map(|(_, column)| column.width()).sum(),
            columns,
            origins: Origins::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How much memory they take, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Empties a column, to free its memory.
    pub(crate) fn take(&mut self, column: usize) -> Option<Buffer> {
        let column = self.columns.get_mut(column)?;
        let empty = Buffer {
            data: Data::I32(Vec::new()),
            definition: Vec::new(),
            repetition: Vec::new(),
            count: column.count,
        };
        Some(std::mem::replace(column, empty))
    }

    /// The values of a column of origins.
    pub(crate) fn of_origins(&self, column: usize) -> Option<Constants<'_>> {
        self.origins.column(column)
    }

    /// Adds a row of an event, whose columns are those of the layout.
    pub(crate) fn event(&mut self, layout: &Layout, origin: &Arc<Origin>, event: &Event<'_>) {
        let (mut cpu, mut thread) = (None, None);
        for (place, (_, value)) in layout
            .packet
            .iter()
            .zip(Values::new(&event.stream.packet, event.packet))
        {
            match (place, value) {
                (Place::Cpu, Value::Scalar(Number::Integer(_, bits))) => cpu = Some(bits),
                // 0 means several threads.
                (Place::RingThread, Value::Scalar(Number::Integer(_, bits))) => {
                    thread = Some(bits).filter(|&bits| bits != 0);
                }
                (Place::Cpu | Place::RingThread, _) => {}
                (place, value) => self.field(*place, value),
            }
        }
        let contexts = event.stream.contexts.as_deref().unwrap_or_default();
        self.fields(&layout.contexts, contexts, event.contexts);
        self.fields(&layout.fields, &event.class.fields, event.payload);
        if let Some(index) = layout.thread {
            thread = value::integer(contexts, index, event.contexts).or(thread);
        }
        self.fixed(event.ns, origin, cpu, thread);
    }

    fn fields(&mut self, places: &[Place], fields: &[Field], bytes: &[u8]) {
        for (place, (_, value)) in places.iter().zip(Values::new(fields, bytes)) {
            self.field(*place, value);
        }
    }

    fn field(&mut self, place: Place, value: Value<'_>) {
        match (place, value) {
            (Place::Own(column), Value::Scalar(number)) => {
                self.columns[column].push_number(number);
            }
            (Place::Own(column), Value::List(elements)) => {
                self.bytes += self.columns[column].list(elements);
            }
            (Place::Enum { value, label }, Value::Enum(of)) => {
                self.columns[value].push_integer(of.bits);
                self.bytes += self.columns[label].optional(labels(&of).as_deref());
            }
            (Place::Text { text, bytes }, Value::Text(value)) => {
                let readable = String::from_utf8_lossy(value);
                self.bytes += self.columns[text].bytes(readable.as_bytes());
                if let Some(bytes) = bytes {
                    match readable {
                        Cow::Borrowed(_) => self.columns[bytes].null(),
                        Cow::Owned(_) => self.bytes += self.columns[bytes].bytes(value),
                    }
                }
            }
            (place, value) => debug_assert!(false, "{value:?} in {place:?}"),
        }
    }

    /// Adds a row of a loss.
    pub(crate) fn lost(&mut self, origin: &Arc<Origin>, lost: &Lost) {
        let (what, count) = match lost.kind {
            LossKind::Events(count) => ("events", count),
            LossKind::Packets(count) => ("packets", count),
        };
        let file = lost.path.file_name().unwrap_or_default().to_string_lossy();
        let mut bytes = self.columns[OfLoss::What as usize].bytes(what.as_bytes());
        self.columns[OfLoss::Count as usize].integer(count);
        self.columns[OfLoss::Since as usize].integer(lost.begin.cast_unsigned());
        bytes += self.columns[OfLoss::File as usize].bytes(file.as_bytes());
        self.bytes += bytes;
        self.fixed(lost.end, origin, lost.cpu.map(u64::from), None);
    }

    /// Completes a row.
    fn fixed(&mut self, ns: i64, origin: &Arc<Origin>, cpu: Option<u64>, thread: Option<u64>) {
        self.columns[Fixed::Time as usize].integer(ns.cast_unsigned());
        for (column, value) in [(Fixed::Tid, thread), (Fixed::Cpu, cpu)] {
            let column = &mut self.columns[column as usize];
            match value {
                Some(value) => column.integer(value),
                None => column.null(),
            }
        }
        self.bytes += self.origins.push(origin) + self.width;
        self.len += 1;
    }
}
