//! Counting events in rings that others consume or overwrite (E7), on simulated files of the
//! kernel.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use usertrace_cli::top::{Code, Counted, ProcessCounter};
use usertrace_consumer::{CONTROL, ConsumerFile, MAIN};
use usertrace_ring::Positions;
use usertrace_sys::uapi::{LttFileInfo, LttInfoChannel, LttRingPositions};

use usertrace_symbols::Options;
use usertrace_testing::RingWriter;

const SUBBUF: u64 = 4096;
const COUNT: u64 = 4;
const TIME: u64 = 1_000_000;

/// Called in the middle of a copy.
type During = Box<dyn FnMut(&mut RingWriter)>;

struct Process {
    control: RingWriter,
    main: RingWriter,
    dead: bool,
    during_copy: Option<During>,
}

impl Process {
    /// A process that has written nothing.
    fn new() -> Rc<RefCell<Self>> {
        let ring = || RingWriter::new(SUBBUF, COUNT, 0);
        Rc::new(RefCell::new(Self {
            control: ring(),
            main: ring(),
            dead: false,
            during_copy: None,
        }))
    }
}

#[derive(Clone)]
struct File(Rc<RefCell<Process>>, &'static str);

impl File {
    fn with<T>(&self, of: impl FnOnce(&mut RingWriter) -> T) -> T {
        let mut process = self.0.borrow_mut();
        match self.1 {
            CONTROL => of(&mut process.control),
            _ => of(&mut process.main),
        }
    }
}

impl ConsumerFile for File {
    fn info(&self) -> io::Result<LttFileInfo> {
        let mut info = LttFileInfo {
            pid: 7,
            channel_index: u32::from(self.1 == MAIN),
            channel: LttInfoChannel {
                subbuf_size: SUBBUF as u32,
                subbuf_count: COUNT as u32,
                nr_rings: 1,
                control_stride: 128,
                ..LttInfoChannel::default()
            },
            ..LttFileInfo::default()
        };
        info.comm[..4].copy_from_slice(b"prog");
        Ok(info)
    }

    fn positions(&self, rings: &mut [LttRingPositions]) -> io::Result<u32> {
        self.with(|ring| {
            rings[0] = LttRingPositions {
                head: ring.head,
                lost: ring.lost,
                claimed: ring.claimed,
                consumed: ring.consumed,
            };
        });
        Ok(u32::from(self.0.borrow().dead))
    }

    fn consume(&self, _: u32, _: u64) -> io::Result<()> {
        panic!("who counts takes nothing away");
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        let offset = offset as usize;
        let half = buffer.len() / 16 * 8;
        let copy = |to: &mut [u8], from: usize| {
            self.with(|ring| to.copy_from_slice(&ring.bytes[from..from + to.len()]))
        };
        copy(&mut buffer[..half], offset);
        if self.1 == MAIN {
            let during = self.0.borrow_mut().during_copy.take();
            during
                .into_iter()
                .for_each(|mut during| self.with(&mut during));
        }
        copy(&mut buffer[half..], offset + half);
    }

    fn load(&self, offset: u64) -> u64 {
        let at = offset as usize;
        self.with(|ring| u64::from_le_bytes(ring.bytes[at..at + 8].try_into().unwrap()))
    }

    fn ring_positions(&self, _: u32) -> io::Result<Positions> {
        assert_eq!(self.1, CONTROL, "what was consumed counts as gone there");
        Ok(self.with(|ring| Positions {
            head: ring.head,
            claimed: ring.claimed,
        }))
    }
}

struct Run {
    process: Rc<RefCell<Process>>,
    counter: ProcessCounter<File>,
    written: u64,
}

impl Run {
    /// A process that wrote `before` events before the counter sees it.
    fn new(before: u64, from_now: bool) -> Self {
        Self::chosen(before, from_now, None)
    }

    /// Likewise, of which only events count that fulfil a condition.
    fn chosen(before: u64, from_now: bool, condition: Option<&str>) -> Self {
        let process = Process::new();
        assert!(
            process
                .borrow_mut()
                .control
                .meta(TIME, "1 t:number 6 u64 n")
        );
        let mut run = Self {
            counter: ProcessCounter::new("t", "7.3")
                .with_condition(condition.map(|text| text.parse().unwrap())),
            process,
            written: 0,
        };
        run.write(before);
        for channel in [MAIN, CONTROL] {
            let file = File(Rc::clone(&run.process), channel);
            run.counter.add(channel, file, from_now).unwrap();
        }
        run
    }

    fn write(&mut self, count: u64) {
        let mut process = self.process.borrow_mut();
        for _ in 0..count {
            number(&mut process.main, self.written);
            self.written += 1;
        }
    }

    /// Consumes everything, as a recorder does.
    fn consume(&self) {
        let mut process = self.process.borrow_mut();
        process.main.consumed = process.main.head;
    }

    fn step(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        self.counter.step(until).unwrap();
    }

    /// Events that were counted, and those that were estimated.
    fn counted(&mut self) -> (u64, f64) {
        let counted = self.counter.counted();
        let events = counted.events.iter().map(|event| {
            assert_eq!(event.name, "t:number");
            // Each event has 16 bytes.
            assert_eq!(event.bytes.seen, 16 * event.events.seen);
            (event.events.seen, event.events.estimated)
        });
        events.fold((0, 0.0), |(a, b), (c, d)| (a + c, b + d))
    }
}

fn number(ring: &mut RingWriter, n: u64) -> bool {
    ring.event(1, TIME + n, &n.to_le_bytes())
}

/// Consumed events are counted until a writer overwrites them.
///
/// Requirements: E7
#[test]
fn consumed_events_are_counted() {
    let mut run = Run::new(10, true);
    for round in 1..=20 {
        // The contents of two or three of four sub-buffers.
        run.write(400);
        run.consume();
        run.step();
        assert_eq!(run.counted(), (400 * round, 0.0));
    }
    let Counted {
        pid, comm, lost, ..
    } = run.counter.counted();
    assert_eq!((pid, &comm[..], lost), (7, "prog", 0));
}

#[test]
fn earlier_events_count_for_new_processes() {
    let mut run = Run::new(10, false);
    run.step();
    assert_eq!(run.counted(), (10, 0.0));
    let mut run = Run::new(10, true);
    run.step();
    assert_eq!(run.counted(), (0, 0.0));
}

/// Requirements: E4
#[test]
fn events_count_that_fulfil_a_condition() {
    for (condition, count) in [
        ("n < 3", 3),
        ("n >= 3 && $ctx.vpid == 7 && $ctx.procname == \"pr*\"", 7),
        ("$ctx.cpu_id == 0", 10),
        ("$ctx.cpu_id != 0", 0),
        ("m == 1", 0),
    ] {
        let mut run = Run::chosen(10, false, Some(condition));
        run.step();
        assert_eq!(run.counted(), (count, 0.0), "{condition}");
    }
}

/// Data in the sub-buffer that a writer may have entered is not used, even before the head moves
/// there.
///
/// Requirements: E7
#[test]
fn next_subbuffer_of_writer_is_not_read() {
    let mut run = Run::new(0, true);
    // Four sub-buffers of at most 252 records each, all consumed.
    run.write(4 * 252);
    run.consume();
    // The first part of the next round's header replaces that of the first sub-buffer: its time,
    // and not yet its position.
    let next = COUNT * SUBBUF;
    run.process.borrow_mut().main.store(next + 8, TIME + 5000);
    run.step();
    let (seen, estimated) = run.counted();
    assert_eq!(seen, 3 * 252);
    // The estimate equals the unseen part.
    assert!((estimated - 252.0).abs() < 10.0, "{estimated}");
}

/// In the middle of the copy, others consume and write a whole round.
///
/// Requirements: F4
#[test]
fn overwritten_events_are_estimated() {
    let mut run = Run::new(0, true);
    run.write(900);
    let mut more = 0;
    run.process.borrow_mut().during_copy = Some(Box::new(move |ring| {
        for n in 0..3000 {
            ring.consumed = ring.head;
            more += u64::from(number(ring, 10_000 + n));
        }
        assert_eq!(more, 3000);
    }));
    run.step();
    // The first copy is of overwritten events; the next step counts the present ones.
    run.step();
    let (seen, estimated) = run.counted();
    assert!((500..1010).contains(&seen), "{seen}");
    let all = seen as f64 + estimated;
    assert!((all - 3900.0).abs() < 100.0, "{all}");
}

/// A full ring loses events, which are counted, and its fill level is right.
///
/// Requirements: E7
#[test]
fn losses_are_counted() {
    let mut run = Run::new(0, true);
    run.write(1200);
    run.step();
    let counted = run.counter.counted();
    assert_eq!(counted.lost, 1200 - 4 * 252);
    assert!(counted.fill.unwrap() > 950, "{counted:?}");
    // Losses before the counter's start do not count.
    let mut run = Run::new(1200, true);
    run.step();
    assert_eq!(run.counter.counted().lost, 0);
}

#[test]
fn files_of_ended_process_are_closed() {
    let mut run = Run::new(0, true);
    run.write(5);
    run.process.borrow_mut().dead = true;
    run.step();
    assert!(run.counter.has_ended());
    // Only the test's own reference is left.
    assert_eq!(Rc::strong_count(&run.process), 1);
    assert_eq!(run.counted(), (5, 0.0));
    assert!(run.counter.counted().ended);
}

/// Without time to read everything, a part serves as a sample.
///
/// Requirements: E7
#[test]
fn without_time_rates_are_estimates() {
    let mut run = Run::new(0, true);
    for _ in 0..40 {
        run.write(600);
        run.consume();
        // A step without time, then one with too long a backlog; later events are counted.
        run.counter.step(Instant::now()).unwrap();
        run.step();
        run.write(100);
        run.consume();
        run.step();
    }
    let (seen, estimated) = run.counted();
    let all = seen as f64 + estimated;
    assert!(seen < run.written && estimated > 0.0);
    assert!(
        (all - run.written as f64).abs() < 0.05 * run.written as f64,
        "{all}"
    );
}

/// A writer that stops right after it outran the counter gives no newer sample.
///
/// Requirements: E7
#[test]
fn missed_events_of_a_stopped_writer_are_estimated_from_earlier_ones() {
    let mut run = Run::new(0, true);
    run.write(100);
    run.step();
    assert_eq!(run.counted(), (100, 0.0));
    run.write(600);
    // A step without time, then one with too long a backlog.
    run.counter.step(Instant::now()).unwrap();
    run.step();
    for _ in 0..2 {
        let (seen, estimated) = run.counted();
        assert_eq!(seen, 100);
        assert!((estimated - 600.0).abs() < 30.0, "{estimated}");
    }
}

/// Each place counts apart: modules are those of the time of the event, and events without a call
/// stack have no place.
///
/// Requirements: E7
#[test]
fn events_count_by_place() {
    let process = Process::new();
    let describe = |line: &str| assert!(process.borrow_mut().control.meta(TIME, line), "{line}");
    describe("1 t:number 6 u64 n");
    describe("@1 u32 vtid;x64[] callstack");
    describe("+10000 1000 1 - - - %2Fno%2Ffirst");
    let write = |stack: &[u64]| {
        let mut payload = 7u32.to_le_bytes().to_vec();
        payload.extend((stack.len() as u32).to_le_bytes());
        payload.extend(stack.iter().flat_map(|address| address.to_le_bytes()));
        payload.extend(5u64.to_le_bytes());
        assert!(process.borrow_mut().main.event(1, TIME, &payload));
    };
    let options = Options {
        debuginfod: false,
        ..Options::default()
    };
    let code = Rc::new(RefCell::new(Code::new(options)));
    let mut counter = ProcessCounter::new("t", "7.3").with_code(Some(code));
    for channel in [MAIN, CONTROL] {
        let file = File(Rc::clone(&process), channel);
        counter.add(channel, file, false).unwrap();
    }
    let mut counted = || {
        counter
            .step(Instant::now() + Duration::from_secs(10))
            .unwrap();
        let events = counter.counted().events.into_iter();
        events
            .map(|event| (event.place.unwrap_or_default(), event.events.seen))
            .collect::<Vec<_>>()
    };
    for _ in 0..3 {
        write(&[0x10010, 0x10020]);
    }
    write(&[0x10020]);
    write(&[]);
    let place = |name: &str, count| (name.to_owned(), count);
    let first = [place("", 1), place("first+0x10", 3), place("first+0x20", 1)];
    assert_eq!(counted(), first);
    describe("-10000");
    describe("+10000 1000 1 - - - %2Fno%2Fsecond");
    write(&[0x10010, 0x10020]);
    write(&[0x10020]);
    let second = [place("second+0x10", 1), place("second+0x20", 1)];
    assert_eq!(counted(), [&first[..], &second].concat());
}
