//! Tests of tables that count.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use usertrace_ring::{
    CountCell, CountKey as Key, CountTable, CountValues, Geometry as RingGeometry, Positions,
    RingMemory, SharedBytes,
};
use usertrace_sys::count::bucket_of;
use usertrace_sys::uapi::{LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE};

use super::*;
use crate::writer::rseq::SLOW_EACH;
use crate::writer::{CountKey, Counted, CountedValue, count, count_directly};

/// A table, as readers see it.
struct TableMemory(SharedBytes<'static>);

impl RingMemory for TableMemory {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.0.read(offset, buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.0.load(offset)
    }

    fn positions(&mut self) -> Positions {
        Positions {
            head: 0,
            claimed: 0,
        }
    }
}

/// Tables of two sub-buffers of 4096 bytes: 128 cells, or 12 with values.
fn tables(cell_size: u32) -> Rings {
    sized(cell_size, 4096)
}

fn sized(cell_size: u32, subbuf_size: u64) -> Rings {
    Rings::with(subbuf_size, 2, |geometry| Geometry {
        scope: Scope::Cpu,
        mode: Mode::Count,
        protocol: Protocol::Count,
        cell_size,
        ..geometry
    })
}

/// The cells of the table of a CPU.
fn cells_of(tables: &Rings, cpu: u32) -> Vec<CountCell> {
    let geometry = tables.geometry;
    let sizes = [geometry.subbuf_size, geometry.subbuf_count].map(|size| size as u32);
    let table = CountTable::new(
        RingGeometry::new(sizes[0], sizes[1]).unwrap(),
        geometry.cell_size,
    );
    let len = geometry.ring_size() as usize;
    let start = geometry.buffers.wrapping_add(cpu as usize * len);
    // SAFETY: the memory of a table, which outlives this function.
    let bytes = unsafe { SharedBytes::new(NonNull::new(start).unwrap(), len) };
    let mut cells = Vec::new();
    let gaps = table.unwrap().read(&mut TableMemory(bytes), |cell| {
        cells.push(cell);
        Ok::<_, ()>(())
    });
    assert_eq!(gaps.unwrap().cells(), 0, "a cell is not whole");
    cells
}

/// Counts and values by event and key, of all CPUs.
type Counts = BTreeMap<(Option<u16>, Key), (u64, Option<CountValues>)>;

fn counts_of(tables: &Rings, signed: bool) -> Counts {
    let mut counts = Counts::new();
    for cpu in 0..tables.geometry.nr_rings {
        for cell in cells_of(tables, cpu) {
            add(
                &mut counts,
                (cell.id, cell.key),
                cell.count,
                cell.values,
                signed,
            );
        }
    }
    counts
}

fn add(
    counts: &mut Counts,
    name: (Option<u16>, Key),
    count: u64,
    values: Option<CountValues>,
    signed: bool,
) {
    let entry = counts.entry(name).or_insert((0, None));
    entry.0 += count;
    match (&mut entry.1, values) {
        (Some(sum), Some(more)) => sum.add(&more, signed),
        (none, more) => *none = more,
    }
}

/// What one event adds to a cell with values.
fn values_of(value: Option<CountedValue>) -> CountValues {
    let mut values = CountValues {
        sum: 0,
        min: 0,
        max: 0,
        histogram: [0; 64],
    };
    if let Some(CountedValue { bits, signed }) = value {
        values.sum = match signed {
            true => bits.cast_signed().into(),
            false => bits.into(),
        };
        (values.min, values.max) = (bits, bits);
        values.histogram[bucket_of(bits, signed)] = 1;
    }
    values
}

fn put_count(tables: &Rings, id: u16, counted: &Counted) -> Result<(), Dropped> {
    count(rseq(), &tables.channel, &AtomicU16::new(id), counted)
}

/// The word of a route that leads to tables.
const WORD: u32 = 0x1234_5678;

static ROUTE: AtomicU32 = AtomicU32::new(WORD);

/// Counts an event as the fast path does, and reports whether it did. Text keys are not for that.
fn put_directly_by(rseq: Rseq, tables: &Rings, id: u16, counted: &Counted) -> bool {
    let (value, id) = (counted.value, AtomicU16::new(id));
    let Some(key) = counted.key.as_number() else {
        return false;
    };
    // SAFETY: the tables have had such cells since their channel was opened for the first time.
    unsafe {
        count_directly(
            rseq,
            &tables.channel,
            (&ROUTE, WORD),
            &id,
            tables.geometry.cell_size == LTT_COUNT_CELL_PLAIN,
            || value.map(|value| (value.bits, value.signed)),
            || key,
        )
    }
}

fn put_directly(tables: &Rings, id: u16, counted: &Counted) -> bool {
    put_directly_by(rseq().expect("an area"), tables, id, counted)
}

/// Counts an event on the fast path, or else on the slow one.
fn put_quickly(tables: &Rings, id: u16, counted: &Counted) -> Result<(), Dropped> {
    match put_directly(tables, id, counted) {
        true => Ok(()),
        false => put_count(tables, id, counted),
    }
}

fn valued(bits: u64, signed: bool) -> Counted {
    Counted {
        value: Some(CountedValue { bits, signed }),
        key: CountKey::NONE,
    }
}

/// A key, as both sides have it.
fn key() -> impl Strategy<Value = (CountKey, Key)> {
    let number = prop_oneof![0..6u64, any::<u64>()];
    let text = prop::collection::vec(1u8.., 0..40);
    prop_oneof![
        Just((CountKey::NONE, Key::None)),
        number.prop_map(|number| (CountKey::number(number), Key::Number(number))),
        text.prop_map(|text| {
            let cut = text[..text.len().min(32)].to_vec();
            let key = match cut.is_empty() {
                true => Key::None,
                false => Key::Text(cut),
            };
            (CountKey::text(text.into_iter()), key)
        }),
    ]
}

proptest! {
    /// Each event and key has all of its counts in one cell, or in the overflow cell.
    #[test]
    fn counts_equal_those_of_a_model(
        keys in prop::collection::vec(key(), 1..12),
        events in prop::collection::vec(
            (1..24u16, any::<prop::sample::Index>(), prop::option::of(prop_oneof![0..9u64, any::<u64>()])),
            1..400,
        ),
        signed: bool,
        has_values: bool,
        quickly: bool,
    ) {
        let put = if quickly { put_quickly } else { put_count };
        let tables = tables(if has_values { LTT_COUNT_CELL_VALUE } else { LTT_COUNT_CELL_PLAIN });
        let mut expected = Counts::new();
        let cpu = pin();
        for (id, key, value) in events {
            let (key, seen) = key.get(&keys).clone();
            let value = value.map(|bits| CountedValue { bits, signed });
            let counted = Counted { value, key };
            prop_assert_eq!(put(&tables, id, &counted), Ok(()));
            let values = has_values.then(|| values_of(value));
            add(&mut expected, (Some(id), seen), 1, values, signed);
        }
        prop_assert_eq!(tables.lost(), 0);
        prop_assert_eq!(tables.control(cpu).head.load(Ordering::Relaxed) % u64::from(tables.geometry.cell_size), 0);
        let seen = counts_of(&tables, signed);
        let mut missing = Counts::new();
        for (name, (count, values)) in expected {
            match seen.get(&name) {
                Some(cell) => prop_assert_eq!(cell, &(count, values)),
                None => add(&mut missing, (None, Key::None), count, values, signed),
            }
        }
        let overflow = seen.get(&(None, Key::None));
        prop_assert_eq!(overflow, missing.get(&(None, Key::None)));
    }
}

/// Values of 64 bits add up to 128.
#[test]
fn sums_do_not_wrap() {
    for signed in [false, true] {
        let tables = tables(LTT_COUNT_CELL_VALUE);
        let bits = if signed {
            i64::MIN.cast_unsigned()
        } else {
            u64::MAX
        };
        for _ in 0..5 {
            put_count(&tables, 1, &valued(bits, signed)).unwrap();
        }
        let counts = counts_of(&tables, signed);
        let (count, values) = counts[&(Some(1), Key::None)];
        let one = if signed {
            i128::from(i64::MIN)
        } else {
            i128::from(u64::MAX)
        };
        assert_eq!((count, values.unwrap().sum), (5, 5 * one));
    }
}

static HANDLER_TABLES: AtomicPtr<Rings> = AtomicPtr::new(std::ptr::null_mut());
static IN_HANDLER: AtomicU64 = AtomicU64::new(0);
static LOST_IN_HANDLER: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_in_handler(_: libc::c_int) {
    // SAFETY: the test stored it, and waits for the signals to end.
    let tables = unsafe { &*HANDLER_TABLES.load(Ordering::Acquire) };
    let of = match put_quickly(tables, 3, &valued(7, false)) {
        Ok(()) => &IN_HANDLER,
        Err(_) => &LOST_IN_HANDLER,
    };
    of.fetch_add(1, Ordering::Relaxed);
}

/// Threads that are interrupted by handlers, which count in the same cells, lose nothing. Only
/// where threads have areas of our own, a handler at the end of its thread comes too late, and says
/// so.
#[test]
fn threads_and_handlers_count_exactly() {
    const THREADS: u64 = 4;
    let count = counts(50_000, 400_000);
    let tables = sized(LTT_COUNT_CELL_VALUE, 1 << 16);
    let handled = shared(4096).cast::<AtomicU64>();
    let status = in_child(|| {
        HANDLER_TABLES.store((&raw const tables).cast_mut(), Ordering::Release);
        let run = || {
            for n in 0..count {
                let key = CountKey::number(n % 5);
                let value = Some(CountedValue {
                    bits: n,
                    signed: false,
                });
                // By both ways in turns.
                let put = if n % 8 < 5 { put_quickly } else { put_count };
                put(&tables, 3, &Counted { value, key }).unwrap();
                put(&tables, 3, &valued(7, false)).unwrap();
            }
        };
        // SAFETY: the handler is async-signal-safe, and the process is the test's own.
        unsafe {
            interrupted(count_in_handler, || {
                std::thread::scope(|scope| {
                    (0..THREADS).for_each(|_| {
                        scope.spawn(run);
                    });
                });
            });
            for (place, of) in [(0, &IN_HANDLER), (1, &LOST_IN_HANDLER)] {
                let sum = of.load(Ordering::Relaxed);
                handled.add(place).as_ref().store(sum, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(status, 0);
    // SAFETY: written by the child, which is gone.
    let read = |place| unsafe { handled.add(place).as_ref() }.load(Ordering::Relaxed);
    let (handled, lost) = (read(0), read(1));
    assert!(handled > 0, "no signal came");
    assert_eq!(tables.lost(), lost);
    assert!(lost == 0 || registration::is_without(), "{lost}");
    let seen = counts_of(&tables, false);
    assert_eq!(seen.len(), 6);
    let sevens = THREADS * count + handled;
    let (number, values) = seen[&(Some(3), Key::None)];
    let values = values.unwrap();
    assert_eq!((number, values.sum), (sevens, i128::from(7 * sevens)));
    assert_eq!(
        (values.min, values.max, values.histogram[3]),
        (7, 7, sevens)
    );
    for key in 0..5 {
        let (number, values) = seen[&(Some(3), Key::Number(key))];
        let values = values.unwrap();
        let each = || (0..count).filter(|n| n % 5 == key);
        assert_eq!(number, THREADS * each().count() as u64);
        assert_eq!(values.sum, i128::from(THREADS * each().sum::<u64>()));
        assert_eq!((values.min, values.max), (key, each().max().unwrap()));
        assert_eq!(values.number(), number);
    }
}

/// A process that is killed leaves all that it has counted, and no more.
///
/// Requirements: A10
#[test]
fn a_killed_process_leaves_whole_counts() {
    let rounds = counts(25, 100);
    for round in 0..rounds {
        let tables = tables(LTT_COUNT_CELL_VALUE);
        let witness = shared(4096).cast::<AtomicU64>();
        // SAFETY: as in `a_killed_process_leaves_a_prefix`.
        unsafe {
            let pid = libc::fork();
            assert!(pid >= 0);
            if pid == 0 {
                for n in 0.. {
                    let put = if round % 2 == 0 {
                        put_quickly
                    } else {
                        put_count
                    };
                    let _ = put(&tables, 1, &valued(n, false));
                    witness.as_ref().store(n + 1, Ordering::Release);
                }
            }
            while witness.as_ref().load(Ordering::Acquire) < round * 37_000 / rounds {
                std::hint::spin_loop();
            }
            libc::kill(pid, libc::SIGKILL);
            assert_eq!(libc::WTERMSIG(wait_for(pid)), libc::SIGKILL);
        }
        // SAFETY: the child is gone.
        let known = unsafe { witness.as_ref() }.load(Ordering::Acquire);
        let counts = counts_of(&tables, false);
        let number = counts.get(&(Some(1), Key::None)).map_or(0, |cell| cell.0);
        assert!(number == known || number == known + 1, "{number}, {known}");
        if number > 0 {
            let values = counts[&(Some(1), Key::None)].1.unwrap();
            assert_eq!(values.sum, (0..i128::from(number)).sum());
            assert_eq!((values.min, values.max), (0, number - 1));
            assert_eq!(values.number(), number);
        }
        // SAFETY: mapped above.
        unsafe { libc::munmap(witness.as_ptr().cast(), 4096) };
    }
}

/// Steps through an update in a child, and calls `each` after each instruction. Returns the number
/// of instructions.
fn step_through(update: impl FnOnce() -> bool, mut each: impl FnMut()) -> usize {
    // SAFETY: as in `in_child`; the child is traced by its parent alone.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            libc::_exit(i32::from(!update()));
        }
        for steps in 0.. {
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            if libc::WIFEXITED(status) {
                assert_eq!(libc::WEXITSTATUS(status), 0, "the update failed");
                return steps;
            }
            assert!(libc::WIFSTOPPED(status), "the child died: {status:#x}");
            each();
            assert_eq!(libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0), 0);
        }
        unreachable!("the child ends")
    }
}

/// After each instruction of an update, the table has the state before it, or the one after it.
///
/// The kernel does not know the child's rseq area, so the sequence goes on from step to step.
///
/// Requirements: A10
#[test]
fn each_instruction_of_an_update_leaves_a_whole_state() {
    let cpu = pin();
    let unregistered = Rseq::unregistered(cpu);
    for cell_size in [LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE] {
        let tables = tables(cell_size);
        let text = || CountKey::text(b"abcdefghijklmnopqrstuvwxyz0123456789".iter().copied());
        let number = Counted {
            key: CountKey::number(5),
            ..valued(1, true)
        };
        let with_text = Counted {
            key: text(),
            ..valued(9, true)
        };
        let changes = AtomicUsize::new(0);
        // A new cell, the same bucket, other buckets, no value, another cell.
        for counted in [
            valued(4, true),
            valued(5, true),
            valued(u64::MAX, true),
            valued(0, true),
            valued(1 << 40, true),
            Counted::PLAIN,
            valued(3, true),
            number,
            with_text,
            with_text,
        ] {
            let before = cells_of(&tables, cpu);
            let mut seen = vec![before.clone()];
            let steps = step_through(
                || {
                    let id = AtomicU16::new(8);
                    count(Some(unregistered()), &tables.channel, &id, &counted).is_ok()
                },
                || {
                    let now = cells_of(&tables, cpu);
                    if seen.last() != Some(&now) {
                        seen.push(now);
                    }
                },
            );
            assert!(steps > 50, "it was not stepped through");
            assert_eq!(seen.len(), 2, "{counted:?}: states in between");
            let sum = |cells: &[CountCell]| cells.iter().map(|cell| cell.count).sum::<u64>();
            assert_eq!(sum(&seen[1]), sum(&before) + 1);
            changes.fetch_add(1, Ordering::Relaxed);
        }
        let cells = cells_of(&tables, cpu);
        assert_eq!(cells.len(), 3);
        assert_eq!(changes.into_inner(), 10);
    }
}

/// Likewise, of an update by the fast path.
///
/// Requirements: A10
#[test]
fn each_instruction_of_a_direct_update_leaves_a_whole_state() {
    let cpu = pin();
    let unregistered = Rseq::unregistered(cpu);
    for (cell_size, signed) in [
        (LTT_COUNT_CELL_PLAIN, false),
        (LTT_COUNT_CELL_VALUE, false),
        (LTT_COUNT_CELL_VALUE, true),
    ] {
        let tables = tables(cell_size);
        for key in [CountKey::NONE, CountKey::number(5)] {
            let of = |bits| Counted {
                key,
                ..valued(bits, signed)
            };
            // In another thread: with an area of our own, this one would be registered.
            std::thread::scope(|scope| {
                scope.spawn(|| put_count(&tables, 8, &of(4)).unwrap());
            });
            // The same bucket, other buckets, the least, and the greatest.
            for counted in [5, u64::MAX, 0, 1 << 40, 1 << 63, 6].map(of) {
                let before = cells_of(&tables, cpu);
                let mut seen = vec![before.clone()];
                let steps = step_through(
                    || put_directly_by(unregistered(), &tables, 8, &counted),
                    || {
                        let now = cells_of(&tables, cpu);
                        if seen.last() != Some(&now) {
                            seen.push(now);
                        }
                    },
                );
                assert!(steps > 30, "it was not stepped through");
                assert_eq!(seen.len(), 2, "{counted:?}: states in between");
            }
        }
    }
}

/// A debugger that steps through an update aborts each sequence: the loss is counted.
#[test]
fn single_steps_lose_a_count() {
    for cell_size in [LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE] {
        let tables = tables(cell_size);
        let cpu = pin();
        put_count(&tables, 1, &valued(1, false)).unwrap();
        let before = cells_of(&tables, cpu);
        let update = || put_count(&tables, 1, &valued(2, false)) == Err(Dropped::Lost);
        let steps = step_through(update, || assert_eq!(cells_of(&tables, cpu), before));
        assert!(steps > 100, "it was not stepped through");
        assert_eq!((tables.lost(), cells_of(&tables, cpu)), (1, before.clone()));
        let update = || !put_directly(&tables, 1, &valued(2, false));
        step_through(update, || assert_eq!(cells_of(&tables, cpu), before));
        assert_eq!((tables.lost(), cells_of(&tables, cpu)), (1, before));
    }
}

/// The fast path counts what has a cell, and leaves the cell as the slow path does.
#[test]
fn events_that_have_a_cell_are_counted_directly() {
    let cpu = pin();
    for (cell_size, signed) in [
        (LTT_COUNT_CELL_PLAIN, false),
        (LTT_COUNT_CELL_VALUE, false),
        (LTT_COUNT_CELL_VALUE, true),
    ] {
        let (direct, slow) = (tables(cell_size), tables(cell_size));
        let keys = [
            CountKey::NONE,
            CountKey::number(0),
            CountKey::number(u64::MAX),
        ];
        for (id, key) in [1, 7].into_iter().flat_map(|id| keys.map(|key| (id, key))) {
            let of = |bits| Counted {
                key,
                ..valued(bits, signed)
            };
            assert!(!put_directly(&direct, id, &of(9)), "it has no cell");
            for tables in [&direct, &slow] {
                put_count(tables, id, &of(9)).unwrap();
            }
            for bits in [
                0,
                1,
                8,
                u64::MAX,
                9,
                9,
                1 << 62,
                1 << 63,
                (1 << 63) - 1,
                12,
                15,
            ] {
                assert!(put_directly(&direct, id, &of(bits)));
                put_count(&slow, id, &of(bits)).unwrap();
                assert_eq!(cells_of(&direct, cpu), cells_of(&slow, cpu), "{bits:#x}");
            }
        }
        assert_eq!(cells_of(&direct, cpu).len(), 6);
    }
}

/// Some events take the slow path, so that a process without a signal follows traces.
#[test]
fn each_256th_count_of_a_cell_is_not_direct() {
    let tables = tables(LTT_COUNT_CELL_VALUE);
    pin();
    let mut direct = 0;
    for n in 0..4 * SLOW_EACH {
        match put_directly(&tables, 1, &valued(n, false)) {
            true => direct += 1,
            false => {
                assert_eq!(n % SLOW_EACH, 0);
                put_count(&tables, 1, &valued(n, false)).unwrap();
            }
        }
    }
    assert_eq!(direct, 4 * (SLOW_EACH - 1));
}

/// Events whose cells are taken by others find theirs behind.
#[test]
fn direct_counts_probe() {
    let cpu = pin();
    for cell_size in [LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE] {
        let tables = tables(cell_size);
        let of = |key| Counted {
            key: CountKey::number(key),
            ..valued(key, false)
        };
        // More than half of the table, or nearly all of it.
        let keys = if cell_size == LTT_COUNT_CELL_PLAIN {
            80
        } else {
            9
        };
        (0..keys).for_each(|key| put_count(&tables, 2, &of(key)).unwrap());
        let direct = (0..keys).filter(|key| put_directly(&tables, 2, &of(*key)));
        // Others are around the end of the table, or have no cell.
        assert!(direct.count() as u64 * 3 > keys * 2);
        let cells = cells_of(&tables, cpu);
        assert!(cells.iter().filter(|cell| cell.count == 2).count() as u64 * 3 > keys * 2);
    }
}

/// The fast path counts nothing if an update came in between, or if it would have to begin a state.
#[test]
fn direct_counts_end_with_their_route() {
    let cpu = pin();
    let tables = tables(LTT_COUNT_CELL_VALUE);
    put_count(&tables, 1, &Counted::PLAIN).unwrap();
    let before = cells_of(&tables, cpu);
    // The cell has no value yet; the event has no value.
    assert!(!put_directly(&tables, 1, &valued(3, false)));
    assert!(!put_directly(&tables, 1, &Counted::PLAIN));
    assert_eq!(cells_of(&tables, cpu), before);
    put_count(&tables, 1, &valued(3, false)).unwrap();
    assert!(put_directly(&tables, 1, &valued(3, false)));
    let before = cells_of(&tables, cpu);
    let id = AtomicU16::new(1);
    let by = |word: u32, id: &AtomicU16| {
        let route = AtomicU32::new(word);
        let (value, key) = (|| Some((3, false)), || None);
        // SAFETY: as in `put_directly_by`.
        unsafe {
            count_directly(
                rseq().expect("an area"),
                &tables.channel,
                (&route, WORD),
                id,
                false,
                value,
                key,
            )
        }
    };
    assert!(!by(0, &id) && !by(WORD + 1, &id));
    assert!(!by(WORD, &AtomicU16::new(0)), "the event was not described");
    // An id that is a table away.
    let cells = (tables.geometry.ring_size() / u64::from(LTT_COUNT_CELL_VALUE)) as u16;
    assert!(!by(WORD, &AtomicU16::new(2 * cells)));
    assert_eq!(cells_of(&tables, cpu), before);
    assert!(by(WORD, &id));
    tables.channel.close();
    assert!(!by(WORD, &id));
}

#[test]
fn closed_tables_count_nothing() {
    let tables = tables(LTT_COUNT_CELL_PLAIN);
    assert!(tables.channel.counts() && !tables.channel.is_shared() && !tables.channel.is_of_cpus());
    // Writers of records find no rings.
    assert_eq!(put(&tables, 1, &[1]), Err(Dropped::Closed));
    // SAFETY: as in `put`.
    let shared = unsafe { write_words(None, &tables.channel, &AtomicU16::new(1), &[1]) };
    assert_eq!(shared, Err(Dropped::Closed));
    assert_eq!(put_count(&tables, 0, &Counted::PLAIN), Err(Dropped::Closed));
    assert_eq!((tables.lost(), counts_of(&tables, false).len()), (0, 0));
    // A process without restartable sequences.
    let id = AtomicU16::new(1);
    let lost = count(None, &tables.channel, &id, &Counted::PLAIN);
    assert_eq!((lost, tables.lost()), (Err(Dropped::Lost), 1));
    tables.channel.close();
    assert_eq!(put_count(&tables, 1, &Counted::PLAIN), Err(Dropped::Closed));
    assert_eq!(
        count(None, &tables.channel, &id, &Counted::PLAIN),
        Err(Dropped::Closed)
    );
    assert!(!tables.channel.counts());
}

#[test]
fn impossible_tables_are_refused() {
    let good = tables(LTT_COUNT_CELL_PLAIN).geometry;
    for bad in [
        Geometry {
            cell_size: 0,
            ..good
        },
        Geometry {
            cell_size: 128,
            ..good
        },
        Geometry {
            scope: Scope::MmCid,
            ..good
        },
        Geometry {
            protocol: Protocol::Rseq,
            ..good
        },
    ] {
        let channel = Channel::default();
        // SAFETY: nothing is opened.
        assert_eq!(unsafe { channel.open(&bad) }, Err(GeometryError), "{bad:?}");
    }
}

proptest! {
    /// Whatever a program has written there, an update ends, and stays in the table.
    #[test]
    fn tables_may_contain_anything(
        words in prop::collection::vec(prop_oneof![Just(0u64), Just(u64::MAX), Just(1), any::<u64>()], 1024),
        id in 1..60u16,
        value: u64,
        signed: bool,
        has_key: bool,
    ) {
        let tables = tables(LTT_COUNT_CELL_VALUE);
        let cpu = pin();
        let start = tables.geometry.buffers.wrapping_add(cpu as usize * 8192).cast::<u64>();
        for (n, word) in words.into_iter().enumerate() {
            // SAFETY: the table has so many words, and nobody else writes there.
            unsafe { start.add(n).write_volatile(word) };
        }
        let key = if has_key { CountKey::number(value % 3) } else { CountKey::NONE };
        for _ in 0..3 {
            let counted = Counted { key, ..valued(value, signed) };
            prop_assert_eq!(put_quickly(&tables, id, &counted), Ok(()));
            prop_assert_eq!(put_count(&tables, id, &counted), Ok(()));
        }
        let others = (0..tables.geometry.nr_rings).filter(|other| *other != cpu);
        for other in others {
            prop_assert_eq!(cells_of(&tables, other).len(), 0);
        }
    }
}
