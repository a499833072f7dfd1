//! Takes rows apart, column by column.

use std::borrow::Cow;
use std::collections::HashMap;

use ahash::RandomState;
use usertrace_reader::{Enumeration, Field, Number, Value};
use usertrace_ring::schema::{Element, FieldType, Integer, Scalar};
use usertrace_symbols::Frame;

use crate::chunk::Contents;
use crate::encode;
use crate::fields::Part;
use crate::rows::Rows;
use crate::schema::{Column, Count, Fixed, Kind, Layout, Place, Raw};
use crate::values::{Data, Levels, Values, mismatch};

/// The type of the numbers of lines.
const LINE: Integer = Integer {
    len: 4,
    signed: false,
    hex: false,
    big_endian: false,
};

/// The encoded columns of rows.
#[derive(Debug)]
pub(crate) struct Split {
    /// Each with its place: the fixed ones with their indices, those of fields with the field's.
    columns: Vec<(Slot, Contents)>,
}

/// A column, whatever its index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// A column that has the same index in all layouts.
    Fixed(usize),
    /// The column of a field.
    Field(Part, usize),
    /// The labels of a field.
    Label(Part, usize),
    /// The bytes of a field whose text is not UTF-8.
    Bytes(Part, usize),
    /// What is at the code addresses of a field.
    Code(usize, CodeColumn),
}

/// A column of what is at code addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodeColumn {
    Function,
    File,
    Line,
}

impl Slot {
    fn index(self, layout: &Layout) -> Option<usize> {
        match self {
            Self::Fixed(index) => Some(index),
            Self::Field(part, n) => match *layout.part(part).get(n)? {
                Place::Own(column) => Some(column),
                Place::Enum { value, .. } => Some(value),
                Place::Text { text, .. } => Some(text),
                Place::Cpu | Place::RingThread | Place::Code { .. } => None,
            },
            Self::Label(part, n) => match *layout.part(part).get(n)? {
                Place::Enum { label, .. } => Some(label),
                _ => None,
            },
            Self::Bytes(part, n) => match *layout.part(part).get(n)? {
                Place::Text { bytes, .. } => bytes,
                _ => None,
            },
            Self::Code(n, column) => match (*layout.code.get(n)?, column) {
                (Place::Code { function, .. }, CodeColumn::Function) => Some(function),
                (Place::Code { file, .. }, CodeColumn::File) => Some(file),
                (Place::Code { line, .. }, CodeColumn::Line) => Some(line),
                _ => None,
            },
        }
    }
}

/// The column of the bytes of texts that are not UTF-8.
const BYTES: Column = Column {
    name: String::new(),
    kind: Kind::Bytes,
    count: Count::Optional,
};

impl Split {
    /// Takes rows apart, whose layout is this as long as all texts are UTF-8. Adds to `raw` the
    /// fields that have other texts.
    pub(crate) fn new(rows: &Rows, layout: &Layout, raw: &mut Raw) -> Self {
        let mut splitting = Splitting {
            rows,
            layout,
            starts: starts(&rows.ends),
            split: Self {
                columns: Vec::new(),
            },
            cpu: None,
            ring_thread: None,
            thread: None,
        };
        for part in Part::ALL {
            for n in 0..layout.part(part).len() {
                splitting.field(part, n, raw);
            }
        }
        splitting.fixed();
        splitting.split
    }

    /// The columns in the order of a layout.
    pub(crate) fn columns(self, layout: &Layout) -> Vec<Option<Contents>> {
        let mut columns = Vec::new();
        columns.resize_with(layout.columns.len(), || None);
        for (slot, contents) in self.columns {
            if let Some(index) = slot.index(layout) {
                columns[index] = Some(contents);
            }
        }
        columns
    }
}

/// Where each row starts.
fn starts(ends: &[u32]) -> Vec<u32> {
    let all_but_last = ends.iter().take(ends.len().saturating_sub(1));
    std::iter::once(0)
        .chain(all_but_last.copied())
        .take(ends.len())
        .collect()
}

struct Splitting<'a> {
    rows: &'a Rows,
    layout: &'a Layout,
    /// Where the next field of each row starts.
    starts: Vec<u32>,
    split: Split,
    cpu: Option<Vec<i64>>,
    ring_thread: Option<Vec<i64>>,
    thread: Option<Vec<i64>>,
}

/// Rows with the same fields.
struct Run<'a> {
    bytes: &'a [u8],
    /// Where the next field of each row starts, and where the row ends.
    starts: &'a mut [u32],
    ends: &'a [u32],
}

