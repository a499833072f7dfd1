//! Sending a recording to a relay in this process that breaks: each packet is there once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::{self, Scope as Threads, ScopedJoinHandle};
use std::time::{Duration, Instant};

use usertrace_consumer::{
    RelayEvent, RelayOptions, RelaySummary, SendOptions, SendRecordingError, send_recording,
};
use usertrace_ctf::recording::RUNNING;
use usertrace_ctf::{
    Clock, StreamChannel, StreamOwner, StreamWriter, TraceInfo, TraceOrigin, TraceWriter,
};
use usertrace_os::files;
use usertrace_relay::fake::{FakeRelay, Fault, FaultKind};
use usertrace_sys::Scope;
use usertrace_sys::uapi::LttClockSync;
use usertrace_testing::wait::{self, until};

/// Traces in each chunk, and packets in each of their streams.
const TRACES: u32 = 2;
const PACKETS: u64 = 5;

/// Creates the trace of a process.
fn create_trace(directory: &Path, pid: u32) -> TraceWriter {
    let sync = LttClockSync::default();
    let clock = Clock::new(&sync, &[sync]);
    let info = TraceInfo {
        trace_name: "web".into(),
        origin: TraceOrigin::Process {
            name: "prog".into(),
            pid,
            process: pid.into(),
        },
        hostname: None,
    };
    let mut trace = TraceWriter::create(directory, info, clock).unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    trace
}

/// A stream of a trace, which is empty.
fn stream(trace: &TraceWriter, cpu: u32) -> StreamWriter {
    let channel = StreamChannel::new("main", 1);
    trace.stream(&channel, StreamOwner::Cpu(cpu)).unwrap()
}

/// Writes an event that is before any bound of a live session.
fn write_early(stream: &mut StreamWriter) {
    write_at(stream, 0);
}

fn write_at(stream: &mut StreamWriter, time: u64) {
    stream.event(1, time, &[], &[1; 100]).unwrap();
    stream.flush().unwrap();
}

/// Writes the trace of a process with two streams.
fn write_trace(directory: &Path, pid: u32) {
    let trace = create_trace(directory, pid);
    for cpu in 0..2 {
        let mut stream = stream(&trace, cpu);
        for time in 0..PACKETS {
            stream.event(1, time, &[], &[pid as u8; 100]).unwrap();
            stream.flush().unwrap();
        }
        stream.finish().unwrap();
    }
}

/// A recording with two finished chunks.
fn recording() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for chunk in ["20261122T150347Z-000001", "20261122T150348Z-000002"] {
        fs::create_dir(directory.path().join(chunk)).unwrap();
        for pid in 1..=TRACES {
            let trace = directory.path().join(chunk).join(format!("prog-{pid}-1"));
            write_trace(&trace, pid);
        }
    }
    directory
}

/// The files of all traces, by their paths below the directory.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(path) = todo.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if !path
                .file_name()
                .unwrap()
                .as_encoded_bytes()
                .starts_with(b".")
            {
                let name = path.strip_prefix(directory).unwrap().to_owned();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

/// Asserts that the relay has exactly these files, in one session's directory.
fn assert_exact(relay: &FakeRelay, recording: &Path) {
    let received = relay.files();
    let sessions = relay.sessions();
    let base = sessions.first().expect("a session");
    assert!(sessions.iter().all(|of| of == base), "{sessions:?}");
    let received: BTreeMap<_, _> = received
        .into_iter()
        .map(|(name, bytes)| {
            (
                Path::new(&name).strip_prefix(base).unwrap().to_owned(),
                bytes,
            )
        })
        .collect();
    let written = files(recording);
    let names = |of: &BTreeMap<PathBuf, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&received), names(&written));
    assert!(received == written, "contents differ");
}

fn options(relay: &FakeRelay, patience: Option<Duration>) -> RelayOptions {
    RelayOptions {
        address: relay.address().clone(),
        spool: u64::MAX,
        live: None,
        patience,
    }
}

fn send(
    relay: &FakeRelay,
    recording: &Path,
    patience: Option<Duration>,
) -> (RelaySummary, Vec<RelayEvent>) {
    let options = SendOptions {
        recording: recording.to_owned(),
        name: "web".to_owned(),
        relay: options(relay, patience),
    };
    let mut events = Vec::new();
    let summary = send_recording(&options, &mut |event| events.push(event)).unwrap();
    (summary.expect("the thread ends"), events)
}

#[test]
fn recording_is_sent_and_stays() {
    let (relay, recording) = (FakeRelay::start(), recording());
    let (summary, events) = send(&relay, recording.path(), None);
    assert!(summary.is_complete, "{events:?}");
    assert_exact(&relay, recording.path());
    // All streams, and the metadata of all traces, were closed.
    assert_eq!(relay.closed().len() as u32, 2 * TRACES * 3);
    let sent = events
        .iter()
        .filter(|of| matches!(of, RelayEvent::Sent { .. }));
    assert_eq!(sent.count(), 2, "{events:?}");
    // Again: the names are the same.
    let (summary, _) = send(&relay, recording.path(), None);
    assert!(summary.is_complete);
    assert_exact(&relay, recording.path());
}

