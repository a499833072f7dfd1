//! The consumer, on simulated files of the kernel, correct and incorrect ones (A10, A11, C5, E6,
//! E7, F4).

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use usertrace_consumer::{CONTROL, ConsumerFile, MAIN, Session, SessionSummary, snapshot_process};
use usertrace_ctf::recording::RecordingNote;
use usertrace_ctf::{ProcessSummary, Version};
use usertrace_reader::{Item, Printer, Reader, Selection};
use usertrace_ring::Positions;
use usertrace_sys::uapi::{LttClockSync, LttFileInfo, LttInfoChannel, LttRingPositions};

use usertrace_testing::{RingWriter, babeltrace};

const SUBBUF: u64 = 4096;
const COUNT: u64 = 4;
const START: u64 = 1_000_000;
const FREQ: u64 = 1_000_000_000;

/// A process, as the kernel sees it.
struct Process {
    pid: u32,
    control: Vec<RingWriter>,
    main: Vec<RingWriter>,
    further: Vec<Further>,
    dead: bool,
    /// Forged heads, if the process lies.
    heads: Option<u64>,
    /// Called when the consumer reads the positions of `main`.
    meanwhile: Option<fn(&mut Process)>,
    /// Called in the middle of each copy of events.
    during_copy: Option<fn(&mut Process)>,
    broken: bool,
    /// Another program is the consumer.
    busy: bool,
    /// The kernel's present knowledge of the frequency, in Hz.
    clock_freq: u64,
}

/// A channel other than `main`.
struct Further {
    name: &'static str,
    scope: u32,
    rings: Vec<RingWriter>,
}

impl Process {
    fn new(pid: u32, rings: u32) -> Rc<RefCell<Self>> {
        let ring = |cpu| RingWriter::new(SUBBUF, COUNT, cpu);
        Rc::new(RefCell::new(Self {
            pid,
            control: (0..rings).map(ring).collect(),
            main: (0..rings).map(ring).collect(),
            further: Vec::new(),
            dead: false,
            heads: None,
            meanwhile: None,
            during_copy: None,
            broken: false,
            busy: false,
            clock_freq: FREQ,
        }))
    }

    fn describe(&mut self) {
        assert!(self.control[0].meta(START, "1 t:number 6 u64 n"));
    }

    fn number(&mut self, n: u64) -> bool {
        let ring = n as usize % self.main.len();
        self.main[ring].event(1, START + 10 * n, &n.to_le_bytes())
    }
}

struct File {
    process: Rc<RefCell<Process>>,
    channel: &'static str,
    /// Directory of the traces, to check that events are written before they are consumed.
    output: PathBuf,
    consumed_calls: Rc<Cell<u32>>,
    stream_bytes: Rc<Cell<u64>>,
}

impl File {
    fn rings<'a>(&self, process: &'a mut Process) -> &'a mut Vec<RingWriter> {
        match self.channel {
            CONTROL => &mut process.control,
            MAIN => &mut process.main,
            _ => {
                let further = self.further(process);
                &mut process.further[further].rings
            }
        }
    }

    fn copy(&self, process: &mut Process, offset: u64, buffer: &mut [u8]) {
        let rings = self.rings(process).iter();
        let bytes: Vec<u8> = rings.flat_map(|r| r.bytes.clone()).collect();
        let offset = offset as usize;
        buffer.copy_from_slice(&bytes[offset..offset + buffer.len()]);
    }

    fn further(&self, process: &Process) -> usize {
        let mut further = process.further.iter();
        further
            .position(|further| further.name == self.channel)
            .unwrap()
    }
}

impl ConsumerFile for File {
    fn info(&self) -> io::Result<LttFileInfo> {
        let mut process = self.process.borrow_mut();
        let sync = LttClockSync {
            cycles: START,
            monotonic: 0,
            realtime: 1_700_000_000_000_000_000,
            freq: FREQ,
        };
        let mut info = LttFileInfo {
            pid: process.pid,
            process: 3,
            // The counts of the control channel are separate.
            sunk: match self.channel {
                CONTROL => 1000,
                MAIN => 7,
                _ => 100,
            },
            channel_index: match self.channel {
                CONTROL => 0,
                MAIN => 1,
                _ => 2 + self.further(&process) as u32,
            },
            start: sync,
            now: LttClockSync {
                cycles: START + 1,
                freq: process.clock_freq,
                ..sync
            },
            channel: LttInfoChannel {
                subbuf_size: self.rings(&mut process)[0].subbuf_size as u32,
                subbuf_count: COUNT as u32,
                nr_rings: self.rings(&mut process).len() as u32,
                control_stride: 128,
                scope: match self.channel {
                    CONTROL | MAIN => 0,
                    _ => process.further[self.further(&process)].scope,
                },
                ..LttInfoChannel::default()
            },
            ..LttFileInfo::default()
        };
        info.comm[..4].copy_from_slice(b"prog");
        info.trace[..2].copy_from_slice(b"tr");
        Ok(info)
    }

