//! A table of counters with any bytes, which may change while it is read. Reading must end, copy
//! each cell at most once more for each change, and say of each cell in use that it is whole, or
//! why not.
//!
//! The input is a byte with options, the number of changes, and the table's bytes, followed by
//! zeros.
#![no_main]

use std::convert::Infallible;

use libfuzzer_sys::fuzz_target;
use usertrace_ring::{
    CountCell, CountGaps, CountTable, CountValues, Geometry, Positions, RingMemory,
};
use usertrace_sys::uapi::{LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE};

/// A table whose writer stores another count into the cell that is looked at, a few times.
struct Table<'a> {
    bytes: &'a mut [u8],
    changes: u8,
    copied: u64,
}

impl RingMemory for Table<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        let start = offset as usize;
        buffer.copy_from_slice(&self.bytes[start..start + buffer.len()]);
        self.copied += buffer.len() as u64;
    }

    fn load(&mut self, offset: u64) -> u64 {
        let start = offset as usize;
        let word = self.bytes[start..]
            .first_chunk_mut()
            .expect("in the table");
        let value = u64::from_le_bytes(*word);
        if value != 0 && self.changes > 0 {
            self.changes -= 1;
            *word = value.wrapping_add(1).max(1).to_le_bytes();
        }
        value
    }

    fn positions(&mut self) -> Positions {
        unreachable!("a table has none")
    }
}

/// Reads the whole table, and checks what it says of its cells.
fn read(table: CountTable, bytes: &mut [u8], changes: u8) -> (Vec<CountCell>, CountGaps) {
    let used = {
        let size = bytes.len() / table.cells() as usize;
        let counts = bytes.chunks_exact(size).take(table.cells() as usize);
        counts.filter(|cell| cell[..8] != [0; 8]).count() as u64
    };
    let len = bytes.len() as u64;
    let mut memory = Table {
        bytes,
        changes,
        copied: 0,
    };
    let mut cells = Vec::new();
    let Ok(gaps) = table.read(&mut memory, |cell| {
        assert!(cell.count > 0);
        assert_eq!(cell.values.is_some(), table.has_values());
        if let Some(values) = &cell.values {
            assert!(values.number() <= cell.count);
        }
        cells.push(cell);
        Ok::<_, Infallible>(())
    });
    assert_eq!(cells.len() as u64 + gaps.cells(), used);
    assert_eq!(gaps.busy, 0, "it changes a few times only");
    assert!(memory.copied <= len + (u64::from(changes) + 1) * u64::from(LTT_COUNT_CELL_VALUE));
    (cells, gaps)
}

fuzz_target!(|input: &[u8]| {
    let Some((&[how, changes], bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let bit = |n: u32| u32::from(how >> n & 1);
    let geometry = Geometry::new(4096 << bit(0), 2 << bit(1)).expect("a ring may be so");
    let cell_size = [LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE][bit(2) as usize];
    let table = CountTable::new(geometry, cell_size).expect("a cell may be so");
    let mut bytes = bytes.to_vec();
    // Without what is behind the last cell.
    bytes.resize((table.cells() * u64::from(cell_size)) as usize, 0);

    read(table, &mut bytes, changes);
    // It is at rest now.
    let first = read(table, &mut bytes, 0);
    assert_eq!(read(table, &mut bytes, 0), first);
    for signed in [false, true] {
        let all = first.0.iter().filter_map(|cell| cell.values.as_ref());
        let sum = all.copied().reduce(|mut sum: CountValues, more| {
            sum.add(&more, signed);
            sum
        });
        let number = first.0.iter().filter_map(|cell| Some(cell.values?.number()));
        let number = number.fold(0u64, u64::saturating_add);
        assert_eq!(sum.map_or(0, |sum| sum.number()), number);
    }
});