impl<'a> Splitting<'a> {
    /// Takes the next field of all rows.
    fn field(&mut self, part: Part, n: usize, raw: &mut Raw) {
        let (all, layout) = (self.rows, self.layout);
        let place = layout.part(part)[n];
        if let Place::Code {
            function,
            file,
            line,
        } = place
        {
            return self.code(n, [function, file, line]);
        }
        let columns = &layout.columns;
        let column = match place {
            Place::Own(column) | Place::Enum { value: column, .. } => &columns[column],
            Place::Text { text, .. } => &columns[text],
            Place::Cpu => &columns[Fixed::Cpu as usize],
            Place::RingThread => &columns[Fixed::Tid as usize],
            Place::Code { .. } => return,
        };
        let mut values = Values::new(column);
        if matches!(place, Place::Cpu | Place::RingThread) {
            (values.data, values.levels) = (Data::I64(Vec::new()), Levels::All);
        }
        let mut labels = match place {
            Place::Enum { label, .. } => Some(Values::new(&columns[label])),
            _ => None,
        };
        // Of texts that are not UTF-8.
        let mut bytes: Option<Values> = None;
        let mut first = 0;
        for (shape, rows) in &all.shapes {
            let range = first..first + rows;
            first += rows;
            let mut run = Run {
                bytes: &all.bytes,
                starts: &mut self.starts[range.clone()],
                ends: &all.ends[range.clone()],
            };
            let Some(field) = shape.fields.part(part).get(n) else {
                continue;
            };
            match &field.kind {
                FieldType::Scalar(scalar) => run.scalars(*scalar, &mut values.data),
                FieldType::Enum(kind, _) => {
                    run.integers(*kind, &mut values.data);
                    if let Some(labels) = &mut labels {
                        run.labels(field, *kind, labels);
                    }
                }
                FieldType::Str
                | FieldType::Array(Element::Char, _)
                | FieldType::Sequence(Element::Char) => {
                    run.texts(&field.kind, range.start, &mut values, &mut bytes);
                }
                FieldType::Array(Element::Scalar(_), _)
                | FieldType::Sequence(Element::Scalar(_)) => run.lists(field, &mut values),
            }
        }
        if bytes.is_some() && !raw.has(part, n) {
            raw.insert(part, n);
        }
        if part == Part::Contexts
            && layout.thread == Some(n)
            && matches!(column.kind, Kind::Integer { .. })
            && column.count == Count::One
        {
            self.thread = Some(values.integers());
        }
        match place {
            Place::Cpu => self.cpu = Some(values.integers()),
            Place::RingThread => self.ring_thread = Some(values.integers()),
            _ => self.add(Slot::Field(part, n), column, &values),
        }
        if let (Some(labels), Place::Enum { label, .. }) = (labels, place) {
            self.add(Slot::Label(part, n), &columns[label], &labels);
        }
        if raw.has(part, n) {
            let mut bytes = bytes.unwrap_or_else(|| Values::new(&BYTES));
            bytes.fill(all.len());
            self.add(Slot::Bytes(part, n), &BYTES, &bytes);
        }
    }

    /// Takes what is at the next field's code addresses in all rows, which is behind all others.
    fn code(&mut self, n: usize, columns: [usize; 3]) {
        let of = columns.map(|column| &self.layout.columns[column]);
        let [mut functions, mut files, mut lines] = of.map(Values::new);
        let is_list = of[0].count == Count::List;
        let table = &self.rows.code;
        let mut first = 0;
        for (shape, rows) in &self.rows.shapes {
            let range = first..first + rows;
            first += rows;
            let mut run = Run {
                bytes: &self.rows.bytes,
                starts: &mut self.starts[range.clone()],
                ends: &self.rows.ends[range],
            };
            let Some(field) = shape.fields.part(Part::Code).get(n) else {
                continue;
            };
            run.frames(field, |numbers| {
                let mut frames = numbers.flat_map(|number| table.get(number));
                if is_list {
                    let frames: Vec<&'a Frame> = frames.collect();
                    functions.text_list(frames.iter().map(|frame| &frame.function[..]));
                    let file = |frame: &&'a Frame| frame.file.as_deref().unwrap_or_default();
                    files.text_list(frames.iter().map(file));
                    let line =
                        |frame: &&Frame| Number::Integer(LINE, frame.line.unwrap_or(0).into());
                    lines.list(frames.iter().map(line));
                } else {
                    let frame = frames.next();
                    let file = frame.and_then(|frame| frame.file.as_deref());
                    functions.optional(frame.map(|frame| frame.function.as_bytes()));
                    files.optional(file.map(str::as_bytes));
                    lines.optional_integer(frame.and_then(|frame| frame.line).map(u64::from));
                }
            });
        }
        let slots = [CodeColumn::Function, CodeColumn::File, CodeColumn::Line];
        for ((slot, of), values) in slots.into_iter().zip(of).zip([&functions, &files, &lines]) {
            self.add(Slot::Code(n, slot), of, values);
        }
    }