    fn positions(&self, rings: &mut [LttRingPositions]) -> io::Result<u32> {
        let mut process = self.process.borrow_mut();
        if process.broken {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if let (MAIN, Some(meanwhile)) = (self.channel, process.meanwhile) {
            meanwhile(&mut process);
        }
        let heads = process.heads;
        for (ring, positions) in self.rings(&mut process).iter().zip(rings) {
            *positions = LttRingPositions {
                head: heads.unwrap_or(ring.head),
                lost: ring.lost,
                claimed: ring.claimed,
                consumed: ring.consumed,
            };
        }
        Ok(u32::from(process.dead))
    }

    fn consume(&self, ring: u32, position: u64) -> io::Result<()> {
        assert_ne!(self.channel, CONTROL, "descriptions are never consumed");
        let mut process = self.process.borrow_mut();
        if process.busy {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let described = process.control[0].head > 0;
        let ring = &mut self.rings(&mut process)[ring as usize];
        if position < ring.consumed || position > ring.head {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.consumed_calls.set(self.consumed_calls.get() + 1);
        // Claimed data was overwritten, perhaps before it was read.
        if described && ring.claimed == 0 {
            // An event takes 16 bytes in the trace, and at least as many in the ring, without
            // headers and padding.
            let subbufs = position / SUBBUF - ring.consumed / SUBBUF + 1;
            let events = (position - ring.consumed).saturating_sub(subbufs * (64 + 16)) / 16;
            let bytes = stream_bytes(&self.output);
            assert!(
                bytes - self.stream_bytes.get() >= events * 16,
                "consumed before it was written"
            );
            self.stream_bytes.set(bytes);
        }
        ring.consumed = position;
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        let mut process = self.process.borrow_mut();
        let half = buffer.len() / 16 * 8;
        self.copy(&mut process, offset, &mut buffer[..half]);
        if let (MAIN, Some(during_copy)) = (self.channel, process.during_copy) {
            during_copy(&mut process);
        }
        self.copy(&mut process, offset + half as u64, &mut buffer[half..]);
    }

    fn load(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn ring_positions(&self, ring: u32) -> io::Result<Positions> {
        let mut process = self.process.borrow_mut();
        let ring = &self.rings(&mut process)[ring as usize];
        let (head, claimed) = (ring.head, ring.claimed.max(ring.consumed));
        Ok(Positions { head, claimed })
    }
}

fn stream_bytes(directory: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == ".usertrace" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            bytes += stream_bytes(&entry.path());
        } else if entry.file_name() != "metadata" {
            bytes += entry.metadata().unwrap().len();
        }
    }
    bytes
}

struct Run {
    directory: tempfile::TempDir,
    session: Session<File>,
    consumed_calls: Rc<Cell<u32>>,
    stream_bytes: Rc<Cell<u64>>,
}

impl Run {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let hostname = Some("host".into());
        let session = Session::open(directory.path(), &RecordingNote::default(), hostname).unwrap();
        Self {
            directory,
            session,
            consumed_calls: Rc::default(),
            stream_bytes: Rc::default(),
        }
    }

    fn file(&self, process: &Rc<RefCell<Process>>, channel: &'static str) -> File {
        File {
            process: process.clone(),
            channel,
            output: self.directory.path().to_owned(),
            consumed_calls: self.consumed_calls.clone(),
            stream_bytes: self.stream_bytes.clone(),
        }
    }

    fn add(&mut self, process: &Rc<RefCell<Process>>, channel: &'static str) {
        let file = self.file(process, channel);
        let name = format!("{}.3", process.borrow().pid);
        self.session.add(channel, &name, file).unwrap();
    }

    fn with(process: &Rc<RefCell<Process>>) -> Self {
        let mut run = Self::new();
        run.add(process, CONTROL);
        run.add(process, MAIN);
        run
    }

    fn drain(&mut self) {
        self.drain_at(Instant::now());
    }

    fn drain_at(&mut self, now: Instant) {
        self.session.drain(false, now).unwrap();
    }

    fn finish(mut self) -> (SessionSummary, babeltrace::Lines, tempfile::TempDir) {
        let summary = self.session.finish().unwrap();
        let read = babeltrace::lines(self.directory.path());
        (summary, read, self.directory)
    }
}

fn numbers(read: &babeltrace::Lines) -> Vec<u64> {
    let number = |line: &String| {
        line.rsplit("n = ")
            .next()
            .unwrap()
            .trim_end_matches(" }")
            .parse()
    };
    read.lines
        .iter()
        .map(|line| number(line).unwrap())
        .collect()
}

/// The kernel refines the frequency while recording. Recordings beside the traces use the same
/// clock.
#[test]
fn final_clock_frequency_is_recorded() {
    let processes = [7, 8].map(|pid| Process::new(pid, 1));
    let mut run = Run::new();
    assert_eq!(run.session.clock(), None);
    for process in &processes {
        process.borrow_mut().describe();
        assert!(process.borrow_mut().number(1));
        run.add(process, CONTROL);
        run.add(process, MAIN);
    }
    run.drain();
    assert_eq!(run.session.clock().unwrap().freq(), FREQ);
    for process in &processes {
        process.borrow_mut().clock_freq = 2 * FREQ;
    }
    let summary = run.session.finish().unwrap();
    assert_eq!(run.session.clock().unwrap().freq(), 2 * FREQ);
    assert_eq!(summary.processes.len(), 2);
    for process in summary.processes {
        let metadata = fs::read(process.directory.join("metadata")).unwrap();
        let metadata = String::from_utf8_lossy(&metadata);
        assert!(metadata.contains("freq = 2000000000;"), "{metadata}");
    }
}

#[test]
fn all_events_are_recorded_while_the_rings_go_round() {
    let process = Process::new(7, 2);
    process.borrow_mut().describe();
    let mut run = Run::with(&process);
    for n in 0..10_000 {
        assert!(process.borrow_mut().number(n));
        if n % 97 == 0 {
            run.drain();
        }
    }
    assert!(process.borrow().main[0].head > 3 * SUBBUF * COUNT);
    assert!(run.consumed_calls.get() > 100);
    process.borrow_mut().dead = true;
    run.drain();
    assert!(!run.session.is_live());
    let (summary, read, _directory) = run.finish();
    assert_eq!(numbers(&read), (0..10_000).collect::<Vec<_>>());
    assert_eq!(read.discarded, 0);
    let process = &summary.processes[0];
    assert_eq!(
        (process.events, process.lost, process.damaged, process.holes),
        (10_000, 0, 0, 0)
    );
    assert_eq!(
        (&process.comm[..], process.pid, process.process),
        ("prog", 7, 3)
    );
    assert_eq!(process.directory.file_name().unwrap(), "prog-7-3");
    let size = stream_bytes(&process.directory)
        + fs::metadata(process.directory.join("metadata"))
            .unwrap()
            .len();
    assert_eq!(process.bytes, size);
    assert!(summary.problems.is_empty());
}

/// Requirements: E7
#[test]
fn losses_to_slow_consumer_are_counted() {
    let process = Process::new(7, 1);
    process.borrow_mut().describe();
    let mut run = Run::with(&process);
    let mut accepted = Vec::new();
    for n in 0..10_000 {
        if process.borrow_mut().number(n) {
            accepted.push(n);
        }
        if n % 3000 == 0 {
            run.drain();
        }
    }
    let (summary, read, _directory) = run.finish();
    assert!(accepted.len() < 9_000);
    assert_eq!(numbers(&read), accepted);
    assert_eq!(read.discarded + accepted.len() as u64, 10_000);
    assert_eq!(summary.processes[0].lost, read.discarded);
}

/// Asserts that the recording has all events of [`further_channels_are_recorded`], and the files of
/// its channels.
fn assert_further_channels(summary: &SessionSummary, read: &babeltrace::Lines) {
    assert_eq!(summary.problems, [""; 0]);
    let process = &summary.processes[0];
    assert_eq!((process.events, process.sunk), (3001, 307));
    assert_eq!((read.lines.len(), read.discarded), (3001, 0));
    let mut numbers = numbers(read);
    numbers.sort_unstable();
    let again = [1000];
    let mut want: Vec<u64> = (0..3000).chain(again).collect();
    want.sort_unstable();
    assert_eq!(numbers, want);
    let context = |n: u64| {
        let ends = format!("{{ n = {n} }}");
        let line = read.lines.iter().find(|line| line.ends_with(&ends));
        line.unwrap().split("t:number: ").nth(1).unwrap().to_owned()
    };
    assert_eq!(context(6), "{ cpu_id = 0 }, { n = 6 }");
    assert_eq!(context(7), "{ n = 7 }");
    assert_eq!(context(9), "{ cpu_id = 1 }, { n = 9 }");
    assert_eq!(context(10), "{ tid = 70 }, { n = 10 }");
    let files = fs::read_dir(&process.directory).unwrap();
    let mut files: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(
        files[..5],
        ["main_0", "main_0-3_0", "main_0-3_1", "metadata", "net_0"]
    );
    assert!(files[5].starts_with("of.threads_70_") && files[6].starts_with("of.threads_71_"));
    assert_eq!(files.len(), 7);
}

/// Each channel has streams of its kind, and any event may be in any of them. The consumer reads a
/// process until all its channels have ended.
///
/// Requirements: E2, E3
#[test]
fn further_channels_are_recorded() {
    for late in [false, true] {
        let process = Process::new(7, 2);
        process.borrow_mut().describe();
        for (name, scope, rings) in [("net", 2, 1), ("main_0", 0, 2), ("of.threads", 1, 2)] {
            let rings = (0..rings).map(|n| RingWriter::new(SUBBUF, COUNT, n + 70));
            let rings = rings.collect();
            process
                .borrow_mut()
                .further
                .push(Further { name, scope, rings });
        }
        let mut run = Run::new();
        let names = ["main", "net", "main_0", "of.threads"];
        run.session.set_channels(names.map(str::to_owned).into());
        // Not in the order of their numbers.
        run.add(&process, "net");
        run.add(&process, CONTROL);
        run.add(&process, MAIN);
        run.add(&process, "main_0");
        let write = |n: u64| {
            let mut process = process.borrow_mut();
            let (time, payload) = (START + 10 * n, n.to_le_bytes());
            let further = &mut process.further;
            let ring = match n % 6 {
                0 => &mut process.main[0],
                1 => &mut further[0].rings[0],
                2 | 3 => &mut further[1].rings[(n % 2) as usize],
                _ => &mut further[2].rings[(n % 2) as usize],
            };
            assert!(ring.event(1, time, &payload));
        };
        for n in 0..3000 {
            write(n);
            if n % 100 == 0 {
                // An event described during the recording is known in all channels.
                if n == 1000 {
                    assert!(process.borrow_mut().control[0].meta(START, "2 t:late 6 u64 n"));
                    let payload = 1000u64.to_le_bytes();
                    assert!(process.borrow_mut().further[0].rings[0].event(2, START, &payload));
                }
                if n == 500 && !late {
                    run.add(&process, "of.threads");
                }
                if n < 500 || !late {
                    run.drain();
                }
            }
        }
        process.borrow_mut().dead = true;
        run.drain();
        assert_eq!(run.session.is_live(), late);
        if late {
            run.add(&process, "of.threads");
            run.drain();
        }
        assert!(!run.session.is_live());
        let (summary, read, _directory) = run.finish();
        assert_further_channels(&summary, &read);
    }
}

/// A ring in overwrite mode is followed: overwritten events are counted, and no others are missing.
/// The mode may change at any time.
///
/// Requirements: E3
#[test]
fn a_ring_that_overwrites_is_followed() {
    for flips in [false, true] {
        let process = Process::new(7, 1);
        process.borrow_mut().describe();
        process.borrow_mut().main[0].overwrites = true;
        let mut run = Run::with(&process);
        let mut accepted = Vec::new();
        for n in 0..10_000 {
            if process.borrow_mut().number(n) {
                accepted.push(n);
            }
            // Often enough at first, then too rarely.
            if n % if n < 5000 { 100 } else { 1700 } == 0 {
                run.drain();
                let ring = &mut process.borrow_mut().main[0];
                assert_eq!(ring.consumed, ring.head);
                ring.overwrites ^= flips;
            }
        }
        let (summary, read, _directory) = run.finish();
        let numbers = numbers(&read);
        assert!(numbers[..5000].iter().eq(accepted[..5000].iter()));
        assert!(numbers.len() < accepted.len());
        assert!(numbers.iter().all(|n| accepted.binary_search(n).is_ok()));
        assert!(numbers.is_sorted() && numbers.last() == accepted.last());
        let process = &summary.processes[0];
        assert!(read.discarded_packets > 0);
        assert_eq!(process.overwritten, read.discarded_packets);
        assert_eq!(process.lost + accepted.len() as u64, 10_000);
        assert_eq!((flips, process.lost), (process.lost > 0, read.discarded));
        assert_eq!((process.damaged, process.holes), (0, 0));
    }
}

/// An event is described before it is written, at any time of a recording.
///
/// Requirements: E6
#[test]
fn event_described_during_recording_is_read() {
    let process = Process::new(7, 1);
    let mut run = Run::with(&process);
    process.borrow_mut().meanwhile = Some(|process| {
        let n = process.control[0].head;
        let id = process.main[0].accepted.len() as u16 + 1;
        assert!(process.control[0].meta(START, &format!("{id} t:e{id} 6 u64 n")));
        process.main[0].event(id, START + n, &n.to_le_bytes());
    });
    for _ in 0..10 {
        run.drain();
    }
    process.borrow_mut().meanwhile = None;
    let (summary, read, _directory) = run.finish();
    assert_eq!(read.lines.len(), process.borrow().main[0].accepted.len());
    assert_eq!(summary.processes[0].damaged, 0);
    assert_eq!(summary.processes[0].event_kinds, read.lines.len());
}

#[test]
fn reading_waits_for_descriptions() {
    let process = Process::new(7, 1);
    process.borrow_mut().describe();
    process.borrow_mut().number(1);
    process.borrow_mut().dead = true;
    let mut run = Run::new();
    run.add(&process, MAIN);
    run.drain();
    assert!(run.session.is_live());
    assert!(run.session.wants(CONTROL, "7.3"));
    run.add(&process, CONTROL);
    run.drain();
    assert!(!run.session.is_live());
    assert!(!run.session.wants(CONTROL, "7.3"));
    let (summary, read, _directory) = run.finish();
    assert_eq!(numbers(&read), [1]);
    assert_eq!(summary.processes[0].damaged, 0);
}

#[test]
fn events_that_were_never_described_are_counted() {
    let process = Process::new(7, 1);
    process.borrow_mut().number(1);
    let mut run = Run::new();
    run.add(&process, MAIN);
    let (summary, read, _directory) = run.finish();
    assert_eq!((read.lines.len(), read.discarded), (0, 1));
    assert_eq!(summary.processes[0].damaged, 1);
}

/// The process was killed at any instant.
///
/// Requirements: A10
#[test]
fn dead_process_is_read_to_its_end() {
    for events in [0, 1, 300, 2000] {
        let process = Process::new(7, 2);
        process.borrow_mut().describe();
        for n in 0..events {
            process.borrow_mut().number(n);
        }
        process.borrow_mut().dead = true;
        let mut run = Run::with(&process);
        run.drain();
        assert!(!run.session.is_live());
        let (summary, read, _directory) = run.finish();
        assert_eq!(
            summary.processes[0].events + summary.processes[0].lost,
            events
        );
        assert_eq!(read.lines.len() as u64 + read.discarded, events);
        // The kernel's count of missing pages (F2).
        assert_eq!(summary.processes[0].sunk, 7);
    }
}

/// The consumer waits for an unfinished record as long as that does no harm, and reads other rings.
#[test]
fn incomplete_record_is_skipped_when_ring_fills_up() {
    let process = Process::new(7, 2);
    process.borrow_mut().describe();
    let mut run = Run::with(&process);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let write = |ring: usize, n: u64| {
        let ring = &mut process.borrow_mut().main[ring];
        assert!(ring.event(1, START + n, &n.to_le_bytes()));
    };
    assert!(process.borrow_mut().main[0].long(1, START, &[0; 8], 63));
    write(0, 1);
    write(1, 2);
    run.drain_at(at(0));
    run.drain_at(at(1000));
    let consumed = |ring: usize| process.borrow().main[ring].consumed;
    assert_eq!(consumed(0), 64);
    assert_eq!(consumed(1), process.borrow().main[1].head);
    // From here on, more than half of the ring is full.
    for n in 0..600 {
        write(0, 10 + n);
    }
    run.drain_at(at(1001));
    run.drain_at(at(1011));
    assert_eq!(consumed(0), 64);
    run.drain_at(at(1012));
    assert_eq!(consumed(0), process.borrow().main[0].head);
    let (summary, read, _directory) = run.finish();
    assert_eq!(read.lines.len(), 602);
    assert_eq!((read.discarded, summary.processes[0].unfinished), (1, 1));
    assert_eq!(summary.processes[0].damaged, 0);
}

/// The consumer also waits for an unfinished description before it reads any event, but not
/// forever.
#[test]
fn events_wait_for_descriptions() {
    let process = Process::new(7, 1);
    process.borrow_mut().describe();
    let at = process.borrow().control[0].head;
    assert!(process.borrow_mut().control[0].long(0xfffc, START, b"2 t:f 0\0", 63));
    process.borrow_mut().number(1);
    process.borrow_mut().main[0].event(2, START + 2, b"");
    let mut run = Run::with(&process);
    let start = Instant::now();
    run.drain_at(start);
    run.drain_at(start + Duration::from_secs(10));
    assert_eq!(process.borrow().main[0].consumed, 0);
    process.borrow_mut().control[0].store(at + 8, 24 | 0xfffc << 32 | 1 << 62);
    run.drain_at(start + Duration::from_secs(11));
    let (summary, read, _directory) = run.finish();
    assert_eq!(read.lines.len(), 2);
    assert_eq!(summary.processes[0].damaged, 0);

    // The same with a description that stays unfinished.
    let process = Process::new(8, 1);
    process.borrow_mut().describe();
    assert!(process.borrow_mut().control[0].long(0xfffc, START, b"2 t:f 0\0", 63));
    process.borrow_mut().number(1);
    let mut run = Run::with(&process);
    run.drain_at(start);
    run.drain_at(start + Duration::from_secs(11));
    assert_eq!(
        process.borrow().main[0].consumed,
        process.borrow().main[0].head
    );
    let (_, read, _directory) = run.finish();
    assert_eq!(numbers(&read), [1]);
}

/// A forged head harms no other process.
///
/// Requirements: A11
#[test]
fn forged_positions_harm_only_their_process() {
    for lie in [0, 8, 17, SUBBUF * COUNT * 100, u64::MAX, u64::MAX - 7] {
        let (good, bad) = (Process::new(7, 2), Process::new(8, 2));
        let mut run = Run::new();
        for process in [&good, &bad] {
            process.borrow_mut().describe();
            run.add(process, CONTROL);
            run.add(process, MAIN);
        }
        for n in 0..3000 {
            assert!(good.borrow_mut().number(n));
            bad.borrow_mut().number(n);
            if n % 100 == 50 {
                bad.borrow_mut().heads = (n > 400).then_some(lie);
                run.drain();
            }
        }
        let (summary, read, _directory) = run.finish();
        assert!(summary.problems.is_empty());
        let process = |pid| summary.processes.iter().find(|p| p.pid == pid).unwrap();
        assert_eq!((process(7).events, process(7).damaged), (3000, 0));
        assert!(process(8).damaged + process(8).overwritten > 0, "{lie:#x}");
        assert_eq!(read.lines.len() as u64, 3000 + process(8).events);
    }
}

/// Writes a snapshot of a process's rings.
fn snapshot(process: &Rc<RefCell<Process>>) -> (ProcessSummary, babeltrace::Lines) {
    let run = Run::new();
    let further = process
        .borrow()
        .further
        .iter()
        .map(|f| f.name)
        .collect::<Vec<_>>();
    let channels = [CONTROL, MAIN].into_iter().chain(further);
    let files = channels.map(|channel| (channel.to_owned(), run.file(process, channel)));
    let directory = tempfile::tempdir().unwrap();
    let done = snapshot_process(
        directory.path(),
        Some("host"),
        files.collect(),
        Version::default(),
    );
    assert_eq!(run.consumed_calls.get(), 0);
    (done.unwrap().unwrap(), babeltrace::lines(directory.path()))
}

/// Recordings and snapshots in CTF 2 have the same events as those in CTF 1.8.
///
/// Requirements: F1
#[test]
fn ctf_2_is_recorded() {
    let (mut metadata, mut printed) = (Vec::new(), Vec::new());
    let mut look = |directory: &Path| {
        let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
        let path = reader.traces()[0].directory().join("metadata");
        metadata.push(fs::read(path).unwrap()[..2].to_vec());
        let (mut text, mut printer) = (Vec::new(), Printer::new());
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => printer.event(&mut text, &event),
                other => panic!("{other:?}"),
            }
        }
        printed.push(String::from_utf8(text).unwrap());
    };
    for version in [Version::V1_8, Version::V2] {
        let process = Process::new(7, 1);
        process.borrow_mut().describe();
        let mut run = Run::new();
        run.session.set_version(version);
        for channel in [CONTROL, MAIN] {
            run.add(&process, channel);
        }
        assert!((0..9).all(|n| process.borrow_mut().number(n)));
        let snapshot = tempfile::tempdir().unwrap();
        let files = [CONTROL, MAIN].map(|name| (name.to_owned(), run.file(&process, name)));
        let done = snapshot_process(snapshot.path(), Some("host"), files.into(), version);
        assert_eq!(done.unwrap().unwrap().events, 9);
        look(snapshot.path());
        run.drain();
        let Run {
            directory,
            mut session,
            ..
        } = run;
        assert_eq!(session.finish().unwrap().processes[0].events, 9);
        look(directory.path());
    }
    assert_eq!(metadata[0], b"/*");
    assert_eq!(metadata[0], metadata[1]);
    assert_eq!(metadata[2], b"\x1e{");
    assert_eq!(metadata[2], metadata[3]);
    assert_eq!(printed[0].lines().count(), 9);
    assert_eq!(printed[0], printed[2]);
    assert_eq!(printed[1], printed[3]);
}

