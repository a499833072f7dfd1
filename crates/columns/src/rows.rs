//! Rows that wait in memory until they are written: events as the trace has them.
//!
//! The reader's thread only copies them. The thread that writes takes them apart, column by column,
//! which costs less than value by value.

use std::sync::Arc;

use usertrace_reader::{Event, LossKind, Lost};
use usertrace_symbols::NamedField;

use crate::code::CodeTable;
use crate::origin::{Constants, Origin, Origins};
use crate::shape::Shape;

/// Memory of a row, besides its bytes: its time and its end.
const ROW: usize = size_of::<i64>() + size_of::<u32>();

/// Rows of one file.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) times: Vec<i64>,
    /// The fields of all rows.
    pub(crate) bytes: Vec<u8>,
    /// Where each row ends in the bytes.
    pub(crate) ends: Vec<u32>,
    /// So many rows in a row with the same fields. Their columns are the same for all.
    pub(crate) shapes: Vec<(Arc<Shape>, usize)>,
    /// What is at code addresses.
    pub(crate) code: CodeTable,
    origins: Origins,
    /// Memory that they take, besides the times, bytes and ends.
    others: usize,
}

impl Rows {
    /// The most bytes of all fields, with an event more. A place in them has 32 bits.
    pub(crate) const MOST: usize = 1 << 31;

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// How much memory they take, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.times.len() * ROW + self.others
    }

    /// The values of a column of origins. None: it has no such values.
    pub(crate) fn of_origins(&self, column: usize) -> Option<Constants<'_>> {
        self.origins.column(column)
    }

    /// Removes all rows, and keeps the memory for others.
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.bytes.clear();
        self.ends.clear();
        self.shapes.clear();
        self.code = CodeTable::default();
        (self.origins, self.others) = (Origins::default(), 0);
    }

    /// Adds a row of an event with these fields, and the functions at its addresses. Returns how
    /// much memory it takes.
    #[inline]
    pub(crate) fn event(
        &mut self,
        shape: &Arc<Shape>,
        origin: &Arc<Origin>,
        event: &Event<'_>,
        named: &[NamedField<'_>],
    ) -> usize {
        let parts = [event.packet, event.contexts, event.payload];
        self.bytes
            .reserve(parts.iter().map(|part| part.len()).sum());
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.bytes.extend_from_slice(part);
        }
        let of_code = &shape.fields.code;
        let others = self.code.push(&mut self.bytes, of_code, named);
        self.others += others;
        others + self.complete(shape, origin, event.ns)
    }

    /// Adds a row of a loss. The shape is that of [`of_losses`](Shape::of_losses). Returns how much
    /// memory it takes.
    pub(crate) fn lost(&mut self, shape: &Arc<Shape>, origin: &Arc<Origin>, lost: &Lost) -> usize {
        let (what, count) = match lost.kind {
            LossKind::Events(count) => ("events", count),
            LossKind::Packets(count) => ("packets", count),
        };
        let file = lost.path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(cpu) = lost.cpu {
            self.bytes.extend(cpu.to_ne_bytes());
        }
        self.text(what);
        self.bytes.extend(count.to_ne_bytes());
        self.bytes.extend(lost.begin.to_ne_bytes());
        self.text(&file);
        self.complete(shape, origin, lost.end)
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    #[inline]
    fn complete(&mut self, shape: &Arc<Shape>, origin: &Arc<Origin>, ns: i64) -> usize {
        let start = self.ends.last().copied().unwrap_or(0);
        let end = self.bytes.len() as u32;
        self.ends.push(end);
        self.times.push(ns);
        let mut others = self.origins.push(origin);
        match self.shapes.last_mut() {
            Some((last, rows)) if Arc::ptr_eq(last, shape) => *rows += 1,
            _ => {
                self.shapes.push((Arc::clone(shape), 1));
                others += size_of::<(Arc<Shape>, usize)>();
            }
        }
        self.others += others;
        (end - start) as usize + ROW + others
    }
}