#[test]
fn trace_without_chunks_is_sent() {
    let relay = FakeRelay::start();
    let directory = tempfile::tempdir().unwrap();
    write_trace(&directory.path().join("prog-1-1"), 1);
    let (summary, _) = send(&relay, directory.path(), None);
    assert!(summary.is_complete);
    assert_exact(&relay, directory.path());
}

#[test]
fn connections_that_break_leave_nothing_twice() {
    // The control connection has about 6,000 bytes, the data connection about 11,000.
    for after in (0..6000).step_by(997) {
        for (control, data) in [(Some(after), None), (None, Some(2 * after))] {
            let (relay, recording) = (FakeRelay::start(), recording());
            let kind = FaultKind::Close;
            let fault = |after: Option<usize>| after.map(|after| Fault { after, kind });
            // Two sessions break, each somewhere else.
            relay.add_faults(fault(control), fault(data));
            relay.add_faults(fault(data), fault(control));
            let (summary, events) = send(&relay, recording.path(), None);
            assert!(summary.is_complete, "{events:?}");
            assert_exact(&relay, recording.path());
        }
    }
}

#[test]
fn relay_that_talks_nonsense_is_given_up_in_time() {
    let (relay, recording) = (FakeRelay::start(), recording());
    for byte in 1..50 {
        let kind = FaultKind::Garbage(byte);
        let fault = Some(Fault { after: 24, kind });
        relay.add_faults(fault, None);
    }
    let patience = Some(Duration::from_millis(500));
    let (summary, events) = send(&relay, recording.path(), patience);
    assert!(!summary.is_complete);
    assert!(summary.waiting > 0 && summary.why.is_some(), "{summary:?}");
    let is_lost = |event: &RelayEvent| matches!(event, RelayEvent::Lost { .. });
    assert!(events.iter().any(is_lost), "{events:?}");
    let mut texts = events.iter().map(ToString::to_string);
    assert!(texts.all(|text| !text.contains(char::is_control)));
}

/// The sender gives up the connection, and sends everything by another one.
#[test]
fn relay_that_stalls_is_left_in_time() {
    let stall = |after| {
        let kind = FaultKind::Stall;
        Some(Fault { after, kind })
    };
    // At once, in the middle, and where only confirmations are missing.
    let cases = [
        (stall(0), None),
        (stall(2000), None),
        (None, stall(0)),
        (None, stall(5000)),
    ];
    thread::scope(|scope| {
        for (control, data) in cases {
            scope.spawn(move || {
                let (relay, recording) = (FakeRelay::start(), recording());
                relay.add_faults(control, data);
                let begun = Instant::now();
                let (summary, events) = send(&relay, recording.path(), None);
                assert!(summary.is_complete, "{events:?}");
                assert!(begun.elapsed() < Duration::from_secs(60), "{events:?}");
                assert!(events.iter().any(RelayEvent::is_trouble), "{events:?}");
                assert_exact(&relay, recording.path());
            });
        }
    });
}

#[test]
fn directory_without_a_trace_is_left_alone() {
    let (relay, directory) = (FakeRelay::start(), tempfile::tempdir().unwrap());
    let options = SendOptions {
        recording: directory.path().to_owned(),
        name: "web".to_owned(),
        relay: options(&relay, None),
    };
    let error = send_recording(&options, &mut |_| {}).unwrap_err();
    assert!(matches!(error, SendRecordingError::NoTrace(_)), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert!(relay.sessions().is_empty());
}

/// The period of live sessions, and how long streams stay open when everything was sent.
const LIVE: Duration = Duration::from_millis(50);
const LINGER: Duration = Duration::from_millis(500);

/// A recording that goes on, as a daemon has the lock of its file.
struct Running {
    directory: tempfile::TempDir,
    lock: File,
}

impl Running {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let lock = File::create(directory.path().join(RUNNING)).unwrap();
        files::flock(&lock, libc::LOCK_SH).unwrap();
        Self { directory, lock }
    }

    fn chunk(&self, name: &str) -> PathBuf {
        let chunk = self.directory.path().join(name);
        fs::create_dir(&chunk).unwrap();
        chunk
    }

    /// Sends it live, and collects the names of the chunks that the relay has.
    fn send_live<'a>(
        &self,
        relay: &FakeRelay,
        sent: &'a Mutex<Vec<String>>,
        threads: &'a Threads<'a, '_>,
    ) -> ScopedJoinHandle<'a, RelaySummary> {
        let relay = RelayOptions {
            live: Some(LIVE),
            // A test that fails must end.
            ..options(relay, Some(2 * wait::LIMIT))
        };
        let options = SendOptions {
            recording: self.directory.path().to_owned(),
            name: "web".to_owned(),
            relay,
        };
        threads.spawn(move || {
            let mut notify = |event| {
                if let RelayEvent::Sent { name } = event {
                    sent.lock().unwrap().push(name);
                }
            };
            let summary = send_recording(&options, &mut notify).unwrap();
            summary.expect("the thread ends")
        })
    }
}