/// A snapshot consumes nothing. It has the unconsumed events, or the last ones in overwrite mode.
///
/// Requirements: E3
#[test]
fn snapshot_has_the_contents_of_the_rings() {
    let process = Process::new(7, 2);
    process.borrow_mut().describe();
    let mut over = RingWriter::new(SUBBUF, COUNT, 0);
    over.overwrites = true;
    let further = |name, ring| Further {
        name,
        scope: 2,
        rings: vec![ring],
    };
    process.borrow_mut().further.push(further("over", over));
    for n in 0..1000 {
        let mut process = process.borrow_mut();
        assert!(process.number(n));
        for more in 0..2 {
            let payload = (10_000 + 2 * n + more).to_le_bytes();
            process.further[0].rings[0].event(1, START + 10 * n, &payload);
        }
    }
    let (first, read) = snapshot(&process);
    let mut all = numbers(&read);
    all.sort_unstable();
    let over = &process.borrow().further[0].rings[0].clone();
    let room = SUBBUF * COUNT;
    let kept = (room - SUBBUF).div_ceil(16)..=room / 16;
    let of_over = all.len() as u64 - 1000;
    assert!(over.head > room && kept.contains(&of_over), "{of_over}");
    assert!(
        all.iter()
            .copied()
            .eq((0..1000).chain(12_000 - of_over..12_000))
    );
    assert_eq!(
        (read.discarded, read.discarded_packets, first.overwritten),
        (0, 0, 0)
    );
    assert_eq!((first.damaged, first.holes, first.sunk), (0, 0, 107));
    assert_eq!((&first.comm[..], first.pid), ("prog", 7));
    let (again, _) = snapshot(&process);
    assert_eq!(again.events, first.events);

    // With a consumer, fully consumed sub-buffers may be overwritten at any time.
    for ring in &mut process.borrow_mut().main {
        ring.consumed = ring.head - SUBBUF;
    }
    let (_, read) = snapshot(&process);
    let mut of_main = numbers(&read);
    of_main.retain(|&n| n < 1000);
    of_main.sort_unstable();
    let first = of_main[0];
    assert!(of_main.iter().copied().eq(first..1000));
    assert!(
        (2 * SUBBUF / 16..4 * SUBBUF / 16).contains(&(1000 - first)),
        "{first}"
    );
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
}

