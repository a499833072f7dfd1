//! Tests of the reader of tables of counters: wherever a writer stops, and whatever it does while
//! the reader reads (A11, F4).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

use proptest::prelude::*;
use usertrace_ring::{
    CountCell, CountGaps, CountKey, CountTable, CountValues, Frozen, Geometry, Positions,
    RingMemory,
};
use usertrace_testing::count_table::{CountTableWriter, Key};

const SUBBUF: u32 = 4096;
const COUNT: u32 = 2;
const LEN: usize = (SUBBUF * COUNT) as usize;

fn table(has_values: bool) -> CountTable {
    let geometry = Geometry::new(SUBBUF, COUNT).unwrap();
    CountTable::new(geometry, if has_values { 640 } else { 64 }).unwrap()
}

fn read(table: CountTable, memory: &mut impl RingMemory) -> (Vec<CountCell>, CountGaps) {
    let mut cells = Vec::new();
    let Ok(gaps) = table.read(memory, |cell| {
        cells.push(cell);
        Ok::<_, Infallible>(())
    });
    (cells, gaps)
}

fn read_bytes(table: CountTable, bytes: &[u8]) -> (Vec<CountCell>, CountGaps) {
    read(table, &mut Frozen::new(bytes, Positions::default()))
}

/// What a counter should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Model {
    count: u64,
    values: Vec<i64>,
}

impl Model {
    fn cell(&self, id: u16, key: &Key, has_values: bool) -> CountCell {
        let mut histogram = [0; 64];
        for &value in &self.values {
            let bucket = (0..63).find(|&n| i128::from(value) < 1 << n);
            histogram[bucket.unwrap_or(63)] += 1;
        }
        let sum = self.values.iter().map(|&value| i128::from(value)).sum();
        let extreme = |value: Option<&i64>| value.map_or(0, |value| value.cast_unsigned());
        CountCell {
            count: self.count,
            id: (id != 0).then_some(id),
            key: match key {
                _ if id == 0 => CountKey::None,
                Key::None => CountKey::None,
                Key::Number(number) => CountKey::Number(*number),
                Key::Text(text) if text.is_empty() => CountKey::None,
                Key::Text(text) => CountKey::Text(text.as_bytes()[..text.len().min(32)].to_vec()),
            },
            values: has_values.then_some(CountValues {
                sum,
                min: extreme(self.values.iter().min()),
                max: extreme(self.values.iter().max()),
                histogram,
            }),
        }
    }
}

type Update = (u16, Key, Option<i64>);

fn updates(most: usize) -> impl Strategy<Value = Vec<Update>> {
    let key = prop_oneof![
        Just(Key::None),
        (0u64..3).prop_map(Key::Number),
        Just(Key::Number(u64::MAX)),
        "[a-c]{1,2}".prop_map(Key::Text),
        "[a-z]{33,40}".prop_map(Key::Text),
    ];
    let value = prop_oneof![
        Just(None),
        (-3i64..200).prop_map(Some),
        any::<i64>().prop_map(Some),
    ];
    prop::collection::vec((1u16..4, key, value), 0..most)
}

/// The counters after some updates, by event and key. Those without a cell have event 0.
fn model(table: &mut CountTableWriter, updates: &[Update]) -> BTreeMap<(u16, Key), Model> {
    let mut model: BTreeMap<_, Model> = BTreeMap::new();
    for (id, key, value) in updates {
        let place = match table.overflows((*id).into(), key) {
            true => (0, Key::None),
            false => (*id, key.clone()),
        };
        let counter = model.entry(place).or_default();
        counter.count += 1;
        counter.values.extend(value);
        table.count((*id).into(), key, *value);
    }
    model
}

fn sorted(mut cells: Vec<CountCell>) -> Vec<CountCell> {
    cells.sort_by(|a, b| (a.id, &a.key).cmp(&(b.id, &b.key)));
    cells
}

/// Memory in which the writer makes a store before each load.
struct Concurrent {
    table: CountTableWriter,
    stores: VecDeque<(u64, u64)>,
    /// Stores before each load: the first one, and so on in turn.
    pace: Vec<usize>,
    loads: usize,
}

impl Concurrent {
    fn word(&mut self, offset: u64) -> u64 {
        let stores = self.pace[self.loads % self.pace.len()];
        self.loads += 1;
        for _ in 0..stores {
            if let Some(store) = self.stores.pop_front() {
                self.table.store(store);
            }
        }
        let at = offset as usize;
        u64::from_le_bytes(self.table.bytes[at..at + 8].try_into().unwrap())
    }
}

impl RingMemory for Concurrent {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        for (n, word) in (0..).zip(buffer.chunks_exact_mut(8)) {
            word.copy_from_slice(&self.word(offset + n * 8).to_le_bytes());
        }
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.word(offset)
    }

    fn positions(&mut self) -> Positions {
        Positions::default()
    }
}