/// `babeltrace2` hangs when a trace that it knows gets its first stream, and looks for new ones
/// only after a packet.
#[test]
fn live_viewers_get_a_trace_with_its_first_stream() {
    let (relay, running, sent) = (FakeRelay::start(), Running::start(), Mutex::default());
    let chunk = running.chunk("20261122T150347Z-000001.current");
    let [first, late] = [1, 2].map(|pid| create_trace(&chunk.join(format!("prog-{pid}-1")), pid));
    let _never = create_trace(&chunk.join("prog-3-1"), 3);
    let [mut first, mut late] = [&first, &late].map(|trace| stream(trace, 0));
    write_early(&mut first);
    thread::scope(|threads| {
        let sender = running.send_live(&relay, &sent, threads);
        until("a stream is published", || !relay.published().is_empty());
        write_early(&mut late);
        until("another one is", || relay.published().len() > 1);
        files::flock(&running.lock, libc::LOCK_UN).unwrap();
        assert!(sender.join().unwrap().is_complete);
    });
    let base = &relay.sessions()[0];
    let expected = [1, 2].map(|pid| {
        let stream = |name| format!("{base}/20261122T150347Z-000001/prog-{pid}-1/{name}");
        ["main_0", "metadata"].map(stream).to_vec()
    });
    let wakeup = format!("{base}/.live/wakeup");
    let published = relay.published().into_iter().map(|mut streams| {
        streams.retain(|path| !path.starts_with(&format!("{base}/.live/")));
        streams
    });
    assert_eq!(published.collect::<Vec<_>>(), expected);
    // A packet for each publication.
    assert_eq!(relay.files()[&wakeup].len(), 2 * 56);
    assert!(relay.closed().contains(&wakeup), "{:?}", relay.closed());
    // The metadata of the trace without events came later.
    let name = format!("{base}/20261122T150347Z-000001/prog-3-1/metadata");
    let expected = fs::read(chunk.join("prog-3-1/metadata")).unwrap();
    assert!(relay.files()[&name] == expected, "{name}");
}

#[test]
fn finished_chunks_leave_while_nothing_is_recorded() {
    let (relay, running, sent) = (FakeRelay::start(), Running::start(), Mutex::default());
    let names = ["20261122T150347Z-000001", "20261122T150348Z-000002"];
    for chunk in names.map(|name| running.chunk(name)) {
        for pid in 1..=TRACES {
            let trace = create_trace(&chunk.join(format!("prog-{pid}-1")), pid);
            write_early(&mut stream(&trace, 0));
        }
    }
    let current = running.chunk("20261122T150349Z-000003.current");
    let _idle = stream(&create_trace(&current.join("prog-1-1"), 1), 0);
    thread::scope(|threads| {
        let sender = running.send_live(&relay, &sent, threads);
        until("the relay has a chunk", || !sent.lock().unwrap().is_empty());
        // Viewers end with the last stream.
        assert_eq!(*sent.lock().unwrap(), names[..1]);
        let streams = 2 * TRACES as usize;
        let closed = relay.closed();
        let of_traces = closed.iter().filter(|path| path.ends_with("main_0"));
        assert!(of_traces.count() < streams, "{closed:?}");
        files::flock(&running.lock, libc::LOCK_UN).unwrap();
        assert!(sender.join().unwrap().is_complete);
    });
    assert_eq!(sent.lock().unwrap().len(), 3);
}

/// The relay shows nothing of a stream that was closed.
#[test]
fn viewers_have_time_to_read_packets_that_were_held_back() {
    let (relay, running, sent) = (FakeRelay::start(), Running::start(), Mutex::default());
    let chunk = running.chunk("20261122T150347Z-000001");
    let trace = create_trace(&chunk.join("prog-1-1"), 1);
    let mut stream = stream(&trace, 0);
    // Nobody confirms that there is nothing before the second one.
    for time in 0..2 {
        write_at(&mut stream, time);
    }
    thread::scope(|threads| {
        let sender = running.send_live(&relay, &sent, threads);
        until("a stream is published", || !relay.published().is_empty());
        let published = Instant::now();
        until("it is for long", || published.elapsed() > 2 * LINGER);
        let ended = Instant::now();
        files::flock(&running.lock, libc::LOCK_UN).unwrap();
        assert!(sender.join().unwrap().is_complete);
        assert!(ended.elapsed() >= LINGER, "{:?}", ended.elapsed());
    });
}