    fn add(&mut self, slot: Slot, column: &Column, values: &Values) {
        let contents = encode::column(column, values);
        self.split.columns.push((slot, contents));
    }

    /// Makes the columns that all rows have.
    fn fixed(&mut self) {
        let column = |fixed: Fixed| {
            (
                Slot::Fixed(fixed as usize),
                &self.layout.columns[fixed as usize],
            )
        };
        let none = || std::iter::repeat_n(None, self.rows.len());
        let (slot, of) = column(Fixed::Time);
        let times = Values::of_integers(of, self.rows.times.iter().copied());
        let time = (slot, encode::column(of, &times));
        let (slot, of) = column(Fixed::Tid);
        let threads = match (&self.thread, &self.ring_thread) {
            (Some(threads), _) => Values::of_integers(of, threads.iter().copied()),
            // 0 means several threads.
            (None, Some(threads)) => {
                let threads = threads
                    .iter()
                    .map(|&thread| Some(thread).filter(|&thread| thread != 0));
                Values::of_optional(of, threads)
            }
            (None, None) => Values::of_optional(of, none()),
        };
        let tid = (slot, encode::column(of, &threads));
        let (slot, of) = column(Fixed::Cpu);
        let cpus = match &self.cpu {
            Some(cpus) => Values::of_integers(of, cpus.iter().copied()),
            None => Values::of_optional(of, none()),
        };
        let cpu = (slot, encode::column(of, &cpus));
        self.split.columns.extend([time, tid, cpu]);
        for index in 0..self.layout.columns.len() {
            if let Some(constants) = self.rows.of_origins(index) {
                let is_optional = self.layout.columns[index].count == Count::Optional;
                let contents = encode::constants(is_optional, &constants);
                self.split.columns.push((Slot::Fixed(index), contents));
            }
        }
    }
}

impl<'a> Run<'a> {
    /// The rest of each row, and where its next field starts.
    fn rows(&mut self) -> impl Iterator<Item = (&'a [u8], &mut u32)> {
        let bytes = self.bytes;
        self.starts
            .iter_mut()
            .zip(self.ends)
            .map(move |(start, end)| {
                let rest = bytes
                    .get(*start as usize..*end as usize)
                    .unwrap_or_default();
                (rest, start)
            })
    }

    /// Takes numbers of so many bytes.
    fn numbers<const N: usize, T>(&mut self, to: &mut Vec<T>, of: impl Fn([u8; N]) -> T) {
        let bytes = self.bytes;
        to.extend(self.starts.iter_mut().map(|start| {
            let rest = bytes.get(*start as usize..).unwrap_or_default();
            *start = start.wrapping_add(N as u32);
            of(*rest.first_chunk().unwrap_or(&[0; N]))
        }));
    }

    fn scalars(&mut self, scalar: Scalar, to: &mut Data) {
        match (scalar, to) {
            (Scalar::Integer(kind), to) => self.integers(kind, to),
            (Scalar::Bool, Data::I32(to)) => self.numbers(to, |[byte]| byte.into()),
            (Scalar::Float { len: 4 }, Data::F32(to)) => self.numbers(to, f32::from_ne_bytes),
            (Scalar::Float { .. }, Data::F64(to)) => self.numbers(to, f64::from_ne_bytes),
            (_, to) => mismatch(to),
        }
    }

    fn integers(&mut self, kind: Integer, to: &mut Data) {
        // Only a type in the other byte order is marked.
        let swap = kind.big_endian;
        macro_rules! load {
            ($of:ty, $to:ty) => {
                |bytes| {
                    let number = <$of>::from_ne_bytes(bytes);
                    let number = if swap { number.swap_bytes() } else { number };
                    number as $to
                }
            };
        }
        match (kind.len, kind.signed, to) {
            (1, false, Data::I32(to)) => self.numbers(to, load!(u8, i32)),
            (1, true, Data::I32(to)) => self.numbers(to, load!(i8, i32)),
            (2, false, Data::I32(to)) => self.numbers(to, load!(u16, i32)),
            (2, true, Data::I32(to)) => self.numbers(to, load!(i16, i32)),
            (4, _, Data::I32(to)) => self.numbers(to, load!(i32, i32)),
            (8, _, Data::I64(to)) => self.numbers(to, load!(i64, i64)),
            // The owner of a ring.
            (4, false, Data::I64(to)) => self.numbers(to, load!(u32, i64)),
            (4, true, Data::I64(to)) => self.numbers(to, load!(i32, i64)),
            (2, false, Data::I64(to)) => self.numbers(to, load!(u16, i64)),
            (2, true, Data::I64(to)) => self.numbers(to, load!(i16, i64)),
            (1, false, Data::I64(to)) => self.numbers(to, load!(u8, i64)),
            (1, true, Data::I64(to)) => self.numbers(to, load!(i8, i64)),
            (_, _, to) => mismatch(to),
        }
    }

