//! Analysis of a recording in chunks gives the same results as without chunks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_ctf::{StreamChannel, StreamOwner, StreamWriter, TraceOrigin, TraceWriter};
use usertrace_sys::Scope;

use usertrace_testing::processes::{contexts, event, trace_in_ns};

const MS: u64 = 1_000_000;
/// Events of one CPU: id, time in ms, and payload.
type Events = &'static [(u16, u64, &'static [u64])];

/// The events of each chunk.
const CHUNKS: [Events; 3] = [
    &[
        (1, 1, &[1]),
        (4, 2, &[1000, 0xa0]),
        (4, 3, &[50, 0xb0]),
        (1, 10, &[2]),
    ],
    &[
        (2, 1000, &[2]),
        (5, 1001, &[0xa0]),
        (1, 1002, &[3]),
        (2, 1003, &[3]),
    ],
    &[(2, 3701, &[1]), (5, 3702, &[0xb0]), (4, 3703, &[7, 0xc0])],
];

/// Begins a trace of the process with this number. A trace of the first chunk lacks the events that
/// were declared later.
fn trace(parent: &Path, process: u64, is_first: bool) -> (TraceWriter, StreamWriter) {
    fs::create_dir_all(parent).unwrap();
    let of = TraceOrigin::Process {
        name: "prog".into(),
        pid: 40,
        process,
    };
    let mut trace = trace_in_ns(&parent.join(format!("prog-40-{process}")), "mine", of);
    let contexts = contexts("@1 u32 vtid;c8[16] procname");
    trace.declare_contexts(Scope::Cpu, &contexts).unwrap();
    let lines = [
        "1 t:work_entry 6 u64 n",
        "4 libc:malloc 14 u64 size;x64 ptr",
        "5 libc:free 14 x64 ptr",
        "2 t:work_exit 6 u64 n",
    ];
    for line in &lines[..lines.len() - usize::from(is_first)] {
        trace.declare(&event(line)).unwrap();
    }
    let mut channel = StreamChannel::new("main", 1);
    channel.set_contexts();
    let stream = trace.stream(&channel, StreamOwner::Cpu(0)).unwrap();
    (trace, stream)
}

fn write(stream: &mut StreamWriter, events: Events) {
    let contexts = [&41u32.to_ne_bytes()[..], b"worker\0\0\0\0\0\0\0\0\0\0"].concat();
    for (id, ms, payload) in events {
        let payload: Vec<u8> = payload.iter().flat_map(|n| n.to_ne_bytes()).collect();
        stream.event(*id, ms * MS, &contexts, &payload).unwrap();
        if *ms == 2 {
            stream.discard(3);
        }
    }
}

/// Writes the recording in chunks.
fn write_chunks(parent: &Path, process: u64) {
    for (n, events) in CHUNKS.into_iter().enumerate() {
        let chunk = parent.join(format!("20231114T22132{n}Z-{:06}", n + 1));
        let (_trace, mut stream) = trace(&chunk, process, n == 0);
        write(&mut stream, events);
        stream.finish().unwrap();
    }
}

/// Writes the same recording without chunks.
fn write_whole(parent: &Path, process: u64) {
    let (_trace, mut stream) = trace(parent, process, false);
    for events in CHUNKS {
        write(&mut stream, events);
    }
    stream.finish().unwrap();
}

/// A directory with a recording in `traces`.
struct Recording(tempfile::TempDir);

impl Recording {
    fn new(write: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("traces"));
        Self(directory)
    }

    fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        command.args(arguments).current_dir(&self.0);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output.stdout
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("traces")
    }
}

/// The results of all commands that combine events.
fn results(recording: &Recording) -> [Vec<u8>; 3] {
    let top = ["top", "--json", "-i", "0.05", "-n", "1", "./traces"];
    let top: serde_json::Value = serde_json::from_slice(&recording.run(&top)).unwrap();
    let rows = top["rows"].as_array().unwrap().iter();
    // Leave out rates, which depend on the time of the run.
    let rows = rows.map(|row| {
        let row = ["source", "process", "pid", "event", "total"].map(|name| row[name].to_string());
        row.join(" ") + "\n"
    });
    [
        recording.run(&["report", "-o", "-", "traces"]),
        recording.run(&["export", "--perfetto", "traces"]),
        rows.collect::<String>().into_bytes(),
    ]
}

/// Requirements: E8
#[test]
fn chunks_are_analysed_as_one_recording() {
    let whole = results(&Recording::new(|traces| write_whole(traces, 3)));
    let chunks = results(&Recording::new(|traces| write_chunks(traces, 3)));
    for (name, (whole, chunks)) in ["report", "perfetto", "top"]
        .iter()
        .zip(whole.iter().zip(&chunks))
    {
        let [whole, chunks] = [whole, chunks].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(!whole.is_empty());
        // Each page has a new nonce.
        let lines = whole.lines().zip(chunks.lines());
        for (whole, chunks) in lines.filter(|(line, _)| !line.contains("nonce")) {
            assert_eq!(chunks, whole, "{name}");
        }
        assert_eq!(chunks.len(), whole.len(), "{name}");
    }
}

/// Two processes with the same id have different numbers, and stay apart.
///
/// Requirements: E8
#[test]
fn processes_with_the_same_id_are_not_one() {
    let recording = Recording::new(|traces| {
        write_chunks(traces, 3);
        write_chunks(traces, 4);
    });
    let selection = usertrace_reader::Selection::default();
    let reader = usertrace_reader::Reader::open(&[recording.path()], selection).unwrap();
    let processes: Vec<_> = reader
        .traces()
        .iter()
        .map(|trace| trace.process())
        .collect();
    assert_eq!(processes, [0, 1, 0, 1, 0, 1]);
}