/// A byte missing at the end of a stream costs babeltrace2 the packet, and this reader one event.
///
/// Requirements: E3, F1
#[test]
fn snapshot_has_short_packets() {
    let process = Process::new(7, 1);
    process.borrow_mut().describe();
    process.borrow_mut().main = vec![RingWriter::new(256 << 10, COUNT, 0)];
    let written = 50_000;
    assert!((0..written).all(|n| process.borrow_mut().number(n)));
    let run = Run::new();
    let files = [CONTROL, MAIN].map(|channel| (channel.to_owned(), run.file(&process, channel)));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let done = snapshot_process(path, Some("host"), files.into(), Version::default());
    let summary = done.unwrap().unwrap();
    assert_eq!(summary.events, written);
    assert_eq!(babeltrace::lines(path).lines.len() as u64, written);
    let stream = summary.directory.join("main_0");
    let mut bytes = fs::read(&stream).unwrap();
    let mut at = 0;
    while at < bytes.len() {
        let size = u64::from_ne_bytes(bytes[at + 56..][..8].try_into().unwrap()) as usize / 8;
        assert!(size <= 64 << 10, "{size}");
        at += size;
    }
    bytes.pop();
    fs::write(&stream, bytes).unwrap();
    let mut reader = Reader::open(&[path.to_owned()], Selection::default()).unwrap();
    let (mut events, mut problems) = (0, Vec::new());
    while let Some(item) = reader.next() {
        match item {
            Item::Event(_) => events += 1,
            Item::Error(error) => problems.push(error),
            Item::Lost(lost) => panic!("{lost:?}"),
        }
    }
    assert!(
        matches!(&problems[..], [problem] if problem.is_cut()),
        "{problems:?}"
    );
    assert_eq!(events, written - 1);
}