    /// Adds the labels of the enumeration that was taken last.
    fn labels(&mut self, field: &Field, kind: Integer, to: &mut Values) {
        let Values {
            data: Data::Symbols(symbols),
            levels: Levels::Some(definition),
        } = to
        else {
            return mismatch(&to.data);
        };
        let mut known: HashMap<u64, Option<u32>, RandomState> = HashMap::default();
        for start in &*self.starts {
            let at = (*start as usize).saturating_sub(kind.len.into());
            let rest = self.bytes.get(at..*start as usize).unwrap_or_default();
            let mut key = [0; 8];
            let len = rest.len().min(8);
            key[..len].copy_from_slice(&rest[..len]);
            let label = known.entry(u64::from_ne_bytes(key)).or_insert_with(|| {
                let value = usertrace_reader::Values::new(std::slice::from_ref(field), rest).next();
                match value {
                    Some((_, Value::Enum(of))) => {
                        labels(&of).map(|label| symbols.index(label.as_bytes()))
                    }
                    _ => None,
                }
            });
            definition.push(label.is_some());
            symbols.rows.extend(*label);
        }
    }

    /// Takes texts. Those of `to` are UTF-8; the others' bytes are in `raw`, which begins with the
    /// first one. `first`: the number of the first row.
    fn texts(&mut self, kind: &FieldType, first: usize, to: &mut Values, raw: &mut Option<Values>) {
        for (n, (rest, start)) in self.rows().enumerate() {
            let (text, len) = content(kind, rest);
            *start = start.saturating_add(len as u32);
            let text = up_to_nul(text);
            let readable = String::from_utf8_lossy(text);
            to.text(readable.as_bytes());
            if let Cow::Owned(_) = readable {
                let raw = raw.get_or_insert_with(|| Values::new(&BYTES));
                raw.fill(first + n);
                raw.optional(Some(text));
            }
        }
    }

    /// Takes the numbers of frames of each row.
    fn frames(&mut self, field: &Field, mut take: impl FnMut(&mut dyn Iterator<Item = u64>)) {
        for (rest, start) in self.rows() {
            let (numbers, len) = content(&field.kind, rest);
            *start = start.saturating_add(len as u32);
            let (numbers, _) = numbers.as_chunks::<4>();
            take(
                &mut numbers
                    .iter()
                    .map(|number| u32::from_ne_bytes(*number).into()),
            );
        }
    }

    fn lists(&mut self, field: &Field, to: &mut Values) {
        for (rest, start) in self.rows() {
            let (elements, len) = content(&field.kind, rest);
            *start = start.saturating_add(len as u32);
            if let Data::Texts(texts) = &mut to.data {
                texts.push(elements);
                continue;
            }
            let value = usertrace_reader::Values::new(std::slice::from_ref(field), rest).next();
            match value {
                Some((_, Value::List(elements))) => to.list(elements),
                _ => return mismatch(&to.data),
            }
        }
    }
}

/// The elements of a field of variable length, and the length of all of it.
fn content<'a>(kind: &FieldType, rest: &'a [u8]) -> (&'a [u8], usize) {
    let (before, len) = match kind {
        FieldType::Array(element, len) => (0, element.size() * usize::from(*len)),
        FieldType::Sequence(element) => {
            let count = u32::from_ne_bytes(*rest.first_chunk().unwrap_or(&[0; 4]));
            (
                size_of::<u32>(),
                (count as usize).saturating_mul(element.size()),
            )
        }
        _ => {
            let text = up_to_nul(rest);
            return (text, text.len() + 1);
        }
    };
    let content = rest.get(before..).unwrap_or_default();
    (
        &content[..len.min(content.len())],
        before.saturating_add(len),
    )
}

fn up_to_nul(bytes: &[u8]) -> &[u8] {
    let len = bytes.iter().position(|&byte| byte == 0);
    &bytes[..len.unwrap_or(bytes.len())]
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