proptest! {
    /// A writer that is killed before any of its stores leaves the counters of the updates before,
    /// or the one that it made.
    ///
    /// Requirements: A10, E7
    #[test]
    fn states_are_whole_wherever_the_writer_stops(
        updates in updates(80),
        last in updates(2),
        stores in 0usize..20,
        has_values: bool,
    ) {
        let mut written = CountTableWriter::new(LEN, has_values);
        let mut expected = model(&mut written, &updates);
        for (id, key, value) in &last {
            let update = written.update((*id).into(), key, *value);
            if stores >= update.len() {
                let place = match written.overflows((*id).into(), key) {
                    true => (0, Key::None),
                    false => (*id, key.clone()),
                };
                let counter: &mut Model = expected.entry(place).or_default();
                counter.count += 1;
                counter.values.extend(value);
            }
            for store in update.into_iter().take(stores) {
                written.store(store);
            }
        }
        let (cells, gaps) = read_bytes(table(has_values), &written.bytes);
        prop_assert_eq!(gaps, CountGaps::default());
        let expected: Vec<_> = expected
            .iter()
            .map(|((id, key), model)| model.cell(*id, key, has_values))
            .collect();
        prop_assert_eq!(sorted(cells), sorted(expected));
    }

    /// Each cell is read as it was after one of its updates, while the writer goes on.
    ///
    /// Requirements: F4
    #[test]
    fn copies_are_whole_while_the_writer_goes_on(
        before in updates(20),
        during in updates(60),
        pace in prop::collection::vec(0usize..4, 1..200),
    ) {
        let mut written = CountTableWriter::new(LEN, true);
        model(&mut written, &before);
        let start = written.clone();
        let mut states = BTreeSet::new();
        let mut add_states = |written: &CountTableWriter| {
            let (cells, _) = read_bytes(table(true), &written.bytes);
            states.extend(cells.iter().map(|cell| format!("{cell:?}")));
        };
        add_states(&written);
        let mut stores = VecDeque::new();
        for (id, key, value) in &during {
            let update = written.update((*id).into(), key, *value);
            stores.extend(&update);
            update.into_iter().for_each(|store| written.store(store));
            add_states(&written);
        }
        let mut memory = Concurrent { table: start, stores, pace, loads: 0 };
        let (cells, gaps) = read(table(true), &mut memory);
        prop_assert_eq!(gaps, CountGaps::default());
        for cell in cells {
            prop_assert!(states.contains(&format!("{cell:?}")), "{:?}", cell);
        }
    }

    /// Arbitrary bytes are cells that a correct writer may have written, or gaps.
    ///
    /// Requirements: A11, F4
    #[test]
    fn arbitrary_tables_are_survived(
        updates in updates(40),
        changes in prop::collection::vec(
            (0..LEN / 8, prop_oneof![any::<u64>(), 0u64..70, Just(u64::MAX), Just(1 << 56 | 9)]),
            0..200,
        ),
        has_values: bool,
    ) {
        let mut written = CountTableWriter::new(LEN, has_values);
        model(&mut written, &updates);
        for (word, value) in changes {
            written.store((word as u64 * 8, value));
        }
        let table = table(has_values);
        let (cells, gaps) = read_bytes(table, &written.bytes);
        prop_assert!(cells.len() as u64 + gaps.cells() <= table.cells());
        for cell in cells {
            prop_assert!(cell.count > 0 && cell.id != Some(0));
            if let Some(values) = cell.values {
                prop_assert!(values.number() <= cell.count);
            }
            if let CountKey::Text(text) = cell.key {
                prop_assert!((1..=32).contains(&text.len()));
            }
        }
    }

    /// A page for which there was no memory costs the cells that lie in it, and no other.
    ///
    /// Requirements: E7
    #[test]
    fn lost_pages_cost_their_cells(updates in updates(60), page in 0usize..2, has_values: bool) {
        let mut written = CountTableWriter::new(LEN, has_values);
        model(&mut written, &updates);
        let table = table(has_values);
        let (whole, _) = read_bytes(table, &written.bytes);
        written.lose_page(page);
        let (cells, gaps) = read_bytes(table, &written.bytes);
        prop_assert_eq!((gaps.damaged, gaps.busy), (0, 0));
        for cell in &cells {
            prop_assert!(whole.contains(cell));
        }
        let size = if has_values { 640 } else { 64 };
        let pages = |cell: usize| cell * size / 4096..=(cell * size + size - 1) / 4096;
        let lost = (0..table.cells() as usize).filter(|cell| pages(*cell).contains(&page));
        prop_assert!(gaps.lost <= lost.clone().count() as u64);
        // Free cells beside the page are not lost.
        prop_assert!(cells.len() as u64 + gaps.lost >= whole.len() as u64);
    }
}

/// A cell that never stands still is passed over after a while.
///
/// Requirements: A11
#[test]
fn cells_that_always_change_are_passed_over() {
    struct Restless(u64);
    impl RingMemory for Restless {
        fn read(&mut self, offset: u64, buffer: &mut [u8]) {
            for (n, word) in (0..).zip(buffer.chunks_exact_mut(8)) {
                let value = if n == 0 { self.load(offset) } else { 0 };
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        fn load(&mut self, _: u64) -> u64 {
            self.0 += 1;
            self.0
        }
        fn positions(&mut self) -> Positions {
            Positions::default()
        }
    }
    let mut memory = Restless(0);
    let table = table(true);
    let (cells, gaps) = read(table, &mut memory);
    assert_eq!((cells, gaps.busy), (vec![], table.cells()));
    assert!(memory.0 < 3_000_000, "{}", memory.0);
}