/// A snapshot discards data that was overwritten during the copy, whether the mode or a consumer
/// allowed that.
///
/// Requirements: F4
#[test]
fn snapshot_discards_overwritten_copies() {
    for overwrites in [true, false] {
        let process = Process::new(7, 1);
        process.borrow_mut().describe();
        process.borrow_mut().main[0].overwrites = overwrites;
        for n in 0..2000 {
            process.borrow_mut().number(n);
        }
        process.borrow_mut().during_copy = Some(|process| {
            let ring = &mut process.main[0];
            let (from, time) = (ring.accepted.len() as u64, ring.time);
            if !ring.overwrites {
                ring.consumed = ring.head;
            }
            for n in from..from + 120 {
                assert!(ring.event(1, time + n, &(10_000 + n).to_le_bytes()));
            }
        });
        let (summary, read) = snapshot(&process);
        let ring = &process.borrow().main[0];
        let accepted: Vec<_> = ring
            .accepted
            .iter()
            .map(|(_, _, payload)| u64::from_le_bytes(payload[..].try_into().unwrap()))
            .collect();
        let numbers = numbers(&read);
        let mut was = accepted.iter();
        assert!(numbers.iter().all(|n| was.any(|a| a == n)), "{overwrites}");
        assert!(!numbers.is_empty() || !overwrites);
        assert!(summary.overwritten > 0);
        assert_eq!(read.discarded_packets, summary.overwritten);
        assert_eq!((summary.damaged, summary.holes), (0, 0));
    }
}

