//! Values of a column, before they are encoded.

use std::collections::HashMap;

use ahash::RandomState;
use usertrace_reader::Number;

use crate::schema::{Column, Count, Kind};

/// The values of a column, without those that are not there.
#[derive(Debug)]
pub(crate) enum Data {
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Texts(Texts),
    Symbols(Symbols),
}

/// Texts, or other bytes.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// One behind the other.
    pub(crate) bytes: Vec<u8>,
    /// Where each ends.
    pub(crate) ends: Vec<usize>,
}

impl Texts {
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let text = &self.bytes[start..end];
            start = end;
            text
        })
    }
}

/// Different texts, each once, and which of them each value is.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    pub(crate) values: Vec<Box<[u8]>>,
    pub(crate) rows: Vec<u32>,
    indices: HashMap<Box<[u8]>, u32, RandomState>,
}

impl Symbols {
    /// The index of a text.
    pub(crate) fn index(&mut self, text: &[u8]) -> u32 {
        if let Some(&index) = self.indices.get(text) {
            return index;
        }
        let index = self.values.len() as u32;
        self.values.push(text.into());
        self.indices.insert(text.into(), index);
        index
    }
}

/// Which values are there, as Parquet's levels say it.
#[derive(Debug)]
pub(crate) enum Levels {
    /// All.
    All,
    /// Of each row, whether its value is there.
    Some(Vec<bool>),
    /// Of each element, and of each empty list, whether it is an element, and whether it is a
    /// further one of its row.
    Lists {
        definition: Vec<bool>,
        repetition: Vec<bool>,
    },
}

/// A column's values.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) data: Data,
    pub(crate) levels: Levels,
}

impl Values {
    /// No values yet, of the type of the column.
    pub(crate) fn new(column: &Column) -> Self {
        let data = match column.kind {
            Kind::Integer { bits: 64, .. } => Data::I64(Vec::new()),
            Kind::Integer { .. } => Data::I32(Vec::new()),
            Kind::F32 => Data::F32(Vec::new()),
            Kind::F64 => Data::F64(Vec::new()),
            Kind::Text | Kind::Bytes => Data::Texts(Texts::default()),
            Kind::Symbol => Data::Symbols(Symbols::default()),
        };
        let levels = match column.count {
            Count::One => Levels::All,
            Count::Optional => Levels::Some(Vec::new()),
            Count::List => Levels::Lists {
                definition: Vec::new(),
                repetition: Vec::new(),
            },
        };
        Self { data, levels }
    }

    /// Integers of a column, all of which are there.
    pub(crate) fn of_integers(column: &Column, bits: impl Iterator<Item = i64>) -> Self {
        let data = match column.kind {
            Kind::Integer { bits: 64, .. } => Data::I64(bits.collect()),
            _ => Data::I32(bits.map(|bits| bits as i32).collect()),
        };
        let levels = Levels::All;
        Self { data, levels }
    }

    /// Integers of a column, as far as they are there.
    pub(crate) fn of_optional(
        column: &Column,
        bits: impl Iterator<Item = Option<i64>> + Clone,
    ) -> Self {
        let definition = bits.clone().map(|bits| bits.is_some()).collect();
        Self {
            levels: Levels::Some(definition),
            ..Self::of_integers(column, bits.flatten())
        }
    }

    /// How many values there are, with those that are not there.
    pub(crate) fn len(&self) -> usize {
        match (&self.levels, &self.data) {
            (
                Levels::Some(levels)
                | Levels::Lists {
                    definition: levels, ..
                },
                _,
            ) => levels.len(),
            (Levels::All, Data::I32(values)) => values.len(),
            (Levels::All, Data::I64(values)) => values.len(),
            (Levels::All, Data::F32(values)) => values.len(),
            (Levels::All, Data::F64(values)) => values.len(),
            (Levels::All, Data::Texts(texts)) => texts.ends.len(),
            (Levels::All, Data::Symbols(symbols)) => symbols.rows.len(),
        }
    }

    /// Integers, sign-extended. Empty if the column has others.
    pub(crate) fn integers(&self) -> Vec<i64> {
        match &self.data {
            Data::I32(values) => values.iter().map(|&value| value.into()).collect(),
            Data::I64(values) => values.clone(),
            _ => Vec::new(),
        }
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, text: &[u8]) {
        match &mut self.data {
            Data::Texts(texts) => texts.push(text),
            Data::Symbols(symbols) => {
                let index = symbols.index(text);
                symbols.rows.push(index);
            }
            other => mismatch(other),
        }
    }

    /// Adds a value that is there, or not.
    pub(crate) fn optional(&mut self, text: Option<&[u8]>) {
        if let Levels::Some(definition) = &mut self.levels {
            definition.push(text.is_some());
        }
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// Adds values that are not there, up to this row.
    pub(crate) fn fill(&mut self, row: usize) {
        if let Levels::Some(definition) = &mut self.levels {
            definition.resize(row, false);
        }
    }

    /// Adds the elements of a row.
    pub(crate) fn list(&mut self, elements: impl Iterator<Item = Number>) {
        let mut is_first = true;
        for element in elements {
            self.level(true, !is_first);
            self.number(element);
            is_first = false;
        }
        if is_first {
            self.level(false, false);
        }
    }

    /// Adds the elements of a row as texts.
    pub(crate) fn text_list<'a>(&mut self, elements: impl Iterator<Item = &'a str>) {
        let mut is_first = true;
        for element in elements {
            self.level(true, !is_first);
            self.text(element.as_bytes());
            is_first = false;
        }
        if is_first {
            self.level(false, false);
        }
    }

    /// Adds an integer that is there, or not.
    pub(crate) fn optional_integer(&mut self, bits: Option<u64>) {
        if let Levels::Some(definition) = &mut self.levels {
            definition.push(bits.is_some());
        }
        match (bits, &mut self.data) {
            (None, _) => {}
            (Some(bits), Data::I32(values)) => values.push(bits as i32),
            (Some(bits), Data::I64(values)) => values.push(bits.cast_signed()),
            (Some(_), other) => mismatch(other),
        }
    }

    fn level(&mut self, is_element: bool, is_further: bool) {
        if let Levels::Lists {
            definition,
            repetition,
        } = &mut self.levels
        {
            definition.push(is_element);
            repetition.push(is_further);
        }
    }

    fn number(&mut self, number: Number) {
        match (number, &mut self.data) {
            (Number::Integer(_, bits), Data::I32(values)) => values.push(bits as i32),
            (Number::Integer(_, bits), Data::I64(values)) => values.push(bits.cast_signed()),
            (Number::Bool(byte), Data::I32(values)) => values.push(byte.into()),
            (Number::F32(number), Data::F32(values)) => values.push(number),
            (Number::F64(number), Data::F64(values)) => values.push(number),
            (_, other) => mismatch(other),
        }
    }
}

/// A layout is made of the fields of an event, so their types agree. If they did not, the column
/// would have too few values, and writing it would fail.
pub(crate) fn mismatch(data: &Data) {
    debug_assert!(false, "a value of another type for {data:?}");
}