/// A snapshot waits for an unfinished record, but not for long.
#[test]
fn snapshot_skips_incomplete_record() {
    let process = Process::new(7, 1);
    process.borrow_mut().describe();
    process.borrow_mut().number(0);
    assert!(process.borrow_mut().main[0].long(1, START, &[0; 8], 63));
    process.borrow_mut().number(1);
    let (summary, read) = snapshot(&process);
    assert_eq!((numbers(&read), summary.unfinished), (vec![0, 1], 1));
}

#[test]
fn snapshot_needs_all_files_of_a_process() {
    let process = Process::new(7, 1);
    let run = Run::new();
    for channel in [CONTROL, MAIN] {
        let files = vec![(channel.to_owned(), run.file(&process, channel))];
        let error =
            snapshot_process(run.directory.path(), None, files, Version::default()).unwrap();
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("not all of its files")
        );
    }
    process.borrow_mut().broken = true;
    let files = [CONTROL, MAIN].map(|of| (of.to_owned(), run.file(&process, of)));
    let done = snapshot_process(run.directory.path(), None, files.into(), Version::default());
    assert!(done.unwrap().is_err());
}

/// A ring has one consumer. The conflict is found before anything is written.
///
/// Requirements: C5
#[test]
fn process_of_another_consumer_is_named() {
    let process = Process::new(7, 1);
    process.borrow_mut().describe();
    process.borrow_mut().number(0);
    process.borrow_mut().busy = true;
    let mut run = Run::new();
    let file = run.file(&process, MAIN);
    let error = run.session.add(MAIN, "7.3", file).unwrap_err();
    let message = "another program consumes the channel main of 7.3";
    assert_eq!(error.to_string(), message);
    assert!(!run.directory.path().join("prog-7-3").exists());

    // The same in the other order, in case the kernel allows that.
    process.borrow_mut().busy = false;
    let mut run = Run::with(&process);
    process.borrow_mut().busy = true;
    let error = run.session.drain(false, Instant::now()).unwrap_err();
    assert_eq!(error.to_string(), message);
}

/// A directory belongs to one recorder and one trace.
#[test]
fn directory_belongs_to_one_recorder() {
    let run = Run::new();
    let open = |name: &str| {
        let recorded = RecordingNote {
            name: name.into(),
            ..RecordingNote::default()
        };
        Session::<File>::open(run.directory.path(), &recorded, None)
    };
    let error = open("").err().unwrap();
    assert_eq!(error.to_string(), "another program records there");
    let Run {
        directory, session, ..
    } = run;
    // As after a kill.
    drop(session);
    let open = |recorded: &RecordingNote| Session::<File>::open(directory.path(), recorded, None);
    for (name, generation, boot) in [("other", 0, ""), ("", 1, ""), ("", 0, "another")] {
        let (name, boot) = (name.into(), boot.into());
        let recorded = RecordingNote {
            name,
            generation,
            boot,
            created: true,
        };
        let error = open(&recorded).err().unwrap().to_string();
        assert!(error.contains("of another trace"), "{error}");
    }
    let mut session = open(&RecordingNote::default()).unwrap();
    session.finish().unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(RecordingNote::of(directory.path()).unwrap(), None);
}

/// The notes may contain anything.
///
/// Requirements: F4
#[test]
fn damaged_checkpoints_are_refused() {
    let process = Process::new(7, 1);
    process.borrow_mut().describe();
    for (file, text) in [
        ("trace", "nothing"),
        ("7.3.trace", ""),
        (
            "7.3.trace",
            "directory ../x\nuuid 0\nchunk 0\nended false\n",
        ),
        ("7.3.trace", "directory \nuuid 0\nchunk 0\nended false\n"),
        ("7.3.trace", "directory x\nuuid zz\nchunk 0\nended false\n"),
        ("7.3.trace", "directory x\nuuid 0\nended false\n"),
        ("chunk", "number 0\nbegin 1\n"),
        ("7.3.descriptions", "nothing\n"),
        ("7.3.descriptions", "@1 what\n"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let open = || Session::open(directory.path(), &RecordingNote::default(), None);
        drop(open().unwrap() as Session<File>);
        fs::write(directory.path().join(".usertrace").join(file), text).unwrap();
        let refused = open().is_err() || {
            let run = Run::new();
            let file = run.file(&process, MAIN);
            let mut session = open().unwrap();
            let added = session.add(MAIN, "7.3", file);
            // Notes are written only when there is something to read.
            added.is_err() || session.drain(false, Instant::now()).is_err()
        };
        assert!(refused, "{file}: {text}");
    }
}

#[test]
fn failing_file_costs_only_its_process() {
    let (good, bad) = (Process::new(7, 1), Process::new(8, 1));
    let mut run = Run::new();
    for process in [&good, &bad] {
        process.borrow_mut().describe();
        process.borrow_mut().number(0);
        run.add(process, CONTROL);
        run.add(process, MAIN);
    }
    run.drain();
    bad.borrow_mut().broken = true;
    good.borrow_mut().number(1);
    run.drain();
    let (summary, read, _directory) = run.finish();
    assert_eq!(summary.problems.len(), 1);
    assert!(summary.problems[0].starts_with("8.3: "));
    assert_eq!(summary.processes.len(), 2);
    assert_eq!(read.lines.len(), 3);
}
